//! What the demo tells: one line for each thing that happened, a table at the end, and whether everything is healthy.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::apps::{Description, DescriptionPhase, Subscription};
use api::clusters::ManagedCluster;
use api::gitops::GitSource;
use api::known::{annotation, condition};
use cluster::Target;
use engine::{Cache, Tasks};
use kube::Client;
use serde_json::Value;
use tokio::sync::watch;
use program::exit::say;

/// The demo's view of its parent.
pub(super) struct Watching {
    sources: Cache<GitSource>,
    subscriptions: Cache<Subscription>,
    clusters: Cache<ManagedCluster>,
    descriptions: Cache<Description>,
    changed: watch::Receiver<u64>,
}

/// Follows the parent and tells what happens.
pub(super) fn start(client: &Client, tasks: &Tasks) -> Watching {
    let (bell, changed) = watch::channel(0u64);
    let bell = Arc::new(bell);
    let watching = Watching {
        sources: Cache::new(),
        subscriptions: Cache::new(),
        clusters: Cache::new(),
        descriptions: Cache::new(),
        changed,
    };
    let ring = bell.clone();
    watching.sources.on_change(move |change| {
        let revision = |source: &GitSource| source.status.as_ref().map(|s| s.last_applied_revision.clone()).unwrap_or_default();
        if change.touches(revision)
            && let Some(source) = change.new
            && !revision(source).is_empty()
        {
            say(&format!("source      {} applied {}", change.key.name, short(&revision(source))));
        }
        ring.send_modify(|count| *count += 1);
    });
    let ring = bell.clone();
    watching.subscriptions.on_change(move |change| {
        let bound = |subscription: &Subscription| subscription.status.as_ref().map(|s| s.binding_clusters.clone()).unwrap_or_default();
        if change.touches(bound)
            && let Some(subscription) = change.new
            && !bound(subscription).is_empty()
        {
            let names: Vec<String> = bound(subscription).iter().map(|name| name.rsplit('/').next().unwrap_or(name).to_owned()).collect();
            say(&format!("scheduler   {} goes to {}", change.key, names.join(", ")));
        }
        if change.touches(unrendered)
            && let Some(message) = change.new.and_then(|subscription| unrendered(subscription))
        {
            say(&format!("render      {} {message}", change.key));
        }
        ring.send_modify(|count| *count += 1);
    });
    let ring = bell.clone();
    watching.clusters.on_change(move |change| {
        if change.old.is_none() {
            say(&format!("cluster     {} joined", change.key.name));
        }
        for (key, what) in [(annotation::DELIVERY_COMMIT, "branch     "), (annotation::APPLIED_COMMIT, "agent      ")] {
            if change.touches(|cluster| note(cluster, key))
                && let Some(commit) = change.new.and_then(|cluster| note(cluster, key))
            {
                let verb = if key == annotation::DELIVERY_COMMIT { "has commit" } else { "applied" };
                say(&format!("{what} {} {verb} {}", change.key.name, short(&commit)));
            }
        }
        ring.send_modify(|count| *count += 1);
    });
    watching.descriptions.on_change(move |change| {
        let phase = |description: &Description| description.status.as_ref().and_then(|s| s.phase);
        if change.touches(phase)
            && let Some(description) = change.new
            && phase(description) == Some(DescriptionPhase::Failure)
        {
            let reason = description.status.as_ref().map(|s| s.reason.clone()).unwrap_or_default();
            say(&format!("deploy      {} failed: {reason}", change.key));
        }
        bell.send_modify(|count| *count += 1);
    });
    watching.sources.follow("sources", client.clone(), Target::of::<GitSource>(""), tasks);
    watching.subscriptions.follow("subscriptions", client.clone(), Target::of::<Subscription>(""), tasks);
    watching.clusters.follow("clusters", client.clone(), Target::of::<ManagedCluster>(""), tasks);
    watching.descriptions.follow("descriptions", client.clone(), Target::of::<Description>(""), tasks);
    watching
}

impl Watching {
    /// Completes when every cluster is in sync and everything in it healthy.
    pub(super) async fn converged(&self, clusters: usize) {
        let mut changed = self.changed.clone();
        loop {
            changed.borrow_and_update();
            if self.faults(clusters).is_empty() {
                return;
            }
            if changed.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// What is not healthy yet, in one line.
    pub(super) fn waiting_for(&self, clusters: usize) -> String {
        let mut faults = self.faults(clusters);
        let more = faults.len().saturating_sub(5);
        faults.truncate(5);
        let mut text = faults.join("; ");
        if more > 0 {
            text.push_str(&format!("; and {more} more"));
        }
        text
    }

    fn faults(&self, wanted: usize) -> Vec<String> {
        let mut faults = Vec::new();
        let clusters = self.clusters.list();
        if clusters.len() < wanted {
            faults.push(format!("{} of {wanted} clusters have joined", clusters.len()));
        }
        let sources = self.sources.list();
        if sources.iter().all(|s| s.status.as_ref().is_none_or(|s| s.last_applied_revision.is_empty())) {
            faults.push("no source has been applied".to_owned());
        }
        for source in &sources {
            faults.extend(not_ready(source).map(|message| format!("the source is not applied whole: {message}")));
        }
        let subscriptions = self.subscriptions.list();
        if subscriptions.is_empty() {
            faults.push("there is no Subscription".to_owned());
        }
        for subscription in &subscriptions {
            let name = subscription.metadata.name.clone().unwrap_or_default();
            let bound = subscription.status.as_ref().map_or(0, |status| status.binding_clusters.len());
            if bound == 0 {
                faults.push(format!("Subscription {name} has no cluster"));
            }
        }
        for cluster in &clusters {
            let name = cluster.metadata.name.clone().unwrap_or_default();
            let namespace = cluster.metadata.namespace.clone().unwrap_or_default();
            let delivered = note(cluster, annotation::DELIVERY_COMMIT);
            if delivered.is_none() {
                faults.push(format!("{name} has no commit in its branch"));
            } else if cluster.spec.sync_mode == api::clusters::SyncMode::Pull && note(cluster, annotation::APPLIED_COMMIT) != delivered {
                faults.push(format!("{name} has not applied {}", short(&delivered.unwrap_or_default())));
            }
            let descriptions = self.descriptions.in_namespace(&namespace);
            if descriptions.is_empty() {
                faults.push(format!("{name} has no Description"));
            }
            for description in descriptions {
                if let Some(fault) = unhealthy(&description) {
                    faults.push(format!("{name}: {fault}"));
                }
            }
        }
        faults
    }

    /// Cluster, branch, commit, objects, healthy.
    pub(super) fn table(&self) -> String {
        let mut rows = vec![["CLUSTER", "MODE", "BRANCH", "COMMIT", "OBJECTS", "HEALTHY"].map(str::to_owned)];
        for cluster in self.clusters.list() {
            let namespace = cluster.metadata.namespace.clone().unwrap_or_default();
            let (mut objects, mut healthy) = (0, 0);
            for description in self.descriptions.in_namespace(&namespace) {
                objects += description.spec.raw.len();
                healthy += findings(&description).values().filter(|finding| finding.is_none()).count();
            }
            let text = |key| note(&cluster, key).unwrap_or_else(|| "<none>".to_owned());
            rows.push([
                cluster.metadata.name.clone().unwrap_or_default(),
                format!("{:?}", cluster.spec.sync_mode),
                text(annotation::DELIVERY_BRANCH),
                short(&text(annotation::DELIVERY_COMMIT)),
                objects.to_string(),
                format!("{healthy}/{objects}"),
            ]);
        }
        table(&rows)
    }
}

/// Why a source is not ready.
fn not_ready(source: &GitSource) -> Option<String> {
    refused(&source.status.as_ref()?.conditions, condition::READY)
}

/// Why a Subscription that has clusters is not rendered.
fn unrendered(subscription: &Subscription) -> Option<String> {
    let status = subscription.status.as_ref().filter(|status| !status.binding_clusters.is_empty())?;
    refused(&status.conditions, condition::RENDERED)
}

fn refused(conditions: &[api::Condition], name: &str) -> Option<String> {
    api::conditions::find(conditions, name).filter(|one| one.status == "False").map(|one| one.message.clone())
}

/// Columns two blanks apart, as kubectl prints them.
pub(crate) fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(cells.join("   ").trim_end());
        text.push('\n');
    }
    text
}

fn note(cluster: &ManagedCluster, key: &str) -> Option<String> {
    cluster.metadata.annotations.as_ref()?.get(key).cloned()
}

/// The last ten digits that tell commits apart.
fn short(revision: &str) -> String {
    match revision.rsplit_once(':') {
        Some((name, commit)) => format!("{name}:{}", commit.chars().take(10).collect::<String>()),
        None => revision.chars().take(10).collect(),
    }
}

/// Each object of a Description with what is wrong with it.
fn findings(description: &Description) -> BTreeMap<String, Option<String>> {
    let statuses = description.status.as_ref().map(|status| status.manifest_statuses.as_slice()).unwrap_or_default();
    let mut found = BTreeMap::new();
    for raw in &description.spec.raw {
        let Ok(mut object) = serde_json::from_slice::<Value>(raw.as_slice()) else { continue };
        let id = api::object::ObjectRef::of(&object);
        let status = statuses.iter().find(|status| {
            let feed = &status.feed;
            feed.kind == id.kind && feed.api_version == id.api_version && feed.namespace == id.namespace && feed.name == id.name
        });
        let finding = match status {
            None => Some("not reported yet".to_owned()),
            Some(status) => {
                if !status.observed_status.is_null() {
                    object["status"] = status.observed_status.clone();
                }
                let finding = plan::health::assess(&object);
                (finding.health != plan::health::Health::Healthy).then(|| format!("{}: {}", finding.health.as_str(), finding.message))
            }
        };
        found.insert(format!("{} {}", id.kind, id.name), finding);
    }
    found
}

fn unhealthy(description: &Description) -> Option<String> {
    let name = description.metadata.name.clone().unwrap_or_default();
    let phase = description.status.as_ref().and_then(|status| status.phase);
    if phase != Some(DescriptionPhase::Success) {
        return Some(format!("Description {name} is {}", phase.map_or("not deployed yet".to_owned(), |phase| format!("{phase:?}"))));
    }
    findings(description).into_iter().find_map(|(object, fault)| fault.map(|fault| format!("{object}: {fault}")))
}

#[cfg(test)]
mod tests {
    use api::apps::DescriptionStatus;

    use super::*;

    #[test]
    fn what_was_not_deployed_is_not_healthy() {
        let mut description = Description::new("web-generic", Default::default());
        assert_eq!(unhealthy(&description).as_deref(), Some("Description web-generic is not deployed yet"));
        description.status = Some(DescriptionStatus { phase: Some(DescriptionPhase::Failure), ..DescriptionStatus::default() });
        assert_eq!(unhealthy(&description).as_deref(), Some("Description web-generic is Failure"));
        description.status = Some(DescriptionStatus { phase: Some(DescriptionPhase::Success), ..DescriptionStatus::default() });
        assert_eq!(unhealthy(&description), None);
    }
}
