//! Which instances a list shows, page by page.

use std::collections::BTreeMap;

use crate::history::{Attributes, Payload};
use crate::instance::InstanceKey;

use super::condition::{Condition, KeyRange};
use super::order_key::order_key;
use super::row::{InstanceRow, Status};

/// What a row has to be like. Everything that is set has to hold.
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
    /// One of these statuses; any if empty.
    pub statuses: Vec<Status>,
    /// The orchestration.
    pub name: Option<String>,
    /// The orchestration's version.
    pub version: Option<String>,
    /// How the id begins.
    pub id_prefix: Option<String>,
    /// Whether it is blocked.
    pub blocked: Option<bool>,
    /// Whether somebody paused it, or its orchestration. What is paused is blocked, too.
    pub paused: Option<bool>,
    /// Whose child it is.
    pub parent: Option<InstanceKey>,
    /// Values that it has, by attribute; compared as JSON text.
    pub attributes: Attributes,
    /// Tests of attributes: by value, by prefix and by range.
    pub conditions: Vec<Condition>,
    /// Started at this time or later.
    pub created_from_ms: Option<u64>,
    /// Started before this time.
    pub created_before_ms: Option<u64>,
    /// Ended before this time.
    pub ended_before_ms: Option<u64>,
    /// The order of the list: oldest first, or newest first.
    pub newest_first: bool,
}

impl Criteria {
    /// Whether a row is shown.
    pub fn matches(&self, row: &InstanceRow) -> bool {
        let is_child_of =
            |parent: &InstanceKey| row.parent.as_ref().is_some_and(|link| link.key == parent.to_string());
        (self.statuses.is_empty() || self.statuses.contains(&row.status))
            && self.name.as_ref().is_none_or(|name| *name == row.name)
            && self.version.as_ref().is_none_or(|version| *version == row.version)
            && self.id_prefix.as_ref().is_none_or(|prefix| row.id.starts_with(prefix.as_str()))
            && self.blocked.is_none_or(|blocked| blocked == row.blocked.is_some())
            && self.paused.is_none_or(|paused| paused == is_paused(row))
            && self.parent.as_ref().is_none_or(is_child_of)
            && self.matches_attributes(&row.attributes)
            && self.created_from_ms.is_none_or(|from_ms| row.created_ms >= from_ms)
            && self.created_before_ms.is_none_or(|before_ms| row.created_ms < before_ms)
            && self
                .ended_before_ms
                .is_none_or(|before_ms| row.ended_ms.is_some_and(|at_ms| at_ms < before_ms))
    }

    /// Whether attributes are what the filter asks for.
    pub fn matches_attributes(&self, attributes: &Attributes) -> bool {
        let has = |(name, value): (&String, &Payload)| {
            attributes.get(name).is_some_and(|has| has.as_json() == value.as_json())
        };
        self.attributes.iter().all(has)
            && self.conditions.iter().all(|condition| {
                attributes.get(&condition.attribute).is_some_and(|value| condition.holds(value))
            })
    }

    /// The [`order_key`]s that each attribute may have, by name, for stores that look them up in an index. A row whose keys
    /// are in these ranges may still not match: [`attributes`](Criteria::attributes) are compared as JSON text.
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

fn is_paused(row: &InstanceRow) -> bool {
    row.blocked.as_ref().is_some_and(|blocked| blocked.pause.is_some())
}

/// The place behind which a page begins: the key of the row before it.
pub type PageKey = InstanceKey;

/// Some rows, and where to go on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// The rows, in the order that was asked for.
    pub rows: Vec<InstanceRow>,
    /// Where the next page begins; none if this is the last.
    pub next: Option<PageKey>,
}
