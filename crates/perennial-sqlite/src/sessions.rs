//! Sessions: who may commit for which shards.
//!
//! They are kept in memory, where every commit looks, and in tables, where readers and other processes look. Only the
//! owner of the file writes those tables, and whoever becomes the owner empties them; so leases are renewed in memory
//! alone, and an idle owner writes nothing. Should somebody else have emptied the tables nonetheless (the lock file
//! was deleted, say), [`Sessions::reload`] notices, and what was owned here is owned no more.

use std::collections::BTreeMap;

use perennial_core::store::{Lease, Session, SessionId, StoreError};
use perennial_core::{SHARDS, ShardId};
use rusqlite::{Connection, params};

#[derive(Clone)]
pub(crate) struct Sessions {
    leases: BTreeMap<SessionId, LeaseRow>,
    owners: [Option<SessionId>; SHARDS],
}

#[derive(Clone, Copy)]
struct LeaseRow {
    lease_ms: u64,
    expires_ms: u64,
}

impl Sessions {
    pub(crate) fn new() -> Sessions {
        Sessions { leases: BTreeMap::new(), owners: [None; SHARDS] }
    }

    pub(crate) fn owns(&self, session: SessionId, shard: ShardId) -> bool {
        self.owners[usize::from(shard.0)] == Some(session)
    }

    pub(crate) fn is_live(&self, session: SessionId) -> bool {
        self.leases.contains_key(&session)
    }

    pub(crate) fn open(
        &mut self,
        connection: &Connection,
        node: &str,
        lease_ms: u64,
        now_ms: u64,
    ) -> rusqlite::Result<Session> {
        let id: [u8; 16] = connection.query_row("SELECT randomblob(16)", [], |row| row.get(0))?;
        let lease = Lease { now_ms, expires_ms: now_ms.saturating_add(lease_ms) };
        connection
            .prepare_cached("INSERT INTO sessions (id, node, lease_ms, opened_ms) VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![id, node, crate::row::bound(lease_ms), crate::row::bound(now_ms)])?;
        let id = SessionId(u128::from_be_bytes(id));
        self.leases.insert(id, LeaseRow { lease_ms, expires_ms: lease.expires_ms });
        Ok(Session { id, lease })
    }

    pub(crate) fn renew(&mut self, session: SessionId, now_ms: u64) -> Result<Lease, StoreError> {
        let row = self.leases.get_mut(&session).ok_or(StoreError::SessionGone)?;
        row.expires_ms = now_ms.saturating_add(row.lease_ms);
        Ok(Lease { now_ms, expires_ms: row.expires_ms })
    }

    pub(crate) fn end(&mut self, connection: &Connection, session: SessionId) -> rusqlite::Result<()> {
        let id = session.0.to_be_bytes();
        connection.prepare_cached("DELETE FROM shards WHERE session = ?1")?.execute([id])?;
        connection.prepare_cached("DELETE FROM sessions WHERE id = ?1")?.execute([id])?;
        self.forget(session);
        Ok(())
    }

    /// Ends what has expired, then gives the session shards that are free.
    pub(crate) fn claim(
        &mut self,
        connection: &Connection,
        session: SessionId,
        at_most: usize,
        now_ms: u64,
    ) -> rusqlite::Result<Result<Vec<ShardId>, StoreError>> {
        let expired: Vec<SessionId> =
            self.leases.iter().filter(|(_, row)| row.expires_ms < now_ms).map(|(id, _)| *id).collect();
        for expired in expired {
            self.end(connection, expired)?;
        }
        if !self.leases.contains_key(&session) {
            return Ok(Err(StoreError::SessionGone));
        }
        let free: Vec<ShardId> = ShardId::all()
            .filter(|shard| self.owners[usize::from(shard.0)].is_none())
            .take(at_most)
            .collect();
        let mut insert = connection.prepare_cached("INSERT INTO shards (shard, session) VALUES (?1, ?2)")?;
        for shard in &free {
            insert.execute(params![shard.0, session.0.to_be_bytes()])?;
            self.owners[usize::from(shard.0)] = Some(session);
        }
        Ok(Ok(free))
    }

    /// Gives up what the tables no longer hold.
    pub(crate) fn reload(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let mut stored = connection.prepare_cached("SELECT id FROM sessions")?;
        let stored: Vec<[u8; 16]> = stored.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
        self.leases.retain(|id, _| stored.contains(&id.0.to_be_bytes()));
        let mut owners = [None; SHARDS];
        let mut shards = connection.prepare_cached("SELECT shard, session FROM shards")?;
        let mut rows = shards.query([])?;
        while let Some(row) = rows.next()? {
            let shard: u8 = row.get(0)?;
            owners[usize::from(shard)] = Some(SessionId(u128::from_be_bytes(row.get(1)?)));
        }
        self.owners = owners;
        Ok(())
    }

    fn forget(&mut self, session: SessionId) {
        self.leases.remove(&session);
        for owner in &mut self.owners {
            if *owner == Some(session) {
                *owner = None;
            }
        }
    }
}
