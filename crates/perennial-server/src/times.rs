//! How long the server waits for its callers.

use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// For the head of a request, and for a TLS handshake.
    pub(crate) head: Duration,
    /// For the body of a request.
    pub(crate) body: Duration,
    /// For the next request of a connection.
    pub(crate) idle: Duration,
    /// For a caller that takes nothing of its answer.
    pub(crate) stalled: Duration,
    /// Silence on a stream, before a comment keeps proxies from closing the connection.
    pub(crate) silence: Duration,
}

impl Default for Times {
    fn default() -> Times {
        let seconds = Duration::from_secs;
        Times {
            head: seconds(10),
            body: seconds(30),
            idle: seconds(60),
            stalled: seconds(30),
            silence: seconds(15),
        }
    }
}

impl Times {
    pub(crate) fn divided_by(self, divisor: u32) -> Times {
        let Times { head, body, idle, stalled, silence } = self;
        Times {
            head: head / divisor,
            body: body / divisor,
            idle: idle / divisor,
            stalled: stalled / divisor,
            silence: silence / divisor,
        }
    }
}
