//! Rows of a great many instances, written by one statement for each table: starting them one by one would take minutes.

use perennial::Payload;
use perennial::history::{Ending, Event, EventId, EventKind, Started, Turn};
use perennial_core::history::{FORMAT, encode_turn};
use rusqlite::Connection;

use crate::Failure;

/// How long before now the first of the instances was started.
const SPAN_MS: u64 = 6 * 86_400_000;

/// Fills a SQLite file that no runtime has open: most instances have completed, one in 20 failed, and one in 100 runs
/// (and waits for an event that never comes).
pub(crate) fn fill(url: &str, instances: u64) -> Result<(), Failure> {
    let path = url.strip_prefix("sqlite:").ok_or("--instances needs a sqlite: store")?;
    let connection = Connection::open(path)?;
    let now_ms = crate::now_ms();
    let first_ms = now_ms - SPAN_MS;
    connection.execute_batch(&format!(
        "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -400000; BEGIN;
         WITH RECURSIVE n(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < {instances} - 1),
              made AS (SELECT n, {first_ms} + n * ({SPAN_MS} - 60000) / {instances} AS at_ms FROM n)
         INSERT INTO instances (key, id, shard, name, version, status, execution, owed, attributes, created_ms, ended_ms)
         SELECT unhex(printf('%012x7%03x8%015x', at_ms, 0, n)), printf('made-%07d', n), n % 256,
                CASE n % 3 WHEN 0 THEN 'hello' ELSE 'approval' END, '1.0.0',
                CASE WHEN n % 100 = 7 THEN 1 WHEN n % 20 = 3 THEN 3 ELSE 2 END, 1, 0,
                printf('{{\"region\":\"region-%d\"}}', n % 50), at_ms,
                CASE WHEN n % 100 = 7 THEN NULL ELSE at_ms + 1000 + n % 30000 END
         FROM made;
         INSERT INTO attributes (key, name, order_key)
         SELECT key, 'region', CAST('@' || json_extract(attributes, '$.region') AS BLOB)
         FROM instances WHERE id LIKE 'made-%';"
    ))?;
    for (condition, last) in [
        ("status = 1", None),
        ("status = 2", Some(Ending::OrchestrationCompleted { output: Payload::from("done") })),
        ("status = 3", Some(Ending::OrchestrationFailed { error: Payload::from("out of stock") })),
    ] {
        let started = Started::new("hello", "1.0.0", Payload::from("somebody"), 1);
        let kinds = [EventKind::Started(Box::new(started))].into_iter().chain(last.map(EventKind::Ended));
        let events = (1..).map(EventId).zip(kinds).map(|(id, kind)| Event { id, kind }).collect();
        let turn = Turn { format: FORMAT, number: 1, at_ms: first_ms, draws: 0, events };
        let insert = format!(
            "INSERT INTO turns (key, execution, number, body, checksum)
             SELECT key, 1, 1, ?1, 0 FROM instances WHERE id LIKE 'made-%' AND {condition}"
        );
        connection.execute(&insert, [encode_turn(&turn)])?;
    }
    connection.execute_batch("COMMIT; PRAGMA journal_mode = WAL")?;
    Ok(())
}
