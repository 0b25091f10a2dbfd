//! Requests to one instance: events, cancel, terminate, retry, skip. In the runtime's process they are put to the lane; the
//! rest is written into the store for whoever owns the instance.

use perennial_core::history::is_drawn_key;
use perennial_core::shard::{Answer, Message, Request};
use perennial_core::store::{InboxNumber, SendOutcome, SendRequest};
use perennial_core::{
    Ending, EventId, InstanceKey, Job, NameError, Payload, Turn, check_derived_id, check_name,
};

use super::{Client, check};
use crate::error::ClientError;
use crate::runtime::Runtime;
use crate::typed::EventContent;

/// How long code that took cancellation over may clean up, if asked from outside of the runtime.
const GUEST_CANCEL_GRACE_MS: u64 = 30_000;

impl Client {
    /// Raises an event at an instance. It is durable when this returns.
    ///
    /// The instance need not wait for it yet. What one client raises, one call after another, arrives in that order.
    ///
    /// In the runtime's process, an event that the waiting code cannot read is refused ([`ClientError::BadEvent`]) and not
    /// recorded. From elsewhere, or if nothing waits for it yet, it is recorded; the code that reads it later is blocked
    /// until somebody [skips the event](Client::skip_event) or ends the instance.
    ///
    /// ```
    /// use perennial::prelude::*;
    ///
    /// const NAME: Event<String> = Event::named("name");
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
    pub async fn raise_event<T, C>(&self, id: &str, event: T, content: C) -> Result<(), ClientError>
    where
        T: EventContent<C>,
    {
        let content = T::encode(content).map_err(|error| ClientError::unwritable(id, error))?;
        self.raise(id, None, &event.name(), content, None).await
    }

    /// Raises an event once: a second one with the same key is dropped.
    ///
    /// Keys are remembered for as long as an execution lasts, and the last 1,000 of an instance through continue-as-new.
    /// An instance that has ended is searched for the key, the last 1,000 of its executions that are stored: one that
    /// took the event then is no error.
    pub async fn raise_event_once<T, C>(
        &self,
        id: &str,
        event: T,
        key: &str,
        content: C,
    ) -> Result<(), ClientError>
    where
        T: EventContent<C>,
    {
        check("key", key, check_key)?;
        let content = T::encode(content).map_err(|error| ClientError::unwritable(id, error))?;
        self.raise(id, None, &event.name(), content, Some(key.to_owned())).await
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
        let (name, trace) = (name.to_owned(), self.trace.clone());
        let request = Request::Raise { name, payload, key: Some(key.clone()), trace };
        let (raised, route) = self.deliver_or_move(id, bound(instance, request)).await;
        // One that was raised before, or here and then through the store, may have been what ended it.
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

    /// Asks an instance to cancel. Code that took cancellation over cleans up first.
    pub async fn cancel(&self, id: &str, reason: &str) -> Result<(), ClientError> {
        self.cancel_bound(id, None, reason).await
    }

    pub(super) async fn cancel_bound(
        &self,
        id: &str,
        key: Option<InstanceKey>,
        reason: &str,
    ) -> Result<(), ClientError> {
        self.check_size(id, reason.len())?;
        self.deliver(id, bound(key, Request::Cancel { reason: reason.to_owned() })).await
    }

    /// Ends an instance without running its code, blocked or not.
    pub async fn terminate(&self, id: &str, reason: &str) -> Result<(), ClientError> {
        self.terminate_bound(id, None, reason).await
    }

    pub(super) async fn terminate_bound(
        &self,
        id: &str,
        key: Option<InstanceKey>,
        reason: &str,
    ) -> Result<(), ClientError> {
        self.check_size(id, reason.len())?;
        let request = bound(key, Request::Terminate { reason: reason.to_owned() });
        // It needs no code; so it need not wait for a runtime if none owns the store.
        match self.own_for_maintenance().await {
            Some(owner) => {
                let done = owner.client().deliver(id, request).await;
                let released = owner.shutdown().await;
                done.and(released.map_err(|error| ClientError::Unknown {
                    id: id.to_owned(),
                    reason: format!("the store was not given up in good order: {error}"),
                }))
            }
            None => self.deliver(id, request).await,
        }
    }

    /// Owns the store for a moment, if this client is outside of a runtime and nobody owns it.
    pub(super) async fn own_for_maintenance(&self) -> Option<Runtime> {
        let url = self.url.as_ref()?;
        // A store that somebody owns, or that cannot be owned, is reached by a message.
        Runtime::open(&**url).codecs(self.codecs.clone()).for_maintenance().start().await.ok()
    }

    /// Tries a blocked instance again.
    pub async fn retry(&self, id: &str) -> Result<(), ClientError> {
        self.deliver(id, Request::Retry).await
    }

    /// Tries a blocked instance again without the external event that its code cannot read. `event` is the number in
    /// [`Blocked::event`](crate::Blocked::event), which the reason of the block names; any other is refused. That the
    /// event was skipped is recorded, and the code gets the next of its name.
    pub async fn skip_event(&self, id: &str, event: EventId) -> Result<(), ClientError> {
        if self.driver.is_none() {
            // The owner takes the request from the store and has nobody to answer.
            let row = self.row(id).await?;
            match row.blocked {
                _ if row.status.is_final() => return Err(ClientError::Ended { id: id.to_owned() }),
                None => return Err(ClientError::NotBlocked { id: id.to_owned() }),
                Some(blocked) if blocked.event != Some(event) => {
                    return Err(ClientError::NotBlockedBy { id: id.to_owned(), blocking: blocked.event });
                }
                Some(_) => {}
            }
        }
        self.deliver(id, Request::Skip { event }).await
    }

    pub(super) async fn retry_bound(&self, id: &str, key: InstanceKey) -> Result<(), ClientError> {
        self.deliver(id, bound(Some(key), Request::Retry)).await
    }

    pub(super) async fn deliver(&self, id: &str, request: Request) -> Result<(), ClientError> {
        let is_for_its_end = request.is_for_the_end();
        match self.deliver_or_move(id, request).await {
            // It ran when the request reached it. Whether this has ended it or something else, it is over.
            (
                Err(ClientError::Ended { .. } | ClientError::NotFound { .. }),
                Route::Moved { reached: Some(_) },
            ) if is_for_its_end => Ok(()),
            (delivered, _) => delivered,
        }
    }

    /// Delivers a request, and tells how it went.
    pub(super) async fn deliver_or_move(
        &self,
        id: &str,
        request: Request,
    ) -> (Result<(), ClientError>, Route) {
        if let Err(error) = check("instance id", id, check_derived_id) {
            return (Err(error), Route::Here);
        }
        match self.ask(id, request.clone()).await {
            Err(error) => (Err(error), Route::Here),
            Ok(Asked::Here(answer)) => {
                let route = if matches!(answer, Answer::TooLate) { Route::Late } else { Route::Here };
                (outcome_of(id, answer).map(drop), route)
            }
            Ok(Asked::Elsewhere { reached }) => {
                let route = if self.driver.is_some() { Route::Moved { reached } } else { Route::Here };
                // What may have been done was done to that instance, and not to another one that has its id by now.
                let request = match request {
                    Request::Bound { .. } => request,
                    request => bound(reached, request),
                };
                (self.send_message(id, request).await, route)
            }
        }
    }

    /// Whether an event or update with a key is recorded for an instance.
    pub(super) async fn has_taken(
        &self,
        id: &str,
        instance: Option<InstanceKey>,
        key: &str,
    ) -> Result<bool, ClientError> {
        let row = self.row_of(id, instance).await?;
        let found = self.search_executions(&row, |_, history| {
            let mut jobs = history.turns.iter().flat_map(Turn::jobs);
            jobs.any(|(_, job)| job.key() == Some(key)).then_some(())
        });
        Ok(found.await?.is_some())
    }

    /// Sends a request through the store, to whoever owns the instance.
    pub(super) async fn send_message(&self, id: &str, request: Request) -> Result<(), ClientError> {
        let (key, request) = match request {
            Request::Bound { key, request } => (Some(key), *request),
            request => (None, request),
        };
        let message = match request {
            Request::Raise { name, payload, key, trace } => {
                Message::Job(Job::ExternalEvent { name, payload, key, trace })
            }
            Request::Cancel { reason } => {
                let grace_ms = GUEST_CANCEL_GRACE_MS;
                Message::Job(Job::OrchestrationCancelRequested { reason, grace_ms })
            }
            Request::Terminate { reason } => Message::Terminate { reason },
            Request::Retry => Message::Retry,
            Request::Skip { event } => Message::Job(Job::ExternalEventSkipped { event_id: event }),
            Request::Start(_) | Request::AwaitEnd | Request::Ask(_) | Request::Bound { .. } => {
                let what = "starts, questions and waiting have calls of their own";
                return Err(ClientError::NotHere { what });
            }
        };
        let dedupe = message.dedupe().map(str::to_owned);
        let (urgent, body) = (message.is_urgent(), message.encode());
        self.send(id, SendRequest::Message { id: id.to_owned(), key, dedupe, urgent, body }).await.map(drop)
    }

    /// Asks the runtime of this process, if there is one.
    pub(super) async fn ask(&self, id: &str, request: Request) -> Result<Asked, ClientError> {
        let Some(driver) = &self.driver else { return Ok(Asked::Elsewhere { reached: None }) };
        let after = self.sender.after(id);
        let answer = driver.ask(id, request, after).await;
        match answer.map_err(|reason| ClientError::Stopped { reason })? {
            Answer::Moved { key } => Ok(Asked::Elsewhere { reached: key }),
            answer => Ok(Asked::Here(answer)),
        }
    }

    /// Sends something through the store. Returns the number that it has there.
    pub(super) async fn send(&self, id: &str, request: SendRequest) -> Result<InboxNumber, ClientError> {
        let outcomes = self.call(id, |store, reply| store.send(vec![request], reply)).await?;
        let owned = id.to_owned();
        match outcomes.into_iter().next() {
            Some(SendOutcome::Sent(number) | SendOutcome::Duplicate(number)) => {
                self.sender.note(id, number);
                Ok(number)
            }
            Some(SendOutcome::IdTaken(row)) => {
                Err(ClientError::AlreadyExists { id: owned, status: row.status })
            }
            Some(SendOutcome::NoInstance) => {
                self.sender.forget(id);
                Err(ClientError::NotFound { id: owned })
            }
            Some(SendOutcome::Ended(_)) => {
                self.sender.forget(id);
                Err(ClientError::Ended { id: owned })
            }
            Some(SendOutcome::Full(unread)) => Err(ClientError::Full { id: owned, unread }),
            None => Err(ClientError::Unknown { id: owned, reason: "the store did not say".to_owned() }),
        }
    }
}

/// What came of asking the runtime of this process.
pub(super) enum Asked {
    /// It answered.
    Here(Answer),
    /// There is none, or it does not own the instance: the store's route is left.
    Elsewhere {
        /// The instance that it had found before it lost it, and to which it may have done what was asked.
        reached: Option<InstanceKey>,
    },
}

/// How a request was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// It was answered by whoever was asked.
    Here,
    /// It came with the turn that ended the instance, which did not read it.
    Late,
    /// The runtime of this process was asked first and did not own the instance: it may have done what was asked before
    /// it lost it.
    Moved {
        /// See [`Asked::Elsewhere`].
        reached: Option<InstanceKey>,
    },
}

impl Route {
    fn reached(self) -> Option<InstanceKey> {
        match self {
            Route::Moved { reached } => reached,
            Route::Here | Route::Late => None,
        }
    }
}

/// What an answer of the runtime means to a caller; the ending of an instance, if it was asked for.
pub(super) fn outcome_of(id: &str, answer: Answer) -> Result<Option<Ending>, ClientError> {
    let id = id.to_owned();
    match answer {
        Answer::Started(_) | Answer::Accepted => Ok(None),
        Answer::Ended(ending) => Ok(Some(*ending)),
        Answer::AlreadyExists(status) => Err(ClientError::AlreadyExists { id, status }),
        Answer::EndedBefore | Answer::TooLate => Err(ClientError::Ended { id }),
        Answer::NotFound => Err(ClientError::NotFound { id }),
        Answer::Full { unread } => Err(ClientError::Full { id, unread }),
        Answer::NotBlocked => Err(ClientError::NotBlocked { id }),
        Answer::NotBlockedBy { blocking } => Err(ClientError::NotBlockedBy { id, blocking }),
        Answer::Unreadable { event, type_name, problem } => {
            Err(ClientError::BadEvent { id, event, type_name, problem })
        }
        Answer::Unknown { reason } => Err(ClientError::Unknown { id, reason }),
        other => Err(ClientError::Unknown { id, reason: format!("unexpected: {other:?}") }),
    }
}

/// A request that is meant for the instance with a key, if it is known.
pub(super) fn bound(key: Option<InstanceKey>, request: Request) -> Request {
    match key {
        Some(key) => Request::Bound { key, request: Box::new(request) },
        None => request,
    }
}

/// A key that a caller gives. Those that begin with `~` are drawn by clients, and are not remembered for long.
pub(super) fn check_key(key: &str) -> Result<(), NameError> {
    check_derived_id(key)?;
    if is_drawn_key(key) { Err(NameError::DrawnKey) } else { Ok(()) }
}
