//! Cases of our own in the form of the recorded ones: every part in this process, three children, and the answers field by field.
//!
//! `cases/NAME/input` is what people do, step by step; `cases/NAME/expected` what came of it, written by `replay --record` and read by a
//! person. The recorded answers of the original replay by the same program: `cargo run -p anabranch-testkit --bin replay -- DIR`.

use std::path::Path;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cases_come_out_as_written_down() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let verdicts = testkit::replay::replay(&dir, &[], &mut |_| {}).await.unwrap();
    let differences: Vec<String> = verdicts.iter().flat_map(|v| v.differences.iter().map(move |d| format!("{}: {d}", v.name))).collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert_eq!(verdicts.len(), std::fs::read_dir(&dir).unwrap().count(), "every folder is a case");
}
