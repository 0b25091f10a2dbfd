//! What callers use to start instances, reach them and look at them.
//!
//! A client works in the process of the runtime, or beside it in another process that can open the store; then
//! changes travel through the store to whoever owns it.

mod asking;
mod managing;
mod sender;
mod starting;
mod verifying;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use perennial_core::TraceContext;
use perennial_core::history::is_drawn_key;
use perennial_core::shard::{Answer, Message, Request};
use perennial_core::store::{
    Blocked, InboxNumber, InstanceRow, PageLimit, Reply, SendOutcome, SendRequest, Status, Store, StoreError,
    TurnRow, Watcher, read_turns,
};
use perennial_core::{
    Attributes, Ending, History, InstanceKey, Job, Ledger, NameError, ParentLink, Payload, TurnFailure,
    check_derived_id, check_name,
};
use tokio::sync::{Notify, oneshot};

use crate::error::{ClientError, Error};
use crate::export::{ExportedExecution, ExportedInstance};
use crate::runtime::{Driver, Runtime};
use crate::store_url::open_guest;
use crate::typed::{EventContent, Run};

pub use managing::{Action, Progress, Prune, Tree};
pub(crate) use sender::Sender;
pub use starting::{OnExisting, StartOptions};
pub use verifying::{Damage, VerifyProgress, VerifyReport};

/// How many turns are read at a time.
const TURNS_PER_PAGE: PageLimit = PageLimit { rows: 1_000, bytes: 16 << 20 };
/// The shortest and the longest pause between two looks of somebody who waits. Hints make it shorter.
const LOOK_PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// The largest payload that a client outside of the runtime sends.
const GUEST_PAYLOAD_LIMIT: usize = 4 << 20;
/// How long code that took cancellation over may clean up, if asked from outside of the runtime.
const GUEST_CANCEL_GRACE_MS: u64 = 30_000;

/// Starts instances, reaches them and looks at them.
///
/// In the process of a runtime it comes from [`Runtime::client`](crate::Runtime::client); in any other process that can
/// open the store, from [`Client::open`]. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    store: Arc<dyn Store>,
    /// The runtime of this process, if it is one's client. What it does not own is reached through the store.
    driver: Option<Arc<Driver>>,
    changed: Arc<Notify>,
    /// Where the store is, if the client may own it for a moment.
    url: Option<Arc<str>>,
    sender: Arc<Sender>,
    ask_patience: Duration,
    /// What goes with each start, event and update.
    trace: Option<Box<TraceContext>>,
}

/// Where an instance stands.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct InstanceStatus {
    /// Its id.
    pub id: String,
    /// Its never-reused key.
    pub key: InstanceKey,
    /// The orchestration.
    pub name: String,
    /// The orchestration's version.
    pub version: String,
    /// Where it stands.
    pub status: Status,
    /// The current execution.
    pub execution: u64,
    /// Why it does not go on, if so.
    pub blocked: Option<Blocked>,
    /// Searchable values.
    pub attributes: Attributes,
    /// What its code published.
    pub published: Option<Payload>,
    /// Who started it, if it is somebody's child.
    pub parent: Option<ParentLink>,
    /// When it was started, in milliseconds since 1970.
    pub created_ms: u64,
    /// When it ended, if it has.
    pub ended_ms: Option<u64>,
}

impl From<InstanceRow> for InstanceStatus {
    fn from(row: InstanceRow) -> InstanceStatus {
        InstanceStatus {
            id: row.id,
            key: row.key,
            name: row.name,
            version: row.version,
            status: row.status,
            execution: row.execution,
            blocked: row.blocked,
            attributes: row.attributes,
            published: row.published,
            parent: row.parent,
            created_ms: row.created_ms,
            ended_ms: row.ended_ms,
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match &self.driver {
            Some(_) => "in the runtime's process",
            None => "beside the runtime",
        };
        f.debug_tuple("Client").field(&place).finish()
    }
}

impl Client {
    pub(crate) fn of_driver(driver: Arc<Driver>) -> Client {
        Client::with_sender(driver, Arc::default())
    }

    /// A client of a runtime that sends as one with others.
    pub(crate) fn with_sender(driver: Arc<Driver>, sender: Arc<Sender>) -> Client {
        Client {
            store: Arc::clone(&driver.store),
            changed: Arc::clone(&driver.changed),
            driver: Some(driver),
            url: None,
            sender,
            ask_patience: asking::ASK_PATIENCE,
            trace: None,
        }
    }

    /// Opens a store beside the runtime that owns it, to look and to send. The store has to exist.
    ///
    /// ```
    /// use perennial::prelude::*;
    ///
    /// let error = Client::open("sqlite:no/such/shop.db").err().unwrap();
    /// assert!(error.to_string().starts_with("PER-0627 no store"));
    /// ```
    pub fn open(url: &str) -> Result<Client, Error> {
        let client = Client::of_store(open_guest(url)?);
        Ok(Client { url: Some(Arc::from(url)), ..client })
    }

    /// A client beside whoever owns this store. For tests.
    #[doc(hidden)]
    pub fn of_store(store: Arc<dyn Store>) -> Client {
        let changed: Arc<Notify> = Arc::default();
        let hinted = Arc::clone(&changed);
        let watcher: Watcher = Arc::new(move |_| hinted.notify_waiters());
        store.watch(watcher);
        let (sender, ask_patience) = (Arc::default(), asking::ASK_PATIENCE);
        Client { store, driver: None, changed, url: None, sender, ask_patience, trace: None }
    }

    /// This client with a trace context: the W3C headers `traceparent` (up to 128 bytes) and `tracestate` (up to 512).
    /// It is recorded with each instance that the client starts, and with the events and updates that it sends.
    ///
    /// ```
    /// # use perennial::prelude::*;
    /// # fn handle(client: &Client) -> Result<(), ClientError> {
    /// let traced = client.with_trace_context("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", None)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_trace_context(&self, parent: &str, state: Option<&str>) -> Result<Client, ClientError> {
        let trace = trace_context(parent, state)?;
        Ok(Client { trace: Some(trace), ..self.clone() })
    }

    /// Raises an event at an instance. It is durable when this returns.
    ///
    /// The instance need not wait for it yet. What one client raises, one call after another, arrives in that order.
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

    async fn raise(
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
            Route::Moved => true,
        };
        match raised {
            Err(ClientError::Ended { .. }) if may_be_taken && self.has_taken_event(id, &key).await? => Ok(()),
            raised => raised,
        }
    }

    /// Asks an instance to cancel. Code that took cancellation over cleans up first.
    pub async fn cancel(&self, id: &str, reason: &str) -> Result<(), ClientError> {
        self.cancel_bound(id, None, reason).await
    }

    async fn cancel_bound(
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

    async fn terminate_bound(
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
    async fn own_for_maintenance(&self) -> Option<Runtime> {
        let url = self.url.as_ref()?;
        // A store that somebody owns, or that cannot be owned, is reached by a message.
        Runtime::open(&**url).for_maintenance().start().await.ok()
    }

    /// Tries a blocked instance again.
    pub async fn retry(&self, id: &str) -> Result<(), ClientError> {
        self.deliver(id, Request::Retry).await
    }

    /// Tries a blocked instance again without one external event that its code cannot read. `event` is the number that
    /// the reason of the block names. That the event was skipped is recorded, and the code gets the next of its name.
    pub async fn skip_event(&self, id: &str, event: perennial_core::EventId) -> Result<(), ClientError> {
        self.deliver(id, Request::Skip { event }).await
    }

    async fn retry_bound(&self, id: &str, key: InstanceKey) -> Result<(), ClientError> {
        self.deliver(id, bound(Some(key), Request::Retry)).await
    }

    async fn deliver(&self, id: &str, request: Request) -> Result<(), ClientError> {
        self.deliver_or_move(id, request).await.0
    }

    /// Delivers a request, and tells how it went.
    async fn deliver_or_move(&self, id: &str, request: Request) -> (Result<(), ClientError>, Route) {
        if let Err(error) = check("instance id", id, check_derived_id) {
            return (Err(error), Route::Here);
        }
        match self.ask(id, request.clone()).await {
            Err(error) => (Err(error), Route::Here),
            Ok(Some(answer)) => {
                let route = if matches!(answer, Answer::TooLate) { Route::Late } else { Route::Here };
                (outcome_of(id, answer).map(drop), route)
            }
            Ok(None) => {
                let route = if self.driver.is_some() { Route::Moved } else { Route::Here };
                (self.send_message(id, request).await, route)
            }
        }
    }

    /// Whether an event with a key is recorded for an instance, in its last executions.
    async fn has_taken_event(&self, id: &str, key: &str) -> Result<bool, ClientError> {
        let row = self.row(id).await?;
        for execution in (row.execution.saturating_sub(1).max(1)..=row.execution).rev() {
            let history = self.turns(&row, execution).await?;
            let mut jobs = history.turns.iter().flat_map(perennial_core::Turn::jobs);
            if jobs.any(|(_, job)| job.key() == Some(key)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Sends a request through the store, to whoever owns the instance.
    async fn send_message(&self, id: &str, request: Request) -> Result<(), ClientError> {
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

    /// Asks the runtime of this process. `None` if there is none here, or if it does not own the instance: the store's
    /// route is left.
    async fn ask(&self, id: &str, request: Request) -> Result<Option<Answer>, ClientError> {
        let Some(driver) = &self.driver else { return Ok(None) };
        let after = self.sender.after(id);
        let answer = driver.ask(id, request, after).await;
        match answer.map_err(|reason| ClientError::Stopped { reason })? {
            Answer::Moved => Ok(None),
            answer => Ok(Some(answer)),
        }
    }

    /// Sends something through the store. Returns the number that it has there.
    async fn send(&self, id: &str, request: SendRequest) -> Result<InboxNumber, ClientError> {
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

    /// Waits for an instance to end, and gives its result as a payload. [`Client::run`] gives it with its types.
    pub async fn result(&self, id: &str) -> Result<Payload, Error> {
        let run: Run = Run::new(self.clone(), id, None, false, Ok, Ok);
        Ok(run.result().await?)
    }

    /// Waits for an instance to end, and tells how. One that is blocked has not ended; [`Client::status`] says so.
    pub async fn wait(&self, id: &str) -> Result<Ending, ClientError> {
        self.wait_for(id, None).await
    }

    /// Waits for the instance with a key to end, if it is given: another one that has its id by now is not meant.
    pub(crate) async fn wait_for(&self, id: &str, key: Option<InstanceKey>) -> Result<Ending, ClientError> {
        check("instance id", id, check_derived_id)?;
        match self.ask(id, bound(key, Request::AwaitEnd)).await? {
            Some(Answer::Ended(ending)) => return Ok(*ending),
            Some(Answer::EndedBefore) => return self.stored_ending(id, key).await,
            Some(answer) => {
                outcome_of(id, answer)?;
            }
            None => {}
        }
        self.look_until(|| async move {
            let is_over = self.row_of(id, key).await?.status.is_final();
            if is_over { self.stored_ending(id, key).await.map(Some) } else { Ok(None) }
        })
        .await
    }

    /// Looks again and again, whenever the store hints at a change and now and then, until there is something.
    async fn look_until<T, F: Future<Output = Result<Option<T>, ClientError>>>(
        &self,
        look: impl Fn() -> F,
    ) -> Result<T, ClientError> {
        let mut pause = LOOK_PAUSES.0;
        loop {
            let hint = self.changed.notified();
            if let Some(found) = look().await? {
                return Ok(found);
            }
            // Losing a hint costs a moment, never the answer.
            let _ = tokio::time::timeout(pause, hint).await;
            pause = (pause * 2).min(LOOK_PAUSES.1);
        }
    }

    async fn stored_ending(&self, id: &str, key: Option<InstanceKey>) -> Result<Ending, ClientError> {
        let row = self.row_of(id, key).await?;
        let history = self.turns(&row, row.execution).await?;
        let reason = "it ended, but its last turn does not say how".to_owned();
        history.ending().cloned().ok_or_else(|| ClientError::Unknown { id: id.to_owned(), reason })
    }

    /// Where an instance stands.
    pub async fn status(&self, id: &str) -> Result<InstanceStatus, ClientError> {
        self.row(id).await.map(InstanceStatus::from)
    }

    /// The row of an id, if it is the instance with a key.
    async fn row_of(&self, id: &str, key: Option<InstanceKey>) -> Result<InstanceRow, ClientError> {
        let row = self.row(id).await?;
        if key.is_some_and(|key| key != row.key) {
            return Err(ClientError::NotFound { id: id.to_owned() });
        }
        Ok(row)
    }

    async fn row(&self, id: &str) -> Result<InstanceRow, ClientError> {
        check("instance id", id, check_derived_id)?;
        let row = self.call(id, |store, reply| store.find(id, reply)).await?;
        row.ok_or_else(|| ClientError::NotFound { id: id.to_owned() })
    }

    /// What is recorded of an instance's current execution.
    pub async fn history(&self, id: &str) -> Result<History, ClientError> {
        let row = self.row(id).await?;
        self.turns(&row, row.execution).await
    }

    /// What is recorded of one execution of an instance: 1, 2, 3, … with each continue-as-new.
    pub async fn history_of(&self, id: &str, execution: u64) -> Result<History, ClientError> {
        let row = self.row(id).await?;
        self.turns(&row, execution).await
    }

    /// An instance with all its executions, as files of histories hold it.
    pub async fn export(&self, id: &str) -> Result<ExportedInstance, ClientError> {
        let row = self.row(id).await?;
        let mut executions = Vec::new();
        for execution in 1..=row.execution {
            let turns = self.turns(&row, execution).await?.turns;
            executions.push(ExportedExecution { execution, turns });
        }
        let status = Some(row.status);
        Ok(ExportedInstance { id: row.id, name: row.name, version: row.version, status, executions })
    }

    async fn turn_rows(&self, row: &InstanceRow, execution: u64) -> Result<Vec<TurnRow>, ClientError> {
        let (shard, key) = (row.shard, row.key);
        let mut rows: Vec<TurnRow> = Vec::new();
        loop {
            let after = rows.last().map_or(0, |row| row.number);
            let limit = TURNS_PER_PAGE;
            let read = |store: &dyn Store, reply: Reply<Vec<TurnRow>>| {
                store.read_turns(shard, key, execution, after, limit, reply);
            };
            let page = self.call(&row.id, read).await?;
            if page.is_empty() {
                return Ok(rows);
            }
            rows.extend(page);
        }
    }

    async fn turns(&self, row: &InstanceRow, execution: u64) -> Result<History, ClientError> {
        let (key, rows) = (row.key, self.turn_rows(row, execution).await?);
        let mut ledger = Ledger::default();
        let read = read_turns(key, &rows)
            .and_then(|read| read.turns.iter().try_for_each(|turn| ledger.apply_turn(turn)).map(|()| read));
        let read = read.map_err(|error| {
            let source = StoreError::CorruptRow(TurnFailure::from(error).to_string());
            ClientError::Store { id: row.id.clone(), source }
        })?;
        Ok(History { turns: read.turns })
    }

    async fn call<T: Send + 'static>(
        &self,
        id: &str,
        call: impl FnOnce(&dyn Store, Reply<T>),
    ) -> Result<T, ClientError> {
        let (sender, receiver) = oneshot::channel();
        call(
            &*self.store,
            Box::new(move |answer| {
                // A caller that went away needs no answer.
                let _ = sender.send(answer);
            }),
        );
        let answer = receiver.await.unwrap_or(Err(StoreError::Closed));
        answer.map_err(|source| ClientError::Store { id: id.to_owned(), source })
    }

    fn check_payload(&self, id: &str, payload: &Payload) -> Result<(), ClientError> {
        self.check_size(id, payload.size())
    }

    fn check_size(&self, id: &str, bytes: usize) -> Result<(), ClientError> {
        let limit = self.driver.as_ref().map_or(GUEST_PAYLOAD_LIMIT, |driver| driver.payload_limit());
        if bytes > limit { Err(ClientError::TooLarge { id: id.to_owned(), bytes, limit }) } else { Ok(()) }
    }
}

/// How a request was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    /// It was answered by whoever was asked.
    Here,
    /// It came with the turn that ended the instance, which did not read it.
    Late,
    /// The runtime of this process was asked first and did not own the instance: it may have done what was asked before
    /// it lost it.
    Moved,
}

/// What an answer of the runtime means to a caller; the ending of an instance, if it was asked for.
fn outcome_of(id: &str, answer: Answer) -> Result<Option<Ending>, ClientError> {
    let id = id.to_owned();
    match answer {
        Answer::Started(_) | Answer::Accepted => Ok(None),
        Answer::Ended(ending) => Ok(Some(*ending)),
        Answer::AlreadyExists(status) => Err(ClientError::AlreadyExists { id, status }),
        Answer::EndedBefore | Answer::TooLate => Err(ClientError::Ended { id }),
        Answer::NotFound => Err(ClientError::NotFound { id }),
        Answer::Full { unread } => Err(ClientError::Full { id, unread }),
        Answer::NotBlocked => Err(ClientError::NotBlocked { id }),
        Answer::Unknown { reason } => Err(ClientError::Unknown { id, reason }),
        other => Err(ClientError::Unknown { id, reason: format!("unexpected: {other:?}") }),
    }
}

/// A request that is meant for the instance with a key, if it is known.
fn bound(key: Option<InstanceKey>, request: Request) -> Request {
    match key {
        Some(key) => Request::Bound { key, request: Box::new(request) },
        None => request,
    }
}

/// A key that a caller gives. Those that begin with `~` are drawn by clients, and are not remembered for long.
fn check_key(key: &str) -> Result<(), NameError> {
    check_derived_id(key)?;
    if is_drawn_key(key) { Err(NameError::DrawnKey) } else { Ok(()) }
}

fn trace_context(parent: &str, state: Option<&str>) -> Result<Box<TraceContext>, ClientError> {
    TraceContext::new(parent, state).map(Box::new).map_err(|source| ClientError::InvalidName {
        what: "trace context",
        name: parent.chars().take(50).collect(),
        source,
    })
}

fn check(what: &'static str, name: &str, rule: fn(&str) -> Result<(), NameError>) -> Result<(), ClientError> {
    rule(name).map_err(|source| ClientError::InvalidName {
        what,
        name: name.chars().take(50).collect(),
        source,
    })
}
