//! The trace: a hash of everything that happened, and the last lines.

use std::collections::VecDeque;

pub(super) struct Trace {
    /// FNV-1a over all lines.
    pub(super) hash: u64,
    lines: VecDeque<(u64, String)>,
    pub(super) keep: usize,
}

impl Default for Trace {
    fn default() -> Trace {
        Trace { hash: 0xcbf2_9ce4_8422_2325, lines: VecDeque::new(), keep: 150 }
    }
}

impl Trace {
    pub(super) fn add(&mut self, now_ms: u64, line: String) {
        for byte in now_ms.to_le_bytes().into_iter().chain(line.bytes()) {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        if self.lines.len() >= self.keep {
            self.lines.pop_front();
        }
        self.lines.push_back((now_ms, line));
    }

    /// The lines that were kept, with their times.
    pub(super) fn into_lines(self) -> Vec<String> {
        self.lines.into_iter().map(|(now_ms, line)| format!("{now_ms} {line}")).collect()
    }
}
