//! What a shard costs per input, without store and threads: a step of a sequence, a message for an instance that has many
//! waiting, a turn of an instance that has many tasks. The last two are to cost the same however many there are.
//!
//! `cargo bench -p perennial-core --bench shard`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use perennial_core::shard::{
    ActivityTask, Message, Output, Request, RequestId, Shard, ShardOptions, StartRequest, Tenure, TurnTask,
};
use perennial_core::store::{CommitOutcome, InboxRow, Served};
use perennial_core::{
    ExecutionOptions, Handlers, InstanceKey, Job, OrchestrationContext, Payload, ShardId, Started,
};

const SHARD: ShardId = ShardId(0);

/// Activities that this node cannot run, as many as the input says, and beside them one step after another.
async fn steps(ctx: OrchestrationContext, input: Payload) -> Result<Payload, Payload> {
    let width: u64 = input.decode().map_err(|_| Payload::null())?;
    let _elsewhere: Vec<_> =
        (0..width).map(|_| ctx.schedule_activity("elsewhere", Payload::null())).collect();
    loop {
        ctx.schedule_activity("step", Payload::null()).await.map_err(|_| Payload::null())?;
    }
}

/// A shard with one instance, and what it wants done.
struct Driver {
    shard: Shard,
    handlers: Handlers,
    key: InstanceKey,
    turn: Option<Box<TurnTask>>,
    activity: Option<Box<ActivityTask>>,
}

impl Driver {
    fn new(width: u64) -> Driver {
        let served = Served { names: ["step".to_owned()].into(), ..Served::default() };
        let execution = ExecutionOptions { shadow_replay: false, ..ExecutionOptions::default() };
        let options = ShardOptions { execution, served: Some(Arc::new(served)), ..ShardOptions::default() };
        let key = InstanceKey::new(1, 1);
        let handlers = Handlers::default().with("steps", "1.0.0", steps);
        let shard = Shard::new(SHARD, Tenure(1), options, 7);
        let mut driver = Driver { shard, handlers, key, turn: None, activity: None };
        let input = Payload::encode(&width).expect("a number encodes");
        let started = Started::new("steps", "1.0.0", input, 7);
        let start = Request::Start(Box::new(StartRequest { key, started, jobs: Vec::new() }));
        driver.shard.handle_request(1_000, RequestId(1), "bench", start, None);
        driver.collect();
        driver.take_turn();
        driver
    }

    /// Takes what the shard wants done; commits are durable at once.
    fn collect(&mut self) {
        for output in self.shard.take_outputs() {
            match output {
                Output::TakeTurn(task) => self.turn = Some(task),
                Output::RunActivity(task) => self.activity = Some(task),
                Output::Commit(commit) => {
                    let durable = CommitOutcome::Durable { sent: vec![None; commit.send.len()] };
                    self.shard.handle_committed(1_000, self.key, durable);
                    self.collect();
                }
                _ => {}
            }
        }
    }

    fn take_turn(&mut self) {
        let turn = self.turn.take().expect("a turn is wanted");
        let done = turn.run(&self.handlers, |_| {});
        self.shard.handle_turn_done(1_000, done);
        self.collect();
    }

    /// One step: a result comes, and the turn that it leads to is taken and committed.
    fn step(&mut self) {
        self.finish_activity();
        self.take_turn();
    }

    fn finish_activity(&mut self) {
        let task = self.activity.take().expect("a step runs");
        self.shard.handle_activity_done(1_000, &task, Ok(Payload::null()));
        self.collect();
    }

    fn message(&self, number: u64) -> InboxRow {
        let job =
            Job::ExternalEvent { name: "n".to_owned(), payload: Payload::null(), key: None, trace: None };
        let body = Message::Job(job).encode();
        InboxRow { number, key: self.key, shard: SHARD, arrived_ms: 1_000, urgent: false, body }
    }
}

fn turns(c: &mut Criterion) {
    let mut group = c.benchmark_group("shard, one step");
    for width in [0_u64, 100, 10_000] {
        group.bench_function(format!("beside {width} tasks of other nodes"), |b| {
            b.iter_custom(|iterations| {
                let mut driver = Driver::new(width);
                let started = Instant::now();
                (0..iterations).for_each(|_| driver.step());
                started.elapsed()
            });
        });
    }
    group.finish();
}

fn messages(c: &mut Criterion) {
    let mut group = c.benchmark_group("shard, 100 messages during a turn");
    for waiting in [0_u64, 1_000, 9_000] {
        group.bench_function(format!("behind {waiting} others"), |b| {
            b.iter_custom(|iterations| {
                let mut elapsed = Duration::ZERO;
                for _ in 0..iterations {
                    let mut driver = Driver::new(0);
                    driver.finish_activity();
                    for number in 1..=waiting {
                        assert!(driver.shard.handle_inbox(1_000, driver.message(number)));
                    }
                    let rows: Vec<InboxRow> = (1..=100).map(|n| driver.message(waiting + n)).collect();
                    let started = Instant::now();
                    for row in rows {
                        driver.shard.handle_inbox(1_000, row);
                    }
                    elapsed += started.elapsed();
                }
                elapsed
            });
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().measurement_time(Duration::from_secs(3)).warm_up_time(Duration::from_secs(1)).sample_size(10);
    targets = turns, messages
}
criterion_main!(benches);
