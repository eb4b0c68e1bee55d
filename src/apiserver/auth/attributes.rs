//! What a request asks for, the verdict on it, and the words of a refusal.

use super::{quoted, Identity};

/// One question to the authorizer. `resource` is empty for a request outside the resource API; then `path` counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, a special verb, or an HTTP verb in lower case for a path.
    pub verb: String,
    /// API group, empty for core.
    pub group: String,
    /// API version; only shown, never compared.
    pub version: String,
    /// Plural resource name.
    pub resource: String,
    /// Subresource, empty for the object itself.
    pub subresource: String,
    /// Namespace, empty at the cluster scope or for all namespaces.
    pub namespace: String,
    /// Object name, empty for collections.
    pub name: String,
    /// URL path of a request outside the resource API.
    pub path: String,
}

/// The verdict and, where a rule decided or could not be read, why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether the request may go on.
    pub allow: bool,
    /// `RBAC: allowed by …`, or what could not be resolved.
    pub reason: String,
}

/// A refused request in the parts of a Kubernetes `Status` (code 403, reason `Forbidden`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The whole message.
    pub message: String,
    /// `details.name`.
    pub name: String,
    /// `details.group`.
    pub group: String,
    /// `details.kind` (Kubernetes puts the plural resource here).
    pub kind: String,
}

impl Attributes {
    /// A question about a resource.
    pub fn resource(verb: &str, group: &str, resource: &str, namespace: &str, name: &str) -> Self {
        Self {
            verb: verb.into(),
            group: group.into(),
            version: "*".into(),
            resource: resource.into(),
            namespace: namespace.into(),
            name: name.into(),
            ..Self::default()
        }
    }

    /// A question about a path outside the resource API.
    pub fn path(verb: &str, path: &str) -> Self {
        Self { verb: verb.into(), path: path.into(), ..Self::default() }
    }

    /// Whether this is about a resource.
    pub fn is_resource(&self) -> bool {
        !self.resource.is_empty()
    }

    /// The resource as rules name it: `pods` or `pods/log`.
    pub(crate) fn combined(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.clone()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }

    /// The sentence of a refusal without its prefix.
    pub fn sentence(&self, who: &Identity) -> String {
        let user = quoted(&who.user);
        let verb = &self.verb;
        let said = if self.is_resource() {
            let place = if self.namespace.is_empty() {
                "at the cluster scope".to_owned()
            } else {
                format!("in the namespace {}", quoted(&self.namespace))
            };
            let resource = quoted(&self.combined());
            format!("User {user} cannot {verb} resource {resource} in API group {} {place}", quoted(&self.group))
        } else {
            format!("User {user} cannot {verb} path {}", quoted(&self.path))
        };
        // A browser must not be handed markup that the caller chose.
        said.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
    }

    /// The refusal as Kubernetes words it; `reason` is the decision's, often empty.
    pub fn forbidden(&self, who: &Identity, reason: &str) -> Refusal {
        let mut sentence = self.sentence(who);
        if !reason.is_empty() {
            sentence.push_str(": ");
            sentence.push_str(reason);
        }
        let mut message = String::new();
        if self.is_resource() {
            message.push_str(&self.resource);
            if !self.group.is_empty() {
                message.push('.');
                message.push_str(&self.group);
            }
            if !self.name.is_empty() {
                message.push_str(&format!(" {}", quoted(&self.name)));
            }
            message.push_str(" is forbidden: ");
        } else {
            message.push_str("forbidden: ");
        }
        message.push_str(&sentence);
        Refusal { message, name: self.name.clone(), group: self.group.clone(), kind: self.resource.clone() }
    }
}
