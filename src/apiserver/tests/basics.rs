//! Create, read, change, apply, watch, remove.

use http::{Method, Request};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use store::Store;

use crate::auth::Identity;
use crate::{ApiServer, Options, body};

/// A server and the ways to ask it.
pub(crate) struct Bench(pub(crate) ApiServer);

impl Bench {
    pub(crate) async fn new() -> Self {
        Self(ApiServer::build(Options::new(Store::memory())).await)
    }

    pub(crate) async fn send(&self, method: Method, path: &str, content_type: &str, value: &Value) -> (u16, Value) {
        let bytes = if value.is_null() { Vec::new() } else { serde_json::to_vec(value).unwrap() };
        let request = Request::builder().method(method).uri(path).header("content-type", content_type).body(body::full(bytes)).unwrap();
        let response = self.0.request(Identity::master("admin"), request).await;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&bytes).unwrap_or(Value::String(String::from_utf8_lossy(&bytes).into_owned())))
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        self.send(Method::GET, path, "", &Value::Null).await
    }

    pub(crate) async fn post(&self, path: &str, value: Value) -> (u16, Value) {
        self.send(Method::POST, path, "application/json", &value).await
    }

    pub(crate) async fn put(&self, path: &str, value: Value) -> (u16, Value) {
        self.send(Method::PUT, path, "application/json", &value).await
    }

    pub(crate) async fn merge(&self, path: &str, value: Value) -> (u16, Value) {
        self.send(Method::PATCH, path, "application/merge-patch+json", &value).await
    }

    pub(crate) async fn apply(&self, path: &str, value: Value) -> (u16, Value) {
        self.send(Method::PATCH, path, "application/apply-patch+yaml", &value).await
    }

    /// The events of a watch, until they are enough.
    pub(crate) async fn watch(&self, path: &str, enough: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let request = Request::builder().method(Method::GET).uri(path).body(body::full("")).unwrap();
        let mut body = self.0.request(Identity::master("admin"), request).await.into_body();
        let mut text = Vec::new();
        loop {
            let lines = text.split(|b| *b == b'\n').filter(|line: &&[u8]| !line.is_empty());
            let told: Vec<Value> = lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
            if enough(&told) {
                return told;
            }
            text.extend_from_slice(&body.frame().await.unwrap().unwrap().into_data().unwrap());
        }
    }

    pub(crate) async fn delete(&self, path: &str) -> (u16, Value) {
        self.send(Method::DELETE, path, "", &Value::Null).await
    }
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

#[tokio::test]
async fn an_object_lives_and_goes() {
    let bench = Bench::new().await;
    let (code, made) = bench.post(MAPS, map("a", json!({"k": "1"}))).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(made["metadata"]["namespace"], "default");
    let (code, again) = bench.post(MAPS, map("a", json!({}))).await;
    assert_eq!((code, &again["message"]), (409, &json!("configmaps \"a\" already exists")));
    let path = format!("{MAPS}/a");
    let (_, read) = bench.get(&path).await;
    assert_eq!(read, made);
    let mut stale = read.clone();
    stale["data"] = json!({"k": "2"});
    let (code, new) = bench.put(&path, stale.clone()).await;
    assert_eq!((code, &new["data"]["k"]), (200, &json!("2")));
    let (code, conflict) = bench.put(&path, { stale["data"] = json!({"k": "3"}); stale }).await;
    assert_eq!((code, &conflict["reason"]), (409, &json!("Conflict")));
    assert_eq!(
        conflict["message"],
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again"
    );
    let (code, same) = bench.merge(&path, json!({"data": {"k": "2"}})).await;
    assert_eq!((code, &same["metadata"]["resourceVersion"]), (200, &new["metadata"]["resourceVersion"]), "nothing changed, nothing is written");
    let (code, gone) = bench.delete(&path).await;
    assert_eq!((code, &gone["status"]), (200, &json!("Success")));
    let (code, missing) = bench.get(&path).await;
    assert_eq!((code, &missing["message"]), (404, &json!("configmaps \"a\" not found")));
    let (code, _) = bench.post("/api/v1/namespaces/nowhere/configmaps", map("a", json!({}))).await;
    assert_eq!(code, 404);
}

#[tokio::test]
async fn apply_owns_fields_and_meets_other_owners() {
    let bench = Bench::new().await;
    let path = format!("{MAPS}/a");
    let (code, made) = bench.apply(&format!("{path}?fieldManager=one"), map("a", json!({"x": "1", "y": "1"}))).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(made["metadata"]["managedFields"][0]["manager"], "one");
    let (code, conflict) = bench.apply(&format!("{path}?fieldManager=two"), map("a", json!({"x": "2"}))).await;
    assert_eq!(code, 409, "{conflict}");
    assert_eq!(conflict["message"], "Apply failed with 1 conflict: conflict with \"one\": .data.x");
    let (code, forced) = bench.apply(&format!("{path}?fieldManager=two&force=true"), map("a", json!({"x": "2"}))).await;
    assert_eq!((code, &forced["data"]), (200, &json!({"x": "2", "y": "1"})));
    let (code, less) = bench.apply(&format!("{path}?fieldManager=one"), map("a", json!({}))).await;
    assert_eq!((code, &less["data"]), (200, &json!({"x": "2"})), "{less}");
    let (code, same) = bench.apply(&format!("{path}?fieldManager=one"), map("a", json!({}))).await;
    assert_eq!((code, &same["metadata"]["resourceVersion"]), (200, &less["metadata"]["resourceVersion"]));
}

#[tokio::test]
async fn lists_page_select_and_expire() {
    let bench = Bench::new().await;
    for n in 0..7 {
        let mut object = map(&format!("m{n}"), json!({}));
        object["metadata"]["labels"] = json!({"odd": (n % 2 == 1).to_string()});
        bench.post(MAPS, object).await;
    }
    let (_, first) = bench.get(&format!("{MAPS}?limit=3")).await;
    assert_eq!((first["items"].as_array().unwrap().len(), &first["metadata"]["remainingItemCount"]), (3, &json!(4)));
    let next = first["metadata"]["continue"].as_str().unwrap();
    bench.delete(&format!("{MAPS}/m5")).await;
    let (_, second) = bench.get(&format!("{MAPS}?limit=9&continue={next}")).await;
    assert_eq!(second["items"].as_array().unwrap().len(), 4, "a continued list does not see later removals");
    let (_, odd) = bench.get(&format!("{MAPS}?labelSelector=odd%3Dtrue&limit=1")).await;
    assert_eq!(odd["items"][0]["metadata"]["name"], "m1");
    let (_, one) = bench.get(&format!("{MAPS}?fieldSelector=metadata.name%3Dm2")).await;
    assert_eq!(one["items"].as_array().unwrap().len(), 1);
    bench.0.store().compact(bench.0.store().revision());
    let (code, expired) = bench.get(&format!("{MAPS}?limit=9&continue={next}")).await;
    assert_eq!((code, &expired["reason"]), (410, &json!("Expired")));
    let inconsistent = expired["metadata"]["continue"].as_str().unwrap();
    let (code, rest) = bench.get(&format!("{MAPS}?limit=9&continue={inconsistent}")).await;
    assert_eq!((code, rest["items"].as_array().unwrap().len()), (200, 3));
}

async fn events(response: http::Response<body::Body>, count: usize) -> Vec<Value> {
    let mut body = response.into_body();
    let mut text = Vec::new();
    while text.iter().filter(|b| **b == b'\n').count() < count {
        let frame = tokio::time::timeout(std::time::Duration::from_secs(5), body.frame()).await.unwrap().unwrap().unwrap();
        text.extend_from_slice(&frame.into_data().unwrap());
    }
    text.split(|b| *b == b'\n').filter(|l| !l.is_empty()).map(|l| serde_json::from_slice(l).unwrap()).collect()
}

#[tokio::test]
async fn watches_tell_changes_and_resume() {
    let bench = Bench::new().await;
    let watch = |query: &str| {
        let request = Request::get(format!("{MAPS}?watch=1&{query}")).body(body::full("")).unwrap();
        bench.0.request(Identity::master("admin"), request)
    };
    let (_, made) = bench.post(MAPS, map("a", json!({}))).await;
    let revision = made["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let streaming = watch("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion=").await;
    let first = events(streaming, 2).await;
    assert_eq!((&first[0]["type"], &first[1]["type"]), (&json!("ADDED"), &json!("BOOKMARK")));
    assert_eq!(first[1]["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    let selected = watch(&format!("resourceVersion={revision}&labelSelector=on")).await;
    bench.merge(&format!("{MAPS}/a"), json!({"metadata": {"labels": {"on": "1"}}})).await;
    bench.merge(&format!("{MAPS}/a"), json!({"metadata": {"labels": {"on": null}}})).await;
    bench.delete(&format!("{MAPS}/a")).await;
    let told = events(selected, 2).await;
    assert_eq!((&told[0]["type"], &told[1]["type"]), (&json!("ADDED"), &json!("DELETED")));
    let all = events(watch(&format!("resourceVersion={revision}")).await, 3).await;
    assert_eq!(all.iter().map(|e| e["type"].as_str().unwrap()).collect::<Vec<_>>(), ["MODIFIED", "MODIFIED", "DELETED"]);
    bench.0.store().compact(bench.0.store().revision());
    let gone = events(watch(&format!("resourceVersion={revision}")).await, 1).await;
    assert_eq!((&gone[0]["type"], &gone[0]["object"]["code"]), (&json!("ERROR"), &json!(410)));
}

#[tokio::test]
async fn finalizers_hold_and_definitions_make_routes() {
    let bench = Bench::new().await;
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "toys.x.io"},
        "spec": {"group": "x.io", "scope": "Namespaced", "names": {"plural": "toys", "singular": "toy", "kind": "Toy", "listKind": "ToyList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"size": {"type": "integer", "default": 3}}},
                    "status": {"type": "object", "properties": {"seen": {"type": "integer"}}}}}}}]},
    });
    let (code, made) = bench.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd).await;
    assert_eq!(code, 201, "{made}");
    let toys = "/apis/x.io/v1/namespaces/default/toys";
    let toy = json!({"apiVersion": "x.io/v1", "kind": "Toy", "metadata": {"name": "a", "finalizers": ["x.io/hold"]}, "spec": {"odd": 1}, "status": {"seen": 1}});
    let (code, toy) = bench.post(toys, toy).await;
    assert_eq!((code, &toy["spec"], &toy["status"]), (201, &json!({"size": 3}), &Value::Null), "{toy}");
    let (_, seen) = bench.merge(&format!("{toys}/a/status"), json!({"status": {"seen": 2}, "spec": {"size": 9}})).await;
    assert_eq!((&seen["status"]["seen"], &seen["spec"]["size"], &seen["metadata"]["generation"]), (&json!(2), &json!(3), &json!(1)), "{seen}");
    let (_, grown) = bench.merge(&format!("{toys}/a"), json!({"spec": {"size": 9}})).await;
    assert_eq!(grown["metadata"]["generation"], 2);
    let (_, held) = bench.delete(&format!("{toys}/a")).await;
    assert!(held["metadata"]["deletionTimestamp"].is_string(), "{held}");
    let (code, _) = bench.delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/toys.x.io").await;
    assert_eq!(code, 200);
    assert_eq!(bench.get(toys).await.0, 200, "instances are still there");
    bench.merge(&format!("{toys}/a"), json!({"metadata": {"finalizers": null}})).await;
    for _ in 0..200 {
        if bench.get(toys).await.0 == 404 {
            return;
        }
        tokio::task::yield_now().await;
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("the definition did not go");
}
