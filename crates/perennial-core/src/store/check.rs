//! Checking the rows beside the instances, for whoever verifies a whole store.

use std::sync::Arc;

use crate::instance::InstanceKey;

use super::request::{RequestNumber, RequestRow};

/// Where a check goes on. What it means is the store's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowPlace {
    /// Which table.
    pub table: u8,
    /// The row behind which to go on.
    pub row: u64,
}

/// Some rows that were checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckedRows {
    /// Requests. What they say is checked by the caller.
    pub requests: Vec<RequestRow>,
    /// Replies, by their request's number. What they say is checked by the caller.
    pub replies: Vec<(RequestNumber, Arc<[u8]>)>,
    /// Rows of any table that the store itself finds damaged, or that belong to no instance.
    pub damage: Vec<DamagedRow>,
    /// Where to go on; `None` if everything was checked.
    pub next: Option<RowPlace>,
}

/// A row that is damaged, or belongs to no instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedRow {
    /// The instance that it names, if that can be read.
    pub key: Option<InstanceKey>,
    /// The id of that instance, if it exists.
    pub id: Option<String>,
    /// Which row it is, in words: `message 7`.
    pub what: String,
    /// What is wrong with it.
    pub problem: String,
}
