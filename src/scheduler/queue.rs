//! Which Subscription is next: a priority queue, back-off, and the idle ones with the events that would wake them.
//!
//! Pure: time is a parameter. No event is ever lost: one that arrives while a Subscription is being scheduled is kept and
//! looked at when that has ended.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use plan::placement::Events;

/// `namespace/name` of a Subscription.
pub type Key = Arc<str>;

/// First wait after a failure; doubles with each further one.
pub const BACKOFF_FIRST: Duration = Duration::from_secs(1);
/// Longest wait after failures.
pub const BACKOFF_LONGEST: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// Waits for its turn; the ticket tells a live heap entry from a stale one.
    Active { ticket: u64 },
    /// Waits until an instant.
    Backoff { until: Timestamp },
    /// Wakes on these events.
    Idle { wake: Events },
    /// Is being scheduled; events that came meanwhile.
    Running { missed: Events },
}

#[derive(Clone, Debug)]
struct Item {
    state: State,
    priority: i32,
    failures: u32,
    /// Look again at this instant, whatever happens.
    recheck: Option<Timestamp>,
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Wakes on these events only.
    Idle(Events),
    /// Failed; tries again after back-off, or at once on these events.
    Failed(Events),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    priority: i32,
    /// Earlier tickets first.
    ticket: Reverse<u64>,
    key: Key,
}

/// The queue.
#[derive(Default)]
pub struct Queue {
    items: BTreeMap<Key, Item>,
    active: BinaryHeap<Turn>,
    timers: BinaryHeap<Reverse<(Timestamp, Key)>>,
    tickets: u64,
}

impl Queue {
    /// An empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of Subscriptions in the queue, in any state.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Number of those that wait for their turn.
    pub fn waiting(&self) -> usize {
        self.items.values().filter(|item| matches!(item.state, State::Active { .. })).count()
    }

    /// A Subscription is new or has changed itself: its turn comes, without back-off.
    pub fn add(&mut self, key: &Key, priority: i32) {
        match self.items.get_mut(key) {
            None => {
                let item = Item { state: State::Idle { wake: Events::ALL }, priority, failures: 0, recheck: None };
                self.items.insert(Arc::clone(key), item);
                self.activate(key);
            }
            Some(item) => {
                item.failures = 0;
                let moved = item.priority != priority;
                item.priority = priority;
                match &mut item.state {
                    State::Running { missed } => *missed = *missed | Events::SUBSCRIPTION,
                    State::Active { .. } if !moved => {}
                    _ => self.activate(key),
                }
            }
        }
    }

    /// A Subscription is gone.
    pub fn remove(&mut self, key: &str) {
        self.items.remove(key);
    }

    /// Something happened that concerns a Subscription.
    pub fn wake(&mut self, key: &Key, events: Events) {
        let Some(item) = self.items.get_mut(key) else { return };
        match &mut item.state {
            State::Running { missed } => *missed = *missed | events,
            State::Idle { wake } if wake.meets(events) => self.activate(key),
            // What is in back-off failed for a reason of its own; a change of the world may well have mended it.
            State::Backoff { .. } => self.activate(key),
            State::Idle { .. } | State::Active { .. } => {}
        }
    }

    /// Something happened that concerns all of them.
    pub fn wake_all(&mut self, events: Events) {
        let keys: Vec<Key> = self.items.keys().cloned().collect();
        for key in &keys {
            self.wake(key, events);
        }
    }

    /// Whether nobody is at work on it.
    pub fn is_free(&self, key: &str) -> bool {
        self.items.get(key).is_some_and(|item| !matches!(item.state, State::Running { .. }))
    }

    /// Takes one out of turn, as [`Queue::pop`] does; a turn that was due stays due. False when it is at work.
    pub fn interrupt(&mut self, key: &str) -> bool {
        let Some(item) = self.items.get_mut(key) else { return false };
        let missed = match item.state {
            State::Running { .. } => return false,
            State::Active { .. } | State::Backoff { .. } => Events::SUBSCRIPTION,
            State::Idle { .. } => Events::NONE,
        };
        item.state = State::Running { missed };
        true
    }

    /// Room was given up somewhere: wakes those that wait for it, and nobody's back-off.
    pub fn release(&mut self, events: Events) {
        let wakes = |item: &Item| matches!(item.state, State::Idle { wake } if wake.meets(events)) || matches!(item.state, State::Running { .. });
        let keys: Vec<Key> = self.items.iter().filter(|(_, item)| wakes(item)).map(|(key, _)| Arc::clone(key)).collect();
        for key in &keys {
            self.wake(key, events);
        }
    }

    /// The next one: highest priority, then longest wait. It runs until [`Queue::end`].
    pub fn pop(&mut self, now: Timestamp) -> Option<Key> {
        self.ripen(now);
        while let Some(turn) = self.active.pop() {
            let Some(item) = self.items.get_mut(&turn.key) else { continue };
            if item.state == (State::Active { ticket: turn.ticket.0 }) {
                item.state = State::Running { missed: Events::NONE };
                item.recheck = None;
                return Some(turn.key);
            }
        }
        None
    }

    /// A turn has ended; events that came meanwhile and count bring the next one at once.
    pub fn end(&mut self, key: &Key, ended: Ended, recheck: Option<Timestamp>, now: Timestamp) {
        let Some(item) = self.items.get_mut(key) else { return };
        let State::Running { missed } = item.state else { return };
        item.recheck = recheck;
        if let Some(at) = recheck {
            self.timers.push(Reverse((at, Arc::clone(key))));
        }
        match ended {
            Ended::Idle(wake) => {
                item.failures = 0;
                item.state = State::Idle { wake };
                if missed.meets(wake) || missed.meets(Events::SUBSCRIPTION) {
                    self.activate(key);
                }
            }
            Ended::Failed(wake) => {
                item.failures = item.failures.saturating_add(1);
                let until = now.saturating_add(backoff(item.failures)).unwrap_or(Timestamp::MAX);
                item.state = State::Backoff { until };
                if missed.meets(wake) || missed.meets(Events::SUBSCRIPTION) {
                    self.activate(key);
                } else {
                    self.timers.push(Reverse((until, Arc::clone(key))));
                }
            }
        }
    }

    /// When the next one ripens by time alone.
    pub fn next_deadline(&mut self) -> Option<Timestamp> {
        while let Some(Reverse((at, key))) = self.timers.peek() {
            if self.is_live(*at, key) {
                return Some(*at);
            }
            self.timers.pop();
        }
        None
    }

    fn is_live(&self, at: Timestamp, key: &str) -> bool {
        self.items.get(key).is_some_and(|item| item.recheck == Some(at) || item.state == State::Backoff { until: at })
    }

    fn ripen(&mut self, now: Timestamp) {
        while let Some(Reverse((at, key))) = self.timers.peek() {
            if *at > now {
                return;
            }
            let (at, key) = (*at, Arc::clone(key));
            self.timers.pop();
            if !self.is_live(at, &key) {
                continue;
            }
            let running = self.items.get_mut(&key).map(|item| match &mut item.state {
                State::Running { missed } => {
                    *missed = *missed | Events::SUBSCRIPTION;
                    true
                }
                State::Active { .. } => true,
                _ => false,
            });
            if running == Some(false) {
                self.activate(&key);
            }
        }
    }

    fn activate(&mut self, key: &Key) {
        let Some(item) = self.items.get_mut(key) else { return };
        self.tickets += 1;
        item.state = State::Active { ticket: self.tickets };
        self.active.push(Turn { priority: item.priority, ticket: Reverse(self.tickets), key: Arc::clone(key) });
    }
}

fn backoff(failures: u32) -> Duration {
    BACKOFF_FIRST.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(BACKOFF_LONGEST)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    fn key(name: &str) -> Key {
        Arc::from(name)
    }

    #[test]
    fn priority_then_age() {
        let mut queue = Queue::new();
        for (name, priority) in [("a", 0), ("b", 5), ("c", 0), ("d", 5)] {
            queue.add(&key(name), priority);
        }
        let order: Vec<Key> = std::iter::from_fn(|| queue.pop(at(0))).collect();
        assert_eq!(order.iter().map(|key| &**key).collect::<Vec<_>>(), ["b", "d", "a", "c"]);
    }

    #[test]
    fn backoff_doubles_to_ten_seconds_and_a_change_ends_it() {
        let mut queue = Queue::new();
        let a = key("a");
        queue.add(&a, 0);
        let mut now = 0;
        for wait in [1, 2, 4, 8, 10, 10] {
            assert_eq!(queue.pop(at(now)), Some(a.clone()));
            queue.end(&a, Ended::Failed(Events::NONE), None, at(now));
            assert_eq!((queue.pop(at(now)), queue.next_deadline()), (None, Some(at(now + wait))));
            now += wait;
        }
        queue.pop(at(now));
        queue.end(&a, Ended::Failed(Events::NONE), None, at(now));
        queue.add(&a, 0);
        assert_eq!(queue.pop(at(now)), Some(a));
    }

    #[test]
    fn only_helpful_events_wake() {
        let mut queue = Queue::new();
        let a = key("a");
        queue.add(&a, 0);
        queue.pop(at(0));
        queue.end(&a, Ended::Idle(Events::TAINTS), None, at(0));
        queue.wake(&a, Events::LABELS);
        assert_eq!(queue.pop(at(0)), None);
        queue.wake(&a, Events::TAINTS | Events::LABELS);
        assert_eq!(queue.pop(at(0)), Some(a.clone()));
        // Helpful events during the turn are not lost, others do not bring a second turn.
        queue.wake(&a, Events::LABELS);
        queue.end(&a, Ended::Idle(Events::TAINTS), None, at(0));
        assert_eq!(queue.pop(at(0)), None);
        queue.wake(&a, Events::TAINTS);
        queue.pop(at(0));
        queue.wake(&a, Events::TAINTS);
        queue.end(&a, Ended::Idle(Events::TAINTS), Some(at(9)), at(0));
        assert_eq!(queue.pop(at(0)), Some(a.clone()));
        queue.end(&a, Ended::Idle(Events::NONE), Some(at(9)), at(0));
        assert_eq!((queue.pop(at(8)), queue.pop(at(9))), (None, Some(a.clone())));
        queue.remove("a");
        queue.end(&a, Ended::Idle(Events::ALL), None, at(9));
        assert!(queue.pop(at(100)).is_none() && queue.is_empty());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        /// After quiet, everything that could be scheduled was: each key's last event was seen by a turn that began after it.
        #[test]
        fn no_event_is_lost(steps in proptest::collection::vec((0u8..6, 0usize..4, 0i32..3), 1..80)) {
            let keys: Vec<Key> = ["a", "b", "c", "d"].iter().map(|name| key(name)).collect();
            let mut queue = Queue::new();
            let (mut now, mut clock) = (0i64, 0u64);
            let mut event_at = [0u64; 4];
            let mut turn_at = [0u64; 4];
            let mut known = [false; 4];
            let mut running: Vec<usize> = Vec::new();
            let index = |key: &Key| keys.iter().position(|have| have == key).expect("known");
            let settle = |queue: &mut Queue, running: &mut Vec<usize>, which: usize, fails: bool, now: i64| {
                let at_index = running.remove(which % running.len());
                let ended = if fails { Ended::Failed(Events::ALL) } else { Ended::Idle(Events::ALL) };
                queue.end(&keys[at_index], ended, None, at(now));
            };
            for (what, which, number) in steps {
                clock += 1;
                match what {
                    0 => { queue.add(&keys[which], number); known[which] = true; event_at[which] = clock; }
                    1 if known[which] => { queue.wake(&keys[which], Events::TAINTS); event_at[which] = clock; }
                    2 => if let Some(key) = queue.pop(at(now)) { let i = index(&key); turn_at[i] = clock; running.push(i); },
                    3 if !running.is_empty() => settle(&mut queue, &mut running, which, number == 0, now),
                    4 => now += i64::from(number),
                    5 if !running.contains(&which) => { queue.remove(&keys[which]); known[which] = false; event_at[which] = 0; turn_at[which] = 0; }
                    _ => {}
                }
                // The same Subscription never runs twice at once.
                let mut sorted = running.clone();
                sorted.sort_unstable();
                sorted.dedup();
                prop_assert_eq!(sorted.len(), running.len());
            }
            for _ in 0..200 {
                clock += 1;
                now += 11;
                while !running.is_empty() { settle(&mut queue, &mut running, 0, false, now); }
                while let Some(key) = queue.pop(at(now)) { let i = index(&key); turn_at[i] = clock; running.push(i); }
                if running.is_empty() { break; }
            }
            for i in 0..4 {
                if known[i] { prop_assert!(turn_at[i] > event_at[i] || (turn_at[i] == event_at[i] && turn_at[i] > 0), "{i}: event {} turn {}", event_at[i], turn_at[i]); }
            }
        }
    }
}
