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
