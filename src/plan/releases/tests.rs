//! Tables of Helm Descriptions.

use api::apps::{ChartReference, DeployerType};
use api::{Bytes, Kind as _, ObjectMeta};

use super::*;

fn chart(name: &str) -> Bytes {
    let chart = json!({"metadata": {"name": name, "namespace": "fleet", "labels": {"mine": "x", "apps.clusternet.io/config.kind": "HelmChart"}, "annotations": {"a": "b"}},
        "spec": {"chart": "lantern", "chartPullSecret": {}, "createNamespace": true, "repo": "http://r", "targetNamespace": "lights", "timeoutSeconds": 300, "version": "1.0.0"}});
    Bytes(serde_json::to_vec(&chart).expect("JSON"))
}

fn seen(charts: &[(&str, &str)], values: &str) -> Seen {
    let mut description = Description::default();
    description.metadata = ObjectMeta {
        name: Some("lamps-abcde-helm".into()),
        namespace: Some("clusternet-harbor".into()),
        uid: Some("00000000-0000-4000-8000-000000000001".into()),
        labels: Some([(label::SUBS_NAME.to_owned(), "lamps".to_owned()), (label::CLUSTER_NAME.to_owned(), "harbor".to_owned())].into()),
        finalizers: Some(vec![finalizer::APP.to_owned()]),
        ..ObjectMeta::default()
    };
    description.spec.deployer = DeployerType::Helm;
    for (namespace, name) in charts {
        description.spec.charts.push(ChartReference { namespace: (*namespace).to_owned(), name: (*name).to_owned() });
        description.spec.raw.push(Bytes(values.as_bytes().to_vec()));
        description.spec.chart_raw.push(chart(name));
    }
    Seen { description: Arc::new(description), releases: Vec::new(), taken: BTreeMap::new(), replaced: false, facts: None, digests: BTreeMap::new(), found: BTreeMap::new() }
}

fn made(steps: &[Step]) -> Vec<Value> {
    steps.iter().filter_map(|s| if let Step::Create { object } = s { Some(object.clone()) } else { None }).collect()
}

#[test]
fn a_release_per_chart_as_recorded() {
    let mut one = seen(&[("fleet", "lantern")], r#"{"oil":"whale"}"#);
    let made = made(&decide(&one));
    assert_eq!(made[0]["metadata"]["name"], "lamps-abcde-helm-fleet-lantern");
    assert_eq!(made[0]["metadata"]["labels"]["apps.clusternet.io/config.kind"], "Description");
    assert_eq!(made[0]["metadata"]["labels"]["mine"], "x");
    assert_eq!(made[0]["metadata"]["annotations"], json!({"a": "b"}));
    assert_eq!(made[0]["spec"]["releaseName"], "lantern");
    let release = HelmRelease::from_object(&made[0]).expect("a HelmRelease");
    assert_eq!(release.spec.overrides.0, br#"{"oil":"whale"}"#);
    one.releases = vec![Arc::new(release)];
    assert!(decide(&one).is_empty(), "{:?}", decide(&one));
    let mut blank = seen(&[("fleet", "lantern")], " ");
    blank.releases = one.releases.clone();
    let [Step::Patch { patch, .. }] = &decide(&blank)[..] else { panic!("values went") };
    assert_eq!(patch["spec"], json!({"overrides": null}));
    let mut none = seen(&[], "");
    none.releases = one.releases.clone();
    assert!(matches!(decide(&none)[..], [Step::Delete { .. }]));
}

/// Case 88: the second release of one name is refused.
#[test]
fn two_charts_never_share_a_release() {
    let steps = decide(&seen(&[("fleet", "lantern"), ("crew", "lantern")], " "));
    assert_eq!(made(&steps).len(), 1);
    assert!(steps.iter().any(|s| matches!(s, Step::Tell { reason: Reason::HelmReleaseFailure, .. })));
    let mut other = seen(&[("fleet", "lantern")], " ");
    other.taken.insert(("lights".into(), "lantern".into()), "HelmRelease x/y".into());
    assert!(made(&decide(&other)).is_empty());
}

/// Case 39: 53 characters make a Description name that fits no label; the release is made all the same.
#[test]
fn long_names_do_without_their_label() {
    let mut long = seen(&[("fleet", "beacon")], " ");
    Arc::make_mut(&mut long.description).metadata.name = Some(format!("{}-abcde-helm", "d".repeat(53)));
    let made = made(&decide(&long));
    assert!(made[0]["metadata"]["labels"].get("apps.clusternet.io/config.name").is_none());
}

#[test]
fn deletion_waits_for_the_releases() {
    let mut gone = seen(&[("fleet", "lantern")], " ");
    let release = HelmRelease::from_object(&made(&decide(&gone))[0]).expect("a HelmRelease");
    Arc::make_mut(&mut gone.description).metadata.deletion_timestamp = Some(api::Time(jiff::Timestamp::UNIX_EPOCH));
    gone.releases = vec![Arc::new(release)];
    assert!(matches!(decide(&gone)[..], [Step::Delete { .. }]));
    gone.releases.clear();
    assert!(matches!(&decide(&gone)[..], [Step::Patch { patch, .. }] if patch["metadata"]["finalizers"] == json!([])));
    let mut broken = seen(&[("fleet", "lantern")], " ");
    Arc::make_mut(&mut broken.description).spec.raw.clear();
    assert!(matches!(decide(&broken)[..], [Step::Tell { reason: Reason::UnequalLengths, .. }]));
}

#[test]
fn a_second_chart_of_a_name_is_refused_and_secrets_are_found_beside_the_chart() {
    let twice = seen(&[("fleet", "lantern"), ("crew", "lantern"), ("fleet", "beacon")], " ");
    let refused = refused(&twice.description);
    assert_eq!(refused.keys().collect::<Vec<_>>(), [&1]);
    assert_eq!(refused[&1], "chart crew/lantern: release lights/lantern belongs to chart fleet/lantern");
    assert!(pull_secrets(&twice.description).is_empty());
    let mut one = Description::clone(&seen(&[("fleet", "lantern"), ("crew", "beacon")], " ").description);
    for (raw, secret) in one.spec.chart_raw.iter_mut().zip([json!({"name": "door"}), json!({"name": "gate", "namespace": "keys"})]) {
        let mut chart: Value = serde_json::from_slice(&raw.0).expect("JSON");
        chart["spec"]["chartPullSecret"] = secret;
        *raw = Bytes(serde_json::to_vec(&chart).expect("JSON"));
    }
    let found = pull_secrets(&one);
    assert_eq!(found["lamps-abcde-helm-fleet-lantern"], ("fleet".to_owned(), "door".to_owned()));
    assert_eq!(found["lamps-abcde-helm-crew-beacon"], ("keys".to_owned(), "gate".to_owned()));
    assert_ne!(pull_secret_name("a"), pull_secret_name("b"));
}

#[test]
fn a_branch_pins_what_is_rendered_and_without_one_the_pin_goes() {
    let mut one = seen(&[("fleet", "lantern")], r#"{"oil":"whale"}"#);
    one.facts = Some(Facts { kube: "v1.37.2".into(), api_versions: "v1:Pod".into(), now: 7, ..Facts::default() });
    let first = HelmRelease::from_object(&made(&decide(&one))[0]).expect("a HelmRelease");
    let pin = crate::rendered::Pin::read(&first).expect("a pin");
    assert_eq!((pin.kube.as_str(), pin.at, pin.revision), ("v1.37.2", 7, 1));
    one.releases = vec![Arc::new(first)];
    one.facts = Some(Facts { kube: "v1.38.0".into(), api_versions: "v1:Pod".into(), now: 8, ..Facts::default() });
    assert!(decide(&one).is_empty(), "{:?}", decide(&one));
    let mut other = seen(&[("fleet", "lantern")], r#"{"oil":"rape"}"#);
    (other.facts, other.releases) = (one.facts.clone(), one.releases.clone());
    let [Step::Patch { patch, .. }] = &decide(&other)[..] else { panic!("a new wish") };
    let next: crate::rendered::Pin = serde_json::from_str(patch["metadata"]["annotations"][annotation::RENDER].as_str().expect("a pin")).expect("JSON");
    assert!(next.of != pin.of && next.at == 8);
    one.digests = [("lamps-abcde-helm-fleet-lantern".to_owned(), "abc".to_owned())].into();
    assert_eq!(decide(&one).len(), 1, "another chart is another wish");
    one.facts = None;
    let [Step::Patch { patch, .. }] = &decide(&one)[..] else { panic!("no branch") };
    assert_eq!(patch["metadata"]["annotations"][annotation::RENDER], Value::Null);
}

#[test]
fn nothing_is_uninstalled_for_a_base_with_a_stand_in() {
    let mut twin = seen(&[("fleet", "lantern")], " ");
    twin.releases = vec![Arc::new(HelmRelease::from_object(&made(&decide(&twin))[0]).expect("a HelmRelease"))];
    twin.replaced = true;
    let steps = decide(&twin);
    let kinds: Vec<&str> = steps.iter().map(|step| if let Step::LetGo { at, .. } = step { at.kind.as_str() } else { "" }).collect();
    assert_eq!(kinds, ["HelmRelease", "Description"]);
}
