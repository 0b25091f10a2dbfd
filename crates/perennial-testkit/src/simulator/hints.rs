//! Hints of the store reach each process soon, late, twice or never.

use perennial_core::store::Changes;

use super::Simulation;

impl Simulation {
    /// Passes the store's hints on to processes.
    pub(super) fn deliver_hints(&mut self) {
        let hints = std::mem::take(&mut *self.unsent_hints.lock().expect("the lock is not poisoned"));
        let mut all = Changes::default();
        hints.iter().for_each(|changes| all.extend_from(changes));
        if all.is_empty() {
            return;
        }
        for process in (0..self.processes.len()).filter(|process| self.is_up(*process)).collect::<Vec<_>>() {
            let hint_lost = self.faults(|faults| faults.hint_lost);
            if self.rng.percent(hint_lost) {
                self.count("hint lost");
                continue;
            }
            let delay_ms = self.rng.between(0, 10);
            self.hint(process, delay_ms, all);
            if self.rng.percent(hint_lost) {
                self.count("hint late or twice");
                let delay_ms = self.rng.between(1, 1_000);
                self.hint(process, delay_ms, all);
            }
        }
    }

    fn hint(&mut self, process: usize, delay_ms: u64, changes: Changes) {
        self.later_on(process, delay_ms, format!("p{process} gets a hint"), move |this| {
            this.node_input(process, |node, now, free| node.handle_changes(now, &changes, free));
            this.lanes_changed(process, &changes);
        });
    }
}
