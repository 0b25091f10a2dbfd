//! Damage of stored rows: a turn, a message, a task, a request.
//!
//! A damaged turn or message affects only its instance: it is blocked and reports the damage, or ends without
//! having read the row. It is ended and deleted, sometimes after the message is skipped. A damaged task is
//! written again from the history, a damaged request has no effect. All other instances continue (I16).

use std::collections::BTreeSet;
use std::sync::Arc;

use perennial_core::ErrorCode;
use perennial_core::InstanceKey;
use perennial_core::lane::Lane;
use perennial_core::shard::{Message, Request};
use perennial_core::store::{
    Blocked, Commit, InboxNumber, RequestNumber, Skippable, Status, TaskId, TaskRow, TaskState,
};

use super::Simulation;
use super::callers::{CallerRequest, to_instance};

/// The codes that block an instance with damage: corrupt history, unreadable message, corrupt row.
const CODES: [ErrorCode; 3] =
    [ErrorCode::CorruptHistory, ErrorCode::UnreadableMessage, ErrorCode::CorruptRow];

#[derive(Default)]
pub(super) struct Damaged(pub(super) BTreeSet<InstanceKey>);

impl Simulation {
    pub(super) fn plan_damage(&mut self) {
        for at_ms in self.plan.classes.damage_ms.clone() {
            self.later(at_ms, "a row is damaged", |this| {
                if !this.is_healed {
                    this.damage_something();
                }
            });
        }
    }

    /// Damages a row of a random table that has one.
    fn damage_something(&mut self) {
        let mut kinds = [
            Simulation::damage_turn,
            Simulation::damage_message,
            Simulation::damage_task,
            Simulation::damage_request,
        ];
        self.rng.shuffle(&mut kinds);
        let _ = kinds.iter().find_map(|damage| damage(self));
    }

    fn damage_turn(&mut self) -> Option<()> {
        let places: Vec<(InstanceKey, u64, u64)> = {
            let tables = self.store.tables();
            let is_current = |(key, execution, _): &&(InstanceKey, u64, u64)| {
                let row = tables.instances.get(key);
                row.is_some_and(|row| !row.status.is_final() && row.execution == *execution)
            };
            tables.turns.keys().filter(is_current).copied().collect()
        };
        let place = *some(&mut self.rng, &places)?;
        let bytes = Arc::clone(&self.store.tables().turns.get(&place)?.bytes);
        let bytes = self.flipped(&bytes)?;
        self.store.tables().turns.get_mut(&place)?.bytes = bytes;
        self.note(|| format!("turn {} of execution {} of {} is damaged", place.2, place.1, place.0));
        self.count("turn damaged");
        self.count_served(place.0);
        self.damaged.0.insert(place.0);
        Some(())
    }

    fn damage_message(&mut self) -> Option<()> {
        let numbers: Vec<InboxNumber> = self.store.tables().inbox.keys().copied().collect();
        let number = *some(&mut self.rng, &numbers)?;
        let message = self.store.tables().inbox.get(&number)?.clone();
        let body = self.flipped(&message.body)?;
        self.store.tables().inbox.get_mut(&number)?.body = body;
        self.note(|| format!("message {number} to {} is damaged", message.to));
        self.count("message damaged");
        self.count_served(message.to);
        self.damaged.0.insert(message.to);
        Some(())
    }

    /// Queued tasks are short-lived, so some are damaged as soon as they are written.
    pub(super) fn damage_new_task(&mut self, row: &TaskRow) {
        let is_queued = row.state == TaskState::Queued && row.work.is_some();
        if is_queued && !self.is_healed && !self.plan.classes.damage_ms.is_empty() && self.rng.percent(30) {
            let _ = self.damage_task();
        }
    }

    /// Damages the data that another node needs to run a task. The activity that crashes its process is
    /// excluded, since its runs are counted.
    fn damage_task(&mut self) -> Option<()> {
        let ids: Vec<TaskId> = {
            let tables = self.store.tables();
            let deadly = self.plan.deadly.and_then(|subject| self.callers.subjects.get(subject));
            let deadly = deadly.and_then(|subject| tables.ids.get(&subject.id)).copied();
            let queued =
                tables.tasks.values().filter(|row| row.state == TaskState::Queued && row.work.is_some());
            queued.map(|row| row.id).filter(|id| Some(id.key) != deadly).collect()
        };
        let id = *some(&mut self.rng, &ids)?;
        let work = self.store.tables().tasks.get(&id)?.work.clone()?;
        let work = self.flipped(&work)?;
        self.store.tables().tasks.get_mut(&id)?.work = Some(work);
        self.note(|| format!("task {} of {} is damaged", id.event, id.key));
        self.count("task damaged");
        self.count_served(id.key);
        Some(())
    }

    fn damage_request(&mut self) -> Option<()> {
        let numbers: Vec<RequestNumber> = self.store.tables().requests.keys().copied().collect();
        let number = *some(&mut self.rng, &numbers)?;
        let body = Arc::clone(&self.store.tables().requests.get(&number)?.body);
        let body = self.flipped(&body)?;
        self.store.tables().requests.get_mut(&number)?.body = body;
        self.note(|| format!("request row {number} is damaged"));
        self.count("request damaged");
        Some(())
    }

    fn flipped(&mut self, bytes: &[u8]) -> Option<Arc<[u8]>> {
        let mut bytes = bytes.to_vec();
        let place = self.rng.below(bytes.len().max(1));
        *bytes.get_mut(place)? ^= 1 << self.rng.below(8);
        Some(bytes.into())
    }

    fn count_served(&mut self, key: InstanceKey) {
        let Some(shard) = self.store.tables().instances.get(&key).map(|row| row.shard) else { return };
        let serves = |lane: &Lane| lane.takes(shard);
        let mut lanes = self.processes.iter().filter_map(|process| process.engine.as_ref());
        let is_served = lanes.any(|engine| engine.lanes.iter().any(serves));
        self.count(if is_served { "damaged while it is served" } else { "damaged between lives" });
    }

    /// Whether the instance with an id has a damaged row.
    pub(super) fn is_damaged(&self, id: &str) -> bool {
        self.store.tables().ids.get(id).is_some_and(|key| self.damaged.0.contains(key))
    }

    /// I16: only damaged instances are blocked for damage.
    pub(super) fn witness_damage(&mut self, commit: &Commit) {
        let is_ended_unread = commit.turn.is_none() && commit.change.status == Some(Status::Terminated);
        if is_ended_unread && !self.plan.shard.codecs.is_empty() && self.damaged.0.insert(commit.key) {
            // S11: its start could not be decoded, so only its row shows that it was ended.
            self.count("ended while its start could not be decoded");
        }
        let Some(Some(blocked)) = &commit.change.blocked else { return };
        if !CODES.iter().any(|code| blocked.code == *code) {
            return;
        }
        if !self.damaged.0.contains(&commit.key) {
            let what = format!("I16: {} is blocked as damaged, and is not: {}", commit.key, blocked.reason);
            return self.fail(what);
        }
        self.count("damaged instance blocked");
    }

    /// Ends a blocked damaged instance, or skips a message that cannot be decoded. The content of the message
    /// is lost, and the instance may wait for it: so it is ended a while later.
    pub(super) fn end_damaged(&mut self, id: &str, blocked: &Blocked) {
        if let Some(number) = blocked.message
            && self.rng.percent(40)
        {
            self.skip_message(id, number);
            let (id, pause_ms) = (id.to_owned(), self.rng.between(10, 3_000));
            return self.later(pause_ms, "an instance that lost a message is ended", move |this| {
                if this.is_damaged(&id) {
                    this.end_instance(&id, false);
                }
            });
        }
        if self.rng.percent(30) {
            self.count("damaged instance ended by a person");
            self.end_instance(id, false);
        }
    }

    fn skip_message(&mut self, id: &str, number: InboxNumber) {
        match self.near(id) {
            Some(place) => {
                let request = Request::Skip(Skippable::Message(number));
                self.request_of_lane(place, id, CallerRequest::Retry, request, None);
            }
            None => self.send(to_instance(id, None, &Message::SkipMessage { number }), |_, _| ()),
        }
    }

    /// Deletes damaged instances: their remaining rows are inconsistent.
    pub(super) fn delete_damaged(&mut self) {
        if self.failure.is_some() {
            return;
        }
        for key in self.damaged.0.clone() {
            let has_ended = self.store.tables().instances.get(&key).map(|row| row.status.is_final());
            if has_ended == Some(true) {
                self.delete_ended(key);
            }
        }
    }
}

fn some<'a, T>(rng: &mut crate::Rng, items: &'a [T]) -> Option<&'a T> {
    (!items.is_empty()).then(|| rng.pick(items))
}
