//! Decisions of the original's scheduler that are wrong by a rule, whatever the case: ours are held to what is right instead.
//!
//! A Subscription whose recorded status is settled here is taken out of both sides, its generated Localizations included,
//! once ours agree with our own status. Everything else stays and is compared field by field.

use std::collections::{BTreeMap, BTreeSet};

use api::selector::Selector;
use k8s_openapi::api::core::v1::{Taint, Toleration};
use plan::placement::cluster::tolerates;
use serde_json::{Value, json};

/// Name under which a run says which clusters exist and report, per step; it is no recorded file.
pub(super) const ALIVE: &str = "alive";

type Files = BTreeMap<String, Vec<Value>>;

/// Clusters that report, by `namespace/name`: labels and taints.
struct Fleet(BTreeMap<String, Value>);

impl Fleet {
    fn of(said: Vec<Value>) -> Fleet {
        Fleet(said.into_iter().filter_map(|one| Some((one["key"].as_str()?.to_owned(), one))).collect())
    }

    /// Whether what a Subscription has divided may stay in a cluster: it is there, still selected, and does not turn it out.
    fn keeps(&self, key: &str, spec: &Value) -> bool {
        let Some(cluster) = self.0.get(key) else { return false };
        let labels: BTreeMap<String, String> = serde_json::from_value(cluster["labels"].clone()).unwrap_or_default();
        let selects = |subscriber: &Value| {
            let affinity = serde_json::from_value(subscriber["clusterAffinity"].clone()).unwrap_or_default();
            Selector::from_label_selector(&affinity).is_ok_and(|selector| selector.matches(&labels))
        };
        let selected = spec["subscribers"].as_array().is_none_or(|all| all.iter().any(selects));
        let tolerations: Vec<Toleration> = serde_json::from_value(spec["clusterTolerations"].clone()).unwrap_or_default();
        let taints: Vec<Taint> = serde_json::from_value(cluster["taints"].clone()).unwrap_or_default();
        let turned_out = taints.iter().any(|taint| taint.effect == "NoExecute" && !tolerations.iter().any(|one| tolerates(one, taint)));
        selected && !turned_out
    }
}

/// Settles what can be settled, in every step.
pub(super) fn settle(expected: &mut Files, got: &mut Files) {
    // In the order in which they were played; the last one stands without a number.
    let number = |step: &str| step.trim_start_matches("step-").trim_end_matches('/').parse().unwrap_or(u32::MAX);
    let steps: BTreeMap<u32, String> =
        got.keys().filter_map(|file| file.strip_suffix("subscription-status")).map(|step| (number(step), step.to_owned())).collect();
    let mut moved: BTreeSet<String> = BTreeSet::new();
    for step in steps.into_values() {
        let fleet = Fleet::of(got.remove(&format!("{step}{ALIVE}")).unwrap_or_default());
        let file = format!("{step}subscription-status");
        let (Some(wanted), Some(had)) = (expected.get_mut(&file), got.get_mut(&file)) else { continue };
        let mut settled: BTreeMap<String, Value> = BTreeMap::new();
        for want in wanted.iter_mut() {
            let same = |have: &&mut Value| have["metadata"]["name"] == want["metadata"]["name"] && have["metadata"]["namespace"] == want["metadata"]["namespace"];
            let Some(have) = had.iter_mut().find(same) else { continue };
            let name = have["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            if want["status"] != have["status"] && (is_right(want, have, &fleet) || (moved.contains(&name) && stays_moved(want, have, &fleet))) {
                if names(&want["status"]).iter().any(|key| !fleet.keeps(key, &have["spec"])) {
                    moved.insert(name.clone());
                }
                // What no rule speaks of is compared as ever.
                for field in ["bindingClusters", "replicas", "desiredReleases"] {
                    if let Some(ours) = have["status"].get(field) {
                        want["status"][field] = ours.clone();
                    }
                }
                settled.insert(name, have["status"].clone());
            }
        }
        let file = format!("{step}localizations");
        let shares_agree = |one: &Value| subscription_of(one).and_then(|name| settled.get(name)).is_none_or(|status| is_share_of(one, status));
        if got.get(&file).is_none_or(|list| list.iter().all(shares_agree)) {
            for side in [&mut *expected, &mut *got] {
                if let Some(list) = side.get_mut(&file) {
                    list.retain(|one| subscription_of(one).is_none_or(|name| !settled.contains_key(name)));
                }
            }
        }
    }
    got.retain(|file, _| file.rsplit('/').next() != Some(ALIVE));
}

/// The Subscription of a generated Localization, by the form of its name.
fn subscription_of(localization: &Value) -> Option<&str> {
    localization["metadata"]["name"].as_str()?.split_once("-<rand:").map(|(name, _)| name)
}

/// Whether a generated Localization says what the status says.
fn is_share_of(localization: &Value, status: &Value) -> bool {
    let text = |path: &str| localization.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let (namespace, name) = (text("/spec/feed/namespace"), text("/spec/feed/name"));
    let feed = [text("/spec/feed/apiVersion"), text("/spec/feed/kind"), namespace, name];
    let feed = feed.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
    let cluster = format!("{}/", text("/metadata/namespace"));
    let bindings = status["bindingClusters"].as_array().map(Vec::as_slice).unwrap_or_default();
    let place = bindings.iter().position(|bound| bound.as_str().is_some_and(|bound| bound.starts_with(&cluster)));
    let share = place.and_then(|place| status["replicas"][&feed].get(place)).and_then(Value::as_i64);
    let value: Value = serde_json::from_str(text("/spec/overrides/0/value")).unwrap_or_default();
    share.is_some() && value.pointer("/0/value").and_then(Value::as_i64) == share
}

fn is_right(want: &Value, have: &Value, fleet: &Fleet) -> bool {
    let (recorded, ours) = (&want["status"], &have["status"]);
    let spec = &have["spec"];
    let dynamic = &spec["dividingScheduling"]["dynamicDividing"];
    let (before, now) = (names(recorded), names(ours));
    let mut once = before.clone();
    once.sort_unstable();
    once.dedup();
    let divides = spec["schedulingStrategy"] == "Dividing";
    // Facts 1.2: Binpack is accepted, then bound to nothing without a word.
    let packs = spec["dividingScheduling"]["type"] == "Dynamic" && dynamic["strategy"] == "Binpack";
    if packs && before.is_empty() && fits(ours) {
        return true;
    }
    let keeps = |key: &&str| fleet.keeps(key, spec);
    // Facts 6.2: a divided Subscription stays bound to a cluster that is gone, lost, no longer selected or turns it out, and runs short.
    if divides && !before.iter().all(keeps) && now.iter().all(keeps) && fits(ours) {
        return totals(recorded) == totals(ours);
    }
    // Facts 6.3: a cluster of two sub-groups is bound twice.
    if once.len() < before.len() && once == now && fits(ours) {
        return !divides || totals(recorded) == totals(ours);
    }
    // Of clusters with equal scores a sub-group takes any by chance (README of the cases, 3).
    if spec["schedulingBySubGroup"] == true && before.len() == now.len() && before != now && now.iter().all(keeps) {
        return multisets(recorded) == multisets(ours);
    }
    // The odd replica goes to any of equal clusters by chance (README of the cases, 3).
    divides && !before.is_empty() && before == now && multisets(recorded) == multisets(ours)
}

/// What moved away from a lost cluster earlier does not come back by itself, and all of it still runs.
fn stays_moved(want: &Value, have: &Value, fleet: &Fleet) -> bool {
    let (recorded, ours) = (names(&want["status"]), names(&have["status"]));
    let within = ours.iter().all(|key| recorded.contains(key) && fleet.keeps(key, &have["spec"]));
    within && fits(&have["status"]) && totals(&want["status"]) == totals(&have["status"])
}

fn names(status: &Value) -> Vec<&str> {
    status["bindingClusters"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// One share per binding in every divided feed, and the number of bindings as it is.
fn fits(status: &Value) -> bool {
    let count = names(status).len();
    let shares = status["replicas"].as_object().into_iter().flat_map(|replicas| replicas.values());
    let aligned = shares.filter_map(Value::as_array).all(|list| list.is_empty() || list.len() == count);
    aligned && status["desiredReleases"].as_u64().unwrap_or(0) == count as u64
}

fn totals(status: &Value) -> BTreeMap<String, i64> {
    let total = |list: &Value| list.as_array().into_iter().flatten().filter_map(Value::as_i64).sum();
    status["replicas"].as_object().into_iter().flatten().map(|(feed, list)| (feed.clone(), total(list))).collect()
}

fn multisets(status: &Value) -> BTreeMap<String, Vec<i64>> {
    let sorted = |list: &Value| {
        let mut list: Vec<i64> = list.as_array().into_iter().flatten().filter_map(Value::as_i64).collect();
        list.sort_unstable();
        list
    };
    status["replicas"].as_object().into_iter().flatten().map(|(feed, list)| (feed.clone(), sorted(list))).collect()
}

/// What a run says of its clusters.
pub(super) fn alive(clusters: &[Value]) -> Vec<Value> {
    let lives = |cluster: &&Value| {
        let conditions = cluster.pointer("/status/conditions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        conditions.iter().all(|condition| condition["type"] != "Ready" || condition["status"] == "True")
    };
    let key = |cluster: &Value| {
        let text = |path: &str| cluster.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let key = format!("{}/{}", text("/metadata/namespace"), text("/metadata/name"));
        json!({"key": key, "labels": cluster["metadata"]["labels"], "taints": cluster["spec"]["taints"]})
    };
    clusters.iter().filter(lives).map(key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(spec: Value, recorded: Value, ours: Value, right: bool) {
        let fleet = Fleet::of(vec![json!({"key": "n/a"}), json!({"key": "n/b"}), json!({"key": "n/flood", "taints": [{"key": "flood", "effect": "NoExecute"}]}), json!({"key": "n/far", "labels": {"at": "far"}})]);
        let (want, have) = (json!({"spec": spec.clone(), "status": recorded}), json!({"spec": spec, "status": ours}));
        assert_eq!(is_right(&want, &have, &fleet), right, "{want} {have}");
    }

    #[test]
    fn rules_settle_only_what_they_speak_of() {
        let status = |bindings: &[&str], shares: &[i64]| json!({"bindingClusters": bindings, "desiredReleases": bindings.len(), "replicas": {"f": shares}});
        let divided = json!({"schedulingStrategy": "Dividing", "dividingScheduling": {"type": "Static"}});
        check(divided.clone(), status(&["n/a", "n/b"], &[3, 4]), status(&["n/a", "n/b"], &[4, 3]), true);
        check(divided.clone(), status(&["n/a", "n/b"], &[3, 4]), status(&["n/a", "n/b"], &[5, 2]), false);
        check(divided.clone(), status(&["n/a", "n/gone"], &[3, 4]), status(&["n/a"], &[7]), true);
        check(divided.clone(), status(&["n/a", "n/gone"], &[3, 4]), status(&["n/a"], &[3]), false);
        check(divided.clone(), status(&["n/a", "n/b"], &[3, 4]), status(&["n/a"], &[7]), false);
        check(divided.clone(), status(&["n/a", "n/gone"], &[3, 4]), status(&["n/a", "n/b"], &[7]), false);
        check(divided.clone(), status(&["n/a", "n/flood"], &[3, 4]), status(&["n/a"], &[7]), true);
        let mut choosy = divided.clone();
        choosy["clusterTolerations"] = json!([{"operator": "Exists"}]);
        check(choosy.clone(), status(&["n/a", "n/flood"], &[3, 4]), status(&["n/a"], &[7]), false);
        choosy["subscribers"] = json!([{"clusterAffinity": {"matchLabels": {"at": "far"}}}]);
        check(choosy, status(&["n/a", "n/far"], &[3, 4]), status(&["n/far"], &[7]), true);
        let groups = json!({"schedulingBySubGroup": true});
        check(groups.clone(), status(&["n/a"], &[]), status(&["n/b"], &[]), true);
        check(groups, status(&["n/a"], &[]), status(&["n/a", "n/b"], &[]), false);
        check(json!({}), status(&["n/a", "n/a"], &[]), status(&["n/a"], &[]), true);
        check(json!({}), status(&["n/a", "n/b"], &[]), status(&["n/a"], &[]), false);
        let packs = json!({"schedulingStrategy": "Dividing", "dividingScheduling": {"type": "Dynamic", "dynamicDividing": {"strategy": "Binpack"}}});
        check(packs, json!({"specHash": 1}), status(&["n/a"], &[7]), true);
        check(divided, json!({"specHash": 1}), status(&["n/a"], &[7]), false);
    }
}
