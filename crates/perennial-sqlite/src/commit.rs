//! Writes one member of a batch.
//!
//! The common case writes immediately and detects a conflict by the insertion that fails. A conflict is nearly always
//! found before anything of the member was written; if not, the member has to be undone ([`Stop::Undo`]).

use std::borrow::Cow;
use std::sync::Arc;

use perennial_core::ShardId;
use perennial_core::store::{
    Changes, Commit, CommitOutcome, Conflict, InboxNumber, InstanceRow, Outgoing, Status, TaskChange,
    TaskState, TurnRow,
};

use crate::continuations;
use crate::delete;
use crate::requests;
use crate::tables::{Appended, Message, Tables};
use crate::tasks;
use crate::unread::Unread;

/// Why a member was not written.
#[derive(Debug)]
pub(crate) enum Stop {
    /// A part of it was written and has to be undone.
    Undo(CommitOutcome),
    /// An error of SQLite.
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for Stop {
    fn from(error: rusqlite::Error) -> Stop {
        Stop::Sqlite(error)
    }
}

/// What is needed to write a member.
pub(crate) struct WriteScope<'d, 'c> {
    pub(crate) tables: &'d mut Tables<'c>,
    pub(crate) unread: &'d mut Unread,
    /// Whether deleted instances have turns left, on which nothing may be based.
    pub(crate) has_graves: bool,
    pub(crate) now_ms: u64,
    /// The changes to notify others of, if the transaction is committed.
    pub(crate) changes: &'d mut Changes,
    /// The shards of the session. It learns from the outcome what it sent to those.
    pub(crate) owned: &'d dyn Fn(ShardId) -> bool,
}

impl WriteScope<'_, '_> {
    fn tell_of_message(&mut self, shard: ShardId) {
        if !(self.owned)(shard) {
            self.changes.inbox.insert(shard);
        }
    }
}

/// Writes a member whose session owns its shard.
pub(crate) fn write(scope: &mut WriteScope<'_, '_>, member: &Commit) -> Result<CommitOutcome, Stop> {
    let tables = &mut *scope.tables;
    if member.turn.as_ref().is_some_and(|turn| turn.number == 0) {
        return Ok(CommitOutcome::Rejected("turns are counted from 1".to_owned()));
    }
    if scope.has_graves && delete::is_buried(tables.connection(), member.key)? {
        let is_first = member.turn.as_ref().is_none_or(|turn| turn.number == 1);
        return Ok(conflict(if is_first { Conflict::NoInstance } else { Conflict::MissingTurn }));
    }
    if let Some(turn) = &member.turn
        && turn.number > 1
        && !tables.turn_exists(member.key, turn.execution, turn.number - 1)?
    {
        return Ok(outcome_of_stored(tables, member, turn)?.unwrap_or(conflict(Conflict::MissingTurn)));
    }
    if let Some(outcome) = overtakes(tables, member)? {
        return Ok(outcome);
    }
    let begun = match &member.insert {
        Some(row) => insert(tables, member, row)?,
        None => go_on(tables, member)?,
    };
    if let Some(outcome) = begun {
        return Ok(outcome);
    }
    if let Some(execution) = member.change.execution {
        continuations::note(tables.connection(), member.key, execution, scope.now_ms)?;
    }
    for (place, number) in member.consumed.iter().enumerate() {
        // A message that is listed twice counts once.
        if !tables.delete_message(*number)? && !member.consumed[..place].contains(number) {
            return Err(Stop::Undo(conflict(Conflict::MessageGone)));
        }
    }
    for number in &member.seen {
        tables.see(*number)?;
    }
    for change in &member.tasks {
        tasks::change(tables.connection(), change)?;
        if let TaskChange::Put(row) = change
            && row.state == TaskState::Queued
        {
            scope.changes.tasks.insert(row.shard);
        }
    }
    for reply in &member.replies {
        if let Some(shard) = requests::reply(tables.connection(), reply)? {
            scope.changes.replies.insert(shard);
        }
    }
    if ends_or_publishes(member) {
        scope.changes.endings.insert(member.shard);
    }
    let mut sent = Vec::with_capacity(member.send.len());
    for message in &member.send {
        sent.push(send(scope, member, message)?);
    }
    Ok(CommitOutcome::Durable { sent })
}

/// Whether somebody may wait for the changes that the member makes to its instance.
fn ends_or_publishes(member: &Commit) -> bool {
    let status = member.change.status.or(member.insert.as_ref().map(|row| row.status));
    member.change.published.is_some() || status.is_some_and(Status::is_final)
}

/// Detects a timer that the member fires although an unconsumed message arrived before it was due. This is checked
/// before anything is written, so that the batch need not be repeated.
fn overtakes(tables: &mut Tables<'_>, member: &Commit) -> rusqlite::Result<Option<CommitOutcome>> {
    let Some(fired_ms) = member.fired_ms else { return Ok(None) };
    if member.insert.is_some() || !tables.has_earlier(member.key, fired_ms, &member.consumed)? {
        return Ok(None);
    }
    // If the same turn is already stored, the member is durable, whatever has arrived since.
    let stored = match &member.turn {
        Some(turn) => outcome_of_stored(tables, member, turn)?,
        None => None,
    };
    Ok(Some(stored.unwrap_or(conflict(Conflict::EarlierMessage))))
}

/// Appends a message of a member; `None` if nothing was sent.
fn send(
    scope: &mut WriteScope<'_, '_>,
    sender: &Commit,
    message: &Outgoing,
) -> Result<Option<InboxNumber>, Stop> {
    let (tables, now_ms) = (&mut *scope.tables, scope.now_ms);
    let (to, shard, appended) = match message {
        Outgoing::ToKey { to, shard, dedupe, urgent, body } => {
            let (dedupe, urgent) = (dedupe.as_deref(), *urgent);
            let message = Message { dedupe, urgent, ..Message::plain(*to, *shard, body) };
            (*to, *shard, tables.append_to_key(&message, now_ms)?)
        }
        Outgoing::ToId { id, dedupe, urgent, body, report } => {
            let found = tables.addressee(id)?;
            let is_found = found.is_some();
            let Some(addressee) = found.filter(|addressee| !addressee.has_ended) else {
                if let Some(report) = report {
                    tell_sender(scope, sender, if is_found { &report.ended } else { &report.not_found })?;
                }
                return Ok(None);
            };
            let (to, shard) = (addressee.key, addressee.shard);
            let (dedupe, urgent) = (dedupe.as_deref(), *urgent);
            let message = Message { to, shard, dedupe, parked: false, urgent, body };
            let appended = tables.append_message(&message, now_ms)?;
            if let Some(report) = report {
                tell_sender(scope, sender, &report.delivered)?;
            }
            (to, shard, appended)
        }
        Outgoing::Start { row, body, otherwise, replaces_ended, started } => {
            if *replaces_ended {
                delete_ended(tables, row)?;
            }
            if tables.insert_instance(row)? {
                let appended = tables.append_message(&Message::starting(row, body), now_ms)?;
                if let Some(body) = started {
                    tell_sender(scope, sender, body)?;
                }
                (row.key, row.shard, appended)
            } else {
                let Some(existing) = tables.addressee(&row.id)? else {
                    let reason = format!("the key {} belongs to another instance", row.key);
                    return Err(Stop::Undo(CommitOutcome::Rejected(reason)));
                };
                let Some(body) = otherwise.as_ref().filter(|_| existing.key != row.key) else {
                    return Ok(None);
                };
                let message = Message::plain(sender.key, sender.shard, body);
                let appended = tables.append_to_key(&message, now_ms)?;
                (sender.key, sender.shard, appended)
            }
        }
    };
    if !matches!(appended, Appended::Refused) {
        scope.tell_of_message(shard);
    }
    let number = appended.number();
    if number.is_some() {
        scope.unread.appended(to);
    }
    Ok(number)
}

/// Sends a report to the instance of a member, if it has not ended.
fn tell_sender(scope: &mut WriteScope<'_, '_>, sender: &Commit, body: &Arc<[u8]>) -> Result<(), Stop> {
    let message = Message::plain(sender.key, sender.shard, body);
    let appended = scope.tables.append_to_key(&message, scope.now_ms)?;
    if appended.number().is_some() {
        scope.tell_of_message(sender.shard);
        scope.unread.appended(sender.key);
    }
    Ok(())
}

/// Deletes an ended instance that has the id of one that starts, and its ended descendants. An instance that has not
/// ended is kept.
fn delete_ended(tables: &mut Tables<'_>, row: &InstanceRow) -> Result<(), Stop> {
    if let Some(existing) = tables.addressee(&row.id)?
        && existing.has_ended
        && existing.key != row.key
    {
        delete::delete_family(tables.connection(), existing.key)?;
        tables.forget();
    }
    Ok(())
}

/// Writes the row and the turn of an instance that starts here. Returns an outcome if nothing of it was written.
fn insert(
    tables: &mut Tables<'_>,
    member: &Commit,
    row: &InstanceRow,
) -> Result<Option<CommitOutcome>, Stop> {
    let mut row = Cow::Borrowed(row);
    if !member.change.is_empty() {
        member.change.apply(row.to_mut());
    }
    if !tables.insert_instance(&row)? {
        if let Some(turn) = &member.turn
            && let Some(outcome) = outcome_of_stored(tables, member, turn)?
        {
            return Ok(Some(outcome));
        }
        return Ok(Some(match tables.find(&row.id)? {
            Some(existing) => conflict(Conflict::IdTaken(Box::new(existing))),
            None => CommitOutcome::Rejected(format!("the key {} belongs to another instance", row.key)),
        }));
    }
    if let Some(turn) = &member.turn
        && !tables.insert_turn(member.key, turn)?
    {
        return Err(undo_turn(tables, member, turn)?);
    }
    insert_more_turns(tables, member)?;
    Ok(None)
}

/// Writes the turns that follow the member's turn. If one already exists, it belongs to another history.
fn insert_more_turns(tables: &mut Tables<'_>, member: &Commit) -> Result<(), Stop> {
    for turn in &member.more_turns {
        if !tables.insert_turn(member.key, turn)? {
            return Err(Stop::Undo(conflict(Conflict::OtherTurn)));
        }
    }
    Ok(())
}

/// Writes the turn and the changed row of an existing instance. Returns an outcome if nothing of it was written.
fn go_on(tables: &mut Tables<'_>, member: &Commit) -> Result<Option<CommitOutcome>, Stop> {
    let changes = !member.change.is_empty();
    let no_instance = conflict(Conflict::NoInstance);
    match &member.turn {
        Some(turn) => {
            // If a previous turn exists, so does the instance: except for deleted ones, they are inserted and deleted
            // together.
            if turn.number == 1 && !tables.instance_exists(member.key)? {
                return Ok(Some(no_instance));
            }
            if !tables.insert_turn(member.key, turn)? {
                return Ok(outcome_of_stored(tables, member, turn)?);
            }
            insert_more_turns(tables, member)?;
            if changes && !tables.change_instance(member.key, &member.change)? {
                return Err(Stop::Undo(no_instance));
            }
            Ok(None)
        }
        None if changes => {
            let changed = tables.change_instance(member.key, &member.change)?;
            Ok((!changed).then_some(no_instance))
        }
        None => Ok((!tables.instance_exists(member.key)?).then_some(no_instance)),
    }
}

/// The outcome if a turn with this number is stored; `None` if there is none.
fn outcome_of_stored(
    tables: &mut Tables<'_>,
    member: &Commit,
    turn: &TurnRow,
) -> rusqlite::Result<Option<CommitOutcome>> {
    Ok(tables.same_turn(member.key, turn)?.map(|same| match same {
        true => CommitOutcome::Durable { sent: vec![None; member.send.len()] },
        false => conflict(Conflict::OtherTurn),
    }))
}

fn undo_turn(tables: &mut Tables<'_>, member: &Commit, turn: &TurnRow) -> rusqlite::Result<Stop> {
    let outcome = outcome_of_stored(tables, member, turn)?;
    Ok(Stop::Undo(outcome.unwrap_or(conflict(Conflict::OtherTurn))))
}

fn conflict(conflict: Conflict) -> CommitOutcome {
    CommitOutcome::Conflict(conflict)
}
