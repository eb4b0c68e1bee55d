//! Brings the child's Helm releases to what the HelmReleases of its namespace in the parent say, and reports how they are.
//!
//! Invariants: only whoever applies in this cluster acts; a release is acted on once the cluster's branch says the same (when
//! there is a branch), and by the branch's bytes; a wish that failed is tried again by its time, whatever wakes; nothing is uninstalled but what a HelmRelease that is being deleted names; the records are Helm's own, so
//! that a Helm in the child sees, and may do, what we see and do.

mod answers;
mod branch;
mod decide;
mod deploy;
mod drift;
mod error;
mod hooks;
mod memory;
mod objects;
mod render;
mod seed;
mod status;
mod storage;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::apps::{DeployerType, Description, HelmRelease, HelmReleaseStatus};
use api::known::{annotation, finalizer, manager};
use api::reason::Reason;
use chart::Rules;
use chart::helm::record::{Record, status as word};
use cluster::{Discovery, Dynamic, Target};
use engine::{Backoff, Cache, EventKind, Key, Next, Queue, Recorder, Regarding, Tasks, work};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams};
use parking_lot::Mutex;
use plan::rendered::{Pin, Rendered};
use registry::pool::{Loaded, Source};
use serde_json::json;

use crate::session::Session;
use branch::{Branch, Waits};
use decide::{Action, Wanted, decide};
use deploy::{Job, Outcome, timeout};
use error::DeployError;
use memory::Failed;
use objects::{Child, Owner};
use render::From;
use storage::{Known, Storage};

/// Releases that are worked on at a time; most of the time they wait.
const WORKERS: usize = 16;
/// A revision that failed is tried again after this long at first, and at most.
const RETRY: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(1800));
/// What is due within this is not waited for less.
const MOMENT: Duration = Duration::from_millis(10);
/// The longest between two looks at a release that somebody else is at work on.
const LOOK: Duration = Duration::from_secs(10);

/// Whether releases may be acted on.
#[derive(Clone, Debug, Default)]
pub(crate) enum Gate {
    /// Somebody else applies in this cluster, or nothing is known yet.
    #[default]
    Shut,
    /// They may.
    Open {
        /// But for those of Descriptions that the branch has not caught up with.
        behind: BTreeSet<String>,
        /// What the branch has of each HelmRelease, when there is a branch.
        rendered: Option<Arc<BTreeMap<String, Arc<Rendered>>>>,
    },
}

impl Gate {
    /// Whether it lets the same pass as another.
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Shut, Self::Shut) => true,
            (Self::Open { behind: a, rendered: x }, Self::Open { behind: b, rendered: y }) => {
                a == b
                    && match (x, y) {
                        (None, None) => true,
                        (Some(x), Some(y)) => x.len() == y.len() && x.iter().zip(y.iter()).all(|((n, a), (m, b))| n == m && Arc::ptr_eq(a, b)),
                        _ => false,
                    }
            }
            _ => false,
        }
    }
}

/// What there is to do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    /// A release.
    Release(Key),
    /// The status of a Description of charts.
    Description(Key),
}

/// The releases of a child.
pub(crate) struct Releases {
    session: Arc<Session>,
    queue: Queue<Turn>,
    releases: Cache<HelmRelease>,
    descriptions: Cache<Description>,
    gate: Mutex<Gate>,
    failed: Mutex<BTreeMap<Key, Failed>>,
    waits: Mutex<Waits>,
    child: Child,
    drift: drift::Drift,
    recorder: Recorder,
}

/// Begins to follow the releases; nothing is done before the gate opens.
pub(crate) fn start(session: &Arc<Session>, descriptions: &Cache<Description>, recorder: &Recorder, tasks: &Tasks) -> Arc<Releases> {
    let queue: Queue<Turn> =
        Queue::with(session.shared.clock.clone(), Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(300) });
    let releases: Cache<HelmRelease> = Cache::<HelmRelease>::builder().index(drift::PLACE, |r| vec![plan::rendered::place(r)]).build();
    {
        let queue = queue.clone();
        releases.on_change(move |change| {
            let Some(release) = change.any() else { return };
            if change.touches(|r| (r.spec.clone(), r.metadata.deletion_timestamp.clone(), r.metadata.uid.clone(), Pin::read(r))) {
                queue.add(Turn::Release(Key::of(&**release)));
            }
            // Who comes, goes or changes its state counts in the status of its Description.
            if let Some(owner) = owner_of(release) {
                queue.add(Turn::Description(owner));
            }
        });
    }
    {
        let queue = queue.clone();
        descriptions.on_change(move |change| {
            let Some(description) = change.any() else { return };
            if description.spec.deployer == DeployerType::Helm {
                queue.add(Turn::Description(Key::of(&**description)));
            }
        });
    }
    let child = Child {
        dynamic: Dynamic::new(session.shared.child.clone()),
        discovery: Arc::new(Discovery::new(session.shared.child.clone())),
        leadership: session.leadership.clone(),
        records: Known::default(),
    };
    let all = Arc::new(Releases {
        session: session.clone(),
        queue: queue.clone(),
        releases: releases.clone(),
        descriptions: descriptions.clone(),
        gate: Mutex::default(),
        failed: Mutex::default(),
        waits: Mutex::default(),
        drift: drift::Drift::new(child.clone(), queue.clone(), releases.clone(), tasks.clone()),
        child,
        recorder: recorder.clone(),
    });
    releases.follow("helmreleases", session.parent.clone(), Target::of::<HelmRelease>(&session.namespace), tasks);
    let (token, worker) = (tasks.token().clone(), all.clone());
    tasks.spawn("releases", async move {
        let ready = async {
            releases.synced().await;
            worker.descriptions.synced().await;
        };
        tokio::select! {
            () = ready => {}
            () = token.cancelled() => return,
        }
        work(queue, WORKERS, token, move |turn| {
            let worker = worker.clone();
            async move { Box::pin(worker.take(turn)).await }
        })
        .await;
    });
    all
}

/// The Description of a release.
fn owner_of(release: &HelmRelease) -> Option<Key> {
    let owners = release.metadata.owner_references.iter().flatten();
    let name = owners.into_iter().find(|o| o.kind == "Description").map(|o| o.name.clone())?;
    Some(Key::new(release.metadata.namespace.as_deref().unwrap_or_default(), &name))
}

impl Releases {
    /// Says whether releases may be acted on.
    pub(crate) fn open(&self, gate: Gate) {
        let mut now = self.gate.lock();
        if now.is(&gate) {
            return;
        }
        if matches!(gate, Gate::Shut) {
            self.drift.stop();
        }
        *now = gate;
        drop(now);
        self.queue.add_all(self.releases.list().iter().map(|r| Turn::Release(Key::of(&**r))));
        let of_charts = self.descriptions.list().into_iter().filter(|d| d.spec.deployer == DeployerType::Helm);
        self.queue.add_all(of_charts.map(|d| Turn::Description(Key::of(&*d))));
    }

    async fn take(&self, turn: Turn) -> Next {
        if !self.session.leadership.holds() {
            return Next::After(Duration::from_secs(1));
        }
        match turn {
            Turn::Release(key) => self.release(&key).await,
            Turn::Description(key) => self.describe(&key).await,
        }
    }

    async fn release(&self, key: &Key) -> Next {
        let Some(release) = self.releases.get_key(key) else {
            self.failed.lock().remove(key);
            self.waits.lock().remove(key);
            self.drift.forget(key);
            return Next::Done;
        };
        let gate = self.gate.lock().clone();
        let Gate::Open { behind, rendered } = gate else { return Next::Done };
        self.drift.watch_records();
        if release.metadata.deletion_timestamp.is_some() {
            return self.remove(&release).await;
        }
        // The branch has not caught up: the next commit opens the gate.
        if owner_of(&release).is_some_and(|owner| behind.contains(&*owner.name)) {
            return self.wait(&release, "waits for its Description in the cluster's branch").await;
        }
        let found = match self.in_branch(&release, rendered.as_deref()).await {
            Ok(Branch::Has(found)) => Some(found),
            Ok(Branch::None) => None,
            Ok(Branch::NotYet(why)) => return self.wait(&release, &why).await,
            Err(error) => return self.stay(&release, &error).await,
        };
        self.waits.lock().remove(key);
        let deployed = self.deploy(&release, found).await;
        self.drift.changed(key);
        match deployed {
            Ok(next) => next,
            Err(error) => self.stay(&release, &error).await,
        }
    }

    /// Tells that the wish cannot be had; what is deployed stays as it is, and is put back where somebody changes it.
    async fn stay(&self, release: &HelmRelease, error: &DeployError) -> Next {
        let next = self.fail(release, error).await;
        if !matches!(error, DeployError::Deposed) {
            self.keep(release).await;
        }
        next
    }

    /// Puts back what was changed of the revision that we have deployed, whatever is wished for by now.
    async fn keep(&self, release: &HelmRelease) {
        let owner = Owner::of(release);
        let history = Storage { child: &self.child, owner: &owner, clock: &*self.session.shared.clock }.history().await;
        let Ok(history) = history else { return };
        // A release that somebody else has installed is not ours before we have upgraded it.
        let is_ours = |last: &&Record| plan::rendered::is_deployed(release) && release.status.as_ref().is_some_and(|told| i64::from(told.version) == last.version);
        if let Some(last) = history.last().filter(|last| last.info.status == word::DEPLOYED).filter(is_ours) {
            self.mend(release, &owner, last).await;
        }
    }

    async fn mend(&self, release: &HelmRelease, owner: &Owner, last: &Record) -> Next {
        let key = Key::of(release);
        let job = Job { child: &self.child, clock: &*self.session.shared.clock, owner, options: &release.spec.options, rules: Self::rules(release) };
        match self.drift.mend(&key, &job, last).await {
            Ok(0) => Next::Done,
            Ok(count) => {
                self.session.shared.metrics.count("release_objects_mended_total", &[], u64::try_from(count).unwrap_or_default());
                Next::Done
            }
            Err(error) => {
                tracing::warn!(release = %key, error = cluster::error::chain(&error), "cannot put the objects of a release back");
                Next::After(RETRY.0)
            }
        }
    }

    /// Tells that nothing could be done, and when to try again.
    async fn fail(&self, release: &HelmRelease, error: &DeployError) -> Next {
        if matches!(error, DeployError::Deposed) {
            return Next::After(Duration::from_secs(1));
        }
        let why = cluster::error::chain(error);
        let key = Key::of(release);
        tracing::warn!(release = %key, error = why, "cannot deploy a release");
        self.session.shared.metrics.count("release_failures_total", &[], 1);
        let before = release.status.clone().unwrap_or_default();
        if before.description != why {
            let reason = if matches!(error, DeployError::Chart { .. } | DeployError::PullSecret { .. }) { Reason::ChartLocateFailure } else { Reason::HelmReleaseFailure };
            self.recorder.record(Regarding::of(release), EventKind::Warning, reason.as_str(), why.clone());
        }
        let now = HelmReleaseStatus { phase: word::FAILED.to_owned(), description: why, ..before };
        self.tell(release, now).await;
        Next::Again
    }

    fn rules(release: &HelmRelease) -> Rules {
        plan::rendered::rules(release.metadata.annotations.as_ref())
    }

    async fn deploy(&self, release: &HelmRelease, found: Option<Arc<Rendered>>) -> Result<Next, DeployError> {
        let (key, spec) = (Key::of(release), &release.spec);
        let owner = Owner::of(release);
        let config = plan::rendered::values(spec).map_err(DeployError::Values)?;
        let clock = &*self.session.shared.clock;
        let storage = Storage { child: &self.child, owner: &owner, clock };
        let history = storage.history().await?;
        let failed = self.remembered(release);
        let ours = release.status.as_ref().filter(|s| s.phase.starts_with("pending-")).map(|s| i64::from(s.version));
        let wanted = Wanted {
            chart: &spec.options.chart,
            version: &spec.options.chart_version,
            config: &config,
            bundle: found.as_ref().map(|found| &found.bundle),
            atomic: spec.options.atomic == Some(true),
            timeout: timeout(&spec.options),
            ours,
            retry: failed.as_ref().is_some_and(|failed| self.left(failed).is_zero()),
            replace: spec.options.replace == Some(true),
        };
        let action = decide(&history, &wanted, clock.now());
        match action {
            Action::Nothing => {
                if let Some(last) = history.last() {
                    self.tell(release, status::of(last)).await;
                    if last.info.status == word::FAILED {
                        // One that failed by another hand, or before failures were remembered, counts from now on.
                        let failed = match failed {
                            Some(failed) => failed,
                            None => self.remember(release, &last.info.description).await,
                        };
                        return Ok(Next::After(self.left(&failed).max(MOMENT)));
                    }
                }
                self.forgive(release).await;
                let Some(last) = history.last().filter(|last| last.info.status == word::DEPLOYED) else { return Ok(Next::Done) };
                self.deployed_as(release, &owner).await?;
                return Ok(self.mend(release, &owner, last).await);
            }
            Action::Wait(left) => {
                if let Some(last) = history.last() {
                    // Not its phase and revision: those would say after a restart that it is our own.
                    let description = format!("waits for revision {}, which another Helm has at work: {}", last.version, last.info.status);
                    self.tell(release, HelmReleaseStatus { description, ..release.status.clone().unwrap_or_default() }).await;
                }
                return Ok(Next::After(left.min(LOOK)));
            }
            Action::Install | Action::Reinstall | Action::Upgrade(_) => {}
        }
        // The history may not tell: a rollback ended well, and what was uninstalled left nothing.
        if let Some(failed) = failed.filter(|failed| !self.left(failed).is_zero()) {
            return Ok(self.hold(release, &owner, history.last(), &failed).await);
        }
        let from = match found {
            Some(found) => From::Branch(found),
            None => From::Chart(self.load(release).await?, self.seed(release).await?),
        };
        let job = Job { child: &self.child, clock, owner: &owner, options: &spec.options, rules: Self::rules(release) };
        self.drift.changes(&key);
        self.move_from(release, &owner).await?;
        // Said before it is begun: after a restart this tells that what is pending is our own.
        let phase = if matches!(action, Action::Upgrade(_)) { word::PENDING_UPGRADE } else { word::PENDING_INSTALL };
        let version = history.last().map_or(0, |r| r.version) + 1;
        let before = release.status.clone().unwrap_or_default();
        let version = i32::try_from(version).unwrap_or(i32::MAX);
        self.tell(release, HelmReleaseStatus { phase: phase.to_owned(), version, ..before }).await;
        tracing::info!(release = %key, name = owner.name, namespace = owner.namespace, ?action, "deploying a release");
        let outcome = match action {
            Action::Upgrade(at) => match history.get(at) {
                Some(current) => job.upgrade(&from, &config, &history, current).await,
                None => job.install(&from, &config, &history).await,
            },
            Action::Reinstall => match job.uninstall(&history).await {
                Ok(()) => job.install(&from, &config, &[]).await,
                Err(error) => error.into(),
            },
            _ => job.install(&from, &config, &history).await,
        };
        self.settle(release, outcome).await
    }

    /// Between two tries of a wish that failed: what runs stays, is put back where somebody changes it, and is told as what it is.
    async fn hold(&self, release: &HelmRelease, owner: &Owner, last: Option<&Record>, failed: &Failed) -> Next {
        let last = last.filter(|last| last.info.status == word::DEPLOYED);
        let told = match last {
            Some(last) => status::after_failure(last, &failed.why),
            None => HelmReleaseStatus { phase: word::FAILED.to_owned(), description: failed.why.clone(), ..release.status.clone().unwrap_or_default() },
        };
        self.tell(release, told).await;
        let left = self.left(failed).max(MOMENT);
        match last {
            Some(last) if plan::rendered::is_deployed(release) => match self.mend(release, owner, last).await {
                Next::After(sooner) => Next::After(left.min(sooner)),
                _ => Next::After(left),
            },
            _ => Next::After(left),
        }
    }

    async fn settle(&self, release: &HelmRelease, outcome: Outcome) -> Result<Next, DeployError> {
        let Outcome { record, error } = outcome;
        let (record, why) = match (record, error) {
            (Some(record), None) => {
                self.forgive(release).await;
                self.session.shared.metrics.count("releases_deployed_total", &[], 1);
                self.tell(release, status::of(&record)).await;
                // Looked at once more, and watched from then on.
                return Ok(Next::After(Duration::ZERO));
            }
            (Some(record), Some(error)) => (record, cluster::error::chain(&error)),
            (None, Some(error)) => return Err(error),
            (None, None) => return Ok(Next::Done),
        };
        tracing::warn!(release = %Key::of(release), error = why, "a release failed");
        self.session.shared.metrics.count("release_failures_total", &[], 1);
        self.recorder.record(Regarding::of(release), EventKind::Warning, Reason::HelmReleaseFailure.as_str(), why.clone());
        let now = status::after_failure(&record, &why);
        // What runs beside the failure may change until the next try, and is told anew.
        self.remember(release, if record.info.status == word::DEPLOYED { &why } else { &now.description }).await;
        self.tell(release, now).await;
        // Looked at once more: what stands now is put back from then on.
        Ok(Next::After(Duration::ZERO))
    }

    async fn load(&self, release: &HelmRelease) -> Result<Arc<Loaded>, DeployError> {
        let options = &release.spec.options;
        if release.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(annotation::CHART_PATH)) {
            let why = format!("chart {} lies in a repository of manifests: it only comes rendered, through a branch", options.chart);
            return Err(DeployError::Unrendered(why));
        }
        let reference = registry::Reference { repository: options.repo.clone(), chart: options.chart.clone(), version: options.chart_version.clone() };
        let source = Source { reference, credentials: self.credentials(release).await?, plain_http: options.plain_http == Some(true) };
        self.session
            .shared
            .options
            .charts
            .load(&source)
            .await
            .map_err(|source| DeployError::Chart { chart: options.chart.clone(), source })
    }

    /// The credentials of the chart's repository: the copy in our own namespace, or the Secret itself where we may read it.
    async fn credentials(&self, release: &HelmRelease) -> Result<Option<registry::Credentials>, DeployError> {
        let secret = &release.spec.options.chart_pull_secret;
        if secret.name.is_empty() {
            return Ok(None);
        }
        let refused = |source| DeployError::PullSecret { name: secret.name.clone(), source: Box::new(source) };
        let own: Api<Secret> = Api::namespaced(self.session.parent.clone(), &self.session.namespace);
        let copy = plan::releases::pull_secret_name(release.metadata.name.as_deref().unwrap_or_default());
        let found = match own.get_opt(&copy).await.map_err(refused)? {
            Some(found) => found,
            None => {
                let there: Api<Secret> = Api::namespaced(self.session.parent.clone(), &secret.namespace);
                there.get(&secret.name).await.map_err(refused)?
            }
        };
        let text = |key: &str| found.data.as_ref().and_then(|d| d.get(key)).map(|b| String::from_utf8_lossy(&b.0).into_owned()).unwrap_or_default();
        Ok(Some(registry::Credentials { username: text("username"), password: registry::Secret::new(text("password")) }))
    }

    /// Writes down which release a HelmRelease is in the child.
    async fn deployed_as(&self, release: &HelmRelease, owner: &Owner) -> Result<(), DeployError> {
        let now = format!("{}/{}", owner.namespace, owner.name);
        if release.metadata.annotations.as_ref().and_then(|a| a.get(annotation::DEPLOYED_AS)) == Some(&now) {
            return Ok(());
        }
        let name = release.metadata.name.as_deref().unwrap_or_default();
        let api: Api<HelmRelease> = Api::namespaced(self.session.parent.clone(), &self.session.namespace);
        let patch = json!({"metadata": {"uid": release.metadata.uid, "annotations": {annotation::DEPLOYED_AS: now}}});
        let how = PatchParams { field_manager: Some(manager::AGENT.to_owned()), ..PatchParams::default() };
        let written = api.patch(name, &how, &Patch::Merge(&patch)).await.map_err(DeployError::refused("write down the place of", name))?;
        self.releases.assume(written);
        Ok(())
    }

    /// The release that a HelmRelease was before it got another name or namespace, unless it is another one's by now.
    fn former(&self, release: &HelmRelease, owner: &Owner) -> Option<Owner> {
        let (namespace, name) = release.metadata.annotations.as_ref()?.get(annotation::DEPLOYED_AS)?.split_once('/')?;
        let former = Owner { name: name.to_owned(), namespace: namespace.to_owned() };
        let is_former = |o: &Owner| o.name == former.name && o.namespace == former.namespace;
        let taken = |r: &Arc<HelmRelease>| r.metadata.name != release.metadata.name && is_former(&Owner::of(r));
        (!is_former(owner) && !self.releases.list().iter().any(taken)).then_some(former)
    }

    /// A release that got another name or namespace is taken away where it was, and the new place is written down.
    async fn move_from(&self, release: &HelmRelease, owner: &Owner) -> Result<(), DeployError> {
        if let Some(former) = self.former(release, owner) {
            let job = Job { child: &self.child, clock: &*self.session.shared.clock, owner: &former, options: &release.spec.options, rules: Self::rules(release) };
            let history = job.storage().history().await?;
            tracing::info!(release = %Key::of(release), namespace = former.namespace, name = former.name, "uninstalling a release that moved");
            job.uninstall(&history).await?;
        }
        self.deployed_as(release, owner).await
    }

    /// Uninstalls the release and lets the HelmRelease go.
    async fn remove(&self, release: &HelmRelease) -> Next {
        let has = release.metadata.finalizers.iter().flatten().any(|f| f == finalizer::APP);
        if !has {
            return Next::Done;
        }
        let spec = &release.spec;
        let owner = Owner::of(release);
        let clock = &*self.session.shared.clock;
        self.drift.changes(&Key::of(release));
        // What was there before, and was never taken over, is somebody else's.
        let is_found = release.status.as_ref().is_some_and(|told| told.phase == plan::rendered::FOUND || told.phase == word::UNINSTALLED);
        if is_found && !plan::rendered::is_deployed(release) {
            return self.let_go(release).await;
        }
        // Clusternet's controllers at times make two HelmReleases of one release: it goes with the last of them.
        let stays = |other: &HelmRelease| other.metadata.deletion_timestamp.is_none() && Owner::of(other) == owner;
        if self.releases.in_namespace(&self.session.namespace).iter().any(|other| stays(other)) {
            return self.let_go(release).await;
        }
        if let Err(error) = self.move_from(release, &owner).await {
            return self.fail(release, &error).await;
        }
        let job = Job { child: &self.child, clock, owner: &owner, options: &spec.options, rules: Self::rules(release) };
        let history = match job.storage().history().await {
            Ok(history) => history,
            Err(error) => return self.fail(release, &error).await,
        };
        if !history.is_empty() {
            let before = release.status.clone().unwrap_or_default();
            self.tell(release, HelmReleaseStatus { phase: word::UNINSTALLING.to_owned(), ..before }).await;
        }
        match job.uninstall(&history).await {
            Ok(()) => self.let_go(release).await,
            Err(error) => self.fail(release, &error).await,
        }
    }
}
