//! OpenAPI documents put together from pieces.

use std::collections::BTreeMap;

use http::{HeaderMap, Method, Request};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::basics::Bench;
use crate::wire::{Field, Reader};
use crate::{Identity, body};

const BINARY: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

fn crd(group: &str, versions: &[(&str, Value)]) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .enumerate()
        .map(|(i, (name, schema))| json!({"name": name, "served": true, "storage": i == 0, "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}}))
        .collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": format!("things.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}, "versions": versions},
    })
}

fn schema(field: &str) -> Value {
    json!({"type": "object", "description": format!("has {field}"), "properties": {"spec": {"type": "object", "properties": {field: {"type": "string"}}}}})
}

async fn ask(bench: &Bench, path: &str, headers: &[(&str, &str)]) -> (u16, HeaderMap, Vec<u8>) {
    let mut request = Request::builder().method(Method::GET).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = bench.0.request(Identity::master("admin"), request.body(body::full("")).unwrap()).await;
    let (parts, body) = response.into_parts();
    (parts.status.as_u16(), parts.headers, body.collect().await.unwrap().to_bytes().to_vec())
}

/// The definitions of a protobuf document with their descriptions, and how many paths it has.
fn read_binary(bytes: &[u8]) -> (BTreeMap<String, String>, usize) {
    let (mut definitions, mut paths) = (BTreeMap::new(), 0);
    let mut top = Reader::new(bytes);
    while let Some((number, field)) = top.field().unwrap() {
        let (8 | 9, Field::Bytes(inner)) = (number, field) else { continue };
        let mut named = Reader::new(inner);
        while let Some((_, Field::Bytes(pair))) = named.field().unwrap() {
            let mut pair = Reader::new(pair);
            let (Some((1, name)), Some((2, Field::Bytes(value)))) = (pair.field().unwrap(), pair.field().unwrap()) else { panic!("a name and a value") };
            if number == 8 {
                paths += 1;
                continue;
            }
            let mut description = String::new();
            let mut value = Reader::new(value);
            while let Some((number, field)) = value.field().unwrap() {
                if number == 4 {
                    description = field.text().unwrap();
                }
            }
            assert!(definitions.insert(name.text().unwrap(), description).is_none(), "said twice");
        }
    }
    (definitions, paths)
}

#[tokio::test]
async fn a_definition_changes_its_own_part() {
    let bench = Bench::new().await;
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let (_, before, plain) = ask(&bench, "/openapi/v2", &[]).await;
    let native: Value = serde_json::from_slice(&plain).unwrap();
    for (group, versions) in [("one.io", vec![("v1", schema("a")), ("v2", schema("b"))]), ("two.io", vec![("v1", schema("c"))])] {
        let (code, said) = bench.post(crds, crd(group, &versions)).await;
        assert_eq!(code, 201, "{said}");
    }
    let (code, headers, plain) = ask(&bench, "/openapi/v2", &[]).await;
    assert_eq!(code, 200);
    assert_ne!(headers["etag"], before["etag"]);
    let document: Value = serde_json::from_slice(&plain).unwrap();
    for (name, field) in [("io.one.v1.Thing", "a"), ("io.one.v2.Thing", "b"), ("io.two.v1.Thing", "c")] {
        assert_eq!(document["definitions"][name]["properties"]["spec"]["properties"][field]["type"], "string");
        assert!(document["definitions"].get(format!("{name}List")).is_some());
    }
    assert_eq!(document["paths"]["/apis/two.io/v1/namespaces/{namespace}/things/{name}/status"]["get"]["operationId"], "readTwoV1NamespacedThingStatus");
    let count = |v: &Value, field: &str| v[field].as_object().unwrap().len();
    assert_eq!(count(&document, "definitions"), count(&native, "definitions") + 6);

    // The same in protobuf.
    let (code, binary, bytes) = ask(&bench, "/openapi/v2", &[("accept", BINARY)]).await;
    assert_eq!((code, binary["content-type"].to_str().unwrap()), (200, "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"));
    assert_ne!(binary["etag"], headers["etag"], "two forms, two tags");
    let (definitions, paths) = read_binary(&bytes);
    assert_eq!(definitions.keys().cloned().collect::<Vec<_>>(), { let mut names: Vec<String> = document["definitions"].as_object().unwrap().keys().cloned().collect(); names.sort(); names });
    assert_eq!(definitions["io.one.v2.Thing"], "has b");
    assert_eq!(paths, count(&document, "paths"));
    let (_, packed, zipped) = ask(&bench, "/openapi/v2", &[("accept", BINARY), ("accept-encoding", "gzip")]).await;
    assert_eq!(packed["content-encoding"], "gzip");
    assert_eq!(crate::pieces::unzip(&zipped), bytes);

    // Who has it already gets nothing.
    for (accept, tag) in [(BINARY, &binary["etag"]), ("application/json", &headers["etag"])] {
        let (code, again, nothing) = ask(&bench, "/openapi/v2", &[("accept", accept), ("if-none-match", tag.to_str().unwrap())]).await;
        assert_eq!((code, again["etag"].clone(), nothing.len()), (304, tag.clone(), 0));
    }

    // A change of one definition: its own words change, those of others keep their tag.
    let (_, other, _) = ask(&bench, "/openapi/v3/apis/two.io/v1", &[]).await;
    let (_, own, v3) = ask(&bench, "/openapi/v3/apis/one.io/v1", &[]).await;
    let v3: Value = serde_json::from_slice(&v3).unwrap();
    assert!(v3["components"]["schemas"].get("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta").is_some());
    assert_eq!(v3["components"]["schemas"]["io.one.v1.Thing"]["description"], "has a");
    assert!(v3["paths"].get("/apis/one.io/v1/things").is_some());
    let (code, said) = bench.merge(&format!("{crds}/things.one.io"), json!({"spec": {"versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema("new")}}]}})).await;
    assert_eq!(code, 200, "{said}");
    assert_eq!(ask(&bench, "/openapi/v3/apis/two.io/v1", &[]).await.1["etag"], other["etag"]);
    assert_ne!(ask(&bench, "/openapi/v3/apis/one.io/v1", &[]).await.1["etag"], own["etag"]);
    assert_eq!(ask(&bench, "/openapi/v3/apis/one.io/v2", &[]).await.0, 404);
    let (definitions, _) = read_binary(&ask(&bench, "/openapi/v2", &[("accept", BINARY)]).await.2);
    assert_eq!((definitions["io.one.v1.Thing"].as_str(), definitions.get("io.one.v2.Thing")), ("has new", None));
    assert_eq!(definitions["io.two.v1.Thing"], "has c");

    // Without them it is what it was.
    for group in ["one.io", "two.io"] {
        bench.delete(&format!("{crds}/things.{group}")).await;
    }
    let mut last = ask(&bench, "/openapi/v2", &[]).await;
    for _ in 0..200 {
        if last.1["etag"] == before["etag"] {
            break;
        }
        tokio::task::yield_now().await;
        last = ask(&bench, "/openapi/v2", &[("if-none-match", last.1["etag"].to_str().unwrap())]).await;
    }
    assert_eq!(last.1["etag"], before["etag"]);
}
