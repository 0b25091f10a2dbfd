//! Which instances a list shows, page by page.

use super::row::{InstanceRow, Status};
use crate::instance::InstanceKey;

/// What a row has to be like. Everything that is set has to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// One of these statuses; any if empty.
    pub statuses: Vec<Status>,
    /// The orchestration.
    pub name: Option<String>,
    /// How the id begins.
    pub id_prefix: Option<String>,
    /// Whether it is blocked.
    pub blocked: Option<bool>,
}

impl Filter {
    /// Whether a row is shown.
    pub fn matches(&self, row: &InstanceRow) -> bool {
        (self.statuses.is_empty() || self.statuses.contains(&row.status))
            && self.name.as_ref().is_none_or(|name| *name == row.name)
            && self.id_prefix.as_ref().is_none_or(|prefix| row.id.starts_with(prefix.as_str()))
            && self.blocked.is_none_or(|blocked| blocked == row.blocked.is_some())
    }
}

/// The place behind which a page begins: the key of the row before it.
pub type PageKey = InstanceKey;

/// Some rows, and where to go on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// The rows, oldest first.
    pub rows: Vec<InstanceRow>,
    /// Where the next page begins; none if this is the last.
    pub next: Option<PageKey>,
}
