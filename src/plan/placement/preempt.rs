//! Room made and kept: which replicas of lower priority give way, and how much of a capacity is promised already.
//!
//! Replicas of different Subscriptions need different amounts, so both questions are about resources: how many replicas of one
//! kind fit into what so many of another kind hold.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::apps::ReplicaRequirements;
use k8s_openapi::api::core::v1::ResourceRequirements;

use crate::quantity::Quantity;

use super::events::Events;
use super::framework::{Plugin, Point};

/// Name in configuration.
pub const NAME: &str = "DefaultPreemption";

/// Makes room by displacing lower priorities; the work is the scheduler's, which knows the others.
pub struct DefaultPreemption;

impl Plugin for DefaultPreemption {
    fn name(&self) -> &'static str {
        NAME
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PostFilter]
    }

    fn events(&self) -> Events {
        Events::RELEASED
    }
}

/// What one replica holds, in billionths by resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs(BTreeMap<String, i128>);

impl Needs {
    /// Reads requirements: requests, and limits where no request is written.
    #[must_use]
    pub fn of(requirements: &ReplicaRequirements) -> Self {
        let ResourceRequirements { requests, limits, .. } = &requirements.resources;
        let mut out = BTreeMap::new();
        for (name, text) in limits.iter().flatten().chain(requests.iter().flatten()) {
            if let Some(amount) = Quantity::parse(&text.0) {
                out.insert(name.clone(), amount.nanos().max(0));
            }
        }
        Self(out)
    }

    fn add(&mut self, other: &Self, times: i64) {
        for (name, amount) in &other.0 {
            let have = self.0.entry(name.clone()).or_default();
            *have = have.saturating_add(amount.saturating_mul(i128::from(times)));
        }
    }

    /// How many replicas of `one` fit into this, given `pods` places for Pods.
    fn takes(&self, one: &Self, pods: i64) -> i64 {
        let wanted = one.0.iter().filter(|(_, amount)| **amount > 0);
        let fit = wanted.map(|(name, amount)| self.0.get(name).copied().unwrap_or(0) / amount).min();
        fit.map_or(pods, |fit| i64::try_from(fit).unwrap_or(i64::MAX).min(pods))
    }

    /// How many replicas of `one` lose their place when `count` of these come.
    #[must_use]
    pub fn cost(&self, count: i64, one: &Self) -> i64 {
        let shared = one.0.iter().filter(|(_, amount)| **amount > 0).map(|(name, amount)| {
            let taken = self.0.get(name).copied().unwrap_or(0).saturating_mul(i128::from(count));
            i64::try_from((taken + amount - 1) / amount).unwrap_or(i64::MAX)
        });
        // Without any request in common only the places for Pods are shared.
        shared.max().unwrap_or(count)
    }
}

/// Replicas of a lower priority in one cluster.
#[derive(Clone, Debug)]
pub struct Holding {
    /// Subscription that they belong to.
    pub subscription: Arc<str>,
    /// Its priority.
    pub priority: i32,
    /// Key of the feed.
    pub feed: String,
    /// Cluster.
    pub cluster: Arc<str>,
    /// How many there are.
    pub replicas: i64,
    /// What one of them holds.
    pub needs: Needs,
}

/// Replicas that are wanted and found no room.
#[derive(Clone, Debug)]
pub struct Missing {
    /// How many.
    pub replicas: i64,
    /// What one of them needs.
    pub needs: Needs,
}

/// Replicas that give way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Take {
    /// Subscription that gives way.
    pub subscription: Arc<str>,
    /// Key of the feed.
    pub feed: String,
    /// Cluster.
    pub cluster: Arc<str>,
    /// How many.
    pub replicas: i64,
}

/// What gives way, and how many of the missing replicas gain a place in which cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preemption {
    /// Who gives way.
    pub takes: Vec<Take>,
    /// Places gained: cluster, index among the missing, replicas.
    pub gains: Vec<(Arc<str>, usize, i64)>,
}

/// Chooses: lowest priority first, then those with most replicas in a cluster, so that few are touched. Nothing is taken that
/// makes no room.
#[must_use]
pub fn choose(missing: &[Missing], holdings: &[Holding]) -> Preemption {
    let mut out = Preemption::default();
    let mut left: Vec<Holding> = holdings.to_vec();
    left.sort_by(|a, b| {
        let rank = |one: &Holding| (one.priority, -one.replicas);
        rank(a).cmp(&rank(b)).then_with(|| (&a.cluster, &a.subscription, &a.feed).cmp(&(&b.cluster, &b.subscription, &b.feed)))
    });
    for (index, wanted) in missing.iter().enumerate() {
        let mut open = wanted.replicas;
        let mut freed: BTreeMap<Arc<str>, (Needs, i64, Vec<usize>)> = BTreeMap::new();
        for at in 0..left.len() {
            if open <= 0 {
                break;
            }
            if left[at].replicas == 0 {
                continue;
            }
            let cluster = Arc::clone(&left[at].cluster);
            let (have, pods, from) = freed.entry(Arc::clone(&cluster)).or_default();
            // As few of this one as give all that is open, or all of it.
            let gain = |count: i64| {
                let mut sum = have.clone();
                sum.add(&left[at].needs, count);
                sum.takes(&wanted.needs, *pods + count)
            };
            let goal = gain(left[at].replicas).min(open);
            let (mut low, mut high) = (0, left[at].replicas);
            while low < high {
                let middle = low + (high - low) / 2;
                if gain(middle) >= goal { high = middle } else { low = middle + 1 }
            }
            let count = if goal == 0 { left[at].replicas } else { low };
            have.add(&left[at].needs, count);
            *pods += count;
            from.push(at);
            out.takes.push(Take { subscription: Arc::clone(&left[at].subscription), feed: left[at].feed.clone(), cluster: Arc::clone(&cluster), replicas: count });
            left[at].replicas -= count;
            if goal > 0 {
                // What was freed is used up; a remainder is left unused.
                open -= goal;
                out.gains.push((Arc::clone(&cluster), index, goal));
                freed.remove(&cluster);
            }
        }
        // Clusters in which nothing was gained give everything back.
        for (cluster, (_, _, from)) in freed {
            for at in from {
                let one = &left[at];
                let is = |take: &Take| take.cluster == cluster && take.subscription == one.subscription && take.feed == one.feed;
                if let Some(place) = out.takes.iter().rposition(is) {
                    let take = out.takes.remove(place);
                    left[at].replicas += take.replicas;
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn needs(cpu: &str) -> Needs {
        let requirements: ReplicaRequirements = serde_json::from_value(json!({"resources": {"requests": {"cpu": cpu}}})).expect("requirements");
        Needs::of(&requirements)
    }

    fn holding(subscription: &str, priority: i32, cluster: &str, replicas: i64, cpu: &str) -> Holding {
        Holding { subscription: subscription.into(), priority, feed: "f".to_owned(), cluster: cluster.into(), replicas, needs: needs(cpu) }
    }

    fn check(wanted: &[(i64, &str)], holdings: &[Holding], takes: &[(&str, &str, i64)], gains: &[(&str, i64)]) {
        let missing: Vec<Missing> = wanted.iter().map(|(replicas, cpu)| Missing { replicas: *replicas, needs: needs(cpu) }).collect();
        let got = choose(&missing, holdings);
        let got_takes: Vec<(&str, &str, i64)> = got.takes.iter().map(|take| (&*take.subscription, &*take.cluster, take.replicas)).collect();
        assert_eq!(got_takes, takes);
        assert_eq!(got.gains.iter().map(|(cluster, _, count)| (&**cluster, *count)).collect::<Vec<_>>(), gains);
    }

    #[test]
    fn few_and_low_ones_give_way() {
        check(&[(2, "1")], &[holding("low", 1, "a", 5, "1"), holding("mid", 2, "a", 5, "1")], &[("low", "a", 2)], &[("a", 2)]);
        check(&[(2, "2")], &[holding("low", 1, "a", 5, "1")], &[("low", "a", 4)], &[("a", 2)]);
        check(&[(3, "500m")], &[holding("low", 1, "a", 5, "1")], &[("low", "a", 3)], &[("a", 3)]);
        check(&[(3, "1")], &[holding("low", 1, "a", 1, "1"), holding("low", 1, "b", 2, "1")], &[("low", "b", 2), ("low", "a", 1)], &[("b", 2), ("a", 1)]);
        // Two small ones together make room for a large one, in one cluster only.
        check(&[(1, "2")], &[holding("x", 1, "a", 1, "1"), holding("y", 1, "b", 1, "1"), holding("z", 2, "a", 1, "1")], &[("x", "a", 1), ("z", "a", 1)], &[("a", 1)]);
        // What makes no room is left in peace.
        check(&[(1, "9")], &[holding("x", 1, "a", 3, "1")], &[], &[]);
    }

    #[test]
    fn promised_room_costs_what_it_holds() {
        assert_eq!(needs("1").cost(3, &needs("2")), 2);
        assert_eq!(needs("2").cost(3, &needs("1")), 6);
        assert_eq!(needs("2").cost(3, &Needs::default()), 3);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_more_is_taken_than_is_there_and_it_pays(
            wanted in proptest::collection::vec((1i64..20, 1u32..5), 1..4),
            holdings in proptest::collection::vec((0usize..3, 0i32..3, 0usize..3, 0i64..9, 1u32..5), 0..8),
        ) {
            let missing: Vec<Missing> = wanted.iter().map(|(replicas, cpu)| Missing { replicas: *replicas, needs: needs(&cpu.to_string()) }).collect();
            let mut list: Vec<Holding> = Vec::new();
            for (sub, priority, cluster, replicas, cpu) in holdings {
                let (sub, cluster) = (["x", "y", "z"][sub], ["a", "b", "c"][cluster]);
                if !list.iter().any(|one| &*one.subscription == sub && &*one.cluster == cluster) {
                    list.push(holding(sub, priority, cluster, replicas, &cpu.to_string()));
                }
            }
            let got = choose(&missing, &list);
            for one in &list {
                let taken: i64 = got.takes.iter().filter(|take| take.subscription == one.subscription && take.cluster == one.cluster).map(|take| take.replicas).sum();
                prop_assert!(taken <= one.replicas);
            }
            for (index, wanted) in missing.iter().enumerate() {
                let gained: i64 = got.gains.iter().filter(|gain| gain.1 == index).map(|gain| gain.2).sum();
                prop_assert!(gained <= wanted.replicas);
            }
            prop_assert_eq!(got.takes.is_empty(), got.gains.is_empty());
        }
    }
}
