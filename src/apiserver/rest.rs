//! Requests to the resource API: which handler answers, and the steps that all writes share.

use http::request::Parts;
use http::{Response, StatusCode};
use serde_json::{Map, Value, json};
use store::{Expect, WriteError};

use crate::admission::Operation;
use crate::body::{self, Body};
use crate::core::Call;
use crate::input::{self, Input};
use crate::kinds;
use crate::object;
use crate::query::FieldValidation;
use crate::resource::claimed;
use crate::respond::{Doc, answer};
use crate::status::{ApiError, Cause};

/// Answers a request whose resource is known.
pub(crate) async fn dispatch(call: &mut Call, parts: Parts, request_body: Body) -> Result<Response<Body>, ApiError> {
    let verb = call.info.verb;
    let options = match verb {
        "create" => "CreateOptions",
        "update" => "UpdateOptions",
        "patch" => "PatchOptions",
        _ => "",
    };
    // What is passed on to a node has options of its own.
    if !options.is_empty() && !matches!(call.info.subresource.as_str(), "proxy" | "exec" | "attach" | "portforward") {
        call.query.write_options(options)?;
    }
    if call.info.subresource.is_empty() {
        let served = match verb {
            "create" if !call.info.name.is_empty() => false,
            "update" | "patch" if call.info.name.is_empty() => false,
            verb => call.resource.allows(verb) || (verb == "watch" && call.resource.allows("list") && !call.info.name.is_empty()),
        };
        if !served {
            return Err(ApiError::method_not_allowed());
        }
        if call.resource.namespaced && call.info.namespace.is_empty() && matches!(verb, "create" | "get" | "update" | "patch" | "delete" | "deletecollection") {
            return Err(if call.info.name.is_empty() { ApiError::method_not_allowed() } else { ApiError::no_route() });
        }
        if !call.resource.namespaced && !call.info.namespace.is_empty() && !call.resource.is("", "namespaces") {
            return Err(ApiError::no_route());
        }
    } else {
        return crate::subresource::dispatch(call, parts, request_body).await;
    }
    match verb {
        "get" => crate::read::get(call).await,
        "list" => crate::read::list(call).await,
        "watch" => crate::watch::watch(call),
        "create" => {
            let bytes = body::read(request_body).await?;
            create(call, &bytes).await
        }
        "update" => {
            let bytes = body::read(request_body).await?;
            crate::update::replace(call, &bytes).await
        }
        "patch" => {
            let bytes = body::read(request_body).await?;
            crate::patch::patch(call, &bytes).await
        }
        "delete" => {
            let bytes = body::read(request_body).await?;
            crate::delete::one(call, &bytes).await
        }
        "deletecollection" => {
            let bytes = body::read(request_body).await?;
            crate::delete::collection(call, &bytes).await
        }
        _ => Err(ApiError::method_not_allowed()),
    }
}

impl Call {
    /// Store key of the object with this name.
    pub(crate) fn key(&self, name: &str) -> String {
        object::key(self.resource.namespaced, &self.info.namespace, name)
    }

    /// `NotFound` for a name.
    pub(crate) fn not_found(&self, name: &str) -> ApiError {
        ApiError::not_found(&self.resource.group, &self.resource.plural, name)
    }

    /// `Invalid` for a name.
    pub(crate) fn invalid(&self, name: &str, faults: &[schema::Fault]) -> ApiError {
        ApiError::invalid(&self.resource.group, &self.resource.kind, name, faults.iter().map(kinds::cause).collect())
    }

    /// What a failed write means to the client.
    pub(crate) fn write_error(&self, name: &str, error: WriteError) -> ApiError {
        match error {
            WriteError::Exists(_) => ApiError::already_exists(&self.resource.group, &self.resource.plural, name),
            WriteError::Conflict(_) => ApiError::modified(&self.resource.group, &self.resource.plural, name),
            WriteError::Disk(text) => ApiError::internal(format!("the store takes no writes: {text}")),
            WriteError::Closed => ApiError::unavailable("the server is shutting down"),
        }
    }

    /// Reads an object from a request body: checks that it is what the path says, its types and its unknown fields.
    pub(crate) fn object(&mut self, input: Input) -> Result<Value, ApiError> {
        let Input { value, faults, order, binary } = input;
        let value = self.claimed(value)?;
        self.read_object(value, faults, &order, binary)
    }

    /// Checks that a body is of the kind that the path says.
    pub(crate) fn claimed(&self, mut value: Value) -> Result<Value, ApiError> {
        let resource = &self.resource;
        let wanted = resource.api_version();
        if !value.is_object() {
            return Err(ApiError::bad_request(match value {
                Value::Null => format!("Object 'Kind' is missing in '{}'", ""),
                _ => "couldn't get version/kind; json parse error: json: cannot unmarshal into Go value of type struct".to_owned(),
            }));
        }
        {
            let (version, kind) = claimed(&value);
            if kind.is_empty() && version.is_empty() && resource.native.is_some() {
                let map = object::child_root(&mut value);
                map.insert("apiVersion".into(), json!(wanted));
                map.insert("kind".into(), json!(resource.kind));
            } else if kind.is_empty() {
                return Err(ApiError::bad_request(format!("Object 'Kind' is missing in '{value}'")));
            } else if kind != resource.kind || version != wanted {
                if kind == resource.kind && !version.is_empty() {
                    return Err(ApiError::bad_request(format!("the API version in the data ({version}) does not match the expected API version ({wanted})")));
                }
                let shown = |v: &str, k: &str| {
                    let (g, v) = crate::resource::split_api_version(v);
                    format!("{}, Kind={k}", if g.is_empty() { format!("/{v}") } else { format!("{g}/{v}") })
                };
                return Err(ApiError::bad_request(format!("{} in the body is not {}", shown(version, kind), shown(&wanted, &resource.kind))));
            }
        }
        Ok(value)
    }

    /// Types and unknown fields, by the schema; warnings or refusal as the query says.
    pub(crate) fn read_object(&mut self, value: Value, faults: Vec<String>, order: &[String], binary: bool) -> Result<Value, ApiError> {
        let read = kinds::read(&self.resource, value)?;
        self.validated(read, faults, order, binary)
    }

    /// The object that was read, when its unknown and doubled fields are allowed or only warned of.
    pub(crate) fn validated(&mut self, read: schema::decode::Decoded, mut faults: Vec<String>, order: &[String], binary: bool) -> Result<Value, ApiError> {
        let validation = self.query.field_validation()?;
        faults.extend(read.unknown);
        if self.resource.native.is_some() {
            input::in_order(&mut faults, order);
        }
        if !faults.is_empty() && !binary {
            match validation {
                FieldValidation::Ignore => {}
                FieldValidation::Warn => self.warnings.extend(faults),
                FieldValidation::Strict => {
                    return Err(ApiError::bad_request(format!(
                        "{} in version \"{}\" cannot be handled as a {}: strict decoding error: {}",
                        self.resource.kind,
                        self.resource.version,
                        self.resource.kind,
                        faults.join(", ")
                    )));
                }
            }
        }
        Ok(read.object)
    }

    /// Checks namespace and name of a body against the path and fills what is absent.
    pub(crate) fn place(&self, object: &mut Value, name_must_match: bool) -> Result<(), ApiError> {
        if self.resource.namespaced {
            let given = object::namespace(object);
            if !given.is_empty() && given != self.info.namespace {
                return Err(ApiError::bad_request(format!(
                    "the namespace of the provided object does not match the namespace sent on the request: {given} != {}",
                    self.info.namespace
                ))
                .trim_pair());
            }
            let namespace = self.info.namespace.clone();
            object::metadata(object).insert("namespace".into(), json!(namespace));
        } else if at_text(object, "namespace").is_some_and(|n| !n.is_empty()) {
            return Err(ApiError::bad_request("the namespace of the provided object does not match the namespace sent on the request"));
        } else {
            object::metadata(object).remove("namespace");
        }
        if name_must_match {
            let given = object::name(object);
            if given.is_empty() {
                object::metadata(object).insert("name".into(), json!(self.info.name));
            } else if given != self.info.name {
                return Err(ApiError::bad_request(format!("the name of the object ({given}) does not match the name on the URL ({})", self.info.name)));
            }
        }
        Ok(())
    }
}

fn at_text<'a>(object: &'a Value, field: &str) -> Option<&'a str> {
    object::at(object, &["metadata", field]).and_then(Value::as_str)
}

impl ApiError {
    /// Kubernetes does not print the pair of namespaces.
    fn trim_pair(mut self) -> Self {
        if let Some((head, _)) = self.message.split_once(": ") {
            self.message = head.to_owned();
        }
        self
    }
}

async fn create(call: &mut Call, bytes: &[u8]) -> Result<Response<Body>, ApiError> {
    call.query.dry_run()?;
    let input = input::read(call.content_type.as_deref(), bytes)?;
    if !call.resource.native.is_none_or(schema::catalog::Resource::stored) {
        let object = call.object(input)?;
        return crate::reviews::create(call, object);
    }
    let mut object = call.object(input)?;
    call.place(&mut object, false)?;
    let doc = insert(call, object).await?;
    Ok(answer(call, StatusCode::CREATED, doc))
}

/// Creates an object that is already read and placed; generated names are tried again when taken.
pub(crate) async fn insert(call: &mut Call, object: Value) -> Result<Doc, ApiError> {
    let generate = object::name(&object).is_empty() && !object::text(&object, &["metadata", "generateName"]).is_empty();
    for attempt in 0.. {
        let mut object = object.clone();
        if generate {
            let name = generated(object::text(&object, &["metadata", "generateName"]));
            object::metadata(&mut object).insert("name".into(), json!(name));
        }
        match insert_once(call, object, false).await {
            Err(error) if generate && error.reason == "AlreadyExists" && attempt < 8 => {}
            other => return other,
        }
    }
    Err(ApiError::internal("a free name was not found"))
}

/// Creates an object. `applied`: server-side apply made its managed fields already.
pub(crate) async fn insert_once(call: &mut Call, mut object: Value, applied: bool) -> Result<Doc, ApiError> {
    let core = call.core.clone();
    let resource = call.resource.clone();
    let name = object::name(&object).to_owned();
    let now = core.now();
    let dry_run = call.query.dry_run()?;
    if !object::revision_of(&object).is_empty() {
        return Err(ApiError::internal("resourceVersion should not be set on objects to be created"));
    }
    kinds::default(&resource, &mut object);
    {
        let metadata = object::metadata(&mut object);
        for field in ["uid", "resourceVersion", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"] {
            metadata.remove(field);
        }
        metadata.insert("uid".into(), json!(uuid::Uuid::new_v4().to_string()));
        metadata.insert("creationTimestamp".into(), json!(object::instant(now)));
        prune_empty(metadata);
    }
    if !applied {
        let manager = call.query.manager(call.agent.as_deref());
        kinds::track(&resource, None, &mut object, &manager, "", now);
    }
    kinds::prepare_create(&resource, &mut object);
    // Allocations are given back when the write does not happen.
    let mut held = crate::services::Held::default();
    crate::admission::admit(call, Operation::Create, None, &mut object)?;
    crate::webhooks::mutate(call, Operation::Create, None, &mut object).await?;
    crate::admission::allocate(call, Operation::Create, None, &mut object, &mut held)?;
    let faults = kinds::validate_create(&resource, &object);
    if !faults.is_empty() {
        return Err(call.invalid(&name, &faults));
    }
    crate::admission::validate(call, Operation::Create, None, &object)?;
    crate::webhooks::validate(call, Operation::Create, None, &object).await?;
    call.warnings.extend(kinds::warnings(&resource, &object));
    let shown = dry_run.then(|| object.clone());
    let stored = call.to_stored(object).await?;
    if let Some(shown) = shown {
        if core.store.latest(&resource.table, &call.key(&name)).is_some() {
            return Err(ApiError::already_exists(&resource.group, &resource.plural, &name));
        }
        return Ok(Doc::Value(shown));
    }
    let ticket = {
        let key = call.key(&name);
        let _lock = core.lock(&resource.table, &key);
        let stored = crate::crd::before_create(&core, &resource, stored);
        core.put(&resource, &key, Expect::Absent, &stored).map_err(|e| call.write_error(&name, e))?
    };
    let entry = ticket.durable().await.map_err(|e| call.write_error(&name, e))?;
    held.keep();
    crate::hooks::written(&core, &resource, None, &entry);
    call.doc(entry).await
}

/// Removes empty maps and lists that Go's encoder leaves out.
pub(crate) fn prune_empty(metadata: &mut Map<String, Value>) {
    for field in ["labels", "annotations", "finalizers", "ownerReferences", "managedFields"] {
        let empty = match metadata.get(field) {
            Some(Value::Null) => true,
            Some(Value::Array(list)) => list.is_empty(),
            Some(Value::Object(map)) => map.is_empty(),
            _ => false,
        };
        if empty {
            metadata.remove(field);
        }
    }
}

/// A name from a prefix: five characters of Kubernetes' alphabet without vowels and look-alikes.
pub(crate) fn generated(prefix: &str) -> String {
    use rand::Rng;
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut random = rand::rng();
    // A name may have 63 characters, five of them are ours.
    let mut name: String = prefix.chars().take(58).collect();
    for _ in 0..5 {
        name.push(char::from(ALPHABET[random.random_range(0..ALPHABET.len())]));
    }
    name
}

/// A single fault of a field.
pub(crate) fn fault(reason: &str, field: &str, message: impl Into<String>) -> Cause {
    Cause { reason: reason.into(), message: message.into(), field: field.into() }
}
