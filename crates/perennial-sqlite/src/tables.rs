//! The statements of the writer thread, prepared once.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use perennial_core::store::{InboxNumber, InstanceRow, RowChange, Status, TurnRow};
use perennial_core::{InstanceKey, ShardId};
use rusqlite::{Connection, OptionalExtension, PrepFlags, Statement, params};

use crate::attributes;
use crate::failure::is_constraint;
use crate::list::shown;
use crate::reader::by_id;
use crate::recent::Recent;
use crate::row::{attributes_json, bound, exact, json, status_code};
use crate::seal::Seal;

pub(crate) const INSERT_INSTANCE: &str = "INSERT INTO instances (key, id, shard, name, version, status, execution, \
     owed, wake_at_ms, blocked, attributes, published, parent, created_ms, ended_ms, parent_key, full, checksum) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)";
pub(crate) const INSTANCE_EXISTS: &str = "SELECT 1 FROM instances WHERE key = ?1";
pub(crate) const ADDRESSEE: &str = "SELECT key, shard, status, full FROM instances WHERE id = ?1";
pub(crate) const INSERT_TURN: &str =
    "INSERT INTO turns (key, execution, number, body, checksum) VALUES (?1, ?2, ?3, ?4, ?5)";
pub(crate) const TURN_EXISTS: &str = "SELECT 1 FROM turns WHERE key = ?1 AND execution = ?2 AND number = ?3";
pub(crate) const SAME_TURN: &str =
    "SELECT body = ?4 AND checksum = ?5 FROM turns WHERE key = ?1 AND execution = ?2 AND number = ?3";
/// The number is assigned here rather than by SQLite because the checksum covers it.
pub(crate) const APPEND_MESSAGE: &str = "INSERT INTO inbox (number, key, shard, dedupe, parked, urgent, arrived_ms, \
     body, checksum) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (key, dedupe) DO NOTHING";
/// The last assigned number, and whether a row already has the next one because its number was changed from outside.
pub(crate) const LAST_NUMBER: &str = "SELECT last, EXISTS (SELECT 1 FROM inbox WHERE number = last + 1) \
     FROM (SELECT ifnull((SELECT seq FROM sqlite_sequence WHERE name = 'inbox'), 0) AS last)";
/// Whether a message has a number.
const NUMBER_IS_TAKEN: &str = "SELECT EXISTS (SELECT 1 FROM inbox WHERE number = ?1)";
/// Whether the instance accepts messages is checked by the insertion itself.
pub(crate) const APPEND_TO_KEY: &str = "INSERT INTO inbox (number, key, shard, dedupe, parked, urgent, arrived_ms, \
     body, checksum) SELECT ?1, key, ?3, ?4, ?5, ?6, ?7, ?8, ?9 FROM instances WHERE key = ?2 AND status < 2 \
     ON CONFLICT (key, dedupe) DO NOTHING";
pub(crate) const DELETE_MESSAGE: &str = "DELETE FROM inbox WHERE number = ?1";
/// The waiting message with a deduplication key.
pub(crate) const WAITING: &str = "SELECT number FROM inbox WHERE key = ?1 AND dedupe = ?2";
/// If an urgent message is sent again, the waiting one becomes urgent again, unless the instance no longer accepts
/// messages.
pub(crate) const MAKE_URGENT: &str = "UPDATE inbox SET urgent = 1 WHERE key = ?1 AND dedupe = ?2 AND urgent = 0 \
     AND EXISTS (SELECT 1 FROM instances WHERE instances.key = ?1 AND status < 2)";
pub(crate) const SEE: &str = "UPDATE inbox SET urgent = 0 WHERE number = ?1 AND urgent = 1";
/// Messages that arrived before a time. An instance has few of them.
pub(crate) const EARLIER: &str = "SELECT number FROM inbox INDEXED BY inbox_by_instance \
     WHERE key = ?1 AND parked = 0 AND arrived_ms < ?2";
pub(crate) const COUNT_UNREAD: &str = "SELECT count(*) FROM inbox WHERE key = ?1";
pub(crate) const DATA_VERSION: &str = "PRAGMA data_version";

/// The columns that a change may write, each with its bit in a mask of changes.
const CHANGEABLE: [&str; 10] = [
    "status",
    "execution",
    "version",
    "owed",
    "wake_at_ms",
    "blocked",
    "attributes",
    "published",
    "ended_ms",
    "full",
];

pub(crate) struct Tables<'c> {
    connection: &'c Connection,
    begin: Statement<'c>,
    commit: Statement<'c>,
    insert_instance: Statement<'c>,
    instance_exists: Statement<'c>,
    addressee: Statement<'c>,
    insert_turn: Statement<'c>,
    turn_exists: Statement<'c>,
    append_message: Statement<'c>,
    append_to_key: Statement<'c>,
    last_number: Statement<'c>,
    delete_message: Statement<'c>,
    data_version: Statement<'c>,
    /// By mask, and whether the row id is given. A statement that names only changed columns does not update the
    /// indexes of the others.
    updates: BTreeMap<(usize, bool), Statement<'c>>,
    recent: Recent,
}

/// The receiver of a message.
pub(crate) struct Addressee {
    pub(crate) key: InstanceKey,
    pub(crate) shard: ShardId,
    pub(crate) has_ended: bool,
    /// Whether its owner refuses more messages.
    pub(crate) is_full: bool,
}

/// A message to an instance that is known to accept it.
pub(crate) struct Message<'a> {
    pub(crate) to: InstanceKey,
    pub(crate) shard: ShardId,
    pub(crate) dedupe: Option<&'a str>,
    /// Only `load` returns it.
    pub(crate) parked: bool,
    pub(crate) urgent: bool,
    pub(crate) body: &'a [u8],
}

impl<'a> Message<'a> {
    /// A message without special properties.
    pub(crate) fn plain(to: InstanceKey, shard: ShardId, body: &'a [u8]) -> Message<'a> {
        Message { to, shard, dedupe: None, parked: false, urgent: false, body }
    }

    /// The message that starts an instance. If it starts later, the message is parked until then.
    pub(crate) fn starting(row: &InstanceRow, body: &'a [u8]) -> Message<'a> {
        let parked = row.wake_at_ms.is_some();
        Message { to: row.key, shard: row.shard, dedupe: None, parked, urgent: false, body }
    }
}

/// The outcome of appending a message.
pub(crate) enum Appended {
    /// It has this number.
    Sent(InboxNumber),
    /// A message with its deduplication key is already waiting.
    Waits,
    /// The instance accepts none.
    Refused,
}

impl Appended {
    pub(crate) fn number(self) -> Option<InboxNumber> {
        match self {
            Appended::Sent(number) => Some(number),
            Appended::Waits | Appended::Refused => None,
        }
    }
}

impl<'c> Tables<'c> {
    pub(crate) fn prepare(connection: &'c Connection) -> rusqlite::Result<Tables<'c>> {
        Ok(Tables {
            connection,
            begin: keep(connection, "BEGIN IMMEDIATE")?,
            commit: keep(connection, "COMMIT")?,
            insert_instance: keep(connection, INSERT_INSTANCE)?,
            instance_exists: keep(connection, INSTANCE_EXISTS)?,
            addressee: keep(connection, ADDRESSEE)?,
            insert_turn: keep(connection, INSERT_TURN)?,
            turn_exists: keep(connection, TURN_EXISTS)?,
            append_message: keep(connection, APPEND_MESSAGE)?,
            append_to_key: keep(connection, APPEND_TO_KEY)?,
            last_number: keep(connection, LAST_NUMBER)?,
            delete_message: keep(connection, DELETE_MESSAGE)?,
            data_version: keep(connection, DATA_VERSION)?,
            updates: BTreeMap::new(),
            recent: Recent::default(),
        })
    }

    pub(crate) fn connection(&self) -> &'c Connection {
        self.connection
    }

    pub(crate) fn begin(&mut self) -> rusqlite::Result<()> {
        self.begin.execute([]).map(drop)
    }

    pub(crate) fn commit(&mut self) -> rusqlite::Result<()> {
        self.commit.execute([]).map(drop)
    }

    /// Forgets what is remembered about rows, because it may no longer be correct.
    pub(crate) fn forget(&mut self) {
        self.recent.forget();
    }

    /// A number that changes when another connection has changed the database.
    pub(crate) fn data_version(&mut self) -> rusqlite::Result<i64> {
        self.data_version.query_row([], |row| row.get(0))
    }

    /// Inserts a row; `false` if its id or key exists.
    pub(crate) fn insert_instance(&mut self, row: &InstanceRow) -> rusqlite::Result<bool> {
        let inserted = self.insert_instance.execute(params![
            row.key.as_bytes(),
            row.id,
            row.shard.0,
            row.name,
            row.version,
            status_code(row.status),
            exact(row.execution)?,
            row.owed,
            row.wake_at_ms.map(bound),
            row.blocked.as_ref().map(json).transpose()?,
            attributes_json(&row.attributes)?,
            row.published.as_ref().map(|published| published.as_json()),
            row.parent.as_ref().map(json).transpose()?,
            exact(row.created_ms)?,
            row.ended_ms.map(exact).transpose()?,
            row.parent.as_ref().map(|parent| &parent.key),
            row.full,
            row.checksum,
        ]);
        match inserted {
            Ok(_) => {}
            Err(error) if is_constraint(&error) => return Ok(false),
            Err(error) => return Err(error),
        }
        if !row.status.is_final() {
            self.recent.inserted(row.key, self.connection.last_insert_rowid());
        }
        attributes::insert(self.connection, row.key, &row.attributes)?;
        Ok(true)
    }

    /// Changes a row; `false` if there is none.
    pub(crate) fn change_instance(&mut self, key: InstanceKey, change: &RowChange) -> rusqlite::Result<bool> {
        let row = self.recent.row(key);
        let changed = (row.is_some() && self.update(key, row, change)?) || self.update(key, None, change)?;
        if change.status.is_some_and(Status::is_final) {
            self.recent.ended(key);
        }
        if let Some(attributes) = change.attributes.as_ref().filter(|_| changed) {
            attributes::replace(self.connection, key, attributes)?;
        }
        Ok(changed)
    }

    /// Changes the row with a key, which is the one with this row id if that is given.
    fn update(&mut self, key: InstanceKey, row: Option<i64>, change: &RowChange) -> rusqlite::Result<bool> {
        let mask = mask_of(change);
        let update = match self.updates.entry((mask, row.is_some())) {
            Entry::Occupied(update) => update.into_mut(),
            Entry::Vacant(none) => none.insert(keep(self.connection, &update_sql(mask, row.is_some()))?),
        };
        update.raw_bind_parameter(1, key.as_bytes())?;
        let mut position = 1;
        if let Some(row) = row {
            position = 2;
            update.raw_bind_parameter(position, row)?;
        }
        let mut next = || {
            position += 1;
            position
        };
        if let Some(status) = change.status {
            update.raw_bind_parameter(next(), status_code(status))?;
        }
        if let Some(execution) = change.execution {
            update.raw_bind_parameter(next(), exact(execution)?)?;
        }
        if let Some(version) = &change.version {
            update.raw_bind_parameter(next(), version)?;
        }
        if let Some(owed) = change.owed {
            update.raw_bind_parameter(next(), owed)?;
        }
        if let Some(wake_at_ms) = change.wake_at_ms {
            update.raw_bind_parameter(next(), wake_at_ms.map(bound))?;
        }
        if let Some(blocked) = &change.blocked {
            update.raw_bind_parameter(next(), blocked.as_ref().map(json).transpose()?)?;
        }
        if let Some(attributes) = &change.attributes {
            update.raw_bind_parameter(next(), attributes_json(attributes)?)?;
        }
        if let Some(published) = &change.published {
            update.raw_bind_parameter(next(), published.as_ref().map(|published| published.as_json()))?;
        }
        if let Some(ended_ms) = change.ended_ms {
            update.raw_bind_parameter(next(), ended_ms.map(exact).transpose()?)?;
        }
        if let Some(full) = change.full {
            update.raw_bind_parameter(next(), full)?;
        }
        Ok(update.raw_execute()? == 1)
    }

    pub(crate) fn instance_exists(&mut self, key: InstanceKey) -> rusqlite::Result<bool> {
        self.instance_exists.exists([key.as_bytes()])
    }

    /// The row of an id.
    pub(crate) fn find(&mut self, id: &str) -> rusqlite::Result<Option<InstanceRow>> {
        self.connection.prepare_cached(&by_id())?.query_row([id], |row| Ok(shown(row))).optional()
    }

    /// The instance with an id.
    pub(crate) fn addressee(&mut self, id: &str) -> rusqlite::Result<Option<Addressee>> {
        let addressee = self.addressee.query_row([id], |row| {
            Ok(Addressee {
                key: InstanceKey::from_bytes(row.get(0)?),
                shard: ShardId(row.get(1)?),
                has_ended: row.get::<_, i64>(2)? >= 2,
                is_full: row.get(3)?,
            })
        });
        addressee.optional()
    }

    /// Inserts a turn; `false` if one with its number exists.
    pub(crate) fn insert_turn(&mut self, key: InstanceKey, turn: &TurnRow) -> rusqlite::Result<bool> {
        let inserted = self.insert_turn.execute(params![
            key.as_bytes(),
            exact(turn.execution)?,
            exact(turn.number)?,
            &turn.bytes[..],
            turn.checksum
        ]);
        match inserted {
            Ok(_) => {
                self.recent.took_turn(key, turn.execution, turn.number);
                Ok(true)
            }
            Err(error) if is_constraint(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn turn_exists(
        &mut self,
        key: InstanceKey,
        execution: u64,
        number: u64,
    ) -> rusqlite::Result<bool> {
        if self.recent.has_turn(key, execution, number) {
            return Ok(true);
        }
        self.turn_exists.exists(params![key.as_bytes(), exact(execution)?, exact(number)?])
    }

    /// Whether the turn with this number has these bytes and this checksum; `None` if there is no such turn.
    pub(crate) fn same_turn(&mut self, key: InstanceKey, turn: &TurnRow) -> rusqlite::Result<Option<bool>> {
        let (execution, number) = (exact(turn.execution)?, exact(turn.number)?);
        let values = params![key.as_bytes(), execution, number, &turn.bytes[..], turn.checksum];
        self.connection.prepare_cached(SAME_TURN)?.query_row(values, |row| row.get(0)).optional()
    }

    /// Appends a message to an instance that accepts it.
    pub(crate) fn append_message(
        &mut self,
        message: &Message<'_>,
        now_ms: u64,
    ) -> rusqlite::Result<Appended> {
        let number = self.next_number()?;
        if insert_message(&mut self.append_message, number, message, now_ms)? {
            return Ok(Appended::Sent(number.cast_unsigned()));
        }
        self.make_urgent(message.to, message.dedupe, message.urgent)?;
        Ok(Appended::Waits)
    }

    /// Appends a message to the instance with a key, if it accepts any.
    pub(crate) fn append_to_key(&mut self, message: &Message<'_>, now_ms: u64) -> rusqlite::Result<Appended> {
        let number = self.next_number()?;
        if insert_message(&mut self.append_to_key, number, message, now_ms)? {
            return Ok(Appended::Sent(number.cast_unsigned()));
        }
        let is_urgent_now = self.make_urgent(message.to, message.dedupe, message.urgent)?;
        Ok(if is_urgent_now { Appended::Waits } else { Appended::Refused })
    }

    /// Inserts a message with its number; `false` if that, or its deduplication key, is taken.
    pub(crate) fn import_message(
        &mut self,
        number: InboxNumber,
        message: &Message<'_>,
        arrived_ms: u64,
    ) -> rusqlite::Result<bool> {
        match insert_message(&mut self.append_message, exact(number)?, message, arrived_ms) {
            Err(error) if is_constraint(&error) => Ok(false),
            inserted => inserted,
        }
    }

    fn next_number(&mut self) -> rusqlite::Result<i64> {
        let (last, mut is_taken): (i64, bool) =
            self.last_number.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let mut next = last.saturating_add(1);
        while is_taken && next < i64::MAX {
            next += 1;
            is_taken =
                self.connection.prepare_cached(NUMBER_IS_TAKEN)?.query_row([next], |row| row.get(0))?;
        }
        Ok(next)
    }

    /// Makes the waiting message urgent instead of an urgent one that was not appended; returns whether it was not
    /// urgent before.
    fn make_urgent(
        &mut self,
        key: InstanceKey,
        dedupe: Option<&str>,
        urgent: bool,
    ) -> rusqlite::Result<bool> {
        if !urgent || dedupe.is_none() {
            return Ok(false);
        }
        Ok(self.connection.prepare_cached(MAKE_URGENT)?.execute(params![key.as_bytes(), dedupe])? == 1)
    }

    /// The waiting message with a deduplication key.
    pub(crate) fn waiting(
        &mut self,
        key: InstanceKey,
        dedupe: Option<&str>,
    ) -> rusqlite::Result<Option<InboxNumber>> {
        let Some(dedupe) = dedupe else { return Ok(None) };
        let mut waiting = self.connection.prepare_cached(WAITING)?;
        let number = waiting.query_row(params![key.as_bytes(), dedupe], |row| row.get::<_, i64>(0));
        Ok(number.optional()?.map(i64::cast_unsigned))
    }

    /// Whether a message of an instance, other than some, arrived before a time.
    pub(crate) fn has_earlier(
        &mut self,
        key: InstanceKey,
        before_ms: u64,
        except: &[InboxNumber],
    ) -> rusqlite::Result<bool> {
        let mut earlier = self.connection.prepare_cached(EARLIER)?;
        let mut rows = earlier.query(params![key.as_bytes(), bound(before_ms)])?;
        while let Some(row) = rows.next()? {
            if !except.contains(&row.get::<_, i64>(0)?.cast_unsigned()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Marks an examined message as no longer urgent.
    pub(crate) fn see(&mut self, number: InboxNumber) -> rusqlite::Result<()> {
        self.connection.prepare_cached(SEE)?.execute([bound(number)]).map(drop)
    }

    /// Deletes a message; `false` if it does not exist.
    pub(crate) fn delete_message(&mut self, number: InboxNumber) -> rusqlite::Result<bool> {
        Ok(self.delete_message.execute([bound(number)])? == 1)
    }

    pub(crate) fn count_unread(&mut self, key: InstanceKey) -> rusqlite::Result<usize> {
        let mut statement = self.connection.prepare_cached(COUNT_UNREAD)?;
        let count: i64 = statement.query_row([key.as_bytes()], |row| row.get(0))?;
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }
}

/// Prepares a long-lived statement in memory of its own: SQLite's lookaside memory is small, and such statements would
/// soon use it up.
fn keep<'c>(connection: &'c Connection, sql: &str) -> rusqlite::Result<Statement<'c>> {
    connection.prepare_with_flags(sql, PrepFlags::SQLITE_PREPARE_PERSISTENT)
}

/// Inserts a message; `false` if one with its deduplication key is waiting, or nobody accepts it.
fn insert_message(
    insert: &mut Statement<'_>,
    number: i64,
    message: &Message<'_>,
    now_ms: u64,
) -> rusqlite::Result<bool> {
    let Message { to, shard, dedupe, parked, urgent, body } = message;
    let (key, at_ms) = (to.as_bytes(), bound(now_ms));
    // In the order of the columns that are read with it.
    let checksum = Seal::of(&[&number, key, &shard.0, &at_ms, body, dedupe, parked])?;
    Ok(insert.execute(params![number, key, shard.0, dedupe, parked, urgent, at_ms, body, checksum])? == 1)
}

fn mask_of(change: &RowChange) -> usize {
    let RowChange {
        status,
        execution,
        version,
        owed,
        wake_at_ms,
        blocked,
        full,
        attributes,
        published,
        ended_ms,
    } = change;
    let changed = [
        status.is_some(),
        execution.is_some(),
        version.is_some(),
        owed.is_some(),
        wake_at_ms.is_some(),
        blocked.is_some(),
        attributes.is_some(),
        published.is_some(),
        ended_ms.is_some(),
        full.is_some(),
    ];
    changed.iter().rev().fold(0, |mask, changed| mask << 1 | usize::from(*changed))
}

pub(crate) fn update_sql(mask: usize, by_row: bool) -> String {
    let changed = CHANGEABLE.iter().enumerate().filter(|(bit, _)| mask >> bit & 1 == 1);
    let (first, row) = if by_row { (3, " AND rowid = ?2") } else { (2, "") };
    let set: Vec<String> =
        changed.zip(first..).map(|((_, column), position)| format!("{column} = ?{position}")).collect();
    format!("UPDATE instances SET {} WHERE key = ?1{row}", set.join(", "))
}
