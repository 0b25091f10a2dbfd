//! Pages of instances in the order of their end, the last ended first.
//!
//! If a filter leaves few rows, all of them are read and sorted. Otherwise the index of ends is walked, which has one part
//! for each status.

use std::ops::ControlFlow;

use perennial_core::store::{Criteria, EndPlace, InstanceRow, Page, Source, Status};
use rusqlite::Connection;

use crate::list::{SNAPSHOT, ended_at, matches, place_of, shown, walk};
use crate::reader::Fault;
use crate::row::{COLUMNS, bound, status_code};
use crate::sources::sources_for;

pub(crate) fn list(
    connection: &Connection,
    filter: &Criteria,
    place: EndPlace,
    limit: usize,
) -> Result<Page, Fault> {
    // All rows of any source have to be sorted, so a source is used only if it has few.
    let sources = sources_for(connection, filter, |_| true)?;
    let mut rows = Vec::new();
    if sources == [Source::All] {
        let is_asked = |status: &Status| filter.statuses.is_empty() || filter.statuses.contains(status);
        for status in Status::ALL.into_iter().filter(is_asked) {
            rows.extend(gather(connection, status, filter, place, limit.max(1).saturating_add(1))?);
        }
    } else {
        for source in sources {
            walk(connection, &source, filter, None, SNAPSHOT, |row| {
                rows.push(shown(row));
                Ok(ControlFlow::Continue(()))
            })?;
        }
    }
    Ok(place.page(rows, limit))
}

/// The statement that walks one status.
pub(crate) fn sql() -> String {
    format!(
        "SELECT {COLUMNS} FROM instances INDEXED BY instances_ended WHERE status = ?1 \
         AND (status >= 2 OR ended_ms IS NOT NULL) AND ended_ms <= ?2 AND ended_ms >= ?4 \
         AND (ended_ms < ?2 OR key < ?3) ORDER BY ended_ms DESC, key DESC"
    )
}

/// The first matching rows of a status after a place, from one snapshot after another.
fn gather(
    connection: &Connection,
    status: Status,
    filter: &Criteria,
    mut place: EndPlace,
    wanted: usize,
) -> Result<Vec<InstanceRow>, Fault> {
    let mut gathered = Vec::new();
    let (snapshot, look_every) = SNAPSHOT;
    'snapshots: loop {
        let begun = std::time::Instant::now();
        let mut statement = connection.prepare_cached(&sql())?;
        let from = bound(filter.ended_from_ms.unwrap_or(0));
        let (ended, key) = (bound(place.ended_ms), place.key.as_bytes());
        let mut rows = statement.query((status_code(status), ended, key, from))?;
        let mut seen = 0;
        while let Some(row) = rows.next()? {
            if matches(row, filter)? {
                gathered.push(shown(row));
                if gathered.len() == wanted {
                    return Ok(gathered);
                }
            }
            seen += 1;
            if seen % look_every == 0 && begun.elapsed() >= snapshot {
                place = EndPlace { ended_ms: ended_at(row)?, key: place_of(row) };
                continue 'snapshots;
            }
        }
        return Ok(gathered);
    }
}
