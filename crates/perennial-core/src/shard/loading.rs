//! From dormant to alive.

use std::sync::Arc;

use crate::history::Job;
use crate::instance::InstanceKey;
use crate::store::{Commit, LoadedInstance};

use super::message::Message;
use super::output::Output;
use super::request::Answer;
use super::rows::*;
use super::slot::{Facts, InFlight, Next, Origin, Phase, Queued, Slot};
use super::state_machine::Shard;
use super::turn_task::{TaskFailure, TurnSource, TurnTask};

impl Shard {
    pub(super) fn add_slot(
        &mut self,
        key: InstanceKey,
        id: Arc<str>,
        phase: Phase,
        now_ms: u64,
    ) -> &mut Slot {
        if !id.is_empty() {
            self.by_id.insert(Arc::clone(&id), key);
        }
        self.slots.entry(key).or_insert_with(|| Slot::new(id, phase, now_ms))
    }

    /// Brings a dormant instance into memory. Its id is known once it is loaded.
    pub(super) fn load(&mut self, key: InstanceKey, now_ms: u64) {
        self.add_slot(key, Arc::from(""), Phase::Loading, now_ms);
        self.outputs.push(Output::Load { key });
    }

    /// Tries a blocked instance again.
    pub(super) fn reload(&mut self, key: InstanceKey) {
        if let Some(slot) = self.slots.get_mut(&key) {
            slot.phase = Phase::Loading;
            self.outputs.push(Output::Load { key });
        }
    }

    /// An instance was loaded, or does not exist.
    pub fn handle_loaded(&mut self, now_ms: u64, key: InstanceKey, loaded: Option<LoadedInstance>) {
        let Some(slot) = self.slots.get_mut(&key).filter(|slot| matches!(slot.phase, Phase::Loading)) else {
            return;
        };
        let Some(LoadedInstance { row, turns, inbox }) = loaded else {
            return self.forget_missing(key);
        };
        slot.id = Arc::from(row.id.as_str());
        slot.facts = Some(Facts::of_row(&row));
        self.by_id.insert(Arc::from(row.id.as_str()), key);
        // What came through the inbox came before what callers brought since.
        let mut known: Vec<Queued> = Vec::new();
        for message_row in inbox {
            if !slot.knows_inbox(message_row.number) {
                match Message::decode(&message_row.body) {
                    Ok(message) => known.push(Queued { message, origin: Origin::Inbox(message_row.number) }),
                    Err(error) => {
                        tracing::error!(instance = row.id, number = message_row.number, %error, "unreadable message");
                    }
                }
            }
        }
        for queued in known.into_iter().rev() {
            slot.queue.push_front(queued);
        }
        if row.status.is_final() {
            return self.clear_leftovers(key);
        }
        if let Some(reason) = slot.termination().or_else(|| slot.overdue_cancel(now_ms)) {
            return self.terminate_loaded(now_ms, key, &turns, &reason);
        }
        self.hydrate(now_ms, key, turns);
    }

    /// An instance cannot be loaded for a reason of its own.
    pub fn handle_load_failed(&mut self, now_ms: u64, key: InstanceKey, reason: String) {
        if self.slots.get(&key).is_some_and(|slot| matches!(slot.phase, Phase::Loading)) {
            self.block(now_ms, key, Vec::new(), &TaskFailure::Unreadable(reason));
        }
    }

    pub(super) fn hydrate(&mut self, now_ms: u64, key: InstanceKey, turns: Vec<Arc<[u8]>>) {
        let slot = self.slots.get_mut(&key).expect("it was just loaded");
        let instance = Arc::clone(&slot.id);
        if !turns.is_empty() {
            slot.phase = Phase::Turning(Vec::new());
            self.counters.hydrations += 1;
            return self.take_turn(key, instance, TurnSource::History(turns), Vec::new(), now_ms);
        }
        let start = slot.queue.iter().position(|queued| matches!(queued.message, Message::Start(_)));
        let Some(Queued { message: Message::Start(started), origin }) =
            start.and_then(|position| slot.queue.remove(position))
        else {
            let failure =
                TaskFailure::Unreadable("PER-0508 corrupt row: it has neither turns nor a start".to_owned());
            return self.block(now_ms, key, Vec::new(), &failure);
        };
        slot.phase = Phase::Turning(vec![Queued { message: Message::Start(started.clone()), origin }]);
        self.take_turn(key, instance, TurnSource::Start(started), Vec::new(), now_ms);
    }

    pub(super) fn take_turn(
        &mut self,
        key: InstanceKey,
        instance: Arc<str>,
        source: TurnSource,
        jobs: Vec<Job>,
        now_ms: u64,
    ) {
        let options = self.options.execution.clone();
        let task = TurnTask { key, instance, source, jobs, now_ms, options };
        self.outputs.push(Output::TakeTurn(Box::new(task)));
    }

    /// The instance was deleted.
    pub(super) fn forget_missing(&mut self, key: InstanceKey) {
        let Some(slot) = self.remove_slot(key) else { return };
        for queued in slot.queue {
            if let Origin::Caller(request) = queued.origin {
                self.reply(request, Answer::NotFound);
            }
        }
    }

    /// The instance has ended; what still came for it is answered and its messages go.
    pub(super) fn clear_leftovers(&mut self, key: InstanceKey) {
        let slot = self.slots.get_mut(&key).expect("it was just loaded");
        let messages: Vec<Queued> = slot.queue.drain(..).collect();
        let facts = slot.facts.clone().expect("a loaded row has facts");
        let outputs = replies(&messages, &Answer::EndedBefore);
        let consumed = inbox_numbers(&messages);
        if consumed.is_empty() {
            self.outputs.extend(outputs);
            self.remove_slot(key);
            return;
        }
        let commit = Commit { consumed, ..self.empty_commit(key) };
        self.commit(key, commit, InFlight { outputs, facts, next: Next::Gone, messages, start: None });
    }
}
