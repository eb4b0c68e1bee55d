//! Room that is promised: replicas placed a moment ago, which predictors do not see yet, and room that preemption made.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use plan::placement::Finder;
use plan::placement::preempt::Needs;

use crate::queue::Key;

/// By then the Pods are there, and the predictor counts them itself.
const GROWTH: Duration = Duration::from_secs(20);
/// Who was displaced has gone by then, and who came has taken its place.
const NOMINATED: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Promise {
    to: Key,
    feed: Arc<str>,
    replicas: i64,
    needs: Arc<Needs>,
    until: Timestamp,
    /// Room that was made for `to`, which it does not have yet.
    nominated: bool,
}

/// All promises, by cluster.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    by_cluster: BTreeMap<Arc<str>, Vec<Promise>>,
    /// Nothing is over before this.
    first: Option<Timestamp>,
}

impl Promises {
    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_cluster.is_empty()
    }

    /// Replicas were placed; they use up what was nominated for them.
    pub(crate) fn placed(&mut self, cluster: &Arc<str>, to: &Key, feed: &Arc<str>, replicas: i64, needs: &Arc<Needs>, now: Timestamp) {
        let list = self.by_cluster.entry(Arc::clone(cluster)).or_default();
        let mut used = replicas;
        for one in list.iter_mut().filter(|one| one.nominated && one.to == *to && one.feed == *feed) {
            let part = one.replicas.min(used);
            one.replicas -= part;
            used -= part;
        }
        list.retain(|one| one.replicas > 0);
        let until = now.saturating_add(GROWTH).unwrap_or(Timestamp::MAX);
        self.first = Some(self.first.map_or(until, |first| first.min(until)));
        list.push(Promise { to: Arc::clone(to), feed: Arc::clone(feed), replicas, needs: Arc::clone(needs), until, nominated: false });
    }

    /// Room was made for somebody.
    pub(crate) fn nominate(&mut self, cluster: &Arc<str>, to: &Key, feed: &str, replicas: i64, needs: Needs, now: Timestamp) {
        let until = now.saturating_add(NOMINATED).unwrap_or(Timestamp::MAX);
        self.first = Some(self.first.map_or(until, |first| first.min(until)));
        let promise = Promise { to: Arc::clone(to), feed: Arc::from(feed), replicas, needs: Arc::new(needs), until, nominated: true };
        self.by_cluster.entry(Arc::clone(cluster)).or_default().push(promise);
    }

    /// What is promised in one cluster after the other.
    pub(crate) fn in_order(&self) -> InOrder<'_> {
        InOrder(Finder::over(&self.by_cluster))
    }

    /// Replicas of a feed for which room was made already.
    pub(crate) fn nominated(&self, to: &str, feed: &str) -> i64 {
        let own = self.by_cluster.values().flatten().filter(|one| one.nominated && *one.to == *to && *one.feed == *feed);
        own.map(|one| one.replicas).sum()
    }

    /// Takes back all that was promised to somebody.
    pub(crate) fn withdraw(&mut self, to: &str) {
        self.drop_if(|one| *one.to == *to);
    }

    /// Forgets what is over.
    pub(crate) fn expire(&mut self, now: Timestamp) {
        if self.first.is_some_and(|first| first <= now) {
            self.drop_if(|one| one.until <= now);
            self.first = self.by_cluster.values().flatten().map(|one| one.until).min();
        }
    }

    fn drop_if(&mut self, over: impl Fn(&Promise) -> bool) {
        self.by_cluster.retain(|_, list| {
            list.retain(|one| !over(one));
            !list.is_empty()
        });
    }
}

/// What is promised in clusters, asked for best in order of their keys.
pub(crate) struct InOrder<'a>(Finder<'a, Vec<Promise>>);

impl InOrder<'_> {
    /// How many replicas that need this much find their room promised to others. Room nominated for the one who asks is its own.
    pub(crate) fn of(&mut self, cluster: &str, asks: &str, needs: &Needs) -> i64 {
        let others = self.0.find(cluster).into_iter().flat_map(|(_, list)| list).filter(|one| !(one.nominated && *one.to == *asks));
        others.map(|one| one.needs.cost(one.replicas, needs)).fold(0, i64::saturating_add)
    }
}
