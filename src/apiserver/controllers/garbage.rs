//! Garbage collection: dependents follow their owners, in the background, before them, or not at all.

use std::sync::Arc;

use serde_json::{json, Value};

use super::graph::Node;
use super::{Call, Change, Controller, Delete, Key, Owner, Turn, World};
use crate::auth::{at, text, Objects};

/// Tells whether a kind is served, and whether its objects live in namespaces: `(apiVersion, kind) -> namespaced`.
///
/// An owner of a kind that is not served is never held for absent: nothing is deleted on a doubt.
pub type Served = Arc<dyn Fn(&dyn Objects, &str, &str) -> Option<bool> + Send + Sync>;

/// Deletes objects whose owners are gone.
pub struct Garbage {
    served: Served,
}

impl std::fmt::Debug for Garbage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Garbage")
    }
}

#[derive(PartialEq)]
enum Standing {
    /// There, and stays.
    Solid,
    /// Not there.
    Absent,
    /// There, but waits for its dependents to go.
    Waiting,
}

impl Garbage {
    /// A collector.
    pub fn new(served: Served) -> Self {
        Self { served }
    }

    fn standing(&self, owner: &Owner, node: &Node, world: &World<'_>) -> Standing {
        match world.graph.node_of(&owner.uid) {
            Some(found) => {
                let reachable = found.key.namespace.is_empty() || found.key.namespace == node.key.namespace;
                if !reachable {
                    // An owner in another namespace does not count; for a cluster-scoped object it cannot even be asked for.
                    return if node.key.namespace.is_empty() { Standing::Solid } else { Standing::Absent };
                }
                if found.terminating && found.foreground { Standing::Waiting } else { Standing::Solid }
            }
            None => match (self.served)(world.objects, &owner.api_version, &owner.kind) {
                None => Standing::Solid,
                Some(namespaced) if namespaced && node.key.namespace.is_empty() => Standing::Solid,
                Some(_) => Standing::Absent,
            },
        }
    }

    /// An object that is being deleted and waits for its dependents.
    fn foreground(&self, uid: &str, node: &Node, world: &World<'_>, turn: &mut Turn) {
        let blocks = |dependent: &&Node| {
            dependent.owners.iter().any(|owner| owner.uid == uid && owner.block_owner_deletion)
        };
        if world.graph.dependents(uid).filter(blocks).next().is_none() {
            drop_finalizer(node, world, "foregroundDeletion", turn);
        }
    }

    /// An object that is being deleted and leaves its dependents behind.
    fn orphan(&self, uid: &str, node: &Node, world: &World<'_>, turn: &mut Turn) {
        for dependent in world.graph.dependents(uid) {
            without_owners(dependent, &[uid], world, turn);
        }
        turn.then();
        drop_finalizer(node, world, "orphan", turn);
    }
}

/// Takes owners out of an object's references.
fn without_owners(node: &Node, uids: &[&str], world: &World<'_>, turn: &mut Turn) {
    let Some(object) = world.at(&node.key) else { return };
    let owners = at(&object, &["metadata", "ownerReferences"]).and_then(Value::as_array).cloned().unwrap_or_default();
    let left: Vec<Value> = owners.iter().filter(|owner| !uids.contains(&text(owner, &["uid"]))).cloned().collect();
    if left.len() == owners.len() {
        return;
    }
    let left = if left.is_empty() { Value::Null } else { Value::Array(left) };
    turn.call(patch_metadata(node, &object, json!({"ownerReferences": left})));
}

/// Lets the owners of an object go before it.
fn release(node: &Node, world: &World<'_>, turn: &mut Turn) {
    let Some(object) = world.at(&node.key) else { return };
    let mut owners = at(&object, &["metadata", "ownerReferences"]).and_then(Value::as_array).cloned().unwrap_or_default();
    if !owners.iter().any(|owner| owner["blockOwnerDeletion"] == json!(true)) {
        return;
    }
    for owner in &mut owners {
        owner["blockOwnerDeletion"] = json!(false);
    }
    turn.call(patch_metadata(node, &object, json!({"ownerReferences": owners})));
}

fn drop_finalizer(node: &Node, world: &World<'_>, name: &str, turn: &mut Turn) {
    let Some(object) = world.at(&node.key) else { return };
    let left: Vec<String> =
        crate::auth::strings(&object, &["metadata", "finalizers"]).into_iter().filter(|f| f != name).collect();
    let left = if left.is_empty() { Value::Null } else { json!(left) };
    turn.call(patch_metadata(node, &object, json!({"finalizers": left})));
}

/// A merge of metadata that holds only for the object as it was read.
fn patch_metadata(node: &Node, object: &Value, mut metadata: Value) -> Call {
    for field in ["uid", "resourceVersion"] {
        metadata[field] = json!(text(object, &["metadata", field]));
    }
    let Key { plural, namespace, name, .. } = &node.key;
    Call::merge_at(&node.api_version, plural, namespace, name, json!({"metadata": metadata}))
}

impl Controller for Garbage {
    fn name(&self) -> &'static str {
        "garbage-collector"
    }

    fn concerns(&self, change: &Change, world: &World<'_>, wake: &mut Vec<Key>) {
        let meta = &change.meta;
        let waits = meta.terminating() && meta.finalizers.iter().any(|f| f == "foregroundDeletion" || f == "orphan");
        if !change.deleted && (waits || !meta.owner_references.is_empty()) {
            wake.push(change.key.clone());
        }
        if change.deleted || waits {
            wake.extend(world.graph.dependents(&meta.uid).map(|node| node.key.clone()));
        }
        for owner in &change.touched {
            if let Some(node) = world.graph.node_of(owner)
                && node.terminating
            {
                wake.push(node.key.clone());
            }
        }
    }

    fn decide(&self, key: &Key, world: &World<'_>) -> Turn {
        let mut turn = Turn::default();
        let Some(uid) = world.graph.uid_of(key) else { return turn };
        let Some(node) = world.graph.node_of(uid) else { return turn };
        if node.terminating {
            if node.foreground {
                self.foreground(uid, node, world, &mut turn);
            } else if node.orphan {
                self.orphan(uid, node, world, &mut turn);
            }
            return turn;
        }
        if node.owners.is_empty() {
            return turn;
        }
        let standing: Vec<(&Owner, Standing)> =
            node.owners.iter().map(|owner| (owner, self.standing(owner, node, world))).collect();
        let solid = standing.iter().any(|(_, standing)| *standing == Standing::Solid);
        if solid {
            let gone: Vec<&str> = standing
                .iter()
                .filter(|(_, standing)| *standing != Standing::Solid)
                .map(|(owner, _)| owner.uid.as_str())
                .collect();
            if !gone.is_empty() {
                without_owners(node, &gone, world, &mut turn);
            }
            return turn;
        }
        let waiting = standing.iter().any(|(_, standing)| *standing == Standing::Waiting);
        let how = if waiting && world.graph.dependents(uid).next().is_some() {
            Delete::Foreground
        } else if node.orphan {
            Delete::Orphan
        } else if node.foreground {
            Delete::Foreground
        } else {
            Delete::Background
        };
        // A circle: who waits for this object is waited for by it. It stops holding its owners up, so that one of them can go.
        if waiting && world.graph.dependents(uid).any(|dependent| dependent.terminating && dependent.foreground) {
            release(node, world, &mut turn);
            turn.then();
        }
        let Key { plural, namespace, name, .. } = &node.key;
        turn.call(Call::delete_at(&node.api_version, plural, namespace, name, uid, how));
        turn
    }
}
