//! Handling the results of store calls: leases, shards gained and lost, outcomes of commits, pages.

use std::sync::Arc;

use crate::flaws::{self, Flaw};
use crate::instance::{InstanceKey, ShardId};
use crate::log;
use crate::shard::{BlockReason, TurnTask};
use crate::store::{
    CommitOutcome, DueInstance, InboxNumber, InboxPage, LoadedInstance, RequestPage, ShardSet, StoreError,
    Swept,
};

use super::call::StoreResponse;
use super::calls::Open;
use super::clock::Moment;
use super::doubts::Evidence;
use super::lease::Standing;
use super::loads::{Extent, Wanted};
use super::machine::{Lane, SWEEP_PAUSE};
use super::output::LaneOutput;
use super::purpose::Purpose;
use super::suspects::Step;

impl Lane {
    pub(super) fn answered(&mut self, now: Moment, open: Open, answered: StoreResponse) {
        let Open { purpose, session, sent, ownership } = open;
        let is_current = session == self.lease.session();
        let is_live = is_current && self.lease.standing() == Standing::Live;
        match (purpose, answered) {
            (Purpose::Open, StoreResponse::Lease(lease))
                if is_current && self.lease.standing() == Standing::Opening =>
            {
                self.leased(now, sent, lease);
            }
            (Purpose::Renew, StoreResponse::Lease(lease)) if is_live => self.leased(now, sent, lease),
            // It lists what was owned before a shard was lost or gained, so the list has to be requested again.
            (Purpose::Claim | Purpose::Confirm, StoreResponse::Shards(_))
                if is_live && ownership != self.tenures.changes() =>
            {
                self.counted.stale += 1;
                self.issue(now, Purpose::Confirm);
            }
            (Purpose::Claim, StoreResponse::Shards(shards)) if is_live => self.claimed(now, shards),
            (Purpose::Confirm, StoreResponse::Shards(shards)) if is_live => {
                self.claimed(now, shards);
                self.lease.handle_confirmed(sent);
                self.resume(now);
            }
            (Purpose::Release(shards), StoreResponse::Done) if is_live => {
                self.released(now, &shards, ownership != self.tenures.changes());
            }
            (Purpose::Replace, StoreResponse::Replaced(replaced)) if is_current => {
                self.replaced(now, sent, replaced);
            }
            (Purpose::End, StoreResponse::Done) => {
                self.lease.handle_ended();
                self.outbox.push(LaneOutput::Ended);
            }
            (Purpose::Commit, StoreResponse::Committed(outcomes)) if is_live => {
                self.note_slow_commit(now.saturating_sub(sent));
                self.committed(now, outcomes);
            }
            (Purpose::ReadBack { tenure, commit, .. }, _) if !self.tenures.has(commit.shard, tenure) => {
                self.counted.stale += 1;
            }
            (Purpose::ReadBack { tenure, commit, refused }, answered) => match Evidence::of(answered) {
                Some(evidence) => self.was_read_back(now, tenure, *commit, refused, evidence),
                None => self.counted.stale += 1,
            },
            (Purpose::Find { tenure, shard, request, .. }, StoreResponse::Found(row)) => {
                let row = row.map(|row| *row);
                self.feed_tenure(now, shard, tenure, |shard, now_ms| {
                    shard.handle_found(now_ms, request, row)
                });
            }
            (Purpose::Load { tenure, shard, key, extent }, StoreResponse::Loaded(loaded)) => {
                self.loaded(now, (tenure, shard, key), extent, loaded.map(|loaded| *loaded));
            }
            (Purpose::Refresh { tenure, shard, key }, StoreResponse::Loaded(loaded)) => {
                let loaded = loaded.map(|loaded| *loaded);
                self.feed_tenure(now, shard, tenure, |shard, now_ms| {
                    shard.handle_refreshed(now_ms, key, loaded);
                });
                self.want_inbox(shard);
            }
            (Purpose::Owed { shards, .. }, StoreResponse::Instances(page)) => {
                let after = self.owed(now, &page);
                if let Some(after) = after {
                    self.issue(now, Purpose::Owed { shards, after: Some(after) });
                }
            }
            (Purpose::Blocked { shards, .. }, StoreResponse::Instances(page)) => {
                let after = self.owed(now, &page);
                if let Some(after) = after {
                    self.issue(now, Purpose::Blocked { shards, after: Some(after) });
                }
            }
            (Purpose::Due { before_ms, .. }, StoreResponse::Due(page)) => self.due(now, before_ms, &page),
            (Purpose::Inbox { shards, known, .. }, StoreResponse::Inbox(page)) => {
                if ownership == self.tenures.changes() && is_current {
                    self.inbox(now, shards, known, page);
                } else {
                    self.passes.inbox.start_over(&shards);
                }
            }
            (Purpose::Requests { shards, .. }, StoreResponse::Requests(page)) => {
                if ownership == self.tenures.changes() && is_current {
                    self.requests(now, shards, page);
                } else {
                    self.passes.requests.start_over(&shards);
                }
            }
            (Purpose::Notes { is_steady: false, .. }, StoreResponse::Done) => self.noted(now),
            (Purpose::Prune { tenure, shard, key, execution }, StoreResponse::Swept(swept)) => {
                self.swept(now, swept, Purpose::Prune { tenure, shard, key, execution });
            }
            (Purpose::Paused, StoreResponse::Setting(setting)) => self.handle_paused(now, setting.as_deref()),
            (Purpose::Sweep, StoreResponse::Swept(swept)) => self.swept(now, swept, Purpose::Sweep),
            // It belongs to an earlier session, or is late.
            _ => self.counted.stale += 1,
        }
    }

    /// Handles a failed call.
    pub(super) fn refused(&mut self, now: Moment, open: Open, error: StoreError) {
        let Open { purpose, session, .. } = open;
        let is_current = session == self.lease.session();
        let is_live = is_current && self.lease.standing() == Standing::Live;
        match (purpose, error) {
            (Purpose::End, StoreError::Unavailable(_) | StoreError::Unknown(_)) => {
                self.calls.again_later(now, Purpose::End);
            }
            (Purpose::End, _) => {
                // The lease expires by itself.
                self.lease.handle_ended();
                self.outbox.push(LaneOutput::Ended);
            }
            (_, error @ (StoreError::Failed(_) | StoreError::Closed)) => self.fail(error),
            (Purpose::Open, error @ (StoreError::InUse(_) | StoreError::CannotOpen(_))) => self.fail(error),
            // Once the session is replaced, the batch in flight is submitted again.
            (Purpose::Commit, _) if !is_live => {}
            (Purpose::Commit, StoreError::Unknown(_)) if flaws::is(Flaw::DoubtTakenForDone) => {
                self.take_for_done(now);
            }
            (Purpose::Commit, StoreError::Unknown(reason)) => self.settle(now, &reason),
            // The call may still be in progress, and could take away or give shards that were claimed or released
            // since. Under the next session it has no effect.
            (Purpose::Claim | Purpose::Release(_), StoreError::Unknown(reason)) => {
                if is_live {
                    self.settle(now, &reason);
                }
            }
            (Purpose::Commit, StoreError::BatchRefused(reason)) => self.batch_refused(now, reason),
            (
                Purpose::Renew
                | Purpose::Claim
                | Purpose::Confirm
                | Purpose::Commit
                | Purpose::Release(_)
                | Purpose::Notes { .. },
                StoreError::SessionGone,
            ) if is_live => self.lose_session(now),
            // Made under a session that was replaced. The next one claims and releases on its own.
            (
                Purpose::Renew | Purpose::Claim | Purpose::Confirm | Purpose::Release(_),
                StoreError::SessionGone,
            ) => {}
            (Purpose::Renew, error) => {
                tracing::warn!(target: log::NODE, %error, "session not renewed; retrying");
                self.lease.handle_not_renewed(now);
            }
            (purpose, StoreError::SessionGone) => {
                // The session does not own the shards that the call names, or has ended: the store tells which.
                if is_live && !self.is_moving() {
                    self.issue(now, Purpose::Confirm);
                }
                self.calls.again_later(now, purpose);
            }
            (Purpose::Load { tenure, shard, key, extent }, error) if !may_pass(&error) => {
                match extent.after_failure(error.to_string()) {
                    Ok(extent) => self.issue(now, Purpose::Load { tenure, shard, key, extent }),
                    Err(reason) => {
                        self.loads.handle_done();
                        self.feed_tenure(now, shard, tenure, |shard, now_ms| {
                            shard.handle_load_failed(now_ms, key, reason, None);
                        });
                    }
                }
            }
            (Purpose::Refresh { tenure, shard, key }, error) if !may_pass(&error) => {
                // The problem concerns this instance only; it is reported when the instance is loaded the next time.
                tracing::error!(target: log::STORE, %key, %error, "instance cannot be read");
                self.feed_tenure(now, shard, tenure, |shard, now_ms| {
                    shard.handle_refreshed(now_ms, key, None);
                });
                // What a pass read meanwhile was left for afterwards.
                self.want_inbox(shard);
            }
            (Purpose::Find { tenure, shard, request, .. }, error) if !may_pass(&error) => {
                let reason = error.to_string();
                self.feed_tenure(now, shard, tenure, |shard, _| shard.handle_find_failed(request, reason));
            }
            (Purpose::ReadBack { tenure, commit, refused }, error) if !may_pass(&error) => {
                let reason = refused.unwrap_or_else(|| error.to_string());
                self.bring_outcome(now, tenure, &commit, CommitOutcome::Rejected(reason));
            }
            (page @ (Purpose::Inbox { .. } | Purpose::Requests { .. } | Purpose::Due { .. }), error)
                if !may_pass(&error) =>
            {
                tracing::error!(target: log::STORE, %error, "page cannot be read; retrying with the next poll");
                self.passes.handle_none(&page);
            }
            (Purpose::Paused, error) if !may_pass(&error) => {
                tracing::error!(target: log::STORE, %error, "list of paused orchestrations cannot be read; retrying later");
                self.paused.get_or_insert_default();
                self.balance(now);
            }
            (Purpose::Sweep, error) if !may_pass(&error) => {
                tracing::error!(target: log::STORE, %error, "old rows cannot be deleted; retrying later");
            }
            (purpose, error) => {
                tracing::debug!(target: log::STORE, %error, "store call failed; retrying");
                self.calls.again_later(now, purpose);
            }
        }
    }

    // ---- instances ------------------------------------------------------------------------------------------------

    /// Handles an instance that was loaded, or does not exist.
    fn loaded(
        &mut self,
        now: Moment,
        (tenure, shard, key): Wanted,
        extent: Extent,
        loaded: Option<LoadedInstance>,
    ) {
        if let Some(extent) = loaded.as_ref().and_then(|loaded| extent.after_loaded(loaded)) {
            return self.issue(now, Purpose::Load { tenure, shard, key, extent });
        }
        self.loads.handle_done();
        let is_cut = loaded.as_ref().is_some_and(|loaded| loaded.inbox.next.is_some());
        self.feed_tenure(now, shard, tenure, |shard, now_ms| match (extent, loaded) {
            (Extent::WithoutTurns(reason), Some(rest)) => {
                shard.handle_load_failed(now_ms, key, reason, Some(rest));
            }
            (_, loaded) => shard.handle_loaded(now_ms, key, loaded),
        });
        if is_cut {
            self.want_inbox(shard);
        }
    }

    // ---- pages ----------------------------------------------------------------------------------------------------

    fn want_inbox(&mut self, shard: ShardId) {
        if self.reads_by_itself() {
            self.passes.inbox.want(&[shard].into_iter().collect());
        }
    }

    /// Handles instances that a new owner has to examine. Returns where the next page begins.
    fn owed(&mut self, now: Moment, page: &[(InstanceKey, ShardId)]) -> Option<InstanceKey> {
        for (key, shard) in page {
            self.feed(now, *shard, |shard, now_ms| shard.handle_owed(now_ms, *key));
        }
        page.last().filter(|_| page.len() >= self.options.page_rows).map(|(key, _)| *key)
    }

    fn due(&mut self, now: Moment, before_ms: u64, page: &[DueInstance]) {
        for due in page {
            self.feed(now, due.shard, |shard, _| shard.handle_due(due.key, due.wake_at_ms));
        }
        if page.len() >= self.options.page_rows
            && let Some(last) = page.last()
        {
            let after = Some((last.wake_at_ms, last.key));
            return self.issue(now, Purpose::Due { before_ms, after });
        }
        self.passes.due.end();
    }

    fn inbox(&mut self, now: Moment, shards: ShardSet, known: Arc<[InboxNumber]>, page: InboxPage) {
        let InboxPage { rows, next } = page;
        let (mut read, mut new) = (0, 0);
        for row in rows {
            read += 1;
            #[cfg(feature = "flaws")]
            if flaws::is(Flaw::InboxByCursor) {
                self.passes.inbox.cursor = row.number + 1;
            }
            self.feed(now, row.shard, |shard, now_ms| new += usize::from(shard.handle_inbox(now_ms, row)));
        }
        if new > 0 {
            self.passes.handle_found();
        }
        let Some(from) = next else { return self.passes.inbox.end() };
        // If hardly anything on a full page is new, the next page skips what is already in memory.
        let known = if read > 2 * new && known.is_empty() { self.known_numbers(&shards) } else { known };
        self.issue(now, Purpose::Inbox { shards, from, known });
    }

    /// The numbers of messages in memory.
    fn known_numbers(&self, shards: &ShardSet) -> Arc<[InboxNumber]> {
        let held = shards.iter().filter_map(|shard| self.tenures.get(shard));
        let mut numbers: Vec<InboxNumber> = held.flat_map(|held| held.shard.known_inbox()).collect();
        numbers.sort_unstable();
        numbers.into()
    }

    fn requests(&mut self, now: Moment, shards: ShardSet, page: RequestPage) {
        let RequestPage { rows, next } = page;
        for row in rows {
            let mut is_new = false;
            self.feed(now, row.shard, |shard, now_ms| is_new = shard.handle_request_row(now_ms, row));
            if is_new {
                self.passes.handle_found();
            }
        }
        match next {
            Some(from) => self.issue(now, Purpose::Requests { shards, from }),
            None => self.passes.requests.end(),
        }
    }

    fn swept(&mut self, now: Moment, swept: Swept, purpose: Purpose) {
        if swept.more {
            self.calls.at(now + SWEEP_PAUSE, purpose);
        }
    }

    // ---- suspects -------------------------------------------------------------------------------------------------

    /// Handles durable notes: the turns that they name may start.
    fn noted(&mut self, now: Moment) {
        match self.suspects.handle_noted() {
            Step::Take(batch) => {
                for task in batch {
                    self.outbox.push(LaneOutput::TakeTurn(task));
                }
            }
            Step::Block(task) => {
                tracing::error!(
                    target: log::INSTANCE,
                    instance = &*task.instance,
                    key = %task.key,
                    "turn ends the process; the instance is blocked"
                );
                self.block_untried(now, *task, BlockReason::TakesProcessDown);
            }
            Step::Rest => {}
        }
    }

    /// Blocks an instance without taking its turn.
    pub(super) fn block_untried(&mut self, now: Moment, task: TurnTask, failure: BlockReason) {
        self.turn_done(now, task.into_failed(failure));
    }
}

/// Whether the same call may succeed later.
fn may_pass(error: &StoreError) -> bool {
    matches!(error, StoreError::Unavailable(_) | StoreError::Unknown(_))
}
