//! What can be done to a release: install, upgrade, roll back, uninstall; each leaves the record that Helm would leave.

use std::time::Duration;

use api::apps::HelmOptions;
use api::object;
use chart::helm::record::{self, status};
use chart::{Bundle, Record, Rules};
use engine::Clock;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::error::DeployError;
use super::objects::{Child, Owner, read, same, stamp};
use super::render::{From, Wish, render};
use super::storage::Storage;

/// One thing to do to one release.
pub(super) struct Job<'a> {
    pub(super) child: &'a Child,
    pub(super) clock: &'a dyn Clock,
    pub(super) owner: &'a Owner,
    pub(super) options: &'a HelmOptions,
    pub(super) rules: Rules,
}

/// How it ended.
pub(super) struct Outcome {
    /// The revision that stands now.
    pub(super) record: Option<Record>,
    /// What went wrong.
    pub(super) error: Option<DeployError>,
}

impl std::convert::From<DeployError> for Outcome {
    fn from(error: DeployError) -> Self {
        Self { record: None, error: Some(error) }
    }
}

/// Objects that `old` has and `new` has not.
fn left_over(old: &[Value], new: &[Value]) -> Vec<Value> {
    old.iter().filter(|o| !new.iter().any(|n| same(o, n))).cloned().collect()
}

/// Sorts objects into the order in which they go.
fn into_order_of_going(objects: &mut [Value]) {
    let rank = |o: &Value| chart::helm::manifests::INSTALL_ORDER.iter().position(|k| *k == object::text(o, "kind")).unwrap_or(usize::MAX);
    objects.sort_by_key(|o| std::cmp::Reverse(rank(o)));
}

impl Job<'_> {
    pub(super) fn storage(&self) -> Storage<'_> {
        Storage { child: self.child, owner: self.owner, clock: self.clock }
    }

    /// When the time of a single action is up.
    pub(super) fn until(&self) -> Instant {
        Instant::now() + timeout(self.options)
    }

    /// The present as records have it.
    pub(super) fn now(&self) -> String {
        self.clock.now().to_string()
    }

    /// The objects of a manifest, in their places and marked as the release's.
    pub(super) async fn objects(&self, manifest: &str) -> Result<Vec<Value>, DeployError> {
        let mut objects = read(manifest, self.rules)?;
        for object in &mut objects {
            self.child.place(object, &self.owner.namespace).await?;
            stamp(object, self.owner);
        }
        Ok(objects)
    }

    async fn namespace(&self) -> Result<(), DeployError> {
        if self.options.create_namespace == Some(false) {
            return Ok(());
        }
        let name = &self.owner.namespace;
        let wanted = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"name": name}}});
        if self.child.live(&wanted).await?.is_none() {
            self.child.make(&wanted, false).await?;
        }
        Ok(())
    }

    /// Makes the definitions of the chart; those that are there stay as they are unless `replace`.
    async fn definitions(&self, output: &Bundle, replace: bool) -> Result<(), DeployError> {
        let until = self.until();
        let mut made = Vec::new();
        for (path, text) in &output.crds {
            let objects = read(text, self.rules).map_err(|e| DeployError::Document { what: path.clone(), problem: e.to_string() })?;
            for mut object in objects {
                self.child.place(&mut object, &self.owner.namespace).await?;
                self.child.make(&object, replace).await?;
                made.push(object);
            }
        }
        if !made.is_empty() {
            for object in &made {
                self.child.ready(object, until).await?;
            }
            self.child.discovery.expire();
        }
        Ok(())
    }

    async fn await_ready(&self, objects: &[Value], until: Instant) -> Result<(), DeployError> {
        // As Helm has it, Jobs are waited for only where anything is.
        if self.options.wait != Some(true) {
            return Ok(());
        }
        let jobs = self.options.wait_for_job == Some(true);
        for object in objects.iter().filter(|object| jobs || object::text(object, "kind") != "Job") {
            self.child.ready(object, until).await?;
        }
        Ok(())
    }

    fn fresh(&self, config: &Value, bundle: Bundle, version: i64) -> Record {
        let now = self.now();
        Record {
            name: self.owner.name.clone(),
            namespace: self.owner.namespace.clone(),
            version,
            info: record::Info { first_deployed: now.clone(), last_deployed: now, notes: bundle.notes, ..record::Info::default() },
            chart: bundle.chart,
            config: if config.as_object().is_none_or(serde_json::Map::is_empty) { Value::Null } else { config.clone() },
            manifest: bundle.manifest,
            hooks: bundle.hooks,
            apply_method: "ssa".to_owned(),
            rest: serde_json::Map::new(),
        }
    }

    /// Installs a chart that has no revision that counts; `history` may hold removed ones.
    pub(super) async fn install(&self, from: &From, config: &Value, history: &[Record]) -> Outcome {
        let version = history.last().map_or(0, |r| r.version) + 1;
        let mut record = match self.begin_install(from, config, version, history).await {
            Ok(record) => record,
            Err(error) => return error.into(),
        };
        match self.finish_install(&mut record).await {
            Ok(()) => Outcome { record: Some(record), error: None },
            Err(DeployError::Deposed) => DeployError::Deposed.into(),
            Err(error) => {
                let why = cluster::error::chain(&error);
                record.info.status = status::FAILED.to_owned();
                record.info.description = format!("Release \"{}\" failed: {why}", self.owner.name);
                if self.options.atomic == Some(true) {
                    let undone = self.uninstall(std::slice::from_ref(&record)).await;
                    record.info.description = format!("Release \"{}\" failed, and has been uninstalled due to atomic being set: {why}", self.owner.name);
                    let error = match undone {
                        // Its revision went with it: the next one is an installation again.
                        Ok(()) => {
                            record.version = version - 1;
                            error
                        }
                        Err(source) => DeployError::Twice { first: why, verb: "uninstalling", source: Box::new(source) },
                    };
                    return Outcome { record: Some(record), error: Some(error) };
                }
                self.note(&record).await;
                Outcome { record: Some(record), error: Some(error) }
            }
        }
    }

    /// Writes how an action failed. The failure itself is what is told; one in writing it down is only logged.
    async fn note(&self, record: &Record) {
        if let Err(error) = self.storage().update(record).await {
            tracing::warn!(release = record.secret_name(), error = cluster::error::chain(&error), "cannot write down that a release failed");
        }
    }

    async fn begin_install(&self, from: &From, config: &Value, version: i64, history: &[Record]) -> Result<Record, DeployError> {
        let wish = Wish { owner: self.owner, revision: version, is_upgrade: false, config, rules: self.rules, now: self.clock.now() };
        let mut output = render(self.child, from, &wish).await?;
        if self.options.skip_crds != Some(true) && !output.crds.is_empty() {
            self.definitions(&output, self.options.replace_crds == Some(true)).await?;
            // Templates may look at what is served by now.
            output = render(self.child, from, &wish).await?;
        }
        let mut record = self.fresh(config, output, version);
        let objects = self.objects(&record.manifest).await?;
        self.child.check_free(&objects, self.owner, "install").await?;
        self.namespace().await?;
        record.info.status = status::PENDING_INSTALL.to_owned();
        record.info.description = "Initial install underway".to_owned();
        self.storage().end_pending(history).await?;
        self.storage().replaced(history).await?;
        self.storage().make_room(history).await?;
        self.storage().create(&record).await?;
        Ok(record)
    }

    async fn finish_install(&self, record: &mut Record) -> Result<(), DeployError> {
        let until = self.until();
        self.run_hooks(record, "pre-install").await?;
        // Hooks may have brought kinds.
        let objects = self.objects(&record.manifest).await?;
        self.child.apply_all(&objects, false, until).await?;
        self.await_ready(&objects, until).await?;
        self.run_hooks(record, "post-install").await?;
        record.info.status = status::DEPLOYED.to_owned();
        record.info.description = "Install complete".to_owned();
        self.storage().update(record).await
    }

    /// Upgrades from `current`, the last revision that is, or might be, in the child.
    pub(super) async fn upgrade(&self, from: &From, config: &Value, history: &[Record], current: &Record) -> Outcome {
        let version = history.last().map_or(0, |r| r.version) + 1;
        let begun = async {
            let wish = Wish { owner: self.owner, revision: version, is_upgrade: true, config, rules: self.rules, now: self.clock.now() };
            let mut output = render(self.child, from, &wish).await?;
            if self.options.skip_crds != Some(true) && self.options.replace_crds == Some(true) && !output.crds.is_empty() {
                self.definitions(&output, true).await?;
                output = render(self.child, from, &wish).await?;
            }
            let mut record = self.fresh(config, output, version);
            record.info.first_deployed.clone_from(&current.info.first_deployed);
            record.info.status = status::PENDING_UPGRADE.to_owned();
            record.info.description = "Preparing upgrade".to_owned();
            let (old, new) = (self.objects(&current.manifest).await?, self.objects(&record.manifest).await?);
            self.child.check_free(&left_over(&new, &old), self.owner, "update").await?;
            self.storage().end_pending(history).await?;
            self.storage().make_room(history).await?;
            self.storage().create(&record).await?;
            Ok::<_, DeployError>(record)
        };
        let mut record = match begun.await {
            Ok(record) => record,
            Err(error) => return error.into(),
        };
        let finished = self.replace(current, &mut record, "pre-upgrade", "post-upgrade").await;
        match finished {
            Ok(()) => {}
            Err(DeployError::Deposed) => return DeployError::Deposed.into(),
            Err(error) => {
                record.info.status = status::FAILED.to_owned();
                record.info.description = format!("Upgrade \"{}\" failed: {}", self.owner.name, cluster::error::chain(&error));
                self.note(&record).await;
                if self.options.upgrade_atomic == Some(true) {
                    return self.take_back(record, history, error).await;
                }
                return Outcome { record: Some(record), error: Some(error) };
            }
        }
        match self.settle(&mut record, history, "Upgrade complete".to_owned()).await {
            Ok(()) => Outcome { record: Some(record), error: None },
            Err(error) => Outcome { record: Some(record), error: Some(error) },
        }
    }

    /// Puts the objects of `record` in the place of those of `current`.
    async fn replace(&self, current: &Record, record: &mut Record, before: &'static str, after: &'static str) -> Result<(), DeployError> {
        let until = self.until();
        self.run_hooks(record, before).await?;
        let (old, new) = (self.objects(&current.manifest).await?, self.objects(&record.manifest).await?);
        self.child.apply_all(&new, self.options.force == Some(true), until).await?;
        let mut gone = left_over(&old, &new);
        into_order_of_going(&mut gone);
        for object in &gone {
            self.child.delete(object, Some(self.owner)).await?;
        }
        self.await_ready(&new, until).await?;
        self.run_hooks(record, after).await
    }

    /// The record is the one that is deployed; all that were before are not any more.
    async fn settle(&self, record: &mut Record, history: &[Record], description: String) -> Result<(), DeployError> {
        for old in history.iter().filter(|r| r.info.status == status::DEPLOYED) {
            let mut old = old.clone();
            old.info.status = status::SUPERSEDED.to_owned();
            self.storage().update(&old).await?;
        }
        record.info.status = status::DEPLOYED.to_owned();
        record.info.description = description;
        self.storage().update(record).await
    }

    /// After an upgrade that failed: back to the last revision that was deployed.
    async fn take_back(&self, failed: Record, history: &[Record], error: DeployError) -> Outcome {
        let good = history.iter().rev().find(|r| matches!(r.info.status.as_str(), status::DEPLOYED | status::SUPERSEDED));
        let Some(good) = good else { return Outcome { record: Some(failed), error: Some(error) } };
        let mut all = history.to_vec();
        all.push(failed.clone());
        let why = cluster::error::chain(&error);
        match self.roll_back(&all, &failed, good).await {
            Ok(record) => Outcome { record: Some(record), error: Some(error) },
            Err(source) => {
                let error = DeployError::Twice { first: why, verb: "rolling back", source: Box::new(source) };
                Outcome { record: Some(failed), error: Some(error) }
            }
        }
    }

    async fn roll_back(&self, history: &[Record], current: &Record, to: &Record) -> Result<Record, DeployError> {
        let mut record = to.clone();
        record.version = history.last().map_or(0, |r| r.version) + 1;
        record.info.last_deployed = self.now();
        record.info.first_deployed.clone_from(&current.info.first_deployed);
        record.info.status = status::PENDING_ROLLBACK.to_owned();
        record.info.description = format!("Rollback to {}", to.version);
        record.apply_method = "ssa".to_owned();
        self.storage().make_room(history).await?;
        self.storage().create(&record).await?;
        let description = record.info.description.clone();
        match self.replace(current, &mut record, "pre-rollback", "post-rollback").await {
            Ok(()) => {
                self.settle(&mut record, history, description).await?;
                Ok(record)
            }
            Err(DeployError::Deposed) => Err(DeployError::Deposed),
            Err(error) => {
                record.info.status = status::FAILED.to_owned();
                record.info.description = format!("Rollback \"{}\" failed: {}", self.owner.name, cluster::error::chain(&error));
                self.note(&record).await;
                Err(error)
            }
        }
    }

    /// Takes a release away with all its records. Repeating it is no fault.
    pub(super) async fn uninstall(&self, history: &[Record]) -> Result<(), DeployError> {
        let Some(last) = history.last() else { return Ok(()) };
        if last.info.status != status::UNINSTALLED {
            let mut record = last.clone();
            record.info.status = status::UNINSTALLING.to_owned();
            record.info.deleted = self.now();
            record.info.description = "Deletion in progress (or silently failed)".to_owned();
            self.storage().update(&record).await?;
            self.run_hooks(&mut record, "pre-delete").await?;
            let mut objects = self.objects(&record.manifest).await?;
            into_order_of_going(&mut objects);
            for object in &objects {
                self.child.delete(object, Some(self.owner)).await?;
            }
            self.run_hooks(&mut record, "post-delete").await?;
        }
        self.storage().forget(history).await
    }
}

/// How long a single action may take.
pub(super) fn timeout(options: &HelmOptions) -> Duration {
    match u64::try_from(options.timeout_seconds) {
        Ok(0) | Err(_) => Duration::from_secs(300),
        Ok(seconds) => Duration::from_secs(seconds),
    }
}
