//! What the store's answers mean for a lane: leases, shards that come and go, outcomes of commits, pages.

use std::sync::Arc;

use crate::flaws::{self, Flaw};
use crate::instance::{InstanceKey, ShardId};
use crate::shard::{Consultation, Shard, TaskFailure, Tenure, TurnSource, TurnTask, TurnTaskDone};
use crate::store::{
    Commit, CommitOutcome, Conflict, DueInstance, Gap, InboxNumber, InboxPage, InstanceRow, Lease,
    LoadedInstance, Outgoing, OwnedShard, Replaced, RequestPage, SessionId, ShardSet, StoreError, Swept,
    TurnRow,
};

use super::call::Answered;
use super::calls::{Open, Purpose};
use super::clock::Moment;
use super::doubts::{is_written_once, was_written};
use super::lease::Standing;
use super::machine::{Lane, SWEEP_PAUSE};
use super::output::LaneOutput;
use super::suspects::Step;

impl Lane {
    pub(super) fn answered(&mut self, now: Moment, open: Open, answered: Answered) {
        let Open { purpose, session, sent, ownership } = open;
        let is_current = session == self.lease.session();
        let is_live = is_current && self.lease.standing() == Standing::Live;
        match (purpose, answered) {
            (Purpose::Open, Answered::Lease(lease))
                if is_current && self.lease.standing() == Standing::Opening =>
            {
                self.leased(now, sent, lease);
            }
            (Purpose::Renew, Answered::Lease(lease)) if is_live => self.leased(now, sent, lease),
            // It tells what was owned before something was lost or gained: another answer is needed.
            (Purpose::Claim | Purpose::Confirm, Answered::Shards(_))
                if is_live && ownership != self.tenures.changes() =>
            {
                self.counted.stale += 1;
                self.issue(now, Purpose::Confirm);
            }
            (Purpose::Claim, Answered::Shards(shards)) if is_live => self.claimed(now, shards),
            (Purpose::Confirm, Answered::Shards(shards)) if is_live => {
                self.claimed(now, shards);
                self.lease.handle_confirmed(sent);
                self.resume(now);
            }
            (Purpose::Release(shards), Answered::Done) if is_live => {
                shards.iter().for_each(|shard| self.lose(now, shard));
                // The next ones leave with the next renewal, so that a join moves shards without a stall.
                self.claim_missing(now);
            }
            (Purpose::Replace, Answered::Replaced(replaced)) if is_current => {
                self.replaced(now, sent, replaced);
            }
            (Purpose::End, Answered::Done) => {
                self.lease.handle_ended();
                self.outputs.push(LaneOutput::Ended);
            }
            (Purpose::Commit, Answered::Committed(outcomes)) if is_live => self.committed(now, outcomes),
            (Purpose::ReadBack { tenure, commit, .. }, _) if !self.tenures.has(commit.shard, tenure) => {
                self.counted.stale += 1;
            }
            (Purpose::ReadBack { tenure, commit, refused }, Answered::Turns(rows)) => {
                self.was_read_back(now, tenure, &commit, refused, rows.first(), None);
            }
            (Purpose::ReadBack { tenure, commit, refused }, Answered::Found(row)) => {
                self.was_read_back(now, tenure, &commit, refused, None, row);
            }
            (Purpose::ReadBack { tenure, commit, refused }, Answered::Loaded(loaded)) => {
                self.instance_was_read_back(now, tenure, *commit, refused, loaded.as_deref());
            }
            (Purpose::Find { tenure, shard, request, .. }, Answered::Found(row)) => {
                let row = row.map(|row| *row);
                self.feed_tenure(now, shard, tenure, |shard, now_ms| {
                    shard.handle_found(now_ms, request, row)
                });
            }
            (Purpose::Load { tenure, shard, key }, Answered::Loaded(loaded)) => {
                self.loads.handle_done();
                let is_cut = loaded.as_ref().is_some_and(|loaded| loaded.inbox.next.is_some());
                let loaded = loaded.map(|loaded| *loaded);
                self.feed_tenure(now, shard, tenure, |shard, now_ms| {
                    shard.handle_loaded(now_ms, key, loaded)
                });
                if is_cut {
                    self.want_inbox(shard);
                }
            }
            (Purpose::Refresh { tenure, shard, key }, Answered::Loaded(loaded)) => {
                let loaded = loaded.map(|loaded| *loaded);
                self.feed_tenure(now, shard, tenure, |shard, now_ms| {
                    shard.handle_refreshed(now_ms, key, loaded);
                });
                self.want_inbox(shard);
            }
            (Purpose::Owed { shards, .. }, Answered::Instances(page)) => {
                let after = self.owed(now, &page);
                if let Some(after) = after {
                    self.issue(now, Purpose::Owed { shards, after: Some(after) });
                }
            }
            (Purpose::Blocked { shards, .. }, Answered::Instances(page)) => {
                let after = self.owed(now, &page);
                if let Some(after) = after {
                    self.issue(now, Purpose::Blocked { shards, after: Some(after) });
                }
            }
            (Purpose::Due { before_ms, .. }, Answered::Due(page)) => self.due(now, before_ms, &page),
            (Purpose::Inbox { shards, known, .. }, Answered::Inbox(page)) => {
                if ownership == self.tenures.changes() && is_current {
                    self.inbox(now, shards, known, page);
                } else {
                    self.passes.inbox.end();
                    self.passes.inbox.want(&shards);
                }
            }
            (Purpose::Requests { shards, .. }, Answered::Requests(page)) => {
                if ownership == self.tenures.changes() && is_current {
                    self.requests(now, shards, page);
                } else {
                    self.passes.requests.end();
                    self.passes.requests.want(&shards);
                }
            }
            (Purpose::Notes { is_steady: false, .. }, Answered::Done) => self.noted(now),
            (Purpose::Prune { tenure, shard, key, execution }, Answered::Swept(swept)) => {
                self.swept(now, swept, Purpose::Prune { tenure, shard, key, execution });
            }
            (Purpose::Sweep, Answered::Swept(swept)) => self.swept(now, swept, Purpose::Sweep),
            // Of an earlier session, or late.
            _ => self.counted.stale += 1,
        }
    }

    /// A call came to nothing.
    pub(super) fn refused(&mut self, now: Moment, open: Open, error: StoreError) {
        let Open { purpose, session, .. } = open;
        let is_current = session == self.lease.session();
        let is_live = is_current && self.lease.standing() == Standing::Live;
        match (purpose, error) {
            (Purpose::End, _) => {
                // The lease runs out by itself.
                self.lease.handle_ended();
                self.outputs.push(LaneOutput::Ended);
            }
            (_, error @ (StoreError::Failed(_) | StoreError::Closed)) => self.fail(error),
            (Purpose::Open, error @ (StoreError::InUse(_) | StoreError::CannotOpen(_))) => self.fail(error),
            // Once the session is replaced, the batch in flight is sent again.
            (Purpose::Commit, _) if !is_live => {}
            (Purpose::Commit, StoreError::Unknown(reason)) => self.settle(now, &reason),
            // It may be under way still, and take away or give what was claimed or released since. Under the next session
            // it comes to nothing.
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
            // Under a session that was replaced. The next one claims and releases by itself.
            (
                Purpose::Renew | Purpose::Claim | Purpose::Confirm | Purpose::Release(_),
                StoreError::SessionGone,
            ) => {}
            (Purpose::Renew, error) => {
                tracing::warn!(%error, "the session could not be renewed; trying again");
                self.lease.handle_not_renewed(now);
            }
            (purpose, StoreError::SessionGone) => {
                // A page or a pruning names shards that the session does not own, or the session is gone: the store tells which.
                if is_live && !self.is_moving() {
                    self.issue(now, Purpose::Confirm);
                }
                self.calls.again_later(now, purpose);
            }
            (Purpose::Load { tenure, shard, key }, error) if !may_pass(&error) => {
                self.loads.handle_done();
                let reason = error.to_string();
                self.feed_tenure(now, shard, tenure, |shard, now_ms| {
                    shard.handle_load_failed(now_ms, key, reason);
                });
            }
            (Purpose::Refresh { tenure, shard, key }, error) if !may_pass(&error) => {
                // The trouble is this instance's own; it shows when it is loaded the next time.
                tracing::error!(%key, %error, "an instance cannot be read again");
                self.feed_tenure(now, shard, tenure, |shard, now_ms| {
                    shard.handle_refreshed(now_ms, key, None);
                });
            }
            (Purpose::Find { tenure, shard, request, .. }, error) if !may_pass(&error) => {
                let reason = error.to_string();
                self.feed_tenure(now, shard, tenure, |shard, _| shard.handle_find_failed(request, reason));
            }
            (Purpose::ReadBack { tenure, commit, refused }, error) if !may_pass(&error) => {
                let reason = refused.unwrap_or_else(|| error.to_string());
                self.outcome(now, tenure, &commit, CommitOutcome::Rejected(reason));
            }
            (Purpose::Inbox { .. }, error) if !may_pass(&error) => {
                tracing::error!(%error, "the inbox cannot be read; trying again with the next poll");
                self.passes.inbox.end();
            }
            (Purpose::Requests { .. }, error) if !may_pass(&error) => {
                tracing::error!(%error, "requests cannot be read; trying again with the next poll");
                self.passes.requests.end();
            }
            (Purpose::Due { .. }, error) if !may_pass(&error) => {
                tracing::error!(%error, "due instances cannot be read; trying again with the next poll");
                self.passes.due.end();
            }
            (Purpose::Sweep, error) if !may_pass(&error) => {
                tracing::error!(%error, "rows cannot be swept; trying again later");
            }
            (purpose, error) => {
                tracing::debug!(%error, "a call to the store failed; trying again");
                self.calls.again_later(now, purpose);
            }
        }
    }

    // ---- ownership ------------------------------------------------------------------------------------------------

    /// The session lives for another lease: what waited for that goes on.
    fn leased(&mut self, now: Moment, sent: Moment, lease: Lease) {
        self.read_clock(now, lease.now_ms);
        let gap_from = self.lease.handle_leased(sent, now);
        if let Some(gap_from) = gap_from.filter(|_| !self.tenures.set().is_empty()) {
            self.note_gap(now, gap_from);
            // Somebody may have ended the session and given its shards away, and a call to open it that was on its way
            // since may have brought it back without them.
            self.lease.handle_unsure(now);
            self.issue(now, Purpose::Confirm);
        }
        self.resume(now);
    }

    /// The lane could not act since then: no grace has run meanwhile.
    fn note_gap(&mut self, now: Moment, from: Moment) {
        let gap = Gap { from_ms: self.clock.now_ms(from), until_ms: self.clock.now_ms(now) };
        for shard in self.tenures.set().iter() {
            self.feed(now, shard, |shard, _| shard.handle_gap(gap));
        }
    }

    /// The lane may act again: what waited for that goes on.
    fn resume(&mut self, now: Moment) {
        for commit in self.calls.take_commits() {
            self.issue(now, commit);
        }
        self.balance(now);
    }

    fn read_clock(&mut self, now: Moment, store_ms: u64) {
        let set_back_ms = self.clock.handle_reading(now, store_ms);
        self.outputs.push(LaneOutput::StoreTime { store_ms, set_back_ms });
    }

    /// The store told which shards the session owns.
    fn claimed(&mut self, now: Moment, shards: Vec<OwnedShard>) {
        let kept = |shard: ShardId, epoch: u64| {
            let is_it = |owned: &OwnedShard| owned.epoch == epoch || flaws::is(Flaw::EpochUnchecked);
            shards.iter().any(|owned| owned.shard == shard && is_it(owned))
        };
        let held = self.tenures.set();
        let is_lost =
            |shard: &ShardId| self.tenures.epoch_of(*shard).is_some_and(|epoch| !kept(*shard, epoch));
        let lost: ShardSet = held.iter().filter(is_lost).collect();
        self.lose_some(now, lost);
        let held = self.tenures.set();
        let gained: Vec<OwnedShard> =
            shards.into_iter().filter(|owned| !held.contains(owned.shard)).collect();
        if !gained.is_empty() {
            self.gain(now, &gained);
        }
        self.balance_more(now);
    }

    /// More may be missing, or too much: a claim is not made again at once if it found nothing.
    fn balance_more(&mut self, now: Moment) {
        if self.tenures.set().len() > self.target {
            self.balance(now);
        }
    }

    fn lose_some(&mut self, now: Moment, lost: ShardSet) {
        if lost.is_empty() {
            return;
        }
        tracing::warn!(shards = lost.len(), "shards were lost to another owner");
        lost.iter().for_each(|shard| self.lose(now, shard));
        self.outputs.push(LaneOutput::Lost(lost));
    }

    fn gain(&mut self, now: Moment, gained: &[OwnedShard]) {
        if self.reads_by_itself()
            && let Some(unclean_ends) = self.suspects.handle_gained(now, gained)
        {
            tracing::warn!(
                unclean_ends,
                "owners of these shards did not stop in good order; turns are taken in batches, to find what ends them"
            );
        }
        for owned in gained {
            let nonce = u128::from(self.stream.draw()) << 64 | u128::from(self.stream.draw());
            let (options, is_stopping) = (self.options.shard.clone(), self.is_stopping);
            self.tenures.gain(owned.shard, owned.epoch, |tenure| {
                let shard = Shard::new(owned.shard, tenure, options, nonce);
                let mut shard = shard.with_gaps(owned.gaps.clone());
                if is_stopping {
                    shard.handle_stopping();
                }
                shard
            });
        }
        let shards: ShardSet = gained.iter().map(|owned| owned.shard).collect();
        self.outputs.push(LaneOutput::Gained(shards));
        if self.reads_by_itself() {
            self.issue(now, Purpose::Owed { shards, after: None });
            self.issue(now, Purpose::Blocked { shards, after: None });
            self.passes.want_all(&shards);
            self.passes.due.want(self.clock.now_ms(now).saturating_add(self.options.shard.lookahead_ms));
        }
    }

    /// Whether something was written is not known: another session is put in the place of the one it was sent under,
    /// which waits for it or beats it. Then the batch in flight is sent again, the same bytes. What is there already stays
    /// as it is.
    fn settle(&mut self, now: Moment, reason: &str) {
        tracing::warn!(%reason, "the outcome of a call is not known; settling it under a new session");
        self.committer.handle_unknown();
        let new = SessionId(u128::from(self.stream.draw()) << 64 | u128::from(self.stream.draw()));
        self.lease.handle_replacing(new);
        self.issue(now, Purpose::Replace);
    }

    fn replaced(&mut self, now: Moment, sent: Moment, replaced: Replaced) {
        let Replaced { lease, shards } = replaced;
        self.read_clock(now, lease.now_ms);
        if let Some(gap_from) = self.lease.handle_replaced(sent, now) {
            self.note_gap(now, gap_from);
        }
        let mut lost = ShardSet::EMPTY;
        for shard in self.tenures.set().iter() {
            let epoch = self.tenures.epoch_of(shard).map(|epoch| epoch + 1);
            let now_at = shards.iter().find(|owned| owned.shard == shard).map(|owned| owned.epoch);
            // Exactly the next epoch: nobody had it in between, and memory is as true as it was.
            match now_at.filter(|now_at| Some(*now_at) == epoch || flaws::is(Flaw::EpochUnchecked)) {
                Some(epoch) => self.tenures.go_on_at(shard, epoch),
                None => lost.insert(shard),
            }
        }
        self.lose_some(now, lost);
        // The answer to an earlier claim may have come too late.
        let held = self.tenures.set();
        let gained: Vec<OwnedShard> =
            shards.into_iter().filter(|owned| !held.contains(owned.shard)).collect();
        if !gained.is_empty() && !self.is_stopping {
            self.gain(now, &gained);
        }
        for (tenure, commit) in self.committer.take_doubtful() {
            self.issue(now, Purpose::ReadBack { tenure, commit: Box::new(commit), refused: None });
        }
        self.issue(now, Purpose::Commit);
        let held = self.readable();
        self.passes.want_all(&held);
        self.balance(now);
    }

    // ---- commits --------------------------------------------------------------------------------------------------

    fn committed(&mut self, now: Moment, outcomes: Vec<CommitOutcome>) {
        if self.committer.in_flight_len() != Some(outcomes.len()) {
            return self
                .settle(now, "the store answered with another number of outcomes than it was sent commits");
        }
        let Some(batch) = self.committer.handle_answered() else { return };
        // The next batch is on its way while this one's effects are let go.
        self.submit(now);
        let (mut fenced, mut addressed) = (ShardSet::EMPTY, ShardSet::EMPTY);
        for (member, outcome) in batch.members().zip(outcomes) {
            let (tenure, commit) = (member.tenure, member.commit);
            match outcome {
                CommitOutcome::Fenced if self.tenures.has(commit.shard, tenure) => {
                    fenced.insert(commit.shard)
                }
                CommitOutcome::Fenced => {}
                CommitOutcome::Rejected(reason) if member.was_in_doubt => {
                    self.read_back(now, tenure, commit.clone(), reason);
                }
                outcome => {
                    commit.send.iter().for_each(|message| addressed.insert(address(message)));
                    if commit.send.iter().any(may_come_back) {
                        addressed.insert(commit.shard);
                    }
                    self.outcome(now, tenure, commit, outcome);
                }
            }
        }
        if !fenced.is_empty() {
            self.lose_some(now, fenced);
            if !self.is_moving() {
                self.issue(now, Purpose::Confirm);
            }
        }
        if self.reads_by_itself() {
            self.passes.handle_hint();
            self.passes.inbox.want(&addressed);
        }
    }

    /// Brings a commit's outcome to its shard.
    fn outcome(&mut self, now: Moment, tenure: Tenure, commit: &Commit, outcome: CommitOutcome) {
        let (shard, key) = (commit.shard, commit.key);
        self.feed_tenure(now, shard, tenure, |shard, now_ms| shard.handle_committed(now_ms, key, outcome));
    }

    fn batch_refused(&mut self, now: Moment, reason: String) {
        if let Some(culprit) = self.committer.handle_refused() {
            for member in culprit.members() {
                match member.was_in_doubt {
                    true => self.read_back(now, member.tenure, member.commit.clone(), reason.clone()),
                    false => {
                        let outcome = CommitOutcome::Rejected(reason.clone());
                        self.outcome(now, member.tenure, member.commit, outcome);
                    }
                }
            }
        }
        self.submit(now);
    }

    /// A commit that was in doubt is refused now; it may have been written before. What is stored decides.
    fn read_back(&mut self, now: Moment, tenure: Tenure, commit: Commit, reason: String) {
        if commit.turn.is_some() || commit.insert.is_some() || is_written_once(&commit) {
            let (commit, refused) = (Box::new(commit), Some(reason));
            return self.issue(now, Purpose::ReadBack { tenure, commit, refused });
        }
        // Nothing that can be told apart. Without messages of its own it can be made again from what is stored; with
        // them, callers are told that their outcome is unknown.
        let outcome = match commit.send.is_empty() {
            true => CommitOutcome::Conflict(Conflict::OtherTurn),
            false => CommitOutcome::Rejected(reason),
        };
        self.outcome(now, tenure, &commit, outcome);
    }

    /// A commit that must not be written twice is sent again only if it is not there.
    fn instance_was_read_back(
        &mut self,
        now: Moment,
        tenure: Tenure,
        commit: Commit,
        refused: Option<String>,
        stored: Option<&LoadedInstance>,
    ) {
        let outcome = match (stored, refused) {
            (None, _) => CommitOutcome::Conflict(Conflict::NoInstance),
            (Some(stored), _) if was_written(&commit, stored) => {
                CommitOutcome::Durable { sent: vec![None; commit.send.len()] }
            }
            (Some(_), Some(reason)) => CommitOutcome::Rejected(reason),
            (Some(_), None) => return self.committer.add(tenure, commit),
        };
        self.outcome(now, tenure, &commit, outcome);
    }

    fn was_read_back(
        &mut self,
        now: Moment,
        tenure: Tenure,
        commit: &Commit,
        refused: Option<String>,
        turn: Option<&TurnRow>,
        row: Option<Box<InstanceRow>>,
    ) {
        let outcome = match (&commit.turn, turn, row) {
            (Some(sent), Some(stored), _) if sent == stored => {
                CommitOutcome::Durable { sent: vec![None; commit.send.len()] }
            }
            (Some(_), Some(_), _) => CommitOutcome::Conflict(Conflict::OtherTurn),
            (_, _, Some(row)) => CommitOutcome::Conflict(Conflict::IdTaken(row)),
            _ => CommitOutcome::Rejected(refused.unwrap_or_default()),
        };
        self.outcome(now, tenure, commit, outcome);
    }

    // ---- pages ----------------------------------------------------------------------------------------------------

    fn want_inbox(&mut self, shard: ShardId) {
        if self.reads_by_itself() {
            self.passes.inbox.want(&[shard].into_iter().collect());
        }
    }

    /// Instances that a new owner has to look at. Returns where the next page begins.
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
            self.feed(now, row.shard, |shard, now_ms| new += usize::from(shard.handle_inbox(now_ms, row)));
        }
        if new > 0 {
            self.passes.handle_found();
        }
        let Some(from) = next else { return self.passes.inbox.end() };
        // Where hardly anything on a full page is new, the rest is asked for without what is in memory.
        let known = if read > 2 * new && known.is_empty() { self.known_numbers(&shards) } else { known };
        self.issue(now, Purpose::Inbox { shards, from, known });
    }

    /// The numbers of messages that are in memory.
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

    /// What is being tried is noted: it may begin.
    fn noted(&mut self, now: Moment) {
        match self.suspects.handle_noted() {
            Step::Take(batch) => {
                for task in batch {
                    self.outputs.push(LaneOutput::TakeTurn(task));
                }
            }
            Step::Block(task) => self.block_suspect(now, *task),
            Step::Rest => {}
        }
    }

    /// Blocks the instance whose turn takes the process down.
    fn block_suspect(&mut self, now: Moment, task: TurnTask) {
        let TurnTask { shard, tenure, key, number, instance, source, asks, .. } = task;
        tracing::error!(instance = &*instance, "its turn takes the process down; it is blocked");
        let wreck = match source {
            TurnSource::Resident(execution, _) => Some(execution),
            TurnSource::Start(_) | TurnSource::History(_) => None,
        };
        let asks = asks.into_iter().map(|ask| (ask, Consultation::Later)).collect();
        let outcome = Err(TaskFailure::TakesProcessDown);
        self.handle_turn_done(now, TurnTaskDone { shard, tenure, key, number, outcome, asks, wreck });
    }
}

/// Whether the same call may succeed later.
fn may_pass(error: &StoreError) -> bool {
    matches!(error, StoreError::Unavailable(_) | StoreError::Unknown(_))
}

/// Whether the sender may be sent a message instead.
fn may_come_back(message: &Outgoing) -> bool {
    matches!(message, Outgoing::Start { otherwise: Some(_), .. })
}

/// The shard that a message goes to.
fn address(message: &Outgoing) -> ShardId {
    match message {
        Outgoing::ToKey { shard, .. } => *shard,
        Outgoing::ToId { id, .. } => ShardId::of(id),
        Outgoing::Start { row, .. } => row.shard,
    }
}
