//! The driver: the real engine over a store in memory, on a clock that moves only when nothing else can
//! happen.
//!
//! Shards, commits and replay are the production code, driven by a [`ManualNode`] on one thread. Attempts of
//! activities run on a tokio runtime whose clock is paused: tokio advances it to the next timer once every
//! task is idle, and timers of orchestrations are timers of that clock. So one clock serves both, and time
//! passes in jumps. The code of real activities runs in real time (see [`real_time`]), and the virtual clock
//! stops meanwhile.

mod attempts;
mod real_time;
mod scripting;
mod starting;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use perennial::{Client, Registrations};
use perennial_core::shard::{CallReply, InstanceCall, Request, RequestId, Response, ShardOptions};
use perennial_core::store::memory::Tables;
use perennial_core::store::{Criteria, InstanceRow, Status, Store};
use perennial_core::{Decision, History, Job, Ledger, Payload, Turn};
use tokio::sync::mpsc;
use tokio::time::Instant;

use self::attempts::{Begun, Outcome, RunningAttempt};
use self::real_time::{InFlight, RealAttempt, RealTime};
use super::config::Config;
use super::failure::{Halt, many};
use super::faults::{CrashPoint, Faults};
use super::script::{Action, Scripted};
use crate::ManualNode;

/// 2030-01-01T00:00:00Z, the start of every test.
pub(super) const BEGIN_MS: u64 = 1_893_456_000_000;

/// Longer than any test's timer, and small enough to be added to a timestamp without overflow.
const FOR_EVER_MS: u64 = 1 << 50;

/// The number of times that idle activities are polled for progress they can make without time passing.
const STEPS_WITHOUT_TIME: u32 = 64;

/// The condition that ends a drive.
#[derive(Clone, Copy, Debug)]
pub(super) enum Until<'a> {
    Ended(&'a str),
    /// The request is answered, or the process has crashed more often than this.
    Answered(RequestId, u64),
    /// The virtual clock has reached this time.
    TimeMs(u64),
}

pub(super) struct Driver {
    node: ManualNode,
    client: Client,
    tokio: Option<tokio::runtime::Runtime>,
    origin: Instant,
    registrations: Registrations,
    config: Config,
    faults: Arc<Faults>,
    attempts: BTreeMap<u64, RunningAttempt>,
    /// The number of started attempts by activity name.
    attempts_of: BTreeMap<String, u64>,
    /// The attempts of activities with planned outcomes, by name.
    begun: BTreeMap<String, Begun>,
    in_flight: Arc<InFlight>,
    /// The runtime of real activities, once there is one.
    real_time: Option<RealTime>,
    results: mpsc::UnboundedReceiver<(u64, Outcome)>,
    sender: mpsc::UnboundedSender<(u64, Outcome)>,
    /// Whether something wrote to the store: it may contain new messages.
    is_hinted: Arc<AtomicBool>,
    next_attempt: u64,
    starts: u64,
    crashes: u64,
    raised: u64,
    latest: Option<String>,
}

impl Driver {
    pub(super) fn new(config: Config, registrations: Registrations, faults: Arc<Faults>) -> Driver {
        let options = ShardOptions {
            lookahead: Duration::from_millis(FOR_EVER_MS),
            // No other node can bring the code.
            missing_code_wait: Duration::ZERO,
            ..ShardOptions::default()
        };
        let mut node = ManualNode::with_options(registrations.handlers(), options);
        node.set_clock(BEGIN_MS);
        let store: Arc<dyn Store> = node.store();
        let is_hinted: Arc<AtomicBool> = Arc::default();
        let in_flight: Arc<InFlight> = Arc::default();
        let (hint, news) = (Arc::clone(&is_hinted), Arc::clone(&in_flight));
        store.watch(Arc::new(move |_| {
            hint.store(true, Ordering::Relaxed);
            news.note_change();
        }));
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        let tokio = tokio.expect("a current-thread runtime needs only memory");
        let origin = {
            let _context = tokio.enter();
            Instant::now()
        };
        let (sender, results) = mpsc::unbounded_channel();
        Driver {
            node,
            client: Client::of_store(store),
            tokio: Some(tokio),
            origin,
            registrations,
            config,
            faults,
            attempts: BTreeMap::new(),
            attempts_of: BTreeMap::new(),
            begun: BTreeMap::new(),
            in_flight,
            real_time: None,
            results,
            sender,
            is_hinted,
            next_attempt: 0,
            starts: 0,
            crashes: 0,
            raised: 0,
            latest: None,
        }
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.node.now_ms()
    }

    pub(super) fn registrations(&self) -> &Registrations {
        &self.registrations
    }

    pub(super) fn raise(&mut self, id: &str, event: &str, payload: &Payload) {
        self.raised += 1;
        let (key, crashes) = (format!("raised-{}", self.raised), self.crashes);
        let answer = self.request(id, || Request::Raise {
            name: event.to_owned(),
            payload: payload.clone(),
            key: Some(key.clone()),
            trace: None,
        });
        // After a crash the event is raised again, and the first one may have ended the instance.
        let is_done = matches!(answer, Response::Accepted)
            || (matches!(answer, Response::EndedBefore) && self.crashes > crashes);
        assert!(is_done, "{event:?} cannot be raised at {id:?}: {answer:?}");
    }

    /// Sends an update and lets time pass until it has an outcome.
    pub(super) fn update(&mut self, id: &str, name: &str, payload: &Payload) -> Result<Response, Halt> {
        self.raised += 1;
        let key = format!("raised-{}", self.raised);
        loop {
            let crashes = self.crashes;
            let (name, payload) = (name.to_owned(), payload.clone());
            let instance_call = InstanceCall::Update { name, payload, key: Some(key.clone()), trace: None };
            let sent = self.node.request(id, Request::Call(instance_call));
            self.drive(Until::Answered(sent, crashes))?;
            // Without an answer, the process has crashed and the update is sent again.
            if let Some(answer) = self.node.answer(sent).cloned() {
                return Ok(self.recorded_update(id, &key).unwrap_or(answer));
            }
        }
    }

    /// The recorded outcome of the update with this key. The instance may have continued as new or ended
    /// since.
    fn recorded_update(&self, id: &str, key: &str) -> Option<Response> {
        let row = self.row(id)?;
        (1..=row.execution).rev().find_map(|execution| {
            let history = self.history(&row, execution);
            let mut jobs = history.turns.iter().flat_map(Turn::jobs);
            let is_it = |job: &Job| matches!(job, Job::UpdateRequested { .. }) && job.key() == Some(key);
            let (update, _) = jobs.find(|(_, job)| is_it(job))?;
            history.turns.iter().flat_map(Turn::decisions).find_map(|(_, _, decision)| match decision {
                Decision::UpdateCompleted { source_event_id, result } if *source_event_id == update => {
                    let reply = result.clone().map_or_else(CallReply::Failed, CallReply::Answered);
                    Some(Response::Reply(reply))
                }
                _ => None,
            })
        })
    }

    /// The outcomes of scripted updates: name, instance, response.
    pub(super) fn scripted_updates(&self) -> Vec<(String, String, Response)> {
        let answered = |(number, scripted): (usize, &Scripted)| {
            let Action::Update { name, .. } = &scripted.action else { return None };
            let sent = scripted.sent.as_ref()?;
            let answer = self.node.answer(sent.request)?;
            let recorded = self.recorded_update(&sent.id, &Scripted::key(number));
            Some((name.clone(), sent.id.clone(), recorded.unwrap_or_else(|| answer.clone())))
        };
        self.config.script.iter().enumerate().filter_map(answered).collect()
    }

    /// Sends a request to an instance, again if the process crashes before it is answered.
    pub(super) fn request(&mut self, id: &str, request: impl Fn() -> Request) -> Response {
        loop {
            let crashes = self.crashes;
            let sent: RequestId = self.node.request(id, request());
            self.settle();
            if let Some(answer) = self.node.answer(sent) {
                return answer.clone();
            }
            if let Err(halt) = self.check_limits() {
                panic!("{id:?} does not answer: {halt}");
            }
            assert!(self.crashes > crashes, "{id:?} does not answer {:?}", request());
        }
    }

    /// Runs until the condition is met, or nothing can run any more.
    pub(super) fn drive(&mut self, until: Until<'_>) -> Result<(), Halt> {
        loop {
            self.settle();
            let crashes = self.crashes;
            self.begin_attempts()?;
            if self.crashes > crashes {
                continue;
            }
            self.check_limits()?;
            match until {
                Until::Ended(id) if self.row(id).is_some_and(|row| row.status.is_final()) => return Ok(()),
                Until::Answered(sent, crashes)
                    if self.node.answer(sent).is_some() || self.crashes > crashes =>
                {
                    return Ok(());
                }
                Until::Ended(_) | Until::Answered(..) => {
                    if let Some(row) = self.first_blocked() {
                        let report = row.blocked.map(|blocked| blocked.report).unwrap_or_default();
                        return Err(Halt::Blocked { id: row.id, report });
                    }
                }
                Until::TimeMs(_) => {}
            }
            if self.play_script() || self.end_ready_attempt() {
                continue;
            }
            if !self.in_flight.is_empty() {
                self.run_real()?;
                continue;
            }
            let limit_ms = match until {
                Until::TimeMs(at_ms) if self.now_ms() >= at_ms => return Ok(()),
                Until::TimeMs(at_ms) => Some(at_ms),
                Until::Ended(_) | Until::Answered(..) => None,
            };
            self.run_real_without_waiting()?;
            if !self.is_hinted.load(Ordering::Relaxed) {
                self.let_time_pass(limit_ms)?;
            }
        }
    }

    /// Advances the clock to the next due time or to `until_ms`, or until an attempt ends. The clock never
    /// passes the end of the test.
    fn let_time_pass(&mut self, until_ms: Option<u64>) -> Result<(), Halt> {
        let next_ms = [self.node.next_wake_of_all_ms(), self.next_script_ms(), until_ms];
        let next_ms = next_ms.into_iter().flatten().min();
        if next_ms.is_none() && self.attempts.is_empty() {
            return Err(Halt::Stuck { waiting_for: self.open_work() });
        }
        let end_ms = BEGIN_MS + self.config.time_limit_ms.min(FOR_EVER_MS / 2);
        if next_ms.is_some_and(|at_ms| at_ms <= end_ms) || self.now_ms() < end_ms {
            // Attempts can end before the next due time, so a due time after the end is not a failure yet.
            self.wait(next_ms.unwrap_or(end_ms).min(end_ms));
            return Ok(());
        }
        // An attempt that waits for no timer never ends, however much time it gets.
        if next_ms.is_none() && !self.is_attempt_woken_by_time() {
            return Err(Halt::Stuck { waiting_for: self.open_work() });
        }
        Err(self.endless())
    }

    /// Fails if the test has used more turns, attempts or time than allowed.
    fn check_limits(&self) -> Result<(), Halt> {
        if self.is_over_turn_limit() { Err(self.endless()) } else { Ok(()) }
    }

    fn is_over_turn_limit(&self) -> bool {
        self.node.turns_taken() + self.next_attempt > self.config.turn_limit
    }

    fn endless(&self) -> Halt {
        let by_attempts = self.attempts_of.iter().max_by_key(|(_, attempts)| **attempts);
        let by_attempts = by_attempts
            .map(|(name, attempts)| (*attempts, format!("the activity {name:?} with {attempts} attempts")));
        let by_turns = self.node.most_turns().map(|(id, turns)| {
            let executions = self.row(id).map_or(1, |row| row.execution);
            (
                turns,
                format!(
                    "the instance {id:?} with {} in {}",
                    many(turns, "turn"),
                    many(executions, "execution")
                ),
            )
        });
        let busiest = by_turns.into_iter().chain(by_attempts).max_by_key(|(count, _)| *count);
        Halt::Endless {
            turns: self.node.turns_taken(),
            attempts: self.next_attempt,
            elapsed: Duration::from_millis(self.now_ms() - BEGIN_MS),
            busiest: busiest.map(|(_, words)| words).unwrap_or_default(),
        }
    }

    /// Runs everything that can run now, up to the limit of turns, and crashes where the run has a fault.
    fn settle(&mut self) {
        while !self.is_over_turn_limit() {
            let node = &mut self.node;
            while node.look_up() || node.load() || node.take_turns() || node.follow_hint() {}
            if !node.batch().is_empty() {
                match self.faults.note_commit(node.batch_words().join("; ")) {
                    None => {
                        node.commit();
                    }
                    Some(point) => {
                        if matches!(point, CrashPoint::AfterCommit(_)) {
                            node.commit_unknown(true);
                        }
                        self.crash();
                    }
                }
                continue;
            }
            if self.is_hinted.swap(false, Ordering::Relaxed) {
                self.node.pass_inbox().pass_requests().tick();
                continue;
            }
            break;
        }
        for (key, event) in self.node.take_cancelled() {
            let mine = self.attempts.values().filter(|attempt| attempt.is_of(key, event));
            mine.for_each(RunningAttempt::cancel);
        }
    }

    /// Drops everything in memory and starts a new process on the store.
    fn crash(&mut self) {
        self.crashes += 1;
        for attempt in std::mem::take(&mut self.attempts).into_values() {
            attempt.abort();
        }
        self.node.crash().take_over();
    }

    pub(super) fn row(&self, id: &str) -> Option<InstanceRow> {
        self.node.try_row(id)
    }

    pub(super) fn tables(&self) -> MutexGuard<'_, Tables> {
        self.node.tables()
    }

    pub(super) fn crashes(&self) -> u64 {
        self.crashes
    }

    /// All rows, oldest first.
    pub(super) fn rows(&self) -> Vec<InstanceRow> {
        self.node.tables().instances.values().cloned().collect()
    }

    fn first_blocked(&self) -> Option<InstanceRow> {
        let filter = Criteria { blocked: Some(true), ..Criteria::default() };
        let tables = self.node.tables();
        tables.instances.values().find(|row| filter.matches(row) && !row.status.is_final()).cloned()
    }

    pub(super) fn history(&self, row: &InstanceRow, execution: u64) -> History {
        self.node.history(row, execution)
    }

    fn ledger(&self, row: &InstanceRow) -> Ledger {
        let mut ledger = Ledger::default();
        for turn in &self.history(row, row.execution) {
            ledger.apply_turn(turn).expect("the store contains valid histories");
        }
        ledger
    }

    /// Describes the things that open instances wait for.
    fn open_work(&self) -> String {
        let mut words = Vec::new();
        for row in self.rows().iter().filter(|row| matches!(row.status, Status::Pending | Status::Running)) {
            for name in self.unmet_waits(row) {
                words.push(format!("the event {name:?} (in {:?})", row.id));
            }
            for (_, decision) in self.ledger(row).open() {
                let what = match decision {
                    Decision::ExternalSubscribed { .. } => continue,
                    Decision::ActivityScheduled { name, .. } => format!("the activity {name:?}"),
                    Decision::SubOrchestrationScheduled { name, .. } => {
                        format!("the sub-orchestration {name:?}")
                    }
                    other => other.name().to_owned(),
                };
                words.push(format!("{what} (in {:?})", row.id));
            }
        }
        if words.is_empty() { "something that never happens".to_owned() } else { words.join(", ") }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // In an async test, a runtime must not be dropped in the ordinary way: that would block.
        if let Some(tokio) = self.tokio.take() {
            tokio.shutdown_background();
        }
    }
}

impl Halt {
    fn hanging(attempt: RealAttempt, limit: Duration) -> Halt {
        let RealAttempt { activity, instance, attempt, .. } = attempt;
        Halt::Hanging { activity, instance, attempt, limit }
    }
}
