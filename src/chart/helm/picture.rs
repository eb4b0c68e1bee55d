//! Lookups of templates, answered from a picture of a cluster; what the picture has not is noted, so that it can be completed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::run::Lookup;

/// apiVersion, kind, namespace, name (empty for a list).
pub type Asked = (String, String, String, String);

/// A picture of a cluster.
#[derive(Debug, Default)]
pub struct Picture {
    known: BTreeMap<Asked, Option<Value>>,
    missing: Mutex<BTreeSet<Asked>>,
}

impl Picture {
    /// Of these answers; `None` says that there is no such object.
    #[must_use]
    pub fn new(known: BTreeMap<Asked, Option<Value>>) -> Self {
        Self { known, missing: Mutex::default() }
    }

    /// What was asked for and is not known.
    #[must_use]
    pub fn missing(&self) -> BTreeSet<Asked> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What is known.
    #[must_use]
    pub fn known(&self) -> &BTreeMap<Asked, Option<Value>> {
        &self.known
    }
}

impl Lookup for Picture {
    fn lookup(&self, api_version: &str, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        let asked = (api_version.to_owned(), kind.to_owned(), namespace.to_owned(), name.to_owned());
        match self.known.get(&asked) {
            Some(answer) => answer.clone(),
            None => {
                self.missing.lock().unwrap_or_else(PoisonError::into_inner).insert(asked);
                None
            }
        }
    }
}
