//! Sets of field paths and their `FieldsV1` encoding.

use crate::shape::Node;
use serde_json::{Map, Value};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// One step of a field path.
#[derive(Clone, Debug)]
pub enum Element {
    /// A field or map entry by name (`f:name`).
    Field(Box<str>),
    /// A list element by its key fields, sorted by name (`k:{…}`).
    Key(Vec<(Box<str>, Value)>),
    /// A set element by its value (`v:…`).
    Value(Value),
    /// A list element by its position (`i:0`).
    Index(i64),
}

/// Why a `FieldsV1` document cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    /// A key is no path element.
    #[error("read field set: bad path element {0:?}")]
    Element(String),
    /// A value is no object.
    #[error("read field set: value of {0:?} is no object")]
    Shape(String),
}

/// Total order over JSON values: numbers, strings, booleans, lists, maps, null.
pub(crate) fn order(a: &Value, b: &Value) -> Ordering {
    let rank = |v: &Value| match v {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    };
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => match (x.as_i64(), y.as_i64()) {
            (Some(i), Some(j)) => i.cmp(&j),
            _ => x.as_f64().partial_cmp(&y.as_f64()).unwrap_or(Ordering::Equal),
        },
        (Value::String(x), Value::String(y)) => x.cmp(y),
        (Value::Bool(x), Value::Bool(y)) => x.cmp(y),
        (Value::Array(x), Value::Array(y)) => {
            x.iter().zip(y).map(|(i, j)| order(i, j)).find(|o| o.is_ne()).unwrap_or_else(|| x.len().cmp(&y.len()))
        }
        (Value::Object(x), Value::Object(y)) => x
            .iter()
            .zip(y)
            .map(|((k, i), (l, j))| k.cmp(l).then_with(|| order(i, j)))
            .find(|o| o.is_ne())
            .unwrap_or_else(|| x.len().cmp(&y.len())),
        _ => rank(a).cmp(&rank(b)),
    }
}

/// Equality that does not tell 1 from 1.0.
pub(crate) fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(_), Value::Number(_)) => order(a, b).is_eq(),
        (Value::Array(x), Value::Array(y)) => x.len() == y.len() && x.iter().zip(y).all(|(i, j)| equal(i, j)),
        (Value::Object(x), Value::Object(y)) => x.len() == y.len() && x.iter().zip(y).all(|((k, i), (l, j))| k == l && equal(i, j)),
        _ => a == b,
    }
}

impl Ord for Element {
    fn cmp(&self, other: &Self) -> Ordering {
        let rank = |e: &Self| match e {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        };
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.cmp(b),
            (Self::Key(a), Self::Key(b)) => a
                .iter()
                .zip(b)
                .map(|((k, v), (l, w))| k.cmp(l).then_with(|| order(v, w)))
                .find(|o| o.is_ne())
                .unwrap_or_else(|| a.len().cmp(&b.len())),
            (Self::Value(a), Self::Value(b)) => order(a, b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            _ => rank(self).cmp(&rank(other)),
        }
    }
}
impl PartialOrd for Element {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Element {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Element {}

/// JSON text as Go's encoder writes it inside a key: compact, `<`, `>` and `&` escaped.
fn go_json(v: &Value) -> String {
    let text = v.to_string();
    if !text.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return text;
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out
}

impl Element {
    /// A field element.
    pub fn field(name: &str) -> Self {
        Self::Field(name.into())
    }

    /// The key in a `FieldsV1` document.
    pub fn encode(&self) -> String {
        match self {
            Self::Field(n) => format!("f:{n}"),
            Self::Key(k) => {
                let o: Map<String, Value> = k.iter().map(|(n, v)| (n.to_string(), v.clone())).collect();
                format!("k:{}", go_json(&Value::Object(o)))
            }
            Self::Value(v) => format!("v:{}", go_json(v)),
            Self::Index(i) => format!("i:{i}"),
        }
    }

    fn decode(text: &str) -> Result<Self, SetError> {
        let bad = || SetError::Element(text.to_owned());
        let (kind, rest) = text.split_once(':').ok_or_else(bad)?;
        match kind {
            "f" => Ok(Self::Field(rest.into())),
            "v" => serde_json::from_str(rest).map(Self::Value).map_err(|_| bad()),
            "i" => rest.parse().map(Self::Index).map_err(|_| bad()),
            "k" => {
                let o: Map<String, Value> = serde_json::from_str(rest).map_err(|_| bad())?;
                Ok(Self::Key(o.into_iter().map(|(k, v)| (k.into(), v)).collect()))
            }
            _ => Err(bad()),
        }
    }
}

impl fmt::Display for Element {
    /// As conflicts show it: `.name`, `[key="value"]`, `[="value"]`, `[0]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(n) => write!(f, ".{n}"),
            Self::Key(k) => {
                let keys: Vec<String> = k.iter().map(|(n, v)| format!("{n}={v}")).collect();
                write!(f, "[{}]", keys.join(","))
            }
            Self::Value(v) => write!(f, "[={v}]"),
            Self::Index(i) => write!(f, "[{i}]"),
        }
    }
}

/// A set of field paths: members here, and sets below.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    members: BTreeSet<Element>,
    children: BTreeMap<Element, Set>,
}

impl Set {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// A set of field paths given as names.
    pub fn of_fields(paths: &[&[&str]]) -> Self {
        let mut s = Self::new();
        for p in paths {
            s.insert(&p.iter().map(|n| Element::field(n)).collect::<Vec<_>>());
        }
        s
    }

    /// Adds a path; the empty path is ignored.
    pub fn insert(&mut self, path: &[Element]) {
        match path {
            [] => {}
            [last] => {
                self.members.insert(last.clone());
            }
            [first, rest @ ..] => self.children.entry(first.clone()).or_default().insert(rest),
        }
    }

    /// Whether the path is a member.
    pub fn has(&self, path: &[Element]) -> bool {
        match path {
            [] => false,
            [last] => self.members.contains(last),
            [first, rest @ ..] => self.children.get(first).is_some_and(|c| c.has(rest)),
        }
    }

    /// Whether the element itself is a member here.
    pub fn has_member(&self, e: &Element) -> bool {
        self.members.contains(e)
    }

    /// The set below an element.
    pub fn below(&self, e: &Element) -> Option<&Set> {
        self.children.get(e).filter(|c| !c.is_empty())
    }

    /// The members here, sorted.
    pub fn members(&self) -> impl Iterator<Item = &Element> {
        self.members.iter()
    }

    /// The sets below, sorted by element.
    pub fn children(&self) -> impl Iterator<Item = (&Element, &Set)> {
        self.children.iter()
    }

    /// Whether there is no path.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.values().all(Set::is_empty)
    }

    /// Paths of either set.
    pub fn union(&self, other: &Self) -> Self {
        let mut out = self.clone();
        out.extend(other);
        out
    }

    /// Adds all paths of another set.
    pub fn extend(&mut self, other: &Self) {
        self.members.extend(other.members.iter().cloned());
        for (e, c) in &other.children {
            self.children.entry(e.clone()).or_default().extend(c);
        }
    }

    /// Paths of both sets.
    pub fn intersection(&self, other: &Self) -> Self {
        let mut out = Self { members: self.members.intersection(&other.members).cloned().collect(), children: BTreeMap::new() };
        for (e, c) in &self.children {
            if let Some(o) = other.children.get(e) {
                let both = c.intersection(o);
                if !both.is_empty() {
                    out.children.insert(e.clone(), both);
                }
            }
        }
        out
    }

    /// Paths that are not in the other set; what lies below a removed member stays.
    pub fn difference(&self, other: &Self) -> Self {
        let mut out = Self { members: self.members.difference(&other.members).cloned().collect(), children: BTreeMap::new() };
        for (e, c) in &self.children {
            let left = match other.children.get(e) {
                Some(o) => c.difference(o),
                None => c.clone(),
            };
            if !left.is_empty() {
                out.children.insert(e.clone(), left);
            }
        }
        out
    }

    /// Paths that are neither in the other set nor below one of its members.
    pub fn recursive_difference(&self, other: &Self) -> Self {
        let mut out = Self { members: self.members.difference(&other.members).cloned().collect(), children: BTreeMap::new() };
        for (e, c) in &self.children {
            if other.members.contains(e) {
                continue;
            }
            let left = match other.children.get(e) {
                Some(o) => c.recursive_difference(o),
                None => c.clone(),
            };
            if !left.is_empty() {
                out.children.insert(e.clone(), left);
            }
        }
        out
    }

    /// The set with every declared field on the way to a member as a member too.
    pub(crate) fn with_named_fields(&self, node: Option<Node<'_>>) -> Self {
        let mut out = Self { members: self.members.clone(), children: BTreeMap::new() };
        for (e, c) in &self.children {
            let below = match e {
                Element::Field(n) => {
                    if node.is_some_and(|x| x.field(n).is_some()) {
                        out.members.insert(e.clone());
                    }
                    node.and_then(|x| x.child(n))
                }
                Element::Key(_) => node.and_then(|x| x.item()),
                _ => None,
            };
            out.children.insert(e.clone(), c.with_named_fields(below));
        }
        out
    }

    /// All paths, members before what lies below.
    pub fn paths(&self) -> Vec<Vec<Element>> {
        let mut out = Vec::new();
        self.collect(&mut Vec::new(), &mut out);
        out
    }

    fn collect(&self, prefix: &mut Vec<Element>, out: &mut Vec<Vec<Element>>) {
        for m in &self.members {
            let mut p = prefix.clone();
            p.push(m.clone());
            out.push(p);
        }
        for (e, c) in &self.children {
            prefix.push(e.clone());
            c.collect(prefix, out);
            prefix.pop();
        }
    }

    /// The `FieldsV1` document.
    pub fn encode(&self) -> Value {
        let mut out = Map::new();
        for m in &self.members {
            out.insert(m.encode(), Value::Object(Map::new()));
        }
        for (e, c) in &self.children {
            if c.is_empty() {
                continue;
            }
            let mut below = match c.encode() {
                Value::Object(o) => o,
                _ => Map::new(),
            };
            if self.members.contains(e) {
                below.insert(".".to_owned(), Value::Object(Map::new()));
            }
            out.insert(e.encode(), Value::Object(below));
        }
        Value::Object(out)
    }

    /// Reads a `FieldsV1` document.
    pub fn decode(v: &Value) -> Result<Self, SetError> {
        let mut set = Self::new();
        let Some(o) = v.as_object() else {
            return if v.is_null() { Ok(set) } else { Err(SetError::Shape("fieldsV1".to_owned())) };
        };
        for (key, below) in o {
            if key == "." {
                continue;
            }
            let e = Element::decode(key)?;
            let b = below.as_object().ok_or_else(|| SetError::Shape(key.clone()))?;
            if b.is_empty() || b.contains_key(".") {
                set.members.insert(e.clone());
            }
            if b.keys().any(|k| k != ".") {
                set.children.insert(e, Self::decode(below)?);
            }
        }
        Ok(set)
    }
}

/// A path as conflicts show it: `.spec.replicas`.
pub(crate) fn show(path: &[Element]) -> String {
    path.iter().map(Element::to_string).collect()
}
