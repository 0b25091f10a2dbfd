//! Choices read from bytes, so that a fuzzer which changes the bytes changes the choices.

/// Reads choices from bytes. After the last byte, every choice is the first one.
pub(super) struct Choices<'a> {
    rest: &'a [u8],
}

impl<'a> Choices<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Choices<'a> {
        Choices { rest: bytes }
    }

    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.rest.split_first() else {
            return 0;
        };
        self.rest = rest;
        *first
    }

    /// A number below `bound`; zero if `bound` is zero.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        let wide = if bound > 256 { usize::from(self.byte()) << 8 } else { 0 };
        (wide | usize::from(self.byte())) % bound.max(1)
    }

    /// True once in `times` choices.
    pub(super) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == times - 1
    }

    /// One of the items, unless there are none.
    pub(super) fn pick<'b, T>(&mut self, items: &'b [T]) -> Option<&'b T> {
        items.get(self.below(items.len()))
    }

    /// A number that may be small, or at the end of a range.
    pub(super) fn number(&mut self) -> u64 {
        let small = u64::from(self.byte());
        match small % 8 {
            6 => small * 1_000,
            7 => u64::MAX - small / 8,
            _ => small,
        }
    }
}
