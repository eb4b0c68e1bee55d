//! Validation of custom objects against their schema, with the messages of a real server.
//!
//! On update a value that is equal to its old self is not reported (ratcheting); list elements have an old self only in
//! lists of type map.

use super::formats;
use super::parse::{Additional, Schema, Type};
use super::prune::fits;
use crate::fault::{Fault, FaultKind, Path, quote};
use crate::fields::equal;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Faults, and how many checks held (alternatives with more are reported first).
#[derive(Default)]
pub(crate) struct Findings {
    pub(crate) faults: Vec<Fault>,
    held: usize,
}

impl Findings {
    fn merge(&mut self, other: Self) {
        self.faults.extend(other.faults);
        self.held += other.held;
    }
}

/// Checks a value; `old` is its former self when there is one.
pub(crate) fn validate(v: &Value, old: Option<&Value>, s: &Schema, path: &str) -> Findings {
    let mut out = Findings::default();
    if old.is_some_and(|o| equal(v, o)) {
        out.held += 1;
        return out;
    }
    let ty_ok = type_check(v, s, path, &mut out);
    if v.is_null() && s.nullable {
        return out;
    }
    alternatives(v, old, s, path, &mut out);
    match v {
        Value::String(t) => string(t, s, path, &mut out),
        Value::Number(_) => number(v, s, path, &mut out),
        Value::Array(items) if ty_ok => array(items, old, s, path, &mut out),
        Value::Object(o) if ty_ok => object(o, old, s, path, &mut out),
        _ => {}
    }
    if let Some(e) = &s.limits.enumeration {
        if !e.iter().any(|x| equal(x, v)) {
            let words: Vec<String> = e.iter().map(|x| x.as_str().map_or_else(|| x.to_string(), str::to_owned)).collect();
            out.faults.push(Fault::not_supported(&at(path), v.clone(), &words.iter().map(String::as_str).collect::<Vec<_>>()));
        } else {
            out.held += 1;
        }
    }
    out
}

fn at(path: &str) -> Path {
    Path::new(path.trim_start_matches('.'))
}

/// `spec.x in body`, and just `in body` words for the object itself.
fn body(path: &str, rest: &str) -> String {
    format!("{} in body {rest}", path.trim_start_matches('.'))
}

fn type_name(v: &Value) -> &'static str {
    match v {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn type_check(v: &Value, s: &Schema, path: &str, out: &mut Findings) -> bool {
    let wanted = if s.int_or_string { "integer,string" } else { s.ty.map_or("", Type::as_str) };
    if wanted.is_empty() {
        return true;
    }
    let ok = if v.is_null() {
        s.nullable
    } else if s.int_or_string {
        v.is_string() || fits(v, Type::Integer)
    } else {
        s.ty.is_none_or(|t| fits(v, t))
    };
    if !ok {
        let found = type_name(v);
        let words = body(path, &format!("must be of type {wanted}: {}", quote(found)));
        out.faults.push(Fault::type_invalid(&at(path), found, words));
        return false;
    }
    if let (Some(f), Value::String(t)) = (&s.limits.format, v) {
        if formats::known(f) && !formats::fits(f, t) {
            let words = body(path, &format!("must be of type {f}: {}", quote(t)));
            out.faults.push(Fault::type_invalid(&at(path), t.clone(), words));
            return true;
        }
    }
    if let (Some(f), Value::Number(n)) = (&s.limits.format, v) {
        // Only whole numbers have a range by format.
        let range = match f.as_str() {
            "int32" => Some((i64::from(i32::MIN), i64::from(i32::MAX))),
            _ => None,
        };
        if let (Some((lo, hi)), Some(i)) = (range, n.as_i64()) {
            if i < lo || i > hi {
                let words = if i > hi { format!("should be less than or equal to {hi}") } else { format!("should be greater than or equal to {lo}") };
                out.faults.push(Fault::invalid(&at(path), v.clone(), body(path, &words)));
            }
        }
    }
    out.held += 1;
    true
}

fn alternatives(v: &Value, old: Option<&Value>, s: &Schema, path: &str, out: &mut Findings) {
    let shown = path.trim_start_matches('.');
    let l = &s.limits;
    let must = |words: String| Fault::invalid(&Path::root(), "", words);
    if !l.any_of.is_empty() {
        let mut best: Option<Findings> = None;
        let mut ok = false;
        for a in &l.any_of {
            let r = validate(v, old, a, path);
            if r.faults.is_empty() {
                ok = true;
                break;
            }
            if best.as_ref().is_none_or(|b| r.held > b.held) {
                best = Some(r);
            }
        }
        if !ok {
            out.faults.push(must(format!("{} must validate at least one schema (anyOf)", quote(shown))));
            out.merge(best.unwrap_or_default());
        }
    }
    if !l.one_of.is_empty() {
        let mut best: Option<Findings> = None;
        let mut valid = 0;
        for a in &l.one_of {
            let r = validate(v, old, a, path);
            if r.faults.is_empty() {
                valid += 1;
                best = None;
            } else if valid == 0 && best.as_ref().is_none_or(|b| r.held > b.held) {
                best = Some(r);
            }
        }
        if valid != 1 {
            let more = if valid == 0 { "Found none valid".to_owned() } else { format!("Found {valid} valid alternatives") };
            out.faults.push(must(format!("{} must validate one and only one schema (oneOf). {more}", quote(shown))));
            out.merge(best.unwrap_or_default());
        }
    }
    if !l.all_of.is_empty() {
        let mut valid = 0;
        for a in &l.all_of {
            let r = validate(v, old, a, path);
            valid += usize::from(r.faults.is_empty());
            out.merge(r);
        }
        if valid != l.all_of.len() {
            let more = if valid == 0 { ". None validated" } else { "" };
            out.faults.push(must(format!("{} must validate all the schemas (allOf){more}", quote(shown))));
        }
    }
    if let Some(n) = &l.not {
        if validate(v, None, n, path).faults.is_empty() {
            out.faults.push(must(format!("{} must not validate the schema (not)", quote(shown))));
        }
    }
}

fn string(t: &str, s: &Schema, path: &str, out: &mut Findings) {
    let l = &s.limits;
    let length = u64::try_from(t.chars().count()).unwrap_or(u64::MAX);
    if let Some(max) = l.max_length {
        if length > max {
            out.faults.push(Fault::too_long(&at(path), usize::try_from(max).unwrap_or(usize::MAX)));
        }
    }
    if let Some(min) = l.min_length {
        if length < min {
            out.faults.push(Fault::invalid(&at(path), t, body(path, &format!("should be at least {min} chars long"))));
        }
    }
    if let (Some(p), Some(re)) = (&l.pattern, &l.regex) {
        if re.is_match(t) {
            out.held += 1;
        } else {
            out.faults.push(Fault::invalid(&at(path), t, body(path, &format!("should match '{p}'"))));
        }
    }
}

fn number(v: &Value, s: &Schema, path: &str, out: &mut Findings) {
    let l = &s.limits;
    let Some(n) = v.as_f64() else { return };
    let mut tell = |words: String| out.faults.push(Fault::invalid(&at(path), v.clone(), body(path, &words)));
    if let Some(m) = l.multiple_of {
        if m > 0.0 && ((n / m) - (n / m).round()).abs() > 1e-9 {
            tell(format!("should be a multiple of {}", plain(m)));
        }
    }
    if let Some(m) = l.maximum {
        if n > m || (l.exclusive_maximum && n >= m) {
            tell(format!("should be less than {}{}", if l.exclusive_maximum { "" } else { "or equal to " }, plain(m)));
        }
    }
    if let Some(m) = l.minimum {
        if n < m || (l.exclusive_minimum && n <= m) {
            tell(format!("should be greater than {}{}", if l.exclusive_minimum { "" } else { "or equal to " }, plain(m)));
        }
    }
}

/// A number as Go's `%v` shows it.
fn plain(f: f64) -> String {
    if f.fract() == 0.0 && f.abs() < 1e21 { format!("{f:.0}") } else { f.to_string() }
}

fn array(items: &[Value], old: Option<&Value>, s: &Schema, path: &str, out: &mut Findings) {
    let l = &s.limits;
    if let Some(of) = &s.items {
        let partners = partners(items, old, s);
        for (i, x) in items.iter().enumerate() {
            out.merge(validate(x, partners.get(i).copied().flatten(), of, &format!("{path}[{i}]")));
        }
    }
    let n = items.len();
    if let Some(min) = l.min_items.and_then(|m| usize::try_from(m).ok()) {
        if n < min {
            out.faults.push(Fault::invalid(&at(path), n, body(path, &format!("should have at least {min} items"))));
        }
    }
    if let Some(max) = l.max_items.and_then(|m| usize::try_from(m).ok()) {
        if n > max {
            out.faults.push(Fault::too_many(&at(path), n, max));
        }
    }
    if l.unique_items && !repeats(items).is_empty() {
        out.faults.push(Fault::invalid(&at(path), "", body(path, "shouldn't contain duplicates")));
    }
}

/// The old self of each element: by key in lists of type map, none elsewhere.
pub(crate) fn partners<'a>(items: &[Value], old: Option<&'a Value>, s: &Schema) -> Vec<Option<&'a Value>> {
    let none = vec![None; items.len()];
    let Some(old) = old.and_then(Value::as_array) else { return none };
    if s.list_type.as_deref() != Some("map") {
        return none;
    }
    let key = |v: &Value| {
        let of = s.items.as_deref();
        let part = |k: &String| v.get(k).cloned().or_else(|| of.and_then(|o| o.properties.get(k)).and_then(|p| p.default.clone()));
        Value::Array(s.list_map_keys.iter().map(|k| part(k).unwrap_or(Value::Null)).collect()).to_string()
    };
    let by: BTreeMap<String, &Value> = old.iter().map(|o| (key(o), o)).collect();
    items.iter().map(|i| by.get(&key(i)).copied()).collect()
}

fn object(o: &Map<String, Value>, old: Option<&Value>, s: &Schema, path: &str, out: &mut Findings) {
    let l = &s.limits;
    let old = old.and_then(Value::as_object);
    let n = o.len();
    if let Some(min) = l.min_properties.and_then(|m| usize::try_from(m).ok()) {
        if n < min {
            out.faults.push(Fault::invalid(&at(path), n, body(path, &format!("should have at least {min} properties"))));
        }
    }
    if let Some(max) = l.max_properties.and_then(|m| usize::try_from(m).ok()) {
        if n > max {
            out.faults.push(Fault::too_many(&at(path), n, max));
        }
    }
    for (k, x) in o {
        let below = format!("{path}.{k}");
        let before = old.and_then(|m| m.get(k));
        if let Some(p) = s.properties.get(k) {
            out.merge(validate(x, before, p, &below));
        } else {
            match &s.additional {
                Some(Additional::Schema(p)) => out.merge(validate(x, before, p, &below)),
                Some(Additional::Allowed(false)) => {
                    let words = format!("{}.{k} in body is a forbidden property", path.trim_start_matches('.'));
                    out.faults.push(Fault::invalid(&at(path), "", words));
                }
                _ => {}
            }
        }
    }
    for r in &l.required {
        if o.contains_key(r) {
            out.held += 1;
        } else {
            out.faults.push(Fault::required(&at(&format!("{path}.{r}")), ""));
        }
    }
    if s.embedded {
        embedded(o, path, out);
    }
}

/// An embedded object must say what it is.
fn embedded(o: &Map<String, Value>, path: &str, out: &mut Findings) {
    for k in ["apiVersion", "kind"] {
        let p = at(&format!("{path}.{k}"));
        match o.get(k) {
            None => out.faults.push(Fault::required(&p, "must not be empty")),
            Some(Value::String(t)) if t.is_empty() => out.faults.push(Fault::required(&p, "must not be empty")),
            Some(Value::String(_)) => {}
            Some(x) => out.faults.push(Fault::invalid(&p, x.clone(), "must be a string")),
        }
    }
}

/// Positions of values that stand there for the second time.
fn repeats(items: &[Value]) -> Vec<usize> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut out = Vec::new();
    for (i, x) in items.iter().enumerate() {
        let n = seen.entry(x.to_string()).or_default();
        *n += 1;
        if *n == 2 {
            out.push(i);
        }
    }
    out
}

/// Duplicates in lists of type set and map.
pub(crate) fn lists(v: &Value, s: &Schema, path: &Path, out: &mut Vec<Fault>) {
    match v {
        Value::Array(items) => {
            match s.list_type.as_deref() {
                Some("set") => out.extend(repeats(items).into_iter().map(|i| Fault::duplicate(&path.index(i), items[i].clone()))),
                Some("map") => {
                    if let Some(i) = items.iter().position(|x| !x.is_null() && !x.is_object()) {
                        out.push(Fault::invalid(&path.index(i), items[i].clone(), "must be an object for an array of list-type map"));
                    } else {
                        let keys: Vec<Value> = items
                            .iter()
                            .map(|x| Value::Object(s.list_map_keys.iter().filter_map(|k| x.get(k).map(|v| (k.clone(), v.clone()))).collect()))
                            .collect();
                        out.extend(repeats(&keys).into_iter().map(|i| Fault::duplicate(&path.index(i), keys[i].clone())));
                    }
                }
                _ => {}
            }
            if let Some(of) = &s.items {
                for (i, x) in items.iter().enumerate() {
                    lists(x, of, &path.index(i), out);
                }
            }
        }
        Value::Object(o) => {
            for (k, x) in o {
                if let Some(p) = s.properties.get(k) {
                    lists(x, p, &path.child(k), out);
                } else if let Some(Additional::Schema(p)) = &s.additional {
                    lists(x, p, &path.key(k), out);
                }
            }
        }
        _ => {}
    }
}

/// Faults after which CEL rules are not evaluated.
pub(crate) fn blocks_rules(f: &Fault) -> bool {
    matches!(f.kind, FaultKind::NotSupported | FaultKind::Required | FaultKind::TooLong | FaultKind::TooMany | FaultKind::TypeInvalid)
}

/// What is said when they are not.
pub(crate) fn rules_skipped() -> Fault {
    Fault::invalid(
        &Path::root(),
        json!(null),
        "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation",
    )
}
