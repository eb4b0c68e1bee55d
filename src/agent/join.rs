//! Joins the parent: asks with a bootstrap credential, waits for the answer and the certificate, keeps both.

use std::time::Duration;

use api::clusters::{ClusterRegistrationRequest, ClusterRegistrationRequestSpec, ClusterRegistrationRequestStatus, result};
use api::known::{annotation, component, label};
use api::names;
use cluster::{Trouble, trouble};
use engine::CancellationToken;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client};

use crate::Shared;
use crate::credential::{Credential, CredentialError, Keys, store};
use crate::options::Join;

/// Why joining did not work this time.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JoinError {
    #[error("connect to the parent")]
    Connect(#[source] cluster::ClientError),
    #[error("{what}")]
    Request { what: &'static str, #[source] source: Box<kube::Error> },
    #[error("keep the credential")]
    Credential(#[from] CredentialError),
    #[error("trust the parent")]
    Introduction(#[from] cluster::introduction::IntroductionError),
    #[error("the parent does not accept the bootstrap token: it is wrong, or expired")]
    Token(#[source] Box<kube::Error>),
    #[error("the parent's certificate is of an authority that this machine does not know: give its certificates with --parent-ca")]
    Authority(#[source] Box<kube::Error>),
    #[error("the parent denies the registration: {0}")]
    Denied(String),
    #[error("the parent does not sign the certificate: {0}")]
    NotSigned(String),
    #[error("joining was interrupted")]
    Interrupted,
}

/// Whether nobody we trust signed the server's certificate: of another name, or of the same name with another key. The error itself
/// is lost on the way, its words in rustls are not.
pub(crate) fn is_other_authority(error: &kube::Error) -> bool {
    let words = cluster::error::chain(error);
    ["UnknownIssuer", "BadSignature"].iter().any(|word| words.contains(word))
}

fn request(what: &'static str) -> impl Fn(kube::Error) -> JoinError {
    move |source| JoinError::Request { what, source: Box::new(source) }
}

/// Waits between two looks at an answer: quick at first, since the answer usually comes within a moment.
struct Pace(Duration);

impl Pace {
    fn new() -> Self {
        Self(Duration::from_millis(20))
    }

    async fn wait(&mut self, stop: &CancellationToken) -> Result<(), JoinError> {
        let spread = self.0.mul_f64(rand::random_range(0.8..1.2));
        self.0 = self.0.mul_f32(1.6).min(Duration::from_secs(5));
        tokio::select! {
            () = tokio::time::sleep(spread) => Ok(()),
            () = stop.cancelled() => Err(JoinError::Interrupted),
        }
    }
}

/// A credential with which the cluster has joined: the kept one, or a new one.
pub(crate) async fn join(shared: &Shared, cluster_id: &str, kept: Credential, stop: &CancellationToken) -> Result<Credential, JoinError> {
    let bootstrap = match &shared.options.join {
        Join::Assigned { namespace, cluster_name, auth } => {
            let mut credential =
                Credential { url: shared.options.parent.url.clone(), namespace: namespace.clone(), cluster_name: cluster_name.clone(), ..Credential::default() };
            match auth {
                cluster::Auth::Token(token) => credential.token.clone_from(token),
                cluster::Auth::Certificate { chain_pem, key_pem } => {
                    credential.chain_pem.clone_from(chain_pem);
                    credential.key_pem = String::from_utf8_lossy(key_pem).into_owned();
                }
                cluster::Auth::Anonymous => {}
            }
            return Ok(credential);
        }
        Join::Register { bootstrap } => bootstrap,
    };
    let to = &shared.options.parent;
    if kept.url == to.url && kept.has_joined() {
        return Ok(kept);
    }
    let ca = match bootstrap {
        cluster::Auth::Token(token) if to.introduces => cluster::introduction::ca_of(&to.url, token).await?,
        _ => to.ca_pem.clone(),
    };
    // Another parent gets a key that the first one never saw.
    let kept = if kept.is_for(&to.url, ca.as_deref()) { kept } else { Credential::default() };
    if kept.has_joined() {
        let moved = Credential { url: to.url.clone(), ..kept };
        store(shared, cluster_id, &moved).await?;
        return Ok(moved);
    }
    let keys = Keys::from(&kept.key_pem)?;
    let mut credential = Credential { url: to.url.clone(), key_pem: keys.pair.serialize_pem(), ca_pem: ca.clone().unwrap_or_else(|| kept.ca_pem.clone()), ..kept };
    // Kept before anything is asked: the parent pins the key at the first request, and a restart must bring the same one.
    store(shared, cluster_id, &credential).await?;
    let parent = (to.connect)(bootstrap, ca.as_deref()).map_err(JoinError::Connect)?;
    ask(shared, &parent, cluster_id, &keys.fingerprint).await?;
    let asked_for = sign_later(&parent, cluster_id, &keys).await;
    let answer = answer(&parent, cluster_id, stop).await?;
    credential.namespace.clone_from(&answer.dedicated_namespace);
    credential.cluster_name.clone_from(&answer.managed_cluster_name);
    credential.ca_pem = answer.ca_certificate.0.clone();
    if answer.dedicated_token.is_empty() {
        let name = asked_for.map_err(request("ask for a certificate"))?;
        credential.chain_pem = signed(&parent, &name, stop).await?;
        credential.token.clear();
    } else {
        // A parent that hands out tokens (Clusternet itself).
        credential.token = String::from_utf8(answer.dedicated_token.0.clone()).unwrap_or_default();
        credential.chain_pem.clear();
    }
    store(shared, cluster_id, &credential).await?;
    tracing::info!(cluster = credential.cluster_name, namespace = credential.namespace, "joined");
    Ok(credential)
}

/// Makes the registration request, unless it is there.
async fn ask(shared: &Shared, parent: &Client, cluster_id: &str, fingerprint: &str) -> Result<(), JoinError> {
    let options = &shared.options;
    let api: Api<ClusterRegistrationRequest> = Api::all(parent.clone());
    let mut wish = ClusterRegistrationRequest::new(
        &names::registration_request(cluster_id),
        ClusterRegistrationRequestSpec {
            cluster_id: cluster_id.to_owned(),
            cluster_type: options.cluster_type.clone(),
            cluster_name: options.cluster_name.clone(),
            cluster_namespace: options.cluster_namespace.clone(),
            cluster_labels: options.labels.clone(),
            sync_mode: options.sync_mode,
        },
    );
    let name = plan::registration::wanted_name(&wish);
    wish.spec.cluster_name.clone_from(&name);
    let labels = [(label::REGISTERED_BY, component::AGENT), (label::CLUSTER_ID, cluster_id), (label::CLUSTER_NAME, &name)];
    wish.metadata.labels = Some(labels.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect());
    wish.metadata.annotations = Some([(annotation::AGENT_KEY.to_owned(), fingerprint.to_owned())].into());
    match api.create(&PostParams::default(), &wish).await {
        Ok(_) => Ok(()),
        Err(error) if trouble(&error) == Trouble::AlreadyExists => Ok(()),
        Err(error) if trouble(&error) == Trouble::Unauthorized => Err(JoinError::Token(Box::new(error))),
        Err(error) if is_other_authority(&error) => Err(JoinError::Authority(Box::new(error))),
        Err(error) => Err(request("ask to join")(error)),
    }
}

async fn answer(parent: &Client, cluster_id: &str, stop: &CancellationToken) -> Result<ClusterRegistrationRequestStatus, JoinError> {
    let api: Api<ClusterRegistrationRequest> = Api::all(parent.clone());
    let mut pace = Pace::new();
    loop {
        let found = api.get(&names::registration_request(cluster_id)).await.map_err(request("read the answer to the registration"))?;
        let status = found.status.unwrap_or_default();
        match status.result.as_str() {
            result::APPROVED => return Ok(status),
            result::DENIED | result::FAILED => return Err(JoinError::Denied(status.error_message)),
            _ => pace.wait(stop).await?,
        }
    }
}

/// Asks for a certificate; returns the name of the request.
async fn sign_later(parent: &Client, cluster_id: &str, keys: &Keys) -> Result<String, kube::Error> {
    let text = keys.signing_request(cluster_id).map_err(|e| kube::Error::Service(Box::new(e)))?;
    let api: Api<CertificateSigningRequest> = Api::all(parent.clone());
    let wish = CertificateSigningRequest {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", names::registration_request(cluster_id))),
            labels: Some([(label::CLUSTER_ID.to_owned(), cluster_id.to_owned())].into()),
            ..ObjectMeta::default()
        },
        spec: CertificateSigningRequestSpec {
            request: ByteString(text.into_bytes()),
            signer_name: "kubernetes.io/kube-apiserver-client".to_owned(),
            usages: Some(vec!["client auth".to_owned(), "digital signature".to_owned()]),
            // A day: a stolen credential does not last, and a night without the parent is survived.
            expiration_seconds: Some(86_400),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    };
    let made = api.create(&PostParams::default(), &wish).await?;
    Ok(made.metadata.name.unwrap_or_default())
}

async fn signed(parent: &Client, name: &str, stop: &CancellationToken) -> Result<Vec<u8>, JoinError> {
    let api: Api<CertificateSigningRequest> = Api::all(parent.clone());
    let mut pace = Pace::new();
    loop {
        let found = api.get(name).await.map_err(request("read the signed certificate"))?;
        let status = found.status.unwrap_or_default();
        if let Some(certificate) = status.certificate.filter(|c| !c.0.is_empty()) {
            return Ok(certificate.0);
        }
        let refused = status.conditions.unwrap_or_default().into_iter().find(|c| c.type_ == "Denied" || c.type_ == "Failed");
        if let Some(refused) = refused {
            return Err(JoinError::NotSigned(refused.message.unwrap_or_default()));
        }
        pace.wait(stop).await?;
    }
}

/// Renews the certificate with the credential that still works. The key stays: it is pinned in the parent, and a crash between
/// the parent's pinning of a new one and our keeping it would lock the cluster out.
pub(crate) async fn renew(shared: &Shared, parent: &Client, cluster_id: &str, old: &Credential, stop: &CancellationToken) -> Result<Credential, JoinError> {
    let keys = Keys::from(&old.key_pem)?;
    let name = sign_later(parent, cluster_id, &keys).await.map_err(request("ask for a new certificate"))?;
    let chain_pem = signed(parent, &name, stop).await?;
    let renewed = Credential { key_pem: keys.pair.serialize_pem(), chain_pem, ..old.clone() };
    store(shared, cluster_id, &renewed).await?;
    Ok(renewed)
}
