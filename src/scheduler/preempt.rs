//! Preemption: replicas of lower priority give way to ones that found no room.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::apps::PreemptionPolicy;
use api::reason::Reason;
use jiff::Timestamp;
use plan::placement::framework::Point;
use plan::placement::plugins::taints;
use plan::placement::preempt::{self, Holding, Missing, Needs};
use plan::placement::{Decision, Events, Explain, Outcome, Placement, Request, Retry};

use crate::brain::Brain;
use crate::queue::Key;

/// How long the displaced are given before their room is asked for.
const SOON: Duration = Duration::from_secs(5);

impl Brain {
    /// What one replica of each feed of a Subscription needs, by feed key.
    pub(crate) fn needs(&self, key: &str) -> BTreeMap<String, Needs> {
        let orders = self.inventories.get(key).into_iter().flat_map(|inventory| &inventory.feeds);
        orders.map(|order| (order.feed.key(), Needs::of(&order.replica_requirements))).collect()
    }

    /// Displaces lower priorities for what a decision could not place. Nothing happens when that gains nothing.
    pub(crate) fn preempt(&mut self, key: &Key, request: &Request, decision: &mut Decision, now: Timestamp) {
        let spec = &request.subject.spec;
        let enabled = self.framework.profiles.get(&spec.scheduler_name).is_some_and(|profile| {
            profile.at(Point::PostFilter).iter().any(|enabled| enabled.plugin.name() == preempt::NAME)
        });
        if !enabled || decision.missing.is_empty() || spec.preemption_policy == Some(PreemptionPolicy::PreemptNever) {
            return;
        }
        let holdings = self.holdings(key, request);
        if holdings.is_empty() {
            return;
        }
        let needs = self.needs(key);
        let mut feeds = Vec::new();
        let mut missing = Vec::new();
        for (feed, replicas) in &decision.missing {
            let Some(feed) = request.subject.feed_keys.get(*feed) else { continue };
            // Room that was made a moment ago is not made twice.
            let replicas = replicas - self.promises.nominated(key, feed);
            if replicas > 0 {
                missing.push(Missing { replicas, needs: needs.get(feed).cloned().unwrap_or_default() });
                feeds.push(feed.clone());
            }
        }
        let chosen = preempt::choose(&missing, &holdings);
        let mut by_victim: BTreeMap<Arc<str>, Vec<preempt::Take>> = BTreeMap::new();
        for take in chosen.takes {
            by_victim.entry(Arc::clone(&take.subscription)).or_default().push(take);
        }
        for (cluster, at, replicas) in &chosen.gains {
            self.promises.nominate(cluster, key, &feeds[*at], *replicas, missing[*at].needs.clone(), now);
        }
        let mut displaced = 0;
        for (victim, takes) in by_victim {
            displaced += takes.iter().map(|take| take.replicas).sum::<i64>();
            self.displace(&victim, &takes, key);
        }
        if displaced > 0 {
            decision.warnings.push((Reason::Preempted, format!("{displaced} replicas of lower priority give way")));
        }
        // Their places are taken as soon as the clusters say that they are free.
        if !decision.missing.is_empty() && request.subject.feed_keys.iter().any(|feed| self.promises.nominated(key, feed) > 0) {
            let soon = now.saturating_add(SOON).unwrap_or(Timestamp::MAX);
            decision.recheck = Some(decision.recheck.map_or(soon, |at| at.min(soon)));
        }
    }

    /// Replicas of lower priority in the clusters that a Subscription may use.
    fn holdings(&self, key: &Key, request: &Request) -> Vec<Holding> {
        let priority = request.subject.spec.priority();
        let lower = |(other, entry): &(&Key, &crate::brain::Entry)| {
            *other != key && entry.subject.is_dynamic() && entry.subject.spec.priority() < priority && !entry.is_being_written()
        };
        let mut lower = self.entries.iter().filter(lower).peekable();
        if lower.peek().is_none() {
            return Vec::new();
        }
        let slots = request.subject.selectors.iter().flatten().flat_map(|id| self.snapshot.matches(*id));
        let infos = slots.filter_map(|slot| self.snapshot.cluster(*slot));
        let usable = infos.filter(|info| !taints::is_closed(info, request) && !taints::is_lost(info, &self.framework.policy, request));
        let usable: BTreeSet<&Arc<str>> = usable.map(|info| &info.key).collect();
        let mut out = Vec::new();
        for (other, entry) in lower.filter(|(other, _)| self.queue.is_free(other)) {
            let needs = self.needs(other);
            for (at, cluster) in entry.previous.bindings.iter().enumerate().filter(|(_, cluster)| usable.contains(cluster)) {
                for (feed, shares) in &entry.previous.replicas {
                    let replicas = shares.get(at).copied().map_or(0, i64::from);
                    if replicas > 0 {
                        let needs = needs.get(feed).cloned().unwrap_or_default();
                        let priority = entry.subject.spec.priority();
                        out.push(Holding { subscription: Arc::clone(other), priority, feed: feed.clone(), cluster: Arc::clone(cluster), replicas, needs });
                    }
                }
            }
        }
        out
    }

    /// Decides for the one who gives way, out of turn; its own next turn looks for other places.
    fn displace(&mut self, victim: &Key, takes: &[preempt::Take], by: &Key) {
        let Some(entry) = self.entries.get(victim) else { return };
        if !self.queue.interrupt(victim) {
            return;
        }
        let mut replicas = entry.previous.replicas.clone();
        for take in takes {
            let place = entry.previous.bindings.iter().position(|cluster| *cluster == take.cluster);
            if let Some(share) = place.and_then(|at| replicas.get_mut(&take.feed)?.get_mut(at)) {
                *share = share.saturating_sub(i32::try_from(take.replicas).unwrap_or(i32::MAX)).max(0);
            }
        }
        let placement = Placement {
            bindings: Arc::clone(&entry.previous.bindings),
            replicas,
            spec_hash: entry.previous.spec_hash,
            left: Arc::clone(&entry.previous.left),
        };
        let total: i64 = takes.iter().map(|take| take.replicas).sum();
        let decision = Box::new(Decision {
            outcome: Outcome::Bind(placement),
            reason: Reason::Preempted,
            message: format!("{total} replicas gave way to {by}, which has a higher priority"),
            warnings: Vec::new(),
            retry: Retry::Backoff,
            wake: Events::ADDED | Events::CAPACITY | Events::PREDICTOR | Events::RELEASED,
            recheck: None,
            missing: BTreeMap::new(),
            wait: false,
            explain: Explain::default(),
        });
        if let Some(decided) = self.decided(Arc::clone(victim), decision) {
            self.urgent.push_back(Box::new(decided));
        }
    }
}
