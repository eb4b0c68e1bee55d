//! Cases in the form of the recorder: what people do, step by step, and what came of it, field by field.
//!
//! `oracle/clusternet/NAME` is what Clusternet itself made of its input, on real control planes; `cases/NAME` are cases of our own,
//! whose answers `replay --record` wrote and a person read. Each is played with three children, on an embedded parent and on a real
//! Kubernetes. Where ours differs from the original on purpose is in `oracle/differences.md`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use testkit::replay::{Given, Parents, replay};

use crate::compat::{TOKEN, prepare_parent, some_of_our_parts};
use crate::e2e::ONE;
use crate::kube::{self, ControlPlane};
use crate::suites::{self, On};

const RECORDED: &str = "Recorded answers of Clusternet";
const OWN: &str = "Cases of our own";

fn recorded() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle/clusternet")
}

fn own() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases")
}

/// `CASES=NAME,NAME` plays only those.
async fn all_pass(suite: &str, dir: &Path, parents: Option<Arc<Parents>>) {
    let on = if parents.is_some() { On::Real } else { On::Embedded };
    let names: Vec<String> = std::env::var("CASES").map(|text| text.split(',').map(str::to_owned).collect()).unwrap_or_default();
    let verdicts = replay(dir, &names, parents, &mut |_| {}).await.unwrap();
    let differences: Vec<String> = verdicts.iter().flat_map(|v| v.differences.iter().map(move |d| format!("{}: {d}", v.name))).collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    let folders = std::fs::read_dir(dir).unwrap().filter(|entry| entry.as_ref().unwrap().path().join("input").is_dir()).count();
    if names.is_empty() {
        assert_eq!(verdicts.len(), folders, "every folder is a case");
        suites::passed(suite, on, folders);
    }
}

/// Real control planes, one for each case, with our hub in a process beside it.
fn real(assets: &'static Path) -> Arc<Parents> {
    Arc::new(move || {
        Box::pin(async move {
            let folder = tempfile::tempdir()?;
            let plane = ControlPlane::start(assets).await;
            prepare_parent(&plane).await;
            let parts = some_of_our_parts(&plane, folder.path(), &["hub"]).await;
            Ok(Given { admin: plane.admin.clone(), url: plane.url.clone(), ca: plane.ca.clone(), token: TOKEN.to_owned(), keep: Box::new((parts, plane, folder)) })
        })
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_cases_on_an_embedded_parent() {
    all_pass(OWN, &own(), None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_cases_on_a_real_parent() {
    let Some(assets) = kube::assets() else { return };
    let _one = ONE.lock().await;
    all_pass(OWN, &own(), Some(real(assets))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_cases_on_an_embedded_parent() {
    let _one = ONE.lock().await;
    all_pass(RECORDED, &recorded(), None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_cases_on_a_real_parent() {
    let Some(assets) = kube::assets() else { return };
    let _one = ONE.lock().await;
    all_pass(RECORDED, &recorded(), Some(real(assets))).await;
}
