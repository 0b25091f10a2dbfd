//! Handlers of events, queries and updates.
//!
//! Each handler is installed with a value that it shares with the rest of the code, usually a
//! [`State`](perennial_core::State). The library clones the value for every call, so that handlers do not
//! have to.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;

use perennial_core::{NotOfType, Payload};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::context::OrchestrationContext;
use super::events::EventTarget;
use super::targets::{QueryHandled, UpdateHandled};

impl OrchestrationContext {
    /// Handles every event of a name in its own unit, including events that arrived before. The handler gets
    /// a clone of `shared`: a [`State`](perennial_core::State), a context, both as a tuple, or `()`.
    pub fn on_event<T, S, F, Fut>(&self, event: T, shared: &S, handler: F)
    where
        T: EventTarget,
        T::Content: DeserializeOwned + 'static,
        S: Clone + Send + Sync + 'static,
        F: Fn(S, T::Content) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let (ctx, shared) = (self.core().clone(), shared.clone());
        self.core().on_event(event.name(), move |payload| match T::read(payload) {
            Ok(content) => handler(shared.clone(), content),
            Err(mismatch) => ctx.refuse_payload(&mismatch),
        });
    }

    /// Answers a query: a [`Query`](super::Query), or a name. The handler is read-only; it usually reads a
    /// shared [`State`](perennial_core::State). Its return value is the answer, even if that is a `Result`.
    pub fn on_query<T, S, I, O, F>(&self, query: T, shared: &S, handler: F)
    where
        T: QueryHandled<I, O>,
        S: Clone + Send + Sync + 'static,
        I: DeserializeOwned,
        O: Serialize,
        F: Fn(&S, I) -> O + Send + Sync + 'static,
    {
        let shared = shared.clone();
        self.core().on_query(query.name(), move |payload| {
            let input = payload.decode_as::<I>().map_err(|mismatch| not_read(&mismatch))?;
            Payload::encode(&handler(&shared, input)).map_err(|error| Payload::from(error.to_string()))
        });
    }

    /// Handles an update: an [`Update`](super::Update), or a name. The handler gets a clone of `shared` and
    /// runs in its own unit; its result is the answer. Every update that can be decoded is accepted, unless
    /// [`validate`](UpdateHandler::validate) refuses it.
    ///
    /// ```
    /// use perennial::prelude::*;
    ///
    /// const ADD: Update<String, usize> = Update::named("add");
    ///
    /// #[orchestration]
    /// async fn cart(ctx: OrchestrationContext) -> Result<Vec<String>, String> {
    ///     let items = ctx.state(Vec::new());
    ///     ctx.on_update(ADD, &items, |items, item| async move {
    ///         Ok(items.update(|items| {
    ///             items.push(item);
    ///             items.len()
    ///         }))
    ///     })
    ///     .validate(|items, item| match items.read(|items| items.contains(item)) {
    ///         true => Err(format!("{item} is in the cart")),
    ///         false => Ok(()),
    ///     });
    ///     ctx.wait_until(&items, |items| items.len() == 2).await;
    ///     Ok(items.read(Clone::clone))
    /// }
    ///
    /// # #[tokio::main]
    /// # async fn main() -> perennial::Result<()> {
    /// # let runtime = Runtime::open("memory:").register(cart).start().await?;
    /// let client = runtime.client();
    /// let run = client.start(cart, "cart-1", ()).await?;
    /// assert_eq!(client.update("cart-1", ADD, "tea".to_owned()).await?, 1);
    /// assert!(client.update("cart-1", ADD, "tea".to_owned()).await.is_err());
    /// client.update("cart-1", ADD, "milk".to_owned()).await?;
    /// assert_eq!(run.result().await?, ["tea", "milk"]);
    /// # runtime.shutdown().await
    /// # }
    /// ```
    #[track_caller]
    pub fn on_update<T, S, I, O, E, F, Fut>(
        &self,
        update: T,
        shared: &S,
        handler: F,
    ) -> UpdateHandler<'_, S, I, E>
    where
        T: UpdateHandled<I, O, E>,
        S: Clone + Send + Sync + 'static,
        I: DeserializeOwned,
        O: Serialize,
        E: Serialize,
        F: Fn(S, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
    {
        let name = update.name().into_owned();
        let can_be_read =
            |payload: &Payload| payload.decode_as::<I>().map(drop).map_err(|mismatch| not_read(&mismatch));
        let (ctx, given) = (self.core().clone(), shared.clone());
        self.core().on_update(name.clone(), can_be_read, move |payload| {
            let (ctx, answer) = (
                ctx.clone(),
                match payload.decode_as::<I>() {
                    Ok(input) => handler(given.clone(), input),
                    Err(mismatch) => ctx.refuse_payload(&mismatch),
                },
            );
            async move {
                match answer.await {
                    Ok(output) => Ok(ctx.encode("the answer of an update", &output)),
                    Err(error) => Err(ctx.encode("the error of an update", &error)),
                }
            }
        });
        UpdateHandler { ctx: self, name, shared: shared.clone(), types: PhantomData }
    }
}

/// An installed update handler. See [`OrchestrationContext::on_update`].
pub struct UpdateHandler<'a, S, I, E> {
    ctx: &'a OrchestrationContext,
    name: String,
    shared: S,
    types: PhantomData<fn(I) -> E>,
}

impl<S, I, E> UpdateHandler<'_, S, I, E>
where
    S: Send + Sync + 'static,
    I: DeserializeOwned,
    E: Serialize,
{
    /// Decides between turns whether an update is accepted. The validator is read-only. A refused update is
    /// not recorded; its caller gets the error.
    pub fn validate(self, validate: impl Fn(&S, &I) -> Result<(), E> + Send + Sync + 'static) {
        let shared = self.shared;
        self.ctx.core().validate_update(&self.name, move |payload| {
            let input = payload.decode_as::<I>().map_err(|mismatch| not_read(&mismatch))?;
            validate(&shared, &input).map_err(|error| {
                Payload::encode(&error).unwrap_or_else(|error| Payload::from(error.to_string()))
            })
        });
    }
}

impl<S, I, E> fmt::Debug for UpdateHandler<'_, S, I, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UpdateHandler").field(&self.name).finish()
    }
}

/// The error for an input of another type.
fn not_read(mismatch: &NotOfType) -> Payload {
    Payload::from(mismatch.to_string())
}
