//! Layout, stability, and what is ours.

use api::Bytes;
use api::apps::ChartReference;

use super::*;

fn description(name: &str, labels: &[(&str, &str)], raw: &[Value]) -> Description {
    let mut out = Description::default();
    out.metadata.name = Some(name.to_owned());
    out.metadata.namespace = Some("clusternet-harbor".to_owned());
    out.metadata.labels = Some(labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect());
    out.spec.raw = raw.iter().map(|v| Bytes(v.to_string().into_bytes())).collect();
    out
}

fn config_map(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": {"mode": "yes"}})
}

const SHOP: &[(&str, &str)] = &[(label::SUBS_NAMESPACE, "shop"), (label::SUBS_NAME, "web")];

#[test]
fn layout() {
    let role = json!({"kind": "ClusterRole", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "system:x"}, "rules": []});
    let generic = part(&description("web-abcde-generic", SHOP, &[config_map("shop", "web"), role]), object_file);
    let by_hand = part(&description("mine-generic", &[], &[config_map("shop", "other")]), object_file);
    let tree = assemble("fleet/delivery", "", [&generic, &by_hand]);
    let paths: Vec<&str> = tree.files.keys().map(String::as_str).collect();
    assert_eq!(
        paths,
        [
            ".anabranch.yaml",
            "_bases/mine/configmap.shop.other.yaml",
            "shop/web/clusterrole.rbac.authorization.k8s.io._.system:x.yaml",
            "shop/web/configmap.shop.web.yaml",
        ]
    );
    assert_eq!(&*tree.files["shop/web/configmap.shop.web.yaml"], "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: web\n  namespace: shop\ndata:\n  mode: \"yes\"\n");
    assert_eq!(&*tree.files[".anabranch.yaml"], "directories:\n- _bases/mine\n- shop/web\nlayout: 1\nowner: fleet/delivery\n");
    assert!(assemble("fleet/delivery", "deploy/", [&generic]).files.contains_key("deploy/shop/web/configmap.shop.web.yaml"));
    assert_eq!(assemble("fleet/delivery", "", []).files.len(), 1);
}

#[test]
fn long_subscriptions_have_no_label() {
    let long = "x".repeat(60);
    let made = description(&format!("{long}-abcde-generic"), &[(label::SUBS_NAMESPACE, "shop")], &[]);
    assert_eq!(directory_of(&made), format!("shop/{long}"));
}

#[test]
fn names_that_break_paths_are_refused() {
    for (name, expect) in [("../../etc", false), ("a/b", false), ("a\\b", false), ("..", false), ("a\nb", false), ("", false), ("a.b", true), ("system:a", true)] {
        assert_eq!(file_name(&config_map("shop", name)).is_ok(), expect, "{name:?}");
    }
    let broken = part(&description("web-abcde-generic", SHOP, &[config_map("shop", "../x"), json!({"metadata": {"name": "x"}}), config_map("shop", "fine")]), object_file);
    assert_eq!(broken.files.len(), 1);
    assert_eq!(
        broken.faults.iter().map(|f| f.message.as_str()).collect::<Vec<_>>(),
        ["the ConfigMap \"shop/../x\" has a name that breaks a path", "an object has no apiVersion or kind; an override removed it"]
    );
    let long = file_name(&config_map("shop", &"y".repeat(253))).expect("cut");
    assert!(long.len() <= 255 && is_object_name(&long), "{long}");
}

#[test]
fn what_is_ours() {
    let generic = part(&description("web-abcde-generic", SHOP, &[config_map("shop", "web")]), object_file);
    let tree = assemble("fleet/delivery", "", [&generic]);
    let before = Marker { layout: 1, owner: "fleet/delivery".to_owned(), directories: ["shop/old".to_owned()].into(), releases: ["shop/web/yard.lamp".to_owned()].into() };
    let ours = ours(Some(&before), &tree);
    for (path, expect) in [
        (".anabranch.yaml", true),
        ("shop/web/configmap.shop.gone.yaml", true),
        ("shop/old/configmap.shop.web.yaml", true),
        ("shop/web/yard.lamp/crds/a.yaml", true),
        ("shop/web/yard.lamp/NOTES.txt", true),
        ("shop/web/yard.lamp2/NOTES.txt", false),
        ("shop/web/README.md", false),
        ("shop/web/kustomization.yaml", false),
        ("shop/web/values.prod.yaml", false),
        ("shop/other/configmap.shop.web.yaml", false),
        ("README.md", false),
    ] {
        assert_eq!(ours.owns(path), expect, "{path}");
    }
    assert_eq!(Marker::read(b"layout: 2\nowner: x\n"), None);
    assert_eq!(Marker::read(&before.text().into_bytes()), Some(before));
}

#[test]
fn charts_are_releases_that_people_can_read() {
    let mut helm = description("web-abcde-helm", SHOP, &[]);
    helm.spec.deployer = DeployerType::Helm;
    helm.spec.charts = vec![ChartReference { namespace: "shop".to_owned(), name: "cache".to_owned() }];
    helm.spec.chart_raw = vec![Bytes(json!({"spec": {"repo": "https://charts.example.org", "chart": "cache", "version": "1.2.3", "targetNamespace": "shop"}}).to_string().into_bytes())];
    helm.spec.raw = vec![Bytes(br#"{"replicas":2}"#.to_vec())];
    let made = part(&helm, object_file);
    assert_eq!(made.faults, []);
    assert_eq!(made.files[0].name, "helmrelease.apps.clusternet.io.clusternet-harbor.web-abcde-helm-shop-cache.yaml");
    assert!(made.files[0].text.contains("  values:\n    replicas: 2\n"), "{}", made.files[0].text);
    let tree = assemble("fleet/delivery", "", [&made]);
    let marker = ours(None, &tree);
    let (path, text) = tree.files.iter().find(|(p, _)| p.starts_with("shop/")).expect("the release");
    assert!(matches!(read_entry(&marker, path, text.as_bytes()), Ok(Entry::Release(_))));
    assert_eq!(read_entry(&marker, "README.md", b"x"), Ok(Entry::Foreign));
}

#[test]
fn an_agent_reads_what_was_written() {
    let object = config_map("shop", "web");
    let generic = part(&description("web-abcde-generic", SHOP, std::slice::from_ref(&object)), object_file);
    let tree = assemble("fleet/delivery", "", [&generic]);
    let marker = ours(None, &tree);
    let path = "shop/web/configmap.shop.web.yaml";
    assert_eq!(read_entry(&marker, path, tree.files[path].as_bytes()), Ok(Entry::Object(object)));
}
