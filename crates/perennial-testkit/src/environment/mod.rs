//! A test environment for users' code.

mod asking;
mod config;
mod crashing;
mod driver;
mod failure;
mod histories;
mod mocks;
mod replaying;
mod script;
mod starting;
mod tokens;
mod trouble;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use perennial::client::{ExportedExecution, ExportedInstance};
use perennial::typed::{
    ActivityCode, ActivityReturn, EventContent, EventTarget, OrchestrationCode, OrchestrationTarget,
    Register, Registration, UpdateTarget,
};
use perennial::{ActivityContext, ActivityHandler};
use perennial_core::OrchestrationHandler;
use perennial_core::store::Status;
use perennial_core::{Ending, Handlers, NotOfType, Payload};
use serde::Serialize;
use serde::de::DeserializeOwned;

use asking::told;
use config::Config;
use driver::{BEGIN_MS, Driver, Stop, Until};
use script::{Action, Scripted, When};
use trouble::Trouble;

pub use crashing::{CrashDifference, CrashFailure, CrashPoint, CrashReport, crash_everywhere};
pub use failure::Failure;
pub use histories::TestHistory;
pub use mocks::MockTarget;
pub use replaying::{ReplayCheck, ReplayDifference};
pub use tokens::TokenTarget;

/// Runs orchestrations with the real engine over a store in memory, under a virtual clock.
///
/// The clock stands still while anything can happen, and then skips to whatever is due next: a flow of thirty days
/// takes milliseconds. Every test begins at 2030-01-01T00:00:00Z, and gives the same history each time it is run.
/// Activities are the real ones or mocks; events and updates can be scripted beforehand or sent on the way.
///
/// ```
/// use perennial::prelude::*;
/// use perennial_testkit::TestEnvironment;
///
/// const APPROVED: Event<bool> = Event::named("approved");
/// const DAY: Duration = Duration::from_secs(86_400);
///
/// #[activity]
/// async fn charge(_: ActivityContext, cents: u64) -> Result<String, String> {
///     Err("no payment service in tests".to_owned())
/// }
///
/// #[orchestration]
/// async fn checkout(ctx: OrchestrationContext, cents: u64) -> Result<String, String> {
///     if !ctx.timeout(7 * DAY, ctx.schedule_wait(APPROVED)).await.unwrap_or(false) {
///         return Err("not approved".to_owned());
///     }
///     let receipt = ctx.schedule_activity(charge, cents).await?;
///     ctx.schedule_timer(30 * DAY).await;
///     Ok(receipt)
/// }
///
/// let mut env = TestEnvironment::new()
///     .register(checkout)
///     .mock(charge, |cents| Ok(format!("receipt for {cents}")))
///     .raise_at(2 * DAY, APPROVED, true);
/// assert_eq!(env.run(checkout, 500).unwrap(), "receipt for 500");
/// assert_eq!(env.elapsed(), 32 * DAY);
/// env.history("checkout-1").assert_activities(&["charge"]);
/// ```
///
/// Calls block until what they ask for has happened, also in an async test; the orchestrations and activities run on
/// threads of the environment's own.
#[must_use = "nothing runs in an environment until it is told to"]
pub struct TestEnvironment {
    handlers: Handlers,
    config: Config,
    trouble: Arc<Trouble>,
    driver: Option<Driver>,
    runs: usize,
}

/// An instance that was started in a [`TestEnvironment`].
pub struct TestRun<O = Payload, E = Payload> {
    id: String,
    read_output: fn(Payload) -> Result<O, NotOfType>,
    read_error: fn(Payload) -> Result<E, NotOfType>,
    types: PhantomData<fn() -> (O, E)>,
}

impl<O, E> TestRun<O, E> {
    /// The instance's id.
    pub fn id(&self) -> &str {
        &self.id
    }
}

impl<O, E> fmt::Debug for TestRun<O, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TestRun").field(&self.id).finish()
    }
}

impl Default for TestEnvironment {
    fn default() -> TestEnvironment {
        TestEnvironment::with_trouble(Arc::default())
    }
}

impl fmt::Debug for TestEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestEnvironment").field("runs", &self.runs).finish_non_exhaustive()
    }
}

/// What is said before the first start.
impl TestEnvironment {
    /// An environment in which nothing is registered.
    pub fn new() -> TestEnvironment {
        TestEnvironment::default()
    }

    fn with_trouble(trouble: Arc<Trouble>) -> TestEnvironment {
        TestEnvironment {
            handlers: Handlers::default(),
            config: Config::default(),
            trouble,
            driver: None,
            runs: 0,
        }
    }

    /// Registers a function that is marked with `#[orchestration]` or `#[activity]`.
    pub fn register<K>(mut self, function: impl Register<K>) -> TestEnvironment {
        match function.registration() {
            Registration::Orchestration { name, version, handler, .. } => {
                self.add_orchestration(name, version, handler)
            }
            Registration::Activity { name, handler, .. } => {
                self.config.real.insert(name.to_owned(), handler);
            }
        }
        self
    }

    /// Registers a function that is marked with `#[activity]`, with something that all its attempts share.
    pub fn register_with<K, S: Send + Sync + 'static>(
        mut self,
        function: impl Register<K>,
        state: S,
    ) -> TestEnvironment {
        match function.registration() {
            Registration::Orchestration { name, .. } => {
                panic!("{name:?} is an orchestration; only activities share state")
            }
            Registration::Activity { name, handler, .. } => {
                self.config.real.insert(name.to_owned(), perennial::with_state(handler, state));
            }
        }
        self
    }

    /// Registers a closure with types as an orchestration under a name and a version.
    pub fn orchestration<K>(
        mut self,
        name: &str,
        version: &str,
        code: impl OrchestrationCode<K>,
    ) -> TestEnvironment {
        self.add_orchestration(name, version, code.into_handler());
        self
    }

    /// Registers a closure with types as an activity under a name.
    pub fn activity<K>(mut self, name: &str, code: impl ActivityCode<K>) -> TestEnvironment {
        self.config.real.insert(name.to_owned(), code.into_handler());
        self
    }

    /// Lets a closure stand for an activity: a function marked with `#[activity]`, an
    /// [`Activity`](perennial::typed::Activity), or a name. Several arguments come as a tuple.
    pub fn mock<F, A, O, E, K>(
        mut self,
        activity: F,
        mock: impl Fn(A) -> Result<O, E> + Send + Sync + 'static,
    ) -> TestEnvironment
    where
        F: MockTarget<A, O, E, K>,
        A: DeserializeOwned + Send + 'static,
        O: ActivityReturn + Send + 'static,
        E: Serialize + Send + 'static,
    {
        let code = move |_: ActivityContext, input: A| std::future::ready(mock(input));
        let handler: Arc<dyn ActivityHandler> = code.into_handler();
        self.config.mocked.insert(activity.name().into_owned(), handler);
        self
    }

    /// Lets every attempt of an activity, real or mocked, take this long by the virtual clock. Without this, it takes
    /// as long as it sleeps on tokio's clock, which is the same one.
    pub fn takes(mut self, activity: &str, duration: Duration) -> TestEnvironment {
        self.config.takes.insert(activity.to_owned(), duration);
        self
    }

    /// How long, in real time, the clock stands still for real activities that are idle before it skips: they may be
    /// waiting for the network. Default 2 s. Give less if a real activity waits by the virtual clock, or for ever.
    pub fn patience(mut self, patience: Duration) -> TestEnvironment {
        self.config.patience = patience;
        self
    }

    /// Raises an event this long after the test began, at the instance that was started last.
    pub fn raise_at<T: EventContent<C>, C>(self, after: Duration, event: T, content: C) -> TestEnvironment {
        let action = raise(&event, T::encode(content));
        self.script(When::AfterMs(millis(after)), None, action)
    }

    /// Raises an event as soon as the instance that was started last waits for it. Several for one event are raised one
    /// wait after the other.
    pub fn raise_when_waiting<T: EventContent<C>, C>(self, event: T, content: C) -> TestEnvironment {
        let action = raise(&event, T::encode(content));
        self.script(When::Waiting, None, action)
    }

    /// Raises an event as soon as an instance waits for it, for instance a sub-orchestration.
    pub fn raise_when_instance_waits<T: EventContent<C>, C>(
        self,
        id: impl Into<String>,
        event: T,
        content: C,
    ) -> TestEnvironment {
        let action = raise(&event, T::encode(content));
        self.script(When::Waiting, Some(id.into()), action)
    }

    /// Sends an update this long after the test began, to the instance that was started last. What came of it is in
    /// [`TestEnvironment::scripted_updates`].
    pub fn update_at<T, I, K>(self, after: Duration, update: T, input: I) -> TestEnvironment
    where
        T: UpdateTarget<I, K>,
    {
        let (name, payload) = (update.name().into_owned(), asking::written(T::encode(input)));
        let action = Action::Update { name, payload };
        self.script(When::AfterMs(millis(after)), None, action)
    }

    /// Cancels the instance that was started last this long after the test began.
    pub fn cancel_at(self, after: Duration, reason: impl Into<String>) -> TestEnvironment {
        self.script(When::AfterMs(millis(after)), None, Action::Cancel { reason: reason.into() })
    }

    fn script(mut self, when: When, instance: Option<String>, action: Action) -> TestEnvironment {
        self.config.script.push(Scripted { when, instance, action, is_done: false, asked: None });
        self
    }

    fn add_orchestration(&mut self, name: &str, version: &str, handler: Arc<dyn OrchestrationHandler>) {
        self.handlers = std::mem::take(&mut self.handlers).with_shared(name, version, handler);
    }
}

/// What is done in it.
impl TestEnvironment {
    /// Runs an orchestration to its end. The instance is called after it: the first one of `checkout` is `checkout-1`.
    ///
    /// # Panics
    ///
    /// If no such orchestration is registered.
    #[track_caller]
    pub fn run<T, I, K>(&mut self, orchestration: T, input: I) -> Result<T::Output, Failure<T::Error>>
    where
        T: OrchestrationTarget<I, K>,
    {
        self.runs += 1;
        let id = format!("{}-{}", orchestration.name(), self.runs);
        let run = self.start(orchestration, &id, input);
        self.result(&run)
    }

    /// Lets an instance go on to its end, and gives what it returned.
    pub fn result<O, E>(&mut self, run: &TestRun<O, E>) -> Result<O, Failure<E>> {
        let id = run.id.clone();
        let stop = self.drive(|driver| driver.drive(Until::Ended(&id)));
        match stop {
            Stop::Reached => {}
            Stop::Blocked { id, report } => return Err(Failure::Blocked { id, report }),
            Stop::Stuck { waiting_for } => return Err(Failure::Stuck { waiting_for }),
        }
        let unreadable = |error: NotOfType| Failure::Unreadable { problem: error.to_string() };
        match self.history(&id).history().ending().cloned() {
            Some(Ending::OrchestrationCompleted { output }) => (run.read_output)(output).map_err(unreadable),
            Some(Ending::OrchestrationFailed { error }) => {
                Err((run.read_error)(error).map_or_else(unreadable, Failure::Failed))
            }
            Some(Ending::OrchestrationCancelled { reason, output }) => {
                Err(Failure::Cancelled { reason, output })
            }
            Some(Ending::OrchestrationTerminated { reason }) => Err(Failure::Terminated { reason }),
            Some(Ending::OrchestrationContinuedAsNew { .. }) | None => {
                let problem = "its last turn does not say how it ended".to_owned();
                Err(Failure::Unreadable { problem })
            }
        }
    }

    /// Lets time pass, with everything that happens in it.
    ///
    /// # Panics
    ///
    /// If an activity is to run that is neither registered nor mocked.
    #[track_caller]
    pub fn advance(&mut self, duration: Duration) {
        let stop = self.drive(|driver| {
            let until_ms = driver.now_ms().saturating_add(millis(duration));
            driver.drive(Until::TimeMs(until_ms))
        });
        assert!(stop == Stop::Reached, "time cannot pass: {stop:?}");
    }

    /// How long the test has taken by the virtual clock.
    pub fn elapsed(&self) -> Duration {
        let now_ms = self.driver.as_ref().map_or(BEGIN_MS, Driver::now_ms);
        Duration::from_millis(now_ms - BEGIN_MS)
    }

    /// Where an instance stands, if there is one.
    pub fn status(&self, id: &str) -> Option<Status> {
        self.driver.as_ref()?.row(id).map(|row| row.status)
    }

    /// What is recorded of an instance's current execution.
    ///
    /// # Panics
    ///
    /// If there is no such instance.
    #[track_caller]
    pub fn history(&self, id: &str) -> TestHistory {
        let row = self.driver.as_ref().and_then(|driver| driver.row(id));
        let execution = row.map_or(1, |row| row.execution);
        self.history_of(id, execution)
    }

    /// What is recorded of one execution of an instance: 1, 2, 3, … with each continue-as-new.
    ///
    /// # Panics
    ///
    /// If there is no such instance.
    #[track_caller]
    pub fn history_of(&self, id: &str, execution: u64) -> TestHistory {
        let driver = self.driver.as_ref();
        let found = driver.and_then(|driver| driver.row(id).map(|row| driver.history(&row, execution)));
        TestHistory::new(told(found.ok_or_else(|| format!("there is no instance {id:?}"))))
    }

    /// All instances as lines of JSON, as `perennial export` writes them.
    pub fn export(&self) -> String {
        let Some(driver) = &self.driver else { return String::new() };
        let mut lines = String::new();
        for row in driver.rows() {
            let executions = (1..=row.execution).map(|execution| ExportedExecution {
                execution,
                turns: driver.history(&row, execution).turns,
            });
            let instance = ExportedInstance {
                id: row.id.clone(),
                name: row.name.clone(),
                version: row.version.clone(),
                status: Some(row.status),
                executions: executions.collect(),
            };
            lines += &serde_json::to_string(&instance).expect("a history holds nothing that JSON cannot");
            lines.push('\n');
        }
        lines
    }

    /// Does something with the driver, away from the tokio runtime that the test may run in.
    fn drive<R: Send>(&mut self, work: impl FnOnce(&mut Driver) -> R + Send) -> R {
        let (config, handlers, trouble) = (&self.config, &self.handlers, &self.trouble);
        let driver = self
            .driver
            .get_or_insert_with(|| Driver::new(config.clone(), handlers.clone(), Arc::clone(trouble)));
        std::thread::scope(|scope| scope.spawn(|| work(driver)).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

#[track_caller]
fn raise<T: EventTarget>(event: &T, content: Result<Payload, serde_json::Error>) -> Action {
    let payload = told(content.map_err(|error| format!("the event cannot be written as JSON: {error}")));
    Action::Raise { event: event.name().into_owned(), payload }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
