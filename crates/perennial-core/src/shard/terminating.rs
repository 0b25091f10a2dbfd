//! Ending an instance without running its code.

use std::mem;
use std::sync::Arc;

use crate::execution::Execution;
use crate::history::{Ledger, Turn, decode_history};
use crate::instance::InstanceKey;
use crate::store::{Commit, Status};

use super::message::Message;
use super::request::Answer;
use super::rows::*;
use super::slot::{Facts, InFlight, Next, Phase, Queued};
use super::state_machine::Shard;
use super::turn_task::TaskFailure;

impl Shard {
    pub(super) fn terminate_resident(&mut self, now_ms: u64, key: InstanceKey, reason: &str) {
        self.leave_idle(key);
        let slot = self.slots.get_mut(&key).expect("it is idle");
        let Phase::Idle(execution) = mem::replace(&mut slot.phase, Phase::Loading) else {
            return;
        };
        let mut ledger = execution.ledger().clone();
        let turn = ledger.terminate(now_ms, reason);
        let execution_number = execution.started().execution;
        self.commit_termination(key, execution_number, &turn, Some(execution));
    }

    pub(super) fn terminate_loaded(
        &mut self,
        now_ms: u64,
        key: InstanceKey,
        turns: &[Arc<[u8]>],
        reason: &str,
    ) {
        let slot = self.slots.get_mut(&key).expect("it was just loaded");
        let execution = slot.facts.as_ref().map_or(1, |facts| facts.execution);
        let unreadable = |what: &str| TaskFailure::Unreadable(format!("PER-0508 corrupt row: {what}"));
        let turn = if turns.is_empty() {
            let start = slot.queue.iter().find_map(|queued| match &queued.message {
                Message::Start(started) => Some(started),
                _ => None,
            });
            match start {
                Some(started) => Ledger::terminate_unstarted(started, now_ms, reason)
                    .map_err(|error| TaskFailure::Turn(error.into())),
                None => Err(unreadable("it has neither turns nor a start")),
            }
        } else {
            match decode_history(turns) {
                Err(error) => Err(TaskFailure::Turn(error.into())),
                Ok(history) => {
                    let mut ledger = Ledger::default();
                    history.turns.iter().for_each(|turn| ledger.apply_turn(turn).expect("it was checked"));
                    match ledger.ended() {
                        None => Ok(ledger.terminate(now_ms, reason)),
                        Some(_) => Err(unreadable("it is not final, but its history has ended")),
                    }
                }
            }
        };
        match turn {
            Ok(turn) => self.commit_termination(key, execution, &turn, None),
            Err(failure) => self.block(now_ms, key, Vec::new(), &failure),
        }
    }

    pub(super) fn commit_termination(
        &mut self,
        key: InstanceKey,
        execution: u64,
        turn: &Turn,
        alive: Option<Box<Execution>>,
    ) {
        let slot = self.slots.get_mut(&key).expect("it is being ended");
        let messages: Vec<Queued> = slot.queue.drain(..).collect();
        let stored = slot.facts.clone().expect("it is stored");
        let ending = turn.ending().expect("it ends").clone();
        let facts = Facts {
            status: Status::after(&ending),
            owed: false,
            wake_at_ms: None,
            blocked_attempts: 0,
            blocked_since_ms: None,
            execution,
        };
        let commit = Commit {
            turn: Some(turn_row(execution, turn)),
            change: facts.change_from(&stored),
            consumed: inbox_numbers(&messages),
            ..self.empty_commit(key)
        };
        let (wanted, overtaken): (Vec<Queued>, Vec<Queued>) =
            messages.into_iter().partition(|queued| matches!(queued.message, Message::Terminate { .. }));
        let mut outputs = replies(&wanted, &Answer::Accepted);
        outputs.extend(replies(&overtaken, &Answer::EndedBefore));
        let messages = wanted.into_iter().chain(overtaken).collect();
        let next = Next::Ended(alive, Box::new(ending));
        self.commit(key, commit, InFlight { outputs, facts, next, messages, start: None });
    }
}
