//! Commits and messages. A member is checked first and then written as a whole.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use perennial_core::InstanceKey;
use perennial_core::store::memory::MAX_UNREAD;
use perennial_core::store::{
    Commit, CommitOutcome, Conflict, DeleteOutcome, InboxNumber, InstanceRow, Outgoing, SendOutcome,
    SendRequest, SessionId, Swept, TaskChange, TaskRow, TaskState, TurnRow,
};

use super::tables::{Change, Message, Reply, Tables};

impl Tables {
    pub(super) fn commit(&mut self, session: SessionId, member: &Commit, now_ms: u64) -> CommitOutcome {
        if !self.owns_at(session, member.shard, member.epoch) {
            return CommitOutcome::Fenced;
        }
        match self.contradiction(member) {
            Ok(true) => return CommitOutcome::Durable { sent: vec![None; member.send.len()] },
            Ok(false) => {}
            Err(conflict) => return CommitOutcome::Conflict(conflict),
        }
        if let Some(row) = &member.insert {
            self.write(Change::Instance(InstanceRow::clone(row)));
        }
        for turn in member.turn.iter().chain(&member.more_turns) {
            self.write(Change::Turn(member.key, turn.clone()));
        }
        if !member.change.is_empty() {
            let mut row = self.instances[&member.key].clone();
            member.change.apply(&mut row);
            self.write(Change::Instance(row));
        }
        if let Some(execution) = member.change.execution {
            self.write(Change::Continued(member.key, execution, now_ms));
        }
        let has_ended = self.instances[&member.key].status.is_final();
        let is_news = member.insert.is_some() || member.change.status.is_some();
        if member.change.published.is_some() || (has_ended && is_news) {
            self.hints.endings.insert(member.shard);
        }
        for number in &member.consumed {
            self.write(Change::MessageGone(*number));
        }
        for number in &member.seen {
            self.set_urgent(*number, false);
        }
        for change in &member.tasks {
            self.change_task(change);
        }
        for reply in &member.replies {
            if let Some(request) = self.requests.get(&reply.number) {
                let (number, deadline_ms, shard) = (request.number, request.deadline_ms, request.shard);
                self.write(Change::RequestGone(number));
                self.write(Change::Reply(Reply { number, deadline_ms, body: Arc::clone(&reply.body) }));
                self.hints.replies.insert(shard);
            }
        }
        let sent = member.send.iter().map(|message| self.send_out(session, member, message, now_ms));
        CommitOutcome::Durable { sent: sent.collect() }
    }

    /// Whether the same turn is already stored, or the conflict with the stored state.
    fn contradiction(&self, member: &Commit) -> Result<bool, Conflict> {
        if let Some(turn) = &member.turn {
            let stored = |number| self.turns.get(&(member.key, turn.execution, number));
            match stored(turn.number) {
                Some(stored) if stored == turn => return Ok(true),
                Some(_) => return Err(Conflict::OtherTurn),
                None if turn.number > 1 && stored(turn.number - 1).is_none() => {
                    return Err(Conflict::MissingTurn);
                }
                None => {}
            }
        }
        let is_there = |turn: &TurnRow| self.turns.contains_key(&(member.key, turn.execution, turn.number));
        if member.more_turns.iter().any(is_there) {
            return Err(Conflict::OtherTurn);
        }
        match &member.insert {
            Some(row) => {
                if let Some(taken) = self.find(&row.id) {
                    return Err(Conflict::IdTaken(Box::new(taken.clone())));
                }
            }
            None if !self.instances.contains_key(&member.key) => return Err(Conflict::NoInstance),
            None => {}
        }
        let is_earlier = |message: &Message| {
            let is_waiting = !message.parked && !member.consumed.contains(&message.number);
            is_waiting && member.fired_ms.is_some_and(|fired_ms| message.arrived_ms < fired_ms)
        };
        if member.fired_ms.is_some() && self.messages_of(member.key).any(is_earlier) {
            return Err(Conflict::EarlierMessage);
        }
        match member.consumed.iter().all(|number| self.inbox.contains_key(number)) {
            true => Ok(false),
            false => Err(Conflict::MessageGone),
        }
    }

    fn send_out(
        &mut self,
        session: SessionId,
        sender: &Commit,
        message: &Outgoing,
        now_ms: u64,
    ) -> Option<InboxNumber> {
        let takes_messages = |row: &&InstanceRow| !row.status.is_final();
        let mut hints = None;
        let (row, dedupe, urgent, body) = match message {
            Outgoing::ToKey { to, dedupe, urgent, body, .. } => {
                (self.instances.get(to).filter(takes_messages)?.clone(), dedupe.clone(), *urgent, body)
            }
            Outgoing::ToId { id, dedupe, urgent, body, report } => {
                let found = self.find(id).cloned();
                hints = report.as_ref().map(|report| match &found {
                    Some(row) if row.status.is_final() => &report.ended,
                    Some(_) => &report.delivered,
                    None => &report.not_found,
                });
                let Some(row) = found.filter(|row| !row.status.is_final()) else {
                    self.notify_sender(session, sender, hints, now_ms);
                    return None;
                };
                (row, dedupe.clone(), *urgent, body)
            }
            Outgoing::Start { row, body, otherwise, replaces_ended, started } => {
                let taken =
                    self.find(&row.id).filter(|taken| taken.key != row.key && taken.status.is_final());
                if let Some(key) = taken.map(|taken| taken.key).filter(|_| *replaces_ended) {
                    self.delete_family(key);
                }
                match self.find(&row.id).map(|taken| taken.key) {
                    Some(key) if key == row.key => return None,
                    Some(_) => {
                        let sender = self.instances.get(&sender.key).filter(takes_messages)?.clone();
                        (sender, None, false, otherwise.as_ref()?)
                    }
                    None => {
                        self.write(Change::Instance(InstanceRow::clone(row)));
                        hints = started.as_ref();
                        (InstanceRow::clone(row), None, false, body)
                    }
                }
            }
        };
        let is_start = matches!(message, Outgoing::Start { .. }) && row.key != sender.key;
        let appended = self.append(&row, dedupe, urgent, is_start, body, now_ms);
        self.notify_sender(session, sender, hints, now_ms);
        let number = appended.ok()?;
        // The committer learns from the outcome which messages it sent to its own shards.
        if self.owner(row.shard) != Some(session) {
            self.hints.inbox.insert(row.shard);
        }
        Some(number)
    }

    /// Sends the instance of a member the outcome of one of its messages, if it has not ended.
    fn notify_sender(&mut self, session: SessionId, sender: &Commit, body: Option<&Arc<[u8]>>, now_ms: u64) {
        let row = self.instances.get(&sender.key).filter(|row| !row.status.is_final()).cloned();
        let Some((row, body)) = row.zip(body) else { return };
        let is_sent = self.append(&row, None, false, false, body, now_ms).is_ok();
        if is_sent && self.owner(row.shard) != Some(session) {
            self.hints.inbox.insert(row.shard);
        }
    }

    pub(super) fn send(&mut self, request: SendRequest, now_ms: u64) -> SendOutcome {
        let (row, dedupe, urgent, is_start, body) = match request {
            SendRequest::Start { row, body } => {
                if let Some(taken) = self.find(&row.id) {
                    return SendOutcome::IdTaken(Box::new(taken.clone()));
                }
                self.write(Change::Instance(InstanceRow::clone(&row)));
                (*row, None, false, true, body)
            }
            SendRequest::Message { id, key, dedupe, urgent, body } => {
                let Some(row) = self.find(&id).filter(|row| key.is_none_or(|key| key == row.key)) else {
                    return SendOutcome::NoInstance;
                };
                if row.status.is_final() {
                    return SendOutcome::Ended(Box::new(row.clone()));
                }
                let unread = self.messages_of(row.key).count();
                let is_known = self.waiting(row.key, &dedupe).is_some();
                if !urgent && !is_known && (row.full || unread >= MAX_UNREAD) {
                    return SendOutcome::Full(unread);
                }
                (row.clone(), dedupe, urgent, false, body)
            }
        };
        self.hints.inbox.insert(row.shard);
        match self.append(&row, dedupe, urgent, is_start, &body, now_ms) {
            Ok(number) => SendOutcome::Sent(number),
            Err(number) => SendOutcome::Duplicate(number),
        }
    }

    /// The waiting message with an idempotency key.
    fn waiting(&self, key: InstanceKey, dedupe: &Option<String>) -> Option<InboxNumber> {
        let is_same = |message: &&Message| dedupe.is_some() && message.dedupe == *dedupe;
        self.messages_of(key).find(is_same).map(|message| message.number)
    }

    /// Appends a message. If one with its key waits, returns the number of that one, which becomes urgent if
    /// this one is.
    fn append(
        &mut self,
        to: &InstanceRow,
        dedupe: Option<String>,
        urgent: bool,
        is_start: bool,
        body: &Arc<[u8]>,
        now_ms: u64,
    ) -> Result<InboxNumber, InboxNumber> {
        if let Some(number) = self.waiting(to.key, &dedupe) {
            if urgent {
                self.set_urgent(number, true);
                self.hints.inbox.insert(to.shard);
            }
            return Err(number);
        }
        let number = self.last_message + 1;
        self.write(Change::Message(Message {
            number,
            key: to.key,
            shard: to.shard,
            dedupe,
            parked: is_start && to.wake_at_ms.is_some(),
            urgent,
            arrived_ms: now_ms,
            body: Arc::clone(body),
        }));
        Ok(number)
    }

    fn set_urgent(&mut self, number: InboxNumber, urgent: bool) {
        if let Some(message) = self.inbox.get(&number).filter(|message| message.urgent != urgent) {
            self.write(Change::Message(Message { urgent, ..message.clone() }));
        }
    }

    fn change_task(&mut self, change: &TaskChange) {
        match change {
            TaskChange::Put(row) => {
                if row.state == TaskState::Queued {
                    self.hints.tasks.insert(row.shard);
                }
                self.write(Change::Task(TaskRow::clone(row)));
            }
            TaskChange::Cancel(id) => match self.tasks.get(id).cloned() {
                // Its holder has yet to notice.
                Some(row @ TaskRow { state: TaskState::Leased { holder, .. }, due_ms: Some(_), .. }) => {
                    let state = TaskState::Leased { holder, cancelled: true };
                    self.write(Change::Task(TaskRow { state, ..row }));
                }
                _ => self.write(Change::TaskGone(*id)),
            },
        }
    }

    /// Appends the result of an attempt, if the instance still accepts messages.
    pub(super) fn append_result(&mut self, key: InstanceKey, body: &Arc<[u8]>, now_ms: u64) {
        if let Some(row) = self.instances.get(&key).filter(|row| !row.status.is_final()).cloned() {
            self.hints.inbox.insert(row.shard);
            // Without a key it cannot be a duplicate.
            let _ = self.append(&row, None, false, false, body, now_ms);
        }
    }

    /// Deletes an instance and all its rows at once. A store for large instances would delete them in steps.
    pub(super) fn delete(&mut self, key: InstanceKey) -> DeleteOutcome {
        match self.instances.get(&key) {
            None => return DeleteOutcome::Gone,
            Some(row) if !row.status.is_final() && row.is_sound() => return DeleteOutcome::NotEnded,
            Some(_) => {}
        }
        let messages = self.messages_of(key).map(|message| Change::MessageGone(message.number));
        let tasks = self.tasks.keys().filter(|id| id.key == key).map(|id| Change::TaskGone(*id));
        let requests = self.requests.values().filter(|request| request.key == key);
        let requests = requests.map(|request| Change::RequestGone(request.number));
        let turns = self.turns_before(key, u64::MAX);
        let continued = self.continued.keys().filter(|(continued, _)| *continued == key);
        let continued = continued.map(|(key, execution)| Change::ContinuedGone(*key, *execution));
        let rows: Vec<Change> = messages.chain(tasks).chain(requests).chain(turns).chain(continued).collect();
        rows.into_iter().for_each(|row| self.write(row));
        self.write(Change::InstanceGone(key));
        DeleteOutcome::Deleted
    }

    /// Deletes an ended instance and its ended children.
    fn delete_family(&mut self, key: InstanceKey) {
        let mut parents = VecDeque::from([key]);
        if self.delete(key) != DeleteOutcome::Deleted {
            return;
        }
        let mut left = Outgoing::CHILDREN_DELETED;
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
        let old: Vec<Change> = self.turns_before(key, before).collect();
        let swept = self.delete_some(old, rows);
        if !swept.more {
            self.forget_continued(|continued, execution, _| continued == key && execution <= before);
        }
        swept
    }

    /// Drops the times of continued executions without turns.
    fn forget_continued(&mut self, is_over: impl Fn(InstanceKey, u64, u64) -> bool) {
        let over =
            self.continued.iter().filter(|((key, execution), at_ms)| is_over(*key, *execution, **at_ms));
        let over: Vec<Change> =
            over.map(|((key, execution), _)| Change::ContinuedGone(*key, *execution)).collect();
        over.into_iter().for_each(|gone| self.write(gone));
    }

    /// The execution at which pruning stops: the current one is never deleted.
    fn pruned_before(&self, key: InstanceKey, execution: u64) -> u64 {
        self.instances.get(&key).map_or(0, |row| row.execution.min(execution))
    }

    pub(super) fn sweep(&mut self, rows: usize, keep_executions_ms: Option<u64>, now_ms: u64) -> Swept {
        let requests = self.requests.values().filter(|request| request.deadline_ms <= now_ms);
        let requests = requests.map(|request| Change::RequestGone(request.number));
        let replies = self.replies.values().filter(|reply| reply.deadline_ms <= now_ms);
        let replies = replies.map(|reply| Change::ReplyGone(reply.number));
        let before_ms = keep_executions_ms.and_then(|keep_ms| now_ms.checked_sub(keep_ms));
        let is_old = |at_ms: u64| before_ms.is_some_and(|before_ms| at_ms <= before_ms);
        let continued = self.continued.iter().filter(|(_, at_ms)| is_old(**at_ms));
        // Turns before an execution are also before the next one.
        let mut before: BTreeMap<InstanceKey, u64> = BTreeMap::new();
        for ((key, execution), _) in continued {
            before.insert(*key, self.pruned_before(*key, *execution));
        }
        let turns = before.iter().flat_map(|(key, execution)| self.turns_before(*key, *execution));
        let late: Vec<Change> = requests.chain(replies).chain(turns).collect();
        let swept = self.delete_some(late, rows);
        if !swept.more {
            self.forget_continued(|key, execution, at_ms| {
                is_old(at_ms) || before.get(&key).is_some_and(|before| execution <= *before)
            });
        }
        swept
    }

    fn turns_before(&self, key: InstanceKey, execution: u64) -> impl Iterator<Item = Change> + '_ {
        let turns = self.turns.range((key, 0, 0)..(key, execution, 0));
        turns.map(|((key, execution, number), _)| Change::TurnGone(*key, *execution, *number))
    }

    fn delete_some(&mut self, all: Vec<Change>, rows: usize) -> Swept {
        let more = all.len() > rows;
        let some: Vec<Change> = all.into_iter().take(rows).collect();
        let swept = Swept { rows: some.len() as u64, more };
        some.into_iter().for_each(|row| self.write(row));
        swept
    }
}
