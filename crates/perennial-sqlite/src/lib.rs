//! The embedded store: one SQLite file, owned by one runtime at a time.
//!
//! - An acknowledged write is synced: WAL with `synchronous=FULL`. The only exception is [`SqliteOptions::relaxed`].
//! - One thread writes. It commits all calls that have accumulated as one transaction, so that many turns share one
//!   sync. Other threads read, on their own connections.
//! - [`SqliteStore::open`] makes its caller the owner, guarded by a lock file next to the database.
//!   [`SqliteStore::open_guest`] lets other processes read and send messages meanwhile.
//!
//! Code map: `store` takes calls and queues them; `writer` is the thread that writes, with `commit`, `send`, `tasks`,
//! `requests`, `delete`, `sessions` and `shards` for what it writes and `tables` for its statements; `attributes` is
//! the search index of attributes; `reader`, `passes`, `list`, `stats` and `directory` serve reads; `open`, `schema`
//! and `owner_lock` prepare a file; `inspect` examines one from outside.

mod attributes;
mod by_end;
mod calls;
mod check;
mod checkpoint;
mod clock;
mod commit;
mod connection;
mod continuations;
mod delete;
mod directory;
mod export;
mod failure;
mod import;
mod inspect;
mod list;
mod log_watch;
mod open;
mod options;
mod orphans;
mod owner_lock;
mod passes;
#[cfg(test)]
mod plans;
mod queue;
mod read_queue;
mod reader;
mod recent;
mod requests;
mod row;
mod schema;
mod seal;
mod send;
mod sessions;
mod shards;
mod sources;
mod stats;
mod store;
mod tables;
mod tasks;
mod transaction;
mod unread;
mod watchers;
mod writer;

pub use inspect::{Content, Inspection, Owner, UnreadableMessage, inspect};
pub use options::SqliteOptions;
pub use store::SqliteStore;
