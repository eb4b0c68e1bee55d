//! What an object costs a ResourceQuota, and which quotas count it.

use std::collections::{BTreeMap, BTreeSet};

use schema::Quantity;
use serde_json::Value;

use crate::auth::{at, strings, text};

/// Amounts by resource name.
pub(crate) type Amounts = BTreeMap<String, Quantity>;

fn list<'a>(object: &'a Value, path: &[&str]) -> &'a [Value] {
    at(object, path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

pub(crate) fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => Quantity::parse(text).ok(),
        Value::Number(number) => number.as_i64().map(Quantity::from_int),
        _ => None,
    }
}

/// The amounts in a map of quantities.
pub(crate) fn amounts(value: Option<&Value>) -> Amounts {
    let map = value.and_then(Value::as_object);
    map.into_iter().flatten().filter_map(|(name, value)| Some((name.clone(), quantity(value)?))).collect()
}

pub(crate) fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        sum.entry(name.clone()).and_modify(|sum| *sum = sum.add(amount)).or_insert(*amount);
    }
}

fn largest(sum: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let slot = sum.entry(name.clone()).or_insert(*amount);
        if *amount > *slot {
            *slot = *amount;
        }
    }
}

/// What the containers of a pod ask for or are limited to: all at once, or the largest of those that run before.
pub(crate) fn pod_amounts(pod: &Value, field: &str) -> Amounts {
    let of = |container: &Value| amounts(at(container, &["resources", field]));
    let mut sum = Amounts::new();
    for container in list(pod, &["spec", "containers"]) {
        add(&mut sum, &of(container));
    }
    let mut before = Amounts::new();
    let mut sidecars = Amounts::new();
    for container in list(pod, &["spec", "initContainers"]) {
        let own = of(container);
        if text(container, &["restartPolicy"]) == "Always" {
            add(&mut sidecars, &own);
            largest(&mut before, &sidecars);
        } else {
            let mut at_once = own;
            add(&mut at_once, &sidecars);
            largest(&mut before, &at_once);
        }
    }
    add(&mut sum, &sidecars);
    largest(&mut sum, &before);
    let own = amounts(at(pod, &["spec", "resources", field]));
    sum.extend(own);
    if !sum.is_empty() {
        let overhead = amounts(at(pod, &["spec", "overhead"]));
        let overhead = overhead.into_iter().filter(|(name, _)| field == "requests" || sum.contains_key(name)).collect();
        add(&mut sum, &overhead);
    }
    sum
}

/// The name under which all objects of a resource are counted.
pub(crate) fn count_name(group: &str, plural: &str) -> String {
    if group.is_empty() { format!("count/{plural}") } else { format!("count/{plural}.{group}") }
}

/// What one object costs.
pub(crate) fn of(group: &str, plural: &str, object: &Value) -> Amounts {
    let one = Quantity::from_int(1);
    let mut out = Amounts::from([(count_name(group, plural), one)]);
    match (group, plural) {
        ("", "configmaps" | "secrets" | "replicationcontrollers" | "resourcequotas") => {
            out.insert(plural.into(), one);
        }
        ("", "pods") => pod(object, &mut out),
        ("", "services") => service(object, &mut out),
        ("", "persistentvolumeclaims") => claim(object, &mut out),
        ("resource.k8s.io", "resourceclaims") => devices(object, &mut out),
        _ => {}
    }
    out
}

fn pod(object: &Value, out: &mut Amounts) {
    // What has ended uses nothing any more; the object is still counted.
    if matches!(text(object, &["status", "phase"]), "Succeeded" | "Failed") {
        return;
    }
    out.insert("pods".into(), Quantity::from_int(1));
    for (name, amount) in pod_amounts(object, "requests") {
        if ["cpu", "memory", "ephemeral-storage"].contains(&name.as_str()) || name.starts_with("hugepages-") {
            out.insert(name.clone(), amount);
        }
        out.insert(format!("requests.{name}"), amount);
    }
    for (name, amount) in pod_amounts(object, "limits") {
        if ["cpu", "memory", "ephemeral-storage"].contains(&name.as_str()) {
            out.insert(format!("limits.{name}"), amount);
        }
    }
}

fn service(object: &Value, out: &mut Amounts) {
    let ports = list(object, &["spec", "ports"]);
    let (mut balancers, mut node_ports) = (0, 0);
    match text(object, &["spec", "type"]) {
        "NodePort" => node_ports = ports.len(),
        "LoadBalancer" => {
            balancers = 1;
            let allocated = at(object, &["spec", "allocateLoadBalancerNodePorts"]) != Some(&Value::Bool(false));
            let fixed = |port: &&Value| port.get("nodePort").and_then(Value::as_i64).unwrap_or(0) != 0;
            node_ports = if allocated { ports.len() } else { ports.iter().filter(fixed).count() };
        }
        _ => {}
    }
    let number = |count: usize| Quantity::from_int(i64::try_from(count).unwrap_or(i64::MAX));
    out.insert("services".into(), number(1));
    out.insert("services.loadbalancers".into(), number(balancers));
    out.insert("services.nodeports".into(), number(node_ports));
}

fn claim(object: &Value, out: &mut Amounts) {
    let one = Quantity::from_int(1);
    out.insert("persistentvolumeclaims".into(), one);
    let annotated = text(object, &["metadata", "annotations", "volume.beta.kubernetes.io/storage-class"]);
    let class = if annotated.is_empty() { text(object, &["spec", "storageClassName"]) } else { annotated };
    let class_name = |what: &str| format!("{class}.storageclass.storage.k8s.io/{what}");
    if !class.is_empty() {
        out.insert(class_name("persistentvolumeclaims"), one);
    }
    if let Some(storage) = at(object, &["spec", "resources", "requests", "storage"]).and_then(quantity) {
        out.insert("requests.storage".into(), storage);
        if !class.is_empty() {
            out.insert(class_name("requests.storage"), storage);
        }
    }
}

fn devices(object: &Value, out: &mut Amounts) {
    for request in list(object, &["spec", "devices", "requests"]) {
        let alternatives: Vec<&Value> = match request.get("exactly") {
            Some(exactly) => vec![exactly],
            None if !list(request, &["firstAvailable"]).is_empty() => list(request, &["firstAvailable"]).iter().collect(),
            None => vec![request],
        };
        // One of the alternatives will be taken: the dearest counts for each class.
        let mut dearest = Amounts::new();
        for alternative in alternatives {
            let class = text(alternative, &["deviceClassName"]);
            let count = if text(alternative, &["allocationMode"]) == "All" {
                32
            } else {
                at(alternative, &["count"]).and_then(Value::as_i64).unwrap_or(1)
            };
            let name = format!("{class}.deviceclass.resource.k8s.io/devices");
            largest(&mut dearest, &Amounts::from([(name, Quantity::from_int(count))]));
        }
        add(out, &dearest);
    }
}

/// One scope of a quota, as `scopeSelector` words it.
struct Scope<'a> {
    name: &'a str,
    operator: &'a str,
    values: Vec<String>,
}

fn scopes(quota: &Value) -> Vec<Scope<'_>> {
    let plain = list(quota, &["spec", "scopes"]).iter().filter_map(Value::as_str);
    let mut out: Vec<Scope<'_>> = plain.map(|name| Scope { name, operator: "Exists", values: Vec::new() }).collect();
    for term in list(quota, &["spec", "scopeSelector", "matchExpressions"]) {
        out.push(Scope { name: text(term, &["scopeName"]), operator: text(term, &["operator"]), values: strings(term, &["values"]) });
    }
    out
}

fn holds(scope: &Scope<'_>, value: Option<&str>) -> bool {
    let listed = value.is_some_and(|value| scope.values.iter().any(|wanted| wanted == value));
    match scope.operator {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        _ => false,
    }
}

/// Whether no container of a pod asks for anything or is limited in cpu or memory.
fn best_effort(pod: &Value) -> bool {
    let containers = list(pod, &["spec", "containers"]).iter().chain(list(pod, &["spec", "initContainers"]));
    let mut resources = containers.map(|container| at(container, &["resources"])).chain([at(pod, &["spec", "resources"])]).flatten();
    let asks = |resources: &Value, field: &str| {
        amounts(resources.get(field)).iter().any(|(name, amount)| ["cpu", "memory"].contains(&name.as_str()) && amount.sign() > 0)
    };
    !resources.any(|resources| asks(resources, "requests") || asks(resources, "limits"))
}

fn crosses_namespaces(pod: &Value) -> bool {
    let terms = |kind: &str| {
        let required = list(pod, &["spec", "affinity", kind, "requiredDuringSchedulingIgnoredDuringExecution"]).iter();
        let preferred = list(pod, &["spec", "affinity", kind, "preferredDuringSchedulingIgnoredDuringExecution"]).iter();
        required.chain(preferred.filter_map(|term| term.get("podAffinityTerm"))).collect::<Vec<&Value>>()
    };
    let mut all = terms("podAffinity").into_iter().chain(terms("podAntiAffinity"));
    all.any(|term| !list(term, &["namespaces"]).is_empty() || at(term, &["namespaceSelector"]).is_some_and(|s| !s.is_null()))
}

/// Whether a quota's scopes take an object in. Quotas with scopes count pods only, and claims by their attributes class.
pub(crate) fn in_scope(quota: &Value, group: &str, plural: &str, object: &Value) -> bool {
    let scopes = scopes(quota);
    if scopes.is_empty() {
        return true;
    }
    let pods = group.is_empty() && plural == "pods";
    let claims = group.is_empty() && plural == "persistentvolumeclaims";
    scopes.iter().all(|scope| match scope.name {
        "Terminating" | "NotTerminating" if pods => {
            let ends = at(object, &["spec", "activeDeadlineSeconds"]).and_then(Value::as_i64).is_some_and(|seconds| seconds >= 0);
            ends == (scope.name == "Terminating")
        }
        "BestEffort" | "NotBestEffort" if pods => best_effort(object) == (scope.name == "BestEffort"),
        "PriorityClass" if pods => {
            let class = text(object, &["spec", "priorityClassName"]);
            holds(scope, (!class.is_empty()).then_some(class))
        }
        "CrossNamespacePodAffinity" if pods => crosses_namespaces(object),
        "VolumeAttributesClass" if claims => {
            let paths: [&[&str]; 3] = [
                &["spec", "volumeAttributesClassName"],
                &["status", "currentVolumeAttributesClassName"],
                &["status", "modifyVolumeStatus", "targetVolumeAttributesClassName"],
            ];
            let classes: BTreeSet<&str> = paths.iter().map(|path| text(object, path)).filter(|class| !class.is_empty()).collect();
            if classes.is_empty() { holds(scope, None) } else { classes.iter().any(|class| holds(scope, Some(class))) }
        }
        _ => false,
    })
}

/// What a pod must say because a quota limits it: `limits.cpu for: main; …`, nothing when all is said.
pub(crate) fn unsaid(hard: &Amounts, pod: &Value) -> Option<String> {
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let containers = list(pod, &["spec", "containers"]).iter().chain(list(pod, &["spec", "initContainers"]));
    for container in containers {
        for name in hard.keys() {
            let (field, resource) = match name.as_str() {
                "cpu" | "memory" => ("requests", name.as_str()),
                "requests.cpu" | "requests.memory" | "limits.cpu" | "limits.memory" => name.split_once('.').unwrap_or(("", "")),
                _ => continue,
            };
            if at(container, &["resources", field, resource]).is_none() && at(pod, &["spec", "resources", field, resource]).is_none() {
                missing.entry(name).or_default().insert(text(container, &["name"]));
            }
        }
    }
    let said: Vec<String> = missing
        .into_iter()
        .map(|(name, containers)| format!("{name} for: {}", containers.into_iter().collect::<Vec<_>>().join(",")))
        .collect();
    (!said.is_empty()).then(|| said.join("; "))
}

/// `pods=1,requests.cpu=500m`.
pub(crate) fn shown(amounts: &Amounts) -> String {
    let parts: Vec<String> = amounts.iter().map(|(name, amount)| format!("{name}={}", amount.canonical())).collect();
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn costs() {
        let pod = json!({"spec": {
            "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "2"}, "limits": {"memory": "1Gi"}}}],
            "containers": [
                {"name": "a", "resources": {"requests": {"cpu": "500m", "example.com/gpu": "1"}, "limits": {"memory": "64Mi"}}},
                {"name": "b", "resources": {"requests": {"cpu": "250m", "memory": "32Mi"}}},
            ],
        }});
        let mut ended = pod.clone();
        ended["status"] = json!({"phase": "Succeeded"});
        let service = json!({"spec": {"type": "LoadBalancer", "ports": [{"port": 80}, {"port": 81}]}});
        let claim = json!({"spec": {"storageClassName": "gold", "resources": {"requests": {"storage": "1Gi"}}}});
        let cases = [
            ("", "pods", &pod, "count/pods=1,cpu=2,limits.memory=1Gi,memory=32Mi,pods=1,requests.cpu=2,requests.example.com/gpu=1,requests.memory=32Mi"),
            ("", "pods", &ended, "count/pods=1"),
            ("", "services", &service, "count/services=1,services=1,services.loadbalancers=1,services.nodeports=2"),
            ("", "persistentvolumeclaims", &claim,
             "count/persistentvolumeclaims=1,gold.storageclass.storage.k8s.io/persistentvolumeclaims=1,\
              gold.storageclass.storage.k8s.io/requests.storage=1Gi,persistentvolumeclaims=1,requests.storage=1Gi"),
            ("apps", "replicasets", &claim, "count/replicasets.apps=1"),
        ];
        for (group, plural, object, expect) in cases {
            assert_eq!(shown(&of(group, plural, object)), expect);
        }
        let hard = amounts(Some(&json!({"requests.cpu": "1", "limits.cpu": "1", "pods": "3"})));
        assert_eq!(unsaid(&hard, &pod).as_deref(), Some("limits.cpu for: a,b,i"));
    }

    #[test]
    fn scopes_take_in() {
        let plain = json!({"spec": {"containers": [{"name": "a"}]}});
        let asking = json!({"spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}], "activeDeadlineSeconds": 5}});
        let ranked = json!({"spec": {"priorityClassName": "gold", "containers": []}});
        let quota = |scopes: Value, terms: Value| json!({"spec": {"scopes": scopes, "scopeSelector": {"matchExpressions": terms}}});
        let class = |operator: &str, values: Value| quota(json!([]), json!([{"scopeName": "PriorityClass", "operator": operator, "values": values}]));
        let cases = [
            (quota(json!([]), json!([])), &plain, true),
            (quota(json!(["BestEffort"]), json!([])), &plain, true),
            (quota(json!(["BestEffort"]), json!([])), &asking, false),
            (quota(json!(["NotBestEffort", "Terminating"]), json!([])), &asking, true),
            (quota(json!(["NotTerminating"]), json!([])), &asking, false),
            (class("In", json!(["gold"])), &ranked, true),
            (class("NotIn", json!(["gold"])), &ranked, false),
            (class("NotIn", json!(["gold"])), &plain, true),
            (class("Exists", json!([])), &plain, false),
            (quota(json!(["CrossNamespacePodAffinity"]), json!([])), &plain, false),
        ];
        for (quota, pod, expect) in cases {
            assert_eq!(in_scope(&quota, "", "pods", pod), expect, "{quota} {pod}");
        }
        assert!(!in_scope(&quota(json!(["BestEffort"]), json!([])), "", "services", &plain), "other kinds have no scopes");
    }
}
