//! Approved CertificateSigningRequests get their certificate; old ones are cleared away.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{json, Value};

use super::kinds::SIGNING_REQUEST;
use super::{Call, Change, Controller, Delete, Key, Turn, World};
use crate::admission::{Admission, Operation, Request};
use crate::auth::signer::{self, Outcome};
use crate::auth::{at, text, Pki};
use crate::status::ApiError;

/// How long requests stay: without a decision, and after a decision.
const PENDING: SignedDuration = SignedDuration::from_hours(24);
const DECIDED: SignedDuration = SignedDuration::from_hours(1);

/// Signs requests with the authority of the server.
#[derive(Debug)]
pub struct Certificates {
    pki: Arc<Pki>,
}

impl Certificates {
    /// With the keys of the server.
    pub fn new(pki: Arc<Pki>) -> Self {
        Self { pki }
    }
}

/// When a request is old enough to go.
fn end(request: &Value) -> Option<Timestamp> {
    let conditions =
        at(request, &["status", "conditions"]).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let decided = conditions.iter().filter_map(|condition| {
        let update = text(condition, &["lastUpdateTime"]);
        let update: Timestamp = if update.is_empty() { text(condition, &["lastTransitionTime"]) } else { update }.parse().ok()?;
        ["Approved", "Denied", "Failed"].contains(&text(condition, &["type"])).then_some(update + DECIDED)
    });
    let created: Timestamp = text(request, &["metadata", "creationTimestamp"]).parse().ok()?;
    Some(decided.max().unwrap_or(created + PENDING))
}

impl Controller for Certificates {
    fn name(&self) -> &'static str {
        "certificate-signer"
    }

    fn concerns(&self, change: &Change, _: &World<'_>, wake: &mut Vec<Key>) {
        if change.key.is(&SIGNING_REQUEST) && !change.deleted {
            wake.push(change.key.clone());
        }
    }

    fn decide(&self, key: &Key, world: &World<'_>) -> Turn {
        let mut turn = Turn::default();
        let Some(request) = world.at(key) else { return turn };
        let mut status = request.get("status").cloned().unwrap_or_else(|| json!({}));
        match signer::sign(&self.pki.ca, &request, world.now) {
            Outcome::Signed(certificate) => {
                status["certificate"] = json!(certificate);
                turn.call(Call::status(&SIGNING_REQUEST, &request, status));
            }
            Outcome::Failed(message) => {
                let now = world.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
                let condition = json!({
                    "type": "Failed", "status": "True", "reason": "SignerValidationFailure", "message": message,
                    "lastUpdateTime": now, "lastTransitionTime": now,
                });
                if let Some(conditions) = status["conditions"].as_array_mut() {
                    conditions.push(condition);
                }
                turn.call(Call::status(&SIGNING_REQUEST, &request, status));
            }
            Outcome::Leave => match end(&request) {
                Some(end) if end <= world.now => {
                    turn.call(Call::delete(&SIGNING_REQUEST, &request, Delete::Background));
                }
                Some(end) => turn.again_at(end, world.now),
                None => {}
            },
        }
        turn
    }
}

/// Notes who asks for a certificate, and lets only those decide and sign who may.
#[derive(Debug, Default)]
pub struct SigningAdmission;

fn ours(request: &Request<'_>) -> bool {
    request.resource.group == SIGNING_REQUEST.group && request.resource.plural == SIGNING_REQUEST.plural
}

impl Admission for SigningAdmission {
    fn mutate(&self, request: &Request<'_>, object: &mut Value) -> Result<(), ApiError> {
        if ours(request) && request.operation == Operation::Create && request.subresource.is_empty() {
            signer::stamp(object, request.who);
        }
        Ok(())
    }

    fn validate(&self, request: &Request<'_>, object: &Value) -> Result<Vec<String>, ApiError> {
        if !ours(request) {
            return Ok(Vec::new());
        }
        let refuse = |why: String| ApiError::forbidden(&request.resource.group, &request.resource.plural, request.name, &why);
        let signer_name = text(object, &["spec", "signerName"]);
        let changed = |path: &[&str]| request.old.is_none_or(|old| at(old, path) != at(object, path));
        let verb = match (request.operation, request.subresource) {
            (Operation::Create, "") => return signer::restricted_subject(object).map(|()| Vec::new()).map_err(refuse),
            (Operation::Update, "approval") if changed(&["status", "conditions"]) => "approve",
            (Operation::Update, "status") if changed(&["status", "certificate"]) => "sign",
            _ => return Ok(Vec::new()),
        };
        let guard = request.core.guard.read().clone();
        match guard {
            Some(guard) => signer::permitted(&guard.authorizer, request.who, verb, signer_name).map(|()| Vec::new()).map_err(refuse),
            None => Ok(Vec::new()),
        }
    }
}
