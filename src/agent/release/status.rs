//! How releases are, as the parent is told: statuses of HelmReleases and of their Descriptions, finalizers that are done with.

use std::sync::Arc;

use api::apps::{Description, DescriptionPhase, HelmRelease, HelmReleaseStatus};
use api::known::{finalizer, manager};
use chart::Record;
use chart::helm::record::status as word;
use cluster::{Trouble, trouble};
use engine::{Key, Next};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{Gate, Releases};

fn params() -> PatchParams {
    PatchParams { field_manager: Some(manager::AGENT.to_owned()), ..PatchParams::default() }
}

/// A time of a record as Go prints it.
fn go_time(text: &str) -> String {
    match text.parse::<jiff::Timestamp>() {
        Ok(at) => {
            let mut out = at.strftime("%Y-%m-%d %H:%M:%S").to_string();
            let nanos = format!("{:09}", at.subsec_nanosecond());
            let nanos = nanos.trim_end_matches('0');
            if !nanos.is_empty() {
                out.push('.');
                out.push_str(nanos);
            }
            out.push_str(" +0000 UTC");
            out
        }
        Err(_) => text.to_owned(),
    }
}

/// The status of a HelmRelease by its revision.
pub(super) fn of(record: &Record) -> HelmReleaseStatus {
    HelmReleaseStatus {
        first_deployed: go_time(&record.info.first_deployed),
        last_deployed: go_time(&record.info.last_deployed),
        description: record.info.description.clone(),
        phase: record.info.status.clone(),
        notes: record.info.notes.clone(),
        version: i32::try_from(record.version).unwrap_or(i32::MAX),
    }
}

/// The status of a HelmRelease whose wish failed, by the revision that stands now: one that was deployed before runs on, but is not what
/// was wanted.
pub(super) fn after_failure(record: &Record, why: &str) -> HelmReleaseStatus {
    let now = of(record);
    if record.info.status != word::DEPLOYED {
        return now;
    }
    let (chart, version) = (record.chart_text("name"), record.chart_text("version"));
    let description = format!("Upgrade \"{}\" failed: {why}; revision {} runs: {chart} {version} ({})", record.name, record.version, record.info.description);
    HelmReleaseStatus { phase: word::FAILED.to_owned(), description, ..now }
}

/// The phase of a Description by the phase of one of its releases.
fn phase_of(phase: &str) -> DescriptionPhase {
    match phase {
        word::DEPLOYED => DescriptionPhase::Success,
        word::PENDING_INSTALL => DescriptionPhase::Installing,
        word::PENDING_UPGRADE | word::PENDING_ROLLBACK => DescriptionPhase::Upgrading,
        word::UNINSTALLING => DescriptionPhase::Uninstalling,
        word::SUPERSEDED => DescriptionPhase::Superseded,
        word::FAILED => DescriptionPhase::Failure,
        _ => DescriptionPhase::Unknown,
    }
}

/// Phase and reason of a Description by its charts' releases. `refused` tells of charts that get none. `None` while a release
/// has not been taken up, and says nothing of what it waits for: the status of before stands.
pub(super) fn summary(releases: &[(&str, Option<&HelmReleaseStatus>)], refused: &[String]) -> Option<(DescriptionPhase, String)> {
    let mut reasons: Vec<String> = refused.to_vec();
    let mut worst = if refused.is_empty() { DescriptionPhase::Success } else { DescriptionPhase::Failure };
    let rank = |phase: DescriptionPhase| match phase {
        DescriptionPhase::Success => 0,
        DescriptionPhase::Superseded => 1,
        DescriptionPhase::Unknown | DescriptionPhase::Pending => 2,
        DescriptionPhase::Uninstalling => 3,
        DescriptionPhase::Upgrading => 4,
        DescriptionPhase::Installing => 5,
        DescriptionPhase::Failure => 6,
    };
    let mut waits = false;
    let mut wants: Vec<&str> = Vec::new();
    for (name, status) in releases {
        let Some(status) = status.filter(|s| !s.phase.is_empty()) else {
            waits = true;
            wants.extend(status.map(|s| s.description.as_str()).filter(|why| !why.is_empty()));
            continue;
        };
        let phase = phase_of(&status.phase);
        if phase == DescriptionPhase::Failure {
            reasons.push(if releases.len() > 1 { format!("{name}: {}", status.description) } else { status.description.clone() });
        }
        if rank(phase) > rank(worst) {
            worst = phase;
        }
    }
    if waits && worst != DescriptionPhase::Failure {
        return (!wants.is_empty()).then(|| (DescriptionPhase::Pending, wants.join("; ")));
    }
    Some((worst, reasons.join("; ")))
}

impl Releases {
    /// Writes the status of a HelmRelease when it changed.
    pub(super) async fn tell(&self, release: &HelmRelease, now: HelmReleaseStatus) {
        let key = Key::of(release);
        let known = self.releases.get_key(&key);
        if known.as_ref().is_some_and(|k| k.metadata.uid == release.metadata.uid && k.status.as_ref() == Some(&now)) {
            return;
        }
        let text = |value: &str| if value.is_empty() { Value::Null } else { json!(value) };
        let patch = json!({
            "metadata": {"uid": release.metadata.uid},
            "status": {
                "firstDeployed": text(&now.first_deployed),
                "lastDeployed": text(&now.last_deployed),
                "description": text(&now.description),
                "phase": text(&now.phase),
                "notes": text(&now.notes),
                "version": if now.version == 0 { Value::Null } else { json!(now.version) },
            },
        });
        let api: Api<HelmRelease> = Api::namespaced(self.session.parent.clone(), &self.session.namespace);
        match api.patch_status(&key.name, &params(), &Patch::Merge(&patch)).await {
            Ok(written) => self.releases.assume(written),
            Err(error) if matches!(trouble(&error), Trouble::NotFound | Trouble::Conflict) => {}
            Err(error) => {
                self.session.note(&error);
                tracing::warn!(release = %key, error = cluster::error::message(&error), "cannot write the status of a HelmRelease");
            }
        }
    }

    /// Takes the finalizer off.
    pub(super) async fn let_go(&self, release: &HelmRelease) -> Next {
        let left: Vec<&String> = release.metadata.finalizers.iter().flatten().filter(|f| *f != finalizer::APP).collect();
        let name = release.metadata.name.as_deref().unwrap_or_default();
        let api: Api<HelmRelease> = Api::namespaced(self.session.parent.clone(), &self.session.namespace);
        // The version of before our own status: read it anew, so that no other finalizer is lost.
        let version = self.releases.get(&self.session.namespace, name).filter(|r| r.metadata.uid == release.metadata.uid).and_then(|r| r.metadata.resource_version.clone());
        let patch = json!({"metadata": {"resourceVersion": version.or_else(|| release.metadata.resource_version.clone()), "uid": release.metadata.uid, "finalizers": left}});
        match api.patch(name, &params(), &Patch::Merge(&patch)).await {
            Ok(_) => {
                tracing::info!(release = name, "let go");
                Next::Done
            }
            Err(error) if trouble(&error) == Trouble::NotFound => Next::Done,
            Err(error) => {
                self.session.note(&error);
                tracing::debug!(release = name, error = cluster::error::message(&error), "cannot let a HelmRelease go yet");
                Next::Again
            }
        }
    }

    /// Writes the status of a Description of charts when it changed.
    pub(super) async fn describe(&self, key: &Key) -> Next {
        if matches!(*self.gate.lock(), Gate::Shut) {
            return Next::Done;
        }
        let Some(description) = self.descriptions.get_key(key) else { return Next::Done };
        if description.metadata.deletion_timestamp.is_some() {
            return Next::Done;
        }
        let Some((phase, reason)) = self.summary_of(&description) else { return Next::Done };
        let before = description.status.clone().unwrap_or_default();
        if before.phase == Some(phase) && before.reason == reason {
            return Next::Done;
        }
        let patch = json!({
            "metadata": {"uid": description.metadata.uid},
            "status": {"phase": phase, "reason": if reason.is_empty() { Value::Null } else { json!(reason) }},
        });
        let api: Api<Description> = Api::namespaced(self.session.parent.clone(), &self.session.namespace);
        match api.patch_status(&key.name, &params(), &Patch::Merge(&patch)).await {
            Ok(written) => {
                self.descriptions.assume(written);
                Next::Done
            }
            Err(error) if matches!(trouble(&error), Trouble::NotFound | Trouble::Conflict) => Next::Done,
            Err(error) => {
                self.session.note(&error);
                tracing::warn!(description = %key, error = cluster::error::message(&error), "cannot write the status of a Description");
                Next::Again
            }
        }
    }

    fn summary_of(&self, description: &Description) -> Option<(DescriptionPhase, String)> {
        let name = description.metadata.name.as_deref().unwrap_or_default();
        let refused = plan::releases::refused(description);
        let names: Vec<String> = description
            .spec
            .charts
            .iter()
            .enumerate()
            .filter(|(at, _)| !refused.contains_key(at))
            .map(|(_, chart)| plan::releases::release_name(name, &chart.namespace, &chart.name))
            .collect();
        let found: Vec<Option<Arc<HelmRelease>>> = names.iter().map(|n| self.releases.get(&self.session.namespace, n)).collect();
        let list: Vec<(&str, Option<&HelmReleaseStatus>)> =
            names.iter().zip(&found).map(|(n, r)| (n.as_str(), r.as_ref().and_then(|r| r.status.as_ref()))).collect();
        summary(&list, &refused.into_values().collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_look_like_gos() {
        assert_eq!(go_time("2026-05-01T12:00:00.120Z"), "2026-05-01 12:00:00.12 +0000 UTC");
        assert_eq!(go_time("2026-05-01T14:00:00+02:00"), "2026-05-01 12:00:00 +0000 UTC");
        assert_eq!(go_time(""), "");
    }

    #[test]
    fn the_worst_release_counts_and_waiting_says_nothing() {
        let status = |phase: &str| HelmReleaseStatus { phase: phase.into(), description: format!("is {phase}"), ..HelmReleaseStatus::default() };
        let (deployed, failed, pending) = (status("deployed"), status("failed"), status("pending-upgrade"));
        assert_eq!(summary(&[("a", Some(&deployed))], &[]), Some((DescriptionPhase::Success, String::new())));
        assert_eq!(summary(&[("a", Some(&deployed)), ("b", Some(&pending))], &[]), Some((DescriptionPhase::Upgrading, String::new())));
        assert_eq!(summary(&[("a", Some(&failed)), ("b", Some(&pending))], &[]), Some((DescriptionPhase::Failure, "a: is failed".into())));
        assert_eq!(summary(&[("a", Some(&deployed)), ("b", None)], &[]), None);
        let waits = HelmReleaseStatus { description: "waits for a commit".into(), ..HelmReleaseStatus::default() };
        assert_eq!(summary(&[("a", Some(&deployed)), ("b", Some(&waits))], &[]), Some((DescriptionPhase::Pending, "waits for a commit".into())));
        assert_eq!(summary(&[("a", Some(&deployed))], &["no".to_owned()]), Some((DescriptionPhase::Failure, "no".into())));
    }
}
