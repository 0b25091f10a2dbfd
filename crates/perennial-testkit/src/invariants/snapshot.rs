//! A copy of all rows of a store.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc;

use perennial_core::InstanceKey;
use perennial_core::store::{
    Criteria, InboxRow, InstanceRow, MemoryStore, PageLimit, Reply, Store, StoreError, TaskId, TaskRow,
    TaskState, TurnRow,
};

/// The page size of reads.
const PAGE: usize = 500;

/// All rows of a store at one point in time.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The instances, oldest first.
    pub instances: Vec<StoredInstance>,
    /// The rows of all tables, including those without an instance; `None` if they cannot be read through the
    /// store.
    pub rows: Option<StoredRows>,
}

/// An instance with all its rows.
#[derive(Clone, Debug)]
pub struct StoredInstance {
    /// The row of the instance.
    pub row: InstanceRow,
    /// The stored turns of its executions by number, without those that could not be read.
    pub executions: BTreeMap<u64, Vec<Arc<[u8]>>>,
    /// Its messages; `None` if they could not be read.
    pub inbox: Option<Vec<InboxRow>>,
    /// The tasks of its current execution; `None` if they could not be read.
    pub tasks: Option<Vec<TaskRow>>,
}

/// The rows of all tables, with or without an instance.
#[derive(Clone, Debug, Default)]
pub struct StoredRows {
    /// Key, execution and number of every turn.
    pub turns: Vec<(InstanceKey, u64, u64)>,
    /// Every message.
    pub inbox: Vec<(InstanceKey, Arc<[u8]>)>,
    /// Every task.
    pub tasks: Vec<StoredTask>,
    /// The deadlines of all requests and replies.
    pub request_deadlines_ms: Vec<u64>,
    /// The keys that rows of other tables name, with the table.
    pub others: Vec<(String, InstanceKey)>,
}

/// A task, with or without an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredTask {
    /// The id of the activity.
    pub id: TaskId,
    /// Whether its holder has yet to notice its cancellation: it is cancelled, and leased until a time.
    pub is_marked: bool,
}

impl From<&TaskRow> for StoredTask {
    fn from(row: &TaskRow) -> StoredTask {
        let is_cancelled = matches!(row.state, TaskState::Leased { cancelled: true, .. });
        StoredTask { id: row.id, is_marked: is_cancelled && row.due_ms.is_some() }
    }
}

impl Snapshot {
    /// Reads everything that the store's methods return.
    pub fn read(store: &dyn Store) -> Result<Snapshot, StoreError> {
        let mut snapshot = Snapshot::default();
        let mut after = None;
        loop {
            let page = wait_for(|reply| store.list(Criteria::default(), after, PAGE, reply))?;
            for row in page.rows {
                let mut executions = BTreeMap::new();
                // One more than expected, in case it exists.
                for execution in 1..=row.execution + 1 {
                    let turns = read_turns(store, &row, execution)?;
                    if execution <= row.execution || !turns.is_empty() {
                        executions.insert(execution, turns);
                    }
                }
                let all = PageLimit::rows(usize::MAX);
                let loaded = wait_for(|reply| store.load(row.shard, row.key, u64::MAX >> 1, all, reply))?;
                let (inbox, tasks) = loaded.map(|loaded| (loaded.inbox.rows, loaded.tasks)).unzip();
                snapshot.instances.push(StoredInstance { row, executions, inbox, tasks });
            }
            after = page.next;
            if after.is_none() {
                return Ok(snapshot);
            }
        }
    }

    /// Reads all rows of a memory store.
    pub fn read_memory(store: &MemoryStore) -> Result<Snapshot, StoreError> {
        let mut snapshot = Snapshot::read(store)?;
        let tables = store.tables();
        snapshot.rows = Some(StoredRows {
            // Turns of a large deleted instance are left to sweeps.
            turns: tables.turns.keys().filter(|(key, ..)| !tables.graves.contains(key)).copied().collect(),
            inbox: tables.inbox.values().map(|message| (message.to, Arc::clone(&message.body))).collect(),
            tasks: tables.tasks.values().map(StoredTask::from).collect(),
            request_deadlines_ms: tables
                .requests
                .values()
                .map(|request| request.deadline_ms)
                .chain(tables.replies.values().map(|reply| reply.deadline_ms))
                .collect(),
            others: tables.requests.values().map(|it| ("requests".to_owned(), it.key)).collect(),
        });
        Ok(snapshot)
    }

    /// Treats missing executions as pruned, except the current one and the `keep` - 1 before it.
    pub fn excuse_pruned(&mut self, keep: u64) {
        for StoredInstance { row, executions, .. } in &mut self.instances {
            executions.retain(|execution, turns| !turns.is_empty() || execution + keep > row.execution);
        }
    }

    /// The instance with an id.
    pub fn instance(&self, id: &str) -> Option<&StoredInstance> {
        self.instances.iter().find(|instance| instance.row.id == id)
    }
}

fn read_turns(store: &dyn Store, row: &InstanceRow, execution: u64) -> Result<Vec<Arc<[u8]>>, StoreError> {
    let mut turns: Vec<Arc<[u8]>> = Vec::new();
    let mut after = 0;
    loop {
        let limit = PageLimit::rows(PAGE);
        let page = wait_for(|reply| store.read_turns(row.shard, row.key, execution, after, limit, reply))?;
        let is_last = page.len() < PAGE;
        after = page.last().map_or(after, |turn: &TurnRow| turn.number);
        turns.extend(page.into_iter().map(|turn| turn.bytes));
        if is_last {
            return Ok(turns);
        }
    }
}

/// Calls a store and waits for its answer.
fn wait_for<T: Send + 'static>(call: impl FnOnce(Reply<T>)) -> Result<T, StoreError> {
    let (sender, receiver) = mpsc::channel();
    call(Box::new(move |answer| {
        // Fails only if the caller no longer waits.
        let _ = sender.send(answer);
    }));
    receiver.recv().unwrap_or(Err(StoreError::Closed))
}
