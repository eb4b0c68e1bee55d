//! Keys and certificates of the embedded parent: authorities, serving and client certificates, kept in a folder and renewed.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use jiff::{SignedDuration, Timestamp};
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{EcdsaKeyPair, KeyPair as _, ECDSA_P256_SHA256_ASN1_SIGNING};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use sha2::{Digest as _, Sha256};

use super::der::{self, AltName};
use super::jwt::Issuer;

/// Life of an authority: ten years, as kubeadm makes them.
const AUTHORITY_LIFE: SignedDuration = SignedDuration::from_hours(10 * 365 * 24);
/// Life of a leaf: one year.
const LEAF_LIFE: SignedDuration = SignedDuration::from_hours(365 * 24);
/// A leaf with less than this left is made anew at start.
const RENEW_BEFORE: SignedDuration = SignedDuration::from_hours(30 * 24);
/// Certificates start a little in the past, for clocks that run behind.
const BACKDATE: SignedDuration = SignedDuration::from_mins(5);

const SERVER_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01];
const CLIENT_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x02];
/// digitalSignature and keyEncipherment.
const LEAF_USAGE: u16 = 1 | 1 << 2;
/// digitalSignature, keyEncipherment, keyCertSign.
const AUTHORITY_USAGE: u16 = 1 | 1 << 2 | 1 << 5;

/// Why keys or certificates could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file could not be read or written.
    #[error("access {path}")]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file does not hold what it should.
    #[error("read {what} in {path}")]
    Malformed {
        /// Which file.
        path: PathBuf,
        /// `certificate` or `private key`.
        what: &'static str,
    },
    /// The random source or the key algorithm refused.
    #[error("make a key")]
    Key,
    /// rustls refused the serving certificate.
    #[error("configure TLS")]
    Tls(#[source] rustls::Error),
}

/// A P-256 private key; never shown.
pub struct Key {
    pair: EcdsaKeyPair,
    pkcs8: Vec<u8>,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

impl Key {
    /// A fresh key.
    ///
    /// # Errors
    /// [`PkiError::Key`] when the random source fails.
    pub fn generate() -> Result<Self, PkiError> {
        let random = SystemRandom::new();
        let document =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).map_err(|_| PkiError::Key)?;
        Self::from_pkcs8(document.as_ref()).ok_or(PkiError::Key)
    }

    fn from_pkcs8(pkcs8: &[u8]) -> Option<Self> {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8, &SystemRandom::new()).ok()?;
        Some(Self { pair, pkcs8: pkcs8.to_vec() })
    }

    /// A key from its PEM text (`PRIVATE KEY`, PKCS #8, P-256).
    pub fn from_pem(pem: &str) -> Option<Self> {
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes()).ok()?;
        Self::from_pkcs8(der.secret_pkcs8_der())
    }

    /// The key as PEM text; the caller keeps it secret.
    pub fn to_pem(&self) -> String {
        der::pem("PRIVATE KEY", &self.pkcs8)
    }

    pub(crate) fn pkcs8(&self) -> &[u8] {
        &self.pkcs8
    }

    pub(crate) fn public_key(&self) -> Vec<u8> {
        der::ec_public_key(self.pair.public_key().as_ref())
    }

    pub(crate) fn point(&self) -> &[u8] {
        self.pair.public_key().as_ref()
    }

    pub(crate) fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        self.pair.sign(&SystemRandom::new(), message).ok().map(|signature| signature.as_ref().to_vec())
    }

    /// A PEM certificate request for this key.
    pub fn request(&self, common_name: &str, organizations: &[String], names: &[AltName]) -> Option<String> {
        let subject = der::name(common_name, organizations);
        let request = der::request(subject, self.public_key(), names, |bytes| self.sign(bytes))?;
        Some(der::pem("CERTIFICATE REQUEST", &request))
    }
}

/// 16 random bytes whose first is never zero and never negative.
pub(crate) fn serial() -> Result<[u8; 16], PkiError> {
    let mut bytes = [0u8; 16];
    SystemRandom::new().fill(&mut bytes).map_err(|_| PkiError::Key)?;
    bytes[0] = bytes[0] & 0x7f | 0x40;
    Ok(bytes)
}

pub(crate) fn key_id(public_key: &[u8]) -> Vec<u8> {
    Sha256::digest(public_key)[..20].to_vec()
}

/// A certificate authority: its certificate and the key that signs.
#[derive(Debug)]
pub struct Authority {
    certificate: Vec<u8>,
    subject: Vec<u8>,
    not_after: Timestamp,
    key: Key,
}

/// What a leaf certificate is for.
pub(crate) struct Leaf {
    pub(crate) subject: Vec<u8>,
    pub(crate) public_key: Vec<u8>,
    pub(crate) key_usage: u16,
    pub(crate) purposes: Vec<Vec<u8>>,
    pub(crate) alt_names: Option<Vec<u8>>,
    pub(crate) not_before: Timestamp,
    pub(crate) not_after: Timestamp,
}

impl Authority {
    /// A new self-signed authority.
    ///
    /// # Errors
    /// [`PkiError::Key`].
    pub fn generate(common_name: &str, now: Timestamp) -> Result<Self, PkiError> {
        let key = Key::generate()?;
        let subject = der::name(common_name, &[]);
        let not_after = now + AUTHORITY_LIFE;
        let id = key_id(&key.public_key());
        let certificate = der::Certificate {
            serial: serial()?,
            issuer: subject.clone(),
            subject: subject.clone(),
            public_key: key.public_key(),
            not_before: now - BACKDATE,
            not_after,
            key_usage: AUTHORITY_USAGE,
            purposes: Vec::new(),
            authority: true,
            subject_key_id: Some(id),
            authority_key_id: None,
            alt_names: None,
        };
        let to_be_signed = certificate.to_be_signed();
        let signature = key.sign(&to_be_signed).ok_or(PkiError::Key)?;
        Ok(Self { certificate: der::Certificate::assemble(to_be_signed, &signature), subject, not_after, key })
    }

    fn load(certificate: Vec<u8>, key: Key) -> Option<Self> {
        let (_, parsed) = x509_parser::parse_x509_certificate(&certificate).ok()?;
        let subject = parsed.tbs_certificate.subject.as_raw().to_vec();
        let not_after = Timestamp::from_second(parsed.validity().not_after.timestamp()).ok()?;
        Some(Self { subject, not_after, key, certificate })
    }

    /// The certificate in DER.
    pub fn certificate(&self) -> CertificateDer<'static> {
        CertificateDer::from(self.certificate.clone())
    }

    /// The certificate in PEM.
    pub fn pem(&self) -> String {
        der::pem("CERTIFICATE", &self.certificate)
    }

    /// Signs a leaf; it never outlives the authority. DER.
    pub(crate) fn sign(&self, leaf: Leaf) -> Result<Vec<u8>, PkiError> {
        let certificate = der::Certificate {
            serial: serial()?,
            issuer: self.subject.clone(),
            subject: leaf.subject,
            public_key: leaf.public_key,
            not_before: leaf.not_before,
            not_after: leaf.not_after.min(self.not_after),
            key_usage: leaf.key_usage,
            purposes: leaf.purposes,
            authority: false,
            subject_key_id: None,
            authority_key_id: Some(key_id(&self.key.public_key())),
            alt_names: leaf.alt_names,
        };
        let to_be_signed = certificate.to_be_signed();
        let signature = self.key.sign(&to_be_signed).ok_or(PkiError::Key)?;
        Ok(der::Certificate::assemble(to_be_signed, &signature))
    }

    /// A client certificate for a user and groups, with a fresh key. PEM of certificate and key.
    ///
    /// # Errors
    /// [`PkiError::Key`].
    pub fn client(&self, user: &str, groups: &[String], now: Timestamp) -> Result<(String, Key), PkiError> {
        let key = Key::generate()?;
        let certificate = self.sign(Leaf {
            subject: der::name(user, groups),
            public_key: key.public_key(),
            key_usage: LEAF_USAGE,
            purposes: vec![CLIENT_AUTH.to_vec()],
            alt_names: None,
            not_before: now - BACKDATE,
            not_after: now + LEAF_LIFE,
        })?;
        Ok((der::pem("CERTIFICATE", &certificate), key))
    }

    fn serving(&self, names: &[AltName], now: Timestamp) -> Result<(Vec<u8>, Key), PkiError> {
        let key = Key::generate()?;
        let certificate = self.sign(Leaf {
            subject: der::name("kube-apiserver", &[]),
            public_key: key.public_key(),
            key_usage: LEAF_USAGE,
            purposes: vec![SERVER_AUTH.to_vec()],
            alt_names: Some(der::alt_names(names)),
            not_before: now - BACKDATE,
            not_after: now + LEAF_LIFE,
        })?;
        Ok((certificate, key))
    }
}

/// Everything the embedded parent proves itself and others with.
#[derive(Debug)]
pub struct Pki {
    /// Signs serving and client certificates.
    pub ca: Authority,
    /// Signs the certificate with which our server calls aggregated servers.
    pub front_proxy_ca: Authority,
    serving: (Vec<u8>, Key),
    /// Certificate (PEM) and key with which the server calls aggregated servers.
    pub front_proxy_client: (String, Key),
    /// Certificate (PEM) and key of a member of `system:masters`.
    pub admin: (String, Key),
    service_accounts: Arc<Issuer>,
}

/// The names under which the server is reached besides the usual ones inside a cluster.
pub fn default_names(extra: &[AltName]) -> Vec<AltName> {
    let mut names: Vec<AltName> =
        ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"]
            .into_iter()
            .map(|name| AltName::Dns(name.into()))
            .collect();
    names.push(AltName::Ip(IpAddr::from([127, 0, 0, 1])));
    names.push(AltName::Ip(IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])));
    // The first address of the service range.
    names.push(AltName::Ip(IpAddr::from([10, 96, 0, 1])));
    for name in extra {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

impl Pki {
    /// Fresh keys that live only in memory.
    ///
    /// # Errors
    /// [`PkiError::Key`].
    pub fn ephemeral(names: &[AltName], now: Timestamp) -> Result<Self, PkiError> {
        let ca = Authority::generate("kubernetes", now)?;
        let front_proxy_ca = Authority::generate("front-proxy-ca", now)?;
        Ok(Self {
            serving: ca.serving(&default_names(names), now)?,
            front_proxy_client: front_proxy_ca.client("front-proxy-client", &[], now)?,
            admin: ca.client("kubernetes-admin", &["system:masters".into()], now)?,
            service_accounts: Arc::new(Issuer::new(Key::generate()?)),
            ca,
            front_proxy_ca,
        })
    }

    /// Reads the keys of a folder, making what is absent and renewing what runs out within 30 days or lacks a name.
    ///
    /// Files are named as kubeadm names them; the folder gets mode 0700, every key 0600.
    ///
    /// # Errors
    /// [`PkiError`]: an unreadable file is an error, never a reason to make new keys over it.
    pub fn open(folder: &Path, names: &[AltName], now: Timestamp) -> Result<Self, PkiError> {
        make_folder(folder)?;
        let files = Files { folder };
        let ca = files.authority("ca", "kubernetes", now)?;
        let front_proxy_ca = files.authority("front-proxy-ca", "front-proxy-ca", now)?;
        let names = default_names(names);
        let serving = files.leaf("apiserver", &ca, &names, now, |ca| {
            ca.serving(&names, now).map(|(der, key)| (der::pem("CERTIFICATE", &der), key))
        })?;
        let front_proxy_client = files.leaf("front-proxy-client", &front_proxy_ca, &[], now, |ca| {
            ca.client("front-proxy-client", &[], now)
        })?;
        let admin =
            files.leaf("admin", &ca, &[], now, |ca| ca.client("kubernetes-admin", &["system:masters".into()], now))?;
        let key = match files.key("sa.key")? {
            Some(key) => key,
            None => {
                let key = Key::generate()?;
                files.write_secret("sa.key", &key.to_pem())?;
                key
            }
        };
        let malformed = || PkiError::Malformed { path: folder.join("apiserver.crt"), what: "certificate" };
        let der = CertificateDer::from_pem_slice(serving.0.as_bytes()).map_err(|_| malformed())?;
        Ok(Self {
            serving: (der.to_vec(), serving.1),
            front_proxy_client,
            admin,
            service_accounts: Arc::new(Issuer::new(key)),
            ca,
            front_proxy_ca,
        })
    }

    /// The signer of ServiceAccount tokens.
    pub fn service_account_issuer(&self) -> Arc<Issuer> {
        self.service_accounts.clone()
    }

    /// TLS settings that ask for client certificates and leave the verdict on them to the authenticator.
    ///
    /// # Errors
    /// [`PkiError::Tls`].
    pub fn server_config(&self) -> Result<rustls::ServerConfig, PkiError> {
        let chain = vec![CertificateDer::from(self.serving.0.clone()), self.ca.certificate()];
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.serving.1.pkcs8().to_vec()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let hints = vec![self.ca.subject.clone(), self.front_proxy_ca.subject.clone()];
        let verifier = Arc::new(super::verifier::AskOnly::new(provider.clone(), hints));
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(PkiError::Tls)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(PkiError::Tls)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }

    /// A kubeconfig for the administrator.
    pub fn admin_kubeconfig(&self, server: &str, cluster: &str) -> String {
        kubeconfig(server, cluster, "kubernetes-admin", &self.ca.pem(), &self.admin.0, &self.admin.1)
    }
}

/// A kubeconfig with a client certificate.
pub fn kubeconfig(server: &str, cluster: &str, user: &str, ca: &str, certificate: &str, key: &Key) -> String {
    let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- cluster:\n    certificate-authority-data: {}\n    server: {server}\n  name: {cluster}\n\
         contexts:\n- context:\n    cluster: {cluster}\n    user: {user}\n  name: {user}@{cluster}\n\
         current-context: {user}@{cluster}\nusers:\n- name: {user}\n  user:\n    client-certificate-data: {}\n    client-key-data: {}\n",
        encode(ca),
        encode(certificate),
        encode(&key.to_pem()),
    )
}

fn make_folder(folder: &Path) -> Result<(), PkiError> {
    let fault = |source| PkiError::File { path: folder.to_owned(), source };
    std::fs::create_dir_all(folder).map_err(fault)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700)).map_err(fault)?;
    }
    Ok(())
}

struct Files<'a> {
    folder: &'a Path,
}

impl Files<'_> {
    fn read(&self, name: &str) -> Result<Option<String>, PkiError> {
        let path = self.folder.join(name);
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(PkiError::File { path, source }),
        }
    }

    /// Writes beside the name and renames, so that a crash leaves the old or the new file.
    fn write(&self, name: &str, text: &str, mode: u32) -> Result<(), PkiError> {
        use std::io::Write as _;
        let path = self.folder.join(name);
        let aside = self.folder.join(format!(".{name}.new"));
        let fault = |source| PkiError::File { path: path.clone(), source };
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt as _;
            options.mode(mode);
        }
        #[cfg(not(unix))]
        let _ = mode;
        let mut file = options.open(&aside).map_err(fault)?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(fault)?;
        std::fs::rename(&aside, &path).map_err(fault)
    }

    fn write_secret(&self, name: &str, text: &str) -> Result<(), PkiError> {
        self.write(name, text, 0o600)
    }

    fn key(&self, name: &str) -> Result<Option<Key>, PkiError> {
        match self.read(name)? {
            None => Ok(None),
            Some(text) => {
                let malformed = PkiError::Malformed { path: self.folder.join(name), what: "private key" };
                Key::from_pem(&text).map(Some).ok_or(malformed)
            }
        }
    }

    fn authority(&self, stem: &str, common_name: &str, now: Timestamp) -> Result<Authority, PkiError> {
        let (certificate, key) = (format!("{stem}.crt"), format!("{stem}.key"));
        if let (Some(text), Some(key)) = (self.read(&certificate)?, self.key(&key)?) {
            let malformed = || PkiError::Malformed { path: self.folder.join(&certificate), what: "certificate" };
            let der = CertificateDer::from_pem_slice(text.as_bytes()).map_err(|_| malformed())?;
            return Authority::load(der.to_vec(), key).ok_or_else(malformed);
        }
        let authority = Authority::generate(common_name, now)?;
        self.write_secret(&key, &authority.key.to_pem())?;
        self.write(&certificate, &authority.pem(), 0o644)?;
        Ok(authority)
    }

    fn leaf(
        &self,
        stem: &str,
        authority: &Authority,
        names: &[AltName],
        now: Timestamp,
        make: impl FnOnce(&Authority) -> Result<(String, Key), PkiError>,
    ) -> Result<(String, Key), PkiError> {
        let (certificate, key) = (format!("{stem}.crt"), format!("{stem}.key"));
        if let (Some(text), Some(pair)) = (self.read(&certificate)?, self.key(&key)?)
            && still_good(&text, &pair, authority, names, now)
        {
            return Ok((text, pair));
        }
        let made = make(authority)?;
        self.write_secret(&key, &made.1.to_pem())?;
        self.write(&certificate, &made.0, 0o644)?;
        Ok(made)
    }
}

fn still_good(text: &str, key: &Key, authority: &Authority, names: &[AltName], now: Timestamp) -> bool {
    let Ok(der) = CertificateDer::from_pem_slice(text.as_bytes()) else { return false };
    let Ok((_, parsed)) = x509_parser::parse_x509_certificate(&der) else { return false };
    let fresh = parsed.validity().not_after.timestamp() > (now + RENEW_BEFORE).as_second();
    let ours = parsed.tbs_certificate.issuer.as_raw() == authority.subject
        && parsed.tbs_certificate.subject_pki.raw == key.public_key();
    let signed = x509_parser::parse_x509_certificate(&authority.certificate)
        .is_ok_and(|(_, ca)| parsed.verify_signature(Some(ca.public_key())).is_ok());
    let named = names.is_empty()
        || parsed
            .subject_alternative_name()
            .ok()
            .flatten()
            .is_some_and(|found| names.iter().all(|name| found.value.general_names.iter().any(|has| same_name(has, name))));
    fresh && ours && signed && named
}

fn same_name(found: &x509_parser::extensions::GeneralName<'_>, wanted: &AltName) -> bool {
    use x509_parser::extensions::GeneralName;
    match (found, wanted) {
        (GeneralName::DNSName(found), AltName::Dns(wanted)) => found == wanted,
        (GeneralName::IPAddress(found), AltName::Ip(IpAddr::V4(wanted))) => *found == wanted.octets(),
        (GeneralName::IPAddress(found), AltName::Ip(IpAddr::V6(wanted))) => *found == wanted.octets(),
        _ => false,
    }
}
