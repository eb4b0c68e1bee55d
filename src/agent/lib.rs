//! Agent: joins, reports, syncs its branch into the child.
