//! Opening the store that a command is about.

use std::path::Path;

use perennial::{Client, Filter};

use crate::arguments::Filters;
use crate::exit::{ExitKind, Failure};

/// Opens a store to look and to send. A file that is missing is not made: it would be an empty store, and a surprise.
pub(crate) fn open(url: Option<&str>) -> Result<Client, Failure> {
    let Some(url) = url else {
        return Err(Failure::usage("which store? Say --store sqlite:PATH, or set PERENNIAL_STORE"));
    };
    if let Some(path) = url.strip_prefix("sqlite:") {
        let path = path.strip_prefix("//").unwrap_or(path);
        if !path.is_empty() && path != ":memory:" && !Path::new(path).exists() {
            let message = format!("there is no store at {path}; a runtime makes it when it is first started");
            return Err(Failure::new(ExitKind::Unavailable, message));
        }
    }
    Ok(Client::open(url)?)
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
        parent,
        attributes: filters.attributes.iter().cloned().collect(),
        newest_first: filters.newest,
        ..Filter::default()
    })
}
