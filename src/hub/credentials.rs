//! With whose credential a request enters a child: the caller's own for that child, or the deployer's on the caller's behalf.

use apiserver::auth::Identity;
use api::clusters::ManagedCluster;
use base64::Engine as _;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use k8s_openapi::api::core::v1::Secret;

/// The Secret in a cluster's dedicated namespace by which the parent may act in the child.
pub(crate) const DEPLOYER_SECRET: &str = api::known::secret::CHILD_DEPLOYER;

/// A client certificate and its key, both PEM.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Certificate {
    pub(crate) chain: Vec<u8>,
    pub(crate) key: Vec<u8>,
}

/// Why no credential can be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CredentialError {
    /// A header of the caller is malformed.
    #[error("read the user extra {0}: not base64 of PEM, or not printable")]
    Malformed(&'static str),
    /// The child's agent has not handed over a credential.
    #[error("act in cluster {0}: its agent has not uploaded the Secret {DEPLOYER_SECRET}, and the request carries no credential for the child")]
    Missing(String),
}

const TOKEN: &str = "clusternet-token";
const CERTIFICATE: &str = "clusternet-certificate";
const PRIVATE_KEY: &str = "clusternet-privatekey";

/// Sets the headers for the child, and returns the client certificate to use if the caller brought one.
///
/// A caller that impersonates `clusternet` with extras brings its own credential for the child. Anyone else acts through
/// the deployer's credential with `Impersonate-User`, so that the child's own rules apply to the person.
pub(crate) fn enter(
    headers: &mut HeaderMap,
    caller: &Identity,
    cluster: &ManagedCluster,
    deployer: Option<&Secret>,
) -> Result<Option<Certificate>, CredentialError> {
    strip(headers);
    let extra = |name: &str| caller.extra.get(name).and_then(|values| values.first());
    if let Some(token) = extra(TOKEN) {
        headers.insert(AUTHORIZATION, bearer(token).ok_or(CredentialError::Malformed(TOKEN))?);
        forward_impersonation(headers, caller);
        return Ok(None);
    }
    if let Some(chain) = extra(CERTIFICATE) {
        let decode = |text: &str, what| {
            base64::engine::general_purpose::STANDARD.decode(text).map_err(|_| CredentialError::Malformed(what))
        };
        let key = extra(PRIVATE_KEY).ok_or(CredentialError::Malformed(PRIVATE_KEY))?;
        let certificate = Certificate { chain: decode(chain, CERTIFICATE)?, key: decode(key, PRIVATE_KEY)? };
        forward_impersonation(headers, caller);
        return Ok(Some(certificate));
    }
    let token = deployer.and_then(|secret| secret.data.as_ref()?.get("token"));
    let token = token.and_then(|token| std::str::from_utf8(&token.0).ok());
    let token = token.and_then(bearer).ok_or_else(|| {
        CredentialError::Missing(cluster.metadata.name.clone().unwrap_or_default())
    })?;
    headers.insert(AUTHORIZATION, token);
    if let Ok(user) = HeaderValue::try_from(&caller.user) {
        headers.insert("impersonate-user", user);
    }
    for group in &caller.groups {
        if let Ok(group) = HeaderValue::try_from(group) {
            headers.append("impersonate-group", group);
        }
    }
    Ok(None)
}

/// Only the deployer itself: for the hub's own work in the child.
pub(crate) fn deployer_token(secret: &Secret) -> Option<HeaderValue> {
    let token = secret.data.as_ref()?.get("token")?;
    bearer(std::str::from_utf8(&token.0).ok()?)
}

fn bearer(token: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(format!("Bearer {token}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Removes what must never reach a child: the parent's credential and whatever a caller says about identities.
fn strip(headers: &mut HeaderMap) {
    let names: Vec<HeaderName> = headers
        .keys()
        .filter(|name| {
            let name = name.as_str();
            name.starts_with("impersonate-") || name.starts_with("x-remote-") || name == "authorization" || name == "cookie"
        })
        .cloned()
        .collect();
    for name in names {
        headers.remove(name);
    }
}

/// `clusternet-impersonate-user`, `-uid`, `-group` extras become impersonation in the child (the original loses them).
fn forward_impersonation(headers: &mut HeaderMap, caller: &Identity) {
    for (key, values) in &caller.extra {
        let Some(name) = key.strip_prefix("clusternet-") else { continue };
        if !name.starts_with("impersonate-") {
            continue;
        }
        let Ok(name) = HeaderName::try_from(name) else { continue };
        for value in values {
            if let Ok(value) = HeaderValue::try_from(value) {
                headers.append(name.clone(), value);
            }
        }
    }
}
