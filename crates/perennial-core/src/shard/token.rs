//! Tokens: what somebody outside needs to complete an attempt of an activity.
//!
//! A token identifies the attempt, and contains a secret that proves that it was handed out: the secret is stored only
//! in the attempt's row, and one secret reveals nothing about another. Each attempt has its own secret.

use std::fmt;
use std::hash::Hasher;
use std::str::FromStr;

use base64::DecodeError;
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use siphasher::sip128::{Hasher128, SipHasher24};

use crate::code::ErrorCode;
use crate::history::EventId;
use crate::instance::InstanceKey;
use crate::store::TaskId;

use super::output::ActivityTask;

/// The format of a token's bytes.
const FORM: u8 = 1;
/// The maximum length of a token: an id has up to 1,000 bytes.
const MAX_CHARS: usize = 2_000;

/// The secret of a token.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TokenSecret(pub u128);

impl TokenSecret {
    /// The secret of an attempt. It can be computed only with the key.
    pub(super) fn of(key: u128, id: TaskId, attempt: u32) -> TokenSecret {
        let mut hasher = SipHasher24::new_with_key(&key.to_le_bytes());
        hasher.write(id.key.as_bytes());
        hasher.write(&id.execution.to_le_bytes());
        hasher.write(&id.event.0.to_le_bytes());
        hasher.write(&attempt.to_le_bytes());
        TokenSecret(hasher.finish128().as_u128())
    }
}

impl fmt::Debug for TokenSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenSecret(…)")
    }
}

impl Serialize for TokenSecret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:032x}", self.0))
    }
}

impl<'de> Deserialize<'de> for TokenSecret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TokenSecret, D::Error> {
        let text = String::deserialize(deserializer)?;
        u128::from_str_radix(&text, 16).map(TokenSecret).map_err(serde::de::Error::custom)
    }
}

/// Identifies an attempt of an activity that can be completed from outside. Its text form can be part of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletionToken {
    /// The instance's id.
    pub instance: String,
    /// The activity.
    pub task: TaskId,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// Proves that the token was handed out.
    pub secret: TokenSecret,
}

/// Why a text is not a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadToken {
    /// It contains characters that tokens do not contain, or too many.
    #[error("it contains characters that are not part of a token")]
    Characters,
    /// Something was cut off, added or changed.
    #[error("it was truncated or changed")]
    Damaged,
    /// It has a format that this version does not know.
    #[error("it was created by a newer version")]
    Newer,
}

impl CompletionToken {
    /// The token of an attempt, if it can be completed from outside.
    pub fn of(task: &ActivityTask) -> Option<CompletionToken> {
        let id = TaskId { key: task.key, execution: task.execution, event: task.event };
        let (instance, attempt) = (task.instance.to_string(), task.attempt);
        Some(CompletionToken { instance, task: id, attempt, secret: task.secret? })
    }
}

impl fmt::Display for CompletionToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = vec![FORM];
        bytes.extend(self.task.key.as_bytes());
        bytes.extend(self.secret.0.to_be_bytes());
        for number in [self.task.execution, self.task.event.0, u64::from(self.attempt)] {
            write_number(&mut bytes, number);
        }
        bytes.extend(self.instance.as_bytes());
        bytes.extend(crc32fast::hash(&bytes).to_be_bytes());
        f.write_str(&BASE64_URL_SAFE_NO_PAD.encode(bytes))
    }
}

impl FromStr for CompletionToken {
    type Err = BadToken;

    fn from_str(text: &str) -> Result<CompletionToken, BadToken> {
        if text.len() > MAX_CHARS {
            return Err(BadToken::Characters);
        }
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).map_err(|error| match error {
            DecodeError::InvalidByte(..) => BadToken::Characters,
            _ => BadToken::Damaged,
        })?;
        let (bytes, checksum) = bytes.split_last_chunk::<4>().ok_or(BadToken::Damaged)?;
        if crc32fast::hash(bytes).to_be_bytes() != *checksum {
            return Err(BadToken::Damaged);
        }
        let (form, bytes) = bytes.split_first().ok_or(BadToken::Damaged)?;
        if *form != FORM {
            return Err(BadToken::Newer);
        }
        read_fields(bytes).ok_or(BadToken::Damaged)
    }
}

fn read_fields(bytes: &[u8]) -> Option<CompletionToken> {
    let (key, bytes) = bytes.split_first_chunk::<16>()?;
    let (secret, mut rest) = bytes.split_first_chunk::<16>()?;
    let (execution, event) = (read_number(&mut rest)?, EventId(read_number(&mut rest)?));
    let attempt = u32::try_from(read_number(&mut rest)?).ok()?;
    Some(CompletionToken {
        instance: String::from_utf8(rest.to_vec()).ok()?,
        task: TaskId { key: InstanceKey::from_bytes(*key), execution, event },
        attempt,
        secret: TokenSecret(u128::from_be_bytes(*secret)),
    })
}

/// Writes seven bits per byte, the lowest first; the highest bit indicates that more follow.
fn write_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn read_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

impl BadToken {
    /// The stable code of this failure.
    pub fn code(&self) -> ErrorCode {
        ErrorCode::BadToken
    }
}

crate::error_model!(BadToken);

#[cfg(test)]
mod tests {
    use super::*;

    fn token(instance: &str, execution: u64, event: u64, attempt: u32) -> CompletionToken {
        let task = TaskId { key: InstanceKey::new(1_000, 77), execution, event: EventId(event) };
        let secret = TokenSecret::of(9, task, attempt);
        CompletionToken { instance: instance.to_owned(), task, attempt, secret }
    }

    #[test]
    fn g42_a_token_comes_back_as_it_was_and_stands_in_a_link() {
        for instance in ["a", "ab", "abc", "order-42", "ünïcödé::3.7", &"x".repeat(1_000)] {
            for (execution, event, attempt) in
                [(1, 2, 1), (300, 200_000, 128), (u64::MAX, u64::MAX, u32::MAX)]
            {
                let token = token(instance, execution, event, attempt);
                let text = token.to_string();
                assert!(
                    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)),
                    "{text}"
                );
                assert_eq!(text.parse(), Ok(token));
            }
        }
    }

    #[test]
    fn g42_a_token_that_was_changed_on_its_way_is_none() {
        let text = token("order-42", 1, 2, 1).to_string();
        for end in 0..text.len() {
            assert!(text[..end].parse::<CompletionToken>().is_err(), "{end} characters of {text}");
            let letter = if text.as_bytes()[end] == b'A' { "B" } else { "A" };
            let changed = format!("{}{letter}{}", &text[..end], &text[end + 1..]);
            assert!(changed.parse::<CompletionToken>().is_err(), "{changed}");
        }
        assert_eq!("order 42".parse::<CompletionToken>(), Err(BadToken::Characters));
        assert_eq!(format!("{text}{text}").parse::<CompletionToken>(), Err(BadToken::Damaged));
        assert_eq!("A".repeat(3_000).parse::<CompletionToken>(), Err(BadToken::Characters));
    }

    #[test]
    fn g42_every_attempt_has_a_secret_of_its_own() {
        let of = |execution, event, attempt| token("a", execution, event, attempt).secret.0;
        let all = [of(1, 2, 1), of(1, 2, 2), of(1, 3, 1), of(2, 2, 1)];
        for (place, secret) in all.iter().enumerate() {
            assert!(all[..place].iter().all(|other| (secret ^ other).count_ones() > 20));
        }
        let task = token("a", 1, 2, 1).task;
        assert_ne!(TokenSecret::of(9, task, 1), TokenSecret::of(10, task, 1));
        assert_eq!(format!("{:?}", TokenSecret(7)), "TokenSecret(…)", "logs do not tell it");
    }
}
