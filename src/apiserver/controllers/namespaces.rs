//! End of namespaces: what is in them goes first, then the finalizer, so that the server can let the namespace go.

use std::collections::BTreeMap;

use serde_json::{json, Value};

use super::kinds::NAMESPACE;
use super::{Call, Change, Controller, Delete, Key, Turn, World};
use crate::auth::{at, strings, text};

/// Empties namespaces that are being deleted.
#[derive(Debug, Default)]
pub struct Namespaces;

fn key(name: &str) -> Key {
    Key::new("", "namespaces", "", name)
}

impl Controller for Namespaces {
    fn name(&self) -> &'static str {
        "namespace"
    }

    fn concerns(&self, change: &Change, world: &World<'_>, wake: &mut Vec<Key>) {
        if change.key.is(&NAMESPACE) {
            if change.meta.terminating() && !change.deleted {
                wake.push(change.key.clone());
            }
            return;
        }
        if change.key.namespace.is_empty() {
            return;
        }
        let home = key(&change.key.namespace);
        let uid = world.graph.uid_of(&home);
        if uid.and_then(|uid| world.graph.node_of(uid)).is_some_and(|node| node.terminating) {
            wake.push(home);
        }
    }

    fn decide(&self, key: &Key, world: &World<'_>) -> Turn {
        let mut turn = Turn::default();
        let Some(namespace) = world.at(key) else { return turn };
        if text(&namespace, &["metadata", "deletionTimestamp"]).is_empty() {
            return turn;
        }
        if !strings(&namespace, &["spec", "finalizers"]).iter().any(|finalizer| finalizer == "kubernetes") {
            return turn;
        }
        let mut remaining: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        let mut finalizers: BTreeMap<&str, usize> = BTreeMap::new();
        for (uid, node) in world.graph.in_namespace(&key.name) {
            if node.terminating {
                *remaining.entry((&node.key.plural, &node.key.group)).or_default() += 1;
                for finalizer in node.finalizers.iter() {
                    *finalizers.entry(finalizer).or_default() += 1;
                }
            } else {
                let Key { plural, namespace, name, .. } = &node.key;
                turn.call(Call::delete_at(&node.api_version, plural, namespace, name, uid, Delete::Background));
            }
        }
        if !turn.is_quiet() {
            // The deletions come back as changes and wake this key again; a refused one is tried again.
            return turn;
        }
        if remaining.is_empty() {
            turn.call(finalize(&namespace));
            return turn;
        }
        let conditions = conditions(&namespace, &remaining, &finalizers, world);
        if at(&namespace, &["status", "conditions"]) != Some(&conditions) {
            turn.call(Call::status(&NAMESPACE, &namespace, json!({"phase": "Terminating", "conditions": conditions})));
        }
        turn
    }
}

fn finalize(namespace: &Value) -> Call {
    let mut object = namespace.clone();
    let left: Vec<String> =
        strings(namespace, &["spec", "finalizers"]).into_iter().filter(|finalizer| finalizer != "kubernetes").collect();
    object["spec"]["finalizers"] = json!(left);
    Call { fine: &[404], ..Call::update(&NAMESPACE, "finalize", object) }
}

fn conditions(
    namespace: &Value,
    remaining: &BTreeMap<(&str, &str), usize>,
    finalizers: &BTreeMap<&str, usize>,
    world: &World<'_>,
) -> Value {
    let resources: Vec<String> =
        remaining.iter().map(|((plural, group), count)| format!("{plural}.{group} has {count} resource instances")).collect();
    let holding: Vec<String> =
        finalizers.iter().map(|(name, count)| format!("{name} in {count} resource instances")).collect();
    let (held, held_reason, held_message) = if holding.is_empty() {
        ("False", "ContentHasNoFinalizers", "All content-preserving finalizers finished".to_owned())
    } else {
        let message = format!("Some content in the namespace has finalizers remaining: {}", holding.join(", "));
        ("True", "SomeFinalizersRemain", message)
    };
    let left = format!("Some resources are remaining: {}", resources.join(", "));
    let wanted = [
        ("NamespaceDeletionDiscoveryFailure", "False", "ResourcesDiscovered", "All resources successfully discovered".to_owned()),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            "False",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed".to_owned(),
        ),
        (
            "NamespaceDeletionContentFailure",
            "False",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization".to_owned(),
        ),
        ("NamespaceContentRemaining", "True", "SomeResourcesRemain", left),
        ("NamespaceFinalizersRemaining", held, held_reason, held_message),
    ];
    let before = at(namespace, &["status", "conditions"]).and_then(Value::as_array).cloned().unwrap_or_default();
    let now = world.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    wanted
        .into_iter()
        .map(|(kind, status, reason, message)| {
            let old = before.iter().find(|condition| text(condition, &["type"]) == kind);
            let since = old.filter(|old| text(old, &["status"]) == status).map_or("", |old| text(old, &["lastTransitionTime"]));
            let since = if since.is_empty() { now.as_str() } else { since };
            json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since})
        })
        .collect()
}
