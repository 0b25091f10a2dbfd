//! `prune`: deletes instances that ended long ago, and executions that were continued long ago.

use std::time::Duration;

use perennial::{Client, Filter, Prune};
use serde_json::json;

use crate::bulk::{ask, confirm, report};
use crate::exit::Failure;
use crate::output::{line, object, progress};

/// Deletes the instances that have ended and match a filter.
pub(crate) async fn prune(
    client: &Client,
    filter: Filter,
    keep: usize,
    is_confirmed: bool,
    as_json: bool,
) -> Result<(), Failure> {
    let count = client.count(filter.clone()).await?;
    let rows = count.rows.saturating_sub(keep as u64);
    if rows > 0 {
        confirm("prune", rows, count.more, is_confirmed)?;
    }
    let bar = progress((!count.more).then_some(count.rows), "pruned");
    let prune = Prune::all().only(filter).keep_newest(keep);
    let outcome = client.prune(prune, |so_far| bar.set_position(so_far.seen)).await?;
    bar.finish_and_clear();
    report(as_json, "pruned", &outcome)
}

/// Deletes executions that were continued as new.
pub(crate) async fn prune_executions(
    client: &Client,
    older_than: Option<Duration>,
    is_confirmed: bool,
    as_json: bool,
) -> Result<(), Failure> {
    let Some(older_than) = older_than else {
        return Err(Failure::usage("--executions needs --older-than, such as 7d"));
    };
    ask("delete the executions of all instances that were continued as new long enough ago", is_confirmed)?;
    let bar = progress(None, "rows deleted");
    let rows = client.prune_executions(older_than, |rows| bar.set_position(rows)).await?;
    bar.finish_and_clear();
    if as_json {
        object(&json!({"outcome": "pruned executions", "rows": rows}))
    } else {
        line(format!("pruned executions; rows deleted: {rows}"))
    }
}
