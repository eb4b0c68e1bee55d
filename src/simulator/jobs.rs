//! Jobs: pods that run to an end, counted once each, until enough succeeded or too many failed; and what is left of old ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apiserver::controllers::kinds::{JOB, POD};
use apiserver::controllers::{Call, Change, Controller, Delete, Key, Turn, World};
use jiff::{SignedDuration, Timestamp};
use serde_json::{json, Value};

use crate::job_policy::{self, enough, meaning, numbers, ranges, Meaning, FAILURES};
use crate::pods;
use crate::value::{at, compact, condition, flag, int, list, name, namespace, second, terminating, text, time, uid, Labels};

const TRACKING: &str = "batch.kubernetes.io/job-tracking";
const INDEX: &str = "batch.kubernetes.io/job-completion-index";
const FIRST_BACKOFF: SignedDuration = SignedDuration::from_secs(10);
const LONGEST_BACKOFF: SignedDuration = SignedDuration::from_mins(10);
/// Pods made in one turn at most.
const BURST: usize = 500;

/// Runs Jobs.
#[derive(Debug, Default)]
pub struct Jobs;

/// Deletes finished Jobs whose time to live is over.
#[derive(Debug, Default)]
pub struct FinishedJobs;

/// Whether a Job is over: its final condition.
pub(crate) fn finished(job: &Value) -> Option<&Value> {
    let conditions = list(job, &["status", "conditions"]);
    ["Complete", "Failed"]
        .iter()
        .find_map(|kind| condition(conditions, kind).filter(|condition| text(condition, &["status"]) == "True"))
}

fn tracked(pod: &Value) -> bool {
    list(pod, &["metadata", "finalizers"]).iter().any(|finalizer| finalizer == TRACKING)
}

fn succeeded(pod: &Value) -> bool {
    text(pod, &["status", "phase"]) == "Succeeded"
}

fn failed(pod: &Value) -> bool {
    text(pod, &["status", "phase"]) == "Failed"
}

/// When the last container of a pod ended.
fn end(pod: &Value) -> Option<Timestamp> {
    list(pod, &["status", "containerStatuses"]).iter().filter_map(|c| time(c, &["state", "terminated", "finishedAt"])).max()
}

/// The job under work.
struct Sync<'a> {
    job: &'a Value,
    world: &'a World<'a>,
    pods: Vec<Arc<Value>>,
    /// Uids that are counted as soon as their pods are let go.
    uncounted: [BTreeSet<String>; 2],
    succeeded: i64,
    failed: i64,
    conditions: Vec<Value>,
    turn: Turn,
}

impl Controller for Jobs {
    fn name(&self) -> &'static str {
        "job"
    }

    fn concerns(&self, change: &Change, world: &World<'_>, wake: &mut Vec<Key>) {
        pods::owners(change, world, &JOB, &POD, wake);
    }

    fn decide(&self, key: &Key, world: &World<'_>) -> Turn {
        let mut turn = Turn::default();
        // Pods of a Job that is gone, or whose name another one has by now, must not be held for ever.
        for node in world.graph.of_kind(&POD, &key.namespace) {
            let left = node.finalizers.iter().any(|finalizer| finalizer == TRACKING)
                && node.owners.iter().any(|owner| {
                    owner.controller && owner.kind == JOB.kind && *owner.name == *key.name && world.graph.node_of(&owner.uid).is_none()
                });
            if left && let Some(pod) = world.at(&node.key) {
                turn.call(let_go(&pod));
            }
        }
        let Some(job) = world.at(key) else { return turn };
        let manager = text(&job, &["spec", "managedBy"]);
        if !manager.is_empty() && manager != "kubernetes.io/job-controller" {
            return turn;
        }
        if terminating(&job) || finished(&job).is_some() {
            // Whatever pods are left must not be held by a Job that counts no more.
            for pod in world.owned(uid(&job), &POD).iter().filter(|pod| tracked(pod)) {
                turn.call(let_go(pod));
            }
            return turn;
        }
        let Some(selector) = Labels::read(at(&job, &["spec", "selector"])) else { return turn };
        let pods = pods::claim(world, &JOB, &job, &selector, &mut turn);
        let uids = |field: &str| -> BTreeSet<String> {
            list(&job, &["status", "uncountedTerminatedPods", field]).iter().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let mut sync = Sync {
            job: &job,
            world,
            pods,
            uncounted: [uids("succeeded"), uids("failed")],
            succeeded: int(&job, &["status", "succeeded"]).unwrap_or(0),
            failed: int(&job, &["status", "failed"]).unwrap_or(0),
            conditions: list(&job, &["status", "conditions"]).to_vec(),
            turn,
        };
        sync.run();
        sync.turn
    }
}

/// Takes the finalizer off a pod.
fn let_go(pod: &Value) -> Call {
    let left: Vec<&Value> = list(pod, &["metadata", "finalizers"]).iter().filter(|f| *f != TRACKING).collect();
    let left = if left.is_empty() { Value::Null } else { json!(left) };
    let version = text(pod, &["metadata", "resourceVersion"]);
    Call::merge(&POD, namespace(pod), name(pod), "", json!({"metadata": {"resourceVersion": version, "finalizers": left}}))
}

impl Sync<'_> {
    fn run(&mut self) {
        let now = self.world.now;
        // A pod is noted before its finalizer goes, and counted after: it is never lost and never counted twice.
        for [index, field] in [[0, 0], [1, 1]] {
            let gone = |uid: &String| !self.pods.iter().any(|pod| self::uid(pod) == uid && tracked(pod));
            let counted: Vec<String> = self.uncounted[index].iter().filter(|uid| gone(uid)).cloned().collect();
            for uid in counted {
                self.uncounted[index].remove(&uid);
                if field == 0 { self.succeeded += 1 } else { self.failed += 1 }
            }
        }
        let noted: Vec<Arc<Value>> = self
            .pods
            .iter()
            .filter(|pod| tracked(pod) && self.uncounted.iter().any(|set| set.contains(uid(pod))))
            .cloned()
            .collect();
        let mut ignored = Vec::new();
        for pod in &self.pods {
            // A pod that was deleted without an end counts as failed when it is gone for good.
            let lost = terminating(pod) && !succeeded(pod) && (failed(pod) || text(pod, &["spec", "nodeName"]).is_empty());
            if !tracked(pod) || !(succeeded(pod) || failed(pod) || lost) {
                continue;
            }
            if !succeeded(pod) && meaning(self.job, pod) == Meaning::Ignored {
                ignored.push(pod.clone());
                continue;
            }
            self.uncounted[usize::from(!succeeded(pod))].insert(uid(pod).to_owned());
        }
        let wins = self.succeeded + self.uncounted[0].len() as i64;
        let losses = self.failed + self.uncounted[1].len() as i64;
        let active: Vec<Arc<Value>> = self.pods.iter().filter(|pod| pods::active(pod)).cloned().collect();
        let suspended = flag(self.job, &["spec", "suspend"]);
        let started = time(self.job, &["status", "startTime"]);
        let completions = int(self.job, &["spec", "completions"]);
        let deadline = int(self.job, &["spec", "activeDeadlineSeconds"]).map(SignedDuration::from_secs);
        let end = deadline.zip(started).map(|(deadline, started)| started + deadline).filter(|_| !suspended);
        let overdue = end.is_some_and(|end| end <= now);
        if let Some(end) = end.filter(|_| !overdue) {
            self.turn.again_at(end, now);
        }
        let verdict = self.verdict(wins, losses, overdue, active.len());
        let mut start = started;
        let mut completed = None;
        if let Some((interim, last, reason, message)) = verdict {
            for pod in &active {
                self.turn.call(Call::delete(&POD, pod, Delete::Background));
            }
            self.set(interim, "True", &reason, &message);
            let pending = self.pods.iter().any(|pod| !pods::ended(pod)) || self.uncounted.iter().any(|set| !set.is_empty());
            if !pending && active.is_empty() {
                self.set(last, "True", &reason, &message);
                completed = (last == "Complete").then(|| second(now));
            }
        } else if suspended {
            self.withdraw(&active);
            self.set("Suspended", "True", "JobSuspended", "Job suspended");
            start = None;
        } else {
            if condition(&self.conditions, "Suspended").is_some_and(|c| text(c, &["status"]) == "True") {
                self.set("Suspended", "False", "JobResumed", "Job resumed");
                start = None;
            }
            start = start.or(Some(now));
            self.fill(&active, wins, losses, completions);
        }
        self.sync_status(&active, start, completed);
        if !noted.is_empty() || !ignored.is_empty() {
            self.turn.then();
            for pod in noted.iter().chain(&ignored) {
                self.turn.call(let_go(pod));
            }
        }
    }

    /// Deletes pods that are not wanted now. They are let go first: what we stop ourselves is no failure of the Job.
    fn withdraw(&mut self, pods: &[Arc<Value>]) {
        for pod in pods.iter().filter(|pod| tracked(pod)) {
            self.turn.call(let_go(pod));
        }
        self.turn.then();
        for pod in pods {
            self.turn.call(Call::delete(&POD, pod, Delete::Background));
        }
    }

    /// Makes or deletes pods so that as many run as should.
    fn fill(&mut self, active: &[Arc<Value>], wins: i64, losses: i64, completions: Option<i64>) {
        let now = self.world.now;
        let parallelism = int(self.job, &["spec", "parallelism"]).unwrap_or(1);
        let running = active.len() as i64;
        let wanted = match completions {
            Some(completions) => parallelism.min(completions - wins - self.failed_indexes().len() as i64),
            None if wins > 0 => running.min(parallelism),
            None => parallelism,
        };
        if running > wanted {
            let mut surplus = active.to_vec();
            pods::by_worth(&mut surplus, now);
            surplus.truncate(usize::try_from(running - wanted).unwrap_or(0));
            self.withdraw(&surplus);
            return;
        }
        let count = usize::try_from(wanted - running).unwrap_or(0).min(BURST);
        if count == 0 {
            return;
        }
        let per_index = at(self.job, &["spec", "backoffLimitPerIndex"]).is_some();
        // Failures that do not count slow it down as well.
        let failures = losses.max(self.failures().count() as i64);
        if failures > 0
            && !per_index
            && let Some(last) = self.failures().filter_map(|pod| end(pod)).max()
        {
            let next = last + backoff(failures);
            if next > now {
                self.turn.again_at(next, now);
                return;
            }
        }
        let template = at(self.job, &["spec", "template"]).cloned().unwrap_or_default();
        let mut pod = pods::from_template(&JOB, self.job, &template);
        let mut finalizers = list(&pod, &["metadata", "finalizers"]).to_vec();
        finalizers.push(json!(TRACKING));
        pod["metadata"]["finalizers"] = Value::Array(finalizers);
        if text(self.job, &["spec", "completionMode"]) != "Indexed" {
            for _ in 0..count {
                self.turn.call(Call::create(&POD, namespace(self.job), pod.clone()));
            }
            return;
        }
        let taken: BTreeSet<i64> = self
            .pods
            .iter()
            .filter(|pod| pods::active(pod) || succeeded(pod))
            .filter_map(|pod| index(pod))
            .chain(self.completed_indexes())
            .chain(self.failed_indexes())
            .collect();
        let failures = if per_index { job_policy::failures(self.job, self.failed_pods()) } else { BTreeMap::new() };
        let mut made = 0;
        for index in (0..completions.unwrap_or(parallelism)).filter(|index| !taken.contains(index)) {
            if made == count {
                break;
            }
            let before = failures.get(&index).copied().unwrap_or(0);
            let last = self.failed_pods().filter(|(of, _)| *of == index).filter_map(|(_, pod)| end(pod)).max();
            if let Some(next) = last.filter(|_| before > 0).map(|last| last + backoff(before)).filter(|next| *next > now) {
                self.turn.again_at(next, now);
                continue;
            }
            made += 1;
            let mut pod = pod.clone();
            if per_index {
                pod["metadata"]["annotations"][FAILURES] = json!(before.to_string());
            }
            pod["metadata"]["generateName"] = json!(format!("{}-{index}-", name(self.job)));
            pod["metadata"]["annotations"][INDEX] = json!(index.to_string());
            pod["metadata"]["labels"][INDEX] = json!(index.to_string());
            pod["spec"]["hostname"] = json!(format!("{}-{index}", name(self.job)));
            for container in pod["spec"]["containers"].as_array_mut().into_iter().flatten() {
                let mut env = list(container, &["env"]).to_vec();
                if !env.iter().any(|variable| name_of(variable) == "JOB_COMPLETION_INDEX") {
                    let path = format!("metadata.labels['{INDEX}']");
                    env.push(json!({"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"fieldPath": path}}}));
                }
                container["env"] = Value::Array(env);
            }
            self.turn.call(Call::create(&POD, namespace(self.job), pod));
        }
    }

    fn completed_indexes(&self) -> BTreeSet<i64> {
        let mut done = numbers(text(self.job, &["status", "completedIndexes"]));
        done.extend(self.pods.iter().filter(|pod| succeeded(pod)).filter_map(|pod| index(pod)));
        done
    }

    /// Failed pods with their indexes.
    fn failed_pods(&self) -> impl Iterator<Item = (i64, &Value)> {
        self.failures().filter_map(|pod| Some((index(pod)?, &**pod)))
    }

    /// Failed pods, but for those that were withdrawn: let go before their end, which the node calls a failure.
    fn failures(&self) -> impl Iterator<Item = &Arc<Value>> {
        self.pods.iter().filter(|pod| failed(pod) && (tracked(pod) || !terminating(pod)))
    }

    /// Indexes that have failed for good.
    fn failed_indexes(&self) -> BTreeSet<i64> {
        let mut out = numbers(text(self.job, &["status", "failedIndexes"]));
        let Some(limit) = int(self.job, &["spec", "backoffLimitPerIndex"]) else { return out };
        out.extend(job_policy::failures(self.job, self.failed_pods()).into_iter().filter(|(_, failures)| *failures > limit).map(|(index, _)| index));
        out.extend(self.failed_pods().filter(|(_, pod)| meaning(self.job, pod) == Meaning::FailsIndex).map(|(index, _)| index));
        out
    }

    /// How the Job ends, if it does: the condition on the way there, the last one, reason, message.
    fn verdict(&self, wins: i64, losses: i64, overdue: bool, active: usize) -> Option<(&'static str, &'static str, String, String)> {
        // What was decided once stays, whatever becomes of the pods that decided it.
        for (interim, last) in [("FailureTarget", "Failed"), ("SuccessCriteriaMet", "Complete")] {
            if let Some(before) = condition(&self.conditions, interim).filter(|c| text(c, &["status"]) == "True") {
                return Some((interim, last, text(before, &["reason"]).to_owned(), text(before, &["message"]).to_owned()));
            }
        }
        let failed = |reason: &str, message: String| Some(("FailureTarget", "Failed", reason.to_owned(), message));
        let fatal = self.failures().find_map(|pod| match meaning(self.job, pod) {
            Meaning::FailsJob(message) => Some(message),
            _ => None,
        });
        let completions = int(self.job, &["spec", "completions"]);
        if let Some(message) = fatal {
            return failed("PodFailurePolicy", message);
        }
        if losses > int(self.job, &["spec", "backoffLimit"]).unwrap_or(6) {
            return failed("BackoffLimitExceeded", "Job has reached the specified backoff limit".into());
        }
        if overdue {
            return failed("DeadlineExceeded", "Job was active longer than specified deadline".into());
        }
        let lost = self.failed_indexes();
        if int(self.job, &["spec", "maxFailedIndexes"]).is_some_and(|most| lost.len() as i64 > most) {
            return failed("MaxFailedIndexesExceeded", "Job has exceeded the specified maximal number of failed indexes".into());
        }
        if let Some(rule) = enough(self.job, &self.completed_indexes()) {
            return Some(("SuccessCriteriaMet", "Complete", "SuccessPolicy".into(), format!("Matched rules at index {rule}")));
        }
        if !lost.is_empty() && completions.is_some_and(|completions| self.completed_indexes().union(&lost).count() as i64 >= completions) {
            return failed("FailedIndexes", "Job has failed indexes".into());
        }
        let done = completions.map_or(wins > 0 && active == 0, |completions| wins >= completions);
        done.then(|| ("SuccessCriteriaMet", "Complete", "CompletionsReached".to_owned(), "Reached expected number of succeeded pods".to_owned()))
    }

    fn set(&mut self, kind: &str, status: &str, reason: &str, message: &str) {
        let before = condition(&self.conditions, kind);
        if before.is_some_and(|before| text(before, &["status"]) == status) {
            return;
        }
        let now = second(self.world.now);
        self.conditions.retain(|condition| text(condition, &["type"]) != kind);
        self.conditions.push(json!({
            "type": kind, "status": status, "reason": reason, "message": message, "lastProbeTime": now, "lastTransitionTime": now,
        }));
    }

    fn sync_status(&mut self, active: &[Arc<Value>], start: Option<Timestamp>, completed: Option<String>) {
        let leaving = self.pods.iter().filter(|pod| terminating(pod) && !pods::ended(pod)).count();
        let ready = active.iter().filter(|pod| pods::ready(pod)).count();
        let uncounted = |index: usize| json!(self.uncounted[index].iter().collect::<Vec<&String>>());
        let mut status = compact(vec![
            ("active", json!(active.len())),
            ("completionTime", json!(completed)),
            ("conditions", json!(self.conditions)),
            ("failed", json!(self.failed)),
            ("startTime", json!(start.map(second))),
            ("succeeded", json!(self.succeeded)),
        ]);
        status["ready"] = json!(ready);
        status["terminating"] = json!(leaving);
        status["uncountedTerminatedPods"] = compact(vec![("succeeded", uncounted(0)), ("failed", uncounted(1))]);
        if text(self.job, &["spec", "completionMode"]) == "Indexed" {
            let done = self.completed_indexes();
            if !done.is_empty() {
                status["completedIndexes"] = json!(ranges(&done));
            }
            if at(self.job, &["spec", "backoffLimitPerIndex"]).is_some() {
                status["failedIndexes"] = json!(ranges(&self.failed_indexes()));
            }
        }
        if self.job.get("status") != Some(&status) {
            self.turn.call(Call::status(&JOB, self.job, status));
        }
    }
}

/// The pause after so many failures.
fn backoff(failures: i64) -> SignedDuration {
    let factor = 1i32.checked_shl(u32::try_from(failures - 1).unwrap_or(0).min(16)).unwrap_or(i32::MAX);
    FIRST_BACKOFF.checked_mul(factor).unwrap_or(LONGEST_BACKOFF).min(LONGEST_BACKOFF)
}

fn name_of(variable: &Value) -> &str {
    text(variable, &["name"])
}

fn index(pod: &Value) -> Option<i64> {
    text(pod, &["metadata", "annotations", INDEX]).parse().ok()
}

impl Controller for FinishedJobs {
    fn name(&self) -> &'static str {
        "ttl-after-finished"
    }

    fn concerns(&self, change: &Change, _: &World<'_>, wake: &mut Vec<Key>) {
        if change.key.is(&JOB) && !change.deleted {
            wake.push(change.key.clone());
        }
    }

    fn decide(&self, key: &Key, world: &World<'_>) -> Turn {
        let mut turn = Turn::default();
        let Some(job) = world.at(key) else { return turn };
        let (Some(seconds), Some(last)) = (int(&job, &["spec", "ttlSecondsAfterFinished"]), finished(&job)) else { return turn };
        let Some(ended) = time(last, &["lastTransitionTime"]) else { return turn };
        let end = ended + SignedDuration::from_secs(seconds);
        if terminating(&job) {
            return turn;
        }
        if end <= world.now {
            turn.call(Call::delete(&JOB, &job, Delete::Foreground));
        } else {
            turn.again_at(end, world.now);
        }
        turn
    }
}
