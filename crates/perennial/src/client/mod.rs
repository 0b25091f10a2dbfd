//! The client: starting, controlling and reading instances.
//!
//! A client works in the process of the runtime, or in another process that can open the store. In the latter
//! case, requests go through the store to the owner of the instance.

mod binding;
mod bulk;
mod call_span;
mod details;
mod explaining;
mod instance_calls;
mod managing;
mod nodes;
mod owner_replies;
mod pages;
mod pruning;
mod raising;
mod readiness;
mod reading;
mod repairing;
mod sender;
mod sending;
mod settings;
mod starting;
mod tokens;
mod updating;
mod verifying;
mod view;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use perennial_core::codec::Codecs;
use perennial_core::store::{Reply, Store, StoreError, Watcher};
use perennial_core::{InstanceKey, NameError, Payload, TraceContext};
use tokio::sync::oneshot;

use crate::change_hints::ChangeHints;
use crate::codec::encoded;
use crate::error::{ClientError, Error};
use crate::metrics::StoreGauges;
use crate::runtime::Driver;
use crate::store_url::{open_guest, open_read_only};

pub use crate::export::{ExportedExecution, ExportedInstance};
pub use crate::filter::Filter;
use explaining::KeptWork;

pub use bulk::{Action, Progress};
pub use details::{CancelView, InstanceDetails};
pub use explaining::{
    ActivityState, ActivityWait, Explanation, FailedAttempt, Finding, FindingKind, PastState,
    RuntimePresence, StuckReport, Wait, WaitReason,
};
pub use managing::Prune;
pub use nodes::{NodeView, ShardView};
pub use pages::{FoundEvent, TaskPage, TurnPage};
pub use raising::RaiseEvent;
pub use repairing::Resetting;
pub(crate) use sender::Sender;
pub use sending::Cancel;
pub use starting::{OnExisting, StartOptions};
pub use updating::SendUpdate;
pub use verifying::{Damage, VerifyProgress, VerifyReport};
pub use view::{EndedPage, InstancePage, InstanceView, MissingCode, Tree};

pub use perennial_core::shard::{Counters, ResetReport};
pub use perennial_core::store::{
    AttributeName, Blocked, Comparison, Condition, Count, Divergence, DivergenceRow, DivergenceSide,
    EndPlace, InstanceRow, Page, PageKey, Pause, PausedOrchestration, Skippable, Status, StoreStats, TaskId,
    TaskRow, TaskState, attribute,
};
pub use perennial_core::{HandlerNames, UnknownErrorCode};

/// The largest payload that a client in another process sends.
const GUEST_PAYLOAD_LIMIT: usize = 4 << 20;

/// Starts, controls and reads instances.
///
/// In the process of a runtime, get it from [`Runtime::client`](crate::Runtime::client); in any other process
/// that can open the store, from [`Client::open`]. Cloning is cheap.
#[derive(Clone)]
pub struct Client {
    store: Arc<dyn Store>,
    /// The store with payloads as stored. The same as `store` if there are no codecs.
    stored: Arc<dyn Store>,
    codecs: Codecs,
    /// The runtime of this process, if the client belongs to one. Instances that it does not own are reached
    /// through the store.
    driver: Option<Arc<Driver>>,
    changed: Arc<ChangeHints>,
    /// The URL of the store, if the client may own it for maintenance.
    url: Option<Arc<str>>,
    sender: Arc<Sender>,
    call_patience: Duration,
    /// Recorded with each start, event and update.
    trace: Option<Box<TraceContext>>,
    /// The trace context of the attempt that the client belongs to.
    pub(crate) attempt_trace: Option<Box<TraceContext>>,
    /// The only instance that requests may reach, whatever their ids.
    only: Option<InstanceKey>,
    store_gauges: Arc<StoreGauges>,
    /// What was computed from histories, if it is kept.
    histories: Option<Arc<KeptWork>>,
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

    /// A client of a runtime that shares its sender with others.
    pub(crate) fn with_sender(driver: Arc<Driver>, sender: Arc<Sender>) -> Client {
        Client {
            store: Arc::clone(&driver.store),
            stored: Arc::clone(&driver.stored),
            codecs: driver.codecs().clone(),
            changed: Arc::clone(&driver.changed),
            store_gauges: Arc::clone(&driver.store_gauges),
            driver: Some(driver),
            url: None,
            sender,
            call_patience: instance_calls::CALL_PATIENCE,
            trace: None,
            attempt_trace: None,
            only: None,
            histories: None,
        }
    }

    /// Opens a store that a runtime may own, to read and to send requests. The store has to exist.
    ///
    /// ```
    /// use perennial::prelude::*;
    ///
    /// let error = Client::open("sqlite:no/such/shop.db").err().unwrap();
    /// assert!(error.to_string().starts_with("PER-0627 no store"));
    /// ```
    pub fn open(url: &str) -> Result<Client, Error> {
        Client::open_with_codecs(url, Codecs::default())
    }

    /// Like [`open`](Client::open), with the [codecs](crate::codec) of the runtime. Without them a client
    /// sends payloads unencoded, and gets [markers](crate::codec::EncodedPayload::marker) instead of encoded
    /// payloads.
    ///
    /// ```
    /// use perennial::codec::{BlobDirectory, Codecs, Offload};
    /// use perennial::prelude::*;
    ///
    /// # fn open() -> perennial::Result<()> {
    /// let codecs = Codecs::default().with(Offload::above(64 << 10, BlobDirectory::open("blobs")?));
    /// let client = Client::open_with_codecs("sqlite:shop.db", codecs)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn open_with_codecs(url: &str, codecs: Codecs) -> Result<Client, Error> {
        let client = Client::of_store_with_codecs(open_guest(url)?, codecs);
        Ok(Client { url: Some(Arc::from(url)), ..client })
    }

    /// Opens a store read-only: lists, statuses, histories. Calls that would change something are refused. A
    /// SQLite file needs no write permission for this, and no files are created beside it unless a crash left
    /// a log that has to be recovered. If no runtime uses the file when it is opened, later changes are not
    /// seen.
    ///
    /// ```
    /// # async fn look() -> perennial::Result<()> {
    /// use perennial::prelude::*;
    /// use perennial::codec::Codecs;
    ///
    /// let client = Client::open_read_only("sqlite:shop.db", Codecs::default())?;
    /// println!("{:?}", client.stats().await?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn open_read_only(url: &str, codecs: Codecs) -> Result<Client, Error> {
        let client = Client::of_store_with_codecs(open_read_only(url)?, codecs);
        Ok(Client { url: Some(Arc::from(url)), ..client })
    }

    /// A client of a store that a runtime may own. For tests.
    #[doc(hidden)]
    pub fn of_store(store: Arc<dyn Store>) -> Client {
        Client::of_store_with_codecs(store, Codecs::default())
    }

    fn of_store_with_codecs(stored: Arc<dyn Store>, codecs: Codecs) -> Client {
        // Even without codecs: encoded payloads are then shown as markers.
        let store = encoded(Arc::clone(&stored), &codecs);
        let changed: Arc<ChangeHints> = Arc::default();
        let hinted = Arc::clone(&changed);
        let watcher: Watcher = Arc::new(move |changes| hinted.notify_of(changes));
        store.watch(watcher);
        let (sender, call_patience) = (Arc::default(), instance_calls::CALL_PATIENCE);
        Client {
            store,
            stored,
            codecs,
            driver: None,
            changed,
            url: None,
            sender,
            call_patience,
            trace: None,
            attempt_trace: None,
            only: None,
            store_gauges: Arc::default(),
            histories: None,
        }
    }

    /// Returns this client with a trace context: the W3C headers `traceparent` (up to 128 bytes) and
    /// `tracestate` (up to 512). It is recorded with each instance that the client starts, and with the
    /// events and updates that it sends.
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

    pub(crate) fn driver(&self) -> Option<&Arc<Driver>> {
        self.driver.as_ref()
    }

    pub(crate) fn store_gauges(&self) -> &Arc<StoreGauges> {
        &self.store_gauges
    }

    /// This client, for the code of an attempt.
    pub(crate) fn of_attempt(self, trace: Option<Box<TraceContext>>) -> Client {
        Client { attempt_trace: trace, ..self }
    }

    /// This client, reading payloads as they are stored.
    pub(crate) fn as_stored(&self) -> Client {
        Client { store: Arc::clone(&self.stored), ..self.clone() }
    }

    pub(crate) async fn call<T: Send + 'static>(
        &self,
        id: &str,
        call: impl FnOnce(&dyn Store, Reply<T>),
    ) -> Result<T, ClientError> {
        let (sender, receiver) = oneshot::channel();
        call(
            &*self.store,
            Box::new(move |answer| {
                // The caller may have dropped its future.
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
