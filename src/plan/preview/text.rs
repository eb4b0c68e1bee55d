//! A report for people: as plain text for a terminal, as Markdown for a pull request.

use std::fmt::Write as _;

use super::compare::{FileChange, Group, Placed, Report};

/// The most field changes shown of one file.
const FIELDS: usize = 20;
/// The most clusters named in one line.
const NAMED: usize = 8;

/// Names of clusters without their namespaces, shortened.
fn clusters(keys: &[String]) -> String {
    let names: Vec<&str> = keys.iter().take(NAMED).map(|key| api::object::split_key(key).1).collect();
    let rest = keys.len().saturating_sub(NAMED);
    if rest == 0 { names.join(", ") } else { format!("{} and {rest} more", names.join(", ")) }
}

fn count(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

fn placed_lines(placed: &Placed) -> Vec<String> {
    let mut out = Vec::new();
    if !placed.gained.is_empty() {
        out.push(format!("+ {}", clusters(&placed.gained)));
    }
    if !placed.lost.is_empty() {
        out.push(format!("- {}", clusters(&placed.lost)));
    }
    for (feed, moves) in &placed.replicas {
        let moves: Vec<String> = moves.iter().map(|(cluster, (a, b))| format!("{} {a} -> {b}", api::object::split_key(cluster).1)).collect();
        out.push(format!("~ {feed}: {}", moves.join(", ")));
    }
    out.extend(placed.findings.iter().map(|finding| format!("! {finding}")));
    if placed.gained.is_empty() && placed.lost.is_empty() && placed.replicas.is_empty() && !placed.message.is_empty() {
        out.push(format!("  {}", placed.message));
    }
    out
}

fn title(placed: &Placed) -> String {
    match placed.made {
        Some(true) => format!("{} (new)", placed.subscription),
        Some(false) => format!("{} (deleted)", placed.subscription),
        None => placed.subscription.clone(),
    }
}

fn sign(change: &FileChange) -> char {
    match (&change.before, &change.after) {
        (None, _) => '+',
        (_, None) => '-',
        _ => '~',
    }
}

fn sums(group: &Group) -> String {
    let of = |wanted: char| group.files.iter().filter(|f| sign(f) == wanted).count();
    let all = [(of('+'), "new"), (of('~'), "changed"), (of('-'), "gone")];
    let said: Vec<String> = all.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    said.join(", ")
}

/// The report as plain text.
#[must_use]
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    for fault in &report.faults {
        let _ = writeln!(out, "fault: {fault}");
    }
    if report.is_empty() && report.subscriptions.is_empty() {
        out.push_str("nothing changes in any cluster\n");
        return out;
    }
    for placed in &report.subscriptions {
        let _ = writeln!(out, "Subscription {}", title(placed));
        for line in placed_lines(placed) {
            let _ = writeln!(out, "  {line}");
        }
    }
    for group in &report.groups {
        let _ = writeln!(out, "{} ({}): {}", count(group.clusters.len(), "cluster"), clusters(&group.clusters), sums(group));
        for change in &group.files {
            let _ = writeln!(out, "  {} {}", sign(change), change.path);
            for field in change.fields.iter().take(FIELDS) {
                let _ = writeln!(out, "      {field}");
            }
            if change.fields.len() > FIELDS {
                let _ = writeln!(out, "      and {} more", change.fields.len() - FIELDS);
            }
        }
    }
    out
}

/// The report as Markdown, with details folded away.
#[must_use]
pub fn markdown(report: &Report) -> String {
    let mut out = String::new();
    if report.is_empty() && report.subscriptions.is_empty() && report.faults.is_empty() {
        return "Nothing changes in any cluster.\n".to_owned();
    }
    let _ = writeln!(out, "**{}** would change.\n", count(report.clusters.len(), "cluster"));
    if !report.faults.is_empty() {
        out.push_str("### Faults\n\n");
        for fault in &report.faults {
            let _ = writeln!(out, "- `{}`", fault.to_string().replace('`', "'"));
        }
        out.push('\n');
    }
    if !report.subscriptions.is_empty() {
        out.push_str("### Placement\n\n");
        for placed in &report.subscriptions {
            let _ = writeln!(out, "- **{}**", title(placed));
            for line in placed_lines(placed) {
                let _ = writeln!(out, "  - `{}`", line.trim().replace('`', "'"));
            }
        }
        out.push('\n');
    }
    for group in &report.groups {
        let _ = writeln!(out, "<details><summary>{} ({}): {}</summary>\n\n```diff", count(group.clusters.len(), "cluster"), clusters(&group.clusters), sums(group));
        for change in &group.files {
            let mark = if sign(change) == '~' { '!' } else { sign(change) };
            let _ = writeln!(out, "{mark} {}", change.path);
            for field in change.fields.iter().take(FIELDS) {
                let _ = writeln!(out, "    {}", field.replace("```", "'''"));
            }
        }
        out.push_str("```\n\n</details>\n\n");
    }
    out
}
