//! How many requests a priority level carries at a time: who goes at once, who waits, who is next, who is refused.
//!
//! A level has seats of its own and may take seats that other levels lend while they are idle. Requests beyond that wait in
//! the level's queues; a flow (one user, or one namespace) is dealt a few of the queues and joins the shortest, and the queue
//! that was served least goes next, so that one flow cannot starve the others.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Seconds that a request is charged with until it is known how long it took.
const GUESS: f64 = 0.003;

/// What a priority level may carry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Seats of its own.
    pub(crate) seats: u64,
    /// How many of them others may take while they are idle.
    pub(crate) lendable: u64,
    /// How many it may take from others; no limit when there is none.
    pub(crate) borrow: Option<u64>,
    /// Where requests wait; they are refused when there is nothing.
    pub(crate) queues: Option<Queuing>,
}

/// The queues of a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Queuing {
    /// How many.
    pub(crate) queues: usize,
    /// Of how many of them a flow gets the shortest.
    pub(crate) hand: usize,
    /// Most requests that wait in one.
    pub(crate) length: usize,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Refusal {
    /// All seats are taken, and the level has no queues.
    Limit,
    /// The queue is full.
    Full,
    /// It waited too long.
    Late,
}

impl Refusal {
    /// As metrics call it.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Limit => "concurrency-limit",
            Self::Full => "queue-full",
            Self::Late => "time-out",
        }
    }
}

struct Waiter {
    id: u64,
    seats: u64,
    go: oneshot::Sender<Permit>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiter>,
    /// Seat seconds served, as far as they count: an idle queue saves nothing up.
    served: f64,
}

struct Level {
    limits: Limits,
    used: u64,
    queues: Vec<Queue>,
}

#[derive(Default)]
struct State {
    levels: BTreeMap<String, Level>,
    last_id: u64,
}

/// What a level does at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Standing {
    /// The level.
    pub(crate) name: String,
    /// Its own seats.
    pub(crate) seats: u64,
    /// Seats that are taken.
    pub(crate) used: u64,
    /// Requests that wait.
    pub(crate) waiting: u64,
}

/// The seats of one server.
#[derive(Clone, Default)]
pub(crate) struct Fairness {
    state: Arc<Mutex<State>>,
}

impl std::fmt::Debug for Fairness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.standing()).finish()
    }
}

/// Seats that a request has taken; given back when it is dropped.
pub(crate) struct Permit {
    fairness: Fairness,
    level: String,
    queue: Option<usize>,
    seats: u64,
    since: Instant,
    /// Nobody took it: its seats are counted back by who made it.
    void: bool,
}

impl Drop for Permit {
    fn drop(&mut self) {
        if !self.void {
            self.fairness.give_back(self);
        }
    }
}

/// Takes a request out of its queue when it is given up.
struct Place<'a> {
    fairness: &'a Fairness,
    level: &'a str,
    queue: usize,
    id: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.fairness.state.lock();
        if let Some(queue) = state.levels.get_mut(self.level).and_then(|level| level.queues.get_mut(self.queue)) {
            queue.waiting.retain(|waiter| waiter.id != self.id);
        }
    }
}

/// Deals a flow its hand of queues.
fn deal(hash: u64, queues: usize, hand: usize) -> Vec<usize> {
    let mut rest = hash;
    let mut dealt: Vec<usize> = Vec::with_capacity(hand);
    for n in 0..hand.min(queues) {
        let left = queues - n;
        let mut card = usize::try_from(rest % left as u64).unwrap_or(0);
        rest /= left as u64;
        // The card counts among those that are left: each one dealt before it moves it up.
        let mut before = dealt.clone();
        before.sort_unstable();
        for taken in before {
            if card >= taken {
                card += 1;
            }
        }
        dealt.push(card);
    }
    dealt
}

impl State {
    /// Whether a level may take so many more seats.
    fn may(&self, name: &str, seats: u64) -> bool {
        let Some(level) = self.levels.get(name) else { return true };
        if level.used == 0 {
            // A request is never too wide for an idle level.
            return true;
        }
        let all: u64 = self.levels.values().map(|l| l.limits.seats).sum();
        let used: u64 = self.levels.values().map(|l| l.used).sum();
        let wanted = level.used + seats;
        if wanted <= level.limits.seats {
            return used + seats <= all;
        }
        if level.limits.borrow.is_some_and(|most| wanted > level.limits.seats + most) {
            return false;
        }
        // Seats that others keep to themselves while they are idle.
        let kept = |(other, l): (&String, &Level)| if other == name { 0 } else { (l.limits.seats - l.limits.lendable).saturating_sub(l.used) };
        used + seats + self.levels.iter().map(kept).sum::<u64>() <= all
    }

    /// Lets go all who may go now.
    fn dispatch(&mut self, fairness: &Fairness) {
        let names: Vec<String> = self.levels.iter().filter(|(_, l)| l.queues.iter().any(|q| !q.waiting.is_empty())).map(|(name, _)| name.clone()).collect();
        for name in names {
            while let Some((queue, seats)) = self.next(&name) {
                if !self.may(&name, seats) {
                    break;
                }
                let Some(level) = self.levels.get_mut(&name) else { break };
                let Some(waiter) = level.queues[queue].waiting.pop_front() else { break };
                #[expect(clippy::cast_precision_loss, reason = "a few seats")]
                let charge = GUESS * seats as f64;
                level.used += seats;
                level.queues[queue].served += charge;
                let permit = Permit { fairness: fairness.clone(), level: name.clone(), queue: Some(queue), seats, since: Instant::now(), void: false };
                if let Err(mut permit) = waiter.go.send(permit) {
                    // It was given up: under this lock its permit cannot give its seats back itself.
                    permit.void = true;
                    level.used -= seats;
                    level.queues[queue].served -= charge;
                }
            }
        }
    }

    /// The queue that goes next, and what its first request needs.
    fn next(&self, name: &str) -> Option<(usize, u64)> {
        let queues = self.levels.get(name)?.queues.iter().enumerate();
        let (at, queue) = queues.filter(|(_, q)| !q.waiting.is_empty()).min_by(|(_, a), (_, b)| a.served.total_cmp(&b.served))?;
        Some((at, queue.waiting.front()?.seats))
    }
}

impl Fairness {
    /// New limits. Requests under way keep their seats; who waits in a queue that is no more, waits in another one.
    pub(crate) fn set(&self, limits: BTreeMap<String, Limits>) {
        let mut state = self.state.lock();
        let mut old = std::mem::take(&mut state.levels);
        for (name, limits) in limits {
            let before = old.remove(&name);
            let many = limits.queues.map_or(0, |q| q.queues);
            let mut level = Level { limits, used: 0, queues: Vec::new() };
            level.queues.resize_with(many, Queue::default);
            if let Some(before) = before {
                level.used = before.used;
                for (n, queue) in before.queues.into_iter().enumerate() {
                    // A level that lost its queues refuses who waited: the other end of the channel says so.
                    if many > 0 {
                        level.queues[n % many].waiting.extend(queue.waiting);
                    }
                }
            }
            state.levels.insert(name, level);
        }
        state.dispatch(self);
    }

    /// All levels as they stand.
    pub(crate) fn standing(&self) -> Vec<Standing> {
        let state = self.state.lock();
        let waiting = |level: &Level| level.queues.iter().map(|q| q.waiting.len() as u64).sum();
        state.levels.iter().map(|(name, l)| Standing { name: name.clone(), seats: l.limits.seats, used: l.used, waiting: waiting(l) }).collect()
    }

    /// Takes seats of a level for a request of a flow, or waits for them. A level without limits asks for nothing.
    pub(crate) async fn enter(&self, name: &str, flow: u64, seats: u64, within: Duration) -> Result<Option<Permit>, Refusal> {
        let (place, told) = {
            let mut state = self.state.lock();
            let Some(level) = state.levels.get(name) else { return Ok(None) };
            let seats = seats.min(level.limits.seats).max(1);
            let nobody = level.queues.iter().all(|q| q.waiting.is_empty());
            let queuing = level.limits.queues;
            if nobody && state.may(name, seats) {
                let queue = queuing.and_then(|q| deal(flow, q.queues, q.hand).first().copied());
                if let Some(level) = state.levels.get_mut(name) {
                    level.used += seats;
                }
                return Ok(Some(Permit { fairness: self.clone(), level: name.to_owned(), queue, seats, since: Instant::now(), void: false }));
            }
            let Some(queuing) = queuing else { return Err(Refusal::Limit) };
            state.last_id += 1;
            let id = state.last_id;
            let Some(level) = state.levels.get_mut(name) else { return Ok(None) };
            let least = level.queues.iter().filter(|q| !q.waiting.is_empty()).map(|q| q.served).fold(f64::INFINITY, f64::min);
            let shortest = deal(flow, queuing.queues, queuing.hand).into_iter().min_by_key(|at| level.queues[*at].waiting.len());
            let Some(queue) = shortest else { return Err(Refusal::Limit) };
            let waits = &mut level.queues[queue];
            if waits.waiting.len() >= queuing.length {
                return Err(Refusal::Full);
            }
            if waits.waiting.is_empty() && least.is_finite() {
                waits.served = waits.served.max(least);
            }
            let (go, told) = oneshot::channel();
            waits.waiting.push_back(Waiter { id, seats, go });
            state.dispatch(self);
            (Place { fairness: self, level: name, queue, id }, told)
        };
        let result = tokio::time::timeout(within, told).await;
        drop(place);
        match result {
            Ok(Ok(permit)) => Ok(Some(permit)),
            Ok(Err(_)) => Err(Refusal::Limit),
            Err(_) => Err(Refusal::Late),
        }
    }

    fn give_back(&self, permit: &Permit) {
        let mut state = self.state.lock();
        if let Some(level) = state.levels.get_mut(&permit.level) {
            level.used = level.used.saturating_sub(permit.seats);
            if let Some(queue) = permit.queue.and_then(|at| level.queues.get_mut(at)) {
                #[expect(clippy::cast_precision_loss, reason = "a few seats")]
                let seats = permit.seats as f64;
                queue.served += seats * (permit.since.elapsed().as_secs_f64() - GUESS);
            }
        }
        state.dispatch(self);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn limits(seats: u64, lendable: u64, queues: Option<(usize, usize, usize)>) -> Limits {
        Limits { seats, lendable, borrow: None, queues: queues.map(|(queues, hand, length)| Queuing { queues, hand, length }) }
    }

    fn fairness(levels: &[(&str, Limits)]) -> Fairness {
        let fairness = Fairness::default();
        fairness.set(levels.iter().map(|(name, limits)| ((*name).to_owned(), limits.clone())).collect());
        fairness
    }

    #[test]
    fn a_hand_is_of_different_queues() {
        for hash in [0, 1, 77, u64::MAX, 0x9e37_79b9_7f4a_7c15] {
            let hand = deal(hash, 16, 4);
            let distinct: std::collections::BTreeSet<_> = hand.iter().collect();
            assert!(hand.len() == 4 && distinct.len() == 4 && hand.iter().all(|q| *q < 16), "{hand:?}");
        }
        assert_eq!(deal(5, 2, 8).len(), 2);
        let hands: std::collections::BTreeSet<_> = (0..200u64).map(|n| deal(n.wrapping_mul(0x9e37_79b9_7f4a_7c15), 64, 6)).collect();
        assert!(hands.len() > 190);
    }

    #[tokio::test]
    async fn without_queues_one_too_many_is_refused() {
        let fairness = fairness(&[("low", limits(2, 0, None))]);
        let first = fairness.enter("low", 1, 1, LONG).await.ok().flatten().unwrap();
        let second = fairness.enter("low", 1, 1, LONG).await;
        assert!(second.is_ok());
        assert_eq!(fairness.enter("low", 1, 1, LONG).await.err(), Some(Refusal::Limit));
        drop(first);
        assert!(fairness.enter("low", 1, 1, LONG).await.is_ok());
        assert!(fairness.enter("exempt", 1, 1, LONG).await.is_ok_and(|p| p.is_none()), "what has no limits takes no seats");
    }

    #[tokio::test]
    async fn who_waits_goes_in_turn_or_is_late() {
        let fairness = fairness(&[("low", limits(1, 0, Some((8, 1, 3))))]);
        // Two flows with queues of their own.
        let (noisy, quiet) = (0u64, 3u64);
        let first = fairness.enter("low", noisy, 1, LONG).await.ok().flatten().unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let ask = |flow: u64, name: &'static str| {
            let (fairness, order) = (fairness.clone(), order.clone());
            tokio::spawn(async move {
                let permit = fairness.enter("low", flow, 1, LONG).await;
                if permit.is_ok() {
                    order.lock().push(name);
                }
                drop(permit);
            })
        };
        let mut tasks = Vec::new();
        for (flow, name) in [(noisy, "n1"), (noisy, "n2"), (noisy, "n3"), (quiet, "q1")] {
            tasks.push(ask(flow, name));
            tokio::task::yield_now().await;
        }
        assert_eq!(fairness.enter("low", noisy, 1, LONG).await.err(), Some(Refusal::Full));
        assert_eq!(fairness.enter("low", quiet, 1, Duration::from_millis(5)).await.err(), Some(Refusal::Late));
        assert_eq!(fairness.standing()[0], Standing { name: "low".into(), seats: 1, used: 1, waiting: 4 });
        drop(first);
        for task in tasks {
            task.await.unwrap();
        }
        let order = order.lock().clone();
        assert!(order.iter().position(|n| *n == "q1").unwrap() < 2, "the quiet one need not wait for all of the noisy one: {order:?}");
        assert_eq!(fairness.standing()[0].used, 0);
    }

    #[tokio::test]
    async fn idle_seats_are_lent_and_no_others() {
        let fairness = fairness(&[("a", limits(2, 0, None)), ("b", limits(4, 3, None))]);
        let mut held = Vec::new();
        for _ in 0..5 {
            held.push(fairness.enter("a", 1, 1, LONG).await.ok().flatten().unwrap());
        }
        assert_eq!(fairness.enter("a", 1, 1, LONG).await.err(), Some(Refusal::Limit), "b keeps one seat");
        let own = fairness.enter("b", 1, 1, LONG).await.ok().flatten().unwrap();
        assert_eq!(fairness.enter("b", 1, 1, LONG).await.err(), Some(Refusal::Limit), "the others are away");
        held.clear();
        assert!(fairness.enter("b", 1, 3, LONG).await.is_ok());
        drop(own);
        assert!(fairness.standing().iter().all(|s| s.used == 0));
    }

    #[tokio::test]
    async fn new_limits_reach_who_waits() {
        let fairness = fairness(&[("low", limits(1, 0, Some((4, 2, 9))))]);
        let first = fairness.enter("low", 1, 1, LONG).await.ok().flatten().unwrap();
        let waits = tokio::spawn({
            let fairness = fairness.clone();
            async move { fairness.enter("low", 1, 1, LONG).await.is_ok() }
        });
        let gives_up = tokio::spawn({
            let fairness = fairness.clone();
            async move { fairness.enter("low", 2, 1, LONG).await.is_ok() }
        });
        while fairness.standing()[0].waiting < 2 {
            tokio::task::yield_now().await;
        }
        gives_up.abort();
        let _ = gives_up.await;
        assert_eq!(fairness.standing()[0].waiting, 1);
        fairness.set(BTreeMap::from([("low".to_owned(), limits(2, 0, Some((1, 1, 9))))]));
        assert!(waits.await.unwrap());
        drop(first);
        assert_eq!(fairness.standing()[0].used, 0);
    }
}
