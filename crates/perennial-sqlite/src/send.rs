//! Writes one message from a process that does not own the instance.
//!
//! Conflicts are found before anything of it was written. If a message with the same deduplication key is already
//! waiting, that one becomes urgent if this one is.

use perennial_core::store::memory::MAX_UNREAD;
use perennial_core::store::{Changes, InstanceRow, SendOutcome, SendRequest, StoreError};

use crate::reader::Fault;
use crate::tables::{Addressee, Message, Tables};
use crate::unread::Unread;

/// Why a message, or another call that writes, failed.
#[derive(Debug)]
pub(crate) enum Stop {
    /// A stored value, or one to be stored, is invalid.
    Row(StoreError),
    /// An error of SQLite.
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for Stop {
    fn from(error: rusqlite::Error) -> Stop {
        Stop::Sqlite(error)
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Stop {
        match fault {
            Fault::Row(error) => Stop::Row(error),
            Fault::Sqlite(error) => Stop::Sqlite(error),
        }
    }
}

pub(crate) fn write(
    tables: &mut Tables<'_>,
    unread: &mut Unread,
    changes: &mut Changes,
    now_ms: u64,
    request: &SendRequest,
) -> Result<SendOutcome, Stop> {
    let message = match request {
        SendRequest::Start { row, body } => {
            if !tables.insert_instance(row)? {
                let existing = existing(tables, &row.id)?.ok_or_else(|| {
                    let reason = format!("instance {}: the key {} belongs to another one", row.id, row.key);
                    Stop::Row(StoreError::CorruptRow(reason))
                })?;
                return Ok(SendOutcome::IdTaken(Box::new(existing)));
            }
            Message::starting(row, body)
        }
        SendRequest::Message { id, key, dedupe, urgent, body } => {
            let is_meant = |addressee: &Addressee| key.is_none_or(|key| key == addressee.key);
            let Some(addressee) = tables.addressee(id)?.filter(is_meant) else {
                return Ok(SendOutcome::NoInstance);
            };
            if addressee.has_ended {
                let ended = existing(tables, id)?;
                return Ok(ended.map_or(SendOutcome::NoInstance, |row| SendOutcome::Ended(Box::new(row))));
            }
            let dedupe = dedupe.as_deref();
            if !urgent && let Some(refusal) = refusal(tables, unread, &addressee, dedupe)? {
                return Ok(refusal);
            }
            Message {
                to: addressee.key,
                shard: addressee.shard,
                dedupe,
                parked: false,
                urgent: *urgent,
                body,
            }
        }
    };
    let appended = tables.append_message(&message, now_ms)?;
    changes.inbox.insert(message.shard);
    if let Some(number) = appended.number() {
        unread.appended(message.to);
        return Ok(SendOutcome::Sent(number));
    }
    match tables.waiting(message.to, message.dedupe)? {
        Some(number) => Ok(SendOutcome::Duplicate(number)),
        None => Err(Stop::Row(StoreError::CorruptRow("a message neither waits nor is appended".to_owned()))),
    }
}

/// Why an instance refuses a message: it is full, unless the same message is already waiting. Rows are counted only if
/// nothing else tells how many there are.
fn refusal(
    tables: &mut Tables<'_>,
    unread: &mut Unread,
    addressee: &Addressee,
    dedupe: Option<&str>,
) -> Result<Option<SendOutcome>, Stop> {
    let key = addressee.key;
    if !addressee.is_full && unread.bound(key).is_some_and(|bound| bound < MAX_UNREAD) {
        return Ok(None);
    }
    let count = tables.count_unread(key)?;
    unread.counted(key, count);
    if !addressee.is_full && count < MAX_UNREAD {
        return Ok(None);
    }
    Ok(Some(match tables.waiting(key, dedupe)? {
        Some(number) => SendOutcome::Duplicate(number),
        None => SendOutcome::Full(count),
    }))
}

fn existing(tables: &mut Tables<'_>, id: &str) -> Result<Option<InstanceRow>, Stop> {
    Ok(tables.find(id)?)
}
