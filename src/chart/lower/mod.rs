//! Lowering of Go templates to Jinja text with private delimiters; minijinja's virtual machine runs it with Go's meanings.
//!
//! Every Go operation becomes a call of one object, `h(N, …)`, with the number of an operation in a table; control flow becomes
//! Jinja's `if`, `for`, `set`, `break` and `continue`; variables and dots are slots of one namespace. Large bodies of `if` and `with` are
//! lowered when they are first needed, each as a template of its own over the same namespace: most of a chart is switched off.

pub mod vm;

use crate::func::{Special, table};
use crate::template::ast::{Cmd, Expr, List, Node, Pipe, Var};
use crate::value::{Str, Val};
use std::sync::Arc;

/// Opens and closes blocks and prints; these characters are encoded where texts hold them.
pub const OPEN: &str = "\u{1}[";
/// Closes a block.
pub const CLOSE: &str = "]\u{1}";
/// Opens a print.
pub const PRINT: &str = "\u{1}(";
/// Closes a print.
pub const END: &str = ")\u{1}";

/// What a numbered call does.
#[derive(Debug)]
pub enum Op {
    /// Gives a constant.
    Const(Val),
    /// Walks fields; the first argument is the receiver.
    Field(Vec<Str>),
    /// A field or method with arguments: name, number of written arguments, whether a value from the pipe comes before the receiver.
    Method(Str, usize, bool),
    /// A function: its number, number of written arguments, and whether a value from the pipe comes before them.
    Call(u16, usize, bool),
    /// A pipeline's value: nil counts as no value.
    Settle,
    /// A literal argument that only its place can type: function, parameter, literal's text.
    Range(bool),
    /// `template`: executes another one.
    Template(Str),
    /// Executes a body that is lowered when it is first needed; the arguments are the namespace and the dot.
    Later(Box<Later>),
}

/// A body to lower when it is needed.
#[derive(Debug)]
pub struct Later {
    list: Arc<List>,
    vars: Vec<(u32, usize)>,
    slots: usize,
    ready: vm::Once,
}

/// Bodies with fewer nodes are lowered at once. Random templates of the tests are small.
const LARGE: usize = if cfg!(test) { 2 } else { 8 };

/// A lowered template.
#[derive(Debug, Default)]
pub struct Lowered {
    /// Jinja text.
    pub source: String,
    /// Operations by number.
    pub ops: Vec<Op>,
}

/// Nothing that Jinja can express (or only by help of the evaluator).
pub struct Unsupported;

struct Lower {
    out: Lowered,
    /// Open variables: symbol and slot.
    vars: Vec<(u32, usize)>,
    slots: usize,
}

type Res<T> = Result<T, Unsupported>;

/// Bytes that Jinja's text cannot hold travel as characters of the last private plane.
pub fn encode(b: &[u8], out: &mut String) {
    if let Ok(s) = std::str::from_utf8(b)
        && !s.contains('\u{1}')
    {
        out.push_str(s);
        return;
    }
    for (i, c, w) in crate::text::runes(b) {
        if c == '\u{FFFD}' && w == 1 || c == '\u{1}' {
            out.push(char::from_u32(0x10_FE00 + b[i] as u32).unwrap_or(c));
        } else {
            out.push(c);
        }
    }
}

/// Back to bytes.
pub fn decode(s: &str, out: &mut Vec<u8>) {
    // The first byte of all of plane 16, where bytes that are no text are kept.
    if !s.as_bytes().contains(&0xF4) {
        out.extend_from_slice(s.as_bytes());
        return;
    }
    let mut buf = [0; 4];
    for c in s.chars() {
        match c as u32 {
            u @ 0x10_FE00..=0x10_FEFF => out.push((u - 0x10_FE00) as u8),
            _ => out.extend_from_slice(c.encode_utf8(&mut buf).as_bytes()),
        }
    }
}

/// Lowers a template; it runs with a namespace `ns` and the dot `d0`.
pub fn lower(root: &List) -> Res<Lowered> {
    let mut l = Lower { out: Lowered::default(), vars: vec![(0, 0)], slots: 1 };
    l.block("set ns.v0 = d0");
    l.list(root, "d0")?;
    Ok(l.out)
}

/// Lowers a body that was left for later; it runs with the namespace of what surrounds it.
fn lower_later(later: &Later) -> Res<Lowered> {
    let mut l = Lower { out: Lowered::default(), vars: later.vars.clone(), slots: later.slots };
    l.list(&later.list, "d0")?;
    Ok(l.out)
}

/// Counts nodes up to [`LARGE`]; `None` where a `break` or `continue` leaves the body, which has to be inside its loop then.
fn weight(list: &List, in_loop: bool) -> Option<usize> {
    let mut sum = 0;
    for node in &list.nodes {
        sum += 1;
        match node {
            Node::Break(_) | Node::Continue(_) if !in_loop => return None,
            Node::If(b) | Node::With(b) | Node::Range(b) => {
                let in_body = in_loop || matches!(node, Node::Range(_));
                sum += weight(&b.list, in_body)? + b.otherwise.as_ref().map_or(Some(0), |o| weight(o, in_loop))?;
            }
            _ => {}
        }
    }
    Some(sum)
}

impl Lower {
    fn op(&mut self, op: Op) -> usize {
        self.out.ops.push(op);
        self.out.ops.len() - 1
    }

    fn emit(&mut self, s: &str) {
        self.out.source.push_str(s);
    }

    fn block(&mut self, s: &str) {
        self.out.source.push_str(OPEN);
        self.out.source.push(' ');
        self.out.source.push_str(s);
        self.out.source.push(' ');
        self.out.source.push_str(CLOSE);
    }

    fn slot(&mut self) -> usize {
        self.slots += 1;
        self.slots - 1
    }

    fn list(&mut self, l: &List, dot: &str) -> Res<()> {
        l.nodes.iter().try_for_each(|n| self.node(n, dot))
    }

    /// A body: here, or for later when it is large.
    fn body(&mut self, list: &Arc<List>, dot: &str) -> Res<()> {
        if weight(list, false).is_none_or(|weight| weight < LARGE) {
            return self.list(list, dot);
        }
        let n = self.op(Op::Later(Box::new(Later { list: list.clone(), vars: self.vars.clone(), slots: self.slots, ready: vm::Once::default() })));
        self.emit(&format!("{PRINT}h({n}, ns, {dot}){END}"));
        Ok(())
    }

    fn node(&mut self, n: &Node, dot: &str) -> Res<()> {
        match n {
            Node::Text(_, t) => {
                let mut s = String::new();
                encode(t.as_bytes(), &mut s);
                self.emit(&s);
            }
            Node::Action(_, p) => {
                let e = self.pipe(p, dot)?;
                if p.decl.is_empty() {
                    self.emit(PRINT);
                    self.emit(&e);
                    self.emit(END);
                } else {
                    self.declare(p, &e)?;
                }
            }
            Node::If(b) => {
                let mark = self.vars.len();
                let mut cond = self.pipe(&b.pipe, dot)?;
                if !b.pipe.decl.is_empty() {
                    cond = self.declare(&b.pipe, &cond)?;
                }
                self.block(&format!("if {cond}"));
                self.body(&b.list, dot)?;
                let mut tail = b.otherwise.as_ref();
                while let Some(l) = tail {
                    // An `else if` without declarations continues the chain.
                    match &l.nodes[..] {
                        [Node::If(c)] if c.pipe.decl.is_empty() => {
                            self.vars.truncate(mark);
                            let e = self.pipe(&c.pipe, dot)?;
                            self.block(&format!("elif {e}"));
                            self.body(&c.list, dot)?;
                            tail = c.otherwise.as_ref();
                        }
                        _ => {
                            self.block("else");
                            self.body(l, dot)?;
                            tail = None;
                        }
                    }
                }
                self.block("endif");
                self.vars.truncate(mark);
            }
            Node::With(b) => {
                let mark = self.vars.len();
                let e = self.pipe(&b.pipe, dot)?;
                let s = self.slot();
                let inner = format!("ns.v{s}");
                self.block(&format!("set {inner} = {e}"));
                if !b.pipe.decl.is_empty() {
                    self.declare(&b.pipe, &inner)?;
                }
                self.block(&format!("if {inner}"));
                self.body(&b.list, &inner)?;
                if let Some(o) = &b.otherwise {
                    self.block("else");
                    self.body(o, dot)?;
                }
                self.block("endif");
                self.vars.truncate(mark);
            }
            Node::Range(b) => {
                let mark = self.vars.len();
                let e = self.pipe(&b.pipe, dot)?;
                let n = self.op(Op::Range(b.pipe.decl.len() > 1));
                let s = self.slot();
                self.block(&format!("for (k{s}, e{s}) in h({n}, {e})"));
                let (k, d) = (format!("k{s}"), format!("e{s}"));
                match &b.pipe.decl[..] {
                    [] => {}
                    [v] => self.bind(v, b.pipe.assign, &d)?,
                    [i, v] => {
                        self.bind(i, b.pipe.assign, &k)?;
                        self.bind(v, b.pipe.assign, &d)?;
                    }
                    _ => return Err(Unsupported),
                }
                self.list(&b.list, &d)?;
                if let Some(o) = &b.otherwise {
                    self.block("else");
                    self.list(o, dot)?;
                }
                self.block("endfor");
                self.vars.truncate(mark);
            }
            Node::Template(_, name, pipe) => {
                let arg = match pipe {
                    Some(p) => {
                        if !p.decl.is_empty() {
                            return Err(Unsupported);
                        }
                        format!(", {}", self.pipe(p, dot)?)
                    }
                    None => String::new(),
                };
                let n = self.op(Op::Template(name.clone()));
                self.emit(&format!("{PRINT}h({n}{arg}){END}"));
            }
            Node::Break(_) => self.block("break"),
            Node::Continue(_) => self.block("continue"),
        }
        Ok(())
    }

    /// Stores a pipeline's value in its variable; gives the variable.
    fn declare(&mut self, p: &Pipe, e: &str) -> Res<String> {
        let [v] = &p.decl[..] else { return Err(Unsupported) };
        self.bind(v, p.assign, e)?;
        self.var(v.sym)
    }

    fn bind(&mut self, v: &Var, assign: bool, e: &str) -> Res<()> {
        let name = if assign {
            self.var(v.sym)?
        } else {
            let s = self.slot();
            self.vars.push((v.sym, s));
            format!("ns.v{s}")
        };
        self.block(&format!("set {name} = {e}"));
        Ok(())
    }

    fn var(&self, sym: u32) -> Res<String> {
        match self.vars.iter().rev().find(|(s, _)| *s == sym) {
            Some((_, 0)) => Ok("ns.v0".into()),
            Some((_, s)) => Ok(format!("ns.v{s}")),
            None => Err(Unsupported),
        }
    }

    fn pipe(&mut self, p: &Pipe, dot: &str) -> Res<String> {
        let mut value: Option<String> = None;
        for c in &p.cmds {
            value = Some(self.command(c, dot, value)?);
        }
        let n = self.op(Op::Settle);
        Ok(format!("h({n}, {})", value.ok_or(Unsupported)?))
    }

    fn command(&mut self, c: &Cmd, dot: &str, last: Option<String>) -> Res<String> {
        let (first, args) = (&c.args[0], &c.args[1..]);
        match first {
            Expr::Ident(_, _, f) => self.call(*f, args, dot, last),
            Expr::Field(_, names) if args.is_empty() && last.is_none() => Ok(self.fields(dot.into(), names)),
            Expr::Field(_, names) => self.method(dot.into(), names, args, dot, last),
            Expr::Chain(_, node, names) => {
                let r = self.operand(node, dot)?;
                if args.is_empty() && last.is_none() { Ok(self.fields(r, names)) } else { self.method(r, names, args, dot, last) }
            }
            Expr::Var(v) => {
                let r = self.var(v.sym)?;
                if v.idents.len() == 1 || args.is_empty() && last.is_none() {
                    if !args.is_empty() || last.is_some() {
                        return Err(Unsupported);
                    }
                    return Ok(self.fields(r, &v.idents[1..]));
                }
                self.method(r, &v.idents[1..], args, dot, last)
            }
            Expr::Nil(_) => Err(Unsupported),
            _ if !args.is_empty() || last.is_some() => Err(Unsupported),
            e => self.operand(e, dot),
        }
    }

    fn fields(&mut self, r: String, names: &[Str]) -> String {
        if names.is_empty() {
            return r;
        }
        let n = self.op(Op::Field(names.to_vec()));
        format!("h({n}, {r})")
    }

    fn method(&mut self, r: String, names: &[Str], args: &[Expr], dot: &str, last: Option<String>) -> Res<String> {
        let Some((name, before)) = names.split_last() else { return Err(Unsupported) };
        let piped = last.is_some();
        // What comes through the pipe is evaluated first.
        let mut s: Vec<String> = last.into_iter().collect();
        s.push(self.fields(r, before));
        for a in args {
            s.push(self.operand(a, dot)?);
        }
        let n = self.op(Op::Method(name.clone(), args.len(), piped));
        Ok(format!("h({n}, {})", s.join(", ")))
    }

    fn call(&mut self, f: u16, args: &[Expr], dot: &str, last: Option<String>) -> Res<String> {
        let func = &table()[f as usize];
        if matches!(func.special, Special::And | Special::Or) {
            if args.is_empty() && last.is_none() {
                return Err(Unsupported);
            }
            // Evaluated before the others, although it may not count: only what cannot fail or change anything can wait.
            if last.as_deref().is_some_and(|last| last != dot && !last.starts_with("ns.v")) {
                return Err(Unsupported);
            }
            let word = if func.special == Special::And { " and " } else { " or " };
            let mut s = Vec::new();
            for a in args {
                s.push(self.operand(a, dot)?);
            }
            s.extend(last);
            return Ok(format!("({})", s.join(word)));
        }
        let piped = last.is_some();
        let mut s: Vec<String> = last.into_iter().collect();
        for (i, a) in args.iter().enumerate() {
            let ty = func.params.get(i).copied().or(func.rest);
            // Literals take the type of their parameter here, where the parameter is known.
            match ty.and_then(|t| crate::template::eval::literal(a, t)) {
                Some(Ok(v)) => s.push(self.constant(v)),
                Some(Err(_)) => return Err(Unsupported),
                None => s.push(self.operand(a, dot)?),
            }
        }
        let n = self.op(Op::Call(f, args.len(), piped));
        let sep = if s.is_empty() { "" } else { ", " };
        Ok(format!("h({n}{sep}{})", s.join(", ")))
    }

    fn constant(&mut self, v: Val) -> String {
        let n = self.op(Op::Const(v));
        format!("h({n})")
    }

    fn operand(&mut self, e: &Expr, dot: &str) -> Res<String> {
        Ok(match e {
            Expr::Dot(_) => dot.into(),
            Expr::Field(_, names) => self.fields(dot.into(), names),
            Expr::Chain(_, node, names) => {
                let r = self.operand(node, dot)?;
                self.fields(r, names)
            }
            Expr::Var(v) => {
                let r = self.var(v.sym)?;
                self.fields(r, &v.idents[1..])
            }
            Expr::Pipe(p) => {
                if !p.decl.is_empty() {
                    return Err(Unsupported);
                }
                self.pipe(p, dot)?
            }
            Expr::Ident(_, _, f) => self.call(*f, &[], dot, None)?,
            Expr::Nil(_) => self.constant(Val::No),
            Expr::Bool(_, b) => self.constant(Val::Bool(*b)),
            Expr::Num(_, n) => {
                let v = crate::template::eval::ideal(n).map_err(|_| Unsupported)?;
                self.constant(v)
            }
            Expr::Str(_, _, s) => self.constant(Val::Str(s.clone())),
        })
    }
}
