//! A real Kubernetes control plane without nodes: found by KUBEBUILDER_ASSETS, else built by `build.sh`, started on loopback.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use apiserver::auth::Pki;
use apiserver::auth::pki::kubeconfig;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::bench::{Process, free_port, until};

const PARTS: [&str; 3] = ["etcd", "kube-apiserver", "kube-controller-manager"];

fn has_all(folder: &Path) -> bool {
    PARTS.iter().all(|part| folder.join(part).is_file())
}

fn found() -> Result<PathBuf, String> {
    if let Some(folder) = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from) {
        return if has_all(&folder) { Ok(folder) } else { Err(format!("KUBEBUILDER_ASSETS={} does not hold {}", folder.display(), PARTS.join(", "))) };
    }
    // Beside the other build products: it stays until they are cleaned away.
    let target = Path::new(env!("CARGO_BIN_EXE_anabranch")).parent().and_then(Path::parent).ok_or("there is no target folder")?;
    let folder = target.join("kube");
    if has_all(&folder) {
        return Ok(folder);
    }
    if Command::new("go").arg("version").output().is_err() {
        return Err("no KUBEBUILDER_ASSETS, and no Go to build a Kubernetes with".to_owned());
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kube/build.sh");
    let built = Command::new("bash").arg(script).arg(&folder).output().map_err(|error| error.to_string())?;
    if !built.status.success() {
        return Err(format!("tests/kube/build.sh failed: {}", String::from_utf8_lossy(&built.stderr)));
    }
    Ok(folder)
}

/// Where the parts are; none where they cannot be had, which is told once, and is a fault in CI.
pub(crate) fn assets() -> Option<&'static Path> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOUND
        .get_or_init(|| match found() {
            Ok(folder) => Some(folder),
            Err(why) => {
                assert!(std::env::var_os("CI").is_none(), "CI needs a real Kubernetes: {why}");
                eprintln!("skipped, a real Kubernetes is missing: {why}");
                None
            }
        })
        .as_deref()
}

/// A running control plane; ends with the value.
pub(crate) struct ControlPlane {
    /// URL of the API server.
    pub url: String,
    /// Its CA, PEM.
    pub ca: String,
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// A client of the administrator.
    pub admin: kube::Client,
    folder: tempfile::TempDir,
    port: u16,
    etcd_port: u16,
    apiserver: Option<Process>,
    _controllers: Process,
    _etcd: Process,
}

impl ControlPlane {
    /// Starts one.
    pub(crate) async fn start(assets: &Path) -> ControlPlane {
        let folder = tempfile::tempdir().unwrap();
        let pki_folder = folder.path().join("pki");
        let pki = Pki::open(&pki_folder, &[], Timestamp::now()).unwrap();
        let (port, etcd_port, peer_port, controllers_port) = (free_port(), free_port(), free_port(), free_port());
        let data = folder.path().join("etcd");
        let etcd = Process::start("etcd", &assets.join("etcd"), folder.path(), &[
            format!("--data-dir={}", data.display()),
            format!("--listen-client-urls=http://127.0.0.1:{etcd_port}"),
            format!("--advertise-client-urls=http://127.0.0.1:{etcd_port}"),
            format!("--listen-peer-urls=http://127.0.0.1:{peer_port}"),
            format!("--initial-advertise-peer-urls=http://127.0.0.1:{peer_port}"),
            format!("--initial-cluster=default=http://127.0.0.1:{peer_port}"),
            "--unsafe-no-fsync=true".to_owned(),
        ]);
        let url = format!("https://localhost:{port}");
        let kubeconfig_path = folder.path().join("kubeconfig");
        let text = pki.admin_kubeconfig(&url, "real");
        std::fs::write(&kubeconfig_path, &text).unwrap();
        // Go reads a public key from a certificate, but not from a PKCS #8 private key.
        let (certificate, key) = pki.ca.client("service-accounts", &[], Timestamp::now()).unwrap();
        std::fs::write(pki_folder.join("accounts.crt"), certificate).unwrap();
        std::fs::write(pki_folder.join("accounts.key"), key.to_pem()).unwrap();
        let apiserver = api_server(assets, folder.path(), port, etcd_port);
        let admin = cluster::client::from_kubeconfig(&text, None).await.unwrap();
        ready(&admin, &apiserver).await;
        let (certificate, key) = pki.ca.client("system:kube-controller-manager", &[], Timestamp::now()).unwrap();
        let own = folder.path().join("controllers.kubeconfig");
        std::fs::write(&own, kubeconfig(&url, "real", "controllers", &pki.ca.pem(), &certificate, &key)).unwrap();
        let pki_file = |name: &str| pki_folder.join(name).display().to_string();
        let own = own.display();
        let controllers = Process::start("kube-controller-manager", &assets.join("kube-controller-manager"), folder.path(), &[
            format!("--kubeconfig={own}"),
            format!("--authentication-kubeconfig={own}"),
            format!("--authorization-kubeconfig={own}"),
            format!("--secure-port={controllers_port}"),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--service-account-private-key-file={}", pki_file("accounts.key")),
            format!("--root-ca-file={}", pki_file("ca.crt")),
            format!("--cluster-signing-cert-file={}", pki_file("ca.crt")),
            format!("--cluster-signing-key-file={}", pki_file("ca.key")),
            "--use-service-account-credentials=true".to_owned(),
            "--controllers=*,bootstrapsigner,tokencleaner,-nodelifecycle,-node-ipam-controller".to_owned(),
            "--leader-elect=false".to_owned(),
        ]);
        // The controllers take their time; what is tested has them from the beginning.
        let dynamic = cluster::Dynamic::new(admin.clone());
        until("the controllers publish the CA", || async { dynamic.call("GET", "/api/v1/namespaces/default/configmaps/kube-root-ca.crt", None, None).await.ok() }).await;
        ControlPlane {
            ca: pki.ca.pem(),
            url,
            kubeconfig: kubeconfig_path,
            admin,
            folder,
            port,
            etcd_port,
            apiserver: Some(apiserver),
            _controllers: controllers,
            _etcd: etcd,
        }
    }

    /// Kills the API server and starts it anew over the same objects.
    pub(crate) async fn restart(&mut self, assets: &Path) {
        drop(self.apiserver.take());
        self.apiserver = Some(api_server(assets, self.folder.path(), self.port, self.etcd_port));
        ready(&self.admin, self.apiserver.as_ref().unwrap()).await;
    }

    /// Writes the kubeconfig of a ServiceAccount of the system namespace, with a token of its own.
    pub(crate) async fn account(&self, name: &str) -> PathBuf {
        let dynamic = cluster::Dynamic::new(self.admin.clone());
        let path = format!("/api/v1/namespaces/clusternet-system/serviceaccounts/{name}/token");
        let asked = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 7200}});
        let answer: Value = until(&format!("a token of {name}"), || async { dynamic.call("POST", &path, Some("application/json"), Some(&asked)).await.ok() }).await;
        let token = answer["status"]["token"].as_str().unwrap();
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": self.url, "certificate-authority-data": base64(self.ca.as_bytes())}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        });
        let path = self.folder.path().join(format!("{name}.kubeconfig"));
        std::fs::write(&path, config.to_string()).unwrap();
        path
    }
}

fn base64(bytes: &[u8]) -> String {
    serde_json::to_value(k8s_openapi::ByteString(bytes.to_vec())).unwrap().as_str().unwrap().to_owned()
}

async fn ready(admin: &kube::Client, server: &Process) {
    until("the API server is ready", || async {
        assert!(server.runs(), "the API server ended");
        let request = http::Request::get("/readyz").body(Vec::new()).unwrap();
        admin.request_text(request).await.ok()
    })
    .await;
}

fn api_server(assets: &Path, folder: &Path, port: u16, etcd_port: u16) -> Process {
    let pki = |name: &str| folder.join("pki").join(name).display().to_string();
    Process::start("kube-apiserver", &assets.join("kube-apiserver"), folder, &[
        format!("--etcd-servers=http://127.0.0.1:{etcd_port}"),
        format!("--secure-port={port}"),
        "--bind-address=127.0.0.1".to_owned(),
        "--advertise-address=127.0.0.1".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
        format!("--tls-cert-file={}", pki("apiserver.crt")),
        format!("--tls-private-key-file={}", pki("apiserver.key")),
        format!("--client-ca-file={}", pki("ca.crt")),
        "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
        format!("--service-account-key-file={}", pki("accounts.crt")),
        format!("--service-account-signing-key-file={}", pki("accounts.key")),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--allow-privileged=true".to_owned(),
        "--enable-bootstrap-token-auth".to_owned(),
        format!("--requestheader-client-ca-file={}", pki("front-proxy-ca.crt")),
        "--requestheader-username-headers=X-Remote-User".to_owned(),
        "--requestheader-group-headers=X-Remote-Group".to_owned(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
        format!("--proxy-client-cert-file={}", pki("front-proxy-client.crt")),
        format!("--proxy-client-key-file={}", pki("front-proxy-client.key")),
    ])
}

