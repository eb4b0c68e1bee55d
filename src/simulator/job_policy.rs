//! What a Job says of its pods' ends: which failures count, fail their index or the whole Job, and which successes are enough.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::value::{at, int, list, name, namespace, text};

/// Failures that an index had before a pod was made.
pub(crate) const FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";

/// What a failure of a pod means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// It counts.
    Counts,
    /// It does not.
    Ignored,
    /// Its index has failed for good.
    FailsIndex,
    /// The Job has failed, for this reason.
    FailsJob(String),
}

/// The exit code of a container that a rule is about, with the container's name.
fn exit<'a>(rule: &Value, pod: &'a Value) -> Option<(&'a str, i64)> {
    let wanted = text(rule, &["containerName"]);
    let values = list(rule, &["values"]);
    let statuses = ["initContainerStatuses", "containerStatuses"].into_iter().flat_map(|field| list(pod, &["status", field]));
    let ends = statuses.filter(|c| wanted.is_empty() || text(c, &["name"]) == wanted);
    ends.filter_map(|c| Some((text(c, &["name"]), int(c, &["state", "terminated", "exitCode"])?))).find(|(_, code)| {
        let among = values.iter().any(|v| v.as_i64() == Some(*code));
        *code != 0 && (text(rule, &["operator"]) == "In") == among
    })
}

/// What the rules of a Job make of a failed pod.
pub(crate) fn meaning(job: &Value, pod: &Value) -> Meaning {
    for (n, rule) in list(job, &["spec", "podFailurePolicy", "rules"]).iter().enumerate() {
        let action = text(rule, &["action"]);
        let whole = || format!("{}/{}", namespace(pod), name(pod));
        let matched = match at(rule, &["onExitCodes"]) {
            Some(codes) => exit(codes, pod)
                .map(|(container, code)| format!("Container {container} for pod {} failed with exit code {code} matching {action} rule at index {n}", whole())),
            None => {
                let holds = |pattern: &&Value| {
                    let status = match text(pattern, &["status"]) {
                        "" => "True",
                        status => status,
                    };
                    list(pod, &["status", "conditions"]).iter().any(|c| text(c, &["type"]) == text(pattern, &["type"]) && text(c, &["status"]) == status)
                };
                let found = list(rule, &["onPodConditions"]).iter().find(holds);
                found.map(|pattern| format!("Pod {} has condition {} matching {action} rule at index {n}", whole(), text(pattern, &["type"])))
            }
        };
        let Some(message) = matched else { continue };
        match action {
            "Ignore" => return Meaning::Ignored,
            "FailJob" => return Meaning::FailsJob(message),
            "FailIndex" if at(job, &["spec", "backoffLimitPerIndex"]).is_some() => return Meaning::FailsIndex,
            "FailIndex" => {}
            _ => return Meaning::Counts,
        }
    }
    Meaning::Counts
}

/// Failures of each index, those of the given failed pods among them.
pub(crate) fn failures<'a>(job: &Value, failed: impl Iterator<Item = (i64, &'a Value)>) -> BTreeMap<i64, i64> {
    let mut out: BTreeMap<i64, i64> = BTreeMap::new();
    for (index, pod) in failed {
        let before: i64 = text(pod, &["metadata", "annotations", FAILURES]).parse().unwrap_or(0);
        let now = before + i64::from(meaning(job, pod) != Meaning::Ignored);
        let most = out.entry(index).or_default();
        *most = now.max(*most);
    }
    out
}

/// `0-2,5` as numbers.
pub(crate) fn numbers(text: &str) -> BTreeSet<i64> {
    let mut out = BTreeSet::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(from), Ok(to)) = (from.parse::<i64>(), to.parse::<i64>()) {
            out.extend(from..=to);
        }
    }
    out
}

/// Numbers as `0-2,5`: runs are joined.
pub(crate) fn ranges(numbers: &BTreeSet<i64>) -> String {
    let mut runs: Vec<(i64, i64)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, end)) if *end + 1 == *number => *end = *number,
            _ => runs.push((*number, *number)),
        }
    }
    let shown = runs.into_iter().map(|(from, to)| match to - from {
        0 => from.to_string(),
        1 => format!("{from},{to}"),
        _ => format!("{from}-{to}"),
    });
    shown.collect::<Vec<String>>().join(",")
}

/// The first rule of the success policy that the finished indexes satisfy.
pub(crate) fn enough(job: &Value, done: &BTreeSet<i64>) -> Option<usize> {
    list(job, &["spec", "successPolicy", "rules"]).iter().position(|rule| {
        let count = int(rule, &["succeededCount"]);
        let named = text(rule, &["succeededIndexes"]);
        if named.is_empty() {
            return count.is_some_and(|count| done.len() as i64 >= count);
        }
        let wanted = numbers(named);
        let have = wanted.intersection(done).count() as i64;
        have >= count.unwrap_or(wanted.len() as i64)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn runs_of_numbers() {
        for (numbers, text) in [(vec![], ""), (vec![0], "0"), (vec![0, 1], "0,1"), (vec![0, 1, 2, 5, 7, 8, 9], "0-2,5,7-9")] {
            let numbers = numbers.into_iter().collect();
            assert_eq!(ranges(&numbers), text);
            assert_eq!(super::numbers(text), numbers);
        }
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let job = json!({"spec": {"backoffLimitPerIndex": 1, "podFailurePolicy": {"rules": [
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
            {"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "In", "values": [42]}},
            {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [3, 4]}},
            {"action": "Count", "onExitCodes": {"operator": "NotIn", "values": [5]}},
            {"action": "FailJob", "onPodConditions": [{"type": "ConfigIssue", "status": "False"}]},
        ]}}});
        let pod = |container: &str, code: i64, conditions: Value| {
            json!({"metadata": {"name": "p", "namespace": "n"}, "status": {"phase": "Failed", "conditions": conditions,
                "containerStatuses": [{"name": container, "state": {"terminated": {"exitCode": code}}}]}})
        };
        let said = |text: &str| Meaning::FailsJob(text.to_owned());
        for (pod, expected) in [
            (pod("main", 42, json!([{"type": "DisruptionTarget", "status": "True"}])), Meaning::Ignored),
            (pod("main", 42, json!([{"type": "DisruptionTarget", "status": "False"}])), said("Container main for pod n/p failed with exit code 42 matching FailJob rule at index 1")),
            (pod("side", 42, json!([])), Meaning::Counts),
            (pod("side", 3, json!([])), Meaning::FailsIndex),
            (pod("main", 5, json!([{"type": "ConfigIssue", "status": "False"}])), said("Pod n/p has condition ConfigIssue matching FailJob rule at index 4")),
            (pod("main", 5, json!([])), Meaning::Counts),
        ] {
            assert_eq!(meaning(&job, &pod), expected, "{pod}");
        }
        assert_eq!(meaning(&json!({"spec": {}}), &pod("main", 42, json!([]))), Meaning::Counts);
    }

    #[test]
    fn some_successes_are_enough() {
        let job = json!({"spec": {"successPolicy": {"rules": [{"succeededIndexes": "0,2-3", "succeededCount": 2}, {"succeededIndexes": "5"}, {"succeededCount": 4}]}}});
        for (done, rule) in [(vec![0], None), (vec![0, 3], Some(0)), (vec![5], Some(1)), (vec![1, 4, 6, 7], Some(2)), (vec![1, 4, 6], None)] {
            assert_eq!(enough(&job, &done.iter().copied().collect()), rule, "{done:?}");
        }
    }

    #[test]
    fn an_index_remembers_its_failures() {
        let job = json!({"spec": {"podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "X"}]}]}}});
        let pod = |before: &str, conditions: Value| json!({"metadata": {"annotations": {FAILURES: before}}, "status": {"conditions": conditions}});
        let pods = [(0, pod("0", json!([]))), (0, pod("1", json!([]))), (2, pod("0", json!([{"type": "X", "status": "True"}])))];
        assert_eq!(failures(&job, pods.iter().map(|(n, p)| (*n, p))), BTreeMap::from([(0, 2), (2, 0)]));
    }
}
