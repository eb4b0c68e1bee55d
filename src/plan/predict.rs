//! How many more replicas of a workload a cluster takes, from its nodes and Pods: node filter, resource fit, Pod slots.
//!
//! A node that is overcommitted takes none and spoils nothing; a cluster where nothing fits takes zero, which is an answer.

use std::collections::BTreeMap;

use api::apps::ReplicaRequirements;
use k8s_openapi::api::core::v1::{Container, Node, NodeSelectorTerm, Pod, PodSpec, ResourceRequirements, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;

use crate::placement::cluster::tolerates;
use crate::placement::plugins::spread::requirement;
use crate::quantity::Quantity;

/// Amounts in billionths, by resource.
type Amounts = BTreeMap<String, i128>;

const PODS: &str = "pods";
/// Taint that stands for `spec.unschedulable`.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// A node with what is left on it.
#[derive(Clone, Debug, Default)]
pub struct Room {
    allocatable: Amounts,
    used: Amounts,
    pods: i128,
}

/// What is used on each node, from all Pods of a cluster.
#[must_use]
pub fn rooms<'a>(nodes: impl IntoIterator<Item = &'a Node>, pods: impl IntoIterator<Item = &'a Pod>) -> BTreeMap<String, Room> {
    let mut rooms: BTreeMap<String, Room> = BTreeMap::new();
    for node in nodes {
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let room = Room { allocatable: amounts(allocatable), ..Room::default() };
        rooms.insert(node.metadata.name.clone().unwrap_or_default(), room);
    }
    for pod in pods {
        let Some(spec) = pod.spec.as_ref().filter(|_| !is_over(pod)) else { continue };
        let Some(room) = spec.node_name.as_ref().and_then(|name| rooms.get_mut(name)) else { continue };
        room.pods += 1;
        for (name, amount) in pod_requests(spec) {
            *room.used.entry(name).or_default() += amount;
        }
    }
    rooms
}

/// Replicas that fit into the cluster.
#[must_use]
pub fn replicas<'a>(nodes: impl IntoIterator<Item = &'a Node>, rooms: &BTreeMap<String, Room>, needs: &ReplicaRequirements) -> i32 {
    let requests = effective(&needs.resources);
    let fits = |node: &Node| -> i64 {
        let room = node.metadata.name.as_ref().and_then(|name| rooms.get(name));
        room.filter(|_| admits(node, needs)).map_or(0, |room| room.takes(&requests))
    };
    let total = nodes.into_iter().map(fits).fold(0i64, i64::saturating_add);
    i32::try_from(total).unwrap_or(i32::MAX)
}

impl Room {
    fn takes(&self, requests: &Amounts) -> i64 {
        // A node that does not say how many Pods it takes is not bounded by them.
        let slots = self.allocatable.get(PODS).map_or(i128::from(i32::MAX), |most| most / 1_000_000_000 - self.pods);
        let free = |name: &str| self.allocatable.get(name).copied().unwrap_or(0) - self.used.get(name).copied().unwrap_or(0);
        let wanted = requests.iter().filter(|(_, amount)| **amount > 0);
        let least = wanted.map(|(name, amount)| free(name).max(0) / amount).min().unwrap_or(i128::MAX);
        i64::try_from(least.min(slots).clamp(0, i128::from(i32::MAX))).unwrap_or(0)
    }
}

/// Whether Pods with these requirements may be placed on a node at all.
fn admits(node: &Node, needs: &ReplicaRequirements) -> bool {
    let spec = node.spec.clone().unwrap_or_default();
    let labels = node.metadata.labels.clone().unwrap_or_default();
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let ready = conditions.iter().all(|condition| condition.type_ != "Ready" || condition.status == "True");
    let cordon = spec.unschedulable.unwrap_or(false).then(|| Taint { key: UNSCHEDULABLE.to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() });
    let mut taints = spec.taints.iter().flatten().chain(&cordon).filter(|taint| taint.effect != "PreferNoSchedule");
    let tolerated = taints.all(|taint| needs.tolerations.iter().any(|toleration| tolerates(toleration, taint)));
    let selected = needs.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value));
    let required = needs.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref()?.required_during_scheduling_ignored_during_execution.as_ref());
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let liked = required.is_none_or(|selector| selector.node_selector_terms.iter().any(|term| meets(term, &labels, name)));
    ready && tolerated && selected && liked
}

/// A term without any requirement matches nothing, as in Kubernetes.
fn meets(term: &NodeSelectorTerm, labels: &BTreeMap<String, String>, name: &str) -> bool {
    let (labelled, fields) = (term.match_expressions.as_deref().unwrap_or_default(), term.match_fields.as_deref().unwrap_or_default());
    (!labelled.is_empty() || !fields.is_empty())
        && labelled.iter().all(|wanted| requirement(wanted, labels.get(&wanted.key).map(String::as_str)))
        && fields.iter().all(|wanted| wanted.key == "metadata.name" && requirement(wanted, Some(name)))
}

fn is_over(pod: &Pod) -> bool {
    matches!(pod.status.as_ref().and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed"))
}

fn amounts(map: Option<&BTreeMap<String, Text>>) -> Amounts {
    map.into_iter().flatten().filter_map(|(name, text)| Some((name.clone(), Quantity::parse(&text.0)?.nanos()))).collect()
}

/// Requests, and limits where no request is written.
fn effective(resources: &ResourceRequirements) -> Amounts {
    let mut out = amounts(resources.limits.as_ref());
    out.extend(amounts(resources.requests.as_ref()));
    out
}

fn requests(container: &Container) -> Amounts {
    container.resources.as_ref().map(effective).unwrap_or_default()
}

/// What a Pod holds on its node: containers and sidecars together, or the largest step of its start, and the overhead.
#[must_use]
pub fn pod_requests(spec: &PodSpec) -> Amounts {
    let add = |into: &mut Amounts, more: Amounts| more.into_iter().for_each(|(name, amount)| *into.entry(name).or_default() += amount);
    let raise = |into: &mut Amounts, other: &Amounts| {
        for (name, amount) in other {
            let have = into.entry(name.clone()).or_default();
            *have = (*have).max(*amount);
        }
    };
    let mut sidecars = Amounts::new();
    let mut start = Amounts::new();
    for container in spec.init_containers.iter().flatten() {
        if container.restart_policy.as_deref() == Some("Always") {
            add(&mut sidecars, requests(container));
            raise(&mut start, &sidecars);
        } else {
            let mut step = sidecars.clone();
            add(&mut step, requests(container));
            raise(&mut start, &step);
        }
    }
    let mut total = sidecars;
    for container in &spec.containers {
        add(&mut total, requests(container));
    }
    raise(&mut total, &start);
    // Requests of the Pod as a whole stand for those of its containers.
    total.extend(spec.resources.as_ref().map(effective).unwrap_or_default());
    add(&mut total, amounts(spec.overhead.as_ref()));
    total
}

/// Pods that wait because no node takes them, by the feed key of the workload they belong to.
#[must_use]
pub fn unschedulable<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> BTreeMap<String, i32> {
    let mut out = BTreeMap::new();
    for pod in pods {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let refused = conditions.iter().any(|c| c.type_ == "PodScheduled" && c.status == "False" && c.reason.as_deref() == Some("Unschedulable"));
        if refused && !is_over(pod) && pod.metadata.deletion_timestamp.is_none() {
            *out.entry(workload(pod)).or_default() += 1;
        }
    }
    out
}

/// Feed key of the workload that made a Pod: its controller, or the Deployment whose hash that carries.
fn workload(pod: &Pod) -> String {
    let meta = &pod.metadata;
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    let owner = meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
    let Some(owner) = owner else { return format!("v1/Pod/{namespace}/{}", meta.name.as_deref().unwrap_or_default()) };
    let label = |key: &str| meta.labels.as_ref().and_then(|labels| labels.get(key));
    for (key, api_version, kind) in [("pod-template-hash", "apps/v1", "Deployment"), ("rollouts-pod-template-hash", "argoproj.io/v1alpha1", "Rollout")] {
        let base = label(key).and_then(|hash| owner.name.strip_suffix(hash.as_str())?.strip_suffix('-'));
        if let Some(base) = base.filter(|_| owner.kind == "ReplicaSet") {
            return format!("{api_version}/{kind}/{namespace}/{base}");
        }
    }
    format!("{}/{}/{namespace}/{}", owner.api_version, owner.kind, owner.name)
}

/// Leaves of a Pod only what is asked here, so that a cluster's Pods can be kept at little cost.
pub fn trim(pod: &mut Pod) {
    let meta = &mut pod.metadata;
    meta.managed_fields = None;
    meta.annotations = None;
    meta.finalizers = None;
    if let Some(labels) = &mut meta.labels {
        labels.retain(|key, _| key.ends_with("pod-template-hash"));
    }
    if let Some(spec) = pod.spec.take() {
        let bare = |container: Container| Container { resources: container.resources, restart_policy: container.restart_policy, ..Container::default() };
        pod.spec = Some(PodSpec {
            containers: spec.containers.into_iter().map(bare).collect(),
            init_containers: spec.init_containers.map(|list| list.into_iter().map(bare).collect()),
            node_name: spec.node_name,
            overhead: spec.overhead,
            resources: spec.resources,
            ..PodSpec::default()
        });
    }
    if let Some(status) = pod.status.take() {
        let conditions = status.conditions.map(|list| list.into_iter().filter(|condition| condition.type_ == "PodScheduled").collect());
        pod.status = Some(k8s_openapi::api::core::v1::PodStatus { phase: status.phase, conditions, ..Default::default() });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn merge(into: &mut Value, more: &Value) {
        match (into.as_object_mut(), more.as_object()) {
            (Some(fields), Some(more)) => more.iter().for_each(|(key, value)| merge(fields.entry(key.clone()).or_insert(Value::Null), value)),
            _ => *into = more.clone(),
        }
    }

    fn node(name: &str, more: Value) -> Node {
        let mut node = json!({"metadata": {"name": name, "labels": {"disk": "ssd", "size": "8"}},
            "status": {"allocatable": {"cpu": "8", "memory": "16Gi", "pods": "4", "ephemeral-storage": "16Gi"}}});
        merge(&mut node, &more);
        serde_json::from_value(node).expect("a node")
    }

    fn pod(node: &str, phase: &str, cpu: &str) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n"}, "status": {"phase": phase},
            "spec": {"nodeName": node, "containers": [{"name": "m", "resources": {"requests": {"cpu": cpu, "memory": "4Gi"}}}]}}))
        .expect("a pod")
    }

    fn needs(value: Value) -> ReplicaRequirements {
        serde_json::from_value(value).expect("requirements")
    }

    #[test]
    fn what_fits() {
        let one = needs(json!({"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}));
        let check = |nodes: &[Node], pods: &[Pod], needs: &ReplicaRequirements, want: i32| {
            assert_eq!(replicas(nodes, &rooms(nodes, pods), needs), want, "{needs:?}");
        };
        let plain = || node("a", json!({}));
        // Clusternet's own vector: two Pod slots are left.
        check(&[plain()], &[pod("a", "Running", "1"), pod("a", "Running", "1")], &one, 2);
        check(&[plain()], &[pod("a", "Succeeded", "1"), pod("", "Pending", "1"), pod("elsewhere", "Running", "1")], &one, 4);
        check(&[plain()], &[pod("a", "Running", "6")], &one, 2);
        // Overcommitted nodes and clusters without nodes take nothing, and say so.
        check(&[plain(), node("b", json!({}))], &[pod("a", "Running", "9")], &one, 4);
        check(&[], &[], &one, 0);
        check(&[plain()], &[], &needs(json!({})), 4);
        check(&[plain()], &[], &needs(json!({"resources": {"limits": {"cpu": "5"}}})), 1);
        check(&[plain()], &[], &needs(json!({"resources": {"requests": {"nvidia.com/gpu": "1"}}})), 0);
        check(&[node("a", json!({"status": {"allocatable": {"pods": "100"}}}))], &[], &one, 8);
        // Filters.
        check(&[node("a", json!({"spec": {"unschedulable": true}}))], &[], &one, 0);
        check(&[node("a", json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}))], &[], &one, 0);
        let tainted = || node("a", json!({"spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}}));
        check(&[tainted()], &[], &one, 0);
        check(&[tainted()], &[], &needs(json!({"tolerations": [{"key": "gpu", "operator": "Exists"}]})), 4);
        check(&[plain()], &[], &needs(json!({"nodeSelector": {"disk": "hdd"}})), 0);
        let affinity = |terms: Value| needs(json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}}));
        check(&[plain()], &[], &affinity(json!([{"matchExpressions": [{"key": "size", "operator": "Gt", "values": ["7"]}]}])), 4);
        check(&[plain()], &[], &affinity(json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}, {}])), 0);
        let huge = || node("a", json!({"status": {"allocatable": {"cpu": "9E", "pods": "9E"}}}));
        check(&[huge(), huge()], &[], &needs(json!({"resources": {"requests": {"cpu": "1n"}}})), i32::MAX);
    }

    #[test]
    fn pods_hold_their_largest_moment() {
        let spec: PodSpec = serde_json::from_value(json!({
            "initContainers": [
                {"name": "a", "resources": {"requests": {"cpu": "3"}}},
                {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
                {"name": "b", "resources": {"requests": {"cpu": "2500m"}}}],
            "containers": [{"name": "m", "resources": {"requests": {"cpu": "2"}, "limits": {"memory": "1Gi"}}}],
            "overhead": {"cpu": "250m"}, "nodeName": "x",
        }))
        .expect("a spec");
        let want: Amounts = [("cpu".to_owned(), 3_750_000_000), ("memory".to_owned(), (1 << 30) * 1_000_000_000)].into();
        assert_eq!(pod_requests(&spec), want);
        let mut pod = Pod { spec: Some(spec), ..Pod::default() };
        trim(&mut pod);
        assert_eq!(pod_requests(&pod.spec.expect("kept")), want);
    }

    #[test]
    fn waiting_pods_count_for_their_workload() {
        let waiting = |owner: Value, labels: Value| -> Pod {
            serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n", "labels": labels, "ownerReferences": owner},
                "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}}))
            .expect("a pod")
        };
        let owner = |kind: &str, name: &str| json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "u", "controller": true}]);
        let pods = [
            waiting(owner("ReplicaSet", "front-5d4f"), json!({"pod-template-hash": "5d4f"})),
            waiting(owner("ReplicaSet", "front-5d4f"), json!({"pod-template-hash": "5d4f"})),
            waiting(owner("StatefulSet", "db"), json!({})),
            waiting(json!([]), json!({})),
            pod("a", "Running", "1"),
        ];
        let want: BTreeMap<String, i32> =
            [("apps/v1/Deployment/n/front".to_owned(), 2), ("apps/v1/StatefulSet/n/db".to_owned(), 1), ("v1/Pod/n/p".to_owned(), 1)].into();
        assert_eq!(unschedulable(&pods), want);
    }
}
