//! The syntax tree of a Go template, with byte positions and a printer back to Go syntax (error texts quote it).

use crate::text::quote::quote;
use crate::value::Str;
use std::fmt;
use std::sync::Arc;

/// Byte offset into the text of the file a node came from.
pub type Pos = u32;

/// One parsed template (a file, or a `define` inside one).
#[derive(Debug)]
pub struct Tree {
    /// Name under which the template is looked up.
    pub name: Str,
    /// The file, for positions.
    pub file: Arc<File>,
    /// The body. Shared, as all bodies are: engines prepare them later and keep them.
    pub root: Arc<List>,
}

/// The text a tree was parsed from.
#[derive(Debug)]
pub struct File {
    /// Name printed in positions.
    pub name: Str,
    /// Whole text.
    pub text: Str,
}

impl File {
    /// `name:line:column` of a byte offset; line counts from 1, column from 0, as Go prints it.
    pub fn location(&self, pos: Pos) -> String {
        let upto = &self.text.as_bytes()[..(pos as usize).min(self.text.len())];
        let line = 1 + upto.iter().filter(|b| **b == b'\n').count();
        let column = match upto.iter().rposition(|b| *b == b'\n') {
            Some(i) => upto.len() - i - 1,
            None => upto.len(),
        };
        format!("{}:{line}:{column}", self.name)
    }
}

/// A sequence of nodes.
#[derive(Debug, Default)]
pub struct List {
    /// Position of the first token.
    pub pos: Pos,
    /// The nodes.
    pub nodes: Vec<Node>,
    /// Number of nodes, with those of bodies.
    pub size: usize,
    /// A `break` or `continue` ends a `range` around this body.
    pub leaves: bool,
}

/// A part of a template body.
#[derive(Debug)]
pub enum Node {
    /// Plain text.
    Text(Pos, Str),
    /// `{{ pipeline }}`.
    Action(Pos, Pipe),
    /// `{{ if }}`.
    If(Branch),
    /// `{{ with }}`.
    With(Branch),
    /// `{{ range }}`.
    Range(Branch),
    /// `{{ template "name" pipeline }}`.
    Template(Pos, Str, Option<Pipe>),
    /// `{{ break }}`.
    Break(Pos),
    /// `{{ continue }}`.
    Continue(Pos),
}

/// Condition with its two bodies.
#[derive(Debug)]
pub struct Branch {
    /// Position of the pipeline.
    pub pos: Pos,
    /// Condition, subject or collection.
    pub pipe: Pipe,
    /// Body.
    pub list: Arc<List>,
    /// `else` body.
    pub otherwise: Option<Arc<List>>,
}

/// Commands joined by `|`, with declarations before them.
#[derive(Debug)]
pub struct Pipe {
    /// Position.
    pub pos: Pos,
    /// `$x` or `$k, $v` before `:=` or `=`.
    pub decl: Vec<Var>,
    /// `=` instead of `:=`.
    pub assign: bool,
    /// The commands.
    pub cmds: Vec<Cmd>,
}

/// A variable reference: symbol and fields after it.
#[derive(Debug, Clone)]
pub struct Var {
    /// Position.
    pub pos: Pos,
    /// Number of the variable's name within its template file.
    pub sym: u32,
    /// Name with `$`, then field names.
    pub idents: Vec<Str>,
}

/// A function or operand with arguments.
#[derive(Debug)]
pub struct Cmd {
    /// Position.
    pub pos: Pos,
    /// First word and arguments; never empty.
    pub args: Vec<Expr>,
}

/// An operand.
#[derive(Debug)]
pub enum Expr {
    /// `.a.b`.
    Field(Pos, Vec<Str>),
    /// `(x).a.b`.
    Chain(Pos, Box<Expr>, Vec<Str>),
    /// A function name with its number in the function table.
    Ident(Pos, Str, u16),
    /// A parenthesised pipeline.
    Pipe(Box<Pipe>),
    /// `$x.a`.
    Var(Var),
    /// `.`.
    Dot(Pos),
    /// `nil`.
    Nil(Pos),
    /// `true`, `false`.
    Bool(Pos, bool),
    /// A number.
    Num(Pos, Box<Num>),
    /// A string: as written, and its value.
    Str(Pos, Str, Str),
}

/// A number constant and all readings of it.
#[derive(Debug, Clone, Default)]
pub struct Num {
    /// As written.
    pub text: String,
    /// Signed reading.
    pub int: Option<i64>,
    /// Unsigned reading.
    pub uint: Option<u64>,
    /// Floating reading.
    pub float: Option<f64>,
    /// Imaginary or complex constant.
    pub complex: Option<(f64, f64)>,
}

impl Expr {
    /// Position of the node.
    pub fn pos(&self) -> Pos {
        match self {
            Expr::Field(p, _) | Expr::Chain(p, ..) | Expr::Ident(p, ..) | Expr::Dot(p) | Expr::Nil(p) | Expr::Bool(p, _) | Expr::Num(p, _) | Expr::Str(p, ..) => *p,
            Expr::Pipe(p) => p.pos,
            Expr::Var(v) => v.pos,
        }
    }
}

impl List {
    /// A sequence.
    pub fn new(pos: Pos, nodes: Vec<Node>) -> Self {
        let (mut size, mut leaves) = (nodes.len(), false);
        for node in &nodes {
            match node {
                Node::Break(_) | Node::Continue(_) => leaves = true,
                Node::If(b) | Node::With(b) | Node::Range(b) => {
                    let otherwise = b.otherwise.as_deref();
                    size += b.list.size + otherwise.map_or(0, |o| o.size);
                    leaves |= b.list.leaves && !matches!(node, Node::Range(_)) || otherwise.is_some_and(|o| o.leaves);
                }
                _ => {}
            }
        }
        Self { pos, nodes, size, leaves }
    }

    /// Only blanks and comments?
    pub fn is_empty(&self) -> bool {
        self.nodes.iter().all(|n| match n {
            Node::Text(_, t) => crate::text::go_trim(t.as_bytes()).is_empty(),
            _ => false,
        })
    }
}

/// What an error points at.
#[derive(Clone, Copy)]
pub enum At<'a> {
    /// Nothing yet.
    None,
    /// An operand.
    Expr(&'a Expr),
    /// A pipeline.
    Pipe(&'a Pipe),
    /// A command.
    Cmd(&'a Cmd),
    /// A body part.
    Node(&'a Node),
    /// A variable.
    Var(&'a Var),
}

impl At<'_> {
    /// Position of what is pointed at.
    pub fn pos(&self) -> Pos {
        match self {
            At::None => 0,
            At::Expr(e) => e.pos(),
            At::Pipe(p) => p.pos,
            At::Cmd(c) => c.pos,
            At::Var(v) => v.pos,
            At::Node(n) => match n {
                Node::Text(p, _) | Node::Action(p, _) | Node::Template(p, ..) | Node::Break(p) | Node::Continue(p) => *p,
                Node::If(b) | Node::With(b) | Node::Range(b) => b.pos,
            },
        }
    }
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            At::None => Ok(()),
            At::Expr(e) => e.fmt(f),
            At::Pipe(p) => p.fmt(f),
            At::Cmd(c) => c.fmt(f),
            At::Var(v) => v.fmt(f),
            At::Node(n) => n.fmt(f),
        }
    }
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.nodes.iter().try_for_each(|n| n.fmt(f))
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let branch = |f: &mut fmt::Formatter<'_>, name: &str, b: &Branch| -> fmt::Result {
            write!(f, "{{{{{name} {}}}}}{}", b.pipe, b.list)?;
            if let Some(e) = &b.otherwise {
                write!(f, "{{{{else}}}}{e}")?;
            }
            f.write_str("{{end}}")
        };
        match self {
            Node::Text(_, t) => t.fmt(f),
            Node::Action(_, p) => write!(f, "{{{{{p}}}}}"),
            Node::If(b) => branch(f, "if", b),
            Node::With(b) => branch(f, "with", b),
            Node::Range(b) => branch(f, "range", b),
            Node::Template(_, name, pipe) => {
                write!(f, "{{{{template {}", quote(name.as_bytes()))?;
                if let Some(p) = pipe {
                    write!(f, " {p}")?;
                }
                f.write_str("}}")
            }
            Node::Break(_) => f.write_str("{{break}}"),
            Node::Continue(_) => f.write_str("{{continue}}"),
        }
    }
}

impl fmt::Display for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, v) in self.decl.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            v.fmt(f)?;
        }
        if !self.decl.is_empty() {
            f.write_str(if self.assign { " = " } else { " := " })?;
        }
        for (i, c) in self.cmds.iter().enumerate() {
            if i > 0 {
                f.write_str(" | ")?;
            }
            c.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Cmd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, a) in self.args.iter().enumerate() {
            if i > 0 {
                f.write_str(" ")?;
            }
            match a {
                Expr::Pipe(p) => write!(f, "({p})")?,
                a => a.fmt(f)?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Var {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, s) in self.idents.iter().enumerate() {
            if i > 0 {
                f.write_str(".")?;
            }
            s.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expr::Field(_, names) => names.iter().try_for_each(|n| write!(f, ".{n}")),
            Expr::Chain(_, node, names) => {
                match &**node {
                    Expr::Pipe(p) => write!(f, "({p})")?,
                    n => n.fmt(f)?,
                }
                names.iter().try_for_each(|n| write!(f, ".{n}"))
            }
            Expr::Ident(_, n, _) => n.fmt(f),
            Expr::Pipe(p) => p.fmt(f),
            Expr::Var(v) => v.fmt(f),
            Expr::Dot(_) => f.write_str("."),
            Expr::Nil(_) => f.write_str("nil"),
            Expr::Bool(_, b) => b.fmt(f),
            Expr::Num(_, n) => f.write_str(&n.text),
            Expr::Str(_, q, _) => q.fmt(f),
        }
    }
}
