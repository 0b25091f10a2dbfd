//! What it costs to take the results of many activities one after another.
//!
//! `cargo bench -p perennial-core --bench select`. Throughput is in results; it should not fall with the width.

use std::sync::Arc;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use perennial_core::{
    EventId, Execution, ExecutionOptions, Job, OrchestrationContext, OrchestrationHandler, Payload, Started,
};

const WIDTHS: [u64; 3] = [1_000, 4_000, 16_000];

/// Takes results with `completions`.
async fn completions(ctx: OrchestrationContext, input: Payload) -> Result<Payload, Payload> {
    let width: u64 = input.decode().map_err(|_| Payload::null())?;
    let mut results = ctx.completions((0..width).map(|_| ctx.schedule_activity("step", Payload::null())));
    while results.next().await.is_some() {}
    Ok(input)
}

/// Takes results with a select over those that are left.
async fn select_in_a_loop(ctx: OrchestrationContext, input: Payload) -> Result<Payload, Payload> {
    let width: u64 = input.decode().map_err(|_| Payload::null())?;
    let mut left: Vec<_> = (0..width).map(|_| ctx.schedule_activity("step", Payload::null())).collect();
    while !left.is_empty() {
        let (index, _) = ctx.select(&mut left).await;
        drop(left.swap_remove(index));
    }
    Ok(input)
}

/// An execution that waits for `width` results, and these, the last scheduled first.
fn waiting(handler: &Arc<dyn OrchestrationHandler>, width: u64) -> (Execution, Vec<Job>) {
    let input = Payload::encode(&width).expect("a number encodes");
    let options = ExecutionOptions { shadow_replay: false, ..ExecutionOptions::default() };
    let started = Started::new("bench", "1.0.0", input, 7);
    let mut execution =
        Execution::new("bench-1", Arc::clone(handler), started, options).expect("a valid start");
    execution.take_turn(1_000, vec![]).expect("the first turn");
    let completed = |source: u64| Job::ActivityCompleted {
        source_event_id: EventId(source),
        result: "done".into(),
        attempts: 1,
        trail: Default::default(),
    };
    (execution, (2..width + 2).rev().map(completed).collect())
}

fn taking_results(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("taking_results");
    group.sample_size(10);
    let ways: [(&str, Arc<dyn OrchestrationHandler>); 2] =
        [("completions", Arc::new(completions)), ("select_in_a_loop", Arc::new(select_in_a_loop))];
    for (name, handler) in &ways {
        for width in WIDTHS {
            group.throughput(Throughput::Elements(width));
            group.bench_with_input(BenchmarkId::new(*name, width), &width, |bencher, width| {
                bencher.iter_batched(
                    || waiting(handler, *width),
                    |(mut execution, jobs)| {
                        let taken = execution.take_turn(2_000, jobs).expect("a turn");
                        assert!(execution.has_ended());
                        (execution, taken)
                    },
                    BatchSize::LargeInput,
                );
            });
        }
    }
    group.finish();
}

criterion_group!(benches, taking_results);
criterion_main!(benches);
