//! RBAC policy rules: reading, matching, covering, and their short form in messages.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{quoted_list, strings, Attributes};

/// One policy rule of a Role or ClusterRole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// API groups, `*` for all.
    pub api_groups: Vec<String>,
    /// Resources (`pods`, `pods/log`, `*/scale`, `*`).
    pub resources: Vec<String>,
    /// Paths outside the resource API, a trailing `*` matches any rest.
    pub non_resource_urls: Vec<String>,
    /// Names; empty means any.
    pub resource_names: Vec<String>,
    /// Verbs, `*` for all.
    pub verbs: Vec<String>,
}

const ALL: &str = "*";

fn has(set: &[String], wanted: &str) -> bool {
    set.iter().any(|item| item == wanted)
}

fn has_all(set: &[String], wanted: &[String]) -> bool {
    wanted.iter().all(|item| has(set, item))
}

fn path_matches(rule: &str, path: &str) -> bool {
    rule == path || (rule.ends_with(ALL) && path.starts_with(rule.trim_end_matches('*')))
}

impl Rule {
    /// The rules of a Role or ClusterRole object.
    pub fn list(role: &Value) -> Vec<Self> {
        role.get("rules").and_then(Value::as_array).map(|rules| rules.iter().map(Self::read).collect()).unwrap_or_default()
    }

    fn read(rule: &Value) -> Self {
        Self {
            api_groups: strings(rule, &["apiGroups"]),
            resources: strings(rule, &["resources"]),
            non_resource_urls: strings(rule, &["nonResourceURLs"]),
            resource_names: strings(rule, &["resourceNames"]),
            verbs: strings(rule, &["verbs"]),
        }
    }

    /// Whether this rule allows what is asked.
    pub fn allows(&self, asked: &Attributes) -> bool {
        if !(has(&self.verbs, ALL) || has(&self.verbs, &asked.verb)) {
            return false;
        }
        if !asked.is_resource() {
            return self.non_resource_urls.iter().any(|rule| path_matches(rule, &asked.path));
        }
        (has(&self.api_groups, ALL) || has(&self.api_groups, &asked.group))
            && self.resources.iter().any(|rule| resource_matches(rule, asked))
            && (self.resource_names.is_empty() || has(&self.resource_names, &asked.name))
    }

    /// Breaks the rule into pieces of one group, resource, name and verb each.
    fn pieces(&self) -> Vec<Rule> {
        let mut out = Vec::new();
        for group in &self.api_groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    let piece = |names: Vec<String>| Rule {
                        api_groups: vec![group.clone()],
                        resources: vec![resource.clone()],
                        resource_names: names,
                        verbs: vec![verb.clone()],
                        ..Rule::default()
                    };
                    if self.resource_names.is_empty() {
                        out.push(piece(Vec::new()));
                    } else {
                        out.extend(self.resource_names.iter().map(|name| piece(vec![name.clone()])));
                    }
                }
            }
        }
        for url in &self.non_resource_urls {
            for verb in &self.verbs {
                out.push(Rule { non_resource_urls: vec![url.clone()], verbs: vec![verb.clone()], ..Rule::default() });
            }
        }
        out
    }

    /// Whether this rule grants all of one piece.
    fn covers(&self, piece: &Rule) -> bool {
        let resource = |wanted: &String| {
            has(&self.resources, ALL)
                || has(&self.resources, wanted)
                || wanted.split_once('/').is_some_and(|(_, sub)| has(&self.resources, &format!("*/{sub}")))
        };
        (has(&self.verbs, ALL) || has_all(&self.verbs, &piece.verbs))
            && (has(&self.api_groups, ALL) || has_all(&self.api_groups, &piece.api_groups))
            && piece.resources.iter().all(resource)
            && piece.non_resource_urls.iter().all(|url| self.non_resource_urls.iter().any(|rule| path_matches(rule, url)))
            && (self.resource_names.is_empty()
                || (!piece.resource_names.is_empty() && has_all(&self.resource_names, &piece.resource_names)))
    }

    /// The form in which escalation messages name a rule.
    pub(crate) fn compact(&self) -> String {
        let parts: Vec<String> = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ]
        .into_iter()
        .filter(|(_, items)| !items.is_empty())
        .map(|(name, items)| format!("{name}:{}", quoted_list(items)))
        .collect();
        format!("{{{}}}", parts.join(", "))
    }
}

fn resource_matches(rule: &str, asked: &Attributes) -> bool {
    if rule == ALL {
        return true;
    }
    if asked.subresource.is_empty() {
        return rule == asked.resource;
    }
    match rule.split_once('/') {
        Some((resource, sub)) => sub == asked.subresource && (resource == ALL || resource == asked.resource),
        None => false,
    }
}

/// What of `wanted` the rules `held` do not grant, joined into one rule per resource and sorted as messages list them.
pub(crate) fn missing(held: &[Rule], wanted: &[Rule]) -> Vec<String> {
    let mut simple: BTreeMap<(String, String, Option<String>), Rule> = BTreeMap::new();
    let mut lines = std::collections::BTreeSet::new();
    for piece in wanted.iter().flat_map(Rule::pieces) {
        if held.iter().any(|rule| rule.covers(&piece)) {
            continue;
        }
        match (piece.api_groups.first(), piece.resources.first()) {
            (Some(group), Some(resource)) => {
                let key = (group.clone(), resource.clone(), piece.resource_names.first().cloned());
                simple
                    .entry(key)
                    .and_modify(|rule| rule.verbs.extend(piece.verbs.iter().cloned()))
                    .or_insert_with(|| piece.clone());
            }
            _ => {
                lines.insert(piece.compact());
            }
        }
    }
    lines.extend(simple.values().map(Rule::compact));
    lines.into_iter().collect()
}
