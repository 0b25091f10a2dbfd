//! Opening the store that a command is about.

use std::path::Path;
use std::time::Duration;

use perennial::codec::Codecs;
use perennial::{Client, Filter, StartError, Status};
use perennial_sqlite::{Inspection, inspect};

use crate::arguments::Filters;
use crate::exit::{ExitKind, Failure};
use crate::output::now_ms;

/// The store that a command is about, and the codecs of its payloads.
pub(crate) struct StoreAt {
    pub(crate) url: Option<String>,
    pub(crate) codecs: Codecs,
}

/// A store as it looks from outside.
pub(crate) struct Seen<'a> {
    pub(crate) url: &'a str,
    /// What there is to see, if it is a file.
    pub(crate) inspection: Option<Inspection>,
}

impl StoreAt {
    /// Looks at the store from outside. A file that is missing is not made: it would be an empty store, and a surprise.
    pub(crate) fn look(&self) -> Result<Seen<'_>, Failure> {
        let Some(url) = self.url.as_deref() else {
            return Err(Failure::usage("which store? Say --store sqlite:PATH, or set PERENNIAL_STORE"));
        };
        if let Some((_, options)) = url.split_once('?') {
            return Err(StartError::UrlOptions { url: url.to_owned(), options: options.to_owned() }.into());
        }
        let path = url.strip_prefix("sqlite:").map(|path| path.strip_prefix("//").unwrap_or(path));
        let Some(path) = path.filter(|path| !path.is_empty() && *path != ":memory:") else {
            return Ok(Seen { url, inspection: None });
        };
        if !Path::new(path).exists() {
            let message = format!(
                "PER-0627 no store: there is none at {path}; a runtime makes it when it is first started"
            );
            return Err(Failure::new(ExitKind::Unavailable, message));
        }
        let inspection = inspect(Path::new(path), now_ms()).map_err(perennial::Error::from)?;
        Ok(Seen { url, inspection: Some(inspection) })
    }

    /// Opens the store to look and to send. One that would have to be changed for that is left to a runtime.
    pub(crate) fn open(&self) -> Result<Client, Failure> {
        Ok(Client::open_with_codecs(self.usable_url()?, self.codecs.clone())?)
    }

    /// Opens the store for a look that is over soon. Nothing is written, and the file needs no write permission.
    pub(crate) fn open_to_look(&self) -> Result<Client, Failure> {
        Ok(Client::open_read_only(self.usable_url()?, self.codecs.clone())?)
    }

    /// The URL of a store that has the tables which this command knows.
    fn usable_url(&self) -> Result<&str, Failure> {
        let Seen { url, inspection } = self.look()?;
        match inspection {
            Some(Inspection { schema: 0, .. }) => {
                let message =
                    format!("{url} is an empty file; a runtime makes it a store when it is first started");
                Err(Failure::new(ExitKind::Unavailable, message))
            }
            Some(Inspection { schema, known_schema, .. }) if schema < known_schema => {
                let message = format!(
                    "the schema of {url} has version {schema}, and this command needs {known_schema}; start the program \
                     with the newer Perennial, which migrates it, or use the command of the older one"
                );
                Err(Failure::new(ExitKind::Unavailable, message))
            }
            _ => Ok(url),
        }
    }
}

/// What a list is filtered by. The parent is named by its id, and found here.
pub(crate) async fn filter(client: &Client, filters: &Filters) -> Result<Filter, Failure> {
    let parent = match &filters.parent {
        Some(id) => Some(client.status(id).await?.key),
        None => None,
    };
    Ok(Filter {
        statuses: filters.status.clone(),
        name: filters.name.clone(),
        version: filters.at_version.clone(),
        id_prefix: filters.prefix.clone(),
        blocked: filters.blocked.then_some(true),
        paused: filters.paused.then_some(true),
        parent,
        attributes: filters.attributes.iter().cloned().collect(),
        conditions: filters.conditions.clone(),
        newest_first: filters.newest,
        ..Filter::default()
    })
}

/// Of what a filter shows, what has ended, at least so long ago by the store's clock.
pub(crate) async fn ended(
    client: &Client,
    filter: Filter,
    older_than: Option<Duration>,
) -> Result<Filter, Failure> {
    if let Some(status) = filter.statuses.iter().find(|status| !status.is_final()) {
        let message = format!(
            "what is {} has not ended, and is not pruned; see `perennial delete --force`",
            status.name()
        );
        return Err(Failure::usage(message));
    }
    let ended = || Status::ALL.into_iter().filter(|status| status.is_final()).collect();
    let statuses = if filter.statuses.is_empty() { ended() } else { filter.statuses.clone() };
    let ended_before_ms = match older_than {
        Some(age) => Some(client.now_ms().await?.saturating_sub(age.as_millis() as u64)),
        None => None,
    };
    Ok(Filter { statuses, ended_before_ms, ..filter })
}
