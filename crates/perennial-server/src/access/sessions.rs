//! Sessions of browsers: a cookie instead of a token, which no script can read.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::random_secret;
use super::tokens::digest;

/// The name of the cookie.
pub(crate) const COOKIE: &str = "perennial_session";
/// How long a session lasts.
const LIFETIME: Duration = Duration::from_secs(12 * 3_600);
/// With more sessions than this, the oldest ends.
const MAX_SESSIONS: usize = 10_000;

/// The sessions of this server, by the hash of their cookies: the hash of the token that each was exchanged for, and when
/// it began. A session gives what its token gives, and nothing once the token is removed.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<Known>);

type Known = BTreeMap<[u8; 32], ([u8; 32], Instant)>;

impl Sessions {
    /// Begins a session for the owner of a token and returns its cookie's value.
    pub(crate) fn begin(&self, token: &str) -> String {
        let secret = random_secret();
        let mut sessions = self.lock();
        let now = Instant::now();
        sessions.retain(|_, (_, began)| now.duration_since(*began) < LIFETIME);
        if sessions.len() >= MAX_SESSIONS
            && let Some(oldest) = sessions.iter().min_by_key(|(_, (_, began))| *began).map(|(key, _)| *key)
        {
            sessions.remove(&oldest);
        }
        sessions.insert(digest(&secret), (digest(token), now));
        secret
    }

    /// The hash of the token of a session that has not ended.
    pub(crate) fn token_digest(&self, secret: &str) -> Option<[u8; 32]> {
        let sessions = self.lock();
        let (token, began) = sessions.get(&digest(secret))?;
        (began.elapsed() < LIFETIME).then_some(*token)
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

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().expect("no code panics while it holds the sessions")
    }
}
