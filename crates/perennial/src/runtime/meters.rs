//! The Meters of a runtime: handles of all its metrics, and what is measured for them.
//!
//! They exist only if a recorder was installed before the runtime started. Handles are made once, so that nothing
//! allocates a key while work is done: counters at the start, so that they begin at 0, and the histograms of an outcome when
//! it first occurs. What a lane states as [`Fact`]s is recorded outside of its lock. Counters that a lane keeps anyway are
//! read when gauges are refreshed, and only their growth is added.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use metrics::{Counter, Gauge, Histogram};
use perennial_core::ErrorCode;
use perennial_core::lane::{Lane, StoreCall};
use perennial_core::shard::{Counters, Fact, Label, Observed, ObservedNames, TurnEnd};
use perennial_core::store::Status;

use super::driver::lock;
use super::registry::Registry;
use crate::metrics::{self as catalogue, ENGINE, MAX_NAMES, Metric, OTHER, Registrar};

/// How often gauges are set while nobody asks for them.
pub(super) const REFRESH_PAUSE: Duration = Duration::from_secs(5);

/// What became of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttemptEnd {
    Completed,
    Failed,
    Timeout,
    Cancelled,
    Panicked,
    Interrupted,
}

const ATTEMPT_ENDS: [&str; 6] = ["completed", "failed", "timeout", "cancelled", "panicked", "interrupted"];
const TURN_ENDS: [&str; 3] = ["committed", "failed", "refused"];
const EVENT_OUTCOMES: [&str; 3] = ["applied", "duplicate", "refused"];

thread_local! {
    /// A buffer for the facts of a lane, empty between inputs.
    static FACTS: RefCell<Vec<Fact>> = const { RefCell::new(Vec::new()) };
}

/// A value for each name that is told apart, and one for all others.
struct ByName<T>(Vec<T>);

impl<T> ByName<T> {
    fn new(names: &ObservedNames, make: impl FnMut(&str) -> T) -> ByName<T> {
        ByName(names.labels().iter().map(String::as_str).chain([OTHER]).map(make).collect())
    }

    fn of(&self, label: Label) -> &T {
        &self.0[label.index().unwrap_or(self.0.len() - 1)]
    }
}

/// A counter, and the histogram of the same occurrences.
struct Timed {
    counter: Counter,
    histogram: LateHistogram,
}

/// A histogram that is registered when it is first used.
struct LateHistogram {
    metric: &'static Metric,
    labels: Box<[Box<str>]>,
    handle: OnceLock<Histogram>,
}

impl LateHistogram {
    fn new(metric: &'static Metric, labels: &[&str]) -> LateHistogram {
        let labels = labels.iter().map(|label| Box::from(*label)).collect();
        LateHistogram { metric, labels, handle: OnceLock::new() }
    }

    fn record(&self, took: Duration) {
        let register = || {
            let labels: Vec<&str> = self.labels.iter().map(|label| &**label).collect();
            Registrar::with(|registrar| registrar.histogram(self.metric, &labels))
                .unwrap_or(Histogram::noop())
        };
        self.handle.get_or_init(register).record(took.as_secs_f64());
    }
}

impl Timed {
    /// One for each outcome of a name.
    fn each<const N: usize>(
        registrar: &Registrar<'_>,
        (counter, histogram): (&'static Metric, &'static Metric),
        name: &str,
        outcomes: [&'static str; N],
    ) -> [Timed; N] {
        outcomes.map(|outcome| Timed {
            counter: registrar.counter(counter, &[name, outcome]),
            histogram: LateHistogram::new(histogram, &[name, outcome]),
        })
    }

    fn note(&self, took: Option<Duration>) {
        self.counter.increment(1);
        if let Some(took) = took {
            self.histogram.record(took);
        }
    }
}

struct OfActivity {
    ends: [Timed; 6],
    queue: LateHistogram,
    running: Gauge,
    retries: Counter,
}

pub(super) struct Meters {
    observed: Arc<Observed>,
    started: ByName<Counter>,
    ended: ByName<[Timed; 4]>,
    turns: ByName<[Timed; 3]>,
    activities: ByName<OfActivity>,
    commit_duration: Histogram,
    commit_turns: Histogram,
    timer_lateness: Histogram,
    hydration: Histogram,
    blocked: ByCode,
    unblocked: ByCode,
    counted: Counted,
    gauges: Gauges,
}

/// A counter for each code that has occurred.
struct ByCode {
    metric: &'static Metric,
    counters: Vec<OnceLock<Counter>>,
}

impl ByCode {
    fn new(metric: &'static Metric) -> ByCode {
        ByCode { metric, counters: ErrorCode::ALL.iter().map(|_| OnceLock::new()).collect() }
    }

    fn note(&self, code: ErrorCode) {
        let Some(place) = ErrorCode::ALL.iter().position(|other| *other == code) else { return };
        let register = || {
            Registrar::with(|registrar| registrar.counter(self.metric, &[code.as_str()]))
                .unwrap_or(Counter::noop())
        };
        self.counters[place].get_or_init(register).increment(1);
    }
}

/// Counters that the lanes keep, and their values when they were last read.
struct Counted {
    stale: Counter,
    undelivered: Counter,
    hydrations: Counter,
    evictions: Counter,
    events: [Counter; 3],
    last: Mutex<Counters>,
}

struct Gauges {
    commit_queue: Gauge,
    slots_used: Gauge,
    slots_free: Gauge,
    resident: Gauge,
    resident_bytes: Gauge,
    lease_remaining: Gauge,
    shards_owned: Gauge,
    clock_offset: Gauge,
    lost_threads: Gauge,
}

/// The present values of the gauges and of the lanes' counters.
#[derive(Debug, Default)]
pub(super) struct Present {
    pub(super) counters: Counters,
    pub(super) queued_commits: usize,
    pub(super) slots_used: usize,
    pub(super) slots_free: usize,
    pub(super) resident: usize,
    pub(super) resident_bytes: u64,
    pub(super) lease_remaining: Duration,
    pub(super) shards_owned: usize,
    pub(super) clock_offset_ms: i64,
    pub(super) lost_threads: usize,
}

/// A batch that was sent to the store.
pub(super) struct SentCommit {
    at: Instant,
    turns: usize,
}

impl Meters {
    /// The meters of a runtime with these registrations, if there is a recorder.
    pub(super) fn new(registry: &Registry) -> Option<Arc<Meters>> {
        Registrar::with(|registrar| {
            registrar.describe(ENGINE);
            Arc::new(Meters::register(registrar, Arc::new(registry.observed(MAX_NAMES))))
        })
    }

    fn register(registrar: &Registrar<'_>, observed: Arc<Observed>) -> Meters {
        let (orchestrations, activities) = (&observed.orchestrations, &observed.activities);
        let ends =
            [Status::Completed, Status::Failed, Status::Cancelled, Status::Terminated].map(Status::name);
        let counter = |metric| registrar.counter(metric, &[]);
        let gauge = |metric| registrar.gauge(metric, &[]);
        Meters {
            started: ByName::new(orchestrations, |name| registrar.counter(&catalogue::STARTED, &[name])),
            ended: ByName::new(orchestrations, |name| {
                Timed::each(registrar, (&catalogue::ENDED, &catalogue::INSTANCE_DURATION), name, ends)
            }),
            turns: ByName::new(orchestrations, |name| {
                Timed::each(registrar, (&catalogue::TURNS, &catalogue::TURN_DURATION), name, TURN_ENDS)
            }),
            activities: ByName::new(activities, |name| OfActivity {
                ends: Timed::each(
                    registrar,
                    (&catalogue::ATTEMPTS, &catalogue::ACTIVITY_DURATION),
                    name,
                    ATTEMPT_ENDS,
                ),
                queue: LateHistogram::new(&catalogue::ACTIVITY_QUEUE, &[name]),
                running: registrar.gauge(&catalogue::RUNNING, &[name]),
                retries: registrar.counter(&catalogue::RETRIES, &[name]),
            }),
            commit_duration: registrar.histogram(&catalogue::COMMIT_DURATION, &[]),
            commit_turns: registrar.histogram(&catalogue::COMMIT_TURNS, &[]),
            timer_lateness: registrar.histogram(&catalogue::TIMER_LATENESS, &[]),
            hydration: registrar.histogram(&catalogue::HYDRATION_DURATION, &[]),
            blocked: ByCode::new(&catalogue::BLOCKED),
            unblocked: ByCode::new(&catalogue::UNBLOCKED),
            counted: Counted {
                stale: counter(&catalogue::STALE),
                undelivered: counter(&catalogue::UNDELIVERED),
                hydrations: counter(&catalogue::HYDRATIONS),
                evictions: counter(&catalogue::EVICTIONS),
                events: EVENT_OUTCOMES.map(|outcome| registrar.counter(&catalogue::EVENTS, &[outcome])),
                last: Mutex::default(),
            },
            gauges: Gauges {
                commit_queue: gauge(&catalogue::COMMIT_QUEUE),
                slots_used: registrar.gauge(&catalogue::SLOTS, &["used"]),
                slots_free: registrar.gauge(&catalogue::SLOTS, &["free"]),
                resident: gauge(&catalogue::RESIDENT),
                resident_bytes: gauge(&catalogue::RESIDENT_BYTES),
                lease_remaining: gauge(&catalogue::LEASE_REMAINING),
                shards_owned: gauge(&catalogue::SHARDS_OWNED),
                clock_offset: gauge(&catalogue::CLOCK_OFFSET),
                lost_threads: gauge(&catalogue::LOST_THREADS),
            },
            observed,
        }
    }

    /// The names that lanes tell apart in their facts.
    pub(super) fn observed(&self) -> Arc<Observed> {
        Arc::clone(&self.observed)
    }

    /// Takes the facts of a lane into this thread's buffer. Called under the lane's lock.
    pub(super) fn take_facts(lane: &mut Lane) {
        FACTS.with_borrow_mut(|facts| lane.swap_facts(facts));
    }

    /// Records the facts in this thread's buffer.
    pub(super) fn record_facts(&self) {
        FACTS.with_borrow_mut(|facts| facts.drain(..).for_each(|fact| self.record(fact)));
    }

    fn record(&self, fact: Fact) {
        match fact {
            Fact::InstanceStarted { orchestration } => self.started.of(orchestration).increment(1),
            Fact::InstanceEnded { orchestration, status, took_ms } => {
                let place = match status {
                    Status::Completed => 0,
                    Status::Failed => 1,
                    Status::Cancelled => 2,
                    Status::Terminated | Status::Pending | Status::Running => 3,
                };
                self.ended.of(orchestration)[place].note(Some(Duration::from_millis(took_ms)));
            }
            Fact::Turn { orchestration, end, took } => {
                let place = match end {
                    TurnEnd::Committed => 0,
                    TurnEnd::Failed => 1,
                    TurnEnd::Refused => 2,
                };
                self.turns.of(orchestration)[place].note(took);
            }
            Fact::Retry { activity } => self.activities.of(activity).retries.increment(1),
            Fact::TimerFired { late_ms } => {
                self.timer_lateness.record(Duration::from_millis(late_ms).as_secs_f64());
            }
            Fact::Blocked(code) => self.blocked.note(code),
            Fact::Unblocked(code) => self.unblocked.note(code),
            Fact::Hydrated { took } => self.hydration.record(took.as_secs_f64()),
        }
    }

    /// Notes that a call is made, if it is a batch of commits.
    pub(super) fn commit_sent(call: &StoreCall) -> Option<SentCommit> {
        match call {
            StoreCall::Commit { batch, .. } => Some(SentCommit { at: Instant::now(), turns: batch.len() }),
            _ => None,
        }
    }

    /// Notes that a batch was answered.
    pub(super) fn commit_answered(&self, sent: &SentCommit) {
        self.commit_duration.record(sent.at.elapsed().as_secs_f64());
        self.commit_turns.record(sent.turns as f64);
    }

    /// Notes that the code of an attempt begins, after it waited this long.
    pub(super) fn attempt_begins(self: &Arc<Meters>, activity: &str, waited: Duration) -> RunningAttempt {
        let label = self.observed.activities.label(activity);
        let of_activity = self.activities.of(label);
        of_activity.queue.record(waited);
        of_activity.running.increment(1.0);
        RunningAttempt { meters: Arc::clone(self), label, began: Instant::now() }
    }

    /// Notes that an attempt ended before its code began.
    pub(super) fn attempt_missed(&self, activity: &str, end: AttemptEnd) {
        let label = self.observed.activities.label(activity);
        self.activities.of(label).ends[end as usize].note(None);
    }

    /// Sets the gauges, and adds what the counters have grown by.
    pub(super) fn refresh(&self, present: &Present) {
        let gauges = &self.gauges;
        gauges.commit_queue.set(present.queued_commits as f64);
        gauges.slots_used.set(present.slots_used as f64);
        gauges.slots_free.set(present.slots_free as f64);
        gauges.resident.set(present.resident as f64);
        gauges.resident_bytes.set(present.resident_bytes as f64);
        gauges.lease_remaining.set(present.lease_remaining.as_secs_f64());
        gauges.shards_owned.set(present.shards_owned as f64);
        gauges.clock_offset.set(present.clock_offset_ms as f64 / 1_000.0);
        gauges.lost_threads.set(present.lost_threads as f64);
        let (counted, now) = (&self.counted, present.counters);
        let mut last = lock(&counted.last);
        // Two refreshes at the same time may get here in the other order.
        let grown = |now: u64, last: &mut u64| {
            let by = now.saturating_sub(*last);
            *last += by;
            by
        };
        counted.stale.increment(grown(now.stale, &mut last.stale));
        counted.undelivered.increment(grown(now.undelivered, &mut last.undelivered));
        counted.hydrations.increment(grown(now.hydrations, &mut last.hydrations));
        counted.evictions.increment(grown(now.evictions, &mut last.evictions));
        let [applied, duplicate, refused] = &counted.events;
        applied.increment(grown(now.events_applied, &mut last.events_applied));
        duplicate.increment(grown(now.events_duplicate, &mut last.events_duplicate));
        refused.increment(grown(now.events_refused, &mut last.events_refused));
    }
}

/// An attempt whose code runs. If it is dropped, the code was stopped because the process ends.
pub(super) struct RunningAttempt {
    meters: Arc<Meters>,
    label: Label,
    began: Instant,
}

impl RunningAttempt {
    pub(super) fn end(self, end: AttemptEnd) {
        let took = self.began.elapsed();
        self.meters.activities.of(self.label).ends[end as usize].note(Some(took));
    }
}

impl Drop for RunningAttempt {
    fn drop(&mut self) {
        self.meters.activities.of(self.label).running.decrement(1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o1_without_a_recorder_there_are_no_meters_and_lanes_collect_nothing() {
        let registry = Registry::default();
        assert!(Meters::new(&registry).is_none());
        // A recorder is seen on the thread that starts the runtime.
        let recorder = Recorded(1);
        let meters = metrics::with_local_recorder(&recorder, || Meters::new(&registry));
        assert!(meters.is_some());
        assert!(Meters::new(&registry).is_none());
    }

    /// A recorder with a size.
    struct Recorded(#[allow(dead_code, reason = "it gives the recorder a size")] u8);

    impl metrics::Recorder for Recorded {
        fn describe_counter(&self, _: metrics::KeyName, _: Option<metrics::Unit>, _: metrics::SharedString) {}

        fn describe_gauge(&self, _: metrics::KeyName, _: Option<metrics::Unit>, _: metrics::SharedString) {}

        fn describe_histogram(
            &self,
            _: metrics::KeyName,
            _: Option<metrics::Unit>,
            _: metrics::SharedString,
        ) {
        }

        fn register_counter(&self, _: &metrics::Key, _: &metrics::Metadata<'_>) -> Counter {
            Counter::noop()
        }

        fn register_gauge(&self, _: &metrics::Key, _: &metrics::Metadata<'_>) -> Gauge {
            Gauge::noop()
        }

        fn register_histogram(&self, _: &metrics::Key, _: &metrics::Metadata<'_>) -> Histogram {
            Histogram::noop()
        }
    }
}
