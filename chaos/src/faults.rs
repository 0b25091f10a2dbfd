//! The kinds of faults, and the order in which a run injects them.

use std::collections::BTreeMap;
use std::fmt;

use perennial_testkit::Rng;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Kills a node (`kill -9`).
    KillNode,
    /// Pauses a node with a signal for longer than its lease, then resumes it.
    PauseNode,
    /// Adds a node.
    AddNode,
    /// Stops a node gracefully.
    StopNode,
    /// Stops the server without a checkpoint (`-m immediate`), then restarts it.
    ServerImmediate,
    /// Kills the server (`kill -9`), then restarts it.
    ServerKill,
    /// Stops the server cleanly (`-m fast`), then restarts it.
    ServerRestart,
    /// Terminates all client sessions on the server.
    Backends,
    /// Refuses connections at the port, and cuts all existing ones.
    Refuse,
    /// Cuts connections when they send a commit, before it reaches the server.
    CutBefore,
    /// Cuts connections when they have sent a commit, after it reached the server.
    CutAfter,
    /// Delays everything that nodes send.
    Delay,
    /// Pauses the owner of a file for longer than its lease while another process tries to own it, then resumes it.
    PauseOwner,
    /// Pauses the owner of a file, then kills it while another process waits for the file.
    ReplaceOwner,
    /// Fills the disk of the file.
    FullDisk,
}

impl Fault {
    /// The kinds for nodes over one server.
    pub const OF_SERVER: &[Fault] = &[
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

    /// The kinds for the owner of one file.
    pub const OF_FILE: &[Fault] =
        &[Fault::KillNode, Fault::StopNode, Fault::PauseOwner, Fault::ReplaceOwner, Fault::FullDisk];

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
            Fault::PauseOwner => "owner paused past its lease",
            Fault::ReplaceOwner => "paused owner replaced",
            Fault::FullDisk => "disk full",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Chooses faults. Each round contains every kind at least once, in random order, so that a short run has them all.
#[derive(Debug)]
pub struct Deck {
    rng: Rng,
    kinds: &'static [Fault],
    round: Vec<Fault>,
    counts: BTreeMap<Fault, usize>,
}

impl Deck {
    /// Creates a deck of these kinds with its own random numbers.
    pub fn new(rng: Rng, kinds: &'static [Fault]) -> Deck {
        Deck { rng, kinds, round: Vec::new(), counts: BTreeMap::new() }
    }

    /// The next fault.
    pub fn draw(&mut self) -> Fault {
        if self.round.is_empty() {
            self.round = self.kinds.to_vec();
            // Nodes fail more often than servers and disks.
            let often = [Fault::KillNode, Fault::KillNode, Fault::PauseNode, Fault::CutAfter];
            self.round.extend(often.iter().filter(|fault| self.kinds.contains(fault)));
            self.rng.shuffle(&mut self.round);
        }
        self.round.pop().expect("it was just filled")
    }

    /// Counts a fault that was injected.
    pub fn count(&mut self, fault: Fault) {
        *self.counts.entry(fault).or_default() += 1;
    }

    /// Number of injected faults of each kind.
    pub fn counts(&self) -> &BTreeMap<Fault, usize> {
        &self.counts
    }

    /// Total number of injected faults.
    pub fn total(&self) -> usize {
        self.counts.values().sum()
    }

    /// The kinds that were never injected.
    pub fn missing(&self) -> Vec<Fault> {
        self.kinds.iter().filter(|fault| !self.counts.contains_key(fault)).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_comes_in_the_first_round() {
        let mut deck = Deck::new(Rng::new(7), Fault::OF_SERVER);
        for _ in 0..16 {
            let fault = deck.draw();
            deck.count(fault);
        }
        assert_eq!((deck.missing(), deck.total()), (Vec::new(), 16));
        assert_eq!(deck.counts()[&Fault::KillNode], 3);
    }
}
