//! What follows from a turn that was taken: a commit, or nothing to record.

use crate::execution::{Execution, Stream, Successor, TurnTaken};
use crate::flaws::{self, Flaw};
use crate::history::{Ending, EventId, Turn};
use crate::store::{Commit, Outgoing};

use super::super::message::{Message, Start};
use super::super::outgoing::{Sender, outgoing};
use super::super::output::Output;
use super::super::request::{Answer, PendingAsk};
use super::super::shared::Shared;
use super::super::turn_task::{Consultation, TaskFailure, TurnRun};
use super::Instance;
use super::facts::Facts;
use super::in_flight::{InFlight, Next, Phase, Turning};
use super::limits::Limits;
use super::queued::{Arrived, Batch, Origin, count_events};
use super::rows::{describe_changes, new_row};
use super::tasks::TaskPlan;
use super::tending::View;

impl Instance {
    pub(super) fn turn_taken(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        turning: Turning,
        run: TurnRun,
        asks: Vec<(PendingAsk, Consultation)>,
    ) {
        let TurnRun { execution, taken, row, checksum } = run;
        let TurnTaken { turn, stale, successor, ended_updates, carried_updates, late_events } = taken;
        shared.counters.stale += stale.len() as u64;
        let Turning { messages, fired_ms, .. } = turning;
        let Some((turn, row)) = turn.zip(row) else {
            self.checksum = checksum;
            return self.no_turn(shared, now_ms, messages, execution, asks);
        };
        self.lost_turns = 0;
        let consumed = messages.numbers().to_vec();
        let mut commit = Commit { turn: Some(row), fired_ms, consumed, ..shared.empty_commit(self.key) };
        let accepted = self.settle_asks(shared, asks, &mut commit.replies);
        let (ledger, started) = (execution.ledger(), execution.started());
        self.tasks.learn_deadlines(ledger);
        let plan = self.plan_tasks(shared, &execution, &turn);
        let stored = self.facts.clone().unwrap_or_else(|| Facts::nothing_stored(started.execution));
        let max_unread = shared.options.max_unread;
        self.limits = Limits::of_execution(ledger, started, &shared.gaps);
        let (tasks, limits) = (&self.tasks, &self.limits);
        let mut facts =
            Facts::after_turn(&execution, max_unread, turn.ending(), &stored, tasks, limits, now_ms);
        commit.send = outgoing(shared, &Sender { key: self.key, id: &self.id, started }, ledger, &turn);
        let rest = messages.rest().filter(|_| !facts.status.is_final());
        commit.send.extend(rest.map(|rest| self.to_itself(shared, rest)));
        let mut carried_rows = usize::from(rest.is_some());
        let start = match turn.ending() {
            Some(Ending::OrchestrationContinuedAsNew { version, .. }) => {
                let mut successor = successor.expect("an execution that continues has a successor");
                self.recorded_unread = count_events(&successor.jobs);
                let seed = Stream::derived_seed(started, EventId(ledger.events()));
                if let Some(until_ms) = self.limits.grace_until_ms() {
                    successor.set_grace(until_ms.saturating_sub(turn.at_ms));
                }
                let (start, rest) =
                    next_start(shared, version.as_deref(), successor, seed, checksum, &mut facts);
                let first = Message::Start(Box::new(start.clone()));
                carried_rows += 1 + rest.len();
                commit
                    .send
                    .extend([first].iter().chain(&rest).map(|message| self.to_itself(shared, message)));
                Some(start)
            }
            _ => None,
        };
        let started = self.write_row(&execution, &turn, &facts, &messages, &mut commit);
        let outputs = started.into_iter().chain(messages.taken_replies(&late_events)).collect();
        let next = match (start, turn.ending()) {
            (Some(start), _) => Next::Continued(execution, Box::new(start)),
            (None, Some(ending)) => Next::Ended(Some(execution), Box::new(ending.clone())),
            (None, None) => Next::Idle(execution),
        };
        let start = messages.start_request();
        let mut in_flight = InFlight {
            outputs,
            start,
            checksum: Some(checksum),
            carried_rows,
            ..InFlight::new(facts, next, messages)
        };
        plan.apply(&mut commit, &mut in_flight);
        let accepted = self.answer_tokens(accepted, &mut commit, &mut in_flight);
        let accepted = Instance::answer_raises(accepted, &late_events, &mut commit, &mut in_flight);
        self.answer_updates(shared, &turn, &ended_updates, accepted, &mut commit, &mut in_flight);
        // An update that somebody asks for is the first job of its turn, so its handler begins before the code can end.
        // One that a reset delivers again may cross, but nobody waits for it: who had asked was told by the reset, and who
        // asks again finds it by its key once it is recorded in an execution that goes on.
        debug_assert!(
            carried_updates.iter().all(|(event, _)| {
                shared.updates.askers(self.key, *event).is_empty()
                    && in_flight.accepted.iter().all(|(accepted, _)| accepted != event)
            }),
            "somebody waits for an update that crosses to the next execution"
        );
        self.commit(shared, commit, in_flight);
    }

    /// Writes into a turn's commit what the instance's row says then. One that is not stored is inserted; whoever started
    /// it is told.
    fn write_row(
        &self,
        execution: &Execution,
        turn: &Turn,
        facts: &Facts,
        messages: &Batch,
        commit: &mut Commit,
    ) -> Option<Output> {
        let Some(stored) = &self.facts else {
            commit.insert = Some(Box::new(new_row(self.key, &self.id, execution, facts, turn.at_ms)));
            let started = messages.start_request();
            return started.map(|request| Output::reply(request, Answer::Started(self.key)));
        };
        commit.change = facts.change_from(stored);
        describe_changes(&mut commit.change, execution.ledger(), turn);
        commit.change.ended_ms = facts.status.is_final().then_some(Some(turn.at_ms));
        None
    }

    /// A message to the instance itself, which goes with its commit.
    pub(super) fn to_itself(&self, shared: &Shared, message: &Message) -> Outgoing {
        let (to, shard, body) = (self.key, shared.id, message.encode());
        Outgoing::ToKey { to, shard, dedupe: None, urgent: false, body }
    }

    /// No turn was taken. A history that has ended belongs to an instance that has.
    fn no_turn(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        messages: Batch,
        execution: Box<Execution>,
        asks: Vec<(PendingAsk, Consultation)>,
    ) {
        if execution.has_ended() && !self.has_ended() {
            shared.outputs.push(Output::Drop(execution));
            let reason = "PER-0508 corrupt row: it is not final, but its history has ended".to_owned();
            let failure = TaskFailure::Unreadable(reason);
            return self.block(shared, now_ms, messages.into_messages(), &failure, Vec::new());
        }
        self.nothing_taken(shared, now_ms, messages, execution, asks);
    }

    /// A turn had nothing to record: the instance was only hydrated or asked, or all its jobs were stale.
    pub(super) fn nothing_taken(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        messages: Batch,
        execution: Box<Execution>,
        asks: Vec<(PendingAsk, Consultation)>,
    ) {
        let consumed = messages.numbers().to_vec();
        let send = messages.rest().map(|rest| self.to_itself(shared, rest)).into_iter().collect();
        let mut commit = Commit { consumed, send, ..shared.empty_commit(self.key) };
        let accepted = self.settle_asks(shared, asks, &mut commit.replies);
        let stored = self.stored();
        if execution.has_ended() {
            return self.consulted(shared, stored, commit, messages, execution);
        }
        let (ledger, started) = (execution.ledger(), execution.started());
        self.tasks.learn_deadlines(ledger);
        let view = if self.tasks.is_hydrated() { View::Fresh } else { View::Memory };
        self.tend_tasks(shared, now_ms, &execution, view);
        let plan = TaskPlan::of_open(&mut self.tasks, ledger);
        let max_unread = shared.options.max_unread;
        self.limits = Limits::of_execution(ledger, started, &shared.gaps);
        let (tasks, limits) = (&self.tasks, &self.limits);
        let mut facts = Facts::after_turn(&execution, max_unread, None, &stored, tasks, limits, now_ms);
        let is_due = ledger.timers().next().is_some_and(|(due_ms, _)| due_ms <= now_ms);
        if !self.queue.is_empty() || (is_due && messages.is_empty()) {
            // What has changed is written with what waits; a blocked instance is cured when that has gone through.
            let (blocked_attempts, blocked_cause) = (stored.blocked_attempts, stored.blocked_cause.clone());
            let (skippable, pause) = (stored.skippable, stored.pause);
            facts = match plan.is_empty() {
                true => stored.clone(),
                false => Facts { blocked_attempts, blocked_cause, skippable, pause, ..facts },
            };
        }
        commit.change = facts.change_from(&stored);
        let outputs = messages.replies(&Answer::Accepted).collect();
        let mut in_flight = InFlight { outputs, ..InFlight::new(facts, Next::Gone, messages) };
        plan.apply(&mut commit, &mut in_flight);
        let accepted = self.answer_tokens(accepted, &mut commit, &mut in_flight);
        debug_assert!(accepted.is_empty(), "an accepted update is a job, and is recorded");
        if commit.is_empty() {
            self.release(shared, now_ms, in_flight.outputs);
            return self.settle_idle(shared, now_ms, execution);
        }
        in_flight.next = Next::Idle(execution);
        self.commit(shared, commit, in_flight);
    }

    /// An instance that has ended was asked something.
    fn consulted(
        &mut self,
        shared: &mut Shared,
        stored: Facts,
        commit: Commit,
        messages: Batch,
        execution: Box<Execution>,
    ) {
        if commit.is_empty() {
            shared.outputs.push(Output::Drop(execution));
            return self.clear_leftovers(shared);
        }
        self.commit(shared, commit, InFlight::new(stored, Next::Consulted(execution), messages));
    }

    /// The next execution begins: its start is durable, in the inbox row of this number.
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
            // Its start is stored, and what came for it is stored as well. Questions of others are rows.
            self.phase = Phase::Delayed;
            self.questions.forget_rows();
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
            // It was committed before, or its orchestration is paused; what was sent then is read.
            None => self.reload(shared),
        }
    }
}

/// How the next execution begins, and what crosses to it and does not fit into its first turn. What the row says of the instance is of that one from now on.
fn next_start(
    shared: &Shared,
    version: Option<&str>,
    successor: Successor,
    seed: u64,
    checksum: u32,
    facts: &mut Facts,
) -> (Start, Vec<Message>) {
    let mut started = successor.started(version.unwrap_or_default().to_owned(), seed);
    started.chain = checksum;
    facts.execution = started.execution;
    facts.wake_at_ms = started.deadline_ms;
    // One that is to be the latest is found out, and written, with the first turn.
    if let Some(version) = version {
        facts.version = version.into();
    }
    let jobs = if flaws::is(Flaw::ForgottenEvents) { Vec::new() } else { successor.jobs };
    let mut portions = shared.options.portions(jobs).into_iter();
    let start = Start { jobs: portions.next().unwrap_or_default(), ..Start::new(started) };
    let execution = start.started.execution;
    (start, portions.map(|jobs| Message::Carried { execution, jobs, in_place_of: None }).collect())
}
