//! The certificates of the replicas: one authority for all of them, kept in a Secret, whose leaves live in memory only.
//!
//! Without a certificate from outside the hub serves a leaf of that authority and writes the authority into the
//! APIServices that name its Service, so that the parent verifies it. The replicas know each other by the same authority.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use cluster::{Target, Trouble, trouble};
use engine::{Cache, CancellationToken, Tasks};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::{SignedDuration, Timestamp, tz::TimeZone};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use tokio::sync::Notify;

use super::listen::Certificates;
use super::{GROUPS, Options};

/// The Secret with the authority.
pub const SECRET: &str = "clusternet-hub-ca";
/// Common name of the leaves: by it the replicas know each other.
pub(crate) const LEAF_NAME: &str = "anabranch-hub";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
/// Life of the authority, and of a serving leaf, which is made anew at two thirds of it.
const AUTHORITY_LIFE: SignedDuration = SignedDuration::from_hours(10 * 365 * 24);
const LEAF_LIFE: SignedDuration = SignedDuration::from_hours(365 * 24);
/// An authority with less than this left is replaced at start.
const REPLACE_BEFORE: SignedDuration = SignedDuration::from_hours(90 * 24);
/// Between two looks at certificate files.
const LOOK: Duration = Duration::from_secs(60);

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Keys or certificates cannot be made or read.
    #[error("make or read a certificate")]
    Make(#[from] rcgen::Error),
    /// A file cannot be read.
    #[error("read {path}")]
    File {
        /// Which one.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file or the Secret does not hold what it should.
    #[error("read {0}: no certificate and key in it")]
    Malformed(String),
    /// Told to stop before the parent answered.
    #[error("wait for the parent: told to stop")]
    Stopped,
}

/// The authority of the replicas.
pub(crate) struct Authority {
    /// Its certificate, PEM.
    pub(crate) certificate: String,
    key: String,
}

/// A certificate with its key, both PEM. Never shown.
pub(crate) struct Leaf {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

fn day(at: Timestamp) -> (i32, u8, u8) {
    let date = at.to_zoned(TimeZone::UTC).date();
    (i32::from(date.year()), u8::try_from(date.month()).unwrap_or(1), u8::try_from(date.day()).unwrap_or(1))
}

/// Validity in whole days, which is all that rcgen's own type needs here: from yesterday, for clocks that run behind.
fn valid_for(params: &mut CertificateParams, life: SignedDuration) {
    let now = Timestamp::now();
    let (year, month, date) = day(now - SignedDuration::from_hours(24));
    params.not_before = rcgen::date_time_ymd(year, month, date);
    let (year, month, date) = day(now + life);
    params.not_after = rcgen::date_time_ymd(year, month, date);
}

impl Authority {
    fn generate() -> Result<Self, Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::<String>::new())?;
        params.distinguished_name.push(DnType::CommonName, "anabranch-hub-ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        valid_for(&mut params, AUTHORITY_LIFE);
        Ok(Self { certificate: params.self_signed(&key)?.pem(), key: key.serialize_pem() })
    }

    /// What a Secret holds, unless it runs out.
    fn of(secret: &Secret) -> Option<Self> {
        let data = secret.data.as_ref()?;
        let text = |key: &str| data.get(key).and_then(|bytes| String::from_utf8(bytes.0.clone()).ok());
        let found = Self { certificate: text(CERTIFICATE)?, key: text(KEY)? };
        let key = KeyPair::from_pem(&found.key).ok()?;
        Issuer::from_ca_cert_pem(&found.certificate, &key).ok()?;
        let (_, pem) = x509_parser::pem::parse_x509_pem(found.certificate.as_bytes()).ok()?;
        let until = pem.parse_x509().ok()?.validity().not_after.timestamp();
        (until > (Timestamp::now() + REPLACE_BEFORE).as_second()).then_some(found)
    }

    /// A new leaf for this replica: it serves, and it proves itself to other replicas.
    pub(crate) fn leaf(&self, options: &Options) -> Result<Leaf, Error> {
        let (service, namespace) = (&options.service, &options.namespace);
        let mut names = vec![
            service.clone(),
            format!("{service}.{namespace}"),
            format!("{service}.{namespace}.svc"),
            format!("{service}.{namespace}.svc.cluster.local"),
            "localhost".to_owned(),
            "127.0.0.1".to_owned(),
            "::1".to_owned(),
        ];
        names.extend(options.names.iter().cloned());
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, LEAF_NAME);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        valid_for(&mut params, LEAF_LIFE);
        let issuer = Issuer::from_ca_cert_pem(&self.certificate, KeyPair::from_pem(&self.key)?)?;
        let key = KeyPair::generate()?;
        Ok(Leaf { certificate: params.signed_by(&key, &issuer)?.pem(), key: key.serialize_pem() })
    }
}

/// The authority: the one in the Secret, or a new one. Of several replicas that start at once, one wins.
pub(crate) async fn authority(client: &Client, options: &Options, stop: &CancellationToken) -> Result<Authority, Error> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &options.namespace);
    let mut wait = Duration::from_millis(200);
    loop {
        match agreed(&secrets).await? {
            Ok(Some(authority)) => return Ok(authority),
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(secret = SECRET, error = cluster::error::message(&error), "cannot read or make the hub's authority yet");
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    () = stop.cancelled() => return Err(Error::Stopped),
                }
                wait = (wait * 2).min(Duration::from_secs(15));
            }
        }
    }
}

/// One try; none when another replica was quicker.
async fn agreed(secrets: &Api<Secret>) -> Result<Result<Option<Authority>, kube::Error>, Error> {
    let found = match secrets.get_opt(SECRET).await {
        Ok(found) => found,
        Err(error) => return Ok(Err(error)),
    };
    if let Some(authority) = found.as_ref().and_then(Authority::of) {
        return Ok(Ok(Some(authority)));
    }
    let made = Authority::generate()?;
    let data = [(CERTIFICATE, &made.certificate), (KEY, &made.key)];
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(SECRET.to_owned()),
            // A replacement must be of what was read.
            resource_version: found.as_ref().and_then(|found| found.metadata.resource_version.clone()),
            labels: found.as_ref().and_then(|found| found.metadata.labels.clone()),
            ..ObjectMeta::default()
        },
        type_: Some("kubernetes.io/tls".to_owned()),
        data: Some(data.into_iter().map(|(key, text)| (key.to_owned(), ByteString(text.clone().into_bytes()))).collect()),
        ..Secret::default()
    };
    let written = match found {
        None => secrets.create(&PostParams::default(), &secret).await,
        Some(_) => secrets.replace(SECRET, &PostParams::default(), &secret).await,
    };
    Ok(match written {
        Ok(_) => Ok(Some(made)),
        Err(error) if matches!(trouble(&error), Trouble::AlreadyExists | Trouble::Conflict) => Ok(None),
        Err(error) => Err(error),
    })
}

/// The certificates of the API, kept fresh; the APIServices learn whom to trust.
pub(crate) async fn serving(client: &Client, options: &Options, authority: &Authority, tasks: &Tasks) -> Result<Certificates, super::Error> {
    let (config, trusted) = match &options.files {
        Some(files) => {
            let ca = match &files.ca {
                Some(path) => Some(read(path).map_err(super::Error::Certificate)?),
                None => None,
            };
            (from_files(options)?, ca)
        }
        None => (from_leaf(&authority.leaf(options).map_err(super::Error::Certificate)?)?, Some(authority.certificate.clone())),
    };
    let certificates = Certificates::fixed(config);
    if let Some(trusted) = trusted {
        publish(client, options, trusted, tasks);
    }
    let (shared, options) = (certificates.clone(), options.clone());
    let authority = Authority { certificate: authority.certificate.clone(), key: authority.key.clone() };
    tasks.spawn_until_stopped("serving certificate", async move {
        let began = Timestamp::now();
        let mut seen = changed_at(&options);
        let mut made = began;
        loop {
            tokio::time::sleep(LOOK).await;
            let fresh = if options.files.is_some() {
                let now = changed_at(&options);
                if now == seen {
                    continue;
                }
                seen = now;
                from_files(&options)
            } else if Timestamp::now().duration_since(made) > LEAF_LIFE * 2 / 3 {
                made = Timestamp::now();
                authority.leaf(&options).map_err(super::Error::Certificate).and_then(|leaf| from_leaf(&leaf))
            } else {
                continue;
            };
            match fresh {
                Ok(config) => {
                    shared.replace(config);
                    tracing::info!("the serving certificate was renewed");
                }
                // The old one stays: a half-written file is complete at the next look.
                Err(error) => tracing::warn!(error = cluster::error::chain(&error), "cannot renew the serving certificate"),
            }
        }
    });
    Ok(certificates)
}

fn changed_at(options: &Options) -> Option<(SystemTime, SystemTime)> {
    let files = options.files.as_ref()?;
    let time = |path: &Path| std::fs::metadata(path).and_then(|meta| meta.modified()).ok();
    Some((time(&files.certificate)?, time(&files.key)?))
}

fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|source| Error::File { path: path.display().to_string(), source })
}

fn from_files(options: &Options) -> Result<ServerConfig, super::Error> {
    let Some(files) = &options.files else { return Err(super::Error::Certificate(Error::Malformed("no files".to_owned()))) };
    let leaf = Leaf {
        certificate: read(&files.certificate).map_err(super::Error::Certificate)?,
        key: read(&files.key).map_err(super::Error::Certificate)?,
    };
    from_leaf(&leaf)
}

/// TLS that asks for client certificates and leaves the verdict on them to the authenticator, as Kubernetes does.
fn from_leaf(leaf: &Leaf) -> Result<ServerConfig, super::Error> {
    let (chain, key) = parsed(leaf).map_err(super::Error::Certificate)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Arc::new(apiserver::auth::verifier::AskOnly::new(provider.clone(), Vec::new()));
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(super::Error::Tls)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(super::Error::Tls)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// The leaf as rustls takes it.
pub(crate) fn parsed(leaf: &Leaf) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), Error> {
    let malformed = || Error::Malformed("the serving certificate".to_owned());
    let chain: Vec<_> = CertificateDer::pem_slice_iter(leaf.certificate.as_bytes()).flatten().collect();
    if chain.is_empty() {
        return Err(malformed());
    }
    Ok((chain, PrivateKeyDer::from_pem_slice(leaf.key.as_bytes()).map_err(|_| malformed())?))
}

/// Keeps the CA in the APIServices that name our Service; those of another server are none of our business.
fn publish(client: &Client, options: &Options, ca: String, tasks: &Tasks) {
    for (group, version) in GROUPS {
        let name = format!("{version}.{group}");
        let known: Cache<APIService> = Cache::new();
        let changed = Arc::new(Notify::new());
        let wake = changed.clone();
        known.on_change(move |_| wake.notify_one());
        known.follow("apiservices", client.clone(), Target::of::<APIService>("").fields(format!("metadata.name={name}")), tasks);
        let (client, options, ca) = (client.clone(), options.clone(), ca.clone());
        tasks.spawn_until_stopped("apiservice", async move {
            let api: Api<APIService> = Api::all(client);
            loop {
                changed.notified().await;
                let Some(spec) = known.get("", &name).and_then(|service| service.spec.clone()) else { continue };
                let ours = spec.service.as_ref().is_some_and(|service| service.name.as_deref() == Some(&options.service) && service.namespace.as_deref() == Some(&options.namespace));
                let trusted = spec.ca_bundle.as_ref().is_some_and(|bundle| bundle.0 == ca.as_bytes()) && spec.insecure_skip_tls_verify != Some(true);
                if !ours || trusted {
                    continue;
                }
                let patch = json!({"spec": {"caBundle": ByteString(ca.clone().into_bytes()), "insecureSkipTLSVerify": null}});
                match api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await {
                    Ok(_) => tracing::info!(apiservice = name, "the parent trusts the hub's certificate"),
                    Err(error) => {
                        tracing::warn!(apiservice = name, error = cluster::error::message(&error), "cannot write the CA into the APIService");
                        tokio::time::sleep(Duration::from_secs(5)).await;
                        changed.notify_one();
                    }
                }
            }
        });
    }
}
