//! HTTP with TLS by rustls: bounded bodies, timeouts, redirects that drop credentials when the host changes.

use crate::{Credentials, Error, Options, Secret};
use base64::Engine as _;
use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, AUTHORIZATION, HOST, LOCATION, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;

/// TLS of a repository.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// Certificates trusted besides the system's, PEM.
    pub ca: Option<String>,
    /// Client certificate, PEM.
    pub certificate: Option<String>,
    /// Its key, PEM.
    pub key: Option<Secret>,
    /// Accept any certificate: only where the user asked for it.
    pub insecure: bool,
}

/// Accepts every certificate; signatures are still checked.
#[derive(Debug)]
struct Anything(Arc<rustls::crypto::CryptoProvider>);

impl ServerCertVerifier for Anything {
    fn verify_server_cert(&self, _: &CertificateDer<'_>, _: &[CertificateDer<'_>], _: &ServerName<'_>, _: &[u8], _: UnixTime) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(&self, m: &[u8], c: &CertificateDer<'_>, d: &DigitallySignedStruct) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(m, c, d, &self.0.signature_verification_algorithms)
    }
    fn verify_tls13_signature(&self, m: &[u8], c: &CertificateDer<'_>, d: &DigitallySignedStruct) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(m, c, d, &self.0.signature_verification_algorithms)
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Most redirects followed.
const MAX_REDIRECTS: usize = 10;

#[derive(Debug)]
pub(crate) struct Http {
    tls: Arc<ClientConfig>,
    timeout: Duration,
}

/// What goes with a request.
#[derive(Clone, Default)]
pub(crate) struct Ask {
    /// `Accept`.
    pub accept: Option<&'static str>,
    /// `Authorization`, for the first host only.
    pub authorization: Option<Secret>,
    /// Further headers.
    pub headers: Vec<(&'static str, String)>,
}

/// `Basic` authorization.
pub(crate) fn basic(c: &Credentials) -> Secret {
    Secret::new(format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(format!("{}:{}", c.username, c.password.expose()))))
}

/// An address as errors show it: no user, no query.
pub(crate) fn clean(u: &Uri) -> String {
    format!("{}://{}{}", u.scheme_str().unwrap_or("http"), u.host().map_or(String::new(), |h| u.port().map_or(h.to_string(), |p| format!("{h}:{p}"))), u.path())
}

fn origin(u: &Uri) -> (String, String, u16) {
    let scheme = u.scheme_str().unwrap_or("http").to_string();
    let port = u.port_u16().unwrap_or(if scheme == "https" { 443 } else { 80 });
    (scheme, u.host().unwrap_or("").to_ascii_lowercase(), port)
}

/// Resolves a location against the address it came from.
pub(crate) fn join(base: &Uri, location: &str) -> Result<Uri, Error> {
    let bad = || Error::Address { url: clean(base), problem: "the address it refers to is not valid" };
    if location.starts_with("http://") || location.starts_with("https://") {
        return location.parse().map_err(|_| bad());
    }
    let (scheme, host, port) = origin(base);
    let path = if location.starts_with('/') {
        location.to_string()
    } else {
        let dir = base.path().rsplit_once('/').map_or("", |(d, _)| d);
        format!("{dir}/{location}")
    };
    format!("{scheme}://{host}:{port}{path}").parse().map_err(|_| bad())
}

impl Http {
    pub(crate) fn new(o: &Options) -> Result<Self, Error> {
        let fault = |e: &dyn std::fmt::Display| Error::Tls(e.to_string());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().map_err(|e| fault(&e))?;
        let builder = if o.tls.insecure {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Anything(provider)))
        } else {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if let Some(ca) = &o.tls.ca {
                for c in CertificateDer::pem_slice_iter(ca.as_bytes()) {
                    roots.add(c.map_err(|e| fault(&e))?).map_err(|e| fault(&e))?;
                }
            }
            builder.with_root_certificates(roots)
        };
        let tls = match (&o.tls.certificate, &o.tls.key) {
            (Some(c), Some(k)) => {
                let chain = CertificateDer::pem_slice_iter(c.as_bytes()).collect::<Result<Vec<_>, _>>().map_err(|e| fault(&e))?;
                let key = PrivateKeyDer::from_pem_slice(k.expose().as_bytes()).map_err(|e| fault(&e))?;
                builder.with_client_auth_cert(chain, key).map_err(|e| fault(&e))?
            }
            _ => builder.with_no_client_auth(),
        };
        Ok(Self { tls: Arc::new(tls), timeout: o.timeout })
    }

    async fn once(&self, uri: &Uri, ask: &Ask, authorization: Option<&Secret>) -> Result<Response<Incoming>, Error> {
        let (scheme, host, port) = origin(uri);
        let place = format!("{host}:{port}");
        let fail = |e: &dyn std::fmt::Display| Error::Connect { host: place.clone(), problem: e.to_string() };
        let name = host.trim_matches(['[', ']']);
        let tcp = TcpStream::connect((name, port)).await.map_err(|e| fail(&e))?;
        let _ = tcp.set_nodelay(true);
        let mut req = Request::builder().uri(uri.path_and_query().map_or("/", |p| p.as_str())).header(HOST, uri.authority().map_or(host.as_str(), |a| a.as_str().rsplit('@').next().unwrap_or(""))).header(USER_AGENT, concat!("anabranch/", env!("CARGO_PKG_VERSION")));
        if let Some(a) = ask.accept {
            req = req.header(ACCEPT, a);
        }
        if let Some(a) = authorization {
            let mut v = HeaderValue::from_str(a.expose()).map_err(|_| Error::Address { url: clean(uri), problem: "its credentials hold characters that cannot be sent" })?;
            v.set_sensitive(true);
            req = req.header(AUTHORIZATION, v);
        }
        for (k, v) in &ask.headers {
            req = req.header(*k, v);
        }
        let req = req.body(Empty::<Bytes>::new()).map_err(|e| fail(&e))?;
        if scheme == "https" {
            let server = ServerName::try_from(name.to_string()).map_err(|e| fail(&e))?;
            let stream = tokio_rustls::TlsConnector::from(self.tls.clone()).connect(server, tcp).await.map_err(|e| fail(&e))?;
            speak(TokioIo::new(stream), req).await.map_err(|e| fail(&e))
        } else {
            speak(TokioIo::new(tcp), req).await.map_err(|e| fail(&e))
        }
    }

    /// A GET that follows redirects; the caller judges the status.
    pub(crate) async fn get(&self, uri: &Uri, ask: &Ask) -> Result<(Uri, Response<Incoming>), Error> {
        let first = origin(uri);
        let mut at = uri.clone();
        for _ in 0..=MAX_REDIRECTS {
            if !matches!(at.scheme_str(), Some("http" | "https")) || at.host().is_none() {
                return Err(Error::Address { url: clean(&at), problem: "only http and https are spoken" });
            }
            // Credentials belong to the host they were given for.
            let authorization = ask.authorization.as_ref().filter(|_| origin(&at) == first);
            let r = tokio::time::timeout(self.timeout, self.once(&at, ask, authorization)).await.map_err(|_| Error::Timeout { host: at.host().unwrap_or("").into() })??;
            let moved = matches!(r.status(), StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND | StatusCode::SEE_OTHER | StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
            match r.headers().get(LOCATION).and_then(|l| l.to_str().ok()) {
                Some(l) if moved => {
                    let next = join(&at, l)?;
                    if origin(&at).0 == "https" && origin(&next).0 == "http" {
                        return Err(Error::Address { url: clean(&next), problem: "a redirect from https to http is not followed" });
                    }
                    at = next;
                }
                _ => return Ok((at, r)),
            }
        }
        Err(Error::Address { url: clean(uri), problem: "too many redirects" })
    }

    /// The whole body of a successful answer.
    pub(crate) async fn body(&self, uri: &Uri, r: Response<Incoming>, limit: usize) -> Result<(HeaderMap, Bytes), Error> {
        if !r.status().is_success() {
            return Err(Error::Status { url: clean(uri), status: r.status().as_u16() });
        }
        let (parts, body) = r.into_parts();
        let mut out = BytesMut::new();
        self.pieces(uri, body, limit, |b| out.extend_from_slice(b)).await?;
        Ok((parts.headers, out.freeze()))
    }

    /// Hands the body over piece by piece.
    pub(crate) async fn pieces(&self, uri: &Uri, mut body: Incoming, limit: usize, mut each: impl FnMut(&[u8])) -> Result<(), Error> {
        let host = uri.host().unwrap_or("").to_string();
        let mut n = 0usize;
        while let Some(frame) = tokio::time::timeout(self.timeout, body.frame()).await.map_err(|_| Error::Timeout { host: host.clone() })? {
            let frame = frame.map_err(|e| Error::Connect { host: host.clone(), problem: e.to_string() })?;
            if let Some(d) = frame.data_ref() {
                n += d.len();
                if n > limit {
                    return Err(Error::TooLarge { url: clean(uri), limit });
                }
                each(d);
            }
        }
        Ok(())
    }
}

async fn speak<S>(io: TokioIo<S>, req: Request<Empty<Bytes>>) -> Result<Response<Incoming>, hyper::Error>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await?;
    // The connection lives as long as its body is read, and ends by itself.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    sender.send_request(req).await
}
