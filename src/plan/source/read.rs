//! One file of a source repository into its objects, with everything that is wrong in it and where.

use std::collections::BTreeSet;

use api::gitops::FileFault;
use api::known::annotation;
use api::names::is_path_segment;
use api::object::{self, ObjectRef};
use manifest::{Limits, Position};
use serde_json::Value;

/// The largest file that is read, bytes.
pub const MAX_FILE: u64 = 8 << 20;
/// Marks objects that are for tools on a person's machine only.
const LOCAL_CONFIG: &str = "config.kubernetes.io/local-config";

/// What a path of the tree holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body<'a> {
    /// A file that was read.
    Bytes(&'a [u8]),
    /// A file larger than [`MAX_FILE`], by its size.
    TooLarge(u64),
    /// A link; it is never followed.
    Symlink {
        /// Where it points, as it is stored.
        target: &'a str,
    },
    /// A commit of another repository; it is never fetched.
    Submodule,
    /// The object database could not give it.
    Unreadable(&'a str),
}

/// An object as it stands in a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The object.
    pub object: Value,
    /// Line of its document, from 1.
    pub line: i32,
}

/// What a file says; depends on nothing but path and content, so it can be kept by blob id.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Parsed {
    /// Its objects, in order.
    pub objects: Vec<Found>,
    /// What is wrong in it. A file with a fault gives what can be read of it, but nothing is deleted on its account.
    pub faults: Vec<FileFault>,
}

/// Whether a path is looked at: YAML and JSON files, but nothing in directories (or with names) that begin with a dot.
#[must_use]
pub fn is_wanted(path: &str) -> bool {
    let hidden = path.split('/').any(|part| part.starts_with('.'));
    let name = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
    !hidden && [".yaml", ".yml", ".json"].iter().any(|end| name.ends_with(end))
}

/// The directories of charts: what is in them is for the charts to render, not to be applied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChartDirectories(BTreeSet<String>);

impl ChartDirectories {
    /// Of the paths of all files. A `Chart.yaml` in the root makes no chart of the whole repository.
    #[must_use]
    pub fn among<'a>(paths: impl IntoIterator<Item = &'a str>) -> Self {
        Self(paths.into_iter().filter_map(|path| path.strip_suffix("/Chart.yaml")).map(str::to_owned).collect())
    }

    /// Whether a file is in one of them.
    #[must_use]
    pub fn has(&self, path: &str) -> bool {
        !self.0.is_empty() && path.match_indices('/').any(|(at, _)| path.get(..at).is_some_and(|above| self.0.contains(above)))
    }
}

fn fault(path: &str, position: Option<Position>, reason: &str, message: impl Into<String>) -> FileFault {
    let whole = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
    FileFault {
        path: path.to_owned(),
        line: position.map_or(0, |p| whole(p.line)),
        column: position.map_or(0, |p| whole(p.column)),
        reason: reason.to_owned(),
        message: message.into(),
        object: String::new(),
    }
}

/// Reads a file.
#[must_use]
pub fn read(path: &str, body: Body<'_>) -> Parsed {
    let mut out = Parsed::default();
    let bytes = match body {
        Body::Bytes(bytes) => bytes,
        Body::TooLarge(size) => {
            out.faults.push(fault(path, None, "FileTooLarge", format!("the file has {size} bytes, more than {MAX_FILE}; split it or list it in spec.ignore")));
            return out;
        }
        Body::Symlink { target } => {
            let leaves = leaves_tree(path, target);
            let reason = if leaves { "SymlinkOutOfTree" } else { "Symlink" };
            let said = if leaves { "points out of the repository" } else { "is not followed" };
            out.faults.push(fault(path, None, reason, format!("the link to `{}` {said}; put the file in its place or list it in spec.ignore", printable(target))));
            return out;
        }
        Body::Submodule => {
            out.faults.push(fault(path, None, "Submodule", "submodules are not fetched; make a GitSource of its own for that repository"));
            return out;
        }
        Body::Unreadable(why) => {
            out.faults.push(fault(path, None, "Unreadable", why));
            return out;
        }
    };
    let text = match manifest::read::text(bytes) {
        Ok(text) => text,
        Err(error) => {
            out.faults.push(fault(path, Some(error.position), "InvalidYAML", said(&error)));
            return out;
        }
    };
    let documents = match manifest::parse_all(text, &Limits::FILE) {
        Ok(documents) => documents,
        Err(error) => {
            out.faults.push(fault(path, Some(error.position), "InvalidYAML", said(&error)));
            return out;
        }
    };
    for document in documents {
        let start = document.start;
        take(path, text, document.index, start, document.value, 0, &mut out);
    }
    out
}

fn said(error: &manifest::Fault) -> String {
    match error.hint {
        Some(hint) => format!("{} ({hint})", error.message),
        None => error.message.clone(),
    }
}

fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).take(200).collect()
}

/// Whether a link's target is absolute or climbs above the root.
fn leaves_tree(path: &str, target: &str) -> bool {
    if target.starts_with('/') || target.contains('\\') {
        return true;
    }
    let mut depth = path.split('/').count().saturating_sub(1);
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => match depth.checked_sub(1) {
                Some(less) => depth = less,
                None => return true,
            },
            _ => depth += 1,
        }
    }
    false
}

fn take(path: &str, text: &str, index: usize, start: Position, value: Value, depth: usize, out: &mut Parsed) {
    if value.is_null() {
        return;
    }
    let at = |field: &str| if depth == 0 { manifest::locate(text, index, field).or(Some(start)) } else { Some(start) };
    if !value.is_object() {
        out.faults.push(fault(path, Some(start), "NotAnObject", "the document is no object: it needs apiVersion, kind and metadata"));
        return;
    }
    // The command-line tool's own list, and lists as an API server prints them.
    let kind = object::text(&value, "kind").to_owned();
    if kind.ends_with("List") && value.get("items").is_some_and(Value::is_array) {
        if depth > 0 {
            out.faults.push(fault(path, Some(start), "NotAnObject", "a list inside a list is not read"));
            return;
        }
        let mut value = value;
        if let Some(Value::Array(items)) = value.get_mut("items").map(Value::take) {
            for item in items {
                take(path, text, index, start, item, depth + 1, out);
            }
        }
        return;
    }
    if object::annotation(&value, LOCAL_CONFIG) == Some("true") || object::text(&value, "apiVersion").starts_with("kustomize.config.k8s.io/") {
        return;
    }
    let before = out.faults.len();
    if object::text(&value, "apiVersion").is_empty() || kind.is_empty() {
        let missing = if kind.is_empty() { "kind" } else { "apiVersion" };
        out.faults.push(fault(
            path,
            at(""),
            "NotAnObject",
            format!("the document has no {missing}; if it is not meant for a cluster, list the file in spec.ignore"),
        ));
        return;
    }
    if object::name(&value).is_empty() {
        let generated = !object::meta_text(&value, "generateName").is_empty();
        let message = if generated { "generateName gives another object at every commit; set metadata.name" } else { "the object has no metadata.name" };
        out.faults.push(fault(path, at("/metadata"), "NoName", message));
    } else if !is_path_segment(object::name(&value)) || object::name(&value).contains('\\') {
        out.faults.push(fault(path, at("/metadata/name"), "InvalidName", format!("the name {:?} cannot be part of a path", printable(object::name(&value)))));
    }
    let namespace = object::namespace(&value);
    if !namespace.is_empty() && !api::names::is_dns_label(namespace) {
        out.faults.push(fault(path, at("/metadata/namespace"), "InvalidName", format!("the namespace {:?} is no name of a namespace", printable(namespace))));
    }
    let named = ObjectRef::of(&value).to_string();
    for fault in &mut out.faults[before..] {
        fault.object.clone_from(&named);
    }
    if out.faults.len() == before {
        let line = i32::try_from(start.line).unwrap_or(i32::MAX);
        out.objects.push(Found { object: value, line });
    }
}

/// Whether the object asks to be kept when it disappears from Git.
#[must_use]
pub fn keeps_itself(object: &Value) -> bool {
    object::annotation(object, annotation::PRUNE) == Some("disabled")
}
