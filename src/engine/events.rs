//! Tells people what happened as Kubernetes Events: on change only, bounded, never in the way of the work.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::mpsc;

use crate::clock::Clock;
use crate::metrics::Registry;
use crate::tasks::Tasks;

/// Whether somebody should look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventKind {
    /// As it should be.
    Normal,
    /// Somebody may care.
    Warning,
}

/// The object an event is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Regarding {
    /// apiVersion.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
}

impl Regarding {
    /// A typed object.
    pub fn of<K>(object: &K) -> Self
    where
        K: kube::Resource,
        K::DynamicType: Default,
    {
        let dynamic = K::DynamicType::default();
        let meta = object.meta();
        Self {
            api_version: K::api_version(&dynamic).into_owned(),
            kind: K::kind(&dynamic).into_owned(),
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
        }
    }
}

struct Told {
    regarding: Regarding,
    kind: EventKind,
    reason: &'static str,
    message: String,
}

/// Takes events in. Cloning shares it.
#[derive(Clone)]
pub struct Recorder {
    sender: mpsc::Sender<Told>,
    metrics: Registry,
}

/// Events that may wait to be written; more are counted and dropped.
const WAITING: usize = 1024;
/// Remembered last messages, to tell a change from a repetition.
const REMEMBERED: usize = 4096;
/// Longest message, as the API server allows (bytes).
const LONGEST: usize = 1024;

impl Recorder {
    /// A recorder that writes through `client` as `component` until the tasks stop.
    pub fn start(client: Client, component: &'static str, clock: Arc<dyn Clock>, metrics: Registry, tasks: &Tasks) -> Self {
        let (sender, receiver) = mpsc::channel(WAITING);
        tasks.spawn_until_stopped("events", write_all(client, component, clock, receiver));
        Self { sender, metrics }
    }

    /// A recorder whose events go nowhere.
    pub fn silent() -> Self {
        Self { sender: mpsc::channel(1).0, metrics: Registry::new() }
    }

    /// Says that something happened. The same reason and message about the same object is said once.
    pub fn record(&self, regarding: Regarding, kind: EventKind, reason: &'static str, message: impl Into<String>) {
        let told = Told { regarding, kind, reason, message: message.into() };
        if self.sender.try_send(told).is_err() {
            self.metrics.count("events_dropped_total", &[], 1);
        }
    }
}

/// Cuts a text to at most `most` bytes on a character boundary.
fn cut(mut text: String, most: usize) -> String {
    if text.len() > most {
        let mut end = most.saturating_sub('…'.len_utf8());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    text
}

async fn write_all(client: Client, component: &'static str, clock: Arc<dyn Clock>, mut receiver: mpsc::Receiver<Told>) {
    let mut last: BTreeMap<(Regarding, &'static str), String> = BTreeMap::new();
    let mut order: VecDeque<(Regarding, &'static str)> = VecDeque::new();
    while let Some(told) = receiver.recv().await {
        let message = cut(told.message, LONGEST);
        let key = (told.regarding, told.reason);
        if last.get(&key).is_some_and(|before| *before == message) {
            continue;
        }
        if last.insert(key.clone(), message.clone()).is_none() {
            order.push_back(key.clone());
            if order.len() > REMEMBERED
                && let Some(oldest) = order.pop_front()
            {
                last.remove(&oldest);
            }
        }
        let event = build(component, clock.as_ref(), key.0, told.kind, key.1, message);
        let namespace = event.metadata.namespace.clone().unwrap_or_default();
        let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
        if let Err(error) = api.create(&PostParams::default(), &event).await {
            tracing::debug!(reason = key.1, error = cluster::error::message(&error), "cannot write an event");
        }
    }
}

fn build(component: &str, clock: &dyn Clock, about: Regarding, kind: EventKind, reason: &str, message: String) -> Event {
    let now = clock.now();
    let namespace = if about.namespace.is_empty() { "default".to_owned() } else { about.namespace.clone() };
    // As client-go names them: the object's name and the time in hexadecimal.
    let name = format!("{}.{:x}", cut_name(&about.name), now.as_nanosecond());
    Event {
        metadata: ObjectMeta { name: Some(name), namespace: Some(namespace), ..ObjectMeta::default() },
        involved_object: ObjectReference {
            api_version: Some(about.api_version),
            kind: Some(about.kind),
            name: Some(about.name),
            namespace: (!about.namespace.is_empty()).then_some(about.namespace),
            uid: (!about.uid.is_empty()).then_some(about.uid),
            ..ObjectReference::default()
        },
        reason: Some(reason.to_owned()),
        message: Some(message),
        type_: Some(match kind {
            EventKind::Normal => "Normal".to_owned(),
            EventKind::Warning => "Warning".to_owned(),
        }),
        source: Some(EventSource { component: Some(component.to_owned()), host: None }),
        reporting_component: Some(component.to_owned()),
        reporting_instance: Some(component.to_owned()),
        action: Some(reason.to_owned()),
        count: Some(1),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        event_time: Some(MicroTime(now)),
        ..Event::default()
    }
}

/// Event names are object names: leave room for the time.
fn cut_name(name: &str) -> &str {
    let mut end = name.len().min(220);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name[..end].trim_end_matches(['-', '.'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_cut_on_a_boundary() {
        let text = cut("ä".repeat(600), LONGEST);
        assert!(text.len() <= LONGEST && text.ends_with('…'));
        assert_eq!(cut("short".into(), LONGEST), "short");
    }
}
