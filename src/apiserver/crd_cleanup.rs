//! The end of a CustomResourceDefinition: its instances are removed first; and the second look at names that were taken.

use std::sync::Arc;

use serde_json::json;
use store::Scope;

use crate::auth::Identity;
use crate::core::Core;
use crate::crd::{CLEANUP, TABLE, changed, set_condition};
use crate::internal;
use crate::object;

const WHO: &str = "system:apiserver";

/// Removes all instances, waits until they are gone, then lets the definition go.
pub(crate) async fn run(core: Arc<Core>, name: String, uid: String) {
    let Some(crd) = core.read_native(TABLE, &name).filter(|crd| object::uid(crd) == uid) else { return };
    let (group, plural) = (object::text(&crd, &["spec", "group"]).to_owned(), object::text(&crd, &["spec", "names", "plural"]).to_owned());
    let namespaced = object::text(&crd, &["spec", "scope"]) == "Namespaced";
    let table = format!("{group}/{plural}");
    let version = object::at(&crd, &["spec", "versions"])
        .and_then(serde_json::Value::as_array)
        .and_then(|versions| versions.iter().find(|v| v.get("served") == Some(&json!(true))).or(versions.first()))
        .map(|v| object::text(v, &["name"]).to_owned())
        .unwrap_or_default();
    let who = Identity::master(WHO);
    let Ok(mut watch) = core.store.watch(&table, Scope::Table, core.store.revision()) else { return };
    let mut keys = Vec::new();
    core.store.scan(&table, "", &mut |entry| keys.push(entry.key.to_string()));
    for key in keys {
        let (namespace, object) = if namespaced { key.split_once('/').unwrap_or(("", &key)) } else { ("", key.as_str()) };
        let path = internal::path(&group, &version, namespace, &plural, object);
        if let Err(error) = internal::request(&core, &who, http::Method::DELETE, &path, "application/json", None).await
            && error.reason != "NotFound"
        {
            tracing::debug!(%error, "remove an instance of a definition that goes");
        }
    }
    loop {
        if core.store.count(&table) == 0 {
            break;
        }
        tokio::select! {
            event = watch.next() => if event.is_none() { break },
            () = core.options.shutdown.cancelled() => return,
        }
    }
    let now = object::instant(core.now());
    let path = internal::path("apiextensions.k8s.io", "v1", "", "customresourcedefinitions", &name);
    for _ in 0..8 {
        let Some(mut crd) = core.read_native(TABLE, &name).filter(|crd| object::uid(crd) == uid) else { return };
        let finalizers: Vec<String> = object::finalizers(&crd).into_iter().filter(|f| *f != CLEANUP).map(str::to_owned).collect();
        object::metadata(&mut crd).insert("finalizers".into(), json!(finalizers));
        set_condition(&mut crd, "Terminating", "False", "InstanceDeletionCompleted", "removed all instances", &now);
        let done = internal::request(&core, &who, http::Method::PUT, &path, "application/json", Some(&crd)).await;
        match done {
            Err(error) if error.reason == "Conflict" => {}
            Err(error) => {
                tracing::debug!(%error, "let a definition go");
                return;
            }
            Ok(_) => return,
        }
    }
}

/// Writes a definition again so that its names are looked at again.
pub(crate) async fn resettle(core: Arc<Core>, name: String) {
    let who = Identity::master(WHO);
    let path = internal::path("apiextensions.k8s.io", "v1", "", "customresourcedefinitions", &name);
    let path = format!("{path}/status?fieldManager=kube-apiserver");
    let Some(crd) = core.read_native(TABLE, &name) else { return };
    match internal::request(&core, &who, http::Method::PUT, &path, "application/json", Some(&crd)).await {
        Ok(_) => changed(&core),
        Err(error) => tracing::debug!(%error, "look again at the names of a definition"),
    }
}
