//! The execution: taking turns, replaying turns, ending.

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Once};

use crate::context::OrchestrationContext;
use crate::flaws::{self, Flaw};
use crate::history::{
    CorruptHistory, Ending, Event, EventId, EventKind, FORMAT, HistoryError, Job, Ledger, PayloadSource,
    StaleReason, Started, Turn, UnitId,
};
use crate::log;

use tracing::Dispatch;
use tracing::dispatcher;
use tracing::level_filters::LevelFilter;

use super::binding::Ids;
use super::delivering::is_external;
use super::failure::{TurnFailure, catching};
use super::handler::OrchestrationHandler;
use super::options::ExecutionOptions;
use super::outcome::{StaleJob, Successor, TurnTaken};
use super::recorder::RecordCursor;
use super::scheduler::UnitFuture;
use super::shared_flags::{Interrupter, SharedFlags};
use super::state::ExecutionState;
use super::turn_local;

/// One execution of an instance, in memory.
///
/// ```
/// use perennial_core::{Execution, ExecutionOptions, Job, OrchestrationContext, Payload, Started};
/// use std::sync::Arc;
///
/// let greet = |ctx: OrchestrationContext, name: Payload| async move {
///     ctx.schedule_activity("greet", name).await.map_err(|_| Payload::from("no greeting"))
/// };
/// let started = Started::new("hello", "1.0.0", "Ada", 7);
/// let mut execution = Execution::new("hello-1", Arc::new(greet), started, ExecutionOptions::default())?;
///
/// let first = execution.take_turn(1_000, vec![])?.turn.expect("a first turn");
/// let (scheduled, _, _) = first.decisions().next().expect("one decision");
///
/// let done = Job::ActivityCompleted { source_event_id: scheduled, result: "Hello, Ada!".into(), attempts: 1, trail: Default::default() };
/// let last = execution.take_turn(1_005, vec![done])?.turn.expect("a second turn");
/// assert_eq!(last.ending().map(|ending| ending.name()), Some("OrchestrationCompleted"));
/// # Ok::<(), perennial_core::TurnFailure>(())
/// ```
pub struct Execution {
    /// `None` only while it is lent to the thread.
    state: Option<Box<ExecutionState>>,
    pub(super) flags: Arc<SharedFlags>,
    handler: Arc<dyn OrchestrationHandler>,
    started: Arc<Started>,
    options: ExecutionOptions,
    pub(super) phase: Phase,
    /// The turns so far, if shadow replay is on.
    shadow: Vec<Turn>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Running,
    Ended,
    Failed,
}

impl Execution {
    /// Creates an execution. No code runs before its first turn.
    pub fn new(
        instance: impl Into<Arc<str>>,
        handler: Arc<dyn OrchestrationHandler>,
        started: Started,
        options: ExecutionOptions,
    ) -> Result<Execution, HistoryError> {
        warn_about_abort();
        Ledger::check_semantics(1, started.semantics)?;
        let flags = Arc::new(SharedFlags::default());
        let started = Arc::new(started);
        let limits = options.limits.clone();
        let (instance, log_target) = (instance.into(), handler.log_target());
        let state =
            ExecutionState::new(Arc::clone(&flags), instance, Arc::clone(&started), limits, log_target);
        let shadow = Vec::new();
        Ok(Execution {
            state: Some(Box::new(state)),
            flags,
            handler,
            started,
            options,
            phase: Phase::Running,
            shadow,
        })
    }

    /// The state derived from the turns so far: what is open, the size of the history, how it ended.
    pub fn ledger(&self) -> &Ledger {
        &self.state().ledger
    }

    /// The number of external events that the code has not read.
    pub fn unread_events(&self) -> usize {
        self.state().mailbox.unread_count()
    }

    /// Whether events or updates have a handler, so that they wake the code even if it waits for none of them.
    pub fn has_handlers(&self) -> bool {
        !self.state().updates.is_empty() || self.state().mailbox.has_handlers()
    }

    /// How the execution started.
    pub fn started(&self) -> &Started {
        &self.started
    }

    /// Whether the execution has ended. It still answers queries, but takes no more turns.
    pub fn has_ended(&self) -> bool {
        self.phase == Phase::Ended
    }

    /// A handle with which another thread can end a turn that takes too long.
    pub fn interrupter(&self) -> Interrupter {
        Interrupter(Arc::clone(&self.flags))
    }

    /// The units that wait for nothing known to the execution, and so may never continue.
    pub fn stalled_units(&self) -> Vec<UnitId> {
        if self.phase == Phase::Running && self.ledger().turns() > 0 {
            self.state().scheduler.stalled()
        } else {
            vec![]
        }
    }

    /// Whether the code itself decides what a cancel request leads to.
    pub fn has_taken_over_cancellation(&self) -> bool {
        self.state().cancel.taken_over
    }

    /// Takes the next turn with these jobs. Stale jobs are dropped and reported, not recorded.
    ///
    /// # Panics
    ///
    /// If the execution has ended, or a turn has failed before.
    pub fn take_turn(&mut self, at_ms: u64, jobs: Vec<Job>) -> Result<TurnTaken, TurnFailure> {
        assert_eq!(self.phase, Phase::Running, "an execution that ended or failed takes no more turns");
        let outcome = self.take_live_turn(at_ms, jobs);
        let outcome = outcome.and_then(|taken| self.replay_in_shadow(&taken).map(|()| taken));
        self.settle(outcome)
    }

    /// Replays a recorded turn: the code has to make the recorded decisions.
    ///
    /// # Panics
    ///
    /// If a turn has failed before.
    pub fn replay_turn(&mut self, turn: &Turn) -> Result<(), TurnFailure> {
        assert_ne!(self.phase, Phase::Failed, "a failed execution takes no more turns");
        let outcome = self.replay_recorded_turn(turn);
        if outcome.is_ok() && self.options.shadow_replay {
            self.shadow.push(turn.clone());
        }
        self.settle(outcome)
    }

    pub(super) fn state(&self) -> &ExecutionState {
        self.state.as_deref().expect("the state is lent only within a call")
    }

    pub(super) fn state_mut(&mut self) -> &mut ExecutionState {
        self.state.as_deref_mut().expect("the state is lent only within a call")
    }

    fn settle<T>(&mut self, outcome: Result<T, TurnFailure>) -> Result<T, TurnFailure> {
        if outcome.is_err() {
            self.phase = Phase::Failed;
        }
        outcome
    }

    fn take_live_turn(&mut self, at_ms: u64, jobs: Vec<Job>) -> Result<TurnTaken, TurnFailure> {
        let is_first = self.ledger().turns() == 0;
        let started = Arc::clone(&self.started);
        let state = self.state_mut();
        let not_before_ms = state.ledger.last_at_ms().max(started.predecessor_at_ms.unwrap_or(0));
        let at_ms = if flaws::is(Flaw::TimeGoesBack) { at_ms } else { at_ms.max(not_before_ms) };
        let is_wanted = |job: &Job| match job {
            Job::ExternalEventSkipped { event_id } => state.mailbox.has_unread(*event_id),
            job => state.ledger.admit_at(at_ms, job).is_ok(),
        };
        if !is_first && !jobs.iter().any(is_wanted) {
            let (_, stale) = admit(state, at_ms, jobs);
            return Ok(TurnTaken { stale, ..TurnTaken::default() });
        }
        let due = jobs.iter().map(|job| state.ledger.not_before_ms(job)).max().unwrap_or(0);
        let at_ms = at_ms.max(due);
        state.ledger.open_turn(at_ms);
        let mut events = Vec::new();
        if is_first {
            state.ledger.apply_started(1, &started)?;
            events
                .push(Event { id: EventId(1), kind: EventKind::Started(Box::new(Started::clone(&started))) });
        }
        let first_job = events.len();
        let (admitted, stale) = admit(state, at_ms, jobs);
        events.extend(admitted);
        let job_count = events.len() - first_job;

        let mut decisions = Vec::new();
        let mut ids = Ids::Live(&mut decisions);
        let jobs = &events[first_job..first_job + job_count];
        let driven = self.drive(at_ms, jobs, &mut ids);
        let (ending, undelivered) = driven.map_err(|failure| name_new_event(failure, jobs))?;
        events.append(&mut decisions);

        let undelivered = &events[first_job + job_count - undelivered..][..undelivered];
        let (successor, carried_updates) = self.successor(ending.as_ref(), undelivered).unzip();
        let carried_updates: Vec<(EventId, Job)> = carried_updates.unwrap_or_default();
        let state = self.state_mut();
        let draws = state.tally.draws;
        let (mut ended_updates, mut late_events) = (Vec::new(), BTreeSet::new());
        if let Some(ending) = ending {
            if successor.is_none() {
                let first = events.get(first_job).map_or(EventId(u64::MAX), |event| event.id);
                let unread = state.carried_jobs(undelivered).into_iter().filter(|(id, _)| *id >= first);
                late_events = unread.filter_map(|(_, job)| job.key().map(str::to_owned)).collect();
            }
            state.ledger.apply_ending(&ending);
            let is_carried = |id: &EventId| carried_updates.iter().any(|(carried, _)| carried == id);
            ended_updates = state.ledger.open_updates().filter(|id| !is_carried(id)).collect();
            events.push(Event { id: EventId(state.ledger.events()), kind: EventKind::Ended(ending) });
            self.end();
        }
        let number = self.ledger().turns();
        let turn = Turn { format: FORMAT, number, at_ms, draws, events };
        Ok(TurnTaken { turn: Some(turn), stale, successor, ended_updates, carried_updates, late_events })
    }

    fn replay_recorded_turn(&mut self, turn: &Turn) -> Result<(), TurnFailure> {
        let started = Arc::clone(&self.started);
        let state = self.state_mut();
        state.ledger.begin_turn(turn)?;
        if turn.started().is_some_and(|recorded| *recorded != *started) {
            let problem = "the start of the turn is not the start of this execution";
            return Err(HistoryError::from(CorruptHistory::at(1, EventId(1), problem)).into());
        }
        for event in &turn.events {
            if matches!(event.kind, EventKind::Started(_) | EventKind::Job(_)) {
                state.ledger.apply(turn.number, event)?;
            }
        }
        if let Some(ending @ Ending::OrchestrationTerminated { .. }) = turn.ending() {
            // The ending was written without running the code, so it is replayed without running it.
            state.ledger.apply_ending(ending);
            self.end();
            return Ok(());
        }
        let mut cursor = RecordCursor::new(turn);
        let jobs = cursor.jobs();
        let mut ids = Ids::Recorded(&mut cursor);
        let (ending, _) = self.drive(turn.at_ms, jobs, &mut ids)?;
        self.compare_end(&mut cursor, ending.as_ref())?;
        self.state_mut().replaying = false;
        if let Some(ending) = ending {
            self.state_mut().ledger.apply_ending(&ending);
            self.end();
        }
        Ok(())
    }

    /// Runs a turn until it is quiet or over. Returns its ending and the number of jobs that were not delivered.
    fn drive(
        &mut self,
        at_ms: u64,
        jobs: &[Event],
        ids: &mut Ids<'_, '_>,
    ) -> Result<(Option<Ending>, usize), TurnFailure> {
        self.flags.clear_interrupt();
        if let Some(what) = self.flags.take_misuse() {
            return Err(TurnFailure::Misuse { what });
        }
        if self.flags.had_foreign_wake() {
            return Err(foreign_wake(self.state().last_call_place()));
        }
        let is_first = self.ledger().turns() == 1;
        let state = self.state_mut();
        state.begin_turn(at_ms, ids.record());
        if let Some((id, event)) = state.skip_events(jobs) {
            let problem = format!("it skips event {event}, which is not an unread external event");
            return Err(HistoryError::from(CorruptHistory::at(state.ledger.turns(), id, problem)).into());
        }
        for (_, job) in jobs_of(jobs) {
            if let Some(source) = job.source_event_id() {
                state.mark_recorded(source);
            }
        }
        if is_first {
            self.add_root();
            self.run_until_quiet(ids)?;
        }
        let mut rest = jobs;
        let mut cancelled = false;
        while !rest.is_empty() && !cancelled && !self.state().has_finished() {
            let (wave, after) = rest.split_at(self.state().wave_length(rest));
            cancelled = self.cancels(wave);
            self.deliver(wave, ids)?;
            if cancelled && self.state().scheduler.any_uncancellable() {
                self.wind_down(wave, ids)?;
                cancelled = false;
            }
            self.run_until_quiet(ids)?;
            rest = after;
        }
        if let Some(what) = self.flags.take_misuse() {
            return Err(TurnFailure::Misuse { what });
        }
        let ending = self.ending(jobs);
        if ending.is_none() && !self.state().scheduler.anyone_waits() {
            if let Ids::Recorded(cursor) = ids {
                self.compare_end(cursor, None)?;
            }
            return Err(nobody_waits(self.state().last_call_place()));
        }
        Ok((ending, rest.len()))
    }

    /// Whether this wave ends the execution because its code left cancellation to the engine.
    fn cancels(&self, wave: &[Event]) -> bool {
        let cancel = &self.state().cancel;
        !cancel.taken_over
            && !cancel.is_winding_down
            && jobs_of(wave).any(|(_, job)| matches!(job, Job::OrchestrationCancelRequested { .. }))
    }

    fn add_root(&mut self) {
        let ctx = OrchestrationContext::new(Arc::clone(&self.flags));
        let (handler, input) = (Arc::clone(&self.handler), self.started.input.clone());
        let root: UnitFuture = Box::pin(async move {
            let output = handler.run(ctx.clone(), input).await;
            ctx.finish(output);
        });
        let flags = Arc::clone(&self.flags);
        self.state_mut().scheduler.add(UnitId::ROOT, root, None, &flags);
    }

    /// The ending of the execution, if this turn ends it.
    fn ending(&self, jobs: &[Event]) -> Option<Ending> {
        let state = self.state();
        let request = jobs_of(jobs).find_map(|(_, job)| match job {
            Job::OrchestrationCancelRequested { reason, .. } => Some(reason.clone()),
            _ => None,
        });
        if state.cancel.is_winding_down {
            return state.has_finished().then(|| self.cancelled_ending());
        }
        if let Some(reason) = request.filter(|_| !state.cancel.taken_over) {
            return Some(Ending::OrchestrationCancelled { reason, output: None });
        }
        if let Some(next) = &state.continued {
            let (input, version) = (next.input.clone(), next.version.clone());
            return Some(Ending::OrchestrationContinuedAsNew { input, version });
        }
        if state.ended_cancelled.is_some() {
            return Some(self.cancelled_ending());
        }
        state.output.as_ref().map(|output| match output {
            Ok(output) => Ending::OrchestrationCompleted { output: output.clone() },
            Err(error) => Ending::OrchestrationFailed { error: error.clone() },
        })
    }

    /// The ending of code that cleaned up after a cancel request, or that ended as cancelled by its own decision.
    fn cancelled_ending(&self) -> Ending {
        let state = self.state();
        let reason =
            state.cancel.requested.clone().or_else(|| state.ledger.cancel_reason().map(str::to_owned));
        let reason = reason.unwrap_or_else(|| "its code ended it".to_owned());
        Ending::OrchestrationCancelled { reason, output: state.ended_cancelled.clone() }
    }

    /// The start of the next execution, if there is one, and the updates that are carried over to it.
    fn successor(
        &self,
        ending: Option<&Ending>,
        undelivered: &[Event],
    ) -> Option<(Successor, Vec<(EventId, Job)>)> {
        let Some(Ending::OrchestrationContinuedAsNew { input, version }) = ending else {
            return None;
        };
        let state = self.state();
        let carried = state.carried_jobs(undelivered);
        let is_update = |job: &Job| matches!(job, Job::UpdateRequested { .. });
        let updates = carried.iter().filter(|(_, job)| is_update(job)).cloned().collect();
        let jobs: Vec<Job> =
            state.carried_cancel().into_iter().chain(carried.into_iter().map(|(_, job)| job)).collect();
        // A carried-over job contains its key; if the key were also known beforehand, the job would be dropped as a
        // duplicate.
        let carried_keys: BTreeSet<&str> = jobs.iter().filter_map(Job::key).collect();
        let (recent_keys, crossing_keys) = state.ledger.keys_to_carry(&carried_keys);
        let recent_keys = if flaws::is(Flaw::KeysForgotten) { Vec::new() } else { recent_keys };
        let mut drawn_keys = state.ledger.drawn_keys_to_carry();
        drawn_keys.retain(|(_, key)| !carried_keys.contains(key.as_str()));
        let started = Started {
            input: input.clone(),
            execution: self.started.execution.saturating_add(1),
            predecessor_at_ms: Some(state.ledger.last_at_ms()),
            attributes: state.ledger.attributes().clone(),
            status: state.ledger.status().cloned(),
            recent_keys,
            crossing_keys,
            drawn_keys,
            parent: self.started.parent.clone().filter(|_| !flaws::is(Flaw::ParentsForgotten)),
            reset: None,
            ..Started::clone(&self.started)
        };
        Some((Successor { jobs, version: version.clone(), started }, updates))
    }

    /// Drops everything that could still run. State and query handlers are kept.
    fn end(&mut self) {
        self.phase = Phase::Ended;
        let state = self.state_mut();
        let (rest, instance) = (state.take_runnable(), Arc::clone(&state.instance));
        drop_inert(&self.flags, rest, (Some(&*instance), self.started.execution));
    }

    fn replay_in_shadow(&mut self, taken: &TurnTaken) -> Result<(), TurnFailure> {
        let Some(turn) = taken.turn.as_ref().filter(|_| self.options.shadow_replay) else {
            return Ok(());
        };
        self.shadow.push(turn.clone());
        if !turn.number.is_power_of_two() && self.phase != Phase::Ended {
            return Ok(());
        }
        let options = ExecutionOptions { shadow_replay: false, ..self.options.clone() };
        let (instance, handler) = (Arc::clone(&self.state().instance), Arc::clone(&self.handler));
        let mut shadow = Execution::new(instance, handler, Started::clone(&self.started), options)?;
        self.shadow.iter().try_for_each(|turn| shadow.replay_turn(turn)).map_err(|failure| match failure {
            TurnFailure::Nondeterminism(divergence) => divergence.of_the_same_code().into(),
            other => other,
        })
    }

    pub(super) fn lend<R>(&mut self, f: impl FnOnce() -> R) -> Result<R, String> {
        let state = self.state.take().expect("the state is lent only within a call");
        // What the code logs was logged when the turn was taken.
        let is_silent = state.replaying && LevelFilter::current() != LevelFilter::OFF;
        let (result, state) = match is_silent {
            true => turn_local::lend(state, || dispatcher::with_default(&Dispatch::none(), f)),
            false => turn_local::lend(state, f),
        };
        self.state = Some(state);
        result
    }
}

impl fmt::Debug for Execution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Execution { started, phase, .. } = self;
        f.debug_struct("Execution").field("name", &started.name).field("phase", phase).finish_non_exhaustive()
    }
}

/// Eviction: destructors of user code run while the context is inert.
impl Drop for Execution {
    fn drop(&mut self) {
        let pieces = self.state.as_deref_mut().map(ExecutionState::take_user_code).unwrap_or_default();
        let instance = self.state.as_deref().map(|state| Arc::clone(&state.instance));
        let place = (instance.as_deref(), self.started.execution);
        drop_inert(&self.flags, pieces, place);
        // The rest of the state contains no user code, except in wakers.
        drop_inert(&self.flags, vec![Box::new(self.state.take())], place);
    }
}

/// Drops user code while the context is inert. Panics of destructors are ignored, because the execution is already
/// gone.
fn drop_inert(
    flags: &SharedFlags,
    pieces: Vec<Box<dyn Any + Send>>,
    (instance, execution): (Option<&str>, u64),
) {
    flags.make_inert();
    for piece in pieces {
        if catching(|| drop(piece)).is_err() {
            tracing::warn!(target: log::INSTANCE, instance, execution, "destructor in an orchestration panicked");
        }
    }
}

pub(super) fn jobs_of(events: &[Event]) -> impl Iterator<Item = (EventId, &Job)> {
    events.iter().filter_map(|event| match &event.kind {
        EventKind::Job(job) => Some((event.id, job)),
        _ => None,
    })
}

/// Records the jobs that are admitted in a turn with this time; the others are stale.
fn admit(state: &mut ExecutionState, at_ms: u64, jobs: Vec<Job>) -> (Vec<Event>, Vec<StaleJob>) {
    let ExecutionState { ledger, mailbox, .. } = state;
    let mut admitted: Vec<Event> = Vec::with_capacity(jobs.len());
    let mut skipped = BTreeSet::new();
    let mut stale = Vec::new();
    for job in jobs {
        let is_there = match &job {
            Job::ExternalEventSkipped { event_id } => {
                let is_unread = mailbox.has_unread(*event_id);
                (is_unread || admitted.iter().any(|event| is_external(event, *event_id)))
                    && skipped.insert(*event_id)
            }
            _ => true,
        };
        match ledger.admit_at(at_ms, &job).and(if is_there { Ok(()) } else { Err(StaleReason::NotOpen) }) {
            Ok(()) => {
                let id = EventId(ledger.events()).next();
                ledger.apply_job(ledger.turns(), id, &job).expect("an admitted job applies");
                admitted.push(Event { id, kind: EventKind::Job(job) });
            }
            Err(reason) => stale.push(StaleJob { job, reason }),
        }
    }
    (admitted, stale)
}

/// Adds to a payload mismatch that the payload came with this turn, if it did.
fn name_new_event(mut failure: TurnFailure, jobs: &[Event]) -> TurnFailure {
    if let TurnFailure::History(HistoryError::PayloadMismatch { event, came_with, .. }) = &mut failure
        && let Some((_, job)) = jobs_of(jobs).find(|(id, _)| id == event)
    {
        match (&came_with, job) {
            (PayloadSource::RecordedEvent, _) => {
                *came_with = PayloadSource::NewEvent { key: job.key().map(str::to_owned) };
            }
            (
                _,
                Job::ActivityCompleted { source_event_id, .. } | Job::ActivityFailed { source_event_id, .. },
            ) => {
                *came_with = PayloadSource::NewResult { activity: *source_event_id };
            }
            _ => {}
        }
    }
    failure
}

fn foreign_wake(last_call: Option<String>) -> TurnFailure {
    let what =
        "something outside of this execution woke it (another thread, a tokio task, another orchestration), \
                likely through a channel, lock or Notify that it shares with them; \
                wait for outside things with activities, timers, events or sub-orchestrations"
            .to_owned();
    TurnFailure::NonDurableAwait { what, last_call }
}

fn nobody_waits(last_call: Option<String>) -> TurnFailure {
    let what = "the code waits for something that the engine can never deliver, \
                likely for a channel, lock or future that nobody in this execution will complete; \
                await activities, timers, events, sub-orchestrations, units or conditions of the context"
        .to_owned();
    TurnFailure::NonDurableAwait { what, last_call }
}

fn warn_about_abort() {
    static ONCE: Once = Once::new();
    if cfg!(panic = "abort") {
        ONCE.call_once(|| {
            tracing::warn!(
                target: log::NODE,
                "panics abort this program: a panic in an orchestration ends the whole process"
            );
        });
    }
}

#[allow(dead_code, reason = "a compile-time check")]
fn executions_can_move_between_threads() {
    pub(super) fn is_send<T: Send>() {}
    is_send::<Execution>();
}
