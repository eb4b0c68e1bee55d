//! Follows a collection: list, then watch from there; resumes, lists again when the server has forgotten the version.

use std::ops::ControlFlow;
use std::time::Duration;

use futures::TryStreamExt as _;
use http::Request;
use kube::Client;
use kube::core::WatchEvent;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Trouble, trouble};
use crate::resource::{Resource, escaped};

/// What following needs to know of an object.
pub trait Item: DeserializeOwned + Clone + Send + Sync + 'static {
    /// Name.
    fn name(&self) -> &str;
    /// Namespace; empty for cluster-scoped objects.
    fn namespace(&self) -> &str;
    /// Uid.
    fn uid(&self) -> &str;
    /// Resource version.
    fn resource_version(&self) -> &str;
    /// Drops what no reader of a cache needs (`managedFields`).
    fn slim(&mut self);
}

impl<K> Item for K
where
    K: kube::Resource + DeserializeOwned + Clone + Send + Sync + 'static,
{
    fn name(&self) -> &str {
        self.meta().name.as_deref().unwrap_or_default()
    }
    fn namespace(&self) -> &str {
        self.meta().namespace.as_deref().unwrap_or_default()
    }
    fn uid(&self) -> &str {
        self.meta().uid.as_deref().unwrap_or_default()
    }
    fn resource_version(&self) -> &str {
        self.meta().resource_version.as_deref().unwrap_or_default()
    }
    fn slim(&mut self) {
        self.meta_mut().managed_fields = None;
    }
}

/// An object of any kind, as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Object(pub Value);

impl Object {
    fn meta(&self, key: &str) -> &str {
        self.0.get("metadata").and_then(|m| m.get(key)).and_then(Value::as_str).unwrap_or_default()
    }
}

impl Item for Object {
    fn name(&self) -> &str {
        self.meta("name")
    }
    fn namespace(&self) -> &str {
        self.meta("namespace")
    }
    fn uid(&self) -> &str {
        self.meta("uid")
    }
    fn resource_version(&self) -> &str {
        self.meta("resourceVersion")
    }
    fn slim(&mut self) {
        if let Some(metadata) = self.0.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
    }
}

/// What to follow.
#[derive(Clone, Debug)]
pub struct Target {
    /// Path of the collection.
    pub path: String,
    /// Label selector.
    pub labels: Option<String>,
    /// Field selector.
    pub fields: Option<String>,
    /// Ask for metadata only (`PartialObjectMetadata`).
    pub metadata_only: bool,
}

impl Target {
    /// All objects of a resource; `namespace` empty means everywhere.
    pub fn new(resource: &Resource, namespace: &str) -> Self {
        Self { path: resource.collection(namespace), labels: None, fields: None, metadata_only: false }
    }

    /// All objects of a typed kind; `namespace` empty means everywhere.
    pub fn of<K>(namespace: &str) -> Self
    where
        K: kube::Resource,
        K::DynamicType: Default,
    {
        let namespace = (!namespace.is_empty()).then_some(namespace);
        Self { path: K::url_path(&K::DynamicType::default(), namespace), labels: None, fields: None, metadata_only: false }
    }

    /// Only objects with these labels.
    #[must_use]
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.labels = Some(selector.into());
        self
    }

    /// Only objects with these fields.
    #[must_use]
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.fields = Some(selector.into());
        self
    }

    fn query(&self, more: &[(&str, &str)]) -> String {
        let mut path = self.path.clone();
        let mut sign = '?';
        let selectors = [("labelSelector", self.labels.as_deref()), ("fieldSelector", self.fields.as_deref())];
        for (key, value) in
            selectors.into_iter().filter_map(|(k, v)| Some((k, v?))).chain(more.iter().copied()).filter(|(_, v)| !v.is_empty())
        {
            path.push(sign);
            sign = '&';
            path.push_str(key);
            path.push('=');
            path.push_str(&escaped(value));
        }
        path
    }

    fn request(&self, path: &str, list: bool) -> Result<Request<Vec<u8>>, kube::Error> {
        let kind = if list { "PartialObjectMetadataList" } else { "PartialObjectMetadata" };
        let accept = if self.metadata_only {
            format!("application/json;as={kind};g=meta.k8s.io;v=v1")
        } else {
            "application/json".to_owned()
        };
        Request::get(path).header(http::header::ACCEPT, accept).body(Vec::new()).map_err(kube::Error::HttpError)
    }
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Event<T> {
    /// Everything there is now: what is not in it is gone.
    Reset(Vec<T>),
    /// An object was made or changed.
    Apply(T),
    /// An object is gone; its last state.
    Delete(T),
    /// Listing or watching failed; it will be tried again after the given wait.
    Failed {
        /// The error.
        error: std::sync::Arc<kube::Error>,
        /// The wait before the next try.
        wait: Duration,
    },
}

#[derive(Deserialize)]
struct ListMeta {
    #[serde(rename = "resourceVersion", default)]
    resource_version: String,
    #[serde(rename = "continue", default)]
    next: String,
}

#[derive(Deserialize)]
struct List<T> {
    metadata: ListMeta,
    /// Go writes an empty list of metadata as `null`.
    #[serde(default = "Option::default")]
    items: Option<Vec<T>>,
}

/// First and longest wait after a failure.
const WAIT: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(15));
/// Watches are renewed about this often (seconds), spread so that a fleet does not renew at once.
const WATCH_SECONDS: (u64, u64) = (240, 290);
/// Objects per page of the first list.
const PAGE: &str = "1000";

/// Spreads a number of seconds by the path and a counter: no randomness needed to keep watchers apart.
fn spread(path: &str, turn: u64, (low, high): (u64, u64)) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ turn;
    for byte in path.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    low + hash % (high - low)
}

async fn list<T: Item>(client: &Client, target: &Target) -> Result<(Vec<T>, String), kube::Error> {
    let mut items = Vec::new();
    let mut next = String::new();
    loop {
        let path = target.query(&[("limit", PAGE), ("continue", &next)]);
        let page: List<T> = client.request(target.request(&path, true)?).await?;
        items.extend(page.items.unwrap_or_default());
        next = page.metadata.next;
        if next.is_empty() {
            return Ok((items, page.metadata.resource_version));
        }
    }
}

/// Follows a collection for ever, or until `on_event` breaks. Drop the future to stop.
///
/// Events come in the order of the server. After trouble the watch resumes where it was; when the server no longer
/// has that version, `Reset` comes again. `on_event` runs on the caller's task and must not block.
pub async fn follow<T: Item>(client: Client, target: Target, mut on_event: impl FnMut(Event<T>) -> ControlFlow<()>) {
    let mut version = None::<String>;
    let mut failures = 0_u32;
    let mut turn = 0_u64;
    loop {
        turn += 1;
        let from = match version.take() {
            Some(from) => from,
            None => match list::<T>(&client, &target).await {
                Ok((items, at)) => {
                    failures = 0;
                    if on_event(Event::Reset(items)).is_break() {
                        return;
                    }
                    at
                }
                Err(error) => {
                    if fail(error, &mut failures, &mut on_event).await.is_break() {
                        return;
                    }
                    continue;
                }
            },
        };
        match watch_once(&client, &target, from, turn, &mut on_event).await {
            Watched::Stopped => return,
            Watched::Ended { at, progress } => {
                if progress {
                    failures = 0;
                } else {
                    // A server that closes at once would otherwise be asked in a tight loop.
                    tokio::time::sleep(WAIT.0).await;
                }
                version = Some(at);
            }
            Watched::Failed { at, error, progress } => {
                if progress {
                    failures = 0;
                }
                match trouble(&error) {
                    Trouble::Gone => {}
                    Trouble::Unavailable | Trouble::Throttled(_) => version = Some(at),
                    _ => version = None,
                }
                if trouble(&error) == Trouble::Gone && failures == 0 {
                    failures = 1;
                    continue;
                }
                if fail(error, &mut failures, &mut on_event).await.is_break() {
                    return;
                }
            }
        }
    }
}

async fn fail<T>(
    error: kube::Error,
    failures: &mut u32,
    on_event: &mut impl FnMut(Event<T>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let doubled = WAIT.0.saturating_mul(1 << (*failures).min(10)).min(WAIT.1);
    let wait = match trouble(&error) {
        Trouble::Throttled(Some(asked)) => asked.clamp(doubled, Duration::from_secs(60)),
        _ => doubled,
    };
    *failures += 1;
    on_event(Event::Failed { error: std::sync::Arc::new(error), wait })?;
    tokio::time::sleep(wait).await;
    ControlFlow::Continue(())
}

enum Watched {
    Stopped,
    Ended { at: String, progress: bool },
    Failed { at: String, error: kube::Error, progress: bool },
}

async fn watch_once<T: Item>(
    client: &Client,
    target: &Target,
    from: String,
    turn: u64,
    on_event: &mut impl FnMut(Event<T>) -> ControlFlow<()>,
) -> Watched {
    let seconds = spread(&target.path, turn, WATCH_SECONDS);
    let path = target.query(&[
        ("watch", "true"),
        ("allowWatchBookmarks", "true"),
        ("resourceVersion", &from),
        ("timeoutSeconds", &seconds.to_string()),
    ]);
    let mut at = from;
    let mut progress = false;
    let request = match target.request(&path, false) {
        Ok(request) => request,
        Err(error) => return Watched::Failed { at, error, progress },
    };
    let stream = match client.request_events::<T>(request).await {
        Ok(stream) => stream,
        Err(error) => return Watched::Failed { at, error, progress },
    };
    let mut stream = std::pin::pin!(stream);
    // A server that stays silent past the agreed end is gone.
    let end = tokio::time::Instant::now() + Duration::from_secs(seconds + 30);
    loop {
        let event = match tokio::time::timeout_at(end, stream.try_next()).await {
            Err(_) | Ok(Ok(None)) => return Watched::Ended { at, progress },
            Ok(Err(error)) => return Watched::Failed { at, error, progress },
            Ok(Ok(Some(event))) => event,
        };
        progress = true;
        let flow = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                object.resource_version().clone_into(&mut at);
                on_event(Event::Apply(object))
            }
            WatchEvent::Deleted(object) => {
                object.resource_version().clone_into(&mut at);
                on_event(Event::Delete(object))
            }
            WatchEvent::Bookmark(mark) => {
                at = mark.metadata.resource_version;
                ControlFlow::Continue(())
            }
            WatchEvent::Error(status) => return Watched::Failed { at, error: kube::Error::Api(status), progress },
        };
        if flow.is_break() {
            return Watched::Stopped;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_asks_for_what_it_names() {
        let target = Target::of::<k8s_openapi::api::core::v1::ConfigMap>("a").labels("x in (1,2)");
        assert_eq!(target.query(&[("limit", "5"), ("continue", "")]), "/api/v1/namespaces/a/configmaps?labelSelector=x%20in%20%281%2C2%29&limit=5");
    }

    /// A server that answers from a script, one line a request, and keeps what it was asked.
    fn scripted(script: &[(u16, &str)]) -> (Client, std::sync::Arc<parking_lot::Mutex<Vec<String>>>) {
        let asked = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
        let left: std::collections::VecDeque<(u16, String)> = script.iter().map(|(code, body)| (*code, (*body).to_owned())).collect();
        let (seen, left) = (asked.clone(), std::sync::Arc::new(parking_lot::Mutex::new(left)));
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let query = request.uri().query().unwrap_or_default();
            let value = |key: &str| query.split('&').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('=')).unwrap_or_default().to_owned();
            seen.lock().push(if value("watch").is_empty() { "list".to_owned() } else { format!("watch {}", value("resourceVersion")) });
            let (code, body) = left.lock().pop_front().unwrap_or((500, String::new()));
            async move { http::Response::builder().status(code).body(http_body_util::Full::new(bytes::Bytes::from(body))) }
        });
        (crate::in_process(service), asked)
    }

    fn status(code: u16, reason: &str) -> String {
        format!(r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"no","reason":"{reason}","code":{code}}}"#)
    }

    #[tokio::test]
    async fn nothing_is_lost_or_doubled_when_the_server_is_in_trouble() {
        let object = |name: &str, version: u32| format!(r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"n","resourceVersion":"{version}"}}}}"#);
        let list = |items: &[String], version: u32| format!(r#"{{"kind":"List","apiVersion":"v1","metadata":{{"resourceVersion":"{version}"}},"items":[{}]}}"#, items.join(","));
        let event = |kind: &str, object: &str| format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n");
        let gone = event("ERROR", &status(410, "Expired"));
        let script = [
            (429, status(429, "TooManyRequests")),
            (200, list(&[object("a", 1)], 1)),
            (200, event("ADDED", &object("b", 2))),
            (503, status(503, "ServiceUnavailable")),
            (200, gone),
            (200, list(&[object("b", 2), object("c", 3)], 3)),
            (200, event("DELETED", &object("c", 4))),
        ];
        let script: Vec<(u16, &str)> = script.iter().map(|(code, body)| (*code, body.as_str())).collect();
        let (client, asked) = scripted(&script);
        let mut told = Vec::new();
        let target = Target::of::<k8s_openapi::api::core::v1::ConfigMap>("n");
        follow::<Object>(client, target, |event| {
            let names = |items: &[Object]| items.iter().map(|item| item.name().to_owned()).collect::<Vec<_>>().join(",");
            told.push(match &event {
                Event::Reset(items) => format!("reset {}", names(items)),
                Event::Apply(item) => format!("apply {}", item.name()),
                Event::Delete(item) => format!("delete {}", item.name()),
                Event::Failed { .. } => "failed".to_owned(),
            });
            if matches!(event, Event::Delete(_)) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .await;
        assert_eq!(told, ["failed", "reset a", "apply b", "failed", "reset b,c", "delete c"]);
        assert_eq!(*asked.lock(), ["list", "list", "watch 1", "watch 2", "watch 2", "list", "watch 3"]);
    }

    #[test]
    fn an_empty_list_of_metadata_is_null_on_a_real_server() {
        let text = r#"{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"510"},"items":null}"#;
        let list: List<Object> = serde_json::from_str(text).expect("a list");
        assert!(list.items.unwrap_or_default().is_empty());
    }

    #[test]
    fn renewals_are_spread() {
        let all: std::collections::BTreeSet<u64> = (0..50).map(|n| spread("/x", n, WATCH_SECONDS)).collect();
        assert!(all.len() > 10 && all.iter().all(|s| (240..290).contains(s)));
    }
}
