//! Attempts that are completed from outside: calls with their tokens, and what happens when they time out.
//!
//! An activity that completes later has a task row from its first attempt on, which contains the secret of the
//! attempt's token. Its code hands the token out and returns; from then on the row waits, without a running attempt,
//! for the holder of the token, until it is due. A call with a token does not involve the instance's code: the row
//! tells whether the token belongs to the current attempt, and the reply is sent with the commit that applies the call.
//! A message carries the same content when nobody waits for a reply.

use crate::code::ErrorCode;
use crate::codec::quoted;
use crate::execution::Execution;
use crate::history::{ActivityError, ActivityOptions, Decision, Job, Ledger, Payload, TimeoutKind, Trail};
use crate::store::{Commit, TaskRow, TaskState};

use super::super::attempts::Attempt;
use super::super::message::{LeftOpen, Message, RanElsewhere};
use super::super::output::{ActivityTask, Output};
use super::super::request::{CallReply, InstanceCall, OpenRow, PendingCall, Said, TokenCall};
use super::super::shared::Shared;
use super::super::task_work::{Left, OpenEnd, open_end, open_work};
use super::super::token::TokenSecret;
use super::Instance;
use super::calls::send_reply;
use super::in_flight::InFlight;
use super::queued::Queued;
use super::results::{Ended, retry_at_ms};

/// The effect of a call with a token.
pub(in crate::shard) enum Verdict {
    /// None: the token does not belong to the current attempt.
    Refused(CallReply),
    /// The attempt was the last one: the code gets this job.
    Takes(Job),
    /// The activity continues, with this row if it changes.
    Writes(Option<Box<TaskRow>>),
}

/// The effect of a call with a token, determined from the activity's row.
pub(in crate::shard) fn judge(
    (execution, ledger): (u64, &Ledger),
    known: Option<&OpenRow>,
    call: &TokenCall,
    now_ms: u64,
) -> Verdict {
    let options = match ledger.open_decision(call.event) {
        Some(Decision::ActivityScheduled { options, .. }) if execution == call.execution => {
            options.as_deref()
        }
        _ => return Verdict::Refused(CallReply::NotOpen),
    };
    let Some((known, open)) = known.and_then(|known| Some((known, open_end(&known.row)?))) else {
        return Verdict::Refused(not_handed_out());
    };
    if known.row.attempt > call.attempt {
        return Verdict::Refused(CallReply::Outdated { attempt: known.row.attempt });
    }
    if (known.row.attempt, open.secret) != (call.attempt, call.secret) {
        return Verdict::Refused(not_handed_out());
    }
    let (source_event_id, attempts) = (call.event, call.attempt);
    let ran = open.left.as_ref().map(|left| left.ended(now_ms));
    match &call.said {
        Said::Completed(result) => {
            let (result, trail) = (result.clone(), ran.into_iter().fold(known.row.past.clone(), Trail::and));
            Verdict::Takes(Job::ActivityCompleted { source_event_id, result, attempts, trail })
        }
        Said::Failed(error) => {
            let error = ActivityError::Application(error.clone());
            let deadline_ms = ledger.activity_deadline_ms(call.event);
            let due_ms = retry_at_ms(options, (attempts, deadline_ms), now_ms, &error, || known.draw);
            let Some(due_ms) = due_ms else {
                let trail = ran.into_iter().fold(known.row.past.clone(), Trail::and);
                return Verdict::Takes(Job::ActivityFailed { source_event_id, error, attempts, trail });
            };
            let ran = ran.map(|ran| ran.failed(&error));
            let past = ran.into_iter().fold(known.row.past.clone(), Trail::and);
            Verdict::Writes(Some(Box::new(next_row(known, now_ms, due_ms, past))))
        }
        // While its code runs, the attempt sends its own heartbeats.
        Said::UnderWay(details) => Verdict::Writes(open.left.map(|left| {
            let due_ms = left.due_ms(now_ms);
            let (details, heard_ms) = (Some(quoted(details)), Some(now_ms));
            Box::new(TaskRow { due_ms, details, heard_ms, ..known.row.clone() })
        })),
    }
}

fn not_handed_out() -> CallReply {
    let reason = ErrorCode::BadToken.message("this token was never handed out");
    CallReply::Refused { reason, error: None }
}

/// The row of the attempt after a failed one. An attempt that reports a failure did not end its process.
fn next_row(known: &OpenRow, now_ms: u64, due_ms: u64, past: Trail) -> TaskRow {
    let work = open_work(OpenEnd { secret: known.next_secret, left: None });
    TaskRow {
        attempt: known.row.attempt.saturating_add(1),
        state: TaskState::Waiting,
        due_ms: Some(due_ms),
        since_ms: Some(now_ms),
        heard_ms: None,
        interruptions: 0,
        begun: None,
        past,
        work: Some(work),
        ..known.row.clone()
    }
}

impl Instance {
    /// Handles an attempt on this node whose code has returned without a result: the holder of its token completes it.
    pub(in crate::shard) fn handle_attempt_left_open(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        task: &ActivityTask,
        attempt: Attempt,
        (secret, ran_ms): (TokenSecret, u64),
    ) {
        let began_ms = now_ms.saturating_sub(ran_ms);
        let task = ActivityTask { details: attempt.details, ..task.clone() };
        self.leave_open(shared, now_ms, &task, secret, (began_ms, String::new()));
        self.go_on(shared, now_ms);
    }

    /// Handles the same for an attempt on another node, if the execution still waits for it.
    ///
    /// The row is written even if the turn fails, while the message stays in the inbox: if a load finds both, the row
    /// is the newer one.
    pub(super) fn take_left_open(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        execution: &Execution,
        left: &LeftOpen,
        (arrived_ms, is_found_by_load): (u64, bool),
    ) {
        let LeftOpen { event, attempt, secret, ran_ms, details, ran, .. } = left.clone();
        let is_done = self.tasks.latest(event).is_some_and(|row| {
            let is_left = || open_end(row).is_some_and(|open| open.left.is_some());
            row.attempt > attempt || (row.attempt == attempt && is_found_by_load && is_left())
        });
        let task = self.activity_task(shared, now_ms, execution, event);
        let Some(task) = task.filter(|_| !is_done) else {
            shared.counters.stale += 1;
            return;
        };
        let RanElsewhere { node, queued_ms, past, .. } = ran;
        let task = ActivityTask { attempt, details, queued_ms, past, ..task };
        self.leave_open(shared, now_ms, &task, secret, (arrived_ms.saturating_sub(ran_ms), node));
    }

    fn leave_open(
        &mut self,
        shared: &Shared,
        now_ms: u64,
        task: &ActivityTask,
        secret: TokenSecret,
        (began_ms, node): (u64, String),
    ) {
        let limit = |ms: fn(&ActivityOptions) -> Option<u64>| task.options.as_deref().and_then(ms);
        let until_ms = limit(|options| options.attempt_timeout_ms).map(|ms| began_ms.saturating_add(ms));
        let silence_ms = limit(|options| options.heartbeat_timeout_ms);
        let left = Left { queued_ms: task.queued_ms, began_ms, node, until_ms, silence_ms };
        // An attempt that returned did not end its process.
        let task = ActivityTask { interruptions: 0, begun: None, ..task.clone() };
        self.tasks.write(task.left_open_row(shared.id, secret, left, now_ms), task.deadline_ms);
    }

    /// What to do with an attempt that is completed from outside: nothing, until it times out.
    pub(super) fn tend_left_open(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        task: ActivityTask,
        left: &Left,
    ) {
        // A call that was sent while the instance had no owner may have been in time.
        if self.queue.has_token(task.execution, task.event) {
            return;
        }
        let Some(row) = self.tasks.get(task.event) else { return };
        let is_up = |until_ms: Option<u64>| until_ms.is_some_and(|until_ms| until_ms <= now_ms);
        let kind = match row.due_ms {
            _ if is_up(task.deadline_ms) => TimeoutKind::Total,
            _ if is_up(left.until_ms) => TimeoutKind::Attempt,
            due_ms if is_up(due_ms) => TimeoutKind::Heartbeat,
            _ => return,
        };
        let (attempt, past, details) = (row.attempt, row.past.clone(), row.details.clone());
        let task = ActivityTask { attempt, past, ..task };
        let (ran, result) = (left.ended(now_ms), Err(ActivityError::Timeout(kind)));
        let ended = Ended { details, ran: Some(ran), result, is_last: false };
        if let Some(message) = self.attempt_ended(shared, now_ms, &task, ended) {
            self.queue.push(Queued::engine(message, now_ms));
        }
    }

    /// The row that determines the effect of a call, as stored or about to be.
    pub(super) fn open_row(&self, shared: &mut Shared, call: &InstanceCall) -> Option<Box<OpenRow>> {
        let row = self.tasks.latest(call.activity()?)?.clone();
        let is_failure = matches!(call, InstanceCall::Token(call) if matches!(call.said, Said::Failed(_)));
        let draw = if is_failure { shared.draw() } else { 0 };
        let next_secret = shared.secret_of(row.id, row.attempt.saturating_add(1));
        Some(Box::new(OpenRow { row, draw, next_secret }))
    }

    /// Writes the row that a call leads to. Returns `false` if the row has changed since the effect was determined.
    pub(super) fn write_said(
        &mut self,
        shared: &mut Shared,
        pending: &PendingCall,
        row: Option<Box<TaskRow>>,
    ) -> bool {
        let Some(event) = pending.call.activity() else { return false };
        let judged = pending.row.as_ref().map(|known| &known.row);
        if self.tasks.latest(event) != judged {
            return false;
        }
        match &pending.call {
            InstanceCall::Token(call) => self.take_said(shared, call, row),
            _ => row.into_iter().for_each(|row| self.tasks.write(*row, None)),
        }
        true
    }

    fn take_said(&mut self, shared: &mut Shared, call: &TokenCall, row: Option<Box<TaskRow>>) {
        if matches!(call.said, Said::Failed(_)) {
            // The running code of the attempt no longer counts.
            shared.attempts.cancel(self.key, call.event);
        }
        if let Some(row) = row {
            if row.attempt > call.attempt {
                shared.facts.state_retry(&row.name);
            }
            self.tasks.write(*row, None);
        }
    }

    /// Makes a message with a token part of what a turn delivers; `None` if it has no effect.
    pub(super) fn deliver_said(
        &mut self,
        shared: &mut Shared,
        now_ms: u64,
        execution: &Execution,
        call: &TokenCall,
    ) -> Option<Message> {
        let current = execution.started().execution;
        let known = self.open_row(shared, &InstanceCall::Token(Box::new(call.clone())));
        match judge((current, execution.ledger()), known.as_deref(), call, now_ms) {
            Verdict::Refused(_) => shared.counters.stale += 1,
            Verdict::Takes(job) => return Some(Message::Outcome { execution: current, job }),
            Verdict::Writes(row) => {
                let is_running = shared.attempts.began_ms(self.key, call.event).is_some();
                if is_running && matches!(call.said, Said::Failed(_)) {
                    // The failure is durable, because the message is.
                    shared.stop_attempt(self.key, current, call.event);
                }
                self.take_said(shared, call, row);
            }
        }
        None
    }

    /// Replies to the callers whose calls about activities a commit applies. Returns the other calls.
    pub(super) fn answer_activity_calls(
        &self,
        calls: Vec<PendingCall>,
        commit: &mut Commit,
        in_flight: &mut InFlight,
    ) -> Vec<PendingCall> {
        let mut others = Vec::new();
        for pending in calls {
            if pending.call.activity().is_none() {
                others.push(pending);
                continue;
            }
            let open = pending.row.as_ref().and_then(|known| open_end(&known.row));
            let may_run = open.is_some_and(|open| open.left.is_none());
            if let InstanceCall::Token(call) = &pending.call
                && may_run
                && !matches!(call.said, Said::UnderWay(_))
            {
                let (execution, event) = (call.execution, call.event);
                in_flight.outputs.push(Output::CancelActivity {
                    key: self.key,
                    execution,
                    event,
                    is_awaited: false,
                });
            }
            let reply = CallReply::Answered(Payload::null());
            in_flight.outputs.extend(send_reply(pending.reply_to, reply, &mut commit.replies));
            in_flight.refused.push(pending);
        }
        others
    }
}
