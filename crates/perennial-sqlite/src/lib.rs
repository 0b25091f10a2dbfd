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
//! `requests`, `delete`, `sessions` and `shards` as what it writes and `tables` as how; `attributes` is what attributes
//! are searched by; `reader`, `passes`, `list`, `stats` and `directory` answer questions; `open`, `schema` and `owner_lock` get a
//! file ready; `inspect` looks at one from outside.

mod attributes;
mod calls;
mod check;
mod checkpoint;
mod clock;
mod commit;
mod connection;
mod continuations;
mod delete;
mod directory;
mod failure;
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
