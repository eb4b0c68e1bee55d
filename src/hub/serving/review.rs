//! Asks the parent: whose token is this (TokenReview), may they (SubjectAccessReview). Answers are kept for seconds.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use apiserver::auth::{Attributes, Identity};
use apiserver::path::Info;
use apiserver::status::{About, ApiError};
use cluster::Dynamic;
use kube::Client;
use parking_lot::Mutex;
use serde_json::{Value, json};

/// As long as Kubernetes' own extension servers keep an answer.
const KEEP: Duration = Duration::from_secs(10);
/// Past this many kept answers all are forgotten.
const KEPT: usize = 4096;

struct Kept<T> {
    answers: Mutex<BTreeMap<String, (Instant, T)>>,
}

impl<T: Clone> Kept<T> {
    fn new() -> Self {
        Self { answers: Mutex::default() }
    }

    fn get(&self, key: &str) -> Option<T> {
        self.answers.lock().get(key).filter(|(at, _)| at.elapsed() < KEEP).map(|(_, answer)| answer.clone())
    }

    fn put(&self, key: &str, answer: T) {
        let mut answers = self.answers.lock();
        if answers.len() >= KEPT {
            answers.retain(|_, (at, _)| at.elapsed() < KEEP);
            if answers.len() >= KEPT {
                answers.clear();
            }
        }
        answers.insert(key.to_owned(), (Instant::now(), answer));
    }
}

/// The parent as judge.
pub(crate) struct Review {
    parent: Dynamic,
    tokens: Kept<Option<Identity>>,
    verdicts: Kept<Result<(), String>>,
}

impl Review {
    /// A judge with nothing kept.
    pub(crate) fn new(client: Client) -> Self {
        Self { parent: Dynamic::new(client), tokens: Kept::new(), verdicts: Kept::new() }
    }

    /// Whose token it is.
    pub(crate) async fn token(&self, token: &str) -> Result<Identity, ApiError> {
        // Kept by digest: a token is in memory no longer than its request.
        let key = manifest::hash::sha256(&Value::String(token.to_owned()));
        if let Some(known) = self.tokens.get(&key) {
            return known.ok_or_else(ApiError::unauthorized);
        }
        let asked = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
        let answer = self.ask("/apis/authentication.k8s.io/v1/tokenreviews", &asked).await?;
        let status = &answer["status"];
        let who = (status["authenticated"] == true).then(|| identity(&status["user"]));
        self.tokens.put(&key, who.clone());
        who.ok_or_else(ApiError::unauthorized)
    }

    /// Whether the caller may.
    pub(crate) async fn check(&self, who: &Identity, info: &Info, path: &str) -> Result<(), ApiError> {
        // As everywhere in Kubernetes: masters are above all rules.
        if who.is_master() {
            return Ok(());
        }
        let asked = if info.resource.is_empty() {
            Attributes::path(info.verb, path)
        } else {
            Attributes { version: info.version.clone(), subresource: info.subresource.clone(), ..Attributes::resource(info.verb, &info.group, &info.resource, &info.namespace, &info.name) }
        };
        let review = subject_access_review(who, &asked);
        let key = review.to_string();
        let verdict = match self.verdicts.get(&key) {
            Some(verdict) => verdict,
            None => {
                let answer = self.ask("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review).await?;
                let status = &answer["status"];
                let verdict = if status["allowed"] == true { Ok(()) } else { Err(status["reason"].as_str().unwrap_or_default().to_owned()) };
                self.verdicts.put(&key, verdict.clone());
                verdict
            }
        };
        verdict.map_err(|reason| {
            let refusal = asked.forbidden(who, &reason);
            ApiError::forbidden_with(refusal.message, About { group: refusal.group, kind: refusal.kind, name: refusal.name, uid: String::new() })
        })
    }

    async fn ask(&self, path: &str, review: &Value) -> Result<Value, ApiError> {
        self.parent.call("POST", path, Some("application/json"), Some(review)).await.map_err(|error| {
            tracing::warn!(error = cluster::error::message(&error), path, "the parent does not answer a review");
            ApiError::unavailable("the parent does not answer who may do this")
        })
    }
}

fn identity(user: &Value) -> Identity {
    let texts = |value: &Value| -> Vec<String> { value.as_array().map(|all| all.iter().filter_map(Value::as_str).map(str::to_owned).collect()).unwrap_or_default() };
    Identity {
        user: user["username"].as_str().unwrap_or_default().to_owned(),
        uid: user["uid"].as_str().unwrap_or_default().to_owned(),
        groups: texts(&user["groups"]),
        extra: user["extra"].as_object().map(|all| all.iter().map(|(key, values)| (key.to_ascii_lowercase(), texts(values))).collect()).unwrap_or_default(),
    }
}

fn subject_access_review(who: &Identity, asked: &Attributes) -> Value {
    let mut spec = json!({"user": who.user, "groups": who.groups});
    if !who.uid.is_empty() {
        spec["uid"] = json!(who.uid);
    }
    // A child's credential in an extra is nobody's business, and no rule can speak of it.
    let extra: serde_json::Map<String, Value> = who.extra.iter().filter(|(key, _)| !key.starts_with("clusternet-")).map(|(key, values)| (key.clone(), json!(values))).collect();
    if !extra.is_empty() {
        spec["extra"] = Value::Object(extra);
    }
    if asked.is_resource() {
        spec["resourceAttributes"] = json!({
            "verb": asked.verb, "group": asked.group, "version": asked.version, "resource": asked.resource,
            "subresource": asked.subresource, "namespace": asked.namespace, "name": asked.name,
        });
    } else {
        spec["nonResourceAttributes"] = json!({"verb": asked.verb, "path": asked.path});
    }
    json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_review_never_carries_a_childs_credential() {
        let mut who = Identity { user: "clusternet".into(), ..Identity::default() };
        who.extra.insert("clusternet-token".into(), vec!["s3cret".into()]);
        who.extra.insert("scopes".into(), vec!["a".into()]);
        let review = subject_access_review(&who, &Attributes::path("get", "/apis"));
        assert!(!review.to_string().contains("s3cret"), "{review}");
        assert_eq!(review["spec"]["extra"], json!({"scopes": ["a"]}));
        assert_eq!(review["spec"]["nonResourceAttributes"], json!({"verb": "get", "path": "/apis"}));
    }
}
