//! Pins, files, and what comes back of them.

use api::Bytes;
use api::apps::HelmReleaseStatus;

use super::*;

fn chart(files: &[(&str, &str)]) -> Chart {
    let mut all: Vec<(String, Vec<u8>)> = vec![("Chart.yaml".into(), b"apiVersion: v2\nname: web\nversion: 1.2.0\n".to_vec()), ("values.yaml".into(), b"oil: rape\n".to_vec())];
    all.extend(files.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec())));
    chart::load(all.into_iter().collect()).expect("a chart")
}

fn release() -> HelmRelease {
    let mut out = HelmRelease::default();
    out.metadata.name = Some("lamp-helm-fleet-lamp".into());
    out.spec.target_namespace = "yard".into();
    out.spec.release_name = Some("lamp".into());
    out.spec.overrides = Bytes(br#"{"oil":"whale"}"#.to_vec());
    out
}

fn facts() -> Facts {
    Facts { kube: "v1.37.2".into(), api_versions: pack_api_versions([("v1", "Pod"), ("apps/v1", "Deployment")]), now: 1_700_000_000, ..Facts::default() }
}

fn made(chart: &Chart, pin: &Pin, answers: BTreeMap<Asked, Option<Value>>) -> Made {
    render(chart, &release(), pin, answers, seed(b"salt", "id", &release()))
}

fn text(made: &Made, name: &str) -> String {
    let Made::Files(files) = made else { panic!("{made:?}") };
    files.iter().find(|f| f.name == name).map(|f| f.text.to_string()).unwrap_or_default()
}

#[test]
fn kinds_in_few_words() {
    let packed = facts().api_versions;
    assert_eq!(packed, "apps/v1:Deployment;v1:Pod");
    assert_eq!(unpack_api_versions(&packed).into_iter().collect::<Vec<_>>(), ["apps/v1", "apps/v1/Deployment", "v1", "v1/Pod"]);
}

#[test]
fn a_wish_keeps_its_facts_and_a_new_one_takes_new() {
    let mut now = release();
    let first = pin("a", &facts(), None, Some(&now));
    assert_eq!((first.revision, first.upgrade, first.at), (1, false, 1_700_000_000));
    now.metadata.annotations = Some([(annotation::RENDER.to_owned(), first.text())].into());
    now.status = Some(HelmReleaseStatus { version: 4, phase: "deployed".into(), ..HelmReleaseStatus::default() });
    let later = Facts { kube: "v1.38.0".into(), now: 1_800_000_000, ..facts() };
    assert_eq!(pin("a", &later, None, Some(&now)), first);
    let found = Found { of: "a".into(), version: "1.2.0".into(), asks: [("v1".into(), "Secret".into(), "n".into(), "x".into())].into(), fault: "no".into() };
    let with = pin("a", &later, Some(&found), Some(&now));
    assert_eq!((with.version.as_str(), with.asks.len(), with.fault.as_str(), with.answered().as_str()), ("1.2.0", 1, "no", "a/1"));
    let next = pin("b", &later, Some(&found), Some(&now));
    assert_eq!((next.revision, next.upgrade, next.kube.as_str(), next.version.as_str()), (5, true, "v1.38.0", ""));
    now.metadata.annotations = None;
    assert_eq!(pin("a", &later, None, Some(&now)).revision, 4, "what runs without files stays the revision that it is");
}

#[test]
fn a_release_that_was_there_before_goes_on_from_its_revision() {
    let check = |phase: &str, version: i32, place: Option<&str>, want: (i64, bool, i64)| {
        let mut now = release();
        let mut annotations: BTreeMap<String, String> = [(annotation::RENDER.to_owned(), pin("a", &facts(), None, None).text())].into();
        if let Some(place) = place {
            annotations.insert(annotation::DEPLOYED_AS.to_owned(), place.to_owned());
        }
        now.metadata.annotations = Some(annotations);
        now.status = Some(HelmReleaseStatus { version, phase: phase.into(), ..HelmReleaseStatus::default() });
        let found = pin("a", &facts(), None, Some(&now));
        assert_eq!((found.revision, found.upgrade, found.over), want, "{phase} {version} {place:?}");
        now.metadata.annotations.get_or_insert_default().insert(annotation::RENDER.to_owned(), found.text());
        assert_eq!(pin("a", &facts(), None, Some(&now)), found, "and stays");
    };
    check(FOUND, 2, None, (3, true, 2));
    check("uninstalled", 2, None, (3, false, 2));
    check(FOUND, 2, Some("elsewhere/lamp"), (3, true, 2));
    check(FOUND, 0, None, (1, false, 0));
    // What was deployed from this pin, or failed in being that, keeps it.
    check("deployed", 1, Some("yard/lamp"), (1, false, 0));
    check("failed", 4, Some("yard/lamp"), (1, false, 0));
    check("deployed", 4, None, (1, false, 0));
}

#[test]
fn what_is_not_known_of_a_cluster_is_waited_for() {
    let lacks = Facts { lacks: "its kinds".into(), ..Facts::default() };
    let first = pin("a", &lacks, None, None);
    assert_eq!((first.of.as_str(), first.waits.as_str()), ("", "its kinds"));
    let mut now = release();
    now.metadata.annotations = Some([(annotation::RENDER.to_owned(), first.text())].into());
    let known = pin("a", &facts(), None, Some(&now));
    assert_eq!((known.of.as_str(), known.waits.as_str(), known.revision), ("a", "", 1));
    now.metadata.annotations = Some([(annotation::RENDER.to_owned(), known.text())].into());
    assert_eq!(pin("a", &lacks, None, Some(&now)), known, "what is pinned stays");
    assert_eq!(pin("b", &lacks, None, Some(&now)).waits, "its kinds");
}

#[test]
fn what_was_rendered_comes_back_to_the_byte() {
    let chart = chart(&[
        ("crds/lamp.yaml", "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: lamps.craft.test}\nspec:\n  group: craft.test\n  names: {kind: Lamp}\n  versions: [{name: v1, served: true}]\n"),
        ("templates/a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  oil: {{ .Values.oil }}\n  pass: {{ randAlphaNum 8 }}\n  at: {{ now | unixEpoch | quote }}\n  has: {{ .Capabilities.APIVersions.Has \"craft.test/v1/Lamp\" | quote }}\n  trailing: |+\n    x\n\n"),
        ("templates/h.yaml", "apiVersion: batch/v1\nkind: Job\nmetadata: {name: h, annotations: {helm.sh/hook: pre-install}}\n"),
        ("templates/NOTES.txt", "burns {{ .Values.oil }}"),
    ]);
    let pin = pin("a", &facts(), None, None);
    let first = made(&chart, &pin, BTreeMap::new());
    assert_eq!(first, made(&chart, &pin, BTreeMap::new()), "equal input, equal bytes");
    let manifest = text(&first, "manifest.yaml");
    assert!(manifest.starts_with("---\n# Source: web/templates/a.yaml\n") && manifest.contains("oil: whale") && manifest.contains("at: \"1700000000\"") && manifest.contains("has: \"true\""), "{manifest}");
    let Made::Files(files) = &first else { panic!("no files") };
    assert_eq!(files.iter().map(|f| f.name.as_str()).collect::<Vec<_>>(), ["crds/lamp.yaml", "release.yaml", "manifest.yaml", "hooks.yaml", "NOTES.txt"]);
    let back = read(&files.iter().map(|f| (f.name.clone(), f.text.clone())).collect()).expect("read");
    assert_eq!((back.helm_release.as_str(), back.of.as_str(), back.bundle.notes.as_str()), ("lamp-helm-fleet-lamp", "a", "burns whale"));
    assert_eq!((back.bundle.manifest.as_str(), back.bundle.crds[0].0.as_str()), (manifest.as_str(), "web/crds/lamp.yaml"));
    assert_eq!((back.bundle.hooks[0].name.as_str(), &back.bundle.chart["values"]), ("h", &json!({"oil": "rape"})));
    let other = render(&chart, &release(), &pin, BTreeMap::new(), seed(b"pepper", "id", &release()));
    assert_ne!(first, other, "the salt makes the passwords");
}

#[test]
fn lookups_are_asked_for_and_then_answered() {
    let chart = chart(&[("templates/a.yaml", "{{ $old := lookup \"v1\" \"Secret\" .Release.Namespace \"pass\" }}apiVersion: v1\nkind: Secret\nmetadata: {name: pass}\ndata: {p: {{ if $old }}{{ $old.data.p }}{{ else }}new{{ end }}}\n")]);
    let pin = pin("a", &facts(), None, None);
    let asked: Asked = ("v1".into(), "Secret".into(), "yard".into(), "pass".into());
    assert_eq!(made(&chart, &pin, BTreeMap::new()), Made::Asks([asked.clone()].into()));
    let there = as_answer(json!({"metadata": {"name": "pass", "resourceVersion": "7", "managedFields": []}, "data": {"p": "b2xk"}}));
    assert_eq!(there["metadata"], json!({"name": "pass"}));
    let answers: BTreeMap<_, _> = [(asked.clone(), Some(there))].into();
    assert_eq!(read_answers(write_answers(&answers).as_bytes()), answers);
    assert!(text(&made(&chart, &pin, answers), "manifest.yaml").contains("{p: b2xk}"));
    assert!(text(&made(&chart, &pin, [(asked, None)].into()), "manifest.yaml").contains("{p: new}"));
}

#[test]
fn what_cannot_be_rendered_is_told_with_its_place() {
    let pin = pin("a", &facts(), None, None);
    let fault = |text: &str| match made(&chart(&[("templates/a.yaml", text)]), &pin, BTreeMap::new()) {
        Made::Fault(why) => why,
        other => panic!("{other:?}"),
    };
    let why = fault("a: b\nc: {{ .Values.x.y.z }}\n");
    assert!(why.contains("web/templates/a.yaml:2:") && !why.contains("--debug"), "{why}");
    assert!(fault("{{ fail \"no oil\" }}").contains("no oil"));
    assert!(fault("a: {{ repeat 5000000 \"x\" }}\nkind: A\napiVersion: v1\n").contains("more than 4194304"));
}
