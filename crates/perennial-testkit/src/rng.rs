//! Seeded random numbers: a seed gives the same sequence on every machine and in every release.

/// A SplitMix64 generator with the few draws that generated tests need.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Creates the generator of a seed.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// Creates an independent generator for a part, so that its draws do not affect other parts.
    #[must_use]
    pub fn fork(&mut self) -> Rng {
        Rng(self.draw())
    }

    /// Any number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `bound`, which must not be zero.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).expect("a usize fits");
        usize::try_from(self.draw() % bound).expect("it is below a usize")
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.draw() % (high - low + 1)
    }

    /// True with this probability in percent.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.draw() % 100 < percent
    }

    /// One of the items, which must not be empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// An item with a probability proportional to its weight. At least one weight must not be zero.
    pub fn weighted<T: Copy>(&mut self, items: &[(u64, T)]) -> T {
        let total: u64 = items.iter().map(|(weight, _)| weight).sum();
        let mut drawn = self.draw() % total;
        for (weight, item) in items {
            if drawn < *weight {
                return *item;
            }
            drawn -= weight;
        }
        unreachable!("the draw is below the sum of the weights")
    }

    /// Shuffles the items.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

/// Mixes the bits of a number.
pub(crate) fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
