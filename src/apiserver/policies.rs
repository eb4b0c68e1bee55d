//! Admission policies: ValidatingAdmissionPolicy and MutatingAdmissionPolicy with their bindings, in CEL.

use std::sync::Arc;

use http::StatusCode;
use schema::cel::{self, Program, Val, Variables};
use serde_json::{Map, Value, json};

use crate::admission::{Admission, Operation, Request};
use crate::object::{at, text};
use crate::resource::{Resource, split_api_version};
use crate::selector::Labels;
use crate::status::{ApiError, Cause};
use crate::subresource::selector_text;

const GROUP: &str = "admissionregistration.k8s.io";
/// Rounds of mutation: a policy that asks for it sees the changes of others once more.
const ROUNDS: usize = 2;

/// The step of admission that runs all policies.
#[derive(Debug)]
pub(crate) struct Policies;

impl Admission for Policies {
    fn mutate(&self, request: &Request<'_>, object: &mut Value) -> Result<(), ApiError> {
        let bindings = bindings(request, "mutating");
        if bindings.is_empty() || request.operation == Operation::Delete {
            return Ok(());
        }
        let before = object.clone();
        for round in 0..ROUNDS {
            let mut changed = false;
            for (binding, policy) in &bindings {
                if round > 0 && text(policy, &["spec", "reinvocationPolicy"]) != "IfNeeded" {
                    continue;
                }
                for params in matching(request, binding, policy, object)? {
                    if let Some(new) = mutated(request, policy, &params, object).or_else(|why| failure(request, policy, binding, &why, "MutatingAdmissionPolicy").map(|()| None))? {
                        changed |= new != *object;
                        *object = new;
                    }
                }
            }
            if !changed {
                break;
            }
        }
        if *object != before && text(object, &["metadata", "name"]) != text(&before, &["metadata", "name"]) {
            return Err(ApiError::internal("an admission policy must not rename objects"));
        }
        Ok(())
    }

    fn validate(&self, request: &Request<'_>, object: &Value) -> Result<Vec<String>, ApiError> {
        let mut warnings = Vec::new();
        let object = if request.operation == Operation::Delete { &Value::Null } else { object };
        for (binding, policy) in bindings(request, "validating") {
            for params in matching(request, &binding, &policy, object)? {
                let refusals = match validated(request, &policy, &params, object) {
                    Ok(refusals) => refusals,
                    Err(why) => {
                        failure(request, &policy, &binding, &why, "ValidatingAdmissionPolicy")?;
                        continue;
                    }
                };
                for (message, reason) in refusals {
                    let actions: Vec<&str> = list(&binding, &["spec", "validationActions"]).iter().filter_map(Value::as_str).collect();
                    let who = format!("ValidatingAdmissionPolicy '{}' with binding '{}'", text(&policy, &["metadata", "name"]), text(&binding, &["metadata", "name"]));
                    if actions.contains(&"Deny") {
                        return Err(denied(request, &format!("{who} denied request: {message}"), &reason));
                    }
                    if actions.contains(&"Warn") {
                        warnings.push(format!("Validation failed for {who}: {message}"));
                    }
                }
            }
        }
        Ok(warnings)
    }
}

fn list<'a>(object: &'a Value, path: &[&str]) -> &'a [Value] {
    at(object, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// All bindings of a kind with their policies; policies about policies do not exist, nor about reviews.
fn bindings(request: &Request<'_>, kind: &str) -> Vec<(Value, Value)> {
    let table = format!("{GROUP}/{kind}admissionpolicybindings");
    if request.core.store.count(&table) == 0 || (request.resource.group == GROUP && request.resource.plural.contains("admissionpolic")) {
        return Vec::new();
    }
    if request.resource.native.is_some_and(|n| !n.stored()) {
        return Vec::new();
    }
    let mut entries = Vec::new();
    request.core.store.scan(&table, "", &mut |entry| entries.push(entry.clone()));
    let policies = format!("{GROUP}/{kind}admissionpolicies");
    entries
        .iter()
        .filter_map(|entry| {
            let binding = crate::object::decode(&entry.value);
            let policy = request.core.read_native(&policies, text(&binding, &["spec", "policyName"]))?;
            Some((binding, policy))
        })
        .collect()
}

fn denied(request: &Request<'_>, message: &str, reason: &str) -> ApiError {
    let mut error = ApiError::forbidden(&request.resource.group, &request.resource.plural, request.name, message);
    let (reason, code) = match reason {
        "Unauthorized" => ("Unauthorized", StatusCode::UNAUTHORIZED),
        "Forbidden" => ("Forbidden", StatusCode::FORBIDDEN),
        "RequestEntityTooLarge" => ("RequestEntityTooLarge", StatusCode::PAYLOAD_TOO_LARGE),
        _ => ("Invalid", StatusCode::UNPROCESSABLE_ENTITY),
    };
    error.reason = reason;
    error.code = code;
    error.causes = vec![Cause { reason: String::new(), message: message.to_owned(), field: String::new() }];
    error
}

/// A policy that cannot be run: refused, unless the policy says otherwise.
fn failure(request: &Request<'_>, policy: &Value, binding: &Value, why: &str, kind: &str) -> Result<(), ApiError> {
    if text(policy, &["spec", "failurePolicy"]) == "Ignore" {
        return Ok(());
    }
    let names = (text(policy, &["metadata", "name"]), text(binding, &["metadata", "name"]));
    Err(denied(request, &format!("{kind} '{}' with binding '{}' denied request: {why}", names.0, names.1), "Invalid"))
}

/// The parameters a binding is to be run with; none when it does not match.
fn matching(request: &Request<'_>, binding: &Value, policy: &Value, object: &Value) -> Result<Vec<Value>, ApiError> {
    let constraints = at(policy, &["spec", "matchConstraints"]).cloned().unwrap_or_default();
    if !matches(request, &constraints, object, true) {
        return Ok(Vec::new());
    }
    if let Some(more) = at(binding, &["spec", "matchResources"]) && !matches(request, more, object, false) {
        return Ok(Vec::new());
    }
    let Some(kind) = at(policy, &["spec", "paramKind"]) else { return Ok(vec![Value::Null]) };
    let Some(reference) = at(binding, &["spec", "paramRef"]) else { return Ok(vec![Value::Null]) };
    let (group, version) = split_api_version(text(kind, &["apiVersion"]));
    let routes = request.core.routes.load();
    let missing = |why: String| -> Result<Vec<Value>, ApiError> {
        if text(reference, &["parameterNotFoundAction"]) == "Allow" { Ok(Vec::new()) } else { failure(request, policy, binding, &why, "ValidatingAdmissionPolicy").map(|()| Vec::new()) }
    };
    let Some(resource) = routes.by_kind(group, version, text(kind, &["kind"])) else {
        return missing(format!("failed to configure binding: failed to find resource referenced by paramKind: '{}, Kind={}'", text(kind, &["apiVersion"]), text(kind, &["kind"])));
    };
    let namespace = match text(reference, &["namespace"]) {
        "" => request.namespace,
        namespace => namespace,
    };
    let found: Vec<Value> = match text(reference, &["name"]) {
        "" => {
            let wanted = at(reference, &["selector"]).map(selector_text).unwrap_or_default();
            let Ok(wanted) = Labels::parse(&wanted) else { return Ok(Vec::new()) };
            let prefix = if resource.namespaced { format!("{namespace}/") } else { String::new() };
            let mut all = Vec::new();
            request.core.store.scan(&resource.table, &prefix, &mut |entry| {
                if crate::object::labelled(entry, &wanted) {
                    all.push(crate::object::decode(&entry.value));
                }
            });
            all
        }
        name => request.core.read(resource, namespace, name).into_iter().collect(),
    };
    if found.is_empty() {
        return missing("no params found for policy binding with `Deny` parameterNotFoundAction".into());
    }
    Ok(found)
}

fn one_of(rule: &Value, field: &str, wanted: &str) -> bool {
    list(rule, &[field]).iter().filter_map(Value::as_str).any(|v| v == "*" || v == wanted)
}

pub(crate) fn rule_fits(request: &Request<'_>, rule: &Value) -> bool {
    let operation = operation(request.operation);
    let (resource, sub) = (request.resource.plural.as_str(), request.subresource);
    let names = list(rule, &["resourceNames"]);
    let scope = text(rule, &["scope"]);
    one_of(rule, "operations", operation)
        && one_of(rule, "apiGroups", &request.resource.group)
        && one_of(rule, "apiVersions", &request.resource.version)
        && list(rule, &["resources"]).iter().filter_map(Value::as_str).any(|wanted| match wanted.split_once('/') {
            None => sub.is_empty() && (wanted == "*" || wanted == resource),
            Some((r, s)) => (r == "*" || r == resource) && (s == "*" || (s == sub && !sub.is_empty())),
        })
        && (names.is_empty() || names.iter().any(|n| n.as_str() == Some(request.name)))
        && match scope {
            "Namespaced" => request.resource.namespaced,
            "Cluster" => !request.resource.namespaced,
            _ => true,
        }
}

pub(crate) fn selected(selector: Option<&Value>, labels: Option<&Value>) -> bool {
    let Some(selector) = selector.filter(|s| s.as_object().is_some_and(|m| !m.is_empty())) else { return true };
    Labels::parse(&selector_text(selector)).is_ok_and(|wanted| wanted.matches(|key| labels.and_then(|l| l.get(key)).and_then(Value::as_str)))
}

fn matches(request: &Request<'_>, constraints: &Value, object: &Value, rules_needed: bool) -> bool {
    let rules = list(constraints, &["resourceRules"]);
    if list(constraints, &["excludeResourceRules"]).iter().any(|r| rule_fits(request, r)) {
        return false;
    }
    if !(rules.iter().any(|r| rule_fits(request, r)) || (rules.is_empty() && !rules_needed)) {
        return false;
    }
    let namespace = namespace_of(request, object);
    if !namespace.is_null() && !selected(constraints.get("namespaceSelector"), at(&namespace, &["metadata", "labels"])) {
        return false;
    }
    let wanted = constraints.get("objectSelector");
    let fits = |o: &Value| selected(wanted, at(o, &["metadata", "labels"]));
    fits(object) || request.old.is_some_and(fits)
}

pub(crate) fn namespace_of(request: &Request<'_>, object: &Value) -> Value {
    if request.resource.is("", "namespaces") {
        return object.clone();
    }
    if request.namespace.is_empty() { Value::Null } else { request.core.read_native("/namespaces", request.namespace).unwrap_or_default() }
}

fn operation(operation: Operation) -> &'static str {
    match operation {
        Operation::Create => "CREATE",
        Operation::Update => "UPDATE",
        Operation::Delete => "DELETE",
    }
}

/// What expressions see.
pub(crate) struct Scope {
    fixed: Map<String, Value>,
    variables: Map<String, Value>,
}

impl Scope {
    pub(crate) fn new(request: &Request<'_>, params: &Value, object: &Value) -> Self {
        let resource: &Resource = request.resource;
        let kind = json!({"group": resource.group, "version": resource.version, "kind": resource.kind});
        let plural = json!({"group": resource.group, "version": resource.version, "resource": resource.plural});
        let asked = json!({
            "kind": kind, "resource": plural, "requestKind": kind, "requestResource": plural, "subResource": request.subresource, "requestSubResource": request.subresource,
            "name": request.name, "namespace": request.namespace, "operation": operation(request.operation), "userInfo": request.who.to_user_info(), "dryRun": request.dry_run,
        });
        let mut fixed = Map::new();
        fixed.insert("object".into(), object.clone());
        fixed.insert("oldObject".into(), request.old.cloned().unwrap_or_default());
        fixed.insert("request".into(), asked);
        fixed.insert("params".into(), params.clone());
        fixed.insert("namespaceObject".into(), namespace_of(request, object));
        Self { fixed, variables: Map::new() }
    }

    fn eval(&self, source: &str) -> Result<Value, String> {
        let program = Program::parse(source).map_err(|e| e.to_string())?;
        let variables = Value::Object(self.variables.clone());
        let mut scope: Variables<'_> = self.fixed.iter().map(|(name, value)| (name.clone(), cel::json(value))).collect();
        scope.insert("variables".into(), cel::json(&variables));
        let (result, _) = program.eval(&scope, cel::RUNTIME_BUDGET);
        match result {
            Ok(Val::Optional(None)) => Ok(Value::Null),
            Ok(value) => Ok(value.to_json()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Works out the policy's variables and says whether its conditions hold.
    pub(crate) fn prepare(&mut self, policy: &Value) -> Result<bool, String> {
        for condition in list(policy, &["spec", "matchConditions"]) {
            let source = text(condition, &["expression"]);
            match self.eval(source) {
                Ok(Value::Bool(true)) => {}
                Ok(_) => return Ok(false),
                Err(why) => return Err(format!("matchCondition '{}' resulted in error: {why}", text(condition, &["name"]))),
            }
        }
        for variable in list(policy, &["spec", "variables"]) {
            // A variable that fails matters only to those who use it: they find it missing.
            if let Ok(value) = self.eval(text(variable, &["expression"])) {
                self.variables.insert(text(variable, &["name"]).to_owned(), value);
            }
        }
        Ok(true)
    }
}

/// Message and reason of each validation that does not hold.
fn validated(request: &Request<'_>, policy: &Value, params: &Value, object: &Value) -> Result<Vec<(String, String)>, String> {
    let mut scope = Scope::new(request, params, object);
    if !scope.prepare(policy)? {
        return Ok(Vec::new());
    }
    let mut out = Vec::new();
    for validation in list(policy, &["spec", "validations"]) {
        let source = text(validation, &["expression"]);
        match scope.eval(source) {
            Ok(Value::Bool(true)) => {}
            Ok(_) => {
                let made = match text(validation, &["messageExpression"]) {
                    "" => None,
                    expression => scope.eval(expression).ok().and_then(|v| v.as_str().map(str::to_owned)).filter(|m| !m.trim().is_empty()),
                };
                let message = made.unwrap_or_else(|| match text(validation, &["message"]) {
                    "" => format!("failed expression: {}", source.trim()),
                    message => message.trim().to_owned(),
                });
                out.push((message, text(validation, &["reason"]).to_owned()));
            }
            Err(why) => return Err(format!("expression '{source}' resulted in error: {why}")),
        }
    }
    Ok(out)
}

/// The object after a policy's mutations; none when its conditions do not hold.
fn mutated(request: &Request<'_>, policy: &Value, params: &Value, object: &Value) -> Result<Option<Value>, String> {
    let mut current = object.clone();
    for (n, mutation) in list(policy, &["spec", "mutations"]).iter().enumerate() {
        let mut scope = Scope::new(request, params, &current);
        if n == 0 && !scope.prepare(policy)? {
            return Ok(None);
        }
        if n > 0 {
            scope.prepare(policy)?;
        }
        match text(mutation, &["patchType"]) {
            "JSONPatch" => {
                let patch = scope.eval(text(mutation, &["jsonPatch", "expression"]))?;
                let operations = manifest::patch::parse(&patch).map_err(|e| e.to_string())?;
                manifest::patch::apply_in_place(&mut current, &operations).map_err(|e| e.to_string())?;
            }
            _ => {
                let applied = scope.eval(text(mutation, &["applyConfiguration", "expression"]))?;
                let Some(kind) = request.resource.schema() else { return Err("the kind has no schema".into()) };
                current = schema::fields::merge(&current, &applied, kind.shape().root()).map_err(|faults| faults.join(", "))?;
            }
        }
    }
    if let Some(kind) = request.resource.schema() {
        kind.default(&mut current);
    }
    Ok(Some(current))
}

/// The step, as servers hang it in.
pub(crate) fn step() -> Arc<dyn Admission> {
    Arc::new(Policies)
}
