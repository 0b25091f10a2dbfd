//! Where an instance stands, as callers see it.

use perennial_core::store::{Blocked, InstanceRow, Status};
use perennial_core::{Attributes, InstanceKey, ParentLink, Payload};

/// Where an instance stands.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct InstanceStatus {
    /// Its id.
    pub id: String,
    /// Its never-reused key.
    pub key: InstanceKey,
    /// The orchestration.
    pub name: String,
    /// The orchestration's version.
    pub version: String,
    /// Where it stands.
    pub status: Status,
    /// The current execution.
    pub execution: u64,
    /// Why it does not go on, if so.
    pub blocked: Option<Blocked>,
    /// Searchable values.
    pub attributes: Attributes,
    /// What its code published.
    pub published: Option<Payload>,
    /// Who started it, if it is somebody's child.
    pub parent: Option<ParentLink>,
    /// When it was started, in milliseconds since 1970.
    pub created_ms: u64,
    /// When it ended, if it has.
    pub ended_ms: Option<u64>,
}

impl From<InstanceRow> for InstanceStatus {
    fn from(row: InstanceRow) -> InstanceStatus {
        InstanceStatus {
            id: row.id,
            key: row.key,
            name: row.name,
            version: row.version,
            status: row.status,
            execution: row.execution,
            blocked: row.blocked,
            attributes: row.attributes,
            published: row.published,
            parent: row.parent,
            created_ms: row.created_ms,
            ended_ms: row.ended_ms,
        }
    }
}
