//! I2: an instance that has not ended can be woken, by the cause that belongs to each of its open operations.
//! An open activity has a task row, or its instance is owed; the wake-up time is not later than any due time.

use std::collections::{BTreeMap, BTreeSet};

use perennial_core::shard::{Message, TaskWork};
use perennial_core::store::{TaskRow, TaskState};
use perennial_core::{Decision, EventId, Ledger, Turn};

use super::{Checked, StoredInstance};

impl Checked<'_, '_> {
    /// Takes the open operations according to the replayed code, if any, and whether it has handlers for
    /// events and updates.
    pub(super) fn can_be_woken(&mut self, turns: &[Turn], replayed: Option<&(Ledger, bool)>) {
        let StoredInstance { row, inbox, tasks, .. } = self.instance;
        if row.status.is_final() {
            return;
        }
        if turns.is_empty() {
            return self.will_begin();
        }
        let read = turns
            .iter()
            .try_fold(Ledger::default(), |mut ledger, turn| ledger.apply_turn(turn).map(|()| ledger));
        // Without the code, its handlers are unknown.
        let has_handlers = replayed.is_none_or(|(_, has_handlers)| *has_handlers);
        let replayed = replayed.map(|(ledger, _)| ledger.clone());
        let Some(ledger) = replayed.or_else(|| read.ok()) else { return };
        let tasks: Option<BTreeMap<EventId, &TaskRow>> =
            tasks.as_ref().map(|rows| rows.iter().map(|row| (row.id.event, row)).collect());
        for row in tasks.iter().flat_map(BTreeMap::values) {
            self.is_wanted(row, &ledger);
        }
        if row.blocked.is_some() {
            return;
        }
        if let Some(tasks) = &tasks {
            self.owes(&ledger, tasks);
        }
        self.wakes_in_time(&ledger, turns, tasks.iter().flat_map(BTreeMap::values));
        let waits = ledger.open().any(|(_, decision)| {
            matches!(
                decision,
                Decision::ExternalSubscribed { .. } | Decision::SubOrchestrationScheduled { .. }
            )
        });
        let has_mail = inbox.as_ref().is_none_or(|rows| !rows.is_empty());
        let has_tasks = tasks.as_ref().is_none_or(|tasks| !tasks.is_empty());
        if !(row.owed || row.wake_at_ms.is_some() || waits || has_handlers || has_mail || has_tasks) {
            self.breach("I2", "it is running, and nothing would wake it");
        }
    }

    /// An instance that has not started has its start in the inbox, and is woken for it.
    fn will_begin(&mut self) {
        let StoredInstance { row, inbox, .. } = self.instance;
        let Some(inbox) = inbox.as_ref().filter(|_| row.blocked.is_none()) else { return };
        let start = inbox.iter().find_map(|row| match Message::decode(&row.body) {
            Ok(Message::Start(start)) => Some(start),
            _ => None,
        });
        let Some(start) = start else {
            return self.breach("I2", "it has not started, and no start is in its inbox");
        };
        if let Some(not_before_ms) = start.not_before_ms
            && row.wake_at_ms.is_none_or(|wake_at_ms| wake_at_ms > not_before_ms)
        {
            let what = format!("it starts at {not_before_ms}, but its row says {:?}", row.wake_at_ms);
            self.breach("I2", what);
        }
    }

    /// Checks that a task belongs to an open activity, or is marked so that its holder notices the
    /// cancellation.
    fn is_wanted(&mut self, task: &TaskRow, ledger: &Ledger) {
        let event = task.id.event;
        let open = ledger.open_decision(event);
        if matches!(task.state, TaskState::Leased { cancelled: true, .. }) {
            if task.due_ms.is_none() {
                self.breach("I2", format!("task {event} is cancelled, and leased without an end"));
            }
        } else if !matches!(open, Some(Decision::ActivityScheduled { name, .. }) if *name == task.name) {
            self.breach("I2", format!("task {event} is {}, and no such activity is open", task.state.name()));
        }
        if task.state == TaskState::Waiting && task.due_ms.is_none() && !is_left_open(task) {
            self.breach("I2", format!("task {event} waits for nothing"));
        }
        if task.state == TaskState::Queued && task.work.is_none() {
            self.breach("I2", format!("task {event} is queued without the data to run it"));
        }
    }

    /// An instance is owed if and only if a new owner must handle an activity: one without a row, or one that
    /// the owner itself was running. An activity whose result is in the inbox may count or not.
    fn owes(&mut self, ledger: &Ledger, tasks: &BTreeMap<EventId, &TaskRow>) {
        let StoredInstance { row, inbox, .. } = self.instance;
        let results: BTreeSet<EventId> = inbox
            .iter()
            .flatten()
            .filter_map(|message| match Message::decode(&message.body) {
                Ok(Message::Attempt { execution, event, .. } | Message::Requeue { execution, event, .. }) => {
                    (execution == row.execution).then_some(event)
                }
                Ok(Message::LeftOpen(left)) => (left.execution == row.execution).then_some(left.event),
                _ => None,
            })
            .collect();
        let activities = || {
            let is_activity = |open: &Decision| matches!(open, Decision::ActivityScheduled { .. });
            ledger.open().filter(move |(_, open)| is_activity(open)).map(|(event, _)| event)
        };
        let is_owners =
            |task: &TaskRow| matches!(task.state, TaskState::Leased { .. }) && task.due_ms.is_none();
        let owed = |event: &EventId| tasks.get(event).is_none_or(|task| is_owners(task));
        if !row.owed
            && let Some(event) = activities().find(|event| owed(event) && !results.contains(event))
        {
            self.breach(
                "I2",
                format!("activity {event} has no task to run it, and the instance is not owed"),
            );
        }
        if row.owed && !activities().any(|event| owed(&event)) {
            self.breach("I2", "it is owed, but a new owner has nothing to do");
        }
    }

    /// Checks that it is woken no later than anything in it is due.
    fn wakes_in_time<'t>(
        &mut self,
        ledger: &Ledger,
        turns: &[Turn],
        tasks: impl Iterator<Item = &'t &'t TaskRow>,
    ) {
        let wake_at_ms = self.instance.row.wake_at_ms;
        let timer = ledger.timers().next().map(|(due_ms, event)| (due_ms, format!("timer {event} is due")));
        let deadline_ms = turns.first().and_then(Turn::started).and_then(|started| started.deadline_ms);
        let deadline = deadline_ms.map(|at_ms| (at_ms, "its deadline passes".to_owned()));
        // The holder changes a lease without changing the row.
        let tasks = tasks.filter(|task| !matches!(task.state, TaskState::Leased { .. }));
        let tasks = tasks.filter_map(|task| {
            task.due_ms.map(|due_ms| (due_ms, format!("{} task {} is due", task.state.name(), task.id.event)))
        });
        let wants: Vec<(u64, String)> = timer.into_iter().chain(deadline).chain(tasks).collect();
        // Only the owner knows the end of a grace period, because it knows the times without an owner.
        if ledger.cancel_request().is_some() && wake_at_ms.is_none() {
            self.breach("I2", "it is being cancelled, and nothing wakes it at the end of its grace period");
        }
        for (at_ms, what) in wants {
            if wake_at_ms.is_none_or(|wake_at_ms| wake_at_ms > at_ms) {
                self.breach("I2", format!("{what} at {at_ms}, its row says {wake_at_ms:?}"));
            }
        }
    }
}

/// Whether the code of an attempt has returned, and the holder of its token completes it.
pub(crate) fn is_left_open(task: &TaskRow) -> bool {
    let work = task.work.as_deref().and_then(|work| TaskWork::decode(work).ok());
    work.and_then(|work| work.open).is_some_and(|open| open.left.is_some())
}
