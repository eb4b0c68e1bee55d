//! Ours beside the recorded: what counts as the same, and every difference by field path.
//!
//! The recorded answers are those of a system with defects, so some of what it wrote must not be copied. Each rule here says
//! why it lets a difference pass; `known.rs` lists single cases with their reasons. Everything else is a difference.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value};

use super::{known, mended};

/// A ReplicaSet in a message; its name ends with a hash.
static SET: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"(ReplicaSet|replica set) "([a-z0-9.-]+)-[a-z0-9]{5,10}""#).expect("a constant"));

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    /// File of the case, such as `step-1/bases`.
    pub file: String,
    /// Kind, namespace and name of the object.
    pub object: String,
    /// Path of the field; empty for the object as a whole.
    pub path: String,
    /// What differs.
    pub text: String,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.file, self.object)?;
        if !self.path.is_empty() {
            write!(f, ": {}", self.path)?;
        }
        write!(f, ": {}", self.text)
    }
}

/// Compares the answers of one case. `skip` names files that are not compared.
///
/// Clusters of equal weight get the odd replica by chance (README of the cases, 3): what fits once two clusters have changed
/// places in the recorded answers fits.
pub fn compare(case: &known::Case<'_>, expected: &BTreeMap<String, Vec<Value>>, got: &BTreeMap<String, Vec<Value>>, skip: &[&str]) -> Vec<Difference> {
    let (mut expected, mut got) = (expected.clone(), got.clone());
    mended::settle(&mut expected, &mut got);
    let (expected, got) = (&expected, &got);
    let straight = compare_as_recorded(case, expected, got, skip);
    if straight.is_empty() || !divided(expected) {
        return straight;
    }
    let names: Vec<String> = expected.keys().filter_map(|file| file.rsplit('/').next()?.strip_prefix("child-").map(str::to_owned)).collect();
    for (at, one) in names.iter().enumerate() {
        for other in names.iter().skip(at + 1).filter(|other| *other != one) {
            if compare_as_recorded(case, &swapped(expected, one, other), got, skip).is_empty() {
                return Vec::new();
            }
        }
    }
    straight
}

fn divided(expected: &BTreeMap<String, Vec<Value>>) -> bool {
    expected.values().flatten().any(|object| object.pointer("/status/replicas").is_some_and(Value::is_object))
}

/// The recorded answers with two clusters in each other's place.
fn swapped(expected: &BTreeMap<String, Vec<Value>>, one: &str, other: &str) -> BTreeMap<String, Vec<Value>> {
    let swap = |text: &str| text.replace(one, "\u{1}").replace(other, one).replace('\u{1}', other);
    expected
        .iter()
        .map(|(file, objects)| {
            let objects = objects.iter().map(|object| {
                let mut object: Value = serde_json::from_str(&swap(&object.to_string())).unwrap_or_default();
                if let Some(list) = object.pointer_mut("/status/bindingClusters").and_then(Value::as_array_mut) {
                    list.sort_by_key(ToString::to_string);
                }
                object
            });
            (swap(file), objects.collect())
        })
        .collect()
}

fn compare_as_recorded(case: &known::Case<'_>, expected: &BTreeMap<String, Vec<Value>>, got: &BTreeMap<String, Vec<Value>>, skip: &[&str]) -> Vec<Difference> {
    let mut found = Vec::new();
    let files: std::collections::BTreeSet<&String> = expected.keys().chain(got.keys()).collect();
    for file in files {
        let stem = file.rsplit('/').next().unwrap_or(file);
        // Events are to read, not to match; `empty` only says that nothing else is there.
        if matches!(stem, "events" | "empty") || skip.contains(&stem) {
            continue;
        }
        let none = Vec::new();
        let (want, have) = (expected.get(file).unwrap_or(&none), got.get(file).unwrap_or(&none));
        match stem {
            "responses" => responses(file, want, have, &mut found),
            "descriptions" => {
                let children = &file[..file.len() - stem.len()];
                objects(file, stem, &fresher(children, want, have, expected), have, &mut found);
                complete(file, have, &mut found);
            }
            _ => objects(file, stem, want, have, &mut found),
        }
    }
    let defects = known::Defects::of(case, expected, got);
    found.retain(|difference| !defects.explain(difference) && !known::justified(case.name, difference));
    found
}

/// Kind, namespace and name of an object.
pub(super) fn identity(object: &Value) -> String {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let namespace = text("/metadata/namespace");
    let name = text("/metadata/name");
    if namespace.is_empty() { format!("{} {name}", text("/kind")) } else { format!("{} {namespace}/{name}", text("/kind")) }
}

fn objects(file: &str, stem: &str, want: &[Value], have: &[Value], found: &mut Vec<Difference>) {
    let index = |list: &[Value]| -> BTreeMap<String, Value> {
        let mut out = BTreeMap::new();
        for object in list {
            let mut key = identity(object);
            while out.contains_key(&key) {
                key.push('\'');
            }
            out.insert(key, tolerant(stem, object));
        }
        out
    };
    let (want, have) = (index(want), index(have));
    let say = |object: &str, path: &str, text: String| Difference { file: file.to_owned(), object: object.to_owned(), path: path.to_owned(), text };
    for (key, expected) in &want {
        match have.get(key) {
            None => found.push(say(key, "", "expected, and not there".to_owned())),
            Some(ours) => {
                let mut ours = ours.clone();
                let mut expected = expected.clone();
                align(stem, &mut expected, &mut ours);
                let mut differences = Vec::new();
                walk("", &expected, &ours, &mut differences);
                found.extend(differences.into_iter().map(|(path, text)| say(key, &path, text)));
            }
        }
    }
    for key in have.keys().filter(|key| !want.contains_key(*key)) {
        found.push(say(key, "", "there, and not expected".to_owned()));
    }
}

fn walk(path: &str, want: &Value, have: &Value, found: &mut Vec<(String, String)>) {
    match (want, have) {
        (Value::Object(want), Value::Object(have)) => {
            let keys: std::collections::BTreeSet<&String> = want.keys().chain(have.keys()).collect();
            for key in keys {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                match (want.get(key), have.get(key)) {
                    (Some(want), Some(have)) => walk(&path, want, have, found),
                    (Some(want), None) => found.push((path, format!("expected {}, got nothing", short(want)))),
                    (None, Some(have)) => found.push((path, format!("expected nothing, got {}", short(have)))),
                    (None, None) => {}
                }
            }
        }
        (Value::Array(want), Value::Array(have)) if want.len() == have.len() => {
            for (index, (want, have)) in want.iter().zip(have).enumerate() {
                walk(&format!("{path}[{index}]"), want, have, found);
            }
        }
        _ if want == have => {}
        _ => found.push((path.to_owned(), format!("expected {}, got {}", short(want), short(have)))),
    }
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() > 160 { format!("{}…", text.chars().take(160).collect::<String>()) } else { text }
}

/// Takes out of an object what no right system need have the same.
fn tolerant(stem: &str, object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        // Finalizers are a set.
        if let Some(list) = meta.get_mut("finalizers").and_then(Value::as_array_mut) {
            list.sort_by_key(ToString::to_string);
        }
        // Recorded on the Description's owner chain only by systems that lost it (facts 7.3): the label is right to be there.
        if matches!(stem, "descriptions" | "helmreleases")
            && let Some(labels) = meta.get_mut("labels").and_then(Value::as_object_mut)
        {
            labels.remove("apps.clusternet.io/subs.name");
        }
        if let Some(annotations) = meta.get_mut("annotations").and_then(Value::as_object_mut) {
            // Server-side apply keeps no copy of the applied object in an annotation.
            annotations.remove("clusternet.io/last-applied-configuration");
            // The text is for people.
            if let Some(text) = annotations.get_mut("apps.clusternet.io/feed-protection") {
                *text = Value::from("<text>");
            }
            // Our own group's annotations are additions.
            annotations.retain(|key, _| !key.starts_with("gitops.anabranch.io/"));
            let empty = annotations.is_empty();
            if empty {
                meta.remove("annotations");
            }
        }
    }
    // Which users of a chart its copies name is chance (README of the cases, 6).
    if stem == "helmreleases" {
        chart_copy(&mut object);
    }
    if stem == "helmcharts"
        && let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
    {
        // Go writes the reference to no Secret back.
        spec.retain(|key, value| !(key == "chartPullSecret" && *value == serde_json::json!({})));
    }
    for chart in object.pointer_mut("/spec/chartRaw").and_then(Value::as_array_mut).into_iter().flatten() {
        chart_copy(chart);
    }
    if matches!(stem, "subscription-status" | "localizations" | "globalizations" | "bases" | "feedinventories") {
        written_back(object.get_mut("spec"));
        if matches!(stem, "localizations" | "globalizations")
            && let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
        {
            // A priority of zero is left out the same way, and the server then puts in its default.
            spec.entry("priority").or_insert(Value::from(500));
        }
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        if stem == "subscription-status" {
            // Fields that the original never writes.
            status.remove("conditions");
            status.remove("completedReleases");
            generations(status.get_mut("aggregatedStatuses"));
        }
        if matches!(stem, "descriptions" | "helmcharts") && status.contains_key("reason") {
            // The text of a reason is for people.
            status.insert("reason".to_owned(), Value::String("<reason>".to_owned()));
        }
        if stem.starts_with("child-") {
            child_status(status);
        }
        if status.is_empty()
            && let Some(fields) = object.as_object_mut()
        {
            fields.remove("status");
        }
    }
    object
}

/// Takes the users' labels out of what was copied from a HelmChart.
fn chart_copy(object: &mut Value) {
    if let Some(labels) = object.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.retain(|key, _| !key.starts_with("<uid:"));
    }
}

/// What Go's encoder leaves out when the original writes an object of its own back: empty texts, zeroes, false.
fn written_back(value: Option<&mut Value>) {
    match value {
        Some(Value::Object(fields)) => {
            fields.retain(|_, field| !(*field == "" || *field == 0 || *field == false));
            fields.values_mut().for_each(|field| written_back(Some(field)));
        }
        Some(Value::Array(items)) => items.iter_mut().for_each(|item| written_back(Some(item))),
        _ => {}
    }
}

/// How often a workload was written in a child (README of the cases, 7): chance.
fn generations(value: Option<&mut Value>) {
    match value {
        Some(Value::Object(fields)) => {
            fields.remove("observedGeneration");
            fields.values_mut().for_each(|field| generations(Some(field)));
        }
        Some(Value::Array(items)) => items.iter_mut().for_each(|item| generations(Some(item))),
        _ => {}
    }
}

/// Statuses in a child: what its own controllers time by chance.
fn child_status(status: &mut Map<String, Value>) {
    // Divided workloads are deployed twice by the original (README of the cases, 7).
    status.remove("observedGeneration");
    for condition in status.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten() {
        // The hash in the name of a ReplicaSet, as in that of a revision, is an implementation's own.
        if let Some(text) = condition.get("message").and_then(Value::as_str) {
            condition["message"] = Value::String(SET.replace_all(text, r#"$1 "$2-<hash>""#).into_owned());
        }
    }
    for field in ["currentRevision", "updateRevision"] {
        if let Some(Value::String(name)) = status.get_mut(field)
            && let Some(at) = name.rfind('-')
        {
            name.replace_range(at.., "-<hash>");
        }
    }
    if let Some(list) = status.get_mut("conditions").and_then(Value::as_array_mut) {
        list.sort_by_key(|condition| condition["type"].to_string());
    }
}

/// Lets both sides differ where the recorded side is known to be by chance or wrong throughout.
fn align(stem: &str, want: &mut Value, have: &mut Value) {
    if stem == "subscription-status" && want.pointer("/status/aggregatedStatuses").is_none() {
        // Never written by the original, for a label it lost (README of the cases, 1).
        if let Some(status) = have.get_mut("status").and_then(Value::as_object_mut) {
            status.remove("aggregatedStatuses");
        }
    }
    if stem == "descriptions" {
        statuses(want, have);
    }
}

/// `manifestStatuses` of the original miss entries, keep removed ones and may be stale (README of the cases, 2): each entry that both
/// sides have is compared, by its feed; ours must have one per object of the Description.
fn statuses(want: &mut Value, have: &mut Value) {
    let key = |entry: &Value| {
        ["apiVersion", "kind", "namespace", "name"].map(|field| entry[field].as_str().unwrap_or_default().to_owned())
    };
    let take = |object: &mut Value| -> Vec<Value> {
        match object.pointer_mut("/status").and_then(Value::as_object_mut).and_then(|status| status.remove("manifestStatuses")) {
            Some(Value::Array(list)) => list,
            _ => Vec::new(),
        }
    };
    let (mut wanted, mut had) = (take(want), take(have));
    had.retain(|entry| wanted.iter().any(|other| key(other) == key(entry)));
    wanted.retain(|entry| had.iter().any(|other| key(other) == key(entry)));
    for list in [&mut wanted, &mut had] {
        list.sort_by_key(key);
        for entry in list.iter_mut() {
            if let Some(status) = entry.get_mut("observedStatus").and_then(Value::as_object_mut) {
                child_status(status);
            }
        }
    }
    for (object, list) in [(want, wanted), (have, had)] {
        if !list.is_empty() {
            object["status"]["manifestStatuses"] = Value::Array(list);
        }
    }
}

/// Which object an entry of `manifestStatuses`, or an object itself, is about.
fn about(object: &Value) -> [String; 4] {
    let text = |pointers: [&str; 2]| pointers.iter().find_map(|at| object.pointer(at)).and_then(Value::as_str).unwrap_or_default().to_owned();
    [
        text(["/apiVersion", "/apiVersion"]),
        text(["/kind", "/kind"]),
        text(["/metadata/namespace", "/namespace"]),
        text(["/metadata/name", "/name"]),
    ]
}

/// Recorded Descriptions may show an older status of an object (README of the cases, 2). Where ours is the one that the recorded child
/// itself has, ours is right.
fn fresher(prefix: &str, want: &[Value], have: &[Value], recorded: &BTreeMap<String, Vec<Value>>) -> Vec<Value> {
    let calm = |status: Option<&Value>| {
        let mut status = status.cloned().unwrap_or_default();
        if let Some(fields) = status.as_object_mut() {
            child_status(fields);
        }
        status
    };
    let mut out = want.to_vec();
    for description in &mut out {
        let id = identity(description);
        let namespace = description.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
        let Some(child) = namespace.strip_prefix("clusternet-").and_then(|name| recorded.get(&format!("{prefix}child-{name}"))) else { continue };
        let Some(ours) = have.iter().find(|other| identity(other) == id).and_then(|o| o.pointer("/status/manifestStatuses")).and_then(Value::as_array) else { continue };
        for entry in description.pointer_mut("/status/manifestStatuses").and_then(Value::as_array_mut).into_iter().flatten() {
            let key = about(entry);
            let live = child.iter().find(|object| about(object) == key);
            let Some(own) = ours.iter().find(|other| about(other) == key) else { continue };
            if let (Some(live), Some(status)) = (live, own.get("observedStatus"))
                && calm(live.get("status")) == calm(Some(status))
            {
                entry["observedStatus"] = status.clone();
            }
        }
    }
    out
}

/// A Description that succeeded tells of each of its objects, in their order.
fn complete(file: &str, have: &[Value], found: &mut Vec<Difference>) {
    for description in have.iter().filter(|one| one.pointer("/status/phase").is_some_and(|phase| phase == "Success")) {
        let keys = |pointer: &str| -> Vec<[String; 4]> { description.pointer(pointer).and_then(Value::as_array).into_iter().flatten().map(about).collect() };
        // A feed that is listed twice is one object.
        let mut raw = keys("/spec/raw");
        let mut seen = std::collections::BTreeSet::new();
        raw.retain(|key| seen.insert(key.clone()));
        if description["spec"]["deployer"] == "Generic" && raw != keys("/status/manifestStatuses") {
            found.push(Difference {
                file: file.to_owned(),
                object: identity(description),
                path: "status.manifestStatuses".to_owned(),
                text: "not one entry for each object, in their order".to_owned(),
            });
        }
    }
}

/// Answers to requests: code and reason count, and the answer where one was asked for; texts are for people.
fn responses(file: &str, want: &[Value], have: &[Value], found: &mut Vec<Difference>) {
    let key = |entry: &Value| {
        let what = entry.get("call").or_else(|| entry.get("object")).and_then(Value::as_str).unwrap_or_default();
        format!("{} {what}", entry["file"].as_str().unwrap_or_default())
    };
    let say = |object: String, path: &str, text: String| Difference { file: file.to_owned(), object, path: path.to_owned(), text };
    let mut rest: Vec<&Value> = have.iter().collect();
    for expected in want {
        let Some(at) = rest.iter().position(|entry| key(entry) == key(expected)) else {
            found.push(say(key(expected), "", "expected, and not there".to_owned()));
            continue;
        };
        let ours = rest.remove(at);
        for field in ["code", "reason"] {
            if expected.get(field) != ours.get(field) {
                let show = |value: Option<&Value>| value.map(short).unwrap_or_else(|| "nothing".to_owned());
                found.push(say(key(expected), field, format!("expected {}, got {}", show(expected.get(field)), show(ours.get(field)))));
            }
        }
        if let (Some(expected_answer), Some(answer)) = (expected.get("answer"), ours.get("answer")) {
            let mut differences = Vec::new();
            walk("answer", &quiet(expected_answer), &quiet(answer), &mut differences);
            found.extend(differences.into_iter().map(|(path, text)| say(key(expected), &path, text)));
        }
    }
    for entry in rest {
        found.push(say(key(entry), "", "there, and not expected".to_owned()));
    }
}

/// An entry of discovery by group and name. Of custom kinds the original loses group and version, and its hash is of its own store.
fn resource(mut entry: Value) -> (String, Value) {
    let custom = entry.get("storageVersionHash").is_some() || entry["group"].as_str().is_some_and(|group| group.contains('.') && !group.ends_with(".k8s.io"));
    let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
    let key = format!("{}/{}", if custom { String::new() } else { text("group") }, text("name"));
    if let Some(fields) = entry.as_object_mut() {
        fields.remove("storageVersionHash");
        if custom {
            fields.remove("group");
            fields.remove("version");
        }
        if let Some(verbs) = fields.get_mut("verbs").and_then(Value::as_array_mut) {
            verbs.sort_by_key(ToString::to_string);
        }
    }
    (key, entry)
}

/// An answer without what is for people (the message of a Status) or empty either way.
fn quiet(answer: &Value) -> Value {
    let mut answer = answer.clone();
    if answer["kind"] == "Status"
        && let Some(fields) = answer.as_object_mut()
    {
        fields.remove("message");
        fields.remove("details");
    }
    if answer["kind"] == "APIResourceList"
        && let Some(Value::Array(resources)) = answer.get_mut("resources").map(Value::take)
    {
        answer["resources"] = resources.into_iter().map(resource).collect();
    }
    if let Some(meta) = answer.get_mut("metadata").and_then(Value::as_object_mut)
        && meta.get("continue").is_some_and(|token| token == "")
    {
        meta.remove("continue");
    }
    answer
}
