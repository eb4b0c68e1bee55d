//! Conversion of custom resources between their versions by the webhook that their definition names.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use store::Entry;
use tokio::sync::OnceCell;

use crate::core::{Call, Core};
use crate::kinds;
use crate::object::{self, at, text};
use crate::outbound;
use crate::resource::Resource;
use crate::respond::Doc;
use crate::status::ApiError;

/// How long a webhook may take.
const WITHIN: Duration = Duration::from_secs(30);
/// Converted objects of events that are kept for other watchers of the same version.
const KEPT: usize = 512;

/// The webhook of a definition.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Webhook {
    client: Value,
    /// The form of its reviews; none that we know.
    review: Option<&'static str>,
}

impl Webhook {
    /// What a definition says; nothing when it needs no webhook.
    pub(crate) fn read(crd: &Value) -> Option<Self> {
        let conversion = at(crd, &["spec", "conversion"])?;
        if text(conversion, &["strategy"]) != "Webhook" {
            return None;
        }
        let webhook = at(conversion, &["webhook"])?;
        let versions = at(webhook, &["conversionReviewVersions"]).and_then(Value::as_array).into_iter().flatten();
        let review = versions.filter_map(Value::as_str).find_map(|v| ["v1", "v1beta1"].into_iter().find(|known| *known == v));
        Some(Self { client: at(webhook, &["clientConfig"]).cloned().unwrap_or_default(), review })
    }
}

type Shared = Arc<OnceCell<Result<Value, ApiError>>>;

/// Conversions of events, shared by the watchers of a version.
#[derive(Debug, Default)]
pub(crate) struct Conversions {
    made: Mutex<(HashMap<(u64, String), Shared>, VecDeque<(u64, String)>)>,
}

impl Conversions {
    /// Forgets everything: a definition changed.
    pub(crate) fn forget(&self) {
        *self.made.lock() = Default::default();
    }

    fn place(&self, revision: u64, version: String) -> Shared {
        let mut made = self.made.lock();
        let (found, order) = &mut *made;
        let key = (revision, version);
        if let Some(shared) = found.get(&key) {
            return shared.clone();
        }
        if order.len() == KEPT
            && let Some(oldest) = order.pop_front()
        {
            found.remove(&oldest);
        }
        order.push_back(key.clone());
        found.entry(key).or_default().clone()
    }
}

/// `g/v, Kind=k`, as Go prints it.
fn shown(object: &Value) -> String {
    format!("{}, Kind={}", text(object, &["apiVersion"]), text(object, &["kind"]))
}

/// Objects of one kind in another version, in their order.
async fn convert(core: &Core, resource: &Resource, mut objects: Vec<Value>, wanted: &str) -> Result<Vec<Value>, ApiError> {
    let Some(custom) = &resource.custom else { return Ok(objects) };
    let Some(webhook) = &custom.webhook else { return Ok(objects) };
    // Defaults are those of the version that is stored, before the conversion and not after it.
    if let Some(schema) = custom.stored_kind(resource) {
        let stored = objects.iter_mut().filter(|object| text(object, &["apiVersion"]) == resource.storage_version);
        stored.for_each(|object| schema.default(object));
    }
    let others: Vec<usize> = (0..objects.len()).filter(|at| text(&objects[*at], &["apiVersion"]) != wanted).collect();
    let Some(first) = others.first() else { return Ok(objects) };
    let kind = shown(&objects[*first]);
    let Some(review) = webhook.review else { return Err(ApiError::unworded("no supported conversion review versions")) };
    let failed = |why: &dyn std::fmt::Display| ApiError::unworded(format!("conversion webhook for {kind} failed: {why}"));
    let uid = uuid::Uuid::new_v4().to_string();
    let version = format!("apiextensions.k8s.io/{review}");
    let question = json!({
        "kind": "ConversionReview", "apiVersion": version,
        "request": {"uid": uid, "desiredAPIVersion": wanted, "objects": others.iter().map(|at| &objects[*at]).collect::<Vec<_>>()},
    });
    let mut answer = outbound::post(core, &webhook.client, &question, WITHIN).await.map_err(|error| failed(&error))?;
    let converted = answered(&mut answer, &version, (review == "v1").then_some(uid.as_str())).map_err(|why| failed(&why))?;
    if converted.len() != others.len() {
        return Err(ApiError::unworded(format!("conversion webhook for {kind} returned {} objects, expected {}", converted.len(), others.len())));
    }
    for (n, (at, new)) in others.into_iter().zip(converted).enumerate() {
        let old = &objects[at];
        let refused = |why: String| ApiError::unworded(format!("conversion webhook for {kind} returned {why}"));
        let mut new = checked(old, new, wanted, n).map_err(refused)?;
        let schema = if wanted == resource.api_version() { resource.schema() } else { custom.stored_kind(resource) };
        if let Some(schema) = schema {
            new = schema.decode(new).map_err(|error| refused(format!("invalid object: {error}")))?.object;
        }
        objects[at] = new;
    }
    Ok(objects)
}

/// The objects of an answer.
fn answered(answer: &mut Value, version: &str, uid: Option<&str>) -> Result<Vec<Value>, String> {
    if uid.is_some() && (text(answer, &["apiVersion"]) != version || text(answer, &["kind"]) != "ConversionReview") {
        return Err(format!("expected webhook response of {version}, Kind=ConversionReview, got {}", shown(answer)));
    }
    let Some(response) = answer.get_mut("response").filter(|r| r.is_object()) else { return Err("no response provided".to_owned()) };
    if let Some(uid) = uid
        && text(response, &["uid"]) != uid
    {
        return Err(format!("expected response.uid=\"{uid}\", got \"{}\"", text(response, &["uid"])));
    }
    if text(response, &["result", "status"]) != "Success" {
        return Err(match text(response, &["result", "message"]) {
            "" => format!("response.result.status was '{}', not 'Success'", text(response, &["result", "status"])),
            message => message.to_owned(),
        });
    }
    match response["convertedObjects"].take() {
        Value::Array(list) => Ok(list),
        _ => Ok(Vec::new()),
    }
}

/// A converted object with the metadata it had: a webhook may change labels and annotations, nothing else of them.
fn checked(old: &Value, mut new: Value, wanted: &str, n: usize) -> Result<Value, String> {
    let (version, kind) = (text(&new, &["apiVersion"]), text(&new, &["kind"]));
    if version != wanted {
        return Err(format!("invalid object at index {n}: invalid groupVersion (expected {wanted}, received {version})"));
    }
    if kind != text(old, &["kind"]) {
        return Err(format!("invalid object at index {n}: invalid kind (expected {}, received {kind})", text(old, &["kind"])));
    }
    for (word, field) in [("name", "name"), ("namespace", "namespace"), ("UID", "uid")] {
        let (had, has) = (text(old, &["metadata", field]), text(&new, &["metadata", field]));
        if had != has {
            return Err(format!("invalid object: must have the same {word}: {had} != {has}"));
        }
    }
    let given = match new.get("metadata") {
        None => return Err("invalid metadata: missing metadata in converted object".to_owned()),
        Some(Value::Object(map)) => map.clone(),
        Some(_) => return Err("invalid metadata: invalid metadata in converted object".to_owned()),
    };
    let mut metadata = old.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
    for field in ["labels", "annotations"] {
        match given.get(field) {
            None | Some(Value::Null) => {
                metadata.remove(field);
            }
            Some(Value::Object(map)) => {
                if let Some((key, _)) = map.iter().find(|(_, value)| !value.is_string()) {
                    return Err(format!("invalid metadata: metadata.{field}[{key}] must be a string in converted object"));
                }
                metadata.insert(field.to_owned(), Value::Object(map.clone()));
            }
            Some(_) => return Err(format!("invalid metadata: invalid metadata.{field} in converted object")),
        }
    }
    object::child_root(&mut new).insert("metadata".to_owned(), Value::Object(metadata));
    Ok(new)
}

/// Most objects of a list that cannot be converted together and are then asked for one by one, to say which.
const ALONE: usize = 100;

/// What is said of a stored object that cannot be read for the reason given.
fn undecodable(resource: &Resource, root: &str, stored: &Value, why: &ApiError) -> String {
    let key = object::key(resource.namespaced, object::namespace(stored), object::name(stored));
    let revision = object::revision_of(stored);
    let key = format!("{root}/{}/{}/{key}", resource.group, resource.plural);
    format!("StorageError: corrupt object, Code: 7, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: object not decodable revision={revision}: {why}")
}

impl Call {
    /// Stored objects in the version of the route.
    pub(crate) async fn routed(&self, stored: Vec<Value>) -> Result<Vec<Value>, ApiError> {
        let resource = &self.resource;
        let show = |objects: Vec<Value>| objects.into_iter().map(|object| kinds::to_route(resource, object)).collect();
        if !resource.converts() {
            return Ok(show(stored));
        }
        let wanted = resource.api_version();
        if let Ok(objects) = convert(&self.core, resource, stored.clone(), &wanted).await {
            return Ok(show(objects));
        }
        let (mut objects, mut faults) = (Vec::new(), Vec::new());
        for object in stored {
            if faults.len() == ALONE {
                break;
            }
            match convert(&self.core, resource, vec![object.clone()], &wanted).await {
                Ok(object) => objects.extend(object),
                Err(why) => faults.push(undecodable(resource, "/registry", &object, &why)),
            }
        }
        let Some(first) = faults.first() else { return Ok(show(objects)) };
        let more = if faults.len() > 1 { format!(" (and {} more)", faults.len() - 1) } else { String::new() };
        let mut error = ApiError::unworded(format!("failed to read one or more {} from the storage: {first}{more}", resource.qualified()));
        error.reason = "StorageReadError";
        Err(error)
    }

    /// A stored object in the version of the route.
    pub(crate) async fn routed_one(&self, stored: Value) -> Result<Value, ApiError> {
        let resource = &self.resource;
        if !resource.converts() {
            return Ok(kinds::to_route(resource, stored));
        }
        match convert(&self.core, resource, vec![stored.clone()], &resource.api_version()).await {
            Ok(objects) => Ok(objects.into_iter().next().map(|object| kinds::to_route(resource, object)).unwrap_or_default()),
            Err(why) => Err(ApiError::internal(undecodable(resource, "", &stored, &why))),
        }
    }

    /// An object of an event in the version of the route; asked for once for all watchers.
    pub(crate) async fn routed_shared(&self, entry: &Entry, stored: Value) -> Result<Value, ApiError> {
        let version = self.resource.api_version();
        if !self.resource.converts() || text(&stored, &["apiVersion"]) == version {
            return Ok(kinds::to_route(&self.resource, stored));
        }
        let shared = self.core.conversions.place(entry.revision, version);
        let mut value = shared.get_or_init(|| self.routed_one(stored.clone())).await.clone()?;
        // An object that no longer matches is told in its old form with a new revision.
        object::metadata(&mut value).insert("resourceVersion".into(), json!(object::revision_of(&stored)));
        Ok(value)
    }

    /// An object of the route in the version of the store.
    pub(crate) async fn to_stored(&self, object: Value) -> Result<Value, ApiError> {
        if !self.resource.converts() {
            return Ok(kinds::to_storage(&self.resource, object));
        }
        let converted = convert(&self.core, &self.resource, vec![object], &self.resource.storage_version).await?;
        Ok(converted.into_iter().next().unwrap_or_default())
    }

    /// The document of a written object in the version of the route.
    pub(crate) async fn doc(&self, entry: Arc<Entry>) -> Result<Doc, ApiError> {
        if self.resource.shows(&entry) {
            return Ok(Doc::Stored(entry));
        }
        Ok(Doc::Value(self.routed_one(object::decode(&entry.value)).await?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_webhook_changes_labels_and_no_other_metadata() {
        let old = json!({"apiVersion": "g.io/v1", "kind": "K", "metadata": {"name": "n", "namespace": "s", "uid": "u", "generation": 3, "labels": {"a": "1"}}, "spec": {"a": 1}});
        let new = json!({"apiVersion": "g.io/v2", "kind": "K", "metadata": {"name": "n", "namespace": "s", "uid": "u", "generation": 9, "annotations": {"b": "2"}}, "spec": {"b": 1}});
        let done = checked(&old, new.clone(), "g.io/v2", 0);
        assert_eq!(done, Ok(json!({"apiVersion": "g.io/v2", "kind": "K", "metadata": {"name": "n", "namespace": "s", "uid": "u", "generation": 3, "annotations": {"b": "2"}}, "spec": {"b": 1}})));
        for (path, value, said) in [
            ("/apiVersion", json!("g.io/v3"), "invalid object at index 0: invalid groupVersion (expected g.io/v2, received g.io/v3)"),
            ("/kind", json!("L"), "invalid object at index 0: invalid kind (expected K, received L)"),
            ("/metadata/name", json!("m"), "invalid object: must have the same name: n != m"),
            ("/metadata/uid", json!("v"), "invalid object: must have the same UID: u != v"),
            ("/metadata/annotations/b", json!(2), "invalid metadata: metadata.annotations[b] must be a string in converted object"),
        ] {
            let mut bad = new.clone();
            if let Some(place) = bad.pointer_mut(path) {
                *place = value;
            }
            assert_eq!(checked(&old, bad, "g.io/v2", 0), Err(said.to_owned()));
        }
    }

    #[test]
    fn an_answer_is_one_to_the_question() {
        let version = "apiextensions.k8s.io/v1";
        let whole = json!({"kind": "ConversionReview", "apiVersion": version, "response": {"uid": "u", "result": {"status": "Success"}, "convertedObjects": [1]}});
        assert_eq!(answered(&mut whole.clone(), version, Some("u")), Ok(vec![json!(1)]));
        for (path, value, said) in [
            ("/kind", json!("X"), "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got apiextensions.k8s.io/v1, Kind=X"),
            ("/response", Value::Null, "no response provided"),
            ("/response/uid", json!("w"), "expected response.uid=\"u\", got \"w\""),
            ("/response/result", json!({"status": "Failed"}), "response.result.status was 'Failed', not 'Success'"),
            ("/response/result", json!({"status": "Failed", "message": "no"}), "no"),
        ] {
            let mut bad = whole.clone();
            if let Some(place) = bad.pointer_mut(path) {
                *place = value;
            }
            assert_eq!(answered(&mut bad, version, Some("u")), Err(said.to_owned()));
        }
    }
}
