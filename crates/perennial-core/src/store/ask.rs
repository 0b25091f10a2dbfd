//! Requests that want an answer, from processes that do not own the instance: queries and updates.

use std::sync::Arc;

use crate::instance::{InstanceKey, ShardId};

/// The number of a request, counting up within a store.
pub type AskNumber = u64;

/// A request to an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The instance's id.
    pub instance: String,
    /// When request and answer are swept.
    pub deadline_ms: u64,
    /// What is asked.
    pub body: Arc<[u8]>,
}

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskOutcome {
    /// It is on disk.
    Asked(AskNumber),
    /// No instance has this id.
    NoInstance,
}

/// A request as its owner reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskRow {
    /// Its number.
    pub number: AskNumber,
    /// The instance it is bound to.
    pub key: InstanceKey,
    /// The instance's shard.
    pub shard: ShardId,
    /// When it is swept.
    pub deadline_ms: u64,
    /// What is asked.
    pub body: Arc<[u8]>,
}

/// An answer, written with the commit that gives it; the request goes with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskAnswer {
    /// The request.
    pub number: AskNumber,
    /// What is answered.
    pub body: Arc<[u8]>,
}
