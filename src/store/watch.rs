//! Watchers: who gets which events, and what happens to one who does not keep up.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tokio::sync::mpsc;

use crate::entry::Event;

/// Which part of a table is watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Everything.
    Table,
    /// Keys that start with this text and a `/` (a namespace).
    Under(Box<str>),
    /// One key.
    Key(Box<str>),
}

impl Scope {
    /// Whether a key belongs to the scope.
    #[must_use]
    pub fn holds(&self, key: &str) -> bool {
        match self {
            Self::Table => true,
            Self::Under(first) => key.strip_prefix(&**first).is_some_and(|rest| rest.starts_with('/')),
            Self::Key(own) => **own == *key,
        }
    }
}

/// Why a watch was not possible.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The revision is older than the watch log reaches.
    #[error("watch objects: revision {asked} is compacted, oldest is {oldest}")]
    Compacted {
        /// Revision asked for.
        asked: u64,
        /// Oldest revision that can be resumed from.
        oldest: u64,
    },
}

/// A stream of events; ends (`None`) when the watcher lagged too far behind or the store was dropped.
#[derive(Debug)]
pub struct Watch {
    backlog: VecDeque<Arc<Event>>,
    events: mpsc::Receiver<Arc<Event>>,
}

impl Watch {
    /// The next event. Cancel safe.
    pub async fn next(&mut self) -> Option<Arc<Event>> {
        match self.backlog.pop_front() {
            Some(event) => Some(event),
            None => self.events.recv().await,
        }
    }

    /// The next event if one is there already. After [`crate::Store::revision`] said R, everything up to R is there.
    pub fn try_next(&mut self) -> Option<Arc<Event>> {
        self.backlog.pop_front().or_else(|| self.events.try_recv().ok())
    }

    /// For streams: as [`Watch::next`].
    pub fn poll_next(&mut self, cx: &mut std::task::Context<'_>) -> std::task::Poll<Option<Arc<Event>>> {
        match self.backlog.pop_front() {
            Some(event) => std::task::Poll::Ready(Some(event)),
            None => self.events.poll_recv(cx),
        }
    }
}

type Sender = mpsc::Sender<Arc<Event>>;

/// The watchers of one table, found by scope so that an event costs only those it concerns.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    table: Vec<Sender>,
    under: HashMap<Box<str>, Vec<Sender>>,
    key: HashMap<Box<str>, Vec<Sender>>,
}

impl Watchers {
    pub(crate) fn enrol(&mut self, scope: Scope, backlog: Vec<Arc<Event>>, lag: usize) -> Watch {
        let (sender, events) = mpsc::channel(lag);
        let place = match scope {
            Scope::Table => &mut self.table,
            Scope::Under(first) => self.under.entry(first).or_default(),
            Scope::Key(key) => self.key.entry(key).or_default(),
        };
        // Closed ones in quiet places would pile up: every enrolment sweeps its place.
        place.retain(|s| !s.is_closed());
        place.push(sender);
        Watch { backlog: backlog.into(), events }
    }

    pub(crate) fn tell(&mut self, event: &Arc<Event>) {
        tell_all(&mut self.table, event);
        let key = &event.entry.key;
        if !self.under.is_empty()
            && let Some((first, _)) = key.split_once('/')
            && let Some(place) = self.under.get_mut(first)
        {
            tell_all(place, event);
            if place.is_empty() {
                self.under.remove(first);
            }
        }
        if let Some(place) = self.key.get_mut(key) {
            tell_all(place, event);
            if place.is_empty() {
                self.key.remove(key);
            }
        }
    }
}

/// A full channel closes its watcher: dropping one event silently would be a lie, waiting would stop all writers.
fn tell_all(place: &mut Vec<Sender>, event: &Arc<Event>) {
    place.retain(|sender| sender.try_send(event.clone()).is_ok());
}
