//! The agent's credential of the parent: kept in a Secret of the child, its key born there.

use std::collections::BTreeMap;

use api::known::{bootstrapping, label, manager, secret};
use cluster::Auth;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{Patch, PatchParams};
use sha2::{Digest as _, Sha256};

use crate::Shared;

/// Keys of our own in the Secret, beside those that Clusternet knows.
const CERTIFICATE: &str = "tls.crt";
const PRIVATE_KEY: &str = "tls.key";

/// What an agent keeps across restarts.
#[derive(Clone, Default)]
pub(crate) struct Credential {
    /// URL of the parent that it is for.
    pub(crate) url: String,
    /// Private key, PEM. Never leaves the child.
    pub(crate) key_pem: String,
    /// Certificate chain, PEM; empty before it was signed, or with a token.
    pub(crate) chain_pem: Vec<u8>,
    /// Bearer token; empty with a certificate.
    pub(crate) token: String,
    /// CA of the parent, PEM.
    pub(crate) ca_pem: Vec<u8>,
    /// Dedicated namespace; empty before joining.
    pub(crate) namespace: String,
    /// Name of the ManagedCluster.
    pub(crate) cluster_name: String,
}

/// Why a credential could not be made or kept.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CredentialError {
    #[error("make a key pair")]
    Key(#[source] rcgen::Error),
    #[error("read or write Secret {0}")]
    Store(&'static str, #[source] Box<kube::Error>),
}

impl Credential {
    /// True when the cluster has joined with it.
    pub(crate) fn has_joined(&self) -> bool {
        !self.namespace.is_empty() && (!self.chain_pem.is_empty() || !self.token.is_empty())
    }

    /// As a client uses it.
    pub(crate) fn auth(&self) -> Auth {
        if self.chain_pem.is_empty() {
            Auth::Token(self.token.clone())
        } else {
            Auth::Certificate { chain_pem: self.chain_pem.clone(), key_pem: self.key_pem.clone().into_bytes() }
        }
    }

    /// CA, when there is one.
    pub(crate) fn ca(&self) -> Option<&[u8]> {
        (!self.ca_pem.is_empty()).then_some(self.ca_pem.as_slice())
    }

    /// True when it is for the parent at `url` with the CA `known`: the same place, or the same authority at a new one. Any
    /// other parent must never be shown what this one trusts.
    pub(crate) fn is_for(&self, url: &str, known: Option<&[u8]>) -> bool {
        let ours = cluster::client::pem_certificates(&self.ca_pem);
        self.url == url || known.is_some_and(|pem| cluster::client::pem_certificates(pem).iter().any(|one| ours.contains(one)))
    }

    /// When a new certificate should be asked for: at two thirds of the life of this one. `None` without a certificate.
    pub(crate) fn renew_at(&self) -> Option<Timestamp> {
        let (_, pem) = x509_parser::pem::parse_x509_pem(&self.chain_pem).ok()?;
        let certificate = pem.parse_x509().ok()?;
        let from = certificate.validity().not_before.timestamp();
        let until = certificate.validity().not_after.timestamp();
        Timestamp::from_second(from + (until - from) * 2 / 3).ok()
    }
}

/// A key pair, and what others know of it.
pub(crate) struct Keys {
    pub(crate) pair: rcgen::KeyPair,
    /// `sha256:<hex>` of the public key.
    pub(crate) fingerprint: String,
}

impl Keys {
    /// The kept pair, or a new one when there is none that can be read.
    pub(crate) fn from(key_pem: &str) -> Result<Self, CredentialError> {
        let pair = match rcgen::KeyPair::from_pem(key_pem) {
            Ok(pair) => pair,
            Err(_) => rcgen::KeyPair::generate().map_err(CredentialError::Key)?,
        };
        use rcgen::PublicKeyData as _;
        let fingerprint = format!("sha256:{}", hex::encode(Sha256::digest(pair.subject_public_key_info())));
        Ok(Self { pair, fingerprint })
    }

    /// A certificate signing request for the cluster, PEM.
    pub(crate) fn signing_request(&self, cluster_id: &str) -> Result<String, CredentialError> {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::OrganizationName, plan::registration::AGENT_GROUP);
        params.distinguished_name.push(rcgen::DnType::CommonName, plan::registration::agent_user(cluster_id));
        let request = params.serialize_request(&self.pair).map_err(CredentialError::Key)?;
        request.pem().map_err(CredentialError::Key)
    }
}

fn secrets(shared: &Shared) -> Api<Secret> {
    Api::namespaced(shared.child.clone(), &shared.options.system_namespace)
}

/// Reads what is kept; nothing kept is an empty credential.
pub(crate) async fn load(shared: &Shared) -> Result<Credential, CredentialError> {
    let found = secrets(shared)
        .get_opt(secret::PARENT_CLUSTER)
        .await
        .map_err(|e| CredentialError::Store(secret::PARENT_CLUSTER, Box::new(e)))?;
    let Some(found) = found else { return Ok(Credential::default()) };
    let data = found.data.unwrap_or_default();
    let bytes = |key: &str| data.get(key).map(|b| b.0.clone()).unwrap_or_default();
    let text = |key: &str| String::from_utf8(bytes(key)).unwrap_or_default();
    let labels = found.metadata.labels.unwrap_or_default();
    Ok(Credential {
        url: text(secret::SERVER_URL),
        key_pem: text(PRIVATE_KEY),
        chain_pem: bytes(CERTIFICATE),
        token: text(secret::TOKEN),
        ca_pem: bytes(secret::CA_CERT),
        namespace: text(secret::NAMESPACE),
        cluster_name: labels.get(label::CLUSTER_NAME).cloned().unwrap_or_default(),
    })
}

/// Keeps it.
pub(crate) async fn store(shared: &Shared, cluster_id: &str, credential: &Credential) -> Result<(), CredentialError> {
    let mut data = BTreeMap::new();
    let mut put = |key: &str, value: &[u8]| {
        if !value.is_empty() {
            data.insert(key.to_owned(), ByteString(value.to_vec()));
        }
    };
    put(secret::SERVER_URL, credential.url.as_bytes());
    put(PRIVATE_KEY, credential.key_pem.as_bytes());
    put(CERTIFICATE, &credential.chain_pem);
    put(secret::TOKEN, credential.token.as_bytes());
    put(secret::CA_CERT, &credential.ca_pem);
    put(secret::NAMESPACE, credential.namespace.as_bytes());
    let mut labels = BTreeMap::from([
        (label::BOOTSTRAPPING.to_owned(), bootstrapping::CREDENTIALS.to_owned()),
        (label::CLUSTER_ID.to_owned(), cluster_id.to_owned()),
    ]);
    if !credential.cluster_name.is_empty() {
        labels.insert(label::CLUSTER_NAME.to_owned(), credential.cluster_name.clone());
    }
    let kept = Secret {
        metadata: ObjectMeta { name: Some(secret::PARENT_CLUSTER.to_owned()), labels: Some(labels), ..ObjectMeta::default() },
        data: Some(data),
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    };
    secrets(shared)
        .patch(secret::PARENT_CLUSTER, &PatchParams::apply(manager::AGENT).force(), &Patch::Apply(&kept))
        .await
        .map(|_| ())
        .map_err(|e| CredentialError::Store(secret::PARENT_CLUSTER, Box::new(e)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_its_text_and_asks_for_its_cluster_only() {
        let keys = Keys::from("").expect("a new key");
        let again = Keys::from(&keys.pair.serialize_pem()).expect("the same key");
        assert_eq!(keys.fingerprint, again.fingerprint);
        let request = keys.signing_request("11111111-2222-3333-4444-555555555555").expect("a request");
        let (_, pem) = x509_parser::pem::parse_x509_pem(request.as_bytes()).expect("PEM");
        use x509_parser::prelude::FromDer as _;
        let (_, csr) = x509_parser::prelude::X509CertificationRequest::from_der(&pem.contents).expect("DER");
        let subject = csr.certification_request_info.subject.to_string();
        assert!(subject.contains("CN=clusternet:cluster:11111111-2222-3333-4444-555555555555"), "{subject}");
        assert!(subject.contains("O=clusternet:clusters"), "{subject}");
        assert!(csr.verify_signature().is_ok());
    }

    #[test]
    fn a_parent_is_known_by_its_place_or_its_authority() {
        let pem = |body: &str| format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n").into_bytes();
        let kept = Credential { url: "https://a".into(), ca_pem: pem("AAEC"), ..Credential::default() };
        assert!(kept.is_for("https://a", None) && kept.is_for("https://a", Some(&pem("Aw=="))));
        assert!(kept.is_for("https://b", Some(&[pem("Aw=="), pem("AAEC")].concat())), "it moved");
        assert!(!kept.is_for("https://b", Some(&pem("Aw=="))) && !kept.is_for("https://b", None));
        assert!(!Credential::default().is_for("https://b", Some(b"")));
    }

    #[test]
    fn nothing_joined_without_a_namespace() {
        let mut credential = Credential { token: "t".into(), ..Credential::default() };
        assert!(!credential.has_joined());
        credential.namespace = "n".into();
        assert!(credential.has_joined());
        assert!(credential.renew_at().is_none());
    }
}
