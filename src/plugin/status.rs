//! `status`: one line a cluster.

use anyhow::{Context as _, Result};
use api::apps::{Description, DescriptionPhase};
use api::clusters::ManagedCluster;
use api::known::annotation;
use kube::{Api, Client};

use crate::table;

/// The fleet as a table.
pub(crate) async fn text(client: &Client) -> Result<String> {
    let clusters: Api<ManagedCluster> = Api::all(client.clone());
    let descriptions: Api<Description> = Api::all(client.clone());
    let clusters = clusters.list(&Default::default()).await.context("list the clusters")?.items;
    let descriptions = descriptions.list(&Default::default()).await.context("list the Descriptions")?.items;
    let header = ["CLUSTER", "MODE", "READY", "BRANCH", "DELIVERED", "APPLIED", "DEPLOYED"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for cluster in clusters {
        let note = |key: &str| {
            let text = cluster.metadata.annotations.as_ref().and_then(|notes| notes.get(key)).cloned();
            text.unwrap_or_else(|| "<none>".to_owned())
        };
        let short = |text: String| if text.starts_with('<') { text } else { text.chars().take(10).collect() };
        let conditions = cluster.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        let ready = conditions.iter().find(|condition| condition.type_ == "Ready").map_or("Unknown", |condition| &condition.status);
        let own: Vec<&Description> = descriptions.iter().filter(|d| d.metadata.namespace == cluster.metadata.namespace).collect();
        let done = own.iter().filter(|d| d.status.as_ref().is_some_and(|s| s.phase == Some(DescriptionPhase::Success))).count();
        rows.push(vec![
            cluster.metadata.name.clone().unwrap_or_default(),
            format!("{:?}", cluster.spec.sync_mode),
            ready.to_owned(),
            note(annotation::DELIVERY_BRANCH),
            short(note(annotation::DELIVERY_COMMIT)),
            short(note(annotation::APPLIED_COMMIT)),
            format!("{done}/{}", own.len()),
        ]);
    }
    Ok(table(&rows))
}
