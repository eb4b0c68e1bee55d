//! Templates written in Jinja: files `*.j2` under templates/, with the functions, values and helpers of Go templates.
//!
//! Fields of the render's data (`Values`, `Release`, `Chart`, `Capabilities`, `Files` …) are variables, and `root` is all of them, for
//! `include` and `tpl`. Every function of Helm is a function; as a filter it gets the piped value last, as in Go. Filters that Jinja has
//! itself keep Jinja's meaning. Files whose names begin with `_` are not printed, only imported or included by other Jinja files.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use minijinja::value::{Enumerator, Object, ObjectRepr, Rest, Value};
use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, UndefinedBehavior};

use crate::func::{Func, GoErr, Special, err, table};
use crate::run::Runtime;
use crate::template::eval::{arity, validate};
use crate::template::method;
use crate::value::{List, Map, Str, Val};

/// Ending of files that are Jinja.
pub const ENDING: &str = ".j2";
/// Steps of one file; one also pays for 64 bytes of text.
const FUEL: u64 = 2_000_000;
/// Nested includes, imports and macros.
const DEPTH: usize = 100;
/// Functions that Jinja has itself, and that stay Jinja's.
const OWN: [&str; 4] = ["range", "dict", "debug", "namespace"];
/// Filters that Jinja has itself, and that stay Jinja's.
const FILTERS: [&str; 49] = [
    "abs", "attr", "batch", "bool", "capitalize", "chain", "count", "d", "default", "dictsort", "e", "escape", "first", "float", "format",
    "groupby", "indent", "int", "items", "join", "last", "length", "lines", "list", "lower", "map", "max", "min", "pprint", "reject",
    "rejectattr", "replace", "reverse", "round", "safe", "select", "selectattr", "slice", "sort", "split", "string", "sum", "title", "tojson",
    "trim", "unique", "upper", "urlencode", "zip",
];

/// The runtime while minijinja runs, and what went wrong in it.
#[derive(Default)]
struct Loan {
    lent: Mutex<(Option<Runtime>, Option<GoErr>)>,
}

impl Loan {
    fn lock(&self) -> MutexGuard<'_, (Option<Runtime>, Option<GoErr>)> {
        self.lent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with the runtime, which is away meanwhile.
    fn with(self: &Arc<Self>, act: impl FnOnce(&mut Runtime) -> Result<Val, GoErr>) -> Result<Value, Error> {
        let Some(mut rt) = self.lock().0.take() else { return Err(Error::new(ErrorKind::InvalidOperation, "the runtime is away")) };
        let done = act(&mut rt);
        let mut lent = self.lock();
        lent.0 = Some(rt);
        match done {
            Ok(val) => {
                drop(lent);
                Ok(give(self, &val))
            }
            Err(fault) => {
                let error = Error::new(ErrorKind::InvalidOperation, plain(&fault));
                lent.1 = Some(fault);
                Err(error)
            }
        }
    }
}

/// The words of a fault without the marks around a chart's own message.
fn plain(fault: &GoErr) -> String {
    let text = fault.text();
    match (text.find("HELM_ERR_START"), text.rfind("HELM_ERR_END")) {
        (Some(a), Some(b)) => text.get(a + "HELM_ERR_START".len()..b).unwrap_or_default().to_owned(),
        _ => text,
    }
}

/// A Go value inside Jinja that is more than a text, a number or a truth.
struct Go {
    val: Val,
    loan: Arc<Loan>,
}

impl fmt::Debug for Go {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.val, f)
    }
}

impl Go {
    fn map(&self) -> Option<&Arc<Map>> {
        if let Val::Map(map) = &self.val { Some(map) } else { None }
    }

    fn list(&self) -> Option<&Arc<List>> {
        if let Val::List(list) = &self.val { Some(list) } else { None }
    }
}

impl Object for Go {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        match &self.val {
            Val::Map(_) => ObjectRepr::Map,
            Val::List(_) => ObjectRepr::Seq,
            _ => ObjectRepr::Plain,
        }
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        if let Some(list) = self.list() {
            return list.v.get(usize::try_from(key.clone()).ok()?).map(|v| give(&self.loan, v));
        }
        let name = key.as_str()?;
        if let Some(found) = self.map().and_then(|m| m.get(name.as_bytes())) {
            return Some(give(&self.loan, &found));
        }
        if let Some(found) = method::field(&self.val, name.as_bytes()) {
            return Some(give(&self.loan, &found));
        }
        let method = method::find(&self.val, name.as_bytes()).filter(|m| m.params.is_empty() && m.rest.is_none())?;
        self.loan.with(|rt| (method.body)(rt, &self.val, &[])).ok()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        match &self.val {
            Val::Map(map) => Enumerator::Values(map.lock().keys().map(|key| Value::from(key.text().into_owned())).collect()),
            Val::List(list) => Enumerator::Seq(list.v.len()),
            _ => Enumerator::NonEnumerable,
        }
    }

    fn is_true(self: &Arc<Self>) -> bool {
        self.val.truth()
    }

    fn call_method(self: &Arc<Self>, _: &mut State<'_, '_>, name: &str, args: &[Value]) -> Result<Value, Error> {
        let Some(method) = method::find(&self.val, name.as_bytes()) else {
            return Err(Error::new(ErrorKind::UnknownMethod, format!("{} has no method named {name}", self.val.type_name())));
        };
        let args: Vec<Val> = args.iter().map(take).collect();
        self.loan.with(|rt| {
            if let Some(e) = arity(name, method.params.len(), method.rest.is_some(), args.len(), args.len()) {
                return err(e);
            }
            let args = checked(args, method.params, method.rest)?;
            (method.body)(rt, &self.val, &args)
        })
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.val))
    }
}

/// How a value is printed: lists and maps as JSON, which is YAML too; everything else as Go does.
fn shown(val: &Val) -> String {
    match val {
        Val::Map(_) | Val::List(_) => val.to_json().to_string(),
        Val::No | Val::Nil => String::new(),
        val => crate::func::strval(val).text().into_owned(),
    }
}

/// A Go value for Jinja. YAML's numbers are all fractions in Go; whole ones become integers.
fn give(loan: &Arc<Loan>, val: &Val) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match val {
        Val::No => Value::UNDEFINED,
        Val::Nil => Value::from(()),
        Val::Bool(b) => Value::from(*b),
        Val::Int(n) | Val::Int64(n) => Value::from(*n),
        Val::Byte(n) => Value::from(i64::from(*n)),
        Val::Float(x) if x.fract() == 0.0 && x.abs() < EXACT => Value::from(*x as i64),
        Val::Float(x) => Value::from(*x),
        Val::Str(s) => match std::str::from_utf8(s.as_bytes()) {
            Ok(text) => Value::from(text),
            Err(_) => Value::from_object(Go { val: val.clone(), loan: loan.clone() }),
        },
        Val::List(_) | Val::Map(_) | Val::Obj(_) => Value::from_object(Go { val: val.clone(), loan: loan.clone() }),
    }
}

/// What Jinja hands to a function. Maps and lists that came from us are the same ones again.
fn take(value: &Value) -> Val {
    if let Some(go) = value.downcast_object_ref::<Go>() {
        return go.val.clone();
    }
    if value.is_undefined() || value.is_none() {
        return Val::Nil;
    }
    if let Some(text) = value.as_str() {
        return Val::str(text);
    }
    if let Ok(truth) = bool::try_from(value.clone())
        && value.kind() == minijinja::value::ValueKind::Bool
    {
        return Val::Bool(truth);
    }
    if value.is_integer() {
        return i64::try_from(value.clone()).map_or(Val::Nil, Val::Int);
    }
    if value.is_number() {
        return f64::try_from(value.clone()).map_or(Val::Nil, Val::Float);
    }
    if let Some(bytes) = value.as_bytes() {
        return Val::str(bytes.to_vec());
    }
    if value.kind() == minijinja::value::ValueKind::Map {
        let keys = value.try_iter().into_iter().flatten();
        let pairs = keys.filter_map(|key| Some((Str::from(key.to_string()), take(&value.get_item(&key).ok()?))));
        return Val::map(pairs.collect());
    }
    match value.try_iter() {
        Ok(items) => Val::list(items.map(|item| take(&item)).collect()),
        Err(_) => Val::str(value.to_string()),
    }
}

fn checked(args: Vec<Val>, params: &[crate::func::Ty], rest: Option<crate::func::Ty>) -> Result<Vec<Val>, GoErr> {
    let typed = args.into_iter().enumerate().map(|(at, v)| {
        let ty = params.get(at).copied().or(rest).unwrap_or(crate::func::Ty::Any);
        // Jinja knows one kind of numbers.
        let v = match (ty, v) {
            (crate::func::Ty::Float, Val::Int(n)) => Val::Float(n as f64),
            (crate::func::Ty::Int, Val::Float(x)) if x.fract() == 0.0 => Val::Int(x as i64),
            (_, v) => v,
        };
        validate(v, ty).map_err(GoErr::new)
    });
    typed.collect()
}

fn call(loan: &Arc<Loan>, func: &'static Func, args: Vec<Val>) -> Result<Value, Error> {
    loan.with(|rt| {
        rt.burn(1)?;
        if let Some(e) = arity(func.name, func.params.len(), func.rest.is_some(), args.len(), args.len()) {
            return err(e);
        }
        let args = checked(args, func.params, func.rest)?;
        let value = (func.body)(rt, &args)?;
        rt.bounded(value)
    })
}

/// The variables of a file.
#[derive(Debug)]
struct Root(Arc<Go>);

impl Object for Root {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        match key.as_str() {
            Some("root") => Some(Value::from_dyn_object(self.0.clone())),
            _ => self.0.get_value(key),
        }
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        self.0.enumerate()
    }
}

/// The Jinja files of a chart and its subcharts.
pub struct Files {
    env: Environment<'static>,
    loan: Arc<Loan>,
}

impl Files {
    /// Of sources by path.
    ///
    /// # Errors
    /// When one is no Jinja: its path and line, and why.
    pub fn new(sources: BTreeMap<String, String>) -> Result<Self, String> {
        let loan: Arc<Loan> = Arc::default();
        let mut env = Environment::new();
        let syntax = SyntaxConfig::builder().keep_trailing_newline(true).trim_blocks(true).lstrip_blocks(true).build();
        env.set_syntax(syntax.map_err(|error| error.to_string())?);
        env.set_auto_escape_callback(|_| AutoEscape::None);
        env.set_undefined_behavior(UndefinedBehavior::Lenient);
        env.set_fuel(Some(FUEL));
        env.set_recursion_limit(DEPTH);
        env.set_path_join_callback(|name, parent| {
            let below = parent.rsplit_once('/').map_or_else(|| name.to_owned(), |(directory, _)| format!("{directory}/{name}"));
            crate::text::lossy(&crate::func::path_clean(below.as_bytes())).into_owned().into()
        });
        env.set_formatter(|out, _, value| {
            if value.is_none() || value.is_undefined() {
                return Ok(());
            }
            out.write_str(&value.as_str().map_or_else(|| shown_of(value), str::to_owned)).map_err(Error::from)
        });
        for func in table().iter().filter(|f| f.special == Special::None) {
            if !OWN.contains(&func.name) {
                let loan = loan.clone();
                env.add_function(func.name, move |args: Rest<Value>| call(&loan, func, args.iter().map(take).collect()));
            }
            if !FILTERS.contains(&func.name) {
                let loan = loan.clone();
                env.add_filter(func.name, move |value: Value, args: Rest<Value>| {
                    let args = args.iter().chain([&value]).map(take).collect();
                    call(&loan, func, args)
                });
            }
        }
        for (path, source) in sources {
            env.add_template_owned(path.clone(), source).map_err(|error| format!("parse error at ({path}:{}): {}", error.line().unwrap_or(0), why(&error)))?;
        }
        Ok(Self { env, loan })
    }

    /// Renders a file.
    ///
    /// # Errors
    /// Its path and line, and why.
    pub fn execute(&self, rt: &mut Runtime, path: &str, data: &Val, out: &mut Vec<u8>) -> Result<(), String> {
        *self.loan.lock() = (Some(std::mem::replace(rt, Runtime::placeholder())), None);
        let root = Root(Arc::new(Go { val: data.clone(), loan: self.loan.clone() }));
        // A few combinations of tags make minijinja 3.1 panic: that is the template's fault, and nobody else's.
        let rendered = catch_unwind(AssertUnwindSafe(|| self.env.get_template(path).and_then(|t| t.render(Value::from_object(root)))));
        let mut lent = self.loan.lock();
        if let Some(back) = lent.0.take() {
            *rt = back;
        }
        let text = match rendered {
            Ok(Ok(text)) => text,
            Ok(Err(error)) => {
                // The innermost place: where an imported file failed, or this one.
                let mut at = &error;
                while let Some(inner) = std::error::Error::source(at).and_then(|e| e.downcast_ref::<Error>()) {
                    at = inner;
                }
                let why = lent.1.take().map_or_else(|| why(at), |fault| plain(&fault));
                return Err(format!("execution error at ({}:{}): {why}", at.name().unwrap_or(path), at.line().unwrap_or(0)));
            }
            Err(_) => return Err(format!("execution error at ({path}): the template's tags cannot be nested like this")),
        };
        drop(lent);
        rt.grew(text.len()).map_err(|fault| format!("execution error at ({path}): {}", fault.text()))?;
        out.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

/// A native value of Jinja as text.
fn shown_of(value: &Value) -> String {
    match value.kind() {
        // As YAML has it.
        minijinja::value::ValueKind::Bool => value.is_true().to_string(),
        minijinja::value::ValueKind::Seq | minijinja::value::ValueKind::Iterable | minijinja::value::ValueKind::Map => shown(&take(value)),
        _ => value.to_string(),
    }
}

/// The words of an error without its place.
fn why(error: &Error) -> String {
    error.detail().map_or_else(|| error.kind().to_string(), |detail| format!("{}: {detail}", error.kind()))
}

