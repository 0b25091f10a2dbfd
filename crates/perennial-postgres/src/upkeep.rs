//! Deletes instances, and rows that are no longer needed.

use perennial_core::store::{DeleteOutcome, SessionId, StoreError, Swept};
use perennial_core::{InstanceKey, ShardId};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::connection::Argument;
use crate::failure::Access;
use crate::reads;
use crate::row::{bound, column, read_instance, read_number, uuid};
use crate::sessions::session_uuid;
use crate::store::Inner;

const DELETE: &str = "SELECT @.delete_instances($1, $2)";
const PRUNE: &str = "SELECT * FROM @.prune_executions($1, $2, $3, $4, $5)";
const SWEEP: &str = "SELECT * FROM @.sweep($1, $2, $3)";

pub(crate) async fn delete(
    inner: &Inner,
    instances: Vec<(ShardId, InstanceKey)>,
) -> Result<Vec<DeleteOutcome>, StoreError> {
    // Sorted, so that two transactions that delete the same instances lock them in the same order.
    let mut order: Vec<usize> = (0..instances.len()).collect();
    order.sort_by_key(|place| instances[*place].1);
    let keys: Vec<Uuid> = order.iter().map(|place| uuid(instances[*place].1)).collect();
    let codes = delete_keys(inner, &keys, false).await?;
    let mut outcomes = vec![DeleteOutcome::Gone; instances.len()];
    for ((place, code), key) in order.into_iter().zip(codes).zip(keys) {
        outcomes[place] = match code {
            0 => DeleteOutcome::Deleted,
            1 => delete_damaged(inner, key).await?,
            _ => DeleteOutcome::Gone,
        };
    }
    Ok(outcomes)
}

async fn delete_keys(inner: &Inner, keys: &[Uuid], force: bool) -> Result<Vec<i16>, StoreError> {
    let arguments: [Argument<'_>; 2] = [(&keys, Type::UUID_ARRAY), (&force, Type::BOOL)];
    let rows = inner.query(DELETE, &arguments, Access::Writes).await?;
    column(inner.one(&rows)?, 0)
}

/// Deletes an instance that has not ended if its row is damaged, because no node can run it.
async fn delete_damaged(inner: &Inner, key: Uuid) -> Result<DeleteOutcome, StoreError> {
    let Some(row) = reads::by_key(inner, key).await? else { return Ok(DeleteOutcome::Gone) };
    if read_instance(&row, 0).is_ok_and(|row| row.is_sound()) {
        return Ok(DeleteOutcome::NotEnded);
    }
    let codes = delete_keys(inner, &[key], true).await?;
    Ok(if codes == [0] { DeleteOutcome::Deleted } else { DeleteOutcome::Gone })
}

pub(crate) async fn prune(
    inner: &Inner,
    session: SessionId,
    shard: ShardId,
    key: InstanceKey,
    execution: u64,
    rows: usize,
) -> Result<Swept, StoreError> {
    let (session, shard, key) = (session_uuid(session), i16::from(shard.0), uuid(key));
    let (execution, rows) = (bound(execution), bound(rows as u64));
    let arguments: [Argument<'_>; 5] = [
        (&session, Type::UUID),
        (&shard, Type::INT2),
        (&key, Type::UUID),
        (&execution, Type::INT8),
        (&rows, Type::INT8),
    ];
    let rows = inner.query(PRUNE, &arguments, Access::Writes).await?;
    swept(inner.one(&rows)?)
}

pub(crate) async fn sweep(
    inner: &Inner,
    rows: usize,
    keep_executions_ms: Option<u64>,
) -> Result<Swept, StoreError> {
    let (rows, keep, at) = (bound(rows as u64), keep_executions_ms.map(bound), inner.at());
    let arguments: [Argument<'_>; 3] = [(&rows, Type::INT8), (&keep, Type::INT8), (&at, Type::INT8)];
    let rows = inner.query(SWEEP, &arguments, Access::Writes).await?;
    swept(inner.one(&rows)?)
}

fn swept(row: &Row) -> Result<Swept, StoreError> {
    Ok(Swept { rows: read_number(row, 0)?, more: column(row, 1)? })
}
