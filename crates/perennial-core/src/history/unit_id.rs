//! The structural name of a unit: the path of branches or handler dispatches that leads to it.
//!
//! Ids follow from structure, never from timing, so they are the same in every replay. They are ordered
//! lexicographically, parents before children, branches before handlers.

use crate::code::ErrorCode;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One step down the tree of units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Segment {
    /// The n-th branch or spawned unit of its parent, written `p0`, `p1`, ….
    Parallel(u32),
    /// The n-th handler dispatch of the execution, written `h0`, `h1`, ….
    Handler(u32),
}

/// Identifies a unit within its execution. The root unit is the empty path.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitId(Option<Arc<[Segment]>>);

impl UnitId {
    /// The unit that runs the orchestration itself.
    pub const ROOT: UnitId = UnitId(None);

    /// The unit reached from this one by `segment`.
    pub fn child(&self, segment: Segment) -> UnitId {
        UnitId(Some(self.segments().iter().copied().chain([segment]).collect()))
    }

    /// The path from the root.
    pub fn segments(&self) -> &[Segment] {
        self.0.as_deref().unwrap_or_default()
    }

    /// Whether this is the root unit.
    pub fn is_root(&self) -> bool {
        self.0.is_none()
    }

    /// Whether this is the unit of a handler dispatch itself, not one of its descendants.
    pub fn is_handler(&self) -> bool {
        matches!(self.segments(), [Segment::Handler(_)])
    }

    /// Whether `self` is `other` or an ancestor of it.
    pub fn is_ancestor_or_self_of(&self, other: &UnitId) -> bool {
        other.segments().starts_with(self.segments())
    }

    /// Every ancestor of this unit, nearest first, the root last.
    pub fn ancestors(&self) -> impl Iterator<Item = UnitId> + '_ {
        (0..self.segments().len()).rev().map(|depth| UnitId::from_segments(&self.segments()[..depth]))
    }

    fn from_segments(segments: &[Segment]) -> UnitId {
        UnitId((!segments.is_empty()).then(|| Arc::from(segments)))
    }
}

impl fmt::Display for UnitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_root() {
            return f.write_str("root");
        }
        for (position, segment) in self.segments().iter().enumerate() {
            if position > 0 {
                f.write_str(".")?;
            }
            match segment {
                Segment::Parallel(number) => write!(f, "p{number}")?,
                Segment::Handler(number) => write!(f, "h{number}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for UnitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UnitId({self})")
    }
}

/// The text is not a unit path such as `p0.p2` or `h1`.
#[derive(Debug, thiserror::Error)]
#[error("{prefix}: {0:?} is not a unit path", prefix = self.code().prefix())]
pub struct NotAUnitPath(String);

impl NotAUnitPath {
    /// The stable code of this failure.
    pub fn code(&self) -> ErrorCode {
        ErrorCode::InvalidName
    }
}

crate::error_model!(NotAUnitPath);

impl FromStr for UnitId {
    type Err = NotAUnitPath;

    fn from_str(text: &str) -> Result<UnitId, NotAUnitPath> {
        if text == "root" {
            return Ok(UnitId::ROOT);
        }
        text.split('.').map(parse_segment).collect::<Option<Arc<[Segment]>>>().map_or_else(
            || Err(NotAUnitPath(super::shorten(text, 60))),
            |segments| Ok(UnitId(Some(segments))),
        )
    }
}

fn parse_segment(text: &str) -> Option<Segment> {
    let digits = text.get(1..)?;
    let canonical =
        digits.bytes().all(|b| b.is_ascii_digit()) && (digits.len() == 1 || !digits.starts_with('0'));
    let number = digits.parse().ok().filter(|_| canonical)?;
    match text.as_bytes()[0] {
        b'p' => Some(Segment::Parallel(number)),
        b'h' => Some(Segment::Handler(number)),
        _ => None,
    }
}

impl Serialize for UnitId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for UnitId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<UnitId, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
