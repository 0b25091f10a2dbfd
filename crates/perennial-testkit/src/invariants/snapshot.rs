//! All rows of a store, as they are.

use std::sync::Arc;
use std::sync::mpsc;

use perennial_core::store::{Filter, InboxRow, InstanceRow, Reply, Store, StoreError};

/// How many rows or turns are read at a time.
const PAGE: usize = 500;

/// All rows of a store at rest.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The instances, oldest first.
    pub instances: Vec<StoredInstance>,
}

/// An instance with everything that is stored of it.
#[derive(Clone, Debug)]
pub struct StoredInstance {
    /// Its row.
    pub row: InstanceRow,
    /// The stored turns of each of its executions.
    pub executions: Vec<Vec<Arc<[u8]>>>,
    /// Its messages; none if nobody could look.
    pub inbox: Option<Vec<InboxRow>>,
}

impl Snapshot {
    /// Reads everything that a store has.
    pub fn read(store: &dyn Store) -> Result<Snapshot, StoreError> {
        let mut snapshot = Snapshot::default();
        let mut after = None;
        loop {
            let page = ask(|reply| store.list(Filter::default(), after, PAGE, reply))?;
            for row in page.rows {
                let executions = (1..=row.execution).map(|execution| read_turns(store, &row, execution));
                let executions = executions.collect::<Result<Vec<_>, _>>()?;
                let inbox =
                    ask(|reply| store.load(row.key, u64::MAX >> 1, reply))?.map(|loaded| loaded.inbox);
                snapshot.instances.push(StoredInstance { row, executions, inbox });
            }
            after = page.next;
            if after.is_none() {
                return Ok(snapshot);
            }
        }
    }

    /// The instance with an id.
    pub fn instance(&self, id: &str) -> Option<&StoredInstance> {
        self.instances.iter().find(|instance| instance.row.id == id)
    }
}

fn read_turns(store: &dyn Store, row: &InstanceRow, execution: u64) -> Result<Vec<Arc<[u8]>>, StoreError> {
    let mut turns: Vec<Arc<[u8]>> = Vec::new();
    loop {
        let behind = turns.len() as u64;
        let page = ask(|reply| store.read_turns(row.key, execution, behind, PAGE, reply))?;
        let is_last = page.len() < PAGE;
        turns.extend(page);
        if is_last {
            return Ok(turns);
        }
    }
}

/// Asks a store, and waits for its answer.
fn ask<T: Send + 'static>(call: impl FnOnce(Reply<T>)) -> Result<T, StoreError> {
    let (sender, receiver) = mpsc::channel();
    call(Box::new(move |answer| {
        // Nobody waits any more if this fails.
        let _ = sender.send(answer);
    }));
    receiver.recv().unwrap_or(Err(StoreError::Closed))
}
