//! values.schema.json: a JSON Schema validator (drafts 4 to 2020-12) that words its faults as Helm's does.

use super::load::Chart;
use super::{formats, metaschema};
use crate::text::fmt::float_v;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

use crate::value::Val;

/// A fault with its causes.
#[derive(Debug)]
struct Fault {
    at: Vec<String>,
    kind: Kind,
    causes: Vec<Fault>,
}

#[derive(Debug)]
enum Kind {
    Group,
    Reference,
    Text(String),
}

/// Checks a chart's values and those of its subcharts; the error is Helm's text.
pub fn validate(chart: &Chart, values: &Val) -> Result<(), String> {
    let mut out = String::new();
    if let Some(s) = &chart.schema
        && let Err(e) = single(chart.compiled.schema.get_or_init(|| Prepared::read(&s.text())), values)
    {
        out.push_str(&format!("{}:\n{e}", chart.name()));
    }
    for sub in &chart.dependencies {
        let Some(v) = values.as_map().and_then(|m| m.get(sub.name().as_bytes())) else { continue };
        if !v.is_some() {
            continue;
        }
        if v.as_table().is_none() {
            out.push_str(&format!("{}:\ninvalid type for values: expected object (map), got {}\n", sub.name(), v.type_name()));
            continue;
        }
        if let Err(e) = validate(sub, &v) {
            out.push_str(&e);
        }
    }
    if out.is_empty() { Ok(()) } else { Err(out) }
}

/// A schema that was read, with what is known of it.
#[derive(Debug)]
pub struct Prepared {
    root: Value,
    draft: u16,
    /// A schema of schemas: later drafts check their patterns all the same.
    meta: bool,
    /// Id or anchor, and pointer of what has it.
    ids: Vec<(String, String)>,
}

impl Prepared {
    /// Reads a schema; it is one, and its references lead somewhere.
    fn read(schema: &str) -> Result<Self, String> {
        let root: Value = serde_json::from_str(schema).map_err(|_| match crate::json::decode(schema.as_bytes()) {
            Err(_) if schema.trim().is_empty() => "EOF".to_owned(),
            Err(e) if e == "unexpected end of JSON input" => "unexpected EOF".to_owned(),
            Err(e) if e.ends_with(" after top-level value") => "invalid character after top-level value".to_owned(),
            Err(e) => e,
            Ok(_) => "invalid schema".to_owned(),
        })?;
        let Some(draft) = metaschema::of(&root) else {
            let url = root["$schema"].as_str().unwrap_or_default();
            return Err(remote(url, "it cannot be loaded while rendering"));
        };
        if let Some(meta) = draft.schema()
            && let Some(text) = meta.refuse(&root)
        {
            return Err(format!("\"file:///values.schema.json#\" is not valid against metaschema: jsonschema validation failed with '{}#'\n{text}", draft.url));
        }
        let prepared = Self::of(root, draft.number, false);
        Validator::new(&prepared).check_parts(&prepared.root, "")?;
        Ok(prepared)
    }

    /// A schema of a draft; `meta` where it is one of schemas.
    pub(super) fn of(root: Value, draft: u16, meta: bool) -> Self {
        let mut ids = Vec::new();
        index(&root, "", &mut ids, 0);
        Self { root, draft, meta, ids }
    }

    /// What is wrong with an instance.
    fn refuse(&self, instance: &Value) -> Option<String> {
        let fault = Validator::new(self).node(&self.root, instance, &mut Vec::new(), &mut Seen::default()).err()?;
        let causes = match fault.kind {
            Kind::Group => fault.causes,
            _ => vec![fault],
        };
        let mut out = String::new();
        for cause in &causes {
            show(cause, 1, &mut out);
        }
        Some(out.trim_start_matches('\n').to_owned())
    }
}

fn single(schema: &Result<Prepared, String>, values: &Val) -> Result<(), String> {
    let schema = schema.as_ref().map_err(String::clone)?;
    schema.refuse(&values.to_json()).map_or(Ok(()), |text| Err(format!("{text}\n")))
}

fn show(f: &Fault, indent: usize, out: &mut String) {
    let mut indent = indent;
    if !(matches!(f.kind, Kind::Reference) && f.causes.len() == 1) {
        out.push('\n');
        out.push_str(&"  ".repeat(indent - 1));
        let at: String = f.at.iter().map(|t| format!("/{}", t.replace('~', "~0").replace('/', "~1"))).collect();
        let text = match &f.kind {
            Kind::Group | Kind::Reference => "validation failed",
            Kind::Text(t) => t,
        };
        out.push_str(&format!("- at {}: {text}", quoted(&at)));
        indent += 1;
    }
    for c in &f.causes {
        show(c, indent, out);
    }
}

fn quoted(s: &str) -> String {
    let q = crate::text::quote::quote(s.as_bytes());
    format!("'{}'", q[1..q.len() - 1].replace("\\\"", "\"").replace('\'', "\\'"))
}

/// Remembers schemas that have an id or anchor.
fn index(v: &Value, ptr: &str, out: &mut Vec<(String, String)>, depth: usize) {
    if depth > 200 {
        return;
    }
    match v {
        Value::Object(m) => {
            for k in ["$id", "id"] {
                if let Some(id) = m.get(k).and_then(Value::as_str) {
                    out.push((id.trim_end_matches('#').into(), ptr.into()));
                }
            }
            if let Some(a) = m.get("$anchor").and_then(Value::as_str) {
                out.push((format!("#{a}"), ptr.into()));
            }
            for (k, v) in m {
                index(v, &format!("{ptr}/{}", k.replace('~', "~0").replace('/', "~1")), out, depth + 1);
            }
        }
        Value::Array(a) => {
            for (i, v) in a.iter().enumerate() {
                index(v, &format!("{ptr}/{i}"), out, depth + 1);
            }
        }
        _ => {}
    }
}

struct Validator<'a> {
    schema: &'a Prepared,
    depth: std::cell::Cell<usize>,
}

#[derive(Default, Clone)]
struct Seen {
    props: BTreeSet<String>,
    items: BTreeSet<usize>,
    all_items: bool,
}

impl Seen {
    fn merge(&mut self, o: Seen) {
        self.props.extend(o.props);
        self.items.extend(o.items);
        self.all_items |= o.all_items;
    }
}

type Res = Result<(), Fault>;

fn kind_of(v: &Value) -> &'static str {
    match v {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn num(v: &Value) -> Option<f64> {
    v.as_f64()
}

fn number_text(v: &Value) -> String {
    match v.as_i64() {
        Some(i) => i.to_string(),
        None => v.as_f64().map_or(String::new(), |f| if f.fract() == 0.0 && f.abs() < 1e15 { format!("{f}") } else { float_v(f) }),
    }
}

/// A number in a fault about a bound: thousands are set off.
fn grouped(text: &str) -> String {
    // Powers of ten are written as such.
    if let Some((mantissa, power)) = text.split_once('e') {
        let high = |c: char| match c {
            '-' => '⁻',
            '0' => '⁰',
            '1' => '¹',
            '2' => '²',
            '3' => '³',
            c => c.to_digit(10).and_then(|d| char::from_u32(0x2070 + d)).unwrap_or(c),
        };
        return format!("{mantissa}×10{}", power.trim_start_matches('+').chars().map(high).collect::<String>());
    }
    let (sign, digits) = text.strip_prefix('-').map_or(("", text), |rest| ("-", rest));
    let (whole, fraction) = digits.find('.').map_or((digits, ""), |at| digits.split_at(at));
    let mut out = sign.to_owned();
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out + fraction
}

/// A count that is out of bounds.
fn limit(what: &str, got: u64, want: u64) -> String {
    format!("{what}: got {}, want {}", grouped(&got.to_string()), grouped(&want.to_string()))
}

/// Numbers of items as Go prints a list.
fn places(items: &[usize]) -> String {
    items.iter().map(usize::to_string).collect::<Vec<_>>().join(" ")
}

fn display(v: &Value) -> String {
    match v {
        Value::String(s) => quoted(s),
        Value::Array(_) | Value::Object(_) => "value".into(),
        Value::Number(_) => number_text(v),
        Value::Null => "<nil>".into(),
        v => v.to_string(),
    }
}

fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(_), Value::Number(_)) => num(a) == num(b),
        (Value::Array(x), Value::Array(y)) => x.len() == y.len() && x.iter().zip(y).all(|(a, b)| equal(a, b)),
        (Value::Object(x), Value::Object(y)) => x.len() == y.len() && x.iter().all(|(k, v)| y.get(k).is_some_and(|w| equal(v, w))),
        _ => a == b,
    }
}

fn names(all: &[&str]) -> String {
    all.iter().map(|n| quoted(n)).collect::<Vec<_>>().join(", ")
}

/// A document that cannot be had.
fn remote(url: &str, why: &str) -> String {
    format!("failing loading {}: {why}", crate::text::quote::quote(url.as_bytes()))
}

impl<'a> Validator<'a> {
    fn new(schema: &'a Prepared) -> Self {
        Self { schema, depth: std::cell::Cell::new(0) }
    }

    /// What no metaschema says: references lead somewhere, outside of the document none can be followed here; and names of
    /// `patternProperties` are patterns, of which the first drafts do not speak.
    fn check_parts(&self, v: &Value, pointer: &str) -> Result<(), String> {
        match v {
            Value::Object(m) => {
                if let Some(r) = m.get("$ref").and_then(Value::as_str)
                    && self.resolve(r).is_none()
                {
                    if r.starts_with('#') {
                        return Err(format!("json-pointer in \"file:///values.schema.json{r}\" not found"));
                    }
                    if r.starts_with("urn:") {
                        return Ok(());
                    }
                    let url = r.split('#').next().unwrap_or(r);
                    if !url.contains(':') {
                        let path = crate::text::lossy(&crate::func::path_clean(format!("/{url}").as_bytes())).into_owned();
                        return Err(remote(&format!("file://{path}"), &format!("open {path}: no such file or directory")));
                    }
                    return Err(remote(url, "it cannot be loaded while rendering"));
                }
                for name in m.get("patternProperties").and_then(Value::as_object).into_iter().flat_map(Map::keys) {
                    if let Err(e) = crate::func_regex(name) {
                        return Err(format!("invalid regex {} at \"file:///values.schema.json#{pointer}/patternProperties\": {e}", crate::text::quote::quote(name.as_bytes())));
                    }
                }
                let parts = m.iter().filter(|(k, _)| !matches!(k.as_str(), "enum" | "const" | "default" | "examples"));
                parts.into_iter().try_for_each(|(k, v)| self.check_parts(v, &format!("{pointer}/{k}")))
            }
            Value::Array(a) => a.iter().enumerate().try_for_each(|(i, v)| self.check_parts(v, &format!("{pointer}/{i}"))),
            _ => Ok(()),
        }
    }

    fn resolve(&self, r: &str) -> Option<&Value> {
        let (base, frag) = r.split_once('#').unwrap_or((r, ""));
        let root: &Value = &self.schema.root;
        let doc = if base.is_empty() {
            root
        } else {
            let ptr = self.schema.ids.iter().find(|(id, _)| id == base || id.rsplit('/').next() == Some(base)).map(|(_, p)| p.as_str());
            match ptr {
                Some(p) => root.pointer(p)?,
                None if matches!(base, "http://json-schema.org/draft-07/schema" | "http://json-schema.org/draft-04/schema" | "https://json-schema.org/draft/2020-12/schema") => return Some(&Value::Bool(true)),
                None => return None,
            }
        };
        if frag.is_empty() {
            return Some(doc);
        }
        if frag.starts_with('/') {
            let decoded = frag.replace("%25", "%").replace("%22", "\"").replace("%24", "$").replace("%7B", "{").replace("%7D", "}").replace("%20", " ");
            return doc.pointer(&decoded);
        }
        let name = format!("#{frag}");
        self.schema.ids.iter().find(|(id, _)| *id == name).and_then(|(_, p)| root.pointer(p))
    }

    fn fault(at: &[String], text: impl Into<String>) -> Fault {
        Fault { at: at.to_vec(), kind: Kind::Text(text.into()), causes: Vec::new() }
    }

    /// Patterns that are none were refused with the schema.
    fn pattern(p: &str, s: &str) -> bool {
        crate::func_regex(p).map_or(true, |r| r.is_match(s.as_bytes()))
    }

    fn node(&self, s: &Value, v: &Value, at: &mut Vec<String>, seen: &mut Seen) -> Res {
        if self.depth.get() > 500 {
            return Err(Self::fault(at, "schema refers to itself without end"));
        }
        self.depth.set(self.depth.get() + 1);
        let r = stacker::maybe_grow(64 << 10, 1 << 20, || self.inner(s, v, at, seen));
        self.depth.set(self.depth.get() - 1);
        r
    }

    fn inner(&self, s: &Value, v: &Value, at: &mut Vec<String>, seen: &mut Seen) -> Res {
        let m = match s {
            Value::Bool(true) => return Ok(()),
            Value::Bool(false) => return Err(Self::fault(at, "false schema")),
            Value::Object(m) => m,
            _ => return Ok(()),
        };
        let one = |text: String, at: &[String]| Err(Self::fault(at, text));
        // Before 2019-09 a reference stands alone.
        if self.schema.draft < 2019
            && let Some(r) = m.get("$ref").and_then(Value::as_str)
        {
            return self.reference(r, v, at, seen);
        }
        if let Some(t) = m.get("type") {
            let want: Vec<&str> = match t {
                Value::String(s) => vec![s.as_str()],
                Value::Array(a) => a.iter().filter_map(Value::as_str).collect(),
                _ => Vec::new(),
            };
            let got = kind_of(v);
            let integer = num(v).is_some_and(|f| f.fract() == 0.0);
            if !want.is_empty() && !want.iter().any(|w| *w == got || *w == "integer" && integer) {
                // The reference keeps types as a set and names them in a fixed order.
                let order = ["null", "boolean", "number", "integer", "string", "array", "object"];
                let shown: Vec<&str> = order.into_iter().filter(|o| want.contains(o)).collect();
                return one(format!("got {got}, want {}", shown.join(" or ")), at);
            }
        }
        if let Some(c) = m.get("const")
            && !equal(c, v)
        {
            return one(if c.is_array() || c.is_object() { "'const' failed".into() } else { format!("value must be {}", display(c)) }, at);
        }
        if let Some(Value::Array(e)) = m.get("enum")
            && !e.iter().any(|x| equal(x, v))
        {
            let primitive = !e.iter().any(|x| x.is_array() || x.is_object());
            let text = match &e[..] {
                [x] if primitive => format!("value must be {}", display(x)),
                _ if primitive => format!("value must be one of {}", e.iter().map(display).collect::<Vec<_>>().join(", ")),
                _ => "'enum' failed".into(),
            };
            return one(text, at);
        }
        let mut faults: Vec<Fault> = Vec::new();
        if self.schema.draft >= 2019
            && let Some(r) = m.get("$ref").or_else(|| m.get("$dynamicRef")).and_then(Value::as_str)
            && let Err(f) = self.reference(r, v, at, seen)
        {
            faults.push(f);
        }
        match v {
            Value::Object(o) => self.object(m, v, o, at, seen, &mut faults),
            Value::Array(a) => self.array(m, a, at, seen, &mut faults),
            Value::String(t) => self.string(m, t, at, &mut faults),
            Value::Number(_) => self.number(m, v, at, &mut faults),
            _ => {}
        }
        self.logic(m, v, at, seen, &mut faults);
        if self.schema.draft >= 2019 {
            self.unevaluated(m, v, at, seen, &mut faults);
        }
        match faults.len() {
            0 => Ok(()),
            1 => Err(faults.remove(0)),
            _ => Err(Fault { at: at.clone(), kind: Kind::Group, causes: faults }),
        }
    }

    fn reference(&self, r: &str, v: &Value, at: &mut Vec<String>, seen: &mut Seen) -> Res {
        let Some(s) = self.resolve(r) else { return Ok(()) };
        self.node(s, v, at, seen).map_err(|f| Fault { at: at.clone(), kind: Kind::Reference, causes: if matches!(f.kind, Kind::Group) { f.causes } else { vec![f] } })
    }

    fn child(&self, s: &Value, v: &Value, name: String, at: &mut Vec<String>, faults: &mut Vec<Fault>) {
        at.push(name);
        if let Err(f) = self.node(s, v, at, &mut Seen::default()) {
            faults.push(f);
        }
        at.pop();
    }

    fn object(&self, m: &Map<String, Value>, whole: &Value, o: &Map<String, Value>, at: &mut Vec<String>, seen: &mut Seen, faults: &mut Vec<Fault>) {
        let count = |k: &str| m.get(k).and_then(Value::as_u64);
        if let Some(n) = count("minProperties")
            && (o.len() as u64) < n
        {
            faults.push(Self::fault(at, limit("minProperties", o.len() as u64, n)));
        }
        if let Some(n) = count("maxProperties")
            && o.len() as u64 > n
        {
            faults.push(Self::fault(at, limit("maxProperties", o.len() as u64, n)));
        }
        let missing = |want: &Value| -> Vec<String> { want.as_array().map_or(Vec::new(), |a| a.iter().filter_map(Value::as_str).filter(|n| !o.contains_key(*n)).map(String::from).collect()) };
        let say = |miss: &[String]| {
            let all: Vec<&str> = miss.iter().map(String::as_str).collect();
            if all.len() == 1 { format!("missing property {}", names(&all)) } else { format!("missing properties {}", names(&all)) }
        };
        if let Some(r) = m.get("required") {
            let miss = missing(r);
            if !miss.is_empty() {
                faults.push(Self::fault(at, say(&miss)));
            }
        }
        for key in ["dependencies", "dependentRequired", "dependentSchemas"] {
            for (p, d) in m.get(key).and_then(Value::as_object).into_iter().flatten().filter(|(p, _)| o.contains_key(*p)) {
                if d.is_array() {
                    let miss = missing(d);
                    if !miss.is_empty() {
                        let all: Vec<&str> = miss.iter().map(String::as_str).collect();
                        faults.push(Self::fault(at, format!("properties {} required, if {} exists", names(&all), quoted(p))));
                    }
                } else {
                    let mut s = Seen::default();
                    match self.node(d, whole, at, &mut s) {
                        Err(f) => faults.push(f),
                        Ok(()) => seen.merge(s),
                    }
                }
            }
        }
        let props = m.get("properties").and_then(Value::as_object);
        let patterns = m.get("patternProperties").and_then(Value::as_object);
        let mut extra = Vec::new();
        for (k, v) in o {
            let mut done = false;
            if let Some(s) = props.and_then(|p| p.get(k)) {
                done = true;
                self.child(s, v, k.clone(), at, faults);
            }
            for (p, s) in patterns.into_iter().flatten() {
                if Self::pattern(p, k) {
                    done = true;
                    self.child(s, v, k.clone(), at, faults);
                }
            }
            if !done && let Some(a) = m.get("additionalProperties") {
                done = true;
                match a {
                    Value::Bool(false) => extra.push(k.as_str()),
                    Value::Bool(true) => {}
                    s => self.child(s, v, k.clone(), at, faults),
                }
            }
            if done {
                seen.props.insert(k.clone());
            }
        }
        if !extra.is_empty() {
            faults.push(Self::fault(at, format!("additional properties {} not allowed", names(&extra))));
        }
        if let Some(s) = m.get("propertyNames") {
            for k in o.keys() {
                if let Err(f) = self.node(s, &Value::String(k.clone()), &mut Vec::new(), &mut Seen::default()) {
                    let causes = if matches!(f.kind, Kind::Group) { f.causes } else { vec![f] };
                    faults.push(Fault { at: at.clone(), kind: Kind::Text(format!("invalid propertyName {}", quoted(k))), causes });
                }
            }
        }
    }

    fn array(&self, m: &Map<String, Value>, a: &[Value], at: &mut Vec<String>, seen: &mut Seen, faults: &mut Vec<Fault>) {
        let count = |k: &str| m.get(k).and_then(Value::as_u64);
        if let Some(n) = count("minItems")
            && (a.len() as u64) < n
        {
            faults.push(Self::fault(at, limit("minItems", a.len() as u64, n)));
        }
        if let Some(n) = count("maxItems")
            && a.len() as u64 > n
        {
            faults.push(Self::fault(at, limit("maxItems", a.len() as u64, n)));
        }
        if m.get("uniqueItems") == Some(&Value::Bool(true)) {
            'outer: for i in 1..a.len() {
                for j in 0..i {
                    if equal(&a[i], &a[j]) {
                        faults.push(Self::fault(at, format!("items at {j} and {i} are equal")));
                        break 'outer;
                    }
                }
            }
        }
        let (prefix, rest) = if self.schema.draft >= 2020 {
            (m.get("prefixItems").and_then(Value::as_array), m.get("items"))
        } else {
            match m.get("items") {
                Some(Value::Array(p)) => (Some(p), m.get("additionalItems")),
                other => (None, other),
            }
        };
        let n = prefix.map_or(0, |p| p.len().min(a.len()));
        for (i, s) in prefix.into_iter().flatten().take(n).enumerate() {
            self.child(s, &a[i], i.to_string(), at, faults);
            seen.items.insert(i);
        }
        if let Some(s) = rest {
            seen.all_items = true;
            if self.schema.draft < 2020 && prefix.is_some() && s == &Value::Bool(false) {
                if n < a.len() {
                    faults.push(Self::fault(at, format!("last {} additionalItem(s) not allowed", a.len() - n)));
                }
            } else {
                for (i, v) in a.iter().enumerate().skip(n) {
                    self.child(s, v, i.to_string(), at, faults);
                }
            }
        }
        if let Some(s) = m.get("contains") {
            let mut errors = Vec::new();
            let mut hit = Vec::new();
            for (i, v) in a.iter().enumerate() {
                at.push(i.to_string());
                match self.node(s, v, at, &mut Seen::default()) {
                    Ok(()) => {
                        hit.push(i);
                        seen.items.insert(i);
                    }
                    Err(f) => errors.push(f),
                }
                at.pop();
            }
            let hits = hit.len() as u64;
            match count("minContains") {
                Some(min) if hits < min => {
                    let matched = if hit.is_empty() { "none matched".to_owned() } else { format!("matched {hits} items at {}", places(&hit)) };
                    faults.push(Fault { causes: errors, ..Self::fault(at, format!("min {min} items required to match contains schema, but {matched}")) });
                }
                None if hits == 0 => faults.push(Fault { causes: errors, ..Self::fault(at, "no items match contains schema") }),
                _ => {}
            }
            if let Some(max) = count("maxContains")
                && hits > max
            {
                faults.push(Self::fault(at, format!("max {max} items required to match contains schema, but matched {hits} items at {}", places(&hit))));
            }
        }
    }

    fn string(&self, m: &Map<String, Value>, t: &str, at: &[String], faults: &mut Vec<Fault>) {
        let len = t.chars().count() as u64;
        if let Some(n) = m.get("minLength").and_then(Value::as_u64)
            && len < n
        {
            faults.push(Self::fault(at, limit("minLength", len, n)));
        }
        if let Some(n) = m.get("maxLength").and_then(Value::as_u64)
            && len > n
        {
            faults.push(Self::fault(at, limit("maxLength", len, n)));
        }
        if let Some(p) = m.get("pattern").and_then(Value::as_str)
            && !Self::pattern(p, t)
        {
            faults.push(Self::fault(at, format!("{} does not match pattern {}", quoted(t), quoted(p))));
        }
        if let Some(format) = m.get("format").and_then(Value::as_str)
            && (self.schema.draft <= 7 || self.schema.meta && format == "regex")
            && let Err(e) = formats::check(format, t)
        {
            faults.push(Self::fault(at, format!("{} is not valid {format}: {e}", quoted(t))));
        }
    }

    fn number(&self, m: &Map<String, Value>, v: &Value, at: &[String], faults: &mut Vec<Fault>) {
        let Some(x) = num(v) else { return };
        let got = grouped(&number_text(v));
        let bound = |k: &str| m.get(k).filter(|b| b.is_number()).and_then(|b| num(b).map(|n| (n, grouped(&number_text(b)))));
        let strict = |k: &str| self.schema.draft == 4 && m.get(k) == Some(&Value::Bool(true));
        if let Some((n, w)) = bound("minimum") {
            if strict("exclusiveMinimum") {
                if x <= n {
                    faults.push(Self::fault(at, format!("exclusiveMinimum: got {got}, want {w}")));
                }
            } else if x < n {
                faults.push(Self::fault(at, format!("minimum: got {got}, want {w}")));
            }
        }
        if let Some((n, w)) = bound("maximum") {
            if strict("exclusiveMaximum") {
                if x >= n {
                    faults.push(Self::fault(at, format!("exclusiveMaximum: got {got}, want {w}")));
                }
            } else if x > n {
                faults.push(Self::fault(at, format!("maximum: got {got}, want {w}")));
            }
        }
        if let Some((n, w)) = bound("exclusiveMinimum")
            && x <= n
        {
            faults.push(Self::fault(at, format!("exclusiveMinimum: got {got}, want {w}")));
        }
        if let Some((n, w)) = bound("exclusiveMaximum")
            && x >= n
        {
            faults.push(Self::fault(at, format!("exclusiveMaximum: got {got}, want {w}")));
        }
        if let Some((n, w)) = bound("multipleOf")
            && n != 0.0
            && ((x / n).round() - x / n).abs() > 1e-9
        {
            faults.push(Self::fault(at, format!("multipleOf: got {got}, want {w}")));
        }
    }

    fn branch(&self, s: &Value, v: &Value, at: &mut Vec<String>, seen: &mut Seen) -> Res {
        let mut own = Seen::default();
        self.node(s, v, at, &mut own)?;
        seen.merge(own);
        Ok(())
    }

    fn logic(&self, m: &Map<String, Value>, v: &Value, at: &mut Vec<String>, seen: &mut Seen, faults: &mut Vec<Fault>) {
        if let Some(n) = m.get("not")
            && self.node(n, v, at, &mut Seen::default()).is_ok()
        {
            faults.push(Self::fault(at, "'not' failed"));
        }
        let list = |k: &str| m.get(k).and_then(Value::as_array);
        let with = |at: &[String], text: &str, causes: Vec<Fault>| Fault { causes, ..Self::fault(at, text) };
        if let Some(all) = list("allOf") {
            let errors: Vec<Fault> = all.iter().filter_map(|s| self.branch(s, v, at, seen).err()).collect();
            if !errors.is_empty() {
                faults.push(with(at, "'allOf' failed", errors));
            }
        }
        if let Some(all) = list("anyOf").filter(|a| !a.is_empty()) {
            let mut errors = Vec::new();
            let mut hit = false;
            for s in all {
                match self.branch(s, v, at, seen) {
                    Ok(()) => hit = true,
                    Err(f) => errors.push(f),
                }
            }
            if !hit {
                faults.push(with(at, "'anyOf' failed", errors));
            }
        }
        if let Some(all) = list("oneOf").filter(|a| !a.is_empty()) {
            let mut errors = Vec::new();
            let mut hit: Option<usize> = None;
            for (i, s) in all.iter().enumerate() {
                match self.branch(s, v, at, seen) {
                    Ok(()) => match hit {
                        None => hit = Some(i),
                        Some(j) => {
                            faults.push(Self::fault(at, format!("'oneOf' failed, subschemas {j}, {i} matched")));
                            break;
                        }
                    },
                    Err(f) => errors.push(f),
                }
            }
            if hit.is_none() {
                faults.push(with(at, "'oneOf' failed, none matched", errors));
            }
        }
        if self.schema.draft >= 7
            && let Some(c) = m.get("if")
        {
            let arm = if self.branch(c, v, at, seen).is_ok() { m.get("then") } else { m.get("else") };
            if let Some(s) = arm
                && let Err(f) = self.branch(s, v, at, seen)
            {
                faults.push(f);
            }
        }
    }

    fn unevaluated(&self, m: &Map<String, Value>, v: &Value, at: &mut Vec<String>, seen: &mut Seen, faults: &mut Vec<Fault>) {
        if let (Some(s), Value::Object(o)) = (m.get("unevaluatedProperties"), v) {
            for (k, v) in o.iter().filter(|(k, _)| !seen.props.contains(*k)) {
                self.child(s, v, k.clone(), at, faults);
            }
            seen.props.extend(o.keys().cloned());
        }
        if let (Some(s), Value::Array(a)) = (m.get("unevaluatedItems"), v)
            && !seen.all_items
        {
            for (i, v) in a.iter().enumerate().filter(|(i, _)| !seen.items.contains(i)) {
                self.child(s, v, i.to_string(), at, faults);
            }
        }
    }
}
