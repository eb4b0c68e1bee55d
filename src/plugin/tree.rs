//! `tree`: a Subscription, its clusters, their Descriptions, the objects and how they are.

use anyhow::{Context as _, Result};
use api::apps::{Description, HelmRelease, Subscription};
use api::known::label;
use api::object::ObjectRef;
use kube::api::ListParams;
use kube::{Api, Client};
use plan::health::{Health, assess};
use serde_json::Value;

/// The tree as text.
pub(crate) async fn text(client: &Client, namespace: &str, name: &str) -> Result<String> {
    let subscriptions: Api<Subscription> = Api::namespaced(client.clone(), namespace);
    let subscription = subscriptions.get(name).await.with_context(|| format!("read the Subscription {namespace}/{name}"))?;
    let uid = subscription.metadata.uid.clone().unwrap_or_default();
    let descriptions: Api<Description> = Api::all(client.clone());
    let ours = ListParams::default().labels(&format!("{}={uid}", label::SUBS_UID));
    let descriptions = descriptions.list(&ours).await.context("list the Descriptions")?.items;
    let mut out = format!("Subscription {namespace}/{name}\n");
    let bound = subscription.status.as_ref().map(|status| status.binding_clusters.as_slice()).unwrap_or_default();
    if bound.is_empty() {
        out.push_str("  no cluster is chosen\n");
    }
    for binding in bound {
        let (dedicated, cluster) = binding.split_once('/').unwrap_or((binding, binding));
        out.push_str(&format!("  {cluster}\n"));
        for description in descriptions.iter().filter(|d| d.metadata.namespace.as_deref() == Some(dedicated)) {
            let status = description.status.as_ref();
            let phase = status.and_then(|s| s.phase).map_or("not deployed yet".to_owned(), |phase| format!("{phase:?}"));
            let reason = status.map(|s| s.reason.as_str()).filter(|reason| !reason.is_empty()).map(|reason| format!(": {reason}")).unwrap_or_default();
            out.push_str(&format!("    Description {} {phase}{reason}\n", description.metadata.name.as_deref().unwrap_or_default()));
            if !description.spec.charts.is_empty() {
                let releases: Api<HelmRelease> = Api::namespaced(client.clone(), dedicated);
                for release in releases.list(&ListParams::default()).await.context("list the HelmReleases")?.items {
                    let owners = release.metadata.owner_references.iter().flatten();
                    if owners.into_iter().any(|owner| owner.kind == "Description" && Some(&owner.name) == description.metadata.name.as_ref()) {
                        out.push_str(&format!("      {}\n", released(&release)));
                    }
                }
                continue;
            }
            for raw in &description.spec.raw {
                out.push_str(&format!("      {}\n", line(description, raw.as_slice())));
            }
        }
    }
    Ok(out)
}

/// A release with its state; what it deploys is in its record in the child.
fn released(release: &HelmRelease) -> String {
    let status = release.status.clone().unwrap_or_default();
    let name = release.metadata.name.as_deref().unwrap_or_default();
    let chart = &release.spec.options.chart;
    match status.phase.as_str() {
        "" => format!("HelmRelease {name} ({chart}) not reported yet"),
        "deployed" => format!("HelmRelease {name} ({chart}) deployed, revision {}", status.version),
        phase => format!("HelmRelease {name} ({chart}) {phase}, revision {}: {}", status.version, status.description),
    }
}

/// One object with its health.
fn line(description: &Description, raw: &[u8]) -> String {
    let Ok(mut object) = serde_json::from_slice::<Value>(raw) else { return "an object that cannot be read".to_owned() };
    let id = ObjectRef::of(&object);
    let statuses = description.status.as_ref().map(|status| status.manifest_statuses.as_slice()).unwrap_or_default();
    let found = statuses.iter().find(|status| status.feed.kind == id.kind && status.feed.namespace == id.namespace && status.feed.name == id.name);
    let Some(found) = found else { return format!("{id} not reported yet") };
    if !found.observed_status.is_null() {
        object["status"] = found.observed_status.clone();
    }
    let finding = assess(&object);
    match finding.health {
        Health::Healthy => format!("{id} {}", finding.health.as_str()),
        Health::Progressing | Health::Degraded => format!("{id} {}: {}", finding.health.as_str(), finding.message),
    }
}
