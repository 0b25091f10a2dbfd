//! Checking the rows that do not belong to an instance's own tables, used to verify a whole store.

use std::sync::Arc;

use crate::instance::InstanceKey;

use super::request::{RequestNumber, RequestRow};

/// Where a check continues. Its meaning is private to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowPlace {
    /// Which table.
    pub table: u8,
    /// The last row that was checked.
    pub row: u64,
}

/// A page of checked rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckedRows {
    /// Requests. The caller checks their content.
    pub requests: Vec<RequestRow>,
    /// Replies, by the number of their request. The caller checks their content.
    pub replies: Vec<(RequestNumber, Arc<[u8]>)>,
    /// Rows of any table that the store itself finds damaged, or that belong to no instance.
    pub damage: Vec<DamagedRow>,
    /// Where to continue; `None` if everything was checked.
    pub next: Option<RowPlace>,
}

/// A row that is damaged, or belongs to no instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedRow {
    /// The key of the instance that it names, if it can be read.
    pub key: Option<InstanceKey>,
    /// The id of that instance, if it exists.
    pub id: Option<String>,
    /// A description of the row, such as `message 7`.
    pub what: String,
    /// What is wrong with it.
    pub problem: String,
}
