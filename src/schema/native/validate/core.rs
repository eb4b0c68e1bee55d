//! Core kinds: Service, ConfigMap, Secret, Endpoints, Event, quota, limits, nodes, leases, classes.

use super::{Faults, get, list, map, none_negative, one_of, quantity, required, ruled, shown, text};
use crate::fault::{Fault, Path};
use crate::text as words;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const MAX_DATA: usize = 1024 * 1024;

fn keys(o: &Value, fields: &[&str], out: &mut Faults) -> usize {
    let mut size = 0;
    let mut seen = BTreeSet::new();
    for f in fields {
        for (k, v) in map(o, &format!("/{f}")) {
            let p = Path::new(f).key(k);
            out.extend(words::config_map_key(k).into_iter().map(|m| Fault::invalid(&p, k.as_str(), m)));
            if !seen.insert(k.clone()) {
                out.push(Fault::invalid(&Path::new("data").key(k), k.as_str(), "duplicate of key present in binaryData"));
            }
            let n = v.as_str().map_or(0, str::len);
            size += if *f == "data" && fields.len() == 2 { n } else { n / 4 * 3 };
        }
    }
    size
}

pub(super) fn config_map(o: &Value, out: &mut Faults) {
    if keys(o, &["data", "binaryData"], out) > MAX_DATA {
        // The server's words for a path of one empty name.
        out.push(Fault::too_long(&Path::new("[]"), MAX_DATA));
    }
}

pub(super) fn secret(o: &Value, out: &mut Faults) {
    let p = Path::new("data");
    if keys(o, &["data"], out) > MAX_DATA {
        out.push(Fault::too_long(&p, MAX_DATA));
    }
    let data = map(o, "/data");
    let mut need = |k: &str| {
        if !data.contains_key(k) {
            out.push(Fault::required(&p.key(k), ""));
        }
    };
    match text(o, "/type") {
        "kubernetes.io/service-account-token" => {
            let a = map(o, "/metadata/annotations").get("kubernetes.io/service-account.name").and_then(Value::as_str).unwrap_or_default();
            if a.is_empty() {
                out.push(Fault::required(&Path::new("metadata.annotations").key("kubernetes.io/service-account.name"), ""));
            }
        }
        "kubernetes.io/dockercfg" => need(".dockercfg"),
        "kubernetes.io/dockerconfigjson" => need(".dockerconfigjson"),
        "kubernetes.io/basic-auth" => {
            if !data.contains_key("username") && !data.contains_key("password") {
                need("username");
                need("password");
            }
        }
        "kubernetes.io/ssh-auth" => need("ssh-privatekey"),
        "kubernetes.io/tls" => {
            need("tls.crt");
            need("tls.key");
        }
        _ => {}
    }
    for (field, json_key) in [("kubernetes.io/dockercfg", ".dockercfg"), ("kubernetes.io/dockerconfigjson", ".dockerconfigjson")] {
        if text(o, "/type") == field {
            use base64::Engine;
            let raw = data.get(json_key).and_then(Value::as_str).and_then(|t| base64::engine::general_purpose::STANDARD.decode(t).ok());
            if raw.is_some_and(|r| serde_json::from_slice::<Value>(&r).is_err()) {
                out.push(Fault::invalid(&p.key(json_key), "<secret contents redacted>", "invalid character in JSON"));
            }
        }
    }
}

pub(super) fn data_update(plural: &str, o: &Value, old: &Value, out: &mut Faults) {
    if plural == "secrets" && o.get("type") != old.get("type") {
        out.push(Fault::invalid(&Path::new("type"), shown(&o["type"]), "field is immutable"));
    }
    if old.get("immutable") == Some(&json!(true)) {
        let words = "field is immutable when `immutable` is set";
        if o.get("immutable") != Some(&json!(true)) {
            out.push(Fault::forbidden(&Path::new("immutable"), words));
        }
        for k in ["data", "binaryData"] {
            if o.get(k) != old.get(k) {
                out.push(Fault::forbidden(&Path::new(k), words));
            }
        }
    }
}

pub(super) fn endpoints(o: &Value, out: &mut Faults) {
    for (i, s) in list(o, "/subsets").iter().enumerate() {
        let at = Path::new("subsets").index(i);
        if list(s, "/addresses").is_empty() && list(s, "/notReadyAddresses").is_empty() {
            out.push(Fault::required(&at, "must specify `addresses` or `notReadyAddresses`"));
        }
        for k in ["addresses", "notReadyAddresses"] {
            for (j, a) in list(s, &format!("/{k}")).iter().enumerate() {
                if text(a, "/ip").parse::<std::net::IpAddr>().is_err() {
                    out.push(Fault::invalid(&at.child(k).index(j).child("ip"), text(a, "/ip"), "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"));
                }
            }
        }
        for (j, x) in list(s, "/ports").iter().enumerate() {
            let at = at.child("ports").index(j);
            let n = x.get("port").and_then(Value::as_i64).unwrap_or(0);
            out.extend(words::port_number(n).into_iter().map(|m| Fault::invalid(&at.child("port"), n, m)));
            one_of(x, "protocol", &["SCTP", "TCP", "UDP"], true, &at, out);
        }
    }
}

/// Events name what they are about, in its namespace.
pub(super) fn event(o: &Value, about: &str, out: &mut Faults) {
    let (there, here) = (text(o, &format!("/{about}/namespace")), text(o, "/metadata/namespace"));
    let fits = if there.is_empty() { here.is_empty() || here == "default" || here == "kube-system" } else { there == here };
    if !fits {
        out.push(Fault::invalid(&Path::new("involvedObject").child("namespace"), there, "does not match event.namespace"));
    }
    if about == "regarding" && get(o, "eventTime").is_some() {
        for k in ["reportingController", "reportingInstance", "action", "reason"] {
            required(o, k, &Path::root(), out);
        }
        if !matches!(text(o, "/type"), "Normal" | "Warning") {
            out.push(Fault::invalid(&Path::new("type"), "", format!("has invalid value: {}", text(o, "/type"))));
        }
    }
}

pub(super) fn resource_quota(o: &Value, out: &mut Faults) {
    let p = Path::new("spec").child("hard");
    for (k, v) in map(o, "/spec/hard") {
        let at = p.key(k);
        let faults = words::qualified_name(k);
        let standard = k.contains('/')
            || k.starts_with("count/")
            || k.starts_with("requests.")
            || k.starts_with("limits.")
            || matches!(
                k.as_str(),
                "cpu" | "memory" | "ephemeral-storage" | "pods" | "resourcequotas" | "services" | "replicationcontrollers" | "secrets" | "persistentvolumeclaims" | "configmaps" | "services.nodeports" | "services.loadbalancers"
            )
            || k.starts_with("hugepages-");
        if faults.is_empty() && !standard {
            out.push(Fault::invalid(&at, k.as_str(), "must be a standard resource type or fully qualified"));
            out.push(Fault::invalid(&at, k.as_str(), "must be a standard resource for quota"));
        }
        out.extend(faults.into_iter().map(|m| Fault::invalid(&at, k.as_str(), m)));
        quantity(v, &at, out);
    }
}

pub(super) fn limit_range(o: &Value, out: &mut Faults) {
    for (i, l) in list(o, "/spec/limits").iter().enumerate() {
        let at = Path::new("spec").child("limits").index(i);
        let parse = |side: &str, k: &str| l.pointer(&format!("/{side}/{}", k.replace('/', "~1"))).and_then(Value::as_str).and_then(|t| crate::Quantity::parse(t).ok());
        let all: BTreeSet<&String> = ["min", "max", "default", "defaultRequest", "maxLimitRequestRatio"].iter().flat_map(|s| map(l, &format!("/{s}")).keys()).collect();
        for k in all {
            let (min, max, def, req) = (parse("min", k), parse("max", k), parse("default", k), parse("defaultRequest", k));
            let mut above = |a: Option<crate::Quantity>, b: Option<crate::Quantity>, side: &str, shown: Option<crate::Quantity>, words: (&str, &str)| {
                if let (Some(x), Some(y), Some(v)) = (a, b, shown) {
                    if x.nanos() > y.nanos() {
                        out.push(Fault::invalid(&at.child(side).key(k), v.canonical(), format!("{} {} is greater than {} {}", words.0, x.canonical(), words.1, y.canonical())));
                    }
                }
            };
            above(min, max, "min", min, ("min value", "max value"));
            above(min, req, "defaultRequest", req, ("min value", "default request value"));
            above(req, max, "defaultRequest", req, ("default request value", "max value"));
            above(req, def, "defaultRequest", req, ("default request value", "default limit value"));
            above(min, def, "default", min, ("min value", "default value"));
            above(def, max, "default", max, ("default value", "max value"));
        }
    }
}

pub(super) fn node(o: &Value, out: &mut Faults) {
    for (i, t) in list(o, "/spec/taints").iter().enumerate() {
        let at = Path::new("metadata").child("taints").index(i);
        ruled(t, "key", words::qualified_name, &at, out);
        ruled(t, "value", words::label_value, &at, out);
        one_of(t, "effect", &["NoSchedule", "PreferNoSchedule", "NoExecute"], true, &at, out);
        let same = |other: &Value| ["/key", "/effect"].iter().all(|k| text(other, k) == text(t, k));
        if list(o, "/spec/taints")[..i].iter().any(same) {
            // The server shows its internal form.
            let shown = json!({"Key": text(t, "/key"), "Value": text(t, "/value"), "Effect": text(t, "/effect"), "TimeAdded": get(t, "timeAdded")});
            out.push(Fault { detail: "taints must be unique by key and effect pair".to_owned(), ..Fault::duplicate(&at, shown) });
        }
    }
    let ranges = list(o, "/spec/podCIDRs");
    let p = Path::new("spec.podCIDRs");
    for (i, range) in ranges.iter().enumerate() {
        let range = range.as_str().unwrap_or_default();
        out.extend(words::cidr(range, true).into_iter().map(|m| Fault::invalid(&p.index(i), range, m)));
    }
    let sixes = ranges.iter().filter(|r| r.as_str().is_some_and(|r| r.contains(':'))).count();
    if sixes > 1 || ranges.len() - sixes > 1 {
        out.push(Fault::invalid(&p, json!(ranges), "may specify no more than one CIDR for each IP family"));
    }
}

pub(super) fn priority_class(o: &Value, out: &mut Faults) {
    let (name, n) = (text(o, "/metadata/name"), o.get("value").and_then(Value::as_i64).unwrap_or(0));
    if name.starts_with("system-") && !matches!(name, "system-cluster-critical" | "system-node-critical") {
        out.push(Fault::forbidden(&Path::new("metadata").child("name"), "priority class names with 'system-' prefix are reserved for system use only. error: ".to_owned() + name + " is not a known system priority class"));
    }
    if n > 1_000_000_000 && !name.starts_with("system-") {
        out.push(Fault::forbidden(&Path::new("value"), "maximum allowed value of a user defined priority is 1000000000"));
    }
    one_of(o, "preemptionPolicy", &["Never", "PreemptLowerPriority"], false, &Path::root(), out);
}

pub(super) fn lease(o: &Value, out: &mut Faults) {
    let (s, p) = (&o["spec"], Path::new("spec"));
    if s.get("leaseDurationSeconds").and_then(Value::as_i64).is_some_and(|n| n <= 0) {
        out.push(Fault::invalid(&p.child("leaseDurationSeconds"), s["leaseDurationSeconds"].clone(), "must be greater than 0"));
    }
    none_negative(s, &["leaseTransitions"], &p, out);
    if get(s, "holderIdentity").and_then(Value::as_str) == Some("") && get(s, "strategy").is_some() {
        out.push(Fault::invalid(&p.child("holderIdentity"), "", "must not be empty"));
    }
}

pub(super) fn runtime_class(o: &Value, out: &mut Faults) {
    let h = text(o, "/handler");
    out.extend(words::dns1123_label(h).into_iter().map(|m| Fault::invalid(&Path::new("handler"), h, m)));
}
