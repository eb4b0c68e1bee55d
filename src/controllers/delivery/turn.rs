//! The turn of one GitTarget: which branches differ, one push for all of them, and what was said to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::clusters::ManagedCluster;
use api::gitops::{BranchFault, BranchRetention, DeliveryMode, GitTarget};
use api::known::{LAYOUT_FILE, annotation, label, manager};
use api::reason::Reason;
use api::selector::Selector;
use engine::{EventKind, Key, Next, Regarding};
use git::{ObjectId, RefOutcome, RefUpdate, Refusal, Remote, Written};
use kube::Api;
use kube::api::{Patch, PatchParams};
use plan::delivery::{self, Bound, Branches, Cluster, Provenance, Report, Said, Step, Width};
use plan::tree::Marker;

use super::access::{self, Unusable, reason_of};
use super::announce;
use super::trees::ClusterTree;
use super::{Writer, key_of};

/// The tips of a local repository are read again this often, those of a remote one this often: people push too.
const RECHECK_LOCAL: Duration = Duration::from_secs(60);
const RECHECK_REMOTE: Duration = Duration::from_secs(300);
/// A branch that was refused is tried again after this long, and after every change.
const AFTER_REFUSAL: Duration = Duration::from_secs(300);
/// Who renders; stands in every commit.
const RENDERER: &str = concat!("anabranch/", env!("CARGO_PKG_VERSION"));

/// What is known of a branch at a tip.
#[derive(Clone)]
struct Known {
    tip: ObjectId,
    marker: Option<Marker>,
    /// Digest of the tree that we know to be there.
    digest: Option<ObjectId>,
}

/// Memory of one target; losing it costs time, never correctness.
#[derive(Default)]
pub(super) struct State {
    changed: BTreeSet<Key>,
    gone: BTreeSet<Key>,
    /// Everything was looked at once since the process began.
    seen_all: bool,
    generation: Option<i64>,
    remote: Option<Remote>,
    tips: BTreeMap<String, ObjectId>,
    read_at: Option<Duration>,
    known: BTreeMap<String, Known>,
    delivered: BTreeSet<String>,
    pub(super) faults: BTreeMap<String, BranchFault>,
    width: Option<Width>,
    pushed_at: Option<Duration>,
}

impl State {
    /// Takes over what was marked.
    pub(super) fn note(&mut self, changed: BTreeSet<Key>, gone: BTreeSet<Key>, everything: bool) {
        self.changed.extend(changed);
        self.gone.extend(gone);
        self.seen_all &= !everything;
    }
}

/// A branch under work.
struct Item {
    branch: String,
    cluster: Cluster,
    tree: ClusterTree,
    /// The tip to build on.
    parent: Option<ObjectId>,
    /// The branch that has that tip.
    base: String,
    /// The branch to move: the cluster's, or a proposal for it.
    moved: String,
    /// What it must be at.
    old: Option<ObjectId>,
}

/// A branch to look at: which one is moved, and on which one it builds.
struct Look<'a> {
    branch: &'a str,
    cluster: &'a Cluster,
    moved: String,
    base: String,
}

/// What an update brings when it is done.
struct Ready {
    branch: String,
    moved: String,
    digest: Option<ObjectId>,
    marker: Marker,
}

/// How the work on branches ended.
#[derive(Default)]
struct Done {
    pushed: bool,
    again: bool,
    after: Option<Duration>,
    unreached: Option<(Reason, String)>,
}

impl Writer {
    pub(super) async fn turn(&self, key: &Key, target: &GitTarget, state: &mut State) -> Next {
        let spec = &target.spec;
        let mut report = Report { suspended: spec.suspend, ..Report::default() };
        if spec.suspend {
            self.tell_target(target, &report).await;
            return Next::Done;
        }
        let selector = match &spec.cluster_selector {
            None => Ok(Selector::everything()),
            Some(selector) => Selector::from_label_selector(selector),
        };
        let selector = match selector {
            Ok(selector) if spec.signing.is_none() => selector,
            Ok(_) => return self.invalid(target, report, "spec.signing: this version cannot sign commits").await,
            Err(error) => return self.invalid(target, report, &format!("spec.clusterSelector: {error}")).await,
        };
        if state.generation != target.metadata.generation {
            *state = State { changed: BTreeSet::new(), gone: std::mem::take(&mut state.gone), generation: target.metadata.generation, ..State::default() };
        }
        let remote = match access::remote(&self.context.client, &self.context.git, &access::Place::of(target)).await {
            Ok(remote) => remote,
            Err(Unusable::Invalid(message)) => return self.invalid(target, report, &message).await,
            Err(Unusable::Unreached(reason, message)) => {
                report.unreached = Some((reason, message));
                self.tell_target(target, &report).await;
                return Next::Again;
            }
        };
        state.remote = Some(remote.clone());

        let labels = |c: &ManagedCluster| c.metadata.labels.clone().unwrap_or_default();
        let fleet = self.context.clusters.list();
        let (matched, other): (Vec<_>, Vec<_>) = fleet.into_iter().filter(|c| c.metadata.deletion_timestamp.is_none()).partition(|c| selector.matches(&labels(c)));
        let by_cluster: BTreeMap<String, Arc<ManagedCluster>> = matched.iter().map(|c| (Key::of(&**c).to_string(), c.clone())).collect();
        let named = matched.iter().map(|c| Cluster { namespace: c.metadata.namespace.clone().unwrap_or_default(), name: c.metadata.name.clone().unwrap_or_default() });
        let branches = delivery::branches(spec, named, git::is_branch_name);
        state.faults.retain(|branch, _| branches.of.contains_key(branch));
        state.delivered.retain(|branch| branches.of.contains_key(branch));

        let now = self.context.clock.monotonic();
        if let Some(wait) = self.too_early(target, state, now) {
            return Next::After(wait);
        }
        let recheck = if remote.local_path().is_some() { RECHECK_LOCAL } else { RECHECK_REMOTE };
        let stale = state.read_at.is_none_or(|at| now.saturating_sub(at) >= recheck);
        let mut scope: BTreeSet<String> = if state.seen_all {
            branches.of.iter().filter(|(branch, c)| state.changed.contains(&key_of(&c.key())) || state.faults.contains_key(*branch)).map(|(b, _)| b.clone()).collect()
        } else {
            branches.of.keys().cloned().collect()
        };
        let changed = std::mem::take(&mut state.changed);
        let all = !state.seen_all;
        state.seen_all = true;

        let mut done = Done::default();
        if stale || all {
            match self.read_tips(&remote, target).await {
                Ok(tips) => {
                    // Whoever moved a branch of ours, it is looked at again.
                    scope.extend(branches.of.keys().filter(|b| state.known.get(*b).is_some_and(|k| tips.get(*b) != Some(&k.tip))).cloned());
                    state.tips = tips;
                    state.read_at = Some(now);
                }
                Err(error) => done.unreached = Some((reason_of(error.reason()), cluster::error::chain(&error))),
            }
        }
        if done.unreached.is_none() {
            self.deliver(key, target, &remote, &branches, &scope, state, &mut done).await;
        }
        if done.unreached.is_none() && !state.gone.is_empty() {
            self.retire(key, target, &remote, state).await;
        }
        if done.again || done.unreached.is_some() {
            state.changed.extend(changed.iter().cloned());
            state.changed.extend(scope.iter().filter_map(|b| branches.of.get(b)).map(|c| key_of(&c.key())));
            state.seen_all &= !(all && done.unreached.is_some());
        }

        // Agents are told last: what they are told is there.
        let mut news = Vec::new();
        for branch in &scope {
            let Some(cluster) = branches.of.get(branch).and_then(|c| by_cluster.get(&c.key())) else { continue };
            if let Some(tip) = state.tips.get(branch).filter(|_| self.leads(key, cluster)) {
                news.push((cluster.clone(), announce::wanted(target, branch, *tip)));
            }
        }
        for cluster in other.iter().filter(|c| all || changed.contains(&Key::of(&***c))) {
            let (namespace, name) = (cluster.metadata.namespace.as_deref().unwrap_or_default(), cluster.metadata.name.as_deref().unwrap_or_default());
            let told = announce::of(cluster);
            let ours = announce::wanted(target, &spec.branch_of(namespace, name), ObjectId::ZERO);
            if told.url == ours.url && told.branch == ours.branch {
                news.push((cluster.clone(), announce::Delivery::default()));
            }
        }
        let untold = announce::tell(&self.context.client, &self.context.clusters, news).await;
        done.again |= !untold.is_empty();
        state.changed.extend(untold);

        report.matched = by_cluster.len();
        report.delivered = state.delivered.iter().filter(|b| !state.faults.contains_key(*b)).count();
        report.faults = branches.faults.iter().cloned().chain(state.faults.values().cloned()).collect();
        report.unreached = done.unreached.clone();
        report.pushed = done.pushed;
        report.revision = self.newest_revision();
        self.tell_target(target, &report).await;
        if done.again || done.unreached.is_some() {
            return match done.after {
                Some(after) => Next::After(after),
                None => Next::Again,
            };
        }
        match done.after {
            Some(after) => Next::After(after.min(recheck)),
            None if state.faults.is_empty() => Next::After(recheck),
            None => Next::After(AFTER_REFUSAL.min(recheck)),
        }
    }

    async fn invalid(&self, target: &GitTarget, mut report: Report, message: &str) -> Next {
        report.invalid = Some(message.to_owned());
        self.tell_target(target, &report).await;
        Next::Done
    }

    /// How long the spec asks to wait before the next push.
    fn too_early(&self, target: &GitTarget, state: &State, now: Duration) -> Option<Duration> {
        let interval = api::duration::parse(&target.spec.push.min_interval)?;
        let passed = now.saturating_sub(state.pushed_at?);
        (passed < interval).then(|| interval - passed)
    }

    async fn read_tips(&self, remote: &Remote, target: &GitTarget) -> Result<BTreeMap<String, ObjectId>, git::TransportError> {
        let fixed = |pattern: &str| pattern.split('{').next().unwrap_or_default().to_owned();
        let mut tips = remote.branches(&fixed(&target.spec.branch)).await?;
        if target.spec.mode == DeliveryMode::Propose {
            tips.extend(remote.branches(&fixed(&target.spec.propose.branch)).await?);
        }
        Ok(tips)
    }

    /// Whether this target speaks for the cluster: of several, the first by name does.
    fn leads(&self, key: &Key, cluster: &ManagedCluster) -> bool {
        let labels = cluster.metadata.labels.clone().unwrap_or_default();
        let matches = |target: &GitTarget| match &target.spec.cluster_selector {
            None => true,
            Some(selector) => Selector::from_label_selector(selector).is_ok_and(|s| s.matches(&labels)),
        };
        !self.targets.list().iter().any(|t| Key::of(&**t) < *key && !t.spec.suspend && matches(t))
    }

    /// Commits and pushes until nothing is left that can be done now.
    #[expect(clippy::too_many_arguments, reason = "the state of one turn")]
    async fn deliver(&self, key: &Key, target: &GitTarget, remote: &Remote, branches: &Branches, scope: &BTreeSet<String>, state: &mut State, done: &mut Done) {
        let mut width = state.width.unwrap_or_else(|| Width::new(&target.spec));
        let mut open: BTreeMap<String, u32> = scope.iter().map(|b| (b.clone(), 0)).collect();
        while !open.is_empty() {
            let work: Vec<(&String, &Cluster)> = open.keys().filter_map(|b| branches.of.get_key_value(b)).collect();
            let items = match self.prepare(key, target, remote, &work, state).await {
                Ok(items) => items,
                Err((reason, message)) => {
                    done.unreached = Some((reason, message));
                    return;
                }
            };
            let (mut updates, ready) = match self.commit(target, remote, items, state).await {
                Ok(found) => found,
                Err(error) => {
                    done.unreached = Some((reason_of(error.reason()), cluster::error::chain(&error)));
                    return;
                }
            };
            // What is not in the updates is settled: as wanted, or told as a fault.
            let unsettled: BTreeSet<&str> = ready.values().map(|r| r.branch.as_str()).collect();
            open.retain(|branch, _| unsettled.contains(branch.as_str()));
            let mut stop = false;
            while !updates.is_empty() && !stop {
                let chunk: Vec<RefUpdate> = width.split(&updates).next().map(<[RefUpdate]>::to_vec).unwrap_or_default();
                updates.drain(..chunk.len());
                let tried = chunk.len();
                let answers = match remote.push(chunk.clone()).await {
                    Ok(answers) => answers,
                    Err(git::TransportError::RateLimited { after, .. }) => chunk.iter().map(|u| (u.name.clone(), RefOutcome::RateLimited { after })).collect(),
                    Err(error) => {
                        // Whether anything was done is unknown: the tips are read again next time.
                        state.read_at = None;
                        done.unreached = Some((reason_of(error.reason()), cluster::error::chain(&error)));
                        return;
                    }
                };
                for update in chunk {
                    let Some(Ready { branch, moved, digest, marker }) = ready.get(&update.name) else { continue };
                    let mut said = said(answers.get(&update.name));
                    if tried == 1 && matches!(said, Said::Fewer(_)) {
                        said = Said::Refused { reason: Reason::PushRefused, text: "the host takes not even one branch in a push".to_owned() };
                    }
                    let races = open.get(branch).copied().unwrap_or_default();
                    match delivery::step(&said, races) {
                        Step::Settled => {
                            done.pushed = true;
                            open.remove(branch);
                            state.tips.insert(moved.clone(), update.new);
                            state.known.insert(moved.clone(), Known { tip: update.new, marker: Some(marker.clone()), digest: *digest });
                            if state.faults.get(branch).is_some_and(|f| f.reason != Reason::RenderFailed.as_str()) {
                                state.faults.remove(branch);
                            }
                            state.delivered.insert(branch.clone());
                        }
                        Step::Rebuild => {
                            open.insert(branch.clone(), races + 1);
                        }
                        Step::PushAgain(None) => {
                            if let Said::Fewer(most) = said {
                                width = width.narrower(tried, most);
                                state.width = Some(width);
                            }
                            updates.push(update);
                        }
                        Step::PushAgain(Some(after)) => {
                            open.remove(branch);
                            done.again = true;
                            done.after = Some(done.after.map_or(after, |a| a.max(after)));
                            stop = true;
                        }
                        Step::Tell(reason, text) => {
                            open.remove(branch);
                            state.delivered.remove(branch);
                            let cluster = branches.of.get(branch).map(Cluster::key).unwrap_or_default();
                            state.faults.insert(branch.clone(), BranchFault { cluster, branch: branch.clone(), reason: reason.as_str().to_owned(), message: text });
                        }
                    }
                }
            }
            if stop {
                break;
            }
            if !open.is_empty() {
                // Lost races: read the tips again and rebuild on them.
                match self.read_tips(remote, target).await {
                    Ok(tips) => state.tips = tips,
                    Err(error) => {
                        done.unreached = Some((reason_of(error.reason()), cluster::error::chain(&error)));
                        return;
                    }
                }
            }
        }
        if done.pushed {
            state.pushed_at = Some(self.context.clock.monotonic());
            self.context.metrics.count("delivery_pushes_total", &[], 1);
        }
    }

    /// Builds the trees of branches, with what must stay of their tips.
    async fn prepare(&self, key: &Key, target: &GitTarget, remote: &Remote, work: &[(&String, &Cluster)], state: &mut State) -> Result<Vec<Item>, (Reason, String)> {
        let unread = |message: String| (Reason::PushRefused, message);
        let work: Vec<Look<'_>> = work
            .iter()
            .map(|(branch, cluster)| {
                let moved = match target.spec.mode {
                    DeliveryMode::Commit => (*branch).clone(),
                    DeliveryMode::Propose => target.spec.propose.branch.replace("{branch}", branch),
                };
                // A proposal grows until it is merged; the first one begins where the branch is.
                let base = if state.tips.contains_key(&moved) { moved.clone() } else { (*branch).clone() };
                Look { branch, cluster, moved, base }
            })
            .collect();
        // Markers of tips that we did not write.
        let unknown: Vec<(String, ObjectId)> = work
            .iter()
            .filter_map(|look| state.tips.get(&look.base).map(|tip| (look.base.clone(), *tip)))
            .filter(|(branch, tip)| state.known.get(branch).is_none_or(|k| k.tip != *tip))
            .collect();
        if !unknown.is_empty() {
            let ids: Vec<ObjectId> = unknown.iter().map(|(_, tip)| *tip).collect();
            let haves: Vec<ObjectId> = unknown.iter().filter_map(|(branch, _)| state.known.get(branch).map(|k| k.tip)).collect();
            remote.fetch(&ids, &haves).await.map_err(|error| unread(cluster::error::chain(&error)))?;
            let texts = remote.file_of(&ids, LAYOUT_FILE, 1 << 20).await.map_err(|error| unread(cluster::error::chain(&error)))?;
            for ((branch, tip), text) in unknown.into_iter().zip(texts) {
                state.known.insert(branch, Known { tip, marker: text.as_deref().and_then(Marker::read), digest: None });
            }
        }
        let owner = key.to_string();
        let pending = self.sources_pending();
        let mut out = Vec::new();
        for (at, Look { branch, cluster, moved, base }) in work.into_iter().enumerate() {
            if at % 64 == 63 {
                tokio::task::yield_now().await;
            }
            let descriptions = self.context.descriptions.in_namespace(&cluster.namespace);
            let mut tree = {
                let mut trees = self.trees.lock();
                trees.forget(&cluster.namespace, &descriptions);
                trees.build(&owner, &target.spec.layout.path, &descriptions, &self.context.renders)
            };
            let tip = state.tips.get(&base).copied();
            let known = tip.and_then(|_| state.known.get(&base));
            if let Some(marker) = known.and_then(|k| k.marker.as_ref()) {
                if marker.owner != owner {
                    let message = format!("the branch is written by the GitTarget {}", marker.owner);
                    let fault = BranchFault { cluster: cluster.key(), branch: branch.to_owned(), reason: Reason::OwnedByAnother.as_str().to_owned(), message };
                    state.faults.insert(branch.to_owned(), fault);
                    state.delivered.remove(branch);
                    continue;
                }
                let wanted = tree.tree.files.get(LAYOUT_FILE).and_then(|t| Marker::read(t.as_bytes())).map(|m| m.directories).unwrap_or_default();
                let held = delivery::held_back(&marker.directories, &wanted, &target.spec.layout.path, &cluster.key(), pending, |name| self.bound(name));
                let releases = delivery::held_releases(&marker.releases, &held, &tree.tree);
                tree.keep(&held, &releases);
            }
            let as_wanted = known.is_some_and(|k| k.digest.is_some() && k.digest == tree.digest);
            self.note_faults(branch, cluster, &tree, state);
            // A cluster without anything gets no branch of its own.
            let nothing = tip.is_none() && tree.files.len() <= 1;
            if as_wanted || nothing {
                state.delivered.insert(branch.to_owned());
                continue;
            }
            let old = state.tips.get(&moved).copied();
            out.push(Item { branch: branch.to_owned(), cluster: cluster.clone(), tree, parent: tip, base, moved, old });
        }
        Ok(out)
    }

    /// Objects that cannot be files are told, but do not hold the others back.
    fn note_faults(&self, branch: &str, cluster: &Cluster, tree: &ClusterTree, state: &mut State) {
        match tree.faults.first() {
            Some(first) => {
                let message = format!("{}: {}", first.description, first.message);
                let fault = BranchFault { cluster: cluster.key(), branch: branch.to_owned(), reason: Reason::RenderFailed.as_str().to_owned(), message };
                state.faults.insert(branch.to_owned(), fault);
            }
            None => {
                state.faults.remove(branch);
            }
        }
    }

    /// Writes the commits. The updates to push, and by the name of each what is there when it is done.
    async fn commit(
        &self,
        target: &GitTarget,
        remote: &Remote,
        items: Vec<Item>,
        state: &mut State,
    ) -> Result<(Vec<RefUpdate>, BTreeMap<String, Ready>), git::TransportError> {
        let stamp = self.context.clock.now().as_second();
        let who = git::Signature { name: target.spec.author.name.clone(), email: target.spec.author.email.clone(), seconds: stamp, offset: 0 };
        let mut drafts = Vec::with_capacity(items.len());
        let mut markers = Vec::with_capacity(items.len());
        for item in &items {
            let before = item.parent.and_then(|_| state.known.get(&item.base)).and_then(|k| k.marker.clone());
            let ours = plan::tree::ours(before.as_ref(), &item.tree.tree);
            let marker = item.tree.tree.files.get(LAYOUT_FILE).and_then(|t| Marker::read(t.as_bytes())).unwrap_or_else(|| ours.clone());
            // Directories that are held back stay as they are: their files are not ours this time.
            let filled: BTreeSet<String> = item.tree.files.keys().filter_map(|p| p.rsplit_once('/').map(|(d, _)| d.to_owned())).collect();
            let mut held: BTreeSet<String> = marker.directories.difference(&filled).cloned().collect();
            let filled: BTreeSet<&str> = item.tree.files.keys().filter_map(|p| marker.release_of(p)).map(|(d, _)| d).collect();
            held.extend(marker.releases.iter().filter(|d| !filled.contains(d.as_str())).cloned());
            let provenance = Arc::new(self.provenance(&item.cluster, &marker));
            let cluster = item.cluster.name.clone();
            drafts.push(git::Draft {
                parent: item.parent,
                files: item.tree.files.clone(),
                ours: Arc::new(move |path: &str| {
                    let directory = ours.release_of(path).or_else(|| path.rsplit_once('/')).map(|(d, _)| d);
                    ours.owns(path) && !directory.is_some_and(|d| held.contains(d))
                }),
                message: Arc::new(move |changes: &git::Changes| delivery::message(&cluster, &changes.paths(), &provenance)),
                author: who.clone(),
                committer: who.clone(),
            });
            markers.push(marker);
        }
        let written = remote.write(drafts).await?;
        let mut updates = Vec::new();
        let mut ready = BTreeMap::new();
        for ((item, marker), written) in items.into_iter().zip(markers).zip(written) {
            match written {
                Ok(Written::Unchanged) => {
                    if let Some(tip) = item.parent {
                        state.known.insert(item.base, Known { tip, marker: Some(marker), digest: item.tree.digest });
                    }
                    state.delivered.insert(item.branch);
                }
                Ok(Written::Commit { id, objects, .. }) => {
                    let name = format!("refs/heads/{}", item.moved);
                    updates.push(RefUpdate { name: name.clone(), old: item.old.unwrap_or(ObjectId::ZERO), new: id, objects });
                    ready.insert(name, Ready { branch: item.branch, moved: item.moved, digest: item.tree.digest, marker });
                }
                Err(error) => {
                    let fault = BranchFault {
                        cluster: item.cluster.key(),
                        branch: item.branch.clone(),
                        reason: Reason::PushRefused.as_str().to_owned(),
                        message: cluster::error::chain(&error),
                    };
                    state.delivered.remove(&item.branch);
                    state.faults.insert(item.branch, fault);
                }
            }
        }
        Ok((updates, ready))
    }

    /// Deletes the branches of clusters that were deleted before our eyes, when the target says so.
    async fn retire(&self, key: &Key, target: &GitTarget, remote: &Remote, state: &mut State) {
        let gone = std::mem::take(&mut state.gone);
        if target.spec.retention != BranchRetention::Delete {
            return;
        }
        let mut updates = Vec::new();
        for cluster in gone.iter().filter(|c| self.context.clusters.get_key(c).is_none()) {
            let branch = target.spec.branch_of(&cluster.namespace, &cluster.name);
            let ours = state.known.get(&branch).and_then(|k| k.marker.as_ref()).is_some_and(|m| m.owner == key.to_string());
            if let Some(tip) = state.tips.get(&branch).filter(|_| ours) {
                updates.push(RefUpdate { name: format!("refs/heads/{branch}"), old: *tip, new: ObjectId::ZERO, objects: Vec::new() });
            }
        }
        match remote.push(updates).await {
            Ok(answers) => {
                for (name, outcome) in answers {
                    let branch = name.trim_start_matches("refs/heads/");
                    if outcome == RefOutcome::Done {
                        state.tips.remove(branch);
                        state.known.remove(branch);
                    } else {
                        tracing::warn!(branch, outcome = ?outcome, "cannot delete the branch of a deleted cluster");
                    }
                }
            }
            Err(error) => {
                tracing::warn!(error = cluster::error::chain(&error), "cannot delete branches of deleted clusters");
                state.gone = gone;
            }
        }
    }

    /// Whether a source has not applied any revision yet: then what is missing may only not be there yet.
    fn sources_pending(&self) -> bool {
        self.sources.list().iter().any(|s| !s.spec.suspend && s.status.as_ref().is_none_or(|status| status.last_applied_revision.is_empty()))
    }

    fn bound(&self, subscription: &str) -> Option<Bound> {
        let found = self.context.subscriptions.get_key(&key_of(subscription))?;
        let status = found.status.as_ref();
        Some(Bound {
            scheduled: status.is_some_and(|s| s.spec_hash != 0 || !s.binding_clusters.is_empty() || !s.conditions.is_empty()),
            fed: !found.spec.feeds.is_empty(),
            deleting: found.metadata.deletion_timestamp.is_some(),
            clusters: status.map(|s| s.binding_clusters.iter().cloned().collect()).unwrap_or_default(),
        })
    }

    fn provenance(&self, _cluster: &Cluster, marker: &Marker) -> Provenance {
        let mut out = Provenance { renderer: RENDERER.to_owned(), ..Provenance::default() };
        let sources = self.sources.list();
        for directory in &marker.directories {
            let name: Vec<&str> = directory.rsplit('/').take(2).collect();
            let [name, namespace] = name.as_slice() else { continue };
            let Some(subscription) = self.context.subscriptions.get(namespace, name) else { continue };
            out.subscriptions.insert(format!("{namespace}/{name}"), subscription.metadata.generation.unwrap_or_default());
            let from = subscription.metadata.labels.as_ref().and_then(|l| l.get(label::SOURCE));
            for source in &sources {
                let key = Key::of(&**source);
                let ours = from.is_some_and(|from| *from == api::names::label_value(&format!("{}.{}", key.namespace, key.name)));
                if let Some(status) = source.status.as_ref().filter(|s| ours && !s.last_attempted_revision.is_empty()) {
                    let address = source.spec.url.parse::<git::Url>().map(|u| u.to_string()).unwrap_or_default();
                    out.sources.insert(address, status.last_attempted_revision.clone());
                }
            }
        }
        out
    }

    /// The revision that all sources together stand at.
    fn newest_revision(&self) -> String {
        let mut all: Vec<String> = self.sources.list().iter().filter_map(|s| s.status.as_ref()).map(|s| s.last_applied_revision.clone()).filter(|r| !r.is_empty()).collect();
        all.sort();
        all.join(", ")
    }

    async fn tell_target(&self, target: &GitTarget, report: &Report) {
        let newest = self.targets.get_key(&Key::of(target));
        let current = newest.as_deref().unwrap_or(target);
        let now = api::Time(self.context.clock.now());
        let request = target.metadata.annotations.as_ref().and_then(|a| a.get(annotation::RECONCILE_REQUEST)).cloned().unwrap_or_default();
        let before = current.status.clone().unwrap_or_default();
        let after = delivery::settle(&before, target.metadata.generation.unwrap_or_default(), &request, report, &now);
        let ready = |s: &api::gitops::GitTargetStatus| api::conditions::find(&s.conditions, "Ready").map(|c| (c.status.clone(), c.reason.clone(), c.message.clone()));
        if let Some((verdict, reason, message)) = ready(&after).filter(|now| Some(now) != ready(&before).as_ref())
            && verdict == "False"
            && let Some(reason) = Reason::ALL.iter().copied().find(|r| r.as_str() == reason)
        {
            self.context.recorder.record(Regarding::of(target), EventKind::Warning, reason.as_str(), message);
        }
        let Some(patch) = plan::change::status_patch(current.status.as_ref(), &after) else { return };
        let (namespace, name) = (target.metadata.namespace.as_deref().unwrap_or_default(), target.metadata.name.as_deref().unwrap_or_default());
        let api: Api<GitTarget> = Api::namespaced(self.context.client.clone(), namespace);
        let parameters = PatchParams { field_manager: Some(manager::CONTROLLERS.to_owned()), ..PatchParams::default() };
        match api.patch_status(name, &parameters, &Patch::Merge(&patch)).await {
            Ok(answer) => self.targets.assume(answer),
            Err(error) => tracing::warn!(object = %Key::of(target), error = cluster::error::message(&error), "cannot write a status"),
        }
    }
}

/// The answer of a host in the words of the plan.
fn said(outcome: Option<&RefOutcome>) -> Said {
    match outcome {
        Some(RefOutcome::Done) => Said::Done,
        Some(RefOutcome::Lost { .. }) | None => Said::Lost,
        Some(RefOutcome::Split { most }) => Said::Fewer(*most),
        Some(RefOutcome::RateLimited { after }) => Said::Later(*after),
        Some(RefOutcome::Refused { why, text }) => {
            let reason = match why {
                Refusal::Denied => Reason::AuthenticationFailed,
                Refusal::Hook | Refusal::Protected | Refusal::Name | Refusal::Objects | Refusal::Other => Reason::PushRefused,
            };
            Said::Refused { reason, text: text.clone() }
        }
    }
}
