//! Defaults that depend on other objects: service accounts of Pods, default classes, priorities, limits.

use serde_json::{Value, json};

use crate::admission::{Operation, Request};
use crate::object;
use crate::status::ApiError;

pub(crate) fn mutate(request: &Request<'_>, object: &mut Value) -> Result<(), ApiError> {
    if request.operation != Operation::Create || !request.subresource.is_empty() {
        return Ok(());
    }
    match (request.resource.group.as_str(), request.resource.plural.as_str()) {
        ("", "namespaces") => namespace(object),
        ("", "pods") => pod(request, object)?,
        ("", "persistentvolumeclaims") => claim(request, object),
        ("networking.k8s.io", "ingresses") => ingress(request, object)?,
        _ => {}
    }
    Ok(())
}

/// Every namespace has the finalizer `kubernetes` and a label with its name.
fn namespace(object: &mut Value) {
    let name = object::name(object).to_owned();
    let labels = object::metadata(object).entry("labels").or_insert_with(|| json!({}));
    if !labels.is_object() {
        *labels = json!({});
    }
    object::child_root(labels).insert("kubernetes.io/metadata.name".into(), json!(name));
    let spec = object::child(object, "spec");
    let finalizers = spec.entry("finalizers").or_insert_with(|| json!([]));
    if let Value::Array(list) = finalizers
        && !list.iter().any(|f| f == "kubernetes")
    {
        list.push(json!("kubernetes"));
    }
    object::child(object, "status").insert("phase".into(), json!("Active"));
}

fn pod(request: &Request<'_>, pod: &mut Value) -> Result<(), ApiError> {
    runtime_class(request, pod)?;
    priority(request, pod)?;
    crate::limits::default(request, pod);
    if request.core.options.service_accounts {
        service_account(request, pod)?;
    }
    {
        // Every Pod tolerates trouble of its node for five minutes.
        let spec = object::child(pod, "spec");
        let list = spec.entry("tolerations").or_insert_with(|| json!([]));
        if let Value::Array(list) = list {
            for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
                let covered = list.iter().any(|t| {
                    let (k, effect) = (object::text(t, &["key"]), object::text(t, &["effect"]));
                    (k == key || k.is_empty()) && (effect == "NoExecute" || effect.is_empty())
                });
                if !covered {
                    list.push(json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}));
                }
            }
        }
    }
    Ok(())
}

fn runtime_class(request: &Request<'_>, pod: &mut Value) -> Result<(), ApiError> {
    let name = object::text(pod, &["spec", "runtimeClassName"]).to_owned();
    if name.is_empty() {
        let own = object::at(pod, &["spec", "overhead"]).and_then(Value::as_object).is_some_and(|map| !map.is_empty());
        return if own { Err(no_overhead(request)) } else { Ok(()) };
    }
    let Some(class) = request.core.read_native("node.k8s.io/runtimeclasses", &name) else {
        return Err(ApiError::forbidden("", "pods", request.name, &format!("pod rejected: RuntimeClass \"{name}\" not found")));
    };
    let own = object::at(pod, &["spec", "overhead"]).filter(|v| !v.is_null());
    match (object::at(&class, &["overhead", "podFixed"]), own) {
        (None, Some(_)) => return Err(no_overhead(request)),
        (Some(overhead), _) => {
            object::child(pod, "spec").insert("overhead".into(), overhead.clone());
        }
        (None, None) => {}
    }
    Ok(())
}

fn no_overhead(request: &Request<'_>) -> ApiError {
    ApiError::forbidden("", "pods", request.name, "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
}

fn priority(request: &Request<'_>, pod: &mut Value) -> Result<(), ApiError> {
    let name = object::text(pod, &["spec", "priorityClassName"]).to_owned();
    let (name, class) = if name.is_empty() {
        let mut best: Option<(String, Value)> = None;
        request.core.store.scan("scheduling.k8s.io/priorityclasses", "", &mut |entry| {
            let class = object::decode(&entry.value);
            let value = |c: &Value| c.get("value").and_then(Value::as_i64).unwrap_or(0);
            if class.get("globalDefault") == Some(&json!(true)) && best.as_ref().is_none_or(|(_, b)| value(&class) < value(b)) {
                best = Some((object::name(&class).to_owned(), class));
            }
        });
        match best {
            Some((name, class)) => (name, Some(class)),
            None => (String::new(), None),
        }
    } else {
        let class = request.core.read_native("scheduling.k8s.io/priorityclasses", &name);
        let class = class.or_else(|| match name.as_str() {
            "system-cluster-critical" => Some(json!({"value": 2_000_000_000})),
            "system-node-critical" => Some(json!({"value": 2_000_001_000})),
            _ => None,
        });
        if class.is_none() {
            return Err(ApiError::forbidden("", "pods", request.name, &format!("no PriorityClass with name {name} was found")));
        }
        (name, class)
    };
    let value = class.as_ref().and_then(|c| c.get("value")).and_then(Value::as_i64).unwrap_or(0);
    let preemption = class.as_ref().map(|c| object::text(c, &["preemptionPolicy"]).to_owned()).filter(|p| !p.is_empty()).unwrap_or_else(|| "PreemptLowerPriority".into());
    // Rank is what the class gives: whoever could write it himself would be first everywhere.
    let given = |field: &str| object::at(pod, &["spec", field]).filter(|v| !v.is_null());
    let computed = "must not be provided in pod spec; priority admission controller computed";
    if let Some(own) = given("priority").and_then(Value::as_i64).filter(|own| *own != value) {
        let why = format!("the integer value of priority ({own}) {computed} {value} from the given PriorityClass name");
        return Err(ApiError::forbidden("", "pods", request.name, &why));
    }
    if let Some(own) = given("preemptionPolicy").and_then(Value::as_str).filter(|own| *own != preemption) {
        let why = format!("the string value of PreemptionPolicy ({own}) {computed} {preemption} from the given PriorityClass name");
        return Err(ApiError::forbidden("", "pods", request.name, &why));
    }
    let spec = object::child(pod, "spec");
    if !name.is_empty() {
        spec.insert("priorityClassName".into(), json!(name));
    }
    spec.insert("priority".into(), json!(value));
    spec.entry("preemptionPolicy").or_insert(json!(preemption));
    Ok(())
}

/// The ServiceAccount of a Pod must exist; its token is mounted unless somebody says no.
fn service_account(request: &Request<'_>, pod: &mut Value) -> Result<(), ApiError> {
    if object::at(pod, &["metadata", "annotations", "kubernetes.io/config.mirror"]).is_some() {
        return Ok(());
    }
    let name = match object::text(pod, &["spec", "serviceAccountName"]) {
        "" => "default".to_owned(),
        name => name.to_owned(),
    };
    let key = format!("{}/{name}", request.namespace);
    let Some(entry) = request.core.store.latest("/serviceaccounts", &key) else {
        let why = format!("error looking up service account {key}: serviceaccount \"{name}\" not found");
        return Err(ApiError::forbidden("", "pods", request.name, &why));
    };
    let account = object::decode(&entry.value);
    {
        let spec = object::child(pod, "spec");
        spec.insert("serviceAccountName".into(), json!(name));
        spec.insert("serviceAccount".into(), json!(name));
        if !spec.contains_key("imagePullSecrets")
            && let Some(secrets) = account.get("imagePullSecrets")
        {
            spec.insert("imagePullSecrets".into(), secrets.clone());
        }
    }
    let automount = object::at(pod, &["spec", "automountServiceAccountToken"]).or_else(|| account.get("automountServiceAccountToken"));
    if automount == Some(&json!(false)) {
        return Ok(());
    }
    const PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
    let volume = crate::rest::generated("kube-api-access-");
    let mut used = false;
    let spec = object::child(pod, "spec");
    for list in ["initContainers", "containers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let mounts = object::child_root(container).entry("volumeMounts").or_insert_with(|| json!([]));
            if let Value::Array(mounts) = mounts
                && !mounts.iter().any(|m| object::text(m, &["mountPath"]) == PATH)
            {
                mounts.push(json!({"name": volume, "readOnly": true, "mountPath": PATH}));
                used = true;
            }
        }
    }
    if used && let Value::Array(volumes) = spec.entry("volumes").or_insert_with(|| json!([])) {
        volumes.push(json!({"name": volume, "projected": {"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
        ]}}));
    }
    Ok(())
}

/// The newest object of a table with this annotation set to `true`; of equally old ones the first by name.
fn default_class(request: &Request<'_>, table: &str, annotation: &str) -> Option<String> {
    let mut all: Vec<(String, String)> = Vec::new();
    request.core.store.scan(table, "", &mut |entry| {
        let class = object::decode(&entry.value);
        if object::text(&class, &["metadata", "annotations", annotation]) == "true" {
            all.push((object::text(&class, &["metadata", "creationTimestamp"]).to_owned(), object::name(&class).to_owned()));
        }
    });
    all.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    all.into_iter().next().map(|(_, name)| name)
}

fn claim(request: &Request<'_>, claim: &mut Value) {
    let old_way = object::at(claim, &["metadata", "annotations", "volume.beta.kubernetes.io/storage-class"]).is_some();
    if old_way || object::at(claim, &["spec", "storageClassName"]).is_some() {
        return;
    }
    if let Some(class) = default_class(request, "storage.k8s.io/storageclasses", "storageclass.kubernetes.io/is-default-class") {
        object::child(claim, "spec").insert("storageClassName".into(), json!(class));
    }
}

fn ingress(request: &Request<'_>, ingress: &mut Value) -> Result<(), ApiError> {
    let old_way = object::at(ingress, &["metadata", "annotations", "kubernetes.io/ingress.class"]).is_some();
    if old_way || object::at(ingress, &["spec", "ingressClassName"]).is_some() {
        return Ok(());
    }
    if let Some(class) = default_class(request, "networking.k8s.io/ingressclasses", "ingressclass.kubernetes.io/is-default-class") {
        object::child(ingress, "spec").insert("ingressClassName".into(), json!(class));
    }
    Ok(())
}
