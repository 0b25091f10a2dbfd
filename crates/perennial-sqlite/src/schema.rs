//! The schema and its versions.
//!
//! A database identifies its program (`application_id`) and its schema (`user_version`). Migrations run when it is
//! opened, each once: the first process runs them in a transaction, and the others find them done.

use std::path::Path;
use std::time::Duration;

use perennial_core::store::StoreError;
use rusqlite::Connection;

use crate::attributes;
use crate::connection::begin_immediate;
use crate::open::cannot_open;
use crate::owner_lock::OwnerLock;
use crate::row;
use crate::tasks;

/// "Pere", as stored in the file's header.
const APPLICATION_ID: i32 = 0x5065_7265;

/// The step from one version to the next: statements, then optionally code for what SQL cannot do.
struct Migration {
    sql: &'static str,
    then: Option<fn(&Connection) -> rusqlite::Result<()>>,
}

/// The steps from each version to the next.
const MIGRATIONS: [Migration; 5] = [
    Migration { sql: include_str!("migrations/1.sql"), then: None },
    // The attribute index created by version 2 stays empty here, because version 4 replaces it.
    Migration { sql: include_str!("migrations/2.sql"), then: None },
    Migration { sql: include_str!("migrations/3.sql"), then: Some(row::seal_all) },
    Migration { sql: include_str!("migrations/4.sql"), then: Some(attributes::fill) },
    Migration { sql: include_str!("migrations/5.sql"), then: Some(tasks::seal_all) },
];

/// The version that this code knows.
pub(crate) const CURRENT: usize = MIGRATIONS.len();

/// Who opens the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The runtime, which holds the lock.
    Owner,
    /// Anybody else.
    Guest,
}

/// The relation of a database to this code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is empty.
    Fresh,
    /// An older version of this code made it.
    Older(usize),
    /// It has the version that this code expects.
    Current,
    /// A newer version of this code made it.
    Newer(i64),
    /// It belongs to another program.
    Foreign,
}

impl Standing {
    /// Refuses a database that cannot be used.
    pub(crate) fn check(self, path: &Path) -> Result<(), StoreError> {
        let why = match self {
            Standing::Fresh | Standing::Older(_) | Standing::Current => return Ok(()),
            Standing::Newer(version) => format!(
                "its schema has version {version}, and this program knows versions up to {CURRENT}: a newer Perennial \
                 made it; use that one or newer"
            ),
            Standing::Foreign => "this is the database of another program; choose another path".to_owned(),
        };
        Err(StoreError::CannotOpen(format!("{}: {why}", path.display())))
    }
}

/// Determines the relation of a database to this code.
pub(crate) fn standing(connection: &Connection) -> rusqlite::Result<Standing> {
    // One statement, so that all values are from one snapshot.
    let (application_id, version, tables): (i32, i64, i64) = connection.query_row(
        "SELECT (SELECT application_id FROM pragma_application_id), (SELECT user_version FROM pragma_user_version), \
         (SELECT count(*) FROM sqlite_schema)",
        [],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
    )?;
    Ok(match (application_id, usize::try_from(version)) {
        (0, Ok(0)) if tables == 0 => Standing::Fresh,
        (APPLICATION_ID, Ok(CURRENT)) => Standing::Current,
        (APPLICATION_ID, Ok(older)) if older < CURRENT => Standing::Older(older),
        (APPLICATION_ID, _) => Standing::Newer(version),
        _ => Standing::Foreign,
    })
}

/// Migrates a database to the current version.
pub(crate) fn migrate(
    connection: &Connection,
    path: &Path,
    role: Role,
    patience: Duration,
) -> Result<(), StoreError> {
    let sqlite = |error: rusqlite::Error| cannot_open(path, &error);
    begin_immediate(connection, patience).map_err(sqlite)?;
    let migrated = migrate_within(connection, path, role);
    let end = if migrated.is_ok() { "COMMIT" } else { "ROLLBACK" };
    let ended = connection.execute_batch(end).map_err(sqlite);
    migrated.and(ended)
}

fn migrate_within(connection: &Connection, path: &Path, role: Role) -> Result<(), StoreError> {
    let sqlite = |error: rusqlite::Error| cannot_open(path, &error);
    let standing = standing(connection).map_err(sqlite)?;
    standing.check(path)?;
    match (standing, role) {
        (Standing::Older(version), Role::Guest) => {
            // A running owner would find its tables changed.
            let _lock = OwnerLock::take(path).map_err(|error| {
                StoreError::CannotOpen(format!(
                    "{}: its schema has version {version} and must be migrated to {CURRENT}, which is not possible now: {error}",
                    path.display()
                ))
            })?;
            apply(connection, version).map_err(sqlite)
        }
        (Standing::Older(version), Role::Owner) => apply(connection, version).map_err(sqlite),
        (Standing::Fresh, _) => apply(connection, 0).map_err(sqlite),
        (Standing::Current | Standing::Newer(_) | Standing::Foreign, _) => Ok(()),
    }
}

/// Creates all tables in an empty database.
pub(crate) fn create(connection: &Connection) -> rusqlite::Result<()> {
    apply(connection, 0)
}

fn apply(connection: &Connection, from: usize) -> rusqlite::Result<()> {
    for migration in &MIGRATIONS[from..] {
        connection.execute_batch(migration.sql)?;
        if let Some(then) = migration.then {
            then(connection)?;
        }
    }
    connection
        .execute_batch(&format!("PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={CURRENT}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s9_a_guest_leaves_an_older_schema_to_the_owner_that_uses_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shop.db");
        let connection = Connection::open(&path).unwrap();
        connection.execute_batch(MIGRATIONS[0].sql).unwrap();
        let older = format!("PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version=1");
        connection.execute_batch(&older).unwrap();
        let owner = OwnerLock::take(&path).unwrap();
        let error = migrate(&connection, &path, Role::Guest, Duration::ZERO).unwrap_err().to_string();
        assert!(
            error.contains("its schema has version 1 and must be migrated to 5, which is not possible now"),
            "{error}"
        );
        assert_eq!(standing(&connection).unwrap(), Standing::Older(1));
        drop(owner);
        migrate(&connection, &path, Role::Guest, Duration::ZERO).unwrap();
        assert_eq!(standing(&connection).unwrap(), Standing::Current);
    }
}
