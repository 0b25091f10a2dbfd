//! Sessions of browsers: a cookie instead of a token, which no script can read.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::random_secret;
use super::tokens::digest;
use crate::options::Caller;

/// The name of the cookie.
pub(crate) const COOKIE: &str = "perennial_session";
/// How long a session lasts.
const LIFETIME: Duration = Duration::from_secs(12 * 3_600);
/// With more sessions than this, the oldest ends.
const MAX_SESSIONS: usize = 10_000;

/// The sessions of this server, by the hash of their cookies.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<BTreeMap<[u8; 32], (Caller, Instant)>>);

impl Sessions {
    /// Begins a session and returns its cookie's value.
    pub(crate) fn begin(&self, caller: Caller) -> String {
        let secret = random_secret();
        let mut sessions = self.lock();
        let now = Instant::now();
        sessions.retain(|_, (_, began)| now.duration_since(*began) < LIFETIME);
        if sessions.len() >= MAX_SESSIONS
            && let Some(oldest) = sessions.iter().min_by_key(|(_, (_, began))| *began).map(|(key, _)| *key)
        {
            sessions.remove(&oldest);
        }
        sessions.insert(digest(&secret), (caller, now));
        secret
    }

    /// The caller of a session that has not ended.
    pub(crate) fn caller(&self, secret: &str) -> Option<Caller> {
        let sessions = self.lock();
        let (caller, began) = sessions.get(&digest(secret))?;
        (began.elapsed() < LIFETIME).then(|| caller.clone())
    }

    pub(crate) fn end(&self, secret: &str) {
        self.lock().remove(&digest(secret));
    }

    /// The value of the header that gives a browser its session, or takes it away.
    pub(crate) fn cookie(secret: Option<&str>, secure: bool) -> String {
        let secure = if secure { "; Secure" } else { "" };
        let (value, seconds) = secret.map_or(("", 0), |secret| (secret, LIFETIME.as_secs()));
        // Without a path, the cookie is for the API alone, under any prefix.
        format!("{COOKIE}={value}; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<[u8; 32], (Caller, Instant)>> {
        self.0.lock().expect("no code panics while it holds the sessions")
    }
}
