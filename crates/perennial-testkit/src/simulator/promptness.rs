//! Checks of time and order: timers among messages, stored wake times, and activities that are stopped.

use perennial_core::lane::Lane;
use perennial_core::shard::Message;
use perennial_core::store::{Commit, InboxNumber};
use perennial_core::{Decision, EventId, Job, Payload, ShardId, Turn};

use super::Simulation;
use super::activities::{Place, Run, place_of};

/// The time after the healing, or after the last start of a process, from which nothing is late.
const SETTLED_MS: u64 = 30_000;
/// The maximum delay of a timer from then on: a few calls and turns.
const LATE_MS: u64 = 5_000;

/// The maximum distance from now of the stored wake time for a timer that is overdue.
const OVERDUE_MS: u64 = 1_000;

/// An event in the inbox of an instance before a commit.
pub(super) struct Unread {
    number: InboxNumber,
    arrived_ms: u64,
    payload: Payload,
}

impl Simulation {
    /// The unread events of a commit's instance, if it delivers timers and the store's clock was never set back.
    pub(super) fn unread_before(&self, commit: &Commit) -> Vec<Unread> {
        if self.plan.faults.clock_set_backs > 0
            || self.plan.classes.hours_back.is_some()
            || commit.turn.is_none()
        {
            return Vec::new();
        }
        let tables = self.store.tables();
        if tables.instances.get(&commit.key).is_none_or(|row| row.wake_at_ms.is_none()) {
            return Vec::new();
        }
        let rows = tables.inbox.iter().filter(|(_, message)| message.to == commit.key && !message.parked);
        let decoded = rows.filter_map(|(number, row)| {
            let message = self.with_sound_codecs(|codecs| Message::decode_with(codecs, &row.body));
            match message {
                Ok(Message::Job(Job::ExternalEvent { payload, .. })) => {
                    Some(Unread { number: *number, arrived_ms: row.arrived_ms, payload })
                }
                _ => None,
            }
        });
        decoded.collect()
    }

    /// G13: a timer is delivered after every event that arrived before it was due. To be called before the turn is
    /// added to its history.
    pub(super) fn witness_timers(&mut self, commit: &Commit, execution: u64, turn: &Turn, unread: &[Unread]) {
        let Some(ledger) = self.witness.histories.ledger(commit.key, execution) else { return };
        let due_ms =
            |timer: EventId| ledger.timers().find(|(_, event)| *event == timer).map(|(due_ms, _)| due_ms);
        let jobs: Vec<&Job> = turn.jobs().map(|(_, job)| job).collect();
        let fired = jobs.iter().enumerate().filter_map(|(place, job)| match job {
            Job::TimerFired { source_event_id } => Some((place, *source_event_id, due_ms(*source_event_id)?)),
            _ => None,
        });
        for (place, source_event_id, due_ms) in fired.collect::<Vec<_>>() {
            let overtaken = unread.iter().find(|event| {
                event.arrived_ms < due_ms
                    && (!commit.consumed.contains(&event.number)
                        || follows(&jobs[place + 1..], event, unread))
            });
            if let Some(Unread { number, arrived_ms, .. }) = overtaken {
                let what = format!("event {number}, which arrived at {arrived_ms}");
                return self.fail(format!(
                    "G13: timer {source_event_id} of {}, due at {due_ms}, is delivered before {what}",
                    commit.key
                ));
            }
            self.witness_late_timer(commit, due_ms);
            if self.failure.is_some() {
                return;
            }
        }
    }

    /// G13: when nothing fails, timers fire soon after they are due.
    fn witness_late_timer(&mut self, commit: &Commit, due_ms: u64) {
        let (now_ms, store_ms) = (self.now_ms, self.store_ms());
        let is_settled = self.is_healed && now_ms > self.witness.calm_from_ms + SETTLED_MS;
        let calm_ms = now_ms - self.witness.calm_from_ms.min(now_ms);
        let late_ms = store_ms.saturating_sub(due_ms);
        if is_settled && late_ms > LATE_MS && calm_ms > late_ms + SETTLED_MS {
            self.fail(format!("G13: a timer of {} fires {late_ms} ms after it was due", commit.key));
        }
    }

    /// I2: the stored wake time of a running instance is not later than its first timer.
    pub(super) fn witness_wake(&mut self, commit: &Commit) {
        let row = self.store.tables().instances.get(&commit.key).cloned();
        let Some(row) = row.filter(|row| !row.status.is_final() && row.blocked.is_none()) else { return };
        // After a reset, a message may deliver timers again that had fired.
        if self.was_reset(row.key) {
            return;
        }
        let ledger = self.witness.histories.ledger(row.key, row.execution);
        let Some((due_ms, _)) = ledger.and_then(|ledger| ledger.timers().next()) else { return };
        // For a timer that is overdue, any wake time until about now will do.
        let in_time_ms = due_ms.max(self.witness.latest_ms() + OVERDUE_MS);
        if row.wake_at_ms.is_none_or(|wake_at_ms| wake_at_ms > in_time_ms) {
            let wake = row.wake_at_ms;
            self.fail(format!(
                "I2: {} has a timer that is due at {due_ms}, and its row says {wake:?}",
                row.id
            ));
        }
    }

    /// I6: a lane that owns the shard stops an activity only if it is over, or its code no longer wants it.
    pub(super) fn witness_stop(&mut self, process: usize, lane: usize, (key, execution, event): Place) {
        let row = self.store.tables().instances.get(&key).cloned();
        let Some(row) = row.filter(|row| !row.status.is_final() && row.blocked.is_none()) else { return };
        let session = self.lane(process, lane).map(Lane::session);
        let is_owner =
            session.is_some() && self.store.tables().ownership.owner(ShardId::of(&row.id)) == session;
        let Some(ledger) = self.witness.histories.ledger(key, execution) else { return };
        let is_open = ledger.open().any(|(open, _)| open == event);
        let stop = Decision::ActivityStopRequested { source_event_id: event };
        let history = self.witness.histories.of(key, execution);
        let mut turns = history.into_iter().flat_map(|history| &history.turns);
        let is_asked = turns.any(|turn| turn.decisions().any(|(_, _, decision)| *decision == stop));
        // Attempts of an earlier tenure have to stop. An activity that can be completed with a token may have been, by a
        // message that is not yet recorded.
        let tenure = self.lane(process, lane).and_then(|lane| lane.tenure_of(ShardId::of(&row.id)));
        let is_current = |run: &Run| {
            let task = &run.task;
            place_of(task) == (key, execution, event)
                && task.secret.is_none()
                && tenure.is_some_and(|(tenure, _)| tenure == task.tenure)
        };
        let runs_here = self.processes[process].runs.all.values().any(is_current);
        if is_owner && row.execution == execution && is_open && !is_asked && runs_here {
            self.fail(format!("I6: p{process} stops activity {event} of {}, which is wanted", row.id));
        }
    }
}

/// Whether an event is among jobs that follow a timer, with nothing before it that arrived after it.
fn follows(jobs: &[&Job], event: &Unread, unread: &[Unread]) -> bool {
    for job in jobs {
        match job {
            Job::TimerFired { .. } => {}
            Job::ExternalEvent { payload, .. } if *payload == event.payload => return true,
            Job::ExternalEvent { payload, .. } => {
                let is_earlier =
                    |other: &Unread| other.payload == *payload && other.arrived_ms <= event.arrived_ms;
                if !unread.iter().any(is_earlier) {
                    return false;
                }
            }
            _ => return false,
        }
    }
    false
}
