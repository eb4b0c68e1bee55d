//! The steps of a rollout: scaling the new set up and the old ones down, all at once or within limits, and scaling in proportion.

use super::sets::Set;
use super::{Rollout, DESIRED, MAXIMUM};

impl Rollout<'_> {
    /// One step of a rolling update.
    pub(super) fn roll(&mut self) {
        self.sync_revision(true);
        let moved = self.scale_new_up() || self.scale_old_down();
        if !moved && self.complete() {
            self.clean_up();
        }
        self.sync_status(true);
    }

    /// One step of a strategy that stops everything before it starts anew.
    pub(super) fn recreate(&mut self) {
        self.sync_revision(false);
        let mut moved = false;
        for index in 0..self.old.len() {
            moved |= self.old[index].replicas() != 0 && self.scale_set(Some(index), 0, false);
        }
        let running = self.old.iter().any(|set| set.count("replicas") > 0 || set.count("terminatingReplicas") > 0);
        if !moved && !running {
            self.sync_revision(true);
            self.scale_set(None, self.replicas, false);
            if self.complete() {
                self.clean_up();
            }
        }
        self.sync_status(true);
    }

    fn scale_new_up(&mut self) -> bool {
        let Some(new) = &self.new else { return false };
        let now = new.replicas();
        if now == self.replicas {
            return false;
        }
        let replicas = if now > self.replicas { self.replicas } else { self.new_replicas(now) };
        self.scale_set(None, replicas, false)
    }

    fn scale_old_down(&mut self) -> bool {
        if self.old.iter().map(Set::replicas).sum::<i64>() == 0 {
            return false;
        }
        let least = self.replicas - self.unavailable;
        let fresh = self.new.as_ref().map_or(0, |new| new.replicas() - new.count("availableReplicas"));
        let room = self.total() - least - fresh;
        if room <= 0 {
            return false;
        }
        // Unhealthy pods first: taking them costs no availability, and they would block the rollout.
        let mut taken = 0;
        for index in 0..self.old.len() {
            let (replicas, available) = (self.old[index].replicas(), self.old[index].count("availableReplicas"));
            if taken >= room || replicas == 0 || replicas <= available {
                continue;
            }
            let count = (room - taken).min(replicas - available);
            self.scale_set(Some(index), replicas - count, false);
            taken += count;
        }
        let available: i64 = self.all().map(|set| set.count("availableReplicas")).sum();
        // A set's status may still count pods that its last scaling takes: what the sets are asked for bounds the step as well.
        let surplus = (available - least).min(room - taken);
        let mut moved = 0;
        for index in 0..self.old.len() {
            let replicas = self.old[index].replicas();
            if moved >= surplus || replicas == 0 {
                continue;
            }
            let count = replicas.min(surplus - moved);
            self.scale_set(Some(index), replicas - count, false);
            moved += count;
        }
        taken + moved > 0
    }

    /// Whether the number of replicas was changed since the sets were last scaled.
    pub(super) fn scaled(&self) -> bool {
        self.all()
            .filter(|set| set.replicas() > 0)
            .any(|set| set.annotation(DESIRED).parse::<i64>().is_ok_and(|desired| desired != self.replicas))
    }

    /// Follows a change of the number of replicas, in proportion to the sets' sizes when a rollout is under way.
    pub(super) fn scale(&mut self) {
        if let Some(index) = self.active_or_latest() {
            self.scale_set(index, self.replicas, true);
            return;
        }
        let saturated = self.new.as_ref().is_some_and(|new| {
            new.replicas() == self.replicas
                && new.annotation(DESIRED).parse::<i64>() == Ok(self.replicas)
                && new.count("availableReplicas") == self.replicas
        });
        if saturated {
            for index in 0..self.old.len() {
                self.scale_set(Some(index), 0, false);
            }
        } else if self.rolling {
            self.scale_in_proportion();
        }
    }

    /// The only set with replicas, or the newest when none has any; nothing when several have.
    fn active_or_latest(&self) -> Option<Option<usize>> {
        let mut active: Vec<Option<usize>> =
            (0..self.old.len()).filter(|index| self.old[*index].replicas() > 0).map(Some).collect();
        if self.new.as_ref().is_some_and(|new| new.replicas() > 0) {
            active.push(None);
        }
        match (active.len(), &self.new) {
            (0, Some(_)) => Some(None),
            (0, None) => self.old.len().checked_sub(1).map(Some),
            (1, _) => active.pop(),
            _ => None,
        }
    }

    fn scale_in_proportion(&mut self) {
        let allowed = if self.replicas > 0 { self.replicas + self.surge } else { 0 };
        let mut sets: Vec<(Option<usize>, i64, i64, (String, String))> = Vec::new();
        for (index, set) in self.old.iter().enumerate().map(|(index, set)| (Some(index), set)).chain(self.new.iter().map(|set| (None, set))) {
            if set.replicas() > 0 {
                sets.push((index, set.replicas(), set.annotation(MAXIMUM).parse().unwrap_or(0), set.age()));
            }
        }
        let to_add = allowed - sets.iter().map(|(_, replicas, ..)| replicas).sum::<i64>();
        // Larger sets first; of equal ones the newer grows first and the older shrinks first.
        sets.sort_by(|a, b| {
            let age = if to_add > 0 { b.3.cmp(&a.3) } else { a.3.cmp(&b.3) };
            b.1.cmp(&a.1).then(age)
        });
        let mut added = 0;
        let mut sizes: Vec<(Option<usize>, i64)> = Vec::new();
        for (index, replicas, most, _) in &sets {
            let mut part = 0;
            if to_add != 0 && to_add != added {
                let wish = self.fraction(*replicas, *most);
                let left = to_add - added;
                part = if to_add > 0 { wish.min(left) } else { wish.max(left) };
                added += part;
            }
            sizes.push((*index, replicas + part));
        }
        for (place, (index, size)) in sizes.into_iter().enumerate() {
            let leftover = if place == 0 { to_add - added } else { 0 };
            self.scale_set(index, (size + leftover).max(0), true);
        }
    }

    /// What a set of this size should gain or lose.
    fn fraction(&self, replicas: i64, most_before: i64) -> i64 {
        if self.replicas == 0 {
            return -replicas;
        }
        let before = if most_before > 0 {
            most_before
        } else {
            crate::value::int(self.deployment, &["status", "replicas"]).unwrap_or(0)
        };
        if before == 0 {
            return 0;
        }
        let product = replicas * (self.replicas + self.surge);
        // Rounded to the nearest, halves up: both numbers are positive.
        (2 * product + before) / (2 * before) - replicas
    }
}
