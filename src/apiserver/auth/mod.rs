//! Who is calling and what they may do: authentication, RBAC, access reviews, certificates of the embedded parent.
//!
//! Nothing here reads the network or a clock: requests, peer certificates, objects ([`Objects`]) and `now` are handed in.
//! A request passes [`Authenticator::authenticate`], then [`impersonate::act_as`] when it carries impersonation headers, then
//! [`Authorizer::allowed`]; [`Attributes::forbidden`] words the refusal as Kubernetes does.

mod attributes;
pub mod authenticate;
pub mod bootstrap_token;
pub mod defaults;
pub mod der;
pub mod escalation;
pub mod fault;
mod identity;
pub mod impersonate;
mod index;
pub mod jwt;
pub mod pki;
pub mod reviews;
mod rules;
pub mod signer;
mod table;
pub mod verifier;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde_json::Value;

pub use attributes::{Attributes, Decision, Refusal};
pub use authenticate::{Authenticator, Unauthorized};
pub use identity::{
    Identity, ANONYMOUS, GROUP_ALL_SERVICE_ACCOUNTS, GROUP_AUTHENTICATED, GROUP_MASTERS, GROUP_UNAUTHENTICATED,
};
pub(crate) use identity::split_service_account;
pub use index::Authorizer;
pub use pki::Pki;
pub use rules::Rule;

/// The committed objects of one server, read without I/O: what authentication, authorization and the controllers look at.
///
/// `group` is empty for the core group, `namespace` is empty for cluster-scoped objects.
pub trait Objects: Send + Sync {
    /// One object, or nothing when it does not exist.
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Value>>;
    /// All objects of a resource in namespace-then-name order; of one namespace when `namespace` is given.
    fn list(&self, group: &str, plural: &str, namespace: Option<&str>) -> Vec<Arc<Value>>;
}

/// A string at a path of an object, empty when absent or not a string.
pub(crate) fn text<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    at(object, path).and_then(Value::as_str).unwrap_or("")
}

/// The value at a path of an object.
pub(crate) fn at<'a>(object: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, field| value.get(field))
}

/// The strings of a list at a path; absent or odd entries are left out.
pub(crate) fn strings(object: &Value, path: &[&str]) -> Vec<String> {
    at(object, path)
        .and_then(Value::as_array)
        .map(|items| items.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        .unwrap_or_default()
}

/// Go's `%q` for a plain string, as Kubernetes quotes names in its messages.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => out.push_str(&format!("\\x{:02x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Go's `%q` for a list of strings: `["a" "b"]`.
pub(crate) fn quoted_list<S: AsRef<str>>(items: &[S]) -> String {
    let inner: Vec<String> = items.iter().map(|item| quoted(item.as_ref())).collect();
    format!("[{}]", inner.join(" "))
}
