//! Positions of clusters among the present bindings, asked for in order of keys.

use std::collections::BTreeMap;
use std::sync::Arc;

/// The present bindings, found by walking along in order of keys, or by search when a status is not sorted.
pub(super) enum Bound<'a> {
    Sorted(&'a [Arc<str>]),
    Indexed(BTreeMap<&'a str, usize>),
}

impl<'a> Bound<'a> {
    pub(super) fn of(bindings: &'a [Arc<str>]) -> Self {
        if bindings.is_sorted() {
            return Self::Sorted(bindings);
        }
        Self::Indexed(bindings.iter().enumerate().map(|(index, key)| (&**key, index)).collect())
    }

    pub(super) fn walk(&self) -> Walk<'_> {
        Walk { bound: self, at: 0 }
    }
}

pub(super) struct Walk<'a> {
    bound: &'a Bound<'a>,
    at: usize,
}

impl Walk<'_> {
    /// Position of a key; keys must be asked for in ascending order.
    pub(super) fn find(&mut self, key: &Arc<str>) -> Option<usize> {
        match self.bound {
            Bound::Sorted(list) => {
                // Mostly the very next one, and the very same text.
                if list.get(self.at).is_some_and(|have| Arc::ptr_eq(have, key)) {
                    self.at += 1;
                    return Some(self.at - 1);
                }
                while self.at < list.len() && *list[self.at] < **key {
                    self.at += 1;
                }
                (list.get(self.at).is_some_and(|have| **have == **key)).then_some(self.at)
            }
            Bound::Indexed(index) => index.get(&**key).copied(),
        }
    }
}
