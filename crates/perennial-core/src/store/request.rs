//! Requests that want a reply, from processes that do not own the instance: queries and updates.

use std::sync::Arc;

use crate::instance::{InstanceKey, ShardId};

use super::commit::InboxNumber;

/// The number of a request. Numbers count up within a store and are never given twice.
pub type RequestNumber = u64;

/// A request to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRequest {
    /// The instance's id.
    pub instance: String,
    /// The key that the instance must have, if the sender knows it. Another one answers `NoInstance`.
    pub key: Option<InstanceKey>,
    /// How long request and reply are kept, by the store's clock.
    pub patience_ms: u64,
    /// The sender's last acknowledged message to this instance: the request takes effect after it.
    pub after: Option<InboxNumber>,
    /// What is asked.
    pub body: Arc<[u8]>,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// It is on disk.
    Written(RequestNumber),
    /// No instance has this id.
    NoInstance,
}

/// A request as the instance's owner reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestRow {
    /// Its number.
    pub number: RequestNumber,
    /// The instance it is bound to.
    pub key: InstanceKey,
    /// The instance's shard.
    pub shard: ShardId,
    /// When it is swept, by the store's clock.
    pub deadline_ms: u64,
    /// See [`NewRequest::after`].
    pub after: Option<InboxNumber>,
    /// What is asked.
    pub body: Arc<[u8]>,
}

/// A page of requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestPage {
    /// The rows, by number.
    pub rows: Vec<RequestRow>,
    /// Where the next page begins; `None` if this is the last.
    pub next: Option<RequestNumber>,
}

/// A reply, written by the commit that gives it. The request is deleted with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestReply {
    /// The request.
    pub number: RequestNumber,
    /// The reply.
    pub body: Arc<[u8]>,
}
