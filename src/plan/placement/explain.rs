//! Why a decision is what it is: a bounded record, for conditions, events and `explain`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::events::Events;
use super::framework::Code;

/// Longest list in a record; beyond it only the counts go on.
pub const ROWS_MAX: usize = 100;

/// Cells longer than this do not widen their column.
const CELL_MAX: usize = 64;

/// The record of one decision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Explain {
    /// Clusters in all.
    pub clusters: usize,
    /// Clusters that the subscribers select.
    pub selected: usize,
    /// Clusters that no plugin rejected.
    pub feasible: usize,
    /// Clusters that were rejected, the first ones in order of name.
    pub rejected: Vec<Rejected>,
    /// Number of rejections by reason.
    pub reasons: BTreeMap<String, usize>,
    /// Scores of clusters, when clusters were ranked.
    pub scores: Vec<Scored>,
    /// How replicas were divided.
    pub division: Vec<Division>,
    /// What would be worth another try.
    pub helps: Vec<String>,
}

/// A cluster that was rejected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rejected {
    /// Cluster, `namespace/name`.
    pub cluster: String,
    /// Plugin that rejected it.
    pub plugin: String,
    /// Code.
    pub code: Code,
    /// Reason.
    pub why: String,
}

/// A cluster with its score.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Scored {
    /// Cluster, `namespace/name`.
    pub cluster: String,
    /// Weighted score.
    pub score: i64,
    /// Whether it was taken.
    pub taken: bool,
}

/// How the replicas of one feed were divided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Division {
    /// Key of the feed.
    pub feed: String,
    /// Replicas wanted.
    pub desired: i64,
    /// Replicas placed.
    pub placed: i64,
    /// One row per cluster.
    pub rows: Vec<DivisionRow>,
}

/// The share of one cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DivisionRow {
    /// Cluster, `namespace/name`.
    pub cluster: String,
    /// Weight, for static dividing.
    pub weight: i64,
    /// Free replicas, for dynamic dividing.
    pub capacity: i64,
    /// Replicas before.
    pub before: i64,
    /// Replicas now.
    pub now: i64,
}

impl Explain {
    /// Notes a rejection.
    pub(super) fn reject(&mut self, cluster: &str, plugin: &str, code: Code, why: String) {
        *self.reasons.entry(why.clone()).or_default() += 1;
        if self.rejected.len() < ROWS_MAX {
            self.rejected.push(Rejected { cluster: cluster.to_owned(), plugin: plugin.to_owned(), code, why });
        }
    }

    /// Notes which events could help.
    pub(super) fn helps(&mut self, events: Events) {
        self.helps = events.words().into_iter().map(str::to_owned).collect();
    }

    /// One line, as Kubernetes words it: `0/5 clusters are available: 2 clusters had taint ...`.
    pub fn line(&self) -> String {
        let mut reasons: Vec<(&String, &usize)> = self.reasons.iter().collect();
        reasons.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
        let mut parts: Vec<String> = reasons.iter().take(5).map(|(why, count)| format!("{count} {} {why}", plural(**count))).collect();
        if self.selected == 0 {
            parts.push("no cluster is selected by the subscribers".to_owned());
        } else if self.clusters > self.selected {
            let rest = self.clusters - self.selected;
            parts.push(format!("{rest} {} not selected by the subscribers", if rest == 1 { "cluster is" } else { "clusters are" }));
        }
        format!("{}/{} clusters are available: {}", self.feasible, self.clusters, parts.join(", "))
    }
}

impl Explain {
    /// The record as tables, in kubectl's manner; empty parts are left out.
    pub fn text(&self) -> String {
        let mut out = format!("clusters {}, selected {}, feasible {}\n", self.clusters, self.selected, self.feasible);
        let section = |title: &str, header: &[&str], rows: Vec<Vec<String>>, out: &mut String| {
            if !rows.is_empty() {
                out.push_str(&format!("\n{title}\n"));
                out.push_str(&columns(header, &rows));
            }
        };
        let reasons = self.reasons.iter().map(|(why, count)| vec![count.to_string(), why.clone()]).collect();
        section("why clusters were rejected", &["COUNT", "REASON"], reasons, &mut out);
        let rejected = self.rejected.iter().map(|r| vec![r.cluster.clone(), r.plugin.clone(), format!("{:?}", r.code), r.why.clone()]);
        section("rejected", &["CLUSTER", "PLUGIN", "CODE", "REASON"], rejected.collect(), &mut out);
        let scores = self.scores.iter().map(|s| vec![s.cluster.clone(), s.score.to_string(), s.taken.to_string()]).collect();
        section("ranking", &["CLUSTER", "SCORE", "TAKEN"], scores, &mut out);
        for division in &self.division {
            let row = |r: &DivisionRow| {
                vec![r.cluster.clone(), r.weight.to_string(), r.capacity.to_string(), r.before.to_string(), r.now.to_string()]
            };
            let title = format!("{}: {} of {} replicas placed", division.feed, division.placed, division.desired);
            let rows = division.rows.iter().map(row).collect();
            section(&title, &["CLUSTER", "WEIGHT", "FREE", "BEFORE", "NOW"], rows, &mut out);
        }
        if !self.helps.is_empty() {
            out.push_str(&format!("\nwould be tried again when {}\n", self.helps.join(", or ")));
        }
        out
    }
}

/// Left-aligned columns, two blanks between them.
fn columns(header: &[&str], rows: &[Vec<String>]) -> String {
    // One very long name must not push all the others off the screen.
    let width = |at: usize| {
        let cells = rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).filter(|count| *count <= CELL_MAX);
        cells.chain([header[at].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let mut out = String::new();
    let header: Vec<String> = header.iter().map(|cell| (*cell).to_owned()).collect();
    for row in std::iter::once(&header).chain(rows) {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("{cell:<width$}  "));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "cluster" } else { "clusters" }
}
