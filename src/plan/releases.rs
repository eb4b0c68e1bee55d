//! Helm Description -> HelmReleases: one per chart, named and labelled as Clusternet does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::apps::{Description, HelmRelease};
use api::known::{annotation, component, finalizer, label};
use api::names::is_label_value;
use api::object;
use api::reason::Reason;
use serde_json::{Map, Value, json};

use crate::rendered::{self, Facts, Found};
use crate::step::{MetaWish, Step, Version, app_ref, label_of, owner};

/// One reading of the world around a Description of charts.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The Description.
    pub description: Arc<Description>,
    /// Its HelmReleases.
    pub releases: Vec<Arc<HelmRelease>>,
    /// Releases of other Descriptions in the same cluster: target namespace and release name, and who has it.
    pub taken: BTreeMap<(String, String), String>,
    /// Its Base goes, but another one of its Subscription stays for this cluster: nothing is uninstalled.
    pub replaced: bool,
    /// What is known of the cluster, when its releases are rendered for a branch.
    pub facts: Option<Facts>,
    /// By the name of the HelmRelease: digest of its chart, when that lies in a repository beside the manifests.
    pub digests: BTreeMap<String, String>,
    /// By the name of the HelmRelease: what came of rendering it.
    pub found: BTreeMap<String, Found>,
}

/// Name of the HelmRelease of a chart.
#[must_use]
pub fn release_name(description: &str, chart_namespace: &str, chart: &str) -> String {
    format!("{description}-{chart_namespace}-{chart}")
}

/// Name of the copy of a chart's pull secret beside its HelmRelease: all that the cluster's agent may read.
#[must_use]
pub fn pull_secret_name(release: &str) -> String {
    api::names::with_suffix("chart-pull", &[release], 63)
}

/// Pull secrets that a Description's charts need: name of the HelmRelease -> namespace and name of the Secret. Without a
/// namespace the Secret lies beside the HelmChart.
#[must_use]
pub fn pull_secrets(description: &Description) -> BTreeMap<String, (String, String)> {
    let name = description.metadata.name.as_deref().unwrap_or_default();
    let mut out = BTreeMap::new();
    for (chart, raw) in description.spec.charts.iter().zip(&description.spec.chart_raw) {
        let Ok(raw) = serde_json::from_slice::<Value>(&raw.0) else { continue };
        let secret = &raw["spec"]["chartPullSecret"];
        let at = secret["namespace"].as_str().filter(|n| !n.is_empty()).unwrap_or(&chart.namespace);
        if let Some(wanted) = secret["name"].as_str().filter(|n| !n.is_empty()) {
            out.insert(release_name(name, &chart.namespace, &chart.name), (at.to_owned(), wanted.to_owned()));
        }
    }
    out
}

/// Charts of a Description that get no release of their own, by their place in the list: another chart before them has it.
#[must_use]
pub fn refused(description: &Description) -> BTreeMap<usize, String> {
    let mut out = BTreeMap::new();
    let mut names = BTreeMap::new();
    for (at, (chart, raw)) in description.spec.charts.iter().zip(&description.spec.chart_raw).enumerate() {
        let Ok(raw) = serde_json::from_slice::<Value>(&raw.0) else {
            out.insert(at, format!("chart {}/{} cannot be read", chart.namespace, chart.name));
            continue;
        };
        let key = (text(&raw, "targetNamespace"), chart.name.clone());
        if let Some(first) = names.get(&key) {
            out.insert(at, format!("chart {}/{}: release {}/{} belongs to chart {first}", chart.namespace, chart.name, key.0, key.1));
            continue;
        }
        names.insert(key, format!("{}/{}", chart.namespace, chart.name));
    }
    out
}

/// Decides.
#[must_use]
pub fn decide(seen: &Seen) -> Vec<Step> {
    let meta = &seen.description.metadata;
    let about = app_ref("Description", meta);
    let uid = meta.uid.clone().unwrap_or_default();
    let mut steps = Vec::new();
    if seen.replaced && meta.deletion_timestamp.is_none() {
        steps.extend(seen.releases.iter().map(|release| Step::LetGo { at: app_ref("HelmRelease", &release.metadata), only_if: Version::exactly(&release.metadata) }));
        steps.push(Step::LetGo { at: about, only_if: Version::exactly(meta) });
        return steps;
    }
    let spec = &seen.description.spec;
    if spec.charts.len() != spec.raw.len() || spec.charts.len() != spec.chart_raw.len() {
        let message = format!("charts, raw and chartRaw have {}, {} and {} entries", spec.charts.len(), spec.raw.len(), spec.chart_raw.len());
        return vec![Step::Tell { about, uid, warning: true, reason: Reason::UnequalLengths, message }];
    }
    let mut wanted: BTreeMap<String, Value> = BTreeMap::new();
    let mut names: BTreeSet<(String, String)> = BTreeSet::new();
    if meta.deletion_timestamp.is_none() {
        for ((chart, values), raw) in spec.charts.iter().zip(&spec.raw).zip(&spec.chart_raw) {
            let name = release_name(meta.name.as_deref().unwrap_or_default(), &chart.namespace, &chart.name);
            let Ok(raw) = serde_json::from_slice::<Value>(&raw.0) else {
                let message = format!("chart {}/{} cannot be read", chart.namespace, chart.name);
                steps.push(Step::Tell { about: about.clone(), uid: uid.clone(), warning: true, reason: Reason::HelmReleaseFailure, message });
                continue;
            };
            let now = seen.releases.iter().find(|release| release.metadata.name.as_deref() == Some(&name));
            let mut object = fresh(&seen.description, &name, &chart.name, &raw, &values.0, now.map(Arc::as_ref));
            if let Some(facts) = &seen.facts {
                let digest = seen.digests.get(&name).map(String::as_str).unwrap_or_default();
                let of = rendered::wish(&object["spec"], &object::annotations(&object), digest);
                object["metadata"]["annotations"][annotation::RENDER] = json!(rendered::pin(&of, facts, seen.found.get(&name), now.map(Arc::as_ref)).text());
            }
            let at = (text(&object, "targetNamespace"), text(&object, "releaseName"));
            let other = seen.taken.get(&at).cloned().or_else(|| names.contains(&at).then(|| "another chart of this Subscription".to_owned()));
            if let Some(other) = other {
                let message = format!("chart {}/{}: release {}/{} belongs to {other}", chart.namespace, chart.name, at.0, at.1);
                steps.push(Step::Tell { about: about.clone(), uid: uid.clone(), warning: true, reason: Reason::HelmReleaseFailure, message });
                // What runs under the name stays as it is; this chart is refused.
                if now.is_none() {
                    continue;
                }
            }
            names.insert(at);
            wanted.insert(name, object);
        }
    }
    for release in &seen.releases {
        let name = release.metadata.name.clone().unwrap_or_default();
        match wanted.remove(&name) {
            Some(_) if release.metadata.deletion_timestamp.is_some() => {}
            Some(object) => steps.extend(update(release, &object)),
            None if release.metadata.deletion_timestamp.is_none() => {
                steps.push(Step::Delete { at: app_ref("HelmRelease", &release.metadata), uid: release.metadata.uid.clone().unwrap_or_default() });
            }
            None => {}
        }
    }
    steps.extend(wanted.into_values().map(|object| Step::Create { object }));
    if meta.deletion_timestamp.is_some() && seen.releases.is_empty() {
        let wish = MetaWish { without_finalizers: vec![finalizer::APP], ..MetaWish::default() };
        if let Some(patch) = wish.patch(meta) {
            steps.push(Step::Patch { at: about, patch: json!({"metadata": patch}), only_if: Version::exactly(meta) });
        }
    }
    steps
}

fn text(object: &Value, field: &str) -> String {
    object.get("spec").and_then(|spec| spec.get(field)).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn fresh(description: &Description, name: &str, chart_name: &str, chart: &Value, values: &[u8], now: Option<&HelmRelease>) -> Value {
    let meta = &description.metadata;
    let mut labels = object::labels(chart);
    let own = [
        (label::CREATED_BY, component::CONTROLLER_MANAGER),
        (label::CONFIG_GROUP, "apps.clusternet.io"),
        (label::CONFIG_VERSION, "v1alpha1"),
        (label::CONFIG_KIND, "Description"),
        (label::CONFIG_NAME, meta.name.as_deref().unwrap_or_default()),
        (label::CONFIG_NAMESPACE, meta.namespace.as_deref().unwrap_or_default()),
        (label::CONFIG_UID, meta.uid.as_deref().unwrap_or_default()),
        (label::CLUSTER_ID, label_of(meta, label::CLUSTER_ID)),
        (label::CLUSTER_NAME, label_of(meta, label::CLUSTER_NAME)),
        (label::SUBS_NAME, label_of(meta, label::SUBS_NAME)),
        (label::SUBS_NAMESPACE, label_of(meta, label::SUBS_NAMESPACE)),
        (label::SUBS_UID, label_of(meta, label::SUBS_UID)),
    ];
    for (key, value) in own {
        // A Description name of more than 63 characters fits no label: the release is made without it.
        if is_label_value(value) {
            labels.insert(key.to_owned(), value.to_owned());
        } else {
            labels.remove(key);
        }
    }
    let mut spec = chart.get("spec").and_then(Value::as_object).cloned().unwrap_or_default();
    // Releases of older versions that run without a name keep running without one.
    let named = now.is_none_or(|release| release.spec.release_name.is_some());
    if named {
        spec.insert("releaseName".to_owned(), json!(chart_name));
    }
    if values.iter().any(|byte| !byte.is_ascii_whitespace()) {
        spec.insert("overrides".to_owned(), json!(api::Bytes(values.to_vec())));
    }
    let mut metadata = Map::new();
    metadata.insert("name".to_owned(), json!(name));
    metadata.insert("namespace".to_owned(), json!(meta.namespace.clone().unwrap_or_default()));
    metadata.insert("labels".to_owned(), json!(labels));
    let annotations = object::annotations(chart);
    if !annotations.is_empty() {
        metadata.insert("annotations".to_owned(), json!(annotations));
    }
    metadata.insert("finalizers".to_owned(), json!([finalizer::APP]));
    metadata.insert("ownerReferences".to_owned(), json!([owner("Description", meta)]));
    json!({"apiVersion": "apps.clusternet.io/v1alpha1", "kind": "HelmRelease", "metadata": metadata, "spec": spec})
}

fn update(release: &HelmRelease, object: &Value) -> Option<Step> {
    let mut annotations: BTreeMap<String, Option<String>> = object::annotations(object).into_iter().map(|(k, v)| (k, Some(v))).collect();
    annotations.entry(annotation::RENDER.to_owned()).or_insert(None);
    let wish = MetaWish {
        labels: object::labels(object).into_iter().map(|(k, v)| (k, Some(v))).collect(),
        annotations,
        finalizers: vec![finalizer::APP],
        ..MetaWish::default()
    };
    let mut patch = Map::new();
    if let Some(meta) = wish.patch(&release.metadata) {
        patch.insert("metadata".to_owned(), meta);
    }
    let (now, then) = (json!(release.spec), object.get("spec").cloned().unwrap_or_default());
    let mut changes = Map::new();
    let keys: BTreeSet<&String> = now.as_object().into_iter().chain(then.as_object()).flat_map(Map::keys).collect();
    for key in keys {
        let (a, b) = (now.get(key), then.get(key));
        // The empty reference to a pull secret is left out by our own types and written by Go's.
        if a != b && !(a.is_none() && b == Some(&json!({}))) {
            changes.insert(key.clone(), b.cloned().unwrap_or(Value::Null));
        }
    }
    if !changes.is_empty() {
        patch.insert("spec".to_owned(), Value::Object(changes));
    }
    (!patch.is_empty()).then(|| Step::Patch {
        at: app_ref("HelmRelease", &release.metadata),
        patch: Value::Object(patch),
        only_if: Version::exactly(&release.metadata),
    })
}

#[cfg(test)]
mod tests;
