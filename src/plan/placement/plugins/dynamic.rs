//! DynamicAssigner: divides replicas by predicted capacity, only ever moving the difference.
//!
//! A larger total never lowers a cluster and a smaller one never raises it, since only the difference to what is placed
//! is divided: growth over free capacity, shrinking over what is there. What cannot be placed stays unplaced and is said.

use api::apps::{DividingStrategy, DividingType, DynamicDividing};
use api::reason::Reason;

use crate::placement::cluster::ClusterInfo;
use crate::placement::cycle::Cycle;
use crate::placement::divide;
use crate::placement::events::Events;
use crate::placement::framework::{Code, CycleState, Plugin, Point, Shares, Status};
use crate::placement::plugins::spread;
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
        let room = Room::of(cycle, &dynamic, plain);
        let usable = room.usable.iter().filter(|usable| **usable).count();
        if let Some(least) = dynamic.min_clusters.filter(|_| !plain)
            && usable < usize::try_from(least).unwrap_or(0)
        {
            let text = format!("minClusters is {least}, but only {usable} clusters can take replicas");
            return Err(Status::new(Code::Unschedulable, text));
        }
        let mut shares = Shares::new();
        let mut missing = Vec::new();
        let mut lacking = std::collections::BTreeMap::new();
        for (at, (feed, desired)) in cycle.desired.iter().enumerate() {
            let current = current_shares(cycle, *feed, &room.usable);
            let none = Vec::new();
            let capacity = cycle.capacity.get(at).unwrap_or(&none);
            let share = room.divide(*desired, &current, capacity, &dynamic, plain);
            let placed: i64 = share.iter().sum();
            if placed < *desired {
                lacking.insert(*feed, desired - placed);
                missing.push(format!("{} of {desired} replicas of {}", desired - placed, cycle.request.subject.feed_keys[*feed]));
            }
            shares.insert(*feed, share);
        }
        let first = room.order.first().copied();
        if !missing.is_empty() {
            cycle.short = true;
            cycle.missing = lacking;
            cycle.warn(Reason::InsufficientCapacity, format!("no cluster has room for {}", missing.join(", ")));
        }
        // Under packing and under a bound on their number, clusters without any replica are not bound.
        let bounded = !plain && dynamic.max_clusters.is_some();
        if dynamic.strategy == DividingStrategy::Binpack || bounded {
            for (index, candidate) in cycle.candidates.iter_mut().enumerate() {
                candidate.dropped = shares.values().all(|share| share[index] == 0);
            }
            if let Some(first) = first.filter(|_| cycle.candidates.iter().all(|candidate| candidate.dropped)) {
                cycle.candidates[first].dropped = false;
            }
        }
        Ok(shares)
    }
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
    fn of(cycle: &'a Cycle, dynamic: &DynamicDividing, plain: bool) -> Self {
        let count = cycle.candidates.len();
        let infos: Vec<&ClusterInfo> = cycle.candidates.iter().map(|candidate| &*candidate.info).collect();
        let mut usable = vec![true; count];
        let preference: Vec<i64> = if plain || dynamic.preferred_clusters.is_empty() {
            vec![0; count]
        } else {
            infos.iter().map(|info| spread::preference(info, &dynamic.preferred_clusters)).collect()
        };
        let present: Vec<i64> = if cycle.request.subject.rebalance {
            vec![0; count]
        } else {
            let had: Vec<&[i32]> = cycle.desired.keys().map(|feed| cycle.request.previous_shares(*feed)).collect();
            let total = |binding: usize| had.iter().map(|shares| share_at(shares, binding)).sum();
            cycle.candidates.iter().map(|candidate| candidate.bound.map_or(0, total)).collect()
        };
        let free: Vec<i64> = (0..count).map(|index| cycle.capacity.iter().map(|row| row[index]).sum()).collect();
        let mut order: Vec<usize> = (0..count).filter(|index| free[*index] > 0 || present[*index] > 0).collect();
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
        if desired < placed {
            return self.shrink(placed - desired, current, packs);
        }
        let capacity: Vec<i64> =
            capacity.iter().zip(&self.usable).map(|(free, usable)| if *usable { (*free).max(0) } else { 0 }).collect();
        let mut grown = vec![0; current.len()];
        let mut rest = desired - placed;
        if let Some(least) = dynamic.min_clusters.filter(|_| !plain) {
            rest -= self.seed(rest, usize::try_from(least).unwrap_or(0), current, &capacity, &mut grown);
        }
        if rest > 0 {
            let left: Vec<i64> = capacity.iter().zip(&grown).map(|(free, grown)| free - grown).collect();
            let now: Vec<i64> = current.iter().zip(&grown).map(|(current, grown)| current + grown).collect();
            let more = if packs {
                self.pack(rest, &left, &now)
            } else if plain {
                divide::by_capacity(rest, &left)
            } else {
                self.spread(rest, &left, &now, dynamic)
            };
            grown.iter_mut().zip(more).for_each(|(grown, more)| *grown += more);
        }
        current.iter().zip(grown).map(|(current, grown)| current + grown).collect()
    }

    /// One replica each in as many clusters as are still wanted; says how many were placed.
    fn seed(&self, amount: i64, least: usize, current: &[i64], capacity: &[i64], grown: &mut [i64]) -> i64 {
        let used = current.iter().filter(|share| **share > 0).count();
        let wanted = i64::try_from(least.saturating_sub(used)).unwrap_or(0).min(amount);
        let mut placed = 0;
        for index in &self.order {
            if placed < wanted && current[*index] == 0 && capacity[*index] > 0 {
                grown[*index] = 1;
                placed += 1;
            }
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
                spread::grow(rest, &only, &now, &self.infos, &dynamic.topology_spread_constraints)
            };
            rest -= more.iter().sum::<i64>();
            out.iter_mut().zip(more).for_each(|(out, more)| *out += more);
            if rest == 0 {
                break;
            }
        }
        out
    }

    /// Fewest clusters: those in use first; of new ones the preferred, then the smallest that takes all the rest, else the
    /// largest.
    fn pack(&self, amount: i64, capacity: &[i64], current: &[i64]) -> Vec<i64> {
        let mut out = vec![0; capacity.len()];
        let mut rest = amount;
        let (in_use, mut fresh): (Vec<usize>, Vec<usize>) = self.order.iter().partition(|index| current[**index] > 0);
        for index in in_use {
            let take = rest.min(capacity[index]);
            out[index] = take;
            rest -= take;
        }
        if rest == 0 {
            return out;
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
        out
    }

    /// Spread shrinks everywhere by share; packing empties the least liked and smallest clusters.
    fn shrink(&self, amount: i64, current: &[i64], packs: bool) -> Vec<i64> {
        let taken = if packs {
            let mut order: Vec<usize> = (0..current.len()).filter(|index| current[*index] > 0).collect();
            order.sort_by_key(|index| (self.preference[*index], current[*index], std::cmp::Reverse(*index)));
            divide::drain(amount, current, &order)
        } else {
            divide::by_capacity(amount, current)
        };
        current.iter().zip(taken).map(|(current, taken)| current - taken).collect()
    }
}
