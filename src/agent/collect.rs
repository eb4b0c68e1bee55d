//! What there is to say about a child, from what its API server answers. Pure: requests are made in `report`.

use std::collections::BTreeMap;

use api::clusters::NodeStatistics;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schema::quantity::Quantity as Number;

/// Resources that are summed up; the last only when there is any.
const SUMMED: [&str; 3] = ["cpu", "memory", "nvidia.com/gpu"];

/// Counts nodes by their Ready condition.
pub(crate) fn statistics(nodes: &[Node]) -> NodeStatistics {
    let mut out = NodeStatistics::default();
    for node in nodes {
        let conditions = node.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
        match conditions.iter().find(|c| c.type_ == "Ready").map(|c| c.status.as_str()) {
            Some("True") => out.ready_nodes += 1,
            Some("False") => out.not_ready_nodes += 1,
            Some(_) => out.unknown_nodes += 1,
            None => out.lost_nodes += 1,
        }
    }
    out
}

/// Sums of the nodes' resources: capacity and allocatable.
pub(crate) fn resources(nodes: &[Node]) -> (BTreeMap<String, Quantity>, BTreeMap<String, Quantity>) {
    let sum = |of: fn(&Node) -> Option<&BTreeMap<String, Quantity>>| {
        let mut out = BTreeMap::new();
        for name in SUMMED {
            let total = nodes
                .iter()
                .filter_map(|n| of(n)?.get(name))
                .filter_map(|q| Number::parse(&q.0).ok())
                .reduce(|a, b| a.add(&b))
                .unwrap_or_else(|| Number::from_int(0));
            if name != "nvidia.com/gpu" || total.sign() > 0 {
                out.insert(name.to_owned(), Quantity(total.canonical()));
            }
        }
        out
    };
    (sum(|n| n.status.as_ref()?.capacity.as_ref()), sum(|n| n.status.as_ref()?.allocatable.as_ref()))
}

/// Labels that nearly all worker nodes share. Per key the most common value counts, the first by name among equals; it is
/// kept when the share of the nodes that carry it is at least `threshold`.
pub(crate) fn common_labels(nodes: &[Node], prefixes: &[String], threshold: f64) -> BTreeMap<String, String> {
    let is_control_plane = |labels: &BTreeMap<String, String>| {
        labels.contains_key("node-role.kubernetes.io/control-plane") || labels.contains_key("node-role.kubernetes.io/master")
    };
    let empty = BTreeMap::new();
    let workers: Vec<_> = nodes.iter().map(|n| n.metadata.labels.as_ref().unwrap_or(&empty)).filter(|l| !is_control_plane(l)).collect();
    let mut counts: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    for labels in &workers {
        for (key, value) in labels.iter().filter(|(k, _)| prefixes.iter().any(|p| k.starts_with(p.as_str()))) {
            *counts.entry(key).or_default().entry(value).or_default() += 1;
        }
    }
    let mut out = BTreeMap::new();
    for (key, values) in counts {
        let mut best: Option<(&str, usize)> = None;
        for (value, count) in values {
            if best.is_none_or(|(_, most)| count > most) {
                best = Some((value, count));
            }
        }
        #[expect(clippy::cast_precision_loss, reason = "numbers of nodes are small")]
        if let Some((value, count)) = best
            && count as f64 / workers.len().max(1) as f64 >= threshold
        {
            out.insert(key.to_owned(), value.to_owned());
        }
    }
    out
}

/// Value of a flag in the commands of the Pods' containers. Understands `--flag=value`, `--flag value`, and whole commands in
/// one string.
pub(crate) fn flag(pods: &[Pod], flag: &str) -> Option<String> {
    for pod in pods {
        for container in pod.spec.as_ref().map(|s| s.containers.as_slice()).unwrap_or_default() {
            let words: Vec<&str> = container
                .command
                .iter()
                .flatten()
                .chain(container.args.iter().flatten())
                .flat_map(|w| w.split_whitespace())
                .collect();
            for (at, word) in words.iter().enumerate() {
                let Some(rest) = word.strip_prefix(flag) else { continue };
                let value = match rest.strip_prefix('=') {
                    Some(value) => value,
                    None if rest.is_empty() => words.get(at + 1).copied().filter(|next| !next.starts_with("--")).unwrap_or_default(),
                    None => continue,
                };
                let value = value.trim_matches(['"', '\'']);
                if !value.is_empty() {
                    return Some(value.to_owned());
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(labels: serde_json::Value, ready: Option<&str>, cpu: &str) -> Node {
        let conditions = ready.map(|status| json!([{"type": "Ready", "status": status}])).unwrap_or_else(|| json!([]));
        serde_json::from_value(json!({"metadata": {"name": "n", "labels": labels},
            "status": {"conditions": conditions, "capacity": {"cpu": cpu, "memory": "1Gi"}, "allocatable": {"cpu": "500m", "memory": "512Mi"}}}))
        .expect("a node")
    }

    #[test]
    fn nodes_are_counted_and_summed() {
        let nodes = [node(json!({}), Some("True"), "2"), node(json!({}), Some("False"), "1500m"), node(json!({}), None, "1")];
        let counted = statistics(&nodes);
        assert_eq!((counted.ready_nodes, counted.not_ready_nodes, counted.unknown_nodes, counted.lost_nodes), (1, 1, 0, 1));
        let (capacity, allocatable) = resources(&nodes);
        assert_eq!((capacity["cpu"].0.as_str(), capacity["memory"].0.as_str()), ("4500m", "3Gi"));
        assert_eq!(allocatable["memory"].0, "1536Mi");
        assert!(!capacity.contains_key("nvidia.com/gpu"));
        assert_eq!(resources(&[]).0["cpu"].0, "0");
    }

    #[test]
    fn labels_that_most_workers_share() {
        let zone = |z: &str| json!({"node.clusternet.io/zone": z, "other": "x"});
        let nodes = [
            node(zone("a"), None, "1"),
            node(zone("a"), None, "1"),
            node(zone("a"), None, "1"),
            node(zone("b"), None, "1"),
            node(json!({"node.clusternet.io/zone": "z", "node-role.kubernetes.io/control-plane": ""}), None, "1"),
        ];
        let prefixes = vec!["node.clusternet.io/".to_owned()];
        assert!(common_labels(&nodes, &prefixes, 0.8).is_empty());
        assert_eq!(common_labels(&nodes, &prefixes, 0.7), BTreeMap::from([("node.clusternet.io/zone".into(), "a".into())]));
        assert_eq!(common_labels(&nodes[2..4], &prefixes, 0.5)["node.clusternet.io/zone"], "a", "of equals the first");
        assert!(common_labels(&[], &prefixes, 0.8).is_empty());
    }

    #[test]
    fn flags_in_any_form() {
        let pod = |command: serde_json::Value| -> Pod {
            serde_json::from_value(json!({"metadata": {}, "spec": {"containers": [{"name": "c", "command": command}]}})).expect("a pod")
        };
        let name = "--service-cluster-ip-range";
        assert_eq!(flag(&[pod(json!(["kube-apiserver", "--service-cluster-ip-range=10.0.0.0/16"]))], name).as_deref(), Some("10.0.0.0/16"));
        assert_eq!(flag(&[pod(json!(["kube-apiserver", "--service-cluster-ip-range", "10.1.0.0/16"]))], name).as_deref(), Some("10.1.0.0/16"));
        assert_eq!(flag(&[pod(json!(["sh", "-c", "kube-apiserver --x --service-cluster-ip-range=10.2.0.0/16 --y"]))], name).as_deref(), Some("10.2.0.0/16"));
        assert_eq!(flag(&[pod(json!(["kube-apiserver", "--service-cluster-ip-range"]))], name), None, "no value, no crash");
        assert_eq!(flag(&[pod(json!(["kube-apiserver", "--service-cluster-ip-ranges=x"]))], name), None);
    }
}
