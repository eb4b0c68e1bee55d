//! Fuzzes what reads text that people write: `fuzz TARGET SECONDS [SEED]`.
//!
//! | target | what it does with a text | what is a finding |
//! |---|---|---|
//! | `parse` | lexes, parses and lowers it as a template | a panic, more than a second |
//! | `render` | renders it on both engines within small bounds | a panic, more than five seconds, two different answers |
//! | `yaml` | decodes it, writes it, decodes that | a panic, more than a second, another text the second time |
//! | `values` | reads it as `--set`, `--set-string`, `--set-json` and `--set-literal` | a panic, more than a second |
//! | `archive` | loads it as a chart archive | a panic, more than a second |
//!
//! Texts are made from the recorded probes (`tests/oracle/helm/probes.jsonl`) and the charts under `deploy/` by cutting, doubling, splicing
//! and words of the languages. The text under test lies in `fuzz-TARGET.input` of the folder for temporary files, so that an abort
//! (stack, memory) names it too. Exit code 1 with the text when something was found.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use chart::limit::Limits;
use chart::template::step::Place;
use chart::value::Str;
use chart::{Engine, Request, Val, load, template};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

/// Longest text.
const LENGTH: usize = 4096;

const WORDS: [&str; 64] = [
    "{{", "}}", "{{-", "-}}", "{{/*", "*/}}", "{{ end }}", "{{ else }}", "{{ else if ", "{{ if ", "{{ range ", "{{ with ", "{{ define \"a\" }}", "{{ template \"a\" . }}", "{{ block \"b\" . }}",
    "{{ break }}", "{{ continue }}", "(", ")", "|", ":=", "=", ",", "$", "$x", ".", ".Values", "..", "\"", "`", "'", "\\", "\\x", "\\u", "0x", "1e9", "-0", "9223372036854775808", "1_0",
    " include \"a\" . ", " tpl . $ ", " printf \"%[3]*.[2]*d\" ", " dict ", " fromYaml ", " toYaml ", " index ", " slice ", " until 9 ", " regexReplaceAll \"(a*)*\" ", "\n", "  ", "\t", "- ", ": ",
    "? ", "|-\n", ">+2\n", "&a ", "*a", "<<: ", "!!binary ", "---\n", "%YAML 1.1\n", "\u{feff}",
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let target = args.first().map(String::as_str).unwrap_or_default();
    let (Some(check), Some(Ok(seconds))) = (target_of(target), args.get(1).map(|s| s.parse::<u64>())) else {
        let _ = writeln!(std::io::stderr(), "usage: fuzz parse|render|yaml|values|archive SECONDS [SEED]");
        return ExitCode::from(2);
    };
    let seed = args.get(2).and_then(|s| s.parse().ok()).unwrap_or_else(rand::random::<u64>);
    let corpus = corpus(target);
    let mut rng = StdRng::seed_from_u64(seed);
    let place = std::env::temp_dir().join(format!("fuzz-{target}.input"));
    let most = Duration::from_secs(if target == "render" { 5 } else { 1 });
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut tried = 0u64;
    std::panic::set_hook(Box::new(|_| {}));
    while Instant::now() < end {
        let text = mutated(&corpus, &mut rng);
        let _ = std::fs::write(&place, &text);
        let start = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| check(&text)));
        let fault = match outcome {
            Err(panic) => Some(format!("panic: {}", panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("?"))),
            Ok(Some(fault)) => Some(fault),
            Ok(None) if start.elapsed() > most => Some(format!("took {:.1} s", start.elapsed().as_secs_f64())),
            Ok(None) => None,
        };
        tried += 1;
        if let Some(fault) = fault {
            let _ = writeln!(std::io::stdout(), "{target}: seed {seed}, text {tried}: {fault}\n{:?}\nit is in {}", String::from_utf8_lossy(&text), place.display());
            return ExitCode::FAILURE;
        }
    }
    let _ = writeln!(std::io::stdout(), "{target}: {tried} texts, no finding (seed {seed})");
    let _ = std::fs::remove_file(&place);
    ExitCode::SUCCESS
}

/// Does what a target does; the fault, if there is one.
type Check = fn(&[u8]) -> Option<String>;

fn target_of(name: &str) -> Option<Check> {
    Some(match name {
        "parse" => parse,
        "render" => render,
        "yaml" => yaml,
        "values" => values,
        "archive" => archive,
        _ => return None,
    })
}

fn parse(text: &[u8]) -> Option<String> {
    if let Ok(trees) = chart::template::parse::parse("t", &Str::from(text), &chart::func::number) {
        for tree in trees {
            let _ = chart::lower::lower(&tree.root, Place::default());
        }
    }
    None
}

fn render(text: &[u8]) -> Option<String> {
    let values = "i: 5\nf: 1.5\ns: hello\nn: null\nt: true\nl: [a, b, 3]\nm: {z: 1, a: {b: c}}\nd: {}\n";
    let one = |engine: Engine| {
        let files = BTreeMap::from([
            ("Chart.yaml".to_owned(), b"apiVersion: v2\nname: c\nversion: 1.0.0\n".to_vec()),
            ("values.yaml".to_owned(), values.as_bytes().to_vec()),
            ("templates/_a.tpl".to_owned(), b"{{ define \"a\" }}[{{ . }}]{{ end }}".to_vec()),
            ("templates/NOTES.txt".to_owned(), text.to_vec()),
        ]);
        let limits = Limits { fuel: 100_000, text: 1 << 20, depth: 200 };
        let request = Request { engine, limits, values: Val::map(BTreeMap::default()), ..Request::default() };
        load(files).map_err(|e| e.to_string()).and_then(|chart| template(&chart, &request).map(|out| out.notes).map_err(|e| e.to_string()))
    };
    let (direct, jinja) = (one(Engine::Direct), one(Engine::Jinja));
    // Where a bound ends a render differs: the engines count different steps.
    let bounded = |answer: &Result<String, String>| answer.as_ref().is_err_and(|e| e.contains("more than") || e.contains("too deep") || e.contains("too many") || e.contains("exceeded"));
    (direct != jinja && !bounded(&direct) && !bounded(&jinja)).then(|| format!("direct {direct:?}\njinja {jinja:?}"))
}

fn yaml(text: &[u8]) -> Option<String> {
    let value = chart::yaml::decode(text).ok()?;
    let written = chart::yaml::emit::to_yaml(&value)?;
    // Helm writes a merge key without quotes too, and cannot read it again.
    if written.windows(2).any(|two| two == b"<<") {
        return None;
    }
    let again = match chart::yaml::decode(&written) {
        Ok(again) => chart::yaml::emit::to_yaml(&again),
        Err(error) => return Some(format!("what was written cannot be read: {error:?}\n{:?}", String::from_utf8_lossy(&written))),
    };
    (again.as_ref() != Some(&written)).then(|| format!("{:?}\nthen {:?}", String::from_utf8_lossy(&written), again.map(|again| String::from_utf8_lossy(&again).into_owned())))
}

fn values(text: &[u8]) -> Option<String> {
    use chart::helm::strvals::{Mode, parse_into};
    let line = String::from_utf8_lossy(text);
    for mode in [Mode::Typed, Mode::Text, Mode::Json, Mode::Literal] {
        let mut tree = BTreeMap::default();
        let _ = parse_into(&line, mode, &mut tree, &|_| Err("no files".to_owned()));
    }
    None
}

fn archive(text: &[u8]) -> Option<String> {
    let _ = chart::load_archive(text);
    None
}

/// Texts to begin with.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut out: Vec<Vec<u8>> = Vec::new();
    if target == "values" {
        out.extend(["a=b", "a.b[0].c=1,d=e", "a={x,y}", "a\\.b=c\\,d", "a[2]=null", "a={\"b\":[1,{}]}", "a[0][1]=x", "a={}", "=x", "a=b,"].map(|t| t.as_bytes().to_vec()));
        return out;
    }
    if target == "archive" {
        out.push(packed(&[("c/Chart.yaml", "apiVersion: v2\nname: c\nversion: 1.0.0\n"), ("c/values.yaml", "a: 1\n"), ("c/templates/a.yaml", "a: b\n"), ("c/charts/d/Chart.yaml", "apiVersion: v2\nname: d\nversion: 1.0.0\n")]));
        return out;
    }
    for line in std::fs::read_to_string(root.join("tests/oracle/helm/probes.jsonl")).unwrap_or_default().lines() {
        let Ok(probe) = serde_json::from_str::<serde_json::Value>(line) else { continue };
        let field = if target == "yaml" { "o" } else { "t" };
        out.extend(probe.get(field).and_then(|t| t.as_str()).map(|t| t.as_bytes().to_vec()));
    }
    let mut folders = vec![root.join("deploy"), root.join("examples-repo")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let wanted = if target == "yaml" { !path.to_string_lossy().contains("/templates/") } else { path.to_string_lossy().contains("/templates/") };
            if path.is_dir() {
                folders.push(path);
            } else if wanted && path.extension().is_some_and(|e| e == "yaml" || e == "tpl" || e == "txt") {
                out.extend(std::fs::read(&path));
            }
        }
    }
    out
}

fn packed(files: &[(&str, &str)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none()));
    for (name, text) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        let _ = tar.append_data(&mut header, name, text.as_bytes());
    }
    tar.into_inner().and_then(flate2::write::GzEncoder::finish).unwrap_or_default()
}

fn mutated(corpus: &[Vec<u8>], rng: &mut StdRng) -> Vec<u8> {
    let pick = |rng: &mut StdRng| corpus.get(rng.random_range(0..corpus.len().max(1))).cloned().unwrap_or_default();
    let mut text = pick(rng);
    if text.len() > LENGTH {
        let from = rng.random_range(0..text.len() - LENGTH / 2);
        text = text.split_off(from);
    }
    for _ in 0..rng.random_range(1..8) {
        let at = rng.random_range(0..=text.len());
        let to = rng.random_range(at..=text.len().min(at + 64));
        match rng.random_range(0..7) {
            0 => drop(text.drain(at..to)),
            1 => {
                let part = text[at..to].to_vec();
                text.splice(at..at, part);
            }
            2 => {
                let other = pick(rng);
                let from = rng.random_range(0..=other.len());
                let until = rng.random_range(from..=other.len().min(from + 256));
                text.splice(at..to, other[from..until].iter().copied());
            }
            3 | 4 => drop(text.splice(at..at, WORDS[rng.random_range(0..WORDS.len())].bytes())),
            5 if at < text.len() => text[at] ^= 1 << rng.random_range(0..8),
            5 => text.push(rng.random_range(0..=255)),
            _ => {
                // Many of one thing: what is nested or quadratic shows.
                let word = WORDS[rng.random_range(0..WORDS.len())].repeat(rng.random_range(1..200));
                text.splice(at..at, word.bytes());
            }
        }
    }
    text.truncate(LENGTH);
    text
}
