//! The policies of a Job: which failures count, what is success, which pods are replaced.

use super::{Faults, get, list, none_negative, one_of, text};
use crate::fault::{Fault, Path};
use crate::text as words;
use serde_json::{Value, json};

/// All of them.
pub(super) fn rules(s: &Value, p: &Path, out: &mut Faults) {
    let indexed = text(s, "/completionMode") == "Indexed";
    if let Some(n) = get(s, "maxFailedIndexes") {
        if get(s, "backoffLimitPerIndex").is_none() {
            out.push(Fault::required(&p.child("backoffLimitPerIndex"), "when maxFailedIndexes is specified"));
        }
        if !indexed {
            out.push(Fault::invalid(&p.child("maxFailedIndexes"), n.clone(), "requires indexed completion mode"));
        }
    }
    let policy = get(s, "podFailurePolicy");
    if let Some(policy) = policy {
        let at = p.child("podFailurePolicy").child("rules");
        let rules = list(policy, "/rules");
        if rules.len() > 20 {
            out.push(Fault::too_many(&at, rules.len(), 20));
        }
        for (i, rule) in rules.iter().enumerate() {
            failure(s, rule, &at.index(i), out);
        }
    }
    let allowed: &[&str] = if policy.is_some() { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
    one_of(s, "podReplacementPolicy", allowed, false, p, out);
    if let Some(manager) = get(s, "managedBy").and_then(Value::as_str) {
        if !manager.split_once('/').is_some_and(|(domain, path)| words::dns1123_subdomain(domain).is_empty() && !path.is_empty()) {
            out.push(Fault::invalid(&p.child("managedBy"), manager, "must be a domain-prefixed path (such as \"acme.io/foo\")"));
        }
    }
    if let Some(policy) = get(s, "successPolicy") {
        success(s, policy, indexed, &p.child("successPolicy"), out);
    }
}

fn failure(s: &Value, rule: &Value, p: &Path, out: &mut Faults) {
    const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
    match text(rule, "/action") {
        "" => out.push(Fault::required(&p.child("action"), format!("valid values: {:?}", ACTIONS).replace(", ", " "))),
        "FailIndex" if get(s, "backoffLimitPerIndex").is_none() => out.push(Fault::invalid(&p.child("action"), "FailIndex", "requires the backoffLimitPerIndex to be set")),
        action if !ACTIONS.contains(&action) => out.push(Fault::not_supported(&p.child("action"), action, &ACTIONS)),
        _ => {}
    }
    let conditions = list(rule, "/onPodConditions");
    let unshown = |why: &str| Fault { value: None, ..Fault::invalid(p, json!(null), why) };
    if let Some(codes) = get(rule, "onExitCodes") {
        exit_codes(s, codes, &p.child("onExitCodes"), out);
        if !conditions.is_empty() {
            out.push(unshown("specifying both OnExitCodes and OnPodConditions is not supported"));
        }
    } else if conditions.is_empty() {
        out.push(unshown("specifying one of OnExitCodes and OnPodConditions is required"));
    }
    for (i, condition) in conditions.iter().enumerate() {
        let at = p.child("onPodConditions").index(i);
        let kind = text(condition, "/type");
        out.extend(words::qualified_name(kind).into_iter().map(|m| Fault::invalid(&at.child("type"), kind, m)));
        one_of(condition, "status", &["False", "True", "Unknown"], true, &at, out);
    }
}

fn exit_codes(s: &Value, codes: &Value, p: &Path, out: &mut Faults) {
    let operator = text(codes, "/operator");
    one_of(codes, "operator", &["In", "NotIn"], true, p, out);
    if let Some(name) = get(codes, "containerName").and_then(Value::as_str) {
        if !["/template/spec/containers", "/template/spec/initContainers"].iter().any(|k| list(s, k).iter().any(|c| text(c, "/name") == name)) {
            out.push(Fault::invalid(&p.child("containerName"), name, "must be one of the container or initContainer names in the pod template"));
        }
    }
    let values: Vec<i64> = list(codes, "/values").iter().filter_map(Value::as_i64).collect();
    let at = p.child("values");
    if values.is_empty() {
        out.push(Fault::invalid(&at, json!(values), "at least one value is required"));
    } else if values.len() > 255 {
        out.push(Fault::too_many(&at, values.len(), 255));
    }
    for (i, n) in values.iter().enumerate() {
        if operator == "In" && *n == 0 {
            out.push(Fault::invalid(&at.index(i), *n, "must not be 0 for the In operator"));
        }
        if values[..i].contains(n) {
            out.push(Fault::duplicate(&at.index(i), *n));
        }
    }
    if !values.is_sorted() {
        out.push(Fault::invalid(&at, json!(values), "must be ordered"));
    }
}

fn success(s: &Value, policy: &Value, indexed: bool, p: &Path, out: &mut Faults) {
    let rules = list(policy, "/rules");
    if !indexed {
        // The server shows its internal form.
        let shown: Vec<Value> = rules.iter().map(|r| json!({"SucceededIndexes": get(r, "succeededIndexes"), "SucceededCount": get(r, "succeededCount")})).collect();
        out.push(Fault::invalid(p, json!({"Rules": shown}), "requires indexed completion mode"));
        return;
    }
    let at = p.child("rules");
    if rules.is_empty() {
        out.push(Fault::required(&at, "at least one rules must be specified when the successPolicy is specified"));
    } else if rules.len() > 20 {
        out.push(Fault::too_many(&at, rules.len(), 20));
    }
    let completions = s.get("completions").and_then(Value::as_i64).unwrap_or(0);
    for (i, rule) in rules.iter().enumerate() {
        let at = at.index(i);
        let (count, indexes) = (get(rule, "succeededCount").and_then(Value::as_i64), get(rule, "succeededIndexes").and_then(Value::as_str));
        if count.is_none() && indexes.is_none() {
            out.push(Fault::required(&at, "at least one of succeededCount or succeededIndexes must be specified"));
        }
        none_negative(rule, &["succeededCount"], &at, out);
        let mut listed = None;
        if let Some(text) = indexes {
            match count_indexes(text, completions) {
                Ok(n) => listed = Some(n),
                Err(why) => out.push(Fault::invalid(&at.child("succeededIndexes"), text, format!("error parsing succeededIndexes: {why}"))),
            }
        }
        if let Some(n) = count {
            if n > completions {
                out.push(Fault::invalid(&at.child("succeededCount"), n, format!("must be less than or equal to {completions} (the number of specified completions)")));
            }
            if let Some(most) = listed.filter(|most| n > *most) {
                out.push(Fault::invalid(&at.child("succeededCount"), n, format!("must be less than or equal to {most} (the number of indexes in the specified succeededIndexes field)")));
            }
        }
    }
}

/// How many indexes a text such as `0,2-4` names.
fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    let (mut count, mut last) = (0, -1);
    for part in text.split(',') {
        let number = |text: &str| -> Result<i64, String> {
            let n = text.parse::<i64>().map_err(|_| format!("cannot convert string to integer for index: {}", crate::fault::quote(text)))?;
            if n >= completions { Err(format!("too large index: {}", crate::fault::quote(text))) } else { Ok(n) }
        };
        let (from, to) = match part.split_once('-') {
            Some((from, to)) => (number(from)?, number(to)?),
            None => (number(part)?, number(part)?),
        };
        if from <= last {
            return Err(format!("non-increasing order, previous: {last}, current: {from}"));
        }
        if from > to {
            return Err(format!("non-increasing order, previous: {from}, current: {to}"));
        }
        count += to - from + 1;
        last = to;
    }
    Ok(count)
}
