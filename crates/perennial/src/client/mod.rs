//! What callers use to start instances, reach them and look at them.
//!
//! A client works in the process of the runtime, or beside it in another process that can open the store; then
//! changes travel through the store to whoever owns it.

mod asking;
mod managing;
mod starting;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use perennial_core::history::decode_history;
use perennial_core::shard::{Answer, Message, Request};
use perennial_core::store::{
    Blocked, Hint, InstanceRow, Reply, SendOutcome, SendRequest, Status, Store, StoreError,
};
use perennial_core::{
    Attributes, Ending, History, InstanceKey, Job, NameError, ParentLink, Payload, TurnFailure,
    check_derived_id, check_name,
};
use tokio::sync::{Notify, oneshot};

use crate::error::{ClientError, Error};
use crate::export::{ExportedExecution, ExportedInstance};
use crate::runtime::{Node, Runtime};
use crate::store_url::{open_guest, system_now_ms};
use crate::typed::{EventContent, Run};

pub use managing::{Action, Progress, Prune, Tree};
pub use starting::{OnExisting, StartOptions};

/// How many turns are read at a time.
const TURNS_PER_PAGE: usize = 1_000;
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
    backend: Backend,
    ask_patience: Duration,
}

#[derive(Clone)]
enum Backend {
    Node(Arc<Node>),
    Guest { store: Arc<dyn Store>, changed: Arc<Notify>, url: Option<Arc<str>> },
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
        let place = match &self.backend {
            Backend::Node(_) => "in the runtime's process",
            Backend::Guest { .. } => "beside the runtime",
        };
        f.debug_tuple("Client").field(&place).finish()
    }
}

impl Client {
    pub(crate) fn of_node(node: Arc<Node>) -> Client {
        Client { backend: Backend::Node(node), ask_patience: asking::ASK_PATIENCE }
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
        let mut client = Client::of_store(open_guest(url)?);
        if let Backend::Guest { url: own, .. } = &mut client.backend {
            *own = Some(Arc::from(url));
        }
        Ok(client)
    }

    /// A client beside whoever owns this store. For tests.
    #[doc(hidden)]
    pub fn of_store(store: Arc<dyn Store>) -> Client {
        let changed: Arc<Notify> = Arc::default();
        let hinted = Arc::clone(&changed);
        let hint: Hint = Arc::new(move || hinted.notify_waiters());
        store.watch(hint);
        Client { backend: Backend::Guest { store, changed, url: None }, ask_patience: asking::ASK_PATIENCE }
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
        self.raise(id, &event.name(), content, None).await
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
        check("key", key, check_derived_id)?;
        let content = T::encode(content).map_err(|error| ClientError::unwritable(id, error))?;
        self.raise(id, &event.name(), content, Some(key.to_owned())).await
    }

    async fn raise(
        &self,
        id: &str,
        name: &str,
        payload: Payload,
        key: Option<String>,
    ) -> Result<(), ClientError> {
        check("event", name, check_name)?;
        self.check_payload(id, &payload)?;
        self.deliver(id, Request::Raise { name: name.to_owned(), payload, key }).await
    }

    /// Asks an instance to cancel. Code that took cancellation over cleans up first.
    pub async fn cancel(&self, id: &str, reason: &str) -> Result<(), ClientError> {
        self.check_size(id, reason.len())?;
        self.deliver(id, Request::Cancel { reason: reason.to_owned() }).await
    }

    /// Ends an instance without running its code, blocked or not.
    pub async fn terminate(&self, id: &str, reason: &str) -> Result<(), ClientError> {
        self.check_size(id, reason.len())?;
        let request = Request::Terminate { reason: reason.to_owned() };
        // It needs no code; so it need not wait for a runtime if none owns the store.
        match self.take_charge().await {
            Some(caretaker) => {
                let done = caretaker.client().deliver(id, request).await;
                let released = caretaker.shutdown().await;
                done.and(released.map_err(|error| ClientError::Unknown {
                    id: id.to_owned(),
                    reason: format!("the store was not given up in good order: {error}"),
                }))
            }
            None => self.deliver(id, request).await,
        }
    }

    /// Owns the store for a moment, if this client is outside of a runtime and nobody owns it.
    async fn take_charge(&self) -> Option<Runtime> {
        let Backend::Guest { url: Some(url), .. } = &self.backend else { return None };
        // A store that somebody owns, or that cannot be owned, is reached by a message.
        Runtime::open(&**url).caretaker().start().await.ok()
    }

    /// Tries a blocked instance again.
    pub async fn retry(&self, id: &str) -> Result<(), ClientError> {
        self.deliver(id, Request::Retry).await
    }

    async fn deliver(&self, id: &str, request: Request) -> Result<(), ClientError> {
        check("instance id", id, check_derived_id)?;
        match &self.backend {
            Backend::Node(node) => self.ask(node, id, request).await.map(|_| ()),
            Backend::Guest { .. } => {
                let message = match request {
                    Request::Raise { name, payload, key } => {
                        Message::Job(Job::ExternalEvent { name, payload, key })
                    }
                    Request::Cancel { reason } => {
                        let grace_until_ms = system_now_ms() + GUEST_CANCEL_GRACE_MS;
                        Message::Job(Job::OrchestrationCancelRequested { reason, grace_until_ms })
                    }
                    Request::Terminate { reason } => Message::Terminate { reason },
                    Request::Retry => Message::Retry,
                    Request::Start(_) | Request::AwaitEnd | Request::Ask(_) => {
                        let what = "starts, questions and waiting have calls of their own";
                        return Err(ClientError::NotHere { what });
                    }
                };
                let dedupe = message.dedupe().map(str::to_owned);
                self.send(
                    id,
                    SendRequest::Message {
                        id: id.to_owned(),
                        dedupe,
                        urgent: message.is_urgent(),
                        body: message.encode(),
                    },
                )
                .await
            }
        }
    }

    async fn ask_node(&self, node: &Arc<Node>, id: &str, request: Request) -> Result<Answer, ClientError> {
        let receiver = node.ask(id, request).map_err(|reason| ClientError::Stopped { reason })?;
        let lost = |_| Answer::Unknown { reason: "the runtime is gone".to_owned() };
        Ok(receiver.await.unwrap_or_else(lost))
    }

    async fn ask(&self, node: &Arc<Node>, id: &str, request: Request) -> Result<Option<Ending>, ClientError> {
        let answer = self.ask_node(node, id, request).await?;
        let id = id.to_owned();
        match answer {
            Answer::Started(_) | Answer::Accepted => Ok(None),
            Answer::Ended(ending) => Ok(Some(*ending)),
            Answer::AlreadyExists(status) => Err(ClientError::AlreadyExists { id, status }),
            Answer::EndedBefore => Err(ClientError::Ended { id }),
            Answer::NotFound => Err(ClientError::NotFound { id }),
            Answer::Full { unread } => Err(ClientError::Full { id, unread }),
            Answer::NotBlocked => Err(ClientError::NotBlocked { id }),
            Answer::Unknown { reason } => Err(ClientError::Unknown { id, reason }),
            _ => Err(ClientError::Unknown {
                id,
                reason: "an answer that this client does not know".to_owned(),
            }),
        }
    }

    async fn send(&self, id: &str, request: SendRequest) -> Result<(), ClientError> {
        let outcomes = self.call(id, |store, reply| store.send(vec![request], reply)).await?;
        let id = id.to_owned();
        match outcomes.into_iter().next() {
            Some(SendOutcome::Sent(_) | SendOutcome::Duplicate) => Ok(()),
            Some(SendOutcome::IdTaken(row)) => Err(ClientError::AlreadyExists { id, status: row.status }),
            Some(SendOutcome::NoInstance) => Err(ClientError::NotFound { id }),
            Some(SendOutcome::Ended(_)) => Err(ClientError::Ended { id }),
            Some(SendOutcome::Full(unread)) => Err(ClientError::Full { id, unread }),
            None => Err(ClientError::Unknown { id, reason: "the store did not say".to_owned() }),
        }
    }

    /// Waits for an instance to end, and gives its result as a payload. [`Client::run`] gives it with its types.
    pub async fn result(&self, id: &str) -> Result<Payload, Error> {
        let run: Run = Run::new(self.clone(), id, false, Ok, Ok);
        Ok(run.result().await?)
    }

    /// Waits for an instance to end, and tells how. One that is blocked has not ended; [`Client::status`] says so.
    pub async fn wait(&self, id: &str) -> Result<Ending, ClientError> {
        check("instance id", id, check_derived_id)?;
        match &self.backend {
            Backend::Node(node) => match self.ask(node, id, Request::AwaitEnd).await {
                Ok(Some(ending)) => Ok(ending),
                Ok(None) | Err(ClientError::Ended { .. }) => self.stored_ending(id).await,
                Err(error) => Err(error),
            },
            Backend::Guest { changed, .. } => loop {
                let hint = changed.notified();
                if self.status(id).await?.status.is_final() {
                    return self.stored_ending(id).await;
                }
                hint.await;
            },
        }
    }

    async fn stored_ending(&self, id: &str) -> Result<Ending, ClientError> {
        let history = self.history(id).await?;
        let reason = "it ended, but its last turn does not say how".to_owned();
        history.ending().cloned().ok_or_else(|| ClientError::Unknown { id: id.to_owned(), reason })
    }

    /// Where an instance stands.
    pub async fn status(&self, id: &str) -> Result<InstanceStatus, ClientError> {
        self.row(id).await.map(InstanceStatus::from)
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

    async fn turns(&self, row: &InstanceRow, execution: u64) -> Result<History, ClientError> {
        let mut turns = Vec::new();
        loop {
            let after = turns.len() as u64;
            let page = self
                .call(&row.id, |store, reply| {
                    store.read_turns(row.key, execution, after, TURNS_PER_PAGE, reply)
                })
                .await?;
            let is_last = page.len() < TURNS_PER_PAGE;
            turns.extend(page);
            if is_last {
                break;
            }
        }
        decode_history(turns).map_err(|error| {
            let source = StoreError::CorruptRow(TurnFailure::from(error).to_string());
            ClientError::Store { id: row.id.clone(), source }
        })
    }

    async fn call<T: Send + 'static>(
        &self,
        id: &str,
        call: impl FnOnce(&dyn Store, Reply<T>),
    ) -> Result<T, ClientError> {
        let store = match &self.backend {
            Backend::Node(node) => &node.store,
            Backend::Guest { store, .. } => store,
        };
        let (sender, receiver) = oneshot::channel();
        call(
            &**store,
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
        let limit = match &self.backend {
            Backend::Node(node) => node.payload_limit(),
            Backend::Guest { .. } => GUEST_PAYLOAD_LIMIT,
        };
        if bytes > limit { Err(ClientError::TooLarge { id: id.to_owned(), bytes, limit }) } else { Ok(()) }
    }
}

fn check(what: &'static str, name: &str, rule: fn(&str) -> Result<(), NameError>) -> Result<(), ClientError> {
    rule(name).map_err(|source| ClientError::InvalidName {
        what,
        name: name.chars().take(50).collect(),
        source,
    })
}
