//! Manifests and HelmCharts: who uses them, and their protection while somebody does.

use std::collections::BTreeSet;

use api::ObjectMeta;
use api::apps::{HelmChart, Manifest};
use api::known::{annotation, finalizer};
use api::object::{Gvk, ObjectRef};
use api::reason::Reason;
use serde_json::{Value, json};

use crate::render::is_user_label;
use crate::step::{MetaWish, Step, Version, annotation_of, app_ref, has_finalizer};

/// Up to this many Bases a feed carries a label for each, as Clusternet writes them; above, only the Subscriptions'.
/// A label per Base makes the object grow with the fleet and costs a write and a watch event per cluster.
pub const BASE_LABELS_MAX: usize = 50;

/// One reading of the world around a feed.
#[derive(Debug, Clone)]
pub struct Seen {
    /// `Manifest` or `HelmChart`.
    pub kind: &'static str,
    /// Metadata of the Manifest or HelmChart.
    pub meta: ObjectMeta,
    /// What it stands for.
    pub target: ObjectRef,
    /// Uids of the Bases that list it.
    pub bases: BTreeSet<String>,
    /// Uids of the Subscriptions that list it (also ones that only a Base of them still lists).
    pub subscriptions: BTreeSet<String>,
    /// `namespace/name` of the Subscriptions that list it now, which keeps it from being deleted.
    pub in_use_by: BTreeSet<String>,
}

/// Decides.
#[must_use]
pub fn decide(seen: &Seen) -> Vec<Step> {
    let meta = &seen.meta;
    let at = app_ref(seen.kind, meta);
    let uid = meta.uid.clone().unwrap_or_default();
    let mut steps = Vec::new();
    let mut wish = MetaWish::default();
    let mut wanted: BTreeSet<(&str, &str)> = seen.subscriptions.iter().map(|uid| (uid.as_str(), "Subscription")).collect();
    if seen.bases.len() <= BASE_LABELS_MAX {
        wanted.extend(seen.bases.iter().map(|uid| (uid.as_str(), "Base")));
    }
    for (key, value) in meta.labels.iter().flatten() {
        if is_user_label(key, value) && !wanted.contains(&(key.as_str(), value.as_str())) {
            wish.labels.insert(key.clone(), None);
        }
    }
    for (uid, kind) in wanted {
        wish.labels.insert(uid.to_owned(), Some(kind.to_owned()));
    }
    if seen.kind == "HelmChart" {
        let gvk = Gvk::from_api_version("apps.clusternet.io/v1alpha1", "HelmChart");
        for (key, value) in crate::shadow::config_labels(&gvk, meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default()) {
            if api::names::is_label_value(&value) {
                wish.labels.insert(key, Some(value));
            }
        }
    }
    if meta.deletion_timestamp.is_none() {
        wish.finalizers = vec![finalizer::APP, finalizer::FEED_PROTECTION];
    } else if seen.in_use_by.is_empty() || !has_finalizer(meta, finalizer::FEED_PROTECTION) {
        // Without the protection the deletion goes through, whoever lists it: the Subscriptions then wait for it.
        wish.without_finalizers = vec![finalizer::APP, finalizer::FEED_PROTECTION];
    } else {
        let users: Vec<&str> = seen.in_use_by.iter().take(10).map(String::as_str).collect();
        let more = seen.in_use_by.len().saturating_sub(users.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let message = format!("block deleting current {} until it is removed from Subscriptions {}{more}", seen.target.kind, users.join(", "));
        if annotation_of(meta, annotation::FEED_PROTECTION) != Some(&message) {
            steps.push(Step::Tell { about: at.clone(), uid, warning: true, reason: Reason::FeedInUse, message: message.clone() });
        }
        wish.annotations.insert(annotation::FEED_PROTECTION.to_owned(), Some(message));
    }
    if let Some(patch) = wish.patch(meta) {
        steps.push(Step::Patch { at, patch: json!({"metadata": patch}), only_if: Version::exactly(meta) });
    }
    steps
}

/// The feed of a Manifest or HelmChart as seen from its metadata alone.
#[must_use]
pub fn of_manifest(manifest: &Manifest) -> (ObjectRef, ObjectMeta) {
    (crate::render::manifest_target(manifest), manifest.metadata.clone())
}

/// As [`of_manifest`], for a chart.
#[must_use]
pub fn of_chart(chart: &HelmChart) -> (ObjectRef, ObjectMeta) {
    (app_ref("HelmChart", &chart.metadata), chart.metadata.clone())
}

/// The labels that link an override to the feeds it is for: `<uid of the feed>: <kind>`, and its finalizer. What is wrong with
/// it is said about the override itself, where its author looks.
#[must_use]
pub fn link(kind: &'static str, meta: &ObjectMeta, feed_kind: &str, targets: &BTreeSet<String>, faults: &[String]) -> Vec<Step> {
    let mut wish = MetaWish::default();
    let about = app_ref(kind, meta);
    let uid = meta.uid.clone().unwrap_or_default();
    let mut steps = Vec::new();
    if !faults.is_empty() && meta.deletion_timestamp.is_none() {
        // One event: two of one reason would take turns in being news.
        steps.push(Step::Tell { about: about.clone(), uid, warning: true, reason: Reason::InvalidSpec, message: faults.join("; ") });
    }
    if meta.deletion_timestamp.is_some() {
        // Overrides that are being deleted are out of every rendering already; there is nothing to wait for.
        wish.without_finalizers = vec![finalizer::APP];
    } else {
        wish.finalizers = vec![finalizer::APP];
        for uid in targets.iter().take(BASE_LABELS_MAX) {
            wish.labels.insert(uid.clone(), Some(feed_kind.to_owned()));
        }
        for (key, value) in meta.labels.iter().flatten() {
            if crate::render::is_uid(key) && value != "Subscription" && !targets.contains(key) {
                wish.labels.insert(key.clone(), None);
            }
        }
    }
    let patch: Option<Value> = wish.patch(meta).map(|patch| json!({"metadata": patch}));
    steps.extend(patch.map(|patch| Step::Patch { at: about, patch, only_if: Version::exactly(meta) }));
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(bases: usize) -> Seen {
        let uid = |n: usize| format!("00000000-0000-4000-8000-{n:012}");
        Seen {
            kind: "Manifest",
            meta: ObjectMeta { name: Some("m".to_owned()), uid: Some(uid(1)), ..ObjectMeta::default() },
            target: ObjectRef::default(),
            bases: (100..100 + bases).map(uid).collect(),
            subscriptions: [uid(7)].into(),
            in_use_by: ["fleet/s".to_owned()].into(),
        }
    }

    fn patch(steps: &[Step]) -> Value {
        steps.iter().find_map(|step| if let Step::Patch { patch, .. } = step { Some(patch.clone()) } else { None }).unwrap_or_default()
    }

    #[test]
    fn users_are_labels_up_to_a_bound() {
        let few = patch(&decide(&seen(3)));
        assert_eq!(few["metadata"]["labels"].as_object().map(serde_json::Map::len), Some(4));
        assert_eq!(few["metadata"]["finalizers"], json!([finalizer::APP, finalizer::FEED_PROTECTION]));
        let mut many = seen(1000);
        many.meta.labels = Some([("00000000-0000-4000-8000-000000000100".to_owned(), "Base".to_owned()), ("mine".to_owned(), "Base".to_owned())].into());
        let labels = patch(&decide(&many))["metadata"]["labels"].clone();
        assert_eq!(labels, json!({"00000000-0000-4000-8000-000000000007": "Subscription", "00000000-0000-4000-8000-000000000100": null}));
    }

    #[test]
    fn a_feed_in_use_is_not_deleted() {
        let mut one = seen(1);
        one.meta.deletion_timestamp = Some(api::Time(jiff::Timestamp::UNIX_EPOCH));
        one.meta.finalizers = Some(vec![finalizer::APP.to_owned(), finalizer::FEED_PROTECTION.to_owned()]);
        let steps = decide(&one);
        assert!(patch(&steps)["metadata"]["annotations"][annotation::FEED_PROTECTION].as_str().is_some_and(|m| m.contains("fleet/s")));
        assert!(patch(&steps)["metadata"].get("finalizers").is_none());
        one.in_use_by.clear();
        assert_eq!(patch(&decide(&one))["metadata"]["finalizers"], json!([]));
    }
}
