//! One render from beginning to end: values, templates, documents, and the text `helm template` prints.

use super::capabilities::{Rules, capabilities};
use super::coalesce::Coalesce;
use super::load::{Chart, File};
use super::manifests::{Document, Hook, sort, split};
use super::{deps, schema};
use crate::func::GoErr;
use crate::func::semver::compatible;
use crate::jinja;
use crate::limit::Limits;
use crate::run::{Engine, Env, Lookup, Runtime, Set, strip_no_value};
use crate::template::parse::{Trees, parse};
use crate::value::{KubeVersion, MapTy, Obj, Str, Tree, Val};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

/// What to render, and everything it may depend on.
pub struct Request {
    /// Release name.
    pub name: String,
    /// Release namespace.
    pub namespace: String,
    /// Release revision.
    pub revision: i64,
    /// Values from the user.
    pub values: Val,
    /// Rules.
    pub rules: Rules,
    /// Kubernetes version; none takes Helm's own.
    pub kube_version: Option<KubeVersion>,
    /// Further API versions.
    pub api_versions: Vec<String>,
    /// All API versions of a real cluster, instead of those Helm knows.
    pub all_api_versions: Option<Vec<String>>,
    /// An upgrade instead of an installation.
    pub is_upgrade: bool,
    /// CRDs are printed too.
    pub include_crds: bool,
    /// Only documents of these templates.
    pub show_only: Vec<String>,
    /// Tests are left out.
    pub skip_tests: bool,
    /// Hooks are left out.
    pub no_hooks: bool,
    /// values.schema.json is not looked at.
    pub skip_schema: bool,
    /// Notes of subcharts are taken too.
    pub sub_notes: bool,
    /// Subcharts that Chart.yaml names and charts/ has not are no fault.
    pub allow_missing_dependencies: bool,
    /// The present, nanoseconds since 1970.
    pub now: i128,
    /// Seed of all randomness.
    pub seed: u64,
    /// Picture of a cluster.
    pub lookup: Option<Arc<dyn Lookup>>,
    /// Bounds.
    pub limits: Limits,
    /// Engine.
    pub engine: Engine,
}

impl Default for Request {
    /// `helm template`'s defaults.
    fn default() -> Self {
        Self {
            name: "release-name".into(),
            namespace: "default".into(),
            revision: 1,
            values: Val::map(Tree::new()),
            rules: Rules::default(),
            kube_version: None,
            api_versions: Vec::new(),
            all_api_versions: None,
            is_upgrade: false,
            include_crds: false,
            show_only: Vec::new(),
            skip_tests: false,
            no_hooks: false,
            skip_schema: false,
            sub_notes: false,
            allow_missing_dependencies: false,
            now: 0,
            seed: 0,
            lookup: None,
            limits: Limits::default(),
            engine: Engine::default(),
        }
    }
}

/// A rendered chart.
#[derive(Debug, Clone, Default)]
pub struct Output {
    /// What `helm template` prints.
    pub text: String,
    /// CRDs of the chart and its subcharts: path and text.
    pub crds: Vec<(String, String)>,
    /// Documents in the order of installation.
    pub documents: Vec<Document>,
    /// Hooks.
    pub hooks: Vec<Hook>,
    /// Notes.
    pub notes: String,
    /// Remarks of Helm.
    pub warnings: Vec<String>,
}

/// Why nothing was rendered; the text is what Helm prints after `Error: `.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The chart is a library.
    #[error("{0} charts are not installable")]
    NotInstallable(String),
    /// Subcharts are not there.
    #[error("an error occurred while checking for chart dependencies. You may need to run 'helm dependency build' to fetch missing dependencies: found in Chart.yaml, but missing in charts/ directory: {0}")]
    MissingDependencies(String),
    /// Values do not fit the chart.
    #[error("{0}")]
    Values(String),
    /// Dependencies cannot be settled.
    #[error("chart dependencies processing failed: {0}")]
    Dependencies(String),
    /// The release name cannot be used.
    #[error("{0}")]
    Name(String),
    /// The cluster's version does not fit.
    #[error("chart requires kubeVersion: {want} which is incompatible with Kubernetes {have}\n\nUse --debug flag to render out invalid YAML")]
    KubeVersion {
        /// The chart's range.
        want: String,
        /// The cluster's version.
        have: String,
    },
    /// A template failed.
    #[error("{0}\n\nUse --debug flag to render out invalid YAML")]
    Template(String),
    /// A rendered document is no YAML.
    #[error("{0}\n\nUse --debug flag to render out invalid YAML")]
    Document(String),
    /// A template asked for was not rendered.
    #[error("could not find template {0} in chart")]
    ShowOnly(String),
}

struct Part {
    name: String,
    file: Arc<File>,
    data: Val,
    base: String,
}

/// Renders a chart.
pub fn template(chart: &Chart, req: &Request) -> Result<Output, Error> {
    // Templates may nest as deep as their limits allow, on whatever thread the caller has; pages are only used when touched.
    stacker::grow(STACK, || render(chart, req))
}

/// Stack of one rendering, in bytes.
const STACK: usize = 256 << 20;

fn render(chart: &Chart, req: &Request) -> Result<Output, Error> {
    let mut warnings = chart.warnings.clone();
    if !matches!(chart.metadata.kind.as_str(), "" | "application") {
        return Err(Error::NotInstallable(chart.metadata.kind.clone()));
    }
    let missing = deps::missing(chart);
    if !missing.is_empty() && !req.allow_missing_dependencies {
        return Err(Error::MissingDependencies(missing.join(", ")));
    }
    check_name(&req.name)?;
    let mut chart = chart.clone();
    let keep = req.rules.keeps_nulls();
    deps::process(&mut chart, &req.values, keep, &mut warnings).map_err(Error::Dependencies)?;
    let caps = capabilities(req.rules, req.kube_version.as_ref(), &req.api_versions, req.all_api_versions.as_deref());
    let values = Coalesce { merge: false, keep_nulls: keep, warnings: &mut warnings }.run(&chart, &req.values).map_err(Error::Values)?;
    if !req.skip_schema {
        schema::validate(&chart, &values).map_err(|e| Error::Values(format!("values don't meet the specifications of the schema(s) in the following chart(s):\n{e}")))?;
    }
    if !chart.metadata.kube_version.is_empty() && !compatible(&chart.metadata.kube_version, &caps.kube.normalized) {
        return Err(Error::KubeVersion { want: chart.metadata.kube_version.clone(), have: caps.kube.version.clone() });
    }
    let release = [
        ("Name", Val::str(req.name.as_str())),
        ("Namespace", Val::str(req.namespace.as_str())),
        ("IsUpgrade", Val::Bool(req.is_upgrade)),
        ("IsInstall", Val::Bool(!req.is_upgrade)),
        ("Revision", Val::Int(req.revision)),
        ("Service", Val::str("Helm")),
    ];
    let release = Val::map(release.into_iter().map(|(k, v)| (Str::from(k), v)).collect());
    let caps = Val::obj(Obj::Caps(caps));
    let mut parts = Vec::new();
    collect(&chart, "", true, &typed_values(&values), &release, &caps, &mut parts);
    let mut files = execute(&chart, parts, req)?;
    let mut notes = String::new();
    let main = format!("{}/templates/NOTES.txt", chart.name());
    for (path, text) in files.iter().filter(|(p, _)| p.ends_with("NOTES.txt")) {
        if req.sub_notes || *path == main {
            if !notes.is_empty() {
                notes.push('\n');
            }
            notes.push_str(&crate::text::lossy(text));
        }
    }
    files.retain(|p, _| !p.ends_with("NOTES.txt"));
    let (hooks, documents) = sort(&files, req.rules, &chart.compiled.heads).map_err(Error::Document)?;
    let mut crds = Vec::new();
    crd_files(&chart, "", &mut crds);
    let mut out = Output { crds, documents, hooks, notes, warnings, ..Output::default() };
    out.text = print(&out, req)?;
    Ok(out)
}

fn check_name(name: &str) -> Result<(), Error> {
    let label = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') && !s.starts_with('-') && !s.ends_with('-');
    let ok = name.len() <= 53 && name.split('.').all(label);
    if name.is_empty() {
        return Err(Error::Name("release name check failed: release name \"\": no name provided".into()));
    }
    if !ok {
        return Err(Error::Name(format!(
            "release name check failed: release name {}: invalid release name, must match regex ^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$ and the length must not be longer than 53",
            crate::text::quote::quote(name.as_bytes())
        )));
    }
    Ok(())
}

fn typed_values(v: &Val) -> Val {
    match v {
        Val::Map(m) => m.retyped(MapTy::Values),
        v => v.clone(),
    }
}

fn join(a: &str, b: &str) -> String {
    let p = format!("{a}/{b}");
    crate::text::lossy(&crate::func::path_clean(p.as_bytes())).into_owned()
}

fn collect(c: &Chart, parent: &str, root: bool, values: &Val, release: &Val, caps: &Val, parts: &mut Vec<Part>) -> Val {
    let full = if root { c.name().to_string() } else { format!("{parent}/charts/{}", c.name()) };
    let files: Tree = c.files.iter().map(|f| (Str::from(f.name.as_str()), Val::Str(f.data.clone()))).collect();
    let subcharts = Val::map(Tree::new());
    let mut t = Tree::new();
    for (k, v) in [
        ("Chart", c.metadata.as_map(root)),
        ("Files", Val::typed_map(MapTy::Files, files)),
        ("Release", release.clone()),
        ("Capabilities", caps.clone()),
        ("Values", values.clone()),
        ("Subcharts", subcharts.clone()),
    ] {
        t.insert(Str::from(k), v);
    }
    let data = Val::typed_map(MapTy::Values, t);
    for s in &c.dependencies {
        let own = match values {
            Val::Map(m) => m.get(s.name().as_bytes()).filter(|v| v.as_table().is_some()).map(|v| typed_values(&v)),
            _ => None,
        };
        let own = own.unwrap_or_else(|| Val::typed_map(MapTy::Values, Tree::new()));
        let below = collect(s, &full, false, &own, release, caps, parts);
        if let Val::Map(m) = &subcharts {
            m.lock().insert(Str::from(s.name()), below);
        }
    }
    for f in &c.templates {
        let base = f.name.rsplit('/').next().unwrap_or("");
        if c.metadata.is_library() && !base.starts_with('_') {
            continue;
        }
        parts.push(Part { name: join(&full, &f.name), file: f.clone(), data: data.clone(), base: join(&full, "templates") });
    }
    data
}

fn parsed(chart: &Chart, p: &Part) -> Arc<Result<Trees, String>> {
    let cache = &chart.compiled.files;
    if let Some(t) = cache.lock().unwrap_or_else(PoisonError::into_inner).get(&p.name) {
        return t.clone();
    }
    let t = Arc::new(parse(&p.name, &p.file.data, &crate::func::number));
    cache.lock().unwrap_or_else(PoisonError::into_inner).insert(p.name.clone(), t.clone());
    t
}

fn execute(chart: &Chart, mut parts: Vec<Part>, req: &Request) -> Result<BTreeMap<String, Vec<u8>>, Error> {
    // Deeper files first, later names first: shallower definitions win.
    let slashes = |p: &Part| p.name.matches('/').count();
    parts.sort_by(|a, b| (slashes(b), &b.name).cmp(&(slashes(a), &a.name)));
    // A later chart of the same path replaces an earlier one, as keys of one map do.
    parts.dedup_by(|a, b| a.name == b.name);
    let mut set = Set::default();
    let is_jinja = |p: &Part| p.name.ends_with(jinja::ENDING);
    let sources: BTreeMap<String, String> = parts.iter().filter(|p| is_jinja(p)).map(|p| (p.name.clone(), p.file.data.text().into_owned())).collect();
    let jinja = if sources.is_empty() { None } else { Some(jinja::Files::new(sources).map_err(Error::Template)?) };
    for p in parts.iter().filter(|p| !is_jinja(p)) {
        match &*parsed(chart, p) {
            Ok(t) => set.add(t),
            Err(e) => return Err(Error::Template(parse_fault(&p.name, e))),
        }
    }
    let env = Env { now: req.now, seed: req.seed, lookup: req.lookup.clone(), limits: req.limits.clone(), engine: req.engine, cache: chart.compiled.texts.clone() };
    let mut rt = Runtime::new(env, Arc::new(set));
    let mut out = BTreeMap::new();
    for p in &parts {
        if p.name.rsplit('/').next().unwrap_or("").starts_with('_') {
            continue;
        }
        if let Val::Map(m) = &p.data {
            let t = Tree::from([(Str::from("Name"), Val::str(p.name.as_str())), (Str::from("BasePath"), Val::str(p.base.as_str()))]);
            m.lock().insert(Str::from("Template"), Val::typed_map(MapTy::Values, t));
        }
        let mut text = Vec::new();
        match jinja.as_ref().filter(|_| is_jinja(p)) {
            Some(jinja) => jinja.execute(&mut rt, &p.name, &p.data, &mut text).map_err(Error::Template)?,
            None => rt.execute(p.name.as_bytes(), p.data.clone(), &mut text).map_err(|e| Error::Template(exec_fault(&p.name, &e, req.rules)))?,
        }
        let text = strip_no_value(&text).unwrap_or(text);
        // Notes are notes, in whatever language.
        match p.name.strip_suffix("/NOTES.txt.j2") {
            Some(directory) => out.insert(format!("{directory}/NOTES.txt"), text),
            None => out.insert(p.name.clone(), text),
        };
    }
    Ok(out)
}

/// Helm's wording of a parse fault.
fn parse_fault(file: &str, e: &str) -> String {
    let tokens: Vec<&str> = e.split(": ").collect();
    if tokens.len() == 1 {
        return format!("parse error in ({file}): {e}");
    }
    format!("parse error at ({}): {}", tokens[1], tokens[tokens.len() - 1])
}

/// Helm's wording of an execution fault; Helm 4 takes chained ones apart.
fn exec_fault(file: &str, e: &GoErr, rules: Rules) -> String {
    let whole = e.text();
    if !e.exec {
        return whole;
    }
    let mut tokens = whole.splitn(3, ": ");
    let (Some(_), Some(location), Some(rest)) = (tokens.next(), tokens.next(), tokens.next()) else {
        return format!("execution error in ({file}): {whole}");
    };
    // The chart's own message, from the first mark to the last.
    if let Some(a) = rest.find("HELM_ERR_START") {
        let body = &rest[a + "HELM_ERR_START".len()..];
        if let Some(b) = body.rfind("HELM_ERR_END") {
            return format!("execution error at ({location}): {}", &body[..b]);
        }
    }
    if rules == Rules::Helm3 {
        return whole;
    }
    let mut out: Vec<String> = Vec::new();
    let mut at = Some(e);
    while let Some(link) = at {
        match trace(&link.text()) {
            Some(t) => {
                if out.last() != Some(&t) {
                    out.push(t);
                }
            }
            None => return whole,
        }
        at = link.source.as_deref();
    }
    crate::text::lossy(crate::text::go_trim(out.concat().as_bytes())).into_owned()
}

/// One link of a chain in Helm's several lines.
fn trace(s: &str) -> Option<String> {
    let rest = s.strip_prefix("template: ")?;
    if rest.starts_with("no template ") {
        return Some(format!("{s}\n"));
    }
    let cut = |m: &str| m.find(" template:").map_or(m.to_string(), |i| m[..i].to_string());
    let show = |place: &str, function: &str, message: &str| {
        let mut o = String::new();
        if !place.is_empty() {
            o.push_str(&format!("{place}\n  "));
        }
        if !function.is_empty() {
            o.push_str(&format!("{function}\n    "));
        }
        if !message.is_empty() {
            o.push_str(&format!("{message}\n"));
        }
        o
    };
    if let Some((place, after)) = rest.split_once(": executing ") {
        let parts = || -> Option<(String, String)> {
            let body = after.strip_prefix('"')?;
            let (name, tail) = body.split_once('"')?;
            let (node, message) = tail.strip_prefix(" at <")?.split_once(">: ")?;
            Some((format!("executing \"{name}\" at <{node}>:"), cut(message)))
        };
        if let Some((function, message)) = parts() {
            return Some(show(place, &function, &message));
        }
    }
    let (place, message) = rest.rsplit_once(": ")?;
    Some(show(place, "", &cut(message)))
}

fn crd_files(c: &Chart, parent: &str, out: &mut Vec<(String, String)>) {
    let full = if parent.is_empty() { c.name().to_string() } else { format!("{parent}/charts/{}", c.name()) };
    for f in &c.files {
        let ext = f.name.rsplit('.').next().unwrap_or("");
        if f.name.starts_with("crds/") && matches!(ext, "yaml" | "yml" | "json") {
            out.push((join(&full, &f.name), f.data.text().into_owned()));
        }
    }
    for d in &c.dependencies {
        crd_files(d, &full, out);
    }
}

fn print(out: &Output, req: &Request) -> Result<String, Error> {
    let size = |document: &Document| document.content.len() + document.path.len() + "---\n# Source: \n\n".len();
    let mut text = String::with_capacity(out.documents.iter().map(size).sum::<usize>() + 1);
    let add = |path: &str, text: &str, to: &mut String| {
        to.push_str("---\n# Source: ");
        to.push_str(path);
        to.push('\n');
        to.push_str(text);
        to.push('\n');
    };
    if req.include_crds {
        for (p, t) in &out.crds {
            add(p, t, &mut text);
        }
    }
    for d in &out.documents {
        add(&d.path, &d.content, &mut text);
    }
    // The whole is trimmed; it begins with a mark, or is empty.
    text.truncate(crate::text::go_trim_end(text.as_bytes()).len());
    text.push('\n');
    if !req.no_hooks {
        for h in &out.hooks {
            if req.skip_tests && h.events.iter().any(|e| e == "test") {
                continue;
            }
            add(&h.document.path, &h.document.content, &mut text);
        }
    }
    if req.show_only.is_empty() {
        return Ok(text);
    }
    let all: Vec<String> = split(text.as_bytes(), req.rules).into_iter().map(|d| crate::text::lossy(&d).into_owned()).collect();
    let mut shown = String::new();
    for want in &req.show_only {
        let mut found = false;
        for d in &all {
            let Some(path) = d.lines().find_map(|l| l.split_once("# Source: ")).and_then(|(_, p)| p.split_once('/')).map(|(_, p)| p) else { continue };
            if crate::glob::path_match(want, path).unwrap_or(false) {
                shown.push_str(&format!("---\n{d}\n"));
                found = true;
            }
        }
        if !found {
            return Err(Error::ShowOnly(want.clone()));
        }
    }
    Ok(shown)
}
