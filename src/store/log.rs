//! The watch log: the newest events, bounded in number and bytes.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::entry::Event;

#[derive(Debug)]
pub(crate) struct Log {
    events: VecDeque<Arc<Event>>,
    bytes: usize,
    /// Everything up to and including this revision is forgotten.
    compacted: u64,
    max_events: usize,
    max_bytes: usize,
}

impl Log {
    pub(crate) fn new(revision: u64, max_events: usize, max_bytes: usize) -> Self {
        Self { events: VecDeque::new(), bytes: 0, compacted: revision, max_events, max_bytes }
    }

    /// The revision that the log still reaches back to.
    pub(crate) fn compacted(&self) -> u64 {
        self.compacted
    }

    pub(crate) fn push(&mut self, event: Arc<Event>) {
        self.bytes += cost(&event);
        self.events.push_back(event);
        while self.events.len() > self.max_events || self.bytes > self.max_bytes {
            if !self.forget_oldest() {
                break;
            }
        }
    }

    /// Events after `revision`, oldest first.
    pub(crate) fn since(&self, revision: u64) -> impl DoubleEndedIterator<Item = &Arc<Event>> {
        let start = self.events.partition_point(|e| e.revision <= revision);
        self.events.range(start..)
    }

    pub(crate) fn compact(&mut self, revision: u64) {
        while self.events.front().is_some_and(|e| e.revision <= revision) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) -> bool {
        let Some(oldest) = self.events.pop_front() else { return false };
        self.bytes = self.bytes.saturating_sub(cost(&oldest));
        self.compacted = oldest.revision;
        true
    }
}

/// Bytes an event keeps alive. The new form is also in the index or in the next event, so only the old one counts, and
/// what the event itself needs.
fn cost(event: &Event) -> usize {
    let kept = event.previous.as_ref().map_or(0, |p| p.value.len());
    let last = if event.kind == crate::EventKind::Deleted { event.entry.value.len() } else { 0 };
    kept + last + 200
}
