//! Admission webhooks: MutatingWebhookConfiguration and ValidatingWebhookConfiguration.
//!
//! The hooks are kept ready in a table that is rebuilt when a configuration is written: a write that no hook asks for costs
//! one comparison. Those that one asks for are made without holding the object's lock, and again when somebody came between.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use base64::Engine;
use http::StatusCode;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::admission::{self, Operation};
use crate::core::{Call, Core};
use crate::kinds;
use crate::object::{self, at, text};
use crate::outbound;
use crate::policies;
use crate::status::ApiError;

const GROUP: &str = "admissionregistration.k8s.io";

/// One hook with the configuration it is in.
#[derive(Debug)]
struct Hook {
    mutating: bool,
    name: String,
    hook: Value,
}

/// The hooks of one server in the order in which they are called.
#[derive(Debug, Default)]
pub(crate) struct Webhooks {
    all: ArcSwap<Vec<Arc<Hook>>>,
    building: Mutex<()>,
}

/// Reads the configurations again. Called when one of them was written, and at the start.
pub(crate) fn changed(core: &Core) {
    let _building = core.webhooks.building.lock();
    let mut all = Vec::new();
    for (mutating, plural) in [(true, "mutatingwebhookconfigurations"), (false, "validatingwebhookconfigurations")] {
        // A scan is in order of the names, as they are called.
        core.store.scan(&format!("{GROUP}/{plural}"), "", &mut |entry| {
            let configuration = object::decode(&entry.value);
            let hooks = configuration.get("webhooks").and_then(Value::as_array).cloned().unwrap_or_default();
            all.extend(hooks.into_iter().map(|hook| Arc::new(Hook { mutating, name: text(&hook, &["name"]).to_owned(), hook })));
        });
    }
    core.webhooks.all.store(Arc::new(all));
}

/// The hooks that a request may concern, by their rules alone.
fn asked(call: &Call, operation: Operation, mutating: Option<bool>) -> Vec<Arc<Hook>> {
    let all = call.core.webhooks.all.load();
    // Nobody decides over the configurations themselves: a broken hook could never be removed.
    if all.is_empty() || call.resource.group == GROUP {
        return Vec::new();
    }
    let name = call.info.name.clone();
    let request = admission::request(call, operation, None, &name);
    let fits = |hook: &&Arc<Hook>| {
        mutating.is_none_or(|wanted| hook.mutating == wanted) && hook.hook["rules"].as_array().is_some_and(|rules| rules.iter().any(|rule| policies::rule_fits(&request, rule)))
    };
    all.iter().filter(fits).cloned().collect()
}

/// Whether any hook may have a say in a request.
pub(crate) fn concern(call: &Call, operation: Operation) -> bool {
    !asked(call, operation, None).is_empty()
}

/// One review, as far as it is the same for all hooks.
struct Review<'a> {
    call: &'a Call,
    operation: Operation,
    old: Option<&'a Value>,
    dry_run: bool,
}

impl Review<'_> {
    /// Whether the selectors and conditions of a hook want the object too.
    fn wanted(&self, hook: &Hook, object: &Value) -> Result<bool, ApiError> {
        let name = object::name(if object.is_null() { self.old.unwrap_or(object) } else { object }).to_owned();
        let request = admission::request(self.call, self.operation, self.old, &name);
        let subject = if object.is_null() { self.old.unwrap_or(object) } else { object };
        let namespace = policies::namespace_of(&request, subject);
        if !namespace.is_null() && !policies::selected(hook.hook.get("namespaceSelector"), at(&namespace, &["metadata", "labels"])) {
            return Ok(false);
        }
        let fits = |o: &Value| policies::selected(hook.hook.get("objectSelector"), at(o, &["metadata", "labels"]));
        if !(fits(object) || self.old.is_some_and(fits)) {
            return Ok(false);
        }
        let conditions = json!({"spec": {"matchConditions": hook.hook.get("matchConditions").cloned().unwrap_or_default()}});
        match policies::Scope::new(&request, &Value::Null, object).prepare(&conditions) {
            Ok(holds) => Ok(holds),
            Err(_) if text(&hook.hook, &["failurePolicy"]) == "Ignore" => Ok(false),
            Err(why) => Err(ApiError::forbidden(&self.call.resource.group, &self.call.resource.plural, &name, &why)),
        }
    }

    fn question(&self, object: &Value, uid: &str) -> Value {
        let resource = &self.call.resource;
        let kind = json!({"group": resource.group, "version": resource.version, "kind": resource.kind});
        let plural = json!({"group": resource.group, "version": resource.version, "resource": resource.plural});
        let (operation, options) = match self.operation {
            Operation::Create => ("CREATE", "CreateOptions"),
            Operation::Update => ("UPDATE", "UpdateOptions"),
            Operation::Delete => ("DELETE", "DeleteOptions"),
        };
        let mut request = json!({
            "uid": uid, "kind": kind, "resource": plural, "requestKind": kind, "requestResource": plural,
            "name": object::name(self.old.unwrap_or(object)), "operation": operation, "userInfo": self.call.who.to_user_info(),
            "object": object, "oldObject": self.old, "dryRun": self.dry_run,
            "options": {"kind": options, "apiVersion": "meta.k8s.io/v1"},
        });
        if resource.namespaced || resource.is("", "namespaces") {
            request["namespace"] = json!(self.call.info.namespace);
        }
        if !self.call.info.subresource.is_empty() {
            request["subResource"] = json!(self.call.info.subresource);
            request["requestSubResource"] = json!(self.call.info.subresource);
        }
        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request})
    }

    /// Asks a hook; nothing when it could not be asked and that does not matter.
    async fn ask(&self, hook: &Hook, object: &Value) -> Result<Option<Value>, ApiError> {
        if self.dry_run && !matches!(text(&hook.hook, &["sideEffects"]), "None" | "NoneOnDryRun") {
            return Err(ApiError::bad_request(format!("admission webhook \"{}\" does not support dry run", hook.name)));
        }
        let uid = uuid::Uuid::new_v4().to_string();
        let seconds = hook.hook["timeoutSeconds"].as_u64().unwrap_or(10).clamp(1, 30);
        let config = hook.hook.get("clientConfig").cloned().unwrap_or_default();
        let answer = outbound::post(&self.call.core, &config, &self.question(object, &uid), Duration::from_secs(seconds)).await;
        let why = match answer {
            Ok(mut answer) => {
                let response = answer["response"].take();
                if text(&response, &["uid"]) == uid { return Ok(Some(response)) }
                format!("expected response.uid=\"{uid}\", got \"{}\"", text(&response, &["uid"]))
            }
            Err(error) => format!("failed to call webhook: {error}"),
        };
        if text(&hook.hook, &["failurePolicy"]) == "Ignore" {
            tracing::warn!(hook = hook.name, why, "ask an admission webhook");
            return Ok(None);
        }
        Err(ApiError::internal(format!("failed calling webhook \"{}\": {why}", hook.name)))
    }
}

/// A refusal in the words of the hook.
fn refusal(hook: &Hook, response: &Value) -> ApiError {
    let said = ["message", "reason"].iter().map(|field| text(response, &["status", field])).find(|words| !words.is_empty());
    let message = match said {
        Some(words) => format!("admission webhook \"{}\" denied the request: {words}", hook.name),
        None => format!("admission webhook \"{}\" denied the request without explanation", hook.name),
    };
    let code = at(response, &["status", "code"]).and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
    let mut error = ApiError::bad_request(message);
    error.code = code.filter(|code| *code >= 400).and_then(|code| StatusCode::from_u16(code).ok()).unwrap_or(StatusCode::BAD_REQUEST);
    error.reason = match text(response, &["status", "reason"]) {
        "Unauthorized" => "Unauthorized",
        "Forbidden" => "Forbidden",
        "NotFound" => "NotFound",
        "AlreadyExists" => "AlreadyExists",
        "Conflict" => "Conflict",
        "Invalid" => "Invalid",
        "BadRequest" => "BadRequest",
        "TooManyRequests" => "TooManyRequests",
        "InternalError" => "InternalError",
        _ => "",
    };
    error
}

fn warnings(response: &Value) -> impl Iterator<Item = String> + '_ {
    response["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned)
}

/// The object after a hook's patch.
fn patched(call: &Call, hook: &Hook, response: &Value, object: &Value) -> Result<Option<Value>, ApiError> {
    let Some(patch) = response["patch"].as_str() else { return Ok(None) };
    let fault = |why: String| ApiError::internal(format!("admission webhook \"{}\": {why}", hook.name));
    if text(response, &["patchType"]) != "JSONPatch" {
        return Err(fault(format!("unsupported patch type \"{}\"", text(response, &["patchType"]))));
    }
    let bytes = base64::engine::general_purpose::STANDARD.decode(patch).map_err(|e| fault(e.to_string()))?;
    let patch: Value = serde_json::from_slice(&bytes).map_err(|e| fault(e.to_string()))?;
    let operations = manifest::patch::parse(&patch).map_err(|e| fault(e.to_string()))?;
    let mut new = object.clone();
    manifest::patch::apply_in_place(&mut new, &operations).map_err(|e| fault(e.to_string()))?;
    let mut new = kinds::read(&call.resource, new)?.object;
    kinds::default(&call.resource, &mut new);
    Ok(Some(new))
}

/// Lets the mutating hooks change an object, in their order; those that ask for it see later changes once more.
pub(crate) async fn mutate(call: &mut Call, operation: Operation, old: Option<&Value>, new: &mut Value) -> Result<(), ApiError> {
    let hooks = asked(call, operation, Some(true));
    if hooks.is_empty() {
        return Ok(());
    }
    let dry_run = call.query.dry_run()?;
    let mut told = Vec::new();
    {
        let review = Review { call, operation, old, dry_run };
        let mut seen: Vec<Option<Value>> = vec![None; hooks.len()];
        for round in 0..2 {
            for (n, hook) in hooks.iter().enumerate() {
                let again = text(&hook.hook, &["reinvocationPolicy"]) == "IfNeeded" && seen[n].as_ref().is_some_and(|seen| seen != new);
                if (round > 0 && !again) || !review.wanted(hook, new)? {
                    continue;
                }
                if let Some(response) = review.ask(hook, new).await? {
                    told.extend(warnings(&response));
                    if response["allowed"] != Value::Bool(true) {
                        return Err(refusal(hook, &response));
                    }
                    if let Some(changed) = patched(call, hook, &response, new)? {
                        *new = changed;
                    }
                }
                seen[n] = Some(new.clone());
            }
        }
    }
    call.warnings.extend(told);
    Ok(())
}

/// Asks the validating hooks, all at once. Of a removal `new` is null.
pub(crate) async fn validate(call: &mut Call, operation: Operation, old: Option<&Value>, new: &Value) -> Result<(), ApiError> {
    let mut hooks = asked(call, operation, Some(false));
    if operation == Operation::Delete {
        // A removal has nothing to change: mutating hooks can only refuse it.
        hooks.extend(asked(call, operation, Some(true)));
    }
    if hooks.is_empty() {
        return Ok(());
    }
    let dry_run = call.query.dry_run()?;
    let mut told = Vec::new();
    {
        let review = Review { call, operation, old, dry_run };
        let mut wanted = Vec::new();
        for hook in &hooks {
            if review.wanted(hook, new)? {
                wanted.push(hook);
            }
        }
        let answers = futures::future::join_all(wanted.iter().map(|hook| review.ask(hook, new))).await;
        for (hook, answer) in wanted.into_iter().zip(answers) {
            let Some(response) = answer? else { continue };
            told.extend(warnings(&response));
            if response["allowed"] != Value::Bool(true) {
                return Err(refusal(hook, &response));
            }
        }
    }
    call.warnings.extend(told);
    Ok(())
}
