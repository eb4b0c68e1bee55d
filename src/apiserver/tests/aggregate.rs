//! APIServices that name a Service: another server of ours stands behind it, over TLS on loopback.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{Method, Request};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use store::Store;

use super::basics::Bench;
use crate::auth::Pki;
use crate::auth::der::AltName;
use crate::{ApiServer, Identity, Options, body};

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "stars.far.io"},
        "spec": {"group": "far.io", "scope": "Namespaced", "names": {"plural": "stars", "singular": "star", "kind": "Star", "listKind": "StarList", "shortNames": ["st"]},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
    })
}

/// The condition of the APIService, when it has this reason.
async fn available(bench: &Bench, reason: &str) -> Value {
    let of = |event: &Value| event["object"]["status"]["conditions"][0].clone();
    let told = bench.watch(&format!("{SERVICES}?watch=true&fieldSelector=metadata.name%3Dv1.far.io"), |told| told.iter().any(|e| of(e)["reason"] == reason)).await;
    told.iter().map(of).rfind(|c| c["reason"] == reason).unwrap()
}

#[tokio::test]
async fn a_group_version_is_served_by_another_server() {
    let pki = Arc::new(Pki::ephemeral(&[AltName::Dns("far.default.svc".into())], jiff::Timestamp::now()).unwrap());
    let far = Bench(ApiServer::build(Options::new(Store::memory())).await);
    let guard = far.0.secure(Some(pki.clone()), Vec::new()).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (server, tls) = (far.0.clone(), Arc::new(pki.server_config().unwrap()));
    tokio::spawn(async move { server.serve(listener, Some(tls), guard).await });
    far.post(CRDS, definition()).await;

    let mut options = Options::new(Store::memory());
    options.full = true;
    let near = Bench(ApiServer::build(options).await);
    near.0.secure(Some(pki.clone()), Vec::new()).await;
    let (_, trusted) = near.get("/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication").await;
    assert_eq!(trusted["data"]["requestheader-client-ca-file"], pki.front_proxy_ca.pem());

    // Local ones are always there; one that names a Service is there when the Service is.
    let local = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1.apps"},
        "spec": {"group": "apps", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10}});
    near.post(SERVICES, local).await;
    let service = |ca: &str| {
        json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1.far.io"},
        "spec": {"group": "far.io", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10, "caBundle": STANDARD.encode(ca),
            "service": {"namespace": "default", "name": "far", "port": 443}}})
    };
    let (code, said) = near.post(SERVICES, service(&pki.ca.pem())).await;
    assert_eq!(code, 201, "{said}");
    assert_eq!(available(&near, "ServiceNotFound").await["message"], "service/far in \"default\" is not present");
    let stars = "/apis/far.io/v1/namespaces/default/stars";
    assert_eq!(near.get(stars).await, (503, json!("service unavailable\n")));
    let (code, said) = near.post("/api/v1/namespaces/default/services", json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "far"}, "spec": {"ports": [{"port": 443}]}})).await;
    assert_eq!(code, 201, "{said}");
    assert_eq!(available(&near, "EndpointsNotFound").await["message"], "cannot find endpointslices for service/far in \"default\"");
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "far-1", "labels": {"kubernetes.io/service-name": "far"}},
        "addressType": "IPv4", "endpoints": [{"addresses": ["127.0.0.1"]}], "ports": [{"name": "", "port": port, "protocol": "TCP"}]});
    let (code, said) = near.post("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", slice).await;
    assert_eq!(code, 201, "{said}");
    let passed = available(&near, "Passed").await;
    assert_eq!((&passed["status"], &passed["message"]), (&json!("True"), &json!("all checks passed")));
    let (_, local) = near.get(&format!("{SERVICES}/v1.apps")).await;
    assert_eq!(local["status"]["conditions"][0]["reason"], "Local", "{local}");

    // Discovery, documents, requests with the caller's identity.
    let (_, groups) = near.get("/apis").await;
    assert!(groups["groups"].as_array().unwrap().iter().any(|g| g["name"] == "far.io"));
    let (_, list) = near.get("/apis/far.io/v1").await;
    assert_eq!(list["resources"][0]["shortNames"], json!(["st"]));
    let request = Request::get("/apis").header("accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList").body(body::full("")).unwrap();
    let answer = near.0.request(Identity::master("admin"), request).await.into_body().collect().await.unwrap().to_bytes();
    let all: Value = serde_json::from_slice(&answer).unwrap();
    let group = all["items"].as_array().unwrap().iter().find(|g| g["metadata"]["name"] == "far.io").unwrap();
    assert_eq!((&group["versions"][0]["freshness"], &group["versions"][0]["resources"][0]["resource"]), (&json!("Current"), &json!("stars")));
    assert!(near.get("/openapi/v3/apis/far.io/v1").await.1["components"]["schemas"]["io.far.v1.Star"].is_object());
    let (code, made) = near.post(stars, json!({"apiVersion": "far.io/v1", "kind": "Star", "metadata": {"name": "sun"}})).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(far.get(&format!("{stars}/sun")).await.1["metadata"]["uid"], made["metadata"]["uid"]);
    let told = near.watch(&format!("{stars}?watch=true"), |told| !told.is_empty()).await;
    assert_eq!(told[0]["object"]["metadata"]["name"], "sun");
    let ann = Identity { user: "ann".into(), ..Identity::default() };
    let request = Request::builder().method(Method::GET).uri(format!("{stars}/sun")).header("x-remote-group", "system:masters").body(body::full("")).unwrap();
    let refused = near.0.request(ann, request).await;
    assert_eq!(refused.status().as_u16(), 403);

    // Whom the bundle does not name is not trusted.
    let other = Pki::ephemeral(&[], jiff::Timestamp::now()).unwrap();
    near.merge(&format!("{SERVICES}/v1.far.io"), json!({"spec": {"caBundle": STANDARD.encode(other.ca.pem())}})).await;
    let failed = available(&near, "FailedDiscoveryCheck").await;
    let message = failed["message"].as_str().unwrap();
    assert!(message.starts_with(&format!("failing or missing response from https://127.0.0.1:{port}/apis/far.io/v1: tls: ")), "{message}");
    assert_eq!(near.get(stars).await.0, 503);
    near.delete(&format!("{SERVICES}/v1.far.io")).await;
    assert_eq!(near.get(stars).await.0, 404);
}
