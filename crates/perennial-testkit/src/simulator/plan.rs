//! The choices of a seed that are fixed for a run.

use std::time::Duration;

use perennial_core::ExecutionOptions;
use perennial_core::shard::ShardOptions;
use perennial_core::store::Served;

use super::classes::ClassPlan;
use super::clocks::{MAX_DRIFT_PPM, MAX_SET_BACK_MS, MAX_STALL_MS};
use crate::Rng;
use crate::program::TAG;

pub(super) struct Plan {
    /// The processes, by their number of lanes. One without lanes owns no shards.
    pub(super) roles: Vec<usize>,
    /// The first start of each process.
    pub(super) joins_ms: Vec<u64>,
    /// The error of each process's monotonic clock, in parts per million.
    pub(super) drift_ppm: Vec<i64>,
    pub(super) instances: usize,
    /// The sizes of their programs, with weights.
    pub(super) sizes: &'static [(u64, usize)],
    /// The duration of the faults.
    pub(super) faults_ms: u64,
    pub(super) faults: Faults,
    pub(super) max_batch: usize,
    pub(super) lease_ms: u64,
    pub(super) task_lease_ms: u64,
    pub(super) releases_per_renewal: usize,
    pub(super) page_rows: usize,
    pub(super) max_loads: usize,
    pub(super) poll_pauses: (Duration, Duration),
    pub(super) keep_executions: Option<u64>,
    /// The number of concurrent activities of a process.
    pub(super) slots: usize,
    pub(super) shard: ShardOptions,
    /// The longest ordinary delay of a call, each way.
    pub(super) call_ms: u64,
    /// The longest ordinary duration of an attempt.
    pub(super) longest_activity_ms: u64,
    /// Whether activities take long and ignore their cancellation.
    pub(super) is_stubborn: bool,
    /// The activities that each process serves. The first process serves all.
    pub(super) served: Vec<Served>,
    /// The instance with an activity that crashes its process.
    pub(super) deadly: Option<usize>,
    /// The instance whose activities last longer than all faults, while processes are killed repeatedly.
    pub(super) lasting: Option<usize>,
    /// Whether the process that runs such an activity is killed a while after its start.
    pub(super) has_aim: bool,
    /// The longest pause of the pruner, if there is one.
    pub(super) prune_ms: u64,
    /// The deployments of the run.
    pub(super) adds_version: bool,
    pub(super) removes_version: bool,
    /// Whether all processes restart when the faults end. Otherwise they continue.
    pub(super) heals_by_restart: bool,
    /// The choices besides the faults, by class.
    pub(super) classes: ClassPlan,
}

/// The probabilities of faults, in percent.
pub(super) struct Faults {
    pub(super) unavailable: u64,
    pub(super) batch_refused: u64,
    pub(super) unknown: u64,
    pub(super) slow: u64,
    pub(super) duplicate: u64,
    pub(super) turn_lost: u64,
    pub(super) hint_lost: u64,
    pub(super) answer_twice: u64,
    /// The probability that a process executes an output late.
    pub(super) late_output: u64,
    /// The numbers of these faults in a run.
    pub(super) crashes: u64,
    pub(super) pauses: u64,
    pub(super) stops: u64,
    /// The number of times that shards are taken away from their owner.
    pub(super) seizures: u64,
    pub(super) clock_leaps: u64,
    pub(super) clock_set_backs: u64,
    pub(super) clock_stalls: u64,
}

impl Plan {
    pub(super) fn new(rng: &mut Rng) -> Plan {
        let has_clock_faults = rng.percent(20);
        let is_storm = rng.percent(15);
        let seizures = if rng.percent(20) { rng.between(1, 6) } else { 0 };
        let of_clock = |rng: &mut Rng| if has_clock_faults { rng.between(0, 2) } else { 0 };
        let faults = Faults {
            unavailable: *rng.pick(&[0, 2, 15]),
            batch_refused: *rng.pick(&[0, 0, 3]),
            unknown: if seizures > 0 { 12 } else { *rng.pick(&[0, 3, 12]) },
            // Shards that change owners during a commit with an unknown outcome, and answers that arrive in a
            // later tenure, need unknown outcomes and slow calls.
            slow: if seizures > 0 { 15 } else { *rng.pick(&[0, 2, 10]) },
            duplicate: *rng.pick(&[0, 20]),
            turn_lost: *rng.pick(&[0, 0, 0, 1]),
            hint_lost: *rng.pick(&[0, 20, 60, 100]),
            answer_twice: *rng.pick(&[0, 5, 30]),
            late_output: *rng.pick(&[0, 0, 10]),
            crashes: if is_storm { rng.between(8, 16) } else { rng.between(0, 4) },
            pauses: rng.between(0, 4),
            stops: rng.between(0, 3),
            seizures,
            clock_leaps: of_clock(rng),
            clock_set_backs: of_clock(rng),
            clock_stalls: of_clock(rng),
        };
        let (faults_ms, lease_ms) = (*rng.pick(&[5_000, 15_000, 30_000]), *rng.pick(&[1_000, 3_000]));
        let classes = ClassPlan::new(&mut rng.fork(), faults_ms, lease_ms);
        let faults_ms = faults_ms + classes.outages_ms();
        let shard = ShardOptions {
            execution: ExecutionOptions { shadow_replay: false, ..ExecutionOptions::default() },
            max_resident: *rng.pick(&[0, 1, 2, 1_000]),
            idle: Duration::from_millis(*rng.pick(&[0, 100, 3_000, 300_000])),
            lookahead: Duration::from_millis(*rng.pick(&[2_000, 60_000])),
            cancel_grace: Duration::from_millis(*rng.pick(&[100, 30_000])),
            retry_first: Duration::from_millis(200),
            retry_max: Duration::from_millis(5_000),
            healthy: Duration::from_millis(*rng.pick(&[400, 3_000, 60_000])),
            max_unread: classes.max_unread,
            ..ShardOptions::default()
        };
        let is_stubborn = rng.percent(if faults.seizures > 0 { 60 } else { 15 });
        let roles = roles(rng);
        let processes = roles.len();
        let joins = |rng: &mut Rng| if rng.percent(60) { 0 } else { rng.between(0, faults_ms) };
        let drifts = rng.percent(30);
        let drift = |rng: &mut Rng| {
            let ppm = i64::try_from(rng.below(2 * MAX_DRIFT_PPM as usize + 1)).unwrap_or(0) - MAX_DRIFT_PPM;
            if drifts { ppm } else { 0 }
        };
        Plan {
            joins_ms: (0..processes).map(|process| if process == 0 { 0 } else { joins(rng) }).collect(),
            drift_ppm: (0..processes).map(|_| drift(rng)).collect(),
            served: served(rng, processes),
            deadly: rng.percent(25).then_some(0),
            lasting: is_storm.then_some(1),
            has_aim: false,
            prune_ms: *rng.pick(&[0, 600, 3_000]),
            adds_version: rng.percent(40) || classes.refuses_inputs_ms.is_some(),
            removes_version: rng.percent(25),
            roles,
            instances: *rng.pick(&[2, 4, 7]),
            sizes: &[(2, 4), (3, 10), (1, 25)],
            faults_ms,
            faults,
            max_batch: *rng.pick(&[1, 3, 1_000]),
            lease_ms,
            // A node's session has expired by the time that the leases of its tasks do.
            task_lease_ms: *rng.pick(&[2 * lease_ms, 3 * lease_ms]),
            releases_per_renewal: *rng.pick(&[8, 32, 256]),
            page_rows: *rng.pick(&[1, 3, 1_000]),
            max_loads: *rng.pick(&[1, 256]),
            poll_pauses: *rng.pick(&[
                (Duration::from_millis(20), Duration::from_secs(1)),
                (Duration::from_millis(100), Duration::from_secs(5)),
            ]),
            keep_executions: rng.percent(10).then_some(2),
            slots: *rng.pick(&[1, 4, 100]),
            shard,
            call_ms: *rng.pick(&[2, 20, 150]),
            is_stubborn,
            longest_activity_ms: 15_000,
            heals_by_restart: rng.percent(30),
            classes,
        }
    }
}

impl Plan {
    /// Turns the plan into a storm of kills that is long enough for an activity to be suspected.
    pub(super) fn be_storm(&mut self) {
        self.lasting = Some(1);
        self.has_aim = true;
        self.deadly = None;
        self.lease_ms = 1_000;
        self.task_lease_ms = 3_000;
        self.shard.healthy = Duration::from_millis(400);
        self.faults_ms = self.faults_ms.max(60_000);
        // Pausing or resetting the instance would end the attempt that should last.
        self.classes.repairs = false;
    }

    /// Makes the plan one of a short run.
    pub(super) fn be_short(&mut self, rng: &mut Rng) {
        self.instances = *rng.pick(&[1, 2, 3]);
        self.sizes = &[(2, 3), (2, 6)];
        self.faults_ms = *rng.pick(&[1_000, 2_000, 4_000]);
        self.lease_ms = 1_000;
        // Most of a run passes without anything to do, and each poll and renewal takes time to simulate.
        self.poll_pauses = (Duration::from_millis(100), Duration::from_secs(5));
        self.longest_activity_ms = 4_000;
        self.task_lease_ms = 2 * self.lease_ms;
        self.classes.be_short(self.faults_ms);
        let count = self.roles.len().min(*rng.pick(&[1, 2, 3]));
        self.keep_processes(count);
        for joins_ms in &mut self.joins_ms {
            *joins_ms = (*joins_ms).min(self.faults_ms / 2);
        }
    }

    /// Removes all processes after the first few.
    pub(super) fn keep_processes(&mut self, count: usize) {
        self.roles.truncate(count);
        self.joins_ms.truncate(count);
        self.drift_ppm.truncate(count);
        self.served.truncate(count);
    }

    /// How long an attempt waits for a slot before other nodes may run it.
    pub(super) fn spill_after(&self) -> Duration {
        Duration::from_millis(self.lease_ms / 10)
    }

    /// How long an instance is shown as waiting for missing code.
    pub(super) fn missing_code_wait(&self) -> Duration {
        Duration::from_millis(2 * self.lease_ms)
    }

    /// The maximum distance of the store's clock when the faults end: sessions of crashed processes last
    /// longer by this.
    pub(super) fn max_clock_lag_ms(&self) -> u64 {
        let Faults { clock_set_backs, clock_stalls, .. } = self.faults;
        clock_set_backs * MAX_SET_BACK_MS + clock_stalls * MAX_STALL_MS
    }
}

/// One process or several; most have one lane. The first one owns shards.
fn roles(rng: &mut Rng) -> Vec<usize> {
    let processes = *rng.pick(&[1, 2, 2, 3, 3, 4, 5, 7]);
    let lanes = rng.weighted(&[(4, 1), (1, 2)]);
    let has_worker = rng.percent(20);
    let role = |process: usize| if has_worker && process > 0 && process == processes - 1 { 0 } else { lanes };
    (0..processes).map(role).collect()
}

fn served(rng: &mut Rng, processes: usize) -> Vec<Served> {
    let of_process = |process: usize| {
        let names = (0..4).map(|number| format!("activity-{number}"));
        let names = names.filter(|_| process == 0 || rng.percent(90)).collect();
        let tags = (process == 0 || rng.percent(30)).then(|| TAG.to_owned());
        Served { names, tags: tags.into_iter().collect(), ..Served::default() }
    };
    (0..processes).map(of_process).collect()
}
