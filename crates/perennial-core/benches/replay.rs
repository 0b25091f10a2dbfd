//! What replaying, taking a turn and fanning in cost.
//!
//! `cargo bench -p perennial-core`. Throughput is in events; a step of a sequence is two events.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use perennial_core::history::{decode_turn, encode_turn};
use perennial_core::{
    EventId, Execution, ExecutionOptions, History, Job, OrchestrationContext, OrchestrationHandler, Payload,
    Started,
};

/// Activities one after another, as many as the input says.
async fn sequence(ctx: OrchestrationContext, input: Payload) -> Result<Payload, Payload> {
    let steps: u64 = input.decode().map_err(|_| Payload::null())?;
    for _ in 0..steps {
        ctx.schedule_activity("step", input.clone()).await.map_err(|_| Payload::null())?;
    }
    Ok(input)
}

/// Activities all at once, as many as the input says.
async fn fan_out(ctx: OrchestrationContext, input: Payload) -> Result<Payload, Payload> {
    let width: u64 = input.decode().map_err(|_| Payload::null())?;
    let results = ctx.join((0..width).map(|_| ctx.schedule_activity("step", Payload::null()))).await;
    Payload::encode(&results.len()).map_err(|_| Payload::null())
}

fn execution(handler: Arc<dyn OrchestrationHandler>, size: u64) -> Execution {
    let input = Payload::encode(&size).expect("a number encodes");
    let options = ExecutionOptions { shadow_replay: false, ..ExecutionOptions::default() };
    Execution::new("bench-1", handler, Started::new("bench", "1.0.0", input, 7), options)
        .expect("a valid start")
}

fn completed(source: u64) -> Job {
    Job::ActivityCompleted {
        source_event_id: EventId(source),
        result: "done".into(),
        attempts: 1,
        trail: Default::default(),
    }
}

/// The history of a sequence: event 2 is the first schedule, each result is followed by the next schedule.
fn sequence_history(steps: u64) -> History {
    let mut execution = execution(Arc::new(sequence), steps);
    let mut history = History::default();
    history.turns.extend(execution.take_turn(1_000, vec![]).expect("the first turn").turn);
    for step in 0..steps {
        let taken = execution.take_turn(1_000 + step, vec![completed(2 + 2 * step)]).expect("a turn");
        history.turns.extend(taken.turn);
    }
    assert!(execution.has_ended());
    history
}

fn replay(history: &History, steps: u64) -> Execution {
    let mut execution = execution(Arc::new(sequence), steps);
    for turn in history {
        execution.replay_turn(turn).expect("the code matches");
    }
    execution
}

fn replaying(c: &mut Criterion) {
    let steps = 10_000;
    let history = sequence_history(steps);
    let stored: Vec<Vec<u8>> = history.turns.iter().map(encode_turn).collect();
    let events = history.flatten().count() as u64;

    let mut group = c.benchmark_group("replay");
    group.throughput(Throughput::Elements(events));
    group.bench_function("decoded turns, 10,000 activities", |b| {
        b.iter_batched(|| (), |()| replay(&history, steps), BatchSize::PerIteration);
    });
    group.bench_function("stored bytes, 10,000 activities", |b| {
        b.iter_batched(
            || (),
            |()| {
                let mut execution = execution(Arc::new(sequence), steps);
                for (number, bytes) in (1..).zip(&stored) {
                    let turn = decode_turn(number, bytes).expect("it decodes");
                    execution.replay_turn(&turn).expect("the code matches");
                }
                execution
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

fn live_turns(c: &mut Criterion) {
    let mut group = c.benchmark_group("live turn");
    for at_event in [10_u64, 10_000] {
        group.bench_function(format!("at event {at_event}"), |b| {
            // Windows of 100 turns from the event in question on, each in a fresh execution.
            b.iter_custom(|iterations| {
                let mut elapsed = Duration::ZERO;
                for _ in 0..iterations.div_ceil(100) {
                    let mut execution = execution(Arc::new(sequence), 1_000_000);
                    execution.take_turn(1_000, vec![]).expect("the first turn");
                    let first = at_event / 2 - 1;
                    for step in 0..first {
                        execution.take_turn(1_000, vec![completed(2 + 2 * step)]).expect("a turn");
                    }
                    let started = std::time::Instant::now();
                    for step in first..first + 100 {
                        let job = completed(2 + 2 * step);
                        black_box(execution.take_turn(1_000, vec![job]).expect("a turn"));
                    }
                    elapsed += started.elapsed();
                }
                elapsed.mul_f64(iterations as f64 / (iterations.div_ceil(100) * 100) as f64)
            });
        });
    }
    group.finish();
}

fn fan_in(c: &mut Criterion) {
    let mut group = c.benchmark_group("fan-in");
    for width in [1_000_u64, 10_000] {
        group.throughput(Throughput::Elements(width));
        group.bench_function(format!("{width} results in one turn"), |b| {
            b.iter_batched(
                || {
                    let mut execution = execution(Arc::new(fan_out), width);
                    execution.take_turn(1_000, vec![]).expect("the first turn");
                    (execution, (0..width).map(|index| completed(2 + index)).collect::<Vec<_>>())
                },
                |(mut execution, jobs)| {
                    black_box(execution.take_turn(1_000, jobs).expect("a turn"));
                    execution
                },
                BatchSize::PerIteration,
            );
        });
        group.bench_function(format!("{width} results, a turn each"), |b| {
            b.iter_batched(
                || {
                    let mut execution = execution(Arc::new(fan_out), width);
                    execution.take_turn(1_000, vec![]).expect("the first turn");
                    execution
                },
                |mut execution| {
                    for index in 0..width {
                        black_box(execution.take_turn(1_000, vec![completed(2 + index)]).expect("a turn"));
                    }
                    execution
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().measurement_time(Duration::from_secs(3)).warm_up_time(Duration::from_secs(1)).sample_size(20);
    targets = replaying, live_turns, fan_in
}
criterion_main!(benches);
