//! The test environment for programs that use Perennial.

mod config;
mod crashing;
mod driver;
mod failure;
mod faults;
mod histories;
mod limits;
mod mocks;
mod registering;
mod replaying;
mod requests;
mod script;
mod starting;
mod tokens;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use perennial::Registrations;
use perennial::client::{ExportedExecution, ExportedInstance};
use perennial::typed::{EventContent, EventTarget, OrchestrationTarget, UpdateTarget};
use perennial_core::store::Status;
use perennial_core::{Ending, NotOfType, Payload};

use config::Config;
use driver::{BEGIN_MS, Driver, Until};
use failure::Halt;
use faults::Faults;
use registering::ReplaceState;
use requests::or_panic;
use script::{Action, Scripted, When};

pub use crashing::{CrashDifference, CrashFailure, CrashPoint, CrashReport, crash_everywhere};
pub use failure::Failure;
pub use histories::TestHistory;
pub use mocks::{ActivityRef, MockTarget};
pub use replaying::{ReplayCheck, ReplayDifference};
pub use tokens::TokenTarget;

/// Runs orchestrations with the real engine over a store in memory, on a virtual clock.
///
/// The clock does not move while anything can happen, and then skips to the next due time: an orchestration
/// of thirty days takes milliseconds. Every test starts at 2030-01-01T00:00:00Z and records the same history
/// in each run.
///
/// A test takes the same [`Registrations`] as the program. Activities are the real ones or
/// [mocks](TestEnvironment::mock), and can be made to [fail](TestEnvironment::fail_times). The code of real
/// activities runs in real time, and the virtual clock waits for it. Events and updates can be scripted in
/// advance or sent while the test runs.
///
/// ```
/// use perennial::prelude::*;
/// use perennial_testkit::TestEnvironment;
///
/// const APPROVED: ExternalEvent<bool> = ExternalEvent::named("approved");
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
/// // The registrations that the program uses, too.
/// fn app() -> Registrations {
///     Registrations::new().register(checkout).register(charge)
/// }
///
/// let mut env = TestEnvironment::new()
///     .registrations(app())
///     .mock(charge, |cents| Ok(format!("receipt for {cents}")))
///     .raise_at(2 * DAY, APPROVED, true);
/// assert_eq!(env.run(checkout, 500).unwrap(), "receipt for 500");
/// assert_eq!(env.elapsed(), 32 * DAY);
/// env.history("checkout-1").assert_activities(&["charge"]);
/// ```
///
/// Methods block until they are done, even in an async test: orchestrations and activities run on the
/// environment's own threads. Set up an environment before its first start; the methods that configure it
/// panic afterwards.
#[must_use = "nothing runs in an environment until something is started"]
pub struct TestEnvironment {
    /// Moved into the driver with the first start.
    registrations: Registrations,
    /// The test's own state, which replaces the program's at the first start.
    states: Vec<ReplaceState>,
    config: Config,
    faults: Arc<Faults>,
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
        TestEnvironment::with_faults(Arc::default())
    }
}

impl fmt::Debug for TestEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestEnvironment").field("runs", &self.runs).finish_non_exhaustive()
    }
}

/// Setting up the environment, before the first start.
impl TestEnvironment {
    /// Creates an environment without registrations.
    pub fn new() -> TestEnvironment {
        TestEnvironment::default()
    }

    fn with_faults(faults: Arc<Faults>) -> TestEnvironment {
        TestEnvironment {
            registrations: Registrations::new(),
            states: Vec::new(),
            config: Config::default(),
            faults,
            driver: None,
            runs: 0,
        }
    }

    /// Raises an event at the most recently started instance, this long after the start of the test.
    #[track_caller]
    pub fn raise_at<T: EventContent<C>, C>(self, after: Duration, event: T, content: C) -> TestEnvironment {
        let action = raise(&event, T::encode(content));
        self.script(When::AfterMs(millis(after)), None, action)
    }

    /// Raises an event as soon as the most recently started instance waits for it. Several events of one name
    /// are raised one per wait, in order.
    #[track_caller]
    pub fn raise_when_waiting<T: EventContent<C>, C>(self, event: T, content: C) -> TestEnvironment {
        let action = raise(&event, T::encode(content));
        self.script(When::Waiting, None, action)
    }

    /// Raises an event as soon as the given instance waits for it. Use this for sub-orchestrations.
    #[track_caller]
    pub fn raise_when_instance_waits<T: EventContent<C>, C>(
        self,
        id: impl Into<String>,
        event: T,
        content: C,
    ) -> TestEnvironment {
        let action = raise(&event, T::encode(content));
        self.script(When::Waiting, Some(id.into()), action)
    }

    /// Sends an update to the most recently started instance, this long after the start of the test.
    /// [`TestEnvironment::scripted_updates`] returns its outcome.
    #[track_caller]
    pub fn update_at<T, I, K>(self, after: Duration, update: T, input: I) -> TestEnvironment
    where
        T: UpdateTarget<I, K>,
    {
        let (name, payload) = (update.name().into_owned(), requests::written(T::encode(input)));
        let action = Action::Update { name, payload };
        self.script(When::AfterMs(millis(after)), None, action)
    }

    /// Cancels the most recently started instance, this long after the start of the test.
    #[track_caller]
    pub fn cancel_at(self, after: Duration, reason: impl Into<String>) -> TestEnvironment {
        self.script(When::AfterMs(millis(after)), None, Action::Cancel { reason: reason.into() })
    }

    #[track_caller]
    fn script(mut self, when: When, instance: Option<String>, action: Action) -> TestEnvironment {
        self.refuse_when_started();
        self.config.script.push(Scripted { when, instance, action, is_done: false, sent: None });
        self
    }
}

/// Running the environment.
impl TestEnvironment {
    /// Runs an orchestration to its end. The id of the instance is the name with a number: the first instance
    /// of `checkout` is `checkout-1`.
    ///
    /// # Panics
    ///
    /// If the orchestration is not registered, or something is missing without which a runtime would not
    /// start.
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

    /// Runs an instance to its end and returns its result.
    pub fn result<O, E>(&mut self, run: &TestRun<O, E>) -> Result<O, Failure<E>> {
        let id = run.id.clone();
        self.drive(|driver| driver.drive(Until::Ended(&id))).map_err(Halt::widen)?;
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
                let problem = "its last turn contains no end of the execution".to_owned();
                Err(Failure::Unreadable { problem })
            }
        }
    }

    /// Lets time pass, and runs everything that becomes due.
    ///
    /// # Panics
    ///
    /// If an activity is neither registered nor mocked, if a real activity does not end, or if the test
    /// exceeds [`TestEnvironment::turn_limit`].
    #[track_caller]
    pub fn advance(&mut self, duration: Duration) {
        let passed = self.drive(|driver| {
            let until_ms = driver.now_ms().saturating_add(millis(duration));
            driver.drive(Until::TimeMs(until_ms))
        });
        or_panic(passed.map_err(|halt| format!("time cannot advance: {halt}")));
    }

    /// The virtual time since the start of the test.
    pub fn elapsed(&self) -> Duration {
        let now_ms = self.driver.as_ref().map_or(BEGIN_MS, Driver::now_ms);
        Duration::from_millis(now_ms - BEGIN_MS)
    }

    /// The status of an instance, or `None` if it does not exist.
    pub fn status(&self, id: &str) -> Option<Status> {
        self.driver.as_ref()?.row(id).map(|row| row.status)
    }

    /// The history of the current execution of an instance.
    ///
    /// # Panics
    ///
    /// If the instance does not exist.
    #[track_caller]
    pub fn history(&self, id: &str) -> TestHistory {
        let row = self.driver.as_ref().and_then(|driver| driver.row(id));
        let execution = row.map_or(1, |row| row.execution);
        self.history_of(id, execution)
    }

    /// The history of one execution of an instance. Executions are numbered from 1; each continue-as-new
    /// starts another.
    ///
    /// # Panics
    ///
    /// If the instance does not exist.
    #[track_caller]
    pub fn history_of(&self, id: &str, execution: u64) -> TestHistory {
        let driver = self.driver.as_ref();
        let found = driver.and_then(|driver| driver.row(id).map(|row| driver.history(&row, execution)));
        TestHistory::new(or_panic(found.ok_or_else(|| format!("there is no instance {id:?}"))))
    }

    /// All instances as JSON Lines, in the format of `perennial export`.
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
            lines += &serde_json::to_string(&instance).expect("every history can be written as JSON");
            lines.push('\n');
        }
        lines
    }

    /// Runs `work` with the driver on a thread outside the tokio runtime that the test may run in.
    fn drive<R: Send>(&mut self, work: impl FnOnce(&mut Driver) -> R + Send) -> R {
        self.apply_states();
        let (config, registrations, faults) = (&self.config, &mut self.registrations, &self.faults);
        let driver = self.driver.get_or_insert_with(|| {
            Driver::new(config.clone(), std::mem::take(registrations), Arc::clone(faults))
        });
        std::thread::scope(|scope| scope.spawn(|| work(driver)).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

#[track_caller]
fn raise<T: EventTarget>(event: &T, content: Result<Payload, serde_json::Error>) -> Action {
    let payload = or_panic(content.map_err(|error| format!("the event cannot be written as JSON: {error}")));
    Action::Raise { event: event.name().into_owned(), payload }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
