//! Stored turns, and the checksums that chain them.
//!
//! Each turn's checksum covers its instance, its number, its bytes and the previous checksum. A turn that was changed,
//! swapped, copied from elsewhere or removed is detected when the history is read, before any code runs on it. The
//! first turn chains from a value in its started event: zero, or the last checksum of the previous execution. The
//! checksum covers the stored bytes, with encoded payloads, so that a history can be verified without being able to
//! decode it.

use std::sync::Arc;

use crate::codec::{CodecError, Codecs, Mode, PayloadContext};
use crate::history::{CorruptHistory, HistoryError, Turn, decode_turn, decode_turn_with, encode_turn_with};
use crate::instance::InstanceKey;

/// A stored turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnRow {
    /// The number of the execution, from 1.
    pub execution: u64,
    /// The number of the turn, counted from 1.
    pub number: u64,
    /// The encoded turn.
    pub bytes: Arc<[u8]>,
    /// Covers the instance's key, execution and number, the previous turn's checksum, and the bytes.
    pub checksum: u32,
}

impl TurnRow {
    /// Encodes a turn that follows one with the checksum `previous`.
    pub fn seal(key: InstanceKey, execution: u64, previous: u32, turn: &Turn) -> TurnRow {
        TurnRow::seal_with(&Codecs::default(), key, execution, previous, turn).expect("no codec can fail")
    }

    /// Like [`seal`](TurnRow::seal), with the payloads encoded by codecs.
    pub fn seal_with(
        codecs: &Codecs,
        key: InstanceKey,
        execution: u64,
        previous: u32,
        turn: &Turn,
    ) -> Result<TurnRow, CodecError> {
        let bytes: Arc<[u8]> = encode_turn_with(turn, codecs, PayloadContext::of(key))?.into();
        let checksum = checksum(key, execution, turn.number, previous, &bytes);
        Ok(TurnRow { execution, number: turn.number, bytes, checksum })
    }

    /// Decodes the turn and its payloads. [`read_turns_with`] checks that it follows the previous turns.
    pub fn decode(&self, codecs: &Codecs, key: InstanceKey) -> Result<Turn, HistoryError> {
        decode_turn_with(self.number, &self.bytes, &Mode::Decode(codecs.clone(), PayloadContext::of(key)))
    }

    /// Whether an execution ended with this turn. Bytes that cannot be decoded are no ending.
    pub fn is_ending(&self) -> bool {
        decode_turn(self.number, &self.bytes).is_ok_and(|turn| turn.ending().is_some())
    }

    /// Whether the checksum is correct for a turn that follows one with the checksum `previous`.
    fn is_sound(&self, key: InstanceKey, previous: u32) -> bool {
        checksum(key, self.execution, self.number, previous, &self.bytes) == self.checksum
    }
}

/// The turns of one execution from the first on, and the checksum that the next turn chains from.
#[derive(Clone, Debug, Default)]
pub struct ReadTurns {
    /// The turns, in order.
    pub turns: Vec<Turn>,
    /// The checksum of the last one.
    pub checksum: u32,
}

/// Decodes all turns of an execution and verifies their order and checksums. Encoded payloads are replaced by
/// [markers](crate::codec::EncodedPayload::marker).
pub fn read_turns(key: InstanceKey, rows: &[TurnRow]) -> Result<ReadTurns, HistoryError> {
    read_in_mode(key, rows, &Mode::Mark)
}

/// Like [`read_turns`], with decoded payloads. A payload that cannot be decoded is an error.
pub fn read_turns_with(
    codecs: &Codecs,
    key: InstanceKey,
    rows: &[TurnRow],
) -> Result<ReadTurns, HistoryError> {
    read_in_mode(key, rows, &Mode::Decode(codecs.clone(), PayloadContext::of(key)))
}

fn read_in_mode(key: InstanceKey, rows: &[TurnRow], mode: &Mode) -> Result<ReadTurns, HistoryError> {
    let mut reader = TurnReader::new(key);
    let turns = rows.iter().map(|row| reader.read_in_mode(row, mode)).collect::<Result<_, _>>()?;
    Ok(ReadTurns { turns, checksum: reader.checksum })
}

/// Reads the turns of one execution one at a time, from the first on, so that a long history need not be in memory.
/// Encoded payloads are replaced by [markers](crate::codec::EncodedPayload::marker).
#[derive(Clone, Debug)]
pub struct TurnReader {
    key: InstanceKey,
    /// How many turns were read.
    turns: u64,
    /// The checksum that the next turn chains from.
    checksum: u32,
}

impl TurnReader {
    /// Starts before the first turn of an execution.
    pub fn new(key: InstanceKey) -> TurnReader {
        TurnReader { key, turns: 0, checksum: 0 }
    }

    /// Starts after a turn that is not verified itself: the turns that follow have to be chained to it.
    pub fn after(key: InstanceKey, row: &TurnRow) -> TurnReader {
        TurnReader { key, turns: row.number, checksum: row.checksum }
    }

    /// Decodes the next turn and verifies its number and checksum.
    pub fn read(&mut self, row: &TurnRow) -> Result<Turn, HistoryError> {
        self.read_in_mode(row, &Mode::Mark)
    }

    /// Like [`read`](TurnReader::read), with decoded payloads. If one cannot be decoded, all encoded payloads of the
    /// turn are replaced by markers.
    pub fn read_with(&mut self, codecs: &Codecs, row: &TurnRow) -> Result<Turn, HistoryError> {
        let mode = Mode::Decode(codecs.clone(), PayloadContext::of(self.key));
        match self.read_in_mode(row, &mode) {
            Err(HistoryError::Undecodable { .. }) => self.read(row),
            read => read,
        }
    }

    fn read_in_mode(&mut self, row: &TurnRow, mode: &Mode) -> Result<Turn, HistoryError> {
        let number = self.turns + 1;
        let corrupt = |problem: String| HistoryError::from(CorruptHistory::turn(number, problem));
        if row.number != number {
            return Err(corrupt(format!("turn {} is stored in its place", row.number)));
        }
        let (turn, undecodable) = match decode_turn_with(number, &row.bytes, mode) {
            // A wrong checksum takes precedence over a codec error: damaged bytes may fail to decode in any way.
            Err(error @ HistoryError::Undecodable { .. }) => (decode_turn(number, &row.bytes)?, Some(error)),
            decoded => (decoded?, None),
        };
        if let Some(started) = turn.started() {
            self.checksum = started.chain;
            if started.execution != row.execution {
                return Err(corrupt(format!(
                    "it belongs to execution {}, and is stored with execution {}",
                    started.execution, row.execution
                )));
            }
        }
        if !row.is_sound(self.key, self.checksum) {
            return Err(corrupt(
                "its checksum does not match: it was changed, or another turn was".to_owned(),
            ));
        }
        if let Some(undecodable) = undecodable {
            return Err(undecodable);
        }
        (self.turns, self.checksum) = (number, row.checksum);
        Ok(turn)
    }
}

fn checksum(key: InstanceKey, execution: u64, number: u64, previous: u32, bytes: &[u8]) -> u32 {
    // Collected first: the hasher is faster with many bytes at a time.
    let mut place = [0; 36];
    place[..16].copy_from_slice(key.as_bytes());
    place[16..24].copy_from_slice(&execution.to_le_bytes());
    place[24..32].copy_from_slice(&number.to_le_bytes());
    place[32..].copy_from_slice(&previous.to_le_bytes());
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&place);
    hasher.update(bytes);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Event, EventId, EventKind, FORMAT, Job, Payload, Started};

    fn key(number: u128) -> InstanceKey {
        InstanceKey::new(1, number)
    }

    fn history(key: InstanceKey, chain: u32) -> Vec<TurnRow> {
        let started = Started { chain, ..Started::new("n", "1.0.0", Payload::null(), 7) };
        let mut rows = Vec::new();
        let mut previous = chain;
        for number in 1..=3 {
            let kind = match number {
                1 => EventKind::Started(Box::new(started.clone())),
                _ => EventKind::Job(Job::ExternalEvent {
                    name: "e".to_owned(),
                    payload: Payload::from(format!("{number}")),
                    key: None,
                    trace: None,
                }),
            };
            let event = Event { id: EventId(number), kind };
            let turn = Turn { format: FORMAT, number, at_ms: number, draws: 0, events: vec![event] };
            let row = TurnRow::seal(key, 1, previous, &turn);
            previous = row.checksum;
            rows.push(row);
        }
        rows
    }

    #[test]
    fn e3_turns_are_read_back_as_they_were_sealed() {
        for chain in [0, 77] {
            let rows = history(key(1), chain);
            let read = read_turns(key(1), &rows).unwrap();
            assert_eq!((read.turns.len(), read.checksum), (3, rows[2].checksum));
        }
    }

    #[test]
    fn h42_turns_are_read_and_verified_from_the_middle() {
        let rows = history(key(1), 77);
        let mut reader = TurnReader::after(key(1), &rows[0]);
        assert_eq!(reader.read_with(&Codecs::default(), &rows[1]).unwrap().number, 2);
        assert_eq!(reader.read(&rows[2]).unwrap().number, 3);
        assert!(TurnReader::after(key(1), &rows[0]).read(&rows[2]).is_err(), "a turn is missing");
        let changed = TurnRow { checksum: rows[0].checksum ^ 1, ..rows[0].clone() };
        assert!(TurnReader::after(key(1), &changed).read(&rows[1]).is_err(), "it is chained to another turn");
    }

    #[test]
    fn e3_a_changed_byte_a_foreign_a_swapped_and_a_missing_turn_are_seen() {
        let rows = history(key(1), 0);
        for place in 0..rows[1].bytes.len() {
            let mut changed = rows.clone();
            let mut bytes = changed[1].bytes.to_vec();
            bytes[place] ^= 1;
            changed[1].bytes = bytes.into();
            assert!(read_turns(key(1), &changed).is_err(), "byte {place}");
        }
        assert!(read_turns(key(2), &rows).is_err(), "another instance's turns");
        assert!(read_turns(key(1), &[rows[0].clone(), rows[2].clone()]).is_err(), "a gap");
        let mut renumbered = rows[2].clone();
        renumbered.number = 2;
        assert!(read_turns(key(1), &[rows[0].clone(), renumbered]).is_err(), "a renumbered turn");
        let moved: Vec<TurnRow> = rows.into_iter().map(|row| TurnRow { execution: 2, ..row }).collect();
        assert!(read_turns(key(1), &moved).is_err(), "another execution's number");
    }
}
