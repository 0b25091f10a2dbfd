//! Starting instances.

use std::time::Duration;

use perennial_core::shard::{Message, Request, Start, StartRequest};
use perennial_core::store::{InstanceRow, SendRequest};
use perennial_core::{Attributes, InstanceKey, Job, Payload, Started, check_name};
use serde::Serialize;
use uuid::Uuid;

use super::call_span::Call;
use super::sending::{LocalOutcome, outcome_of};
use super::{Client, check};
use crate::error::ClientError;
use crate::typed::{EventContent, OrchestrationTarget, Run, RunTarget};

/// Options of a start. By default, the instance begins at once, at the latest version, and an existing id is
/// refused.
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
/// // A request that arrives twice starts one order.
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
    /// Set if a value cannot be written as JSON; the start returns it as an error.
    unwritable: Option<String>,
}

/// The effect of a start whose id exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnExisting {
    /// Refuses the start, with the status of the existing instance.
    #[default]
    Reject,
    /// Uses the existing instance unchanged.
    Use,
    /// Replaces an instance that has ended: it is deleted with its children. Refuses the start if the
    /// instance is running.
    ReplaceEnded,
    /// Terminates a running instance, then replaces it.
    TerminateAndReplace,
}

impl StartOptions {
    /// Starts at an exact version instead of the latest.
    pub fn version(mut self, version: impl Into<String>) -> StartOptions {
        self.version = Some(version.into());
        self
    }

    /// Sets what happens if the id exists.
    pub fn on_existing(mut self, policy: OnExisting) -> StartOptions {
        self.on_existing = policy;
        self
    }

    /// Sets a searchable attribute of the instance.
    pub fn attribute(mut self, name: impl Into<String>, value: impl Serialize) -> StartOptions {
        if let Some(value) = self.encoded(Payload::encode(&value)) {
            self.attributes.insert(name.into(), value);
        }
        self
    }

    /// Delays the first turn. The start itself is durable at once.
    pub fn delay(mut self, delay: Duration) -> StartOptions {
        self.delay = Some(delay);
        self
    }

    /// Limits the total time of the instance, counted from the call; continue-as-new does not reset it. When
    /// it elapses, the instance ends as timed out.
    pub fn timeout(mut self, timeout: Duration) -> StartOptions {
        self.timeout = Some(timeout);
        self
    }

    /// Records the trace context of the request that starts the instance: the W3C headers `traceparent` (up
    /// to 128 bytes) and `tracestate` (up to 512). A longer value refuses the start.
    pub fn trace_context(mut self, parent: impl Into<String>, state: Option<String>) -> StartOptions {
        self.trace = Some((parent.into(), state));
        self
    }

    /// Raises an event together with the start, atomically. If the id exists, raises the event at the
    /// existing instance.
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
    /// Starts an instance of an orchestration at its latest version. It is durable when this returns.
    ///
    /// The orchestration is a function with its input (several arguments as a tuple, none as `()`), a name
    /// with a string, or an [`Orchestration`](crate::Orchestration). You choose the id: 1 to 200 bytes,
    /// without `::`.
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

    /// Starts an instance with options. The effect is durable when this returns; [`Run::is_new`] returns
    /// whether the instance is new.
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

    /// The handle of an existing instance, with the types of its orchestration: a function, an
    /// [`Orchestration`](crate::Orchestration), or a name (then payloads). This call does not read the store.
    /// The first call that waits for a result binds the handle to the instance that then has the id.
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
        Run::new(self.clone(), id, self.only, false, T::read_output, T::read_error)
    }

    /// Starts an instance. Returns the key of the instance that has the id afterwards, and whether it is new.
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
            // No code can be registered under an invalid version, so the instance would be blocked forever.
            semver::Version::parse(version).map_err(|problem| ClientError::BadVersion {
                id: id.to_owned(),
                version: version.clone(),
                problem: problem.to_string(),
            })?;
        }
        // Once started, the instance would be blocked until its code can decode the input.
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
        let span = client.call_span(Call::Start(name), id);
        let client = client.within(&span);
        let started = client.start_by_policy(name, id, input, options);
        let outcome = |(_, is_new): &(InstanceKey, bool)| if *is_new { "started" } else { "existing" };
        span.over(started, outcome).await
    }

    /// Starts an instance, and applies the policy of the start if the id exists.
    async fn start_by_policy(
        &self,
        name: &str,
        id: &str,
        input: Payload,
        options: StartOptions,
    ) -> Result<(InstanceKey, bool), ClientError> {
        loop {
            let status = match self.start_once(name, id, &input, &options).await {
                Ok(key) => return Ok((key, true)),
                Err(ClientError::AlreadyExists { status, .. }) => status,
                Err(error) => return Err(error),
            };
            let refused = || ClientError::AlreadyExists { id: id.to_owned(), status };
            if let Some((event, payload)) = &options.event
                && !status.is_final()
            {
                let Some(key) = self.key_of(id).await? else { continue };
                match self.raise_and_confirm(id, key, event, payload.clone()).await {
                    Ok(()) => return Ok((key, false)),
                    // The instance ended or was deleted in the meantime; look again to decide what follows.
                    Err(ClientError::Ended { .. } | ClientError::NotFound { .. }) => continue,
                    Err(error) => return Err(error),
                }
            }
            match options.on_existing {
                OnExisting::Reject => return Err(refused()),
                OnExisting::Use => match self.key_of(id).await? {
                    Some(key) => return Ok((key, false)),
                    // Deleted in the meantime.
                    None => continue,
                },
                OnExisting::ReplaceEnded if !status.is_final() => return Err(refused()),
                OnExisting::ReplaceEnded => match self.make_way(id, false).await {
                    // Another caller has replaced the instance; the event is for the new one.
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

    /// Removes the instance that has an id, unless another caller has done so.
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
        // The random bits serve both purposes: drawing new ones is a system call.
        let (first, second) = unique.as_u64_pair();
        let seed = first ^ second;
        // The local clock may be wrong; the owner uses the store's clock.
        let now_ms = self.now_ms().await?;
        let start =
            options.to_start(name, input.clone(), seed, now_ms).traced(self.caller_trace().as_deref());
        let Some(driver) = &self.driver else {
            return self.send_start(key, id, start, now_ms).await.map(|()| key);
        };
        // A worker need not have what others run.
        let runs_orchestrations = driver.owns_shards();
        if options.version.is_none() && runs_orchestrations && !driver.registry.has_orchestration(name) {
            return Err(ClientError::NotRegistered {
                name: name.to_owned(),
                similar: driver.registry.similar_orchestration(name),
            });
        }
        if start.not_before_ms.is_some() {
            return self.send_start(key, id, start, now_ms).await.map(|()| key);
        }
        loop {
            // Registered before the read, so that a batch written right after it is not missed.
            let written = driver.changed.any();
            if driver.queued_commits() <= driver.max_queued_commits() || driver.failure().is_some() {
                break;
            }
            written.await;
        }
        let Start { started, jobs, .. } = start.clone();
        let request = Request::Start(Box::new(StartRequest { key, started, jobs }));
        match self.request_here(id, request).await? {
            LocalOutcome::Here(answer) => outcome_of(id, answer).map(|_| key),
            // It may have been started before the owner changed; its key decides.
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
        // The deadline may be before the begin.
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

/// For the test environment, which starts instances with its own clock.
#[doc(hidden)]
impl StartOptions {
    /// The start as it is recorded, at the given time.
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

    /// The policy for an existing id.
    pub fn policy(&self) -> OnExisting {
        self.on_existing
    }
}
