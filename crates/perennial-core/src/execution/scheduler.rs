//! The units of an execution and the order in which they run.
//!
//! One unit runs at a time. A round takes the units that were woken before it, in the order of their ids, one step
//! each; units woken during a round run in the next one. Wakers are ordinary wakers, but a wake counts only during a
//! turn of this execution.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Wake, Waker};

use crate::history::{EventId, Job, PayloadSource, Segment, UnitId};

use super::random::Stream;
use super::shared_flags::SharedFlags;
use super::slab::Slab;
use super::turn_local;

/// The future of a unit. It hands over its output itself.
pub(crate) type UnitFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The units that one handle waits for.
pub(crate) type GroupId = usize;

/// The unit and waker that polled something that is still pending.
pub(crate) struct Waiter {
    pub(crate) unit: UnitId,
    pub(crate) waker: Waker,
    /// Whether it waits for an operation with the waker of the unit itself, not with one made by a combinator.
    is_direct: bool,
}

impl Waiter {
    pub(crate) fn new(unit: UnitId, waker: Waker) -> Waiter {
        Waiter { unit, waker, is_direct: false }
    }
}

#[derive(Default)]
pub(crate) struct Scheduler {
    /// Boxed: most executions have one unit, and a map node has room for eleven.
    units: BTreeMap<UnitId, Box<Unit>>,
    woken: Vec<UnitId>,
    groups: Slab<Group>,
    /// The units that a cancel request does not end, including everything that they start.
    uncancellable: BTreeSet<UnitId>,
    next_handler: u32,
    /// The number of durable futures, handles and conditions that were polled and are pending.
    parked: usize,
}

struct Unit {
    /// `None` while the unit runs.
    future: Option<UnitFuture>,
    waker: Waker,
    next_branch: u32,
    stream: Option<Stream>,
    group: Option<GroupId>,
    /// The number of pending durable futures, handles and conditions that it polled last.
    interest: usize,
    /// How many of these are operations that it polled with its own waker.
    parked_operations: usize,
    /// The event or update that a handler was dispatched for.
    source: Option<(EventId, PayloadSource)>,
    /// The same, until the handler starts.
    unread: Option<(EventId, Job)>,
}

struct Group {
    remaining: usize,
    waiter: Option<Waiter>,
}

/// Wakes one unit, provided that the wake happens during a turn of the execution.
struct UnitWaker {
    unit: UnitId,
    flags: Arc<SharedFlags>,
}

impl Wake for UnitWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let counted = turn_local::with(&self.flags, |state| state.wake(&self.unit)).unwrap_or(false);
        if !counted {
            self.flags.note_foreign_wake();
        }
    }
}

impl Scheduler {
    /// Adds a unit, runnable in the next round.
    pub(crate) fn add(
        &mut self,
        id: UnitId,
        future: UnitFuture,
        group: Option<GroupId>,
        flags: &Arc<SharedFlags>,
    ) {
        let waker = Waker::from(Arc::new(UnitWaker { unit: id.clone(), flags: Arc::clone(flags) }));
        let unit = Unit {
            future: Some(future),
            waker,
            next_branch: 0,
            stream: None,
            group,
            interest: 0,
            parked_operations: 0,
            source: None,
            unread: None,
        };
        self.woken.push(id.clone());
        self.units.insert(id, Box::new(unit));
    }

    /// Exempts a unit from cancel requests.
    pub(crate) fn make_uncancellable(&mut self, id: &UnitId) {
        self.uncancellable.insert(id.clone());
    }

    pub(crate) fn any_uncancellable(&self) -> bool {
        !self.uncancellable.is_empty()
    }

    /// Removes everything that a cancel request ends, to be dropped.
    #[must_use]
    pub(crate) fn take_cancellable(&mut self) -> Vec<UnitFuture> {
        let Scheduler { units, uncancellable, .. } = self;
        let is_kept = |id: &UnitId| {
            uncancellable.contains(id) || id.ancestors().any(|ancestor| uncancellable.contains(&ancestor))
        };
        units.extract_if(.., |id, _| !is_kept(id)).filter_map(|(_, unit)| unit.future).collect()
    }

    /// The id for a handler dispatch.
    pub(crate) fn next_handler_id(&mut self) -> UnitId {
        let id = UnitId::ROOT.child(Segment::Handler(self.next_handler));
        self.next_handler += 1;
        id
    }

    /// Ids for `count` branches of `parent`; `None` if it has dropped its own handle.
    pub(crate) fn next_branch_ids(&mut self, parent: &UnitId, count: usize) -> Option<Vec<UnitId>> {
        let unit = self.units.get_mut(parent)?;
        let first = unit.next_branch;
        unit.next_branch += count as u32;
        Some((first..unit.next_branch).map(|number| parent.child(Segment::Parallel(number))).collect())
    }

    pub(crate) fn add_group(&mut self, size: usize) -> GroupId {
        self.groups.insert(Group { remaining: size, waiter: None })
    }

    pub(crate) fn group_is_done(&self, group: GroupId) -> bool {
        self.groups[group].remaining == 0
    }

    pub(crate) fn await_group(&mut self, group: GroupId, waiter: Option<Waiter>) -> Option<Waiter> {
        let mut slot = self.groups[group].waiter.take();
        let old = self.park(&mut slot, waiter);
        self.groups[group].waiter = slot;
        old
    }

    /// Removes a handle. Its units are detached if `detach`, otherwise they are returned to be dropped.
    #[must_use]
    pub(crate) fn release_group(
        &mut self,
        group: GroupId,
        units: &[UnitId],
        detach: bool,
    ) -> (Vec<UnitFuture>, Option<Waiter>) {
        let waiter = self.groups.remove(group).waiter;
        self.lose_interest(waiter.as_ref());
        let mut dropped = Vec::new();
        for id in units {
            if detach {
                if let Some(unit) = self.units.get_mut(id) {
                    unit.group = None;
                }
            } else if let Some(unit) = self.units.remove(id) {
                self.uncancellable.remove(id);
                dropped.extend(unit.future);
            }
        }
        (dropped, waiter)
    }

    pub(crate) fn wake(&mut self, unit: &UnitId) {
        self.woken.push(unit.clone());
    }

    /// The units of the next round, in order; empty when the turn is quiet.
    pub(crate) fn take_round(&mut self) -> Vec<UnitId> {
        let mut round = mem::take(&mut self.woken);
        if round.len() > 1 {
            round.sort_unstable();
            round.dedup();
        }
        round
    }

    /// Returns the buffer of a finished round, so that its memory is reused.
    pub(crate) fn recycle(&mut self, mut round: Vec<UnitId>) {
        if self.woken.is_empty() && self.woken.capacity() < round.capacity() {
            round.clear();
            self.woken = round;
        }
    }

    /// Takes a unit's future for a step, or `None` if the unit is gone.
    pub(crate) fn begin_step(&mut self, id: &UnitId) -> Option<(UnitFuture, Waker)> {
        let unit = self.units.get_mut(id)?;
        unit.unread = None;
        Some((unit.future.take()?, unit.waker.clone()))
    }

    /// Puts the future of a pending unit back. Returns it if the unit was dropped meanwhile.
    pub(crate) fn put_back(&mut self, id: &UnitId, future: UnitFuture) -> Option<UnitFuture> {
        match self.units.get_mut(id) {
            Some(unit) => {
                unit.future = Some(future);
                None
            }
            None => Some(future),
        }
    }

    /// Removes a finished unit. Returns the waiter of its group, if it was the last unit of the group.
    pub(crate) fn finish(&mut self, id: &UnitId) -> Option<Waiter> {
        self.uncancellable.remove(id);
        let group = self.units.remove(id)?.group?;
        let group = &mut self.groups[group];
        group.remaining -= 1;
        let waiter = if group.remaining == 0 { group.waiter.take() } else { None };
        self.lose_interest(waiter.as_ref());
        waiter
    }

    /// Whether a handler is running, other than the one that `asking` belongs to.
    pub(crate) fn handlers_busy(&self, asking: &UnitId) -> bool {
        let first_handler = UnitId::ROOT.child(Segment::Handler(0));
        self.units.range(first_handler..).any(|(id, _)| id.is_handler() && !id.is_ancestor_or_self_of(asking))
    }

    pub(crate) fn stream(&mut self, unit: &UnitId, seed: u64) -> Option<&mut Stream> {
        let unit_state = self.units.get_mut(unit)?;
        Some(unit_state.stream.get_or_insert_with(|| Stream::of_unit(seed, unit)))
    }

    /// Remembers the event or update that a dispatched handler has not started to handle.
    pub(crate) fn mark_unread(&mut self, id: &UnitId, event: EventId, job: Job) {
        if let Some(unit) = self.units.get_mut(id) {
            let is_event = matches!(job, Job::ExternalEvent { .. });
            let source = if is_event { PayloadSource::RecordedEvent } else { PayloadSource::Other };
            unit.source = Some((event, source));
            unit.unread = Some((event, job));
        }
    }

    /// The event or update that a unit handles.
    pub(crate) fn source(&self, unit: &UnitId) -> Option<(EventId, PayloadSource)> {
        self.units.get(unit).and_then(|unit| unit.source.clone())
    }

    /// Whether a handler has not started with its event or update.
    pub(crate) fn has_unread(&self) -> bool {
        self.units.values().any(|unit| unit.unread.is_some())
    }

    /// The events and updates of handlers that have not started.
    pub(crate) fn unread(&self) -> impl Iterator<Item = (EventId, Job)> + '_ {
        self.units.values().filter_map(|unit| unit.unread.clone())
    }

    /// Replaces the waiter of something pending and updates the counters. Returns the old one, to be dropped where user
    /// code may run.
    #[must_use]
    pub(crate) fn park(&mut self, slot: &mut Option<Waiter>, waiter: Option<Waiter>) -> Option<Waiter> {
        if let Some(waiter) = &waiter
            && let Some(unit) = self.units.get_mut(&waiter.unit)
        {
            unit.interest += 1;
            unit.parked_operations += usize::from(waiter.is_direct);
        }
        self.parked += usize::from(waiter.is_some());
        let old = mem::replace(slot, waiter);
        self.lose_interest(old.as_ref());
        old
    }

    /// Updates the counters after a waiter was removed.
    pub(crate) fn lose_interest(&mut self, waiter: Option<&Waiter>) {
        let Some(waiter) = waiter else { return };
        self.parked -= 1;
        if let Some(unit) = self.units.get_mut(&waiter.unit) {
            unit.interest -= 1;
            unit.parked_operations -= usize::from(waiter.is_direct);
        }
    }

    /// Creates the waiter for an operation.
    pub(crate) fn operation_waiter(&self, unit: &UnitId, waker: Waker) -> Waiter {
        let is_direct = self.units.get(unit).is_some_and(|unit| unit.waker.will_wake(&waker));
        Waiter { unit: unit.clone(), waker, is_direct }
    }

    /// How many operations a unit polled with its own waker and still waits for; `None` if `waker` is not its own.
    pub(crate) fn parked_operations(&self, unit: &UnitId, waker: &Waker) -> Option<usize> {
        let unit = self.units.get(unit)?;
        unit.waker.will_wake(waker).then_some(unit.parked_operations)
    }

    /// Whether any unit waits for something that can complete.
    pub(crate) fn anyone_waits(&self) -> bool {
        self.parked > 0
    }

    /// The units that wait for nothing known to the execution.
    pub(crate) fn stalled(&self) -> Vec<UnitId> {
        self.units.iter().filter(|(_, unit)| unit.interest == 0).map(|(id, _)| id.clone()).collect()
    }

    /// Removes everything that could still run, to be dropped.
    #[must_use]
    pub(crate) fn take_all(&mut self) -> Vec<UnitFuture> {
        self.woken.clear();
        self.uncancellable.clear();
        mem::take(&mut self.units).into_values().filter_map(|unit| unit.future).collect()
    }
}
