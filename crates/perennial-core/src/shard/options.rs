//! How a shard behaves.

use std::sync::Arc;
use std::time::Duration;

use crate::codec::Codecs;
use crate::execution::{ExecutionOptions, Limits, TurnFailure};
use crate::history::{Job, whole_ms};
use crate::store::Served;

use super::output::ActivityTask;
use super::turn_task::BlockReason;

/// Tunables of a shard. The defaults need no tuning.
#[derive(Clone, Debug)]
pub struct ShardOptions {
    /// How executions behave.
    pub execution: ExecutionOptions,
    /// How many executions, and how many blocked instances with them, stay in memory. Default 1,000 per shard.
    pub max_resident: usize,
    /// How many bytes the histories of the executions in memory have; the execution that was used last stays even if
    /// its history alone has more. Default 4 MiB per shard, which is 1 GiB for a node with all shards.
    pub max_resident_bytes: u64,
    /// How long an idle execution stays in memory. Default 5 minutes.
    pub idle: Duration,
    /// How far ahead due instances are read from the store; those due sooner keep a place in memory. Default 1 minute.
    pub lookahead: Duration,
    /// How long code that took cancellation over may clean up. Default 30 s.
    pub cancel_grace: Duration,
    /// The first pause before a blocked instance is tried again; it doubles each time. Default 1 s.
    pub retry_first: Duration,
    /// The longest pause before a blocked instance is tried again. Default 5 minutes.
    pub retry_max: Duration,
    /// Which failures of a turn end the instance instead of blocking it. Default: none.
    pub on_failure: FailurePolicy,
    /// More unread events than this refuse the next. Default 10,000.
    pub max_unread: usize,
    /// An activity that ended more often than this with its process, each time before it was healthy, is poison.
    /// Default 5.
    pub max_interruptions: u32,
    /// An activity that ended this often with its process runs only while no other suspect does, and only after the
    /// process has lived for a while without it; those that ended less often run few at a time. Default 4.
    pub quarantine_after: u32,
    /// An attempt that has run for so long is healthy: that its process ends later says nothing against it. Default 1
    /// minute.
    pub healthy: Duration,
    /// Which activities this node can run; all if not given.
    pub served: Option<Arc<Served>>,
    /// What the secrets of tokens are drawn with: random, and known to nobody else.
    pub token_key: TokenKey,
    /// What happens to payloads in stored turns. Those in messages and tasks are the business of an
    /// [`EncodedStore`](crate::codec::EncodedStore). Default: none.
    pub codecs: Codecs,
}

/// A secret number that does not show in logs.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct TokenKey(pub u128);

impl std::fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenKey(…)")
    }
}

/// What comes of an instance whose turn failed by its own code's doing. Divergence, corruption and missing code always
/// block, since a deployment cures them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FailurePolicy {
    /// A panic, misuse of the context, or waiting for something that is not durable. Default: block.
    pub panic: OnFailure,
    /// A turn over its limits. Default: block.
    pub limit: OnFailure,
    /// A turn past its deadline. Default: block.
    pub deadline: OnFailure,
}

/// What a failed turn leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// The instance waits for a cure; nothing is lost.
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
    /// How many jobs and how many bytes of them one turn takes: half of what a turn may hold.
    pub(super) fn jobs_per_turn(&self) -> (usize, u64) {
        let Limits { turn_decisions, turn_bytes, .. } = self.execution.limits;
        (usize::try_from(turn_decisions / 2).unwrap_or(usize::MAX).max(1), (turn_bytes / 2).max(1))
    }

    /// Jobs in portions that each fit into a turn, in order; one at least.
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

    /// Whether a process ended under an activity before: it waits until it can begin at once, and until few enough others
    /// like it run.
    pub fn is_gated(&self, task: &ActivityTask) -> bool {
        task.begun.is_some() || max_together(self.quarantine_after, task.interruptions).is_some()
    }

    /// For how long a process has to live without an activity before it runs it.
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

/// With how many suspects an activity runs at most: the more often it was interrupted, the fewer, and alone in the end.
pub(crate) fn max_together(quarantine_after: u32, interruptions: u32) -> Option<usize> {
    if interruptions >= quarantine_after {
        return Some(1);
    }
    // The first interruption says next to nothing: everything that ran was interrupted.
    (interruptions > 1).then(|| 8_usize.saturating_pow(quarantine_after - interruptions))
}

/// For how long a process has to live without an activity before it runs it, if it runs alone. Each time it is twice as
/// long, so that processes which end at regular intervals for another reason leave no evidence against it.
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
            on_failure: FailurePolicy::default(),
            max_unread: 10_000,
            max_interruptions: 5,
            quarantine_after: 4,
            healthy: Duration::from_millis(60_000),
            served: None,
            token_key: TokenKey::default(),
            codecs: Codecs::default(),
        }
    }
}
