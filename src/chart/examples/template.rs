//! `helm template` on the chart room: the same flags, the same text; `--bench N` repeats the render and prints times, with
//! `--cached` only those of a chart that is loaded.

use chart::{Engine, Given, Request, Rules, load, load_archive, parse_kube, template};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;

fn walk(dir: &Path, base: &Path, out: &mut BTreeMap<String, Vec<u8>>) -> std::io::Result<()> {
    for e in std::fs::read_dir(dir)? {
        let p = e?.path();
        if p.is_dir() {
            walk(&p, base, out)?;
        } else if let (Ok(rel), Ok(data)) = (p.strip_prefix(base), std::fs::read(&p)) {
            out.insert(rel.to_string_lossy().into_owned(), data);
        }
    }
    Ok(())
}

fn read(path: &str) -> Result<chart::Chart, String> {
    let p = Path::new(path);
    if p.is_dir() {
        let mut files = BTreeMap::new();
        walk(p, p, &mut files).map_err(|e| e.to_string())?;
        return load(files).map_err(|e| e.to_string());
    }
    let data = std::fs::read(p).map_err(|e| e.to_string())?;
    load_archive(&data).map_err(|e| e.to_string())
}

struct Args {
    positional: Vec<String>,
    given: Given,
    bench: usize,
    cached: bool,
}

fn parse_args(req: &mut Request) -> Result<Args, String> {
    let mut a = Args { positional: Vec::new(), given: Given::default(), bench: 0, cached: false };
    let mut it = std::env::args().skip(1);
    while let Some(arg) = it.next() {
        let (flag, inline) = match arg.split_once('=') {
            Some((f, v)) if f.starts_with("--") => (f.to_string(), Some(v.to_string())),
            _ => (arg.clone(), None),
        };
        let mut val = || inline.clone().or_else(|| it.next()).ok_or(format!("flag needs an argument: {flag}"));
        match flag.as_str() {
            "-f" | "--values" => {
                for f in val()?.split(',') {
                    let data = std::fs::read(f).map_err(|e| e.to_string())?;
                    a.given.files.push((f.into(), data));
                }
            }
            "--set" => a.given.set.push(val()?),
            "--set-string" => a.given.text.push(val()?),
            "--set-json" => a.given.json.push(val()?),
            "--set-file" => a.given.file.push(val()?),
            "--set-literal" => a.given.literal.push(val()?),
            "-n" | "--namespace" => req.namespace = val()?,
            "--kube-version" => req.kube_version = {
                let v = val()?;
                Some(parse_kube(&v).map_err(|e| format!("invalid kube version '{v}': {e}"))?)
            },
            "-a" | "--api-versions" => req.api_versions.extend(val()?.split(',').map(String::from)),
            "-s" | "--show-only" => req.show_only.push(val()?),
            "--include-crds" => req.include_crds = true,
            "--skip-tests" => req.skip_tests = true,
            "--no-hooks" => req.no_hooks = true,
            "--is-upgrade" => req.is_upgrade = true,
            "--skip-schema-validation" => req.skip_schema = true,
            "--seed" => req.seed = val()?.parse().map_err(|_| "bad seed")?,
            "--helm3" => req.rules = Rules::Helm3,
            "--jinja" => req.engine = Engine::Jinja,
            "--direct" => req.engine = Engine::Direct,
            "--cached" => a.cached = true,
            "--bench" => a.bench = val()?.parse().map_err(|_| "bad count")?,
            f if f.starts_with('-') => return Err(format!("unknown flag: {f}")),
            _ => a.positional.push(arg),
        }
    }
    Ok(a)
}

fn run() -> Result<(), String> {
    let mut req = Request::default();
    let a = parse_args(&mut req)?;
    req.now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_nanos() as i128);
    let path = match &a.positional[..] {
        [c] => c,
        [n, c] => {
            req.name.clone_from(n);
            c
        }
        _ => return Err("usage: template [NAME] CHART".into()),
    };
    req.values = a.given.merge(&|f| std::fs::read(f).map_err(|e| e.to_string()))?;
    let c = read(path)?;
    if a.bench > 0 {
        let n = a.bench;
        let time = |f: &mut dyn FnMut() -> Result<(), String>| -> Result<f64, String> {
            f()?;
            let t = std::time::Instant::now();
            for _ in 0..n {
                f()?;
            }
            Ok(t.elapsed().as_secs_f64() * 1e3 / n as f64)
        };
        let cold = if a.cached {
            0.0
        } else {
            time(&mut || {
                let c = read(path)?;
                template(&c, &req).map(|_| ()).map_err(|e| e.to_string())
            })?
        };
        let hot = time(&mut || template(&c, &req).map(|_| ()).map_err(|e| e.to_string()))?;
        let mut o = std::io::stdout();
        let _ = writeln!(o, "{path}\tload+render {cold:.2} ms\trender {hot:.2} ms");
        return Ok(());
    }
    let out = template(&c, &req).map_err(|e| e.to_string())?;
    let _ = std::io::stdout().write_all(out.text.as_bytes());
    Ok(())
}

fn main() -> std::process::ExitCode {
    match run() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(e) => {
            let _ = writeln!(std::io::stderr(), "Error: {e}");
            std::process::ExitCode::FAILURE
        }
    }
}
