//! Resetting an instance to a turn: its next execution begins with the kept turns.
//!
//! A reset is one commit: the copies of the turns, the row, the start of children that run again, cancel requests to
//! children that are no longer wanted, and the jobs that are delivered again. The instance is then hydrated like any
//! other, with the code that is registered now.

use std::sync::Arc;

use crate::history::{ClosePolicy, Decision, EventId, Ledger, OnTakenId, Payload, Started};
use crate::log;
use crate::store::{Commit, InstanceRow, Outgoing, RequestReply, RowChange, Status, TurnRow};

use super::super::message::{Message, Start};
use super::super::outgoing::{Sender, cancel_child, send_other, start_child};
use super::super::output::Output;
use super::super::request::{CallReply, InstanceCall, PendingCall};
use super::super::reset::{Again, ResetOutcome, ResetReport, ResetRun, ResetTask, gone_on, made_before};
use super::super::shared::Shared;
use super::super::turn_task::TurnSource;
use super::Instance;
use super::calls::send_reply;
use super::in_flight::{Delivery, InFlight, Next, Phase, Turning};
use super::queued::Batch;
use super::row_columns::RowColumns;
use super::tasks::TaskPlan;

impl Instance {
    /// Loads an idle instance for a reset. Planned task rows are written first.
    pub(super) fn load_for_reset(&mut self, shared: &mut Shared) {
        shared.residents.leave(&mut self.stay);
        shared.outputs.extend(self.take_idle().map(Output::Drop));
        self.try_without(shared, Vec::new(), Vec::new());
    }

    /// Starts a requested reset of a loaded instance.
    pub(super) fn begin_reset(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        row: &InstanceRow,
        turns: Vec<TurnRow>,
    ) {
        let Some(pending) = self.pending_calls.take_reset() else { return };
        let InstanceCall::Reset { execution, to_turn, version, why } = pending.call.clone() else { return };
        let refusal = match row.status {
            _ if !row.is_sound() => Some("its row is damaged".to_owned()),
            Status::Pending | Status::Running if to_turn.is_none() && row.execution == execution => {
                Some("it has not ended; only an ended instance can be rerun from its end".to_owned())
            }
            Status::Completed if to_turn.is_none() && row.execution == execution => {
                Some("it completed; name the turn to reset it to".to_owned())
            }
            _ => None,
        };
        if let Some(reason) = refusal {
            return self.refuse_reset(shared, pending, reason);
        }
        if turns.is_empty() {
            // Its start is waiting; it may be that of an earlier reset to before the first turn.
            let started = self.queue.start().map(|start| &start.started);
            let made = started.and_then(|started| made_before(started, execution, to_turn));
            return match made {
                Some(report) => self.answer_reset(shared, pending, &report),
                None if row.execution != execution => {
                    self.refuse_reset(shared, pending, gone_on(execution, row.execution));
                }
                None => self.refuse_reset(shared, pending, "it has not started".to_owned()),
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
            *turning = Turning::new(number, Batch::default(), vec![pending], None);
        }
    }

    /// Handles the prepared turns, or that the reset is not possible.
    pub(super) fn reset_prepared(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        calls: Vec<PendingCall>,
        outcome: ResetOutcome,
    ) {
        let Some(pending) = calls.into_iter().next() else { return self.reload(shared) };
        match outcome {
            ResetOutcome::Ready(run) => self.commit_reset(shared, now_ms, pending, *run),
            ResetOutcome::Made(report) => self.answer_reset(shared, pending, &report),
            ResetOutcome::Refused(reason) => self.refuse_reset(shared, pending, reason),
        }
    }

    fn refuse_reset(&mut self, shared: &mut Shared, pending: PendingCall, reason: String) {
        self.end_reset(shared, pending, CallReply::Refused { reason, error: None });
    }

    fn answer_reset(&mut self, shared: &mut Shared, pending: PendingCall, report: &ResetReport) {
        self.end_reset(shared, pending, told(report));
    }

    /// Replies without having changed anything, and continues as if there had been no request.
    fn end_reset(&mut self, shared: &mut Shared, pending: PendingCall, reply: CallReply) {
        let mut replies: Vec<RequestReply> = Vec::new();
        let output = send_reply(pending.reply_to, reply, &mut replies);
        if replies.is_empty() {
            shared.outputs.extend(output);
            return self.reload(shared);
        }
        let commit = Commit { replies, ..shared.empty_commit(self.key) };
        let in_flight = InFlight::new(self.stored(), Next::Reloaded, Batch::default());
        self.commit(shared, commit, InFlight { refused: vec![pending], ..in_flight });
    }

    fn commit_reset(&mut self, shared: &mut Shared, now_ms: u64, pending: PendingCall, run: ResetRun) {
        let ResetRun { mut report, started, rows, ledger, jobs, again, before, cut } = run;
        let stored = self.stored();
        tracing::info!(
            target: log::INSTANCE,
            instance = &*self.id,
            execution = started.execution,
            turn = report.turn,
            reason = started.reset.as_ref().map(|reset| tracing::field::display(&reset.why)),
            "instance reset"
        );
        let mut send = Vec::new();
        // An ended instance notified its children when it ended.
        if !stored.status.is_final() {
            let from = Sender { key: self.key, id: &self.id, started: before.started(), turn: None };
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
        let from = Sender { key: self.key, id: &self.id, started: &started, turn: None };
        send.extend(again.into_iter().flat_map(|again| begin_again(shared, &from, &ledger, now_ms, again)));
        let is_begun_again = rows.is_empty();
        send.extend(self.carried_rows(shared, &started, jobs, is_begun_again));
        let columns = RowColumns {
            status: Status::Running,
            owed: report.activities > 0,
            full: false,
            // Makes the next owner examine it.
            wake_at_ms: Some(now_ms),
            execution: started.execution,
            version: Arc::from(started.version.as_str()),
            ..stored.clone()
        };
        // A paused instance stays paused; whether anything else still blocks it has to be found out.
        let columns = if columns.is_paused() { columns } else { columns.unblocked() };
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
                ..columns.change_from(&stored)
            },
            send,
            ..shared.empty_commit(self.key)
        };
        let mut outputs: Vec<Output> =
            send_reply(pending.reply_to, told(&report), &mut commit.replies).into_iter().collect();
        let (answered, orphaned) = self.orphaned_updates(shared, &mut commit.replies);
        outputs.extend(orphaned);
        outputs.push(Output::Continued { key: self.key, execution: started.execution });
        let mut plan = TaskPlan::of(&mut self.tasks, |_| false);
        plan.close_all(&mut self.tasks);
        let in_flight = InFlight::new(columns, Next::Reset, Batch::default());
        let mut in_flight = InFlight { outputs, answered, refused: vec![pending], ..in_flight };
        plan.apply(&mut commit, &mut in_flight);
        self.commit(shared, commit, in_flight);
    }

    /// What the next execution gets: its start, if it keeps no turn, and the jobs that are delivered again. A commit
    /// without a turn may be written twice, so each message has a deduplication key.
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

    /// Handles that the store cannot accept the next execution. Nothing was changed, and the instance continues as
    /// before.
    pub(super) fn reset_rejected(&mut self, shared: &mut Shared, mut in_flight: InFlight, reason: String) {
        self.tasks.put_back_writes(std::mem::take(&mut in_flight.task_writes));
        match in_flight.take_calls().next() {
            Some(pending) => self.refuse_reset(shared, pending, format!("the store refused it: {reason}")),
            None => self.reload(shared),
        }
    }

    /// Handles that the next execution is durable: nothing of the previous one is kept here.
    pub(super) fn reset_done(&mut self, shared: &mut Shared) {
        shared.stop_attempts(self.key);
        shared.no_auto_retry.remove(&self.key);
        self.tasks.clear();
        self.limits.end_grace();
        self.recorded_unread = 0;
        self.lost_turns = 0;
        self.reload(shared);
    }
}

/// What starts an operation again.
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
        // The previous child has the id, if its parent chose it.
        if again == Again::Started(event) && instance.is_some() {
            let on_existing = &mut options.get_or_insert_default().on_existing;
            *on_existing = (*on_existing).max(OnTakenId::ReplaceEnded);
        }
        // Its key is derived from when it was scheduled; its timeout counts from now.
        if let Some(timeout_ms) = options.as_mut().and_then(|options| options.timeout_ms.as_mut()) {
            *timeout_ms = timeout_ms.saturating_add(now_ms.saturating_sub(at_ms));
        }
    }
    start_child(from, event, at_ms, &decision)
}

fn told(report: &ResetReport) -> CallReply {
    match Payload::encode(report) {
        Ok(report) => CallReply::Answered(report),
        Err(error) => CallReply::Refused { reason: error.to_string(), error: None },
    }
}
