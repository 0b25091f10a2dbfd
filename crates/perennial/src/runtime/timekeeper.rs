//! The Timekeeper: brings the time to shards when they want it, and reads ahead what will be due.

use std::collections::BTreeMap;
use std::mem;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use perennial_core::ShardId;

use super::clock::TurnClock;
use super::node::Node;

/// After news the store is read ahead at once, but no more often than this.
const NEWS_PAUSE_MS: u64 = 1_000;

#[derive(Default)]
pub(crate) struct Timekeeper {
    agenda: Mutex<Agenda>,
    changed: Condvar,
}

#[derive(Default)]
struct Agenda {
    /// When each shard wants the time.
    wakes: BTreeMap<ShardId, u64>,
    /// The clock was moved since it was looked at.
    moved: bool,
    /// Others wrote something, which may be due soon.
    news: bool,
    stopped: bool,
}

impl Timekeeper {
    /// A shard wants the time then, or no more.
    pub(crate) fn want(&self, shard: ShardId, at_ms: Option<u64>) {
        let mut agenda = self.lock();
        let earliest = agenda.wakes.values().min().copied();
        match at_ms {
            Some(at_ms) => agenda.wakes.insert(shard, at_ms),
            None => agenda.wakes.remove(&shard),
        };
        if at_ms.is_some_and(|at_ms| earliest.is_none_or(|earliest| at_ms < earliest)) {
            self.changed.notify_one();
        }
    }

    /// The clock was moved: look at it again.
    pub(crate) fn look(&self) {
        self.lock().moved = true;
        self.changed.notify_one();
    }

    /// Others wrote something: a start that is to begin before the store is read ahead by itself, perhaps.
    pub(crate) fn handle_news(&self) {
        self.lock().news = true;
        self.changed.notify_one();
    }

    pub(crate) fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_one();
    }

    /// Runs until stopped or until the node is gone.
    pub(crate) fn run(node: Weak<Node>, read_ahead: Duration) -> JoinHandle<()> {
        let keep_time = move || {
            let (mut next_read_ms, mut next_look_ms, mut may_look_ms) = (0, None, 0);
            while let Some(node) = node.upgrade() {
                let now_ms = node.now_ms();
                if mem::take(&mut node.timekeeper.lock().news) {
                    next_look_ms.get_or_insert(may_look_ms);
                }
                if now_ms >= next_read_ms {
                    node.read_ahead();
                    next_read_ms = now_ms + read_ahead.as_millis() as u64;
                } else if next_look_ms.is_some_and(|at_ms| now_ms >= at_ms) {
                    node.look_ahead();
                    (next_look_ms, may_look_ms) = (None, now_ms + NEWS_PAUSE_MS);
                }
                for shard in node.timekeeper.due(now_ms) {
                    node.bring_time(shard);
                }
                let until_ms = next_look_ms.map_or(next_read_ms, |at_ms| at_ms.min(next_read_ms));
                if !node.timekeeper.sleep(&node.turn_clock, until_ms) {
                    return;
                }
            }
        };
        thread::Builder::new().name("perennial-time".to_owned()).spawn(keep_time).expect("a thread starts")
    }

    /// The shards that want the time now.
    fn due(&self, now_ms: u64) -> Vec<ShardId> {
        let mut agenda = self.lock();
        let due: Vec<ShardId> =
            agenda.wakes.iter().filter(|(_, at_ms)| **at_ms <= now_ms).map(|(shard, _)| *shard).collect();
        for shard in &due {
            agenda.wakes.remove(shard);
        }
        due
    }

    /// Sleeps until something is due. Returns whether to go on.
    fn sleep(&self, clock: &TurnClock, until_ms: u64) -> bool {
        let mut agenda = self.lock();
        let now_ms = clock.now_ms();
        let next_ms = agenda.wakes.values().copied().chain([until_ms]).min().unwrap_or(until_ms);
        if agenda.stopped || agenda.news || mem::take(&mut agenda.moved) || next_ms <= now_ms {
            return !agenda.stopped;
        }
        let pause = clock.local.patience(Duration::from_millis(next_ms - now_ms));
        let waited = self.changed.wait_timeout(agenda, pause);
        let mut agenda = waited.unwrap_or_else(PoisonError::into_inner).0;
        agenda.moved = false;
        !agenda.stopped
    }

    fn lock(&self) -> MutexGuard<'_, Agenda> {
        self.agenda.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
