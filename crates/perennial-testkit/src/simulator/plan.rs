//! What a seed sets a run on from the start.

use perennial_core::ExecutionOptions;
use perennial_core::shard::ShardOptions;
use perennial_core::store::Served;

use crate::Chance;
use crate::program::TAG;

/// A mistake in the glue between shards and store, to see that it is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Commits of a session that is gone are made in the name of the owner.
    NoFencing,
    /// Activities start when they are decided, not when that is durable.
    EffectsBeforeCommit,
    /// A batch that is sent again is not recognized.
    NoDedupe,
    /// Now and then a message vanishes from the inbox.
    LostMessages,
    /// A node's clock is ahead of the store's.
    EarlyTimers,
    /// What became of a child is sent to its parent twice.
    OutcomeTwice,
    /// Continue-as-new forgets the events that nobody read.
    ForgottenEvents,
    /// Retries and attempts after an interruption run before their rows are durable.
    RetryBeforeRow,
    /// Request rows are answered before the turn that answers them is durable.
    AnswerBeforeTurn,
    /// Each time a turn is sent to the store, its children get new keys.
    FreshChildKeys,
    /// Interruptions are not counted.
    UncountedInterruptions,
}

impl Flaw {
    /// All of them.
    pub const ALL: [Flaw; 11] = [
        Flaw::NoFencing,
        Flaw::EffectsBeforeCommit,
        Flaw::NoDedupe,
        Flaw::LostMessages,
        Flaw::EarlyTimers,
        Flaw::OutcomeTwice,
        Flaw::ForgottenEvents,
        Flaw::RetryBeforeRow,
        Flaw::AnswerBeforeTurn,
        Flaw::FreshChildKeys,
        Flaw::UncountedInterruptions,
    ];
}

pub(super) struct Plan {
    pub(super) nodes: usize,
    pub(super) instances: usize,
    /// How long there is trouble.
    pub(super) trouble_ms: u64,
    pub(super) faults: Faults,
    pub(super) max_batch: usize,
    pub(super) lease_ms: u64,
    pub(super) shard: ShardOptions,
    /// The longest ordinary delay of a call, each way.
    pub(super) call_ms: u64,
    /// What each node can run. One of them can run everything.
    pub(super) served: Vec<Served>,
    /// The instance with an activity that takes its process down.
    pub(super) deadly: Option<usize>,
    /// The longest pause of the pruner, if it comes.
    pub(super) prune_ms: u64,
    /// Which deployments there are.
    pub(super) adds_version: bool,
    pub(super) removes_version: bool,
}

/// How likely things go wrong, in percent of the occasions.
#[derive(Default)]
pub(super) struct Faults {
    pub(super) unavailable: u64,
    pub(super) batch_refused: u64,
    pub(super) unknown: u64,
    pub(super) slow: u64,
    pub(super) duplicate: u64,
    pub(super) turn_lost: u64,
    /// How many of these happen in a run.
    pub(super) crashes: u64,
    pub(super) pauses: u64,
    pub(super) releases: u64,
    pub(super) stops: u64,
    /// In percent again.
    pub(super) hint_lost: u64,
    pub(super) stale_page: u64,
    pub(super) lease_lost: u64,
}

impl Plan {
    pub(super) fn new(chance: &mut Chance) -> Plan {
        let faults = Faults {
            unavailable: *chance.pick(&[0, 2, 15]),
            batch_refused: *chance.pick(&[0, 0, 3]),
            unknown: *chance.pick(&[0, 5, 20]),
            slow: *chance.pick(&[0, 2, 10]),
            duplicate: *chance.pick(&[0, 20]),
            turn_lost: *chance.pick(&[0, 0, 0, 1]),
            crashes: chance.between(0, 4),
            pauses: chance.between(0, 3),
            releases: chance.between(0, 1),
            stops: chance.between(0, 2),
            hint_lost: *chance.pick(&[0, 20, 60]),
            stale_page: *chance.pick(&[0, 5, 30]),
            lease_lost: *chance.pick(&[0, 10, 40]),
        };
        let shard = ShardOptions {
            execution: ExecutionOptions { shadow_replay: false, ..ExecutionOptions::default() },
            max_resident: *chance.pick(&[0, 1, 2, 1_000]),
            idle_ms: *chance.pick(&[0, 100, 3_000, 300_000]),
            lookahead_ms: *chance.pick(&[2_000, 60_000]),
            cancel_grace_ms: *chance.pick(&[100, 30_000]),
            retry_first_ms: 200,
            retry_max_ms: 5_000,
            ..ShardOptions::default()
        };
        let nodes = *chance.pick(&[1, 2, 3]);
        Plan {
            served: served(chance, nodes),
            deadly: chance.percent(25).then_some(0),
            prune_ms: *chance.pick(&[0, 600, 3_000]),
            adds_version: chance.percent(40),
            removes_version: chance.percent(25),
            nodes,
            instances: *chance.pick(&[2, 4, 7]),
            trouble_ms: *chance.pick(&[5_000, 15_000, 30_000]),
            faults,
            max_batch: *chance.pick(&[1, 3, 1_000]),
            lease_ms: *chance.pick(&[1_000, 3_000]),
            shard,
            call_ms: *chance.pick(&[2, 20, 150]),
        }
    }
}

fn served(chance: &mut Chance, nodes: usize) -> Vec<Served> {
    let all = chance.below(nodes);
    let of_node = |node: usize| {
        let names = (0..4).map(|number| format!("activity-{number}"));
        let names = names.filter(|_| node == all || chance.percent(90)).collect();
        let tags = (node == all || chance.percent(30)).then(|| TAG.to_owned());
        Served { names, tags: tags.into_iter().collect() }
    };
    (0..nodes).map(of_node).collect()
}
