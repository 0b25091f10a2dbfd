//! Stopping a router: waiting requests are answered, streams end, new requests are refused.

use std::sync::Arc;

use tokio::sync::watch;

/// Stops a router. Clones stop the same one.
///
/// ```
/// use perennial_server::{Options, Stop};
///
/// let stop = Stop::default();
/// let options = Options::default().stop(stop.clone());
/// // On SIGTERM, before the application stops its listener:
/// stop.stop();
/// assert!(stop.is_stopped());
/// ```
#[derive(Clone, Debug)]
pub struct Stop(Arc<watch::Sender<bool>>);

impl Default for Stop {
    fn default() -> Stop {
        Stop(Arc::new(watch::Sender::new(false)))
    }
}

impl Stop {
    /// Stops the router: `readyz` says so, waiting requests are answered with what is known, streams end, operations end
    /// after their current instance, and new requests are refused. Returns at once.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }

    /// Whether [`stop`](Stop::stop) was called.
    pub fn is_stopped(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until [`stop`](Stop::stop) is called.
    pub async fn stopped(&self) {
        let mut stopped = self.0.subscribe();
        // The sender lives as long as this handle.
        let _ = stopped.wait_for(|stopped| *stopped).await;
    }
}
