//! Former templates of StatefulSets and DaemonSets, kept as ControllerRevisions.

use std::sync::Arc;

use apiserver::controllers::kinds::CONTROLLER_REVISION;
use apiserver::controllers::{Call, Delete, Kind, Turn, World};
use serde_json::{json, Value};

use crate::hash;
use crate::value::{at, controller, int, name, namespace, owned_by, terminating, uid};

const HASH_LABEL: &str = "controller.kubernetes.io/hash";

/// The revisions of one workload.
pub(crate) struct Revisions {
    /// Name of the revision of the present template.
    pub(crate) update: String,
    /// Its hash, as a label value.
    pub(crate) hash: String,
    /// All that are stored, in order of their numbers.
    stored: Vec<Arc<Value>>,
}

fn data(template: &Value) -> Value {
    let mut template = template.clone();
    template["$patch"] = json!("replace");
    json!({"spec": {"template": template}})
}

impl Revisions {
    /// Finds or makes the revision of the present template, and keeps its number the greatest.
    pub(crate) fn sync(world: &World<'_>, kind: &Kind, owner: &Value, collisions: Option<i64>, turn: &mut Turn) -> Self {
        let me = uid(owner);
        let mut stored: Vec<Arc<Value>> = world
            .owned(me, &CONTROLLER_REVISION)
            .into_iter()
            .filter(|revision| controller(revision).is_some_and(|(_, _, uid)| uid == me))
            .collect();
        stored.sort_by_key(|revision| (int(revision, &["revision"]).unwrap_or(0), name(revision).to_owned()));
        let template = at(owner, &["spec", "template"]).cloned().unwrap_or_default();
        let wanted = data(&template);
        let next = stored.last().map_or(0, |last| int(last, &["revision"]).unwrap_or(0)) + 1;
        let hash = hash::template(&template, collisions.filter(|count| *count > 0));
        if let Some(found) = stored.iter().position(|revision| revision.get("data") == Some(&wanted)) {
            let revision = stored[found].clone();
            if found + 1 != stored.len() {
                let patch = json!({"revision": next});
                turn.call(Call::merge(&CONTROLLER_REVISION, namespace(&revision), name(&revision), "", patch));
                stored.remove(found);
                stored.push(revision.clone());
            }
            let label = at(&revision, &["metadata", "labels", HASH_LABEL]).and_then(Value::as_str).unwrap_or(&hash);
            return Self { update: name(&revision).to_owned(), hash: label.to_owned(), stored };
        }
        let update = format!("{}-{hash}", name(owner));
        if terminating(owner) {
            return Self { update, hash, stored };
        }
        let mut labels = at(&template, &["metadata", "labels"]).cloned().unwrap_or_else(|| json!({}));
        labels[HASH_LABEL] = json!(hash);
        let object = json!({
            "metadata": {"name": update, "labels": labels, "ownerReferences": [owned_by(kind, owner)]},
            "data": wanted, "revision": next,
        });
        turn.call(Call::create(&CONTROLLER_REVISION, namespace(owner), object));
        turn.then();
        Self { update, hash, stored }
    }

    /// The template of a stored revision.
    pub(crate) fn template(&self, wanted: &str) -> Option<Value> {
        let revision = self.stored.iter().find(|revision| name(revision) == wanted)?;
        let mut template = at(revision, &["data", "spec", "template"])?.clone();
        template.as_object_mut()?.remove("$patch");
        Some(template)
    }

    /// Deletes the oldest revisions beyond the history that is kept; those in use stay.
    pub(crate) fn truncate(&self, limit: i64, in_use: impl Fn(&Value) -> bool, turn: &mut Turn) {
        let idle: Vec<&Arc<Value>> =
            self.stored.iter().filter(|revision| name(revision) != self.update && !in_use(revision)).collect();
        let surplus = idle.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        for revision in idle.into_iter().take(surplus) {
            turn.call(Call::delete(&CONTROLLER_REVISION, revision, Delete::Background));
        }
    }
}
