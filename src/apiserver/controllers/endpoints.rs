//! Where Services lead: Endpoints and EndpointSlices from the pods a Service selects, and slices from Endpoints made by hand.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::kinds::{ENDPOINT_SLICE, ENDPOINTS, NODE, POD, SERVICE};
use super::{Call, Change, Controller, Delete, Key, Turn, World};
use crate::auth::{at, text};

const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const SERVICE_NAME: &str = "kubernetes.io/service-name";
const HEADLESS: &str = "service.kubernetes.io/headless";
const SKIP_MIRROR: &str = "endpointslice.kubernetes.io/skip-mirror";
const BY_SLICES: &str = "endpointslice-controller.k8s.io";
const BY_MIRROR: &str = "endpointslicemirroring-controller.k8s.io";
const ENDPOINTS_MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const BY_ENDPOINTS: &str = "endpoint-controller";
const LAST_CHANGE: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// Endpoints in one slice at most.
const SLICE_SIZE: usize = 100;

/// Keeps Endpoints and EndpointSlices of Services.
#[derive(Debug, Default)]
pub struct Endpoints;

/// Copies Endpoints of Services without a selector into EndpointSlices.
#[derive(Debug, Default)]
pub struct Mirror;

fn list<'a>(object: &'a Value, path: &[&str]) -> &'a [Value] {
    at(object, path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn labels(object: &Value) -> Map<String, Value> {
    at(object, &["metadata", "labels"]).and_then(Value::as_object).cloned().unwrap_or_default()
}

fn selector(service: &Value) -> Option<&Map<String, Value>> {
    at(service, &["spec", "selector"]).and_then(Value::as_object).filter(|selector| !selector.is_empty())
}

fn selects(selector: &Map<String, Value>, pod: &Value) -> bool {
    let labels = at(pod, &["metadata", "labels"]);
    selector.iter().all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
}

fn ready(pod: &Value) -> bool {
    list(pod, &["status", "conditions"]).iter().any(|c| text(c, &["type"]) == "Ready" && text(c, &["status"]) == "True")
}

fn headless(service: &Value) -> bool {
    matches!(text(service, &["spec", "clusterIP"]), "" | "None")
}

/// The port of a pod that a service port leads to.
fn target_port(pod: &Value, port: &Value) -> Option<i64> {
    match at(port, &["targetPort"]) {
        Some(Value::Number(number)) => number.as_i64().filter(|number| *number != 0),
        Some(Value::String(wanted)) => {
            let containers = list(pod, &["spec", "containers"]).iter().chain(list(pod, &["spec", "initContainers"]));
            containers.flat_map(|container| list(container, &["ports"])).find_map(|own| {
                let protocol = |port: &Value| match text(port, &["protocol"]) {
                    "" => "TCP".to_owned(),
                    protocol => protocol.to_owned(),
                };
                (text(own, &["name"]) == wanted && protocol(own) == protocol(port)).then(|| own.get("containerPort")?.as_i64()).flatten()
            })
        }
        _ => at(port, &["port"]).and_then(Value::as_i64),
    }
}

/// The ports of a service as one pod serves them.
fn ports(service: &Value, pod: &Value, endpoints: bool) -> Vec<Value> {
    list(service, &["spec", "ports"])
        .iter()
        .filter_map(|port| {
            let number = target_port(pod, port)?;
            let protocol = match text(port, &["protocol"]) {
                "" => "TCP",
                protocol => protocol,
            };
            let mut out = json!({"port": number, "protocol": protocol});
            let name = text(port, &["name"]);
            if !endpoints || !name.is_empty() {
                out["name"] = json!(name);
            }
            if let Some(app) = at(port, &["appProtocol"]) {
                out["appProtocol"] = app.clone();
            }
            Some(out)
        })
        .collect()
}

fn address(pod: &Value, family: &str) -> Option<String> {
    let ips = list(pod, &["status", "podIPs"]).iter().map(|ip| text(ip, &["ip"])).chain([text(pod, &["status", "podIP"])]);
    let mut ips = ips.filter(|ip| !ip.is_empty() && ip.contains(':') == (family == "IPv6"));
    ips.next().map(str::to_owned)
}

fn hostname<'a>(service: &Value, pod: &'a Value) -> Option<&'a str> {
    let name = text(pod, &["spec", "hostname"]);
    let own = text(pod, &["spec", "subdomain"]) == text(service, &["metadata", "name"]);
    (!name.is_empty() && own).then_some(name)
}

impl Controller for Endpoints {
    fn name(&self) -> &'static str {
        "endpoints"
    }

    fn concerns(&self, change: &Change, world: &World<'_>, wake: &mut Vec<Key>) {
        let key = &change.key;
        let service = |name: &str| Key::new("", "services", &key.namespace, name);
        if key.is(&SERVICE) {
            wake.push(key.clone());
        } else if key.is(&POD) {
            wake.extend(world.graph.of_kind(&SERVICE, &key.namespace).map(|node| node.key.clone()));
        } else if key.is(&ENDPOINTS) {
            // Endpoints without a Service are somebody else's.
            if world.get(&SERVICE, &key.namespace, &key.name).is_some() {
                wake.push(service(&key.name));
            }
        } else if key.is(&ENDPOINT_SLICE) {
            let owner = change.meta.owner_references.iter().find(|owner| owner.kind == "Service");
            wake.extend(owner.map(|owner| service(&owner.name)));
        }
    }

    fn decide(&self, key: &Key, world: &World<'_>) -> Turn {
        let mut turn = Turn::default();
        let Some(service) = world.at(key) else {
            if let Some(endpoints) = world.get(&ENDPOINTS, &key.namespace, &key.name) {
                turn.call(Call::delete(&ENDPOINTS, &endpoints, Delete::Background));
            }
            return turn;
        };
        let Some(selector) = selector(&service) else { return turn };
        let gone = !text(&service, &["metadata", "deletionTimestamp"]).is_empty();
        if text(&service, &["spec", "type"]) == "ExternalName" || gone {
            return turn;
        }
        let mut pods: Vec<Arc<Value>> =
            world.list(&POD, &key.namespace).into_iter().filter(|pod| selects(selector, pod)).collect();
        pods.retain(|pod| !matches!(text(pod, &["status", "phase"]), "Succeeded" | "Failed"));
        sync_endpoints(&service, &pods, world, &mut turn);
        let families = list(&service, &["spec", "ipFamilies"]);
        let families: Vec<&str> = if families.is_empty() { vec!["IPv4"] } else { families.iter().filter_map(Value::as_str).collect() };
        for family in families {
            sync_slices(&service, &pods, family, world, &mut turn);
        }
        turn
    }
}

fn reference(pod: &Value) -> Value {
    let field = |name: &str| text(pod, &["metadata", name]);
    json!({"kind": "Pod", "namespace": field("namespace"), "name": field("name"), "uid": field("uid")})
}

/// Groups addresses that serve the same ports.
fn subsets(service: &Value, pods: &[Arc<Value>]) -> Vec<Value> {
    let family = list(service, &["spec", "ipFamilies"]).first().and_then(Value::as_str).unwrap_or("IPv4");
    let all = at(service, &["spec", "publishNotReadyAddresses"]) == Some(&Value::Bool(true));
    let mut groups: BTreeMap<String, (Vec<Value>, Vec<Value>, Vec<Value>)> = BTreeMap::new();
    for pod in pods {
        let Some(ip) = address(pod, family) else { continue };
        if !text(pod, &["metadata", "deletionTimestamp"]).is_empty() && !all {
            continue;
        }
        let ports = ports(service, pod, true);
        if ports.is_empty() && !(list(service, &["spec", "ports"]).is_empty() && headless(service)) {
            continue;
        }
        let mut address = json!({"ip": ip, "targetRef": reference(pod)});
        let node = text(pod, &["spec", "nodeName"]);
        if !node.is_empty() {
            address["nodeName"] = json!(node);
        }
        if let Some(name) = hostname(service, pod) {
            address["hostname"] = json!(name);
        }
        let group = groups.entry(json!(ports).to_string()).or_insert_with(|| (ports, Vec::new(), Vec::new()));
        if all || ready(pod) { group.1.push(address) } else { group.2.push(address) }
    }
    groups
        .into_values()
        .map(|(ports, mut up, mut down)| {
            for addresses in [&mut up, &mut down] {
                addresses.sort_by_key(|address| text(address, &["ip"]).to_owned());
            }
            let mut subset = Map::new();
            for (field, items) in [("addresses", up), ("notReadyAddresses", down), ("ports", ports)] {
                if !items.is_empty() {
                    subset.insert(field.into(), Value::Array(items));
                }
            }
            Value::Object(subset)
        })
        .collect()
}

fn sync_endpoints(service: &Value, pods: &[Arc<Value>], world: &World<'_>, turn: &mut Turn) {
    let (namespace, name) = (text(service, &["metadata", "namespace"]), text(service, &["metadata", "name"]));
    let subsets = subsets(service, pods);
    let mut wanted = labels(service);
    wanted.remove(HEADLESS);
    if headless(service) {
        wanted.insert(HEADLESS.into(), json!(""));
    }
    wanted.insert(ENDPOINTS_MANAGED_BY.into(), json!(BY_ENDPOINTS));
    let stored = world.get(&ENDPOINTS, namespace, name);
    if let Some(stored) = &stored
        && list(stored, &["subsets"]) == subsets
        && labels(stored) == wanted
    {
        return;
    }
    let fresh = || json!({"metadata": {"name": name, "namespace": namespace}});
    let mut object = stored.as_deref().cloned().unwrap_or_else(fresh);
    object["metadata"]["labels"] = Value::Object(wanted);
    // The instant at which what the endpoints follow from changed: of the service when it is new, of a pod otherwise.
    let since = if stored.is_none() && subsets.is_empty() {
        text(service, &["metadata", "creationTimestamp"]).to_owned()
    } else {
        world.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    };
    object["metadata"]["annotations"][LAST_CHANGE] = json!(since);
    if subsets.is_empty() {
        if let Some(object) = object.as_object_mut() {
            object.remove("subsets");
        }
    } else {
        object["subsets"] = Value::Array(subsets);
    }
    turn.call(if stored.is_some() { Call::update(&ENDPOINTS, "", object) } else { Call::create(&ENDPOINTS, namespace, object) });
}

fn endpoint(service: &Value, pod: &Value, ip: String, world: &World<'_>) -> Value {
    let serving = ready(pod);
    let leaving = !text(pod, &["metadata", "deletionTimestamp"]).is_empty();
    let all = at(service, &["spec", "publishNotReadyAddresses"]) == Some(&Value::Bool(true));
    let mut out = json!({
        "addresses": [ip],
        "conditions": {"ready": all || (serving && !leaving), "serving": serving, "terminating": leaving},
        "targetRef": reference(pod),
    });
    let node = text(pod, &["spec", "nodeName"]);
    if !node.is_empty() {
        out["nodeName"] = json!(node);
        if let Some(host) = world.get(&NODE, "", node)
            && let Some(zone) = at(&host, &["metadata", "labels", "topology.kubernetes.io/zone"])
        {
            out["zone"] = zone.clone();
        }
    }
    if let Some(name) = hostname(service, pod) {
        out["hostname"] = json!(name);
    }
    out
}

fn owner(kind: &super::Kind, object: &Value) -> Value {
    json!([{
        "apiVersion": kind.api_version, "kind": kind.kind, "name": text(object, &["metadata", "name"]),
        "uid": text(object, &["metadata", "uid"]), "controller": true, "blockOwnerDeletion": true,
    }])
}

fn sync_slices(service: &Value, pods: &[Arc<Value>], family: &str, world: &World<'_>, turn: &mut Turn) {
    let name = text(service, &["metadata", "name"]);
    let mut groups: BTreeMap<String, (Vec<Value>, Vec<Value>)> = BTreeMap::new();
    for pod in pods {
        let Some(ip) = address(pod, family) else { continue };
        let ports = ports(service, pod, false);
        if ports.is_empty() && !(list(service, &["spec", "ports"]).is_empty() && headless(service)) {
            continue;
        }
        let group = groups.entry(json!(ports).to_string()).or_insert_with(|| (ports, Vec::new()));
        group.1.push(endpoint(service, pod, ip, world));
    }
    let mut wanted: Vec<(Vec<Value>, Vec<Value>)> = Vec::new();
    for (ports, endpoints) in groups.into_values() {
        wanted.extend(endpoints.chunks(SLICE_SIZE).map(|part| (ports.clone(), part.to_vec())));
    }
    if wanted.is_empty() {
        // An empty slice says that there is a service without endpoints.
        wanted.push((Vec::new(), Vec::new()));
    }
    let mut tags = labels(service);
    tags.remove(HEADLESS);
    if headless(service) {
        tags.insert(HEADLESS.into(), json!(""));
    }
    tags.insert(SERVICE_NAME.into(), json!(name));
    tags.insert(MANAGED_BY.into(), json!(BY_SLICES));
    let mut stored = world.owned(text(service, &["metadata", "uid"]), &ENDPOINT_SLICE);
    stored.retain(|slice| {
        labels(slice).get(MANAGED_BY) == Some(&json!(BY_SLICES)) && text(slice, &["addressType"]) == family
    });
    settle(&ENDPOINT_SLICE, service, &SERVICE, &format!("{name}-"), family, tags, wanted, stored, turn);
}

/// Makes stored slices what is wanted, changing as few as it can.
#[expect(clippy::too_many_arguments, reason = "the parts of a slice, used by two callers only")]
fn settle(
    kind: &super::Kind,
    of: &Value,
    of_kind: &super::Kind,
    prefix: &str,
    family: &str,
    tags: Map<String, Value>,
    mut wanted: Vec<(Vec<Value>, Vec<Value>)>,
    mut stored: Vec<Arc<Value>>,
    turn: &mut Turn,
) {
    let same = |slice: &Value, want: &(Vec<Value>, Vec<Value>)| list(slice, &["ports"]) == want.0 && list(slice, &["endpoints"]) == want.1;
    stored.retain(|slice| match wanted.iter().position(|want| same(slice, want)) {
        Some(found) if labels(slice) == tags => {
            wanted.remove(found);
            false
        }
        _ => true,
    });
    let mut free = stored.into_iter();
    for (ports, endpoints) in wanted {
        let old = free.next();
        let fresh = || json!({"metadata": {"generateName": prefix, "ownerReferences": owner(of_kind, of)}});
        let mut slice = old.as_deref().cloned().unwrap_or_else(fresh);
        slice["metadata"]["labels"] = Value::Object(tags.clone());
        slice["addressType"] = json!(family);
        slice["endpoints"] = Value::Array(endpoints);
        slice["ports"] = Value::Array(ports);
        let namespace = text(of, &["metadata", "namespace"]);
        turn.call(if old.is_some() { Call { fine: &[404], ..Call::update(kind, "", slice) } } else { Call::create(kind, namespace, slice) });
    }
    for slice in free {
        turn.call(Call::delete(kind, &slice, Delete::Background));
    }
}

impl Controller for Mirror {
    fn name(&self) -> &'static str {
        "endpointslice-mirroring"
    }

    fn concerns(&self, change: &Change, _: &World<'_>, wake: &mut Vec<Key>) {
        let key = &change.key;
        let endpoints = |name: &str| Key::new("", "endpoints", &key.namespace, name);
        if key.is(&ENDPOINTS) {
            wake.push(key.clone());
        } else if key.is(&SERVICE) {
            wake.push(endpoints(&key.name));
        } else if key.is(&ENDPOINT_SLICE) {
            let owner = change.meta.owner_references.iter().find(|owner| owner.kind == "Endpoints");
            wake.extend(owner.map(|owner| endpoints(&owner.name)));
        }
    }

    fn decide(&self, key: &Key, world: &World<'_>) -> Turn {
        let mut turn = Turn::default();
        // When the Endpoints are gone, their slices follow by the owner reference.
        let Some(endpoints) = world.at(key) else { return turn };
        let mut stored = world.owned(text(&endpoints, &["metadata", "uid"]), &ENDPOINT_SLICE);
        stored.retain(|slice| labels(slice).get(MANAGED_BY) == Some(&json!(BY_MIRROR)));
        let own = labels(&endpoints);
        let skip = own.get(SKIP_MIRROR) == Some(&json!("true"))
            || own.get(ENDPOINTS_MANAGED_BY) == Some(&json!(BY_ENDPOINTS))
            || at(&endpoints, &["metadata", "annotations", "control-plane.alpha.kubernetes.io/leader"]).is_some();
        let service = world.get(&SERVICE, &key.namespace, &key.name).filter(|service| selector(service).is_none());
        if skip || service.is_none() {
            for slice in stored {
                turn.call(Call::delete(&ENDPOINT_SLICE, &slice, Delete::Background));
            }
            return turn;
        }
        let mut tags = own;
        tags.insert(SERVICE_NAME.into(), json!(&*key.name));
        tags.insert(MANAGED_BY.into(), json!(BY_MIRROR));
        for family in ["IPv4", "IPv6"] {
            let wanted = mirrored(&endpoints, family);
            let here: Vec<Arc<Value>> = stored.iter().filter(|slice| text(slice, &["addressType"]) == family).cloned().collect();
            settle(&ENDPOINT_SLICE, &endpoints, &ENDPOINTS, &format!("{}-", key.name), family, tags.clone(), wanted, here, &mut turn);
        }
        turn
    }
}

/// The slices that say the same as the subsets of Endpoints.
fn mirrored(endpoints: &Value, family: &str) -> Vec<(Vec<Value>, Vec<Value>)> {
    let mut out = Vec::new();
    for subset in list(endpoints, &["subsets"]) {
        let ports: Vec<Value> = list(subset, &["ports"])
            .iter()
            .map(|port| {
                let mut port = port.clone();
                port["name"] = json!(text(&port, &["name"]));
                port
            })
            .collect();
        let mut all = Vec::new();
        for (field, ready) in [("addresses", true), ("notReadyAddresses", false)] {
            for address in list(subset, &[field]) {
                let ip = text(address, &["ip"]);
                if ip.contains(':') != (family == "IPv6") {
                    continue;
                }
                let mut endpoint = json!({"addresses": [ip], "conditions": {"ready": ready}});
                for field in ["hostname", "nodeName", "targetRef"] {
                    if let Some(value) = at(address, &[field]) {
                        endpoint[field] = value.clone();
                    }
                }
                all.push(endpoint);
            }
        }
        if !all.is_empty() {
            out.extend(all.chunks(SLICE_SIZE).map(|part| (ports.clone(), part.to_vec())));
        }
    }
    out
}
