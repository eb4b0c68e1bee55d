//! RBAC, admission and API registration, certificates.

use super::{Faults, get, list, one_of, required, selector, text};
use crate::cel::Program;
use crate::fault::{Fault, Path};
use crate::text as words;
use serde_json::{Value, json};

pub(super) fn role(o: &Value, namespaced: bool, out: &mut Faults) {
    for (i, r) in list(o, "/rules").iter().enumerate() {
        let at = Path::new("rules").index(i);
        if list(r, "/verbs").is_empty() {
            out.push(Fault::required(&at.child("verbs"), ""));
        }
        let urls = list(r, "/nonResourceURLs");
        if !urls.is_empty() {
            if namespaced {
                out.push(Fault::invalid(&at.child("nonResourceURLs"), json!(urls), "namespaced rules cannot apply to non-resource URLs"));
            }
            if ["apiGroups", "resources", "resourceNames"].iter().any(|k| !list(r, &format!("/{k}")).is_empty()) {
                out.push(Fault::invalid(&at.child("nonResourceURLs"), json!(urls), "rules cannot apply to both regular resources and non-resource URLs"));
            }
            continue;
        }
        if list(r, "/apiGroups").is_empty() {
            out.push(Fault::required(&at.child("apiGroups"), "resource rules must supply at least one api group"));
        }
        if list(r, "/resources").is_empty() {
            out.push(Fault::required(&at.child("resources"), "resource rules must supply at least one resource"));
        }
    }
    if let Some(a) = get(o, "aggregationRule") {
        let p = Path::new("aggregationRule").child("clusterRoleSelectors");
        let all = list(a, "/clusterRoleSelectors");
        if all.is_empty() {
            out.push(Fault::required(&p, "at least one clusterRoleSelector required if aggregationRule is non-nil"));
        }
        for (i, s) in all.iter().enumerate() {
            selector(s, &p.index(i), out);
        }
    }
}

const GROUP: &str = "rbac.authorization.k8s.io";

pub(super) fn binding(o: &Value, namespaced: bool, out: &mut Faults) {
    let (r, p) = (&o["roleRef"], Path::new("roleRef"));
    if text(r, "/apiGroup") != GROUP {
        out.push(Fault::not_supported(&p.child("apiGroup"), text(r, "/apiGroup"), &[GROUP]));
    }
    let kinds: &[&str] = if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    if !kinds.contains(&text(r, "/kind")) {
        out.push(Fault::not_supported(&p.child("kind"), text(r, "/kind"), kinds));
    }
    if required(r, "name", &p, out) {
        out.extend(words::path_segment(text(r, "/name")).into_iter().map(|m| Fault::invalid(&p.child("name"), text(r, "/name"), m)));
    }
    for (i, s) in list(o, "/subjects").iter().enumerate() {
        let at = Path::new("subjects").index(i);
        required(s, "name", &at, out);
        let group = text(s, "/apiGroup");
        match text(s, "/kind") {
            "ServiceAccount" => {
                let name = text(s, "/name");
                if !name.is_empty() {
                    out.extend(words::dns1123_subdomain(name).into_iter().map(|m| Fault::invalid(&at.child("name"), name, m)));
                }
                if !group.is_empty() {
                    out.push(Fault::not_supported(&at.child("apiGroup"), group, &[""]));
                }
                if !namespaced && text(s, "/namespace").is_empty() {
                    out.push(Fault::required(&at.child("namespace"), ""));
                }
            }
            "User" | "Group" => {
                if group != GROUP {
                    out.push(Fault::not_supported(&at.child("apiGroup"), group, &[GROUP]));
                }
            }
            other => out.push(Fault::not_supported(&at.child("kind"), other, &["ServiceAccount", "User", "Group"])),
        }
    }
}

pub(super) fn api_service(o: &Value, out: &mut Faults) {
    let (s, p) = (&o["spec"], Path::new("spec"));
    let (group, version) = (text(s, "/group"), text(s, "/version"));
    let want = format!("{version}.{group}");
    if text(o, "/metadata/name") != want {
        out.push(Fault::invalid(&Path::new("metadata").child("name"), text(o, "/metadata/name"), format!("must be `spec.version+\".\"+spec.group`: {}", crate::fault::quote(&want))));
    }
    if !group.is_empty() {
        out.extend(words::dns1123_subdomain(group).into_iter().map(|m| Fault::invalid(&p.child("group"), group, m)));
    }
    out.extend(words::dns1035_label(version).into_iter().map(|m| Fault::invalid(&p.child("version"), version, m)));
    for (k, max) in [("groupPriorityMinimum", 20000), ("versionPriority", 1000)] {
        let n = s.get(k).and_then(Value::as_i64).unwrap_or(0);
        if !(1..=max).contains(&n) {
            out.push(Fault::invalid(&p.child(k), n, format!("must be positive and less than {max}")));
        }
    }
    match get(s, "service") {
        None => {
            if !text(s, "/caBundle").is_empty() {
                out.push(Fault::invalid(&p.child("caBundle"), format!("{} bytes", text(s, "/caBundle").len()), "local APIServices may not have a caBundle"));
            }
        }
        Some(r) => {
            required(r, "namespace", &p.child("service"), out);
            required(r, "name", &p.child("service"), out);
            if s.get("insecureSkipTLSVerify") == Some(&json!(true)) && !text(s, "/caBundle").is_empty() {
                out.push(Fault::invalid(&p.child("insecureSkipTLSVerify"), true, "may not be true if caBundle is present"));
            }
        }
    }
}

/// Expressions of policies parse and use known variables.
fn expression(source: &str, p: &Path, variables: &[&str], out: &mut Faults) {
    if source.trim().is_empty() {
        out.push(Fault::required(p, "expression is not specified"));
        return;
    }
    if let Err(e) = Program::with_variables(source, variables) {
        out.push(Fault::invalid(p, source, e.to_string()));
    }
}

const POLICY_VARIABLES: &[&str] = &["object", "oldObject", "request", "params", "namespaceObject", "authorizer", "authorizer.requestResource", "variables", "Object", "JSONPatch", "jsonpatch"];

pub(super) fn admission(plural: &str, o: &Value, out: &mut Faults) {
    if plural.ends_with("webhookconfigurations") {
        let hooks = list(o, "/webhooks");
        let mut names = std::collections::BTreeSet::new();
        for (i, h) in hooks.iter().enumerate() {
            webhook(h, &Path::new("webhooks").index(i), out);
            if !names.insert(text(h, "/name")) {
                out.push(Fault::duplicate(&Path::new("webhooks").index(i).child("name"), text(h, "/name")));
            }
        }
        return;
    }
    let (s, p) = (&o["spec"], Path::new("spec"));
    if plural.ends_with("bindings") {
        required(s, "policyName", &p, out);
        if plural.starts_with("validating") {
            let actions = list(s, "/validationActions");
            if actions.is_empty() {
                out.push(Fault::required(&p.child("validationActions"), "at least one validation action is required"));
            }
            for (i, a) in actions.iter().enumerate() {
                if !matches!(a.as_str(), Some("Audit" | "Deny" | "Warn")) {
                    out.push(Fault::not_supported(&p.child("validationActions").index(i), a.clone(), &["Audit", "Deny", "Warn"]));
                }
            }
        }
        return;
    }
    one_of(s, "failurePolicy", &["Fail", "Ignore"], true, &p, out);
    match get(s, "matchConstraints") {
        None => out.push(Fault::required(&p.child("matchConstraints"), "")),
        Some(m) => {
            if list(m, "/resourceRules").is_empty() {
                out.push(Fault::required(&p.child("matchConstraints").child("resourceRules"), ""));
            }
            for k in ["namespaceSelector", "objectSelector"] {
                if let Some(x) = get(m, k) {
                    selector(x, &p.child("matchConstraints").child(k), out);
                }
            }
            for (i, r) in list(m, "/resourceRules").iter().enumerate() {
                rule(r, &p.child("matchConstraints").child("resourceRules").index(i), out);
            }
        }
    }
    for (i, c) in list(s, "/matchConditions").iter().enumerate() {
        let at = p.child("matchConditions").index(i);
        required(c, "name", &at, out);
        expression(text(c, "/expression"), &at.child("expression"), POLICY_VARIABLES, out);
    }
    for (i, v) in list(s, "/variables").iter().enumerate() {
        let at = p.child("variables").index(i);
        let name = text(v, "/name");
        if name.is_empty() {
            out.push(Fault::required(&at.child("name"), "name is not specified"));
        } else {
            out.extend(words::c_identifier(name).into_iter().map(|m| Fault::invalid(&at.child("name"), name, m)));
        }
        expression(text(v, "/expression"), &at.child("expression"), POLICY_VARIABLES, out);
    }
    if plural.starts_with("validating") {
        let (checks, audits) = (list(s, "/validations"), list(s, "/auditAnnotations"));
        if checks.is_empty() && audits.is_empty() {
            out.push(Fault::required(&p.child("validations"), "validations or auditAnnotations must contain at least one item"));
        }
        for (i, v) in checks.iter().enumerate() {
            let at = p.child("validations").index(i);
            expression(text(v, "/expression"), &at.child("expression"), POLICY_VARIABLES, out);
            if !text(v, "/messageExpression").is_empty() {
                expression(text(v, "/messageExpression"), &at.child("messageExpression"), POLICY_VARIABLES, out);
            }
            if text(v, "/message").contains('\n') {
                out.push(Fault::invalid(&at.child("message"), text(v, "/message"), "message must not contain line breaks"));
            }
        }
    } else {
        let all = list(s, "/mutations");
        if all.is_empty() {
            out.push(Fault::required(&p.child("mutations"), "mutations must contain at least one item"));
        }
        for (i, m) in all.iter().enumerate() {
            let at = p.child("mutations").index(i);
            match text(m, "/patchType") {
                "ApplyConfiguration" => expression(text(m, "/applyConfiguration/expression"), &at.child("applyConfiguration").child("expression"), POLICY_VARIABLES, out),
                "JSONPatch" => expression(text(m, "/jsonPatch/expression"), &at.child("jsonPatch").child("expression"), POLICY_VARIABLES, out),
                "" => out.push(Fault::required(&at.child("patchType"), "")),
                other => out.push(Fault::not_supported(&at.child("patchType"), other, &["ApplyConfiguration", "JSONPatch"])),
            }
        }
        one_of(s, "reinvocationPolicy", &["IfNeeded", "Never"], true, &p, out);
    }
}

fn rule(r: &Value, p: &Path, out: &mut Faults) {
    for k in ["apiGroups", "apiVersions", "resources", "operations"] {
        let all = list(r, &format!("/{k}"));
        if all.is_empty() {
            out.push(Fault::required(&p.child(k), ""));
        }
        if all.len() > 1 && k != "resources" && all.iter().any(|x| x == "*") {
            out.push(Fault::invalid(&p.child(k), json!(all), "if '*' is present, must not specify other ".to_owned() + match k { "apiGroups" => "API groups", "apiVersions" => "API versions", _ => "operations" }));
        }
    }
    for (i, x) in list(r, "/operations").iter().enumerate() {
        if !matches!(x.as_str(), Some("*" | "CONNECT" | "CREATE" | "DELETE" | "UPDATE")) {
            out.push(Fault::not_supported(&p.child("operations").index(i), x.clone(), &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"]));
        }
    }
    one_of(r, "scope", &["*", "Cluster", "Namespaced"], false, p, out);
}

fn webhook(h: &Value, p: &Path, out: &mut Faults) {
    let name = text(h, "/name");
    if name.is_empty() {
        out.push(Fault::required(&p.child("name"), ""));
    } else if name.split('.').count() < 3 {
        out.push(Fault::invalid(&p.child("name"), name, "should be a domain with at least three segments separated by dots"));
    } else {
        out.extend(words::dns1123_subdomain(name).into_iter().map(|m| Fault::invalid(&p.child("name"), name, m)));
    }
    let versions = list(h, "/admissionReviewVersions");
    if versions.is_empty() {
        out.push(Fault::required(&p.child("admissionReviewVersions"), "must specify one of v1, v1beta1"));
    } else if !versions.iter().any(|v| v == "v1" || v == "v1beta1") {
        out.push(Fault::invalid(&p.child("admissionReviewVersions"), json!(versions), "must include at least one of v1, v1beta1"));
    }
    for (i, r) in list(h, "/rules").iter().enumerate() {
        rule(r, &p.child("rules").index(i), out);
    }
    one_of(h, "failurePolicy", &["Fail", "Ignore"], false, p, out);
    one_of(h, "matchPolicy", &["Equivalent", "Exact"], false, p, out);
    match get(h, "sideEffects").and_then(Value::as_str) {
        None => out.push(Fault::required(&p.child("sideEffects"), "must specify one of None, NoneOnDryRun")),
        Some("None" | "NoneOnDryRun") => {}
        Some(other) => out.push(Fault::not_supported(&p.child("sideEffects"), other, &["None", "NoneOnDryRun"])),
    }
    let n = h.get("timeoutSeconds").and_then(Value::as_i64).unwrap_or(10);
    if !(1..=30).contains(&n) {
        out.push(Fault::invalid(&p.child("timeoutSeconds"), n, if n < 1 { "the timeout value must be between 1 and 30 seconds" } else { "the timeout value must be between 1 and 30 seconds" }));
    }
    for k in ["namespaceSelector", "objectSelector"] {
        if let Some(x) = get(h, k) {
            selector(x, &p.child(k), out);
        }
    }
    let c = &h["clientConfig"];
    let at = p.child("clientConfig");
    match (get(c, "url").and_then(Value::as_str), get(c, "service")) {
        (Some(_), Some(_)) | (None, None) => out.push(Fault::required(&at, "exactly one of url or service is required")),
        (Some(u), None) => {
            if !u.starts_with("https://") {
                out.push(Fault::invalid(&at.child("url"), u, "'https' is the only allowed URL scheme; desired format: https://host[/path]"));
            }
        }
        (None, Some(s)) => {
            required(s, "name", &at.child("service"), out);
            required(s, "namespace", &at.child("service"), out);
        }
    }
    for (i, m) in list(h, "/matchConditions").iter().enumerate() {
        let at = p.child("matchConditions").index(i);
        required(m, "name", &at, out);
        expression(text(m, "/expression"), &at.child("expression"), &["object", "oldObject", "request", "authorizer", "authorizer.requestResource"], out);
    }
}

pub(super) fn signing_request(o: &Value, out: &mut Faults) {
    let (s, p) = (&o["spec"], Path::new("spec"));
    if text(s, "/request").is_empty() {
        out.push(Fault::invalid(&p.child("request"), "", "PEM block type must be CERTIFICATE REQUEST"));
    }
    if list(s, "/usages").is_empty() {
        out.push(Fault::required(&p.child("usages"), ""));
    }
    let name = text(s, "/signerName");
    if name.is_empty() {
        out.push(Fault::required(&p.child("signerName"), ""));
    } else if name.split('/').count() != 2 || !name.split('/').next().is_some_and(|d| d.contains('.')) {
        out.push(Fault::invalid(&p.child("signerName"), name, "must be a fully qualified domain and path of the form 'example.com/signer-name'"));
    }
    if s.get("expirationSeconds").and_then(Value::as_i64).is_some_and(|n| n < 600) {
        out.push(Fault::invalid(&p.child("expirationSeconds"), s["expirationSeconds"].clone(), "may not specify a duration less than 600 seconds (10 minutes)"));
    }
}

pub(super) fn trust_bundle(o: &Value, out: &mut Faults) {
    let (name, signer) = (text(o, "/metadata/name"), text(o, "/spec/signerName"));
    if signer.is_empty() {
        if name.contains(':') {
            out.push(Fault::invalid(&Path::new("metadata").child("name"), name, "ClusterTrustBundle without signer name must not have \":\" in its name"));
        }
    } else {
        let prefix = format!("{}:", signer.replace('/', ":"));
        if !name.starts_with(&prefix) {
            out.push(Fault::invalid(&Path::new("metadata").child("name"), name, format!("ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}")));
        }
    }
    if text(o, "/spec/trustBundle").is_empty() {
        out.push(Fault::invalid(&Path::new("spec").child("trustBundle"), "<value omitted>", "at least one trust anchor must be provided"));
    }
}
