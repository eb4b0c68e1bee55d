//! Reports the cluster: collects its status and writes it to the ManagedCluster, which is also the heartbeat.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::clusters::{ManagedCluster, ManagedClusterStatus};
use api::conditions::{self, Verdict};
use api::known::{annotation, condition, manager};
use engine::Tasks;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::collect;
use crate::session::Session;

/// A probe or request of the child that takes longer counts as failed.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest list of kinds that is told; all annotations of an object together may have 256 KiB.
const KINDS_MAX: usize = 128 << 10;

/// Begins to report.
pub(crate) fn start(session: &Arc<Session>, tasks: &Tasks) {
    let session = session.clone();
    tasks.spawn_until_stopped("report", async move {
        let mut wait = Duration::from_millis(200);
        let discovery = cluster::Discovery::new(session.shared.child.clone());
        let mut compared = false;
        loop {
            let pause = match report(&session, &discovery).await {
                Ok(cluster) => {
                    if !std::mem::replace(&mut compared, true) {
                        say_what_has_no_effect(&session, &cluster);
                    }
                    wait = Duration::from_millis(200);
                    // Spread a little, so that a fleet that began together does not report together.
                    session.shared.options.report_every.mul_f64(rand::random_range(0.95..1.0))
                }
                // The controllers label a new cluster while it reports: what they wrote is read and reported upon again.
                Err(error) if cluster::trouble(&error) == cluster::Trouble::Conflict => Duration::from_millis(50),
                Err(error) => {
                    session.note(&error);
                    tracing::warn!(cluster = session.cluster_name, error = cluster::error::message(&error), "cannot report the cluster's status");
                    wait = (wait * 2).min(session.shared.options.report_every);
                    wait
                }
            };
            session.shared.clock.sleep(pause).await;
        }
    });
}

/// What the child says of itself.
struct Collected {
    status: ManagedClusterStatus,
    ready: bool,
    labels: BTreeMap<String, String>,
}

/// The parent is asked for name, mode and labels when a cluster joins for the first time; from then on what it has counts, since people
/// change it there. An option that says something else is told, or whoever set it waits for ever.
fn say_what_has_no_effect(session: &Session, cluster: &ManagedCluster) {
    let options = &session.shared.options;
    if !matches!(options.join, crate::Join::Register { .. }) {
        return;
    }
    let mut without = Vec::new();
    if !options.cluster_name.is_empty() && options.cluster_name != session.cluster_name {
        without.push(format!("name {} (it is {})", options.cluster_name, session.cluster_name));
    }
    if options.sync_mode != cluster.spec.sync_mode {
        without.push(format!("sync mode {:?} (it is {:?})", options.sync_mode, cluster.spec.sync_mode));
    }
    let has = cluster.metadata.labels.clone().unwrap_or_default();
    without.extend(options.labels.iter().filter(|(key, value)| has.get(*key) != Some(value)).map(|(key, value)| format!("label {key}={value}")));
    if !without.is_empty() {
        tracing::warn!(cluster = session.cluster_name, without_effect = without.join(", "), "the cluster had joined before: its ManagedCluster in the parent counts, change it there");
    }
}

async fn report(session: &Session, discovery: &cluster::Discovery) -> Result<ManagedCluster, kube::Error> {
    let collected = collect(session).await;
    let api: Api<ManagedCluster> = Api::namespaced(session.parent.clone(), &session.namespace);
    let cluster = api.get(&session.cluster_name).await?;
    let now = Time(session.shared.clock.now());
    let mut list = cluster.status.as_ref().map(|s| s.conditions.clone()).unwrap_or_default();
    let (verdict, reason, message) = if collected.ready {
        (Verdict::True, "ManagedClusterReady", "managed cluster is ready")
    } else {
        (Verdict::False, "ManagedClusterNotReady", "managed cluster is not ready")
    };
    conditions::set(&mut list, condition::READY, verdict, reason, message, None, &now);
    let mut status = collected.status;
    status.conditions = list;
    write(session, &api, &cluster, status).await?;
    kinds(session, &api, &cluster, discovery).await?;
    labels(session, &api, &cluster, &collected.labels).await?;
    Ok(cluster)
}

/// Tells which kinds the child serves, when that changed: charts are rendered for it in the parent.
async fn kinds(session: &Session, api: &Api<ManagedCluster>, cluster: &ManagedCluster, discovery: &cluster::Discovery) -> Result<(), kube::Error> {
    discovery.expire();
    let Ok(Ok(catalogue)) = tokio::time::timeout(PATIENCE, discovery.catalogue()).await else { return Ok(()) };
    let all: Vec<(String, &str)> = catalogue.resources().map(|r| (r.api_version(), r.kind.as_str())).collect();
    let packed = plan::rendered::pack_api_versions(all.iter().map(|(api_version, kind)| (api_version.as_str(), *kind)));
    let told = cluster.metadata.annotations.as_ref().and_then(|a| a.get(annotation::API_VERSIONS));
    // An annotation holds no more; a part would be wrong.
    if told == Some(&packed) || packed.len() > KINDS_MAX {
        return Ok(());
    }
    let params = PatchParams { field_manager: Some(manager::AGENT.to_owned()), ..PatchParams::default() };
    let patch = json!({"metadata": {"annotations": {annotation::API_VERSIONS: packed}}});
    api.patch(&session.cluster_name, &params, &Patch::Merge(&patch)).await.map(|_| ())
}

/// Writes the status. The version is checked, because the conditions are one list with those of the life cycle controller.
async fn write(session: &Session, api: &Api<ManagedCluster>, cluster: &ManagedCluster, status: ManagedClusterStatus) -> Result<(), kube::Error> {
    let mut wanted = serde_json::to_value(&status).map_err(kube::Error::SerdeError)?;
    // Fields of ours that have nothing to say any more must go.
    if let (Some(old), Some(new)) = (cluster.status.as_ref().and_then(|s| serde_json::to_value(s).ok()), wanted.as_object_mut()) {
        for key in old.as_object().into_iter().flat_map(|o| o.keys()) {
            new.entry(key.clone()).or_insert(Value::Null);
        }
        // Quantities of a resource that went away.
        for map in ["allocatable", "capacity"] {
            let gone: Vec<String> = old[map].as_object().into_iter().flat_map(|o| o.keys().cloned()).collect();
            if let Some(present) = new.get_mut(map).and_then(Value::as_object_mut) {
                for key in gone {
                    present.entry(key).or_insert(Value::Null);
                }
            }
        }
    }
    let patch = json!({"metadata": {"resourceVersion": cluster.metadata.resource_version}, "status": wanted});
    let params = PatchParams { field_manager: Some(manager::AGENT.to_owned()), ..PatchParams::default() };
    api.patch_status(&session.cluster_name, &params, &Patch::Merge(&patch)).await.map(|_| ())
}

/// Replaces the labels with our prefixes by the fresh set, when they differ.
async fn labels(session: &Session, api: &Api<ManagedCluster>, cluster: &ManagedCluster, fresh: &BTreeMap<String, String>) -> Result<(), kube::Error> {
    let prefixes = &session.shared.options.label_prefixes;
    let empty = BTreeMap::new();
    let present = cluster.metadata.labels.as_ref().unwrap_or(&empty);
    let mut changes = serde_json::Map::new();
    for key in present.keys().filter(|k| prefixes.iter().any(|p| k.starts_with(p.as_str())) && !fresh.contains_key(*k)) {
        // Labels that were asked for at joining are not sums of nodes.
        if !session.shared.options.labels.contains_key(key) {
            changes.insert(key.clone(), Value::Null);
        }
    }
    for (key, value) in fresh.iter().filter(|(k, v)| present.get(*k) != Some(v)) {
        changes.insert(key.clone(), json!(value));
    }
    if changes.is_empty() {
        return Ok(());
    }
    let params = PatchParams { field_manager: Some(manager::AGENT.to_owned()), ..PatchParams::default() };
    api.patch(&session.cluster_name, &params, &Patch::Merge(&json!({"metadata": {"labels": changes}}))).await.map(|_| ())
}

async fn probe(child: &Client, path: &str) -> bool {
    let Ok(request) = http::Request::get(path).body(Vec::new()) else { return false };
    matches!(tokio::time::timeout(PATIENCE, child.request_text(request)).await, Ok(Ok(_)))
}

async fn patiently<T>(what: &'static str, request: impl Future<Output = Result<T, kube::Error>>) -> Option<T> {
    match tokio::time::timeout(PATIENCE, request).await {
        Ok(Ok(answer)) => Some(answer),
        Ok(Err(error)) => {
            tracing::debug!(what, error = cluster::error::message(&error), "cannot collect a part of the status");
            None
        }
        Err(_) => None,
    }
}

async fn collect(session: &Session) -> Collected {
    let shared = &session.shared;
    let options = &shared.options;
    let child = &shared.child;
    let nodes: Api<Node> = Api::all(child.clone());
    let everything = ListParams::default();
    let (livez, readyz, healthz, version, nodes, cidrs) = futures::join!(
        probe(child, "/livez"),
        probe(child, "/readyz"),
        probe(child, "/healthz"),
        patiently("version", child.apiserver_version()),
        patiently("nodes", nodes.list(&everything)),
        cidrs(session),
    );
    let nodes = nodes.map(|list| list.items).unwrap_or_default();
    let (capacity, allocatable) = collect::resources(&nodes);
    let version = version.unwrap_or_default();
    let status = ManagedClusterStatus {
        last_observed_time: Some(Time(shared.clock.now())),
        k8s_version: version.git_version,
        platform: version.platform,
        agent_version: concat!("v", env!("CARGO_PKG_VERSION")).to_owned(),
        apiserver_url: options.child_url.clone(),
        healthz,
        livez,
        readyz,
        app_pusher: Some(options.app_pusher),
        use_socket: options.tunnel.is_some(),
        allocatable,
        capacity,
        cluster_cidr: cidrs.1,
        service_cidr: cidrs.0,
        node_statistics: collect::statistics(&nodes),
        predictor_enabled: options.reachable_predictor().is_some(),
        predictor_address: options.reachable_predictor().map(|predictor| cluster::predictor::with_scheme(&predictor.address)).unwrap_or_default(),
        predictor_direct_access: options.reachable_predictor().is_some_and(|predictor| predictor.direct),
        heartbeat_frequency_seconds: Some(i64::try_from(options.report_every.as_secs().max(1)).unwrap_or(i64::MAX)),
        ..ManagedClusterStatus::default()
    };
    Collected {
        status,
        ready: (livez && readyz) || healthz,
        labels: collect::common_labels(&nodes, &options.label_prefixes, options.label_threshold),
    }
}

/// Ranges of Services and Pods, from the flags of the control plane where its Pods can be seen.
async fn cidrs(session: &Session) -> (String, String) {
    let (services, pods) = &session.shared.options.cidrs;
    if !services.is_empty() && !pods.is_empty() {
        return (services.clone(), pods.clone());
    }
    let api: Api<Pod> = Api::namespaced(session.shared.child.clone(), "kube-system");
    let of = |selector: &'static str| {
        let api = api.clone();
        async move { patiently("control plane pods", api.list(&ListParams::default().labels(selector))).await.map(|l| l.items).unwrap_or_default() }
    };
    let control_plane = of("component in (kube-apiserver,kube-controller-manager)").await;
    let mut service = collect::flag(&control_plane, "--service-cluster-ip-range");
    let mut pod = collect::flag(&control_plane, "--cluster-cidr");
    if service.is_none() || pod.is_none() {
        let named = of("app.kubernetes.io/component in (kube-apiserver,kube-controller-manager)").await;
        service = service.or_else(|| collect::flag(&named, "--service-cluster-ip-range"));
        pod = pod.or_else(|| collect::flag(&named, "--cluster-cidr"));
    }
    if pod.is_none() {
        pod = collect::flag(&of("k8s-app=kube-proxy").await, "--cluster-cidr");
    }
    (service.unwrap_or_else(|| services.clone()), pod.unwrap_or_else(|| pods.clone()))
}
