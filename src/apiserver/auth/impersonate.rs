//! Acting as somebody else by `Impersonate-*` headers, each of them authorised against the true caller.

use std::collections::BTreeMap;

use http::HeaderMap;

use super::identity::{service_account_groups, split_service_account, ANONYMOUS, GROUP_UNAUTHENTICATED};
use super::{Attributes, Authorizer, Identity, Refusal};

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";

/// Why a request must not act as somebody else.
#[derive(Debug, thiserror::Error)]
pub enum ImpersonateError {
    /// Groups, uid or extras without a user name: 500 `InternalError`, as Kubernetes answers.
    #[error("requested {0} without impersonating a user")]
    NoUser(String),
    /// The caller lacks the verb `impersonate`.
    #[error("{}", .0.message)]
    Forbidden(Refusal),
}

fn values<'a>(headers: &'a HeaderMap, name: &str) -> Vec<&'a str> {
    headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect()
}

/// Whether the request carries any impersonation header.
pub fn asked(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| name.as_str().starts_with("impersonate-"))
}

/// The identity the request acts as: `who` itself when no impersonation header is there.
///
/// The caller must drop the `Impersonate-*` headers before it forwards the request anywhere.
///
/// # Errors
/// [`ImpersonateError`] when a header lacks its user or the caller lacks the right.
pub fn act_as(authorizer: &Authorizer, who: &Identity, headers: &HeaderMap) -> Result<Identity, ImpersonateError> {
    if !asked(headers) {
        return Ok(who.clone());
    }
    let user = values(headers, USER).first().copied().unwrap_or("").to_owned();
    let groups: Vec<String> = values(headers, GROUP).into_iter().map(str::to_owned).collect();
    let uid = values(headers, UID).first().copied().unwrap_or("").to_owned();
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        if let (Some(key), Ok(value)) = (name.as_str().strip_prefix(EXTRA), value.to_str()) {
            extra.entry(decode(key)).or_default().push(value.to_owned());
        }
    }
    if user.is_empty() {
        if groups.is_empty() && uid.is_empty() && extra.is_empty() {
            return Ok(who.clone());
        }
        let what = format!("[groups={groups:?} uid={uid:?} extra={extra:?}]");
        return Err(ImpersonateError::NoUser(what));
    }

    let mut acting = Identity { user: user.clone(), uid: uid.clone(), groups: groups.clone(), extra };
    let permit = |asked: Attributes| {
        let decision = authorizer.allowed(who, &asked);
        if decision.allow {
            Ok(())
        } else {
            Err(ImpersonateError::Forbidden(asked.forbidden(who, &decision.reason)))
        }
    };
    let ask = |group: &str, version: &str, resource: &str, sub: &str, name: &str| Attributes {
        version: version.into(),
        subresource: sub.into(),
        ..Attributes::resource("impersonate", group, resource, "", name)
    };
    const AUTHENTICATION: &str = "authentication.k8s.io";
    match split_service_account(&user) {
        Some((namespace, name)) => {
            permit(Attributes::resource("impersonate", "", "serviceaccounts", namespace, name))?;
            if groups.is_empty() {
                acting.groups = service_account_groups(namespace);
            }
        }
        None => permit(ask("", "", "users", "", &user))?,
    }
    for group in &groups {
        permit(ask("", "", "groups", "", group))?;
    }
    for (key, values) in &acting.extra {
        for value in values {
            permit(ask(AUTHENTICATION, "v1", "userextras", key, value))?;
        }
    }
    if !uid.is_empty() {
        permit(ask(AUTHENTICATION, "v1", "uids", "", &uid))?;
    }
    if user == ANONYMOUS {
        if !acting.groups.iter().any(|group| group == GROUP_UNAUTHENTICATED) {
            acting.groups.push(GROUP_UNAUTHENTICATED.into());
        }
    } else {
        acting.mark_authenticated();
    }
    Ok(acting)
}

/// Percent-decoding of a header key; a broken escape is kept as it stands.
pub(crate) fn decode(key: &str) -> String {
    let bytes = key.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let pair = bytes.get(at + 1..at + 3).and_then(|pair| std::str::from_utf8(pair).ok());
        match (bytes[at], pair.and_then(|pair| u8::from_str_radix(pair, 16).ok())) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 3;
            }
            (b'%', None) => return key.to_owned(),
            (byte, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| key.to_owned())
}
