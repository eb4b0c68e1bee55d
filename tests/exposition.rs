//! Checks Prometheus' text format as `promtool check metrics` does: families whole, typed, explained, named by the rules.

use std::collections::{BTreeMap, BTreeSet};

/// What is wrong with an exposition.
pub(crate) fn faults(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut types: BTreeMap<String, String> = BTreeMap::new();
    let mut helped: BTreeSet<String> = BTreeSet::new();
    let mut series: BTreeSet<String> = BTreeSet::new();
    let mut closed: BTreeSet<String> = BTreeSet::new();
    let mut current = String::new();
    for (number, line) in text.lines().enumerate() {
        let mut fault = |what: String| faults.push(format!("line {}: {what}: {line}", number + 1));
        if line.is_empty() {
            continue;
        }
        if let Some(rest) = line.strip_prefix("# ") {
            let mut words = rest.splitn(3, ' ');
            let (what, name, more) = (words.next().unwrap_or_default(), words.next().unwrap_or_default(), words.next().unwrap_or_default());
            match what {
                "HELP" if more.is_empty() => fault("empty help".to_owned()),
                "HELP" => {
                    if !helped.insert(name.to_owned()) {
                        fault("second HELP of a family".to_owned());
                    }
                }
                "TYPE" => {
                    if types.insert(name.to_owned(), more.to_owned()).is_some() {
                        fault("second TYPE of a family".to_owned());
                    }
                    if !["counter", "gauge", "histogram", "summary", "untyped"].contains(&more) {
                        fault("unknown type".to_owned());
                    }
                    if more == "counter" && !name.ends_with("_total") {
                        fault("a counter's name ends in _total".to_owned());
                    }
                    if more != "counter" && name.ends_with("_total") {
                        fault("only a counter's name ends in _total".to_owned());
                    }
                }
                _ => {}
            }
            continue;
        }
        let Some((key, value)) = line.rsplit_once(' ') else {
            fault("no value".to_owned());
            continue;
        };
        if value.parse::<f64>().is_err() && !["+Inf", "-Inf", "NaN"].contains(&value) {
            fault("the value is no number".to_owned());
        }
        let name = key.split('{').next().unwrap_or_default();
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':') || name.starts_with(|c: char| c.is_ascii_digit()) {
            fault("malformed name".to_owned());
        }
        if key.contains('{') && !key.ends_with('}') {
            fault("labels are not closed".to_owned());
        }
        let family = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|suffix| name.strip_suffix(suffix).filter(|base| types.get(*base).is_some_and(|kind| kind == "histogram" || kind == "summary")))
            .unwrap_or(name);
        if !types.contains_key(family) {
            fault("no TYPE before the first series".to_owned());
        }
        if !helped.contains(family) {
            fault("no HELP".to_owned());
        }
        if !series.insert(key.to_owned()) {
            fault("the series is there twice".to_owned());
        }
        if family != current {
            if !closed.insert(family.to_owned()) {
                fault("the family is not in one piece".to_owned());
            }
            current = family.to_owned();
        }
    }
    faults
}

#[test]
fn tells_clean_from_unclean() {
    let clean = "# HELP a_total Things.\n# TYPE a_total counter\na_total{x=\"1\"} 1\n# HELP d_seconds Time.\n# TYPE d_seconds histogram\nd_seconds_bucket{le=\"+Inf\"} 1\nd_seconds_sum 1\nd_seconds_count 1\n";
    assert_eq!(faults(clean), Vec::<String>::new());
    for unclean in ["a 1\n", "# HELP a A.\n# TYPE a counter\na 1\n", "# HELP g G.\n# TYPE g gauge\ng 1\ng 1\n", "# HELP g G.\n# TYPE g gauge\ng x\n"] {
        assert!(!faults(unclean).is_empty(), "{unclean}");
    }
}
