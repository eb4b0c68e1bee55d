//! Bootstrap tokens: expired ones are deleted, and `cluster-info` is there for newcomers, signed with those tokens that are for it.

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::Engine as _;
use ring::hmac;
use serde_json::{json, Map, Value};

use super::kinds::{CONFIG_MAP, SECRET};
use super::{Call, Change, Controller, Delete, Key, Kind, Turn, World};
use crate::auth::bootstrap_token::{data, expiration, NAMESPACE, NAME_PREFIX, SECRET_TYPE};
use crate::auth::text;

const PUBLIC: &str = "kube-public";
const INFO: &str = "cluster-info";
const SIGNATURE: &str = "jws-kubeconfig-";

/// Deletes expired bootstrap tokens.
#[derive(Debug, Default)]
pub struct TokenCleaner;

impl Controller for TokenCleaner {
    fn name(&self) -> &'static str {
        "token-cleaner"
    }

    fn concerns(&self, change: &Change, _: &World<'_>, wake: &mut Vec<Key>) {
        let key = &change.key;
        if key.is(&SECRET) && !change.deleted && *key.namespace == *NAMESPACE && key.name.starts_with(NAME_PREFIX) {
            wake.push(key.clone());
        }
    }

    fn decide(&self, key: &Key, world: &World<'_>) -> Turn {
        let mut turn = Turn::default();
        let Some(secret) = world.at(key) else { return turn };
        if text(&secret, &["type"]) != SECRET_TYPE {
            return turn;
        }
        match expiration(&secret) {
            Ok(Some(end)) if end <= world.now => turn.call(Call::delete(&SECRET, &secret, Delete::Background)),
            Ok(Some(end)) => turn.again_at(end, world.now),
            // A time that cannot be read makes the token useless, but deleting it would be acting on a doubt.
            Ok(None) | Err(()) => {}
        }
        turn
    }
}

/// Signs `kube-public/cluster-info`, so that those who hold a token can trust the authority in it.
#[derive(Debug, Default)]
pub struct InfoSigner;

/// A detached HMAC signature in compact form, with the token id as key id; the key is the token's secret half alone.
fn sign(content: &str, id: &str, secret: &str) -> String {
    let header = URL_SAFE_NO_PAD.encode(json!({"alg": "HS256", "kid": id}).to_string());
    let message = format!("{header}.{}", URL_SAFE_NO_PAD.encode(content));
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let signature = hmac::sign(&key, message.as_bytes());
    format!("{header}..{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
}

impl Controller for InfoSigner {
    fn name(&self) -> &'static str {
        "bootstrap-signer"
    }

    fn concerns(&self, change: &Change, _: &World<'_>, wake: &mut Vec<Key>) {
        let key = &change.key;
        let token = key.is(&SECRET) && *key.namespace == *NAMESPACE && key.name.starts_with(NAME_PREFIX);
        let info = key.is(&CONFIG_MAP) && *key.namespace == *PUBLIC && *key.name == *INFO && !change.deleted;
        if token || info {
            wake.push(Key::new("", "configmaps", PUBLIC, INFO));
        }
    }

    fn decide(&self, key: &Key, world: &World<'_>) -> Turn {
        let mut turn = Turn::default();
        let Some(info) = world.at(key) else { return turn };
        let content = text(&info, &["data", "kubeconfig"]);
        if content.is_empty() {
            return turn;
        }
        let none = Map::new();
        let now = info.get("data").and_then(Value::as_object).unwrap_or(&none);
        let mut wanted: Map<String, Value> =
            now.iter().filter(|(key, _)| !key.starts_with(SIGNATURE)).map(|(key, value)| (key.clone(), value.clone())).collect();
        for secret in world.list(&SECRET, NAMESPACE) {
            let live = text(&secret, &["type"]) == SECRET_TYPE
                && data(&secret, "usage-bootstrap-signing") == "true"
                && expiration(&secret).is_ok_and(|end| end.is_none_or(|end| end > world.now));
            let (id, part) = (data(&secret, "token-id"), data(&secret, "token-secret"));
            if live && !id.is_empty() && text(&secret, &["metadata", "name"]) == format!("{NAME_PREFIX}{id}") {
                wanted.insert(format!("{SIGNATURE}{id}"), json!(sign(content, &id, &part)));
            }
        }
        if *now != wanted {
            let mut info = Value::clone(&info);
            info["data"] = Value::Object(wanted);
            turn.call(Call::update(&CONFIG_MAP, "", info));
        }
        turn
    }
}

/// Publishes where the server is and whose certificates to trust, readable by everybody.
#[derive(Debug)]
pub struct ClusterInfo {
    server: String,
}

const ROOT_CA: &str = "kube-root-ca.crt";
const READERS: &str = "kubeadm:bootstrap-signer-clusterinfo";
const RBAC: &str = "rbac.authorization.k8s.io";
const ROLE: Kind = Kind { group: RBAC, api_version: "rbac.authorization.k8s.io/v1", kind: "Role", plural: "roles" };
const BINDING: Kind = Kind { group: RBAC, api_version: "rbac.authorization.k8s.io/v1", kind: "RoleBinding", plural: "rolebindings" };

impl ClusterInfo {
    /// With the URL under which the server is reached.
    pub fn new(server: String) -> Self {
        Self { server }
    }
}

impl Controller for ClusterInfo {
    fn name(&self) -> &'static str {
        "cluster-info"
    }

    fn concerns(&self, change: &Change, _: &World<'_>, wake: &mut Vec<Key>) {
        let key = &change.key;
        if key.is(&CONFIG_MAP) && *key.namespace == *PUBLIC && (*key.name == *ROOT_CA || *key.name == *INFO) {
            wake.push(Key::new("", "configmaps", PUBLIC, INFO));
        }
    }

    fn decide(&self, _: &Key, world: &World<'_>) -> Turn {
        let mut turn = Turn::default();
        // A server without keys has no authority that newcomers could trust.
        let root = world.get(&CONFIG_MAP, PUBLIC, ROOT_CA);
        let root = root.as_deref().map_or("", |root| text(root, &["data", "ca.crt"]));
        if root.is_empty() {
            return turn;
        }
        let authority = base64::engine::general_purpose::STANDARD.encode(root);
        let content = format!(
            "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: {authority}\n    server: {}\n  name: \"\"\n\
             contexts: null\ncurrent-context: \"\"\nkind: Config\npreferences: {{}}\nusers: null\n",
            self.server
        );
        match world.get(&CONFIG_MAP, PUBLIC, INFO) {
            None => turn.call(Call::create(&CONFIG_MAP, PUBLIC, json!({"metadata": {"name": INFO}, "data": {"kubeconfig": content}}))),
            Some(info) if text(&info, &["data", "kubeconfig"]) != content => {
                // The signatures are of the former content; the signer makes them anew.
                let mut info = Value::clone(&info);
                info["data"] = json!({"kubeconfig": content});
                turn.call(Call::update(&CONFIG_MAP, "", info));
            }
            Some(_) => {}
        }
        if world.get(&ROLE, PUBLIC, READERS).is_none() {
            let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [INFO], "verbs": ["get"]}]);
            turn.call(Call::create(&ROLE, PUBLIC, json!({"metadata": {"name": READERS}, "rules": rules})));
        }
        if world.get(&BINDING, PUBLIC, READERS).is_none() {
            let binding = json!({
                "metadata": {"name": READERS},
                "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": READERS},
                "subjects": [{"apiGroup": RBAC, "kind": "User", "name": "system:anonymous"}],
            });
            turn.call(Call::create(&BINDING, PUBLIC, binding));
        }
        turn
    }
}
