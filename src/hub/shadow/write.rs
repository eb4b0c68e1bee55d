//! Creating, replacing and deleting shadowed objects: the writes that end in a Manifest.

use api::known::{annotation, component, label};
use api::object;
use apiserver::body::Body;
use apiserver::status::ApiError;
use http::{Response, StatusCode};
use plan::kinds::KindInfo;
use serde_json::{json, Value};

use super::{passed_on, Call, MANAGER};
use crate::reply::json_body;

impl Call {
    pub(super) async fn create(&self, bytes: &[u8]) -> Result<Response<Body>, ApiError> {
        if !self.info.name.is_empty() {
            return Err(ApiError::method_not_allowed());
        }
        let sent = self.object(bytes)?;
        let object = self.prepared(sent, true).await?;
        let manifest = self.wrap(&object)?;
        let inner = self.inner();
        let path = self.with_dry_run(&inner.manifests.collection(&inner.reserved))?;
        let made = inner.parent.call("POST", &path, Some("application/json"), Some(&manifest)).await;
        let made = made.map_err(|error| match &error {
            kube::Error::Api(status) if status.code == 409 => {
                ApiError::already_exists(&self.kind.group, &self.kind.plural, object::name(&object))
            }
            _ => passed_on(error),
        })?;
        Ok(json_body(StatusCode::CREATED, &self.shown(&made)))
    }

    pub(super) async fn update(&self, bytes: &[u8]) -> Result<Response<Body>, ApiError> {
        if self.info.subresource == "scale" {
            return self.update_scale(bytes).await;
        }
        let name = self.info.name.clone();
        let sent = self.object(bytes)?;
        if object::name(&sent) != name {
            return Err(ApiError::bad_request("the name of the object does not match the name on the URL"));
        }
        let stored = self.stored(&name).await?;
        let replaced = self.replace(&stored, sent).await?;
        Ok(json_body(StatusCode::OK, &self.shown(&replaced)))
    }

    /// Puts an object in the place of a stored one; what identifies the template stays.
    pub(super) async fn replace(&self, stored: &Value, sent: Value) -> Result<Value, ApiError> {
        let version = object::resource_version(&sent).to_owned();
        if !version.is_empty() && version != object::resource_version(stored) {
            return Err(ApiError::modified(&self.kind.group, &self.kind.plural, &self.info.name));
        }
        let template = stored.get("template").cloned().unwrap_or_default();
        // Whoever sends the object as it was shown keeps the template's generation with it.
        let generation = sent.pointer("/metadata/generation").and(template.pointer("/metadata/generation")).cloned();
        let mut object = self.prepared(sent, false).await?;
        if let (Some(generation), Some(meta)) = (generation, object.get_mut("metadata").and_then(Value::as_object_mut)) {
            meta.insert("generation".to_owned(), generation);
        }
        // Without its uid and its creator's label, later patches and drift repair would not know the object again.
        let uid = template.get("metadata").and_then(|meta| meta.get("uid")).cloned();
        if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            match uid {
                Some(uid) => meta.insert("uid".to_owned(), uid),
                None => meta.remove("uid"),
            };
        }
        let made = self.wrap(&object)?;
        let mut next = stored.clone();
        next["template"] = made["template"].clone();
        if let Some(labels) = next["metadata"].as_object_mut() {
            let mut kept = labels.get("labels").and_then(Value::as_object).cloned().unwrap_or_default();
            // Labels of the template as it was go; those that controllers set (ids of Bases and Subscriptions) stay.
            for key in object::labels(&template).keys() {
                kept.remove(key);
            }
            if let Some(fresh) = made["metadata"]["labels"].as_object() {
                kept.extend(fresh.clone());
            }
            labels.insert("labels".to_owned(), Value::Object(kept));
            labels.remove("managedFields");
        }
        if next == *stored {
            return Ok(next);
        }
        let inner = self.inner();
        let path = self.with_dry_run(&inner.manifests.path(&inner.reserved, object::name(stored)))?;
        let answer = inner.parent.call("PUT", &path, Some("application/json"), Some(&next)).await;
        answer.map_err(|error| match &error {
            kube::Error::Api(status) if status.code == 409 => {
                ApiError::modified(&self.kind.group, &self.kind.plural, &self.info.name)
            }
            kube::Error::Api(status) if status.code == 404 => self.not_found(&self.info.name),
            _ => passed_on(error),
        })
    }

    pub(super) async fn delete(&self, bytes: &[u8]) -> Result<Response<Body>, ApiError> {
        let stored = self.stored(&self.info.name).await?;
        let inner = self.inner();
        let mut options: Value = if bytes.is_empty() {
            json!({"kind": "DeleteOptions", "apiVersion": "v1"})
        } else {
            serde_json::from_slice(bytes).map_err(|error| ApiError::bad_request(format!("read DeleteOptions: {error}")))?
        };
        for (field, text) in [("propagationPolicy", "propagationPolicy"), ("dryRun", "dryRun")] {
            if let Some(value) = self.query.text(text) {
                options[field] = if field == "dryRun" { json!([value]) } else { json!(value) };
            }
        }
        let path = inner.manifests.path(&inner.reserved, object::name(&stored));
        let answer = inner.parent.call("DELETE", &path, Some("application/json"), Some(&options)).await.map_err(passed_on)?;
        if answer["kind"] == "Manifest" {
            return Ok(json_body(StatusCode::OK, &self.shown(&answer)));
        }
        let status = apiserver::status::success(&self.kind.group, &self.kind.plural, &self.info.name, object::uid(&stored));
        Ok(json_body(StatusCode::OK, &status))
    }

    async fn update_scale(&self, bytes: &[u8]) -> Result<Response<Body>, ApiError> {
        let scale: Value = serde_json::from_slice(bytes).map_err(|error| ApiError::bad_request(format!("read the Scale: {error}")))?;
        let replicas = scale.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
        self.set_replicas(&self.stored(&self.info.name.clone()).await?, replicas).await
    }

    /// Writes `/spec/replicas` of a template and answers the Scale.
    pub(super) async fn set_replicas(&self, stored: &Value, replicas: i64) -> Result<Response<Body>, ApiError> {
        let mut template = stored.get("template").cloned().unwrap_or_default();
        if let Some(meta) = template.get_mut("metadata").and_then(Value::as_object_mut) {
            meta.remove("resourceVersion");
        }
        template["spec"]["replicas"] = json!(replicas);
        let next = self.replace(stored, template).await?;
        Ok(json_body(StatusCode::OK, &super::read::scale(&next)))
    }

    /// The object of a body, with the kind the route is for.
    pub(super) fn object(&self, bytes: &[u8]) -> Result<Value, ApiError> {
        let mut object: Value =
            serde_json::from_slice(bytes).map_err(|error| ApiError::bad_request(format!("read the object: {error}")))?;
        if !object.is_object() {
            return Err(ApiError::bad_request("read the object: the body is no JSON object"));
        }
        let wanted = (self.kind.api_version(), self.kind.kind.as_str());
        let got = (object::text(&object, "apiVersion").to_owned(), object::text(&object, "kind").to_owned());
        if got.1.is_empty() {
            object["apiVersion"] = json!(wanted.0);
            object["kind"] = json!(wanted.1);
        } else if (api::object::split_api_version(&got.0).0, got.1.as_str()) != (self.kind.group.as_str(), wanted.1) {
            return Err(ApiError::bad_request(format!(
                "{}, Kind={} in version {} does not belong to the resource {}",
                got.0, got.1, got.0, self.kind.plural
            )));
        }
        if self.kind.namespaced {
            let namespace = object::namespace(&object).to_owned();
            if namespace.is_empty() {
                object["metadata"]["namespace"] = json!(self.info.namespace);
            } else if namespace != self.info.namespace {
                return Err(ApiError::bad_request("the namespace of the provided object does not match the namespace sent on the request"));
            }
        }
        Ok(object)
    }

    /// Defaulted and validated by the parent, then trimmed of what belongs to that dry run only.
    async fn prepared(&self, mut object: Value, create: bool) -> Result<Value, ApiError> {
        plan::shadow::mark(&mut object);
        object::remove_annotation(&mut object, annotation::FEED_PROTECTION);
        if object::annotation(&object, annotation::SKIP_VALIDATING) == Some("true") {
            return Ok(as_sent(object, create));
        }
        let name = object::name(&object).to_owned();
        let namespace = object::namespace(&object).to_owned();
        let inner = self.inner();
        let mut probe = object.clone();
        if let Some(meta) = probe.get_mut("metadata").and_then(Value::as_object_mut) {
            for field in ["resourceVersion", "uid", "creationTimestamp", "generation", "managedFields", "ownerReferences"] {
                meta.remove(field);
            }
            if self.kind.namespaced {
                meta.insert("namespace".to_owned(), json!(inner.reserved));
            }
        }
        let path = format!("{}?dryRun=All&fieldManager={MANAGER}", self.kind.parent_collection(&inner.reserved));
        let mut answer = inner.parent.call("POST", &path, Some("application/json"), Some(&probe)).await;
        let taken = matches!(&answer, Err(kube::Error::Api(status)) if status.code == 409);
        if taken && self.kind.plural == "customresourcedefinitions" {
            // The name of a definition cannot be another: the one that the parent has is the template.
            let path = format!("{}/{}", self.kind.parent_collection(""), cluster::resource::escaped(&name));
            answer = inner.parent.call("GET", &path, None, None).await.map(|mut found| {
                if let Some(meta) = found.get_mut("metadata").and_then(Value::as_object_mut) {
                    // The parent's own bookkeeping.
                    meta.remove("finalizers");
                }
                found
            });
        } else if taken {
            // The parent has an object of this name itself: ask under another, which nobody can have.
            probe["metadata"]["name"] = json!(stand_in(&name, &self.kind.plural));
            answer = inner.parent.call("POST", &path, Some("application/json"), Some(&probe)).await;
        }
        let forbidden = matches!(&answer, Err(kube::Error::Api(status)) if status.code == 403);
        let untried = forbidden && !self.may_try().await;
        if untried {
            tracing::warn!(kind = self.kind.kind, group = self.kind.group, object = name, "stored untried: the hub may not create such objects in the parent");
            self.untried.get_or_init(|| ());
            if create {
                return Ok(as_sent(object, create));
            }
        }
        let mut made = if untried { Value::Null } else { answer.map_err(|error| self.refused(error, &name))? };
        if !create {
            // The parent has nothing against it; what replaces a template stands as it was sent, like the original's.
            if let Some(fields) = object.as_object_mut() {
                fields.remove("status");
            }
            if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                for field in ["resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"] {
                    meta.remove(field);
                }
            }
            return Ok(object);
        }
        plan::shadow::trim_dry_run(&mut made);
        let meta = made.get_mut("metadata").and_then(Value::as_object_mut);
        if let Some(meta) = meta {
            if !name.is_empty() {
                meta.insert("name".to_owned(), json!(name));
            }
            if self.kind.namespaced {
                meta.insert("namespace".to_owned(), json!(namespace));
            }
            if let Some(labels) = meta.get_mut("labels").and_then(Value::as_object_mut)
                && labels.contains_key("kubernetes.io/metadata.name")
                && !name.is_empty()
            {
                labels.insert("kubernetes.io/metadata.name".to_owned(), json!(name));
            }
        }
        Ok(made)
    }

    /// Whether the hub's own account has the right to try such an object out; if not, the refusal says nothing about the object.
    async fn may_try(&self) -> bool {
        const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let inner = self.inner();
        let namespace = if self.kind.namespaced { inner.reserved.as_str() } else { "" };
        let asked = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"verb": "create", "group": self.kind.group, "resource": self.kind.plural, "namespace": namespace}},
        });
        match inner.parent.call("POST", REVIEWS, Some("application/json"), Some(&asked)).await {
            Ok(answer) => answer.pointer("/status/allowed") != Some(&Value::Bool(false)),
            Err(_) => true,
        }
    }

    fn refused(&self, error: kube::Error, name: &str) -> ApiError {
        let mut error = passed_on(error);
        // The stand-in's name means nothing to the caller.
        error.message = error.message.replace(&stand_in(name, &self.kind.plural), name);
        error
    }

    fn wrap(&self, object: &Value) -> Result<Value, ApiError> {
        let info = KindInfo { plural: self.kind.plural.clone(), namespaced: self.kind.namespaced };
        // Marked already, unless it is what the parent has.
        let made = plan::shadow::wrap(&info, object.clone());
        made.map_err(|faults| {
            let causes = faults.iter().map(|fault| apiserver::status::Cause {
                reason: "FieldValueInvalid".into(),
                message: fault.to_string(),
                field: String::new(),
            });
            ApiError::invalid("apps.clusternet.io", "Manifest", object::name(object), causes.collect())
        })
    }

    fn with_dry_run(&self, path: &str) -> Result<String, ApiError> {
        let mut path = format!("{path}?fieldManager={MANAGER}");
        if self.query.dry_run()? {
            path.push_str("&dryRun=All");
        }
        Ok(path)
    }
}

/// A template that nobody was asked about.
fn as_sent(mut object: Value, create: bool) -> Value {
    if create && let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        // Nobody else gives it one.
        meta.insert("uid".to_owned(), json!(uuid::Uuid::new_v4().to_string()));
    }
    object
}

/// A name that nothing in the parent has: longer than an object's author would choose, and derived, not random.
fn stand_in(name: &str, plural: &str) -> String {
    let kept: String = name.chars().take(40).collect();
    format!("{}-{}", kept.trim_end_matches(['-', '.']), api::names::suffix(&[component::HUB, plural, name, label::CREATED_BY]))
}
