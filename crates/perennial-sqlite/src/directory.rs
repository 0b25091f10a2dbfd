//! The sessions of a file as seen by another process.
//!
//! The owner renews leases in memory only, so the table does not contain when a session expires. It need not: while the
//! owner's process holds the lock, its sessions are live; when nobody holds it, they have expired.

use std::path::Path;

use perennial_core::store::{Directory, SessionId, SessionRole, SessionRow};
use rusqlite::{Connection, Row};

use crate::clock::StoreClock;
use crate::inspect::{Owner, owner};
use crate::reader::{Fault, bytes, collect};
use crate::row::read_number;

pub(crate) const SESSIONS: &str = "SELECT id, role, node, lease_ms, opened_ms, seen_ms, info, \
     (SELECT count(*) FROM shards INDEXED BY shards_by_session WHERE session = sessions.id) \
     FROM sessions ORDER BY id";

/// All sessions. While somebody owns the file, each expires one lease from now; when nobody does, it expired when it
/// was last seen.
pub(crate) fn read(connection: &Connection, path: &Path, clock: &StoreClock) -> Result<Directory, Fault> {
    clock.look(connection)?;
    let now_ms = clock.now_ms();
    let is_owned = matches!(owner(path), Owner::Alive(_));
    let mut statement = connection.prepare_cached(SESSIONS)?;
    let sessions = collect(statement.query([])?, |row| session(row, is_owned.then_some(now_ms)))?;
    Ok(Directory { now_ms, sessions })
}

fn session(row: &Row<'_>, alive_ms: Option<u64>) -> Result<SessionRow, Fault> {
    let id = |column| -> Result<SessionId, Fault> { Ok(SessionId(u128::from_be_bytes(row.get(column)?))) };
    let role: String = row.get(1)?;
    let (lease_ms, seen_ms) = (read_number(row, 3)?, read_number(row, 5)?);
    Ok(SessionRow {
        id: id(0)?,
        role: SessionRole::from_name(&role)
            .ok_or_else(|| Fault::corrupt(format!("column role: {role} is not a role of a session")))?,
        node: id(2)?,
        opened_ms: read_number(row, 4)?,
        expires_ms: alive_ms.map_or(seen_ms, |now_ms| now_ms.saturating_add(lease_ms)),
        shards: usize::try_from(read_number(row, 7)?).unwrap_or(usize::MAX),
        info: bytes(row, 6)?,
    })
}
