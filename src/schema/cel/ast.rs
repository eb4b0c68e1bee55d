//! Syntax tree of CEL. Macros are nodes of their own, not expansions.

/// A literal.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(String),
    Bytes(Vec<u8>),
}

/// Comprehension macros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loop {
    All,
    Exists,
    ExistsOne,
    Map,
    Filter,
    TransformList,
    TransformMap,
    TransformMapEntry,
    OptMap,
    OptFlatMap,
    SortBy,
}

/// A node and its place (byte offset) in the source.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Expr {
    pub(crate) at: usize,
    pub(crate) node: Node,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    Literal(Literal),
    Ident(String),
    /// `a.b`, `a.?b`
    Select { of: Box<Expr>, field: String, optional: bool },
    /// `has(a.b)`
    Has { of: Box<Expr>, field: String },
    /// `a[b]`, `a[?b]`
    Index { of: Box<Expr>, key: Box<Expr>, optional: bool },
    /// `f(x)`, `a.f(x)`; operators by their names (`_+_`).
    Call { name: String, target: Option<Box<Expr>>, args: Vec<Expr> },
    List(Vec<(Expr, bool)>),
    Map(Vec<(Expr, Expr, bool)>),
    /// `Type{field: value}`
    Struct { name: String, fields: Vec<(String, Expr, bool)> },
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    If(Box<Expr>, Box<Expr>, Box<Expr>),
    /// `range.all(v, body)`; `filter` is the first of two bodies where there are two.
    Loop { kind: Loop, range: Box<Expr>, var: String, var2: Option<String>, filter: Option<Box<Expr>>, body: Box<Expr> },
}
