//! Group `proxies.clusternet.io/v1alpha1`: Socket, a connect-only resource behind which a child cluster is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// API group.
pub const GROUP: &str = "proxies.clusternet.io";
/// API version.
pub const VERSION: &str = "v1alpha1";
/// Plural; the sub-resource is `sockets/proxy`.
pub const PLURAL: &str = "sockets";
/// URL prefix of all sockets, with a slash at its end.
pub const SOCKETS_PREFIX: &str = "/apis/proxies.clusternet.io/v1alpha1/sockets/";

/// Options of a request to a Socket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Socket {
    /// Path is the part of the URL after the socket.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub path: String,
}

/// URL path under which a cluster's own API server answers.
pub fn direct_path(cluster_id: &str) -> String {
    format!("{SOCKETS_PREFIX}{cluster_id}/proxy/direct")
}

/// URL path to an HTTP endpoint (`host[:port]`) as seen from a cluster's agent.
pub fn http_path(cluster_id: &str, host: &str) -> String {
    format!("{SOCKETS_PREFIX}{cluster_id}/proxy/http/{host}")
}
