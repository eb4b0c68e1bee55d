//! What every namespace gets at once: the ServiceAccount `default` and the ConfigMap `kube-root-ca.crt`.

use serde_json::{json, Value};

use super::kinds::{CONFIG_MAP, NAMESPACE, SERVICE_ACCOUNT};
use super::{Call, Change, Controller, Key, Turn, World};
use crate::auth::{at, text};

const ACCOUNT: &str = "default";
const ROOT_CA: &str = "kube-root-ca.crt";
const DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the \
internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";

/// Gives every namespace its account and the root certificate.
#[derive(Debug)]
pub struct Accounts {
    root_ca: String,
}

impl Accounts {
    /// With the root certificate in PEM.
    pub fn new(root_ca: String) -> Self {
        Self { root_ca }
    }
}

impl Controller for Accounts {
    fn name(&self) -> &'static str {
        "serviceaccount"
    }

    fn concerns(&self, change: &Change, _: &World<'_>, wake: &mut Vec<Key>) {
        let key = &change.key;
        if key.is(&NAMESPACE) {
            wake.push(key.clone());
        } else if (key.is(&SERVICE_ACCOUNT) && change.deleted && *key.name == *ACCOUNT)
            || (key.is(&CONFIG_MAP) && *key.name == *ROOT_CA)
        {
            wake.push(Key::new("", "namespaces", "", &key.namespace));
        }
    }

    fn decide(&self, key: &Key, world: &World<'_>) -> Turn {
        let mut turn = Turn::default();
        let Some(namespace) = world.at(key) else { return turn };
        let phase = text(&namespace, &["status", "phase"]);
        if !text(&namespace, &["metadata", "deletionTimestamp"]).is_empty() || phase == "Terminating" {
            return turn;
        }
        if world.get(&SERVICE_ACCOUNT, &key.name, ACCOUNT).is_none() {
            turn.call(Call::create(&SERVICE_ACCOUNT, &key.name, json!({"metadata": {"name": ACCOUNT}})));
        }
        let data = json!({"ca.crt": self.root_ca});
        let annotations = json!({"kubernetes.io/description": DESCRIPTION});
        match world.get(&CONFIG_MAP, &key.name, ROOT_CA) {
            None => {
                let map = json!({"metadata": {"name": ROOT_CA, "annotations": annotations}, "data": data});
                turn.call(Call::create(&CONFIG_MAP, &key.name, map));
            }
            Some(map) if map.get("data") != Some(&data) || lacks(&map) => {
                let mut map = Value::clone(&map);
                map["data"] = data;
                map["metadata"]["annotations"]["kubernetes.io/description"] = json!(DESCRIPTION);
                turn.call(Call::update(&CONFIG_MAP, "", map));
            }
            Some(_) => {}
        }
        turn
    }
}

fn lacks(map: &Value) -> bool {
    at(map, &["metadata", "annotations", "kubernetes.io/description"]).is_none()
}
