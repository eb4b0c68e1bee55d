//! Wishes that failed: what was wanted, how often it was tried, and when it may be tried again.
//!
//! Records do not tell: a failed installation may be taken away with all of them, and after a rollback the last one is a success. Without
//! a memory every turn would run the same hooks to the same end. It is kept on the HelmRelease, so that a restart does not begin anew.

use std::time::Duration;

use api::apps::HelmRelease;
use api::known::{annotation, manager};
use engine::Key;
use kube::Api;
use kube::api::{Patch, PatchParams};
use plan::rendered::{self, Pin};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{RETRY, Releases};

/// Longest reason that is kept, in bytes; the records have the rest.
const WHY_MAX: usize = 2_000;

/// A wish that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Failed {
    /// Hash of the wish.
    of: String,
    /// How often it was tried.
    times: u32,
    /// When it may be tried again, seconds since 1970.
    again: i64,
    /// How it failed, as it is told.
    pub(super) why: String,
}

impl Failed {
    /// One more failure of a wish.
    fn next(before: Option<&Self>, of: &str, why: &str, now: i64) -> Self {
        let times = before.filter(|before| before.of == of).map_or(0, |before| before.times);
        let wait = (RETRY.0 * 2_u32.saturating_pow(times.min(16))).min(RETRY.1);
        let end = (0..=why.len().min(WHY_MAX)).rev().find(|end| why.is_char_boundary(*end)).unwrap_or_default();
        Self { of: of.to_owned(), times: times.saturating_add(1), again: now.saturating_add(seconds(wait)), why: why[..end].to_owned() }
    }

    /// How long until it may be tried again. A clock that was put back does not make it longer than it ever is.
    fn left(&self, now: i64) -> Duration {
        Duration::from_secs(u64::try_from(self.again.saturating_sub(now)).unwrap_or_default()).min(RETRY.1)
    }
}

fn seconds(wait: Duration) -> i64 {
    i64::try_from(wait.as_secs()).unwrap_or(i64::MAX)
}

/// What is wanted of a HelmRelease, in few letters; a request to look again makes it another.
fn wish(release: &HelmRelease) -> String {
    let annotations = release.metadata.annotations.clone().unwrap_or_default();
    let pin = Pin::read(release).map(|pin| format!("{}/{}", pin.of, pin.over)).unwrap_or_default();
    rendered::wish(&json!(release.spec), &annotations, &pin)
}

impl Releases {
    fn seconds(&self) -> i64 {
        self.session.shared.clock.now().as_second()
    }

    /// What is remembered of the wish.
    pub(super) fn remembered(&self, release: &HelmRelease) -> Option<Failed> {
        let kept = || serde_json::from_str(release.metadata.annotations.as_ref()?.get(annotation::FAILED_WISH)?).ok();
        let known = self.failed.lock().get(&Key::of(release)).cloned();
        known.or_else(kept).filter(|failed: &Failed| failed.of == wish(release))
    }

    /// How long until a wish may be tried again.
    pub(super) fn left(&self, failed: &Failed) -> Duration {
        failed.left(self.seconds())
    }

    /// Remembers that the wish failed.
    pub(super) async fn remember(&self, release: &HelmRelease, why: &str) -> Failed {
        let failed = Failed::next(self.remembered(release).as_ref(), &wish(release), why, self.seconds());
        self.failed.lock().insert(Key::of(release), failed.clone());
        self.keep_memory(release, json!(json!(failed).to_string())).await;
        failed
    }

    /// Forgets: the wish was had.
    pub(super) async fn forgive(&self, release: &HelmRelease) {
        let key = Key::of(release);
        self.failed.lock().remove(&key);
        let now = self.releases.get_key(&key);
        if now.is_some_and(|now| now.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(annotation::FAILED_WISH))) {
            self.keep_memory(release, Value::Null).await;
        }
    }

    async fn keep_memory(&self, release: &HelmRelease, text: Value) {
        let key = Key::of(release);
        let api: Api<HelmRelease> = Api::namespaced(self.session.parent.clone(), &self.session.namespace);
        let patch = json!({"metadata": {"uid": release.metadata.uid, "annotations": {annotation::FAILED_WISH: text}}});
        let how = PatchParams { field_manager: Some(manager::AGENT.to_owned()), ..PatchParams::default() };
        match api.patch(&key.name, &how, &Patch::Merge(&patch)).await {
            Ok(written) => self.releases.assume(written),
            // This process remembers all the same.
            Err(error) => {
                self.session.note(&error);
                tracing::debug!(release = %key, error = cluster::error::message(&error), "cannot keep what failed");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_of_a_wish_waits_longer_up_to_a_bound_and_another_wish_begins_anew() {
        let mut failed = Failed::next(None, "a", "no", 1_000);
        assert_eq!((failed.times, failed.left(1_000), failed.left(1_061)), (1, Duration::from_secs(60), Duration::ZERO));
        failed = Failed::next(Some(&failed), "a", "no", 2_000);
        assert_eq!((failed.times, failed.left(2_000)), (2, Duration::from_secs(120)));
        for _ in 0..40 {
            failed = Failed::next(Some(&failed), "a", "no", 2_000);
        }
        assert_eq!(failed.left(2_000), RETRY.1);
        assert_eq!(failed.left(-1_000_000), RETRY.1, "a clock that was put back");
        assert_eq!(Failed::next(Some(&failed), "b", "no", 0).times, 1);
        assert!(Failed::next(None, "a", &"ü".repeat(WHY_MAX), 0).why.len() <= WHY_MAX);
    }

    #[test]
    fn a_wish_is_its_spec_its_render_and_the_request() {
        let mut release = HelmRelease::default();
        let first = wish(&release);
        release.metadata.annotations = Some([(annotation::ANSWERED.to_owned(), "a/1".to_owned()), (annotation::FAILED_WISH.to_owned(), "{}".to_owned())].into());
        assert_eq!(wish(&release), first);
        for (key, value) in [(annotation::RECONCILE_REQUEST, "now".to_owned()), (annotation::RENDER, Pin { of: "x".into(), ..Pin::default() }.text())] {
            let mut other = release.clone();
            other.metadata.annotations.get_or_insert_default().insert(key.to_owned(), value);
            assert_ne!(wish(&other), first, "{key}");
        }
        release.spec.options.timeout_seconds = 7;
        assert_ne!(wish(&release), first);
    }
}
