//! Starting instances.

use std::time::Duration;

use perennial_core::shard::{Message, Request, Start, StartRequest};
use perennial_core::store::{InstanceRow, SendRequest};
use perennial_core::{Attributes, InstanceKey, Job, Payload, Started, check_name};
use uuid::Uuid;

use super::{Backend, Client, check};
use crate::error::ClientError;
use crate::store_url::system_now_ms;
use crate::typed::{OrchestrationTarget, Run};

/// How an instance is started. The default: at once, at the latest version, refused if the id exists.
///
/// ```
/// use perennial::StartOutcome;
/// use perennial::prelude::*;
///
/// #[orchestration]
/// async fn order(_ctx: OrchestrationContext, item: String) -> Result<String, String> {
///     Ok(item)
/// }
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let runtime = Runtime::open("memory:").register(order).start().await?;
/// let client = runtime.client();
/// let options = StartOptions::default()
///     .on_existing(OnExisting::Use)
///     .attribute("city", "Oslo")
///     .timeout(Duration::from_secs(3_600));
/// // A request that comes twice starts one order.
/// assert_eq!(client.start_with("order", "order-1", "socks", options.clone()).await?, StartOutcome::Started);
/// assert_eq!(client.start_with("order", "order-1", "socks", options).await?, StartOutcome::Existed);
/// # Ok(runtime.shutdown().await?)
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

/// What a start came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartOutcome {
    /// The instance is new.
    Started,
    /// The id existed, and its instance was taken as it is; or the event was raised at it.
    Existed,
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
    pub fn attribute(mut self, name: impl Into<String>, value: impl Into<Payload>) -> StartOptions {
        self.attributes.insert(name.into(), value.into());
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

    /// Raises an event with the start, in one step; or at the instance that has the id already.
    pub fn or_raise(mut self, event: impl Into<String>, payload: impl Into<Payload>) -> StartOptions {
        self.event = Some((event.into(), payload.into()));
        self
    }
}

impl Client {
    /// Starts an instance of an orchestration, at its latest version. It is durable when this returns.
    ///
    /// The orchestration is a function and its input (several arguments as a tuple, none as `()`), a name and a string,
    /// or an [`Orchestration`](crate::typed::Orchestration). The id is yours to choose: 1 to 200 bytes, without `::`.
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
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = Runtime::open("memory:").register(add).start().await?;
    /// let client = runtime.client();
    /// let run = client.start(add, "sum-1", (2, 3)).await?;
    /// assert_eq!(run.result().await?, 5);
    ///
    /// let run = client.start(add, "sum-2", (i64::MAX, 1)).await?;
    /// assert!(matches!(run.result().await, Err(RunError::Failed(error)) if error == "too much"));
    ///
    /// let again = client.start(add, "sum-1", (2, 3)).await;
    /// assert!(matches!(again, Err(ClientError::AlreadyExists { status: Status::Completed, .. })));
    /// # Ok(runtime.shutdown().await?)
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
        self.start_with(orchestration, id, input, StartOptions::default()).await?;
        Ok(Run::new(self.clone(), id, T::read_output, T::read_error))
    }

    /// Starts an instance at an exact version.
    pub async fn start_versioned(
        &self,
        name: &str,
        version: &str,
        id: &str,
        input: impl Into<Payload>,
    ) -> Result<(), ClientError> {
        self.start_named(name, id, input.into(), StartOptions::default().version(version)).await.map(drop)
    }

    /// Starts an instance this way. What it did is durable when this returns.
    pub async fn start_with<T, I, K>(
        &self,
        orchestration: T,
        id: &str,
        input: I,
        options: StartOptions,
    ) -> Result<StartOutcome, ClientError>
    where
        T: OrchestrationTarget<I, K>,
    {
        let input = T::encode(input)
            .map_err(|error| ClientError::Unwritable { id: id.to_owned(), problem: error.to_string() })?;
        self.start_named(&orchestration.name(), id, input, options).await
    }

    async fn start_named(
        &self,
        name: &str,
        id: &str,
        input: Payload,
        options: StartOptions,
    ) -> Result<StartOutcome, ClientError> {
        check("instance id", id, check_name)?;
        check("orchestration", name, check_name)?;
        self.check_payload(id, &input)?;
        if let Some(version) = &options.version {
            check("version", version, check_name)?;
        }
        if let Some((event, payload)) = &options.event {
            check("event", event, check_name)?;
            self.check_payload(id, payload)?;
        }
        for (attribute, value) in &options.attributes {
            check("attribute", attribute, check_name)?;
            self.check_payload(id, value)?;
        }
        loop {
            let status = match self.start_once(name, id, &input, &options).await {
                Ok(()) => return Ok(StartOutcome::Started),
                Err(ClientError::AlreadyExists { status, .. }) => status,
                Err(error) => return Err(error),
            };
            let refused = || ClientError::AlreadyExists { id: id.to_owned(), status };
            if let Some((event, payload)) = &options.event
                && !status.is_final()
            {
                match self.raise(id, event, payload.clone(), None).await {
                    Ok(()) => return Ok(StartOutcome::Existed),
                    // It ended meanwhile, or is gone: what that means is found out by another look.
                    Err(ClientError::Ended { .. } | ClientError::NotFound { .. }) => continue,
                    Err(error) => return Err(error),
                }
            }
            match options.on_existing {
                OnExisting::Reject => return Err(refused()),
                OnExisting::Use => return Ok(StartOutcome::Existed),
                OnExisting::ReplaceEnded if !status.is_final() => return Err(refused()),
                OnExisting::ReplaceEnded => self.make_way(id, false).await?,
                OnExisting::TerminateAndReplace => self.make_way(id, true).await?,
            }
        }
    }

    /// Removes the instance that has an id. Somebody else may have done so; then that is fine, too.
    async fn make_way(&self, id: &str, force: bool) -> Result<(), ClientError> {
        match self.delete(id, force).await {
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
    ) -> Result<(), ClientError> {
        let key = InstanceKey::from_bytes(*Uuid::now_v7().as_bytes());
        let (seed, _) = Uuid::new_v4().as_u64_pair();
        let now_ms = match &self.backend {
            Backend::Node(node) => node.now_ms(),
            Backend::Guest { .. } => system_now_ms(),
        };
        let after =
            |span: Duration| now_ms.saturating_add(u64::try_from(span.as_millis()).unwrap_or(u64::MAX));
        let started = Started {
            deadline_ms: options.timeout.map(after),
            attributes: options.attributes.clone(),
            ..Started::new(name, options.version.clone().unwrap_or_default(), input.clone(), seed)
        };
        let event = options.event.clone();
        let jobs: Vec<Job> = event
            .map(|(name, payload)| Job::ExternalEvent { name, payload, key: None })
            .into_iter()
            .collect();
        let not_before_ms = options.delay.map(after);
        let node = match &self.backend {
            Backend::Node(node) => node,
            Backend::Guest { .. } => {
                return self.send_start(key, id, started, jobs, not_before_ms, now_ms).await;
            }
        };
        let is_known = match &options.version {
            Some(_) => true,
            None => node.registry.latest_version(name).is_some(),
        };
        if !is_known {
            return Err(ClientError::NotRegistered { name: name.to_owned() });
        }
        if not_before_ms.is_some() {
            self.send_start(key, id, started, jobs, not_before_ms, now_ms).await?;
            node.look_ahead();
            return Ok(());
        }
        loop {
            // Before the look: a batch that is written right after it must not be missed.
            let written = node.batch_written();
            if node.queued_commits() <= node.max_queued_commits() || node.failure().is_some() {
                break;
            }
            written.await;
        }
        let request = Request::Start(Box::new(StartRequest { key, started, jobs }));
        self.ask(node, id, request).await.map(drop)
    }

    /// Writes a start as a row and a message.
    async fn send_start(
        &self,
        key: InstanceKey,
        id: &str,
        started: Started,
        jobs: Vec<Job>,
        not_before_ms: Option<u64>,
        now_ms: u64,
    ) -> Result<(), ClientError> {
        let row = InstanceRow::pending(key, id, &started, now_ms);
        // Its time may be up before it begins.
        let wake_at_ms = not_before_ms.map(|at_ms| started.deadline_ms.map_or(at_ms, |ms| ms.min(at_ms)));
        let row = InstanceRow { wake_at_ms, ..row };
        let body = Message::Start(Box::new(Start { started, jobs, not_before_ms })).encode();
        self.send(id, SendRequest::Start { row: Box::new(row), body }).await
    }
}
