//! Raising events.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;

use perennial_core::shard::Request;
use perennial_core::{InstanceKey, Payload, check_key, check_name};

use super::sending::{Route, bound};
use super::{Client, check};
use crate::error::ClientError;
use crate::typed::EventContent;

impl Client {
    /// Raises an event at an instance. The event is durable when the returned future resolves.
    ///
    /// The instance need not wait for the event yet. Events that one client raises sequentially arrive in
    /// that order.
    ///
    /// In the runtime's process, an event that the waiting code cannot decode is refused
    /// ([`ClientError::BadEvent`]) and not recorded. From another process, or if the code does not wait for
    /// it yet, it is recorded; the instance is blocked when its code reads the event, until the event is
    /// [skipped](Client::skip_event) or the instance is ended.
    ///
    /// ```
    /// use perennial::prelude::*;
    ///
    /// const NAME: ExternalEvent<String> = ExternalEvent::named("name");
    ///
    /// #[orchestration]
    /// async fn hello(ctx: OrchestrationContext) -> Result<String, String> {
    ///     Ok(format!("Hello, {}!", ctx.schedule_wait(NAME).await))
    /// }
    ///
    /// # #[tokio::main]
    /// # async fn main() -> perennial::Result<()> {
    /// # let runtime = Runtime::open("memory:").register(hello).start().await?;
    /// let client = runtime.client();
    /// let run = client.start(hello, "hello-1", ()).await?;
    /// client.raise_event("hello-1", NAME, "Ada".to_owned()).await?;
    /// assert_eq!(run.result().await?, "Hello, Ada!");
    ///
    /// let nobody = client.raise_event("hello-2", NAME, "Grace".to_owned()).await;
    /// assert!(matches!(nobody, Err(ClientError::NotFound { .. })));
    /// # runtime.shutdown().await
    /// # }
    /// ```
    pub fn raise_event<'a, T, C>(&'a self, id: &'a str, event: T, content: C) -> RaiseEvent<'a>
    where
        T: EventContent<C>,
    {
        let content = T::encode(content).map_err(|error| ClientError::unwritable(id, error));
        RaiseEvent { client: self, id, name: event.name().into_owned(), content, key: None }
    }

    pub(super) async fn raise(
        &self,
        id: &str,
        instance: Option<InstanceKey>,
        name: &str,
        payload: Payload,
        key: Option<String>,
    ) -> Result<(), ClientError> {
        check("event", name, check_name)?;
        self.check_payload(id, &payload)?;
        let is_given = key.is_some();
        let key = key.unwrap_or_else(|| self.sender.draw_key());
        let (name, trace) = (name.to_owned(), self.caller_trace());
        let request = Request::Raise { name, payload, key: Some(key.clone()), trace };
        let (raised, route) = self.deliver_or_move(id, bound(instance, request)).await;
        // An event that was raised before, or both here and through the store, may be the one that ended the
        // instance.
        let may_be_taken = match route {
            Route::Here => is_given,
            Route::Late => false,
            Route::Moved { .. } => true,
        };
        match raised {
            Err(ClientError::Ended { .. }) if may_be_taken => {
                let instance = route.reached().or(instance);
                if self.has_taken(id, instance, &key).await? { Ok(()) } else { raised }
            }
            raised => raised,
        }
    }
}

/// An event, raised when this is awaited. See [`Client::raise_event`].
#[must_use = "the event is not raised until this is awaited"]
pub struct RaiseEvent<'a> {
    client: &'a Client,
    id: &'a str,
    name: String,
    content: Result<Payload, ClientError>,
    key: Option<String>,
}

impl RaiseEvent<'_> {
    /// Sets a deduplication key: a second event with the same key is dropped.
    ///
    /// Keys are remembered for the duration of an execution, and the last 1,000 of an instance across
    /// continue-as-new. If the instance has ended, its last 1,000 stored executions are searched for the key;
    /// if one of them took the event, the call succeeds.
    pub fn once(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    async fn send(self) -> Result<(), ClientError> {
        if let Some(key) = &self.key {
            check("key", key, check_key)?;
        }
        let (client, id) = (self.client, self.id);
        let raised = client.raise(id, client.only, &self.name, self.content?, self.key).await;
        client.tell_apart(id, raised).await
    }
}

impl<'a> IntoFuture for RaiseEvent<'a> {
    type Output = Result<(), ClientError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

impl fmt::Debug for RaiseEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RaiseEvent").field("id", &self.id).field("name", &self.name).finish_non_exhaustive()
    }
}
