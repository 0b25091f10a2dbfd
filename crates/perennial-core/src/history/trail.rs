//! When and where the attempts of an activity ran, and how they failed.
//!
//! A trail is recorded for people: the code does not see it, and replay does not compare it. Most trails consist of one
//! attempt that succeeded, so an attempt is written as a short array, `[queued, began, ended]`: the first in
//! milliseconds since 1970, the others in milliseconds after the previous one. An error and the node's name follow if
//! there are any.

use std::slice;

use serde::de::{self, SeqAccess, Visitor};
use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{ActivityError, TimeoutKind};

/// How many attempts are kept from the beginning, and how many from the end.
const KEPT: usize = 10;
/// The maximum length of an error in bytes.
const ERROR_BYTES: usize = 1024;
/// The maximum length of a node's name in bytes.
const NODE_BYTES: usize = 64;

/// The attempts of an activity, oldest first. Of more than twenty, the first ten and the last ten are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Trail(Vec<PastAttempt>);

/// One attempt that has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PastAttempt {
    /// When it could have started.
    pub queued_ms: u64,
    /// When it was given to a worker.
    pub began_ms: u64,
    /// When its result was available.
    pub ended_ms: u64,
    /// The name of the node that ran it, unless that node owned the instance.
    pub node: Option<String>,
    /// How it failed. The error of the last attempt of a failed activity is in the event instead.
    pub error: Option<String>,
}

impl Trail {
    /// Whether no attempt is recorded.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The attempts, oldest first.
    pub fn iter(&self) -> slice::Iter<'_, PastAttempt> {
        self.0.iter()
    }

    /// Appends an attempt. If there are too many, one in the middle is removed.
    #[must_use]
    pub fn and(mut self, attempt: PastAttempt) -> Trail {
        if self.0.len() >= 2 * KEPT {
            self.0.remove(KEPT);
        }
        // Most trails have one attempt, and many trails are in memory at the same time.
        self.0.reserve_exact(1);
        self.0.push(attempt);
        self
    }

    /// The approximate size of its texts in bytes.
    pub(crate) fn size(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        self.0.iter().map(|attempt| text(&attempt.node) + text(&attempt.error)).sum()
    }
}

impl<'a> IntoIterator for &'a Trail {
    type Item = &'a PastAttempt;
    type IntoIter = slice::Iter<'a, PastAttempt>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl PastAttempt {
    /// An attempt on the owning node. Times that go backwards are clamped.
    pub fn new(queued_ms: u64, began_ms: u64, ended_ms: u64) -> PastAttempt {
        let ended_ms = ended_ms.max(queued_ms);
        let began_ms = began_ms.clamp(queued_ms, ended_ms);
        PastAttempt { queued_ms, began_ms, ended_ms, node: None, error: None }
    }

    /// Adds the error with which the attempt failed.
    #[must_use]
    pub fn failed(self, failure: &ActivityError) -> PastAttempt {
        let words = match failure {
            ActivityError::Application(payload) => cut(payload.as_json(), ERROR_BYTES),
            ActivityError::Timeout(TimeoutKind::Queue) => "timeout: queue".to_owned(),
            ActivityError::Timeout(TimeoutKind::Attempt) => "timeout: attempt".to_owned(),
            ActivityError::Timeout(TimeoutKind::Total) => "timeout: total".to_owned(),
            ActivityError::Timeout(TimeoutKind::Heartbeat) => "timeout: heartbeat".to_owned(),
            ActivityError::Cancelled => "cancelled".to_owned(),
            ActivityError::Poisoned => "poisoned".to_owned(),
            ActivityError::Broken { message } => cut(message, ERROR_BYTES),
        };
        PastAttempt { error: Some(words), ..self }
    }

    /// Adds the node that ran the attempt.
    #[must_use]
    pub fn on(self, node: &str) -> PastAttempt {
        PastAttempt { node: (!node.is_empty()).then(|| cut(node, NODE_BYTES)), ..self }
    }
}

/// The beginning of a text, cut at a character boundary.
fn cut(text: &str, bytes: usize) -> String {
    text[..text.floor_char_boundary(bytes)].to_owned()
}

impl Serialize for PastAttempt {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let length = if self.node.is_some() { 5 } else { 3 + usize::from(self.error.is_some()) };
        let mut array = serializer.serialize_seq(Some(length))?;
        array.serialize_element(&self.queued_ms)?;
        array.serialize_element(&self.began_ms.saturating_sub(self.queued_ms))?;
        array.serialize_element(&self.ended_ms.saturating_sub(self.began_ms))?;
        if length > 3 {
            array.serialize_element(&self.error)?;
        }
        if length > 4 {
            array.serialize_element(&self.node)?;
        }
        array.end()
    }
}

impl<'de> Deserialize<'de> for PastAttempt {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PastAttempt, D::Error> {
        struct Parts;

        impl<'de> Visitor<'de> for Parts {
            type Value = PastAttempt;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an attempt: [queued, began, ended, error, node]")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<PastAttempt, A::Error> {
                let mut time = |place| {
                    let part: Option<u64> = parts.next_element()?;
                    part.ok_or_else(|| de::Error::invalid_length(place, &self))
                };
                let (queued_ms, began, ended) = (time(0)?, time(1)?, time(2)?);
                let began_ms = queued_ms.saturating_add(began);
                let error = parts.next_element()?.flatten();
                let node = parts.next_element()?.flatten();
                if parts.next_element::<de::IgnoredAny>()?.is_some() {
                    return Err(de::Error::invalid_length(6, &self));
                }
                Ok(PastAttempt { queued_ms, began_ms, ended_ms: began_ms.saturating_add(ended), node, error })
            }
        }

        deserializer.deserialize_seq(Parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(trail: &Trail) -> String {
        serde_json::to_string(trail).unwrap()
    }

    #[test]
    fn h39_attempts_are_read_back_as_they_were_written() {
        let at = PastAttempt::new(1_700_000_000_000, 1_700_000_000_003, 1_700_000_000_128);
        let failed = at.clone().failed(&ActivityError::Application("no é".into()));
        let elsewhere = at.clone().on("shop-2");
        let both = failed.clone().on("shop-2");
        let trail = [failed, elsewhere, both, at].into_iter().fold(Trail::default(), Trail::and);
        let text = json(&trail);
        assert_eq!(
            text,
            r#"[[1700000000000,3,125,"\"no é\""],[1700000000000,3,125,null,"shop-2"],"#.to_owned()
                + r#"[1700000000000,3,125,"\"no é\"","shop-2"],[1700000000000,3,125]]"#
        );
        assert_eq!(serde_json::from_str::<Trail>(&text).unwrap(), trail);
        for wrong in ["[[1,2]]", "[[1,2,3,null,null,1]]", "[[1,2,-3]]", "[1]"] {
            assert!(serde_json::from_str::<Trail>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn h39_of_many_attempts_the_first_ten_and_the_last_ten_are_kept() {
        let trail = (1..=100)
            .map(|number| PastAttempt::new(number, number, number))
            .fold(Trail::default(), Trail::and);
        let kept: Vec<u64> = trail.iter().map(|attempt| attempt.queued_ms).collect();
        assert_eq!(kept, (1..=10).chain(91..=100).collect::<Vec<_>>());
    }

    #[test]
    fn h39_errors_and_names_are_cut_and_times_never_go_back() {
        let long = ActivityError::Application("é".repeat(5_000).into());
        let attempt = PastAttempt::new(50, 40, 30).failed(&long).on(&"n".repeat(500));
        assert!(attempt.error.as_ref().is_some_and(|error| error.len() <= 1024 && error.len() > 1000));
        assert!(attempt.node.as_ref().is_some_and(|node| node.len() == 64));
        assert_eq!((attempt.began_ms, attempt.ended_ms), (50, 50));
    }
}
