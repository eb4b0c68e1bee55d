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

/// Kubernetes' own suite, which a script of its own runs and records.
fn kubernetes() -> Vec<Row> {
    let text = std::fs::read_to_string(root("tests/k8s-e2e/results.md")).unwrap();
    let cells = text.lines().filter(|line| line.starts_with('|')).skip(2).map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
    cells
        .filter(|cells| cells.len() > 4)
        .map(|cells| Row { suite: format!("Kubernetes' own end-to-end suite, {}", cells[1]), cases: cells[2].to_owned(), passed: [cells[3].to_owned(), cells[2].to_owned()] })
        .collect()
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
fn readme_shows_what_the_suites_passed() {
    let _one = WRITING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if std::env::var_os("RECORD_SUITES").is_some() {
        show(&read());
    }
    assert_eq!(readme().1, table(&read()), "run with RECORD_SUITES=1");
}
