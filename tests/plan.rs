//! `anabranch plan` as a check of pull requests: its exit code is a contract.

use std::path::Path;
use std::process::Command;

use crate::bench::git;

const FLEET: &str = "apiVersion: clusters.clusternet.io/v1beta1\nkind: ManagedCluster\nmetadata: {name: one, namespace: clusternet-one, labels: {region: north}}\n\
spec: {clusterId: 11111111-2222-3333-4444-555555555555, clusterType: StandardCluster, syncMode: Pull}\n";
const SUBSCRIPTION: &str = "apiVersion: apps.clusternet.io/v1alpha1\nkind: Subscription\nmetadata: {name: all, namespace: default}\n\
spec:\n  subscribers: [{clusterAffinity: {}}]\n  feeds: [{apiVersion: v1, kind: ConfigMap, namespace: default, name: a}]\n";

/// Its exit code, and all that it said.
fn plan(repo: &Path, base: &str, fleet: &Path) -> (Option<i32>, String) {
    let run = Command::new(env!("CARGO_BIN_EXE_anabranch"))
        .args(["plan", "--base", base, "--repo"])
        .arg(repo)
        .arg("--fleet")
        .arg(fleet)
        .env_remove("KUBECONFIG")
        .output()
        .unwrap();
    (run.status.code(), format!("{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr)))
}

#[test]
fn the_exit_code_says_what_would_happen() {
    let folder = tempfile::tempdir().unwrap();
    let (repo, fleet, nothing) = (folder.path().join("repo"), folder.path().join("fleet.yaml"), folder.path().join("nothing.yaml"));
    std::fs::create_dir(&repo).unwrap();
    std::fs::write(&fleet, FLEET).unwrap();
    std::fs::write(&nothing, "a: 1\n").unwrap();
    git(&repo, &["init", "-q", "-b", "main"]);
    let commit = |file: &str, text: &str| {
        std::fs::write(repo.join(file), text).unwrap();
        git(&repo, &["add", "-A"]);
        git(&repo, &["commit", "-q", "-m", file]);
    };
    let config = |value: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a, namespace: default}}\ndata: {{a: {value}}}\n");
    commit("a.yaml", &config("one"));
    commit("subscription.yaml", SUBSCRIPTION);
    let expect = |base: &str, fleet: &Path, code: i32, words: &str| {
        let (got, said) = plan(&repo, base, fleet);
        assert!(got == Some(code) && said.contains(words), "{base}: {got:?}\n{said}");
    };
    expect("HEAD", &fleet, 0, "nothing changes");
    expect("HEAD~1", &fleet, 2, "one");
    expect("HEAD", &nothing, 1, "there is no ManagedCluster in it");
    commit("broken.yaml", "a: [\n");
    expect("HEAD~1", &fleet, 1, "broken.yaml:2:1");
    expect("HEAD~2", &fleet, 1, "broken.yaml:2:1");
    // What was broken before stops nobody.
    commit("a.yaml", &config("two"));
    expect("HEAD~1", &fleet, 2, "one");
    // An override that cannot be applied keeps its feed from being rendered.
    let localization = "apiVersion: apps.clusternet.io/v1alpha1\nkind: Localization\nmetadata: {name: l, namespace: clusternet-one}\n\
spec:\n  feed: {apiVersion: v1, kind: ConfigMap, namespace: default, name: a}\n  overrides: [{name: m, type: MergePatch, value: 'data: [not: a patch'}]\n";
    commit("localization.yaml", localization);
    expect("HEAD~1", &fleet, 1, "Localization");
    expect("HEAD", &fleet, 0, "nothing changes");
    expect("no-such-revision", &fleet, 1, "no-such-revision");
}
