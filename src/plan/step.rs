//! All that the deploy pipeline can do to the parent, as data.
//!
//! The controllers perform steps in order within a phase; a step that no longer fits (its object was changed or is another
//! one) is refused by the server and costs one more turn, never more.

use std::collections::BTreeMap;

use api::ObjectMeta;
use api::object::ObjectRef;
use api::reason::Reason;
use serde_json::{Map, Value, json};

/// One change.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Make an object that is not there.
    Create {
        /// The whole object.
        object: Value,
    },
    /// Merge-patch an object.
    Patch {
        /// Which.
        at: ObjectRef,
        /// A merge patch (RFC 7386).
        patch: Value,
        /// Only this version of it.
        only_if: Version,
    },
    /// Merge-patch the status of an object.
    PatchStatus {
        /// Which.
        at: ObjectRef,
        /// A merge patch with the member `status`.
        patch: Value,
        /// Only this version of it.
        only_if: Version,
    },
    /// Delete an object; what it owns goes in the background.
    Delete {
        /// Which.
        at: ObjectRef,
        /// Only the object with this uid.
        uid: String,
    },
    /// Let an object go so that nobody acts on its going: its finalizers are taken, and it is deleted in just that state or not at all.
    LetGo {
        /// Which.
        at: ObjectRef,
        /// Only this version of it.
        only_if: Version,
    },
    /// Say something about an object as an event.
    Tell {
        /// About which.
        about: ObjectRef,
        /// Its uid.
        uid: String,
        /// Whether somebody should look.
        warning: bool,
        /// One word.
        reason: Reason,
        /// One sentence.
        message: String,
    },
}

/// The object that a patch was decided on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Version {
    /// Its uid.
    pub uid: String,
    /// Its resource version; empty when the patch holds for any (it adds what is missing and nothing else).
    pub resource_version: String,
}

impl Version {
    /// Exactly this state of an object.
    #[must_use]
    pub fn exactly(meta: &ObjectMeta) -> Self {
        Self { uid: meta.uid.clone().unwrap_or_default(), resource_version: meta.resource_version.clone().unwrap_or_default() }
    }
}

impl Step {
    /// The patch with its precondition inside, as the server checks it.
    #[must_use]
    pub fn guarded(patch: &Value, only_if: &Version) -> Value {
        let mut patch = patch.clone();
        if let Some(fields) = patch.as_object_mut() {
            let meta = fields.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
            if let Some(meta) = meta.as_object_mut() {
                for (key, value) in [("uid", &only_if.uid), ("resourceVersion", &only_if.resource_version)] {
                    if !value.is_empty() {
                        meta.insert(key.to_owned(), Value::String(value.clone()));
                    }
                }
            }
        }
        patch
    }
}

/// What the metadata of an object should have; everything else in it belongs to others.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MetaWish {
    /// Labels to have; `None` to lack.
    pub labels: BTreeMap<String, Option<String>>,
    /// Annotations to have; `None` to lack.
    pub annotations: BTreeMap<String, Option<String>>,
    /// Finalizers to have.
    pub finalizers: Vec<&'static str>,
    /// Finalizers to lack.
    pub without_finalizers: Vec<&'static str>,
}

impl MetaWish {
    /// The merge patch of the metadata that makes it so; `None` when it is so already.
    #[must_use]
    pub fn patch(&self, have: &ObjectMeta) -> Option<Value> {
        let mut out = Map::new();
        for (field, wish, entries) in
            [("labels", &self.labels, have.labels.as_ref()), ("annotations", &self.annotations, have.annotations.as_ref())]
        {
            let mut changes = Map::new();
            for (key, value) in wish {
                let now = entries.and_then(|entries| entries.get(key));
                if now != value.as_ref() {
                    changes.insert(key.clone(), value.clone().map_or(Value::Null, Value::String));
                }
            }
            if !changes.is_empty() {
                out.insert(field.to_owned(), Value::Object(changes));
            }
        }
        let now = have.finalizers.clone().unwrap_or_default();
        let mut then: Vec<&str> = now.iter().map(String::as_str).filter(|f| !self.without_finalizers.contains(f)).collect();
        then.extend(self.finalizers.iter().filter(|f| !now.iter().any(|n| n == *f)));
        if then != now {
            out.insert("finalizers".to_owned(), json!(then));
        }
        (!out.is_empty()).then_some(Value::Object(out))
    }
}

/// Name of the Base that an object belongs to.
#[must_use]
pub fn base_of(object: &ObjectMeta) -> Option<&str> {
    object.owner_references.iter().flatten().find(|owner| owner.kind == "Base").map(|owner| owner.name.as_str())
}

/// A reference to an object of Clusternet's app group.
#[must_use]
pub fn app_ref(kind: &str, meta: &ObjectMeta) -> ObjectRef {
    ObjectRef {
        api_version: "apps.clusternet.io/v1alpha1".to_owned(),
        kind: kind.to_owned(),
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
    }
}

/// A controlling owner reference to an object of Clusternet's app group.
#[must_use]
pub fn owner(kind: &str, meta: &ObjectMeta) -> Value {
    json!({
        "apiVersion": "apps.clusternet.io/v1alpha1",
        "kind": kind,
        "name": meta.name.clone().unwrap_or_default(),
        "uid": meta.uid.clone().unwrap_or_default(),
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// A label of some metadata.
#[must_use]
pub fn label_of<'a>(meta: &'a ObjectMeta, key: &str) -> &'a str {
    meta.labels.as_ref().and_then(|labels| labels.get(key)).map_or("", String::as_str)
}

/// An annotation of some metadata.
#[must_use]
pub fn annotation_of<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

/// Whether the object has this finalizer.
#[must_use]
pub fn has_finalizer(meta: &ObjectMeta, finalizer: &str) -> bool {
    meta.finalizers.iter().flatten().any(|f| f == finalizer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_patches_what_differs_and_nothing_else() {
        let meta = ObjectMeta {
            labels: Some([("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())].into()),
            finalizers: Some(vec!["other".to_owned(), "old".to_owned()]),
            ..ObjectMeta::default()
        };
        let wish = MetaWish {
            labels: [("a".to_owned(), Some("1".to_owned())), ("b".to_owned(), None), ("c".to_owned(), Some("3".to_owned())), ("d".to_owned(), None)].into(),
            finalizers: vec!["new"],
            without_finalizers: vec!["old"],
            ..MetaWish::default()
        };
        assert_eq!(wish.patch(&meta), Some(json!({"labels": {"b": null, "c": "3"}, "finalizers": ["other", "new"]})));
        assert_eq!(MetaWish::default().patch(&meta), None);
    }
}
