//! A typed copy of a collection: kept by a watch, indexed, with changes told to listeners in order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

use cluster::watch::{Event, Item, Target, follow};
use kube::Client;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use crate::tasks::Tasks;

/// Namespace and name; the namespace of cluster-scoped objects is empty. Orders by namespace, then name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

impl Key {
    /// A key from its parts.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// The key of an object.
    pub fn of(item: &impl Item) -> Self {
        Self::new(item.namespace(), item.name())
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.namespace.is_empty() { f.write_str(&self.name) } else { write!(f, "{}/{}", self.namespace, self.name) }
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

/// One change: made (`old` is none), changed (both), gone (`new` is none).
pub struct Change<'a, T> {
    /// Whose.
    pub key: &'a Key,
    /// The object before.
    pub old: Option<&'a Arc<T>>,
    /// The object now.
    pub new: Option<&'a Arc<T>>,
}

impl<T> Change<'_, T> {
    /// The object now, or its last state.
    pub fn any(&self) -> Option<&Arc<T>> {
        self.new.or(self.old)
    }

    /// True when `view` of the object is not what it was: made, gone, or changed in that respect.
    pub fn touches<V: PartialEq>(&self, view: impl Fn(&T) -> V) -> bool {
        match (self.old, self.new) {
            (Some(old), Some(new)) => view(old) != view(new),
            _ => true,
        }
    }
}

type Indexer<T> = Box<dyn Fn(&T) -> Vec<String> + Send + Sync>;
type Listener<T> = Box<dyn Fn(&Change<'_, T>) + Send + Sync>;
type Keep<T> = Box<dyn Fn(&mut T) -> bool + Send + Sync>;

struct State<T> {
    objects: BTreeMap<Key, Arc<T>>,
    indexes: Vec<BTreeMap<String, BTreeSet<Key>>>,
    /// Uids seen to go, so that the late answer of an own write does not bring a ghost back.
    gone: VecDeque<Box<str>>,
}

struct Shared<T> {
    state: RwLock<State<T>>,
    /// Serialises changes with their announcements, so that listeners see them in order.
    order: Mutex<()>,
    indexers: Vec<(&'static str, Indexer<T>)>,
    listeners: RwLock<Vec<Listener<T>>>,
    keep: Keep<T>,
    synced: watch::Sender<bool>,
}

/// The cache. Cloning shares it.
pub struct Cache<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Clone for Cache<T> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

/// Settings of a cache before it exists.
pub struct Builder<T> {
    indexers: Vec<(&'static str, Indexer<T>)>,
    keep: Keep<T>,
}

/// Remembered uids of deleted objects.
const GONE: usize = 1024;

impl<T: Item> Builder<T> {
    /// Adds an index: objects are found by any of the values that `by` returns.
    #[must_use]
    pub fn index(mut self, name: &'static str, by: impl Fn(&T) -> Vec<String> + Send + Sync + 'static) -> Self {
        self.indexers.push((name, Box::new(by)));
        self
    }

    /// Shrinks each object at intake; false leaves it out. The default drops `managedFields`.
    #[must_use]
    pub fn keep(mut self, keep: impl Fn(&mut T) -> bool + Send + Sync + 'static) -> Self {
        self.keep = Box::new(keep);
        self
    }

    /// The cache, empty and not synced.
    pub fn build(self) -> Cache<T> {
        let indexes = self.indexers.iter().map(|_| BTreeMap::new()).collect();
        Cache {
            shared: Arc::new(Shared {
                state: RwLock::new(State { objects: BTreeMap::new(), indexes, gone: VecDeque::new() }),
                order: Mutex::new(()),
                indexers: self.indexers,
                listeners: RwLock::new(Vec::new()),
                keep: self.keep,
                synced: watch::channel(false).0,
            }),
        }
    }
}

/// Resource versions of one server can be compared when both are numbers.
fn older(a: &str, b: &str) -> bool {
    matches!((a.parse::<u64>(), b.parse::<u64>()), (Ok(a), Ok(b)) if a < b)
}

impl<T: Item> Cache<T> {
    /// Begins a cache.
    pub fn builder() -> Builder<T> {
        Builder {
            indexers: Vec::new(),
            keep: Box::new(|item| {
                item.slim();
                true
            }),
        }
    }

    /// A cache without indexes.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Hears every change from now on. It is called on the watching task and must not block; usually it puts keys into queues.
    pub fn on_change(&self, listener: impl Fn(&Change<'_, T>) + Send + Sync + 'static) {
        self.shared.listeners.write().push(Box::new(listener));
    }

    /// One object.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<T>> {
        self.get_key(&Key::new(namespace, name))
    }

    /// One object.
    pub fn get_key(&self, key: &Key) -> Option<Arc<T>> {
        self.shared.state.read().objects.get(key).cloned()
    }

    /// All objects, in order of their keys.
    pub fn list(&self) -> Vec<Arc<T>> {
        self.shared.state.read().objects.values().cloned().collect()
    }

    /// The objects of a namespace, in order of their names.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<T>> {
        let from = Key::new(namespace, "");
        let state = self.shared.state.read();
        state.objects.range(from..).take_while(|(k, _)| &*k.namespace == namespace).map(|(_, o)| o.clone()).collect()
    }

    /// Objects that an index holds under a value, in order of their keys. An unknown index is empty.
    pub fn by(&self, index: &'static str, value: &str) -> Vec<Arc<T>> {
        let Some(slot) = self.shared.indexers.iter().position(|(name, _)| *name == index) else { return Vec::new() };
        let state = self.shared.state.read();
        let Some(keys) = state.indexes[slot].get(value) else { return Vec::new() };
        keys.iter().filter_map(|key| state.objects.get(key).cloned()).collect()
    }

    /// Keys that an index holds under a value.
    pub fn keys_by(&self, index: &'static str, value: &str) -> Vec<Key> {
        let Some(slot) = self.shared.indexers.iter().position(|(name, _)| *name == index) else { return Vec::new() };
        self.shared.state.read().indexes[slot].get(value).map(|keys| keys.iter().cloned().collect()).unwrap_or_default()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.shared.state.read().objects.len()
    }

    /// True without objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True once a first complete list was taken in. Before that, absence proves nothing.
    pub fn is_synced(&self) -> bool {
        *self.shared.synced.borrow()
    }

    /// Completes once a first complete list was taken in.
    pub async fn synced(&self) {
        let mut receiver = self.shared.synced.subscribe();
        // The sender lives in `self`, so this never fails.
        let _ = receiver.wait_for(|synced| *synced).await;
    }

    /// Takes in the answer to an own write, so that the next turn sees it before the watch tells.
    pub fn assume(&self, item: T) {
        self.put(item, true);
    }

    /// Takes in an object that was made or changed.
    pub fn apply(&self, item: T) {
        self.put(item, false);
    }

    fn put(&self, mut item: T, own_write: bool) {
        let _order = self.shared.order.lock();
        if !(self.shared.keep)(&mut item) {
            let key = Key::of(&item);
            self.drop_key(&key, None);
            return;
        }
        self.put_locked(item, own_write);
    }

    fn put_locked(&self, item: T, own_write: bool) {
        let key = Key::of(&item);
        let new = Arc::new(item);
        let old = {
            let mut state = self.shared.state.write();
            let old = state.objects.get(&key).cloned();
            if own_write && state.gone.iter().any(|uid| **uid == *new.uid()) {
                return;
            }
            if let Some(old) = &old
                && old.uid() == new.uid()
                && (old.resource_version() == new.resource_version() || older(new.resource_version(), old.resource_version()))
            {
                return;
            }
            for (slot, (_, by)) in self.shared.indexers.iter().enumerate() {
                let before: BTreeSet<String> = old.as_deref().map(by).unwrap_or_default().into_iter().collect();
                let after: BTreeSet<String> = by(&new).into_iter().collect();
                for value in before.difference(&after) {
                    unindex(&mut state.indexes[slot], value, &key);
                }
                for value in after.difference(&before) {
                    state.indexes[slot].entry(value.clone()).or_default().insert(key.clone());
                }
            }
            state.objects.insert(key.clone(), new.clone());
            old
        };
        self.announce(&Change { key: &key, old: old.as_ref(), new: Some(&new) });
    }

    /// Takes in that an object is gone.
    pub fn delete(&self, item: &T) {
        let _order = self.shared.order.lock();
        self.drop_key(&Key::of(item), Some(item.uid()));
    }

    /// Removes a key; with a uid, only that object.
    fn drop_key(&self, key: &Key, uid: Option<&str>) {
        let old = {
            let mut state = self.shared.state.write();
            if let Some(uid) = uid {
                if state.gone.len() == GONE {
                    state.gone.pop_front();
                }
                state.gone.push_back(uid.into());
                if state.objects.get(key).is_some_and(|o| o.uid() != uid) {
                    return;
                }
            }
            let Some(old) = state.objects.remove(key) else { return };
            for (slot, (_, by)) in self.shared.indexers.iter().enumerate() {
                for value in by(&old) {
                    unindex(&mut state.indexes[slot], &value, key);
                }
            }
            old
        };
        self.announce(&Change { key, old: Some(&old), new: None });
    }

    /// Takes in a complete list: what is not in it is gone.
    pub fn reset(&self, items: Vec<T>) {
        {
            let _order = self.shared.order.lock();
            let mut present = BTreeSet::new();
            for mut item in items {
                if (self.shared.keep)(&mut item) {
                    present.insert(Key::of(&item));
                    self.put_locked(item, false);
                }
            }
            let absent: Vec<Key> =
                self.shared.state.read().objects.keys().filter(|key| !present.contains(key)).cloned().collect();
            for key in absent {
                self.drop_key(&key, None);
            }
        }
        self.shared.synced.send_replace(true);
    }

    fn announce(&self, change: &Change<'_, T>) {
        for listener in self.shared.listeners.read().iter() {
            listener(change);
        }
    }

    /// Follows a collection until the tasks stop.
    pub fn follow(&self, name: &'static str, client: Client, target: Target, tasks: &Tasks) {
        let cache = self.clone();
        tasks.spawn_until_stopped(name, async move {
            let path = target.path.clone();
            follow::<T>(client, target, move |event| {
                match event {
                    Event::Reset(items) => cache.reset(items),
                    Event::Apply(item) => cache.apply(item),
                    Event::Delete(item) => cache.delete(&item),
                    Event::Failed { error, wait } => {
                        tracing::warn!(path, wait_ms = wait.as_millis(), error = cluster::error::message(&error), "cannot follow a collection");
                    }
                }
                ControlFlow::Continue(())
            })
            .await;
        });
    }
}

impl<T: Item> Default for Cache<T> {
    fn default() -> Self {
        Self::new()
    }
}

fn unindex(index: &mut BTreeMap<String, BTreeSet<Key>>, value: &str, key: &Key) {
    if let Some(keys) = index.get_mut(value) {
        keys.remove(key);
        if keys.is_empty() {
            index.remove(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use cluster::Object;
    use serde_json::json;

    use super::*;

    fn object(name: &str, uid: &str, version: u64, colour: &str) -> Object {
        Object(json!({"metadata": {"name": name, "namespace": "n", "uid": uid, "resourceVersion": version.to_string(),
            "labels": {"colour": colour}, "managedFields": []}}))
    }

    fn cache() -> (Cache<Object>, Arc<Mutex<Vec<String>>>) {
        let cache = Cache::<Object>::builder()
            .index("colour", |o| o.0["metadata"]["labels"]["colour"].as_str().map(str::to_owned).into_iter().collect())
            .build();
        let log = Arc::new(Mutex::new(Vec::new()));
        let heard = log.clone();
        cache.on_change(move |change| {
            let what = match (change.old, change.new) {
                (None, _) => "+",
                (_, None) => "-",
                _ => "~",
            };
            heard.lock().push(format!("{what}{}", change.key.name));
        });
        (cache, log)
    }

    fn names(found: &[Arc<Object>]) -> Vec<&str> {
        found.iter().map(|o| o.name()).collect()
    }

    #[test]
    fn indexes_follow_changes() {
        let (cache, log) = cache();
        assert!(!cache.is_synced());
        cache.reset(vec![object("a", "1", 1, "red"), object("b", "2", 2, "red")]);
        assert!(cache.is_synced());
        assert_eq!(names(&cache.by("colour", "red")), ["a", "b"]);
        cache.apply(object("a", "1", 3, "blue"));
        assert_eq!(names(&cache.by("colour", "red")), ["b"]);
        cache.reset(vec![object("a", "1", 3, "blue")]);
        assert!(cache.by("colour", "red").is_empty());
        assert_eq!(*log.lock(), ["+a", "+b", "~a", "-b"]);
        assert!(cache.get("n", "a").expect("there").0["metadata"].get("managedFields").is_none());
    }

    #[test]
    fn nothing_goes_back_in_time_and_no_ghost_returns() {
        let (cache, log) = cache();
        cache.reset(vec![object("a", "1", 5, "red")]);
        cache.assume(object("a", "1", 9, "blue"));
        cache.apply(object("a", "1", 7, "red"));
        assert_eq!(cache.by("colour", "blue").len(), 1, "an older event must not undo an own write");
        cache.delete(&object("a", "1", 10, "blue"));
        cache.assume(object("a", "1", 9, "blue"));
        assert!(cache.is_empty(), "the late answer of a write to a deleted object");
        cache.apply(object("a", "2", 11, "red"));
        cache.delete(&object("a", "1", 10, "blue"));
        assert_eq!(cache.len(), 1, "another uid lives");
        assert_eq!(*log.lock(), ["+a", "~a", "-a", "+a"]);
    }
}
