//! The Driver: a real engine over a store in memory, under a clock that moves only when nothing else can.
//!
//! Shards, commits and replay are those of production, driven by a [`ManualNode`] on one thread. Activities run on a tokio
//! runtime whose clock is paused: tokio itself moves it to the next timer once every task is idle, and timers of
//! orchestrations are timers of that clock. So one clock serves both, and time passes in jumps.

mod starting;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use perennial::{ActivityContext, ActivityFutureBox, ActivityHandler, Client, StandaloneAttempt};
use perennial_core::shard::{
    ActivityTask, CallReply, InstanceCall, Request, RequestId, Response, ShardOptions,
};
use perennial_core::store::memory::Tables;
use perennial_core::store::{Criteria, InstanceRow, Status, Store};
use perennial_core::{ActivityError, Decision, EventKind, Handlers, History, Job, Ledger, Payload, Turn};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::config::Config;
use super::script::{Action, Scripted, SentRequest, When};
use super::trouble::{CrashPoint, Trouble};
use crate::ManualNode;

/// 2030-01-01T00:00:00Z: when every test begins.
pub(super) const BEGIN_MS: u64 = 1_893_456_000_000;

/// Longer than any test's timer, and short enough to be added to a time.
const FOR_EVER_MS: u64 = 1 << 50;

/// How often idle activities are polled for what they can do without time passing.
const STEPS_WITHOUT_TIME: u32 = 64;

/// What ended a drive.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Stop {
    /// What was waited for has come.
    Reached,
    /// An instance is blocked.
    Blocked { id: String, report: String },
    /// Nothing can happen any more.
    Stuck { waiting_for: String },
}

/// Until when a drive goes on.
#[derive(Clone, Copy, Debug)]
pub(super) enum Until<'a> {
    /// The instance has ended.
    Ended(&'a str),
    /// The request is answered, or the process has died another time.
    Answered(RequestId, u64),
    /// It is this time.
    TimeMs(u64),
}

type Outcome = Result<Payload, ActivityError>;

struct RunningAttempt {
    task: Arc<ActivityTask>,
    standalone: StandaloneAttempt,
    handle: JoinHandle<()>,
    is_real: bool,
    began_ms: u64,
}

pub(super) struct Driver {
    node: ManualNode,
    client: Client,
    tokio: Option<tokio::runtime::Runtime>,
    origin: Instant,
    config: Config,
    trouble: Arc<Trouble>,
    attempts: BTreeMap<u64, RunningAttempt>,
    results: mpsc::UnboundedReceiver<(u64, Outcome)>,
    sender: mpsc::UnboundedSender<(u64, Outcome)>,
    /// Whether somebody wrote into the store: messages may have come that way.
    is_hinted: Arc<AtomicBool>,
    next_attempt: u64,
    starts: u64,
    crashes: u64,
    raised: u64,
    /// The instance that was started last.
    latest: Option<String>,
}

impl Driver {
    pub(super) fn new(config: Config, handlers: Handlers, trouble: Arc<Trouble>) -> Driver {
        let options =
            ShardOptions { lookahead: Duration::from_millis(FOR_EVER_MS), ..ShardOptions::default() };
        let mut node = ManualNode::with_options(handlers, options);
        node.set_clock(BEGIN_MS);
        let store: Arc<dyn Store> = node.store();
        let is_hinted: Arc<AtomicBool> = Arc::default();
        let hint = Arc::clone(&is_hinted);
        store.watch(Arc::new(move |_| hint.store(true, Ordering::Relaxed)));
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        let tokio = tokio.expect("a runtime on this thread needs no more than memory");
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
            config,
            trouble,
            attempts: BTreeMap::new(),
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

    /// Raises an event once.
    pub(super) fn raise(&mut self, id: &str, event: &str, payload: &Payload) {
        self.raised += 1;
        let (key, crashes) = (format!("raised-{}", self.raised), self.crashes);
        let answer = self.request(id, || Request::Raise {
            name: event.to_owned(),
            payload: payload.clone(),
            key: Some(key.clone()),
            trace: None,
        });
        // Asked again after a crash, it may have been the event that ended the instance.
        let is_done = matches!(answer, Response::Accepted)
            || (matches!(answer, Response::EndedBefore) && self.crashes > crashes);
        assert!(is_done, "{event:?} cannot be raised at {id:?}: {answer:?}");
    }

    /// Sends an update, and lets time pass until its outcome is there.
    pub(super) fn update(&mut self, id: &str, name: &str, payload: &Payload) -> Result<Response, Stop> {
        self.raised += 1;
        let key = format!("raised-{}", self.raised);
        loop {
            let crashes = self.crashes;
            let (name, payload) = (name.to_owned(), payload.clone());
            let instance_call = InstanceCall::Update { name, payload, key: Some(key.clone()), trace: None };
            let sent = self.node.request(id, Request::Call(instance_call));
            let stop = self.drive(Until::Answered(sent, crashes));
            match self.node.answer(sent) {
                Some(answer) => return Ok(self.recorded_update(id, &key).unwrap_or_else(|| answer.clone())),
                None if self.crashes > crashes => {}
                None => return Err(stop),
            }
        }
    }

    /// What came of the update with a key, of what is recorded: the instance may have gone on or ended since.
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

    /// What came of updates of the script: name, instance, outcome.
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

    /// Asks something of an instance, again if the process dies before it is answered.
    pub(super) fn request(&mut self, id: &str, request: impl Fn() -> Request) -> Response {
        loop {
            let crashes = self.crashes;
            let sent: RequestId = self.node.request(id, request());
            self.settle();
            match self.node.answer(sent) {
                Some(answer) => return answer.clone(),
                None => assert!(self.crashes > crashes, "{id:?} does not answer {:?}", request()),
            }
        }
    }

    /// Goes on until something is reached, or nothing can happen any more.
    pub(super) fn drive(&mut self, until: Until<'_>) -> Stop {
        loop {
            self.settle();
            let crashes = self.crashes;
            if let Some(stop) = self.begin_attempts() {
                return stop;
            }
            if self.crashes > crashes {
                continue;
            }
            match until {
                Until::Ended(id) if self.row(id).is_some_and(|row| row.status.is_final()) => {
                    return Stop::Reached;
                }
                Until::Answered(sent, crashes)
                    if self.node.answer(sent).is_some() || self.crashes > crashes =>
                {
                    return Stop::Reached;
                }
                Until::Ended(_) | Until::Answered(..) => {
                    if let Some(row) = self.first_blocked() {
                        let report = row.blocked.map(|blocked| blocked.report).unwrap_or_default();
                        return Stop::Blocked { id: row.id, report };
                    }
                }
                Until::TimeMs(_) => {}
            }
            if self.play_script() {
                continue;
            }
            if let Until::TimeMs(at_ms) = until
                && self.now_ms() >= at_ms
            {
                // What takes no time belongs to this moment, too.
                if self.end_ready_attempt() {
                    continue;
                }
                return Stop::Reached;
            }
            let limit_ms = match until {
                Until::TimeMs(at_ms) => Some(at_ms),
                Until::Ended(_) | Until::Answered(..) => None,
            };
            let next_ms = [self.node.next_wake_of_all_ms(), self.next_script_ms(), limit_ms];
            let next_ms = next_ms.into_iter().flatten().min();
            if next_ms.is_none() && self.attempts.is_empty() {
                return Stop::Stuck { waiting_for: self.open_work() };
            }
            if !self.wait(next_ms) {
                return Stop::Stuck { waiting_for: self.open_work() };
            }
        }
    }

    /// Does everything that can be done now, and dies where it is to.
    fn settle(&mut self) {
        loop {
            let node = &mut self.node;
            while node.look_up() || node.load() || node.take_turns() || node.follow_hint() {}
            if !node.batch().is_empty() {
                match self.trouble.note_commit(node.batch_words().join("; ")) {
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
            let mine = self
                .attempts
                .values()
                .filter(|attempt| attempt.task.key == key && attempt.task.event == event);
            mine.for_each(|attempt| attempt.standalone.cancel());
        }
    }

    /// The process dies and another one takes over: all that was in memory is gone.
    fn crash(&mut self) {
        self.crashes += 1;
        for attempt in std::mem::take(&mut self.attempts).into_values() {
            attempt.handle.abort();
        }
        self.node.crash().take_over();
    }

    fn begin_attempts(&mut self) -> Option<Stop> {
        for task in self.node.take_running() {
            let Some((handler, is_real)) = self.config.activity(&task.name) else {
                let waiting_for =
                    format!("the activity {:?}, which is neither registered nor mocked", task.name);
                return Some(Stop::Stuck { waiting_for });
            };
            let takes = self.config.takes.get(&task.name).copied();
            let handler = match takes {
                Some(takes) => Arc::new(Slow { handler, takes }),
                None => handler,
            };
            let words = format!("{:?} of {:?}, attempt {}", task.name, task.instance, task.attempt);
            let trouble = self.trouble.note_activity(words);
            let runs_twice = matches!(trouble, Some(CrashPoint::ActivityTwice(_)));
            let (number, now_ms) = (self.next_attempt, self.node.now_ms());
            self.next_attempt += 1;
            let tokio = self.tokio.as_ref().expect("it is taken by dropping alone");
            let _context = tokio.enter();
            let task = Arc::new(task);
            let standalone =
                StandaloneAttempt::new(Arc::clone(&handler), Arc::clone(&task), self.client.clone());
            let forgotten =
                runs_twice.then(|| StandaloneAttempt::new(handler, Arc::clone(&task), self.client.clone()));
            let (attempt, sender) = (standalone.clone(), self.sender.clone());
            let handle = tokio.spawn(async move {
                if let Some(forgotten) = forgotten {
                    let _ = forgotten.run(now_ms).await;
                }
                let _ = sender.send((number, attempt.run(now_ms).await));
            });
            self.attempts
                .insert(number, RunningAttempt { task, standalone, handle, is_real, began_ms: now_ms });
            if matches!(trouble, Some(CrashPoint::DuringActivity(_))) {
                self.go_on_without_time();
                self.crash();
                // Those that were about to run have died with it.
                return None;
            }
        }
        None
    }

    /// Lets an attempt end, or time pass until something is due. Returns whether anything happened.
    fn wait(&mut self, next_ms: Option<u64>) -> bool {
        let tokio = self.tokio.as_ref().expect("it is taken by dropping alone");
        let due_ms = next_ms.unwrap_or(BEGIN_MS + FOR_EVER_MS / 2);
        let due = self.origin + Duration::from_millis(due_ms - BEGIN_MS);
        // Tokio cannot tell an idle task from one that waits for the network.
        let patience = self.attempts.values().any(|attempt| attempt.is_real).then_some(self.config.patience);
        let (results, is_hinted) = (&mut self.results, &self.is_hinted);
        let ended = tokio.block_on(async {
            let (let_go, held) = std::sync::mpsc::channel::<()>();
            if let Some(patience) = patience.filter(|patience| !patience.is_zero()) {
                // The clock stands still while a blocking task runs.
                tokio::task::spawn_blocking(move || held.recv_timeout(patience));
            }
            let ended = tokio::select! {
                biased;
                ended = results.recv() => ended,
                () = tokio::time::sleep_until(due) => None,
            };
            drop(let_go);
            ended
        });
        let elapsed = {
            let _context = tokio.enter();
            self.origin.elapsed()
        };
        let is_told = is_hinted.load(Ordering::Relaxed);
        self.node.at(BEGIN_MS + u64::try_from(elapsed.as_millis()).expect("a test is shorter than that"));
        match ended {
            Some(ended) => {
                self.end_attempt(ended);
                true
            }
            None => next_ms.is_some() || is_told,
        }
    }

    /// Lets one attempt end that needs no more time to. Returns whether there was one.
    fn end_ready_attempt(&mut self) -> bool {
        let ended = self.go_on_without_time();
        let is_one = ended.is_some();
        ended.into_iter().for_each(|ended| self.end_attempt(ended));
        is_one
    }

    /// Lets attempts go on until one ends, or all wait for something. What has ended is told, and not yet known.
    fn go_on_without_time(&mut self) -> Option<(u64, Outcome)> {
        let tokio = self.tokio.as_ref().expect("it is taken by dropping alone");
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

    /// Does the first thing of the script that is to be done now. Returns whether there was one.
    fn play_script(&mut self) -> bool {
        let elapsed_ms = self.now_ms() - BEGIN_MS;
        let due = self.config.script.iter().enumerate().filter(|(_, scripted)| !scripted.is_done);
        let due = due.map(|(number, scripted)| (number, scripted.clone())).collect::<Vec<_>>();
        for (number, scripted) in due {
            let Some(id) = scripted.instance.clone().or_else(|| self.latest.clone()) else { continue };
            if let Action::Say { activity, said } = &scripted.action {
                let Some(call) = self.waiting_attempt(&id, activity, said) else { continue };
                let reply = self.say(&id, &call);
                assert!(
                    matches!(reply, CallReply::Answered(_)),
                    "{:?} of the script cannot be said to {id:?}: {reply:?}",
                    scripted.action
                );
                self.config.script[number].is_done = true;
                return true;
            }
            let Some(request) = scripted.request(number) else { continue };
            let is_due = match &scripted.when {
                When::AfterMs(after_ms) => *after_ms <= elapsed_ms && self.row(&id).is_some(),
                When::Waiting => scripted.awaited().is_some_and(|event| self.waits_for(&id, event)),
            };
            if !is_due {
                continue;
            }
            if matches!(scripted.action, Action::Update { .. }) {
                match &scripted.sent {
                    // Its handler may take its time.
                    Some(sent) if self.node.answer(sent.request).is_some() => {
                        self.config.script[number].is_done = true;
                    }
                    Some(sent) if sent.crashes == self.crashes => {}
                    _ => {
                        let crashes = self.crashes;
                        let id = scripted.sent.as_ref().map_or(id, |sent| sent.id.clone());
                        let request = self.node.request(&id, request);
                        self.config.script[number].sent = Some(SentRequest { id, request, crashes });
                        return true;
                    }
                }
                continue;
            }
            // What is raised at an instance that has ended is of no use to anybody.
            let answer = self.request(&id, || request.clone());
            assert!(
                matches!(answer, Response::Accepted | Response::EndedBefore | Response::TooLate),
                "{:?} of the script cannot be done to {id:?}: {answer:?}",
                scripted.action
            );
            self.config.script[number].is_done = true;
            return true;
        }
        false
    }

    fn next_script_ms(&self) -> Option<u64> {
        let undone = self.config.script.iter().filter(|scripted| !scripted.is_done);
        let after_ms = undone.filter_map(|scripted| match scripted.when {
            When::AfterMs(after_ms) => Some(BEGIN_MS + after_ms),
            When::Waiting => None,
        });
        after_ms.filter(|at_ms| *at_ms > self.now_ms()).min()
    }

    fn waits_for(&self, id: &str, event: &str) -> bool {
        let is_open = |row: &InstanceRow| !row.status.is_final();
        self.row(id).filter(is_open).is_some_and(|row| self.unmet_waits(&row).contains(event))
    }

    /// The events that an instance waits for. Waits are met in order, so there is one as long as there are more of them
    /// than events of that name.
    fn unmet_waits(&self, row: &InstanceRow) -> BTreeSet<String> {
        let mut unmet: BTreeMap<String, i64> = BTreeMap::new();
        for (_, decision) in self.ledger(row).open() {
            if let Decision::ExternalSubscribed { name } = decision {
                *unmet.entry(name.clone()).or_default() += 1;
            }
        }
        for event in self.history(row, row.execution).flatten() {
            if let EventKind::Job(Job::ExternalEvent { name, .. }) = &event.kind {
                *unmet.entry(name.clone()).or_default() -= 1;
            }
        }
        unmet.into_iter().filter(|(_, count)| *count > 0).map(|(name, _)| name).collect()
    }

    pub(super) fn row(&self, id: &str) -> Option<InstanceRow> {
        self.node.try_row(id)
    }

    pub(super) fn tables(&self) -> MutexGuard<'_, Tables> {
        self.node.tables()
    }

    /// How often the process has died.
    pub(super) fn crashes(&self) -> u64 {
        self.crashes
    }

    /// All rows, the oldest first.
    pub(super) fn rows(&self) -> Vec<InstanceRow> {
        self.node.tables().instances.values().cloned().collect()
    }

    fn first_blocked(&self) -> Option<InstanceRow> {
        let filter = Criteria { blocked: Some(true), ..Criteria::default() };
        let tables = self.node.tables();
        tables.instances.values().find(|row| filter.matches(row) && !row.status.is_final()).cloned()
    }

    /// What is recorded of one execution.
    pub(super) fn history(&self, row: &InstanceRow, execution: u64) -> History {
        self.node.history(row, execution)
    }

    fn ledger(&self, row: &InstanceRow) -> Ledger {
        let mut ledger = Ledger::default();
        for turn in &self.history(row, row.execution) {
            ledger.apply_turn(turn).expect("what is stored is a history");
        }
        ledger
    }

    /// What open instances wait for, in words.
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
        if words.is_empty() { "something that nobody will do".to_owned() } else { words.join(", ") }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // A test may itself be async, where a runtime must not be dropped in the ordinary way.
        if let Some(tokio) = self.tokio.take() {
            tokio.shutdown_background();
        }
    }
}

/// An activity that takes its time.
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
