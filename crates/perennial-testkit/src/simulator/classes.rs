//! The classes of faults that a run can have, and the choices of a seed for each.
//!
//! Each class has names under which its occurrences are counted. Each run reports its classes, and a test
//! requires a number of runs for every name, so that none is lost when programs, faults or the engine change.

use super::outages::{Aim, Outage};
use crate::Rng;

/// Every class with the names that count for it.
pub const CLASSES: &[(&str, &[&str])] = &[
    ("codecs", &["payload encoded", "codec without its key", "process that serves by pattern"]),
    (
        "clocks that stall and step",
        &[
            "store clock set ahead",
            "store clock set back",
            "store clock set back by hours",
            "store clock stalled",
            "pause",
            "caller's clock off at a start",
            "writer stalled past a timer",
        ],
    ),
    (
        "outages longer than every grace",
        &[
            "outage past a lease",
            "outage past a cancel grace",
            "outage past a deadline",
            "outage past a timer",
            "store out of reach",
            "all processes down",
        ],
    ),
    (
        "requests at endings and renewals",
        &[
            "event at an ending",
            "update at an ending",
            "start-or-raise at an ending",
            "event at a renewal",
            "update at a renewal",
            "start-or-raise at a renewal",
            "start-or-raise started",
            "start-or-raise raised",
            "start-or-raise found an ended instance",
            "event too late",
            "update too late",
        ],
    ),
    (
        "damaged rows",
        &[
            "turn damaged",
            "message damaged",
            "task damaged",
            "request damaged",
            "damaged while it is served",
            "damaged between lives",
            "damaged instance blocked",
            "damaged instance ended by a person",
            "unreadable message skipped",
        ],
    ),
    (
        "payloads of another type",
        &[
            "input refused at a renewal",
            "input refused at a delayed start",
            "mistyped event raised",
            "blocked by an event of another type",
            "mistyped event skipped",
            "mistyped event read after a deployment",
        ],
    ),
    (
        "full queues",
        &[
            "event refused as full",
            "event refused as full elsewhere",
            "full instance loaded",
            "full instance renewed",
            "instance has room again",
        ],
    ),
    (
        "repairs by people",
        &[
            "instance paused",
            "instance resumed",
            "resume recorded",
            "instance reset",
            "ended instance run again",
            "orchestration paused",
            "instance paused with all others",
        ],
    ),
];

/// More unread events than a run raises.
pub(super) const MANY_UNREAD: usize = 10_000;

/// The remedy for events that the code cannot decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// They are skipped.
    Skip,
    /// The next code can decode them.
    Deployment,
}

/// The choices of a seed for each class.
pub(super) struct ClassPlan {
    /// The earliest time of each outage, its target, and its duration.
    pub(super) outages: Vec<(u64, Outage, Aim, u64)>,
    /// The time at which the store's clock is set back by hours, and by how much. It is corrected when the
    /// faults end.
    pub(super) hours_back: Option<(u64, u64)>,
    /// The error of the clocks of callers outside the nodes.
    pub(super) caller_off_ms: i64,
    /// The times at which rows are damaged.
    pub(super) damage_ms: Vec<u64>,
    /// The probability of a call just as an execution ends, in percent.
    pub(super) edge: u64,
    /// Whether some payloads cannot be decoded, and the remedy.
    pub(super) mistypes: Option<Remedy>,
    /// The time from which the next version cannot decode some inputs.
    pub(super) refuses_inputs_ms: Option<u64>,
    /// The number of unread events at which the next one is refused.
    pub(super) max_unread: usize,
    /// Whether instances are paused and reset.
    pub(super) repairs: bool,
}

impl ClassPlan {
    pub(super) fn new(rng: &mut Rng, faults_ms: u64, lease_ms: u64) -> ClassPlan {
        let sometime = |rng: &mut Rng| rng.between(0, faults_ms);
        let mut outages = Vec::new();
        if rng.percent(35) {
            let outage = *rng.pick(&[Outage::Store, Outage::Processes]);
            let aim = *rng.pick(&[Aim::Timer, Aim::Grace, Aim::Deadline]);
            let for_ms = if aim == Aim::Grace { 45_000 } else { *rng.pick(&[2 * lease_ms, 10_000, 45_000]) };
            outages.push((sometime(rng), outage, aim, for_ms));
        }
        if rng.percent(40) {
            outages.push((sometime(rng), Outage::Writer, Aim::Timer, rng.between(500, 12_000)));
        }
        let mut damage_ms = Vec::new();
        if rng.percent(30) {
            damage_ms = (0..rng.between(1, 4)).map(|_| sometime(rng)).collect();
            // Between the lives of all processes.
            let down = outages.iter().filter(|(_, outage, ..)| *outage == Outage::Processes);
            damage_ms.extend(down.map(|(at_ms, _, _, for_ms)| at_ms + for_ms / 2).collect::<Vec<_>>());
        }
        let hour_ms = 3_600_000;
        let set_back = |rng: &mut Rng| (sometime(rng), rng.between(hour_ms, 9 * hour_ms));
        let cure = *rng.pick(&[Remedy::Skip, Remedy::Deployment]);
        ClassPlan {
            outages,
            hours_back: rng.percent(12).then(|| set_back(rng)),
            caller_off_ms: if rng.percent(30) { rng.between(0, 120_000).cast_signed() - 60_000 } else { 0 },
            damage_ms,
            edge: *rng.pick(&[0, 20, 60]),
            mistypes: rng.percent(35).then_some(cure),
            refuses_inputs_ms: rng.percent(35).then(|| rng.between(0, faults_ms / 2)),
            max_unread: *rng.pick(&[2, 4, MANY_UNREAD, MANY_UNREAD, MANY_UNREAD]),
            repairs: rng.percent(40),
        }
    }

    /// Leaves out what takes longer than the faults of a short run.
    pub(super) fn be_short(&mut self, faults_ms: u64) {
        self.outages.clear();
        self.hours_back = None;
        self.damage_ms.retain(|at_ms| *at_ms <= faults_ms);
        self.refuses_inputs_ms = self.refuses_inputs_ms.map(|at_ms| at_ms.min(faults_ms / 2));
    }

    /// Whether a few unread events fill a queue.
    pub(super) fn has_small_queues(&self) -> bool {
        self.max_unread < MANY_UNREAD
    }

    /// The total duration of all outages.
    pub(super) fn outages_ms(&self) -> u64 {
        self.outages.iter().map(|(.., for_ms)| for_ms).sum()
    }
}
