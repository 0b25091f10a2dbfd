//! From dormant to alive.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use crate::instance::InstanceKey;
use crate::store::{Blocked, Commit, LoadedInstance, TurnRow};

use super::message::{Message, Start};
use super::output::Output;
use super::request::{Answer, AskReply, PendingAsk};
use super::rows::*;
use super::slot::{Delivery, InFlight, Next, Origin, Phase, Queued, Slot, Turning};
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
        let Some(LoadedInstance { row, turns, inbox, tasks }) = loaded else {
            return self.forget_missing(key);
        };
        slot.id = Arc::from(row.id.as_str());
        slot.read_row(&row);
        self.by_id.insert(Arc::from(row.id.as_str()), key);
        slot.kept_events = 0;
        slot.tasks = tasks.into_iter().map(|task| (task.id.event, task)).collect();
        // What came through the inbox came before what callers brought since.
        let queue = mem::take(&mut slot.queue);
        let is_stored = |queued: &Queued| matches!(queued.origin, Origin::Inbox(_));
        let (stored, brought): (VecDeque<Queued>, VecDeque<Queued>) = queue.into_iter().partition(is_stored);
        slot.queue = stored;
        for message_row in inbox.rows {
            if self.consumed.contains(message_row.number) || slot.knows_inbox(message_row.number) {
                continue;
            }
            slot.insert_loaded(&message_row);
        }
        slot.bring_after(brought);
        match row.status.is_final() {
            true => self.bring_all_behind(now_ms, key),
            false => {
                let is_refreshing = slot.is_refreshing;
                self.bring_behind(now_ms, key, is_refreshing);
            }
        }
        let Some(slot) = self.slots.get_mut(&key) else { return };
        if row.status.is_final() && slot.has_query() {
            return self.take_turn(now_ms, key, TurnSource::History(turns), Delivery::default());
        }
        if row.status.is_final() {
            return self.clear_leftovers(key);
        }
        let overdue = match turns.is_empty() {
            true => slot.overdue_start(now_ms),
            false if row.blocked.is_some() => slot.read_grace(key, &turns, now_ms),
            false => None,
        };
        if let Some(reason) = slot.termination().or_else(|| slot.overdue_cancel(now_ms)).or(overdue) {
            return self.terminate_loaded(now_ms, key, &turns, &reason);
        }
        if let Some(reason) = slot.unreadable() {
            return self.block(now_ms, key, Vec::new(), &TaskFailure::UnreadableMessage(reason));
        }
        if !row.is_sound() {
            let reason =
                "PER-0508 corrupt row: its checksum does not match its key, id, name, parent and time";
            return self.block(now_ms, key, Vec::new(), &TaskFailure::Unreadable(reason.to_owned()));
        }
        let is_wanted = slot.take_retry();
        let is_given_up = self.given_up.contains(&key);
        let is_left = |blocked: &Blocked| is_given_up || !TaskFailure::is_tried_unasked(blocked);
        if !is_wanted && row.blocked.as_ref().is_some_and(is_left) {
            return self.stay_blocked(now_ms, key);
        }
        self.given_up.remove(&key);
        self.hydrate(now_ms, key, turns);
    }

    /// An instance cannot be loaded for a reason of its own.
    pub fn handle_load_failed(&mut self, now_ms: u64, key: InstanceKey, reason: String) {
        if self.slots.get(&key).is_some_and(|slot| matches!(slot.phase, Phase::Loading)) {
            self.block(now_ms, key, Vec::new(), &TaskFailure::Unreadable(reason));
        }
    }

    pub(super) fn hydrate(&mut self, now_ms: u64, key: InstanceKey, turns: Vec<TurnRow>) {
        let slot = self.slots.get_mut(&key).expect("it was just loaded");
        if !turns.is_empty() {
            self.counters.hydrations += 1;
            return self.take_turn(now_ms, key, TurnSource::History(turns), Delivery::default());
        }
        let is_start = |queued: &Queued| matches!(queued.message, Message::Start(_));
        let position = slot.queue.iter().position(is_start);
        let not_before_ms = position.and_then(|position| match &slot.queue[position].message {
            Message::Start(start) => start.not_before_ms,
            _ => None,
        });
        if not_before_ms.is_some_and(|at_ms| at_ms > now_ms) && !slot.is_asked_to_cancel() {
            slot.phase = Phase::Delayed;
            // Its time may be up before it begins.
            let wake = not_before_ms.into_iter().chain(slot.deadline_ms).min();
            self.set_wake(key, wake);
            self.enter_idle(now_ms, key);
            return self.go_on(now_ms, key);
        }
        let Some(Queued { message: Message::Start(start), origin, .. }) =
            position.and_then(|position| slot.queue.remove(position))
        else {
            let failure =
                TaskFailure::Unreadable("PER-0508 corrupt row: it has neither turns nor a start".to_owned());
            return self.block(now_ms, key, Vec::new(), &failure);
        };
        self.begin(now_ms, key, *start, origin);
    }

    /// Takes the first turn of an execution, with what waits for it.
    pub(super) fn begin(&mut self, now_ms: u64, key: InstanceKey, start: Start, origin: Origin) {
        let mut jobs = start.jobs.clone();
        let (grace_until_ms, deadline_ms) = (start.grace_until_ms(), start.started.deadline_ms);
        let source = TurnSource::Start(Box::new(start.started.clone()));
        let mut messages = vec![Queued::new(Message::Start(Box::new(start)), origin, now_ms)];
        let slot = self.slots.get_mut(&key).expect("it is in memory");
        (slot.grace_until_ms, slot.deadline_ms) = (grace_until_ms, deadline_ms);
        // It may have been read while the commit that sent it was being answered.
        slot.queue.retain(|queued| !matches!(queued.origin, Origin::Inbox(_)) || queued.origin != origin);
        // A cancel request that came before must not let the first turn take effect.
        if slot.is_asked_to_cancel() {
            let (taken, rest): (Vec<Queued>, Vec<Queued>) =
                slot.queue.drain(..).partition(|queued| matches!(queued.message, Message::Job(_)));
            slot.queue.extend(rest);
            for queued in taken {
                if let Message::Job(job) = &queued.message {
                    jobs.push(job.clone());
                }
                messages.push(queued);
            }
        }
        self.take_turn(now_ms, key, source, Delivery { jobs, messages, fired_ms: None });
    }

    /// Hands a turn out, with the messages that it delivers and the questions that wait.
    pub(super) fn take_turn(
        &mut self,
        now_ms: u64,
        key: InstanceKey,
        source: TurnSource,
        delivery: Delivery,
    ) {
        let Delivery { jobs, messages, fired_ms } = delivery;
        self.next_turn += 1;
        let number = self.next_turn;
        let slot = self.slots.get_mut(&key).expect("it is in memory");
        // A new execution is asked after its first turn.
        let asks: Vec<PendingAsk> = match source {
            TurnSource::Start(_) => Vec::new(),
            TurnSource::Resident(..) | TurnSource::History(_) => slot.take_asks(&messages),
        };
        slot.has_grown_back |= matches!(source, TurnSource::History(_));
        slot.phase = Phase::Turning(Turning { number, messages, asks: asks.clone(), fired_ms });
        let (instance, options) = (Arc::clone(&slot.id), self.options.execution.clone());
        let (shard, tenure) = (self.id, self.tenure);
        let task = TurnTask { shard, tenure, key, number, instance, source, asks, jobs, now_ms, options };
        self.outputs.push(Output::TakeTurn(Box::new(task)));
    }

    /// The instance was deleted.
    pub(super) fn forget_missing(&mut self, key: InstanceKey) {
        let Some(slot) = self.remove_slot(key) else { return };
        let messages: Vec<Queued> = slot.queue.into_iter().collect();
        self.counters.stale += messages.len() as u64;
        self.answer_behind(slot.behind, &Answer::NotFound);
        self.answer_askers(slot.asks, &Answer::NotFound);
        self.answer_all(key, &messages, slot.rival_starts, &Answer::NotFound);
    }

    /// The instance has ended; what still came for it is answered and its messages go.
    pub(super) fn clear_leftovers(&mut self, key: InstanceKey) {
        let slot = self.slots.get_mut(&key).expect("it was just loaded");
        if slot.has_query() {
            // It can be answered from the history.
            slot.phase = Phase::Loading;
            return self.outputs.push(Output::Load { key });
        }
        let messages: Vec<Queued> = slot.queue.drain(..).collect();
        let asks: Vec<PendingAsk> = slot.asks.drain(..).collect();
        let facts = slot.facts.clone().expect("a loaded row has facts");
        let mut commit = Commit { consumed: inbox_numbers(&messages), ..self.empty_commit(key) };
        self.counters.stale += messages.len() as u64;
        let mut outputs = self.refuse_asks(&asks, &AskReply::Ended, &mut commit.replies);
        if commit.consumed.is_empty() && commit.replies.is_empty() {
            self.remove_slot(key);
            self.outputs.extend(outputs);
            return self.answer_all(key, &messages, Vec::new(), &Answer::EndedBefore);
        }
        outputs.extend(replies(&messages, &Answer::EndedBefore));
        let in_flight = InFlight { outputs, refused: asks, ..InFlight::new(facts, Next::Gone, messages) };
        self.commit(key, commit, in_flight);
    }
}
