//! Who sends a request: what the parent's API server says of it, as Kubernetes' own extension servers read it.
//!
//! The parent publishes in ConfigMap `kube-system/extension-apiserver-authentication` which authority signs its front proxy,
//! which names it may have and in which headers it puts the caller. Client certificates of the parent and bearer tokens are
//! taken as well, for whoever reaches the port without the aggregator.

use std::sync::Arc;

use apiserver::auth::authenticate::{Authenticator, Options};
use apiserver::auth::{Identity, Objects};
use apiserver::status::ApiError;
use cluster::Target;
use engine::{Cache, Tasks};
use http::{HeaderMap, HeaderName};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use parking_lot::RwLock;
use rustls::pki_types::CertificateDer;
use serde_json::Value;

use super::Certificates;
use super::review::Review;

const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";

/// No objects: tokens are reviewed by the parent.
pub(super) struct Nothing;

impl Objects for Nothing {
    fn get(&self, _: &str, _: &str, _: &str, _: &str) -> Option<Arc<Value>> {
        None
    }

    fn list(&self, _: &str, _: &str, _: Option<&str>) -> Vec<Arc<Value>> {
        Vec::new()
    }
}

/// What the ConfigMap says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Published {
    client_ca: Vec<u8>,
    front_ca: Vec<u8>,
    names: Vec<String>,
    users: Vec<String>,
    uids: Vec<String>,
    groups: Vec<String>,
    extras: Vec<String>,
}

impl Published {
    fn of(map: &ConfigMap) -> Self {
        let text = |key: &str| map.data.as_ref().and_then(|data| data.get(key)).cloned().unwrap_or_default();
        // Lists are JSON; what cannot be read names nothing.
        let list = |key: &str| serde_json::from_str::<Vec<String>>(&text(key)).unwrap_or_default();
        Self {
            client_ca: text("client-ca-file").into_bytes(),
            front_ca: text("requestheader-client-ca-file").into_bytes(),
            names: list("requestheader-allowed-names"),
            users: list("requestheader-username-headers"),
            uids: list("requestheader-uid-headers"),
            groups: list("requestheader-group-headers"),
            extras: list("requestheader-extra-headers-prefix"),
        }
    }
}

struct Current {
    published: Published,
    authenticator: Authenticator,
}

impl Current {
    fn of(published: Published) -> Self {
        let certificates = |pem: &[u8]| cluster::client::pem_certificates(pem).into_iter().map(CertificateDer::from).collect();
        let options = Options {
            client_ca: certificates(&published.client_ca),
            front_proxy_ca: certificates(&published.front_ca),
            front_proxy_names: published.names.clone(),
            ..Options::default()
        };
        Self { authenticator: Authenticator::new(options, Arc::new(Nothing)), published }
    }
}

/// Follows what the parent publishes. Cloning shares it.
#[derive(Clone)]
pub(crate) struct Front {
    current: Arc<RwLock<Arc<Current>>>,
    known: Cache<ConfigMap>,
}

impl Front {
    /// Begins to follow.
    pub(crate) fn start(client: &Client, tasks: &Tasks) -> Self {
        let current = Arc::new(RwLock::new(Arc::new(Current::of(Published::default()))));
        let known: Cache<ConfigMap> = Cache::new();
        let shared = current.clone();
        known.on_change(move |change| {
            // A map that is gone is believed only when another one takes its place.
            if let Some(map) = change.new {
                *shared.write() = Arc::new(Current::of(Published::of(map)));
                tracing::debug!("the parent's request-header authority changed");
            }
        });
        let target = Target::of::<ConfigMap>(NAMESPACE).fields(format!("metadata.name={NAME}"));
        known.follow("extension-apiserver-authentication", client.clone(), target, tasks);
        Self { current, known }
    }

    /// Waits until the authorities are known: before that everybody is a stranger.
    pub(crate) async fn known(&self, stop: &engine::CancellationToken) {
        tokio::select! {
            () = self.known.synced() => {}
            () = stop.cancelled() => {}
        }
    }

    /// The caller.
    pub(crate) async fn authenticate(&self, headers: &HeaderMap, peer: Certificates<'_>, review: &Review) -> Result<Identity, ApiError> {
        let current = self.current.read().clone();
        let told = standard(headers, &current.published);
        match current.authenticator.authenticate(&told, peer, jiff_now()) {
            Ok(who) => Ok(who),
            Err(error) => {
                let Some(token) = apiserver::auth::authenticate::bearer(headers) else {
                    tracing::debug!(%error, "refuse a request");
                    return Err(ApiError::unauthorized());
                };
                review.token(&token).await
            }
        }
    }
}

fn jiff_now() -> k8s_openapi::jiff::Timestamp {
    k8s_openapi::jiff::Timestamp::now()
}

/// The headers that speak of the caller, under the names that the authenticator reads; all others stay out, a client's own
/// `X-Remote-*` among them when the parent uses other names.
fn standard(headers: &HeaderMap, published: &Published) -> HeaderMap {
    let mut out = HeaderMap::new();
    let mut copy = |names: &[String], to: &'static str, all: bool| {
        let found = names.iter().filter_map(|name| HeaderName::try_from(name.as_str()).ok()).find(|name| headers.contains_key(name));
        for value in found.iter().flat_map(|name| headers.get_all(name)).take(if all { usize::MAX } else { 1 }) {
            out.append(HeaderName::from_static(to), value.clone());
        }
    };
    copy(&published.users, "x-remote-user", false);
    copy(&published.uids, "x-remote-uid", false);
    copy(&published.groups, "x-remote-group", true);
    for prefix in &published.extras {
        let prefix = prefix.to_ascii_lowercase();
        for (name, value) in headers {
            let key = name.as_str().strip_prefix(&prefix).filter(|key| !key.is_empty());
            if let Some(name) = key.and_then(|key| HeaderName::try_from(format!("x-remote-extra-{key}")).ok()) {
                out.append(name, value.clone());
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut out = HeaderMap::new();
        for (name, value) in pairs {
            out.append(HeaderName::try_from(*name).expect("a name"), value.parse().expect("a value"));
        }
        out
    }

    #[test]
    fn only_the_headers_that_the_parent_names_are_believed() {
        let published = Published {
            users: vec!["X-Caller".into()],
            groups: vec!["X-Team".into()],
            extras: vec!["X-More-".into()],
            ..Published::default()
        };
        let told = standard(
            &map(&[("x-caller", "ann"), ("x-remote-user", "root"), ("x-remote-group", "system:masters"), ("x-team", "a"), ("x-team", "b"), ("x-more-scopes", "s")]),
            &published,
        );
        let expect = map(&[("x-remote-user", "ann"), ("x-remote-group", "a"), ("x-remote-group", "b"), ("x-remote-extra-scopes", "s")]);
        assert_eq!(told, expect);
    }

    #[test]
    fn headers_without_a_front_proxy_are_nobody() {
        let published = Published { users: vec!["X-Remote-User".into()], ..Published::default() };
        let current = Current::of(published.clone());
        let told = standard(&map(&[("x-remote-user", "root")]), &published);
        assert!(current.authenticator.authenticate(&told, &[], jiff_now()).is_err());
    }
}
