//! Bootstrap tokens: short-lived `id.secret` pairs kept in Secrets of `kube-system`, with which clusters and nodes join.

use base64::Engine as _;
use jiff::Timestamp;
use serde_json::Value;

use super::{text, Identity, Objects, GROUP_AUTHENTICATED};

/// The type of Secrets that hold bootstrap tokens.
pub const SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";
/// Where they live.
pub const NAMESPACE: &str = "kube-system";
/// The name of such a Secret before its token id.
pub const NAME_PREFIX: &str = "bootstrap-token-";
/// The group of every caller with such a token.
pub const GROUP: &str = "system:bootstrappers";

/// Whether two byte strings are equal, in time that does not tell where they differ.
pub(crate) fn same(left: &[u8], right: &[u8]) -> bool {
    use sha2::{Digest as _, Sha256};
    let (left, right) = (Sha256::digest(left), Sha256::digest(right));
    left.iter().zip(right.iter()).fold(0u8, |difference, (a, b)| difference | (a ^ b)) == 0
}

/// Token id and secret of a well-formed token.
pub fn split(token: &str) -> Option<(&str, &str)> {
    let (id, secret) = token.split_once('.')?;
    let plain = |part: &str, length| {
        part.len() == length && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    (plain(id, 6) && plain(secret, 16)).then_some((id, secret))
}

/// A decoded value of a Secret's data, as text; empty when absent or odd.
pub(crate) fn data(secret: &Value, key: &str) -> String {
    let encoded = text(secret, &["data", key]);
    let bytes = base64::engine::general_purpose::STANDARD.decode(encoded).unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_default()
}

/// When a token of a Secret runs out: nothing when it never does, `Err` when the time is not readable (then it is no good).
pub(crate) fn expiration(secret: &Value) -> Result<Option<Timestamp>, ()> {
    match data(secret, "expiration").as_str() {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|_| ()),
    }
}

fn valid_group(group: &str) -> bool {
    let Some(rest) = group.strip_prefix("system:bootstrappers:") else { return false };
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    rest.len() <= 256
        && rest.bytes().all(|byte| plain(byte) || byte == b':' || byte == b'-')
        && rest.bytes().last().is_some_and(plain)
}

/// The caller of a bootstrap token: nothing when the token is of another form, unknown, expired or not for authentication.
pub fn authenticate(token: &str, objects: &dyn Objects, now: Timestamp) -> Option<Identity> {
    let (id, secret) = split(token)?;
    let object = objects.get("", "secrets", NAMESPACE, &format!("{NAME_PREFIX}{id}"))?;
    let live = text(&object, &["metadata", "deletionTimestamp"]).is_empty()
        && text(&object, &["type"]) == SECRET_TYPE
        && data(&object, "token-id") == id
        && same(data(&object, "token-secret").as_bytes(), secret.as_bytes())
        && expiration(&object).is_ok_and(|end| end.is_none_or(|end| now < end))
        && data(&object, "usage-bootstrap-authentication") == "true";
    if !live {
        return None;
    }
    let extra = data(&object, "auth-extra-groups");
    let mut groups: std::collections::BTreeSet<String> = std::collections::BTreeSet::from([GROUP.to_owned()]);
    for group in extra.split(',').filter(|group| !group.is_empty()) {
        if !valid_group(group) {
            return None;
        }
        groups.insert(group.to_owned());
    }
    let mut groups: Vec<String> = groups.into_iter().collect();
    groups.push(GROUP_AUTHENTICATED.into());
    Some(Identity { user: format!("system:bootstrap:{id}"), groups, ..Identity::default() })
}
