//! Dependencies: version ranges, aliases, tags, conditions, and values imported from children.

use super::coalesce::Coalesce;
use super::load::Chart;
use super::metadata::Dependency;
use crate::func::semver::compatible;
use crate::text::fmt::sprint;
use crate::value::{Map, MapTy, Str, Tree, Val};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Names of dependencies that Chart.yaml asks for and charts/ has not.
pub fn missing(c: &Chart) -> Vec<String> {
    c.metadata.dependencies.iter().flatten().filter(|d| !c.dependencies.iter().any(|s| s.name() == d.name)).map(|d| d.name.clone()).collect()
}

/// Settles which subcharts take part and what they hand up.
pub fn process(c: &mut Chart, values: &Val, keep_nulls: bool, warnings: &mut Vec<String>) -> Result<(), String> {
    enabled(c, values, "", keep_nulls, warnings)?;
    import(c, warnings)
}

fn path_value(v: &Val, path: &str) -> Option<Val> {
    let (head, key) = match path.rsplit_once('.') {
        Some((h, k)) => (Some(h), k),
        None => (None, path),
    };
    let t = match head {
        Some(h) => table(v, h)?,
        None => v.as_table()?.clone(),
    };
    t.get(key.as_bytes()).filter(|v| v.as_table().is_none())
}

fn table(v: &Val, path: &str) -> Option<Arc<Map>> {
    let mut at = v.as_table()?.clone();
    for part in path.split('.') {
        let next = at.get(part.as_bytes())?;
        at = next.as_table()?.clone();
    }
    Some(at)
}

fn alias(charts: &[Chart], dep: &Dependency) -> Option<Chart> {
    let c = charts.iter().find(|c| c.name() == dep.name && compatible(&dep.version, &c.metadata.version))?;
    let mut out = c.clone();
    if !dep.alias.is_empty() {
        out.metadata.name = dep.alias.clone();
    }
    Some(out)
}

fn enabled(c: &mut Chart, v: &Val, path: &str, keep_nulls: bool, warnings: &mut Vec<String>) -> Result<(), String> {
    let Some(mut reqs) = c.metadata.dependencies.clone() else { return Ok(()) };
    // Charts that Chart.yaml does not speak of stay, in front.
    let mut subs: Vec<Chart> = c.dependencies.iter().filter(|e| !reqs.iter().any(|r| e.name() == r.name && compatible(&r.version, &e.metadata.version))).cloned().collect();
    for r in &mut reqs {
        subs.extend(alias(&c.dependencies, r));
        if !r.alias.is_empty() {
            r.name = r.alias.clone();
        }
        r.enabled = true;
    }
    c.dependencies = subs;
    c.metadata.dependencies = Some(reqs.clone());
    let cvals = Coalesce { merge: false, keep_nulls, warnings }.run(c, v)?;
    tags(&mut reqs, &cvals);
    conditions(&mut reqs, &cvals, path);
    let off: BTreeSet<&str> = reqs.iter().filter(|r| !r.enabled).map(|r| r.name.as_str()).collect();
    c.dependencies.retain(|s| !off.contains(s.name()));
    let kept: Vec<Dependency> = reqs.iter().filter(|r| !off.contains(r.name.as_str())).cloned().collect();
    for s in &mut c.dependencies {
        let below = format!("{path}{}.", s.metadata.name);
        enabled(s, &cvals, &below, keep_nulls, warnings)?;
    }
    // An emptied list counts as no list from here on.
    c.metadata.dependencies = if kept.is_empty() { None } else { Some(kept) };
    Ok(())
}

fn tags(reqs: &mut [Dependency], v: &Val) {
    let Some(t) = table(v, "tags") else { return };
    for r in reqs {
        let (mut yes, mut no) = (false, false);
        for k in &r.tags {
            match t.get(k.as_bytes()) {
                Some(Val::Bool(true)) => yes = true,
                Some(Val::Bool(false)) => no = true,
                _ => {}
            }
        }
        r.enabled = yes || !no;
    }
}

fn conditions(reqs: &mut [Dependency], v: &Val, path: &str) {
    for r in reqs {
        for c in r.condition.trim().split(',').filter(|c| !c.is_empty()) {
            if let Some(Val::Bool(b)) = path_value(v, &format!("{path}{c}")) {
                r.enabled = b;
                break;
            }
        }
    }
}

fn import(c: &mut Chart, warnings: &mut Vec<String>) -> Result<(), String> {
    for s in &mut c.dependencies {
        import(s, warnings)?;
    }
    let Some(mut deps) = c.metadata.dependencies.clone() else { return Ok(()) };
    let cvals = Coalesce { merge: true, keep_nulls: true, warnings }.run(c, &Val::Nil)?;
    let b = Val::map(Tree::new());
    let Some(target) = b.as_table().cloned() else { return Ok(()) };
    for d in &mut deps {
        let mut shown = Vec::new();
        for iv in &d.import_values {
            let (child, parent) = match iv {
                Val::Map(m) => {
                    let get = |k: &str| sprint(&m.get(k.as_bytes()).unwrap_or(Val::Nil));
                    (get("child"), get("parent"))
                }
                Val::Str(s) => (format!("exports.{s}"), ".".to_string()),
                _ => continue,
            };
            let pair = Tree::from([(Str::from("child"), Val::str(child.as_str())), (Str::from("parent"), Val::str(parent.as_str()))]);
            shown.push(Val::typed_map(MapTy::Str, pair));
            let Some(t) = table(&cvals, &format!("{}.{child}", d.name)) else { continue };
            let mut part = Val::Map(t);
            if parent != "." {
                for key in parent.rsplit('.') {
                    part = Val::map(Tree::from([(Str::from(key), part)]));
                }
            }
            if let Some(p) = part.as_table() {
                Coalesce { merge: true, keep_nulls: true, warnings }.tables(&target, p, "", true);
            }
        }
        d.import_values = shown;
    }
    c.metadata.dependencies = Some(deps);
    let own = cvals.deep_copy();
    if let Some(o) = own.as_table() {
        Coalesce { merge: true, keep_nulls: true, warnings }.tables(o, &target, "", true);
    }
    c.values = own;
    Ok(())
}
