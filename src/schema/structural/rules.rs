//! CEL rules (`x-kubernetes-validations`) of a schema: checked when the CRD is written, run when objects are.

use super::parse::{Additional, RuleText, Schema};
use super::validate::partners;
use crate::cel::check::{Typed, check, of_schema};
use crate::cel::{EvalError, PER_CALL_LIMIT, Program, RUNTIME_BUDGET, Val, Variables, of_json};
use crate::fault::{Fault, FaultKind, Path};
use crate::fields::equal;
use serde_json::Value;
use std::collections::BTreeMap;

/// Most a rule may cost by estimate, and all rules of a schema together.
const RULE_LIMIT: u64 = 10_000_000;
const SCHEMA_LIMIT: u64 = 100_000_000;

#[derive(Debug)]
struct Rule {
    text: RuleText,
    program: Option<Program>,
    message: Option<Program>,
    transition: bool,
}

/// Compiled rules, by the address of their schema in the tree.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    at: BTreeMap<String, Vec<Rule>>,
}

fn uses_old(source: &str) -> bool {
    let b = source.as_bytes();
    source.match_indices("oldSelf").any(|(i, _)| {
        let before = i.checked_sub(1).and_then(|j| b.get(j)).is_some_and(|c| c.is_ascii_alphanumeric() || *c == b'_' || *c == b'.');
        let after = b.get(i + 7).is_some_and(|c| c.is_ascii_alphanumeric() || *c == b'_');
        !before && !after
    })
}

impl Rules {
    pub(crate) fn compile(root: &Schema) -> Self {
        let mut r = Self::default();
        r.collect(root, "");
        r
    }

    fn collect(&mut self, s: &Schema, at: &str) {
        if !s.rules.is_empty() {
            let list = s
                .rules
                .iter()
                .map(|t| Rule {
                    program: Program::parse(&t.rule).ok(),
                    message: if t.message_expression.is_empty() { None } else { Program::parse(&t.message_expression).ok() },
                    transition: uses_old(&t.rule),
                    text: t.clone(),
                })
                .collect();
            self.at.insert(at.to_owned(), list);
        }
        for (k, p) in &s.properties {
            self.collect(p, &format!("{at}/p:{k}"));
        }
        if let Some(i) = &s.items {
            self.collect(i, &format!("{at}/i"));
        }
        if let Some(Additional::Schema(a)) = &s.additional {
            self.collect(a, &format!("{at}/a"));
        }
    }

    pub(crate) fn run(&self, object: &Value, old: Option<&Value>, root: &Schema, faults: &mut Vec<Fault>) {
        if self.at.is_empty() {
            return;
        }
        let mut turn = Turn { rules: self, left: RUNTIME_BUDGET, spent: false };
        turn.walk(object, old, root, "", &Path::root(), true, faults);
    }
}

struct Turn<'r> {
    rules: &'r Rules,
    left: u64,
    spent: bool,
}

impl Turn<'_> {
    #[allow(clippy::too_many_arguments)]
    fn walk(&mut self, v: &Value, old: Option<&Value>, s: &Schema, at: &str, path: &Path, known: bool, faults: &mut Vec<Fault>) {
        if self.spent || (v.is_null() && s.nullable) {
            return;
        }
        if let Some(list) = self.rules.at.get(at) {
            for r in list {
                self.one(r, v, old, s, path, known, faults);
                if self.spent {
                    return;
                }
            }
        }
        match v {
            Value::Object(o) => {
                let before = old.and_then(Value::as_object);
                for (k, x) in o {
                    let was = before.and_then(|b| b.get(k));
                    if let Some(p) = s.properties.get(k) {
                        self.walk(x, was, p, &format!("{at}/p:{k}"), &path.child(k), known, faults);
                    } else if let Some(Additional::Schema(p)) = &s.additional {
                        self.walk(x, was, p, &format!("{at}/a"), &path.key(k), known, faults);
                    }
                }
            }
            Value::Array(items) => {
                let Some(of) = s.items.as_deref() else { return };
                let correlated = s.list_type.as_deref() == Some("map");
                let old = partners(items, old, s);
                let at = format!("{at}/i");
                for (i, x) in items.iter().enumerate() {
                    self.walk(x, old.get(i).copied().flatten(), of, &at, &path.index(i), known && correlated, faults);
                }
            }
            _ => {}
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn one(&mut self, r: &Rule, v: &Value, old: Option<&Value>, s: &Schema, path: &Path, known: bool, faults: &mut Vec<Fault>) {
        let Some(program) = &r.program else { return };
        let optional = r.text.optional_old_self == Some(true);
        if r.transition && ((old.is_none() && !optional) || !known) {
            return;
        }
        let mut vars: Variables<'_> = BTreeMap::new();
        let value = |x| scalar_or_json(x, s);
        vars.insert("self".to_owned(), value(v));
        if r.transition {
            let o = match (old, optional) {
                (Some(o), false) => value(o),
                (Some(o), true) => Val::Optional(Some(std::sync::Arc::new(value(o)))),
                (None, _) => Val::Optional(None),
            };
            vars.insert("oldSelf".to_owned(), o);
        }
        let budget = self.left.min(PER_CALL_LIMIT);
        let (out, left) = program.eval(&vars, budget);
        self.left -= budget - left;
        let failed = match out {
            Ok(Val::Bool(true)) => return,
            Ok(Val::Bool(false)) => None,
            Ok(_) => Some("rule did not evaluate to a bool".to_owned()),
            Err(EvalError::Cost) => {
                self.spent = true;
                faults.push(fault(FaultKind::Invalid, path, shown(v), "call cost exceeds limit for rule: ".to_owned() + &rule_name(&r.text) + ", no further validation rules will be run due to call cost exceeds limit"));
                return;
            }
            Err(EvalError::Failed(m)) => Some(m),
        };
        // A rule without old value does not speak of what was there before.
        if !r.transition && old.is_some_and(|o| equal(o, v)) {
            return;
        }
        if let Some(m) = failed {
            let words = if m == "no such overload" {
                format!("'{}': call arguments did not match a supported operator, function or macro signature for rule: {}", "no such overload", rule_name(&r.text))
            } else {
                format!("{m} evaluating rule: {}", rule_name(&r.text))
            };
            faults.push(fault(FaultKind::Invalid, path, shown(v), words));
            return;
        }
        let words = self.message(r, &vars);
        let place = if r.text.field_path.is_empty() { path.clone() } else { joined(path, &r.text.field_path) };
        let shown = if r.text.field_path.is_empty() { shown(v) } else { None };
        let kind = match r.text.reason.as_str() {
            "FieldValueForbidden" => FaultKind::Forbidden,
            "FieldValueRequired" => FaultKind::Required,
            "FieldValueDuplicate" => FaultKind::Duplicate,
            _ => FaultKind::Invalid,
        };
        // "Duplicate value" has no words of its own.
        let words = if kind == FaultKind::Duplicate { String::new() } else { words };
        faults.push(fault(kind, &place, shown, words));
    }

    fn message(&mut self, r: &Rule, vars: &Variables<'_>) -> String {
        if let Some(p) = &r.message {
            let budget = self.left.min(PER_CALL_LIMIT);
            let (out, left) = p.eval(vars, budget);
            self.left -= budget - left;
            if let Ok(Val::String(s)) = out {
                let one_line = s.trim();
                if !one_line.is_empty() && !one_line.contains('\n') && one_line.len() <= 5120 {
                    return one_line.to_owned();
                }
            }
        }
        if r.text.message.is_empty() { format!("failed rule: {}", rule_name(&r.text)) } else { r.text.message.trim().to_owned() }
    }
}

fn scalar_or_json<'a>(v: &'a Value, s: &'a Schema) -> Val<'a> {
    of_json(v, Some(s))
}

fn rule_name(t: &RuleText) -> String {
    t.rule.trim().to_owned()
}

/// The value that a fault of a rule shows: a single one; Kubernetes keeps lists and objects out of the message.
fn shown(v: &Value) -> Option<Value> {
    (!v.is_object() && !v.is_array()).then(|| v.clone())
}

/// A fault of a rule.
fn fault(kind: FaultKind, path: &Path, value: Option<Value>, detail: impl Into<String>) -> Fault {
    Fault { value, ..Fault::new(kind, path, Value::Null, detail) }
}

/// A path followed by `.a.b` or `['c']`.
fn joined(path: &Path, field_path: &str) -> Path {
    steps(field_path).into_iter().fold(path.clone(), |p, (s, key)| if key { p.key(&s) } else { p.child(&s) })
}

fn steps(field_path: &str) -> Vec<(String, bool)> {
    let mut out = Vec::new();
    let mut rest = field_path;
    while !rest.is_empty() {
        if let Some(r) = rest.strip_prefix("['") {
            let Some((k, r)) = r.split_once("']") else { break };
            out.push((k.to_owned(), true));
            rest = r;
        } else {
            let r = rest.strip_prefix('.').unwrap_or(rest);
            let end = r.find(['.', '[']).unwrap_or(r.len());
            if end == 0 {
                break;
            }
            out.push((r[..end].to_owned(), false));
            rest = &r[end..];
        }
    }
    out
}

/// Faults of the rules themselves, as a CRD's validation reports them.
pub(crate) fn check_rules(root: &Schema, path: &Path) -> Vec<Fault> {
    let mut c = CheckAll { faults: Vec::new(), total: 0, costly: Vec::new() };
    c.texts(root, path);
    if !c.faults.is_empty() {
        // Rules are compiled only when they are well formed, all of them.
        return c.faults;
    }
    c.walk(root, path, 1, true, None);
    if c.total > SCHEMA_LIMIT {
        // The costliest ones, as far as they matter.
        for (p, _) in c.costly.iter().rev().filter(|(_, cost)| *cost > SCHEMA_LIMIT / 100).take(4) {
            c.faults.push(Fault::forbidden(p, "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"));
        }
        c.faults.push(Fault::forbidden(path, format!("x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor of {} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)", factor(c.total, SCHEMA_LIMIT))));
    }
    c.faults
}

fn factor(cost: u64, limit: u64) -> String {
    let f = cost as f64 / limit as f64;
    if f > 100.0 { "more than 100x".to_owned() } else { format!("{f:.1}x") }
}

struct CheckAll {
    faults: Vec<Fault>,
    total: u64,
    costly: Vec<(Path, u64)>,
}

impl CheckAll {
    /// What can be said of rules without compiling them.
    fn texts(&mut self, s: &Schema, path: &Path) {
        for (i, r) in s.rules.iter().enumerate() {
            let p = path.child("x-kubernetes-validations").index(i);
            if r.rule.trim().is_empty() {
                self.faults.push(Fault::required(&p.child("rule"), "rule is not specified"));
            }
            let reasons = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
            if !r.reason.is_empty() && !reasons.contains(&r.reason.as_str()) {
                self.faults.push(Fault::not_supported(&p.child("reason"), r.reason.as_str(), &reasons));
            }
            if r.message.trim().is_empty() && !r.message.is_empty() {
                self.faults.push(Fault::invalid(&p.child("message"), r.message.as_str(), "message must be non-empty if specified"));
            }
        }
        for (k, c) in &s.properties {
            self.texts(c, &path.child("properties").key(k));
        }
        if let Some(i) = &s.items {
            self.texts(i, &path.child("items"));
        }
        if let Some(Additional::Schema(a)) = &s.additional {
            self.texts(a, &path.child("additionalProperties"));
        }
    }

    /// `times` = how often a value of this schema can occur; `lost` = the list or map below which old values cannot be found.
    fn walk(&mut self, s: &Schema, path: &Path, times: u64, root: bool, lost: Option<&Path>) {
        for (i, r) in s.rules.iter().enumerate() {
            let p = path.child("x-kubernetes-validations").index(i);
            self.rule(r, s, &p, times, root, lost);
        }
        for (k, c) in &s.properties {
            self.walk(c, &path.child("properties").key(k), times, c.embedded, lost);
        }
        if let Some(i) = &s.items {
            let n = of_schema(s, false).size;
            let here = if s.list_type.as_deref() == Some("map") { lost } else { lost.or(Some(path)) };
            self.walk(i, &path.child("items"), times.saturating_mul(n), i.embedded, here);
        }
        if let Some(Additional::Schema(a)) = &s.additional {
            let n = of_schema(s, false).size;
            let here = if s.map_type.as_deref() == Some("atomic") { lost.or(Some(path)) } else { lost };
            self.walk(a, &path.child("additionalProperties"), times.saturating_mul(n), a.embedded, here);
        }
    }

    fn rule(&mut self, r: &RuleText, s: &Schema, p: &Path, times: u64, root: bool, lost: Option<&Path>) {
        let me = of_schema(s, root || s.embedded);
        let old = if r.optional_old_self == Some(true) { Typed { ty: crate::cel::check::Ty::Optional(Box::new(me.clone())), size: 1 } } else { me.clone() };
        let vars = vec![("self".to_owned(), me), ("oldSelf".to_owned(), old)];
        let transition = uses_old(&r.rule);
        if let (true, Some(at)) = (transition, lost) {
            self.faults.push(Fault::invalid(&p.child("rule"), r.rule.as_str(), format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {at}")));
        }
        if r.optional_old_self.is_some() && !transition {
            self.faults.push(Fault::invalid(&p.child("optionalOldSelf"), r.optional_old_self.unwrap_or_default(), "may not be set if oldSelf is not used in rule"));
        }
        match Program::parse(&r.rule) {
            Err(e) => self.faults.push(Fault::invalid(&p.child("rule"), r.rule.as_str(), e.to_string())),
            Ok(prog) => match check(&prog.expr, vars.clone()) {
                Err((at, m)) => self.faults.push(Fault::invalid(&p.child("rule"), r.rule.as_str(), crate::cel::CompileError::at(&r.rule, at, m).to_string())),
                Ok(c) => {
                    if !matches!(c.of.ty, crate::cel::check::Ty::Bool | crate::cel::check::Ty::Dyn) {
                        self.faults.push(Fault::invalid(&p.child("rule"), r.rule.as_str(), "cel expression must evaluate to a bool"));
                    }
                    let cost = c.cost.saturating_mul(times);
                    if cost > RULE_LIMIT {
                        self.faults.push(Fault::forbidden(&p.child("rule"), format!("estimated rule cost exceeds budget by factor of {} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)", factor(cost, RULE_LIMIT))));
                    }
                    self.total = self.total.saturating_add(cost);
                    self.costly.push((p.child("rule"), cost));
                    self.costly.sort_by_key(|(_, c)| *c);
                }
            },
        }
        if !r.message_expression.is_empty() {
            let at = p.child("messageExpression");
            match Program::parse(&r.message_expression) {
                Err(e) => self.faults.push(Fault::invalid(&at, r.message_expression.as_str(), format!("messageExpression {e}"))),
                Ok(prog) => match check(&prog.expr, vars) {
                    Err((i, m)) => self.faults.push(Fault::invalid(&at, r.message_expression.as_str(), format!("messageExpression {}", crate::cel::CompileError::at(&r.message_expression, i, m)))),
                    Ok(c) if !matches!(c.of.ty, crate::cel::check::Ty::String | crate::cel::check::Ty::Dyn) => {
                        self.faults.push(Fault::invalid(&at, r.message_expression.as_str(), "messageExpression must evaluate to a string"));
                    }
                    Ok(_) => {}
                },
            }
        }
    }
}
