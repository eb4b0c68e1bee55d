//! Hub: the end of the agents' tunnels, the proxy into children, the shadow API, the Push path.
//!
//! The hub never stores anything: what it knows comes from the parent's API, and a restart only means that agents dial
//! again. Callers are authenticated and authorised by the API server that hands it a request; the hub decides nothing
//! about who may, and everything about where a request goes.

pub mod locate;
pub mod proxy;
pub mod push;
pub mod serving;
pub mod sessions;
pub mod shadow;
pub mod sockets;
mod takeover;
#[cfg(test)]
mod takeover_tests;

mod connector;
mod credentials;
mod mount;
mod reply;

use std::sync::Arc;
use std::time::Duration;

use api::clusters::ManagedCluster;
use cluster::Target;
use engine::{Cache, CancellationToken, Tasks};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

pub use proxy::Proxy;
pub use sessions::Sessions;
pub use shadow::Shadow;

/// How a hub behaves.
#[derive(Clone)]
pub struct Options {
    /// Namespace of the parent that holds Manifests.
    pub reserved_namespace: String,
    /// Applies in children that are to be pushed to; without one the hub only leads into them.
    pub pusher: Option<Arc<dyn push::Pusher>>,
    /// Metrics.
    pub metrics: engine::Registry,
    /// When nothing was heard from an agent for this long while its tunnel is open, the hub asks for its cluster.
    pub silence: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            reserved_namespace: api::known::namespace::RESERVED.to_owned(),
            pusher: None,
            metrics: engine::Registry::new(),
            // Four of an agent's usual reports.
            silence: Duration::from_secs(120),
        }
    }
}

/// A running hub; cheap to clone. Mount it into an API server with [`apiserver::mount::Mount`].
#[derive(Clone)]
pub struct Hub {
    pub(crate) proxy: Proxy,
    pub(crate) shadow: Shadow,
    client: kube::Client,
    clusters: Cache<ManagedCluster>,
    metrics: engine::Registry,
    tasks: Tasks,
}

/// Definitions that come within this time are read together.
const GATHER: Duration = Duration::from_millis(200);
/// How long ending tunnels may take on shutdown.
const PATIENCE: Duration = Duration::from_secs(5);

impl Hub {
    /// Starts following the parent. Requests can be handed over at once.
    pub fn start(client: kube::Client, options: Options, shutdown: &CancellationToken) -> Hub {
        let tasks = Tasks::new(shutdown);
        let clusters = locate::clusters();
        let secrets = Cache::new();
        let deployers = Target::of::<Secret>("").fields(format!("metadata.name={}", credentials::DEPLOYER_SECRET));
        secrets.follow("deployer secrets", client.clone(), deployers, &tasks);
        let shadow = Shadow::new(client.clone(), &options.reserved_namespace);
        let definitions: Cache<CustomResourceDefinition> = Cache::builder()
            .keep(|definition: &mut CustomResourceDefinition| {
                // Only that one changed matters, not what is in it.
                definition.metadata.managed_fields = None;
                definition.spec.versions.clear();
                true
            })
            .build();
        let (resources, changed) = (shadow.resources().clone(), Arc::new(tokio::sync::Notify::new()));
        definitions.on_change({
            let (resources, changed) = (resources.clone(), changed.clone());
            move |_| {
                resources.expire();
                changed.notify_one();
            }
        });
        // Discovery of the parent asks what was read last: it must be there before anybody asks.
        tasks.spawn_until_stopped("shadow discovery", async move {
            loop {
                if let Err(error) = resources.discovery().await {
                    tracing::debug!(%error, "cannot read what the parent serves");
                    changed.notify_one();
                }
                changed.notified().await;
                tokio::time::sleep(GATHER).await;
            }
        });
        definitions.follow("definitions", client.clone(), Target::of::<CustomResourceDefinition>(""), &tasks);
        let proxy = Proxy::new(Sessions::counted(options.metrics.clone()), clusters.clone(), secrets, tasks.clone());
        let hub = Hub { proxy, shadow, client: client.clone(), clusters: clusters.clone(), metrics: options.metrics, tasks: tasks.clone() };
        if let Some(pusher) = options.pusher {
            let pushers = push::start(&hub, pusher);
            takeover::start(&hub, &pushers, options.silence);
        }
        // Last, so that nobody misses the first list.
        clusters.follow("managed clusters", client, Target::of::<ManagedCluster>(""), &tasks);
        hub
    }

    /// Id of the cluster that has this id or name.
    pub(crate) fn cluster_id(&self, wanted: &str) -> Option<String> {
        locate::find(&self.clusters, wanted).map(|cluster| cluster.spec.cluster_id.clone())
    }

    /// Its metrics.
    pub fn metrics(&self) -> &engine::Registry {
        &self.metrics
    }

    /// Whether the parent's clusters are known.
    pub fn ready(&self) -> bool {
        self.clusters.is_synced()
    }

    /// The proxy into children.
    pub fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    /// Waits until shutdown, then for the tunnels to end.
    pub async fn run(&self) {
        self.tasks.run_until_stopped(PATIENCE).await;
    }
}
