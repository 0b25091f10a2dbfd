//! Giving an instance its next turn, and what follows from it.

use std::mem;

use crate::execution::Execution;
use crate::flaws::{self, Flaw};
use crate::history::{Ending, EventId};
use crate::instance::InstanceKey;
use crate::store::{Commit, Outgoing};

use super::message::{Message, Start};
use super::outgoing::Sender;
use super::output::Output;
use super::request::{Answer, AskReply, Asker, PendingAsk};
use super::rows::*;
use super::slot::{Delivery, Facts, InFlight, Next, Phase, Queued, Turning, wakes_from};
use super::state_machine::Shard;
use super::tasks::{TaskPlan, View, is_open};
use super::turn_task::{Consultation, TaskFailure, TurnRun, TurnSource, TurnTaskDone};

impl Shard {
    /// Does what is next for an instance that has nothing under way.
    pub(super) fn go_on(&mut self, now_ms: u64, key: InstanceKey) {
        let Some(slot) = self.slots.get_mut(&key) else {
            return;
        };
        let is_empty = slot.queue.is_empty() && slot.asks.is_empty() && slot.task_writes.is_empty();
        let wants = |wanted: fn(&Message) -> bool| slot.queue.iter().any(|queued| wanted(&queued.message));
        match &slot.phase {
            Phase::Idle(_) => self.form_turn(now_ms, key),
            Phase::Blocked | Phase::Delayed if is_empty => {}
            Phase::Blocked
                if wants(|message| matches!(message, Message::Terminate { .. } | Message::Retry)) =>
            {
                self.answer_retries(key);
                self.reload(key);
            }
            // What has not begun yet can be ended at once.
            Phase::Delayed if wants(|message| message.is_urgent() && !matches!(message, Message::Retry)) => {
                self.reload(key);
            }
            Phase::Blocked => self.keep_queue(key, Next::Kept),
            Phase::Delayed => self.keep_queue(key, Next::Delayed),
            Phase::Loading | Phase::Turning(..) | Phase::Committing(_) => {}
        }
    }

    /// A retry has done its work once the instance is being loaded.
    pub(super) fn answer_retries(&mut self, key: InstanceKey) {
        let Some(slot) = self.slots.get_mut(&key) else {
            return;
        };
        let (retries, rest): (Vec<Queued>, Vec<Queued>) =
            slot.queue.drain(..).partition(|queued| matches!(queued.message, Message::Retry));
        slot.queue.extend(rest);
        slot.is_retried |= !retries.is_empty();
        self.outputs.extend(replies(&retries, &Answer::Accepted));
    }

    /// Gives an idle execution its next turn, if there is something for it.
    pub(super) fn form_turn(&mut self, now_ms: u64, key: InstanceKey) {
        let slot = self.slots.get_mut(&key).expect("it is idle");
        let Phase::Idle(execution) = &slot.phase else {
            return;
        };
        if let Some(reason) =
            slot.termination().or_else(|| overdue(execution.ledger(), execution.started(), now_ms))
        {
            return self.terminate_resident(now_ms, key, &reason);
        }
        if let Some(reason) = slot.unreadable() {
            return self.block_idle(now_ms, key, &TaskFailure::UnreadableMessage(reason));
        }
        let Phase::Idle(execution) = mem::replace(&mut slot.phase, Phase::Loading) else {
            return;
        };
        self.tend_tasks(now_ms, key, &execution, View::Memory);
        self.hand_over(now_ms, key, &execution);
        let delivery = self.take_jobs(now_ms, key, &execution);
        let is_alone = self.wants_to_run_alone(key);
        let slot = self.slots.get_mut(&key).expect("it is idle");
        if delivery.is_empty() && slot.asks.is_empty() && slot.task_writes.is_empty() {
            // What is due and not done waits for rows to be read, to run alone, or for the next node.
            let waits = self.stopping || slot.is_refreshing || is_alone;
            let from_ms = if waits { now_ms.saturating_add(1) } else { 0 };
            let wake = wakes_from(from_ms, execution.ledger(), execution.started(), &slot.tasks);
            slot.phase = Phase::Idle(execution);
            return self.set_wake(key, wake);
        }
        let needs_code = !delivery.jobs.is_empty() || !slot.asks.is_empty();
        let checksum = slot.checksum;
        self.leave_idle(key);
        self.set_wake(key, None);
        if needs_code {
            return self.take_turn(now_ms, key, TurnSource::Resident(execution, checksum), delivery);
        }
        let turning =
            Turning { number: 0, messages: delivery.messages, asks: Vec::new(), fired_ms: delivery.fired_ms };
        self.nothing_taken(now_ms, key, turning, execution, Vec::new());
    }

    /// What an execution's next turn delivers, up to half a turn's limits: messages in their order, and the timers that
    /// are due in theirs. A timer goes before the first message that arrived after it was due, so that what happened
    /// while nobody looked is delivered as it would have been otherwise.
    fn take_jobs(&mut self, now_ms: u64, key: InstanceKey, execution: &Execution) -> Delivery {
        let (limit, max_bytes) = self.options.jobs_per_turn();
        let is_due = |(due_ms, _): &(u64, EventId)| *due_ms <= now_ms && !self.closing;
        let due: Vec<(u64, EventId)> = execution.ledger().timers().take_while(is_due).take(limit).collect();
        let mut due = due.into_iter().peekable();
        let mut delivery = Delivery::default();
        let (mut bytes, mut latest_arrival_ms) = (0, 0);
        let current = execution.started().execution;
        while delivery.jobs.len() < limit
            && let Some(slot) = self.slots.get_mut(&key)
            && let Some(queued) = slot.queue.front()
        {
            latest_arrival_ms = latest_arrival_ms.max(queued.arrived_ms);
            if let Some((due_ms, event)) = due.next_if(|(due_ms, _)| *due_ms < latest_arrival_ms) {
                delivery.fire(due_ms, event);
                continue;
            }
            match &queued.message {
                Message::Job(job) | Message::Outcome { job, .. } => {
                    bytes += job.weight();
                    if bytes > max_bytes && !delivery.jobs.is_empty() {
                        return delivery;
                    }
                    match &queued.message {
                        Message::Outcome { execution, .. } if *execution != current => {
                            self.counters.stale += 1;
                        }
                        _ => delivery.jobs.push(job.clone()),
                    }
                    delivery.messages.extend(slot.queue.pop_front());
                }
                Message::Attempt { execution: of, event, attempt, result, details, ran } => {
                    let (of, which) = (*of, (*event, *attempt));
                    let (result, details, ran) = (result.clone(), details.clone(), ran.clone());
                    let ended_ms = queued.arrived_ms;
                    let taken = slot.queue.pop_front();
                    let outcome = if of == current {
                        self.take_attempt(now_ms, key, execution, which, details, (result, ran, ended_ms))
                    } else {
                        self.counters.stale += 1;
                        None
                    };
                    match (outcome, taken, self.slots.get_mut(&key)) {
                        // It keeps its place and its row until a turn has room for it.
                        (Some(message), Some(taken), Some(slot)) => {
                            slot.queue.push_front(Queued { message, ..taken });
                        }
                        (_, taken, _) => delivery.messages.extend(taken),
                    }
                }
                Message::Requeue { execution: of, event, attempt, past } => {
                    let (of, event, attempt, past) = (*of, *event, *attempt, past.clone());
                    delivery.messages.extend(slot.queue.pop_front());
                    if of == current {
                        self.requeue(now_ms, key, execution, (event, attempt), past);
                    } else {
                        self.counters.stale += 1;
                    }
                }
                Message::Start(_)
                | Message::Terminate { .. }
                | Message::Retry
                | Message::Unreadable { .. } => {
                    delivery.messages.extend(slot.queue.pop_front());
                }
            }
        }
        for (due_ms, event) in due.take(limit.saturating_sub(delivery.jobs.len())) {
            delivery.fire(due_ms, event);
        }
        delivery
    }

    /// A turn task was run.
    pub fn handle_turn_done(&mut self, now_ms: u64, done: TurnTaskDone) {
        let TurnTaskDone { key, number, outcome, asks, wreck, .. } = done;
        self.outputs.extend(wreck.map(Output::Drop));
        let Some(turning) = self.slots.get_mut(&key).and_then(|slot| slot.end_turn(number)) else {
            if let Ok(run) = outcome {
                self.outputs.push(Output::Drop(run.execution));
            }
            return;
        };
        match outcome {
            Err(failure) => {
                let mut answers = Vec::new();
                let accepted = self.settle_asks(key, asks, &mut answers);
                // Nothing of the turn is recorded, so the updates are as if never offered.
                let slot = self.slots.get_mut(&key).expect("its turn failed");
                accepted.into_iter().rev().for_each(|ask| slot.asks.push_front(ask));
                self.block_with(now_ms, key, turning.messages, &failure, answers);
            }
            Ok(run) => self.turn_taken(now_ms, key, turning, run, asks),
        }
    }

    /// A turn's thread was given up, and its execution with it.
    pub fn handle_turn_lost(&mut self, now_ms: u64, key: InstanceKey, number: u64) {
        if let Some(slot) = self.slots.get_mut(&key)
            && let Some(turning) = slot.end_turn(number)
        {
            slot.asks.extend(turning.asks);
            self.block(now_ms, key, turning.messages, &TaskFailure::ThreadLost);
        }
    }

    fn turn_taken(
        &mut self,
        now_ms: u64,
        key: InstanceKey,
        turning: Turning,
        run: TurnRun,
        asks: Vec<(PendingAsk, Consultation)>,
    ) {
        let TurnRun { execution, taken, row, checksum } = run;
        self.counters.stale += taken.stale.len() as u64;
        let Some((turn, row)) = taken.turn.zip(row) else {
            if let Some(slot) = self.slots.get_mut(&key) {
                slot.checksum = checksum;
            }
            let is_final = self.slots.get(&key).and_then(|slot| slot.facts.as_ref());
            let is_final = is_final.is_some_and(|facts| facts.status.is_final());
            if execution.has_ended() && !is_final {
                self.outputs.push(Output::Drop(execution));
                let reason = "PER-0508 corrupt row: it is not final, but its history has ended".to_owned();
                return self.block(now_ms, key, turning.messages, &TaskFailure::Unreadable(reason));
            }
            return self.nothing_taken(now_ms, key, turning, execution, asks);
        };
        let messages = turning.messages;
        let ending = turn.ending().cloned();
        let mut commit = Commit { turn: Some(row), fired_ms: turning.fired_ms, ..self.empty_commit(key) };
        commit.consumed = inbox_numbers(&messages);
        let accepted = self.settle_asks(key, asks, &mut commit.replies);
        let plan = self.plan_tasks(key, &execution, &turn);
        let slot = self.slots.get_mut(&key).expect("its turn was taken");
        let (id, is_stored) = (slot.id.clone(), slot.facts.is_some());
        let stored = slot.facts.clone().unwrap_or_else(|| nothing_stored(execution.started().execution));
        let (ledger, started) = (execution.ledger(), execution.started());
        let max_unread = self.options.max_unread;
        let mut facts =
            Facts::after_turn(&execution, max_unread, ending.as_ref(), &stored, &plan.after, now_ms);
        slot.grace_until_ms = ledger.cancel_grace_until_ms();
        slot.deadline_ms = started.deadline_ms;
        let sender = Sender { key, id: &id, started };
        commit.send = self.outgoing(&sender, ledger, &turn);
        let start = start_request(&messages);
        let mut in_flight = InFlight::new(facts.clone(), Next::Gone, Vec::new());
        in_flight.checksum = Some(checksum);
        if is_stored {
            in_flight.outputs.extend(replies(&messages, &Answer::Accepted));
        } else {
            commit.insert = Some(Box::new(new_row(key, &id, &execution, &facts, turn.at_ms)));
            in_flight.outputs.extend(start.map(|request| Output::Reply(request, Answer::Started(key))));
        }
        in_flight.start = start;
        plan.apply(&mut commit, &mut in_flight);
        self.answer_updates(key, &turn, &taken.ended_updates, accepted, &mut commit, &mut in_flight);
        if let Some(Ending::OrchestrationContinuedAsNew { version, .. }) = &ending {
            let successor = taken.successor.expect("an execution that continues has a successor");
            let seed = self.draw();
            let mut started = successor.started(version.clone().unwrap_or_default(), seed);
            started.chain = checksum;
            facts.execution = started.execution;
            facts.wake_at_ms = started.deadline_ms;
            // One that is to be the latest is found out, and written, with the first turn.
            if let Some(version) = version {
                facts.version = version.as_str().into();
            }
            let jobs = if flaws::is(Flaw::ForgottenEvents) { Vec::new() } else { successor.jobs };
            let start = Start { jobs, ..Start::new(started) };
            let body = Message::Start(Box::new(start.clone())).encode();
            commit.send.push(Outgoing::ToKey { to: key, shard: self.id, dedupe: None, urgent: false, body });
            if let Some(row) = &mut commit.insert {
                (row.execution, row.wake_at_ms) = (facts.execution, facts.wake_at_ms);
                row.version = facts.version.to_string();
            }
            in_flight.next = Next::Continued(execution, Box::new(start));
        } else {
            in_flight.next = match ending {
                Some(ending) => Next::Ended(Some(execution), Box::new(ending)),
                None => Next::Idle(execution),
            };
        }
        if is_stored {
            commit.change = facts.change_from(&stored);
            let execution = in_flight.next.execution().expect("its turn was taken");
            describe_changes(&mut commit.change, execution.ledger(), &turn);
            commit.change.ended_ms = facts.status.is_final().then_some(turn.at_ms);
        }
        in_flight.facts = facts;
        in_flight.messages = messages;
        self.commit(key, commit, in_flight);
    }

    /// A turn had nothing to record: the instance was only hydrated or asked, or all its jobs were stale.
    fn nothing_taken(
        &mut self,
        now_ms: u64,
        key: InstanceKey,
        turning: Turning,
        execution: Box<Execution>,
        asks: Vec<(PendingAsk, Consultation)>,
    ) {
        let messages = turning.messages;
        let mut commit = Commit { consumed: inbox_numbers(&messages), ..self.empty_commit(key) };
        let accepted = self.settle_asks(key, asks, &mut commit.replies);
        debug_assert!(accepted.is_empty(), "an accepted update is a job, and is recorded");
        let slot = self.slots.get_mut(&key).expect("its turn was taken");
        let stored = slot.facts.clone().expect("it has taken turns before");
        if execution.has_ended() {
            return self.consulted(key, stored, commit, messages, execution);
        }
        let view = if slot.has_grown_back { View::Fresh } else { View::Memory };
        self.tend_tasks(now_ms, key, &execution, view);
        let slot = self.slots.get_mut(&key).expect("its turn was taken");
        let plan = TaskPlan::of_slot(slot, is_open(execution.ledger()));
        let (ledger, started) = (execution.ledger(), execution.started());
        let max_unread = self.options.max_unread;
        let mut facts = Facts::after_turn(&execution, max_unread, None, &stored, &plan.after, now_ms);
        let is_due = ledger.timers().next().is_some_and(|(due_ms, _)| due_ms <= now_ms);
        if !slot.queue.is_empty() || (is_due && messages.is_empty()) {
            // What has changed is written with what waits; a blocked instance is cured when that has gone through.
            let (blocked_attempts, blocked_cause) = (stored.blocked_attempts, stored.blocked_cause.clone());
            facts = match plan.changes.is_empty() {
                true => stored.clone(),
                false => Facts { blocked_attempts, blocked_cause, ..facts },
            };
        }
        slot.grace_until_ms = ledger.cancel_grace_until_ms();
        slot.deadline_ms = started.deadline_ms;
        commit.change = facts.change_from(&stored);
        let mut in_flight = InFlight::new(facts, Next::Gone, Vec::new());
        in_flight.outputs.extend(replies(&messages, &Answer::Accepted));
        plan.apply(&mut commit, &mut in_flight);
        if commit.is_empty() {
            self.release(now_ms, in_flight.outputs);
            return self.settle_idle(now_ms, key, execution);
        }
        in_flight.next = Next::Idle(execution);
        in_flight.messages = messages;
        self.commit(key, commit, in_flight);
    }

    /// An instance that has ended was asked something.
    fn consulted(
        &mut self,
        key: InstanceKey,
        stored: Facts,
        commit: Commit,
        messages: Vec<Queued>,
        execution: Box<Execution>,
    ) {
        if commit.is_empty() {
            self.outputs.push(Output::Drop(execution));
            return self.clear_leftovers(key);
        }
        self.commit(key, commit, InFlight::new(stored, Next::Consulted(execution), messages));
    }

    /// Blocks an instance whose execution is idle.
    fn block_idle(&mut self, now_ms: u64, key: InstanceKey, failure: &TaskFailure) {
        self.leave_idle(key);
        let slot = self.slots.get_mut(&key).expect("it is idle");
        if let Phase::Idle(execution) = mem::replace(&mut slot.phase, Phase::Loading) {
            self.outputs.push(Output::Drop(execution));
        }
        self.block(now_ms, key, Vec::new(), failure);
    }

    /// The next execution begins: its start is durable.
    pub(super) fn continued(
        &mut self,
        now_ms: u64,
        key: InstanceKey,
        execution: Box<Execution>,
        start: Start,
        number: Option<u64>,
    ) {
        self.outputs.push(Output::Drop(execution));
        self.stop_attempts(key);
        let slot = self.slots.get_mut(&key).expect("its commit was under way");
        slot.tasks.clear();
        slot.task_writes.clear();
        slot.grace_until_ms = None;
        if self.closing {
            // Its start is stored, and what came for it is stored as well. Questions of others are rows.
            slot.phase = Phase::Delayed;
            slot.asks.retain(|ask| matches!(ask.asker, Asker::Request(_)));
            self.set_wake(key, None);
            return self.go_on(now_ms, key);
        }
        self.set_wake(key, None);
        self.outputs.push(Output::Continued { key, execution: start.started.execution });
        match number {
            Some(number) => self.begin(now_ms, key, start, super::slot::Origin::Inbox(number)),
            // It was committed before; what was sent then is read.
            None => self.reload(key),
        }
    }

    /// What a blocked instance tells those who ask it something.
    pub(super) fn blocked_reply(failure: &TaskFailure) -> AskReply {
        AskReply::Blocked { code: failure.code().to_owned(), reason: failure.to_string() }
    }
}

impl Next {
    /// The execution that took the turn, if there was one.
    pub(super) fn execution(&self) -> Option<&Execution> {
        match self {
            Next::Idle(execution)
            | Next::Continued(execution, _)
            | Next::Consulted(execution)
            | Next::Ended(Some(execution), _) => Some(execution),
            Next::Ended(None, _)
            | Next::Blocked
            | Next::Kept
            | Next::Delayed
            | Next::Reloaded
            | Next::Gone => None,
        }
    }
}
