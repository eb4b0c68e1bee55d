//! The status of a GitSource after a turn.

use std::collections::BTreeMap;

use api::conditions::{self, Verdict};
use api::gitops::{FAULTS_MAX, FileFault, GitSourceStatus, Inventory as Counts};
use api::known::condition;
use api::reason::Reason;
use api::Time;

use super::assemble::Place;
use super::decide::HeldBack;

/// How a turn ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Report {
    /// The GitSource is suspended.
    Suspended,
    /// The spec cannot mean anything.
    Invalid(String),
    /// The repository could not be read.
    Unread {
        /// Why, as one of the closed list.
        reason: Reason,
        /// What was said.
        message: String,
        /// Whether it is worth trying again without a change.
        transient: bool,
    },
    /// Work on a revision is under way.
    Applying {
        /// The revision.
        revision: String,
    },
    /// A revision was worked on to its end.
    Done {
        /// The revision.
        revision: String,
        /// All faults: of files and of applying.
        faults: Vec<FileFault>,
        /// How many of them are of applying.
        failed: usize,
        /// Why objects that disappeared are still there.
        held_back: Option<(usize, HeldBack)>,
        /// What the parent has from this source now.
        inventory: Vec<Place>,
    },
}

fn word(reason: Reason) -> &'static str {
    reason.as_str()
}

/// Sums a turn up into a status; equal input gives an equal status, so that nothing is written when nothing changed.
#[must_use]
pub fn settle(before: &GitSourceStatus, generation: i64, request: &str, report: &Report, now: &Time) -> GitSourceStatus {
    let mut out = before.clone();
    out.observed_generation = generation;
    let mut set = |kind: &str, verdict: Verdict, reason: &str, message: &str| {
        conditions::set(&mut out.conditions, kind, verdict, reason, message, Some(generation), now);
    };
    let mut clear: Vec<&str> = Vec::new();
    match report {
        Report::Suspended => {
            set(condition::READY, Verdict::Unknown, word(Reason::Suspended), "reading is suspended; what is applied stays");
            clear.extend([condition::RECONCILING, condition::STALLED]);
        }
        Report::Invalid(message) => {
            set(condition::READY, Verdict::False, word(Reason::InvalidSpec), message);
            set(condition::STALLED, Verdict::True, word(Reason::InvalidSpec), message);
            clear.push(condition::RECONCILING);
        }
        Report::Unread { reason, message, transient } => {
            set(condition::READY, Verdict::False, word(*reason), message);
            if *transient {
                set(condition::RECONCILING, Verdict::True, word(Reason::Progressing), message);
                clear.push(condition::STALLED);
            } else {
                set(condition::STALLED, Verdict::True, word(*reason), message);
                clear.push(condition::RECONCILING);
            }
        }
        Report::Applying { revision } => {
            let message = format!("applying {revision}");
            set(condition::READY, Verdict::Unknown, word(Reason::Progressing), &message);
            set(condition::RECONCILING, Verdict::True, word(Reason::Progressing), &message);
            clear.push(condition::STALLED);
            out.last_attempted_revision.clone_from(revision);
        }
        Report::Done { revision, faults, failed, held_back, inventory } => {
            let (verdict, reason, message) = summary(revision, faults, *failed, held_back.as_ref(), inventory.len());
            set(condition::READY, verdict, word(reason), &message);
            if *failed > 0 {
                set(condition::RECONCILING, Verdict::True, word(Reason::ApplyFailed), &message);
                clear.push(condition::STALLED);
            } else if verdict == Verdict::True {
                clear.extend([condition::RECONCILING, condition::STALLED]);
            } else {
                set(condition::STALLED, Verdict::True, word(reason), &message);
                clear.push(condition::RECONCILING);
            }
            out.last_attempted_revision.clone_from(revision);
            if faults.is_empty() && held_back.is_none() && out.last_applied_revision != *revision {
                out.last_applied_revision.clone_from(revision);
                out.last_applied_time = Some(now.clone());
            }
            out.fault_count = i32::try_from(faults.len()).unwrap_or(i32::MAX);
            out.faults = faults.iter().take(FAULTS_MAX).cloned().collect();
            out.inventory = count(inventory);
        }
    }
    for kind in clear {
        conditions::remove(&mut out.conditions, kind);
    }
    request.clone_into(&mut out.last_handled_request);
    out
}

fn summary(revision: &str, faults: &[FileFault], failed: usize, held_back: Option<&(usize, HeldBack)>, objects: usize) -> (Verdict, Reason, String) {
    let mut parts = Vec::new();
    let faulty = faults.len().saturating_sub(failed);
    if let Some(first) = faults.first() {
        parts.push(match faults.len() {
            1 => first.to_string(),
            n => format!("{first} (and {} more)", n - 1),
        });
    }
    if let Some((count, why)) = held_back {
        let why = match why {
            HeldBack::Faults(_) => "until every file can be read".to_owned(),
            HeldBack::Unlisted => "until the parent can be listed".to_owned(),
            HeldBack::Empty => "since the revision has no object at all; approve the revision to delete them".to_owned(),
            HeldBack::Budget { most } => format!("since the deletion budget allows {most}; approve the revision to delete them"),
        };
        parts.push(format!("{count} objects that disappeared are kept {why}"));
    }
    let message = parts.join("; ");
    if failed > 0 {
        (Verdict::False, Reason::ApplyFailed, message)
    } else if faulty > 0 {
        (Verdict::False, Reason::FaultyFiles, message)
    } else if held_back.is_some() {
        (Verdict::False, Reason::PruneRefused, message)
    } else {
        (Verdict::True, Reason::Succeeded, format!("{objects} objects of {revision} are applied"))
    }
}

fn count(places: &[Place]) -> Counts {
    let mut kinds: BTreeMap<String, i32> = BTreeMap::new();
    let mut names: Vec<String> = Vec::with_capacity(places.len());
    for place in places {
        let kind = if place.group.is_empty() { place.kind.clone() } else { format!("{}.{}", place.kind, place.group) };
        *kinds.entry(kind).or_default() += 1;
        names.push(place.to_string());
    }
    names.sort();
    let digest = if names.is_empty() { String::new() } else { super::digest_of(&serde_json::Value::from(names)) };
    Counts { objects: i32::try_from(places.len()).unwrap_or(i32::MAX), kinds, digest }
}
