//! The shard itself: what it does about each input.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem;
use std::sync::Arc;

use crate::execution::Stream;
use crate::history::{EventId, Payload};
use crate::instance::{InstanceKey, ShardId};
use crate::store::{InboxNumber, SessionId};

use super::options::ShardOptions;
use super::output::{ActivityTask, Output};
use super::request::{Asker, Request, RequestId};
use super::slot::{Lone, Phase, Slot};
use super::tenure::Tenure;

/// The instances of one shard, as far as they are not dormant.
pub struct Shard {
    pub(super) id: ShardId,
    pub(super) tenure: Tenure,
    pub(super) options: ShardOptions,
    pub(super) slots: BTreeMap<InstanceKey, Slot>,
    pub(super) by_id: BTreeMap<Arc<str>, InstanceKey>,
    pub(super) wakes: BTreeSet<(u64, InstanceKey)>,
    pub(super) wake_of: BTreeMap<InstanceKey, u64>,
    /// Attempts of activities that run on this node.
    pub(super) attempts: BTreeMap<(InstanceKey, EventId), Attempt>,
    /// Activities that were interrupted often and wait to run alone, or may.
    pub(super) lone: BTreeMap<(InstanceKey, EventId), Lone>,
    /// Blocked instances whose turn is not tried again in this process, unless somebody asks for it.
    pub(super) given_up: BTreeSet<InstanceKey>,
    /// Who waits for the answers of accepted updates.
    pub(super) updates: BTreeMap<(InstanceKey, EventId), Vec<Asker>>,
    /// Request rows that were answered: a page of them may have been read before.
    pub(super) answered: Consumed,
    /// Requests whose id is being looked up.
    pub(super) lookups: BTreeMap<RequestId, (Request, Option<InboxNumber>)>,
    /// Who waits for an instance to end.
    pub(super) waiters: BTreeMap<InstanceKey, Vec<RequestId>>,
    /// Instances with nothing to do, by when they were used last, and what they weigh. A blocked one that is being
    /// tried again may still be in here.
    pub(super) idle: BTreeMap<(u64, InstanceKey), u64>,
    pub(super) idle_bytes: u64,
    /// Keys that ended while ids were being looked up: a look-up may tell of them as they were.
    pub(super) ended_lately: BTreeSet<InstanceKey>,
    /// Numbers of messages that were consumed: a page of the inbox may have been read before.
    pub(super) consumed: Consumed,
    /// Tells one turn task from another.
    pub(super) next_turn: u64,
    /// What tells the messages that this shard keeps from those of every other owner, and from each other.
    pub(super) nonce: u128,
    /// Where seeds and jitter come from.
    stream: Stream,
    pub(super) next_kept: u64,
    /// Activities, by name and tag, of which it was said that this node cannot run them.
    pub(super) unserved: BTreeSet<(String, Option<String>)>,
    /// Whether the node stops: no attempt is begun from a row.
    pub(super) stopping: bool,
    /// Whether it is to come to rest: only what is in memory and nowhere else is still done.
    pub(super) closing: bool,
    /// Whether the shard is given up: attempts that run become rows that are leased to this holder, until then.
    pub(super) releasing: Option<(SessionId, u64)>,
    pub(super) counters: Counters,
    pub(super) outputs: Vec<Output>,
}

/// An attempt that runs on this node.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub(super) execution: u64,
    pub(super) attempt: u32,
    /// When it was handed to a worker.
    pub(super) began_ms: u64,
    /// What it reported last.
    pub(super) details: Option<Payload>,
}

impl Attempt {
    pub(super) fn is_of(&self, task: &ActivityTask) -> bool {
        self.execution == task.execution && self.attempt == task.attempt
    }
}

/// The numbers that were consumed last.
#[derive(Default)]
pub(super) struct Consumed {
    numbers: BTreeSet<InboxNumber>,
    order: VecDeque<InboxNumber>,
}

impl Consumed {
    /// How many numbers are remembered: far more than a page that is being read can hold.
    const REMEMBERED: usize = 20_000;

    pub(super) fn contains(&self, number: InboxNumber) -> bool {
        self.numbers.contains(&number)
    }

    pub(super) fn extend(&mut self, numbers: impl IntoIterator<Item = InboxNumber>) {
        for number in numbers {
            if self.numbers.insert(number) {
                self.order.push_back(number);
            }
            if self.order.len() > Consumed::REMEMBERED
                && let Some(oldest) = self.order.pop_front()
            {
                self.numbers.remove(&oldest);
            }
        }
    }
}

/// What a shard has seen that leaves no other trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Completions and messages that nothing waited for.
    pub stale: u64,
    /// Turns that failed.
    pub failed_turns: u64,
    /// Commits that contradicted what was stored.
    pub conflicts: u64,
    /// Executions that were dropped from memory and will grow back.
    pub evictions: u64,
    /// Executions that grew back from their history.
    pub hydrations: u64,
    /// Messages to other instances that did not exist or had ended.
    pub undelivered: u64,
}

impl Counters {
    /// The sum of both.
    #[must_use]
    pub fn plus(&self, other: &Counters) -> Counters {
        Counters {
            stale: self.stale + other.stale,
            failed_turns: self.failed_turns + other.failed_turns,
            conflicts: self.conflicts + other.conflicts,
            evictions: self.evictions + other.evictions,
            hydrations: self.hydrations + other.hydrations,
            undelivered: self.undelivered + other.undelivered,
        }
    }
}

impl Shard {
    /// A shard that was just taken over: everything is dormant. The nonce is random, and drawn for this owner alone.
    pub fn new(id: ShardId, tenure: Tenure, options: ShardOptions, nonce: u128) -> Shard {
        Shard {
            id,
            tenure,
            options,
            slots: BTreeMap::new(),
            by_id: BTreeMap::new(),
            wakes: BTreeSet::new(),
            wake_of: BTreeMap::new(),
            attempts: BTreeMap::new(),
            lone: BTreeMap::new(),
            given_up: BTreeSet::new(),
            updates: BTreeMap::new(),
            answered: Consumed::default(),
            lookups: BTreeMap::new(),
            waiters: BTreeMap::new(),
            idle: BTreeMap::new(),
            idle_bytes: 0,
            ended_lately: BTreeSet::new(),
            consumed: Consumed::default(),
            next_turn: 0,
            nonce,
            stream: Stream::of_shard(nonce, id),
            next_kept: 0,
            unserved: BTreeSet::new(),
            stopping: false,
            closing: false,
            releasing: None,
            counters: Counters::default(),
            outputs: Vec::new(),
        }
    }

    /// A random number of this shard's own.
    pub(super) fn draw(&mut self) -> u64 {
        self.stream.draw()
    }

    /// What is to be done now. To be taken after every input.
    pub fn take_outputs(&mut self) -> Vec<Output> {
        mem::take(&mut self.outputs)
    }

    /// The node stops: what is under way ends, and nothing is begun for its own sake.
    pub fn handle_stopping(&mut self) {
        self.stopping = true;
    }

    /// The node is about to give the shard up: what the store knows is left to the next owner. What is under way ends,
    /// and what is in memory alone is written, so that the shard comes to rest.
    pub fn handle_closing(&mut self) {
        self.stopping = true;
        self.closing = true;
    }

    /// When [`Shard::handle_time`] is wanted next.
    pub fn next_wake_ms(&self) -> Option<u64> {
        self.wakes.first().map(|(at_ms, _)| *at_ms)
    }

    /// What leaves no other trace.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// How many instances are in memory.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Whether the shard can be given up: nothing is under way, nothing is in memory alone, no attempt is its own, and
    /// nobody is about to be answered.
    pub fn is_drained(&self) -> bool {
        self.closing
            && self.is_quiet()
            && self.attempts.is_empty()
            && self.lookups.is_empty()
            && self.slots.values().all(|slot| slot.behind.is_empty())
    }

    /// The numbers of the messages that are in memory.
    pub fn known_inbox(&self) -> impl Iterator<Item = InboxNumber> + '_ {
        self.slots.values().flat_map(Slot::inbox_numbers)
    }

    /// A caller no longer waits for an answer.
    pub fn handle_caller_gone(&mut self, request: RequestId) {
        self.waiters.retain(|_, waiters| {
            waiters.retain(|waiter| *waiter != request);
            !waiters.is_empty()
        });
    }

    /// Whether nothing is under way: no turn, no load, no commit.
    pub fn is_quiet(&self) -> bool {
        self.slots.values().all(|slot| matches!(slot.phase, Phase::Idle(_) | Phase::Blocked | Phase::Delayed))
    }
}
