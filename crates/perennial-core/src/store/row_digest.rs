//! Counts and hashes of rows, to compare two stores after a move.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::moving::{MovedMessage, MovedRow};
use super::row::InstanceRow;
use super::task::{TaskRow, TaskState};

/// A count and a hash of rows, independent of their order: stores page through their rows in different orders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowDigest {
    /// How many rows.
    pub rows: u64,
    /// The sum of the hashes of all rows.
    hash: u128,
}

impl RowDigest {
    /// Adds a row.
    pub fn add(&mut self, row: &MovedRow) {
        self.rows += 1;
        self.hash = self.hash.wrapping_add(hash(&canonical(row)));
    }
}

/// The hash as hexadecimal digits.
impl fmt::Display for RowDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.hash)
    }
}

/// FNV-1a, 128 bits. It detects accidents, not attacks.
fn hash(bytes: &[u8]) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(OFFSET, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME))
}

/// A row as bytes that are the same whichever store it comes from.
fn canonical(row: &MovedRow) -> Vec<u8> {
    let mut bytes = Canonical(Vec::with_capacity(row.weight() + 64));
    bytes.number(row.table() as u64);
    match row {
        MovedRow::Instance(row) => bytes.instance(row),
        MovedRow::Turn(key, turn) => {
            bytes.bytes(key.as_bytes());
            bytes.number(turn.execution);
            bytes.number(turn.number);
            bytes.bytes(&turn.bytes);
            bytes.number(turn.checksum.into());
        }
        MovedRow::Message(MovedMessage { row, dedupe, parked }) => {
            bytes.number(row.number);
            bytes.bytes(row.key.as_bytes());
            bytes.number(row.shard.0.into());
            bytes.number(row.arrived_ms);
            bytes.number(u64::from(row.urgent) << 1 | u64::from(*parked));
            bytes.bytes(&row.body);
            bytes.maybe_bytes(dedupe.as_ref().map(|dedupe| dedupe.as_bytes()));
        }
        MovedRow::Task(row) => bytes.task(row),
        MovedRow::Continuation(key, execution, at_ms) => {
            bytes.bytes(key.as_bytes());
            bytes.number(*execution);
            bytes.number(*at_ms);
        }
        MovedRow::Shard(row) => {
            bytes.number(row.shard.0.into());
            bytes.number(row.unclean_ends.into());
            bytes.maybe_bytes(row.note.as_deref());
            bytes.number(row.gaps.len() as u64);
            for gap in &row.gaps {
                bytes.number(gap.from_ms);
                bytes.number(gap.until_ms);
            }
            bytes.maybe_number(row.idle_since_ms);
        }
        MovedRow::Setting(name, value) => {
            bytes.bytes(name.as_bytes());
            bytes.bytes(value);
        }
        MovedRow::LastMessage(number) => bytes.number(*number),
    }
    bytes.0
}

/// Bytes with lengths, so that moving bytes from one field to the next changes the hash.
struct Canonical(Vec<u8>);

impl Canonical {
    fn number(&mut self, number: u64) {
        self.0.extend(number.to_le_bytes());
    }

    fn maybe_number(&mut self, number: Option<u64>) {
        self.number(number.is_some().into());
        self.number(number.unwrap_or_default());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn maybe_bytes(&mut self, bytes: Option<&[u8]>) {
        self.number(bytes.is_some().into());
        self.bytes(bytes.unwrap_or_default());
    }

    fn json(&mut self, value: Option<&impl Serialize>) {
        let text = value.map(|value| serde_json::to_vec(value).expect("columns of a row encode as JSON"));
        self.maybe_bytes(text.as_deref());
    }

    fn instance(&mut self, row: &InstanceRow) {
        self.bytes(row.key.as_bytes());
        self.bytes(row.id.as_bytes());
        self.number(row.shard.0.into());
        self.bytes(row.name.as_bytes());
        self.bytes(row.version.as_bytes());
        self.bytes(row.status.name().as_bytes());
        self.number(row.execution);
        self.number(u64::from(row.owed) << 1 | u64::from(row.full));
        self.maybe_number(row.wake_at_ms);
        self.json(row.blocked.as_ref());
        self.json(Some(&row.attributes));
        self.maybe_bytes(row.published.as_ref().map(|published| published.as_json().as_bytes()));
        self.json(row.parent.as_ref());
        self.number(row.created_ms);
        self.maybe_number(row.ended_ms);
        self.number(row.checksum.into());
    }

    fn task(&mut self, row: &TaskRow) {
        self.bytes(row.id.key.as_bytes());
        self.number(row.id.execution);
        self.number(row.id.event.0);
        self.number(row.shard.0.into());
        self.number(row.attempt.into());
        self.bytes(row.state.name().as_bytes());
        if let TaskState::Leased { holder, cancelled } = row.state {
            self.bytes(&holder.0.to_le_bytes());
            self.number(cancelled.into());
        }
        self.maybe_number(row.due_ms);
        self.maybe_number(row.since_ms);
        self.maybe_number(row.heard_ms);
        self.maybe_bytes(row.details.as_ref().map(|details| details.as_json().as_bytes()));
        self.number(row.interruptions.into());
        self.maybe_bytes(row.begun.map(|begun| begun.0.to_le_bytes()).as_ref().map(|begun| &begun[..]));
        self.json(Some(&row.past));
        self.bytes(row.name.as_bytes());
        self.maybe_bytes(row.tag.as_ref().map(|tag| tag.as_bytes()));
        self.maybe_bytes(row.work.as_deref());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Payload, Started};
    use crate::instance::InstanceKey;
    use crate::store::turn::TurnRow;

    fn digest<'r>(rows: impl IntoIterator<Item = &'r MovedRow>) -> RowDigest {
        let mut digest = RowDigest::default();
        rows.into_iter().for_each(|row| digest.add(row));
        digest
    }

    fn instance(id: &str) -> InstanceRow {
        let started = Started::new("n", "1.0.0", Payload::null(), 7);
        InstanceRow::pending(InstanceKey::new(1, 1), id, &started, 5)
    }

    #[test]
    fn n19_a_digest_is_the_same_in_any_order_and_changes_with_every_column() {
        let key = InstanceKey::new(1, 1);
        let turn = |number: u64, text: &str, checksum: u32| {
            MovedRow::Turn(key, TurnRow { execution: 1, number, bytes: text.as_bytes().into(), checksum })
        };
        let rows = [turn(1, "a", 1), turn(2, "b", 2), MovedRow::Instance(Box::new(instance("i")))];
        assert_eq!(digest(&rows), digest(rows.iter().rev()));
        assert_eq!(digest(&rows).rows, 3);
        for other in [turn(2, "b", 3), turn(2, "c", 2), turn(3, "b", 2)] {
            assert_ne!(digest([&rows[0], &other, &rows[2]]), digest(&rows));
        }
        let base = instance("i");
        let changed = [
            InstanceRow { owed: true, ..base.clone() },
            InstanceRow { full: true, ..base.clone() },
            InstanceRow { wake_at_ms: Some(0), ..base.clone() },
            InstanceRow { ended_ms: Some(0), ..base.clone() },
            InstanceRow { published: Some(Payload::null()), ..base.clone() },
            InstanceRow { version: "2".to_owned(), ..base.clone() },
            InstanceRow { execution: 2, ..base.clone() },
            InstanceRow { checksum: base.checksum ^ 1, ..base.clone() },
        ];
        let base = MovedRow::Instance(Box::new(base));
        for row in changed {
            assert_ne!(digest([&MovedRow::Instance(Box::new(row.clone()))]), digest([&base]), "{row:?}");
        }
    }
}
