//! Opens the store of a command.

use std::path::Path;
use std::time::Duration;

use perennial::ErrorCode;
use perennial::codec::Codecs;
use perennial::{Client, Filter, StartError, Status};
use perennial_sqlite::{Inspection, inspect};

use crate::arguments::STORE_VARIABLE;
use crate::exit::{ExitKind, Failure};
use crate::filters::Filters;
use crate::output::now_ms;
use crate::remedy::quoted;

/// The URL of a store, and the codecs of its payloads.
pub(crate) struct StoreAt {
    pub(crate) url: Option<String>,
    pub(crate) codecs: Codecs,
}

/// A store that is inspected but not opened.
pub(crate) struct Seen<'a> {
    pub(crate) url: &'a str,
    /// `None` if the store is not a file.
    pub(crate) inspection: Option<Inspection>,
}

impl StoreAt {
    /// Inspects the store without opening it. A missing file is not created: an empty store would be a
    /// surprise.
    pub(crate) fn look(&self) -> Result<Seen<'_>, Failure> {
        let Some(url) = self.url.as_deref() else {
            return Err(Failure::usage(
                "no store is given; pass --store sqlite:PATH or postgres://HOST/DATABASE, or set PERENNIAL_STORE",
            ));
        };
        if is_postgres(url) {
            return Ok(Seen { url, inspection: None });
        }
        if let Some((_, options)) = url.split_once('?') {
            return Err(StartError::UrlOptions { url: url.to_owned(), options: options.to_owned() }.into());
        }
        let path = url.strip_prefix("sqlite:").map(|path| path.strip_prefix("//").unwrap_or(path));
        let Some(path) = path.filter(|path| !path.is_empty() && *path != ":memory:") else {
            return Ok(Seen { url, inspection: None });
        };
        if !Path::new(path).exists() {
            let message = ErrorCode::NoStore
                .message(format_args!("{path} does not exist; a runtime creates it at its first start"));
            return Err(Failure::new(ExitKind::Unavailable, message));
        }
        let inspection = inspect(Path::new(path), now_ms()).map_err(perennial::Error::from)?;
        Ok(Seen { url, inspection: Some(inspection) })
    }

    /// Whether a path is one of the store's own files.
    pub(crate) fn has_file(&self, path: &Path) -> bool {
        let file = self.url.as_deref().and_then(|url| url.strip_prefix("sqlite:"));
        let Some(file) = file.map(|file| file.strip_prefix("//").unwrap_or(file)) else { return false };
        let same = |own: &Path| match (own.canonicalize(), path.canonicalize()) {
            (Ok(own), Ok(path)) => own == path || is_same_file(&own, &path),
            // The files beside the database come and go.
            _ => {
                own.file_name() == path.file_name()
                    && directory(own).is_some()
                    && directory(own) == directory(path)
            }
        };
        let real = Path::new(file).canonicalize().map_or_else(|_| file.into(), |path| path.into_os_string());
        [file.into(), real].iter().any(|file| {
            ["", "-wal", "-shm", "-lock", "-journal"].iter().any(|suffix| {
                let mut own = file.clone();
                own.push(suffix);
                same(Path::new(&own))
            })
        })
    }

    /// A text whose commands can be run as they stand: with the store that was given on the command line.
    pub(crate) fn advice(&self, text: &str) -> String {
        match &self.url {
            Some(url) if std::env::var(STORE_VARIABLE).as_ref() != Ok(url) => {
                text.replace("`perennial ", &format!("`perennial --store {} ", quoted(url)))
            }
            _ => text.to_owned(),
        }
    }

    /// Opens the store to read and to send messages. A store that needs a migration is left to a runtime.
    pub(crate) fn open(&self) -> Result<Client, Failure> {
        Ok(Client::open_with_codecs(self.usable_url()?, self.codecs.clone())?)
    }

    /// Opens the store for a short read. Nothing is written, and the file needs no write permission.
    pub(crate) fn open_to_look(&self) -> Result<Client, Failure> {
        Ok(Client::open_read_only(self.usable_url()?, self.codecs.clone())?)
    }

    /// The URL, if the store has the schema that this command supports.
    fn usable_url(&self) -> Result<&str, Failure> {
        let Seen { url, inspection } = self.look()?;
        match inspection {
            Some(Inspection { schema: 0, .. }) => {
                let message =
                    format!("{url} is an empty file; a runtime creates the store at its first start");
                Err(Failure::new(ExitKind::Unavailable, message))
            }
            Some(Inspection { schema, known_schema, .. }) if schema < known_schema => {
                let message = format!(
                    "the schema of {url} has version {schema}, but this command supports {known_schema}; start the program built \
                     with the newer Perennial, which migrates it, or use the older command"
                );
                Err(Failure::new(ExitKind::Unavailable, message))
            }
            _ => Ok(url),
        }
    }
}

/// The directory of a path, as it really is.
fn directory(path: &Path) -> Option<std::path::PathBuf> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    directory.unwrap_or(Path::new(".")).canonicalize().ok()
}

/// Whether two paths are names of one file.
#[cfg(unix)]
fn is_same_file(one: &Path, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;

    let id = |path: &Path| path.metadata().map(|found| (found.dev(), found.ino())).ok();
    id(one).is_some() && id(one) == id(other)
}

#[cfg(not(unix))]
fn is_same_file(_: &Path, _: &Path) -> bool {
    false
}

/// Whether a URL names a PostgreSQL database. Its options are checked when it is opened.
pub(crate) fn is_postgres(url: &str) -> bool {
    url.starts_with("postgres://") || url.starts_with("postgresql://")
}

/// Builds the filter of a list. Looks up the key of the parent by its id.
pub(crate) async fn filter(client: &Client, filters: &Filters) -> Result<Filter, Failure> {
    let mut filter = filters.terms.clone().unwrap_or_default().statuses(filters.status.iter().copied());
    if let Some(name) = &filters.name {
        filter = filter.orchestration(name);
    }
    if let Some(version) = &filters.at_version {
        filter = filter.version(version);
    }
    if let Some(prefix) = &filters.prefix {
        filter = filter.id_prefix(prefix);
    }
    if filters.blocked {
        filter = filter.blocked(true);
    }
    if filters.paused {
        filter = filter.paused(true);
    }
    if let Some(id) = &filters.parent {
        filter = filter.parent(client.status(id).await?.key);
    }
    for (name, value) in &filters.attributes {
        filter = filter.attribute(name, value);
    }
    if filters.newest {
        filter = filter.newest_first(true);
    }
    Ok(filter.conditions(filters.conditions.iter().cloned()))
}

/// Restricts a filter to instances that ended at least so long ago, by the store's clock.
pub(crate) async fn ended(
    client: &Client,
    filter: Filter,
    older_than: Option<Duration>,
) -> Result<Filter, Failure> {
    if let Some(status) = filter.criteria().statuses.iter().find(|status| !status.is_final()) {
        let message = format!(
            "{} instances have not ended and cannot be pruned; see `perennial delete --force`",
            status.name()
        );
        return Err(Failure::usage(message));
    }
    let mut filter = match filter.criteria().statuses.is_empty() {
        true => filter.statuses(Status::ALL.into_iter().filter(|status| status.is_final())),
        false => filter,
    };
    if let Some(age) = older_than {
        if filter.criteria().ended_before_ms.is_some() {
            return Err(Failure::usage("use --older-than or ended_before in --filter, not both"));
        }
        filter = filter.ended_before(client.now().await? - age);
    }
    Ok(filter)
}
