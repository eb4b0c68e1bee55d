//! Our chart under a real Helm: an installation is taken away and made anew, and what users stored is still there.
//!
//! Runs where HELM names programs (separated by `:`, so that Helm 3 and 4 are both tried), or where `helm` is in PATH.

use std::path::PathBuf;
use std::process::Command;

use serde_json::json;

use super::deploy;
use crate::bench::until;
use crate::kube::{self, ControlPlane};

/// The Helms to try; none where there is none, which is told.
fn helms() -> Vec<PathBuf> {
    if let Some(named) = std::env::var_os("HELM") {
        let programs: Vec<PathBuf> = std::env::split_paths(&named).collect();
        assert!(programs.iter().all(|program| program.is_file()), "HELM={} names no programs", named.display());
        return programs;
    }
    let found = Command::new("helm").arg("version").output().is_ok();
    if !found {
        assert!(std::env::var_os("CI").is_none(), "Helm is missing: no HELM, and none in PATH; tests/oracle/helm/build makes one");
        eprintln!("skipped, Helm is missing: no HELM, and none in PATH");
    }
    found.then(|| PathBuf::from("helm")).into_iter().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_users_stored_outlives_the_release() {
    let helms = helms();
    let Some(assets) = kube::assets().filter(|_| !helms.is_empty()) else { return };
    let _one = super::ONE.lock().await;
    for helm in helms {
        let folder = tempfile::tempdir().unwrap();
        let plane = ControlPlane::start(assets).await;
        let run = |arguments: &[&str]| {
            let run = Command::new(&helm).args(arguments).args(["-n", "clusternet-system"]).env("KUBECONFIG", &plane.kubeconfig).env("HOME", folder.path()).output().unwrap();
            let said = String::from_utf8_lossy(&run.stderr).into_owned();
            assert!(run.status.success(), "{} {arguments:?}: {said}", helm.display());
        };
        let chart = deploy().join("chart/anabranch").display().to_string();
        run(&["install", "anabranch", &chart, "--create-namespace"]);
        // Nobody takes its finalizer away once the controllers are gone.
        let template = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "shop"}});
        let manifest = json!({
            "apiVersion": "apps.clusternet.io/v1alpha1", "kind": "Manifest", "template": template,
            "metadata": {"name": "configmaps.shop.x", "namespace": "clusternet-reserved", "finalizers": ["apps.clusternet.io/feed-protection"]},
        });
        let dynamic = cluster::Dynamic::new(plane.admin.clone());
        const MANIFESTS: &str = "/apis/apps.clusternet.io/v1alpha1/namespaces/clusternet-reserved/manifests";
        until("the definitions are served", || async { dynamic.call("GET", MANIFESTS, None, None).await.ok() }).await;
        let made = dynamic.call("POST", MANIFESTS, Some("application/json"), Some(&manifest)).await.unwrap();
        run(&["uninstall", "anabranch"]);
        let namespace = dynamic.call("GET", "/api/v1/namespaces/clusternet-reserved", None, None).await.unwrap();
        assert_eq!(namespace["status"]["phase"], "Active", "{}", helm.display());
        run(&["install", "anabranch", &chart]);
        let kept = dynamic.call("GET", &format!("{MANIFESTS}/configmaps.shop.x"), None, None).await.unwrap();
        assert_eq!(kept["metadata"]["uid"], made["metadata"]["uid"], "{}", helm.display());
    }
}
