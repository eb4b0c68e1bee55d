//! Objects of a release in the child: read from rendered text, stamped as Helm's, applied, awaited, taken away.

use std::sync::Arc;
use std::time::Duration;

use api::apps::HelmRelease;
use api::object::{self, ObjectRef};
use chart::Rules;
use cluster::apply::adopt;
use cluster::discovery::{Discovery, Unresolved};
use cluster::dynamic::{ApplyAs, Dynamic, Precondition, Propagation};
use cluster::resource::Resource;
use cluster::{Trouble, trouble};
use engine::Leadership;
use futures::StreamExt as _;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::error::DeployError;
use super::storage::Known;

/// Field manager of releases: Helm's own, so that a Helm that comes later does not fight with us.
pub(super) const MANAGER: &str = "helm";
/// Label and annotations by which Helm knows its objects.
pub(super) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
pub(super) const RELEASE_NAME: &str = "meta.helm.sh/release-name";
pub(super) const RELEASE_NAMESPACE: &str = "meta.helm.sh/release-namespace";
/// Annotation: `keep` leaves an object when its release goes.
const RESOURCE_POLICY: &str = "helm.sh/resource-policy";
/// Objects that are written at a time.
const PARALLEL: usize = 8;
/// Between two looks at an object that is waited for: at first, and at most.
const LOOK: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// Tries when somebody changes an object between reading and taking it over.
const TRIES: usize = 4;

/// The release that objects belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    /// Name of the release.
    pub(super) name: String,
    /// Namespace of the release.
    pub(super) namespace: String,
}

impl Owner {
    /// Of a HelmRelease.
    pub(super) fn of(release: &HelmRelease) -> Self {
        Self { name: plan::rendered::name_of(release), namespace: release.spec.target_namespace.clone() }
    }
}

/// A child cluster, as a release sees it.
#[derive(Clone)]
pub(super) struct Child {
    pub(super) dynamic: Dynamic,
    pub(super) discovery: Arc<Discovery>,
    pub(super) leadership: Leadership,
    /// Records of releases that are known.
    pub(super) records: Known,
}

/// `Kind "name" in namespace "namespace"`, as Helm writes it.
pub(super) fn called(object: &Value) -> String {
    let id = ObjectRef::of(object);
    format!("{} \"{}\" in namespace \"{}\"", id.kind, id.name, id.namespace)
}

/// Whether two objects are the same one, whatever their version.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    let (a, b) = (ObjectRef::of(a), ObjectRef::of(b));
    a.group() == b.group() && a.kind == b.kind && a.name == b.name && a.namespace == b.namespace
}

/// The objects of a rendered text, by the rules that it was rendered by; lists are taken apart.
///
/// # Errors
/// When a document is no object.
pub(super) fn read(text: &str, rules: Rules) -> Result<Vec<Value>, DeployError> {
    let mut out = Vec::new();
    for document in chart::helm::manifests::split(text.as_bytes(), rules) {
        let fault = |problem: String| DeployError::Document { what: "a rendered document".to_owned(), problem };
        let value = chart::yaml::decode::decode_ints(&document).map_err(|e| fault(e.0))?.to_json();
        if value.is_null() {
            continue;
        }
        take(value, &mut out).map_err(fault)?;
    }
    Ok(out)
}

fn take(value: Value, out: &mut Vec<Value>) -> Result<(), String> {
    let kind = object::text(&value, "kind").to_owned();
    if !value.is_object() || kind.is_empty() || object::text(&value, "apiVersion").is_empty() {
        return Err(format!("Object 'Kind' is missing in '{value}'"));
    }
    if kind.ends_with("List") && value.get("items").is_some_and(Value::is_array) {
        let Value::Object(mut fields) = value else { return Ok(()) };
        if let Some(Value::Array(items)) = fields.remove("items") {
            for item in items {
                take(item, out)?;
            }
        }
        return Ok(());
    }
    if object::name(&value).is_empty() {
        return Err(format!("{kind} has no metadata.name"));
    }
    out.push(value);
    Ok(())
}

/// Drops what the server would refuse and marks the object as one of the release.
pub(super) fn stamp(object: &mut Value, owner: &Owner) {
    adopt::clean(object);
    let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    for (field, marks) in [
        ("labels", vec![(MANAGED_BY, "Helm")]),
        ("annotations", vec![(RELEASE_NAME, owner.name.as_str()), (RELEASE_NAMESPACE, owner.namespace.as_str())]),
    ] {
        let slot = meta.entry(field).or_insert_with(|| json!({}));
        if !slot.is_object() {
            *slot = json!({});
        }
        for (key, value) in marks {
            slot[key] = json!(value);
        }
    }
}

/// What is wrong with the ownership of a live object; Helm's words.
fn foreign(live: &Value, owner: &Owner) -> Option<String> {
    let mut faults = Vec::new();
    let mut check = |what: &str, found: Option<&str>, key: &str, want: &str| match found {
        None => faults.push(format!("{what} validation error: missing key \"{key}\": must be set to \"{want}\"")),
        Some(have) if have != want => faults.push(format!("{what} validation error: key \"{key}\" must equal \"{want}\": current value is \"{have}\"")),
        Some(_) => {}
    };
    check("label", object::labels(live).get(MANAGED_BY).map(String::as_str), MANAGED_BY, "Helm");
    check("annotation", object::annotation(live, RELEASE_NAME), RELEASE_NAME, &owner.name);
    check("annotation", object::annotation(live, RELEASE_NAMESPACE), RELEASE_NAMESPACE, &owner.namespace);
    (!faults.is_empty()).then(|| faults.join("; "))
}

/// Whether a field entry is of a client that wrote the object as part of a release: nobody else writes that annotation.
fn is_of_helm(entry: &Value) -> bool {
    entry.get("subresource").is_none_or(|s| s == "")
        && entry["fieldsV1"]["f:metadata"]["f:annotations"].get(format!("f:{RELEASE_NAME}")).is_some()
}

impl Child {
    async fn resource(&self, object: &Value) -> Result<Resource, DeployError> {
        Ok(self.discovery.resolve(object::text(object, "apiVersion"), object::text(object, "kind")).await?)
    }

    /// Fills in the namespace of the release, or takes it from what has none. A kind that is not there yet keeps what it says.
    pub(super) async fn place(&self, object: &mut Value, namespace: &str) -> Result<(), DeployError> {
        let namespaced = match self.resource(object).await {
            Ok(resource) => resource.namespaced,
            Err(DeployError::Kind(Unresolved::NoSuchKind { .. })) => return Ok(()),
            Err(error) => return Err(error),
        };
        if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            if !namespaced {
                meta.remove("namespace");
            } else if meta.get("namespace").and_then(Value::as_str).unwrap_or_default().is_empty() {
                meta.insert("namespace".to_owned(), json!(namespace));
            }
        }
        Ok(())
    }

    /// The object as it is in the child.
    pub(super) async fn live(&self, object: &Value) -> Result<Option<Value>, DeployError> {
        let resource = match self.resource(object).await {
            Ok(resource) => resource,
            Err(DeployError::Kind(Unresolved::NoSuchKind { .. })) => return Ok(None),
            Err(error) => return Err(error),
        };
        self.dynamic
            .get_opt(&resource, object::namespace(object), object::name(object))
            .await
            .map_err(DeployError::refused("read", called(object)))
    }

    /// Makes sure that none of the objects belongs to somebody else.
    ///
    /// # Errors
    /// When one does, in Helm's words.
    pub(super) async fn check_free(&self, objects: &[Value], owner: &Owner, action: &'static str) -> Result<(), DeployError> {
        let checks: Vec<_> = objects.iter().map(|object| self.check_one(object, owner, action)).collect();
        let mut checks = futures::stream::iter(checks).buffered(PARALLEL);
        while let Some(outcome) = checks.next().await {
            outcome?;
        }
        Ok(())
    }

    async fn check_one(&self, object: &Value, owner: &Owner, action: &'static str) -> Result<(), DeployError> {
        match self.live(object).await? {
            Some(live) if !object::is_deleting(&live) => match foreign(&live, owner) {
                Some(problem) => Err(DeployError::Foreign { action, what: called(object), problem }),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// Applies objects in the order of their kinds. `force` makes anew what cannot be changed.
    pub(super) async fn apply_all(&self, objects: &[Value], force: bool, until: Instant) -> Result<(), DeployError> {
        let mut from = 0;
        while from < objects.len() {
            let kind = object::text(&objects[from], "kind");
            let count = objects[from..].iter().take_while(|o| object::text(o, "kind") == kind).count();
            let group = &objects[from..from + count];
            let writes: Vec<_> = group.iter().map(|object| self.apply(object, force, until)).collect();
            let mut writes = futures::stream::iter(writes).buffered(PARALLEL);
            while let Some(outcome) = writes.next().await {
                outcome?;
            }
            if kind == "CustomResourceDefinition" {
                for object in group {
                    self.ready(object, until).await?;
                }
                self.discovery.expire();
            }
            from += count;
        }
        Ok(())
    }

    /// Applies one object.
    pub(super) async fn apply(&self, object: &Value, force: bool, until: Instant) -> Result<Value, DeployError> {
        if !self.leadership.holds() {
            return Err(DeployError::Deposed);
        }
        let resource = self.resource(object).await?;
        let (namespace, name) = (object::namespace(object), object::name(object));
        for _ in 0..TRIES {
            let live = self.live(object).await?;
            if live.as_ref().is_some_and(object::is_deleting) {
                self.gone(object, until).await?;
                continue;
            }
            let Some(patch) = live.as_ref().and_then(|live| adopt::take_over(live, MANAGER, is_of_helm)) else { break };
            match self.dynamic.json_patch(&resource, namespace, name, "", &patch, MANAGER).await {
                Ok(_) => break,
                Err(error) if matches!(trouble(&error), Trouble::Conflict | Trouble::NotFound | Trouble::Invalid) => {}
                Err(error) => return Err(DeployError::refused("take over", called(object))(error)),
            }
        }
        let how = ApplyAs { manager: MANAGER, force: true, dry_run: false };
        match self.dynamic.apply(&resource, object, how).await {
            Ok(live) => Ok(live),
            Err(error) if force && trouble(&error) == Trouble::Invalid => {
                self.delete(object, None).await?;
                self.gone(object, until).await?;
                self.dynamic.apply(&resource, object, how).await.map_err(DeployError::refused("make anew", called(object)))
            }
            Err(error) => Err(DeployError::refused("apply", called(object))(error)),
        }
    }

    /// Makes an object that must not be there yet; one that is there is left alone unless `replace`.
    pub(super) async fn make(&self, object: &Value, replace: bool) -> Result<(), DeployError> {
        if !self.leadership.holds() {
            return Err(DeployError::Deposed);
        }
        let resource = self.resource(object).await?;
        match self.dynamic.create(&resource, object, MANAGER).await {
            Ok(_) => Ok(()),
            Err(error) if trouble(&error) == Trouble::AlreadyExists => {
                if replace {
                    let how = ApplyAs { manager: MANAGER, force: true, dry_run: false };
                    self.dynamic.apply(&resource, object, how).await.map_err(DeployError::refused("replace", called(object)))?;
                }
                Ok(())
            }
            Err(error) => Err(DeployError::refused("create", called(object))(error)),
        }
    }

    /// Makes an object that must not be there yet.
    pub(super) async fn make_new(&self, object: &Value) -> Result<(), DeployError> {
        if !self.leadership.holds() {
            return Err(DeployError::Deposed);
        }
        let resource = self.resource(object).await?;
        self.dynamic.create(&resource, object, MANAGER).await.map_err(DeployError::refused("create", called(object)))?;
        Ok(())
    }

    /// Waits until a Job or a Pod has come to its end.
    pub(super) async fn finished(&self, object: &Value, until: Instant) -> Result<(), DeployError> {
        let mut pause = LOOK.0;
        loop {
            let live = self.live(object).await?.unwrap_or_default();
            let status = &live["status"];
            let condition = |kind: &str| status["conditions"].as_array().into_iter().flatten().find(|c| c["type"] == kind && c["status"] == "True");
            let why = |value: &Value| [&value["reason"], &value["message"]].into_iter().filter_map(Value::as_str).collect::<Vec<_>>().join(": ");
            let failed = match object::text(object, "kind") {
                "Job" if condition("Complete").is_some() => return Ok(()),
                "Job" => condition("Failed").map(why),
                _ if status["phase"] == "Succeeded" => return Ok(()),
                _ => (status["phase"] == "Failed").then(|| why(status)),
            };
            if let Some(why) = failed {
                return Err(DeployError::NotReady { what: called(object), why: format!("it failed {why}").trim_end().to_owned() });
            }
            self.pause(&mut pause, until, object, "to finish").await?;
        }
    }

    /// Deletes an object. With an owner, only when it is the owner's and no policy keeps it. True when it was there.
    pub(super) async fn delete(&self, object: &Value, owner: Option<&Owner>) -> Result<bool, DeployError> {
        if !self.leadership.holds() {
            return Err(DeployError::Deposed);
        }
        let Some(live) = self.live(object).await? else { return Ok(false) };
        if let Some(owner) = owner {
            let keeps = |o: &Value| object::annotation(o, RESOURCE_POLICY).is_some_and(|p| p.trim().eq_ignore_ascii_case("keep"));
            let others = |key: &str, want: &str| object::annotation(&live, key).is_some_and(|have| have != want);
            if keeps(object) || keeps(&live) || others(RELEASE_NAME, &owner.name) || others(RELEASE_NAMESPACE, &owner.namespace) {
                return Ok(false);
            }
        }
        let resource = self.resource(object).await?;
        let only_if = Precondition { uid: Some(object::uid(&live).to_owned()), resource_version: None };
        match self.dynamic.delete(&resource, object::namespace(object), object::name(object), &only_if, Propagation::Background).await {
            Ok(()) => Ok(true),
            Err(error) if matches!(trouble(&error), Trouble::NotFound | Trouble::Conflict) => Ok(true),
            Err(error) => Err(DeployError::refused("delete", called(object))(error)),
        }
    }

    /// Waits until an object is gone.
    pub(super) async fn gone(&self, object: &Value, until: Instant) -> Result<(), DeployError> {
        let mut pause = LOOK.0;
        while self.live(object).await?.is_some() {
            self.pause(&mut pause, until, object, "to go").await?;
        }
        Ok(())
    }

    /// Waits until an object does what it should.
    pub(super) async fn ready(&self, object: &Value, until: Instant) -> Result<(), DeployError> {
        let mut pause = LOOK.0;
        loop {
            let finding = match self.live(object).await? {
                Some(live) => plan::health::assess(&live),
                None => plan::health::Finding { health: plan::health::Health::Progressing, message: "is not there".to_owned() },
            };
            match finding.health {
                plan::health::Health::Healthy => return Ok(()),
                // Workloads may recover; a Job that failed does not.
                plan::health::Health::Degraded if object::text(object, "kind") == "Job" => {
                    return Err(DeployError::NotReady { what: called(object), why: finding.message });
                }
                _ if Instant::now() >= until => return Err(DeployError::NotReady { what: called(object), why: finding.message }),
                _ => self.pause(&mut pause, until + LOOK.1, object, "to be ready").await?,
            }
        }
    }

    async fn pause(&self, pause: &mut Duration, until: Instant, object: &Value, what: &str) -> Result<(), DeployError> {
        if !self.leadership.holds() {
            return Err(DeployError::Deposed);
        }
        let now = Instant::now();
        if now >= until {
            return Err(DeployError::Timeout(format!("{} {what}", called(object))));
        }
        tokio::time::sleep((*pause).min(until - now)).await;
        *pause = (*pause * 2).min(LOOK.1);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_become_objects_and_lists_come_apart() {
        let text = "---\n# Source: a\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {n: \"1\"}\n---\n# nothing\n---\napiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: s}}\n";
        let objects = read(text, Rules::Helm4).expect("objects");
        assert_eq!(objects.iter().map(object::name).collect::<Vec<_>>(), ["a", "s"]);
        for text in ["apiVersion: v1\n", "kind: X\n", "apiVersion: v1\nkind: Pod\n", "- a\n", "a: [\n"] {
            assert!(read(text, Rules::Helm4).is_err(), "{text}");
        }
    }

    #[test]
    fn integers_stay_integers() {
        let objects = read("apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: 80}]}\n", Rules::Helm4).expect("objects");
        assert_eq!(objects[0]["spec"]["ports"][0]["port"].to_string(), "80");
    }

    #[test]
    fn ownership_is_told_in_helms_words() {
        let owner = Owner { name: "a".into(), namespace: "n".into() };
        let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "n", "labels": null}});
        assert_eq!(
            foreign(&object, &owner).as_deref(),
            Some("label validation error: missing key \"app.kubernetes.io/managed-by\": must be set to \"Helm\"; annotation validation error: missing key \"meta.helm.sh/release-name\": must be set to \"a\"; annotation validation error: missing key \"meta.helm.sh/release-namespace\": must be set to \"n\"")
        );
        stamp(&mut object, &owner);
        assert_eq!(foreign(&object, &owner), None);
        let other = Owner { name: "b".into(), namespace: "n".into() };
        assert_eq!(
            foreign(&object, &other).as_deref(),
            Some("annotation validation error: key \"meta.helm.sh/release-name\" must equal \"b\": current value is \"a\"")
        );
    }
}
