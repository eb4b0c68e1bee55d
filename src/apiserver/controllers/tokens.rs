//! Tokens in Secrets of type `kubernetes.io/service-account-token`: filled in, and taken away with their account.

use std::sync::Arc;

use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use serde_json::json;

use super::kinds::{SECRET, SERVICE_ACCOUNT};
use super::{Call, Change, Controller, Delete, Key, Turn, World};
use crate::auth::jwt::Issuer;
use crate::auth::text;

const TYPE: &str = "kubernetes.io/service-account-token";
const NAME: &str = "kubernetes.io/service-account.name";
const UID: &str = "kubernetes.io/service-account.uid";

/// Fills token Secrets.
#[derive(Debug)]
pub struct Tokens {
    issuer: Arc<Issuer>,
    root_ca: String,
}

impl Tokens {
    /// With the signer of tokens and the root certificate in PEM.
    pub fn new(issuer: Arc<Issuer>, root_ca: String) -> Self {
        Self { issuer, root_ca }
    }
}

impl Controller for Tokens {
    fn name(&self) -> &'static str {
        "serviceaccount-token"
    }

    fn concerns(&self, change: &Change, world: &World<'_>, wake: &mut Vec<Key>) {
        if change.key.is(&SECRET) && !change.deleted {
            wake.push(change.key.clone());
        } else if change.key.is(&SERVICE_ACCOUNT) {
            // Secrets may be there before their account, and must not outlive it.
            let namespace = &change.key.namespace;
            wake.extend(world.graph.of_kind(&SECRET, namespace).map(|node| node.key.clone()));
        }
    }

    fn decide(&self, key: &Key, world: &World<'_>) -> Turn {
        let mut turn = Turn::default();
        let Some(secret) = world.at(key) else { return turn };
        if text(&secret, &["type"]) != TYPE || !text(&secret, &["metadata", "deletionTimestamp"]).is_empty() {
            return turn;
        }
        let annotation = |name: &str| text(&secret, &["metadata", "annotations", name]).to_owned();
        let (name, wanted) = (annotation(NAME), annotation(UID));
        let account = world.get(&SERVICE_ACCOUNT, &key.namespace, &name);
        let uid = account.as_deref().map_or("", |account| text(account, &["metadata", "uid"]));
        if uid.is_empty() || (!wanted.is_empty() && wanted != uid) {
            turn.call(Call::delete(&SECRET, &secret, Delete::Background));
            return turn;
        }
        let whole = ["token", "ca.crt", "namespace"].iter().all(|field| !text(&secret, &["data", field]).is_empty());
        if whole && wanted == uid {
            return turn;
        }
        let mut data = json!({
            "ca.crt": STANDARD.encode(&self.root_ca),
            "namespace": STANDARD.encode(key.namespace.as_bytes()),
        });
        if text(&secret, &["data", "token"]).is_empty() {
            let Some(token) = self.issuer.issue_legacy(&key.namespace, &name, uid, &key.name) else { return turn };
            data["token"] = json!(STANDARD.encode(token));
        }
        let version = text(&secret, &["metadata", "resourceVersion"]);
        let patch = json!({"metadata": {"resourceVersion": version, "annotations": {UID: uid}}, "data": data});
        turn.call(Call::merge(&SECRET, &key.namespace, &key.name, "", patch));
        turn
    }
}
