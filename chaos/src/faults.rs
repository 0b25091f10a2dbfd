//! The kinds of faults, and the order in which a run injects them.

use std::collections::BTreeMap;
use std::fmt;

use perennial_testkit::Rng;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A node is killed (-9).
    KillNode,
    /// A node is stopped by a signal for longer than its lease, and continues.
    PauseNode,
    /// A node is added.
    AddNode,
    /// A node is stopped gracefully.
    StopNode,
    /// The server ends without finishing anything (`-m immediate`), and is started again.
    ServerImmediate,
    /// The server is killed (-9), and is started again.
    ServerKill,
    /// The server is stopped in order (`-m fast`), and is started again.
    ServerRestart,
    /// The server ends all sessions of clients.
    Backends,
    /// The port refuses connections, and all connections are cut.
    Refuse,
    /// Connections are cut when they send a commit, which does not arrive.
    CutBefore,
    /// Connections are cut when they have sent a commit, which arrives.
    CutAfter,
    /// Everything that nodes send is delayed.
    Delay,
}

impl Fault {
    /// All kinds.
    pub const ALL: [Fault; 12] = [
        Fault::KillNode,
        Fault::PauseNode,
        Fault::AddNode,
        Fault::StopNode,
        Fault::ServerImmediate,
        Fault::ServerKill,
        Fault::ServerRestart,
        Fault::Backends,
        Fault::Refuse,
        Fault::CutBefore,
        Fault::CutAfter,
        Fault::Delay,
    ];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Fault::KillNode => "node killed",
            Fault::PauseNode => "node paused past its lease",
            Fault::AddNode => "node added",
            Fault::StopNode => "node stopped gracefully",
            Fault::ServerImmediate => "server stopped immediately",
            Fault::ServerKill => "server killed",
            Fault::ServerRestart => "server restarted",
            Fault::Backends => "backends terminated",
            Fault::Refuse => "port refused",
            Fault::CutBefore => "connection cut before a commit",
            Fault::CutAfter => "connection cut after a commit",
            Fault::Delay => "connections delayed",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Draws faults: in each round every kind comes once, in random order, so that a short run has them all.
#[derive(Debug)]
pub struct Deck {
    rng: Rng,
    round: Vec<Fault>,
    counts: BTreeMap<Fault, usize>,
}

impl Deck {
    /// A deck of its own randomness.
    pub fn new(rng: Rng) -> Deck {
        Deck { rng, round: Vec::new(), counts: BTreeMap::new() }
    }

    /// The next fault.
    pub fn draw(&mut self) -> Fault {
        if self.round.is_empty() {
            self.round = Fault::ALL.to_vec();
            // Nodes die more often than servers.
            self.round.extend([Fault::KillNode, Fault::KillNode, Fault::PauseNode, Fault::CutAfter]);
            self.rng.shuffle(&mut self.round);
        }
        self.round.pop().expect("it was just filled")
    }

    /// Counts a fault that was injected.
    pub fn count(&mut self, fault: Fault) {
        *self.counts.entry(fault).or_default() += 1;
    }

    /// How often each kind was injected.
    pub fn counts(&self) -> &BTreeMap<Fault, usize> {
        &self.counts
    }

    /// How many were injected.
    pub fn total(&self) -> usize {
        self.counts.values().sum()
    }

    /// The kinds that were never injected.
    pub fn missing(&self) -> Vec<Fault> {
        Fault::ALL.into_iter().filter(|fault| !self.counts.contains_key(fault)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_comes_in_the_first_round() {
        let mut deck = Deck::new(Rng::new(7));
        for _ in 0..16 {
            let fault = deck.draw();
            deck.count(fault);
        }
        assert_eq!((deck.missing(), deck.total()), (Vec::new(), 16));
        assert_eq!(deck.counts()[&Fault::KillNode], 3);
    }
}
