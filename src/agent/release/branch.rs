//! What the cluster's branch has of a release, and the waiting for it.
//!
//! A release that is rendered for a branch comes from there and from nowhere else: the branch shows it before it is applied. Whatever is
//! missing is waited for, told, and never made up for by rendering here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::apps::{HelmRelease, HelmReleaseStatus};
use api::known::annotation;
use chart::helm::record::status as word;
use engine::{Key, Next};
use plan::rendered::{self, Pin, Rendered};
use tokio::time::Instant;

use super::Releases;
use super::error::DeployError;
use super::objects::Owner;
use super::storage::Storage;

/// What is waited for longer than this is told; most waits are for the next commit.
const TELL: Duration = Duration::from_secs(3);
/// A parent that knows nothing of releases that were there before is waited for no longer than this.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the branch has of a release.
pub(super) enum Branch {
    /// The cluster has none, or its releases are not rendered for it.
    None,
    /// It has not caught up: what is waited for.
    NotYet(String),
    /// These files.
    Has(Arc<Rendered>),
}

/// What releases wait for, and since when.
pub(super) type Waits = BTreeMap<Key, (String, Instant)>;

impl Releases {
    /// What the branch has of a release.
    pub(super) async fn in_branch(&self, release: &HelmRelease, rendered: Option<&BTreeMap<String, Arc<Rendered>>>) -> Result<Branch, DeployError> {
        if !release.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(annotation::RENDER)) {
            return Ok(Branch::None);
        }
        let not_yet = |why: &str| Ok(Branch::NotYet(why.to_owned()));
        let Some(pin) = Pin::read(release) else { return not_yet("waits for a parent that says in words known here what its branch has") };
        if let Some(why) = self.is_to_be_told(release, &pin).await? {
            return Ok(Branch::NotYet(why));
        }
        if !pin.waits.is_empty() {
            return Ok(Branch::NotYet(format!("waits for the cluster's branch, which waits for {}", pin.waits)));
        }
        self.answer(release, &pin).await?;
        if !pin.fault.is_empty() {
            return Err(DeployError::Unrendered(pin.fault));
        }
        let Some(all) = rendered else { return not_yet("waits for the first commit of the cluster's branch") };
        let found = all.get(release.metadata.name.as_deref().unwrap_or_default()).filter(|found| found.of == pin.of && found.over == pin.over);
        Ok(match found {
            Some(found) => Branch::Has(found.clone()),
            None => Branch::NotYet("waits for its files in the cluster's branch".to_owned()),
        })
    }

    /// Tells the parent of a release that somebody else has under this name, so that the next revision of that is rendered. What is waited
    /// for, while that has not come.
    async fn is_to_be_told(&self, release: &HelmRelease, pin: &Pin) -> Result<Option<String>, DeployError> {
        if rendered::is_deployed(release) {
            return Ok(None);
        }
        let owner = Owner::of(release);
        let history = Storage { child: &self.child, owner: &owner, clock: &*self.session.shared.clock }.history().await?;
        let before = release.status.clone().unwrap_or_default();
        let Some(last) = history.last().filter(|last| last.info.status != word::UNINSTALLING && last.version >= pin.revision) else { return Ok(None) };
        // An agent of before has deployed it, and kept no note of the place.
        if before.phase == word::DEPLOYED && i64::from(before.version) == last.version {
            return Ok(None);
        }
        let phase = if last.info.status == word::UNINSTALLED { word::UNINSTALLED } else { rendered::FOUND };
        let description = format!("revision {} of {} {} was there before", last.version, last.chart_text("name"), last.chart_text("version"));
        self.tell(release, HelmReleaseStatus { phase: phase.to_owned(), description, ..super::status::of(last) }).await;
        let why = format!("waits for the revision after {}, which was there before, in the cluster's branch", last.version);
        // While nothing is pinned there is something else to wait for anyway.
        Ok((!pin.of.is_empty() && self.waited(&Key::of(release), &why) < PATIENCE).then_some(why))
    }

    /// How long a release has waited for this.
    fn waited(&self, key: &Key, why: &str) -> Duration {
        let mut waits = self.waits.lock();
        let slot = waits.entry(key.clone()).or_insert_with(|| (why.to_owned(), Instant::now()));
        if slot.0 != why {
            *slot = (why.to_owned(), Instant::now());
        }
        slot.1.elapsed()
    }

    /// Waits: what is deployed stays, and after a while it is told what for.
    pub(super) async fn wait(&self, release: &HelmRelease, why: &str) -> Next {
        self.keep(release).await;
        let key = Key::of(release);
        let waited = self.waited(&key, why);
        if waited < TELL {
            return Next::After(TELL - waited);
        }
        // What was told of the release itself stands.
        let before = self.releases.get_key(&key).and_then(|now| now.status.clone()).unwrap_or_default();
        if before.phase != rendered::FOUND && before.phase != word::UNINSTALLED {
            self.tell(release, HelmReleaseStatus { description: why.to_owned(), ..before }).await;
        }
        if waited < PATIENCE { Next::After(PATIENCE - waited) } else { Next::Done }
    }
}
