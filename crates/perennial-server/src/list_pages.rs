//! Pages of lists. What no index answers is scanned, within limits of rows and time.
//!
//! Several orchestrations are one list each, merged: every one of them is read by its index.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use perennial::client::{Count, EndPlace, PageKey};
use perennial::{Client, ClientError, Filter, InstanceKey, InstanceView, Timestamp};

use crate::cursor;
use crate::listing::{Scan, Selection, is_for};
use crate::problem::Problem;

/// A scan looks at this many rows, or for this long.
const SCAN_ROWS: u64 = 50_000;
const SCAN_TIME: Duration = Duration::from_millis(500);
/// How many rows are read at a time.
const CHUNK: usize = 500;
/// How many are explained at a time, which reads their histories.
const EXPLAINED: usize = 20;

/// A position in a list: in the order of starts, or of ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Start(PageKey),
    End(EndPlace),
}

/// A part of a list.
#[derive(Debug, Default)]
pub(crate) struct Selected {
    pub(crate) rows: Vec<InstanceView>,
    /// Where the list goes on.
    pub(crate) next: Option<Place>,
    /// How many rows were looked at, if the list was scanned.
    pub(crate) scanned: Option<u64>,
    /// Whether the scan ended before the page was full.
    pub(crate) partial: bool,
}

impl Place {
    /// The cursor that names this position in a list.
    pub(crate) fn encode(self, list: &str) -> String {
        match self {
            Place::Start(key) => cursor::encode(list, key.as_bytes()),
            Place::End(EndPlace { ended_ms, key }) => {
                cursor::encode(list, &[&ended_ms.to_be_bytes()[..], key.as_bytes()].concat())
            }
        }
    }

    fn started(self) -> Option<PageKey> {
        match self {
            Place::Start(key) => Some(key),
            Place::End(_) => None,
        }
    }

    fn ended(self) -> Option<EndPlace> {
        match self {
            Place::Start(_) => None,
            Place::End(place) => Some(place),
        }
    }
}

impl Selection {
    /// The position that a cursor of this list names.
    pub(crate) fn place(&self, cursor: &str) -> Result<Place, Problem> {
        let place = cursor::decode(&self.list, cursor)?;
        match (self.by_end, place.split_first_chunk()) {
            (false, _) => cursor::instance_key(&place).map(Place::Start),
            (true, Some((ended_ms, key))) => {
                let (ended_ms, key) = (u64::from_be_bytes(*ended_ms), cursor::instance_key(key)?);
                Ok(Place::End(EndPlace { ended_ms, key }))
            }
            (true, None) => Err(cursor::wrong("it was not made by this API")),
        }
    }

    fn place_of(&self, row: &InstanceView) -> Option<Place> {
        match self.by_end {
            true => row.ended.map(|ended| Place::End(EndPlace { ended_ms: ended.as_millis(), key: row.key })),
            false => Some(Place::Start(row.key)),
        }
    }

    /// A page of the list.
    pub(crate) async fn page(
        &self,
        client: &Client,
        after: Option<Place>,
        limit: usize,
    ) -> Result<Selected, Problem> {
        if !self.named.is_empty() {
            return self.named(client).await;
        }
        if self.scans.is_empty() {
            let (rows, next) = self.chunk(client, after, limit).await?;
            return Ok(Selected { rows, next, ..Selected::default() });
        }
        let (began, mut after, mut scanned) = (Instant::now(), after, 0);
        let mut rows = Vec::new();
        let mut chunk = if self.explains() { EXPLAINED } else { limit.clamp(1, CHUNK) };
        loop {
            let (read, next) = self.chunk(client, after, chunk).await?;
            let found = self.matching(client, &read).await?;
            for (row, found) in read.into_iter().zip(found) {
                scanned += 1;
                let place = self.place_of(&row);
                if found {
                    rows.push(row);
                }
                if rows.len() == limit {
                    // There may be more, even in this chunk.
                    return Ok(Selected { rows, next: place, scanned: Some(scanned), partial: false });
                }
            }
            after = next;
            if after.is_none() || scanned >= SCAN_ROWS || began.elapsed() >= SCAN_TIME {
                let partial = after.is_some();
                return Ok(Selected { rows, next: after, scanned: Some(scanned), partial });
            }
            // The first rows were not those that are looked for, so many others may not be, either.
            chunk = if self.explains() { EXPLAINED } else { CHUNK };
        }
    }

    /// Counts the list: exactly up to 10,000, and as far as a scan goes. Also returns how many rows a scan looked at.
    pub(crate) async fn count(&self, client: &Client) -> Result<(Count, Option<u64>), Problem> {
        if self.scans.is_empty() && self.named.is_empty() && self.retrying.is_none() {
            let (mut rows, mut more) = (0, false);
            for filter in self.filters() {
                let count = client.count(filter).await?;
                (rows, more) = (rows + count.rows, more || count.more);
            }
            return Ok((Count { rows: rows.min(Count::EXACT), more: more || rows > Count::EXACT }, None));
        }
        let exact = usize::try_from(Count::EXACT).unwrap_or(usize::MAX);
        let selected = self.page(client, None, exact).await?;
        let rows = selected.rows.len() as u64;
        Ok((Count { rows, more: selected.next.is_some() }, selected.scanned))
    }

    /// The lists that together are this one. They have no row in common.
    fn filters(&self) -> Vec<Filter> {
        // Instances that have not ended have no place in the order of ends.
        let filter = match self.by_end && self.filter.criteria().ended_from_ms.is_none() {
            true => self.filter.clone().ended_from(Timestamp::UNIX_EPOCH),
            false => self.filter.clone(),
        };
        match self.names.as_slice() {
            [] => vec![filter],
            names => names.iter().map(|name| filter.clone().orchestration(name.as_str())).collect(),
        }
    }

    /// The next rows by index, and where the list goes on after them.
    async fn chunk(
        &self,
        client: &Client,
        after: Option<Place>,
        limit: usize,
    ) -> Result<(Vec<InstanceView>, Option<Place>), Problem> {
        if let Some(keys) = &self.retrying {
            return self.retried(client, keys, after, limit).await;
        }
        let (mut rows, mut has_more, filters) = (Vec::new(), false, self.filters());
        let is_merged = filters.len() > 1;
        for filter in filters {
            let (read, more) = match self.by_end {
                false => {
                    let page = client.list(filter, after.and_then(Place::started), limit).await?;
                    (page.rows, page.next.is_some())
                }
                true => {
                    let page = client.list_ended(filter, after.and_then(Place::ended), limit).await?;
                    (page.rows, page.next.is_some())
                }
            };
            rows.extend(read);
            has_more |= more;
        }
        if is_merged {
            match (self.by_end, self.filter.criteria().newest_first) {
                (true, _) => rows.sort_by_key(|row| Reverse((row.ended, row.key))),
                (false, true) => rows.sort_by_key(|row| Reverse(row.key)),
                (false, false) => rows.sort_by_key(|row| row.key),
            }
            has_more |= rows.len() > limit;
            rows.truncate(limit);
        }
        let next = rows.last().filter(|_| has_more).and_then(|row| self.place_of(row));
        Ok((rows, next))
    }

    /// The next instances of which an activity is retried. They are few among many, so they are read one by one.
    async fn retried(
        &self,
        client: &Client,
        keys: &BTreeSet<InstanceKey>,
        after: Option<Place>,
        limit: usize,
    ) -> Result<(Vec<InstanceView>, Option<Place>), Problem> {
        let (criteria, mut rows) = (self.filter.criteria(), Vec::new());
        let after = after.and_then(Place::started);
        let mut keys: Vec<InstanceKey> = match criteria.newest_first {
            true => {
                keys.iter().rev().filter(|key| after.is_none_or(|after| **key < after)).copied().collect()
            }
            false => keys.iter().filter(|key| after.is_none_or(|after| **key > after)).copied().collect(),
        };
        if self.by_end {
            // What retries has not ended.
            keys.clear();
        }
        for key in keys {
            if rows.len() == limit {
                let next = rows.last().and_then(|row| self.place_of(row));
                return Ok((rows, next));
            }
            let is_asked = |name: &String| self.names.is_empty() || self.names.contains(name);
            let found = client.find_row_by_key(key).await?;
            let found = found.filter(|row| criteria.matches(row) && is_asked(&row.name));
            rows.extend(found.map(InstanceView::from));
        }
        Ok((rows, None))
    }

    /// The instances that were asked for one by one, in their order.
    async fn named(&self, client: &Client) -> Result<Selected, Problem> {
        let mut rows = Vec::new();
        for id in &self.named.ids {
            match client.status(id).await {
                Ok(view) => rows.push(view),
                Err(ClientError::NotFound { .. } | ClientError::InvalidName { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        for key in &self.named.keys {
            rows.extend(client.find_by_key(*key).await?);
        }
        Ok(Selected { rows, ..Selected::default() })
    }

    fn explains(&self) -> bool {
        self.scans.iter().any(|scan| matches!(scan, Scan::WaitsFor(_)))
    }

    /// Which rows meet the scanned conditions.
    async fn matching(&self, client: &Client, rows: &[InstanceView]) -> Result<Vec<bool>, Problem> {
        let mut found: Vec<bool> =
            rows.iter().map(|row| self.scans.iter().all(|scan| scan.meets(row))).collect();
        for scan in &self.scans {
            let Scan::WaitsFor(waits_for) = scan else { continue };
            let candidates = rows.iter().zip(&found).filter(|(_, found)| **found).map(|(row, _)| row.clone());
            let candidates: Vec<InstanceView> = candidates.collect();
            let explained = client.explain_each(&candidates).await?;
            let mut explained = explained.iter();
            for found in found.iter_mut().filter(|found| **found) {
                let waits = explained.next().map(|explained| explained.waits.as_slice()).unwrap_or_default();
                *found = waits.iter().any(|wait| is_for(&wait.reason, waits_for));
            }
        }
        Ok(found)
    }
}
