//! The controllers of a server in this process: its store is read directly, its changes come from one watcher, and writes go
//! through the router like everybody's.

use std::sync::Arc;

use futures::future::BoxFuture;
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use serde_json::Value;
use store::{EventKind, Store, Watch};

use super::runner::{Backend, Feed, FeedItem};
use super::{Call, CallError, Change};
use crate::auth::{Identity, Objects};
use crate::{ApiServer, body};

fn table(group: &str, plural: &str) -> String {
    format!("{group}/{plural}")
}

/// Reads objects from a store.
#[derive(Clone, Debug)]
pub struct Stored(pub Store);

impl Objects for Stored {
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let key = crate::object::key(!namespace.is_empty(), namespace, name);
        let entry = self.0.get(&table(group, plural), &key)?;
        serde_json::from_slice(&entry.value).ok().map(Arc::new)
    }

    fn list(&self, group: &str, plural: &str, namespace: Option<&str>) -> Vec<Arc<Value>> {
        let prefix = namespace.filter(|namespace| !namespace.is_empty()).map(|namespace| format!("{namespace}/"));
        let mut entries = Vec::new();
        self.0.scan(&table(group, plural), prefix.as_deref().unwrap_or(""), &mut |entry| entries.push(entry.clone()));
        entries.iter().filter_map(|entry| serde_json::from_slice(&entry.value).ok().map(Arc::new)).collect()
    }
}

/// A server in this process.
#[derive(Debug)]
pub struct Local {
    server: ApiServer,
    stored: Stored,
    who: Identity,
}

impl Local {
    /// The server, as its own controllers use it.
    pub fn new(server: ApiServer) -> Self {
        let stored = Stored(server.store().clone());
        Self { server, stored, who: Identity::master("system:kube-controller-manager") }
    }
}

impl Objects for Local {
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.stored.get(group, plural, namespace, name)
    }

    fn list(&self, group: &str, plural: &str, namespace: Option<&str>) -> Vec<Arc<Value>> {
        self.stored.list(group, plural, namespace)
    }
}

impl Backend for Local {
    fn call(&self, call: Call) -> BoxFuture<'_, Result<Value, CallError>> {
        Box::pin(async move {
            let failed = |message: String| CallError {
                method: call.method,
                path: call.path.clone(),
                code: 0,
                reason: String::new(),
                message,
            };
            let bytes = serde_json::to_vec(&call.body).map_err(|error| failed(error.to_string()))?;
            let request = http::Request::builder()
                .method(call.method)
                .uri(&call.path)
                .header("content-type", call.content_type)
                .header("user-agent", "kube-controller-manager")
                .body(body::full(bytes))
                .map_err(|error| failed(error.to_string()))?;
            let response = self.server.request(self.who.clone(), request).await;
            let code = response.status();
            let answer = response.into_body().collect().await.map_err(|error| failed(error.to_string()))?.to_bytes();
            let value: Value = serde_json::from_slice(&answer).unwrap_or_default();
            if code.is_success() { Ok(value) } else { Err(call.error(code.as_u16(), &value)) }
        })
    }

    fn now(&self) -> Timestamp {
        self.server.core().now()
    }
}

/// The changes of a store.
#[derive(Debug)]
pub struct StoreFeed {
    store: Store,
    watch: Option<Watch>,
}

impl StoreFeed {
    /// Begins with everything there is.
    pub fn new(store: Store) -> Self {
        Self { store, watch: None }
    }

    /// Everything there is, and a watch of what comes after it.
    fn restart(&mut self) -> FeedItem {
        // What is written between the two is seen twice, which does no harm; it is never missed.
        let watch = self.store.watch_all(self.store.revision());
        let mut all = Vec::new();
        for (name, _) in self.store.tables() {
            let (group, plural) = name.split_once('/').unwrap_or(("", &name));
            self.store.scan(&name, "", &mut |entry| all.extend(Change::read(group, plural, &entry.value, false)));
        }
        self.watch = watch.ok();
        FeedItem::Restart(all)
    }
}

fn change(event: &store::Event) -> Option<FeedItem> {
    let entry = &event.entry;
    let (group, plural) = entry.table.split_once('/').unwrap_or(("", &entry.table));
    let change = Change::read(group, plural, &entry.value, event.kind == EventKind::Deleted)?;
    Some(FeedItem::Change(Box::new(change)))
}

impl Feed for StoreFeed {
    fn next(&mut self) -> BoxFuture<'_, FeedItem> {
        Box::pin(async move {
            loop {
                let Some(watch) = &mut self.watch else { return self.restart() };
                match watch.next().await {
                    Some(event) => {
                        if let Some(item) = change(&event) {
                            return item;
                        }
                    }
                    // Lagged too far behind: everything is looked at anew.
                    None => self.watch = None,
                }
            }
        })
    }

    fn ready(&mut self) -> Option<FeedItem> {
        if self.watch.is_none() {
            return Some(self.restart());
        }
        let watch = self.watch.as_mut()?;
        loop {
            match watch.try_next() {
                Some(event) => {
                    if let Some(item) = change(&event) {
                        return Some(item);
                    }
                }
                None => return None,
            }
        }
    }
}
