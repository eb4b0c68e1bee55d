//! Acts a case out on a stage and writes down what came of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::case::{Case, is_own};
use super::normal::{self, Names};
use super::stage::Stage;
use super::wire::root;

const APPS: &str = "/apis/apps.clusternet.io/v1alpha1";
const CLUSTERS: &str = "/apis/clusters.clusternet.io/v1beta1";
/// Collection and the stem of the file it is written to.
const KINDS: [(&str, &str, &str); 9] = [
    ("subscriptions", "subscription-status", "Subscription"),
    ("bases", "bases", "Base"),
    ("descriptions", "descriptions", "Description"),
    ("helmreleases", "helmreleases", "HelmRelease"),
    ("helmcharts", "helmcharts", "HelmChart"),
    ("manifests", "manifests", "Manifest"),
    ("localizations", "localizations", "Localization"),
    ("globalizations", "globalizations", "Globalization"),
    ("feedinventories", "feedinventories", "FeedInventory"),
];
/// What a scheduler case writes down.
const SCHEDULER_FILES: [&str; 3] = ["subscription-status", "localizations", "feedinventories"];
/// The longest that a step may take to get quiet.
const MOST: Duration = Duration::from_secs(180);
/// How many times longer is waited while something is under way.
const PATIENCE: u32 = 6;
/// How often is looked whether something was written.
const LOOK: Duration = Duration::from_millis(40);
/// Reading everything costs more than what is going on: it is done no more often than this.
const READ: Duration = Duration::from_millis(300);
/// Looks in a row that must find nothing new.
const LOOKS: u32 = 20;

/// The state of all servers: side -> collection -> objects.
type State = BTreeMap<String, BTreeMap<String, Vec<Value>>>;

/// A case on its stage.
pub(super) struct Run<'a> {
    case: &'a Case,
    stage: &'a Stage,
    names: Names,
    /// uids that were there before.
    before: BTreeSet<String>,
    responses: Vec<Value>,
    quiet: Duration,
}

impl<'a> Run<'a> {
    /// Plays the case and returns the files as they would be recorded.
    pub(super) async fn play(case: &'a Case, stage: &'a Stage, quiet: Duration) -> Result<BTreeMap<String, Vec<Value>>> {
        let mut names = Names::default();
        for (id, name) in stage.cluster_ids() {
            names.fix(&id, &format!("<cluster-id:{name}>"));
        }
        names.fix(&stage.places().charts, "${CHART_REPO}");
        names.fix(&stage.places().predictor, "${PREDICTOR}");
        if case.scheduler {
            names.know(&case.clusters.iter().map(Value::to_string).collect::<String>());
        }
        names.know(&case.steps.values().flatten().flat_map(|(_, docs)| docs).map(Value::to_string).collect::<String>());
        if let Some(prefix) = case.settings["generated"].as_str() {
            names.generated(prefix);
        }
        let mut run = Run { case, stage, names, before: BTreeSet::new(), responses: Vec::new(), quiet };
        run.before = run.state().await?.values().flat_map(BTreeMap::values).flatten().map(uid).collect();
        run.steps().await
    }

    async fn steps(mut self) -> Result<BTreeMap<String, Vec<Value>>> {
        for cluster in &self.case.clusters {
            self.cluster(cluster.clone()).await?;
        }
        let mut out = BTreeMap::new();
        let last = self.case.steps.keys().next_back().copied().unwrap_or_default();
        for (number, files) in &self.case.steps {
            for (file, documents) in files {
                for document in documents {
                    self.act(file, document).await?;
                }
            }
            let state = self.settle().await?;
            let mut written = self.write(&state);
            if *number != last {
                written.remove("responses");
            }
            for (stem, objects) in written {
                out.insert(if *number == last { stem } else { format!("step-{number}/{stem}") }, objects);
            }
        }
        Ok(out)
    }

    /// Waits until nothing has changed for a while.
    ///
    /// The stores' revisions say cheaply that something was written; what it was is read only then. On a busy machine the wait
    /// stretches: what counts is the time for which this process had a processor when it wanted one.
    async fn settle(&mut self) -> Result<State> {
        let start = Instant::now();
        let mut seen = self.stage.revisions().await?;
        let mut state = self.state().await?;
        let mut last = self.fingerprint(&state);
        let (mut at, mut read, mut looks, mut used) = (Instant::now(), Instant::now(), 0, Processor::now());
        loop {
            tokio::time::sleep(LOOK).await;
            let now = self.stage.revisions().await?;
            let still = now == seen;
            if still {
                looks += 1;
            } else if read.elapsed() >= READ {
                (seen, read) = (now, Instant::now());
                state = self.state().await?;
                let print = self.fingerprint(&state);
                if print != last {
                    (last, at, looks, used) = (print, Instant::now(), 0, Processor::now());
                }
            }
            let quiet = if self.under_way(&state) { self.quiet * PATIENCE } else { self.quiet };
            let is_over = still && looks >= LOOKS && at.elapsed() >= quiet && at.elapsed().mul_f64(used.share_since()) >= quiet;
            if is_over || start.elapsed() > MOST {
                return Ok(state);
            }
        }
    }

    /// Whether something has begun that usually ends: an object that is leaving, a Description that nobody has told about yet or that will
    /// be tried again, a status of the child that its Description does not show yet. It may stay so.
    fn under_way(&self, state: &State) -> bool {
        let leaves = |object: &Value| object.pointer("/metadata/deletionTimestamp").is_some();
        let waits = |object: &Value| {
            let phase = object.pointer("/status/phase").and_then(Value::as_str);
            object["kind"] == "Description" && matches!(phase, None | Some("Installing" | "Upgrading" | "Uninstalling" | "Failure"))
        };
        let late = |object: &Value| object["kind"] == "Description" && is_late(object, state);
        let mut objects = state.values().flat_map(BTreeMap::values).flatten();
        objects.any(|object| leaves(object) || !self.case.scheduler && (waits(object) || late(object)))
    }

    fn fingerprint(&self, state: &State) -> Vec<(String, String)> {
        let mut out = Vec::new();
        for collections in state.values() {
            for (collection, objects) in collections {
                for object in objects {
                    let what = match collection.as_str() {
                        // Heartbeats are no change.
                        "managedclusters" => json!([object["metadata"]["labels"], object["spec"]]).to_string(),
                        _ => object["metadata"]["resourceVersion"].to_string(),
                    };
                    out.push((uid(object), what));
                }
            }
        }
        out.sort();
        out
    }

    async fn state(&mut self) -> Result<State> {
        let mut state = State::new();
        let parent = self.stage.parent();
        let mut here = BTreeMap::new();
        for (collection, _, kind) in KINDS {
            let mut objects = parent.items(&format!("{APPS}/{collection}")).await?;
            for object in &mut objects {
                object["apiVersion"] = json!("apps.clusternet.io/v1alpha1");
                object["kind"] = json!(kind);
            }
            here.insert(collection.to_owned(), objects);
        }
        let mut clusters = parent.items(&format!("{CLUSTERS}/managedclusters")).await?;
        for object in &mut clusters {
            object["kind"] = json!("ManagedCluster");
        }
        here.insert("managedclusters".to_owned(), clusters);
        state.insert("parent".to_owned(), here);
        let mut kinds = self.case.child_kinds();
        kinds.push(("v1".to_owned(), "Namespace".to_owned()));
        kinds.sort();
        kinds.dedup();
        for (name, server) in self.stage.children() {
            let mut here = BTreeMap::new();
            for (api_version, kind) in &kinds {
                let Some((plural, _)) = server.resource(api_version, kind, 1).await? else { continue };
                let mut objects = server.items(&format!("{}{api_version}/{plural}", root(api_version))).await?;
                for object in &mut objects {
                    object["apiVersion"] = json!(api_version);
                    object["kind"] = json!(kind);
                }
                here.insert(format!("{api_version}/{kind}"), objects);
            }
            state.insert(name.clone(), here);
        }
        for object in state.values().flat_map(BTreeMap::values).flatten() {
            self.names.learn(object);
        }
        for base in &state["parent"]["bases"] {
            self.names.learn_base(base);
        }
        for localization in &state["parent"]["localizations"] {
            self.names.learn_localization(localization);
        }
        Ok(state)
    }

    fn write(&self, state: &State) -> BTreeMap<String, Vec<Value>> {
        let mut out = BTreeMap::new();
        let skips = self.case.skips();
        for (collection, stem, _) in KINDS {
            if self.case.scheduler && !SCHEDULER_FILES.contains(&stem) || skips.contains(&stem) {
                continue;
            }
            let objects = self.fresh(&state["parent"][collection], collection, |_| true);
            if !objects.is_empty() {
                out.insert(stem.to_owned(), objects);
            }
        }
        out.insert(super::mended::ALIVE.to_owned(), super::mended::alive(&state["parent"]["managedclusters"]));
        for (name, _) in self.stage.children() {
            let mut objects: Vec<Value> = Vec::new();
            for list in state[name].values() {
                let own = |object: &Value| {
                    let what = (object["kind"].as_str().unwrap_or_default(), object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default());
                    !matches!(what, ("ConfigMap", "kube-root-ca.crt") | ("ServiceAccount", "default"))
                };
                objects.extend(self.fresh(list, "", own));
            }
            if !objects.is_empty() {
                out.insert(format!("child-{name}"), objects);
            }
        }
        if !self.responses.is_empty() {
            let written = self.responses.iter().map(|entry| {
                let mut entry = entry.clone();
                if let Some(answer) = entry.get_mut("answer") {
                    *answer = normal::strip(answer);
                }
                self.names.write(&entry)
            });
            out.insert("responses".to_owned(), written.collect());
        }
        out
    }

    fn fresh(&self, objects: &[Value], collection: &str, keep: impl Fn(&Value) -> bool) -> Vec<Value> {
        let fresh = objects.iter().filter(|object| !self.before.contains(&uid(object)) && keep(object));
        fresh.map(|object| self.names.write(&normal::clean(collection, object))).collect()
    }

    /// Makes a cluster of a scheduler case, with its namespace and status.
    async fn cluster(&self, mut cluster: Value) -> Result<()> {
        let parent = self.stage.parent();
        let text = |path: &str| cluster.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
        let labels = json!({
            "clusters.clusternet.io/cluster-id": text("/spec/clusterId"),
            "clusters.clusternet.io/cluster-name": name,
            "clusternet.io/created-by": "clusternet-controller-manager",
        });
        self.namespace(&namespace, &labels).await?;
        let status = cluster.as_object_mut().and_then(|fields| fields.remove("status"));
        let collection = format!("{CLUSTERS}/namespaces/{namespace}/managedclusters");
        parent.json("POST", &collection, Some(&cluster)).await?;
        if let Some(status) = status {
            let now = k8s_openapi::jiff::Timestamp::now();
            let text = status.to_string().replace("<time>", &now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
            let patch = json!({"status": serde_json::from_str::<Value>(&text)?});
            let path = format!("{collection}/{name}/status");
            parent.send("PATCH", &path, Some(&patch), "application/merge-patch+json", "application/json").await?;
        }
        Ok(())
    }

    async fn namespace(&self, name: &str, labels: &Value) -> Result<()> {
        let parent = self.stage.parent();
        let (code, _) = parent.json("GET", &format!("/api/v1/namespaces/{name}"), None).await?;
        if code == 404 {
            let body = json!({"metadata": {"name": name, "labels": labels}});
            parent.json("POST", "/api/v1/namespaces", Some(&body)).await?;
        }
        Ok(())
    }

    async fn act(&mut self, file: &str, document: &Value) -> Result<()> {
        if document.get("method").is_some() {
            return self.call(file, document).await;
        }
        let rest = file.split_once('-').map_or("", |(_, rest)| rest);
        let (place, rest) = match rest.strip_prefix("parent-") {
            Some(rest) => (Some("parent"), rest),
            None => match rest.strip_prefix("child-").and_then(|rest| rest.split_once('-')) {
                Some((name, rest)) => (Some(name), rest),
                None => (None, rest),
            },
        };
        let verb = ["patch", "delete", "put"].into_iter().find(|verb| rest.starts_with(verb)).unwrap_or_default();
        let mut object = self.names.real(document);
        let mut take = |key: &str| object.as_object_mut().and_then(|fields| fields.remove(key));
        let subresource = take("x-subresource").and_then(|v| v.as_str().map(str::to_owned));
        let patch_type = take("x-patch-type").and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_else(|| "merge".to_owned());
        let patch = take("x-patch");
        let show = take("x-show").is_some_and(|v| v == true);
        let child = place.filter(|place| *place != "parent");
        let server = match child {
            Some(name) => self.stage.child(name).ok_or_else(|| anyhow::anyhow!("{file}: no child {name}"))?,
            None => self.stage.parent(),
        };
        let api_version = object["apiVersion"].as_str().unwrap_or_default().to_owned();
        let shadow = place.is_none() && !is_own(&api_version);
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        if kind == "ManagedCluster" && verb.is_empty() {
            return self.cluster(object).await;
        }
        let Some((collection, mut path)) = server.paths(&object, shadow, 20).await? else {
            self.note(file, &object, 404, &json!({"reason": "NoSuchKind"}));
            return Ok(());
        };
        if child.is_none()
            && !shadow
            && let Some(namespace) = object.pointer("/metadata/namespace").and_then(Value::as_str)
        {
            self.namespace(namespace, &json!({})).await?;
        }
        if let Some(subresource) = &subresource {
            path = format!("{path}/{subresource}");
        }
        let (code, answer) = match verb {
            "patch" => {
                let content_type = match patch_type.as_str() {
                    "json" => "application/json-patch+json",
                    "strategic" => "application/strategic-merge-patch+json",
                    "apply" => "application/apply-patch+yaml",
                    _ => "application/merge-patch+json",
                };
                if patch_type == "apply" {
                    path.push_str("?fieldManager=oracle&force=true");
                }
                server.send("PATCH", &path, Some(patch.as_ref().unwrap_or(&object)), content_type, "application/json").await?
            }
            "delete" => server.json("DELETE", &path, None).await?,
            "put" => {
                let (_, current) = server.json("GET", &path, None).await?;
                if subresource.is_none() {
                    object["metadata"]["resourceVersion"] = current.pointer("/metadata/resourceVersion").cloned().unwrap_or_else(|| json!(""));
                }
                server.json("PUT", &path, Some(&object)).await?
            }
            _ => {
                // The shadow's routes of a new CRD come a moment after it.
                let mut answer = server.json("POST", &collection, Some(&object)).await?;
                for _ in 0..20 {
                    let absent = answer.0 == 404 && answer.1.to_string().contains("could not find the requested resource");
                    if !(shadow && absent) {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    answer = server.json("POST", &collection, Some(&object)).await?;
                }
                answer
            }
        };
        if code >= 400 || show {
            self.note(file, &object, code, &answer);
        }
        Ok(())
    }

    fn note(&mut self, file: &str, object: &Value, code: u16, answer: &Value) {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let what = format!("{}/{} {}/{}", text("/apiVersion"), text("/kind"), text("/metadata/namespace"), text("/metadata/name"));
        let mut entry = json!({"file": file, "object": what.replace(" /", " "), "code": code});
        if code >= 400 {
            for key in ["reason", "message"] {
                if let Some(value) = answer.get(key).filter(|value| !value.as_str().unwrap_or("x").is_empty()) {
                    entry[key] = value.clone();
                }
            }
        } else {
            entry["answer"] = answer.clone();
        }
        self.responses.push(entry);
    }

    async fn call(&mut self, file: &str, document: &Value) -> Result<()> {
        let text = |key: &str, default: &str| document[key].as_str().unwrap_or(default).to_owned();
        let (method, path) = (text("method", "GET"), text("path", "/"));
        let (code, mut answer) = self
            .stage
            .parent()
            .send(&method, &path, document.get("body"), &text("contentType", "application/json"), &text("accept", "application/json"))
            .await?;
        let mut entry = json!({"file": file, "call": format!("{method} {path}"), "code": code});
        if document.get("show") != Some(&json!(false)) && answer.is_object() {
            for item in answer.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
                *item = normal::strip(item);
            }
            let age: Vec<bool> = answer["columnDefinitions"].as_array().into_iter().flatten().map(|column| column["name"] == "Age").collect();
            for row in answer.get_mut("rows").and_then(Value::as_array_mut).into_iter().flatten() {
                row["object"] = normal::strip(&row["object"]);
                for (cell, _) in row["cells"].as_array_mut().into_iter().flatten().zip(&age).filter(|(_, age)| **age) {
                    *cell = json!("<age>");
                }
            }
            for column in answer.get_mut("columnDefinitions").and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(column) = column.as_object_mut() {
                    column.remove("description");
                }
            }
            if let Some(meta) = answer.get_mut("metadata").and_then(Value::as_object_mut) {
                meta.remove("resourceVersion");
            }
            entry["answer"] = answer;
        }
        self.responses.push(entry);
        Ok(())
    }
}

/// How long all threads of this process ran, and waited for a processor, in nanoseconds.
struct Processor {
    ran: u64,
    waited: u64,
}

impl Processor {
    fn now() -> Processor {
        let mut sum = Processor { ran: 0, waited: 0 };
        // Only Linux tells; elsewhere the processor counts as our own.
        for thread in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
            let told = std::fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
            let mut numbers = told.split_whitespace().map(|number| number.parse().unwrap_or(0));
            sum.ran += numbers.next().unwrap_or(0);
            sum.waited += numbers.next().unwrap_or(0);
        }
        sum
    }

    /// The part of the wanted time that was had since then.
    fn share_since(&self) -> f64 {
        let now = Processor::now();
        let (ran, waited) = (now.ran.saturating_sub(self.ran) as f64, now.waited.saturating_sub(self.waited) as f64);
        if ran + waited > 0.0 { (ran / (ran + waited)).max(0.02) } else { 1.0 }
    }
}

/// Whether a Description shows another status of an object than the child itself.
fn is_late(description: &Value, state: &State) -> bool {
    let namespace = description.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
    let Some(child) = namespace.strip_prefix("clusternet-").and_then(|name| state.get(name)) else { return false };
    let told = description.pointer("/status/manifestStatuses").and_then(Value::as_array);
    told.into_iter().flatten().any(|entry| {
        let text = |field: &str| entry[field].as_str().unwrap_or_default();
        let objects = child.get(&format!("{}/{}", text("apiVersion"), text("kind")));
        let own = |object: &&Value| object["metadata"]["name"] == entry["name"] && object["metadata"]["namespace"].as_str().unwrap_or_default() == text("namespace");
        let live = objects.into_iter().flatten().find(own);
        live.is_some_and(|object| object.get("status") != entry.get("observedStatus"))
    })
}

fn uid(object: &Value) -> String {
    object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default().to_owned()
}
