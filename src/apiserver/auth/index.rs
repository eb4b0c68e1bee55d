//! The RBAC authorizer: roles and bindings indexed by subject, so that a check costs microseconds however many bindings exist.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::RwLock;
use serde_json::Value;

use super::{quoted, text, Attributes, Decision, Identity, Objects, Rule};

/// The API group of roles and bindings.
pub(crate) const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
const RBAC_RESOURCES: [&str; 4] = ["clusterroles", "clusterrolebindings", "roles", "rolebindings"];

/// Answers whether an identity may do something, from the roles and bindings it has been told of.
#[derive(Debug, Default)]
pub struct Authorizer {
    index: RwLock<Index>,
    open: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    User(String),
    Group(String),
}

#[derive(Debug)]
struct Binding {
    role_kind: String,
    role_name: String,
    /// Each subject with the words that describe it.
    subjects: Vec<(Subject, String)>,
}

/// Bindings of one scope.
#[derive(Debug, Default)]
struct Scope {
    bindings: BTreeMap<String, Binding>,
    by_subject: BTreeMap<Subject, BTreeSet<String>>,
}

#[derive(Debug, Default)]
struct Index {
    cluster_roles: BTreeMap<String, Arc<[Rule]>>,
    roles: BTreeMap<(String, String), Arc<[Rule]>>,
    cluster: Scope,
    /// Role bindings by namespace.
    namespaces: BTreeMap<String, Scope>,
}

impl Scope {
    fn remove(&mut self, name: &str) {
        let Some(binding) = self.bindings.remove(name) else { return };
        for (subject, _) in binding.subjects {
            if let Some(names) = self.by_subject.get_mut(&subject) {
                names.remove(name);
                if names.is_empty() {
                    self.by_subject.remove(&subject);
                }
            }
        }
    }

    fn put(&mut self, name: &str, binding: Binding) {
        self.remove(name);
        for (subject, _) in &binding.subjects {
            self.by_subject.entry(subject.clone()).or_default().insert(name.to_owned());
        }
        self.bindings.insert(name.to_owned(), binding);
    }

    /// The bindings that name one of the subjects, each with the words for the subject that matched, in name order.
    fn applying<'a>(&'a self, subjects: &[Subject]) -> Vec<(&'a str, &'a Binding, &'a str)> {
        let names: BTreeSet<&String> = subjects.iter().filter_map(|s| self.by_subject.get(s)).flatten().collect();
        names
            .into_iter()
            .filter_map(|name| {
                let binding = self.bindings.get(name)?;
                let (_, words) = binding.subjects.iter().find(|(subject, _)| subjects.contains(subject))?;
                Some((name.as_str(), binding, words.as_str()))
            })
            .collect()
    }
}

fn read_binding(object: &Value, namespace: &str) -> Binding {
    let subjects = object.get("subjects").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let subjects = subjects
        .iter()
        .filter_map(|subject| {
            let (kind, name) = (text(subject, &["kind"]), text(subject, &["name"]));
            match kind {
                "User" => Some((Subject::User(name.into()), format!("User {}", quoted(name)))),
                "Group" => Some((Subject::Group(name.into()), format!("Group {}", quoted(name)))),
                "ServiceAccount" => {
                    let own = text(subject, &["namespace"]);
                    let of = if own.is_empty() { namespace } else { own };
                    (!of.is_empty()).then(|| {
                        let user = format!("system:serviceaccount:{of}:{name}");
                        (Subject::User(user), format!("ServiceAccount {}", quoted(&format!("{name}/{of}"))))
                    })
                }
                _ => None,
            }
        })
        .collect();
    Binding {
        role_kind: text(object, &["roleRef", "kind"]).into(),
        role_name: text(object, &["roleRef", "name"]).into(),
        subjects,
    }
}

impl Index {
    fn rules(&self, kind: &str, name: &str, namespace: &str) -> Result<Arc<[Rule]>, String> {
        let (found, word) = match kind {
            "Role" => (self.roles.get(&(namespace.to_owned(), name.to_owned())), "role"),
            "ClusterRole" => (self.cluster_roles.get(name), "clusterrole"),
            other => return Err(format!("unsupported role reference kind: {}", quoted(other))),
        };
        found.cloned().ok_or_else(|| format!("{word}.{RBAC_GROUP} {} not found", quoted(name)))
    }

    /// Calls `visit` with every rule that applies and the source of it, or with what could not be resolved, until it returns false.
    fn visit(&self, who: &Identity, namespace: &str, visit: &mut dyn FnMut(Result<(&Rule, &dyn Fn() -> String), String>) -> bool) {
        let mut subjects = vec![Subject::User(who.user.clone())];
        subjects.extend(who.groups.iter().cloned().map(Subject::Group));
        let local = (!namespace.is_empty()).then(|| self.namespaces.get(namespace)).flatten();
        for (scope, local) in std::iter::once((&self.cluster, false)).chain(local.map(|scope| (scope, true))) {
            for (name, binding, subject) in scope.applying(&subjects) {
                match self.rules(&binding.role_kind, &binding.role_name, namespace) {
                    Err(error) => {
                        if !visit(Err(error)) {
                            return;
                        }
                    }
                    Ok(rules) => {
                        let source = || {
                            let (kind, shown) = if local {
                                ("RoleBinding", format!("{name}/{namespace}"))
                            } else {
                                ("ClusterRoleBinding", name.to_owned())
                            };
                            let role = quoted(&binding.role_name);
                            format!("{kind} {} of {} {role} to {subject}", quoted(&shown), binding.role_kind)
                        };
                        if !rules.iter().all(|rule| visit(Ok((rule, &source)))) {
                            return;
                        }
                    }
                }
            }
        }
    }
}

impl Authorizer {
    /// An authorizer that allows nothing but `system:masters` until it is told of roles and bindings.
    pub fn new() -> Self {
        Self::default()
    }

    /// An authorizer that allows everything, for servers that only their own process can reach.
    pub fn allow_all() -> Self {
        Self { open: true, ..Self::default() }
    }

    /// Whether an object of this resource belongs into the index.
    pub fn wants(group: &str, plural: &str) -> bool {
        group == RBAC_GROUP && RBAC_RESOURCES.contains(&plural)
    }

    /// Forgets everything and reads all roles and bindings.
    pub fn reset(&self, objects: &dyn Objects) {
        let fresh = Authorizer::new();
        for plural in RBAC_RESOURCES {
            for object in objects.list(RBAC_GROUP, plural, None) {
                fresh.put(plural, &object);
            }
        }
        *self.index.write() = fresh.index.into_inner();
    }

    /// Takes a new or changed role or binding; other resources are ignored.
    pub fn put(&self, plural: &str, object: &Value) {
        let (namespace, name) = (text(object, &["metadata", "namespace"]), text(object, &["metadata", "name"]));
        let mut index = self.index.write();
        match plural {
            "clusterroles" => {
                index.cluster_roles.insert(name.into(), Rule::list(object).into());
            }
            "roles" => {
                index.roles.insert((namespace.into(), name.into()), Rule::list(object).into());
            }
            "clusterrolebindings" => index.cluster.put(name, read_binding(object, "")),
            "rolebindings" => {
                index.namespaces.entry(namespace.into()).or_default().put(name, read_binding(object, namespace));
            }
            _ => {}
        }
    }

    /// Forgets a deleted role or binding.
    pub fn remove(&self, plural: &str, namespace: &str, name: &str) {
        let mut index = self.index.write();
        match plural {
            "clusterroles" => {
                index.cluster_roles.remove(name);
            }
            "roles" => {
                index.roles.remove(&(namespace.to_owned(), name.to_owned()));
            }
            "clusterrolebindings" => index.cluster.remove(name),
            "rolebindings" => {
                if let Some(scope) = index.namespaces.get_mut(namespace) {
                    scope.remove(name);
                    if scope.bindings.is_empty() {
                        index.namespaces.remove(namespace);
                    }
                }
            }
            _ => {}
        }
    }

    /// Whether `who` may do what is asked.
    pub fn allowed(&self, who: &Identity, asked: &Attributes) -> Decision {
        if self.open || who.is_master() {
            return Decision { allow: true, reason: String::new() };
        }
        let mut decision = Decision::default();
        let mut errors: Vec<String> = Vec::new();
        self.index.read().visit(who, &asked.namespace, &mut |seen| match seen {
            Ok((rule, source)) if rule.allows(asked) => {
                decision = Decision { allow: true, reason: format!("RBAC: allowed by {}", source()) };
                false
            }
            Ok(_) => true,
            Err(error) => {
                if !errors.contains(&error) {
                    errors.push(error);
                }
                true
            }
        });
        if !decision.allow && !errors.is_empty() {
            let joined = errors.join(", ");
            decision.reason = if errors.len() == 1 { format!("RBAC: {joined}") } else { format!("RBAC: [{joined}]") };
        }
        decision
    }

    /// Every rule that applies to `who` in a namespace, and what could not be resolved.
    pub fn rules_for(&self, who: &Identity, namespace: &str) -> (Vec<Rule>, Vec<String>) {
        let (mut rules, mut errors) = (Vec::new(), Vec::new());
        if self.open || who.is_master() {
            rules.push(Rule {
                api_groups: vec!["*".into()],
                resources: vec!["*".into()],
                verbs: vec!["*".into()],
                ..Rule::default()
            });
            rules.push(Rule { non_resource_urls: vec!["*".into()], verbs: vec!["*".into()], ..Rule::default() });
        }
        self.index.read().visit(who, namespace, &mut |seen| {
            match seen {
                Ok((rule, _)) => rules.push(rule.clone()),
                Err(error) => errors.push(error),
            }
            true
        });
        (rules, errors)
    }

    /// The rules a role reference stands for.
    ///
    /// # Errors
    /// The role does not exist (Kubernetes' words), or the kind is unknown.
    pub fn role_rules(&self, kind: &str, name: &str, namespace: &str) -> Result<Vec<Rule>, String> {
        self.index.read().rules(kind, name, namespace).map(|rules| rules.to_vec())
    }
}
