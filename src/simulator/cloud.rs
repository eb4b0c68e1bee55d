//! What a cloud would give a child: volumes for its claims, addresses for its load balancers.

use apiserver::controllers::kinds::{PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, SERVICE};
use apiserver::controllers::{Call, Change, Controller, Key, Turn, World};
use serde_json::{json, Value};

use crate::value::{at, list, name, namespace, terminating, text, uid};

/// Makes volumes and addresses.
#[derive(Debug, Default)]
pub struct Cloud;

impl Controller for Cloud {
    fn name(&self) -> &'static str {
        "cloud"
    }

    fn concerns(&self, change: &Change, _: &World<'_>, wake: &mut Vec<Key>) {
        if !change.deleted && (change.key.is(&PERSISTENT_VOLUME_CLAIM) || change.key.is(&SERVICE)) {
            wake.push(change.key.clone());
        }
    }

    fn decide(&self, key: &Key, world: &World<'_>) -> Turn {
        let mut turn = Turn::default();
        let Some(object) = world.at(key) else { return turn };
        if terminating(&object) {
            return turn;
        }
        if key.is(&SERVICE) {
            balance(&object, &mut turn);
        } else {
            provision(&object, world, &mut turn);
        }
        turn
    }
}

/// A volume made for one claim, of the size it asks for.
fn provision(claim: &Value, world: &World<'_>, turn: &mut Turn) {
    let unbound = at(claim, &["spec", "volumeName"]).is_none() && text(claim, &["status", "phase"]) != "Bound";
    // A claim that selects volumes wants one that is there already.
    if !unbound || at(claim, &["spec", "selector"]).is_some() {
        return;
    }
    let volume_name = format!("pvc-{}", uid(claim));
    if world.get(&PERSISTENT_VOLUME, "", &volume_name).is_some() {
        return;
    }
    let mut spec = json!({
        "accessModes": at(claim, &["spec", "accessModes"]),
        "capacity": {"storage": at(claim, &["spec", "resources", "requests", "storage"])},
        "claimRef": {
            "kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": namespace(claim), "name": name(claim), "uid": uid(claim),
        },
        "persistentVolumeReclaimPolicy": "Delete",
        "hostPath": {"path": format!("/simulated/{}", uid(claim))},
    });
    for field in ["storageClassName", "volumeMode", "volumeAttributesClassName"] {
        if let Some(value) = at(claim, &["spec", field]) {
            spec[field] = value.clone();
        }
    }
    let annotations = json!({"pv.kubernetes.io/provisioned-by": "simulator.anabranch.io"});
    turn.call(Call::create(&PERSISTENT_VOLUME, "", json!({"metadata": {"name": volume_name, "annotations": annotations}, "spec": spec})));
}

/// An address for a load balancer, from the uid of its Service.
fn balance(service: &Value, turn: &mut Turn) {
    if text(service, &["spec", "type"]) != "LoadBalancer" || !list(service, &["status", "loadBalancer", "ingress"]).is_empty() {
        return;
    }
    let class = text(service, &["spec", "loadBalancerClass"]);
    if !class.is_empty() {
        return;
    }
    let hash = uid(service).bytes().fold(0x811c_9dc5u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let address = format!("172.31.{}.{}", hash >> 8 & 0xff, hash & 0xff);
    turn.call(Call::status(&SERVICE, service, json!({"loadBalancer": {"ingress": [{"ip": address, "ipMode": "VIP"}]}})));
}
