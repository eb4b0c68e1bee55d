//! Many lookups in a map: cheap when they come in the order of its keys, right in any order.

use std::collections::{BTreeMap, btree_map};
use std::ops::Bound;
use std::sync::Arc;

/// Finds entries one after the other.
pub struct Finder<'a, V> {
    map: &'a BTreeMap<Arc<str>, V>,
    ahead: btree_map::Range<'a, Arc<str>, V>,
    next: Option<(&'a Arc<str>, &'a V)>,
}

impl<'a, V> Finder<'a, V> {
    /// How many entries are passed over before a search is cheaper.
    const STEPS: usize = 4;

    /// Begins at the first entry.
    pub fn over(map: &'a BTreeMap<Arc<str>, V>) -> Self {
        Self { map, ahead: map.range::<str, _>(..), next: None }
    }

    /// The entry of a key, with the map's own text of it.
    pub fn find(&mut self, key: &str) -> Option<(&'a Arc<str>, &'a V)> {
        for _ in 0..Self::STEPS {
            self.next = self.next.or_else(|| self.ahead.next());
            let Some(next) = self.next else { break };
            match (**next.0).cmp(key) {
                std::cmp::Ordering::Less => self.next = None,
                std::cmp::Ordering::Equal => return Some(next),
                std::cmp::Ordering::Greater => break,
            }
        }
        self.ahead = self.map.range::<str, _>((Bound::Included(key), Bound::Unbounded));
        self.next = self.ahead.next();
        self.next.filter(|(have, _)| ***have == *key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_order_finds_what_a_map_finds() {
        let map: BTreeMap<Arc<str>, u32> = (0..50u32).map(|n| (Arc::from(format!("c{:02}", n * 2)), n)).collect();
        let mut finder = Finder::over(&map);
        // All pairs of lookups, forwards, backwards, twice, with and without a hit, and beyond both ends.
        for first in 0..102u32 {
            for second in 0..102u32 {
                for key in [format!("c{first:02}"), format!("c{second:02}"), format!("c{second:02}"), "z".to_owned(), String::new()] {
                    assert_eq!(finder.find(&key).map(|(_, value)| value), map.get(key.as_str()), "{first} {second} {key}");
                }
            }
        }
    }
}
