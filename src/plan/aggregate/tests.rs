//! Case 38 and the ways in which its original goes wrong.

use api::apps::ManifestStatus;

use super::*;

fn feed(api_version: &str, kind: &str, name: &str) -> Feed {
    Feed { api_version: api_version.to_owned(), kind: kind.to_owned(), namespace: "yard".to_owned(), name: name.to_owned() }
}

fn object(feed: &Feed, status: Value) -> ManifestStatus {
    ManifestStatus { feed: feed.clone(), observed_status: status }
}

#[test]
fn counts_add_up_per_feed_and_cluster() {
    let feeds = [feed("apps/v1", "Deployment", "saw"), feed("apps/v1", "StatefulSet", "kiln"), feed("batch/v1", "Job", "sweep"), feed("v1", "Service", "saw")];
    let objects: Vec<ManifestStatus> = [
        json!({"observedGeneration": 3, "replicas": 3, "unavailableReplicas": 3, "updatedReplicas": 3, "conditions": []}),
        json!({"availableReplicas": 0, "currentReplicas": 1, "observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "collisionCount": 0}),
        json!({"active": 1, "ready": 0, "startTime": "x"}),
        json!({"loadBalancer": {}}),
    ]
    .into_iter()
    .zip(&feeds)
    .map(|(status, feed)| object(feed, status))
    .collect();
    let clusters: Vec<ClusterSeen<'_>> = ["harbor", "meadow", "summit"].into_iter().map(|name| ClusterSeen { id: "i", name, objects: &objects, ..ClusterSeen::default() }).collect();
    let (statuses, complete) = statuses(&feeds, &clusters);
    assert_eq!(complete, 3);
    assert_eq!(json!(statuses[0].feed_status_summary), json!({"available": true, "replicaStatus": {"observedGeneration": 3, "replicas": 9, "unavailableReplicas": 9, "updatedReplicas": 9}}));
    assert_eq!(json!(statuses[1].feed_status_details[1]), json!({"available": true, "clusterId": "i", "clusterName": "meadow",
        "replicaStatus": {"currentReplicas": 1, "observedGeneration": 1, "replicas": 1, "updatedReplicas": 1}}));
    assert_eq!(json!(statuses[2].feed_status_summary), json!({"available": true, "replicaStatus": {"active": 3}}));
    assert!(statuses[3].feed_status_summary.available, "a Service of the name of a Deployment is another object");
}

#[test]
fn a_cluster_that_says_nothing_is_not_available_and_stops_nothing() {
    let feeds = [feed("v1", "ConfigMap", "a")];
    let objects = [object(&feeds[0], Value::Null), object(&feed("v1", "ConfigMap", "not-listed"), json!({"replicas": "three"}))];
    let clusters = [ClusterSeen { name: "a", objects: &objects, ..ClusterSeen::default() }, ClusterSeen { name: "b", ..ClusterSeen::default() }];
    let (found, complete) = statuses(&feeds, &clusters);
    assert_eq!((found[0].feed_status_summary.available, complete), (false, 1));
    let (verdict, _, message) = available(&found, &clusters);
    assert_eq!((verdict, message.as_str()), (Verdict::False, "ConfigMap yard/a: not everywhere yet; waits for b"));
    assert_eq!(statuses(&feeds, &[]), (Vec::new(), 0));
}

#[test]
fn details_are_bounded_and_show_trouble_first() {
    let feeds: Vec<Feed> = (0..10).map(|n| feed("v1", "ConfigMap", &format!("c{n}"))).collect();
    let objects: Vec<ManifestStatus> = feeds.iter().map(|f| object(f, Value::Null)).collect();
    let names: Vec<String> = (0..1000).map(|n| format!("cluster-{n:04}")).collect();
    let clusters: Vec<ClusterSeen<'_>> = names.iter().enumerate().map(|(n, name)| ClusterSeen { name, objects: if n == 999 { &[] } else { &objects }, ..ClusterSeen::default() }).collect();
    let (found, complete) = statuses(&feeds, &clusters);
    assert_eq!(complete, 999);
    assert_eq!(found.iter().map(|s| s.feed_status_details.len()).sum::<usize>(), DETAILS_MAX);
    assert!(found[0].feed_status_details.iter().any(|d| d.cluster_name == "cluster-0999"));
}

#[test]
fn conditions_say_what_is_waited_for_and_what_matched_nothing() {
    let finding = Finding { by: "Globalization g".into(), step: "m".into(), target: "ConfigMap yard/a".into(), missing: "nothing at /data/x".into() };
    let reports = [
        Report { waiting: vec![(Reason::FeedNotFound, "waits for Secret yard/s, which does not exist".into())], ..Report::default() },
        Report { findings: vec![finding.clone()], ..Report::default() },
        Report { findings: vec![finding], ..Report::default() },
    ];
    let clusters: Vec<ClusterSeen<'_>> = ["a", "b", "c"].into_iter().zip(&reports).map(|(name, report)| ClusterSeen { name, report: Some(report), ..ClusterSeen::default() }).collect();
    let mut have = Vec::new();
    let now = Time(jiff::Timestamp::UNIX_EPOCH);
    let subscription = Subscription::default();
    set_conditions(&mut have, &subscription, &[], &clusters, &[], &now);
    let text = |kind: &str| conditions::find(&have, kind).map(|c| (c.status.clone(), c.reason.clone(), c.message.clone())).expect("set");
    assert_eq!(text(condition::RENDERED), ("False".into(), "FeedNotFound".into(), "waits for Secret yard/s, which does not exist".into()));
    assert_eq!(text(condition::OVERRIDES_APPLIED).2, "override \"m\" of Globalization g matched nothing in ConfigMap yard/a (nothing at /data/x) for b, c");
    let fault = crate::overrides::OverrideFault { by: "Localization l".into(), step: "m".into(), target: "ConfigMap yard/a".into(), why: "no patch".into() };
    let report = Report { fault: Some(fault), ..Report::default() };
    let mut faulty = Vec::new();
    set_conditions(&mut faulty, &subscription, &[], &[ClusterSeen { name: "a", report: Some(&report), ..ClusterSeen::default() }], &[], &now);
    for kind in [condition::RENDERED, condition::OVERRIDES_APPLIED] {
        assert_eq!(conditions::find(&faulty, kind).map(|c| c.reason.as_str()), Some("FailedApplyingOverrides"), "{kind}");
    }
    let unrendered = [ClusterSeen { name: "a", unrendered: Some(("lamp".into(), "no value for .Values.colour".into())), ..ClusterSeen::default() }];
    let mut other = Vec::new();
    set_conditions(&mut other, &subscription, &[], &unrendered, &[], &now);
    let rendered = conditions::find(&other, condition::RENDERED).map(|c| (c.status.as_str(), c.message.as_str()));
    assert_eq!(rendered, Some(("False", "chart lamp: no value for .Values.colour; in a, whose branches stay as they are")));
    let again = have.clone();
    set_conditions(&mut have, &subscription, &[], &clusters, &[], &Time(jiff::Timestamp::MAX));
    assert_eq!(have, again, "time alone changes nothing");
}
