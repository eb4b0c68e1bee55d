//! One term of leadership: find the cluster's id, join, then report and sync until something ends it.

use std::sync::Arc;
use std::time::Duration;

use cluster::{Trouble, trouble};
use engine::{CancellationToken, Leadership, Tasks};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

use crate::credential::{self, Credential};
use crate::join::{self, JoinError};
use crate::options::{Join, TunnelSession};
use crate::{Shared, report, sync};

/// Joined: what the tasks of a session share.
pub(crate) struct Session {
    pub(crate) shared: Shared,
    /// Client of the parent with the cluster's own credential.
    pub(crate) parent: Client,
    /// Dedicated namespace in the parent.
    pub(crate) namespace: String,
    /// Name of the ManagedCluster.
    pub(crate) cluster_name: String,
    /// Whether we still lead; asked before every write into the child.
    pub(crate) leadership: Leadership,
    /// On whose behalf we apply: the agent, or the parent through the tunnel.
    pub(crate) role: plan::sync::Applier,
    /// The parent gave a token, as Clusternet's does: where it applies itself, it leaves drift and status to its agents.
    pub(crate) mends_beside: bool,
    /// Cancelled when the credential is no longer accepted.
    refused: CancellationToken,
}

impl Session {
    /// A session on the parent's side: no election, nothing joined.
    pub(crate) fn of_parent(shared: Shared, parent: Client, namespace: &str, cluster_name: &str) -> Self {
        let leadership = Leadership::always(shared.clock.clone());
        Self {
            shared,
            parent,
            namespace: namespace.to_owned(),
            cluster_name: cluster_name.to_owned(),
            leadership,
            role: plan::sync::Applier::Parent,
            mends_beside: false,
            refused: CancellationToken::new(),
        }
    }

    /// Looks at an error of the parent: a refused credential ends the session, so that the agent joins again. So does an authority
    /// that is not the one it was introduced with: a parent that was made anew proves itself with the token, others do not.
    pub(crate) fn note(&self, error: &kube::Error) {
        if trouble(error) == Trouble::Unauthorized || self.shared.options.parent.introduces && join::is_other_authority(error) {
            self.refused.cancel();
        }
    }
}

/// Makes the system namespace of the child; tried until it works.
pub(crate) async fn ensure_namespace(shared: &Shared, shutdown: &CancellationToken) {
    let name = &shared.options.system_namespace;
    let api: Api<Namespace> = Api::all(shared.child.clone());
    let mut wait = Duration::from_millis(100);
    loop {
        let there = match api.get_opt(name).await {
            Ok(Some(_)) => Ok(()),
            Ok(None) => {
                let wanted = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
                api.patch(name, &PatchParams::apply(api::known::manager::AGENT).force(), &Patch::Apply(&wanted)).await.map(|_| ())
            }
            Err(error) => Err(error),
        };
        match there {
            Ok(()) => return,
            Err(error) => tracing::warn!(namespace = name, error = cluster::error::message(&error), "cannot see to the system namespace of the child"),
        }
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = shutdown.cancelled() => return,
        }
        wait = (wait * 2).min(Duration::from_secs(15));
    }
}

/// Id of the cluster: that of its Lease.
fn cluster_id(leadership: &Leadership) -> String {
    let annotations = leadership.lease_annotations();
    annotations.get(api::known::annotation::LEGACY_CLUSTER_ID).filter(|id| !id.is_empty()).cloned().unwrap_or_else(|| leadership.lease_uid())
}

/// Leads until the term ends.
pub(crate) async fn lead(shared: Shared, leadership: Leadership, term: CancellationToken) {
    let id = cluster_id(&leadership);
    let mut wait = Duration::from_millis(200);
    let mut kept = None;
    while !term.is_cancelled() {
        let joined = async {
            let start = match kept.take() {
                Some(credential) => credential,
                None => credential::load(&shared).await?,
            };
            join::join(&shared, &id, start, &term).await
        };
        match Box::pin(joined).await {
            Ok(credential) => {
                wait = Duration::from_millis(200);
                match Box::pin(serve(&shared, &leadership, &id, credential, &term)).await {
                    Ended::Term => return,
                    Ended::Refused(credential) => {
                        tracing::warn!(cluster = credential.cluster_name, "the parent no longer accepts the credential, or shows another authority: joining again");
                        // The key stays: it is what the parent knows the cluster by.
                        kept = Some(Credential { url: credential.url, key_pem: credential.key_pem, ..Credential::default() });
                    }
                }
            }
            Err(JoinError::Interrupted) => return,
            Err(error) => {
                tracing::warn!(cluster_id = id, error = cluster::error::chain(&error), "cannot join yet");
                if let JoinError::Denied(_) = error {
                    // A person must act; look again rarely.
                    wait = Duration::from_secs(30);
                }
            }
        }
        tokio::select! {
            () = tokio::time::sleep(wait.mul_f64(rand::random_range(0.7..1.3))) => {}
            () = term.cancelled() => return,
        }
        wait = (wait * 2).min(Duration::from_secs(30));
    }
}

enum Ended {
    Term,
    Refused(Credential),
}

async fn serve(shared: &Shared, leadership: &Leadership, id: &str, mut credential: Credential, term: &CancellationToken) -> Ended {
    // One round per certificate: a renewed one needs a new client.
    loop {
        let parent = match (shared.options.parent.connect)(&credential.auth(), credential.ca()) {
            Ok(parent) => parent,
            Err(error) => {
                tracing::warn!(error = cluster::error::chain(&error), "cannot use the credential");
                return Ended::Refused(credential);
            }
        };
        let round = term.child_token();
        let tasks = Tasks::new(&round);
        let refused = CancellationToken::new();
        let session = Arc::new(Session {
            shared: shared.clone(),
            parent: parent.clone(),
            namespace: credential.namespace.clone(),
            cluster_name: credential.cluster_name.clone(),
            leadership: leadership.clone(),
            role: plan::sync::Applier::Agent,
            mends_beside: !credential.token.is_empty() && matches!(shared.options.join, Join::Register { .. }),
            refused: refused.clone(),
        });
        report::start(&session, &tasks);
        sync::start(&session, &tasks);
        if !shared.options.child_url.is_empty() {
            crate::deployer::start(&session, id, &tasks);
        }
        let own = shared.options.reachable_predictor().filter(|predictor| predictor.own);
        let predictor = own.map(|_| crate::predictor::Predictor::new(shared.child.clone(), tasks.clone()));
        if let (Some(predictor), Some(address)) = (&predictor, own.and_then(|own| own.listen)) {
            tasks.spawn_until_stopped("predictor", predictor.clone().listen(address));
        }
        if let Some(tunnel) = &shared.options.tunnel {
            let session = TunnelSession {
                cluster_id: id.to_owned(),
                namespace: credential.namespace.clone(),
                cluster_name: credential.cluster_name.clone(),
                parent_url: shared.options.parent.url.clone(),
                auth: credential.auth(),
                ca_pem: shared.options.parent.ca_pem.clone().or_else(|| credential.ca().map(<[u8]>::to_vec)),
                child: shared.child.clone(),
                predictor_address: shared.options.reachable_predictor().filter(|p| !p.direct).map(|p| host_port(&p.address)),
                predictor,
            };
            tasks.spawn_until_stopped("tunnel", tunnel.run(session, tasks.token().clone()));
        }
        let renewed = async {
            if matches!(shared.options.join, Join::Assigned { .. }) {
                return std::future::pending().await;
            }
            renew_when_due(shared, &parent, id, &credential, &round).await
        };
        let outcome = tokio::select! {
            () = term.cancelled() => None,
            () = refused.cancelled() => Some(Err(())),
            renewed = renewed => Some(Ok(renewed)),
        };
        tasks.stop(Duration::from_secs(10)).await;
        match outcome {
            None => return Ended::Term,
            Some(Err(())) => return Ended::Refused(credential),
            Some(Ok(renewed)) => {
                tracing::info!(cluster = renewed.cluster_name, "renewed the certificate");
                credential = renewed;
            }
        }
    }
}

/// `host:port` of an address that may be a URL.
fn host_port(address: &str) -> String {
    let bare = address.split_once("://").map_or(address, |(_, rest)| rest);
    bare.split('/').next().unwrap_or_default().to_owned()
}

/// Completes with a new credential once one was due and could be had.
async fn renew_when_due(shared: &Shared, parent: &Client, id: &str, credential: &Credential, stop: &CancellationToken) -> Credential {
    let Some(at) = credential.renew_at() else {
        // Tokens of ServiceAccount Secrets do not expire.
        return std::future::pending().await;
    };
    loop {
        let left = Duration::try_from(at.duration_since(shared.clock.now())).unwrap_or(Duration::ZERO);
        // Long sleeps are cut, since clocks of suspended machines stand still.
        if !left.is_zero() {
            shared.clock.sleep(left.min(Duration::from_secs(3600))).await;
            continue;
        }
        match join::renew(shared, parent, id, credential, stop).await {
            Ok(renewed) => return renewed,
            Err(error) => tracing::warn!(error = cluster::error::chain(&error), "cannot renew the certificate yet"),
        }
        shared.clock.sleep(Duration::from_secs(60)).await;
    }
}
