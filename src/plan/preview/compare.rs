//! Two revisions side by side: who gains, loses or changes what; equal changes of many clusters are said once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::gitops::FileFault;
use api::known::LAYOUT_FILE;
use serde::Serialize;

use super::State;

/// Where a Subscription goes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Placed {
    /// `namespace/name`.
    pub subscription: String,
    /// It is new, or gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub made: Option<bool>,
    /// Clusters that get it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gained: Vec<String>,
    /// Clusters that lose it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<String>,
    /// Replicas that move: feed -> cluster -> before and after.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub replicas: BTreeMap<String, BTreeMap<String, (i32, i32)>>,
    /// What the scheduler says.
    pub message: String,
    /// What should be known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<String>,
}

/// A file of a branch that changes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FileChange {
    /// Path in the branch.
    pub path: String,
    /// Content before; absent when it is new.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Arc<str>>,
    /// Content after; absent when it is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Arc<str>>,
    /// Fields that change: path, before, after. Empty for files that are new or gone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
}

/// Equal changes of some clusters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    /// `namespace/name`, sorted.
    pub clusters: Vec<String>,
    /// What changes, by path; of changed files the content is that of the first cluster.
    pub files: Vec<FileChange>,
}

/// What becomes of one cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterChange {
    /// Files that are new.
    pub added: usize,
    /// Files that change.
    pub changed: usize,
    /// Files that go.
    pub removed: usize,
}

/// The difference of two revisions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Subscriptions whose place or replicas change, or of which something should be known.
    pub subscriptions: Vec<Placed>,
    /// Clusters that change.
    pub clusters: BTreeMap<String, ClusterChange>,
    /// What changes in their branches.
    pub groups: Vec<Group>,
    /// What is wrong in files of the new revision.
    pub faults: Vec<FileFault>,
    /// Faults that the old revision had too.
    pub old_faults: usize,
}

impl Report {
    /// Whether merging would change nothing in any cluster.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.subscriptions.iter().all(|p| p.gained.is_empty() && p.lost.is_empty() && p.replicas.is_empty() && p.made.is_none())
    }
}

/// Compares.
#[must_use]
pub fn compare(base: &State, head: &State) -> Report {
    let mut out = Report { faults: head.faults.clone(), old_faults: base.faults.len(), ..Report::default() };
    let names: BTreeSet<&String> = base.subscriptions.keys().chain(head.subscriptions.keys()).collect();
    for name in names {
        let placed = placed(name, base, head);
        let quiet = placed.made.is_none() && placed.gained.is_empty() && placed.lost.is_empty() && placed.replicas.is_empty();
        let known = base.subscriptions.get(name).is_some_and(|b| b.findings == placed.findings);
        if !quiet || (!placed.findings.is_empty() && !known) {
            out.subscriptions.push(placed);
        }
    }
    // Clusters whose files differ may still change in the same way: of a changed file the fields count, not the rest.
    type Same = Vec<(String, Option<Arc<str>>, Option<Arc<str>>, Vec<String>)>;
    let mut groups: BTreeMap<Same, (Vec<FileChange>, Vec<String>)> = BTreeMap::new();
    let clusters: BTreeSet<&String> = base.trees.keys().chain(head.trees.keys()).collect();
    for cluster in clusters {
        let empty = BTreeMap::new();
        let before = base.trees.get(cluster).map_or(&empty, |t| &t.files);
        let after = head.trees.get(cluster).map_or(&empty, |t| &t.files);
        let changes = files(before, after);
        if changes.is_empty() {
            continue;
        }
        let mut sums = ClusterChange::default();
        for change in &changes {
            match (&change.before, &change.after) {
                (None, _) => sums.added += 1,
                (_, None) => sums.removed += 1,
                _ => sums.changed += 1,
            }
        }
        out.clusters.insert(cluster.clone(), sums);
        let same = changes
            .iter()
            .map(|c| if c.fields.is_empty() { (c.path.clone(), c.before.clone(), c.after.clone(), Vec::new()) } else { (c.path.clone(), None, None, c.fields.clone()) })
            .collect();
        groups.entry(same).or_insert_with(|| (changes, Vec::new())).1.push(cluster.clone());
    }
    out.groups = groups.into_values().map(|(files, clusters)| Group { clusters, files }).collect();
    // The widest change first; then by the first cluster's name.
    out.groups.sort_by(|a, b| b.clusters.len().cmp(&a.clusters.len()).then_with(|| a.clusters.cmp(&b.clusters)));
    out
}

fn placed(name: &str, base: &State, head: &State) -> Placed {
    let (before, after) = (base.subscriptions.get(name), head.subscriptions.get(name));
    let bindings = |bound: Option<&super::Bound>| bound.map(|b| b.status.binding_clusters.iter().cloned().collect::<BTreeSet<_>>()).unwrap_or_default();
    let (old, new) = (bindings(before), bindings(after));
    let mut replicas: BTreeMap<String, BTreeMap<String, (i32, i32)>> = BTreeMap::new();
    for (sign, bound) in [(0, before), (1, after)] {
        let Some(bound) = bound else { continue };
        for (feed, counts) in &bound.status.replicas {
            for (cluster, count) in bound.status.binding_clusters.iter().zip(counts) {
                let pair = replicas.entry(feed.clone()).or_default().entry(cluster.clone()).or_default();
                if sign == 0 { pair.0 = *count } else { pair.1 = *count }
            }
        }
    }
    for moves in replicas.values_mut() {
        moves.retain(|_, (a, b)| a != b);
    }
    replicas.retain(|_, moves| !moves.is_empty());
    let made = match (before.is_some(), after.is_some()) {
        (false, true) => Some(true),
        (true, false) => Some(false),
        _ => None,
    };
    Placed {
        subscription: name.to_owned(),
        made,
        gained: new.difference(&old).cloned().collect(),
        lost: old.difference(&new).cloned().collect(),
        replicas,
        message: after.map(|b| b.message.clone()).unwrap_or_default(),
        findings: after.map(|b| b.findings.clone()).unwrap_or_default(),
    }
}

/// A Secret with its values replaced by what tells them apart and nothing more.
fn mask(text: &Arc<str>) -> Arc<str> {
    let Ok(mut object) = manifest::parse(text, &manifest::Limits::OBJECT) else { return Arc::from("***\n") };
    for field in ["data", "stringData"] {
        for (key, value) in object.get_mut(field).and_then(serde_json::Value::as_object_mut).into_iter().flatten() {
            let shown = manifest::sha256(&serde_json::json!([key, value]));
            *value = serde_json::Value::String(format!("*** ({})", shown.get(..6).unwrap_or_default()));
        }
    }
    manifest::emit(&object).into()
}

fn files(before: &BTreeMap<String, Arc<str>>, after: &BTreeMap<String, Arc<str>>) -> Vec<FileChange> {
    let paths: BTreeSet<&String> = before.keys().chain(after.keys()).filter(|p| *p != LAYOUT_FILE).collect();
    paths
        .into_iter()
        .filter_map(|path| {
            let (old, new) = (before.get(path), after.get(path));
            if old == new {
                return None;
            }
            // What is secret in a branch must not travel into a pull request; that it changes is said.
            let secret = path.rsplit('/').next().is_some_and(|name| name.starts_with("secret."));
            let masked = |text: Option<&Arc<str>>| text.map(|t| if secret { mask(t) } else { t.clone() });
            let (old, new) = (masked(old), masked(new));
            let (old, new) = (old.as_ref(), new.as_ref());
            let read = |text: &Arc<str>| manifest::parse(text, &manifest::Limits::OBJECT).ok();
            let fields = match (old.and_then(read), new.and_then(read)) {
                (Some(a), Some(b)) => manifest::diff(&a, &b).iter().map(ToString::to_string).collect(),
                _ => Vec::new(),
            };
            Some(FileChange { path: path.clone(), before: old.cloned(), after: new.cloned(), fields })
        })
        .collect()
}
