//! Ending an instance without running its code.

use std::mem;
use std::sync::Arc;

use crate::execution::Execution;
use crate::history::{Ledger, Started, Turn};
use crate::instance::InstanceKey;
use crate::store::{Commit, ReadTurns, RowChange, Status, TurnRow, read_turns};

use super::message::Message;
use super::outgoing::Sender;
use super::request::{Answer, AskReply};
use super::rows::*;
use super::slot::{Facts, InFlight, Next, Phase, Queued, pinned};
use super::state_machine::Shard;
use super::tasks::TaskPlan;
use super::turn_task::TaskFailure;

impl Shard {
    pub(super) fn terminate_resident(&mut self, now_ms: u64, key: InstanceKey, reason: &str) {
        self.leave_idle(key);
        let slot = self.slots.get_mut(&key).expect("it is idle");
        let Phase::Idle(execution) = mem::replace(&mut slot.phase, Phase::Loading) else {
            return;
        };
        let checksum = slot.checksum;
        let mut ledger = execution.ledger().clone();
        let turn = ledger.terminate(now_ms, reason);
        let started = execution.started().clone();
        self.commit_termination(key, &started, &ledger, (&turn, checksum), Some(execution));
    }

    pub(super) fn terminate_loaded(
        &mut self,
        now_ms: u64,
        key: InstanceKey,
        turns: &[TurnRow],
        reason: &str,
    ) {
        let slot = self.slots.get_mut(&key).expect("it was just loaded");
        let unreadable = |what: &str| TaskFailure::Unreadable(format!("PER-0508 corrupt row: {what}"));
        let turn = if turns.is_empty() {
            let start = slot.queue.iter().find_map(|queued| match &queued.message {
                Message::Start(start) => Some(start.started.clone()),
                _ => None,
            });
            match start {
                Some(started) => Ledger::terminate_unstarted(&started, now_ms, reason)
                    .map(|turn| ((turn, started.chain), Ledger::default(), started))
                    .map_err(|error| TaskFailure::Turn(error.into())),
                None => Err(unreadable("it has neither turns nor a start")),
            }
        } else {
            let mut ledger = Ledger::default();
            let history = read_turns(key, turns).and_then(|history| {
                history.turns.iter().try_for_each(|turn| ledger.apply_turn(turn)).map(|()| history)
            });
            match history {
                Err(error) => Err(TaskFailure::Turn(error.into())),
                Ok(ReadTurns { turns, checksum }) => {
                    match (ledger.ended(), turns.first().and_then(Turn::started).cloned()) {
                        (None, Some(started)) => {
                            Ok(((ledger.terminate(now_ms, reason), checksum), ledger, started))
                        }
                        _ => Err(unreadable("it is not final, but its history has ended")),
                    }
                }
            }
        };
        match turn {
            Ok(((turn, checksum), ledger, started)) => {
                self.commit_termination(key, &started, &ledger, (&turn, checksum), None);
            }
            Err(failure) => self.block(now_ms, key, Vec::new(), &failure),
        }
    }

    pub(super) fn commit_termination(
        &mut self,
        key: InstanceKey,
        started: &Started,
        ledger: &Ledger,
        (turn, previous): (&Turn, u32),
        alive: Option<Box<Execution>>,
    ) {
        let slot = self.slots.get_mut(&key).expect("it is being ended");
        let messages: Vec<Queued> = slot.queue.drain(..).collect();
        let stored = slot.facts.clone().expect("it is stored");
        let ending = turn.ending().expect("it ends").clone();
        let facts = Facts {
            status: Status::after(&ending),
            owed: false,
            full: false,
            wake_at_ms: None,
            blocked_attempts: 0,
            blocked_cause: None,
            execution: started.execution,
            // One that has not begun has a version only if it was asked for.
            version: match started.version.is_empty() {
                true => Arc::clone(&stored.version),
                false => pinned(started, &stored),
            },
        };
        let ended_ms = Some(turn.at_ms);
        let id = Arc::clone(&slot.id);
        let updates = slot.take_update_asks();
        slot.task_writes.clear();
        let mut plan = TaskPlan::of_slot(slot, |_| false);
        plan.close_all();
        let mut commit = Commit {
            turn: Some(TurnRow::seal(key, started.execution, previous, turn)),
            change: RowChange { ended_ms, ..facts.change_from(&stored) },
            consumed: inbox_numbers(&messages),
            ..self.empty_commit(key)
        };
        commit.send = self.parting(&Sender { key, id: &id, started }, ledger, &ending, turn);
        let (wanted, overtaken): (Vec<Queued>, Vec<Queued>) =
            messages.into_iter().partition(|queued| matches!(queued.message, Message::Terminate { .. }));
        let mut outputs = replies(&wanted, &Answer::Accepted);
        outputs.extend(replies(&overtaken, &Answer::EndedBefore));
        outputs.extend(self.refuse_asks(&updates, &AskReply::Ended, &mut commit.replies));
        let (answered, orphaned) = self.orphaned_updates(key, &mut commit.replies);
        outputs.extend(orphaned);
        let messages = wanted.into_iter().chain(overtaken).collect();
        let next = Next::Ended(alive, Box::new(ending));
        let mut in_flight =
            InFlight { outputs, answered, refused: updates, ..InFlight::new(facts, next, messages) };
        plan.apply(&mut commit, &mut in_flight);
        self.commit(key, commit, in_flight);
    }
}
