//! Writes a decision into a Subscription's status: bindings, replicas and conditions, nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::apps::Subscription;
use api::conditions::{self, Verdict};
use api::known::{condition, manager};
use api::reason::Reason;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};
use kube::{Api, Client};
use plan::placement::{Decision, Outcome, Placement, Previous, mark_left};
use serde::{Deserialize, Serialize, Serializer};

use crate::brain::{Again, Decided, Entry, Written, changed};

/// Tries after somebody else wrote in between.
const TRIES: usize = 5;

/// Why a decision could not be written.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The Subscription is gone or was made anew.
    #[error("bind {0}: the Subscription is gone")]
    Gone(String),
    /// Somebody else kept writing in between, or changed the spec.
    #[error("bind {0}: the Subscription has changed")]
    Changed(String),
    /// A plugin refuses.
    #[error("bind {key}: {plugin}: {why}")]
    Refused {
        /// Subscription.
        key: String,
        /// Plugin.
        plugin: &'static str,
        /// What it says.
        why: String,
    },
    /// The server refuses or cannot be reached.
    #[error("bind {key}")]
    Write {
        /// Subscription.
        key: String,
        /// Cause.
        #[source]
        source: kube::Error,
    },
}

impl BindError {
    /// What is to come of it.
    pub fn again(&self) -> Again {
        match self {
            Self::Gone(_) => Again::Never,
            Self::Changed(_) | Self::Refused { .. } | Self::Write { .. } => Again::Backoff,
        }
    }
}

/// The conditions after a decision.
pub fn conditions_after(before: &[Condition], decision: &Decision, generation: i64, mark: Option<&str>, now: &Time) -> Vec<Condition> {
    let mut list = before.to_vec();
    let generation = Some(generation).filter(|generation| *generation > 0);
    let verdict = Verdict::from(decision.is_bound());
    conditions::set(&mut list, condition::SCHEDULED, verdict, decision.reason.as_str(), &decision.message, generation, now);
    match decision.warnings.first() {
        Some((reason, _)) => {
            let texts: Vec<&str> = decision.warnings.iter().map(|(_, text)| text.as_str()).collect();
            let text = texts.join("; ");
            conditions::set(&mut list, condition::SCHEDULING_WARNING, Verdict::True, reason.as_str(), &text, generation, now);
        }
        None => _ = conditions::remove(&mut list, condition::SCHEDULING_WARNING),
    }
    if let Outcome::Bind(placement) | Outcome::Trim(placement) = &decision.outcome {
        mark_left(&mut list, &placement.left, generation, now);
    }
    if let Some(mark) = mark.filter(|_| decision.is_bound()) {
        conditions::set(&mut list, condition::REBALANCED, Verdict::True, Reason::Succeeded.as_str(), mark, generation, now);
    }
    list
}

/// Shares by feed key; null removes a feed that is no longer there.
type ReplicasPatch<'a> = BTreeMap<&'a str, Option<&'a [i32]>>;

#[derive(Serialize)]
struct Patch<'a> {
    metadata: Precondition<'a>,
    status: StatusPatch<'a>,
}

/// Of a JSON patch.
#[derive(Serialize)]
struct Operation<T> {
    op: &'static str,
    path: &'static str,
    value: T,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Precondition<'a> {
    resource_version: &'a str,
    uid: &'a str,
}

/// Absent members are left alone, null ones are removed.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusPatch<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    binding_clusters: Option<Option<Names<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    desired_releases: Option<Option<usize>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replicas: Option<Option<ReplicasPatch<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spec_hash: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    conditions: Option<&'a [Condition]>,
}

struct Names<'a>(&'a [Arc<str>]);

impl Serialize for Names<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|name| &**name))
    }
}

/// What is sent.
pub struct Patched {
    /// Kind of patch.
    pub content_type: &'static str,
    /// JSON.
    pub body: Vec<u8>,
}

/// The patch of a status; `None` when it would change nothing.
///
/// An object without a status gets one whole: a JSON patch, whose precondition is a test. A server takes half the time for it
/// that it takes to merge ten thousand names into nothing. Any other status is merged.
pub fn patch(
    placement: Option<&Placement>,
    entry: &Entry,
    is_fresh: bool,
    version: &str,
    previous: &Previous,
    before: &[Condition],
    after: &[Condition],
) -> Result<Option<Patched>, serde_json::Error> {
    let mut status = StatusPatch::default();
    if let Some(placement) = placement {
        let count = Some(placement.bindings.len()).filter(|count| *count > 0);
        let mut replicas: ReplicasPatch<'_> = previous.replicas.keys().map(|key| (key.as_str(), None)).collect();
        replicas.extend(placement.replicas.iter().map(|(key, shares)| (key.as_str(), Some(shares.as_slice()))));
        status.binding_clusters = Some(count.map(|_| Names(&placement.bindings)));
        status.desired_releases = Some(count);
        status.replicas = Some(Some(replicas).filter(|_| !placement.replicas.is_empty()));
        status.spec_hash = Some(placement.spec_hash);
    }
    if before != after {
        status.conditions = Some(after);
    }
    if placement.is_none() && status.conditions.is_none() {
        return Ok(None);
    }
    if is_fresh && previous.replicas.is_empty() && placement.is_some_and(|placement| !placement.bindings.is_empty()) {
        status.replicas = status.replicas.filter(Option::is_some);
        let operations = (
            Operation { op: "test", path: "/metadata/resourceVersion", value: version },
            Operation { op: "test", path: "/metadata/uid", value: &entry.uid },
            Operation { op: "add", path: "/status", value: status },
        );
        let body = serde_json::to_vec(&operations)?;
        return Ok(Some(Patched { content_type: "application/json-patch+json", body }));
    }
    let body = serde_json::to_vec(&Patch { metadata: Precondition { resource_version: version, uid: &entry.uid }, status })?;
    Ok(Some(Patched { content_type: "application/merge-patch+json", body }))
}

#[derive(Deserialize)]
struct Answer {
    metadata: ObjectMeta,
}

/// Writes a decision with the resource version as precondition. When somebody else wrote in between, the newest object is
/// read and, if its spec and bindings are what was decided on, the decision is written on top of it.
///
/// Returns what was written, or `None` when the object said so already.
pub async fn bind(client: &Client, decided: &Decided, now: &Time) -> Result<Option<Written>, BindError> {
    let subject = &decided.entry.subject;
    let (namespace, name) = api::object::split_key(&decided.key);
    let mark = subject.rebalance.then_some(subject.rebalance_mark.as_deref()).flatten();
    let failed = |source: kube::Error| BindError::Write { key: decided.key.to_string(), source };
    let mut previous = decided.entry.previous.as_ref().clone();
    let mut before = decided.entry.conditions.clone();
    let mut is_fresh = decided.entry.is_fresh;
    let mut version = decided.entry.resource_version.clone();
    for _ in 0..TRIES {
        let after = conditions_after(&before, &decided.decision, subject.generation, mark, now);
        let placement = changed(&decided.decision, &previous);
        let body = patch(placement, &decided.entry, is_fresh, &version, &previous, &before, &after);
        let Some(patched) = body.map_err(|error| failed(kube::Error::SerdeError(error)))? else { return Ok(None) };
        let path = format!(
            "{}/{name}/status?fieldManager={}",
            <Subscription as kube::Resource>::url_path(&(), Some(namespace)),
            manager::SCHEDULER
        );
        let request = http::Request::patch(path).header(http::header::CONTENT_TYPE, patched.content_type);
        let request = request.body(patched.body).map_err(|error| failed(kube::Error::HttpError(error)))?;
        match client.request::<Answer>(request).await {
            Ok(answer) => {
                let resource_version = answer.metadata.resource_version.unwrap_or_default();
                return Ok(Some(Written { resource_version, conditions: after }));
            }
            Err(kube::Error::Api(status)) if status.code == 404 => return Err(BindError::Gone(decided.key.to_string())),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            // A test that did not hold. Should the status itself be refused, the merge is too, and says so.
            Err(kube::Error::Api(status)) if status.code == 422 && is_fresh => is_fresh = false,
            Err(error) => return Err(failed(error)),
        }
        let newest = match Api::<Subscription>::namespaced(client.clone(), namespace).get_opt(name).await {
            Ok(Some(newest)) => newest,
            Ok(None) => return Err(BindError::Gone(decided.key.to_string())),
            Err(error) => return Err(failed(error)),
        };
        let meta = &newest.metadata;
        if meta.uid.as_deref().unwrap_or_default() != decided.entry.uid {
            return Err(BindError::Gone(decided.key.to_string()));
        }
        let status = newest.status.unwrap_or_default();
        let seen = Previous::of(&status);
        let ours = matches!(&decided.decision.outcome, Outcome::Bind(placement) | Outcome::Trim(placement) if placement.is_in(&seen));
        if newest.spec != *subject.spec || (!ours && seen != *decided.entry.previous) {
            return Err(BindError::Changed(decided.key.to_string()));
        }
        previous = seen;
        before = status.conditions;
        version = meta.resource_version.clone().unwrap_or_default();
    }
    Err(BindError::Changed(decided.key.to_string()))
}
