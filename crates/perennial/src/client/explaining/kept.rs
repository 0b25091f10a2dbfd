//! The open operations of histories that were read, kept for the next explanation: then only new turns are read.

use std::collections::BTreeMap;
use std::sync::Mutex;

use perennial_core::InstanceKey;

use super::open_work::OpenWork;

type Place = (InstanceKey, u64);

/// Open operations by instance and execution, the least recently used dropped first. See
/// [`Client::remembering_histories`](crate::Client::remembering_histories).
pub(in crate::client) struct KeptWork {
    kept: Mutex<Kept>,
    limit: usize,
}

#[derive(Default)]
struct Kept {
    entries: BTreeMap<Place, Entry>,
    bytes: usize,
    clock: u64,
}

struct Entry {
    work: OpenWork,
    bytes: usize,
    used: u64,
}

impl KeptWork {
    pub(in crate::client) fn new(limit: usize) -> KeptWork {
        KeptWork { kept: Mutex::default(), limit }
    }

    /// Takes what is known of an execution. Who takes it puts it back.
    pub(super) fn take(&self, place: Place) -> Option<OpenWork> {
        let mut kept = self.kept.lock().expect("no code panics while it holds what is kept");
        let entry = kept.entries.remove(&place)?;
        kept.bytes -= entry.bytes;
        Some(entry.work)
    }

    pub(super) fn put(&self, place: Place, work: OpenWork) {
        let bytes = work.bytes();
        let mut kept = self.kept.lock().expect("no code panics while it holds what is kept");
        kept.clock += 1;
        let entry = Entry { work, bytes, used: kept.clock };
        // Another request may have read the same meanwhile; the one that read more is kept.
        if let Some(other) = kept.entries.remove(&place) {
            kept.bytes -= other.bytes;
            let entry = if other.work.turns() > entry.work.turns() { other } else { entry };
            kept.bytes += entry.bytes;
            kept.entries.insert(place, entry);
        } else {
            kept.bytes += bytes;
            kept.entries.insert(place, entry);
        }
        while kept.bytes > self.limit
            && let Some(oldest) =
                kept.entries.iter().min_by_key(|(_, entry)| entry.used).map(|(place, _)| *place)
        {
            kept.bytes -= kept.entries.remove(&oldest).map_or(0, |entry| entry.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h35_what_was_read_is_kept_within_its_limit() {
        let place = |number: u128| (InstanceKey::new(1, number), 1);
        let work = || OpenWork::new(InstanceKey::new(1, 1));
        let kept = KeptWork::new(work().bytes() * 2);
        for number in 0..3 {
            kept.put(place(number), work());
        }
        assert!(kept.take(place(0)).is_none(), "the oldest was dropped");
        let taken = kept.take(place(1)).unwrap();
        assert!(kept.take(place(1)).is_none(), "taken");
        kept.put(place(1), taken);
        assert!(kept.take(place(1)).is_some() && kept.take(place(2)).is_some());
    }
}
