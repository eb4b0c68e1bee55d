//! Scheduler: queue, snapshot, cycle, assume, bind.
