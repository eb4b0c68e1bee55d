//! Who may do what: the way into `auth` for requests, and its index kept up to date.

use std::sync::Arc;

use http::HeaderMap;
use serde_json::Value;

use crate::auth::{Attributes, Authorizer, Identity, impersonate};
use crate::core::Core;
use crate::path::Info;
use crate::resource::Resource;
use crate::status::{About, ApiError};

/// The authorizer of one server.
#[derive(Debug)]
pub struct Guard {
    /// Rules of roles and bindings.
    pub authorizer: Arc<Authorizer>,
}

impl Guard {
    /// The identity that a request acts as.
    pub(crate) fn act_as(&self, _core: &Core, who: Identity, headers: &HeaderMap) -> Result<Identity, ApiError> {
        if !impersonate::asked(headers) {
            return Ok(who);
        }
        impersonate::act_as(&self.authorizer, &who, headers).map_err(|error| {
            let mut refused = ApiError::forbidden_with(error.to_string(), About::default());
            refused.code = http::StatusCode::FORBIDDEN;
            refused
        })
    }

    /// Refuses what no rule allows.
    pub(crate) fn check(&self, _core: &Core, who: &Identity, info: &Info, path: &str) -> Result<(), ApiError> {
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
        let refusal = asked.forbidden(who, &decision.reason);
        Err(ApiError::forbidden_with(refusal.message, About { group: refusal.group, kind: refusal.kind, name: refusal.name, uid: String::new() }))
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
