//! Releases rendered for a branch: what a render is of, the files that it becomes, and how an agent reads them back.
//!
//! A release is rendered once per wish, with the facts of that moment, as Helm does: chart, values and rules make the wish, and a
//! [`Pin`] on the HelmRelease keeps the facts. What templates look up in the cluster is asked of its agent and kept as well. So a
//! render can be repeated at any time, here or in a preview, and gives the same bytes.
//!
//! ```text
//! <directory of the Subscription>/<namespace>.<release>/release.yaml      what it is of; the chart and its values
//! <directory of the Subscription>/<namespace>.<release>/crds/...          definitions, which go first
//! <directory of the Subscription>/<namespace>.<release>/manifest.yaml     objects in the order of installation
//! <directory of the Subscription>/<namespace>.<release>/hooks.yaml        hooks with their annotations
//! <directory of the Subscription>/<namespace>.<release>/NOTES.txt
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::apps::{HelmRelease, HelmReleaseSpec};
use api::known::annotation;
use api::object;
use chart::{Asked, Bundle, Chart, Picture, Rules, Val};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::tree::ObjectFile;

#[cfg(test)]
mod tests;

/// The file that says what a directory is of.
pub const RELEASE_FILE: &str = "release.yaml";
const MANIFEST: &str = "manifest.yaml";
const HOOKS: &str = "hooks.yaml";
const NOTES: &str = "NOTES.txt";
/// Largest file of a rendered release; agents read no larger ones.
const FILE_MAX: usize = 4 << 20;
/// Largest rendered release, and most files in one.
const RELEASE_MAX: usize = 16 << 20;
const FILES_MAX: usize = 1_000;
/// Most objects that templates of one release may look up.
pub const ASKS_MAX: usize = 500;
/// Largest answers to them together, as JSON.
pub const ANSWERS_MAX: usize = 700 << 10;

/// Phase of a HelmRelease whose release is in the cluster, of somebody else: its version is what was found.
pub const FOUND: &str = "unknown";

/// What is known of a cluster at the moment of a wish.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// Version of its Kubernetes.
    pub kube: String,
    /// The kinds that it serves, as [`pack_api_versions`] writes them.
    pub api_versions: String,
    /// The present, seconds since 1970.
    pub now: i64,
    /// What is not known of the cluster yet; until it is, nothing is rendered, and its agent waits.
    pub lacks: String,
}

/// What a render is of; kept on the HelmRelease.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pin {
    /// Hash of the wish.
    pub of: String,
    /// Version of the chart that a range came to; empty until it was rendered.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Version of Kubernetes.
    pub kube: String,
    /// Kinds of the cluster.
    pub api_versions: String,
    /// `.Release.Revision`.
    pub revision: i64,
    /// `.Release.IsUpgrade`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub upgrade: bool,
    /// The present of the render, seconds since 1970.
    pub at: i64,
    /// Revision of a release that somebody else had in the cluster, when that came to be known after the wish was pinned.
    #[serde(skip_serializing_if = "is_zero")]
    pub over: i64,
    /// What templates look up, for the agent to answer.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub asks: BTreeSet<Asked>,
    /// Why nothing is rendered.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub fault: String,
    /// Nothing is pinned yet for want of this; the release comes with the branch all the same.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub waits: String,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// Why the files of a HelmRelease are not rendered for a branch. Few pins have a fault, and only those are read whole.
#[must_use]
pub fn fault(release: &HelmRelease) -> Option<String> {
    let text = release.metadata.annotations.as_ref()?.get(annotation::RENDER)?;
    let fault = text.contains("\"fault\":").then(|| Pin::read(release))??.fault;
    (!fault.is_empty()).then_some(fault)
}

impl Pin {
    /// The pin of a HelmRelease; none when its files are not rendered for a branch.
    #[must_use]
    pub fn read(release: &HelmRelease) -> Option<Self> {
        release.metadata.annotations.as_ref()?.get(annotation::RENDER).and_then(|text| serde_json::from_str(text).ok())
    }

    /// As it stands on a HelmRelease.
    #[must_use]
    pub fn text(&self) -> String {
        json!(self).to_string()
    }

    /// What the agent writes on the HelmRelease when all questions are answered.
    #[must_use]
    pub fn answered(&self) -> String {
        format!("{}/{}", self.of, self.asks.len())
    }
}

/// What came of rendering a wish, for its pin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// The wish.
    pub of: String,
    /// Version of the chart.
    pub version: String,
    /// What must be known of the cluster.
    pub asks: BTreeSet<Asked>,
    /// Why it cannot be rendered.
    pub fault: String,
}

/// Hash of a wish: chart, options, values, rules; `digest` is of a chart that has no version of its own (one in a repository
/// beside the manifests).
#[must_use]
pub fn wish(spec: &Value, annotations: &BTreeMap<String, String>, digest: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(spec.to_string().as_bytes());
    for key in [annotation::HELM_RULES, annotation::CHART_PATH, annotation::RECONCILE_REQUEST] {
        hash.update(b"\0");
        hash.update(annotations.get(key).map(String::as_str).unwrap_or_default().as_bytes());
    }
    hash.update(b"\0");
    hash.update(digest.as_bytes());
    manifest::hash::hex(&hash.finalize()[..8])
}

/// Where a HelmRelease is in its cluster, as its agent writes that down.
#[must_use]
pub fn place(release: &HelmRelease) -> String {
    format!("{}/{}", release.spec.target_namespace, name_of(release))
}

/// Whether the agent has deployed a HelmRelease where it shall be. Until then a release of that name is somebody else's.
#[must_use]
pub fn is_deployed(release: &HelmRelease) -> bool {
    release.metadata.annotations.as_ref().and_then(|a| a.get(annotation::DEPLOYED_AS)) == Some(&place(release))
}

/// The pin that a HelmRelease shall have. A wish that is pinned keeps its facts, but for what its agent found in the cluster before it
/// deployed anything: the next revision of that release is what Helm would make.
#[must_use]
pub fn pin(of: &str, facts: &Facts, found: Option<&Found>, now: Option<&HelmRelease>) -> Pin {
    let before = now.and_then(Pin::read);
    let status = now.and_then(|n| n.status.as_ref()).cloned().unwrap_or_default();
    let there = i64::from(status.version);
    // Of a record that was kept when its release went, the next revision is an installation.
    let is_gone = status.phase == chart::helm::record::status::UNINSTALLED;
    let is_found = (is_gone || status.phase == FOUND) && now.is_some_and(|n| !is_deployed(n));
    let mut out = match before {
        Some(before) if before.of == of && is_found && there >= before.revision => {
            Pin { revision: there + 1, upgrade: !is_gone, over: there, ..before }
        }
        Some(before) if before.of == of => before,
        _ if !facts.lacks.is_empty() => return Pin { waits: facts.lacks.clone(), ..Pin::default() },
        before => {
            // A release that was deployed without files in the branch, and shall stay as it is, is the revision that it is.
            let as_is = before.is_none_or(|before| before.of.is_empty()) && status.phase == chart::helm::record::status::DEPLOYED;
            let revision = if as_is { there.max(1) } else { there + 1 };
            let upgrade = revision > 1 && !is_gone;
            Pin { of: of.to_owned(), kube: facts.kube.clone(), api_versions: facts.api_versions.clone(), revision, upgrade, at: facts.now, ..Pin::default() }
        }
    };
    if let Some(found) = found.filter(|f| f.of == of) {
        if out.version.is_empty() {
            out.version.clone_from(&found.version);
        }
        out.asks.extend(found.asks.iter().cloned());
        out.fault.clone_from(&found.fault);
    }
    out
}

/// Kinds of a cluster in few words: `v1:Pod,Service;apps/v1:Deployment`.
#[must_use]
pub fn pack_api_versions<'a>(kinds: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut all: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (api_version, kind) in kinds {
        all.entry(api_version).or_default().insert(kind);
    }
    let one = |(api_version, kinds): (&str, BTreeSet<&str>)| format!("{api_version}:{}", kinds.into_iter().collect::<Vec<_>>().join(","));
    all.into_iter().map(one).collect::<Vec<_>>().join(";")
}

/// What templates find in `.Capabilities.APIVersions`.
fn unpack_api_versions(text: &str) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    for part in text.split(';') {
        let Some((api_version, kinds)) = part.split_once(':') else { continue };
        out.insert(api_version.to_owned());
        out.extend(kinds.split(',').filter(|k| !k.is_empty()).map(|kind| format!("{api_version}/{kind}")));
    }
    out
}

/// The kinds that definitions bring.
fn defined(crds: &[(String, String)], rules: Rules, out: &mut BTreeSet<String>) {
    for (_, text) in crds {
        for document in chart::helm::manifests::split(text.as_bytes(), rules) {
            let Ok(value) = chart::yaml::decode::decode_ints(&document) else { continue };
            let value = value.to_json();
            let spec = &value["spec"];
            let (Some(group), Some(kind)) = (spec["group"].as_str(), spec["names"]["kind"].as_str()) else { continue };
            for version in spec["versions"].as_array().into_iter().flatten().filter(|v| v["served"] == true).filter_map(|v| v["name"].as_str()) {
                out.insert(format!("{group}/{version}"));
                out.insert(format!("{group}/{version}/{kind}"));
            }
        }
    }
}

/// Values of a release; null without any.
///
/// # Errors
/// When they are no object.
pub fn values(spec: &HelmReleaseSpec) -> Result<Value, String> {
    let bytes = spec.overrides.as_slice();
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(Value::Null);
    }
    match serde_json::from_slice(bytes) {
        Ok(values @ (Value::Object(_) | Value::Null)) => Ok(values),
        Ok(other) => Err(format!("{other} is not an object")),
        Err(error) => Err(error.to_string()),
    }
}

/// The rules that a release is rendered by.
#[must_use]
pub fn rules(annotations: Option<&BTreeMap<String, String>>) -> Rules {
    match annotations.and_then(|a| a.get(annotation::HELM_RULES)).map(String::as_str) {
        Some("3") => Rules::Helm3,
        _ => Rules::Helm4,
    }
}

/// Name of a release: what its HelmRelease says, or the HelmRelease's own.
#[must_use]
pub fn name_of(release: &HelmRelease) -> String {
    release.spec.release_name.clone().filter(|n| !n.is_empty()).unwrap_or_else(|| release.metadata.name.clone().unwrap_or_default())
}

/// The directory of a rendered release below that of its Subscription.
#[must_use]
pub fn directory(release: &HelmRelease) -> String {
    format!("{}.{}", release.spec.target_namespace, name_of(release))
}

/// Seed of a release's random values: secret for whom the salt is, the same at every render of the release.
#[must_use]
pub fn seed(salt: &[u8], cluster_id: &str, release: &HelmRelease) -> u64 {
    let mut hash = Sha256::new();
    for part in [salt, cluster_id.as_bytes(), release.spec.target_namespace.as_bytes(), name_of(release).as_bytes()] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// What came of a render.
#[derive(Debug, Clone, PartialEq)]
pub enum Made {
    /// Files of the release.
    Files(Arc<Vec<ObjectFile>>),
    /// Templates look up what is not known yet.
    Asks(BTreeSet<Asked>),
    /// It cannot be rendered; as Helm says it.
    Fault(String),
}

/// Renders a release for its branch.
#[must_use]
pub fn render(chart: &Chart, release: &HelmRelease, pin: &Pin, answers: BTreeMap<Asked, Option<Value>>, seed: u64) -> Made {
    match bundle(chart, release, pin, answers, seed) {
        Ok(Ok(bundle)) => match files(&bundle, release, pin) {
            Ok(files) => Made::Files(Arc::new(files)),
            Err(why) => Made::Fault(why),
        },
        Ok(Err(asks)) => Made::Asks(asks),
        Err(why) => Made::Fault(why),
    }
}

fn bundle(chart: &Chart, release: &HelmRelease, pin: &Pin, answers: BTreeMap<Asked, Option<Value>>, seed: u64) -> Result<Result<Bundle, BTreeSet<Asked>>, String> {
    let values = values(&release.spec).map_err(|why| format!("read the values: {why}"))?;
    let mut api_versions = unpack_api_versions(&pin.api_versions);
    let picture = Arc::new(Picture::new(answers));
    let kube = chart::parse_kube(&pin.kube).map_err(|why| format!("read the cluster's version: {why}"))?;
    let rendered = |api_versions: &BTreeSet<String>| {
        let request = chart::Request {
            name: name_of(release),
            namespace: release.spec.target_namespace.clone(),
            revision: pin.revision,
            values: if values.is_null() { Val::map(Default::default()) } else { Val::from_json(&values) },
            rules: rules(release.metadata.annotations.as_ref()),
            kube_version: Some(kube.clone()),
            all_api_versions: Some(api_versions.iter().cloned().collect()),
            is_upgrade: pin.upgrade,
            now: i128::from(pin.at) * 1_000_000_000,
            seed,
            lookup: Some(picture.clone()),
            ..chart::Request::default()
        };
        chart::template(chart, &request)
    };
    let mut output = rendered(&api_versions);
    if let Ok(first) = &output
        && release.spec.options.skip_crds != Some(true)
    {
        // Definitions are in the cluster before the rest comes: templates see them.
        let known = api_versions.len();
        defined(&first.crds, rules(release.metadata.annotations.as_ref()), &mut api_versions);
        if api_versions.len() > known {
            output = rendered(&api_versions);
        }
    }
    // A template may fail for want of an answer: what it asks comes first.
    let missing = picture.missing();
    if !missing.is_empty() {
        if missing.len() + picture.known().len() > ASKS_MAX {
            return Err(format!("templates look up more than {ASKS_MAX} objects"));
        }
        return Ok(Err(missing));
    }
    let output = output.map_err(|error| error.to_string().trim_end_matches("\n\nUse --debug flag to render out invalid YAML").to_owned())?;
    Ok(Ok(Bundle::of(chart, &output)))
}

/// The files of a rendered release.
fn files(bundle: &Bundle, release: &HelmRelease, pin: &Pin) -> Result<Vec<ObjectFile>, String> {
    let mut out = Vec::new();
    let mut crds = Vec::new();
    for (path, text) in &bundle.crds {
        let (_, below) = path.split_once('/').unwrap_or_default();
        let plain = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.contains('\\') && !part.chars().any(char::is_control);
        if !(below.starts_with("crds/") || below.starts_with("charts/")) || !below.split('/').all(plain) {
            return Err(format!("the definition {path:?} has a name that breaks a path"));
        }
        crds.push(path.as_str());
        out.push((below.to_owned(), text.clone()));
    }
    let mut about = json!({
        "helmRelease": release.metadata.name,
        "of": pin.of,
        "name": name_of(release),
        "namespace": release.spec.target_namespace,
        "kubeVersion": pin.kube,
        "crds": crds,
        "chart": bundle.chart_head(),
    });
    if pin.over != 0 {
        about["over"] = json!(pin.over);
    }
    out.push((RELEASE_FILE.to_owned(), manifest::emit(&about)));
    for (name, text) in [(MANIFEST, bundle.manifest.clone()), (HOOKS, bundle.hooks_text()), (NOTES, bundle.notes.clone())] {
        if !text.is_empty() {
            out.push((name.to_owned(), text));
        }
    }
    let total: usize = out.iter().map(|(_, text)| text.len()).sum();
    if let Some((name, text)) = out.iter().find(|(_, text)| text.len() > FILE_MAX) {
        return Err(format!("the rendered {name} has {} bytes, more than {FILE_MAX}", text.len()));
    }
    if total > RELEASE_MAX || out.len() > FILES_MAX {
        return Err(format!("the rendered release has {total} bytes in {} files, more than {RELEASE_MAX} in {FILES_MAX}", out.len()));
    }
    Ok(out.into_iter().map(|(name, text)| ObjectFile { name, text: text.into() }).collect())
}

/// A rendered release as an agent finds it.
#[derive(Debug, Clone, PartialEq)]
pub struct Rendered {
    /// The HelmRelease.
    pub helm_release: String,
    /// The wish that it is of.
    pub of: String,
    /// The release that it takes over, as in its [`Pin`].
    pub over: i64,
    /// What is to be deployed.
    pub bundle: Bundle,
}

/// Reads the files of a directory, by their names below it.
///
/// # Errors
/// When they are not what [`render`] made.
pub fn read(files: &BTreeMap<String, Arc<str>>) -> Result<Rendered, String> {
    let text = |name: &str| files.get(name).map(|t| t.to_string());
    let about = text(RELEASE_FILE).ok_or_else(|| format!("{RELEASE_FILE} is missing"))?;
    let about = manifest::parse(&about, &manifest::Limits::FILE).map_err(|fault| fault.in_file(RELEASE_FILE))?;
    let mut crds = Vec::new();
    for path in about["crds"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let (_, below) = path.split_once('/').unwrap_or_default();
        crds.push((path.to_owned(), text(below).ok_or_else(|| format!("{below} is missing"))?));
    }
    let hooks = chart::helm::bundle::read_hooks(&text(HOOKS).unwrap_or_default()).map_err(|why| format!("{HOOKS}: {why}"))?;
    Ok(Rendered {
        helm_release: object::text(&about, "helmRelease").to_owned(),
        of: object::text(&about, "of").to_owned(),
        over: about["over"].as_i64().unwrap_or_default(),
        bundle: Bundle { chart: about["chart"].clone(), crds, manifest: text(MANIFEST).unwrap_or_default(), hooks, notes: text(NOTES).unwrap_or_default() },
    })
}

/// Name of the Secret with the seeds of a Description's releases, for a cluster whose agent renders them itself.
#[must_use]
pub fn seeds_name(description: &str) -> String {
    api::names::with_suffix("helm-seeds", &[description], 63)
}

/// Name of the Secret in which an agent answers what a release's templates look up.
#[must_use]
pub fn answers_name(release: &str) -> String {
    api::names::with_suffix("helm-lookups", &[release], 63)
}

/// Answers as they stand in their Secret.
#[must_use]
pub fn write_answers(answers: &BTreeMap<Asked, Option<Value>>) -> String {
    json!(answers.iter().collect::<Vec<_>>()).to_string()
}

/// Reads answers; those to another wish, or unreadable ones, are none.
#[must_use]
pub fn read_answers(text: &[u8]) -> BTreeMap<Asked, Option<Value>> {
    serde_json::from_slice::<Vec<(Asked, Option<Value>)>>(text).unwrap_or_default().into_iter().collect()
}

/// An object as it is told to templates: without what changes by itself.
#[must_use]
pub fn as_answer(mut object: Value) -> Value {
    fn tidy(object: &mut Value) {
        if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            for field in ["managedFields", "resourceVersion", "selfLink"] {
                meta.remove(field);
            }
        }
    }
    tidy(&mut object);
    for item in object.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
        tidy(item);
    }
    object
}
