//! All clusters, kept up to date change by change, with the matches of every selector in use.
//!
//! A cycle costs what its result is long; a change of one cluster costs one comparison per selector in use. Selectors
//! are parsed once and shared by all Subscriptions that use the same one.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use api::selector::Selector;

use super::cluster::ClusterInfo;
use super::events::Events;
use super::finder::Finder;

/// Place of a cluster in the snapshot; stays the same as long as the cluster is there.
pub type Slot = u32;

/// A selector in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SelectorId(u32);

struct Entry {
    selector: Selector,
    users: usize,
    /// Slots of the clusters that match, ordered by key.
    matches: Vec<Slot>,
    /// Those of them that are not quiet: with taints, or not ready.
    loud: Vec<Slot>,
    /// Keys of the matches, made when first asked for.
    keys: OnceLock<Arc<[Arc<str>]>>,
}

impl Entry {
    fn join(&mut self, clusters: &[Option<Arc<ClusterInfo>>], slot: Slot, cluster: &ClusterInfo) {
        insert(&mut self.matches, clusters, slot, &cluster.key);
        self.keys = OnceLock::new();
        self.hear(slot, cluster.is_quiet());
    }

    fn leave(&mut self, slot: Slot) -> bool {
        let before = self.matches.len();
        self.matches.retain(|have| *have != slot);
        self.loud.retain(|have| *have != slot);
        let left = self.matches.len() != before;
        if left {
            self.keys = OnceLock::new();
        }
        left
    }

    fn hear(&mut self, slot: Slot, quiet: bool) {
        self.loud.retain(|have| *have != slot);
        if !quiet {
            self.loud.push(slot);
        }
    }
}

/// What a change of a cluster was, and whom it concerns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterChange {
    /// What happened.
    pub events: Events,
    /// Selectors that match the cluster now, or did before.
    pub selectors: Vec<SelectorId>,
}

/// All clusters.
#[derive(Default)]
pub struct Snapshot {
    clusters: Vec<Option<Arc<ClusterInfo>>>,
    free: Vec<Slot>,
    by_key: BTreeMap<Arc<str>, Slot>,
    entries: Vec<Option<Entry>>,
    free_entries: Vec<u32>,
    by_selector: BTreeMap<Selector, SelectorId>,
}

impl Snapshot {
    /// Without clusters.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of clusters.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Whether there is no cluster.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// One more than the highest slot; the length of tables by slot.
    pub fn slots(&self) -> usize {
        self.clusters.len()
    }

    /// The cluster in a slot.
    pub fn cluster(&self, slot: Slot) -> Option<&Arc<ClusterInfo>> {
        self.clusters.get(slot as usize)?.as_ref()
    }

    /// Slot of a cluster by `namespace/name`.
    pub fn slot(&self, key: &str) -> Option<Slot> {
        self.by_key.get(key).copied()
    }

    /// Finds the slots of many clusters one after the other, and the snapshot's own texts of their keys.
    pub fn finder(&self) -> Finder<'_, Slot> {
        Finder::over(&self.by_key)
    }

    /// All clusters in order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<ClusterInfo>> {
        self.by_key.values().filter_map(|slot| self.cluster(*slot))
    }

    /// Adds or replaces a cluster; `None` when nothing that counts has changed.
    pub fn upsert(&mut self, mut cluster: ClusterInfo) -> Option<ClusterChange> {
        if let Some((key, _)) = self.by_key.get_key_value(&cluster.key) {
            // One text per cluster, so that bindings compare by pointer.
            cluster.key = Arc::clone(key);
        }
        let cluster = Arc::new(cluster);
        let Some(slot) = self.slot(&cluster.key) else {
            let slot = self.take_slot(Arc::clone(&cluster));
            let mut change = ClusterChange { events: Events::ADDED, selectors: Vec::new() };
            self.for_each_entry(|clusters, id, entry| {
                if entry.selector.matches(&cluster.labels) {
                    entry.join(clusters, slot, &cluster);
                    change.selectors.push(id);
                }
            });
            return Some(change);
        };
        let before = self.clusters[slot as usize].replace(Arc::clone(&cluster))?;
        let mut change = ClusterChange { events: cluster.events_since(&before), selectors: Vec::new() };
        if change.events.is_empty() {
            return None;
        }
        let relabelled = change.events.meets(Events::LABELS);
        self.for_each_entry(|clusters, id, entry| {
            let was = entry.selector.matches(&before.labels);
            let is = if relabelled { entry.selector.matches(&cluster.labels) } else { was };
            match (was, is) {
                (false, true) => entry.join(clusters, slot, &cluster),
                (true, false) => _ = entry.leave(slot),
                (true, true) => entry.hear(slot, cluster.is_quiet()),
                (false, false) => {}
            }
            if was || is {
                change.selectors.push(id);
            }
        });
        Some(change)
    }

    /// Removes a cluster.
    pub fn remove(&mut self, key: &str) -> Option<ClusterChange> {
        let slot = self.by_key.remove(key)?;
        let mut change = ClusterChange { events: Events::REMOVED, selectors: Vec::new() };
        self.for_each_entry(|_, id, entry| {
            if entry.leave(slot) {
                change.selectors.push(id);
            }
        });
        self.clusters[slot as usize] = None;
        self.free.push(slot);
        Some(change)
    }

    /// Takes a selector into use; give it back with [`Snapshot::release`].
    pub fn intern(&mut self, selector: &Selector) -> SelectorId {
        if let Some(id) = self.by_selector.get(selector).copied() {
            if let Some(Some(entry)) = self.entries.get_mut(id.0 as usize) {
                entry.users += 1;
            }
            return id;
        }
        let (mut matches, mut loud) = (Vec::new(), Vec::new());
        for slot in self.by_key.values() {
            if let Some(cluster) = self.cluster(*slot).filter(|cluster| selector.matches(&cluster.labels)) {
                matches.push(*slot);
                if !cluster.is_quiet() {
                    loud.push(*slot);
                }
            }
        }
        let entry = Entry { selector: selector.clone(), users: 1, matches, loud, keys: OnceLock::new() };
        let id = match self.free_entries.pop() {
            Some(index) => {
                self.entries[index as usize] = Some(entry);
                SelectorId(index)
            }
            None => {
                self.entries.push(Some(entry));
                SelectorId(u32::try_from(self.entries.len() - 1).unwrap_or(u32::MAX))
            }
        };
        self.by_selector.insert(selector.clone(), id);
        id
    }

    /// Gives a selector back; the last user drops it.
    pub fn release(&mut self, id: SelectorId) {
        let Some(place) = self.entries.get_mut(id.0 as usize) else { return };
        let Some(entry) = place.as_mut() else { return };
        entry.users -= 1;
        if entry.users == 0 {
            self.by_selector.remove(&entry.selector);
            *place = None;
            self.free_entries.push(id.0);
        }
    }

    /// Clusters that a selector matches, in order of their keys.
    pub fn matches(&self, id: SelectorId) -> &[Slot] {
        match self.entries.get(id.0 as usize) {
            Some(Some(entry)) => &entry.matches,
            _ => &[],
        }
    }

    /// Keys of the clusters that a selector matches, in order; the same list until a cluster joins or leaves it.
    pub fn keys(&self, id: SelectorId) -> Arc<[Arc<str>]> {
        let Some(Some(entry)) = self.entries.get(id.0 as usize) else { return Arc::new([]) };
        let key = |slot: &Slot| self.cluster(*slot).map(|cluster| Arc::clone(&cluster.key));
        Arc::clone(entry.keys.get_or_init(|| entry.matches.iter().filter_map(key).collect()))
    }

    /// Those of a selector's clusters that have taints or do not report; the others pass all usual filters.
    pub fn loud(&self, id: SelectorId) -> &[Slot] {
        match self.entries.get(id.0 as usize) {
            Some(Some(entry)) => &entry.loud,
            _ => &[],
        }
    }

    fn take_slot(&mut self, cluster: Arc<ClusterInfo>) -> Slot {
        let key = Arc::clone(&cluster.key);
        let slot = match self.free.pop() {
            Some(slot) => {
                self.clusters[slot as usize] = Some(cluster);
                slot
            }
            None => {
                self.clusters.push(Some(cluster));
                u32::try_from(self.clusters.len() - 1).unwrap_or(u32::MAX)
            }
        };
        self.by_key.insert(key, slot);
        slot
    }

    fn for_each_entry(&mut self, mut visit: impl FnMut(&[Option<Arc<ClusterInfo>>], SelectorId, &mut Entry)) {
        for (index, entry) in self.entries.iter_mut().enumerate() {
            if let Some(entry) = entry {
                visit(&self.clusters, SelectorId(u32::try_from(index).unwrap_or(u32::MAX)), entry);
            }
        }
    }
}

fn insert(matches: &mut Vec<Slot>, clusters: &[Option<Arc<ClusterInfo>>], slot: Slot, key: &str) {
    let place = matches.partition_point(|have| {
        clusters.get(*have as usize).and_then(Option::as_ref).is_some_and(|cluster| &*cluster.key < key)
    });
    matches.insert(place, slot);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn cluster(name: &str, labels: &[(&str, &str)]) -> ClusterInfo {
        ClusterInfo {
            key: format!("ns/{name}").into(),
            name: name.to_owned(),
            id: String::new(),
            labels: labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<BTreeMap<_, _>>(),
            taints: Vec::new(),
            not_ready_since: None,
            predictor: None,
            tunnel: false,
            capacity_mark: 0,
        }
    }

    fn names(snapshot: &Snapshot, id: SelectorId) -> String {
        let names = snapshot.matches(id).iter().filter_map(|slot| snapshot.cluster(*slot)).map(|cluster| cluster.name.as_str());
        names.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn matches_follow_the_clusters() {
        let mut snapshot = Snapshot::new();
        let red = snapshot.intern(&Selector::parse("team=red").expect("valid"));
        for name in ["c", "a", "d"] {
            let change = snapshot.upsert(cluster(name, &[("team", "red")])).expect("new");
            assert_eq!(change, ClusterChange { events: Events::ADDED, selectors: vec![red] });
        }
        snapshot.upsert(cluster("b", &[("team", "blue")]));
        assert_eq!(names(&snapshot, red), "a c d");
        assert_eq!(snapshot.upsert(cluster("a", &[("team", "red")])), None);
        assert_eq!(snapshot.upsert(cluster("b", &[("team", "red")])).expect("changed").selectors, [red]);
        assert_eq!(names(&snapshot, red), "a b c d");
        assert_eq!(snapshot.remove("ns/c").expect("there").selectors, [red]);
        let all = snapshot.intern(&Selector::everything());
        snapshot.upsert(cluster("aa", &[("team", "red")]));
        assert_eq!(names(&snapshot, red), "a aa b d");
        assert_eq!(names(&snapshot, all), "a aa b d");
        assert_eq!(snapshot.intern(&Selector::everything()), all);
        snapshot.release(all);
        assert_eq!(names(&snapshot, all), "a aa b d");
        snapshot.release(all);
        assert_eq!(names(&snapshot, all), "");
    }
}
