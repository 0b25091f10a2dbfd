//! Row counts and scheduling lag. Every count uses an index and stops at a bound, so that the cost does not depend on
//! the size of the store.

use perennial_core::store::{Count, Status, StoreError, StoreStats};
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
