//! The query options of the resource API, read once, with Kubernetes' words for bad ones.

use std::collections::BTreeMap;

use crate::path::decode;
use crate::status::ApiError;

/// Longest name of a field manager, as in Kubernetes.
const MAX_MANAGER: usize = 128;

/// What Go says of a text that is no number of a revision.
pub(crate) fn bad_number(text: &str) -> String {
    let range = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    format!("strconv.ParseUint: parsing \"{text}\": {}", if range { "value out of range" } else { "invalid syntax" })
}

/// How unknown and doubled fields of a body are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FieldValidation {
    /// Dropped without a word.
    Ignore,
    /// Dropped, named in `Warning` headers.
    #[default]
    Warn,
    /// The request is refused.
    Strict,
}

/// Decoded query of a request.
#[derive(Debug, Clone, Default)]
pub struct Query {
    pairs: BTreeMap<String, Vec<String>>,
}

impl Query {
    /// Reads the part of a URL after `?`.
    #[must_use]
    pub fn parse(text: Option<&str>) -> Self {
        let mut pairs: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for pair in text.unwrap_or("").split('&').filter(|p| !p.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            pairs.entry(decode(&key.replace('+', " "))).or_default().push(decode(&value.replace('+', " ")));
        }
        Self { pairs }
    }

    /// Adds a value, as if it had been in the URL.
    pub fn add(&mut self, key: &str, value: &str) {
        self.pairs.entry(key.to_owned()).or_default().push(value.to_owned());
    }

    /// The first value of an option.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.pairs.get(key).and_then(|v| v.first()).map(String::as_str)
    }

    /// The first value of an option, none when empty.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&str> {
        self.get(key).filter(|v| !v.is_empty())
    }

    /// A switch as Go's converters read it: absent, `false` and `0` are off, anything else is on.
    #[must_use]
    pub fn flag(&self, key: &str) -> bool {
        self.get(key).is_some_and(|v| !matches!(v.to_ascii_lowercase().as_str(), "false" | "0"))
    }

    /// A switch that may be absent.
    #[must_use]
    pub fn maybe_flag(&self, key: &str) -> Option<bool> {
        self.text(key).map(|_| self.flag(key))
    }

    /// A number that is not negative.
    pub fn number(&self, key: &str) -> Result<Option<u64>, ApiError> {
        match self.text(key) {
            None => Ok(None),
            Some(text) => match text.parse::<i64>() {
                Ok(n) => Ok(Some(u64::try_from(n).unwrap_or(0))),
                Err(_) => Err(ApiError::bad_request(format!("strconv.ParseInt: parsing \"{text}\": invalid syntax"))),
            },
        }
    }

    /// Whether nothing shall be stored.
    pub fn dry_run(&self) -> Result<bool, ApiError> {
        let Some(values) = self.pairs.get("dryRun") else { return Ok(false) };
        match values.iter().find(|v| !matches!(v.as_str(), "All" | "")) {
            None => Ok(values.iter().any(|v| v == "All")),
            Some(bad) => {
                let cause = crate::status::Cause {
                    reason: "FieldValueNotSupported".into(),
                    message: format!("Unsupported value: {:?}: supported values: \"All\"", vec![bad]),
                    field: "dryRun".into(),
                };
                Err(ApiError::invalid("meta.k8s.io", "CreateOptions", "", vec![cause]))
            }
        }
    }

    /// Whether the options of a write make sense; `kind` is the name that they have together, such as `CreateOptions`.
    pub fn write_options(&self, kind: &str) -> Result<(), ApiError> {
        let mut causes = Vec::new();
        let mut fault = |reason: &str, field: &str, message: String| causes.push(crate::rest::fault(reason, field, message));
        let manager = self.get("fieldManager").unwrap_or("");
        if manager.len() > MAX_MANAGER {
            fault("FieldValueTooLong", "fieldManager", format!("Too long: may not be more than {MAX_MANAGER} bytes"));
        }
        if let Some((at, bad)) = manager.char_indices().find(|(_, c)| c.is_control()) {
            let code = format!("{:04X}", u32::from(bad));
            fault("FieldValueInvalid", "fieldManager", format!("Invalid value: {}: invalid character U+{code} (at position {at})", schema::fault::quote(manager)));
        }
        if let Some(values) = self.pairs.get("dryRun").filter(|values| values.iter().any(|v| !matches!(v.as_str(), "All" | ""))) {
            fault("FieldValueNotSupported", "dryRun", format!("Unsupported value: {values:?}: supported values: \"All\""));
        }
        if let Some(other) = self.text("fieldValidation").filter(|v| !matches!(*v, "Ignore" | "Strict" | "Warn")) {
            fault("FieldValueNotSupported", "fieldValidation", format!("Unsupported value: \"{other}\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\""));
        }
        if causes.is_empty() { Ok(()) } else { Err(ApiError::invalid("meta.k8s.io", kind, "", causes)) }
    }

    /// The treatment of unknown fields.
    pub fn field_validation(&self) -> Result<FieldValidation, ApiError> {
        match self.text("fieldValidation") {
            None | Some("Warn") => Ok(FieldValidation::Warn),
            Some("Ignore") => Ok(FieldValidation::Ignore),
            Some("Strict") => Ok(FieldValidation::Strict),
            Some(other) => {
                let cause = crate::status::Cause {
                    reason: "FieldValueNotSupported".into(),
                    message: format!("Unsupported value: \"{other}\": supported values: \"Ignore\", \"Strict\", \"Warn\""),
                    field: "fieldValidation".into(),
                };
                Err(ApiError::invalid("meta.k8s.io", "CreateOptions", "", vec![cause]))
            }
        }
    }

    /// The field manager: what the caller says, else the first part of its user agent, as Kubernetes does it.
    #[must_use]
    pub fn manager(&self, user_agent: Option<&str>) -> String {
        match self.text("fieldManager") {
            Some(manager) => manager.to_owned(),
            None => {
                let agent = user_agent.unwrap_or("unknown").split('/').next().unwrap_or("unknown");
                agent.chars().take(128).collect()
            }
        }
    }

    /// A revision number in an option; `0` and absent are told apart by the caller.
    pub fn revision(&self, key: &str) -> Result<Option<u64>, ApiError> {
        match self.text(key) {
            None => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| ApiError::unworded(format!("{key}: Invalid value: \"{text}\": {}", bad_number(text)))),
        }
    }
}
