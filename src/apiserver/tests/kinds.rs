//! What depends on kinds and forms: tables, documents, protobuf, services, scale, policies, many writers of one object.

use http::{Method, Request};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::basics::Bench;
use crate::auth::Identity;
use crate::body;

fn deployment(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": name}}, "template": {"metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
}

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const SERVICES: &str = "/api/v1/namespaces/default/services";

impl Bench {
    async fn raw(&self, method: Method, path: &str, accept: &str, content_type: &str, bytes: Vec<u8>) -> (u16, String, bytes::Bytes) {
        let request = Request::builder().method(method).uri(path).header("accept", accept).header("content-type", content_type).body(body::full(bytes)).unwrap();
        let response = self.0.request(Identity::master("admin"), request).await;
        let content_type = response.headers().get("content-type").map(|v| v.to_str().unwrap().to_owned()).unwrap_or_default();
        (response.status().as_u16(), content_type, response.into_body().collect().await.unwrap().to_bytes())
    }
}

#[tokio::test]
async fn tables_show_what_kubectl_prints() {
    let bench = Bench::new().await;
    let (code, made) = bench.post(DEPLOYMENTS, deployment("web")).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(made["spec"]["strategy"]["type"], "RollingUpdate", "defaults are set");
    let (_, _, bytes) = bench.raw(Method::GET, DEPLOYMENTS, "application/json;as=Table;v=v1;g=meta.k8s.io", "", Vec::new()).await;
    let table: Value = serde_json::from_slice(&bytes).unwrap();
    let names: Vec<&str> = table["columnDefinitions"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["Name", "Ready", "Up-to-date", "Available", "Age", "Containers", "Images", "Selector"]);
    let mut cells = table["rows"][0]["cells"].clone();
    cells[4] = json!("");
    assert_eq!(cells, json!(["web", "0/2", 0, 0, "", "c", "i", "app=web"]));
    let (code, ..) = bench.raw(Method::POST, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "application/json;as=Table;v=v1;g=meta.k8s.io", "application/json",
        br#"{"spec":{"nonResourceAttributes":{"path":"/","verb":"get"}}}"#.to_vec()).await;
    assert_eq!(code, 406, "an answer that is no object has no rows");
}

#[tokio::test]
async fn documents_and_discovery_tell_the_kinds() {
    let bench = Bench::new().await;
    let (_, index) = bench.get("/openapi/v3").await;
    let place = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap();
    let (code, document) = bench.get(place).await;
    assert_eq!(code, 200);
    assert!(document["components"]["schemas"]["io.k8s.api.apps.v1.Deployment"].is_object());
    let (code, _) = bench.get("/openapi/v3/apis/apps/v1?hash=old").await;
    assert_eq!(code, 301);
    let (code, kind, bytes) = bench.raw(Method::GET, "/openapi/v2", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf", "", Vec::new()).await;
    assert_eq!((code, kind.contains("protobuf"), bytes.len() > 100_000), (200, true, true));
    let (_, _, bytes) = bench.raw(Method::GET, "/apis", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", "", Vec::new()).await;
    let groups: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(groups["kind"], "APIGroupDiscoveryList");
    assert!(groups["items"].as_array().unwrap().iter().any(|g| g["metadata"]["name"] == "apps"));
    let (code, missing) = bench.get("/apis/nobody.io/v1/things").await;
    assert_eq!((code, missing), (404, json!("404 page not found\n")));
    let (code, missing) = bench.get("/apis/apps/v1/things").await;
    assert_eq!((code, &missing["message"]), (404, &json!("the server could not find the requested resource")));
}

#[tokio::test]
async fn typed_clients_speak_protobuf() {
    const TYPE: &str = "application/vnd.kubernetes.protobuf";
    let bench = Bench::new().await;
    let bytes = crate::protobuf::encode(&deployment("web")).unwrap();
    let (code, kind, bytes) = bench.raw(Method::POST, DEPLOYMENTS, TYPE, TYPE, bytes).await;
    assert_eq!((code, kind.as_str()), (201, TYPE));
    let made = crate::protobuf::decode(&bytes).unwrap();
    assert_eq!((&made["spec"]["replicas"], &made["metadata"]["name"]), (&json!(2), &json!("web")), "{made}");
    let (_, _, bytes) = bench.raw(Method::GET, DEPLOYMENTS, TYPE, "", Vec::new()).await;
    let list = crate::protobuf::decode(&bytes).unwrap();
    assert_eq!((&list["kind"], list["items"].as_array().unwrap().len()), (&json!("DeploymentList"), 1));
    let (code, _, bytes) = bench.raw(Method::GET, &format!("{DEPLOYMENTS}/none"), TYPE, "", Vec::new()).await;
    let status = crate::protobuf::decode(&bytes).unwrap();
    assert_eq!((code, &status["reason"]), (404, &json!("NotFound")));
    let (_, json) = bench.get(&format!("{DEPLOYMENTS}/web")).await;
    let (_, _, bytes) = bench.raw(Method::GET, &format!("{DEPLOYMENTS}/web"), TYPE, "", Vec::new()).await;
    let mut binary = crate::protobuf::decode(&bytes).unwrap();
    // Empty maps are not told apart from absent ones on the wire.
    for path in ["/spec/template/spec/securityContext", "/spec/template/spec/containers/0/resources", "/status"] {
        if binary.pointer(path).is_none() {
            let (parent, field) = path.rsplit_once('/').unwrap();
            let place = if parent.is_empty() { Some(&mut binary) } else { binary.pointer_mut(parent) };
            place.unwrap()[field] = json!({});
        }
    }
    assert_eq!(binary, json);
}

#[tokio::test]
async fn services_get_addresses_and_give_them_back() {
    let bench = Bench::new().await;
    let service = |name: &str, spec: Value| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec});
    let (code, one) = bench.post(SERVICES, service("one", json!({"ports": [{"port": 80, "nodePort": 30080}], "type": "NodePort"}))).await;
    assert_eq!((code, &one["spec"]["ports"][0]["nodePort"]), (201, &json!(30080)), "{one}");
    let address = one["spec"]["clusterIP"].as_str().unwrap().to_owned();
    assert!(address.starts_with("10.96."), "{address}");
    let (code, taken) = bench.post(SERVICES, service("two", json!({"ports": [{"port": 80, "nodePort": 30080}], "type": "NodePort"}))).await;
    assert_eq!((code, &taken["message"]), (422, &json!("Service \"two\" is invalid: spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated")));
    let (code, far) = bench.post(SERVICES, service("far", json!({"ports": [{"port": 80, "nodePort": 99}], "type": "NodePort"}))).await;
    assert_eq!((code, far["message"].as_str().unwrap().contains("The range of valid ports is 30000-32767")), (422, true), "{far}");
    bench.delete(&format!("{SERVICES}/one")).await;
    let (code, again) = bench.post(SERVICES, service("two", json!({"ports": [{"port": 80, "nodePort": 30080}], "type": "NodePort", "clusterIP": address}))).await;
    assert_eq!((code, &again["spec"]["clusterIP"]), (201, &json!(address)), "{again}");
    let (_, headless) = bench.post(SERVICES, service("headless", json!({"clusterIP": "None", "ports": [{"port": 80}]}))).await;
    assert_eq!(headless["spec"]["clusterIPs"], json!(["None"]));
}

#[tokio::test]
async fn scale_dry_run_and_strictness() {
    let bench = Bench::new().await;
    bench.post(DEPLOYMENTS, deployment("web")).await;
    let path = format!("{DEPLOYMENTS}/web");
    let (code, scale) = bench.merge(&format!("{path}/scale"), json!({"spec": {"replicas": 5}})).await;
    assert_eq!((code, &scale["spec"]["replicas"], &scale["status"]["selector"]), (200, &json!(5), &json!("app=web")), "{scale}");
    let (_, scaled) = bench.get(&path).await;
    assert_eq!((&scaled["spec"]["replicas"], &scaled["metadata"]["generation"]), (&json!(5), &json!(2)));
    let (_, dry) = bench.merge(&format!("{path}?dryRun=All"), json!({"spec": {"replicas": 1}})).await;
    assert_eq!(dry["spec"]["replicas"], 1);
    assert_eq!(bench.get(&path).await.1, scaled, "a dry run changes nothing");
    let mut odd = deployment("odd");
    odd["spec"]["color"] = json!("red");
    let (code, strict) = bench.post(&format!("{DEPLOYMENTS}?fieldValidation=Strict"), odd.clone()).await;
    assert_eq!((code, strict["message"].as_str().unwrap().ends_with("strict decoding error: unknown field \"spec.color\"")), (400, true), "{strict}");
    let request = Request::post(format!("{DEPLOYMENTS}?fieldValidation=Warn")).header("content-type", "application/json").body(body::full(odd.to_string())).unwrap();
    let response = bench.0.request(Identity::master("admin"), request).await;
    assert_eq!(response.headers()["warning"], "299 - \"unknown field \\\"spec.color\\\"\"");
}

#[tokio::test]
async fn policies_refuse_and_change() {
    let bench = Bench::new().await;
    let policies = "/apis/admissionregistration.k8s.io/v1";
    let rules = json!({"resourceRules": [{"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["deployments"]}]});
    let (code, made) = bench.post(&format!("{policies}/validatingadmissionpolicies"), json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "few"}, "spec": {"matchConstraints": rules, "variables": [{"name": "n", "expression": "object.spec.replicas"}],
            "validations": [{"expression": "variables.n <= 3", "messageExpression": "'too many: ' + string(variables.n)"}]}})).await;
    assert_eq!(code, 201, "{made}");
    let (code, made) = bench.post(&format!("{policies}/validatingadmissionpolicybindings"), json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "everywhere"}, "spec": {"policyName": "few", "validationActions": ["Deny"]}})).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(bench.post(DEPLOYMENTS, deployment("web")).await.0, 201);
    let (code, denied) = bench.merge(&format!("{DEPLOYMENTS}/web"), json!({"spec": {"replicas": 9}})).await;
    assert_eq!(code, 422, "{denied}");
    assert_eq!(denied["message"], "deployments.apps \"web\" is forbidden: ValidatingAdmissionPolicy 'few' with binding 'everywhere' denied request: too many: 9");
    let (code, made) = bench.post(&format!("{policies}/mutatingadmissionpolicies"), json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": "mark"}, "spec": {"matchConstraints": rules, "reinvocationPolicy": "Never", "failurePolicy": "Fail",
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{metadata: Object.metadata{labels: {'marked': 'yes'}}}"}}]}})).await;
    assert_eq!(code, 201, "{made}");
    bench.post(&format!("{policies}/mutatingadmissionpolicybindings"), json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": "mark"}, "spec": {"policyName": "mark"}})).await;
    let (_, marked) = bench.post(DEPLOYMENTS, deployment("other")).await;
    assert_eq!(marked["metadata"]["labels"], json!({"app": "other", "marked": "yes"}), "{marked}");
}

#[tokio::test]
async fn many_writers_of_one_object_all_get_through() {
    let folder = std::env::temp_dir().join(format!("anabranch-apiserver-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let store = store::Store::open(&folder.join("store.db"), store::Options::durable()).unwrap();
    let bench = std::sync::Arc::new(Bench(crate::ApiServer::build(crate::Options::new(store)).await));
    bench.post("/api/v1/namespaces/default/configmaps", json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {}})).await;
    // All are started before the first is waited for.
    let writers: Vec<_> = (0..100)
        .map(|n: u8| {
            let bench = bench.clone();
            tokio::spawn(async move { bench.merge("/api/v1/namespaces/default/configmaps/one", json!({"data": {n.to_string(): "x"}})).await.0 })
        })
        .collect();
    for writer in writers {
        assert_eq!(writer.await.unwrap(), 200);
    }
    let (_, one) = bench.get("/api/v1/namespaces/default/configmaps/one").await;
    assert_eq!(one["data"].as_object().unwrap().len(), 100);
    drop(bench);
    std::fs::remove_dir_all(&folder).unwrap();
}
