//! The caller of a request: name, uid, groups and extra attributes.

use std::collections::BTreeMap;

use serde_json::{json, Value};

/// The user name of a request without any credential.
pub const ANONYMOUS: &str = "system:anonymous";
/// Members may do everything; no rule is asked.
pub const GROUP_MASTERS: &str = "system:masters";
/// Every caller with a proven credential.
pub const GROUP_AUTHENTICATED: &str = "system:authenticated";
/// Every caller without one.
pub const GROUP_UNAUTHENTICATED: &str = "system:unauthenticated";
/// Every ServiceAccount.
pub const GROUP_ALL_SERVICE_ACCOUNTS: &str = "system:serviceaccounts";

const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// Who a request comes from, after authentication and impersonation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The name rules and messages speak of.
    pub user: String,
    /// A stable id, empty when the credential carries none.
    pub uid: String,
    /// Groups in the order the credential gives them.
    pub groups: Vec<String>,
    /// Further attributes; keys are lower case.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl Identity {
    /// The caller without a credential.
    pub fn anonymous() -> Self {
        Self { user: ANONYMOUS.into(), groups: vec![GROUP_UNAUTHENTICATED.into()], ..Self::default() }
    }

    /// A member of `system:masters`, for calls that the server makes to itself.
    pub fn master(user: &str) -> Self {
        Self {
            user: user.into(),
            groups: vec![GROUP_MASTERS.into(), GROUP_AUTHENTICATED.into()],
            ..Self::default()
        }
    }

    /// A ServiceAccount with the groups that follow from its namespace.
    pub fn service_account(namespace: &str, name: &str, uid: &str) -> Self {
        let mut identity = Self {
            user: format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}"),
            uid: uid.into(),
            groups: service_account_groups(namespace),
            extra: BTreeMap::new(),
        };
        identity.groups.push(GROUP_AUTHENTICATED.into());
        identity
    }

    /// Whether the caller is above all rules.
    pub fn is_master(&self) -> bool {
        self.groups.iter().any(|group| group == GROUP_MASTERS)
    }

    /// Adds `system:authenticated` unless one of the two blanket groups is there already.
    pub(crate) fn mark_authenticated(&mut self) {
        if !self.groups.iter().any(|group| group == GROUP_AUTHENTICATED || group == GROUP_UNAUTHENTICATED) {
            self.groups.push(GROUP_AUTHENTICATED.into());
        }
    }

    /// The `UserInfo` shape of the review kinds; empty fields are left out.
    pub fn to_user_info(&self) -> Value {
        let mut info = serde_json::Map::new();
        if !self.user.is_empty() {
            info.insert("username".into(), json!(self.user));
        }
        if !self.uid.is_empty() {
            info.insert("uid".into(), json!(self.uid));
        }
        if !self.groups.is_empty() {
            info.insert("groups".into(), json!(self.groups));
        }
        if !self.extra.is_empty() {
            info.insert("extra".into(), json!(self.extra));
        }
        Value::Object(info)
    }
}

/// The groups of every ServiceAccount of a namespace, without `system:authenticated`.
pub(crate) fn service_account_groups(namespace: &str) -> Vec<String> {
    vec![GROUP_ALL_SERVICE_ACCOUNTS.into(), format!("{GROUP_ALL_SERVICE_ACCOUNTS}:{namespace}")]
}

/// Namespace and name of a ServiceAccount's user name.
pub(crate) fn split_service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(SERVICE_ACCOUNT_PREFIX)?.split_once(':')?;
    let plain = |text: &str| !text.is_empty() && !text.contains([':', '/']);
    (plain(namespace) && plain(name)).then_some((namespace, name))
}
