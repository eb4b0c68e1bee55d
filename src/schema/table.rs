//! Reads the table of built-in shapes (`data/shapes.txt`) once and hands out shapes of kinds.
//!
//! Format: a line without indent opens a type: `name [free] [gvk=group/version/kind] [map=atomic]`. An indented line is a
//! field: `name presence type [list=..] [map=..] [patch=strategy[/key]] [req] [default=json]`, presence being
//! `*` pointer, `&` pointer written as null, `?` dropped when empty, `!` always written, `~` dropped when zero; type being
//! `s b i32 i64 f64 bytes any`, `@name`, `[]type` or `{}type`. `data/tables.go` writes it.

use crate::shape::{Arena, Atom, DEDUCED, Field, ListKind, ListType, MapType, OPAQUE, PatchRule, Presence, Ref, Scalar, Shape, TypeId};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// All built-in types.
pub(crate) struct Table {
    pub(crate) arena: Arc<Arena>,
    pub(crate) kinds: BTreeMap<(String, String, String), TypeId>,
    pub(crate) names: BTreeMap<String, TypeId>,
}

/// The table, parsed on first use.
pub(crate) fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| parse(include_str!("data/shapes.txt")))
}

/// The shape of a built-in kind.
pub fn native(group: &str, version: &str, kind: &str) -> Option<Shape> {
    let t = table();
    let key = (group.to_owned(), version.to_owned(), kind.to_owned());
    t.kinds.get(&key).map(|id| Shape { arena: t.arena.clone(), root: Ref::to(*id) })
}

/// The shape of a built-in type by its short name, such as `meta.v1.ObjectMeta`.
pub fn named(name: &str) -> Option<Shape> {
    let t = table();
    t.names.get(name).map(|id| Shape { arena: t.arena.clone(), root: Ref::to(*id) })
}

struct Loader {
    arena: Arena,
    names: BTreeMap<String, TypeId>,
    leaves: BTreeMap<String, TypeId>,
}

fn leaf(scalar: Scalar, name: &str) -> Atom {
    Atom { name: name.into(), scalar: Some(scalar), ..Atom::default() }
}

fn parse(text: &str) -> Table {
    let mut l = Loader { arena: Arena::new(), names: BTreeMap::new(), leaves: BTreeMap::new() };
    for (word, scalar) in [
        ("s", Scalar::String),
        ("b", Scalar::Boolean),
        ("i32", Scalar::Int32),
        ("i64", Scalar::Int64),
        ("f64", Scalar::Number),
        ("bytes", Scalar::Bytes),
    ] {
        let id = l.arena.push(leaf(scalar, ""));
        l.leaves.insert(word.to_owned(), id);
    }
    l.leaves.insert("any".to_owned(), DEDUCED);
    let mut kinds = BTreeMap::new();
    // First the names, so that fields can refer forward.
    for line in text.lines().filter(|l| !l.starts_with(['#', ' '])) {
        let mut words = line.split(' ');
        let Some(name) = words.next() else { continue };
        let mut atom = match name {
            "Quantity" => leaf(Scalar::Quantity, name),
            "IntOrString" => leaf(Scalar::IntOrString, name),
            "meta.v1.Time" => leaf(Scalar::Time, name),
            "meta.v1.MicroTime" => leaf(Scalar::MicroTime, name),
            "RawExtension" => Atom { name: name.into(), embedded: true, ..l.arena.atom(OPAQUE).clone() },
            n if n == "meta.v1.FieldsV1" || n == "apiextensions.v1.JSON" || n.starts_with("apiextensions.v1.JSONSchemaPropsOr") => {
                // Untyped scalar, list and map, all replaced key by key as kube-openapi converts a schema without type.
                Atom { name: name.into(), ..l.arena.atom(DEDUCED).clone() }
            }
            _ => Atom {
                name: name.into(),
                map: Some(MapType { fields: BTreeMap::new(), element: None, atomic: false }),
                ..Atom::default()
            },
        };
        let mut gvk = None;
        for w in words {
            if let Some(g) = w.strip_prefix("gvk=") {
                gvk = Some(g.to_owned());
            } else if let Some(m) = atom.map.as_mut() {
                m.atomic |= w == "map=atomic";
                // An object without properties is a free-form object.
                if w == "free" && m.element.is_none() {
                    m.element = Some(Ref::to(DEDUCED));
                }
            }
        }
        let id = l.arena.push(atom);
        l.names.insert(name.to_owned(), id);
        if let Some(g) = gvk {
            let mut p = g.split('/').map(str::to_owned);
            if let (Some(g), Some(v), Some(k)) = (p.next(), p.next(), p.next()) {
                kinds.insert((g, v, k), id);
            }
        }
    }
    let mut open = None;
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        if let Some(field) = line.strip_prefix(' ') {
            if let Some(id) = open {
                l.field(id, field);
            }
        } else {
            open = line.split(' ').next().and_then(|n| l.names.get(n)).copied();
        }
    }
    Table { arena: Arc::new(l.arena), kinds, names: l.names }
}

impl Loader {
    fn field(&mut self, owner: TypeId, line: &str) {
        let mut words = line.split(' ');
        let (Some(name), Some(presence), Some(ty)) = (words.next(), words.next(), words.next()) else { return };
        let (mut kind, mut atomic, mut required, mut default, mut patch) = (None, None, false, None, PatchRule::default());
        for w in words {
            match w.split_once('=') {
                Some(("list", "atomic")) => kind = Some(ListKind::Atomic),
                Some(("list", "set")) => kind = Some(ListKind::Set),
                Some(("list", m)) => {
                    let keys = m.trim_start_matches("map:");
                    kind = Some(ListKind::Map(keys.split(',').map(Into::into).collect()));
                }
                Some(("map", m)) => atomic = Some(m == "atomic"),
                Some(("default", j)) => default = serde_json::from_str(j).ok(),
                Some(("patch", p)) => {
                    let (strategy, key) = p.split_once('/').map_or((p, None), |(s, k)| (s, Some(k)));
                    patch.merge = strategy.split(',').any(|s| s == "merge");
                    patch.retain_keys = strategy.split(',').any(|s| s == "retainKeys");
                    patch.merge_key = key.map(Into::into);
                }
                _ => required |= w == "req",
            }
        }
        // A list without a list type merges by its patch strategy (kube-openapi does the same).
        let kind = kind.unwrap_or_else(|| match (&patch.merge_key, patch.merge) {
            (Some(k), true) => ListKind::Map(vec![k.clone()]),
            (None, true) => ListKind::Set,
            _ => ListKind::Atomic,
        });
        let mut ty = self.ty(ty, &kind);
        ty.atomic = atomic;
        let presence = match presence {
            "*" => Presence::Pointer,
            "&" => Presence::NullPointer,
            "!" => Presence::Always,
            "~" => Presence::DropZero,
            _ => Presence::DropEmpty,
        };
        if let Some(m) = self.arena.atoms[owner.0 as usize].map.as_mut() {
            m.fields.insert(name.into(), Field { ty, default, required, presence, patch });
        }
    }

    fn ty(&mut self, word: &str, kind: &ListKind) -> Ref {
        if let Some(id) = self.leaves.get(word) {
            return Ref::to(*id);
        }
        if let Some(name) = word.strip_prefix('@') {
            return Ref::to(self.names.get(name).copied().unwrap_or(DEDUCED));
        }
        let key = format!("{word} {kind:?}");
        if let Some(id) = self.leaves.get(&key) {
            return Ref::to(*id);
        }
        let atom = if let Some(item) = word.strip_prefix("[]") {
            let item = self.ty(item, &ListKind::Atomic);
            Atom { list: Some(ListType { item, kind: kind.clone() }), ..Atom::default() }
        } else if let Some(value) = word.strip_prefix("{}") {
            let value = self.ty(value, &ListKind::Atomic);
            Atom { map: Some(MapType { fields: BTreeMap::new(), element: Some(value), atomic: false }), ..Atom::default() }
        } else {
            self.arena.atom(DEDUCED).clone()
        };
        let id = self.arena.push(atom);
        self.leaves.insert(key, id);
        Ref::to(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_known_and_every_kind_has_metadata() {
        let t = table();
        assert!(t.kinds.len() > 120, "{}", t.kinds.len());
        for ((g, v, k), id) in &t.kinds {
            let map = t.arena.atom(*id).map.as_ref();
            assert!(map.is_some_and(|m| m.fields.contains_key("apiVersion")), "{g}/{v} {k}");
        }
    }

    #[test]
    fn merge_rules_are_read() {
        let d = native("apps", "v1", "Deployment").expect("kind");
        let c = d.root().child("spec").and_then(|n| n.child("template")).and_then(|n| n.child("spec")).and_then(|n| n.child("containers"));
        let c = c.expect("containers");
        assert_eq!(c.list().map(|l| &l.kind), Some(&ListKind::Map(vec!["name".into()])));
        let ports = c.item().and_then(|n| n.child("ports")).expect("ports");
        assert_eq!(ports.list().map(|l| &l.kind), Some(&ListKind::Map(vec!["containerPort".into(), "protocol".into()])));
        let svc = native("", "v1", "Service").expect("kind");
        let spec = svc.root().child("spec").expect("spec");
        assert!(spec.child("selector").is_some_and(|s| s.map_is_atomic()));
    }
}
