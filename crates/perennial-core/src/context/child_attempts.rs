//! Options of sub-orchestrations: start reports, cancellation and retries.
//!
//! Each retry is a new schedule of the same code, after a timer, with its own event, key and instance. An id chosen by
//! the caller is passed on from one attempt to the next.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::code::ErrorCode;
use crate::execution::operations::{Completion, OperationKind};
use crate::execution::state::Access;
use crate::history::{ChildError, ChildOptions, Decision, OnTakenId, Payload, RetryPolicy, TIMEOUT_REASON};

use super::ChildFuture;
use super::operations::OperationFuture;
use crate::history::whole_ms;

/// How many times an id is tried again while the terminated instance that had it is being replaced. The pauses grow
/// from 50 ms to 5 s.
const TAKEN_ID_TRIES: u32 = 30;
const TAKEN_ID_PAUSES_MS: (u64, u64) = (50, 5_000);

/// The retry state of a child that is scheduled more than once.
pub(super) struct Attempts {
    /// The decision to schedule after the pause.
    schedule: Box<Decision>,
    /// How many attempts have failed.
    failed: u32,
    /// How many times the id was already in use.
    taken: u32,
    is_pausing: bool,
}

impl<R> ChildFuture<R> {
    /// Times the child out after this long, counted from this turn. Continue-as-new does not reset the limit. With
    /// [`retry`](Self::retry), the limit applies to each attempt.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.option(|options| options.timeout_ms = Some(whole_ms(timeout)))
    }

    /// Schedules the child again after it failed or timed out. Each attempt is a new instance; an id chosen by the
    /// caller is passed on to the next attempt.
    pub fn retry(self, policy: RetryPolicy) -> Self {
        self.option(|options| options.retry = Some(policy))
    }

    /// Sets what happens if an instance with the child's id already exists.
    pub fn on_existing(self, policy: OnTakenId) -> Self {
        self.option(|options| options.on_existing = policy)
    }

    fn option(mut self, set: impl FnOnce(&mut ChildOptions)) -> Self {
        self.operation.amend(|decision| {
            if let Decision::SubOrchestrationScheduled { options, .. } = decision {
                set(options.get_or_insert_default());
            }
        });
        self
    }

    /// Resolves when the child has been created, or cannot be started. Call it in the step that schedules the child.
    ///
    /// The report is about the first attempt only. A child with [`retry`](Self::retry), or with
    /// [`OnTakenId::TerminateAndReplace`] and an id that belongs to a running instance, may be scheduled again after
    /// this has resolved with an error: further attempts are made while the child itself is awaited.
    pub fn started(&mut self) -> ChildStarted {
        let (ctx, location) = (&self.operation.ctx, self.operation.location);
        let child = self.operation.token;
        let start = ctx.call(
            "started",
            Access::Act,
            || None,
            |state| child.map(|child| state.await_start(child)).transpose(),
        );
        ChildStarted { operation: OperationFuture::new(ctx, start, location) }
    }

    /// Requests cancellation of the child and keeps waiting: the future then returns how the child ended. It is not
    /// retried.
    #[track_caller]
    pub fn cancel(&mut self, reason: impl Into<String>) {
        self.stop(reason.into(), None);
    }

    /// Like [`cancel`](Self::cancel), with the time the child may take to clean up before it is terminated.
    #[track_caller]
    pub fn cancel_within(&mut self, reason: impl Into<String>, grace: Duration) {
        self.stop(reason.into(), Some(whole_ms(grace)));
    }

    #[track_caller]
    fn stop(&mut self, reason: String, grace_ms: Option<u64>) {
        let error = ChildError::Cancelled { reason: reason.clone(), output: None };
        let at_once = Completion::Child(Err(error), None);
        self.is_stopped = true;
        if self.attempts.as_ref().is_some_and(|attempts| attempts.is_pausing) {
            return self.operation.withdraw(at_once);
        }
        let stop =
            |source_event_id| Decision::SubOrchestrationStopRequested { source_event_id, reason, grace_ms };
        self.operation.stop(stop, at_once);
    }

    /// Starts the timer before the next attempt, if there is one.
    pub(super) fn pause(
        &mut self,
        outcome: &Result<Payload, ChildError>,
        mut schedule: Box<Decision>,
    ) -> bool {
        let Err(failure) = outcome else { return false };
        let Decision::SubOrchestrationScheduled { options: Some(options), .. } = &mut *schedule else {
            return false;
        };
        let (mut failed, mut taken) =
            self.attempts.as_ref().map_or((0, 0), |attempts| (attempts.failed, attempts.taken));
        if self.is_stopped {
            return false;
        }
        let ctx = &self.operation.ctx;
        let pause_ms = if is_taken(failure) && options.on_existing == OnTakenId::TerminateAndReplace {
            taken += 1;
            let (first, most) = TAKEN_ID_PAUSES_MS;
            (taken < TAKEN_ID_TRIES).then(|| most.min(first << (taken - 1).min(16)))
        } else {
            failed += 1;
            let policy = options.retry.as_ref().filter(|policy| may_pass(failure, policy));
            let policy = policy.filter(|policy| failed < policy.max_attempts);
            policy.map(|policy| whole_ms(policy.pause(failed, ctx.random())))
        };
        let Some(pause_ms) = pause_ms else { return false };
        // The previous attempt may own the id chosen by the caller.
        if options.on_existing == OnTakenId::Reject {
            options.on_existing = OnTakenId::ReplaceEnded;
        }
        options.reports_start = false;
        self.attempts = Some(Box::new(Attempts { schedule, failed, taken, is_pausing: true }));
        let location = self.operation.location;
        let pause = ctx.call(
            "retry",
            Access::Act,
            || None,
            |state| {
                let due_ms = state.now_ms.saturating_add(pause_ms);
                state.schedule(OperationKind::Timer, Decision::TimerCreated { due_ms }, location).map(Some)
            },
        );
        self.operation = OperationFuture::new(ctx, pause, location);
        true
    }

    /// Schedules the next attempt after the pause.
    pub(super) fn schedule_again(&mut self) {
        let Some(attempts) = &mut self.attempts else { return };
        attempts.is_pausing = false;
        let (schedule, location) = (Decision::clone(&attempts.schedule), self.operation.location);
        let ctx = &self.operation.ctx;
        let child = ctx.call(
            "retry",
            Access::Act,
            || None,
            |state| state.schedule(OperationKind::Child, schedule, location).map(Some),
        );
        self.operation = OperationFuture::new(ctx, child, location);
    }
}

/// Whether a child was not started because another instance has its id.
fn is_taken(failure: &ChildError) -> bool {
    matches!(failure, ChildError::NotStarted { reason } if ErrorCode::leading(reason) == Some(ErrorCode::ChildIdTaken))
}

/// Whether another attempt could succeed.
fn may_pass(failure: &ChildError, policy: &RetryPolicy) -> bool {
    match failure {
        ChildError::Application(error) => !policy.is_final(error),
        ChildError::Terminated { reason } => reason == TIMEOUT_REASON,
        ChildError::Cancelled { .. } | ChildError::NotStarted { .. } => false,
    }
}

/// Resolves when a sub-orchestration has been created, or cannot be started.
#[must_use = "futures do nothing unless awaited"]
pub struct ChildStarted {
    pub(super) operation: OperationFuture,
}

impl Future for ChildStarted {
    type Output = Result<(), ChildError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match ready!(self.operation.poll(cx)) {
            (_, Completion::ChildStart(start)) => Poll::Ready(start),
            _ => Poll::Pending,
        }
    }
}
