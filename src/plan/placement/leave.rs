//! Leaving clusters: what stays until its replacement is ready, and what must go though nothing else fits.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::cycle::{Candidate, Cycle};
use super::decision::Placement;
use super::framework::Shares;
use super::request::share_at;
use super::snapshot::Snapshot;

impl Cycle {
    pub(super) fn note_leaving(&mut self, snapshot: &Snapshot) {
        let staying: BTreeSet<usize> = self.candidates.iter().filter_map(|candidate| candidate.bound).collect();
        let works = |key: &Arc<str>| {
            let cluster = snapshot.slot(key).and_then(|slot| snapshot.cluster(slot));
            cluster.filter(|cluster| cluster.not_ready_since.is_none())
        };
        let bindings = self.request.previous.bindings.iter().enumerate().filter(|(at, _)| !staying.contains(at));
        let (leaving, ids) = bindings.filter_map(|(at, key)| Some((at, works(key)?.id.clone()))).unzip();
        (self.leaving, self.leaving_ids) = (leaving, ids);
    }

    /// Whether what is to stand is ready where it should be: every share of a divided feed, or as many of each copied one as
    /// the clusters that are left have ready.
    pub(super) fn is_ready(&self, shares: &Shares) -> bool {
        if !self.request.subject.divides() {
            let ready = |cluster: &str, key: &str| self.request.ready.replicas(key, cluster);
            let staying = self.candidates.iter().filter(|candidate| !candidate.dropped);
            let staying: Vec<&str> = staying.map(|candidate| candidate.info.id.as_str()).collect();
            return self.request.subject.feed_keys.iter().all(|key| {
                let most = self.leaving_ids.iter().map(|id| ready(id, key)).max().unwrap_or(0);
                staying.iter().all(|id| ready(id, key) >= most)
            });
        }
        shares.iter().all(|(feed, list)| {
            let key = self.request.subject.feed_keys.get(*feed).map_or("", String::as_str);
            let here = |(candidate, share): (&Candidate, &i64)| *share == 0 || self.request.ready.replicas(key, &candidate.info.id) >= *share;
            self.candidates.iter().zip(list).all(here)
        })
    }

    /// Whether a cluster that stays has to give up replicas.
    pub(super) fn shrinks(&self, shares: &Shares) -> bool {
        shares.iter().any(|(feed, list)| {
            let had = self.request.previous_shares(*feed);
            let before = |candidate: &Candidate| candidate.bound.map_or(0, |at| share_at(had, at));
            self.candidates.iter().zip(list).any(|(candidate, share)| *share < before(candidate))
        })
    }

    /// Adds clusters that are being left to a placement, with what they have.
    pub(super) fn keep_leaving(&mut self, placement: &mut Placement) {
        let previous = Arc::clone(&self.request.previous);
        let leaving = self.leaving.iter().filter_map(|at| Some((Arc::clone(previous.bindings.get(*at)?), Err(*at))));
        let placed = placement.bindings.iter().enumerate().map(|(at, key)| (Arc::clone(key), Ok(at)));
        let mut rows: Vec<(Arc<str>, Result<usize, usize>)> = placed.chain(leaving).collect();
        rows.sort_by(|a, b| a.0.cmp(&b.0));
        for (key, shares) in &mut placement.replicas {
            if shares.is_empty() {
                continue;
            }
            let before = previous.replicas.get(key);
            let share = |(_, from): &(Arc<str>, Result<usize, usize>)| match from {
                Ok(at) => shares.get(*at).copied().unwrap_or(0),
                Err(at) => before.and_then(|before| before.get(*at)).copied().unwrap_or(0),
            };
            *shares = rows.iter().map(share).collect();
        }
        placement.bindings = rows.into_iter().map(|(key, _)| key).collect();
    }

    /// The present bindings without clusters that are gone or must be left; `None` when all may stay.
    pub(super) fn trimmed(&self, snapshot: &Snapshot) -> Option<Placement> {
        let previous = &self.request.previous;
        let tolerations = &self.request.subject.spec.cluster_tolerations;
        let stays = |key: &Arc<str>| {
            let Some(cluster) = snapshot.slot(key).and_then(|slot| snapshot.cluster(slot)) else { return false };
            cluster.taints.iter().filter(|taint| taint.effect == api::known::taint::NO_EXECUTE).all(|taint| {
                match super::cluster::patience(tolerations, taint) {
                    super::cluster::Patience::None => false,
                    super::cluster::Patience::Until(end) => self.request.now < end,
                    super::cluster::Patience::Unknown(_) | super::cluster::Patience::Forever => true,
                }
            })
        };
        let keep: Vec<bool> = previous.bindings.iter().map(stays).collect();
        if keep.iter().all(|keep| *keep) {
            return None;
        }
        fn kept<'a, T>(keep: &'a [bool], list: &'a [T]) -> impl Iterator<Item = &'a T> {
            list.iter().zip(keep).filter(|(_, keep)| **keep).map(|(item, _)| item)
        }
        Some(Placement {
            bindings: kept(&keep, &previous.bindings).cloned().collect(),
            replicas: previous.replicas.iter().map(|(key, shares)| (key.clone(), kept(&keep, shares).copied().collect())).collect(),
            spec_hash: previous.spec_hash,
            left: Arc::clone(&previous.left),
        })
    }
}
