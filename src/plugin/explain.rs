//! `explain`: why a Subscription is where it is: what the scheduler wrote, and the decision as a table.
//!
//! The table is the decision as it would be taken now, by the scheduler's own functions on what the parent says now; so it is
//! also there when the scheduler has long forgotten, and touches nothing.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use api::apps::{FeedInventory, Subscription};
use api::clusters::ManagedCluster;
use cluster::predictor::{Place, Predictors};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::ListParams;
use kube::{Api, Client};
use plan::placement::Framework;
use plan::placement::what_if::{Fleet, Free, explain, questions};

use crate::table;

/// The longest wait for one predictor.
const PATIENCE: Duration = Duration::from_secs(20);
/// Predictors asked at once.
const AT_ONCE: usize = 32;
/// Conditions that the scheduler writes.
const CONDITIONS: [&str; 4] = ["Scheduled", "SchedulingWarning", "FailedOver", "Rebalanced"];

/// `sub/NAME`, `subscription/NAME` or `NAME`.
pub(crate) fn name(text: &str) -> Result<&str> {
    match text.split_once('/') {
        None => Ok(text),
        Some(("sub" | "subs" | "subscription" | "subscriptions", name)) => Ok(name),
        Some((kind, _)) => bail!("this is about Subscriptions, not {kind:?}: give sub/NAME"),
    }
}

/// The profiles of the scheduler's own file; `None` without one.
pub(crate) fn framework(path: Option<&std::path::Path>) -> Result<Option<Framework>> {
    let Some(path) = path else { return Ok(None) };
    let text = std::fs::read_to_string(path).with_context(|| format!("read the scheduler configuration {}", path.display()))?;
    let value = manifest::read::parse(&text, &manifest::Limits::FILE).with_context(|| format!("read the scheduler configuration {}", path.display()))?;
    let config = plan::placement::Config::read(&value).with_context(|| path.display().to_string())?;
    Ok(Some(Framework::build(&config, &[]).with_context(|| path.display().to_string())?))
}

/// The explanation as text; `framework` is the scheduler's configuration, if it was given.
pub(crate) async fn text(client: &Client, namespace: &str, name: &str, framework: Option<&Framework>) -> Result<String> {
    let key = api::object::key(namespace, name);
    let subscriptions: Api<Subscription> = Api::namespaced(client.clone(), namespace);
    let subscription = subscriptions.get(name).await.with_context(|| format!("read the Subscription {key}"))?;
    let mut out = format!("Subscription {key}\n");
    let conditions = subscription.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
    let generation = subscription.metadata.generation.unwrap_or_default();
    out.push_str(&noted(&conditions));
    if let Some(age) = outdated(&conditions, generation) {
        out.push_str(&age);
    }
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let about = format!("involvedObject.kind=Subscription,involvedObject.name={name}");
    // Events are for colour; who may not read them still gets the decision.
    if let Ok(list) = events.list(&ListParams::default().fields(&about)).await {
        out.push_str(&told(list.items));
    }
    let clusters: Api<ManagedCluster> = Api::all(client.clone());
    let inventories: Api<FeedInventory> = Api::namespaced(client.clone(), namespace);
    let everything = ListParams::default();
    let mut fleet = Fleet { subscriptions: vec![subscription], ..Fleet::default() };
    fleet.clusters = clusters.list(&everything).await.context("list the clusters")?.items;
    fleet.inventories = inventories.list(&everything).await.context("list the FeedInventories")?.items;
    let predictors = Predictors::new(client.clone());
    let asks = questions(&fleet, Some(&key)).into_iter().map(|question| {
        let predictors = &predictors;
        async move {
            let place = Place { cluster_id: &question.id, address: &question.predictor.address, direct: question.predictor.direct, tunnel: question.tunnel };
            let answer = predictors.total(place, question.body, PATIENCE).await;
            ((question.cluster, question.feed), answer)
        }
    });
    let free = Free { answered: futures::stream::iter(asks).buffer_unordered(AT_ONCE).collect().await, ..Free::default() };
    out.push_str(&decision(&fleet, &key, framework, &free, jiff::Timestamp::now()));
    Ok(out)
}

/// What the scheduler wrote.
fn noted(conditions: &[Condition]) -> String {
    let mut rows = vec![["CONDITION", "STATUS", "REASON", "SINCE", "MESSAGE"].map(str::to_owned).to_vec()];
    for condition in conditions.iter().filter(|condition| CONDITIONS.contains(&condition.type_.as_str())) {
        let since = condition.last_transition_time.0.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        rows.push(vec![condition.type_.clone(), condition.status.clone(), condition.reason.clone(), since, condition.message.clone()]);
    }
    if rows.len() == 1 {
        return "\nthe scheduler has not decided about it yet\n".to_owned();
    }
    format!("\n{}", table(&rows))
}

/// The last events of the scheduler, and of feeds that it waits for.
fn told(mut events: Vec<Event>) -> String {
    events.retain(|event| matches!(event.reason.as_deref(), Some("Scheduled" | "FailedScheduling" | "Preempted" | "UnParseableFeeds" | "WaitingForFeedInventory")));
    events.sort_by_key(|event| event.last_timestamp.as_ref().map(|time| time.0).or(event.event_time.as_ref().map(|time| time.0)));
    let mut rows = vec![["EVENT", "COUNT", "MESSAGE"].map(str::to_owned).to_vec()];
    for event in events.iter().rev().take(5) {
        let count = event.count.unwrap_or(1).to_string();
        rows.push(vec![event.reason.clone().unwrap_or_default(), count, event.message.clone().unwrap_or_default()]);
    }
    if rows.len() == 1 { String::new() } else { format!("\n{}", table(&rows)) }
}

/// What must be known about a decision of an older spec, which may be that of another scheduler.
fn outdated(conditions: &[Condition], generation: i64) -> Option<String> {
    let scheduled = api::conditions::find(conditions, api::known::condition::SCHEDULED)?;
    let seen = scheduled.observed_generation.filter(|seen| *seen < generation)?;
    Some(format!("\nScheduled is about generation {seen} of the spec, which is at {generation} now: nobody has decided about it since\n"))
}

/// The decision as it would be taken now.
fn decision(fleet: &Fleet, key: &str, framework: Option<&Framework>, free: &Free, now: jiff::Timestamp) -> String {
    let standard = Framework::standard();
    let used = framework.unwrap_or(&standard);
    let subscription = fleet.subscriptions.first();
    let written = subscription.and_then(|one| api::conditions::find(&one.status.as_ref()?.conditions, api::known::condition::SCHEDULED));
    match explain(fleet, key, used, free, now) {
        None => String::new(),
        Some(Err(name)) => {
            let generation = subscription.and_then(|one| one.metadata.generation);
            let decided = written.is_some_and(|written| written.observed_generation >= generation);
            let served: Vec<&str> = used.profiles.keys().map(String::as_str).collect();
            let served = served.join(", ");
            let whose = if framework.is_some() { "the configuration given here serves" } else { "the one without a configuration serves" };
            let said = match decided {
                true => format!("the scheduler named {name:?} decides about it"),
                false => format!("no scheduler named {name:?} has decided about it as it is now"),
            };
            format!("\n{said}; {whose} {served}\n  see `kubectl get leases -n {}` for who runs, correct spec.schedulerName, or give --config with the file of the scheduler {name:?}\n", api::known::namespace::SYSTEM)
        }
        Some(Ok(decision)) => {
            let mut out = format!("\ndecided now: {}: {}\n", decision.reason, decision.message);
            let differs = written.is_some_and(|written| written.reason != decision.reason.as_str() || written.message != decision.message);
            if differs && framework.is_none() {
                out.push_str("  the scheduler wrote something else: things have changed since, or it has a configuration; give it here with --config\n");
            }
            for (reason, text) in &decision.warnings {
                out.push_str(&format!("  {reason}: {text}\n"));
            }
            out + &decision.explain.text()
        }
    }
}

#[cfg(test)]
mod tests {
    use api::Kind as _;
    use serde_json::json;

    use super::*;

    #[test]
    fn names() {
        assert_eq!(name("sub/a").expect("a name"), "a");
        assert_eq!(name("a").expect("a name"), "a");
        assert!(name("pod/a").is_err());
    }

    #[test]
    fn a_decision_is_a_table() {
        let cluster = |name: &str, taints: serde_json::Value| {
            ManagedCluster::from_object(&json!({"metadata": {"name": name, "namespace": "ns"}, "spec": {"clusterId": name, "taints": taints}})).expect("a cluster")
        };
        let subscription = Subscription::from_object(&json!({
            "metadata": {"name": "s", "namespace": "fleet"},
            "spec": {"subscribers": [{"clusterAffinity": {}}], "feeds": []},
        }))
        .expect("a Subscription");
        let taint = json!([{"key": "flood", "effect": "NoSchedule"}]);
        let fleet = Fleet { clusters: vec![cluster("a", json!([])), cluster("b", taint)], subscriptions: vec![subscription], ..Fleet::default() };
        let text = decision(&fleet, "fleet/s", None, &Free::default(), jiff::Timestamp::UNIX_EPOCH);
        assert!(text.starts_with("\ndecided now: Scheduled: bound to 1 of 2 clusters\nclusters 2, selected 2, feasible 1\n"), "{text}");
        assert!(text.contains("ns/b     TaintToleration  UnschedulableAndUnresolvable  had taint {flood: }"), "{text}");
        // The file of the scheduler decides, and a name that nobody serves is told.
        let config = plan::placement::Config::read(&json!({"profiles": [{"plugins": {"filter": {"disabled": [{"name": "*"}]}}}]})).expect("a configuration");
        let framework = Framework::build(&config, &[]).expect("a framework");
        let text = decision(&fleet, "fleet/s", Some(&framework), &Free::default(), jiff::Timestamp::UNIX_EPOCH);
        assert!(text.contains("bound to 2 of 2 clusters"), "{text}");
        let mut fleet = fleet;
        fleet.subscriptions[0].spec.scheduler_name = "nobody".to_owned();
        fleet.subscriptions[0].metadata.generation = Some(2);
        let old: Condition = serde_json::from_value(json!({
            "type": "Scheduled", "status": "True", "reason": "Scheduled", "message": "bound to 2 of 2 clusters", "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }))
        .expect("a condition");
        assert!(outdated(std::slice::from_ref(&old), 2).is_some_and(|text| text.contains("generation 1")));
        assert!(outdated(std::slice::from_ref(&old), 1).is_none());
        fleet.subscriptions[0].status.get_or_insert_default().conditions.push(old);
        let text = decision(&fleet, "fleet/s", None, &Free::default(), jiff::Timestamp::UNIX_EPOCH);
        assert!(text.contains("no scheduler named \"nobody\" has decided about it as it is now; the one without a configuration serves default"), "{text}");
        assert_eq!(noted(&[]), "\nthe scheduler has not decided about it yet\n");
    }
}
