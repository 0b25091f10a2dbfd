//! What a program has seen so far, in one number.
//!
//! Every result is folded in, in order, and whatever a program does next is computed from it. So a result that is
//! delivered wrongly, twice, late or to the wrong unit changes inputs and the output from there on.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::rng::mix;

/// A running digest of everything that a unit of a program was told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Accumulator(u64);

impl Accumulator {
    /// Takes a text in: FNV-1a over it, then spread, so that single bits are good to branch on.
    pub fn fold(&mut self, text: &str) {
        let mut hash = self.0 ^ 0xcbf2_9ce4_8422_2325;
        for byte in text.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        self.0 = mix(hash);
    }

    /// What the part number `index` begins with.
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

/// Sixteen hexadecimal digits.
impl fmt::Display for Accumulator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
