//! One running render: templates in scope, the clock, the generator, bounds, and `include` and `tpl` on either engine.

use crate::func::{GoErr, Out, Rng, err};
use crate::limit::Limits;
use crate::template::ast::Tree;
use crate::template::parse::{Trees, parse};
use crate::template::step;
use crate::text::quote::quote;
use crate::value::{Str, Time, Val};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// Which engine executes templates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Engine {
    /// minijinja's virtual machine, on the lowered form.
    #[default]
    Jinja,
    /// The direct evaluator of the syntax tree: the same text and faults.
    Direct,
}

/// Named templates; a `tpl` adds its own over those of its surroundings.
#[derive(Debug, Default)]
pub struct Set {
    parent: Option<Arc<Set>>,
    own: BTreeMap<Str, Arc<Tree>>,
}

impl Set {
    /// An empty set over another.
    pub fn over(parent: Arc<Set>) -> Self {
        Self { parent: Some(parent), own: BTreeMap::new() }
    }

    /// The template of a name.
    pub fn get(&self, name: &[u8]) -> Option<Arc<Tree>> {
        let mut at = Some(self);
        while let Some(s) = at {
            if let Some(t) = s.own.get(name) {
                return Some(t.clone());
            }
            at = s.parent.as_deref();
        }
        None
    }

    /// Adds trees; a blank one never replaces another.
    pub fn add(&mut self, trees: &Trees) {
        for t in trees {
            if t.root.is_empty() && self.get(t.name.as_bytes()).is_some() {
                continue;
            }
            self.own.insert(t.name.clone(), t.clone());
        }
    }
}

/// Answers of `lookup`: a recorded picture of a cluster, never the cluster itself.
pub trait Lookup: Send + Sync {
    /// The object, or the list when the name is empty; `None` if there is none.
    fn lookup(&self, api_version: &str, kind: &str, namespace: &str, name: &str) -> Option<serde_json::Value>;
}

/// Parsed `tpl` texts of a chart, kept between renders.
#[derive(Default)]
pub struct TplCache {
    trees: Mutex<BTreeMap<Str, Arc<Result<Trees, String>>>>,
    regexes: Mutex<BTreeMap<String, Result<regex::bytes::Regex, String>>>,
    /// Lowered forms for minijinja.
    pub(crate) lowered: crate::lower::vm::Cache,
}

impl std::fmt::Debug for TplCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TplCache")
    }
}

/// Texts above this are not kept.
const CACHED_TEXT: usize = 64 << 10;
/// Kept texts; values with secrets may pass through `tpl`, so the number is bounded.
const CACHED: usize = 4096;

/// What a render needs from outside.
pub struct Env {
    /// The present, in nanoseconds since 1970.
    pub now: i128,
    /// Seed of all randomness.
    pub seed: u64,
    /// Cluster picture.
    pub lookup: Option<Arc<dyn Lookup>>,
    /// Bounds.
    pub limits: Limits,
    /// Engine.
    pub engine: Engine,
    /// Parsed texts.
    pub cache: Arc<TplCache>,
}

/// A running render.
pub struct Runtime {
    env: Env,
    /// Generator.
    pub rng: Rng,
    /// Templates in scope.
    pub set: Arc<Set>,
    included: BTreeMap<Str, u32>,
    fuel: u64,
    text: usize,
    depth: usize,
    ticks: u32,
}

impl Runtime {
    /// Starts a render over a set of templates.
    pub fn new(env: Env, set: Arc<Set>) -> Self {
        let rng = Rng::new(env.seed);
        let (fuel, text) = (env.limits.fuel, env.limits.text);
        Self { env, rng, set, included: BTreeMap::new(), fuel, text, depth: 0, ticks: 0 }
    }

    /// The present; every call is a little later, as clocks are.
    pub fn now(&mut self) -> Time {
        self.ticks += 1;
        Time { nanos: self.env.now, zone: (0, "UTC".into()), mono: Some(f64::from(self.ticks) * 1e-6) }
    }

    /// Shared caches.
    pub(crate) fn cache(&self) -> Arc<TplCache> {
        self.env.cache.clone()
    }

    /// A runtime that does nothing: it holds the place of one that is lent to minijinja.
    pub(crate) fn placeholder() -> Self {
        static EMPTY: LazyLock<(Arc<TplCache>, Arc<Set>)> = LazyLock::new(Default::default);
        let (cache, set) = EMPTY.clone();
        let env = Env { now: 0, seed: 0, lookup: None, limits: Limits { fuel: 0, text: 0, depth: 0 }, engine: Engine::Direct, cache };
        Self::new(env, set)
    }

    /// Uses up evaluation steps.
    #[inline]
    pub fn burn(&mut self, n: u64) -> Result<(), GoErr> {
        if self.fuel < n {
            self.fuel = 0;
            return Err(GoErr::fatal("template takes too many steps"));
        }
        self.fuel -= n;
        Ok(())
    }

    /// Accounts for produced text.
    #[inline]
    pub fn grew(&mut self, n: usize) -> Result<(), GoErr> {
        if self.text < n {
            self.text = 0;
            return Err(GoErr::fatal("template makes too much text"));
        }
        self.text -= n;
        Ok(())
    }

    /// A function's result: its size costs steps, and one above the bound is refused.
    #[inline]
    pub fn bounded(&mut self, v: Val) -> Out {
        if let Val::Str(s) = &v {
            if s.len() > crate::limit::MAX_TEXT {
                return Err(GoErr::fatal("template makes too much text"));
            }
            self.burn(s.len() as u64 / 64)?;
        }
        Ok(v)
    }

    /// A compiled regular expression.
    pub fn regex(&mut self, p: &str) -> Result<regex::bytes::Regex, GoErr> {
        let cache = self.env.cache.clone();
        let mut c = cache.regexes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(r) = c.get(p) {
            return r.clone().map_err(GoErr::new);
        }
        let r = crate::func_regex(p);
        if p.len() < CACHED_TEXT && c.len() < CACHED {
            c.insert(p.into(), r.clone());
        }
        r.map_err(GoErr::new)
    }

    /// Answers `lookup`.
    pub fn lookup(&self, api: &str, kind: &str, ns: &str, name: &str) -> Val {
        match self.env.lookup.as_ref().and_then(|l| l.lookup(api, kind, ns, name)) {
            Some(j) => Val::from_json(&j),
            None => Val::map(Default::default()),
        }
    }

    /// `include`.
    pub fn include(&mut self, name: &str, raw: &[u8], data: &Val) -> Out {
        let n = self.included.entry(Str::from(raw)).or_insert(0);
        if *n > 1000 {
            return Err(GoErr::wrap(format!("rendering template has a nested reference name: {name}: "), GoErr::new("unable to execute template")));
        }
        *n += 1;
        let mut out = Vec::new();
        let r = self.execute(raw, data.clone(), &mut out);
        if let Some(n) = self.included.get_mut(raw) {
            *n -= 1;
        }
        r?;
        Ok(Val::str(out))
    }

    /// Executes a named template into a text.
    pub fn execute(&mut self, name: &[u8], data: Val, out: &mut Vec<u8>) -> Result<(), GoErr> {
        let Some(tree) = self.set.get(name) else {
            return err(format!("template: no template {} associated with template \"gotpl\"", quote(name)));
        };
        self.run(&tree, data, out)
    }

    fn run(&mut self, tree: &Arc<Tree>, data: Val, out: &mut Vec<u8>) -> Result<(), GoErr> {
        self.enter()?;
        let from = out.len();
        let r = self.dispatch(tree, data, out);
        self.leave();
        self.grew(out.len() - from)?;
        r
    }

    /// Executes a template on the engine of this render.
    pub(crate) fn dispatch(&mut self, tree: &Arc<Tree>, data: Val, out: &mut Vec<u8>) -> Result<(), GoErr> {
        stacker::maybe_grow(128 << 10, 2 << 20, || match self.env.engine {
            Engine::Direct => step::execute(self, tree, data, out),
            Engine::Jinja => crate::lower::vm::execute(self, tree, data, out),
        })
    }

    /// One level deeper.
    pub(crate) fn enter(&mut self) -> Result<(), GoErr> {
        if self.depth >= self.env.limits.depth {
            return Err(GoErr::fatal(format!("exceeded maximum template depth ({})", self.env.limits.depth)));
        }
        self.depth += 1;
        Ok(())
    }

    /// One level up.
    pub(crate) fn leave(&mut self) {
        self.depth -= 1;
    }

    /// Parses a text for `tpl`, or remembers having done so.
    fn parsed(&mut self, text: &Str) -> Arc<Result<Trees, String>> {
        let cache = self.env.cache.clone();
        let lock = || cache.trees.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(t) = lock().get(text) {
            return t.clone();
        }
        let t = Arc::new(parse("gotpl", text, &crate::func::number));
        if text.len() <= CACHED_TEXT {
            let mut c = lock();
            if c.len() < CACHED {
                c.insert(text.clone(), t.clone());
            }
        }
        t
    }

    /// `tpl`.
    pub fn tpl(&mut self, text: &Str, data: &Val) -> Out {
        // Most texts hold no action at all.
        if crate::template::lex::find(text.as_bytes(), b"{{").is_none() {
            self.burn(1)?;
            return strip_no_value(text.as_bytes()).map_or_else(|| Ok(Val::Str(text.clone())), |t| Ok(Val::str(t)));
        }
        self.burn(text.len() as u64 / 8)?;
        let trees = self.parsed(text);
        let trees = match &*trees {
            Ok(t) => t,
            Err(e) => return Err(GoErr::wrap(format!("cannot parse template {}: ", quote(text.as_bytes())), GoErr::new(e.as_str()))),
        };
        let outer = self.set.clone();
        let mut set = Set::over(outer.clone());
        set.add(trees);
        // A text of blanks and defines only still has a (blank) main template.
        let Some(main) = trees.iter().find(|t| t.name.as_bytes() == b"gotpl").cloned() else { return Ok(Val::str("")) };
        self.set = Arc::new(set);
        let mut out = Vec::new();
        let r = self.run(&main, data.clone(), &mut out);
        self.set = outer;
        match r {
            Err(e) => Err(GoErr::wrap(format!("error during tpl function execution for {}: ", quote(text.as_bytes())), e)),
            Ok(()) => Ok(Val::str(strip_no_value(&out).unwrap_or(out))),
        }
    }
}

/// The text without `<no value>`, if it holds any.
pub fn strip_no_value(t: &[u8]) -> Option<Vec<u8>> {
    crate::template::lex::find(t, b"<no value>")?;
    let mut out = Vec::with_capacity(t.len());
    let mut from = 0;
    while let Some(i) = crate::template::lex::find(&t[from..], b"<no value>") {
        out.extend_from_slice(&t[from..from + i]);
        from += i + b"<no value>".len();
    }
    out.extend_from_slice(&t[from..]);
    Some(out)
}
