//! Moving all rows to another store, and from one.

use perennial_core::store::{
    Imported, MoveMark, MovedKey, MovedMessage, MovedRow, MovedShard, MovedTable, PageFill, PageLimit,
    SessionId, ShardSet, StoreError,
};

use super::tables::{Change, Message, Shard, Tables};

impl Tables {
    pub(super) fn export(
        &self,
        table: MovedTable,
        after: Option<&MovedKey>,
        limit: PageLimit,
    ) -> Vec<MovedRow> {
        let mut fill = PageFill::new(limit);
        let rows = self.rows_of(table).into_iter().skip_while(|row| after.is_some_and(|it| row.key() <= *it));
        rows.take_while(|row| fill.admits(row.weight())).collect()
    }

    /// All rows of a table, in the order of their keys.
    fn rows_of(&self, table: MovedTable) -> Vec<MovedRow> {
        let exists = |key| self.instances.contains_key(key);
        let mut rows: Vec<MovedRow> = match table {
            MovedTable::Instances => {
                self.instances.values().map(|row| MovedRow::Instance(Box::new(row.clone()))).collect()
            }
            MovedTable::Turns => {
                let turns = self.turns.iter().filter(|((key, ..), _)| exists(key));
                turns.map(|((key, ..), turn)| MovedRow::Turn(*key, turn.clone())).collect()
            }
            MovedTable::Messages => {
                let messages = self.inbox.values().filter(|message| exists(&message.key));
                messages.map(|message| MovedRow::Message(message.moved())).collect()
            }
            MovedTable::Tasks => {
                let tasks = self.tasks.values().filter(|row| exists(&row.id.key));
                tasks.map(|row| MovedRow::Task(Box::new(row.clone()))).collect()
            }
            MovedTable::Continuations => {
                let continued = self.continued.iter().filter(|((key, _), _)| exists(key));
                continued.map(|((key, of), at_ms)| MovedRow::Continuation(*key, *of, *at_ms)).collect()
            }
            MovedTable::Shards => {
                let shards = self.shards.values().map(Shard::moved).filter(|shard| !shard.is_untouched());
                shards.map(MovedRow::Shard).collect()
            }
            MovedTable::Settings => {
                let settings = self.settings.iter().filter(|(name, _)| *name != MoveMark::SETTING);
                settings.map(|(name, value)| MovedRow::Setting(name.clone(), value.clone())).collect()
            }
            MovedTable::Counters => vec![MovedRow::LastMessage(self.last_message)],
        };
        rows.sort_by_key(MovedRow::key);
        rows
    }

    pub(super) fn import(&mut self, session: SessionId, rows: Vec<MovedRow>) -> Result<Imported, StoreError> {
        self.check(session, &ShardSet::EMPTY)?;
        let mut imported = Imported::default();
        for row in rows {
            let stored = self.rows_of(row.table()).into_iter().find(|stored| stored.key() == row.key());
            let is_taken = match &row {
                MovedRow::LastMessage(last) if self.last_message >= *last => continue,
                MovedRow::LastMessage(_) => false,
                MovedRow::Instance(new) => stored.is_some() || self.ids.contains_key(&new.id),
                MovedRow::Message(MovedMessage { row: new, dedupe, .. }) => {
                    let is_same = |other: &Message| dedupe.is_some() && other.dedupe == *dedupe;
                    stored.is_some() || self.messages_of(new.key).any(is_same)
                }
                _ => stored.is_some(),
            };
            match is_taken {
                true if stored.as_ref() == Some(&row) => {}
                true => {
                    imported.differs = Some(row.key());
                    return Ok(imported);
                }
                false => {
                    self.put(row);
                    imported.written += 1;
                }
            }
        }
        Ok(imported)
    }

    fn put(&mut self, row: MovedRow) {
        self.write(match row {
            MovedRow::Instance(row) => Change::Instance(*row),
            MovedRow::Turn(key, turn) => Change::Turn(key, turn),
            MovedRow::Message(MovedMessage { row, dedupe, parked }) => Change::Message(Message {
                number: row.number,
                key: row.key,
                shard: row.shard,
                dedupe,
                parked,
                urgent: row.urgent,
                arrived_ms: row.arrived_ms,
                body: row.body,
            }),
            MovedRow::Task(row) => Change::Task(*row),
            MovedRow::Continuation(key, execution, at_ms) => Change::Continued(key, execution, at_ms),
            MovedRow::Shard(MovedShard { shard, unclean_ends, note, gaps, idle_since_ms }) => {
                let (owner, epoch) = self.shards.get(&shard).map_or((None, 0), |it| (it.owner, it.epoch));
                Change::Shard(Shard { shard, owner, epoch, unclean_ends, note, gaps, idle_since_ms })
            }
            MovedRow::Setting(name, value) => Change::Setting(name, value),
            MovedRow::LastMessage(number) => Change::LastMessage(number),
        });
    }
}

impl Message {
    fn moved(&self) -> MovedMessage {
        MovedMessage { row: self.to_row(), dedupe: self.dedupe.clone(), parked: self.parked }
    }
}

impl Shard {
    fn moved(&self) -> MovedShard {
        let Shard { shard, unclean_ends, idle_since_ms, .. } = *self;
        MovedShard { shard, unclean_ends, note: self.note.clone(), gaps: self.gaps.clone(), idle_since_ms }
    }
}
