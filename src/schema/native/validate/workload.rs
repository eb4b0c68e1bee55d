//! Workloads: Deployment, ReplicaSet, StatefulSet, DaemonSet, Job, CronJob, budgets and autoscalers.

use super::pod::{labels, replicas, rolling, template};
use super::{Faults, get, int_or_percent, is_empty_selector, is_valid_selector, list, map, none_negative, not_negative, one_of, selector, selects, shown, text};
use crate::fault::{Fault, Path};
use serde_json::{Value, json};

fn spec() -> Path {
    Path::new("spec")
}

/// Selector and template of a workload fit each other.
fn selected(o: &Value, empty: &str, out: &mut Faults) {
    let p = spec();
    let s = &o["spec"]["selector"];
    let labelled = p.child("template").child("metadata").child("labels");
    if s.is_null() {
        if !empty.ends_with("daemonset") {
            out.push(Fault::required(&p.child("selector"), ""));
        }
        // No selector selects nothing.
        out.push(Fault::invalid(&labelled, shown(&o["spec"]["template"]["metadata"]["labels"]), "`selector` does not match template `labels`"));
    } else {
        selector(s, &p.child("selector"), out);
        if is_empty_selector(s) {
            out.push(Fault::invalid(&p.child("selector"), s.clone(), empty));
        } else if !is_valid_selector(s) {
            match empty.rsplit(' ').next() {
                Some("deployment") => out.push(Fault::invalid(&p.child("selector"), s.clone(), "invalid label selector")),
                Some("statefulset") => out.push(Fault::invalid(&p.child("selector"), s.clone(), "")),
                _ => {}
            }
        } else if !selects(s, labels(&o["spec"]["template"])) {
            out.push(Fault::invalid(&labelled, shown(&o["spec"]["template"]["metadata"]["labels"]), "`selector` does not match template `labels`"));
        }
    }
}

fn always(o: &Value, kind: &str, out: &mut Faults) {
    let t = spec().child("template");
    template(&o["spec"]["template"], &t, out);
    let policy = text(o, "/spec/template/spec/restartPolicy");
    if policy != "Always" {
        out.push(Fault::not_supported(&t.child("spec").child("restartPolicy"), policy, &["Always"]));
    }
    if get(&o["spec"]["template"]["spec"], "activeDeadlineSeconds").is_some() {
        out.push(Fault::forbidden(&t.child("spec").child("activeDeadlineSeconds"), format!("activeDeadlineSeconds in {kind} is not Supported")));
    }
}

pub(super) fn deployment(o: &Value, out: &mut Faults) {
    let (s, p) = (&o["spec"], spec());
    replicas(s, &p, out);
    selected(o, "empty selector is invalid for deployment", out);
    always(o, "ReplicaSet", out);
    let at = p.child("strategy");
    match text(s, "/strategy/type") {
        "Recreate" => {
            if get(&s["strategy"], "rollingUpdate").is_some() {
                out.push(Fault::forbidden(&at.child("rollingUpdate"), "may not be specified when strategy `type` is 'Recreate'"));
            }
        }
        "RollingUpdate" => match get(&s["strategy"], "rollingUpdate") {
            None => out.push(Fault::required(&at.child("rollingUpdate"), "this should be defaulted and never be nil")),
            Some(r) => rolling(r, &at.child("rollingUpdate"), out),
        },
        other => out.push(Fault::not_supported(&at, json!({"Type": other, "RollingUpdate": null}), &["Recreate", "RollingUpdate"])),
    }
    none_negative(s, &["minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"], &p, out);
    if let (Some(d), m) = (get(s, "progressDeadlineSeconds").and_then(Value::as_i64), s.get("minReadySeconds").and_then(Value::as_i64).unwrap_or(0)) {
        if d <= m {
            out.push(Fault::invalid(&p.child("progressDeadlineSeconds"), d, "must be greater than minReadySeconds"));
        }
    }
}

pub(super) fn replica_set(o: &Value, out: &mut Faults) {
    let (s, p) = (&o["spec"], spec());
    none_negative(s, &["replicas", "minReadySeconds"], &p, out);
    selected(o, "empty selector is invalid for deployment", out);
    always(o, "ReplicaSet", out);
}

pub(super) fn replication_controller(o: &Value, out: &mut Faults) {
    let (s, p) = (&o["spec"], spec());
    none_negative(s, &["replicas", "minReadySeconds"], &p, out);
    let sel = map(s, "/selector");
    if sel.is_empty() {
        out.push(Fault::required(&p.child("selector"), ""));
    }
    if get(s, "template").is_none() {
        out.push(Fault::required(&p.child("template"), ""));
        return;
    }
    let l = labels(&s["template"]);
    if !sel.iter().all(|(k, v)| l.get(k) == Some(v)) {
        out.push(Fault::invalid(&p.child("template").child("metadata").child("labels"), shown(&s["template"]["metadata"]["labels"]), "`selector` does not match template `labels`"));
    }
    always(o, "ReplicationController", out);
}

pub(super) fn stateful_set(o: &Value, out: &mut Faults) {
    let (s, p) = (&o["spec"], spec());
    match text(s, "/podManagementPolicy") {
        "" => out.push(Fault::required(&p.child("podManagementPolicy"), "")),
        "OrderedReady" | "Parallel" => {}
        other => out.push(Fault::invalid(&p.child("podManagementPolicy"), other, "must be 'OrderedReady' or 'Parallel'")),
    }
    match text(s, "/updateStrategy/type") {
        "" => out.push(Fault::required(&p.child("updateStrategy"), "")),
        "OnDelete" => {
            if get(&s["updateStrategy"], "rollingUpdate").is_some() {
                out.push(Fault::invalid(&p.child("updateStrategy").child("rollingUpdate"), s["updateStrategy"]["rollingUpdate"].clone(), "only allowed for updateStrategy 'RollingUpdate'"));
            }
        }
        "RollingUpdate" => {
            if let Some(n) = s.pointer("/updateStrategy/rollingUpdate/partition") {
                not_negative(n, &p.child("updateStrategy").child("rollingUpdate").child("partition"), out);
            }
        }
        other => out.push(Fault::invalid(&p.child("updateStrategy"), json!({"Type": other, "RollingUpdate": null}), "must be 'RollingUpdate' or 'OnDelete'")),
    }
    none_negative(s, &["replicas", "minReadySeconds"], &p, out);
    if let Some(n) = s.pointer("/ordinals/start") {
        not_negative(n, &p.child("ordinals").child("start"), out);
    }
    selected(o, "empty selector is invalid for statefulset", out);
    always(o, "StatefulSet", out);
    for (i, c) in list(s, "/volumeClaimTemplates").iter().enumerate() {
        super::storage::claim(&c["spec"], &p.child("volumeClaimTemplates").index(i).child("spec"), out);
    }
}

pub(super) fn stateful_set_update(o: &Value, old: &Value, out: &mut Faults) {
    let mask = |v: &Value| {
        let mut s = v.get("spec").and_then(Value::as_object).cloned().unwrap_or_default();
        for k in ["replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit", "persistentVolumeClaimRetentionPolicy", "minReadySeconds"] {
            s.remove(k);
        }
        for c in s.get_mut("volumeClaimTemplates").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(c) = c.as_object_mut() {
                c.remove("status");
            }
        }
        s
    };
    if mask(o) != mask(old) {
        out.push(Fault::forbidden(&spec(), "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"));
    }
}

pub(super) fn daemon_set(o: &Value, out: &mut Faults) {
    let (s, p) = (&o["spec"], spec());
    selected(o, "empty selector is invalid for daemonset", out);
    always(o, "DaemonSet", out);
    none_negative(s, &["minReadySeconds", "revisionHistoryLimit"], &p, out);
    let at = p.child("updateStrategy");
    match text(s, "/updateStrategy/type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            let r = &s["updateStrategy"]["rollingUpdate"];
            if r.is_null() {
                out.push(Fault::required(&at.child("rollingUpdate"), ""));
                return;
            }
            for k in ["maxUnavailable", "maxSurge"] {
                if let Some(v) = get(r, k) {
                    int_or_percent(v, &at.child("rollingUpdate").child(k), out);
                    super::at_most_all(v, &at.child("rollingUpdate").child(k), out);
                }
            }
            let zero = |k: &str| get(r, k).is_none_or(|v| v.as_i64() == Some(0) || v.as_str() == Some("0%"));
            match (zero("maxUnavailable"), zero("maxSurge")) {
                (true, true) => out.push(Fault::required(&at.child("rollingUpdate").child("maxUnavailable"), "cannot be 0 when maxSurge is 0")),
                (false, false) => out.push(Fault::invalid(&at.child("rollingUpdate").child("maxSurge"), r["maxSurge"].clone(), "may not be set when maxUnavailable is non-zero")),
                _ => {}
            }
        }
        other => out.push(Fault::not_supported(&at, json!({"Type": other, "RollingUpdate": null}), &["RollingUpdate", "OnDelete"])),
    }
}

pub(super) fn controller_revision(o: &Value, old: Option<&Value>, out: &mut Faults) {
    if o.get("revision").and_then(Value::as_i64).is_some_and(|n| n < 0) {
        out.push(Fault::invalid(&Path::new("revision"), o["revision"].clone(), "must be greater than or equal to 0"));
    }
    if get(o, "data").is_none() {
        out.push(Fault::required(&Path::new("data"), "data is mandatory"));
    }
    if old.is_some_and(|b| b.get("data") != o.get("data")) {
        out.push(Fault::invalid(&Path::new("data"), shown(&o["data"]), "field is immutable"));
    }
}

/// A Job's specification, its own or a CronJob's.
pub(super) fn job(o: &Value, p: &Path, create: bool, out: &mut Faults) {
    let s = &o["spec"];
    none_negative(s, &["parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished", "backoffLimitPerIndex", "maxFailedIndexes"], p, out);
    one_of(s, "completionMode", &["NonIndexed", "Indexed"], false, p, out);
    if text(s, "/completionMode") == "Indexed" && get(s, "completions").is_none() {
        out.push(Fault::required(&p.child("completions"), "when completion mode is Indexed"));
    }
    if get(s, "backoffLimitPerIndex").is_some() && text(s, "/completionMode") != "Indexed" {
        out.push(Fault::invalid(&p.child("backoffLimitPerIndex"), s["backoffLimitPerIndex"].clone(), "requires indexed completion mode"));
    }
    super::job_rules::rules(s, p, out);
    if p.as_str() == "spec" {
        let sel = &s["selector"];
        if sel.is_null() {
            out.push(Fault::required(&p.child("selector"), ""));
        } else {
            selector(sel, &p.child("selector"), out);
            if !selects(sel, labels(&s["template"])) {
                out.push(Fault::invalid(&p.child("template").child("metadata").child("labels"), shown(&s["template"]["metadata"]["labels"]), "`selector` does not match template `labels`"));
            }
        }
    } else if create && s.get("manualSelector") == Some(&json!(true)) {
        out.push(Fault::not_supported(&p.child("manualSelector"), true, &["nil", "false"]));
    }
    template(&s["template"], &p.child("template"), out);
    let at = p.child("template").child("spec").child("restartPolicy");
    match text(s, "/template/spec/restartPolicy") {
        "" | "Always" => out.push(Fault::required(&at, "valid values: \"OnFailure\", \"Never\"")),
        "OnFailure" if get(s, "podFailurePolicy").is_some() => out.push(Fault::invalid(&at, "OnFailure", "only \"Never\" is supported when podFailurePolicy is specified")),
        _ => {}
    }
}

pub(super) fn job_update(o: &Value, old: &Value, out: &mut Faults) {
    let p = spec();
    let mut fixed = |k: &str| {
        let (a, b) = (o["spec"].get(k).cloned().unwrap_or_default(), old["spec"].get(k).cloned().unwrap_or_default());
        if a != b {
            out.push(Fault::invalid(&p.child(k), a, "field is immutable"));
        }
    };
    for k in ["selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"] {
        fixed(k);
    }
    if text(o, "/spec/completionMode") != "Indexed" {
        fixed("completions");
    }
    // A suspended Job that never ran may still be given other scheduling directives.
    let suspended = old["spec"].get("suspend") == Some(&json!(true)) && get(&old["status"], "startTime").is_none();
    if !suspended {
        fixed("template");
    }
}

pub(super) fn cron_job(o: &Value, out: &mut Faults) {
    let (s, p) = (&o["spec"], spec());
    let name = text(o, "/metadata/name");
    if name.len() > 52 {
        out.push(Fault::invalid(&Path::new("metadata").child("name"), name, "must be no more than 52 characters"));
    }
    let schedule = text(s, "/schedule");
    if schedule.is_empty() {
        out.push(Fault::required(&p.child("schedule"), ""));
    } else if let Err(e) = cron(schedule) {
        out.push(Fault::invalid(&p.child("schedule"), schedule, e));
    } else if schedule.contains("TZ") {
        out.push(Fault::invalid(&p.child("schedule"), schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"));
    }
    none_negative(s, &["startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"], &p, out);
    one_of(s, "concurrencyPolicy", &["Allow", "Forbid", "Replace"], true, &p, out);
    if let Some(z) = get(s, "timeZone").and_then(Value::as_str) {
        if z.is_empty() {
            out.push(Fault::invalid(&p.child("timeZone"), z, "timeZone must be nil or non-empty string"));
        } else if z.eq_ignore_ascii_case("local") {
            out.push(Fault::invalid(&p.child("timeZone"), z, "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"));
        } else if !z.bytes().all(|b| b.is_ascii_alphanumeric() || b"/_+-".contains(&b)) {
            out.push(Fault::invalid(&p.child("timeZone"), z, format!("unknown time zone {z}")));
        }
    }
    job(&s["jobTemplate"], &p.child("jobTemplate").child("spec"), true, out);
}

/// Checks a schedule: five fields, or a descriptor.
fn cron(s: &str) -> Result<(), String> {
    let s = match s.strip_prefix("TZ=").or_else(|| s.strip_prefix("CRON_TZ=")) {
        Some(r) => r.split_once(' ').map_or("", |(_, r)| r).trim(),
        None => s,
    };
    if let Some(d) = s.strip_prefix('@') {
        return match d {
            "yearly" | "annually" | "monthly" | "weekly" | "daily" | "midnight" | "hourly" => Ok(()),
            d if d.strip_prefix("every ").is_some_and(|e| crate::cel::duration::parse(e).is_some()) => Ok(()),
            _ => Err(format!("unrecognized descriptor: @{d}")),
        };
    }
    let fields: Vec<&str> = s.split_whitespace().collect();
    if fields.len() != 5 {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
    for (f, (lo, hi, names)) in fields.iter().zip([(0, 59, &[][..]), (0, 23, &[]), (1, 31, &[]), (1, 12, &MONTHS), (0, 6, &DAYS)]) {
        for part in f.split(',') {
            let (range, step) = part.split_once('/').map_or((part, None), |(r, s)| (r, Some(s)));
            let number = |t: &str| -> Result<i64, String> {
                let lower = t.to_lowercase();
                if let Some(i) = names.iter().position(|n| *n == lower) {
                    return Ok(i64::try_from(i).unwrap_or(0) + lo);
                }
                let n: i64 = t.parse().map_err(|_| format!("failed to parse int from {t}: strconv.Atoi: parsing {}: invalid syntax", crate::fault::quote(t)))?;
                if n < 0 { Err(format!("negative number ({n}) not allowed: {t}")) } else { Ok(n) }
            };
            if let Some(st) = step {
                if number(st)? == 0 {
                    return Err(format!("step of range should be a positive number: {part}"));
                }
            }
            if matches!(range, "*" | "?") {
                continue;
            }
            let (a, b) = range.split_once('-').map_or((range, None), |(a, b)| (a, Some(b)));
            let start = number(a)?;
            let end = match b {
                Some(b) => number(b)?,
                None if step.is_some() => hi,
                None => start,
            };
            if start < lo {
                return Err(format!("beginning of range ({start}) below minimum ({lo}): {part}"));
            }
            if end > hi {
                return Err(format!("end of range ({end}) above maximum ({hi}): {part}"));
            }
            if start > end {
                return Err(format!("beginning of range ({start}) beyond end of range ({end}): {part}"));
            }
        }
    }
    Ok(())
}

pub(super) fn disruption_budget(o: &Value, out: &mut Faults) {
    let (s, p) = (&o["spec"], spec());
    let (min, max) = (get(s, "minAvailable"), get(s, "maxUnavailable"));
    if min.is_some() && max.is_some() {
        // The server shows its internal form.
        let shown = json!({"MinAvailable": min, "Selector": get(s, "selector"), "MaxUnavailable": max, "UnhealthyPodEvictionPolicy": get(s, "unhealthyPodEvictionPolicy")});
        out.push(Fault::invalid(&p, shown, "minAvailable and maxUnavailable cannot be both set"));
    }
    for (k, v) in [("minAvailable", min), ("maxUnavailable", max)] {
        if let Some(v) = v {
            int_or_percent(v, &p.child(k), out);
            super::at_most_all(v, &p.child(k), out);
        }
    }
    if let Some(sel) = get(s, "selector") {
        selector(sel, &p.child("selector"), out);
    }
    one_of(s, "unhealthyPodEvictionPolicy", &["AlwaysAllow", "IfHealthyBudget"], false, &p, out);
}
