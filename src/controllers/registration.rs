//! Lets clusters join: answers ClusterRegistrationRequests, makes what a joining cluster needs, approves its certificates.
//!
//! Every step can be done twice, by two controllers at once, after a crash in the middle: namespaces and ManagedClusters are
//! claimed by *create*, everything else is applied, and the answer is written last.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::clusters::{ClusterRegistrationRequest, ClusterRegistrationRequestStatus, ManagedCluster, result};
use api::known::{annotation, label, manager};
use cluster::dynamic::{ApplyAs, Dynamic};
use cluster::{Target, Trouble, trouble};
use engine::{Cache, CancellationToken, Class, Clock, EventKind, Key, Next, Queue, Recorder, Regarding, Registry, Settled, Tasks, TurnError, turn, work};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use parking_lot::Mutex;
use plan::registration::{Decision, Grant, Policy, Seen, SeenNamespace, bootstrap_rbac, decide, denied, wanted_name, wanted_namespace};
use serde_json::{Value, json};

mod signing;

/// Settings.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Who may join without a person looking.
    pub policy: Policy,
    /// CA of the parent as children see it, PEM; without it, the one that Kubernetes publishes (`kube-root-ca.crt`).
    pub ca_pem: Option<Vec<u8>>,
    /// Requests answered at once.
    pub workers: usize,
    /// Whether to see to the RBAC of bootstrap credentials (on by default on an embedded parent).
    pub ensure_bootstrap_rbac: bool,
}

/// What the controllers of this room share.
#[derive(Clone)]
pub struct Context {
    /// The parent.
    pub client: Client,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Events.
    pub recorder: Recorder,
    /// Counters.
    pub metrics: Registry,
}

const REASON: &str = "RegistrationFailed";

struct Registration {
    options: Options,
    context: Context,
    dynamic: Dynamic,
    discovery: cluster::Discovery,
    requests: Cache<ClusterRegistrationRequest>,
    clusters: Cache<ManagedCluster>,
    namespaces: Cache<Namespace>,
    /// Names given to clusters whose ManagedCluster the cache does not show yet.
    reserved: Mutex<BTreeMap<String, String>>,
}

/// Answers requests until shutdown.
pub async fn run(context: Context, options: Options, shutdown: CancellationToken) {
    let tasks = Tasks::new(&shutdown);
    let client = context.client.clone();
    let requests: Cache<ClusterRegistrationRequest> = Cache::new();
    let clusters = Cache::<ManagedCluster>::builder()
        .index("id", |c| vec![c.spec.cluster_id.clone()])
        .index("name", |c| c.metadata.name.clone().into_iter().collect())
        .build();
    let namespaces = Cache::<Namespace>::builder()
        .index("id", |n| n.metadata.labels.as_ref().and_then(|l| l.get(label::CLUSTER_ID)).cloned().into_iter().collect())
        .build();
    let queue: Queue<Key> = Queue::with(context.clock.clone(), engine::Backoff::default());
    {
        let queue = queue.clone();
        requests.on_change(move |change| {
            // Our own answers need no answer.
            if change.touches(|r| (r.spec.clone(), r.metadata.annotations.clone(), r.status.as_ref().map(|s| s.result.clone()))) {
                queue.add(change.key.clone());
            }
        });
    }
    {
        let (queue, requests) = (queue.clone(), requests.clone());
        clusters.on_change(move |change| {
            if change.new.is_none() {
                // A name or an identity became free, or a cluster that joined lost its ManagedCluster.
                queue.add_all(requests.list().iter().map(|r| Key::of(r.as_ref())));
            }
        });
    }
    if options.ensure_bootstrap_rbac {
        let client = client.clone();
        tasks.spawn_until_stopped("bootstrap-rbac", async move { ensure_bootstrap_rbac(client).await });
    }
    namespaces.follow("namespaces", client.clone(), Target::of::<Namespace>("").labels(label::CLUSTER_ID), &tasks);
    clusters.follow("managedclusters", client.clone(), Target::of::<ManagedCluster>(""), &tasks);
    namespaces.synced().await;
    clusters.synced().await;
    requests.follow("registrationrequests", client.clone(), Target::of::<ClusterRegistrationRequest>(""), &tasks);
    signing::start(&context, &clusters, &tasks);
    let workers = options.workers.max(1);
    let controller = Arc::new(Registration {
        options,
        dynamic: Dynamic::new(client.clone()),
        discovery: cluster::Discovery::new(client),
        context,
        requests,
        clusters,
        namespaces,
        reserved: Mutex::new(BTreeMap::new()),
    });
    let metrics = controller.context.metrics.clone();
    work(queue, workers, shutdown.clone(), move |key| {
        let (controller, metrics) = (controller.clone(), metrics.clone());
        async move {
            let ended = controller.turn(&key).await;
            turn::conclude("registration", &key, ended.as_ref().map(Clone::clone), &metrics)
        }
    })
    .await;
    tasks.stop(Duration::from_secs(5)).await;
}

/// Tries until it is done: the API server may still be coming up.
async fn ensure_bootstrap_rbac(client: Client) {
    let dynamic = Dynamic::new(client);
    let mut wait = Duration::from_millis(100);
    for object in bootstrap_rbac() {
        let Some(resource) = cluster::resource::built_in("rbac.authorization.k8s.io/v1", object["kind"].as_str().unwrap_or_default()) else { continue };
        let how = ApplyAs { manager: manager::CONTROLLERS, force: true, dry_run: false };
        while let Err(error) = dynamic.apply(&resource, &object, how).await {
            tracing::debug!(error = cluster::error::message(&error), "cannot apply the RBAC of bootstrap credentials yet");
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(Duration::from_secs(30));
        }
    }
}

impl Registration {
    async fn turn(&self, key: &Key) -> Result<Settled, TurnError> {
        let Some(request) = self.requests.get_key(key) else { return Ok(Settled::QUIET) };
        if request.metadata.deletion_timestamp.is_some() {
            return Ok(Settled::QUIET);
        }
        let id = request.spec.cluster_id.clone();
        let name = wanted_name(&request);
        let by_id = self.clusters.by("id", &id);
        let by_name = self.clusters.by("name", &name);
        let namespaces = self.namespaces_for(&request).await?;
        let reserved_by = self.reserve(&name, &id, by_id.is_empty());
        let decision = decide(&Seen {
            request: &request,
            clusters: by_id.iter().chain(&by_name).map(AsRef::as_ref).collect(),
            namespaces,
            reserved_by,
            policy: self.options.policy,
        });
        match decision {
            Decision::Settled => Ok(Settled::QUIET),
            Decision::Waiting(why) => {
                self.tell(&request, EventKind::Normal, "RegistrationWaiting", why);
                Ok(Settled::QUIET)
            }
            Decision::Denied(why) => {
                self.tell(&request, EventKind::Warning, "RegistrationDenied", why.clone());
                let changed = self.answer(&request, denied(&why)).await?;
                Ok(Settled { next: Next::Done, changed })
            }
            Decision::Join(grant) => self.join(&request, &grant).await,
        }
    }

    /// Keeps a name for a cluster until its ManagedCluster shows; returns the other cluster that has it.
    fn reserve(&self, name: &str, id: &str, is_new: bool) -> Option<String> {
        let mut reserved = self.reserved.lock();
        if !is_new {
            reserved.remove(name);
            return None;
        }
        // A reservation ends when the cluster it was for is there, or its request is gone.
        if let Some(holder) = reserved.get(name)
            && holder != id
            && self.requests.get("", &api::names::registration_request(holder)).is_some_and(|r| r.status.as_ref().is_none_or(|s| s.result != result::DENIED))
        {
            return Some(holder.clone());
        }
        reserved.insert(name.to_owned(), id.to_owned());
        None
    }

    async fn namespaces_for(&self, request: &ClusterRegistrationRequest) -> Result<Vec<SeenNamespace>, TurnError> {
        let seen = |n: &Namespace| SeenNamespace {
            name: n.metadata.name.clone().unwrap_or_default(),
            labels: n.metadata.labels.clone().unwrap_or_default(),
            terminating: n.metadata.deletion_timestamp.is_some(),
        };
        let mut found: Vec<SeenNamespace> = self.namespaces.by("id", &request.spec.cluster_id).iter().map(|n| seen(n)).collect();
        let wanted = wanted_namespace(request);
        if found.iter().all(|n| n.name != wanted) {
            let api: Api<Namespace> = Api::all(self.context.client.clone());
            if let Some(existing) = api.get_opt(&wanted).await.map_err(|e| TurnError::api(REASON, e))? {
                found.push(seen(&existing));
            }
        }
        Ok(found)
    }

    async fn join(&self, request: &ClusterRegistrationRequest, grant: &Grant) -> Result<Settled, TurnError> {
        if let Some(namespace) = &grant.make_namespace {
            self.claim(namespace).await?;
        }
        if let Some(made) = &grant.make_cluster {
            self.claim(made).await?;
        }
        if let Some(patch) = &grant.mend_cluster {
            let api: Api<ManagedCluster> = Api::namespaced(self.context.client.clone(), &grant.namespace);
            api.patch(&grant.cluster_name, &PatchParams::default(), &Patch::Merge(patch)).await.map_err(|e| TurnError::api(REASON, e))?;
        }
        for object in &grant.objects {
            let (api_version, kind) = (object["apiVersion"].as_str().unwrap_or_default(), object["kind"].as_str().unwrap_or_default());
            let resource = self.discovery.resolve(api_version, kind).await.map_err(|e| TurnError::new(REASON, Class::Again, e))?;
            let how = ApplyAs { manager: manager::CONTROLLERS, force: true, dry_run: false };
            self.dynamic.apply(&resource, object, how).await.map_err(|e| TurnError::api(REASON, e))?;
        }
        let mut status = ClusterRegistrationRequestStatus {
            result: result::APPROVED.to_owned(),
            dedicated_namespace: grant.namespace.clone(),
            managed_cluster_name: grant.cluster_name.clone(),
            ..ClusterRegistrationRequestStatus::default()
        };
        match &grant.service_account {
            Some(account) => {
                let Some((token, ca)) = self.token(&grant.namespace, account).await? else {
                    // The token controller has not filled the Secret yet.
                    return Ok(Settled { next: Next::After(Duration::from_millis(100)), changed: true });
                };
                status.dedicated_token = token;
                status.ca_certificate = self.options.ca_pem.clone().map(api::Bytes).unwrap_or(ca);
            }
            None => {
                let ca = match &self.options.ca_pem {
                    Some(ca) => Some(ca.clone()),
                    None => self.published_ca().await?,
                };
                if ca.is_none() && self.is_young(request) {
                    // Kubernetes publishes it a moment after a parent began; without it the agent could verify nobody.
                    return Ok(Settled { next: Next::After(Duration::from_millis(500)), changed: true });
                }
                status.ca_certificate = api::Bytes(ca.unwrap_or_default());
            }
        }
        let changed = self.answer(request, status).await?;
        self.tell(request, EventKind::Normal, "RegistrationApproved", format!("cluster {} joined in namespace {}", grant.cluster_name, grant.namespace));
        Ok(Settled { next: Next::Done, changed })
    }

    /// Creates an object; that it exists already is seen by the next turn, which then decides anew.
    async fn claim(&self, object: &Value) -> Result<(), TurnError> {
        let (api_version, kind) = (object["apiVersion"].as_str().unwrap_or_default(), object["kind"].as_str().unwrap_or_default());
        let resource = self.discovery.resolve(api_version, kind).await.map_err(|e| TurnError::new(REASON, Class::Again, e))?;
        match self.dynamic.create(&resource, object, manager::CONTROLLERS).await {
            Ok(made) => {
                // Known at once: the next request for this name or namespace must see it.
                match kind {
                    "ManagedCluster" => {
                        if let Ok(made) = serde_json::from_value(made) {
                            self.clusters.assume(made);
                        }
                    }
                    _ => {
                        if let Ok(made) = serde_json::from_value(made) {
                            self.namespaces.assume(made);
                        }
                    }
                }
                Ok(())
            }
            Err(error) if trouble(&error) == Trouble::AlreadyExists => Err(TurnError::new(REASON, Class::Again, error)),
            Err(error) => Err(TurnError::api(REASON, error)),
        }
    }

    async fn token(&self, namespace: &str, account: &str) -> Result<Option<(api::Bytes, api::Bytes)>, TurnError> {
        let api: Api<Secret> = Api::namespaced(self.context.client.clone(), namespace);
        let secret = api.get(account).await.map_err(|e| TurnError::api(REASON, e))?;
        let data = secret.data.unwrap_or_default();
        let part = |key: &str| data.get(key).map(|b| api::Bytes(b.0.clone())).filter(|b| !b.is_empty());
        Ok(part("token").zip(part("ca.crt")))
    }

    async fn published_ca(&self) -> Result<Option<Vec<u8>>, TurnError> {
        let api: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::namespaced(self.context.client.clone(), "default");
        let published = api.get_opt("kube-root-ca.crt").await.map_err(|e| TurnError::api(REASON, e))?;
        Ok(published.and_then(|map| map.data?.remove("ca.crt")).map(String::into_bytes))
    }

    /// Made within the last half minute.
    fn is_young(&self, request: &ClusterRegistrationRequest) -> bool {
        let made = request.metadata.creation_timestamp.as_ref().map(|time| time.0);
        made.is_some_and(|made| self.context.clock.now().duration_since(made).as_secs() < 30)
    }

    /// Writes the status when it differs. The resource version keeps an older decision from overwriting a newer one.
    async fn answer(&self, request: &ClusterRegistrationRequest, status: ClusterRegistrationRequestStatus) -> Result<bool, TurnError> {
        if request.status.as_ref() == Some(&status) {
            return Ok(false);
        }
        let name = request.metadata.name.as_deref().unwrap_or_default();
        let mut wanted = serde_json::to_value(&status).map_err(|e| TurnError::new(REASON, Class::Bug, e))?;
        // Fields that are no longer said must go: a denied request keeps no credential.
        for field in ["dedicatedNamespace", "token", "caCertificate", "errorMessage", "managedClusterName"] {
            if wanted.get(field).is_none() {
                wanted[field] = Value::Null;
            }
        }
        let patch = json!({"metadata": {"resourceVersion": request.metadata.resource_version}, "status": wanted});
        let api: Api<ClusterRegistrationRequest> = Api::all(self.context.client.clone());
        let params = PatchParams { field_manager: Some(manager::CONTROLLERS.to_owned()), ..PatchParams::default() };
        let written = api.patch_status(name, &params, &Patch::Merge(&patch)).await.map_err(|e| TurnError::api(REASON, e))?;
        self.requests.assume(written);
        Ok(true)
    }

    fn tell(&self, request: &ClusterRegistrationRequest, kind: EventKind, reason: &'static str, message: String) {
        self.context.recorder.record(Regarding::of(request), kind, reason, message);
    }
}

/// Name of the annotation that pins a key, for callers that print hints.
pub const KEY_ANNOTATION: &str = annotation::AGENT_KEY;
