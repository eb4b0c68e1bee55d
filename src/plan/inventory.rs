//! FeedInventory: how many replicas the feeds of a divided Subscription ask for, and what each replica needs.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::apps::{Feed, FeedInventory, FeedOrder, ReplicaRequirements, Subscription};
use api::known::{component, label};
use api::object;
use api::reason::Reason;
use k8s_openapi::api::core::v1::{PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};

use crate::quantity::Quantity as Number;
use crate::step::{MetaWish, Step, Version, app_ref, owner};

/// One reading of the world around the inventory of a Subscription.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The Subscription.
    pub subscription: Arc<Subscription>,
    /// The templates its feeds name, aligned with `spec.feeds`; empty for a chart, `None` for a feed that is missing.
    pub templates: Vec<Option<Arc<Value>>>,
    /// The inventory as it is.
    pub inventory: Option<Arc<FeedInventory>>,
}

/// Decides: makes or updates the inventory, or says why it cannot.
#[must_use]
pub fn decide(seen: &Seen) -> Vec<Step> {
    let meta = &seen.subscription.metadata;
    if !crate::subscription::divides(&seen.subscription) || meta.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let mut orders = Vec::with_capacity(seen.subscription.spec.feeds.len());
    let mut missing = Vec::new();
    for (at, feed) in seen.subscription.spec.feeds.iter().enumerate() {
        match seen.templates.get(at).cloned().flatten() {
            Some(template) => orders.push(order(feed, &template)),
            // Charts carry no replicas that could be divided; each cluster gets the whole chart.
            None if feed.is_helm_chart() => orders.push(FeedOrder { feed: feed.clone(), ..FeedOrder::default() }),
            None => missing.push(format!("{} {}", feed.kind, object::key(&feed.namespace, &feed.name))),
        }
    }
    let about = app_ref("Subscription", meta);
    let uid = meta.uid.clone().unwrap_or_default();
    if !missing.is_empty() {
        let message = format!("not found: {}", missing.join(", "));
        return vec![Step::Tell { about, uid, warning: true, reason: Reason::UnParseableFeeds, message }];
    }
    let labels = [
        (label::CREATED_BY, component::CONTROLLER_MANAGER),
        (label::SUBS_NAME, meta.name.as_deref().unwrap_or_default()),
        (label::SUBS_NAMESPACE, meta.namespace.as_deref().unwrap_or_default()),
        (label::SUBS_UID, uid.as_str()),
    ];
    let labels: BTreeMap<String, String> = labels
        .into_iter()
        .filter(|(_, value)| api::names::is_label_value(value))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    let Some(now) = &seen.inventory else {
        let object = json!({
            "apiVersion": "apps.clusternet.io/v1alpha1",
            "kind": "FeedInventory",
            "metadata": {
                "name": meta.name.clone().unwrap_or_default(),
                "namespace": meta.namespace.clone().unwrap_or_default(),
                "labels": labels,
                "ownerReferences": [owner("Subscription", meta)],
            },
            "spec": {"feeds": orders},
        });
        return vec![Step::Create { object }];
    };
    if now.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let wish = MetaWish { labels: labels.into_iter().map(|(k, v)| (k, Some(v))).collect(), ..MetaWish::default() };
    let mut patch = serde_json::Map::new();
    if let Some(meta) = wish.patch(&now.metadata) {
        patch.insert("metadata".to_owned(), meta);
    }
    if now.spec.feeds != orders {
        patch.insert("spec".to_owned(), json!({"feeds": orders}));
    }
    if patch.is_empty() {
        return Vec::new();
    }
    vec![Step::Patch { at: app_ref("FeedInventory", &now.metadata), patch: Value::Object(patch), only_if: Version::exactly(&now.metadata) }]
}

/// Kinds whose replicas are known, with the versions in which they were served.
fn divisible(feed: &Feed) -> bool {
    matches!(
        (feed.api_version.as_str(), feed.kind.as_str()),
        ("apps/v1" | "apps/v1beta1" | "apps/v1beta2" | "extensions/v1beta1", "Deployment")
            | ("apps/v1" | "apps/v1beta1" | "apps/v1beta2" | "extensions/v1beta1", "StatefulSet")
            | ("apps/v1" | "extensions/v1beta1", "ReplicaSet")
    )
}

/// What one feed asks for.
#[must_use]
pub fn order(feed: &Feed, template: &Value) -> FeedOrder {
    if !divisible(feed) {
        return FeedOrder { feed: feed.clone(), ..FeedOrder::default() };
    }
    let replicas = template.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1);
    let pod: PodSpec = template.pointer("/spec/template/spec").and_then(|spec| serde_json::from_value(spec.clone()).ok()).unwrap_or_default();
    FeedOrder {
        feed: feed.clone(),
        desired_replicas: Some(i32::try_from(replicas).unwrap_or(i32::MAX)),
        replica_requirements: requirements(&pod),
        replica_json_path: "/spec/replicas".to_owned(),
    }
}

fn requirements(pod: &PodSpec) -> ReplicaRequirements {
    ReplicaRequirements {
        node_selector: pod.node_selector.clone().unwrap_or_default(),
        tolerations: pod.tolerations.clone().unwrap_or_default(),
        affinity: pod.affinity.clone(),
        resources: resources(pod),
    }
}

type Sums = BTreeMap<String, Number>;

/// Containers run together, so they add up; init containers run one after another, so the largest counts. A request that is
/// not written is the limit.
fn resources(pod: &PodSpec) -> ResourceRequirements {
    let (mut requests, mut limits) = (Sums::new(), Sums::new());
    for container in &pod.containers {
        let (request, limit) = container_needs(container.resources.as_ref());
        for (into, from) in [(&mut requests, request), (&mut limits, limit)] {
            for (name, amount) in from {
                let sum = into.get(&name).map_or(amount, |have| have.plus(amount));
                into.insert(name, sum);
            }
        }
    }
    for container in pod.init_containers.iter().flatten() {
        let (request, limit) = container_needs(container.resources.as_ref());
        for (into, from) in [(&mut requests, request), (&mut limits, limit)] {
            for (name, amount) in from {
                if into.get(&name).is_none_or(|have| have.nanos() < amount.nanos()) {
                    into.insert(name, amount);
                }
            }
        }
    }
    let text = |sums: Sums| -> Option<BTreeMap<String, Quantity>> {
        let map: BTreeMap<String, Quantity> = sums.into_iter().map(|(name, amount)| (name, Quantity(amount.text()))).collect();
        (!map.is_empty()).then_some(map)
    };
    ResourceRequirements { requests: text(requests), limits: text(limits), ..ResourceRequirements::default() }
}

fn container_needs(resources: Option<&ResourceRequirements>) -> (Sums, Sums) {
    let read = |map: Option<&BTreeMap<String, Quantity>>| -> Sums {
        map.into_iter().flatten().filter_map(|(name, amount)| Some((name.clone(), Number::parse(&amount.0)?))).collect()
    };
    let limits = read(resources.and_then(|r| r.limits.as_ref()));
    let mut requests = read(resources.and_then(|r| r.requests.as_ref()));
    for (name, amount) in &limits {
        requests.entry(name.clone()).or_insert(*amount);
    }
    (requests, limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(api_version: &str, kind: &str) -> Feed {
        Feed { api_version: api_version.to_owned(), kind: kind.to_owned(), namespace: "n".to_owned(), name: "x".to_owned() }
    }

    #[test]
    fn replicas_and_needs_are_read_from_the_template() {
        let template = json!({"spec": {"replicas": 4, "template": {"spec": {
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "a", "operator": "Exists"}],
            "containers": [
                {"name": "a", "resources": {"requests": {"cpu": "250m", "memory": "64Mi"}, "limits": {"cpu": "1"}}},
                {"name": "b", "resources": {"limits": {"cpu": "500m", "memory": "64Mi"}}},
                {"name": "c"}],
            "initContainers": [{"name": "i", "resources": {"requests": {"memory": "1Gi", "cpu": "100m"}}}],
        }}}});
        let order = order(&feed("apps/v1", "Deployment"), &template);
        let resources = serde_json::to_value(&order.replica_requirements.resources).expect("json");
        assert_eq!(order.desired_replicas, Some(4));
        assert_eq!(resources, json!({"requests": {"cpu": "750m", "memory": "1Gi"}, "limits": {"cpu": "1500m", "memory": "64Mi"}}));
        assert_eq!(order.replica_requirements.node_selector.get("disk").map(String::as_str), Some("ssd"));
    }

    #[test]
    fn other_kinds_have_no_replicas_and_charts_do_not_stop_the_rest() {
        assert_eq!(order(&feed("v1", "ConfigMap"), &json!({})).desired_replicas, None);
        assert_eq!(order(&feed("apps/v1", "StatefulSet"), &json!({"spec": {}})).desired_replicas, Some(1));
        let mut subscription = Subscription::default();
        subscription.spec.scheduling_strategy = api::apps::SchedulingStrategy::Dividing;
        subscription.spec.feeds = vec![feed("apps.clusternet.io/v1alpha1", "HelmChart"), feed("v1", "Secret")];
        let mut seen = Seen { subscription: Arc::new(subscription), templates: vec![None, Some(Arc::new(json!({})))], inventory: None };
        assert!(matches!(decide(&seen).as_slice(), [Step::Create { .. }]));
        seen.templates = vec![None, None];
        assert!(matches!(decide(&seen).as_slice(), [Step::Tell { reason: Reason::UnParseableFeeds, .. }]));
    }
}
