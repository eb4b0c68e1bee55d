//! One scheduling cycle: [`begin`] selects and filters, the shell asks predictors if need be, [`finish`] decides.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::apps::DividingType;
use api::reason::Reason;

use super::cluster::ClusterInfo;
use super::decision::{Decision, Outcome, Placement, Retry};
use super::events::Events;
use super::explain::{Division, DivisionRow, Explain, ROWS_MAX, Scored};
use super::framework::{Code, CycleState, Point, Profile, Shares};
use super::plugins::taints;
use super::policy::Policy;
use super::request::{Left, Request, share_at};
use super::snapshot::{Slot, Snapshot};
use super::walk::Bound;

/// A cluster under consideration.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The cluster.
    pub info: Arc<ClusterInfo>,
    /// Its place in the snapshot.
    pub slot: Slot,
    /// Sum of the weights of the subscribers that match it.
    pub weight: i64,
    /// Subscribers that match it, by index; only filled when clusters are picked per subscriber.
    pub groups: Vec<usize>,
    /// Position among the present bindings, if it is bound.
    pub bound: Option<usize>,
    /// Weighted score.
    pub score: i64,
    /// Left out of the bindings after all.
    pub dropped: bool,
}

/// A cycle under way.
pub struct Cycle {
    /// What it is about.
    pub request: Request,
    /// Choices.
    pub policy: Arc<Policy>,
    /// Clusters, in order of their keys.
    pub candidates: Vec<Candidate>,
    /// Desired replicas by feed index, of feeds that have replicas.
    pub desired: BTreeMap<usize, i64>,
    /// Answers of predictors, aligned with the candidates: replicas of each divided feed, or why there are none.
    pub answers: Vec<Option<Result<Vec<i32>, String>>>,
    /// Free replicas: by divided feed in order, then aligned with the candidates.
    pub capacity: Vec<Vec<i64>>,
    /// Bound clusters that must be left but still work, by position among the bindings: a graceful move keeps them until
    /// their replacements are ready.
    pub leaving: Vec<usize>,
    /// Ids of those clusters.
    pub(super) leaving_ids: Vec<String>,
    /// The present bindings without what must be left, when something must.
    trim: Option<Placement>,
    /// Clusters in which room must be made; empty when it may be made anywhere.
    pub narrow: Vec<Arc<str>>,
    /// Clusters that were left because they failed.
    pub left: Left,
    /// Nothing is divided after all: each cluster gets the whole.
    pub no_replicas: bool,
    /// Not everything could be placed.
    pub short: bool,
    /// How many replicas found no place, by feed index.
    pub missing: BTreeMap<usize, i64>,
    warnings: Vec<(Reason, String)>,
    pub(super) explain: Explain,
    state: CycleState,
    wake: Events,
}

impl Cycle {
    /// Says something about a decision that stands nevertheless.
    pub fn warn(&mut self, reason: Reason, text: String) {
        self.warnings.push((reason, text));
    }
}

/// A cycle that waits for predictors.
pub struct Pending {
    cycle: Box<Cycle>,
}

impl Pending {
    /// Clusters whose predictor is to be asked, with the number under which to answer.
    pub fn clusters(&self) -> impl Iterator<Item = (usize, &Arc<ClusterInfo>)> {
        let infos = self.cycle.candidates.iter().map(|candidate| &candidate.info);
        infos.enumerate().filter(|(_, info)| info.predictor.is_some())
    }

    /// Feeds to ask about, by index, in the order that answers must have.
    pub fn feeds(&self) -> Vec<usize> {
        self.cycle.desired.keys().copied().collect()
    }

    /// What the cycle is about.
    pub fn request(&self) -> &Request {
        &self.cycle.request
    }

    /// Takes off what is promised: `promised` gives it by cluster, feed index and the answer about it.
    pub fn lessen(&mut self, mut promised: impl FnMut(&ClusterInfo, usize, i64) -> i64) {
        let feeds: Vec<usize> = self.feeds();
        for (candidate, answer) in self.cycle.candidates.iter().zip(&mut self.cycle.answers) {
            let Some(Ok(free)) = answer else { continue };
            for (free, feed) in free.iter_mut().zip(&feeds) {
                let less = i64::from(*free).saturating_sub(promised(&candidate.info, *feed, i64::from(*free))).max(0);
                *free = i32::try_from(less).unwrap_or(i32::MAX);
            }
        }
    }

    /// The answers as they stand, to be looked up after the decision.
    pub fn free(&self) -> FreeTable {
        let feeds = self.feeds();
        let slots = self.cycle.candidates.iter().map(|candidate| candidate.slot as usize + 1).max().unwrap_or(0);
        let mut rows = vec![0; slots * feeds.len()];
        for (candidate, answer) in self.cycle.candidates.iter().zip(&self.cycle.answers) {
            let Some(Ok(free)) = answer else { continue };
            let from = candidate.slot as usize * feeds.len();
            rows[from..].iter_mut().zip(free.iter().take(feeds.len())).for_each(|(row, free)| *row = *free);
        }
        FreeTable { feeds, rows }
    }

    /// Notes the answer of one cluster: replicas of each feed of [`Pending::feeds`], or why there is none.
    pub fn answer(&mut self, number: usize, answer: Result<Vec<i32>, String>) {
        self.cycle.answers.resize(self.cycle.candidates.len(), None);
        if let Some(place) = self.cycle.answers.get_mut(number) {
            *place = Some(answer);
        }
    }
}

/// Free replicas by cluster and feed.
pub struct FreeTable {
    feeds: Vec<usize>,
    rows: Vec<i32>,
}

impl FreeTable {
    /// Free replicas of a feed, by its index, in the cluster of a slot.
    pub fn of(&self, slot: Slot, feed: usize) -> Option<i64> {
        let at = self.feeds.iter().position(|have| *have == feed)?;
        self.rows.get(slot as usize * self.feeds.len() + at).map(|free| i64::from(*free))
    }
}

/// The first half of a cycle.
pub enum Begun {
    /// Decided without predictors.
    Settled(Box<Decision>),
    /// Predictors are to be asked.
    Asks(Pending),
}

/// Selects and filters clusters, and decides when no predictor is needed.
pub fn begin(profile: &Profile, policy: &Arc<Policy>, snapshot: &Snapshot, request: Request) -> Begun {
    let mut cycle = Box::new(Cycle {
        explain: Explain { clusters: snapshot.len(), ..Explain::default() },
        request,
        policy: Arc::clone(policy),
        candidates: Vec::new(),
        desired: BTreeMap::new(),
        answers: Vec::new(),
        capacity: Vec::new(),
        leaving: Vec::new(),
        leaving_ids: Vec::new(),
        trim: None,
        narrow: Vec::new(),
        left: Left::default(),
        no_replicas: false,
        short: false,
        missing: BTreeMap::new(),
        warnings: Vec::new(),
        state: CycleState::default(),
        wake: Events::SUBSCRIPTION,
    });
    if let Err(decision) = cycle.check(snapshot) {
        return Begun::Settled(decision);
    }
    if let Some(decision) = cycle.copy_to_all(profile, snapshot) {
        return Begun::Settled(decision);
    }
    if let Err(decision) = cycle.select(profile, snapshot) {
        return Begun::Settled(decision);
    }
    if cycle.request.subject.is_dynamic() && !cycle.desired.is_empty() {
        return Begun::Asks(Pending { cycle });
    }
    Begun::Settled(decide(profile, cycle))
}

/// Decides, with the answers of the predictors.
pub fn finish(profile: &Profile, pending: Pending) -> Box<Decision> {
    decide(profile, pending.cycle)
}

fn decide(profile: &Profile, mut cycle: Box<Cycle>) -> Box<Decision> {
    match cycle.place(profile) {
        Ok(decision) | Err(decision) => decision,
    }
}

type Ends = Box<Decision>;

impl Cycle {
    fn end(&mut self, outcome: Outcome, reason: Reason, message: String, retry: Retry) -> Ends {
        self.warn_of_taints();
        let mut explain = std::mem::take(&mut self.explain);
        explain.helps(if retry == Retry::Done { Events::NONE } else { self.wake });
        Box::new(Decision {
            outcome,
            reason,
            message,
            warnings: std::mem::take(&mut self.warnings),
            retry,
            wake: self.wake,
            recheck: taints::next_deadline(self),
            missing: std::mem::take(&mut self.missing),
            narrow: std::mem::take(&mut self.narrow),
            wait: false,
            explain,
        })
    }

    /// Not schedulable for a reason that only a change of the Subscription mends.
    fn refuse(&mut self, reason: Reason, message: String) -> Ends {
        self.end(Outcome::Keep, reason, message, Retry::OnEvent)
    }

    /// What can be said before any cluster is looked at.
    fn check(&mut self, snapshot: &Snapshot) -> Result<(), Ends> {
        if let Err(fault) = &self.request.subject.selectors {
            let text = format!("subscribers[{}].clusterAffinity: {}", fault.index, fault.error);
            return Err(self.refuse(Reason::InvalidSelector, text));
        }
        let spec = Arc::clone(&self.request.subject.spec);
        if self.request.subject.divides() {
            let Some(dividing) = &spec.dividing_scheduling else {
                return Err(self.refuse(Reason::InvalidSpec, "dividingScheduling must be set for strategy Dividing".to_owned()));
            };
            if dividing.kind == DividingType::Dynamic && dividing.dynamic_dividing.is_none() {
                return Err(self.refuse(Reason::InvalidSpec, "dynamicDividing must be set for type Dynamic".to_owned()));
            }
            let dynamic = dividing.dynamic_dividing.as_ref().filter(|_| dividing.kind == DividingType::Dynamic && !self.policy.ignore_dynamic_options);
            if let Some(fault) = dynamic.and_then(super::plugins::dynamic::fault) {
                return Err(self.refuse(Reason::InvalidSpec, fault));
            }
            let Some(desired) = self.request.desired() else {
                self.wake = self.wake | Events::INVENTORY;
                let text = self.request.waits_for_inventory();
                return Err(self.end(Outcome::Keep, Reason::WaitingForFeedInventory, text, Retry::OnEvent));
            };
            self.desired = desired;
        }
        let missing = |subscriber: &api::apps::Subscriber| subscriber.sub_group_strategy.is_none();
        if spec.by_sub_group()
            && let Some(index) = spec.subscribers.iter().position(missing)
        {
            let text = format!("subscribers[{index}] needs a subGroupStrategy when schedulingBySubGroup is set");
            return Err(self.refuse(Reason::InvalidSpec, text));
        }
        if snapshot.is_empty() {
            self.wake = self.wake | Events::ADDED;
            let text = "no clusters available to schedule subscriptions".to_owned();
            return Err(self.end(Outcome::Keep, Reason::NoClusters, text, Retry::OnEvent));
        }
        Ok(())
    }

    /// The short way for plain copies over one selector whose filters only speak about clusters that are not quiet: only
    /// those are looked at, and without any of them the answer is the selector's own list. `None` when the long way is due.
    fn copy_to_all(&mut self, profile: &Profile, snapshot: &Snapshot) -> Option<Ends> {
        let subject = Arc::clone(&self.request.subject);
        let [id] = subject.selectors.as_deref().ok()? else { return None };
        let others = [Point::PreFilter, Point::Reserve, Point::Permit];
        let plain = !subject.divides()
            && !subject.spec.by_sub_group()
            && profile.at(Point::Filter).iter().all(|enabled| enabled.plugin.passes_quiet())
            && others.iter().all(|point| profile.at(*point).is_empty());
        if !plain || !snapshot.loud(*id).is_empty() || snapshot.matches(*id).is_empty() {
            return None;
        }
        let bindings = snapshot.keys(*id);
        self.explain.selected = bindings.len();
        self.explain.feasible = bindings.len();
        let text = format!("bound to {} of {} clusters", bindings.len(), self.explain.clusters);
        let placement = Placement { bindings, spec_hash: subject.spec_hash, ..Placement::default() };
        Some(self.end(Outcome::Bind(placement), Reason::Scheduled, text, Retry::Done))
    }

    /// Candidates and filters.
    fn select(&mut self, profile: &Profile, snapshot: &Snapshot) -> Result<(), Ends> {
        self.collect(snapshot);
        self.explain.selected = self.candidates.len();
        let mut state = std::mem::take(&mut self.state);
        for enabled in profile.at(Point::PreFilter) {
            let status = enabled.plugin.pre_filter(self, &mut state);
            if !status.is_fine() {
                self.wake = self.wake | enabled.plugin.events();
                return Err(self.rejected(&status, enabled.plugin.name()));
            }
        }
        let filters = profile.at(Point::Filter);
        let mut keep = Vec::with_capacity(self.candidates.len());
        let mut wake = Events::NONE;
        let mut rejected = BTreeSet::new();
        let all_pass_quiet = filters.iter().all(|enabled| enabled.plugin.passes_quiet());
        for index in 0..self.candidates.len() {
            if all_pass_quiet && self.candidates[index].info.is_quiet() {
                keep.push(true);
                continue;
            }
            let verdict = filters.iter().find_map(|enabled| {
                let status = enabled.plugin.filter(self, &state, index);
                (!status.is_fine()).then_some((enabled, status))
            });
            if let Some((enabled, status)) = &verdict {
                wake = wake | enabled.plugin.events();
                let info = Arc::clone(&self.candidates[index].info);
                self.explain.reject(&info.key, enabled.plugin.name(), status.code, status.why.render(&info));
            }
            keep.push(verdict.is_none());
        }
        if keep.contains(&false) {
            let before = Arc::clone(&self.request.previous.left);
            let failed = self.candidates.iter().zip(&keep).filter(|(one, keep)| !**keep && (one.bound.is_some() || before.contains(&one.info.key)));
            rejected = failed.map(|(one, _)| Arc::clone(&one.info.key)).collect();
            self.retain(&keep);
        }
        self.hold_back(rejected);
        self.wake = self.wake | wake;
        self.explain.feasible = self.candidates.len();
        self.state = state;
        if self.request.subject.graceful && (self.request.subject.divides() || self.request.subject.spec.by_sub_group()) {
            self.note_leaving(snapshot);
        }
        // Without this, a decision that cannot be taken would also keep what has to go.
        if self.candidates.iter().filter(|one| one.bound.is_some()).count() < self.request.previous.bindings.len() {
            self.trim = self.trimmed(snapshot);
        }
        if !self.candidates.is_empty() || self.request.subject.spec.subscribers.is_empty() {
            return Ok(());
        }
        let mut state = std::mem::take(&mut self.state);
        for enabled in profile.at(Point::PostFilter) {
            let status = enabled.plugin.post_filter(self, &mut state);
            if status.code == Code::Success {
                break;
            }
        }
        self.wake = self.wake | Events::ADDED | Events::LABELS;
        let line = self.explain.line();
        Err(self.nowhere(line))
    }

    /// No cluster at all: what is bound stays, but what must go, and the condition says so.
    fn nowhere(&mut self, why: String) -> Ends {
        self.wake = self.wake | Events::ADDED | Events::LABELS;
        let outcome = if self.policy.clear_when_nothing_fits {
            Outcome::Bind(Placement { spec_hash: self.request.subject.spec_hash, ..Placement::default() })
        } else {
            self.trim.take().map_or(Outcome::Keep, Outcome::Trim)
        };
        let kept = match &outcome {
            Outcome::Keep => self.request.previous.bindings.len(),
            Outcome::Bind(placement) | Outcome::Trim(placement) => placement.bindings.len(),
        };
        let text = match kept {
            0 => why,
            1 => format!("{why}; the binding to {} is kept", self.kept_one(&outcome)),
            kept => format!("{why}; {kept} bindings are kept as they were"),
        };
        self.end(outcome, Reason::NoFeasibleCluster, text, Retry::OnEvent)
    }

    fn kept_one(&self, outcome: &Outcome) -> Arc<str> {
        let bindings = match outcome {
            Outcome::Keep => &self.request.previous.bindings,
            Outcome::Bind(placement) | Outcome::Trim(placement) => &placement.bindings,
        };
        bindings.first().cloned().unwrap_or_default()
    }

    fn rejected(&mut self, status: &super::framework::Status, plugin: &str) -> Ends {
        let words = match &status.why {
            super::framework::Why::Text(text) => text.clone().into_owned(),
            _ => format!("{plugin} refuses"),
        };
        let retry = if status.code == Code::Error { Retry::Backoff } else { Retry::OnEvent };
        let reason = match status.code {
            Code::Unschedulable if self.short => Reason::InsufficientCapacity,
            Code::Unschedulable => Reason::ConstraintNotMet,
            _ => Reason::FailedScheduling,
        };
        let outcome = self.trim.take().map_or(Outcome::Keep, Outcome::Trim);
        self.end(outcome, reason, words, retry)
    }

    /// The union of all matches, in order of keys, each cluster once.
    fn collect(&mut self, snapshot: &Snapshot) {
        let subject = Arc::clone(&self.request.subject);
        let ids = subject.selectors.as_deref().unwrap_or_default();
        let mut slots: Vec<Slot> = Vec::new();
        for (index, id) in ids.iter().enumerate() {
            let matches = snapshot.matches(*id);
            slots = if index == 0 { matches.to_vec() } else { merge(snapshot, &slots, matches) };
        }
        let by_group = subject.spec.by_sub_group();
        let mut weights = vec![0i64; if subject.divides() { snapshot.slots() } else { 0 }];
        let mut groups: BTreeMap<Slot, Vec<usize>> = BTreeMap::new();
        if subject.divides() || by_group {
            for (index, (id, subscriber)) in ids.iter().zip(&subject.spec.subscribers).enumerate() {
                for slot in snapshot.matches(*id) {
                    if let Some(weight) = weights.get_mut(*slot as usize) {
                        *weight += i64::from(subscriber.weight.max(0));
                    }
                    if by_group {
                        groups.entry(*slot).or_default().push(index);
                    }
                }
            }
        }
        let bound = Bound::of(&self.request.previous.bindings);
        let mut walk = bound.walk();
        self.candidates.reserve(slots.len());
        for slot in slots {
            let Some(info) = snapshot.cluster(slot) else { continue };
            self.candidates.push(Candidate {
                bound: walk.find(&info.key),
                info: Arc::clone(info),
                slot,
                weight: weights.get(slot as usize).copied().unwrap_or(0),
                groups: groups.remove(&slot).unwrap_or_default(),
                score: 0,
                dropped: false,
            });
        }
    }

    /// Predictions, scores, groups, shares.
    fn place(&mut self, profile: &Profile) -> Result<Ends, Ends> {
        let mut state = std::mem::take(&mut self.state);
        let result = self.place_with(profile, &mut state);
        self.state = state;
        result
    }

    fn place_with(&mut self, profile: &Profile, state: &mut CycleState) -> Result<Ends, Ends> {
        let subject = Arc::clone(&self.request.subject);
        if subject.is_dynamic() && !self.desired.is_empty() {
            self.predict(profile, state)?;
        }
        if subject.spec.by_sub_group() {
            self.rank(profile, state);
            self.pick_groups();
        }
        let mut shares = Shares::new();
        if subject.divides() && !self.candidates.is_empty() {
            shares = self.assign(profile, state)?;
        }
        for point in [Point::Reserve, Point::Permit] {
            for enabled in profile.at(point) {
                let status = if point == Point::Reserve { enabled.plugin.reserve(self, state) } else { enabled.plugin.permit(self, state) };
                if status.code == Code::Wait {
                    let mut decision = self.bound(&shares);
                    decision.wait = true;
                    return Ok(decision);
                }
                if !status.is_fine() {
                    for reserved in profile.at(Point::Reserve) {
                        reserved.plugin.unreserve(self, state);
                    }
                    self.wake = self.wake | enabled.plugin.events();
                    return Err(self.rejected(&status, enabled.plugin.name()));
                }
            }
        }
        Ok(self.bound(&shares))
    }

    fn predict(&mut self, profile: &Profile, state: &mut CycleState) -> Result<(), Ends> {
        for enabled in profile.at(Point::PrePredict) {
            let status = enabled.plugin.pre_predict(self, state);
            if !status.is_fine() {
                return Err(self.rejected(&status, enabled.plugin.name()));
            }
        }
        let plugins = profile.at(Point::Predict);
        let feeds = self.desired.len();
        let mut capacity = vec![vec![0i64; self.candidates.len()]; feeds];
        let mut failed = 0usize;
        for index in 0..self.candidates.len() {
            let mut bound: Option<Vec<i64>> = None;
            let mut fault = None;
            for enabled in plugins {
                match enabled.plugin.predict(self, state, index) {
                    Ok(Some(more)) => {
                        bound = Some(match bound {
                            Some(have) => lower(&have, &more),
                            None => more,
                        });
                    }
                    Ok(None) => {}
                    Err(status) => fault = Some((enabled, status)),
                }
            }
            if let Some((enabled, status)) = fault {
                failed += 1;
                let info = Arc::clone(&self.candidates[index].info);
                self.explain.reject(&info.key, enabled.plugin.name(), status.code, status.why.render(&info));
                self.wake = self.wake | enabled.plugin.events();
                self.candidates[index].dropped = self.candidates[index].bound.is_none();
                continue;
            }
            if !taints::is_closed(&self.candidates[index].info, &self.request) {
                for (row, free) in capacity.iter_mut().zip(bound.unwrap_or_default()) {
                    row[index] = free;
                }
            }
        }
        let total = self.candidates.len();
        let tolerated = total * self.policy.percentage_of_clusters_to_tolerate.min(100) as usize / 100;
        self.explain.feasible = total - failed;
        if failed > tolerated || (failed == total && total > 0) {
            let text = self.explain.line();
            let outcome = self.trim.take().map_or(Outcome::Keep, Outcome::Trim);
            return Err(self.end(outcome, Reason::PredictorUnavailable, text, Retry::Backoff));
        }
        if failed > 0 {
            self.warn(Reason::PredictorUnavailable, format!("{failed} of {total} clusters could not say what they can take"));
        }
        self.capacity = capacity;
        if failed > 0 {
            let keep: Vec<bool> = self.candidates.iter().map(|candidate| !candidate.dropped).collect();
            self.retain(&keep);
        }
        Ok(())
    }

    /// Keeps only these candidates, with all that is aligned with them.
    pub(super) fn retain(&mut self, keep: &[bool]) {
        fn pick<T>(list: &mut Vec<T>, keep: &[bool]) {
            let mut keep = keep.iter().copied();
            list.retain(|_| keep.next().unwrap_or(false));
        }
        pick(&mut self.candidates, keep);
        self.capacity.iter_mut().for_each(|row| pick(row, keep));
        self.answers.clear();
    }

    fn rank(&mut self, profile: &Profile, state: &mut CycleState) {
        for enabled in profile.at(Point::PreScore) {
            enabled.plugin.pre_score(self, state);
        }
        for enabled in profile.at(Point::Score) {
            let mut scores: Vec<i64> = (0..self.candidates.len()).map(|index| enabled.plugin.score(self, state, index)).collect();
            enabled.plugin.normalize(&mut scores);
            for (candidate, score) in self.candidates.iter_mut().zip(scores) {
                candidate.score += score * enabled.weight;
            }
        }
    }

    /// The best clusters of each subscriber; a cluster of two groups counts for both and is bound once.
    fn pick_groups(&mut self) {
        let mut order: Vec<usize> = (0..self.candidates.len()).collect();
        let candidates = &self.candidates;
        order.sort_by_key(|index| (-candidates[*index].score, candidates[*index].bound.is_none(), *index));
        let mut taken = vec![false; self.candidates.len()];
        let mut lacking = Vec::new();
        for (group, subscriber) in self.request.subject.spec.subscribers.iter().enumerate() {
            let wanted = subscriber.sub_group_strategy.as_ref().map_or(0, |strategy| strategy.min_clusters);
            let members = order.iter().filter(|index| self.candidates[**index].groups.contains(&group));
            let wanted = usize::try_from(wanted).unwrap_or(0);
            let mut found = 0;
            for index in members.take(wanted) {
                taken[*index] = true;
                found += 1;
            }
            if found < wanted {
                lacking.push(format!("subscribers[{group}] wants {wanted} clusters, but {found} can be taken"));
            }
        }
        if !lacking.is_empty() {
            self.wake = self.wake | Events::ADDED | Events::LABELS | Events::TAINTS | Events::READY;
            self.warn(Reason::ConstraintNotMet, lacking.join("; "));
        }
        self.explain.scores = order
            .iter()
            .take(ROWS_MAX)
            .map(|index| Scored {
                cluster: self.candidates[*index].info.key.to_string(),
                score: self.candidates[*index].score,
                taken: taken[*index],
            })
            .collect();
        self.retain(&taken);
    }

    fn assign(&mut self, profile: &Profile, state: &mut CycleState) -> Result<Shares, Ends> {
        for enabled in profile.at(Point::PreAssign) {
            let status = enabled.plugin.pre_assign(self, state);
            if !status.is_fine() {
                self.wake = self.wake | enabled.plugin.events();
                return Err(self.rejected(&status, enabled.plugin.name()));
            }
        }
        for enabled in profile.at(Point::Assign) {
            match enabled.plugin.assign(self, state) {
                Ok(mut shares) => {
                    if self.short {
                        self.wake = self.wake | enabled.plugin.events();
                    }
                    for after in profile.at(Point::PostAssign) {
                        let status = after.plugin.post_assign(self, state, &mut shares);
                        if !status.is_fine() {
                            return Err(self.rejected(&status, after.plugin.name()));
                        }
                    }
                    return Ok(shares);
                }
                Err(status) if status.code == Code::Skip => {}
                Err(status) => {
                    self.wake = self.wake | enabled.plugin.events();
                    return Err(self.rejected(&status, enabled.plugin.name()));
                }
            }
        }
        Err(self.refuse(Reason::FailedScheduling, "no enabled plugin assigns replicas for this kind of dividing".to_owned()))
    }

    fn bound(&mut self, shares: &Shares) -> Ends {
        let subject = Arc::clone(&self.request.subject);
        let mut replicas = BTreeMap::new();
        // A static division that takes replicas away keeps them until the others are ready.
        let holds = subject.graceful && !subject.is_dynamic() && self.shrinks(shares) && !self.is_ready(shares);
        if subject.divides() && !self.no_replicas {
            for (feed, key) in subject.feed_keys.iter().enumerate() {
                let mut list = Vec::new();
                if let Some(shares) = shares.get(&feed) {
                    let kept = self.candidates.iter().zip(shares).filter(|(candidate, _)| !candidate.dropped);
                    let had = self.request.previous_shares(feed);
                    let held = |candidate: &Candidate| candidate.bound.filter(|_| holds).map_or(0, |at| share_at(had, at));
                    list = kept.map(|(candidate, share)| i32::try_from(held(candidate).max(*share)).unwrap_or(i32::MAX)).collect();
                    self.explain_division(feed, key, shares);
                }
                replicas.insert(key.clone(), list);
            }
        }
        let kept = self.candidates.iter().filter(|candidate| !candidate.dropped);
        let bindings: Arc<[Arc<str>]> = kept.map(|candidate| Arc::clone(&candidate.info.key)).collect();
        let mut placement = Placement { bindings, replicas, spec_hash: subject.spec_hash, left: Arc::clone(&self.left) };
        if placement.bindings.is_empty() && (self.leaving.is_empty() || self.policy.clear_when_nothing_fits) {
            let why = self.why_none();
            return self.nowhere(why);
        }
        let moving = holds || (!self.leaving.is_empty() && !self.is_ready(shares));
        if moving {
            self.keep_leaving(&mut placement);
            self.wake = self.wake | Events::HEALTH;
            let text = match self.leaving.len() {
                0 => "replicas move when their replacements are ready".to_owned(),
                count => format!("{count} {} left when the replacements are ready", if count == 1 { "cluster is" } else { "clusters are" }),
            };
            self.warn(Reason::FailingOver, text);
        }
        let text = format!("bound to {} of {} clusters", placement.bindings.len(), self.explain.clusters);
        let retry = if self.short || moving { Retry::OnEvent } else { Retry::Done };
        self.end(Outcome::Bind(placement), Reason::Scheduled, text, retry)
    }

    /// Why a decision that went through has no cluster.
    fn why_none(&self) -> String {
        let spec = &self.request.subject.spec;
        if spec.subscribers.is_empty() {
            return "the Subscription has no subscribers, so no cluster is selected".to_owned();
        }
        let none = |one: &api::apps::Subscriber| one.sub_group_strategy.as_ref().is_none_or(|group| group.min_clusters <= 0);
        if spec.by_sub_group() && spec.subscribers.iter().all(none) {
            return "minClusters of every subGroupStrategy is 0, so no cluster is picked".to_owned();
        }
        self.explain.line()
    }

    fn explain_division(&mut self, feed: usize, key: &str, shares: &[i64]) {
        let at = self.desired.keys().position(|have| *have == feed).unwrap_or(0);
        let had = self.request.previous_shares(feed);
        let row = |(index, (candidate, share)): (usize, (&Candidate, &i64))| DivisionRow {
            cluster: candidate.info.key.to_string(),
            weight: candidate.weight,
            capacity: self.capacity.get(at).and_then(|row| row.get(index)).copied().unwrap_or(0),
            before: candidate.bound.map_or(0, |binding| share_at(had, binding)),
            now: *share,
        };
        let rows = self.candidates.iter().zip(shares).take(ROWS_MAX).enumerate().map(row).collect();
        let desired = self.desired.get(&feed).copied().unwrap_or(0);
        self.explain.division.push(Division { feed: key.to_owned(), desired, placed: shares.iter().sum(), rows });
    }
}

fn lower(a: &[i64], b: &[i64]) -> Vec<i64> {
    // The longer tail is kept, as Clusternet keeps it.
    (0..a.len().max(b.len())).map(|index| match (a.get(index), b.get(index)) {
        (Some(a), Some(b)) => *a.min(b),
        (Some(one), None) | (None, Some(one)) => *one,
        (None, None) => 0,
    }).collect()
}

fn merge(snapshot: &Snapshot, a: &[Slot], b: &[Slot]) -> Vec<Slot> {
    let key = |slot: Slot| snapshot.cluster(slot).map_or("", |cluster| &*cluster.key);
    let mut out = Vec::with_capacity(a.len() + b.len());
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        if a[i] == b[j] {
            out.push(a[i]);
            i += 1;
            j += 1;
        } else if key(a[i]) < key(b[j]) {
            out.push(a[i]);
            i += 1;
        } else {
            out.push(b[j]);
            j += 1;
        }
    }
    out.extend_from_slice(&a[i..]);
    out.extend_from_slice(&b[j..]);
    out
}
