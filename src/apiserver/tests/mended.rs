//! Kinds of faults that Kubernetes' own end-to-end suite found, each where it showed.

use http::Method;
use serde_json::{Value, json};

use super::basics::Bench;

const PODS: &str = "/api/v1/namespaces/default/pods";

fn pod(name: &str, container: Value) -> Value {
    let mut container = container;
    container["name"] = json!("c");
    container["image"] = json!("i");
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}})
}

#[tokio::test]
async fn items_of_typed_lists_do_not_repeat_their_kind() {
    let bench = Bench::new().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    bench.post(maps, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"kind": "x", "apiVersion": "y"}})).await;
    let (_, list) = bench.get(maps).await;
    assert_eq!((&list["kind"], &list["items"][0].get("kind"), &list["items"][0].get("apiVersion")), (&json!("ConfigMapList"), &None, &None));
    assert_eq!(list["items"][0]["data"], json!({"kind": "x", "apiVersion": "y"}));
    let (_, one) = bench.get(&format!("{maps}/a")).await;
    assert_eq!(one["kind"], "ConfigMap");
    let (_, removed) = bench.delete(maps).await;
    assert_eq!(removed["items"][0].get("kind"), None);
}

#[tokio::test]
async fn an_applier_owns_what_it_wrote_and_no_more() {
    let bench = Bench::new().await;
    let path = format!("{PODS}/p?fieldManager=m");
    let (code, made) = bench.apply(&path, pod("p", json!({}))).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(
        made["metadata"]["managedFields"][0]["fieldsV1"],
        json!({"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}, "f:name": {}}}}})
    );
    let (code, refused) = bench.apply(&path, pod("p", json!({"unheard": 1}))).await;
    let message = refused["message"].as_str().unwrap_or_default();
    assert!(code == 500 && message.ends_with(".spec.containers[name=\"c\"].unheard: field not declared in schema"), "{refused}");
    let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: q}\nspec:\n  hostname: a\n  hostname: b\n  containers: [{name: c, image: i}]\n";
    for (validation, code, said) in [("Strict", 400, "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  line 6: key \"hostname\" already set in map"), ("Ignore", 201, "")] {
        let path = format!("{PODS}/q?fieldManager=m&fieldValidation={validation}");
        let request = http::Request::builder().method(Method::PATCH).uri(&path).header("content-type", "application/apply-patch+yaml").body(crate::body::full(text)).unwrap();
        let response = bench.0.request(crate::Identity::master("admin"), request).await;
        assert_eq!(response.status().as_u16(), code, "{validation}");
        let bytes = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
        let answer: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(answer["message"].as_str().unwrap_or_default(), said);
    }
}

#[tokio::test]
async fn strict_faults_come_in_the_order_of_the_text() {
    let bench = Bench::new().await;
    let text = br#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"unknownField":"x","replicas":2,"replicas":3,
        "selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}"#;
    let path = "/apis/apps/v1/namespaces/default/deployments?fieldValidation=Strict";
    let request = http::Request::builder().method(Method::POST).uri(path).header("content-type", "application/json").body(crate::body::full(&text[..])).unwrap();
    let response = bench.0.request(crate::Identity::master("admin"), request).await;
    let bytes = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    let answer: Value = serde_json::from_slice(&bytes).unwrap();
    let message = answer["message"].as_str().unwrap_or_default();
    assert!(message.ends_with("strict decoding error: unknown field \"spec.unknownField\", duplicate field \"spec.replicas\""), "{message}");
}

#[tokio::test]
async fn limit_ranges_fill_and_refuse() {
    let bench = Bench::new().await;
    let range = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}, "spec": {"limits": [
        {"type": "Container", "min": {"cpu": "50m"}, "max": {"cpu": "500m"}, "default": {"cpu": "500m", "memory": "500Mi"}, "defaultRequest": {"cpu": "100m", "memory": "200Mi"}},
        {"type": "PersistentVolumeClaim", "max": {"storage": "2Gi"}},
    ]}});
    let (code, said) = bench.post("/api/v1/namespaces/default/limitranges", range).await;
    assert_eq!(code, 201, "{said}");
    let (_, plain) = bench.post(PODS, pod("plain", json!({}))).await;
    assert_eq!(plain["spec"]["containers"][0]["resources"], json!({"requests": {"cpu": "100m", "memory": "200Mi"}, "limits": {"cpu": "500m", "memory": "500Mi"}}));
    assert_eq!(plain["metadata"]["annotations"]["kubernetes.io/limit-ranger"], "LimitRanger plugin set: cpu, memory request for container c; cpu, memory limit for container c");
    for (asked, why) in [
        ("10m", "minimum cpu usage per Container is 50m, but request is 10m"),
        ("600m", "maximum cpu usage per Container is 500m, but limit is 600m"),
    ] {
        let (code, refused) = bench.post(PODS, pod("no", json!({"resources": {"requests": {"cpu": asked}, "limits": {"cpu": asked}}}))).await;
        let message = refused["message"].as_str().unwrap_or_default();
        assert!(code == 403 && message.contains(why), "{refused}");
    }
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "3Gi"}}}});
    let (code, refused) = bench.post("/api/v1/namespaces/default/persistentvolumeclaims", claim).await;
    assert_eq!((code, refused["message"].as_str()), (403, Some("persistentvolumeclaims \"c\" is forbidden: maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi")));
}

#[tokio::test]
async fn small_rules_of_single_kinds() {
    let bench = Bench::new().await;
    let job = json!({"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
    let cron = |zone: &str| json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"}, "spec": {"schedule": "* * * * *", "timeZone": zone, "jobTemplate": job}});
    let crons = "/apis/batch/v1/namespaces/default/cronjobs";
    assert_eq!(bench.post(crons, cron("bad-time-zone")).await.0, if jiff::tz::db().is_definitively_empty() { 201 } else { 422 });
    let policy = |port: Value| json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"generateName": "n"}, "spec": {"podSelector": {}, "egress": [{"ports": [port]}]}});
    let policies = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
    assert_eq!(bench.post(policies, policy(json!({"port": "serve-80", "endPort": 20000}))).await.0, 422);
    assert_eq!(bench.post(policies, policy(json!({"port": 80, "endPort": 20000}))).await.0, 201);
    let address = |name: &str| json!({"apiVersion": "networking.k8s.io/v1", "kind": "IPAddress", "metadata": {"name": name}, "spec": {"parentRef": {"resource": "services", "namespace": "default", "name": "s"}}});
    let addresses = "/apis/networking.k8s.io/v1/ipaddresses";
    assert_eq!(bench.post(addresses, address("fe80::42:1dff:fe84:f9e2")).await.0, 201);
    assert_eq!(bench.post(addresses, address("fe80::0042:1dff:fe84:f9e2")).await.0, 422);
}
