//! From dormant to alive.

use std::collections::VecDeque;
use std::mem;
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
            self.by_id.entry(Arc::clone(&id)).or_insert(key);
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
        let Some(LoadedInstance { row, turns, inbox, .. }) = loaded else {
            return self.forget_missing(key);
        };
        slot.id = Arc::from(row.id.as_str());
        slot.facts = Some(Facts::of_row(&row));
        self.by_id.insert(Arc::from(row.id.as_str()), key);
        slot.kept_events = 0;
        // What came through the inbox came before what callers brought since.
        let queue = mem::take(&mut slot.queue);
        let is_stored = |queued: &Queued| matches!(queued.origin, Origin::Inbox(_));
        let (stored, brought): (VecDeque<Queued>, VecDeque<Queued>) = queue.into_iter().partition(is_stored);
        slot.queue = stored;
        for message_row in inbox {
            if self.consumed.contains(message_row.number) || slot.knows_inbox(message_row.number) {
                continue;
            }
            match Message::decode(&message_row.body) {
                Ok(message) => slot.insert_inbox(message_row.number, message),
                Err(error) => {
                    tracing::error!(instance = row.id, number = message_row.number, %error, "unreadable message");
                }
            }
        }
        slot.queue.extend(brought);
        if row.status.is_final() {
            return self.clear_leftovers(key);
        }
        let overdue = if row.blocked.is_some() { slot.read_grace(&turns, now_ms) } else { None };
        if let Some(reason) = slot.termination().or_else(|| slot.overdue_cancel(now_ms)).or(overdue) {
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
        if !turns.is_empty() {
            self.counters.hydrations += 1;
            return self.take_turn(key, TurnSource::History(turns), Vec::new(), Vec::new(), now_ms);
        }
        let start = slot.queue.iter().position(|queued| matches!(queued.message, Message::Start(_)));
        let Some(Queued { message: Message::Start(started), origin }) =
            start.and_then(|position| slot.queue.remove(position))
        else {
            let failure =
                TaskFailure::Unreadable("PER-0508 corrupt row: it has neither turns nor a start".to_owned());
            return self.block(now_ms, key, Vec::new(), &failure);
        };
        let messages = vec![Queued { message: Message::Start(started.clone()), origin }];
        self.take_turn(key, TurnSource::Start(started), Vec::new(), messages, now_ms);
    }

    /// Hands a turn out, with the messages that it delivers.
    pub(super) fn take_turn(
        &mut self,
        key: InstanceKey,
        source: TurnSource,
        jobs: Vec<Job>,
        messages: Vec<Queued>,
        now_ms: u64,
    ) {
        self.next_turn += 1;
        let slot = self.slots.get_mut(&key).expect("it is in memory");
        slot.phase = Phase::Turning(self.next_turn, messages);
        let (instance, options) = (Arc::clone(&slot.id), self.options.execution.clone());
        let task = TurnTask { key, number: self.next_turn, instance, source, jobs, now_ms, options };
        self.outputs.push(Output::TakeTurn(Box::new(task)));
    }

    /// The instance was deleted.
    pub(super) fn forget_missing(&mut self, key: InstanceKey) {
        let Some(slot) = self.remove_slot(key) else { return };
        let messages: Vec<Queued> = slot.queue.into_iter().collect();
        self.counters.stale += messages.len() as u64;
        self.answer_all(key, &messages, slot.rival_starts, &Answer::NotFound);
    }

    /// The instance has ended; what still came for it is answered and its messages go.
    pub(super) fn clear_leftovers(&mut self, key: InstanceKey) {
        let slot = self.slots.get_mut(&key).expect("it was just loaded");
        let messages: Vec<Queued> = slot.queue.drain(..).collect();
        let facts = slot.facts.clone().expect("a loaded row has facts");
        let consumed = inbox_numbers(&messages);
        self.counters.stale += messages.len() as u64;
        if consumed.is_empty() {
            self.remove_slot(key);
            return self.answer_all(key, &messages, Vec::new(), &Answer::EndedBefore);
        }
        let outputs = replies(&messages, &Answer::EndedBefore);
        let commit = Commit { consumed, ..self.empty_commit(key) };
        self.commit(key, commit, InFlight { outputs, facts, next: Next::Gone, messages, start: None });
    }
}
