//! Handling a turn that was taken: a commit, or nothing to record.

use std::time::Duration;

use crate::code::ErrorCode;
use crate::execution::{Execution, Stream, Successor, TurnTaken};
use crate::flaws::{self, Flaw};
use crate::history::{Ending, EventId, Turn};
use crate::store::{Commit, Outgoing};

use super::super::block_reason::BlockReason;
use super::super::message::{Message, Start};
use super::super::outgoing::{Sender, outgoing};
use super::super::output::Output;
use super::super::request::{PendingCall, Response};
use super::super::shared::Shared;
use super::super::spans::of_detached;
use super::super::turn_task::{CallOutcome, TurnRun};
use super::Instance;
use super::in_flight::{InFlight, Next, Phase, Turning};
use super::limits::Limits;
use super::queued::{Arrived, Batch, Origin, count_events};
use super::reporting::{CommitReport, count_stale};
use super::row_columns::RowColumns;
use super::rows::{describe_changes, new_row};
use super::tasks::TaskPlan;
use super::tending::View;

impl Instance {
    /// Turns a taken turn into one commit. The turn, the row, task rows, messages and replies are written together or
    /// not at all, so that a crash never leaves only a part of them.
    pub(super) fn turn_taken(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        turning: Turning,
        run: TurnRun,
        (calls, took): (Vec<(PendingCall, CallOutcome)>, Option<Duration>),
    ) {
        let TurnRun { execution, taken, row, checksum, span } = run;
        let TurnTaken { turn, stale, successor, ended_updates, carried_updates, late_events } = taken;
        count_stale(shared, &stale);
        let Turning { messages, fired_ms, fired, .. } = turning;
        let Some((turn, row)) = turn.zip(row) else {
            self.checksum = checksum;
            return self.no_turn(shared, now_ms, messages, execution, calls);
        };
        self.lost_turns = 0;
        let consumed = messages.numbers().to_vec();
        let mut commit = Commit { turn: Some(row), fired_ms, consumed, ..shared.empty_commit(self.key) };
        let accepted = self.settle_calls(shared, calls, &mut commit.replies);
        let (ledger, started) = (execution.ledger(), execution.started());
        self.tasks.learn_deadlines(ledger);
        // Changes the task rows in memory before the commit; if that fails, they are loaded again with the instance.
        let plan = self.plan_tasks(shared, &execution, &turn);
        let stored = self.columns.clone().unwrap_or_else(|| RowColumns::nothing_stored(started.execution));
        self.limits = Limits::of_execution(ledger, started, &shared.gaps);
        let (tasks, limits, max_unread) = (&self.tasks, &self.limits, shared.options.max_unread);
        let mut columns =
            RowColumns::after_turn(&execution, max_unread, turn.ending(), &stored, tasks, limits, now_ms);
        let sender =
            Sender { key: self.key, id: &self.id, started, turn: span.as_ref().map(|_| turn.number) };
        commit.send = outgoing(shared, &sender, ledger, &turn);
        let rest = messages.rest().filter(|_| !columns.status.is_final());
        commit.send.extend(rest.map(|rest| self.to_itself(shared, rest)));
        let mut carried_rows = usize::from(rest.is_some());
        let start = match turn.ending() {
            Some(Ending::OrchestrationContinuedAsNew { version, .. }) => {
                let mut successor = successor.expect("an execution that continues has a successor");
                self.recorded_unread = count_events(&successor.jobs);
                // Derived from the history, so that the same turn taken again after a crash starts the same execution.
                let seed = Stream::derived_seed(started, EventId(ledger.events()));
                // The execution does not know the times without an owner, which extend the grace period.
                if let Some(until_ms) = self.limits.grace_until_ms() {
                    successor.set_grace(until_ms.saturating_sub(turn.at_ms));
                }
                let (mut start, rest) =
                    next_start(shared, version.as_deref(), successor, seed, checksum, &mut columns);
                start.started.trace = of_detached(&sender, EventId(ledger.events()));
                let first = Message::Start(Box::new(start.clone()));
                carried_rows += 1 + rest.len();
                commit.send.push(self.to_itself(shared, &first));
                commit.send.extend(rest.iter().map(|message| self.to_itself(shared, message)));
                Some(start)
            }
            _ => None,
        };
        let report =
            CommitReport::turn(shared, &execution, (&turn, late_events.len()), &messages, (took, fired));
        let next_trace = start.as_ref().and_then(|start| start.started.trace.as_deref());
        let span = span.map(|span| span.taken(&sender, &turn, next_trace));
        let started = self.write_row(&execution, &turn, &columns, &messages, &mut commit);
        let outputs = started.into_iter().chain(messages.taken_replies(&late_events)).collect();
        let next = match (start, turn.ending()) {
            (Some(start), _) => Next::Continued(execution, Box::new(start)),
            (None, Some(ending)) => Next::Ended(Some(execution), Box::new(ending.clone())),
            (None, None) => Next::Idle(execution),
        };
        let (start, checksum) = (messages.start_request(), Some(checksum));
        let in_flight = InFlight::new(columns, next, messages);
        let mut in_flight = InFlight { report, outputs, start, checksum, carried_rows, span, ..in_flight };
        plan.apply(&mut commit, &mut in_flight);
        let accepted = self.answer_activity_calls(accepted, &mut commit, &mut in_flight);
        let accepted = Instance::answer_raises(accepted, &late_events, &mut commit, &mut in_flight);
        self.answer_updates(shared, &turn, &ended_updates, accepted, &mut commit, &mut in_flight);
        debug_assert!(
            carried_updates.iter().all(|(event, _)| !self.is_awaited(shared, &in_flight, *event)),
            "a caller waits for an update that is carried over to the next execution"
        );
        self.commit(shared, commit, in_flight);
    }

    /// Whether a caller waits for the answer of an update by its event.
    ///
    /// Nobody waits for an update that is carried over to the next execution. An update that a caller sent is the first job
    /// of its turn, so its handler starts before the code can end. An update that a reset delivers again may be carried over,
    /// but its callers were answered by the reset, and a caller that sends it again finds it by its key once it is recorded
    /// in an execution that continues.
    fn is_awaited(&self, shared: &Shared, in_flight: &InFlight, update: EventId) -> bool {
        !shared.updates.waiting(self.key, update).is_empty()
            || in_flight.accepted.iter().any(|(accepted, _)| *accepted == update)
    }

    /// Adds the new columns of the row to a turn's commit. If the instance is not stored yet, it is inserted, and the
    /// caller that started it gets a response.
    fn write_row(
        &self,
        execution: &Execution,
        turn: &Turn,
        columns: &RowColumns,
        messages: &Batch,
        commit: &mut Commit,
    ) -> Option<Output> {
        let Some(stored) = &self.columns else {
            commit.insert = Some(Box::new(new_row(self.key, &self.id, execution, columns, turn.at_ms)));
            let started = messages.start_request();
            return started.map(|request| Output::reply(request, Response::Started(self.key)));
        };
        commit.change = columns.change_from(stored);
        describe_changes(&mut commit.change, execution.ledger(), turn);
        commit.change.ended_ms = columns.status.is_final().then_some(Some(turn.at_ms));
        None
    }

    /// A message to the instance itself, sent with its commit.
    pub(super) fn to_itself(&self, shared: &Shared, message: &Message) -> Outgoing {
        let (to, shard, body) = (self.key, shared.id, message.encode());
        Outgoing::ToKey { to, shard, dedupe: None, urgent: false, body }
    }

    /// Handles a turn task that took no turn. A history that has ended belongs to an ended instance.
    fn no_turn(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        messages: Batch,
        execution: Box<Execution>,
        calls: Vec<(PendingCall, CallOutcome)>,
    ) {
        if execution.has_ended() && !self.has_ended() {
            shared.outputs.push(Output::Drop(execution));
            let reason = ErrorCode::CorruptRow.message("it is not final, but its history has ended");
            let failure = BlockReason::Unreadable(reason);
            return self.block(shared, now_ms, messages.into_messages(), &failure, Vec::new());
        }
        self.nothing_taken(shared, now_ms, messages, execution, calls);
    }

    /// Handles a turn with nothing to record: the instance was only hydrated or called, or all its jobs were stale.
    pub(super) fn nothing_taken(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        messages: Batch,
        execution: Box<Execution>,
        calls: Vec<(PendingCall, CallOutcome)>,
    ) {
        let consumed = messages.numbers().to_vec();
        let send = messages.rest().map(|rest| self.to_itself(shared, rest)).into_iter().collect();
        let mut commit = Commit { consumed, send, ..shared.empty_commit(self.key) };
        let accepted = self.settle_calls(shared, calls, &mut commit.replies);
        let stored = self.stored();
        if execution.has_ended() {
            return self.calls_answered(shared, stored, commit, messages, execution);
        }
        let (ledger, started) = (execution.ledger(), execution.started());
        self.tasks.learn_deadlines(ledger);
        let view = if self.tasks.is_hydrated() { View::Fresh } else { View::Memory };
        self.tend_tasks(shared, now_ms, &execution, view);
        let plan = TaskPlan::of_open(&mut self.tasks, ledger);
        let max_unread = shared.options.max_unread;
        self.limits = Limits::of_execution(ledger, started, &shared.gaps);
        let (tasks, limits) = (&self.tasks, &self.limits);
        let mut columns =
            RowColumns::after_turn(&execution, max_unread, None, &stored, tasks, limits, now_ms);
        let is_due = ledger.timers().next().is_some_and(|(due_ms, _)| due_ms <= now_ms);
        if !self.queue.is_empty() || (is_due && messages.is_empty()) {
            // Changes are written together with other pending writes; a blocked instance is unblocked once that commit
            // is durable.
            let (blocked_attempts, blocked_cause) = (stored.blocked_attempts, stored.blocked_cause.clone());
            let (skippable, pause, blocked_code) = (stored.skippable, stored.pause, stored.blocked_code);
            columns = match plan.is_empty() {
                true => stored.clone(),
                false => {
                    RowColumns { blocked_attempts, blocked_code, blocked_cause, skippable, pause, ..columns }
                }
            };
        }
        commit.change = columns.change_from(&stored);
        let outputs = messages.replies(&Response::Accepted).collect();
        let mut in_flight = InFlight { outputs, ..InFlight::new(columns, Next::Gone, messages) };
        plan.apply(&mut commit, &mut in_flight);
        let accepted = self.answer_activity_calls(accepted, &mut commit, &mut in_flight);
        debug_assert!(accepted.is_empty(), "an accepted update is a job, and is recorded");
        if commit.is_empty() {
            self.release(shared, now_ms, in_flight.outputs);
            return self.settle_idle(shared, now_ms, execution);
        }
        in_flight.next = Next::Idle(execution);
        self.commit(shared, commit, in_flight);
    }

    /// Handles calls to an instance that has ended.
    fn calls_answered(
        &mut self,
        shared: &mut Shared,
        stored: RowColumns,
        commit: Commit,
        messages: Batch,
        execution: Box<Execution>,
    ) {
        if commit.is_empty() {
            shared.outputs.push(Output::Drop(execution));
            return self.clear_leftovers(shared);
        }
        self.commit(shared, commit, InFlight::new(stored, Next::CallsAnswered(execution), messages));
    }

    /// Starts the next execution, whose start is durable in the inbox row with this number.
    pub(super) fn continued(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        execution: Box<Execution>,
        start: Start,
        number: Option<u64>,
    ) {
        shared.outputs.push(Output::Drop(execution));
        shared.stop_attempts(self.key);
        self.tasks.clear();
        self.limits.end_grace();
        shared.wakes.set(self.key, None);
        if shared.standing.is_closing() {
            // Its start is stored, and so is everything that arrived for it. Calls of other processes are request rows.
            self.phase = Phase::Delayed;
            self.pending_calls.forget_rows();
            return self.go_on(shared, now_ms);
        }
        shared.outputs.push(Output::Continued { key: self.key, execution: start.started.execution });
        match number.filter(|_| !shared.paused.contains(&start.started.name)) {
            Some(number) => {
                // They are part of the start.
                self.recorded_unread = 0;
                let origin = Origin::Inbox(number);
                self.begin(shared, now_ms, Arrived { what: start, origin, arrived_ms: now_ms });
            }
            // It was committed before, or its orchestration is paused; what was sent then has to be read.
            None => self.reload(shared),
        }
    }
}

/// The start of the next execution, and the carried-over jobs that do not fit into its first turn. From now on the row
/// describes that execution.
fn next_start(
    shared: &Shared,
    version: Option<&str>,
    successor: Successor,
    seed: u64,
    checksum: u32,
    columns: &mut RowColumns,
) -> (Start, Vec<Message>) {
    let mut started = successor.started(version.unwrap_or_default().to_owned(), seed);
    started.chain = checksum;
    columns.execution = started.execution;
    columns.wake_at_ms = started.deadline_ms;
    // If the latest version is wanted, it is resolved and written with the first turn.
    if let Some(version) = version {
        columns.version = version.into();
    }
    let jobs = if flaws::is(Flaw::ForgottenEvents) { Vec::new() } else { successor.jobs };
    let mut portions = shared.options.portions(jobs).into_iter();
    let start = Start { jobs: portions.next().unwrap_or_default(), ..Start::new(started) };
    let execution = start.started.execution;
    (start, portions.map(|jobs| Message::Carried { execution, jobs, in_place_of: None }).collect())
}
