//! Activities share a pool of database connections, and write once even if they run twice.

use std::sync::{Mutex, PoisonError};

use perennial::prelude::*;
use rusqlite::Connection;

/// Stands in for the pool of a database driver.
struct Pool(Mutex<Vec<Connection>>);

impl Pool {
    fn with<T>(&self, f: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> rusqlite::Result<T> {
        let mut connections = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = connections.pop().ok_or(rusqlite::Error::InvalidQuery)?;
        let result = f(&connection);
        connections.push(connection);
        result
    }
}

/// Not async: it blocks its thread, so it runs on the pool of blocking threads. Its error type does not
/// implement serde, so the message is recorded.
#[activity(error = "message", state(Pool))]
fn book(ctx: ActivityContext, account: String, cents: i64) -> Result<i64, rusqlite::Error> {
    ctx.state::<Pool>().with(|database| {
        // The key is the same for every attempt of this activity, so a second attempt inserts nothing.
        let sql = "INSERT INTO bookings (key, account, cents) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";
        database.execute(sql, (ctx.idempotency_key(), &account, cents))?;
        let sql = "SELECT sum(cents) FROM bookings WHERE account = ?1";
        database.query_row(sql, [&account], |row| row.get(0))
    })
}

#[orchestration(uses(book))]
async fn save_up(ctx: OrchestrationContext, account: String) -> Result<i64, String> {
    let mut balance = 0;
    for cents in [500, 700, -200] {
        balance = ctx.schedule_activity(book, (account.clone(), cents)).await?;
    }
    Ok(balance)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let database = Connection::open_in_memory()?;
    database.execute("CREATE TABLE bookings (key TEXT PRIMARY KEY, account TEXT, cents INTEGER)", ())?;
    let pool = Pool(Mutex::new(vec![database]));

    // Without the pool, or without `book`, the runtime would not start, and the error would name what is
    // missing.
    let runtime = Runtime::open("memory:").register(save_up).register(book).state(pool).start().await?;
    let run = runtime.client().start(save_up, "savings-1", "ada".to_owned()).await?;
    println!("balance: {}", run.result().await?);
    runtime.shutdown().await?;
    Ok(())
}
