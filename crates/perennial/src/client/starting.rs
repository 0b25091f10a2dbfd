//! Starting instances.

use std::time::Duration;

use perennial_core::shard::{Message, Request, Start, StartRequest};
use perennial_core::store::{InstanceRow, SendRequest};
use perennial_core::{Attributes, InstanceKey, Job, Payload, Started, check_name};
use serde::Serialize;
use uuid::Uuid;

use super::sending::{LocalOutcome, outcome_of};
use super::{Client, check};
use crate::error::ClientError;
use crate::typed::{EventContent, OrchestrationTarget, Run, RunTarget};

/// How an instance is started. The default: at once, at the latest version, refused if the id exists.
///
/// ```
/// use perennial::prelude::*;
///
/// #[orchestration]
/// async fn order(_ctx: OrchestrationContext, item: String) -> Result<String, String> {
///     Ok(item)
/// }
///
/// # #[tokio::main]
/// # async fn main() -> perennial::Result<()> {
/// # let runtime = Runtime::open("memory:").register(order).start().await?;
/// let client = runtime.client();
/// let options = StartOptions::default()
///     .on_existing(OnExisting::Use)
///     .attribute("city", "Oslo")
///     .timeout(Duration::from_secs(3_600));
/// // A request that comes twice starts one order.
/// assert!(client.start_with(order, "order-1", "socks".to_owned(), options.clone()).await?.is_new());
/// let run = client.start_with(order, "order-1", "socks".to_owned(), options).await?;
/// assert!(!run.is_new());
/// assert_eq!(run.result().await?, "socks");
/// # runtime.shutdown().await
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct StartOptions {
    version: Option<String>,
    on_existing: OnExisting,
    attributes: Attributes,
    delay: Option<Duration>,
    timeout: Option<Duration>,
    event: Option<(String, Payload)>,
    trace: Option<(String, Option<String>)>,
    /// Something that was given cannot be written as JSON. The start says so.
    unwritable: Option<String>,
}

/// What a start does if its id exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnExisting {
    /// It is refused, with the existing instance's status.
    #[default]
    Reject,
    /// The existing instance is taken as it is.
    Use,
    /// One that has ended is deleted, with its children, and replaced; one that runs refuses the start.
    ReplaceEnded,
    /// One that runs is terminated; then it is replaced.
    TerminateAndReplace,
}

impl StartOptions {
    /// Starts at an exact version instead of the latest.
    pub fn version(mut self, version: impl Into<String>) -> StartOptions {
        self.version = Some(version.into());
        self
    }

    /// Says what happens if the id exists.
    pub fn on_existing(mut self, policy: OnExisting) -> StartOptions {
        self.on_existing = policy;
        self
    }

    /// Gives the instance a value that it can be found by.
    pub fn attribute(mut self, name: impl Into<String>, value: impl Serialize) -> StartOptions {
        if let Some(value) = self.encoded(Payload::encode(&value)) {
            self.attributes.insert(name.into(), value);
        }
        self
    }

    /// Begins after a while. The start itself is durable at once.
    pub fn delay(mut self, delay: Duration) -> StartOptions {
        self.delay = Some(delay);
        self
    }

    /// Ends the instance as timed out if it takes longer, counted from now; continue-as-new does not reset it.
    pub fn timeout(mut self, timeout: Duration) -> StartOptions {
        self.timeout = Some(timeout);
        self
    }

    /// Records the trace context of the request that starts the instance: the W3C headers `traceparent` (up to 128
    /// bytes) and `tracestate` (up to 512). A longer one refuses the start.
    pub fn trace_context(mut self, parent: impl Into<String>, state: Option<String>) -> StartOptions {
        self.trace = Some((parent.into(), state));
        self
    }

    /// Raises an event with the start, in one step; or at the instance that has the id already.
    pub fn or_raise<T: EventContent<C>, C>(mut self, event: T, content: C) -> StartOptions {
        if let Some(content) = self.encoded(T::encode(content)) {
            self.event = Some((event.name().into_owned(), content));
        }
        self
    }

    /// Whether an instance that has ended is replaced.
    pub(super) fn replaces_ended(&self) -> bool {
        matches!(self.on_existing, OnExisting::ReplaceEnded | OnExisting::TerminateAndReplace)
    }

    fn encoded(&mut self, encoded: Result<Payload, serde_json::Error>) -> Option<Payload> {
        encoded.map_err(|problem| self.unwritable = Some(problem.to_string())).ok()
    }
}

impl Client {
    /// Starts an instance of an orchestration, at its latest version. It is durable when this returns.
    ///
    /// The orchestration is a function and its input (several arguments as a tuple, none as `()`), a name and a string,
    /// or an [`Orchestration`](crate::Orchestration). The id is yours to choose: 1 to 200 bytes, without `::`.
    ///
    /// ```
    /// use perennial::prelude::*;
    ///
    /// #[orchestration]
    /// async fn add(_ctx: OrchestrationContext, a: i64, b: i64) -> Result<i64, String> {
    ///     a.checked_add(b).ok_or_else(|| "too much".to_owned())
    /// }
    ///
    /// # #[tokio::main]
    /// # async fn main() -> perennial::Result<()> {
    /// # let runtime = Runtime::open("memory:").register(add).start().await?;
    /// let client = runtime.client();
    /// let run = client.start(add, "sum-1", (2, 3)).await?;
    /// assert_eq!(run.result().await?, 5);
    ///
    /// let run = client.start(add, "sum-2", (i64::MAX, 1)).await?;
    /// assert!(matches!(run.result().await, Err(RunError::Failed { error, .. }) if error == "too much"));
    ///
    /// let again = client.start(add, "sum-1", (2, 3)).await;
    /// assert!(matches!(again, Err(ClientError::AlreadyExists { status: Status::Completed, .. })));
    /// # runtime.shutdown().await
    /// # }
    /// ```
    pub async fn start<T, I, K>(
        &self,
        orchestration: T,
        id: &str,
        input: I,
    ) -> Result<Run<T::Output, T::Error>, ClientError>
    where
        T: OrchestrationTarget<I, K>,
    {
        self.start_with(orchestration, id, input, StartOptions::default()).await
    }

    /// Starts an instance with options. What it did is durable when this returns; [`Run::is_new`] tells whether the
    /// instance is new.
    pub async fn start_with<T, I, K>(
        &self,
        orchestration: T,
        id: &str,
        input: I,
        options: StartOptions,
    ) -> Result<Run<T::Output, T::Error>, ClientError>
    where
        T: OrchestrationTarget<I, K>,
    {
        let input = T::encode(input).map_err(|error| ClientError::unwritable(id, error))?;
        let (key, is_new) = self.start_named(&orchestration.name(), id, input, options).await?;
        Ok(Run::new(self.clone(), id, Some(key), is_new, T::read_output, T::read_error))
    }

    /// An instance that was started before or elsewhere, with the types of its orchestration: a function, an
    /// [`Orchestration`](crate::Orchestration), or a name (then payloads). Nothing is asked before its result is; the
    /// instance that has the id then is the one that is meant from then on.
    ///
    /// ```
    /// use perennial::prelude::*;
    ///
    /// #[orchestration]
    /// async fn add(_ctx: OrchestrationContext, a: i64, b: i64) -> Result<i64, String> {
    ///     Ok(a + b)
    /// }
    ///
    /// # #[tokio::main]
    /// # async fn main() -> perennial::Result<()> {
    /// # let runtime = Runtime::open("memory:").register(add).start().await?;
    /// # let client = runtime.client();
    /// client.start(add, "sum-1", (2, 3)).await?;
    /// assert_eq!(client.run(add, "sum-1").result().await?, 5);
    /// # runtime.shutdown().await
    /// # }
    /// ```
    pub fn run<T: RunTarget<K>, K>(&self, _orchestration: T, id: &str) -> Run<T::Output, T::Error> {
        Run::new(self.clone(), id, None, false, T::read_output, T::read_error)
    }

    /// Starts an instance. Returns the key of the one that has the id then, and whether it is new.
    pub(super) async fn start_named(
        &self,
        name: &str,
        id: &str,
        input: Payload,
        options: StartOptions,
    ) -> Result<(InstanceKey, bool), ClientError> {
        check("instance id", id, check_name)?;
        check("orchestration", name, check_name)?;
        self.check_payload(id, &input)?;
        if let Some(problem) = &options.unwritable {
            return Err(ClientError::unwritable(id, problem));
        }
        if let Some(version) = &options.version {
            check("version", version, check_name)?;
            // No code is ever registered under it, so that the instance would be blocked for ever.
            semver::Version::parse(version).map_err(|problem| ClientError::BadVersion {
                id: id.to_owned(),
                version: version.clone(),
                problem: problem.to_string(),
            })?;
        }
        // Once it is started it would be blocked until its code can read it.
        if let Some(driver) = &self.driver {
            driver.check_input(name, options.version.as_deref(), &input).map_err(|mismatch| {
                ClientError::BadInput {
                    id: id.to_owned(),
                    name: name.to_owned(),
                    type_name: mismatch.type_name,
                    problem: mismatch.reason(),
                }
            })?;
        }
        if let Some((event, payload)) = &options.event {
            check("event", event, check_name)?;
            self.check_payload(id, payload)?;
        }
        for (attribute, value) in &options.attributes {
            check("attribute", attribute, check_name)?;
            self.check_payload(id, value)?;
        }
        let traced;
        let client = match &options.trace {
            Some((parent, state)) => {
                traced = self.with_trace_context(parent, state.as_deref())?;
                &traced
            }
            None => self,
        };
        loop {
            let status = match client.start_once(name, id, &input, &options).await {
                Ok(key) => return Ok((key, true)),
                Err(ClientError::AlreadyExists { status, .. }) => status,
                Err(error) => return Err(error),
            };
            let refused = || ClientError::AlreadyExists { id: id.to_owned(), status };
            if let Some((event, payload)) = &options.event
                && !status.is_final()
            {
                let Some(key) = client.key_of(id).await? else { continue };
                match client.raise_and_hear(id, key, event, payload.clone()).await {
                    Ok(()) => return Ok((key, false)),
                    // It ended meanwhile, or is gone: what that means is found out by another look.
                    Err(ClientError::Ended { .. } | ClientError::NotFound { .. }) => continue,
                    Err(error) => return Err(error),
                }
            }
            match options.on_existing {
                OnExisting::Reject => return Err(refused()),
                OnExisting::Use => match client.key_of(id).await? {
                    Some(key) => return Ok((key, false)),
                    // It was deleted meanwhile.
                    None => continue,
                },
                OnExisting::ReplaceEnded if !status.is_final() => return Err(refused()),
                OnExisting::ReplaceEnded => match self.make_way(id, false).await {
                    // Somebody else has replaced it meanwhile, and the event is for that instance.
                    Err(ClientError::AlreadyExists { status, .. })
                        if options.event.is_some() && !status.is_final() => {}
                    made => made?,
                },
                OnExisting::TerminateAndReplace => self.make_way(id, true).await?,
            }
        }
    }

    /// The key of the instance that has an id, if there is one.
    pub(super) async fn key_of(&self, id: &str) -> Result<Option<InstanceKey>, ClientError> {
        match self.row(id).await {
            Ok(row) => Ok(Some(row.key)),
            Err(ClientError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes the instance that has an id. Somebody else may have done so; then that is fine, too.
    async fn make_way(&self, id: &str, force: bool) -> Result<(), ClientError> {
        let deleted = if force { self.delete(id, true).await } else { self.delete_ended(id).await };
        match deleted {
            Ok(_) | Err(ClientError::NotFound { .. }) => Ok(()),
            Err(ClientError::NotEnded { id, status }) => Err(ClientError::AlreadyExists { id, status }),
            Err(error) => Err(error),
        }
    }

    async fn start_once(
        &self,
        name: &str,
        id: &str,
        input: &Payload,
        options: &StartOptions,
    ) -> Result<InstanceKey, ClientError> {
        let unique = Uuid::now_v7();
        let key = InstanceKey::from_bytes(*unique.as_bytes());
        // Its random bits serve for both: a draw is a call to the system.
        let (first, second) = unique.as_u64_pair();
        let seed = first ^ second;
        // Not by this machine's clock, which may be off: the owner counts by the store's.
        let now_ms = self.now_ms().await?;
        let start = options.to_start(name, input.clone(), seed, now_ms).traced(self.trace.as_deref());
        let Some(driver) = &self.driver else {
            return self.send_start(key, id, start, now_ms).await.map(|()| key);
        };
        if options.version.is_none() && !driver.registry.has_orchestration(name) {
            return Err(ClientError::NotRegistered { name: name.to_owned() });
        }
        if start.not_before_ms.is_some() {
            return self.send_start(key, id, start, now_ms).await.map(|()| key);
        }
        loop {
            // Before the look: a batch that is written right after it must not be missed.
            let written = driver.changed.notified();
            if driver.queued_commits() <= driver.max_queued_commits() || driver.failure().is_some() {
                break;
            }
            written.await;
        }
        let Start { started, jobs, .. } = start.clone();
        let request = Request::Start(Box::new(StartRequest { key, started, jobs }));
        match self.request_here(id, request).await? {
            LocalOutcome::Here(answer) => outcome_of(id, answer).map(|_| key),
            // It may have been started before the owner changed; its key tells.
            LocalOutcome::Elsewhere { .. } => self.send_start(key, id, start, now_ms).await.map(|()| key),
        }
    }

    /// Writes a start as a row and a message.
    async fn send_start(
        &self,
        key: InstanceKey,
        id: &str,
        start: Start,
        now_ms: u64,
    ) -> Result<(), ClientError> {
        let row = InstanceRow::pending(key, id, &start.started, now_ms);
        // Its time may be up before it begins.
        let deadline_ms = start.started.deadline_ms;
        let wake_at_ms = start.not_before_ms.map(|at_ms| deadline_ms.map_or(at_ms, |ms| ms.min(at_ms)));
        let row = InstanceRow { wake_at_ms, ..row };
        let body = Message::Start(Box::new(start)).encode();
        match self.send(id, SendRequest::Start { row: Box::new(row), body }).await {
            Err(ClientError::AlreadyExists { .. }) if self.row(id).await.is_ok_and(|row| row.key == key) => {
                Ok(())
            }
            sent => sent.map(drop),
        }
    }
}

/// For the test environment, which starts instances by its own clock.
#[doc(hidden)]
impl StartOptions {
    /// The start as it is written down, by what time it is.
    pub fn to_start(&self, name: &str, input: Payload, seed: u64, now_ms: u64) -> Start {
        let after =
            |span: Duration| now_ms.saturating_add(u64::try_from(span.as_millis()).unwrap_or(u64::MAX));
        let started = Started {
            deadline_ms: self.timeout.map(after),
            attributes: self.attributes.clone(),
            ..Started::new(name, self.version.clone().unwrap_or_default(), input, seed)
        };
        let event = self.event.clone();
        let event = event.map(|(name, payload)| Job::ExternalEvent { name, payload, key: None, trace: None });
        Start { started, jobs: event.into_iter().collect(), not_before_ms: self.delay.map(after) }
    }

    /// What happens if the id exists.
    pub fn policy(&self) -> OnExisting {
        self.on_existing
    }
}
