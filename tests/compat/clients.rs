//! Clients that everybody uses: `clients/` is a Go program on client-go and controller-runtime, built where Go is, beside the other products.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::prepare_parent;
use crate::e2e::ONE;
use crate::kube::{self, ControlPlane};
use crate::suites::{self, On};

/// The program, built once; none where it cannot be built, which is told, and is a fault in CI.
fn program() -> Option<PathBuf> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    BUILT.get_or_init(build).clone()
}

fn build() -> Option<PathBuf> {
    if Command::new("go").arg("version").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "CI needs Go");
        eprintln!("skipped, there is no Go to build the clients with");
        return None;
    }
    let target = Path::new(env!("CARGO_BIN_EXE_anabranch")).parent().and_then(Path::parent).unwrap();
    let program = target.join("go-clients");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compat/clients");
    let built = Command::new("go").args(["build", "-trimpath", "-o"]).arg(&program).arg(".").current_dir(source).output().unwrap();
    assert!(built.status.success(), "go build: {}", String::from_utf8_lossy(&built.stderr));
    Some(program)
}

fn passes(program: &Path, kubeconfig: &Path, on: On) {
    let run = Command::new(program).arg(kubeconfig).output().unwrap();
    let (out, said) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    let checks = out.lines().last().and_then(|line| line.strip_suffix(" passed, 0 failed")?.parse().ok());
    let checks = checks.filter(|_| run.status.success()).unwrap_or_else(|| panic!("{out}{said}"));
    suites::passed("Clients in Go (client-go, controller-runtime)", on, checks);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn go_clients_on_the_embedded_parent() {
    let Some(program) = program() else { return };
    let _one = ONE.lock().await;
    let folder = tempfile::tempdir().unwrap();
    let parent = crate::e2e::Parent::embedded(folder.path()).await;
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, parent.kubeconfig()).unwrap();
    tokio::task::spawn_blocking(move || passes(&program, &kubeconfig, On::Embedded)).await.unwrap();
    parent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn go_clients_on_a_real_parent() {
    let (Some(program), Some(assets)) = (program(), kube::assets()) else { return };
    let _one = ONE.lock().await;
    let parent = ControlPlane::start(assets).await;
    prepare_parent(&parent).await;
    let kubeconfig = parent.kubeconfig.clone();
    tokio::task::spawn_blocking(move || passes(&program, &kubeconfig, On::Real)).await.unwrap();
}
