//! Reading a history without running its code.
//!
//! What happens to a blocked instance, or to one that has to end, is decided from its history. Decoding time grows with
//! the history, so it happens on a turn thread ([`TurnSource::Record`](super::TurnSource::Record)), never under the
//! lock of the lane.

use crate::codec::Codecs;
use crate::execution::TurnFailure;
use crate::history::{CorruptHistory, HistoryError, Ledger, Started, Turn};
use crate::instance::InstanceKey;
use crate::store::{ReadTurns, TurnRow, read_turns, read_turns_with};

use super::block_reason::BlockReason;

/// A decoded history.
#[derive(Debug)]
pub struct Record {
    pub(super) history: ReadTurns,
    pub(super) ledger: Ledger,
    /// Why its payloads are not decoded, if they are not. No code may run on it then.
    pub(super) undecodable: Option<BlockReason>,
}

impl Record {
    pub(super) fn read(codecs: &Codecs, key: InstanceKey, rows: &[TurnRow]) -> Result<Record, BlockReason> {
        let failed = |error: HistoryError| BlockReason::from(TurnFailure::from(error));
        let (history, undecodable) = match read_turns_with(codecs, key, rows) {
            // What is open, and who waits, is known without the payloads: the instance can still be ended properly.
            Err(error @ HistoryError::Undecodable { .. }) => {
                (read_turns(key, rows).map_err(failed)?, Some(failed(error)))
            }
            read => (read.map_err(failed)?, None),
        };
        started_of(&history)?;
        let mut ledger = Ledger::default();
        history.turns.iter().try_for_each(|turn| ledger.apply_turn(turn)).map_err(failed)?;
        Ok(Record { history, ledger, undecodable })
    }

    /// How many turns it has.
    pub(crate) fn turns(&self) -> u64 {
        self.history.turns.len() as u64
    }

    /// How the execution started.
    pub(crate) fn started(&self) -> &Started {
        started_of(&self.history).expect("it was looked at when it was read")
    }
}

/// How an execution started, according to its first turn.
pub(super) fn started_of(history: &ReadTurns) -> Result<&Started, BlockReason> {
    history.turns.first().and_then(Turn::started).ok_or_else(|| {
        let error = CorruptHistory::turn(1, "the first event does not tell how the execution started");
        BlockReason::from(TurnFailure::from(HistoryError::from(error)))
    })
}

/// The turns of a loaded instance.
pub(super) enum Past {
    /// They are in their stored form; empty if it has not started.
    Stored(Vec<TurnRow>),
    /// They are decoded.
    Read(Box<Record>),
    /// They cannot be decoded.
    Unreadable(BlockReason),
}

impl Past {
    pub(super) fn record(&self) -> Option<&Record> {
        match self {
            Past::Read(record) => Some(record),
            Past::Stored(_) | Past::Unreadable(_) => None,
        }
    }
}
