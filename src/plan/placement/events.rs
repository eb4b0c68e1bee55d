//! What can happen that makes a decision worth taking again; the currency of queueing hints.

use std::ops::BitOr;

use serde::{Deserialize, Serialize};

/// A set of kinds of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Events(u32);

impl Events {
    /// None.
    pub const NONE: Self = Self(0);
    /// A cluster joined.
    pub const ADDED: Self = Self(1);
    /// A cluster was removed.
    pub const REMOVED: Self = Self(1 << 1);
    /// Labels of a cluster changed.
    pub const LABELS: Self = Self(1 << 2);
    /// Taints of a cluster changed.
    pub const TAINTS: Self = Self(1 << 3);
    /// A cluster turned ready or not ready.
    pub const READY: Self = Self(1 << 4);
    /// Resources of a cluster changed.
    pub const CAPACITY: Self = Self(1 << 5);
    /// The predictor of a cluster changed.
    pub const PREDICTOR: Self = Self(1 << 6);
    /// The FeedInventory of the Subscription changed.
    pub const INVENTORY: Self = Self(1 << 7);
    /// The Subscription itself changed.
    pub const SUBSCRIPTION: Self = Self(1 << 8);
    /// Another Subscription gave up replicas.
    pub const RELEASED: Self = Self(1 << 9);
    /// Replicas of the Subscription turned ready somewhere.
    pub const HEALTH: Self = Self(1 << 10);
    /// All of them.
    pub const ALL: Self = Self((1 << 11) - 1);

    /// Whether the sets share an event.
    pub fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The words of the set, for explanations.
    pub fn words(self) -> Vec<&'static str> {
        const WORDS: [&str; 11] = [
            "a cluster joins",
            "a cluster is removed",
            "labels of a cluster change",
            "taints of a cluster change",
            "a cluster turns ready",
            "a cluster gets more resources",
            "a predictor answers",
            "the FeedInventory is made",
            "the Subscription changes",
            "another Subscription shrinks",
            "replacements turn ready",
        ];
        WORDS.iter().enumerate().filter(|(bit, _)| self.0 & (1 << bit) != 0).map(|(_, word)| *word).collect()
    }
}

impl BitOr for Events {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
