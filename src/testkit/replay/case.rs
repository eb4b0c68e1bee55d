//! A recorded case: its settings, clusters, steps and expected answers, read from a folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use manifest::read::{self, Limits};
use serde_json::Value;

/// One case.
#[derive(Debug)]
pub struct Case {
    /// Name of the folder.
    pub name: String,
    /// The folder.
    pub dir: PathBuf,
    /// Settings of `case.yaml`; null without one.
    pub settings: Value,
    /// Clusters of a scheduler case; no agent exists there.
    pub clusters: Vec<Value>,
    /// Whether it runs on the scheduler stage.
    pub scheduler: bool,
    /// Number of the step -> file name and documents.
    pub steps: BTreeMap<u32, Vec<(String, Vec<Value>)>>,
    /// Recorded files: `bases`, `step-1/bases`, … -> documents.
    pub expected: BTreeMap<String, Vec<Value>>,
}

/// Everything that stands for something of this run.
pub struct Places {
    /// URL of the chart repository.
    pub charts: String,
    /// URL of the predictor.
    pub predictor: String,
    /// Cluster name -> id.
    pub cluster_ids: BTreeMap<String, String>,
}

impl Case {
    /// Reads a case; `places` fills `${...}`.
    pub fn read(dir: &Path, places: &Places) -> Result<Case> {
        let name = dir.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let settings = match std::fs::read_to_string(dir.join("case.yaml")) {
            Ok(text) => read::parse(&text, &Limits::FILE).map_err(|f| anyhow::anyhow!("{f}")).context("case.yaml")?,
            Err(_) => Value::Null,
        };
        let clusters = if dir.join("clusters.yaml").exists() { documents(&dir.join("clusters.yaml"), places)? } else { Vec::new() };
        let scheduler = !clusters.is_empty() || settings["stage"] == "sched";
        let mut steps: BTreeMap<u32, Vec<(String, Vec<Value>)>> = BTreeMap::new();
        for path in files(&dir.join("input"))? {
            let file = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            let number = file.split('-').next().and_then(|n| n.parse().ok()).with_context(|| format!("{file}: no step number"))?;
            steps.entry(number).or_default().push((file, documents(&path, places)?));
        }
        let mut expected = BTreeMap::new();
        let root = dir.join("expected");
        for folder in std::iter::once(root.clone()).chain(folders(&root)?) {
            let prefix = folder.strip_prefix(&root).map(|p| p.to_string_lossy().into_owned()).unwrap_or_default();
            for path in files(&folder)? {
                let stem = path.file_stem().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
                let key = if prefix.is_empty() { stem } else { format!("{prefix}/{stem}") };
                let text = std::fs::read_to_string(&path)?;
                let mut found = Vec::new();
                for document in parse(&text, &path)? {
                    match document {
                        Value::Array(items) => found.extend(items),
                        Value::Null => {}
                        other => found.push(other),
                    }
                }
                expected.insert(key, found);
            }
        }
        Ok(Case { name, dir: dir.to_owned(), settings, clusters, scheduler, steps, expected })
    }

    /// Kinds of the input that are written down in the children: apiVersion and kind.
    pub fn child_kinds(&self) -> Vec<(String, String)> {
        let mut kinds = Vec::new();
        for (file, docs) in self.steps.values().flatten() {
            for doc in docs {
                let api_version = doc["apiVersion"].as_str().unwrap_or_default();
                if doc.get("method").is_some() || is_own(api_version) || file.contains("-parent-") {
                    continue;
                }
                kinds.push((api_version.to_owned(), doc["kind"].as_str().unwrap_or_default().to_owned()));
            }
        }
        for extra in self.settings["childKinds"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if let Some((api_version, kind)) = extra.rsplit_once('/') {
                kinds.push((api_version.to_owned(), kind.to_owned()));
            }
        }
        kinds.sort();
        kinds.dedup();
        kinds
    }

    /// Files that are not compared, by their stem.
    pub fn skips(&self) -> Vec<&str> {
        self.settings["skip"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
    }
}

/// Whether objects of this apiVersion go to the parent itself.
pub fn is_own(api_version: &str) -> bool {
    api_version.split('/').next().is_some_and(|group| group.ends_with(".clusternet.io"))
}

fn documents(path: &Path, places: &Places) -> Result<Vec<Value>> {
    let mut text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    text = text.replace("${CHART_REPO}", &places.charts).replace("${PREDICTOR}", &places.predictor);
    for (name, id) in &places.cluster_ids {
        text = text.replace(&format!("${{CLUSTER_ID_{}}}", name.to_uppercase()), id);
    }
    parse(&text, path)
}

fn parse(text: &str, path: &Path) -> Result<Vec<Value>> {
    // The recorded files are larger than what a person may push.
    let limits = Limits::FILE;
    let all = read::parse_all(text, &limits).map_err(|fault| anyhow::anyhow!("{}", fault.in_file(&path.display().to_string())))?;
    Ok(all.into_iter().map(|document| document.value).filter(|value| !value.is_null()).collect())
}

fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    entries(dir, |path| path.extension().is_some_and(|e| e == "yaml"))
}

fn folders(dir: &Path) -> Result<Vec<PathBuf>> {
    entries(dir, Path::is_dir)
}

fn entries(dir: &Path, keep: impl Fn(&Path) -> bool) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    if dir.exists() {
        for entry in std::fs::read_dir(dir).with_context(|| dir.display().to_string())? {
            let path = entry?.path();
            if keep(&path) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}
