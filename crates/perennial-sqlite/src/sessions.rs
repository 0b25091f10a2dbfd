//! Sessions: who may commit for which shards.
//!
//! They are kept in memory, for the check of every commit, and in tables, for readers and other processes. Only the
//! owner of the file writes those tables; so leases are renewed in memory only, and an idle owner writes nothing. If
//! another process changed the tables anyway (for example because the lock file was deleted), [`Sessions::reload`]
//! detects it, and the shards are no longer owned here.
//!
//! A new owner of the file ends the sessions of the previous one, see [`end_all`]. That one may have died long ago;
//! when it was last seen is written with commits, see [`Sessions::touch`].

use std::collections::BTreeMap;
use std::sync::Arc;

use perennial_core::store::{
    Directory, Lease, NewSession, OwnedShard, Replaced, SessionId, SessionRole, SessionRow, ShardSet,
    StoreError,
};
use perennial_core::{SHARDS, ShardId};
use rusqlite::{Connection, params};

use crate::calls::Renewal;
use crate::row::bound;
use crate::send::Stop;
use crate::shards::{self, End};

pub(crate) const INSERT: &str = "INSERT INTO sessions (id, role, node, lease_ms, opened_ms, seen_ms, info) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6)";
pub(crate) const DELETE: &str = "DELETE FROM sessions WHERE id = ?1";
pub(crate) const TOUCH: &str = "UPDATE sessions SET seen_ms = ?2 WHERE id = ?1";

#[derive(Clone)]
pub(crate) struct Sessions {
    sessions: BTreeMap<SessionId, SessionState>,
    shards: [Tenure; SHARDS],
}

#[derive(Clone)]
struct SessionState {
    new: NewSession,
    opened_ms: u64,
    expires_ms: u64,
    /// The value in the table.
    seen_ms: u64,
}

/// The owner of a shard, and its epoch.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tenure {
    pub(crate) owner: Option<SessionId>,
    pub(crate) epoch: u64,
}

impl Sessions {
    pub(crate) fn new() -> Sessions {
        Sessions { sessions: BTreeMap::new(), shards: [Tenure::default(); SHARDS] }
    }

    pub(crate) fn owner(&self, shard: ShardId) -> Option<SessionId> {
        self.shards[usize::from(shard.0)].owner
    }

    pub(crate) fn owns_at(&self, session: SessionId, shard: ShardId, epoch: u64) -> bool {
        let tenure = &self.shards[usize::from(shard.0)];
        tenure.owner == Some(session) && tenure.epoch == epoch
    }

    pub(crate) fn is_open(&self, session: SessionId) -> bool {
        self.sessions.contains_key(&session)
    }

    /// Whether a session exists and has not expired.
    pub(crate) fn is_live(&self, session: SessionId, now_ms: u64) -> bool {
        self.sessions.get(&session).is_some_and(|state| state.expires_ms >= now_ms)
    }

    pub(crate) fn open(
        &mut self,
        connection: &Connection,
        new: &NewSession,
        now_ms: u64,
    ) -> rusqlite::Result<Result<Lease, StoreError>> {
        if self.is_open(new.id) {
            return Ok(self.renew(&Renewal { session: new.id, info: None }, now_ms));
        }
        if let Err(refusal) = self.check_role(new.role, None, now_ms) {
            return Ok(Err(refusal));
        }
        self.insert(connection, new, now_ms).map(Ok)
    }

    /// Renews a session. Its record changes in memory only, like its lease: the only node of the file reads it there.
    pub(crate) fn renew(&mut self, renewal: &Renewal, now_ms: u64) -> Result<Lease, StoreError> {
        let state = self.sessions.get_mut(&renewal.session).ok_or(StoreError::SessionGone)?;
        if let Some(info) = &renewal.info {
            state.new.info = Arc::clone(info);
        }
        state.expires_ms = now_ms.saturating_add(state.new.lease_ms);
        Ok(Lease { now_ms, expires_ms: state.expires_ms })
    }

    /// Ends a session that releases its shards.
    pub(crate) fn end(
        &mut self,
        connection: &Connection,
        session: SessionId,
        now_ms: u64,
    ) -> rusqlite::Result<()> {
        self.remove(connection, session, |_| End::Released { now_ms })
    }

    /// Ends expired sessions, then gives the session free shards until it has as many as it wants.
    pub(crate) fn claim(
        &mut self,
        connection: &Connection,
        session: SessionId,
        target: usize,
        now_ms: u64,
    ) -> Result<Result<Vec<OwnedShard>, StoreError>, Stop> {
        let expired: Vec<SessionId> =
            self.sessions.iter().filter(|(_, state)| state.expires_ms < now_ms).map(|(id, _)| *id).collect();
        for expired in expired {
            self.remove(connection, expired, |state| End::Expired { expires_ms: state.expires_ms })?;
        }
        let Some(role) = self.role(session) else { return Ok(Err(StoreError::SessionGone)) };
        let owned = self.shards.iter().filter(|tenure| tenure.owner == Some(session)).count();
        let free = ShardId::all().filter(|shard| self.owner(*shard).is_none());
        for shard in free.take(target.saturating_sub(owned)).collect::<Vec<_>>() {
            let epoch = shards::give(connection, shard, session, role, now_ms)?;
            self.shards[usize::from(shard.0)] = Tenure { owner: Some(session), epoch };
        }
        self.touch(connection, session, now_ms)?;
        Ok(Ok(shards::of_session(connection, session)?))
    }

    pub(crate) fn release(
        &mut self,
        connection: &Connection,
        session: SessionId,
        shards: &ShardSet,
        now_ms: u64,
    ) -> rusqlite::Result<()> {
        let Some(role) = self.role(session) else { return Ok(()) };
        for shard in shards.iter().filter(|shard| self.owner(*shard) == Some(session)).collect::<Vec<_>>() {
            shards::give_up(connection, shard, role, End::Released { now_ms })?;
            self.shards[usize::from(shard.0)].owner = None;
        }
        Ok(())
    }

    /// Replaces a session with a new one.
    pub(crate) fn replace(
        &mut self,
        connection: &Connection,
        old: SessionId,
        new: &NewSession,
        now_ms: u64,
    ) -> Result<Result<Replaced, StoreError>, Stop> {
        if self.is_open(new.id) {
            let shards = shards::of_session(connection, new.id)?;
            let renewal = Renewal { session: new.id, info: None };
            return Ok(self.renew(&renewal, now_ms).map(|lease| Replaced { lease, shards }));
        }
        if let Err(refusal) = self.check_role(new.role, Some(old), now_ms) {
            return Ok(Err(refusal));
        }
        let was_there = self.sessions.remove(&old).is_some();
        connection.prepare_cached(DELETE)?.execute([old.0.to_be_bytes()])?;
        let lease = self.insert(connection, new, now_ms)?;
        if was_there {
            let owned = ShardId::all().filter(|shard| self.owner(*shard) == Some(old));
            for shard in owned.collect::<Vec<_>>() {
                let epoch = shards::give(connection, shard, new.id, new.role, now_ms)?;
                self.shards[usize::from(shard.0)] = Tenure { owner: Some(new.id), epoch };
            }
        }
        Ok(Ok(Replaced { lease, shards: shards::of_session(connection, new.id)? }))
    }

    pub(crate) fn directory(&self, now_ms: u64) -> Directory {
        let row = |(id, state): (&SessionId, &SessionState)| SessionRow {
            id: *id,
            role: state.new.role,
            node: state.new.node,
            opened_ms: state.opened_ms,
            expires_ms: state.expires_ms,
            shards: self.shards.iter().filter(|tenure| tenure.owner == Some(*id)).count(),
            info: Arc::clone(&state.new.info),
        };
        Directory { now_ms, sessions: self.sessions.iter().map(row).collect() }
    }

    /// Records that a session is alive, in a transaction that is written anyway, if the last record is old.
    pub(crate) fn touch(
        &mut self,
        connection: &Connection,
        session: SessionId,
        now_ms: u64,
    ) -> rusqlite::Result<()> {
        let Some(state) = self.sessions.get_mut(&session) else { return Ok(()) };
        if now_ms.saturating_sub(state.seen_ms) > state.new.lease_ms / 3 {
            connection.prepare_cached(TOUCH)?.execute(params![session.0.to_be_bytes(), bound(now_ms)])?;
            state.seen_ms = now_ms;
        }
        Ok(())
    }

    /// Drops the ownership that the tables no longer contain.
    pub(crate) fn reload(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let mut stored = connection.prepare_cached("SELECT id FROM sessions")?;
        let stored: Vec<[u8; 16]> = stored.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
        self.sessions.retain(|id, _| stored.contains(&id.0.to_be_bytes()));
        self.shards = shards::tenures(connection)?;
        for tenure in &mut self.shards {
            tenure.owner = tenure.owner.filter(|owner| self.sessions.contains_key(owner));
        }
        Ok(())
    }

    fn role(&self, session: SessionId) -> Option<SessionRole> {
        self.sessions.get(&session).map(|state| state.new.role)
    }

    /// Refuses maintenance while a lane is live. The session that is being replaced is ignored.
    fn check_role(
        &self,
        role: SessionRole,
        except: Option<SessionId>,
        now_ms: u64,
    ) -> Result<(), StoreError> {
        let is_live_lane = |(id, state): (&SessionId, &SessionState)| {
            state.new.role == SessionRole::Lane && state.expires_ms >= now_ms && Some(*id) != except
        };
        if role == SessionRole::Maintenance && self.sessions.iter().any(is_live_lane) {
            return Err(StoreError::InUse("a node owns shards and does the maintenance itself".to_owned()));
        }
        Ok(())
    }

    /// Inserts a session. A lane ends all maintenance sessions.
    fn insert(&mut self, connection: &Connection, new: &NewSession, now_ms: u64) -> rusqlite::Result<Lease> {
        if new.role == SessionRole::Lane {
            let visitors = self.sessions.iter().filter(|(_, it)| it.new.role == SessionRole::Maintenance);
            for visitor in visitors.map(|(id, _)| *id).collect::<Vec<_>>() {
                self.end(connection, visitor, now_ms)?;
            }
        }
        connection.prepare_cached(INSERT)?.execute(params![
            new.id.0.to_be_bytes(),
            new.role.name(),
            new.node.0.to_be_bytes(),
            bound(new.lease_ms),
            bound(now_ms),
            &new.info[..],
        ])?;
        let expires_ms = now_ms.saturating_add(new.lease_ms);
        let state = SessionState { new: new.clone(), opened_ms: now_ms, expires_ms, seen_ms: now_ms };
        self.sessions.insert(new.id, state);
        Ok(Lease { now_ms, expires_ms })
    }

    fn remove(
        &mut self,
        connection: &Connection,
        session: SessionId,
        end: impl Fn(&SessionState) -> End,
    ) -> rusqlite::Result<()> {
        let Some(removed) = self.sessions.remove(&session) else { return Ok(()) };
        let owned = ShardId::all().filter(|shard| self.owner(*shard) == Some(session));
        for shard in owned.collect::<Vec<_>>() {
            shards::give_up(connection, shard, removed.new.role, end(&removed))?;
            self.shards[usize::from(shard.0)].owner = None;
        }
        connection.prepare_cached(DELETE)?.execute([session.0.to_be_bytes()]).map(drop)
    }
}

/// Ends all sessions of an earlier owner of the file, which is dead, because the caller holds its lock. Shards that its
/// lanes did not release count an unclean end, and have no owner since their lane was last seen.
pub(crate) fn end_all(connection: &Connection) -> rusqlite::Result<()> {
    let mut sessions = connection.prepare("SELECT id, role, seen_ms FROM sessions")?;
    let sessions = sessions.query_map([], |row| {
        let role = row.get_ref(1)?.as_str().ok().and_then(SessionRole::from_name);
        Ok((row.get::<_, Vec<u8>>(0)?, role, row.get::<_, i64>(2)?))
    })?;
    for (id, role, seen_ms) in sessions.collect::<Result<Vec<_>, _>>()? {
        // A session with an unknown role is treated as a lane.
        let role = role.unwrap_or(SessionRole::Lane);
        let end = End::Expired { expires_ms: seen_ms.max(0).cast_unsigned() };
        let mut owned = connection.prepare_cached(shards::OWNED)?;
        let owned = owned.query_map([id], |row| row.get::<_, i64>(0))?;
        for shard in owned.collect::<Result<Vec<_>, _>>()? {
            if let Ok(shard) = u8::try_from(shard) {
                shards::give_up(connection, ShardId(shard), role, end)?;
            }
        }
    }
    connection
        .execute_batch("DELETE FROM sessions; UPDATE shards SET session = NULL WHERE session IS NOT NULL")
}
