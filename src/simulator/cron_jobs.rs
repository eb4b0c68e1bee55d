//! CronJobs: a Job at each moment of the schedule, as the policy on overlapping allows.

use std::sync::Arc;

use apiserver::controllers::kinds::{CRON_JOB, JOB};
use apiserver::controllers::{Call, Change, Controller, Delete, Key, Turn, World};
use jiff::{SignedDuration, Timestamp};
use serde_json::{json, Value};

use crate::jobs::finished;
use crate::pods;
use crate::schedule::Schedule;
use crate::value::{at, compact, controller, flag, int, list, name, namespace, owned_by, second, terminating, text, time, uid};

/// Who speaks in events.
const COMPONENT: &str = "cronjob-controller";
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

/// Makes the Jobs of CronJobs.
#[derive(Debug, Default)]
pub struct CronJobs;

impl Controller for CronJobs {
    fn name(&self) -> &'static str {
        "cronjob"
    }

    fn concerns(&self, change: &Change, world: &World<'_>, wake: &mut Vec<Key>) {
        pods::owners(change, world, &CRON_JOB, &JOB, wake);
    }

    fn decide(&self, key: &Key, world: &World<'_>) -> Turn {
        let mut turn = Turn::default();
        let Some(cron) = world.at(key) else { return turn };
        let me = uid(&cron);
        let jobs: Vec<Arc<Value>> = world
            .owned(me, &JOB)
            .into_iter()
            .filter(|job| controller(job).is_some_and(|(_, _, uid)| uid == me))
            .collect();
        let (done, mut active): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|job| finished(job).is_some());
        // A Job that a person made of the template is none of ours: it neither counts as running nor stands in another's way.
        active.retain(|job| !text(job, &["metadata", "annotations", SCHEDULED]).is_empty());
        active.retain(|job| !terminating(job));
        for gone in missing(&cron, &active, &done) {
            turn.call(Call::event(&cron, true, "MissingJob", &format!("Active job went missing: {gone}"), COMPONENT, world.now));
        }
        let mut last = time(&cron, &["status", "lastScheduleTime"]);
        if !terminating(&cron) {
            forget(&cron, &done, &mut turn);
            if !flag(&cron, &["spec", "suspend"]) {
                let was_quiet = turn.is_quiet();
                last = start(&cron, &mut active, last, world.now, &mut turn);
                if was_quiet != turn.is_quiet() {
                    turn.then();
                }
            }
        }
        let succeeded = done.iter().filter_map(|job| time(job, &["status", "completionTime"])).max();
        let succeeded = succeeded.max(time(&cron, &["status", "lastSuccessfulTime"]));
        let references: Vec<Value> = active
            .iter()
            .map(|job| {
                json!({
                    "apiVersion": "batch/v1", "kind": "Job", "namespace": namespace(job), "name": name(job), "uid": uid(job),
                    "resourceVersion": text(job, &["metadata", "resourceVersion"]),
                })
            })
            .collect();
        let status = compact(vec![
            ("active", json!(references)),
            ("lastScheduleTime", json!(last.map(second))),
            ("lastSuccessfulTime", json!(succeeded.map(second))),
        ]);
        if !same(cron.get("status"), &status) {
            turn.call(Call::status(&CRON_JOB, &cron, status));
        }
        turn
    }
}

/// Names of Jobs that the status calls active and that are not there any more.
fn missing(cron: &Value, active: &[Arc<Value>], done: &[Arc<Value>]) -> Vec<String> {
    let named = list(cron, &["status", "active"]).iter();
    named.filter(|told| !active.iter().chain(done).any(|job| uid(job) == text(told, &["uid"]))).map(|told| text(told, &["name"]).to_owned()).collect()
}

/// Whether a status says the same, the versions of the active Jobs aside: they change with every step of theirs.
fn same(before: Option<&Value>, after: &Value) -> bool {
    let bare = |status: &Value| {
        let mut status = status.clone();
        for job in status["active"].as_array_mut().into_iter().flatten() {
            job["resourceVersion"] = Value::Null;
        }
        status
    };
    bare(before.unwrap_or(&json!({}))) == bare(after)
}

/// Deletes finished Jobs beyond the history that is kept.
fn forget(cron: &Value, done: &[Arc<Value>], turn: &mut Turn) {
    for (kind, field, usual) in [("Complete", "successfulJobsHistoryLimit", 3), ("Failed", "failedJobsHistoryLimit", 1)] {
        let limit = int(cron, &["spec", field]).unwrap_or(usual);
        let mut jobs: Vec<&Arc<Value>> = done
            .iter()
            .filter(|job| !terminating(job) && finished(job).is_some_and(|last| text(last, &["type"]) == kind))
            .collect();
        jobs.sort_by_key(|job| (time(job, &["status", "startTime"]), name(job).to_owned()));
        let surplus = jobs.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        for job in jobs.into_iter().take(surplus) {
            turn.call(Call::delete(&JOB, job, Delete::Background));
        }
    }
}

/// Starts the Job that is due, if one is. Returns the moment of the last Job.
fn start(cron: &Value, active: &mut Vec<Arc<Value>>, last: Option<Timestamp>, now: Timestamp, turn: &mut Turn) -> Option<Timestamp> {
    let zone = at(cron, &["spec", "timeZone"]).and_then(Value::as_str);
    // What is not understood was refused at the door, or the zone is not known on this machine: wait for a change.
    let schedule = Schedule::parse(text(cron, &["spec", "schedule"]), zone)?;
    if let Some(next) = schedule.next(now) {
        turn.again_at(next, now);
    }
    let created = time(cron, &["metadata", "creationTimestamp"]).unwrap_or(now);
    let due = schedule.latest(now).filter(|due| *due > last.unwrap_or(created));
    let Some(due) = due else { return last };
    let deadline = int(cron, &["spec", "startingDeadlineSeconds"]).map(SignedDuration::from_secs);
    if deadline.is_some_and(|deadline| due + deadline < now) {
        return last;
    }
    match text(cron, &["spec", "concurrencyPolicy"]) {
        "Forbid" if !active.is_empty() => return last,
        "Replace" => {
            for job in active.drain(..) {
                turn.call(Call::delete(&JOB, &job, Delete::Background));
            }
        }
        _ => {}
    }
    let minutes = due.as_second() / 60;
    let mut metadata = json!({
        "name": format!("{}-{minutes}", name(cron)),
        "ownerReferences": [owned_by(&CRON_JOB, cron)],
    });
    for field in ["labels", "annotations"] {
        if let Some(value) = at(cron, &["spec", "jobTemplate", "metadata", field]) {
            metadata[field] = value.clone();
        }
    }
    metadata["annotations"][SCHEDULED] = json!(second(due));
    let spec = at(cron, &["spec", "jobTemplate", "spec"]).cloned().unwrap_or_else(|| json!({}));
    turn.call(Call::create(&JOB, namespace(cron), json!({"metadata": metadata, "spec": spec})));
    Some(due)
}
