//! The shape (merge rules) of a custom kind, from its structural schema.

use super::parse::{Additional, Schema, Type};
use crate::shape::{Arena, Atom, DEDUCED, Field, ListKind, ListType, MapType, OPAQUE, PatchRule, Presence, Ref, Scalar, Shape};
use crate::table;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Builds the shape.
pub(crate) fn of(root: &Schema) -> Shape {
    let mut b = Builder { arena: Arena::new(), meta: None };
    let root = b.place(root, false, true);
    Shape { arena: Arc::new(b.arena), root }
}

struct Builder {
    arena: Arena,
    meta: Option<Ref>,
}

impl Builder {
    /// ObjectMeta with its own rules, copied once from the built-in table.
    fn meta(&mut self) -> Ref {
        if let Some(r) = self.meta {
            return r;
        }
        let r = match table::named("meta.v1.ObjectMeta") {
            Some(s) => self.copy(&s.arena, s.root, &mut BTreeMap::new()),
            None => Ref::to(DEDUCED),
        };
        self.meta = Some(r);
        r
    }

    fn copy(&mut self, from: &Arena, r: Ref, seen: &mut BTreeMap<u32, crate::shape::TypeId>) -> Ref {
        if r.id == DEDUCED || r.id == OPAQUE {
            return r;
        }
        if let Some(id) = seen.get(&r.id.0) {
            return Ref { id: *id, ..r };
        }
        let id = self.arena.push(Atom::default());
        seen.insert(r.id.0, id);
        let mut atom = from.atom(r.id).clone();
        if let Some(l) = atom.list.as_mut() {
            l.item = self.copy(from, l.item, seen);
        }
        if let Some(m) = atom.map.as_mut() {
            m.element = m.element.map(|e| self.copy(from, e, seen));
            for f in m.fields.values_mut() {
                f.ty = self.copy(from, f.ty, seen);
            }
        }
        self.arena.atoms[id.0 as usize] = atom;
        Ref { id, ..r }
    }

    /// `preserve` is inherited by everything below a schema that keeps unknown fields.
    fn place(&mut self, s: &Schema, preserve: bool, root: bool) -> Ref {
        let preserve = preserve || s.preserve;
        let leaf = |scalar| Atom { scalar: Some(scalar), ..Atom::default() };
        let atom = match s.ty {
            _ if s.int_or_string => return Ref { nullable: s.nullable, ..Ref::to(DEDUCED) },
            None if s.properties.is_empty() && s.additional.is_none() && s.items.is_none() => return Ref { nullable: s.nullable, ..Ref::to(DEDUCED) },
            None => Atom { scalar: Some(Scalar::Untyped), list: Some(self.list(s, preserve)), map: Some(self.map(s, preserve, root)), ..Atom::default() },
            Some(Type::Object) => Atom { map: Some(self.map(s, preserve, root)), ..Atom::default() },
            Some(Type::Array) => Atom { list: Some(self.list(s, preserve)), ..Atom::default() },
            Some(Type::Integer | Type::Number) => leaf(Scalar::Number),
            Some(Type::Boolean) => leaf(Scalar::Boolean),
            Some(Type::String) => leaf(match s.limits.format.as_deref() {
                None | Some("byte") => Scalar::String,
                _ => Scalar::Untyped,
            }),
        };
        Ref { id: self.arena.push(atom), atomic: None, nullable: s.nullable }
    }

    fn list(&mut self, s: &Schema, preserve: bool) -> ListType {
        let item = match &s.items {
            Some(i) => self.place(i, preserve, false),
            None => Ref::to(OPAQUE),
        };
        let kind = match s.list_type.as_deref() {
            Some("set") => ListKind::Set,
            Some("map") => ListKind::Map(s.list_map_keys.iter().map(|k| k.as_str().into()).collect()),
            _ => ListKind::Atomic,
        };
        ListType { item, kind }
    }

    fn map(&mut self, s: &Schema, preserve: bool, root: bool) -> MapType {
        let mut fields = BTreeMap::new();
        let mut add = |name: &str, ty: Ref, default| {
            fields.insert(name.into(), Field { ty, default, required: false, presence: Presence::Pointer, patch: PatchRule::default() });
        };
        for (name, p) in &s.properties {
            let ty = self.place(p, preserve, false);
            add(name, ty, p.default.clone());
        }
        if root || s.embedded {
            let text = Ref::to(self.arena.push(Atom { scalar: Some(Scalar::String), ..Atom::default() }));
            add("apiVersion", text, None);
            add("kind", text, None);
            let meta = self.meta();
            add("metadata", meta, None);
        }
        let element = match &s.additional {
            Some(Additional::Schema(p)) => Some(self.place(p, preserve, false)),
            Some(Additional::Allowed(true)) => Some(Ref::to(DEDUCED)),
            Some(Additional::Allowed(false)) => None,
            None if preserve || s.properties.is_empty() => Some(Ref::to(DEDUCED)),
            None => None,
        };
        MapType { fields, element, atomic: s.map_type.as_deref() == Some("atomic") }
    }
}
