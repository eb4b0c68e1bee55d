//! Volumes and claims: bound to each other, and kept while they are used.

use std::sync::Arc;

use serde_json::{Value, json};

use super::kinds::{PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, POD};
use super::usage::quantity;
use super::{Call, Change, Controller, Delete, Key, Kind, Turn, World};
use crate::admission::{Admission, Operation, Request};
use crate::auth::defaults::selects;
use crate::auth::{at, strings, text};
use crate::status::ApiError;

const ATTRIBUTES_CLASS: Kind = Kind {
    group: "storage.k8s.io",
    api_version: "storage.k8s.io/v1",
    kind: "VolumeAttributesClass",
    plural: "volumeattributesclasses",
};
/// The finalizer that keeps an object while it is used, by its resource.
const GUARDS: [(&str, &str); 3] = [
    ("persistentvolumes", "kubernetes.io/pv-protection"),
    ("persistentvolumeclaims", "kubernetes.io/pvc-protection"),
    ("volumeattributesclasses", "kubernetes.io/vac-protection"),
];
const BOUND_BY: &str = "pv.kubernetes.io/bound-by-controller";
const COMPLETED: &str = "pv.kubernetes.io/bind-completed";

/// Puts the guarding finalizer on new volumes, claims and attributes classes.
#[derive(Debug, Default)]
pub struct StorageAdmission;

impl Admission for StorageAdmission {
    fn mutate(&self, request: &Request<'_>, object: &mut Value) -> Result<(), ApiError> {
        let Some((_, guard)) = GUARDS.iter().find(|(plural, _)| *plural == request.resource.plural) else { return Ok(()) };
        let group = &request.resource.group;
        if request.operation != Operation::Create || !request.subresource.is_empty() || !(group.is_empty() || group == "storage.k8s.io") {
            return Ok(());
        }
        let mut finalizers = strings(object, &["metadata", "finalizers"]);
        if !finalizers.iter().any(|finalizer| finalizer == guard) {
            finalizers.push((*guard).to_owned());
            object["metadata"]["finalizers"] = json!(finalizers);
        }
        Ok(())
    }
}

/// Takes the guarding finalizer off when nothing uses the object any more.
#[derive(Debug, Default)]
pub struct Protection;

fn claim_used(claim: &Value, world: &World<'_>) -> bool {
    let name = text(claim, &["metadata", "name"]);
    world.list(&POD, text(claim, &["metadata", "namespace"])).iter().any(|pod| {
        let ended = matches!(text(pod, &["status", "phase"]), "Succeeded" | "Failed");
        let volumes = at(pod, &["spec", "volumes"]).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        !ended && volumes.iter().any(|volume| text(volume, &["persistentVolumeClaim", "claimName"]) == name)
    })
}

fn class_used(class: &Value, world: &World<'_>) -> bool {
    let name = text(class, &["metadata", "name"]);
    let says = |object: &Value, paths: &[&[&str]]| paths.iter().any(|path| text(object, path) == name);
    let claim: [&[&str]; 3] = [
        &["spec", "volumeAttributesClassName"],
        &["status", "currentVolumeAttributesClassName"],
        &["status", "modifyVolumeStatus", "targetVolumeAttributesClassName"],
    ];
    world.all(&PERSISTENT_VOLUME_CLAIM).iter().any(|object| says(object, &claim))
        || world.all(&PERSISTENT_VOLUME).iter().any(|object| says(object, &claim[..1]))
}

impl Controller for Protection {
    fn name(&self) -> &'static str {
        "storage-protection"
    }

    fn concerns(&self, change: &Change, world: &World<'_>, wake: &mut Vec<Key>) {
        let ours = |key: &Key| [PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, ATTRIBUTES_CLASS].iter().any(|kind| key.is(kind));
        if ours(&change.key) && change.meta.terminating() && !change.deleted {
            wake.push(change.key.clone());
        }
        let going = |kind: &Kind, namespace: &str, wake: &mut Vec<Key>| {
            wake.extend(world.graph.of_kind(kind, namespace).filter(|node| node.terminating).map(|node| node.key.clone()));
        };
        if change.key.is(&POD) {
            going(&PERSISTENT_VOLUME_CLAIM, &change.key.namespace, wake);
        } else if change.key.is(&PERSISTENT_VOLUME_CLAIM) || change.key.is(&PERSISTENT_VOLUME) {
            for class in world.all(&ATTRIBUTES_CLASS) {
                if !text(&class, &["metadata", "deletionTimestamp"]).is_empty() {
                    wake.push(Key::new(ATTRIBUTES_CLASS.group, ATTRIBUTES_CLASS.plural, "", text(&class, &["metadata", "name"])));
                }
            }
        }
    }

    fn decide(&self, key: &Key, world: &World<'_>) -> Turn {
        let mut turn = Turn::default();
        let Some(object) = world.at(key) else { return turn };
        let Some((_, guard)) = GUARDS.iter().find(|(plural, _)| *plural == &*key.plural) else { return turn };
        let finalizers = strings(&object, &["metadata", "finalizers"]);
        if text(&object, &["metadata", "deletionTimestamp"]).is_empty() || !finalizers.iter().any(|f| f == guard) {
            return turn;
        }
        let used = match &*key.plural {
            "persistentvolumes" => text(&object, &["status", "phase"]) == "Bound",
            "persistentvolumeclaims" => claim_used(&object, world),
            _ => class_used(&object, world),
        };
        if !used {
            let left: Vec<&String> = finalizers.iter().filter(|f| f != guard).collect();
            let left = if left.is_empty() { Value::Null } else { json!(left) };
            let version = text(&object, &["metadata", "resourceVersion"]);
            let api_version = text(&object, &["apiVersion"]);
            let patch = json!({"metadata": {"resourceVersion": version, "finalizers": left}});
            turn.call(Call::merge_at(api_version, &key.plural, &key.namespace, &key.name, patch));
        }
        turn
    }
}

/// Binds claims to the volumes that fit them.
#[derive(Debug, Default)]
pub struct Binder;

fn class(object: &Value) -> &str {
    let annotated = text(object, &["metadata", "annotations", "volume.beta.kubernetes.io/storage-class"]);
    if annotated.is_empty() { text(object, &["spec", "storageClassName"]) } else { annotated }
}

/// Whether a volume is promised to a claim: by name, and by uid when it says one.
fn promised(volume: &Value, claim: &Value) -> bool {
    let reference = |field: &str| text(volume, &["spec", "claimRef", field]);
    let own = |field: &str| text(claim, &["metadata", field]);
    reference("namespace") == own("namespace")
        && reference("name") == own("name")
        && (reference("uid").is_empty() || reference("uid") == own("uid"))
}

fn fits(volume: &Value, claim: &Value) -> bool {
    let modes = strings(volume, &["spec", "accessModes"]);
    let wanted = at(claim, &["spec", "resources", "requests", "storage"]).and_then(quantity);
    let has = at(volume, &["spec", "capacity", "storage"]).and_then(quantity);
    let mode = |object: &Value| match text(object, &["spec", "volumeMode"]) {
        "" => "Filesystem".to_owned(),
        mode => mode.to_owned(),
    };
    let labels = at(volume, &["metadata", "labels"]).and_then(Value::as_object).cloned().unwrap_or_default();
    class(volume) == class(claim)
        && mode(volume) == mode(claim)
        && text(volume, &["spec", "volumeAttributesClassName"]) == text(claim, &["spec", "volumeAttributesClassName"])
        && strings(claim, &["spec", "accessModes"]).iter().all(|mode| modes.contains(mode))
        && wanted.is_none_or(|wanted| has.is_some_and(|has| has >= wanted))
        && at(claim, &["spec", "selector"]).is_none_or(|selector| selector.is_null() || selects(selector, &labels))
}

fn free(volume: &Value) -> bool {
    text(volume, &["metadata", "deletionTimestamp"]).is_empty() && at(volume, &["spec", "claimRef"]).is_none_or(Value::is_null)
}

impl Controller for Binder {
    fn name(&self) -> &'static str {
        "persistentvolume-binder"
    }

    fn concerns(&self, change: &Change, world: &World<'_>, wake: &mut Vec<Key>) {
        let key = &change.key;
        if key.is(&PERSISTENT_VOLUME) {
            if !change.deleted {
                wake.push(key.clone());
            }
            // A volume may be what waiting claims wait for.
            for claim in world.all(&PERSISTENT_VOLUME_CLAIM) {
                let own = |field: &str| text(&claim, &["metadata", field]);
                if text(&claim, &["status", "phase"]) != "Bound" || text(&claim, &["spec", "volumeName"]) == &*key.name {
                    wake.push(Key::new("", PERSISTENT_VOLUME_CLAIM.plural, own("namespace"), own("name")));
                }
            }
        } else if key.is(&PERSISTENT_VOLUME_CLAIM) {
            if !change.deleted {
                wake.push(key.clone());
            }
            for volume in world.all(&PERSISTENT_VOLUME) {
                if text(&volume, &["spec", "claimRef", "name"]) == &*key.name {
                    wake.push(Key::new("", PERSISTENT_VOLUME.plural, "", text(&volume, &["metadata", "name"])));
                }
            }
        }
    }

    fn decide(&self, key: &Key, world: &World<'_>) -> Turn {
        let mut turn = Turn::default();
        let Some(object) = world.at(key) else { return turn };
        if key.is(&PERSISTENT_VOLUME) {
            volume(&object, world, &mut turn);
        } else if text(&object, &["metadata", "deletionTimestamp"]).is_empty() {
            claim(&object, world, &mut turn);
        }
        turn
    }
}

/// The phase of a volume follows from its claim.
fn volume(object: &Value, world: &World<'_>, turn: &mut Turn) {
    let reference = |field: &str| text(object, &["spec", "claimRef", field]);
    let phase = if reference("name").is_empty() || reference("uid").is_empty() {
        "Available"
    } else {
        let claim = world.get(&PERSISTENT_VOLUME_CLAIM, reference("namespace"), reference("name"));
        if claim.is_some_and(|claim| text(&claim, &["metadata", "uid"]) == reference("uid")) { "Bound" } else { "Released" }
    };
    if text(object, &["status", "phase"]) != phase {
        let mut status = object.get("status").cloned().unwrap_or_else(|| json!({}));
        status["phase"] = json!(phase);
        status["lastPhaseTransitionTime"] = json!(world.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        turn.call(Call::status(&PERSISTENT_VOLUME, object, status));
    } else if phase == "Released" && text(object, &["spec", "persistentVolumeReclaimPolicy"]) == "Delete" {
        // There is nothing behind the volume that would have to be deleted first unless a driver says so by its finalizer.
        let driver = strings(object, &["metadata", "finalizers"]).iter().any(|f| f.starts_with("external-provisioner"));
        if !driver && text(object, &["metadata", "deletionTimestamp"]).is_empty() {
            turn.call(Call::delete(&PERSISTENT_VOLUME, object, Delete::Background));
        }
    }
}

fn claim(object: &Value, world: &World<'_>, turn: &mut Turn) {
    let wanted = text(object, &["spec", "volumeName"]);
    let all = if wanted.is_empty() { world.all(&PERSISTENT_VOLUME) } else { world.get(&PERSISTENT_VOLUME, "", wanted).into_iter().collect() };
    let chosen: Option<Arc<Value>> = if wanted.is_empty() {
        let reserved = all.iter().find(|volume| promised(volume, object) && fits(volume, object));
        let mut fitting: Vec<&Arc<Value>> = all.iter().filter(|volume| free(volume) && fits(volume, object)).collect();
        fitting.sort_by_key(|volume| {
            let size = at(volume, &["spec", "capacity", "storage"]).and_then(quantity).map_or(0, |size| size.nanos());
            (size, text(volume, &["metadata", "name"]).to_owned())
        });
        reserved.or(fitting.first().copied()).cloned()
    } else {
        all.into_iter().find(|volume| free(volume) || promised(volume, object))
    };
    let Some(volume) = chosen else {
        let lost = !wanted.is_empty() && at(object, &["metadata", "annotations", COMPLETED]).is_some();
        let phase = if lost { "Lost" } else { "Pending" };
        if text(object, &["status", "phase"]) != phase {
            turn.call(Call::status(&PERSISTENT_VOLUME_CLAIM, object, json!({"phase": phase})));
        }
        return;
    };
    let own = |field: &str| text(object, &["metadata", field]);
    if !(promised(&volume, object) && text(&volume, &["spec", "claimRef", "uid"]) == own("uid")) {
        let mut volume = Value::clone(&volume);
        volume["spec"]["claimRef"] = json!({
            "kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": own("namespace"), "name": own("name"),
            "uid": own("uid"), "resourceVersion": own("resourceVersion"),
        });
        volume["metadata"]["annotations"][BOUND_BY] = json!("yes");
        turn.call(Call::update(&PERSISTENT_VOLUME, "", volume));
        return;
    }
    if text(&volume, &["status", "phase"]) != "Bound" {
        // The volume's own turn says so; then this claim is looked at again.
        return;
    }
    if wanted.is_empty() || at(object, &["metadata", "annotations", COMPLETED]).is_none() {
        let mut annotations = json!({COMPLETED: "yes"});
        if wanted.is_empty() {
            annotations[BOUND_BY] = json!("yes");
        }
        let patch = json!({
            "metadata": {"resourceVersion": own("resourceVersion"), "annotations": annotations},
            "spec": {"volumeName": text(&volume, &["metadata", "name"])},
        });
        turn.call(Call::merge(&PERSISTENT_VOLUME_CLAIM, own("namespace"), own("name"), "", patch));
        return;
    }
    let mut status = object.get("status").cloned().unwrap_or_else(|| json!({}));
    status["phase"] = json!("Bound");
    status["accessModes"] = at(&volume, &["spec", "accessModes"]).cloned().unwrap_or_default();
    status["capacity"] = at(&volume, &["spec", "capacity"]).cloned().unwrap_or_default();
    // The class it has, not the one it is to get: only who changes the volume moves it on.
    if text(&status, &["currentVolumeAttributesClassName"]).is_empty()
        && let Some(class) = at(&volume, &["spec", "volumeAttributesClassName"])
    {
        status["currentVolumeAttributesClassName"] = class.clone();
    }
    if object.get("status") != Some(&status) {
        turn.call(Call::status(&PERSISTENT_VOLUME_CLAIM, object, status));
    }
}
