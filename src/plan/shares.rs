//! The share of a divided workload as a change of its object: the total itself, or the bounds of the autoscaler that owns it.

use std::collections::BTreeMap;

use api::apps::{Feed, FeedInventory, SchedulingStrategy, Subscription};
use serde_json::{Value, json};

use crate::placement::divide;

/// One change of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The field gets this number, whether it was written or not.
    Set(String, i32),
    /// The field is left to somebody else.
    Drop(String),
}

/// The patch of a generated Localization, with the members in Clusternet's order.
#[must_use]
pub fn published(changes: &[Change]) -> String {
    text(changes, "replace")
}

/// The same for rendering: a number that the template does not write is added, where replacing would find nothing to replace.
#[must_use]
pub fn rendered(changes: &[Change]) -> String {
    text(changes, "add")
}

fn text(changes: &[Change], set: &str) -> String {
    let one = |change: &Change| match change {
        Change::Set(pointer, number) => format!(r#"{{"path":{},"value":{number},"op":"{set}"}}"#, Value::String(pointer.clone())),
        Change::Drop(pointer) => format!(r#"{{"path":{},"op":"remove"}}"#, Value::String(pointer.clone())),
    };
    format!("[{}]", changes.iter().map(one).collect::<Vec<_>>().join(","))
}

/// An autoscaler among the feeds of a Subscription, whose bounds are divided in place of its workload's replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scaler {
    /// Feed key of the autoscaler.
    pub feed: String,
    /// Lower bound of the whole.
    pub least: i32,
    /// Upper bound of the whole.
    pub most: i32,
    /// Whether the template of its workload writes a number of replicas.
    pub written: bool,
}

/// Autoscalers by the feed key of their workload.
pub type Scalers = BTreeMap<String, Scaler>;

/// Whether a kind is an autoscaler.
#[must_use]
pub fn is_scaler(feed: &Feed) -> bool {
    feed.kind == "HorizontalPodAutoscaler" && feed.api_version.starts_with("autoscaling/")
}

/// The autoscalers among the feeds whose workload is a feed as well. `template` gives the object of a feed.
#[must_use]
pub fn scalers<'a>(feeds: &[Feed], template: impl Fn(&Feed) -> Option<&'a Value>) -> Scalers {
    let mut out = Scalers::new();
    for feed in feeds.iter().filter(|feed| is_scaler(feed)) {
        let Some(object) = template(feed).filter(|object| crate::inventory::wish(object) != Some(false)) else { continue };
        let at = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let target = feeds.iter().find(|other| {
            other.kind == at("/spec/scaleTargetRef/kind") && other.name == at("/spec/scaleTargetRef/name") && other.namespace == feed.namespace
        });
        let (Some(target), Some(most)) = (target, object.pointer("/spec/maxReplicas").and_then(Value::as_i64)) else { continue };
        let number = |number: i64| i32::try_from(number.max(0)).unwrap_or(i32::MAX);
        let least = object.pointer("/spec/minReplicas").and_then(Value::as_i64).unwrap_or(1);
        let written = template(target).is_some_and(|object| object.pointer("/spec/replicas").is_some());
        out.insert(target.key(), Scaler { feed: feed.key(), least: number(least), most: number(most), written });
    }
    out
}

/// What a cluster gets of a feed; `None` for feeds that are not divided. One that the scheduler has not divided yet, since it joined
/// others that are, gets nothing: the first that a child sees of a workload is its share.
#[must_use]
pub fn share(subscription: &Subscription, inventory: Option<&FeedInventory>, scalers: &Scalers, cluster: &str, feed: &Feed) -> Option<Vec<Change>> {
    let status = subscription.status.as_ref()?;
    let key = feed.key();
    // The scheduler writes them sorted; somebody else may not.
    let sorted = status.binding_clusters.binary_search_by(|bound| bound.as_str().cmp(cluster)).ok();
    let at = sorted.or_else(|| status.binding_clusters.iter().position(|bound| bound == cluster))?;
    let shares = |key: &str| status.replicas.get(key).filter(|shares| shares.len() == status.binding_clusters.len());
    if let Some(scaler) = scalers.get(&key) {
        // Without a share the workload rests, which also stops its autoscaler; otherwise the number is the autoscaler's.
        let pointer = "/spec/replicas".to_owned();
        return match *shares(&scaler.feed)?.get(at)? {
            0 => Some(vec![Change::Set(pointer, 0)]),
            _ => scaler.written.then(|| vec![Change::Drop(pointer)]),
        };
    }
    let order = inventory?.spec.feeds.iter().find(|order| order.feed == *feed)?;
    if order.desired_replicas.is_none() || order.replica_json_path.is_empty() {
        return None;
    }
    if subscription.spec.scheduling_strategy == SchedulingStrategy::Dividing && !status.replicas.is_empty() && !status.replicas.contains_key(&key) {
        return Some(vec![Change::Set(order.replica_json_path.clone(), 0)]);
    }
    let shares = shares(&key)?;
    let most = *shares.get(at)?;
    match scalers.values().find(|scaler| scaler.feed == key) {
        None => Some(vec![Change::Set(order.replica_json_path.clone(), most)]),
        Some(scaler) => {
            let weights: Vec<i64> = shares.iter().map(|share| i64::from(*share)).collect();
            let least = divide::by_weight(i64::from(scaler.least), &weights).get(at).copied().unwrap_or(0);
            // An autoscaler needs at least one; where the workload rests it does nothing.
            let most = most.max(1);
            let least = i32::try_from(least).unwrap_or(i32::MAX).clamp(i32::from(scaler.least > 0), most);
            Some(vec![Change::Set("/spec/minReplicas".to_owned(), least), Change::Set(order.replica_json_path.clone(), most)])
        }
    }
}

/// The specification of the generated Localization that publishes a share.
#[must_use]
pub fn localization_spec(feed: &Feed, changes: &[Change]) -> Value {
    json!({
        "overridePolicy": api::apps::OverridePolicy::ApplyNow,
        "overrides": [{
            "name": crate::overrides::SHARE_STEP,
            "type": api::apps::OverrideType::JSONPatch,
            "value": published(changes),
        }],
        "priority": crate::overrides::SHARE_PRIORITY,
        "feed": feed,
    })
}

#[cfg(test)]
mod tests {
    use api::Kind as _;

    use super::*;

    #[test]
    fn autoscalers_get_bounds_and_their_workload_rests_where_there_is_no_share() {
        let feed = |api_version: &str, kind: &str| Feed { api_version: api_version.into(), kind: kind.into(), namespace: "n".into(), name: "x".into() };
        let feeds = [feed("apps/v1", "Deployment"), feed("autoscaling/v2", "HorizontalPodAutoscaler")];
        let workload = json!({"spec": {"replicas": 4, "template": {"spec": {"containers": []}}}});
        let scaler = json!({"spec": {"minReplicas": 4, "maxReplicas": 12, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}}});
        let found = scalers(&feeds, |feed| Some(if is_scaler(feed) { &scaler } else { &workload }));
        let subscription = Subscription::from_object(&json!({
            "metadata": {"name": "s", "namespace": "f"},
            "spec": {"schedulingStrategy": "Dividing", "subscribers": [], "feeds": feeds},
            "status": {"bindingClusters": ["c/a", "c/b", "c/d"], "replicas": {
                "apps/v1/Deployment/n/x": [], "autoscaling/v2/HorizontalPodAutoscaler/n/x": [8, 4, 0]}},
        }))
        .expect("reads");
        let orders: Vec<_> = feeds.iter().map(|feed| crate::inventory::order(feed, if is_scaler(feed) { &scaler } else { &workload }, None, &found)).collect();
        assert_eq!((orders[0].desired_replicas, orders[1].desired_replicas), (None, Some(12)));
        let inventory = FeedInventory::new("s", api::apps::FeedInventorySpec { feeds: orders });
        let of = |cluster: &str, at: usize| share(&subscription, Some(&inventory), &found, cluster, &feeds[at]).map(|changes| rendered(&changes));
        let bounds = |least: i32, most: i32| Some(format!(r#"[{{"path":"/spec/minReplicas","value":{least},"op":"add"}},{{"path":"/spec/maxReplicas","value":{most},"op":"add"}}]"#));
        assert_eq!(of("c/a", 1), bounds(3, 8));
        assert_eq!(of("c/b", 1), bounds(1, 4));
        assert_eq!(of("c/d", 1), bounds(1, 1));
        assert_eq!(of("c/a", 0).as_deref(), Some(r#"[{"path":"/spec/replicas","op":"remove"}]"#));
        assert_eq!(of("c/d", 0).as_deref(), Some(r#"[{"path":"/spec/replicas","value":0,"op":"add"}]"#));
    }

    #[test]
    fn a_feed_that_joins_gets_nothing_until_it_is_divided() {
        let feed = |name: &str| Feed { api_version: "apps/v1".into(), kind: "Deployment".into(), namespace: "n".into(), name: name.into() };
        let feeds = [feed("old"), feed("new")];
        let workload = json!({"spec": {"replicas": 6, "template": {"spec": {"containers": []}}}});
        let orders = feeds.iter().map(|feed| crate::inventory::order(feed, &workload, None, &Scalers::new())).collect();
        let inventory = FeedInventory::new("s", api::apps::FeedInventorySpec { feeds: orders });
        let of = |strategy: &str, replicas: Value| {
            let object = json!({
                "metadata": {"name": "s", "namespace": "f"}, "spec": {"schedulingStrategy": strategy, "subscribers": [], "feeds": feeds},
                "status": {"bindingClusters": ["c/a", "c/b"], "replicas": replicas},
            });
            let subscription = Subscription::from_object(&object).expect("reads");
            share(&subscription, Some(&inventory), &Scalers::new(), "c/a", &feeds[1])
        };
        let set = |n: i32| Some(vec![Change::Set("/spec/replicas".to_owned(), n)]);
        assert_eq!(of("Dividing", json!({"apps/v1/Deployment/n/old": [4, 2]})), set(0));
        assert_eq!(of("Dividing", json!({"apps/v1/Deployment/n/old": [4, 2], "apps/v1/Deployment/n/new": [1, 5]})), set(1));
        // What was copied before stays as it is until the first division.
        assert_eq!(of("Dividing", json!({})), None);
        assert_eq!(of("Replication", json!({"apps/v1/Deployment/n/old": []})), None);
    }
}
