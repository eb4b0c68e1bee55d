//! Defaults as a real server fills them in.

use crate::{Kind, catalog};
use serde_json::{Value, json};

fn read(group: &str, version: &str, kind: &str, v: Value) -> Value {
    let k = catalog::by_kind(group, version, kind).and_then(Kind::native).expect("kind");
    let mut o = k.decode(v).expect("reads").object;
    k.default(&mut o);
    o
}

#[test]
fn deployment() {
    let d = read("apps", "v1", "Deployment", json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
        "selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [
            {"name": "c", "image": "nginx:1.27", "ports": [{"containerPort": 80}], "readinessProbe": {"httpGet": {"port": 80}}}],
            "volumes": [{"name": "v"}, {"name": "s", "secret": {"secretName": "x"}}]}}}}));
    assert_eq!(d["spec"], json!({"progressDeadlineSeconds": 600, "replicas": 1, "revisionHistoryLimit": 10, "selector": {"matchLabels": {"app": "web"}},
        "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}, "type": "RollingUpdate"},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {
            "containers": [{"image": "nginx:1.27", "imagePullPolicy": "IfNotPresent", "name": "c", "ports": [{"containerPort": 80, "protocol": "TCP"}],
                "readinessProbe": {"failureThreshold": 3, "httpGet": {"path": "/", "port": 80, "scheme": "HTTP"}, "periodSeconds": 10, "successThreshold": 1, "timeoutSeconds": 1},
                "resources": {}, "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}],
            "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler", "securityContext": {}, "terminationGracePeriodSeconds": 30,
            "volumes": [{"emptyDir": {}, "name": "v"}, {"name": "s", "secret": {"defaultMode": 420, "secretName": "x"}}]}}}));
}

#[test]
fn service_and_autoscaler() {
    let s = read("", "v1", "Service", json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}], "type": "NodePort"}}));
    assert_eq!(s["spec"], json!({"externalTrafficPolicy": "Cluster", "internalTrafficPolicy": "Cluster", "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}], "sessionAffinity": "None", "type": "NodePort"}));
    let h = read("autoscaling", "v2", "HorizontalPodAutoscaler", json!({"spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "a"}, "behavior": {"scaleUp": {"policies": []}}}}));
    assert_eq!(h.pointer("/spec/metrics/0/resource/target/averageUtilization"), Some(&json!(80)));
    assert_eq!(h.pointer("/spec/behavior/scaleDown/policies/0/type"), Some(&json!("Percent")));
}

#[test]
fn job_labels_and_selector() {
    let k = catalog::by_kind("batch", "v1", "Job").and_then(Kind::native).expect("kind");
    let mut j = read("batch", "v1", "Job", json!({"metadata": {"name": "j", "uid": "u"}, "spec": {"template": {"spec": {"containers": [{"name": "c"}], "restartPolicy": "Never"}}}}));
    k.prepare_create(&mut j);
    assert_eq!(j.pointer("/spec/selector/matchLabels"), Some(&json!({"batch.kubernetes.io/controller-uid": "u"})));
    assert_eq!(j.pointer("/spec/completions"), Some(&json!(1)));
    assert_eq!(j["metadata"]["generation"], 1);
}

fn faults(group: &str, kind: &str, v: Value) -> Vec<String> {
    let k = catalog::by_kind(group, "v1", kind).and_then(Kind::native).expect("kind");
    let mut o = read(group, "v1", kind, v);
    k.prepare_create(&mut o);
    k.validate_create(&o).iter().map(ToString::to_string).collect()
}

fn deployment_with(template: Value) -> Value {
    json!({"metadata": {"name": "web", "namespace": "n"}, "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template}})
}

#[test]
fn faults_of_workloads() {
    let good = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(faults("apps", "Deployment", deployment_with(good)), Vec::<String>::new());
    assert_eq!(
        faults("apps", "Deployment", deployment_with(json!({"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}}))),
        ["spec.template.metadata.labels: Invalid value: {\"app\":\"x\"}: `selector` does not match template `labels`", "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\""]
    );
    assert_eq!(
        faults("apps", "Deployment", deployment_with(json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/a"}], "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}]}}))),
        ["spec.template.spec.containers[0].image: Required value", "spec.template.spec.containers[0].volumeMounts[0].name: Not found: \"v\"", "spec.template.spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1"]
    );
    assert_eq!(
        faults("batch", "CronJob", json!({"metadata": {"name": "c", "namespace": "n"}, "spec": {"schedule": "61 * * * *", "jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}}})),
        ["spec.schedule: Invalid value: \"61 * * * *\": end of range (61) above maximum (59): 61"]
    );
}

#[test]
fn faults_of_others() {
    assert_eq!(faults("", "ConfigMap", json!({"metadata": {"name": "A", "namespace": "n"}, "data": {"a/b": ""}})).len(), 2);
    assert_eq!(faults("", "Service", json!({"metadata": {"name": "s", "namespace": "n"}, "spec": {"ports": [{"port": 0}]}})), ["spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive", "spec.ports[0].targetPort: Invalid value: 0: must be between 1 and 65535, inclusive"]);
    assert_eq!(faults("rbac.authorization.k8s.io", "ClusterRole", json!({"metadata": {"name": "system:x"}, "rules": [{"apiGroups": [""], "resources": ["pods"]}]})), ["rules[0].verbs: Required value"]);
    let crd = json!({"metadata": {"name": "ts.e.io"}, "spec": {"group": "e.io", "scope": "Namespaced", "names": {"plural": "ts", "kind": "T"}, "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    assert_eq!(faults("apiextensions.k8s.io", "CustomResourceDefinition", crd), Vec::<String>::new());
}

#[test]
fn what_may_not_change() {
    let k = catalog::by_kind("apps", "v1", "Deployment").and_then(Kind::native).expect("kind");
    let t = json!({"metadata": {"labels": {"app": "web", "b": "c"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let old = read("apps", "v1", "Deployment", deployment_with(t));
    let mut new = old.clone();
    new["spec"]["selector"]["matchLabels"]["b"] = json!("c");
    let f = k.validate_update(&new, &old, None);
    assert_eq!(f.iter().map(ToString::to_string).collect::<Vec<_>>(), [r#"spec.selector: Invalid value: {"matchLabels":{"app":"web","b":"c"}}: field is immutable"#]);
}
