//! The state shared by the instances of a shard. Each part owns its fields; an instance gets all of them with every
//! input.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::execution::Stream;
use crate::history::EventId;
use crate::instance::{InstanceKey, ShardId};
use crate::store::{Commit, InboxNumber, PausedOrchestrations, SessionId, TaskId};

use super::attempts::Attempts;
use super::consumed::Consumed;
use super::counters::Counters;
use super::facts::Facts;
use super::gaps::Gaps;
use super::kept_keys::KeptKeys;
use super::lookups::Lookups;
use super::options::ShardOptions;
use super::output::{ActivityTask, Output};
use super::request::{Request, RequestId, Response};
use super::residents::Residents;
use super::standing::Standing;
use super::tenure::Tenure;
use super::token::TokenSecret;
use super::updates::Updates;
use super::waiters::Waiters;
use super::wakes::Wakes;

pub(super) struct Shared {
    pub(super) id: ShardId,
    pub(super) tenure: Tenure,
    pub(super) options: ShardOptions,
    pub(super) standing: Standing,
    pub(super) gaps: Gaps,
    pub(super) wakes: Wakes,
    pub(super) residents: Residents,
    pub(super) attempts: Attempts,
    pub(super) waiters: Waiters,
    pub(super) lookups: Lookups,
    /// The instance that each open request was found to be for.
    pub(super) bindings: FxHashMap<RequestId, InstanceKey>,
    pub(super) updates: Updates,
    /// Inbox messages that were consumed.
    pub(super) consumed: Consumed,
    /// Request rows that were answered.
    pub(super) answered: Consumed,
    /// Blocked instances whose turn is not retried in this process unless somebody requests it.
    pub(super) no_auto_retry: BTreeSet<InstanceKey>,
    /// The paused orchestrations.
    pub(super) paused: Arc<PausedOrchestrations>,
    pub(super) kept_keys: KeptKeys,
    pub(super) counters: Counters,
    pub(super) facts: Facts,
    pub(super) outputs: Vec<Output>,
    /// The session that holds the leases of the owner's own attempts.
    pub(super) holder: SessionId,
    /// The node of the owner, fixed for the life of the process.
    pub(super) node: SessionId,
    /// Whether the previous owner ended without releasing the shard.
    pub(super) is_after_unclean_end: bool,
    /// The key from which the secrets of tokens are derived.
    token_key: u128,
    /// The source of seeds and jitter.
    stream: Stream,
    turn_tasks: u64,
}

impl Shared {
    pub(super) fn new(id: ShardId, tenure: Tenure, options: ShardOptions, nonce: u128) -> Shared {
        Shared {
            token_key: options.token_key.0 ^ nonce,
            facts: Facts::new(options.observed.clone()),
            id,
            tenure,
            options,
            standing: Standing::Serving,
            gaps: Gaps::default(),
            wakes: Wakes::default(),
            residents: Residents::default(),
            attempts: Attempts::default(),
            waiters: Waiters::default(),
            lookups: Lookups::default(),
            bindings: FxHashMap::default(),
            updates: Updates::default(),
            consumed: Consumed::default(),
            answered: Consumed::default(),
            no_auto_retry: BTreeSet::new(),
            paused: Arc::default(),
            kept_keys: KeptKeys::new(nonce, id),
            counters: Counters::default(),
            outputs: Vec::new(),
            holder: SessionId(nonce),
            node: SessionId(nonce),
            is_after_unclean_end: false,
            stream: Stream::of_shard(nonce, id),
            turn_tasks: 0,
        }
    }

    /// What the numbers of finished rows take in memory.
    pub(super) fn finished_bytes(&self) -> u64 {
        self.consumed.bytes() + self.answered.bytes()
    }

    /// A random number from this shard's own stream.
    pub(super) fn draw(&mut self) -> u64 {
        self.stream.draw()
    }

    /// The secret of an attempt's token.
    pub(super) fn secret_of(&self, task: TaskId, attempt: u32) -> TokenSecret {
        TokenSecret::of(self.token_key, task, attempt)
    }

    /// Adds the secret of its token to an attempt, if it can be completed from outside.
    pub(super) fn with_secret(&self, mut task: ActivityTask) -> ActivityTask {
        if task.completes_later() && task.secret.is_none() {
            task.secret = Some(self.secret_of(task.id(), task.attempt));
        }
        task
    }

    /// The number of the next turn task, unique within the shard.
    pub(super) fn next_turn_task(&mut self) -> u64 {
        self.turn_tasks += 1;
        self.turn_tasks
    }

    pub(super) fn empty_commit(&self, key: InstanceKey) -> Commit {
        Commit::empty(key, self.id)
    }

    pub(super) fn reply(&mut self, request: RequestId, answer: Response) {
        self.outputs.push(Output::reply(request, answer));
    }

    /// Requests a look-up of the instance of a request by its id.
    pub(super) fn look_up(
        &mut self,
        request_id: RequestId,
        id: Arc<str>,
        request: Request,
        after: Option<InboxNumber>,
    ) {
        self.lookups.begin(request_id, request, after);
        self.outputs.push(Output::Find { request: request_id, id });
    }

    /// Cancels the attempts of an instance.
    pub(super) fn stop_attempts(&mut self, key: InstanceKey) {
        for (event, execution) in self.attempts.take(key) {
            self.outputs.push(Output::CancelActivity { key, execution, event, is_awaited: false });
        }
        self.close_if_released();
    }

    /// Cancels one attempt.
    pub(super) fn stop_attempt(&mut self, key: InstanceKey, execution: u64, event: EventId) {
        self.attempts.cancel(key, event);
        self.outputs.push(Output::CancelActivity { key, execution, event, is_awaited: false });
        self.close_if_released();
    }

    /// Closes a releasing shard once it has no attempts of its own.
    pub(super) fn close_if_released(&mut self) {
        if self.standing.is_releasing() && self.attempts.is_empty() {
            self.standing.close();
        }
    }
}
