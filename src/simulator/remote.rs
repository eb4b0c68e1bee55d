//! The same controllers against any API server: its objects are watched into a cache, writes go through a client.

use std::collections::BTreeMap;
use std::sync::Arc;

use apiserver::auth::Objects;
use apiserver::controllers::kinds::{
    CONTROLLER_REVISION, CRON_JOB, DAEMON_SET, DEPLOYMENT, JOB, NAMESPACE, NODE, PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, POD,
    REPLICATION_CONTROLLER, REPLICA_SET, SERVICE, STATEFUL_SET,
};
use apiserver::controllers::{run as run_controllers, Backend, Call, CallError, Change, Feed, FeedItem, Kind};
use futures::future::BoxFuture;
use futures::stream::{select_all, BoxStream};
use futures::StreamExt as _;
use jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::watcher::{self, Event};
use kube::runtime::WatchStreamExt as _;
use kube::{Api, Client};
use parking_lot::RwLock;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::value::{name, namespace, text};
use crate::{controllers, Options};

/// What the controllers of a child look at.
const WATCHED: [Kind; 14] = [
    NAMESPACE,
    NODE,
    POD,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    SERVICE,
    REPLICATION_CONTROLLER,
    DEPLOYMENT,
    REPLICA_SET,
    STATEFUL_SET,
    DAEMON_SET,
    CONTROLLER_REVISION,
    JOB,
    CRON_JOB,
];

type Place = (&'static str, String, String);

/// The objects of a server as far as they were seen.
struct Remote {
    client: Client,
    objects: RwLock<BTreeMap<Place, Arc<Value>>>,
    /// What our own writes answered, so that the next turn sees them before the watch tells.
    told: mpsc::UnboundedSender<Change>,
}

fn version(object: &Value) -> u64 {
    text(object, &["metadata", "resourceVersion"]).parse().unwrap_or(0)
}

impl Remote {
    /// Takes an object in unless a newer form is known.
    fn put(&self, kind: &Kind, object: Value) -> Option<Change> {
        let place = (kind.plural, namespace(&object).to_owned(), name(&object).to_owned());
        let mut objects = self.objects.write();
        if objects.get(&place).is_some_and(|known| version(known) >= version(&object)) {
            return None;
        }
        let change = Change::of(kind.group, kind.plural, &object, false);
        objects.insert(place, Arc::new(object));
        change
    }

    fn remove(&self, kind: &Kind, object: &Value) -> Option<Change> {
        let place = (kind.plural, namespace(object).to_owned(), name(object).to_owned());
        self.objects.write().remove(&place);
        Change::of(kind.group, kind.plural, object, true)
    }
}

impl Objects for Remote {
    fn get(&self, _: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let plural = WATCHED.iter().find(|kind| kind.plural == plural)?.plural;
        self.objects.read().get(&(plural, namespace.to_owned(), name.to_owned())).cloned()
    }

    fn list(&self, _: &str, plural: &str, namespace: Option<&str>) -> Vec<Arc<Value>> {
        let Some(kind) = WATCHED.iter().find(|kind| kind.plural == plural) else { return Vec::new() };
        let objects = self.objects.read();
        let start = (kind.plural, namespace.unwrap_or("").to_owned(), String::new());
        objects
            .range(start..)
            .take_while(|((plural, space, _), _)| *plural == kind.plural && namespace.is_none_or(|wanted| wanted == space))
            .map(|(_, object)| object.clone())
            .collect()
    }
}

impl Backend for Remote {
    fn call(&self, call: Call) -> BoxFuture<'_, Result<Value, CallError>> {
        Box::pin(async move {
            let failed = |code: u16, message: String| CallError {
                method: call.method,
                path: call.path.clone(),
                code,
                reason: String::new(),
                message,
            };
            let body = serde_json::to_vec(&call.body).map_err(|error| failed(0, error.to_string()))?;
            let request = http::Request::builder()
                .method(call.method)
                .uri(&call.path)
                .header("content-type", call.content_type)
                .body(body)
                .map_err(|error| failed(0, error.to_string()))?;
            match self.client.request::<Value>(request).await {
                Ok(answer) => {
                    let kind = WATCHED.iter().find(|kind| text(&answer, &["kind"]) == kind.kind);
                    if let Some(change) = kind.and_then(|kind| self.put(kind, answer.clone())) {
                        // The receiver lives as long as the controllers do.
                        let _ = self.told.send(change);
                    }
                    Ok(answer)
                }
                Err(kube::Error::Api(status)) => Err(failed(status.code, status.message.clone())),
                Err(error) => Err(failed(0, error.to_string())),
            }
        })
    }

    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

type Seen = (Kind, Result<Event<DynamicObject>, watcher::Error>);

/// The changes of a server: what watches bring, and what our own writes answered.
struct Watches {
    remote: Arc<Remote>,
    events: BoxStream<'static, Seen>,
    told: mpsc::UnboundedReceiver<Change>,
    /// Kinds whose first list is still under way: nothing is decided before all are there.
    missing: usize,
    early: Vec<Change>,
    /// Objects of a list under way, by kind: what a new list does not name is gone.
    listing: BTreeMap<&'static str, Vec<Value>>,
    queued: Vec<Change>,
}

fn value(object: &DynamicObject, kind: &Kind) -> Option<Value> {
    let mut value = serde_json::to_value(object).ok()?;
    value["apiVersion"] = kind.api_version.into();
    value["kind"] = kind.kind.into();
    Some(value)
}

impl Watches {
    fn take(&mut self, (kind, event): Seen) {
        let event = match event {
            Ok(event) => event,
            // The watcher comes again by itself.
            Err(error) => {
                tracing::debug!(kind = kind.kind, error = %error, "a watch failed");
                return;
            }
        };
        match event {
            Event::Init => {
                self.listing.insert(kind.plural, Vec::new());
            }
            Event::InitApply(object) => {
                let value = value(&object, &kind);
                self.listing.entry(kind.plural).or_default().extend(value);
            }
            Event::InitDone => {
                let listed = self.listing.remove(kind.plural).unwrap_or_default();
                let known = self.remote.list("", kind.plural, None);
                let gone = known.iter().filter(|old| !listed.iter().any(|new| name(new) == name(old) && namespace(new) == namespace(old)));
                let mut changes: Vec<Change> = gone.filter_map(|old| self.remote.remove(&kind, old)).collect();
                changes.extend(listed.into_iter().filter_map(|object| self.remote.put(&kind, object)));
                if self.missing > 0 {
                    self.missing -= 1;
                    self.early.extend(changes);
                } else {
                    self.queued.extend(changes);
                }
            }
            Event::Apply(object) => {
                let change = value(&object, &kind).and_then(|object| self.remote.put(&kind, object));
                self.queued.extend(change);
            }
            Event::Delete(object) => {
                let change = value(&object, &kind).and_then(|object| self.remote.remove(&kind, &object));
                self.queued.extend(change);
            }
        }
    }

    fn pop(&mut self) -> Option<FeedItem> {
        if self.missing > 0 {
            return None;
        }
        if !self.early.is_empty() {
            return Some(FeedItem::Restart(std::mem::take(&mut self.early)));
        }
        if !self.queued.is_empty() {
            return Some(FeedItem::Change(Box::new(self.queued.remove(0))));
        }
        self.told.try_recv().ok().map(|change| FeedItem::Change(Box::new(change)))
    }
}

impl Feed for Watches {
    fn next(&mut self) -> BoxFuture<'_, FeedItem> {
        Box::pin(async move {
            loop {
                if let Some(item) = self.pop() {
                    return item;
                }
                tokio::select! {
                    seen = self.events.next() => match seen {
                        Some(seen) => self.take(seen),
                        None => return FeedItem::Closed,
                    },
                    change = self.told.recv() => self.queued.extend(change),
                }
            }
        })
    }

    fn ready(&mut self) -> Option<FeedItem> {
        self.pop()
    }
}

/// Makes any API server without nodes a simulated child: nodes, a kubelet, and, when the options say so, the workload controllers.
///
/// Ends at shutdown.
pub async fn run(client: Client, options: Options, shutdown: CancellationToken) {
    let (told, receiver) = mpsc::unbounded_channel();
    let remote = Arc::new(Remote { client: client.clone(), objects: RwLock::default(), told });
    let watches = WATCHED.iter().map(|kind| {
        let (group, version) = kind.api_version.split_once('/').unwrap_or(("", kind.api_version));
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind.kind), kind.plural);
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        watcher::watcher(api, watcher::Config::default()).default_backoff().map(move |event| (*kind, event)).boxed()
    });
    let feed = Watches {
        remote: remote.clone(),
        events: select_all(watches).boxed(),
        told: receiver,
        missing: WATCHED.len(),
        early: Vec::new(),
        listing: BTreeMap::new(),
        queued: Vec::new(),
    };
    run_controllers(remote, feed, controllers(options), shutdown).await;
}
