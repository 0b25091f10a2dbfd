//! Options of a shard.

use std::sync::Arc;
use std::time::Duration;

use crate::codec::Codecs;
use crate::execution::{ExecutionOptions, Limits, TurnFailure};
use crate::history::{Job, whole_ms};
use crate::store::Served;

use super::block_reason::BlockReason;
use super::facts::Observed;
use super::output::ActivityTask;

/// Options of a shard. The defaults are suitable for production.
#[derive(Clone, Debug)]
pub struct ShardOptions {
    /// Options of executions.
    pub execution: ExecutionOptions,
    /// The maximum number of executions in memory, including blocked instances. Default 1,000 per shard.
    pub max_resident: usize,
    /// The maximum total size of the histories of executions in memory, and of the numbers of messages that were consumed
    /// lately, which are remembered against pages that were read before; the most recently used execution stays even if
    /// its history alone exceeds it. Default 4 MiB per shard, which is 1 GiB for a node with all shards.
    pub max_resident_bytes: u64,
    /// How long an idle execution stays in memory. Default 5 minutes.
    pub idle: Duration,
    /// How far ahead due instances are read from the store; those due sooner are kept in memory. Default 1 minute.
    pub lookahead: Duration,
    /// How long code that took over cancellation may clean up. Default 30 s.
    pub cancel_grace: Duration,
    /// The first pause before a blocked instance is retried; it doubles each time. Default 1 s.
    pub retry_first: Duration,
    /// The longest pause before a blocked instance is retried. Default 5 minutes.
    pub retry_max: Duration,
    /// How long an instance whose code is missing on its owner is shown as waiting before it is blocked: during an
    /// upgrade, another node or the next deployment brings the code. Default 10 minutes.
    pub missing_code_wait: Duration,
    /// Which failures of a turn end the instance instead of blocking it. Default: none.
    pub on_failure: FailurePolicy,
    /// With this many unread events, the next one is refused. Default 10,000.
    pub max_unread: usize,
    /// An activity whose process ended more often than this, each time before the attempt was healthy, is poisoned.
    /// Default 5.
    pub max_interruptions: u32,
    /// After this many interruptions an activity runs only while no other suspect does, and only after the process has
    /// lived for a while without it; with fewer interruptions, a few suspects run together. Default 4.
    pub quarantine_after: u32,
    /// An attempt that has run this long is healthy: a later end of its process does not count against it. Default 1
    /// minute.
    pub healthy: Duration,
    /// The activities that this node can run; `None` for all.
    pub served: Option<Arc<Served>>,
    /// The key from which the secrets of tokens are derived: random, and known only to this node.
    pub token_key: TokenKey,
    /// The names that facts tell apart; `None` if no facts are collected. Default `None`.
    #[doc(hidden)]
    pub observed: Option<Arc<Observed>>,
    /// The name of the node in traces.
    pub node: Arc<str>,
    /// The codecs for payloads in stored turns. Payloads in messages and tasks are encoded by an
    /// [`EncodedStore`](crate::codec::EncodedStore). Default: none.
    pub codecs: Codecs,
}

/// A secret number that is not shown in logs.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct TokenKey(pub u128);

impl std::fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenKey(…)")
    }
}

/// What happens to an instance whose turn failed because of its own code. Divergence, corruption and missing code
/// always block, because a deployment fixes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FailurePolicy {
    /// A panic, misuse of the context, or awaiting something that is not durable. Default: block.
    pub panic: OnFailure,
    /// A turn that exceeded a limit. Default: block.
    pub limit: OnFailure,
    /// A turn that exceeded its deadline. Default: block.
    pub deadline: OnFailure,
}

/// What a failed turn leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// The instance is blocked; nothing is lost.
    #[default]
    Block,
    /// The instance is terminated, with the failure as the reason.
    End,
}

impl FailurePolicy {
    /// What this failure leads to.
    pub fn of(&self, failure: &BlockReason) -> OnFailure {
        match failure {
            BlockReason::ThreadLost
            | BlockReason::NotTried
            | BlockReason::Turn(TurnFailure::DeadlinePassed) => self.deadline,
            BlockReason::Turn(TurnFailure::OverLimit { .. }) => self.limit,
            BlockReason::Turn(
                TurnFailure::Panicked { .. }
                | TurnFailure::Misuse { .. }
                | TurnFailure::NonDurableAwait { .. },
            ) => self.panic,
            _ => OnFailure::Block,
        }
    }
}

impl ShardOptions {
    /// The maximum number of jobs of one turn and their maximum size in bytes: half of what a turn may contain.
    pub(super) fn jobs_per_turn(&self) -> (usize, u64) {
        let Limits { turn_decisions, turn_bytes, .. } = self.execution.limits;
        (usize::try_from(turn_decisions / 2).unwrap_or(usize::MAX).max(1), (turn_bytes / 2).max(1))
    }

    /// Splits jobs into portions that each fit into a turn, in order; returns at least one portion.
    pub(super) fn portions(&self, jobs: Vec<Job>) -> Vec<Vec<Job>> {
        let (limit, max_bytes) = self.jobs_per_turn();
        let (mut portions, mut bytes) = (vec![Vec::new()], 0);
        for job in jobs {
            bytes += job.weight();
            let last = portions.last_mut().expect("there is one at least");
            if last.len() < limit && (bytes <= max_bytes || last.is_empty()) {
                last.push(job);
            } else {
                bytes = job.weight();
                portions.push(vec![job]);
            }
        }
        portions
    }

    /// Whether this node can run an activity.
    pub(super) fn serves(&self, name: &str, tag: Option<&str>) -> bool {
        self.served.as_ref().is_none_or(|served| served.serves(name, tag))
    }

    /// Whether a process ended under an activity before: it starts only when it can begin immediately and few enough
    /// other suspects run.
    pub fn is_gated(&self, task: &ActivityTask) -> bool {
        task.begun.is_some() || max_together(self.quarantine_after, task.interruptions).is_some()
    }

    /// How long a process has to live without an activity before it runs it.
    pub(super) fn hold_ms(&self, interruptions: u32) -> u64 {
        hold_ms(self.quarantine_after, interruptions, whole_ms(self.healthy))
    }

    /// The pause before attempt `attempts` + 1 of a blocked instance.
    pub(super) fn retry_pause_ms(&self, attempts: u32) -> u64 {
        whole_ms(self.retry_first)
            .saturating_mul(1 << attempts.saturating_sub(1).min(32))
            .min(whole_ms(self.retry_max))
    }
}

/// How many suspects may run together with an activity, itself included: the more often it was interrupted, the fewer,
/// until it runs alone.
pub(crate) fn max_together(quarantine_after: u32, interruptions: u32) -> Option<usize> {
    if interruptions >= quarantine_after {
        return Some(1);
    }
    // The first interruption is weak evidence: everything that was running was interrupted.
    (interruptions > 1).then(|| 8_usize.saturating_pow(quarantine_after - interruptions))
}

/// How long a process has to live without an activity before it runs it alone. The time doubles with each interruption,
/// so that processes that end at regular intervals for another reason produce no evidence against the activity.
pub(crate) fn hold_ms(quarantine_after: u32, interruptions: u32, healthy_ms: u64) -> u64 {
    match interruptions.checked_sub(quarantine_after) {
        Some(doublings) if interruptions > 0 => healthy_ms.saturating_mul(1 << doublings.min(10)),
        _ => 0,
    }
}

impl Default for ShardOptions {
    fn default() -> ShardOptions {
        ShardOptions {
            execution: ExecutionOptions::default(),
            max_resident: 1_000,
            max_resident_bytes: 4 << 20,
            idle: Duration::from_millis(300_000),
            lookahead: Duration::from_millis(60_000),
            cancel_grace: Duration::from_millis(30_000),
            retry_first: Duration::from_millis(1_000),
            retry_max: Duration::from_millis(300_000),
            missing_code_wait: Duration::from_millis(600_000),
            on_failure: FailurePolicy::default(),
            max_unread: 10_000,
            max_interruptions: 5,
            quarantine_after: 4,
            healthy: Duration::from_millis(60_000),
            served: None,
            token_key: TokenKey::default(),
            observed: None,
            node: Arc::from(""),
            codecs: Codecs::default(),
        }
    }
}
