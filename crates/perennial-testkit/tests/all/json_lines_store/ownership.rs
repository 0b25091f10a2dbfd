//! Sessions and shards. A session ends by deletion, and only then are its shards free.

use std::sync::Arc;

use perennial_core::ShardId;
use perennial_core::store::{
    Directory, Gap, Lease, MoveMark, NewSession, OwnedShard, Replaced, SessionId, SessionRole, SessionRow,
    ShardOwner, ShardSet, StoreError,
};

use super::tables::{Change, Session, Shard, Tables};

/// The reason why a session loses a shard.
#[derive(Clone, Copy)]
enum Loss {
    Released,
    Expired,
}

impl Tables {
    pub(super) fn open_session(&mut self, new: NewSession, now_ms: u64) -> Result<Lease, StoreError> {
        // A caller that lost the answer opens the session again, which renews it.
        if self.sessions.contains_key(&new.id) {
            return self.renew_session(new.id, None, now_ms);
        }
        self.insert_session(new, None, now_ms)
    }

    pub(super) fn renew_session(
        &mut self,
        id: SessionId,
        info: Option<Arc<[u8]>>,
        now_ms: u64,
    ) -> Result<Lease, StoreError> {
        let mut session = self.sessions.get(&id).cloned().ok_or(StoreError::SessionGone)?;
        let expires_ms = now_ms + session.lease_ms;
        session.expires_ms = expires_ms;
        if let Some(info) = info {
            session.info = info;
        }
        self.write(Change::Session(session));
        Ok(Lease { now_ms, expires_ms })
    }

    pub(super) fn end_session(&mut self, id: SessionId, now_ms: u64) {
        self.lose(id, &ShardSet::ALL, Loss::Released, now_ms);
        self.write(Change::SessionGone(id));
    }

    pub(super) fn claim_shards(
        &mut self,
        id: SessionId,
        target: usize,
        now_ms: u64,
    ) -> Result<Vec<OwnedShard>, StoreError> {
        let expired = self.sessions.values().filter(|session| session.expires_ms < now_ms);
        for (expired, at_ms) in expired.map(|it| (it.id, it.expires_ms)).collect::<Vec<_>>() {
            self.lose(expired, &ShardSet::ALL, Loss::Expired, at_ms);
            self.write(Change::SessionGone(expired));
        }
        if !self.sessions.contains_key(&id) {
            return Err(StoreError::SessionGone);
        }
        let missing = target.saturating_sub(self.shards_of(id).len());
        let free = ShardId::all().filter(|shard| self.owner(*shard).is_none()).take(missing);
        for shard in free.collect::<Vec<_>>() {
            self.give(shard, id, now_ms);
        }
        Ok(self.owned_by(id))
    }

    pub(super) fn release_shards(&mut self, id: SessionId, shards: &ShardSet, now_ms: u64) {
        self.lose(id, shards, Loss::Released, now_ms);
    }

    pub(super) fn replace_session(
        &mut self,
        old: SessionId,
        new: NewSession,
        now_ms: u64,
    ) -> Result<Replaced, StoreError> {
        let id = new.id;
        if self.sessions.contains_key(&id) {
            return Ok(Replaced { lease: self.renew_session(id, None, now_ms)?, shards: self.owned_by(id) });
        }
        let shards = if self.sessions.contains_key(&old) { self.shards_of(old) } else { ShardSet::EMPTY };
        let lease = self.insert_session(new, Some(old), now_ms)?;
        if old != id {
            self.write(Change::SessionGone(old));
        }
        for shard in shards.iter() {
            self.give(shard, id, now_ms);
        }
        Ok(Replaced { lease, shards: self.owned_by(id) })
    }

    pub(super) fn write_notes(
        &mut self,
        id: SessionId,
        notes: Vec<(ShardId, Option<Arc<[u8]>>)>,
        is_steady: bool,
    ) -> Result<(), StoreError> {
        self.check(id, &ShardSet::EMPTY)?;
        for (shard, note) in notes {
            if let Some(row) = self.shards.get(&shard).filter(|row| row.owner == Some(id)) {
                let unclean_ends = if is_steady { 0 } else { row.unclean_ends };
                self.write(Change::Shard(Shard { note, unclean_ends, ..row.clone() }));
            }
        }
        Ok(())
    }

    pub(super) fn shard_owner(&self, shard: ShardId) -> ShardOwner {
        let row = self.shards.get(&shard);
        row.map_or_else(ShardOwner::default, |row| ShardOwner {
            session: row.owner,
            idle_since_ms: row.idle_since_ms,
        })
    }

    pub(super) fn directory(&self, now_ms: u64) -> Directory {
        let row = |session: &Session| SessionRow {
            id: session.id,
            role: session.role,
            node: session.node,
            opened_ms: session.opened_ms,
            expires_ms: session.expires_ms,
            shards: self.shards_of(session.id).len(),
            info: Arc::clone(&session.info),
        };
        Directory { now_ms, sessions: self.sessions.values().map(row).collect() }
    }

    /// Refuses a session that is gone or does not own all of the shards.
    pub(super) fn check(&self, id: SessionId, shards: &ShardSet) -> Result<(), StoreError> {
        let owns = |shard| self.owner(shard) == Some(id);
        let holds = self.sessions.contains_key(&id) && shards.iter().all(owns);
        if holds { Ok(()) } else { Err(StoreError::SessionGone) }
    }

    pub(super) fn owns_at(&self, id: SessionId, shard: ShardId, epoch: u64) -> bool {
        self.shards.get(&shard).is_some_and(|row| row.owner == Some(id) && row.epoch == epoch)
    }

    pub(super) fn owner(&self, shard: ShardId) -> Option<SessionId> {
        self.shards.get(&shard)?.owner
    }

    fn shards_of(&self, id: SessionId) -> ShardSet {
        self.shards.values().filter(|row| row.owner == Some(id)).map(|row| row.shard).collect()
    }

    fn owned_by(&self, id: SessionId) -> Vec<OwnedShard> {
        let owned = |row: &Shard| OwnedShard {
            shard: row.shard,
            epoch: row.epoch,
            unclean_ends: row.unclean_ends,
            note: row.note.clone(),
            gaps: row.gaps.clone(),
        };
        self.shards.values().filter(|row| row.owner == Some(id)).map(owned).collect()
    }

    /// Inserts a session, which may replace another one. Maintenance and lanes exclude each other.
    fn insert_session(
        &mut self,
        new: NewSession,
        replaced: Option<SessionId>,
        now_ms: u64,
    ) -> Result<Lease, StoreError> {
        if let Some(mark) = self.settings.get(MoveMark::SETTING)
            && new.role != SessionRole::Maintenance
        {
            return Err(MoveMark::refusal(mark));
        }
        let others = self.sessions.values().filter(|other| Some(other.id) != replaced);
        let rivals: Vec<Session> = match new.role {
            SessionRole::Node => Vec::new(),
            SessionRole::Lane => others.filter(|it| it.role == SessionRole::Maintenance).cloned().collect(),
            SessionRole::Maintenance => {
                let is_live_lane = |it: &&Session| it.role == SessionRole::Lane && it.expires_ms >= now_ms;
                others.filter(is_live_lane).cloned().collect()
            }
        };
        if new.role == SessionRole::Maintenance && !rivals.is_empty() {
            return Err(StoreError::InUse("a node owns shards".to_owned()));
        }
        for visitor in rivals {
            self.end_session(visitor.id, now_ms);
        }
        let session = Session::new(new, now_ms);
        let lease = Lease { now_ms, expires_ms: session.expires_ms };
        self.write(Change::Session(session));
        Ok(lease)
    }

    /// Whether a session exists and has not expired.
    pub(super) fn is_live(&self, id: SessionId, now_ms: u64) -> bool {
        self.sessions.get(&id).is_some_and(|session| session.expires_ms >= now_ms)
    }

    /// Whether a session is for maintenance: it does not change unclean ends, notes and gaps.
    fn is_visitor(&self, id: SessionId) -> bool {
        self.sessions.get(&id).is_some_and(|session| session.role == SessionRole::Maintenance)
    }

    fn give(&mut self, shard: ShardId, to: SessionId, now_ms: u64) {
        let mut row = self.shards.get(&shard).cloned().unwrap_or(Shard {
            shard,
            owner: None,
            epoch: 0,
            unclean_ends: 0,
            note: None,
            gaps: Vec::new(),
            idle_since_ms: None,
        });
        row.owner = Some(to);
        row.epoch += 1;
        if !self.is_visitor(to)
            && let Some(from_ms) = row.idle_since_ms.take()
            && from_ms < now_ms
        {
            row.gaps.push(Gap { from_ms, until_ms: now_ms });
            row.gaps.drain(..row.gaps.len().saturating_sub(OwnedShard::MAX_GAPS));
        }
        self.write(Change::Shard(row));
    }

    fn lose(&mut self, id: SessionId, shards: &ShardSet, loss: Loss, at_ms: u64) {
        let is_visitor = self.is_visitor(id);
        for shard in self.shards_of(id).and(shards).iter() {
            let mut row = Shard { owner: None, ..self.shards[&shard].clone() };
            if !is_visitor {
                row.idle_since_ms = Some(at_ms);
                match loss {
                    Loss::Released => (row.unclean_ends, row.note) = (0, None),
                    Loss::Expired => row.unclean_ends += 1,
                }
            }
            self.write(Change::Shard(row));
        }
    }
}
