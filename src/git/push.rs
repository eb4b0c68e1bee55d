//! Writing to a remote: many references at once, each with the value it must have had, each with its own answer.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::error::TransportError;
use crate::fetch::{self, Advert, Greeting};
use crate::id::ObjectId;
use crate::pkt;
use crate::transport::Session;

/// One reference to set, make or delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefUpdate {
    /// The full name, `refs/heads/...`.
    pub name: String,
    /// What the remote must have now; [`ObjectId::ZERO`] for nothing.
    pub old: ObjectId,
    /// What it shall have; [`ObjectId::ZERO`] to delete it.
    pub new: ObjectId,
    /// The objects that the remote lacks, as [`crate::Written::Commit`] lists them.
    pub objects: Vec<ObjectId>,
}

/// Why a host does not take an update; trying the same again will not help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// A hook of the repository said no.
    Hook,
    /// The branch is protected, or a rule of the repository forbids the update.
    Protected,
    /// This credential may not write.
    Denied,
    /// The reference cannot be made: its name is forbidden, or another stands in its place.
    Name,
    /// The host would not take the objects (size, checks).
    Objects,
    /// Anything else.
    Other,
}

/// What became of one update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefOutcome {
    /// The remote has the new value.
    Done,
    /// The remote had another value than expected: read again and rebuild.
    Lost {
        /// The value it had, where known.
        found: Option<ObjectId>,
    },
    /// The remote says no.
    Refused {
        /// The sort of refusal.
        why: Refusal,
        /// Its words.
        text: String,
    },
    /// The remote takes fewer references in one push; the planner splits.
    Split {
        /// How many it takes, when it says so.
        most: Option<usize>,
    },
    /// The remote takes no more now.
    RateLimited {
        /// How long it asks to wait.
        after: Option<Duration>,
    },
}

/// Reads what a host said about one reference (`reason`) and about the whole push (`talk`).
///
/// Known words of Git itself, GitHub, GitLab, Gitea, Bitbucket and Gerrit; anything else is [`Refusal::Other`] with its text.
#[must_use]
pub fn classify(reason: &str, talk: &str) -> RefOutcome {
    let low = reason.to_ascii_lowercase();
    let all = format!("{low}\n{}", talk.to_ascii_lowercase());
    let has = |words: &[&str]| words.iter().any(|w| low.contains(w));
    let said = |words: &[&str]| words.iter().any(|w| all.contains(w));
    if said(&["can not update more than", "cannot update more than", "can't update more than", "more than 5 branches or tags"]) {
        return RefOutcome::Split { most: split_limit(&all) };
    }
    if said(&["rate limit", "too many requests", "secondary limit", "try again later", "submitted too quickly"]) {
        return RefOutcome::RateLimited { after: None };
    }
    // `cannot lock ref` also means a directory in the way, which no retry mends.
    if has(&["directory/file conflict", "directory file conflict", "' exists; cannot create", "refname conflict", "funny refname", "invalid ref name", "refusing to create funny"]) {
        return RefOutcome::Refused { why: Refusal::Name, text: text(reason, talk) };
    }
    if has(&[
        "non-fast-forward",
        "fetch first",
        "stale info",
        "cannot lock ref",
        "failed to lock",
        "failed to update ref",
        "incorrect old value provided",
        "reference already exists",
        "already exists",
        "remote ref updated since checkout",
        "but expected",
        "unable to resolve reference",
        "unable to migrate objects",
        "concurrent",
    ]) {
        return RefOutcome::Lost { found: None };
    }
    let why = if said(&["gh006", "gh013", "protected branch", "rule violations", "repository rule", "not allowed to push code to protected", "branch is protected"]) {
        Refusal::Protected
    } else if said(&["permission to", "not allowed to push", "access denied", "prohibited by gerrit", "write access", "read-only", "deploy key"]) {
        Refusal::Denied
    } else if said(&["gh001", "exceeds github's file size", "pack exceeds maximum", "unpacker error", "index-pack abnormal", "missing necessary objects", "fsck"]) {
        Refusal::Objects
    } else if has(&["hook declined", "pre-receive", "hook"]) {
        Refusal::Hook
    } else if has(&["deletion prohibited", "branch is currently checked out", "deny updating"]) {
        Refusal::Protected
    } else {
        Refusal::Other
    };
    RefOutcome::Refused { why, text: text(reason, talk) }
}

/// The host's number in "Pushes can not update more than 5 branches or tags".
fn split_limit(all: &str) -> Option<usize> {
    let at = all.find("more than")?;
    all[at..].split_whitespace().find_map(|w| w.parse().ok())
}

/// The reason and the last lines of talk that say something, bounded.
fn text(reason: &str, talk: &str) -> String {
    let mut out = reason.trim().to_owned();
    let lines: Vec<&str> = talk.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    for line in lines.iter().skip(lines.len().saturating_sub(6)) {
        out.push_str("; ");
        out.push_str(line);
    }
    if out.len() > 1024 {
        let end = (0..=1024).rev().find(|i| out.is_char_boundary(*i)).unwrap_or(0);
        out.truncate(end);
    }
    out
}

/// What the remote shows before a push.
pub(crate) fn greeting(session: &mut Session<'_>) -> Result<Advert, TransportError> {
    match fetch::greeting(session)? {
        Greeting::Zeroth(advert) => Ok(advert),
        Greeting::Second(_) => Err(TransportError::Protocol { host: session.host().to_owned(), text: "version 2 cannot push".to_owned() }),
    }
}

/// Sends these updates with this pack and reads the answer for each.
pub(crate) fn push(session: &mut Session<'_>, advert: &Advert, updates: &[RefUpdate], pack: &[u8]) -> Result<BTreeMap<String, RefOutcome>, TransportError> {
    let band = advert.can("side-band-64k");
    let mut features = vec!["report-status", "quiet", "agent=git/2.0-anabranch"];
    if band {
        features.push("side-band-64k");
    }
    let mut request = Vec::with_capacity(pack.len() + updates.len() * 128);
    for (at, update) in updates.iter().enumerate() {
        let command = format!("{} {} {}", update.old, update.new, update.name);
        if at == 0 {
            pkt::line(&mut request, &format!("{command}\0 {}", features.join(" ")));
        } else {
            pkt::line(&mut request, &command);
        }
    }
    pkt::flush(&mut request);
    if updates.iter().any(|u| !u.new.is_zero()) {
        request.extend_from_slice(pack);
    }
    session.send(&request)?;
    let (report, mut talk) = if band {
        let mut report = Vec::new();
        match pkt::demultiplex(session.answer(), &mut report) {
            Ok(talk) => (report, talk),
            Err(error) => return Err(session.explain(error)),
        }
    } else {
        let mut report = Vec::new();
        if let Err(error) = std::io::Read::read_to_end(session.answer(), &mut report) {
            return Err(session.explain(error));
        }
        (report, String::new())
    };
    // A program tells its hooks' words on its error output when there is no side band.
    let complaint = session.finish();
    if !complaint.is_empty() {
        talk.push('\n');
        talk.push_str(&complaint);
    }
    Ok(read_report(&report, &talk, updates))
}

/// Reads a `report-status`; a reference that it does not mention is refused with what was said.
fn read_report(report: &[u8], talk: &str, updates: &[RefUpdate]) -> BTreeMap<String, RefOutcome> {
    let mut from = report;
    let mut out = BTreeMap::new();
    let mut unpack = "no report".to_owned();
    while let Ok(Some(line)) = pkt::read_line(&mut from) {
        if let Some(text) = line.strip_prefix("unpack ") {
            unpack = text.to_owned();
        } else if let Some(name) = line.strip_prefix("ok ") {
            out.insert(name.to_owned(), RefOutcome::Done);
        } else if let Some(rest) = line.strip_prefix("ng ") {
            let (name, reason) = rest.split_once(' ').unwrap_or((rest, "no reason given"));
            out.insert(name.to_owned(), classify(reason, talk));
        }
    }
    for update in updates {
        out.entry(update.name.clone()).or_insert_with(|| classify(&unpack, talk));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(reason: &str, talk: &str, expect: &str) {
        let got = match classify(reason, talk) {
            RefOutcome::Done => "done".to_owned(),
            RefOutcome::Lost { .. } => "lost".to_owned(),
            RefOutcome::Refused { why, .. } => format!("{why:?}"),
            RefOutcome::Split { most } => format!("split {most:?}"),
            RefOutcome::RateLimited { .. } => "later".to_owned(),
        };
        assert_eq!(got, expect, "{reason} / {talk}");
    }

    #[test]
    fn words_of_hosts() {
        check("non-fast-forward", "", "lost");
        check("failed to update ref", "", "lost");
        check("cannot lock ref 'refs/heads/a': is at 1 but expected 2", "", "lost");
        check("cannot lock ref 'refs/heads/a/b': 'refs/heads/a' exists; cannot create 'refs/heads/a/b'", "", "Name");
        check("incorrect old value provided", "", "lost");
        check("fetch first", "", "lost");
        check("push declined due to repository rule violations", "error: GH013: Repository rule violations found.\n- Pushes can not update more than 5 branches or tags.", "split Some(5)");
        check("push declined due to repository rule violations", "error: GH013: Repository rule violations found for refs/heads/x.", "Protected");
        check("protected branch hook declined", "error: GH006: Protected branch update failed", "Protected");
        check("pre-receive hook declined", "GitLab: You are not allowed to push code to protected branches on this project.", "Protected");
        check("pre-receive hook declined", "no pushes on Fridays", "Hook");
        check("pre-receive hook declined", "GH001: Large files detected.", "Objects");
        check("hook declined", "", "Hook");
        check("prohibited by Gerrit: not permitted: create", "", "Denied");
        check("unpacker error", "", "Objects");
        check("pre-receive hook declined", "You have exceeded a secondary rate limit", "later");
        check("deletion prohibited", "", "Protected");
        check("something new", "", "Other");
    }

    #[test]
    fn reports() {
        let updates = [update("refs/heads/a"), update("refs/heads/b"), update("refs/heads/c")];
        let mut report = Vec::new();
        pkt::line(&mut report, "unpack ok\n");
        pkt::line(&mut report, "ok refs/heads/a\n");
        pkt::line(&mut report, "ng refs/heads/b non-fast-forward\n");
        pkt::flush(&mut report);
        let got = read_report(&report, "", &updates);
        assert_eq!(got["refs/heads/a"], RefOutcome::Done);
        assert_eq!(got["refs/heads/b"], RefOutcome::Lost { found: None });
        assert!(matches!(got["refs/heads/c"], RefOutcome::Refused { .. }));
    }

    fn update(name: &str) -> RefUpdate {
        RefUpdate { name: name.to_owned(), old: ObjectId::ZERO, new: ObjectId::ZERO, objects: Vec::new() }
    }
}
