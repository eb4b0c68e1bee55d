//! What a real server (1.37.2) said of the same Pods: `data/pod_security.json` was recorded from it. A standard that is left out
//! there says what `restricted:latest` says.

use super::{Level, Standard, Version, judge};
use serde_json::Value;

fn standard(text: &str) -> Standard {
    let (level, version) = text.split_once(':').expect("both");
    Standard { level: Level::parse(level).expect("level"), version: Version::parse(version).expect("version") }
}

#[test]
fn it_says_what_a_server_said() {
    let all: Vec<Value> = serde_json::from_str(include_str!("../data/pod_security.json")).expect("JSON");
    assert!(all.len() > 60);
    for (i, case) in all.iter().enumerate() {
        for name in ["baseline:latest", "restricted:latest", "restricted:v1.24", "restricted:v1.18"] {
            let expected = case["said"].get(name).unwrap_or(&case["said"]["restricted:latest"]);
            let found: Vec<String> = judge(standard(name), &case["pod"]).iter().map(ToString::to_string).collect();
            assert_eq!(found.join(", "), expected.as_str().expect("text"), "{i} {name}: {}", case["pod"]);
        }
        assert!(judge(standard("privileged:latest"), &case["pod"]).is_empty());
    }
}

#[test]
fn names_of_standards() {
    assert_eq!(standard("baseline:v1.30").to_string(), "baseline:v1.30");
    assert_eq!(standard("restricted:latest").to_string(), "restricted:latest");
    for bad in ["", "v2.1", "v1.", "v1.x", "1.30", "v1.03"] {
        assert_eq!(Version::parse(bad), None, "{bad}");
    }
    assert_eq!(Level::parse("x"), None);
    assert!(Level::Privileged < Level::Baseline && Level::Baseline < Level::Restricted);
}
