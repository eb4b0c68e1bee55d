//! Bootstrap tokens: expired ones are deleted, and `cluster-info` is signed with those that are there for it.

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::Engine as _;
use ring::hmac;
use serde_json::{json, Map, Value};

use super::kinds::{CONFIG_MAP, SECRET};
use super::{Call, Change, Controller, Delete, Key, Turn, World};
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

/// A detached HMAC signature in compact form, with the token id as key id.
fn sign(content: &str, id: &str, secret: &str) -> String {
    let header = URL_SAFE_NO_PAD.encode(json!({"alg": "HS256", "kid": id}).to_string());
    let message = format!("{header}.{}", URL_SAFE_NO_PAD.encode(content));
    let key = hmac::Key::new(hmac::HMAC_SHA256, format!("{id}.{secret}").as_bytes());
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
