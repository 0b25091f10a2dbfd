//! The queue of future events.

use std::collections::BTreeMap;

use super::Simulation;

pub(super) struct Entry {
    pub(super) label: String,
    /// The process it happens in, and the life of that process: it is dropped if that life has ended, and
    /// waits while the process is suspended.
    pub(super) guard: Option<(usize, u64)>,
    pub(super) run: Box<dyn FnOnce(&mut Simulation)>,
}

/// Entries by time; entries with the same time are in the order in which they were added.
#[derive(Default)]
pub(super) struct Agenda {
    entries: BTreeMap<(u64, u64), Entry>,
    planned: u64,
}

impl Agenda {
    pub(super) fn add(&mut self, at_ms: u64, entry: Entry) {
        self.planned += 1;
        self.entries.insert((at_ms, self.planned), entry);
    }

    /// Removes the next entry, unless it is later than this.
    pub(super) fn take(&mut self, until_ms: u64) -> Option<(u64, Entry)> {
        let first = self.entries.first_entry()?;
        let (at_ms, _) = *first.key();
        (at_ms <= until_ms).then(|| (at_ms, first.remove()))
    }
}

impl Simulation {
    /// Schedules an event that does not depend on a process.
    pub(super) fn later(
        &mut self,
        delay_ms: u64,
        label: impl Into<String>,
        run: impl FnOnce(&mut Simulation) + 'static,
    ) {
        let at_ms = self.now_ms + delay_ms;
        self.agenda.add(at_ms, Entry { label: label.into(), guard: None, run: Box::new(run) });
    }

    /// Schedules an event in a process, which is dropped if the process crashes before.
    pub(super) fn later_on(
        &mut self,
        process: usize,
        delay_ms: u64,
        label: impl Into<String>,
        run: impl FnOnce(&mut Simulation) + 'static,
    ) {
        let guard = Some((process, self.processes[process].incarnation));
        let at_ms = self.now_ms + delay_ms;
        self.agenda.add(at_ms, Entry { label: label.into(), guard, run: Box::new(run) });
    }
}
