//! Sagas: completed steps are undone when a later one fails.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::context::OrchestrationContext;
use super::targets::ActivityTarget;

/// Undoes one step. An error is returned as text.
type Compensation = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> + Send>;

/// Undoes completed steps in reverse order if a later one fails.
///
/// A saga is plain orchestration code: everything it schedules is durable, and after a crash it continues
/// where it was. Register the compensation right after each step; [`Saga::run`] runs the compensations if its
/// code returns an error.
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
/// A cancel request ends an orchestration without running its code, unless the code watches for it:
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
///     // Boxed, so that the steps are dropped, and their open calls cancelled, before they are undone.
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
    /// Creates a saga without steps.
    pub fn new(ctx: &OrchestrationContext) -> Saga {
        Saga { ctx: ctx.clone(), steps: Mutex::default(), failures: Mutex::default() }
    }

    /// Registers an activity that undoes the preceding step. It is scheduled only if a later step fails. Give
    /// it retries: if it fails, nothing else is tried.
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

    /// Registers code that undoes the preceding step. The closure is called only if a later step fails. It
    /// has to be a closure because scheduled work begins when it is scheduled, not when it is awaited.
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

    /// Runs the steps. If they return an error, completed steps are undone before the error is returned.
    ///
    /// A compensation that fails does not stop the others; it is logged and listed by [`Saga::failures`].
    pub async fn run<T, E>(&self, steps: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let outcome = steps.await;
        if outcome.is_err() {
            self.compensate().await;
        }
        outcome
    }

    /// Undoes the completed steps in reverse order and removes them.
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

    /// The errors of failed compensations, as text.
    pub fn failures(&self) -> Vec<String> {
        lock(&self.failures).clone()
    }

    /// The number of steps that would be undone.
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
