//! What was parsed from an object of a cache, kept until the object changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::Item;
use engine::Key;
use parking_lot::RwLock;

/// Parsed forms by key, each with the version it was parsed from.
pub(crate) struct Parsed<P> {
    known: RwLock<BTreeMap<Key, (String, Arc<P>)>>,
}

impl<P> Default for Parsed<P> {
    fn default() -> Self {
        Self { known: RwLock::new(BTreeMap::new()) }
    }
}

impl<P> Parsed<P> {
    /// The parsed form of an object; parsed now if this version was not yet.
    pub(crate) fn get(&self, object: &impl Item, parse: impl FnOnce() -> P) -> Arc<P> {
        let key = Key::of(object);
        let version = object.resource_version();
        if let Some((known, parsed)) = self.known.read().get(&key)
            && known == version
        {
            return parsed.clone();
        }
        let parsed = Arc::new(parse());
        self.known.write().insert(key, (version.to_owned(), parsed.clone()));
        parsed
    }

    /// Drops what is known of an object that is gone.
    pub(crate) fn forget(&self, object: &impl Item) {
        self.known.write().remove(&Key::of(object));
    }
}
