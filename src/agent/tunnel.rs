//! The agent's end of the tunnel: dials the hub, serves what comes through, dials again.
//!
//! Only the child's own API server and what the agent itself offers (its predictor) can be reached through it: a parent that
//! was taken over must not become a way into the whole network of every child.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cluster::Auth;
use engine::CancellationToken;
use futures::future::BoxFuture;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tunnel::{Acceptor, Limits, Stream, Target};

use crate::{Tunnel, TunnelSession};

/// Between two tries, spread by up to a third.
const PAUSE: Duration = Duration::from_secs(5);
/// How long a target in the child may take to answer the dial.
const DIAL: Duration = Duration::from_secs(30);

/// Keeps a tunnel to the hub of the parent.
#[derive(Debug, Clone, Default)]
pub struct HubTunnel {
    targets: BTreeSet<String>,
}

impl HubTunnel {
    /// A tunnel through which these `host:port` can be reached.
    pub fn to(targets: impl IntoIterator<Item = String>) -> Self {
        Self { targets: targets.into_iter().collect() }
    }

    /// A tunnel to the server behind a URL.
    pub fn to_url(url: &str) -> Self {
        Self::to(authority(url))
    }
}

/// `host:port` of a URL.
fn authority(url: &str) -> Option<String> {
    let uri: http::Uri = url.parse().ok()?;
    let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("http") { 80 } else { 443 });
    Some(format!("{}:{port}", uri.host()?))
}

impl Tunnel for HubTunnel {
    fn run(&self, session: TunnelSession, shutdown: CancellationToken) -> BoxFuture<'static, ()> {
        let targets = Arc::new(self.targets.clone());
        Box::pin(async move {
            let url = format!(
                "{}/apis/proxies.clusternet.io/v1alpha1/sockets/{}",
                session.parent_url.trim_end_matches('/'),
                session.cluster_id
            );
            loop {
                match Box::pin(once(&url, &session, targets.clone())).await {
                    Ok(()) => tracing::debug!(cluster = session.cluster_name, "the tunnel ended"),
                    Err(error) => tracing::info!(cluster = session.cluster_name, error = cluster::error::chain(&*error), "no tunnel to the hub yet"),
                }
                tokio::select! {
                    () = tokio::time::sleep(PAUSE.mul_f64(rand::random_range(0.7..1.3))) => {}
                    () = shutdown.cancelled() => return,
                }
            }
        })
    }
}

/// One session, to its end.
async fn once(url: &str, session: &TunnelSession, targets: Arc<BTreeSet<String>>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let tls = Arc::new(tls_config(session)?);
    let token = match &session.auth {
        Auth::Token(token) => Some(token.as_str()),
        Auth::Anonymous | Auth::Certificate { .. } => None,
    };
    let socket = tunnel::connect(url, token, tls).await?;
    tracing::info!(cluster = session.cluster_name, "tunnel to the hub is open");
    let (place, predictor) = (session.predictor_address.clone(), session.predictor.clone());
    let acceptor: Acceptor = Arc::new(move |target, stream| {
        let asked = place.as_ref().is_some_and(|place| *place == target.address) && target.network == "tcp";
        let served: BoxFuture<'static, ()> = match (asked, predictor.clone()) {
            (true, Some(predictor)) => Box::pin(predictor.serve(stream)),
            // Somebody else's predictor, which the operator named.
            (true, None) => Box::pin(serve(Arc::new(BTreeSet::from([target.address.clone()])), target, stream)),
            (false, _) => Box::pin(serve(targets.clone(), target, stream)),
        };
        served
    });
    let (_tunnel, run) = tunnel::session(socket, Limits::PEER, acceptor);
    Ok(run.await?)
}

/// Joins a stream of the hub to its target.
async fn serve(targets: Arc<BTreeSet<String>>, target: Target, mut stream: Stream) {
    if target.network != "tcp" || !targets.contains(&target.address) {
        stream.refuse("this agent does not lead there");
        return;
    }
    match tokio::time::timeout(DIAL, TcpStream::connect(&target.address)).await {
        Ok(Ok(mut near)) => {
            // Small messages must not wait for each other; failing costs only speed.
            let _ = near.set_nodelay(true);
            // Either side may end the connection at any time.
            let _ = tokio::io::copy_bidirectional_with_sizes(&mut near, &mut stream, 32 << 10, 32 << 10).await;
        }
        Ok(Err(error)) => stream.refuse(&format!("dial {}: {error}", target.address)),
        Err(_) => stream.refuse(&format!("dial {}: no answer", target.address)),
    }
}

fn tls_config(session: &TunnelSession) -> Result<rustls::ClientConfig, Box<dyn std::error::Error + Send + Sync>> {
    let mut roots = rustls::RootCertStore::empty();
    match &session.ca_pem {
        Some(pem) => {
            for der in CertificateDer::pem_slice_iter(pem).flatten() {
                roots.add(der)?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let builder = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    Ok(match &session.auth {
        Auth::Certificate { chain_pem, key_pem } => {
            let chain: Vec<_> = CertificateDer::pem_slice_iter(chain_pem).flatten().collect();
            builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key_pem)?)?
        }
        Auth::Anonymous | Auth::Token(_) => builder.with_no_client_auth(),
    })
}

#[cfg(test)]
mod tests {
    use super::authority;

    #[test]
    fn targets_are_host_and_port() {
        let check = |url: &str, expect: Option<&str>| assert_eq!(authority(url).as_deref(), expect);
        check("https://10.0.0.1:6443/prefix", Some("10.0.0.1:6443"));
        check("https://kubernetes.default.svc", Some("kubernetes.default.svc:443"));
        check("http://[::1]:8080", Some("[::1]:8080"));
        check("", None);
    }
}
