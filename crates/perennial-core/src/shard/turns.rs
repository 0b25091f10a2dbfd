//! Giving an instance its next turn, and what follows from it.

use std::mem;
use std::sync::Arc;

use crate::execution::{Execution, TurnTaken};
use crate::history::{Decision, EventId, Job, Turn};
use crate::instance::InstanceKey;
use crate::store::Commit;

use super::message::Message;
use super::output::{ActivityTask, Output};
use super::request::Answer;
use super::rows::*;
use super::slot::{Facts, InFlight, Next, Phase, Queued, Slot, wake_at_ms};
use super::state_machine::Shard;
use super::turn_task::{TaskFailure, TurnSource, TurnTaskDone};

impl Shard {
    /// Does what is next for an instance that has nothing under way.
    pub(super) fn go_on(&mut self, now_ms: u64, key: InstanceKey) {
        let Some(slot) = self.slots.get_mut(&key) else {
            return;
        };
        match &slot.phase {
            Phase::Idle(_) => self.form_turn(now_ms, key),
            Phase::Blocked if slot.queue.is_empty() => {}
            Phase::Blocked => {
                let wants_load =
                    |queued: &Queued| matches!(queued.message, Message::Terminate { .. } | Message::Retry);
                if slot.queue.iter().any(wants_load) {
                    self.answer_retries(key);
                    self.reload(key);
                } else {
                    self.keep_queue(key);
                }
            }
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
        self.outputs.extend(replies(&retries, &Answer::Accepted));
    }

    /// Gives an idle execution its next turn, if there is something for it.
    pub(super) fn form_turn(&mut self, now_ms: u64, key: InstanceKey) {
        let (limit, max_bytes) = self.options.jobs_per_turn();
        let slot = self.slots.get_mut(&key).expect("it is idle");
        let Phase::Idle(execution) = &slot.phase else {
            return;
        };
        let (ledger, started) = (execution.ledger(), execution.started());
        if let Some(reason) = slot.termination().or_else(|| overdue(ledger, started, now_ms)) {
            return self.terminate_resident(now_ms, key, &reason);
        }
        let mut jobs: Vec<Job> = ledger
            .timers()
            .take_while(|(due_ms, _)| *due_ms <= now_ms)
            .take(limit)
            .map(|(_, source_event_id)| Job::TimerFired { source_event_id })
            .collect();
        let mut messages = Vec::new();
        let mut bytes = 0;
        while jobs.len() < limit
            && let Some(queued) = slot.queue.front()
        {
            if let Message::Job(job) = &queued.message {
                bytes += job.weight();
                if bytes > max_bytes && !jobs.is_empty() {
                    break;
                }
                jobs.push(job.clone());
            }
            messages.extend(slot.queue.pop_front());
        }
        if jobs.is_empty() && messages.is_empty() {
            let wake = wake_at_ms(ledger, started);
            return self.set_wake(key, wake);
        }
        let Phase::Idle(execution) = mem::replace(&mut slot.phase, Phase::Loading) else {
            return;
        };
        self.leave_idle(key);
        self.set_wake(key, None);
        self.take_turn(key, TurnSource::Resident(execution), jobs, messages, now_ms);
    }

    /// A turn task was run.
    pub fn handle_turn_done(&mut self, now_ms: u64, done: TurnTaskDone) {
        let TurnTaskDone { key, number, outcome, wreck } = done;
        self.outputs.extend(wreck.map(Output::Drop));
        let Some(messages) = self.slots.get_mut(&key).and_then(|slot| slot.end_turn(number)) else {
            if let Ok((execution, _)) = outcome {
                self.outputs.push(Output::Drop(execution));
            }
            return;
        };
        match outcome {
            Err(failure) => self.block(now_ms, key, messages, &failure),
            Ok((execution, taken)) => self.turn_taken(now_ms, key, messages, execution, taken),
        }
    }

    /// A turn's thread was given up, and its execution with it.
    pub fn handle_turn_lost(&mut self, now_ms: u64, key: InstanceKey, number: u64) {
        if let Some(messages) = self.slots.get_mut(&key).and_then(|slot| slot.end_turn(number)) {
            self.block(now_ms, key, messages, &TaskFailure::ThreadLost);
        }
    }

    pub(super) fn turn_taken(
        &mut self,
        now_ms: u64,
        key: InstanceKey,
        messages: Vec<Queued>,
        execution: Box<Execution>,
        taken: TurnTaken,
    ) {
        self.counters.stale += taken.stale.len() as u64;
        let Some(turn) = taken.turn else {
            if execution.has_ended() {
                self.outputs.push(Output::Drop(execution));
                let reason = "PER-0508 corrupt row: it is not final, but its history has ended".to_owned();
                return self.block(now_ms, key, messages, &TaskFailure::Unreadable(reason));
            }
            return self.nothing_taken(now_ms, key, messages, execution);
        };
        if let Some(what) = unsupported(&turn) {
            self.outputs.push(Output::Drop(execution));
            return self.block(now_ms, key, messages, &TaskFailure::Unsupported { what });
        }
        let ending = turn.ending().cloned();
        let effects = self.effects(key, &execution, &turn);
        let mut commit = self.turn_commit(key, &execution, &turn);
        commit.consumed = inbox_numbers(&messages);
        let slot = self.slots.get_mut(&key).expect("its turn was taken");
        let stored = slot.facts.clone().unwrap_or_else(|| nothing_stored(execution.started().execution));
        let facts =
            Facts::after_turn(execution.ledger(), execution.started(), ending.as_ref(), &stored, now_ms);
        slot.grace_until_ms = execution.ledger().cancel_grace_until_ms();
        let start = start_request(&messages);
        let mut outputs = effects;
        if slot.facts.is_none() {
            commit.insert = Some(Box::new(new_row(key, self.id, &slot.id, &execution, &facts, turn.at_ms)));
            outputs.extend(start.map(|request| Output::Reply(request, Answer::Started(key))));
        } else {
            commit.change = facts.change_from(&stored);
            describe_changes(&mut commit.change, execution.ledger(), &turn);
            outputs.extend(replies(&messages, &Answer::Accepted));
        }
        let next = match ending {
            Some(ending) => Next::Ended(Some(execution), Box::new(ending)),
            None => Next::Idle(execution),
        };
        self.commit(key, commit, InFlight { outputs, facts, next, messages, start });
    }

    /// A turn had nothing to record: the instance was only hydrated, or all its jobs were stale.
    pub(super) fn nothing_taken(
        &mut self,
        now_ms: u64,
        key: InstanceKey,
        messages: Vec<Queued>,
        execution: Box<Execution>,
    ) {
        let slot = self.slots.get_mut(&key).expect("its turn was taken");
        let stored = slot.facts.clone().expect("it has taken turns before");
        let mut facts = Facts::after_turn(execution.ledger(), execution.started(), None, &stored, now_ms);
        let is_due = execution.ledger().timers().next().is_some_and(|(due_ms, _)| due_ms <= now_ms);
        if !slot.queue.is_empty() || (is_due && messages.is_empty()) {
            // What has changed is written with what waits; a blocked instance is cured when that has gone through.
            facts = stored.clone();
        }
        slot.grace_until_ms = execution.ledger().cancel_grace_until_ms();
        let (consumed, change) = (inbox_numbers(&messages), facts.change_from(&stored));
        let mut outputs = self.owed_activities(key, &execution);
        outputs.extend(replies(&messages, &Answer::Accepted));
        if consumed.is_empty() && change.is_empty() {
            self.release(outputs);
            return self.settle_idle(now_ms, key, execution);
        }
        let commit = Commit { consumed, change, ..self.empty_commit(key) };
        let next = Next::Idle(execution);
        self.commit(key, commit, InFlight { outputs, facts, next, messages, start: None });
    }

    /// What follows from a turn once it is durable.
    pub(super) fn effects(&mut self, key: InstanceKey, execution: &Execution, turn: &Turn) -> Vec<Output> {
        if turn.ending().is_some() {
            return Vec::new();
        }
        let mut effects = Vec::new();
        for (event, _, decision) in turn.decisions() {
            match decision {
                Decision::ActivityScheduled { .. } => {
                    effects.extend(self.activity_task(key, execution, event));
                }
                Decision::ActivityCancelRequested { source_event_id } => {
                    effects.push(Output::CancelActivity { key, event: *source_event_id });
                }
                _ => {}
            }
        }
        effects
    }

    /// The activities that are open and not running here: after a crash they run again.
    pub(super) fn owed_activities(&self, key: InstanceKey, execution: &Execution) -> Vec<Output> {
        let results = self.slots.get(&key).map(Slot::waiting_results).unwrap_or_default();
        let is_owed =
            |event: &EventId| !self.attempts.contains_key(&(key, *event)) && !results.contains(event);
        let open = execution.ledger().open().filter(|(event, _)| is_owed(event));
        open.filter_map(|(event, _)| self.activity_task(key, execution, event)).collect()
    }

    pub(super) fn activity_task(
        &self,
        key: InstanceKey,
        execution: &Execution,
        event: EventId,
    ) -> Option<Output> {
        let Decision::ActivityScheduled { name, input, options } = execution.ledger().open_decision(event)?
        else {
            return None;
        };
        Some(Output::RunActivity(Box::new(ActivityTask {
            key,
            instance: Arc::clone(&self.slots.get(&key)?.id),
            execution: execution.started().execution,
            event,
            attempt: 1,
            name: name.clone(),
            input: input.clone(),
            options: options.clone(),
        })))
    }
}
