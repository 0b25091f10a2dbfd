//! Resetting an execution to one of its turns: what the new execution keeps, what is delivered to it again, and what is
//! not.
//!
//! No code runs. The new execution begins with copies of the kept turns, and is hydrated from them like any other.
//! Copying time grows with the history, so it happens on a turn thread
//! ([`TurnSource::Reset`](super::TurnSource::Reset)), never under the lock of the lane.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::codec::{CodecError, Codecs};
use crate::flaws::{self, Flaw};
use crate::history::{ChildError, Decision, EventId, EventKind, Job, Ledger, Reset, Started, Turn, Why};
use crate::instance::InstanceKey;
use crate::store::TurnRow;

use super::record::Record;

/// The outcome of a reset, from the point of view of the new execution.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ResetReport {
    /// The execution that the instance continues with.
    pub execution: u64,
    /// The last turn that it keeps; zero if it starts over.
    pub turn: u64,
    /// How many turns were dropped. They remain in the history of the previous execution.
    pub left_turns: u64,
    /// Events and updates that arrived after that turn and are delivered again, in order.
    pub messages: u64,
    /// Results of activities, children and timers that arrived after that turn and are delivered again.
    pub results: u64,
    /// Activities that run again because they have no result, or failed.
    pub activities: u64,
    /// Children that keep running and report to the new execution.
    pub children_kept: u64,
    /// Children that are started again because they failed, or because their outcome was lost when the instance ended.
    pub children_started: u64,
    /// Children that were started after that turn and are cancelled.
    pub children_cancelled: u64,
    /// Whether the same reset had been made before, so that nothing was done. Only `execution` and `turn` are set then.
    pub already_made: bool,
}

/// A reset to carry out.
#[derive(Debug)]
pub struct ResetTask {
    pub(super) turns: Vec<TurnRow>,
    /// The execution that the caller saw.
    pub(super) execution: u64,
    pub(super) to_turn: Option<u64>,
    pub(super) version: Option<String>,
    pub(super) why: Why,
    pub(super) now_ms: u64,
    /// When the instance was started: the new execution gets its full timeout again.
    pub(super) created_ms: u64,
    /// Whether the instance has ended: it no longer receives the outcomes of its children.
    pub(super) has_ended: bool,
}

/// The new execution, and what remains of the previous one.
#[derive(Debug)]
pub struct ResetRun {
    pub(super) report: ResetReport,
    pub(super) started: Started,
    /// The turns that it begins with. If there are none, it begins with its start.
    pub(super) rows: Vec<TurnRow>,
    /// The state after these turns.
    pub(super) ledger: Ledger,
    /// The jobs that are delivered again, in order.
    pub(super) jobs: Vec<Job>,
    /// What was scheduled or sent, has no outcome, and is started again.
    pub(super) again: Vec<Again>,
    /// The previous execution, whose later children are cancelled.
    pub(super) before: Record,
    /// The last event that is kept.
    pub(super) cut: EventId,
}

/// An operation of a kept turn that is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Again {
    /// A child that could not be started.
    Unstarted(EventId),
    /// A child that has ended, or is about to. It may own the id that the new child needs.
    Started(EventId),
    /// Something that was sent, whose report was lost when the instance ended.
    Sent(EventId),
}

/// The outcome of a [`ResetTask`].
#[derive(Debug)]
pub enum ResetOutcome {
    /// It can be committed.
    Ready(Box<ResetRun>),
    /// It was made before.
    Made(ResetReport),
    /// It cannot be made.
    Refused(String),
}

impl ResetTask {
    pub(super) fn turns(&self) -> &[TurnRow] {
        &self.turns
    }

    pub(super) fn run(self, codecs: &Codecs, key: InstanceKey) -> ResetOutcome {
        let record = match Record::read(codecs, key, &self.turns) {
            Ok(record) => record,
            Err(failure) => return ResetOutcome::Refused(format!("its history cannot be read: {failure}")),
        };
        let started = record.started();
        if started.execution != self.execution {
            return match made_before(started, self.execution, self.to_turn) {
                Some(report) => ResetOutcome::Made(report),
                None => ResetOutcome::Refused(gone_on(self.execution, started.execution)),
            };
        }
        let turns = &record.history.turns;
        let ends = turns.last().is_some_and(|turn| turn.ending().is_some());
        let last = turns.len() as u64 - u64::from(ends);
        let turn = self.to_turn.unwrap_or(last);
        if turn > last {
            return ResetOutcome::Refused(format!(
                "there is no turn {turn} to reset to; the last one before an end is {last}"
            ));
        }
        if let Some(failure) = &record.undecodable {
            return ResetOutcome::Refused(format!("its history cannot be read: {failure}"));
        }
        match self.cut(codecs, key, record, turn) {
            Ok(run) => ResetOutcome::Ready(Box::new(run)),
            Err(error) => ResetOutcome::Refused(format!("a payload cannot be encoded: {error}")),
        }
    }

    fn cut(
        self,
        codecs: &Codecs,
        key: InstanceKey,
        before: Record,
        turn: u64,
    ) -> Result<ResetRun, CodecError> {
        let (kept, later) = before.history.turns.split_at(turn as usize);
        let cut = kept.iter().flat_map(|turn| &turn.events).next_back().map_or(EventId(0), |event| event.id);
        let jobs = delivered_again(later, cut);
        let answered: BTreeSet<EventId> = jobs.iter().filter_map(Job::source_event_id).collect();
        let mut ledger = Ledger::default();
        // They were validated when the record was read.
        kept.iter().try_for_each(|turn| ledger.apply_turn(turn)).expect("turns that were read");
        let (adopted, again) = self.outstanding(&ledger, &answered, before.started(), later);
        let children_kept = adopted.iter().filter(|(event, _)| is_child(&ledger, *event)).count() as u64;
        let started = self.next_started(&before, (turn, cut), adopted);
        let is_activity = |(event, open): &(EventId, &Decision)| {
            matches!(open, Decision::ActivityScheduled { .. }) && !answered.contains(event)
        };
        let report = ResetReport {
            execution: started.execution,
            turn,
            left_turns: later.len() as u64,
            messages: jobs.iter().filter(|job| is_message(job)).count() as u64,
            results: answered.len() as u64,
            activities: ledger.open().filter(is_activity).count() as u64,
            children_kept,
            children_started: again.iter().filter(|it| !matches!(it, Again::Sent(_))).count() as u64,
            children_cancelled: 0,
            already_made: false,
        };
        let rows = copies(codecs, key, kept, &started)?;
        // The total timeouts of its activities count from the reset, whose time is in the first event.
        let ledger = match rows.is_empty() {
            true => ledger,
            false => relearned(kept, &started),
        };
        Ok(ResetRun { report, started, rows, ledger, jobs, again, before, cut })
    }

    /// What the kept turns had started outside this instance without receiving an outcome: operations that keep
    /// running, with the execution that started them, and operations that are started again. An ended instance receives
    /// no outcomes.
    fn outstanding(
        &self,
        ledger: &Ledger,
        answered: &BTreeSet<EventId>,
        started: &Started,
        later: &[Turn],
    ) -> (Vec<(EventId, u64)>, Vec<Again>) {
        let (mut adopted, mut again) = (Vec::new(), Vec::new());
        let (unstarted, over) = (unstarted_children(later), failed_children(later));
        for (event, open) in ledger.open().filter(|(event, _)| !answered.contains(event)) {
            let is_child = matches!(open, Decision::SubOrchestrationScheduled { .. });
            match self.has_ended || over.contains(&event) {
                false if is_child || open.is_reported() => adopted.push((event, started.starter_of(event))),
                true if is_child && unstarted.contains(&event) => again.push(Again::Unstarted(event)),
                true if is_child => again.push(Again::Started(event)),
                true if open.is_reported() => again.push(Again::Sent(event)),
                _ => {}
            }
        }
        (adopted, again)
    }

    /// The first event of the next execution.
    fn next_started(
        &self,
        before: &Record,
        (turn, cut): (u64, EventId),
        adopted: Vec<(EventId, u64)>,
    ) -> Started {
        let started = before.started();
        let same = started.reset.iter().flat_map(|reset| reset.same.iter().copied());
        let same = same.chain([(started.execution, cut)]).map(|(of, last)| (of, last.min(cut)));
        let same = same.filter(|(_, last)| last.0 > 0).collect();
        let last_at_ms = before.history.turns.last().map(|turn| turn.at_ms);
        let timeout_ms = started.deadline_ms.map(|deadline_ms| deadline_ms.saturating_sub(self.created_ms));
        Started {
            version: self.version.clone().unwrap_or_else(|| started.version.clone()),
            execution: started.execution.saturating_add(1),
            // The kept turns were taken before the previous execution ended.
            predecessor_at_ms: if turn == 0 { last_at_ms } else { started.predecessor_at_ms },
            chain: before.history.checksum,
            deadline_ms: timeout_ms.map(|timeout_ms| self.now_ms.saturating_add(timeout_ms)),
            reset: Some(Box::new(Reset {
                execution: started.execution,
                turn,
                began_as: if turn == 0 {
                    started.execution.saturating_add(1)
                } else {
                    started.execution_as_read()
                },
                at_ms: self.now_ms,
                why: self.why.clone(),
                adopted,
                same,
            })),
            ..started.clone()
        }
    }
}

/// The report of an earlier reset, if this execution is its result.
pub(super) fn made_before(started: &Started, execution: u64, to_turn: Option<u64>) -> Option<ResetReport> {
    let reset = started.reset.as_ref()?;
    let is_it = reset.execution == execution && to_turn.is_none_or(|turn| turn == reset.turn);
    is_it.then(|| ResetReport {
        execution: started.execution,
        turn: reset.turn,
        already_made: true,
        ..ResetReport::default()
    })
}

/// Why a reset of an execution that is over is refused.
pub(super) fn gone_on(seen: u64, execution: u64) -> String {
    format!("the request names execution {seen}, but the instance is now in execution {execution}")
}

/// The jobs after the kept turns that are delivered again: events and updates, and successful results of operations of
/// the kept turns. Failed operations run again instead. Cancel requests are dropped. Skipped events stay skipped: an
/// event of a kept turn is skipped again.
fn delivered_again(later: &[Turn], cut: EventId) -> Vec<Job> {
    let jobs = || later.iter().flat_map(Turn::jobs);
    let skipped: BTreeSet<EventId> = jobs()
        .filter_map(|(_, job)| match job {
            Job::ExternalEventSkipped { event_id } => Some(*event_id),
            _ => None,
        })
        .collect();
    let is_wanted = |(event, job): &(EventId, &Job)| match job {
        Job::ExternalEvent { .. } => !skipped.contains(event) && !flaws::is(Flaw::ResetForgetsEvents),
        Job::UpdateRequested { .. } => true,
        Job::ActivityCompleted { source_event_id, .. }
        | Job::SubOrchestrationCompleted { source_event_id, .. }
        | Job::SubOrchestrationStarted { source_event_id }
        | Job::DeliveryReported { source_event_id, .. }
        | Job::TimerFired { source_event_id } => *source_event_id <= cut,
        Job::ExternalEventSkipped { event_id } => *event_id <= cut,
        Job::ActivityFailed { .. }
        | Job::SubOrchestrationFailed { .. }
        | Job::OrchestrationCancelRequested { .. }
        | Job::InstanceResumed { .. }
        | Job::MessageSkipped { .. } => false,
    };
    jobs().filter(is_wanted).map(|(_, job)| job.clone()).collect()
}

fn is_message(job: &Job) -> bool {
    matches!(job, Job::ExternalEvent { .. } | Job::UpdateRequested { .. })
}

fn is_child(ledger: &Ledger, event: EventId) -> bool {
    matches!(ledger.open_decision(event), Some(Decision::SubOrchestrationScheduled { .. }))
}

/// The children that could not be started.
fn unstarted_children(later: &[Turn]) -> BTreeSet<EventId> {
    let unstarted = later.iter().flat_map(Turn::jobs).filter_map(|(_, job)| match job {
        Job::SubOrchestrationFailed { source_event_id, error: ChildError::NotStarted { .. } } => {
            Some(*source_event_id)
        }
        _ => None,
    });
    unstarted.collect()
}

/// The children that are over, or about to be: they failed, or their cancellation was requested.
fn failed_children(later: &[Turn]) -> BTreeSet<EventId> {
    let failed = later.iter().flat_map(Turn::jobs).filter_map(|(_, job)| match job {
        Job::SubOrchestrationFailed { source_event_id, .. } => Some(*source_event_id),
        _ => None,
    });
    let cancelled = later.iter().flat_map(Turn::decisions).filter_map(|(_, _, decision)| match decision {
        Decision::SubOrchestrationCancelRequested { source_event_id } => Some(*source_event_id),
        _ => None,
    });
    failed.chain(cancelled).collect()
}

/// A kept turn, as a turn of the new execution.
fn copy(turn: &Turn, started: &Started) -> Turn {
    let mut turn = turn.clone();
    if let Some(first) = turn.events.first_mut()
        && matches!(first.kind, EventKind::Started(_))
    {
        first.kind = EventKind::Started(Box::new(started.clone()));
    }
    turn
}

fn copies(
    codecs: &Codecs,
    key: InstanceKey,
    kept: &[Turn],
    started: &Started,
) -> Result<Vec<TurnRow>, CodecError> {
    let mut previous = started.chain;
    let mut rows = Vec::with_capacity(kept.len());
    for turn in kept {
        let row = TurnRow::seal_with(codecs, key, started.execution, previous, &copy(turn, started))?;
        previous = row.checksum;
        rows.push(row);
    }
    Ok(rows)
}

fn relearned(kept: &[Turn], started: &Started) -> Ledger {
    let mut ledger = Ledger::default();
    for turn in kept {
        ledger.apply_turn(&copy(turn, started)).expect("turns that were read");
    }
    ledger
}
