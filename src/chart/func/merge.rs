//! `merge` and `mergeOverwrite`: zero values count as unset, nested maps are shared and changed in place.

use super::Ty::Map as M;
use super::{Func, GoErr, Out, err, map, v};
use crate::run::Runtime;
use crate::value::{MAX_DEPTH, Map, Val};
use std::sync::Arc;

pub(super) fn table() -> Vec<Func> {
    vec![
        v("merge", &[M], M, |rt, a| merge(rt, a, false)),
        v("mustMerge", &[M], M, |rt, a| merge(rt, a, false)),
        v("mergeOverwrite", &[M], M, |rt, a| merge(rt, a, true)),
        v("mustMergeOverwrite", &[M], M, |rt, a| merge(rt, a, true)),
    ]
}

fn merge(rt: &mut Runtime, a: &[Val], overwrite: bool) -> Out {
    let mut dst = a[0].clone();
    for src in &a[1..] {
        let Some(s) = map(src) else { continue };
        if map(&dst).is_none() {
            dst = Val::map(Default::default());
        }
        if let Some(d) = map(&dst) {
            deep(rt, d, s, overwrite, 0)?;
        }
    }
    // A nil map prints as an empty one.
    Ok(if dst.is_some() { dst } else { Val::map(Default::default()) })
}

fn deep(rt: &mut Runtime, dst: &Arc<Map>, src: &Arc<Map>, overwrite: bool, depth: usize) -> Result<(), GoErr> {
    if dst.same(src) {
        return Ok(());
    }
    if depth > MAX_DEPTH {
        return err("maps nested too deeply to merge");
    }
    for (k, v) in src.entries() {
        rt.burn(1)?;
        if !v.is_some() {
            if overwrite {
                dst.lock().insert(k, Val::Nil);
            }
            continue;
        }
        let old = dst.get(k.as_bytes());
        let filled = old.as_ref().is_some_and(|o| !super::convert::empty(o));
        match (&old, &v) {
            (Some(Val::Map(d)), Val::Map(s)) if d.ty == s.ty || d.as_ref().is_plain() && s.as_ref().is_plain() => {
                let (d, s) = (d.clone(), s.clone());
                stacker::maybe_grow(64 << 10, 1 << 20, || deep(rt, &d, &s, overwrite, depth + 1))?;
                if !d.is_empty() {
                    continue;
                }
            }
            (Some(_), Val::List(_)) if filled => {
                // A list replaces only with overwrite, or when the whole target was empty.
                if overwrite {
                    dst.lock().insert(k, v);
                }
                continue;
            }
            _ => {}
        }
        if overwrite || !filled {
            dst.lock().insert(k, v);
        }
    }
    Ok(())
}
