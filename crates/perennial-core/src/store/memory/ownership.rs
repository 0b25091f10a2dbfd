//! Sessions and shards: who may commit for which shards, and what is kept about a shard without an owner.
//!
//! A maintenance session owns shards and increments their epochs like a lane, but does not change unclean ends, notes
//! and gaps, which describe lanes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::flaws::{self, Flaw};
use crate::instance::ShardId;
use crate::store::error::StoreError;
use crate::store::moving::MovedShard;
use crate::store::session::{
    Directory, Gap, Lease, NewSession, OwnedShard, Replaced, SessionId, SessionRole, SessionRow, ShardOwner,
};
use crate::store::shard_set::ShardSet;

/// A stored session.
#[derive(Clone, Debug)]
pub struct SessionEntry {
    /// The parameters with which it was opened.
    pub session: NewSession,
    /// When it was opened.
    pub opened_ms: u64,
    /// When it expires unless renewed.
    pub expires_ms: u64,
}

/// A stored shard. A shard that never had an owner has no entry.
#[derive(Clone, Debug, Default)]
pub struct ShardEntry {
    /// The session that owns it.
    pub owner: Option<SessionId>,
    /// How many times its owner has changed.
    pub epoch: u64,
    /// How many lanes in a row ended without releasing it.
    pub unclean_ends: u32,
    /// The note of its last owner.
    pub note: Option<Arc<[u8]>>,
    /// The most recent periods in which no lane owned it.
    pub gaps: Vec<Gap>,
    /// Since when no lane has owned it; `None` while a lane owns it and before the first.
    pub idle_since_ms: Option<u64>,
}

impl ShardEntry {
    fn give(&mut self, session: SessionId, role: SessionRole, now_ms: u64) {
        self.owner = Some(session);
        self.epoch += 1;
        if role == SessionRole::Maintenance {
            return;
        }
        if let Some(from_ms) = self.idle_since_ms.take()
            && from_ms < now_ms
        {
            self.gaps.push(Gap { from_ms, until_ms: now_ms });
            let surplus = self.gaps.len().saturating_sub(OwnedShard::MAX_GAPS);
            self.gaps.drain(..surplus);
        }
    }

    fn give_up(&mut self, role: SessionRole, end: End) {
        self.owner = None;
        if role == SessionRole::Maintenance {
            return;
        }
        match end {
            End::Released { now_ms } => {
                self.idle_since_ms = Some(now_ms);
                self.unclean_ends = 0;
                self.note = None;
            }
            End::Expired { expires_ms } => {
                self.idle_since_ms = Some(expires_ms);
                self.unclean_ends = self.unclean_ends.saturating_add(1);
            }
        }
    }

    pub(super) fn moved(&self, shard: ShardId) -> MovedShard {
        MovedShard {
            shard,
            unclean_ends: self.unclean_ends,
            note: self.note.clone(),
            gaps: self.gaps.clone(),
            idle_since_ms: self.idle_since_ms,
        }
    }

    fn row(&self, shard: ShardId) -> OwnedShard {
        OwnedShard {
            shard,
            epoch: self.epoch,
            unclean_ends: self.unclean_ends,
            note: self.note.clone(),
            gaps: self.gaps.clone(),
        }
    }
}

/// How a session's ownership ends.
#[derive(Clone, Copy)]
enum End {
    Released { now_ms: u64 },
    Expired { expires_ms: u64 },
}

/// All sessions and shards.
#[derive(Clone, Debug, Default)]
pub struct Ownership {
    /// The sessions that have not been ended.
    pub sessions: BTreeMap<SessionId, SessionEntry>,
    /// The shards that have had an owner.
    pub shards: BTreeMap<ShardId, ShardEntry>,
}

impl Ownership {
    /// The session that owns a shard.
    pub fn owner(&self, shard: ShardId) -> Option<SessionId> {
        self.shards.get(&shard)?.owner
    }

    /// Whether a session owns a shard at an epoch.
    pub fn owns_at(&self, session: SessionId, shard: ShardId, epoch: u64) -> bool {
        let is_it = |entry: &ShardEntry| entry.epoch == epoch || flaws::is(Flaw::EpochUnchecked);
        self.shards.get(&shard).is_some_and(|entry| entry.owner == Some(session) && is_it(entry))
    }

    /// Fails if the session has ended or does not own all of the shards.
    pub fn check(&self, session: SessionId, shards: &ShardSet) -> Result<(), StoreError> {
        let owns = |shard: ShardId| self.owner(shard) == Some(session);
        let holds = self.sessions.contains_key(&session) && shards.iter().all(owns);
        if holds { Ok(()) } else { Err(StoreError::SessionGone) }
    }

    pub(super) fn open(&mut self, new: NewSession, now_ms: u64) -> Result<Lease, StoreError> {
        if self.sessions.contains_key(&new.id) {
            return self.renew(new.id, None, now_ms);
        }
        self.check_role(new.role, None, now_ms)?;
        let lease = self.insert(new, now_ms);
        Ok(lease)
    }

    pub(super) fn renew(
        &mut self,
        session: SessionId,
        info: Option<Arc<[u8]>>,
        now_ms: u64,
    ) -> Result<Lease, StoreError> {
        let entry = self.sessions.get_mut(&session).ok_or(StoreError::SessionGone)?;
        if let Some(info) = info {
            entry.session.info = info;
        }
        entry.expires_ms = now_ms.saturating_add(entry.session.lease_ms);
        Ok(Lease { now_ms, expires_ms: entry.expires_ms })
    }

    pub(super) fn end(&mut self, session: SessionId, now_ms: u64) {
        self.remove(session, |_| End::Released { now_ms });
    }

    pub(super) fn claim(
        &mut self,
        session: SessionId,
        target: usize,
        now_ms: u64,
    ) -> Result<Vec<OwnedShard>, StoreError> {
        let expired: Vec<SessionId> = self
            .sessions
            .iter()
            .filter(|(_, entry)| entry.expires_ms < now_ms)
            .map(|(session, _)| *session)
            .collect();
        for session in expired {
            self.remove(session, |entry| End::Expired { expires_ms: entry.expires_ms });
        }
        let role = self.sessions.get(&session).ok_or(StoreError::SessionGone)?.session.role;
        let missing = target.saturating_sub(self.shards_of(session).count());
        let free = ShardId::all().filter(|shard| self.owner(*shard).is_none()).take(missing);
        for shard in free.collect::<Vec<_>>() {
            self.shards.entry(shard).or_default().give(session, role, now_ms);
        }
        Ok(self.rows_of(session))
    }

    pub(super) fn release(&mut self, session: SessionId, shards: &ShardSet, now_ms: u64) {
        let Some(role) = self.sessions.get(&session).map(|entry| entry.session.role) else { return };
        for (shard, entry) in &mut self.shards {
            if entry.owner == Some(session) && shards.contains(*shard) {
                entry.give_up(role, End::Released { now_ms });
            }
        }
    }

    pub(super) fn replace(
        &mut self,
        old: SessionId,
        new: NewSession,
        now_ms: u64,
    ) -> Result<Replaced, StoreError> {
        let (id, role) = (new.id, new.role);
        if self.sessions.contains_key(&id) {
            return Ok(Replaced { lease: self.renew(id, None, now_ms)?, shards: self.rows_of(id) });
        }
        self.check_role(role, Some(old), now_ms)?;
        let was_there = self.sessions.remove(&old).is_some();
        let lease = self.insert(new, now_ms);
        if was_there {
            for entry in self.shards.values_mut().filter(|entry| entry.owner == Some(old)) {
                entry.give(id, role, now_ms);
            }
        }
        Ok(Replaced { lease, shards: self.rows_of(id) })
    }

    pub(super) fn note(
        &mut self,
        session: SessionId,
        notes: Vec<(ShardId, Option<Arc<[u8]>>)>,
        is_steady: bool,
    ) -> Result<(), StoreError> {
        self.check(session, &ShardSet::EMPTY)?;
        for (shard, note) in notes {
            let owned = self.shards.get_mut(&shard).filter(|entry| entry.owner == Some(session));
            if let Some(entry) = owned {
                entry.note = note;
                if is_steady {
                    entry.unclean_ends = 0;
                }
            }
        }
        Ok(())
    }

    pub(super) fn shard_owner(&self, shard: ShardId) -> ShardOwner {
        let entry = self.shards.get(&shard);
        entry.map_or_else(ShardOwner::default, |entry| ShardOwner {
            session: entry.owner,
            idle_since_ms: entry.idle_since_ms,
        })
    }

    pub(super) fn directory(&self, now_ms: u64) -> Directory {
        let row = |(id, entry): (&SessionId, &SessionEntry)| SessionRow {
            id: *id,
            role: entry.session.role,
            node: entry.session.node,
            opened_ms: entry.opened_ms,
            expires_ms: entry.expires_ms,
            shards: self.shards_of(*id).count(),
            info: Arc::clone(&entry.session.info),
        };
        Directory { now_ms, sessions: self.sessions.iter().map(row).collect() }
    }

    /// Refuses maintenance while a lane is live. The session that is being replaced is ignored.
    fn check_role(
        &self,
        role: SessionRole,
        except: Option<SessionId>,
        now_ms: u64,
    ) -> Result<(), StoreError> {
        let is_live_lane = |(id, entry): (&SessionId, &SessionEntry)| {
            entry.session.role == SessionRole::Lane && entry.expires_ms >= now_ms && Some(*id) != except
        };
        if role == SessionRole::Maintenance && self.sessions.iter().any(is_live_lane) {
            return Err(StoreError::InUse("a node owns shards and does the maintenance itself".to_owned()));
        }
        Ok(())
    }

    /// Inserts a session. A lane ends all maintenance sessions.
    fn insert(&mut self, new: NewSession, now_ms: u64) -> Lease {
        if new.role == SessionRole::Lane {
            let visitors: Vec<SessionId> = self
                .sessions
                .iter()
                .filter(|(_, entry)| entry.session.role == SessionRole::Maintenance)
                .map(|(id, _)| *id)
                .collect();
            for visitor in visitors {
                self.end(visitor, now_ms);
            }
        }
        let expires_ms = now_ms.saturating_add(new.lease_ms);
        self.sessions.insert(new.id, SessionEntry { session: new, opened_ms: now_ms, expires_ms });
        Lease { now_ms, expires_ms }
    }

    fn remove(&mut self, session: SessionId, end: impl Fn(&SessionEntry) -> End) {
        let Some(removed) = self.sessions.remove(&session) else { return };
        for entry in self.shards.values_mut().filter(|entry| entry.owner == Some(session)) {
            entry.give_up(removed.session.role, end(&removed));
        }
    }

    fn shards_of(&self, session: SessionId) -> impl Iterator<Item = (&ShardId, &ShardEntry)> {
        self.shards.iter().filter(move |(_, entry)| entry.owner == Some(session))
    }

    fn rows_of(&self, session: SessionId) -> Vec<OwnedShard> {
        self.shards_of(session).map(|(shard, entry)| entry.row(*shard)).collect()
    }
}
