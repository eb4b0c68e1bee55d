//! Which branch belongs to which cluster, what goes into one push, what a host's answer means, and how it is told.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::conditions::{self, Verdict};
use api::gitops::{BranchFault, DeliveryCounts, FAULTS_MAX, GitTargetSpec, GitTargetStatus};
use api::known::condition;
use api::reason::Reason;
use api::{Time, object};

/// A cluster of a target.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cluster {
    /// Its dedicated namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Cluster {
    /// `namespace/name`.
    #[must_use]
    pub fn key(&self) -> String {
        object::key(&self.namespace, &self.name)
    }
}

/// The branches of a target, and the clusters that cannot have one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Branches {
    /// Branch -> cluster.
    pub of: BTreeMap<String, Cluster>,
    /// Clusters whose branch would be another's, or no branch.
    pub faults: Vec<BranchFault>,
}

/// Gives each cluster its branch. `valid` says whether a text can be a branch's name.
pub fn branches(spec: &GitTargetSpec, clusters: impl IntoIterator<Item = Cluster>, valid: impl Fn(&str) -> bool) -> Branches {
    let mut wished: BTreeMap<String, Vec<Cluster>> = BTreeMap::new();
    for cluster in clusters {
        wished.entry(spec.branch_of(&cluster.namespace, &cluster.name)).or_default().push(cluster);
    }
    let names: BTreeSet<String> = wished.keys().cloned().collect();
    let mut out = Branches::default();
    for (branch, mut clusters) in wished {
        clusters.sort();
        let above = branch.match_indices('/').map(|(at, _)| &branch[..at]).find(|above| names.contains(*above));
        let why = if !valid(&branch) {
            Some(format!("`{branch}` is not a valid name of a branch"))
        } else if clusters.len() > 1 {
            let all: Vec<String> = clusters.iter().map(Cluster::key).collect();
            Some(format!("several clusters would write it: {}; use {{namespace}} in spec.branch", all.join(", ")))
        } else {
            above.map(|above| format!("the branch {above} stands in its way"))
        };
        match (why, clusters.first()) {
            (None, Some(cluster)) => {
                out.of.insert(branch, cluster.clone());
            }
            (why, _) => {
                let message = why.unwrap_or_default();
                out.faults.extend(clusters.into_iter().map(|c| BranchFault { cluster: c.key(), branch: branch.clone(), reason: Reason::InvalidSpec.as_str().to_owned(), message: message.clone() }));
            }
        }
    }
    out
}

/// What is known of a Subscription when a directory of it would disappear from a branch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bound {
    /// It was scheduled at least once.
    pub scheduled: bool,
    /// It has feeds; without any, its directory is rightly empty.
    pub fed: bool,
    /// It is being deleted.
    pub deleting: bool,
    /// Clusters that it is bound to, `namespace/name`.
    pub clusters: BTreeSet<String>,
}

/// The directories of a branch that must stay although no Description fills them now: nothing is deleted on a doubt.
///
/// A directory goes only when its Subscription is gone or not bound to the cluster any more, and when every source has applied
/// its revision once: a parent that is just being rebuilt from Git knows nothing yet.
pub fn held_back<'a>(
    before: impl IntoIterator<Item = &'a String>,
    wanted: &BTreeSet<String>,
    prefix: &str,
    cluster: &str,
    sources_pending: bool,
    bound: impl Fn(&str) -> Option<Bound>,
) -> BTreeSet<String> {
    let prefix = prefix.trim_matches('/');
    before
        .into_iter()
        .filter(|directory| !wanted.contains(*directory))
        .filter(|directory| {
            let Some(subscription) = directory.strip_prefix(prefix).map(|d| d.trim_start_matches('/')) else { return false };
            match bound(subscription) {
                None => sources_pending,
                Some(found) => !found.deleting && found.fed && (!found.scheduled || found.clusters.contains(cluster)),
            }
        })
        .cloned()
        .collect()
}

/// The directories of rendered releases that must stay as they are: of directories that stay, of releases that are not rendered now,
/// and where it is not known yet which there are.
pub fn held_releases(before: &BTreeSet<String>, held: &BTreeSet<String>, tree: &crate::tree::Tree) -> BTreeSet<String> {
    let of = |release: &String| release.rsplit_once('/').map(|(d, _)| d.to_owned()).unwrap_or_default();
    before.iter().filter(|r| held.contains(&of(r)) || tree.waiting.contains(*r) || tree.unknown.contains(&of(r))).cloned().collect()
}

/// Where the content of a commit comes from; equal input gives an equal message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Provenance {
    /// `namespace/name` of each Subscription -> its generation.
    pub subscriptions: BTreeMap<String, i64>,
    /// Source repositories: address -> revision.
    pub sources: BTreeMap<String, String>,
    /// Version of the renderer.
    pub renderer: String,
}

/// The message of a commit: what changes, and trailers that say why.
#[must_use]
pub fn message(cluster: &str, paths: &[&str], provenance: &Provenance) -> String {
    let files: Vec<&str> = paths.iter().copied().filter(|p| *p != api::known::LAYOUT_FILE).collect();
    let directories: BTreeSet<&str> = files.iter().filter_map(|p| p.rsplit_once('/').map(|(d, _)| d)).collect();
    let what = match (files.as_slice(), directories.len()) {
        ([], _) => "layout".to_owned(),
        ([one], _) => (*one).to_owned(),
        (many, 1) => format!("{} files in {}", many.len(), directories.first().copied().unwrap_or_default()),
        (many, n) => format!("{} files in {n} directories", many.len()),
    };
    let mut out = format!("{cluster}: {what}\n\n");
    if directories.len() > 1 {
        for directory in directories.iter().take(50) {
            out.push_str(&format!("- {directory}\n"));
        }
        out.push('\n');
    }
    for (address, revision) in &provenance.sources {
        out.push_str(&format!("Anabranch-Source: {address} {revision}\n"));
    }
    for (subscription, generation) in provenance.subscriptions.iter().filter(|(s, _)| directories.iter().any(|d| d.ends_with(s.as_str()))) {
        out.push_str(&format!("Anabranch-Subscription: {subscription} generation {generation}\n"));
    }
    out.push_str(&format!("Anabranch-Renderer: {}\n", provenance.renderer));
    out
}

/// What the host said about one branch, in the words of this room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// It has the new tip.
    Done,
    /// Somebody else moved the branch.
    Lost,
    /// It will not take it.
    Refused {
        /// One word.
        reason: Reason,
        /// Its words.
        text: String,
    },
    /// It takes fewer branches in one push.
    Fewer(Option<usize>),
    /// It takes nothing now.
    Later(Option<Duration>),
}

/// How many branches go into one push; learned from the host, never forgotten while the process lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Width {
    most: Option<usize>,
}

impl Width {
    /// As the spec says, or everything at once.
    #[must_use]
    pub fn new(spec: &GitTargetSpec) -> Self {
        Self { most: spec.push.max_refs.and_then(|n| usize::try_from(n).ok()).map(|n| n.max(1)) }
    }

    /// Cuts the work into pushes.
    pub fn split<'a, T>(&self, work: &'a [T]) -> impl Iterator<Item = &'a [T]> {
        work.chunks(self.most.unwrap_or(work.len()).max(1))
    }

    /// The host takes fewer: as many as it says, or half of what was tried.
    #[must_use]
    pub fn narrower(&self, tried: usize, said: Option<usize>) -> Self {
        Self { most: Some(said.filter(|n| *n < tried).unwrap_or(tried / 2).max(1)) }
    }

    /// How many, when bounded.
    #[must_use]
    pub fn most(&self) -> Option<usize> {
        self.most
    }
}

/// What to do about a branch now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// It is delivered.
    Settled,
    /// Read its tip again and rebuild on it.
    Rebuild,
    /// Push it again, narrower or later.
    PushAgain(Option<Duration>),
    /// Tell people; try again only after a change, or after a long while.
    Tell(Reason, String),
}

/// The most times that a lost race is run again at once; then it waits its turn.
pub const MAX_RACES: u32 = 5;

/// What an answer means, after so many lost races.
#[must_use]
pub fn step(said: &Said, races: u32) -> Step {
    match said {
        Said::Done => Step::Settled,
        Said::Lost if races < MAX_RACES => Step::Rebuild,
        Said::Lost => Step::PushAgain(Some(Duration::from_secs(2))),
        Said::Fewer(_) => Step::PushAgain(None),
        Said::Later(after) => Step::PushAgain(Some(after.unwrap_or(Duration::from_secs(30)).clamp(Duration::from_secs(1), Duration::from_secs(3600)))),
        Said::Refused { reason, text } => Step::Tell(*reason, text.clone()),
    }
}

/// How a target stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The spec cannot mean anything.
    pub invalid: Option<String>,
    /// The repository cannot be reached or used.
    pub unreached: Option<(Reason, String)>,
    /// The target is suspended.
    pub suspended: bool,
    /// Clusters that the selector matches.
    pub matched: usize,
    /// Clusters whose branch is what is wanted.
    pub delivered: usize,
    /// Branches that could not be written.
    pub faults: Vec<BranchFault>,
    /// Newest source revision that is in the branches.
    pub revision: String,
    /// A push was done in this turn.
    pub pushed: bool,
}

/// The status of a GitTarget; equal input gives an equal status.
#[must_use]
pub fn settle(before: &GitTargetStatus, generation: i64, request: &str, report: &Report, now: &Time) -> GitTargetStatus {
    let mut out = before.clone();
    out.observed_generation = generation;
    request.clone_into(&mut out.last_handled_request);
    let count = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
    let failed: BTreeSet<&str> = report.faults.iter().map(|f| f.cluster.as_str()).collect();
    let pending = report.matched.saturating_sub(report.delivered + failed.len());
    out.clusters = DeliveryCounts { matched: count(report.matched), delivered: count(report.delivered), pending: count(pending), failed: count(failed.len()) };
    out.faults = report.faults.iter().take(FAULTS_MAX).cloned().collect();
    if report.pushed {
        out.last_push_time = Some(now.clone());
    }
    if pending == 0 && failed.is_empty() && !report.revision.is_empty() {
        out.last_applied_revision.clone_from(&report.revision);
    }
    // (type, verdict, reason, message); an absent type is removed.
    let ready: (Verdict, Reason, String);
    let mut reconciling = None;
    let mut stalled = None;
    if let Some(message) = &report.invalid {
        ready = (Verdict::False, Reason::InvalidSpec, message.clone());
        stalled = Some((Reason::InvalidSpec, message.clone()));
    } else if report.suspended {
        ready = (Verdict::Unknown, Reason::Suspended, "writing is suspended".to_owned());
    } else if let Some((reason, message)) = &report.unreached {
        ready = (Verdict::False, *reason, message.clone());
        reconciling = Some((*reason, message.clone()));
    } else if let Some(first) = report.faults.first() {
        let more = failed.len().saturating_sub(1);
        let rest = if more == 0 { String::new() } else { format!(" (and {more} more)") };
        let message = format!("{}: {}{rest}", first.branch, first.message);
        let reason = Reason::ALL.iter().copied().find(|r| r.as_str() == first.reason).unwrap_or(Reason::PushRefused);
        ready = (Verdict::False, reason, message.clone());
        stalled = Some((reason, message));
    } else if pending > 0 {
        let message = format!("{pending} of {} branches wait to be written", report.matched);
        ready = (Verdict::Unknown, Reason::Progressing, message.clone());
        reconciling = Some((Reason::Progressing, message));
    } else {
        ready = (Verdict::True, Reason::Pushed, format!("{} branches are as wanted", report.delivered));
    }
    conditions::set(&mut out.conditions, condition::READY, ready.0, ready.1.as_str(), &ready.2, Some(generation), now);
    for (kind, found) in [(condition::RECONCILING, reconciling), (condition::STALLED, stalled)] {
        match found {
            Some((reason, message)) => {
                conditions::set(&mut out.conditions, kind, Verdict::True, reason.as_str(), &message, Some(generation), now);
            }
            None => {
                conditions::remove(&mut out.conditions, kind);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(namespace: &str, name: &str) -> Cluster {
        Cluster { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    #[test]
    fn each_cluster_its_branch() {
        let spec = GitTargetSpec::default();
        let fine = |branch: &str| !branch.contains("..");
        let out = branches(&spec, [cluster("a", "harbor"), cluster("b", "meadow"), cluster("c", "meadow"), cluster("d", "x..y")], fine);
        assert_eq!(out.of.into_iter().map(|(b, c)| format!("{b} {}", c.key())).collect::<Vec<_>>(), ["clusters/harbor a/harbor"]);
        let said: Vec<String> = out.faults.iter().map(|f| format!("{}: {}", f.cluster, f.message)).collect();
        assert_eq!(
            said,
            [
                "b/meadow: several clusters would write it: b/meadow, c/meadow; use {namespace} in spec.branch",
                "c/meadow: several clusters would write it: b/meadow, c/meadow; use {namespace} in spec.branch",
                "d/x..y: `clusters/x..y` is not a valid name of a branch",
            ]
        );
        let nested = GitTargetSpec { branch: "{cluster}".to_owned(), ..spec };
        let out = branches(&nested, [cluster("a", "x"), cluster("b", "x/y")], fine);
        assert_eq!((out.of.len(), out.faults.len()), (1, 1));
    }

    #[test]
    fn directories_stay_on_a_doubt() {
        let before = ["a/gone".to_owned(), "a/new".to_owned(), "a/here".to_owned(), "a/moved".to_owned(), "a/deleting".to_owned()];
        let wanted = BTreeSet::new();
        let bound = |name: &str| {
            let clusters: BTreeSet<String> = ["c/harbor".to_owned()].into();
            Some(match name {
                "a/new" => Bound { fed: true, ..Bound::default() },
                "a/here" => Bound { scheduled: true, fed: true, deleting: false, clusters },
                "a/moved" => Bound { scheduled: true, fed: true, ..Bound::default() },
                "a/deleting" => Bound { scheduled: true, fed: true, deleting: true, clusters },
                _ => return None,
            })
        };
        let held: Vec<String> = held_back(&before, &wanted, "", "c/harbor", false, bound).into_iter().collect();
        assert_eq!(held, ["a/here", "a/new"]);
        let held: Vec<String> = held_back(&before, &wanted, "", "c/harbor", true, bound).into_iter().collect();
        assert_eq!(held, ["a/gone", "a/here", "a/new"]);
    }

    #[test]
    fn messages_say_what_and_why() {
        let provenance = Provenance {
            subscriptions: [("shop/web".to_owned(), 3), ("bank/core".to_owned(), 1)].into(),
            sources: [("https://git.example.org/fleet".to_owned(), "main@sha1:0123".to_owned())].into(),
            renderer: "anabranch/0.1.0".to_owned(),
        };
        assert_eq!(
            message("harbor", &[".anabranch.yaml", "shop/web/configmap.shop.web.yaml"], &provenance),
            "harbor: shop/web/configmap.shop.web.yaml\n\nAnabranch-Source: https://git.example.org/fleet main@sha1:0123\nAnabranch-Subscription: shop/web generation 3\nAnabranch-Renderer: anabranch/0.1.0\n"
        );
        let several = message("harbor", &["shop/web/a.b.c.yaml", "bank/core/a.b.c.yaml"], &provenance);
        assert!(several.starts_with("harbor: 2 files in 2 directories\n\n- bank/core\n- shop/web\n\n"), "{several}");
    }

    #[test]
    fn pushes_get_narrower() {
        let work: Vec<usize> = (0..12).collect();
        let wide = Width::new(&GitTargetSpec::default());
        assert_eq!(wide.split(&work).map(<[usize]>::len).collect::<Vec<_>>(), [12]);
        assert_eq!(wide.narrower(12, Some(5)).split(&work).map(<[usize]>::len).collect::<Vec<_>>(), [5, 5, 2]);
        assert_eq!(wide.narrower(12, None).most(), Some(6));
        assert_eq!(wide.narrower(1, None).most(), Some(1));
        assert_eq!(wide.split(&work[..0]).count(), 0);
    }

    #[test]
    fn answers() {
        assert_eq!(step(&Said::Done, 0), Step::Settled);
        assert_eq!(step(&Said::Lost, 0), Step::Rebuild);
        assert_eq!(step(&Said::Lost, MAX_RACES), Step::PushAgain(Some(Duration::from_secs(2))));
        assert_eq!(step(&Said::Fewer(Some(5)), 0), Step::PushAgain(None));
        assert_eq!(step(&Said::Later(Some(Duration::ZERO)), 0), Step::PushAgain(Some(Duration::from_secs(1))));
    }

    #[test]
    fn a_status_is_stable() {
        let at = |second: i64| Time(jiff::Timestamp::from_second(second).unwrap_or_default());
        let report = Report { matched: 3, delivered: 2, ..Report::default() };
        let first = settle(&GitTargetStatus::default(), 1, "", &report, &at(1));
        assert_eq!(first, settle(&first, 1, "", &report, &at(2)));
        assert_eq!(first.clusters.pending, 1);
        let fault = BranchFault { cluster: "a/harbor".to_owned(), branch: "clusters/harbor".to_owned(), reason: "PushRefused".to_owned(), message: "no pushes on Fridays".to_owned() };
        let refused = settle(&first, 1, "", &Report { faults: vec![fault], ..report.clone() }, &at(3));
        assert_eq!(conditions::find(&refused.conditions, "Stalled").map(|c| c.message.as_str()), Some("clusters/harbor: no pushes on Fridays"));
        let done = settle(&refused, 1, "", &Report { delivered: 3, revision: "main@sha1:1".to_owned(), pushed: true, ..report }, &at(4));
        assert!(conditions::is_true(&done.conditions, "Ready") && conditions::find(&done.conditions, "Stalled").is_none());
        assert_eq!(done.last_applied_revision, "main@sha1:1");
    }
}
