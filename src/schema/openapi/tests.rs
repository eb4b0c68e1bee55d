//! What clients look for in the documents.

use super::*;
use serde_json::{Value, json};

/// Every reference of the parts points to a schema they have, or to one of `more`.
fn references_hold(parts: &Parts, prefix: &str, more: &Map<String, Value>) {
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
    parts.paths.values().chain(parts.schemas.values()).chain(more.values()).for_each(|v| walk(v, &mut refs));
    assert!(!refs.is_empty());
    for r in refs {
        let name = r.strip_prefix(prefix).unwrap_or_else(|| panic!("{r} does not begin with {prefix}"));
        assert!(parts.schemas.contains_key(name) || more.contains_key(name), "{r}");
    }
}

#[test]
fn every_group_version_has_a_sound_document() {
    let all = natives();
    let mut seen = std::collections::BTreeSet::new();
    for r in crate::catalog::resources() {
        if seen.insert((r.group, r.version)) {
            let parts = native(r.group, r.version).expect("document");
            references_hold(&parts, "#/components/schemas/", &Map::new());
            // The whole says of every type what its group version says.
            for (name, schema) in &parts.schemas {
                assert_eq!(all.schemas.get(name), Some(schema), "{name}");
            }
            for (path, item) in &parts.paths {
                assert_eq!(all.paths.get(path), Some(item), "{path}");
            }
        }
    }
    assert!(native("nobody", "v1").is_none());
    references_hold(&all.into_v2(), "#/definitions/", &Map::new());
}

#[test]
fn frames_make_documents() {
    for frame in [frame_v2(), frame_v3()] {
        let doc: Value = serde_json::from_str(&frame.concat()).expect("JSON");
        assert!(doc["paths"].is_object());
    }
}

#[test]
fn what_kubectl_reads() {
    let doc = native("apps", "v1").expect("document");
    let patch = &doc.paths["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
    assert_eq!(patch["x-kubernetes-group-version-kind"], json!({"group": "apps", "version": "v1", "kind": "Deployment"}));
    assert!(patch["parameters"].as_array().is_some_and(|p| p.iter().any(|q| q["name"] == "fieldValidation")));
    assert!(patch["requestBody"]["content"].get("application/strategic-merge-patch+json").is_some());
    let spec = &doc.schemas["io.k8s.api.core.v1.PodSpec"];
    assert_eq!(spec["properties"]["containers"]["x-kubernetes-patch-merge-key"], "name");
    assert!(spec["description"].as_str().is_some_and(|d| !d.is_empty()));
    assert_eq!(doc.schemas["io.k8s.api.apps.v1.Deployment"]["x-kubernetes-group-version-kind"][0]["kind"], "Deployment");
}

#[test]
fn custom_kinds_and_v2() {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "description": "what", "properties": {"a": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}}}}});
    let k = CustomKind { plural: "ts", kind: "T", list_kind: "TList", namespaced: true, schema: Some(&schema), status: true, scale: false };
    let doc = own("e.io", "v1", std::slice::from_ref(&k));
    references_hold(&doc, "#/components/schemas/", &referred(false));
    assert_eq!(doc.schemas["io.e.v1.T"]["properties"]["spec"]["description"], "what");
    assert!(doc.paths.get("/apis/e.io/v1/namespaces/{namespace}/ts/{name}/status").is_some());
    let two = doc.into_v2();
    let Parts { schemas, .. } = Parts { paths: Map::new(), schemas: referred(false) }.into_v2();
    references_hold(&two, "#/definitions/", &schemas);
    assert_eq!(two.schemas["io.e.v1.T"]["x-kubernetes-group-version-kind"][0]["kind"], "T");
    let scaled = CustomKind { scale: true, ..k };
    references_hold(&own("e.io", "v1", &[scaled]), "#/components/schemas/", &referred(true));
}
