//! The PostgreSQL store: any number of nodes over one database, in a schema of its own beside the tables of others.
//!
//! - A batch of commits is one call of a function of the schema, in one round trip and one transaction. It holds its
//!   session's row, so that whoever takes the session's shards over waits for the batch or beats it.
//! - Time is the database server's.
//! - Other processes are told by LISTEN and NOTIFY that something concerns them. Where that does not work, behind a pooler
//!   for example, everything works by polling.
//! - [`open`] makes the schema, whoever comes first, and brings an older one to the current version.
//!
//! URLs are those of libpq, `postgres://user:password@host:port/database`, with parameters of our own:
//!
//! | parameter | what it does |
//! |---|---|
//! | `schema=orders` | another schema than `perennial` |
//! | `connections=20` | how many connections are used at most, 10 unless told otherwise |
//! | `hints=off` | no LISTEN and NOTIFY |
//! | `pooler=on` | nothing is kept in a session: for poolers that share connections between transactions |
//! | `sslmode=verify-full` | `disable`, `prefer`, `require`, `verify-ca` or `verify-full`, as in libpq |
//! | `sslrootcert=ca.pem` | whom to trust, instead of the system's certificates |
//!
//! Code map: `store` takes calls. `commit` (with `batch`, `waves`, `new_rows` and `task_changes`), `send`, `sessions`, `passes`,
//! `tasks`, `requests`, `upkeep`, `list`, `stats` and `check` are what they do. `pool` and `connection` bring statements to the
//! server, `failure` says what its errors mean, `hints` talks to other processes; `schema` and `migrations/` are the tables and
//! functions.

mod arguments;
mod batch;
mod check;
mod commit;
mod connection;
mod export;
mod failure;
mod hints;
mod import;
mod inspect;
mod list;
mod new_rows;
mod options;
mod passes;
mod pool;
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
