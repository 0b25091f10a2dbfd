//! The embedded store: one SQLite file, owned by one runtime at a time.
//!
//! - An acknowledged write is synced: WAL with `synchronous=FULL`. The explicit exception is
//!   [`SqliteOptions::relaxed`].
//! - One thread writes. It takes whatever has gathered as one transaction, so that many turns share one sync. Other
//!   threads read, on connections of their own.
//! - [`SqliteStore::open`] makes its caller the owner, guarded by a lock file beside the database.
//!   [`SqliteStore::open_guest`] lets other processes look and send meanwhile.
//!
//! Code map: `store` takes calls and queues them; `writer` is the thread that writes, with `commit`, `send`, `tasks`,
//! `asks`, `delete` and `sessions` as what it writes and `tables` as how; `attributes` is what attributes are searched
//! by; `reader`, `list` and `stats` answer questions; `open`, `schema` and `owner_lock` get a file ready;
//! `inspect` looks at one from outside.

mod asks;
mod attributes;
mod checkpoint;
mod commit;
mod connection;
mod delete;
mod failure;
mod inspect;
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
mod stats;
mod store;
mod tables;
mod tasks;
mod transaction;
mod unread;
mod watchers;
mod writer;

pub use inspect::{Content, Inspection, Owner, inspect};
pub use options::SqliteOptions;
pub use store::SqliteStore;
