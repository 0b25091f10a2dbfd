//! Tasks: activities beyond their first local attempt, and who runs them under which lease.

use perennial_core::history::{EventId, Payload};
use perennial_core::log;
use perennial_core::store::{
    Changes, Evidence, Served, SessionId, TaskChange, TaskId, TaskRenewal, TaskReport, TaskRow, TaskState,
};
use perennial_core::{InstanceKey, ShardId};
use rusqlite::{Connection, OptionalExtension, Row, ToSql, params};

use crate::reader::{Fault, bytes, collect};
use crate::row::{
    bound, exact, json, read_json, read_key, read_maybe_number, read_number, read_payload, read_shard,
};
use crate::seal::{self, Seal};

pub(crate) const PUT: &str = "INSERT INTO tasks (key, execution, event, shard, state, holder, cancelled, attempt, \
     due_ms, details, interruptions, name, tag, work, past, begun, since_ms, heard_ms, checksum) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19) \
     ON CONFLICT (key, execution, event) DO UPDATE SET shard = excluded.shard, state = excluded.state, \
     holder = excluded.holder, cancelled = excluded.cancelled, attempt = excluded.attempt, due_ms = excluded.due_ms, \
     details = excluded.details, interruptions = excluded.interruptions, name = excluded.name, tag = excluded.tag, \
     work = excluded.work, past = excluded.past, begun = excluded.begun, since_ms = excluded.since_ms, \
     heard_ms = excluded.heard_ms, checksum = excluded.checksum";
/// A changed row gets a new checksum.
pub(crate) const SEAL: &str =
    "UPDATE tasks SET checksum = ?4 WHERE key = ?1 AND execution = ?2 AND event = ?3";
/// The row is deleted unless its lease has an end, which the owner's own leases do not have.
pub(crate) const CANCEL: &str = "DELETE FROM tasks WHERE key = ?1 AND execution = ?2 AND event = ?3 \
     AND (state <> 1 OR due_ms IS NULL)";
pub(crate) const MARK_CANCELLED: &str =
    "UPDATE tasks SET cancelled = 1 WHERE key = ?1 AND execution = ?2 AND event = ?3 AND state = 1";
pub(crate) const ANY_LEASE_OVER: &str =
    "SELECT 1 FROM tasks INDEXED BY tasks_by_lease WHERE state = 1 AND due_ms <= ?1 LIMIT 1";
pub(crate) const DROP_LEASES_OVER: &str =
    "DELETE FROM tasks INDEXED BY tasks_by_lease WHERE state = 1 AND due_ms <= ?1 AND cancelled = 1";
pub(crate) const LEASES_OVER: &str =
    "SELECT key, execution, event FROM tasks INDEXED BY tasks_by_lease WHERE state = 1 AND due_ms <= ?1";
/// A state that no task has.
pub(crate) const PUT_ASIDE: &str =
    "UPDATE tasks SET state = 3 WHERE key = ?1 AND execution = ?2 AND event = ?3";
pub(crate) const ANY_QUEUED: &str = "SELECT 1 FROM tasks INDEXED BY tasks_by_state WHERE state = 0 LIMIT 1";
pub(crate) const ANY_QUEUED_OF_NAME: &str =
    "SELECT 1 FROM tasks INDEXED BY tasks_by_state WHERE state = 0 AND name = ?1 LIMIT 1";
/// The first name at or after one.
pub(crate) const NEXT_QUEUED_NAME: &str = "SELECT name FROM tasks INDEXED BY tasks_by_state \
     WHERE state = 0 AND name >= ?1 AND NOT (?2 AND name = ?1) ORDER BY name LIMIT 1";
/// `IS`, so that a task without a tag is found by `NULL`.
pub(crate) const QUEUED: &str = "SELECT key, execution, event FROM tasks INDEXED BY tasks_by_state \
     WHERE state = 0 AND name = ?1 AND tag IS ?2 ORDER BY key, execution, event LIMIT ?3";
pub(crate) const RENEW: &str = "UPDATE tasks SET due_ms = ?5, details = ifnull(?6, details), \
     heard_ms = iif(?6 IS NULL, heard_ms, ?8), \
     begun = CASE ?7 WHEN 0 THEN begun WHEN 1 THEN holder ELSE NULL END, \
     interruptions = CASE ?7 WHEN 2 THEN 0 ELSE interruptions END \
     WHERE key = ?1 AND execution = ?2 AND event = ?3 AND state = 1 AND holder = ?4 RETURNING cancelled";
pub(crate) const FINISH: &str = "DELETE FROM tasks \
     WHERE key = ?1 AND execution = ?2 AND event = ?3 AND state = 1 AND holder = ?4 AND attempt = ?5 RETURNING shard";
pub(crate) const DROP_CANCELLED: &str = "DELETE FROM tasks \
     WHERE key = ?1 AND execution = ?2 AND event = ?3 AND state = 1 AND holder = ?4 AND cancelled = 1";
pub(crate) const QUEUE_AGAIN: &str = "UPDATE tasks SET state = 0, holder = NULL, due_ms = NULL, since_ms = ?5, \
     heard_ms = NULL \
     WHERE key = ?1 AND execution = ?2 AND event = ?3 AND state = 1 AND holder = ?4 RETURNING shard";

/// The columns that [`read`] expects, in this order.
pub(crate) const COLUMNS: &str = "key, execution, event, shard, state, holder, cancelled, attempt, due_ms, details, \
                       interruptions, name, tag, work, past, begun, since_ms, heard_ms, checksum";
/// How many of them the checksum in the last one covers.
const SEALED: usize = 18;

const QUEUED_STATE: i64 = 0;
const LEASED_STATE: i64 = 1;
const WAITING_STATE: i64 = 2;

pub(crate) const LEASE: &str = "UPDATE tasks SET state = 1, holder = ?4, cancelled = 0, due_ms = ?5, \
     since_ms = ?6, heard_ms = NULL \
     WHERE key = ?1 AND execution = ?2 AND event = ?3";

/// The task of an event.
pub(crate) fn of_event() -> String {
    format!("SELECT {COLUMNS} FROM tasks WHERE key = ?1 AND execution = ?2 AND event = ?3")
}

/// The tasks of an execution.
pub(crate) fn of_execution() -> String {
    format!("SELECT {COLUMNS} FROM tasks WHERE key = ?1 AND execution = ?2 ORDER BY event")
}

/// The tasks of all instances after one, ordered by id.
pub(crate) fn after() -> String {
    format!(
        "SELECT {COLUMNS} FROM tasks WHERE (key, execution, event) > (?1, ?2, ?3) ORDER BY key, execution, event"
    )
}

/// The tasks that are leased to a holder.
pub(crate) fn of_holder() -> String {
    format!(
        "SELECT {COLUMNS} FROM tasks INDEXED BY tasks_by_holder WHERE state = 1 AND holder = ?1 \
         ORDER BY key, execution, event"
    )
}

/// Applies a change of a commit.
pub(crate) fn change(connection: &Connection, change: &TaskChange) -> rusqlite::Result<()> {
    match change {
        TaskChange::Put(row) => put(connection, row),
        TaskChange::Cancel(id) => {
            let place = Place::of(*id)?;
            let cancelled = connection.prepare_cached(CANCEL)?.execute(params![
                place.key.as_bytes(),
                place.execution,
                place.event
            ])?;
            if cancelled == 0 {
                change_sealed(connection, &place, || {
                    let mut mark = connection.prepare_cached(MARK_CANCELLED)?;
                    mark.execute(params![place.key.as_bytes(), place.execution, place.event]).map(Some)
                })?;
            }
            Ok(())
        }
    }
}

/// Changes an intact row and its checksum; `None` if there is no such row. A damaged row is put aside: nobody takes it,
/// and loading its instance reports it.
fn change_sealed<T>(
    connection: &Connection,
    place: &Place,
    change: impl FnOnce() -> rusqlite::Result<Option<T>>,
) -> rusqlite::Result<Option<T>> {
    if sound(connection, place)?.is_none() {
        return Ok(None);
    }
    let changed = change()?;
    reseal(connection, place)?;
    Ok(changed)
}

/// The row of a task, if there is one. A damaged row is put aside.
fn sound(connection: &Connection, place: &Place) -> rusqlite::Result<Option<TaskRow>> {
    let at = params![place.key.as_bytes(), place.execution, place.event];
    let mut row = connection.prepare_cached(&of_event())?;
    match row.query_row(at, |row| Ok(read(row))).optional()? {
        None => Ok(None),
        Some(Ok(row)) => Ok(Some(row)),
        Some(Err(_)) => {
            let Place { key, execution, event, .. } = place;
            tracing::error!(target: log::STORE, %key, execution, event, "task is damaged and set aside");
            connection.prepare_cached(PUT_ASIDE)?.execute(at)?;
            Ok(None)
        }
    }
}

fn reseal(connection: &Connection, place: &Place) -> rusqlite::Result<()> {
    let mut row = connection.prepare_cached(&of_event())?;
    let values = params![place.key.as_bytes(), place.execution, place.event];
    let seal = row.query_row(values, |row| Seal::of_row(row, SEALED)).optional()?;
    let Some(seal) = seal else { return Ok(()) };
    let values = params![place.key.as_bytes(), place.execution, place.event, seal];
    connection.prepare_cached(SEAL)?.execute(values).map(drop)
}

fn put(connection: &Connection, row: &TaskRow) -> rusqlite::Result<()> {
    let place = Place::of(row.id)?;
    let (state, holder, cancelled) = match row.state {
        TaskState::Queued => (QUEUED_STATE, None, false),
        TaskState::Leased { holder, cancelled } => (LEASED_STATE, Some(holder.0.to_be_bytes()), cancelled),
        TaskState::Waiting => (WAITING_STATE, None, false),
    };
    let past = if row.past.is_empty() { None } else { Some(json(&row.past)?) };
    let (due_ms, details) = (row.due_ms.map(bound), row.details.as_ref().map(Payload::as_json));
    let (work, begun) = (row.work.as_deref(), row.begun.map(|node| node.0.to_be_bytes()));
    let (since_ms, heard_ms) = (row.since_ms.map(bound), row.heard_ms.map(bound));
    let mut values: Vec<&dyn ToSql> = vec![
        place.key.as_bytes(),
        &place.execution,
        &place.event,
        &row.shard.0,
        &state,
        &holder,
        &cancelled,
        &row.attempt,
        &due_ms,
        &details,
        &row.interruptions,
        &row.name,
        &row.tag,
        &work,
        &past,
        &begun,
        &since_ms,
        &heard_ms,
    ];
    let checksum = Seal::of(&values)?;
    values.push(&checksum);
    connection.prepare_cached(PUT)?.execute(&values[..]).map(drop)
}

/// Whether a node may find work.
pub(crate) fn any_to_take(connection: &Connection, now_ms: u64) -> rusqlite::Result<bool> {
    Ok(connection.prepare_cached(ANY_QUEUED)?.exists([])?
        || connection.prepare_cached(ANY_LEASE_OVER)?.exists([bound(now_ms)])?)
}

/// Queues tasks with an expired lease again; cancelled ones are deleted.
pub(crate) fn end_leases(
    connection: &Connection,
    now_ms: u64,
    is_live: impl Fn(SessionId) -> bool,
    changes: &mut Changes,
) -> Result<(), Fault> {
    if connection.prepare_cached(ANY_LEASE_OVER)?.exists([bound(now_ms)])? {
        connection.prepare_cached(DROP_LEASES_OVER)?.execute([bound(now_ms)])?;
        let mut over = connection.prepare_cached(LEASES_OVER)?;
        for place in collect(over.query([bound(now_ms)])?, Place::read)? {
            if let Some(mut row) = sound(connection, &place)? {
                row.queue_after_lease(now_ms, &is_live);
                put(connection, &row)?;
                changes.tasks.insert(row.shard);
            }
        }
    }
    Ok(())
}

/// Leases queued tasks that are served to a holder, in the order of their ids.
pub(crate) fn take(
    connection: &Connection,
    holder: SessionId,
    served: &Served,
    limit: usize,
    (now_ms, until_ms): (u64, u64),
) -> Result<Vec<TaskRow>, Fault> {
    let mut found = Vec::new();
    if limit > 0 && connection.prepare_cached(ANY_QUEUED)?.exists([])? {
        for name in &served.names {
            queued(connection, name, served, limit, &mut found)?;
        }
        for prefix in &served.prefixes {
            for name in names_from(connection, prefix)? {
                if !served.names.contains(&name) {
                    queued(connection, &name, served, limit, &mut found)?;
                }
            }
        }
    }
    found.sort();
    // Prefixes may cover the same names.
    found.dedup();
    found.truncate(limit);
    let mut lease = connection.prepare_cached(LEASE)?;
    let mut leased = connection.prepare_cached(&of_event())?;
    let mut taken = Vec::with_capacity(found.len());
    for id in found {
        let place = Place::of(id)?;
        let values = params![
            place.key.as_bytes(),
            place.execution,
            place.event,
            holder.0.to_be_bytes(),
            bound(until_ms),
            bound(now_ms)
        ];
        if change_sealed(connection, &place, || lease.execute(values).map(Some))?.is_some() {
            let at = params![place.key.as_bytes(), place.execution, place.event];
            taken.extend(collect(leased.query(at)?, read)?);
        }
    }
    Ok(taken)
}

/// The names of queued tasks that begin with a prefix, found by skipping through the index.
fn names_from(connection: &Connection, prefix: &str) -> Result<Vec<String>, Fault> {
    let mut next = connection.prepare_cached(NEXT_QUEUED_NAME)?;
    let mut names: Vec<String> = Vec::new();
    loop {
        let (from, is_after) = match names.last() {
            Some(last) => (last.as_str(), true),
            None => (prefix, false),
        };
        let name: Option<String> = next.query_row(params![from, is_after], |row| row.get(0)).optional()?;
        match name {
            Some(name) if name.starts_with(prefix) => names.push(name),
            _ => return Ok(names),
        }
    }
}

/// Finds the first queued tasks of a name, for each served tag.
fn queued(
    connection: &Connection,
    name: &str,
    served: &Served,
    limit: usize,
    found: &mut Vec<TaskId>,
) -> Result<(), Fault> {
    if !connection.prepare_cached(ANY_QUEUED_OF_NAME)?.exists([name])? {
        return Ok(());
    }
    let mut queued = connection.prepare_cached(QUEUED)?;
    for tag in std::iter::once(None).chain(served.tags.iter().map(Some)) {
        let rows = queued.query(params![name, tag, i64::try_from(limit).unwrap_or(i64::MAX)])?;
        found.extend(collect(rows, read_id)?);
    }
    Ok(())
}

/// Renews a holder's lease, and writes its report about the attempt.
pub(crate) fn renew(
    connection: &Connection,
    holder: SessionId,
    report: &TaskReport,
    (now_ms, until_ms): (u64, u64),
) -> rusqlite::Result<TaskRenewal> {
    let Ok(place) = Place::of(report.task) else { return Ok(TaskRenewal::Gone) };
    let evidence = match report.evidence {
        None => 0,
        Some(Evidence::Begins) => 1,
        Some(Evidence::Healthy) => 2,
    };
    let values = params![
        place.key.as_bytes(),
        place.execution,
        place.event,
        holder.0.to_be_bytes(),
        bound(until_ms),
        report.details.as_ref().map(Payload::as_json),
        evidence,
        bound(now_ms)
    ];
    let cancelled: Option<bool> = change_sealed(connection, &place, || {
        connection.prepare_cached(RENEW)?.query_row(values, |row| row.get(0)).optional()
    })?;
    Ok(match cancelled {
        Some(true) => TaskRenewal::Cancelled,
        Some(false) => TaskRenewal::Kept,
        None => TaskRenewal::Gone,
    })
}

/// Deletes the row of a holder's attempt; returns its shard, if the holder had it.
pub(crate) fn finish(
    connection: &Connection,
    holder: SessionId,
    id: TaskId,
    attempt: u32,
) -> rusqlite::Result<Option<ShardId>> {
    let Ok(place) = Place::of(id) else { return Ok(None) };
    let values = params![place.key.as_bytes(), place.execution, place.event, holder.0.to_be_bytes(), attempt];
    connection.prepare_cached(FINISH)?.query_row(values, |row| row.get(0).map(ShardId)).optional()
}

/// Queues a holder's task again, unless it was cancelled; returns its shard if it did.
pub(crate) fn give_back(
    connection: &Connection,
    holder: SessionId,
    id: TaskId,
    now_ms: u64,
) -> rusqlite::Result<Option<ShardId>> {
    let Ok(place) = Place::of(id) else { return Ok(None) };
    let values = params![place.key.as_bytes(), place.execution, place.event, holder.0.to_be_bytes()];
    if connection.prepare_cached(DROP_CANCELLED)?.execute(values)? == 1 {
        return Ok(None);
    }
    let (key, holder) = (place.key.as_bytes(), holder.0.to_be_bytes());
    let values = params![key, place.execution, place.event, holder, bound(now_ms)];
    change_sealed(connection, &place, || {
        connection.prepare_cached(QUEUE_AGAIN)?.query_row(values, |row| row.get(0).map(ShardId)).optional()
    })
}

/// The tasks leased to a holder, ordered by id.
pub(crate) fn held(connection: &Connection, holder: SessionId) -> Result<Vec<TaskRow>, Fault> {
    let mut statement = connection.prepare_cached(&of_holder())?;
    collect(statement.query([holder.0.to_be_bytes()])?, read)
}

/// The tasks of an execution, ordered by event.
pub(crate) fn load(connection: &Connection, key: InstanceKey, execution: u64) -> Result<Vec<TaskRow>, Fault> {
    let mut statement = connection.prepare_cached(&of_execution())?;
    collect(statement.query(params![key.as_bytes(), bound(execution)])?, read)
}

/// A page of the tasks of all instances. A damaged one is skipped: loading its instance reports it.
pub(crate) fn list(
    connection: &Connection,
    after_task: Option<TaskId>,
    limit: usize,
) -> Result<Vec<TaskRow>, Fault> {
    let from = after_task.map(Place::of).transpose()?;
    // Before the first of all.
    let key = from.as_ref().map_or(&[][..], |from| from.key.as_bytes());
    let (execution, event) = from.as_ref().map_or((-1, -1), |from| (from.execution, from.event));
    let mut statement = connection.prepare_cached(&after())?;
    let mut rows = statement.query(params![key, execution, event])?;
    let mut listed = Vec::new();
    while let Some(row) = rows.next()? {
        if let Ok(row) = read(row) {
            listed.push(TaskRow { work: None, details: None, ..row });
        }
        if listed.len() >= limit.max(1) {
            break;
        }
    }
    Ok(listed)
}

/// Extends every checksum to the columns that version 5 adds. A damaged row stays damaged.
pub(crate) fn seal_all(connection: &Connection) -> rusqlite::Result<()> {
    const SEALED_BEFORE: usize = 16;
    const CHECKSUM: usize = 18;
    let mut all = connection.prepare(&format!("SELECT {COLUMNS}, rowid FROM tasks"))?;
    let mut seal = connection.prepare("UPDATE tasks SET checksum = ?2 WHERE rowid = ?1")?;
    let mut rows = all.query([])?;
    while let Some(row) = rows.next()? {
        let sealed: Option<i64> = row.get(CHECKSUM)?;
        if sealed.is_none() || sealed == Some(Seal::of_row(row, SEALED_BEFORE)?) {
            seal.execute(params![row.get::<_, i64>(CHECKSUM + 1)?, Seal::of_row(row, SEALED)?])?;
        }
    }
    Ok(())
}

/// A task's id as stored.
struct Place {
    key: InstanceKey,
    execution: i64,
    event: i64,
}

impl Place {
    /// Reads the id from the first columns of a row.
    fn read(row: &Row<'_>) -> Result<Place, Fault> {
        Ok(Place { key: read_key(row, 0)?, execution: row.get(1)?, event: row.get(2)? })
    }

    fn of(id: TaskId) -> rusqlite::Result<Place> {
        Ok(Place { key: id.key, execution: exact(id.execution)?, event: exact(id.event.0)? })
    }
}

fn read_id(row: &Row<'_>) -> Result<TaskId, Fault> {
    let (key, execution) = (read_key(row, 0)?, read_number(row, 1)?);
    Ok(TaskId { key, execution, event: EventId(read_number(row, 2)?) })
}

pub(crate) fn read(row: &Row<'_>) -> Result<TaskRow, Fault> {
    seal::check(row, SEALED)?;
    let id = read_id(row)?;
    let state = match row.get::<_, i64>(4)? {
        QUEUED_STATE => TaskState::Queued,
        LEASED_STATE => {
            let holder = SessionId(u128::from_be_bytes(row.get(5)?));
            TaskState::Leased { holder, cancelled: row.get(6)? }
        }
        WAITING_STATE => TaskState::Waiting,
        other => return Err(Fault::corrupt(format!("column state: {other} is not a state of a task"))),
    };
    Ok(TaskRow {
        id,
        shard: read_shard(row, 3)?,
        attempt: row.get(7)?,
        state,
        due_ms: read_maybe_number(row, 8)?,
        details: read_payload(row, 9)?,
        interruptions: row.get(10)?,
        name: row.get(11)?,
        tag: row.get(12)?,
        work: if row.get_ref(13)? == rusqlite::types::ValueRef::Null { None } else { Some(bytes(row, 13)?) },
        past: read_json(row, 14)?.unwrap_or_default(),
        begun: row.get::<_, Option<[u8; 16]>>(15)?.map(|node| SessionId(u128::from_be_bytes(node))),
        since_ms: read_maybe_number(row, 16)?,
        heard_ms: read_maybe_number(row, 17)?,
    })
}
