//! Leader election over a `coordination.k8s.io` Lease, with the timing and the record that client-go uses.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;

/// Settings of an election.
#[derive(Clone, Debug)]
pub struct LeaseOptions {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Who we are; must be unique among the candidates.
    pub identity: String,
    /// Others may take over when the holder was not heard for this long.
    pub duration: Duration,
    /// The holder gives up when it could not renew for this long.
    pub renew_deadline: Duration,
    /// Between two tries.
    pub retry_period: Duration,
}

impl LeaseOptions {
    /// Kubernetes' usual timing: 15 s, 10 s, 2 s.
    pub fn usual(namespace: &str, name: &str, identity: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity: identity.to_owned(),
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

#[derive(Default)]
struct Held {
    /// Monotonic moment until which nobody else may lead.
    until: Option<Duration>,
    uid: String,
    annotations: std::collections::BTreeMap<String, String>,
}

/// Whether we lead. Performers ask before each write.
#[derive(Clone)]
pub struct Leadership {
    held: Arc<Mutex<Held>>,
    clock: Arc<dyn Clock>,
}

impl Leadership {
    /// True while the lease is surely ours, judged by our own clock only.
    pub fn holds(&self) -> bool {
        self.held.lock().until.is_some_and(|until| self.clock.monotonic() < until)
    }

    /// Held without an election, for what runs once by construction.
    pub fn always(clock: Arc<dyn Clock>) -> Self {
        let held = Held { until: Some(Duration::MAX), ..Held::default() };
        Self { held: Arc::new(Mutex::new(held)), clock }
    }

    /// Uid of the Lease object, known once it was seen.
    pub fn lease_uid(&self) -> String {
        self.held.lock().uid.clone()
    }

    /// Annotations of the Lease object as last seen.
    pub fn lease_annotations(&self) -> std::collections::BTreeMap<String, String> {
        self.held.lock().annotations.clone()
    }
}

/// A candidate.
pub struct Elector {
    api: Api<Lease>,
    options: LeaseOptions,
    clock: Arc<dyn Clock>,
    leadership: Leadership,
    observed: Option<Observed>,
}

struct Observed {
    lease: Lease,
    /// When its record last changed, by our own clock: the holder's clock is never trusted.
    changed_at: Duration,
}

enum Tried {
    Ours,
    Theirs,
}

/// Why a candidate does not lead.
#[derive(PartialEq, Eq)]
enum Waits {
    /// Another one holds the lease.
    For(String),
    /// The lease cannot be read or written.
    Because(String),
}

impl Elector {
    /// A candidate that does nothing until [`Elector::run`].
    pub fn new(client: Client, options: LeaseOptions, clock: Arc<dyn Clock>) -> Self {
        let leadership = Leadership { held: Arc::default(), clock: clock.clone() };
        Self { api: Api::namespaced(client, &options.namespace), options, clock, leadership, observed: None }
    }

    /// A view for performers.
    pub fn leadership(&self) -> Leadership {
        self.leadership.clone()
    }

    /// Stands for election until `shutdown`; while leading, runs `lead` with a token that is cancelled when leadership is
    /// lost or ends. The lease is given back after `lead` has ended.
    pub async fn run<F, Fut>(mut self, shutdown: CancellationToken, lead: F)
    where
        F: Fn(CancellationToken) -> Fut,
        Fut: Future<Output = ()>,
    {
        while !shutdown.is_cancelled() {
            // Acquire. Why it does not lead is said once, and again when the reason changes.
            let mut said = None;
            loop {
                let why = match self.try_once().await {
                    Ok(Tried::Ours) => break,
                    Ok(Tried::Theirs) => Waits::For(self.holder()),
                    Err(error) => Waits::Because(cluster::error::message(&error)),
                };
                if said.as_ref() != Some(&why) {
                    match &why {
                        Waits::For(holder) => tracing::info!(lease = self.options.name, identity = self.options.identity, holder, "waiting: another one leads"),
                        Waits::Because(error) => tracing::warn!(lease = self.options.name, error, "cannot read or write the lease; trying on"),
                    }
                    said = Some(why);
                }
                let wait = self.options.retry_period.mul_f64(rand::random_range(1.0..1.2));
                tokio::select! {
                    () = self.clock.sleep(wait) => {}
                    () = shutdown.cancelled() => return,
                }
            }
            tracing::info!(lease = self.options.name, identity = self.options.identity, "leading");
            let term = shutdown.child_token();
            let mut leading = std::pin::pin!(lead(term.clone()));
            let mut ended = false;
            // Renew.
            loop {
                tokio::select! {
                    () = &mut leading => { ended = true; break; }
                    () = shutdown.cancelled() => break,
                    () = self.clock.sleep(self.options.retry_period) => {}
                }
                let tried = tokio::select! {
                    () = &mut leading => { ended = true; break; }
                    tried = self.try_once() => tried,
                };
                match tried {
                    Ok(Tried::Ours) => {}
                    Ok(Tried::Theirs) => break,
                    Err(error) => {
                        tracing::debug!(lease = self.options.name, error = cluster::error::message(&error), "cannot renew the lease");
                        if !self.leadership.holds() {
                            break;
                        }
                    }
                }
            }
            term.cancel();
            if !ended {
                leading.await;
            }
            // Never give back what is another's by now.
            let ours = self.observed.as_ref().is_some_and(|seen| self.is_ours(&seen.lease));
            let held = ours && self.leadership.holds();
            self.leadership.held.lock().until = None;
            if held {
                self.release().await;
            }
            tracing::info!(lease = self.options.name, identity = self.options.identity, "no longer leading");
            if ended {
                return;
            }
        }
    }

    async fn try_once(&mut self) -> Result<Tried, kube::Error> {
        let began = self.clock.monotonic();
        let now = MicroTime(self.clock.now());
        // The fast path of client-go: renew from the record we wrote last, without reading first.
        let mut current = match self.observed.as_ref() {
            Some(seen) if self.is_ours(&seen.lease) && self.leadership.holds() => Some(seen.lease.clone()),
            _ => self.api.get_opt(&self.options.name).await?,
        };
        loop {
            let Some(lease) = current else {
                let lease = self.build(ObjectMeta { name: Some(self.options.name.clone()), ..ObjectMeta::default() }, None, now);
                let made = self.api.create(&PostParams::default(), &lease).await?;
                self.won(made, began);
                return Ok(Tried::Ours);
            };
            let record = |l: &Lease| l.spec.clone();
            let changed_at = match &self.observed {
                Some(seen) if record(&seen.lease) == record(&lease) => seen.changed_at,
                _ => self.clock.monotonic(),
            };
            self.observed = Some(Observed { lease: lease.clone(), changed_at });
            let spec = lease.spec.clone().unwrap_or_default();
            let holder = spec.holder_identity.clone().unwrap_or_default();
            let theirs = !holder.is_empty() && holder != self.options.identity;
            let their_time = Duration::from_secs(u64::try_from(spec.lease_duration_seconds.unwrap_or(0)).unwrap_or(0));
            self.note(&lease);
            if theirs && changed_at + their_time > self.clock.monotonic() {
                return Ok(Tried::Theirs);
            }
            let next = self.build(lease.metadata.clone(), Some(&spec), now.clone());
            match self.api.replace(&self.options.name, &PostParams::default(), &next).await {
                Ok(written) => {
                    self.won(written, began);
                    return Ok(Tried::Ours);
                }
                // Our copy was old: read once and look again.
                Err(kube::Error::Api(status)) if status.code == 409 && !theirs => {
                    let fresh = self.api.get_opt(&self.options.name).await?;
                    let same = fresh.as_ref().and_then(|l| l.metadata.resource_version.clone()) == lease.metadata.resource_version;
                    if same {
                        return Ok(Tried::Theirs);
                    }
                    current = fresh;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn holder(&self) -> String {
        self.observed.as_ref().and_then(|seen| seen.lease.spec.as_ref()?.holder_identity.clone()).unwrap_or_default()
    }

    fn is_ours(&self, lease: &Lease) -> bool {
        lease.spec.as_ref().and_then(|s| s.holder_identity.as_ref()) == Some(&self.options.identity)
    }

    fn note(&self, lease: &Lease) {
        let mut held = self.leadership.held.lock();
        held.uid = lease.metadata.uid.clone().unwrap_or_default();
        held.annotations = lease.metadata.annotations.clone().unwrap_or_default();
    }

    fn won(&mut self, lease: Lease, began: Duration) {
        self.note(&lease);
        self.leadership.held.lock().until = Some(began + self.options.renew_deadline);
        self.observed = Some(Observed { lease, changed_at: began });
    }

    fn build(&self, mut metadata: ObjectMeta, before: Option<&LeaseSpec>, now: MicroTime) -> Lease {
        metadata.managed_fields = None;
        let same_holder = before.and_then(|s| s.holder_identity.as_ref()) == Some(&self.options.identity);
        let transitions = before.and_then(|s| s.lease_transitions).unwrap_or(0);
        Lease {
            metadata,
            spec: Some(LeaseSpec {
                holder_identity: Some(self.options.identity.clone()),
                lease_duration_seconds: Some(i32::try_from(self.options.duration.as_secs()).unwrap_or(i32::MAX)),
                acquire_time: before.filter(|_| same_holder).and_then(|s| s.acquire_time.clone()).or_else(|| Some(now.clone())),
                renew_time: Some(now),
                lease_transitions: Some(if before.is_some() && !same_holder { transitions + 1 } else { transitions }),
                ..LeaseSpec::default()
            }),
        }
    }

    /// Gives the lease back, so that the next leader need not wait.
    async fn release(&mut self) {
        let Some(seen) = self.observed.take() else { return };
        let mut lease = seen.lease;
        lease.metadata.managed_fields = None;
        let now = MicroTime(self.clock.now());
        if let Some(spec) = &mut lease.spec {
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(1);
            spec.renew_time = Some(now.clone());
            spec.acquire_time = Some(now);
        }
        if let Err(error) = self.api.replace(&self.options.name, &PostParams::default(), &lease).await {
            tracing::debug!(lease = self.options.name, error = cluster::error::message(&error), "cannot give the lease back");
        }
    }
}

#[cfg(test)]
mod tests;
