//! Records of releases in the child, where Helm looks for them.

use chart::Record;
use chart::helm::record::status;
use cluster::dynamic::{Precondition, Propagation};
use cluster::resource::{Resource, built_in};
use cluster::{Trouble, trouble};
use engine::Clock;
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

fn secrets() -> Resource {
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
        let mut out = list.iter().map(Record::of_secret).collect::<Result<Vec<_>, _>>()?;
        out.sort_by_key(|record| record.version);
        Ok(out)
    }

    /// Writes a new revision. One that is there already is somebody else's doing.
    pub(super) async fn create(&self, record: &Record) -> Result<(), DeployError> {
        let secret = record.secret(("createdAt", self.clock.now().as_second()))?;
        self.child.dynamic.create(&secrets(), &secret, "helm").await.map_err(DeployError::refused("create", record.secret_name()))?;
        Ok(())
    }

    /// Writes a revision that is there.
    pub(super) async fn update(&self, record: &Record) -> Result<(), DeployError> {
        let secret = record.secret(("modifiedAt", self.clock.now().as_second()))?;
        let path = format!("{}?fieldManager=helm", secrets().path(&self.owner.namespace, &record.secret_name()));
        let written: Result<Value, kube::Error> = self.child.dynamic.call("PUT", &path, Some("application/json"), Some(&secret)).await;
        written.map_err(DeployError::refused("update", record.secret_name()))?;
        Ok(())
    }

    /// Removes the records of these revisions.
    pub(super) async fn forget(&self, records: &[Record]) -> Result<(), DeployError> {
        for record in records {
            let gone = self.child.dynamic.delete(&secrets(), &self.owner.namespace, &record.secret_name(), &Precondition::default(), Propagation::Background).await;
            match gone {
                Ok(()) => {}
                Err(error) if trouble(&error) == Trouble::NotFound => {}
                Err(error) => return Err(DeployError::refused("delete", record.secret_name())(error)),
            }
        }
        Ok(())
    }

    /// Makes room for one more revision: the oldest go, never the one that is deployed.
    pub(super) async fn make_room(&self, history: &[Record]) -> Result<(), DeployError> {
        let deployed = history.iter().rev().find(|r| r.info.status == status::DEPLOYED).map(|r| r.version);
        let most = (history.len() + 1).saturating_sub(HISTORY);
        let old: Vec<Record> = history.iter().filter(|r| Some(r.version) != deployed).take(most).cloned().collect();
        self.forget(&old).await
    }
}
