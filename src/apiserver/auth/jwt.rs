//! ServiceAccount tokens: ES256 JWTs that are bound to a live ServiceAccount and, when asked for, to a Pod, Secret or Node.

use std::collections::BTreeMap;

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::Engine as _;
use jiff::{SignedDuration, Timestamp};
use ring::rand::SystemRandom;
use ring::signature::{EcdsaKeyPair, UnparsedPublicKey, ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING};
use serde_json::{json, Value};
use sha2::{Digest as _, Sha256};

use super::pki::Key;
use super::{at, text, Identity, Objects};

/// The issuer name that tokens carry, and the audience of this server.
pub const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";
/// How long a token stays good after its object was marked for deletion.
const LEEWAY: SignedDuration = SignedDuration::from_secs(60);

/// Why a token is not taken. Never contains the token.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TokenError {
    /// Not a JWT, or one of another issuer: another authenticator may know it.
    #[error("token is not one of ours")]
    Foreign,
    /// The signature does not fit.
    #[error("invalid bearer token")]
    Signature,
    /// Outside its time.
    #[error("service account token has expired")]
    Expired,
    /// Not valid yet.
    #[error("service account token is not valid yet")]
    NotYet,
    /// Meant for somebody else.
    #[error("token audiences {0:?} is invalid for the target audiences {1:?}")]
    Audience(Vec<String>, Vec<String>),
    /// The account or the object it is bound to is gone or is another one now.
    #[error("service account token has been invalidated")]
    Invalidated,
}

/// What a bound token names besides its account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// `Pod`, `Secret` or `Node`.
    pub kind: String,
    /// Name of the object.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// A request for a token.
#[derive(Clone, Debug)]
pub struct Claims<'a> {
    /// Namespace of the account.
    pub namespace: &'a str,
    /// Name of the account.
    pub name: &'a str,
    /// Uid of the account.
    pub uid: &'a str,
    /// Whom the token is for.
    pub audiences: &'a [String],
    /// Seconds until it expires.
    pub seconds: i64,
    /// The object that must live as long.
    pub bound: Option<&'a Bound>,
    /// Node of a bound pod: name and uid (empty when the node is unknown).
    pub node: Option<(&'a str, &'a str)>,
}

/// A token that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The account.
    pub identity: Identity,
    /// The audiences of the token that were asked for.
    pub audiences: Vec<String>,
}

/// Signs and checks ServiceAccount tokens.
pub struct Issuer {
    key: Key,
    key_id: String,
}

impl std::fmt::Debug for Issuer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issuer").field("key_id", &self.key_id).finish()
    }
}

impl Issuer {
    /// An issuer with its signing key.
    pub fn new(key: Key) -> Self {
        let key_id = URL_SAFE_NO_PAD.encode(Sha256::digest(key.public_key()));
        Self { key, key_id }
    }

    fn sign(&self, claims: &Value) -> Option<String> {
        let header = json!({"alg": "ES256", "kid": self.key_id});
        let body = format!("{}.{}", encode(&header), encode(claims));
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, self.key.pkcs8(), &random).ok()?;
        let signature = pair.sign(&random, body.as_bytes()).ok()?;
        Some(format!("{body}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref())))
    }

    /// A bound token. `id` is its unique `jti`. Nothing when the random source fails.
    pub fn issue(&self, claims: &Claims<'_>, id: &str, now: Timestamp) -> Option<String> {
        let start = now.as_second();
        let mut own = json!({
            "namespace": claims.namespace,
            "serviceaccount": {"name": claims.name, "uid": claims.uid},
        });
        if let Some(bound) = claims.bound {
            own[bound.kind.to_lowercase()] = json!({"name": bound.name, "uid": bound.uid});
        }
        if let Some((name, uid)) = claims.node {
            own["node"] = if uid.is_empty() { json!({"name": name}) } else { json!({"name": name, "uid": uid}) };
        }
        self.sign(&json!({
            "aud": claims.audiences,
            "exp": start + claims.seconds,
            "iat": start,
            "nbf": start,
            "iss": ISSUER,
            "jti": id,
            "kubernetes.io": own,
            "sub": format!("system:serviceaccount:{}:{}", claims.namespace, claims.name),
        }))
    }

    /// The token of a Secret of type `kubernetes.io/service-account-token`; it does not expire.
    pub fn issue_legacy(&self, namespace: &str, account: &str, uid: &str, secret: &str) -> Option<String> {
        self.sign(&json!({
            "iss": LEGACY_ISSUER,
            "sub": format!("system:serviceaccount:{namespace}:{account}"),
            "kubernetes.io/serviceaccount/namespace": namespace,
            "kubernetes.io/serviceaccount/secret.name": secret,
            "kubernetes.io/serviceaccount/service-account.name": account,
            "kubernetes.io/serviceaccount/service-account.uid": uid,
        }))
    }

    /// Checks a token against `wanted` audiences (this server's own when empty) and the objects it is bound to.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn verify(&self, token: &str, wanted: &[String], objects: &dyn Objects, now: Timestamp) -> Result<Verified, TokenError> {
        let claims = self.read(token)?;
        let own = [ISSUER.to_owned()];
        let wanted = if wanted.is_empty() { &own[..] } else { wanted };
        if text(&claims, &["iss"]) == LEGACY_ISSUER {
            return legacy(&claims, token, wanted, objects, now);
        }
        let seconds = |name: &str| claims.get(name).and_then(Value::as_i64);
        if seconds("exp").is_none_or(|end| now.as_second() >= end) {
            return Err(TokenError::Expired);
        }
        if seconds("nbf").is_some_and(|start| now.as_second() + 10 < start) {
            return Err(TokenError::NotYet);
        }
        let carried = audiences(&claims);
        let shared: Vec<String> = carried.iter().filter(|audience| wanted.contains(audience)).cloned().collect();
        if shared.is_empty() {
            return Err(TokenError::Audience(carried, wanted.to_vec()));
        }
        let bound = claims.get("kubernetes.io").unwrap_or(&Value::Null);
        let namespace = text(bound, &["namespace"]);
        let (name, uid) = (text(bound, &["serviceaccount", "name"]), text(bound, &["serviceaccount", "uid"]));
        alive(objects, "serviceaccounts", namespace, name, uid, now)?;
        let mut identity = Identity::service_account(namespace, name, uid);
        for (field, plural, scope) in [("secret", "secrets", namespace), ("pod", "pods", namespace), ("node", "nodes", "")] {
            // The node of a pod-bound token is said for information; it need not live.
            if field == "node" && bound.get("pod").is_some() {
                continue;
            }
            if bound.get(field).is_some() {
                alive(objects, plural, scope, text(bound, &[field, "name"]), text(bound, &[field, "uid"]), now)?;
            }
        }
        identity.extra = extra(&claims, bound);
        Ok(Verified { identity, audiences: shared })
    }

    /// The claims of a token whose signature fits.
    fn read(&self, token: &str) -> Result<Value, TokenError> {
        let mut parts = token.split('.');
        let (Some(header), Some(payload), Some(signature), None) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(TokenError::Foreign);
        };
        let claims = decode(payload).ok_or(TokenError::Foreign)?;
        if ![ISSUER, LEGACY_ISSUER].contains(&text(&claims, &["iss"])) {
            return Err(TokenError::Foreign);
        }
        let header = decode(header).ok_or(TokenError::Foreign)?;
        if text(&header, &["alg"]) != "ES256" {
            return Err(TokenError::Signature);
        }
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| TokenError::Signature)?;
        let message = &token.as_bytes()[..token.rfind('.').unwrap_or(0)];
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.key.point())
            .verify(message, &signature)
            .map_err(|_| TokenError::Signature)?;
        Ok(claims)
    }

    /// The key set served at `/openid/v1/jwks`.
    pub fn key_set(&self) -> Value {
        let point = self.key.point();
        let half = |range: std::ops::Range<usize>| URL_SAFE_NO_PAD.encode(point.get(range).unwrap_or_default());
        json!({"keys": [{
            "use": "sig", "kty": "EC", "kid": self.key_id, "crv": "P-256", "alg": "ES256",
            "x": half(1..33), "y": half(33..65),
        }]})
    }
}

/// The document served at `/.well-known/openid-configuration`.
pub fn discovery(server: &str) -> Value {
    json!({
        "issuer": ISSUER,
        "jwks_uri": format!("{server}/openid/v1/jwks"),
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
    })
}

fn encode(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

fn decode(part: &str) -> Option<Value> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

fn audiences(claims: &Value) -> Vec<String> {
    match claims.get("aud") {
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

fn alive(objects: &dyn Objects, plural: &str, namespace: &str, name: &str, uid: &str, now: Timestamp) -> Result<(), TokenError> {
    let object = objects.get("", plural, namespace, name).ok_or(TokenError::Invalidated)?;
    let deleted: Option<Timestamp> = text(&object, &["metadata", "deletionTimestamp"]).parse().ok();
    if text(&object, &["metadata", "uid"]) != uid || deleted.is_some_and(|at| at + LEEWAY < now) {
        return Err(TokenError::Invalidated);
    }
    Ok(())
}

fn extra(claims: &Value, bound: &Value) -> BTreeMap<String, Vec<String>> {
    const PREFIX: &str = "authentication.kubernetes.io";
    let mut extra = BTreeMap::new();
    let id = text(claims, &["jti"]);
    if !id.is_empty() {
        extra.insert(format!("{PREFIX}/credential-id"), vec![format!("JTI={id}")]);
    }
    for (kind, field) in [("pod", "name"), ("pod", "uid"), ("node", "name"), ("node", "uid")] {
        if let Some(value) = at(bound, &[kind, field]).and_then(Value::as_str) {
            extra.insert(format!("{PREFIX}/{kind}-{field}"), vec![value.to_owned()]);
        }
    }
    extra
}

/// A token out of a Secret: good as long as the Secret holds it and the account lives.
fn legacy(claims: &Value, token: &str, wanted: &[String], objects: &dyn Objects, now: Timestamp) -> Result<Verified, TokenError> {
    if !wanted.iter().any(|audience| audience == ISSUER) {
        return Err(TokenError::Audience(vec![ISSUER.into()], wanted.to_vec()));
    }
    let claim = |name: &str| claims.get(format!("kubernetes.io/serviceaccount/{name}")).and_then(Value::as_str).unwrap_or("");
    let (namespace, secret) = (claim("namespace"), claim("secret.name"));
    let (name, uid) = (claim("service-account.name"), claim("service-account.uid"));
    let held = objects.get("", "secrets", namespace, secret).ok_or(TokenError::Invalidated)?;
    if !text(&held, &["metadata", "deletionTimestamp"]).is_empty() {
        return Err(TokenError::Invalidated);
    }
    let stored = base64::engine::general_purpose::STANDARD.decode(text(&held, &["data", "token"])).unwrap_or_default();
    if !super::bootstrap_token::same(&stored, token.as_bytes()) {
        return Err(TokenError::Invalidated);
    }
    alive(objects, "serviceaccounts", namespace, name, uid, now)?;
    Ok(Verified { identity: Identity::service_account(namespace, name, uid), audiences: vec![ISSUER.into()] })
}
