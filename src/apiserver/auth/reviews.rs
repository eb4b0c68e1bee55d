//! The review kinds: questions about access and tokens, answered and never stored.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{json, Map, Value};

use super::fault::{Cause, Fault};
use super::jwt::{Bound, Claims, Issuer, ISSUER};
use super::{at, strings, text, Attributes, Authenticator, Authorizer, Identity, Objects};

const AUTHORIZATION: &str = "authorization.k8s.io";

/// Answers a posted review: `kind` is the kind of the body, `namespace` that of the URL (empty at the cluster scope).
///
/// Returns nothing for a kind that is no review.
///
/// # Errors
/// [`Fault`], to be answered as it is.
pub fn answer(
    authenticator: &Authenticator,
    authorizer: &Authorizer,
    who: &Identity,
    kind: &str,
    namespace: &str,
    body: &Value,
    now: Timestamp,
) -> Option<Result<Value, Fault>> {
    Some(match kind {
        "SubjectAccessReview" | "LocalSubjectAccessReview" | "SelfSubjectAccessReview" => {
            access(authorizer, who, kind, namespace, body)
        }
        "SelfSubjectRulesReview" => rules(authorizer, who, body),
        "SelfSubjectReview" => Ok(json!({
            "kind": kind, "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"creationTimestamp": second(now)},
            "status": {"userInfo": who.to_user_info()},
        })),
        "TokenReview" => token(authenticator, body, now),
        _ => return None,
    })
}

fn second(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn with_status(body: &Value, status: Value) -> Value {
    let mut out = body.clone();
    if let Some(object) = out.as_object_mut() {
        object.entry("metadata").or_insert_with(|| json!({}));
        object.entry("spec").or_insert_with(|| json!({}));
        object.insert("status".into(), status);
    }
    out
}

/// Checks an access review as Kubernetes does and finds all faults.
fn access_faults(kind: &str, namespace: &str, body: &Value) -> Vec<Cause> {
    let spec = body.get("spec").unwrap_or(&Value::Null);
    let (resource, path) = (spec.get("resourceAttributes"), spec.get("nonResourceAttributes"));
    let mut causes = Vec::new();
    let mut fault = |field: &str, value: &Value, detail: &str| causes.push(Cause::invalid(field, value, detail));
    if resource.is_some() == path.is_some() {
        let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        fault("spec", path.unwrap_or(&Value::Null), detail);
    }
    if kind != "SelfSubjectAccessReview" && text(spec, &["user"]).is_empty() && strings(spec, &["groups"]).is_empty() {
        fault("spec.user", &json!(text(spec, &["user"])), "at least one of user or group must be specified");
    }
    let local = kind == "LocalSubjectAccessReview";
    let metadata = body.get("metadata").and_then(Value::as_object);
    let odd = metadata.is_some_and(|metadata| {
        metadata.iter().any(|(key, value)| {
            let allowed = key == "managedFields" || (local && key == "namespace") || key == "creationTimestamp";
            !allowed && !value.is_null() && value != ""
        })
    });
    if odd {
        let detail = if local { "must be empty except for namespace" } else { "must be empty" };
        fault("metadata", &body["metadata"], detail);
    }
    if local {
        if let Some(resource) = resource
            && text(resource, &["namespace"]) != namespace
        {
            fault("spec.resourceAttributes.namespace", &json!(text(resource, &["namespace"])), "must match metadata.namespace");
        }
        if let Some(path) = path {
            fault("spec.nonResourceAttributes", path, "disallowed on this kind of request");
        }
    }
    causes
}

fn access(authorizer: &Authorizer, who: &Identity, kind: &str, namespace: &str, body: &Value) -> Result<Value, Fault> {
    if kind == "LocalSubjectAccessReview" {
        let own = text(body, &["metadata", "namespace"]);
        if !own.is_empty() && own != namespace {
            let message = "the namespace of the provided object does not match the namespace sent on the request";
            return Err(Fault::BadRequest(message.into()));
        }
    }
    let causes = access_faults(kind, namespace, body);
    if !causes.is_empty() {
        return Err(Fault::Invalid { kind: kind.into(), group: AUTHORIZATION.into(), name: String::new(), causes });
    }
    let spec = body.get("spec").unwrap_or(&Value::Null);
    let subject = if kind == "SelfSubjectAccessReview" {
        who.clone()
    } else {
        let extra: BTreeMap<String, Vec<String>> = spec
            .get("extra")
            .and_then(Value::as_object)
            .map(|extra| extra.keys().map(|key| (key.to_lowercase(), strings(spec, &["extra", key]))).collect())
            .unwrap_or_default();
        Identity {
            user: text(spec, &["user"]).into(),
            uid: text(spec, &["uid"]).into(),
            groups: strings(spec, &["groups"]),
            extra,
        }
    };
    let asked = match spec.get("resourceAttributes") {
        Some(asked) => {
            let version = match text(asked, &["version"]) {
                "" => "*",
                version => version,
            };
            Attributes {
                verb: text(asked, &["verb"]).into(),
                group: text(asked, &["group"]).into(),
                version: version.into(),
                resource: text(asked, &["resource"]).into(),
                subresource: text(asked, &["subresource"]).into(),
                namespace: text(asked, &["namespace"]).into(),
                name: text(asked, &["name"]).into(),
                path: String::new(),
            }
        }
        None => Attributes::path(
            text(spec, &["nonResourceAttributes", "verb"]),
            text(spec, &["nonResourceAttributes", "path"]),
        ),
    };
    let decision = authorizer.allowed(&subject, &asked);
    let mut status = json!({"allowed": decision.allow});
    if !decision.reason.is_empty() {
        status["reason"] = json!(decision.reason);
    }
    Ok(with_status(body, status))
}

fn rules(authorizer: &Authorizer, who: &Identity, body: &Value) -> Result<Value, Fault> {
    let namespace = text(body, &["spec", "namespace"]);
    if namespace.is_empty() {
        return Err(Fault::BadRequest("no namespace on request".into()));
    }
    let (rules, errors) = authorizer.rules_for(who, namespace);
    let (mut resources, mut paths) = (Vec::new(), Vec::new());
    let put = |out: &mut Map<String, Value>, key: &str, items: &[String]| {
        if !items.is_empty() {
            out.insert(key.into(), json!(items));
        }
    };
    for rule in rules {
        if !rule.resources.is_empty() {
            let mut out = Map::from_iter([("verbs".to_owned(), json!(rule.verbs))]);
            put(&mut out, "apiGroups", &rule.api_groups);
            put(&mut out, "resources", &rule.resources);
            put(&mut out, "resourceNames", &rule.resource_names);
            resources.push(Value::Object(out));
        }
        if !rule.non_resource_urls.is_empty() {
            paths.push(json!({"verbs": rule.verbs, "nonResourceURLs": rule.non_resource_urls}));
        }
    }
    let mut status = json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false});
    if !errors.is_empty() {
        status["evaluationError"] = json!(errors.join(", "));
    }
    Ok(json!({
        "kind": "SelfSubjectRulesReview", "apiVersion": "authorization.k8s.io/v1",
        "metadata": {}, "spec": {}, "status": status,
    }))
}

fn token(authenticator: &Authenticator, body: &Value, now: Timestamp) -> Result<Value, Fault> {
    let token = text(body, &["spec", "token"]);
    if token.is_empty() {
        return Err(Fault::BadRequest("token is required for TokenReview in authentication".into()));
    }
    let status = match authenticator.token(token, &strings(body, &["spec", "audiences"]), now) {
        Ok(verified) => json!({
            "authenticated": true,
            "user": verified.identity.to_user_info(),
            "audiences": verified.audiences,
        }),
        Err(_) => json!({"user": {}, "error": "[invalid bearer token, unknown]"}),
    };
    Ok(with_status(body, status))
}

/// Answers a posted `TokenRequest` for a ServiceAccount. `id` becomes the token's unique id.
///
/// # Errors
/// [`Fault`], to be answered as it is.
pub fn token_request(
    issuer: &Issuer,
    objects: &dyn Objects,
    namespace: &str,
    name: &str,
    body: &Value,
    id: &str,
    now: Timestamp,
) -> Result<Value, Fault> {
    const SHORTEST: i64 = 600;
    const LONGEST: i64 = 1 << 32;
    let invalid = |causes| Fault::Invalid {
        kind: "TokenRequest".into(),
        group: "authentication.k8s.io".into(),
        name: String::new(),
        causes,
    };
    for (field, url) in [("name", name), ("namespace", namespace)] {
        let own = text(body, &["metadata", field]);
        if !own.is_empty() && own != url {
            let detail = format!("must match the service account {field} if specified");
            return Err(invalid(vec![Cause::invalid(&format!("metadata.{field}"), &json!(own), &detail)]));
        }
    }
    let account = objects
        .get("", "serviceaccounts", namespace, name)
        .ok_or_else(|| Fault::NotFound("serviceaccounts".into(), name.into()))?;
    let uid = text(&account, &["metadata", "uid"]);
    let asked_uid = text(body, &["metadata", "uid"]);
    if !asked_uid.is_empty() && asked_uid != uid {
        let detail = format!(
            "the UID in the token request ({asked_uid}) does not match the UID of the service account ({uid})"
        );
        return Err(Fault::Conflict("TokenRequest.authentication.k8s.io".into(), name.into(), detail));
    }
    let seconds = match at(body, &["spec", "expirationSeconds"]) {
        None | Some(Value::Null) => 3600,
        Some(value) => value.as_i64().unwrap_or(0),
    };
    let range = if seconds < SHORTEST {
        Some("may not specify a duration less than 10 minutes")
    } else if seconds > LONGEST {
        Some("may not specify a duration larger than 2^32 seconds")
    } else {
        None
    };
    if let Some(detail) = range {
        return Err(invalid(vec![Cause::invalid("spec.expirationSeconds", &json!(seconds), detail)]));
    }
    let mut audiences = strings(body, &["spec", "audiences"]);
    if audiences.is_empty() {
        audiences.push(ISSUER.into());
    }
    let (bound, node) = match at(body, &["spec", "boundObjectRef"]) {
        None | Some(Value::Null) => (None, None),
        Some(reference) => bind(objects, namespace, name, reference)?,
    };
    let claims = Claims {
        namespace,
        name,
        uid,
        audiences: &audiences,
        seconds,
        bound: bound.as_ref(),
        node: node.as_ref().map(|(name, uid)| (name.as_str(), uid.as_str())),
    };
    let token = issuer
        .issue(&claims, id, now)
        .ok_or_else(|| Fault::Internal("failed to generate token: the random source failed".into()))?;
    let end = now + jiff::SignedDuration::from_secs(seconds);
    let mut out = with_status(body, json!({"token": token, "expirationTimestamp": second(end)}));
    out["kind"] = json!("TokenRequest");
    out["apiVersion"] = json!("authentication.k8s.io/v1");
    out["metadata"]["name"] = json!(name);
    out["metadata"]["namespace"] = json!(namespace);
    out["metadata"]["uid"] = json!(uid);
    out["metadata"]["creationTimestamp"] = json!(second(now));
    out["spec"]["audiences"] = json!(audiences);
    out["spec"]["expirationSeconds"] = json!(seconds);
    out["spec"]["boundObjectRef"] = at(body, &["spec", "boundObjectRef"]).cloned().unwrap_or(Value::Null);
    Ok(out)
}

type Binding = (Option<Bound>, Option<(String, String)>);

fn bind(objects: &dyn Objects, namespace: &str, account: &str, reference: &Value) -> Result<Binding, Fault> {
    let (version, kind) = (text(reference, &["apiVersion"]), text(reference, &["kind"]));
    let name = text(reference, &["name"]);
    let (plural, scope) = match (version, kind) {
        ("v1", "Pod") => ("pods", namespace),
        ("v1", "Secret") => ("secrets", namespace),
        ("v1", "Node") => ("nodes", ""),
        _ => {
            let (group, version) = version.split_once('/').unwrap_or(("", version));
            let shown = format!("{group}/{version}, Kind={kind}");
            return Err(Fault::BadRequest(format!("cannot bind token to object of type {shown}")));
        }
    };
    let object =
        objects.get("", plural, scope, name).ok_or_else(|| Fault::NotFound(plural.into(), name.into()))?;
    let uid = text(&object, &["metadata", "uid"]);
    let mut node = None;
    if kind == "Pod" {
        if text(&object, &["spec", "serviceAccountName"]) != account {
            let account = super::quoted(account);
            let message =
                format!("cannot bind token for serviceaccount {account} to pod running with different serviceaccount name.");
            return Err(Fault::BadRequest(message));
        }
        let host = text(&object, &["spec", "nodeName"]);
        if !host.is_empty() {
            let uid = objects.get("", "nodes", "", host).map(|node| text(&node, &["metadata", "uid"]).to_owned());
            node = Some((host.to_owned(), uid.unwrap_or_default()));
        }
    }
    let asked = text(reference, &["uid"]);
    if !asked.is_empty() && asked != uid {
        let detail = format!(
            "the UID in the bound object reference ({asked}) does not match the UID in record. \
             The object might have been deleted and then recreated"
        );
        return Err(Fault::Conflict(kind.into(), name.into(), detail));
    }
    Ok((Some(Bound { kind: kind.into(), name: name.into(), uid: uid.into() }), node))
}
