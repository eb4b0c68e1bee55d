//! Which resources a server has: cached, read again on a miss, tolerant of groups that do not answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use parking_lot::RwLock;
use serde::Deserialize;
use tokio::time::Instant;

use crate::resource::{Resource, built_in, split_api_version};

/// All resources of a server, by apiVersion and kind.
#[derive(Debug, Default)]
pub struct Catalogue {
    by_kind: BTreeMap<(String, String), Resource>,
    /// Group versions whose server did not answer: a miss in one of them is not an absence.
    stale: Vec<String>,
}

impl Catalogue {
    /// Every resource, in order of apiVersion and kind.
    pub fn resources(&self) -> impl Iterator<Item = &Resource> {
        self.by_kind.values()
    }

    /// Group versions that did not answer when the catalogue was read.
    pub fn stale(&self) -> &[String] {
        &self.stale
    }
}

/// Why a kind could not be resolved.
#[derive(Debug, thiserror::Error)]
pub enum Unresolved {
    /// The server does not have it.
    #[error("no matches for kind \"{kind}\" in version \"{api_version}\"")]
    NoSuchKind {
        /// apiVersion asked for.
        api_version: String,
        /// Kind asked for.
        kind: String,
    },
    /// The group's own server does not answer, so nobody knows.
    #[error("the server behind {api_version} does not answer, so kind {kind} cannot be looked up")]
    GroupDown {
        /// apiVersion asked for.
        api_version: String,
        /// Kind asked for.
        kind: String,
    },
    /// Discovery failed altogether.
    #[error("read the discovery documents")]
    Discovery(#[source] Arc<kube::Error>),
}

struct State {
    catalogue: Arc<Catalogue>,
    read_at: Option<Instant>,
}

/// A server's resources, shared and cached.
pub struct Discovery {
    client: Client,
    state: RwLock<State>,
    reading: tokio::sync::Mutex<()>,
}

/// A miss does not read again when the last read is younger than this, so that a kind which does not exist costs
/// at most a few requests per second.
const FRESH: Duration = Duration::from_millis(400);

impl Discovery {
    /// Nothing is read until the first miss.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            state: RwLock::new(State { catalogue: Arc::default(), read_at: None }),
            reading: tokio::sync::Mutex::new(()),
        }
    }

    /// The client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// What is known without asking.
    pub fn known(&self, api_version: &str, kind: &str) -> Option<Resource> {
        built_in(api_version, kind).or_else(|| {
            let state = self.state.read();
            state.catalogue.by_kind.get(&(api_version.to_owned(), kind.to_owned())).cloned()
        })
    }

    /// Resolves a kind; reads discovery when it is not known yet.
    pub async fn resolve(&self, api_version: &str, kind: &str) -> Result<Resource, Unresolved> {
        if let Some(found) = self.known(api_version, kind) {
            return Ok(found);
        }
        let asked_at = Instant::now();
        let _one = self.reading.lock().await;
        if let Some(found) = self.known(api_version, kind) {
            return Ok(found);
        }
        let fresh = self.state.read().read_at.is_some_and(|at| at > asked_at || at.elapsed() < FRESH);
        if !fresh {
            self.read().await?;
        }
        self.known(api_version, kind).ok_or_else(|| {
            let (api_version, kind) = (api_version.to_owned(), kind.to_owned());
            if self.state.read().catalogue.stale.contains(&api_version) {
                Unresolved::GroupDown { api_version, kind }
            } else {
                Unresolved::NoSuchKind { api_version, kind }
            }
        })
    }

    /// The whole catalogue, read now if it never was.
    pub async fn catalogue(&self) -> Result<Arc<Catalogue>, Unresolved> {
        let _one = self.reading.lock().await;
        if self.state.read().read_at.is_none() {
            self.read().await?;
        }
        Ok(self.state.read().catalogue.clone())
    }

    /// Forgets when the catalogue was read: the next miss reads again at once. Call after a CRD was established.
    pub fn expire(&self) {
        self.state.write().read_at = None;
    }

    async fn read(&self) -> Result<(), Unresolved> {
        let (core, groups) = futures::join!(self.document("/api"), self.document("/apis"));
        let mut catalogue = Catalogue::default();
        let mut failure = None;
        for document in [core, groups] {
            match document {
                Ok(document) => self.take_in(&mut catalogue, document).await,
                Err(e) => failure = Some(e),
            }
        }
        if let Some(error) = failure
            && catalogue.by_kind.is_empty()
        {
            return Err(Unresolved::Discovery(Arc::new(error)));
        }
        *self.state.write() = State { catalogue: Arc::new(catalogue), read_at: Some(Instant::now()) };
        Ok(())
    }

    async fn document(&self, path: &str) -> Result<Document, kube::Error> {
        let request = http::Request::get(path)
            .header(
                http::header::ACCEPT,
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json",
            )
            .body(Vec::new())
            .map_err(kube::Error::HttpError)?;
        self.client.request(request).await
    }

    async fn take_in(&self, catalogue: &mut Catalogue, document: Document) {
        for group in document.items {
            for version in group.versions {
                let api_version = join(&group.metadata.name, &version.version);
                if version.freshness.as_deref() == Some("Stale") {
                    catalogue.stale.push(api_version.clone());
                }
                for resource in version.resources {
                    let Some(kind) = resource.response_kind else { continue };
                    let found = Resource {
                        group: group.metadata.name.clone(),
                        version: version.version.clone(),
                        kind: kind.kind.clone(),
                        plural: resource.resource,
                        namespaced: resource.scope == "Namespaced",
                    };
                    catalogue.by_kind.entry((api_version.clone(), kind.kind)).or_insert(found);
                }
            }
        }
        // Servers without aggregated discovery: one document per group version.
        let legacy = document
            .groups
            .into_iter()
            .flat_map(|g| g.versions.into_iter().map(|v| v.group_version))
            .chain(document.versions);
        for api_version in legacy {
            let prefix = if api_version.contains('/') { "/apis/" } else { "/api/" };
            let request = http::Request::get(format!("{prefix}{api_version}")).body(Vec::new()).map_err(kube::Error::HttpError);
            let answer = match request {
                Ok(request) => self.client.request::<LegacyResources>(request).await,
                Err(e) => Err(e),
            };
            let Ok(answer) = answer else {
                catalogue.stale.push(api_version);
                continue;
            };
            let (group, version) = split_api_version(&api_version);
            for resource in answer.resources.into_iter().filter(|r| !r.name.contains('/')) {
                let found = Resource {
                    group: group.to_owned(),
                    version: version.to_owned(),
                    kind: resource.kind.clone(),
                    plural: resource.name,
                    namespaced: resource.namespaced,
                };
                catalogue.by_kind.entry((api_version.clone(), resource.kind)).or_insert(found);
            }
        }
    }
}

fn join(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// `/api` or `/apis`, aggregated or not.
#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    items: Vec<Group>,
    #[serde(default)]
    groups: Vec<LegacyGroup>,
    #[serde(default)]
    versions: Vec<String>,
}

#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    metadata: Name,
    #[serde(default)]
    versions: Vec<Version>,
}

#[derive(Deserialize, Default)]
struct Name {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct Version {
    version: String,
    #[serde(default)]
    resources: Vec<Served>,
    #[serde(default)]
    freshness: Option<String>,
}

#[derive(Deserialize)]
struct Served {
    resource: String,
    #[serde(rename = "responseKind")]
    response_kind: Option<Kind>,
    #[serde(default)]
    scope: String,
}

#[derive(Deserialize)]
struct Kind {
    #[serde(default)]
    kind: String,
}

#[derive(Deserialize)]
struct LegacyGroup {
    #[serde(default)]
    versions: Vec<LegacyVersion>,
}

#[derive(Deserialize)]
struct LegacyVersion {
    #[serde(rename = "groupVersion")]
    group_version: String,
}

#[derive(Deserialize)]
struct LegacyResources {
    #[serde(default)]
    resources: Vec<LegacyResource>,
}

#[derive(Deserialize)]
struct LegacyResource {
    name: String,
    kind: String,
    #[serde(default)]
    namespaced: bool,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::*;

    /// A server that has these documents, and answers 503 where there is a null.
    fn server(documents: &[(&str, Value)]) -> Discovery {
        let documents: BTreeMap<String, Value> = documents.iter().map(|(path, document)| ((*path).to_owned(), document.clone())).collect();
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let (code, body) = match documents.get(request.uri().path()) {
                Some(Value::Null) => (503, json!({"kind": "Status", "status": "Failure", "code": 503, "reason": "ServiceUnavailable", "message": "no"})),
                Some(document) => (200, document.clone()),
                None => (404, json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "no"})),
            };
            async move { http::Response::builder().status(code).body(http_body_util::Full::new(bytes::Bytes::from(body.to_string()))) }
        });
        Discovery::new(crate::in_process(service))
    }

    fn aggregated(version: &str, more: &Value) -> Vec<(&'static str, Value)> {
        let widgets = json!({"resource": "widgets", "scope": "Namespaced", "responseKind": {"group": "example.org", "version": "v1", "kind": "Widget"}, "verbs": ["get"], "singularResource": "widget",
            "subresources": [{"subresource": "status", "responseKind": {"group": "example.org", "version": "v1", "kind": "Widget"}, "verbs": ["get"]}]});
        let mut groups = vec![json!({"metadata": {"name": "example.org", "creationTimestamp": null}, "versions": [{"version": "v1", "resources": [widgets], "freshness": "Current"}]})];
        groups.push(json!({"metadata": {"name": "metrics.example.org"}, "versions": [{"version": "v1", "freshness": "Stale"}]}));
        groups.extend(more.as_array().cloned().unwrap_or_default());
        let list = |items: Value| json!({"kind": "APIGroupDiscoveryList", "apiVersion": format!("apidiscovery.k8s.io/{version}"), "metadata": {}, "items": items});
        vec![("/api", list(json!([]))), ("/apis", list(json!(groups)))]
    }

    /// What every age of server must yield: its custom kind, no newer built-in kind, and doubt about a group whose server is down.
    async fn is_understood(discovery: &Discovery) {
        let widget = discovery.resolve("example.org/v1", "Widget").await.expect("the custom kind");
        assert_eq!((widget.plural.as_str(), widget.namespaced), ("widgets", true));
        let absent = discovery.resolve("resource.k8s.io/v1", "ResourceClaim").await;
        assert!(matches!(absent, Err(Unresolved::NoSuchKind { .. })), "{absent:?}");
        let doubt = discovery.resolve("metrics.example.org/v1", "Reading").await;
        assert!(matches!(doubt, Err(Unresolved::GroupDown { .. })), "{doubt:?}");
    }

    #[tokio::test]
    async fn servers_of_every_age_are_understood() {
        // 1.30 and newer; what a still newer one may add is passed over.
        let newer = json!([{"metadata": {"name": "later.example.org"}, "mood": "new", "versions": [{"version": "v9", "colour": 3, "resources": [
            {"resource": "nothings"}, {"resource": "flocks", "scope": "Galaxy", "responseKind": {"kind": "Flock", "tone": 1}}]}]}]);
        let discovery = server(&aggregated("v2", &newer));
        is_understood(&discovery).await;
        assert!(!discovery.resolve("later.example.org/v9", "Flock").await.expect("a kind of unknown scope").namespaced);
        // 1.27 to 1.29.
        is_understood(&server(&aggregated("v2beta1", &json!([])))).await;
        // Older, and servers behind a proxy that drops the header.
        let group = |name: &str| json!({"name": name, "versions": [{"groupVersion": format!("{name}/v1"), "version": "v1"}], "preferredVersion": {"groupVersion": format!("{name}/v1"), "version": "v1"}});
        is_understood(&server(&[
            ("/api", json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})),
            ("/api/v1", json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": []})),
            ("/apis", json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [group("example.org"), group("metrics.example.org")]})),
            ("/apis/example.org/v1", json!({"kind": "APIResourceList", "groupVersion": "example.org/v1", "resources": [
                {"name": "widgets", "singularName": "", "namespaced": true, "kind": "Widget", "verbs": ["get"]}, {"name": "widgets/status", "namespaced": true, "kind": "Widget", "verbs": ["get"]}]})),
            ("/apis/metrics.example.org/v1", Value::Null),
        ]))
        .await;
    }

    #[test]
    fn objects_of_other_versions_are_read() {
        let newer = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "later": {"x": 1}}, "spec": {"selector": {}, "template": {"spec": {"containers": [{"name": "c", "aura": "blue"}], "tides": []}}, "pace": "slow"}});
        let read: k8s_openapi::api::apps::v1::Deployment = serde_json::from_value(newer).expect("unknown fields are passed over");
        assert_eq!(read.metadata.name.as_deref(), Some("a"));
        let cluster = json!({"apiVersion": "clusters.clusternet.io/v1beta1", "kind": "ManagedCluster", "metadata": {"name": "a"}, "spec": {"clusterId": "x", "syncMode": "Pull", "later": true}, "status": {"later": [1]}});
        let read: api::clusters::ManagedCluster = serde_json::from_value(cluster).expect("unknown fields are passed over");
        assert_eq!(read.spec.cluster_id, "x");
    }
}
