//! The tunnels that are open, by cluster id.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use engine::Registry;
use parking_lot::RwLock;
use tokio::sync::watch;
use tunnel::Tunnel;

/// All open sessions. Several replicas of an agent may hold one each; the newest is used. Cloning shares it.
#[derive(Clone)]
pub struct Sessions {
    inner: Arc<Inner>,
}

struct Inner {
    open: RwLock<BTreeMap<String, Vec<Session>>>,
    metrics: Registry,
    /// Counts changes, so that waiters and pools notice a new session.
    changes: watch::Sender<u64>,
}

struct Session {
    serial: u64,
    tunnel: Tunnel,
    since: Instant,
}

impl Default for Sessions {
    fn default() -> Self {
        Self::counted(Registry::new())
    }
}

impl Sessions {
    /// No sessions; those to come are counted here, under the original's names.
    pub fn counted(metrics: Registry) -> Self {
        metrics.gauge("clusternet_socket_connections_count", &[], 0);
        Sessions { inner: Arc::new(Inner { open: RwLock::default(), metrics, changes: watch::channel(0).0 }) }
    }

    fn tell(&self) {
        let count = i64::try_from(self.len()).unwrap_or(i64::MAX);
        self.inner.metrics.gauge("clusternet_socket_connections_count", &[], count);
    }

    /// The session to use for a cluster, with its serial number.
    pub fn get(&self, cluster_id: &str) -> Option<(u64, Tunnel)> {
        let open = self.inner.open.read();
        open.get(cluster_id)?.iter().rev().find(|session| !session.tunnel.is_over()).map(|session| (session.serial, session.tunnel.clone()))
    }

    /// Clusters with an open session.
    pub fn clusters(&self) -> Vec<String> {
        self.inner.open.read().keys().cloned().collect()
    }

    /// How many sessions are open.
    pub fn len(&self) -> usize {
        self.inner.open.read().values().map(Vec::len).sum()
    }

    /// Whether none is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a session; the answer is its serial number for [`Sessions::remove`].
    pub fn add(&self, cluster_id: &str, tunnel: Tunnel) -> u64 {
        let mut serial = 0;
        self.inner.changes.send_modify(|count| {
            *count += 1;
            serial = *count;
        });
        self.inner.open.write().entry(cluster_id.to_owned()).or_default().push(Session { serial, tunnel, since: Instant::now() });
        self.tell();
        // Again, now that it is there: a waiter that was quick has looked too early.
        self.inner.changes.send_modify(|count| *count += 1);
        serial
    }

    /// Removes a session that has ended.
    pub fn remove(&self, cluster_id: &str, serial: u64) {
        let mut open = self.inner.open.write();
        if let Some(list) = open.get_mut(cluster_id) {
            for ended in list.extract_if(.., |session| session.serial == serial) {
                self.inner.metrics.observe("clusternet_socket_connections_duration_seconds", &[], ended.since.elapsed());
            }
            if list.is_empty() {
                open.remove(cluster_id);
            }
        }
        drop(open);
        self.tell();
        self.inner.changes.send_modify(|count| *count += 1);
    }

    /// Tells of every change: a session came or went.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes.subscribe()
    }
}
