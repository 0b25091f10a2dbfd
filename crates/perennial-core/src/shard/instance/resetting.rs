//! Resetting an instance to a turn: its next execution begins with the turns that are kept.
//!
//! It is one commit: the copies of these turns, the row, the start of children that are begun again, cancels of those that
//! nobody waits for, and what is delivered again. The instance is hydrated from that like any other, with the code that is
//! registered now.

use std::sync::Arc;

use crate::history::{ClosePolicy, Decision, EventId, Ledger, OnTakenId, Payload, Started};
use crate::store::{Commit, InstanceRow, Outgoing, RequestReply, RowChange, Status, TurnRow};

use super::super::message::{Message, Start};
use super::super::outgoing::{Sender, cancel_child, send_other, start_child};
use super::super::output::Output;
use super::super::request::{AskReply, PendingAsk, Question};
use super::super::reset::{Again, ResetOutcome, ResetReport, ResetRun, ResetTask, gone_on, made_before};
use super::super::shared::Shared;
use super::super::turn_task::TurnSource;
use super::Instance;
use super::asking::reply_to;
use super::facts::Facts;
use super::in_flight::{Delivery, InFlight, Next, Phase, Turning};
use super::queued::Batch;
use super::tasks::TaskPlan;

impl Instance {
    /// Lets an instance that rests be loaded for a reset. Task rows that were planned are written first.
    pub(super) fn load_for_reset(&mut self, shared: &mut Shared) {
        shared.residents.leave(&mut self.stay);
        shared.outputs.extend(self.take_idle().map(Output::Drop));
        self.try_without(shared, Vec::new(), Vec::new());
    }

    /// It was loaded, and somebody wants it to be reset.
    pub(super) fn begin_reset(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        row: &InstanceRow,
        turns: Vec<TurnRow>,
    ) {
        let Some(ask) = self.questions.take_reset() else { return };
        let Question::Reset { execution, to_turn, version, why } = ask.question.clone() else { return };
        let refusal = match row.status {
            _ if !row.is_sound() => Some("its row is damaged".to_owned()),
            Status::Pending | Status::Running if to_turn.is_none() && row.execution == execution => {
                Some("it has not ended; only what has ended can run again from its end".to_owned())
            }
            Status::Completed if to_turn.is_none() && row.execution == execution => {
                Some("it completed; name the turn to go back to".to_owned())
            }
            _ => None,
        };
        if let Some(reason) = refusal {
            return self.refuse_reset(shared, ask, reason);
        }
        if turns.is_empty() {
            // Its start waits; it may be that of a reset to before the first turn.
            let started = self.queue.start().map(|start| &start.started);
            let made = started.and_then(|started| made_before(started, execution, to_turn));
            return match made {
                Some(report) => self.answer_reset(shared, ask, &report),
                None if row.execution != execution => {
                    self.refuse_reset(shared, ask, gone_on(execution, row.execution));
                }
                None => self.refuse_reset(shared, ask, "it has not begun".to_owned()),
            };
        }
        let task = ResetTask {
            turns,
            execution,
            to_turn,
            version,
            why,
            now_ms,
            created_ms: row.created_ms,
            has_ended: row.status.is_final(),
        };
        self.take_turn(shared, now_ms, TurnSource::Reset(Box::new(task)), Delivery::default());
        if let Phase::Turning(turning) = &mut self.phase {
            let number = turning.number;
            *turning = Turning::new(number, Batch::default(), vec![ask], None);
        }
    }

    /// The turns were cut, or cannot be.
    pub(super) fn reset_prepared(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        asks: Vec<PendingAsk>,
        outcome: ResetOutcome,
    ) {
        let Some(ask) = asks.into_iter().next() else { return self.reload(shared) };
        match outcome {
            ResetOutcome::Ready(run) => self.commit_reset(shared, now_ms, ask, *run),
            ResetOutcome::Made(report) => self.answer_reset(shared, ask, &report),
            ResetOutcome::Refused(reason) => self.refuse_reset(shared, ask, reason),
        }
    }

    fn refuse_reset(&mut self, shared: &mut Shared, ask: PendingAsk, reason: String) {
        self.end_reset(shared, ask, AskReply::Refused { reason, error: None });
    }

    fn answer_reset(&mut self, shared: &mut Shared, ask: PendingAsk, report: &ResetReport) {
        self.end_reset(shared, ask, told(report));
    }

    /// Answers without having changed anything, and goes on as if nobody had asked.
    fn end_reset(&mut self, shared: &mut Shared, ask: PendingAsk, reply: AskReply) {
        let mut replies: Vec<RequestReply> = Vec::new();
        let output = reply_to(ask.asker, reply, &mut replies);
        if replies.is_empty() {
            shared.outputs.extend(output);
            return self.reload(shared);
        }
        let commit = Commit { replies, ..shared.empty_commit(self.key) };
        let in_flight = InFlight::new(self.stored(), Next::Reloaded, Batch::default());
        self.commit(shared, commit, InFlight { refused: vec![ask], ..in_flight });
    }

    fn commit_reset(&mut self, shared: &mut Shared, now_ms: u64, ask: PendingAsk, run: ResetRun) {
        let ResetRun { mut report, started, rows, ledger, jobs, again, before, cut } = run;
        let stored = self.stored();
        tracing::info!(
            instance = &*self.id,
            execution = started.execution,
            turn = report.turn,
            "reset: {}",
            started.reset.as_ref().map_or_else(String::new, |reset| reset.why.to_string())
        );
        let mut send = Vec::new();
        // One that has ended told its children when it did.
        if !stored.status.is_final() {
            let from = Sender { key: self.key, id: &self.id, started: before.started() };
            let is_left = |(event, open): &(EventId, &Decision)| {
                *event > cut
                    && matches!(open, Decision::SubOrchestrationScheduled { close: ClosePolicy::Cancel, .. })
            };
            let left: Vec<EventId> = before.ledger.open().filter(is_left).map(|(event, _)| event).collect();
            report.children_cancelled = left.len() as u64;
            send.extend(
                left.into_iter().filter_map(|event| cancel_child(shared, &from, &before.ledger, event, None)),
            );
        }
        let from = Sender { key: self.key, id: &self.id, started: &started };
        send.extend(again.into_iter().flat_map(|again| begin_again(shared, &from, &ledger, now_ms, again)));
        let is_begun_again = rows.is_empty();
        send.extend(self.carried_rows(shared, &started, jobs, is_begun_again));
        let facts = Facts {
            status: Status::Running,
            owed: report.activities > 0,
            full: false,
            // Whoever owns it next looks at it.
            wake_at_ms: Some(now_ms),
            execution: started.execution,
            version: Arc::from(started.version.as_str()),
            ..stored.clone()
        };
        // One that is paused stays so; whatever else blocked it is to be seen.
        let facts = if facts.is_paused() { facts } else { facts.unblocked() };
        let mut turns = rows.into_iter();
        let mut commit = Commit {
            turn: turns.next(),
            more_turns: turns.collect(),
            change: RowChange {
                attributes: Some(if is_begun_again {
                    started.attributes.clone()
                } else {
                    ledger.attributes().clone()
                }),
                published: Some(if is_begun_again {
                    started.status.clone()
                } else {
                    ledger.status().cloned()
                }),
                ended_ms: stored.status.is_final().then_some(None),
                ..facts.change_from(&stored)
            },
            send,
            ..shared.empty_commit(self.key)
        };
        let mut outputs: Vec<Output> =
            reply_to(ask.asker, told(&report), &mut commit.replies).into_iter().collect();
        let (answered, orphaned) = self.orphaned_updates(shared, &mut commit.replies);
        outputs.extend(orphaned);
        outputs.push(Output::Continued { key: self.key, execution: started.execution });
        let mut plan = TaskPlan::of(&mut self.tasks, |_| false);
        plan.close_all(&mut self.tasks);
        let in_flight = InFlight::new(facts, Next::Reset, Batch::default());
        let mut in_flight = InFlight { outputs, answered, refused: vec![ask], ..in_flight };
        plan.apply(&mut commit, &mut in_flight);
        self.commit(shared, commit, in_flight);
    }

    /// What the next execution is given: its start, if it keeps no turn, and what is delivered again. A commit without a
    /// turn may be written twice, so each has a key.
    fn carried_rows(
        &self,
        shared: &Shared,
        started: &Started,
        jobs: Vec<crate::history::Job>,
        is_begun_again: bool,
    ) -> Vec<Outgoing> {
        let execution = started.execution;
        let mut portions = shared.options.portions(jobs).into_iter();
        let mut messages = Vec::new();
        if is_begun_again {
            let jobs = portions.next().unwrap_or_default();
            messages.push(Message::Start(Box::new(Start { jobs, ..Start::new(started.clone()) })));
        }
        messages.extend(portions.filter(|jobs| !jobs.is_empty()).map(|jobs| Message::Carried {
            execution,
            jobs,
            in_place_of: None,
        }));
        let rows = messages.iter().enumerate().map(|(place, message)| Outgoing::ToKey {
            to: self.key,
            shard: shared.id,
            dedupe: Some(format!("reset {execution} {place}")),
            urgent: false,
            body: message.encode(),
        });
        rows.collect()
    }

    /// The store cannot take the next execution. Nothing was changed, and it goes on as it was.
    pub(super) fn reset_rejected(&mut self, shared: &mut Shared, mut in_flight: InFlight, reason: String) {
        self.tasks.put_back_writes(std::mem::take(&mut in_flight.task_writes));
        match in_flight.take_asks().next() {
            Some(ask) => self.refuse_reset(shared, ask, format!("the store refused it: {reason}")),
            None => self.reload(shared),
        }
    }

    /// The next execution is durable: nothing of the one before is left here.
    pub(super) fn reset_done(&mut self, shared: &mut Shared) {
        shared.stop_attempts(self.key);
        shared.given_up.remove(&self.key);
        self.tasks.clear();
        self.limits.end_grace();
        self.recorded_unread = 0;
        self.lost_turns = 0;
        self.reload(shared);
    }
}

/// What begins something again.
fn begin_again(
    shared: &mut Shared,
    from: &Sender<'_>,
    ledger: &Ledger,
    now_ms: u64,
    again: Again,
) -> Vec<Outgoing> {
    let (Again::Unstarted(event) | Again::Started(event) | Again::Sent(event)) = again;
    let Some(decision) = ledger.open_decision(event) else { return Vec::new() };
    if again == Again::Sent(event) {
        return send_other(shared, from, event, now_ms, decision).into_iter().collect();
    }
    let (mut decision, Some(at_ms)) = (decision.clone(), ledger.scheduled_at_ms(event)) else {
        return Vec::new();
    };
    if let Decision::SubOrchestrationScheduled { instance, options, .. } = &mut decision {
        // The one before has the id, if its parent chose it.
        if again == Again::Started(event) && instance.is_some() {
            let on_existing = &mut options.get_or_insert_default().on_existing;
            *on_existing = (*on_existing).max(OnTakenId::ReplaceEnded);
        }
        // Its key follows from when it was scheduled; its timeout counts from now on.
        if let Some(timeout_ms) = options.as_mut().and_then(|options| options.timeout_ms.as_mut()) {
            *timeout_ms = timeout_ms.saturating_add(now_ms.saturating_sub(at_ms));
        }
    }
    start_child(from, event, at_ms, &decision)
}

fn told(report: &ResetReport) -> AskReply {
    match Payload::encode(report) {
        Ok(report) => AskReply::Answered(report),
        Err(error) => AskReply::Refused { reason: error.to_string(), error: None },
    }
}
