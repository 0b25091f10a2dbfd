//! Sessions and the ownership of shards.

use std::collections::BTreeMap;
use std::sync::Arc;

use perennial_core::ShardId;
use perennial_core::store::{
    Changes, Directory, Gap, Lease, NewSession, OwnedShard, Replaced, SessionId, SessionRole, SessionRow,
    ShardOwner, ShardSet, StoreError,
};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::connection::Argument;
use crate::failure::Access;
use crate::row::{bound, column, read_bytes, read_maybe_number, read_number, read_shard};
use crate::store::Inner;

const OPEN: &str = "SELECT * FROM @.open_session($1, $2, $3, $4, $5, $6)";
const RENEW: &str = "SELECT * FROM @.renew_session($1, $2, $3)";
const END: &str = "SELECT @.end_session($1, $2)";
const CLAIM: &str =
    "SELECT shard, epoch, unclean_ends, note, gaps FROM @.claim_shards($1, $2, $3) ORDER BY shard";
const RELEASE: &str = "SELECT @.release_some($1, $2, $3)";
const REPLACE: &str = "SELECT shard, epoch, unclean_ends, note, gaps, now_ms, expires_ms \
     FROM @.replace_session($1, $2, $3, $4, $5, $6, $7) ORDER BY shard";
const NOTE: &str = "SELECT @.write_shard_notes($1, $2, $3, $4)";
const DIRECTORY: &str = "SELECT n.now_ms, s.id, s.role, s.node, s.opened_ms, s.expires_ms, s.info, \
     (SELECT count(*) FROM @.shards AS h WHERE h.session = s.id) \
     FROM (SELECT coalesce($1, @.now_ms()) AS now_ms) AS n LEFT JOIN @.sessions AS s ON true ORDER BY s.id";
const OWNER: &str = "SELECT session, idle_since_ms FROM @.shards WHERE shard = $1";

/// Converts a session's id to a column value.
pub(crate) fn session_uuid(session: SessionId) -> Uuid {
    Uuid::from_u128(session.0)
}

/// Converts a set of shards to an array.
pub(crate) fn numbers(shards: &ShardSet) -> Vec<i16> {
    shards.iter().map(|shard| i16::from(shard.0)).collect()
}

pub(crate) async fn open(inner: &Inner, session: NewSession) -> Result<Lease, StoreError> {
    let (id, node, role) = (session_uuid(session.id), session_uuid(session.node), session.role.name());
    let (lease_ms, at) = (bound(session.lease_ms), inner.at());
    let arguments: [Argument<'_>; 6] = [
        (&id, Type::UUID),
        (&role, Type::TEXT),
        (&node, Type::UUID),
        (&lease_ms, Type::INT8),
        (&&session.info[..], Type::BYTEA),
        (&at, Type::INT8),
    ];
    let rows = inner.query(OPEN, &arguments, Access::Writes).await?;
    if session.role == SessionRole::Node {
        notify_owners(inner, ShardSet::ALL);
    }
    lease(inner.one(&rows)?, 0)
}

pub(crate) async fn renew(
    inner: &Inner,
    session: SessionId,
    info: Option<Arc<[u8]>>,
) -> Result<Lease, StoreError> {
    let (id, info, at) = (session_uuid(session), info.as_deref(), inner.at());
    let arguments: [Argument<'_>; 3] = [(&id, Type::UUID), (&info, Type::BYTEA), (&at, Type::INT8)];
    let rows = inner.query(RENEW, &arguments, Access::Writes).await?;
    lease(inner.one(&rows)?, 0)
}

pub(crate) async fn end(inner: &Inner, session: SessionId) -> Result<(), StoreError> {
    let (id, at) = (session_uuid(session), inner.at());
    inner.query(END, &[(&id, Type::UUID), (&at, Type::INT8)], Access::Writes).await?;
    notify_owners(inner, ShardSet::ALL);
    Ok(())
}

/// Notifies other processes that these shards are free, or have to be divided again.
fn notify_owners(inner: &Inner, owners: ShardSet) {
    inner.hints.notify(&Changes { owners, ..Changes::default() });
}

pub(crate) async fn claim(
    inner: &Inner,
    session: SessionId,
    target: usize,
) -> Result<Vec<OwnedShard>, StoreError> {
    let (id, at) = (session_uuid(session), inner.at());
    let target = i32::try_from(target).unwrap_or(i32::MAX);
    let arguments: [Argument<'_>; 3] = [(&id, Type::UUID), (&target, Type::INT4), (&at, Type::INT8)];
    let rows = inner.query(CLAIM, &arguments, Access::Writes).await?;
    if let Some(first) = rows.first()
        && column::<i16>(first, 0)? < 0
    {
        return Err(StoreError::SessionGone);
    }
    rows.iter().map(owned).collect()
}

pub(crate) async fn release(inner: &Inner, session: SessionId, shards: ShardSet) -> Result<(), StoreError> {
    let (id, released, at) = (session_uuid(session), numbers(&shards), inner.at());
    let arguments: [Argument<'_>; 3] = [(&id, Type::UUID), (&released, Type::INT2_ARRAY), (&at, Type::INT8)];
    inner.query(RELEASE, &arguments, Access::Writes).await?;
    notify_owners(inner, shards);
    Ok(())
}

pub(crate) async fn replace(inner: &Inner, old: SessionId, new: NewSession) -> Result<Replaced, StoreError> {
    let (old, id, node) = (session_uuid(old), session_uuid(new.id), session_uuid(new.node));
    let (role, lease_ms, at) = (new.role.name(), bound(new.lease_ms), inner.at());
    let arguments: [Argument<'_>; 7] = [
        (&old, Type::UUID),
        (&id, Type::UUID),
        (&role, Type::TEXT),
        (&node, Type::UUID),
        (&lease_ms, Type::INT8),
        (&&new.info[..], Type::BYTEA),
        (&at, Type::INT8),
    ];
    let rows = inner.query(REPLACE, &arguments, Access::Writes).await?;
    let lease = lease(inner.one(&rows)?, 5)?;
    let owns = |row: &&Row| row.try_get::<_, Option<i16>>(0).is_ok_and(|shard| shard.is_some());
    let shards = rows.iter().filter(owns).map(owned).collect::<Result<_, _>>()?;
    Ok(Replaced { lease, shards })
}

pub(crate) async fn note(
    inner: &Inner,
    session: SessionId,
    notes: Vec<(ShardId, Option<Arc<[u8]>>)>,
    is_steady: bool,
) -> Result<(), StoreError> {
    // If a shard has several notes, the last one is used.
    let notes: BTreeMap<ShardId, Option<Arc<[u8]>>> = notes.into_iter().collect();
    let shards: Vec<i16> = notes.keys().map(|shard| i16::from(shard.0)).collect();
    let bodies: Vec<Option<&[u8]>> = notes.values().map(|note| note.as_deref()).collect();
    let id = session_uuid(session);
    let arguments: [Argument<'_>; 4] = [
        (&id, Type::UUID),
        (&shards, Type::INT2_ARRAY),
        (&bodies, Type::BYTEA_ARRAY),
        (&is_steady, Type::BOOL),
    ];
    inner.query(NOTE, &arguments, Access::Writes).await.map(drop)
}

pub(crate) async fn directory(inner: &Inner) -> Result<Directory, StoreError> {
    let at = inner.at();
    let rows = inner.query(DIRECTORY, &[(&at, Type::INT8)], Access::Reads).await?;
    let mut directory = Directory { now_ms: read_number(inner.one(&rows)?, 0)?, sessions: Vec::new() };
    for row in &rows {
        let Some(id) = column::<Option<Uuid>>(row, 1)? else { continue };
        let role: &str = column(row, 2)?;
        directory.sessions.push(SessionRow {
            id: SessionId(id.as_u128()),
            role: SessionRole::from_name(role)
                .ok_or_else(|| StoreError::CorruptRow(format!("{role:?} is not a role of a session")))?,
            node: SessionId(column::<Uuid>(row, 3)?.as_u128()),
            opened_ms: read_number(row, 4)?,
            expires_ms: read_number(row, 5)?,
            shards: usize::try_from(read_number(row, 7)?).unwrap_or(usize::MAX),
            info: read_bytes(row, 6)?,
        });
    }
    Ok(directory)
}

pub(crate) async fn shard_owner(inner: &Inner, shard: ShardId) -> Result<ShardOwner, StoreError> {
    let shard = i16::from(shard.0);
    let rows = inner.query(OWNER, &[(&shard, Type::INT2)], Access::Reads).await?;
    let row = inner.one(&rows)?;
    let session = column::<Option<Uuid>>(row, 0)?.map(|id| SessionId(id.as_u128()));
    Ok(ShardOwner { session, idle_since_ms: read_maybe_number(row, 1)? })
}

fn lease(row: &Row, first: usize) -> Result<Lease, StoreError> {
    Ok(Lease { now_ms: read_number(row, first)?, expires_ms: read_number(row, first + 1)? })
}

fn owned(row: &Row) -> Result<OwnedShard, StoreError> {
    Ok(OwnedShard {
        shard: read_shard(row, 0)?,
        epoch: read_number(row, 1)?,
        unclean_ends: u32::try_from(read_number(row, 2)?).unwrap_or(u32::MAX),
        note: column::<Option<&[u8]>>(row, 3)?.map(Arc::from),
        gaps: read_gaps(row, 4)?,
    })
}

pub(crate) fn read_gaps(row: &Row, place: usize) -> Result<Vec<Gap>, StoreError> {
    let gaps: Vec<i64> = column(row, place)?;
    let gap = |pair: &[i64]| Gap { from_ms: pair[0].cast_unsigned(), until_ms: pair[1].cast_unsigned() };
    Ok(gaps.chunks_exact(2).map(gap).collect())
}
