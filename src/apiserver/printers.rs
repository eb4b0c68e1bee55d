//! Cells of the tables of built-in kinds, in the order of their columns.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::object::{at, name, text};
use crate::pod_printer;
use crate::resource::Resource;
use crate::subresource::selector_text;

const NONE: &str = "<none>";
const UNKNOWN: &str = "<unknown>";
const UNSET: &str = "<unset>";

/// A span as people read it: `5s`, `3m20s`, `4d2h`, as kubectl rounds it.
pub(crate) fn human(seconds: i64) -> String {
    if seconds < -1 {
        return "<invalid>".into();
    }
    if seconds < 0 {
        return "0s".into();
    }
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let days = hours / 24;
    let with = |whole: i64, unit: &str, rest: i64, small: &str| if rest == 0 { format!("{whole}{unit}") } else { format!("{whole}{unit}{rest}{small}") };
    if seconds < 120 {
        return format!("{seconds}s");
    }
    if minutes < 10 {
        return with(minutes, "m", seconds % 60, "s");
    }
    if minutes < 180 {
        return format!("{minutes}m");
    }
    if hours < 8 {
        return with(hours, "h", minutes % 60, "m");
    }
    if hours < 48 {
        return format!("{hours}h");
    }
    if hours < 192 {
        return with(days, "d", hours % 24, "h");
    }
    if days < 730 {
        return format!("{days}d");
    }
    let years = days / 365;
    if years < 8 { with(years, "y", days % 365, "d") } else { format!("{years}y") }
}

/// How long ago an instant was.
pub(crate) fn since(then: Timestamp, now: Timestamp) -> String {
    human(now.duration_since(then).as_secs())
}

fn ago(object: &Value, path: &[&str], now: Timestamp) -> String {
    text(object, path).parse().map_or_else(|_| UNKNOWN.to_owned(), |then| since(then, now))
}

/// How long ago an object was made.
pub(crate) fn age(object: &Value, now: Timestamp) -> Value {
    json!(ago(object, &["metadata", "creationTimestamp"], now))
}

pub(crate) fn number(object: &Value, path: &[&str]) -> i64 {
    at(object, path).and_then(Value::as_i64).unwrap_or(0)
}

pub(crate) fn list<'a>(object: &'a Value, path: &[&str]) -> &'a [Value] {
    at(object, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn count(object: &Value, path: &[&str]) -> usize {
    match at(object, path) {
        Some(Value::Array(list)) => list.len(),
        Some(Value::Object(map)) => map.len(),
        _ => 0,
    }
}

fn flag(object: &Value, path: &[&str]) -> bool {
    at(object, path) == Some(&json!(true))
}

fn or<'a>(text: &'a str, other: &'a str) -> &'a str {
    if text.is_empty() { other } else { text }
}

fn plain(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        None | Some(Value::Null) => String::new(),
        Some(other) => other.to_string(),
    }
}

fn labels(value: Option<&Value>) -> String {
    match value {
        Some(Value::Object(map)) if !map.is_empty() => map.iter().map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or(""))).collect::<Vec<_>>().join(","),
        _ => NONE.to_owned(),
    }
}

fn selector(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => NONE.into(),
        Some(value) => {
            let text = selector_text(value);
            if text.is_empty() { NONE.into() } else { text }
        }
    }
}

/// Names and images of the containers of a Pod template.
fn containers(template: Option<&Value>) -> (String, String) {
    let all = template.map(|t| list(t, &["spec", "containers"])).unwrap_or(&[]);
    let join = |field: &str| all.iter().map(|c| text(c, &[field])).collect::<Vec<_>>().join(",");
    (join("name"), join("image"))
}

/// `a,b + 2 more...`.
fn some(all: &[String], max: usize) -> String {
    match all.len() {
        0 => NONE.into(),
        n if n > max => format!("{} + {} more...", all[..max].join(","), n - max),
        _ => all.join(","),
    }
}

fn access_modes(modes: &[Value]) -> String {
    let mut out: Vec<&str> = Vec::new();
    for mode in modes.iter().filter_map(Value::as_str) {
        let short = match mode {
            "ReadWriteOnce" => "RWO",
            "ReadOnlyMany" => "ROX",
            "ReadWriteMany" => "RWX",
            "ReadWriteOncePod" => "RWOP",
            _ => continue,
        };
        if !out.contains(&short) {
            out.push(short);
        }
    }
    out.join(",")
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    list(object, &["status", "conditions"]).iter().find(|c| text(c, &["type"]) == kind)
}

/// The cells of an object.
#[expect(clippy::too_many_lines, reason = "one kind after the other: the list is the documentation")]
pub(crate) fn cells(resource: &Resource, o: &Value, now: Timestamp) -> Vec<Value> {
    let n = || json!(name(o));
    let age = || age(o, now);
    let s = |path: &[&str]| json!(text(o, path));
    match resource.plural.as_str() {
        "pods" => pod_printer::cells(o, now),
        "podtemplates" => {
            let (names, images) = containers(o.get("template"));
            vec![n(), json!(names), json!(images), json!(labels(at(o, &["template", "metadata", "labels"])))]
        }
        "configmaps" => vec![n(), json!((count(o, &["data"]) + count(o, &["binaryData"])).to_string()), age()],
        "secrets" => vec![n(), s(&["type"]), json!(count(o, &["data"]).to_string()), age()],
        "serviceaccounts" => vec![n(), age()],
        "namespaces" => vec![n(), s(&["status", "phase"]), age()],
        "services" => service(o, now),
        "endpoints" => vec![n(), json!(endpoints(o)), age()],
        "events" => event(o, now),
        "nodes" => node(o, now),
        "persistentvolumes" => {
            let claim = match text(o, &["spec", "claimRef", "name"]) {
                "" => String::new(),
                claim => format!("{}/{claim}", text(o, &["spec", "claimRef", "namespace"])),
            };
            let phase = if at(o, &["metadata", "deletionTimestamp"]).is_some() { "Terminating" } else { text(o, &["status", "phase"]) };
            vec![
                n(), json!(plain(at(o, &["spec", "capacity", "storage"]))), json!(access_modes(list(o, &["spec", "accessModes"]))), s(&["spec", "persistentVolumeReclaimPolicy"]),
                json!(phase), json!(claim), s(&["spec", "storageClassName"]), json!(or(text(o, &["spec", "volumeAttributesClassName"]), UNSET)), s(&["status", "reason"]), age(), json!(or(text(o, &["spec", "volumeMode"]), UNSET)),
            ]
        }
        "persistentvolumeclaims" => {
            let phase = if at(o, &["metadata", "deletionTimestamp"]).is_some() { "Terminating" } else { text(o, &["status", "phase"]) };
            let bound = !text(o, &["spec", "volumeName"]).is_empty();
            let (capacity, modes) = if bound { (plain(at(o, &["status", "capacity", "storage"])), access_modes(list(o, &["status", "accessModes"]))) } else { (String::new(), String::new()) };
            vec![
                n(), json!(phase), s(&["spec", "volumeName"]), json!(capacity), json!(modes), s(&["spec", "storageClassName"]),
                json!(or(text(o, &["spec", "volumeAttributesClassName"]), UNSET)), age(), json!(or(text(o, &["spec", "volumeMode"]), UNSET)),
            ]
        }
        "replicationcontrollers" | "replicasets" => {
            let (names, images) = containers(at(o, &["spec", "template"]));
            let wanted = at(o, &["spec", "selector"]);
            vec![n(), json!(number(o, &["spec", "replicas"])), json!(number(o, &["status", "replicas"])), json!(number(o, &["status", "readyReplicas"])), age(), json!(names), json!(images), json!(selector(wanted))]
        }
        "deployments" => {
            let (names, images) = containers(at(o, &["spec", "template"]));
            vec![
                n(), json!(format!("{}/{}", number(o, &["status", "readyReplicas"]), number(o, &["spec", "replicas"]))), json!(number(o, &["status", "updatedReplicas"])),
                json!(number(o, &["status", "availableReplicas"])), age(), json!(names), json!(images), json!(selector(at(o, &["spec", "selector"]))),
            ]
        }
        "statefulsets" => {
            let (names, images) = containers(at(o, &["spec", "template"]));
            vec![n(), json!(format!("{}/{}", number(o, &["status", "readyReplicas"]), number(o, &["spec", "replicas"]))), age(), json!(names), json!(images)]
        }
        "daemonsets" => {
            let (names, images) = containers(at(o, &["spec", "template"]));
            let count = |field: &str| json!(number(o, &["status", field]));
            vec![
                n(), count("desiredNumberScheduled"), count("currentNumberScheduled"), count("numberReady"), count("updatedNumberScheduled"), count("numberAvailable"),
                json!(labels(at(o, &["spec", "template", "spec", "nodeSelector"]))), age(), json!(names), json!(images), json!(selector(at(o, &["spec", "selector"]))),
            ]
        }
        "controllerrevisions" => {
            let owner = list(o, &["metadata", "ownerReferences"]).iter().find(|r| flag(r, &["controller"]));
            let controller = owner.map_or_else(
                || NONE.to_owned(),
                |r| {
                    let (group, _) = crate::resource::split_api_version(text(r, &["apiVersion"]));
                    format!("{}/{}", crate::status::qualified(group, &text(r, &["kind"]).to_lowercase()), text(r, &["name"]))
                },
            );
            vec![n(), json!(controller), json!(number(o, &["revision"])), age()]
        }
        "jobs" => job(o, now),
        "cronjobs" => {
            let (names, images) = containers(at(o, &["spec", "jobTemplate", "spec", "template"]));
            let last = if text(o, &["status", "lastScheduleTime"]).is_empty() { NONE.into() } else { ago(o, &["status", "lastScheduleTime"], now) };
            let suspend = at(o, &["spec", "suspend"]).map_or(UNSET.to_owned(), |v| if v == &json!(true) { "True".into() } else { "False".into() });
            vec![
                n(), s(&["spec", "schedule"]), json!(or(text(o, &["spec", "timeZone"]), NONE)), json!(suspend), json!(count(o, &["status", "active"])), json!(last), age(),
                json!(names), json!(images), json!(selector(at(o, &["spec", "jobTemplate", "spec", "selector"]))),
            ]
        }
        "horizontalpodautoscalers" => autoscaler(o, now),
        "poddisruptionbudgets" => {
            let limit = |field: &str| at(o, &["spec", field]).map_or_else(|| json!("N/A"), |v| json!(plain(Some(v))));
            vec![n(), limit("minAvailable"), limit("maxUnavailable"), json!(number(o, &["status", "disruptionsAllowed"])), age()]
        }
        "ingresses" => ingress(o, now),
        "ingressclasses" => {
            let parameters = at(o, &["spec", "parameters"]).map_or_else(
                || NONE.to_owned(),
                |p| {
                    let kind = text(p, &["kind"]);
                    let kind = match text(p, &["apiGroup"]) {
                        "" => kind.to_owned(),
                        group => format!("{kind}.{group}"),
                    };
                    format!("{kind}/{}", text(p, &["name"]))
                },
            );
            vec![n(), s(&["spec", "controller"]), json!(parameters), age()]
        }
        "networkpolicies" => vec![n(), json!(selector(at(o, &["spec", "podSelector"]))), age()],
        "servicecidrs" => vec![n(), json!(list(o, &["spec", "cidrs"]).iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",")), age()],
        "ipaddresses" => {
            let p = at(o, &["spec", "parentRef"]).cloned().unwrap_or_default();
            let parts: Vec<&str> = [text(&p, &["group"]), text(&p, &["resource"]), text(&p, &["namespace"]), text(&p, &["name"])].into_iter().filter(|t| !t.is_empty()).collect();
            vec![n(), json!(parts.join("/"))]
        }
        "rolebindings" | "clusterrolebindings" => {
            let role = format!("{}/{}", text(o, &["roleRef", "kind"]), text(o, &["roleRef", "name"]));
            let of = |kind: &str| {
                let all = list(o, &["subjects"]).iter().filter(|x| text(x, &["kind"]) == kind);
                all.map(|x| match (kind, text(x, &["namespace"])) {
                    ("ServiceAccount", namespace) => format!("{namespace}/{}", text(x, &["name"])),
                    _ => text(x, &["name"]).to_owned(),
                }).collect::<Vec<_>>().join(", ")
            };
            vec![n(), json!(role), age(), json!(of("User")), json!(of("Group")), json!(of("ServiceAccount"))]
        }
        "certificatesigningrequests" => {
            let condition = certificate_condition(o);
            let requested = at(o, &["spec", "expirationSeconds"]).and_then(Value::as_i64).map_or_else(|| NONE.to_owned(), human);
            vec![n(), age(), json!(or(text(o, &["spec", "signerName"]), NONE)), s(&["spec", "username"]), json!(requested), json!(condition)]
        }
        "leases" => vec![n(), s(&["spec", "holderIdentity"]), age()],
        "priorityclasses" => vec![n(), json!(number(o, &["value"])), json!(flag(o, &["globalDefault"])), age(), s(&["preemptionPolicy"])],
        "runtimeclasses" => vec![n(), s(&["handler"]), age()],
        "storageclasses" => {
            let name = if at(o, &["metadata", "annotations", "storageclass.kubernetes.io/is-default-class"]) == Some(&json!("true")) { format!("{} (default)", name(o)) } else { name(o).to_owned() };
            vec![
                json!(name), s(&["provisioner"]), json!(or(text(o, &["reclaimPolicy"]), "Delete")), json!(or(text(o, &["volumeBindingMode"]), "Immediate")),
                json!(flag(o, &["allowVolumeExpansion"])), age(),
            ]
        }
        "volumeattachments" => vec![n(), s(&["spec", "attacher"]), s(&["spec", "source", "persistentVolumeName"]), s(&["spec", "nodeName"]), json!(flag(o, &["status", "attached"])), age()],
        "volumeattributesclasses" => vec![n(), s(&["driverName"]), age()],
        "csinodes" => vec![n(), json!(count(o, &["spec", "drivers"])), age()],
        "csidrivers" => {
            let tokens: Vec<String> = list(o, &["spec", "tokenRequests"]).iter().map(|t| text(t, &["audience"]).to_owned()).collect();
            let modes: Vec<&str> = list(o, &["spec", "volumeLifecycleModes"]).iter().filter_map(Value::as_str).collect();
            vec![
                n(), json!(at(o, &["spec", "attachRequired"]).is_none_or(|v| v == &json!(true))), json!(flag(o, &["spec", "podInfoOnMount"])), json!(flag(o, &["spec", "storageCapacity"])),
                json!(if tokens.is_empty() { UNSET.to_owned() } else { tokens.join(",") }), json!(flag(o, &["spec", "requiresRepublish"])),
                json!(if modes.is_empty() { NONE.to_owned() } else { modes.join(",") }), age(),
            ]
        }
        "endpointslices" => {
            let ports: Vec<String> = list(o, &["ports"]).iter().filter_map(|p| p.get("port").and_then(Value::as_i64)).map(|p| p.to_string()).collect();
            let ports = if o.get("ports").is_none_or(Value::is_null) || ports.is_empty() { UNSET.to_owned() } else { some(&ports, 3) };
            let addresses: Vec<String> = list(o, &["endpoints"]).iter().flat_map(|e| list(e, &["addresses"])).filter_map(Value::as_str).map(str::to_owned).collect();
            let addresses = if addresses.is_empty() { UNSET.to_owned() } else { some(&addresses, 3) };
            vec![n(), s(&["addressType"]), json!(ports), json!(addresses), age()]
        }
        "resourcequotas" => {
            let (mut requests, mut limits) = (Vec::new(), Vec::new());
            let hard = at(o, &["status", "hard"]).and_then(Value::as_object).cloned().unwrap_or_default();
            for (key, hard) in &hard {
                let line = format!("{key}: {}/{}", plain(at(o, &["status", "used", key])), plain(Some(hard)));
                if key.starts_with("limits") { limits.push(line) } else { requests.push(line) }
            }
            vec![n(), json!(requests.join(", ")), json!(limits.join(", ")), age()]
        }
        "customresourcedefinitions" => {
            let versions: Vec<String> = list(o, &["spec", "versions"])
                .iter()
                .filter(|v| flag(v, &["served"]))
                .map(|v| format!("{}{}", text(v, &["name"]), if flag(v, &["storage"]) { "(storage)" } else { "" }))
                .collect();
            let shorts: Vec<&str> = list(o, &["spec", "names", "shortNames"]).iter().filter_map(Value::as_str).collect();
            let established = condition(o, "Established").is_some_and(|c| text(c, &["status"]) == "True");
            vec![
                n(), s(&["spec", "scope"]), json!(versions.join(",")), s(&["metadata", "creationTimestamp"]), s(&["spec", "group"]), s(&["spec", "names", "kind"]), json!(shorts.join(",")), json!(established),
            ]
        }
        "apiservices" => {
            let service = match text(o, &["spec", "service", "name"]) {
                "" => "Local".to_owned(),
                service => format!("{}/{service}", text(o, &["spec", "service", "namespace"])),
            };
            let available = match condition(o, "Available") {
                Some(c) if text(c, &["status"]) == "True" => "True".to_owned(),
                Some(c) => format!("{} ({})", text(c, &["status"]), text(c, &["reason"])),
                None => "Unknown".to_owned(),
            };
            vec![n(), json!(service), json!(available), age()]
        }
        "mutatingwebhookconfigurations" | "validatingwebhookconfigurations" => vec![n(), json!(count(o, &["webhooks"])), age()],
        "validatingadmissionpolicies" | "mutatingadmissionpolicies" => {
            let field = if resource.plural.starts_with('v') { "validations" } else { "mutations" };
            let kind = at(o, &["spec", "paramKind"]).map_or_else(|| UNSET.to_owned(), |k| format!("{}/{}", text(k, &["apiVersion"]), text(k, &["kind"])));
            vec![n(), json!(count(o, &["spec", field])), json!(kind), age()]
        }
        "validatingadmissionpolicybindings" | "mutatingadmissionpolicybindings" => {
            let param = at(o, &["spec", "paramRef"]).map_or_else(|| UNSET.to_owned(), |p| match (text(p, &["namespace"]), text(p, &["name"])) {
                (_, "") => selector(p.get("selector")),
                ("", name) => format!("*/{name}"),
                (namespace, name) => format!("{namespace}/{name}"),
            });
            vec![n(), s(&["spec", "policyName"]), json!(param), age()]
        }
        "flowschemas" => {
            let missing = condition(o, "Dangling").map_or("?", |c| text(c, &["status"]));
            vec![n(), s(&["spec", "priorityLevelConfiguration", "name"]), json!(number(o, &["spec", "matchingPrecedence"])), json!(or(text(o, &["spec", "distinguisherMethod", "type"]), NONE)), age(), json!(missing)]
        }
        "prioritylevelconfigurations" => {
            let limited = at(o, &["spec", "limited"]).or_else(|| at(o, &["spec", "exempt"])).cloned().unwrap_or_default();
            let queuing = at(&limited, &["limitResponse", "queuing"]).cloned().unwrap_or_default();
            let show = |value: &Value, field: &str| value.get(field).map_or_else(|| json!(NONE), |v| json!(plain(Some(v))));
            vec![n(), s(&["spec", "type"]), show(&limited, "nominalConcurrencyShares"), show(&queuing, "queues"), show(&queuing, "handSize"), show(&queuing, "queueLengthLimit"), age()]
        }
        "componentstatuses" => {
            let healthy = list(o, &["conditions"]).iter().find(|c| text(c, &["type"]) == "Healthy").cloned().unwrap_or_default();
            vec![n(), json!(if text(&healthy, &["status"]) == "True" { "Healthy" } else { "Unhealthy" }), json!(text(&healthy, &["message"])), json!(text(&healthy, &["error"]))]
        }
        "clustertrustbundles" => vec![n(), s(&["spec", "signerName"])],
        "deviceclasses" | "resourceclaimtemplates" => vec![n(), age()],
        "resourceclaims" => {
            let mut states = Vec::new();
            if at(o, &["metadata", "deletionTimestamp"]).is_some() {
                states.push("deleted");
            }
            states.push(if at(o, &["status", "allocation"]).is_some() { "allocated" } else { "pending" });
            if count(o, &["status", "reservedFor"]) > 0 {
                states.push("reserved");
            }
            vec![n(), json!(states.join(",")), age()]
        }
        "resourceslices" => vec![n(), json!(or(text(o, &["spec", "nodeName"]), NONE)), s(&["spec", "driver"]), s(&["spec", "pool", "name"]), age()],
        "devicetaintrules" => vec![
            n(), s(&["spec", "taint", "key"]), s(&["spec", "taint", "value"]), s(&["spec", "taint", "effect"]), json!(ago(o, &["spec", "taint", "timeAdded"], now)), age(),
        ],
        "storageversionmigrations" => vec![n(), json!(crate::status::qualified(text(o, &["spec", "resource", "group"]), text(o, &["spec", "resource", "resource"]))), json!("")],
        _ => vec![n(), s(&["metadata", "creationTimestamp"])],
    }
}

fn certificate_condition(o: &Value) -> String {
    let (mut approved, mut denied, mut failed) = (false, false, false);
    for condition in list(o, &["status", "conditions"]) {
        match text(condition, &["type"]) {
            "Approved" => approved = true,
            "Denied" => denied = true,
            "Failed" => failed = true,
            _ => {}
        }
    }
    let mut out = if denied { "Denied" } else if approved { "Approved" } else { "Pending" }.to_owned();
    if failed {
        out.push_str(",Failed");
    }
    if !text(o, &["status", "certificate"]).is_empty() {
        out.push_str(",Issued");
    }
    out
}

fn service(o: &Value, now: Timestamp) -> Vec<Value> {
    let kind = or(text(o, &["spec", "type"]), "ClusterIP");
    let internal = or(list(o, &["spec", "clusterIPs"]).first().and_then(Value::as_str).unwrap_or(text(o, &["spec", "clusterIP"])), NONE);
    let externals: Vec<String> = list(o, &["spec", "externalIPs"]).iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let external = match kind {
        "LoadBalancer" => {
            let mut all: Vec<String> = list(o, &["status", "loadBalancer", "ingress"]).iter().map(|i| or(text(i, &["ip"]), text(i, &["hostname"])).to_owned()).filter(|s| !s.is_empty()).collect();
            all.extend(externals);
            if all.is_empty() { "<pending>".into() } else { all.join(",") }
        }
        "ExternalName" => text(o, &["spec", "externalName"]).to_owned(),
        _ if externals.is_empty() => NONE.to_owned(),
        _ => externals.join(","),
    };
    let ports: Vec<String> = list(o, &["spec", "ports"])
        .iter()
        .map(|p| {
            let (port, node, protocol) = (number(p, &["port"]), number(p, &["nodePort"]), text(p, &["protocol"]));
            if node > 0 { format!("{port}:{node}/{protocol}") } else { format!("{port}/{protocol}") }
        })
        .collect();
    let ports = if ports.is_empty() { NONE.to_owned() } else { ports.join(",") };
    vec![json!(name(o)), json!(kind), json!(internal), json!(external), json!(ports), age(o, now), json!(labels(at(o, &["spec", "selector"])))]
}

fn endpoints(o: &Value) -> String {
    let (mut shown, mut total) = (Vec::new(), 0);
    for subset in list(o, &["subsets"]) {
        let addresses = list(subset, &["addresses"]);
        let ports = list(subset, &["ports"]);
        if ports.is_empty() {
            for address in addresses {
                total += 1;
                shown.push(text(address, &["ip"]).to_owned());
            }
        }
        for port in ports {
            for address in addresses {
                total += 1;
                let ip = text(address, &["ip"]);
                shown.push(if ip.contains(':') { format!("[{ip}]:{}", number(port, &["port"])) } else { format!("{ip}:{}", number(port, &["port"])) });
            }
        }
    }
    debug_assert_eq!(total, shown.len());
    some(&shown, 3)
}

fn event(o: &Value, now: Timestamp) -> Vec<Value> {
    let regarding = o.get("involvedObject").or_else(|| o.get("regarding")).cloned().unwrap_or_default();
    let first = |paths: &[&[&str]]| paths.iter().map(|p| text(o, p)).find(|t| !t.is_empty()).unwrap_or("").to_owned();
    let span = |instant: &str| instant.parse::<Timestamp>().map_or_else(|_| UNKNOWN.to_owned(), |then| since(then, now));
    let start = first(&[&["firstTimestamp"], &["deprecatedFirstTimestamp"], &["eventTime"]]);
    let last = first(&[&["series", "lastObservedTime"], &["lastTimestamp"], &["deprecatedLastTimestamp"], &["firstTimestamp"], &["deprecatedFirstTimestamp"], &["eventTime"]]);
    let target = match text(&regarding, &["name"]) {
        "" => text(&regarding, &["kind"]).to_lowercase(),
        name => format!("{}/{name}", text(&regarding, &["kind"]).to_lowercase()),
    };
    let component = first(&[&["source", "component"], &["deprecatedSource", "component"], &["reportingComponent"], &["reportingController"]]);
    let host = first(&[&["source", "host"], &["deprecatedSource", "host"]]);
    let source = if host.is_empty() { component } else { format!("{component}, {host}") };
    let seen = at(o, &["series", "count"]).or_else(|| o.get("count")).or_else(|| o.get("deprecatedCount")).and_then(Value::as_i64).filter(|n| *n > 0).unwrap_or(1);
    let message = first(&[&["message"], &["note"]]);
    vec![
        json!(span(&last)), json!(text(o, &["type"])), json!(text(o, &["reason"])), json!(target), json!(text(&regarding, &["fieldPath"])), json!(source), json!(message.trim()),
        json!(span(&start)), json!(seen), json!(name(o)),
    ]
}

fn node(o: &Value, now: Timestamp) -> Vec<Value> {
    let mut status = Vec::new();
    match condition(o, "Ready") {
        Some(c) if text(c, &["status"]) == "True" => status.push("Ready"),
        Some(_) => status.push("NotReady"),
        None => status.push("Unknown"),
    }
    if flag(o, &["spec", "unschedulable"]) {
        status.push("SchedulingDisabled");
    }
    let mut roles: Vec<String> = Vec::new();
    for (key, value) in at(o, &["metadata", "labels"]).and_then(Value::as_object).into_iter().flatten() {
        if let Some(role) = key.strip_prefix("node-role.kubernetes.io/") {
            roles.extend((!role.is_empty()).then(|| role.to_owned()));
        } else if key == "kubernetes.io/role" {
            roles.extend(value.as_str().filter(|v| !v.is_empty()).map(str::to_owned));
        }
    }
    roles.sort();
    roles.dedup();
    let address = |kind: &str| list(o, &["status", "addresses"]).iter().find(|a| text(a, &["type"]) == kind).map_or(NONE, |a| text(a, &["address"]));
    let info = |field: &str| json!(or(text(o, &["status", "nodeInfo", field]), UNKNOWN));
    vec![
        json!(name(o)), json!(status.join(",")), json!(if roles.is_empty() { NONE.to_owned() } else { roles.join(",") }), age(o, now), json!(text(o, &["status", "nodeInfo", "kubeletVersion"])),
        json!(address("InternalIP")), json!(address("ExternalIP")), info("osImage"), info("kernelVersion"), info("containerRuntimeVersion"),
    ]
}

fn job(o: &Value, now: Timestamp) -> Vec<Value> {
    let (names, images) = containers(at(o, &["spec", "template"]));
    let succeeded = number(o, &["status", "succeeded"]);
    let completions = match (at(o, &["spec", "completions"]).and_then(Value::as_i64), number(o, &["spec", "parallelism"])) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, parallel) if parallel > 1 => format!("{succeeded}/1 of {parallel}"),
        (None, _) => format!("{succeeded}/1"),
    };
    let start: Option<Timestamp> = text(o, &["status", "startTime"]).parse().ok();
    let end: Option<Timestamp> = text(o, &["status", "completionTime"]).parse().ok();
    let duration = start.map_or_else(String::new, |start| human(end.unwrap_or(now).duration_since(start).as_secs()));
    let holds = |kind: &str| condition(o, kind).is_some_and(|c| text(c, &["status"]) == "True");
    let status = if holds("Complete") {
        "Complete"
    } else if holds("Failed") {
        "Failed"
    } else if at(o, &["metadata", "deletionTimestamp"]).is_some() {
        "Terminating"
    } else if holds("Suspended") {
        "Suspended"
    } else if holds("FailureTarget") {
        "FailureTarget"
    } else if holds("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    };
    vec![json!(name(o)), json!(status), json!(completions), json!(duration), age(o, now), json!(names), json!(images), json!(selector(at(o, &["spec", "selector"])))]
}

fn metric(spec: &Value, current: Option<&Value>) -> String {
    let kind = text(spec, &["type"]);
    let field = match kind {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".into(),
    };
    let target = at(spec, &[field, "target"]).cloned().unwrap_or_default();
    let now = current.and_then(|c| at(c, &[field, "current"])).cloned().unwrap_or_default();
    let named = |value: String| match kind {
        "Resource" | "ContainerResource" => format!("{}: {value}", text(spec, &[field, "name"])),
        _ => value,
    };
    let shown = |value: &Value, name: &str| value.get(name).map(|v| plain(Some(v)));
    if let Some(wanted) = target.get("averageUtilization").and_then(Value::as_i64) {
        let now = now.get("averageUtilization").and_then(Value::as_i64).map_or_else(|| UNKNOWN.to_owned(), |n| format!("{n}%"));
        return named(format!("{now}/{wanted}%"));
    }
    if let Some(wanted) = shown(&target, "averageValue") {
        let now = shown(&now, "averageValue").unwrap_or_else(|| UNKNOWN.into());
        let tail = if matches!(kind, "External" | "Object") { " (avg)" } else { "" };
        return named(format!("{now}/{wanted}{tail}"));
    }
    format!("{}/{}", shown(&now, "value").unwrap_or_else(|| UNKNOWN.into()), shown(&target, "value").unwrap_or_else(|| "<auto>".into()))
}

fn autoscaler(o: &Value, now: Timestamp) -> Vec<Value> {
    // The old version shows what the new one does.
    let o = &crate::convert::native(o.clone(), "autoscaling/v2");
    let target = format!("{}/{}", text(o, &["spec", "scaleTargetRef", "kind"]), text(o, &["spec", "scaleTargetRef", "name"]));
    let current = list(o, &["status", "currentMetrics"]);
    let metrics: Vec<String> = list(o, &["spec", "metrics"]).iter().enumerate().map(|(n, m)| metric(m, current.get(n))).collect();
    let shown = match metrics.len() {
        0 => NONE.to_owned(),
        n if n > 2 => format!("{} + {} more...", metrics[..2].join(", "), n - 2),
        _ => metrics.join(", "),
    };
    let least = at(o, &["spec", "minReplicas"]).and_then(Value::as_i64).map_or_else(|| json!(UNSET), |n| json!(n.to_string()));
    vec![json!(name(o)), json!(target), json!(shown), least, json!(number(o, &["spec", "maxReplicas"])), json!(number(o, &["status", "currentReplicas"])), age(o, now)]
}

fn ingress(o: &Value, now: Timestamp) -> Vec<Value> {
    let class = match text(o, &["spec", "ingressClassName"]) {
        "" => or(text(o, &["metadata", "annotations", "kubernetes.io/ingress.class"]), NONE),
        class => class,
    };
    let hosts: Vec<String> = list(o, &["spec", "rules"]).iter().map(|r| text(r, &["host"]).to_owned()).filter(|h| !h.is_empty()).collect();
    let hosts = if hosts.is_empty() { "*".to_owned() } else { some(&hosts, 3) };
    let addresses: Vec<&str> = list(o, &["status", "loadBalancer", "ingress"]).iter().map(|i| or(text(i, &["ip"]), text(i, &["hostname"]))).collect();
    let ports = if count(o, &["spec", "tls"]) > 0 { "80, 443" } else { "80" };
    vec![json!(name(o)), json!(class), json!(hosts), json!(addresses.join(",")), json!(ports), age(o, now)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_rounded_as_kubectl_rounds_them() {
        for (seconds, expected) in [
            (0, "0s"), (119, "119s"), (120, "2m"), (599, "9m59s"), (600, "10m"), (10_799, "179m"), (10_800, "3h"), (28_740, "7h59m"), (28_800, "8h"),
            (172_799, "47h"), (172_800, "2d"), (176_400, "2d1h"), (691_200, "8d"), (63_072_000, "2y"), (-5, "<invalid>"),
        ] {
            assert_eq!(human(seconds), expected, "{seconds}");
        }
    }
}
