//! What a commit is reported as, in facts and counters, once its outcome is known.

use std::time::Duration;

use crate::execution::{Execution, StaleJob};
use crate::history::{Job, StaleReason, Turn};
use crate::store::Status;

use super::super::facts::{Fact, Label, TurnEnd};
use super::super::message::Message;
use super::super::shared::Shared;
use super::Instance;
use super::in_flight::Next;
use super::queued::{Batch, Queued, count_events};
use super::row_columns::RowColumns;

/// What there is to report of a commit.
#[derive(Default)]
pub(super) struct CommitReport {
    /// The orchestration, if facts are collected, and the commit has a turn or ends the instance.
    pub(super) orchestration: Option<Label>,
    /// The turn that code took.
    turn: Option<TurnReport>,
}

struct TurnReport {
    took: Option<Duration>,
    at_ms: u64,
    /// The due times of the timers that it fired.
    fired: Vec<u64>,
    /// How many events it recorded for the first time.
    events: u64,
    /// How many events it recorded although the instance ended without reading them.
    late_events: u64,
}

impl CommitReport {
    /// The report of a commit that ends an instance without its code.
    pub(super) fn ending(shared: &Shared, name: &str) -> CommitReport {
        CommitReport { orchestration: shared.facts.orchestration(name), turn: None }
    }

    /// The report of a commit with a turn that code took.
    pub(super) fn turn(
        shared: &Shared,
        execution: &Execution,
        (turn, late_events): (&Turn, usize),
        messages: &Batch,
        (took, fired): (Option<Duration>, Vec<u64>),
    ) -> CommitReport {
        let recorded = turn.jobs().filter(|(_, job)| matches!(job, Job::ExternalEvent { .. })).count();
        let events = if recorded == 0 { 0 } else { recorded.saturating_sub(carried_events(messages)) };
        let (events, late_events) = (events as u64, late_events as u64);
        let turn = TurnReport { took, at_ms: turn.at_ms, fired, events, late_events };
        CommitReport {
            orchestration: shared.facts.orchestration(&execution.started().name),
            turn: Some(turn),
        }
    }
}

/// How many events of a turn were recorded before, by the execution that continued as new.
fn carried_events(messages: &Batch) -> usize {
    let carried = |queued: &Queued| match &queued.message {
        Message::Carried { jobs, .. } => count_events(jobs),
        Message::Start(start) if start.started.execution > 1 => count_events(&start.jobs),
        _ => 0,
    };
    let rest = match messages.rest() {
        Some(Message::Carried { jobs, .. }) => count_events(jobs),
        _ => 0,
    };
    messages.iter().map(carried).sum::<usize>().saturating_sub(rest)
}

impl Instance {
    /// Reports a durable commit. To be called before its columns are taken over, to compare them with the old ones.
    pub(super) fn report_durable(
        &self,
        shared: &mut Shared,
        now_ms: u64,
        report: &CommitReport,
        (columns, next): (&RowColumns, &Next),
    ) {
        let orchestration = report.orchestration.unwrap_or(Label::OTHER);
        let before = self.columns.as_ref();
        if let Some(turn) = &report.turn {
            let was_pending = before.is_none_or(|before| before.status == Status::Pending);
            if was_pending && columns.status != Status::Pending {
                shared.facts.state(Fact::InstanceStarted { orchestration });
            }
            let (end, took) = (TurnEnd::Committed, turn.took);
            shared.facts.state(Fact::Turn { orchestration, end, took });
            for due_ms in &turn.fired {
                shared.facts.state(Fact::TimerFired { late_ms: turn.at_ms.saturating_sub(*due_ms) });
            }
            shared.counters.events_applied += turn.events.saturating_sub(turn.late_events);
            shared.counters.events_refused += turn.late_events;
        }
        let (was, is) = (before.and_then(|before| before.blocked_code), columns.blocked_code);
        if was != is {
            was.into_iter().for_each(|code| shared.facts.state(Fact::Unblocked(code)));
            is.into_iter().for_each(|code| shared.facts.state(Fact::Blocked(code)));
        }
        if matches!(next, Next::Ended(..)) {
            let took_ms = now_ms.saturating_sub(self.key.created_ms());
            let status = columns.status;
            shared.facts.state(Fact::InstanceEnded { orchestration, status, took_ms });
        }
    }

    /// Reports a commit that was not written.
    pub(super) fn report_refused(&self, shared: &mut Shared, report: &CommitReport) {
        if let (Some(orchestration), Some(turn)) = (report.orchestration, &report.turn) {
            let (end, took) = (TurnEnd::Refused, turn.took);
            shared.facts.state(Fact::Turn { orchestration, end, took });
        }
    }

    /// Reports a turn whose code failed, or did not end.
    pub(super) fn report_failed(shared: &mut Shared, orchestration: Option<Label>, took: Option<Duration>) {
        if let Some(orchestration) = orchestration {
            shared.facts.state(Fact::Turn { orchestration, end: TurnEnd::Failed, took });
        }
    }
}

/// Counts jobs that a turn did not record.
pub(super) fn count_stale(shared: &mut Shared, stale: &[StaleJob]) {
    for dropped in stale {
        let is_known_event =
            matches!((&dropped.job, &dropped.reason), (Job::ExternalEvent { .. }, StaleReason::KnownKey));
        match is_known_event {
            true => shared.counters.events_duplicate += 1,
            false => shared.counters.stale += 1,
        }
    }
}
