//! Hub: the end of the agents' tunnels, the proxy into children, the shadow API, the Push path.
//!
//! The hub never stores anything: what it knows comes from the parent's API, and a restart only means that agents dial
//! again. Callers are authenticated and authorised by the API server that hands it a request; the hub decides nothing
//! about who may, and everything about where a request goes.

pub mod locate;
pub mod proxy;
pub mod sessions;
pub mod shadow;
pub mod sockets;

mod connector;
mod credentials;
mod mount;
mod reply;

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
#[derive(Debug, Clone)]
pub struct Options {
    /// Namespace of the parent that holds Manifests.
    pub reserved_namespace: String,
    /// Whether this hub applies in children that are to be pushed to.
    pub push: bool,
    /// How long a Pull cluster's branch may stay out of sync before the hub applies in its place.
    pub take_over_after: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            reserved_namespace: api::known::namespace::RESERVED.to_owned(),
            push: true,
            take_over_after: Duration::from_secs(120),
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
    options: Options,
    tasks: Tasks,
}

/// How long ending tunnels may take on shutdown.
const PATIENCE: Duration = Duration::from_secs(5);

impl Hub {
    /// Starts following the parent. Requests can be handed over at once.
    pub fn start(client: kube::Client, options: Options, shutdown: &CancellationToken) -> Hub {
        let tasks = Tasks::new(shutdown);
        let clusters = locate::clusters();
        clusters.follow("managed clusters", client.clone(), Target::of::<ManagedCluster>(""), &tasks);
        let secrets = Cache::new();
        let deployers = Target::of::<Secret>("").fields(format!("metadata.name={}", credentials::DEPLOYER_SECRET));
        secrets.follow("deployer secrets", client.clone(), deployers, &tasks);
        let shadow = Shadow::new(client.clone(), &options.reserved_namespace, None);
        let definitions: Cache<CustomResourceDefinition> = Cache::builder()
            .keep(|definition: &mut CustomResourceDefinition| {
                // Only that one changed matters, not what is in it.
                definition.metadata.managed_fields = None;
                definition.spec.versions.clear();
                true
            })
            .build();
        let resources = shadow.resources().clone();
        definitions.on_change(move |_| resources.expire());
        definitions.follow("definitions", client.clone(), Target::of::<CustomResourceDefinition>(""), &tasks);
        let proxy = Proxy::new(Sessions::default(), clusters.clone(), secrets, tasks.clone());
        let hub = Hub { proxy, shadow, client, clusters, options, tasks };
        hub
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
