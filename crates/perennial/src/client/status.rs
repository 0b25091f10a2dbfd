//! Where an instance stands, as callers see it.

use perennial_core::store::{Blocked, InstanceRow, Status};
use perennial_core::{Attributes, InstanceKey, ParentLink, Payload, Timestamp};

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
    /// When it was started.
    pub created: Timestamp,
    /// When it ended, if it has.
    pub ended: Option<Timestamp>,
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
            created: Timestamp::from_millis(row.created_ms),
            ended: row.ended_ms.map(Timestamp::from_millis),
        }
    }
}
