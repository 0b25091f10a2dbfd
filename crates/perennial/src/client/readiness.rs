//! Whether requests can be served, and when something may have changed.

use std::sync::Arc;
use std::time::Duration;

use perennial_core::store::shown_url;

use super::Client;
use super::explaining::KeptWork;
use crate::error::ClientError;

impl Client {
    /// Checks that requests can be served: the store answers, and in the process of a runtime, the runtime runs and
    /// holds its lease. For health checks.
    ///
    /// ```
    /// # use perennial::prelude::*;
    /// # #[tokio::main]
    /// # async fn main() -> perennial::Result<()> {
    /// let runtime = Runtime::open("memory:").start().await?;
    /// let client = runtime.client();
    /// client.check_ready().await?;
    /// runtime.shutdown().await?;
    /// assert!(matches!(client.check_ready().await, Err(ClientError::Stopped { .. })));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn check_ready(&self) -> Result<(), ClientError> {
        if let Some(driver) = &self.driver {
            driver.check_serving().map_err(|reason| ClientError::Stopped { reason })?;
        }
        self.call("", |store, reply| store.directory(reply)).await.map(drop)
    }

    /// Whether the runtime of this process has stopped or is about to. Always `false` outside of a runtime.
    pub fn is_stopping(&self) -> bool {
        self.driver.as_ref().is_some_and(|driver| driver.is_over())
    }

    /// Returns this client with a memory of what explanations computed from histories, of about so many bytes. The next
    /// explanation of an instance reads only its new turns. For programs that show instances again and again.
    #[must_use]
    pub fn remembering_histories(mut self, bytes: usize) -> Client {
        self.histories = Some(Arc::new(KeptWork::new(bytes)));
        self
    }

    /// The URL by which this client opened its store, without a password. `None` for the client of a runtime.
    pub fn store_url(&self) -> Option<String> {
        self.url.as_deref().map(shown_url)
    }

    /// Whether this client belongs to a runtime of this process, which hears of every turn that it writes.
    pub fn is_in_runtime(&self) -> bool {
        self.driver.is_some()
    }

    /// Waits until the store hints that something may have changed, or for `limit`. Returns whether there was a hint.
    ///
    /// Hints can be lost, and do not tell what changed: read again after either. A hint that comes before the future is
    /// polled for the first time is not seen, so create the future with this call, then read, then await it.
    pub fn changed(&self, limit: Duration) -> impl Future<Output = bool> + Send + use<> {
        let changed = Arc::clone(&self.changed);
        // Registered now, so that a change between this call and the first poll is seen.
        let mut hint = Box::pin(changed.notified_owned());
        hint.as_mut().enable();
        async move { tokio::time::timeout(limit, hint).await.is_ok() }
    }
}
