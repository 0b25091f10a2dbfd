//! Reads all rows of the store so that they can be imported into another one.
//!
//! Rows that belong to no instance are not exported, such as turns of deleted instances that have not been swept.

use perennial_core::store::{
    InboxRow, MoveMark, MovedKey, MovedMessage, MovedRow, MovedShard, MovedTable, PageFill, PageLimit,
    StoreError, TurnRow,
};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::connection::Argument;
use crate::failure::Access;
use crate::row::{
    bound, column, instance_columns, read_bytes, read_instance, read_key, read_maybe_number, read_number,
    read_shard, uuid,
};
use crate::sessions::read_gaps;
use crate::store::Inner;
use crate::tasks::{self, task_columns};

macro_rules! turn_columns {
    () => {
        "key, execution, number, checksum, body"
    };
}

macro_rules! message_columns {
    () => {
        "shard, number, key, arrived_ms, parked, urgent, dedupe, body"
    };
}

macro_rules! shard_columns {
    () => {
        "shard, unclean_ends, note, gaps, idle_since_ms"
    };
}

pub(crate) use {message_columns, shard_columns, turn_columns};

/// Reads a page of a table whose rows can be large. The server knows the sizes without reading the bodies. A page has
/// at least one row.
macro_rules! sized {
    ($columns:expr, $table:literal, $size:literal, $order:literal, $after:literal, $rows:literal, $bytes:literal) => {
        concat!(
            "SELECT ",
            $columns,
            " FROM (SELECT l.*, row_number() OVER place AS place, sum(l.bytes) OVER place AS total \
             FROM (SELECT ",
            $columns,
            ", ",
            $size,
            " AS bytes FROM @.",
            $table,
            " AS t WHERE (",
            $order,
            ") > (",
            $after,
            ") AND EXISTS (SELECT 1 FROM @.instances AS i WHERE i.key = t.key) ORDER BY ",
            $order,
            " LIMIT ",
            $rows,
            ") AS l WINDOW place AS (ORDER BY ",
            $order,
            " ROWS UNBOUNDED PRECEDING)) AS p WHERE place = 1 OR total <= ",
            $bytes,
            " ORDER BY ",
            $order
        )
    };
}

const INSTANCES: &str =
    concat!("SELECT ", instance_columns!(), " FROM @.instances WHERE key > $1 ORDER BY key LIMIT $2");
const TURNS: &str = sized!(
    turn_columns!(),
    "turns",
    "octet_length(body)",
    "key, execution, number",
    "$1, $2, $3",
    "$4",
    "$5"
);
const MESSAGES: &str =
    sized!(message_columns!(), "inbox", "octet_length(body)", "shard, number", "$1, $2", "$3", "$4");
const TASKS: &str = sized!(
    task_columns!(),
    "tasks",
    "coalesce(octet_length(work), 0) + coalesce(octet_length(details), 0)",
    "key, execution, event",
    "$1, $2, $3",
    "$4",
    "$5"
);
const CONTINUATIONS: &str = "SELECT key, execution, at_ms FROM @.continuations AS t WHERE (key, execution) > ($1, $2) \
     AND EXISTS (SELECT 1 FROM @.instances AS i WHERE i.key = t.key) ORDER BY key, execution LIMIT $3";
const SHARDS: &str =
    concat!("SELECT ", shard_columns!(), " FROM @.shards WHERE shard > $1 ORDER BY shard LIMIT $2");
const SETTINGS: &str = "SELECT name, value FROM @.settings WHERE ($1::text IS NULL OR name > $1) AND name <> $2 \
     ORDER BY name LIMIT $3";
pub(crate) const LAST_MESSAGE: &str =
    "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM @.inbox_numbers";

pub(crate) async fn export(
    inner: &Inner,
    table: MovedTable,
    after: Option<MovedKey>,
    limit: PageLimit,
) -> Result<Vec<MovedRow>, StoreError> {
    if after == Some(MovedKey::LastMessage) {
        return Ok(Vec::new());
    }
    // The server limits the bytes of the bodies only; `PageFill` counts whole rows.
    let (rows, bytes) = (bound(limit.rows.max(1) as u64), bound(limit.bytes));
    let (count, size): (Argument<'_>, Argument<'_>) = ((&rows, Type::INT8), (&bytes, Type::INT8));
    // Sorts before every row.
    let (mut key, mut numbers, mut shard, mut name) = (Uuid::nil(), [-1_i64; 2], -1_i16, None);
    match &after {
        Some(MovedKey::Instance(after)) => key = uuid(*after),
        Some(MovedKey::Turn(after, execution, turn)) => {
            (key, numbers) = (uuid(*after), [bound(*execution), bound(*turn)]);
        }
        Some(MovedKey::Task(id)) => {
            (key, numbers) = (uuid(id.key), [bound(id.execution), bound(id.event.0)]);
        }
        Some(MovedKey::Continuation(after, execution)) => {
            (key, numbers) = (uuid(*after), [bound(*execution), -1]);
        }
        Some(MovedKey::Message(of, number, _)) => {
            (shard, numbers) = (i16::from(of.0), [bound(*number), -1]);
        }
        Some(MovedKey::Shard(after)) => shard = i16::from(after.0),
        Some(MovedKey::Setting(after)) => name = Some(after.as_str()),
        Some(MovedKey::LastMessage) | None => {}
    }
    let (key, shard): (Argument<'_>, Argument<'_>) = ((&key, Type::UUID), (&shard, Type::INT2));
    let [first, second]: [Argument<'_>; 2] = [(&numbers[0], Type::INT8), (&numbers[1], Type::INT8)];
    let private = MoveMark::SETTING;
    let (sql, arguments): (_, Vec<Argument<'_>>) = match table {
        MovedTable::Instances => (INSTANCES, vec![key, count]),
        MovedTable::Turns => (TURNS, vec![key, first, second, count, size]),
        MovedTable::Messages => (MESSAGES, vec![shard, first, count, size]),
        MovedTable::Tasks => (TASKS, vec![key, first, second, count, size]),
        MovedTable::Continuations => (CONTINUATIONS, vec![key, first, count]),
        MovedTable::Shards => (SHARDS, vec![shard, (&ALL_SHARDS, Type::INT8)]),
        MovedTable::Settings => (SETTINGS, vec![(&name, Type::TEXT), (&private, Type::TEXT), count]),
        MovedTable::Counters => (LAST_MESSAGE, Vec::new()),
    };
    let rows = inner.query(sql, &arguments, Access::Reads).await?;
    let mut fill = PageFill::new(limit);
    let mut page = Vec::with_capacity(rows.len());
    for row in &rows {
        let row = read(table, row)?;
        if matches!(&row, MovedRow::Shard(shard) if shard.is_untouched()) {
            continue;
        }
        if !fill.admits(row.weight()) {
            break;
        }
        page.push(row);
    }
    Ok(page)
}

/// Shards with nothing to export are filtered out after reading. All shards are read at once, so that a page is empty
/// only at the end.
static ALL_SHARDS: i64 = 256;

/// Decodes a row whose columns are those of its table, in the order above.
pub(crate) fn read(table: MovedTable, row: &Row) -> Result<MovedRow, StoreError> {
    Ok(match table {
        MovedTable::Instances => MovedRow::Instance(Box::new(read_instance(row, 0)?)),
        MovedTable::Turns => MovedRow::Turn(
            read_key(row, 0)?,
            TurnRow {
                execution: read_number(row, 1)?,
                number: read_number(row, 2)?,
                checksum: column::<i32>(row, 3)?.cast_unsigned(),
                bytes: read_bytes(row, 4)?,
            },
        ),
        MovedTable::Messages => MovedRow::Message(MovedMessage {
            row: InboxRow {
                shard: read_shard(row, 0)?,
                number: read_number(row, 1)?,
                key: read_key(row, 2)?,
                arrived_ms: read_number(row, 3)?,
                urgent: column(row, 5)?,
                body: read_bytes(row, 7)?,
            },
            parked: column(row, 4)?,
            dedupe: column(row, 6)?,
        }),
        MovedTable::Tasks => MovedRow::Task(Box::new(tasks::read(row)?)),
        MovedTable::Continuations => {
            MovedRow::Continuation(read_key(row, 0)?, read_number(row, 1)?, read_number(row, 2)?)
        }
        MovedTable::Shards => MovedRow::Shard(MovedShard {
            shard: read_shard(row, 0)?,
            unclean_ends: u32::try_from(read_number(row, 1)?).unwrap_or(u32::MAX),
            note: column::<Option<&[u8]>>(row, 2)?.map(Into::into),
            gaps: read_gaps(row, 3)?,
            idle_since_ms: read_maybe_number(row, 4)?,
        }),
        MovedTable::Settings => MovedRow::Setting(column(row, 0)?, read_bytes(row, 1)?),
        MovedTable::Counters => MovedRow::LastMessage(read_number(row, 0)?),
    })
}
