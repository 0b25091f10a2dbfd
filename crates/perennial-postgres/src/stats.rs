//! Row counts and scheduling lag. Every count uses an index and stops at a bound, so that the cost does not depend on
//! the size of the store.

use perennial_core::store::{Count, Status, StoreDetails, StoreError, StoreStats};
use tokio_postgres::types::Type;

use crate::connection::Argument;
use crate::failure::Access;
use crate::row::{bound, column, number, read_number};
use crate::store::Inner;

/// The counts in order, the clock, and the earliest due time of an instance that is not blocked.
const STATS: &str = "SELECT ARRAY[ \
     (SELECT count(*) FROM (SELECT 1 FROM @.instances WHERE status = 0 AND status <> 2 LIMIT $1) AS c), \
     (SELECT count(*) FROM (SELECT 1 FROM @.instances WHERE status = 1 AND status <> 2 LIMIT $1) AS c), \
     (SELECT count(*) FROM (SELECT 1 FROM @.instances WHERE status = 2 AND status >= 2 LIMIT $1) AS c), \
     (SELECT count(*) FROM (SELECT 1 FROM @.instances WHERE status = 3 AND status <> 2 LIMIT $1) AS c), \
     (SELECT count(*) FROM (SELECT 1 FROM @.instances WHERE status = 4 AND status <> 2 LIMIT $1) AS c), \
     (SELECT count(*) FROM (SELECT 1 FROM @.instances WHERE status = 5 AND status <> 2 LIMIT $1) AS c), \
     (SELECT count(*) FROM (SELECT 1 FROM @.instances WHERE blocked IS NOT NULL LIMIT $1) AS c), \
     (SELECT count(*) FROM (SELECT 1 FROM @.inbox WHERE shard >= 0 LIMIT $1) AS c), \
     (SELECT count(*) FROM (SELECT 1 FROM @.tasks WHERE state = 0 LIMIT $1) AS c), \
     (SELECT count(*) FROM (SELECT 1 FROM @.tasks WHERE state = 1 LIMIT $1) AS c), \
     (SELECT count(*) FROM (SELECT 1 FROM @.tasks WHERE state = 2 LIMIT $1) AS c), \
     (SELECT count(*) FROM (SELECT 1 FROM @.requests LIMIT $1) AS c)], \
     coalesce($2, @.now_ms()), \
     (SELECT min(d.wake_at_ms) FROM generate_series(0, 255) AS s (shard) CROSS JOIN LATERAL ( \
         SELECT i.wake_at_ms FROM @.instances AS i \
         WHERE i.shard = s.shard::smallint AND i.wake_at_ms IS NOT NULL AND i.status < 2 AND i.blocked IS NULL \
         ORDER BY i.shard, i.wake_at_ms, i.key LIMIT 1) AS d)";

/// The begins of what is stored of blocked instances.
const BLOCKED: &str = "SELECT left(blocked, $2) FROM @.instances WHERE blocked IS NOT NULL LIMIT $1";

/// The parts of a store.
const PARTS: [&str; 5] = ["instances", "turns", "inbox", "tasks", "other"];

/// The sizes of the parts in order, with their indexes.
const SIZES: &str = "SELECT ARRAY[ \
     pg_total_relation_size('@.instances'::regclass) + pg_total_relation_size('@.attributes'::regclass), \
     pg_total_relation_size('@.turns'::regclass), pg_total_relation_size('@.inbox'::regclass), \
     pg_total_relation_size('@.tasks'::regclass), \
     pg_total_relation_size('@.requests'::regclass) + pg_total_relation_size('@.replies'::regclass) \
     + pg_total_relation_size('@.sessions'::regclass) + pg_total_relation_size('@.shards'::regclass) \
     + pg_total_relation_size('@.settings'::regclass) + pg_total_relation_size('@.graves'::regclass) \
     + pg_total_relation_size('@.continuations'::regclass) + pg_total_relation_size('@.meta'::regclass)]";

pub(crate) async fn details(inner: &Inner) -> Result<StoreDetails, StoreError> {
    let (one_over, bytes) = (bound(Count::EXACT + 1), bound(StoreDetails::CODE_TEXT) as i32);
    let arguments: [Argument<'_>; 2] = [(&one_over, Type::INT8), (&bytes, Type::INT4)];
    let rows = inner.query(BLOCKED, &arguments, Access::Reads).await?;
    let begins = rows.iter().map(|row| column::<String>(row, 0)).collect::<Result<Vec<_>, _>>()?;
    let rows = inner.query(SIZES, &[], Access::Reads).await?;
    let sizes: Vec<i64> = column(inner.one(&rows)?, 0)?;
    let sizes = sizes.into_iter().map(number).collect::<Result<Vec<_>, _>>()?;
    Ok(StoreDetails {
        blocked: StoreDetails::count_blocked(begins.iter().map(String::as_str)),
        bytes: PARTS.into_iter().zip(sizes).collect(),
        earliest: earliest(inner).await?,
    })
}

/// The earliest due time of each shard.
const EARLIEST: &str = "SELECT s.shard, d.wake_at_ms FROM @.shards AS s CROSS JOIN LATERAL \
     (SELECT i.wake_at_ms FROM @.instances AS i WHERE i.shard = s.shard AND i.wake_at_ms IS NOT NULL AND i.status < 2 \
      AND i.blocked IS NULL ORDER BY i.wake_at_ms, i.key LIMIT 1) AS d";

async fn earliest(inner: &Inner) -> Result<Vec<(u8, u64)>, StoreError> {
    let rows = inner.query(EARLIEST, &[], Access::Reads).await?;
    let due = rows.iter().map(|row| {
        let shard: i16 = column(row, 0)?;
        Ok((u8::try_from(shard).unwrap_or_default(), read_number(row, 1)?))
    });
    Ok(StoreDetails::earliest_of(due.collect::<Result<Vec<_>, StoreError>>()?))
}

pub(crate) async fn stats(inner: &Inner) -> Result<StoreStats, StoreError> {
    let (one_over, at) = (bound(Count::EXACT + 1), inner.at());
    let arguments: [Argument<'_>; 2] = [(&one_over, Type::INT8), (&at, Type::INT8)];
    let rows = inner.query(STATS, &arguments, Access::Reads).await?;
    let row = inner.one(&rows)?;
    let counts: Vec<i64> = column(row, 0)?;
    let mut counts = counts.into_iter().map(number);
    let mut next = || -> Result<Count, StoreError> {
        let rows = counts.next().transpose()?.unwrap_or_default();
        Ok(Count::bounded(rows, Count::EXACT))
    };
    let mut instances = Vec::with_capacity(Status::ALL.len());
    for status in Status::ALL {
        instances.push((status, next()?));
    }
    let (now_ms, earliest_ms) = (read_number(row, 1)?, column::<Option<i64>>(row, 2)?);
    Ok(StoreStats {
        instances,
        blocked: next()?,
        inbox: next()?,
        tasks_queued: next()?,
        tasks_leased: next()?,
        tasks_waiting: next()?,
        requests: next()?,
        lag_ms: earliest_ms.map_or(0, |at_ms| now_ms.saturating_sub(at_ms.cast_unsigned())),
    })
}
