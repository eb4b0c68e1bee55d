//! Volumes, claims and storage classes.

use super::{Faults, get, list, map, one_of, quantity, required, selector, text};
use crate::fault::{Fault, Path};
use crate::text as words;
use serde_json::{Value, json};

const MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

fn access_modes(s: &Value, p: &Path, out: &mut Faults) {
    let modes = list(s, "/accessModes");
    if modes.is_empty() {
        out.push(Fault::required(&p.child("accessModes"), "at least 1 access mode is required"));
    }
    for m in modes {
        if !m.as_str().is_some_and(|m| MODES.contains(&m)) {
            out.push(Fault::not_supported(&p.child("accessModes"), m.clone(), MODES));
        }
    }
    if modes.len() > 1 && modes.iter().any(|m| m == "ReadWriteOncePod") {
        out.push(Fault::forbidden(&p.child("accessModes"), "may not use ReadWriteOncePod with other access modes"));
    }
}

/// A claim's specification.
pub(super) fn claim(s: &Value, p: &Path, out: &mut Faults) {
    access_modes(s, p, out);
    if let Some(sel) = get(s, "selector") {
        selector(sel, &p.child("selector"), out);
    }
    let at = p.child("resources").key("storage");
    match map(s, "/resources/requests").get("storage") {
        None => out.push(Fault::required(&at, "")),
        Some(v) => {
            let zero = quantity(v, &at, &mut Vec::new()).is_none_or(|q| q.sign() <= 0);
            if zero {
                out.push(Fault::invalid(&at, v.clone(), "must be greater than zero"));
            }
        }
    }
    if let Some(c) = get(s, "storageClassName").and_then(Value::as_str).filter(|c| !c.is_empty()) {
        out.extend(words::dns1123_subdomain(c).into_iter().map(|m| Fault::invalid(&p.child("storageClassName"), c, m)));
    }
    one_of(s, "volumeMode", &["Block", "Filesystem"], false, p, out);
}

pub(super) fn claim_update(o: &Value, old: &Value, out: &mut Faults) {
    let mask = |v: &Value| {
        let mut s = v.get("spec").and_then(Value::as_object).cloned().unwrap_or_default();
        s.remove("resources");
        s.remove("volumeAttributesClassName");
        if text(old, "/spec/volumeName").is_empty() {
            s.remove("volumeName");
        }
        if get(&old["spec"], "storageClassName").is_none() {
            s.remove("storageClassName");
        }
        s
    };
    if mask(o) != mask(old) {
        out.push(Fault::forbidden(&Path::new("spec"), "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n"));
    }
    let size = |v: &Value| text(v, "/spec/resources/requests/storage").to_owned();
    if let (Ok(a), Ok(b)) = (crate::Quantity::parse(&size(o)), crate::Quantity::parse(&size(old))) {
        let capacity = crate::Quantity::parse(text(old, "/status/capacity/storage")).ok();
        if a.nanos() < b.nanos() && capacity.is_none_or(|c| a.nanos() <= c.nanos()) {
            out.push(Fault::forbidden(&Path::new("spec.resources.requests.storage"), "field can not be less than status.capacity"));
        } else if a.nanos() > b.nanos() && text(old, "/status/phase") != "Bound" {
            out.push(Fault::forbidden(&Path::new("spec"), "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n"));
        }
    }
}

const SOURCES: &[&str] = &[
    "gcePersistentDisk", "awsElasticBlockStore", "hostPath", "glusterfs", "nfs", "rbd", "iscsi", "cinder", "cephfs", "fc", "flocker", "flexVolume", "azureFile", "vsphereVolume", "quobyte", "azureDisk",
    "photonPersistentDisk", "portworxVolume", "scaleIO", "local", "storageos", "csi",
];

pub(super) fn persistent_volume(o: &Value, out: &mut Faults) {
    let (s, p) = (&o["spec"], Path::new("spec"));
    if list(s, "/accessModes").is_empty() {
        out.push(Fault::required(&p.child("accessModes"), ""));
    } else {
        access_modes(s, &p, out);
    }
    let capacity = map(s, "/capacity");
    if capacity.is_empty() {
        out.push(Fault::required(&p.child("capacity"), ""));
        out.push(Fault::not_supported(&p.child("capacity"), json!(null), &["storage"]));
    } else if !capacity.contains_key("storage") || capacity.len() > 1 {
        out.push(Fault::not_supported(&p.child("capacity"), json!(capacity), &["storage"]));
    }
    for (k, v) in capacity {
        if quantity(v, &p, &mut Vec::new()).is_some_and(|q| q.sign() <= 0) {
            out.push(Fault::invalid(&p.child("capacity").key(k), v.clone(), "must be greater than zero"));
        }
    }
    one_of(s, "persistentVolumeReclaimPolicy", &["Delete", "Recycle", "Retain"], false, &p, out);
    let given: Vec<&str> = SOURCES.iter().copied().filter(|k| get(s, k).is_some()).collect();
    match given.as_slice() {
        [] => out.push(Fault::required(&p, "must specify a volume type")),
        ["hostPath"] => {
            required(&s["hostPath"], "path", &p.child("hostPath"), out);
        }
        ["nfs"] => {
            required(&s["nfs"], "server", &p.child("nfs"), out);
            required(&s["nfs"], "path", &p.child("nfs"), out);
        }
        ["csi"] => {
            required(&s["csi"], "driver", &p.child("csi"), out);
            required(&s["csi"], "volumeHandle", &p.child("csi"), out);
        }
        ["local"] => {
            required(&s["local"], "path", &p.child("local"), out);
            if get(s, "nodeAffinity").is_none() {
                out.push(Fault::required(&p.child("nodeAffinity"), "Local volume requires node affinity"));
            }
        }
        [_] => {}
        [_, more @ ..] => {
            for k in more {
                out.push(Fault::forbidden(&p.child(k), "may not specify more than 1 volume type"));
            }
        }
    }
    if text(s, "/hostPath/path") == "/" && text(s, "/persistentVolumeReclaimPolicy") == "Recycle" {
        out.push(Fault::forbidden(&p.child("persistentVolumeReclaimPolicy"), "may not be 'recycle' for a hostPath mount of '/'"));
    }
    one_of(s, "volumeMode", &["Block", "Filesystem"], false, &p, out);
}

pub(super) fn volume_update(o: &Value, old: &Value, out: &mut Faults) {
    let source = |v: &Value| SOURCES.iter().filter_map(|k| get(&v["spec"], k).map(|x| (*k, x.clone()))).collect::<Vec<_>>();
    if source(o) != source(old) {
        out.push(Fault::forbidden(&Path::new("spec.persistentvolumesource"), "spec.persistentvolumesource is immutable after creation\n"));
    }
    if o["spec"].get("volumeMode") != old["spec"].get("volumeMode") {
        out.push(Fault::invalid(&Path::new("volumeMode"), o["spec"]["volumeMode"].clone(), "field is immutable"));
    }
}

pub(super) fn storage_class(o: &Value, out: &mut Faults) {
    let p = Path::root();
    if required(o, "provisioner", &p, out) {
        let v = text(o, "/provisioner").to_lowercase();
        out.extend(words::qualified_name(&v).into_iter().map(|m| Fault::invalid(&p.child("provisioner"), text(o, "/provisioner"), m)));
    }
    one_of(o, "reclaimPolicy", &["Delete", "Retain"], false, &p, out);
    one_of(o, "volumeBindingMode", &["Immediate", "WaitForFirstConsumer"], true, &p, out);
    for k in map(o, "/parameters").keys().filter(|k| k.is_empty()) {
        out.push(Fault::invalid(&p.child("parameters"), k.as_str(), "field cannot be empty."));
    }
}

pub(super) fn class_update(o: &Value, old: &Value, out: &mut Faults) {
    for k in ["parameters", "provisioner", "reclaimPolicy"] {
        if o.get(k) != old.get(k) {
            out.push(Fault::forbidden(&Path::new(k), format!("updates to {k} are forbidden.")));
        }
    }
    if o.get("volumeBindingMode") != old.get("volumeBindingMode") {
        out.push(Fault::invalid(&Path::new("volumeBindingMode"), o.get("volumeBindingMode").cloned().unwrap_or_default(), "field is immutable"));
    }
}

pub(super) fn csi_driver(o: &Value, out: &mut Faults) {
    let p = Path::new("spec");
    one_of(&o["spec"], "fsGroupPolicy", &["File", "None", "ReadWriteOnceWithFSType"], false, &p, out);
    for (i, m) in list(o, "/spec/volumeLifecycleModes").iter().enumerate() {
        let _ = i;
        if !matches!(m.as_str(), Some("Ephemeral" | "Persistent")) {
            out.push(Fault::not_supported(&p.child("volumeLifecycleModes"), m.clone(), &["Ephemeral", "Persistent"]));
        }
    }
}
