//! The planted bugs, and how soon the simulator notices each of them.

use perennial_core::flaws::Flaw;

/// A planted bug.
#[derive(Clone, Copy, Debug)]
pub struct Planted {
    /// The bug.
    pub flaw: Flaw,
    /// The invariants and rules by which it may be noticed.
    pub noticed_by: &'static [&'static str],
    /// The number of seeds, from any seed on, among which one notices it.
    pub within: u64,
    /// Whether only a storm of kills shows it.
    pub in_storm: bool,
    /// The first seed of the test: one from which on it is noticed soon.
    pub first: u64,
}

const fn planted(flaw: Flaw, first: u64, within: u64, noticed_by: &'static [&'static str]) -> Planted {
    Planted { flaw, noticed_by, within, in_storm: false, first }
}

/// All planted bugs.
pub const PLANTED: &[Planted] = &[
    planted(Flaw::NoFencing, 0, 300, &["I3"]),
    planted(Flaw::EpochUnchecked, 0, 300, &["I3", "N10"]),
    planted(Flaw::TenureUnchecked, 0, 300, &["N8", "N10"]),
    planted(Flaw::EffectsBeforeCommit, 0, 300, &["G5"]),
    planted(Flaw::NoDedupe, 0, 300, &["G5", "G16", "I8"]),
    planted(Flaw::LostMessages, 0, 300, &["I2", "I8", "I13", "I17"]),
    planted(Flaw::EarlyTimers, 0, 300, &["I10"]),
    planted(Flaw::OutcomeTwice, 0, 300, &["I13"]),
    planted(Flaw::ForgottenEvents, 0, 300, &["I8", "I9", "I17"]),
    planted(Flaw::RetryBeforeRow, 0, 300, &["G22"]),
    planted(Flaw::AnswerBeforeTurn, 0, 300, &["G5", "G43"]),
    planted(Flaw::FreshChildKeys, 0, 300, &["I13"]),
    planted(Flaw::UncountedInterruptions, 0, 300, &["G22"]),
    Planted { in_storm: true, ..planted(Flaw::EveryEndCounts, 0, 40, &["G22"]) },
    planted(Flaw::ReleasedUndrained, 0, 300, &["N8"]),
    planted(Flaw::ActsPastDeadline, 0, 300, &["N9"]),
    planted(Flaw::ForgetsAtDeadline, 0, 300, &["N9"]),
    planted(Flaw::UnorderedSenders, 0, 300, &["I8"]),
    planted(Flaw::TasksDieWithLanes, 0, 300, &["N17"]),
    planted(Flaw::ForgottenTakes, 0, 300, &["N17"]),
    planted(Flaw::EndsWithLanes, 0, 300, &["G31", "N3"]),
    planted(Flaw::PausesForgotten, 0, 300, &["G46"]),
    planted(Flaw::ResetForgetsEvents, 0, 300, &["G48"]),
    planted(Flaw::ReplacesRunning, 0, 300, &["G36", "I8"]),
    planted(Flaw::StaleAttempts, 200, 400, &["G22", "I6"]),
    planted(Flaw::TimersFirst, 0, 300, &["G13"]),
    planted(Flaw::UnreadEventsOvertaken, 0, 300, &["G13"]),
    planted(Flaw::EvictionCancels, 0, 300, &["I6"]),
    planted(Flaw::EvictionForgetsWakes, 380, 500, &["G13", "I17"]),
    planted(Flaw::EatenEvents, 0, 300, &["I8", "I9", "I17"]),
    planted(Flaw::EarlyEventsLost, 0, 300, &["I8", "I9", "I17"]),
    planted(Flaw::IdsConfused, 0, 300, &["G2"]),
    planted(Flaw::InboxByCursor, 0, 300, &["G13", "I8", "I17"]),
    planted(Flaw::LeaseFromAnswer, 0, 300, &["I6", "I8", "N9"]),
    planted(Flaw::DoubtTakenForDone, 0, 300, &["G5", "I2", "I8", "I16", "I17"]),
    planted(Flaw::ParentsForgotten, 0, 300, &["I9", "I13", "I17"]),
    planted(Flaw::KeysForgotten, 0, 300, &["G16", "I8"]),
    planted(Flaw::TimeGoesBack, 0, 300, &["I11", "I16"]),
    planted(Flaw::WakesStoredLate, 0, 300, &["I2"]),
    planted(Flaw::WaitersForgotten, 0, 300, &["G17", "I17"]),
];
