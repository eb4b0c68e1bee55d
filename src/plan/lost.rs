//! Deletion never waits for a cluster that cannot answer any more.
//!
//! Descriptions and HelmReleases carry a finalizer until their objects have left the child. When the cluster is gone or has
//! fallen silent, nobody will ever take it off: then the parent does. A cluster that comes back finds its branch (or its
//! Descriptions) without those objects and prunes them by its own inventory.

use api::ObjectMeta;
use api::clusters::ManagedCluster;
use api::conditions;
use api::known::{condition, finalizer};
use serde_json::json;

use crate::step::{MetaWish, Step, Version, app_ref};

/// Whether a cluster can still do its part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// It answers, or has not been heard of yet.
    Answers,
    /// It was heard of and fell silent.
    Silent,
    /// There is no such cluster.
    Gone,
}

impl Reach {
    /// Of the cluster that an object in a dedicated namespace is for.
    #[must_use]
    pub fn of(cluster: Option<&ManagedCluster>) -> Self {
        let Some(cluster) = cluster else { return Self::Gone };
        let conditions = cluster.status.as_ref().map_or(&[][..], |status| &status.conditions);
        match conditions::find(conditions, condition::READY) {
            // `False` is a word of the agent itself: it is alive and can delete.
            Some(ready) if ready.status == "Unknown" => Self::Silent,
            _ => Self::Answers,
        }
    }
}

/// Decides for an object that is being deleted. `untouched` is true when no deployer ever took it up.
#[must_use]
pub fn decide(kind: &str, meta: &ObjectMeta, reach: Reach, untouched: bool) -> Vec<Step> {
    if meta.deletion_timestamp.is_none() || (reach == Reach::Answers && !untouched) {
        return Vec::new();
    }
    let wish = MetaWish { without_finalizers: vec![finalizer::APP], ..MetaWish::default() };
    let patch = wish.patch(meta).map(|patch| json!({"metadata": patch}));
    patch.map(|patch| Step::Patch { at: app_ref(kind, meta), patch, only_if: Version::exactly(meta) }).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::Time;
    use api::conditions::Verdict;

    #[test]
    fn only_a_cluster_that_cannot_answer_is_not_waited_for() {
        let mut cluster = ManagedCluster::default();
        assert_eq!(Reach::of(Some(&cluster)), Reach::Answers);
        assert_eq!(Reach::of(None), Reach::Gone);
        for (verdict, want) in [(Verdict::True, Reach::Answers), (Verdict::False, Reach::Answers), (Verdict::Unknown, Reach::Silent)] {
            let status = cluster.status.get_or_insert_default();
            conditions::set(&mut status.conditions, condition::READY, verdict, "x", "", None, &Time(jiff::Timestamp::UNIX_EPOCH));
            assert_eq!(Reach::of(Some(&cluster)), want);
        }
        let mut meta = ObjectMeta { finalizers: Some(vec![finalizer::APP.to_owned(), "other".to_owned()]), ..ObjectMeta::default() };
        assert!(decide("Description", &meta, Reach::Gone, false).is_empty(), "only what is being deleted");
        meta.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
        assert!(decide("Description", &meta, Reach::Answers, false).is_empty());
        assert!(matches!(&decide("Description", &meta, Reach::Silent, false)[..], [Step::Patch { patch, .. }] if patch["metadata"]["finalizers"] == json!(["other"])));
        assert_eq!(decide("HelmRelease", &meta, Reach::Answers, true).len(), 1, "what nobody deployed has nothing to take back");
    }
}
