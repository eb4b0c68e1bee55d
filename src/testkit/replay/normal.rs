//! The form in which answers are written down: ids, times and random ends replaced by what they stand for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use base64::Engine as _;
use regex::{Captures, Regex};
use serde_json::{Map, Value, json};

static UUID: LazyLock<Regex> =
    LazyLock::new(|| Regex::new("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}").expect("a constant"));
static TIME: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)").expect("a constant"));
static GO_TIME: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)? [+-]\d{4} \w+( m=[+-][\d.]+)?").expect("a constant")
});
static BASE: LazyLock<Regex> = LazyLock::new(|| Regex::new("^(.+)-[a-z0-9]{5}$").expect("a constant"));

/// What this run's names and ids stand for; grows as objects are seen.
#[derive(Default)]
pub(super) struct Names {
    /// uid -> kind and name.
    uids: BTreeMap<String, (String, String)>,
    /// Name with a random end -> its stand-in.
    random: BTreeMap<String, String>,
    /// Cluster ids and URLs -> their stand-ins.
    fixed: BTreeMap<String, String>,
    /// Ids that the input itself holds.
    known: BTreeSet<String>,
    /// Prefix of generated names (`generated` of case.yaml).
    generated: Option<String>,
}

impl Names {
    /// Adds a text that always stands for another.
    pub(super) fn fix(&mut self, text: &str, stand_in: &str) {
        self.fixed.insert(text.to_owned(), stand_in.to_owned());
    }

    /// Marks the ids in a text as belonging to the input.
    pub(super) fn know(&mut self, text: &str) {
        self.known.extend(UUID.find_iter(text).map(|found| found.as_str().to_owned()));
    }

    /// Names generated from this prefix get a stand-in end.
    pub(super) fn generated(&mut self, prefix: &str) {
        self.generated = Some(prefix.to_owned());
    }

    /// Learns what an object's uid stands for.
    pub(super) fn learn(&mut self, object: &Value) {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let uid = text("/metadata/uid");
        if !uid.is_empty() {
            self.uids.entry(uid.to_owned()).or_insert_with(|| (text("/kind").to_owned(), text("/metadata/name").to_owned()));
        }
    }

    /// Learns the stand-in of a Base's name.
    pub(super) fn learn_base(&mut self, base: &Value) {
        let text = |path: &str| base.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let made = text("/metadata/labels/apps.clusternet.io~1config.kind") == "Subscription";
        let name = text("/metadata/name");
        if let (true, Some(found)) = (made, BASE.captures(name)) {
            let cluster = text("/metadata/labels/clusters.clusternet.io~1cluster-name");
            let cluster = if cluster.is_empty() { text("/metadata/namespace") } else { cluster };
            self.random.insert(name.to_owned(), format!("{}-<rand:{cluster}>", &found[1]));
        }
    }

    /// Learns the stand-in of a generated Localization's name.
    pub(super) fn learn_localization(&mut self, localization: &Value) {
        let owners = localization.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        let base = owners.into_iter().flatten().find(|owner| owner["kind"] == "Base").and_then(|owner| owner["name"].as_str());
        if let Some(base) = base {
            let base = self.random.get(base).cloned().unwrap_or_else(|| base.to_owned());
            let feed = |field: &str| localization["spec"]["feed"][field].as_str().unwrap_or_default();
            let stand_in = format!("{base}-<rand:{}.{}.{}>", feed("kind"), feed("namespace"), feed("name"));
            let name = localization.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
            self.random.insert(name.to_owned(), stand_in);
        }
    }

    /// `<rand:CLUSTER>` in an input: the name that this run has.
    pub(super) fn real(&self, value: &Value) -> Value {
        self.strings(value, &|text| {
            let mut text = text.to_owned();
            if text.contains("<rand:") {
                let mut longest: Vec<_> = self.random.iter().collect();
                longest.sort_by_key(|(_, stand_in)| std::cmp::Reverse(stand_in.len()));
                for (name, stand_in) in longest {
                    text = text.replace(stand_in, name);
                }
            }
            text
        })
    }

    /// An answer in the written form.
    pub(super) fn write(&self, value: &Value) -> Value {
        let mut names: Vec<_> = self.random.iter().collect();
        names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        let replace = |text: &str| {
            let mut text = text.to_owned();
            for (name, stand_in) in names.iter().copied().chain(self.fixed.iter()) {
                if text.contains(name.as_str()) {
                    text = text.replace(name.as_str(), stand_in);
                }
            }
            if let Some(prefix) = &self.generated
                && let Ok(pattern) = Regex::new(&format!("{}[a-z0-9]{{5}}", regex::escape(prefix)))
            {
                text = pattern.replace_all(&text, format!("{prefix}<rand>")).into_owned();
            }
            text
        };
        self.strings(value, &|text| {
            let text = replace(text);
            let text = UUID.replace_all(&text, |found: &Captures<'_>| {
                let uid = &found[0];
                match self.uids.get(uid) {
                    Some((kind, name)) => format!("<uid:{}/{}>", if kind.is_empty() { "?" } else { kind }, replace(name)),
                    None if self.known.contains(uid) => uid.to_owned(),
                    None => "<uid:gone>".to_owned(),
                }
            });
            let text = TIME.replace_all(&text, "<time>");
            GO_TIME.replace_all(&text, "<go time>").into_owned()
        })
    }

    fn strings(&self, value: &Value, change: &dyn Fn(&str) -> String) -> Value {
        match value {
            Value::String(text) => Value::String(change(text)),
            Value::Array(items) => Value::Array(items.iter().map(|item| self.strings(item, change)).collect()),
            Value::Object(fields) => {
                Value::Object(fields.iter().map(|(key, item)| (change(key), self.strings(item, change))).collect::<Map<_, _>>())
            }
            other => other.clone(),
        }
    }
}

/// Drops what differs from run to run in an object.
pub(super) fn strip(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink", "deletionGracePeriodSeconds"] {
            meta.remove(field);
        }
        for owner in meta.get_mut("ownerReferences").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(owner) = owner.as_object_mut() {
                owner.remove("uid");
            }
        }
    }
    if object["kind"] == "Service"
        && let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
    {
        for (field, stand_in) in [("clusterIP", json!("<ip>")), ("clusterIPs", json!(["<ip>"]))] {
            if spec.get(field).is_some_and(|value| !value.to_string().contains("None")) {
                spec.insert(field.to_owned(), stand_in);
            }
        }
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            if port.get("nodePort").is_some_and(|p| p.as_i64() != Some(0)) {
                port["nodePort"] = json!("<port>");
            }
        }
    }
    object
}

/// Drops and decodes by the kind of list the object was found in.
pub(super) fn clean(list: &str, object: &Value) -> Value {
    let mut object = strip(object);
    if list == "manifests" {
        let template = object["template"].clone();
        for pointer in ["/metadata/labels", "/template/metadata/labels"] {
            name_label(object.pointer_mut(pointer), template.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default());
        }
    }
    if list == "descriptions" {
        for field in ["raw", "chartRaw"] {
            for entry in object["spec"].get_mut(field).and_then(Value::as_array_mut).into_iter().flatten() {
                let decoded = decode(entry.as_str().unwrap_or_default());
                *entry = if decoded.get("metadata").is_some() { strip(&decoded) } else { decoded };
            }
        }
    }
    if list == "helmreleases"
        && let Some(overrides) = object["spec"].get("overrides").and_then(Value::as_str).map(decode)
    {
        object["spec"]["overrides"] = overrides;
    }
    if object["type"] == "kubernetes.io/service-account-token" && object.get("data").is_some() {
        object["data"] = json!("<token>");
    }
    if object["type"] == "helm.sh/release.v1" {
        release(&mut object);
    }
    object
}

/// The dry run of a name that the parent has too leaves a name with random letters in this label.
fn name_label(labels: Option<&mut Value>, name: &str) {
    let key = "kubernetes.io/metadata.name";
    let Some(value) = labels.and_then(|labels| labels.get_mut(key)) else { return };
    if value.as_str().is_some_and(|text| text != name && text.len() == name.len() + 3 && text.starts_with(name)) {
        *value = json!(format!("{name}<rand>"));
    }
}

fn decode(text: &str) -> Value {
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()))
}

/// A Helm release Secret, decoded to what matters.
fn release(object: &mut Value) {
    let standard = base64::engine::general_purpose::STANDARD;
    let inner = object.pointer("/data/release").and_then(Value::as_str).and_then(|text| standard.decode(text).ok());
    let zipped = inner.and_then(|bytes| standard.decode(bytes).ok());
    let Some(zipped) = zipped else { return };
    let mut bytes = Vec::new();
    if std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(zipped.as_slice()), &mut bytes).is_err() {
        return;
    }
    let Ok(release) = serde_json::from_slice::<Value>(&bytes) else { return };
    let info = &release["info"];
    let picked: Map<String, Value> = ["status", "description", "notes"]
        .iter()
        .filter_map(|key| Some(((*key).to_owned(), info.get(*key)?.clone())))
        .collect();
    object["data"] = json!({"release (decoded)": {
        "name": release["name"], "namespace": release["namespace"], "version": release["version"], "info": picked,
        "chart": release["chart"]["metadata"], "config": release.get("config"), "manifest": release.get("manifest"),
    }});
    if let Some(labels) = object.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove("modifiedAt");
    }
}
