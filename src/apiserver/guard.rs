//! Who may do what: the way into `auth` for requests, and its index kept up to date.

use std::sync::Arc;

use http::HeaderMap;
use rustls::pki_types::CertificateDer;
use serde_json::Value;

use crate::ApiServer;
use crate::auth::authenticate::{Options as Credentials, StaticToken};
use crate::auth::impersonate::{self, ImpersonateError};
use crate::auth::{Attributes, Authenticator, Authorizer, Identity, Pki, Refusal};
use crate::controllers::local::Stored;
use crate::core::Core;
use crate::path::Info;
use crate::resource::Resource;
use crate::serve::Authenticate;
use crate::status::{About, ApiError};

/// Authentication and authorization of one server.
#[derive(Debug)]
pub struct Guard {
    /// Who sends a request.
    pub authenticator: Arc<Authenticator>,
    /// Rules of roles and bindings.
    pub authorizer: Arc<Authorizer>,
    /// Keys of the server; a simulated child has none.
    pub pki: Option<Arc<Pki>>,
    /// Objects that tokens are looked up in.
    pub objects: Arc<Stored>,
}

impl Guard {
    /// A guard with these keys and fixed tokens. Its rules are those in the store, and grow with it.
    #[must_use]
    pub fn new(server: &ApiServer, pki: Option<Arc<Pki>>, static_tokens: Vec<StaticToken>) -> Self {
        let objects = Arc::new(Stored(server.store().clone()));
        let authorizer = Arc::new(Authorizer::new());
        authorizer.reset(&*objects);
        let credentials = Credentials {
            client_ca: pki.iter().map(|p| p.ca.certificate()).collect(),
            front_proxy_ca: pki.iter().map(|p| p.front_proxy_ca.certificate()).collect(),
            front_proxy_names: Vec::new(),
            static_tokens,
            service_accounts: pki.as_ref().map(|p| p.service_account_issuer()),
            anonymous: true,
        };
        Self { authenticator: Arc::new(Authenticator::new(credentials, objects.clone())), authorizer, pki, objects }
    }

    /// A guard that lets everybody do everything: reviews are answered by it where there is no other.
    #[must_use]
    pub(crate) fn open(core: &Core) -> Self {
        let objects = Arc::new(Stored(core.store.clone()));
        let authenticator = Arc::new(Authenticator::new(Credentials::default(), objects.clone()));
        Self { authenticator, authorizer: Arc::new(Authorizer::allow_all()), pki: None, objects }
    }

    /// The identity that a request acts as.
    pub(crate) fn act_as(&self, who: Identity, headers: &HeaderMap) -> Result<Identity, ApiError> {
        if !impersonate::asked(headers) {
            return Ok(who);
        }
        impersonate::act_as(&self.authorizer, &who, headers).map_err(|error| match error {
            ImpersonateError::Forbidden(refusal) => refused(refusal),
            ImpersonateError::NoUser(_) => ApiError::internal(error.to_string()),
        })
    }

    /// Refuses what no rule allows.
    pub(crate) fn check(&self, who: &Identity, info: &Info, path: &str) -> Result<(), ApiError> {
        if who.is_master() {
            return Ok(());
        }
        let asked = if info.resource.is_empty() {
            Attributes::path(info.verb, path)
        } else {
            Attributes {
                verb: info.verb.into(),
                group: info.group.clone(),
                version: info.version.clone(),
                resource: info.resource.clone(),
                subresource: info.subresource.clone(),
                namespace: info.namespace.clone(),
                name: info.name.clone(),
                path: String::new(),
            }
        };
        let decision = self.authorizer.allowed(who, &asked);
        if decision.allow {
            return Ok(());
        }
        Err(refused(asked.forbidden(who, &decision.reason)))
    }
}

fn refused(refusal: Refusal) -> ApiError {
    ApiError::forbidden_with(refusal.message, About { group: refusal.group, kind: refusal.kind, name: refusal.name, uid: String::new() })
}

impl Authenticate for Guard {
    fn authenticate(&self, parts: &http::request::Parts, peer: &[CertificateDer<'static>]) -> Result<Identity, ApiError> {
        self.authenticator.authenticate(&parts.headers, peer, jiff::Timestamp::now()).map_err(|error| {
            tracing::debug!(%error, "refuse a credential");
            ApiError::unauthorized()
        })
    }
}

/// A role or binding changed (`object`) or is gone (none).
pub(crate) fn changed(core: &Arc<Core>, resource: &Resource, object: Option<&Value>, key: &str) {
    let guard = core.guard.read().clone();
    let Some(guard) = guard else { return };
    match object {
        Some(object) => guard.authorizer.put(&resource.plural, object),
        None => {
            let (namespace, name) = if resource.namespaced { key.split_once('/').unwrap_or(("", key)) } else { ("", key) };
            guard.authorizer.remove(&resource.plural, namespace, name);
        }
    }
}

/// Nobody grants what they do not hold.
pub(crate) fn escalation(request: &crate::admission::Request<'_>, object: &Value) -> Result<(), ApiError> {
    if request.resource.group != "rbac.authorization.k8s.io" || request.operation == crate::admission::Operation::Delete {
        return Ok(());
    }
    let guard = request.core.guard.read().clone();
    let Some(guard) = guard else { return Ok(()) };
    crate::auth::escalation::check(&guard.authorizer, request.who, &request.resource.plural, object, request.old)
        .map_err(|why| ApiError::forbidden(&request.resource.group, &request.resource.plural, request.name, &why))
}

