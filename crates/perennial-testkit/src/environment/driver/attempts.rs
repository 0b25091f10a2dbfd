//! Attempts of activities: the code each of them runs, when they end, and when time may pass.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use perennial::{ActivityContext, ActivityFutureBox, ActivityHandler, StandaloneAttempt};
use perennial_core::shard::ActivityTask;
use perennial_core::{ActivityError, EventId, InstanceKey, Payload};
use tokio::task::JoinHandle;

use super::super::failure::Halt;
use super::super::faults::CrashPoint;
use super::super::mocks::Planned;
use super::real_time::{InFlight, RealTime};
use super::{BEGIN_MS, Driver, FOR_EVER_MS, STEPS_WITHOUT_TIME};

pub(super) type Outcome = Result<Payload, ActivityError>;

pub(super) struct RunningAttempt {
    task: Arc<ActivityTask>,
    standalone: StandaloneAttempt,
    handle: JoinHandle<()>,
    began_ms: u64,
}

/// The started attempts of one activity, in order. One that is repeated after a crash counts once.
pub(super) type Begun = BTreeMap<(InstanceKey, u64, EventId, u32), u64>;

impl RunningAttempt {
    pub(super) fn is_of(&self, key: InstanceKey, event: EventId) -> bool {
        self.task.key == key && self.task.event == event
    }

    pub(super) fn cancel(&self) {
        self.standalone.cancel();
    }

    /// Aborts the attempt, as the end of its process would.
    pub(super) fn abort(self) {
        self.handle.abort();
    }
}

impl Driver {
    /// Begins all attempts that are due.
    ///
    /// # Errors
    ///
    /// An attempt has no code. The others have begun.
    pub(super) fn begin_attempts(&mut self) -> Result<(), Halt> {
        let mut begun = Ok(());
        for task in self.node.take_running() {
            let handler = match self.handler_of(&task) {
                Ok(handler) => handler,
                Err(halt) => {
                    begun = begun.and(Err(halt));
                    continue;
                }
            };
            let words = format!("{:?} of {:?}, attempt {}", task.name, task.instance, task.attempt);
            let fault = self.faults.note_activity(words);
            let runs_twice = matches!(fault, Some(CrashPoint::ActivityTwice(_)));
            let (number, now_ms) = (self.next_attempt, self.node.now_ms());
            self.next_attempt += 1;
            *self.attempts_of.entry(task.name.clone()).or_default() += 1;
            let tokio = self.tokio.as_ref().expect("only `drop` takes it");
            let _context = tokio.enter();
            let task = Arc::new(task);
            let standalone =
                StandaloneAttempt::new(Arc::clone(&handler), Arc::clone(&task), self.client.clone());
            let forgotten =
                runs_twice.then(|| StandaloneAttempt::new(handler, Arc::clone(&task), self.client.clone()));
            let (attempt, sender) = (standalone.clone(), self.sender.clone());
            let handle = tokio.spawn(InFlight::notify_wakes(Arc::clone(&self.in_flight), async move {
                if let Some(forgotten) = forgotten {
                    let _ = forgotten.run(now_ms).await;
                }
                let _ = sender.send((number, attempt.run(now_ms).await));
            }));
            self.attempts.insert(number, RunningAttempt { task, standalone, handle, began_ms: now_ms });
            if runs_twice {
                self.finish_first_run()?;
            }
            if matches!(fault, Some(CrashPoint::DuringActivity(_))) {
                self.poll_without_time();
                self.run_real_without_waiting()?;
                self.poll_without_time();
                self.crash();
                // The attempts that were about to run are lost in the crash.
                return Ok(());
            }
        }
        begun
    }

    /// The code of an attempt: its planned outcome, else the mock, else the real activity.
    fn handler_of(&mut self, task: &ActivityTask) -> Result<Arc<dyn ActivityHandler>, Halt> {
        let handler: Arc<dyn ActivityHandler> = match self.planned(task) {
            Some(Planned::Failure(error)) => {
                Arc::new(move |_: ActivityContext, _: Payload| std::future::ready(Err(error.clone())))
            }
            Some(Planned::Timeout) => {
                let options = task.options.as_deref();
                let has_timeout = task.deadline_ms.is_some()
                    || options.is_some_and(|options| {
                        options.attempt_timeout_ms.or(options.heartbeat_timeout_ms).is_some()
                    });
                if !has_timeout {
                    let waiting_for = format!(
                        "the activity {:?} (in {:?}), which has a planned timeout but was scheduled without one",
                        task.name, task.instance
                    );
                    return Err(Halt::Stuck { waiting_for });
                }
                Arc::new(|_: ActivityContext, _: Payload| pending::<Result<Payload, Payload>>())
            }
            None => self.own_handler_of(task)?,
        };
        Ok(match self.config.takes.get(&task.name) {
            Some(takes) => Arc::new(Slow { handler, takes: *takes }),
            None => handler,
        })
    }

    fn own_handler_of(&mut self, task: &ActivityTask) -> Result<Arc<dyn ActivityHandler>, Halt> {
        if let Some(mock) = self.config.mocked.get(&task.name) {
            return Ok(self.registrations.with_state(Arc::clone(mock)));
        }
        let Some(handler) = self.registrations.activity_handler(&task.name) else {
            let waiting_for = format!("the activity {:?}, which is neither registered nor mocked", task.name);
            return Err(Halt::Stuck { waiting_for });
        };
        let is_virtual = self.config.virtual_time.contains(&task.name);
        Ok(if is_virtual { handler } else { self.real_time().wrap(handler, task) })
    }

    /// The planned outcome of an attempt.
    fn planned(&mut self, task: &ActivityTask) -> Option<Planned> {
        let planned = self.config.planned.get(&task.name)?;
        let begun = self.begun.entry(task.name.clone()).or_default();
        let next = begun.len() as u64;
        let mut place = *begun.entry((task.key, task.execution, task.event, task.attempt)).or_insert(next);
        for (times, planned) in planned {
            match place.checked_sub(*times) {
                None => return Some(planned.clone()),
                Some(rest) => place = rest,
            }
        }
        None
    }

    fn real_time(&mut self) -> &mut RealTime {
        let in_flight = &self.in_flight;
        self.real_time.get_or_insert_with(|| RealTime::new(Arc::clone(in_flight)))
    }

    /// Runs real activities until one ends or the store changes. The virtual clock does not move.
    pub(super) fn run_real(&mut self) -> Result<(), Halt> {
        let limit = self.config.real_time_limit;
        self.real_time().run(limit).map_err(|attempt| Halt::hanging(attempt, limit))
    }

    /// Runs real activities, and tasks they have spawned, as far as they get without waiting.
    pub(super) fn run_real_without_waiting(&mut self) -> Result<(), Halt> {
        let limit = self.config.real_time_limit;
        let Some(real_time) = &mut self.real_time else { return Ok(()) };
        real_time.run_without_waiting(limit).map_err(|attempt| Halt::hanging(attempt, limit))
    }

    /// Waits until a due time is reached, an attempt ends or begins to run real code, or the store changes.
    pub(super) fn wait(&mut self, due_ms: u64) {
        let tokio = self.tokio.as_ref().expect("only `drop` takes it");
        let due = self.origin + Duration::from_millis(due_ms - BEGIN_MS);
        let (results, in_flight) = (&mut self.results, &self.in_flight);
        let ended = tokio.block_on(async {
            tokio::select! {
                biased;
                ended = results.recv() => ended,
                // It runs in real time, so this clock has to stop.
                () = in_flight.begun() => None,
                // An attempt wrote to the store, where it may have left a message for an instance.
                () = in_flight.changed() => None,
                () = tokio::time::sleep_until(due) => None,
            }
        });
        let elapsed = {
            let _context = tokio.enter();
            self.origin.elapsed()
        };
        self.node
            .at(BEGIN_MS
                + u64::try_from(elapsed.as_millis()).expect("a test takes fewer than 2^64 milliseconds"));
        ended.into_iter().for_each(|ended| self.end_attempt(ended));
    }

    /// Whether one of the attempts, all of which wait, would go on if the clock did.
    pub(super) fn is_attempt_woken_by_time(&mut self) -> bool {
        let tokio = self.tokio.as_ref().expect("only `drop` takes it");
        let in_flight = &self.in_flight;
        let never = self.origin + Duration::from_millis(FOR_EVER_MS);
        tokio.block_on(async {
            in_flight.forget_news().await;
            tokio::select! {
                biased;
                () = in_flight.news() => true,
                () = tokio::time::sleep_until(never) => false,
            }
        })
    }

    /// Ends one attempt that can end without time passing. Returns whether there was one.
    pub(super) fn end_ready_attempt(&mut self) -> bool {
        let ended = self.poll_without_time();
        let is_one = ended.is_some();
        ended.into_iter().for_each(|ended| self.end_attempt(ended));
        is_one
    }

    /// Polls attempts until one ends or all wait. The returned outcome is not yet reported to the node.
    fn poll_without_time(&mut self) -> Option<(u64, Outcome)> {
        let tokio = self.tokio.as_ref().expect("only `drop` takes it");
        let results = &mut self.results;
        tokio.block_on(async {
            for _ in 0..STEPS_WITHOUT_TIME {
                if let Ok(ended) = results.try_recv() {
                    return Some(ended);
                }
                tokio::task::yield_now().await;
            }
            None
        })
    }

    /// Lets an attempt that runs twice get as far as it does without waiting, before later attempts begin. Otherwise its
    /// result would come after theirs, and code that depends on the order of results would be reported.
    fn finish_first_run(&mut self) -> Result<(), Halt> {
        // Each run is begun and ended by the virtual runtime, and its code runs on the real one in between.
        for _ in 0..2 {
            self.advance_without_time();
            self.run_real_without_waiting()?;
        }
        self.advance_without_time();
        Ok(())
    }

    /// Lets attempts go on until all of them wait for something. Results stay in the queue.
    fn advance_without_time(&mut self) {
        let tokio = self.tokio.as_ref().expect("it is taken by dropping alone");
        tokio.block_on(async {
            for _ in 0..STEPS_WITHOUT_TIME {
                tokio::task::yield_now().await;
            }
        });
    }

    fn end_attempt(&mut self, (number, outcome): (u64, Outcome)) {
        if let Some(attempt) = self.attempts.remove(&number) {
            if let Some(details) = attempt.standalone.details()
                && (outcome.is_err() || attempt.standalone.is_left_open())
            {
                self.node.bring_heartbeat(&attempt.task, details);
            }
            if outcome.is_ok() && attempt.standalone.is_left_open() {
                let ran_ms = self.now_ms().saturating_sub(attempt.began_ms);
                return self.node.bring_left_open(&attempt.task, ran_ms);
            }
            self.node.bring_result(&attempt.task, outcome);
        }
    }
}

/// An activity that takes a set span of virtual time.
struct Slow {
    handler: Arc<dyn ActivityHandler>,
    takes: Duration,
}

impl ActivityHandler for Slow {
    fn run(&self, ctx: ActivityContext, input: Payload) -> ActivityFutureBox {
        let (handler, takes) = (Arc::clone(&self.handler), self.takes);
        Box::pin(async move {
            tokio::time::sleep(takes).await;
            handler.run(ctx, input).await
        })
    }
}
