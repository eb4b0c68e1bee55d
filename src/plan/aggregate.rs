//! Status of a Subscription from the Descriptions of its clusters: per feed, per cluster, and in sum.
//!
//! Form: as Clusternet designed it and case 38 of the recorded answers shows it. Entries are matched by kind, apiVersion,
//! namespace and name; a status whose feed is not listed, or whose cluster is not bound, is passed over.

use std::collections::BTreeMap;

use api::apps::{AggregatedStatus, Feed, FeedStatus, FeedStatusPerCluster, ManifestStatus, ReplicaStatus, Subscription};
use api::conditions::{self, Verdict};
use api::known::condition;
use api::reason::Reason;
use api::{Condition, Time};
use serde_json::{Map, Value, json};

use crate::descriptions::Report;
use crate::overrides::Finding;
use crate::render::feed_covers;

/// Details (feeds times clusters) that a status shows at most; an object must stay below what a store takes (about 1.5 MB).
/// Above it, the clusters that are not well are shown first.
pub const DETAILS_MAX: usize = 4000;

/// What one bound cluster says.
#[derive(Debug, Clone, Default)]
pub struct ClusterSeen<'a> {
    /// Id of the cluster.
    pub id: &'a str,
    /// Name of the cluster.
    pub name: &'a str,
    /// Status of each object in the cluster.
    pub objects: &'a [ManifestStatus],
    /// Phase of each release, by namespace and name of its HelmChart.
    pub releases: BTreeMap<(&'a str, &'a str), &'a str>,
    /// Phase and reason of a Description that failed.
    pub failed: Option<&'a str>,
    /// What the turn over its Base found.
    pub report: Option<&'a Report>,
    /// Why a chart is not rendered for its branch, with the chart's name.
    pub unrendered: Option<(String, String)>,
}

/// The status of all feeds, in the order of the Subscription, and how many clusters have every feed.
#[must_use]
pub fn statuses(feeds: &[Feed], clusters: &[ClusterSeen<'_>]) -> (Vec<AggregatedStatus>, i32) {
    let mut complete = vec![true; clusters.len()];
    let mut out = Vec::with_capacity(feeds.len());
    if clusters.is_empty() {
        return (Vec::new(), 0);
    }
    for (at, feed) in feeds.iter().enumerate() {
        let mut details: Vec<FeedStatusPerCluster> = clusters
            .iter()
            .zip(&mut complete)
            .map(|(cluster, complete)| {
                let status = feed_status(feed, at, cluster);
                *complete &= status.available;
                FeedStatusPerCluster { cluster_id: cluster.id.to_owned(), cluster_name: cluster.name.to_owned(), status }
            })
            .collect();
        let feed_status_summary = sum(&details);
        if details.len() * feeds.len() > DETAILS_MAX {
            let most = (DETAILS_MAX / feeds.len()).max(1);
            details.sort_by_key(|detail| works(&detail.status));
            details.truncate(most);
            details.sort_by(|a, b| a.cluster_name.cmp(&b.cluster_name));
        }
        out.push(AggregatedStatus { feed: feed.clone(), feed_status_summary, feed_status_details: details });
    }
    (out, i32::try_from(complete.iter().filter(|c| **c).count()).unwrap_or(i32::MAX))
}

/// Status of the feed in the place `at` of its Subscription. Clusters report in the order of the feeds, so that is where it is looked for first.
fn feed_status(feed: &Feed, at: usize, cluster: &ClusterSeen<'_>) -> FeedStatus {
    if feed.is_helm_chart() {
        let available = cluster.releases.get(&(feed.namespace.as_str(), feed.name.as_str())).is_some_and(|phase| *phase == "deployed");
        return FeedStatus { available, replica_status: ReplicaStatus::default() };
    }
    let of_feed = |status: &&ManifestStatus| feed_covers(feed, &status.feed);
    match cluster.objects.get(at).filter(of_feed).or_else(|| cluster.objects.iter().find(of_feed)) {
        None => FeedStatus::default(),
        Some(status) => FeedStatus { available: true, replica_status: replicas(feed, &status.observed_status) },
    }
}

/// The counts of a workload, whatever version it was served in.
fn replicas(feed: &Feed, status: &Value) -> ReplicaStatus {
    let group = feed.api_version.split_once('/').map_or("", |(group, _)| group);
    let read = || serde_json::from_value::<ReplicaStatus>(numbers(status)).unwrap_or_default();
    match (group, feed.kind.as_str()) {
        ("apps" | "extensions", "Deployment") => ReplicaStatus { current_replicas: 0, ..read() },
        ("apps" | "extensions", "ReplicaSet") => read(),
        ("apps", "StatefulSet") => ReplicaStatus { unavailable_replicas: 0, ..read() },
        ("batch", "Job") => {
            let all = read();
            ReplicaStatus { active: all.active, succeeded: all.succeeded, failed: all.failed, ..ReplicaStatus::default() }
        }
        ("apps" | "extensions", "DaemonSet") => {
            let count = |field: &str| status.get(field).and_then(Value::as_i64).and_then(|n| i32::try_from(n).ok()).unwrap_or(0);
            ReplicaStatus {
                observed_generation: status.get("observedGeneration").and_then(Value::as_i64).unwrap_or(0),
                replicas: count("desiredNumberScheduled"),
                updated_replicas: count("updatedNumberScheduled"),
                current_replicas: count("currentNumberScheduled"),
                ready_replicas: count("numberReady"),
                available_replicas: count("numberAvailable"),
                unavailable_replicas: count("numberUnavailable"),
                ..ReplicaStatus::default()
            }
        }
        _ => ReplicaStatus::default(),
    }
}

/// Only the numbers of a status: a text where a count should be must not lose the other counts.
fn numbers(status: &Value) -> Value {
    let fields: Map<String, Value> =
        status.as_object().into_iter().flatten().filter(|(_, value)| value.is_i64()).map(|(k, v)| (k.clone(), v.clone())).collect();
    Value::Object(fields)
}

fn sum(details: &[FeedStatusPerCluster]) -> FeedStatus {
    let mut out = FeedStatus { available: !details.is_empty(), replica_status: ReplicaStatus::default() };
    for detail in details {
        out.available &= detail.status.available;
        let (sum, one) = (&mut out.replica_status, &detail.status.replica_status);
        sum.observed_generation = sum.observed_generation.max(one.observed_generation);
        for (into, from) in [
            (&mut sum.replicas, one.replicas),
            (&mut sum.updated_replicas, one.updated_replicas),
            (&mut sum.current_replicas, one.current_replicas),
            (&mut sum.ready_replicas, one.ready_replicas),
            (&mut sum.available_replicas, one.available_replicas),
            (&mut sum.unavailable_replicas, one.unavailable_replicas),
            (&mut sum.active, one.active),
            (&mut sum.succeeded, one.succeeded),
            (&mut sum.failed, one.failed),
        ] {
            *into = into.saturating_add(from);
        }
    }
    out
}

/// Whether a feed is in place and all its replicas are ready.
fn works(status: &FeedStatus) -> bool {
    let counts = &status.replica_status;
    status.available && counts.unavailable_replicas == 0 && counts.failed == 0 && counts.ready_replicas >= counts.replicas
}

/// The conditions that the deployer answers for, put into `have` (the scheduler's stay as they are).
pub fn set_conditions(
    have: &mut Vec<Condition>,
    subscription: &Subscription,
    statuses: &[AggregatedStatus],
    clusters: &[ClusterSeen<'_>],
    absent: &[String],
    now: &Time,
) {
    let generation = subscription.metadata.generation;
    let (verdict, reason, message) = rendered(clusters, absent);
    conditions::set(have, condition::RENDERED, verdict, reason.as_str(), &message, generation, now);
    let (verdict, reason, message) = overrides(clusters);
    conditions::set(have, condition::OVERRIDES_APPLIED, verdict, reason.as_str(), &message, generation, now);
    let (verdict, reason, message) = available(statuses, clusters);
    conditions::set(have, condition::AVAILABLE, verdict, reason.as_str(), &message, generation, now);
}

fn rendered(clusters: &[ClusterSeen<'_>], absent: &[String]) -> (Verdict, Reason, String) {
    let names = |pick: &dyn Fn(&Report) -> bool| -> Vec<&str> {
        clusters.iter().filter(|c| c.report.is_some_and(pick)).map(|c| c.name).collect()
    };
    if let Some(fault) = clusters.iter().find_map(|c| c.report.and_then(|r| r.fault.as_ref())) {
        let where_ = names(&|report| report.fault.is_some());
        return (Verdict::False, Reason::FailedApplyingOverrides, format!("{fault}; in {}", some_of(&where_)));
    }
    if let Some((chart, why)) = clusters.iter().find_map(|c| c.unrendered.as_ref()) {
        let where_: Vec<&str> = clusters.iter().filter(|c| c.unrendered.is_some()).map(|c| c.name).collect();
        return (Verdict::False, Reason::HelmReleaseFailure, format!("chart {chart}: {why}; in {}, whose branches stay as they are", some_of(&where_)));
    }
    let mut waiting: BTreeMap<(Reason, &str), usize> = BTreeMap::new();
    for cluster in clusters {
        for (reason, message) in cluster.report.iter().flat_map(|report| &report.waiting) {
            *waiting.entry((*reason, message)).or_default() += 1;
        }
    }
    if let Some(((reason, _), _)) = waiting.first_key_value() {
        let texts: Vec<&str> = waiting.keys().map(|(_, message)| *message).collect();
        return (Verdict::False, *reason, some_of_long(&texts));
    }
    if !absent.is_empty() {
        let names: Vec<&str> = absent.iter().map(String::as_str).collect();
        return (Verdict::False, Reason::ManagedClusterNotFound, format!("bound clusters that do not exist: {}", some_of(&names)));
    }
    let unknown = clusters.iter().filter(|c| c.report.is_none()).count();
    if unknown > 0 {
        return (Verdict::Unknown, Reason::Progressing, format!("{unknown} of {} clusters are being rendered", clusters.len()));
    }
    (Verdict::True, Reason::Succeeded, format!("rendered for {} clusters", clusters.len()))
}

fn overrides(clusters: &[ClusterSeen<'_>]) -> (Verdict, Reason, String) {
    if let Some(fault) = clusters.iter().find_map(|c| c.report.and_then(|r| r.fault.as_ref())) {
        return (Verdict::False, Reason::FailedApplyingOverrides, fault.to_string());
    }
    let mut found: BTreeMap<&Finding, Vec<&str>> = BTreeMap::new();
    for cluster in clusters {
        for finding in cluster.report.iter().flat_map(|report| &report.findings) {
            found.entry(finding).or_default().push(cluster.name);
        }
    }
    if found.is_empty() {
        return (Verdict::True, Reason::Succeeded, "every override had an effect".to_owned());
    }
    let texts: Vec<String> = found
        .iter()
        .map(|(finding, names)| {
            format!("override {:?} of {} matched nothing in {} ({}) for {}", finding.step, finding.by, finding.target, finding.missing, some_of(names))
        })
        .collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    (Verdict::False, Reason::OverrideMatchedNothing, some_of_long(&texts))
}

fn available(statuses: &[AggregatedStatus], clusters: &[ClusterSeen<'_>]) -> (Verdict, Reason, String) {
    if clusters.is_empty() {
        return (Verdict::False, Reason::NoFeasibleCluster, "bound to no cluster".to_owned());
    }
    if let Some(cluster) = clusters.iter().find(|cluster| cluster.failed.is_some()) {
        let failed = clusters.iter().filter(|cluster| cluster.failed.is_some()).count();
        let why = cluster.failed.unwrap_or_default();
        let others = if failed > 1 { format!(" (and in {} more)", failed - 1) } else { String::new() };
        return (Verdict::False, Reason::ApplyFailed, format!("{}{others}: {why}", cluster.name));
    }
    for status in statuses {
        let bad: Vec<&str> = status.feed_status_details.iter().filter(|d| !works(&d.status)).map(|d| d.cluster_name.as_str()).collect();
        if !works(&status.feed_status_summary) {
            let counts = &status.feed_status_summary.replica_status;
            let what = if status.feed_status_summary.available {
                format!("{} of {} replicas ready", counts.ready_replicas, counts.replicas)
            } else {
                "not everywhere yet".to_owned()
            };
            let feed = format!("{} {}", status.feed.kind, api::object::key(&status.feed.namespace, &status.feed.name));
            return (Verdict::False, Reason::Progressing, format!("{feed}: {what}; waits for {}", some_of(&bad)));
        }
    }
    (Verdict::True, Reason::Healthy, format!("in place in {} clusters", clusters.len()))
}

fn some_of(names: &[&str]) -> String {
    let mut text = names.iter().take(5).copied().collect::<Vec<_>>().join(", ");
    if names.len() > 5 {
        text.push_str(&format!(" and {} more", names.len() - 5));
    }
    text
}

fn some_of_long(texts: &[&str]) -> String {
    let mut text = texts.iter().take(10).copied().collect::<Vec<_>>().join("; ");
    if texts.len() > 10 {
        text.push_str(&format!("; and {} more", texts.len() - 10));
    }
    text
}

/// The merge patch of the status that brings it to this; `None` when it is so already.
#[must_use]
pub fn patch(subscription: &Subscription, statuses: &[AggregatedStatus], completed: i32, conditions: &[Condition]) -> Option<Value> {
    let now = subscription.status.clone().unwrap_or_default();
    let mut out = Map::new();
    if now.aggregated_statuses != statuses {
        out.insert("aggregatedStatuses".to_owned(), if statuses.is_empty() { Value::Null } else { json!(statuses) });
    }
    if now.completed_releases != completed {
        out.insert("completedReleases".to_owned(), json!(completed));
    }
    if now.conditions != conditions {
        out.insert("conditions".to_owned(), json!(conditions));
    }
    (!out.is_empty()).then(|| json!({"status": out}))
}

#[cfg(test)]
mod tests;
