//! Outages: an unreachable store, processes that are all down, a stalled writer. Each may outlast leases,
//! grace periods, deadlines and timers.

use perennial_core::lane::StoreCall;
use perennial_core::store::{InstanceRow, Status};

use super::Simulation;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outage {
    /// The store is unreachable.
    Store,
    /// No process is up.
    Processes,
    /// The store can be read, but writes wait for the end of the outage.
    Writer,
}

/// The end of each current outage.
#[derive(Default)]
pub(super) struct Outages {
    store_until_ms: u64,
    pub(super) processes_until_ms: u64,
    writer_until_ms: u64,
}

/// The target that an outage should outlast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    Timer,
    Grace,
    Deadline,
}

/// The targets that fall due during an outage.
#[derive(Default)]
struct Due {
    timers: usize,
    graces: usize,
    deadlines: usize,
}

/// The number of instances that are cancelled before an outage, so that their grace periods may expire
/// meanwhile.
const CANCELLED: usize = 3;
/// The number of times that an outage looks for its target, and the interval.
const LOOKS: usize = 120;
const LOOK_MS: u64 = 50;

impl Simulation {
    pub(super) fn plan_outages(&mut self) {
        for (at_ms, outage, aim, for_ms) in self.plan.classes.outages.clone() {
            self.later(at_ms, format!("{outage:?} is about to fail"), move |this| {
                if aim == Aim::Grace {
                    this.cancel_some();
                }
                this.fail_at_moment(outage, aim, for_ms, LOOKS);
            });
        }
    }

    /// Starts an outage as soon as it would outlast its target, or after a while.
    fn fail_at_moment(&mut self, outage: Outage, aim: Aim, for_ms: u64, looks: usize) {
        if self.is_healed {
            return;
        }
        let due = self.due_within(for_ms);
        let is_met = match aim {
            Aim::Timer => due.timers > 0,
            Aim::Grace => due.graces > 0,
            Aim::Deadline => due.deadlines > 0,
        };
        if is_met || looks == 0 {
            return self.begin_outage(outage, for_ms, &due);
        }
        self.later(LOOK_MS, format!("{outage:?} is about to fail"), move |this| {
            this.fail_at_moment(outage, aim, for_ms, looks - 1);
        });
    }

    /// Cancels a few running instances.
    fn cancel_some(&mut self) {
        let mut running: Vec<String> = {
            let tables = self.store.tables();
            let rows = tables.instances.values().filter(|row| row.status == Status::Running);
            rows.map(|row| row.id.clone()).collect()
        };
        self.rng.shuffle(&mut running);
        for id in running.iter().take(CANCELLED) {
            self.end_instance(id, true);
        }
    }

    fn begin_outage(&mut self, outage: Outage, for_ms: u64, due: &Due) {
        let until_ms = self.now_ms + for_ms;
        self.note(|| format!("{outage:?} fails for {for_ms}"));
        match outage {
            Outage::Store => {
                self.count("store out of reach");
                self.outages.store_until_ms = until_ms;
            }
            Outage::Processes => {
                self.count("all processes down");
                self.outages.processes_until_ms = until_ms;
                for process in 0..self.processes.len() {
                    self.crash(process);
                }
            }
            Outage::Writer => self.outages.writer_until_ms = until_ms,
        }
        let is_stall = outage == Outage::Writer;
        for (what, is_met) in [
            ("writer stalled past a timer", is_stall && due.timers > 0),
            ("outage past a timer", !is_stall && due.timers > 0),
            ("outage past a cancel grace", !is_stall && due.graces > 0),
            ("outage past a deadline", !is_stall && due.deadlines > 0),
            ("outage past a lease", !is_stall && for_ms > self.plan.lease_ms),
        ] {
            if is_met {
                self.count(what);
            }
        }
    }

    /// The targets that fall due within a while, by the store's clock.
    fn due_within(&self, for_ms: u64) -> Due {
        let now_ms = self.store_ms();
        let passes = |at_ms: u64| (now_ms..now_ms + for_ms).contains(&at_ms);
        let rows: Vec<InstanceRow> = {
            let tables = self.store.tables();
            tables.instances.values().filter(|row| !row.status.is_final()).cloned().collect()
        };
        let mut due = Due::default();
        for row in rows {
            let Some(ledger) = self.witness.histories.ledger(row.key, row.execution) else { continue };
            let started = self.history(row.key).and_then(|history| history.turns.first()?.started());
            let cancel = ledger.cancel_request();
            due.graces += usize::from(cancel.is_some_and(|cancel| passes(cancel.until_ms())));
            due.deadlines += usize::from(started.and_then(|started| started.deadline_ms).is_some_and(passes));
            due.timers += ledger.timers().filter(|(due_ms, _)| passes(*due_ms)).count();
        }
        due
    }

    /// Whether the store is unreachable now.
    pub(super) fn is_out_of_reach(&self) -> bool {
        !self.is_healed && self.now_ms < self.outages.store_until_ms
    }

    /// The time that a write has to wait for the writer.
    pub(super) fn writer_stall_ms(&self) -> u64 {
        if self.is_healed { 0 } else { self.outages.writer_until_ms.saturating_sub(self.now_ms) }
    }

    /// The time for which all processes stay down.
    pub(super) fn down_ms(&self) -> u64 {
        if self.is_healed { 0 } else { self.outages.processes_until_ms.saturating_sub(self.now_ms) }
    }
}

/// Whether a call goes through the store's writer.
pub(super) fn is_write(call: &StoreCall) -> bool {
    !matches!(
        call,
        StoreCall::Directory
            | StoreCall::ReadInbox { .. }
            | StoreCall::ReadDue { .. }
            | StoreCall::ReadOwed { .. }
            | StoreCall::ReadBlocked { .. }
            | StoreCall::Find { .. }
            | StoreCall::Load { .. }
            | StoreCall::ReadTurns { .. }
            | StoreCall::HeldTasks { .. }
            | StoreCall::ReadRequests { .. }
            | StoreCall::ReadSetting { .. }
    )
}
