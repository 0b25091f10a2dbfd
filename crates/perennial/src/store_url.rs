//! Opening stores by URL.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use perennial_core::store::{MemoryStore, MoveMark, Store, StoreError, shown_url};

use crate::error::StartError;

/// Milliseconds since 1970 by this machine's clock.
pub(crate) fn system_now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Opens a store as its owner.
pub(crate) fn open_owner(url: &str, relaxed: bool) -> Result<Arc<dyn Store>, StartError> {
    open(url, Role::Owner { relaxed })
}

/// Opens a store beside its owner, to read and to send requests. The store has to exist: a mistyped path must
/// not create an empty one.
pub(crate) fn open_guest(url: &str) -> Result<Arc<dyn Store>, StartError> {
    let store = open(url, Role::Guest)?;
    check_not_moved(&*store)?;
    Ok(store)
}

/// Opens a store read-only. Nothing is written, and no file is created beside it where that can be avoided.
pub(crate) fn open_read_only(url: &str) -> Result<Arc<dyn Store>, StartError> {
    open(url, Role::Reader)
}

/// Opens a store to move it, which no runtime uses. Only the target of a move is created.
pub(crate) fn open_moved(url: &str, create: bool) -> Result<Arc<dyn Store>, StartError> {
    open(url, Role::Mover { create })
}

/// Refuses a store that was moved: what a client sends there would never arrive.
fn check_not_moved(store: &dyn Store) -> Result<(), StoreError> {
    let (sender, receiver) = std::sync::mpsc::channel();
    store.read_setting(MoveMark::SETTING, Box::new(move |mark| drop(sender.send(mark))));
    match receiver.recv().unwrap_or(Err(StoreError::Closed))? {
        Some(mark) => Err(MoveMark::refusal(&mark)),
        None => Ok(()),
    }
}

enum Role {
    Owner {
        #[cfg_attr(
            not(any(feature = "sqlite", feature = "postgres")),
            expect(dead_code, reason = "the memory store has no such setting")
        )]
        relaxed: bool,
    },
    Guest,
    Reader,
    Mover {
        #[cfg_attr(
            not(any(feature = "sqlite", feature = "postgres")),
            expect(dead_code, reason = "the memory store cannot be moved")
        )]
        create: bool,
    },
}

fn open(url: &str, role: Role) -> Result<Arc<dyn Store>, StartError> {
    let unknown = || StartError::UnknownUrl { url: shown_url(url) };
    if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        #[cfg(feature = "postgres")]
        return postgres(url, role);
        // Before the options, which such a URL may have, and in which the password would be shown.
        #[cfg(not(feature = "postgres"))]
        return Err(unknown());
    }
    if let Some((_, options)) = url.split_once('?') {
        // Treated as part of the file name, the options would open a new, empty store beside the intended
        // one.
        return Err(StartError::UrlOptions { url: url.to_owned(), options: options.to_owned() });
    }
    match (url.split_once(':').ok_or_else(unknown)?, role) {
        (("memory", ""), Role::Owner { .. }) => Ok(Arc::new(MemoryStore::new(system_now_ms))),
        (("memory", "") | ("sqlite", ":memory:"), Role::Guest | Role::Reader | Role::Mover { .. }) => {
            let problem = "a memory store belongs to its process; use the client of that runtime".to_owned();
            Err(StoreError::CannotOpen(problem).into())
        }
        #[cfg(feature = "sqlite")]
        (("sqlite", path), role) => sqlite(path.strip_prefix("//").unwrap_or(path), role),
        _ => Err(unknown()),
    }
}

/// Many nodes own a database together. Only a node makes its tables: a mistyped name is not an empty store.
#[cfg(feature = "postgres")]
fn postgres(url: &str, role: Role) -> Result<Arc<dyn Store>, StartError> {
    use perennial_postgres::PostgresOptions;

    let options = match role {
        Role::Owner { relaxed } => PostgresOptions::default().relaxed(relaxed),
        Role::Guest => PostgresOptions::default().create(false),
        Role::Mover { create } => PostgresOptions::default().create(create),
        Role::Reader => PostgresOptions::default().create(false).read_only(true),
    };
    Ok(Arc::new(perennial_postgres::open(url, options)?))
}

#[cfg(feature = "sqlite")]
fn sqlite(path: &str, role: Role) -> Result<Arc<dyn Store>, StartError> {
    use perennial_sqlite::{SqliteOptions, SqliteStore};

    let file = std::path::Path::new(path);
    if matches!(role, Role::Guest | Role::Reader | Role::Mover { create: false }) && !file.exists() {
        return Err(StartError::NoStore { path: path.to_owned() });
    }
    let store = match role {
        Role::Owner { relaxed } => SqliteStore::open(file, SqliteOptions::default().relaxed(relaxed))?,
        Role::Mover { create } => SqliteStore::open(file, SqliteOptions::default().create(create))?,
        Role::Guest => SqliteStore::open_guest(file, SqliteOptions::default())?,
        Role::Reader => SqliteStore::open_read_only(file, SqliteOptions::default())?,
    };
    Ok(Arc::new(store))
}
