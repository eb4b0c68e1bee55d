//! Label selectors with the meaning and the faults of apimachinery.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::names::{is_label_key, is_label_value};

/// A fault of a selector, worded as Kubernetes words it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// The operator is not one of In, NotIn, Exists, DoesNotExist.
    #[error("{operator:?} is not a valid label selector operator")]
    Operator {
        /// What was written.
        operator: String,
    },
    /// The key is no label key.
    #[error(
        "key: Invalid value: {key:?}: name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
    )]
    Key {
        /// What was written.
        key: String,
    },
    /// A value is no label value.
    #[error(
        "values[{index}][{key}]: Invalid value: {value:?}: a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
    )]
    Value {
        /// Key of the requirement.
        key: String,
        /// Position of the value.
        index: usize,
        /// What was written.
        value: String,
    },
    /// In and NotIn without values.
    #[error("values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty")]
    NoValues,
    /// Exists and DoesNotExist with values.
    #[error("values: Invalid value: {values:?}: values set must be empty for exists and does not exist")]
    SomeValues {
        /// What was written.
        values: Vec<String>,
    },
    /// The text form cannot be read.
    #[error("unable to parse requirement: {text:?}")]
    Text {
        /// The part that cannot be read.
        text: String,
    },
    /// Less-than and greater-than want a whole number.
    #[error("values[0][{key}]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer")]
    Number {
        /// Key of the requirement.
        key: String,
        /// What was written.
        value: String,
    },
}

/// One requirement on one label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Requirement {
    /// The label has one of these values.
    In(String, BTreeSet<String>),
    /// The label is absent or has none of these values.
    NotIn(String, BTreeSet<String>),
    /// The label is there.
    Exists(String),
    /// The label is absent.
    DoesNotExist(String),
    /// The label is a whole number above this one.
    Gt(String, i64),
    /// The label is a whole number below this one.
    Lt(String, i64),
}

impl Requirement {
    /// Key of the label.
    pub fn key(&self) -> &str {
        match self {
            Self::In(key, _)
            | Self::NotIn(key, _)
            | Self::Exists(key)
            | Self::DoesNotExist(key)
            | Self::Gt(key, _)
            | Self::Lt(key, _) => key,
        }
    }

    /// Whether labels meet it.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(self.key());
        match self {
            Self::In(_, values) => value.is_some_and(|value| values.contains(value)),
            Self::NotIn(_, values) => value.is_none_or(|value| !values.contains(value)),
            Self::Exists(_) => value.is_some(),
            Self::DoesNotExist(_) => value.is_none(),
            Self::Gt(_, bound) => value.and_then(|value| value.parse::<i64>().ok()).is_some_and(|number| number > *bound),
            Self::Lt(_, bound) => value.and_then(|value| value.parse::<i64>().ok()).is_some_and(|number| number < *bound),
        }
    }

    /// Builds a requirement and checks it as `labels.NewRequirement` does.
    pub fn new(key: &str, operator: &str, values: &[String]) -> Result<Self, SelectorError> {
        let set = matches!(operator, "In" | "NotIn");
        if !set && !matches!(operator, "Exists" | "DoesNotExist") {
            return Err(SelectorError::Operator { operator: operator.to_owned() });
        }
        if !is_label_key(key) {
            return Err(SelectorError::Key { key: key.to_owned() });
        }
        if set && values.is_empty() {
            return Err(SelectorError::NoValues);
        }
        if !set && !values.is_empty() {
            return Err(SelectorError::SomeValues { values: values.to_vec() });
        }
        if let Some((index, value)) = values.iter().enumerate().find(|(_, value)| !is_label_value(value)) {
            return Err(SelectorError::Value { key: key.to_owned(), index, value: value.clone() });
        }
        let (key, values) = (key.to_owned(), values.iter().cloned().collect());
        Ok(match operator {
            "In" => Self::In(key, values),
            "NotIn" => Self::NotIn(key, values),
            "Exists" => Self::Exists(key),
            _ => Self::DoesNotExist(key),
        })
    }
}

/// A checked selector: all requirements must hold. Without any it matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Selector {
    requirements: Vec<Requirement>,
}

impl Selector {
    /// Matches everything.
    pub fn everything() -> Self {
        Self::default()
    }

    /// From a `LabelSelector`; the empty one matches everything, an absent one is the caller's to decide.
    pub fn from_label_selector(selector: &LabelSelector) -> Result<Self, SelectorError> {
        let mut requirements = Vec::new();
        for (key, value) in selector.match_labels.iter().flatten() {
            requirements.push(Requirement::new(key, "In", std::slice::from_ref(value))?);
        }
        for expression in selector.match_expressions.iter().flatten() {
            let values = expression.values.as_deref().unwrap_or_default();
            requirements.push(Requirement::new(&expression.key, &expression.operator, values)?);
        }
        requirements.sort();
        requirements.dedup();
        Ok(Self { requirements })
    }

    /// From the text form of `labelSelector=` in URLs: `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1,m<2`.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut requirements = Vec::new();
        for part in split_outside_brackets(text) {
            if !part.trim().is_empty() {
                requirements.push(parse_requirement(part.trim())?);
            }
        }
        requirements.sort();
        requirements.dedup();
        Ok(Self { requirements })
    }

    /// Whether labels meet all requirements.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.requirements.iter().all(|requirement| requirement.matches(labels))
    }

    /// The requirements, sorted.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// True when it matches everything.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }
}

/// The text form that [`Selector::parse`] reads.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let join = |values: &BTreeSet<String>| values.iter().map(String::as_str).collect::<Vec<_>>().join(",");
        for (index, requirement) in self.requirements.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            match requirement {
                Requirement::In(key, values) if values.len() == 1 => write!(f, "{key}={}", join(values))?,
                Requirement::In(key, values) => write!(f, "{key} in ({})", join(values))?,
                Requirement::NotIn(key, values) => write!(f, "{key} notin ({})", join(values))?,
                Requirement::Exists(key) => f.write_str(key)?,
                Requirement::DoesNotExist(key) => write!(f, "!{key}")?,
                Requirement::Gt(key, bound) => write!(f, "{key}>{bound}")?,
                Requirement::Lt(key, bound) => write!(f, "{key}<{bound}")?,
            }
        }
        Ok(())
    }
}

fn split_outside_brackets(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0usize, 0usize);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn parse_requirement(text: &str) -> Result<Requirement, SelectorError> {
    let fault = || SelectorError::Text { text: text.to_owned() };
    if let Some(key) = text.strip_prefix('!') {
        return Requirement::new(key.trim(), "DoesNotExist", &[]);
    }
    let one = |value: &str| vec![value.trim().to_owned()];
    if let Some((key, value)) = text.split_once("!=") {
        return Requirement::new(key.trim(), "NotIn", &one(value));
    }
    if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return Requirement::new(key.trim(), "In", &one(value));
    }
    if let Some(inner) = text.strip_suffix(')') {
        let (head, list) = inner.split_once('(').ok_or_else(fault)?;
        let (key, word) = head.trim_end().rsplit_once(char::is_whitespace).ok_or_else(fault)?;
        let operator = match word {
            "in" => "In",
            "notin" => "NotIn",
            _ => return Err(fault()),
        };
        let values: Vec<String> = list.split(',').map(|value| value.trim().to_owned()).collect();
        return Requirement::new(key.trim(), operator, &values);
    }
    if let Some((at, sign)) = text.char_indices().find(|(_, c)| matches!(c, '<' | '>')) {
        let (key, value) = (text[..at].trim(), text[at + 1..].trim());
        let number = value.parse().map_err(|_| SelectorError::Number { key: key.to_owned(), value: value.to_owned() })?;
        if !is_label_key(key) {
            return Err(SelectorError::Key { key: key.to_owned() });
        }
        return Ok(if sign == '<' { Requirement::Lt(key.to_owned(), number) } else { Requirement::Gt(key.to_owned(), number) });
    }
    if text.contains(char::is_whitespace) {
        return Err(fault());
    }
    Requirement::new(text, "Exists", &[])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn clusters() -> BTreeMap<&'static str, BTreeMap<String, String>> {
        // The stage of the recorded case "affinity expressions".
        let rows: [(&str, &[(&str, &str)]); 5] = [
            ("aster", &[("soil", "clay"), ("sun", "full")]),
            ("birch", &[("soil", "clay"), ("sun", "half")]),
            ("cedar", &[("soil", "sand")]),
            ("dahlia", &[("soil", "loam"), ("sun", "full")]),
            ("elm", &[("sun", "none")]),
        ];
        rows.into_iter()
            .map(|(name, labels)| (name, labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()))
            .collect()
    }

    fn selector(value: serde_json::Value) -> Result<Selector, SelectorError> {
        Selector::from_label_selector(&serde_json::from_value(value).expect("a label selector"))
    }

    #[test]
    fn recorded_affinities() {
        for (value, names) in [
            (json!({"matchExpressions": [{"key": "soil", "operator": "In", "values": ["clay", "loam"]}]}), "aster birch dahlia"),
            (json!({"matchExpressions": [{"key": "soil", "operator": "NotIn", "values": ["clay"]}]}), "cedar dahlia elm"),
            (json!({"matchExpressions": [{"key": "sun", "operator": "Exists"}]}), "aster birch dahlia elm"),
            (json!({"matchExpressions": [{"key": "sun", "operator": "DoesNotExist"}]}), "cedar"),
            (json!({"matchLabels": {"soil": "clay"}, "matchExpressions": [{"key": "sun", "operator": "NotIn", "values": ["half"]}]}), "aster"),
            (
                json!({"matchExpressions": [{"key": "soil", "operator": "Exists"}, {"key": "sun", "operator": "NotIn", "values": ["full", "half"]}]}),
                "cedar",
            ),
            (json!({}), "aster birch cedar dahlia elm"),
        ] {
            let selector = selector(value).expect("valid");
            let found: Vec<&str> = clusters().iter().filter(|(_, labels)| selector.matches(labels)).map(|(name, _)| *name).collect();
            assert_eq!(found.join(" "), names, "{selector}");
            assert_eq!(Selector::parse(&selector.to_string()), Ok(selector));
        }
    }

    #[test]
    fn recorded_faults() {
        for (value, text) in [
            (json!({"matchExpressions": [{"key": "soil", "operator": "Near", "values": ["clay"]}]}), "\"Near\" is not a valid"),
            (json!({"matchExpressions": [{"key": "soil", "operator": "In"}]}), "can't be empty"),
            (json!({"matchExpressions": [{"key": "soil", "operator": "Exists", "values": ["clay"]}]}), "must be empty"),
            (json!({"matchExpressions": [{"key": "so il", "operator": "Exists"}]}), "key: Invalid value: \"so il\""),
            (json!({"matchLabels": {"soil": "wet clay"}}), "values[0][soil]: Invalid value: \"wet clay\""),
        ] {
            let fault = selector(value).expect_err("refused").to_string();
            assert!(fault.contains(text), "{fault}");
        }
    }

    #[test]
    fn text_form() {
        let labels = BTreeMap::from([("a".to_owned(), "5".to_owned()), ("b".to_owned(), String::new())]);
        for (text, holds) in [
            ("", true),
            ("a", true),
            ("!a", false),
            ("a=5", true),
            ("a==5,b", true),
            ("a!=5", false),
            ("c!=5", true),
            ("a in (4, 5)", true),
            ("a notin (4,5)", false),
            ("a>4", true),
            ("a<5", false),
            ("b=", true),
        ] {
            assert_eq!(Selector::parse(text).map(|s| s.matches(&labels)), Ok(holds), "{text}");
        }
        for bad in ["a b", "a near (b)", "a in (b", "a>x", "=", "a in ()x"] {
            assert!(Selector::parse(bad).is_err(), "{bad}");
        }
    }
}
