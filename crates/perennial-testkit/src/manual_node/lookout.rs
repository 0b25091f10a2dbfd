//! Observations as text that tests can compare.

use std::sync::MutexGuard;

use perennial_core::lane::StoreCall;
use perennial_core::shard::{CallReply, Counters, Message, RequestId, Response, Shard, TurnSource};
use perennial_core::store::memory::Tables;
use perennial_core::store::{
    Commit, InstanceRow, PageLimit, RowChange, Store, TaskChange, TaskRow, TaskState, read_turns,
};
use perennial_core::{History, InstanceKey, Job, ShardId};

use super::calls::Kind;
use super::{ManualNode, wait_for_store};

impl ManualNode {
    /// The answer to a caller as text; `nothing` if it still waits.
    pub fn told(&self, request: RequestId) -> String {
        match self.seen.answers.get(&request) {
            None => "nothing".to_owned(),
            Some(Response::Started(_)) => "started".to_owned(),
            Some(Response::AlreadyExists(status)) => format!("already exists: {}", status.name()),
            Some(Response::Accepted) => "accepted".to_owned(),
            Some(Response::Ended(ending)) => format!("ended: {}", ending.summary()),
            Some(Response::EndedBefore | Response::EndedRow(_)) => "ended before".to_owned(),
            Some(Response::TooLate) => "too late".to_owned(),
            Some(Response::NotFound) => "not found".to_owned(),
            Some(Response::Full { unread }) => format!("full: {unread}"),
            Some(Response::NotBlocked) => "not blocked".to_owned(),
            Some(Response::Moved { .. }) => "moved".to_owned(),
            Some(Response::Unknown { reason }) => format!("unknown: {reason}"),
            Some(Response::Reply(reply)) => reply_line(reply),
            Some(other) => format!("{other:?}"),
        }
    }

    /// The answer to a caller, if there is one.
    pub fn answer(&self, request: RequestId) -> Option<&Response> {
        self.seen.answers.get(&request)
    }

    /// The answers to several callers as text.
    pub fn told_all<const N: usize>(&self, requests: [RequestId; N]) -> [String; N] {
        requests.map(|request| self.told(request))
    }

    /// The row with an id.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn row(&self, id: &str) -> InstanceRow {
        self.try_row(id).unwrap_or_else(|| panic!("{id:?} is not stored"))
    }

    /// The row with an id, if it is stored.
    pub fn try_row(&self, id: &str) -> Option<InstanceRow> {
        wait_for_store(|reply| self.store.find(id, reply)).expect("the store is open")
    }

    /// The status of an id, with the reason if it is blocked.
    pub fn status(&self, id: &str) -> String {
        let row = self.row(id);
        match row.blocked {
            Some(blocked) => format!("{}, blocked: {}", row.status.name(), blocked.code),
            None => row.status.name().to_owned(),
        }
    }

    /// The stored history of one execution.
    ///
    /// # Panics
    ///
    /// If it is invalid.
    pub fn history(&self, row: &InstanceRow, execution: u64) -> History {
        let (shard, key) = (row.shard, row.key);
        let all = PageLimit { rows: usize::MAX, bytes: u64::MAX };
        let rows = wait_for_store(|reply| self.store.read_turns(shard, key, execution, 0, all, reply));
        let read = read_turns(key, &rows.expect("the store is open"));
        History { turns: read.expect("the store contains valid histories").turns }
    }

    /// Every stored event of an id as `id summary`.
    pub fn lines(&self, id: &str) -> Vec<String> {
        self.lines_of(id, self.row(id).execution)
    }

    /// Every stored event of one execution of an id.
    pub fn lines_of(&self, id: &str, execution: u64) -> Vec<String> {
        let history = self.history(&self.row(id), execution);
        history.flatten().map(|event| format!("{} {}", event.id, event.summary())).collect()
    }

    /// The stored jobs of an id's current execution.
    pub fn jobs(&self, id: &str) -> Vec<Job> {
        let row = self.row(id);
        let history = self.history(&row, row.execution);
        history.turns.iter().flat_map(|turn| turn.jobs().map(|(_, job)| job.clone())).collect()
    }

    /// The stored tasks of an id, in order, one line each: activity, attempt, state, and further columns.
    pub fn tasks(&self, id: &str) -> Vec<String> {
        let key = self.row(id).key;
        let tables = self.tables();
        tables.tasks.values().filter(|task| task.id.key == key).map(task_line).collect()
    }

    /// The last `count` stored events of an id.
    pub fn last_lines(&self, id: &str, count: usize) -> Vec<String> {
        let mut lines = self.lines(id);
        lines.drain(..lines.len().saturating_sub(count));
        lines
    }

    /// The inbox of an id, in order.
    pub fn inbox(&self, id: &str) -> Vec<String> {
        let key = self.row(id).key;
        let tables = self.tables();
        let mine = tables.inbox.values().filter(|message| message.to == key);
        mine.map(|message| match Message::decode(&message.body) {
            Ok(Message::Start(start)) => format!("Start {}", start.started.name),
            Ok(Message::Job(job) | Message::Outcome { job, .. }) => job.summary(),
            Ok(Message::Carried { execution, jobs, .. }) => format!("Carried {} to {execution}", jobs.len()),
            Ok(Message::Attempt { event, attempt, .. }) => format!("Attempt {attempt} of {event}"),
            Ok(Message::LeftOpen(left)) => format!("Attempt {} of {} left open", left.attempt, left.event),
            Ok(Message::Token(call)) => format!("Token of attempt {} of {}", call.attempt, call.event),
            Ok(Message::Requeue { event, attempt, .. }) => format!("Requeue {attempt} of {event}"),
            Ok(Message::Terminate { reason }) => format!("Terminate {reason:?}"),
            Ok(Message::Retry) => "Retry".to_owned(),
            Ok(Message::Pause(pause)) => format!("Pause {}", pause.why),
            Ok(Message::Resume(why)) => format!("Resume {why}"),
            Ok(Message::SkipMessage { number }) => format!("SkipMessage {number}"),
            Ok(Message::Unreadable { .. }) | Err(_) => "unreadable".to_owned(),
        })
        .collect()
    }

    /// All rows, to inspect or to damage.
    pub fn tables(&self) -> MutexGuard<'_, Tables> {
        self.store.tables()
    }

    /// Corrupts a stored turn of an id's current execution.
    ///
    /// # Panics
    ///
    /// If it is not stored.
    pub fn damage_turn(&self, id: &str, number: u64) {
        let InstanceRow { key, execution, .. } = self.row(id);
        let mut tables = self.tables();
        let turn = tables.turns.get_mut(&(key, execution, number)).expect("it is stored");
        turn.bytes = b"{}".as_slice().into();
    }

    /// Sets whether the store fails to read this instance.
    pub fn set_unreadable(&mut self, id: &str, is_unreadable: bool) {
        let key = self.row(id).key;
        if is_unreadable {
            self.unreadable.insert(key);
        } else {
            self.unreadable.remove(&key);
        }
    }

    /// Every durable commit of an id as a line: the inserted row, the turn, and the changed, consumed and
    /// sent rows.
    pub fn writes(&self, id: &str) -> Vec<String> {
        let key = self.row(id).key;
        self.seen
            .written
            .iter()
            .filter(|(other, _)| *other == key)
            .map(|(_, commit)| write_line(commit))
            .collect()
    }

    /// Every started attempt of an activity, in order, as `id activity`.
    pub fn runs(&self) -> &[String] {
        &self.seen.runs
    }

    /// Every cancelled activity, in order, as `id activity`.
    pub fn stops(&self) -> &[String] {
        &self.seen.stops
    }

    /// The activities that were running when they were cancelled.
    pub fn running_stops(&self) -> &[String] {
        &self.seen.running_stops
    }

    /// The running activities of an id, in the order in which they started.
    pub fn running(&self, id: &str) -> Vec<String> {
        self.running.iter().filter(|task| &*task.instance == id).map(|task| task.name.clone()).collect()
    }

    /// The instances with a turn task, in order.
    pub fn turns_to_take(&self) -> Vec<String> {
        self.turns.iter().map(|task| task.instance.to_string()).collect()
    }

    /// The jobs of an instance's turn task.
    pub fn jobs_to_take(&self, id: &str) -> Vec<String> {
        let task = self.turns.iter().find(|task| &*task.instance == id);
        task.map(|task| task.jobs.iter().map(|job| job.summary()).collect()).unwrap_or_default()
    }

    /// Whether an instance is hydrated with its next turn.
    pub fn is_replayed(&self, id: &str) -> bool {
        let task = self.turns.iter().find(|task| &*task.instance == id);
        task.is_some_and(|task| matches!(task.source, TurnSource::History(_) | TurnSource::Read(_)))
    }

    /// The instances to be loaded, in order.
    pub fn loads_to_make(&self) -> Vec<String> {
        let keys = self.waiting.of(Kind::Load).filter_map(|call| match call {
            StoreCall::Load { key, .. } => Some(*key),
            _ => None,
        });
        keys.map(|key| self.name(key)).collect()
    }

    /// The number of instances with a turn task or a commit in progress.
    pub fn under_way(&self) -> usize {
        self.turns.len() + self.seen.committing.len() + self.lane.queued_commits()
    }

    /// The shard of an id, if the lane owns it.
    fn shard(&self, id: &str) -> Option<&Shard> {
        self.lane.shard(ShardId::of(id))
    }

    /// The number of instances that the shard of an id has in memory.
    pub fn in_memory(&self, id: &str) -> usize {
        self.shard(id).map_or(0, Shard::slots)
    }

    /// The next wake-up time of the shard of an id.
    pub fn next_wake_ms(&self, id: &str) -> Option<u64> {
        self.shard(id).and_then(Shard::next_wake_ms)
    }

    /// The next wake-up time of the lane, if it is within the duration of any test.
    pub fn next_wake_of_all_ms(&self) -> Option<u64> {
        let at = self.lane.next_wake(self.moment())?;
        // Rounded up, so that it is due then.
        let at_ms = u64::try_from(at.as_nanos().div_ceil(1_000_000)).ok()?;
        (at_ms < self.now_ms().saturating_add(super::FOR_EVER_MS / 16)).then_some(at_ms)
    }

    /// Whether no shard has work in progress.
    pub fn is_quiet(&self) -> bool {
        self.lane.is_at_rest()
    }

    /// The counters of the shard of an id.
    pub fn counters(&self, id: &str) -> Counters {
        self.shard(id).map(Shard::counters).unwrap_or_default()
    }

    pub(super) fn name(&self, key: InstanceKey) -> String {
        match self.seen.names.get(&key) {
            Some(name) => name.to_string(),
            None => self.tables().instances.get(&key).map_or_else(|| key.to_string(), |row| row.id.clone()),
        }
    }
}

fn reply_line(reply: &CallReply) -> String {
    match reply {
        CallReply::Answered(payload) => format!("answered: {}", payload.as_json()),
        CallReply::Failed(payload) => format!("failed: {}", payload.as_json()),
        CallReply::KeyTaken => "key taken".to_owned(),
        CallReply::Refused { reason, .. } => format!("refused: {reason}"),
        CallReply::Ended => "has ended".to_owned(),
        CallReply::NotOpen => "not open".to_owned(),
        CallReply::Outdated { attempt } => format!("outdated by attempt {attempt}"),
        CallReply::Unanswered => "ended before it answered".to_owned(),
        CallReply::Blocked { code, .. } => format!("blocked: {code}"),
    }
}

fn task_line(task: &TaskRow) -> String {
    let mut words = vec![format!("{} {} {}", task.name, task.attempt, task.state.name())];
    words.extend(task.due_ms.map(|due_ms| format!("due {due_ms}")));
    words.extend(task.begun.map(|_| "begun".to_owned()));
    words.extend((task.interruptions > 0).then(|| format!("interrupted {}", task.interruptions)));
    words.extend(task.details.as_ref().map(|details| format!("details {}", details.as_json())));
    let is_cancelled = matches!(task.state, TaskState::Leased { cancelled: true, .. });
    words.extend(is_cancelled.then(|| "cancelled".to_owned()));
    words.join(", ")
}

fn write_line(commit: &Commit) -> String {
    let mut words = Vec::new();
    if let Some(row) = &commit.insert {
        words.push(format!("insert {}", row.status.name()));
        words.extend(row.owed.then(|| "owed".to_owned()));
        words.extend(row.wake_at_ms.map(|at_ms| format!("wake {at_ms}")));
        words.extend(row.blocked.as_ref().map(|blocked| format!("blocked {}", blocked.code)));
    }
    words.extend(commit.turn.as_ref().map(|turn| format!("turn {}", turn.number)));
    words.extend(change_words(&commit.change));
    if !commit.consumed.is_empty() {
        words.push(format!("consumed {}", commit.consumed.len()));
    }
    if !commit.seen.is_empty() {
        words.push(format!("seen {}", commit.seen.len()));
    }
    if !commit.send.is_empty() {
        words.push(format!("sent {}", commit.send.len()));
    }
    words.extend(commit.tasks.iter().map(|change| match change {
        TaskChange::Put(task) => format!("put {} {} {}", task.name, task.attempt, task.state.name()),
        TaskChange::Cancel(_) => "task gone".to_owned(),
    }));
    if !commit.replies.is_empty() {
        words.push(format!("answered {}", commit.replies.len()));
    }
    words.join(", ")
}

fn change_words(change: &RowChange) -> Vec<String> {
    // Whether it ended is enough; the end time is left out.
    let RowChange {
        status,
        execution,
        version,
        owed,
        wake_at_ms,
        blocked,
        full,
        attributes,
        published,
        ended_ms: _,
    } = change;
    let or_none = |value: Option<String>| value.unwrap_or_else(|| "none".to_owned());
    let words = [
        status.map(|status| format!("status {}", status.name())),
        execution.map(|execution| format!("execution {execution}")),
        version.as_ref().map(|version| format!("version {version}")),
        owed.map(|owed| format!("owed {owed}")),
        wake_at_ms.map(|at_ms| format!("wake {}", or_none(at_ms.map(|at_ms| at_ms.to_string())))),
        blocked.as_ref().map(|blocked| {
            format!("blocked {}", or_none(blocked.as_ref().map(|blocked| blocked.code.clone())))
        }),
        full.map(|full| format!("full {full}")),
        attributes.as_ref().map(|_| "attributes".to_owned()),
        published.as_ref().map(|_| "published".to_owned()),
    ];
    words.into_iter().flatten().collect()
}
