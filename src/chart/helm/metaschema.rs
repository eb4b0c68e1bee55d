//! What a values.schema.json itself must look like: the metaschemas of the drafts of JSON Schema, as far as they can refuse something.
//!
//! Source: the drafts' own documents at <https://json-schema.org/specification-links>, written anew; `$recursiveRef` and `$dynamicRef`
//! are plain references here, since nothing extends these.

use std::sync::LazyLock;

use serde_json::Value;

use super::schema::Prepared;

/// Name of a draft's metaschema, and the draft that it is written in.
pub(super) struct Draft {
    pub(super) number: u16,
    pub(super) url: &'static str,
    schema: LazyLock<Option<Prepared>>,
}

impl Draft {
    /// The metaschema.
    pub(super) fn schema(&self) -> Option<&Prepared> {
        self.schema.as_ref()
    }
}

/// Latest first: a schema that names none is of the first.
static DRAFTS: [Draft; 5] = [
    Draft { number: 2020, url: "https://json-schema.org/draft/2020-12/schema", schema: LazyLock::new(|| read(2020, &latest(CORE_2020, APPLY_2020, Some(UNEVALUATED)))) },
    Draft { number: 2019, url: "https://json-schema.org/draft/2019-09/schema", schema: LazyLock::new(|| read(2019, &latest(CORE_2019, APPLY_2019, None))) },
    Draft { number: 7, url: "http://json-schema.org/draft-07/schema", schema: LazyLock::new(|| read(7, &earlier(DRAFT_7, ""))) },
    Draft { number: 6, url: "http://json-schema.org/draft-06/schema", schema: LazyLock::new(|| read(6, &earlier(DRAFT_6, r#", "minItems": 1, "uniqueItems": true"#))) },
    Draft { number: 4, url: "http://json-schema.org/draft-04/schema", schema: LazyLock::new(|| read(4, DRAFT_4)) },
];

/// The draft that a schema says it is of; none if nobody knows it.
pub(super) fn of(schema: &Value) -> Option<&'static Draft> {
    let Some(name) = schema.get("$schema").and_then(Value::as_str) else { return DRAFTS.first() };
    let plain = |url: &str| url.trim_end_matches('#').split_once("://").map_or(String::new(), |(_, rest)| rest.to_owned());
    DRAFTS.iter().find(|draft| plain(draft.url) == plain(name))
}

fn read(draft: u16, text: &str) -> Option<Prepared> {
    Some(Prepared::of(serde_json::from_str(text).ok()?, draft, true))
}

/// 2019-09 and 2020-12: one part for each vocabulary.
fn latest(core: &str, apply: &str, unevaluated: Option<&str>) -> String {
    let parts = [Some(("core", core)), Some(("apply", apply)), unevaluated.map(|u| ("unevaluated", u)), Some(("check", CHECK)), Some(("about", ABOUT)), Some(("format", FORMAT)), Some(("content", CONTENT))];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    let all: Vec<String> = parts.iter().map(|(name, _)| format!(r##"{{"$ref": "#/$defs/{name}"}}"##)).collect();
    let defs: Vec<String> = parts.iter().map(|(name, properties)| format!(r#""{name}": {{"type": ["object", "boolean"], "properties": {{{properties}}}}}"#)).collect();
    format!(
        r##"{{"type": ["object", "boolean"], "allOf": [{}], "properties": {{
            "definitions": {{"type": "object", "additionalProperties": {{"$ref": "#"}}}},
            "dependencies": {{"type": "object", "additionalProperties": {{"anyOf": [{{"$ref": "#"}}, {{"$ref": "#/$defs/strings"}}]}}}}
        }}, "$defs": {{{}, {SHARED}}}}}"##,
        all.join(", "),
        defs.join(", ")
    )
}

const SHARED: &str = r##"
    "schemas": {"type": "array", "minItems": 1, "items": {"$ref": "#"}},
    "map": {"type": "object", "additionalProperties": {"$ref": "#"}},
    "strings": {"type": "array", "items": {"type": "string"}, "uniqueItems": true},
    "count": {"type": "integer", "minimum": 0},
    "types": {"enum": ["array", "boolean", "integer", "null", "number", "object", "string"]}"##;

const CORE_2019: &str = r##"
    "$id": {"type": "string", "pattern": "^[^#]*#?$"}, "$schema": {"type": "string"}, "$ref": {"type": "string"}, "$recursiveRef": {"type": "string"},
    "$anchor": {"type": "string", "pattern": "^[A-Za-z][-A-Za-z0-9.:_]*$"}, "$recursiveAnchor": {"type": "boolean"},
    "$vocabulary": {"type": "object", "additionalProperties": {"type": "boolean"}}, "$comment": {"type": "string"}, "$defs": {"$ref": "#/$defs/map"}"##;

const CORE_2020: &str = r##"
    "$id": {"type": "string", "pattern": "^[^#]*#?$"}, "$schema": {"type": "string"}, "$ref": {"type": "string"}, "$dynamicRef": {"type": "string"},
    "$anchor": {"type": "string", "pattern": "^[A-Za-z_][-A-Za-z0-9._]*$"}, "$dynamicAnchor": {"type": "string", "pattern": "^[A-Za-z_][-A-Za-z0-9._]*$"},
    "$vocabulary": {"type": "object", "additionalProperties": {"type": "boolean"}}, "$comment": {"type": "string"}, "$defs": {"$ref": "#/$defs/map"}"##;

const APPLY_2019: &str = r##"
    "additionalItems": {"$ref": "#"}, "unevaluatedItems": {"$ref": "#"}, "items": {"anyOf": [{"$ref": "#"}, {"$ref": "#/$defs/schemas"}]}, "contains": {"$ref": "#"},
    "additionalProperties": {"$ref": "#"}, "unevaluatedProperties": {"$ref": "#"}, "properties": {"$ref": "#/$defs/map"},
    "patternProperties": {"type": "object", "additionalProperties": {"$ref": "#"}, "propertyNames": {"format": "regex"}},
    "dependentSchemas": {"$ref": "#/$defs/map"}, "propertyNames": {"$ref": "#"}, "if": {"$ref": "#"}, "then": {"$ref": "#"}, "else": {"$ref": "#"},
    "allOf": {"$ref": "#/$defs/schemas"}, "anyOf": {"$ref": "#/$defs/schemas"}, "oneOf": {"$ref": "#/$defs/schemas"}, "not": {"$ref": "#"}"##;

const APPLY_2020: &str = r##"
    "prefixItems": {"$ref": "#/$defs/schemas"}, "items": {"$ref": "#"}, "contains": {"$ref": "#"}, "additionalProperties": {"$ref": "#"}, "properties": {"$ref": "#/$defs/map"},
    "patternProperties": {"type": "object", "additionalProperties": {"$ref": "#"}, "propertyNames": {"format": "regex"}},
    "dependentSchemas": {"$ref": "#/$defs/map"}, "propertyNames": {"$ref": "#"}, "if": {"$ref": "#"}, "then": {"$ref": "#"}, "else": {"$ref": "#"},
    "allOf": {"$ref": "#/$defs/schemas"}, "anyOf": {"$ref": "#/$defs/schemas"}, "oneOf": {"$ref": "#/$defs/schemas"}, "not": {"$ref": "#"}"##;

const UNEVALUATED: &str = r##""unevaluatedItems": {"$ref": "#"}, "unevaluatedProperties": {"$ref": "#"}"##;

const CHECK: &str = r##"
    "type": {"anyOf": [{"$ref": "#/$defs/types"}, {"type": "array", "items": {"$ref": "#/$defs/types"}, "minItems": 1, "uniqueItems": true}]}, "enum": {"type": "array"},
    "multipleOf": {"type": "number", "exclusiveMinimum": 0}, "maximum": {"type": "number"}, "exclusiveMaximum": {"type": "number"},
    "minimum": {"type": "number"}, "exclusiveMinimum": {"type": "number"}, "maxLength": {"$ref": "#/$defs/count"}, "minLength": {"$ref": "#/$defs/count"},
    "pattern": {"type": "string", "format": "regex"}, "maxItems": {"$ref": "#/$defs/count"}, "minItems": {"$ref": "#/$defs/count"}, "uniqueItems": {"type": "boolean"},
    "maxContains": {"$ref": "#/$defs/count"}, "minContains": {"$ref": "#/$defs/count"}, "maxProperties": {"$ref": "#/$defs/count"}, "minProperties": {"$ref": "#/$defs/count"},
    "required": {"$ref": "#/$defs/strings"}, "dependentRequired": {"type": "object", "additionalProperties": {"$ref": "#/$defs/strings"}}"##;

const ABOUT: &str = r##"
    "title": {"type": "string"}, "description": {"type": "string"}, "deprecated": {"type": "boolean"}, "readOnly": {"type": "boolean"}, "writeOnly": {"type": "boolean"},
    "examples": {"type": "array"}"##;

const FORMAT: &str = r#""format": {"type": "string"}"#;

const CONTENT: &str = r##""contentMediaType": {"type": "string"}, "contentEncoding": {"type": "string"}, "contentSchema": {"$ref": "#"}"##;

/// Drafts 6 and 7: what they share, and what a draft has of its own.
fn earlier(own: &str, enums: &str) -> String {
    format!(
        r##"{{"type": ["object", "boolean"], "definitions": {{{}, "countFromZero": {{"allOf": [{{"$ref": "#/definitions/count"}}, {{"default": 0}}]}}}}, "properties": {{
            "$id": {{"type": "string"}}, "$schema": {{"type": "string"}}, "$ref": {{"type": "string"}}, "title": {{"type": "string"}}, "description": {{"type": "string"}},
            "multipleOf": {{"type": "number", "exclusiveMinimum": 0}}, "maximum": {{"type": "number"}}, "exclusiveMaximum": {{"type": "number"}},
            "minimum": {{"type": "number"}}, "exclusiveMinimum": {{"type": "number"}}, "maxLength": {{"$ref": "#/definitions/count"}}, "minLength": {{"$ref": "#/definitions/countFromZero"}},
            "pattern": {{"type": "string", "format": "regex"}}, "additionalItems": {{"$ref": "#"}}, "items": {{"anyOf": [{{"$ref": "#"}}, {{"$ref": "#/definitions/schemas"}}]}},
            "maxItems": {{"$ref": "#/definitions/count"}}, "minItems": {{"$ref": "#/definitions/countFromZero"}}, "uniqueItems": {{"type": "boolean"}}, "contains": {{"$ref": "#"}},
            "maxProperties": {{"$ref": "#/definitions/count"}}, "minProperties": {{"$ref": "#/definitions/countFromZero"}}, "required": {{"$ref": "#/definitions/strings"}},
            "additionalProperties": {{"$ref": "#"}}, "definitions": {{"$ref": "#/definitions/map"}}, "properties": {{"$ref": "#/definitions/map"}},
            "dependencies": {{"type": "object", "additionalProperties": {{"anyOf": [{{"$ref": "#"}}, {{"$ref": "#/definitions/strings"}}]}}}}, "propertyNames": {{"$ref": "#"}},
            "enum": {{"type": "array"{enums}}}, "type": {{"anyOf": [{{"$ref": "#/definitions/types"}}, {{"type": "array", "items": {{"$ref": "#/definitions/types"}}, "minItems": 1, "uniqueItems": true}}]}},
            "format": {{"type": "string"}}, "examples": {{"type": "array"}}, "allOf": {{"$ref": "#/definitions/schemas"}}, "anyOf": {{"$ref": "#/definitions/schemas"}},
            "oneOf": {{"$ref": "#/definitions/schemas"}}, "not": {{"$ref": "#"}}, {own}
        }}}}"##,
        SHARED.replace("#/$defs/", "#/definitions/")
    )
}

const DRAFT_6: &str = r##""patternProperties": {"$ref": "#/definitions/map"}"##;

const DRAFT_7: &str = r##"
    "$comment": {"type": "string"}, "readOnly": {"type": "boolean"}, "contentMediaType": {"type": "string"}, "contentEncoding": {"type": "string"},
    "patternProperties": {"type": "object", "additionalProperties": {"$ref": "#"}, "propertyNames": {"format": "regex"}},
    "if": {"$ref": "#"}, "then": {"$ref": "#"}, "else": {"$ref": "#"}"##;

const DRAFT_4: &str = r##"{"type": "object", "definitions": {
        "schemas": {"type": "array", "minItems": 1, "items": {"$ref": "#"}},
        "map": {"type": "object", "additionalProperties": {"$ref": "#"}},
        "strings": {"type": "array", "minItems": 1, "items": {"type": "string"}, "uniqueItems": true},
        "count": {"type": "integer", "minimum": 0},
        "countFromZero": {"allOf": [{"$ref": "#/definitions/count"}, {"default": 0}]},
        "types": {"enum": ["array", "boolean", "integer", "null", "number", "object", "string"]}
    }, "properties": {
        "id": {"type": "string"}, "$schema": {"type": "string"}, "title": {"type": "string"}, "description": {"type": "string"},
        "multipleOf": {"type": "number", "minimum": 0, "exclusiveMinimum": true}, "maximum": {"type": "number"}, "exclusiveMaximum": {"type": "boolean"},
        "minimum": {"type": "number"}, "exclusiveMinimum": {"type": "boolean"}, "maxLength": {"$ref": "#/definitions/count"}, "minLength": {"$ref": "#/definitions/countFromZero"},
        "pattern": {"type": "string", "format": "regex"}, "additionalItems": {"anyOf": [{"type": "boolean"}, {"$ref": "#"}]},
        "items": {"anyOf": [{"$ref": "#"}, {"$ref": "#/definitions/schemas"}]}, "maxItems": {"$ref": "#/definitions/count"}, "minItems": {"$ref": "#/definitions/countFromZero"},
        "uniqueItems": {"type": "boolean"}, "maxProperties": {"$ref": "#/definitions/count"}, "minProperties": {"$ref": "#/definitions/countFromZero"},
        "required": {"$ref": "#/definitions/strings"}, "additionalProperties": {"anyOf": [{"type": "boolean"}, {"$ref": "#"}]},
        "definitions": {"$ref": "#/definitions/map"}, "properties": {"$ref": "#/definitions/map"}, "patternProperties": {"$ref": "#/definitions/map"},
        "dependencies": {"type": "object", "additionalProperties": {"anyOf": [{"$ref": "#"}, {"$ref": "#/definitions/strings"}]}},
        "enum": {"type": "array", "minItems": 1, "uniqueItems": true},
        "type": {"anyOf": [{"$ref": "#/definitions/types"}, {"type": "array", "items": {"$ref": "#/definitions/types"}, "minItems": 1, "uniqueItems": true}]},
        "format": {"type": "string"}, "allOf": {"$ref": "#/definitions/schemas"}, "anyOf": {"$ref": "#/definitions/schemas"}, "oneOf": {"$ref": "#/definitions/schemas"}, "not": {"$ref": "#"}
    }, "dependencies": {"exclusiveMaximum": ["maximum"], "exclusiveMinimum": ["minimum"]}}"##;
