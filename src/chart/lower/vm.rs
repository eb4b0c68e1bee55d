//! Running lowered templates on minijinja: what a pipeline means comes back as calls of one object.

use super::{CLOSE, END, Lowered, OPEN, Op, PRINT, decode, encode, lower};
use crate::func::GoErr;
use crate::run::Runtime;
use crate::template::ast::Tree;
use crate::template::step::{Answer, Frame, Place, execute as walk};
use crate::value::Val;
use minijinja::value::{Enumerator, Object, ObjectRepr, Value};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, context, syntax::SyntaxConfig};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

/// A template or body ready to run.
pub(super) struct Ready {
    env: Environment<'static>,
    lowered: Arc<Lowered>,
}

/// Prepared templates by the address of their tree, checked against the tree itself.
type Prepared = BTreeMap<usize, (Weak<Tree>, Option<Arc<Ready>>)>;

/// Prepared templates of a chart.
#[derive(Default)]
pub struct Cache(Mutex<Prepared>);

const NAME: &str = "t";
/// Kept templates; more mean texts made on the fly.
const KEPT: usize = 20_000;

static SYNTAX: LazyLock<Option<SyntaxConfig>> = LazyLock::new(|| {
    let builder = &mut SyntaxConfig::builder();
    builder.block_delimiters(OPEN, CLOSE).variable_delimiters(PRINT, END).comment_delimiters("\u{1}#", "#\u{1}").keep_trailing_newline(true).build().ok()
});

/// None where minijinja cannot take it, as where blocks nest deeper than its parser goes.
fn prepare(lowered: Lowered) -> Option<Ready> {
    // No filters, tests or functions: lowered templates call nothing but their host.
    let mut env = Environment::empty();
    env.set_syntax(SYNTAX.clone()?);
    env.set_auto_escape_callback(|_| AutoEscape::None);
    // Steps print texts that are encoded already.
    env.set_formatter(|out, _, v| {
        let long = v.downcast_object_ref::<Printed>().map(|printed| printed.0.as_str());
        out.write_str(long.or_else(|| v.as_str()).unwrap_or_default()).map_err(Error::from)
    });
    env.add_template_owned(NAME, lowered.source.clone()).ok()?;
    Some(Ready { env, lowered: Arc::new(lowered) })
}

/// What the bodies of one running template share.
struct Running {
    tree: Arc<Tree>,
    state: Mutex<Lent>,
}

/// The runtime is here while minijinja runs.
struct Lent {
    rt: Runtime,
    frame: Frame,
    fault: Option<GoErr>,
}

impl Running {
    fn lock(&self) -> std::sync::MutexGuard<'_, Lent> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what a step asks for; what it did wrong in Go's words waits in `fault`.
    fn perform<T>(&self, step: impl FnOnce(&mut Frame, &mut Runtime, &Tree, &mut Vec<u8>) -> Result<T, GoErr>) -> Result<(T, Value), Error> {
        let mut out = Vec::new();
        let Lent { rt, frame, fault } = &mut *self.lock();
        match step(frame, rt, &self.tree, &mut out) {
            Ok(answer) => Ok((answer, text(out))),
            Err(e) => {
                *fault = Some(e);
                Err(Error::new(ErrorKind::InvalidOperation, "template failed"))
            }
        }
    }
}

/// A long text on its way to the output.
#[derive(Debug)]
struct Printed(String);

impl Object for Printed {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }
}

/// Shorter texts are part of minijinja's value.
const SHORT: usize = 22;

fn printed(text: String) -> Value {
    if text.len() <= SHORT { Value::from(text) } else { Value::from_object(Printed(text)) }
}

/// Printed bytes as Jinja carries them.
fn text(bytes: Vec<u8>) -> Value {
    match String::from_utf8(bytes) {
        Ok(text) if memchr::memchr(1, text.as_bytes()).is_none() => printed(text),
        Ok(text) => encoded(text.as_bytes()),
        Err(e) => encoded(e.as_bytes()),
    }
}

fn encoded(bytes: &[u8]) -> Value {
    let mut out = String::with_capacity(bytes.len());
    encode(bytes, &mut out);
    printed(out)
}

/// The object that a template or body calls.
struct Host {
    lowered: Arc<Lowered>,
    running: Arc<Running>,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Host")
    }
}

/// The rounds of a range: as many elements, none of them of interest.
#[derive(Debug)]
struct Times(usize);

impl Object for Times {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        key.as_usize().filter(|i| *i < self.0).map(|_| Value::from(true))
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.0)
    }
}

impl Object for Host {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn call(self: &Arc<Self>, _: &mut State<'_, '_>, args: &[Value]) -> Result<Value, Error> {
        let n = args.first().and_then(Value::as_usize).unwrap_or(usize::MAX);
        let Some(op) = self.lowered.ops.get(n) else { return Err(Error::new(ErrorKind::InvalidOperation, "no such step")) };
        match op {
            Op::Text(spot, ready) => Ok(ready
                .get_or_init(|| match spot.node() {
                    crate::template::ast::Node::Text(_, text) => encoded(text.as_bytes()),
                    _ => Value::from(""),
                })
                .clone()),
            Op::Step(spot) => {
                let (answer, text) = self.running.perform(|frame, rt, tree, out| frame.step(rt, tree, spot.node(), spot.place, out))?;
                Ok(match answer {
                    Answer::Done => text,
                    Answer::Truth(truth) => Value::from(truth),
                    Answer::Times(times) => Value::from_object(Times(times)),
                })
            }
            Op::Round(spot) => self.running.perform(|frame, rt, tree, out| frame.round(rt, tree, spot.node(), spot.place, out)).map(|((), text)| text),
            Op::Later(list, place, ready) => match ready.get_or_init(|| prepare(lower(list, *place))) {
                Some(ready) => stacker::maybe_grow(128 << 10, 2 << 20, || ready.run(&self.running)).map(printed),
                None => self.running.perform(|frame, rt, tree, out| frame.body(rt, tree, list, *place, out)).map(|((), text)| text),
            },
        }
    }
}

impl Ready {
    fn run(&self, running: &Arc<Running>) -> Result<String, Error> {
        let host = Value::from_object(Host { lowered: self.lowered.clone(), running: running.clone() });
        self.env.get_template(NAME).and_then(|t| t.render(context! { h => host }))
    }
}

/// The prepared form of a tree, from the cache or made now.
fn ready(rt: &Runtime, tree: &Arc<Tree>) -> Option<Arc<Ready>> {
    let cache = rt.cache();
    let lock = || cache.lowered.0.lock().unwrap_or_else(PoisonError::into_inner);
    let key = Arc::as_ptr(tree) as usize;
    if let Some((weak, ready)) = lock().get(&key)
        && weak.upgrade().is_some_and(|t| Arc::ptr_eq(&t, tree))
    {
        return ready.clone();
    }
    let ready = prepare(lower(&tree.root, Place::default())).map(Arc::new);
    let mut kept = lock();
    if kept.len() >= KEPT {
        kept.clear();
    }
    kept.insert(key, (Arc::downgrade(tree), ready.clone()));
    ready
}

/// Executes a template on minijinja; what its parser cannot take is walked directly.
///
/// # Errors
///
/// What the template does wrong, in Go's words.
pub fn execute(rt: &mut Runtime, tree: &Arc<Tree>, data: Val, out: &mut Vec<u8>) -> Result<(), GoErr> {
    let Some(ready) = ready(rt, tree) else { return walk(rt, tree, data, out) };
    let lent = Lent { rt: std::mem::replace(rt, Runtime::placeholder()), frame: Frame::new(data), fault: None };
    let running = Arc::new(Running { tree: tree.clone(), state: Mutex::new(lent) });
    let result = ready.run(&running);
    let mut lent = running.lock();
    *rt = std::mem::replace(&mut lent.rt, Runtime::placeholder());
    match result {
        Ok(text) => {
            decode(text, out);
            Ok(())
        }
        Err(e) => Err(lent.fault.take().unwrap_or_else(|| GoErr::new(format!("minijinja: {e:#}")))),
    }
}
