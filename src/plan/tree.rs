//! The tree of a cluster's branch: one directory per Subscription, one file per object, and a file that says what is ours.
//!
//! Layout 1:
//!
//! ```text
//! .anabranch.yaml                                        layout, owner, our directories
//! <namespace>/<subscription>/<kind>[.<group>].<namespace or _>.<name>.yaml
//! <namespace>/<subscription>/helmrelease.apps.clusternet.io.<namespace>.<name>.yaml
//! <namespace>/<subscription>/<namespace>.<release>/...   what its chart renders to, see [`crate::rendered`]
//! _bases/<base>/...                                      Bases that people made by hand
//! ```
//!
//! Invariants: equal Descriptions give equal bytes; a path never leaves its directory; what is not ours is never named.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::apps::{DeployerType, Description};
use api::known::{LAYOUT_FILE, label};
use api::object::{self, ObjectRef};
use serde_json::{Value, json};

#[cfg(test)]
mod tests;

/// The layout that is written.
pub const LAYOUT: i64 = 1;
/// Longest name of a file, bytes; most file systems take no more.
const NAME_MAX: usize = 255;

/// One object as it stands in a branch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectFile {
    /// Name of the file in its directory.
    pub name: String,
    /// The object as YAML.
    pub text: Arc<str>,
}

/// An object that cannot be a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TreeFault {
    /// Description that it is in, `namespace/name`.
    pub description: String,
    /// Why.
    pub message: String,
}

/// What a Description adds to the tree of its cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Part {
    /// Its directory, without a slash at the end.
    pub directory: String,
    /// Its files, sorted by name.
    pub files: Vec<ObjectFile>,
    /// Releases by their directory below this one; none while one could not be rendered.
    pub releases: BTreeMap<String, Option<Arc<Vec<ObjectFile>>>>,
    /// It is not known yet which releases there are.
    pub unknown: bool,
    /// Objects that cannot be files; the others are.
    pub faults: Vec<TreeFault>,
}

/// The whole tree of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree {
    /// Path -> content.
    pub files: BTreeMap<String, Arc<str>>,
    /// Directories of releases that stay as they are, because they could not be rendered.
    pub waiting: BTreeSet<String>,
    /// Directories whose releases are not known yet: all of them stay.
    pub unknown: BTreeSet<String>,
    /// What could not be written.
    pub faults: Vec<TreeFault>,
}

impl Tree {
    /// The marker among its files.
    #[must_use]
    pub fn marker(&self) -> Option<Marker> {
        Marker::read(self.files.get(LAYOUT_FILE)?.as_bytes())
    }

    /// Lets directories of the branch stay that nothing fills now; the new marker, when there are such.
    pub fn hold(&mut self, directories: &BTreeSet<String>, releases: &BTreeSet<String>) -> Option<Arc<str>> {
        if directories.is_empty() && releases.is_empty() {
            return None;
        }
        let mut marker = self.marker()?;
        marker.directories.extend(directories.iter().cloned());
        marker.releases.extend(releases.iter().cloned());
        let text: Arc<str> = marker.text().into();
        self.files.insert(LAYOUT_FILE.to_owned(), text.clone());
        Some(text)
    }

    /// Takes over the releases of a former tree that could not be rendered for this one.
    pub fn stay(&mut self, before: &Self) {
        let Some(marker) = before.marker() else { return };
        let held = crate::delivery::held_releases(&marker.releases, &BTreeSet::new(), self);
        if self.hold(&BTreeSet::new(), &held).is_some() {
            let stays = |path: &str| marker.release_of(path).is_some_and(|(directory, _)| held.contains(directory));
            self.files.extend(before.files.iter().filter(|(path, _)| stays(path)).map(|(path, text)| (path.clone(), text.clone())));
        }
    }
}

/// The file that says what is ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker {
    /// Layout of the branch.
    pub layout: i64,
    /// GitTarget that writes it, `namespace/name`.
    pub owner: String,
    /// Our directories, from the root.
    pub directories: BTreeSet<String>,
    /// Directories of rendered releases, from the root; all that is below them is ours, and nothing of it is applied as it is.
    pub releases: BTreeSet<String>,
}

impl Marker {
    /// The file's content.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = json!({"layout": self.layout, "owner": self.owner, "directories": self.directories});
        if !self.releases.is_empty() {
            out["releases"] = json!(self.releases);
        }
        manifest::emit(&out)
    }

    /// Reads the file; `None` when it is not one that this version understands.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let text = manifest::read::text(bytes).ok()?;
        let value = manifest::parse(text, &manifest::Limits::OBJECT).ok()?;
        let layout = value.get("layout")?.as_i64()?;
        let set = |field: &str| value.get(field).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
        (layout == LAYOUT).then(|| Self { layout, owner: object::text(&value, "owner").to_owned(), directories: set("directories"), releases: set("releases") })
    }

    /// The directory of the rendered release that a path is in, and the path below it.
    #[must_use]
    pub fn release_of<'a>(&self, path: &'a str) -> Option<(&'a str, &'a str)> {
        path.match_indices('/').map(|(at, _)| (&path[..at], &path[at + 1..])).find(|(directory, _)| self.releases.contains(*directory))
    }

    /// Whether a path is ours: the marker itself, and files named as ours in our directories.
    #[must_use]
    pub fn owns(&self, path: &str) -> bool {
        path == LAYOUT_FILE
            || path.rsplit_once('/').is_some_and(|(directory, name)| self.directories.contains(directory) && is_object_name(name))
            || self.release_of(path).is_some()
    }
}

/// Whether a file's name is of the form that we give: `<kind>[.<group>].<namespace or _>.<name>.yaml`.
#[must_use]
pub fn is_object_name(name: &str) -> bool {
    name.strip_suffix(".yaml").is_some_and(|stem| stem.starts_with(|c: char| c.is_ascii_lowercase()) && stem.split('.').take(3).filter(|p| !p.is_empty()).count() == 3)
}

/// The directory of a Description: of its Subscription, or of its Base when that was made by hand.
#[must_use]
pub fn directory_of(description: &Description) -> String {
    let labels = description.metadata.labels.as_ref();
    let get = |key: &str| labels.and_then(|l| l.get(key)).map(String::as_str).filter(|v| !v.is_empty());
    let name = description.metadata.name.as_deref().unwrap_or_default();
    let base = name.strip_suffix("-generic").or_else(|| name.strip_suffix("-helm")).unwrap_or(name);
    match get(label::SUBS_NAMESPACE) {
        Some(namespace) => {
            // Long names of Subscriptions do not fit the label; the name of a Base is that of its Subscription and six characters.
            let subscription = get(label::SUBS_NAME).or_else(|| base.len().checked_sub(6).and_then(|end| base.get(..end))).unwrap_or(base);
            format!("{}/{}", segment(namespace), segment(subscription))
        }
        None => format!("_bases/{}", segment(base)),
    }
}

/// One name as one part of a path.
fn segment(text: &str) -> String {
    let safe: String = text.chars().map(|c| if c == '/' || c == '\\' || c.is_control() { '_' } else { c }).collect();
    if safe.is_empty() || safe.starts_with('.') { format!("_{safe}") } else { clip(&safe, NAME_MAX) }
}

/// Cuts a text to a length, with a hash of the whole at its end.
fn clip(text: &str, most: usize) -> String {
    if text.len() <= most { text.to_owned() } else { api::names::with_suffix(text, &[text], most) }
}

/// The name of an object's file.
///
/// # Errors
/// When the object has no kind or name, or one that breaks paths.
pub fn file_name(object: &Value) -> Result<String, String> {
    let at = ObjectRef::of(object);
    if at.kind.is_empty() || at.api_version.is_empty() {
        return Err("an object has no apiVersion or kind; an override removed it".to_owned());
    }
    if at.name.is_empty() {
        return Err(format!("a {} has no name; an override removed it", at.kind));
    }
    for text in [&at.kind, &at.name, &at.namespace, &at.api_version] {
        let breaks = text.contains(['\\', '\0', '\n', '\r']) || text.chars().any(char::is_control) || text.as_str() == "." || text.as_str() == "..";
        if breaks || (text != &at.api_version && text.contains('/')) || at.group().contains('/') {
            return Err(format!("the {} {:?} has a name that breaks a path", at.kind, at.key()));
        }
    }
    let mut stem = at.kind.to_lowercase();
    if !at.group().is_empty() {
        stem.push('.');
        stem.push_str(at.group());
    }
    stem.push('.');
    stem.push_str(if at.namespace.is_empty() { "_" } else { &at.namespace });
    stem.push('.');
    stem.push_str(&at.name);
    Ok(format!("{}.yaml", clip(&stem, NAME_MAX - ".yaml".len())))
}

/// An object of a generic Description as a file; depends on nothing but the bytes, so that equal ones need it once.
///
/// # Errors
/// When the bytes are no object, or its name breaks a path.
pub fn object_file(raw: &[u8]) -> Result<ObjectFile, String> {
    let mut object: Value = serde_json::from_slice(raw).map_err(|error| format!("an object is no JSON: {error}"))?;
    let name = file_name(&object)?;
    if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        // Templates from the shadow API carry what a dry run made up.
        for field in ["creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"] {
            meta.remove(field);
        }
    }
    Ok(ObjectFile { name, text: manifest::emit(&object).into() })
}

/// What a Description adds to the tree. `file` makes the file of an object; pass [`object_file`], or a memory around it.
#[must_use]
pub fn part(description: &Description, mut file: impl FnMut(&[u8]) -> Result<ObjectFile, String>) -> Part {
    let mut out = Part { directory: directory_of(description), ..Part::default() };
    let namespace = description.metadata.namespace.as_deref().unwrap_or_default();
    let name = description.metadata.name.as_deref().unwrap_or_default();
    let mut seen = BTreeMap::new();
    let mut faults = Vec::new();
    let mut add = |made: Result<ObjectFile, String>| match made {
        Ok(file) => {
            if let Some(other) = seen.insert(file.name.clone(), file.text.clone())
                && other != file.text
            {
                seen.insert(file.name.clone(), other);
                faults.push(format!("two objects would be the file {}", file.name));
            }
        }
        Err(message) => faults.push(message),
    };
    match description.spec.deployer {
        DeployerType::Generic => {
            for raw in &description.spec.raw {
                add(file(raw.as_slice()));
            }
        }
        DeployerType::Helm => {
            for (at, chart) in description.spec.charts.iter().enumerate() {
                let chart_raw = description.spec.chart_raw.get(at).map(|b| b.as_slice()).unwrap_or_default();
                let values = description.spec.raw.get(at).map(|b| b.as_slice()).unwrap_or_default();
                let release = release_name(name, &chart.namespace, &chart.name);
                add(release_file(&release, namespace, &chart.name, chart_raw, values));
            }
        }
    }
    out.files = seen.into_iter().map(|(name, text)| ObjectFile { name, text }).collect();
    let description = object::key(namespace, name);
    out.faults = faults.into_iter().map(|message| TreeFault { description: description.clone(), message }).collect();
    out
}

/// The name of the HelmRelease that a chart of a Description becomes.
#[must_use]
pub fn release_name(description: &str, chart_namespace: &str, chart: &str) -> String {
    format!("{description}-{chart_namespace}-{chart}")
}

/// A chart with its values as a HelmRelease whose values people can read.
fn release_file(name: &str, namespace: &str, chart: &str, chart_raw: &[u8], values: &[u8]) -> Result<ObjectFile, String> {
    let object: Value = serde_json::from_slice(chart_raw).map_err(|error| format!("the chart {chart} is no JSON: {error}"))?;
    let mut spec = object.get("spec").cloned().unwrap_or_else(|| json!({}));
    if let Some(fields) = spec.as_object_mut() {
        fields.insert("releaseName".to_owned(), json!(chart));
        let text = std::str::from_utf8(values).unwrap_or_default().trim();
        if !text.is_empty() {
            let values: Value = serde_json::from_str(text).map_err(|error| format!("the values of the chart {chart} are no JSON: {error}"))?;
            if values.as_object().is_some_and(|v| !v.is_empty()) {
                fields.insert("values".to_owned(), values);
            }
        }
    }
    let release = json!({
        "apiVersion": "apps.clusternet.io/v1alpha1",
        "kind": "HelmRelease",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    });
    Ok(ObjectFile { name: file_name(&release)?, text: manifest::emit(&release).into() })
}

/// Puts the parts of a cluster together. `prefix` is the directory of the layout, empty for the root.
///
/// A cluster without any object still has a marker, so that a branch never silently means "nothing".
#[must_use]
pub fn assemble<'a>(owner: &str, prefix: &str, parts: impl IntoIterator<Item = &'a Part>) -> Tree {
    let mut out = Tree::default();
    let prefix = prefix.trim_matches('/');
    let under = |directory: &str| if prefix.is_empty() { directory.to_owned() } else { format!("{prefix}/{directory}") };
    let (mut directories, mut releases) = (BTreeSet::new(), BTreeSet::new());
    for part in parts {
        out.faults.extend(part.faults.iter().cloned());
        if part.files.is_empty() {
            continue;
        }
        let directory = under(&part.directory);
        for file in &part.files {
            let path = format!("{directory}/{}", file.name);
            if let Some(other) = out.files.insert(path.clone(), file.text.clone())
                && other != file.text
            {
                out.files.insert(path.clone(), other);
                out.faults.push(TreeFault { description: part.directory.clone(), message: format!("two Descriptions would write {path}") });
            }
        }
        if part.unknown {
            out.unknown.insert(directory.clone());
        }
        for (name, files) in &part.releases {
            let below = format!("{directory}/{name}");
            let Some(files) = files else {
                out.waiting.insert(below);
                continue;
            };
            for file in files.iter() {
                out.files.insert(format!("{below}/{}", file.name), file.text.clone());
            }
            releases.insert(below);
        }
        directories.insert(directory);
    }
    let marker = Marker { layout: LAYOUT, owner: owner.to_owned(), directories, releases };
    out.files.insert(LAYOUT_FILE.to_owned(), marker.text().into());
    out.faults.sort();
    out
}

/// What is ours in a branch: by the marker that it has, and by the tree that it shall have.
#[must_use]
pub fn ours(before: Option<&Marker>, wanted: &Tree) -> Marker {
    let mut out = wanted.marker().unwrap_or(Marker {
        layout: LAYOUT,
        owner: String::new(),
        directories: BTreeSet::new(),
        releases: BTreeSet::new(),
    });
    if let Some(before) = before {
        out.directories.extend(before.directories.iter().cloned());
        out.releases.extend(before.releases.iter().cloned());
    }
    out
}

/// What a file of a branch means to an agent.
#[derive(Debug, Clone, PartialEq)]
pub enum Entry {
    /// An object to apply.
    Object(Value),
    /// A chart to install: a HelmRelease whose `spec.values` are plain.
    Release(Value),
    /// Not ours: nothing to do.
    Foreign,
}

/// Reads a file of a branch as an agent must: only what the marker owns is applied.
///
/// # Errors
/// When a file of ours is no object.
pub fn read_entry(marker: &Marker, path: &str, bytes: &[u8]) -> Result<Entry, String> {
    if path == LAYOUT_FILE || !marker.owns(path) || marker.release_of(path).is_some() {
        return Ok(Entry::Foreign);
    }
    let text = manifest::read::text(bytes).map_err(|fault| fault.in_file(path))?;
    let object = manifest::parse(text, &manifest::Limits::OBJECT).map_err(|fault| fault.in_file(path))?;
    if object::text(&object, "kind") == "HelmRelease" && object::text(&object, "apiVersion").starts_with("apps.clusternet.io/") {
        return Ok(Entry::Release(object));
    }
    file_name(&object).map_err(|message| format!("{path}: {message}"))?;
    Ok(Entry::Object(object))
}
