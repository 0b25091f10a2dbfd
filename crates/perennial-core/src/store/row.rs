//! The row of an instance: what lists show and what the engine searches for.

use serde::{Deserialize, Serialize};

use crate::history::{Attributes, Ending, ParentLink, Payload, Started};
use crate::instance::{InstanceKey, ShardId};
use crate::timestamp::Timestamp;

use super::blocked::Blocked;

/// The status of an instance. Whether it is blocked is independent of this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It has not taken its first turn.
    Pending,
    /// It is under way.
    Running,
    /// It returned a result.
    Completed,
    /// It returned an error.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// It was ended without running its code.
    Terminated,
}

impl Status {
    /// All statuses.
    pub const ALL: [Status; 6] = [
        Status::Pending,
        Status::Running,
        Status::Completed,
        Status::Failed,
        Status::Cancelled,
        Status::Terminated,
    ];

    /// Its name in lists and rows.
    pub fn name(self) -> &'static str {
        match self {
            Status::Pending => "pending",
            Status::Running => "running",
            Status::Completed => "completed",
            Status::Failed => "failed",
            Status::Cancelled => "cancelled",
            Status::Terminated => "terminated",
        }
    }

    /// The status with a name.
    pub fn from_name(name: &str) -> Option<Status> {
        Status::ALL.into_iter().find(|status| status.name() == name)
    }

    /// Whether the instance has ended.
    pub fn is_final(self) -> bool {
        !matches!(self, Status::Pending | Status::Running)
    }

    /// The status after an ending. An instance that continues as new keeps running.
    pub fn after(ending: &Ending) -> Status {
        match ending {
            Ending::OrchestrationCompleted { .. } => Status::Completed,
            Ending::OrchestrationFailed { .. } => Status::Failed,
            Ending::OrchestrationContinuedAsNew { .. } => Status::Running,
            Ending::OrchestrationCancelled { .. } => Status::Cancelled,
            Ending::OrchestrationTerminated { .. } => Status::Terminated,
        }
    }
}

/// The stored row of an instance.
#[derive(Clone, Debug, PartialEq)]
pub struct InstanceRow {
    /// Its identity, never reused.
    pub key: InstanceKey,
    /// Its name, unique among existing instances.
    pub id: String,
    /// Its shard, derived from its id.
    pub shard: ShardId,
    /// The orchestration.
    pub name: String,
    /// The orchestration's version.
    pub version: String,
    /// Where it stands.
    pub status: Status,
    /// The current execution.
    pub execution: u64,
    /// Whether a node has to pick up work for it after a crash.
    pub owed: bool,
    /// When it next needs attention; may be early, never late.
    pub wake_at_ms: Option<u64>,
    /// Why it is blocked, if it is.
    pub blocked: Option<Blocked>,
    /// Whether it has so many unread events that senders are refused. The owner sets and clears it.
    pub full: bool,
    /// The search attributes.
    pub attributes: Attributes,
    /// The published status.
    pub published: Option<Payload>,
    /// The parent that waits for its outcome.
    pub parent: Option<ParentLink>,
    /// When it was started.
    pub created_ms: u64,
    /// When it ended, if it has.
    pub ended_ms: Option<u64>,
    /// Covers the columns that never change. See [`InstanceRow::is_sound`].
    pub checksum: u32,
}

impl InstanceRow {
    /// When it was started.
    pub fn created(&self) -> Timestamp {
        Timestamp::from_millis(self.created_ms)
    }

    /// When it ended, if it has.
    pub fn ended(&self) -> Option<Timestamp> {
        self.ended_ms.map(Timestamp::from_millis)
    }

    /// An instance that has not taken its first turn.
    pub fn pending(key: InstanceKey, id: &str, started: &Started, created_ms: u64) -> InstanceRow {
        InstanceRow {
            key,
            id: id.to_owned(),
            shard: ShardId::of(id),
            name: started.name.clone(),
            version: started.version.clone(),
            status: Status::Pending,
            execution: started.execution,
            owed: false,
            wake_at_ms: None,
            blocked: None,
            full: false,
            attributes: started.attributes.clone(),
            published: started.status.clone(),
            parent: started.parent.clone(),
            created_ms,
            ended_ms: None,
            checksum: row_checksum(key, id, &started.name, created_ms, started.parent.as_ref()),
        }
    }

    /// Whether the columns that never change still have the values from the start of the instance. The shard follows
    /// from the id.
    pub fn is_sound(&self) -> bool {
        self.shard == ShardId::of(&self.id)
            && self.checksum
                == row_checksum(self.key, &self.id, &self.name, self.created_ms, self.parent.as_ref())
    }

    /// Sets the correct checksum, for a row that was assembled by hand.
    #[must_use]
    pub fn sealed(self) -> InstanceRow {
        let checksum = row_checksum(self.key, &self.id, &self.name, self.created_ms, self.parent.as_ref());
        InstanceRow { checksum, ..self }
    }
}

/// The checksum of the columns of an instance's row that never change.
pub fn row_checksum(
    key: InstanceKey,
    id: &str,
    name: &str,
    created_ms: u64,
    parent: Option<&ParentLink>,
) -> u32 {
    // Collected first: the hasher is faster with many bytes at a time.
    let mut bytes = Vec::with_capacity(128);
    // With a length prefix, moving bytes from one text to the next changes the checksum.
    let text = |bytes: &mut Vec<u8>, text: &str| {
        bytes.extend((text.len() as u64).to_le_bytes());
        bytes.extend(text.as_bytes());
    };
    bytes.extend(key.as_bytes());
    text(&mut bytes, id);
    text(&mut bytes, name);
    bytes.extend(created_ms.to_le_bytes());
    if let Some(ParentLink { instance, key, execution, event_id }) = parent {
        text(&mut bytes, instance);
        text(&mut bytes, key);
        bytes.extend(execution.to_le_bytes());
        bytes.extend(event_id.0.to_le_bytes());
    }
    crc32fast::hash(&bytes)
}

/// A row inserted by a start.
pub type NewInstance = InstanceRow;

/// Changes to a row; `None` leaves a column unchanged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RowChange {
    /// See [`InstanceRow::status`].
    pub status: Option<Status>,
    /// See [`InstanceRow::execution`].
    pub execution: Option<u64>,
    /// See [`InstanceRow::version`].
    pub version: Option<String>,
    /// See [`InstanceRow::owed`].
    pub owed: Option<bool>,
    /// See [`InstanceRow::wake_at_ms`].
    pub wake_at_ms: Option<Option<u64>>,
    /// See [`InstanceRow::blocked`].
    pub blocked: Option<Option<Blocked>>,
    /// See [`InstanceRow::full`].
    pub full: Option<bool>,
    /// See [`InstanceRow::attributes`].
    pub attributes: Option<Attributes>,
    /// See [`InstanceRow::published`].
    pub published: Option<Option<Payload>>,
    /// See [`InstanceRow::ended_ms`]. Set to `None` when an ended instance is reset and runs again.
    pub ended_ms: Option<Option<u64>>,
}

impl RowChange {
    /// Whether nothing changes, so that the row need not be written.
    pub fn is_empty(&self) -> bool {
        *self == RowChange::default()
    }

    /// Applies the changes.
    pub fn apply(&self, row: &mut InstanceRow) {
        let RowChange {
            status,
            execution,
            version,
            owed,
            wake_at_ms,
            blocked,
            full,
            attributes,
            published,
            ended_ms,
        } = self.clone();
        row.status = status.unwrap_or(row.status);
        row.execution = execution.unwrap_or(row.execution);
        row.owed = owed.unwrap_or(row.owed);
        row.full = full.unwrap_or(row.full);
        row.ended_ms = ended_ms.unwrap_or(row.ended_ms);
        row.wake_at_ms = wake_at_ms.unwrap_or(row.wake_at_ms);
        if let Some(version) = version {
            row.version = version;
        }
        if let Some(blocked) = blocked {
            row.blocked = blocked;
        }
        if let Some(attributes) = attributes {
            row.attributes = attributes;
        }
        if let Some(published) = published {
            row.published = published;
        }
    }
}
