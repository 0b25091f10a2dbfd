//! What names an instance: its id, its key, its shard.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::code::ErrorCode;
use crate::fnv::Fnv1a;
use crate::history::is_drawn_key;

/// How many shards all instances are divided into, for ever.
pub const SHARDS: usize = 256;

/// The longest id or name that a caller may choose, in bytes.
const MAX_NAME_BYTES: usize = 200;
/// The longest id that may be derived for a child, in bytes.
const MAX_DERIVED_BYTES: usize = 1_000;

/// An id or name that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// It has no characters.
    #[error("{prefix}: it is empty; use 1 to {MAX_NAME_BYTES} bytes of UTF-8", prefix = self.code().prefix())]
    Empty,
    /// It has too many bytes.
    #[error("{prefix}: it has {bytes} bytes, {limit} are allowed", prefix = self.code().prefix())]
    TooLong {
        /// How many it has.
        bytes: usize,
        /// How many it may have.
        limit: usize,
    },
    /// It has a control character.
    #[error("{prefix}: it has a control character at byte {at}", prefix = self.code().prefix())]
    ControlCharacter {
        /// Where.
        at: usize,
    },
    /// It has the mark of derived ids.
    #[error("{prefix}: `::` is kept for the ids of sub-orchestrations", prefix = self.code().prefix())]
    Reserved,
    /// It has the mark of keys that clients draw.
    #[error("{prefix}: keys that begin with `~` are drawn by clients; choose another beginning", prefix = self.code().prefix())]
    DrawnKey,
}

/// Checks an id or name that a caller chose.
pub fn check_name(name: &str) -> Result<(), NameError> {
    if name.len() > MAX_NAME_BYTES {
        return Err(NameError::TooLong { bytes: name.len(), limit: MAX_NAME_BYTES });
    }
    check_derived_id(name)?;
    if name.contains("::") { Err(NameError::Reserved) } else { Ok(()) }
}

/// Checks an id that was derived for a child.
pub fn check_derived_id(id: &str) -> Result<(), NameError> {
    if id.is_empty() {
        return Err(NameError::Empty);
    }
    if id.len() > MAX_DERIVED_BYTES {
        return Err(NameError::TooLong { bytes: id.len(), limit: MAX_DERIVED_BYTES });
    }
    match id.char_indices().find(|(_, c)| c.is_control()) {
        Some((at, _)) => Err(NameError::ControlCharacter { at }),
        None => Ok(()),
    }
}

/// Checks a key against duplicates that a caller chose. Those that begin with `~` are drawn by clients, and are not
/// remembered for long.
pub fn check_key(key: &str) -> Result<(), NameError> {
    check_derived_id(key)?;
    if is_drawn_key(key) { Err(NameError::DrawnKey) } else { Ok(()) }
}

/// One of 256 fixed slices of all instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ShardId(pub u8);

impl ShardId {
    /// The shard of an instance id: FNV-1a 64, xor-folded to 8 bits. The same in every store, for ever.
    pub fn of(instance_id: &str) -> ShardId {
        let mut hash = Fnv1a::default();
        hash.write(instance_id.as_bytes());
        ShardId(hash.finish().to_le_bytes().into_iter().fold(0, |folded, byte| folded ^ byte))
    }

    /// All shards.
    pub fn all() -> impl Iterator<Item = ShardId> {
        (0..=u8::MAX).map(ShardId)
    }
}

/// An instance's identity: a UUID v7, never used again. The id is only its name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceKey([u8; 16]);

impl InstanceKey {
    /// A key from the time and 74 random bits (the others are ignored).
    pub fn new(now_ms: u64, random: u128) -> InstanceKey {
        let time = u128::from(now_ms) << 80;
        let version = 0x7 << 76;
        let high_random = (random >> 62 & 0xfff) << 64;
        let variant = 0b10 << 62;
        let low_random = random & ((1 << 62) - 1);
        InstanceKey((time | version | high_random | variant | low_random).to_be_bytes())
    }

    /// The time that the key was made from.
    pub fn created_ms(&self) -> u64 {
        self.0[..6].iter().fold(0, |ms, byte| ms << 8 | u64::from(*byte))
    }

    /// The key as its sixteen bytes, which order as keys do.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The key of sixteen bytes as a store keeps them.
    pub fn from_bytes(bytes: [u8; 16]) -> InstanceKey {
        InstanceKey(bytes)
    }
}

impl fmt::Display for InstanceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, byte) in self.0.iter().enumerate() {
            if matches!(position, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for InstanceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text was not a key.
#[derive(Debug, thiserror::Error)]
#[error("{prefix}: {0:?} is not an instance key", prefix = self.code().prefix())]
pub struct NotAKey(String);

impl FromStr for InstanceKey {
    type Err = NotAKey;

    fn from_str(text: &str) -> Result<InstanceKey, NotAKey> {
        let digits: String = text.chars().filter(|c| *c != '-').collect();
        match u128::from_str_radix(&digits, 16) {
            Ok(number) if digits.len() == 32 => Ok(InstanceKey(number.to_be_bytes())),
            _ => Err(NotAKey(text.to_owned())),
        }
    }
}

impl Serialize for InstanceKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for InstanceKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<InstanceKey, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl NameError {
    /// The stable code of this failure.
    pub fn code(&self) -> ErrorCode {
        ErrorCode::InvalidName
    }
}

impl NotAKey {
    /// The stable code of this failure.
    pub fn code(&self) -> ErrorCode {
        ErrorCode::InvalidName
    }
}

crate::error_model!(NameError, NotAKey);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g34_names_have_1_to_200_bytes_without_control_characters() {
        assert_eq!(check_name("order-42 é"), Ok(()));
        assert_eq!(check_name(""), Err(NameError::Empty));
        assert_eq!(check_name(&"x".repeat(200)), Ok(()));
        assert_eq!(check_name(&"x".repeat(201)), Err(NameError::TooLong { bytes: 201, limit: 200 }));
        let far_too_long = "x".repeat(10_000);
        assert_eq!(check_name(&far_too_long), Err(NameError::TooLong { bytes: 10_000, limit: 200 }));
        assert_eq!(check_name("a\nb"), Err(NameError::ControlCharacter { at: 1 }));
        assert_eq!(check_name("a::1.2"), Err(NameError::Reserved));
        assert_eq!(check_derived_id("a::1.2"), Ok(()));
        assert_eq!(
            check_derived_id(&"x".repeat(1_001)),
            Err(NameError::TooLong { bytes: 1_001, limit: 1_000 })
        );
    }

    #[test]
    fn g34_the_shard_of_an_id_is_fixed_for_ever() {
        // FNV-1a 64 of "" is cbf29ce484222325, of "a" af63dc4c8601ec8c.
        assert_eq!(ShardId::of(""), ShardId(0xcb ^ 0xf2 ^ 0x9c ^ 0xe4 ^ 0x84 ^ 0x22 ^ 0x23 ^ 0x25));
        assert_eq!(ShardId::of("a"), ShardId(0xaf ^ 0x63 ^ 0xdc ^ 0x4c ^ 0x86 ^ 0x01 ^ 0xec ^ 0x8c));
    }

    #[test]
    fn g2_keys_are_uuids_v7_that_order_by_time() {
        let key = InstanceKey::new(0x0123_4567_89ab, u128::MAX);
        assert_eq!(key.to_string(), "01234567-89ab-7fff-bfff-ffffffffffff");
        assert_eq!(key.to_string().parse::<InstanceKey>().unwrap(), key);
        assert!(InstanceKey::new(2, 0) > InstanceKey::new(1, u128::MAX));
        assert_eq!(key.created_ms(), 0x0123_4567_89ab);
        assert!("not-a-key".parse::<InstanceKey>().is_err());
    }
}
