//! Writes rows that were exported from another store.
//!
//! Each table has one statement that inserts the missing rows while it locks the session's row: a session that has
//! ended inserts nothing. Rows that were not inserted are read and compared.

use std::collections::BTreeMap;

use perennial_core::store::{
    Imported, MovedKey, MovedMessage, MovedRow, MovedShard, MovedTable, SessionId, StoreError, TaskChange,
};
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::arguments::Arguments;
use crate::connection::Argument;
use crate::export::{LAST_MESSAGE, message_columns, read, shard_columns, turn_columns};
use crate::failure::Access;
use crate::new_rows::{NewRows, check_row, indexed_key};
use crate::row::{bound, exact, instance_columns, shard, storable, uuid};
use crate::sessions::session_uuid;
use crate::store::Inner;
use crate::task_changes::Tasks;
use crate::tasks::task_columns;

macro_rules! under_session {
    ($($sql:expr),*) => {
        concat!("WITH s AS (SELECT id FROM @.sessions WHERE id = $1 FOR KEY SHARE) ", $($sql),*)
    };
}

const SESSION: &str = "SELECT 1 FROM @.sessions WHERE id = $1";
const INSERT_INSTANCES: &str = under_session!(
    ", inserted AS (INSERT INTO @.instances (",
    instance_columns!(),
    ") SELECT r.* FROM s, unnest($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19) AS r \
     ON CONFLICT DO NOTHING RETURNING key), indexed AS (INSERT INTO @.attributes (key, name, order_key) \
     SELECT a.key, a.name, a.order_key FROM unnest($20, $21, $22) AS a (key, name, order_key) \
     JOIN inserted AS n ON n.key = a.key) SELECT count(*) FROM inserted"
);
const INSERT_TURNS: &str = under_session!(
    ", inserted AS (INSERT INTO @.turns (",
    turn_columns!(),
    ") SELECT r.* FROM s, unnest($2, $3, $4, $5, $6) AS r ON CONFLICT DO NOTHING RETURNING 1) SELECT count(*) FROM inserted"
);
const INSERT_MESSAGES: &str = under_session!(
    ", inserted AS (INSERT INTO @.inbox (",
    message_columns!(),
    ") SELECT r.* FROM s, unnest($2, $3, $4, $5, $6, $7, $8, $9) AS r ON CONFLICT DO NOTHING RETURNING 1) \
     SELECT count(*) FROM inserted"
);
const INSERT_TASKS: &str = under_session!(
    ", inserted AS (INSERT INTO @.tasks (",
    task_columns!(),
    ") SELECT r.key, r.execution, r.event, r.shard, r.state, r.holder, r.cancelled, r.attempt, r.due, r.since, r.heard, \
     r.interruptions, r.begun, r.name, r.tag, r.details, r.past, r.work \
     FROM s, unnest($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21) \
     AS r (member, op, key, execution, event, shard, state, holder, cancelled, attempt, due, since, heard, interruptions, \
     begun, name, tag, details, past, work) ON CONFLICT DO NOTHING RETURNING 1) SELECT count(*) FROM inserted"
);
const INSERT_CONTINUATIONS: &str = under_session!(
    ", inserted AS (INSERT INTO @.continuations (key, execution, at_ms) SELECT r.* FROM s, unnest($2, $3, $4) AS r \
     ON CONFLICT DO NOTHING RETURNING 1) SELECT count(*) FROM inserted"
);
const INSERT_SETTINGS: &str = under_session!(
    ", inserted AS (INSERT INTO @.settings (name, value) SELECT r.* FROM s, unnest($2, $3) AS r \
     ON CONFLICT DO NOTHING RETURNING 1) SELECT count(*) FROM inserted"
);
/// Does not overwrite a shard that a lane of this store has owned.
const UPDATE_SHARD: &str = under_session!(
    ", updated AS (UPDATE @.shards AS h SET unclean_ends = $3, note = $4, gaps = $5, idle_since_ms = $6 FROM s \
     WHERE h.shard = $2 AND h.unclean_ends = 0 AND h.note IS NULL AND h.gaps = '{}' AND h.idle_since_ms IS NULL \
     RETURNING 1) SELECT count(*) FROM updated"
);
/// Never lowers the sequence.
const RAISE_LAST_MESSAGE: &str = under_session!(
    "SELECT count(setval($2::text::regclass, $3)) FROM s, @.inbox_numbers AS q \
     WHERE CASE WHEN q.is_called THEN q.last_value ELSE 0 END < $3"
);

const SOME_INSTANCES: &str =
    concat!("SELECT ", instance_columns!(), " FROM @.instances WHERE key = ANY ($1)");
const SOME_TURNS: &str = concat!(
    "SELECT ",
    turn_columns!(),
    " FROM @.turns WHERE (key, execution, number) IN (SELECT * FROM unnest($1, $2, $3))"
);
const SOME_MESSAGES: &str = concat!(
    "SELECT ",
    message_columns!(),
    " FROM @.inbox WHERE (shard, number) IN (SELECT * FROM unnest($1, $2))"
);
const SOME_TASKS: &str = concat!(
    "SELECT ",
    task_columns!(),
    " FROM @.tasks WHERE (key, execution, event) IN (SELECT * FROM unnest($1, $2, $3))"
);
const SOME_CONTINUATIONS: &str = "SELECT key, execution, at_ms FROM @.continuations \
     WHERE (key, execution) IN (SELECT * FROM unnest($1, $2))";
const SOME_SHARDS: &str = concat!("SELECT ", shard_columns!(), " FROM @.shards WHERE shard = ANY ($1)");
const SOME_SETTINGS: &str = "SELECT name, value FROM @.settings WHERE name = ANY ($1)";

pub(crate) async fn import(
    inner: &Inner,
    session: SessionId,
    rows: Vec<MovedRow>,
) -> Result<Imported, StoreError> {
    let Some(table) = rows.first().map(MovedRow::table) else { return Ok(Imported::default()) };
    if rows.iter().any(|row| row.table() != table) {
        return Err(StoreError::BatchRefused("rows of several tables in one call".to_owned()));
    }
    rows.iter().try_for_each(check).map_err(StoreError::BatchRefused)?;
    let id = session_uuid(session);
    let written = insert(inner, id, table, &rows).await?;
    if written == rows.len() {
        return Ok(Imported { written, differs: None });
    }
    if inner.query(SESSION, &[(&id, Type::UUID)], Access::Reads).await?.is_empty() {
        return Err(StoreError::SessionGone);
    }
    let stored = stored(inner, table, &rows).await?;
    let is_stored = |row: &&MovedRow| match (row, stored.get(&row.key())) {
        (MovedRow::LastMessage(last), Some(MovedRow::LastMessage(stored))) => stored >= last,
        (row, stored) => stored == Some(*row),
    };
    let differs = rows.iter().find(|row| !is_stored(row)).map(MovedRow::key);
    Ok(Imported { written, differs })
}

/// Checks that PostgreSQL can store every value of a row unchanged.
fn check(row: &MovedRow) -> Result<(), String> {
    let texts = |texts: &[Option<&str>]| texts.iter().flatten().try_for_each(|text| storable(text).map(drop));
    match row {
        MovedRow::Instance(row) => {
            check_row(row).map_err(|problem| format!("instance {:?}: {problem}", row.id))
        }
        MovedRow::Turn(key, turn) => match exact(turn.execution).and(exact(turn.number)) {
            Ok(_) => Ok(()),
            Err(problem) => Err(format!("a turn of the instance with key {key}: {problem}")),
        },
        MovedRow::Message(message) => texts(&[message.dedupe.as_deref()])
            .and(exact(message.row.number).map(drop))
            .map_err(|problem| format!("message {}: {problem}", message.row.number)),
        MovedRow::Task(row) => texts(&[Some(&row.name), row.tag.as_deref()])
            .map_err(|problem| format!("a task of the instance with key {}: {problem}", row.id.key)),
        MovedRow::Setting(name, _) => texts(&[Some(name)]),
        MovedRow::Continuation(..) | MovedRow::Shard(_) | MovedRow::LastMessage(_) => Ok(()),
    }
}

/// Inserts the rows that are missing and returns how many it inserted.
async fn insert(inner: &Inner, id: Uuid, table: MovedTable, rows: &[MovedRow]) -> Result<usize, StoreError> {
    let session: Argument<'_> = (&id, Type::UUID);
    let mut columns = Columns::default();
    let mut changes = Vec::new();
    for row in rows {
        match row {
            MovedRow::Task(row) => changes.push(TaskChange::Put(row.clone())),
            row => columns.add(row),
        }
    }
    let mut tasks = Tasks::default();
    tasks.add_all(0, &changes);
    let mut arguments = Arguments(vec![session]);
    let sql = match table {
        MovedTable::Instances => {
            let new = &columns.instances;
            arguments.uuids(&new.key).texts(&new.id).shorts(&new.shard);
            new.add_arguments(&mut arguments);
            arguments.uuids(&columns.key).texts(&columns.text).bytes(&columns.owned_bytes);
            INSERT_INSTANCES
        }
        MovedTable::Turns => {
            arguments.uuids(&columns.key).longs(&columns.first).longs(&columns.second);
            arguments.ints(&columns.checksum).bytes(&columns.bytes);
            INSERT_TURNS
        }
        MovedTable::Messages => {
            arguments.shorts(&columns.shard).longs(&columns.first).uuids(&columns.key).longs(&columns.second);
            arguments
                .bools(&columns.parked)
                .bools(&columns.urgent)
                .texts(&columns.text)
                .bytes(&columns.bytes);
            INSERT_MESSAGES
        }
        MovedTable::Tasks => {
            tasks.add_arguments(&mut arguments);
            INSERT_TASKS
        }
        MovedTable::Continuations => {
            arguments.uuids(&columns.key).longs(&columns.first).longs(&columns.second);
            INSERT_CONTINUATIONS
        }
        MovedTable::Settings => {
            arguments.texts(&columns.text).bytes(&columns.bytes);
            INSERT_SETTINGS
        }
        MovedTable::Shards => return update_shards(inner, id, rows).await,
        MovedTable::Counters => return raise_last_message(inner, id, rows).await,
    };
    count(inner, sql, &arguments.0).await
}

async fn count(inner: &Inner, sql: &'static str, arguments: &[Argument<'_>]) -> Result<usize, StoreError> {
    let rows = inner.query(sql, arguments, Access::Writes).await?;
    let count = crate::row::read_number(inner.one(&rows)?, 0)?;
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}

async fn update_shards(inner: &Inner, id: Uuid, rows: &[MovedRow]) -> Result<usize, StoreError> {
    let mut written = 0;
    for row in rows {
        let MovedRow::Shard(MovedShard { shard: of, unclean_ends, note, gaps, idle_since_ms }) = row else {
            continue;
        };
        let gaps: Vec<i64> = gaps.iter().flat_map(|gap| [bound(gap.from_ms), bound(gap.until_ms)]).collect();
        let (of, ends, idle) = (shard(*of), i64::from(*unclean_ends), idle_since_ms.map(bound));
        let arguments: [Argument<'_>; 6] = [
            (&id, Type::UUID),
            (&of, Type::INT2),
            (&ends, Type::INT8),
            (&note.as_deref(), Type::BYTEA),
            (&gaps, Type::INT8_ARRAY),
            (&idle, Type::INT8),
        ];
        written += count(inner, UPDATE_SHARD, &arguments).await?;
    }
    Ok(written)
}

async fn raise_last_message(inner: &Inner, id: Uuid, rows: &[MovedRow]) -> Result<usize, StoreError> {
    let mut written = 0;
    let sequence = format!("{}.inbox_numbers", inner.target.quoted_schema());
    for row in rows {
        // The smallest value of a sequence is 1.
        let MovedRow::LastMessage(last @ 1..) = row else { continue };
        let last = bound(*last);
        let arguments: [Argument<'_>; 3] = [(&id, Type::UUID), (&sequence, Type::TEXT), (&last, Type::INT8)];
        written += count(inner, RAISE_LAST_MESSAGE, &arguments).await?;
    }
    Ok(written)
}

/// Reads the stored rows that have the same keys as `rows`.
async fn stored(
    inner: &Inner,
    table: MovedTable,
    rows: &[MovedRow],
) -> Result<BTreeMap<MovedKey, MovedRow>, StoreError> {
    let mut keys = Keys::default();
    rows.iter().for_each(|row| keys.add(row.key()));
    let mut arguments = Arguments(Vec::new());
    let sql = match table {
        MovedTable::Instances => {
            arguments.uuids(&keys.key);
            SOME_INSTANCES
        }
        MovedTable::Turns => {
            arguments.uuids(&keys.key).longs(&keys.first).longs(&keys.second);
            SOME_TURNS
        }
        MovedTable::Messages => {
            arguments.shorts(&keys.shard).longs(&keys.first);
            SOME_MESSAGES
        }
        MovedTable::Tasks => {
            arguments.uuids(&keys.key).longs(&keys.first).longs(&keys.second);
            SOME_TASKS
        }
        MovedTable::Continuations => {
            arguments.uuids(&keys.key).longs(&keys.first);
            SOME_CONTINUATIONS
        }
        MovedTable::Shards => {
            arguments.shorts(&keys.shard);
            SOME_SHARDS
        }
        MovedTable::Settings => {
            arguments.texts(&keys.name);
            SOME_SETTINGS
        }
        MovedTable::Counters => LAST_MESSAGE,
    };
    let found = inner.query(sql, &arguments.0, Access::Reads).await?;
    let mut stored = BTreeMap::new();
    for row in &found {
        let row = read(table, row)?;
        stored.insert(row.key(), row);
    }
    Ok(stored)
}

/// Rows, transposed to columns.
#[derive(Default)]
struct Columns<'r> {
    instances: NewRows<'r>,
    key: Vec<Uuid>,
    shard: Vec<i16>,
    /// The execution, or the number of a message.
    first: Vec<i64>,
    /// The number of a turn, or a time.
    second: Vec<i64>,
    checksum: Vec<i32>,
    parked: Vec<bool>,
    urgent: Vec<bool>,
    text: Vec<Option<&'r str>>,
    bytes: Vec<&'r [u8]>,
    /// Order keys of attributes.
    owned_bytes: Vec<Vec<u8>>,
}

impl<'r> Columns<'r> {
    fn add(&mut self, row: &'r MovedRow) {
        match row {
            MovedRow::Instance(row) => {
                self.instances.add(row);
                for (name, value) in &row.attributes {
                    self.key.push(uuid(row.key));
                    self.text.push(Some(name));
                    self.owned_bytes.push(indexed_key(value));
                }
            }
            MovedRow::Turn(key, turn) => {
                self.key.push(uuid(*key));
                self.first.push(bound(turn.execution));
                self.second.push(bound(turn.number));
                self.checksum.push(turn.checksum.cast_signed());
                self.bytes.push(&turn.bytes);
            }
            MovedRow::Message(MovedMessage { row, dedupe, parked }) => {
                self.shard.push(shard(row.shard));
                self.first.push(bound(row.number));
                self.key.push(uuid(row.key));
                self.second.push(bound(row.arrived_ms));
                self.parked.push(*parked);
                self.urgent.push(row.urgent);
                self.text.push(dedupe.as_deref());
                self.bytes.push(&row.body);
            }
            MovedRow::Continuation(key, execution, at_ms) => {
                self.key.push(uuid(*key));
                self.first.push(bound(*execution));
                self.second.push(bound(*at_ms));
            }
            MovedRow::Setting(name, value) => {
                self.text.push(Some(name));
                self.bytes.push(value);
            }
            MovedRow::Task(_) | MovedRow::Shard(_) | MovedRow::LastMessage(_) => {}
        }
    }
}

/// Keys, transposed to columns.
#[derive(Default)]
struct Keys {
    key: Vec<Uuid>,
    shard: Vec<i16>,
    first: Vec<i64>,
    second: Vec<i64>,
    name: Vec<String>,
}

impl Keys {
    fn add(&mut self, key: MovedKey) {
        match key {
            MovedKey::Instance(key) => self.key.push(uuid(key)),
            MovedKey::Turn(key, execution, number) => {
                self.key.push(uuid(key));
                self.first.push(bound(execution));
                self.second.push(bound(number));
            }
            MovedKey::Message(of, number, _) => {
                self.shard.push(shard(of));
                self.first.push(bound(number));
            }
            MovedKey::Task(id) => {
                self.key.push(uuid(id.key));
                self.first.push(bound(id.execution));
                self.second.push(bound(id.event.0));
            }
            MovedKey::Continuation(key, execution) => {
                self.key.push(uuid(key));
                self.first.push(bound(execution));
            }
            MovedKey::Shard(of) => self.shard.push(shard(of)),
            MovedKey::Setting(name) => self.name.push(name),
            MovedKey::LastMessage => {}
        }
    }
}
