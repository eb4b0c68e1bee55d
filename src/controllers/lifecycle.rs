//! Watches over clusters: who is silent becomes Unknown and tainted, who is new waits for its initialisation.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::Time;
use api::apps::{Base, Description, DescriptionPhase};
use api::clusters::ManagedCluster;
use api::known::{annotation, condition, label, manager};
use cluster::Target;
use engine::{Cache, CancellationToken, EventKind, Key, Next, Queue, Regarding, Settled, Tasks, TurnError, turn, work};
use jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use parking_lot::Mutex;
use plan::lifecycle::{InitBase, Plan, Seen, decide, status};
use serde_json::{Value, json};

use crate::registration::Context;

const REASON: &str = "LifecycleFailed";

/// Settings.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Whether new clusters are initialised before they are used (gate ClusterInit).
    pub cluster_init: bool,
    /// Clusters looked at at once.
    pub workers: usize,
}

struct Lifecycle {
    options: Options,
    context: Context,
    clusters: Cache<ManagedCluster>,
    bases: Cache<Base>,
    descriptions: Cache<Description>,
    sightings: Mutex<BTreeMap<Key, Sighting>>,
}

/// The latest report of a cluster, and when it was seen here.
struct Sighting {
    uid: Option<String>,
    reported: Option<Time>,
    seen_at: Option<Timestamp>,
}

/// Watches until shutdown.
pub async fn run(context: Context, options: Options, shutdown: CancellationToken) {
    let tasks = Tasks::new(&shutdown);
    let client = context.client.clone();
    let clusters: Cache<ManagedCluster> = Cache::new();
    let bases = Cache::<Base>::builder()
        .keep(|base| {
            base.metadata.managed_fields = None;
            base.spec.feeds.clear();
            true
        })
        .build();
    let descriptions = Cache::<Description>::builder()
        .keep(|description| {
            // Only the phase is looked at.
            description.metadata.managed_fields = None;
            description.spec = api::apps::DescriptionSpec::default();
            if let Some(status) = &mut description.status {
                status.manifest_statuses.clear();
            }
            true
        })
        .build();
    let queue: Queue<Key> = Queue::with(context.clock.clone(), engine::Backoff::default());
    {
        let queue = queue.clone();
        clusters.on_change(move |change| queue.add(change.key.clone()));
    }
    if options.cluster_init {
        let wake = |queue: &Queue<Key>, clusters: &Cache<ManagedCluster>, namespace: &str| {
            queue.add_all(clusters.in_namespace(namespace).iter().map(|c| Key::of(c.as_ref())));
        };
        let (q, c) = (queue.clone(), clusters.clone());
        bases.on_change(move |change| wake(&q, &c, &change.key.namespace));
        let (q, c) = (queue.clone(), clusters.clone());
        descriptions.on_change(move |change| {
            if change.touches(|d| d.status.as_ref().and_then(|s| s.phase)) {
                wake(&q, &c, &change.key.namespace);
            }
        });
        bases.follow("bases", client.clone(), Target::of::<Base>(""), &tasks);
        descriptions.follow("descriptions", client.clone(), Target::of::<Description>(""), &tasks);
        bases.synced().await;
        descriptions.synced().await;
    }
    clusters.follow("managedclusters", client.clone(), Target::of::<ManagedCluster>(""), &tasks);
    clusters.synced().await;
    let workers = options.workers.max(1);
    let metrics = context.metrics.clone();
    let controller = Arc::new(Lifecycle { options, context, clusters, bases, descriptions, sightings: Mutex::default() });
    work(queue, workers, shutdown.clone(), move |key| {
        let (controller, metrics) = (controller.clone(), metrics.clone());
        async move {
            let ended = controller.turn(&key).await;
            turn::conclude("lifecycle", &key, ended.as_ref().map(Clone::clone), &metrics)
        }
    })
    .await;
    tasks.stop(Duration::from_secs(5)).await;
}

impl Lifecycle {
    async fn turn(&self, key: &Key) -> Result<Settled, TurnError> {
        let Some(cluster) = self.clusters.get_key(key) else {
            self.sightings.lock().remove(key);
            return Ok(Settled::QUIET);
        };
        if cluster.metadata.deletion_timestamp.is_some() {
            return Ok(Settled::QUIET);
        }
        let now = self.context.clock.now();
        let seen_at = self.seen_at(key, &cluster, now);
        let plan = decide(&Seen { cluster: &cluster, now, seen_at, init_enabled: self.options.cluster_init, init_base: self.init_base(&cluster) });
        let mut changed = self.write_spec(&cluster, &plan).await?;
        changed |= self.write_status(&cluster, &plan).await?;
        let next = plan.next.map_or(Next::Done, |at| Next::After(until(now, at)));
        Ok(Settled { next, changed })
    }

    /// When the latest report was seen. A cluster that is already known to be silent at our start stays so until it reports.
    fn seen_at(&self, key: &Key, cluster: &ManagedCluster, now: Timestamp) -> Option<Timestamp> {
        let reported = status(cluster).last_observed_time.clone();
        let uid = cluster.metadata.uid.clone();
        let mut sightings = self.sightings.lock();
        if let Some(known) = sightings.get(key)
            && known.reported == reported
            && known.uid == uid
        {
            return known.seen_at;
        }
        let first = !sightings.contains_key(key);
        let silent = api::conditions::find(&status(cluster).conditions, condition::READY)
            .is_some_and(|c| [plan::lifecycle::STATUS_UNKNOWN, plan::lifecycle::NEVER_UPDATED].contains(&c.reason.as_str()));
        let seen_at = (!(first && silent)).then_some(now);
        sightings.insert(key.clone(), Sighting { uid, reported, seen_at });
        seen_at
    }

    fn init_base(&self, cluster: &ManagedCluster) -> Option<InitBase> {
        let namespace = cluster.metadata.namespace.as_deref().unwrap_or_default();
        let said = |meta: &api::ObjectMeta, key: &str| meta.annotations.as_ref().and_then(|a| a.get(key)).cloned();
        let name = cluster.spec.cluster_init_base_name.clone().or_else(|| said(&cluster.metadata, annotation::CLUSTER_INIT_BASE)).or_else(|| {
            self.bases
                .in_namespace(namespace)
                .iter()
                .filter(|b| said(&b.metadata, annotation::IS_DEFAULT_CLUSTER_INIT).as_deref() == Some("true"))
                // The newest; by name among those of one instant.
                .max_by_key(|b| (b.metadata.creation_timestamp.as_ref().map(|t| t.0), b.metadata.name.clone()))
                .and_then(|b| b.metadata.name.clone())
        })?;
        let base = self.bases.get(namespace, &name)?;
        let uid = base.metadata.uid.as_deref().unwrap_or_default();
        let of_base = |d: &Description| d.metadata.labels.as_ref().and_then(|l| l.get(label::CONFIG_UID)).map(String::as_str) == Some(uid);
        let descriptions: Vec<_> = self.descriptions.in_namespace(namespace).into_iter().filter(|d| of_base(d)).collect();
        let done = !descriptions.is_empty()
            && descriptions.iter().all(|d| d.status.as_ref().and_then(|s| s.phase) == Some(DescriptionPhase::Success));
        Some(InitBase { name, done })
    }

    async fn write_spec(&self, cluster: &ManagedCluster, plan: &Plan) -> Result<bool, TurnError> {
        let mut spec = serde_json::Map::new();
        if let Some(taints) = &plan.taints {
            spec.insert("taints".into(), json!(taints));
        }
        if let Some(base) = &plan.init_base {
            spec.insert("clusterInitBaseName".into(), json!(base));
        }
        if spec.is_empty() {
            return Ok(false);
        }
        // Taints are one list with those of people: without the version, a taint set meanwhile would be lost.
        let patch = json!({"metadata": {"resourceVersion": cluster.metadata.resource_version}, "spec": spec});
        self.patch(cluster, &patch, false).await?;
        Ok(true)
    }

    async fn write_status(&self, cluster: &ManagedCluster, plan: &Plan) -> Result<bool, TurnError> {
        let mut wanted = serde_json::Map::new();
        if let Some(conditions) = &plan.conditions {
            wanted.insert("conditions".into(), json!(conditions));
        }
        if plan.silence {
            for probe in ["healthz", "livez", "readyz"] {
                wanted.insert(probe.into(), json!(false));
            }
        }
        if wanted.is_empty() {
            return Ok(false);
        }
        // Conditions are one list with the agent's: a heartbeat in between makes this fail, and the next turn looks again.
        // The spec written just before by this turn is not a foreign change, so its version comes from the cache.
        let fresh = self.clusters.get_key(&Key::of(cluster)).and_then(|c| {
            (status(&c) == status(cluster)).then(|| c.metadata.resource_version.clone())
        });
        let Some(version) = fresh else { return Ok(false) };
        let patch = json!({"metadata": {"resourceVersion": version}, "status": wanted});
        self.patch(cluster, &patch, true).await?;
        if plan.silence {
            self.context.recorder.record(Regarding::of(cluster), EventKind::Warning, "ClusterLost", "the agent stopped reporting");
        }
        Ok(true)
    }

    async fn patch(&self, cluster: &ManagedCluster, patch: &Value, to_status: bool) -> Result<(), TurnError> {
        let (namespace, name) = (cluster.metadata.namespace.as_deref().unwrap_or_default(), cluster.metadata.name.as_deref().unwrap_or_default());
        let api: Api<ManagedCluster> = Api::namespaced(self.context.client.clone(), namespace);
        let params = PatchParams { field_manager: Some(manager::CONTROLLERS.to_owned()), ..PatchParams::default() };
        let written = if to_status {
            api.patch_status(name, &params, &Patch::Merge(patch)).await
        } else {
            api.patch(name, &params, &Patch::Merge(patch)).await
        };
        self.clusters.assume(written.map_err(|e| TurnError::api(REASON, e))?);
        Ok(())
    }
}

fn until(now: Timestamp, at: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests;
