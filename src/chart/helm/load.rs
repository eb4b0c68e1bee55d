//! Loading: files to a chart with its subcharts, as Helm's loaders sort them.

use super::archive::unpack;
use super::ignore::Rules;
use super::metadata::{self, Metadata};
use crate::run::TplCache;
use crate::template::parse::Trees;
use crate::value::{Str, Tree, Val};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use super::heads::Heads;
use super::schema::Prepared;

/// Why a chart could not be loaded; the text is Helm's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LoadError(pub String);

/// A file of a chart.
#[derive(Debug)]
pub struct File {
    /// Path within the chart.
    pub name: String,
    /// Contents.
    pub data: Str,
}

/// Caches of a loaded chart, shared by all renders of it.
#[derive(Debug, Default)]
pub struct Compiled {
    /// Parsed template files by full name.
    pub files: Mutex<BTreeMap<String, Arc<Result<Trees, String>>>>,
    /// Parsed `tpl` texts and expressions.
    pub texts: Arc<TplCache>,
    /// Heads of rendered documents.
    pub heads: Heads,
    /// values.schema.json of this chart, read once.
    pub schema: OnceLock<Result<Prepared, String>>,
}

/// A loaded chart.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Chart.yaml.
    pub metadata: Metadata,
    /// values.yaml.
    pub values: Val,
    /// values.schema.json.
    pub schema: Option<Str>,
    /// Files under templates/.
    pub templates: Vec<Arc<File>>,
    /// Other files.
    pub files: Vec<Arc<File>>,
    /// Subcharts.
    pub dependencies: Vec<Chart>,
    /// Caches.
    pub compiled: Arc<Compiled>,
    /// Remarks Helm prints while loading.
    pub warnings: Vec<String>,
}

/// A file without its byte order mark.
pub fn without_bom(data: Vec<u8>) -> Vec<u8> {
    match data.strip_prefix(&[0xEF, 0xBB, 0xBF]) {
        Some(d) => d.to_vec(),
        None => data,
    }
}

/// Loads a chart directory given as its files; `.helmignore` is honoured.
pub fn load(files: BTreeMap<String, Vec<u8>>) -> Result<Chart, LoadError> {
    let fault = |e: String| LoadError(e);
    let rules = Rules::parse(&files.get(".helmignore").map_or(String::new(), |b| crate::text::lossy(b).into_owned())).map_err(fault)?;
    let mut all: Vec<(String, Vec<u8>)> = files.into_iter().filter(|(n, _)| !rules.ignores(n)).map(|(n, d)| (n, without_bom(d))).collect();
    // A directory walk visits names in order, level by level.
    all.sort_by(|a, b| a.0.split('/').cmp(b.0.split('/')));
    build(all, 0).map_err(fault)
}

/// Loads a chart archive (.tgz).
pub fn load_archive(data: &[u8]) -> Result<Chart, LoadError> {
    unpack(data).and_then(|f| build(f, 0)).map_err(LoadError)
}

/// Deepest nesting of subcharts.
const MAX_NESTING: usize = 50;

fn build(files: Vec<(String, Vec<u8>)>, depth: usize) -> Result<Chart, String> {
    if depth > MAX_NESTING {
        return Err("charts nested too deeply".into());
    }
    let mut md: Option<Metadata> = None;
    for (name, data) in &files {
        if name == "Chart.yaml" {
            let m = md.get_or_insert_with(Metadata::default);
            metadata::read(data, m).map_err(|e| format!("cannot load Chart.yaml: {e}"))?;
            if m.api_version.is_empty() {
                m.api_version = "v1".into();
            }
        }
    }
    match md.as_ref().map(|m| m.api_version.as_str()) {
        _ if depth > 0 => {}
        None | Some("v1" | "v2") => {}
        Some("v3") => return Err("invalid chart apiVersion".into()),
        Some(_) => return Err("unsupported chart version".into()),
    }
    let mut chart = Chart {
        metadata: Metadata::default(),
        values: Val::map(Tree::new()),
        schema: None,
        templates: Vec::new(),
        files: Vec::new(),
        dependencies: Vec::new(),
        compiled: Arc::default(),
        warnings: Vec::new(),
    };
    let mut subcharts: BTreeMap<String, Vec<(String, Vec<u8>)>> = BTreeMap::new();
    for (name, data) in files {
        let file = |name: String, data: Vec<u8>| Arc::new(File { name, data: Str::from(data) });
        match name.as_str() {
            "Chart.yaml" => {}
            "Chart.lock" => check_lock(&data).map_err(|e| format!("cannot load Chart.lock: {e}"))?,
            "values.yaml" => chart.values = Val::map(read_values(&data).map_err(|e| format!("cannot load values.yaml: {e}"))?),
            "values.schema.json" => chart.schema = Some(Str::from(data)),
            "requirements.yaml" | "requirements.lock" => {
                let m = md.get_or_insert_with(Metadata::default);
                let old = m.api_version == "v1";
                if name == "requirements.yaml" {
                    if !old {
                        chart.warnings.push("Warning: Dependencies are handled in Chart.yaml since apiVersion \"v2\". We recommend migrating dependencies to Chart.yaml.".into());
                    }
                    metadata::read(&data, m).map_err(|e| format!("cannot load requirements.yaml: {e}"))?;
                } else {
                    check_lock(&data).map_err(|e| format!("cannot load requirements.lock: {e}"))?;
                    if !old {
                        chart.warnings.push("Warning: Dependency locking is handled in Chart.lock since apiVersion \"v2\". We recommend migrating to Chart.lock.".into());
                    }
                }
                if old {
                    chart.files.push(file(name, data));
                }
            }
            n if n.starts_with("templates/") => chart.templates.push(file(name, data)),
            n if n.starts_with("charts/") => {
                if n.ends_with(".prov") {
                    chart.files.push(file(name, data));
                    continue;
                }
                let rest = n["charts/".len()..].to_string();
                let dir = rest.split('/').next().unwrap_or("").to_string();
                subcharts.entry(dir).or_default().push((rest, data));
            }
            _ => chart.files.push(file(name, data)),
        }
    }
    let Some(mut md) = md else { return Err("Chart.yaml file is missing".into()) };
    md.validate()?;
    chart.metadata = md;
    for (dir, files) in subcharts {
        if dir.starts_with(['_', '.']) {
            continue;
        }
        let sub = if dir.ends_with(".tgz") {
            match files.first() {
                Some((n, _)) if *n != dir => return Err(format!("error unpacking subchart tar in {}: expected {dir}, got {n}", chart.metadata.name)),
                Some((_, data)) => unpack(data).and_then(|f| build(f, depth + 1)),
                None => continue,
            }
        } else {
            // Loose files in charts/ are no charts.
            build(files.into_iter().filter_map(|(n, d)| n.split_once('/').map(|(_, r)| (r.to_string(), d))).collect(), depth + 1)
        };
        let sub = sub.map_err(|e| format!("error unpacking subchart {dir} in {}: {e}", chart.metadata.name))?;
        chart.warnings.extend(sub.warnings.iter().cloned());
        chart.dependencies.push(sub);
    }
    Ok(chart)
}

fn check_lock(data: &[u8]) -> Result<(), String> {
    crate::yaml::decode(data).map(|_| ()).map_err(|e| e.0)
}

/// Reads a values file: all its documents, later ones over earlier ones.
pub fn read_values(data: &[u8]) -> Result<Tree, String> {
    let mut out = Tree::new();
    for doc in documents(data) {
        let m = crate::yaml::decode_document(doc).map_err(|e| format!("cannot unmarshal yaml document: {}", e.0))?;
        out = merge_maps(&out, &m);
    }
    Ok(out)
}

/// Parts of a stream between lines that begin with `---` and hold nothing else but blanks.
fn documents(data: &[u8]) -> Vec<&[u8]> {
    let mut out = Vec::new();
    let mut start = 0;
    let mut at = 0;
    while at < data.len() {
        let end = data[at..].iter().position(|c| *c == b'\n').map_or(data.len(), |i| at + i + 1);
        let line = &data[at..end];
        if line.starts_with(b"---") && crate::text::go_trim(&line[3..]).is_empty() {
            if at > start {
                out.push(&data[start..at]);
            }
            start = end;
        }
        at = end;
    }
    if start < data.len() {
        out.push(&data[start..]);
    }
    out
}

/// `MergeMaps`: the second over the first, maps merged.
pub fn merge_maps(a: &Tree, b: &Tree) -> Tree {
    let mut out = a.clone();
    for (k, v) in b {
        if let (Some(n), Some(Val::Map(o))) = (v.as_table(), out.get(k)) {
            let merged = stacker::maybe_grow(64 << 10, 1 << 20, || merge_maps(&o.lock(), &n.lock()));
            out.insert(k.clone(), Val::map(merged));
            continue;
        }
        out.insert(k.clone(), v.clone());
    }
    out
}

impl Chart {
    /// Name.
    pub fn name(&self) -> &str {
        &self.metadata.name
    }
}
