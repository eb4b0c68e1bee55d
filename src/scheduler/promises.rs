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
    /// Free replicas of the feed once all that was promised before is there, as far as is known. An answer below it has seen
    /// some of these replicas.
    free: i64,
    made: Timestamp,
}

impl Promise {
    /// What of it an answer of this many free replicas about the same feed has not seen yet.
    fn unseen(&self, free: i64) -> i64 {
        self.replicas - self.free.saturating_sub(free).clamp(0, self.replicas)
    }
}

/// What one who asks finds promised in a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Promised {
    /// Replicas for which there is no room, since it is promised.
    pub(crate) all: i64,
    /// Those of them that were placed a moment ago and may be counted twice, here and by the predictor.
    pub(crate) doubtful: i64,
}

/// Who asks, and what was answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asks<'a> {
    /// Subscription.
    pub(crate) key: &'a str,
    /// Feed.
    pub(crate) feed: &'a str,
    /// What one replica needs.
    pub(crate) needs: &'a Needs,
    /// Free replicas as the predictor has it.
    pub(crate) free: i64,
    /// Since when it finds no room; what was placed later than that is no doubt, or it would wait for ever on a busy day.
    pub(crate) short_since: Timestamp,
}

/// Replicas that were placed.
pub(crate) struct Placed<'a> {
    /// Cluster.
    pub(crate) cluster: &'a Arc<str>,
    /// Subscription.
    pub(crate) to: &'a Key,
    /// Feed.
    pub(crate) feed: &'a Arc<str>,
    /// How many.
    pub(crate) replicas: i64,
    /// What one of them needs.
    pub(crate) needs: &'a Arc<Needs>,
    /// Free replicas when this was decided.
    pub(crate) free: i64,
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
    pub(crate) fn placed(&mut self, placed: &Placed<'_>, now: Timestamp) {
        let Placed { cluster, to, feed, replicas, needs, free } = *placed;
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
        list.push(Promise { to: Arc::clone(to), feed: Arc::clone(feed), replicas, needs: Arc::clone(needs), until, nominated: false, free, made: now });
    }

    /// Room was made for somebody.
    pub(crate) fn nominate(&mut self, cluster: &Arc<str>, to: &Key, feed: &str, replicas: i64, needs: Needs, now: Timestamp) {
        let until = now.saturating_add(NOMINATED).unwrap_or(Timestamp::MAX);
        self.first = Some(self.first.map_or(until, |first| first.min(until)));
        let promise = Promise { to: Arc::clone(to), feed: Arc::from(feed), replicas, needs: Arc::new(needs), until, nominated: true, free: 0, made: now };
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

    /// When the last of what was placed a moment ago is over.
    pub(crate) fn settled(&self) -> Option<Timestamp> {
        self.by_cluster.values().flatten().filter(|one| !one.nominated).map(|one| one.until).max()
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
    /// How many replicas find their room promised. Room nominated for the one who asks is its own, and of what it placed itself
    /// a moment ago only that counts which the predictor has not seen yet.
    pub(crate) fn of(&mut self, cluster: &str, asks: &Asks<'_>) -> Promised {
        let mut out = Promised::default();
        for one in self.0.find(cluster).into_iter().flat_map(|(_, list)| list) {
            let own = *one.to == *asks.key;
            if one.nominated && own {
                continue;
            }
            let replicas = if own && *one.feed == *asks.feed { one.unseen(asks.free) } else { one.replicas };
            let cost = one.needs.cost(replicas, asks.needs);
            out.all = out.all.saturating_add(cost);
            if !one.nominated && one.made <= asks.short_since {
                out.doubtful = out.doubtful.saturating_add(cost);
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    /// Own replicas count until the predictor has seen them, and no longer.
    #[test]
    fn own_replicas_are_not_counted_twice() {
        let (cluster, key, feed, needs): (Arc<str>, Key, Arc<str>, Arc<Needs>) = ("c".into(), "fleet/a".into(), "f".into(), Arc::default());
        let mut promises = Promises::default();
        let of = |promises: &Promises, key: &str, free: i64| {
            promises.in_order().of("c", &Asks { key, feed: "f", needs: &Needs::default(), free, short_since: at(9) })
        };
        let place = |promises: &mut Promises, replicas: i64, free: i64| {
            promises.placed(&Placed { cluster: &cluster, to: &key, feed: &feed, replicas, needs: &needs, free }, at(1));
        };
        place(&mut promises, 5, 10);
        assert_eq!(of(&promises, "fleet/a", 10).all, 5);
        assert_eq!(of(&promises, "fleet/a", 7).all, 2);
        assert_eq!(of(&promises, "fleet/a", 5).all, 0);
        // Others cannot tell whose Pods were seen; they find no room, but it is in doubt.
        assert_eq!(of(&promises, "fleet/b", 5), Promised { all: 5, doubtful: 5 });
        // A second one on top, decided on an answer that had not seen the first.
        place(&mut promises, 3, 5);
        assert_eq!([10, 5, 3, 2].map(|free| of(&promises, "fleet/a", free).all), [8, 3, 1, 0]);
        promises.nominate(&cluster, &key, "f", 2, Needs::default(), at(1));
        assert_eq!((of(&promises, "fleet/a", 2).all, of(&promises, "fleet/b", 2)), (0, Promised { all: 10, doubtful: 8 }));
    }
}
