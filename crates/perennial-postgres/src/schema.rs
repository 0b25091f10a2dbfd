//! The schema and its versions.
//!
//! The first process that opens a store creates the tables, in one transaction under an advisory lock; concurrent
//! processes wait for it. A schema that a newer version created is refused, unless it declares that this version can
//! use it.
//!
//! Statements here are not prepared: the server may be behind a pooler that assigns connections per transaction.

use std::sync::Arc;

use perennial_core::log;
use perennial_core::store::StoreError;
use tokio_postgres::Client;
use tokio_postgres::error::{Error, SqlState};
use tokio_postgres::types::Type;

use crate::connection::Connection;
use crate::failure::with_pooler_hint;
use crate::options::{PostgresOptions, Target, describe};

/// The version that this build creates and supports.
pub(crate) const VERSION: i32 = 1;

const MIGRATIONS: [&[&str]; 1] = [&[
    include_str!("migrations/1_tables.sql"),
    include_str!("migrations/1_ownership.sql"),
    include_str!("migrations/1_delete.sql"),
    include_str!("migrations/1_messages.sql"),
    include_str!("migrations/1_tasks.sql"),
    include_str!("migrations/1_commit.sql"),
]];

/// PostgreSQL 14.
const OLDEST_SERVER: i32 = 140_000;

/// Creates or migrates the schema if necessary.
pub(crate) async fn prepare(connection: &mut Connection, target: &Target) -> Result<(), StoreError> {
    let explained = |error: Error| explain(target, &error);
    let client = connection.client();
    check_server(client, target).await?;
    if is_current(client, target).await? {
        return Ok(());
    }
    if !target.options.create {
        let problem = "there is no store in it yet, or an older one; a runtime creates it when it starts";
        return Err(cannot(target, problem));
    }
    let transaction = client.transaction().await.map_err(explained)?;
    let lock = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))";
    let name = format!("perennial schema {}", target.options.schema);
    transaction.client().query_typed(lock, &[(&name, Type::TEXT)]).await.map_err(explained)?;
    let stored = version(transaction.client(), target).await?;
    let next = stored.map_or(0, |stored| stored.version);
    if next < VERSION {
        migrate(&transaction, target, next).await.map_err(explained)?;
        transaction.commit().await.map_err(explained)?;
        let (schema, to) = (&target.options.schema, VERSION);
        tracing::info!(target: log::STORE, schema, from = next, to, "schema migrated");
    }
    Ok(())
}

async fn migrate(
    transaction: &tokio_postgres::Transaction<'_>,
    target: &Target,
    from: i32,
) -> Result<(), Error> {
    let schema = target.quoted_schema();
    if from == 0 {
        transaction.batch_execute(&format!("CREATE SCHEMA IF NOT EXISTS {schema}")).await?;
    }
    // Objects are created in this schema, and functions keep this search path.
    transaction.batch_execute(&format!("SET LOCAL search_path TO {schema}, pg_temp")).await?;
    for scripts in MIGRATIONS.iter().skip(usize::try_from(from).unwrap_or_default()) {
        for script in *scripts {
            transaction.batch_execute(script).await?;
        }
    }
    let record = "INSERT INTO meta (version, oldest) VALUES ($1, $1) \
         ON CONFLICT (alone) DO UPDATE SET version = excluded.version, oldest = excluded.oldest";
    transaction.client().query_typed(record, &[(&VERSION, Type::INT4)]).await?;
    Ok(())
}

struct Stored {
    version: i32,
    oldest: i32,
}

/// Deletes the store of a URL: its schema with everything in it. A schema that is not a store is refused.
pub async fn delete_store(url: &str) -> Result<(), StoreError> {
    let target = Arc::new(Target::parse(url, PostgresOptions::default().hints(false))?);
    let mut connection = Connection::open(&target).await?;
    let client = connection.client();
    if stored_version(client, &target).await? == 0 {
        return Err(StoreError::CannotOpen(format!("{}: there is no store in this schema", target.shown)));
    }
    let delete = format!("DROP SCHEMA {} CASCADE", target.quoted_schema());
    client.batch_execute(&delete).await.map_err(|error| StoreError::Unavailable(describe(&error)))
}

pub(crate) async fn stored_version(client: &Client, target: &Target) -> Result<i32, StoreError> {
    is_current(client, target).await?;
    Ok(version(client, target).await?.map_or(0, |stored| stored.version.min(VERSION)))
}

/// Returns whether the schema needs no migration.
async fn is_current(client: &Client, target: &Target) -> Result<bool, StoreError> {
    match version(client, target).await? {
        None => Ok(false),
        Some(Stored { version, oldest }) if version > VERSION && oldest > VERSION => {
            let problem = format!(
                "its schema has version {version}, and this program knows versions up to {VERSION}: a newer Perennial made \
                 it; use that one or newer"
            );
            Err(cannot(target, &problem))
        }
        Some(stored) => Ok(stored.version >= VERSION),
    }
}

/// The version of the schema; `None` if there is no store in it.
async fn version(client: &Client, target: &Target) -> Result<Option<Stored>, StoreError> {
    let explained = |error: Error| explain(target, &error);
    // The catalog is readable by every role. A role that may not use the schema gets an error from the next statement.
    let find = "SELECT 1 FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
         WHERE n.nspname = $1 AND c.relname = 'meta'";
    if client.query_typed(find, &[(&target.options.schema, Type::TEXT)]).await.map_err(explained)?.is_empty()
    {
        return Ok(None);
    }
    let read = format!("SELECT version, oldest FROM {}.meta", target.quoted_schema());
    let rows = client.query_typed(&read, &[]).await.map_err(|error| match error.code() {
        // A table of this name without these columns belongs to another program.
        Some(&SqlState::UNDEFINED_COLUMN) => {
            cannot(target, "this is the schema of another program; choose another with ?schema=")
        }
        _ => explained(error),
    })?;
    Ok(rows.first().map(|row| Stored { version: row.get(0), oldest: row.get(1) }))
}

async fn check_server(client: &Client, target: &Target) -> Result<(), StoreError> {
    let settings = "SELECT current_setting('server_version_num')::integer, current_setting('server_version'), \
         current_setting('server_encoding'), current_setting('fsync'), current_setting('synchronous_commit')";
    let row = client.query_typed_one(settings, &[]).await.map_err(|error| explain(target, &error))?;
    if let Some(problem) = unsupported(row.get(0), row.get(1), row.get(2)) {
        return Err(cannot(target, &problem));
    }
    for (column, setting) in [(3, "fsync"), (4, "synchronous_commit")] {
        if row.get::<_, String>(column) == "off" {
            // A crash of the server can lose acknowledged commits.
            let at = &target.shown;
            tracing::warn!(target: log::STORE, setting, at, "commits are not synced; a crash of the server can lose them");
        }
    }
    Ok(())
}

/// Why a server cannot be used, from the number and text of its version and the encoding of the database.
fn unsupported(number: i32, version: &str, encoding: &str) -> Option<String> {
    if number < OLDEST_SERVER {
        return Some(format!("PostgreSQL {version} is too old; version 14 or newer is needed"));
    }
    (encoding != "UTF8").then(|| format!("the database is encoded in {encoding}; one in UTF8 is needed"))
}

fn cannot(target: &Target, problem: &str) -> StoreError {
    StoreError::CannotOpen(format!("{} (schema {:?}): {problem}", target.shown, target.options.schema))
}

/// Explains an error while opening the store.
pub(crate) fn explain(target: &Target, error: &Error) -> StoreError {
    let user = target.config.get_user().unwrap_or("the role");
    match error.as_db_error() {
        Some(answer) if *answer.code() == SqlState::INSUFFICIENT_PRIVILEGE => {
            let (schema, said) = (target.quoted_schema(), answer.message());
            let problem = format!(
                "{user} may not use or create the schema ({said}); its owner can GRANT USAGE ON SCHEMA {schema} and grant its \
                 tables, sequences and functions, or GRANT CREATE ON DATABASE to create a new one"
            );
            cannot(target, &problem)
        }
        Some(answer) => {
            let text = format!("{} ({})", answer.message(), answer.code().code());
            cannot(target, &with_pooler_hint(text, answer.code()))
        }
        None => StoreError::Unavailable(format!("{}: {}", target.shown, describe(error))),
    }
}

#[cfg(test)]
mod tests {
    use super::unsupported;

    #[test]
    fn s9_a_server_before_version_14_is_refused_by_its_version() {
        let text = "PostgreSQL 13.14 (Debian 13.14-1) is too old; version 14 or newer is needed";
        assert_eq!(unsupported(130_014, "13.14 (Debian 13.14-1)", "UTF8").as_deref(), Some(text));
        assert_eq!(unsupported(90_624, "9.6.24", "UTF8").map(|text| text.contains("9.6.24")), Some(true));
        for number in [140_000, 150_016, 180_000] {
            assert_eq!(unsupported(number, "", "UTF8"), None);
        }
    }
}
