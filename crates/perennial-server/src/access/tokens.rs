//! Tokens and the file that has their hashes.

use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::SystemTime;

use sha2::{Digest, Sha256};

use super::{hex, random_secret};
use crate::options::{Caller, Role};

/// How a token begins, so that it is recognised where it does not belong.
const PREFIX: &str = "per_";

/// A token that was just made. It is not stored anywhere.
#[derive(Debug)]
pub struct NewToken {
    /// The token, for its owner. It cannot be found out again.
    pub token: String,
    /// The line for the token file: role, name and hash.
    pub line: String,
}

impl NewToken {
    /// Makes a token with 256 random bits. The name has no blanks.
    ///
    /// ```
    /// use perennial_server::{NewToken, Role};
    ///
    /// let made = NewToken::generate("ada", Role::Operator);
    /// assert!(made.line.starts_with("operator ada ") && !made.line.contains(&made.token));
    /// ```
    pub fn generate(name: &str, role: Role) -> NewToken {
        let token = format!("{PREFIX}{}", random_secret());
        let line = format!("{} {name} {}", role.name(), hex(&digest(&token)));
        NewToken { token, line }
    }

    /// Appends the line to a token file, which is created for its owner alone if it does not exist.
    pub fn append_to(&self, path: &Path) -> Result<(), TokenFileError> {
        let problem = |error: io::Error| TokenFileError::new(path, error.to_string());
        let mut options = OpenOptions::new();
        options.create(true).append(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(path).map_err(problem)?;
        check_private(path, &file.metadata().map_err(problem)?)?;
        file.write_all(format!("{}\n", self.line).as_bytes()).map_err(problem)?;
        file.sync_all().map_err(problem)
    }
}

/// A token file cannot be used.
#[derive(Clone, Debug)]
pub struct TokenFileError {
    path: PathBuf,
    problem: String,
}

impl TokenFileError {
    fn new(path: &Path, problem: impl Into<String>) -> TokenFileError {
        TokenFileError { path: path.to_owned(), problem: problem.into() }
    }
}

impl std::fmt::Display for TokenFileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the token file {} cannot be used: {}", self.path.display(), self.problem)
    }
}

impl std::error::Error for TokenFileError {}

/// A file with one token per line: role, name, and the SHA-256 of the token in hexadecimal digits. It is read again when it
/// changes.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    read: Mutex<Read>,
}

/// What was last read.
#[derive(Debug)]
struct Read {
    stamp: Option<Stamp>,
    lines: Vec<Line>,
}

#[derive(Debug)]
struct Line {
    caller: Caller,
    digest: [u8; 32],
}

impl TokenFile {
    /// Reads a token file. It is refused if others than its owner can read it.
    pub fn open(path: impl Into<PathBuf>) -> Result<TokenFile, TokenFileError> {
        let path = path.into();
        let (stamp, lines) = load(&path)?;
        Ok(TokenFile { path, read: Mutex::new(Read { stamp: Some(stamp), lines }) })
    }

    /// Whether the file has no tokens.
    pub fn is_empty(&self) -> bool {
        self.read.lock().expect("no code panics while it reads tokens").lines.is_empty()
    }

    /// The owner of a token.
    pub(crate) fn caller(&self, token: &str) -> Option<Caller> {
        self.caller_of(digest(token))
    }

    /// The owner of the token with a hash. All lines are compared, whatever is sent, so that the time tells nothing.
    pub(crate) fn caller_of(&self, sent: [u8; 32]) -> Option<Caller> {
        let mut read = self.read.lock().expect("no code panics while it reads tokens");
        self.refresh(&mut read);
        let mut found = None;
        for line in &read.lines {
            let difference = line.digest.iter().zip(sent).fold(0, |all, (one, other)| all | (one ^ other));
            if std::hint::black_box(difference) == 0 {
                found = Some(&line.caller);
            }
        }
        found.cloned()
    }

    /// Reads the file again if it changed. A file that can no longer be used has no tokens.
    fn refresh(&self, read: &mut Read) {
        let stamp = fs::metadata(&self.path).and_then(|metadata| stamp(&metadata)).ok();
        if stamp.is_some() && stamp == read.stamp {
            return;
        }
        (read.stamp, read.lines) = match load(&self.path) {
            Ok((stamp, lines)) => (Some(stamp), lines),
            Err(error) => {
                if read.stamp.is_some() {
                    tracing::error!(target: crate::LOG, %error, "all tokens are refused");
                }
                (None, Vec::new())
            }
        };
    }
}

/// Tells whether the file is as it was. On Unix, the time of the last change of its permissions counts, too.
fn stamp(metadata: &Metadata) -> io::Result<Stamp> {
    #[cfg(unix)]
    let changed = {
        use std::os::unix::fs::MetadataExt;
        (metadata.ctime(), metadata.ctime_nsec())
    };
    #[cfg(not(unix))]
    let changed = (0, 0);
    Ok((metadata.modified()?, metadata.len(), changed))
}

type Stamp = (SystemTime, u64, (i64, i64));

fn load(path: &Path) -> Result<(Stamp, Vec<Line>), TokenFileError> {
    let problem = |error: io::Error| TokenFileError::new(path, error.to_string());
    let metadata = fs::metadata(path).map_err(problem)?;
    check_private(path, &metadata)?;
    let text = fs::read_to_string(path).map_err(problem)?;
    let lines =
        text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let lines = lines.map(|(place, line)| {
        parse(line)
            .ok_or_else(|| TokenFileError::new(path, format!("line {} is not ROLE NAME HASH", place + 1)))
    });
    Ok((stamp(&metadata).map_err(problem)?, lines.collect::<Result<_, _>>()?))
}

fn parse(line: &str) -> Option<Line> {
    let mut words = line.split_whitespace();
    let (role, name, hash) = (words.next()?, words.next()?, words.next()?);
    if words.next().is_some() || hash.len() != 64 || !hash.is_ascii() {
        return None;
    }
    let mut digest = [0; 32];
    for (place, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hash[2 * place..2 * place + 2], 16).ok()?;
    }
    Some(Line { caller: Caller { name: name.to_owned(), role: Role::from_name(role)? }, digest })
}

#[cfg(unix)]
fn check_private(path: &Path, metadata: &Metadata) -> Result<(), TokenFileError> {
    use std::os::unix::fs::PermissionsExt;

    match metadata.permissions().mode() & 0o077 {
        0 => Ok(()),
        _ => Err(TokenFileError::new(path, "others can read or write it; run `chmod 600` on it")),
    }
}

#[cfg(not(unix))]
fn check_private(_: &Path, _: &Metadata) -> Result<(), TokenFileError> {
    Ok(())
}

pub(super) fn digest(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}
