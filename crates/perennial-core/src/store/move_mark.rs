//! The mark of a store that was moved, or is being moved.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::error::StoreError;

/// The mark that a move leaves in both stores, as a setting. While a store has it, no node and no lane can open a
/// session: nobody continues in both stores, or in one that has half of the rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveMark {
    /// Identifies the move in both stores.
    pub id: String,
    /// Which of the two stores this is.
    pub side: MoveSide,
    /// The other store, as it may be shown: without a password.
    pub other: String,
    /// Whether all rows were moved and checked.
    pub is_done: bool,
}

/// A side of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MoveSide {
    /// The store that is moved.
    Source,
    /// The store that it is moved to.
    Target,
}

impl MoveMark {
    /// The name of the setting.
    pub const SETTING: &'static str = "move";

    /// Decodes the setting's value.
    pub fn decode(value: &[u8]) -> Result<MoveMark, StoreError> {
        let corrupt = |error| StoreError::CorruptRow(format!("the setting {:?}: {error}", MoveMark::SETTING));
        serde_json::from_slice(value).map_err(corrupt)
    }

    /// The setting's value.
    pub fn encode(&self) -> Arc<[u8]> {
        serde_json::to_vec(self).expect("texts encode as JSON").into()
    }

    /// The error with which a store with this mark refuses to be used.
    pub fn refusal(value: &[u8]) -> StoreError {
        match MoveMark::decode(value) {
            Ok(mark) => StoreError::CannotOpen(mark.to_string()),
            Err(error) => error,
        }
    }
}

/// Says what happened to the store, and what to do.
impl fmt::Display for MoveMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let other = &self.other;
        match (self.side, self.is_done) {
            (MoveSide::Source, true) => write!(
                f,
                "this store was moved to {other}; use that one, or run `perennial move --reopen` to go on with this one"
            ),
            (MoveSide::Source, false) => write!(
                f,
                "this store is being moved to {other}; run the same `perennial move` again to finish, or `perennial move \
                 --reopen` to go on with this one"
            ),
            (MoveSide::Target, _) => write!(
                f,
                "this store has only a part of the rows of {other}, which is being moved here; run the same `perennial \
                 move` again to finish"
            ),
        }
    }
}
