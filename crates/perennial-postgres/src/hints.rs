//! Hints: what may have changed, told to whoever watches here and, by NOTIFY, in other processes.
//!
//! One connection listens and notifies. What gathers within a few milliseconds is one notification, on which nobody waits.
//! When the connection was lost, everything may have changed. While there is none, nobody hears of what others do, and whoever
//! watches here is told every second that something may have changed.

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

/// At most one notification in this time.
const GATHER: Duration = Duration::from_millis(4);
/// How long to wait before the next try after a connection was lost: at first, and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// Without hints, something may have changed after this time.
const UNHEARD: Duration = Duration::from_secs(1);
/// What may have changed without a hint. Owners are looked at with each renewal in any case.
const ANYTHING: Changes = Changes { owners: ShardSet::EMPTY, ..Changes::ALL };

#[derive(Default)]
pub(crate) struct Hints {
    watchers: Mutex<Vec<Watcher>>,
    pending: Mutex<Changes>,
    /// What was sent last, until it is known to have arrived.
    sent: Mutex<Changes>,
    something: Notify,
    closed: Notify,
}

impl Hints {
    pub(crate) fn watch(&self, watcher: Watcher) {
        self.lock_watchers().push(watcher);
    }

    /// Something changed here: whoever watches is told at once, and other processes soon.
    pub(crate) fn tell(&self, changes: &Changes) {
        if changes.is_empty() {
            return;
        }
        self.tell_here(changes);
        self.pending().extend_from(changes);
        self.something.notify_one();
    }

    pub(crate) fn close(&self) {
        self.lock_watchers().clear();
        self.closed.notify_one();
    }

    fn tell_here(&self, changes: &Changes) {
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
            () = self.connect_again_and_again(&target) => {}
        }
    }

    /// Tells whoever watches here now and then that something may have changed, until the store is closed: others cannot
    /// say so.
    pub(crate) async fn do_without(self: Arc<Hints>) {
        tokio::select! {
            () = self.closed.notified() => {}
            () = self.tell_now_and_then(Duration::MAX) => {}
        }
    }

    /// Passes this much time.
    async fn tell_now_and_then(&self, time: Duration) {
        let mut left = time;
        while left > UNHEARD {
            tokio::time::sleep(UNHEARD).await;
            left = left.saturating_sub(UNHEARD);
            self.tell_here(&ANYTHING);
        }
        tokio::time::sleep(left).await;
    }

    async fn connect_again_and_again(&self, target: &Target) {
        // Others hear who speaks, so that nobody takes its own words for news.
        let own = uuid::Uuid::new_v4().simple().to_string();
        let mut pause = PAUSE.0;
        let mut is_first = true;
        loop {
            let problem = match Line::open(target).await {
                Ok(line) => {
                    pause = PAUSE.0;
                    if !std::mem::take(&mut is_first) {
                        self.tell_here(&Changes::ALL);
                    }
                    self.talk(line, &own).await
                }
                Err(error) => error.to_string(),
            };
            is_first = false;
            tracing::debug!(target: log::STORE, problem, "hints interrupted; polling meanwhile");
            self.tell_now_and_then(pause).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    /// Sends what gathers and passes on what comes, until the connection is lost.
    async fn talk(&self, line: Line, own: &str) -> String {
        let Line { client, mut heard, channel } = line;
        // The last connection may have been lost before this was sent.
        let unsure = std::mem::take(&mut *self.sent());
        self.pending().extend_from(&unsure);
        self.something.notify_one();
        let sending = async {
            loop {
                self.something.notified().await;
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
                tokio::time::sleep(GATHER).await;
            }
        };
        let hearing = async {
            while let Some(payload) = heard.recv().await {
                if let Some(changes) = decode(own, &payload) {
                    self.tell_here(&changes);
                }
            }
            "the connection ended".to_owned()
        };
        tokio::select! {
            problem = sending => problem,
            problem = hearing => problem,
        }
    }
}

/// A connection that listens and notifies.
struct Line {
    client: Client,
    heard: UnboundedReceiver<String>,
    channel: String,
}

impl Line {
    async fn open(target: &Target) -> Result<Line, StoreError> {
        let tls = tls::connector(target).map_err(StoreError::CannotOpen)?;
        let connected = target.config.connect(tls).await;
        let (client, mut connection) = connected.map_err(|error| refusal(target, &error))?;
        let (sender, heard) = unbounded_channel();
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
        // Nobody waits for a hint to be on disk.
        let listen = format!("SET synchronous_commit = off; LISTEN {}", quoted(&channel));
        let listening = client.batch_execute(&listen).await;
        listening.map_err(|error| StoreError::Unavailable(describe(&error)))?;
        Ok(Line { client, heard, channel })
    }
}

/// How many maps of shards a notification has.
const MAPS: usize = 6;

/// Who speaks, and the maps of shards.
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

/// What another process said; nothing if it was this one, or cannot be understood.
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
        assert_eq!(decode(&me, &encode(&me, &changes)), None, "its own words");
        for odd in ["", "hello", &"ö".repeat(208), &format!("{me}{}", "g".repeat(384))] {
            assert_eq!(decode(&you, odd), None);
        }
    }
}
