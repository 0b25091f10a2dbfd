//! All rows of a store, as they are.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc;

use perennial_core::InstanceKey;
use perennial_core::store::{
    Criteria, InboxRow, InstanceRow, MemoryStore, PageLimit, Reply, Store, StoreError, TaskId, TaskRow,
    TaskState, TurnRow,
};

/// How many rows or turns are read at a time.
const PAGE: usize = 500;

/// All rows of a store, of one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The instances, oldest first.
    pub instances: Vec<StoredInstance>,
    /// The rows beside them, also of instances that do not exist; none if nobody could look behind the store's back.
    pub rows: Option<StoredRows>,
}

/// An instance with everything that is stored of it.
#[derive(Clone, Debug)]
pub struct StoredInstance {
    /// Its row.
    pub row: InstanceRow,
    /// The stored turns of its executions by number; those that nobody could look at are not here.
    pub executions: BTreeMap<u64, Vec<Arc<[u8]>>>,
    /// Its messages; none if nobody could look.
    pub inbox: Option<Vec<InboxRow>>,
    /// The tasks of its current execution; none if nobody could look.
    pub tasks: Option<Vec<TaskRow>>,
}

/// What the tables hold, whoever it belongs to.
#[derive(Clone, Debug, Default)]
pub struct StoredRows {
    /// Key, execution and number of every turn.
    pub turns: Vec<(InstanceKey, u64, u64)>,
    /// Every message.
    pub inbox: Vec<(InstanceKey, Arc<[u8]>)>,
    /// Every task.
    pub tasks: Vec<StoredTask>,
    /// When each request and each reply is to be swept.
    pub request_deadlines_ms: Vec<u64>,
    /// The keys that rows of other tables name, with the table.
    pub others: Vec<(String, InstanceKey)>,
}

/// What there is of a task, whoever it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredTask {
    /// Which activity it is.
    pub id: TaskId,
    /// Whether its holder is yet to learn that nobody waits for it: it is cancelled, and leased until a time.
    pub is_marked: bool,
}

impl From<&TaskRow> for StoredTask {
    fn from(row: &TaskRow) -> StoredTask {
        let is_cancelled = matches!(row.state, TaskState::Leased { cancelled: true, .. });
        StoredTask { id: row.id, is_marked: is_cancelled && row.due_ms.is_some() }
    }
}

impl Snapshot {
    /// Reads everything that a store tells of.
    pub fn read(store: &dyn Store) -> Result<Snapshot, StoreError> {
        let mut snapshot = Snapshot::default();
        let mut after = None;
        loop {
            let page = wait_for(|reply| store.list(Criteria::default(), after, PAGE, reply))?;
            for row in page.rows {
                let mut executions = BTreeMap::new();
                // One more than there should be, in case there is.
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

    /// Reads everything that a store in memory has.
    pub fn read_memory(store: &MemoryStore) -> Result<Snapshot, StoreError> {
        let mut snapshot = Snapshot::read(store)?;
        let tables = store.tables();
        snapshot.rows = Some(StoredRows {
            // Turns of a large instance that was deleted are left to sweeps.
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

    /// Takes executions that are gone for deleted on purpose, but for the current one and the `keep` - 1 before it.
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

/// Asks a store, and waits for its answer.
fn wait_for<T: Send + 'static>(call: impl FnOnce(Reply<T>)) -> Result<T, StoreError> {
    let (sender, receiver) = mpsc::channel();
    call(Box::new(move |answer| {
        // Nobody waits any more if this fails.
        let _ = sender.send(answer);
    }));
    receiver.recv().unwrap_or(Err(StoreError::Closed))
}
