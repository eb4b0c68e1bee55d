//! Subscription -> Bases and the Localizations of divided workloads: what one turn over a Subscription does.
//!
//! One Base per Subscription and cluster, always: its name is a hash of the two, so that two runs at once meet in the same
//! object instead of making twins. A Base of another name that Clusternet made earlier is taken over.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::ObjectMeta;
use api::apps::{Base, Feed, FeedInventory, Localization, Subscription};
use api::known::{annotation, component, finalizer, label};
use api::names;
use api::object::{self, ObjectRef};
use api::reason::Reason;
use serde_json::{Value, json};

use crate::render::ClusterFacts;
use crate::shares::{self, Scalers};
use crate::step::{MetaWish, Step, Version, annotation_of, app_ref, label_of, owner};

/// Longest name that the labels `config.name` and `subs.name` are written for (Clusternet's bound: 63 less a suffix).
const NAME_LABEL_MAX: usize = 57;

/// One reading of the world around a Subscription.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The Subscription.
    pub subscription: Arc<Subscription>,
    /// Every Base that was made for it.
    pub bases: Vec<Arc<Base>>,
    /// Every Localization that was generated for it.
    pub shares: Vec<Arc<Localization>>,
    /// Its FeedInventory.
    pub inventory: Option<Arc<FeedInventory>>,
    /// Autoscalers among its feeds.
    pub scalers: Scalers,
    /// The bound clusters that exist, by `namespace/name`.
    pub clusters: BTreeMap<String, ClusterFacts>,
}

/// What to do for a Subscription.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// Changes to the Subscription itself; first.
    pub own: Vec<Step>,
    /// Changes to other objects, in any order.
    pub steps: Vec<Step>,
    /// Bound clusters that do not exist.
    pub absent: Vec<String>,
}

/// Name of the Base of a Subscription in a cluster's namespace.
#[must_use]
pub fn base_name(subscription: &ObjectMeta, cluster_namespace: &str) -> String {
    let (namespace, name) = (subscription.namespace.as_deref().unwrap_or_default(), subscription.name.as_deref().unwrap_or_default());
    // Room for the endings of the names that are made from it, `-generic` and a share's own suffix.
    names::with_suffix(name, &[namespace, name, cluster_namespace], names::SUBDOMAIN_MAX - 16)
}

/// Name of the Localization of a divided feed.
#[must_use]
pub fn share_name(base: &str, feed: &Feed) -> String {
    names::with_suffix(base, &[&feed.key()], names::SUBDOMAIN_MAX)
}

/// Whether the Subscription divides replicas.
#[must_use]
pub fn divides(subscription: &Subscription) -> bool {
    subscription.spec.scheduling_strategy == api::apps::SchedulingStrategy::Dividing
}

/// Decides.
#[must_use]
pub fn decide(seen: &Seen) -> Plan {
    let meta = &seen.subscription.metadata;
    let at = app_ref("Subscription", meta);
    let uid = meta.uid.clone().unwrap_or_default();
    let mut plan = Plan::default();
    if meta.deletion_timestamp.is_some() {
        for base in &seen.bases {
            delete(&mut plan.steps, "Base", &base.metadata);
        }
        if seen.bases.is_empty() {
            let wish = MetaWish { without_finalizers: vec![finalizer::APP], ..MetaWish::default() };
            if let Some(patch) = wish.patch(meta) {
                plan.own.push(Step::Patch { at, patch: json!({"metadata": patch}), only_if: Version::exactly(meta) });
            }
        }
        return plan;
    }
    let mut wish = MetaWish { finalizers: vec![finalizer::APP], ..MetaWish::default() };
    wish.labels.insert(uid.clone(), Some("Subscription".to_owned()));
    if let Some(patch) = wish.patch(meta) {
        plan.own.push(Step::Patch { at: at.clone(), patch: json!({"metadata": patch}), only_if: Version::exactly(meta) });
    }

    let mut by_namespace: BTreeMap<&str, Vec<&Arc<Base>>> = BTreeMap::new();
    for base in &seen.bases {
        by_namespace.entry(base.metadata.namespace.as_deref().unwrap_or_default()).or_default().push(base);
    }
    let bindings = seen.subscription.status.as_ref().map_or(&[][..], |status| &status.binding_clusters);
    let mut wanted: BTreeSet<&str> = BTreeSet::new();
    let mut twins = 0usize;
    let mut kept: Vec<(&str, &Arc<Base>)> = Vec::new();
    for bound in bindings {
        let (namespace, _) = object::split_key(bound);
        let Some(cluster) = seen.clusters.get(bound) else {
            plan.absent.push(bound.clone());
            // Its Base stays: whether the cluster is gone for good is for the scheduler to say.
            wanted.insert(namespace);
            continue;
        };
        wanted.insert(namespace);
        let name = base_name(meta, namespace);
        let mut there: Vec<&Arc<Base>> = by_namespace.get(namespace).cloned().unwrap_or_default();
        // Ours by name first, then the newest: what stands longest is most likely what the others forgot.
        there.sort_by_key(|base| {
            let meta = &base.metadata;
            (meta.name.as_deref() != Some(&name), std::cmp::Reverse(meta.creation_timestamp.as_ref().map(|t| t.0)), meta.name.clone())
        });
        match there.split_first() {
            None => plan.steps.push(Step::Create { object: fresh(seen, cluster, &name) }),
            Some((base, others)) => {
                for twin in others {
                    twins += 1;
                    delete(&mut plan.steps, "Base", &twin.metadata);
                }
                if base.metadata.deletion_timestamp.is_none() {
                    kept.push((bound, base));
                    update(seen, cluster, base, &mut plan.steps);
                }
            }
        }
    }
    if twins > 0 {
        let message = format!("{twins} cluster namespaces held several Bases of this Subscription; one of each is kept");
        plan.steps.push(Step::Tell { about: at.clone(), uid: uid.clone(), warning: true, reason: Reason::MultipleBases, message });
    }
    // `bindings` empty and never scheduled is not "bound to nothing": without a status nothing is taken away.
    if seen.subscription.status.is_some() {
        for base in &seen.bases {
            if !wanted.contains(base.metadata.namespace.as_deref().unwrap_or_default()) {
                delete(&mut plan.steps, "Base", &base.metadata);
            }
        }
    }
    shares(seen, &kept, &at, &uid, &mut plan.steps);
    plan
}

/// Deletes an object that is not being deleted yet.
fn delete(steps: &mut Vec<Step>, kind: &str, meta: &ObjectMeta) {
    if meta.deletion_timestamp.is_none() {
        steps.push(Step::Delete { at: app_ref(kind, meta), uid: meta.uid.clone().unwrap_or_default() });
    }
}

/// The labels of a Base.
fn labels(subscription: &ObjectMeta, cluster: &ClusterFacts) -> BTreeMap<String, String> {
    let (namespace, name) = (subscription.namespace.as_deref().unwrap_or_default(), subscription.name.as_deref().unwrap_or_default());
    let uid = subscription.uid.as_deref().unwrap_or_default();
    let mut out: Vec<(&str, &str)> = vec![
        (label::CREATED_BY, component::CONTROLLER_MANAGER),
        (label::CONFIG_KIND, "Subscription"),
        (label::CONFIG_NAMESPACE, namespace),
        (label::CONFIG_UID, uid),
        (label::SUBS_NAMESPACE, namespace),
        (label::SUBS_UID, uid),
        (label::CLUSTER_ID, &cluster.id),
        (label::CLUSTER_NAME, &cluster.name),
    ];
    if name.len() <= NAME_LABEL_MAX {
        out.extend([(label::CONFIG_NAME, name), (label::SUBS_NAME, name)]);
    }
    out.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

fn fresh(seen: &Seen, cluster: &ClusterFacts, name: &str) -> Value {
    let meta = &seen.subscription.metadata;
    let mut object = json!({
        "apiVersion": "apps.clusternet.io/v1alpha1",
        "kind": "Base",
        "metadata": {
            "name": name,
            "namespace": cluster.namespace,
            "labels": labels(meta, cluster),
            "finalizers": [finalizer::APP],
        },
        "spec": {"feeds": seen.subscription.spec.feeds},
    });
    if let Some(value) = annotation_of(meta, annotation::IS_DEFAULT_CLUSTER_INIT) {
        object["metadata"]["annotations"] = json!({annotation::IS_DEFAULT_CLUSTER_INIT: value});
    }
    object
}

fn update(seen: &Seen, cluster: &ClusterFacts, base: &Base, steps: &mut Vec<Step>) {
    let wish = MetaWish {
        labels: labels(&seen.subscription.metadata, cluster).into_iter().map(|(k, v)| (k, Some(v))).collect(),
        finalizers: vec![finalizer::APP],
        ..MetaWish::default()
    };
    let mut patch = serde_json::Map::new();
    if let Some(meta) = wish.patch(&base.metadata) {
        patch.insert("metadata".to_owned(), meta);
    }
    if base.spec.feeds != seen.subscription.spec.feeds {
        patch.insert("spec".to_owned(), json!({"feeds": seen.subscription.spec.feeds}));
    }
    if !patch.is_empty() {
        steps.push(Step::Patch { at: app_ref("Base", &base.metadata), patch: Value::Object(patch), only_if: Version::exactly(&base.metadata) });
    }
}

/// The generated Localizations. They say in the API what the renderer knows from the Subscription itself, so their late or
/// early coming never changes what is deployed.
fn shares(seen: &Seen, kept: &[(&str, &Arc<Base>)], at: &ObjectRef, uid: &str, steps: &mut Vec<Step>) {
    let mut have: BTreeMap<(&str, &Feed), Vec<&Arc<Localization>>> = BTreeMap::new();
    for one in &seen.shares {
        have.entry((one.metadata.namespace.as_deref().unwrap_or_default(), &one.spec.feed)).or_default().push(one);
    }
    let mut unset: BTreeSet<String> = BTreeSet::new();
    let mut uneven: BTreeSet<String> = BTreeSet::new();
    if divides(&seen.subscription) {
        let status = seen.subscription.status.clone().unwrap_or_default();
        for order in seen.inventory.iter().flat_map(|inventory| &inventory.spec.feeds) {
            if order.desired_replicas.is_none() || !seen.subscription.spec.feeds.contains(&order.feed) {
                continue;
            }
            let Some(replicas) = status.replicas.get(&order.feed.key()).filter(|r| !r.is_empty()) else { continue };
            if order.replica_json_path.is_empty() {
                unset.insert(order.feed.key());
            } else if replicas.len() != status.binding_clusters.len() {
                uneven.insert(order.feed.key());
            }
        }
        for (bound, base) in kept {
            for feed in &seen.subscription.spec.feeds {
                let key = feed.key();
                if unset.contains(&key) || uneven.contains(&key) {
                    continue;
                }
                let Some(changes) = shares::share(&seen.subscription, seen.inventory.as_deref(), &seen.scalers, bound, feed) else { continue };
                let namespace = base.metadata.namespace.as_deref().unwrap_or_default();
                let mut there = have.remove(&(namespace, feed)).unwrap_or_default().into_iter().filter(|one| one.metadata.deletion_timestamp.is_none());
                let spec = shares::localization_spec(feed, &changes);
                match there.next() {
                    None => steps.push(Step::Create { object: fresh_share(base, uid, feed, &spec) }),
                    Some(one) => {
                        let now = json!(one.spec);
                        if now != spec {
                            let patch = json!({"spec": spec});
                            steps.push(Step::Patch { at: app_ref("Localization", &one.metadata), patch, only_if: Version::exactly(&one.metadata) });
                        }
                    }
                }
                for twin in there {
                    delete(steps, "Localization", &twin.metadata);
                }
            }
        }
    }
    for (_, left) in have {
        for one in left {
            delete(steps, "Localization", &one.metadata);
        }
    }
    let told = |reason, message: String| Step::Tell { about: at.clone(), uid: uid.to_owned(), warning: true, reason, message };
    if !unset.is_empty() {
        steps.push(told(Reason::ReplicaJsonPathUnset, format!("the FeedInventory has no replicaJsonPath for {}", join(&unset))));
    }
    if !uneven.is_empty() {
        steps.push(told(Reason::BadSchedulingResult, format!("status.replicas and status.bindingClusters differ in length for {}", join(&uneven))));
    }
}

fn join(texts: &BTreeSet<String>) -> String {
    texts.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

fn fresh_share(base: &Base, subscription_uid: &str, feed: &Feed, spec: &Value) -> Value {
    json!({
        "apiVersion": "apps.clusternet.io/v1alpha1",
        "kind": "Localization",
        "metadata": {
            "name": share_name(base.metadata.name.as_deref().unwrap_or_default(), feed),
            "namespace": base.metadata.namespace.clone().unwrap_or_default(),
            "labels": {label::CREATED_BY: component::CONTROLLER_MANAGER, subscription_uid: "Subscription"},
            "finalizers": [finalizer::APP],
            "ownerReferences": [owner("Base", &base.metadata)],
        },
        "spec": spec,
    })
}

/// The Subscription that a Base was made for, by uid; empty for Bases made by hand.
#[must_use]
pub fn made_for(base: &ObjectMeta) -> &str {
    if label_of(base, label::CONFIG_KIND) == "Subscription" && label_of(base, label::CREATED_BY) == component::CONTROLLER_MANAGER {
        label_of(base, label::CONFIG_UID)
    } else {
        ""
    }
}

/// Whether another Base of the same Subscription stays in the namespace of `base`: what it brought to its cluster is that one's.
#[must_use]
pub fn is_replaced(base: &ObjectMeta, others: &[Arc<Base>]) -> bool {
    let uid = made_for(base);
    !uid.is_empty()
        && others.iter().map(|other| &other.metadata).any(|other| {
            other.uid != base.uid && other.namespace == base.namespace && other.deletion_timestamp.is_none() && made_for(other) == uid
        })
}

#[cfg(test)]
mod tests;
