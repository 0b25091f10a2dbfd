//! Connections and their limits: slow heads, idle ones, answers that nobody takes, and too many at a time.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::{Body, Bytes};
use hyper::body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

use crate::times::Times;

/// With more connections than this, the one that has been idle for the longest is closed.
const MAX_CONNECTIONS: usize = 1_024;
/// What a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    /// Some bytes of a request have arrived.
    Head,
    /// A request is being answered.
    Busy,
}

#[derive(Debug)]
struct Now {
    phase: Phase,
    since: Instant,
    /// Since when the other end has taken nothing.
    stalled: Option<Instant>,
}

/// The state of one connection.
#[derive(Debug)]
pub(super) struct State {
    now: Mutex<Now>,
    times: Times,
    changed: Notify,
    closed: Notify,
}

impl State {
    fn lock(&self) -> MutexGuard<'_, Now> {
        self.now.lock().expect("no code panics while it holds a connection's state")
    }

    fn enter(&self, phase: Phase) {
        let mut now = self.lock();
        (now.phase, now.since) = (phase, Instant::now());
        drop(now);
        self.changed.notify_one();
    }

    fn note_bytes(&self) {
        let is_idle = self.lock().phase == Phase::Idle;
        if is_idle {
            self.enter(Phase::Head);
        }
    }

    fn note_write(&self, is_pending: bool) {
        let mut now = self.lock();
        let stalled = match (is_pending, now.stalled) {
            (true, None) => Some(Instant::now()),
            (true, stalled) => stalled,
            (false, _) => None,
        };
        let is_new = stalled.is_some() != now.stalled.is_some();
        now.stalled = stalled;
        drop(now);
        if is_new {
            self.changed.notify_one();
        }
    }

    /// When the connection is closed, unless something happens.
    fn deadline(&self) -> Option<Instant> {
        let now = self.lock();
        let by_phase = match now.phase {
            Phase::Idle => Some(now.since + self.times.idle),
            Phase::Head => Some(now.since + self.times.head),
            Phase::Busy => None,
        };
        by_phase.into_iter().chain(now.stalled.map(|since| since + self.times.stalled)).min()
    }

    /// A request has arrived; it lasts until the returned value is dropped.
    pub(super) fn begin_request(self: &Arc<State>) -> Busy {
        self.enter(Phase::Busy);
        Busy(Arc::clone(self))
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct Busy(Arc<State>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.enter(Phase::Idle);
    }
}

impl Busy {
    /// A body that keeps the request going until it is dropped.
    pub(super) fn until_end_of(self, body: Body) -> Body {
        Body::new(LastingBody { body, _busy: self })
    }
}

struct LastingBody {
    body: Body,
    _busy: Busy,
}

impl hyper::body::Body for LastingBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// All connections of a listener.
#[derive(Debug, Default)]
pub(super) struct Connections(Mutex<(u64, BTreeMap<u64, Arc<State>>)>);

impl Connections {
    /// Adds a connection, and closes an idle one if there are too many. `None` if all are busy.
    pub(super) fn add(self: &Arc<Connections>, times: Times) -> Option<Connection> {
        let now = Now { phase: Phase::Idle, since: Instant::now(), stalled: None };
        let state =
            Arc::new(State { now: Mutex::new(now), times, changed: Notify::new(), closed: Notify::new() });
        let mut all = self.lock();
        if all.1.len() >= MAX_CONNECTIONS {
            let (place, oldest) = all
                .1
                .iter()
                .filter(|(_, state)| state.lock().phase != Phase::Busy)
                .min_by_key(|(_, state)| state.lock().since)
                .map(|(place, state)| (*place, Arc::clone(state)))?;
            oldest.closed.notify_one();
            // No longer counted, even before its task has ended.
            all.1.remove(&place);
        }
        let number = all.0;
        all.0 += 1;
        all.1.insert(number, Arc::clone(&state));
        Some(Connection { number, state, connections: Arc::clone(self) })
    }

    fn lock(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, Arc<State>>)> {
        self.0.lock().expect("no code panics while it holds the connections")
    }
}

/// One connection, until it is dropped.
#[derive(Debug)]
pub(super) struct Connection {
    number: u64,
    state: Arc<State>,
    connections: Arc<Connections>,
}

impl Connection {
    pub(super) fn state(&self) -> Arc<State> {
        Arc::clone(&self.state)
    }

    /// Waits until the connection has to be closed.
    pub(super) async fn expired(&self) {
        loop {
            let changed = self.state.changed.notified();
            let deadline = self.state.deadline();
            let due = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = changed => {}
                () = self.state.closed.notified() => return,
                () = due => return,
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.connections.lock().1.remove(&self.number);
    }
}

/// A stream whose reads and writes are noted.
pub(super) struct Watched<S> {
    stream: S,
    state: Arc<State>,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, state: Arc<State>) -> Watched<S> {
        Watched { stream, state }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.state.note_bytes();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.state.note_write(written.is_pending());
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h34_beyond_the_limit_the_oldest_idle_connection_is_closed() {
        let connections = Arc::new(Connections::default());
        let mut open: Vec<Connection> =
            (0..MAX_CONNECTIONS).map(|_| connections.add(Times::default()).unwrap()).collect();
        let busy = open[0].state().begin_request();
        let next = connections.add(Times::default()).unwrap();
        assert_eq!(connections.lock().1.len(), MAX_CONNECTIONS);
        assert!(connections.lock().1.contains_key(&0), "the oldest is busy");
        assert!(!connections.lock().1.contains_key(&1), "the oldest of the others was closed");
        drop((busy, next));
        // If all are busy, no other is accepted.
        let all: Vec<Busy> = open.iter().map(|connection| connection.state().begin_request()).collect();
        while let Some(connection) = connections.add(Times::default()) {
            let busy = connection.state().begin_request();
            std::mem::forget(busy);
            open.push(connection);
        }
        assert_eq!(connections.lock().1.len(), MAX_CONNECTIONS);
        drop(all);
        assert!(connections.add(Times::default()).is_some());
    }
}
