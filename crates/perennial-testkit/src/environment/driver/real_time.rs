//! Activities that run in real time.
//!
//! The code of a real activity may wait for a network, a disk or another thread, and nothing tells that from waiting for
//! a timer. So it runs on a tokio runtime with an ordinary clock, and the driver counts the attempts whose code is
//! running: the virtual clock moves only while there are none.
//!
//! The runtime has a thread of its own, so that code which blocks its thread can be reported instead of blocking the
//! test. Driver and thread never run at the same time: the driver lets the runtime run and waits until it stops. What
//! activities do without waiting therefore happens in the same order every time.

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

/// How much longer than its limit the runtime may take to stop before its thread is known to be blocked.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// The number of no attempt.
const NONE: u64 = 0;

/// The runtime of real activities.
pub(super) struct RealTime {
    handle: Handle,
    commands: Sender<Command>,
    stopped: Receiver<()>,
    in_flight: Arc<InFlight>,
    /// Whether an activity blocks the thread, which can then do nothing else any more.
    is_blocked: bool,
}

/// How long the runtime is to run.
enum Command {
    /// Until there is news, and at most this long.
    UntilNews(Duration),
    /// As far as it comes without waiting.
    WithoutWaiting,
}

/// The attempts whose code is running.
#[derive(Default)]
pub(super) struct InFlight {
    attempts: Mutex<Attempts>,
    /// The attempt that is being polled.
    polled: AtomicU64,
    /// Code has begun to run.
    begun: Notify,
    /// Code has ended, the store has changed, or an attempt on the virtual clock can go on.
    news: Notify,
}

#[derive(Default)]
struct Attempts {
    last: u64,
    running: BTreeMap<u64, RealAttempt>,
}

/// An attempt of a real activity.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RealAttempt {
    pub(super) activity: String,
    pub(super) instance: String,
    pub(super) attempt: u32,
    /// How long it has run in real time.
    spent: Duration,
}

impl InFlight {
    pub(super) fn is_empty(&self) -> bool {
        self.lock().running.is_empty()
    }

    /// Resolves when code has begun to run.
    pub(super) async fn begun(&self) {
        self.begun.notified().await;
    }

    /// The store has changed, which running code may wait for.
    pub(super) fn note_change(&self) {
        self.news.notify_one();
    }

    /// Runs an attempt on the virtual clock. While real code runs the driver does not poll it, so it has to be told when
    /// the attempt can go on: real code may wait for it.
    pub(super) fn tell_wakes<T>(
        in_flight: Arc<InFlight>,
        attempt: impl Future<Output = T>,
    ) -> impl Future<Output = T> {
        let mut attempt = Box::pin(attempt);
        poll_fn(move |context| {
            let waker = TellingWaker { waker: context.waker().clone(), in_flight: Arc::clone(&in_flight) };
            attempt.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::new(waker))))
        })
    }

    /// The attempt that has run for longest.
    fn longest(&self) -> Option<RealAttempt> {
        self.lock().running.values().max_by_key(|attempt| attempt.spent).cloned()
    }

    /// The attempt that is being polled, else the one that has run for longest.
    fn blocking(&self) -> Option<RealAttempt> {
        let polled = self.polled.load(Ordering::Relaxed);
        let polled = self.lock().running.get(&polled).cloned();
        polled.or_else(|| self.longest())
    }

    fn lock(&self) -> MutexGuard<'_, Attempts> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes a task, and tells the driver.
struct TellingWaker {
    waker: Waker,
    in_flight: Arc<InFlight>,
}

impl Wake for TellingWaker {
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
        let tokio = tokio.expect("the system has a thread and a selector left");
        let handle = tokio.handle().clone();
        let (commands, received) = channel();
        let (stops, stopped) = channel();
        let news = Arc::clone(&in_flight);
        std::thread::spawn(move || serve(tokio, &received, &stops, &news));
        RealTime { handle, commands, stopped, in_flight, is_blocked: false }
    }

    /// A handler whose code runs on this runtime.
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

    /// Lets code run until some of it ends, or something else can go on.
    ///
    /// # Errors
    ///
    /// The attempt that has run for longer than the limit.
    pub(super) fn run(&mut self, limit: Duration) -> Result<(), RealAttempt> {
        let Some(longest) = self.in_flight.longest() else { return Ok(()) };
        let left = limit.saturating_sub(longest.spent);
        if left.is_zero() && !self.is_blocked {
            return Err(longest);
        }
        self.command(Command::UntilNews(left), left)
    }

    /// Lets code, and tasks that it has spawned, go as far as they come without waiting.
    ///
    /// # Errors
    ///
    /// The attempt that blocks the thread for longer than the limit.
    pub(super) fn run_without_waiting(&mut self, limit: Duration) -> Result<(), RealAttempt> {
        self.command(Command::WithoutWaiting, limit)
    }

    fn command(&mut self, command: Command, limit: Duration) -> Result<(), RealAttempt> {
        // A task that an ended activity has left behind may block the thread as well; then there is nobody to name.
        let blocking = || self.in_flight.blocking().map_or(Ok(()), Err);
        if self.is_blocked {
            return blocking();
        }
        let began = Instant::now();
        self.commands.send(command).expect("the thread serves as long as this end exists");
        let is_stopped = self.stopped.recv_timeout(limit.saturating_add(STOP_GRACE)).is_ok();
        let spent = began.elapsed();
        self.in_flight.lock().running.values_mut().for_each(|attempt| attempt.spent += spent);
        if is_stopped {
            return Ok(());
        }
        let blocking = blocking();
        self.is_blocked = true;
        blocking
    }
}

/// Runs the runtime as it is told, until nobody tells it any more.
fn serve(tokio: Runtime, commands: &Receiver<Command>, stops: &Sender<()>, in_flight: &InFlight) {
    for command in commands {
        tokio.block_on(async {
            match command {
                Command::UntilNews(limit) => {
                    // News of before must not keep code from running.
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

/// An activity whose code runs in real time. What surrounds the code, its timeouts among it, stays on the virtual clock.
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
                    // The runtime ends with the test, and nobody polls this any more.
                    Err(_) => std::future::pending().await,
                },
            }
        })
    }
}

/// Counts an attempt for as long as its code exists.
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

/// Code that ends when nobody waits for it any more.
struct Running(JoinHandle<Result<Payload, Payload>>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}
