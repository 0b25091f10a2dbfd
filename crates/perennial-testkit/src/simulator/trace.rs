//! The trace: a hash of everything that happened, and the last lines.

use std::collections::VecDeque;

pub(super) struct Trace {
    /// FNV-1a over all lines.
    pub(super) hash: u64,
    pub(super) lines: VecDeque<String>,
    pub(super) keep: usize,
}

impl Default for Trace {
    fn default() -> Trace {
        Trace { hash: 0xcbf2_9ce4_8422_2325, lines: VecDeque::new(), keep: 150 }
    }
}

impl Trace {
    pub(super) fn add(&mut self, now_ms: u64, line: String) {
        let line = format!("{now_ms} {line}");
        for byte in line.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        if self.lines.len() >= self.keep {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }
}
