//! Giving an instance its next turn.
//!
//! The order of the checks in `form_turn` matters. Ends that need no code come first, because they have to work even if
//! the code fails. A message that cannot be read blocks the instance before anything is delivered, because no later
//! message may overtake it. Repairs are recorded in a turn of their own, before jobs that may make a turn fail.

use std::sync::Arc;

use crate::execution::Execution;
use crate::flaws::{self, Flaw};
use crate::history::{EventId, Job, Started};
use crate::store::{InstanceRow, TurnRow};
use crate::trace;

use super::super::block_reason::BlockReason;
use super::super::facts::Fact;
use super::super::message::Message;
use super::super::output::Output;
use super::super::record::Past;
use super::super::request::{InstanceCall, PendingCall, Response};
use super::super::shared::Shared;
use super::super::turn_task::{CallOutcome, TurnSource, TurnTask, TurnTaskDone, TurnTaskOutput};
use super::Instance;
use super::in_flight::{Delivery, Next, Phase, Turning};
use super::limits::Limits;
use super::queued::{Batch, Queued};
use super::row_columns::wakes_from;
use super::tending::View;

impl Instance {
    /// Starts the next step, if nothing is in progress.
    pub(in crate::shard) fn go_on(&mut self, shared: &mut Shared, now_ms: u64) {
        if self.pending_calls.has_reset()
            && matches!(self.phase, Phase::Idle(_) | Phase::Blocked | Phase::Delayed)
        {
            return self.load_for_reset(shared);
        }
        let is_empty = self.queue.is_empty() && self.pending_calls.is_empty() && !self.tasks.has_writes();
        match &self.phase {
            Phase::Idle(_) => self.form_turn(shared, now_ms),
            // Its attempts are known only from its history, which is not in memory.
            Phase::Blocked if !self.tasks.has_writes() && self.has_to_hand_over(shared) => {
                self.reload(shared);
            }
            Phase::Blocked | Phase::Delayed if is_empty => {}
            Phase::Blocked
                if self.queue.has_termination()
                    || self.queue.has_pause()
                    || self.queue.asks_for_try(&self.tried) =>
            {
                self.answer_retries(shared);
                self.reload(shared);
            }
            // An instance that has not started can be ended immediately.
            Phase::Delayed
                if self.queue.has_termination() || self.queue.has_cancel() || self.queue.has_pause() =>
            {
                self.reload(shared);
            }
            Phase::Blocked => self.keep_queue(shared, Next::Kept),
            Phase::Delayed => self.keep_queue(shared, Next::Delayed),
            Phase::Loading | Phase::Turning(..) | Phase::Committing(_) | Phase::Gone => {}
        }
    }

    /// Responds to retry requests: they have had their effect once the instance is being loaded.
    fn answer_retries(&mut self, shared: &mut Shared) {
        let retries = Batch::new(self.queue.take_retries());
        self.is_retried |= !retries.is_empty();
        shared.outputs.extend(retries.replies(&Response::Accepted));
    }

    /// Gives an idle execution its next turn, if there is anything to deliver.
    fn form_turn(&mut self, shared: &mut Shared, now_ms: u64) {
        let Phase::Idle(execution) = &self.phase else { return };
        self.limits = Limits::of_execution(execution.ledger(), execution.started(), &shared.gaps);
        // Ends that the engine enforces do not depend on anything that could fail below.
        let termination = self.queue.termination().map(str::to_owned);
        let overdue = || self.limits.overdue(execution.ledger().cancel_reason(), now_ms);
        if let Some(reason) = termination.or_else(overdue) {
            return self.terminate_resident(shared, now_ms, &reason);
        }
        let name = &execution.started().name;
        if self.queue.wants_pause() || shared.paused.contains(name) {
            let name = name.clone();
            return self.pause_idle(shared, now_ms, &name);
        }
        if let Some(failure) = self.queue.unreadable(true) {
            return self.block_idle(shared, now_ms, &failure);
        }
        let Some(execution) = self.take_idle() else { return };
        // Task rows that are due are planned first, so that this turn's commit writes them.
        self.tend_tasks(shared, now_ms, &execution, View::Memory);
        self.hand_over(shared, now_ms, &execution);
        let repairs = self.queue.take_repairs();
        if !repairs.is_empty() {
            return self.record_repairs(shared, now_ms, execution, repairs);
        }
        let skips = self.queue.take_skips();
        let at_most = self.jobs_before(&skips, execution.ledger().events());
        let mut delivery = self.take_jobs(shared, now_ms, &execution, at_most);
        self.deliver_skips(shared, skips, &mut delivery);
        delivery.fired_ms = delivery.fired_ms.and_then(|due_ms| self.queue.unread_before(due_ms));
        if delivery.is_empty() && self.pending_calls.is_empty() && !self.tasks.has_writes() {
            return self.stay_idle(shared, now_ms, execution);
        }
        shared.residents.leave(&mut self.stay);
        shared.wakes.set(self.key, None);
        if !delivery.jobs.is_empty() || !self.pending_calls.is_empty() {
            let source = TurnSource::Resident(execution, self.checksum);
            return self.take_turn(shared, now_ms, source, delivery);
        }
        // Nothing for the code: messages without effect are consumed and task rows written without a turn.
        let messages = Batch::new(delivery.messages);
        self.nothing_taken(shared, now_ms, messages, execution, Vec::new());
    }

    /// Takes a turn that only records repairs: later jobs may make a turn fail, and the repairs must be recorded even
    /// then, because they have been made.
    fn record_repairs(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        execution: Box<Execution>,
        repairs: Vec<Queued>,
    ) {
        let mut delivery = Delivery::default();
        delivery.append(repairs);
        shared.residents.leave(&mut self.stay);
        shared.wakes.set(self.key, None);
        self.take_turn(shared, now_ms, TurnSource::Resident(execution, self.checksum), delivery);
    }

    /// Stays idle until the next wake time.
    fn stay_idle(&mut self, shared: &mut Shared, now_ms: u64, execution: Box<Execution>) {
        self.read_for_behind(shared);
        // Something that is due and not done waits for rows to be read, for a quarantine slot, or for the next owner;
        // waking for it now would only spin.
        let waits = shared.standing.is_stopping()
            || self.tasks.is_refreshing()
            || shared.attempts.has_quarantined(self.key);
        let from_ms = if waits { now_ms.saturating_add(1) } else { 0 };
        let wake = wakes_from(from_ms, execution.ledger(), &self.limits, &self.tasks);
        self.phase = Phase::Idle(execution);
        shared.wakes.set(self.key, wake);
    }

    /// What an execution's next turn delivers, up to half of a turn's limits: messages and due timers in their order. A
    /// timer is delivered before the first message that arrived after it was due, so that what happened while the
    /// instance was not running is delivered in the order in which it happened.
    fn take_jobs(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        execution: &Execution,
        at_most: usize,
    ) -> Delivery {
        let (max_jobs, max_bytes) = shared.options.jobs_per_turn();
        let limit = max_jobs.min(at_most);
        let is_closing = shared.standing.is_closing();
        let is_due = |(due_ms, _): &(u64, EventId)| *due_ms <= now_ms && !is_closing;
        let mut due = execution.ledger().timers().take_while(is_due).take(limit).peekable();
        let mut delivery = Delivery::default();
        let (mut bytes, mut latest_arrival_ms) = (0, 0);
        let weight = |jobs: &[Job]| jobs.iter().map(Job::weight).sum::<u64>();
        // The first portion is taken even if it exceeds the limits: otherwise it could never be delivered.
        while delivery.jobs.len() < limit
            && let Some(carried) = self.queue.take_carried(|jobs| {
                delivery.jobs.is_empty()
                    || (delivery.jobs.len() + jobs.len() <= max_jobs && bytes + weight(jobs) <= max_bytes)
            })
        {
            delivery.append([still_of(execution.started(), carried)]);
            bytes = weight(&delivery.jobs);
        }
        delivery.cut(at_most);
        if self.queue.has_carried() {
            // Carried-over jobs are older than everything else, which therefore waits for the next turn.
            return delivery;
        }
        while delivery.jobs.len() < limit
            && let Some(queued) = self.queue.front()
        {
            latest_arrival_ms = latest_arrival_ms.max(queued.arrived_ms);
            if let Some((due_ms, event)) =
                due.next_if(|(due_ms, _)| *due_ms < latest_arrival_ms || flaws::is(Flaw::TimersFirst))
            {
                delivery.fire(due_ms, event);
                continue;
            }
            if let Message::Job(job) | Message::Outcome { job, .. } = &queued.message {
                bytes += job.weight();
                // A message that is too large for any turn is delivered alone rather than never.
                if bytes > max_bytes && !delivery.jobs.is_empty() {
                    return delivery;
                }
            }
            if let Some(queued) = self.queue.pop_front() {
                self.deliver(shared, now_ms, execution, queued, &mut delivery);
            }
        }
        for (due_ms, event) in due.take(limit.saturating_sub(delivery.jobs.len())) {
            delivery.fire(due_ms, event);
        }
        delivery
    }

    /// Makes a message part of what a turn delivers.
    fn deliver(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        execution: &Execution,
        queued: Queued,
        delivery: &mut Delivery,
    ) {
        let current = execution.started().execution;
        match &queued.message {
            Message::Outcome { execution: of, .. }
            | Message::Attempt { execution: of, .. }
            | Message::Requeue { execution: of, .. }
                if *of != current && !is_of_adopted(execution, *of, &queued.message) =>
            {
                shared.counters.stale += 1;
            }
            Message::Job(_) | Message::Outcome { .. } | Message::Carried { .. } => {
                return delivery.append([queued]);
            }
            Message::Attempt { event, attempt, result, details, ran, .. } => {
                let ended = (result.clone(), ran.clone(), queued.arrived_ms);
                let which = (*event, *attempt);
                let outcome = self.take_attempt(shared, now_ms, execution, which, details.clone(), ended);
                if let Some(message) = outcome {
                    // It keeps its place and its row until a turn has room for it.
                    return self.queue.put_back(vec![Queued { message, ..queued }]);
                }
            }
            Message::LeftOpen(left) => {
                let arrival = (queued.arrived_ms, queued.place == 0);
                if left.execution == current {
                    self.take_left_open(shared, now_ms, execution, left, arrival);
                } else {
                    shared.counters.stale += 1;
                }
            }
            Message::Token(call) => {
                if let Some(message) = self.deliver_said(shared, now_ms, execution, call) {
                    return self.queue.put_back(vec![Queued { message, ..queued }]);
                }
            }
            Message::Requeue { event, attempt, past, .. } => {
                let is_found_by_load = queued.place == 0;
                self.requeue(shared, now_ms, execution, (*event, *attempt), past.clone(), is_found_by_load);
            }
            Message::Start(_)
            | Message::Terminate { .. }
            | Message::Retry
            | Message::Pause(_)
            | Message::Resume(_)
            | Message::SkipMessage { .. }
            | Message::Unreadable { .. } => {}
        }
        delivery.messages.push(queued);
    }

    /// Hands out a turn, with the messages that it delivers and the pending calls.
    pub(super) fn take_turn(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        source: TurnSource,
        delivery: Delivery,
    ) {
        let Delivery { jobs, messages, fired_ms, fired, rest } = delivery;
        let orchestration = source.name().and_then(|name| shared.facts.orchestration(name));
        // Calls to a new execution are made after its first turn.
        let calls = match source {
            TurnSource::Start(_) => Vec::new(),
            TurnSource::Resident(..) | TurnSource::History(_) | TurnSource::Read(_) => {
                self.take_calls(shared, &messages)
            }
            TurnSource::Record(_) | TurnSource::Reset(_) => Vec::new(),
        };
        if matches!(source, TurnSource::History(_) | TurnSource::Read(_)) {
            self.tasks.handle_hydrated();
        }
        let runs_code = source.runs_code();
        let number = shared.next_turn_task();
        let messages = Batch::with_rest(messages, rest);
        let turning = Turning::new(number, messages, calls.clone(), fired_ms);
        self.phase = Phase::Turning(Turning { fired, orchestration, ..turning });
        let is_full = self.is_full(shared);
        shared.outputs.push(Output::TakeTurn(Box::new(TurnTask {
            shard: shared.id,
            tenure: shared.tenure,
            key: self.key,
            number,
            instance: self.id.clone(),
            source,
            calls,
            jobs,
            now_ms,
            options: shared.options.execution.clone(),
            codecs: shared.options.codecs.clone(),
            is_on_probation: runs_code && self.lost_turns > 0 && !self.is_asked_for,
            is_full,
            traced_on: trace::source().map(|_| Arc::clone(&shared.options.node)),
        })));
    }

    /// Hands out the decoding of a loaded instance's history, to decide what happens to it.
    pub(super) fn read_record(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        row: Box<InstanceRow>,
        turns: Vec<TurnRow>,
    ) {
        self.take_turn(shared, now_ms, TurnSource::Record(turns), Delivery::default());
        if let Phase::Turning(turning) = &mut self.phase {
            turning.decides = Some(row);
        }
    }

    /// The calls that may be made before a turn delivers these messages: those whose earlier messages have all been
    /// delivered, in order.
    fn take_calls(&mut self, shared: &mut Shared, delivered: &[Queued]) -> Vec<PendingCall> {
        if self.pending_calls.is_empty() {
            return Vec::new();
        }
        // Nothing is delivered after the end, so calls need not wait for messages.
        if self.has_ended() {
            return self.pending_calls.take_all();
        }
        let places = delivered.iter().filter(|queued| queued.is_job()).map(|queued| queued.place);
        let first = places.chain(self.queue.first_place()).min();
        let mut calls = self.pending_calls.take_before(first);
        if let Some(early) = calls.iter().position(|pending| self.is_early(pending, delivered)) {
            let later = calls.split_off(early);
            self.pending_calls.put_back(later);
        }
        for pending in &mut calls {
            pending.row = self.open_row(shared, &pending.call);
        }
        calls
    }

    /// Whether a token call concerns an attempt whose row was deleted by another node's message. That message is
    /// recorded first, and determines the reply.
    fn is_early(&self, pending: &PendingCall, delivered: &[Queued]) -> bool {
        let InstanceCall::Token(call) = &pending.call else { return false };
        let (execution, event) = (call.execution, call.event);
        let mut results = delivered.iter().flat_map(Queued::results_of);
        self.tasks.latest(event).is_none()
            && (self.queue.has_result(execution, event) || results.any(|it| it == (execution, event)))
    }

    /// Handles a completed turn task.
    pub(in crate::shard) fn handle_turn_done(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        done: TurnTaskDone,
    ) {
        let TurnTaskDone { number, outcome, calls, times, .. } = done;
        let Some(mut turning) = self.end_turn(number) else {
            let execution = outcome.ok().and_then(TurnTaskOutput::into_execution);
            return shared.outputs.extend(execution.map(Output::Drop));
        };
        if let Some(took) = times.hydrating {
            shared.facts.state(Fact::Hydrated { took });
        }
        match (outcome, turning.decides.take()) {
            (Ok(TurnTaskOutput::Turn(run)), _) => {
                self.turn_taken(shared, now_ms, turning, *run, (calls, times.turn));
            }
            (Ok(TurnTaskOutput::Record(record)), Some(row)) => {
                self.revive(shared, now_ms, &row, Past::Read(record));
            }
            (Ok(TurnTaskOutput::Reset(outcome)), _) => {
                self.reset_prepared(shared, now_ms, turning.calls, *outcome);
            }
            (Ok(TurnTaskOutput::Record(_)), None) => self.reload(shared),
            (Err(failure), Some(row)) => self.revive(shared, now_ms, &row, Past::Unreadable(failure)),
            (Err(failure), None) => {
                if times.turn.is_some() {
                    Instance::report_failed(shared, turning.orchestration, times.turn);
                }
                let mut answers = Vec::new();
                // The effects of token calls are determined again, because nothing was written.
                let calls = calls.into_iter().map(|(pending, outcome)| match outcome {
                    CallOutcome::Writes(_) => (pending, CallOutcome::Later),
                    outcome => (pending, outcome),
                });
                let mut accepted = self.settle_calls(shared, calls.collect(), &mut answers);
                let mut messages = turning.messages.into_messages();
                let is_refused =
                    self.refuse_event(shared, &failure, &mut messages, &mut accepted, &mut answers);
                // Nothing of the turn is recorded, so the updates are treated as never offered.
                self.pending_calls.put_back(accepted);
                match is_refused {
                    true => self.try_without(shared, messages, answers),
                    false => self.block(shared, now_ms, messages, &failure, answers),
                }
            }
        }
    }

    /// Handles a turn whose thread was abandoned, and its execution with it.
    pub(in crate::shard) fn handle_turn_lost(&mut self, shared: &mut Shared, now_ms: u64, number: u64) {
        if let Some(turning) = self.end_turn(number) {
            let is_reset = turning.calls.iter().any(|pending| pending.call.is_reset());
            if turning.decides.is_some() || is_reset {
                self.pending_calls.extend(turning.calls);
                // No code ran, so another attempt is harmless.
                return self.reload(shared);
            }
            self.pending_calls.extend(turning.calls);
            Instance::report_failed(shared, turning.orchestration, None);
            let messages = turning.messages.into_messages();
            self.block(shared, now_ms, messages, &BlockReason::ThreadLost, Vec::new());
        }
    }

    /// Continues with an execution that waits for inputs; some may already be there.
    pub(super) fn settle_idle(&mut self, shared: &mut Shared, now_ms: u64, execution: Box<Execution>) {
        self.recorded_unread = execution.unread_events();
        self.phase = Phase::Idle(execution);
        self.refuse_surplus(shared);
        self.rest(shared, now_ms);
        self.go_on(shared, now_ms);
    }

    /// Blocks an instance with an idle execution.
    fn block_idle(&mut self, shared: &mut Shared, now_ms: u64, failure: &BlockReason) {
        shared.residents.leave(&mut self.stay);
        shared.outputs.extend(self.take_idle().map(Output::Drop));
        self.block(shared, now_ms, Vec::new(), failure, Vec::new());
    }
}

/// Whether a message is the start or outcome of a child, or the report on a send, that an earlier execution started and
/// this one kept.
fn is_of_adopted(execution: &Execution, starter: u64, message: &Message) -> bool {
    match message {
        Message::Outcome { job, .. } => {
            job.subject().is_some_and(|event| execution.started().starter_of(event) == starter)
        }
        _ => false,
    }
}

/// The jobs that were carried over to an earlier execution and not delivered there, as far as they concern events of
/// this one.
pub(super) fn still_of(started: &Started, queued: Queued) -> Queued {
    let Message::Carried { execution, jobs, in_place_of } = queued.message else { return queued };
    let is_of = |job: &Job| job.subject().is_none_or(|event| started.has_event_of(execution, event));
    let jobs = jobs.into_iter().filter(is_of).collect();
    Queued { message: Message::Carried { execution, jobs, in_place_of }, ..queued }
}
