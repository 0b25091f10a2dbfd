//! Writes one member of a batch.
//!
//! The usual case writes at once and learns from the row that did not go in. What stands in the way is nearly always
//! found before anything of the member was written; where it is not, the member has to be undone ([`Stop::Undo`]).

use std::borrow::Cow;

use perennial_core::store::{Commit, CommitOutcome, Conflict, InboxNumber, InstanceRow, Outgoing, TurnRow};

use crate::asks;
use crate::tables::{Message, Tables};
use crate::tasks;
use crate::unread::Unread;

/// Why a member did not get through.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Something of it was written that must not stay.
    Undo(CommitOutcome),
    /// SQLite said so.
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for Stop {
    fn from(error: rusqlite::Error) -> Stop {
        Stop::Sqlite(error)
    }
}

/// Writes a member whose session owns its shard.
pub(crate) fn write(
    tables: &mut Tables<'_>,
    unread: &mut Unread,
    member: &Commit,
) -> Result<CommitOutcome, Stop> {
    if member.turn.as_ref().is_some_and(|turn| turn.number == 0) {
        return Ok(CommitOutcome::Rejected("turns are counted from 1".to_owned()));
    }
    if let Some(turn) = &member.turn
        && turn.number > 1
        && !tables.turn_exists(member.key, turn.execution, turn.number - 1)?
    {
        return Ok(outcome_of_stored(tables, member, turn)?.unwrap_or(conflict(Conflict::MissingTurn)));
    }
    let begun = match &member.insert {
        Some(row) => insert(tables, member, row)?,
        None => go_on(tables, member)?,
    };
    if let Some(outcome) = begun {
        return Ok(outcome);
    }
    for (place, number) in member.consumed.iter().enumerate() {
        // Named twice, it counts once.
        if !tables.delete_message(*number)? && !member.consumed[..place].contains(number) {
            return Err(Stop::Undo(conflict(Conflict::MessageGone)));
        }
    }
    for change in &member.tasks {
        tasks::change(tables.connection(), change)?;
    }
    for answer in &member.answers {
        asks::answer(tables.connection(), answer)?;
    }
    let mut sent = Vec::with_capacity(member.send.len());
    for message in &member.send {
        sent.push(send(tables, unread, member, message)?);
    }
    Ok(CommitOutcome::Durable { sent })
}

/// Appends a message of a member; none if nothing was sent.
fn send(
    tables: &mut Tables<'_>,
    unread: &mut Unread,
    sender: &Commit,
    message: &Outgoing,
) -> Result<Option<InboxNumber>, Stop> {
    let (to, number) = match message {
        Outgoing::ToKey { to, dedupe, urgent, body, .. } => {
            if *urgent {
                tables.make_due_if_blocked(*to)?;
            }
            (*to, tables.append_to_key(*to, dedupe.as_deref(), body)?)
        }
        Outgoing::ToId { id, dedupe, body } => {
            let Some(addressee) = tables.addressee(id)?.filter(|addressee| !addressee.has_ended) else {
                return Ok(None);
            };
            let (to, shard) = (addressee.key, addressee.shard);
            let message = Message { to, shard, dedupe: dedupe.as_deref(), parked: false, body };
            (to, tables.append_message(&message)?)
        }
        Outgoing::Start { row, body, otherwise } => {
            if tables.insert_instance(row)? {
                let parked = row.wake_at_ms.is_some();
                let message = Message { to: row.key, shard: row.shard, dedupe: None, parked, body };
                (row.key, tables.append_message(&message)?)
            } else {
                let Some(existing) = tables.addressee(&row.id)? else {
                    let reason = format!("the key {} belongs to another instance", row.key);
                    return Err(Stop::Undo(CommitOutcome::Rejected(reason)));
                };
                let Some(body) = otherwise.as_ref().filter(|_| existing.key != row.key) else {
                    return Ok(None);
                };
                (sender.key, tables.append_to_key(sender.key, None, body)?)
            }
        }
    };
    if number.is_some() {
        unread.appended(to);
    }
    Ok(number)
}

/// Writes the row and the turn of an instance that starts here. Gives an outcome if nothing of it went in.
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
            Some(Ok(existing)) => conflict(Conflict::IdTaken(Box::new(existing))),
            Some(Err(error)) => CommitOutcome::Rejected(error.to_string()),
            None => CommitOutcome::Rejected(format!("the key {} belongs to another instance", row.key)),
        }));
    }
    if let Some(turn) = &member.turn
        && !tables.insert_turn(member.key, turn)?
    {
        return Err(undo_turn(tables, member, turn)?);
    }
    Ok(None)
}

/// Writes the turn and the changed row of an instance that exists. Gives an outcome if nothing of it went in.
fn go_on(tables: &mut Tables<'_>, member: &Commit) -> Result<Option<CommitOutcome>, Stop> {
    let changes = !member.change.is_empty();
    let no_instance = conflict(Conflict::NoInstance);
    match &member.turn {
        Some(turn) => {
            // Behind another turn there is an instance: they come and go together.
            if turn.number == 1 && !tables.instance_exists(member.key)? {
                return Ok(Some(no_instance));
            }
            if !tables.insert_turn(member.key, turn)? {
                return Ok(outcome_of_stored(tables, member, turn)?);
            }
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

/// What it means that a turn of this number is stored; nothing if there is none.
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
