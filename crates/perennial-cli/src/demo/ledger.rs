//! The external system of the demo: a table of effects.
//!
//! It plays the part of a bank or a warehouse. Like them, it recognizes a repeated request by its idempotency
//! key and applies it once. Two requests with different keys are applied twice, which the final count
//! reports.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, params};

const CREATE: &str = "CREATE TABLE IF NOT EXISTS ledger (
    idempotency_key TEXT PRIMARY KEY,
    instance TEXT NOT NULL,
    effect TEXT NOT NULL,
    requests INTEGER NOT NULL
) WITHOUT ROWID";

pub(crate) struct Ledger(Mutex<Connection>);

impl Ledger {
    pub(crate) fn open(path: &Path) -> rusqlite::Result<Ledger> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(Duration::from_secs(10))?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        // The demo kills processes, not the machine.
        connection.pragma_update(None, "synchronous", "off")?;
        connection.execute(CREATE, [])?;
        Ok(Ledger(Mutex::new(connection)))
    }

    /// Applies an effect once per key.
    pub(crate) fn apply(&self, key: &str, instance: &str, effect: &str) -> rusqlite::Result<()> {
        let connection = self.connection();
        let mut statement = connection.prepare_cached(
            "INSERT INTO ledger VALUES (?, ?, ?, 1) ON CONFLICT DO UPDATE SET requests = requests + 1",
        )?;
        statement.execute(params![key, instance, effect]).map(drop)
    }

    /// The number of orders with a duplicated effect.
    pub(crate) fn doubled(&self) -> rusqlite::Result<i64> {
        let orders = "SELECT count(DISTINCT CASE instr(instance, '::') WHEN 0 THEN instance
                ELSE substr(instance, 1, instr(instance, '::') - 1) END)
             FROM (SELECT instance FROM ledger GROUP BY instance, effect HAVING count(*) > 1)";
        self.connection().query_row(orders, [], |row| row.get(0))
    }

    /// The number of requests that were repeated and recognized by their key.
    pub(crate) fn repeated(&self) -> rusqlite::Result<i64> {
        self.connection().query_row("SELECT ifnull(sum(requests - 1), 0) FROM ledger", [], |row| row.get(0))
    }

    /// The number of times that an effect was applied for an order.
    pub(crate) fn done(&self, instance: &str, effect: &str) -> rusqlite::Result<i64> {
        let connection = self.connection();
        let mut statement =
            connection.prepare_cached("SELECT count(*) FROM ledger WHERE instance = ? AND effect = ?")?;
        statement.query_row(params![instance, effect], |row| row.get(0))
    }

    fn connection(&self) -> std::sync::MutexGuard<'_, Connection> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::Ledger;

    #[test]
    fn p8_a_repeated_request_counts_once_and_a_second_one_as_doubled() {
        let directory = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(&directory.path().join("ledger.db")).unwrap();
        ledger.apply("a/1/2", "order-1", "charge").unwrap();
        ledger.apply("a/1/2", "order-1", "charge").unwrap();
        ledger.apply("b/1/2", "order-1::1.9", "pack 1").unwrap();
        assert_eq!((ledger.repeated().unwrap(), ledger.doubled().unwrap()), (1, 0));
        ledger.apply("a/1/5", "order-1", "charge").unwrap();
        ledger.apply("b/1/3", "order-1::1.9", "pack 1").unwrap();
        assert_eq!((ledger.repeated().unwrap(), ledger.doubled().unwrap()), (1, 1));
        assert_eq!(ledger.done("order-1", "charge").unwrap(), 2);
    }
}
