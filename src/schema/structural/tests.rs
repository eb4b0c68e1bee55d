//! Custom kinds: pruning, defaulting, faults, ratcheting.

use crate::Kind;
use serde_json::{Value, json};

fn kind(schema: Value) -> Kind {
    let crd = json!({"spec": {"group": "e.io", "scope": "Namespaced", "names": {"kind": "T", "plural": "ts"}, "versions": [
        {"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": schema}}]}});
    Kind::custom(&crd, "v1").expect("structural")
}

fn sample() -> Kind {
    kind(json!({"type": "object", "properties": {"spec": {"type": "object", "required": ["size"], "properties": {
        "size": {"type": "integer", "minimum": 1}, "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
        "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 3},
        "items": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "integer", "maximum": 5}}}},
        "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}, "port": {"x-kubernetes-int-or-string": true}}},
        "status": {"type": "object", "properties": {"ok": {"type": "boolean"}}}}}))
}

fn object(spec: Value) -> Value {
    json!({"apiVersion": "e.io/v1", "kind": "T", "metadata": {"name": "a", "namespace": "n"}, "spec": spec})
}

fn words(k: &Kind, spec: Value) -> Vec<String> {
    k.validate_create(&object(spec)).iter().map(ToString::to_string).collect()
}

#[test]
fn prunes_and_defaults() {
    let k = sample();
    let mut d = k.decode(object(json!({"size": 1, "foo": 1, "any": {"x": {"y": 1}}, "items": [{"k": "a", "z": 1}]}))).expect("reads");
    assert_eq!(d.unknown, [r#"unknown field "spec.foo""#, r#"unknown field "spec.items[0].z""#]);
    k.default(&mut d.object);
    assert_eq!(d.object["spec"], json!({"size": 1, "mode": "a", "any": {"x": {"y": 1}}, "items": [{"k": "a"}]}));
}

#[test]
fn metadata_of_embedded_objects_has_its_own_type() {
    let k = kind(json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"template": {
        "type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}}}}}}));
    let embedded = json!({"apiVersion": "foo/v1", "kind": "Sub", "metadata": {"name": "x", "labels": {"a": "b"}, "unheard": 1}});
    let read = k.decode(object(json!({"template": embedded}))).expect("reads");
    assert_eq!(read.unknown, [r#"unknown field "spec.template.metadata.unheard""#]);
    assert_eq!(read.object["spec"]["template"]["metadata"], json!({"name": "x", "labels": {"a": "b"}}));
}

#[test]
fn faults_in_the_words_of_a_server() {
    let k = sample();
    assert_eq!(words(&k, json!({})), ["spec.size: Required value"]);
    assert_eq!(words(&k, json!({"size": 0})), ["spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1"]);
    assert_eq!(words(&k, json!({"size": "x"})), [r#"spec.size: Invalid value: "string": spec.size in body must be of type integer: "string""#]);
    assert_eq!(words(&k, json!({"size": 1, "mode": "c"})), [r#"spec.mode: Unsupported value: "c": supported values: "a", "b""#]);
    assert_eq!(words(&k, json!({"size": 1, "name": "A"})), [r#"spec.name: Invalid value: "A": spec.name in body should match '^[a-z]+$'"#]);
    assert_eq!(words(&k, json!({"size": 1, "name": "abcd"})), ["spec.name: Too long: may not be more than 3 bytes"]);
    assert_eq!(words(&k, json!({"size": 1, "items": [{"k": "a"}, {"k": "a"}]})), [r#"spec.items[1]: Duplicate value: {"k":"a"}"#]);
    assert_eq!(words(&k, json!({"size": 1, "port": true})), [r#"spec.port: Invalid value: "boolean": spec.port in body must be of type integer,string: "boolean""#]);
}

#[test]
fn unchanged_faults_are_forgiven_where_elements_correspond() {
    let k = sample();
    let old = object(json!({"size": 0, "items": [{"k": "a", "v": 9}]}));
    assert!(k.validate_update(&object(json!({"size": 0, "items": [{"k": "a", "v": 9}, {"k": "b"}], "mode": "b"})), &old, None).is_empty());
    assert_eq!(k.validate_update(&object(json!({"size": 0, "items": [{"k": "a", "v": 10}]})), &old, None).len(), 1);
}

#[test]
fn status_is_another_door() {
    let k = sample();
    let mut old = object(json!({"size": 1}));
    old["metadata"]["generation"] = json!(3);
    let mut new = object(json!({"size": 2}));
    new["status"] = json!({"ok": true});
    let mut via = new.clone();
    k.prepare_update(&mut via, &old, Some("status"));
    assert_eq!((via["spec"]["size"].clone(), via["status"].clone(), via["metadata"]["generation"].clone()), (json!(1), json!({"ok": true}), json!(3)));
    k.prepare_update(&mut new, &old, None);
    assert_eq!((new.get("status"), new["metadata"]["generation"].clone()), (None, json!(4)));
}

#[test]
fn schemas_that_are_not_structural() {
    let crd = |schema: Value| {
        let c = json!({"spec": {"group": "e.io", "names": {"kind": "T"}, "versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]}});
        Kind::custom(&c, "v1").expect_err("faults").iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let p = "spec.validation.openAPIV3Schema";
    assert_eq!(crd(json!({"properties": {}})), [format!("{p}.type: Required value: must not be empty at the root")]);
    assert_eq!(
        crd(json!({"type": "object", "properties": {"a": {"items": {}, "type": "array"}}})),
        [format!("{p}.properties[a].items.type: Required value: must not be empty for specified array items")]
    );
    assert_eq!(
        crd(json!({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"}}})),
        [format!("{p}.properties[a].x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map")]
    );
}

fn ruled(spec: Value) -> Value {
    json!({"spec": {"group": "e.io", "scope": "Namespaced", "names": {"kind": "T", "plural": "ts"}, "versions": [
        {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}]}})
}

#[test]
fn rules_run_with_old_values_and_messages() {
    let crd = ruled(json!({"type": "object",
        "properties": {"min": {"type": "integer"}, "max": {"type": "integer"}, "id": {"type": "string", "maxLength": 10, "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "id is immutable"}]}},
        "x-kubernetes-validations": [{"rule": "self.min <= self.max"}, {"rule": "!has(self.id) || self.id != 'x'", "messageExpression": "'not ' + self.id", "fieldPath": ".id", "reason": "FieldValueForbidden"}]}));
    let k = Kind::custom(&crd, "v1").expect("kind");
    let w = |spec: Value| k.validate_create(&object(spec)).iter().map(ToString::to_string).collect::<Vec<_>>();
    assert!(w(json!({"min": 1, "max": 2, "id": "a"})).is_empty());
    assert_eq!(w(json!({"min": 3, "max": 2})), ["spec: Invalid value: failed rule: self.min <= self.max"]);
    assert_eq!(w(json!({"min": 1, "max": 2, "id": "x"})), ["spec.id: Forbidden: not x"]);
    let old = object(json!({"min": 1, "max": 2, "id": "a"}));
    let f = k.validate_update(&object(json!({"min": 1, "max": 2, "id": "b"})), &old, None);
    assert_eq!(f.iter().map(ToString::to_string).collect::<Vec<_>>(), [r#"spec.id: Invalid value: "b": id is immutable"#]);
}

#[test]
fn rules_are_checked_with_the_crd() {
    let check = |rule: &str| {
        let crd = ruled(json!({"type": "object", "properties": {"list": {"type": "array", "items": {"type": "string"}}, "n": {"type": "integer"}}, "x-kubernetes-validations": [{"rule": rule}]}));
        super::check_crd(&crd).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert!(check("self.n > 0").is_empty());
    assert!(check("self.nothing > 0")[0].contains("undefined field 'nothing'"), "{:?}", check("self.nothing > 0"));
    assert!(check("self.n = 1")[0].contains("Syntax error"));
    assert!(check("self.n")[0].contains("must evaluate to a bool"));
    assert!(check("self.n == 'a'")[0].contains("found no matching overload"));
    assert!(check("self.list.all(a, self.list.all(b, a == b))")[0].contains("estimated rule cost exceeds budget by factor of more than 100x"));
}

#[test]
fn a_rule_shows_only_single_values() {
    let rule = |reason: &str| json!([{"rule": "self.size() < 2", "message": "too much", "reason": reason}]);
    let spec = json!({"type": "object", "properties": {
        "text": {"type": "string", "maxLength": 9, "x-kubernetes-validations": rule("FieldValueInvalid")},
        "list": {"type": "array", "maxItems": 9, "items": {"type": "string"}, "x-kubernetes-validations": rule("FieldValueInvalid")},
        "map": {"type": "object", "maxProperties": 9, "additionalProperties": {"type": "string"}, "x-kubernetes-validations": rule("FieldValueDuplicate")},
    }, "x-kubernetes-validations": [{"rule": "self.text.size() < 2", "message": "placed", "fieldPath": ".text"}]});
    let kind = Kind::custom(&ruled(spec), "v1").expect("kind");
    let faults = kind.validate_create(&object(json!({"text": "ab", "list": ["a", "b"], "map": {"a": "1", "b": "2"}})));
    let mut texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
    texts.sort();
    // As kube-apiserver 1.37 says it.
    let expected = [
        "spec.list: Invalid value: too much",
        "spec.map: Duplicate value",
        r#"spec.text: Invalid value: "ab": too much"#,
        "spec.text: Invalid value: placed",
    ];
    assert_eq!(texts, expected);
}
