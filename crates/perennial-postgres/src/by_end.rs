//! Pages of instances in the order of their end, the last ended first.
//!
//! If a filter leaves few rows, all of them are read and sorted. Otherwise the index of ends is walked, which has one part
//! for each status.

use std::sync::LazyLock;

use perennial_core::store::{Criteria, EndPlace, InstanceRow, Page, Source, Status, StoreError};
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::connection::Argument;
use crate::list::{CHUNK, CONDITIONS, conditions, gather, sources};
use crate::row::{bound, column, instance_columns, shown, status_code, uuid};
use crate::store::Inner;

/// Walks one status. Its own parameters are numbered after those of the conditions.
static WALK: LazyLock<String> = LazyLock::new(|| {
    let columns: Vec<String> = instance_columns!().split(", ").map(|column| format!("i.{column}")).collect();
    format!(
        "SELECT {} FROM @.instances AS i WHERE i.status = $13::smallint AND i.ended_ms <= $14::bigint \
         AND (i.ended_ms < $14 OR i.key < $1) AND {CONDITIONS} ORDER BY i.ended_ms DESC, i.key DESC LIMIT $2",
        columns.join(", ")
    )
});

pub(crate) async fn list(
    inner: &Inner,
    filter: &Criteria,
    place: EndPlace,
    limit: usize,
) -> Result<Page, StoreError> {
    // All rows of any source have to be sorted, so a source is used only if it has few.
    let sources = sources(inner, filter, |_| true).await?;
    let mut rows = Vec::new();
    if sources == [Source::All] {
        let is_asked = |status: &Status| filter.statuses.is_empty() || filter.statuses.contains(status);
        for status in Status::ALL.into_iter().filter(is_asked) {
            rows.extend(walk(inner, status, filter, place, limit.max(1).saturating_add(1)).await?);
        }
    } else {
        for source in sources {
            rows.extend(gather(inner, &source, filter, None, usize::MAX).await?);
        }
    }
    Ok(place.page(rows, limit))
}

/// The first matching rows of a status after a place.
async fn walk(
    inner: &Inner,
    status: Status,
    filter: &Criteria,
    place: EndPlace,
    wanted: usize,
) -> Result<Vec<InstanceRow>, StoreError> {
    let (mut key, mut ended_ms): (Uuid, i64) = (uuid(place.key), bound(place.ended_ms));
    let (status, mut gathered) = (status_code(status), Vec::new());
    loop {
        let chunk = CHUNK.min(wanted - gathered.len());
        let (limit, given) = (bound(chunk as u64), conditions(filter));
        let mut arguments: Vec<Argument<'_>> = vec![(&key, Type::UUID), (&limit, Type::INT8)];
        arguments.extend(given.arguments());
        arguments.extend([(&status as _, Type::INT2), (&ended_ms as _, Type::INT8)]);
        let rows = inner.query_planned(&WALK, &arguments).await?;
        for row in &rows {
            (key, ended_ms) = (column(row, 0)?, column(row, 14)?);
            let row = shown(row, 0)?;
            if filter.matches(&row) {
                gathered.push(row);
            }
        }
        if rows.len() < chunk || gathered.len() >= wanted {
            return Ok(gathered);
        }
    }
}
