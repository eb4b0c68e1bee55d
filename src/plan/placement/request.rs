//! What a cycle is about: a Subscription prepared once per change, and what is known at this moment.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::apps::{DividingType, FeedInventorySpec, SchedulingStrategy, Subscription, SubscriptionSpec, SubscriptionStatus};
use api::{conditions, known};
use api::selector::{Selector, SelectorError};
use jiff::Timestamp;

use super::snapshot::{SelectorId, Snapshot};

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
    pub selectors: Result<Vec<SelectorId>, SelectorError>,
    /// Keys of the feeds, in order.
    pub feed_keys: Arc<[String]>,
    /// A wish to divide anew that has not been done yet.
    pub rebalance: bool,
    /// The wish itself, to be noted as done.
    pub rebalance_mark: Option<String>,
    /// Whether moves keep the old place until the new one is healthy.
    pub graceful: bool,
}

impl Subject {
    /// Prepares a Subscription; its selectors are taken into use in the snapshot.
    pub fn of(subscription: &Subscription, snapshot: &mut Snapshot) -> Self {
        let parsed: Result<Vec<Selector>, SelectorError> =
            subscription.spec.subscribers.iter().map(|s| Selector::from_label_selector(&s.cluster_affinity)).collect();
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
}

impl Previous {
    /// Reads a status.
    pub fn of(status: &SubscriptionStatus) -> Self {
        Self {
            bindings: status.binding_clusters.iter().map(|key| Arc::from(key.as_str())).collect(),
            replicas: status.replicas.clone(),
            spec_hash: status.spec_hash,
            desired_releases: status.desired_releases,
        }
    }
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

    /// Replicas of a feed in a cluster as the status has them.
    pub fn previous_share(&self, feed: usize, binding: usize) -> i64 {
        let key = self.subject.feed_keys.get(feed);
        let shares = key.and_then(|key| self.previous.replicas.get(key));
        shares.and_then(|shares| shares.get(binding)).copied().map_or(0, i64::from)
    }
}
