//! Which objects to apply, in which order, which to delete, and when deleting must wait for a person.

use std::collections::BTreeMap;

use api::gitops::{DeletionBudget, FileFault};

use super::assemble::{Desired, Place};

/// An object of the parent that carries a source's label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Its uid, the precondition of deleting it.
    pub uid: String,
    /// The source that applied it.
    pub source: String,
    /// Digest of what was applied.
    pub digest: String,
    /// It asks to be kept when it disappears from Git.
    pub keep: bool,
    /// It is being deleted already.
    pub deleting: bool,
}

/// What the parent has from sources.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inventory {
    /// Whether every kind was listed to its end; if not, nothing is deleted.
    pub complete: bool,
    /// By place.
    pub held: BTreeMap<Place, Held>,
}

/// Why deletions wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeldBack {
    /// Files are faulty, so it is not known what they ask for.
    Faults(usize),
    /// The parent could not be listed.
    Unlisted,
    /// The revision has no object at all.
    Empty,
    /// The budget is exceeded.
    Budget {
        /// What the budget allows.
        most: usize,
    },
}

/// What to do for one revision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// Objects to apply, wave by wave; within a wave the order means nothing.
    pub apply: Vec<Vec<Place>>,
    /// How many need no request.
    pub unchanged: usize,
    /// Objects to delete, with their uids, in this order; only when everything was applied.
    pub prune: Vec<(Place, String)>,
    /// How many would be deleted, and why they are not.
    pub held_back: Option<(usize, HeldBack)>,
    /// Objects that another source has.
    pub faults: Vec<FileFault>,
}

/// Kinds that are never deleted on account of Git: a cluster, and the source itself, go by hand only.
const NEVER_PRUNED: [&str; 2] = ["ManagedCluster", "GitSource"];

/// Compares what is asked for with what is there. `everything` applies unchanged objects too, against changes made by hand.
#[must_use]
pub fn decide(desired: &Desired, inventory: &Inventory, source: &str, prune: bool, budget: Option<&DeletionBudget>, approved: bool, everything: bool) -> Decision {
    let mut out = Decision::default();
    let mut waves: BTreeMap<u8, Vec<Place>> = BTreeMap::new();
    for (place, wanted) in &desired.objects {
        match inventory.held.get(place) {
            Some(held) if held.source != source => out.faults.push(FileFault {
                path: wanted.path.clone(),
                line: wanted.line,
                column: 1,
                reason: "OwnedByAnother".to_owned(),
                message: format!("the object belongs to the source {}; remove it there first", held.source),
                object: place.to_string(),
            }),
            Some(held) if held.digest == wanted.digest && !held.deleting && !everything => out.unchanged += 1,
            _ => waves.entry(place.wave()).or_default().push(place.clone()),
        }
    }
    out.apply = waves.into_values().collect();

    let ours = || inventory.held.iter().filter(|(_, held)| held.source == source);
    let mut gone: Vec<(&Place, &super::Held)> = ours()
        .filter(|(place, held)| !desired.objects.contains_key(*place) && !held.keep && !held.deleting && !NEVER_PRUNED.contains(&place.kind.as_str()))
        .collect();
    if !prune || gone.is_empty() {
        return out;
    }
    // Last applied, first deleted.
    gone.sort_by(|a, b| (b.0.wave(), a.0).cmp(&(a.0.wave(), b.0)));
    let faults = desired.faults.len() + out.faults.len();
    let total = ours().count();
    let most = budget.and_then(|budget| allowed(budget, total));
    let why = if !inventory.complete {
        Some(HeldBack::Unlisted)
    } else if faults > 0 {
        Some(HeldBack::Faults(faults))
    } else if approved {
        None
    } else if desired.objects.is_empty() {
        Some(HeldBack::Empty)
    } else {
        most.filter(|most| gone.len() > *most).map(|most| HeldBack::Budget { most })
    };
    match why {
        Some(why) => out.held_back = Some((gone.len(), why)),
        None => out.prune = gone.into_iter().map(|(place, held)| (place.clone(), held.uid.clone())).collect(),
    }
    out
}

/// The stricter of both bounds.
fn allowed(budget: &DeletionBudget, total: usize) -> Option<usize> {
    let count = budget.max_objects.map(|n| usize::try_from(n).unwrap_or(0));
    let share = budget.max_percent.map(|p| total * usize::try_from(p).unwrap_or(0) / 100);
    match (count, share) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
