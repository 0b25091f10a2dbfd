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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h12_failures_are_counted_and_each_address_is_logged_once_a_minute() {
        let failures = Failures::default();
        let addresses = [Some("10.0.0.1".parse().unwrap()), None];
        addresses.iter().cycle().take(10).for_each(|address| failures.note(*address));
        assert_eq!(failures.count.load(Ordering::Relaxed), 10);
        assert_eq!(failures.logged.lock().unwrap().len(), 2);
        for number in 0..5_000_u32 {
            failures.note(Some(IpAddr::from(number.to_be_bytes())));
        }
        assert!(failures.logged.lock().unwrap().len() <= MAX_ADDRESSES);
    }
}
