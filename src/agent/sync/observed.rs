//! What is known of each object, put together for a Description's status.

use std::collections::BTreeMap;

use plan::sync::{Identity, Observed};
use serde_json::Value;

use super::{State, Syncer};

impl Syncer {
    /// Faults and live statuses of everything wanted.
    pub(super) fn observed(&self, state: &State) -> BTreeMap<Identity, Observed> {
        state
            .desired
            .wants
            .keys()
            .map(|identity| {
                let status = self.watches.live(identity).map(|live| live.status).unwrap_or(Value::Null);
                (identity.clone(), Observed { fault: state.faults.get(identity).cloned(), status })
            })
            .collect()
    }
}
