//! Which instances a list shows, page by page.

use std::collections::BTreeMap;

use crate::history::{Attributes, Payload};
use crate::instance::InstanceKey;

use super::condition::{Condition, KeyRange};
use super::order_key::order_key;
use super::row::{InstanceRow, Status};

/// The criteria of a list. A row matches if it meets all that are set.
///
/// ```
/// use perennial_core::store::{Criteria, attribute};
///
/// let filter = Criteria {
///     conditions: vec![attribute("city").starts_with("Os"), attribute("total").at_least(100)],
///     ..Criteria::default()
/// };
/// # assert_eq!(filter.conditions.len(), 2);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Criteria {
    /// The status is one of these; empty matches any status.
    pub statuses: Vec<Status>,
    /// The orchestration.
    pub name: Option<String>,
    /// The orchestration's version.
    pub version: Option<String>,
    /// The prefix of the id.
    pub id_prefix: Option<String>,
    /// Whether it is blocked. An instance that [waits](super::Blocked::is_waiting) for missing code is not.
    pub blocked: Option<bool>,
    /// Whether it, or its orchestration, is paused. A paused instance is also blocked.
    pub paused: Option<bool>,
    /// The parent's key.
    pub parent: Option<InstanceKey>,
    /// Exact attribute values, compared as JSON text.
    pub attributes: Attributes,
    /// Conditions on attributes: by value, prefix and range.
    pub conditions: Vec<Condition>,
    /// Started at or after this time.
    pub created_from_ms: Option<u64>,
    /// Started before this time.
    pub created_before_ms: Option<u64>,
    /// Ended at or after this time.
    pub ended_from_ms: Option<u64>,
    /// Ended before this time.
    pub ended_before_ms: Option<u64>,
    /// Whether the newest rows come first; otherwise the oldest do.
    pub newest_first: bool,
    /// Lists in the order of the end instead of that of the start, the last ended first: the rows
    /// [after](EndPlace::is_before) this place. [`newest_first`](Criteria::newest_first) and the position of the page do
    /// not count then. Counts ignore it. Instances that have not ended have no place in this order, so
    /// [`ended_from_ms`](Criteria::ended_from_ms) is set, too.
    pub by_end: Option<EndPlace>,
}

impl Criteria {
    /// Whether a row matches.
    pub fn matches(&self, row: &InstanceRow) -> bool {
        let is_child_of =
            |parent: &InstanceKey| row.parent.as_ref().is_some_and(|link| link.key == parent.to_string());
        (self.statuses.is_empty() || self.statuses.contains(&row.status))
            && self.name.as_ref().is_none_or(|name| *name == row.name)
            && self.version.as_ref().is_none_or(|version| *version == row.version)
            && self.id_prefix.as_ref().is_none_or(|prefix| row.id.starts_with(prefix.as_str()))
            && self.blocked.is_none_or(|blocked| blocked == is_blocked(row))
            && self.paused.is_none_or(|paused| paused == is_paused(row))
            && self.parent.as_ref().is_none_or(is_child_of)
            && self.matches_attributes(&row.attributes)
            && self.created_from_ms.is_none_or(|from_ms| row.created_ms >= from_ms)
            && self.created_before_ms.is_none_or(|before_ms| row.created_ms < before_ms)
            && self.ended_from_ms.is_none_or(|from_ms| row.ended_ms.is_some_and(|at_ms| at_ms >= from_ms))
            && self
                .ended_before_ms
                .is_none_or(|before_ms| row.ended_ms.is_some_and(|at_ms| at_ms < before_ms))
    }

    /// Whether attributes match.
    pub fn matches_attributes(&self, attributes: &Attributes) -> bool {
        let has = |(name, value): (&String, &Payload)| {
            attributes.get(name).is_some_and(|has| has.as_json() == value.as_json())
        };
        self.attributes.iter().all(has)
            && self.conditions.iter().all(|condition| {
                attributes.get(&condition.attribute).is_some_and(|value| condition.holds(value))
            })
    }

    /// The ranges of [`order_key`]s that each attribute may have, by name, for stores with an index of them. A row
    /// whose keys are in these ranges may still not match, because [`attributes`](Criteria::attributes) are compared as
    /// JSON text.
    pub fn attribute_ranges(&self) -> BTreeMap<&str, KeyRange> {
        let equal = self.attributes.iter().map(|(name, value)| (&**name, KeyRange::one(order_key(value))));
        let tested =
            self.conditions.iter().map(|condition| (&*condition.attribute, condition.comparison.keys()));
        let mut ranges: BTreeMap<&str, KeyRange> = BTreeMap::new();
        for (name, range) in equal.chain(tested) {
            let narrowed = match ranges.remove(name) {
                Some(other) => other.and(range),
                None => range,
            };
            ranges.insert(name, narrowed);
        }
        ranges
    }
}

/// A position in a list in the order of the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndPlace {
    /// When the last row before the position ended.
    pub ended_ms: u64,
    /// Which instance that row is of: several can end in the same millisecond.
    pub key: InstanceKey,
}

impl EndPlace {
    /// Before all rows.
    pub fn first() -> EndPlace {
        EndPlace { ended_ms: u64::MAX, key: InstanceKey::from_bytes([0xff; 16]) }
    }

    /// The position of a row; `None` if it has not ended.
    pub fn of(row: &InstanceRow) -> Option<EndPlace> {
        row.ended_ms.map(|ended_ms| EndPlace { ended_ms, key: row.key })
    }

    /// Whether a row comes after this position.
    pub fn is_before(&self, row: &InstanceRow) -> bool {
        let place = |place: EndPlace| (place.ended_ms, place.key);
        EndPlace::of(row).is_some_and(|of_row| place(of_row) < place(*self))
    }

    /// The page after this position, of rows that may be in any order and may contain a row twice: the last one counts.
    pub fn page(&self, mut rows: Vec<InstanceRow>, limit: usize) -> Page {
        rows.retain(|row| self.is_before(row));
        rows.reverse();
        rows.sort_by_key(|row| std::cmp::Reverse((row.ended_ms, row.key)));
        rows.dedup_by_key(|row| row.key);
        let limit = limit.max(1);
        let next = if rows.len() > limit { rows.get(limit - 1).map(|row| row.key) } else { None };
        rows.truncate(limit);
        Page { rows, next }
    }
}

fn is_blocked(row: &InstanceRow) -> bool {
    row.blocked.as_ref().is_some_and(|blocked| !blocked.is_waiting())
}

fn is_paused(row: &InstanceRow) -> bool {
    row.blocked.as_ref().is_some_and(|blocked| blocked.pause.is_some())
}

/// The position of a page in a list: the key of the last row before it.
pub type PageKey = InstanceKey;

/// Rows, and where the next page begins.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// The rows, in the requested order.
    pub rows: Vec<InstanceRow>,
    /// The key of the last row, after which the next page begins; `None` if this is the last page.
    pub next: Option<PageKey>,
}
