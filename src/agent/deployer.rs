//! Hands the parent the credential by which it may act in the child: for Push, for kubectl through the tunnel, for pruning.
//!
//! The credential is a ServiceAccount of the child; its token is made by the child and uploaded into the cluster's own
//! namespace as the Secret that Clusternet's parts look for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::known::{annotation, component, label, secret};
use engine::Tasks;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::session::Session;

/// ServiceAccount in the child.
const ACCOUNT: &str = api::known::service_account::APP_DEPLOYER;
/// Between two looks at whether the token is still what was uploaded.
const LOOK: Duration = Duration::from_secs(600);
/// Between two tries while the child has not made the token.
const RETRY: Duration = Duration::from_millis(300);

/// Keeps the uploaded credential what the child says.
pub(crate) fn start(session: &Arc<Session>, cluster_id: &str, tasks: &Tasks) {
    let (session, cluster_id) = (session.clone(), cluster_id.to_owned());
    tasks.spawn_until_stopped("deployer credential", async move {
        let mut told = None;
        let mut wait = RETRY;
        loop {
            let pause = match upload(&session, &cluster_id, &mut told).await {
                Ok(true) => {
                    wait = RETRY;
                    LOOK
                }
                Ok(false) => RETRY,
                Err(error) => {
                    session.note(&error);
                    tracing::warn!(error = cluster::error::message(&error), "cannot hand over the deployer's credential yet");
                    wait = (wait * 2).min(Duration::from_secs(30));
                    wait
                }
            };
            tokio::time::sleep(pause).await;
        }
    });
}

/// Makes the account in the child, and uploads its token when it changed. False while the child has not made one.
async fn upload(session: &Session, cluster_id: &str, told: &mut Option<BTreeMap<String, ByteString>>) -> Result<bool, kube::Error> {
    let child = &session.shared.child;
    let system = &session.shared.options.system_namespace;
    let secrets: Api<Secret> = Api::namespaced(child.clone(), system);
    let mut token = secrets.get_opt(ACCOUNT).await?;
    if token.is_none() {
        for (path, object) in objects(system) {
            apply(child, &path, &object).await?;
        }
        token = secrets.get_opt(ACCOUNT).await?;
    }
    let data = token.and_then(|found| found.data).unwrap_or_default();
    let (Some(token), Some(ca)) = (data.get("token"), data.get("ca.crt")) else { return Ok(false) };
    let text = |text: &str| ByteString(text.as_bytes().to_vec());
    let wanted = BTreeMap::from([
        ("token".to_owned(), token.clone()),
        ("ca.crt".to_owned(), ca.clone()),
        ("service-account.name".to_owned(), text(ACCOUNT)),
        ("apiserver-advertise-url".to_owned(), text(&session.shared.options.child_url)),
    ]);
    if told.as_ref() == Some(&wanted) {
        return Ok(true);
    }
    let parent: Api<Secret> = Api::namespaced(session.parent.clone(), &session.namespace);
    if parent.get_opt(secret::CHILD_DEPLOYER).await?.and_then(|found| found.data).as_ref() != Some(&wanted) {
        let upload = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {
                "name": secret::CHILD_DEPLOYER, "namespace": session.namespace,
                "labels": {
                    label::CREATED_BY: component::AGENT, label::CLUSTER_ID: cluster_id,
                    label::BOOTSTRAPPING: "credentials-auto",
                },
                "annotations": {annotation::AUTO_UPDATE: "true"},
            },
            "data": wanted,
        });
        let how = PatchParams::apply(api::known::manager::AGENT).force();
        parent.patch(secret::CHILD_DEPLOYER, &how, &Patch::Apply(&upload)).await?;
    }
    *told = Some(wanted);
    Ok(true)
}

async fn apply(child: &Client, path: &str, object: &Value) -> Result<(), kube::Error> {
    let path = format!("{path}?fieldManager={}&force=true", api::known::manager::AGENT);
    cluster::Dynamic::new(child.clone()).call("PATCH", &path, Some("application/apply-patch+yaml"), Some(object)).await?;
    Ok(())
}

/// The account, its right to deploy anything, and the Secret that its token appears in.
fn objects(system: &str) -> Vec<(String, Value)> {
    let core = format!("/api/v1/namespaces/{system}");
    vec![
        (
            format!("{core}/serviceaccounts/{ACCOUNT}"),
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": system}}),
        ),
        (
            format!("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{ACCOUNT}"),
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": ACCOUNT},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
                "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": system}],
            }),
        ),
        (
            format!("{core}/secrets/{ACCOUNT}"),
            json!({
                "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
                "metadata": {"name": ACCOUNT, "namespace": system, "annotations": {"kubernetes.io/service-account.name": ACCOUNT}},
            }),
        ),
    ]
}
