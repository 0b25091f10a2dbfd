//! Activities that run in real time.
//!
//! The code of a real activity may wait for a network, a disk or another thread, and the driver cannot
//! distinguish that from waiting for a timer. So it runs on a tokio runtime with an ordinary clock, and the
//! driver counts the attempts whose code is running: the virtual clock moves only while there are none.
//!
//! The runtime has its own thread, so that code which blocks its thread can be reported instead of blocking
//! the test. The driver and the thread never run at the same time: the driver lets the runtime run and waits
//! until it stops. So the steps that activities take without waiting happen in the same order every time.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use perennial::{ActivityContext, ActivityFutureBox, ActivityHandler};
use perennial_core::Payload;
use perennial_core::shard::ActivityTask;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tracing::Instrument;

use super::STEPS_WITHOUT_TIME;

/// The time beyond its limit that the runtime has to stop before its thread counts as blocked.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// Stands in `polled` while no attempt is polled.
const NONE: u64 = 0;

pub(super) struct RealTime {
    handle: Handle,
    commands: Sender<Command>,
    stopped: Receiver<()>,
    in_flight: Arc<InFlight>,
    /// Whether the last command has not stopped: an activity blocks the thread.
    is_blocked: bool,
}

/// How long the runtime runs.
enum Command {
    /// Until there is news, for at most this long.
    UntilNews(Duration),
    /// As far as it gets without waiting.
    WithoutWaiting,
}

#[derive(Default)]
pub(super) struct InFlight {
    attempts: Mutex<Attempts>,
    /// The attempt that is currently polled, or [`NONE`].
    polled: AtomicU64,
    /// Notified when code starts to run.
    begun: Notify,
    /// Notified when code ends, the store changes, or an attempt on the virtual clock can make progress.
    news: Notify,
    /// Notified when the store changes.
    changed: Notify,
}

#[derive(Default)]
struct Attempts {
    last: u64,
    running: BTreeMap<u64, RealAttempt>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct RealAttempt {
    pub(super) activity: String,
    pub(super) instance: String,
    pub(super) attempt: u32,
    /// Its running time so far, in real time.
    spent: Duration,
}

impl InFlight {
    pub(super) fn is_empty(&self) -> bool {
        self.lock().running.is_empty()
    }

    pub(super) async fn begun(&self) {
        self.begun.notified().await;
    }

    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    pub(super) async fn news(&self) {
        self.news.notified().await;
    }

    /// Drops a notification that nobody has waited for.
    pub(super) async fn forget_news(&self) {
        tokio::select! {
            biased;
            () = self.news.notified() => {}
            () = std::future::ready(()) => {}
        }
    }

    /// Reports a change of the store, which running code may wait for.
    pub(super) fn note_change(&self) {
        self.changed.notify_one();
        self.news.notify_one();
    }

    /// Runs an attempt on the virtual clock. The driver does not poll it while real code runs, so its wakes
    /// are reported as news: real code may wait for this attempt.
    pub(super) fn notify_wakes<T>(
        in_flight: Arc<InFlight>,
        attempt: impl Future<Output = T>,
    ) -> impl Future<Output = T> {
        let mut attempt = Box::pin(attempt);
        poll_fn(move |context| {
            let waker = NotifyingWaker { waker: context.waker().clone(), in_flight: Arc::clone(&in_flight) };
            attempt.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::new(waker))))
        })
    }

    /// The attempt that has been running longest.
    fn longest(&self) -> Option<RealAttempt> {
        self.lock().running.values().max_by_key(|attempt| attempt.spent).cloned()
    }

    /// The attempt that is being polled, else the one that has been running longest.
    fn blocking(&self) -> Option<RealAttempt> {
        let polled = self.polled.load(Ordering::Relaxed);
        let polled = self.lock().running.get(&polled).cloned();
        polled.or_else(|| self.longest())
    }

    /// Adds to the running times. If an attempt blocks the thread, the others do not run.
    fn note_spent(&self, spent: Duration, is_blocked: bool) {
        let polled = self.polled.load(Ordering::Relaxed);
        let mut attempts = self.lock();
        let running = attempts.running.iter_mut().filter(|(number, _)| !is_blocked || **number == polled);
        running.for_each(|(_, attempt)| attempt.spent += spent);
    }

    fn lock(&self) -> MutexGuard<'_, Attempts> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes a task and notifies the driver.
struct NotifyingWaker {
    waker: Waker,
    in_flight: Arc<InFlight>,
}

impl Wake for NotifyingWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.waker.wake_by_ref();
        self.in_flight.news.notify_one();
    }
}

impl RealTime {
    pub(super) fn new(in_flight: Arc<InFlight>) -> RealTime {
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let tokio = tokio.expect("the system can provide a thread and an I/O selector");
        let handle = tokio.handle().clone();
        let (commands, received) = channel();
        let (stops, stopped) = channel();
        let news = Arc::clone(&in_flight);
        std::thread::spawn(move || serve(tokio, &received, &stops, &news));
        RealTime { handle, commands, stopped, in_flight, is_blocked: false }
    }

    pub(super) fn wrap(
        &self,
        handler: Arc<dyn ActivityHandler>,
        task: &ActivityTask,
    ) -> Arc<dyn ActivityHandler> {
        let attempt = RealAttempt {
            activity: task.name.clone(),
            instance: task.instance.to_string(),
            attempt: task.attempt,
            spent: Duration::ZERO,
        };
        Arc::new(RealCode {
            handler,
            attempt,
            handle: self.handle.clone(),
            in_flight: Arc::clone(&self.in_flight),
        })
    }

    /// Runs code until some of it ends, or something else can make progress.
    ///
    /// # Errors
    ///
    /// The attempt that has been running for longer than the limit.
    pub(super) fn run(&mut self, limit: Duration) -> Result<(), RealAttempt> {
        let Some(longest) = self.in_flight.longest() else { return Ok(()) };
        let left = limit.saturating_sub(longest.spent);
        if left.is_zero() && !self.is_blocked {
            return Err(longest);
        }
        self.command(Command::UntilNews(left), left)
    }

    /// Runs code, and tasks that it has spawned, as far as they get without waiting.
    ///
    /// # Errors
    ///
    /// The attempt that blocks the thread for longer than the limit.
    pub(super) fn run_without_waiting(&mut self, limit: Duration) -> Result<(), RealAttempt> {
        self.command(Command::WithoutWaiting, limit)
    }

    fn command(&mut self, command: Command, limit: Duration) -> Result<(), RealAttempt> {
        if self.is_blocked {
            self.wait_for_blocked_thread();
        }
        if !self.is_blocked {
            let began = Instant::now();
            self.commands.send(command).expect("the thread runs as long as the sender exists");
            self.is_blocked = self.stopped.recv_timeout(limit.saturating_add(STOP_GRACE)).is_err();
            self.in_flight.note_spent(began.elapsed(), self.is_blocked);
        }
        // A task that an ended activity has spawned may block the thread as well; then there is no attempt to
        // name.
        let blocking = self.in_flight.blocking().filter(|_| self.is_blocked);
        blocking.map_or(Ok(()), Err)
    }

    /// Gives the activity that blocked the thread a moment to go on, if there is an attempt to wait for.
    fn wait_for_blocked_thread(&mut self) {
        let moment = if self.in_flight.is_empty() { Duration::ZERO } else { STOP_GRACE };
        self.is_blocked = self.stopped.recv_timeout(moment).is_err();
    }
}

/// Executes commands until the sender is dropped.
fn serve(tokio: Runtime, commands: &Receiver<Command>, stops: &Sender<()>, in_flight: &InFlight) {
    for command in commands {
        tokio.block_on(async {
            match command {
                Command::UntilNews(limit) => {
                    // Earlier news must not keep code from running.
                    tokio::task::yield_now().await;
                    tokio::select! {
                        biased;
                        () = in_flight.news.notified() => {}
                        () = tokio::time::sleep(limit) => {}
                    }
                }
                Command::WithoutWaiting => {
                    for _ in 0..STEPS_WITHOUT_TIME {
                        tokio::task::yield_now().await;
                    }
                }
            }
        });
        if stops.send(()).is_err() {
            break;
        }
    }
    tokio.shutdown_background();
}

/// An activity whose code runs in real time. The parts around the code, such as timeouts, use the virtual
/// clock.
struct RealCode {
    handler: Arc<dyn ActivityHandler>,
    attempt: RealAttempt,
    handle: Handle,
    in_flight: Arc<InFlight>,
}

impl ActivityHandler for RealCode {
    fn run(&self, ctx: ActivityContext, input: Payload) -> ActivityFutureBox {
        let entry = Entry::new(&self.in_flight, self.attempt.clone());
        let handler = Arc::clone(&self.handler);
        let mut code = Box::pin(async move { handler.run(ctx, input).await });
        let code = poll_fn(move |context| {
            entry.in_flight.polled.store(entry.number, Ordering::Relaxed);
            let polled = code.as_mut().poll(context);
            entry.in_flight.polled.store(NONE, Ordering::Relaxed);
            polled
        });
        let mut running = Running(self.handle.spawn(code.in_current_span()));
        Box::pin(async move {
            match (&mut running.0).await {
                Ok(result) => result,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => resume_unwind(panic),
                    // The runtime ends with the test, and this future is not polled again.
                    Err(_) => std::future::pending().await,
                },
            }
        })
    }
}

/// Counts an attempt while its code exists.
struct Entry {
    number: u64,
    in_flight: Arc<InFlight>,
}

impl Entry {
    fn new(in_flight: &Arc<InFlight>, attempt: RealAttempt) -> Entry {
        let number = {
            let mut attempts = in_flight.lock();
            attempts.last += 1;
            let number = attempts.last;
            attempts.running.insert(number, attempt);
            number
        };
        in_flight.begun.notify_one();
        Entry { number, in_flight: Arc::clone(in_flight) }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.in_flight.lock().running.remove(&self.number);
        self.in_flight.news.notify_one();
    }
}

/// Code that is aborted when its waiter is dropped.
struct Running(JoinHandle<Result<Payload, Payload>>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}
