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

/// What was displaced for whom, as long as somebody still misses something.
#[derive(Debug, Default)]
pub(crate) struct Preemptions {
    /// Since when a Subscription finds no room.
    short: BTreeMap<Key, Timestamp>,
    /// For whom room was made: who gave way, with how many replicas.
    made: BTreeMap<Key, BTreeMap<Key, i64>>,
    /// Who gave way: to whom, with how many replicas.
    gave: BTreeMap<Key, BTreeMap<Key, i64>>,
}

impl Preemptions {
    /// Since when a Subscription finds no room.
    pub(crate) fn short_since(&self, key: &str) -> Option<Timestamp> {
        self.short.get(key).copied()
    }

    /// A Subscription is gone, or has all it wants.
    pub(crate) fn forget(&mut self, key: &str) {
        self.short.remove(key);
        self.made.remove(key);
        self.gave.remove(key);
    }

    fn note(&mut self, by: &Key, victim: &Key, replicas: i64) {
        *self.made.entry(Arc::clone(by)).or_default().entry(Arc::clone(victim)).or_default() += replicas;
        *self.gave.entry(Arc::clone(victim)).or_default().entry(Arc::clone(by)).or_default() += replicas;
    }

    /// What a Subscription that misses something should say about it.
    fn tell(&self, key: &str, decision: &mut Decision) {
        let words = |list: &BTreeMap<Key, i64>| {
            let named = list.iter().take(5).map(|(other, count)| (other, plural(*count)));
            named.map(|(other, count)| (other.to_string(), count)).collect::<Vec<_>>()
        };
        if let Some(list) = self.made.get(key) {
            let text: Vec<String> = words(list).into_iter().map(|(other, count)| format!("{count} of {other}")).collect();
            decision.warnings.push((Reason::Preempted, format!("waits for {} to leave, which have a lower priority", text.join(", "))));
        }
        if let Some(list) = self.gave.get(key) {
            let text: Vec<String> = words(list).into_iter().map(|(other, count)| format!("{count} gave way to {other}")).collect();
            decision.warnings.push((Reason::Preempted, format!("{}, of a higher priority", text.join(", "))));
        }
    }
}

fn plural(count: i64) -> String {
    format!("{count} {}", if count == 1 { "replica" } else { "replicas" })
}

/// What is to be made room for, and where: all of it anywhere, or one replica in each cluster that is lacking.
fn parts(narrow: &[Arc<str>], missing: Vec<Missing>) -> Vec<(Option<&Arc<str>>, Vec<Missing>)> {
    let Some(first) = missing.first().filter(|_| !narrow.is_empty()) else { return vec![(None, missing)] };
    let one = || vec![Missing { replicas: 1, needs: first.needs.clone() }];
    narrow.iter().take(usize::try_from(first.replicas).unwrap_or(0)).map(|cluster| (Some(cluster), one())).collect()
}

impl Brain {
    /// What one replica of each feed of a Subscription needs, by feed key.
    pub(crate) fn needs(&self, key: &str) -> BTreeMap<String, Needs> {
        let orders = self.inventories.get(key).into_iter().flat_map(|inventory| &inventory.feeds);
        orders.map(|order| (order.feed.key(), Needs::of(&order.replica_requirements))).collect()
    }

    /// Displaces lower priorities for what a decision could not place. Nothing happens when that gains nothing, and not yet for
    /// replicas whose room may only be counted twice: `doubt` has their number by feed.
    pub(crate) fn preempt(&mut self, key: &Key, request: &Request, decision: &mut Decision, doubt: &BTreeMap<usize, i64>, now: Timestamp) {
        if decision.missing.is_empty() {
            self.preemptions.forget(key);
            return;
        }
        self.preemptions.short.entry(Arc::clone(key)).or_insert(now);
        let spec = &request.subject.spec;
        let enabled = self.framework.profiles.get(&spec.scheduler_name).is_some_and(|profile| {
            profile.at(Point::PostFilter).iter().any(|enabled| enabled.plugin.name() == preempt::NAME)
        });
        if enabled && spec.preemption_policy != Some(PreemptionPolicy::PreemptNever) {
            self.make_room(key, request, decision, doubt, now);
        }
        self.preemptions.tell(key, decision);
    }

    fn make_room(&mut self, key: &Key, request: &Request, decision: &mut Decision, doubt: &BTreeMap<usize, i64>, now: Timestamp) {
        let holdings = self.holdings(key, request);
        if holdings.is_empty() {
            return;
        }
        let needs = self.needs(key);
        let mut feeds = Vec::new();
        let mut missing = Vec::new();
        let mut doubted = false;
        for (at, replicas) in &decision.missing {
            let Some(feed) = request.subject.feed_keys.get(*at) else { continue };
            // Room that was made a moment ago is not made twice.
            let open = replicas - self.promises.nominated(key, feed);
            let sure = open - doubt.get(at).copied().unwrap_or(0);
            doubted |= open > 0 && sure < open;
            if sure > 0 {
                missing.push(Missing { replicas: sure, needs: needs.get(feed).cloned().unwrap_or_default() });
                feeds.push(feed.clone());
            }
        }
        let mut takes = Vec::new();
        for (places, missing) in parts(&decision.narrow, missing) {
            let here: Vec<Holding> = holdings.iter().filter(|one| places.is_none_or(|place| one.cluster == *place)).cloned().collect();
            let chosen = preempt::choose(&missing, &here);
            for (cluster, at, replicas) in &chosen.gains {
                self.promises.nominate(cluster, key, &feeds[*at], *replicas, missing[*at].needs.clone(), now);
            }
            takes.extend(chosen.takes);
        }
        let mut by_victim: BTreeMap<Arc<str>, Vec<preempt::Take>> = BTreeMap::new();
        for take in takes {
            by_victim.entry(Arc::clone(&take.subscription)).or_default().push(take);
        }
        for (victim, takes) in by_victim {
            self.preemptions.note(key, &victim, takes.iter().map(|take| take.replicas).sum());
            self.displace(&victim, &takes, key);
        }
        let mut again = |at: Timestamp| decision.recheck = Some(decision.recheck.map_or(at, |have| have.min(at)));
        // Their places are taken as soon as the clusters say that they are free.
        if request.subject.feed_keys.iter().any(|feed| self.promises.nominated(key, feed) > 0) {
            again(now.saturating_add(SOON).unwrap_or(Timestamp::MAX));
        }
        if doubted && let Some(at) = self.promises.settled() {
            again(at);
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
        let total = plural(takes.iter().map(|take| take.replicas).sum());
        let decision = Box::new(Decision {
            outcome: Outcome::Bind(placement),
            reason: Reason::Preempted,
            message: format!("{total} gave way to {by}, which has a higher priority"),
            warnings: Vec::new(),
            retry: Retry::Backoff,
            wake: Events::ADDED | Events::CAPACITY | Events::PREDICTOR | Events::RELEASED,
            recheck: None,
            missing: BTreeMap::new(),
            narrow: Vec::new(),
            wait: false,
            explain: Explain::default(),
        });
        if let Some(decided) = self.decided(Arc::clone(victim), decision) {
            self.urgent.push_back(Box::new(decided));
        }
    }
}
