//! Tasks: activities that any node may run under a lease.

use std::sync::Arc;

use perennial_core::history::EventId;
use perennial_core::store::{
    Changes, Evidence, Served, SessionId, StoreError, TaskId, TaskRenewal, TaskReport, TaskRow, TaskState,
};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::connection::Argument;
use crate::failure::Access;
use crate::row::{
    bound, column, exact, read_json, read_key, read_maybe_number, read_number, read_payload, read_shard,
    storable, uuid,
};
use crate::sessions::session_uuid;
use crate::store::Inner;

/// The columns that [`read`] expects, in its order. A newer schema may have more.
macro_rules! task_columns {
    () => {
        "key, execution, event, shard, state, holder, cancelled, attempt, due_ms, since_ms, heard_ms, interruptions, begun, \
         name, tag, details, past, work"
    };
}

pub(crate) use task_columns;

const TAKE: &str = concat!(
    "SELECT ",
    task_columns!(),
    " FROM @.take_tasks($1, $2, $3, $4, $5, $6, $7) ORDER BY key, execution, event"
);
const HELD: &str = concat!(
    "SELECT ",
    task_columns!(),
    " FROM @.tasks WHERE state = 1 AND holder = $1 ORDER BY key, execution, event"
);
const RENEW: &str = "SELECT @.renew_tasks($1, $2, $3, $4, $5, $6, $7, $8)";
const FINISH: &str = "SELECT * FROM @.finish_task($1, $2, $3, $4, $5, $6, $7)";
const GIVE_BACK: &str = "SELECT * FROM @.give_back_tasks($1, $2, $3, $4, $5)";
/// The tasks of the current executions of some instances, in no order.
pub(crate) const OF_EXECUTIONS: &str = concat!(
    "SELECT ",
    task_columns!(),
    " FROM @.tasks AS t WHERE key = ANY ($1) \
     AND execution = (SELECT i.execution FROM @.instances AS i WHERE i.key = t.key)"
);
/// Leaves out the columns that can be large.
const AFTER: &str = "SELECT key, execution, event, shard, state, holder, cancelled, attempt, due_ms, since_ms, heard_ms, \
     interruptions, begun, name, tag, NULL::text AS details, past, NULL::bytea AS work FROM @.tasks \
     WHERE (key, execution, event) > ($1, $2, $3) ORDER BY key, execution, event LIMIT $4";

pub(crate) async fn take(
    inner: &Inner,
    holder: SessionId,
    served: Served,
    limit: usize,
    lease_ms: u64,
) -> Result<Vec<TaskRow>, StoreError> {
    // No task can have a name or tag that cannot be stored.
    let texts = |texts: &std::collections::BTreeSet<String>| -> Vec<String> {
        texts.iter().filter(|text| storable(text).is_ok()).cloned().collect()
    };
    let (names, prefixes, tags) = (texts(&served.names), texts(&served.prefixes), texts(&served.tags));
    let (holder, limit, lease) = (session_uuid(holder), bound(limit as u64), bound(lease_ms));
    let at = inner.at();
    let arguments: [Argument<'_>; 7] = [
        (&holder, Type::UUID),
        (&names, Type::TEXT_ARRAY),
        (&prefixes, Type::TEXT_ARRAY),
        (&tags, Type::TEXT_ARRAY),
        (&limit, Type::INT8),
        (&lease, Type::INT8),
        (&at, Type::INT8),
    ];
    let rows = inner.query(TAKE, &arguments, Access::Writes).await?;
    rows.iter().map(read).collect()
}

pub(crate) async fn held(inner: &Inner, holder: SessionId) -> Result<Vec<TaskRow>, StoreError> {
    let holder = session_uuid(holder);
    let rows = inner.query(HELD, &[(&holder, Type::UUID)], Access::Reads).await?;
    rows.iter().map(read).collect()
}

pub(crate) async fn renew(
    inner: &Inner,
    holder: SessionId,
    reports: Vec<TaskReport>,
    lease_ms: u64,
) -> Result<Vec<TaskRenewal>, StoreError> {
    // All transactions lock several tasks in this order, to avoid deadlocks.
    let mut order: Vec<usize> = (0..reports.len()).collect();
    order.sort_by_key(|place| reports[*place].task);
    let sorted = || order.iter().map(|place| &reports[*place]);
    let places = Places::of(sorted().map(|report| report.task));
    let details: Vec<Option<&str>> =
        sorted().map(|report| report.details.as_ref().map(|details| details.as_json())).collect();
    let evidence: Vec<i16> = sorted()
        .map(|report| match report.evidence {
            None => 0,
            Some(Evidence::Begins) => 1,
            Some(Evidence::Healthy) => 2,
        })
        .collect();
    let (holder, lease, at) = (session_uuid(holder), bound(lease_ms), inner.at());
    let arguments: [Argument<'_>; 8] = [
        (&holder, Type::UUID),
        (&places.keys, Type::UUID_ARRAY),
        (&places.executions, Type::INT8_ARRAY),
        (&places.events, Type::INT8_ARRAY),
        (&details, Type::TEXT_ARRAY),
        (&evidence, Type::INT2_ARRAY),
        (&lease, Type::INT8),
        (&at, Type::INT8),
    ];
    let rows = inner.query(RENEW, &arguments, Access::Writes).await?;
    let codes: Vec<i16> = column(inner.one(&rows)?, 0)?;
    let mut renewals = vec![TaskRenewal::Gone; reports.len()];
    for (place, code) in order.into_iter().zip(codes) {
        renewals[place] = match code {
            0 => TaskRenewal::Kept,
            1 => TaskRenewal::Cancelled,
            _ => TaskRenewal::Gone,
        };
    }
    Ok(renewals)
}

pub(crate) async fn finish(
    inner: &Inner,
    holder: SessionId,
    task: TaskId,
    attempt: u32,
    body: Arc<[u8]>,
) -> Result<bool, StoreError> {
    let (Ok(execution), Ok(event)) = (exact(task.execution), exact(task.event.0)) else { return Ok(false) };
    let (holder, key, attempt, at) = (session_uuid(holder), uuid(task.key), i64::from(attempt), inner.at());
    let arguments: [Argument<'_>; 7] = [
        (&holder, Type::UUID),
        (&key, Type::UUID),
        (&execution, Type::INT8),
        (&event, Type::INT8),
        (&attempt, Type::INT8),
        (&&body[..], Type::BYTEA),
        (&at, Type::INT8),
    ];
    let rows = inner.query(FINISH, &arguments, Access::Writes).await?;
    let row = inner.one(&rows)?;
    if column::<Option<i16>>(row, 1)?.is_some() {
        let mut changes = Changes::default();
        changes.inbox.insert(read_shard(row, 1)?);
        inner.hints.notify(&changes);
    }
    column(row, 0)
}

pub(crate) async fn give_back(
    inner: &Inner,
    holder: SessionId,
    tasks: Vec<TaskId>,
) -> Result<(), StoreError> {
    let mut tasks = tasks;
    tasks.sort_unstable();
    let places = Places::of(tasks.into_iter());
    let (holder, at) = (session_uuid(holder), inner.at());
    let arguments: [Argument<'_>; 5] = [
        (&holder, Type::UUID),
        (&places.keys, Type::UUID_ARRAY),
        (&places.executions, Type::INT8_ARRAY),
        (&places.events, Type::INT8_ARRAY),
        (&at, Type::INT8),
    ];
    let rows = inner.query(GIVE_BACK, &arguments, Access::Writes).await?;
    let mut changes = Changes::default();
    for row in &rows {
        changes.tasks.insert(read_shard(row, 0)?);
    }
    inner.hints.notify(&changes);
    Ok(())
}

pub(crate) async fn list(
    inner: &Inner,
    after: Option<TaskId>,
    limit: usize,
) -> Result<Vec<TaskRow>, StoreError> {
    // Sorts before every task.
    let (key, execution, event) = after
        .map_or((Uuid::nil(), -1, -1), |task| (uuid(task.key), bound(task.execution), bound(task.event.0)));
    let limit = bound(limit.max(1) as u64);
    let arguments: [Argument<'_>; 4] =
        [(&key, Type::UUID), (&execution, Type::INT8), (&event, Type::INT8), (&limit, Type::INT8)];
    let rows = inner.query(AFTER, &arguments, Access::Reads).await?;
    // Damaged rows are skipped here; loading their instance reports them.
    Ok(rows.iter().filter_map(|row| read(row).ok()).collect())
}

/// Ids of tasks, transposed to columns. Ids that cannot be stored are left out, since no row can have them.
#[derive(Default)]
struct Places {
    keys: Vec<Uuid>,
    executions: Vec<i64>,
    events: Vec<i64>,
}

impl Places {
    fn of(tasks: impl Iterator<Item = TaskId>) -> Places {
        let mut places = Places::default();
        for task in tasks {
            places.keys.push(uuid(task.key));
            places.executions.push(exact(task.execution).unwrap_or(-1));
            places.events.push(exact(task.event.0).unwrap_or(-1));
        }
        places
    }
}

/// Decodes a row with all columns, in the order of `task_columns!`.
pub(crate) fn read(row: &Row) -> Result<TaskRow, StoreError> {
    let small = |place| -> Result<u32, StoreError> {
        Ok(u32::try_from(read_number(row, place)?).unwrap_or(u32::MAX))
    };
    let session = |place| -> Result<Option<SessionId>, StoreError> {
        Ok(column::<Option<Uuid>>(row, place)?.map(|id| SessionId(id.as_u128())))
    };
    let state = match (column::<i16>(row, 4)?, session(5)?) {
        (0, _) => TaskState::Queued,
        (1, Some(holder)) => TaskState::Leased { holder, cancelled: column(row, 6)? },
        (2, _) => TaskState::Waiting,
        (other, _) => return Err(StoreError::CorruptRow(format!("{other} is not a state of a task"))),
    };
    Ok(TaskRow {
        id: TaskId {
            key: read_key(row, 0)?,
            execution: read_number(row, 1)?,
            event: EventId(read_number(row, 2)?),
        },
        shard: read_shard(row, 3)?,
        attempt: small(7)?,
        state,
        due_ms: read_maybe_number(row, 8)?,
        since_ms: read_maybe_number(row, 9)?,
        heard_ms: read_maybe_number(row, 10)?,
        interruptions: small(11)?,
        begun: session(12)?,
        name: column(row, 13)?,
        tag: column(row, 14)?,
        details: read_payload(row, 15)?,
        past: read_json(row, 16)?.unwrap_or_default(),
        work: column::<Option<&[u8]>>(row, 17)?.map(Arc::from),
    })
}
