//! Ending an instance without running its code.

use crate::code::ErrorCode;
use crate::execution::Execution;
use crate::history::{Ending, Ledger, ParentLink, Started, Turn};
use crate::log;
use crate::store::{Commit, RowChange, Status, TurnRow};

use super::super::block_reason::BlockReason;
use super::super::outgoing::{Sender, outcome_for, parting};
use super::super::output::Output;
use super::super::record::{Past, Record};
use super::super::request::{CallReply, Response};
use super::super::shared::Shared;
use super::super::spans::TurnSpan;
use super::Instance;
use super::calls::refuse_calls;
use super::in_flight::{InFlight, Next};
use super::queued::{Batch, Queued};
use super::reporting::CommitReport;
use super::row_columns::RowColumns;
use super::tasks::TaskPlan;

/// The last turn of an execution, and the state before it.
struct LastTurn {
    turn: Turn,
    /// The checksum of the previous turn.
    previous: u32,
    ledger: Ledger,
    started: Started,
}

impl Instance {
    pub(super) fn terminate_resident(&mut self, shared: &mut Shared, now_ms: u64, reason: &str) {
        let Some(execution) = self.take_idle() else { return };
        shared.residents.leave(&mut self.stay);
        let mut ledger = execution.ledger().clone();
        let turn = ledger.terminate(now_ms, reason);
        let last = LastTurn { turn, previous: self.checksum, ledger, started: execution.started().clone() };
        self.commit_termination(shared, &last, Some(execution));
    }

    pub(super) fn terminate_loaded(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        past: Past,
        reason: &str,
        parent: Option<&ParentLink>,
    ) {
        let last = match past {
            Past::Stored(_) => self.terminate_unstarted(now_ms, reason),
            Past::Read(record) => terminate_record(now_ms, *record, reason),
            Past::Unreadable(failure) => Err(failure),
        };
        match last {
            Ok(last) => self.commit_termination(shared, &last, None),
            Err(failure) if failure.leaves_history() => {
                self.block(shared, now_ms, Vec::new(), &failure, Vec::new());
            }
            Err(_) => self.terminate_unread(shared, now_ms, reason, parent),
        }
    }

    /// Terminates an instance whose row or history cannot be read. Only its row is changed: a last turn could not
    /// follow the unreadable history. Children keep running, because it is not known which there are.
    pub(super) fn terminate_unread(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        reason: &str,
        parent: Option<&ParentLink>,
    ) {
        tracing::error!(
            target: log::INSTANCE,
            instance = &*self.id,
            key = %self.key,
            execution = self.columns.as_ref().map(|columns| columns.execution),
            "instance terminated without its history, which cannot be read"
        );
        let messages = Batch::new(self.queue.take_all());
        let calls = self.pending_calls.take_all();
        let stored = self.columns.clone().unwrap_or_else(|| RowColumns::nothing_stored(1));
        let columns = RowColumns {
            status: Status::Terminated,
            owed: false,
            full: false,
            wake_at_ms: None,
            ..stored.unblocked()
        };
        let mut plan = TaskPlan::of(&mut self.tasks, |_| false);
        plan.close_all(&mut self.tasks);
        // The stored columns are not known, so all of them are written.
        let change = RowChange {
            status: Some(Status::Terminated),
            owed: Some(false),
            full: Some(false),
            wake_at_ms: Some(None),
            blocked: Some(None),
            ended_ms: Some(Some(now_ms)),
            ..RowChange::default()
        };
        let ending = Ending::OrchestrationTerminated { reason: reason.to_owned() };
        let send = parent.and_then(|parent| outcome_for(parent, &ending)).into_iter().collect();
        let consumed = messages.numbers().to_vec();
        let mut commit = Commit { change, send, consumed, ..shared.empty_commit(self.key) };
        let mut outputs = end_replies(&messages);
        outputs.extend(refuse_calls(&calls, &CallReply::Ended, &mut commit.replies));
        let (answered, orphaned) = self.orphaned_updates(shared, &mut commit.replies);
        outputs.extend(orphaned);
        let next = Next::Ended(None, Box::new(ending));
        let mut in_flight =
            InFlight { outputs, answered, refused: calls, ..InFlight::new(columns, next, messages) };
        plan.apply(&mut commit, &mut in_flight);
        self.commit(shared, commit, in_flight);
    }

    fn terminate_unstarted(&self, now_ms: u64, reason: &str) -> Result<LastTurn, BlockReason> {
        let Some(start) = self.queue.start() else {
            return Err(unreadable("it has neither turns nor a start"));
        };
        let started = start.started.clone();
        let turn = Ledger::terminate_unstarted(&started, now_ms, reason)
            .map_err(|error| BlockReason::Turn(error.into()))?;
        Ok(LastTurn { turn, previous: started.chain, ledger: Ledger::default(), started })
    }

    fn commit_termination(&mut self, shared: &mut Shared, last: &LastTurn, alive: Option<Box<Execution>>) {
        let LastTurn { turn, previous, ledger, started } = last;
        // This is the only place where codecs are called under the lane's lock, and only for the input of an instance
        // that never started: a termination contains no other payload.
        let row = TurnRow::seal_with(&shared.options.codecs, self.key, started.execution, *previous, turn);
        let row = match row {
            Ok(row) => row,
            Err(error) => {
                return self.block(
                    shared,
                    turn.at_ms,
                    Vec::new(),
                    &BlockReason::Unencodable(error),
                    Vec::new(),
                );
            }
        };
        let messages = self.queue.take_all();
        let stored = self.stored();
        let ending = turn.ending().expect("it ends").clone();
        let columns = RowColumns::ended(Status::after(&ending), started, &stored);
        let updates = self.pending_calls.take_updates();
        let mut plan = TaskPlan::of(&mut self.tasks, |_| false);
        plan.close_all(&mut self.tasks);
        let mut commit = Commit {
            turn: Some(row),
            change: RowChange { ended_ms: Some(Some(turn.at_ms)), ..columns.change_from(&stored) },
            consumed: messages.iter().filter_map(Queued::number).collect(),
            ..shared.empty_commit(self.key)
        };
        // It runs no code, but it is a turn like any other.
        let span = TurnSpan::open(self.key, &self.id, &shared.options.node, started, turn.number);
        let sender =
            Sender { key: self.key, id: &self.id, started, turn: span.is_some().then_some(turn.number) };
        let span = span.map(|span| span.taken(&sender, turn, None));
        commit.send = parting(shared, &sender, ledger, &ending, turn);
        let messages = Batch::new(messages);
        let mut outputs = end_replies(&messages);
        outputs.extend(refuse_calls(&updates, &CallReply::Ended, &mut commit.replies));
        let (answered, orphaned) = self.orphaned_updates(shared, &mut commit.replies);
        outputs.extend(orphaned);
        let next = Next::Ended(alive, Box::new(ending));
        let in_flight = InFlight::new(columns, next, messages);
        shared.counters.events_refused += in_flight.messages.events() as u64;
        let report = CommitReport::ending(shared, &started.name);
        let mut in_flight = InFlight { outputs, answered, refused: updates, report, span, ..in_flight };
        plan.apply(&mut commit, &mut in_flight);
        self.commit(shared, commit, in_flight);
    }
}

fn terminate_record(now_ms: u64, record: Record, reason: &str) -> Result<LastTurn, BlockReason> {
    if record.ledger.ended().is_some() {
        return Err(unreadable("it is not final, but its history has ended"));
    }
    let (started, previous) = (record.started().clone(), record.history.checksum);
    let mut ledger = record.ledger;
    Ok(LastTurn { turn: ledger.terminate(now_ms, reason), previous, ledger, started })
}

/// Responses to the senders of messages that a termination makes obsolete: those who requested it learn that it is
/// done, all others that they are too late.
fn end_replies(messages: &Batch) -> Vec<Output> {
    let reply = |queued: &Queued| {
        let answer = if queued.is_termination() { Response::Accepted } else { Response::EndedBefore };
        Some(Output::reply(queued.caller()?, answer))
    };
    messages.iter().filter_map(reply).collect()
}

fn unreadable(what: &str) -> BlockReason {
    BlockReason::Unreadable(ErrorCode::CorruptRow.message(what))
}
