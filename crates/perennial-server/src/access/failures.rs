//! Failed authentications: counted, and logged rarely.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// An address is logged at most this often.
const LOG_PAUSE: Duration = Duration::from_secs(60);
/// How many addresses are remembered.
const MAX_ADDRESSES: usize = 1_000;

#[derive(Debug, Default)]
pub(crate) struct Failures {
    count: AtomicU64,
    logged: Mutex<BTreeMap<Option<IpAddr>, Instant>>,
}

impl Failures {
    /// Counts a failure. Nobody is locked out: the address may be shared, or a proxy's.
    pub(crate) fn note(&self, address: Option<IpAddr>) {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let mut logged = self.logged.lock().expect("no code panics while it holds the addresses");
        let now = Instant::now();
        logged.retain(|_, at| now.duration_since(*at) < LOG_PAUSE);
        if logged.len() < MAX_ADDRESSES && !logged.contains_key(&address) {
            logged.insert(address, now);
            let address = address.map(|address| address.to_string());
            tracing::warn!(target: crate::LOG, address, count, "authentication failed");
        }
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}
