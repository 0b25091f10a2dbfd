//! The HeartbeatMonitor of one attempt: receives heartbeats, decides when to write them, and detects missing
//! ones.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use perennial_core::Payload;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Heartbeats are written at most this often.
const WRITE_INTERVAL: Duration = Duration::from_secs(5);

pub(crate) struct HeartbeatMonitor {
    beats: Mutex<Beats>,
    beaten: Notify,
}

struct Beats {
    last: Instant,
    /// Whether there was a heartbeat since `last`. The watcher takes the time, since its clock may differ
    /// from that of the activity.
    is_fresh: bool,
    /// The last reported details.
    latest: Option<Payload>,
    is_written: bool,
    written: Option<Instant>,
    /// Whether the code has returned with [`Later::Pending`](crate::Later::Pending).
    is_left_open: bool,
    has_panicked: bool,
}

impl HeartbeatMonitor {
    pub(super) fn new() -> HeartbeatMonitor {
        let last = Instant::now();
        let beats = Beats {
            last,
            is_fresh: false,
            latest: None,
            is_written: true,
            written: None,
            is_left_open: false,
            has_panicked: false,
        };
        HeartbeatMonitor { beats: Mutex::new(beats), beaten: Notify::new() }
    }

    /// Marks the begin of the attempt.
    pub(super) fn begin(&self) {
        self.lock().last = Instant::now();
    }

    pub(crate) fn beat(&self, details: Payload) {
        {
            let mut beats = self.lock();
            beats.is_fresh = true;
            beats.latest = Some(details);
            beats.is_written = false;
        }
        self.beaten.notify_one();
    }

    /// Marks that the code returned and the result is reported with the token.
    pub(crate) fn leave_open(&self) {
        self.lock().is_left_open = true;
    }

    pub(super) fn is_left_open(&self) -> bool {
        self.lock().is_left_open
    }

    /// Marks that the code panicked.
    pub(super) fn note_panicked(&self) {
        self.lock().has_panicked = true;
    }

    pub(super) fn has_panicked(&self) -> bool {
        self.lock().has_panicked
    }

    /// Takes the details that have not been written.
    pub(super) fn take_unwritten(&self) -> Option<Payload> {
        let mut beats = self.lock();
        if std::mem::replace(&mut beats.is_written, true) {
            return None;
        }
        beats.written = Some(Instant::now());
        beats.latest.clone()
    }

    /// The last reported details.
    pub(super) fn latest(&self) -> Option<Payload> {
        self.lock().latest.clone()
    }

    /// Writes heartbeats until one is overdue.
    pub(super) async fn watch(&self, silence: Option<Duration>, mut write: impl FnMut(Payload)) {
        loop {
            let (write_at, silent_at) = {
                let mut beats = self.lock();
                if std::mem::take(&mut beats.is_fresh) {
                    beats.last = Instant::now();
                }
                let write_at = beats.written.map_or(beats.last, |written| written + WRITE_INTERVAL);
                let write_at = (!beats.is_written).then_some(write_at);
                (write_at, silence.and_then(|silence| beats.last.checked_add(silence)))
            };
            let now = Instant::now();
            if write_at.is_some_and(|at| at <= now) {
                if let Some(details) = self.take_unwritten() {
                    write(details);
                }
                continue;
            }
            if silent_at.is_some_and(|at| at <= now) {
                return;
            }
            let wake = write_at.into_iter().chain(silent_at).min();
            tokio::select! {
                () = self.beaten.notified() => {}
                () = sleep_until(wake) => {}
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Beats> {
        self.beats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sleeps until a time, or forever.
pub(super) async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
