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

#[tokio::test]
async fn whoever_may_read_logs_does_not_see_the_pod() {
    let bench = Bench::new().await;
    bench.post(PODS, pod("p", json!({"env": [{"name": "SECRET", "value": "s3cret"}]}))).await;
    let mut two = pod("two", json!({}));
    two["spec"]["containers"].as_array_mut().unwrap().push(json!({"name": "d", "image": "i"}));
    bench.post(PODS, two).await;
    let mut placed = pod("placed", json!({}));
    placed["spec"]["nodeName"] = json!("n");
    bench.post(PODS, placed).await;
    for (path, code, said) in [
        ("p/log", 204, ""),
        ("p/log?container=c&follow=true", 204, ""),
        ("p/log?container=z", 400, "container z is not valid for pod p"),
        ("two/log", 400, "a container name must be specified for pod two, choose one of: [c d]"),
        ("p/log?tailLines=-1", 422, "PodLogOptions \"p\" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0"),
        ("placed/log", 503, "the node n of pod placed is simulated and runs no containers"),
        ("none/log", 404, "pods \"none\" not found"),
        ("p/exec?command=x", 400, "pod p does not have a host assigned"),
        ("p/attach", 400, "pod p does not have a host assigned"),
        ("p/portforward", 400, "pod p does not have a host assigned"),
        ("p/proxy", 400, "address not allowed"),
        ("p/binding", 405, "the server does not allow this method on the requested resource"),
    ] {
        let (got, answer) = bench.get(&format!("{PODS}/{path}")).await;
        assert_eq!((got, answer["message"].as_str().unwrap_or_default()), (code, said), "{path}: {answer}");
        assert!(!answer.to_string().contains("s3cret"), "{path}");
    }
    // Views of the object itself stay that: of all kinds, only these.
    for resource in crate::resource::natives() {
        for sub in resource.subresources.iter().filter(|sub| sub.gvk.2 == resource.kind && sub.verbs.iter().any(|verb| verb == "get")) {
            assert!(matches!(sub.name.as_str(), "status" | "approval" | "ephemeralcontainers" | "resize" | "log"), "{}/{}", resource.plural, sub.name);
        }
    }
    assert_eq!(bench.get(&format!("{PODS}/p/status")).await.1["kind"], "Pod");
}

#[tokio::test]
async fn services_change_their_type_and_stay_on_one_stack() {
    let bench = Bench::new().await;
    let services = "/api/v1/namespaces/default/services";
    let service = |name: &str, spec: Value| {
        let mut all = json!({"ports": [{"port": 80}]});
        all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": all})
    };
    let types = [json!({"type": "ClusterIP"}), json!({"type": "NodePort"}), json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"}), json!({"type": "ExternalName", "externalName": "a.b"})];
    for (i, from) in types.iter().enumerate() {
        for (j, to) in types.iter().enumerate() {
            for whole in [false, true] {
                let name = format!("s{i}{j}{whole}");
                let (code, made) = bench.post(services, service(&name, from.clone())).await;
                assert_eq!(code, 201, "{made}");
                let path = format!("{services}/{name}");
                let (code, now) = if whole { bench.put(&path, service(&name, to.clone())).await } else { bench.merge(&path, json!({"spec": to})).await };
                assert_eq!((code, &now["spec"]["type"]), (200, &to["type"]), "{from} -> {to}: {now}");
                assert_eq!(now["spec"]["ports"][0].get("nodePort").is_some(), matches!(j, 1 | 2), "{now}");
                assert_eq!((now["spec"].get("clusterIP").is_some(), now["spec"].get("allocateLoadBalancerNodePorts").is_some()), (j != 3, j == 2), "{now}");
                bench.delete(&path).await;
            }
        }
    }
    for (spec, said) in [
        (json!({"ipFamilyPolicy": "RequireDualStack"}), "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack services"),
        (json!({"ipFamilies": ["IPv6"]}), "spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster"),
        (json!({"clusterIP": "fd00::1"}), "spec.clusterIPs[0]: Invalid value: [\"fd00::1\"]: IPv6 is not configured on this cluster"),
        (json!({"clusterIPs": ["10.96.0.8"]}), "spec.clusterIPs: Invalid value: [\"10.96.0.8\"]: must be empty when `clusterIP` is not specified"),
        (json!({"type": "NodePort", "ports": [{"name": "a", "port": 1, "nodePort": 30080}, {"name": "b", "port": 2, "nodePort": 30080}]}), "spec.ports[1].nodePort: Invalid value: 30080: provided port is already allocated"),
    ] {
        let (code, refused) = bench.post(services, service("no", spec)).await;
        assert_eq!((code, refused["message"].as_str()), (422, Some(&*format!("Service \"no\" is invalid: {said}"))));
    }
    // What was refused gave its port back.
    assert_eq!(bench.post(services, service("yes", json!({"type": "NodePort", "ports": [{"port": 1, "nodePort": 30080}]}))).await.0, 201);
}

#[tokio::test]
async fn options_and_patches_are_refused_in_the_words_of_a_server() {
    let bench = Bench::new().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let long = "m".repeat(129);
    let too_long = "Options.meta.k8s.io \"\" is invalid: fieldManager: Too long: may not be more than 128 bytes";
    let (code, refused) = bench.post(&format!("{maps}?fieldManager={long}"), map.clone()).await;
    assert_eq!((code, refused["message"].as_str()), (422, Some(&*format!("Create{too_long}"))));
    bench.post(maps, map.clone()).await;
    let one = format!("{maps}/a");
    let managed = format!("{one}?fieldManager={long}");
    assert_eq!(bench.put(&managed, map.clone()).await.1["message"], format!("Update{too_long}"));
    assert_eq!(bench.merge(&managed, json!({})).await.1["message"], format!("Patch{too_long}"));
    let (_, refused) = bench.merge(&format!("{one}?fieldManager=a%01b"), json!({})).await;
    assert_eq!(refused["message"], "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Invalid value: \"a\\x01b\": invalid character U+0001 (at position 1)");
    for (patch, code, said) in [
        (json!({"metadata": {"name": "b"}}), 400, "the name of the object (b) does not match the name on the URL (a)"),
        (json!({"metadata": {"namespace": "b"}}), 400, "the namespace of the provided object does not match the namespace sent on the request"),
        (json!({"metadata": {"uid": "b"}}), 422, "ConfigMap \"a\" is invalid: metadata.uid: Invalid value: \"b\": field is immutable"),
        (json!({"metadata": {"resourceVersion": "abc"}}), 500, "strconv.ParseUint: parsing \"abc\": invalid syntax"),
        (json!({"metadata": {"name": null}}), 400, "the name of the object (a based on URL) was undeterminable: name must be provided"),
        (json!({"kind": null}), 200, ""),
    ] {
        let (got, answer) = bench.merge(&one, patch.clone()).await;
        assert_eq!((got, answer["message"].as_str().unwrap_or_default()), (code, said), "{patch}");
    }
    let (code, answer) = bench.merge(&one, json!({"kind": "X"})).await;
    let message = answer["message"].as_str().unwrap_or_default();
    assert!(code == 422 && message.ends_with("no kind \"X\" is registered for version \"v1\" in scheme \"pkg/runtime/scheme.go:111\""), "{answer}");
    assert_eq!(bench.send(Method::PATCH, &one, "application/strategic-merge-patch+json", &json!({"kind": "X", "apiVersion": "v2"})).await.0, 200);
    let number = "Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax";
    assert_eq!(bench.get(&format!("{maps}?resourceVersion=abc")).await, (400, crate::status::ApiError::bad_request(format!("invalid resource version: resourceVersion: {number}")).to_status()));
    assert_eq!(bench.get(&format!("{one}?resourceVersion=abc")).await.0, 500);
    let big = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "big"}, "data": {"a": "x".repeat(1_100_000)}});
    assert_eq!(bench.post(maps, big).await.1["message"], "ConfigMap \"big\" is invalid: []: Too long: may not be more than 1048576 bytes");
    let told = bench.watch(&format!("{maps}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"), |told| told.iter().any(|e| e["type"] == "BOOKMARK")).await;
    assert_eq!(told.iter().find(|e| e["type"] == "BOOKMARK").and_then(|e| e["object"]["metadata"].get("creationTimestamp")), None);
}

#[tokio::test]
async fn a_pods_rank_is_given_by_its_class() {
    let bench = Bench::new().await;
    for (spec, said) in [
        (json!({"priority": 5}), "the integer value of priority (5) must not be provided in pod spec; priority admission controller computed 0 from the given PriorityClass name"),
        (json!({"preemptionPolicy": "Never"}), "the string value of PreemptionPolicy (Never) must not be provided in pod spec; priority admission controller computed PreemptLowerPriority from the given PriorityClass name"),
        (json!({"overhead": {"cpu": "1"}}), "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"),
    ] {
        let mut pod = pod("p", json!({}));
        pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let (code, refused) = bench.post(PODS, pod).await;
        assert_eq!((code, refused["message"].as_str()), (403, Some(&*format!("pods \"p\" is forbidden: {said}"))));
    }
    let mut good = pod("p", json!({}));
    good["spec"]["priority"] = json!(0);
    assert_eq!(bench.post(PODS, good).await.0, 201);
}

#[tokio::test]
async fn what_was_asked_to_be_signed_stays() {
    let bench = Bench::new().await;
    let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let key = rcgen::KeyPair::generate().unwrap();
    let pem = rcgen::CertificateParams::new(vec!["a".to_owned()]).unwrap().serialize_request(&key).unwrap().pem().unwrap();
    let pem = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, pem);
    let request = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "c"}, "spec": {"signerName": "e.io/x", "usages": ["client auth"], "request": pem}});
    let (code, made) = bench.post(requests, request).await;
    assert_eq!(code, 201, "{made}");
    let (code, kept) = bench.merge(&format!("{requests}/c"), json!({"spec": {"usages": ["server auth"]}})).await;
    assert_eq!((code, &kept["spec"], &kept["metadata"]["resourceVersion"]), (200, &made["spec"], &made["metadata"]["resourceVersion"]), "{kept}");
}
