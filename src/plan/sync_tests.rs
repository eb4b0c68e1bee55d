//! Tests of what a child should have: ownership, duplicates, prunes, statuses.

use serde_json::json;

use super::*;

fn map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "n"}, "data": {"x": value}})
}

fn claim(name: &str, created: i128, objects: Vec<Value>) -> Claimant {
    let objects = objects.into_iter().map(Arc::new).collect();
    Claimant { name: name.into(), created: Some(created), objects, ..Claimant::default() }
}

fn identity(name: &str) -> Identity {
    Identity { group: String::new(), kind: "ConfigMap".into(), namespace: "n".into(), name: name.into() }
}

#[test]
fn the_eldest_owns_what_several_want() {
    let claimants = vec![claim("young", 9, vec![map("a", "2"), map("b", "1")]), claim("old", 1, vec![map("a", "1"), map("b", "1")])];
    let desired = desire(&claimants);
    assert_eq!(desired.wants[&identity("a")].owner, "old");
    assert_eq!(desired.wants[&identity("a")].object["data"]["x"], "1");
    assert_eq!(desired.faults["young"], ["ConfigMap n/a is deployed by old in another form"]);
    assert!(!desired.faults.contains_key("old"));
    let mut reversed = claimants.clone();
    reversed.reverse();
    assert_eq!(desire(&reversed), desired, "the order of input does not matter");
    // The old one goes: the young one takes over, and nothing is pruned.
    let left = vec![claimants[0].clone(), Claimant { deleting: true, ..claimants[1].clone() }];
    let after = desire(&left);
    assert_eq!(after.wants[&identity("a")].owner, "young");
    let present: BTreeMap<_, _> = desired.wants.iter().map(|(i, w)| (i.clone(), w.id.clone())).collect();
    assert!(victims(&present, &after).is_empty());
    assert_eq!(victims(&present, &desire(&[])).len(), 2);
}

#[test]
fn versions_of_one_object_are_one_object() {
    let of = |version: &str| json!({"apiVersion": version, "kind": "Deployment", "metadata": {"name": "d", "namespace": "n"}});
    let before = desire(&[claim("d", 1, vec![of("apps/v1beta1")])]);
    let after = desire(&[claim("d", 1, vec![of("apps/v1")])]);
    let present: BTreeMap<_, _> = before.wants.iter().map(|(i, w)| (i.clone(), w.id.clone())).collect();
    assert!(victims(&present, &after).is_empty());
}

#[test]
fn what_is_no_object_is_said_and_the_rest_goes() {
    let mut claimant = claim("d", 1, vec![]);
    claimant.take([&b"{\"a\":1}"[..], b"[]", b"nonsense", br#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"n"}}"#]);
    let desired = desire(&[claimant]);
    assert_eq!(desired.wants.len(), 1);
    let status = status("d", &desired, &BTreeMap::new());
    assert_eq!(status.phase, Some(DescriptionPhase::Failure));
    assert!(status.reason.starts_with("[Object 'Kind' is missing in '{\"a\":1}', "), "{}", status.reason);
}

#[test]
fn a_status_lists_every_object_in_order() {
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "n"}});
    let desired = desire(&[claim("d", 1, vec![service, map("a", "1"), map("b", "1")])]);
    let observed = BTreeMap::from([
        (Identity { kind: "Service".into(), ..identity("a") }, Observed { fault: None, status: json!({"loadBalancer": {}}) }),
        (identity("b"), Observed { fault: Some("namespaces \"n\" not found".into()), status: Value::Null }),
    ]);
    let status = status("d", &desired, &observed);
    assert_eq!(status.reason, "namespaces \"n\" not found");
    let text = serde_json::to_value(&status).expect("serialises");
    assert_eq!(
        text["manifestStatuses"],
        json!([
            {"apiVersion": "v1", "kind": "Service", "namespace": "n", "name": "a", "observedStatus": {"loadBalancer": {}}},
            {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "n", "name": "a"},
            {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "n", "name": "b"}])
    );
    assert_eq!(inventory(Some(&status)).count(), 3);
}

#[test]
fn an_autoscaler_keeps_its_count() {
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "n"}, "spec": {"replicas": 2}});
    let hpa = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h", "namespace": "n"},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}});
    let of = Identity { group: "apps".into(), kind: "Deployment".into(), namespace: "n".into(), name: "d".into() };
    let mut desired = desire(&[claim("d", 1, vec![deployment, hpa])]);
    yield_to_autoscalers(&mut desired, |_| None);
    assert_eq!(desired.wants[&of].object["spec"]["replicas"], 2);
    yield_to_autoscalers(&mut desired, |i| (*i == of).then_some(7));
    assert_eq!(desired.wants[&of].object["spec"]["replicas"], 7);
}

#[test]
fn a_huge_status_is_cut_and_the_list_is_whole() {
    let desired = desire(&[claim("d", 1, vec![map("a", "1"), map("b", "1")])]);
    let observed = BTreeMap::from([
        (identity("a"), Observed { fault: None, status: json!("x".repeat(STATUS_MAX)) }),
        (identity("b"), Observed { fault: None, status: json!("small") }),
    ]);
    let status = status("d", &desired, &observed);
    assert_eq!(status.manifest_statuses.len(), 2);
    assert!(status.manifest_statuses[0].observed_status.is_null());
    assert_eq!(status.manifest_statuses[1].observed_status, "small");
}

#[test]
fn who_applies() {
    use api::clusters::SyncMode;
    for holder in [Holder::Agent, Holder::ParentAsks, Holder::Parent, Holder::AgentAsks] {
        assert_eq!(applier(SyncMode::Push, true, holder), Applier::Parent);
        assert_eq!(applier(SyncMode::Dual, true, holder), Applier::Parent);
        assert_eq!(applier(SyncMode::Dual, false, holder), Applier::Agent, "the child does not let the parent in");
        assert_eq!(applier(SyncMode::Pull, false, holder), Applier::Agent, "the child does not let the parent in");
        let away = matches!(holder, Holder::Parent | Holder::AgentAsks);
        assert_eq!(applier(SyncMode::Pull, true, holder), if away { Applier::Parent } else { Applier::Agent });
        let mut cluster = api::clusters::ManagedCluster::new("harbor", Default::default());
        cluster.metadata.annotations = holder.as_str().map(|text| [(api::known::annotation::APPLIER.to_owned(), text.to_owned())].into());
        assert_eq!(Holder::of(&cluster), holder);
    }
    let mut cluster = api::clusters::ManagedCluster::new("harbor", Default::default());
    cluster.metadata.annotations = Some([(api::known::annotation::APPLIER.to_owned(), "somebody".to_owned())].into());
    assert_eq!(Holder::of(&cluster), Holder::Agent);
}

#[test]
fn an_object_that_is_listed_twice_is_one_object() {
    let desired = desire(&[claim("d", 1, vec![map("a", "1"), map("b", "1"), map("a", "1")])]);
    assert_eq!(desired.of["d"], [identity("a"), identity("b")]);
    assert!(desired.faults.is_empty());
    let differing = desire(&[claim("d", 1, vec![map("a", "1"), map("a", "2")])]);
    assert_eq!(differing.faults["d"], ["ConfigMap n/a is there twice, in different forms"]);
}

#[test]
fn who_prunes_is_known_by_what_the_agent_says() {
    let mut cluster = api::clusters::ManagedCluster::default();
    assert!(leaves_pruning(&cluster), "an agent of the original");
    for key in [api::known::annotation::AGENT_KEY, api::known::annotation::APPLIED_COMMIT] {
        cluster.metadata.annotations = Some([(key.to_owned(), "x".to_owned())].into());
        assert!(!leaves_pruning(&cluster), "{key}");
    }
}
