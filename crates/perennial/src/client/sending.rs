//! Requests to one instance: cancel, terminate, retry, skip. In the runtime's process they are put to the lane; the
//! rest is written into the store for whoever owns the instance.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::Duration;

use perennial_core::shard::{Message, Request, Response};
use perennial_core::store::{InboxNumber, SendOutcome, SendRequest, Skippable};
use perennial_core::{Ending, EventId, InstanceKey, Job, Turn, check_derived_id};

use super::{Client, check};
use crate::error::ClientError;
use crate::runtime::Runtime;

/// How long code that took cancellation over may clean up, if asked from outside of the runtime.
const GUEST_CANCEL_GRACE_MS: u64 = 30_000;

impl Client {
    /// Asks an instance to cancel. Code that took cancellation over cleans up first, for as long as its grace lasts.
    ///
    /// ```
    /// # use perennial::prelude::*;
    /// # async fn stop(client: &Client) -> perennial::Result<()> {
    /// client.cancel("order-1", "out of stock").await?;
    /// client.cancel("order-2", "out of stock").grace(Duration::from_secs(300)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn cancel<'a>(&'a self, id: &'a str, reason: &'a str) -> Cancel<'a> {
        Cancel { client: self, id, reason, grace: None }
    }

    pub(super) async fn cancel_bound(
        &self,
        id: &str,
        key: Option<InstanceKey>,
        reason: &str,
        grace: Option<Duration>,
    ) -> Result<(), ClientError> {
        self.check_size(id, reason.len())?;
        let grace_ms = grace.map(whole_ms);
        self.deliver(id, bound(key, Request::Cancel { reason: reason.to_owned(), grace_ms })).await
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

    /// Tries a blocked instance again. One that is paused is [`ClientError::NotBlocked`]: see [`Client::resume`].
    pub async fn retry(&self, id: &str) -> Result<(), ClientError> {
        if self.driver.is_none() {
            // The owner takes the request from the store and has nobody to answer.
            let blocked = self.row(id).await?.blocked;
            if blocked.is_some_and(|blocked| blocked.pause.is_some()) {
                return Err(ClientError::NotBlocked { id: id.to_owned() });
            }
        }
        self.deliver(id, Request::Retry).await
    }

    /// Tries a blocked instance again without the external event that its code cannot read. `event` is the number in
    /// [`Blocked::event`](crate::client::Blocked::event), which the reason of the block names; any other is refused. That the
    /// event was skipped is recorded, and the code gets the next of its name.
    pub async fn skip_event(&self, id: &str, event: EventId) -> Result<(), ClientError> {
        self.skip(id, Skippable::Event(event)).await
    }

    /// Tries a blocked instance again without the message in its inbox that nobody can read. `number` is that in
    /// [`Blocked::message`](crate::client::Blocked::message), which the reason of the block names; any other is refused. The message
    /// is deleted, and the history records that. What it said is lost: if it was the outcome of a child, the instance
    /// waits for that child on, and can be [reset](Client::reset).
    pub async fn skip_message(&self, id: &str, number: u64) -> Result<(), ClientError> {
        self.skip(id, Skippable::Message(number)).await
    }

    async fn skip(&self, id: &str, what: Skippable) -> Result<(), ClientError> {
        let mut key = None;
        if self.driver.is_none() {
            // The owner takes the request from the store and has nobody to answer.
            let row = self.row(id).await?;
            match row.blocked {
                _ if row.status.is_final() => return Err(ClientError::Ended { id: id.to_owned() }),
                None => return Err(ClientError::NotBlocked { id: id.to_owned() }),
                Some(blocked) if blocked.skippable() != Some(what) => {
                    let blocking = blocked.skippable();
                    return Err(ClientError::NotBlockedBy { id: id.to_owned(), blocking });
                }
                // That instance is meant, and not another one that has its id by then.
                Some(_) => key = Some(row.key),
            }
        }
        self.deliver(id, bound(key, Request::Skip(what))).await
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
        match self.request_here(id, request.clone()).await {
            Err(error) => (Err(error), Route::Here),
            Ok(LocalOutcome::Here(answer)) => {
                let route = if matches!(answer, Response::TooLate) { Route::Late } else { Route::Here };
                (outcome_of(id, answer).map(drop), route)
            }
            Ok(LocalOutcome::Elsewhere { reached }) => {
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
            Request::Cancel { reason, grace_ms } => {
                let grace_ms = grace_ms.unwrap_or(GUEST_CANCEL_GRACE_MS);
                Message::Job(Job::OrchestrationCancelRequested { reason, grace_ms })
            }
            Request::Terminate { reason } => Message::Terminate { reason },
            Request::Retry => Message::Retry,
            Request::Pause(pause) => Message::Pause(pause),
            Request::Resume(why) => Message::Resume(why),
            Request::Skip(Skippable::Event(event_id)) => Message::Job(Job::ExternalEventSkipped { event_id }),
            Request::Skip(Skippable::Message(number)) => Message::SkipMessage { number },
            Request::Start(_) | Request::AwaitEnd | Request::Call(_) | Request::Bound { .. } => {
                let what = "starts, questions and waiting have calls of their own";
                return Err(ClientError::NotHere { what });
            }
        };
        let dedupe = message.dedupe().map(str::to_owned);
        let (urgent, body) = (message.is_urgent(), message.encode());
        self.send(id, SendRequest::Message { id: id.to_owned(), key, dedupe, urgent, body }).await.map(drop)
    }

    /// Asks the runtime of this process, if there is one.
    pub(super) async fn request_here(&self, id: &str, request: Request) -> Result<LocalOutcome, ClientError> {
        let Some(driver) = &self.driver else { return Ok(LocalOutcome::Elsewhere { reached: None }) };
        let after = self.sender.after(id);
        let answer = driver.request(id, request, after).await;
        match answer.map_err(|reason| ClientError::Stopped { reason })? {
            Response::Moved { key } => Ok(LocalOutcome::Elsewhere { reached: key }),
            answer => Ok(LocalOutcome::Here(answer)),
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

/// A request to cancel an instance: await it to send it.
#[derive(Debug)]
#[must_use = "nothing is sent unless it is awaited"]
pub struct Cancel<'a> {
    client: &'a Client,
    id: &'a str,
    reason: &'a str,
    grace: Option<Duration>,
}

impl Cancel<'_> {
    /// How long the instance may clean up before it is terminated, counted from the turn that hears of the request. By
    /// default 30 s, or what the runtime was given.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }
}

impl<'a> IntoFuture for Cancel<'a> {
    type Output = Result<(), ClientError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        let Cancel { client, id, reason, grace } = self;
        Box::pin(client.cancel_bound(id, None, reason, grace))
    }
}

/// Whole milliseconds, rounded up.
fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// What came of asking the runtime of this process.
pub(super) enum LocalOutcome {
    /// It answered.
    Here(Response),
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
        /// See [`LocalOutcome::Elsewhere`].
        reached: Option<InstanceKey>,
    },
}

impl Route {
    pub(super) fn reached(self) -> Option<InstanceKey> {
        match self {
            Route::Moved { reached } => reached,
            Route::Here | Route::Late => None,
        }
    }
}

/// What an answer of the runtime means to a caller; the ending of an instance, if it was asked for.
pub(super) fn outcome_of(id: &str, answer: Response) -> Result<Option<Ending>, ClientError> {
    let id = id.to_owned();
    match answer {
        Response::Started(_) | Response::Accepted => Ok(None),
        Response::Ended(ending) => Ok(Some(*ending)),
        Response::AlreadyExists(status) => Err(ClientError::AlreadyExists { id, status }),
        Response::EndedBefore | Response::TooLate => Err(ClientError::Ended { id }),
        Response::NotFound => Err(ClientError::NotFound { id }),
        Response::Full { unread } => Err(ClientError::Full { id, unread }),
        Response::NotBlocked => Err(ClientError::NotBlocked { id }),
        Response::OrchestrationPaused => Err(ClientError::OrchestrationPaused { id, name: String::new() }),
        Response::NotBlockedBy { blocking } => Err(ClientError::NotBlockedBy { id, blocking }),
        Response::Unreadable { event, type_name, problem } => {
            Err(ClientError::BadEvent { id, event, type_name, problem })
        }
        Response::Unknown { reason } => Err(ClientError::Unknown { id, reason }),
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
