//! Hints that something may have changed, for watchers in this process and, through NOTIFY, in other processes.
//!
//! One connection listens and notifies. Changes within a few milliseconds are combined into one notification, and no
//! call waits for it. After a lost connection, anything may have changed. While there is no connection, hints from
//! other processes are lost, and watchers in this process are notified every second instead.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use perennial_core::ShardId;
use perennial_core::log;
use perennial_core::store::{Changes, ShardSet, StoreError, Watcher};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_postgres::{AsyncMessage, Client};

use crate::connection::refusal;
use crate::options::{Target, describe, quoted};
use crate::tls;

/// Minimum time between two notifications. Changes in between are combined.
const NOTIFY_INTERVAL: Duration = Duration::from_millis(4);
/// Pause before reconnecting: initially, and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// How often watchers are notified while hints from other processes cannot arrive.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The changes reported when hints may have been lost. It leaves out owners: nodes read the directory with each renewal
/// of their lease anyway.
const POSSIBLY_MISSED: Changes = Changes { owners: ShardSet::EMPTY, ..Changes::ALL };

#[derive(Default)]
pub(crate) struct Hints {
    watchers: Mutex<Vec<Watcher>>,
    pending: Mutex<Changes>,
    /// The changes sent last, until the server has acknowledged them.
    sent: Mutex<Changes>,
    changed: Notify,
    closed: Notify,
}

impl Hints {
    pub(crate) fn watch(&self, watcher: Watcher) {
        self.lock_watchers().push(watcher);
    }

    /// Reports changes made by this process: to watchers in this process immediately, to other processes shortly
    /// afterwards.
    pub(crate) fn notify(&self, changes: &Changes) {
        if changes.is_empty() {
            return;
        }
        self.notify_watchers(changes);
        self.pending().extend_from(changes);
        self.changed.notify_one();
    }

    pub(crate) fn close(&self) {
        self.lock_watchers().clear();
        self.closed.notify_one();
    }

    fn notify_watchers(&self, changes: &Changes) {
        let watchers: Vec<Watcher> = self.lock_watchers().clone();
        watchers.iter().for_each(|watcher| watcher(changes));
    }

    fn pending(&self) -> MutexGuard<'_, Changes> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sent(&self) -> MutexGuard<'_, Changes> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_watchers(&self) -> MutexGuard<'_, Vec<Watcher>> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Exchanges hints with other processes until the store is closed.
    pub(crate) async fn exchange(self: Arc<Hints>, target: Arc<Target>) {
        tokio::select! {
            () = self.closed.notified() => {}
            () = self.keep_connected(&target) => {}
        }
    }

    /// Notifies watchers at regular intervals until the store is closed. Used if hints from other processes are turned
    /// off.
    pub(crate) async fn poll(self: Arc<Hints>) {
        tokio::select! {
            () = self.closed.notified() => {}
            () = self.notify_periodically(Duration::MAX) => {}
        }
    }

    /// Waits for `time`, notifying watchers at regular intervals meanwhile.
    async fn notify_periodically(&self, time: Duration) {
        let mut left = time;
        while left > POLL_INTERVAL {
            tokio::time::sleep(POLL_INTERVAL).await;
            left = left.saturating_sub(POLL_INTERVAL);
            self.notify_watchers(&POSSIBLY_MISSED);
        }
        tokio::time::sleep(left).await;
    }

    async fn keep_connected(&self, target: &Target) {
        // Identifies the sender, so that a process ignores its own notifications.
        let own = uuid::Uuid::new_v4().simple().to_string();
        let mut pause = PAUSE.0;
        let mut is_first = true;
        loop {
            let problem = match HintConnection::open(target).await {
                Ok(connection) => {
                    pause = PAUSE.0;
                    if !std::mem::take(&mut is_first) {
                        self.notify_watchers(&Changes::ALL);
                    }
                    self.run_connection(connection, &own).await
                }
                Err(error) => error.to_string(),
            };
            is_first = false;
            tracing::debug!(target: log::STORE, problem, "hints interrupted; polling meanwhile");
            self.notify_periodically(pause).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    /// Sends collected changes and forwards received ones until the connection is lost. Returns the reason.
    async fn run_connection(&self, connection: HintConnection, own: &str) -> String {
        let HintConnection { client, mut received, channel } = connection;
        // The previous connection may have been lost before these changes were sent.
        let unsure = std::mem::take(&mut *self.sent());
        self.pending().extend_from(&unsure);
        self.changed.notify_one();
        let sending = async {
            loop {
                self.changed.notified().await;
                let changes = std::mem::take(&mut *self.pending());
                if changes.is_empty() {
                    continue;
                }
                *self.sent() = changes;
                let payload = encode(own, &changes);
                let sent = client.query("SELECT pg_notify($1, $2)", &[&channel, &payload]).await;
                if let Err(error) = sent {
                    return describe(&error);
                }
                *self.sent() = Changes::default();
                tokio::time::sleep(NOTIFY_INTERVAL).await;
            }
        };
        let receiving = async {
            while let Some(payload) = received.recv().await {
                if let Some(changes) = decode(own, &payload) {
                    self.notify_watchers(&changes);
                }
            }
            "the connection ended".to_owned()
        };
        tokio::select! {
            problem = sending => problem,
            problem = receiving => problem,
        }
    }
}

/// A connection that listens and notifies.
struct HintConnection {
    client: Client,
    received: UnboundedReceiver<String>,
    channel: String,
}

impl HintConnection {
    async fn open(target: &Target) -> Result<HintConnection, StoreError> {
        let tls = tls::connector(target).map_err(StoreError::CannotOpen)?;
        let connected = target.config.connect(tls).await;
        let (client, mut connection) = connected.map_err(|error| refusal(target, &error))?;
        let (sender, received) = unbounded_channel();
        tokio::spawn(async move {
            while let Some(Ok(message)) =
                std::future::poll_fn(|context| connection.poll_message(context)).await
            {
                if let AsyncMessage::Notification(notification) = message
                    && sender.send(notification.payload().to_owned()).is_err()
                {
                    return;
                }
            }
        });
        let channel = format!("perennial:{}", target.options.schema);
        // A hint need not survive a crash of the server.
        let listen = format!("SET synchronous_commit = off; LISTEN {}", quoted(&channel));
        let listening = client.batch_execute(&listen).await;
        listening.map_err(|error| StoreError::Unavailable(describe(&error)))?;
        Ok(HintConnection { client, received, channel })
    }
}

/// Number of shard bitmaps in a notification.
const MAPS: usize = 6;

/// Encodes the sender's id and the shard bitmaps.
fn encode(own: &str, changes: &Changes) -> String {
    let Changes { inbox, requests, tasks, replies, endings, owners } = changes;
    let mut payload = own.to_owned();
    let maps: [&ShardSet; MAPS] = [inbox, requests, tasks, replies, endings, owners];
    for set in maps {
        for byte in set.to_bytes() {
            payload.push_str(&format!("{byte:02x}"));
        }
    }
    payload
}

/// Decodes a notification. Returns `None` if this process sent it, or if its format is unknown.
fn decode(own: &str, payload: &str) -> Option<Changes> {
    if !payload.is_ascii() || payload.len() != 32 + MAPS * 64 || payload.starts_with(own) {
        return None;
    }
    let set = |place: usize| -> Option<ShardSet> {
        let text = &payload[32 + place * 64..][..64];
        let mut set = ShardSet::EMPTY;
        for (number, byte) in (0..32_u8).zip(text.as_bytes().chunks_exact(2)) {
            let byte = u8::from_str_radix(std::str::from_utf8(byte).ok()?, 16).ok()?;
            let bits = (0..8).filter(|bit| byte >> bit & 1 == 1);
            bits.for_each(|bit| set.insert(ShardId(number * 8 + bit)));
        }
        Some(set)
    };
    Some(Changes {
        inbox: set(0)?,
        requests: set(1)?,
        tasks: set(2)?,
        replies: set(3)?,
        endings: set(4)?,
        owners: set(5)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s8_what_one_process_says_another_understands() {
        let (me, you) = ("a".repeat(32), "b".repeat(32));
        let shards = |numbers: &[u8]| numbers.iter().copied().map(ShardId).collect::<ShardSet>();
        let changes =
            Changes { inbox: shards(&[0, 7, 8, 255]), owners: shards(&[63, 64]), ..Changes::default() };
        assert_eq!(decode(&you, &encode(&me, &changes)), Some(changes));
        assert_eq!(decode(&you, &encode(&me, &Changes::ALL)), Some(Changes::ALL));
        assert_eq!(decode(&me, &encode(&me, &changes)), None, "its own notification");
        for odd in ["", "hello", &"ö".repeat(208), &format!("{me}{}", "g".repeat(384))] {
            assert_eq!(decode(&you, odd), None);
        }
    }
}
