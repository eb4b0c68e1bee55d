//! What clients look for in the documents.

use super::*;
use serde_json::{Value, json};

/// Every reference of a document points to a schema it has.
fn references_hold(doc: &Value, prefix: &str, at: &str) {
    fn walk<'v>(v: &'v Value, out: &mut Vec<&'v str>) {
        match v {
            Value::Object(o) => {
                if let Some(Value::String(r)) = o.get("$ref") {
                    out.push(r);
                }
                o.values().for_each(|x| walk(x, out));
            }
            Value::Array(a) => a.iter().for_each(|x| walk(x, out)),
            _ => {}
        }
    }
    let mut refs = Vec::new();
    walk(doc, &mut refs);
    let names = doc.pointer(at).and_then(Value::as_object).expect("schemas");
    for r in refs {
        let name = r.strip_prefix(prefix).unwrap_or_else(|| panic!("{r} does not begin with {prefix}"));
        assert!(names.contains_key(name), "{r}");
    }
}

#[test]
fn every_group_version_has_a_sound_document() {
    let mut seen = std::collections::BTreeSet::new();
    for r in crate::catalog::resources() {
        if seen.insert((r.group, r.version)) {
            let doc = native(r.group, r.version).expect("document");
            references_hold(&doc, "#/components/schemas/", "/components/schemas");
        }
    }
    assert!(native("nobody", "v1").is_none());
}

#[test]
fn what_kubectl_reads() {
    let doc = native("apps", "v1").expect("document");
    let patch = &doc["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
    assert_eq!(patch["x-kubernetes-group-version-kind"], json!({"group": "apps", "version": "v1", "kind": "Deployment"}));
    assert!(patch["parameters"].as_array().is_some_and(|p| p.iter().any(|q| q["name"] == "fieldValidation")));
    assert!(patch["requestBody"]["content"].get("application/strategic-merge-patch+json").is_some());
    let spec = &doc["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"];
    assert_eq!(spec["properties"]["containers"]["x-kubernetes-patch-merge-key"], "name");
    assert!(spec["description"].as_str().is_some_and(|d| !d.is_empty()));
    assert_eq!(doc["components"]["schemas"]["io.k8s.api.apps.v1.Deployment"]["x-kubernetes-group-version-kind"][0]["kind"], "Deployment");
    assert_eq!(doc.to_string(), native("apps", "v1").expect("again").to_string());
}

#[test]
fn custom_kinds_and_v2() {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "description": "what", "properties": {"a": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}}}}});
    let k = CustomKind { plural: "ts", kind: "T", list_kind: "TList", namespaced: true, schema: Some(&schema), status: true, scale: false };
    let doc = custom("e.io", "v1", std::slice::from_ref(&k));
    references_hold(&doc, "#/components/schemas/", "/components/schemas");
    assert_eq!(doc["components"]["schemas"]["io.e.v1.T"]["properties"]["spec"]["description"], "what");
    assert!(doc["paths"].get("/apis/e.io/v1/namespaces/{namespace}/ts/{name}/status").is_some());
    let two = v2(&[("e.io", "v1", vec![k])]);
    references_hold(&two, "#/definitions/", "/definitions");
    assert_eq!(two["definitions"]["io.e.v1.T"]["x-kubernetes-group-version-kind"][0]["kind"], "T");
}
