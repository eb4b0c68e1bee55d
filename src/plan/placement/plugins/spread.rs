//! Topology spread over clusters: how much growth each group of clusters may take.

use std::collections::{BTreeMap, BTreeSet};

use api::selector::Selector;
use k8s_openapi::api::core::v1::{NodeSelectorRequirement, PreferredSchedulingTerm, TopologySpreadConstraint};

use crate::placement::cluster::ClusterInfo;

/// One constraint, prepared over the candidates.
struct Constraint {
    hard: bool,
    max_skew: i64,
    /// Domain of each cell.
    domain_of_cell: Vec<usize>,
    /// Replicas of each domain.
    counts: Vec<i64>,
    /// The lowest count is taken as zero, since there are fewer domains than wanted.
    floor_is_zero: bool,
}

impl Constraint {
    /// What the fullest domain is measured against.
    fn lowest(&self) -> i64 {
        if self.floor_is_zero { 0 } else { self.counts.iter().copied().min().unwrap_or(0) }
    }

    /// By how much a cell's domain is above the lowest one, which is given since it is the same for all cells.
    fn skew(&self, cell: usize, lowest: i64) -> i64 {
        self.counts[self.domain_of_cell[cell]] - lowest
    }
}

/// Candidates with equal values of all topology keys.
type Cells<'a> = Vec<(Vec<&'a str>, Vec<usize>)>;

fn cells<'a>(clusters: &[&'a ClusterInfo], constraints: &[TopologySpreadConstraint]) -> Cells<'a> {
    let mut cells: BTreeMap<Vec<&str>, Vec<usize>> = BTreeMap::new();
    for (index, cluster) in clusters.iter().enumerate() {
        let values: Option<Vec<&str>> =
            constraints.iter().map(|c| cluster.labels.get(&c.topology_key).map(String::as_str)).collect();
        // As in Kubernetes, a place without the label takes nothing under a hard constraint; it forms its own domain here
        // under a soft one.
        let values = match values {
            Some(values) => values,
            None if constraints.iter().any(|c| is_hard(c) && !cluster.labels.contains_key(&c.topology_key)) => continue,
            None => constraints.iter().map(|c| cluster.labels.get(&c.topology_key).map_or("", String::as_str)).collect(),
        };
        cells.entry(values).or_default().push(index);
    }
    cells.into_iter().collect()
}

/// Whether single replicas may still go somewhere, under the hard constraints.
pub(super) struct Guard {
    /// Nothing is hard.
    free: bool,
    cell_of: BTreeMap<usize, usize>,
    constraints: Vec<Constraint>,
}

impl Guard {
    pub(super) fn of(clusters: &[&ClusterInfo], constraints: &[TopologySpreadConstraint], current: &[i64]) -> Self {
        let free = !constraints.iter().any(is_hard);
        let cells = if free { Vec::new() } else { cells(clusters, constraints) };
        let prepared = constraints.iter().enumerate().map(|(at, constraint)| prepare(at, constraint, &cells, current));
        Self {
            free,
            constraints: prepared.filter(|constraint| constraint.hard && !free).collect(),
            cell_of: cells.iter().enumerate().flat_map(|(cell, (_, members))| members.iter().map(move |index| (*index, cell))).collect(),
        }
    }

    /// Whether one more replica may go to a candidate.
    pub(super) fn takes(&self, index: usize) -> bool {
        let fits = |cell: &usize| self.constraints.iter().all(|one| one.skew(*cell, one.lowest()) < one.max_skew);
        self.free || self.cell_of.get(&index).is_some_and(fits)
    }

    /// Notes one more replica.
    pub(super) fn add(&mut self, index: usize) {
        let Some(cell) = self.cell_of.get(&index) else { return };
        for constraint in &mut self.constraints {
            let domain = constraint.domain_of_cell[*cell];
            constraint.counts[domain] += 1;
        }
    }
}

/// Steps in which replicas are handed out at first; small totals go one by one.
const STEPS: i64 = 20_000;
/// The most steps of one division: totals beyond all sense end short instead of never.
const STEPS_MAX: usize = 1_000_000;

/// Distributes `amount` replicas over candidates under spread constraints; what may not be placed is left over.
///
/// Candidates with equal values of all topology keys form a cell. Replicas go one by one to the cell that breaks no hard
/// constraint, fewest soft ones, and has most capacity per replica; `inside` divides what a cell gets over its members.
pub(super) fn grow(
    amount: i64,
    capacity: &[i64],
    current: &[i64],
    clusters: &[&ClusterInfo],
    constraints: &[TopologySpreadConstraint],
    inside: impl Fn(i64, &[usize], &mut [i64]),
) -> Vec<i64> {
    let mut out = vec![0; capacity.len()];
    let cells = cells(clusters, constraints);
    let mut constraints: Vec<Constraint> =
        constraints.iter().enumerate().map(|(at, constraint)| prepare(at, constraint, &cells, current)).collect();
    let mut free: Vec<i64> = cells.iter().map(|(_, members)| members.iter().map(|index| capacity[*index].max(0)).fold(0i64, i64::saturating_add)).collect();
    let mut have: Vec<i64> = cells.iter().map(|(_, members)| members.iter().map(|index| current[*index]).sum()).collect();
    let whole: Vec<i64> = free.iter().zip(&have).map(|(free, have)| free.saturating_add(*have)).collect();
    let mut grown = vec![0i64; cells.len()];
    let mut rest = amount.min(free.iter().fold(0i64, |sum, free| sum.saturating_add(*free)));
    let mut step = (rest / STEPS).max(1);
    for _ in 0..STEPS_MAX {
        step = step.min(rest);
        if step == 0 {
            break;
        }
        let lowest: Vec<i64> = constraints.iter().map(Constraint::lowest).collect();
        let mut best: Option<(i64, usize)> = None;
        for cell in (0..cells.len()).filter(|cell| free[*cell] >= step) {
            let over = |(constraint, lowest): &(&Constraint, &i64)| constraint.skew(cell, **lowest) + step > constraint.max_skew;
            if constraints.iter().zip(&lowest).filter(|(constraint, _)| constraint.hard).any(|one| over(&one)) {
                continue;
            }
            let soft = constraints.iter().zip(&lowest).filter(|(constraint, _)| !constraint.hard).filter(over).count();
            let soft = i64::try_from(soft).unwrap_or(0);
            let better = best.is_none_or(|(best_soft, best_cell)| {
                let (mine, theirs) = (i128::from(whole[cell]), i128::from(whole[best_cell]));
                // Capacity per replica, compared crosswise to stay exact.
                let quotient = (mine * i128::from(have[best_cell] + step)).cmp(&(theirs * i128::from(have[cell] + step)));
                soft < best_soft || (soft == best_soft && quotient.is_gt())
            });
            if better {
                best = Some((soft, cell));
            }
        }
        let Some((_, cell)) = best else {
            // So many at once fit nowhere; fewer may.
            step /= 2;
            continue;
        };
        rest -= step;
        free[cell] -= step;
        have[cell] += step;
        grown[cell] += step;
        for constraint in &mut constraints {
            let domain = constraint.domain_of_cell[cell];
            constraint.counts[domain] += step;
        }
    }
    for ((_, members), grown) in cells.iter().zip(grown).filter(|(_, grown)| *grown > 0) {
        inside(grown, members, &mut out);
    }
    out
}

/// Takes `amount` replicas away, one by one where the domains of hard constraints are fullest. `spare` is what may be taken;
/// `inside` says how a cell's part is taken from its members.
pub(super) fn shrink(
    amount: i64,
    spare: &[i64],
    current: &[i64],
    clusters: &[&ClusterInfo],
    constraints: &[TopologySpreadConstraint],
    inside: impl Fn(i64, &[usize], &mut [i64]),
) -> Vec<i64> {
    let mut out = vec![0; spare.len()];
    let hard: Vec<TopologySpreadConstraint> = constraints.iter().filter(|constraint| is_hard(constraint)).cloned().collect();
    let mut cells = cells(clusters, &hard);
    let known: BTreeSet<usize> = cells.iter().flat_map(|(_, members)| members.iter().copied()).collect();
    let mut prepared: Vec<Constraint> = hard.iter().enumerate().map(|(at, constraint)| prepare(at, constraint, &cells, current)).collect();
    // Places without the label are in no domain; they break the constraint and are left first.
    let strangers: Vec<usize> = (0..spare.len()).filter(|index| !known.contains(index) && spare[*index] > 0).collect();
    let mut left: Vec<i64> = cells.iter().map(|(_, members)| members.iter().map(|index| spare[*index]).sum()).collect();
    let mut taken = vec![0i64; cells.len()];
    let outside = amount.min(strangers.iter().map(|index| spare[*index]).sum());
    let mut rest = amount - outside;
    let mut step = (rest / STEPS).max(1);
    for _ in 0..STEPS_MAX {
        step = step.min(rest);
        if step == 0 {
            break;
        }
        let over = |cell: &usize| prepared.iter().map(|one| one.skew(*cell, 0)).fold(0i64, i64::saturating_add);
        let most = (0..cells.len()).filter(|cell| left[*cell] >= step).max_by_key(|cell| (over(cell), left[*cell]));
        let Some(cell) = most else {
            step /= 2;
            continue;
        };
        rest -= step;
        left[cell] -= step;
        taken[cell] += step;
        for constraint in &mut prepared {
            let domain = constraint.domain_of_cell[cell];
            constraint.counts[domain] -= step;
        }
    }
    cells.push((Vec::new(), strangers));
    taken.push(outside);
    for ((_, members), taken) in cells.iter().zip(taken).filter(|(_, taken)| *taken > 0) {
        inside(taken, members, &mut out);
    }
    out
}

/// Whether what breaks a constraint is not placed at all.
pub(super) fn is_hard(constraint: &TopologySpreadConstraint) -> bool {
    constraint.when_unsatisfiable != "ScheduleAnyway"
}

fn prepare(
    at: usize,
    constraint: &TopologySpreadConstraint,
    cells: &[(Vec<&str>, Vec<usize>)],
    current: &[i64],
) -> Constraint {
    let mut domains: BTreeMap<&str, usize> = BTreeMap::new();
    let mut domain_of_cell = Vec::with_capacity(cells.len());
    let mut counts: Vec<i64> = Vec::new();
    for (values, members) in cells {
        let next = domains.len();
        let domain = *domains.entry(values[at]).or_insert(next);
        if domain == counts.len() {
            counts.push(0);
        }
        counts[domain] += members.iter().map(|index| current[*index]).sum::<i64>();
        domain_of_cell.push(domain);
    }
    let wanted = usize::try_from(constraint.min_domains.unwrap_or(1)).unwrap_or(1);
    Constraint {
        hard: is_hard(constraint),
        max_skew: i64::from(constraint.max_skew.max(1)),
        floor_is_zero: counts.len() < wanted,
        domain_of_cell,
        counts,
    }
}

/// Sum of the weights of the preferences that a cluster meets.
pub fn preference(cluster: &ClusterInfo, terms: &[PreferredSchedulingTerm]) -> i64 {
    let meets = |term: &&PreferredSchedulingTerm| {
        let preference = &term.preference;
        let labels = preference.match_expressions.iter().flatten().all(|r| requirement(r, cluster.labels.get(&r.key).map(String::as_str)));
        let fields = preference.match_fields.iter().flatten().all(|r| r.key == "metadata.name" && requirement(r, Some(&cluster.name)));
        let empty = preference.match_expressions.iter().flatten().next().is_none()
            && preference.match_fields.iter().flatten().next().is_none();
        !empty && labels && fields
    };
    terms.iter().filter(meets).map(|term| i64::from(term.weight)).sum()
}

/// Node selector requirements know `Gt` and `Lt` besides the operators of label selectors.
pub(crate) fn requirement(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let compare = |wanted: std::cmp::Ordering| {
        let bound = values.first().and_then(|bound| bound.parse::<i64>().ok());
        let have = value.and_then(|value| value.parse::<i64>().ok());
        have.zip(bound).is_some_and(|(have, bound)| have.cmp(&bound) == wanted)
    };
    match requirement.operator.as_str() {
        "In" => value.is_some_and(|value| values.iter().any(|have| have == value)),
        "NotIn" => value.is_none_or(|value| values.iter().all(|have| have != value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare(std::cmp::Ordering::Greater),
        "Lt" => compare(std::cmp::Ordering::Less),
        _ => false,
    }
}

/// Faults of constraints and preferences that would make them mean nothing.
pub fn faults(constraints: &[TopologySpreadConstraint], terms: &[PreferredSchedulingTerm]) -> Option<String> {
    for constraint in constraints {
        if constraint.topology_key.is_empty() || Selector::parse(&constraint.topology_key).is_err() {
            return Some(format!("topologySpreadConstraints: topologyKey {:?} is not a label key", constraint.topology_key));
        }
        if constraint.max_skew < 1 {
            return Some("topologySpreadConstraints: maxSkew must be at least 1".to_owned());
        }
        if !["", "DoNotSchedule", "ScheduleAnyway"].contains(&constraint.when_unsatisfiable.as_str()) {
            let have = &constraint.when_unsatisfiable;
            return Some(format!("topologySpreadConstraints: whenUnsatisfiable {have:?} is neither DoNotSchedule nor ScheduleAnyway"));
        }
    }
    let known = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"];
    let requirements = terms.iter().flat_map(|t| t.preference.match_expressions.iter().chain(&t.preference.match_fields).flatten());
    for requirement in requirements {
        if !known.contains(&requirement.operator.as_str()) {
            return Some(format!("preferredClusters: {:?} is not a valid selector operator", requirement.operator));
        }
        let (key, operator, values) = (&requirement.key, &requirement.operator, requirement.values.as_deref().unwrap_or_default());
        let number = matches!(values, [one] if one.parse::<i64>().is_ok());
        if matches!(operator.as_str(), "Gt" | "Lt") && !number {
            return Some(format!("preferredClusters: {key} {operator} needs one whole number, not {values:?}"));
        }
        if matches!(operator.as_str(), "In" | "NotIn") && values.is_empty() {
            return Some(format!("preferredClusters: {key} {operator} needs values"));
        }
    }
    None
}
