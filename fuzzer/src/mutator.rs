//! Makes inputs from those of a corpus: changed, cut, joined, and with words and numbers of the formats put in.

/// Texts that mean something to one of the parsers.
const WORDS: &[&str] = &[
    "\"",
    "\\\"",
    "\\u0000",
    "\\ud800",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "null",
    "true",
    "false",
    "0",
    "-1",
    "1e400",
    "\n",
    "\t",
    " ",
    "=",
    "<=",
    "^=",
    "&",
    "?",
    "%",
    "%00",
    "%2F",
    "%ff",
    "..",
    "/",
    "::",
    "~",
    "--json",
    "--store",
    "sqlite:",
    "postgres://",
    "ms",
    "d",
    "\u{202e}",
    "\u{1b}[2J",
    "\u{0}",
    "id",
    "type",
    "v",
    "crc",
    "events",
    "source_event_id",
    "payload",
    "key",
];

/// Numbers at the ends of ranges.
const NUMBERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "127",
    "255",
    "256",
    "65535",
    "2147483647",
    "2147483648",
    "4294967295",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
];

/// Inputs longer than this are cut: length alone finds nothing.
const LONGEST: usize = 64 << 10;

/// A stream of inputs that depends on its seed and corpus alone.
#[derive(Debug)]
pub struct Mutator<'c> {
    corpus: &'c [Vec<u8>],
    state: u64,
}

impl<'c> Mutator<'c> {
    /// Starts a stream.
    ///
    /// # Panics
    ///
    /// If the corpus is empty.
    pub fn new(corpus: &'c [Vec<u8>], seed: u64) -> Mutator<'c> {
        assert!(!corpus.is_empty(), "a corpus has inputs");
        Mutator { corpus, state: seed }
    }

    /// SplitMix64.
    fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.draw() % bound.max(1) as u64) as usize
    }

    /// Writes the next input into a buffer.
    pub fn next(&mut self, input: &mut Vec<u8>) {
        input.clear();
        let (corpus, first) = (self.corpus, self.below(self.corpus.len()));
        input.extend_from_slice(&corpus[first]);
        for _ in 0..1 + self.below(4) {
            self.change(input);
        }
        input.truncate(LONGEST);
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let place = self.below(input.len() + 1);
        match self.below(12) {
            0 | 1 if place < input.len() => input[place] ^= 1 << self.below(8),
            2 if place < input.len() => input[place] = self.draw() as u8,
            3 => {
                let end = (place + 1 + self.below(16)).min(input.len());
                input.drain(place.min(end)..end);
            }
            4 => {
                let end = (place + 1 + self.below(64)).min(input.len());
                let copy = input[place.min(end)..end].to_vec();
                let at = self.below(input.len() + 1);
                input.splice(at..at, copy);
            }
            5 | 6 => {
                let word = WORDS[self.below(WORDS.len())].as_bytes();
                input.splice(place..place, word.iter().copied());
            }
            7 | 8 => {
                let number = NUMBERS[self.below(NUMBERS.len())].as_bytes();
                if let Some(run) = next_run(input, place, u8::is_ascii_digit) {
                    input.splice(run, number.iter().copied());
                }
            }
            9 => {
                // A word of the input in the place of another one.
                let from = self.below(input.len() + 1);
                let word = next_run(input, from, u8::is_ascii_alphabetic).map(|run| input[run].to_vec());
                if let (Some(word), Some(run)) = (word, next_run(input, place, u8::is_ascii_alphabetic)) {
                    input.splice(run, word);
                }
            }
            10 => {
                let (corpus, other) = (self.corpus, self.below(self.corpus.len()));
                let from = self.below(corpus[other].len() + 1);
                input.truncate(place);
                input.extend_from_slice(&corpus[other][from..]);
            }
            _ => input.truncate(place.max(1)),
        }
    }
}

/// The next run of matching bytes, from a place on.
fn next_run(text: &[u8], from: usize, belongs: fn(&u8) -> bool) -> Option<std::ops::Range<usize>> {
    let start = from + text.get(from..)?.iter().position(belongs)?;
    let length = text[start..].iter().take_while(|byte| belongs(byte)).count();
    Some(start..start + length)
}
