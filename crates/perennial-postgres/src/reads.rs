//! Reads of instances: rows by id, everything that an owner loads, and turns. Calls that wait share statements: an owner
//! loads many instances after others have started them, and callers wait for many that others run.

use std::collections::HashMap;

use perennial_core::InstanceKey;
use perennial_core::store::{InstanceRow, LoadedInstance, PageLimit, StoreError, TurnRow};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::connection::Argument;
use crate::failure::{Access, classify};
use crate::gather::{Bounds, Gather, Size};
use crate::passes::{page, rows_of};
use crate::row::{
    bound, column, instance_columns, read_bytes, read_instance, read_key, read_number, shown, storable, uuid,
};
use crate::store::Inner;
use crate::tasks;

const BY_ID: &str = concat!("SELECT ", instance_columns!(), " FROM @.instances WHERE id = ANY ($1)");
const BY_KEY: &str = concat!("SELECT ", instance_columns!(), " FROM @.instances WHERE key = ANY ($1)");
/// Turns of a deleted instance that have not been swept are not returned. A page has at least one turn.
const TURNS: &str = "SELECT w.place, t.number, t.checksum, t.body \
     FROM unnest($1, $2, $3, $4, $5) WITH ORDINALITY AS w (key, execution, after, rows, bytes, place), LATERAL ( \
         SELECT l.number, l.checksum, l.body, row_number() OVER place AS place, \
             sum(octet_length(l.body)) OVER place AS bytes \
         FROM (SELECT number, checksum, body FROM @.turns AS u \
               WHERE u.key = w.key AND u.execution = w.execution AND u.number > w.after \
               AND NOT EXISTS (SELECT 1 FROM @.graves AS g WHERE g.key = w.key) ORDER BY number LIMIT w.rows) AS l \
         WINDOW place AS (ORDER BY l.number ROWS UNBOUNDED PRECEDING) \
     ) AS t WHERE t.place = 1 OR t.bytes <= w.bytes";
const ALL_TURNS: &str = "SELECT w.key, t.number, t.checksum, t.body FROM unnest($1, $2) AS w (key, after), LATERAL ( \
         SELECT u.number, u.checksum, u.body FROM @.turns AS u WHERE u.key = w.key \
         AND u.execution = (SELECT i.execution FROM @.instances AS i WHERE i.key = w.key) AND u.number > w.after OFFSET 0 \
     ) AS t";
/// Returns messages as `read_inbox` does.
const MESSAGES: &str = "SELECT m.* FROM unnest($1, $2, $3) AS w (key, rows, bytes), LATERAL ( \
         WITH sized AS ( \
             SELECT b.number, b.key, b.shard, b.arrived_ms, b.urgent, b.body, row_number() OVER place AS place, \
                 sum(octet_length(b.body)) OVER place AS bytes \
             FROM (SELECT * FROM @.inbox AS i WHERE i.key = w.key ORDER BY i.number LIMIT w.rows) AS b \
             WINDOW place AS (ORDER BY b.number ROWS UNBOUNDED PRECEDING) \
         ), fitting AS (SELECT s.*, s.place = 1 OR (s.place < w.rows AND s.bytes <= w.bytes) AS fits FROM sized AS s) \
         SELECT f.number, f.key, f.shard, f.arrived_ms, f.urgent, CASE WHEN f.fits THEN f.body END FROM fitting AS f \
         WHERE f.fits OR f.place = (SELECT min(n.place) FROM fitting AS n WHERE NOT n.fits) \
     ) AS m";

/// What one statement reads at most. The rest of a large read is in the limits of each item.
const ROWS: Bounds = Bounds { turns: 1, rows: 500, bytes: u64::MAX };
const WHOLE: Bounds = Bounds { turns: 2, rows: 64, bytes: u64::MAX };
const ONE: Size = Size { rows: 1, bytes: 0 };

/// Reads that wait for the ones in progress.
pub(crate) struct Reads {
    finds: Gather<String, Option<InstanceRow>>,
    loads: Gather<Load, Option<LoadedInstance>>,
    turns: Gather<Turns, Vec<TurnRow>>,
}

impl Default for Reads {
    fn default() -> Reads {
        Reads { finds: Gather::new(ROWS), loads: Gather::new(WHOLE), turns: Gather::new(WHOLE) }
    }
}

struct Load {
    key: InstanceKey,
    after_turn: u64,
    inbox: PageLimit,
}

struct Turns {
    key: InstanceKey,
    execution: u64,
    after_turn: u64,
    limit: PageLimit,
}

pub(crate) async fn find(inner: &Inner, id: String) -> Result<Option<InstanceRow>, StoreError> {
    // No instance can have an id that cannot be stored.
    if storable(&id).is_err() {
        return Ok(None);
    }
    inner.reads.finds.call(id, ONE, |ids| find_all(inner, ids)).await
}

async fn find_all(inner: &Inner, ids: Vec<String>) -> Vec<Result<Option<InstanceRow>, StoreError>> {
    let rows = match inner.query(BY_ID, &[(&ids, Type::TEXT_ARRAY)], Access::Reads).await {
        Ok(rows) => rows,
        Err(error) => return ids.iter().map(|_| Err(error.clone())).collect(),
    };
    let mut found: HashMap<&str, &Row> = HashMap::new();
    found.extend(rows.iter().filter_map(|row| Some((row.try_get(1).ok()?, row))));
    // A damaged instance is returned as blocked, so that it can be inspected and terminated.
    ids.iter().map(|id| found.get(&**id).map(|row| shown(row, 0)).transpose()).collect()
}

/// The row of the instance with a key, if it is stored.
pub(crate) async fn by_key(inner: &Inner, key: Uuid) -> Result<Option<Row>, StoreError> {
    let rows = inner.query(BY_KEY, &[(&vec![key], Type::UUID_ARRAY)], Access::Reads).await?;
    Ok(rows.into_iter().next())
}

pub(crate) async fn load(
    inner: &Inner,
    key: InstanceKey,
    after_turn: u64,
    inbox: PageLimit,
) -> Result<Option<LoadedInstance>, StoreError> {
    let wanted = Load { key, after_turn, inbox };
    inner.reads.loads.call(wanted, ONE, |wanted| load_all(inner, wanted)).await
}

async fn load_all(inner: &Inner, wanted: Vec<Load>) -> Vec<Result<Option<LoadedInstance>, StoreError>> {
    match load_rows(inner, &wanted).await {
        Ok(mut rows) => wanted.iter().map(|load| rows.take(load)).collect(),
        Err(error) => wanted.iter().map(|_| Err(error.clone())).collect(),
    }
}

/// The rows of several instances, by their keys.
struct LoadedRows {
    instances: HashMap<InstanceKey, Row>,
    turns: HashMap<InstanceKey, Vec<Row>>,
    messages: HashMap<InstanceKey, Vec<Row>>,
    tasks: HashMap<InstanceKey, Vec<Row>>,
}

async fn load_rows(inner: &Inner, wanted: &[Load]) -> Result<LoadedRows, StoreError> {
    let keys: Vec<Uuid> = wanted.iter().map(|load| uuid(load.key)).collect();
    let after: Vec<i64> = wanted.iter().map(|load| bound(load.after_turn)).collect();
    let rows: Vec<i64> = wanted.iter().map(|load| rows_of(load.inbox) + 1).collect();
    let bytes: Vec<i64> = wanted.iter().map(|load| bound(load.inbox.bytes)).collect();
    let of_keys: [Argument<'_>; 1] = [(&keys, Type::UUID_ARRAY)];
    let of_turns: [Argument<'_>; 2] = [(&keys, Type::UUID_ARRAY), (&after, Type::INT8_ARRAY)];
    let of_inbox: [Argument<'_>; 3] =
        [(&keys, Type::UUID_ARRAY), (&rows, Type::INT8_ARRAY), (&bytes, Type::INT8_ARRAY)];
    let queries = [
        (BY_KEY, &of_keys[..]),
        (ALL_TURNS, &of_turns),
        (MESSAGES, &of_inbox),
        (tasks::OF_EXECUTIONS, &of_keys),
    ];
    let read = {
        let mut connection = inner.pool.get().await?;
        connection.snapshot(queries).await
    };
    let [instances, turns, messages, tasks] =
        read.map_err(|error| classify(&error, Access::Reads).into_error())?;
    let instances = instances.into_iter().map(|row| Ok((read_key(&row, 0)?, row)));
    Ok(LoadedRows {
        instances: instances.collect::<Result<_, StoreError>>()?,
        turns: by_instance(turns, 0)?,
        messages: by_instance(messages, 1)?,
        tasks: by_instance(tasks, 0)?,
    })
}

/// Groups rows by the key in a column.
fn by_instance(rows: Vec<Row>, place: usize) -> Result<HashMap<InstanceKey, Vec<Row>>, StoreError> {
    let mut groups: HashMap<InstanceKey, Vec<Row>> = HashMap::new();
    for row in rows {
        groups.entry(read_key(&row, place)?).or_default().push(row);
    }
    Ok(groups)
}

impl LoadedRows {
    fn take(&mut self, load: &Load) -> Result<Option<LoadedInstance>, StoreError> {
        let Some(row) = self.instances.get(&load.key) else { return Ok(None) };
        let row = read_instance(row, 0)?;
        let turns = self.turns.get(&load.key).map_or(&[][..], Vec::as_slice);
        let mut turns: Vec<TurnRow> =
            turns.iter().map(|turn| read_turn(turn, row.execution)).collect::<Result<_, _>>()?;
        turns.sort_by_key(|turn| turn.number);
        let mut messages: Vec<(i64, &Row)> = Vec::new();
        for message in self.messages.get(&load.key).into_iter().flatten() {
            messages.push((column(message, 0)?, message));
        }
        messages.sort_by_key(|(number, _)| *number);
        let inbox = page(messages.into_iter().map(|(_, message)| message), 0)?;
        let tasks = self.tasks.get(&load.key).into_iter().flatten();
        let mut tasks: Vec<_> = tasks.map(tasks::read).collect::<Result<_, _>>()?;
        tasks.sort_by_key(|task| task.id);
        Ok(Some(LoadedInstance { row, turns, inbox, tasks }))
    }
}

pub(crate) async fn turns(
    inner: &Inner,
    key: InstanceKey,
    execution: u64,
    after_turn: u64,
    limit: PageLimit,
) -> Result<Vec<TurnRow>, StoreError> {
    let wanted = Turns { key, execution, after_turn, limit };
    inner.reads.turns.call(wanted, ONE, |wanted| read_all_turns(inner, wanted)).await
}

async fn read_all_turns(inner: &Inner, wanted: Vec<Turns>) -> Vec<Result<Vec<TurnRow>, StoreError>> {
    let keys: Vec<Uuid> = wanted.iter().map(|turns| uuid(turns.key)).collect();
    let executions: Vec<i64> = wanted.iter().map(|turns| bound(turns.execution)).collect();
    let after: Vec<i64> = wanted.iter().map(|turns| bound(turns.after_turn)).collect();
    let limits: Vec<i64> = wanted.iter().map(|turns| rows_of(turns.limit)).collect();
    let bytes: Vec<i64> = wanted.iter().map(|turns| bound(turns.limit.bytes)).collect();
    let arguments: [Argument<'_>; 5] = [
        (&keys, Type::UUID_ARRAY),
        (&executions, Type::INT8_ARRAY),
        (&after, Type::INT8_ARRAY),
        (&limits, Type::INT8_ARRAY),
        (&bytes, Type::INT8_ARRAY),
    ];
    let rows = match inner.query(TURNS, &arguments, Access::Reads).await {
        Ok(rows) => rows,
        Err(error) => return wanted.iter().map(|_| Err(error.clone())).collect(),
    };
    let mut outcomes: Vec<Result<Vec<TurnRow>, StoreError>> = wanted.iter().map(|_| Ok(Vec::new())).collect();
    for row in &rows {
        let place = row.try_get::<_, i64>(0).ok().and_then(|place| usize::try_from(place - 1).ok());
        let Some((wanted, outcome)) =
            place.and_then(|place| Some((wanted.get(place)?, outcomes.get_mut(place)?)))
        else {
            continue;
        };
        match (read_turn(row, wanted.execution), &mut *outcome) {
            (Ok(turn), Ok(turns)) => turns.push(turn),
            (Err(error), _) => *outcome = Err(error),
            (Ok(_), Err(_)) => {}
        }
    }
    outcomes.iter_mut().flatten().for_each(|turns| turns.sort_by_key(|turn| turn.number));
    outcomes
}

/// Reads a turn, whose columns follow what tells the instance.
fn read_turn(row: &Row, execution: u64) -> Result<TurnRow, StoreError> {
    let checksum: i32 = column(row, 2)?;
    Ok(TurnRow {
        execution,
        number: read_number(row, 1)?,
        bytes: read_bytes(row, 3)?,
        checksum: checksum.cast_unsigned(),
    })
}
