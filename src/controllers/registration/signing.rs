//! Approves the certificate signing requests of agents, and nobody else's.

use std::sync::Arc;
use std::time::Duration;

use api::clusters::ManagedCluster;
use api::known::annotation;
use cluster::Target;
use engine::{Cache, Class, EventKind, Key, Next, Queue, Regarding, Settled, Tasks, TurnError, turn, work};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::Api;
use kube::api::{Patch, PatchParams};
use plan::registration::{Signing, SigningRequest, cluster_of_user, decide_signing};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer as _, X509CertificationRequest};

use super::Context;

const REASON: &str = "SigningFailed";
/// The signer whose certificates authenticate clients to the API server.
const SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// Begins to look at signing requests.
pub(super) fn start(context: &Context, clusters: &Cache<ManagedCluster>, tasks: &Tasks) {
    let requests = Cache::<CertificateSigningRequest>::builder()
        .index("cluster", |r| facts(r).and_then(|f| cluster_of_user(&f.common_name).map(str::to_owned)).into_iter().collect())
        .build();
    let queue: Queue<Key> = Queue::with(context.clock.clone(), engine::Backoff::default());
    {
        let queue = queue.clone();
        requests.on_change(move |change| {
            if change.new.is_some_and(|r| is_open(r)) {
                queue.add(change.key.clone());
            }
        });
    }
    {
        let (queue, requests) = (queue.clone(), requests.clone());
        clusters.on_change(move |change| {
            let key = |c: &ManagedCluster| c.metadata.annotations.as_ref().and_then(|a| a.get(annotation::AGENT_KEY)).cloned();
            if change.touches(key)
                && let Some(cluster) = change.new
            {
                queue.add_all(requests.keys_by("cluster", &cluster.spec.cluster_id));
            }
        });
    }
    let target = Target::of::<CertificateSigningRequest>("").fields(format!("spec.signerName={SIGNER}"));
    requests.follow("signingrequests", context.client.clone(), target, tasks);
    let signer = Arc::new(Signer { context: context.clone(), requests, clusters: clusters.clone() });
    let token = tasks.token().clone();
    tasks.spawn("signing", async move {
        work(queue, 4, token, move |key| {
            let signer = signer.clone();
            async move {
                let ended = signer.turn(&key).await;
                turn::conclude("signing", &key, ended.as_ref().map(Clone::clone), &signer.context.metrics)
            }
        })
        .await;
    });
}

struct Signer {
    context: Context,
    requests: Cache<CertificateSigningRequest>,
    clusters: Cache<ManagedCluster>,
}

/// Neither approved, denied nor failed.
fn is_open(request: &CertificateSigningRequest) -> bool {
    request.status.as_ref().and_then(|s| s.conditions.as_ref()).is_none_or(Vec::is_empty)
}

/// Reads what is asked for; `None` when it is not a signing request at all.
fn facts(request: &CertificateSigningRequest) -> Option<SigningRequest> {
    let (_, pem) = x509_parser::pem::parse_x509_pem(&request.spec.request.0).ok()?;
    let (_, csr) = X509CertificationRequest::from_der(&pem.contents).ok()?;
    // Proof that whoever asks holds the key.
    csr.verify_signature().ok()?;
    let info = &csr.certification_request_info;
    let text = |value: &x509_parser::x509::AttributeTypeAndValue<'_>| value.as_str().map(str::to_owned).ok();
    let digest = Sha256::digest(info.subject_pki.raw);
    Some(SigningRequest {
        username: request.spec.username.clone().unwrap_or_default(),
        groups: request.spec.groups.clone().unwrap_or_default(),
        common_name: info.subject.iter_common_name().next().and_then(text).unwrap_or_default(),
        organizations: info.subject.iter_organization().filter_map(text).collect(),
        other_names: csr
            .requested_extensions()
            .into_iter()
            .flatten()
            .filter(|e| matches!(e, x509_parser::extensions::ParsedExtension::SubjectAlternativeName(_)))
            .count(),
        usages: request.spec.usages.clone().unwrap_or_default(),
        key: format!("sha256:{}", hex(&digest)),
    })
}

fn hex(bytes: &[u8]) -> String {
    manifest::hash::hex(bytes)
}

impl Signer {
    async fn turn(&self, key: &Key) -> Result<Settled, TurnError> {
        let Some(request) = self.requests.get_key(key).filter(|r| is_open(r)) else { return Ok(Settled::QUIET) };
        let Some(asked) = facts(&request) else { return Ok(Settled::QUIET) };
        let cluster = cluster_of_user(&asked.common_name).and_then(|id| self.clusters.by("id", id).into_iter().next());
        match decide_signing(&asked, cluster.as_deref()) {
            Signing::Ignore => Ok(Settled::QUIET),
            // The change of the ManagedCluster wakes the request; the timer is for a lost moment between two caches.
            Signing::Wait => Ok(Settled { next: Next::After(Duration::from_secs(5)), changed: false }),
            Signing::Deny(why) => {
                self.context.recorder.record(Regarding::of(request.as_ref()), EventKind::Warning, "SigningDenied", why.clone());
                self.conclude(&request, "Denied", "AgentIdentity", &why).await
            }
            Signing::Approve { repin } => {
                if repin && let Some(cluster) = &cluster {
                    self.pin(cluster, &asked.key).await?;
                }
                self.conclude(&request, "Approved", "AgentIdentity", "the cluster's own key asks").await
            }
        }
    }

    async fn pin(&self, cluster: &ManagedCluster, key: &str) -> Result<(), TurnError> {
        let (namespace, name) = (cluster.metadata.namespace.as_deref().unwrap_or_default(), cluster.metadata.name.as_deref().unwrap_or_default());
        let api: Api<ManagedCluster> = Api::namespaced(self.context.client.clone(), namespace);
        let patch = json!({"metadata": {"resourceVersion": cluster.metadata.resource_version, "annotations": {annotation::AGENT_KEY: key}}});
        let written = api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.map_err(|e| TurnError::api(REASON, e))?;
        self.clusters.assume(written);
        Ok(())
    }

    async fn conclude(&self, request: &CertificateSigningRequest, verdict: &str, reason: &str, message: &str) -> Result<Settled, TurnError> {
        let mut next = request.clone();
        let condition = json!({"type": verdict, "status": "True", "reason": reason, "message": message, "lastUpdateTime": self.context.clock.now()});
        let condition = serde_json::from_value(condition).map_err(|e| TurnError::new(REASON, Class::Bug, e))?;
        next.status.get_or_insert_default().conditions.get_or_insert_default().push(condition);
        let name = request.metadata.name.as_deref().unwrap_or_default();
        let api: Api<CertificateSigningRequest> = Api::all(self.context.client.clone());
        api.replace_subresource("approval", name, &kube::api::PostParams::default(), &next)
            .await
            .map(|_: CertificateSigningRequest| ())
            .map_err(|e| TurnError::api(REASON, e))?;
        Ok(Settled { next: Next::Done, changed: true })
    }
}
