//! Charts in a preview: the same pins and the same bytes as in the branch writer, without a server.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Kind;
use api::apps::{Description, HelmRelease};
use api::clusters::ManagedCluster;
use api::known::annotation;
use api::object;
use chart::{Asked, Chart};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::releases::{self, Seen};
use crate::rendered::{self, Facts, Made, Pin};
use crate::tree::ObjectFile;

/// Rounds of lookups that nobody answers.
const ROUNDS: usize = 8;

/// Where a preview has its charts from.
pub trait Charts {
    /// The chart of a release at a version; none while it is not there.
    fn chart(&self, release: &HelmRelease, version: &str) -> Option<Result<Arc<Chart>, String>>;
    /// Digest of the chart in a directory beside the manifests.
    fn digest(&self, path: &str) -> Option<String>;
    /// What random values are drawn from.
    fn salt(&self) -> &[u8];
}

/// No charts: releases are shown as their HelmReleases only.
pub struct NoCharts;

impl Charts for NoCharts {
    fn chart(&self, _: &HelmRelease, _: &str) -> Option<Result<Arc<Chart>, String>> {
        None
    }

    fn digest(&self, _: &str) -> Option<String> {
        None
    }

    fn salt(&self) -> &[u8] {
        &[]
    }
}

/// What is known of releases in the parent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Known {
    /// HelmReleases.
    pub releases: Vec<HelmRelease>,
    /// Answers to lookups, by `namespace/name` of the HelmRelease: the wish, and the answers to it.
    pub answers: BTreeMap<String, (String, BTreeMap<Asked, Option<Value>>)>,
}

/// The HelmReleases of a Description, as the controllers would have them.
fn wanted(description: &Description, facts: Facts, known: &Known, charts: &dyn Charts) -> Vec<HelmRelease> {
    let namespace = description.metadata.namespace.as_deref().unwrap_or_default();
    let name = description.metadata.name.as_deref().unwrap_or_default();
    let mut digests = BTreeMap::new();
    let mut mine: BTreeMap<String, HelmRelease> = BTreeMap::new();
    for (chart, raw) in description.spec.charts.iter().zip(&description.spec.chart_raw) {
        let release = releases::release_name(name, &chart.namespace, &chart.name);
        let raw: Value = serde_json::from_slice(&raw.0).unwrap_or_default();
        if let Some(digest) = object::annotation(&raw, annotation::CHART_PATH).and_then(|path| charts.digest(path)) {
            digests.insert(release.clone(), digest);
        }
        let found = known.releases.iter().find(|r| r.metadata.namespace.as_deref() == Some(namespace) && r.metadata.name.as_ref() == Some(&release));
        if let Some(found) = found {
            mine.insert(release, found.clone());
        }
    }
    let seen = Seen {
        description: Arc::new(description.clone()),
        releases: mine.values().cloned().map(Arc::new).collect(),
        taken: BTreeMap::new(),
        replaced: false,
        facts: Some(facts),
        digests,
        found: BTreeMap::new(),
    };
    for step in releases::decide(&seen) {
        if let Some(made) = super::made::<HelmRelease>(&step, |name| mine.get(name).map(Kind::to_object)) {
            mine.insert(made.metadata.name.clone().unwrap_or_default(), made);
        }
    }
    mine.into_values().collect()
}

/// What a Description's releases render to, by directory; empty when nothing is rendered for the cluster. What cannot be said is a
/// finding.
pub(super) fn rendered(
    description: &Description,
    cluster: &ManagedCluster,
    known: &Known,
    charts: &dyn Charts,
    now: Timestamp,
    bound: &mut super::Bound,
) -> BTreeMap<String, Option<Arc<Vec<ObjectFile>>>> {
    let mut out = BTreeMap::new();
    let api_versions = cluster.metadata.annotations.as_ref().and_then(|a| a.get(annotation::API_VERSIONS)).cloned();
    let kube = cluster.status.as_ref().map(|s| s.k8s_version.clone()).filter(|v| !v.is_empty());
    let (Some(api_versions), Some(kube)) = (api_versions, kube) else { return out };
    for release in wanted(description, Facts { kube, api_versions, now: now.as_second(), ..Facts::default() }, known, charts) {
        let Some(pin) = Pin::read(&release) else { continue };
        let version = if pin.version.is_empty() { &release.spec.options.chart_version } else { &pin.version };
        let Some(chart) = charts.chart(&release, version) else { continue };
        let key = object::key(release.metadata.namespace.as_deref().unwrap_or_default(), release.metadata.name.as_deref().unwrap_or_default());
        let files = chart.and_then(|chart| {
            // What was told for the wish of before is the best guess for a new one.
            let mut answers = known.answers.get(&key).map(|(_, answers)| answers.clone()).unwrap_or_default();
            let seed = rendered::seed(charts.salt(), &cluster.spec.cluster_id, &release);
            let mut told = false;
            for _ in 0..ROUNDS {
                match rendered::render(&chart, &release, &pin, answers.clone(), seed) {
                    Made::Files(files) => return Ok(files),
                    Made::Fault(why) => return Err(why),
                    Made::Asks(asks) => {
                        if !told {
                            bound.findings.push(format!("{key}: looks up objects of the cluster; shown as if they were not there"));
                            told = true;
                        }
                        answers.extend(asks.into_iter().map(|asked| (asked, None)));
                    }
                }
            }
            Err("templates look up ever more objects".to_owned())
        });
        if let Err(why) = &files {
            bound.fails(format!("{key}: render chart {}: {why}", release.spec.options.chart));
        }
        out.insert(rendered::directory(&release), files.ok());
    }
    out
}

/// Digest of a chart that lies in a repository: ids and names of its files.
#[must_use]
pub fn digest_of<'a>(files: impl IntoIterator<Item = (String, &'a str)>) -> String {
    let list: Vec<Value> = files.into_iter().map(|(id, name)| json!([id, name])).collect();
    manifest::hash::hex(&manifest::fingerprint(&Value::Array(list))[..20])
}
