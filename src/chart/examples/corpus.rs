//! Renders every chart of a folder through a Helm program and through this room: `corpus HELM FOLDER [--direct] [--only=PART]`.
//!
//! Each chart is rendered with its defaults, with every `ci/*.yaml`, and with all its booleans flipped. It prints one line per case
//! that differs and the counts: identical, different, rejected by both (with the same words or not), rejected by one.

use chart::{Engine, Given, Request, Val, load, template};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

fn walk(dir: &Path, base: &Path, out: &mut BTreeMap<String, Vec<u8>>) {
    for p in std::fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path()) {
        if p.is_dir() {
            walk(&p, base, out);
        } else if let (Ok(rel), Ok(data)) = (p.strip_prefix(base), std::fs::read(&p)) {
            out.insert(rel.to_string_lossy().into_owned(), data);
        }
    }
}

/// The values with every boolean flipped and every empty text filled.
fn flipped(v: &Val) -> Val {
    match v {
        Val::Bool(b) => Val::Bool(!b),
        Val::Str(s) if s.is_empty() => Val::str("filled"),
        Val::Map(m) => Val::map(m.entries().into_iter().map(|(k, v)| (k, flipped(&v))).collect()),
        v => v.clone(),
    }
}

/// Whether ours differs from theirs only in lines that differ between two runs of theirs.
fn is_chance(ours: &str, theirs: &[u8], again: &std::io::Result<std::process::Output>) -> bool {
    let (Ok(again), theirs) = (again, String::from_utf8_lossy(theirs)) else { return false };
    let again = String::from_utf8_lossy(&again.stdout);
    let (a, b, c): (Vec<_>, Vec<_>, Vec<_>) = (theirs.lines().collect(), again.lines().collect(), ours.lines().collect());
    a.len() == b.len() && a.len() == c.len() && a.iter().zip(&b).zip(&c).all(|((a, b), c)| a != b || a == c)
}

fn main() -> std::process::ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [helm, folder, ..] = &args[..] else { return std::process::ExitCode::FAILURE };
    let engine = if args.iter().any(|a| a == "--direct") { Engine::Direct } else { Engine::Jinja };
    let mut out = std::io::stdout();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let scratch = std::env::temp_dir().join(format!("corpus-{}.yaml", std::process::id()));
    let mut charts: Vec<_> = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).filter(|p| p.join("Chart.yaml").exists()).collect();
    charts.sort();
    if let Some(part) = args.iter().find_map(|a| a.strip_prefix("--only=")) {
        charts.retain(|c| c.to_string_lossy().contains(part));
    }
    for dir in charts {
        let mut files = BTreeMap::new();
        walk(&dir, &dir, &mut files);
        let mut cases: Vec<(String, Vec<u8>)> = vec![("defaults".into(), b"{}".to_vec())];
        cases.extend(files.iter().filter(|(n, _)| n.starts_with("ci/") && n.ends_with(".yaml")).map(|(n, d)| (n.clone(), d.clone())));
        if let Some(v) = files.get("values.yaml").and_then(|d| chart::yaml::decode(d).ok()) {
            cases.extend(chart::yaml::to_yaml(&flipped(&v)).map(|y| ("flipped".into(), y)));
        }
        for (name, values) in cases {
            if std::fs::write(&scratch, &values).is_err() {
                return std::process::ExitCode::FAILURE;
            }
            let render = || Command::new(helm).args(["template", "rel"]).arg(&dir).args(["-n", "ns", "-f"]).arg(&scratch).env("KUBECONFIG", "/dev/null").output();
            let Ok(theirs) = render() else { return std::process::ExitCode::FAILURE };
            let given = Given { files: vec![(scratch.to_string_lossy().into_owned(), values)], ..Given::default() };
            let ours = load(files.clone()).map_err(|e| e.to_string()).and_then(|c| {
                let values = given.merge(&|_| Err("no file".into()))?;
                template(&c, &Request { name: "rel".into(), namespace: "ns".into(), values, engine, ..Request::default() }).map(|o| o.text).map_err(|e| e.to_string())
            });
            let err = String::from_utf8_lossy(&theirs.stderr).into_owned();
            let kind = match (theirs.status.success(), &ours) {
                (true, Ok(t)) if t.as_bytes() == theirs.stdout => "identical",
                (true, Ok(t)) if is_chance(t, &theirs.stdout, &render()) => "identical but for what chance made",
                (true, Ok(_)) => "different",
                (false, Err(e)) if err.trim_end().ends_with(e.trim_end()) => "rejected with the same words",
                (false, Err(_)) => "rejected with other words",
                (true, Err(_)) => "rejected here only",
                (false, Ok(_)) => "rejected by Helm only",
            };
            *counts.entry(kind).or_default() += 1;
            if !kind.starts_with("identical") && kind != "rejected with the same words" {
                let _ = writeln!(out, "{kind}\t{}\t{name}", dir.display());
            }
        }
    }
    let _ = std::fs::remove_file(&scratch);
    for (k, n) in counts {
        let _ = writeln!(out, "{n}\t{k}");
    }
    std::process::ExitCode::SUCCESS
}
