//! The loop: follows the parent, takes decisions, writes them.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use api::apps::{FeedInventory, Subscription};
use api::clusters::ManagedCluster;
use api::{Kind, object};
use cluster::{Event, Item, Target, follow};
use engine::{Clock, Elector, EventKind, LeaseOptions, Leadership, RealClock, Recorder, Regarding, Registry, Tasks};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Client;
use parking_lot::Mutex;
use plan::placement::framework::{Code, Point};
use plan::placement::plugins::BINDER;
use plan::placement::{Outcome, Pending};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::bind::{BindError, bind};
use crate::brain::{Brain, Decided, Work, changed};
use crate::extend::{Bound, Extension};
use crate::meter::{Meter, plugin_took, point_took};
use crate::predict::Predictors;
use crate::queue::Key;
use crate::{Error, Options};

/// Longest wait for tasks at the end.
const PATIENCE: Duration = Duration::from_secs(5);
/// Decisions in a row before other tasks get a turn.
const IN_A_ROW: usize = 32;
/// Collections that must be known before the first decision.
const COLLECTIONS: u8 = 3;

/// Runs a scheduler until `shutdown`.
pub async fn run(client: Client, options: Options, shutdown: CancellationToken) -> Result<(), Error> {
    if options.framework.profiles.is_empty() {
        return Err(Error::NoProfile);
    }
    let clock = RealClock::shared();
    if options.leader_elect && options.framework.election.leader_elect != Some(false) {
        let namespace = options.framework.election.resource_namespace.as_deref().unwrap_or(&options.namespace);
        let lease = LeaseOptions::usual(namespace, &options.framework.lease_name(), &options.identity);
        let elector = Elector::new(client.clone(), lease, Arc::clone(&clock));
        let leadership = elector.leadership();
        let lead = |term: CancellationToken| {
            let (client, options, clock, leadership) = (client.clone(), options.clone(), Arc::clone(&clock), leadership.clone());
            async move { lead(client, options, clock, Some(leadership), term).await }
        };
        elector.run(shutdown, lead).await;
    } else {
        lead(client, options, clock, None, shutdown).await;
    }
    Ok(())
}

struct Shared {
    client: Client,
    options: Options,
    clock: Arc<dyn Clock>,
    leadership: Option<Leadership>,
    brain: Mutex<Brain>,
    wake: Notify,
    known: AtomicU8,
    predictors: Predictors,
    recorder: Recorder,
    binders: Arc<Semaphore>,
    asking: Arc<Semaphore>,
}

/// One term: from the first list to the loss of the lease.
async fn lead(client: Client, options: Options, clock: Arc<dyn Clock>, leadership: Option<Leadership>, term: CancellationToken) {
    let tasks = Tasks::new(&term);
    let recorder = Recorder::start(client.clone(), api::known::component::SCHEDULER, Arc::clone(&clock), options.metrics.clone(), &tasks);
    let shared = Arc::new(Shared {
        predictors: Predictors::new(client.clone(), options.predictor_timeout, Arc::clone(&clock)),
        brain: Mutex::new(Brain::new(options.framework.clone()).measured(Meter::new(&options.framework, options.metrics.clone(), Arc::clone(&clock)))),
        binders: Arc::new(Semaphore::new(options.binders.max(1))),
        asking: Arc::new(Semaphore::new(options.asking.max(1))),
        wake: Notify::new(),
        known: AtomicU8::new(0),
        client,
        options,
        clock,
        leadership,
        recorder,
    });
    follow_all(&shared, &tasks);
    let decide = decide_all(Arc::clone(&shared), tasks.clone());
    tokio::select! {
        () = term.cancelled() => {}
        () = decide => {}
    }
    if !tasks.stop(PATIENCE).await {
        tracing::warn!(running = tasks.running(), "scheduler tasks did not end in time");
    }
}

/// The rule by which a watch event reaches the brain.
fn watch<K>(shared: &Arc<Shared>, tasks: &Tasks, reset: fn(&mut Brain, &[K]), apply: fn(&mut Brain, &K) -> bool, delete: fn(&mut Brain, &str))
where
    K: Kind + Item,
{
    let shared = Arc::clone(shared);
    let mut first = true;
    tasks.spawn_until_stopped("follow", async move {
        follow::<K>(shared.client.clone(), Target::of::<K>(""), |event| {
            let wake = match event {
                Event::Reset(items) => {
                    reset(&mut shared.brain.lock(), &items);
                    if std::mem::take(&mut first) {
                        shared.known.fetch_add(1, Ordering::AcqRel);
                    }
                    true
                }
                Event::Apply(item) => apply(&mut shared.brain.lock(), &item),
                Event::Delete(item) => {
                    delete(&mut shared.brain.lock(), &object::key(Item::namespace(&item), Item::name(&item)));
                    true
                }
                Event::Failed { error, wait } => {
                    let error = cluster::error::message(&error);
                    tracing::warn!(kind = K::KIND, error, wait = wait.as_millis(), "cannot follow the parent");
                    false
                }
            };
            if wake {
                shared.wake.notify_one();
            }
            ControlFlow::Continue(())
        })
        .await;
    });
}

fn follow_all(shared: &Arc<Shared>, tasks: &Tasks) {
    watch::<ManagedCluster>(shared, tasks, |brain, all| brain.clusters(all), Brain::cluster, |brain, key| _ = brain.cluster_gone(key));
    watch::<Subscription>(shared, tasks, |brain, all| brain.subscriptions(all), Brain::subscription, |brain, key| brain.subscription_gone(key));
    watch::<FeedInventory>(shared, tasks, |brain, all| brain.inventories(all), Brain::inventory, |brain, key| brain.inventory_gone(key));
}

async fn decide_all(shared: Arc<Shared>, tasks: Tasks) {
    let mut in_a_row = 0;
    loop {
        // Decisions wait for a free writer, so that at most that many are assumed and not yet written.
        let Ok(permit) = Arc::clone(&shared.binders).acquire_owned().await else { return };
        let now = shared.clock.now();
        // Nothing is decided before all collections are known: what is absent might only not have been read yet.
        let ready = shared.known.load(Ordering::Acquire) >= COLLECTIONS;
        let started = shared.clock.monotonic();
        let asking = Arc::clone(&shared.asking).try_acquire_owned().ok();
        let work = if ready { shared.brain.lock().next(now, asking.is_some()) } else { None };
        if work.is_some() {
            let took = shared.clock.monotonic() - started;
            shared.options.metrics.observe("clusternet_scheduler_scheduling_algorithm_duration_seconds", &[], took);
        }
        match work {
            Some(Work::Write(decided)) => {
                let shared = Arc::clone(&shared);
                // Who waits for permission holds up no other.
                let permit = (!decided.decision.wait).then_some(permit);
                tasks.spawn("bind", async move {
                    write(&shared, *decided).await;
                    drop(permit);
                });
            }
            Some(Work::Ask(key, pending)) => {
                drop(permit);
                let shared = Arc::clone(&shared);
                tasks.spawn("ask", async move {
                    ask(&shared, key, pending).await;
                    drop(asking);
                    shared.wake.notify_one();
                });
            }
            None => {
                drop((permit, asking));
                in_a_row = 0;
                let deadline = if ready { shared.brain.lock().next_deadline() } else { None };
                match deadline {
                    Some(at) => {
                        let wait = Duration::try_from(at.duration_since(now)).unwrap_or_default();
                        tokio::select! {
                            () = shared.wake.notified() => {}
                            () = shared.clock.sleep(wait) => {}
                        }
                    }
                    None => shared.wake.notified().await,
                }
                continue;
            }
        }
        in_a_row += 1;
        if in_a_row >= IN_A_ROW {
            in_a_row = 0;
            tokio::task::yield_now().await;
        }
    }
}

async fn ask(shared: &Shared, key: Key, mut pending: Pending) {
    shared.predictors.ask_all(&mut pending).await;
    let decided = shared.brain.lock().answered(&key, pending, shared.clock.now());
    match decided {
        Some(decided) => {
            let Ok(_permit) = shared.binders.acquire().await else { return };
            write(shared, *decided).await;
        }
        None => shared.wake.notify_one(),
    }
}

/// The plugins of a point with their acting halves.
fn acting<'a>(shared: &'a Shared, decided: &Decided, point: Point) -> Vec<(&'static str, Option<&'a Arc<dyn Extension>>)> {
    let Some(profile) = shared.options.framework.profiles.get(&decided.entry.subject.spec.scheduler_name) else { return Vec::new() };
    let half = |name: &str| shared.options.extensions.iter().find(|extension| extension.name() == name);
    profile.at(point).iter().map(|enabled| enabled.plugin.name()).map(|name| (name, half(name))).collect()
}

/// The extension points after a decision: Permit's wait, PreBind, Bind, PostBind.
async fn bind_with(shared: &Shared, decided: &Decided, now: &Time) -> Bound {
    let at = |point| acting(shared, decided, point);
    let refused = |plugin, why| {
        shared.options.extensions.iter().for_each(|extension| extension.unreserve(decided));
        Err(BindError::Refused { key: decided.key.to_string(), plugin, why })
    };
    let metrics = &shared.options.metrics;
    let clock = || shared.clock.monotonic();
    let took = |point, code, since| point_took(metrics, point, code, &decided.entry.subject.spec.scheduler_name, clock() - since);
    if decided.decision.wait {
        let since = clock();
        let verdict = shared.options.permits.wait(&decided.key, &*shared.clock).await;
        let result = if verdict.is_ok() { "Success" } else { "Unschedulable" };
        metrics.observe("clusternet_scheduler_permit_wait_duration_seconds", &[("result", result)], clock() - since);
        if let Err(why) = verdict {
            return refused("Permit", why);
        }
    }
    let since = clock();
    let mut asked = false;
    for (name, extension) in at(Point::PreBind) {
        let Some(extension) = extension else { continue };
        asked = true;
        if let Err(why) = extension.pre_bind(&shared.client, decided).await {
            took(Point::PreBind, Code::Error, since);
            return refused(name, why);
        }
    }
    if asked {
        took(Point::PreBind, Code::Success, since);
    }
    let mut bound = None;
    let since = clock();
    for (name, extension) in at(Point::Bind) {
        let began = clock();
        bound = match extension {
            Some(extension) => extension.bind(&shared.client, decided).await,
            None if name == BINDER => Some(bind(&shared.client, decided, now).await),
            None => None,
        };
        if let Some(bound) = &bound {
            plugin_took(metrics, name, Point::Bind, code(bound), clock() - began);
            break;
        }
    }
    took(Point::Bind, bound.as_ref().map_or(Code::Skip, code), since);
    let Some(bound) = bound else { return refused("Bind", "every plugin left it to another".to_owned()) };
    if bound.is_err() {
        shared.options.extensions.iter().for_each(|extension| extension.unreserve(decided));
    } else {
        let (since, mut asked) = (clock(), false);
        for (_, extension) in at(Point::PostBind) {
            if let Some(extension) = extension {
                asked = true;
                extension.post_bind(&shared.client, decided).await;
            }
        }
        if asked {
            took(Point::PostBind, Code::Success, since);
        }
    }
    bound
}

fn code(bound: &Bound) -> Code {
    if bound.is_ok() { Code::Success } else { Code::Error }
}

/// Counts a binding among those under way as long as it lives.
struct UnderWay<'a>(&'a Registry);

impl<'a> UnderWay<'a> {
    const NAME: &'static str = "clusternet_scheduler_scheduler_goroutines";
    const WORK: [(&'static str, &'static str); 1] = [("work", "binding")];

    fn new(metrics: &'a Registry) -> Self {
        metrics.shift(Self::NAME, &Self::WORK, 1);
        Self(metrics)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.shift(Self::NAME, &Self::WORK, -1);
    }
}

async fn write(shared: &Shared, decided: Decided) {
    let _under_way = UnderWay::new(&shared.options.metrics);
    let started = shared.clock.monotonic();
    let now = Time(shared.clock.now());
    let result = match &shared.leadership {
        Some(leadership) if !leadership.holds() => Err(BindError::Changed(decided.key.to_string())),
        _ => bind_with(shared, &decided, &now).await,
    };
    if let Some(placement) = changed(&decided.decision, &decided.entry.previous).filter(|_| decided.entry.subject.is_dynamic()) {
        shared.predictors.forget(placement.bindings.iter());
    }
    let wrote = matches!(result, Ok(Some(_)));
    report(shared, &decided, &result, shared.clock.monotonic() - started);
    let outcome = result.map_err(|error| error.again());
    shared.brain.lock().written(&decided, outcome, shared.clock.now());
    if wrote {
        tracing::debug!(object = %decided.key, reason = decided.decision.reason.as_str(), "decision written");
    }
    shared.wake.notify_one();
}

/// Metrics, and an event when something was written.
fn report(shared: &Shared, decided: &Decided, result: &Result<Option<crate::brain::Written>, BindError>, took: Duration) {
    let word = match (result, decided.decision.is_bound()) {
        (Err(_), _) => "error",
        (Ok(_), true) => "scheduled",
        (Ok(_), false) => "unschedulable",
    };
    let labels = [("result", word), ("profile", decided.entry.subject.spec.scheduler_name.as_str())];
    shared.options.metrics.count("clusternet_scheduler_schedule_attempts_total", &labels, 1);
    shared.options.metrics.observe("clusternet_scheduler_e2e_scheduling_duration_seconds", &labels, took);
    if let Err(error) = result {
        match error {
            BindError::Write { source, .. } => {
                tracing::warn!(object = %decided.key, error = cluster::error::message(source), "cannot write a decision");
            }
            BindError::Refused { .. } => tracing::warn!(object = %decided.key, %error, "a plugin keeps a decision from being bound"),
            BindError::Gone(_) | BindError::Changed(_) => tracing::debug!(object = %decided.key, %error, "decision is void"),
        }
        return;
    }
    if !matches!(result, Ok(Some(_))) {
        return;
    }
    let (namespace, name) = object::split_key(&decided.key);
    let regarding = Regarding {
        api_version: Subscription::API_VERSION.to_owned(),
        kind: Subscription::KIND.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: decided.entry.uid.clone(),
    };
    let decision = &decided.decision;
    if let (true, Outcome::Bind(placement)) = (decision.is_bound(), &decision.outcome) {
        let mut text = format!("Successfully bound {} to ", decided.key);
        for (index, key) in placement.bindings.iter().enumerate() {
            if text.len() > api::known::EVENT_NOTE_MAX - 100 {
                text.push_str(&format!(" and {} more", placement.bindings.len() - index));
                break;
            }
            if index > 0 {
                text.push(',');
            }
            text.push_str(key);
        }
        shared.recorder.record(regarding, EventKind::Normal, api::reason::Reason::Scheduled.as_str(), text);
    } else {
        use api::reason::Reason;
        let (kind, reason) = match decision.reason {
            // What gives way is told as that, since it is looked for under that word; to wait in the beginning is no fault.
            Reason::Preempted => (EventKind::Warning, Reason::Preempted),
            Reason::WaitingForFeedInventory => (EventKind::Normal, Reason::WaitingForFeedInventory),
            _ => (EventKind::Warning, Reason::FailedScheduling),
        };
        shared.recorder.record(regarding, kind, reason.as_str(), decision.message.clone());
    }
}
