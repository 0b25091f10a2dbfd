//! Requests to one instance: cancel, terminate, retry, skip. In the runtime's process they go to the lane;
//! otherwise they are written into the store for the owner of the instance.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::Duration;

use perennial_core::shard::{CallReply, InstanceCall, Message, Request, Response};
use perennial_core::store::{InboxNumber, SendOutcome, SendRequest, Skippable};
use perennial_core::{Ending, ErrorCode, EventId, InstanceKey, Job, Turn, check_derived_id};

use super::instance_calls::outcome;
use super::{Client, check};
use crate::error::ClientError;
use crate::runtime::Runtime;

/// The grace period for code that handles cancellation itself, if the request comes from another process.
const GUEST_CANCEL_GRACE_MS: u64 = 30_000;

impl Client {
    /// Requests the cancellation of an instance. Code that handles cancellation itself cleans up first,
    /// within the grace period.
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
        let terminated = self.terminate_bound(id, self.only, reason).await;
        self.tell_apart(id, terminated).await
    }

    pub(super) async fn terminate_bound(
        &self,
        id: &str,
        key: Option<InstanceKey>,
        reason: &str,
    ) -> Result<(), ClientError> {
        self.check_size(id, reason.len())?;
        let request = bound(key, Request::Terminate { reason: reason.to_owned() });
        // Terminating needs no code, so it need not wait for a runtime if none owns the store.
        match self.own_for_maintenance().await {
            Some(owner) => {
                let done = owner.client().deliver(id, request).await;
                match owner.shutdown().await {
                    // A node that came in between has the store, so that nothing was left to release.
                    Err(error) if error.code() != ErrorCode::StoreInUse => {
                        let reason = format!("the store was not released properly: {error}");
                        done.and(Err(ClientError::Unknown { id: id.to_owned(), reason }))
                    }
                    _ => done,
                }
            }
            None => self.deliver(id, request).await,
        }
    }

    /// Owns the store briefly, if this client is outside of a runtime and no process owns the store.
    pub(super) async fn own_for_maintenance(&self) -> Option<Runtime> {
        let url = self.url.as_ref()?;
        // If the store is owned, or cannot be owned, a message is sent instead.
        Runtime::open(&**url).codecs(self.codecs.clone()).for_maintenance().start().await.ok()
    }

    /// Retries a blocked instance. A paused one is [`ClientError::NotBlocked`]: see [`Client::resume`].
    pub async fn retry(&self, id: &str) -> Result<(), ClientError> {
        if self.driver.is_none() {
            // The owner reads the request from the store and cannot reply.
            let blocked = self.row(id).await?.blocked;
            if blocked.is_some_and(|blocked| blocked.pause.is_some()) {
                return Err(ClientError::NotBlocked { id: id.to_owned() });
            }
        }
        let retried = self.deliver(id, bound(self.only, Request::Retry)).await;
        self.tell_apart(id, retried).await
    }

    /// Makes the next attempt of an activity now, instead of after the pause of its retry policy. `event` scheduled the
    /// activity in this execution; [`Client::explain`] names it. The attempt counts as it would have later.
    ///
    /// An activity that does not wait for another attempt is [`ClientError::NotWaiting`]. Repeating the request has no
    /// further effect. A runtime has to run: without one this is [`ClientError::NotAnswered`] at once.
    ///
    /// ```
    /// # use perennial::prelude::*;
    /// # use perennial::history::EventId;
    /// # async fn hurry(client: &Client) -> perennial::Result<()> {
    /// let order = client.status("order-1").await?;
    /// client.retry_activity("order-1", order.execution, EventId(2)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn retry_activity(&self, id: &str, execution: u64, event: EventId) -> Result<(), ClientError> {
        let row = self.row(id).await?;
        if row.status.is_final() {
            return Err(ClientError::Ended { id: id.to_owned() });
        }
        let reply = self.put_to_owner(&row, InstanceCall::RetryActivity { execution, event }).await;
        match self.tell_apart(id, reply).await? {
            CallReply::NotOpen => Err(ClientError::NotWaiting { id: id.to_owned(), event }),
            CallReply::Refused { reason, .. }
                if ErrorCode::leading(&reason) == Some(ErrorCode::NotWaiting) =>
            {
                Err(ClientError::NotWaiting { id: id.to_owned(), event })
            }
            reply => outcome(id, reply).map(drop),
        }
    }

    /// Retries a blocked instance without the external event that its code cannot decode. `event` is the
    /// number in [`Blocked::event`](crate::client::Blocked::event), which the reason of the block names; any other
    /// number is refused. The skip is recorded, and the code gets the next event of that name.
    pub async fn skip_event(&self, id: &str, event: EventId) -> Result<(), ClientError> {
        self.skip(id, Skippable::Event(event)).await
    }

    /// Retries a blocked instance without the message in its inbox that cannot be decoded. `number` is the
    /// one in [`Blocked::message`](crate::client::Blocked::message), which the reason of the block names; any other
    /// number is refused. The message is deleted, and the history records that. Its content is lost: if it
    /// was the outcome of a child, the instance continues to wait for that child, and can be
    /// [reset](Client::reset).
    pub async fn skip_message(&self, id: &str, number: u64) -> Result<(), ClientError> {
        self.skip(id, Skippable::Message(number)).await
    }

    async fn skip(&self, id: &str, what: Skippable) -> Result<(), ClientError> {
        let mut key = self.only;
        if self.driver.is_none() {
            // The owner reads the request from the store and cannot reply.
            let row = self.row(id).await?;
            match row.blocked {
                _ if row.status.is_final() => return Err(ClientError::Ended { id: id.to_owned() }),
                None => return Err(ClientError::NotBlocked { id: id.to_owned() }),
                Some(blocked) if blocked.skippable() != Some(what) => {
                    let blocking = blocked.skippable();
                    return Err(ClientError::NotBlockedBy { id: id.to_owned(), blocking });
                }
                // Bound to this instance; another one may have its id later.
                Some(_) => key = Some(row.key),
            }
        }
        let skipped = self.deliver(id, bound(key, Request::Skip(what))).await;
        self.tell_apart(id, skipped).await
    }

    pub(super) async fn retry_bound(&self, id: &str, key: InstanceKey) -> Result<(), ClientError> {
        self.deliver(id, bound(Some(key), Request::Retry)).await
    }

    pub(super) async fn deliver(&self, id: &str, request: Request) -> Result<(), ClientError> {
        let is_for_its_end = request.is_for_the_end();
        match self.deliver_or_move(id, request).await {
            // The instance was running when the request reached it. Whatever ended it, it has ended.
            (
                Err(ClientError::Ended { .. } | ClientError::NotFound { .. }),
                Route::Moved { reached: Some(_) },
            ) if is_for_its_end => Ok(()),
            (delivered, _) => delivered,
        }
    }

    /// Delivers a request and returns by which route.
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
                // A first attempt may have reached that instance; the request must not apply to another one
                // with the same id.
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

    /// Sends a request through the store, to the owner of the instance.
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
                let what = "starts, queries, updates and waits have separate methods";
                return Err(ClientError::NotHere { what });
            }
        };
        let dedupe = message.dedupe().map(str::to_owned);
        let (urgent, body) = (message.is_urgent(), message.encode());
        self.send(id, SendRequest::Message { id: id.to_owned(), key, dedupe, urgent, body }).await.map(drop)
    }

    /// Sends a request to the runtime of this process, if there is one.
    pub(super) async fn request_here(&self, id: &str, request: Request) -> Result<LocalOutcome, ClientError> {
        let Some(driver) = &self.driver else { return Ok(LocalOutcome::Elsewhere { reached: None }) };
        let after = self.sender.after(id);
        let answer = driver.request(id, request, after).await;
        match answer.map_err(|reason| ClientError::Stopped { reason })? {
            Response::Moved { key } => Ok(LocalOutcome::Elsewhere { reached: key }),
            answer => Ok(LocalOutcome::Here(answer)),
        }
    }

    /// Sends a message through the store. Returns its number there.
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
            None => {
                Err(ClientError::Unknown { id: owned, reason: "the store returned no outcome".to_owned() })
            }
        }
    }
}

/// A cancel request; await it to send it.
#[derive(Debug)]
#[must_use = "the request is not sent until this is awaited"]
pub struct Cancel<'a> {
    client: &'a Client,
    id: &'a str,
    reason: &'a str,
    grace: Option<Duration>,
}

impl Cancel<'_> {
    /// Sets how long the instance may clean up before it is terminated, counted from the turn that gets the
    /// request. Default 30 s, or the setting of the runtime.
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
        Box::pin(async move {
            let cancelled = client.cancel_bound(id, client.only, reason, grace).await;
            client.tell_apart(id, cancelled).await
        })
    }
}

/// Whole milliseconds, rounded up.
fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// The outcome of a request to the runtime of this process.
pub(super) enum LocalOutcome {
    /// The runtime responded.
    Here(Response),
    /// There is no runtime here, or it does not own the instance: the request has to go through the store.
    Elsewhere {
        /// The instance that the runtime had found before it lost ownership. The request may have been
        /// carried out there.
        reached: Option<InstanceKey>,
    },
}

/// The route by which a request was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// The receiver responded.
    Here,
    /// The request arrived with the turn that ended the instance, which did not read it.
    Late,
    /// The runtime of this process was tried first and did not own the instance. It may have carried out the
    /// request before it lost ownership.
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

/// Converts a response into a result; contains the ending of the instance if the request was for it.
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

/// Binds a request to the instance with the key, if the key is known.
pub(super) fn bound(key: Option<InstanceKey>, request: Request) -> Request {
    match key {
        Some(key) => Request::Bound { key, request: Box::new(request) },
        None => request,
    }
}
