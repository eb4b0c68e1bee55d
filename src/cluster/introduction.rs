//! The first meeting with a parent: its CA is taken from its public `cluster-info`, and believed because that is signed with the
//! bootstrap token which both sides know.
//!
//! Kubernetes' token discovery (`kubeadm join`): a detached JWS (RFC 7515, appendix F) with HS256, keyed by the secret half
//! of the token, kept in the ConfigMap under `jws-kubeconfig-<token id>`.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http_body_util::{BodyExt as _, Limited};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use kube::config::Kubeconfig;
use ring::hmac;

const PATH: &str = "/api/v1/namespaces/kube-public/configmaps/cluster-info";
const CONTENT: &str = "kubeconfig";
const SIGNATURE: &str = "jws-kubeconfig-";
/// Bytes of an answer that are read: nothing is known yet of who sends it.
const LONGEST: usize = 1 << 20;
/// Time for the whole meeting.
const PATIENCE: Duration = Duration::from_secs(15);

/// Why a parent could not be believed. Never holds a credential.
#[derive(Debug, thiserror::Error)]
pub enum IntroductionError {
    /// The token is neither a bootstrap token nor one that a server signed.
    #[error("the bootstrap token is malformed: one is six and sixteen small letters and digits with a dot between them")]
    Malformed,
    /// The request could not be made, or got no answer.
    #[error("read the cluster-info of {url}")]
    Reach {
        /// The parent.
        url: String,
        /// Why not.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The answer makes no sense.
    #[error("read the cluster-info of {url}: {what}")]
    Unreadable {
        /// The parent.
        url: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// No signature of this token.
    #[error(
        "the parent does not know the bootstrap token {id} (wrong, or expired): `kubectl get secrets -n kube-system --field-selector type=bootstrap.kubernetes.io/token` lists those it knows"
    )]
    UnknownToken {
        /// The token's id, which is no secret.
        id: String,
    },
    /// A signature that this token did not make.
    #[error("the cluster-info of {url} is not signed with this bootstrap token: its secret half is wrong, or somebody stands between us and the parent")]
    NotSigned {
        /// The parent.
        url: String,
    },
}

/// The two halves of a bootstrap token, `[a-z0-9]{6}.[a-z0-9]{16}`.
fn halves(token: &str) -> Option<(&str, &str)> {
    let plain = |part: &str, length: usize| part.len() == length && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    token.split_once('.').filter(|(id, secret)| plain(id, 6) && plain(secret, 16))
}

/// Whether a token has a form that a parent may know: a bootstrap token, or one that a server signed.
///
/// # Errors
/// [`IntroductionError::Malformed`].
pub fn check(token: &str) -> Result<(), IntroductionError> {
    // A signed token (of a ServiceAccount, say) has three parts.
    if halves(token).is_some() || token.split('.').count() == 3 { Ok(()) } else { Err(IntroductionError::Malformed) }
}

/// The CA of the parent at a URL, PEM.
///
/// None where there is nothing to go by: the token is a signed one, the parent publishes no `cluster-info`, or it names no CA.
pub async fn ca_of(url: &str, token: &str) -> Result<Option<Vec<u8>>, IntroductionError> {
    let Some((id, secret)) = halves(token) else {
        // A signed one proves nothing about the parent.
        return check(token).map(|()| None);
    };
    if !url.starts_with("https://") {
        return Ok(None);
    }
    let info = match tokio::time::timeout(PATIENCE, read(url)).await {
        Ok(info) => info?,
        Err(late) => return Err(IntroductionError::Reach { url: url.to_owned(), source: Box::new(late) }),
    };
    info.map_or(Ok(None), |info| believed(url, &info, id, secret))
}

/// Reads the ConfigMap from whoever answers; nothing in it is believed yet, and nothing of ours is told.
async fn read(url: &str) -> Result<Option<ConfigMap>, IntroductionError> {
    crate::client::install_tls_provider();
    let reach = |source: Box<dyn std::error::Error + Send + Sync>| IntroductionError::Reach { url: url.to_owned(), source };
    let mut config = kube::Config::new(url.parse().map_err(|e| reach(Box::new(e)))?);
    config.accept_invalid_certs = true;
    config.connect_timeout = Some(PATIENCE);
    let client = kube::Client::try_from(config).map_err(|e| reach(Box::new(e)))?;
    let request = http::Request::get(PATH).body(Body::empty()).map_err(|e| reach(Box::new(e)))?;
    let answer = client.send(request).await.map_err(|e| reach(Box::new(e)))?;
    if !answer.status().is_success() {
        return Ok(None);
    }
    let body = Limited::new(answer.into_body(), LONGEST).collect().await.map_err(reach)?.to_bytes();
    serde_json::from_slice(&body).map(Some).map_err(|e| reach(Box::new(e)))
}

fn believed(url: &str, info: &ConfigMap, id: &str, secret: &str) -> Result<Option<Vec<u8>>, IntroductionError> {
    let unreadable = |what| IntroductionError::Unreadable { url: url.to_owned(), what };
    let data = info.data.as_ref().ok_or_else(|| unreadable("it is empty"))?;
    let content = data.get(CONTENT).ok_or_else(|| unreadable("it holds no kubeconfig"))?;
    let jws = data.get(&format!("{SIGNATURE}{id}")).ok_or_else(|| IntroductionError::UnknownToken { id: id.to_owned() })?;
    if !is_signed(content, jws, secret) {
        return Err(IntroductionError::NotSigned { url: url.to_owned() });
    }
    let kubeconfig = Kubeconfig::from_yaml(content).map_err(|_| unreadable("its kubeconfig does not parse"))?;
    let cluster = kubeconfig.clusters.into_iter().find_map(|named| named.cluster).ok_or_else(|| unreadable("its kubeconfig names no cluster"))?;
    let Some(ca) = cluster.certificate_authority_data else { return Ok(None) };
    STANDARD.decode(ca).map(Some).map_err(|_| unreadable("its CA is not in base64"))
}

fn is_signed(content: &str, jws: &str, secret: &str) -> bool {
    let mut parts = jws.split('.');
    let (Some(header), Some(""), Some(signature), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else { return false };
    let is_hs256 = URL_SAFE_NO_PAD
        .decode(header)
        .ok()
        .and_then(|bytes| serde_json::from_slice::<serde_json::Value>(&bytes).ok())
        .is_some_and(|header| header["alg"] == "HS256");
    let Some(signature) = URL_SAFE_NO_PAD.decode(signature).ok().filter(|_| is_hs256) else { return false };
    let message = format!("{header}.{}", URL_SAFE_NO_PAD.encode(content));
    hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), message.as_bytes(), &signature).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "0123456789abcdef";

    fn sign(content: &str, header: &str, secret: &str) -> String {
        let header = URL_SAFE_NO_PAD.encode(header);
        let message = format!("{header}.{}", URL_SAFE_NO_PAD.encode(content));
        let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), message.as_bytes());
        format!("{header}..{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }

    fn info(signature: Option<String>, content: &str) -> ConfigMap {
        let mut data = std::collections::BTreeMap::from([(CONTENT.to_owned(), content.to_owned())]);
        data.extend(signature.map(|text| (format!("{SIGNATURE}abcdef"), text)));
        ConfigMap { data: Some(data), ..ConfigMap::default() }
    }

    #[test]
    fn only_the_holder_of_the_token_is_believed() {
        let content = "clusters: [{name: '', cluster: {server: 'https://a', certificate-authority-data: UEVN}}]";
        let header = r#"{"alg":"HS256","kid":"abcdef"}"#;
        let asked = |signature: Option<String>, content: &str| believed("https://a", &info(signature, content), "abcdef", SECRET);
        assert_eq!(asked(Some(sign(content, header, SECRET)), content).unwrap().unwrap(), b"PEM");
        assert!(matches!(asked(None, content), Err(IntroductionError::UnknownToken { .. })));
        for forged in [
            sign(content, header, "0123456789abcdee"),
            sign("clusters: []", header, SECRET),
            sign(content, r#"{"alg":"none"}"#, SECRET),
            String::new(),
            format!("{}.x", sign(content, header, SECRET)),
            sign(content, header, SECRET).replace("..", ".e30."),
        ] {
            assert!(matches!(asked(Some(forged.clone()), content), Err(IntroductionError::NotSigned { .. })), "{forged}");
        }
        for (broken, what) in [("clusters: []", "names no cluster"), ("{", "does not parse"), ("clusters: [{name: a, cluster: {certificate-authority-data: '%'}}]", "base64")] {
            let error = asked(Some(sign(broken, header, SECRET)), broken).unwrap_err().to_string();
            assert!(error.contains(what), "{broken}: {error}");
        }
    }

    /// The vector of Kubernetes' own test (k8s.io/cluster-bootstrap, token/jws).
    #[test]
    fn kubernetes_signature_is_believed() {
        let jws = "eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9..VShe2taLd-YTrmWuRkcL_8QTNDHYxQIEBsAYYiIj1_8";
        let content = "Hello from the other side. I must have called a thousand times.";
        assert!(is_signed(content, jws, "my voice is my passcode") && !is_signed(content, jws, "joshua.my voice is my passcode"));
    }

    #[test]
    fn other_tokens_are_no_bootstrap_tokens() {
        assert_eq!(halves("abcdef.0123456789abcdef"), Some(("abcdef", SECRET)));
        for other in ["", "abcdef", "abcdef.", "ABCDEF.0123456789abcdef", "eyJhbGciOi.J9.abc", "abcdef.0123456789abcdef0"] {
            assert_eq!(halves(other), None, "{other}");
        }
    }
}
