//! Tables of Subscription turns, and the property that a performed plan leaves nothing to do.

use api::Kind as _;
use api::Time;
use api::apps::{FeedOrder, SchedulingStrategy, SubscriptionStatus};

use super::*;

fn uid(n: usize) -> String {
    format!("00000000-0000-4000-8000-{n:012}")
}

fn feed(kind: &str, name: &str) -> Feed {
    let api_version = if kind == "Deployment" { "apps/v1" } else { "v1" };
    Feed { api_version: api_version.to_owned(), kind: kind.to_owned(), namespace: "choir".to_owned(), name: name.to_owned() }
}

fn cluster(name: &str) -> (String, ClusterFacts) {
    let namespace = format!("clusternet-{name}");
    let facts = ClusterFacts { namespace: namespace.clone(), name: name.to_owned(), id: uid(name.len()), labels: BTreeMap::new() };
    (format!("{namespace}/{name}"), facts)
}

fn seen(clusters: &[&str], divided: bool) -> Seen {
    let mut subscription = Subscription::default();
    subscription.metadata = ObjectMeta { name: Some("choirs".into()), namespace: Some("fleet".into()), uid: Some(uid(1)), ..ObjectMeta::default() };
    subscription.spec.feeds = vec![feed("Deployment", "voices"), feed("ConfigMap", "score")];
    let known: BTreeMap<String, ClusterFacts> = clusters.iter().map(|name| cluster(name)).collect();
    let mut status = SubscriptionStatus { binding_clusters: known.keys().cloned().collect(), spec_hash: 1, ..SubscriptionStatus::default() };
    let mut inventory = None;
    if divided {
        subscription.spec.scheduling_strategy = SchedulingStrategy::Dividing;
        let replicas = (0..clusters.len()).map(|n| i32::try_from(n).unwrap_or(0) + 1).collect();
        status.replicas = [(feed("Deployment", "voices").key(), replicas), (feed("ConfigMap", "score").key(), Vec::new())].into();
        let order = FeedOrder { feed: feed("Deployment", "voices"), desired_replicas: Some(9), replica_json_path: "/spec/replicas".into(), ..FeedOrder::default() };
        let mut object = FeedInventory::default();
        object.spec.feeds = vec![order, FeedOrder { feed: feed("ConfigMap", "score"), ..FeedOrder::default() }];
        inventory = Some(Arc::new(object));
    }
    subscription.status = Some(status);
    Seen { subscription: Arc::new(subscription), bases: Vec::new(), shares: Vec::new(), inventory, scalers: Default::default(), clusters: known }
}

/// Performs a plan on the reading itself, as a server would.
fn performed(mut seen: Seen, plan: &Plan, next: &mut usize) -> Seen {
    for step in plan.own.iter().chain(&plan.steps) {
        match step {
            Step::Create { object } => {
                *next += 1;
                let mut object = object.clone();
                object["metadata"]["uid"] = json!(uid(*next));
                match object["kind"].as_str() {
                    Some("Base") => seen.bases.push(Arc::new(Base::from_object(&object).expect("a Base"))),
                    Some("Localization") => seen.shares.push(Arc::new(Localization::from_object(&object).expect("a Localization"))),
                    other => panic!("made a {other:?}"),
                }
            }
            Step::Patch { at, patch, .. } => {
                let change = |object: Value| {
                    let mut object = object;
                    manifest::patch::merge(&mut object, patch);
                    object
                };
                match at.kind.as_str() {
                    "Subscription" => seen.subscription = Arc::new(Subscription::from_object(&change(seen.subscription.to_object())).expect("reads")),
                    "Base" => {
                        for base in &mut seen.bases {
                            if base.metadata.namespace.as_deref() == Some(&at.namespace) && base.metadata.name.as_deref() == Some(&at.name) {
                                *base = Arc::new(Base::from_object(&change(base.to_object())).expect("reads"));
                            }
                        }
                    }
                    _ => {
                        for share in &mut seen.shares {
                            if share.metadata.namespace.as_deref() == Some(&at.namespace) && share.metadata.name.as_deref() == Some(&at.name) {
                                *share = Arc::new(Localization::from_object(&change(share.to_object())).expect("reads"));
                            }
                        }
                    }
                }
            }
            Step::Delete { uid, .. } => {
                seen.bases.retain(|base| base.metadata.uid.as_ref() != Some(uid));
                seen.shares.retain(|share| share.metadata.uid.as_ref() != Some(uid));
            }
            Step::PatchStatus { .. } | Step::LetGo { .. } | Step::Tell { .. } => {}
        }
    }
    seen
}

/// Takes turns until nothing is left to do.
fn settled(mut seen: Seen) -> Seen {
    let mut next = 100;
    for _ in 0..5 {
        let plan = decide(&seen);
        if plan.own.is_empty() && plan.steps.is_empty() {
            return seen;
        }
        seen = performed(seen, &plan, &mut next);
    }
    panic!("never settles: {:?}", decide(&seen));
}

#[test]
fn one_base_per_bound_cluster_with_the_recorded_metadata() {
    let seen = settled(seen(&["harbor", "meadow", "summit"], false));
    assert_eq!(seen.subscription.metadata.finalizers.as_deref(), Some(&[finalizer::APP.to_owned()][..]));
    assert_eq!(label_of(&seen.subscription.metadata, &uid(1)), "Subscription");
    let names: Vec<_> = seen.bases.iter().map(|b| (b.metadata.namespace.clone().unwrap_or_default(), b.metadata.name.clone().unwrap_or_default())).collect();
    assert_eq!(names.len(), 3);
    assert!(names.iter().all(|(namespace, name)| *name == base_name(&seen.subscription.metadata, namespace) && name.len() == "choirs-".len() + 5));
    let labels = seen.bases[0].metadata.labels.clone().unwrap_or_default();
    for (key, value) in [
        ("apps.clusternet.io/config.kind", "Subscription"),
        ("apps.clusternet.io/config.name", "choirs"),
        ("apps.clusternet.io/config.namespace", "fleet"),
        ("apps.clusternet.io/config.uid", &uid(1)),
        ("apps.clusternet.io/subs.name", "choirs"),
        ("apps.clusternet.io/subs.namespace", "fleet"),
        ("apps.clusternet.io/subs.uid", &uid(1)),
        ("clusternet.io/created-by", "clusternet-controller-manager"),
        ("clusters.clusternet.io/cluster-name", "harbor"),
    ] {
        assert_eq!(labels.get(key).map(String::as_str), Some(value), "{key}");
    }
}

/// Case 39: labels with the name up to 57 characters.
#[test]
fn long_names_are_left_out_of_labels() {
    for (length, there) in [(57, true), (58, false), (250, false)] {
        let mut seen = seen(&["harbor"], false);
        Arc::make_mut(&mut seen.subscription).metadata.name = Some("a".repeat(length));
        let base = settled(seen).bases.remove(0);
        assert_eq!(!label_of(&base.metadata, label::SUBS_NAME).is_empty(), there, "{length}");
        assert!(names::is_dns_subdomain(&format!("{}-generic", base.metadata.name.clone().unwrap_or_default())));
    }
}

/// Case 35: shares as recorded; scaling patches them; changing the strategy takes them away.
#[test]
fn divided_workloads_publish_their_shares() {
    let mut seen = settled(seen(&["harbor", "meadow"], true));
    assert_eq!(seen.shares.len(), 2, "feeds without replicas have none");
    let share = &seen.shares[1];
    assert_eq!(json!(share.spec), json!({
        "feed": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "choir", "name": "voices"},
        "overridePolicy": "ApplyNow", "priority": 1000,
        "overrides": [{"name": "dividing scheduling replicas", "type": "JSONPatch", "value": r#"[{"path":"/spec/replicas","value":2,"op":"replace"}]"#}],
    }));
    let owner = share.metadata.owner_references.as_ref().and_then(|o| o.first()).expect("owned");
    assert_eq!((owner.kind.as_str(), owner.controller), ("Base", Some(true)));
    assert!(crate::overrides::is_generated(share));
    let found = crate::shares::share(&seen.subscription, seen.inventory.as_deref(), &seen.scalers, "clusternet-meadow/meadow", &feed("Deployment", "voices"));
    assert_eq!(found, Some(vec![crate::shares::Change::Set("/spec/replicas".to_owned(), 2)]));
    assert_eq!(crate::shares::share(&seen.subscription, seen.inventory.as_deref(), &seen.scalers, "clusternet-meadow/meadow", &feed("ConfigMap", "score")), None);

    let status = Arc::make_mut(&mut seen.subscription).status.as_mut().expect("bound");
    status.replicas.insert(feed("Deployment", "voices").key(), vec![4, 0]);
    let mut seen = settled(seen);
    assert!(seen.shares.iter().any(|s| s.spec.overrides[0].value.contains("\"value\":4")));
    Arc::make_mut(&mut seen.subscription).spec.scheduling_strategy = SchedulingStrategy::Replication;
    assert!(settled(seen).shares.is_empty());
}

#[test]
fn a_result_of_another_length_is_told_and_not_used() {
    let mut seen = seen(&["harbor", "meadow"], true);
    let status = Arc::make_mut(&mut seen.subscription).status.as_mut().expect("bound");
    status.replicas.insert(feed("Deployment", "voices").key(), vec![4]);
    let plan = decide(&seen);
    assert!(plan.steps.iter().any(|s| matches!(s, Step::Tell { reason: Reason::BadSchedulingResult, .. })));
    assert_eq!(crate::shares::share(&seen.subscription, seen.inventory.as_deref(), &seen.scalers, "clusternet-harbor/harbor", &feed("Deployment", "voices")), None);
}

/// Case 49: twins that others left are reduced to one, and a Base of another name is taken over.
#[test]
fn twins_become_one() {
    let mut seen = settled(seen(&["harbor"], false));
    let mut twin = (*seen.bases[0]).clone();
    twin.metadata.name = Some("choirs-zzzzz".into());
    twin.metadata.uid = Some(uid(77));
    twin.metadata.creation_timestamp = Some(Time(jiff::Timestamp::MAX));
    seen.bases.push(Arc::new(twin.clone()));
    let kept = settled(seen.clone());
    assert_eq!(kept.bases.len(), 1);
    assert_eq!(kept.bases[0].metadata.name, seen.bases[0].metadata.name);
    seen.bases = vec![Arc::new(twin)];
    assert_eq!(settled(seen).bases[0].metadata.name.as_deref(), Some("choirs-zzzzz"));
}

#[test]
fn what_is_no_longer_bound_goes_and_nothing_goes_on_a_doubt() {
    let mut seen = settled(seen(&["harbor", "meadow"], false));
    let mut unscheduled = seen.clone();
    Arc::make_mut(&mut unscheduled.subscription).status = None;
    assert_eq!(decide(&unscheduled), Plan::default(), "without a status nothing is taken away");
    let mut absent = seen.clone();
    absent.clusters.remove("clusternet-meadow/meadow");
    let plan = decide(&absent);
    assert_eq!((plan.steps.len(), plan.absent), (0, vec!["clusternet-meadow/meadow".to_owned()]));
    Arc::make_mut(&mut seen.subscription).status.as_mut().expect("bound").binding_clusters.remove(0);
    assert_eq!(settled(seen).bases.len(), 1);
}

/// Cases 08 and 87.
#[test]
fn deletion_waits_for_the_bases_and_empty_feeds_keep_them() {
    let mut seen = settled(seen(&["harbor"], false));
    Arc::make_mut(&mut seen.subscription).spec.feeds.clear();
    let mut seen = settled(seen);
    assert_eq!((seen.bases.len(), seen.bases[0].spec.feeds.len()), (1, 0));
    Arc::make_mut(&mut seen.subscription).metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    let plan = decide(&seen);
    assert!(plan.own.is_empty() && matches!(plan.steps.as_slice(), [Step::Delete { .. }]));
    let gone = settled(seen);
    assert!(gone.bases.is_empty() && gone.subscription.metadata.finalizers.as_ref().is_some_and(Vec::is_empty));
}
