//! Pausing and resuming an instance. A paused instance is blocked by a person: it takes no turns and is not retried,
//! what arrives for it is kept, and its deadline and the grace period of a cancel request still end it.

use crate::flaws::{self, Flaw};
use crate::history::{Job, Why};
use crate::log;
use crate::store::{Commit, InstanceRow, Pause};

use super::super::block_reason::BlockReason;
use super::super::message::Message;
use super::super::output::Output;
use super::super::request::Response;
use super::super::shared::Shared;
use super::Instance;
use super::blocking::blocked_reply;
use super::in_flight::{InFlight, Next};
use super::queued::{Batch, Queued};
use super::row_columns::RowColumns;
use super::tasks::TaskPlan;

impl Instance {
    /// Applies pause and resume requests, if it was loaded for them. The last one wins. Returns whether nothing else is
    /// to be done for now.
    pub(super) fn heed_pauses(&mut self, shared: &mut Shared, now_ms: u64, row: &InstanceRow) -> bool {
        let taken = self.queue.take_pauses();
        match taken.last().map(|queued| &queued.message) {
            Some(Message::Pause(pause)) => {
                let pause = pause.clone();
                self.pause(shared, now_ms, taken, pause);
                true
            }
            Some(Message::Resume(why)) => {
                let why = why.clone();
                self.heed_resume(shared, now_ms, row, taken, why)
            }
            _ => self.heed_orchestration(shared, now_ms, row),
        }
    }

    /// Pauses it if its orchestration is paused, and resumes it if it was paused with its orchestration, which no
    /// longer is. Returns whether it did.
    fn heed_orchestration(&mut self, shared: &mut Shared, now_ms: u64, row: &InstanceRow) -> bool {
        if let Some((since_ms, pause)) = pause_of(row) {
            let is_over = pause.orchestration && !shared.paused.contains(&row.name);
            if is_over {
                shared.no_auto_retry.remove(&self.key);
                let why = Why::new("its orchestration was resumed");
                self.resume(shared, now_ms, Vec::new(), why, (since_ms, pause));
            }
            return is_over;
        }
        let Some(pause) = shared.paused.pause_of(&row.name) else { return false };
        self.pause(shared, now_ms, Vec::new(), pause);
        true
    }

    /// Pauses an instance with an idle execution, because it was requested or its orchestration is paused.
    pub(super) fn pause_idle(&mut self, shared: &mut Shared, now_ms: u64, name: &str) {
        let wanted = if self.queue.wants_pause() { self.queue.take_pauses() } else { Vec::new() };
        let pause = match wanted.last().map(|queued| &queued.message) {
            Some(Message::Pause(pause)) => pause.clone(),
            _ => shared.paused.pause_of(name).unwrap_or_default(),
        };
        shared.residents.leave(&mut self.stay);
        shared.outputs.extend(self.take_idle().map(Output::Drop));
        self.pause(shared, now_ms, wanted, pause);
    }

    /// Marks it as paused. Messages are consumed only by a later commit: a commit that sends messages without a turn
    /// may be written twice, and the second time a consumed message would be missing.
    fn pause(&mut self, shared: &mut Shared, now_ms: u64, wanted: Vec<Queued>, pause: Pause) {
        let failure = BlockReason::Paused(pause);
        let wanted = Batch::new(wanted);
        self.blocked_reply = Some(blocked_reply(&failure));
        self.kept_events = self.queue.stored_events();
        let blocked = self.blocked(shared, now_ms, &failure);
        let graces = self.queue.cancel_graces().map(|grace| shared.gaps.end_of(grace));
        let wake_at_ms = graces.chain(self.limits.ends()).min();
        let execution = self.stored().execution;
        tracing::info!(target: log::INSTANCE, instance = &*self.id, execution, reason = %failure, "instance paused");
        let mut commit = Commit { consumed: wanted.numbers().to_vec(), ..shared.empty_commit(self.key) };
        let columns = self.mark_blocked(now_ms, &wanted, blocked, wake_at_ms, &mut commit);
        let outputs = wanted.replies(&Response::Accepted).collect();
        let mut in_flight = InFlight { outputs, ..InFlight::new(columns, Next::Blocked, wanted) };
        TaskPlan::of(&mut self.tasks, |_| true).apply(&mut commit, &mut in_flight);
        self.commit(shared, commit, in_flight);
    }

    /// Resumes it, if it is paused and not held by its orchestration. Returns whether a commit comes first.
    fn heed_resume(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        row: &InstanceRow,
        wanted: Vec<Queued>,
        why: Why,
    ) -> bool {
        let Some((since_ms, pause)) = pause_of(row) else {
            return self.drop_requests(shared, wanted, &Response::Accepted);
        };
        // As far as this node knows.
        if pause.orchestration && shared.paused.contains(&row.name) {
            return self.drop_requests(shared, wanted, &Response::OrchestrationPaused);
        }
        self.resume(shared, now_ms, wanted, why, (since_ms, pause));
        true
    }

    /// Resumes it. The resumption is recorded by a message to itself, which its next turn takes. The requests stay in
    /// its inbox: a commit that sends messages without a turn may be written twice, so it must not consume any. They
    /// are deleted after the next load, when it is no longer paused.
    fn resume(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        wanted: Vec<Queued>,
        why: Why,
        (paused_ms, pause): (u64, &Pause),
    ) {
        let execution = self.stored().execution;
        tracing::info!(target: log::INSTANCE, instance = &*self.id, execution, reason = %why, "instance resumed");
        let job = Job::InstanceResumed { why, paused_ms, paused: pause.why.clone() };
        let record = Batch::new(vec![Queued::engine(Message::Job(job), now_ms)]);
        let wanted = Batch::new(wanted);
        let stored = self.stored();
        let columns = RowColumns { wake_at_ms: Some(now_ms), ..stored.clone().unblocked() };
        let (send, change) = (self.kept(shared, &record), columns.change_from(&stored));
        let mut commit = Commit { send, change, ..shared.empty_commit(self.key) };
        let outputs = wanted.replies(&Response::Accepted).collect();
        let mut in_flight = InFlight { outputs, ..InFlight::new(columns, Next::Reloaded, wanted) };
        TaskPlan::of(&mut self.tasks, |_| true).apply(&mut commit, &mut in_flight);
        self.commit(shared, commit, in_flight);
    }

    /// Replies to and deletes requests without effect. Returns whether a commit comes first.
    fn drop_requests(&mut self, shared: &mut Shared, wanted: Vec<Queued>, answer: &Response) -> bool {
        let wanted = Batch::new(wanted);
        let mut commit = Commit { consumed: wanted.numbers().to_vec(), ..shared.empty_commit(self.key) };
        if commit.is_empty() {
            shared.outputs.extend(wanted.replies(answer));
            return false;
        }
        let outputs = wanted.replies(answer).collect();
        let mut in_flight = InFlight { outputs, ..InFlight::new(self.stored(), Next::Reloaded, wanted) };
        TaskPlan::of(&mut self.tasks, |_| true).apply(&mut commit, &mut in_flight);
        self.commit(shared, commit, in_flight);
        true
    }

    /// Whether a loaded instance stays paused. Retry requests have no effect before it is resumed.
    pub(super) fn stays_paused(&mut self, row: &InstanceRow) -> bool {
        let is_paused = pause_of(row).is_some() && !flaws::is(Flaw::PausesForgotten);
        if is_paused {
            self.tried.extend(self.queue.one_try_numbers());
        }
        is_paused
    }
}

/// The pause of an instance, and its time.
fn pause_of(row: &InstanceRow) -> Option<(u64, &Pause)> {
    let blocked = row.blocked.as_ref()?;
    Some((blocked.since_ms, blocked.pause.as_deref()?))
}
