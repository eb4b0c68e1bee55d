//! How applying one object went: what was done, or why it could not be done.

use std::fmt;

use api::object::ObjectRef;
use serde_json::Value;

use super::Desired;
use crate::error::{Trouble, message, trouble};

/// What applying did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// The object did not exist.
    Created,
    /// Some field changed.
    Configured,
    /// It was as desired.
    Unchanged,
    /// It was deleted and made anew, because an immutable field had to change.
    Recreated,
    /// It differs in an immutable field and is left so, as its annotation asks.
    Kept,
}

/// A success.
#[derive(Clone, Debug)]
pub struct Done {
    /// What was done.
    pub action: Action,
    /// Uid of the live object.
    pub uid: String,
    /// The live object, when the server was asked at all.
    pub live: Option<Value>,
}

/// Why an object could not be applied; a closed list, used as a condition reason and a metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultReason {
    /// Its namespace does not exist in the cluster. Never made up: whoever wants the namespace says so.
    NamespaceMissing,
    /// The cluster does not have this kind.
    NoSuchKind,
    /// The definition was not established in time.
    NotEstablished,
    /// An immutable field would have to change.
    Immutable,
    /// The cluster refuses the object as it is.
    Invalid,
    /// The credential does not reach that far.
    Forbidden,
    /// The object, or its namespace, is being deleted.
    Terminating,
    /// It changed at the same time.
    Conflict,
    /// The cluster does not answer, or asks to slow down.
    Unavailable,
}

impl FaultReason {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NamespaceMissing => "NamespaceMissing",
            Self::NoSuchKind => "NoSuchKind",
            Self::NotEstablished => "NotEstablished",
            Self::Immutable => "Immutable",
            Self::Invalid => "Invalid",
            Self::Forbidden => "Forbidden",
            Self::Terminating => "Terminating",
            Self::Conflict => "Conflict",
            Self::Unavailable => "Unavailable",
        }
    }

    /// True when trying again can help although nobody changes the desired object.
    pub fn may_heal(self) -> bool {
        !matches!(self, Self::Immutable | Self::Invalid)
    }
}

/// A failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Why.
    pub reason: FaultReason,
    /// What the cluster said.
    pub message: String,
}

impl Fault {
    /// A failure.
    pub fn new(reason: FaultReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }

    /// Reads a refusal.
    pub fn of(error: &kube::Error) -> Self {
        let text = message(error);
        let reason = match trouble(error) {
            Trouble::NotFound if text.starts_with("namespaces \"") => FaultReason::NamespaceMissing,
            Trouble::NotFound => FaultReason::NoSuchKind,
            Trouble::AlreadyExists | Trouble::Conflict | Trouble::Gone => FaultReason::Conflict,
            Trouble::Invalid if is_immutable(&text) => FaultReason::Immutable,
            Trouble::Invalid => FaultReason::Invalid,
            Trouble::Forbidden if text.contains("because it is being terminated") => FaultReason::Terminating,
            Trouble::Forbidden | Trouble::Unauthorized => FaultReason::Forbidden,
            Trouble::Throttled(_) | Trouble::Unavailable => FaultReason::Unavailable,
            Trouble::Broken => FaultReason::Unavailable,
        };
        Self { reason, message: text }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}

/// The texts with which Kubernetes refuses to change a field.
fn is_immutable(text: &str) -> bool {
    ["field is immutable", "may not change once set", "is immutable after creation", "updates to statefulset spec for fields other than", "may not be changed", "cannot change roleRef", "pod updates may not change fields other than", "spec is immutable after creation"]
        .iter()
        .any(|words| text.contains(words))
}

/// How one object went.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Which object.
    pub id: ObjectRef,
    /// `<namespace>.<description>`.
    pub owner: String,
    /// What was done, or why not.
    pub done: Result<Done, Fault>,
}

impl Outcome {
    pub(super) fn done(want: &Desired, action: Action, uid: String, live: Option<Value>) -> Self {
        Self { id: want.id().clone(), owner: want.owner().to_owned(), done: Ok(Done { action, uid, live }) }
    }

    /// True when the cluster was changed.
    pub fn changed(&self) -> bool {
        matches!(&self.done, Ok(done) if matches!(done.action, Action::Created | Action::Configured | Action::Recreated))
    }
}
