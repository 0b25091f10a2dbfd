//! What the driver measures for its [`Meters`], and what it tells others of its load. Without a recorder of metrics nothing is
//! measured.

use std::sync::Arc;
use std::time::Duration;

use perennial_core::ActivityError;
use perennial_core::shard::ActivityTask;
use perennial_core::store::NodeLoad;

use super::driver::{Driver, lock};
use super::meters::{AttemptEnd, Present, REFRESH_PAUSE, RunningAttempt, SentCommit};

impl Driver {
    /// Sets the gauges from time to time, for recorders that nobody refreshes.
    pub(super) fn keep_measuring(self: &Arc<Driver>) {
        if self.meters.is_none() {
            return;
        }
        let weak = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(REFRESH_PAUSE).await;
                match weak.upgrade().filter(|driver| !driver.has_stopped()) {
                    Some(driver) => driver.refresh_metrics(),
                    None => return,
                }
            }
        });
    }

    /// Tells the node what this process is busy with, if it is about to publish that. Lanes are not asked while the node is
    /// locked.
    pub(super) fn note_load(&self) {
        if !lock(&self.node).renews(self.clock.running()) {
            return;
        }
        let load = NodeLoad {
            turns: self.turn_threads.busy(),
            residents: self.lanes.iter().map(|cell| lock(&cell.lane).slots()).sum(),
            clock_offset_ms: self.clock_check.offset_ms(),
        };
        lock(&self.node).note_load(load);
    }

    /// Sets the gauges to their present values, and adds to the counters what happened since.
    pub(crate) fn refresh_metrics(&self) {
        let Some(meters) = &self.meters else { return };
        let now = self.clock.running();
        let mut present = Present {
            queued_commits: self.queued_commits(),
            slots_used: self.workers.slots_used(),
            slots_free: self.workers.free(),
            clock_offset_ms: self.clock_check.offset_ms(),
            lost_threads: self.turn_threads.lost(),
            ..Present::default()
        };
        let leases = self.lanes.iter().map(|cell| &cell.seen).chain([&self.node_seen]);
        present.lease_remaining = leases.map(|seen| seen.remaining(now)).min().unwrap_or_default();
        let is_over = self.has_stopped();
        for cell in self.lanes.iter() {
            let lane = lock(&cell.lane);
            present.counters = present.counters.plus(&lane.counters());
            if !is_over {
                present.resident += lane.slots();
                present.resident_bytes += lane.resident_bytes();
                present.shards_owned += lane.shards().len();
            }
        }
        meters.refresh(&present);
    }

    /// Notes that a batch was answered.
    pub(super) fn note_answered(&self, sent: Option<SentCommit>) {
        if let (Some(meters), Some(sent)) = (&self.meters, &sent) {
            meters.commit_answered(sent);
        }
    }

    /// Notes that the code of an attempt begins.
    pub(super) fn attempt_begins(&self, task: &ActivityTask) -> Option<RunningAttempt> {
        let waited = |now_ms: u64| Duration::from_millis(now_ms.saturating_sub(task.queued_ms));
        let meters = self.meters.as_ref()?;
        Some(meters.attempt_begins(&task.name, waited(self.now_ms())))
    }

    /// Notes that an attempt ended without its code.
    pub(super) fn attempt_missed(&self, task: &ActivityTask, error: &ActivityError) {
        if let Some(meters) = &self.meters {
            meters.attempt_missed(&task.name, AttemptEnd::of(error));
        }
    }
}

impl AttemptEnd {
    pub(super) fn of(error: &ActivityError) -> AttemptEnd {
        match error {
            ActivityError::Timeout(_) => AttemptEnd::Timeout,
            ActivityError::Cancelled => AttemptEnd::Cancelled,
            _ => AttemptEnd::Failed,
        }
    }
}
