//! The shape of a kind: which fields it has, what they hold, how lists and maps merge.

use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Index of an [`Atom`] in its [`Arena`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TypeId(pub(crate) u32);

/// What a single value may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// A string.
    String,
    /// A base64 string (`[]byte`).
    Bytes,
    /// A 32-bit integer.
    Int32,
    /// A 64-bit integer.
    Int64,
    /// Any number.
    Number,
    /// true or false.
    Boolean,
    /// An RFC 3339 instant, seconds precision.
    Time,
    /// An RFC 3339 instant, microseconds precision.
    MicroTime,
    /// A resource quantity such as `500m` or `1Gi`.
    Quantity,
    /// An integer or a string.
    IntOrString,
    /// Any scalar.
    Untyped,
}

/// What Go's encoder writes for the field when it has no value (and so what a server returns).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// A pointer with omitempty: present when set, zero values kept.
    Pointer,
    /// A pointer without omitempty: null when unset.
    NullPointer,
    /// A plain value with omitempty: zero values are dropped.
    DropEmpty,
    /// Always written: zero value, null for lists and maps, an object for structs.
    Always,
    /// A struct with omitzero: dropped when all of it is zero.
    DropZero,
}

/// How a list merges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListKind {
    /// Replaced as a whole.
    Atomic,
    /// A set of scalars.
    Set,
    /// Elements identified by these fields.
    Map(Vec<Box<str>>),
}

/// How strategic merge patch treats a list or map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchRule {
    /// Elements are merged, by `merge_key` when they are objects.
    pub merge: bool,
    /// The patch names the keys that stay (`$retainKeys`).
    pub retain_keys: bool,
    /// The field that identifies an element.
    pub merge_key: Option<Box<str>>,
}

/// A use of a type, with what the using field overrides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ref {
    /// The type.
    pub id: TypeId,
    /// The field says whether the map is atomic, whatever the type says.
    pub atomic: Option<bool>,
    /// null is a value of its own (CRD `nullable`).
    pub nullable: bool,
}

/// A field of an object.
#[derive(Clone, Debug)]
pub struct Field {
    /// Type of the value.
    pub ty: Ref,
    /// The value assumed when absent (OpenAPI `default`, non-zero ones only).
    pub default: Option<Value>,
    /// In the OpenAPI list of required fields.
    pub required: bool,
    /// What is written when empty.
    pub presence: Presence,
    /// Strategic merge rule.
    pub patch: PatchRule,
}

/// List side of an atom.
#[derive(Clone, Debug)]
pub struct ListType {
    /// Type of the elements.
    pub item: Ref,
    /// How it merges.
    pub kind: ListKind,
}

/// Map side of an atom: a struct, a free map, or both.
#[derive(Clone, Debug)]
pub struct MapType {
    /// Named fields, by name.
    pub fields: BTreeMap<Box<str>, Field>,
    /// Type of the entries that are no named field; `None` = unknown fields are faults.
    pub element: Option<Ref>,
    /// Replaced as a whole.
    pub atomic: bool,
}

/// A type: any of a scalar, a list or a map (more than one for untyped values).
#[derive(Clone, Debug, Default)]
pub struct Atom {
    /// Name in OpenAPI, shortened (`core.v1.Pod`); empty for anonymous types.
    pub name: Box<str>,
    /// Scalar side.
    pub scalar: Option<Scalar>,
    /// List side.
    pub list: Option<ListType>,
    /// Map side.
    pub map: Option<MapType>,
    /// An object of any kind with apiVersion and kind (RawExtension, x-kubernetes-embedded-resource).
    pub embedded: bool,
}

/// A set of types that refer to one another.
#[derive(Debug, Default)]
pub struct Arena {
    pub(crate) atoms: Vec<Atom>,
}

/// Type of a value nobody described: maps merge by key, lists are replaced.
pub(crate) const DEDUCED: TypeId = TypeId(0);
/// Type of a value nobody described and that is replaced as a whole.
pub(crate) const OPAQUE: TypeId = TypeId(1);

impl Arena {
    /// An arena with the two untyped atoms at their fixed places.
    pub(crate) fn new() -> Self {
        let untyped = |list_of: TypeId, map_of: TypeId, atomic: bool| Atom {
            name: "".into(),
            scalar: Some(Scalar::Untyped),
            list: Some(ListType { item: Ref::to(list_of), kind: ListKind::Atomic }),
            map: Some(MapType { fields: BTreeMap::new(), element: Some(Ref::to(map_of)), atomic }),
            embedded: false,
        };
        Self { atoms: vec![untyped(OPAQUE, DEDUCED, false), untyped(OPAQUE, OPAQUE, true)] }
    }

    pub(crate) fn push(&mut self, atom: Atom) -> TypeId {
        self.atoms.push(atom);
        TypeId(u32::try_from(self.atoms.len() - 1).unwrap_or(u32::MAX))
    }

    /// The atom behind an id.
    pub fn atom(&self, id: TypeId) -> &Atom {
        self.atoms.get(id.0 as usize).unwrap_or(&self.atoms[DEDUCED.0 as usize])
    }
}

impl Ref {
    /// A plain use of a type.
    pub(crate) fn to(id: TypeId) -> Self {
        Self { id, atomic: None, nullable: false }
    }
}

/// The shape of one kind: an arena and the type of the object itself. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Shape {
    pub(crate) arena: Arc<Arena>,
    pub(crate) root: Ref,
}

/// A place in a shape.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    pub(crate) arena: &'a Arena,
    pub(crate) of: Ref,
}

impl Shape {
    /// The type of the object itself.
    pub fn root(&self) -> Node<'_> {
        Node { arena: &self.arena, of: self.root }
    }

    /// The shape of objects nobody described.
    pub fn untyped() -> Self {
        Self { arena: Arc::new(Arena::new()), root: Ref::to(DEDUCED) }
    }
}

impl<'a> Node<'a> {
    /// The atom here.
    pub fn atom(&self) -> &'a Atom {
        self.arena.atom(self.of.id)
    }
    /// A use of another type of the same arena.
    pub fn at(&self, of: Ref) -> Node<'a> {
        Node { arena: self.arena, of }
    }
    /// The list side.
    pub fn list(&self) -> Option<&'a ListType> {
        self.atom().list.as_ref()
    }
    /// The map side.
    pub fn map(&self) -> Option<&'a MapType> {
        self.atom().map.as_ref()
    }
    /// The scalar side.
    pub fn scalar(&self) -> Option<Scalar> {
        self.atom().scalar
    }
    /// Whether a map here is replaced as a whole.
    pub fn map_is_atomic(&self) -> bool {
        self.of.atomic.unwrap_or_else(|| self.map().is_some_and(|m| m.atomic))
    }
    /// The declared field of this name.
    pub fn field(&self, name: &str) -> Option<&'a Field> {
        self.map().and_then(|m| m.fields.get(name))
    }
    /// The type of a field or map entry of this name.
    pub fn child(&self, name: &str) -> Option<Node<'a>> {
        let m = self.map()?;
        m.fields.get(name).map(|f| f.ty).or(m.element).map(|r| self.at(r))
    }
    /// The type of list elements.
    pub fn item(&self) -> Option<Node<'a>> {
        self.list().map(|l| self.at(l.item))
    }
}
