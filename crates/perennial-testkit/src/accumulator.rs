//! A digest of everything that a program has seen so far.
//!
//! Every result is folded in, in order, and the next steps of the program are computed from it. So a result
//! that is delivered wrongly, twice, late or to the wrong unit changes all later inputs and the output.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::rng::mix;

/// A running digest of all results that a unit of a program has received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Accumulator(u64);

impl Accumulator {
    /// Folds in a text: FNV-1a, then mixed so that single bits are suitable for branching.
    pub fn fold(&mut self, text: &str) {
        let mut hash = self.0 ^ 0xcbf2_9ce4_8422_2325;
        for byte in text.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        self.0 = mix(hash);
    }

    /// The initial value of part number `index`.
    #[must_use]
    pub fn fork(mut self, index: usize) -> Accumulator {
        self.fold(&format!("part {index}"));
        self
    }

    /// A number below `bound` that depends on everything folded in.
    pub fn below(self, bound: u64) -> u64 {
        self.0 % bound
    }
}

/// Formats as sixteen hexadecimal digits.
impl fmt::Display for Accumulator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
