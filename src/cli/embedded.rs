//! Servers in this process: the embedded parent with everything it needs at first start, and simulated children.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use apiserver::auth::Pki;
use apiserver::{ApiServer, Identity};
use engine::{CancellationToken, Tasks};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};
use store::Store;

/// Where a server keeps its objects.
#[derive(Debug, Clone)]
pub enum Keep {
    /// In memory: gone with the process.
    Memory,
    /// In a folder: a database and the keys.
    Folder(PathBuf),
}

/// A running API server.
#[derive(Clone)]
pub struct Server {
    /// The server.
    pub api: ApiServer,
    /// Its keys; none for a server that does not listen.
    pub pki: Option<Arc<Pki>>,
    /// URL under which it listens; empty when it does not.
    pub url: String,
}

impl Server {
    /// A client of an administrator in this process.
    pub fn admin(&self) -> Client {
        cluster::in_process(self.api.service(Identity::master("anabranch")))
    }

    /// A client in this process that proves itself by a bearer token or certificate, as from elsewhere.
    pub fn client(&self, who: Identity) -> Client {
        cluster::in_process(self.api.service(who))
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self, name: &str) -> Option<String> {
        self.pki.as_ref().map(|pki| pki.admin_kubeconfig(&self.url, name))
    }

    /// The CA of the server, PEM.
    pub fn ca(&self) -> String {
        self.pki.as_ref().map(|pki| pki.ca.pem()).unwrap_or_default()
    }
}

/// What a server runs beside its API.
#[derive(Clone)]
pub enum Role {
    /// A parent: built-in controllers and the workload controllers that Kubernetes' own would run.
    Parent,
    /// A child without nodes of its own.
    Child(simulator::Options),
}

/// Starts a server. With `listen` it serves TLS there; port 0 takes a free one.
pub async fn start(keep: &Keep, role: &Role, listen: Option<SocketAddr>, tasks: &Tasks) -> Result<Server> {
    let store = match keep {
        Keep::Memory => Store::memory(),
        Keep::Folder(dir) => {
            std::fs::create_dir_all(dir).with_context(|| format!("make the folder {}", dir.display()))?;
            let path = dir.join("objects.db");
            let opened = tokio::task::spawn_blocking({
                let path = path.clone();
                let options = if matches!(role, Role::Parent) { store::Options::durable() } else { store::Options::small() };
                move || Store::open(&path, options)
            });
            opened.await?.with_context(|| format!("open the store {}", path.display()))?
        }
    };
    let listener = match listen {
        Some(address) => Some(tokio::net::TcpListener::bind(address).await.with_context(|| format!("listen on {address}"))?),
        None => None,
    };
    let bound = listener.as_ref().map(tokio::net::TcpListener::local_addr).transpose()?;
    let pki = match (keep, bound) {
        (_, None) if !matches!(role, Role::Parent) => None,
        (Keep::Memory, _) => Some(Pki::ephemeral(&[], Timestamp::now())?),
        (Keep::Folder(dir), _) => Some(Pki::open(&dir.join("pki"), &[], Timestamp::now())?),
    }
    .map(Arc::new);
    let mut options = apiserver::Options::new(store);
    options.service_accounts = true;
    options.own_service = true;
    options.full = matches!(role, Role::Parent);
    options.shutdown = tasks.token().clone();
    if let Some(bound) = bound {
        options.advertise = (bound.ip(), bound.port());
    }
    let api = ApiServer::build(options).await;
    let mut controllers = apiserver::controllers::built_in(pki.as_ref());
    match role {
        Role::Parent => controllers.extend(simulator::workloads()),
        Role::Child(options) => controllers.extend(simulator::controllers(options.clone())),
    }
    tasks.spawn("built-in controllers", apiserver::controllers::run_local(api.clone(), controllers, tasks.token().clone()));
    let mut server = Server { api, pki, url: String::new() };
    if let (Some(listener), Some(pki)) = (listener, server.pki.clone()) {
        let guard = server.api.secure(Some(pki.clone()), Vec::new()).await;
        let tls = Arc::new(pki.server_config()?);
        let bound = listener.local_addr()?;
        server.url = format!("https://{bound}");
        let api = server.api.clone();
        tasks.spawn("listener", async move { api.serve(listener, Some(tls), guard).await });
    } else {
        server.api.secure(server.pki.clone(), Vec::new()).await;
    }
    Ok(server)
}

/// A bootstrap token as agents show it: `id.secret`.
#[derive(Clone)]
pub struct BootstrapToken(String);

impl std::fmt::Debug for BootstrapToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BootstrapToken({}.…)", self.0.split('.').next().unwrap_or_default())
    }
}

impl BootstrapToken {
    /// The text for an agent.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

/// Makes a parent ready for the product: definitions, namespaces, and the right of agents to ask to join. Repeating it changes nothing.
pub async fn prepare_parent(client: &Client) -> Result<()> {
    let dynamic = cluster::Dynamic::new(client.clone());
    let how = cluster::dynamic::ApplyAs { manager: "anabranch", force: true, dry_run: false };
    let definitions = cluster::resource::built_in("apiextensions.k8s.io/v1", "CustomResourceDefinition")
        .context("the kind CustomResourceDefinition is built in")?;
    for definition in api::crds() {
        let value = serde_json::to_value(&definition)?;
        dynamic.apply(&definitions, &value, how).await.with_context(|| format!("apply the definition {}", value["metadata"]["name"]))?;
    }
    let discovery = cluster::Discovery::new(client.clone());
    for object in fixtures() {
        let (api_version, kind) = (object["apiVersion"].as_str().unwrap_or_default(), object["kind"].as_str().unwrap_or_default());
        let resource = discovery.resolve(api_version, kind).await?;
        dynamic.apply(&resource, &object, how).await.with_context(|| format!("apply {kind} {}", object["metadata"]["name"]))?;
    }
    Ok(())
}

fn fixtures() -> Vec<Value> {
    let namespace = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let mut all = vec![namespace(api::known::namespace::SYSTEM), namespace(api::known::namespace::RESERVED)];
    all.extend(plan::registration::bootstrap_rbac());
    all
}

/// Marks bootstrap tokens of our making.
const TOKEN_LABEL: &str = "gitops.anabranch.io/bootstrap-token";

/// The bootstrap token of a parent: the one it has, or a new one.
pub async fn bootstrap_token(client: &Client) -> Result<BootstrapToken> {
    use k8s_openapi::api::core::v1::Secret;
    let secrets: kube::Api<Secret> = kube::Api::namespaced(client.clone(), "kube-system");
    let params = kube::api::ListParams::default().labels(TOKEN_LABEL);
    for secret in secrets.list(&params).await.context("list bootstrap tokens")?.items {
        let data = secret.data.unwrap_or_default();
        let text = |key: &str| data.get(key).map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned());
        if let (Some(id), Some(secret)) = (text("token-id"), text("token-secret")) {
            return Ok(BootstrapToken(format!("{id}.{secret}")));
        }
    }
    let (id, secret) = (random(6), random(16));
    secrets.create(&kube::api::PostParams::default(), &token_secret(&id, &secret)?).await.context("create a bootstrap token")?;
    Ok(BootstrapToken(format!("{id}.{secret}")))
}

fn token_secret(id: &str, secret: &str) -> Result<k8s_openapi::api::core::v1::Secret> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": format!("bootstrap-token-{id}"), "namespace": "kube-system", "labels": {TOKEN_LABEL: "true"}},
        "stringData": {
            "token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true",
            "auth-extra-groups": api::known::secret::BOOTSTRAP_GROUP, "description": "lets clusters ask to join",
        },
    }))?)
}

/// Id of the token of an installed parent: fixed, so that the right to it can be given by name.
const TOKEN_ID: &str = "anabra";

/// Sees to it that an installed parent has a bootstrap token; tried until it is there.
pub(crate) async fn ensure_bootstrap_token(client: &Client) {
    use k8s_openapi::api::core::v1::Secret;
    let secrets: kube::Api<Secret> = kube::Api::namespaced(client.clone(), "kube-system");
    let Ok(wanted) = token_secret(TOKEN_ID, &random(16)) else { return };
    let mut wait = std::time::Duration::from_millis(500);
    loop {
        let made = match secrets.get_opt(&format!("bootstrap-token-{TOKEN_ID}")).await {
            Ok(Some(_)) => return,
            Ok(None) => secrets.create(&kube::api::PostParams::default(), &wanted).await.map(|_| ()),
            Err(error) => Err(error),
        };
        match made {
            Ok(()) => return,
            Err(error) if cluster::trouble(&error) == cluster::Trouble::AlreadyExists => return,
            Err(error) => tracing::warn!(error = cluster::error::message(&error), "cannot make the bootstrap token yet"),
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(std::time::Duration::from_secs(30));
    }
}

/// Lower-case letters and digits by chance.
fn random(length: usize) -> String {
    use rand::Rng as _;
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut rng = rand::rng();
    (0..length).map(|_| char::from(LETTERS[rng.random_range(0..LETTERS.len())])).collect()
}

/// The parts that run beside an embedded parent.
pub struct Parts {
    /// The hub, mounted into the parent.
    pub hub: hub::Hub,
}

/// How the parts run.
#[derive(Clone)]
pub struct PartOptions {
    /// Where Git mirrors are kept.
    pub git: git::Git,
    /// Options of the hub.
    pub hub: hub::Options,
    /// Options of the controllers.
    pub controllers: controllers::Options,
    /// Options of the scheduler.
    pub scheduler: scheduler::Options,
    /// Whether Git sources are followed.
    pub source: bool,
}

impl PartOptions {
    /// The usual settings, over a Git pool.
    pub fn usual(git: git::Git) -> PartOptions {
        PartOptions {
            hub: hub::Options::default(),
            controllers: controllers::Options { chart_pool: Some(registry::Pool::shared()), ..controllers::Options::standard() },
            scheduler: scheduler::Options { leader_elect: false, ..scheduler::Options::new("anabranch") },
            source: true,
            git,
        }
    }
}

/// Starts hub, scheduler, controllers and source controller against a parent in this process.
pub fn start_parts(parent: &Server, options: PartOptions, tasks: &Tasks) -> Parts {
    let shutdown = tasks.token();
    let mut hub_options = options.hub.clone();
    hub_options.pusher = Some(Arc::new(Pushing { git: options.git.clone() }));
    let hub = hub::Hub::start(parent.admin(), hub_options, shutdown);
    parent.api.mount(Arc::new(hub.clone()));
    let running = hub.clone();
    tasks.spawn("hub", async move { running.run().await });
    start_inner_parts(&parent.admin(), options, tasks);
    Parts { hub }
}

/// Starts the parts that only need a client: all but the hub.
pub fn start_inner_parts(parent: &Client, options: PartOptions, tasks: &Tasks) {
    let shutdown = tasks.token();
    let scheduler = scheduler::run(parent.clone(), options.scheduler, shutdown.clone());
    tasks.spawn("scheduler", async move {
        if let Err(error) = scheduler.await {
            tracing::error!(%error, "the scheduler ended");
        }
    });
    let git = options.git.clone();
    tasks.spawn("controllers", controllers::run(parent.clone(), options.controllers, shutdown.clone()));
    if options.source {
        let source = source::run(parent.clone(), source::Options::usual(git), shutdown.clone());
        tasks.spawn("source", async move {
            if let Err(error) = source.await {
                tracing::error!(%error, "the source controller ended");
            }
        });
    }
}

/// The agent's engine at work for the hub.
pub(crate) struct Pushing {
    /// The repositories of this process.
    pub(crate) git: git::Git,
}

impl hub::push::Pusher for Pushing {
    fn run(&self, parent: Client, child: Client, cluster: engine::Key, stop: CancellationToken) -> futures::future::BoxFuture<'static, ()> {
        let nowhere = agent::Parent::at(cluster::Endpoint::default());
        let options = agent::Options::usual(nowhere, "", self.git.clone());
        Box::pin(async move { agent::push(parent, child, &cluster.namespace, &cluster.name, options, stop).await })
    }
}

/// Starts the agent of a child; its options say which parent it joins.
pub fn start_agent(child: Client, options: agent::Options, shutdown: &CancellationToken, tasks: &Tasks) {
    let run = agent::run(child, options, shutdown.clone());
    tasks.spawn("agent", async move {
        if let Err(error) = run.await {
            tracing::error!(%error, "an agent ended");
        }
    });
}

/// Writes a file that only its owner can read.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("write {}", path.display()))?;
    file.write_all(text.as_bytes())?;
    Ok(())
}
