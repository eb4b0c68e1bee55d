//! What is served: the built-in resources and those that CustomResourceDefinitions add, found by path.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use schema::catalog;
use serde_json::Value;

use crate::crd::Custom;
use crate::kinds::Kind;

/// A subresource as discovery shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subresource {
    /// `status`, `scale`, …
    pub name: String,
    /// Group, version, kind of the body.
    pub gvk: (String, String, String),
    /// Verbs.
    pub verbs: Vec<String>,
}

/// One resource in one version.
#[derive(Debug)]
pub struct Resource {
    /// Group, empty for core.
    pub group: String,
    /// Version of this route.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Kind of lists.
    pub list_kind: String,
    /// Plural name.
    pub plural: String,
    /// Singular name.
    pub singular: String,
    /// Short names.
    pub short_names: Vec<String>,
    /// Categories.
    pub categories: Vec<String>,
    /// Lives in a namespace.
    pub namespaced: bool,
    /// Verbs.
    pub verbs: Vec<String>,
    /// Subresources.
    pub subresources: Vec<Subresource>,
    /// Table in the store.
    pub table: Arc<str>,
    /// `apiVersion` of stored objects.
    pub storage_version: String,
    /// For built-in resources: the entry of the catalogue.
    pub native: Option<&'static catalog::Resource>,
    /// For custom resources: their definition.
    pub custom: Option<Arc<Custom>>,
    /// Schema, made when first needed; none for resources without one.
    pub(crate) schema: OnceLock<Option<Kind>>,
}

impl Resource {
    /// `v1` or `apps/v1`.
    #[must_use]
    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    /// What is known of the kind's fields.
    #[must_use]
    pub(crate) fn schema(&self) -> Option<&Kind> {
        self.schema.get_or_init(|| self.native.and_then(Kind::native)).as_ref()
    }

    /// Whether it has a subresource.
    #[must_use]
    pub fn has(&self, subresource: &str) -> bool {
        self.subresources.iter().any(|s| s.name == subresource)
    }

    /// Whether a verb is served on the resource itself.
    #[must_use]
    pub fn allows(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| v == verb)
    }

    /// `plural.group`, as messages say it.
    #[must_use]
    pub fn qualified(&self) -> String {
        crate::status::qualified(&self.group, &self.plural)
    }

    /// Whether this route shows objects as they are stored.
    #[must_use]
    pub fn as_stored(&self) -> bool {
        self.storage_version == self.api_version()
    }

    /// Whether an object is shown byte for byte as it is stored.
    #[must_use]
    pub fn shows(&self, entry: &store::Entry) -> bool {
        let own = |c: &Custom| entry.revision > c.defaults_since && (!c.many || crate::object::without_kind(&entry.value, &self.kind, &self.storage_version).is_some());
        self.as_stored() && self.custom.as_ref().is_none_or(|c| own(c))
    }

    /// Whether a webhook is asked for objects in another version.
    #[must_use]
    pub fn converts(&self) -> bool {
        self.custom.as_ref().is_some_and(|c| c.webhook.is_some())
    }

    /// Whether it is this built-in (or any custom) resource.
    #[must_use]
    pub fn is(&self, group: &str, plural: &str) -> bool {
        self.group == group && self.plural == plural
    }

    /// Whether a field can be selected by.
    #[must_use]
    pub fn selectable(&self, path: &str) -> bool {
        matches!(path, "metadata.name" | "metadata.namespace")
            || self.native.is_some_and(|n| n.field_selectors.contains(&path))
            || self.custom.as_ref().is_some_and(|c| c.selectable.iter().any(|s| s == path))
    }
}

/// `v1` or `apps/v1`.
#[must_use]
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// Splits `v1` or `apps/v1`.
#[must_use]
pub fn split_api_version(text: &str) -> (&str, &str) {
    text.split_once('/').unwrap_or(("", text))
}

/// The built-in resources, made once for all servers of the process.
pub fn natives() -> &'static [Arc<Resource>] {
    static ALL: OnceLock<Vec<Arc<Resource>>> = OnceLock::new();
    ALL.get_or_init(|| catalog::resources().iter().map(|entry| Arc::new(native(entry))).collect())
}

/// The routes of a server without custom resources, shared by all servers of the process.
pub fn native_routes() -> Arc<Routes> {
    static ALL: OnceLock<Arc<Routes>> = OnceLock::new();
    ALL.get_or_init(|| Arc::new(Routes::new(&[], 0))).clone()
}

fn native(entry: &'static catalog::Resource) -> Resource {
    let owned = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<String>>();
    let (group, plural) = entry.storage();
    let storage_version = match (entry.group, entry.plural) {
        ("events.k8s.io", "events") => "v1".to_owned(),
        ("autoscaling", _) => "autoscaling/v2".to_owned(),
        (group, plural) => {
            // The first version in discovery order is the preferred one; it is what is stored.
            let first = catalog::resources().iter().find(|r| r.group == group && r.plural == plural);
            first.map_or_else(|| entry.api_version(), catalog::Resource::api_version)
        }
    };
    Resource {
        group: entry.group.into(),
        version: entry.version.into(),
        kind: entry.kind.into(),
        list_kind: entry.list_kind.clone(),
        plural: entry.plural.into(),
        singular: entry.singular.into(),
        short_names: owned(&entry.short_names),
        categories: owned(&entry.categories),
        namespaced: entry.namespaced,
        verbs: owned(&entry.verbs),
        subresources: entry
            .subresources
            .iter()
            .map(|s| Subresource { name: s.name.into(), gvk: (s.group.into(), s.version.into(), s.kind.into()), verbs: owned(&s.verbs) })
            .collect(),
        table: Arc::from(format!("{group}/{plural}")),
        storage_version,
        native: Some(entry),
        custom: None,
        schema: OnceLock::new(),
    }
}

/// A group of the API with its versions in order of preference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Name.
    pub name: String,
    /// Versions, the preferred one first.
    pub versions: Vec<String>,
}

/// All routes at one moment.
#[derive(Debug, Default)]
pub struct Routes {
    found: HashMap<String, Arc<Resource>>,
    /// In discovery order.
    pub all: Vec<Arc<Resource>>,
    /// In discovery order, core first.
    pub groups: Vec<Group>,
    /// Grows with every change.
    pub generation: u64,
}

fn path(group: &str, version: &str, plural: &str) -> String {
    format!("{group}/{version}/{plural}")
}

impl Routes {
    /// Routes of the built-in resources and the given custom ones.
    #[must_use]
    pub fn new(custom: &[Arc<Resource>], generation: u64) -> Self {
        let mut routes = Self { generation, ..Self::default() };
        for resource in natives().iter().chain(custom) {
            routes.found.insert(path(&resource.group, &resource.version, &resource.plural), resource.clone());
            routes.all.push(resource.clone());
            match routes.groups.iter_mut().find(|g| g.name == resource.group) {
                Some(group) if group.versions.contains(&resource.version) => {}
                Some(group) => group.versions.push(resource.version.clone()),
                None => routes.groups.push(Group { name: resource.group.clone(), versions: vec![resource.version.clone()] }),
            }
        }
        let natives: std::collections::BTreeSet<&str> = natives().iter().map(|r| r.group.as_str()).collect();
        for group in routes.groups.iter_mut().filter(|g| !natives.contains(g.name.as_str())) {
            group.versions.sort_by(|a, b| crate::crd::version_order(b, a));
        }
        // Built-in groups keep their order; groups of custom resources follow by name.
        let fixed = routes.groups.iter().take_while(|g| natives.contains(g.name.as_str())).count();
        routes.groups[fixed..].sort_by(|a, b| a.name.cmp(&b.name));
        routes
    }

    /// The resource at a path.
    #[must_use]
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.found.get(&path(group, version, plural))
    }

    /// The resource in its preferred version.
    #[must_use]
    pub fn preferred(&self, group: &str, plural: &str) -> Option<&Arc<Resource>> {
        let versions = &self.groups.iter().find(|g| g.name == group)?.versions;
        versions.iter().find_map(|v| self.find(group, v, plural))
    }

    /// The resource of a kind.
    #[must_use]
    pub fn by_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.all.iter().find(|r| r.group == group && r.version == version && r.kind == kind)
    }

    /// The resources of a group version, in order.
    pub fn of<'a>(&'a self, group: &'a str, version: &'a str) -> impl Iterator<Item = &'a Arc<Resource>> {
        self.all.iter().filter(move |r| r.group == group && r.version == version)
    }

    /// Storage tables of namespaced resources, each with one resource that can read it.
    #[must_use]
    pub fn namespaced_tables(&self) -> BTreeMap<Arc<str>, Arc<Resource>> {
        let stored = |r: &&Arc<Resource>| r.namespaced && r.native.is_none_or(catalog::Resource::stored);
        self.all.iter().filter(stored).map(|r| (r.table.clone(), r.clone())).collect()
    }
}

/// The kind and version an object claims to be.
#[must_use]
pub fn claimed(object: &Value) -> (&str, &str) {
    (object.get("apiVersion").and_then(Value::as_str).unwrap_or(""), object.get("kind").and_then(Value::as_str).unwrap_or(""))
}
