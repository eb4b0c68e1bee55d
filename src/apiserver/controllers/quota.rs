//! ResourceQuotas: how much is used, and the door that stays shut when it would be too much.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use schema::Quantity;
use serde_json::{Value, json};

use super::kinds::RESOURCE_QUOTA;
use super::local::Stored;
use super::usage::{self, Amounts};
use super::{Call, Change, Controller, Key, Turn, World};
use crate::admission::{Admission, Operation, Request};
use crate::auth::{Objects, at, text};
use crate::status::ApiError;

/// Keeps the status of quotas.
#[derive(Debug, Default)]
pub struct Quotas;

/// The tables an entry of a quota may be about, by the names in it.
fn tables(hard: &Amounts) -> Vec<(String, String)> {
    let mut out: Vec<(String, String)> = Vec::new();
    for name in hard.keys() {
        let (group, plural) = if let Some(counted) = name.strip_prefix("count/") {
            let (plural, group) = counted.split_once('.').unwrap_or((counted, ""));
            (group, plural)
        } else if name.ends_with(".deviceclass.resource.k8s.io/devices") {
            ("resource.k8s.io", "resourceclaims")
        } else if name.contains(".storageclass.storage.k8s.io/") || name == "requests.storage" {
            ("", "persistentvolumeclaims")
        } else if let Some(service) = name.strip_prefix("services") {
            debug_assert!(service.is_empty() || service.starts_with('.'));
            ("", "services")
        } else if ["configmaps", "secrets", "replicationcontrollers", "resourcequotas", "persistentvolumeclaims"].contains(&name.as_str()) {
            ("", name.as_str())
        } else {
            ("", "pods")
        };
        let table = (group.to_owned(), plural.to_owned());
        if !out.contains(&table) {
            out.push(table);
        }
    }
    out
}

/// What of the names in `hard` is used in a namespace.
fn used(quota: &Value, hard: &Amounts, namespace: &str, objects: &dyn Objects) -> Amounts {
    let mut sum: Amounts = hard.keys().map(|name| (name.clone(), Quantity::from_int(0))).collect();
    for (group, plural) in tables(hard) {
        for object in objects.list(&group, &plural, Some(namespace)) {
            if usage::in_scope(quota, &group, &plural, &object) {
                let mut cost = usage::of(&group, &plural, &object);
                cost.retain(|name, _| hard.contains_key(name));
                usage::add(&mut sum, &cost);
            }
        }
    }
    sum
}

fn texts(amounts: &Amounts) -> Value {
    Value::Object(amounts.iter().map(|(name, amount)| (name.clone(), json!(amount.canonical()))).collect())
}

impl Controller for Quotas {
    fn name(&self) -> &'static str {
        "resourcequota"
    }

    fn concerns(&self, change: &Change, world: &World<'_>, wake: &mut Vec<Key>) {
        if !change.key.namespace.is_empty() {
            wake.extend(world.graph.of_kind(&RESOURCE_QUOTA, &change.key.namespace).map(|node| node.key.clone()));
        }
    }

    fn decide(&self, key: &Key, world: &World<'_>) -> Turn {
        let mut turn = Turn::default();
        let Some(quota) = world.at(key) else { return turn };
        let hard = usage::amounts(at(&quota, &["spec", "hard"]));
        let used = used(&quota, &hard, &key.namespace, world.objects);
        let mut status = json!({});
        for (field, amounts) in [("hard", &hard), ("used", &used)] {
            if !amounts.is_empty() {
                status[field] = texts(amounts);
            }
        }
        let before = quota.get("status").cloned().unwrap_or_else(|| json!({}));
        let same = |field: &str, amounts: &Amounts| usage::amounts(before.get(field)) == *amounts;
        if !same("hard", &hard) || !same("used", &used) {
            turn.call(Call::status(&RESOURCE_QUOTA, &quota, status));
        }
        turn
    }
}

/// How long a granted write counts before it must be seen in the store.
const GRANT: Duration = Duration::from_secs(3);

/// A write that was let through and may not be stored yet.
struct Granted {
    at: Instant,
    group: String,
    plural: String,
    name: String,
    object: Arc<Value>,
}

/// Refuses what would exceed a quota.
pub struct QuotaAdmission {
    objects: Stored,
    granted: Mutex<BTreeMap<String, Vec<Granted>>>,
}

impl std::fmt::Debug for QuotaAdmission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("QuotaAdmission")
    }
}

impl QuotaAdmission {
    /// Over the objects of a server.
    pub fn new(objects: Stored) -> Self {
        Self { objects, granted: Mutex::default() }
    }
}

impl Admission for QuotaAdmission {
    fn validate(&self, request: &Request<'_>, object: &Value) -> Result<Vec<String>, ApiError> {
        let (group, plural) = (request.resource.group.as_str(), request.resource.plural.as_str());
        let counted = request.operation == Operation::Create
            || (request.operation == Operation::Update && matches!((group, plural), ("", "pods" | "services" | "persistentvolumeclaims") | ("resource.k8s.io", "resourceclaims")));
        if request.namespace.is_empty() || !request.subresource.is_empty() || !counted || !request.resource.namespaced {
            return Ok(Vec::new());
        }
        if request.resource.native.is_some_and(|native| !native.stored()) {
            return Ok(Vec::new());
        }
        let quotas = self.objects.list("", "resourcequotas", Some(request.namespace));
        if quotas.is_empty() {
            return Ok(Vec::new());
        }
        let refuse = |why: String| Err(ApiError::forbidden(group, plural, request.name, &why));
        let mut granted = self.granted.lock();
        let pending = granted.entry(request.namespace.to_owned()).or_default();
        pending.retain(|one| {
            let stored = !one.name.is_empty() && self.objects.get(&one.group, &one.plural, request.namespace, &one.name).is_some();
            one.at.elapsed() < GRANT && !stored
        });
        for quota in &quotas {
            if !usage::in_scope(quota, group, plural, object) {
                continue;
            }
            let hard = usage::amounts(at(quota, &["spec", "hard"]));
            let mut cost = usage::of(group, plural, object);
            cost.retain(|name, _| hard.contains_key(name));
            let name = text(quota, &["metadata", "name"]);
            if group.is_empty() && plural == "pods" && request.operation == Operation::Create
                && let Some(unsaid) = usage::unsaid(&hard, object)
            {
                return refuse(format!("failed quota: {name}: must specify {unsaid}"));
            }
            if let Some(old) = request.old
                && usage::in_scope(quota, group, plural, old)
            {
                let before = usage::of(group, plural, old);
                for (name, amount) in &mut cost {
                    if let Some(before) = before.get(name) {
                        *amount = amount.sub(before);
                    }
                }
            }
            cost.retain(|_, amount| amount.sign() > 0);
            if cost.is_empty() {
                continue;
            }
            let mut now = used(quota, &hard, request.namespace, &self.objects);
            for one in pending.iter().filter(|one| usage::in_scope(quota, &one.group, &one.plural, &one.object)) {
                let mut more = usage::of(&one.group, &one.plural, &one.object);
                more.retain(|name, _| hard.contains_key(name));
                usage::add(&mut now, &more);
            }
            let mut then = now.clone();
            usage::add(&mut then, &cost);
            let over: Vec<&String> = cost.keys().filter(|name| then.get(*name) > hard.get(*name)).collect();
            if !over.is_empty() {
                let only = |all: &Amounts| -> Amounts {
                    all.iter().filter(|(name, _)| over.contains(name)).map(|(name, amount)| (name.clone(), *amount)).collect()
                };
                let (asked, used, limit) = (usage::shown(&only(&cost)), usage::shown(&only(&now)), usage::shown(&only(&hard)));
                return refuse(format!("exceeded quota: {name}, requested: {asked}, used: {used}, limited: {limit}"));
            }
        }
        if request.operation == Operation::Create && !request.dry_run {
            pending.push(Granted {
                at: Instant::now(),
                group: group.to_owned(),
                plural: plural.to_owned(),
                name: request.name.to_owned(),
                object: Arc::new(object.clone()),
            });
        }
        Ok(Vec::new())
    }
}
