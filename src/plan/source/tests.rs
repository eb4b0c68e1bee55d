//! Bad input, routing, and the rule that nothing is deleted on a doubt.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::gitops::{DeletionBudget, GitSourceStatus};
use api::known::label;
use api::object;

use super::*;
use crate::kinds::Kinds;

fn settings() -> Settings {
    Settings { source: "team.shop".to_owned(), target_namespaces: Default::default() }
}

fn files(texts: &[(&str, &str)]) -> BTreeMap<String, Arc<Parsed>> {
    texts.iter().map(|(path, text)| ((*path).to_owned(), Arc::new(read(path, Body::Bytes(text.as_bytes()))))).collect()
}

fn desired(texts: &[(&str, &str)]) -> Desired {
    assemble(&files(texts), &Kinds::built_in(), &settings())
}

/// All faults as people see them, one a line.
#[track_caller]
fn check_faults(texts: &[(&str, &str)], expect: &[&str]) {
    let got: Vec<String> = desired(texts).faults.iter().map(|f| format!("{} {f}", f.reason)).collect();
    assert_eq!(got, expect);
}

#[track_caller]
fn check_objects(texts: &[(&str, &str)], expect: &[&str]) {
    let got: Vec<String> = desired(texts).objects.keys().map(ToString::to_string).collect();
    assert_eq!(got, expect);
}

const WEB: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web, namespace: shop}\ndata: {a: b}\n";
const SUB: &str = "apiVersion: apps.clusternet.io/v1alpha1\nkind: Subscription\nmetadata: {name: web, namespace: shop}\nspec:\n  subscribers: [{clusterAffinity: {}}]\n  feeds:\n  - {apiVersion: v1, kind: ConfigMap, namespace: shop, name: web}\n  - {apiVersion: v1, kind: Namespace, name: shop}\n";
const NAMESPACE: &str = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n";

#[test]
fn objects_find_their_way() {
    check_objects(
        &[("a.yaml", WEB), ("b.yaml", SUB), ("c.yaml", NAMESPACE)],
        &[
            "Namespace shop",
            "Manifest.apps.clusternet.io clusternet-reserved/configmaps.shop.web",
            "Manifest.apps.clusternet.io clusternet-reserved/namespaces.shop",
            "Subscription.apps.clusternet.io shop/web",
        ],
    );
    // Without a feed a Namespace is only itself; without a namespace kubectl's default serves; lists are opened.
    check_objects(
        &[("a.yaml", NAMESPACE), ("b.json", r#"{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"}}]}"#)],
        &["Namespace shop", "Manifest.apps.clusternet.io clusternet-reserved/configmaps.default.x"],
    );
    let all = desired(&[("a.yaml", WEB)]);
    let wanted = all.objects.values().next().expect("one");
    assert_eq!(object::label(&wanted.object, label::SOURCE), Some("team.shop"));
    assert_eq!(object::label(&wanted.object["template"], label::SOURCE), None);
    assert_eq!(object::label(&wanted.object["template"], label::CREATED_BY), Some("clusternet-hub"));
    let annotated = wanted.annotated("main@sha1:1");
    assert_eq!(object::annotation(&annotated, annotation::PATH), Some("a.yaml:1"));
    assert_eq!(object::annotation(&annotated, annotation::REVISION), Some("main@sha1:1"));
}

#[test]
fn definitions_teach_kinds() {
    let definition = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: ponds.example.org}\nspec:\n  group: example.org\n  scope: Cluster\n  names: {kind: Pond, plural: ponds}\n  versions: [{name: v1, served: true, storage: true}]\n";
    let pond = "apiVersion: example.org/v1\nkind: Pond\nmetadata: {name: deep, namespace: ignored}\n";
    check_objects(
        &[("a-pond.yaml", pond), ("z-definition.yaml", definition)],
        &["Manifest.apps.clusternet.io clusternet-reserved/customresourcedefinitions.ponds.example.org", "Manifest.apps.clusternet.io clusternet-reserved/ponds.deep"],
    );
    check_faults(&[("a.yaml", pond)], &["UnknownKind a.yaml:1:1: there is no kind Pond in example.org/v1; its CustomResourceDefinition must be in the repository or in the parent"]);
}

#[test]
fn bad_input() {
    let [expect] = shown_fault("a: [1\n");
    check_faults(&[("a.yaml", "a: [1\n")], &[&expect]);
    check_faults(
        &[("a.yaml", "kind: ConfigMap\nmetadata: {name: x}\n")],
        &["NotAnObject a.yaml:1:1: the document has no apiVersion; if it is not meant for a cluster, list the file in spec.ignore"],
    );
    check_faults(&[("a.yaml", "- 1\n")], &["NotAnObject a.yaml:1:1: the document is no object: it needs apiVersion, kind and metadata"]);
    check_faults(
        &[("a.yaml", "apiVersion: apps/v1\nkind: Deploymnt\nmetadata: {name: x}\n"), ("b.yaml", "apiVersion: v1\nkind: Deployment\nmetadata: {name: x}\n")],
        &[
            "UnknownKind a.yaml:1:1: there is no kind Deploymnt in apps/v1; its CustomResourceDefinition must be in the repository or in the parent",
            "UnknownKind b.yaml:1:1: there is no kind Deployment in v1; Deployment is served as apps/v1",
        ],
    );
    check_faults(
        &[("a.yaml", "---\n---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: ../../etc\n")],
        &["InvalidName a.yaml:6:9: the name \"../../etc\" cannot be part of a path"],
    );
    check_faults(
        &[("a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  generateName: x-\n")],
        &["NoName a.yaml:3:1: generateName gives another object at every commit; set metadata.name"],
    );
    check_faults(
        &[("a.yaml", "apiVersion: apps.clusternet.io/v1alpha1\nkind: Description\nmetadata: {name: x, namespace: y}\n")],
        &["DerivedKind a.yaml:1:1: Description objects are made by the controllers; write what they are made from"],
    );
    let long = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {}, namespace: shop}}\n", "y".repeat(64));
    assert_eq!(desired(&[("a.yaml", &long)]).faults[0].reason, "InvalidName");
}

fn shown_fault(text: &str) -> [String; 1] {
    let parsed = read("a.yaml", Body::Bytes(text.as_bytes()));
    assert_eq!((parsed.faults.len(), parsed.faults[0].reason.as_str()), (1, "InvalidYAML"));
    assert!(parsed.faults[0].line > 0 && parsed.faults[0].column > 0);
    [format!("InvalidYAML {}", parsed.faults[0])]
}

#[test]
fn what_is_no_plain_file() {
    #[track_caller]
    fn check(path: &str, body: Body<'_>, expect: &str) {
        let parsed = read(path, body);
        assert_eq!(parsed.faults.iter().map(|f| format!("{} {f}", f.reason)).collect::<Vec<_>>(), [expect]);
    }
    check("a.yaml", Body::TooLarge(10 << 20), "FileTooLarge a.yaml: the file has 10485760 bytes, more than 8388608; split it or list it in spec.ignore");
    check("a/b.yaml", Body::Symlink { target: "../../etc/passwd" }, "SymlinkOutOfTree a/b.yaml: the link to `../../etc/passwd` points out of the repository; put the file in its place or list it in spec.ignore");
    check("a/b.yaml", Body::Symlink { target: "/etc/passwd" }, "SymlinkOutOfTree a/b.yaml: the link to `/etc/passwd` points out of the repository; put the file in its place or list it in spec.ignore");
    check("a/b.yaml", Body::Symlink { target: "../c.yaml" }, "Symlink a/b.yaml: the link to `../c.yaml` is not followed; put the file in its place or list it in spec.ignore");
    check("a", Body::Submodule, "Submodule a: submodules are not fetched; make a GitSource of its own for that repository");
    check("a.yaml", Body::Bytes(b"a: \xff\n"), &format!("InvalidYAML {}", read("a.yaml", Body::Bytes(b"a: \xff\n")).faults[0]));
}

/// An alias bomb is refused in no time, whatever it would grow to.
#[test]
fn alias_bomb() {
    let mut text = "a: &a [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (one, two) in ["a", "b", "c", "d", "e", "f", "g", "h", "i"].iter().zip(["b", "c", "d", "e", "f", "g", "h", "i", "j"]) {
        text.push_str(&format!("{two}: &{two} [*{one}, *{one}, *{one}, *{one}, *{one}, *{one}, *{one}, *{one}, *{one}]\n"));
    }
    let parsed = read("bomb.yaml", Body::Bytes(text.as_bytes()));
    assert_eq!(parsed.faults[0].reason, "InvalidYAML");
    assert!(parsed.objects.is_empty());
}

#[test]
fn duplicates_are_a_doubt() {
    let both = [("a.yaml", WEB), ("b.yaml", WEB), ("c.yaml", SUB)];
    check_faults(&both, &["DuplicateObject b.yaml:1:1: the object stands in a.yaml:1 already; neither is applied until one of them is removed"]);
    check_objects(&both, &["Subscription.apps.clusternet.io shop/web"]);
}

#[test]
fn one_broken_file_never_stops_the_others() {
    check_objects(&[("a.yaml", WEB), ("b.yaml", "x: [\n")], &["Manifest.apps.clusternet.io clusternet-reserved/configmaps.shop.web"]);
}

#[test]
fn limits_to_namespaces() {
    let limited = Settings { target_namespaces: ["shop".to_owned()].into(), ..settings() };
    let role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: x}\n";
    let other = WEB.replace("shop", "bank");
    let all = assemble(&files(&[("a.yaml", WEB), ("b.yaml", role), ("c.yaml", &other), ("d.yaml", NAMESPACE)]), &Kinds::built_in(), &limited);
    assert_eq!(all.objects.len(), 2);
    let said: Vec<String> = all.faults.iter().map(ToString::to_string).collect();
    assert_eq!(said, ["b.yaml:1:1: the GitSource is limited to namespaces, and this object belongs to none", "c.yaml:1:1: the GitSource may not make objects in the namespace bank"]);
}

#[test]
fn which_paths_are_looked_at() {
    for (path, expect) in [("a.yaml", true), ("a/b.YML", true), ("a.json", true), ("README.md", false), (".github/workflows/x.yaml", false), ("a/.b.yaml", false), ("a.yaml.bak", false)] {
        assert_eq!(is_wanted(path), expect, "{path}");
    }
}

fn held_from(desired: &Desired, source: &str) -> Inventory {
    let held = desired
        .objects
        .iter()
        .map(|(place, wanted)| (place.clone(), Held { uid: format!("uid of {place}"), source: source.to_owned(), digest: wanted.digest.clone(), keep: false, deleting: false }))
        .collect();
    Inventory { complete: true, held }
}

#[test]
fn first_time_unchanged_and_changed() {
    let all = desired(&[("a.yaml", WEB), ("b.yaml", SUB), ("c.yaml", NAMESPACE)]);
    let empty = Inventory { complete: true, ..Inventory::default() };
    let first = decide(&all, &empty, "team.shop", true, None, false, false);
    let waves: Vec<usize> = first.apply.iter().map(Vec::len).collect();
    assert_eq!(waves, [1, 2, 1], "namespaces, what is referred to, Subscriptions");
    let again = decide(&all, &held_from(&all, "team.shop"), "team.shop", true, None, false, false);
    assert_eq!((again.apply.len(), again.unchanged, again.prune.len()), (0, 4, 0));
    let changed = desired(&[("a.yaml", &WEB.replace("b}", "c}")), ("b.yaml", SUB), ("c.yaml", NAMESPACE)]);
    let third = decide(&changed, &held_from(&all, "team.shop"), "team.shop", true, None, false, false);
    assert_eq!((third.apply.iter().flatten().count(), third.unchanged), (1, 3));
    let foreign = decide(&all, &held_from(&all, "team.bank"), "team.shop", true, None, false, false);
    assert_eq!((foreign.apply.len(), foreign.faults.len(), foreign.prune.len()), (0, 4, 0));
}

#[test]
fn nothing_is_deleted_on_a_doubt() {
    let all = desired(&[("a.yaml", WEB), ("b.yaml", SUB), ("c.yaml", NAMESPACE)]);
    let inventory = held_from(&all, "team.shop");
    let less = desired(&[("a.yaml", WEB), ("c.yaml", NAMESPACE)]);
    let ask = |desired: &Desired, inventory: &Inventory, budget: Option<DeletionBudget>, approved: bool| {
        let out = decide(desired, inventory, "team.shop", true, budget.as_ref(), approved, false);
        match out.held_back {
            Some((count, why)) => {
                assert!(out.prune.is_empty());
                format!("{count} kept: {why:?}")
            }
            None => out.prune.iter().map(|(place, _)| place.to_string()).collect::<Vec<_>>().join(", "),
        }
    };
    // The Subscription goes before the Manifest of the namespace that only it fed.
    assert_eq!(ask(&less, &inventory, None, false), "Subscription.apps.clusternet.io shop/web, Manifest.apps.clusternet.io clusternet-reserved/namespaces.shop");
    let mut broken = less.clone();
    broken.faults = desired(&[("x.yaml", "a: [")]).faults;
    assert_eq!(ask(&broken, &inventory, None, true), "2 kept: Faults(1)");
    assert_eq!(ask(&less, &Inventory { complete: false, ..inventory.clone() }, None, true), "2 kept: Unlisted");
    assert_eq!(ask(&Desired::default(), &inventory, None, false), "4 kept: Empty");
    let budget = |objects, percent| Some(DeletionBudget { max_objects: objects, max_percent: percent });
    assert_eq!(ask(&less, &inventory, budget(Some(1), None), false), "2 kept: Budget { most: 1 }");
    assert_eq!(ask(&less, &inventory, budget(Some(2), Some(25)), false), "2 kept: Budget { most: 1 }");
    assert!(ask(&less, &inventory, budget(Some(1), None), true).starts_with("Subscription"));
    let mut kept = inventory.clone();
    kept.held.values_mut().for_each(|held| held.keep = true);
    assert_eq!(ask(&less, &kept, None, false), "");
}

#[test]
fn a_status_is_stable() {
    let at = |second: i64| api::Time(jiff::Timestamp::from_second(second).unwrap_or_default());
    let all = desired(&[("a.yaml", WEB), ("b.yaml", "x: [\n")]);
    let done = |faults| Report::Done { revision: "main@sha1:1".to_owned(), faults, failed: 0, held_back: None, inventory: all.objects.keys().cloned().collect() };
    let first = settle(&GitSourceStatus::default(), 1, "", &done(all.faults.clone()), &at(1));
    assert_eq!(first, settle(&first, 1, "", &done(all.faults.clone()), &at(2)));
    assert_eq!((first.fault_count, first.inventory.objects, first.last_applied_revision.as_str()), (1, 1, ""));
    let ready = api::conditions::find(&first.conditions, "Ready").expect("ready");
    assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "FaultyFiles"));
    assert!(ready.message.starts_with("b.yaml:"), "{}", ready.message);
    let second = settle(&first, 1, "", &done(Vec::new()), &at(3));
    assert!(api::conditions::is_true(&second.conditions, "Ready"));
    assert_eq!(second.last_applied_revision, "main@sha1:1");
    assert!(api::conditions::find(&second.conditions, "Stalled").is_none());
}

#[test]
fn what_is_in_a_chart_is_not_applied() {
    let charts = ChartDirectories::among(["Chart.yaml", "charts/web/Chart.yaml", "a.yaml"]);
    for (path, inside) in [("charts/web/templates/a.yaml", true), ("charts/web/values.yaml", true), ("charts/web2/a.yaml", false), ("a.yaml", false), ("charts/a.yaml", false)] {
        assert_eq!(charts.has(path), inside, "{path}");
    }
}
