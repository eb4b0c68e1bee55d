//! Protobuf form of built-in kinds.

use serde_json::Value;

/// Why an object has no protobuf form or a body is none.
#[derive(Debug, thiserror::Error)]
pub enum ProtobufError {
    /// The kind is not known.
    #[error("encode {0} as protobuf: the kind has no protobuf form")]
    Unknown(String),
}

pub(crate) fn decode(_bytes: &[u8]) -> Result<Value, ProtobufError> {
    Err(ProtobufError::Unknown(String::new()))
}

pub(crate) fn encode(value: &Value) -> Result<Vec<u8>, ProtobufError> {
    Err(ProtobufError::Unknown(crate::resource::claimed(value).1.to_owned()))
}

pub(crate) fn encode_list(_api_version: &str, kind: &str, _metadata: &Value, _items: &[Value]) -> Result<Vec<u8>, ProtobufError> {
    Err(ProtobufError::Unknown(kind.to_owned()))
}

pub(crate) fn encode_event(kind: &str, _object: &Value) -> Result<Vec<u8>, ProtobufError> {
    Err(ProtobufError::Unknown(kind.to_owned()))
}
