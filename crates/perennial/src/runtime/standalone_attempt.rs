//! One attempt of an activity without a node around it, for test kits.

use std::sync::Arc;
use std::time::Duration;

use perennial_core::shard::ActivityTask;
use perennial_core::{ActivityError, Payload};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::attempt_span::AttemptSpan;
use super::heartbeat_monitor::HeartbeatMonitor;
use super::workers::run_attempt;
use crate::activity::ActivityHandler;
use crate::client::Client;

/// One attempt, run like on a node: panics are failures, timeouts and heartbeats apply.
#[doc(hidden)]
#[derive(Clone)]
pub struct StandaloneAttempt {
    handler: Arc<dyn ActivityHandler>,
    task: Arc<ActivityTask>,
    client: Client,
    cancellation: CancellationToken,
    heartbeats: Arc<HeartbeatMonitor>,
}

impl StandaloneAttempt {
    /// How long a cancelled attempt may take to end before it is dropped.
    const GRACE: Duration = Duration::from_secs(5);

    /// Creates an attempt that has not begun.
    pub fn new(
        handler: Arc<dyn ActivityHandler>,
        task: Arc<ActivityTask>,
        client: Client,
    ) -> StandaloneAttempt {
        let (cancellation, heartbeats) = (CancellationToken::new(), Arc::new(HeartbeatMonitor::new()));
        StandaloneAttempt { handler, task, client, cancellation, heartbeats }
    }

    /// Runs the attempt on tokio's clock, which shows `now_ms`.
    pub async fn run(&self, now_ms: u64) -> Result<Payload, ActivityError> {
        let left = |deadline_ms: u64| Duration::from_millis(deadline_ms.saturating_sub(now_ms));
        let total_until = self.task.deadline_ms.and_then(|at_ms| Instant::now().checked_add(left(at_ms)));
        let span = AttemptSpan::open(&self.task);
        let client = self.client.clone().of_attempt(span.trace(&self.task));
        let cancellation = self.cancellation.clone();
        let result = run_attempt(
            (&*self.handler, &span.span),
            &self.task,
            cancellation,
            &self.heartbeats,
            client,
            StandaloneAttempt::GRACE,
            total_until,
            |_| {},
        )
        .await;
        span.end("", &result, self.heartbeats.is_left_open());
        result
    }

    /// The last reported details.
    pub fn details(&self) -> Option<Payload> {
        self.heartbeats.latest()
    }

    /// Whether the attempt returned [`Later::Pending`](crate::Later::Pending).
    pub fn is_left_open(&self) -> bool {
        self.heartbeats.is_left_open()
    }

    /// Cancels the attempt.
    pub fn cancel(&self) {
        self.cancellation.cancel();
    }
}

impl std::fmt::Debug for StandaloneAttempt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("StandaloneAttempt").field(&self.task.name).finish()
    }
}
