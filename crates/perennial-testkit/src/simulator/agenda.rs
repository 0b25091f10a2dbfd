//! What will happen, and when.

use std::collections::BTreeMap;

use super::Simulation;

/// Something that will happen.
pub(super) struct Entry {
    pub(super) label: String,
    /// The process it happens in and that process's life: with the life it is gone, and while the process stands still it
    /// waits.
    pub(super) guard: Option<(usize, u64)>,
    pub(super) run: Box<dyn FnOnce(&mut Simulation)>,
}

/// Entries by time; what was planned first comes first at the same time.
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

    /// The next entry, unless it is later than this.
    pub(super) fn take(&mut self, until_ms: u64) -> Option<(u64, Entry)> {
        let first = self.entries.first_entry()?;
        let (at_ms, _) = *first.key();
        (at_ms <= until_ms).then(|| (at_ms, first.remove()))
    }
}

impl Simulation {
    /// Plans something that happens whatever becomes of the processes.
    pub(super) fn later(
        &mut self,
        delay_ms: u64,
        label: impl Into<String>,
        run: impl FnOnce(&mut Simulation) + 'static,
    ) {
        let at_ms = self.now_ms + delay_ms;
        self.agenda.add(at_ms, Entry { label: label.into(), guard: None, run: Box::new(run) });
    }

    /// Plans something that happens in a process, if it lives that long.
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
