//! Reads requests from standard input, one JSON object a line, and prints what this room makes of each:
//! `{group, version, kind, object, old?, subresource?, crd?}` gives `{object, unknown, faults}` or `{error}`.
//! A bench for comparing with a real API server (`dryRun=All`).

use schema::{Kind, catalog};
use serde_json::{Value, json};
use std::io::{BufRead, Write};

fn judge(line: &Value) -> Result<Value, String> {
    let text = |k: &str| line.get(k).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = (text("group"), text("version"));
    let kind = match line.get("crd") {
        Some(crd) => Kind::custom(crd, version).map_err(|f| schema::fault::sentence(&f))?,
        None => catalog::by_kind(group, version, text("kind")).and_then(Kind::native).ok_or("unknown kind")?,
    };
    let d = kind.decode(line["object"].clone()).map_err(|e| e.to_string())?;
    let mut o = d.object;
    kind.default(&mut o);
    let faults = match line.get("old") {
        None => {
            o["metadata"]["uid"] = json!("u");
            kind.prepare_create(&mut o);
            kind.validate_create(&o)
        }
        Some(old) => {
            let sub = line.get("subresource").and_then(Value::as_str);
            kind.prepare_update(&mut o, old, sub);
            kind.validate_update(&o, old, sub)
        }
    };
    Ok(json!({"object": o, "unknown": d.unknown, "faults": faults.iter().map(ToString::to_string).collect::<Vec<_>>()}))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line: Value = serde_json::from_str(&line?)?;
        writeln!(out, "{}", judge(&line).unwrap_or_else(|e| json!({"error": e})))?;
    }
    Ok(())
}
