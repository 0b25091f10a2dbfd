//! Exporting and importing rows.

use std::ops::Bound;

use crate::instance::InstanceKey;
use crate::store::error::StoreError;
use crate::store::move_mark::MoveMark;
use crate::store::moving::{Imported, MovedKey, MovedMessage, MovedRow, MovedShard, MovedTable};
use crate::store::page::{PageFill, PageLimit};
use crate::store::session::{SessionId, SessionRole};
use crate::store::shard_set::ShardSet;

use super::ownership::ShardEntry;
use super::tables::{Message, Tables};

/// The lower bound of a range that continues after a row of its own table.
macro_rules! after {
    ($after:expr, $key:pat => $bound:expr) => {
        match $after {
            Some($key) => Bound::Excluded($bound),
            _ => Bound::Unbounded,
        }
    };
}

impl Tables {
    /// Refuses sessions of nodes and lanes in a store with the mark of a move.
    pub(super) fn check_not_moved(&self, role: SessionRole) -> Result<(), StoreError> {
        match self.settings.get(MoveMark::SETTING) {
            Some(mark) if role != SessionRole::Maintenance => Err(MoveMark::refusal(mark)),
            _ => Ok(()),
        }
    }

    pub(super) fn export(
        &self,
        table: MovedTable,
        after: Option<&MovedKey>,
        limit: PageLimit,
    ) -> Vec<MovedRow> {
        let mut page = PageFill::new(limit);
        self.all_after(table, after).take_while(|row| page.admits(row.weight())).collect()
    }

    fn all_after<'t>(
        &'t self,
        table: MovedTable,
        after: Option<&MovedKey>,
    ) -> Box<dyn Iterator<Item = MovedRow> + 't> {
        let exists = |key: &InstanceKey| self.instances.contains_key(key);
        match table {
            MovedTable::Instances => {
                let rows =
                    self.instances.range((after!(after, MovedKey::Instance(key) => *key), Bound::Unbounded));
                Box::new(rows.map(|(_, row)| MovedRow::Instance(Box::new(row.clone()))))
            }
            MovedTable::Turns => {
                let rows = self.turns.range((
                    after!(after, MovedKey::Turn(key, execution, number) => (*key, *execution, *number)),
                    Bound::Unbounded,
                ));
                let rows = rows.filter(move |((key, ..), _)| exists(key));
                Box::new(rows.map(|((key, ..), turn)| MovedRow::Turn(*key, turn.clone())))
            }
            MovedTable::Messages => {
                let rows = self
                    .inbox
                    .range((after!(after, MovedKey::Message(_, number, _) => *number), Bound::Unbounded));
                let rows = rows.filter(move |(_, message)| exists(&message.to));
                Box::new(rows.map(|(number, message)| MovedRow::Message(message.moved(*number))))
            }
            MovedTable::Tasks => {
                let rows = self.tasks.range((after!(after, MovedKey::Task(id) => *id), Bound::Unbounded));
                let rows = rows.filter(move |(id, _)| exists(&id.key));
                Box::new(rows.map(|(_, row)| MovedRow::Task(Box::new(row.clone()))))
            }
            MovedTable::Continuations => {
                let rows = self.continued.range((
                    after!(after, MovedKey::Continuation(key, execution) => (*key, *execution)),
                    Bound::Unbounded,
                ));
                let rows = rows.filter(move |((key, _), _)| exists(key));
                Box::new(
                    rows.map(|((key, execution), at_ms)| MovedRow::Continuation(*key, *execution, *at_ms)),
                )
            }
            MovedTable::Shards => {
                let rows = self
                    .ownership
                    .shards
                    .range((after!(after, MovedKey::Shard(shard) => *shard), Bound::Unbounded));
                let rows = rows.map(|(shard, entry)| entry.moved(*shard)).filter(|row| !row.is_untouched());
                Box::new(rows.map(MovedRow::Shard))
            }
            MovedTable::Settings => {
                let rows = self
                    .settings
                    .range((after!(after, MovedKey::Setting(name) => name.clone()), Bound::Unbounded));
                let rows = rows.filter(|(name, _)| *name != MoveMark::SETTING);
                Box::new(rows.map(|(name, value)| MovedRow::Setting(name.clone(), value.clone())))
            }
            MovedTable::Counters => {
                let row = MovedRow::LastMessage(self.last_message());
                Box::new(after.is_none().then_some(row).into_iter())
            }
        }
    }

    pub(super) fn import(&mut self, session: SessionId, rows: Vec<MovedRow>) -> Result<Imported, StoreError> {
        self.ownership.check(session, &ShardSet::EMPTY)?;
        let mut imported = Imported::default();
        for row in rows {
            match self.stored(&row) {
                Some(stored) if stored == row => continue,
                Some(MovedRow::Shard(stored)) if stored.is_untouched() => {}
                Some(_) => imported.differs = Some(row.key()),
                None if self.is_taken(&row) => imported.differs = Some(row.key()),
                None => {}
            }
            if imported.differs.is_some() {
                break;
            }
            imported.written += 1;
            self.put(row);
        }
        Ok(imported)
    }

    /// The stored row with the same key.
    fn stored(&self, row: &MovedRow) -> Option<MovedRow> {
        Some(match row {
            MovedRow::Instance(row) => MovedRow::Instance(Box::new(self.instances.get(&row.key)?.clone())),
            MovedRow::Turn(key, turn) => {
                MovedRow::Turn(*key, self.turns.get(&(*key, turn.execution, turn.number))?.clone())
            }
            MovedRow::Message(MovedMessage { row, .. }) => {
                MovedRow::Message(self.inbox.get(&row.number)?.moved(row.number))
            }
            MovedRow::Task(row) => MovedRow::Task(Box::new(self.tasks.get(&row.id)?.clone())),
            MovedRow::Continuation(key, execution, _) => {
                MovedRow::Continuation(*key, *execution, *self.continued.get(&(*key, *execution))?)
            }
            MovedRow::Shard(row) => {
                let entry = self.ownership.shards.get(&row.shard);
                MovedRow::Shard(
                    entry.map_or(MovedShard::untouched(row.shard), |entry| entry.moved(row.shard)),
                )
            }
            MovedRow::Setting(name, _) => MovedRow::Setting(name.clone(), self.settings.get(name)?.clone()),
            // Numbers only grow.
            MovedRow::LastMessage(last) if self.last_message() >= *last => row.clone(),
            MovedRow::LastMessage(_) => return None,
        })
    }

    /// Whether another row has the id of an instance, or the deduplication key of a message.
    fn is_taken(&self, row: &MovedRow) -> bool {
        match row {
            MovedRow::Instance(row) => self.ids.contains_key(&row.id),
            MovedRow::Message(MovedMessage { row, dedupe: Some(dedupe), .. }) => {
                let is_same = |other: &Message| other.to == row.key && other.dedupe.as_ref() == Some(dedupe);
                self.inbox.values().any(is_same)
            }
            _ => false,
        }
    }

    fn put(&mut self, row: MovedRow) {
        match row {
            MovedRow::Instance(row) => self.insert_instance(&row),
            MovedRow::Turn(key, turn) => {
                self.turns.insert((key, turn.execution, turn.number), turn);
            }
            MovedRow::Message(MovedMessage { row, dedupe, parked }) => {
                self.set_last_message(row.number);
                let message = Message {
                    to: row.key,
                    shard: row.shard,
                    dedupe,
                    parked,
                    urgent: row.urgent,
                    arrived_ms: row.arrived_ms,
                    body: row.body,
                };
                self.inbox.insert(row.number, message);
            }
            MovedRow::Task(row) => drop(self.tasks.insert(row.id, *row)),
            MovedRow::Continuation(key, execution, at_ms) => {
                self.continued.insert((key, execution), at_ms);
            }
            MovedRow::Shard(MovedShard { shard, unclean_ends, note, gaps, idle_since_ms }) => {
                let entry = self.ownership.shards.entry(shard).or_default();
                *entry = ShardEntry { unclean_ends, note, gaps, idle_since_ms, ..entry.clone() };
            }
            MovedRow::Setting(name, value) => drop(self.settings.insert(name, value)),
            MovedRow::LastMessage(number) => self.set_last_message(number),
        }
    }
}
