//! Runs recorded one-line templates and prints where this room's answer differs from Helm's: `probe VALUES PROBES [--jinja]`.

use chart::{Engine, Request, load, template};
use std::collections::BTreeMap;
use std::io::Write as _;

fn main() -> std::process::ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let read = |i: usize| args.get(i).and_then(|p| std::fs::read(p).ok()).unwrap_or_default();
    let values = chart::yaml::decode(&read(0)).unwrap_or_default();
    let engine = if args.iter().any(|a| a == "--jinja") { Engine::Jinja } else { Engine::Direct };
    let mut out = std::io::stdout();
    let (mut same, mut differ) = (0, 0);
    for line in String::from_utf8_lossy(&read(1)).lines() {
        let Ok(p) = serde_json::from_str::<serde_json::Value>(line) else { continue };
        let text = |k: &str| p.get(k).and_then(|v| v.as_str()).map(String::from);
        let (Some(t), o, e) = (text("t"), text("o"), text("e")) else { continue };
        let files = BTreeMap::from([
            ("Chart.yaml".to_string(), b"apiVersion: v2\nname: c\nversion: 0.1.0\nappVersion: \"1.0\"\n".to_vec()),
            ("templates/NOTES.txt".to_string(), t.clone().into_bytes()),
            ("a.txt".to_string(), b"hello\nworld\n".to_vec()),
            ("d/b.txt".to_string(), b"bee".to_vec()),
        ]);
        // The notes are a file whose text comes back as it is; faults name the file, so its name is put right.
        let req = Request { name: "rel".into(), namespace: "ns".into(), values: values.clone(), engine, now: 1_800_000_000_000_000_000, ..Request::default() };
        let got = load(files).map_err(|e| e.to_string()).and_then(|c| template(&c, &req).map(|o| o.notes).map_err(|e| e.to_string()));
        let fix = |s: String| s.replace("NOTES.txt", "t.txt").replace("\n\nUse --debug flag to render out invalid YAML", "");
        let ok = match (&got, &o, &e) {
            (Ok(g), Some(o), _) => fix(g.clone()) == *o,
            (Err(g), _, Some(e)) => fix(g.clone()) == *e,
            _ => false,
        };
        if ok {
            same += 1;
        } else {
            differ += 1;
            let (kind, shown) = match got {
                Ok(g) => ("ok", fix(g)),
                Err(g) => ("err", fix(g)),
            };
            let _ = writeln!(out, "{t:?}\n  helm {:?}\n  ours {kind} {shown:?}", o.or(e).unwrap_or_default());
        }
    }
    let _ = writeln!(out, "same {same} differ {differ}");
    std::process::ExitCode::SUCCESS
}
