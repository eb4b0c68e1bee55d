//! Builds `kube::Client`s: from a URL with credentials, from a kubeconfig, or over a service in this process.

use std::time::Duration;

use base64::Engine as _;
use kube::Client;
use kube::client::Body;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};

/// How a client proves who it is.
#[derive(Clone, Default)]
pub enum Auth {
    /// No credential: `system:anonymous`.
    #[default]
    Anonymous,
    /// A bearer token.
    Token(String),
    /// A client certificate: chain and private key, both PEM.
    Certificate {
        /// Certificate chain, leaf first.
        chain_pem: Vec<u8>,
        /// Private key, PKCS#8 or SEC1.
        key_pem: Vec<u8>,
    },
}

impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Auth::Anonymous => "Anonymous",
            Auth::Token(_) => "Token(…)",
            Auth::Certificate { .. } => "Certificate(…)",
        })
    }
}

/// Where an API server is, and how to be let in.
#[derive(Clone, Debug, Default)]
pub struct Endpoint {
    /// `https://host:port`, with an optional path prefix (a proxy URL through the hub, for example).
    pub url: String,
    /// Bundle of PEM certificates to trust; none means the machine's own trust store.
    pub ca_pem: Option<Vec<u8>>,
    /// Credential.
    pub auth: Auth,
    /// Host name to verify the serving certificate against, when the URL holds an address.
    pub tls_server_name: Option<String>,
    /// Proxy for the connection. Only http proxies whose client feature is built in are accepted.
    pub proxy_url: Option<String>,
}

/// Why a client could not be built. Never holds a credential.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The URL does not parse.
    #[error("parse the API server's URL {url}")]
    Url {
        /// The text.
        url: String,
        /// Why not.
        #[source]
        source: http::uri::InvalidUri,
    },
    /// The CA bundle holds no certificate.
    #[error("read the CA bundle for {url}: no certificate in it")]
    NoCertificate {
        /// The server it was for.
        url: String,
    },
    /// The kubeconfig does not fit.
    #[error("read the kubeconfig")]
    Kubeconfig(#[source] Box<kube::config::KubeconfigError>),
    /// TLS or transport set-up failed.
    #[error("build a client for {url}")]
    Build {
        /// The server.
        url: String,
        /// Why not.
        #[source]
        source: Box<kube::Error>,
    },
}

/// Requests that take longer than this to connect fail.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Splits a PEM bundle into DER certificates. Other PEM blocks in it are passed over.
pub fn pem_certificates(pem: &[u8]) -> Vec<Vec<u8>> {
    let text = String::from_utf8_lossy(pem);
    let mut found = Vec::new();
    let mut inside = None::<String>;
    for line in text.lines() {
        let line = line.trim();
        if line == "-----BEGIN CERTIFICATE-----" {
            inside = Some(String::new());
        } else if line == "-----END CERTIFICATE-----" {
            if let Some(der) = inside.take().and_then(|b64| base64::engine::general_purpose::STANDARD.decode(b64).ok()) {
                found.push(der);
            }
        } else if let Some(body) = &mut inside {
            body.push_str(line);
        }
    }
    found
}

/// Makes ring the TLS provider of the process; later calls change nothing.
pub fn install_tls_provider() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

impl Endpoint {
    /// Builds a client. TLS is always verified; plain `http` is for loopback tests.
    pub fn client(&self) -> Result<Client, ClientError> {
        install_tls_provider();
        let url: http::Uri =
            self.url.parse().map_err(|source| ClientError::Url { url: self.url.clone(), source })?;
        let mut config = kube::Config::new(url);
        if let Some(pem) = &self.ca_pem {
            let certificates = pem_certificates(pem);
            if certificates.is_empty() {
                return Err(ClientError::NoCertificate { url: self.url.clone() });
            }
            config.root_cert = Some(certificates);
        }
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        config.tls_server_name = self.tls_server_name.clone();
        if let Some(proxy) = &self.proxy_url {
            config.proxy_url =
                Some(proxy.parse().map_err(|source| ClientError::Url { url: proxy.clone(), source })?);
        }
        let b64 = &base64::engine::general_purpose::STANDARD;
        config.auth_info = match &self.auth {
            Auth::Anonymous => AuthInfo::default(),
            Auth::Token(token) => AuthInfo { token: Some(token.clone().into()), ..AuthInfo::default() },
            Auth::Certificate { chain_pem, key_pem } => AuthInfo {
                client_certificate_data: Some(b64.encode(chain_pem)),
                client_key_data: Some(b64.encode(key_pem).into()),
                ..AuthInfo::default()
            },
        };
        Client::try_from(config).map_err(|e| ClientError::Build { url: self.url.clone(), source: Box::new(e) })
    }
}

/// Builds a client from the text of a kubeconfig; `context` names one of its contexts, none means the current one.
pub async fn from_kubeconfig(text: &str, context: Option<&str>) -> Result<Client, ClientError> {
    let kubeconfig = Kubeconfig::from_yaml(text).map_err(|e| ClientError::Kubeconfig(Box::new(e)))?;
    of_kubeconfig(kubeconfig, context).await
}

/// Builds a client from a kubeconfig that was read.
pub async fn of_kubeconfig(kubeconfig: Kubeconfig, context: Option<&str>) -> Result<Client, ClientError> {
    install_tls_provider();
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .map_err(|e| ClientError::Kubeconfig(Box::new(e)))?;
    let url = config.cluster_url.to_string();
    Client::try_from(config).map_err(|e| ClientError::Build { url, source: Box::new(e) })
}

/// Reads the kubeconfig at a path, or those of a list of paths as KUBECONFIG has it; without one that of the home folder. Of a list,
/// those that are not there are passed over, and files named in one are relative to it. `None`: there is none at all.
pub fn read_kubeconfig(path: Option<&std::path::Path>) -> Result<Option<Kubeconfig>, ClientError> {
    let fault = |e| ClientError::Kubeconfig(Box::new(e));
    let usual = || std::env::home_dir().map(|home| home.join(".kube/config")).filter(|file| file.is_file());
    let paths: Vec<std::path::PathBuf> = match path {
        Some(path) if path.is_file() => vec![path.to_owned()],
        Some(list) => std::env::split_paths(list).filter(|one| !one.as_os_str().is_empty()).collect(),
        None => usual().into_iter().collect(),
    };
    let is_list = paths.len() > 1;
    let mut whole = None::<Kubeconfig>;
    for path in paths.into_iter().filter(|path| !is_list || path.is_file()) {
        let next = Kubeconfig::read_from(path).map_err(fault)?;
        whole = Some(match whole {
            Some(first) => first.merge(next).map_err(fault)?,
            None => next,
        });
    }
    Ok(whole)
}

/// Builds a client over a service in this process: no socket, no TLS. The service decides who the caller is.
pub fn in_process<S, B>(service: S) -> Client
where
    S: tower::Service<http::Request<Body>, Response = http::Response<B>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<tower::BoxError>,
    B: hyper::body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<tower::BoxError>,
{
    Client::new(service, "default")
}

/// The same connection as somebody else: every request carries the impersonation headers, which the server authorises.
pub fn impersonating(client: &Client, user: &str, groups: &[String]) -> Client {
    let inner = client.clone();
    let mut headers = http::HeaderMap::new();
    // A name that is no header value would be sent as nobody, that is refused, never as ourselves.
    let value = |text: &str| http::HeaderValue::from_str(text).unwrap_or_else(|_| http::HeaderValue::from_static("system:anonymous"));
    headers.insert("impersonate-user", value(user));
    for group in groups {
        headers.append("impersonate-group", value(group));
    }
    let service = tower::service_fn(move |mut request: http::Request<Body>| {
        let inner = inner.clone();
        for (name, value) in &headers {
            request.headers_mut().append(name, value.clone());
        }
        async move { inner.send(request).await }
    });
    Client::new(service, "default")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_every_certificate_of_a_bundle_and_nothing_else() {
        let pem = b"junk\n-----BEGIN CERTIFICATE-----\nAAEC\n-----END CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\nAAEC\n-----END PRIVATE KEY-----\n-----BEGIN CERTIFICATE-----\r\nAw==\r\n-----END CERTIFICATE-----\r\n";
        assert_eq!(pem_certificates(pem), vec![vec![0, 1, 2], vec![3]]);
        assert!(pem_certificates(b"").is_empty());
    }

    #[test]
    fn a_credential_is_never_printed() {
        let endpoint = Endpoint { url: "https://parent".into(), auth: Auth::Token("s3cret".into()), ..Endpoint::default() };
        assert!(!format!("{endpoint:?}").contains("s3cret"));
    }
}
