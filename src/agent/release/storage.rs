//! Records of releases in the child, where Helm looks for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::object;
use chart::Record;
use chart::helm::record::status;
use cluster::dynamic::{Precondition, Propagation};
use cluster::resource::{Resource, built_in};
use cluster::{Trouble, trouble};
use engine::Clock;
use parking_lot::Mutex;
use serde_json::Value;

use super::error::DeployError;
use super::objects::{Child, Owner};

/// Revisions that are kept.
const HISTORY: usize = 5;

/// The records of one release.
pub(super) struct Storage<'a> {
    pub(super) child: &'a Child,
    pub(super) owner: &'a Owner,
    pub(super) clock: &'a dyn Clock,
}

/// Versions of the Secrets of records, as they were read or written last: what is of another version is somebody else's doing.
#[derive(Clone, Default)]
pub(super) struct Known(Arc<Mutex<BTreeMap<(String, String), String>>>);

impl Known {
    fn at(secret: &Value) -> (String, String) {
        (object::namespace(secret).to_owned(), object::name(secret).to_owned())
    }

    /// Notes a version. True when it is a new one.
    pub(super) fn note(&self, secret: &Value) -> bool {
        let version = object::resource_version(secret).to_owned();
        self.0.lock().insert(Self::at(secret), version.clone()) != Some(version)
    }

    /// Forgets one. True when it was known.
    pub(super) fn gone(&self, namespace: &str, name: &str) -> bool {
        self.0.lock().remove(&(namespace.to_owned(), name.to_owned())).is_some()
    }

    /// All that are known.
    pub(super) fn all(&self) -> Vec<(String, String)> {
        self.0.lock().keys().cloned().collect()
    }
}

pub(super) fn secrets() -> Resource {
    // Built in: the fallback is the same by hand.
    built_in("v1", "Secret").unwrap_or(Resource { group: String::new(), version: "v1".into(), kind: "Secret".into(), plural: "secrets".into(), namespaced: true })
}

impl Storage<'_> {
    /// All revisions, the oldest first.
    pub(super) async fn history(&self) -> Result<Vec<Record>, DeployError> {
        let labels = format!("owner=helm,name={}", self.owner.name);
        let list = match self.child.dynamic.list(&secrets(), &self.owner.namespace, Some(&labels)).await {
            Ok(list) => list.items,
            Err(error) if trouble(&error) == Trouble::NotFound => Vec::new(),
            Err(error) => return Err(DeployError::refused("list", "the releases")(error)),
        };
        let mut out = Vec::with_capacity(list.len());
        for secret in &list {
            self.child.records.note(secret);
            let unreadable = |source| DeployError::Unreadable { secret: format!("{}/{}", object::namespace(secret), object::name(secret)), source };
            out.push(Record::of_secret(secret).map_err(unreadable)?);
        }
        out.sort_by_key(|record| record.version);
        Ok(out)
    }

    /// Writes a new revision. One that is there already is somebody else's doing.
    pub(super) async fn create(&self, record: &Record) -> Result<(), DeployError> {
        let secret = record.secret(("createdAt", self.clock.now().as_second()))?;
        let written = self.child.dynamic.create(&secrets(), &secret, "helm").await.map_err(DeployError::refused("create", record.secret_name()))?;
        self.child.records.note(&written);
        Ok(())
    }

    /// Writes a revision that is there.
    pub(super) async fn update(&self, record: &Record) -> Result<(), DeployError> {
        let secret = record.secret(("modifiedAt", self.clock.now().as_second()))?;
        let path = format!("{}?fieldManager=helm", secrets().path(&self.owner.namespace, &record.secret_name()));
        let written: Result<Value, kube::Error> = self.child.dynamic.call("PUT", &path, Some("application/json"), Some(&secret)).await;
        self.child.records.note(&written.map_err(DeployError::refused("update", record.secret_name()))?);
        Ok(())
    }

    /// Removes the records of these revisions.
    pub(super) async fn forget(&self, records: &[Record]) -> Result<(), DeployError> {
        for record in records {
            self.child.records.gone(&self.owner.namespace, &record.secret_name());
            let gone = self.child.dynamic.delete(&secrets(), &self.owner.namespace, &record.secret_name(), &Precondition::default(), Propagation::Background).await;
            match gone {
                Ok(()) => {}
                Err(error) if trouble(&error) == Trouble::NotFound => {}
                Err(error) => return Err(DeployError::refused("delete", record.secret_name())(error)),
            }
        }
        Ok(())
    }

    /// Revisions that never came to their end do not get there any more, since another one is begun now.
    pub(super) async fn end_pending(&self, history: &[Record]) -> Result<(), DeployError> {
        for record in history.iter().filter(|record| record.is_pending()) {
            let mut record = record.clone();
            record.info.description = format!("Interrupted while {}; a later revision took its place", record.info.status);
            record.info.status = status::FAILED.to_owned();
            self.update(&record).await?;
        }
        Ok(())
    }

    /// An installation takes the place of what was there: as Helm does with `--replace`, which leaves failures as they are.
    pub(super) async fn replaced(&self, history: &[Record]) -> Result<(), DeployError> {
        let Some(last) = history.last().filter(|last| !last.is_pending() && last.info.status != status::FAILED) else { return Ok(()) };
        let mut record = last.clone();
        record.info.status = status::SUPERSEDED.to_owned();
        record.info.description = "superseded by new release".to_owned();
        self.update(&record).await
    }

    /// Makes room for one more revision: the oldest go, never the one that is deployed.
    pub(super) async fn make_room(&self, history: &[Record]) -> Result<(), DeployError> {
        let deployed = history.iter().rev().find(|r| r.info.status == status::DEPLOYED).map(|r| r.version);
        let most = (history.len() + 1).saturating_sub(HISTORY);
        let old: Vec<Record> = history.iter().filter(|r| Some(r.version) != deployed).take(most).cloned().collect();
        self.forget(&old).await
    }
}
