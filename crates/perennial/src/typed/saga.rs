//! Sagas: what was done is undone when something later fails.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::context::OrchestrationContext;
use super::targets::ActivityTarget;

/// What undoes one step, once it is called. Its failure is told in words.
type Compensation = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> + Send>;

/// Undoes the steps that were done if a later one fails, the last step first.
///
/// A saga is plain orchestration code: what it schedules is durable, and after a crash it goes on where it was. Say how a
/// step is undone right after it; [`Saga::run`] undoes what was done if the code that it runs returns an error.
///
/// ```
/// use perennial::prelude::*;
///
/// #[activity]
/// async fn book(_: ActivityContext, what: String) -> Result<String, String> {
///     if what == "hotel" { Err("no rooms".to_owned()) } else { Ok(format!("{what}-1")) }
/// }
///
/// #[activity(retry = 10)]
/// async fn unbook(_: ActivityContext, booking: String) -> Result<(), String> {
///     Ok(())
/// }
///
/// #[orchestration]
/// async fn trip(ctx: OrchestrationContext) -> Result<Vec<String>, String> {
///     let saga = Saga::new(&ctx);
///     saga.run(async {
///         let mut bookings = Vec::new();
///         for what in ["flight", "hotel"] {
///             let booking = ctx.schedule_activity(book, what.to_owned()).await?;
///             saga.undo(unbook, booking.clone());
///             bookings.push(booking);
///         }
///         Ok(bookings)
///     })
///     .await
/// }
/// ```
///
/// A cancel request ends an orchestration without running its code, unless that watches for it:
///
/// ```
/// # use perennial::prelude::*;
/// # #[activity]
/// # async fn book(_: ActivityContext, what: String) -> Result<String, String> { Ok(what) }
/// # #[activity]
/// # async fn unbook(_: ActivityContext, booking: String) -> Result<(), String> { Ok(drop(booking)) }
/// #[orchestration]
/// async fn trip(ctx: OrchestrationContext) -> Result<(), String> {
///     let saga = Saga::new(&ctx);
///     let steps = saga.run(async {
///         saga.undo(unbook, ctx.schedule_activity(book, "flight".to_owned()).await?);
///         ctx.schedule_wait("paid").await;
///         Ok(())
///     });
///     // Boxed, so that the steps are dropped, and what they still wait for is cancelled, when they are undone.
///     match ctx.select2(Box::pin(steps), ctx.cancelled()).await {
///         Either::First(outcome) => outcome,
///         Either::Second(_) => {
///             saga.compensate().await;
///             ctx.end_cancelled(()).await
///         }
///     }
/// }
/// ```
#[must_use = "a saga that is dropped undoes nothing"]
pub struct Saga {
    ctx: OrchestrationContext,
    steps: Mutex<Vec<Compensation>>,
    failures: Mutex<Vec<String>>,
}

impl Saga {
    /// A saga in which nothing was done yet.
    pub fn new(ctx: &OrchestrationContext) -> Saga {
        Saga { ctx: ctx.clone(), steps: Mutex::default(), failures: Mutex::default() }
    }

    /// Says that the step before is undone by an activity. It is scheduled only if something later fails; give it
    /// retries, since nothing else is tried if it fails.
    pub fn undo<T, I, K>(&self, activity: T, input: I)
    where
        T: ActivityTarget<I, K>,
    {
        let input = self.ctx.encoded("the input of an activity", T::encode(input));
        let (name, options, ctx) = (activity.name().into_owned(), activity.options(), self.ctx.clone());
        self.undo_with(move || {
            let undone = ctx.core().schedule_activity(name, input);
            let undone = match options {
                Some(options) => undone.defaults(options),
                None => undone,
            };
            async move { undone.await.map(drop).map_err(String::from) }
        });
    }

    /// Says that the step before is undone by code. It is a closure, and called only if something later fails: what is
    /// scheduled begins when it is scheduled, not when it is awaited.
    pub fn undo_with<F, O, E>(&self, compensation: impl FnOnce() -> F + Send + 'static)
    where
        F: Future<Output = Result<O, E>> + Send + 'static,
        E: fmt::Display,
    {
        let compensation: Compensation = Box::new(move || {
            let undone = compensation();
            Box::pin(async move { undone.await.map(drop).map_err(|error| error.to_string()) })
        });
        lock(&self.steps).push(compensation);
    }

    /// Runs the steps. If they return an error, what was done is undone before that error is returned.
    ///
    /// A compensation that fails stops no other; it is logged, and [`Saga::failures`] tells.
    pub async fn run<T, E>(&self, steps: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let outcome = steps.await;
        if outcome.is_err() {
            self.compensate().await;
        }
        outcome
    }

    /// Undoes what was done, the last step first, and forgets it.
    pub async fn compensate(&self) {
        loop {
            // The lock is released before the compensation runs.
            let Some(compensation) = lock(&self.steps).pop() else { return };
            if let Err(failure) = compensation().await {
                self.ctx.trace_error(format_args!("a step of a saga could not be undone: {failure}"));
                lock(&self.failures).push(failure);
            }
        }
    }

    /// Why steps could not be undone, in words.
    pub fn failures(&self) -> Vec<String> {
        lock(&self.failures).clone()
    }

    /// How many steps would be undone.
    pub fn len(&self) -> usize {
        lock(&self.steps).len()
    }

    /// Whether there is nothing to undo.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Saga {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Saga").field("steps", &self.len()).finish()
    }
}
