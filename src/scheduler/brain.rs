//! What the scheduler knows and decides next; no I/O, so that tests and benches run it as it is.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Weak};

use api::known;
use api::apps::{FeedInventory, FeedInventorySpec, Subscription, SubscriptionStatus};
use api::clusters::ManagedCluster;
use jiff::Timestamp;
use plan::placement::preempt::Needs;
use plan::placement::waits::{self, Seen};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use plan::placement::{
    Admission, Begun, ClusterChange, ClusterInfo, Decision, Events, Framework, Outcome, Pending, Placement, Previous, Ready, Request, Retry,
    SelectorId, Snapshot, Subject, admit, begin, finish, same_bindings,
};

use crate::meter::Meter;
use crate::promises::{Asks, Placed, Promises};
use crate::preempt::Preemptions;
use crate::queue::{Ended, Key, Queue};

/// A Subscription as the scheduler keeps it.
#[derive(Clone)]
pub struct Entry {
    /// Prepared spec.
    pub subject: Arc<Subject>,
    /// UID of the object.
    pub uid: String,
    /// Resource version that was seen last.
    pub resource_version: String,
    /// It has no status at all.
    pub is_fresh: bool,
    /// Conditions that were seen last.
    pub conditions: Vec<Condition>,
    /// What is ready where; only kept for graceful moves.
    pub ready: Arc<Ready>,
    /// Where its feeds are, or are about to be.
    pub previous: Arc<Previous>,
    /// A binding is being written, or was; what a watch says meanwhile may be older.
    assumed: Option<Assumed>,
}

impl Entry {
    /// Whether a decision about it is on its way to the server.
    pub(crate) fn is_being_written(&self) -> bool {
        self.assumed.as_ref().is_some_and(|assumed| assumed.version.is_none())
    }
}

#[derive(Clone)]
struct Assumed {
    previous: Arc<Previous>,
    conditions: Vec<Condition>,
    /// Version of the object with the binding, once it is written; `None` while that is under way.
    version: Option<u64>,
}

/// What a write left behind.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// Resource version of the object now.
    pub resource_version: String,
    /// Its conditions now.
    pub conditions: Vec<Condition>,
}

/// Resource versions of one server can be compared as numbers (Kubernetes 1.35 promises it; all before did it).
fn version(text: &str) -> Option<u64> {
    text.parse().ok()
}

/// A decision that must be written.
pub struct Decided {
    /// Subscription.
    pub key: Key,
    /// The Subscription as it was when this was decided.
    pub entry: Entry,
    /// The decision.
    pub decision: Box<Decision>,
}

/// What to do next.
pub enum Work {
    /// Ask predictors, then [`Brain::answered`].
    Ask(Key, Pending),
    /// Write a decision, then [`Brain::written`].
    Write(Box<Decided>),
}

/// Same lists of bindings are kept once. Names of clusters are shared with the snapshot, so pointers tell them apart.
#[derive(Default)]
struct Interner {
    lists: HashMap<u64, Vec<Weak<[Arc<str>]>>>,
    added: usize,
}

impl Interner {
    fn intern(&mut self, list: Arc<[Arc<str>]>) -> Arc<[Arc<str>]> {
        let mut hash = list.len() as u64;
        for key in list.iter() {
            hash = (hash.rotate_left(5) ^ Arc::as_ptr(key).cast::<u8>().addr() as u64).wrapping_mul(0x517c_c1b7_2722_0a95);
        }
        let same = self.lists.entry(hash).or_default();
        same.retain(|list| list.strong_count() > 0);
        if let Some(have) = same.iter().filter_map(Weak::upgrade).find(|have| same_bindings(have, &list)) {
            return have;
        }
        same.push(Arc::downgrade(&list));
        self.added += 1;
        if self.added > 1024 && self.added > 2 * self.lists.len() {
            self.lists.retain(|_, same| same.iter().any(|list| list.strong_count() > 0));
            self.added = self.lists.len();
        }
        list
    }
}

/// After this long something that found no room looks again.
const LOOK_AGAIN: std::time::Duration = std::time::Duration::from_secs(60);

/// All state of a scheduler.
pub struct Brain {
    pub(crate) framework: Framework,
    pub(crate) snapshot: Snapshot,
    pub(crate) entries: BTreeMap<Key, Entry>,
    pub(crate) inventories: BTreeMap<Key, Arc<FeedInventorySpec>>,
    interest: BTreeMap<SelectorId, BTreeSet<Key>>,
    /// Events of clusters that were not yet passed on, by selector: many changes cost one walk over its Subscriptions.
    dirty: BTreeMap<SelectorId, Events>,
    pub(crate) queue: Queue,
    /// Decided for others than the one whose turn it was.
    pub(crate) urgent: VecDeque<Box<Decided>>,
    pub(crate) promises: Promises,
    pub(crate) preemptions: Preemptions,
    /// When taints that nobody dated were first seen.
    seen: Seen,
    /// Clusters with such taints whose turn has not come yet.
    undated: BTreeSet<Arc<str>>,
    /// Taken from the queue, but they must ask predictors and too many are asking already.
    parked: VecDeque<Key>,
    interner: Interner,
    meter: Option<Meter>,
}

impl Brain {
    /// Knows nothing yet.
    pub fn new(framework: Framework) -> Self {
        Self {
            framework,
            snapshot: Snapshot::new(),
            entries: BTreeMap::new(),
            inventories: BTreeMap::new(),
            interest: BTreeMap::new(),
            dirty: BTreeMap::new(),
            queue: Queue::new(),
            urgent: VecDeque::new(),
            promises: Promises::default(),
            preemptions: Preemptions::default(),
            seen: Seen::new(),
            undated: BTreeSet::new(),
            parked: VecDeque::new(),
            interner: Interner::default(),
            meter: None,
        }
    }

    /// Measures some of its cycles.
    pub(crate) fn measured(mut self, meter: Meter) -> Self {
        self.meter = Some(meter);
        self
    }

    /// Clusters.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// A Subscription.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// Number of Subscriptions that wait for their turn.
    pub fn waiting(&self) -> usize {
        self.queue.waiting()
    }

    /// A cluster is there or has changed. True when someone may have to be scheduled.
    pub fn cluster(&mut self, cluster: &ManagedCluster) -> bool {
        match ClusterInfo::of(cluster) {
            Some(info) => self.cluster_info(info),
            None => {
                let meta = &cluster.metadata;
                let key = api::object::key(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
                self.cluster_gone(&key)
            }
        }
    }

    /// A cluster is there or has changed.
    pub fn cluster_info(&mut self, mut info: ClusterInfo) -> bool {
        if !info.is_quiet() || !self.seen.is_empty() {
            self.recall(&mut info);
        }
        let first = self.snapshot.is_empty();
        let change = self.snapshot.upsert(info);
        if first {
            self.queue.wake_all(Events::ADDED);
        }
        self.note(change) || first
    }

    /// Gives undated taints the instant at which they were first seen; what was not seen before is dated at the next turn.
    fn recall(&mut self, info: &mut ClusterInfo) {
        let Self { seen, undated, .. } = self;
        let mut here = BTreeSet::new();
        for taint in info.taints.iter_mut().filter(|taint| taint.effect == known::taint::NO_EXECUTE && taint.time_added.is_none()) {
            let name = (Arc::clone(&info.key), waits::taint_name(taint));
            match seen.get(&name) {
                Some(since) => taint.time_added = Some(Time(*since)),
                None => _ = undated.insert(Arc::clone(&info.key)),
            }
            here.insert(name);
        }
        // A taint that was taken off and comes again begins anew.
        let gone: Vec<_> = seen.range((Arc::clone(&info.key), String::new())..).take_while(|(name, _)| name.0 == info.key).map(|(name, _)| name.clone()).collect();
        for name in gone.iter().filter(|name| !here.contains(*name)) {
            seen.remove(name);
        }
    }

    /// Dates what was seen first since the last turn.
    fn date(&mut self, now: Timestamp) {
        for key in std::mem::take(&mut self.undated) {
            let Some(mut info) = self.snapshot.slot(&key).and_then(|slot| self.snapshot.cluster(slot)).map(|info| ClusterInfo::clone(info)) else { continue };
            for taint in info.taints.iter_mut().filter(|taint| taint.effect == known::taint::NO_EXECUTE && taint.time_added.is_none()) {
                let since = *self.seen.entry((Arc::clone(&key), waits::taint_name(taint))).or_insert(now);
                taint.time_added = Some(Time(since));
            }
            let change = self.snapshot.upsert(info);
            self.note(change);
        }
    }

    /// What an earlier scheduler wrote about waits it had begun is kept to.
    fn read_waits(&mut self, conditions: &[Condition]) {
        let Some(told) = api::conditions::find(conditions, known::condition::SCHEDULING_WARNING) else { return };
        for (name, since) in waits::read_back(&told.message) {
            let open = self.undated.contains(&name.0) || self.snapshot.slot(&name.0).is_none();
            if open {
                self.seen.entry(name).and_modify(|have| *have = (*have).min(since)).or_insert(since);
            }
        }
    }

    /// A cluster is gone.
    pub fn cluster_gone(&mut self, key: &str) -> bool {
        self.undated.remove(key);
        self.seen.retain(|(cluster, _), _| **cluster != *key);
        let change = self.snapshot.remove(key);
        self.note(change)
    }

    /// These are all clusters there are.
    pub fn clusters(&mut self, clusters: &[ManagedCluster]) {
        let mut gone: BTreeSet<Arc<str>> = self.snapshot.iter().map(|cluster| Arc::clone(&cluster.key)).collect();
        for cluster in clusters {
            if let Some(info) = ClusterInfo::of(cluster) {
                gone.remove(&info.key);
                self.cluster_info(info);
            }
        }
        for key in gone {
            self.cluster_gone(&key);
        }
    }

    fn note(&mut self, change: Option<ClusterChange>) -> bool {
        let Some(change) = change else { return false };
        for id in &change.selectors {
            let events = self.dirty.entry(*id).or_default();
            *events = *events | change.events;
        }
        !change.selectors.is_empty()
    }

    /// A Subscription is there or has changed. True when it may have to be scheduled.
    pub fn subscription(&mut self, subscription: &Subscription) -> bool {
        let meta = &subscription.metadata;
        let key = api::object::key(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
        if meta.deletion_timestamp.is_some() || !self.framework.profiles.contains_key(&subscription.spec.scheduler_name) {
            self.subscription_gone(&key);
            return false;
        }
        let key: Key = self.entries.get_key_value(key.as_str()).map_or_else(|| Arc::from(key.as_str()), |(key, _)| Arc::clone(key));
        let subject = Subject::of(subscription, &mut self.snapshot);
        let none = SubscriptionStatus::default();
        let status = subscription.status.as_ref().unwrap_or(&none);
        let mut finder = self.snapshot.finder();
        let mut seen = Previous::with_texts(status, |key| finder.find(key).map_or_else(|| Arc::from(key), |(key, _)| Arc::clone(key)));
        seen.bindings = self.interner.intern(seen.bindings);
        let seen = Arc::new(seen);
        let priority = subject.spec.priority();
        let mut due = true;
        let ready = if subject.graceful { Arc::new(Ready::of(status)) } else { Arc::default() };
        let mut entry = Entry {
            ready,
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            is_fresh: subscription.status.is_none(),
            conditions: status.conditions.clone(),
            previous: Arc::clone(&seen),
            assumed: None,
            subject: Arc::new(subject),
        };
        if let Some(old) = self.entries.get(&key).cloned() {
            let same_spec = old.subject.spec_hash == entry.subject.spec_hash
                && old.subject.spec == entry.subject.spec
                && old.subject.rebalance == entry.subject.rebalance
                && old.subject.graceful == entry.subject.graceful
                && old.subject.failback == entry.subject.failback
                && old.uid == entry.uid;
            let older = old.assumed.filter(|assumed| match (assumed.version, version(&entry.resource_version)) {
                (Some(written), Some(have)) => have < written,
                (Some(_), None) => false,
                (None, _) => true,
            });
            if let Some(assumed) = older.filter(|_| old.uid == entry.uid) {
                entry.previous = Arc::clone(&assumed.previous);
                if assumed.version.is_some() {
                    entry.conditions.clone_from(&assumed.conditions);
                }
                entry.assumed = Some(assumed);
            }
            // A status that is not what was there and not what is being written was changed by someone else.
            due = !same_spec || *entry.previous != *old.previous;
            if old.ready != entry.ready {
                self.queue.wake(&key, Events::HEALTH);
            }
            self.forget_interest(&key, &old.subject);
            old.subject.release(&mut self.snapshot);
        }
        if !self.entries.contains_key(&key) {
            self.read_waits(&entry.conditions);
        }
        for id in entry.subject.selectors.iter().flatten() {
            self.interest.entry(*id).or_default().insert(Arc::clone(&key));
        }
        let woken = self.entries.insert(Arc::clone(&key), entry).is_some_and(|old| old.subject.graceful);
        if due {
            self.queue.add(&key, priority);
        }
        due || woken
    }

    /// A Subscription is gone, or nobody's of ours.
    pub fn subscription_gone(&mut self, key: &str) {
        if let Some((key, entry)) = self.entries.remove_entry(key) {
            self.forget_interest(&key, &entry.subject);
            entry.subject.release(&mut self.snapshot);
            if entry.subject.is_dynamic() {
                self.promises.withdraw(&key);
                self.preemptions.forget(&key);
                self.queue.release(Events::RELEASED);
            }
        }
        self.queue.remove(key);
        self.parked.retain(|parked| **parked != *key);
    }

    /// These are all Subscriptions there are.
    pub fn subscriptions(&mut self, subscriptions: &[Subscription]) {
        let mut gone: BTreeSet<Key> = self.entries.keys().cloned().collect();
        for subscription in subscriptions {
            let meta = &subscription.metadata;
            gone.remove(api::object::key(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default()).as_str());
            self.subscription(subscription);
        }
        for key in gone {
            self.subscription_gone(&key);
        }
    }

    fn forget_interest(&mut self, key: &Key, subject: &Subject) {
        for id in subject.selectors.iter().flatten() {
            if let Some(keys) = self.interest.get_mut(id) {
                keys.remove(key);
                if keys.is_empty() {
                    // Events that were noted for it stay: the Subscription may only be changing and come right back.
                    self.interest.remove(id);
                }
            }
        }
    }

    /// The FeedInventory of a Subscription is there or has changed. True when it may have to be scheduled.
    pub fn inventory(&mut self, inventory: &FeedInventory) -> bool {
        let meta = &inventory.metadata;
        let key = api::object::key(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
        let key: Key = Arc::from(key.as_str());
        if self.inventories.get(&key).is_some_and(|have| **have == inventory.spec) {
            return false;
        }
        self.inventories.insert(Arc::clone(&key), Arc::new(inventory.spec.clone()));
        self.queue.wake(&key, Events::INVENTORY);
        true
    }

    /// The FeedInventory of a Subscription is gone.
    pub fn inventory_gone(&mut self, key: &str) {
        self.inventories.remove(key);
    }

    /// These are all FeedInventories there are.
    pub fn inventories(&mut self, inventories: &[FeedInventory]) {
        let mut gone: BTreeSet<Key> = self.inventories.keys().cloned().collect();
        for inventory in inventories {
            let meta = &inventory.metadata;
            gone.remove(api::object::key(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default()).as_str());
            self.inventory(inventory);
        }
        for key in gone {
            self.inventory_gone(&key);
        }
    }

    /// The next thing to do; `None` when there is nothing until something happens or [`Brain::next_deadline`].
    ///
    /// With `may_ask` false, those that need predictors are parked, so that slow predictors never hold up the others.
    pub fn next(&mut self, now: Timestamp, may_ask: bool) -> Option<Work> {
        if let Some(decided) = self.urgent.pop_front() {
            return Some(Work::Write(decided));
        }
        self.date(now);
        for (id, events) in std::mem::take(&mut self.dirty) {
            for key in self.interest.get(&id).into_iter().flatten() {
                self.queue.wake(key, events);
            }
        }
        loop {
            let parked = if may_ask { self.parked.pop_front() } else { None };
            let key = parked.or_else(|| self.queue.pop(now))?;
            let Some(entry) = self.entries.get(&key) else { continue };
            if !may_ask && entry.subject.is_dynamic() {
                self.parked.push_back(key);
                continue;
            }
            let Some(profile) = self.framework.profiles.get(&entry.subject.spec.scheduler_name).cloned() else { continue };
            let request = Request {
                subject: Arc::clone(&entry.subject),
                previous: Arc::clone(&entry.previous),
                ready: Arc::clone(&entry.ready),
                inventory: self.inventories.get(&key).cloned(),
                now,
            };
            if admit(&self.snapshot, &self.framework.policy, &request) == Admission::No {
                let wake = wake_of_bound(&entry.subject);
                self.queue.end(&key, Ended::Idle(wake), None, now);
                continue;
            }
            let name = entry.subject.spec.scheduler_name.as_str();
            let twin = self.meter.as_mut().and_then(|meter| meter.turn(name));
            let begun = begin(twin.as_ref().unwrap_or(&profile), &self.framework.policy, &self.snapshot, request);
            if let (Some(meter), Some(_)) = (&self.meter, &twin) {
                meter.ended(name);
            }
            match begun {
                Begun::Asks(pending) => return Some(Work::Ask(key, pending)),
                Begun::Settled(decision) => return Some(Work::Write(Box::new(self.decided(key, decision)?))),
            }
        }
    }

    /// Ends a cycle whose predictors have answered; `None` when the Subscription is gone or has changed meanwhile.
    pub fn answered(&mut self, key: &Key, mut pending: Pending, now: Timestamp) -> Option<Box<Decided>> {
        let asked = Arc::clone(&pending.request().subject);
        let same = self.entries.get(key).is_some_and(|entry| {
            entry.subject.spec_hash == asked.spec_hash && entry.subject.generation == asked.generation && entry.subject.rebalance == asked.rebalance
        });
        let profile = self.framework.profiles.get(&asked.spec.scheduler_name).cloned().filter(|_| same);
        let Some(profile) = profile else {
            self.queue.end(key, Ended::Idle(Events::ALL), None, now);
            return None;
        };
        let needs = if self.framework.policy.reserve_growth { self.needs(key) } else { BTreeMap::new() };
        self.promises.expire(now);
        let mut doubt: BTreeMap<usize, i64> = BTreeMap::new();
        if !self.promises.is_empty() {
            let none = Needs::default();
            let short_since = self.preemptions.short_since(key).unwrap_or(now);
            let mut promised = self.promises.in_order();
            pending.lessen(|cluster, feed, free| {
                let name = asked.feed_keys.get(feed).map_or("", String::as_str);
                let asks = Asks { key, feed: name, needs: needs.get(name).unwrap_or(&none), free, short_since };
                let promised = promised.of(&cluster.key, &asks);
                if promised.doubtful > 0 {
                    *doubt.entry(feed).or_default() += promised.doubtful.min(free.max(0));
                }
                promised.all
            });
        }
        let free = pending.free();
        let request = pending.request().clone();
        let name = asked.spec.scheduler_name.as_str();
        let twin = self.meter.as_mut().and_then(|meter| meter.turn(name));
        let mut decision = finish(twin.as_ref().unwrap_or(&profile), pending);
        if let (Some(meter), Some(_)) = (&self.meter, &twin) {
            meter.ended(name);
        }
        let previous = Arc::clone(&self.entries.get(key)?.previous);
        // First what is placed, then the room to be made for the rest: one must not use up the other.
        if let Some(placement) = changed(&decision, &previous).filter(|_| self.framework.policy.reserve_growth) {
            let mut known: BTreeMap<Arc<str>, Arc<Needs>> = BTreeMap::new();
            for (cluster, feed, more) in growth(&previous, placement) {
                let needs = known.entry(Arc::clone(&feed)).or_insert_with(|| Arc::new(needs.get(&*feed).cloned().unwrap_or_default()));
                let slot = self.snapshot.slot(&cluster);
                let free = request.subject.feed_keys.iter().position(|key| **key == *feed).and_then(|at| free.of(slot?, at)).unwrap_or(0);
                self.promises.placed(&Placed { cluster: &cluster, to: key, feed: &feed, replicas: more, needs, free }, now);
            }
        }
        self.preempt(key, &request, &mut decision, &doubt, now);
        self.decided(Arc::clone(key), decision).map(Box::new)
    }

    /// Assumes the decision, so that the next cycles see it before the server does.
    pub(crate) fn decided(&mut self, key: Key, mut decision: Box<Decision>) -> Option<Decided> {
        let entry = self.entries.get_mut(&key)?;
        if let Outcome::Bind(placement) | Outcome::Trim(placement) = &mut decision.outcome {
            placement.bindings = if same_bindings(&placement.bindings, &entry.previous.bindings) {
                Arc::clone(&entry.previous.bindings)
            } else {
                self.interner.intern(Arc::clone(&placement.bindings))
            };
        }
        let before = entry.clone();
        if let Some(placement) = changed(&decision, &entry.previous) {
            let assumed = Arc::new(Previous::from(placement));
            entry.previous = Arc::clone(&assumed);
            entry.assumed = Some(Assumed { previous: assumed, conditions: Vec::new(), version: None });
        }
        Some(Decided { key, entry: before, decision })
    }

    /// A decision was written, needed no writing (`Ok(None)`), or could not be written.
    pub fn written(&mut self, decided: &Decided, result: Result<Option<Written>, Again>, now: Timestamp) {
        let key = &decided.key;
        if let Some(entry) = self.entries.get_mut(key) {
            match &result {
                Ok(Some(written)) => {
                    entry.is_fresh = false;
                    entry.conditions.clone_from(&written.conditions);
                    entry.resource_version.clone_from(&written.resource_version);
                    entry.assumed = version(&written.resource_version).map(|version| Assumed {
                        previous: Arc::clone(&entry.previous),
                        conditions: written.conditions.clone(),
                        version: Some(version),
                    });
                }
                Ok(None) => entry.assumed = None,
                Err(_) => {
                    self.promises.withdraw(key);
                    if entry.assumed.take().is_some() {
                        entry.previous = Arc::clone(&decided.entry.previous);
                    }
                }
            }
        }
        let decision = &decided.decision;
        let placement = changed(decision, &decided.entry.previous).filter(|_| matches!(result, Ok(Some(_))) && decided.entry.subject.is_dynamic());
        let shrank = placement.is_some_and(|placement| {
            let previous = &decided.entry.previous;
            let back = Placement { bindings: Arc::clone(&previous.bindings), replicas: previous.replicas.clone(), ..Placement::default() };
            !growth(&Previous::from(placement), &back).is_empty()
        });
        let ended = match (result, decision.retry) {
            (Err(Again::Backoff), _) | (Ok(_), Retry::Backoff) => Ended::Failed(decision.wake | Events::SUBSCRIPTION),
            (Ok(_), Retry::Done) => Ended::Idle(wake_of_bound(&decided.entry.subject)),
            (Ok(_), Retry::OnEvent) => Ended::Idle(decision.wake | wake_of_bound(&decided.entry.subject)),
            // The object is gone; its deletion event follows.
            (Err(Again::Never), _) => Ended::Idle(Events::ALL),
        };
        // Nobody tells when Pods go, so what found no room looks again by itself.
        let later = (!decision.missing.is_empty()).then(|| now.saturating_add(LOOK_AGAIN).unwrap_or(Timestamp::MAX));
        let recheck = [decision.recheck, later].into_iter().flatten().min();
        self.queue.end(key, ended, recheck, now);
        if shrank {
            self.queue.release(Events::RELEASED);
        }
    }

    /// When something is due by time alone.
    pub fn next_deadline(&mut self) -> Option<Timestamp> {
        self.queue.next_deadline()
    }
}

/// How many more replicas a placement has than what was before: cluster, feed key, replicas.
fn growth(before: &Previous, after: &Placement) -> Vec<(Arc<str>, Arc<str>, i64)> {
    // Mostly the clusters are the same, and nothing is to be looked up.
    let places: Option<BTreeMap<&str, usize>> = (!same_bindings(&before.bindings, &after.bindings))
        .then(|| before.bindings.iter().enumerate().map(|(at, cluster)| (&**cluster, at)).collect());
    let mut out = Vec::new();
    for (feed, shares) in &after.replicas {
        let name: Arc<str> = Arc::from(feed.as_str());
        let had = before.replicas.get(feed).map_or(&[][..], Vec::as_slice);
        let place = |at: usize, cluster: &str| places.as_ref().map_or(Some(at), |places| places.get(cluster).copied());
        for (at, (cluster, share)) in after.bindings.iter().zip(shares).enumerate().filter(|(_, (_, share))| **share > 0) {
            let more = i64::from(*share) - place(at, cluster).and_then(|at| had.get(at)).copied().map_or(0, i64::from);
            if more > 0 {
                out.push((Arc::clone(cluster), Arc::clone(&name), more));
            }
        }
    }
    out
}

/// What is to come of a failed write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// Try again after back-off.
    Backoff,
    /// The Subscription is gone.
    Never,
}

/// The placement to write, when it differs from what is there.
pub fn changed<'a>(decision: &'a Decision, previous: &Previous) -> Option<&'a Placement> {
    match &decision.outcome {
        Outcome::Bind(placement) | Outcome::Trim(placement) if !placement.is_in(previous) => Some(placement),
        Outcome::Bind(_) | Outcome::Trim(_) | Outcome::Keep => None,
    }
}

/// Events that may move a Subscription that is bound.
fn wake_of_bound(subject: &Subject) -> Events {
    let base = Events::SUBSCRIPTION | Events::REMOVED | Events::LABELS | Events::TAINTS;
    if subject.is_dynamic() {
        base | Events::READY | Events::INVENTORY
    } else if subject.divides() {
        base | Events::ADDED | Events::READY | Events::INVENTORY | Events::HEALTH
    } else {
        base | Events::ADDED | Events::READY
    }
}
