//! Nodes that exist only as objects: with capacity, always ready, without a heartbeat.

use std::sync::Arc;

use apiserver::controllers::kinds::{NAMESPACE, NODE};
use apiserver::controllers::{Call, Change, Controller, Key, Turn, World};
use serde_json::{json, Value};

use crate::value::{condition, list, second, text};
use crate::Options;

/// Keeps the simulated nodes in place.
#[derive(Debug)]
pub struct Nodes {
    options: Arc<Options>,
}

impl Nodes {
    /// As many nodes as the options say.
    pub fn new(options: Arc<Options>) -> Self {
        Self { options }
    }
}

/// The name of a node by its number, from 1.
fn node_name(number: u32) -> String {
    format!("node-{number}")
}

fn number_of(name: &str) -> Option<u32> {
    name.strip_prefix("node-")?.parse().ok()
}

/// The address of a node.
pub(crate) fn address(name: &str) -> String {
    let number = number_of(name).unwrap_or(0);
    format!("172.30.{}.{}", number / 250, number % 250 + 1)
}

impl Controller for Nodes {
    fn name(&self) -> &'static str {
        "nodes"
    }

    fn concerns(&self, change: &Change, _: &World<'_>, wake: &mut Vec<Key>) {
        let ours = |number: u32| (1..=self.options.nodes).contains(&number);
        if change.key.is(&NODE) && number_of(&change.key.name).is_some_and(ours) {
            wake.push(change.key.clone());
        } else if change.key.is(&NAMESPACE) && *change.key.name == *"kube-system" {
            wake.extend((1..=self.options.nodes).map(|number| Key::new("", "nodes", "", &node_name(number))));
        }
    }

    fn decide(&self, key: &Key, world: &World<'_>) -> Turn {
        let mut turn = Turn::default();
        match world.at(key) {
            None => {
                let mut labels = json!({
                    "beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux",
                    "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "kubernetes.io/hostname": &*key.name,
                });
                for (name, value) in &self.options.node_labels {
                    labels[name] = json!(value);
                }
                let node = json!({
                    "metadata": {"name": &*key.name, "labels": labels, "annotations": {"node.alpha.kubernetes.io/ttl": "0"}},
                    "spec": {},
                    "status": self.status(&key.name, world),
                });
                turn.call(Call::create(&NODE, "", node));
            }
            Some(node) => {
                let ready = condition(list(&node, &["status", "conditions"]), "Ready");
                if ready.is_none_or(|ready| text(ready, &["status"]) == "") {
                    turn.call(Call::status(&NODE, &node, self.status(&key.name, world)));
                }
            }
        }
        turn
    }
}

impl Nodes {
    fn status(&self, name: &str, world: &World<'_>) -> Value {
        let now = second(world.now);
        let condition = |kind: &str, status: &str, reason: &str, message: &str| {
            json!({
                "type": kind, "status": status, "reason": reason, "message": message,
                "lastHeartbeatTime": now, "lastTransitionTime": now,
            })
        };
        let resources = json!({
            "cpu": self.options.node_cpu, "memory": self.options.node_memory,
            "pods": self.options.node_pods.to_string(), "ephemeral-storage": "100Gi",
        });
        json!({
            "capacity": resources,
            "allocatable": resources,
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
                condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
            ],
            "addresses": [{"type": "InternalIP", "address": address(name)}, {"type": "Hostname", "address": name}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "machineID": name, "systemUUID": name, "bootID": name, "kernelVersion": "6.12.0", "osImage": "Simulated",
                "containerRuntimeVersion": "simulator://1", "kubeletVersion": "v1.37.2", "kubeProxyVersion": "",
                "operatingSystem": "linux", "architecture": "amd64",
            },
        })
    }
}
