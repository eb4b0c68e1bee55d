//! The roles and bindings a new server starts with, and the joining of aggregated ClusterRoles.

use serde_json::{json, Map, Value};

use super::index::RBAC_GROUP;
use super::table::TABLE;
use super::text;

const READ: [&str; 3] = ["get", "list", "watch"];
const WRITE: [&str; 5] = ["create", "delete", "deletecollection", "patch", "update"];

/// One default object with the plural of its resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Default {
    /// `clusterroles`, `clusterrolebindings`, `roles` or `rolebindings`.
    pub plural: &'static str,
    /// Namespace, empty at the cluster scope.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// The object, without uid and creation time.
    pub object: Value,
}

fn names(list: &str) -> Vec<&str> {
    list.split(',').map(str::trim).map(|item| if item == "core" { "" } else { item }).collect()
}

fn verbs(list: &str) -> Vec<&str> {
    let mut out: Vec<&str> = list
        .split(',')
        .flat_map(|verb| match verb {
            "READ" => READ.to_vec(),
            "WRITE" => WRITE.to_vec(),
            other => vec![other],
        })
        .collect();
    out.sort_unstable();
    out
}

fn rule(line: &str) -> Value {
    if let Some((list, paths)) = line.split_once(" @ ") {
        let paths: Vec<&str> = paths.split_whitespace().collect();
        return json!({"nonResourceURLs": paths, "verbs": verbs(list.trim())});
    }
    let mut parts = line.split('|').map(str::trim);
    let mut part = || parts.next().unwrap_or("");
    let (list, groups, resources, named) = (part(), part(), part(), part());
    let mut rule = json!({"apiGroups": names(groups), "resources": names(resources), "verbs": verbs(list)});
    if !named.is_empty() {
        rule["resourceNames"] = json!(names(named));
    }
    rule
}

fn new(kind: &str, plural: &'static str, place: &str) -> Default {
    let (namespace, name) = place.split_once('/').unwrap_or(("", place));
    let mut metadata = json!({
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "name": name,
    });
    if !namespace.is_empty() {
        metadata["namespace"] = json!(namespace);
    }
    Default {
        plural,
        namespace: namespace.into(),
        name: name.into(),
        object: json!({"apiVersion": format!("{RBAC_GROUP}/v1"), "kind": kind, "metadata": metadata}),
    }
}

fn binding(place: &str, role_kind: &str, role: &str, subjects: Vec<Value>) -> Default {
    let mut out = if place.contains('/') {
        new("RoleBinding", "rolebindings", place)
    } else {
        new("ClusterRoleBinding", "clusterrolebindings", place)
    };
    out.object["roleRef"] = json!({"apiGroup": RBAC_GROUP, "kind": role_kind, "name": role});
    if !subjects.is_empty() {
        out.object["subjects"] = Value::Array(subjects);
    }
    out
}

fn subject(word: &str) -> Option<Value> {
    let (kind, name) = word.split_once('=')?;
    Some(match kind {
        "user" => json!({"apiGroup": RBAC_GROUP, "kind": "User", "name": name}),
        "group" => json!({"apiGroup": RBAC_GROUP, "kind": "Group", "name": name}),
        "account" => {
            let (namespace, name) = name.split_once('/')?;
            json!({"kind": "ServiceAccount", "name": name, "namespace": namespace})
        }
        _ => return None,
    })
}

/// Every default role and binding; aggregated ClusterRoles have their rules already.
pub fn objects() -> Vec<Default> {
    let mut out: Vec<Default> = Vec::new();
    for line in TABLE.lines().filter(|line| !line.is_empty()) {
        if line.starts_with(' ') {
            if let Some(rules) = out.last_mut().and_then(|last| last.object["rules"].as_array_mut()) {
                rules.push(rule(line));
            }
            continue;
        }
        let mut words = line.split_whitespace();
        let (Some(what), Some(place)) = (words.next(), words.next()) else { continue };
        let rest: Vec<&str> = words.collect();
        let option = |key: &str| rest.iter().find_map(|word| word.strip_prefix(key));
        match what {
            "clusterrole" => {
                let name = place.strip_prefix('~').map_or_else(|| place.to_owned(), |name| format!("system:controller:{name}"));
                let mut role = new("ClusterRole", "clusterroles", &name);
                role.object["rules"] = json!([]);
                if let Some(into) = option("into=") {
                    role.object["metadata"]["labels"][format!("{RBAC_GROUP}/aggregate-to-{into}")] = json!("true");
                }
                if let Some(from) = option("from=") {
                    let label = format!("{RBAC_GROUP}/aggregate-to-{from}");
                    role.object["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]});
                }
                out.push(role);
            }
            "role" => {
                let mut role = new("Role", "roles", place);
                role.object["rules"] = json!([]);
                out.push(role);
            }
            _ => {
                let (_, name) = place.split_once('/').unwrap_or(("", place));
                let role = option("role=").unwrap_or(name);
                let kind = option("kind=").unwrap_or("ClusterRole");
                out.push(binding(place, kind, role, rest.iter().filter_map(|word| subject(word)).collect()));
            }
        }
    }
    let controllers: Vec<Default> = out
        .iter()
        .filter(|role| role.plural == "clusterroles")
        .filter_map(|role| role.name.strip_prefix("system:controller:"))
        .map(|name| {
            let full = format!("system:controller:{name}");
            binding(&full, "ClusterRole", &full, subject(&format!("account=kube-system/{name}")).into_iter().collect())
        })
        .collect();
    out.extend(controllers);
    join(&mut out);
    out
}

/// Fills aggregated roles until nothing changes (`admin` takes from `edit`, which takes from `view`).
fn join(out: &mut [Default]) {
    for _ in 0..4 {
        let all: Vec<Value> = out.iter().filter(|role| role.plural == "clusterroles").map(|role| role.object.clone()).collect();
        for role in out.iter_mut().filter(|role| role.plural == "clusterroles") {
            if let Some(rules) = aggregate(&role.object, all.iter()) {
                role.object["rules"] = rules;
            }
        }
    }
}

/// The rules an aggregated ClusterRole should have, in the order of the names of the roles it takes from; nothing for a plain role.
pub fn aggregate<'a>(role: &Value, all: impl Iterator<Item = &'a Value>) -> Option<Value> {
    let selectors = role.pointer("/aggregationRule/clusterRoleSelectors")?.as_array()?;
    let own = text(role, &["metadata", "name"]);
    let none = Map::new();
    let mut sources: Vec<&Value> = all
        .filter(|other| text(other, &["metadata", "name"]) != own)
        .filter(|other| {
            let labels = other.pointer("/metadata/labels").and_then(Value::as_object).unwrap_or(&none);
            selectors.iter().any(|selector| selects(selector, labels))
        })
        .collect();
    sources.sort_by_key(|source| text(source, &["metadata", "name"]));
    let mut rules: Vec<Value> = Vec::new();
    for rule in sources.iter().filter_map(|source| source["rules"].as_array()).flatten() {
        if !rules.contains(rule) {
            rules.push(rule.clone());
        }
    }
    Some(Value::Array(rules))
}

/// Whether a label selector object selects labels. A selector without any term selects everything.
pub(crate) fn selects(selector: &Value, labels: &Map<String, Value>) -> bool {
    let value = |key: &str| labels.get(key).and_then(Value::as_str);
    let equal = selector
        .get("matchLabels")
        .and_then(Value::as_object)
        .is_none_or(|wanted| wanted.iter().all(|(key, wanted)| value(key) == wanted.as_str()));
    let terms = selector.get("matchExpressions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    equal
        && terms.iter().all(|term| {
            let found = value(text(term, &["key"]));
            let listed = |found: &str| super::strings(term, &["values"]).iter().any(|wanted| wanted == found);
            match text(term, &["operator"]) {
                "In" => found.is_some_and(listed),
                "NotIn" => !found.is_some_and(listed),
                "Exists" => found.is_some(),
                "DoesNotExist" => found.is_none(),
                _ => false,
            }
        })
}
