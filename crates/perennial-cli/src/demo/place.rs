//! Where a demo runs: its files, and its store.

use std::path::PathBuf;

use perennial::store::shown_url;
use tempfile::TempDir;

use super::director::Demo;
use super::worker::Worker;
use crate::exit::{ExitKind, Failure};

/// The store, the ledger beside it, and the log of the workers.
pub(crate) struct Place {
    /// Deleted with it, unless the files are kept.
    _temporary: Option<TempDir>,
    pub(crate) store: String,
    pub(crate) ledger: PathBuf,
    log: PathBuf,
    /// The number of workers at a time.
    pub(crate) nodes: usize,
}

impl Place {
    pub(crate) fn new(demo: &Demo) -> Result<Place, Failure> {
        let nodes = demo.nodes.unwrap_or(if demo.server.is_some() { 3 } else { 1 });
        if nodes > 1 && demo.server.is_none() {
            let message = "a SQLite file has one worker; several need --store postgres://…";
            return Err(Failure::usage(message));
        }
        let (temporary, directory) = match &demo.keep {
            None => {
                let temporary = tempfile::tempdir()?;
                let path = temporary.path().to_owned();
                (Some(temporary), path)
            }
            Some(path) if path.exists() => {
                let message = format!("{} exists; --keep needs a new directory", path.display());
                return Err(Failure::new(ExitKind::Refused, message));
            }
            Some(path) => {
                std::fs::create_dir_all(path)?;
                (None, path.clone())
            }
        };
        let store = match &demo.server {
            None => format!("sqlite:{}", directory.join("orders.db").display()),
            Some(url) => with_own_schema(url)?,
        };
        let (ledger, log) = (directory.join("ledger.db"), directory.join("worker.log"));
        Ok(Place { _temporary: temporary, store, ledger, log, nodes })
    }

    pub(crate) async fn start_worker(&self, number: usize) -> Result<Worker, Failure> {
        Worker::start(&self.store, &self.ledger, &self.log, &format!("worker-{number}")).await
    }

    /// The store's URL without a password.
    pub(crate) fn shown_store(&self) -> String {
        shown_url(&self.store)
    }

    /// Deletes the schema, unless it is kept. Files are deleted when this is dropped.
    pub(crate) async fn clear(&self, demo: &Demo) -> Result<(), Failure> {
        if demo.server.is_none() || demo.keep.is_some() {
            return Ok(());
        }
        perennial_postgres::delete_store(&self.store)
            .await
            .map_err(|error| perennial::Error::from(error).into())
    }
}

/// The database's URL with a schema that no other program uses.
fn with_own_schema(url: &str) -> Result<String, Failure> {
    if url.contains("?schema=") || url.contains("&schema=") {
        return Err(Failure::usage("the demo makes a schema of its own; leave out schema=… in --store"));
    }
    let separator = if url.contains('?') { '&' } else { '?' };
    let drawn = uuid::Uuid::new_v4().simple().to_string();
    Ok(format!("{url}{separator}schema=perennial_demo_{}", &drawn[..12]))
}

#[cfg(test)]
mod tests {
    use super::with_own_schema;

    #[test]
    fn p8_a_demo_never_uses_the_schema_of_another_program() {
        let store = with_own_schema("postgres://me@db/shop?sslmode=require").unwrap_or_default();
        assert!(store.starts_with("postgres://me@db/shop?sslmode=require&schema=perennial_demo_"), "{store}");
        assert!(
            with_own_schema("postgres://db/shop")
                .is_ok_and(|store| store.contains("?schema=perennial_demo_"))
        );
        assert!(with_own_schema("postgres://db/shop?schema=orders").is_err());
    }
}
