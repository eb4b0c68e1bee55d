//! Their kubectl plugin: templates through the shadow API of our parent, objects of a child through our tunnel.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{Joins, get, joined, our_agent, our_parts, prepare_child, prepare_parent, ready_to_run};
use crate::kube::ControlPlane;

/// The plugin, as somebody uses it.
struct Plugin {
    program: PathBuf,
    kubeconfig: PathBuf,
    /// What `edit` opens: replaces one text.
    editor: PathBuf,
    /// Added to every command.
    more: Vec<String>,
}

impl Plugin {
    /// One command; its output.
    fn run(&self, arguments: &[&str]) -> String {
        let run = std::process::Command::new(&self.program)
            .args(arguments)
            .args(&self.more)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("KUBE_EDITOR", &self.editor)
            .env("HOME", self.editor.parent().unwrap())
            .output()
            .unwrap();
        let (out, said) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
        assert!(run.status.success(), "kubectl clusternet {arguments:?} {:?}: {out}{said}", self.more);
        out.into_owned()
    }
}

const APP: &str = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop}\nspec:\n  replicas: 2\n  selector: {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n    spec: {containers: [{name: web, image: web:1}]}\n";

/// All verbs on one Deployment and a ConfigMap; `stored` reads where they are kept.
async fn verbs<F, Fut>(plugin: &Plugin, folder: &Path, stored: F)
where
    F: Fn(&'static str) -> Fut,
    Fut: Future<Output = Option<Value>>,
{
    let file = folder.join("app.yaml");
    let path = file.display().to_string();
    std::fs::write(&file, APP).unwrap();
    plugin.run(&["apply", "-f", &path]);
    std::fs::write(&file, APP.replace("web:1", "web:2")).unwrap();
    plugin.run(&["apply", "-f", &path]);
    plugin.run(&["apply", "-f", &path]);
    let image = plugin.run(&["get", "deployment", "-n", "shop", "web", "-o", "jsonpath={.spec.template.spec.containers[0].image}"]);
    assert_eq!(image, "web:2");
    let table = plugin.run(&["get", "deployments", "-n", "shop"]);
    assert!(table.contains("READY") && table.contains("web"), "{table}");
    assert!(plugin.run(&["get", "deploy", "-A"]).contains("shop"));
    plugin.run(&["scale", "deployment", "-n", "shop", "web", "--replicas=5"]);
    assert_eq!(stored("deployments").await.unwrap()["spec"]["replicas"], 5);
    plugin.run(&["scale", "deployment", "-n", "shop", "web", "--current-replicas=5", "--replicas=4"]);
    assert_eq!(stored("deployments").await.unwrap()["spec"]["replicas"], 4);
    plugin.run(&["label", "deployment", "-n", "shop", "web", "tier=front"]);
    plugin.run(&["annotate", "deployment", "-n", "shop", "web", "note=hello"]);
    let found = stored("deployments").await.unwrap();
    assert_eq!((&found["metadata"]["labels"]["tier"], &found["metadata"]["annotations"]["note"]), (&"front".into(), &"hello".into()), "{found}");
    plugin.run(&["label", "deployment", "-n", "shop", "web", "tier-"]);
    assert!(stored("deployments").await.unwrap()["metadata"]["labels"].get("tier").is_none());
    plugin.run(&["edit", "deployment", "-n", "shop", "web"]);
    assert_eq!(stored("deployments").await.unwrap()["spec"]["template"]["spec"]["containers"][0]["image"], "web:3");
    plugin.run(&["create", "configmap", "-n", "shop", "made", "--from-literal=a=b"]);
    assert_eq!(stored("configmaps").await.unwrap()["data"]["a"], "b");
    plugin.run(&["delete", "configmap", "-n", "shop", "made"]);
    assert!(stored("configmaps").await.is_none());
    plugin.run(&["delete", "-f", &path]);
    assert!(stored("deployments").await.is_none());
    assert!(plugin.run(&["api-resources"]).contains("deployments"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn their_kubectl_plugin_on_our_parent() {
    let Some((bin, assets)) = ready_to_run() else { return };
    let program = bin.join("kubectl-clusternet");
    if !program.is_file() {
        eprintln!("skipped, kubectl-clusternet is not in CLUSTERNET_BIN");
        return;
    }
    let _one = crate::e2e::ONE.lock().await;
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (parent, child) = tokio::join!(ControlPlane::start(assets), ControlPlane::start(assets));
    prepare_parent(&parent).await;
    prepare_child(&child).await;
    let _parts = our_parts(&parent, folder).await;
    let _agent = our_agent(&Joins { parent: &parent, child: &child, folder, name: "one", mode: "Dual" });
    let cluster = joined(&parent, "one").await;
    let editor = folder.join("editor.sh");
    std::fs::write(&editor, "#!/bin/sh\nsed -i s/web:2/web:3/ \"$1\"\n").unwrap();
    std::fs::set_permissions(&editor, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut plugin = Plugin { program, kubeconfig: parent.kubeconfig.clone(), editor, more: Vec::new() };
    let (in_parent, in_child) = (&parent.admin, &child.admin);
    let manifest = |kind: &'static str| async move {
        let name = if kind == "deployments" { "deployments.shop.web" } else { "configmaps.shop.made" };
        let found = get(in_parent, &format!("/apis/apps.clusternet.io/v1alpha1/namespaces/clusternet-reserved/manifests/{name}")).await?;
        Some(found["template"].clone())
    };
    verbs(&plugin, folder, manifest).await;
    plugin.more = ["--cluster-id", cluster["spec"]["clusterId"].as_str().unwrap(), "--child-kubeconfig", &child.kubeconfig.display().to_string()].map(str::to_owned).to_vec();
    plugin.run(&["create", "namespace", "shop"]);
    let object = |kind: &'static str| async move {
        let path = if kind == "deployments" { "/apis/apps/v1/namespaces/shop/deployments/web" } else { "/api/v1/namespaces/shop/configmaps/made" };
        get(in_child, path).await
    };
    verbs(&plugin, folder, object).await;
    assert!(plugin.run(&["get", "namespaces"]).contains("clusternet-system"));
}
