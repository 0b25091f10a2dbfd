//! The rows of shards: what is kept about each, whoever owns it.
//!
//! A maintenance session does not change unclean ends, notes and gaps, which describe lanes.

use std::sync::Arc;

use perennial_core::store::{Gap, OwnedShard, SessionId, SessionRole, ShardOwner, ShardSet, StoreError};
use perennial_core::{SHARDS, ShardId};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::reader::{Fault, bytes, collect};
use crate::row::{bound, json, read_number, read_shard};
use crate::sessions::Tenure;

pub(crate) const FIND: &str = "SELECT epoch, gaps, idle_since_ms FROM shards WHERE shard = ?1";
pub(crate) const GIVE: &str = "INSERT INTO shards (shard, session, epoch, unclean_ends, gaps, idle_since_ms) \
     VALUES (?1, ?2, ?3, 0, ?4, ?5) ON CONFLICT (shard) DO UPDATE SET session = excluded.session, \
     epoch = excluded.epoch, gaps = excluded.gaps, idle_since_ms = excluded.idle_since_ms";
pub(crate) const LEAVE: &str = "UPDATE shards SET session = NULL WHERE shard = ?1";
pub(crate) const RELEASE: &str = "UPDATE shards SET session = NULL, idle_since_ms = ?2, unclean_ends = 0, note = NULL \
     WHERE shard = ?1";
pub(crate) const EXPIRE: &str = "UPDATE shards SET session = NULL, idle_since_ms = ?2, \
     unclean_ends = max(0, min(unclean_ends, 1000000)) + 1 WHERE shard = ?1";
pub(crate) const NOTE: &str = "UPDATE shards SET note = ?3 WHERE shard = ?1 AND session = ?2";
pub(crate) const STEADY: &str = "UPDATE shards SET unclean_ends = 0 WHERE shard = ?1 AND session = ?2";
pub(crate) const OF_SESSION: &str = "SELECT shard, epoch, unclean_ends, note, gaps FROM shards \
     INDEXED BY shards_by_session WHERE session = ?1 ORDER BY shard";
pub(crate) const OWNED: &str = "SELECT shard FROM shards INDEXED BY shards_by_session WHERE session = ?1";
pub(crate) const OWNER: &str = "SELECT session, idle_since_ms FROM shards WHERE shard = ?1";
pub(crate) const SESSION_EXISTS: &str = "SELECT 1 FROM sessions WHERE id = ?1";

/// How an owner's tenure ends.
#[derive(Clone, Copy)]
pub(crate) enum End {
    Released { now_ms: u64 },
    Expired { expires_ms: u64 },
}

/// Makes a session the owner of a shard, and returns the epoch.
pub(crate) fn give(
    connection: &Connection,
    shard: ShardId,
    session: SessionId,
    role: SessionRole,
    now_ms: u64,
) -> Result<u64, Fault> {
    let mut find = connection.prepare_cached(FIND)?;
    let found = find.query_row([shard.0], |row| {
        Ok((row.get::<_, i64>(0)?, read_gaps(row, 1)?, row.get::<_, Option<i64>>(2)?))
    });
    let (epoch, mut gaps, mut idle_since_ms) = found.optional()?.unwrap_or((0, Vec::new(), None));
    // A damaged epoch starts over: the previous owner of the shard is gone.
    let epoch = if (0..i64::MAX).contains(&epoch) { epoch + 1 } else { 1 };
    if role != SessionRole::Maintenance
        && let Some(from_ms) = idle_since_ms.take().map(i64::cast_unsigned)
        && from_ms < now_ms
    {
        gaps.push(Gap { from_ms, until_ms: now_ms });
        let surplus = gaps.len().saturating_sub(OwnedShard::MAX_GAPS);
        gaps.drain(..surplus);
    }
    let session = session.0.to_be_bytes();
    let values = params![shard.0, session, epoch, json(&gaps)?, idle_since_ms];
    connection.prepare_cached(GIVE)?.execute(values)?;
    Ok(epoch.cast_unsigned())
}

/// Releases a shard for the next claim.
pub(crate) fn give_up(
    connection: &Connection,
    shard: ShardId,
    role: SessionRole,
    end: End,
) -> rusqlite::Result<()> {
    if role == SessionRole::Maintenance {
        return connection.prepare_cached(LEAVE)?.execute([shard.0]).map(drop);
    }
    let (sql, since_ms) = match end {
        End::Released { now_ms } => (RELEASE, now_ms),
        End::Expired { expires_ms } => (EXPIRE, expires_ms),
    };
    connection.prepare_cached(sql)?.execute(params![shard.0, bound(since_ms)]).map(drop)
}

/// Sets or clears the note on a shard of a session.
pub(crate) fn note(
    connection: &Connection,
    session: SessionId,
    shard: ShardId,
    note: Option<&[u8]>,
    is_steady: bool,
) -> rusqlite::Result<()> {
    let session = session.0.to_be_bytes();
    connection.prepare_cached(NOTE)?.execute(params![shard.0, session, note])?;
    if is_steady {
        connection.prepare_cached(STEADY)?.execute(params![shard.0, session])?;
    }
    Ok(())
}

/// All shards of a session.
pub(crate) fn of_session(connection: &Connection, session: SessionId) -> Result<Vec<OwnedShard>, Fault> {
    let mut statement = connection.prepare_cached(OF_SESSION)?;
    collect(statement.query([session.0.to_be_bytes()])?, |row| {
        Ok(OwnedShard {
            shard: read_shard(row, 0)?,
            epoch: read_number(row, 1)?,
            unclean_ends: u32::try_from(row.get::<_, i64>(2)?.max(0)).unwrap_or(u32::MAX),
            note: maybe_bytes(row, 3)?,
            gaps: read_gaps(row, 4)?,
        })
    })
}

/// Fails if the session has ended or does not own all of the shards.
pub(crate) fn check(connection: &Connection, session: SessionId, shards: &ShardSet) -> Result<(), Fault> {
    let gone = || Fault::Row(StoreError::SessionGone);
    let id = session.0.to_be_bytes();
    if !connection.prepare_cached(SESSION_EXISTS)?.exists([id])? {
        return Err(gone());
    }
    let mut owned = connection.prepare_cached(OWNED)?;
    let owned = collect(owned.query([id])?, |row| Ok(read_shard(row, 0)?))?;
    let owned: ShardSet = owned.into_iter().collect();
    if owned.and(shards) == *shards { Ok(()) } else { Err(gone()) }
}

/// The owner of a shard, according to the table.
pub(crate) fn owner(connection: &Connection, shard: ShardId) -> Result<ShardOwner, Fault> {
    let mut find = connection.prepare_cached(OWNER)?;
    let found = find
        .query_row([shard.0], |row| Ok((row.get::<_, Option<[u8; 16]>>(0)?, row.get::<_, Option<i64>>(1)?)));
    let (session, idle_since_ms) = found.optional()?.unwrap_or_default();
    Ok(ShardOwner {
        session: session.map(|session| SessionId(u128::from_be_bytes(session))),
        idle_since_ms: idle_since_ms.map(|at_ms| at_ms.max(0).cast_unsigned()),
    })
}

/// The owners of all shards, according to the table.
pub(crate) fn tenures(connection: &Connection) -> rusqlite::Result<[Tenure; SHARDS]> {
    let mut tenures = [Tenure::default(); SHARDS];
    let mut statement = connection.prepare_cached("SELECT shard, session, epoch FROM shards")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        // Damaged rows have no owner: a claim rewrites them.
        let (Ok(shard), Ok(session)) = (row.get::<_, u8>(0), row.get::<_, Option<[u8; 16]>>(1)) else {
            continue;
        };
        let owner = session.map(|session| SessionId(u128::from_be_bytes(session)));
        let epoch = row.get::<_, i64>(2)?.cast_unsigned();
        tenures[usize::from(shard)] = Tenure { owner, epoch };
    }
    Ok(tenures)
}

pub(crate) fn maybe_bytes(row: &Row<'_>, column: usize) -> Result<Option<Arc<[u8]>>, Fault> {
    if row.get_ref(column)? == rusqlite::types::ValueRef::Null {
        Ok(None)
    } else {
        bytes(row, column).map(Some)
    }
}

/// Gaps that cannot be read are dropped: they only extend grace periods, and nothing else depends on them.
pub(crate) fn read_gaps(row: &Row<'_>, column: usize) -> rusqlite::Result<Vec<Gap>> {
    let text = row.get_ref(column)?.as_bytes().unwrap_or_default();
    Ok(serde_json::from_slice(text).unwrap_or_default())
}
