//! Settings of an agent, and the ways to its parent.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::clusters::SyncMode;
use cluster::{Auth, ClientError, Endpoint};
use engine::CancellationToken;
use futures::future::BoxFuture;
use kube::Client;

use crate::predictor::{Predictor, PredictorOptions};

/// Makes a client of the parent with a credential, and the CA to trust when it is known by now.
pub type Connect = Arc<dyn Fn(&Auth, Option<&[u8]>) -> Result<Client, ClientError> + Send + Sync>;

/// The parent.
#[derive(Clone)]
pub struct Parent {
    /// URL of its API server; a kept credential is used only for the URL that it was made for.
    pub url: String,
    /// Ways to it.
    pub connect: Connect,
    /// CA that the user gave, PEM: it holds for every connection, whatever the parent says later.
    pub ca_pem: Option<Vec<u8>>,
    /// Nobody said whose certificates to trust: the parent introduces itself at the first meeting, with the bootstrap token.
    pub introduces: bool,
}

impl Parent {
    /// A parent behind a URL. `endpoint.auth` is not looked at: credentials come from joining.
    pub fn at(endpoint: Endpoint) -> Self {
        let url = endpoint.url.clone();
        let ca_pem = endpoint.ca_pem.clone();
        let connect: Connect = Arc::new(move |auth, ca| {
            let mut endpoint = Endpoint { auth: auth.clone(), ..endpoint.clone() };
            // A CA given by the user is never replaced by one that came over the wire.
            if endpoint.ca_pem.is_none() {
                endpoint.ca_pem = ca.map(<[u8]>::to_vec);
            }
            endpoint.client()
        });
        let introduces = ca_pem.is_none();
        Self { url, connect, ca_pem, introduces }
    }

    /// A parent in this process (or any other way to make clients).
    pub fn with(url: impl Into<String>, connect: Connect) -> Self {
        Self { url: url.into(), connect, ca_pem: None, introduces: false }
    }
}

impl fmt::Debug for Parent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Parent({})", self.url)
    }
}

/// How the cluster comes to its place in the parent.
#[derive(Clone, Debug)]
pub enum Join {
    /// It asks with a bootstrap credential (usually a token).
    Register {
        /// The bootstrap credential.
        bootstrap: Auth,
    },
    /// It has a place already, and this credential for it. For benches and tests.
    Assigned {
        /// Dedicated namespace.
        namespace: String,
        /// Name of the ManagedCluster.
        cluster_name: String,
        /// Credential.
        auth: Auth,
    },
}

/// Timing of the leader election among an agent's replicas.
#[derive(Clone, Copy, Debug)]
pub struct Lease {
    /// Others may take over when the holder was not heard for this long.
    pub duration: Duration,
    /// The holder gives up when it could not renew for this long.
    pub renew_deadline: Duration,
    /// Between two tries.
    pub retry_period: Duration,
}

impl Lease {
    /// Kubernetes' usual timing.
    pub const USUAL: Self =
        Self { duration: Duration::from_secs(15), renew_deadline: Duration::from_secs(10), retry_period: Duration::from_secs(2) };
    /// For children that have one agent only, many in a process: renewing costs next to nothing.
    pub const RELAXED: Self =
        Self { duration: Duration::from_secs(180), renew_deadline: Duration::from_secs(150), retry_period: Duration::from_secs(60) };
}

/// What a tunnel needs to run.
#[derive(Clone)]
pub struct TunnelSession {
    /// Id of the cluster.
    pub cluster_id: String,
    /// Dedicated namespace.
    pub namespace: String,
    /// Name of the ManagedCluster.
    pub cluster_name: String,
    /// URL of the parent.
    pub parent_url: String,
    /// Credential of the parent.
    pub auth: Auth,
    /// CA of the parent, PEM.
    pub ca_pem: Option<Vec<u8>>,
    /// The child, for serving what comes through the tunnel.
    pub child: Client,
    /// Where the predictor is said to be, when the parent asks it through the tunnel.
    pub predictor_address: Option<String>,
    /// The agent's own predictor, which answers at that address.
    pub predictor: Option<Arc<Predictor>>,
}

/// Keeps a tunnel to the hub. Implemented where the tunnel lives; the agent starts it once per session.
pub trait Tunnel: Send + Sync {
    /// Dials, serves and dials again until shutdown.
    fn run(&self, session: TunnelSession, shutdown: CancellationToken) -> BoxFuture<'static, ()>;
}

/// Settings of an agent.
#[derive(Clone)]
pub struct Options {
    /// The parent.
    pub parent: Parent,
    /// How the cluster comes to its place.
    pub join: Join,
    /// Wanted name; empty for one made from the cluster id.
    pub cluster_name: String,
    /// Wanted dedicated namespace; empty for one made from the cluster id.
    pub cluster_namespace: String,
    /// Type of the cluster; `StandardCluster` or `EdgeCluster`.
    pub cluster_type: String,
    /// Labels asked for.
    pub labels: BTreeMap<String, String>,
    /// Who applies.
    pub sync_mode: SyncMode,
    /// Whether the parent may apply in this cluster (gate AppPusher).
    pub app_pusher: bool,
    /// System namespace in the child.
    pub system_namespace: String,
    /// Who this replica is in the leader election.
    pub identity: String,
    /// Timing of the leader election.
    pub lease: Lease,
    /// Between two reports of the cluster's status; also the heartbeat.
    pub report_every: Duration,
    /// Between two looks at the branch when nobody told of a change; each spread by up to a quarter.
    pub poll_every: Duration,
    /// When the branch cannot be read for this long, the parent may apply instead, where `app_pusher` lets it in.
    pub give_up_after: Duration,
    /// Prefixes of node labels that are summed up on the ManagedCluster.
    pub label_prefixes: Vec<String>,
    /// Share of nodes (0 to 1) that must carry a value for it to count.
    pub label_threshold: f64,
    /// Repositories; shared by all agents of a process.
    pub git: git::Git,
    /// Charts; shared by all agents of a process.
    pub charts: registry::Pool,
    /// Settings of the apply engine.
    pub limits: cluster::apply::Limits,
    /// Keeps the tunnel; without one the cluster is not reached from the parent.
    pub tunnel: Option<Arc<dyn Tunnel>>,
    /// Who predicts the child's free capacity; without a tunnel only one that is asked directly counts.
    pub predictor: Option<PredictorOptions>,
    /// URL under which the child's API server is known, for the ManagedCluster's status.
    pub child_url: String,
    /// Address ranges when they cannot be found out: Services, Pods.
    pub cidrs: (String, String),
    /// Metrics.
    pub metrics: engine::Registry,
}

impl Options {
    /// Everything as usual, for a parent and a bootstrap token.
    pub fn usual(parent: Parent, bootstrap_token: &str, git: git::Git) -> Self {
        Self {
            parent,
            join: Join::Register { bootstrap: Auth::Token(bootstrap_token.to_owned()) },
            cluster_name: String::new(),
            cluster_namespace: String::new(),
            cluster_type: api::known::STANDARD_CLUSTER.to_owned(),
            labels: BTreeMap::new(),
            sync_mode: SyncMode::Pull,
            app_pusher: false,
            system_namespace: api::known::namespace::SYSTEM.to_owned(),
            identity: format!("anabranch-agent-{:016x}", rand::random::<u64>()),
            lease: Lease::USUAL,
            // A lost cluster is noticed after three of these.
            report_every: Duration::from_secs(30),
            // Changes are told through the ManagedCluster; this is for when telling fails.
            poll_every: Duration::from_secs(120),
            give_up_after: Duration::from_secs(60),
            label_prefixes: vec![api::known::label::NODE_PREFIX.to_owned()],
            label_threshold: 0.8,
            git,
            charts: registry::Pool::shared(),
            limits: cluster::apply::Limits::default(),
            tunnel: None,
            predictor: Some(PredictorOptions::tunnelled()),
            child_url: String::new(),
            cidrs: (String::new(), String::new()),
            metrics: engine::Registry::new(),
        }
    }

    /// The predictor, when the parent can reach it.
    pub(crate) fn reachable_predictor(&self) -> Option<&PredictorOptions> {
        self.predictor.as_ref().filter(|predictor| predictor.direct || self.tunnel.is_some())
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        if !self.cluster_name.is_empty()
            && (!api::names::is_dns_label(&self.cluster_name) || self.cluster_name.len() > api::known::CLUSTER_NAME_MAX)
        {
            return Err(format!("cluster name {:?} is not a DNS label of at most {} characters", self.cluster_name, api::known::CLUSTER_NAME_MAX));
        }
        if !self.cluster_namespace.is_empty() && !api::names::is_dns_label(&self.cluster_namespace) {
            return Err(format!("namespace {:?} is not a DNS label", self.cluster_namespace));
        }
        if self.sync_mode == SyncMode::Push && !self.app_pusher {
            return Err("sync mode Push needs AppPusher".to_owned());
        }
        if let Some((key, value)) = self.labels.iter().find(|(k, v)| !api::names::is_label_key(k) || !api::names::is_label_value(v)) {
            return Err(format!("label {key}={value} is not valid"));
        }
        if self.report_every.is_zero() || self.poll_every.is_zero() {
            return Err("intervals must not be zero".to_owned());
        }
        Ok(())
    }
}
