//! Settings of a pod specification that stand alone: DNS, gates, profiles, claims, what shares what.

use super::{Faults, get, list, map, one_of, required, text};
use crate::fault::{Fault, Path};
use crate::text as words;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// All of them.
pub(super) fn settings(s: &Value, p: &Path, out: &mut Faults) {
    dns(s, p, out);
    gates(s, p, out);
    sharing(s, p, out);
    profiles(&s["securityContext"], &p.child("securityContext"), out);
    let context = &s["securityContext"];
    let at = p.child("securityContext");
    one_of(context, "fsGroupChangePolicy", &["Always", "OnRootMismatch"], false, &at, out);
    for (i, group) in list(context, "/supplementalGroups").iter().enumerate() {
        if !group.as_i64().is_some_and(|n| (0..=i64::from(i32::MAX)).contains(&n)) {
            out.push(Fault::invalid(&at.child("supplementalGroups").index(i), group.clone(), "must be between 0 and 2147483647, inclusive"));
        }
    }
    let mut names = BTreeSet::new();
    for (i, c) in list(context, "/sysctls").iter().enumerate() {
        let name = text(c, "/name");
        if !name.is_empty() && !names.insert(name) {
            out.push(Fault::duplicate(&at.child("sysctls").index(i).child("name"), name));
        }
    }
    let claims = claims(s, p, out);
    for field in ["initContainers", "containers"] {
        for (i, c) in list(s, &format!("/{field}")).iter().enumerate() {
            container(c, &claims, s, &p.child(field).index(i), out);
        }
    }
    spread(list(s, "/topologySpreadConstraints"), &p.child("topologySpreadConstraints"), out);
}

fn dns(s: &Value, p: &Path, out: &mut Faults) {
    let at = p.child("dnsConfig");
    let alone = text(s, "/dnsPolicy") == "None";
    let Some(config) = get(s, "dnsConfig") else {
        if alone {
            out.push(Fault::required(&at, "must provide `dnsConfig` when `dnsPolicy` is None"));
        }
        return;
    };
    let servers = list(config, "/nameservers");
    let names = at.child("nameservers");
    if servers.is_empty() && alone {
        out.push(Fault::required(&names, "must provide at least one DNS nameserver when `dnsPolicy` is None"));
    }
    if servers.len() > 3 {
        out.push(Fault::invalid(&names, json!(servers), "must not have more than 3 nameservers"));
    }
    for (i, server) in servers.iter().enumerate() {
        let server = server.as_str().unwrap_or_default();
        out.extend(words::ip(server).into_iter().map(|m| Fault::invalid(&names.index(i), server, m)));
    }
    let searches = list(config, "/searches");
    let at_searches = at.child("searches");
    if searches.len() > 32 {
        out.push(Fault::invalid(&at_searches, json!(searches), "must not have more than 32 search paths"));
    }
    for (i, search) in searches.iter().enumerate() {
        let search = search.as_str().unwrap_or_default();
        // Underscores are common in search paths, and a dot is the root.
        let plain = search.trim_end_matches('.').split('.').map(|l| l.strip_prefix('_').unwrap_or(l).replace('_', "-")).collect::<Vec<_>>().join(".");
        if search != "." && !words::dns1123_subdomain(&plain).is_empty() {
            let why = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')";
            out.push(Fault::invalid(&at_searches.index(i), search, why));
        }
    }
    for (i, option) in list(config, "/options").iter().enumerate() {
        if text(option, "/name").is_empty() {
            out.push(Fault::required(&at.child("options").index(i), "must not be empty"));
        }
    }
}

fn gates(s: &Value, p: &Path, out: &mut Faults) {
    let mut seen = BTreeSet::new();
    for (i, gate) in list(s, "/schedulingGates").iter().enumerate() {
        let (name, at) = (text(gate, "/name"), p.child("schedulingGates").index(i));
        out.extend(words::qualified_name(name).into_iter().map(|m| Fault::invalid(&at, name, m)));
        if !seen.insert(name) {
            out.push(Fault::duplicate(&at, name));
        }
    }
    for (i, gate) in list(s, "/readinessGates").iter().enumerate() {
        let kind = text(gate, "/conditionType");
        out.extend(words::qualified_name(kind).into_iter().map(|m| Fault::invalid(&p.child("readinessGates").index(i).child("conditionType"), kind, m)));
    }
}

/// Namespaces of the node that a Pod shares, and its system.
fn sharing(s: &Value, p: &Path, out: &mut Faults) {
    let is = |k: &str| s.get(k) == Some(&json!(true));
    if is("hostPID") && is("shareProcessNamespace") {
        out.push(Fault::invalid(&p.child("shareProcessNamespace"), true, "ShareProcessNamespace and HostPID cannot both be enabled"));
    }
    if s.get("hostUsers") == Some(&json!(false)) {
        for k in ["hostNetwork", "hostPID", "hostIPC"].into_iter().filter(|k| is(k)) {
            out.push(Fault::forbidden(&p.child(k), "when `hostUsers` is false"));
        }
    }
    let process = |v: &Value| v.pointer("/securityContext/windowsOptions/hostProcess") == Some(&json!(true));
    if !is("hostNetwork") && (process(s) || list(s, "/containers").iter().any(process)) {
        out.push(Fault::invalid(&p.child("hostNetwork"), false, "hostNetwork must be true if pod contains any hostProcess containers"));
    }
    if let Some(os) = get(s, "os") {
        let name = text(os, "/name");
        if name.is_empty() {
            out.push(Fault::required(&p.child("os").child("name"), "cannot be empty"));
        } else if !matches!(name, "linux" | "windows") {
            out.push(Fault::not_supported(&p.child("os"), name, &["linux", "windows"]));
        }
    }
}

/// Seccomp and AppArmor, of a Pod or of a container.
fn profiles(context: &Value, p: &Path, out: &mut Faults) {
    for (field, what) in [("seccompProfile", "seccomp"), ("appArmorProfile", "AppArmor")] {
        let Some(profile) = get(context, field) else { continue };
        let at = p.child(field);
        one_of(profile, "type", &["Localhost", "RuntimeDefault", "Unconfined"], true, &at, out);
        let (local, named) = (text(profile, "/type") == "Localhost", get(profile, "localhostProfile").is_some());
        if local && !named {
            out.push(Fault::required(&at.child("localhostProfile"), format!("must be set when {what} type is Localhost")));
        } else if named && !local {
            out.push(Fault::invalid(&at.child("localhostProfile"), profile["localhostProfile"].clone(), format!("can only be set when {what} type is Localhost")));
        }
    }
}

/// Checks the claims of devices; gives their names.
fn claims(s: &Value, p: &Path, out: &mut Faults) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (i, claim) in list(s, "/resourceClaims").iter().enumerate() {
        let at = p.child("resourceClaims").index(i);
        let (own, template) = (get(claim, "resourceClaimName"), get(claim, "resourceClaimTemplateName"));
        // The server shows its internal form.
        let shown = || json!({"Name": text(claim, "/name"), "ResourceClaimName": own, "ResourceClaimTemplateName": template});
        if required(claim, "name", &at, out) && !names.insert(text(claim, "/name").to_owned()) {
            out.push(Fault::duplicate(&at.child("name"), text(claim, "/name")));
        }
        match (own, template) {
            (None, None) => out.push(Fault::invalid(&at, shown(), "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")),
            (Some(_), Some(_)) => out.push(Fault::invalid(&at, shown(), "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified")),
            _ => {}
        }
    }
    names
}

fn container(c: &Value, claims: &BTreeSet<String>, s: &Value, p: &Path, out: &mut Faults) {
    profiles(&c["securityContext"], &p.child("securityContext"), out);
    one_of(&c["securityContext"], "procMount", &["Default", "Unmasked"], false, &p.child("securityContext"), out);
    if text(c, "/securityContext/procMount") == "Unmasked" && s.get("hostUsers") != Some(&json!(false)) {
        out.push(Fault::invalid(&p.child("securityContext").child("procMount"), "Unmasked", "`hostUsers` must be false to use `Unmasked`"));
    }
    for (i, claim) in list(c, "/resources/claims").iter().enumerate() {
        let name = text(claim, "/name");
        if !claims.contains(name) {
            let which = if claims.is_empty() { "which is empty" } else { "" };
            let why = format!("must be one of the names in pod.spec.resourceClaims {which}");
            out.push(Fault { detail: why.trim_end().to_owned(), ..Fault::not_found(&p.child("resources").child("claims").index(i), name) });
        }
    }
    for rule in list(c, "/resizePolicy") {
        let at = p.child("resizePolicy");
        for (k, allowed) in [("resourceName", ["cpu", "memory"]), ("restartPolicy", ["NotRequired", "RestartContainer"])] {
            let given = text(rule, &format!("/{k}"));
            if given.is_empty() {
                out.push(Fault::required(&at, ""));
            } else if !allowed.contains(&given) {
                out.push(Fault::not_supported(&at, given, &allowed));
            }
        }
    }
    let claimed = |name: &str| list(s, "/volumes").iter().any(|v| text(v, "/name") == name);
    for (i, device) in list(c, "/volumeDevices").iter().enumerate() {
        let at = p.child("volumeDevices").index(i);
        if required(device, "name", &at, out) && !claimed(text(device, "/name")) {
            out.push(Fault::not_found(&at.child("name"), text(device, "/name")));
        }
        required(device, "devicePath", &at, out);
    }
    for (i, mount) in list(c, "/volumeMounts").iter().enumerate() {
        one_of(mount, "mountPropagation", &["Bidirectional", "HostToContainer", "None"], false, &p.child("volumeMounts"), out);
        let expr = text(mount, "/subPathExpr");
        if !expr.is_empty() && !text(mount, "/subPath").is_empty() {
            out.push(Fault::invalid(&p.child("volumeMounts").index(i).child("subPathExpr"), expr, "subPathExpr and subPath are mutually exclusive"));
        }
    }
    if map(c, "/securityContext").get("privileged") != Some(&json!(true)) {
        for _ in list(c, "/volumeMounts").iter().filter(|m| text(m, "/mountPropagation") == "Bidirectional") {
            out.push(Fault::forbidden(&p.child("volumeMounts").child("mountPropagation"), "Bidirectional mount propagation is available only to privileged containers"));
        }
    }
}

fn spread(v: &[Value], p: &Path, out: &mut Faults) {
    let key = |c: &Value| (text(c, "/topologyKey").to_owned(), text(c, "/whenUnsatisfiable").to_owned());
    for (i, c) in v.iter().enumerate() {
        let at = p.index(i);
        if let Some(n) = c.get("minDomains").and_then(Value::as_i64) {
            if n <= 0 {
                out.push(Fault::invalid(&at.child("minDomains"), n, "must be greater than zero"));
            }
            if text(c, "/whenUnsatisfiable") != "DoNotSchedule" {
                let why = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {}", text(c, "/whenUnsatisfiable"));
                out.push(Fault::invalid(&at.child("minDomains"), n, why));
            }
        }
        if v[i + 1..].iter().any(|other| key(other) == key(c)) {
            let (topology, when) = key(c);
            out.push(Fault::duplicate(&at.child("{topologyKey, whenUnsatisfiable}"), format!("{{{topology}, {when}}}")));
        }
    }
}
