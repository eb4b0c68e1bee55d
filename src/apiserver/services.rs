//! Addresses and node ports of Services: given out once, given back when the Service goes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::admission::{Operation, Request};
use crate::core::Core;
use crate::object;
use crate::status::ApiError;

/// Node ports, as in Kubernetes.
const NODE_PORTS: std::ops::RangeInclusive<u16> = 30_000..=32_767;

/// A range of Service addresses: network and prefix length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// First address.
    pub network: Ipv4Addr,
    /// Length of the prefix, 8 to 30.
    pub prefix: u8,
}

impl Default for Range {
    /// `10.96.0.0/16`, the range that most installers use.
    fn default() -> Self {
        Self { network: Ipv4Addr::new(10, 96, 0, 0), prefix: 16 }
    }
}

impl Range {
    fn size(self) -> u32 {
        1u32 << (32 - u32::from(self.prefix.clamp(8, 30)))
    }

    fn at(self, offset: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.network.to_bits() + offset)
    }

    fn holds(self, address: Ipv4Addr) -> bool {
        let offset = address.to_bits().wrapping_sub(self.network.to_bits());
        offset > 0 && offset < self.size() - 1
    }

    /// The address of the server's own Service.
    #[must_use]
    pub fn first(self) -> Ipv4Addr {
        self.at(1)
    }
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix)
    }
}

/// What is given out.
#[derive(Debug)]
pub(crate) struct Allocator {
    range: Range,
    addresses: BTreeSet<Ipv4Addr>,
    ports: BTreeMap<(u16, bool), String>,
    next: u32,
    next_port: u16,
    loaded: bool,
}

/// Whether a protocol has its own port numbers: UDP and TCP may share one.
fn is_udp(port: &Value) -> bool {
    object::text(port, &["protocol"]) == "UDP"
}

impl Allocator {
    pub(crate) fn new(range: Range) -> Self {
        Self { range, addresses: BTreeSet::new(), ports: BTreeMap::new(), next: 2, next_port: *NODE_PORTS.start(), loaded: false }
    }

    /// Takes what stored Services use; done when the first one is written.
    fn load(&mut self, core: &Core) {
        if std::mem::replace(&mut self.loaded, true) {
            return;
        }
        core.store.scan("/services", "", &mut |entry| {
            let service = object::decode(&entry.value);
            for address in addresses(&service) {
                self.addresses.insert(address);
            }
            for (port, udp) in node_ports(&service) {
                self.ports.insert((port, udp), entry.key.to_string());
            }
        });
    }

    fn any_address(&mut self) -> Option<Ipv4Addr> {
        let size = self.range.size();
        for _ in 0..size {
            let offset = self.next;
            self.next = if self.next + 2 >= size { 2 } else { self.next + 1 };
            let address = self.range.at(offset);
            if self.range.holds(address) && self.addresses.insert(address) {
                return Some(address);
            }
        }
        None
    }

    fn any_port(&mut self, udp: bool, owner: &str) -> Option<u16> {
        for _ in NODE_PORTS {
            let port = self.next_port;
            self.next_port = if port >= *NODE_PORTS.end() { *NODE_PORTS.start() } else { port + 1 };
            if !self.ports.contains_key(&(port, udp)) && !self.ports.contains_key(&(port, !udp)) {
                self.ports.insert((port, udp), owner.to_owned());
                return Some(port);
            }
        }
        None
    }
}

/// Allocations of a write that is not done yet: given back unless kept.
#[derive(Default)]
pub(crate) struct Held {
    core: Option<Arc<Core>>,
    addresses: Vec<Ipv4Addr>,
    ports: Vec<(u16, bool)>,
}

impl Held {
    /// The write is done.
    pub(crate) fn keep(&mut self) {
        self.addresses.clear();
        self.ports.clear();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(core) = self.core.take() {
            let mut allocator = core.services.lock();
            for address in self.addresses.drain(..) {
                allocator.addresses.remove(&address);
            }
            for port in self.ports.drain(..) {
                allocator.ports.remove(&port);
            }
        }
    }
}

fn addresses(service: &Value) -> Vec<Ipv4Addr> {
    let list = object::at(service, &["spec", "clusterIPs"]).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).chain([object::text(service, &["spec", "clusterIP"])]).filter_map(|text| text.parse().ok()).collect()
}

fn node_ports(service: &Value) -> Vec<(u16, bool)> {
    let number = |value: Option<&Value>| value.and_then(Value::as_u64).and_then(|n| u16::try_from(n).ok()).filter(|n| *n > 0);
    let ports = object::at(service, &["spec", "ports"]).and_then(Value::as_array);
    let mut all: Vec<(u16, bool)> =
        ports.into_iter().flatten().filter_map(|port| number(port.get("nodePort")).map(|n| (n, is_udp(port)))).collect();
    all.extend(number(object::at(service, &["spec", "healthCheckNodePort"])).map(|n| (n, false)));
    all
}

/// Gives a Service what it needs and does not have.
pub(crate) fn allocate(request: &Request<'_>, service: &mut Value, held: &mut Held) -> Result<(), ApiError> {
    if !request.resource.is("", "services") || !request.subresource.is_empty() || request.operation == Operation::Delete {
        return Ok(());
    }
    let name = request.name;
    let key = format!("{}/{name}", request.namespace);
    let kind = object::text(service, &["spec", "type"]).to_owned();
    let kind = if kind.is_empty() { "ClusterIP".to_owned() } else { kind };
    let invalid = |field: &str, message: String| ApiError::invalid("", "Service", name, vec![crate::rest::fault("FieldValueInvalid", field, message)]);
    let core = request.core;
    let mut allocator = core.services.lock();
    allocator.load(core);
    held.core = request.core.own();
    if kind == "ExternalName" {
        return Ok(());
    }
    families(service).map_err(|(field, message)| invalid(&field, message))?;
    // What the old form had is kept unless it is taken out on purpose.
    if let Some(old) = request.old
        && object::text(old, &["spec", "type"]) != "ExternalName"
    {
        if object::text(service, &["spec", "clusterIP"]).is_empty() {
            for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                if let Some(value) = object::at(old, &["spec", field]) {
                    object::child(service, "spec").entry(field).or_insert_with(|| value.clone());
                    if field == "clusterIP" {
                        object::child(service, "spec").insert(field.into(), value.clone());
                    }
                }
            }
        }
        keep_ports(old, service, &kind);
    }
    let given = object::text(service, &["spec", "clusterIP"]).to_owned();
    // A client that knows the one field only leaves the other as it was.
    if let Some(old) = request.old.filter(|old| object::text(old, &["spec", "clusterIP"]) != given)
        && object::at(old, &["spec", "clusterIPs"]) == object::at(service, &["spec", "clusterIPs"])
    {
        object::child(service, "spec").remove("clusterIPs");
    }
    let listed: Vec<&Value> = object::at(service, &["spec", "clusterIPs"]).and_then(Value::as_array).into_iter().flatten().collect();
    if listed.first().is_some_and(|first| **first != json!(given)) {
        let why = if given.is_empty() { "must be empty when `clusterIP` is not specified" } else { "first value must match `clusterIP`" };
        return Err(invalid("spec.clusterIPs", format!("Invalid value: {}: {why}", json!(listed))));
    }
    let before: Vec<Ipv4Addr> = request.old.map(addresses).unwrap_or_default();
    let address = match given.as_str() {
        "" => {
            let address = allocator.any_address().ok_or_else(|| ApiError::internal("failed to allocate a serviceIP: range is full"))?;
            held.addresses.push(address);
            Some(address)
        }
        "None" => None,
        text if text.parse::<std::net::Ipv6Addr>().is_ok() => {
            return Err(invalid("spec.clusterIPs[0]", format!("Invalid value: {}: IPv6 is not configured on this cluster", json!([text]))));
        }
        text => {
            let address: Ipv4Addr = text.parse().map_err(|_| {
                invalid("spec.clusterIPs", format!("Invalid value: [\"{text}\"]: failed to allocate IP {text}: the provided IP ({text}) is not in the valid range. The range of valid IPs is {}", allocator.range))
            })?;
            if !before.contains(&address) {
                if !allocator.range.holds(address) {
                    let text = format!("Invalid value: [\"{address}\"]: failed to allocate IP {address}: the provided network does not match the current range. The range of valid IPs is {}", allocator.range);
                    return Err(invalid("spec.clusterIPs", text));
                }
                if !allocator.addresses.insert(address) {
                    return Err(invalid("spec.clusterIPs", format!("Invalid value: [\"{address}\"]: failed to allocate IP {address}: provided IP is already allocated")));
                }
                held.addresses.push(address);
            }
            Some(address)
        }
    };
    {
        let spec = object::child(service, "spec");
        let text = address.map_or_else(|| "None".to_owned(), |a| a.to_string());
        spec.insert("clusterIP".into(), json!(text));
        spec.insert("clusterIPs".into(), json!([text]));
        let families = spec.get("ipFamilies").and_then(Value::as_array).is_some_and(|l| !l.is_empty());
        if !families {
            spec.insert("ipFamilies".into(), json!(["IPv4"]));
        }
        spec.entry("ipFamilyPolicy").or_insert(json!("SingleStack"));
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
        give_ports(request, service, &kind, &mut allocator, held, &key)?;
    }
    if kind == "LoadBalancer" && object::text(service, &["spec", "externalTrafficPolicy"]) == "Local" {
        let asked = object::at(service, &["spec", "healthCheckNodePort"]).and_then(Value::as_u64).unwrap_or(0);
        if asked == 0
            && let Some(port) = allocator.any_port(false, &key)
        {
            held.ports.push((port, false));
            object::child(service, "spec").insert("healthCheckNodePort".into(), json!(port));
        }
    }
    Ok(())
}

/// There are addresses of one family only. What makes no sense anywhere is left to validation.
fn families(service: &Value) -> Result<(), (String, String)> {
    let policy = object::text(service, &["spec", "ipFamilyPolicy"]);
    if policy == "RequireDualStack" {
        return Err(("spec.ipFamilyPolicy".into(), "Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack services".into()));
    }
    let all: Vec<&str> = object::at(service, &["spec", "ipFamilies"]).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    match all.iter().position(|family| *family == "IPv6") {
        Some(at) if all.len() == 1 || policy == "PreferDualStack" => Err((format!("spec.ipFamilies[{at}]"), "Invalid value: \"IPv6\": not configured on this cluster".into())),
        _ => Ok(()),
    }
}

/// Ports that the old form had under the same name or number.
fn keep_ports(old: &Value, service: &mut Value, kind: &str) {
    if !matches!(kind, "NodePort" | "LoadBalancer") {
        return;
    }
    let had: Vec<Value> = object::at(old, &["spec", "ports"]).and_then(Value::as_array).cloned().unwrap_or_default();
    let ports = object::child(service, "spec").get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten() {
        if port.get("nodePort").and_then(Value::as_u64).unwrap_or(0) != 0 {
            continue;
        }
        let twin = had.iter().find(|h| h.get("name") == port.get("name") && h.get("port") == port.get("port") && h.get("protocol") == port.get("protocol"));
        if let Some(number) = twin.and_then(|t| t.get("nodePort")).filter(|n| n.as_u64() != Some(0)) {
            object::child_root(port).insert("nodePort".into(), number.clone());
        }
    }
}

fn give_ports(request: &Request<'_>, service: &mut Value, kind: &str, allocator: &mut Allocator, held: &mut Held, key: &str) -> Result<(), ApiError> {
    let optional = kind == "LoadBalancer" && object::at(service, &["spec", "allocateLoadBalancerNodePorts"]) == Some(&json!(false));
    let before: Vec<(u16, bool)> = request.old.map(node_ports).unwrap_or_default();
    // One number may serve several protocols of a Service, each once.
    let mut own = BTreeSet::new();
    let ports = object::child(service, "spec").get_mut("ports").and_then(Value::as_array_mut);
    for (at, port) in ports.into_iter().flatten().enumerate() {
        let udp = is_udp(port);
        let asked = port.get("nodePort").and_then(Value::as_i64).unwrap_or(0);
        let field = format!("spec.ports[{at}].nodePort");
        let invalid = |message: String| ApiError::invalid("", "Service", request.name, vec![crate::rest::fault("FieldValueInvalid", &field, message)]);
        if asked == 0 {
            if optional {
                continue;
            }
            let number = allocator.any_port(udp, key).ok_or_else(|| ApiError::internal("failed to allocate a nodePort: range is full"))?;
            held.ports.push((number, udp));
            object::child_root(port).insert("nodePort".into(), json!(number));
            continue;
        }
        let number = u16::try_from(asked).ok().filter(|n| NODE_PORTS.contains(n));
        let Some(number) = number else {
            return Err(invalid(format!("Invalid value: {asked}: provided port is not in the valid range. The range of valid ports is {}-{}", NODE_PORTS.start(), NODE_PORTS.end())));
        };
        if !own.insert((number, object::text(port, &["protocol"]).to_owned())) {
            return Err(invalid(format!("Invalid value: {number}: provided port is already allocated")));
        }
        if before.contains(&(number, udp)) {
            continue;
        }
        match allocator.ports.get(&(number, udp)) {
            Some(owner) if owner != key => return Err(invalid(format!("Invalid value: {number}: provided port is already allocated"))),
            Some(_) => {}
            None => {
                allocator.ports.insert((number, udp), key.to_owned());
                held.ports.push((number, udp));
            }
        }
    }
    Ok(())
}

/// Gives back what a Service does not use any more.
pub(crate) fn released(core: &Core, old: &Value, new: Option<&Value>) {
    let mut allocator = core.services.lock();
    let kept = new.map(addresses).unwrap_or_default();
    for address in addresses(old).into_iter().filter(|a| !kept.contains(a)) {
        allocator.addresses.remove(&address);
    }
    let kept = new.map(node_ports).unwrap_or_default();
    for port in node_ports(old).into_iter().filter(|p| !kept.contains(p)) {
        allocator.ports.remove(&port);
    }
}
