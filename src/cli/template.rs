//! `anabranch template`: the same flags and the same text as `helm template`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use chart::{Engine, Given, Output, Request, Rules, load, load_archive, parse_kube, template};
use program::exit::{print, say};

use crate::args::TemplateArgs;

/// Flags with a value that matter here, or that only an installation looks at.
const VALUED: &[&str] = &[
    "api-versions", "ca-file", "cert-file", "description", "key-file", "keyring", "kube-version", "labels", "name-template", "namespace",
    "output-dir", "password", "post-renderer", "post-renderer-args", "repo", "set", "set-file", "set-json", "set-literal", "set-string",
    "show-only", "timeout", "username", "values", "version", "seed", "burst-limit", "kube-apiserver", "kube-as-group", "kube-as-user",
    "kube-ca-file", "kube-context", "kube-tls-server-name", "kube-token", "kubeconfig", "qps", "registry-config", "repository-cache",
    "repository-config", "content-cache", "color", "colour",
];
/// Flags that are on or off.
const SWITCHES: &[&str] = &[
    "create-namespace", "debug", "dependency-update", "devel", "direct", "disable-openapi-validation", "enable-dns", "force", "force-conflicts",
    "force-replace", "generate-name", "helm3", "include-crds", "insecure-skip-tls-verify", "is-upgrade", "jinja", "kube-insecure-skip-tls-verify",
    "no-hooks", "pass-credentials", "plain-http", "release-name", "replace", "atomic", "rollback-on-failure", "skip-crds",
    "skip-schema-validation", "skip-tests", "take-ownership", "validate", "verify", "wait-for-jobs", "help",
];
/// Flags whose value may be left out; a value stands behind `=` only.
const OPTIONAL: &[&str] = &["dry-run", "server-side", "wait"];
/// One-letter flags.
const SHORT: &[(char, &str)] = &[('a', "api-versions"), ('f', "values"), ('g', "generate-name"), ('l', "labels"), ('n', "namespace"), ('s', "show-only"), ('h', "help")];

/// Flags and their values, in order, and the words that are none.
#[derive(Default)]
struct Words {
    flags: Vec<(&'static str, String)>,
    positional: Vec<String>,
}

fn find(list: &'static [&'static str], name: &str) -> Option<&'static str> {
    list.iter().copied().find(|known| *known == name)
}

impl Words {
    fn read(words: &[String]) -> Result<Self, String> {
        let mut out = Self::default();
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            if word == "--" {
                out.positional.extend(rest.by_ref().cloned());
            } else if let Some(long) = word.strip_prefix("--") {
                let (name, inline) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
                if let Some(name) = find(VALUED, name) {
                    let value = inline.map(str::to_owned).or_else(|| rest.next().cloned()).ok_or_else(|| format!("flag needs an argument: {word}"))?;
                    out.flags.push((name, value));
                } else if let Some(name) = find(SWITCHES, name).or_else(|| find(OPTIONAL, name)) {
                    out.flags.push((name, inline.unwrap_or("true").to_owned()));
                } else {
                    return Err(format!("unknown flag: --{name}"));
                }
            } else if word.len() > 1 && word.starts_with('-') {
                out.short(word, &mut rest)?;
            } else {
                out.positional.push(word.clone());
            }
        }
        Ok(out)
    }

    fn short(&mut self, word: &str, rest: &mut std::slice::Iter<'_, String>) -> Result<(), String> {
        let letters = word.trim_start_matches('-');
        for (at, letter) in letters.char_indices() {
            let Some((_, name)) = SHORT.iter().find(|(known, _)| *known == letter) else {
                return Err(format!("unknown shorthand flag: '{letter}' in {word}"));
            };
            if find(SWITCHES, name).is_some() {
                self.flags.push((name, "true".to_owned()));
                continue;
            }
            let inline = letters[at + letter.len_utf8()..].trim_start_matches('=');
            let value = if inline.is_empty() { rest.next().cloned() } else { Some(inline.to_owned()) };
            self.flags.push((name, value.ok_or_else(|| format!("flag needs an argument: '{letter}' in {word}"))?));
            return Ok(());
        }
        Ok(())
    }

    fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a String> {
        self.flags.iter().filter(move |(known, _)| *known == name).map(|(_, value)| value)
    }

    fn last(&self, name: &str) -> Option<&str> {
        self.flags.iter().rev().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    fn is_on(&self, name: &str) -> Result<bool, String> {
        match self.last(name) {
            None | Some("false" | "0" | "f" | "F" | "FALSE" | "False") => Ok(false),
            Some("true" | "1" | "t" | "T" | "TRUE" | "True") => Ok(true),
            Some(other) => Err(format!("invalid argument \"{other}\" for \"--{name}\" flag: strconv.ParseBool: parsing \"{other}\": invalid syntax")),
        }
    }
}

/// The files of a folder, links followed; the fault is worded as Go's.
pub(crate) fn walk(dir: &Path, base: &Path, out: &mut BTreeMap<String, Vec<u8>>) -> Result<(), String> {
    let shown = |path: &Path| path.display().to_string();
    for entry in std::fs::read_dir(dir).map_err(|e| open_fault(&shown(dir), &e))? {
        let path = entry.map_err(|e| open_fault(&shown(dir), &e))?.path();
        if path.is_symlink() && !path.exists() {
            return Err(format!("error evaluating symlink {}: lstat {}: no such file or directory", shown(&path), shown(&first_absent(&path))));
        }
        if path.is_dir() {
            walk(&path, base, out)?;
        } else if let Ok(relative) = path.strip_prefix(base) {
            let data = std::fs::read(&path).map_err(|e| open_fault(&shown(&path), &e))?;
            out.insert(relative.to_string_lossy().into_owned(), data);
        }
    }
    Ok(())
}

/// The first part of a link's target that is not there.
fn first_absent(link: &Path) -> PathBuf {
    let mut at = link.parent().map(Path::to_path_buf).unwrap_or_default();
    for part in std::fs::read_link(link).unwrap_or_default().components() {
        match part {
            std::path::Component::ParentDir => {
                at.pop();
            }
            std::path::Component::CurDir => {}
            other => at.push(other),
        }
        if !at.exists() {
            break;
        }
    }
    at
}

/// Go's words for a file that cannot be opened.
fn open_fault(path: &str, error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => format!("open {path}: no such file or directory"),
        std::io::ErrorKind::PermissionDenied => format!("open {path}: permission denied"),
        _ => format!("open {path}: {error}"),
    }
}

fn read_file(path: &str) -> Result<Vec<u8>, String> {
    if path.trim() == "-" {
        let mut all = Vec::new();
        std::io::stdin().read_to_end(&mut all).map_err(|e| e.to_string())?;
        return Ok(all);
    }
    std::fs::read(path).map_err(|e| open_fault(path, &e))
}

/// A chart from a folder, an archive, or a repository.
fn chart_of(path: &str, words: &Words) -> Result<chart::Chart, String> {
    let remote = words.last("repo").is_some() || path.starts_with("oci://");
    let local = Path::new(path);
    if !remote && local.is_dir() {
        if !local.join("Chart.yaml").exists() {
            let file = local.join("Chart.yaml");
            let file = file.display();
            return Err(format!("unable to detect chart at {file}: open {file}: no such file or directory"));
        }
        if words.is_on("verify")? {
            return Err("unpacked charts cannot be verified".to_owned());
        }
        let mut files = BTreeMap::new();
        walk(local, local, &mut files)?;
        return load(files).map_err(|e| e.to_string());
    }
    if !remote && local.exists() {
        let data = read_file(path)?;
        if words.is_on("verify")? {
            let absolute = std::path::absolute(local).map_err(|e| open_fault(path, &e))?;
            let beside = format!("{}.prov", absolute.display());
            let provenance = std::fs::read(&beside).map_err(|e| format!("could not load provenance file {beside}: {}", open_fault(&beside, &e).replacen("open", "stat", 1)))?;
            let file = local.file_name().unwrap_or_default().to_string_lossy();
            verify(&data, &file, &provenance, words)?;
        }
        if !data.starts_with(&[0x1f, 0x8b]) {
            let kind = if data.iter().take(512).any(|b| *b < 9) { "application/octet-stream" } else { "text/plain; charset=utf-8" };
            return Err(format!("file '{path}' does not appear to be a gzipped archive; got '{kind}'"));
        }
        return load_archive(&data).map_err(|e| e.to_string());
    }
    if !remote {
        if path.starts_with('.') || local.is_absolute() {
            return Err(format!("path \"{path}\" not found"));
        }
        return Err(match path.split_once('/') {
            Some((repo, _)) => format!("repo {repo} not found"),
            None => format!("non-absolute URLs should be in form of repo_name/path_to_chart, got: {path}"),
        });
    }
    fetch(path, words)
}

/// Checks an archive against its provenance, as `--verify` asks.
fn verify(archive: &[u8], file: &str, provenance: &[u8], words: &Words) -> Result<(), String> {
    let usual = || std::env::home_dir().unwrap_or_default().join(".gnupg/pubring.gpg").display().to_string();
    let keyring = words.last("keyring").map_or_else(usual, str::to_owned);
    let keyring = read_file(&keyring).map_err(|e| format!("failed to load keyring: {e}"))?;
    let now = u64::try_from(now() / 1_000_000_000).unwrap_or_default();
    registry::provenance::verify(archive, file, provenance, &keyring, now).map(|_| ()).map_err(|e| e.to_string())
}

fn fetch(path: &str, words: &Words) -> Result<chart::Chart, String> {
    let pem = |flag: &str| words.last(flag).map(|f| read_file(f).map(|b| String::from_utf8_lossy(&b).into_owned())).transpose();
    let mut options = registry::Options {
        plain_http: words.is_on("plain-http")?,
        tls: registry::Tls {
            ca: pem("ca-file")?,
            certificate: pem("cert-file")?,
            key: pem("key-file")?.map(registry::Secret::new),
            insecure: words.is_on("insecure-skip-tls-verify")?,
        },
        ..registry::Options::default()
    };
    if let Some(username) = words.last("username") {
        let password = registry::Secret::new(words.last("password").unwrap_or_default());
        options.credentials = Some(registry::Credentials { username: username.to_owned(), password });
    }
    let version = match words.last("version") {
        Some(version) => version,
        None if words.is_on("devel")? => ">0.0.0-0",
        None => "",
    };
    let (repository, name) = match words.last("repo") {
        Some(repo) => (repo.to_owned(), path.to_owned()),
        None => path.rsplit_once('/').map(|(base, name)| (base.to_owned(), name.to_owned())).unwrap_or_default(),
    };
    let wanted = registry::Reference { repository: repository.clone(), chart: name.clone(), version: version.to_owned() };
    let client = registry::Client::new(options).map_err(|e| e.to_string())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    let is_verified = words.is_on("verify")?;
    let pulled = async {
        let found = client.resolve(&wanted).await?;
        let archive = client.pull_found(&wanted, &found).await?.archive;
        let provenance = if is_verified { Some(client.provenance(&wanted, &found).await?) } else { None };
        Ok((archive, provenance))
    };
    let (archive, provenance) = runtime.block_on(pulled).map_err(|error| match error {
        registry::Error::NoChart { .. } | registry::Error::NoVersion { .. } if version.is_empty() => format!("chart \"{name}\" not found in {repository} repository"),
        registry::Error::NoChart { .. } | registry::Error::NoVersion { .. } => format!("chart \"{name}\" version \"{version}\" not found in {repository} repository"),
        other => other.to_string(),
    })?;
    if let Some((provenance, file)) = provenance {
        verify(&archive, &file, &provenance, words)?;
    }
    load_archive(&archive).map_err(|e| e.to_string())
}

/// The name that a `--name-template` gives.
fn named(text: &str) -> Result<String, String> {
    let files = BTreeMap::from([
        ("Chart.yaml".to_owned(), b"apiVersion: v2\nname: name-template\nversion: 0.0.1\n".to_vec()),
        ("templates/NOTES.txt".to_owned(), text.as_bytes().to_vec()),
    ]);
    let chart = load(files).map_err(|e| e.to_string())?;
    template(&chart, &Request { seed: seed(), now: now(), ..Request::default() }).map(|out| out.notes).map_err(|e| e.to_string())
}

fn now() -> i128 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_nanos() as i128)
}

/// Passwords come of it.
fn seed() -> u64 {
    rand::random()
}

fn request(words: &Words) -> Result<Request, String> {
    let mut req = Request { now: now(), seed: seed(), ..Request::default() };
    let named = words.last("namespace").map(str::to_owned).or_else(|| std::env::var("HELM_NAMESPACE").ok());
    if let Some(namespace) = named.filter(|n| !n.is_empty()) {
        req.namespace = namespace;
    }
    if let Some(version) = words.last("kube-version").filter(|v| !v.is_empty()) {
        req.kube_version = Some(parse_kube(version).map_err(|e| format!("invalid kube version '{version}': {e}"))?);
    }
    req.api_versions.extend(words.all("api-versions").flat_map(|list| list.split(',')).map(str::to_owned));
    req.show_only.extend(words.all("show-only").cloned());
    req.include_crds = words.is_on("include-crds")?;
    req.skip_tests = words.is_on("skip-tests")?;
    req.no_hooks = words.is_on("no-hooks")?;
    req.is_upgrade = words.is_on("is-upgrade")?;
    req.skip_schema = words.is_on("skip-schema-validation")?;
    if let Some(seed) = words.last("seed") {
        req.seed = seed.parse().map_err(|_| format!("invalid argument \"{seed}\" for \"--seed\" flag: it is not a number"))?;
    }
    if words.is_on("helm3")? {
        req.rules = Rules::Helm3;
    }
    if words.is_on("direct")? {
        req.engine = Engine::Direct;
    }
    match words.last("dry-run") {
        None | Some("true" | "client" | "none" | "unset" | "false") => {}
        Some("server") => return Err("--dry-run=server needs a cluster, and nothing is asked while rendering".to_owned()),
        Some(other) => return Err(format!("invalid dry-run value (\"{other}\"). Must be \"none\", \"server\", or \"client\"")),
    }
    if words.is_on("validate")? {
        return Err("--validate needs a cluster, and nothing is asked while rendering".to_owned());
    }
    if words.is_on("dependency-update")? {
        return Err("--dependency-update is not supported; run: helm dependency build".to_owned());
    }
    if words.last("post-renderer").is_some() {
        return Err("--post-renderer is not supported".to_owned());
    }
    Ok(req)
}

/// Writes the documents into files, as `--output-dir` asks.
fn write_files(out: &Output, req: &Request, dir: &Path) -> Result<String, String> {
    let mut said = String::new();
    let mut begun = BTreeSet::new();
    let crds = out.crds.iter().filter(|_| req.include_crds).map(|(path, text)| (path, text));
    let documents = out.documents.iter().map(|d| (&d.path, &d.content));
    let skipped = |h: &&chart::Hook| req.no_hooks || (req.skip_tests && h.events.iter().any(|e| e == "test"));
    let hooks = out.hooks.iter().filter(|h| !skipped(h)).map(|h| (&h.document.path, &h.document.content));
    for (path, text) in crds.chain(documents).chain(hooks) {
        // A chart may not write anywhere else.
        if Path::new(path).components().any(|part| !matches!(part, std::path::Component::Normal(_))) {
            return Err(format!("{path} leads out of the folder"));
        }
        let file = dir.join(path);
        let fault = |e: std::io::Error| open_fault(&file.display().to_string(), &e);
        if let Some(parent) = file.parent() {
            std::fs::create_dir_all(parent).map_err(fault)?;
        }
        let first = begun.insert(path.clone());
        let mut to = std::fs::OpenOptions::new().create(true).write(true).truncate(first).append(!first).open(&file).map_err(fault)?;
        to.write_all(format!("---\n# Source: {path}\n{text}\n").as_bytes()).map_err(fault)?;
        said.push_str(&format!("wrote {}\n", file.display()));
    }
    said.push('\n');
    Ok(said)
}

fn render(words: &[String]) -> Result<String, String> {
    let words = Words::read(words)?;
    let mut req = request(&words)?;
    let generate = words.is_on("generate-name")?;
    let path = match &words.positional[..] {
        [] => return Err("\"anabranch template\" requires at least 1 argument\n\nUsage:  anabranch template [NAME] [CHART] [flags]".to_owned()),
        [_, _] if generate => return Err("cannot set --generate-name and also specify a name".to_owned()),
        [_, _] if words.last("name-template").is_some() => return Err("cannot set --name-template and also specify a name".to_owned()),
        [chart] => chart,
        [name, chart] => {
            req.name.clone_from(name);
            chart
        }
        [_, _, more @ ..] => return Err(format!("expected at most two arguments, unexpected arguments: {}", more.join(", "))),
    };
    if let Some(text) = words.last("name-template") {
        req.name = named(text)?;
    }
    let mut given = Given::default();
    for list in words.all("values") {
        for file in list.split(',') {
            given.files.push((file.to_owned(), read_file(file)?));
        }
    }
    for (flag, slot) in [("set", &mut given.set), ("set-string", &mut given.text), ("set-json", &mut given.json), ("set-file", &mut given.file), ("set-literal", &mut given.literal)] {
        slot.extend(words.all(flag).cloned());
    }
    req.values = given.merge(&|file| read_file(file))?;
    let chart = chart_of(path, &words)?;
    let out = template(&chart, &req).map_err(|e| e.to_string())?;
    let Some(dir) = words.last("output-dir") else { return Ok(out.text) };
    let mut dir = PathBuf::from(dir);
    if words.is_on("release-name")? {
        dir.push(&req.name);
    }
    write_files(&out, &req, &dir)
}

/// Prints what `helm template` prints; a fault is told in Helm's words.
pub(crate) fn run(args: &TemplateArgs) -> anyhow::Result<ExitCode> {
    match render(&args.args) {
        Ok(text) => {
            print(&text);
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            say(&format!("Error: {error}"));
            Ok(ExitCode::FAILURE)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Result<Words, String> {
        Words::read(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn flags_are_read_as_helm_reads_them() {
        let read = words("a b -n x -fy.yaml -gs t --set=a=b --set c=d --wait --no-hooks=false -- -z").expect("flags");
        assert_eq!(read.positional, ["a", "b", "-z"]);
        assert_eq!((read.last("namespace"), read.last("values"), read.last("show-only")), (Some("x"), Some("y.yaml"), Some("t")));
        assert_eq!(read.all("set").collect::<Vec<_>>(), ["a=b", "c=d"]);
        assert_eq!((read.is_on("generate-name"), read.is_on("no-hooks"), read.is_on("is-upgrade")), (Ok(true), Ok(false), Ok(false)));
        assert_eq!(words("--bogus").err().as_deref(), Some("unknown flag: --bogus"));
        assert_eq!(words("--set").err().as_deref(), Some("flag needs an argument: --set"));
        assert!(read.is_on("wait").is_ok_and(|on| on));
    }

    #[test]
    fn a_name_may_be_a_template() {
        assert_eq!(named("foo-{{ add 1 2 }}").as_deref(), Ok("foo-3"));
    }
}
