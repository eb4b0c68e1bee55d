//! Values of a chart and its subcharts: Helm's coalescing, globals, and what nulls mean.

use super::load::Chart;
use crate::text::fmt::sprint;
use crate::value::{Map, Str, Tree, Val};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Joins the values of a chart: what is given wins over defaults.
pub struct Coalesce<'w> {
    /// Nulls are kept instead of deleting keys.
    pub merge: bool,
    /// Null defaults are kept, as Helm 3 does.
    pub keep_nulls: bool,
    /// Helm's remarks.
    pub warnings: &'w mut Vec<String>,
}

fn join(a: &str, b: &str) -> String {
    if a.is_empty() { b.into() } else { format!("{a}.{b}") }
}

fn global() -> Str {
    Str::from("global")
}

fn is_table(v: &Val) -> bool {
    v.as_table().is_some()
}

fn insert(m: &Arc<Map>, k: &Str, v: Val) {
    m.lock().insert(k.clone(), v);
}

impl Coalesce<'_> {
    /// The values for a chart; the given ones are not changed.
    pub fn run(&mut self, chart: &Chart, given: &Val) -> Result<Val, String> {
        let copy = match given.as_table() {
            Some(_) => given.deep_copy(),
            None => Val::map(Tree::new()),
        };
        let Some(dest) = copy.as_table().cloned() else { return Ok(copy) };
        self.chart(chart, &dest, "", self.merge)?;
        Ok(copy)
    }

    fn warn(&mut self, text: String) {
        self.warnings.push(text);
    }

    fn chart(&mut self, c: &Chart, dest: &Arc<Map>, prefix: &str, merge: bool) -> Result<(), String> {
        self.values(c, dest, prefix, merge);
        for sub in &c.dependencies {
            let key = Str::from(sub.name());
            let at = dest.get(key.as_bytes());
            let inner = match at {
                None => {
                    let v = Val::map(Tree::new());
                    insert(dest, &key, v.clone());
                    v
                }
                Some(v) if is_table(&v) => v,
                Some(v) => {
                    let shown = match &v {
                        Val::Bool(b) => b.to_string(),
                        Val::Nil | Val::No => "%!t(<nil>)".into(),
                        v => format!("%!t({}={})", v.type_name(), sprint(v)),
                    };
                    return Err(format!("type mismatch on {}: {shown}", sub.name()));
                }
            };
            if let Some(inner) = inner.as_table() {
                let sub_prefix = join(prefix, c.name());
                self.globals(inner, dest, &sub_prefix);
                self.chart(sub, inner, &sub_prefix, merge)?;
            }
        }
        Ok(())
    }

    fn globals(&mut self, dest: &Arc<Map>, src: &Arc<Map>, prefix: &str) {
        let table = |m: &Arc<Map>| match m.get(b"global") {
            None => Some(Val::map(Tree::new())),
            Some(v) if is_table(&v) => Some(v),
            Some(_) => None,
        };
        let Some(dg) = table(dest) else {
            return self.warn("warning: skipping globals because destination global is not a table.".into());
        };
        let Some(sg) = table(src) else {
            return self.warn("warning: skipping globals because source global is not a table.".into());
        };
        let (Some(d), Some(s)) = (dg.as_table().cloned(), sg.as_table().cloned()) else { return };
        for (k, v) in s.entries() {
            let at = d.get(k.as_bytes());
            if let Some(t) = v.as_table() {
                let copy = Val::map(t.lock().clone());
                match at {
                    None => insert(&d, &k, copy),
                    Some(o) => match o.as_table() {
                        None => self.warn(format!("Conflict: cannot merge map onto non-map for {}. Skipping.", crate::text::quote::quote(k.as_bytes()))),
                        Some(o) => {
                            if let Some(c) = copy.as_table() {
                                self.tables(c, o, &join(prefix, &k.text()), true);
                            }
                            insert(&d, &k, copy);
                        }
                    },
                }
            } else if at.as_ref().is_some_and(is_table) {
                self.warn(format!("key {k} is table. Skipping"));
            } else {
                insert(&d, &k, v);
            }
        }
        insert(dest, &global(), dg);
    }

    fn values(&mut self, c: &Chart, v: &Arc<Map>, prefix: &str, merge: bool) {
        let prefix = join(prefix, c.name());
        let defaults = c.values.deep_copy();
        let Some(defaults) = defaults.as_table() else { return };
        for (k, val) in defaults.entries() {
            match v.get(k.as_bytes()) {
                Some(Val::Nil) if !merge => {
                    v.lock().remove(k.as_bytes());
                }
                Some(value) => {
                    let Some(dest) = value.as_table() else { continue };
                    match val.as_table() {
                        None => {
                            if val.is_some() {
                                self.warn(format!("warning: skipped value for {prefix}.{k}: Not a table."));
                            }
                        }
                        Some(src) => {
                            // A subchart's own values keep their nulls until its turn.
                            let merge = merge || c.dependencies.iter().any(|s| s.name().as_bytes() == k.as_bytes());
                            if !merge && !self.keep_nulls {
                                clean(src);
                            }
                            self.tables(dest, src, &join(&prefix, &k.text()), merge);
                        }
                    }
                }
                None => {
                    if !merge && !self.keep_nulls {
                        if !val.is_some() {
                            continue;
                        }
                        if let Some(s) = val.as_table() {
                            clean(s);
                        }
                    }
                    insert(v, &k, val);
                }
            }
        }
    }

    /// Fills one table from another; the first one wins.
    pub fn tables(&mut self, dst: &Arc<Map>, src: &Arc<Map>, prefix: &str, merge: bool) {
        if dst.same(src) {
            return;
        }
        let given: BTreeSet<Str> = src.lock().iter().filter(|(_, v)| v.is_some()).map(|(k, _)| k.clone()).collect();
        for (k, v) in dst.entries() {
            if !v.is_some() {
                insert(src, &k, Val::Nil);
            }
        }
        for (k, val) in src.entries() {
            let full = join(prefix, &k.text());
            match dst.get(k.as_bytes()) {
                Some(d) if !merge && !d.is_some() && given.contains(&k) => {
                    dst.lock().remove(k.as_bytes());
                }
                None => insert(dst, &k, val),
                Some(d) => {
                    if let Some(s) = val.as_table() {
                        match d.as_table() {
                            Some(t) => stacker::maybe_grow(64 << 10, 1 << 20, || self.tables(t, s, &full, merge)),
                            None => self.warn(format!("warning: cannot overwrite table with non table for {full} ({})", sprint(&val))),
                        }
                    } else if is_table(&d) && val.is_some() {
                        self.warn(format!("warning: destination for {full} is a table. Ignoring non-table value ({})", sprint(&val)));
                    }
                }
            }
        }
    }
}

/// Removes nulls everywhere below.
fn clean(m: &Arc<Map>) {
    for (k, v) in m.entries() {
        if !v.is_some() {
            m.lock().remove(k.as_bytes());
        } else if let Some(t) = v.as_table() {
            stacker::maybe_grow(64 << 10, 1 << 20, || clean(t));
        }
    }
}
