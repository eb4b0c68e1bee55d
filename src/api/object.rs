//! References to Kubernetes objects, and small readers over objects that are plain JSON.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Group, version and kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Gvk {
    /// Group, empty for the core group.
    pub group: String,
    /// Version.
    pub version: String,
    /// Kind.
    pub kind: String,
}

impl Gvk {
    /// From a kind and an apiVersion (`v1` or `group/version`).
    pub fn from_api_version(api_version: &str, kind: &str) -> Self {
        let (group, version) = split_api_version(api_version);
        Self { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() }
    }

    /// Of an object; `None` without apiVersion or kind.
    pub fn of(object: &Value) -> Option<Self> {
        let (api_version, kind) = (text(object, "apiVersion"), text(object, "kind"));
        (!api_version.is_empty() && !kind.is_empty()).then(|| Self::from_api_version(api_version, kind))
    }

    /// `v1` or `group/version`.
    pub fn api_version(&self) -> String {
        join_api_version(&self.group, &self.version)
    }
}

impl fmt::Display for Gvk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, Kind={}", self.api_version(), self.kind)
    }
}

/// An object by kind and name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ObjectRef {
    /// `v1` or `group/version`.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace, empty for cluster-scoped objects.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl ObjectRef {
    /// Of an object; fields that it lacks stay empty.
    pub fn of(object: &Value) -> Self {
        Self {
            api_version: text(object, "apiVersion").to_owned(),
            kind: text(object, "kind").to_owned(),
            namespace: namespace(object).to_owned(),
            name: name(object).to_owned(),
        }
    }

    /// Group, version and kind.
    pub fn gvk(&self) -> Gvk {
        Gvk::from_api_version(&self.api_version, &self.kind)
    }

    /// Group of the kind, empty for the core group.
    pub fn group(&self) -> &str {
        split_api_version(&self.api_version).0
    }

    /// `namespace/name`, or the name alone.
    pub fn key(&self) -> String {
        key(&self.namespace, &self.name)
    }
}

/// `Kind namespace/name` with the group where there is one: `Deployment.apps web/front`.
impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        if !self.group().is_empty() {
            write!(f, ".{}", self.group())?;
        }
        write!(f, " {}", self.key())
    }
}

/// Group and version of an apiVersion.
pub fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// apiVersion of group and version.
pub fn join_api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// `namespace/name`, or the name alone.
pub fn key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

/// Splits `namespace/name`; a text without a slash is a name.
pub fn split_key(key: &str) -> (&str, &str) {
    key.split_once('/').unwrap_or(("", key))
}

/// A top-level text field, empty when it is absent.
pub fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// A text field of the metadata, empty when it is absent.
pub fn meta_text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get("metadata").and_then(|meta| meta.get(field)).and_then(Value::as_str).unwrap_or_default()
}

/// Name of an object.
pub fn name(object: &Value) -> &str {
    meta_text(object, "name")
}

/// Namespace of an object, empty when it has none.
pub fn namespace(object: &Value) -> &str {
    meta_text(object, "namespace")
}

/// UID of an object.
pub fn uid(object: &Value) -> &str {
    meta_text(object, "uid")
}

/// Resource version of an object.
pub fn resource_version(object: &Value) -> &str {
    meta_text(object, "resourceVersion")
}

/// True when an object is being deleted.
pub fn is_deleting(object: &Value) -> bool {
    !meta_text(object, "deletionTimestamp").is_empty()
}

/// A label of an object.
pub fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get("labels")?.get(key)?.as_str()
}

/// An annotation of an object.
pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get("annotations")?.get(key)?.as_str()
}

/// All labels of an object.
pub fn labels(object: &Value) -> BTreeMap<String, String> {
    text_map(object.get("metadata").and_then(|meta| meta.get("labels")))
}

/// All annotations of an object.
pub fn annotations(object: &Value) -> BTreeMap<String, String> {
    text_map(object.get("metadata").and_then(|meta| meta.get("annotations")))
}

fn text_map(value: Option<&Value>) -> BTreeMap<String, String> {
    let entries = value.and_then(Value::as_object).into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// Sets a label, making the maps on the way; does nothing when the object is not a map.
pub fn set_label(object: &mut Value, key: &str, value: &str) {
    set_meta_entry(object, "labels", key, value);
}

/// Sets an annotation, making the maps on the way; does nothing when the object is not a map.
pub fn set_annotation(object: &mut Value, key: &str, value: &str) {
    set_meta_entry(object, "annotations", key, value);
}

/// Removes an annotation, and the map of annotations when it was the last one.
pub fn remove_annotation(object: &mut Value, key: &str) -> bool {
    let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return false };
    let Some(entries) = meta.get_mut("annotations").and_then(Value::as_object_mut) else { return false };
    let removed = entries.remove(key).is_some();
    if entries.is_empty() {
        meta.remove("annotations");
    }
    removed
}

fn set_meta_entry(object: &mut Value, map: &str, key: &str, value: &str) {
    let entries = object.as_object_mut().and_then(|fields| child_map(fields, "metadata")).and_then(|meta| child_map(meta, map));
    if let Some(entries) = entries {
        entries.insert(key.to_owned(), Value::String(value.to_owned()));
    }
}

/// The map under a key, made when there is none; anything else there is replaced.
fn child_map<'a>(fields: &'a mut Map<String, Value>, key: &str) -> Option<&'a mut Map<String, Value>> {
    let slot = fields.entry(key).or_insert(Value::Null);
    if !slot.is_object() {
        *slot = Value::Object(Map::new());
    }
    slot.as_object_mut()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references() {
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "web", "name": "front", "labels": {"a": "b"}}});
        let at = ObjectRef::of(&object);
        assert_eq!(at.to_string(), "Deployment.apps web/front");
        assert_eq!(at.gvk(), Gvk { group: "apps".into(), version: "v1".into(), kind: "Deployment".into() });
        assert_eq!(label(&object, "a"), Some("b"));
        assert_eq!(Gvk::from_api_version("v1", "Pod").api_version(), "v1");
    }

    #[test]
    fn annotations_come_and_go() {
        let mut object = json!({"metadata": {"annotations": null}});
        set_annotation(&mut object, "a", "1");
        assert_eq!(annotation(&object, "a"), Some("1"));
        assert!(remove_annotation(&mut object, "a"));
        assert_eq!(object, json!({"metadata": {}}));
    }
}
