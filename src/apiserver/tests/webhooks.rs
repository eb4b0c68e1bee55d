//! Admission webhooks, asked over TLS on loopback.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};

use super::basics::Bench;
use crate::auth::Pki;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const HOOKS: &str = "/apis/admissionregistration.k8s.io/v1";

/// What the hook of these tests says: `/mutate` labels, `/validate` refuses what is called bad and warns of the rest.
fn verdict(path: &str, review: &Value) -> Value {
    let request = &review["request"];
    let uid = &request["uid"];
    let object = if request["object"].is_null() { &request["oldObject"] } else { &request["object"] };
    if path == "/mutate" {
        let patch = json!([{"op": "add", "path": "/metadata/labels", "value": {"seen": request["operation"]}}]);
        return json!({"uid": uid, "allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(patch.to_string())});
    }
    let bad = object["data"]["bad"] == "yes";
    json!({"uid": uid, "allowed": !bad, "status": {"message": "it is bad", "code": 418}, "warnings": [format!("looked at {}", request["name"].as_str().unwrap_or(""))]})
}

/// Serves the hook; gives its port and CA.
pub(super) async fn serve() -> (u16, String) {
    let pki = Pki::ephemeral(&[], jiff::Timestamp::now()).unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(pki.server_config().unwrap()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let service = hyper::service::service_fn(|request: http::Request<hyper::body::Incoming>| async move {
                    let path = request.uri().path().to_owned();
                    let bytes = request.into_body().collect().await?.to_bytes();
                    let review: Value = serde_json::from_slice(&bytes).unwrap_or_default();
                    let answer = if review["kind"] == "ConversionReview" {
                        super::conversion::answer(&review)
                    } else {
                        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": verdict(&path, &review)})
                    };
                    Ok::<_, hyper::Error>(http::Response::new(Full::new(bytes::Bytes::from(answer.to_string()))))
                });
                let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    (port, STANDARD.encode(pki.ca.pem()))
}

fn configuration(kind: &str, url: &str, ca: &str, failure: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "hooks"},
        "webhooks": [{
            "name": "hook.example.com", "clientConfig": {"url": url, "caBundle": ca}, "failurePolicy": failure, "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "timeoutSeconds": 5,
            "objectSelector": {"matchExpressions": [{"key": "skip", "operator": "DoesNotExist"}]},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE", "UPDATE", "DELETE"]}],
        }],
    })
}

fn map(name: &str, bad: &str, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}, "data": {"bad": bad}})
}

#[tokio::test]
async fn hooks_change_and_refuse() {
    let bench = Bench::new().await;
    let (port, ca) = serve().await;
    bench.post(MAPS, map("old", "yes", json!({}))).await;
    let (code, said) = bench.post(&format!("{HOOKS}/mutatingwebhookconfigurations"), configuration("MutatingWebhookConfiguration", &format!("https://127.0.0.1:{port}/mutate"), &ca, "Fail")).await;
    assert_eq!(code, 201, "{said}");
    let (code, made) = bench.post(MAPS, map("a", "no", json!({}))).await;
    assert_eq!((code, &made["metadata"]["labels"]), (201, &json!({"seen": "CREATE"})), "{made}");
    let (_, changed) = bench.merge(&format!("{MAPS}/a"), json!({"data": {"more": "1"}})).await;
    assert_eq!(changed["metadata"]["labels"], json!({"seen": "UPDATE"}));
    let (_, skipped) = bench.post(MAPS, map("b", "no", json!({"skip": ""}))).await;
    assert_eq!(skipped["metadata"]["labels"], json!({"skip": ""}));

    let validating = configuration("ValidatingWebhookConfiguration", &format!("https://127.0.0.1:{port}/validate"), &ca, "Fail");
    bench.post(&format!("{HOOKS}/validatingwebhookconfigurations"), validating).await;
    let (code, refused) = bench.post(MAPS, map("c", "yes", json!({}))).await;
    assert_eq!((code, refused["message"].as_str()), (418, Some("admission webhook \"hook.example.com\" denied the request: it is bad")));
    let (code, refused) = bench.merge(&format!("{MAPS}/a"), json!({"data": {"bad": "yes"}})).await;
    assert_eq!(code, 418, "{refused}");
    let (code, _) = bench.delete(&format!("{MAPS}/old")).await;
    assert_eq!(code, 418, "a removal is refused too");
    assert_eq!(bench.get(&format!("{MAPS}/old")).await.0, 200);
    let (code, _) = bench.delete(&format!("{MAPS}/a")).await;
    assert_eq!(code, 200);
}

#[tokio::test]
async fn hooks_that_do_not_answer_refuse_unless_told_otherwise() {
    let bench = Bench::new().await;
    // A port that nobody listens on any more.
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let (_, ca) = serve().await;
    let path = format!("{HOOKS}/validatingwebhookconfigurations");
    let url = format!("https://127.0.0.1:{closed}/");
    bench.post(&path, configuration("ValidatingWebhookConfiguration", &url, &ca, "Fail")).await;
    let (code, refused) = bench.post(MAPS, map("a", "no", json!({}))).await;
    let message = refused["message"].as_str().unwrap_or_default();
    assert!(code == 500 && message.starts_with("Internal error occurred: failed calling webhook \"hook.example.com\": failed to call webhook: "), "{refused}");
    bench.merge(&format!("{path}/hooks"), json!({"webhooks": configuration("ValidatingWebhookConfiguration", &url, &ca, "Ignore")["webhooks"]})).await;
    let (code, made) = bench.post(MAPS, map("a", "no", json!({}))).await;
    assert_eq!(code, 201, "{made}");
    bench.delete(&format!("{path}/hooks")).await;
    let (code, made) = bench.post(MAPS, map("b", "yes", json!({}))).await;
    assert_eq!(code, 201, "{made}");
}
