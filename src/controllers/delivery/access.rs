//! How a repository is reached: address, credential from a Secret, certificates, proxy.

use std::collections::BTreeMap;
use std::time::Duration;

use api::gitops::{GitTarget, LocalReference, ProxySpec};
use api::reason::Reason;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};

/// Why it cannot be reached as the spec says.
pub(crate) enum Unusable {
    /// The spec must change.
    Invalid(String),
    /// A Secret or the host must change.
    Unreached(Reason, String),
}

/// Where a repository is, and what opens it.
pub(crate) struct Place<'a> {
    /// Namespace of the Secrets.
    pub(crate) namespace: &'a str,
    pub(crate) url: &'a str,
    pub(crate) timeout: &'a str,
    pub(crate) secret: Option<&'a LocalReference>,
    pub(crate) ca: Option<&'a LocalReference>,
    pub(crate) proxy: Option<&'a ProxySpec>,
}

impl<'a> Place<'a> {
    /// The repository of a target.
    pub(super) fn of(target: &'a GitTarget) -> Self {
        let spec = &target.spec;
        Self {
            namespace: target.metadata.namespace.as_deref().unwrap_or_default(),
            url: &spec.url,
            timeout: &spec.timeout,
            secret: spec.secret_ref.as_ref(),
            ca: spec.ca_ref.as_ref(),
            proxy: spec.proxy.as_ref(),
        }
    }
}

/// A repository as a client sees it.
pub(crate) async fn remote(client: &Client, git: &git::Git, place: &Place<'_>) -> Result<git::Remote, Unusable> {
    let namespace = place.namespace;
    let url: git::Url = place.url.parse().map_err(|error: git::UrlError| Unusable::Invalid(error.to_string()))?;
    let timeout = api::duration::parse(place.timeout).ok_or_else(|| Unusable::Invalid(format!("spec.timeout: `{}` is no duration", place.timeout)))?;
    let mut access = git::Access { timeout: timeout.max(Duration::from_secs(1)), ..git::Access::anonymous() };
    if let Some(reference) = place.secret {
        access.credential = Some(credential(client, namespace, &reference.name).await?);
    }
    if let Some(reference) = place.ca {
        let mut entries = secret(client, namespace, &reference.name).await?;
        let text = entries.remove("ca.crt").and_then(|bytes| String::from_utf8(bytes).ok());
        access.authority = Some(text.ok_or_else(|| Unusable::Unreached(Reason::AuthenticationFailed, format!("Secret {}: `ca.crt` is missing", reference.name)))?);
    }
    if let Some(proxy) = place.proxy {
        let mut text = proxy.url.clone();
        if let Some(reference) = &proxy.secret_ref
            && let (git::Credential::Basic { user, password }, Some(rest)) = (credential(client, namespace, &reference.name).await?, proxy.url.strip_prefix("http://"))
        {
            text = password.in_url("http://", &user, rest);
        }
        access.proxy = Some(git::Secret::new(text));
    }
    git.remote(&url, &access).await.map_err(|error| Unusable::Invalid(cluster::error::chain(&error)))
}

async fn credential(client: &Client, namespace: &str, name: &str) -> Result<git::Credential, Unusable> {
    let entries = secret(client, namespace, name).await?;
    git::Credential::from_entries(&entries).map_err(|error| Unusable::Unreached(Reason::AuthenticationFailed, format!("Secret {name}: {error}")))
}

async fn secret(client: &Client, namespace: &str, name: &str) -> Result<BTreeMap<String, Vec<u8>>, Unusable> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    match api.get_opt(name).await {
        Ok(Some(secret)) => Ok(secret.data.unwrap_or_default().into_iter().map(|(k, v)| (k, v.0)).collect()),
        Ok(None) => Err(Unusable::Unreached(Reason::DependencyMissing, format!("the Secret {name} does not exist"))),
        Err(error) => Err(Unusable::Unreached(Reason::ServerUnavailable, format!("the Secret {name} cannot be read: {}", cluster::error::message(&error)))),
    }
}

/// The word of the closed list for what the git room says.
pub(super) fn reason_of(word: &str) -> Reason {
    match word {
        "AuthenticationFailed" => Reason::AuthenticationFailed,
        "RateLimited" => Reason::RateLimited,
        "InvalidAccess" => Reason::InvalidSpec,
        _ => Reason::PushRefused,
    }
}
