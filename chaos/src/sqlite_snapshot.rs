//! Reads all rows of a SQLite store in one snapshot, with its own SQL and without the store's code.

use std::path::Path;
use std::sync::Arc;

use perennial_core::history::{EventId, ParentLink};
use perennial_core::store::{Blocked, InboxRow, InstanceRow, SessionId, Status, TaskId, TaskRow, TaskState};
use perennial_core::{Attributes, InstanceKey, Payload, ShardId};
use perennial_testkit::invariants::Snapshot;
use rusqlite::{Connection, OpenFlags, Row};

use crate::snapshot::{Problem, Tables, TurnOfExecution, assemble};

/// Opens the file to read it.
fn open(path: &Path) -> Result<Connection, Problem> {
    Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(told)
}

fn told(error: rusqlite::Error) -> Problem {
    error.to_string()
}

/// The ids of instances that have not ended.
pub fn unfinished(path: &Path) -> Result<Vec<String>, Problem> {
    let connection = open(path)?;
    rows(&connection, "SELECT id FROM instances WHERE status < 2 ORDER BY id", |row| row.get("id"))
}

/// Reads all tables in one transaction.
pub fn read(path: &Path) -> Result<Snapshot, Problem> {
    let mut connection = open(path)?;
    let transaction = connection.transaction().map_err(told)?;
    let turn = |row: &Row<'_>| -> rusqlite::Result<TurnOfExecution> {
        Ok(TurnOfExecution {
            key: key(row)?,
            execution: number(row, "execution")?,
            number: number(row, "number")?,
            body: bytes(row, "body")?,
        })
    };
    let deadlines = "SELECT deadline_ms FROM requests UNION ALL SELECT deadline_ms FROM replies";
    let mut others = Vec::new();
    for table in ["requests", "attributes", "continuations"] {
        let keys = rows(&transaction, &format!("SELECT key FROM {table} ORDER BY key"), key)?;
        others.extend(keys.into_iter().map(|key| (table.to_owned(), key)));
    }
    Ok(assemble(Tables {
        instances: rows(&transaction, "SELECT * FROM instances ORDER BY created_ms, key", instance_row)?,
        // Turns of a deleted instance are left to sweeps.
        turns: rows(
            &transaction,
            "SELECT * FROM turns WHERE key NOT IN (SELECT key FROM graves) ORDER BY key, execution, number",
            turn,
        )?,
        inbox: rows(&transaction, "SELECT * FROM inbox ORDER BY number", inbox_row)?,
        tasks: rows(&transaction, "SELECT * FROM tasks ORDER BY key, execution, event", task_row)?,
        deadlines_ms: rows(&transaction, deadlines, |row| number(row, "deadline_ms"))?,
        others,
    }))
}

fn rows<T>(
    connection: &Connection,
    sql: &str,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, Problem> {
    let mut statement = connection.prepare(sql).map_err(told)?;
    let rows = statement.query_map([], read).map_err(told)?;
    rows.collect::<Result<_, _>>().map_err(|error| format!("{sql}: {error}"))
}

fn key(row: &Row<'_>) -> rusqlite::Result<InstanceKey> {
    Ok(InstanceKey::from_bytes(row.get("key")?))
}

fn number(row: &Row<'_>, column: &str) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column).map(i64::cast_unsigned)
}

fn maybe_number(row: &Row<'_>, column: &str) -> rusqlite::Result<Option<u64>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(i64::cast_unsigned))
}

fn bytes(row: &Row<'_>, column: &str) -> rusqlite::Result<Arc<[u8]>> {
    row.get::<_, Vec<u8>>(column).map(Arc::from)
}

fn json<T: serde::de::DeserializeOwned>(row: &Row<'_>, column: &str) -> rusqlite::Result<Option<T>> {
    let text: Option<String> = row.get(column)?;
    let decoded = text.map(|text| serde_json::from_str(&text)).transpose();
    decoded.map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, Box::new(error))
    })
}

fn payload(row: &Row<'_>, column: &str) -> rusqlite::Result<Option<Payload>> {
    let text: Option<String> = row.get(column)?;
    Ok(text.map(|text| Payload::from_json(text).expect("payloads are JSON")))
}

fn session(row: &Row<'_>, column: &str) -> rusqlite::Result<Option<SessionId>> {
    Ok(row.get::<_, Option<[u8; 16]>>(column)?.map(|id| SessionId(u128::from_be_bytes(id))))
}

fn instance_row(row: &Row<'_>) -> rusqlite::Result<InstanceRow> {
    let status: u8 = row.get("status")?;
    Ok(InstanceRow {
        key: key(row)?,
        id: row.get("id")?,
        shard: ShardId(row.get("shard")?),
        name: row.get("name")?,
        version: row.get("version")?,
        status: *Status::ALL.get(usize::from(status)).expect("one of six statuses"),
        execution: number(row, "execution")?,
        owed: row.get("owed")?,
        wake_at_ms: maybe_number(row, "wake_at_ms")?,
        blocked: json::<Blocked>(row, "blocked")?,
        full: row.get("full")?,
        attributes: json::<Attributes>(row, "attributes")?.unwrap_or_default(),
        published: payload(row, "published")?,
        parent: json::<ParentLink>(row, "parent")?,
        created_ms: number(row, "created_ms")?,
        ended_ms: maybe_number(row, "ended_ms")?,
        checksum: row.get("checksum")?,
    })
}

fn inbox_row(row: &Row<'_>) -> rusqlite::Result<InboxRow> {
    Ok(InboxRow {
        number: number(row, "number")?,
        key: key(row)?,
        shard: ShardId(row.get("shard")?),
        arrived_ms: number(row, "arrived_ms")?,
        urgent: row.get("urgent")?,
        body: bytes(row, "body")?,
    })
}

fn task_row(row: &Row<'_>) -> rusqlite::Result<TaskRow> {
    let state = match (row.get::<_, i64>("state")?, session(row, "holder")?) {
        (1, Some(holder)) => TaskState::Leased { holder, cancelled: row.get("cancelled")? },
        (2, _) => TaskState::Waiting,
        _ => TaskState::Queued,
    };
    Ok(TaskRow {
        id: TaskId {
            key: key(row)?,
            execution: number(row, "execution")?,
            event: EventId(number(row, "event")?),
        },
        shard: ShardId(row.get("shard")?),
        attempt: row.get("attempt")?,
        state,
        due_ms: maybe_number(row, "due_ms")?,
        since_ms: maybe_number(row, "since_ms")?,
        details: payload(row, "details")?,
        heard_ms: maybe_number(row, "heard_ms")?,
        interruptions: row.get("interruptions")?,
        begun: session(row, "begun")?,
        past: Default::default(),
        name: row.get("name")?,
        tag: row.get("tag")?,
        work: row.get::<_, Option<Vec<u8>>>("work")?.map(Arc::from),
    })
}
