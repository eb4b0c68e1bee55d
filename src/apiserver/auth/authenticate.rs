//! From a request's credentials to an identity: front-proxy headers, client certificate, bearer token, else anonymous.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use http::{header, HeaderMap};
use jiff::Timestamp;
use parking_lot::Mutex;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::WebPkiClientVerifier;
use rustls::RootCertStore;
use sha2::{Digest as _, Sha256};

use super::impersonate::decode;
use super::jwt::{Issuer, TokenError, Verified};
use super::{bootstrap_token, Identity, Objects};

/// A credential was shown and is no good: 401 `Unauthorized`.
#[derive(Debug, thiserror::Error)]
#[error("authenticate the request: {0}")]
pub struct Unauthorized(String);

/// A token that never changes, from a file.
#[derive(Clone)]
pub struct StaticToken {
    /// The secret.
    pub token: String,
    /// Whom it stands for.
    pub identity: Identity,
}

impl std::fmt::Debug for StaticToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StaticToken").field("user", &self.identity.user).finish_non_exhaustive()
    }
}

/// Which credentials a server takes.
#[derive(Default)]
pub struct Options {
    /// Authorities of client certificates.
    pub client_ca: Vec<CertificateDer<'static>>,
    /// Authorities of front proxies, whose `X-Remote-*` headers are believed.
    pub front_proxy_ca: Vec<CertificateDer<'static>>,
    /// Common names of front proxies; empty takes every certificate of that authority.
    pub front_proxy_names: Vec<String>,
    /// Tokens from a file.
    pub static_tokens: Vec<StaticToken>,
    /// Checks ServiceAccount tokens.
    pub service_accounts: Option<Arc<Issuer>>,
    /// Whether a request without a credential goes on as `system:anonymous`.
    pub anonymous: bool,
}

struct Proven {
    identity: Identity,
    /// Seconds since the epoch.
    not_after: i64,
}

/// Tells who sends a request.
pub struct Authenticator {
    objects: Arc<dyn Objects>,
    clients: Option<Arc<dyn ClientCertVerifier>>,
    proxies: Option<Arc<dyn ClientCertVerifier>>,
    proxy_names: Vec<String>,
    static_tokens: Vec<StaticToken>,
    service_accounts: Option<Arc<Issuer>>,
    anonymous: bool,
    /// Client certificates whose chain was checked, by their digest.
    proven: Mutex<BTreeMap<[u8; 32], Proven>>,
}

/// Past this many remembered certificates all are forgotten.
const REMEMBERED: usize = 4096;

impl std::fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authenticator").field("anonymous", &self.anonymous).finish_non_exhaustive()
    }
}

fn verifier(authorities: &[CertificateDer<'static>]) -> Option<Arc<dyn ClientCertVerifier>> {
    if authorities.is_empty() {
        return None;
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(authorities.iter().cloned());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().ok()
}

fn trusted(verifier: Option<&Arc<dyn ClientCertVerifier>>, peer: &[CertificateDer<'_>], now: Timestamp) -> bool {
    let (Some(verifier), Some((leaf, rest))) = (verifier, peer.split_first()) else { return false };
    let now = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(now.as_second()).unwrap_or(0)));
    verifier.verify_client_cert(leaf, rest, now).is_ok()
}

/// The identity in a certificate's subject and when the certificate runs out; nothing without a common name.
fn subject(certificate: &CertificateDer<'_>) -> Option<Proven> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let user = parsed.subject().iter_common_name().next()?.as_str().ok()?.to_owned();
    if user.is_empty() {
        return None;
    }
    let groups = parsed.subject().iter_organization().filter_map(|o| o.as_str().ok()).map(str::to_owned).collect();
    let digest = hex::encode(Sha256::digest(certificate));
    let extra =
        BTreeMap::from([("authentication.kubernetes.io/credential-id".to_owned(), vec![format!("X509SHA256={digest}")])]);
    Some(Proven {
        identity: Identity { user, groups, extra, ..Identity::default() },
        not_after: parsed.validity().not_after.timestamp(),
    })
}

/// The bearer token of a request: from `Authorization`, or from the WebSocket subprotocol browsers must use.
pub fn bearer(headers: &HeaderMap) -> Option<String> {
    if let Some(value) = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()) {
        let (scheme, token) = value.trim().split_once(' ')?;
        let token = token.trim();
        return (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| token.to_owned());
    }
    const PREFIX: &str = "base64url.bearer.authorization.k8s.io.";
    headers
        .get_all(header::SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .find_map(|protocol| {
            let encoded = protocol.trim().strip_prefix(PREFIX)?;
            let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(encoded.trim_end_matches('=')).ok()?;
            String::from_utf8(bytes).ok()
        })
}

impl Authenticator {
    /// An authenticator over the objects that tokens are looked up in.
    pub fn new(options: Options, objects: Arc<dyn Objects>) -> Self {
        Self {
            objects,
            clients: verifier(&options.client_ca),
            proxies: verifier(&options.front_proxy_ca),
            proxy_names: options.front_proxy_names,
            static_tokens: options.static_tokens,
            service_accounts: options.service_accounts,
            anonymous: options.anonymous,
            proven: Mutex::default(),
        }
    }

    /// Who sends a request with these headers over a connection with these client certificates (leaf first).
    ///
    /// # Errors
    /// [`Unauthorized`] when a credential is shown that is no good, or none is shown and anonymous requests are off.
    pub fn authenticate(
        &self,
        headers: &HeaderMap,
        peer: &[CertificateDer<'_>],
        now: Timestamp,
    ) -> Result<Identity, Unauthorized> {
        let mut fault = None;
        if !peer.is_empty() {
            if let Some(identity) = self.front_proxy(headers, peer, now) {
                return Ok(identity);
            }
            match self.certificate(peer, now) {
                Ok(Some(identity)) => return Ok(identity),
                Ok(None) => {}
                Err(error) => fault = Some(error),
            }
        }
        if let Some(token) = bearer(headers) {
            return self.token(&token, &[], now).map(|verified| verified.identity);
        }
        match fault {
            Some(fault) => Err(fault),
            None if self.anonymous => Ok(Identity::anonymous()),
            None => Err(Unauthorized("no credential".into())),
        }
    }

    /// Checks a bearer token for `audiences` (this server when empty); also what TokenReview asks.
    ///
    /// # Errors
    /// [`Unauthorized`].
    pub fn token(&self, token: &str, audiences: &[String], now: Timestamp) -> Result<Verified, Unauthorized> {
        let ours = |mut identity: Identity| {
            identity.mark_authenticated();
            let own = super::jwt::ISSUER.to_owned();
            if audiences.is_empty() || audiences.contains(&own) {
                Ok(Verified { identity, audiences: vec![own] })
            } else {
                Err(Unauthorized("token is for another audience".into()))
            }
        };
        let known = self
            .static_tokens
            .iter()
            .find(|entry| bootstrap_token::same(entry.token.as_bytes(), token.as_bytes()));
        if let Some(entry) = known {
            return ours(entry.identity.clone());
        }
        if let Some(issuer) = &self.service_accounts {
            match issuer.verify(token, audiences, self.objects.as_ref(), now) {
                Ok(verified) => return Ok(verified),
                Err(TokenError::Foreign) => {}
                Err(error) => return Err(Unauthorized(error.to_string())),
            }
        }
        match bootstrap_token::authenticate(token, self.objects.as_ref(), now) {
            Some(identity) => ours(identity),
            None => Err(Unauthorized("invalid bearer token".into())),
        }
    }

    fn certificate(&self, peer: &[CertificateDer<'_>], now: Timestamp) -> Result<Option<Identity>, Unauthorized> {
        let Some(leaf) = peer.first() else { return Ok(None) };
        let digest: [u8; 32] = Sha256::digest(leaf).into();
        if let Some(proven) = self.proven.lock().get(&digest)
            && now.as_second() <= proven.not_after
        {
            return Ok(Some(proven.identity.clone()));
        }
        if !trusted(self.clients.as_ref(), peer, now) {
            return Err(Unauthorized("x509: certificate is not valid for this server".into()));
        }
        let Some(mut proven) = subject(leaf) else { return Ok(None) };
        proven.identity.mark_authenticated();
        let identity = proven.identity.clone();
        let mut remembered = self.proven.lock();
        if remembered.len() >= REMEMBERED {
            remembered.clear();
        }
        remembered.insert(digest, proven);
        Ok(Some(identity))
    }

    /// Believes the `X-Remote-*` headers of a front proxy.
    fn front_proxy(&self, headers: &HeaderMap, peer: &[CertificateDer<'_>], now: Timestamp) -> Option<Identity> {
        let user = headers.get("x-remote-user")?.to_str().ok()?.to_owned();
        if user.is_empty() || !trusted(self.proxies.as_ref(), peer, now) {
            return None;
        }
        let proxy = subject(peer.first()?)?;
        if !self.proxy_names.is_empty() && !self.proxy_names.contains(&proxy.identity.user) {
            return None;
        }
        let all = |name: &str| -> Vec<String> {
            headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).map(str::to_owned).collect()
        };
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, value) in headers {
            if let (Some(key), Ok(value)) = (name.as_str().strip_prefix("x-remote-extra-"), value.to_str()) {
                extra.entry(decode(key)).or_default().push(value.to_owned());
            }
        }
        let uid = all("x-remote-uid").into_iter().next().unwrap_or_default();
        let mut identity = Identity { user, uid, groups: all("x-remote-group"), extra };
        if identity.user == super::ANONYMOUS {
            return Some(identity);
        }
        identity.mark_authenticated();
        Some(identity)
    }
}

/// The `X-Remote-*` headers with which a front proxy passes an identity on.
pub fn front_proxy_headers(identity: &Identity) -> Vec<(String, String)> {
    let mut out = vec![("X-Remote-User".to_owned(), identity.user.clone())];
    if !identity.uid.is_empty() {
        out.push(("X-Remote-Uid".into(), identity.uid.clone()));
    }
    out.extend(identity.groups.iter().map(|group| ("X-Remote-Group".to_owned(), group.clone())));
    for (key, values) in &identity.extra {
        let encoded: String = key
            .bytes()
            .map(|byte| match byte {
                b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' => char::from(byte).to_string(),
                byte => format!("%{byte:02X}"),
            })
            .collect();
        out.extend(values.iter().map(|value| (format!("X-Remote-Extra-{encoded}"), value.clone())));
    }
    out
}

/// A token file: lines of `token,user,uid[,"group1,group2"]`; empty lines and `#` comments are skipped.
///
/// # Errors
/// The number of the first line (from 1) with fewer than three fields or an empty token or user.
pub fn token_file(text: &str) -> Result<Vec<StaticToken>, usize> {
    let mut out = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut fields = line.splitn(4, ',').map(str::trim);
        let (Some(token), Some(user), Some(uid)) = (fields.next(), fields.next(), fields.next()) else {
            return Err(number + 1);
        };
        if token.is_empty() || user.is_empty() {
            return Err(number + 1);
        }
        let groups = fields.next().unwrap_or("").trim_matches('"');
        let groups = groups.split(',').map(str::trim).filter(|group| !group.is_empty()).map(str::to_owned).collect();
        let identity = Identity { user: user.into(), uid: uid.into(), groups, ..Identity::default() };
        out.push(StaticToken { token: token.into(), identity });
    }
    Ok(out)
}
