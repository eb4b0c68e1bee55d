//! Who owns what: every object by uid, its dependents, and the objects of each namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Change, Key, Kind, Meta, Owner};

/// One object as the graph knows it.
#[derive(Clone, Debug)]
pub struct Node {
    /// Where it is.
    pub key: Key,
    /// Its `apiVersion`.
    pub api_version: Arc<str>,
    /// Its kind.
    pub kind: Arc<str>,
    /// Its owners.
    pub owners: Arc<[Owner]>,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// Whether it waits for dependents (finalizer `foregroundDeletion`).
    pub foreground: bool,
    /// Whether it wants its dependents orphaned (finalizer `orphan`).
    pub orphan: bool,
    /// Its finalizers.
    pub finalizers: Arc<[String]>,
}

/// All objects of a server by uid, owner and namespace.
#[derive(Debug, Default)]
pub struct Graph {
    nodes: BTreeMap<Arc<str>, Node>,
    dependents: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// Uid of each object by its key, so that a new object of an old name replaces it.
    uids: BTreeMap<Key, Arc<str>>,
    /// Uids of the objects by namespace (empty at the cluster scope) and plural.
    spaces: BTreeMap<(Arc<str>, Arc<str>), BTreeSet<Arc<str>>>,
    /// Uids of the objects of a namespace that have no managing owner, by plural and namespace.
    strays: BTreeMap<(Arc<str>, Arc<str>), BTreeSet<Arc<str>>>,
    /// Shared texts: groups, kinds and namespaces repeat in every object.
    words: BTreeSet<Arc<str>>,
}

impl Graph {
    fn word(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.words.get(text) {
            return known.clone();
        }
        let new: Arc<str> = text.into();
        self.words.insert(new.clone());
        new
    }

    /// Takes a change in. Returns the owners (uids) the object had before and has now.
    pub fn apply(&mut self, change: &Change) -> Vec<Arc<str>> {
        let mut touched: Vec<Arc<str>> = Vec::new();
        if let Some(uid) = self.uids.get(&change.key).cloned()
            && (change.deleted || *uid != *change.meta.uid)
        {
            self.forget(&uid, &mut touched);
        }
        if change.deleted || change.meta.uid.is_empty() {
            return touched;
        }
        let uid: Arc<str> = change.meta.uid.as_str().into();
        let node = self.node(change);
        if let Some(before) = self.nodes.get(&uid)
            && before.owners != node.owners
        {
            let owners = before.owners.clone();
            self.unlink(&uid, &owners, &mut touched);
        }
        self.stray(&uid, &node.key, !node.owners.iter().any(|owner| owner.controller));
        for owner in node.owners.iter() {
            let owner: Arc<str> = owner.uid.as_str().into();
            self.dependents.entry(owner.clone()).or_default().insert(uid.clone());
            touched.push(owner);
        }
        self.uids.insert(node.key.clone(), uid.clone());
        self.spaces.entry((node.key.namespace.clone(), node.key.plural.clone())).or_default().insert(uid.clone());
        self.nodes.insert(uid, node);
        touched
    }

    fn node(&mut self, change: &Change) -> Node {
        let Meta { owner_references, finalizers, .. } = &change.meta;
        let has = |name: &str| finalizers.iter().any(|finalizer| finalizer == name);
        let (foreground, orphan) = (has("foregroundDeletion"), has("orphan"));
        Node {
            key: Key {
                group: self.word(&change.key.group),
                plural: self.word(&change.key.plural),
                namespace: self.word(&change.key.namespace),
                name: change.key.name.clone(),
            },
            api_version: self.word(&change.api_version),
            kind: self.word(&change.kind),
            owners: owner_references.as_slice().into(),
            terminating: change.meta.terminating(),
            foreground,
            orphan,
            finalizers: finalizers.as_slice().into(),
        }
    }

    fn forget(&mut self, uid: &Arc<str>, touched: &mut Vec<Arc<str>>) {
        let Some(node) = self.nodes.remove(uid) else { return };
        self.uids.remove(&node.key);
        self.stray(uid, &node.key, false);
        let place = (node.key.namespace.clone(), node.key.plural.clone());
        if let Some(space) = self.spaces.get_mut(&place) {
            space.remove(uid);
            if space.is_empty() {
                self.spaces.remove(&place);
            }
        }
        self.unlink(uid, &node.owners, touched);
    }

    fn stray(&mut self, uid: &Arc<str>, key: &Key, is: bool) {
        let place = (key.plural.clone(), key.namespace.clone());
        if is {
            self.strays.entry(place).or_default().insert(uid.clone());
        } else if let Some(set) = self.strays.get_mut(&place) {
            set.remove(uid);
            if set.is_empty() {
                self.strays.remove(&place);
            }
        }
    }

    fn unlink(&mut self, uid: &Arc<str>, owners: &[Owner], touched: &mut Vec<Arc<str>>) {
        for owner in owners {
            if let Some(set) = self.dependents.get_mut(owner.uid.as_str()) {
                set.remove(uid);
                if set.is_empty() {
                    self.dependents.remove(owner.uid.as_str());
                }
            }
            touched.push(owner.uid.as_str().into());
        }
    }

    /// The object with this uid.
    pub fn node_of(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid)
    }

    /// The uid of the object a key names.
    pub fn uid_of(&self, key: &Key) -> Option<&Arc<str>> {
        self.uids.get(key)
    }

    /// The objects that name this uid as an owner.
    pub fn dependents(&self, uid: &str) -> impl Iterator<Item = &Node> {
        self.dependents.get(uid).into_iter().flatten().filter_map(|uid| self.nodes.get(uid))
    }

    /// The objects of a namespace, with their uids.
    pub fn in_namespace(&self, namespace: &str) -> impl Iterator<Item = (&Arc<str>, &Node)> {
        let start: (Arc<str>, Arc<str>) = (namespace.into(), "".into());
        let name = start.0.clone();
        self.spaces
            .range(start..)
            .take_while(move |((space, _), _)| *space == name)
            .flat_map(|(_, uids)| uids)
            .filter_map(|uid| self.nodes.get_key_value(uid))
    }

    /// The objects of a kind in a namespace that no owner manages.
    pub fn strays(&self, kind: &Kind, namespace: &str) -> impl Iterator<Item = &Node> {
        let place = (Arc::from(kind.plural), Arc::from(namespace));
        self.strays.get(&place).into_iter().flatten().filter_map(|uid| self.nodes.get(uid)).filter(|node| node.key.is(kind))
    }

    /// The objects of a kind in a namespace (empty at the cluster scope).
    pub fn of_kind<'a>(&'a self, kind: &'a Kind, namespace: &str) -> impl Iterator<Item = &'a Node> {
        let place: (Arc<str>, Arc<str>) = (namespace.into(), kind.plural.into());
        self.spaces.get(&place).into_iter().flatten().filter_map(|uid| self.nodes.get(uid)).filter(|node| node.key.is(kind))
    }

    /// Every object, with its uid.
    pub fn all(&self) -> impl Iterator<Item = (&Arc<str>, &Node)> {
        self.nodes.iter()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::kinds::{CONFIG_MAP, SECRET};
    use super::*;

    fn change(plural: &str, name: &str, uid: &str, owners: &[(&str, bool)], deleted: bool) -> Change {
        let owners: Vec<serde_json::Value> =
            owners.iter().map(|(uid, controller)| json!({"uid": uid, "name": "o", "kind": "K", "controller": controller})).collect();
        let object = json!({
            "apiVersion": "v1", "kind": "K",
            "metadata": {"name": name, "namespace": "a", "uid": uid, "ownerReferences": owners},
        });
        Change::of("", plural, &object, deleted).expect("an object")
    }

    fn names<'a>(nodes: impl Iterator<Item = &'a Node>) -> Vec<String> {
        let mut names: Vec<String> = nodes.map(|node| node.key.name.to_string()).collect();
        names.sort();
        names
    }

    #[test]
    fn owners_strays_and_places_follow_changes() {
        let mut graph = Graph::default();
        graph.apply(&change("configmaps", "one", "1", &[], false));
        assert_eq!(graph.apply(&change("configmaps", "two", "2", &[("1", true)], false)), ["1".into()] as [Arc<str>; 1]);
        graph.apply(&change("secrets", "three", "3", &[("1", false)], false));
        assert_eq!(names(graph.dependents("1")), ["three", "two"]);
        assert_eq!(names(graph.strays(&CONFIG_MAP, "a")), ["one"]);
        assert_eq!(names(graph.strays(&SECRET, "a")), ["three"], "an owner that does not manage leaves a stray");
        assert_eq!(names(graph.of_kind(&CONFIG_MAP, "a")), ["one", "two"]);
        assert_eq!(graph.in_namespace("a").count(), 3);
        // Released: the former owner is told of.
        assert_eq!(graph.apply(&change("configmaps", "two", "2", &[], false)), ["1".into()] as [Arc<str>; 1]);
        assert_eq!(names(graph.dependents("1")), ["three"]);
        assert_eq!(names(graph.strays(&CONFIG_MAP, "a")), ["one", "two"]);
        // Another object of the same name takes the place of the old one.
        graph.apply(&change("configmaps", "one", "9", &[], false));
        assert!(graph.node_of("1").is_none() && graph.node_of("9").is_some());
        assert_eq!(names(graph.dependents("1")), ["three"], "the dependent still names the one that is gone");
        for (plural, name, uid) in [("configmaps", "one", "9"), ("configmaps", "two", "2"), ("secrets", "three", "3")] {
            graph.apply(&change(plural, name, uid, &[], true));
        }
        assert_eq!((graph.all().count(), graph.in_namespace("a").count(), graph.dependents("1").count()), (0, 0, 0));
        assert_eq!(graph.strays(&CONFIG_MAP, "a").count(), 0);
    }
}
