//! What the suites passed, as README shows it. Each suite tells its figures at its end: they must be those of `suites.tsv`, or, with
//! `RECORD_SUITES=1`, they become those, and README's table is written anew. A figure that was typed by hand is a failing test.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// What it was run against.
#[derive(Clone, Copy)]
pub(crate) enum On {
    /// The embedded parent.
    Embedded,
    /// A real Kubernetes.
    Real,
}

/// One line of the table; `-` where a suite has no such side.
#[derive(Clone, PartialEq, Eq)]
struct Row {
    suite: String,
    cases: String,
    passed: [String; 2],
}

/// Marks of the table in README.
const MARKS: [&str; 2] = ["<!-- suites: written by RECORD_SUITES=1 cargo test -->\n", "<!-- end of suites -->\n"];

static WRITING: Mutex<()> = Mutex::new(());

fn root(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn read() -> Vec<Row> {
    let text = std::fs::read_to_string(root("tests/suites.tsv")).unwrap_or_default();
    let row = |line: &str| {
        let mut cells = line.split('\t').map(str::to_owned);
        let mut next = || cells.next().unwrap_or_default();
        Row { suite: next(), cases: next(), passed: [next(), next()] }
    };
    text.lines().map(row).collect()
}

/// Kubernetes' own suite, which a script of its own runs and records, on either side: a side that was not run has a dash.
fn kubernetes() -> Vec<Row> {
    kubernetes_of(&std::fs::read_to_string(root("tests/k8s-e2e/results.md")).unwrap())
}

fn kubernetes_of(recorded: &str) -> Vec<Row> {
    let cells = recorded.lines().filter(|line| line.starts_with('|')).skip(2).map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
    let row = |cells: Vec<&str>| {
        let cell = |at: usize| cells.get(at).copied().filter(|cell| !cell.is_empty()).unwrap_or("-").to_owned();
        Row { suite: format!("Kubernetes' own end-to-end suite, {}", cell(1)), cases: cell(2), passed: [cell(3), cell(4)] }
    };
    cells.filter(|cells| cells.len() > 4).map(row).collect()
}

fn table(rows: &[Row]) -> String {
    let mut text = "| suite | cases | passed on the embedded parent | on a real Kubernetes |\n|---|---|---|---|\n".to_owned();
    for row in rows.iter().chain(&kubernetes()) {
        text.push_str(&format!("| {} | {} | {} | {} |\n", row.suite, row.cases, row.passed[0], row.passed[1]));
    }
    text
}

/// The text before the table, the table, and what follows.
fn readme() -> (String, String, String) {
    let text = std::fs::read_to_string(root("README.md")).unwrap();
    let (before, rest) = text.split_once(MARKS[0]).expect("README has the mark of the table");
    let (table, after) = rest.split_once(MARKS[1]).expect("README has the mark of the table's end");
    (before.to_owned(), table.to_owned(), after.to_owned())
}

/// A suite passed all its cases on one side.
pub(crate) fn passed(suite: &str, on: On, cases: usize) {
    let _one = WRITING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut rows = read();
    let mut row = rows.iter().find(|row| row.suite == suite).cloned().unwrap_or_else(|| Row { suite: suite.to_owned(), cases: String::new(), passed: ["-".to_owned(), "-".to_owned()] });
    row.cases = cases.to_string();
    row.passed[on as usize] = cases.to_string();
    if rows.contains(&row) {
        return;
    }
    assert!(std::env::var_os("RECORD_SUITES").is_some(), "{suite}: {cases} cases passed, and tests/suites.tsv says otherwise: run with RECORD_SUITES=1");
    rows.retain(|other| other.suite != suite);
    rows.push(row);
    rows.sort_by(|a, b| a.suite.cmp(&b.suite));
    let lines: Vec<String> = rows.iter().map(|row| [row.suite.as_str(), &row.cases, &row.passed[0], &row.passed[1]].join("\t")).collect();
    std::fs::write(root("tests/suites.tsv"), lines.join("\n") + "\n").unwrap();
    show(&rows);
}

/// Writes README's table.
fn show(rows: &[Row]) {
    let (before, _, after) = readme();
    std::fs::write(root("README.md"), [&before, MARKS[0], &table(rows), MARKS[1], &after].concat()).unwrap();
}

#[test]
fn a_side_that_was_not_run_has_a_dash() {
    let of = |rows: &str| kubernetes_of(&format!("| needs | cases | embedded | real |\n|---|---|---|---|\n{rows}")).into_iter().map(|row| row.passed).collect::<Vec<_>>();
    assert_eq!(of("| api | 211 | 211 | - |\n"), [["211", "-"].map(str::to_owned)]);
    assert_eq!(of("| api | 211 | 210 | 209 |\n"), [["210", "209"].map(str::to_owned)]);
    // As it was recorded before there were two sides.
    assert_eq!(of("| api | 211 | 211 |\n"), [["211", "-"].map(str::to_owned)]);
}

#[test]
fn readme_shows_what_the_suites_passed() {
    let _one = WRITING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if std::env::var_os("RECORD_SUITES").is_some() {
        show(&read());
    }
    assert_eq!(readme().1, table(&read()), "run with RECORD_SUITES=1");
}
