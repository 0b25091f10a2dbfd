//! The purposes of a lane's calls, and the call that a purpose leads to in the current situation.

use std::sync::Arc;

use crate::instance::{InstanceKey, ShardId};
use crate::shard::{RequestId, Tenure};
use crate::store::{
    Commit, InboxNumber, InboxQuery, NewSession, PageLimit, PausedOrchestrations, RequestNumber, SessionId,
    ShardSet,
};

use super::call::StoreCall;
use super::doubts::read_back;
use super::lease::{LeaseKeeper, Standing};
use super::loads::{Extent, LOADED_INBOX};
use super::options::LaneOptions;
use super::suspects::Notes;
use super::tenures::Tenures;

/// How many rows one sweep or one pruning call deletes.
const SWEEP_ROWS: usize = 1_000;

/// The purpose of a call, with everything needed to repeat it.
#[derive(Clone, Debug)]
pub(super) enum Purpose {
    Open,
    Renew,
    Claim,
    /// Asks which shards the session owns, without claiming any.
    Confirm,
    Release(ShardSet),
    Replace,
    End,
    Commit,
    /// A commit in doubt is refused now, or must not be written twice: the stored rows decide.
    ReadBack {
        tenure: Tenure,
        commit: Box<Commit>,
        refused: Option<String>,
    },
    Find {
        tenure: Tenure,
        shard: ShardId,
        request: RequestId,
        id: Arc<str>,
    },
    Load {
        tenure: Tenure,
        shard: ShardId,
        key: InstanceKey,
        extent: Extent,
    },
    /// Reads tasks and messages of an instance again.
    Refresh {
        tenure: Tenure,
        shard: ShardId,
        key: InstanceKey,
    },
    Owed {
        shards: ShardSet,
        after: Option<InstanceKey>,
    },
    Blocked {
        shards: ShardSet,
        after: Option<InstanceKey>,
    },
    Inbox {
        shards: ShardSet,
        from: InboxNumber,
        known: Arc<[InboxNumber]>,
    },
    Requests {
        shards: ShardSet,
        from: RequestNumber,
    },
    Due {
        before_ms: u64,
        after: Option<(u64, InstanceKey)>,
    },
    Notes {
        notes: Notes,
        is_steady: bool,
    },
    Prune {
        tenure: Tenure,
        shard: ShardId,
        key: InstanceKey,
        execution: u64,
    },
    Sweep,
    /// Reads the paused orchestrations.
    Paused,
}

/// What a call depends on, besides its purpose.
pub(super) struct Situation<'a> {
    pub(super) options: &'a LaneOptions,
    pub(super) lease: &'a LeaseKeeper,
    pub(super) tenures: &'a Tenures,
}

/// The call for a purpose in the current situation.
#[derive(Debug)]
pub(super) enum Planned {
    /// This one.
    Call(StoreCall),
    /// None until there is a live session.
    Later,
    /// None: its subject no longer belongs to the lane.
    Unwanted,
}

impl From<Option<StoreCall>> for Planned {
    fn from(call: Option<StoreCall>) -> Planned {
        call.map_or(Planned::Unwanted, Planned::Call)
    }
}

impl Purpose {
    /// The call to make now. For [`Purpose::Commit`] the committer decides.
    pub(super) fn plan(&self, now: &Situation<'_>) -> Planned {
        let session = now.lease.session();
        let call = match self {
            Purpose::Open => Some(StoreCall::OpenSession(now.new_session(session))),
            Purpose::End => Some(StoreCall::EndSession(session)),
            Purpose::Sweep => {
                let keep_executions_ms = now.options.keep_executions_ms;
                Some(StoreCall::Sweep { rows: SWEEP_ROWS, keep_executions_ms })
            }
            Purpose::Paused => Some(StoreCall::ReadSetting { name: PausedOrchestrations::SETTING }),
            Purpose::Replace => match now.lease.standing() {
                Standing::Replacing(new) => {
                    Some(StoreCall::ReplaceSession { old: session, new: now.new_session(new) })
                }
                _ => None,
            },
            Purpose::Find { tenure, shard, id, .. } => {
                now.tenures.has(*shard, *tenure).then(|| StoreCall::Find { id: Arc::clone(id) })
            }
            Purpose::Load { tenure, shard, key, extent } => {
                now.tenures.has(*shard, *tenure).then(|| extent.call(*shard, *key))
            }
            Purpose::Refresh { tenure, shard, key } => {
                now.tenures.has(*shard, *tenure).then_some(StoreCall::Load {
                    shard: *shard,
                    key: *key,
                    after_turn: u64::MAX,
                    inbox: LOADED_INBOX,
                })
            }
            Purpose::ReadBack { tenure, commit, .. } => {
                now.tenures.has(commit.shard, *tenure).then(|| read_back(commit, LOADED_INBOX)).flatten()
            }
            _ if now.lease.standing() != Standing::Live => return Planned::Later,
            purpose => purpose.session_call(now, session),
        };
        call.into()
    }

    /// A call that requires a live session.
    fn session_call(&self, now: &Situation<'_>, session: SessionId) -> Option<StoreCall> {
        let rows = now.options.page_rows;
        let limit = PageLimit { rows, bytes: now.options.page_bytes };
        let (held, readable) = (now.tenures.set(), now.tenures.readable());
        Some(match self {
            Purpose::Renew => StoreCall::RenewSession { session, info: None },
            Purpose::Claim => StoreCall::ClaimShards { session, target: now.tenures.target() },
            Purpose::Confirm => StoreCall::ClaimShards { session, target: 0 },
            Purpose::Release(shards) => StoreCall::ReleaseShards { session, shards: *shards },
            Purpose::Notes { notes, is_steady } => {
                StoreCall::WriteShardNotes { session, notes: notes.clone(), is_steady: *is_steady }
            }
            Purpose::Owed { shards, after } => {
                let shards = some(shards.and(&held))?;
                StoreCall::ReadOwed { session, shards, after: *after, limit: rows }
            }
            Purpose::Blocked { shards, after } => {
                let shards = some(shards.and(&held))?;
                StoreCall::ReadBlocked { session, shards, after: *after, limit: rows }
            }
            Purpose::Due { before_ms, after } => {
                let (shards, before_ms) = (some(held)?, *before_ms);
                StoreCall::ReadDue { session, shards, before_ms, after: *after, limit: rows }
            }
            Purpose::Inbox { shards, from, known } => {
                let shards = some(shards.and(&readable))?;
                let query = InboxQuery { shards, from: *from, known: Arc::clone(known), limit };
                StoreCall::ReadInbox { session, query }
            }
            Purpose::Requests { shards, from } => {
                let shards = some(shards.and(&readable))?;
                StoreCall::ReadRequests { session, shards, from: *from, limit }
            }
            Purpose::Prune { tenure, shard, key, execution } if now.tenures.has(*shard, *tenure) => {
                let (shard, key, execution) = (*shard, *key, *execution);
                StoreCall::PruneExecutions { session, shard, key, execution, rows: SWEEP_ROWS }
            }
            _ => return None,
        })
    }

    /// Whether it changes or reads what the session owns. Only one such call is made at a time: a result tells what the
    /// session owned at that moment, and an older one would contradict a newer one.
    pub(super) fn is_moving(&self) -> bool {
        matches!(self, Purpose::Claim | Purpose::Confirm | Purpose::Release(_))
    }
}

impl Situation<'_> {
    fn new_session(&self, id: SessionId) -> NewSession {
        let LaneOptions { role, node, lease_ms, info, .. } = self.options;
        NewSession { id, role: *role, node: *node, lease_ms: *lease_ms, info: Arc::clone(info) }
    }
}

fn some(shards: ShardSet) -> Option<ShardSet> {
    (!shards.is_empty()).then_some(shards)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::shard::{Shard, ShardOptions};

    const SHARD: ShardId = ShardId(3);

    fn parts() -> (LaneOptions, LeaseKeeper, Tenures) {
        let mut tenures = Tenures::default();
        tenures.gain(SHARD, 1, |tenure| Shard::new(SHARD, tenure, ShardOptions::default(), 7));
        (LaneOptions::default(), LeaseKeeper::new(SessionId(1), 10_000), tenures)
    }

    fn plan(purpose: &Purpose, (options, lease, tenures): &(LaneOptions, LeaseKeeper, Tenures)) -> Planned {
        purpose.plan(&Situation { options, lease, tenures })
    }

    #[test]
    fn n1_what_needs_a_session_waits_for_one_and_what_does_not_is_made_at_once() {
        let mut parts = parts();
        let load = Purpose::Load {
            tenure: Tenure(1),
            shard: SHARD,
            key: InstanceKey::new(1, 1),
            extent: Extent::Usual,
        };
        assert!(matches!(plan(&Purpose::Open, &parts), Planned::Call(StoreCall::OpenSession(_))));
        assert!(matches!(plan(&load, &parts), Planned::Call(StoreCall::Load { .. })));
        assert!(matches!(plan(&Purpose::Claim, &parts), Planned::Later));
        parts.1.handle_leased(Duration::ZERO, Duration::ZERO);
        assert!(matches!(plan(&Purpose::Claim, &parts), Planned::Call(StoreCall::ClaimShards { .. })));
        assert!(matches!(plan(&Purpose::Replace, &parts), Planned::Unwanted), "nothing is in doubt");
    }

    #[test]
    fn n10_nothing_is_read_for_a_tenure_that_is_over_or_a_shard_that_leaves() {
        let mut parts = parts();
        parts.1.handle_leased(Duration::ZERO, Duration::ZERO);
        let (tenure, shard, key) = (Tenure(2), SHARD, InstanceKey::new(1, 1));
        assert!(matches!(plan(&Purpose::Refresh { tenure, shard, key }, &parts), Planned::Unwanted));
        let prune = Purpose::Prune { tenure, shard, key, execution: 1 };
        assert!(matches!(plan(&prune, &parts), Planned::Unwanted));
        let inbox = Purpose::Inbox { shards: ShardSet::ALL, from: 0, known: Arc::from([]) };
        let Planned::Call(StoreCall::ReadInbox { query, .. }) = plan(&inbox, &parts) else {
            panic!("it is read")
        };
        assert_eq!(query.shards.iter().collect::<Vec<_>>(), [SHARD], "of those that are held");
        parts.2.leave(SHARD);
        assert!(matches!(plan(&inbox, &parts), Planned::Unwanted));
        let owed = Purpose::Owed { shards: ShardSet::ALL, after: None };
        assert!(matches!(plan(&owed, &parts), Planned::Call(_)), "it still has to be looked at");
    }
}
