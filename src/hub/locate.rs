//! Which cluster and which target a socket URL names.

use api::clusters::ManagedCluster;
use engine::Cache;

/// Where the group is served.
pub const PREFIX: &str = "/apis/proxies.clusternet.io/v1alpha1";

/// What a path under [`PREFIX`] asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// The list of resources.
    Discovery,
    /// `sockets/<cluster>`: an agent dials in.
    Socket(String),
    /// `sockets/<cluster>/proxy/...`.
    Proxy {
        /// Cluster id or name.
        cluster: String,
        /// Where in the child's network.
        target: Wanted,
        /// Path for the target, beginning with `/`.
        path: String,
    },
    /// Nothing is served there.
    None,
}

/// The target that a proxy URL names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// The child's API server.
    Direct,
    /// Another endpoint in the child's network.
    Endpoint {
        /// `http` or `https`.
        scheme: String,
        /// `host[:port]`.
        authority: String,
    },
}

/// Reads a path; trailing slashes of a cluster's name mean nothing, as with the original.
pub fn route(path: &str) -> Route {
    let Some(rest) = path.strip_prefix(PREFIX) else { return Route::None };
    let rest = rest.trim_start_matches('/');
    if rest.is_empty() {
        return Route::Discovery;
    }
    let Some(rest) = rest.strip_prefix("sockets/") else { return Route::None };
    let (cluster, rest) = rest.split_once('/').unwrap_or((rest, ""));
    let rest = rest.trim_start_matches('/');
    if cluster.is_empty() {
        return Route::None;
    }
    let cluster = cluster.to_owned();
    if rest.is_empty() {
        return Route::Socket(cluster);
    }
    let Some(rest) = rest.strip_prefix("proxy").and_then(|rest| rest.strip_prefix('/')) else { return Route::None };
    let (scheme, rest) = rest.split_once('/').unwrap_or((rest, ""));
    match scheme {
        "direct" => Route::Proxy { cluster, target: Wanted::Direct, path: format!("/{rest}") },
        "http" | "https" => {
            let (authority, rest) = rest.split_once('/').unwrap_or((rest, ""));
            if authority.is_empty() {
                return Route::None;
            }
            let target = Wanted::Endpoint { scheme: scheme.to_owned(), authority: authority.to_owned() };
            Route::Proxy { cluster, target, path: format!("/{rest}") }
        }
        _ => Route::None,
    }
}

/// The index of a cache of clusters by id.
pub const BY_ID: &str = "cluster-id";
/// The index of a cache of clusters by name.
pub const BY_NAME: &str = "cluster-name";

/// A cache of ManagedClusters that [`find`] can search.
pub fn clusters() -> Cache<ManagedCluster> {
    Cache::builder()
        .index(BY_ID, |cluster: &ManagedCluster| vec![cluster.spec.cluster_id.clone()])
        .index(BY_NAME, |cluster: &ManagedCluster| cluster.metadata.name.clone().into_iter().collect())
        .build()
}

/// The cluster with this id, or else with this name; a name that several have finds none.
pub fn find(clusters: &Cache<ManagedCluster>, wanted: &str) -> Option<std::sync::Arc<ManagedCluster>> {
    if let Some(found) = clusters.by(BY_ID, wanted).into_iter().next() {
        return Some(found);
    }
    let mut named = clusters.by(BY_NAME, wanted);
    if named.len() == 1 { named.pop() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_their_target() {
        let check = |path: &str, expect: Route| assert_eq!(route(&format!("{PREFIX}{path}")), expect, "{path}");
        let proxy = |target, path: &str| Route::Proxy { cluster: "c1".into(), target, path: path.into() };
        let endpoint = |scheme: &str, authority: &str| Wanted::Endpoint { scheme: scheme.into(), authority: authority.into() };
        check("", Route::Discovery);
        check("/", Route::Discovery);
        check("/sockets/c1", Route::Socket("c1".into()));
        check("/sockets/c1//", Route::Socket("c1".into()));
        check("/sockets/", Route::None);
        check("/sockets/c1/proxy/direct", proxy(Wanted::Direct, "/"));
        check("/sockets/c1/proxy/direct/api/v1/pods", proxy(Wanted::Direct, "/api/v1/pods"));
        check("/sockets/c1/proxy/https/10.0.0.1:443/x/y", proxy(endpoint("https", "10.0.0.1:443"), "/x/y"));
        check("/sockets/c1/proxy/http/localhost:8080", proxy(endpoint("http", "localhost:8080"), "/"));
        check("/sockets/c1/proxy/ftp/x", Route::None);
        check("/sockets/c1/elsewhere", Route::None);
        check("/others", Route::None);
    }
}
