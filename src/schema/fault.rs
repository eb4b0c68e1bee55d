//! Faults of a field: where, what kind, the bad value and the words Kubernetes uses for it.

use serde_json::{Value, json};
use std::fmt;

/// What is wrong with a field; the names are the `reason`s of `Status.details.causes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// A referenced value does not exist.
    NotFound,
    /// The field must have a value.
    Required,
    /// The value must be unique and is not.
    Duplicate,
    /// The value is malformed or out of range.
    Invalid,
    /// The value is not one of a closed list.
    NotSupported,
    /// The field may not be set or changed.
    Forbidden,
    /// The value is longer than allowed.
    TooLong,
    /// The list or map has more entries than allowed.
    TooMany,
    /// The list or map has fewer entries than needed.
    TooFew,
    /// The value could not be checked.
    Internal,
    /// The value has a type the schema does not allow.
    TypeInvalid,
    /// The value is shorter than needed.
    TooShort,
}

impl FaultKind {
    /// The machine-readable reason in `Status.details.causes[].reason`.
    pub fn reason(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TooFew => "FieldValueTooFew",
            Self::Internal => "InternalError",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::TooShort => "FieldValueTooShort",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::TooFew => "Too few",
            Self::Internal => "Internal error",
            Self::TooShort => "Too short",
        }
    }

    fn shows_value(self) -> bool {
        !matches!(self, Self::Required | Self::Forbidden | Self::TooLong | Self::TooShort | Self::Internal)
    }
}

/// A field path in the form `spec.containers[0].name` or `data[key]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(String);

impl Path {
    /// The path of the object itself (shown as nothing).
    pub fn root() -> Self {
        Self(String::new())
    }

    /// A path from its text.
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The path of a named field below this one.
    pub fn child(&self, name: &str) -> Self {
        if self.0.is_empty() { Self(name.to_owned()) } else { Self(format!("{}.{name}", self.0)) }
    }

    /// The path of a list element below this one.
    pub fn index(&self, i: usize) -> Self {
        Self(format!("{}[{i}]", self.0))
    }

    /// The path of a map entry below this one.
    pub fn key(&self, key: &str) -> Self {
        Self(format!("{}[{key}]", self.0))
    }

    /// The text; empty for the object itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "<nil>" } else { &self.0 })
    }
}

/// One fault of one field.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// What is wrong.
    pub kind: FaultKind,
    /// Path of the field, `<nil>` for the object itself.
    pub field: String,
    /// The offending value; `None` when the message must not show one.
    pub value: Option<Value>,
    /// The explanation after the value.
    pub detail: String,
}

impl Fault {
    /// A fault with a value.
    pub fn new(kind: FaultKind, path: &Path, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self { kind, field: path.to_string(), value: Some(value.into()), detail: detail.into() }
    }
    /// A missing value.
    pub fn required(path: &Path, detail: impl Into<String>) -> Self {
        Self::new(FaultKind::Required, path, "", detail)
    }
    /// A malformed value.
    pub fn invalid(path: &Path, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(FaultKind::Invalid, path, value, detail)
    }
    /// A value of a wrong type.
    pub fn type_invalid(path: &Path, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(FaultKind::TypeInvalid, path, value, detail)
    }
    /// A repeated value.
    pub fn duplicate(path: &Path, value: impl Into<Value>) -> Self {
        Self::new(FaultKind::Duplicate, path, value, "")
    }
    /// A reference to nothing.
    pub fn not_found(path: &Path, value: impl Into<Value>) -> Self {
        Self::new(FaultKind::NotFound, path, value, "")
    }
    /// A field that may not be set or changed.
    pub fn forbidden(path: &Path, detail: impl Into<String>) -> Self {
        Self::new(FaultKind::Forbidden, path, "", detail)
    }
    /// A value outside a closed list.
    pub fn not_supported(path: &Path, value: impl Into<Value>, supported: &[&str]) -> Self {
        let detail = if supported.is_empty() {
            String::new()
        } else {
            format!("supported values: {}", supported.iter().map(|s| quote(s)).collect::<Vec<_>>().join(", "))
        };
        Self::new(FaultKind::NotSupported, path, value, detail)
    }
    /// A value of more than `max` bytes.
    pub fn too_long(path: &Path, max: usize) -> Self {
        let unit = if max == 1 { "byte" } else { "bytes" };
        Self::new(FaultKind::TooLong, path, "", format!("may not be more than {max} {unit}"))
    }
    /// More than `max` entries; `actual` is shown as the value.
    pub fn too_many(path: &Path, actual: usize, max: usize) -> Self {
        let unit = if max == 1 { "item" } else { "items" };
        Self::new(FaultKind::TooMany, path, actual, format!("must have at most {max} {unit}"))
    }
    /// Something that could not be checked.
    pub fn internal(path: &Path, detail: impl Into<String>) -> Self {
        Self { kind: FaultKind::Internal, field: path.to_string(), value: None, detail: detail.into() }
    }

    /// The message without the field, as in `Status.details.causes[].message`.
    pub fn body(&self) -> String {
        let mut s = self.kind.words().to_owned();
        if let (true, Some(v)) = (self.kind.shows_value(), &self.value) {
            s.push_str(": ");
            match v {
                Value::String(t) => s.push_str(&quote(t)),
                other => s.push_str(&other.to_string()),
            }
        }
        if !self.detail.is_empty() {
            s.push_str(": ");
            s.push_str(&self.detail);
        }
        s
    }

    /// The entry of `Status.details.causes`.
    pub fn cause(&self) -> Value {
        json!({"reason": self.kind.reason(), "message": self.body(), "field": self.field})
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

/// All faults in one sentence: one as it is, several in brackets, equal ones once.
pub fn sentence(faults: &[Fault]) -> String {
    let mut words: Vec<String> = Vec::new();
    for f in faults {
        let w = f.to_string();
        if !words.contains(&w) {
            words.push(w);
        }
    }
    match words.len() {
        1 => words.remove(0),
        _ => format!("[{}]", words.join(", ")),
    }
}

/// The `Status` object (code 422, reason Invalid) that a server answers with.
pub fn invalid_status(group: &str, kind: &str, name: &str, faults: &[Fault]) -> Value {
    let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
    let mut details = json!({"kind": kind, "causes": faults.iter().map(Fault::cause).collect::<Vec<_>>()});
    if !group.is_empty() {
        details["group"] = json!(group);
    }
    if !name.is_empty() {
        details["name"] = json!(name);
    }
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Invalid", "code": 422,
        "message": format!("{qualified} {} is invalid: {}", quote(name), sentence(faults)),
        "details": details,
    })
}

/// A string in Go's double quotes (`%q`).
pub fn quote(s: &str) -> String {
    let mut out = String::with_capacity(s.len() + 2);
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => out.push_str(&format!("\\x{:02x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_kubernetes() {
        let p = Path::new("spec").child("replicas");
        assert_eq!(
            Fault::invalid(&p, -1, "must be greater than or equal to 0").to_string(),
            "spec.replicas: Invalid value: -1: must be greater than or equal to 0"
        );
        assert_eq!(Fault::required(&p.index(0).key("a"), "").to_string(), "spec.replicas[0][a]: Required value");
        assert_eq!(
            Fault::not_supported(&p, "x", &["A", "B"]).to_string(),
            r#"spec.replicas: Unsupported value: "x": supported values: "A", "B""#
        );
        let two = [Fault::forbidden(&p, "no"), Fault::duplicate(&p, "a")];
        assert_eq!(sentence(&two), r#"[spec.replicas: Forbidden: no, spec.replicas: Duplicate value: "a"]"#);
        assert_eq!(invalid_status("apps", "Deployment", "x", &two)["message"].as_str().map(|m| &m[..32]), Some(r#"Deployment.apps "x" is invalid: "#));
    }
}
