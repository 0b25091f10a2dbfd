//! The encoding of rows in the file. The rows of the contract have no encoding: a store chooses one.
//!
//! Bodies are written in hexadecimal digits, and JSON of users as text within JSON: a line must not contain a
//! newline of a user, and their text must be read unchanged.

use std::sync::Arc;

use perennial_core::store::{
    Blocked, InboxNumber, InstanceRow, RequestNumber, RequestRow, SessionId, Status, TaskId, TaskRow,
    TaskState, TurnRow,
};
use perennial_core::{Attributes, EventId, InstanceKey, ParentLink, Payload, ShardId, Trail};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
#[serde(remote = "InstanceRow")]
pub(super) struct InstanceFormat {
    key: InstanceKey,
    id: String,
    shard: ShardId,
    name: String,
    version: String,
    status: Status,
    execution: u64,
    owed: bool,
    wake_at_ms: Option<u64>,
    blocked: Option<Blocked>,
    full: bool,
    #[serde(with = "texts")]
    attributes: Attributes,
    #[serde(with = "maybe_text")]
    published: Option<Payload>,
    parent: Option<ParentLink>,
    created_ms: u64,
    ended_ms: Option<u64>,
    checksum: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "TurnRow")]
pub(super) struct TurnFormat {
    execution: u64,
    number: u64,
    #[serde(with = "hex")]
    bytes: Arc<[u8]>,
    checksum: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "TaskId")]
pub(super) struct TaskIdFormat {
    key: InstanceKey,
    execution: u64,
    event: EventId,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "TaskState")]
enum TaskStateFormat {
    Queued,
    Leased {
        #[serde(with = "session")]
        holder: SessionId,
        cancelled: bool,
    },
    Waiting,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "TaskRow")]
pub(super) struct TaskFormat {
    #[serde(with = "TaskIdFormat")]
    id: TaskId,
    shard: ShardId,
    attempt: u32,
    #[serde(with = "TaskStateFormat")]
    state: TaskState,
    due_ms: Option<u64>,
    since_ms: Option<u64>,
    #[serde(with = "maybe_text")]
    details: Option<Payload>,
    heard_ms: Option<u64>,
    interruptions: u32,
    #[serde(with = "maybe_session")]
    begun: Option<SessionId>,
    past: Trail,
    name: String,
    tag: Option<String>,
    #[serde(with = "maybe_hex")]
    work: Option<Arc<[u8]>>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "RequestRow")]
pub(super) struct RequestFormat {
    number: RequestNumber,
    key: InstanceKey,
    shard: ShardId,
    deadline_ms: u64,
    after: Option<InboxNumber>,
    #[serde(with = "hex")]
    body: Arc<[u8]>,
}

/// Serializes a type as another one that serde supports.
macro_rules! written_as {
    ($module:ident, $type:ty, $written:ty, $write:expr, $read:expr) => {
        pub(super) mod $module {
            use super::*;

            pub(in super::super) fn serialize<S: serde::Serializer>(
                value: &$type,
                serializer: S,
            ) -> Result<S::Ok, S::Error> {
                let write: fn(&$type) -> $written = $write;
                write(value).serialize(serializer)
            }

            pub(in super::super) fn deserialize<'de, D: serde::Deserializer<'de>>(
                deserializer: D,
            ) -> Result<$type, D::Error> {
                let read: fn($written) -> Option<$type> = $read;
                let unreadable = || serde::de::Error::custom(concat!("not a ", stringify!($module)));
                read(<$written>::deserialize(deserializer)?).ok_or_else(unreadable)
            }
        }
    };
}

written_as!(hex, Arc<[u8]>, String, |bytes| to_hex(bytes), |text| from_hex(&text));
written_as!(
    maybe_hex,
    Option<Arc<[u8]>>,
    Option<String>,
    |bytes| bytes.as_ref().map(|bytes| to_hex(bytes)),
    |text| text.map_or(Some(None), |text| from_hex(&text).map(Some))
);
written_as!(session, SessionId, String, |session| format!("{:032x}", session.0), |text| {
    u128::from_str_radix(&text, 16).ok().map(SessionId)
});
written_as!(
    maybe_session,
    Option<SessionId>,
    Option<String>,
    |session| session.map(|session| format!("{:032x}", session.0)),
    |text| text.map_or(Some(None), |text| u128::from_str_radix(&text, 16).ok().map(SessionId).map(Some))
);
written_as!(
    maybe_text,
    Option<Payload>,
    Option<String>,
    |payload| payload.as_ref().map(|payload| payload.as_json().to_owned()),
    |text| text.map_or(Some(None), |text| Payload::from_json(&text).ok().map(Some))
);
written_as!(
    texts,
    Attributes,
    Vec<(String, String)>,
    |map| map.iter().map(|(name, value)| (name.clone(), value.as_json().to_owned())).collect(),
    |pairs| pairs.into_iter().map(|(name, text)| Some((name, Payload::from_json(&text).ok()?))).collect()
);

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Arc<[u8]>> {
    let pairs = text.as_bytes().chunks(2).map(std::str::from_utf8);
    pairs.map(|pair| u8::from_str_radix(pair.ok()?, 16).ok()).collect()
}
