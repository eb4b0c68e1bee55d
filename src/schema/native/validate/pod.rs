//! Pods and pod templates.

use super::{Faults, get, int_or_percent, list, map, meta, none_negative, not_negative, one_of, port, quantity, required, ruled, selector, text};
use crate::fault::{Fault, Path};
use crate::text as words;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// A Pod.
pub(super) fn pod(o: &Value, old: Option<&Value>, out: &mut Faults) {
    let p = Path::new("spec");
    if old.is_none_or(|old| old.get("spec") != o.get("spec")) {
        spec(&o["spec"], &p, out);
    }
    if old.is_none() && !text(o, "/spec/nodeName").is_empty() && !list(o, "/spec/schedulingGates").is_empty() {
        out.push(Fault::forbidden(&p.child("nodeName"), "cannot be set until all schedulingGates have been cleared"));
    }
    if old.is_none() && !list(o, "/spec/ephemeralContainers").is_empty() {
        out.push(Fault::forbidden(&p.child("ephemeralContainers"), "cannot be set on create"));
    }
}

/// A pod template: labels, annotations, spec.
pub(super) fn template(t: &Value, p: &Path, out: &mut Faults) {
    let m = p.child("metadata");
    out.extend(meta::labels(map(t, "/metadata/labels"), &m.child("labels")));
    out.extend(meta::annotations(map(t, "/metadata/annotations"), &m.child("annotations")));
    spec(&t["spec"], &p.child("spec"), out);
    if !list(t, "/spec/ephemeralContainers").is_empty() {
        out.push(Fault::forbidden(&p.child("spec").child("ephemeralContainers"), "ephemeral containers not allowed in pod template"));
    }
}

/// A pod specification.
pub(super) fn spec(s: &Value, p: &Path, out: &mut Faults) {
    let volumes = volumes(list(s, "/volumes"), &p.child("volumes"), out);
    let host = s.get("hostNetwork") == Some(&json!(true));
    let mut names: BTreeSet<String> = BTreeSet::new();
    if list(s, "/containers").is_empty() {
        out.push(Fault::required(&p.child("containers"), ""));
    }
    for (field, init) in [("containers", false), ("initContainers", true)] {
        for (i, c) in list(s, &format!("/{field}")).iter().enumerate() {
            let at = p.child(field).index(i);
            container(c, &volumes, host, init, &at, out);
            let name = text(c, "/name");
            if !name.is_empty() && !names.insert(name.to_owned()) {
                out.push(Fault::duplicate(&at.child("name"), name));
            }
        }
    }
    one_of(s, "restartPolicy", &["Always", "OnFailure", "Never"], true, p, out);
    one_of(s, "dnsPolicy", &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"], true, p, out);
    none_negative(s, &["terminationGracePeriodSeconds"], p, out);
    super::pod_settings::settings(s, p, out);
    if let Some(n) = get(s, "activeDeadlineSeconds") {
        if n.as_i64().is_some_and(|n| n < 1) {
            out.push(Fault::invalid(&p.child("activeDeadlineSeconds"), n.clone(), "must be between 1 and 2147483647, inclusive"));
        }
    }
    out.extend(meta::labels(map(s, "/nodeSelector"), &p.child("nodeSelector")));
    ruled(s, "serviceAccountName", words::dns1123_subdomain, p, out);
    ruled(s, "nodeName", words::dns1123_subdomain, p, out);
    ruled(s, "hostname", words::dns1123_label, p, out);
    ruled(s, "subdomain", words::dns1123_label, p, out);
    ruled(s, "priorityClassName", words::dns1123_subdomain, p, out);
    ruled(s, "runtimeClassName", words::dns1123_subdomain, p, out);
    tolerations(list(s, "/tolerations"), &p.child("tolerations"), out);
    affinity(&s["affinity"], &p.child("affinity"), out);
    spread(list(s, "/topologySpreadConstraints"), &p.child("topologySpreadConstraints"), out);
    security(&s["securityContext"], host, &p.child("securityContext"), out);
    for (i, a) in list(s, "/hostAliases").iter().enumerate() {
        let at = p.child("hostAliases").index(i);
        if text(a, "/ip").parse::<std::net::IpAddr>().is_err() {
            out.push(Fault::invalid(&at.child("ip"), text(a, "/ip"), "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"));
        }
        for (j, h) in list(a, "/hostnames").iter().enumerate() {
            let h = h.as_str().unwrap_or_default();
            out.extend(words::dns1123_subdomain(h).into_iter().map(|m| Fault::invalid(&at.child("hostnames").index(j), h, m)));
        }
    }
}

/// Containers that are put into a running Pod to look around in it.
pub(super) fn ephemeral(s: &Value, p: &Path, out: &mut Faults) {
    let volumes = list(s, "/volumes").iter().map(|v| text(v, "/name").to_owned()).collect();
    let mut names: BTreeSet<&str> = ["/containers", "/initContainers"].iter().flat_map(|k| list(s, k)).map(|c| text(c, "/name")).collect();
    for (i, c) in list(s, "/ephemeralContainers").iter().enumerate() {
        let at = p.child("ephemeralContainers").index(i);
        let name = text(c, "/name");
        if !name.is_empty() && !names.insert(name) {
            out.push(Fault::duplicate(&at.child("name"), name));
        }
        container(c, &volumes, false, false, &at, out);
        for k in ["ports", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "resizePolicy"] {
            if get(c, k).is_some_and(|v| v.as_array().is_none_or(|l| !l.is_empty())) {
                out.push(Fault::forbidden(&at.child(k), "cannot be set for an Ephemeral Container"));
            }
        }
        if !map(c, "/resources").is_empty() {
            out.push(Fault::forbidden(&at.child("resources"), "cannot be set for an Ephemeral Container"));
        }
        let target = text(c, "/targetContainerName");
        if !target.is_empty() && !list(s, "/containers").iter().any(|c| text(c, "/name") == target) {
            out.push(Fault::not_found(&at.child("targetContainerName"), target));
        }
    }
}

const VOLUME_TYPES: &[&str] = &[
    "hostPath", "emptyDir", "gcePersistentDisk", "awsElasticBlockStore", "gitRepo", "secret", "nfs", "iscsi", "glusterfs", "persistentVolumeClaim", "rbd", "flexVolume", "cinder", "cephfs", "flocker", "downwardAPI",
    "fc", "azureFile", "configMap", "vsphereVolume", "quobyte", "azureDisk", "photonPersistentDisk", "projected", "portworxVolume", "scaleIO", "storageos", "csi", "ephemeral", "image",
];

/// Checks volumes; gives their names.
fn volumes(v: &[Value], p: &Path, out: &mut Faults) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (i, x) in v.iter().enumerate() {
        let at = p.index(i);
        let name = text(x, "/name");
        if name.is_empty() {
            out.push(Fault::required(&at.child("name"), ""));
        } else {
            out.extend(words::dns1123_label(name).into_iter().map(|m| Fault::invalid(&at.child("name"), name, m)));
            if !names.insert(name.to_owned()) {
                out.push(Fault::duplicate(&at.child("name"), name));
            }
        }
        let given: Vec<&str> = VOLUME_TYPES.iter().copied().filter(|t| get(x, t).is_some()).collect();
        match given.as_slice() {
            [] => out.push(Fault::required(&at, "must specify a volume type")),
            [one] => volume_source(one, &x[one], &at.child(one), out),
            [_, more @ ..] => {
                for t in more {
                    out.push(Fault::forbidden(&at.child(t), "may not specify more than 1 volume type"));
                }
            }
        }
    }
    names
}

fn volume_source(kind: &str, s: &Value, p: &Path, out: &mut Faults) {
    match kind {
        "hostPath" => {
            if required(s, "path", p, out) && text(s, "/path").split('/').any(|x| x == "..") {
                out.push(Fault::invalid(&p.child("path"), text(s, "/path"), "must not contain '..'"));
            }
            one_of(s, "type", &["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"], false, p, out);
        }
        "secret" => {
            required(s, "secretName", p, out);
            mode(s, p, out);
            items(s, p, out);
        }
        "configMap" => {
            required(s, "name", p, out);
            mode(s, p, out);
            items(s, p, out);
        }
        "emptyDir" => {
            if let Some(q) = get(s, "sizeLimit") {
                if quantity(q, &p.child("sizeLimit"), &mut Vec::new()).is_some_and(|q| q.sign() < 0) {
                    out.push(Fault::forbidden(&p.child("sizeLimit"), "SizeLimit field must be a valid resource quantity"));
                }
            }
        }
        "persistentVolumeClaim" => {
            required(s, "claimName", p, out);
        }
        "downwardAPI" => mode(s, p, out),
        "nfs" => {
            required(s, "server", p, out);
            required(s, "path", p, out);
        }
        "csi" => {
            required(s, "driver", p, out);
        }
        "projected" => {
            mode(s, p, out);
            for (i, x) in list(s, "/sources").iter().enumerate() {
                let at = p.child("sources").index(i);
                for k in ["secret", "configMap"] {
                    if let Some(v) = get(x, k) {
                        required(v, "name", &at.child(k), out);
                    }
                }
                if let Some(t) = get(x, "serviceAccountToken") {
                    required(t, "path", &at.child("serviceAccountToken"), out);
                    let n = t.get("expirationSeconds").and_then(Value::as_i64);
                    if n.is_some_and(|n| n < 600) {
                        out.push(Fault::invalid(&at.child("serviceAccountToken").child("expirationSeconds"), n, "may not specify a duration less than 10 minutes"));
                    }
                }
            }
        }
        "ephemeral" => match get(s, "volumeClaimTemplate") {
            None => out.push(Fault::required(&p.child("volumeClaimTemplate"), "")),
            Some(t) => super::storage::claim(&t["spec"], &p.child("volumeClaimTemplate").child("spec"), out),
        },
        _ => {}
    }
}

fn mode(s: &Value, p: &Path, out: &mut Faults) {
    if let Some(m) = get(s, "defaultMode") {
        if !(0..=0o777).contains(&m.as_i64().unwrap_or(0)) {
            out.push(Fault::invalid(&p.child("defaultMode"), m.clone(), "must be a number between 0 and 0777 (octal), both inclusive"));
        }
    }
}

fn items(s: &Value, p: &Path, out: &mut Faults) {
    for (i, x) in list(s, "/items").iter().enumerate() {
        let at = p.child("items").index(i);
        required(x, "key", &at, out);
        if required(x, "path", &at, out) {
            let path = text(x, "/path");
            if path.starts_with('/') {
                out.push(Fault::invalid(&at.child("path"), path, "must be a relative path"));
            }
            if path.split('/').any(|e| e == "..") {
                out.push(Fault::invalid(&at.child("path"), path, "must not contain '..'"));
            }
        }
    }
}

fn container(c: &Value, volumes: &BTreeSet<String>, host: bool, init: bool, p: &Path, out: &mut Faults) {
    let name = text(c, "/name");
    if name.is_empty() {
        out.push(Fault::required(&p.child("name"), ""));
    } else {
        out.extend(words::dns1123_label(name).into_iter().map(|m| Fault::invalid(&p.child("name"), name, m)));
    }
    let image = text(c, "/image");
    if image.is_empty() {
        out.push(Fault::required(&p.child("image"), ""));
    } else if image.trim() != image {
        out.push(Fault::invalid(&p.child("image"), image, "must not have leading or trailing whitespace"));
    }
    one_of(c, "imagePullPolicy", &["Always", "IfNotPresent", "Never"], true, p, out);
    one_of(c, "terminationMessagePolicy", &["FallbackToLogsOnError", "File"], true, p, out);
    ports(list(c, "/ports"), host, &p.child("ports"), out);
    env(list(c, "/env"), &p.child("env"), out);
    for (i, e) in list(c, "/envFrom").iter().enumerate() {
        let at = p.child("envFrom").index(i);
        match (get(e, "configMapRef"), get(e, "secretRef")) {
            (None, None) => out.push(Fault::invalid(&at, "", "must specify one of: `configMapRef` or `secretRef`")),
            (Some(_), Some(_)) => out.push(Fault::invalid(&at, "", "may not have more than one field specified at a time")),
            (Some(r), None) => {
                required(r, "name", &at.child("configMapRef"), out);
            }
            (None, Some(r)) => {
                required(r, "name", &at.child("secretRef"), out);
            }
        }
    }
    let mut paths = BTreeSet::new();
    for (i, m) in list(c, "/volumeMounts").iter().enumerate() {
        let at = p.child("volumeMounts").index(i);
        required(m, "name", &at, out);
        if !volumes.contains(text(m, "/name")) {
            out.push(Fault::not_found(&at.child("name"), text(m, "/name")));
        }
        if required(m, "mountPath", &at, out) && !paths.insert(text(m, "/mountPath").to_owned()) {
            out.push(Fault::invalid(&at.child("mountPath"), text(m, "/mountPath"), "must be unique"));
        }
        let sub = text(m, "/subPath");
        if sub.starts_with('/') {
            out.push(Fault::invalid(&p.child("volumeMounts").child("subPath"), sub, "must be a relative path"));
        }
        if sub.split('/').any(|e| e == "..") {
            out.push(Fault::invalid(&p.child("volumeMounts").child("subPath"), sub, "must not contain '..'"));
        }
    }
    resources(&c["resources"], &p.child("resources"), out);
    let sidecar = init && text(c, "/restartPolicy") == "Always";
    for k in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(pr) = get(c, k) else { continue };
        let at = p.child(k);
        if init && !sidecar {
            out.push(Fault::forbidden(&at, "may not be set for init containers without restartPolicy=Always"));
            continue;
        }
        probe(pr, &at, out);
        if k != "readinessProbe" && pr.get("successThreshold").and_then(Value::as_i64).is_some_and(|n| n != 1) {
            out.push(Fault::invalid(&at.child("successThreshold"), pr["successThreshold"].clone(), "must be 1"));
        }
    }
    if let Some(l) = get(c, "lifecycle") {
        for k in ["postStart", "preStop"] {
            if let Some(h) = get(l, k) {
                handler(h, &["exec", "httpGet", "tcpSocket", "sleep"], &p.child("lifecycle").child(k), out);
            }
        }
    }
    container_security(&c["securityContext"], &p.child("securityContext"), out);
}

fn ports(v: &[Value], host: bool, p: &Path, out: &mut Faults) {
    let mut names = BTreeSet::new();
    for (i, x) in v.iter().enumerate() {
        let at = p.index(i);
        let name = text(x, "/name");
        if !name.is_empty() {
            let faults = words::port_name(name);
            if faults.is_empty() && !names.insert(name.to_owned()) {
                out.push(Fault::duplicate(&at.child("name"), name));
            }
            out.extend(faults.into_iter().map(|m| Fault::invalid(&at.child("name"), name, m)));
        }
        match x.get("containerPort").and_then(Value::as_i64).unwrap_or(0) {
            0 => out.push(Fault::required(&at.child("containerPort"), "")),
            n => out.extend(words::port_number(n).into_iter().map(|m| Fault::invalid(&at.child("containerPort"), n, m))),
        }
        let hp = x.get("hostPort").and_then(Value::as_i64).unwrap_or(0);
        if hp != 0 {
            out.extend(words::port_number(hp).into_iter().map(|m| Fault::invalid(&at.child("hostPort"), hp, m)));
            if host && x.get("containerPort").and_then(Value::as_i64) != Some(hp) {
                out.push(Fault::invalid(&at.child("hostPort"), hp, "must match `containerPort` when `hostNetwork` is true"));
            }
        }
        one_of(x, "protocol", &["SCTP", "TCP", "UDP"], true, &at, out);
    }
}

fn env(v: &[Value], p: &Path, out: &mut Faults) {
    for (i, e) in v.iter().enumerate() {
        let at = p.index(i);
        if required(e, "name", &at, out) {
            let name = text(e, "/name");
            out.extend(words::env_var_name(name).into_iter().map(|m| Fault::invalid(&at.child("name"), name, m)));
        }
        let Some(from) = get(e, "valueFrom") else { continue };
        let at = at.child("valueFrom");
        let given: Vec<&str> = ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"].into_iter().filter(|k| get(from, k).is_some()).collect();
        if given.is_empty() {
            out.push(Fault::invalid(&at, "", "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"));
        } else if !text(e, "/value").is_empty() {
            out.push(Fault::invalid(&at, "", "may not be specified when `value` is not empty"));
        } else if given.len() > 1 {
            out.push(Fault::invalid(&at, "", "may not have more than one field specified at a time"));
        }
        for k in ["configMapKeyRef", "secretKeyRef"] {
            if let Some(r) = get(from, k) {
                let name = text(r, "/name");
                out.extend(words::dns1123_subdomain(name).into_iter().map(|m| Fault::invalid(&at.child(k).child("name"), name, m)));
                if required(r, "key", &at.child(k), out) {
                    let key = text(r, "/key");
                    out.extend(words::config_map_key(key).into_iter().map(|m| Fault::invalid(&at.child(k).child("key"), key, m)));
                }
            }
        }
        if let Some(f) = get(from, "fieldRef") {
            let path = text(f, "/fieldPath");
            let known = matches!(path, "metadata.name" | "metadata.namespace" | "metadata.uid" | "spec.nodeName" | "spec.serviceAccountName" | "status.hostIP" | "status.hostIPs" | "status.podIP" | "status.podIPs")
                || ((path.starts_with("metadata.labels['") || path.starts_with("metadata.annotations['")) && path.ends_with("']"));
            if path.is_empty() {
                out.push(Fault::required(&at.child("fieldRef").child("fieldPath"), ""));
            } else if !known {
                if matches!(path, "metadata.labels" | "metadata.annotations") {
                    out.push(Fault::not_supported(&at.child("fieldRef").child("fieldPath"), path, &["metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"]));
                } else {
                    out.push(Fault::invalid(&at.child("fieldRef").child("fieldPath"), path, "error converting fieldPath: field label not supported: ".to_owned() + path));
                }
            }
        }
    }
}

/// Requests and limits.
pub(super) fn resources(r: &Value, p: &Path, out: &mut Faults) {
    let limits = map(r, "/limits");
    let mut known: BTreeMap<&str, crate::Quantity> = BTreeMap::new();
    for (k, v) in limits {
        let at = p.child("limits").key(k);
        resource_name(k, &at, out);
        if let Some(q) = quantity(v, &at, out) {
            known.insert(k, q);
        }
    }
    for (k, v) in map(r, "/requests") {
        let at = p.child("requests").key(k);
        resource_name(k, &at, out);
        let Some(q) = quantity(v, &at, out) else { continue };
        match known.get(k.as_str()) {
            Some(l) if q.nanos() > l.nanos() && !extended(k) => out.push(Fault::invalid(&p.child("requests"), v.clone(), format!("must be less than or equal to {k} limit of {}", l.canonical()))),
            Some(l) if q.nanos() != l.nanos() && extended(k) => out.push(Fault::invalid(&p.child("requests"), v.clone(), format!("must be equal to {k} limit of {}", l.canonical()))),
            None if extended(k) => out.push(Fault::required(&p.child("limits"), "Limit must be set for non overcommitable resources")),
            _ => {}
        }
    }
}

fn extended(name: &str) -> bool {
    name.contains('/') && !name.starts_with("kubernetes.io/") || name.starts_with("hugepages-")
}

fn resource_name(k: &str, p: &Path, out: &mut Faults) {
    let faults = words::qualified_name(k);
    if !faults.is_empty() {
        out.extend(faults.into_iter().map(|m| Fault::invalid(p, k, m)));
        return;
    }
    if !k.contains('/') && !matches!(k, "cpu" | "memory" | "ephemeral-storage") && !k.starts_with("hugepages-") {
        out.push(Fault::invalid(p, k, "must be a standard resource type or fully qualified"));
        out.push(Fault::invalid(p, k, "must be a standard resource for containers"));
    }
}

fn probe(v: &Value, p: &Path, out: &mut Faults) {
    handler(v, &["exec", "httpGet", "tcpSocket", "grpc"], p, out);
    none_negative(v, &["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"], p, out);
    if let Some(n) = v.get("terminationGracePeriodSeconds").and_then(Value::as_i64) {
        if n <= 0 {
            out.push(Fault::invalid(&p.child("terminationGracePeriodSeconds"), n, "must be greater than 0"));
        }
    }
}

fn handler(v: &Value, kinds: &[&str], p: &Path, out: &mut Faults) {
    let given: Vec<&str> = kinds.iter().copied().filter(|k| get(v, k).is_some()).collect();
    match given.as_slice() {
        [] => out.push(Fault::required(p, "must specify a handler type")),
        [_] => {}
        [_, more @ ..] => {
            for k in more {
                out.push(Fault::forbidden(&p.child(k), "may not specify more than 1 handler type"));
            }
        }
    }
    if let Some(h) = get(v, "httpGet") {
        required(h, "path", &p.child("httpGet"), out);
        port(&h["port"], &p.child("httpGet").child("port"), out);
        one_of(h, "scheme", &["HTTP", "HTTPS"], false, &p.child("httpGet"), out);
    }
    if let Some(h) = get(v, "tcpSocket") {
        port(&h["port"], &p.child("tcpSocket").child("port"), out);
    }
    if let Some(h) = get(v, "exec") {
        if list(h, "/command").is_empty() {
            out.push(Fault::required(&p.child("exec").child("command"), ""));
        }
    }
}

fn tolerations(v: &[Value], p: &Path, out: &mut Faults) {
    for (i, t) in v.iter().enumerate() {
        let at = p.index(i);
        ruled(t, "key", words::qualified_name, &at, out);
        let (key, op) = (text(t, "/key"), text(t, "/operator"));
        if key.is_empty() && op != "Exists" {
            out.push(Fault::invalid(&at.child("operator"), op, "operator must be Exists when `key` is empty, which means \"match all values and all keys\""));
        }
        if get(t, "tolerationSeconds").is_some() && text(t, "/effect") != "NoExecute" {
            out.push(Fault::invalid(&at.child("effect"), text(t, "/effect"), "effect must be 'NoExecute' when `tolerationSeconds` is set"));
        }
        match op {
            "Exists" if !text(t, "/value").is_empty() => out.push(Fault::invalid(&at.child("operator"), json!({"key": key, "operator": op, "value": text(t, "/value")}), "value must be empty when `operator` is 'Exists'")),
            "" | "Equal" => out.extend(words::label_value(text(t, "/value")).into_iter().map(|m| Fault::invalid(&at.child("operator"), text(t, "/value"), m))),
            "Exists" | "Lt" | "Gt" => {}
            other => out.push(Fault::not_supported(&at.child("operator"), other, &["Equal", "Exists", "Gt", "Lt"])),
        }
        one_of(t, "effect", &["NoSchedule", "PreferNoSchedule", "NoExecute"], false, &at, out);
    }
}

fn affinity(a: &Value, p: &Path, out: &mut Faults) {
    if let Some(n) = get(a, "nodeAffinity") {
        let at = p.child("nodeAffinity");
        if let Some(r) = get(n, "requiredDuringSchedulingIgnoredDuringExecution") {
            let at = at.child("requiredDuringSchedulingIgnoredDuringExecution");
            if list(r, "/nodeSelectorTerms").is_empty() {
                out.push(Fault::required(&at.child("nodeSelectorTerms"), "must have at least one node selector term"));
            }
            for (i, t) in list(r, "/nodeSelectorTerms").iter().enumerate() {
                node_term(t, &at.child("nodeSelectorTerms").index(i), out);
            }
        }
        for (i, t) in list(n, "/preferredDuringSchedulingIgnoredDuringExecution").iter().enumerate() {
            let at = at.child("preferredDuringSchedulingIgnoredDuringExecution").index(i);
            weight(t, &at, out);
            node_term(&t["preference"], &at.child("preference"), out);
        }
    }
    for k in ["podAffinity", "podAntiAffinity"] {
        let Some(n) = get(a, k) else { continue };
        for (i, t) in list(n, "/requiredDuringSchedulingIgnoredDuringExecution").iter().enumerate() {
            pod_term(t, &p.child(k).child("requiredDuringSchedulingIgnoredDuringExecution").index(i), out);
        }
        for (i, t) in list(n, "/preferredDuringSchedulingIgnoredDuringExecution").iter().enumerate() {
            let at = p.child(k).child("preferredDuringSchedulingIgnoredDuringExecution").index(i);
            weight(t, &at, out);
            pod_term(&t["podAffinityTerm"], &at.child("podAffinityTerm"), out);
        }
    }
}

fn weight(t: &Value, p: &Path, out: &mut Faults) {
    let n = t.get("weight").and_then(Value::as_i64).unwrap_or(0);
    if !(1..=100).contains(&n) {
        out.push(Fault::invalid(&p.child("weight"), n, "must be in the range 1-100"));
    }
}

fn node_term(t: &Value, p: &Path, out: &mut Faults) {
    for (i, e) in list(t, "/matchExpressions").iter().enumerate() {
        let at = p.child("matchExpressions").index(i);
        let values = list(e, "/values");
        match text(e, "/operator") {
            "In" | "NotIn" if values.is_empty() => out.push(Fault::required(&at.child("values"), "must be specified when `operator` is 'In' or 'NotIn'")),
            "Exists" | "DoesNotExist" if !values.is_empty() => out.push(Fault::forbidden(&at.child("values"), "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")),
            "Gt" | "Lt" if values.len() != 1 => out.push(Fault::required(&at.child("values"), "must be specified single value when `operator` is 'Lt' or 'Gt'")),
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
            other => out.push(Fault::invalid(&at.child("operator"), other, "not a valid selector operator")),
        }
        let key = text(e, "/key");
        out.extend(words::qualified_name(key).into_iter().map(|m| Fault::invalid(&at.child("key"), key, m)));
    }
}

fn pod_term(t: &Value, p: &Path, out: &mut Faults) {
    if let Some(s) = get(t, "labelSelector") {
        selector(s, &p.child("labelSelector"), out);
    }
    let key = text(t, "/topologyKey");
    if key.is_empty() {
        out.push(Fault::required(&p.child("topologyKey"), "can not be empty"));
    }
    out.extend(words::qualified_name(key).into_iter().map(|m| Fault::invalid(&p.child("topologyKey"), key, m)));
}

fn spread(v: &[Value], p: &Path, out: &mut Faults) {
    for (i, c) in v.iter().enumerate() {
        let at = p.index(i);
        let n = c.get("maxSkew").and_then(Value::as_i64).unwrap_or(0);
        if n <= 0 {
            out.push(Fault::invalid(&at.child("maxSkew"), n, "must be greater than zero"));
        }
        if text(c, "/topologyKey").is_empty() {
            out.push(Fault::required(&at.child("topologyKey"), "can not be empty"));
        }
        one_of(c, "whenUnsatisfiable", &["DoNotSchedule", "ScheduleAnyway"], true, &at, out);
        if let Some(s) = get(c, "labelSelector") {
            selector(s, &at.child("labelSelector"), out);
        }
    }
}

fn security(s: &Value, host: bool, p: &Path, out: &mut Faults) {
    ids(s, &["runAsUser", "runAsGroup", "fsGroup"], p, out);
    for (i, c) in list(s, "/sysctls").iter().enumerate() {
        let at = p.child("sysctls").index(i);
        let name = text(c, "/name");
        let ok = !name.is_empty()
            && name.len() <= 253
            && name.split(['.', '/']).all(|e| {
                let b = e.as_bytes();
                let edge = |c: Option<&u8>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
                edge(b.first()) && edge(b.last()) && b.iter().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, b'-' | b'_'))
            });
        if name.is_empty() {
            out.push(Fault::required(&at.child("name"), ""));
        } else if !ok {
            out.push(Fault::invalid(&at.child("name"), name, "must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"));
        } else if host && name.starts_with("net.") {
            out.push(Fault::invalid(&at.child("name"), name, "may not be specified when 'hostNetwork' is true"));
        }
    }
}

/// User and group ids.
fn ids(s: &Value, fields: &[&str], p: &Path, out: &mut Faults) {
    for f in fields {
        if let Some(n) = s.get(*f).and_then(Value::as_i64) {
            if !(0..=i64::from(i32::MAX)).contains(&n) {
                out.push(Fault::invalid(&p.child(f), n, "must be between 0 and 2147483647, inclusive"));
            }
        }
    }
}

fn container_security(s: &Value, p: &Path, out: &mut Faults) {
    ids(s, &["runAsUser", "runAsGroup"], p, out);
    let yes = |k: &str| s.get(k) == Some(&json!(true));
    if s.get("allowPrivilegeEscalation") == Some(&json!(false)) && yes("privileged") {
        out.push(Fault::invalid(p, s.clone(), "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"));
    }
}

/// Rolling update of workloads.
pub(super) fn rolling(o: &Value, p: &Path, out: &mut Faults) {
    for k in ["maxUnavailable", "maxSurge"] {
        if let Some(v) = get(o, k) {
            int_or_percent(v, &p.child(k), out);
        }
    }
    let zero = |k: &str| get(o, k).is_some_and(|v| v.as_i64() == Some(0) || v.as_str() == Some("0%"));
    if zero("maxUnavailable") && (zero("maxSurge") || get(o, "maxSurge").is_none()) {
        out.push(Fault::invalid(&p.child("maxUnavailable"), o["maxUnavailable"].clone(), "may not be 0 when `maxSurge` is 0"));
    }
    if let Some(v) = get(o, "maxUnavailable") {
        super::at_most_all(v, &p.child("maxUnavailable"), out);
    }
}

/// Labels of a template.
pub(super) fn labels(t: &Value) -> &Map<String, Value> {
    map(t, "/metadata/labels")
}

/// Whole numbers that are not negative.
pub(super) fn replicas(s: &Value, p: &Path, out: &mut Faults) {
    if let Some(n) = get(s, "replicas") {
        not_negative(n, &p.child("replicas"), out);
    }
}
