//! Rollouts in a model of a server: whatever the numbers, pods stay within the limits of the strategy and the rollout ends.

use std::collections::BTreeMap;
use std::sync::Arc;

use apiserver::auth::Objects;
use apiserver::controllers::{Call, Change, Controller, Graph, Key, World};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::{json, Value};

use crate::value::{at, int, name, text};
use crate::{Deployments, ReplicaSets};

/// Objects by plural and name, all in one namespace, changed as a server would.
#[derive(Default)]
struct Model {
    objects: BTreeMap<(String, String), Arc<Value>>,
    count: u64,
    now: Timestamp,
}

impl Objects for Model {
    fn get(&self, _: &str, plural: &str, _: &str, name: &str) -> Option<Arc<Value>> {
        self.objects.get(&(plural.to_owned(), name.to_owned())).cloned()
    }

    fn list(&self, _: &str, plural: &str, _: Option<&str>) -> Vec<Arc<Value>> {
        self.objects.iter().filter(|((p, _), _)| p == plural).map(|(_, object)| object.clone()).collect()
    }
}

fn group(plural: &str) -> &'static str {
    if plural == "pods" { "" } else { "apps" }
}

impl Model {
    fn stamp(&mut self) -> String {
        self.count += 1;
        self.count.to_string()
    }

    fn put(&mut self, plural: &str, mut object: Value) {
        object["metadata"]["resourceVersion"] = json!(self.stamp());
        self.objects.insert((plural.to_owned(), name(&object).to_owned()), Arc::new(object));
    }

    /// Performs a call; false when its precondition does not hold.
    fn perform(&mut self, call: &Call) -> bool {
        let parts: Vec<&str> = call.path.split('/').collect();
        let at_plural = parts.iter().position(|part| ["pods", "replicasets", "deployments"].contains(part)).expect("a plural");
        let plural = parts[at_plural].to_owned();
        let target = parts.get(at_plural + 1).map(|name| (*name).to_owned());
        let sub = parts.get(at_plural + 2).copied().unwrap_or("");
        let old = target.as_ref().and_then(|target| self.get("", &plural, "", target));
        let spec_changed = |old: &Value, new: &Value| old.get("spec") != new.get("spec");
        match (call.method, old) {
            ("POST", _) => {
                let mut object = call.body.clone();
                let id = self.stamp();
                if name(&object).is_empty() {
                    let stem = text(&object, &["metadata", "generateName"]).to_owned();
                    object["metadata"]["name"] = json!(format!("{stem}{id:0>6}"));
                }
                object["metadata"]["uid"] = json!(format!("uid-{id}"));
                object["metadata"]["generation"] = json!(1);
                object["metadata"]["creationTimestamp"] = json!(self.now.to_string());
                if self.get("", &plural, "", name(&object)).is_some() {
                    return false;
                }
                self.put(&plural, object);
            }
            ("PUT", Some(old)) => {
                if text(&call.body, &["metadata", "resourceVersion"]) != text(&old, &["metadata", "resourceVersion"]) {
                    return false;
                }
                let mut object = if sub == "status" { Value::clone(&old) } else { call.body.clone() };
                object["status"] = if sub == "status" { call.body["status"].clone() } else { old["status"].clone() };
                if spec_changed(&old, &object) {
                    object["metadata"]["generation"] = json!(int(&old, &["metadata", "generation"]).unwrap_or(0) + 1);
                }
                self.put(&plural, object);
            }
            ("PATCH", Some(old)) => {
                let mut object = Value::clone(&old);
                merge(&mut object, &call.body);
                self.put(&plural, object);
            }
            ("DELETE", Some(_)) => {
                self.objects.remove(&(plural, target.expect("a name")));
            }
            _ => {}
        }
        true
    }

    fn graph(&self) -> Graph {
        let mut graph = Graph::default();
        for ((plural, _), object) in &self.objects {
            graph.apply(&Change::of(group(plural), plural, object, false).expect("an object"));
        }
        graph
    }

    /// One round: every object's controller decides on the same state, all calls are made. True when anything was done.
    fn round(&mut self, controllers: &[(&dyn Controller, &str)]) -> bool {
        let graph = self.graph();
        let mut calls = Vec::new();
        for (controller, plural) in controllers {
            for object in self.list("", plural, None) {
                let key = Key::new(group(plural), plural, "default", name(&object));
                let world = World { objects: self, graph: &graph, now: self.now };
                calls.push(controller.decide(&key, &world).stages);
            }
        }
        let mut acted = false;
        for stages in calls {
            for stage in stages {
                acted |= !stage.is_empty();
                if stage.iter().any(|call| !self.perform(call)) {
                    break;
                }
            }
        }
        acted
    }

    /// Turns up to `count` pods ready, the oldest first.
    fn ready(&mut self, count: usize) -> bool {
        let waiting: Vec<Arc<Value>> =
            self.list("", "pods", None).into_iter().filter(|pod| !crate::pods::ready(pod)).take(count).collect();
        for pod in &waiting {
            let mut pod = Value::clone(pod);
            pod["status"] = json!({"phase": "Running", "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": self.now.to_string()},
            ]});
            self.put("pods", pod);
        }
        !waiting.is_empty()
    }

    fn counts(&self) -> (i64, i64) {
        let pods = self.list("", "pods", None);
        let ready = pods.iter().filter(|pod| crate::pods::ready(pod)).count();
        (i64::try_from(pods.len()).expect("few"), i64::try_from(ready).expect("few"))
    }
}

fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            target.as_object_mut().expect("a map").remove(key);
        } else {
            merge(&mut target[key.as_str()], value);
        }
    }
}

fn deployment(replicas: i64, surge: &Value, unavailable: &Value, strategy: &str) -> Value {
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default", "uid": "uid-web", "generation": 1},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "progressDeadlineSeconds": 600,
            "revisionHistoryLimit": 2, "strategy": {"type": strategy},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "a", "image": "v0"}]}},
        },
    });
    if strategy == "RollingUpdate" {
        object["spec"]["strategy"]["rollingUpdate"] = json!({"maxSurge": surge, "maxUnavailable": unavailable});
    }
    object
}

/// Rounds until nothing is left to do. `check` looks at the model after each.
fn settle(model: &mut Model, step: usize, check: &mut dyn FnMut(&Model)) {
    let (sets, deployments) = (ReplicaSets::new(), Deployments);
    for _ in 0..400 {
        let acted = model.round(&[(&deployments, "deployments"), (&sets, "replicasets")]);
        model.now += SignedDuration::from_secs(1);
        check(model);
        if !model.ready(step) && !acted {
            return;
        }
    }
    panic!("the rollout never ends");
}

fn limit() -> impl Strategy<Value = Value> {
    prop_oneof![(0i64..4).prop_map(|n| json!(n)), (0i64..101).prop_map(|n| json!(format!("{n}%")))]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rollouts_keep_their_limits_and_end(
        replicas in 1i64..9, surge in limit(), unavailable in limit(), step in 1usize..4,
        changes in prop::collection::vec((0u8..3, 1i64..9), 1..4),
    ) {
        let mut model = Model { now: "2026-11-29T12:00:00Z".parse().expect("a time"), ..Model::default() };
        model.put("deployments", deployment(replicas, &surge, &unavailable, "RollingUpdate"));
        settle(&mut model, step, &mut |_| {});
        prop_assert_eq!(model.counts(), (replicas, replicas));
        for (image, _) in changes {
            let mut changed = Value::clone(&model.get("", "deployments", "", "web").expect("it is there"));
            changed["spec"]["template"]["spec"]["containers"][0]["image"] = json!(format!("v{image}"));
            changed["metadata"]["generation"] = json!(int(&changed, &["metadata", "generation"]).unwrap_or(0) + 1);
            model.put("deployments", changed);
            let share = |value: &Value, up| crate::value::share(Some(value), replicas, up).expect("a share");
            let (most, mut fewer) = (share(&surge, true), share(&unavailable, false));
            if most == 0 && fewer == 0 {
                fewer = 1;
            }
            let mut worst: Option<(i64, i64)> = None;
            settle(&mut model, step, &mut |model| {
                let (all, ready) = model.counts();
                if all > replicas + most || ready < replicas - fewer {
                    worst = Some((all, ready));
                }
            });
            prop_assert_eq!(worst, None, "limits: at most {}, ready at least {}", replicas + most, replicas - fewer);
            prop_assert_eq!(model.counts(), (replicas, replicas));
            let wanted = format!("v{image}");
            for pod in model.list("", "pods", None) {
                prop_assert_eq!(text(&pod["spec"]["containers"][0], &["image"]), wanted.as_str());
            }
        }
    }

    #[test]
    fn scaling_and_recreating_end(replicas in 0i64..9, then in 0i64..12, step in 1usize..4, recreate: bool) {
        let strategy = if recreate { "Recreate" } else { "RollingUpdate" };
        let mut model = Model { now: "2026-11-29T12:00:00Z".parse().expect("a time"), ..Model::default() };
        model.put("deployments", deployment(replicas, &json!("25%"), &json!("25%"), strategy));
        settle(&mut model, step, &mut |_| {});
        let mut changed = Value::clone(&model.get("", "deployments", "", "web").expect("it is there"));
        changed["spec"]["replicas"] = json!(then);
        changed["spec"]["template"]["spec"]["containers"][0]["image"] = json!("v9");
        changed["metadata"]["generation"] = json!(2);
        model.put("deployments", changed);
        let mut mixed = false;
        settle(&mut model, step, &mut |model| {
            let images: std::collections::BTreeSet<String> =
                model.list("", "pods", None).iter().map(|pod| text(&pod["spec"]["containers"][0], &["image"]).to_owned()).collect();
            mixed |= images.len() > 1;
        });
        prop_assert_eq!(model.counts(), (then, then));
        prop_assert!(!(recreate && mixed), "old and new pods side by side");
        let web = model.get("", "deployments", "", "web").expect("it is there");
        prop_assert_eq!(int(&web, &["status", "observedGeneration"]), Some(2));
        prop_assert!(at(&web, &["status", "conditions"]).is_some());
    }
}
