//! CustomResourceDefinitions.

use super::{Faults, get, list, one_of, required, text};
use crate::fault::{Fault, Path};
use crate::structural;
use crate::text as words;
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(super) fn definition(o: &Value, out: &mut Faults) {
    let (s, p) = (&o["spec"], Path::new("spec"));
    let (group, plural) = (text(s, "/group"), text(s, "/names/plural"));
    let want = format!("{plural}.{group}");
    if text(o, "/metadata/name") != want {
        out.push(Fault::invalid(&Path::new("metadata").child("name"), text(o, "/metadata/name"), "must be spec.names.plural+\".\"+spec.group"));
    }
    if group.is_empty() {
        out.push(Fault::required(&p.child("group"), ""));
    } else {
        out.extend(words::dns1123_subdomain(group).into_iter().map(|m| Fault::invalid(&p.child("group"), group, m)));
        if !group.contains('.') {
            out.push(Fault::invalid(&p.child("group"), group, "should be a domain with at least one dot"));
        }
    }
    one_of(s, "scope", &["Cluster", "Namespaced"], true, &p, out);
    names(&s["names"], &p.child("names"), out);
    versions(s, &p, out);
    if text(s, "/conversion/strategy") == "Webhook" && get(&s["conversion"], "webhook").is_none() {
        out.push(Fault::required(&p.child("conversion").child("webhookClientConfig"), "required when strategy is set to Webhook"));
    }
    if get(s, "preserveUnknownFields") == Some(&json!(true)) {
        out.push(Fault::invalid(&p.child("preserveUnknownFields"), true, "must be false in order to use defaults in the schema"));
    }
    if (group.ends_with(".k8s.io") || group.ends_with(".kubernetes.io") || matches!(group, "k8s.io" | "kubernetes.io")) && text(o, "/metadata/annotations/api-approved.kubernetes.io").is_empty() {
        let approved = super::map(o, "/metadata/annotations").get("api-approved.kubernetes.io").and_then(Value::as_str).unwrap_or_default();
        if approved.is_empty() {
            out.push(Fault::required(
                &Path::new("metadata").child("annotations").key("api-approved.kubernetes.io"),
                "protected groups must have approval annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111",
            ));
        }
    }
    let recorded = list(o, "/status/storedVersions");
    let at = Path::new("status").child("storedVersions");
    if recorded.is_empty() {
        out.push(Fault::invalid(&at, json!(null), "must have at least one stored version"));
    } else if let Some(v) = list(s, "/versions").iter().rfind(|v| get(v, "storage") == Some(&json!(true))) {
        if !recorded.iter().any(|r| Some(r) == v.get("name")) {
            out.push(Fault::invalid(&at, json!(recorded), format!("must have the storage version {}", text(v, "/name"))));
        }
    }
    out.extend(structural::check_crd(o));
}

fn names(n: &Value, p: &Path, out: &mut Faults) {
    for k in ["plural", "singular", "kind", "listKind"] {
        if !required(n, k, p, out) {
            continue;
        }
        let v = text(n, &format!("/{k}"));
        if !v.is_empty() {
            let lower = v.to_lowercase();
            let rule = if matches!(k, "kind" | "listKind") { &lower } else { v };
            out.extend(words::dns1035_label(rule).into_iter().map(|m| Fault::invalid(&p.child(k), v, format!("may have mixed case, but should otherwise match: {m}")).without_case_note(k)));
        }
    }
    if !text(n, "/kind").is_empty() && text(n, "/kind") == text(n, "/listKind") {
        out.push(Fault::invalid(&p.child("listKind"), text(n, "/listKind"), "kind and listKind may not be the same"));
    }
    for k in ["shortNames", "categories"] {
        for (i, v) in list(n, &format!("/{k}")).iter().enumerate() {
            let v = v.as_str().unwrap_or_default();
            out.extend(words::dns1035_label(v).into_iter().map(|m| Fault::invalid(&p.child(k).index(i), v, m)));
        }
    }
}

impl Fault {
    /// Plural and singular names are lower case; only kinds get the note about case.
    fn without_case_note(mut self, field: &str) -> Self {
        if !matches!(field, "kind" | "listKind") {
            if let Some(rest) = self.detail.strip_prefix("may have mixed case, but should otherwise match: ") {
                self.detail = rest.to_owned();
            }
        }
        self
    }
}

fn versions(s: &Value, p: &Path, out: &mut Faults) {
    let all = list(s, "/versions");
    if all.is_empty() {
        out.push(Fault::invalid(&p.child("versions"), json!(null), "must have exactly one version marked as storage version"));
        return;
    }
    // What is the same in all versions is reported once, at the place it has in the internal form.
    let place = |part: &str, i: usize| {
        let same = all.windows(2).all(|w| w[0].get(part) == w[1].get(part));
        if same { p.clone() } else { p.child("versions").index(i) }
    };
    let mut seen = BTreeSet::new();
    let mut stored = 0;
    for (i, v) in all.iter().enumerate() {
        let at = p.child("versions").index(i);
        let name = text(v, "/name");
        out.extend(words::dns1035_label(name).into_iter().map(|m| Fault::invalid(&at.child("name"), name, m)));
        if !seen.insert(name) {
            out.push(Fault::invalid(&p.child("versions"), json!(all.iter().map(|v| text(v, "/name")).collect::<Vec<_>>()), "must contain unique version names"));
        }
        stored += usize::from(get(v, "storage") == Some(&json!(true)));
        if v.pointer("/schema/openAPIV3Schema").is_none_or(Value::is_null) {
            out.push(Fault::required(&at.child("schema").child("openAPIV3Schema"), "schemas are required"));
        }
        if let Some(sc) = v.pointer("/subresources/scale") {
            let at = place("subresources", i).child("subresources").child("scale");
            for (k, prefix) in [("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")] {
                let path = text(sc, &format!("/{k}"));
                if path.is_empty() {
                    out.push(Fault::required(&at.child(k), ""));
                } else if !path.starts_with('.') {
                    out.push(Fault::invalid(&at.child(k), path, "must be a simple json path starting with ."));
                } else if !path.starts_with(prefix) {
                    out.push(Fault::invalid(&at.child(k), path, format!("should be a json path under {}", prefix.trim_end_matches('.'))));
                }
            }
        }
        for (j, c) in list(v, "/additionalPrinterColumns").iter().enumerate() {
            let at = place("additionalPrinterColumns", i).child("additionalPrinterColumns").index(j);
            required(c, "name", &at, out);
            required(c, "jsonPath", &at, out);
            match text(c, "/type") {
                "" => out.push(Fault::required(&at.child("type"), "must be one of boolean,date,integer,number,string")),
                "boolean" | "date" | "integer" | "number" | "string" => {}
                other => out.push(Fault::invalid(&at.child("type"), other, "must be one of boolean,date,integer,number,string")),
            }
        }
        if let Some(w) = get(v, "deprecationWarning") {
            if get(v, "deprecated") != Some(&json!(true)) {
                out.push(Fault::invalid(&at.child("deprecationWarning"), w.clone(), "can only be set for deprecated versions"));
            }
        }
    }
    if stored != 1 {
        // The server shows its internal form.
        let flag = |v: &Value, k: &str| get(v, k) == Some(&json!(true));
        let names: Vec<Value> = all
            .iter()
            .map(|v| json!({"Name": text(v, "/name"), "Served": flag(v, "served"), "Storage": flag(v, "storage"), "Deprecated": flag(v, "deprecated"), "DeprecationWarning": null, "Schema": null, "Subresources": null, "AdditionalPrinterColumns": null, "SelectableFields": null}))
            .collect();
        out.push(Fault::invalid(&p.child("versions"), json!(names), "must have exactly one version marked as storage version"));
    }
}

pub(super) fn update(o: &Value, old: &Value, out: &mut Faults) {
    let established = list(old, "/status/conditions").iter().any(|c| text(c, "/type") == "Established" && text(c, "/status") == "True");
    let mut fixed = |pointer: &str, path: &str| {
        let (a, b) = (o.pointer(pointer).cloned().unwrap_or_default(), old.pointer(pointer).cloned().unwrap_or_default());
        if a != b {
            out.push(Fault::invalid(&Path::new(path), a, "field is immutable"));
        }
    };
    if established {
        fixed("/spec/scope", "spec.scope");
        fixed("/spec/names/kind", "spec.names.kind");
    }
    fixed("/spec/group", "spec.group");
    fixed("/spec/names/plural", "spec.names.plural");
    for v in list(o, "/status/storedVersions") {
        if !list(o, "/spec/versions").iter().any(|x| x.get("name") == Some(v)) {
            out.push(Fault::invalid(&Path::new("status").child("storedVersions").index(0), v.clone(), "missing from spec.versions; ".to_owned() + v.as_str().unwrap_or_default() + " was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in " + v.as_str().unwrap_or_default() + " and removes " + v.as_str().unwrap_or_default() + " from status.storedVersions"));
        }
    }
}
