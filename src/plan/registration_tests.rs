//! Tests of who may join: identity, names, namespaces, labels, keys.

use super::*;

const ID: &str = "11111111-2222-3333-4444-555555555555";
const OTHER: &str = "99999999-2222-3333-4444-555555555555";

fn request(change: impl Fn(&mut ClusterRegistrationRequest)) -> ClusterRegistrationRequest {
    let mut made = ClusterRegistrationRequest::default();
    made.metadata.name = Some(names::registration_request(ID));
    made.metadata.uid = Some("u".into());
    made.spec.cluster_id = ID.into();
    made.spec.cluster_name = "harbor".into();
    change(&mut made);
    made
}

fn cluster(id: &str, name: &str, key: Option<&str>) -> ManagedCluster {
    let mut made = ManagedCluster::default();
    made.metadata.name = Some(name.into());
    made.metadata.namespace = Some(format!("clusternet-{name}"));
    made.metadata.annotations = key.map(|key| BTreeMap::from([(annotation::AGENT_KEY.to_owned(), key.to_owned())]));
    made.spec.cluster_id = id.into();
    made
}

fn keyed(key: &str) -> impl Fn(&mut ClusterRegistrationRequest) {
    let key = key.to_owned();
    move |r| r.metadata.annotations = Some(BTreeMap::from([(annotation::AGENT_KEY.to_owned(), key.clone())]))
}

fn run(request: &ClusterRegistrationRequest, clusters: &[&ManagedCluster], namespaces: Vec<SeenNamespace>) -> Decision {
    decide(&Seen { request, clusters: clusters.to_vec(), namespaces, reserved_by: None, policy: Policy::All })
}

fn denied_with(decision: &Decision, words: &str) {
    assert!(matches!(decision, Decision::Denied(why) if why.contains(words)), "{decision:?} should say {words}");
}

fn granted(decision: Decision) -> Grant {
    match decision {
        Decision::Join(grant) => *grant,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_new_cluster_gets_its_own_place() {
    let grant = granted(run(&request(|r| r.spec.cluster_namespace = "clusternet-harbor".into()), &[], vec![]));
    assert_eq!(grant.namespace, "clusternet-harbor");
    assert!(grant.make_namespace.is_some() && grant.make_cluster.is_some());
    assert!(grant.service_account.is_some(), "no key, so a token");
    let again = granted(run(&request(|_| {}), &[], vec![]));
    assert_eq!(again.namespace, names::dedicated_namespace(ID), "deterministic");
}

#[test]
fn an_agent_with_a_key_gets_no_token() {
    let grant = granted(run(&request(keyed("sha256:aa")), &[], vec![]));
    assert_eq!(grant.service_account, None);
    assert!(grant.objects.iter().all(|o| o["kind"] != "Secret"));
    let cluster = grant.make_cluster.expect("made");
    assert_eq!(cluster["metadata"]["annotations"][annotation::AGENT_KEY], "sha256:aa");
    let binding = grant.objects.iter().find(|o| o["kind"] == "RoleBinding").expect("bound");
    assert_eq!(binding["subjects"][0]["name"], agent_user(ID));
}

#[test]
fn nobody_takes_anothers_name_namespace_or_identity() {
    let other = cluster(OTHER, "harbor", None);
    denied_with(&run(&request(|_| {}), &[&other], vec![]), "belongs to cluster 9999");
    let ours = cluster(ID, "harbor", Some("sha256:aa"));
    denied_with(&run(&request(keyed("sha256:bb")), &[&ours], vec![]), "another key");
    denied_with(&run(&request(|_| {}), &[&ours], vec![]), "another key");
    denied_with(&run(&request(|r| r.spec.cluster_id = OTHER.into()), &[], vec![]), "does not fit the name");
    denied_with(&run(&request(|r| r.spec.cluster_id = "x".into()), &[], vec![]), "not a UUID");
    for reserved in ["kube-system", "default", "clusternet-reserved"] {
        denied_with(&run(&request(|r| r.spec.cluster_namespace = reserved.into()), &[], vec![]), "reserved");
    }
    let existing = SeenNamespace { name: "team".into(), labels: BTreeMap::new(), terminating: false };
    denied_with(&run(&request(|r| r.spec.cluster_namespace = "team".into()), &[], vec![existing]), "not marked");
}

#[test]
fn joining_twice_changes_nothing() {
    let ours = cluster(ID, "harbor", Some("sha256:aa"));
    let mut again = request(keyed("sha256:aa"));
    let grant = granted(run(&again, &[&ours], vec![]));
    assert!(grant.make_cluster.is_none() && grant.make_namespace.is_none() && grant.mend_cluster.is_none());
    again.status.get_or_insert_default().result = result::APPROVED.into();
    again.status.get_or_insert_default().dedicated_namespace = "clusternet-harbor".into();
    again.status.get_or_insert_default().managed_cluster_name = "harbor".into();
    assert_eq!(run(&again, &[&ours], vec![]), Decision::Settled);
    // Half gone: the namespace is there, the ManagedCluster is not.
    let labels = reserved_labels(ID, "harbor");
    let half = granted(run(&again, &[], vec![SeenNamespace { name: "clusternet-harbor".into(), labels, terminating: false }]));
    assert!(half.make_namespace.is_none() && half.make_cluster.is_some());
}

#[test]
fn reserved_labels_cannot_be_asked_for() {
    let asked = BTreeMap::from(
        [(label::CLUSTER_ID, "x"), (label::CREATED_BY, "me"), ("node.clusternet.io/zone", "a"), ("gitops.anabranch.io/x", "y"), ("tier", "edge"), ("bad key", "v")]
            .map(|(k, v)| (k.to_owned(), v.to_owned())),
    );
    let grant = granted(run(&request(|r| r.spec.cluster_labels = asked.clone()), &[], vec![]));
    let cluster = grant.make_cluster.expect("made");
    assert_eq!(
        cluster["metadata"]["labels"],
        serde_json::json!({"clusternet.io/created-by": "clusternet-agent", "clusters.clusternet.io/cluster-id": ID,
            "clusters.clusternet.io/cluster-name": "harbor", "node.clusternet.io/zone": "a", "tier": "edge"})
    );
}

#[test]
fn the_credential_reaches_no_further_than_its_namespace() {
    let grant = granted(run(&request(|_| {}), &[], vec![]));
    for object in grant.objects.iter().filter(|o| o["kind"] == "ClusterRole") {
        let text = object["rules"].to_string();
        assert!(!text.contains("secrets") && !text.contains("\"resources\":[\"*\"]"), "{text}");
    }
    let role = grant.objects.iter().find(|o| o["kind"] == "Role").expect("role");
    assert!(!role["rules"].to_string().contains("bases"));
}

#[test]
fn a_person_may_be_asked() {
    let waits = request(|_| {});
    let seen = |request| decide(&Seen { request, clusters: vec![], namespaces: vec![], reserved_by: None, policy: Policy::Manual });
    assert!(matches!(seen(&waits), Decision::Waiting(_)));
    let said = request(|r| r.metadata.annotations = Some(BTreeMap::from([(annotation::APPROVED.to_owned(), "true".to_owned())])));
    assert!(matches!(seen(&said), Decision::Join(_)));
}

#[test]
fn certificates_go_to_the_holder_of_the_key() {
    let asked = SigningRequest {
        username: "system:bootstrap:abcdef".into(),
        groups: vec![api::known::secret::BOOTSTRAP_GROUP.into()],
        common_name: agent_user(ID),
        organizations: vec![AGENT_GROUP.into()],
        usages: vec!["client auth".into()],
        key: "sha256:aa".into(),
        ..SigningRequest::default()
    };
    let pinned = cluster(ID, "harbor", Some("sha256:aa"));
    assert_eq!(decide_signing(&asked, Some(&pinned)), Signing::Approve { repin: false });
    assert_eq!(decide_signing(&asked, None), Signing::Wait);
    let thief = SigningRequest { key: "sha256:bb".into(), ..asked.clone() };
    assert!(matches!(decide_signing(&thief, Some(&pinned)), Signing::Deny(_)));
    let renewal = SigningRequest { username: agent_user(ID), groups: vec![AGENT_GROUP.into()], ..thief.clone() };
    assert_eq!(decide_signing(&renewal, Some(&pinned)), Signing::Approve { repin: true });
    let neighbour = SigningRequest { username: agent_user(OTHER), groups: vec![AGENT_GROUP.into()], ..asked.clone() };
    assert!(matches!(decide_signing(&neighbour, Some(&pinned)), Signing::Deny(_)));
    let wide = SigningRequest { organizations: vec!["system:masters".into()], ..asked.clone() };
    assert!(matches!(decide_signing(&wide, Some(&pinned)), Signing::Deny(_)));
    let foreign = SigningRequest { common_name: "somebody".into(), ..asked };
    assert_eq!(decide_signing(&foreign, Some(&pinned)), Signing::Ignore);
}
