//! Ingress, NetworkPolicy, EndpointSlice and their kin.

use super::{Faults, get, list, one_of, port, required, ruled, selector, text};
use crate::fault::{Fault, Path};
use crate::text as words;
use serde_json::{Value, json};

pub(super) fn ingress(o: &Value, out: &mut Faults) {
    let (s, p) = (&o["spec"], Path::new("spec"));
    let rules = list(s, "/rules");
    if rules.is_empty() && get(s, "defaultBackend").is_none() {
        out.push(Fault::invalid(&p, json!(null), "either `defaultBackend` or `rules` must be specified"));
    }
    if let Some(b) = get(s, "defaultBackend") {
        backend(b, &p.child("defaultBackend"), out);
    }
    ruled(s, "ingressClassName", words::dns1123_subdomain, &p, out);
    for (i, r) in rules.iter().enumerate() {
        let at = p.child("rules").index(i);
        let host = text(r, "/host");
        if !host.is_empty() {
            if host.parse::<std::net::IpAddr>().is_ok() {
                out.push(Fault::invalid(&at.child("host"), host, "must be a DNS name, not an IP address"));
            } else if let Some(rest) = host.strip_prefix("*.") {
                if !words::dns1123_subdomain(rest).is_empty() {
                    out.push(Fault::invalid(&at.child("host"), host, "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for validation is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"));
                }
            } else {
                out.extend(words::dns1123_subdomain(host).into_iter().map(|m| Fault::invalid(&at.child("host"), host, m)));
            }
        }
        let Some(http) = get(r, "http") else { continue };
        let paths = list(http, "/paths");
        if paths.is_empty() {
            out.push(Fault::required(&at.child("http").child("paths"), ""));
        }
        for (j, x) in paths.iter().enumerate() {
            let at = at.child("http").child("paths").index(j);
            let path = text(x, "/path");
            match get(x, "pathType").and_then(Value::as_str) {
                None => out.push(Fault::required(&at.child("pathType"), "pathType must be specified")),
                Some("Exact" | "Prefix") => {
                    if !path.starts_with('/') {
                        out.push(Fault::invalid(&at.child("path"), path, "must be an absolute path"));
                    }
                    for bad in ["//", "/./", "/../", "%2f", "%2F"] {
                        if path.contains(bad) {
                            out.push(Fault::invalid(&at.child("path"), path, format!("must not contain '{bad}'")));
                        }
                    }
                }
                Some("ImplementationSpecific") => {
                    if !path.is_empty() && !path.starts_with('/') {
                        out.push(Fault::invalid(&at.child("path"), path, "must be an absolute path"));
                    }
                }
                Some(other) => out.push(Fault::not_supported(&at.child("pathType"), other, &["Exact", "ImplementationSpecific", "Prefix"])),
            }
            backend(&x["backend"], &at.child("backend"), out);
        }
    }
    for (i, t) in list(s, "/tls").iter().enumerate() {
        for (j, h) in list(t, "/hosts").iter().enumerate() {
            let h = h.as_str().unwrap_or_default();
            let plain = h.strip_prefix("*.").unwrap_or(h);
            out.extend(words::dns1123_subdomain(plain).into_iter().map(|m| Fault::invalid(&p.child("tls").index(i).child("hosts").index(j), h, m)));
        }
    }
}

fn backend(b: &Value, p: &Path, out: &mut Faults) {
    match (get(b, "service"), get(b, "resource")) {
        (None, None) => out.push(Fault::invalid(p, "", "resource or service backend is required")),
        (Some(_), Some(_)) => out.push(Fault::invalid(p, "", "cannot set both resource and service backends")),
        (Some(s), None) => {
            let at = p.child("service");
            if required(s, "name", &at, out) {
                ruled(s, "name", words::dns1123_label, &at, out);
            }
            let (name, number) = (text(s, "/port/name"), s.pointer("/port/number").and_then(Value::as_i64).unwrap_or(0));
            match (name.is_empty(), number == 0) {
                (true, true) => out.push(Fault::required(p, "port name or number is required")),
                (false, false) => out.push(Fault::invalid(p, "", "cannot set both port name & port number")),
                (false, true) => port(&json!(name), &at.child("port").child("name"), out),
                (true, false) => port(&json!(number), &at.child("port").child("number"), out),
            }
        }
        (None, Some(_)) => {}
    }
}

pub(super) fn ingress_class(o: &Value, out: &mut Faults) {
    let p = Path::new("spec");
    let c = text(o, "/spec/controller");
    if c.is_empty() {
        out.push(Fault::required(&p.child("controller"), ""));
    } else if !c.contains('/') {
        out.push(Fault::invalid(&p.child("controller"), c, "must be a domain-prefixed path (such as \"acme.io/foo\")"));
    }
}

pub(super) fn network_policy(o: &Value, out: &mut Faults) {
    let (s, p) = (&o["spec"], Path::new("spec"));
    if let Some(sel) = get(s, "podSelector") {
        selector(sel, &p.child("podSelector"), out);
    }
    for (dir, peers) in [("ingress", "from"), ("egress", "to")] {
        for (i, r) in list(s, &format!("/{dir}")).iter().enumerate() {
            let at = p.child(dir).index(i);
            for (j, x) in list(r, "/ports").iter().enumerate() {
                let at = at.child("ports").index(j);
                one_of(x, "protocol", &["TCP", "UDP", "SCTP"], false, &at, out);
                if let Some(n) = get(x, "port") {
                    port(n, &at.child("port"), out);
                    if let (true, Some(b)) = (n.is_string(), get(x, "endPort")) {
                        out.push(Fault::invalid(&at.child("endPort"), b.clone(), "may not be specified when `port` is non-numeric"));
                    }
                    if let (true, Some(b)) = (n.is_number(), get(x, "endPort")) {
                        port(b, &at.child("endPort"), out);
                    }
                    if let (Some(a), Some(b)) = (n.as_i64(), get(x, "endPort").and_then(Value::as_i64)) {
                        if b < a {
                            out.push(Fault::invalid(&at.child("endPort"), b, "must be greater than or equal to `port`"));
                        }
                    }
                } else if let Some(e) = get(x, "endPort") {
                    out.push(Fault::invalid(&at.child("endPort"), e.clone(), "may not be specified when `port` is not specified"));
                }
            }
            for (j, x) in list(r, &format!("/{peers}")).iter().enumerate() {
                let at = at.child(peers).index(j);
                let given = ["podSelector", "namespaceSelector", "ipBlock"].iter().filter(|k| get(x, k).is_some()).count();
                if given == 0 {
                    out.push(Fault::required(&at, "must specify a peer"));
                }
                if let Some(b) = get(x, "ipBlock") {
                    if given > 1 {
                        out.push(Fault::forbidden(&at, "may not specify both ipBlock and another peer"));
                    }
                    cidr(text(b, "/cidr"), &at.child("ipBlock").child("cidr"), out);
                }
                for k in ["podSelector", "namespaceSelector"] {
                    if let Some(sel) = get(x, k) {
                        selector(sel, &at.child(k), out);
                    }
                }
            }
        }
    }
    let types = list(s, "/policyTypes");
    if types.len() > 2 {
        out.push(Fault::invalid(&p.child("policyTypes"), json!(types), "may not specify more than two policyTypes"));
    }
    for (i, t) in types.iter().enumerate() {
        if !matches!(t.as_str(), Some("Ingress" | "Egress")) {
            out.push(Fault::not_supported(&p.child("policyTypes").index(i), t.clone(), &["Ingress", "Egress"]));
        }
    }
}

fn cidr(s: &str, p: &Path, out: &mut Faults) {
    if s.is_empty() {
        out.push(Fault::required(p, ""));
    } else if !crate::structural::formats::fits("cidr", s) {
        out.push(Fault::invalid(p, s, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"));
    }
}

pub(super) fn ip_address(o: &Value, out: &mut Faults) {
    let name = text(o, "/metadata/name");
    match name.parse::<std::net::IpAddr>() {
        Ok(ip) if ip.to_string() == name => {}
        _ => out.push(Fault::invalid(&Path::new("metadata").child("name"), name, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")),
    }
    let p = Path::new("spec").child("parentRef");
    match get(&o["spec"], "parentRef") {
        None => out.push(Fault::required(&p, "")),
        Some(r) => {
            required(r, "resource", &p, out);
            required(r, "name", &p, out);
        }
    }
}

pub(super) fn service_cidr(o: &Value, out: &mut Faults) {
    let p = Path::new("spec").child("cidrs");
    let all = list(o, "/spec/cidrs");
    if all.is_empty() {
        out.push(Fault::required(&p, "at least one CIDR required"));
    }
    for (i, c) in all.iter().enumerate() {
        cidr(c.as_str().unwrap_or_default(), &p.index(i), out);
    }
}

pub(super) fn endpoint_slice(o: &Value, out: &mut Faults) {
    let root = Path::root();
    one_of(o, "addressType", &["FQDN", "IPv4", "IPv6"], true, &root, out);
    let ty = text(o, "/addressType");
    for (i, e) in list(o, "/endpoints").iter().enumerate() {
        let at = Path::new("endpoints").index(i).child("addresses");
        let addresses = list(e, "/addresses");
        if addresses.is_empty() {
            out.push(Fault::required(&at, "must contain at least 1 address"));
        }
        for (j, a) in addresses.iter().enumerate() {
            let a = a.as_str().unwrap_or_default();
            let at = at.index(j);
            match (ty, a.parse::<std::net::IpAddr>()) {
                ("IPv4", Ok(ip)) if ip.is_ipv4() => {}
                ("IPv6", Ok(ip)) if ip.is_ipv6() => {}
                ("IPv4" | "IPv6", Err(_)) => out.push(Fault::invalid(&at, a, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")),
                ("IPv4", _) => out.push(Fault::invalid(&at, a, "must be an IPv4 address")),
                ("IPv6", _) => out.push(Fault::invalid(&at, a, "must be an IPv6 address")),
                _ => out.extend(words::dns1123_subdomain(a).into_iter().map(|m| Fault::invalid(&at, a, m))),
            }
        }
    }
    for (i, x) in list(o, "/ports").iter().enumerate() {
        one_of(x, "protocol", &["SCTP", "TCP", "UDP"], true, &Path::new("ports").index(i), out);
    }
}
