//! The built-in resources, in the order a real server's discovery lists them.
//!
//! Format of `data/resources.txt` (written by `data/tables.go`): `group/version` opens a group version; one space, then a
//! resource: `plural singular kind scope verbs short-names categories`; two spaces, then a subresource of it:
//! `name group version kind verbs`; `-` stands for none (of a subresource's group: the core group).

use std::collections::BTreeMap;
use std::sync::OnceLock;

/// A subresource of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subresource {
    /// Its name, such as `status`.
    pub name: &'static str,
    /// Group of the kind it takes and gives.
    pub group: &'static str,
    /// Version of that kind.
    pub version: &'static str,
    /// That kind.
    pub kind: &'static str,
    /// Verbs, sorted.
    pub verbs: Vec<&'static str>,
}

/// A built-in resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// API group, empty for core.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// Kind of the objects.
    pub kind: &'static str,
    /// Kind of lists.
    pub list_kind: String,
    /// Plural name in URLs.
    pub plural: &'static str,
    /// Singular name.
    pub singular: &'static str,
    /// Short names of kubectl.
    pub short_names: Vec<&'static str>,
    /// Categories such as `all`.
    pub categories: Vec<&'static str>,
    /// Lives in a namespace.
    pub namespaced: bool,
    /// Verbs, sorted.
    pub verbs: Vec<&'static str>,
    /// Subresources, sorted by name.
    pub subresources: Vec<Subresource>,
    /// Field selectors beside `metadata.name` and `metadata.namespace`.
    pub field_selectors: &'static [&'static str],
}

impl Resource {
    /// `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }
    /// Whether objects are stored (reviews and bindings are only answered).
    pub fn stored(&self) -> bool {
        self.verbs.contains(&"get") && self.kind != "ComponentStatus"
    }
    /// The group whose store the objects live in: `events` of both groups are one, as are the versions of a kind.
    pub fn storage(&self) -> (&'static str, &'static str) {
        match (self.group, self.plural) {
            ("events.k8s.io", "events") => ("", "events"),
            (g, p) => (g, p),
        }
    }
    /// The subresource of this name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }
}

/// All built-in resources, core first, in discovery order.
pub fn resources() -> &'static [Resource] {
    static ALL: OnceLock<Vec<Resource>> = OnceLock::new();
    ALL.get_or_init(|| parse(include_str!("data/resources.txt")))
}

/// The resource at `/apis/<group>/<version>/<plural>` (group empty: `/api`).
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    static BY_PLURAL: OnceLock<BTreeMap<(&'static str, &'static str, &'static str), usize>> = OnceLock::new();
    let all = resources();
    let index = BY_PLURAL.get_or_init(|| all.iter().enumerate().map(|(i, r)| ((r.group, r.version, r.plural), i)).collect());
    index.get(&(group, version, plural)).map(|i| &all[*i])
}

/// The resource of a kind.
pub fn by_kind(group: &str, version: &str, kind: &str) -> Option<&'static Resource> {
    static BY_KIND: OnceLock<BTreeMap<(&'static str, &'static str, &'static str), usize>> = OnceLock::new();
    let all = resources();
    let index = BY_KIND.get_or_init(|| all.iter().enumerate().map(|(i, r)| ((r.group, r.version, r.kind), i)).collect());
    index.get(&(group, version, kind)).map(|i| &all[*i])
}

fn words(list: &'static str) -> Vec<&'static str> {
    if list == "-" { Vec::new() } else { list.split(',').collect() }
}

fn parse(text: &'static str) -> Vec<Resource> {
    let mut out: Vec<Resource> = Vec::new();
    let (mut group, mut version) = ("", "");
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        if let Some(sub) = line.strip_prefix("  ") {
            let w: Vec<&'static str> = sub.split(' ').collect();
            if let ([name, g, v, kind, verbs], Some(r)) = (w.as_slice(), out.last_mut()) {
                let g = if *g == "-" { "" } else { g };
                r.subresources.push(Subresource { name, group: g, version: v, kind, verbs: words(verbs) });
            }
        } else if let Some(res) = line.strip_prefix(' ') {
            let w: Vec<&'static str> = res.split(' ').collect();
            if let [plural, singular, kind, scope, verbs, short, categories] = w.as_slice() {
                out.push(Resource {
                    group,
                    version,
                    kind,
                    list_kind: format!("{kind}List"),
                    plural,
                    singular,
                    short_names: words(short),
                    categories: words(categories),
                    namespaced: *scope == "namespaced",
                    verbs: words(verbs),
                    subresources: Vec::new(),
                    field_selectors: field_selectors(group, plural),
                });
            }
        } else if let Some((g, v)) = line.split_once('/') {
            (group, version) = (g, v);
        }
    }
    out
}

/// Fields a real server can select by, per resource.
fn field_selectors(group: &str, plural: &str) -> &'static [&'static str] {
    match (group, plural) {
        ("", "pods") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        ("", "events") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("events.k8s.io", "events") => &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ],
        ("", "nodes") => &["spec.unschedulable"],
        ("", "namespaces") => &["status.phase"],
        ("", "secrets") => &["type"],
        ("", "services") => &["spec.clusterIP", "spec.type"],
        ("", "replicationcontrollers") | ("apps", "replicasets") => &["status.replicas"],
        ("batch", "jobs") => &["status.successful"],
        ("certificates.k8s.io", "certificatesigningrequests" | "clustertrustbundles") => &["spec.signerName"],
        ("certificates.k8s.io", "podcertificaterequests") => &["spec.signerName", "spec.nodeName"],
        ("resource.k8s.io", "resourceslices") => &["spec.nodeName", "spec.driver"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;

    #[test]
    fn every_stored_resource_has_a_shape() {
        for r in resources() {
            assert!(table::native(r.group, r.version, r.kind).is_some(), "{}/{} {}", r.group, r.version, r.kind);
        }
        assert!(resources().len() > 70, "{}", resources().len());
    }

    #[test]
    fn lookups_agree() {
        let d = find("apps", "v1", "deployments").expect("resource");
        assert_eq!(by_kind("apps", "v1", "Deployment"), Some(d));
        assert_eq!(d.short_names, ["deploy"]);
        assert_eq!(d.subresource("scale").map(|s| (s.group, s.kind)), Some(("autoscaling", "Scale")));
        assert_eq!(find("", "v1", "pods").and_then(|r| r.subresource("eviction")).map(|s| s.group), Some("policy"));
        assert_eq!(resources()[0].plural, "bindings");
    }
}
