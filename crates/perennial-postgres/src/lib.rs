//! The PostgreSQL store: any number of nodes share one database. All tables are in one schema, separate from other
//! tables of the database.
//!
//! - A batch of commits is one call of a function, in one round trip and one transaction. It locks its session's row. A
//!   node that takes over the session's shards either waits for the batch to commit, or ends the session first and the
//!   batch is fenced.
//! - All times come from the database server's clock.
//! - LISTEN and NOTIFY tell other processes that there is work for them. Where they do not work, for example behind a
//!   pooler, the store falls back to polling.
//! - [`open`] creates the schema if it does not exist, and migrates an older one to the current version.
//!
//! URLs have the format of libpq, `postgres://user:password@host:port/database`, with additional parameters:
//!
//! | parameter | meaning |
//! |---|---|
//! | `schema=orders` | the schema to use instead of `perennial` |
//! | `connections=20` | maximum number of connections; the default is 10 |
//! | `hints=off` | polls instead of using LISTEN and NOTIFY |
//! | `pooler=on` | keeps no state in a session; required behind poolers that share connections between transactions |
//! | `sslmode=verify-full` | `disable`, `prefer`, `require`, `verify-ca` or `verify-full`, as in libpq |
//! | `sslrootcert=ca.pem` | trusted root certificates, instead of the system's |
//!
//! Code map: `store` implements the store's interface. The calls are in `commit` (with `batch`, `waves`, `new_rows` and
//! `task_changes`), `send`, `sessions`, `passes`, `reads`, `tasks`, `requests`, `upkeep`, `list`, `stats` and `check`. `gather`
//! lets calls share a statement, `pool` and `connection` run statements on the server, `failure` classifies its errors, and
//! `hints` notifies other processes. `schema` and `migrations/` define the tables and functions.

mod arguments;
mod batch;
mod by_end;
mod check;
mod commit;
mod connection;
mod export;
mod failure;
mod gather;
mod hints;
mod import;
mod inspect;
mod list;
mod new_rows;
mod options;
mod passes;
mod plain_batch;
mod pool;
mod reads;
mod requests;
mod row;
mod schema;
mod send;
mod sessions;
mod stats;
mod store;
mod task_changes;
mod tasks;
mod tls;
mod upkeep;
mod waves;

pub use inspect::{Content, Inspection, inspect};
pub use options::{DEFAULT_SCHEMA, PostgresOptions};
pub use schema::delete_store;
pub use store::{PostgresStore, open};
