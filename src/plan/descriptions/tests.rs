//! Tables of Base turns.

use api::apps::{DeployerType, GlobalizationSpec, HelmChart, Manifest, OverrideConfig, OverridePolicy, OverrideType};
use api::{Kind as _, ObjectMeta};

use super::*;

fn feed(kind: &str, name: &str) -> Feed {
    Feed { api_version: if kind == "HelmChart" { "apps.clusternet.io/v1alpha1" } else { "v1" }.to_owned(), kind: kind.to_owned(), namespace: "n".to_owned(), name: name.to_owned() }
}

fn config_map(name: &str, value: &str) -> Arc<Part> {
    let template = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "n", "uid": "x"}, "data": {"k": value}});
    Arc::new(Part::of_manifest(&Manifest::new("m", template)))
}

fn found(name: &str, value: &str, overrides: Vec<Arc<Override>>) -> FeedSeen {
    FeedSeen { feed: feed("ConfigMap", name), parts: vec![(config_map(name, value), overrides)], held: None, now: [0; 32] }
}

fn missing(name: &str) -> FeedSeen {
    FeedSeen { feed: feed("ConfigMap", name), parts: Vec::new(), held: None, now: [0; 32] }
}

fn seen(feeds: Vec<FeedSeen>) -> Seen {
    let uid = "00000000-0000-4000-8000-000000000001".to_owned();
    let labels = [
        (uid.clone(), "Base".to_owned()),
        (label::SUBS_NAMESPACE.to_owned(), "fleet".to_owned()),
        (label::SUBS_NAME.to_owned(), "s".to_owned()),
        (label::SUBS_UID.to_owned(), "00000000-0000-4000-8000-000000000002".to_owned()),
    ];
    let mut base = Base::default();
    base.metadata = ObjectMeta {
        name: Some("s-abcde".into()),
        namespace: Some("clusternet-harbor".into()),
        uid: Some(uid),
        labels: Some(labels.into()),
        finalizers: Some(vec![finalizer::APP.to_owned()]),
        ..ObjectMeta::default()
    };
    base.spec.feeds = feeds.iter().map(|f| f.feed.clone()).collect();
    Seen {
        base: Arc::new(base),
        cluster: ClusterFacts { namespace: "clusternet-harbor".into(), name: "harbor".into(), id: "cid".into(), ..ClusterFacts::default() },
        feeds,
        generic: None,
        helm: None,
        missing: MissingFeeds::Wait,
        orphan: false,
        unbound: false,
        replaced: false,
    }
}

fn render(part: &Part, overrides: &[Arc<Override>]) -> Result<Arc<Rendered>, OverrideFault> {
    render::part(part, overrides).map(Arc::new)
}

fn plan(seen: &Seen) -> Plan {
    decide(seen, None, render)
}

/// The Description as it is after a plan.
fn performed(seen: &Seen, plan: &Plan) -> Seen {
    let mut out = seen.clone();
    for step in &plan.steps {
        match step {
            Step::Create { object } => {
                let mut object = object.clone();
                object["metadata"]["uid"] = json!("00000000-0000-4000-8000-000000000009");
                let description = Arc::new(Description::from_object(&object).expect("a Description"));
                if description.spec.deployer == DeployerType::Helm { out.helm = Some(description) } else { out.generic = Some(description) }
            }
            Step::Patch { at, patch, .. } if at.kind == "Description" => {
                let slot = if at.name.ends_with("-helm") { &mut out.helm } else { &mut out.generic };
                let mut object = slot.as_ref().expect("there").to_object();
                manifest::patch::merge(&mut object, patch);
                *slot = Some(Arc::new(Description::from_object(&object).expect("a Description")));
            }
            Step::Delete { at, .. } => {
                if at.name.ends_with("-helm") { out.helm = None } else { out.generic = None }
            }
            _ => {}
        }
    }
    out
}

fn raw(seen: &Seen) -> Vec<Value> {
    seen.generic.iter().flat_map(|d| &d.spec.raw).map(|raw| serde_json::from_slice(&raw.0).expect("JSON")).collect()
}

fn override_of(policy: OverridePolicy, value: &str) -> Arc<Override> {
    let entry = OverrideConfig { name: "m".into(), kind: OverrideType::MergePatch, value: value.to_owned(), ..OverrideConfig::default() };
    let spec = GlobalizationSpec { override_policy: policy, overrides: vec![entry], feed: feed("ConfigMap", "a"), ..GlobalizationSpec::default() };
    Arc::new(Override::global(&api::apps::Globalization::new("g", spec)))
}

#[test]
fn a_description_is_made_as_recorded_and_then_left_alone() {
    let first = seen(vec![found("a", "1", vec![]), found("b", "2", vec![])]);
    let made = plan(&first);
    let [Step::Create { object }] = made.steps.as_slice() else { panic!("{:?}", made.steps) };
    assert_eq!(object["metadata"]["name"], "s-abcde-generic");
    assert_eq!(object["metadata"]["labels"], json!({
        "apps.clusternet.io/config.kind": "Base",
        "apps.clusternet.io/config.namespace": "clusternet-harbor",
        "apps.clusternet.io/config.uid": "00000000-0000-4000-8000-000000000001",
        "apps.clusternet.io/subs.name": "s",
        "apps.clusternet.io/subs.namespace": "fleet",
        "apps.clusternet.io/subs.uid": "00000000-0000-4000-8000-000000000002",
        "clusternet.io/created-by": "clusternet-controller-manager",
        "clusters.clusternet.io/cluster-id": "cid",
        "clusters.clusternet.io/cluster-name": "harbor",
    }));
    let then = performed(&first, &made);
    assert_eq!(raw(&then)[0], json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n"}, "data": {"k": "1"}}));
    assert!(plan(&then).steps.is_empty());
    let mut changed = then.clone();
    changed.feeds[1] = found("b", "3", vec![]);
    let update = plan(&changed);
    assert!(matches!(update.steps.as_slice(), [Step::Patch { .. }]));
    assert_eq!(raw(&performed(&changed, &update))[1]["data"]["k"], "3");
}

/// Case 20: ApplyLater waits for the next reason to render; ApplyNow, also one for another cluster, is one.
#[test]
fn apply_later_waits() {
    let first = seen(vec![found("a", "1", vec![])]);
    let mut now = performed(&first, &plan(&first));
    let later = override_of(OverridePolicy::ApplyLater, r#"{"data": {"later": "seen"}}"#);
    now.feeds[0].parts[0].1 = vec![later.clone()];
    assert!(plan(&now).steps.is_empty(), "a new ApplyLater override changes nothing yet");
    let mut elsewhere = now.clone();
    elsewhere.feeds[0].now = [1; 32];
    assert_eq!(raw(&performed(&elsewhere, &plan(&elsewhere)))[0]["data"], json!({"k": "1", "later": "seen"}));
    let mut here = now.clone();
    here.feeds[0].parts[0].1 = vec![later.clone(), override_of(OverridePolicy::ApplyNow, r#"{"data": {"now": "seen"}}"#)];
    assert_eq!(raw(&performed(&here, &plan(&here)))[0]["data"], json!({"k": "1", "later": "seen", "now": "seen"}));
    now.feeds[0] = found("a", "2", vec![later]);
    assert_eq!(raw(&performed(&now, &plan(&now)))[0]["data"], json!({"k": "2", "later": "seen"}));
}

/// Cases 06 and 40 by hand; from Git the other feeds go, and what was there stays.
#[test]
fn a_missing_feed_holds_up_what_the_rule_says() {
    let mut one = seen(vec![found("a", "1", vec![]), missing("b")]);
    let held = plan(&one);
    assert!(held.steps.iter().all(|s| matches!(s, Step::Tell { reason: Reason::FeedNotFound, .. })));
    assert_eq!(held.report.waiting.len(), 1);
    one.missing = MissingFeeds::Skip;
    assert_eq!(raw(&performed(&one, &plan(&one))).len(), 1);
    one.feeds[1] = found("b", "2", vec![]);
    let both = performed(&one, &plan(&one));
    assert_eq!(raw(&both).len(), 2);
    let mut gone = both.clone();
    gone.feeds[1] = missing("b");
    let kept = performed(&gone, &plan(&gone));
    assert_eq!(raw(&kept), raw(&both), "a feed that vanished keeps its last form");

    let mut meta = ObjectMeta::default();
    assert_eq!(MissingFeeds::of(&meta), MissingFeeds::Wait);
    meta.labels = Some([(label::SOURCE.to_owned(), "x".to_owned())].into());
    assert_eq!(MissingFeeds::of(&meta), MissingFeeds::Skip);
    meta.annotations = Some([(MISSING_FEEDS.to_owned(), "wait".to_owned())].into());
    assert_eq!(MissingFeeds::of(&meta), MissingFeeds::Wait);
}

#[test]
fn a_failing_override_keeps_what_is_deployed() {
    let first = seen(vec![found("a", "1", vec![])]);
    let mut now = performed(&first, &plan(&first));
    now.feeds[0] = found("a", "2", vec![override_of(OverridePolicy::ApplyNow, "[1]")]);
    let failed = plan(&now);
    assert!(matches!(failed.steps.as_slice(), [Step::Tell { reason: Reason::FailedApplyingOverrides, .. }]));
    assert!(failed.report.fault.is_some());
}

/// Cases 07 and 87: no feeds, no Description; deletion takes Descriptions first.
#[test]
fn descriptions_go_with_their_feeds_and_before_their_base() {
    let first = seen(vec![found("a", "1", vec![])]);
    let then = performed(&first, &plan(&first));
    let mut empty = then.clone();
    empty.feeds.clear();
    assert!(matches!(plan(&empty).steps.as_slice(), [Step::Delete { at, .. }] if at.name == "s-abcde-generic"));
    let mut deleted = then.clone();
    Arc::make_mut(&mut deleted.base).metadata.deletion_timestamp = Some(api::Time(jiff::Timestamp::UNIX_EPOCH));
    assert!(matches!(plan(&deleted).steps.as_slice(), [Step::Delete { at, .. }] if at.kind == "Description"));
    deleted.generic = None;
    assert!(matches!(plan(&deleted).steps.as_slice(), [Step::Patch { at, .. }] if at.kind == "Base"));
    let mut orphan = then.clone();
    orphan.orphan = true;
    assert!(matches!(plan(&orphan).steps.as_slice(), [Step::Delete { at, .. }] if at.kind == "Base"));
    let mut unbound = then;
    unbound.unbound = true;
    unbound.feeds[0] = found("a", "9", vec![]);
    assert!(plan(&unbound).steps.is_empty());
}

/// Cases 29 and 33.
#[test]
fn charts_go_into_their_own_description() {
    let mut chart = HelmChart::default();
    chart.metadata = ObjectMeta { name: Some("lantern".into()), namespace: Some("n".into()), ..ObjectMeta::default() };
    chart.metadata.labels = Some([("00000000-0000-4000-8000-00000000000f".to_owned(), "Base".to_owned()), ("mine".to_owned(), "x".to_owned())].into());
    chart.spec.options.chart = "lantern".into();
    chart.spec.options.repo = "http://repo".into();
    chart.spec.target_namespace = "lights".into();
    let part = Arc::new(Part::of_chart(&chart));
    let chart_feed = FeedSeen { feed: feed("HelmChart", "lantern"), parts: vec![(part, vec![])], held: None, now: [0; 32] };
    let mut one = seen(vec![found("a", "1", vec![]), chart_feed]);
    let then = performed(&one, &plan(&one));
    let helm = then.helm.as_ref().expect("made");
    assert_eq!(helm.spec.raw[0].0, b" ");
    let raw: Value = serde_json::from_slice(&helm.spec.chart_raw[0].0).expect("JSON");
    assert_eq!(raw, json!({
        "metadata": {"name": "lantern", "namespace": "n", "finalizers": ["apps.clusternet.io/finalizer", "apps.clusternet.io/feed-protection"],
            "labels": {"mine": "x", "00000000-0000-4000-8000-000000000001": "Base", "00000000-0000-4000-8000-000000000002": "Subscription",
                "apps.clusternet.io/config.group": "apps.clusternet.io", "apps.clusternet.io/config.kind": "HelmChart", "apps.clusternet.io/config.name": "lantern",
                "apps.clusternet.io/config.namespace": "n", "apps.clusternet.io/config.version": "v1alpha1"}},
        "spec": {"chart": "lantern", "chartPullSecret": {}, "createNamespace": true, "repo": "http://repo", "targetNamespace": "lights", "timeoutSeconds": 300},
    }));
    assert!(plan(&then).steps.is_empty());
    one.feeds[1].held = Some((Reason::HelmChartNotFound, "no".into()));
    assert!(plan(&one).steps.iter().all(|s| matches!(s, Step::Tell { .. })), "the whole Base waits");
}

/// A Base that goes while another one of its Subscription stays: Clusternet at times makes two.
#[test]
fn a_base_with_a_stand_in_goes_without_taking_anything_from_its_cluster() {
    let first = seen(vec![found("a", "1", vec![])]);
    let mut twin = performed(&first, &plan(&first));
    twin.replaced = true;
    Arc::make_mut(&mut twin.base).metadata.deletion_timestamp = Some(api::Time(jiff::Timestamp::UNIX_EPOCH));
    assert!(matches!(plan(&twin).steps.as_slice(), [Step::LetGo { at, .. }] if at.kind == "Description"));
    // A Description of charts goes by its own turn, after its releases.
    twin.helm = twin.generic.take();
    Arc::make_mut(twin.helm.as_mut().expect("there")).spec.deployer = DeployerType::Helm;
    assert!(plan(&twin).steps.is_empty());
    twin.helm = None;
    assert!(matches!(plan(&twin).steps.as_slice(), [Step::Patch { at, .. }] if at.kind == "Base"));
}

/// Clusternet leaves system metadata of the template in what it renders.
#[test]
fn a_description_that_deploys_the_same_is_left_alone() {
    let first = seen(vec![found("a", "1", vec![])]);
    let mut theirs = performed(&first, &plan(&first));
    let description = Arc::make_mut(theirs.generic.as_mut().expect("made"));
    description.metadata.annotations = None;
    let mut object: Value = serde_json::from_slice(&description.spec.raw[0].0).expect("JSON");
    object["metadata"]["generation"] = json!(1);
    object["metadata"]["creationTimestamp"] = Value::Null;
    description.spec.raw = vec![api::Bytes(object.to_string().into_bytes())];
    assert!(plan(&theirs).steps.is_empty(), "{:?}", plan(&theirs).steps);
    // Another object comes: this one keeps its words.
    theirs.feeds.push(found("b", "2", vec![]));
    let then = performed(&theirs, &plan(&theirs));
    let (before, after) = (theirs.generic.expect("there"), then.generic.expect("there"));
    assert_eq!((after.spec.raw.len(), &after.spec.raw[0]), (2, &before.spec.raw[0]));
}
