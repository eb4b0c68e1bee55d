//! What a cycle is about: a Subscription prepared once per change, and what is known at this moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::apps::{DividingType, FeedInventorySpec, SchedulingStrategy, Subscription, SubscriptionSpec, SubscriptionStatus};
use api::conditions::Verdict;
use api::reason::Reason;
use api::{conditions, known};
use api::selector::{Selector, SelectorError};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::snapshot::{SelectorId, Snapshot};

/// A selector that cannot be read.
#[derive(Clone, Debug)]
pub struct SelectorFault {
    /// Which subscriber has it.
    pub index: usize,
    /// What is wrong.
    pub error: SelectorError,
}

/// A Subscription, prepared.
#[derive(Clone, Debug)]
pub struct Subject {
    /// `namespace/name`.
    pub key: String,
    /// Spec.
    pub spec: Arc<SubscriptionSpec>,
    /// Generation of the spec.
    pub generation: i64,
    /// Hash of the spec.
    pub spec_hash: u64,
    /// One selector per subscriber, or the first fault.
    pub selectors: Result<Vec<SelectorId>, SelectorFault>,
    /// Keys of the feeds, in order.
    pub feed_keys: Arc<[String]>,
    /// A wish to divide anew that has not been done yet.
    pub rebalance: bool,
    /// The wish itself, to be noted as done.
    pub rebalance_mark: Option<String>,
    /// Whether moves keep the old place until the new one is healthy.
    pub graceful: bool,
    /// Whether replicas return by themselves to clusters that were left.
    pub failback: bool,
}

impl Subject {
    /// Prepares a Subscription; its selectors are taken into use in the snapshot.
    pub fn of(subscription: &Subscription, snapshot: &mut Snapshot) -> Self {
        let selector = |(index, subscriber): (usize, &api::apps::Subscriber)| {
            Selector::from_label_selector(&subscriber.cluster_affinity).map_err(|error| SelectorFault { index, error })
        };
        let parsed: Result<Vec<Selector>, SelectorFault> = subscription.spec.subscribers.iter().enumerate().map(selector).collect();
        let meta = &subscription.metadata;
        let annotation = |key: &str| meta.annotations.as_ref().and_then(|all| all.get(key)).cloned();
        let wish = annotation(known::annotation::REBALANCE);
        let statuses = subscription.status.as_ref().map_or(&[][..], |status| &status.conditions);
        let done = conditions::find(statuses, known::condition::REBALANCED).map(|condition| condition.message.as_str());
        Self {
            key: api::object::key(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default()),
            generation: meta.generation.unwrap_or_default(),
            spec_hash: subscription.spec.hash(),
            selectors: parsed.map(|selectors| selectors.iter().map(|selector| snapshot.intern(selector)).collect()),
            feed_keys: subscription.spec.feeds.iter().map(api::apps::Feed::key).collect(),
            rebalance: wish.is_some() && wish.as_deref() != done,
            rebalance_mark: wish,
            graceful: annotation(known::annotation::FAILOVER).as_deref() == Some("graceful"),
            failback: annotation(known::annotation::FAILBACK).as_deref() == Some("auto"),
            spec: Arc::new(subscription.spec.clone()),
        }
    }

    /// Gives the selectors back; call once when the Subscription is replaced or gone.
    pub fn release(&self, snapshot: &mut Snapshot) {
        for id in self.selectors.iter().flatten() {
            snapshot.release(*id);
        }
    }

    /// Whether replicas are divided.
    pub fn divides(&self) -> bool {
        self.spec.scheduling_strategy == SchedulingStrategy::Dividing
    }

    /// Whether replicas are divided by predicted capacity.
    pub fn is_dynamic(&self) -> bool {
        self.divides() && self.spec.dividing_scheduling.as_ref().is_some_and(|dividing| dividing.kind == DividingType::Dynamic)
    }
}

/// Where the feeds are now, as the status says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Previous {
    /// `namespace/name` of the bound clusters; shared between Subscriptions with equal bindings.
    pub bindings: Arc<[Arc<str>]>,
    /// Replicas by feed key, aligned with the bindings.
    pub replicas: BTreeMap<String, Vec<i32>>,
    /// Hash of the spec that was decided on.
    pub spec_hash: u64,
    /// Number of bindings as the status has it.
    pub desired_releases: i32,
    /// Clusters that were left because they failed.
    pub left: Left,
}

impl Previous {
    /// Reads a status.
    pub fn of(status: &SubscriptionStatus) -> Self {
        Self::with_texts(status, |key| Arc::from(key))
    }

    /// Reads a status; `text` has the text of a cluster's key, so that it need not be there twice.
    pub fn with_texts(status: &SubscriptionStatus, mut text: impl FnMut(&str) -> Arc<str>) -> Self {
        Self {
            bindings: status.binding_clusters.iter().map(|key| text(key)).collect(),
            replicas: status.replicas.clone(),
            spec_hash: status.spec_hash,
            desired_releases: status.desired_releases,
            left: left_of(&status.conditions),
        }
    }

    /// Writes it into a status, as binding does.
    pub fn write(&self, status: &mut SubscriptionStatus, now: Timestamp) {
        status.binding_clusters = self.bindings.iter().map(ToString::to_string).collect();
        status.replicas.clone_from(&self.replicas);
        status.spec_hash = self.spec_hash;
        status.desired_releases = self.desired_releases;
        mark_left(&mut status.conditions, &self.left, None, &Time(now));
    }
}

/// Clusters that a divided Subscription left because they failed, `namespace/name`.
pub type Left = Arc<BTreeSet<Arc<str>>>;

/// What stands before the names in the condition's message, and between them.
const LEFT: (&str, &str) = ("left after they failed or were drained: ", ", ");
/// How older versions began the message.
const LEFT_BEFORE: &str = "left after failing: ";
/// Longest message of the condition, well below what the API takes.
const LEFT_MAX: usize = 16 << 10;

fn left_of(list: &[Condition]) -> Left {
    let text = conditions::find(list, known::condition::FAILED_OVER);
    let text = text.and_then(|condition| condition.message.strip_prefix(LEFT.0).or_else(|| condition.message.strip_prefix(LEFT_BEFORE)));
    Arc::new(text.into_iter().flat_map(|text| text.split(LEFT.1)).map(Arc::from).collect())
}

/// Keeps the clusters that were left in the conditions; none removes the condition. Names that exceed its room are forgotten, so
/// that these clusters count as any other.
pub fn mark_left(list: &mut Vec<Condition>, left: &Left, generation: Option<i64>, now: &Time) {
    if left.is_empty() {
        conditions::remove(list, known::condition::FAILED_OVER);
        return;
    }
    let mut text = LEFT.0.to_owned();
    for (index, key) in left.iter().enumerate() {
        if text.len() + key.len() > LEFT_MAX {
            break;
        }
        if index > 0 {
            text.push_str(LEFT.1);
        }
        text.push_str(key);
    }
    conditions::set(list, known::condition::FAILED_OVER, Verdict::True, Reason::FailingOver.as_str(), &text, generation, now);
}

/// Ready replicas by feed key and cluster id, as the aggregated status says; only kept for graceful moves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ready(BTreeMap<(String, String), i32>);

impl Ready {
    /// Reads the aggregated status.
    pub fn of(status: &SubscriptionStatus) -> Self {
        let mut ready = BTreeMap::new();
        for aggregated in &status.aggregated_statuses {
            let key = aggregated.feed.key();
            for detail in &aggregated.feed_status_details {
                let replicas = detail.status.replica_status.ready_replicas;
                ready.insert((key.clone(), detail.cluster_id.clone()), replicas);
            }
        }
        Self(ready)
    }

    /// Ready replicas of a feed in a cluster.
    pub fn replicas(&self, feed: &str, cluster_id: &str) -> i64 {
        self.0.get(&(feed.to_owned(), cluster_id.to_owned())).copied().map_or(0, i64::from)
    }
}

/// All that a decision may depend on, besides the clusters.
#[derive(Clone)]
pub struct Request {
    /// The Subscription.
    pub subject: Arc<Subject>,
    /// Where its feeds are now.
    pub previous: Arc<Previous>,
    /// What is ready where, for graceful moves.
    pub ready: Arc<Ready>,
    /// Its FeedInventory, if there is one.
    pub inventory: Option<Arc<FeedInventorySpec>>,
    /// The instant of the decision.
    pub now: Timestamp,
}

impl Request {
    /// Desired replicas by feed index, of feeds that have replicas; `None` when the FeedInventory is absent or of
    /// another list of feeds.
    pub fn desired(&self) -> Option<BTreeMap<usize, i64>> {
        let inventory = self.inventory.as_ref()?;
        let feeds = &self.subject.spec.feeds;
        if inventory.feeds.len() != feeds.len() {
            return None;
        }
        let orders: BTreeMap<String, Option<i32>> =
            inventory.feeds.iter().map(|order| (order.feed.key(), order.desired_replicas)).collect();
        let mut desired = BTreeMap::new();
        for (index, key) in self.subject.feed_keys.iter().enumerate() {
            if let Some(replicas) = *orders.get(key)? {
                desired.insert(index, i64::from(replicas.max(0)));
            }
        }
        Some(desired)
    }

    /// What a division waits for that has no FeedInventory of its feeds.
    pub fn waits_for_inventory(&self) -> String {
        let keys = &self.subject.feed_keys;
        let Some(inventory) = &self.inventory else {
            return "waits for its FeedInventory, which is made once every feed is found".to_owned();
        };
        let have: BTreeSet<String> = inventory.feeds.iter().map(|order| order.feed.key()).collect();
        let lacking: Vec<&str> = keys.iter().filter(|key| !have.contains(*key)).map(String::as_str).take(5).collect();
        match lacking.is_empty() {
            true => "waits for its FeedInventory, which still lists feeds that the Subscription no longer has".to_owned(),
            false => format!("waits for its FeedInventory, which lacks {}", lacking.join(", ")),
        }
    }

    /// Whether all is divided anew for a cause that is not a cluster: the spec, a total, a wish, or nothing divided yet.
    pub fn is_fresh(&self) -> bool {
        let subject = &self.subject;
        if self.previous.bindings.is_empty() || self.previous.spec_hash != subject.spec_hash || subject.rebalance {
            return true;
        }
        self.desired().is_none_or(|desired| {
            subject.feed_keys.iter().enumerate().any(|(feed, key)| {
                let shares = self.previous.replicas.get(key).map_or(&[][..], Vec::as_slice);
                shares.iter().copied().map(i64::from).sum::<i64>() != desired.get(&feed).copied().unwrap_or(0)
            })
        })
    }

    /// Replicas of a feed in each bound cluster as the status has them.
    pub fn previous_shares(&self, feed: usize) -> &[i32] {
        let key = self.subject.feed_keys.get(feed);
        key.and_then(|key| self.previous.replicas.get(key)).map_or(&[], Vec::as_slice)
    }
}

/// One of the shares of [`Request::previous_shares`]; none is zero.
pub(super) fn share_at(shares: &[i32], binding: usize) -> i64 {
    shares.get(binding).copied().map_or(0, i64::from)
}
