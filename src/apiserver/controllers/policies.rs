//! Type check of ValidatingAdmissionPolicies: what of their expressions cannot fit the kinds they match, told in their status.

use schema::cel::{Types, metadata};
use schema::{Kind as Known, catalog};
use serde_json::{Value, json};

use super::kinds::{CUSTOM_RESOURCE_DEFINITION, VALIDATING_POLICY};
use super::{Call, Change, Controller, Key, Turn, World};
use crate::auth::{at, strings, text};

/// Kinds that one rule is checked against at most.
const MOST: usize = 10;

/// Checks policies once for each generation.
#[derive(Debug, Default)]
pub struct Policies;

impl Controller for Policies {
    fn name(&self) -> &'static str {
        "validatingadmissionpolicy-status"
    }

    fn concerns(&self, change: &Change, _: &World<'_>, wake: &mut Vec<Key>) {
        if change.key.is(&VALIDATING_POLICY) && !change.deleted {
            wake.push(change.key.clone());
        }
    }

    fn decide(&self, key: &Key, world: &World<'_>) -> Turn {
        let mut turn = Turn::default();
        let Some(policy) = world.at(key) else { return turn };
        let number = |path: &[&str]| at(&policy, path).and_then(Value::as_i64).unwrap_or(0);
        let generation = number(&["metadata", "generation"]);
        if generation <= number(&["status", "observedGeneration"]) {
            return turn;
        }
        let warnings = warnings(&policy, world);
        let checked = if warnings.is_empty() { json!({}) } else { json!({"expressionWarnings": warnings}) };
        let mut status = policy.get("status").cloned().filter(Value::is_object).unwrap_or_else(|| json!({}));
        status["observedGeneration"] = json!(generation);
        status["typeChecking"] = checked;
        turn.call(Call::status(&VALIDATING_POLICY, &policy, status));
        turn
    }
}

/// A kind by its resource or by its name: built in, or defined by a custom resource definition.
fn known(world: &World<'_>, group: &str, version: &str, fits: impl Fn(&str, &str) -> bool) -> Option<(String, Known)> {
    let native = catalog::resources().iter().find(|r| r.group == group && r.version == version && r.stored() && fits(r.plural, r.kind));
    if let Some(native) = native {
        return Known::native(native).map(|kind| (native.kind.to_owned(), kind));
    }
    world.all(&CUSTOM_RESOURCE_DEFINITION).into_iter().find_map(|crd| {
        let kind = text(&crd, &["spec", "names", "kind"]);
        if text(&crd, &["spec", "group"]) != group || !fits(text(&crd, &["spec", "names", "plural"]), kind) {
            return None;
        }
        Known::custom(&crd, version).ok().map(|known| (kind.to_owned(), known))
    })
}

fn list<'a>(object: &'a Value, path: &[&str]) -> &'a [Value] {
    at(object, path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The kinds that the rules name; rules with wildcards name none.
fn matched(policy: &Value, world: &World<'_>) -> Vec<(String, Known)> {
    let mut found: Vec<((String, String, String), Known)> = Vec::new();
    for rule in list(policy, &["spec", "matchConstraints", "resourceRules"]) {
        let (mut groups, mut versions, mut resources) = (strings(rule, &["apiGroups"]), strings(rule, &["apiVersions"]), strings(rule, &["resources"]));
        if groups.iter().chain(&versions).any(|name| name.contains('*')) {
            continue;
        }
        resources.retain(|name| !name.contains(['*', '/']));
        groups.sort();
        versions.sort();
        resources.sort();
        let names = groups.iter().flat_map(|g| versions.iter().map(move |v| (g, v))).flat_map(|(g, v)| resources.iter().map(move |r| (g, v, r)));
        let kinds = names.filter_map(|(group, version, resource)| {
            let (kind, known) = known(world, group, version, |plural, _| plural == resource)?;
            Some(((group.clone(), version.clone(), kind), known))
        });
        for (name, known) in kinds.take(MOST) {
            if !found.iter().any(|(other, _)| *other == name) {
                found.push((name, known));
            }
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found.into_iter().map(|((group, version, kind), known)| (format!("{group}/{version}, Kind={kind}"), known)).collect()
}

/// What the check finds, in the order of the expressions.
fn warnings(policy: &Value, world: &World<'_>) -> Vec<Value> {
    let kinds = matched(policy, world);
    let parameters = at(policy, &["spec", "paramKind"]).map(|wanted| {
        let (group, version) = crate::resource::split_api_version(text(wanted, &["apiVersion"]));
        let name = text(wanted, &["kind"]);
        known(world, group, version, |_, kind| kind == name).map(|(_, known)| known)
    });
    let metadata = metadata();
    let scopes: Vec<(&str, Types<'_>)> = kinds
        .iter()
        .map(|(name, kind)| {
            let mut types = Types::new(kind, parameters.as_ref().map(Option::as_ref), &metadata);
            for variable in list(policy, &["spec", "variables"]) {
                types.variable(text(variable, &["name"]), text(variable, &["expression"]));
            }
            (name.as_str(), types)
        })
        .collect();
    let mut out = Vec::new();
    for (n, validation) in list(policy, &["spec", "validations"]).iter().enumerate() {
        for field in ["expression", "messageExpression"] {
            let expression = text(validation, &[field]);
            if expression.is_empty() && field == "messageExpression" {
                continue;
            }
            let faults: Vec<String> = scopes.iter().filter_map(|(name, types)| types.check(expression).err().map(|fault| format!("{name}: {fault}\n"))).collect();
            if !faults.is_empty() {
                out.push(json!({"fieldRef": format!("spec.validations[{n}].{field}"), "warning": faults.join("\n")}));
            }
        }
    }
    out
}
