//! Patches inside a string field: the text is read as JSON or YAML, patched and written back (facts 7.6).

use serde_json::Value;
use thiserror::Error;

use crate::patch::{self, Operation, PatchError};
use crate::{emit, pointer, read};

/// How the text of the field is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// JSON, written back with four blanks.
    Json,
    /// YAML, written back with sorted keys.
    Yaml,
}

/// What is done to the content of the field.
#[derive(Debug, Clone, PartialEq)]
pub enum Inner {
    /// A JSON patch.
    JsonPatch(Vec<Operation>),
    /// A merge patch.
    MergePatch(Value),
}

/// Why a field patch fails.
#[expect(missing_docs, reason = "the fields are named after what the text shows")]
#[derive(Debug, Error)]
pub enum FieldError {
    /// `fieldPath` must begin with a slash.
    #[error("patch field: field path {0:?} does not begin with a slash")]
    Path(String),
    /// Nothing is at the path.
    #[error("patch field: nothing at {0}")]
    Absent(String),
    /// The value there is no text.
    #[error("patch field: {path} is {found}, not text")]
    NotText { path: String, found: &'static str },
    /// The text is not what the format says.
    #[error("patch field: the text at {path} cannot be read")]
    Text { path: String, #[source] source: read::Fault },
    /// The text holds a plain value, which a JSON patch cannot be applied to.
    #[error("patch field: the text at {path} holds {found}, neither an object nor a list")]
    Scalar { path: String, found: &'static str },
    /// The inner patch does not apply.
    #[error("patch field: the patch does not fit the text at {path}")]
    Inner { path: String, #[source] source: PatchError },
}

impl FieldError {
    /// The patch found no place inside the text, which passes without effect.
    pub fn is_missing(&self) -> bool {
        matches!(self, FieldError::Inner { source: PatchError::Missing { .. }, .. })
    }
}

/// Patches the text at `path` (split on `/`, tokens are taken as they stand: there is no `~1`). An empty text stays.
pub fn apply(document: &mut Value, path: &str, format: Format, inner: &Inner) -> Result<(), FieldError> {
    let Some(rest) = path.strip_prefix('/') else { return Err(FieldError::Path(path.to_owned())) };
    let target = rest
        .split('/')
        .try_fold(document, |value, token| pointer::child_mut(value, token))
        .ok_or_else(|| FieldError::Absent(path.to_owned()))?;
    let Value::String(text) = target else {
        return Err(FieldError::NotText { path: path.to_owned(), found: patch::kind_word(target) });
    };
    if text.is_empty() {
        return Ok(());
    }
    let mut content = read::parse(text, &read::Limits::OBJECT).map_err(|source| FieldError::Text { path: path.to_owned(), source })?;
    match inner {
        Inner::JsonPatch(operations) => {
            if !(content.is_object() || content.is_array() || operations.is_empty()) {
                return Err(FieldError::Scalar { path: path.to_owned(), found: patch::kind_word(&content) });
            }
            patch::apply(&mut content, operations).map_err(|source| FieldError::Inner { path: path.to_owned(), source })?;
        }
        Inner::MergePatch(change) => patch::merge(&mut content, change),
    }
    *text = match format {
        Format::Json => json_text(&content),
        Format::Yaml => emit::emit_sorted(&content),
    };
    Ok(())
}

/// JSON as Go's `MarshalIndent` with four blanks writes it, its escapes of `<`, `>` and `&` included.
fn json_text(value: &Value) -> String {
    let mut bytes = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
    // A Value always serializes: its keys are strings and the sink is memory.
    let _ = serde::Serialize::serialize(value, &mut serializer);
    String::from_utf8_lossy(&bytes)
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn dyehouse() -> Value {
        json!({"data": {
            "server.json": "{\"zeta\": 1, \"listen\": {\"port\": 8080, \"tls\": false}, \"dyes\": [\"madder\", \"weld\"]}\n",
            "server.yaml": "zeta: 1\nlisten:\n  port: 8080   # the plain one\ndyes: [madder, weld]\n",
            "empty": "",
            "number": "1",
        }})
    }

    fn json_patch(patch: Value) -> Inner {
        Inner::JsonPatch(patch::parse(&patch).expect("well formed"))
    }

    #[test]
    fn text_comes_back_in_its_format() {
        let mut document = dyehouse();
        apply(
            &mut document,
            "/data/server.json",
            Format::Json,
            &json_patch(json!([{"op": "replace", "path": "/listen/port", "value": 9443}, {"op": "add", "path": "/dyes/-", "value": "woad"}])),
        )
        .expect("applies");
        assert_eq!(
            document["data"]["server.json"],
            "{\n    \"dyes\": [\n        \"madder\",\n        \"weld\",\n        \"woad\"\n    ],\n    \"listen\": {\n        \"port\": 9443,\n        \"tls\": false\n    },\n    \"zeta\": 1\n}"
        );
        apply(
            &mut document,
            "/data/server.yaml",
            Format::Yaml,
            &json_patch(json!([{"op": "remove", "path": "/listen/port"}, {"op": "add", "path": "/listen/socket", "value": "run.sock"}])),
        )
        .expect("applies");
        assert_eq!(document["data"]["server.yaml"], "dyes:\n- madder\n- weld\nlisten:\n  socket: run.sock\nzeta: 1\n");
        apply(&mut document, "/data/number", Format::Json, &Inner::MergePatch(json!({"a": 1}))).expect("replaces");
        assert_eq!(document["data"]["number"], "{\n    \"a\": 1\n}");
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let patch = json_patch(json!([{"op": "add", "path": "/a", "value": 1}]));
        let cases = [
            ("/data/client.json", "patch field: nothing at /data/client.json"),
            ("/data", "patch field: /data is an object, not text"),
            ("data/x", "patch field: field path \"data/x\" does not begin with a slash"),
            ("", "patch field: field path \"\" does not begin with a slash"),
            ("/data/number", "patch field: the text at /data/number holds a number, neither an object nor a list"),
        ];
        for (path, want) in cases {
            let mut document = dyehouse();
            let error = apply(&mut document, path, Format::Json, &patch).expect_err(path);
            assert_eq!(error.to_string(), want);
            assert_eq!(document, dyehouse());
        }
        let mut document = dyehouse();
        apply(&mut document, "/data/empty", Format::Json, &patch).expect("an empty text stays");
        let error = apply(&mut document, "/data/server.json", Format::Json, &json_patch(json!([{"op": "replace", "path": "/no/where", "value": 1}]))).expect_err("missing");
        assert!(error.is_missing());
        assert_eq!(document, dyehouse());
    }
}
