//! The embedded store: one SQLite file, owned by one runtime at a time.
//!
//! - An acknowledged write is synced: WAL with `synchronous=FULL`. The explicit exception is
//!   [`SqliteOptions::relaxed`].
//! - One thread writes. It takes whatever has gathered as one transaction, so that many turns share one sync. Other
//!   threads read, on connections of their own.
//! - [`SqliteStore::open`] makes its caller the owner, guarded by a lock file beside the database.
//!   [`SqliteStore::open_guest`] lets other processes look and send meanwhile.
//!
//! Code map: `store` takes calls and queues them; `writer` is the thread that writes, with `commit`, `send` and
//! `sessions` as what it writes and `tables` as how; `reader` and `list` answer questions; `open`,
//! `schema` and `owner_lock` get a file ready.

mod checkpoint;
mod commit;
mod connection;
mod failure;
mod list;
mod log_watch;
mod open;
mod options;
mod owner_lock;
#[cfg(test)]
mod plans;
mod queue;
mod read_queue;
mod reader;
mod request;
mod row;
mod schema;
mod send;
mod sessions;
mod store;
mod tables;
mod transaction;
mod unread;
mod watchers;
mod writer;

pub use options::SqliteOptions;
pub use store::SqliteStore;
