//! Writes one message from outside of the owner.
//!
//! What stands in its way is found before anything of it was written; an urgent message counts as such also when its key
//! is known already.

use perennial_core::store::memory::MAX_UNREAD;
use perennial_core::store::{InstanceRow, SendOutcome, SendRequest, StoreError};

use crate::reader::Fault;
use crate::tables::{Message, Tables};
use crate::unread::Unread;

/// Why a message, or another call that writes, did not get through.
#[derive(Debug)]
pub(crate) enum Stop {
    /// What is stored, or is to be stored, does not hold what it must.
    Row(StoreError),
    /// SQLite said so.
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
            let parked = row.wake_at_ms.is_some();
            Message { to: row.key, shard: row.shard, dedupe: None, parked, body }
        }
        SendRequest::Message { id, dedupe, urgent, body } => {
            let Some(addressee) = tables.addressee(id)? else {
                return Ok(SendOutcome::NoInstance);
            };
            if addressee.has_ended {
                let ended = existing(tables, id)?;
                return Ok(ended.map_or(SendOutcome::NoInstance, |row| SendOutcome::Ended(Box::new(row))));
            }
            if unread.bound(addressee.key).is_none_or(|bound| bound >= MAX_UNREAD) {
                let count = tables.count_unread(addressee.key)?;
                unread.counted(addressee.key, count);
                if count >= MAX_UNREAD {
                    return Ok(SendOutcome::Full(count));
                }
            }
            if *urgent {
                tables.make_due_if_blocked(addressee.key)?;
            }
            let (to, shard) = (addressee.key, addressee.shard);
            Message { to, shard, dedupe: dedupe.as_deref(), parked: false, body }
        }
    };
    let Some(number) = tables.append_message(&message)? else {
        return Ok(SendOutcome::Duplicate);
    };
    unread.appended(message.to);
    Ok(SendOutcome::Sent(number))
}

fn existing(tables: &mut Tables<'_>, id: &str) -> Result<Option<InstanceRow>, Stop> {
    tables.find(id)?.transpose().map_err(Stop::Row)
}
