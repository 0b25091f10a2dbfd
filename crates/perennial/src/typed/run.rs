//! The handle of a started instance.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use perennial_core::codec::is_encoded;
use perennial_core::{Ending, InstanceKey, NotOfType, Payload};

use super::error::words;
use crate::client::Client;
use crate::error::{ClientError, Error, OrchestrationError};

/// The handle of a started instance, with the types of its result. Cloning is cheap; dropping the handle does
/// not affect the instance.
///
/// The handle waits for the result. For everything else, use the [`Client`] with [`Run::id`].
pub struct Run<O = Payload, E = Payload> {
    client: Client,
    id: String,
    /// Identifies the instance, since another instance may have its id later. Looked up with the first
    /// result, unless the start returned it.
    key: OnceLock<InstanceKey>,
    is_new: bool,
    read_output: fn(Payload) -> Result<O, NotOfType>,
    read_error: fn(Payload) -> Result<E, NotOfType>,
}

/// Why an instance returned no result.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum RunError<E = Payload> {
    /// The orchestration returned an error.
    Failed {
        /// The id of the instance.
        id: String,
        /// The error that it returned.
        error: E,
    },
    /// The instance was cancelled.
    Cancelled {
        /// The id of the instance.
        id: String,
        /// The reason of the cancel request.
        reason: String,
        /// The output, if the code ended itself with
        /// [`end_cancelled`](crate::OrchestrationContext::end_cancelled).
        output: Option<Payload>,
    },
    /// The instance was terminated.
    Ended(OrchestrationError),
    /// The result could not be read.
    Client(ClientError),
}

impl<E: fmt::Display> fmt::Display for RunError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Failed { id, error } => {
                write!(f, "{}: instance {id:?} returned an error: {error}", self.code().prefix())
            }
            RunError::Cancelled { id, reason, .. } => {
                write!(f, "{}: instance {id:?}: {reason}", self.code().prefix())
            }
            RunError::Ended(error) => error.fmt(f),
            RunError::Client(error) => error.fmt(f),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for RunError<E> {}

impl<E> From<ClientError> for RunError<E> {
    fn from(error: ClientError) -> RunError<E> {
        RunError::Client(error)
    }
}

/// Keeps the text of the orchestration's error, or the error itself if it is a payload.
impl<E: fmt::Display + 'static> From<RunError<E>> for Error {
    fn from(error: RunError<E>) -> Error {
        match error {
            RunError::Failed { id, error } => OrchestrationError::Failed { id, error: words(&error) }.into(),
            RunError::Cancelled { id, reason, output } => {
                OrchestrationError::Cancelled { id, reason, output }.into()
            }
            RunError::Ended(error) => error.into(),
            RunError::Client(error) => error.into(),
        }
    }
}

impl<O, E> Run<O, E> {
    pub(crate) fn new(
        client: Client,
        id: &str,
        key: Option<InstanceKey>,
        is_new: bool,
        read_output: fn(Payload) -> Result<O, NotOfType>,
        read_error: fn(Payload) -> Result<E, NotOfType>,
    ) -> Run<O, E> {
        let key = key.map_or_else(OnceLock::new, OnceLock::from);
        Run { client, id: id.to_owned(), key, is_new, read_output, read_error }
    }

    /// The id of the instance.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The key of the instance that this handle is bound to. `None` for a handle of [`Client::run`] that has not waited
    /// for a result.
    pub fn bound_key(&self) -> Option<InstanceKey> {
        self.key.get().copied()
    }

    /// Whether this call started the instance. If `false`, the id existed and its instance was used, or an
    /// event was raised at it.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Waits for the instance to end and returns its result.
    ///
    /// An instance that is blocked, or waits for an activity that is not registered anywhere, has not ended:
    /// see [`result_unless_blocked`](Run::result_unless_blocked) and [`result_within`](Run::result_within).
    /// [`Client::explain`] reports what an instance waits for.
    pub async fn result(&self) -> Result<O, RunError<E>> {
        let key = self.key().await?;
        self.result_of(Some(key)).await
    }

    /// Like [`result`](Run::result), but returns [`ClientError::Elapsed`] after `limit`. The instance
    /// continues to run.
    ///
    /// ```
    /// use perennial::prelude::*;
    ///
    /// #[orchestration]
    /// async fn nap(ctx: OrchestrationContext, ms: u64) -> Result<String, String> {
    ///     ctx.schedule_timer(Duration::from_millis(ms)).await;
    ///     Ok("rested".to_owned())
    /// }
    ///
    /// # #[tokio::main]
    /// # async fn main() -> perennial::Result<()> {
    /// # let runtime = Runtime::open("memory:").register(nap).start().await?;
    /// let run = runtime.client().start(nap, "nap-1", 200).await?;
    /// let early = run.result_within(Duration::from_millis(1)).await;
    /// assert!(matches!(early, Err(RunError::Client(ClientError::Elapsed { .. }))));
    /// assert_eq!(run.result_within(Duration::from_secs(60)).await?, "rested");
    /// # runtime.shutdown().await
    /// # }
    /// ```
    pub async fn result_within(&self, limit: Duration) -> Result<O, RunError<E>> {
        match tokio::time::timeout(limit, self.result()).await {
            Ok(result) => result,
            Err(_) => Err(self.client.elapsed(&self.id, limit).await.into()),
        }
    }

    /// Like [`result`](Run::result), but returns [`ClientError::Blocked`] with the reason as soon as the
    /// instance is blocked or paused. A retry, skip or resume that was accepted before is awaited first.
    ///
    /// ```
    /// use perennial::prelude::*;
    ///
    /// #[orchestration]
    /// async fn broken(_: OrchestrationContext) -> Result<(), String> {
    ///     panic!("not written yet")
    /// }
    ///
    /// # #[tokio::main]
    /// # async fn main() -> perennial::Result<()> {
    /// # let runtime = Runtime::open("memory:").register(broken).start().await?;
    /// let run = runtime.client().start(broken, "broken-1", ()).await?;
    /// match run.result_unless_blocked().await {
    ///     Err(RunError::Client(ClientError::Blocked { code, reason, .. })) => {
    ///         assert_eq!(code, "PER-0201");
    ///         assert!(reason.contains("not written yet"));
    ///     }
    ///     other => panic!("{other:?}"),
    /// }
    /// # runtime.shutdown().await
    /// # }
    /// ```
    pub async fn result_unless_blocked(&self) -> Result<O, RunError<E>> {
        let key = self.key().await?;
        self.result_of_unless_blocked(Some(key)).await
    }

    async fn key(&self) -> Result<InstanceKey, ClientError> {
        match self.key.get() {
            Some(key) => Ok(*key),
            None => {
                let found = self.client.row(&self.id).await?.key;
                Ok(*self.key.get_or_init(|| found))
            }
        }
    }

    pub(crate) async fn result_of_unless_blocked(&self, key: Option<InstanceKey>) -> Result<O, RunError<E>> {
        tokio::select! {
            // The end of an instance has precedence over what blocked it before.
            biased;
            result = self.result_of(key) => result,
            blocked = self.client.until_blocked(&self.id, key) => Err(blocked.into()),
        }
    }

    /// The result of the instance with the key, or without a key, of the one that has the id now.
    pub(crate) async fn result_of(&self, key: Option<InstanceKey>) -> Result<O, RunError<E>> {
        let id = self.id.clone();
        let unreadable = |error: NotOfType| RunError::Client(ClientError::unreadable(&self.id, &error));
        let ending = self.client.wait_bound(&self.id, key).await?;
        if let Ending::OrchestrationCompleted { output: payload }
        | Ending::OrchestrationFailed { error: payload } = &ending
            && is_encoded(payload)
        {
            return Err(RunError::Client(ClientError::Encoded { id, marker: payload.clone() }));
        }
        match ending {
            Ending::OrchestrationCompleted { output } => (self.read_output)(output).map_err(unreadable),
            Ending::OrchestrationFailed { error } => {
                Err((self.read_error)(error).map_or_else(unreadable, |error| RunError::Failed { id, error }))
            }
            Ending::OrchestrationCancelled { reason, output } => {
                Err(RunError::Cancelled { id, reason, output })
            }
            Ending::OrchestrationTerminated { reason } => {
                Err(RunError::Ended(OrchestrationError::Terminated { id, reason }))
            }
            Ending::OrchestrationContinuedAsNew { .. } => {
                let reason = "it continued as new while it was read".to_owned();
                Err(RunError::Client(ClientError::Unknown { id, reason }))
            }
        }
    }
}

impl<O, E> Clone for Run<O, E> {
    fn clone(&self) -> Run<O, E> {
        Run {
            client: self.client.clone(),
            id: self.id.clone(),
            key: self.key.clone(),
            is_new: self.is_new,
            read_output: self.read_output,
            read_error: self.read_error,
        }
    }
}

impl<O, E> fmt::Debug for Run<O, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Two handles are equal if they have the same id.
impl<O, E> PartialEq for Run<O, E> {
    fn eq(&self, other: &Run<O, E>) -> bool {
        self.id == other.id
    }
}
