//! DynamicAssigner: divides replicas by predicted capacity, only ever moving the difference.
//!
//! A larger total never lowers a cluster and a smaller one never raises it, since only the difference to what is placed
//! is divided: growth over free capacity, shrinking over what is there. What cannot be placed stays unplaced and is said.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::apps::{DividingStrategy, DividingType, DynamicDividing};
use api::known;
use api::reason::Reason;
use k8s_openapi::api::core::v1::TopologySpreadConstraint;

use crate::placement::cluster::ClusterInfo;
use crate::placement::cycle::Cycle;
use crate::placement::divide;
use crate::placement::events::Events;
use crate::placement::framework::{Code, CycleState, Plugin, Point, Shares, Status};
use crate::placement::plugins::spread;
use crate::placement::preempt::Needs;
use crate::placement::request::share_at;

/// Name in configuration.
pub const NAME: &str = "DynamicAssigner";

/// The plugin.
pub struct DynamicAssigner;

impl Plugin for DynamicAssigner {
    fn name(&self) -> &'static str {
        NAME
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreAssign, Point::Assign]
    }

    fn events(&self) -> Events {
        Events::ADDED | Events::CAPACITY | Events::PREDICTOR | Events::RELEASED
    }

    fn pre_assign(&self, cycle: &Cycle, _: &mut CycleState) -> Status {
        let Some(dynamic) = options(cycle) else { return Status::SKIP };
        match spread::faults(&dynamic.topology_spread_constraints, &dynamic.preferred_clusters) {
            Some(fault) if !cycle.policy.ignore_dynamic_options => Status::new(Code::UnschedulableAndUnresolvable, fault),
            _ => Status::SUCCESS,
        }
    }

    fn assign(&self, cycle: &mut Cycle, _: &mut CycleState) -> Result<Shares, Status> {
        let Some(dynamic) = options(cycle).cloned() else { return Err(Status::SKIP) };
        let plain = cycle.policy.ignore_dynamic_options;
        let mut capacity = capacities(cycle);
        let room = Room::of(cycle, &dynamic, &capacity, plain);
        let least = usize::try_from(dynamic.min_clusters.filter(|_| !plain).unwrap_or(0)).unwrap_or(0);
        if room.order.len() < least {
            let (usable, infos) = (room.order.len(), &cycle.candidates);
            cycle.narrow = infos.iter().enumerate().filter(|(at, _)| !room.order.contains(at)).map(|(_, one)| Arc::clone(&one.info.key)).collect();
            // Lower priorities may give way where there is no room yet, one replica in each cluster that is lacking.
            let first = cycle.desired.keys().next().copied();
            cycle.missing = first.map(|feed| (feed, i64::try_from(least - usable).unwrap_or(i64::MAX))).into_iter().collect();
            let text = format!("minClusters is {least}, but only {usable} of {} clusters can take replicas", cycle.candidates.len());
            return Err(Status::new(Code::Unschedulable, text));
        }
        let needs = if plain { Vec::new() } else { needs(cycle) };
        let mut shares = Shares::new();
        let mut missing = Vec::new();
        let mut lacking = BTreeMap::new();
        for (at, (feed, desired)) in cycle.desired.iter().enumerate() {
            let current = current_shares(cycle, *feed, &room.usable);
            let share = room.divide(*desired, &current, capacity.get(at).map_or(&[], Vec::as_slice), &dynamic, plain);
            let placed: i64 = share.iter().sum();
            if placed < *desired {
                lacking.insert(*feed, desired - placed);
                missing.push(format!("{} of {desired} replicas of {}", desired - placed, cycle.request.subject.feed_keys[*feed]));
            }
            // What one feed takes is no longer there for the next ones.
            for (later, row) in capacity.iter_mut().enumerate().skip(at + 1) {
                let (Some(mine), Some(theirs)) = (needs.get(at), needs.get(later)) else { continue };
                for ((free, share), current) in row.iter_mut().zip(&share).zip(&current).filter(|((_, share), current)| share > current) {
                    *free = free.saturating_sub(mine.cost(share - current, theirs));
                }
            }
            shares.insert(*feed, share);
        }
        let (usable, order) = (room.usable, room.order);
        if !missing.is_empty() {
            cycle.short = true;
            cycle.missing = lacking;
        }
        let text = format!("no cluster has room for {}", missing.join(", "));
        // Under packing and under a bound on their number, clusters without any replica are not bound.
        let bounded = !plain && dynamic.max_clusters.is_some();
        if shares.is_empty() {
            // Nothing is divided: what has no replicas goes to every cluster that may be used.
            for (candidate, usable) in cycle.candidates.iter_mut().zip(&usable) {
                candidate.dropped = !usable;
            }
        } else if dynamic.strategy == DividingStrategy::Binpack || bounded {
            let idle: Vec<bool> = (0..cycle.candidates.len()).map(|index| shares.values().all(|share| share[index] == 0)).collect();
            if !idle.contains(&false) && !missing.is_empty() {
                return Err(Status::new(Code::Unschedulable, text));
            }
            for (candidate, idle) in cycle.candidates.iter_mut().zip(&idle) {
                candidate.dropped = *idle;
            }
            if !idle.contains(&false) {
                // Nothing is wanted: it rests in one place, where it was if it was anywhere.
                let first = order.first().copied().or_else(|| cycle.candidates.iter().position(|one| one.bound.is_some())).unwrap_or(0);
                cycle.candidates[first].dropped = false;
            }
        }
        if !missing.is_empty() {
            cycle.warn(Reason::InsufficientCapacity, text);
        }
        let used = (0..cycle.candidates.len()).filter(|index| shares.values().any(|share| share[*index] > 0)).count();
        if least > 0 && used < least && !shares.is_empty() {
            let text = match missing.is_empty() && cycle.desired.values().sum::<i64>() >= dynamic.min_clusters.map_or(0, i64::from) {
                true => format!("minClusters is {least}, but the replicas stand in {used}; a new text in the annotation {} divides them anew", known::annotation::REBALANCE),
                false => format!("minClusters is {least}, but there are replicas for {used} only"),
            };
            cycle.warn(Reason::ConstraintNotMet, text);
        }
        Ok(shares)
    }
}

/// Faults of options that contradict each other or mean nothing.
pub(crate) fn fault(dynamic: &DynamicDividing) -> Option<String> {
    match (dynamic.min_clusters, dynamic.max_clusters) {
        (_, Some(most)) if most < 1 => Some(format!("dynamicDividing.maxClusters is {most}, but must be at least 1; leave it out for no bound")),
        (Some(least), _) if least < 0 => Some(format!("dynamicDividing.minClusters is {least}, but must not be negative")),
        (Some(least), Some(most)) if least > most => {
            Some(format!("dynamicDividing.minClusters ({least}) is more than dynamicDividing.maxClusters ({most})"))
        }
        _ => None,
    }
}

/// Free replicas by divided feed. On a fresh division the own replicas are in the way of nobody, so their room counts as free.
fn capacities(cycle: &Cycle) -> Vec<Vec<i64>> {
    let mut capacity = cycle.capacity.clone();
    if cycle.request.subject.rebalance {
        for (row, feed) in capacity.iter_mut().zip(cycle.desired.keys()) {
            let had = cycle.request.previous_shares(*feed);
            for (free, candidate) in row.iter_mut().zip(&cycle.candidates) {
                *free = free.saturating_add(candidate.bound.map_or(0, |binding| share_at(had, binding)));
            }
        }
    }
    capacity
}

/// What one replica of each divided feed holds, in order; empty when there is only one, which shares with nobody.
fn needs(cycle: &Cycle) -> Vec<Needs> {
    if cycle.desired.len() < 2 {
        return Vec::new();
    }
    let orders = cycle.request.inventory.iter().flat_map(|inventory| &inventory.feeds);
    let orders: BTreeMap<String, Needs> = orders.map(|order| (order.feed.key(), Needs::of(&order.replica_requirements))).collect();
    let keys = &cycle.request.subject.feed_keys;
    cycle.desired.keys().map(|feed| keys.get(*feed).and_then(|key| orders.get(key)).cloned().unwrap_or_default()).collect()
}

fn options(cycle: &Cycle) -> Option<&DynamicDividing> {
    let dividing = cycle.request.subject.spec.dividing_scheduling.as_ref()?;
    if dividing.kind != DividingType::Dynamic {
        return None;
    }
    dividing.dynamic_dividing.as_ref()
}

/// Replicas of a feed where they are now; nothing in clusters that may not be used, and nothing on a fresh division.
fn current_shares(cycle: &Cycle, feed: usize, usable: &[bool]) -> Vec<i64> {
    let had = cycle.request.previous_shares(feed);
    let share = |(candidate, usable): (&crate::placement::cycle::Candidate, &bool)| match candidate.bound {
        Some(binding) if *usable && !cycle.request.subject.rebalance => share_at(had, binding),
        _ => 0,
    };
    cycle.candidates.iter().zip(usable).map(share).collect()
}

/// Which clusters may be used, and in which order they are liked.
struct Room<'a> {
    infos: Vec<&'a ClusterInfo>,
    usable: Vec<bool>,
    preference: Vec<i64>,
    /// Usable clusters: with replicas first, then preferred, then with most capacity, then by name.
    order: Vec<usize>,
}

impl<'a> Room<'a> {
    fn of(cycle: &'a Cycle, dynamic: &DynamicDividing, capacity: &[Vec<i64>], plain: bool) -> Self {
        let count = cycle.candidates.len();
        let infos: Vec<&ClusterInfo> = cycle.candidates.iter().map(|candidate| &*candidate.info).collect();
        let mut usable = vec![true; count];
        let preference: Vec<i64> = if plain || dynamic.preferred_clusters.is_empty() {
            vec![0; count]
        } else {
            infos.iter().map(|info| spread::preference(info, &dynamic.preferred_clusters)).collect()
        };
        let present: Vec<i64> = if cycle.desired.is_empty() {
            // Without replicas being there is all there is to it.
            cycle.candidates.iter().map(|candidate| i64::from(candidate.bound.is_some())).collect()
        } else if cycle.request.subject.rebalance {
            vec![0; count]
        } else {
            let had: Vec<&[i32]> = cycle.desired.keys().map(|feed| cycle.request.previous_shares(*feed)).collect();
            let total = |binding: usize| had.iter().map(|shares| share_at(shares, binding)).sum();
            cycle.candidates.iter().map(|candidate| candidate.bound.map_or(0, total)).collect()
        };
        let free: Vec<i64> = (0..count).map(|index| capacity.iter().map(|row| row[index].max(0)).fold(0, i64::saturating_add)).collect();
        let takes = |index: &usize| cycle.desired.is_empty() || free[*index] > 0 || present[*index] > 0;
        let mut order: Vec<usize> = (0..count).filter(takes).collect();
        let ranked = dynamic.strategy == DividingStrategy::Binpack
            || (!plain && (dynamic.max_clusters.is_some() || dynamic.min_clusters.is_some()));
        if !ranked {
            return Self { infos, usable, preference, order };
        }
        order.sort_by_cached_key(|index| (present[*index] == 0, -preference[*index], -free[*index], *index));
        if let Some(most) = dynamic.max_clusters.filter(|_| !plain) {
            let most = usize::try_from(most).unwrap_or(0).max(1);
            for index in order.iter().skip(most) {
                usable[*index] = false;
            }
            order.truncate(most);
        }
        Self { infos, usable, preference, order }
    }

    fn divide(&self, desired: i64, current: &[i64], capacity: &[i64], dynamic: &DynamicDividing, plain: bool) -> Vec<i64> {
        let placed: i64 = current.iter().sum();
        let packs = dynamic.strategy == DividingStrategy::Binpack;
        let least = usize::try_from(dynamic.min_clusters.filter(|_| !plain).unwrap_or(0)).unwrap_or(0);
        let rules = if plain { &[][..] } else { dynamic.topology_spread_constraints.as_slice() };
        if desired < placed {
            return self.shrink(placed - desired, current, least, rules, packs);
        }
        let capacity: Vec<i64> =
            capacity.iter().zip(&self.usable).map(|(free, usable)| if *usable { (*free).max(0) } else { 0 }).collect();
        let mut grown = vec![0; current.len()];
        let mut rest = desired - placed;
        if least > 0 {
            rest -= self.seed(rest, least, current, &capacity, rules, &mut grown);
        }
        if rest > 0 {
            let left: Vec<i64> = capacity.iter().zip(&grown).map(|(free, grown)| free - grown).collect();
            let now: Vec<i64> = current.iter().zip(&grown).map(|(current, grown)| current + grown).collect();
            let more = if packs && rules.is_empty() {
                let mut more = vec![0; left.len()];
                self.pack(rest, &left, &now, self.order.clone(), &mut more);
                more
            } else if packs {
                spread::grow(rest, &left, &now, &self.infos, rules, |rest, members, more| {
                    self.pack(rest, &left, &now, members.to_vec(), more);
                })
            } else if plain {
                divide::by_capacity(rest, &left)
            } else {
                self.spread(rest, &left, &now, dynamic)
            };
            grown.iter_mut().zip(more).for_each(|(grown, more)| *grown += more);
        }
        current.iter().zip(grown).map(|(current, grown)| current + grown).collect()
    }

    /// One replica each in as many clusters as are still wanted, within hard constraints; says how many were placed.
    fn seed(&self, amount: i64, least: usize, current: &[i64], capacity: &[i64], rules: &[TopologySpreadConstraint], grown: &mut [i64]) -> i64 {
        let used = current.iter().filter(|share| **share > 0).count();
        let wanted = i64::try_from(least.saturating_sub(used)).unwrap_or(0).min(amount);
        let mut guard = spread::Guard::of(&self.infos, rules, current);
        let mut left: Vec<usize> = self.order.iter().copied().filter(|index| current[*index] == 0 && capacity[*index] > 0).collect();
        let mut placed = 0;
        while placed < wanted {
            // Each one may open a place to those that were passed over.
            let Some(at) = left.iter().position(|index| guard.takes(*index)) else { break };
            let index = left.remove(at);
            guard.add(index);
            grown[index] = 1;
            placed += 1;
        }
        placed
    }

    /// Preferred clusters first, tier by tier; inside a tier by capacity, within the spread constraints.
    fn spread(&self, amount: i64, capacity: &[i64], current: &[i64], dynamic: &DynamicDividing) -> Vec<i64> {
        let mut tiers: Vec<i64> = self.preference.clone();
        tiers.sort_unstable_by(|a, b| b.cmp(a));
        tiers.dedup();
        let mut out = vec![0; capacity.len()];
        let mut rest = amount;
        for tier in tiers {
            let only: Vec<i64> =
                capacity.iter().zip(&self.preference).map(|(free, have)| if *have == tier { *free } else { 0 }).collect();
            let more = if dynamic.topology_spread_constraints.is_empty() {
                divide::by_capacity(rest, &only)
            } else {
                let now: Vec<i64> = current.iter().zip(&out).map(|(current, out)| current + out).collect();
                spread::grow(rest, &only, &now, &self.infos, &dynamic.topology_spread_constraints, |rest, members, more| {
                    let free: Vec<i64> = members.iter().map(|index| only[*index]).collect();
                    members.iter().zip(divide::by_capacity(rest, &free)).for_each(|(index, share)| more[*index] = share);
                })
            };
            rest -= more.iter().sum::<i64>();
            out.iter_mut().zip(more).for_each(|(out, more)| *out += more);
            if rest == 0 {
                break;
            }
        }
        out
    }

    /// Fewest clusters of `among`: those in use first; of new ones the preferred, then the smallest that takes all the rest,
    /// else the largest.
    fn pack(&self, amount: i64, capacity: &[i64], current: &[i64], among: Vec<usize>, out: &mut [i64]) {
        let mut rest = amount;
        let (mut in_use, mut fresh): (Vec<usize>, Vec<usize>) = among.into_iter().partition(|index| current[*index] > 0);
        in_use.sort_by_key(|index| (-self.preference[*index], -capacity[*index], *index));
        for index in in_use {
            let take = rest.min(capacity[index]);
            out[index] = take;
            rest -= take;
        }
        if rest == 0 {
            return;
        }
        fresh.sort_by_key(|index| (-self.preference[*index], -capacity[*index], *index));
        for (at, index) in fresh.iter().enumerate() {
            if rest == 0 {
                break;
            }
            let mut next = *index;
            if capacity[next] >= rest {
                // This one takes all that is left; the smallest equally liked one that does is the better place.
                let same = fresh[at..].iter().take_while(|other| self.preference[**other] == self.preference[*index]);
                let fits = same.filter(|other| capacity[**other] >= rest);
                next = fits.min_by_key(|other| (capacity[**other], **other)).copied().unwrap_or(next);
            }
            let take = rest.min(capacity[next]);
            out[next] += take;
            rest -= take;
        }
    }

    /// Spread shrinks everywhere by share; packing empties the least liked and smallest clusters. Neither gives up a cluster
    /// that minClusters wants, nor takes where that makes a hard constraint worse than it need be.
    fn shrink(&self, amount: i64, current: &[i64], least: usize, rules: &[TopologySpreadConstraint], packs: bool) -> Vec<i64> {
        let mut spare = current.to_vec();
        let left = current.iter().sum::<i64>() - amount;
        let mut kept: Vec<usize> = (0..current.len()).filter(|index| least > 0 && current[*index] > 0).collect();
        kept.sort_by_key(|index| (-self.preference[*index], -current[*index], *index));
        for index in kept.into_iter().take(least.min(usize::try_from(left).unwrap_or(0))) {
            spare[index] -= 1;
        }
        let drain = |amount: i64, spare: &[i64], among: &[usize]| {
            let mut order: Vec<usize> = among.iter().copied().filter(|index| spare[*index] > 0).collect();
            order.sort_by_key(|index| (self.preference[*index], current[*index], std::cmp::Reverse(*index)));
            divide::drain(amount, spare, &order)
        };
        let all: Vec<usize> = (0..current.len()).collect();
        let taken = if rules.iter().any(spread::is_hard) {
            spread::shrink(amount, &spare, current, &self.infos, rules, |amount, members, taken| {
                if packs {
                    drain(amount, &spare, members).into_iter().enumerate().filter(|(_, part)| *part > 0).for_each(|(index, part)| taken[index] = part);
                    return;
                }
                let have: Vec<i64> = members.iter().map(|index| spare[*index]).collect();
                members.iter().zip(divide::by_capacity(amount, &have)).for_each(|(index, part)| taken[*index] = part);
            })
        } else if packs {
            drain(amount, &spare, &all)
        } else {
            divide::by_capacity(amount, &spare)
        };
        current.iter().zip(taken).map(|(current, taken)| current - taken).collect()
    }
}
