//! Which resources are shadowed: the parent's own, found by discovery and read again when its CRDs change.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::Dynamic;
use parking_lot::RwLock;
use serde_json::{json, Value};
use tokio::time::{Duration, Instant};

/// A resource of the parent as the shadow API serves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shadowed {
    /// Group, empty for core.
    pub group: String,
    /// Version that stored templates have.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Kind of lists.
    pub list_kind: String,
    /// Plural.
    pub plural: String,
    /// Singular.
    pub singular: String,
    /// Short names.
    pub short_names: Vec<String>,
    /// Lives in a namespace.
    pub namespaced: bool,
    /// Verbs of the original resource.
    pub verbs: Vec<String>,
    /// Has a scale subresource.
    pub scale: bool,
    /// Has a status subresource.
    pub status: bool,
    /// Defined by a CRD, so that patches of it are plain merges.
    pub custom: bool,
    /// The version of its definition, of a custom kind.
    pub definition: Option<Arc<Value>>,
    /// Subresources of a built-in kind as discovery tells them.
    pub subresources: Vec<Value>,
}

impl Shadowed {
    /// `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        api::object::join_api_version(&self.group, &self.version)
    }

    /// The path of its collection in the parent.
    pub fn parent_collection(&self, namespace: &str) -> String {
        let resource = cluster::Resource {
            group: self.group.clone(),
            version: self.version.clone(),
            kind: self.kind.clone(),
            plural: self.plural.clone(),
            namespaced: self.namespaced,
        };
        resource.collection(namespace)
    }
}

/// The set. Cloning shares it.
#[derive(Clone)]
pub struct Resources {
    inner: Arc<Inner>,
}

struct Inner {
    parent: Dynamic,
    known: RwLock<Known>,
    reading: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Known {
    by_plural: BTreeMap<String, Arc<Shadowed>>,
    discovery: Arc<Vec<Value>>,
    read_at: Option<Instant>,
}

/// A miss does not read discovery again within this time.
const FRESH: Duration = Duration::from_millis(300);
/// Groups never shadowed: Clusternet's own, ours, and groups that only compute.
const SKIPPED: [&str; 5] = ["shadow", "metrics.k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io", "gitops.anabranch.io"];

type ReadError = Arc<dyn std::error::Error + Send + Sync>;

impl Resources {
    pub(crate) fn new(parent: Dynamic) -> Resources {
        Resources { inner: Arc::new(Inner { parent, known: RwLock::default(), reading: tokio::sync::Mutex::new(()) }) }
    }

    /// The resource behind a plural; reads discovery on a miss, so that a new CRD is there at once.
    pub async fn find(&self, plural: &str) -> Result<Option<Arc<Shadowed>>, ReadError> {
        if let Some(found) = self.inner.known.read().by_plural.get(plural) {
            return Ok(Some(found.clone()));
        }
        self.read(FRESH).await?;
        Ok(self.inner.known.read().by_plural.get(plural).cloned())
    }

    /// `APIResource` documents, in the order of the original: natives by group, then custom ones.
    pub async fn discovery(&self) -> Result<Arc<Vec<Value>>, ReadError> {
        self.read(Duration::from_secs(5)).await?;
        Ok(self.inner.known.read().discovery.clone())
    }

    /// What was last read, for synchronous callers.
    pub fn snapshot(&self) -> Arc<Vec<Value>> {
        self.inner.known.read().discovery.clone()
    }

    /// Forgets what was read: call when a CRD came, changed or went.
    pub fn expire(&self) {
        self.inner.known.write().read_at = None;
    }

    async fn read(&self, fresh: Duration) -> Result<(), ReadError> {
        let current = || self.inner.known.read().read_at.is_some_and(|at| at.elapsed() < fresh);
        if current() {
            return Ok(());
        }
        let _one = self.inner.reading.lock().await;
        if current() {
            return Ok(());
        }
        let get = |path: String| async move {
            self.inner.parent.call("GET", &path, None, None).await.map_err(|error| Arc::new(error) as ReadError)
        };
        let crds = get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions".to_owned()).await?;
        let custom: BTreeMap<(&str, &str), &Value> = list(&crds, "items")
            .filter_map(|crd| Some(((crd.pointer("/spec/group")?.as_str()?, crd.pointer("/spec/names/plural")?.as_str()?), crd)))
            .collect();
        let core = ("".to_owned(), vec!["v1".to_owned()], "v1".to_owned());
        let groups = get("/apis".to_owned()).await?;
        let mut all = vec![core];
        for group in list(&groups, "groups") {
            let name = group["name"].as_str().unwrap_or_default().to_owned();
            let versions: Vec<String> =
                list(group, "versions").filter_map(|version| version["version"].as_str().map(str::to_owned)).collect();
            let preferred = group.pointer("/preferredVersion/version").and_then(Value::as_str).unwrap_or_default().to_owned();
            all.push((name, versions, preferred));
        }
        let mut known = Known { read_at: Some(Instant::now()), ..Known::default() };
        let (mut natives, mut customs) = (Vec::new(), Vec::new());
        for (group, versions, preferred) in all {
            if SKIPPED.contains(&group.as_str()) || group.ends_with(".clusternet.io") {
                continue;
            }
            let mut seen: BTreeMap<String, ()> = BTreeMap::new();
            let order = std::iter::once(&preferred).chain(versions.iter().filter(|version| **version != preferred));
            for version in order {
                let path = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
                // One group that does not answer must not hide the others.
                let Ok(document) = get(path).await else { continue };
                let here: Vec<&Value> = list(&document, "resources").collect();
                for resource in here.iter().filter(|r| !r["name"].as_str().unwrap_or("/").contains('/')) {
                    let shadowed = shadowed(&group, version, resource, &here, &custom);
                    if group == "apiregistration.k8s.io" || seen.insert(shadowed.plural.clone(), ()).is_some() {
                        continue;
                    }
                    if shadowed.custom { customs.push(shadowed) } else { natives.push(shadowed) }
                }
            }
        }
        let mut discovery = Vec::new();
        // A built-in kind keeps its plural; among groups the first of discovery's order, which goes by priority.
        for shadowed in natives.into_iter().chain(customs) {
            if known.by_plural.contains_key(&shadowed.plural) {
                continue;
            }
            discovery.extend(documents(&shadowed));
            known.by_plural.insert(shadowed.plural.clone(), Arc::new(shadowed));
        }
        known.discovery = Arc::new(discovery);
        *self.inner.known.write() = known;
        Ok(())
    }
}

fn list<'a>(document: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    document.get(field).and_then(Value::as_array).into_iter().flatten()
}

fn shadowed(group: &str, version: &str, resource: &Value, all: &[&Value], custom: &BTreeMap<(&str, &str), &Value>) -> Shadowed {
    let text = |field: &str| resource.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let texts = |field: &str| list(resource, field).filter_map(|v| v.as_str().map(str::to_owned)).collect::<Vec<_>>();
    let (plural, kind) = (text("name"), text("kind"));
    let has = |sub: &str| all.iter().any(|r| r["name"].as_str() == Some(&format!("{plural}/{sub}")));
    let singular = text("singularName");
    let crd = custom.get(&(group, plural.as_str()));
    let definition = crd.and_then(|crd| crd.pointer("/spec/versions")).and_then(Value::as_array).into_iter().flatten();
    let subresources = all.iter().filter(|r| crd.is_none() && r["name"].as_str().and_then(|name| name.split_once('/')).is_some_and(|(of, _)| of == plural));
    Shadowed {
        custom: crd.is_some(),
        definition: definition.into_iter().find(|one| one["name"] == version).map(|one| Arc::new(one.clone())),
        subresources: subresources.map(|r| (*r).clone()).collect(),
        scale: has("scale"),
        status: has("status"),
        singular: if singular.is_empty() { kind.to_lowercase() } else { singular },
        list_kind: format!("{kind}List"),
        short_names: texts("shortNames"),
        verbs: texts("verbs"),
        namespaced: resource["namespaced"].as_bool().unwrap_or_default(),
        group: group.to_owned(),
        version: version.to_owned(),
        kind,
        plural,
    }
}

fn documents(shadowed: &Shadowed) -> Vec<Value> {
    let mut main = json!({
        "name": shadowed.plural, "singularName": shadowed.singular, "namespaced": shadowed.namespaced,
        "version": shadowed.version, "kind": shadowed.kind, "verbs": shadowed.verbs, "categories": ["clusternet.shadow"],
    });
    if !shadowed.group.is_empty() {
        main["group"] = json!(shadowed.group);
    }
    if !shadowed.short_names.is_empty() {
        main["shortNames"] = json!(shadowed.short_names);
    }
    let subresources = shadowed.subresources.iter().map(|sub| {
        let mut entry = main.clone();
        for field in ["name", "kind", "namespaced", "verbs"] {
            entry[field] = sub[field].clone();
        }
        if let Some(entry) = entry.as_object_mut() {
            entry.remove("shortNames");
        }
        entry
    });
    let subresources: Vec<Value> = subresources.collect();
    std::iter::once(main).chain(subresources).collect()
}
