//! Waves, rounds and steps: delivering jobs and running units until all of them wait.

use std::task::{Context, Poll, Waker};

use crate::history::{Event, Job, UnitId};

use super::binding::Ids;
use super::driver::{Execution, jobs_of};
use super::failure::TurnFailure;
use super::panic_place;
use super::recorder::StepEnd;
use super::scheduler::UnitFuture;
use super::state::{Closure, Mode};

impl Execution {
    pub(super) fn deliver(&mut self, wave: &[Event], ids: &mut Ids<'_, '_>) -> Result<(), TurnFailure> {
        let state = self.state_mut();
        state.mode = Mode::Delivery;
        let wakers: Vec<Waker> = jobs_of(wave).flat_map(|(id, job)| state.deliver(id, job)).collect();
        // Wakers may run user code.
        let woken =
            if wakers.is_empty() { Ok(()) } else { self.lend(|| wakers.into_iter().for_each(Waker::wake)) };
        self.state_mut().mode = Mode::Between;
        self.finish_step(&UnitId::ROOT, ids, woken.err())
    }

    pub(super) fn run_until_quiet(&mut self, ids: &mut Ids<'_, '_>) -> Result<(), TurnFailure> {
        loop {
            let round = self.state_mut().scheduler.take_round();
            if round.is_empty() {
                return Ok(());
            }
            for unit in &round {
                if self.state().has_finished() {
                    return Ok(());
                }
                self.run_step(unit, ids)?;
            }
            self.state_mut().scheduler.recycle(round);
        }
    }

    pub(super) fn run_step(&mut self, unit: &UnitId, ids: &mut Ids<'_, '_>) -> Result<(), TurnFailure> {
        let state = self.state_mut();
        state.count_step()?;
        let Some((mut future, waker)) = state.scheduler.begin_step(unit) else {
            return Ok(());
        };
        state.mode = Mode::Step;
        state.unit = unit.clone();
        let polled = self.lend(|| future.as_mut().poll(&mut Context::from_waker(&waker)));
        let panic = self.end_of_step(unit, future, polled);
        let state = self.state_mut();
        state.mode = Mode::Between;
        state.closure = Closure::None;
        state.step_failed = false;
        self.finish_step(unit, ids, panic)
    }

    /// Handles a cancel request that ends everything but the exempt units. Those keep running, and the execution ends
    /// after them. Everything is dropped as one step of the root.
    pub(super) fn wind_down(&mut self, wave: &[Event], ids: &mut Ids<'_, '_>) -> Result<(), TurnFailure> {
        let reason = jobs_of(wave).find_map(|(_, job)| match job {
            Job::OrchestrationCancelRequested { reason, .. } => Some(reason.clone()),
            _ => None,
        });
        let state = self.state_mut();
        state.cancel.requested = reason;
        state.cancel.is_winding_down = true;
        state.mode = Mode::Step;
        state.unit = UnitId::ROOT;
        let cancelled = state.scheduler.take_cancellable();
        let dropped = self.lend(|| drop(cancelled));
        let wakers = self.state_mut().take_step_wakes();
        let woken = self.lend(|| wakers.into_iter().for_each(Waker::wake));
        let state = self.state_mut();
        state.mode = Mode::Between;
        state.closure = Closure::None;
        self.finish_step(&UnitId::ROOT, ids, dropped.err().or(woken.err()))
    }

    /// Assigns ids to the decisions of a step, or returns why it failed. A divergence takes precedence over all other
    /// failures.
    fn finish_step(
        &mut self,
        unit: &UnitId,
        ids: &mut Ids<'_, '_>,
        panic: Option<String>,
    ) -> Result<(), TurnFailure> {
        let failure = self.take_failure();
        let end = match (&failure, &panic) {
            (None, None) if self.state().has_finished() => StepEnd::Finished,
            (None, None) => StepEnd::Quiet,
            _ => StepEnd::Failed,
        };
        self.bind_step(ids, end)?;
        match (failure, panic) {
            (Some(failure), _) => Err(failure),
            (None, Some(message)) => {
                Err(TurnFailure::Panicked { unit: unit.clone(), message, place: panic_place::take() })
            }
            (None, None) => Ok(()),
        }
    }

    /// Puts a pending unit back or drops a finished one, and wakes the units that the step concerns. All of this is
    /// part of the step. Returns the message of a panic.
    pub(super) fn end_of_step(
        &mut self,
        unit: &UnitId,
        future: UnitFuture,
        polled: Result<Poll<()>, String>,
    ) -> Option<String> {
        let state = self.state_mut();
        let mut wakers = Vec::new();
        let (to_drop, panic) = match polled {
            Ok(Poll::Pending) => (state.scheduler.put_back(unit, future), None),
            Ok(Poll::Ready(())) => {
                wakers.extend(state.scheduler.finish(unit).map(|waiter| waiter.waker));
                if unit.is_handler() {
                    wakers.extend(state.idle.take_all(&mut state.scheduler));
                }
                (Some(future), None)
            }
            Err(panic) => {
                state.step_failed = true;
                (Some(future), Some(panic))
            }
        };
        let dropped = if to_drop.is_none() { Ok(()) } else { self.lend(|| drop(to_drop)) };
        // Destructors may also have changed a state.
        wakers.extend(self.state_mut().take_step_wakes());
        let woken =
            if wakers.is_empty() { Ok(()) } else { self.lend(|| wakers.into_iter().for_each(Waker::wake)) };
        panic.or(dropped.err()).or(woken.err())
    }

    /// The failure that was noted for the turn, if any.
    pub(super) fn take_failure(&mut self) -> Option<TurnFailure> {
        let failure = self.state_mut().failure.take();
        failure.or_else(|| self.flags.take_misuse().map(|what| TurnFailure::Misuse { what }))
    }
}
