//! Running lowered templates on minijinja: values cross as objects, operations come back as calls of one object.

use super::{CLOSE, END, Later, Lowered, OPEN, Op, PRINT, decode, encode, lower, lower_later};
use crate::func::{GoErr, err, table};
use crate::run::Runtime;
use crate::template::ast::Tree;
use crate::template::eval::{Items, arity, items, print, validate};
use crate::template::{eval, method};
use crate::value::Val;
use minijinja::value::{Object, ObjectRepr, Value};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, context, syntax::SyntaxConfig};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// A Go value inside minijinja.
#[derive(Debug)]
struct Go(Val);

impl Object for Go {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }
    fn is_true(self: &Arc<Self>) -> bool {
        self.0.truth()
    }
}

fn wrap(v: Val) -> Value {
    Value::from_object(Go(v))
}

fn unwrap(v: &Value) -> Val {
    v.downcast_object_ref::<Go>().map_or(Val::No, |g| g.0.clone())
}

/// A template ready to run.
struct Ready {
    env: Environment<'static>,
    lowered: Arc<Lowered>,
    /// A body of it could not be lowered: the evaluator must do the whole.
    failed: Arc<AtomicBool>,
}

/// A body that is made ready when it is first needed; none where the evaluator must do it.
#[derive(Default)]
pub(super) struct Once(OnceLock<Option<Ready>>);

impl std::fmt::Debug for Once {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Once")
    }
}

/// Prepared templates by the address of their tree, checked against the tree itself.
type Prepared = BTreeMap<usize, (Weak<Tree>, Option<Arc<Ready>>)>;

/// Prepared templates of a chart.
#[derive(Default)]
pub struct Cache(Mutex<Prepared>);

const NAME: &str = "t";
/// Kept templates; more mean texts made on the fly.
const KEPT: usize = 20_000;

fn prepare(lowered: Lowered, failed: Arc<AtomicBool>) -> Option<Ready> {
    // No filters, tests or functions: lowered templates call nothing but their host.
    let mut env = Environment::empty();
    let syntax = SyntaxConfig::builder().block_delimiters(OPEN, CLOSE).variable_delimiters(PRINT, END).comment_delimiters("\u{1}#", "#\u{1}").keep_trailing_newline(true).build().ok()?;
    env.set_syntax(syntax);
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_formatter(|out, _, v| {
        // What a body printed, encoded already.
        if let Some(text) = v.as_str() {
            return out.write_str(text).map_err(Error::from);
        }
        let mut bytes = Vec::new();
        print(&mut bytes, &settle(unwrap(v)));
        let mut text = String::with_capacity(bytes.len());
        encode(&bytes, &mut text);
        out.write_str(&text).map_err(Error::from)
    });
    env.add_template_owned(NAME, lowered.source.clone()).ok()?;
    Some(Ready { env, lowered: Arc::new(lowered), failed })
}

fn settle(v: Val) -> Val {
    match v {
        Val::Nil => Val::No,
        v => v,
    }
}

/// The object templates call; it holds the runtime while minijinja runs.
#[derive(Debug)]
struct Host {
    lowered: Arc<Lowered>,
    failed: Arc<AtomicBool>,
    lent: Mutex<Lent>,
}

struct Lent {
    rt: Option<Runtime>,
    fault: Option<GoErr>,
}

impl std::fmt::Debug for Lent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lent")
    }
}

impl Host {
    fn lock(&self) -> std::sync::MutexGuard<'_, Lent> {
        self.lent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Host {
    /// Executes a body.
    fn later(&self, later: &Later, ns: &Value, dot: &Value) -> Result<Value, Error> {
        let ready = later.ready.0.get_or_init(|| prepare(lower_later(later).ok()?, self.failed.clone()));
        let (result, rt, fault) = match ready {
            Some(ready) => {
                let rt = self.lock().rt.take();
                stacker::maybe_grow(128 << 10, 2 << 20, || ready.run(rt, ns.clone(), dot.clone()))
            }
            None => {
                self.failed.store(true, Ordering::Relaxed);
                return Err(Error::new(ErrorKind::InvalidOperation, "a body is for the evaluator"));
            }
        };
        let mut lent = self.lock();
        lent.rt = rt;
        lent.fault = fault;
        result.map(Value::from)
    }
}

impl Ready {
    /// Runs it; the runtime comes back, and what failed in Go's words.
    fn run(&self, rt: Option<Runtime>, ns: Value, dot: Value) -> (Result<String, Error>, Option<Runtime>, Option<GoErr>) {
        let host = Arc::new(Host { lowered: self.lowered.clone(), failed: self.failed.clone(), lent: Mutex::new(Lent { rt, fault: None }) });
        let result = self.env.get_template(NAME).and_then(|t| t.render(context! { h => Value::from_dyn_object(host.clone()), ns => ns, d0 => dot }));
        let mut lent = host.lock();
        (result, lent.rt.take(), lent.fault.take())
    }
}

impl Object for Host {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn call(self: &Arc<Self>, _: &mut State<'_, '_>, args: &[Value]) -> Result<Value, Error> {
        let n = args.first().and_then(|v| usize::try_from(v.clone()).ok()).unwrap_or(usize::MAX);
        let Some(op) = self.lowered.ops.get(n) else { return Err(Error::new(ErrorKind::InvalidOperation, "no such operation")) };
        match op {
            Op::Const(v) => return Ok(wrap(v.clone())),
            Op::Settle => {
                let v = args.get(1).cloned().unwrap_or_default();
                return Ok(match v.downcast_object_ref::<Go>() {
                    Some(Go(Val::Nil)) => wrap(Val::No),
                    _ => v,
                });
            }
            _ => {}
        }
        if let (Op::Later(later), [_, ns, dot]) = (op, args) {
            return self.later(later, ns, dot);
        }
        let Some(mut rt) = self.lock().rt.take() else { return Err(Error::new(ErrorKind::InvalidOperation, "runtime is away")) };
        let argv: Vec<Val> = args[1..].iter().map(unwrap).collect();
        let r = perform(&mut rt, op, argv);
        let mut lent = self.lock();
        lent.rt = Some(rt);
        r.map_err(|e| {
            lent.fault = Some(e);
            Error::new(ErrorKind::InvalidOperation, "template failed")
        })
    }
}

fn perform(rt: &mut Runtime, op: &Op, mut argv: Vec<Val>) -> Result<Value, GoErr> {
    rt.burn(1)?;
    match op {
        Op::Const(v) => Ok(wrap(v.clone())),
        Op::Later(_) => err("a body needs its namespace and its dot"),
        Op::Settle => Ok(wrap(settle(argv.pop().unwrap_or_default()))),
        Op::Field(names) => {
            let mut v = argv.pop().unwrap_or_default();
            for n in names {
                v = field(rt, v, n.as_bytes(), &[], false)?;
            }
            Ok(wrap(v))
        }
        Op::Method(name, _, piped) => {
            argv.rotate_left(usize::from(*piped));
            let receiver = argv.remove(0);
            field(rt, receiver, name.as_bytes(), &argv, *piped).map(wrap)
        }
        Op::Call(f, written, piped) => {
            let f = &table()[*f as usize];
            argv.rotate_left(usize::from(*piped));
            if let Some(e) = arity(f.name, f.params.len(), f.rest.is_some(), *written, argv.len()) {
                return err(e);
            }
            let argv = checked(argv, f.params, f.rest, *piped)?;
            let v = (f.body)(rt, &argv)?;
            rt.bounded(v).map(wrap)
        }
        Op::Range(two) => {
            let v = settle(argv.pop().unwrap_or_default());
            let pair = |k: Val, v: Val| Value::from(vec![wrap(k), wrap(v)]);
            Ok(Value::from(match items(&v, *two).map_err(GoErr::new)? {
                Items::Empty => Vec::new(),
                Items::Count(n, wide) => {
                    rt.burn(n as u64)?;
                    if n as usize > crate::limit::MAX_ITEMS {
                        return Err(GoErr::fatal("range is too long"));
                    }
                    (0..n).map(|i| pair(Val::No, if wide { Val::Int64(i) } else { Val::Int(i) })).collect::<Vec<_>>()
                }
                Items::List(l) => l.v.iter().enumerate().map(|(i, v)| pair(Val::Int(i as i64), v.clone())).collect(),
                Items::Map(e, _) => e.into_iter().map(|(k, v)| pair(Val::Str(k), v)).collect(),
            }))
        }
        Op::Template(name) => {
            let data = settle(argv.pop().unwrap_or_default());
            let Some(tree) = rt.set.get(name.as_bytes()) else { return err(format!("template {name} not defined")) };
            rt.enter()?;
            let mut out = Vec::new();
            let r = stacker::maybe_grow(128 << 10, 2 << 20, || execute(rt, &tree, data, &mut out));
            rt.leave();
            r?;
            rt.grew(out.len())?;
            Ok(wrap(Val::str(out)))
        }
    }
}

fn checked(mut argv: Vec<Val>, params: &[crate::func::Ty], rest: Option<crate::func::Ty>, piped: bool) -> Result<Vec<Val>, GoErr> {
    let last = argv.len().wrapping_sub(1);
    for (i, a) in argv.iter_mut().enumerate() {
        let ty = params.get(i).copied().or(rest).unwrap_or(crate::func::Ty::Any);
        let mut v = std::mem::take(a);
        if piped && i == last {
            v = settle(v);
        }
        *a = validate(v, ty).map_err(GoErr::new)?;
    }
    Ok(argv)
}

fn field(rt: &mut Runtime, r: Val, name: &[u8], args: &[Val], piped: bool) -> Result<Val, GoErr> {
    let shown = String::from_utf8_lossy(name);
    match &r {
        Val::No => return Ok(Val::No),
        Val::Nil => return err(format!("nil pointer evaluating interface {{}}.{shown}")),
        _ => {}
    }
    if let Some(m) = method::find(&r, name) {
        let written = args.len() - usize::from(piped);
        if let Some(e) = arity(&shown, m.params.len(), m.rest.is_some(), written, args.len()) {
            return err(e);
        }
        let argv = checked(args.to_vec(), m.params, m.rest, piped)?;
        return (m.body)(rt, &r, &argv);
    }
    if !args.is_empty() {
        return err(format!("{shown} is not a method but has arguments"));
    }
    match &r {
        Val::Map(m) => Ok(m.get(name).unwrap_or_else(|| crate::func::zero_element(m.ty))),
        r => method::field(r, name).map_or_else(|| err(format!("can't evaluate field {shown} in type {}", r.type_name())), Ok),
    }
}

/// Executes a template on minijinja; what cannot be lowered is evaluated directly.
pub fn execute(rt: &mut Runtime, tree: &Arc<Tree>, data: Val, out: &mut Vec<u8>) -> Result<(), GoErr> {
    let cache = rt.cache();
    let key = Arc::as_ptr(tree) as usize;
    let found = cache.lowered.0.lock().unwrap_or_else(PoisonError::into_inner).get(&key).filter(|(w, _)| w.upgrade().is_some_and(|t| Arc::ptr_eq(&t, tree))).map(|(_, r)| r.clone());
    let ready = match found {
        Some(r) => r,
        None => {
            let r = lower(&tree.root).ok().and_then(|lowered| prepare(lowered, Arc::default())).map(Arc::new);
            let mut c = cache.lowered.0.lock().unwrap_or_else(PoisonError::into_inner);
            if c.len() >= KEPT {
                c.clear();
            }
            c.insert(key, (Arc::downgrade(tree), r.clone()));
            r
        }
    };
    let Some(ready) = ready.filter(|ready| !ready.failed.load(Ordering::Relaxed)) else { return eval::execute(rt, tree, data, out) };
    let ns = minijinja::functions::namespace(None).map_err(|e| GoErr::new(format!("minijinja: {e:#}")))?;
    let lent = std::mem::replace(rt, Runtime::placeholder());
    let (result, back, fault) = ready.run(Some(lent), ns, wrap(settle(data)));
    if let Some(back) = back {
        *rt = back;
    }
    match result {
        Ok(text) => {
            decode(&text, out);
            Ok(())
        }
        Err(e) => Err(fault.unwrap_or_else(|| GoErr::new(format!("minijinja: {e:#}")))),
    }
}
