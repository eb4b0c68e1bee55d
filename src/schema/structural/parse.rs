//! Reads a CRD's `JSONSchemaProps` into a tree that defaulting, pruning and validation walk.

use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Closed list of JSON schema types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// `object`
    Object,
    /// `array`
    Array,
    /// `string`
    String,
    /// `integer`
    Integer,
    /// `number`
    Number,
    /// `boolean`
    Boolean,
}

impl Type {
    pub(crate) fn of(s: &str) -> Option<Self> {
        Some(match s {
            "object" => Self::Object,
            "array" => Self::Array,
            "string" => Self::String,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            _ => return None,
        })
    }
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }
}

/// `additionalProperties`.
#[derive(Clone, Debug)]
pub enum Additional {
    /// Any or none.
    Allowed(bool),
    /// Values of this schema.
    Schema(Box<Schema>),
}

/// A rule of `x-kubernetes-validations`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleText {
    /// The CEL expression.
    pub rule: String,
    /// Message when it fails.
    pub message: String,
    /// CEL expression that computes the message.
    pub message_expression: String,
    /// Machine-readable reason.
    pub reason: String,
    /// Field the fault is reported at, relative to the schema.
    pub field_path: String,
    /// Whether a transition rule also runs without old value.
    pub optional_old_self: Option<bool>,
}

/// Limits on a value.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    pub(crate) format: Option<String>,
    pub(crate) maximum: Option<f64>,
    pub(crate) minimum: Option<f64>,
    pub(crate) exclusive_maximum: bool,
    pub(crate) exclusive_minimum: bool,
    pub(crate) max_length: Option<u64>,
    pub(crate) min_length: Option<u64>,
    pub(crate) pattern: Option<String>,
    pub(crate) regex: Option<regex::Regex>,
    pub(crate) max_items: Option<u64>,
    pub(crate) min_items: Option<u64>,
    pub(crate) unique_items: bool,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) max_properties: Option<u64>,
    pub(crate) min_properties: Option<u64>,
    pub(crate) required: Vec<String>,
    pub(crate) enumeration: Option<Vec<Value>>,
    pub(crate) all_of: Vec<Schema>,
    pub(crate) any_of: Vec<Schema>,
    pub(crate) one_of: Vec<Schema>,
    pub(crate) not: Option<Box<Schema>>,
}

/// One schema of the tree.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    /// Its type.
    pub ty: Option<Type>,
    /// null is allowed.
    pub nullable: bool,
    /// Default value.
    pub default: Option<Value>,
    /// Named fields.
    pub properties: BTreeMap<String, Schema>,
    /// Other fields.
    pub additional: Option<Additional>,
    /// List elements.
    pub items: Option<Box<Schema>>,
    /// Unknown fields are kept.
    pub preserve: bool,
    /// A whole Kubernetes object.
    pub embedded: bool,
    /// Integer or string.
    pub int_or_string: bool,
    /// `atomic`, `set` or `map`.
    pub list_type: Option<String>,
    /// Keys of a `map` list.
    pub list_map_keys: Vec<String>,
    /// `atomic` or `granular`.
    pub map_type: Option<String>,
    /// CEL rules.
    pub rules: Vec<RuleText>,
    /// Limits of the value.
    pub limits: Limits,
}

impl Schema {
    /// Reads a schema; what is no JSONSchemaProps is ignored here and refused by the CRD's own validation.
    pub fn parse(v: &Value) -> Self {
        let empty = Map::new();
        let o = v.as_object().unwrap_or(&empty);
        let flag = |k: &str| o.get(k).and_then(Value::as_bool).unwrap_or(false);
        let text = |k: &str| o.get(k).and_then(Value::as_str).filter(|s| !s.is_empty()).map(str::to_owned);
        let count = |k: &str| o.get(k).and_then(Value::as_u64);
        let list = |k: &str| o.get(k).and_then(Value::as_array).into_iter().flatten().map(Self::parse).collect::<Vec<_>>();
        let strings = |k: &str| {
            o.get(k).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
        };
        let additional = match o.get("additionalProperties") {
            Some(Value::Bool(b)) => Some(Additional::Allowed(*b)),
            Some(s @ Value::Object(_)) => Some(Additional::Schema(Box::new(Self::parse(s)))),
            _ => None,
        };
        let pattern = text("pattern");
        Self {
            ty: o.get("type").and_then(Value::as_str).and_then(Type::of),
            nullable: flag("nullable"),
            default: o.get("default").filter(|d| !d.is_null()).cloned(),
            properties: o.get("properties").and_then(Value::as_object).into_iter().flatten().map(|(k, s)| (k.clone(), Self::parse(s))).collect(),
            additional,
            items: o.get("items").filter(|i| i.is_object()).map(|i| Box::new(Self::parse(i))),
            preserve: flag("x-kubernetes-preserve-unknown-fields"),
            embedded: flag("x-kubernetes-embedded-resource"),
            int_or_string: flag("x-kubernetes-int-or-string"),
            list_type: text("x-kubernetes-list-type"),
            list_map_keys: strings("x-kubernetes-list-map-keys"),
            map_type: text("x-kubernetes-map-type"),
            rules: o.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten().map(rule).collect(),
            limits: Limits {
                format: text("format"),
                maximum: o.get("maximum").and_then(Value::as_f64),
                minimum: o.get("minimum").and_then(Value::as_f64),
                exclusive_maximum: flag("exclusiveMaximum"),
                exclusive_minimum: flag("exclusiveMinimum"),
                max_length: count("maxLength"),
                min_length: count("minLength"),
                regex: pattern.as_deref().and_then(crate::text::go_regex),
                pattern,
                max_items: count("maxItems"),
                min_items: count("minItems"),
                unique_items: flag("uniqueItems"),
                multiple_of: o.get("multipleOf").and_then(Value::as_f64),
                max_properties: count("maxProperties"),
                min_properties: count("minProperties"),
                required: strings("required"),
                enumeration: o.get("enum").and_then(Value::as_array).cloned(),
                all_of: list("allOf"),
                any_of: list("anyOf"),
                one_of: list("oneOf"),
                not: o.get("not").filter(|n| n.is_object()).map(|n| Box::new(Self::parse(n))),
            },
        }
    }

    /// The schema of a field or entry of this name.
    pub fn child(&self, name: &str) -> Option<&Schema> {
        self.properties.get(name).or(match &self.additional {
            Some(Additional::Schema(s)) => Some(s),
            _ => None,
        })
    }

    /// Whether any schema of the tree has CEL rules.
    pub fn has_rules(&self) -> bool {
        !self.rules.is_empty()
            || self.properties.values().any(Self::has_rules)
            || self.items.as_deref().is_some_and(Self::has_rules)
            || matches!(&self.additional, Some(Additional::Schema(s)) if s.has_rules())
    }
}

fn rule(v: &Value) -> RuleText {
    let text = |k: &str| v.get(k).and_then(Value::as_str).unwrap_or_default().to_owned();
    RuleText {
        rule: text("rule"),
        message: text("message"),
        message_expression: text("messageExpression"),
        reason: text("reason"),
        field_path: text("fieldPath"),
        optional_old_self: v.get("optionalOldSelf").and_then(Value::as_bool),
    }
}
