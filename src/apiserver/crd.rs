//! CustomResourceDefinitions: names, conditions, the routes they make, and their instances' end.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::core::Core;
use crate::object;
use crate::resource::{Resource, Routes, Subresource};

/// Table of the definitions.
pub(crate) const TABLE: &str = "apiextensions.k8s.io/customresourcedefinitions";
/// Finalizer that holds a definition until its instances are gone.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// A printer column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Head.
    pub name: String,
    /// `string`, `integer`, `number`, `boolean`, `date`.
    pub kind: String,
    /// `int32`, `date-time`, …
    pub format: String,
    /// For `kubectl explain` of columns.
    pub description: String,
    /// 0: always shown.
    pub priority: i64,
    /// JSONPath of the cell.
    pub path: String,
}

/// Paths of the scale subresource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScalePaths {
    /// Wanted replicas.
    pub spec: String,
    /// Observed replicas.
    pub status: String,
    /// Selector, as text.
    pub selector: Option<String>,
}

/// What a definition says of one version.
#[derive(Debug)]
pub struct Custom {
    /// Name of the definition.
    pub definition: String,
    /// Printer columns.
    pub columns: Vec<Column>,
    /// Fields that can be selected by, without the leading dot.
    pub selectable: Vec<String>,
    /// Scale subresource.
    pub scale: Option<ScalePaths>,
    /// Text for clients of a deprecated version.
    pub deprecation: Option<String>,
    /// The schema of this version, for OpenAPI.
    pub schema: Option<Value>,
    /// The definition itself.
    pub crd: Arc<Value>,
    /// Revision of the definition when the schema has defaults: older objects get them when they are read. Else 0.
    pub defaults_since: u64,
    /// More than one version: objects may be stored in another one than now.
    pub many: bool,
    /// The webhook that converts between versions.
    pub(crate) webhook: Option<crate::conversion::Webhook>,
    /// What is known of the kind in the version that is stored.
    pub(crate) stored: OnceLock<Option<crate::kinds::Kind>>,
    /// Hash of what OpenAPI says of the resource, made when first needed.
    pub(crate) digest: OnceLock<String>,
}

impl Custom {
    /// What is known of the kind in the version that is stored.
    pub(crate) fn stored_kind(&self, resource: &Resource) -> Option<&crate::kinds::Kind> {
        let (_, version) = crate::resource::split_api_version(&resource.storage_version);
        self.stored.get_or_init(|| crate::kinds::custom(&self.crd, version).into_inner().flatten()).as_ref()
    }
}

/// Versions of Kubernetes in order of preference: GA before beta before alpha, high numbers first, odd names last.
#[must_use]
pub fn version_order(a: &str, b: &str) -> Ordering {
    fn rank(version: &str) -> Option<(u8, u64, u64)> {
        let rest = version.strip_prefix('v')?;
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let major = rest[..digits].parse().ok()?;
        match &rest[digits..] {
            "" => Some((3, major, 0)),
            tail => {
                let (level, minor) = tail.strip_prefix("beta").map(|m| (2, m)).or_else(|| tail.strip_prefix("alpha").map(|m| (1, m)))?;
                Some((level, major, if minor.is_empty() { 0 } else { minor.parse().ok()? }))
            }
        }
    }
    match (rank(a), rank(b)) {
        (Some(x), Some(y)) => x.cmp(&y),
        (Some(_), None) => Ordering::Greater,
        (None, Some(_)) => Ordering::Less,
        (None, None) => b.cmp(a),
    }
}

/// Serialises what definitions do to one another.
#[derive(Debug, Default)]
pub(crate) struct Definitions {
    lock: Mutex<u64>,
}

fn strings(value: Option<&Value>) -> Vec<String> {
    value.and_then(Value::as_array).map(|l| l.iter().filter_map(Value::as_str).map(str::to_owned).collect()).unwrap_or_default()
}

fn all(core: &Core) -> Vec<Value> {
    let mut all = Vec::new();
    core.store.scan(TABLE, "", &mut |entry| all.push(object::decode(&entry.value)));
    all
}

/// Names of a definition that another one of its group holds already.
fn name_conflicts(crd: &Value, others: &[Value]) -> Option<(&'static str, String)> {
    let group = object::text(crd, &["spec", "group"]);
    let name = object::name(crd);
    let mut resources: BTreeMap<String, ()> = BTreeMap::new();
    let mut kinds: BTreeMap<String, ()> = BTreeMap::new();
    for other in others.iter().filter(|o| object::text(o, &["spec", "group"]) == group && object::name(o) != name) {
        let Some(names) = object::at(other, &["status", "acceptedNames"]) else { continue };
        for field in ["plural", "singular"] {
            resources.insert(object::text(names, &[field]).to_owned(), ());
        }
        for short in strings(names.get("shortNames")) {
            resources.insert(short, ());
        }
        for field in ["kind", "listKind"] {
            kinds.insert(object::text(names, &[field]).to_owned(), ());
        }
    }
    let wanted = object::at(crd, &["spec", "names"])?;
    let taken = |set: &BTreeMap<String, ()>, name: &str| !name.is_empty() && set.contains_key(name);
    let used = |name: &str| format!("\"{name}\" is already in use");
    for (field, reason) in [("plural", "PluralConflict"), ("singular", "SingularConflict")] {
        let name = object::text(wanted, &[field]);
        if taken(&resources, name) {
            return Some((reason, used(name)));
        }
    }
    for short in strings(wanted.get("shortNames")) {
        if taken(&resources, &short) {
            return Some(("ShortNamesConflict", used(&short)));
        }
    }
    for (field, reason) in [("kind", "KindConflict"), ("listKind", "ListKindConflict")] {
        let name = object::text(wanted, &[field]);
        if taken(&kinds, name) {
            return Some((reason, used(name)));
        }
    }
    None
}

/// Sets a condition; the instant changes only with the status.
pub(crate) fn set_condition(object: &mut Value, kind: &str, status: &str, reason: &str, message: &str, now: &str) {
    let list = object::child(object, "status").entry("conditions").or_insert_with(|| json!([]));
    if !list.is_array() {
        *list = json!([]);
    }
    let Value::Array(list) = list else { return };
    let fresh = json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now});
    match list.iter_mut().find(|c| object::text(c, &["type"]) == kind) {
        Some(old) if object::text(old, &["status"]) == status => {
            let since = object::text(old, &["lastTransitionTime"]).to_owned();
            *old = fresh;
            old["lastTransitionTime"] = json!(since);
        }
        Some(old) => *old = fresh,
        None => list.push(fresh),
    }
}

fn condition<'a>(object: &'a Value, kind: &str) -> &'a str {
    let list = object::at(object, &["status", "conditions"]).and_then(Value::as_array);
    list.into_iter().flatten().find(|c| object::text(c, &["type"]) == kind).map_or("", |c| object::text(c, &["status"]))
}

/// Whether instances are served.
fn established(crd: &Value) -> bool {
    condition(crd, "Established") == "True"
}

/// Works out accepted names and conditions.
fn settle(core: &Core, crd: &mut Value, others: &[Value]) {
    let now = object::instant(core.now());
    let wanted = object::at(crd, &["spec", "names"]).cloned().unwrap_or_else(|| json!({}));
    match name_conflicts(crd, others) {
        None => {
            object::child(crd, "status").insert("acceptedNames".into(), wanted);
            set_condition(crd, "NamesAccepted", "True", "NoConflicts", "no conflicts found", &now);
            set_condition(crd, "Established", "True", "InitialNamesAccepted", "the initial names have been accepted", &now);
            let api = object::text(crd, &["metadata", "annotations", "api-approved.kubernetes.io"]).to_owned();
            let group = object::text(crd, &["spec", "group"]).to_owned();
            if group == "k8s.io" || group.ends_with(".k8s.io") || group.ends_with(".kubernetes.io") {
                let (status, reason, message) = if api.starts_with("unapproved") {
                    ("False", "UnapprovedAnnotation", format!("not approved: \"{api}\""))
                } else if api.is_empty() {
                    ("False", "MissingAnnotation", "protected groups must have approval annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111".to_owned())
                } else {
                    ("True", "ApprovedAnnotation", format!("approved in {api}"))
                };
                set_condition(crd, "KubernetesAPIApprovalPolicyConformant", status, reason, &message, &now);
            }
        }
        Some((reason, message)) => {
            let status = object::child(crd, "status");
            status.entry("acceptedNames").or_insert_with(|| json!({"plural": "", "kind": ""}));
            set_condition(crd, "NamesAccepted", "False", reason, &message, &now);
            if !established(crd) {
                set_condition(crd, "Established", "False", "NotAccepted", "not all names are accepted", &now);
            }
        }
    }
}

fn versions(crd: &Value) -> Vec<&Value> {
    object::at(crd, &["spec", "versions"]).and_then(Value::as_array).map(|l| l.iter().collect()).unwrap_or_default()
}

fn is_definition(resource: &Resource) -> bool {
    resource.is("apiextensions.k8s.io", "customresourcedefinitions")
}

/// Completes a definition on its way into the store.
pub(crate) fn before_create(core: &Core, resource: &Resource, mut object: Value) -> Value {
    if is_definition(resource) {
        let _order = core.crds.lock.lock();
        settle(core, &mut object, &all(core));
    }
    object
}

/// Completes a changed definition.
pub(crate) fn before_update(core: &Core, resource: &Resource, old: &Value, mut object: Value) -> Value {
    if is_definition(resource) && !object::deleting(&object) {
        let spec_changed = old.get("spec") != object.get("spec");
        let unsettled = !established(&object) || condition(&object, "NamesAccepted") != "True";
        if spec_changed || unsettled {
            let _order = core.crds.lock.lock();
            settle(core, &mut object, &all(core));
        }
    }
    object
}

/// A definition whose objects may exist waits for their removal once it is to go, and not before: nobody sees the finalizer earlier.
pub(crate) fn before_delete(resource: &Resource, object: &mut Value) {
    if is_definition(resource) && established(object) && !object::deleting(object) {
        let mut finalizers: Vec<String> = object::finalizers(object).into_iter().map(str::to_owned).collect();
        if !finalizers.iter().any(|f| f == CLEANUP) {
            finalizers.push(CLEANUP.to_owned());
            object::metadata(object).insert("finalizers".into(), json!(finalizers));
        }
    }
}

/// Marks a definition that is being removed.
pub(crate) fn deleting(core: &Core, resource: &Resource, object: &mut Value) {
    if is_definition(resource) && object::finalizers(object).contains(&CLEANUP) && condition(object, "Terminating") != "True" {
        let now = object::instant(core.now());
        set_condition(object, "Terminating", "True", "InstanceDeletionInProgress", "CustomResource deletion is in progress", &now);
    }
}

/// Brings routes up to date after any change of definitions, and goes on with removals.
pub(crate) fn changed(core: &Arc<Core>) {
    let definitions = {
        let mut generation = core.crds.lock.lock();
        let definitions = all(core);
        let old = core.routes.load_full();
        let mut custom = Vec::new();
        for crd in &definitions {
            if established(crd) {
                custom.extend(resources_of(&old, crd));
            }
        }
        *generation += 1;
        let routes = if custom.is_empty() { crate::resource::native_routes() } else { Arc::new(Routes::new(&custom, *generation)) };
        core.openapi.keep(&routes);
        core.conversions.forget();
        core.routes.store(routes);
        definitions
    };
    for crd in definitions {
        if object::deleting(&crd) && object::finalizers(&crd).contains(&CLEANUP) {
            tokio::spawn(crate::crd_cleanup::run(core.clone(), object::name(&crd).to_owned(), object::uid(&crd).to_owned()));
        } else if !established(&crd) || condition(&crd, "NamesAccepted") != "True" {
            // A name may have become free.
            if name_conflicts(&crd, &all(core)).is_none() {
                tokio::spawn(crate::crd_cleanup::resettle(core.clone(), object::name(&crd).to_owned()));
            }
        }
    }
}

/// Routes of one definition; those that did not change are the same objects as before, with what they have worked out.
fn resources_of(old: &Routes, crd: &Value) -> Vec<Arc<Resource>> {
    let names = object::at(crd, &["status", "acceptedNames"]).cloned().unwrap_or_else(|| json!({}));
    let group = object::text(crd, &["spec", "group"]);
    let plural = object::text(&names, &["plural"]);
    let storage = versions(crd).into_iter().find(|v| v.get("storage") == Some(&json!(true))).map_or("", |v| object::text(v, &["name"]));
    let mut served: Vec<&Value> = versions(crd).into_iter().filter(|v| v.get("served") == Some(&json!(true))).collect();
    served.sort_by(|a, b| version_order(object::text(b, &["name"]), object::text(a, &["name"])));
    let mut out = Vec::new();
    let shared: OnceLock<Arc<Value>> = OnceLock::new();
    for version in served {
        let name = object::text(version, &["name"]);
        if let Some(before) = old.find(group, name, plural)
            && let Some(custom) = &before.custom
            && custom.crd.get("spec") == crd.get("spec")
            && object::at(&custom.crd, &["status", "acceptedNames"]) == Some(&names)
        {
            out.push(before.clone());
            continue;
        }
        let crd = shared.get_or_init(|| Arc::new(crd.clone())).clone();
        out.push(Arc::new(resource(&crd, version, &names, group, storage)));
    }
    out
}

/// Whether a schema sets a default anywhere.
fn has_defaults(schema: Option<&Value>) -> bool {
    match schema {
        Some(Value::Object(map)) => map.iter().any(|(name, inner)| name == "default" || has_defaults(Some(inner))),
        Some(Value::Array(list)) => list.iter().any(|inner| has_defaults(Some(inner))),
        _ => false,
    }
}

/// The printer columns of a version of a definition.
pub(crate) fn columns(version: &Value) -> Vec<Column> {
    let column = |c: &Value| Column {
        name: object::text(c, &["name"]).to_owned(),
        kind: object::text(c, &["type"]).to_owned(),
        format: object::text(c, &["format"]).to_owned(),
        description: object::text(c, &["description"]).to_owned(),
        priority: c.get("priority").and_then(Value::as_i64).unwrap_or(0),
        path: object::text(c, &["jsonPath"]).to_owned(),
    };
    version.get("additionalPrinterColumns").and_then(Value::as_array).into_iter().flatten().map(column).collect()
}

fn resource(crd: &Arc<Value>, version: &Value, names: &Value, group: &str, storage: &str) -> Resource {
    let owned = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<String>>();
    let name = object::text(version, &["name"]);
    let kind = object::text(names, &["kind"]);
    let mut subresources = Vec::new();
    let mut scale = None;
    if let Some(subs) = version.get("subresources") {
        if subs.get("status").is_some_and(|s| !s.is_null()) {
            subresources.push(Subresource {
                name: "status".into(),
                gvk: (group.into(), name.into(), kind.into()),
                verbs: owned(&["get", "patch", "update"]),
            });
        }
        if let Some(paths) = subs.get("scale").filter(|s| !s.is_null()) {
            subresources.push(Subresource {
                name: "scale".into(),
                gvk: ("autoscaling".into(), "v1".into(), "Scale".into()),
                verbs: owned(&["get", "patch", "update"]),
            });
            scale = Some(ScalePaths {
                spec: object::text(paths, &["specReplicasPath"]).to_owned(),
                status: object::text(paths, &["statusReplicasPath"]).to_owned(),
                selector: Some(object::text(paths, &["labelSelectorPath"]).to_owned()).filter(|s| !s.is_empty()),
            });
        }
    }
    let deprecation = (version.get("deprecated") == Some(&json!(true))).then(|| match object::text(version, &["deprecationWarning"]) {
        "" => format!("{group}/{name} {kind} is deprecated"),
        text => text.to_owned(),
    });
    let selectable = version.get("selectableFields").and_then(Value::as_array).into_iter().flatten();
    let custom = Custom {
        definition: object::name(crd).to_owned(),
        columns: columns(version),
        selectable: selectable.map(|f| object::text(f, &["jsonPath"]).trim_start_matches('.').to_owned()).collect(),
        scale,
        deprecation,
        schema: object::at(version, &["schema", "openAPIV3Schema"]).cloned(),
        crd: crd.clone(),
        defaults_since: if has_defaults(object::at(version, &["schema", "openAPIV3Schema"])) { object::revision_of(crd).parse().unwrap_or(0) } else { 0 },
        many: versions(crd).len() > 1,
        webhook: crate::conversion::Webhook::read(crd),
        stored: OnceLock::new(),
        digest: OnceLock::new(),
    };
    let plural = object::text(names, &["plural"]);
    let list_kind = match object::text(names, &["listKind"]) {
        "" => format!("{kind}List"),
        kind => kind.to_owned(),
    };
    let singular = match object::text(names, &["singular"]) {
        "" => kind.to_lowercase(),
        singular => singular.to_owned(),
    };
    Resource {
        group: group.into(),
        version: name.into(),
        kind: kind.into(),
        list_kind,
        plural: plural.into(),
        singular,
        short_names: strings(names.get("shortNames")),
        categories: strings(names.get("categories")),
        namespaced: object::text(crd, &["spec", "scope"]) == "Namespaced",
        verbs: owned(&["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]),
        subresources,
        table: Arc::from(format!("{group}/{plural}")),
        storage_version: format!("{group}/{storage}"),
        native: None,
        schema: crate::kinds::custom(crd, name),
        custom: Some(Arc::new(custom)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_kubernetes_orders_them() {
        let mut all = ["v1alpha1", "foo10", "v2", "v11beta2", "v10", "v3beta1", "v1", "v12alpha1", "foo1", "v10beta3", "v11alpha2"];
        all.sort_by(|a, b| version_order(b, a));
        assert_eq!(all, ["v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "v11alpha2", "v1alpha1", "foo1", "foo10"]);
    }
}
