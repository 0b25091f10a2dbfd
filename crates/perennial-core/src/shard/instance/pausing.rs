//! Pausing an instance, and resuming it. A paused instance is blocked by a person: it takes no turn and is not tried
//! again, what comes for it is kept, and its deadline and the grace of a cancel still end it.

use crate::flaws::{self, Flaw};
use crate::store::{Commit, InstanceRow, Pause};

use super::super::message::Message;
use super::super::output::Output;
use super::super::request::Answer;
use super::super::shared::Shared;
use super::super::turn_task::TaskFailure;
use super::Instance;
use super::blocking::blocked_reply;
use super::facts::Facts;
use super::in_flight::{InFlight, Next};
use super::queued::{Batch, Queued};
use super::tasks::TaskPlan;

impl Instance {
    /// Does what those want who pause or resume it, if it was loaded for that. Of several the last counts. Returns whether
    /// that is all that is to be done for now.
    pub(super) fn heed_pauses(&mut self, shared: &mut Shared, now_ms: u64, row: &InstanceRow) -> bool {
        let taken = self.queue.take_pauses();
        let pause = row.blocked.as_ref().and_then(|blocked| blocked.pause.as_ref());
        // Whether it goes on with its orchestration alone, as far as is known here.
        let is_held = pause.is_some_and(|pause| pause.orchestration) && shared.paused.contains(&row.name);
        match taken.last().map(|queued| &queued.message) {
            Some(Message::Pause(pause)) => {
                let pause = pause.clone();
                self.pause(shared, now_ms, taken, pause);
                true
            }
            Some(_) => {
                let answer = if is_held { Answer::OrchestrationPaused } else { Answer::Accepted };
                self.resume(shared, now_ms, taken, pause.is_some() && !is_held, &answer)
            }
            None => self.heed_orchestration(shared, now_ms, row),
        }
    }

    /// Pauses it if its orchestration is. Returns whether it did.
    fn heed_orchestration(&mut self, shared: &mut Shared, now_ms: u64, row: &InstanceRow) -> bool {
        if row.blocked.as_ref().is_some_and(|blocked| blocked.pause.is_some()) {
            return false;
        }
        let Some(pause) = shared.paused.pause_of(&row.name) else { return false };
        self.pause(shared, now_ms, Vec::new(), pause);
        true
    }

    /// Pauses an instance whose execution is idle: somebody wants that, or its orchestration is paused.
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

    /// Marks it as paused. What came for it is kept once that is durable: a commit that sends and takes no turn may be
    /// written twice, and must not consume.
    fn pause(&mut self, shared: &mut Shared, now_ms: u64, wanted: Vec<Queued>, pause: Pause) {
        let failure = TaskFailure::Paused(pause);
        let wanted = Batch::new(wanted);
        self.blocked_reply = Some(blocked_reply(&failure));
        self.kept_events = self.queue.stored_events();
        let blocked = self.blocked(now_ms, &failure);
        let graces = self.queue.cancel_graces().map(|grace| shared.gaps.end_of(grace));
        let wake_at_ms = graces.chain(self.limits.ends()).min();
        tracing::info!(instance = &*self.id, "{failure}");
        let mut commit = Commit { consumed: wanted.numbers().to_vec(), ..shared.empty_commit(self.key) };
        let facts = self.mark_blocked(now_ms, &wanted, blocked, wake_at_ms, &mut commit);
        let outputs = wanted.replies(&Answer::Accepted).collect();
        let mut in_flight = InFlight { outputs, ..InFlight::new(facts, Next::Blocked, wanted) };
        TaskPlan::of(&mut self.tasks, |_| true).apply(&mut commit, &mut in_flight);
        self.commit(shared, commit, in_flight);
    }

    /// Lets it go on, if it is paused. Returns whether something is to be written first.
    fn resume(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        wanted: Vec<Queued>,
        is_paused: bool,
        answer: &Answer,
    ) -> bool {
        let wanted = Batch::new(wanted);
        let stored = self.stored();
        let facts = match is_paused {
            true => Facts { wake_at_ms: Some(now_ms), ..stored.clone().unblocked() },
            false => stored.clone(),
        };
        let mut commit = Commit { consumed: wanted.numbers().to_vec(), ..shared.empty_commit(self.key) };
        commit.change = facts.change_from(&stored);
        if commit.is_empty() {
            shared.outputs.extend(wanted.replies(answer));
            return false;
        }
        if is_paused {
            tracing::info!(instance = &*self.id, "resumed");
        }
        let outputs = wanted.replies(answer).collect();
        let mut in_flight = InFlight { outputs, ..InFlight::new(facts, Next::Reloaded, wanted) };
        TaskPlan::of(&mut self.tasks, |_| true).apply(&mut commit, &mut in_flight);
        self.commit(shared, commit, in_flight);
        true
    }

    /// Whether a loaded instance is paused, by itself or because its orchestration still is. Those who want it to be tried
    /// are not heard before it is resumed.
    pub(super) fn stays_paused(&mut self, shared: &mut Shared, row: &InstanceRow) -> bool {
        let Some(pause) = row.blocked.as_ref().and_then(|blocked| blocked.pause.as_ref()) else {
            return false;
        };
        if flaws::is(Flaw::PausesForgotten) {
            return false;
        }
        if pause.orchestration && !shared.paused.contains(&row.name) {
            shared.given_up.remove(&self.key);
            return false;
        }
        self.tried.extend(self.queue.one_try_numbers());
        true
    }
}
