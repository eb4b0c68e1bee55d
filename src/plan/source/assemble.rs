//! All files together: which objects the parent shall have, each from one place only.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use api::gitops::FileFault;
use api::known::{is_own_group, label, namespace as names};
use api::object::{self, ObjectRef};
use serde_json::Value;

use super::annotation;
use super::read::Parsed;
use crate::kinds::Kinds;
use crate::shadow;

/// An object of the parent, whatever version it is written in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Group, empty for the core group.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Namespace, empty for cluster-scoped objects.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl Place {
    /// The place of an object.
    #[must_use]
    pub fn of(object: &Value) -> Self {
        let at = ObjectRef::of(object);
        Self { group: at.group().to_owned(), kind: at.kind, namespace: at.namespace, name: at.name }
    }

    /// The order in which objects are applied: what others refer to comes first, so that the first rendering is the right one; overrides
    /// before feeds, so that one that applies later comes along with a change of its feed in the same revision.
    #[must_use]
    pub fn wave(&self) -> u8 {
        match (self.group.as_str(), self.kind.as_str()) {
            ("", "Namespace") => 0,
            ("apps.clusternet.io", "Localization" | "Globalization") => 1,
            ("apps.clusternet.io", "Manifest" | "HelmChart") => 2,
            ("apps.clusternet.io", "Subscription" | "Base") => 3,
            _ => 4,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        write!(f, " {}", object::key(&self.namespace, &self.name))
    }
}

/// An object that the parent shall have.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// The object as it is applied, without the annotations of [`annotation`], with the label of its source.
    pub object: Value,
    /// Digest over it.
    pub digest: String,
    /// File that it stands in.
    pub path: String,
    /// Line of its document.
    pub line: i32,
}

impl Wanted {
    /// The object with the annotations that tell where it came from.
    #[must_use]
    pub fn annotated(&self, revision: &str) -> Value {
        let mut out = self.object.clone();
        object::set_annotation(&mut out, annotation::DIGEST, &self.digest);
        object::set_annotation(&mut out, annotation::REVISION, revision);
        object::set_annotation(&mut out, annotation::PATH, &format!("{}:{}", self.path, self.line));
        out
    }
}

/// All that a revision asks for.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Desired {
    /// By place in the parent.
    pub objects: BTreeMap<Place, Wanted>,
    /// What is wrong, by file.
    pub faults: Vec<FileFault>,
}

/// What the GitSource allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Value of the label [`label::SOURCE`].
    pub source: String,
    /// Namespaces in which objects may be made; empty for all.
    pub target_namespaces: BTreeSet<String>,
}

impl Settings {
    /// The settings of a GitSource.
    #[must_use]
    pub fn of(namespace: &str, name: &str, spec: &api::gitops::GitSourceSpec) -> Self {
        Self { source: api::names::label_value(&format!("{namespace}.{name}")), target_namespaces: spec.target_namespaces.iter().cloned().collect() }
    }
}

/// Kinds that the controllers make; a repository that holds them would fight with them.
const DERIVED: [&str; 5] = ["Manifest", "Description", "HelmRelease", "FeedInventory", "ClusterRegistrationRequest"];

/// Puts the files of a revision together. `kinds` is what the parent knows; definitions in the files are added to it.
#[must_use]
pub fn assemble(files: &BTreeMap<String, Arc<Parsed>>, kinds: &Kinds, settings: &Settings) -> Desired {
    let mut out = Desired::default();
    let mut known = kinds.clone();
    let mut fed_namespaces = BTreeSet::new();
    for found in files.values().flat_map(|parsed| &parsed.objects) {
        known.learn(&found.object);
        fed_namespaces.extend(namespaces_fed_by(&found.object));
    }
    let mut first: BTreeMap<Place, (String, i32)> = BTreeMap::new();
    let mut twice = BTreeSet::new();
    for (path, parsed) in files {
        out.faults.extend(parsed.faults.iter().cloned());
        for found in &parsed.objects {
            let shown = ObjectRef::of(&found.object).to_string();
            let fault = |reason: &str, message: String| FileFault {
                path: path.clone(),
                line: found.line,
                column: 1,
                reason: reason.to_owned(),
                message,
                object: shown.clone(),
            };
            let made = match route(&found.object, &known, settings, &fed_namespaces) {
                Ok(made) => made,
                Err((reason, message)) => {
                    out.faults.push(fault(reason, message));
                    continue;
                }
            };
            for mut object in made {
                let place = Place::of(&object);
                if let Some((other, line)) = first.get(&place) {
                    out.faults.push(fault("DuplicateObject", format!("the object stands in {other}:{line} already; neither is applied until one of them is removed")));
                    twice.insert(place);
                    continue;
                }
                first.insert(place.clone(), (path.clone(), found.line));
                object::set_label(&mut object, label::SOURCE, &settings.source);
                let digest = digest_of(&object);
                out.objects.insert(place, Wanted { object, digest, path: path.clone(), line: found.line });
            }
        }
    }
    // Which of two is meant is a doubt: what is in the parent stays until a person decides.
    for place in twice {
        out.objects.remove(&place);
    }
    out.faults.sort_by(|a, b| (&a.path, a.line, a.column).cmp(&(&b.path, b.line, b.column)));
    out
}

/// Digest of an object as it is applied.
#[must_use]
pub fn digest_of(object: &Value) -> String {
    let mut out = manifest::sha256(object);
    out.truncate(32);
    out
}

fn namespaces_fed_by(object: &Value) -> Vec<String> {
    let group = ObjectRef::of(object);
    if group.group() != "apps.clusternet.io" || !matches!(group.kind.as_str(), "Subscription" | "Base") {
        return Vec::new();
    }
    let feeds = object.pointer("/spec/feeds").and_then(Value::as_array).into_iter().flatten();
    feeds.filter(|feed| object::text(feed, "kind") == "Namespace").map(|feed| object::text(feed, "name").to_owned()).collect()
}

type Refused = (&'static str, String);

/// What one document becomes in the parent: itself, a Manifest, or (a Namespace that is fed) both.
fn route(found: &Value, known: &Kinds, settings: &Settings, fed: &BTreeSet<String>) -> Result<Vec<Value>, Refused> {
    let at = ObjectRef::of(found);
    let Some(info) = known.get(&at.api_version, &at.kind) else {
        let elsewhere: Vec<&str> = known.elsewhere(&at.kind).collect();
        let hint = if elsewhere.is_empty() {
            "; its CustomResourceDefinition must be in the repository or in the parent".to_owned()
        } else {
            format!("; {} is served as {}", at.kind, elsewhere.join(", "))
        };
        return Err(("UnknownKind", format!("there is no kind {} in {}{hint}", at.kind, at.api_version)));
    };
    let mut object = found.clone();
    shadow::trim_server_fields(&mut object);
    if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        if !info.namespaced {
            meta.remove("namespace");
        } else if at.namespace.is_empty() {
            // As kubectl does without a namespace in the file and none in the context.
            meta.insert("namespace".to_owned(), Value::String("default".to_owned()));
        }
        if let Some(labels) = meta.get_mut("labels").and_then(Value::as_object_mut) {
            labels.remove(label::SOURCE);
        }
    }
    let is_namespace = at.group().is_empty() && at.kind == "Namespace";
    check_target(&object, info.namespaced, is_namespace, settings)?;
    if is_own_group(at.group()) {
        if DERIVED.contains(&at.kind.as_str()) {
            return Err(("DerivedKind", format!("{} objects are made by the controllers; write what they are made from", at.kind)));
        }
        return Ok(vec![object]);
    }
    let wrap = |object: &Value| {
        shadow::manifest(info, object).map_err(|faults| {
            let texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
            ("InvalidName", texts.join("; "))
        })
    };
    if is_namespace {
        if at.name == names::RESERVED {
            return Err(("InvalidName", format!("the namespace {} is reserved", names::RESERVED)));
        }
        let mut out = Vec::new();
        if fed.contains(&at.name) {
            out.push(wrap(&object)?);
        }
        out.push(object);
        return Ok(out);
    }
    Ok(vec![wrap(&object)?])
}

fn check_target(object: &Value, namespaced: bool, is_namespace: bool, settings: &Settings) -> Result<(), Refused> {
    if settings.target_namespaces.is_empty() {
        return Ok(());
    }
    let target = if is_namespace { object::name(object) } else { object::namespace(object) };
    if !namespaced && !is_namespace {
        return Err(("NamespaceNotAllowed", "the GitSource is limited to namespaces, and this object belongs to none".to_owned()));
    }
    if settings.target_namespaces.contains(target) {
        Ok(())
    } else {
        Err(("NamespaceNotAllowed", format!("the GitSource may not make objects in the namespace {target}")))
    }
}
