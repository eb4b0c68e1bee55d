//! The two kinds of parent: everything in this process, or a real Kubernetes with our parts as installed by `deploy/`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use cli::embedded::{self, Keep, PartOptions, Role};
use engine::{CancellationToken, Tasks};
use serde_json::{Value, json};

use super::{Shared, deploy};
use crate::bench::{Process, apply_all, documents, free_port, until};
use crate::kube::ControlPlane;

/// The parts with the account that `deploy/` gives them.
const PARTS: [(&str, &str); 4] =
    [("hub", "clusternet-hub"), ("scheduler", "clusternet-scheduler"), ("controllers", "clusternet-controller-manager"), ("source", "anabranch-source")];

/// A parent.
pub(crate) enum Parent {
    Embedded { server: Shared, token: String, tasks: Tasks },
    Real(Box<Real>),
}

/// Our parts on a real Kubernetes.
pub(crate) struct Real {
    pub plane: ControlPlane,
    pub token: String,
    pub processes: BTreeMap<String, Process>,
    /// Admin addresses of the processes.
    pub doors: BTreeMap<String, u16>,
}

impl Parent {
    /// All in this process.
    pub(crate) async fn embedded(folder: &Path) -> Parent {
        Self::embedded_at(folder, 0).await
    }

    /// The same on a port.
    pub(crate) async fn embedded_at(folder: &Path, port: u16) -> Parent {
        let tasks = Tasks::new(&CancellationToken::new());
        let keep = Keep::Folder(folder.join("parent"));
        let server = embedded::start(&keep, &Role::Parent, Some(([127, 0, 0, 1], port).into()), &tasks).await.unwrap();
        embedded::prepare_parent(&server.admin()).await.unwrap();
        let token = embedded::bootstrap_token(&server.admin()).await.unwrap().reveal().to_owned();
        let git = git::Git::new(git::Options { directory: folder.join("git"), local_threads: 2, network_threads: 2 });
        let mut options = PartOptions::usual(git.clone());
        options.controllers.git = Some(git);
        embedded::start_parts(&server, options, &tasks);
        Parent::Embedded { server: Shared::new(server), token, tasks }
    }

    /// Installed on a real Kubernetes, two replicas of each part.
    pub(crate) async fn real(assets: &Path, folder: &Path) -> Parent {
        let plane = ControlPlane::start(assets).await;
        let port = free_port();
        let mut objects = documents(&deploy().join("parent/namespace.yaml"));
        objects.extend(documents(&deploy().join("parent/crds.yaml")));
        objects.extend(documents(&deploy().join("parent/install.yaml")));
        // The one thing that differs from an installation: there are no nodes, so the Service leads to this machine.
        for object in &mut objects {
            if object["kind"] == "Service" {
                object["spec"] = json!({"type": "ExternalName", "externalName": "localhost"});
            } else if object["kind"] == "APIService" {
                object["spec"]["service"]["port"] = json!(port);
            }
        }
        objects.extend(cluster_info(&plane));
        apply_all(&plane.admin, &objects).await;
        let mut real = Real { plane, token: String::new(), processes: BTreeMap::new(), doors: BTreeMap::new() };
        for (part, _) in PARTS {
            for replica in 1..=2 {
                real.start(folder, part, replica, if part == "hub" && replica == 1 { port } else { free_port() }).await;
            }
        }
        let dynamic = cluster::Dynamic::new(real.plane.admin.clone());
        let secret: Value = until("the controllers make a bootstrap token", || async {
            dynamic.call("GET", "/api/v1/namespaces/kube-system/secrets/bootstrap-token-anabra", None, None).await.ok()
        })
        .await;
        let text = |key: &str| {
            let bytes: k8s_openapi::ByteString = serde_json::from_value(secret["data"][key].clone()).unwrap();
            String::from_utf8(bytes.0).unwrap()
        };
        real.token = format!("{}.{}", text("token-id"), text("token-secret"));
        until("the parent trusts the hub", || async {
            dynamic.call("GET", "/apis/proxies.clusternet.io/v1alpha1", None, None).await.ok()
        })
        .await;
        Parent::Real(Box::new(real))
    }

    /// URL of its API server.
    pub(crate) fn url(&self) -> &str {
        match self {
            Parent::Embedded { server, .. } => &server.url,
            Parent::Real(real) => &real.plane.url,
        }
    }

    /// Its CA, PEM.
    pub(crate) fn ca(&self) -> String {
        match self {
            Parent::Embedded { server, .. } => server.ca(),
            Parent::Real(real) => real.plane.ca.clone(),
        }
    }

    /// Its administrator's kubeconfig.
    pub(crate) fn kubeconfig(&self) -> String {
        match self {
            Parent::Embedded { server, .. } => server.kubeconfig("parent").unwrap(),
            Parent::Real(real) => std::fs::read_to_string(&real.plane.kubeconfig).unwrap(),
        }
    }

    /// Its bootstrap token.
    pub(crate) fn token(&self) -> &str {
        match self {
            Parent::Embedded { token, .. } => token,
            Parent::Real(real) => &real.token,
        }
    }

    /// A client of its administrator.
    pub(crate) fn admin(&self) -> ::kube::Client {
        match self {
            Parent::Embedded { server, .. } => server.admin(),
            Parent::Real(real) => real.plane.admin.clone(),
        }
    }

    /// What the parts were refused.
    pub(crate) fn refusals(&self) -> Vec<String> {
        match self {
            Parent::Embedded { .. } => Vec::new(),
            Parent::Real(real) => real.processes.values().flat_map(Process::refusals).collect(),
        }
    }

    /// Ends the parts.
    pub(crate) async fn stop(self) {
        if let Parent::Embedded { tasks, .. } = self {
            tasks.stop(Duration::from_secs(5)).await;
        }
    }
}

/// What kubeadm leaves behind: the public `cluster-info`, which Kubernetes' own controllers sign with each bootstrap token.
fn cluster_info(plane: &ControlPlane) -> Vec<Value> {
    use base64::Engine as _;
    let authority = base64::engine::general_purpose::STANDARD.encode(&plane.ca);
    let config = json!({"apiVersion": "v1", "kind": "Config", "clusters": [{"name": "", "cluster": {"server": plane.url, "certificate-authority-data": authority}}]});
    let (rbac, name) = ("rbac.authorization.k8s.io", "kubeadm:bootstrap-signer-clusterinfo");
    vec![
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cluster-info", "namespace": "kube-public"}, "data": {"kubeconfig": config.to_string()}}),
        json!({"apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": {"name": name, "namespace": "kube-public"}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["cluster-info"], "verbs": ["get"]}]}),
        json!({"apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": {"name": name, "namespace": "kube-public"}, "roleRef": {"apiGroup": rbac, "kind": "Role", "name": name}, "subjects": [{"apiGroup": rbac, "kind": "User", "name": "system:anonymous"}]}),
    ]
}

impl Real {
    /// Starts one replica of a part.
    pub(crate) async fn start(&mut self, folder: &Path, part: &str, replica: usize, port: u16) {
        let account = PARTS.iter().find(|(name, _)| *name == part).unwrap().1;
        let kubeconfig = self.plane.account(account).await;
        let (name, door) = (format!("{part}-{replica}"), free_port());
        let mut arguments = vec![part.to_owned(), format!("--kubeconfig={}", kubeconfig.display()), format!("--admin=127.0.0.1:{door}")];
        match part {
            "hub" => arguments.extend([format!("--listen=127.0.0.1:{port}"), "--peer-listen=127.0.0.1:0".to_owned()]),
            "controllers" => arguments.push("--bootstrap-token".to_owned()),
            _ => {}
        }
        if part != "scheduler" {
            arguments.push(format!("--data-dir={}", folder.join(&name).display()));
        }
        let process = Process::start(&name, Path::new(env!("CARGO_BIN_EXE_anabranch")), folder, &arguments);
        self.processes.insert(name.clone(), process);
        self.doors.insert(name, door);
    }
}
