//! The direct evaluator: walks the syntax tree with Go's rules and reports faults where Go does.

use super::ast::{At, Branch, Cmd, Expr, File, List, Node, Num, Pipe, Var};
use super::method;
use crate::func::{Func, GoErr, Special, Ty, table};
use crate::run::Runtime;
use crate::text::fmt::{sprint, write_v};
use crate::text::quote::quote;
use crate::value::{ListTy, Obj, Str, Val};
use std::sync::Arc;

/// A value and whether it sits in an interface (an element of a map or list), which only error texts tell apart.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The value.
    pub v: Val,
    /// Inside an interface.
    pub iface: bool,
}

impl Cell {
    /// A value by itself.
    pub fn plain(v: Val) -> Self {
        Self { v, iface: false }
    }
    /// Static type for error texts.
    pub fn type_name(&self) -> &'static str {
        if self.iface { "interface {}" } else { self.v.static_type() }
    }
}

/// Where execution goes on.
pub(super) enum Flow {
    Next,
    Break,
    Continue,
}

type Res<T> = Result<T, GoErr>;

/// A template that is being executed.
pub(super) struct State<'t, 'x> {
    pub(super) rt: &'x mut Runtime,
    pub(super) name: &'t Str,
    pub(super) file: &'t Arc<File>,
    pub(super) node: At<'t>,
    pub(super) vars: &'x mut Vec<(u32, Cell)>,
    pub(super) out: &'x mut Vec<u8>,
}

/// The text of an execution fault at a place.
pub fn exec_error(file: &File, name: &Str, at: &At<'_>, text: &str, source: Option<GoErr>) -> GoErr {
    let head = format!("template: {}: executing {} at <{}>: {text}", file.location(at.pos()), quote(name.as_bytes()), at);
    let fatal = source.as_ref().is_some_and(|s| s.fatal);
    GoErr { head, exec: true, source: source.map(Box::new), fatal }
}

/// Fits a value to a parameter type, or says what is wrong.
pub fn validate(v: Val, ty: Ty) -> Result<Val, String> {
    let ok = match (ty, &v) {
        (_, Val::No) => {
            return if ty.nilable() {
                Ok(if ty == Ty::Value { Val::No } else { Val::Nil })
            } else {
                Err(format!("invalid value; expected {}", ty.name()))
            };
        }
        (Ty::Any | Ty::Value, _) => true,
        (Ty::Str, Val::Str(_)) | (Ty::Int, Val::Int(_)) | (Ty::Bool, Val::Bool(_)) | (Ty::Float, Val::Float(_)) => true,
        (Ty::Map, Val::Map(m)) => m.is_plain(),
        (Ty::List, Val::List(l)) => l.ty == ListTy::Any,
        (Ty::Time, Val::Obj(o)) => matches!(&**o, Obj::Time(_)),
        (Ty::Cert, Val::Obj(o)) => matches!(&**o, Obj::Cert(_)),
        _ => false,
    };
    if ok { Ok(v) } else { Err(format!("wrong type for value; expected {}; got {}", ty.name(), v.static_type())) }
}

/// The value of a number constant where its use does not say the type.
pub fn ideal(n: &Num) -> Result<Val, String> {
    if let Some((a, b)) = n.complex {
        return Ok(Val::obj(Obj::Complex(a, b)));
    }
    let t = &n.text;
    let hex = t.len() > 2 && t.starts_with('0') && matches!(t.as_bytes()[1], b'x' | b'X') && !t.contains(['p', 'P']);
    if let Some(f) = n.float
        && !hex
        && !t.starts_with('\'')
        && t.contains(['.', 'e', 'E', 'p', 'P'])
    {
        return Ok(Val::Float(f));
    }
    match n.int {
        Some(i) => Ok(Val::Int(i)),
        None => Err(format!("{t} overflows int")),
    }
}

/// A literal as an argument of a type; `None` if the node is no literal.
pub fn literal(e: &Expr, ty: Ty) -> Option<Result<Val, String>> {
    let found = |want: &str| Some(Err(format!("expected {want}; found {e}")));
    Some(match (ty, e) {
        (_, Expr::Nil(_)) => {
            if ty.nilable() {
                Ok(if ty == Ty::Value { Val::No } else { Val::Nil })
            } else {
                Err(format!("cannot assign nil to {}", ty.name()))
            }
        }
        (Ty::Any | Ty::Value, Expr::Bool(_, b)) | (Ty::Bool, Expr::Bool(_, b)) => Ok(Val::Bool(*b)),
        (Ty::Any | Ty::Value, Expr::Num(_, n)) => ideal(n),
        (Ty::Any | Ty::Value, Expr::Str(_, _, s)) | (Ty::Str, Expr::Str(_, _, s)) => Ok(Val::Str(s.clone())),
        (Ty::Int, Expr::Num(_, n)) if n.int.is_some() => Ok(Val::Int(n.int.unwrap_or(0))),
        (Ty::Uint32, Expr::Num(_, n)) if n.uint.is_some() => Ok(Val::Int(n.uint.unwrap_or(0) as u32 as i64)),
        (Ty::Float, Expr::Num(_, n)) if n.float.is_some() => Ok(Val::Float(n.float.unwrap_or(0.0))),
        (_, Expr::Bool(..) | Expr::Num(..) | Expr::Str(..)) => {
            return match ty {
                Ty::Bool => found("bool"),
                Ty::Int => found("integer"),
                Ty::Uint32 => found("unsigned integer"),
                Ty::Float => found("float"),
                Ty::Str => found("string"),
                _ => Some(Err(format!("can't handle {e} for arg of type {}", ty.name()))),
            };
        }
        _ => return None,
    })
}

/// Says how a call has too few or too many arguments.
pub fn arity(name: &str, params: usize, variadic: bool, written: usize, given: usize) -> Option<String> {
    if variadic {
        (given < params).then(|| format!("wrong number of args for {name}: want at least {params} got {written}"))
    } else {
        (given != params).then(|| format!("wrong number of args for {name}: want {params} got {given}"))
    }
}

/// Appends a value as an action prints it.
pub fn print(out: &mut Vec<u8>, v: &Val) {
    match v {
        Val::No => out.extend_from_slice(b"<no value>"),
        Val::Str(s) => out.extend_from_slice(s.as_bytes()),
        // A pointer is followed before it is printed.
        Val::Obj(o) if matches!(&**o, Obj::Caps(_)) => {
            let s = sprint(v);
            out.extend_from_slice(s.strip_prefix('&').unwrap_or(&s).as_bytes());
        }
        v => write_v(out, v),
    }
}

/// What `range` walks over.
enum Items {
    /// A number: 0 to n-1, as int or int64.
    Count(i64, bool),
    /// A list.
    List(Arc<crate::value::List>),
    /// A map's sorted entries, and whether they sit in interfaces.
    Map(std::vec::IntoIter<(Str, Val)>, bool),
}

/// A `range` that is under way.
pub(super) struct Walk {
    items: Items,
    next: usize,
    /// Number of variables at the start of a round.
    mark: usize,
}

impl Walk {
    /// What `range` walks over; `Err` is Go's complaint.
    fn new(v: &Val, two: bool, mark: usize) -> Result<Self, String> {
        let number = |n: i64, wide: bool| {
            if two {
                return Err(format!("can't use {n} to iterate over more than one variable"));
            }
            Ok(Items::Count(n.max(0), wide))
        };
        let items = match v {
            Val::No => Items::Count(0, false),
            Val::Nil => return Err("range can't iterate over <nil>".into()),
            Val::Int(n) => number(*n, false)?,
            Val::Int64(n) => number(*n, true)?,
            Val::Byte(n) => number(*n as i64, false)?,
            Val::List(l) => Items::List(l.clone()),
            Val::Map(m) => Items::Map(m.entries().into_iter(), m.is_plain()),
            v => return Err(format!("range can't iterate over {}", sprint(v))),
        };
        Ok(Self { items, next: 0, mark })
    }

    /// Rounds that are left.
    pub(super) fn len(&self) -> usize {
        match &self.items {
            Items::Count(n, _) => usize::try_from(*n).unwrap_or_default() - self.next,
            Items::List(l) => l.v.len() - self.next,
            Items::Map(entries, _) => entries.len(),
        }
    }

    /// Number of variables at the start of a round.
    pub(super) fn mark(&self) -> usize {
        self.mark
    }

    /// Index and element of the next round.
    pub(super) fn next(&mut self) -> Option<(Val, Cell)> {
        if self.len() == 0 {
            return None;
        }
        let i = self.next;
        self.next += 1;
        Some(match &mut self.items {
            Items::Count(_, wide) => (Val::No, Cell::plain(if *wide { Val::Int64(i as i64) } else { Val::Int(i as i64) })),
            Items::List(l) => (Val::Int(i as i64), Cell { v: l.v[i].clone(), iface: l.ty == ListTy::Any }),
            Items::Map(entries, iface) => entries.next().map(|(k, v)| (Val::Str(k), Cell { v, iface: *iface }))?,
        })
    }
}

impl<'t> State<'t, '_> {
    fn fail<T>(&self, text: impl AsRef<str>) -> Res<T> {
        Err(exec_error(self.file, self.name, &self.node, text.as_ref(), None))
    }

    pub(super) fn list(&mut self, dot: &Cell, l: &'t List) -> Res<Flow> {
        for n in &l.nodes {
            match self.walk(dot, n)? {
                Flow::Next => {}
                f => return Ok(f),
            }
        }
        Ok(Flow::Next)
    }

    pub(super) fn walk(&mut self, dot: &Cell, n: &'t Node) -> Res<Flow> {
        self.rt.burn(1)?;
        self.node = At::Node(n);
        match n {
            Node::Text(_, t) => self.out.extend_from_slice(t.as_bytes()),
            Node::Action(_, p) => {
                let v = self.pipeline(dot, p)?;
                if p.decl.is_empty() {
                    self.node = At::Node(n);
                    print(self.out, &v);
                }
            }
            Node::If(b) => return self.branch(dot, b, false),
            Node::With(b) => return self.branch(dot, b, true),
            Node::Range(b) => return self.range(dot, b),
            Node::Break(_) => return Ok(Flow::Break),
            Node::Continue(_) => return Ok(Flow::Continue),
            Node::Template(_, name, pipe) => self.template(dot, name, pipe.as_ref())?,
        }
        Ok(Flow::Next)
    }

    fn branch(&mut self, dot: &Cell, b: &'t Branch, with: bool) -> Res<Flow> {
        let mark = self.vars.len();
        let v = self.pipeline(dot, &b.pipe)?;
        let r = if v.truth() {
            if with { self.nested(&Cell::plain(v), &b.list) } else { self.nested(dot, &b.list) }
        } else if let Some(e) = &b.otherwise {
            self.nested(dot, e)
        } else {
            Ok(Flow::Next)
        };
        self.vars.truncate(mark);
        r
    }

    fn nested(&mut self, dot: &Cell, l: &'t List) -> Res<Flow> {
        stacker::maybe_grow(64 << 10, 1 << 20, || self.list(dot, l))
    }

    /// Starts a range.
    pub(super) fn walk_over(&mut self, dot: &Cell, b: &'t Branch) -> Res<Walk> {
        let v = self.pipeline(dot, &b.pipe)?;
        match Walk::new(&v, b.pipe.decl.len() > 1, self.vars.len()) {
            Ok(walk) => Ok(walk),
            Err(e) => self.fail(e),
        }
    }

    /// Sets the variables of a round; `mark` is the number of variables at its start.
    pub(super) fn bind(&mut self, b: &'t Branch, mark: usize, index: Val, element: &Cell) -> Res<()> {
        self.rt.burn(1)?;
        match &b.pipe.decl[..] {
            [] => {}
            [v] if b.pipe.assign => self.set(v, element.clone()),
            [k, v] if b.pipe.assign => {
                self.set(k, Cell::plain(index));
                self.set(v, element.clone());
            }
            [_] => self.vars[mark - 1].1 = element.clone(),
            _ => {
                self.vars[mark - 1].1 = element.clone();
                self.vars[mark - 2].1 = Cell::plain(index);
            }
        }
        Ok(())
    }

    fn range(&mut self, dot: &Cell, b: &'t Branch) -> Res<Flow> {
        let outer = self.vars.len();
        let mut walk = self.walk_over(dot, b)?;
        let mut flow = Flow::Next;
        if let (0, Some(otherwise)) = (walk.len(), &b.otherwise) {
            flow = self.nested(dot, otherwise)?;
        }
        while let Some((index, element)) = walk.next() {
            self.bind(b, walk.mark, index, &element)?;
            let round = self.nested(&element, &b.list)?;
            self.vars.truncate(walk.mark);
            if matches!(round, Flow::Break) {
                break;
            }
        }
        self.vars.truncate(outer);
        Ok(flow)
    }

    fn template(&mut self, dot: &Cell, name: &'t Str, pipe: Option<&'t Pipe>) -> Res<()> {
        let Some(tree) = self.rt.set.get(name.as_bytes()) else {
            return self.fail(format!("template {} not defined", quote(name.as_bytes())));
        };
        let data = match pipe {
            Some(p) => self.pipeline(dot, p)?,
            None => Val::No,
        };
        if let Err(e) = self.rt.enter() {
            return self.fail(e.text()).map_err(|mut x: GoErr| {
                x.fatal = true;
                x
            });
        }
        let from = self.out.len();
        self.rt.dispatch(&tree, data, self.out)?;
        self.rt.leave();
        self.rt.grew(self.out.len() - from)
    }

    fn set(&mut self, v: &Var, c: Cell) {
        if let Some(slot) = self.vars.iter_mut().rev().find(|(s, _)| *s == v.sym) {
            slot.1 = c;
        }
    }

    pub(super) fn pipeline(&mut self, dot: &Cell, p: &'t Pipe) -> Res<Val> {
        self.node = At::Pipe(p);
        let mut value: Option<Val> = None;
        for c in &p.cmds {
            let v = self.command(dot, c, value)?.v;
            value = Some(if matches!(v, Val::Nil) { Val::No } else { v });
        }
        let value = value.unwrap_or_default();
        for d in &p.decl {
            let c = Cell::plain(value.clone());
            if p.assign {
                self.set(d, c);
            } else {
                self.vars.push((d.sym, c));
            }
        }
        Ok(value)
    }

    fn no_function<T>(&self, args: &[Expr], last: &Option<Val>, then: impl FnOnce() -> T) -> Res<T> {
        if args.len() > 1 || last.is_some() {
            return self.fail(format!("can't give argument to non-function {}", args[0]));
        }
        Ok(then())
    }

    fn command(&mut self, dot: &Cell, c: &'t Cmd, last: Option<Val>) -> Res<Cell> {
        let first = &c.args[0];
        match first {
            Expr::Field(_, names) => {
                self.node = At::Expr(first);
                return self.chain(dot, dot.clone(), first, names, &c.args[1..], last);
            }
            Expr::Chain(..) => return self.chain_node(dot, first, &c.args[1..], last),
            Expr::Ident(..) => return self.function(dot, first, At::Cmd(c), &c.args[1..], last),
            Expr::Pipe(p) => {
                self.no_function(&c.args, &last, || ())?;
                return self.sub(dot, p);
            }
            Expr::Var(v) => return self.variable(dot, first, v, &c.args, last),
            _ => {}
        }
        self.node = At::Expr(first);
        self.no_function(&c.args, &last, || ())?;
        Ok(match first {
            Expr::Bool(_, b) => Cell::plain(Val::Bool(*b)),
            Expr::Dot(_) => dot.clone(),
            Expr::Num(_, n) => match ideal(n) {
                Ok(v) => Cell::plain(v),
                Err(e) => return self.fail(e),
            },
            Expr::Str(_, _, s) => Cell::plain(Val::Str(s.clone())),
            _ => return self.fail("nil is not a command"),
        })
    }

    fn sub(&mut self, dot: &Cell, p: &'t Pipe) -> Res<Cell> {
        stacker::maybe_grow(64 << 10, 1 << 20, || self.pipeline(dot, p)).map(Cell::plain)
    }

    fn variable(&mut self, dot: &Cell, e: &'t Expr, v: &'t Var, args: &'t [Expr], last: Option<Val>) -> Res<Cell> {
        self.node = At::Expr(e);
        let Some(value) = self.vars.iter().rev().find(|(s, _)| *s == v.sym).map(|(_, c)| c.clone()) else {
            return self.fail(format!("undefined variable: {}", v.idents[0]));
        };
        if v.idents.len() == 1 {
            if !args.is_empty() {
                self.no_function(args, &last, || ())?;
            }
            return Ok(value);
        }
        let rest = if args.is_empty() { &[][..] } else { &args[1..] };
        self.chain(dot, value, e, &v.idents[1..], rest, last)
    }

    fn chain_node(&mut self, dot: &Cell, e: &'t Expr, args: &'t [Expr], last: Option<Val>) -> Res<Cell> {
        let Expr::Chain(_, node, fields) = e else { return self.fail("internal error") };
        self.node = At::Expr(e);
        if matches!(**node, Expr::Nil(_)) {
            return self.fail(format!("indirection through explicit nil in {e}"));
        }
        self.node = At::Expr(node);
        let receiver = match &**node {
            Expr::Pipe(p) => self.sub(dot, p)?,
            Expr::Ident(..) => self.function(dot, node, At::Expr(node), &[], None)?,
            _ => return self.fail("internal error"),
        };
        // The chain is what faults of its fields point at.
        self.chain(dot, receiver, e, fields, args, last)
    }

    fn chain(&mut self, dot: &Cell, receiver: Cell, node: &'t Expr, names: &'t [Str], args: &'t [Expr], last: Option<Val>) -> Res<Cell> {
        let mut r = receiver;
        let n = names.len();
        let mut last = last;
        for (i, name) in names.iter().enumerate() {
            let end = i + 1 == n;
            r = self.field(dot, r, node, name, if end { args } else { &[] }, if end { last.take() } else { None })?;
        }
        Ok(r)
    }

    fn field(&mut self, dot: &Cell, r: Cell, node: &'t Expr, name: &'t Str, args: &'t [Expr], last: Option<Val>) -> Res<Cell> {
        match &r.v {
            Val::No => return Ok(Cell::plain(Val::No)),
            Val::Nil => return self.fail(format!("nil pointer evaluating interface {{}}.{name}")),
            Val::Map(m) => {
                if let Some(method) = method::find(&r.v, name.as_bytes()) {
                    return self.method(dot, &r.v, method, node, name, args, last);
                }
                if !args.is_empty() || last.is_some() {
                    return self.fail(format!("{name} is not a method but has arguments"));
                }
                let iface = m.is_plain();
                let v = m.get(name.as_bytes()).unwrap_or_else(|| crate::func::zero_element(m.ty));
                return Ok(Cell { v, iface });
            }
            Val::Obj(_) | Val::List(_) => {
                if let Some(method) = method::find(&r.v, name.as_bytes()) {
                    return self.method(dot, &r.v, method, node, name, args, last);
                }
                if let Some(v) = method::field(&r.v, name.as_bytes()) {
                    if !args.is_empty() || last.is_some() {
                        return self.fail(format!("{name} has arguments but cannot be invoked as function"));
                    }
                    return Ok(Cell::plain(v));
                }
            }
            _ => {}
        }
        self.fail(format!("can't evaluate field {name} in type {}", r.type_name()))
    }

    #[expect(clippy::too_many_arguments, reason = "mirrors the parts of a call: receiver, node, name, arguments")]
    fn method(&mut self, dot: &Cell, receiver: &Val, m: &'static method::Method, node: &'t Expr, name: &Str, args: &'t [Expr], last: Option<Val>) -> Res<Cell> {
        let text = name.text();
        let argv = self.arguments(dot, &text, m.params, m.rest, args, last)?;
        match (m.body)(self.rt, receiver, &argv) {
            Ok(v) => Ok(Cell::plain(v)),
            Err(e) => {
                self.node = At::Expr(node);
                Err(exec_error(self.file, self.name, &self.node, &format!("error calling {text}: "), Some(e)))
            }
        }
    }

    fn function(&mut self, dot: &Cell, e: &'t Expr, at: At<'t>, args: &'t [Expr], last: Option<Val>) -> Res<Cell> {
        self.node = At::Expr(e);
        let Expr::Ident(_, name, number) = e else { return self.fail("internal error") };
        let f: &'static Func = &table()[*number as usize];
        self.rt.burn(1)?;
        match f.special {
            Special::And | Special::Or => return self.logic(dot, f, args, last).map(Cell::plain),
            Special::Call if args.len() + usize::from(last.is_some()) > 0 => {
                let argv = self.arguments(dot, f.name, f.params, f.rest, args, last)?;
                let callee = args.first().map_or_else(|| argv[0].as_str().map_or_else(|| format!("<{} Value>", argv[0].type_name()), |s| s.to_string()), |a| a.to_string());
                let text = match &argv[0] {
                    v if v.is_some() => format!("non-function {callee} of type {}", v.type_name()),
                    _ => "call of nil".into(),
                };
                self.node = at;
                return Err(exec_error(self.file, self.name, &self.node, &format!("error calling {name}: "), Some(GoErr::new(text))));
            }
            _ => {}
        }
        let argv = self.arguments(dot, f.name, f.params, f.rest, args, last)?;
        match (f.body)(self.rt, &argv).and_then(|v| self.rt.bounded(v)) {
            Ok(v) => Ok(Cell::plain(v)),
            Err(err) => {
                self.node = at;
                Err(exec_error(self.file, self.name, &self.node, &format!("error calling {name}: "), Some(err)))
            }
        }
    }

    fn logic(&mut self, dot: &Cell, f: &Func, args: &'t [Expr], last: Option<Val>) -> Res<Val> {
        if let Some(e) = arity(f.name, 1, true, args.len(), args.len() + usize::from(last.is_some())) {
            return self.fail(e);
        }
        let mut v = Val::No;
        for a in args {
            v = self.arg(dot, Ty::Value, a)?;
            if v.truth() == (f.special == Special::Or) {
                return Ok(v);
            }
        }
        Ok(last.unwrap_or(v))
    }

    fn arguments(&mut self, dot: &Cell, name: &str, params: &'static [Ty], rest: Option<Ty>, args: &'t [Expr], last: Option<Val>) -> Res<Vec<Val>> {
        let given = args.len() + usize::from(last.is_some());
        if let Some(e) = arity(name, params.len(), rest.is_some(), args.len(), given) {
            return self.fail(e);
        }
        let mut argv = Vec::with_capacity(given);
        let ty = |i: usize| params.get(i).copied().or(rest).unwrap_or(Ty::Any);
        for (i, a) in args.iter().enumerate() {
            let v = self.arg(dot, ty(i), a)?;
            argv.push(v);
        }
        if let Some(v) = last {
            match validate(v, ty(given - 1)) {
                Ok(v) => argv.push(v),
                Err(e) => return self.fail(e),
            }
        }
        Ok(argv)
    }

    fn arg(&mut self, dot: &Cell, ty: Ty, e: &'t Expr) -> Res<Val> {
        self.node = At::Expr(e);
        let c = match e {
            Expr::Dot(_) => dot.clone(),
            Expr::Field(_, names) => self.chain(dot, dot.clone(), e, names, &[], None)?,
            Expr::Var(v) => self.variable(dot, e, v, &[], None)?,
            Expr::Pipe(p) => self.sub(dot, p)?,
            Expr::Ident(..) => self.function(dot, e, At::Expr(e), &[], None)?,
            Expr::Chain(..) => self.chain_node(dot, e, &[], None)?,
            _ => match literal(e, ty) {
                Some(Ok(v)) => return Ok(v),
                Some(Err(m)) => return self.fail(m),
                None => return self.fail("internal error"),
            },
        };
        match validate(c.v, ty) {
            Ok(v) => Ok(v),
            Err(m) => self.fail(m),
        }
    }
}
