//! Instances that cannot go on. Nothing that came for them is lost.

use std::sync::Arc;

use crate::instance::InstanceKey;
use crate::store::{Blocked, Commit, InstanceRow, Outgoing, RequestReply, RowChange};

use super::message::Message;
use super::options::OnFailure;
use super::output::Output;
use super::request::{Answer, AskReply, PendingAsk};
use super::rows::*;
use super::slot::{Facts, InFlight, Next, Origin, Phase, Queued};
use super::state_machine::Shard;
use super::tasks::TaskPlan;
use super::turn_task::TaskFailure;

impl Shard {
    /// The instance cannot go on. Everything that came for it is kept in its inbox.
    pub(super) fn block(
        &mut self,
        now_ms: u64,
        key: InstanceKey,
        messages: Vec<Queued>,
        failure: &TaskFailure,
    ) {
        self.block_with(now_ms, key, messages, failure, Vec::new());
    }

    /// Blocks, and writes answers that were given before the turn failed.
    pub(super) fn block_with(
        &mut self,
        now_ms: u64,
        key: InstanceKey,
        messages: Vec<Queued>,
        failure: &TaskFailure,
        answers: Vec<RequestReply>,
    ) {
        self.counters.failed_turns += 1;
        let slot = self.slots.get_mut(&key).expect("its turn failed");
        if slot.facts.as_ref().is_some_and(|facts| facts.status.is_final()) {
            return self.consultation_failed(key, messages, failure, answers);
        }
        slot.blocked_reply = Some(Shard::blocked_reply(failure));
        let mut messages = messages;
        messages.extend(slot.queue.drain(..));
        if self.options.on_failure.of(failure) == OnFailure::End {
            let message = Message::Terminate { reason: failure.to_string() };
            messages.push(Queued::engine(message, now_ms));
        }
        let start = start_request(&messages);
        let stored = slot.facts.clone();
        let attempts = stored.as_ref().map_or(0, |facts| facts.blocked_attempts) + 1;
        let cause = failure.cause();
        let known = stored.as_ref().and_then(|facts| facts.blocked_cause.as_ref());
        let since_ms = known.filter(|(known, _)| **known == *cause).map_or(now_ms, |(_, since_ms)| *since_ms);
        let retry_at_ms = failure.may_pass().then(|| now_ms + self.options.retry_pause_ms(attempts));
        // What the instance wanted to be woken for may be the end of a cancel's grace, which is kept without code.
        let wanted_ms = stored
            .as_ref()
            .and_then(|facts| facts.wake_at_ms)
            .filter(|at_ms| *at_ms > now_ms && failure.may_pass());
        let ends = slot.grace_until_ms.into_iter().chain(slot.deadline_ms);
        let graces = cancel_grace(&messages).into_iter().chain(ends).chain(wanted_ms);
        let wake_at_ms = graces.chain(retry_at_ms).min();
        slot.kept_events = messages.iter().filter(|queued| queued.is_event()).count();
        let blocked = Blocked {
            code: failure.code().to_owned(),
            cause: cause.clone(),
            reason: failure.to_string(),
            report: failure.report(),
            divergence: failure.divergence(),
            since_ms,
            attempts,
        };
        tracing::warn!(instance = &*slot.id, code = blocked.code, attempts, "blocked: {failure}");
        let id = Arc::clone(&slot.id);
        let asks: Vec<PendingAsk> = slot.asks.drain(..).collect();
        let plan = TaskPlan::of_slot(slot, |_| true);
        let send = self.kept(key, &messages);
        // A retry is one try. A commit that sends and takes no turn is sent again if its outcome is unknown, and must not
        // find its own doing in its way then; so the retry goes another time.
        let consumed = if send.is_empty() { retry_numbers(&messages) } else { Vec::new() };
        // What stays in the inbox has been looked at; it is not read again and again while the instance is blocked.
        let seen =
            urgent_numbers(&messages).into_iter().filter(|number| !consumed.contains(number)).collect();
        let mut commit = Commit { send, replies: answers, consumed, seen, ..self.empty_commit(key) };
        let refusals = self.refuse_asks(&asks, &Shard::blocked_reply(failure), &mut commit.replies);
        let facts = match (stored, started_of(&messages)) {
            (None, Some(started)) => {
                let row = InstanceRow::pending(key, &id, started, now_ms);
                let row = InstanceRow { wake_at_ms, blocked: Some(blocked), ..row };
                let facts = Facts::of_row(&row);
                commit.insert = Some(Box::new(row));
                facts
            }
            (stored, _) => {
                // What the row says is not known if it could not be read.
                let stored = stored.unwrap_or_else(|| nothing_stored(1));
                let facts = Facts {
                    wake_at_ms,
                    blocked_attempts: attempts,
                    blocked_cause: Some((cause.into(), since_ms)),
                    ..stored.clone()
                };
                let wake_at_ms = Some(wake_at_ms);
                commit.change =
                    RowChange { wake_at_ms, blocked: Some(Some(blocked)), ..facts.change_from(&stored) };
                facts
            }
        };
        let mut outputs = replies(&messages, &Answer::Accepted);
        outputs.extend(start.map(|request| Output::Reply(request, Answer::Started(key))));
        outputs.extend(refusals);
        // A termination needs no code: it is done as soon as it is kept, unless it is what failed. What is given up is
        // woken only for its end, and when that is may stand in its history alone.
        let is_termination = |queued: &Queued| matches!(queued.message, Message::Terminate { .. });
        let is_over = messages.iter().any(is_termination) && failure.leaves_history();
        let is_given_up = !failure.may_pass();
        if is_given_up {
            self.given_up.insert(key);
        }
        let next = if is_over || is_given_up { Next::Reloaded } else { Next::Blocked };
        let mut in_flight =
            InFlight { outputs, start, refused: asks, ..InFlight::new(facts, next, messages) };
        plan.apply(&mut commit, &mut in_flight);
        self.commit(key, commit, in_flight);
    }

    /// An instance that has ended cannot be asked: those who asked are told why, and nothing else comes of it.
    fn consultation_failed(
        &mut self,
        key: InstanceKey,
        messages: Vec<Queued>,
        failure: &TaskFailure,
        answers: Vec<RequestReply>,
    ) {
        let slot = self.slots.get_mut(&key).expect("it was asked");
        messages.into_iter().rev().for_each(|queued| slot.queue.push_front(queued));
        let asks: Vec<PendingAsk> = slot.asks.drain(..).collect();
        let facts = slot.facts.clone().expect("it has ended");
        let mut commit = Commit { replies: answers, ..self.empty_commit(key) };
        let outputs = self.refuse_asks(&asks, &Shard::blocked_reply(failure), &mut commit.replies);
        if commit.is_empty() {
            self.outputs.extend(outputs);
            return self.clear_leftovers(key);
        }
        let in_flight = InFlight { outputs, refused: asks, ..InFlight::new(facts, Next::Gone, Vec::new()) };
        self.commit(key, commit, in_flight);
    }

    /// An instance was loaded, and is not tried: it is blocked as it was.
    pub(super) fn stay_blocked(&mut self, now_ms: u64, key: InstanceKey) {
        let slot = self.slots.get_mut(&key).expect("it was just loaded");
        let is_kept = |queued: &&Queued| matches!(queued.origin, Origin::Inbox(_)) && queued.is_event();
        slot.kept_events = slot.queue.iter().filter(is_kept).count();
        slot.phase = Phase::Blocked;
        let stored = slot.facts.clone().expect("a loaded row has facts");
        // Whoever sent something urgent has made it due, so that it is looked at.
        let graces = slot.queue.iter().filter_map(|queued| cancel_grace(std::slice::from_ref(queued)));
        let ends = slot.grace_until_ms.into_iter().chain(slot.deadline_ms);
        let wake_at_ms = graces.chain(ends).chain(stored.wake_at_ms).filter(|at_ms| *at_ms > now_ms).min();
        if wake_at_ms != stored.wake_at_ms {
            let plan = TaskPlan::of_slot(slot, |_| true);
            let facts = Facts { wake_at_ms, ..stored.clone() };
            let change = facts.change_from(&stored);
            let mut commit = Commit { change, ..self.empty_commit(key) };
            let mut in_flight = InFlight::new(facts, Next::Kept, Vec::new());
            plan.apply(&mut commit, &mut in_flight);
            return self.commit(key, commit, in_flight);
        }
        self.set_wake(key, wake_at_ms);
        self.enter_idle(now_ms, key);
        self.go_on(now_ms, key);
        self.evict_surplus(now_ms);
    }

    /// Writes what came for an instance that cannot go on, or has not begun, into its inbox.
    pub(super) fn keep_queue(&mut self, key: InstanceKey, next: Next) {
        let slot = self.slots.get_mut(&key).expect("it is blocked or delayed");
        let is_kept = |queued: &Queued| matches!(queued.origin, Origin::Inbox(_));
        let (kept, messages): (Vec<Queued>, Vec<Queued>) = slot.queue.drain(..).partition(is_kept);
        let seen = if matches!(next, Next::Delayed) { Vec::new() } else { urgent_numbers(&kept) };
        // A cancel that another process sent ends the instance when its grace is over, as one from here does.
        let graces = [cancel_grace(&kept), cancel_grace(&messages)];
        // What a delayed instance has in its inbox is remembered, so that it is not read again and again.
        if matches!(next, Next::Delayed) {
            slot.queue.extend(kept);
        }
        let asks: Vec<PendingAsk> = slot.asks.drain(..).collect();
        let plan = TaskPlan::of_slot(slot, |_| true);
        let stored = slot.facts.clone().expect("it is stored");
        let why = slot.blocked_reply.clone();
        slot.kept_events += messages.iter().filter(|queued| queued.is_event()).count();
        let send = self.kept(key, &messages);
        let mut commit = Commit { send, seen, ..self.empty_commit(key) };
        let mut outputs = replies(&messages, &Answer::Accepted);
        let reply = match &next {
            Next::Delayed => AskReply::Refused {
                reason: "PER-0208 update: the instance has not begun".to_owned(),
                error: None,
            },
            _ => why.unwrap_or_else(|| AskReply::Blocked {
                code: "PER-0300".to_owned(),
                reason: "the instance is blocked; its status says why".to_owned(),
            }),
        };
        outputs.extend(self.refuse_asks(&asks, &reply, &mut commit.replies));
        let wake_at_ms = graces.into_iter().flatten().chain(stored.wake_at_ms).min();
        let facts = Facts { wake_at_ms, ..stored.clone() };
        commit.change = RowChange { blocked: None, ..facts.change_from(&stored) };
        let mut in_flight = InFlight { outputs, refused: asks, ..InFlight::new(facts, next, messages) };
        plan.apply(&mut commit, &mut in_flight);
        if commit.is_empty() {
            return self.outputs.extend(in_flight.outputs);
        }
        self.commit(key, commit, in_flight);
    }

    /// The messages that are not in the inbox yet and would be lost, as rows for it. Each has a key, so that a commit
    /// that is sent again appends nothing twice.
    fn kept(&mut self, key: InstanceKey, messages: &[Queued]) -> Vec<Outgoing> {
        let mut rows = Vec::new();
        for queued in messages {
            if matches!(queued.origin, Origin::Inbox(_))
                || matches!(queued.message, Message::Retry | Message::Unreadable { .. })
            {
                continue;
            }
            self.next_kept += 1;
            let own = || format!("~{:x}.{}.{}", self.nonce, self.id.0, self.next_kept);
            let dedupe = Some(queued.message.dedupe().map_or_else(own, str::to_owned));
            rows.push(Outgoing::ToKey {
                to: key,
                shard: self.id,
                dedupe,
                urgent: false,
                body: queued.message.encode(),
            });
        }
        rows
    }
}
