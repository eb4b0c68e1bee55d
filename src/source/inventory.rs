//! What the parent has from sources: metadata of every kind that a source may apply, followed by watch.

use std::sync::Arc;
use std::time::Duration;

use api::known::{annotation, label};
use api::object;
use cluster::{Object, Resource, Target};
use engine::{Cache, Tasks};
use kube::Client;
use plan::kinds::Kinds;
use plan::source::{Held, Inventory, Place};
use serde_json::{Value, json};

/// apiVersion and kind of everything that a source applies as itself.
const KINDS: [(&str, &str); 11] = [
    ("v1", "Namespace"),
    ("apps.clusternet.io/v1alpha1", "Manifest"),
    ("apps.clusternet.io/v1alpha1", "HelmChart"),
    ("apps.clusternet.io/v1alpha1", "Localization"),
    ("apps.clusternet.io/v1alpha1", "Globalization"),
    ("apps.clusternet.io/v1alpha1", "Subscription"),
    ("apps.clusternet.io/v1alpha1", "Base"),
    ("clusters.clusternet.io/v1beta1", "ManagedCluster"),
    ("gitops.anabranch.io/v1alpha1", "GitSource"),
    ("gitops.anabranch.io/v1alpha1", "GitTarget"),
    ("gitops.anabranch.io/v1alpha1", "Rollout"),
];

/// One cache per kind.
#[derive(Clone)]
pub(crate) struct Inventories {
    caches: Arc<Vec<(Resource, Cache<Object>)>>,
}

impl Inventories {
    /// Begins to follow; `lost` hears the source's label of an object that is gone.
    pub(crate) fn start(client: &Client, tasks: &Tasks, lost: impl Fn(&str) + Send + Sync + Clone + 'static) -> Self {
        let kinds = Kinds::built_in();
        let mut caches = Vec::new();
        for (api_version, kind) in KINDS {
            let Some(resource) = resource(&kinds, api_version, kind) else { continue };
            let cache = Cache::<Object>::builder().keep(|item| slim(&mut item.0)).build();
            let lost = lost.clone();
            cache.on_change(move |change| {
                if change.new.is_none()
                    && let Some(source) = change.old.and_then(|old| object::label(&old.0, label::SOURCE))
                {
                    lost(source);
                }
            });
            let mut target = Target::new(&resource, "").labels(label::SOURCE);
            target.metadata_only = true;
            cache.follow("follow applied objects", client.clone(), target, tasks);
            caches.push((resource, cache));
        }
        Self { caches: Arc::new(caches) }
    }

    /// Waits until every kind was listed, at most this long; afterwards an incomplete inventory deletes nothing.
    pub(crate) async fn synced(&self, patience: Duration) {
        let all = futures::future::join_all(self.caches.iter().map(|(_, cache)| cache.synced()));
        // Not to be synced is no error here: the inventory says so itself.
        let _ = tokio::time::timeout(patience, all).await;
    }

    /// All of it, now.
    pub(crate) fn read(&self) -> Inventory {
        let mut out = Inventory { complete: self.caches.iter().all(|(_, cache)| cache.is_synced()), ..Inventory::default() };
        for (resource, cache) in self.caches.iter() {
            for item in cache.list() {
                let object = &item.0;
                let place = Place {
                    group: resource.group.clone(),
                    kind: resource.kind.clone(),
                    namespace: object::namespace(object).to_owned(),
                    name: object::name(object).to_owned(),
                };
                let text = |key: &str| object::annotation(object, key).unwrap_or_default().to_owned();
                let held = Held {
                    uid: object::uid(object).to_owned(),
                    source: object::label(object, label::SOURCE).unwrap_or_default().to_owned(),
                    digest: text(plan::source::annotation::DIGEST),
                    keep: text(annotation::PRUNE) == "disabled",
                    deleting: object::is_deleting(object),
                };
                out.held.insert(place, held);
            }
        }
        out
    }

    /// The resource of a place.
    pub(crate) fn resource(&self, place: &Place) -> Option<&Resource> {
        self.find(place).map(|(resource, _)| resource)
    }

    fn find(&self, place: &Place) -> Option<&(Resource, Cache<Object>)> {
        self.caches.iter().find(|(resource, _)| resource.group == place.group && resource.kind == place.kind)
    }

    /// Takes in the answer to an own write.
    pub(crate) fn assume(&self, place: &Place, answer: Value) {
        if let Some((_, cache)) = self.find(place) {
            cache.assume(Object(answer));
        }
    }
}

fn resource(kinds: &Kinds, api_version: &str, kind: &str) -> Option<Resource> {
    let info = kinds.get(api_version, kind)?;
    let (group, version) = cluster::resource::split_api_version(api_version);
    Some(Resource { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned(), plural: info.plural.clone(), namespaced: info.namespaced })
}

/// Keeps identity, our label and our annotations; false for an object that lost our label.
fn slim(object: &mut Value) -> bool {
    let text = |field: &str| object::meta_text(object, field).to_owned();
    let Some(source) = object::label(object, label::SOURCE).map(str::to_owned) else { return false };
    let mut annotations = object::annotations(object);
    annotations.retain(|key, _| key == annotation::PRUNE || key == plan::source::annotation::DIGEST);
    let mut meta = json!({
        "name": text("name"), "namespace": text("namespace"), "uid": text("uid"), "resourceVersion": text("resourceVersion"),
        "labels": {label::SOURCE: source}, "annotations": annotations,
    });
    if object::is_deleting(object) {
        meta["deletionTimestamp"] = Value::String(text("deletionTimestamp"));
    }
    *object = json!({ "metadata": meta });
    true
}
