//! Rendered files to documents: splitting, heads, hooks, the order of installation.

use super::capabilities::Rules;
use super::heads::Heads;
use crate::text::{go_trim, go_trim_start};
use crate::yaml::decode::key_text;
use crate::yaml::parse::{Doc, Id, Kind, parse};
use crate::yaml::resolve::{Res, resolve};
use regex::bytes::Regex;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Kinds in the order they are installed.
pub const INSTALL_ORDER: [&str; 38] = [
    "PriorityClass",
    "Namespace",
    "NetworkPolicy",
    "ResourceQuota",
    "LimitRange",
    "PodSecurityPolicy",
    "PodDisruptionBudget",
    "ServiceAccount",
    "Secret",
    "SecretList",
    "ConfigMap",
    "StorageClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "CustomResourceDefinition",
    "ClusterRole",
    "ClusterRoleList",
    "ClusterRoleBinding",
    "ClusterRoleBindingList",
    "Role",
    "RoleList",
    "RoleBinding",
    "RoleBindingList",
    "Service",
    "DaemonSet",
    "Pod",
    "ReplicationController",
    "ReplicaSet",
    "Deployment",
    "HorizontalPodAutoscaler",
    "StatefulSet",
    "Job",
    "CronJob",
    "IngressClass",
    "Ingress",
    "APIService",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
];

/// A document of a rendered file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// Template it came from, from the chart's name on.
    pub path: String,
    /// Text.
    pub content: String,
    /// Head.
    pub head: Head,
}

/// A hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// The document.
    pub document: Document,
    /// Events, as `pre-install`.
    pub events: Vec<String>,
    /// Weight.
    pub weight: i64,
    /// Policies of deletion.
    pub delete_policies: Vec<String>,
    /// When logs are shown.
    pub log_policies: Vec<String>,
}

/// What is read of a document to sort it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Head {
    /// apiVersion.
    pub api_version: String,
    /// kind.
    pub kind: String,
    /// metadata.name.
    pub name: String,
    /// metadata.annotations.
    pub annotations: BTreeMap<String, String>,
}

fn helm3() -> Option<&'static Regex> {
    static R: OnceLock<Option<Regex>> = OnceLock::new();
    R.get_or_init(|| Regex::new(r"(?:^|[\t\n\x0c\r ]*\n)---[\t\n\x0c\r ]*").ok()).as_ref()
}

/// Splits a file into its documents.
pub fn split(text: &[u8], rules: Rules) -> Vec<&[u8]> {
    let mut out = Vec::new();
    if rules == Rules::Helm3 {
        let body = go_trim(text);
        let Some(re) = helm3() else { return out };
        for d in re.split(body) {
            let d = go_trim(d);
            if !d.is_empty() {
                out.push(d);
            }
        }
        return out;
    }
    let body = go_trim_start(text);
    // A separator is `---` at the start of a line with the blanks after it.
    let blanks = |at: usize| at + body[at..].iter().take_while(|c| matches!(c, b' ' | b'\t')).count();
    let mut start = if body.starts_with(b"---") { blanks(3) } else { 0 };
    for line in memchr::memmem::find_iter(body, b"\n---") {
        out.push(go_trim_start(&body[start..line + 1]));
        start = blanks(line + 4);
    }
    out.push(go_trim_start(&body[start..]));
    out.retain(|d| !d.is_empty());
    out
}

fn scalar(doc: &Doc<'_>, id: Id) -> Id {
    match doc.node(id).kind {
        Kind::Alias(_, t) => t,
        _ => id,
    }
}

/// The JSON word of a node's kind, or its text where a string is wanted.
enum Read {
    Text(String),
    Null,
    Other(&'static str),
}

fn read(doc: &Doc<'_>, id: Id) -> Read {
    let id = scalar(doc, id);
    let n = doc.node(id);
    match &n.kind {
        Kind::Map(_) => Read::Other("object"),
        Kind::Seq(_) => Read::Other("array"),
        Kind::Alias(..) => Read::Other("object"),
        Kind::Scalar { value, plain } => {
            let text = || Read::Text(crate::text::lossy(value).into_owned());
            if !*plain || !n.tag.is_empty() {
                return text();
            }
            match resolve(value) {
                Res::Null => Read::Null,
                Res::Bool(b) => Read::Text(b.to_string()),
                Res::Int(i) => Read::Text(i.to_string()),
                Res::Uint(u) => Read::Text(u.to_string()),
                Res::Float(f) => Read::Text(crate::text::fmt::float_g32(f)),
                _ => text(),
            }
        }
    }
}

/// The JSON kind a node has when no string is wanted.
fn json_kind(doc: &Doc<'_>, id: Id) -> &'static str {
    let n = doc.node(scalar(doc, id));
    match &n.kind {
        Kind::Map(_) | Kind::Alias(..) => "object",
        Kind::Seq(_) => "array",
        Kind::Scalar { value, plain } if *plain && n.tag.is_empty() => match resolve(value) {
            Res::Null => "null",
            Res::Bool(_) => "bool",
            Res::Int(_) | Res::Uint(_) | Res::Float(_) => "number",
            _ => "string",
        },
        Kind::Scalar { .. } => "string",
    }
}

fn entries<'d>(doc: &'d Doc<'_>, id: Id) -> Option<&'d [(Id, Id)]> {
    match &doc.node(scalar(doc, id)).kind {
        Kind::Map(m) => Some(m),
        _ => None,
    }
}

/// A key that is a string or becomes one: neither null nor a large number, the only ones that begin like these.
fn ordinary_key(doc: &Doc<'_>, id: Id) -> bool {
    match &doc.node(id).kind {
        Kind::Scalar { value, plain } => match value.first() {
            None => false,
            Some(b'n' | b'N' | b'~' | b'0'..=b'9') if *plain => !matches!(resolve(value), Res::Null | Res::Uint(_)),
            Some(_) => true,
        },
        _ => false,
    }
}

const SIMPLE: &str = "util.SimpleHead";

/// Reads the head of a document; the error is Helm's.
pub fn head(text: &[u8]) -> Result<Head, String> {
    let doc = parse(text).map_err(|e| format!("error converting YAML to JSON: yaml: {}", e.0))?;
    let mut h = Head::default();
    let Some(root) = doc.root else { return Ok(h) };
    // Whatever could fail to decode must be decoded: tags, merges, odd keys, numbers JSON has not.
    let plain = doc.nodes.iter().all(|n| match &n.kind {
        Kind::Scalar { value, plain } => {
            n.tag.is_empty()
                && (!plain
                    || match value.first() {
                        Some(b'.' | b'<') => false,
                        Some(b'-' | b'+') => value.get(1) != Some(&b'.'),
                        _ => true,
                    })
        }
        Kind::Alias(..) => false,
        Kind::Map(m) => n.tag.is_empty() && m.iter().all(|(k, _)| ordinary_key(&doc, *k)),
        Kind::Seq(_) => n.tag.is_empty(),
    });
    if !plain {
        crate::yaml::decode::decode_doc(&doc, false).map_err(|e| e.0)?;
    }
    let fault = |what: &str| Err(format!("error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {what}"));
    let Some(top) = entries(&doc, root) else {
        return match json_kind(&doc, root) {
            "null" => Ok(h),
            k => fault(&format!("{k} into Go value of type {SIMPLE}")),
        };
    };
    let find = |m: &[(Id, Id)], name: &str| -> Option<Id> {
        let mut found = None;
        for (k, v) in m {
            if let Some(key) = key_text(&doc, *k) {
                if *key == *name.as_bytes() {
                    return Some(*v);
                }
                if key.eq_ignore_ascii_case(name.as_bytes()) {
                    found = Some(*v);
                }
            }
        }
        found
    };
    // Merged keys count too.
    let merged;
    let top = match top.iter().find(|(k, _)| crate::yaml::decode::is_merge(&doc, *k)) {
        Some((_, v)) => {
            merged = entries(&doc, *v).unwrap_or(&[]).iter().chain(top).copied().collect::<Vec<_>>();
            &merged[..]
        }
        None => top,
    };
    let string = |id: Option<Id>, field: &str| -> Result<String, String> {
        match id.map(|i| read(&doc, i)) {
            None | Some(Read::Null) => Ok(String::new()),
            Some(Read::Text(t)) => Ok(t),
            Some(Read::Other(k)) => Err(format!("error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {k} into Go struct field {field} of type string")),
        }
    };
    h.api_version = string(find(top, "apiVersion"), "SimpleHead.apiVersion")?;
    h.kind = string(find(top, "kind"), "SimpleHead.kind")?;
    if let Some(md) = find(top, "metadata") {
        match entries(&doc, md) {
            None => match json_kind(&doc, md) {
                "null" => {}
                k => return fault(&format!("{k} into Go struct field SimpleHead.metadata of type struct {{ Name string \"json:\\\"name\\\"\"; Annotations map[string]string \"json:\\\"annotations\\\"\" }}")),
            },
            Some(m) => {
                if let Some(a) = find(m, "annotations") {
                    match entries(&doc, a) {
                        None => match json_kind(&doc, a) {
                            "null" => {}
                            k => return fault(&format!("{k} into Go struct field .metadata.annotations of type map[string]string")),
                        },
                        Some(all) => {
                            for (k, v) in all {
                                let Some(key) = key_text(&doc, *k) else { continue };
                                let t = string(Some(*v), ".metadata.annotations")?;
                                h.annotations.insert(crate::text::lossy(&key).into_owned(), t);
                            }
                        }
                    }
                }
                h.name = string(find(m, "name"), ".metadata.name")?;
            }
        }
    }
    Ok(h)
}

const EVENTS: [&str; 9] = ["pre-install", "post-install", "pre-delete", "post-delete", "pre-upgrade", "post-upgrade", "pre-rollback", "post-rollback", "test"];

fn rank(kind: &str, rules: Rules) -> Option<usize> {
    let i = INSTALL_ORDER.iter().position(|k| *k == kind)?;
    // Helm 3 does not know the webhook configurations.
    if rules == Rules::Helm3 && kind.ends_with("WebhookConfiguration") { None } else { Some(i) }
}

fn sort_key(kind: &str, rules: Rules) -> (usize, String) {
    match rank(kind, rules) {
        Some(i) => (i, String::new()),
        None => (usize::MAX, kind.to_string()),
    }
}

fn words(v: Option<&String>) -> Vec<String> {
    v.map_or(Vec::new(), |v| v.split(',').map(|s| s.trim().to_lowercase()).collect())
}

/// The hook that a document is by its annotations; none without them, or when it is for an event that nobody knows.
pub fn as_hook(document: Document) -> Option<Hook> {
    let a = &document.head.annotations;
    let mut events = Vec::new();
    for t in a.get("helm.sh/hook")?.split(',') {
        let t = t.trim().to_lowercase();
        let t = if t == "test-success" { "test".to_string() } else { t };
        if !EVENTS.contains(&t.as_str()) {
            return None;
        }
        events.push(t);
    }
    Some(Hook {
        events,
        weight: a.get("helm.sh/hook-weight").and_then(|w| w.parse().ok()).unwrap_or(0),
        delete_policies: words(a.get("helm.sh/hook-delete-policy")),
        log_policies: words(a.get("helm.sh/hook-output-log-policy")),
        document,
    })
}

/// Sorts rendered files (by path) into hooks and other documents; `heads` knows those that were read before.
pub fn sort(files: &BTreeMap<String, Vec<u8>>, rules: Rules, heads: &Heads) -> Result<(Vec<Hook>, Vec<Document>), String> {
    let (mut hooks, mut docs) = (Vec::new(), Vec::new());
    for (path, text) in files {
        let base = path.rsplit('/').next().unwrap_or(path);
        if base.starts_with('_') || go_trim(text).is_empty() {
            continue;
        }
        for content in split(text, rules) {
            let head = heads.of(content).map_err(|e| format!("YAML parse error on {path}: {e}"))?;
            let document = Document { path: path.clone(), content: crate::text::lossy(content).into_owned(), head };
            if document.head.annotations.contains_key("helm.sh/hook") {
                hooks.extend(as_hook(document));
            } else {
                docs.push(document);
            }
        }
    }
    hooks.sort_by_cached_key(|h| sort_key(&h.document.head.kind, rules));
    docs.sort_by_cached_key(|d| sort_key(&d.head.kind, rules));
    Ok((hooks, docs))
}
