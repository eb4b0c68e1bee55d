//! The turn of one GitSource: read, decide, perform, report.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::gitops::{GitSource, GitSourceStatus};
use api::known::{annotation, manager};
use api::reason::Reason;
use engine::{Cache, EventKind, Key, Next, Recorder, Regarding};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use parking_lot::Mutex;
use plan::source::{Report, settle};

use crate::Options;
use crate::inventory::Inventories;
use crate::state::State;
use crate::watch::Watcher;

/// Everything that turns need.
pub(crate) struct Worker {
    pub(crate) client: Client,
    pub(crate) options: Options,
    sources: Cache<GitSource>,
    pub(crate) inventories: Inventories,
    pub(crate) watcher: Watcher,
    recorder: Recorder,
    states: Mutex<BTreeMap<Key, Arc<tokio::sync::Mutex<State>>>>,
}

/// How a turn ended, and when the next one is due.
pub(crate) struct Ended {
    pub(crate) report: Report,
    pub(crate) next: Next,
    /// Nothing happened that the status does not say already.
    pub(crate) quiet: bool,
}

impl Worker {
    pub(crate) fn new(client: Client, options: Options, sources: Cache<GitSource>, inventories: Inventories, watcher: Watcher, recorder: Recorder) -> Self {
        Self { client, options, sources, inventories, watcher, recorder, states: Mutex::default() }
    }

    /// One turn.
    pub(crate) async fn turn(&self, key: &Key) -> Next {
        let Some(source) = self.sources.get_key(key).filter(|s| s.metadata.deletion_timestamp.is_none()) else {
            self.watcher.forget(key);
            self.states.lock().remove(key);
            return Next::Done;
        };
        let state = self.states.lock().entry(key.clone()).or_default().clone();
        // The queue never runs one key twice at once, so this lock never waits.
        let mut state = state.lock().await;
        let began = self.options.clock.monotonic();
        let ended = self.work(key, &source, &mut state).await;
        self.options.metrics.observe("source_turn_seconds", &[], self.options.clock.monotonic().saturating_sub(began));
        if !ended.quiet && !self.tell(&source, &ended.report).await {
            return Next::Again;
        }
        ended.next
    }

    /// Writes the status when it changed, and an event when something is wrong. False when it could not be written.
    pub(crate) async fn tell(&self, source: &GitSource, report: &Report) -> bool {
        // The newest copy counts: an earlier report of this turn may have changed it.
        let newest = self.sources.get_key(&Key::of(source));
        let current = newest.as_deref().unwrap_or(source);
        let now = api::Time(self.options.clock.now());
        let request = request_of(source);
        let before = current.status.clone().unwrap_or_default();
        let after = settle(&before, source.metadata.generation.unwrap_or_default(), &request, report, &now);
        self.record(source, &before, &after);
        let Some(patch) = plan::change::status_patch(current.status.as_ref(), &after) else { return true };
        let namespace = source.metadata.namespace.as_deref().unwrap_or_default();
        let name = source.metadata.name.as_deref().unwrap_or_default();
        let api: Api<GitSource> = Api::namespaced(self.client.clone(), namespace);
        let parameters = PatchParams { field_manager: Some(manager::SOURCE.to_owned()), ..PatchParams::default() };
        match api.patch_status(name, &parameters, &Patch::Merge(&patch)).await {
            Ok(answer) => {
                self.sources.assume(answer);
                true
            }
            Err(kube::Error::Api(status)) if status.code == 404 => true,
            Err(error) => {
                tracing::warn!(object = %Key::of(source), error = cluster::error::message(&error), "cannot write a status");
                false
            }
        }
    }

    fn record(&self, source: &GitSource, before: &GitSourceStatus, after: &GitSourceStatus) {
        let ready = |status: &GitSourceStatus| api::conditions::find(&status.conditions, "Ready").map(|c| (c.status.clone(), c.reason.clone(), c.message.clone()));
        let Some((verdict, reason, message)) = ready(after).filter(|now| Some(now) != ready(before).as_ref()) else { return };
        let Some(reason) = Reason::ALL.iter().copied().find(|r| r.as_str() == reason) else { return };
        let kind = if verdict == "False" { EventKind::Warning } else { EventKind::Normal };
        match (verdict.as_str(), ready(before).is_some_and(|(verdict, ..)| verdict == "False")) {
            ("False", _) => tracing::warn!(source = %Key::of(source), reason = reason.as_str(), message, "a source is not ready"),
            ("True", true) => tracing::info!(source = %Key::of(source), "a source is ready again"),
            _ => {}
        }
        if verdict != "Unknown" {
            self.recorder.record(Regarding::of(source), kind, reason.as_str(), message);
        }
    }

    /// The repository of a source with the credential that its Secret holds.
    pub(crate) async fn remote(&self, source: &GitSource) -> Result<git::Remote, Report> {
        let spec = &source.spec;
        let namespace = source.metadata.namespace.as_deref().unwrap_or_default();
        let invalid = |message: String| Report::Invalid(message);
        let url: git::Url = spec.url.parse().map_err(|error: git::UrlError| invalid(error.to_string()))?;
        let timeout = api::duration::parse(&spec.timeout).ok_or_else(|| invalid(format!("spec.timeout: `{}` is no duration", spec.timeout)))?;
        let mut access = git::Access { timeout: timeout.max(Duration::from_secs(1)), ..git::Access::anonymous() };
        if let Some(reference) = &spec.secret_ref {
            let entries = self.secret(namespace, &reference.name).await?;
            access.credential = Some(git::Credential::from_entries(&entries).map_err(|error| unread(Reason::AuthenticationFailed, format!("Secret {}: {error}", reference.name), false))?);
        }
        if let Some(reference) = &spec.ca_ref {
            let mut entries = self.secret(namespace, &reference.name).await?;
            let text = entries.remove("ca.crt").and_then(|bytes| String::from_utf8(bytes).ok());
            access.authority = Some(text.ok_or_else(|| unread(Reason::AuthenticationFailed, format!("Secret {}: `ca.crt` is missing", reference.name), false))?);
        }
        if let Some(proxy) = &spec.proxy {
            let mut text = proxy.url.clone();
            if let Some(reference) = &proxy.secret_ref {
                let entries = self.secret(namespace, &reference.name).await?;
                if let (git::Credential::Basic { user, password }, Some(rest)) = (
                    git::Credential::from_entries(&entries).map_err(|error| unread(Reason::AuthenticationFailed, format!("Secret {}: {error}", reference.name), false))?,
                    proxy.url.strip_prefix("http://"),
                ) {
                    text = password.in_url("http://", &user, rest);
                }
            }
            access.proxy = Some(git::Secret::new(text));
        }
        self.options.git.remote(&url, &access).await.map_err(|error| invalid(cluster::error::chain(&error)))
    }

    async fn secret(&self, namespace: &str, name: &str) -> Result<BTreeMap<String, Vec<u8>>, Report> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        match api.get_opt(name).await {
            Ok(Some(secret)) => Ok(secret.data.unwrap_or_default().into_iter().map(|(k, v)| (k, v.0)).collect()),
            Ok(None) => Err(unread(Reason::DependencyMissing, format!("the Secret {name} does not exist"), true)),
            Err(error) => Err(unread(Reason::ServerUnavailable, format!("the Secret {name} cannot be read: {}", cluster::error::message(&error)), true)),
        }
    }
}

/// The newest wish of a person to look now.
pub(crate) fn request_of(source: &GitSource) -> String {
    source.metadata.annotations.as_ref().and_then(|a| a.get(annotation::RECONCILE_REQUEST)).cloned().unwrap_or_default()
}

pub(crate) fn unread(reason: Reason, message: String, transient: bool) -> Report {
    Report::Unread { reason, message, transient }
}
