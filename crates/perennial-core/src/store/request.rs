//! Requests with a reply from processes that do not own the instance: queries, updates and other instance calls.

use std::sync::Arc;

use crate::instance::{InstanceKey, ShardId};

use super::commit::InboxNumber;

/// The number of a request. Numbers increase within a store and are never reused.
pub type RequestNumber = u64;

/// A request to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRequest {
    /// The instance's id.
    pub instance: String,
    /// The key that the instance must have, if the sender knows it; otherwise the outcome is `NoInstance`.
    pub key: Option<InstanceKey>,
    /// How long the request and its reply are kept, by the store's clock.
    pub patience_ms: u64,
    /// The sender's last acknowledged message to this instance: the request takes effect after it.
    pub after: Option<InboxNumber>,
    /// The encoded call.
    pub body: Arc<[u8]>,
}

/// The outcome of writing a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// It is durable.
    Written(RequestNumber),
    /// No instance has this id.
    NoInstance,
}

/// A request as the instance's owner reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestRow {
    /// Its place in the order of arrival.
    pub number: RequestNumber,
    /// The receiving instance.
    pub key: InstanceKey,
    /// The instance's shard.
    pub shard: ShardId,
    /// When it is swept, by the store's clock.
    pub deadline_ms: u64,
    /// See [`NewRequest::after`].
    pub after: Option<InboxNumber>,
    /// The encoded call.
    pub body: Arc<[u8]>,
}

/// A page of requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestPage {
    /// The rows, ordered by number.
    pub rows: Vec<RequestRow>,
    /// Where the next page begins; `None` if this is the last.
    pub next: Option<RequestNumber>,
}

/// A reply, written by the commit that produces it. The request is deleted with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestReply {
    /// The request that is answered.
    pub number: RequestNumber,
    /// The encoded reply.
    pub body: Arc<[u8]>,
}
