//! Checks and changes between reading a write and storing it: namespace life cycle, allocation, and what others hang in.

use serde_json::Value;

use crate::auth::Identity;
use crate::core::{Call, Core};
use crate::object;
use crate::resource::Resource;
use crate::services::{self, Held};
use crate::status::{ApiError, Cause};

/// What is being done to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// It is new.
    Create,
    /// It changes.
    Update,
    /// It is removed.
    Delete,
}

/// One write as admission sees it.
#[derive(Debug)]
pub struct Request<'a> {
    /// What is done.
    pub operation: Operation,
    /// To which resource.
    pub resource: &'a Resource,
    /// Subresource, empty for the object itself.
    pub subresource: &'a str,
    /// In which namespace, empty at the cluster scope.
    pub namespace: &'a str,
    /// Name, empty when it is yet to be generated.
    pub name: &'a str,
    /// By whom.
    pub who: &'a Identity,
    /// The form before, in the version of the route.
    pub old: Option<&'a Value>,
    /// Nothing will be stored.
    pub dry_run: bool,
    /// The server's state.
    pub core: &'a Core,
}

/// A step of admission. Both calls run under the object's lock: they read, they never wait.
pub trait Admission: Send + Sync + 'static {
    /// Changes the object, or refuses.
    fn mutate(&self, request: &Request<'_>, object: &mut Value) -> Result<(), ApiError> {
        let _ = (request, object);
        Ok(())
    }

    /// Refuses, or not; texts it returns become warnings. Of a removal, `object` is the old form.
    fn validate(&self, request: &Request<'_>, object: &Value) -> Result<Vec<String>, ApiError> {
        let _ = (request, object);
        Ok(Vec::new())
    }
}

pub(crate) fn request<'a>(call: &'a Call, operation: Operation, old: Option<&'a Value>, name: &'a str) -> Request<'a> {
    Request {
        operation,
        resource: &call.resource,
        subresource: &call.info.subresource,
        namespace: if call.resource.namespaced { &call.info.namespace } else { "" },
        name,
        who: &call.who,
        old,
        dry_run: call.query.dry_run().unwrap_or(false),
        core: &call.core,
    }
}

/// Changes that admission makes.
pub(crate) fn admit(call: &Call, operation: Operation, old: Option<&Value>, object: &mut Value) -> Result<(), ApiError> {
    let name = object::name(object).to_owned();
    let request = request(call, operation, old, &name);
    namespace_exists(&request)?;
    crate::defaults::mutate(&request, object)?;
    let steps = call.core.admission.read().clone();
    for step in &steps {
        step.mutate(&request, object)?;
    }
    Ok(())
}

/// Gives the object what the server gives out. It is held by `held` until the write is done.
pub(crate) fn allocate(call: &Call, operation: Operation, old: Option<&Value>, object: &mut Value, held: &mut Held) -> Result<(), ApiError> {
    let name = object::name(object).to_owned();
    services::allocate(&request(call, operation, old, &name), object, held)
}

/// Refusals of admission.
pub(crate) fn validate(call: &mut Call, operation: Operation, old: Option<&Value>, object: &Value) -> Result<(), ApiError> {
    let mut warnings = Vec::new();
    {
        let name = object::name(object).to_owned();
        let request = request(call, operation, old, &name);
        protected(&request)?;
        time_zone(&request, object)?;
        crate::limits::check(&request, object)?;
        crate::guard::escalation(&request, object)?;
        let steps = call.core.admission.read().clone();
        for step in &steps {
            warnings.extend(step.validate(&request, object)?);
        }
    }
    call.warnings.extend(warnings);
    Ok(())
}

/// Nothing is created in a namespace that does not exist or is going.
fn namespace_exists(request: &Request<'_>) -> Result<(), ApiError> {
    if request.operation != Operation::Create || request.namespace.is_empty() || !request.subresource.is_empty() {
        return Ok(());
    }
    // Access reviews name namespaces that need not exist.
    if request.resource.native.is_some_and(|n| !n.stored()) {
        return Ok(());
    }
    let Some(entry) = request.core.store.latest("/namespaces", request.namespace) else {
        return Err(ApiError::not_found("", "namespaces", request.namespace));
    };
    if request.resource.is("", "events") || request.resource.is("events.k8s.io", "events") {
        return Ok(());
    }
    let namespace = object::decode(&entry.value);
    if object::deleting(&namespace) || object::text(&namespace, &["status", "phase"]) == "Terminating" {
        let why = format!("unable to create new content in namespace {} because it is being terminated", request.namespace);
        let mut error = ApiError::forbidden(&request.resource.group, &request.resource.plural, request.name, &why);
        error.causes = vec![Cause { reason: "NamespaceTerminating".into(), message: format!("namespace {} is being terminated", request.namespace), field: "metadata.namespace".into() }];
        return Err(error);
    }
    Ok(())
}

/// The time zone of a CronJob must be one that is known here; without any table of zones nothing is refused.
fn time_zone(request: &Request<'_>, object: &Value) -> Result<(), ApiError> {
    if !request.resource.is("batch", "cronjobs") || request.operation == Operation::Delete {
        return Ok(());
    }
    let zone = object::text(object, &["spec", "timeZone"]);
    let before = request.old.map_or("", |old| object::text(old, &["spec", "timeZone"]));
    let zones = jiff::tz::db();
    if zone.is_empty() || zone == before || zones.is_definitively_empty() || zones.get(zone).is_ok() {
        return Ok(());
    }
    let fault = schema::Fault::invalid(&schema::Path::new("spec.timeZone"), zone, format!("unknown time zone {zone}"));
    Err(ApiError::invalid(&request.resource.group, &request.resource.kind, request.name, vec![crate::kinds::cause(&fault)]))
}

/// Namespaces that a server cannot be without.
fn protected(request: &Request<'_>) -> Result<(), ApiError> {
    if request.operation == Operation::Delete && request.resource.is("", "namespaces") && matches!(request.name, "default" | "kube-system" | "kube-public") {
        return Err(ApiError::forbidden("", "namespaces", request.name, "this namespace may not be deleted"));
    }
    Ok(())
}
