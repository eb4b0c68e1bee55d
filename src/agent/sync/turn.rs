//! The apply turn: read what is wanted, apply it, take away what is not, tell how it went.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::apps::{DeployerType, Description};
use api::object::ObjectRef;
use cluster::apply::{Desired as Prepared, FaultReason, Pruned, Victim};
use engine::Next;
use plan::sync::{Applier as Who, Claimant, Holder, Identity, applier, desire, inventory, leaves_pruning, victims, yield_to_autoscalers};

use super::branch::Expected;
use crate::release::Gate;
use super::{Delivery, InStep, Parsed, State, Syncer, Turn, delivery};

/// What is wanted, and whether all of it could be read.
struct Wanted {
    claimants: Vec<Claimant>,
    complete: bool,
    /// Commit that it is of, in branch mode.
    commit: Option<String>,
}

impl Syncer {
    /// One turn.
    pub(super) async fn apply(&self) -> Next {
        // A cluster that was removed from the parent keeps what it has.
        let Some(cluster) = self.cluster() else { return Next::Done };
        let mut state = self.state.lock().await;
        let offers = match self.session.role {
            Who::Agent => self.session.shared.options.app_pusher,
            Who::Parent => cluster.status.as_ref().is_some_and(|status| status.app_pusher == Some(true)),
        };
        let who = applier(cluster.spec.sync_mode, offers, Holder::of(&cluster));
        let beside = self.session.mends_beside && who == Who::Parent;
        if who != self.session.role && !beside {
            // Two writers would fight. What is known is forgotten: the parent may change anything from now on.
            self.watches.stop();
            self.releases.open(Gate::Shut);
            if self.session.role == Who::Parent && offers && leaves_pruning(&cluster) {
                return self.only_prune(&mut state).await;
            }
            *state = State::default();
            return self.ask_back(&cluster).await;
        }
        let descriptions = self.descriptions.in_namespace(&self.session.namespace);
        self.learn(&mut state, &descriptions);
        // The parent has the rendered objects at hand; the branch holds the same.
        let wanted = match delivery(&cluster).filter(|_| self.session.role == Who::Agent) {
            Some(delivery) => match self.from_branch(&mut state, &delivery, &cluster, &descriptions).await {
                Some(wanted) => {
                    self.branch_read(&cluster).await;
                    wanted
                }
                None => return self.branch_failed(&cluster, offers).await,
            },
            None => {
                if self.session.role == Who::Agent {
                    self.branch_read(&cluster).await;
                }
                from_descriptions(&mut state, &descriptions)
            }
        };
        let behind = state.in_step.iter().filter(|(_, step)| **step == InStep::NotYet).map(|(name, _)| name.clone()).collect();
        let (rendered, unread) = match &wanted.commit {
            Some(_) => (state.tree.as_ref().map(|tree| Arc::new(tree.rendered())), false),
            None if beside => (None, false),
            None => self.releases_of_branch(&mut state, &cluster, &descriptions).await,
        };
        // Two that install one release would count its revisions twice.
        self.releases.open(if beside { Gate::Shut } else { Gate::Open { behind, rendered } });
        let mut desired = desire(&wanted.claimants);
        yield_to_autoscalers(&mut desired, |identity| self.watches.live(identity).and_then(|l| l.replicas));
        state.desired = desired;
        let retry = self.apply_all(&mut state).await;
        self.watches.ensure(&state.desired).await;
        let pruned = if wanted.complete { self.prune(&mut state).await } else { true };
        let released = self.release(&state, &descriptions).await;
        let told = self.tell(&state).await;
        let whole = state.faults.is_empty() && state.desired.faults.is_empty();
        let marked = match wanted.commit {
            Some(commit) if whole && pruned => self.mark_applied(&cluster, &commit).await,
            _ => true,
        };
        if retry || unread || !pruned || !released || !marked || told == Next::Again { Next::Again } else { Next::Done }
    }

    /// What the branch has of releases, for whoever else applies from Descriptions: a release is rendered once, and seen before it is
    /// deployed, whoever deploys it. True when it should be looked at again.
    async fn releases_of_branch(
        &self,
        state: &mut State,
        cluster: &api::clusters::ManagedCluster,
        descriptions: &[Arc<Description>],
    ) -> (Option<Arc<BTreeMap<String, Arc<plan::rendered::Rendered>>>>, bool) {
        let of_charts = descriptions.iter().any(|d| d.spec.deployer == DeployerType::Helm);
        let Some(delivery) = delivery(cluster).filter(|_| of_charts) else {
            state.releases = None;
            return (None, false);
        };
        let mut unread = false;
        if state.releases.as_ref().is_none_or(|t| t.commit != delivery.commit) {
            let before = state.releases.take();
            state.releases = match self.read(&delivery, &delivery.commit, before).await {
                Ok(tree) => Some(tree),
                Err((error, before)) => {
                    unread = true;
                    tracing::warn!(cluster = self.session.cluster_name, commit = delivery.commit, error = cluster::error::chain(&error), "cannot read the releases of the branch");
                    before
                }
            };
        }
        (state.releases.as_ref().map(|tree| Arc::new(tree.rendered())), unread)
    }

    /// Beside an agent that applies and never prunes: takes away what its Descriptions no longer hold.
    async fn only_prune(&self, state: &mut State) -> Next {
        let descriptions = self.descriptions.in_namespace(&self.session.namespace);
        self.learn(state, &descriptions);
        let mut wanted = from_descriptions(state, &descriptions);
        // Of what is being deleted the agent takes away the objects itself, and it alone tells how they are.
        for claimant in &mut wanted.claimants {
            claimant.deleting = false;
        }
        state.in_step.clear();
        state.desired = desire(&wanted.claimants);
        for (identity, want) in &state.desired.wants {
            state.present.insert(identity.clone(), want.id.clone());
        }
        if self.prune(state).await { Next::Done } else { Next::Again }
    }

    /// Looks at the branch itself, for when nobody could tell of a change.
    pub(super) async fn poll(&self) {
        let Some(delivery) = self.cluster().as_deref().and_then(delivery) else { return };
        if delivery.branch.is_empty() {
            return;
        }
        match self.tip(&delivery).await {
            Ok(tip) => {
                let mut state = self.state.lock().await;
                if state.tree.as_ref().is_none_or(|t| t.commit != tip) {
                    state.polled = Some((delivery.commit, tip));
                    self.queue.add(Turn::Apply);
                }
            }
            Err(error) => tracing::debug!(error = cluster::error::chain(&error), "cannot look at the branch"),
        }
    }

    /// Finds out what a former process left in the child, by what Descriptions say.
    fn learn(&self, state: &mut State, descriptions: &[Arc<Description>]) {
        for description in descriptions.iter().filter(|d| d.spec.deployer == DeployerType::Generic) {
            let uid = description.metadata.uid.clone().unwrap_or_default();
            if !state.learned.insert(uid) {
                continue;
            }
            for id in inventory(description.status.as_ref()) {
                state.present.insert(Identity::of(&id), id);
            }
        }
    }

    async fn from_branch(&self, state: &mut State, delivery: &Delivery, cluster: &api::clusters::ManagedCluster, descriptions: &[Arc<Description>]) -> Option<Wanted> {
        // The annotation is newest, unless polling found something newer after it.
        let commit = match &state.polled {
            Some((said, tip)) if *said == delivery.commit => tip.clone(),
            _ => delivery.commit.clone(),
        };
        self.learn_commit(state, delivery, cluster, &commit).await;
        if state.tree.as_ref().is_none_or(|t| t.commit != commit) {
            let before = state.tree.take();
            match self.read(delivery, &commit, before).await {
                Ok(tree) => state.tree = Some(tree),
                Err((error, before)) => {
                    state.tree = before;
                    self.session.shared.metrics.count("branch_errors_total", &[], 1);
                    tracing::warn!(cluster = self.session.cluster_name, commit, error = cluster::error::chain(&error), "cannot read the branch");
                    return None;
                }
            }
        }
        let State { tree, expected, in_step, .. } = state;
        let tree = tree.as_ref()?;
        in_step.clear();
        let mut now = BTreeMap::new();
        for description in descriptions {
            let name = description.metadata.name.clone().unwrap_or_default();
            let files = match expected.remove(&name) {
                Some(files) if files.is_for(description) => files,
                _ => Expected::of(description),
            };
            in_step.insert(name.clone(), files.met_by(tree).map_or(InStep::NotYet, InStep::Yes));
            now.insert(name, files);
        }
        *expected = now;
        for path in &tree.unreadable {
            tracing::warn!(cluster = self.session.cluster_name, commit, path, "cannot read a file of the branch, so nothing is pruned");
        }
        Some(Wanted {
            claimants: tree.claimants(&self.session.namespace, descriptions),
            complete: tree.unreadable.is_empty(),
            commit: Some(tree.commit.clone()),
        })
    }

    /// After a restart: what the commit that was applied before had in it may still be in the child.
    async fn learn_commit(&self, state: &mut State, delivery: &Delivery, cluster: &api::clusters::ManagedCluster, commit: &str) {
        if state.tree.is_some() || state.learned_commit.is_some() {
            return;
        }
        let applied = cluster.metadata.annotations.as_ref().and_then(|a| a.get(api::known::annotation::APPLIED_COMMIT)).cloned().unwrap_or_default();
        state.learned_commit = Some(applied.clone());
        if applied.is_empty() || applied == commit {
            return;
        }
        match self.read(delivery, &applied, None).await {
            Ok(tree) => {
                for object in tree.claimants(&self.session.namespace, &[]).iter().flat_map(|c| &c.objects) {
                    let id = ObjectRef::of(object);
                    state.present.insert(Identity::of(&id), id);
                }
                // The next read compares with it and brings only what is new.
                state.tree = Some(tree);
            }
            Err((error, _)) => {
                tracing::debug!(commit = applied, error = cluster::error::chain(&error), "cannot read what was applied before; the watches tell as well");
            }
        }
    }

    /// Applies what is wanted; true when something should be tried again.
    async fn apply_all(&self, state: &mut State) -> bool {
        let State { desired, prepared, faults, present, .. } = state;
        prepared.retain(|identity, _| desired.wants.contains_key(identity));
        faults.retain(|identity, _| desired.wants.contains_key(identity));
        let mut due = Vec::new();
        for (identity, want) in &desired.wants {
            let ready = prepared.get(identity).filter(|(made_from, _)| {
                Arc::ptr_eq(&made_from.object, &want.object) && made_from.owner == want.owner
            });
            let ready = match ready {
                Some((_, ready)) => ready.clone(),
                None => {
                    let mark = format!("{}.{}", self.session.namespace, want.owner);
                    match Prepared::new(want.object.as_ref().clone(), &mark) {
                        Ok(ready) => {
                            prepared.insert(identity.clone(), (want.clone(), ready.clone()));
                            ready
                        }
                        Err(fault) => {
                            faults.insert(identity.clone(), fault.message);
                            continue;
                        }
                    }
                }
            };
            if !self.applier.is_current(&ready) {
                due.push(ready);
            }
        }
        if due.is_empty() {
            return false;
        }
        let outcomes = self.applier.apply(&due).await;
        let mut retry = false;
        let mut missing = BTreeSet::new();
        for outcome in outcomes {
            let identity = Identity::of(&outcome.id);
            match outcome.done {
                Ok(done) => {
                    faults.remove(&identity);
                    present.insert(identity, outcome.id.clone());
                    if let Some(live) = &done.live {
                        self.watches.assume(&outcome.id, live);
                    }
                    if done.action != cluster::apply::Action::Unchanged {
                        tracing::info!(cluster = self.session.cluster_name, object = %outcome.id, action = ?done.action, "applied");
                        self.session.shared.metrics.count("objects_applied_total", &[], 1);
                    }
                }
                Err(fault) => {
                    retry |= fault.reason.may_heal();
                    match fault.reason {
                        FaultReason::NamespaceMissing => missing.insert("/api/v1/namespaces"),
                        FaultReason::NoSuchKind => missing.insert("/apis/apiextensions.k8s.io/v1/customresourcedefinitions"),
                        _ => false,
                    };
                    self.session.shared.metrics.count("apply_faults_total", &[("reason", fault.reason.as_str())], 1);
                    if faults.insert(identity, fault.message.clone()).as_ref() != Some(&fault.message) {
                        tracing::warn!(cluster = self.session.cluster_name, object = %outcome.id, reason = fault.reason.as_str(), error = fault.message, "cannot apply");
                    }
                }
            }
        }
        self.watches.wake_on(&missing);
        retry
    }

    /// Takes away what nobody wants; true when all of it went.
    async fn prune(&self, state: &mut State) -> bool {
        for (identity, id) in self.watches.owned() {
            state.present.entry(identity).or_insert(id);
        }
        let list: Vec<Victim> = victims(&state.present, &state.desired)
            .into_iter()
            .map(|id| Victim { id, namespace: self.session.namespace.clone() })
            .collect();
        if list.is_empty() {
            return true;
        }
        let outcomes = self.applier.prune(&list).await;
        let mut all = true;
        for (victim, outcome) in list.iter().zip(outcomes) {
            match outcome {
                Pruned::Absent => {
                    state.present.remove(&Identity::of(&victim.id));
                }
                Pruned::Deleted => {
                    tracing::info!(cluster = self.session.cluster_name, object = %victim.id, "deleted");
                    state.present.remove(&Identity::of(&victim.id));
                }
                Pruned::Kept(why) => {
                    tracing::debug!(cluster = self.session.cluster_name, object = %victim.id, why, "kept");
                    state.present.remove(&Identity::of(&victim.id));
                }
                Pruned::Failed(fault) => {
                    all = false;
                    tracing::warn!(cluster = self.session.cluster_name, object = %victim.id, error = fault.message, "cannot delete");
                }
            }
        }
        all
    }
}

fn from_descriptions(state: &mut State, descriptions: &[Arc<Description>]) -> Wanted {
    state.tree = None;
    state.in_step.clear();
    let mut parsed = BTreeMap::new();
    for description in descriptions.iter().filter(|d| d.spec.deployer == DeployerType::Generic) {
        let name = description.metadata.name.clone().unwrap_or_default();
        let uid = description.metadata.uid.clone().unwrap_or_default();
        let mut entry = match state.parsed.remove(&name) {
            Some(entry) if entry.uid == uid && entry.generation == description.metadata.generation => entry,
            _ => {
                let mut claimant = Claimant {
                    name: name.clone(),
                    created: description.metadata.creation_timestamp.as_ref().map(|t| t.0.as_nanosecond()),
                    ..Claimant::default()
                };
                claimant.take(description.spec.raw.iter().map(api::Bytes::as_slice));
                Parsed { uid, generation: description.metadata.generation, claimant }
            }
        };
        entry.claimant.deleting = description.metadata.deletion_timestamp.is_some();
        state.in_step.insert(name.clone(), InStep::Yes(Vec::new()));
        parsed.insert(name, entry);
    }
    let claimants = parsed.values().map(|p| p.claimant.clone()).collect();
    state.parsed = parsed;
    Wanted { claimants, complete: true, commit: None }
}
