//! Hooks of a release: by weight, one after another, each awaited; deleted as their policies say.

use chart::{HookRecord, Record};
use serde_json::Value;
use tokio::time::Instant;

use super::deploy::Job;
use super::error::DeployError;
use super::objects::{called, read};

/// Policies of deletion.
const BEFORE: &str = "before-hook-creation";
const SUCCEEDED: &str = "hook-succeeded";
const FAILED: &str = "hook-failed";

/// Indexes of the hooks for an event, in the order of their runs.
pub(super) fn order(hooks: &[HookRecord], event: &str) -> Vec<usize> {
    let mut out: Vec<usize> = (0..hooks.len()).filter(|at| hooks[*at].events.iter().any(|e| e == event)).collect();
    out.sort_by(|a, b| (hooks[*a].weight, &hooks[*a].name).cmp(&(hooks[*b].weight, &hooks[*b].name)));
    out
}

/// Whether a policy holds; without any, a hook is deleted before it is made again.
pub(super) fn has(hook: &HookRecord, policy: &str) -> bool {
    if hook.delete_policies.is_empty() { policy == BEFORE } else { hook.delete_policies.iter().any(|p| p == policy) }
}

impl Job<'_> {
    /// Runs the hooks for an event; the record tells of each run.
    pub(super) async fn run_hooks(&self, record: &mut Record, event: &'static str) -> Result<(), DeployError> {
        if self.options.disable_hooks == Some(true) {
            return Ok(());
        }
        let until = self.until();
        let order = order(&record.hooks, event);
        for at in &order {
            let hook = &record.hooks[*at];
            let name = format!("{} {}", hook.kind, hook.name);
            let failed = |why: String| DeployError::Hook { event, hook: name.clone(), why };
            let mut objects = read(&hook.manifest, self.rules).map_err(|e| failed(e.to_string()))?;
            for object in &mut objects {
                self.child.place(object, &self.owner.namespace).await?;
            }
            if has(hook, BEFORE) {
                self.delete_hook(&objects, until).await?;
            }
            record.hooks[*at].last_run = chart::helm::record::Run { started_at: self.now(), phase: "Running".to_owned(), ..Default::default() };
            self.storage().update(record).await?;
            let ran = self.run(&objects, until).await;
            let hook = &mut record.hooks[*at];
            hook.last_run.completed_at = self.now();
            hook.last_run.phase = if ran.is_ok() { "Succeeded" } else { "Failed" }.to_owned();
            if let Err(error) = ran {
                if has(hook, FAILED) {
                    self.delete_hook(&objects, until).await?;
                }
                // Those before it have done their part.
                self.delete_done(record, &order, until).await?;
                return Err(failed(cluster::error::chain(&error)));
            }
        }
        self.delete_done(record, &order, until).await
    }

    async fn run(&self, objects: &[Value], until: Instant) -> Result<(), DeployError> {
        for object in objects {
            self.child.make_new(object).await?;
            if matches!(api::object::text(object, "kind"), "Job" | "Pod") {
                self.child.finished(object, until).await?;
            }
        }
        Ok(())
    }

    /// Deletes the hooks that succeeded and shall go then.
    async fn delete_done(&self, record: &Record, order: &[usize], until: Instant) -> Result<(), DeployError> {
        for at in order.iter().rev() {
            let hook = &record.hooks[*at];
            if hook.last_run.phase == "Succeeded" && has(hook, SUCCEEDED) {
                let mut objects = read(&hook.manifest, self.rules)?;
                for object in &mut objects {
                    self.child.place(object, &self.owner.namespace).await?;
                }
                self.delete_hook(&objects, until).await?;
            }
        }
        Ok(())
    }

    async fn delete_hook(&self, objects: &[Value], until: Instant) -> Result<(), DeployError> {
        for object in objects {
            // Definitions never go: with them would go every object of the kind.
            if api::object::text(object, "kind") == "CustomResourceDefinition" {
                continue;
            }
            if self.child.delete(object, None).await? {
                self.child.gone(object, until).await.map_err(|e| match e {
                    DeployError::Timeout(_) => DeployError::Timeout(format!("{} to go", called(object))),
                    other => other,
                })?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hook(name: &str, weight: i64, events: &[&str], policies: &[&str]) -> HookRecord {
        let words = |list: &[&str]| list.iter().map(|w| (*w).to_owned()).collect();
        HookRecord { name: name.into(), weight, events: words(events), delete_policies: words(policies), ..HookRecord::default() }
    }

    #[test]
    fn weight_comes_before_name_and_other_events_stay_away() {
        let hooks = [
            hook("c", 5, &["pre-install"], &[]),
            hook("b", 5, &["pre-install", "pre-upgrade"], &[]),
            hook("z", -1, &["pre-install"], &[]),
            hook("a", 0, &["test"], &[]),
        ];
        let names = |event| order(&hooks, event).into_iter().map(|at| hooks[at].name.as_str()).collect::<Vec<_>>();
        assert_eq!(names("pre-install"), ["z", "b", "c"]);
        assert_eq!(names("pre-upgrade"), ["b"]);
        assert!(names("post-install").is_empty());
    }

    #[test]
    fn a_hook_without_policies_is_deleted_before_it_runs_again() {
        assert!(has(&hook("a", 0, &[], &[]), BEFORE));
        assert!(!has(&hook("a", 0, &[], &[]), SUCCEEDED));
        assert!(!has(&hook("a", 0, &[], &[SUCCEEDED]), BEFORE));
    }
}
