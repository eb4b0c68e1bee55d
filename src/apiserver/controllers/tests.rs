//! A server with its keys and built-in controllers, in process.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{built_in, run_local};
use crate::auth::pki::Key;
use crate::auth::{Identity, Pki, text};
use crate::{ApiServer, Options};

const PATIENCE: Duration = Duration::from_secs(20);

struct Parent {
    server: ApiServer,
    shutdown: CancellationToken,
}

impl Drop for Parent {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

impl Parent {
    async fn new() -> Self {
        let server = ApiServer::build(Options { own_service: true, full: true, ..Options::new(store::Store::memory()) }).await;
        let shutdown = CancellationToken::new();
        let pki = Arc::new(Pki::ephemeral(&[], Timestamp::now()).expect("keys"));
        tokio::spawn(run_local(server.clone(), built_in(Some(&pki)), shutdown.clone()));
        let parent = Self { server, shutdown };
        // Admission is there as soon as the controllers are at work.
        parent.wait("/api/v1/namespaces/default/serviceaccounts/default", "was made", |a| a["kind"] == "ServiceAccount").await;
        parent
    }

    async fn send(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", kind)
            .body(Full::new(bytes::Bytes::from(if body.is_null() { String::new() } else { body.to_string() })))
            .expect("a request");
        let response = self.server.request(Identity::master("test"), request).await;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.expect("a body").to_bytes();
        (code, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let (code, answer) = self.send("POST", path, &body).await;
        assert_eq!(code, 201, "{answer}");
        answer
    }

    async fn wait(&self, path: &str, what: &str, done: impl Fn(&Value) -> bool) -> Value {
        let store = self.server.store();
        let mut watch = store.watch_all(store.revision()).expect("a watch");
        let mut last = Value::Null;
        let found = tokio::time::timeout(PATIENCE, async {
            loop {
                last = self.send("GET", path, &Value::Null).await.1;
                if done(&last) {
                    return;
                }
                if watch.next().await.is_none() {
                    watch = store.watch_all(store.revision()).expect("a watch");
                }
            }
        })
        .await;
        assert!(found.is_ok(), "{path} never {what}: {last}");
        last
    }
}

const CORE: &str = "/api/v1/namespaces/default";

#[tokio::test]
async fn signing_requests_get_their_certificate() {
    let parent = Parent::new().await;
    let key = Key::generate().expect("a key");
    let pem = key.request("agent", &["clusters".to_owned()], &[]).expect("a request");
    let request = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "agent"},
        "spec": {
            "request": STANDARD.encode(pem), "signerName": "kubernetes.io/kube-apiserver-client",
            "usages": ["digital signature", "client auth"], "username": "somebody else",
        },
    });
    let all = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let made = parent.post(all, request).await;
    assert_eq!(text(&made, &["spec", "username"]), "test", "who asks is not for the asker to say");
    let mut approved = made.clone();
    approved["status"] = json!({"conditions": [{"type": "Approved", "status": "True", "reason": "Test", "message": "yes"}]});
    let (code, answer) = parent.send("PUT", &format!("{all}/agent/approval"), &approved).await;
    assert_eq!(code, 200, "{answer}");
    let signed = parent.wait(&format!("{all}/agent"), "was signed", |r| !text(r, &["status", "certificate"]).is_empty()).await;
    let pem = STANDARD.decode(text(&signed, &["status", "certificate"])).expect("base64");
    assert!(String::from_utf8_lossy(&pem).starts_with("-----BEGIN CERTIFICATE-----"));
}

#[tokio::test]
async fn token_secrets_are_filled_and_follow_their_account() {
    let parent = Parent::new().await;
    let secret = |name: &str, account: &str| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
            "metadata": {"name": name, "annotations": {"kubernetes.io/service-account.name": account}},
        })
    };
    parent.post(&format!("{CORE}/serviceaccounts"), json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robin"}})).await;
    parent.post(&format!("{CORE}/secrets"), secret("t", "robin")).await;
    let filled = parent.wait(&format!("{CORE}/secrets/t"), "was filled", |s| !text(s, &["data", "token"]).is_empty()).await;
    assert_eq!(text(&filled, &["data", "namespace"]), STANDARD.encode("default"));
    assert!(!text(&filled, &["data", "ca.crt"]).is_empty());
    parent.send("DELETE", &format!("{CORE}/serviceaccounts/robin"), &Value::Null).await;
    parent.wait(&format!("{CORE}/secrets/t"), "was taken away", |s| s["code"] == 404).await;
    // Nobody's token is not kept.
    parent.post(&format!("{CORE}/secrets"), secret("x", "nobody")).await;
    parent.wait(&format!("{CORE}/secrets/x"), "was taken away", |s| s["code"] == 404).await;
}

#[tokio::test]
async fn quotas_count_and_refuse() {
    let parent = Parent::new().await;
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small"},
        "spec": {"hard": {"secrets": "2", "services": "1", "requests.storage": "1Gi", "count/leases.coordination.k8s.io": "0"}},
    });
    parent.post(&format!("{CORE}/resourcequotas"), quota).await;
    let used = |quota: &Value, name: &str| text(quota, &["status", "used", name]).to_owned();
    let path = format!("{CORE}/resourcequotas/small");
    parent.wait(&path, "was counted", |quota| used(quota, "secrets") == "0").await;
    let secret = |name: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
    parent.post(&format!("{CORE}/secrets"), secret("a")).await;
    parent.post(&format!("{CORE}/secrets"), secret("b")).await;
    let (code, refused) = parent.send("POST", &format!("{CORE}/secrets"), &secret("c")).await;
    assert_eq!(code, 403);
    assert_eq!(
        text(&refused, &["message"]),
        "secrets \"c\" is forbidden: exceeded quota: small, requested: secrets=1, used: secrets=2, limited: secrets=2"
    );
    parent.wait(&path, "counted both", |quota| used(quota, "secrets") == "2").await;
    parent.send("DELETE", &format!("{CORE}/secrets/a"), &Value::Null).await;
    parent.wait(&path, "counted one", |quota| used(quota, "secrets") == "1").await;
    parent.post(&format!("{CORE}/secrets"), secret("c")).await;
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "big"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}},
    });
    let (code, refused) = parent.send("POST", &format!("{CORE}/persistentvolumeclaims"), &claim).await;
    assert_eq!(code, 403, "{refused}");
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": {}});
    let (code, _) = parent.send("POST", "/apis/coordination.k8s.io/v1/namespaces/default/leases", &lease).await;
    assert_eq!(code, 403);
}

#[tokio::test]
async fn claims_are_bound_and_volumes_guarded() {
    let parent = Parent::new().await;
    let volume = |name: &str, size: &str| {
        json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": "manual",
                "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": "/tmp/x"},
            },
        })
    };
    for (name, size) in [("large", "9Gi"), ("small", "1Gi"), ("middle", "3Gi")] {
        parent.post("/api/v1/persistentvolumes", volume(name, size)).await;
    }
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "manual", "resources": {"requests": {"storage": "2Gi"}}},
    });
    parent.post(&format!("{CORE}/persistentvolumeclaims"), claim).await;
    let path = format!("{CORE}/persistentvolumeclaims/c");
    let bound = parent.wait(&path, "was bound", |claim| text(claim, &["status", "phase"]) == "Bound").await;
    assert_eq!(text(&bound, &["spec", "volumeName"]), "middle", "the smallest that is large enough");
    assert_eq!(text(&bound, &["status", "capacity", "storage"]), "3Gi");
    parent.send("DELETE", "/api/v1/persistentvolumes/middle", &Value::Null).await;
    let kept = parent.send("GET", "/api/v1/persistentvolumes/middle", &Value::Null).await.1;
    assert!(!text(&kept, &["metadata", "deletionTimestamp"]).is_empty(), "in use: {kept}");
    parent.send("DELETE", &path, &Value::Null).await;
    parent.wait(&path, "was gone", |claim| claim["code"] == 404).await;
    parent.wait("/api/v1/persistentvolumes/middle", "was gone", |volume| volume["code"] == 404).await;
    parent.send("DELETE", "/api/v1/persistentvolumes/large", &Value::Null).await;
    parent.wait("/api/v1/persistentvolumes/large", "was gone", |volume| volume["code"] == 404).await;
}

#[tokio::test]
async fn roles_are_joined_and_tokens_expire() {
    let parent = Parent::new().await;
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let joined = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "joined"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"part": "yes"}}]}, "rules": [],
    });
    parent.post(roles, joined).await;
    let part = |name: &str, resource: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name, "labels": {"part": "yes"}},
            "rules": [{"apiGroups": [""], "resources": [resource], "verbs": ["get"]}],
        })
    };
    parent.post(roles, part("p2", "pods")).await;
    parent.post(roles, part("p1", "nodes")).await;
    let whole = parent.wait(&format!("{roles}/joined"), "was joined", |role| role["rules"].as_array().map(Vec::len) == Some(2)).await;
    assert_eq!(whole["rules"][0]["resources"][0], "nodes", "in order of the parts' names");
    parent.send("DELETE", &format!("{roles}/p1"), &Value::Null).await;
    parent.wait(&format!("{roles}/joined"), "lost a part", |role| role["rules"].as_array().map(Vec::len) == Some(1)).await;

    let token = |id: &str, end: Timestamp| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
            "metadata": {"name": format!("bootstrap-token-{id}")},
            "stringData": {
                "token-id": id, "token-secret": "0123456789abcdef", "expiration": end.to_string(),
                "usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true",
            },
        })
    };
    let now = Timestamp::now();
    let secrets = "/api/v1/namespaces/kube-system/secrets";
    parent.post(secrets, token("aaaaaa", now + jiff::SignedDuration::from_hours(1))).await;
    parent.post(secrets, token("bbbbbb", now + jiff::SignedDuration::from_millis(300))).await;
    parent
        .wait("/api/v1/namespaces/kube-public/configmaps/cluster-info", "was signed", |info| {
            text(info, &["data", "jws-kubeconfig-aaaaaa"]).contains("..") && text(info, &["data", "kubeconfig"]).contains("server: https://127.0.0.1:6443")
        })
        .await;
    parent.wait(&format!("{secrets}/bootstrap-token-bbbbbb"), "expired", |secret| secret["code"] == 404).await;
    assert_eq!(parent.send("GET", &format!("{secrets}/bootstrap-token-aaaaaa"), &Value::Null).await.0, 200);
}

#[tokio::test]
async fn endpoints_made_by_hand_are_mirrored() {
    let parent = Parent::new().await;
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "far"}, "spec": {"ports": [{"port": 80}]}});
    parent.post(&format!("{CORE}/services"), service).await;
    let endpoints = json!({
        "apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "far"},
        "subsets": [{"addresses": [{"ip": "192.0.2.7"}], "ports": [{"port": 80, "protocol": "TCP"}]}],
    });
    parent.post(&format!("{CORE}/endpoints"), endpoints).await;
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let of_far = |all: &Value| -> Vec<Value> {
        let items = all["items"].as_array().cloned().unwrap_or_default();
        items.into_iter().filter(|s| text(s, &["metadata", "labels", "kubernetes.io/service-name"]) == "far").collect()
    };
    let all = parent.wait(slices, "had a mirror", |all| of_far(all).len() == 1).await;
    assert_eq!(of_far(&all)[0]["endpoints"][0]["addresses"][0], "192.0.2.7");
    let moved = json!({"subsets": [{"addresses": [{"ip": "192.0.2.8"}], "ports": [{"port": 80, "protocol": "TCP"}]}]});
    parent.send("PATCH", &format!("{CORE}/endpoints/far"), &moved).await;
    parent.wait(slices, "followed", |all| of_far(all).first().is_some_and(|s| s["endpoints"][0]["addresses"][0] == "192.0.2.8")).await;
    parent.send("DELETE", &format!("{CORE}/endpoints/far"), &Value::Null).await;
    parent.wait(slices, "went", |all| of_far(all).is_empty()).await;
}

#[tokio::test]
async fn policies_are_checked_against_the_kinds_they_match() {
    let parent = Parent::new().await;
    let all = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let policy = |name: &str, validation: Value| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
            "spec": {
                "matchConstraints": {"resourceRules": [{"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["deployments"]}]},
                "validations": [validation],
            },
        })
    };
    parent.post(all, policy("fine", json!({"expression": "object.spec.replicas > 1"}))).await;
    let fine = parent.wait(&format!("{all}/fine"), "was checked", |p| p["status"]["typeChecking"].is_object()).await;
    assert_eq!(fine["status"]["typeChecking"], json!({}));
    let confused = json!({"expression": "object.spec.replicas > '1'", "messageExpression": "'got ' + object.spec.replicas"});
    parent.post(all, policy("confused", confused)).await;
    let confused = parent.wait(&format!("{all}/confused"), "was checked", |p| p["status"]["typeChecking"].is_object()).await;
    assert_eq!(
        confused["status"]["typeChecking"]["expressionWarnings"],
        json!([
            {"fieldRef": "spec.validations[0].expression", "warning": "apps/v1, Kind=Deployment: compilation failed: ERROR: <input>:1:22: found no matching overload for '_>_' applied to '(int, string)'\n | object.spec.replicas > '1'\n | .....................^\n"},
            {"fieldRef": "spec.validations[0].messageExpression", "warning": "apps/v1, Kind=Deployment: compilation failed: ERROR: <input>:1:8: found no matching overload for '_+_' applied to '(string, int)'\n | 'got ' + object.spec.replicas\n | .......^\n"},
        ])
    );
}

#[tokio::test]
async fn service_addresses_are_objects() {
    let parent = Parent::new().await;
    let addresses = "/apis/networking.k8s.io/v1/ipaddresses";
    parent.wait(&format!("{addresses}/10.96.0.1"), "was made", |ip| text(ip, &["spec", "parentRef", "name"]) == "kubernetes").await;
    parent.wait("/apis/networking.k8s.io/v1/servicecidrs/kubernetes", "was ready", |range| range["status"]["conditions"][0]["status"] == "True").await;
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"clusterIP": "10.96.7.7", "ports": [{"port": 80}]}});
    parent.post(&format!("{CORE}/services"), service).await;
    let one = format!("{addresses}/10.96.7.7");
    parent.wait(&one, "was made", |ip| ip["kind"] == "IPAddress").await;
    parent.send("DELETE", &one, &Value::Null).await;
    parent.wait(&one, "came back", |ip| ip["kind"] == "IPAddress").await;
    parent.send("DELETE", &format!("{CORE}/services/s"), &Value::Null).await;
    parent.wait(&one, "went", |ip| ip["code"] == 404).await;
    // A range in use stays until another one holds its addresses.
    parent.send("DELETE", "/apis/networking.k8s.io/v1/servicecidrs/kubernetes", &Value::Null).await;
    parent.wait("/apis/networking.k8s.io/v1/servicecidrs/kubernetes", "was held", |range| range["status"]["conditions"][0]["reason"] == "Terminating").await;
}

#[tokio::test]
async fn requests_are_told_their_flow() {
    let parent = Parent::new().await;
    parent.server.secure(None, Vec::new()).await;
    let root = "/apis/flowcontrol.apiserver.k8s.io/v1";
    let uid = |object: &Value| text(object, &["metadata", "uid"]).to_owned();
    let level = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration", "metadata": {"name": "mine"},
        "spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 1, "limitResponse": {"type": "Reject"}}},
    });
    let schema = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": {"name": "mine"},
        "spec": {"matchingPrecedence": 1000, "priorityLevelConfiguration": {"name": "mine"}, "rules": [{
            "subjects": [{"kind": "User", "user": {"name": "noxu"}}], "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]}]},
    });
    let schema = parent.post(&format!("{root}/flowschemas"), schema).await;
    parent.wait(&format!("{root}/flowschemas/mine"), "was dangling", |s| s["status"]["conditions"][0]["status"] == "True").await;
    let level = parent.post(&format!("{root}/prioritylevelconfigurations"), level).await;
    parent.wait(&format!("{root}/flowschemas/mine"), "was joined", |s| s["status"]["conditions"][0]["status"] == "False").await;
    let default = parent.send("GET", &format!("{root}/flowschemas/global-default"), &Value::Null).await.1;
    let global = parent.send("GET", &format!("{root}/prioritylevelconfigurations/global-default"), &Value::Null).await.1;
    for (user, schema, level) in [("noxu", &schema, &level), ("other", &default, &global)] {
        let who = Identity { user: user.to_owned(), groups: vec!["system:authenticated".to_owned()], ..Identity::default() };
        let request = Request::builder().uri("/version").body(Full::new(bytes::Bytes::new())).expect("a request");
        let response = parent.server.request(who, request).await;
        let header = |name: &str| response.headers().get(name).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
        assert_eq!(header("x-kubernetes-pf-flowschema-uid"), uid(schema), "{user}");
        assert_eq!(header("x-kubernetes-pf-prioritylevel-uid"), uid(level), "{user}");
    }
    // What a server may not be without comes back.
    parent.send("DELETE", &format!("{root}/flowschemas/catch-all"), &Value::Null).await;
    parent.wait(&format!("{root}/flowschemas/catch-all"), "came back", |s| s["kind"] == "FlowSchema").await;
}

#[tokio::test]
async fn circles_of_owners_go_in_the_foreground() {
    let parent = Parent::new().await;
    let maps = format!("{CORE}/configmaps");
    let mut uids = Vec::new();
    for name in ["one", "two", "three"] {
        let made = parent.post(&maps, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})).await;
        uids.push(text(&made, &["metadata", "uid"]).to_owned());
    }
    for (name, owner, uid) in [("one", "three", &uids[2]), ("two", "one", &uids[0]), ("three", "two", &uids[1])] {
        let owners = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid, "controller": true, "blockOwnerDeletion": true}]);
        let (code, said) = parent.send("PATCH", &format!("{maps}/{name}"), &json!({"metadata": {"ownerReferences": owners}})).await;
        assert_eq!(code, 200, "{said}");
    }
    parent.send("DELETE", &format!("{maps}/one"), &json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground"})).await;
    for name in ["one", "two", "three"] {
        parent.wait(&format!("{maps}/{name}"), "was gone", |map| map["code"] == 404).await;
    }
}

#[tokio::test]
async fn endpoints_without_a_service_are_left_alone() {
    let parent = Parent::new().await;
    let endpoints = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "alone"}, "subsets": [{"addresses": [{"ip": "192.0.2.7"}]}]});
    parent.post(&format!("{CORE}/endpoints"), endpoints).await;
    // The controllers have seen it once they have done what follows it.
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "after"}, "spec": {"selector": {"a": "b"}, "ports": [{"port": 80}]}});
    parent.post(&format!("{CORE}/services"), service).await;
    parent.wait(&format!("{CORE}/endpoints/after"), "was made", |e| e["kind"] == "Endpoints").await;
    assert_eq!(parent.send("GET", &format!("{CORE}/endpoints/alone"), &Value::Null).await.0, 200);
}
