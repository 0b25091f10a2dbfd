//! What follows from histories and was asked for lately, within a limit of memory. New turns bring it forward; nothing that was
//! read is read again, since turns never change.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use perennial::{Client, InstanceKey};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use crate::problem::Problem;
use crate::timeline::Timeline;

/// How many bytes of timelines are kept. As many are kept of waits, by the client.
pub(crate) const KEPT_BYTES: usize = 32 << 20;
/// How many turns are read at a time.
const CHUNK: usize = 500;

type Place = (InstanceKey, u64);

/// The timelines of executions, the least recently used dropped first.
#[derive(Debug)]
pub(crate) struct Histories {
    kept: Mutex<Kept>,
    limit: usize,
}

#[derive(Debug, Default)]
struct Kept {
    entries: BTreeMap<Place, Entry>,
    bytes: usize,
    /// Counts uses.
    clock: u64,
}

#[derive(Debug, Default)]
struct Entry {
    timeline: Arc<AsyncMutex<Timeline>>,
    bytes: usize,
    used: u64,
}

impl Default for Histories {
    fn default() -> Histories {
        Histories { kept: Mutex::default(), limit: KEPT_BYTES }
    }
}

impl Histories {
    /// The timeline of an execution with all its turns. Requests for the same one share a read.
    pub(crate) async fn timeline(
        &self,
        client: &Client,
        id: &str,
        key: InstanceKey,
        execution: u64,
    ) -> Result<OwnedMutexGuard<Timeline>, Problem> {
        let mut timeline = self.entry((key, execution)).lock_owned().await;
        loop {
            let page = client.turn_page(id, execution, timeline.last_turn(), CHUNK).await;
            let page = match page {
                Ok(page) => page,
                Err(error) => {
                    self.weigh((key, execution), timeline.bytes());
                    return Err(error.into());
                }
            };
            page.turns.iter().for_each(|turn| timeline.note(id, turn));
            if !page.more {
                self.weigh((key, execution), timeline.bytes());
                return Ok(timeline);
            }
        }
    }

    /// The turn that recorded an event, if that is known without reading.
    pub(crate) fn turn_of(
        &self,
        key: InstanceKey,
        execution: u64,
        event: perennial::history::EventId,
    ) -> Option<u64> {
        let timeline = Arc::clone(&self.lock().entries.get(&(key, execution))?.timeline);
        let known = timeline.try_lock().ok()?;
        known.turn_of(event)
    }

    fn entry(&self, place: Place) -> Arc<AsyncMutex<Timeline>> {
        let mut kept = self.lock();
        kept.clock += 1;
        let used = kept.clock;
        let entry = kept.entries.entry(place).or_default();
        entry.used = used;
        Arc::clone(&entry.timeline)
    }

    /// Notes the size of a timeline, and drops others if all are too large.
    fn weigh(&self, place: Place, bytes: usize) {
        let mut kept = self.lock();
        let Some(entry) = kept.entries.get_mut(&place) else { return };
        let before = std::mem::replace(&mut entry.bytes, bytes);
        kept.bytes = kept.bytes - before + bytes;
        while kept.bytes > self.limit
            && let Some(oldest) =
                kept.entries.iter().min_by_key(|(_, entry)| entry.used).map(|(place, _)| *place)
        {
            let dropped = kept.entries.remove(&oldest).map_or(0, |entry| entry.bytes);
            kept.bytes -= dropped;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().expect("no code panics while it holds the histories")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(number: u128) -> Place {
        (InstanceKey::new(1, number), 1)
    }

    #[test]
    fn h35_the_least_recently_used_histories_are_dropped_beyond_the_limit() {
        let histories = Histories { limit: 100, ..Histories::default() };
        for number in 0..3 {
            drop(histories.entry(place(number)));
            histories.weigh(place(number), 40);
        }
        let kept = |number| histories.lock().entries.contains_key(&place(number));
        assert_eq!([kept(0), kept(1), kept(2)], [false, true, true]);
        assert_eq!(histories.lock().bytes, 80);
        drop(histories.entry(place(1)));
        drop(histories.entry(place(3)));
        histories.weigh(place(3), 30);
        assert_eq!([kept(1), kept(2), kept(3)], [true, false, true], "the one that was used is kept");
        // A timeline that grows counts once, and one that is too large alone is not kept.
        histories.weigh(place(3), 50);
        assert_eq!(histories.lock().bytes, 90);
        histories.weigh(place(3), 500);
        assert_eq!(histories.lock().bytes, 0);
    }
}
