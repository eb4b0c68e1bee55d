//! Rendering: the objects of one Base with every override applied, as the specs of its Descriptions.
//!
//! Pure: the same feeds, overrides and cluster give the same bytes, here, in the controllers, and in `anabranch plan`.
//! Everything is keyed by the hash of its inputs, so that one template for a thousand clusters is rendered once.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use api::Bytes;
use api::apps::{ChartReference, DeployerType, DescriptionSpec, Feed, HelmChart, Manifest};
use api::known::{finalizer, label};
use api::object::{self, ObjectRef};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::overrides::{self, Digest, Finding, Override, OverrideFault};

/// What a feed stands for, ready to be rendered.
#[derive(Debug, Clone)]
pub struct Part {
    /// The object.
    pub target: ObjectRef,
    /// Its template: the wrapped object of a Manifest, or the HelmChart object as Descriptions carry it.
    pub template: Arc<Value>,
    /// Hash of the template.
    pub digest: Digest,
    /// Whether it is a chart.
    pub chart: bool,
}

impl Part {
    /// The object that a Manifest wraps.
    #[must_use]
    pub fn of_manifest(manifest: &Manifest) -> Self {
        Self {
            target: manifest_target(manifest),
            digest: manifest::fingerprint(&manifest.template),
            template: Arc::new(manifest.template.clone()),
            chart: false,
        }
    }

    /// A HelmChart, reduced to what Descriptions carry: no status, no labels that count users.
    #[must_use]
    pub fn of_chart(chart: &HelmChart) -> Self {
        let meta = &chart.metadata;
        let mut metadata = Map::new();
        let mut labels: Map<String, Value> = meta
            .labels
            .iter()
            .flatten()
            .filter(|(key, value)| !is_user_label(key, value))
            .map(|(key, value)| (key.clone(), Value::String(value.clone())))
            .collect();
        // What our own controllers write on the chart is put in from the start: their write must not look like a change.
        let gvk = api::object::Gvk::from_api_version("apps.clusternet.io/v1alpha1", "HelmChart");
        let (namespace, name) = (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default());
        for (key, value) in crate::shadow::config_labels(&gvk, &namespace, &name) {
            labels.insert(key, Value::String(value));
        }
        let annotations: Map<String, Value> =
            meta.annotations.iter().flatten().map(|(key, value)| (key.clone(), Value::String(value.clone()))).collect();
        for (key, map) in [("labels", labels), ("annotations", annotations)] {
            if !map.is_empty() {
                metadata.insert(key.to_owned(), Value::Object(map));
            }
        }
        metadata.insert("finalizers".to_owned(), json!([finalizer::APP, finalizer::FEED_PROTECTION]));
        metadata.insert("name".to_owned(), json!(name));
        metadata.insert("namespace".to_owned(), json!(namespace));
        let mut spec = serde_json::to_value(&chart.spec).unwrap_or(Value::Null);
        if let Some(spec) = spec.as_object_mut() {
            // Go writes the empty struct; readers of chartRaw expect it.
            spec.entry("chartPullSecret").or_insert_with(|| json!({}));
        }
        let template = json!({"metadata": metadata, "spec": spec});
        let target = crate::step::app_ref("HelmChart", meta);
        Self { target, digest: manifest::fingerprint(&template), template: Arc::new(template), chart: true }
    }
}

/// The object a Manifest is about: by its labels (which the shadow API keeps), else by the template.
#[must_use]
pub fn manifest_target(manifest: &Manifest) -> ObjectRef {
    let from_template = ObjectRef::of(&manifest.template);
    let Some(labels) = manifest.metadata.labels.as_ref().filter(|l| l.contains_key(label::CONFIG_KIND)) else { return from_template };
    let get = |key: &str| labels.get(key).cloned().unwrap_or_default();
    ObjectRef {
        api_version: object::join_api_version(&get(label::CONFIG_GROUP), &get(label::CONFIG_VERSION)),
        kind: get(label::CONFIG_KIND),
        namespace: get(label::CONFIG_NAMESPACE),
        name: get(label::CONFIG_NAME),
    }
}

/// True for the labels `<uid>: Base` and `<uid>: Subscription` that say who uses a feed.
#[must_use]
pub fn is_user_label(key: &str, value: &str) -> bool {
    matches!(value, "Base" | "Subscription") && is_uid(key)
}

/// 8-4-4-4-12 hexadecimal digits.
#[must_use]
pub fn is_uid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, b)| if matches!(at, 8 | 13 | 18 | 23) { b == b'-' } else { b.is_ascii_hexdigit() })
}

/// Whether a feed names this object. A feed without a namespace names objects of any.
#[must_use]
pub fn feed_names(feed: &Feed, target: &ObjectRef) -> bool {
    names(feed, [&target.api_version, &target.kind, &target.namespace, &target.name])
}

/// Whether what one feed names is what another says it is of. Nothing is copied: this is asked for every object of every cluster.
#[must_use]
pub fn feed_covers(feed: &Feed, other: &Feed) -> bool {
    names(feed, [&other.api_version, &other.kind, &other.namespace, &other.name])
}

fn names(feed: &Feed, [api_version, kind, namespace, name]: [&str; 4]) -> bool {
    feed.kind == kind
        && feed.name == name
        && (feed.is_helm_chart() || feed.api_version == api_version)
        && (feed.namespace.is_empty() || feed.namespace == namespace)
}

/// Key under which feeds and what they name meet, whatever the namespace.
#[must_use]
pub fn feed_index(api_version: &str, kind: &str, name: &str) -> String {
    // Charts are found by their kind alone.
    let api_version = if kind == "HelmChart" { "" } else { api_version };
    format!("{api_version}/{kind}/{name}")
}

/// What is known of the cluster that is rendered for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterFacts {
    /// Dedicated namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Id.
    pub id: String,
    /// Labels of the ManagedCluster.
    pub labels: BTreeMap<String, String>,
}

/// A rendered object or chart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// Generic: the object as JSON. Chart: its values as JSON, a single blank when there are none.
    pub raw: Vec<u8>,
    /// Chart: the HelmChart object as JSON.
    pub chart: Vec<u8>,
    /// Overrides that found nothing.
    pub findings: Vec<Finding>,
}

/// Hash of everything that decides how a part comes out.
#[must_use]
pub fn key(part: &Part, overrides: &[Arc<Override>]) -> Digest {
    let mut hash = Sha256::new();
    hash.update(part.digest);
    hash.update(part.target.to_string().as_bytes());
    for one in overrides {
        hash.update(one.digest);
    }
    hash.finalize().into()
}

/// Renders one part; `overrides` are those for it and its cluster, in order.
pub fn part(part: &Part, overrides: &[Arc<Override>]) -> Result<Rendered, OverrideFault> {
    // Serialising a Value into memory cannot fail.
    let json = |value: &Value| serde_json::to_vec(value).unwrap_or_default();
    if !part.chart {
        let (object, findings) = overrides::apply_to_object(&part.target, (*part.template).clone(), overrides)?;
        return Ok(Rendered { raw: json(&object), chart: Vec::new(), findings });
    }
    let (values, mut findings) = overrides::apply_to_values(&part.target, overrides)?;
    let (chart, more) = overrides::apply_to_chart(&part.target, (*part.template).clone(), overrides)?;
    findings.extend(more);
    Ok(Rendered { raw: values.as_ref().map_or_else(|| b" ".to_vec(), json), chart: json(&chart), findings })
}

/// What was rendered, by input hash; bounded by bytes, oldest out first.
#[derive(Debug, Default)]
pub struct Memo {
    known: BTreeMap<Digest, Result<Arc<Rendered>, OverrideFault>>,
    order: VecDeque<Digest>,
    bytes: usize,
}

/// Bytes that a [`Memo`] holds at most: about 10,000 objects of usual size.
const MEMO_BYTES: usize = 32 << 20;

impl Memo {
    /// What was rendered for this key.
    #[must_use]
    pub fn get(&self, key: &Digest) -> Option<Result<Arc<Rendered>, OverrideFault>> {
        self.known.get(key).cloned()
    }

    /// Remembers what was rendered.
    pub fn put(&mut self, key: Digest, rendered: Result<Arc<Rendered>, OverrideFault>) {
        self.bytes += weight(&rendered);
        if self.known.insert(key, rendered).is_none() {
            self.order.push_back(key);
        }
        while self.bytes > MEMO_BYTES {
            let Some(oldest) = self.order.pop_front() else { break };
            if let Some(gone) = self.known.remove(&oldest) {
                self.bytes = self.bytes.saturating_sub(weight(&gone));
            }
        }
    }
}

fn weight(rendered: &Result<Arc<Rendered>, OverrideFault>) -> usize {
    200 + rendered.as_ref().map_or(200, |r| r.raw.len() + r.chart.len())
}

/// A part with its overrides rendered, to be put into a Description.
#[derive(Debug, Clone)]
pub struct Piece {
    /// The object.
    pub target: ObjectRef,
    /// Whether it is a chart.
    pub chart: bool,
    /// How it came out.
    pub rendered: Arc<Rendered>,
}

/// The specs of the Descriptions of a Base: for plain objects and for charts; `None` where there is nothing.
#[must_use]
pub fn specs(pieces: &[Piece], own_labels: &[(String, &str)]) -> (Option<DescriptionSpec>, Option<DescriptionSpec>) {
    let mut generic = DescriptionSpec { deployer: DeployerType::Generic, ..DescriptionSpec::default() };
    let mut helm = DescriptionSpec { deployer: DeployerType::Helm, ..DescriptionSpec::default() };
    for piece in pieces {
        if piece.chart {
            helm.charts.push(ChartReference { namespace: piece.target.namespace.clone(), name: piece.target.name.clone() });
            helm.raw.push(Bytes(piece.rendered.raw.clone()));
            helm.chart_raw.push(Bytes(with_labels(&piece.rendered.chart, own_labels)));
        } else {
            generic.raw.push(Bytes(piece.rendered.raw.clone()));
        }
    }
    ((!generic.raw.is_empty()).then_some(generic), (!helm.charts.is_empty()).then_some(helm))
}

/// Charts travel with the labels of the Base and Subscription they were rendered for, and of no other.
fn with_labels(chart: &[u8], own: &[(String, &str)]) -> Vec<u8> {
    let Ok(mut value) = serde_json::from_slice::<Value>(chart) else { return chart.to_vec() };
    for (uid, kind) in own.iter().filter(|(uid, _)| !uid.is_empty()) {
        object::set_label(&mut value, uid, kind);
    }
    serde_json::to_vec(&value).unwrap_or_default()
}
