//! Services: ports, addresses and their families, and what belongs to one type only.

use super::{Faults, get, list, map, meta, one_of, port, ruled, text};
use crate::fault::{Fault, Path};
use crate::text as words;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// A Service.
pub(super) fn service(o: &Value, out: &mut Faults) {
    let (s, p) = (&o["spec"], Path::new("spec"));
    let kind = text(s, "/type");
    let ports = list(s, "/ports");
    let headless = text(s, "/clusterIP") == "None";
    one_of(s, "type", &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"], true, &p, out);
    if ports.is_empty() && !headless && kind != "ExternalName" {
        out.push(Fault::required(&p.child("ports"), ""));
    }
    match kind {
        "LoadBalancer" | "NodePort" if headless => out.push(Fault::invalid(&p.child("clusterIPs").index(0), "None", format!("may not be set to 'None' for {kind} services"))),
        "ExternalName" => {
            let name = text(s, "/externalName").trim_end_matches('.');
            if name.is_empty() {
                out.push(Fault::required(&p.child("externalName"), ""));
            } else {
                out.extend(words::dns1123_subdomain(name).into_iter().map(|m| Fault::invalid(&p.child("externalName"), text(s, "/externalName"), m)));
            }
        }
        _ => {}
    }
    let (mut names, mut seen) = (BTreeSet::new(), BTreeSet::new());
    let named = ports.len() > 1;
    for (i, x) in ports.iter().enumerate() {
        let at = p.child("ports").index(i);
        let name = text(x, "/name");
        if name.is_empty() {
            if named {
                out.push(Fault::required(&at.child("name"), ""));
            }
        } else {
            out.extend(words::dns1123_label(name).into_iter().map(|m| Fault::invalid(&at.child("name"), name, m)));
            if !names.insert(name) {
                out.push(Fault::duplicate(&at.child("name"), name));
            }
        }
        let n = x.get("port").and_then(Value::as_i64).unwrap_or(0);
        out.extend(words::port_number(n).into_iter().map(|m| Fault::invalid(&at.child("port"), n, m)));
        one_of(x, "protocol", &["SCTP", "TCP", "UDP"], true, &at, out);
        port(&x["targetPort"], &at.child("targetPort"), out);
        ruled(x, "appProtocol", words::qualified_name, &at, out);
        let key = (n, text(x, "/protocol"));
        if !seen.insert(key) {
            // The server shows its internal form.
            out.push(Fault::duplicate(&at, json!({"Name": "", "Protocol": key.1, "AppProtocol": null, "Port": n, "TargetPort": 0, "NodePort": 0})));
        }
        if kind == "ClusterIP" && x.get("nodePort").and_then(Value::as_i64).is_some_and(|n| n != 0) {
            out.push(Fault::forbidden(&at.child("nodePort"), "may not be used when `type` is 'ClusterIP'"));
        }
    }
    out.extend(meta::labels(map(s, "/selector"), &p.child("selector")));
    one_of(s, "sessionAffinity", &["ClientIP", "None"], true, &p, out);
    if let Some(t) = s.pointer("/sessionAffinityConfig/clientIP/timeoutSeconds").and_then(Value::as_i64) {
        if !(1..=86400).contains(&t) {
            out.push(Fault::invalid(&p.child("sessionAffinityConfig").child("clientIP").child("timeoutSeconds"), t, "must be greater than 0 and less than 86400"));
        }
    }
    one_of(s, "externalTrafficPolicy", &["Cluster", "Local"], false, &p, out);
    one_of(s, "trafficDistribution", &["PreferClose", "PreferSameZone", "PreferSameNode"], false, &p, out);
    one_of(s, "internalTrafficPolicy", &["Cluster", "Local"], false, &p, out);
    if let Some(e) = get(s, "externalTrafficPolicy").filter(|_| !matches!(kind, "LoadBalancer" | "NodePort") && list(s, "/externalIPs").is_empty()) {
        out.push(Fault::invalid(&p.child("externalTrafficPolicy"), e.clone(), "may only be set for externally-accessible services"));
    }
    for (i, ip) in list(s, "/externalIPs").iter().enumerate() {
        external_ip(ip.as_str().unwrap_or_default(), &p.child("externalIPs").index(i), out);
    }
    let ip = text(s, "/clusterIP");
    if !ip.is_empty() && ip != "None" {
        out.extend(words::ip(ip).into_iter().map(|m| Fault::invalid(&p.child("clusterIPs").index(0), ip, m)));
    }
    families(s, kind, &p, out);
    balancer(s, kind, &p, out);
}

/// An address that others may reach: not one that means the node itself, its link, or nobody.
fn external_ip(ip: &str, p: &Path, out: &mut Faults) {
    let faults = words::ip(ip);
    let Ok(address) = ip.parse::<std::net::IpAddr>() else {
        out.extend(faults.into_iter().map(|m| Fault::invalid(p, ip, m)));
        return;
    };
    let (link, group) = match address {
        std::net::IpAddr::V4(a) => (a.is_link_local(), a.octets()[..3] == [224, 0, 0]),
        std::net::IpAddr::V6(a) => (a.segments()[0] & 0xffc0 == 0xfe80, a.segments()[0] & 0xff0f == 0xff02),
    };
    for (bad, why) in [
        (address.is_unspecified(), format!("may not be unspecified ({address})")),
        (address.is_loopback(), "may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned()),
        (link, "may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned()),
        (group, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned()),
    ] {
        if bad {
            out.push(Fault::invalid(p, ip, why));
        }
    }
}

/// Families of addresses, and how many of them. Whether a server has them is known to its allocator.
fn families(s: &Value, kind: &str, p: &Path, out: &mut Faults) {
    let all = list(s, "/ipFamilies");
    let policy = text(s, "/ipFamilyPolicy");
    if kind == "ExternalName" {
        for (k, given) in [("ipFamilies", !all.is_empty()), ("ipFamilyPolicy", !policy.is_empty()), ("clusterIPs", !text(s, "/clusterIP").is_empty() || !list(s, "/clusterIPs").is_empty())] {
            if given {
                out.push(Fault::forbidden(&p.child(k), "may not be set for ExternalName services"));
            }
        }
        return;
    }
    one_of(s, "ipFamilyPolicy", &["PreferDualStack", "RequireDualStack", "SingleStack"], false, p, out);
    let before = out.len();
    for (i, family) in all.iter().enumerate() {
        let (at, name) = (p.child("ipFamilies").index(i), family.as_str().unwrap_or_default());
        if !matches!(name, "IPv4" | "IPv6") {
            out.push(Fault::not_supported(&at, name, &["IPv4", "IPv6"]));
        } else if all[..i].contains(family) {
            out.push(Fault::duplicate(&at, name));
        }
    }
    if before == out.len() && all.len() > 1 && matches!(policy, "SingleStack" | "") {
        out.push(Fault::invalid(&p.child("ipFamilyPolicy"), "SingleStack", "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified"));
    }
}

/// What only a load balancer has.
fn balancer(s: &Value, kind: &str, p: &Path, out: &mut Faults) {
    const ONLY: &str = "may only be used when `type` is 'LoadBalancer'";
    let is = kind == "LoadBalancer";
    let at = p.child("LoadBalancerSourceRanges");
    let ranges = list(s, "/loadBalancerSourceRanges");
    if !is && !ranges.is_empty() {
        out.push(Fault::forbidden(&at, ONLY));
    }
    for (i, range) in ranges.iter().enumerate().filter(|_| is) {
        let range = range.as_str().unwrap_or_default();
        out.extend(words::cidr(range.trim(), false).into_iter().map(|m| Fault::invalid(&at.index(i), range, m)));
    }
    for k in ["allocateLoadBalancerNodePorts", "loadBalancerClass"].into_iter().filter(|k| !is && get(s, k).is_some()) {
        out.push(Fault::forbidden(&p.child(k), ONLY));
    }
    if is {
        ruled(s, "loadBalancerClass", words::qualified_name, p, out);
    }
    if let Some(n) = get(s, "healthCheckNodePort").filter(|n| n.as_i64() != Some(0) && !(is && text(s, "/externalTrafficPolicy") == "Local")) {
        out.push(Fault::invalid(&p.child("healthCheckNodePort"), n.clone(), "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"));
    }
}

/// What an update of a Service may not change.
pub(super) fn update(o: &Value, old: &Value, out: &mut Faults) {
    let (a, b) = (text(o, "/spec/clusterIP"), text(old, "/spec/clusterIP"));
    let plain = |v: &Value| text(v, "/spec/type") != "ExternalName";
    if plain(o) && plain(old) && !b.is_empty() && a != b {
        out.push(Fault::invalid(&Path::new("spec.clusterIPs").index(0), json!([a]), "may not change once set"));
    }
    let class = |v: &Value| get(&v["spec"], "loadBalancerClass").cloned();
    let both = text(o, "/spec/type") == "LoadBalancer" && text(old, "/spec/type") == "LoadBalancer";
    if both && class(o) != class(old) {
        out.push(Fault::invalid(&Path::new("spec.loadBalancerClass"), class(o).unwrap_or_default(), "may not change once set"));
    }
    let port = |v: &Value| v.pointer("/spec/healthCheckNodePort").and_then(Value::as_i64).unwrap_or(0);
    let local = |v: &Value| text(v, "/spec/type") == "LoadBalancer" && text(v, "/spec/externalTrafficPolicy") == "Local";
    if local(o) && local(old) && port(o) != port(old) {
        out.push(Fault::forbidden(&Path::new("spec.healthCheckNodePort"), "field is immutable"));
    }
}
