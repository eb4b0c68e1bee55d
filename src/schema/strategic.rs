//! Strategic merge patch.

use crate::shape::Node;
use serde_json::Value;

/// Why a patch cannot be merged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StrategicError {
    /// The kind has no merge rules (custom kinds).
    #[error("the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml")]
    Unsupported,
    /// The patch is malformed.
    #[error("{0}")]
    Patch(String),
}

/// Merges a patch into an object.
pub fn merge(_current: &Value, _patch: &Value, _node: Node<'_>) -> Result<Value, StrategicError> {
    Err(StrategicError::Unsupported)
}
