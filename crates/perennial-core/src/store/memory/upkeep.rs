//! Requests and their replies, deleting, sweeping, and counts.

use std::collections::VecDeque;

use crate::flaws::{self, Flaw};
use crate::instance::InstanceKey;
use crate::store::commit::{DeleteOutcome, Outgoing};
use crate::store::request::{NewRequest, RequestOutcome, RequestReply, RequestRow};
use crate::store::row::{InstanceRow, Status};
use crate::store::stats::{Count, StoreDetails, StoreStats};
use crate::store::{CheckedRows, RowPlace, Swept};

use super::tables::{StoredReply, Tables};

/// With more turns than this, an instance's turns are left to later sweeps when it is deleted.
const TURNS_DELETED_AT_ONCE: usize = 1_000;

impl Tables {
    pub(super) fn put_request(&mut self, request: NewRequest, now_ms: u64) -> RequestOutcome {
        let row = self.ids.get(&request.instance).map(|key| &self.instances[key]);
        let Some(row) = row.filter(|row| request.key.is_none_or(|key| key == row.key)) else {
            return RequestOutcome::NoInstance;
        };
        self.next_request += 1;
        let NewRequest { patience_ms, after, body, .. } = request;
        let (number, key, shard) = (self.next_request, row.key, row.shard);
        let deadline_ms = now_ms.saturating_add(patience_ms);
        self.changes.requests.insert(shard);
        self.requests.insert(number, RequestRow { number, key, shard, deadline_ms, after, body });
        RequestOutcome::Written(number)
    }

    /// Writes the reply to a request that still exists.
    pub(super) fn reply(&mut self, reply: &RequestReply) {
        if let Some(request) = self.requests.remove(&reply.number) {
            self.changes.replies.insert(request.shard);
            let stored = StoredReply { body: reply.body.clone(), deadline_ms: request.deadline_ms };
            self.replies.insert(reply.number, stored);
        }
    }

    /// All requests, then all replies. Rows in memory are never damaged.
    pub(super) fn check_rows(&self, after: Option<RowPlace>, rows: usize) -> CheckedRows {
        let RowPlace { table, row } = after.unwrap_or(RowPlace { table: 0, row: 0 });
        let mut checked = CheckedRows::default();
        let last = match table {
            0 => {
                let requests = self.requests.range(row + 1..).map(|(_, request)| request.clone());
                checked.requests = requests.take(rows.max(1)).collect();
                checked.requests.last().map(|request| request.number)
            }
            _ => {
                let replies = self.replies.range(row + 1..);
                let replies = replies.map(|(number, reply)| (*number, reply.body.clone()));
                checked.replies = replies.take(rows.max(1)).collect();
                checked.replies.last().map(|(number, _)| *number)
            }
        };
        let next = (table == 0).then_some(RowPlace { table: 1, row: 0 });
        checked.next = last.map(|row| RowPlace { table, row }).or(next);
        checked
    }

    pub(super) fn delete(&mut self, key: InstanceKey) -> DeleteOutcome {
        match self.instances.get(&key) {
            None => return DeleteOutcome::Gone,
            Some(row) if !row.status.is_final() && row.is_sound() && !flaws::is(Flaw::ReplacesRunning) => {
                return DeleteOutcome::NotEnded;
            }
            Some(_) => {}
        }
        if let Some(row) = self.instances.remove(&key) {
            self.ids.remove(&row.id);
        }
        self.inbox.retain(|_, message| message.to != key);
        self.tasks.retain(|id, _| id.key != key);
        self.requests.retain(|_, request| request.key != key);
        self.continued.retain(|(continued, _), _| *continued != key);
        self.graves.insert(key);
        self.delete_turns(key, u64::MAX, TURNS_DELETED_AT_ONCE);
        if self.turns_before(key, u64::MAX).next().is_none() {
            self.graves.remove(&key);
        }
        DeleteOutcome::Deleted
    }

    /// Deletes an ended instance and its ended descendants.
    pub(super) fn delete_family(&mut self, key: InstanceKey) {
        if self.delete(key) != DeleteOutcome::Deleted {
            return;
        }
        let (mut parents, mut left) = (VecDeque::from([key]), Outgoing::CHILDREN_DELETED);
        while let Some(parent) = parents.pop_front() {
            let parent = parent.to_string();
            let is_child = |row: &&InstanceRow| row.parent.as_ref().is_some_and(|link| link.key == parent);
            let rows = self.instances.values().filter(is_child).filter(|row| row.status.is_final());
            let children: Vec<InstanceKey> = rows.map(|row| row.key).take(left).collect();
            left -= children.len();
            for child in children {
                self.delete(child);
                parents.push_back(child);
            }
        }
    }

    pub(super) fn prune(&mut self, key: InstanceKey, execution: u64, rows: usize) -> Swept {
        let before = self.pruned_before(key, execution);
        let rows = self.delete_turns(key, before, rows);
        let more = self.turns_before(key, before).next().is_some();
        if !more {
            self.continued.retain(|(continued, execution), _| *continued != key || *execution > before);
        }
        Swept { rows, more }
    }

    /// Where pruning stops: the current execution is never changed.
    fn pruned_before(&self, key: InstanceKey, execution: u64) -> u64 {
        self.instances.get(&key).map_or(0, |row| row.execution.min(execution))
    }

    /// The executions that were continued so long ago that earlier ones are not kept, oldest first.
    fn continued_before(&self, keep_ms: Option<u64>, now_ms: u64) -> Vec<(InstanceKey, u64)> {
        let Some(before_ms) = keep_ms.and_then(|keep_ms| now_ms.checked_sub(keep_ms)) else {
            return Vec::new();
        };
        let old = self.continued.iter().filter(|(_, at_ms)| **at_ms <= before_ms);
        let mut old: Vec<_> = old.map(|(place, at_ms)| (*at_ms, *place)).collect();
        old.sort_unstable();
        old.into_iter().map(|(_, place)| place).collect()
    }

    pub(super) fn sweep(&mut self, rows: usize, keep_executions_ms: Option<u64>, now_ms: u64) -> Swept {
        let mut left = rows;
        let requests = self.requests.iter().filter(|(_, request)| request.deadline_ms <= now_ms);
        for number in requests.map(|(number, _)| *number).take(left).collect::<Vec<_>>() {
            self.requests.remove(&number);
            left -= 1;
        }
        let replies = self.replies.iter().filter(|(_, reply)| reply.deadline_ms <= now_ms);
        for number in replies.map(|(number, _)| *number).take(left).collect::<Vec<_>>() {
            self.replies.remove(&number);
            left -= 1;
        }
        for key in self.graves.iter().copied().collect::<Vec<_>>() {
            left -= usize::try_from(self.delete_turns(key, u64::MAX, left)).unwrap_or(left);
            if self.turns_before(key, u64::MAX).next().is_none() {
                self.graves.remove(&key);
            }
        }
        for (key, execution) in self.continued_before(keep_executions_ms, now_ms) {
            if left > 0 {
                let pruned = self.prune(key, execution, left);
                left -= usize::try_from(pruned.rows).unwrap_or(left);
                if !pruned.more {
                    self.continued.remove(&(key, execution));
                }
            }
        }
        let mut old = self.continued_before(keep_executions_ms, now_ms).into_iter();
        let more = old.any(|(key, execution)| {
            self.turns_before(key, self.pruned_before(key, execution)).next().is_some()
        }) || !self.graves.is_empty()
            || self.requests.values().any(|request| request.deadline_ms <= now_ms)
            || self.replies.values().any(|reply| reply.deadline_ms <= now_ms);
        Swept { rows: (rows - left) as u64, more }
    }

    /// The turns of executions before one, oldest first.
    fn turns_before(
        &self,
        key: InstanceKey,
        execution: u64,
    ) -> impl Iterator<Item = (InstanceKey, u64, u64)> + '_ {
        self.turns.range((key, 0, 0)..(key, execution, 0)).map(|(place, _)| *place)
    }

    /// Deletes turns of executions before one, oldest first; returns how many.
    fn delete_turns(&mut self, key: InstanceKey, execution: u64, rows: usize) -> u64 {
        let places: Vec<_> = self.turns_before(key, execution).take(rows).collect();
        for place in &places {
            self.turns.remove(place);
        }
        places.len() as u64
    }

    pub(super) fn details(&self) -> StoreDetails {
        let blocked = self.instances.values().filter_map(|row| row.blocked.as_ref());
        let begins: Vec<String> = blocked.map(|blocked| format!("{{\"code\":\"{}\"", blocked.code)).collect();
        let counted = begins.iter().map(String::as_str).take(Count::EXACT as usize + 1);
        let wakes = self.instances.values().filter(|row| !row.status.is_final() && row.blocked.is_none());
        let due = wakes.filter_map(|row| row.wake_at_ms.map(|due_ms| (row.shard.0, due_ms)));
        StoreDetails {
            blocked: StoreDetails::count_blocked(counted),
            bytes: Vec::new(),
            earliest: StoreDetails::earliest_of(due),
        }
    }

    pub(super) fn stats(&self, now_ms: u64) -> StoreStats {
        let count = |rows: usize| Count::bounded(rows as u64, Count::EXACT);
        let of_status = |status: Status| self.instances.values().filter(|row| row.status == status).count();
        let tasks = |name: &str| count(self.tasks.values().filter(|row| row.state.name() == name).count());
        let wakes = self.instances.values().filter(|row| !row.status.is_final() && row.blocked.is_none());
        let earliest_ms = wakes.filter_map(|row| row.wake_at_ms).min();
        StoreStats {
            instances: Status::ALL.into_iter().map(|status| (status, count(of_status(status)))).collect(),
            blocked: count(self.instances.values().filter(|row| row.blocked.is_some()).count()),
            inbox: count(self.inbox.len()),
            tasks_queued: tasks("queued"),
            tasks_leased: tasks("leased"),
            tasks_waiting: tasks("waiting"),
            requests: count(self.requests.len()),
            lag_ms: earliest_ms.map_or(0, |at_ms| now_ms.saturating_sub(at_ms)),
        }
    }
}
