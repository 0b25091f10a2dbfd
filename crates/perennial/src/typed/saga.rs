//! Sagas: what was done is undone when something later fails.

use std::future::Future;
use std::pin::Pin;

/// What undoes one step, once it is called.
type Compensation<E> = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = Result<(), E>> + Send>> + Send>;

/// Collects compensations and runs them in reverse.
///
/// A saga is plain orchestration code: what it schedules is durable, and after a crash it goes on where it was. Add a
/// compensation right after the step that it undoes; on failure or cancellation call [`Saga::compensate`].
///
/// ```
/// use perennial::prelude::*;
///
/// #[activity]
/// async fn book(_: ActivityContext, what: String) -> Result<String, String> {
///     if what == "hotel" { Err("no rooms".to_owned()) } else { Ok(format!("{what}-1")) }
/// }
///
/// #[activity]
/// async fn cancel(_: ActivityContext, booking: String) -> Result<(), String> {
///     Ok(())
/// }
///
/// #[orchestration]
/// async fn trip(ctx: OrchestrationContext) -> Result<Vec<String>, String> {
///     let mut saga = Saga::new();
///     let mut bookings = Vec::new();
///     for what in ["flight", "hotel"] {
///         match ctx.schedule_activity(book, what.to_owned()).await {
///             Ok(booking) => {
///                 let (ctx, undo) = (ctx.clone(), booking.clone());
///                 saga.add(move || ctx.schedule_activity(cancel, undo));
///                 bookings.push(booking);
///             }
///             Err(error) => {
///                 let failures = saga.compensate().await;
///                 return Err(format!("{error}; {} could not be undone", failures.len()));
///             }
///         }
///     }
///     Ok(bookings)
/// }
/// ```
#[must_use = "a saga that is dropped undoes nothing"]
pub struct Saga<E = String> {
    compensations: Vec<Compensation<E>>,
}

impl<E> Default for Saga<E> {
    fn default() -> Saga<E> {
        Saga { compensations: Vec::new() }
    }
}

impl<E> Saga<E> {
    /// A saga in which nothing was done yet.
    pub fn new() -> Saga<E> {
        Saga::default()
    }

    /// Adds what undoes the step before. It is a closure, and called only if the saga is compensated: what is scheduled
    /// begins when it is scheduled, not when it is awaited.
    pub fn add<F>(&mut self, compensation: impl FnOnce() -> F + Send + 'static)
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
    {
        self.compensations.push(Box::new(move || Box::pin(compensation())));
    }

    /// How many steps can be undone.
    pub fn len(&self) -> usize {
        self.compensations.len()
    }

    /// Whether there is nothing to undo.
    pub fn is_empty(&self) -> bool {
        self.compensations.is_empty()
    }

    /// Undoes what was done, the last step first. One that fails stops no other; what failed is returned.
    pub async fn compensate(mut self) -> Vec<E> {
        let mut failures = Vec::new();
        while let Some(compensation) = self.compensations.pop() {
            if let Err(failure) = compensation().await {
                failures.push(failure);
            }
        }
        failures
    }
}

impl<E> std::fmt::Debug for Saga<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Saga").field("steps", &self.len()).finish()
    }
}
