//! FeedInventory: how many replicas the feeds of a divided Subscription ask for, and what each replica needs.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::apps::{Feed, FeedInventory, FeedOrder, ReplicaRequirements, Subscription};
use api::known::{annotation, component, label};
use api::object;
use api::reason::Reason;
use k8s_openapi::api::core::v1::{PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};

use crate::quantity::Quantity as Number;
use crate::shares::{self, Scalers};
use crate::step::{MetaWish, Step, Version, app_ref, owner};

/// One reading of the world around the inventory of a Subscription.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The Subscription.
    pub subscription: Arc<Subscription>,
    /// The templates its feeds name, aligned with `spec.feeds`; empty for a chart, `None` for a feed that is missing.
    pub templates: Vec<Option<Arc<Value>>>,
    /// Where kinds with a scale subresource keep their number of replicas, as their definition says; aligned with `spec.feeds`.
    pub scales: Vec<Option<String>>,
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
    let scalers = scalers_of(seen);
    for (at, feed) in seen.subscription.spec.feeds.iter().enumerate() {
        match seen.templates.get(at).cloned().flatten() {
            Some(template) => {
                let scale = seen.scales.get(at).and_then(Option::as_deref);
                let mut order = order(feed, &template, scale, &scalers);
                // An autoscaler stands for its workload, so its replicas need what that one's do.
                if let Some((workload, _)) = scalers.iter().find(|(_, scaler)| scaler.feed == feed.key()) {
                    order.replica_requirements = needs_of(seen, workload);
                }
                orders.push(order);
            }
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

/// The autoscalers among the feeds.
fn scalers_of(seen: &Seen) -> Scalers {
    let feeds = &seen.subscription.spec.feeds;
    shares::scalers(feeds, |feed| seen.templates.get(feeds.iter().position(|other| other == feed)?)?.as_deref())
}

fn needs_of(seen: &Seen, workload: &str) -> ReplicaRequirements {
    let at = seen.subscription.spec.feeds.iter().position(|feed| feed.key() == workload);
    let template = at.and_then(|at| seen.templates.get(at)?.as_deref());
    template.map(|template| requirements(&pod_of(template, "/spec/template/spec"))).unwrap_or_default()
}

/// Where a kind keeps its total, what it is when nothing is written, and where its Pod template is.
struct Place<'a> {
    pointer: &'a str,
    default: Option<i64>,
    pod: &'a str,
}

/// What a workload says of dividing it (annotation `divide`).
#[must_use]
pub fn wish(template: &Value) -> Option<bool> {
    match template.pointer("/metadata/annotations")?.get(annotation::DIVIDE)?.as_str()? {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

/// The total of a kind that is divided. Jobs run in full in every cluster, as in Clusternet, unless they ask to be divided; the
/// indexes of an Indexed Job would repeat, so it never is. A DaemonSet has no total.
fn place<'a>(feed: &Feed, template: &Value, scale: Option<&'a str>) -> Option<Place<'a>> {
    const POD: &str = "/spec/template/spec";
    let replicas = Place { pointer: "/spec/replicas", default: Some(1), pod: POD };
    let job = |spec: &str, parallelism: &'static str, completions: &'static str, pod: &'static str| {
        let text = |field: &str| template.pointer(&format!("{spec}/{field}"));
        let asked = wish(template) == Some(true) && text("completionMode").and_then(Value::as_str) != Some("Indexed");
        let pointer = if text("completions").is_some() { completions } else { parallelism };
        asked.then_some(Place { pointer, default: Some(1), pod })
    };
    match (feed.api_version.as_str(), feed.kind.as_str()) {
        ("apps/v1" | "apps/v1beta1" | "apps/v1beta2" | "extensions/v1beta1", "Deployment")
        | ("apps/v1" | "apps/v1beta1" | "apps/v1beta2", "StatefulSet")
        | ("extensions/v1beta1", "StatefulSet")
        | ("apps/v1" | "extensions/v1beta1", "ReplicaSet")
        | ("v1", "ReplicationController")
        | ("argoproj.io/v1alpha1", "Rollout") => Some(replicas),
        ("batch/v1", "Job") => job("/spec", "/spec/parallelism", "/spec/completions", POD),
        ("batch/v1" | "batch/v1beta1", "CronJob") => {
            let (parallelism, completions) = ("/spec/jobTemplate/spec/parallelism", "/spec/jobTemplate/spec/completions");
            job("/spec/jobTemplate/spec", parallelism, completions, "/spec/jobTemplate/spec/template/spec")
        }
        // A kind of a definition: what is not written may mean anything there.
        _ => scale.map(|pointer| Place { pointer, default: None, pod: POD }),
    }
}

fn pod_of(template: &Value, pointer: &str) -> PodSpec {
    template.pointer(pointer).and_then(|spec| serde_json::from_value(spec.clone()).ok()).unwrap_or_default()
}

/// What one feed asks for. `scale` is where its definition says that the number of replicas is.
#[must_use]
pub fn order(feed: &Feed, template: &Value, scale: Option<&str>, scalers: &Scalers) -> FeedOrder {
    let plain = FeedOrder { feed: feed.clone(), ..FeedOrder::default() };
    let number = |number: i64| Some(i32::try_from(number.max(0)).unwrap_or(i32::MAX));
    let key = feed.key();
    if let Some(scaler) = scalers.values().find(|scaler| scaler.feed == key) {
        return FeedOrder { desired_replicas: Some(scaler.most), replica_json_path: "/spec/maxReplicas".to_owned(), ..plain };
    }
    if wish(template) == Some(false) || scalers.contains_key(&key) {
        return plain;
    }
    let Some(place) = place(feed, template, scale) else { return plain };
    let Some(total) = template.pointer(place.pointer).and_then(Value::as_i64).or(place.default) else { return plain };
    FeedOrder {
        desired_replicas: number(total),
        replica_requirements: requirements(&pod_of(template, place.pod)),
        replica_json_path: place.pointer.to_owned(),
        ..plain
    }
}

/// Where a definition says that the objects of a version keep their number of replicas, as a JSON pointer.
#[must_use]
pub fn scale_of(definition: &Value, api_version: &str) -> Option<String> {
    let version = api_version.rsplit('/').next()?;
    let versions = definition.pointer("/spec/versions")?.as_array()?;
    let served = versions.iter().find(|one| one["name"] == version)?;
    let path = served.pointer("/subresources/scale/specReplicasPath")?.as_str()?;
    path.starts_with('.').then(|| path.replace('.', "/"))
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

    fn definition() -> Value {
        json!({"kind": "CustomResourceDefinition", "spec": {"versions": [
            {"name": "v1", "subresources": {"scale": {"specReplicasPath": ".spec.size.count", "statusReplicasPath": ".status.count"}}}, {"name": "v2"}]}})
    }

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
        let order = order(&feed("apps/v1", "Deployment"), &template, None, &Scalers::new());
        let resources = serde_json::to_value(&order.replica_requirements.resources).expect("json");
        assert_eq!(order.desired_replicas, Some(4));
        assert_eq!(resources, json!({"requests": {"cpu": "750m", "memory": "1Gi"}, "limits": {"cpu": "1500m", "memory": "64Mi"}}));
        assert_eq!(order.replica_requirements.node_selector.get("disk").map(String::as_str), Some("ssd"));
    }

    #[test]
    fn other_kinds_have_no_replicas_and_charts_do_not_stop_the_rest() {
        let check = |api_version: &str, kind: &str, template: Value, want: Option<(i32, &str)>| {
            let scale = scale_of(&definition(), api_version).filter(|_| kind == "Pond");
            let got = order(&feed(api_version, kind), &template, scale.as_deref(), &Scalers::new());
            let got = got.desired_replicas.map(|replicas| (replicas, got.replica_json_path));
            assert_eq!(got, want.map(|(replicas, path)| (replicas, path.to_owned())), "{kind} {template}");
        };
        let asks = |more: Value| json!({"metadata": {"annotations": {annotation::DIVIDE: "true"}}, "spec": more});
        check("v1", "ConfigMap", json!({}), None);
        check("apps/v1", "StatefulSet", json!({"spec": {}}), Some((1, "/spec/replicas")));
        check("apps/v1", "DaemonSet", json!({"spec": {}}), None);
        check("argoproj.io/v1alpha1", "Rollout", json!({"spec": {"replicas": 5}}), Some((5, "/spec/replicas")));
        check("apps/v1", "Deployment", json!({"metadata": {"annotations": {annotation::DIVIDE: "false"}}}), None);
        // As recorded, a Job is whole in every cluster.
        check("batch/v1", "Job", json!({"spec": {"parallelism": 4, "completions": 4}}), None);
        check("batch/v1", "Job", asks(json!({"parallelism": 2, "completions": 9})), Some((9, "/spec/completions")));
        check("batch/v1", "Job", asks(json!({"parallelism": 2})), Some((2, "/spec/parallelism")));
        check("batch/v1", "Job", asks(json!({"completions": 9, "completionMode": "Indexed"})), None);
        check("batch/v1", "CronJob", asks(json!({"jobTemplate": {"spec": {}}})), Some((1, "/spec/jobTemplate/spec/parallelism")));
        check("example.org/v1", "Pond", json!({"spec": {"size": {"count": 3}}}), Some((3, "/spec/size/count")));
        check("example.org/v1", "Pond", json!({"spec": {}}), None);
        check("example.org/v2", "Pond", json!({"spec": {"size": {"count": 3}}}), None);
        let mut subscription = Subscription::default();
        subscription.spec.scheduling_strategy = api::apps::SchedulingStrategy::Dividing;
        subscription.spec.feeds = vec![feed("apps.clusternet.io/v1alpha1", "HelmChart"), feed("v1", "Secret")];
        let mut seen = Seen { subscription: Arc::new(subscription), templates: vec![None, Some(Arc::new(json!({})))], scales: Vec::new(), inventory: None };
        assert!(matches!(decide(&seen).as_slice(), [Step::Create { .. }]));
        seen.templates = vec![None, None];
        assert!(matches!(decide(&seen).as_slice(), [Step::Tell { reason: Reason::UnParseableFeeds, .. }]));
    }
}
