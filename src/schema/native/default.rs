//! Defaults of built-in kinds. The object is walked with its shape, parents first, and every struct gets the defaults of its
//! type, so a PodSpec is defaulted wherever it stands.

use super::get;
use crate::catalog::Resource;
use crate::quantity::Quantity;
use crate::shape::{Node, Presence, Scalar};
use crate::table;
use serde_json::{Map, Value, json};

type Object = Map<String, Value>;

/// Fills in the defaults of an object of a built-in kind.
pub(crate) fn default(resource: &Resource, object: &mut Value) {
    if let Some(shape) = table::native(resource.group, resource.version, resource.kind) {
        walk(object, shape.root());
    }
}

fn walk(v: &mut Value, node: Node<'_>) {
    match v {
        Value::Object(o) => {
            let name = &*node.atom().name;
            if !name.is_empty() {
                of_type(name, o);
            }
            let Some(m) = node.map() else { return };
            if m.fields.is_empty() {
                let Some(e) = m.element.map(|r| node.at(r)) else { return };
                if e.scalar() == Some(Scalar::Quantity) {
                    round_up(o);
                } else if e.map().is_some_and(|m| !m.fields.is_empty()) {
                    o.values_mut().for_each(|x| walk(x, e));
                }
                return;
            }
            for (field, f) in &m.fields {
                if let (Some(d), None) = (&f.default, o.get(&**field)) {
                    if f.presence == Presence::DropEmpty || f.presence == Presence::Pointer {
                        o.insert(field.to_string(), d.clone());
                    }
                }
                if let Some(x) = o.get_mut(&**field) {
                    if x.is_object() || x.is_array() {
                        walk(x, node.at(f.ty));
                    }
                }
            }
        }
        Value::Array(items) => {
            let Some(item) = node.item() else { return };
            items.iter_mut().filter(|x| x.is_object()).for_each(|x| walk(x, item));
        }
        _ => {}
    }
}

/// Quantities have at most three decimal places.
fn round_up(o: &mut Object) {
    for v in o.values_mut() {
        let Some(q) = v.as_str().and_then(|t| Quantity::parse(t).ok()) else { continue };
        if q.nanos() % 1_000_000 != 0 {
            if let Ok(up) = Quantity::parse(&format!("{}m", q.milli_value())) {
                *v = json!(up.canonical());
            }
        }
    }
}

fn set(o: &mut Object, field: &str, value: impl Into<Value>) {
    if o.get(field).is_none_or(Value::is_null) {
        o.insert(field.to_owned(), value.into());
    }
}

/// Sets a text that is absent or empty.
fn set_text(o: &mut Object, field: &str, value: &str) {
    if text(o, field).is_empty() {
        o.insert(field.to_owned(), json!(value));
    }
}

/// Sets a number that is absent or zero.
fn set_number(o: &mut Object, field: &str, value: i64) {
    if o.get(field).and_then(Value::as_i64).unwrap_or(0) == 0 {
        o.insert(field.to_owned(), json!(value));
    }
}

fn text<'a>(o: &'a Object, field: &str) -> &'a str {
    o.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn below<'a>(o: &'a mut Object, field: &str) -> Option<&'a mut Object> {
    o.get_mut(field).and_then(Value::as_object_mut)
}

/// The object below a field, made when absent.
fn made<'a>(o: &'a mut Object, field: &str) -> Option<&'a mut Object> {
    let v = o.entry(field.to_owned()).or_insert_with(|| json!({}));
    if v.is_null() {
        *v = json!({});
    }
    v.as_object_mut()
}

fn each<'a>(o: &'a mut Object, field: &str) -> impl Iterator<Item = &'a mut Object> {
    o.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

fn empty(o: &Object, field: &str) -> bool {
    match o.get(field) {
        None | Some(Value::Null) => true,
        Some(Value::Array(a)) => a.is_empty(),
        Some(Value::Object(m)) => m.is_empty(),
        Some(Value::String(s)) => s.is_empty(),
        Some(_) => false,
    }
}

const RBAC: &str = "rbac.authorization.k8s.io";

fn of_type(name: &str, o: &mut Object) {
    match name {
        "core.v1.Volume" => volume(o),
        "core.v1.Container" | "core.v1.EphemeralContainer" => container(o),
        "core.v1.PodSpec" => pod_spec(o),
        "core.v1.Pod" => pod(o),
        "core.v1.PodStatus" => pod_status(o),
        "core.v1.Probe" => {
            set_number(o, "timeoutSeconds", 1);
            set_number(o, "periodSeconds", 10);
            set_number(o, "successThreshold", 1);
            set_number(o, "failureThreshold", 3);
        }
        "core.v1.HTTPGetAction" => {
            set_text(o, "path", "/");
            set_text(o, "scheme", "HTTP");
        }
        "core.v1.SecretVolumeSource" | "core.v1.ConfigMapVolumeSource" | "core.v1.DownwardAPIVolumeSource" | "core.v1.ProjectedVolumeSource" => {
            set(o, "defaultMode", 0o644);
        }
        "core.v1.ServiceAccountTokenProjection" => set(o, "expirationSeconds", 3600),
        "core.v1.ObjectFieldSelector" => set_text(o, "apiVersion", "v1"),
        "core.v1.ResourceFieldSelector" => set_text(o, "divisor", "0"),
        "core.v1.HostPathVolumeSource" => set(o, "type", ""),
        "core.v1.Secret" => set_text(o, "type", "Opaque"),
        "core.v1.Service" => service(o),
        "core.v1.ReplicationController" => replication_controller(o),
        "core.v1.PersistentVolume" => {
            if let Some(s) = below(o, "status") {
                set_text(s, "phase", "Pending");
            }
            if let Some(s) = below(o, "spec") {
                set_text(s, "persistentVolumeReclaimPolicy", "Retain");
                set(s, "volumeMode", "Filesystem");
            }
        }
        "core.v1.PersistentVolumeClaim" => {
            if let Some(s) = below(o, "status") {
                set_text(s, "phase", "Pending");
            }
        }
        "core.v1.PersistentVolumeClaimSpec" => set(o, "volumeMode", "Filesystem"),
        "core.v1.EndpointPort" => set_text(o, "protocol", "TCP"),
        "core.v1.AzureDiskVolumeSource" => set(o, "readOnly", false),
        "core.v1.Namespace" => namespace(o),
        "core.v1.NamespaceStatus" => set_text(o, "phase", "Active"),
        "core.v1.NodeStatus" => {
            if let (true, Some(c)) = (empty(o, "allocatable"), get_map(o, "capacity")) {
                o.insert("allocatable".into(), Value::Object(c));
            }
        }
        "core.v1.LimitRangeItem" => limit_range_item(o),
        "apps.v1.Deployment" => deployment(o),
        "apps.v1.DaemonSet" => daemon_set(o),
        "apps.v1.StatefulSet" => stateful_set(o),
        "apps.v1.ReplicaSet" => {
            if let Some(s) = below(o, "spec") {
                set(s, "replicas", 1);
            }
        }
        "batch.v1.Job" => job(o),
        "batch.v1.CronJobSpec" => {
            set_text(o, "concurrencyPolicy", "Allow");
            set(o, "suspend", false);
            set(o, "successfulJobsHistoryLimit", 3);
            set(o, "failedJobsHistoryLimit", 1);
        }
        "batch.v1.PodFailurePolicyOnPodConditionsPattern" => set_text(o, "status", "True"),
        "networking.v1.NetworkPolicyPort" => set(o, "protocol", "TCP"),
        "networking.v1.NetworkPolicySpec" => {
            if empty(o, "policyTypes") {
                let egress = !empty(o, "egress");
                o.insert("policyTypes".into(), if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) });
            }
        }
        "networking.v1.IngressClassParametersReference" => set(o, "scope", "Cluster"),
        "autoscaling.v1.HorizontalPodAutoscalerSpec" => {
            set(o, "minReplicas", 1);
            // Read as v2 and written as v1 again, an autoscaler without metrics looks at the CPU.
            set(o, "targetCPUUtilizationPercentage", 80);
        }
        "autoscaling.v2.HorizontalPodAutoscalerSpec" => autoscaler(o),
        "rbac.v1.ClusterRoleBinding" | "rbac.v1.RoleBinding" => {
            if let Some(r) = below(o, "roleRef") {
                set_text(r, "apiGroup", RBAC);
            }
        }
        "rbac.v1.Subject" => {
            if matches!(text(o, "kind"), "User" | "Group") {
                set_text(o, "apiGroup", RBAC);
            }
        }
        "storage.v1.StorageClass" => {
            set(o, "reclaimPolicy", "Delete");
            set(o, "volumeBindingMode", "Immediate");
        }
        "storage.v1.CSIDriverSpec" => {
            set(o, "attachRequired", true);
            set(o, "podInfoOnMount", false);
            set(o, "storageCapacity", false);
            set(o, "fsGroupPolicy", "ReadWriteOnceWithFSType");
            if empty(o, "volumeLifecycleModes") {
                o.insert("volumeLifecycleModes".into(), json!(["Persistent"]));
            }
            set(o, "requiresRepublish", false);
            set(o, "seLinuxMount", false);
            set(o, "preventPodSchedulingIfMissing", false);
        }
        "scheduling.v1.PriorityClass" => set(o, "preemptionPolicy", "PreemptLowerPriority"),
        "discovery.v1.EndpointPort" => {
            set(o, "name", "");
            set(o, "protocol", "TCP");
        }
        "flowcontrol.v1.FlowSchemaSpec" => set_number(o, "matchingPrecedence", 1000),
        "flowcontrol.v1.ExemptPriorityLevelConfiguration" => {
            set(o, "nominalConcurrencyShares", 0);
            set(o, "lendablePercent", 0);
        }
        "flowcontrol.v1.LimitedPriorityLevelConfiguration" => {
            set(o, "nominalConcurrencyShares", 30);
            set(o, "lendablePercent", 0);
        }
        "flowcontrol.v1.QueuingConfiguration" => {
            set_number(o, "handSize", 8);
            set_number(o, "queues", 64);
            set_number(o, "queueLengthLimit", 50);
        }
        "resource.v1.ExactDeviceRequest" | "resource.v1.DeviceSubRequest" => {
            set_text(o, "allocationMode", "ExactCount");
            if text(o, "allocationMode") == "ExactCount" {
                set_number(o, "count", 1);
            }
        }
        "admissionregistration.v1.ValidatingWebhook" | "admissionregistration.v1.MutatingWebhook" => {
            set(o, "failurePolicy", "Fail");
            match_resources(o);
            set(o, "timeoutSeconds", 10);
            if name.ends_with("MutatingWebhook") {
                set(o, "reinvocationPolicy", "Never");
            }
        }
        "admissionregistration.v1.RuleWithOperations" | "admissionregistration.v1.NamedRuleWithOperations" => set(o, "scope", "*"),
        "admissionregistration.v1.MatchResources" => match_resources(o),
        "admissionregistration.v1.ValidatingAdmissionPolicySpec" | "admissionregistration.v1.MutatingAdmissionPolicySpec" => set(o, "failurePolicy", "Fail"),
        "admissionregistration.v1.ServiceReference" | "apiextensions.v1.ServiceReference" | "apiregistration.v1.ServiceReference" => set(o, "port", 443),
        "apiextensions.v1.CustomResourceDefinition" => crd(o),
        _ => {}
    }
}

fn get_map(o: &Object, field: &str) -> Option<Object> {
    o.get(field).and_then(Value::as_object).filter(|m| !m.is_empty()).cloned()
}

fn match_resources(o: &mut Object) {
    set(o, "matchPolicy", "Equivalent");
    set(o, "namespaceSelector", json!({}));
    set(o, "objectSelector", json!({}));
}

fn volume(o: &mut Object) {
    if o.keys().all(|k| k == "name") {
        o.insert("emptyDir".into(), json!({}));
    }
    if let Some(i) = below(o, "image") {
        let policy = pull_policy(text(i, "reference"));
        set_text(i, "pullPolicy", policy);
    }
}

/// Always for `latest` and for images without tag and digest.
fn pull_policy(image: &str) -> &'static str {
    if image.contains('@') {
        return "IfNotPresent";
    }
    let last = image.rsplit('/').next().unwrap_or(image);
    match last.split_once(':') {
        None | Some((_, "latest")) => "Always",
        Some(_) => "IfNotPresent",
    }
}

fn container(o: &mut Object) {
    let policy = pull_policy(text(o, "image"));
    set_text(o, "imagePullPolicy", policy);
    set_text(o, "terminationMessagePath", "/dev/termination-log");
    set_text(o, "terminationMessagePolicy", "File");
}

fn pod_spec(o: &mut Object) {
    if text(o, "serviceAccountName").is_empty() && !text(o, "serviceAccount").is_empty() {
        let a = text(o, "serviceAccount").to_owned();
        o.insert("serviceAccountName".into(), json!(a));
    }
    let account = text(o, "serviceAccountName").to_owned();
    if account.is_empty() {
        o.remove("serviceAccount");
    } else {
        o.insert("serviceAccount".into(), json!(account));
    }
    set_text(o, "dnsPolicy", "ClusterFirst");
    set_text(o, "restartPolicy", "Always");
    set(o, "securityContext", json!({}));
    set(o, "terminationGracePeriodSeconds", 30);
    set_text(o, "schedulerName", "default-scheduler");
    let host = o.get("hostNetwork").and_then(Value::as_bool).unwrap_or(false);
    if host {
        // Templates of workloads get the host ports too.
        for list in ["containers", "initContainers"] {
            for c in each(o, list) {
                for p in each(c, "ports") {
                    let port = p.get("containerPort").and_then(Value::as_i64).unwrap_or(0);
                    if port != 0 {
                        set_number(p, "hostPort", port);
                    }
                }
            }
        }
    }
}

fn pod(o: &mut Object) {
    let Some(spec) = below(o, "spec") else { return };
    if spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64).is_some_and(|s| s < 0) {
        spec.insert("terminationGracePeriodSeconds".into(), json!(1));
    }
    for list in ["containers", "initContainers"] {
        for c in each(spec, list) {
            let Some(r) = below(c, "resources") else { continue };
            let Some(limits) = get_map(r, "limits") else { continue };
            if let Some(requests) = made(r, "requests") {
                for (k, v) in limits {
                    requests.entry(k).or_insert(v);
                }
            }
        }
    }
    set(spec, "enableServiceLinks", true);
}

fn pod_status(o: &mut Object) {
    let ip = text(o, "podIP").to_owned();
    let first = o.get("podIPs").and_then(|p| p.get(0)).and_then(|p| p.get("ip")).and_then(Value::as_str).unwrap_or_default().to_owned();
    if ip.is_empty() && !first.is_empty() {
        o.insert("podIP".into(), json!(first));
    } else if !ip.is_empty() && ip != first {
        o.insert("podIPs".into(), json!([{"ip": ip}]));
    }
}

fn service(o: &mut Object) {
    let Some(spec) = below(o, "spec") else { return };
    set_text(spec, "sessionAffinity", "None");
    match text(spec, "sessionAffinity") {
        "None" => {
            spec.remove("sessionAffinityConfig");
        }
        "ClientIP" => {
            let given = spec.get("sessionAffinityConfig").and_then(|c| c.pointer("/clientIP/timeoutSeconds")).is_some_and(|t| !t.is_null());
            if !given {
                spec.insert("sessionAffinityConfig".into(), json!({"clientIP": {"timeoutSeconds": 10800}}));
            }
        }
        _ => {}
    }
    set_text(spec, "type", "ClusterIP");
    for p in each(spec, "ports") {
        set_text(p, "protocol", "TCP");
        let port = p.get("port").cloned().unwrap_or(json!(0));
        if matches!(p.get("targetPort"), None | Some(Value::Null)) || p.get("targetPort") == Some(&json!(0)) || p.get("targetPort") == Some(&json!("")) {
            p.insert("targetPort".into(), port);
        }
    }
    let kind = text(spec, "type").to_owned();
    let outside = matches!(kind.as_str(), "NodePort" | "LoadBalancer") || (kind == "ClusterIP" && !empty(spec, "externalIPs"));
    if outside {
        set_text(spec, "externalTrafficPolicy", "Cluster");
    }
    if kind != "ExternalName" {
        set(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        set(spec, "allocateLoadBalancerNodePorts", true);
        if let Some(lb) = below(o, "status").and_then(|s| below(s, "loadBalancer")) {
            for i in each(lb, "ingress") {
                if !text(i, "ip").is_empty() {
                    set(i, "ipMode", "VIP");
                }
            }
        }
    }
}

fn replication_controller(o: &mut Object) {
    let labels = o.get("spec").and_then(|s| s.pointer("/template/metadata/labels")).and_then(Value::as_object).cloned();
    if let Some(l) = labels {
        if let Some(s) = below(o, "spec") {
            if empty(s, "selector") {
                s.insert("selector".into(), Value::Object(l.clone()));
            }
        }
        if let Some(m) = below(o, "metadata") {
            if empty(m, "labels") {
                m.insert("labels".into(), Value::Object(l));
            }
        }
    }
    if let Some(s) = below(o, "spec") {
        set(s, "replicas", 1);
    }
}

fn namespace(o: &mut Object) {
    let Some(m) = below(o, "metadata") else { return };
    let name = text(m, "name").to_owned();
    if !name.is_empty() {
        if let Some(l) = made(m, "labels") {
            l.insert("kubernetes.io/metadata.name".into(), json!(name));
        }
    }
}

fn limit_range_item(o: &mut Object) {
    if text(o, "type") != "Container" {
        return;
    }
    let mut default = get_map(o, "default").unwrap_or_default();
    let mut request = get_map(o, "defaultRequest").unwrap_or_default();
    for (k, v) in get_map(o, "max").unwrap_or_default() {
        default.entry(k).or_insert(v);
    }
    for (k, v) in &default {
        request.entry(k.clone()).or_insert_with(|| v.clone());
    }
    for (k, v) in get_map(o, "min").unwrap_or_default() {
        request.entry(k).or_insert(v);
    }
    for (field, m) in [("default", default), ("defaultRequest", request)] {
        if m.is_empty() {
            o.remove(field);
        } else {
            o.insert(field.into(), Value::Object(m));
        }
    }
}

fn deployment(o: &mut Object) {
    let Some(spec) = below(o, "spec") else { return };
    set(spec, "replicas", 1);
    if let Some(s) = made(spec, "strategy") {
        set_text(s, "type", "RollingUpdate");
        if text(s, "type") == "RollingUpdate" {
            if let Some(r) = made(s, "rollingUpdate") {
                set(r, "maxUnavailable", "25%");
                set(r, "maxSurge", "25%");
            }
        }
    }
    set(spec, "revisionHistoryLimit", 10);
    set(spec, "progressDeadlineSeconds", 600);
}

fn daemon_set(o: &mut Object) {
    let Some(spec) = below(o, "spec") else { return };
    if let Some(s) = made(spec, "updateStrategy") {
        set_text(s, "type", "RollingUpdate");
        if text(s, "type") == "RollingUpdate" {
            if let Some(r) = made(s, "rollingUpdate") {
                set(r, "maxUnavailable", 1);
                set(r, "maxSurge", 0);
            }
        }
    }
    set(spec, "revisionHistoryLimit", 10);
}

fn stateful_set(o: &mut Object) {
    let Some(spec) = below(o, "spec") else { return };
    set_text(spec, "podManagementPolicy", "OrderedReady");
    if let Some(s) = made(spec, "updateStrategy") {
        if text(s, "type").is_empty() {
            set_text(s, "type", "RollingUpdate");
            set(s, "rollingUpdate", json!({}));
        }
        if text(s, "type") == "RollingUpdate" {
            if let Some(r) = below(s, "rollingUpdate") {
                set(r, "partition", 0);
                set(r, "maxUnavailable", 1);
            }
        }
    }
    if let Some(r) = made(spec, "persistentVolumeClaimRetentionPolicy") {
        set_text(r, "whenDeleted", "Retain");
        set_text(r, "whenScaled", "Retain");
    }
    for c in each(spec, "volumeClaimTemplates") {
        c.insert("apiVersion".into(), json!("v1"));
        c.insert("kind".into(), json!("PersistentVolumeClaim"));
    }
    set(spec, "replicas", 1);
    set(spec, "revisionHistoryLimit", 10);
}

fn job(o: &mut Object) {
    let labels = o.get("spec").and_then(|s| s.pointer("/template/metadata/labels")).cloned().filter(|l| l.is_object());
    if let Some(m) = below(o, "metadata") {
        if let (true, Some(l)) = (empty(m, "labels"), labels) {
            m.insert("labels".into(), l);
        }
    }
    let Some(s) = below(o, "spec") else { return };
    let v = Value::Object(s.clone());
    if get(&v, "completions").is_none() && get(&v, "parallelism").is_none() {
        s.insert("completions".into(), json!(1));
    }
    set(s, "parallelism", 1);
    set(s, "backoffLimit", if get(&v, "backoffLimitPerIndex").is_some() { i32::MAX } else { 6 });
    set(s, "completionMode", "NonIndexed");
    set(s, "suspend", false);
    set(s, "podReplacementPolicy", if get(&v, "podFailurePolicy").is_some() { "Failed" } else { "TerminatingOrFailed" });
    set(s, "manualSelector", false);
}

fn autoscaler(o: &mut Object) {
    set(o, "minReplicas", 1);
    if empty(o, "metrics") {
        o.insert("metrics".into(), json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]));
    }
    let Some(b) = below(o, "behavior") else { return };
    let up = json!({"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [
        {"type": "Pods", "value": 4, "periodSeconds": 15}, {"type": "Percent", "value": 100, "periodSeconds": 15}]});
    let down = json!({"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]});
    for (field, defaults) in [("scaleUp", up), ("scaleDown", down)] {
        if let (Some(r), Value::Object(d)) = (made(b, field), defaults) {
            for (k, v) in d {
                set(r, &k, v);
            }
        }
    }
}

fn crd(o: &mut Object) {
    let Some(spec) = below(o, "spec") else { return };
    if let Some(n) = made(spec, "names") {
        let kind = text(n, "kind").to_owned();
        if !kind.is_empty() {
            set_text(n, "singular", &kind.to_lowercase());
            set_text(n, "listKind", &format!("{kind}List"));
        }
    }
    set(spec, "conversion", json!({"strategy": "None"}));
    let stored: Vec<Value> = spec
        .get("versions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter(|v| v.get("storage").and_then(Value::as_bool) == Some(true))
        .filter_map(|v| v.get("name").cloned())
        .take(1)
        .collect();
    if let Some(s) = made(o, "status") {
        if empty(s, "storedVersions") && !stored.is_empty() {
            s.insert("storedVersions".into(), Value::Array(stored));
        }
    }
}
