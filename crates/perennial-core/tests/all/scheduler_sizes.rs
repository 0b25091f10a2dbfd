//! Large and deep programs: exact histories at ten thousand wide, a thousand deep and four levels of branches.

use std::collections::HashMap;
use std::time::Duration;

use futures::future::BoxFuture;
use perennial_core::{ExecutionOptions, Job, OrchestrationContext, Payload, Started};
use perennial_testkit::Drive;

const WIDE: u64 = 10_000;

#[test]
fn e22_a_fan_out_of_ten_thousand_joins_in_input_order() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let tasks: Vec<_> = (0..WIDE)
                .map(|number| ctx.schedule_activity("Square", number.to_string()).typed::<u64>())
                .collect();
            let results = ctx.join(tasks).await;
            for (number, result) in (0..WIDE).zip(&results) {
                assert_eq!(result.as_ref().ok(), Some(&(number * number)));
            }
            Ok(Payload::from(results.len().to_string()))
        },
        (),
    );
    let scheduled = drive.lines();
    assert_eq!(scheduled.len() as u64, WIDE + 1);
    assert_eq!(scheduled[WIDE as usize], r#"10001 ActivityScheduled "Square" "9999""#);
    let completions: Vec<Job> = (0..WIDE)
        .rev()
        .map(|number| Drive::completed(number + 2, Payload::encode(&(number * number)).expect("it encodes")))
        .collect();
    drive.evict().turn(&completions[..4_000]).evict();
    assert_eq!(drive.last_lines().len(), 4_000, "results alone decide nothing");
    drive.turn(&completions[4_000..]).evict();
    assert_eq!(
        drive.last_lines().last().map(String::as_str),
        Some(r#"20002 OrchestrationCompleted "10000""#)
    );
}

#[test]
fn e22_ten_thousand_branches_go_on_in_branch_order() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let branch = |number: u64| {
                let ctx = ctx.clone();
                async move {
                    let _ = ctx.schedule_activity("First", number.to_string()).await;
                    let _ = ctx.schedule_activity("Second", number.to_string()).await;
                    number
                }
            };
            let numbers = ctx.parallel((0..WIDE).map(branch)).await;
            assert!(numbers.into_iter().eq(0..WIDE));
            Ok("in order".into())
        },
        (),
    );
    let backwards =
        |first: u64| -> Vec<Job> { (first..first + WIDE).rev().map(|id| Drive::completed(id, "")).collect() };
    drive.evict().turn(backwards(2)).evict();
    let seconds: Vec<String> = drive.last_lines().split_off(WIDE as usize);
    for (number, line) in (0..WIDE).zip(&seconds) {
        let id = 2 * WIDE + 2 + number;
        assert_eq!(*line, format!(r#"{id} ActivityScheduled "Second" "{number}" in p{number}"#));
    }
    drive.turn(backwards(2 * WIDE + 2)).evict();
    assert_eq!(
        drive.last_lines().last().map(String::as_str),
        Some(r#"40002 OrchestrationCompleted "in order""#)
    );
}

#[test]
fn e4_a_sequence_of_a_thousand_steps_replays_to_the_same_place() {
    let handler = std::sync::Arc::new(|ctx: OrchestrationContext, _: Payload| async move {
        let mut sum = 0;
        for step in 0..1_000_u64 {
            let task = ctx.schedule_activity("Step", step.to_string()).typed::<u64>();
            sum += task.await.map_err(|_| Payload::null())?;
        }
        Ok(Payload::from(sum.to_string()))
    });
    let started = Started::new("orchestration", "1.0.0", (), 42);
    let mut drive = Drive::prepare(handler, started, ExecutionOptions::default()).expect("it can start");
    drive.turn([]);
    for step in 0..1_000 {
        if step % 250 == 249 {
            drive.evict();
        }
        drive.complete(2 + 2 * step, Payload::encode(&step).expect("it encodes"));
    }
    drive.evict();
    assert_eq!(
        drive.last_lines(),
        [r#"2001 ActivityCompleted of 2000 999"#, r#"2002 OrchestrationCompleted "499500""#]
    );
    assert_eq!(drive.history().turns.len(), 1_001);
}

#[test]
fn e15_a_dropped_hash_map_of_futures_cancels_in_the_order_of_the_operations() {
    const COUNT: u64 = 200;
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let keep = |number: u64| -> Box<dyn Send> {
                match number % 2 {
                    0 => Box::new(ctx.schedule_timer(Duration::from_secs(number))),
                    _ => Box::new(ctx.schedule_wait("never")),
                }
            };
            let kept: HashMap<u64, _> = (0..COUNT).map(|number| (number, keep(number))).collect();
            ctx.schedule_wait("drop").await;
            drop(kept);
            ctx.schedule_wait("end").await;
            Ok(Payload::null())
        },
        (),
    );
    drive.raise("drop", ()).evict();
    let lines = drive.last_lines();
    assert_eq!(lines.len() as u64, COUNT + 2);
    for (number, line) in (0..COUNT).zip(&lines[2..]) {
        let (id, source) = (number + COUNT + 5, number + 2);
        let kind = if number % 2 == 0 { "TimerCancelled" } else { "ExternalUnsubscribed" };
        assert_eq!(*line, format!("{id} {kind} of {source}"));
    }
}

#[test]
fn e8_branches_four_deep_and_four_wide_each_run_a_sequence() {
    fn tree(ctx: OrchestrationContext, depth: u32) -> BoxFuture<'static, u64> {
        Box::pin(async move {
            if depth == 4 {
                let _ = ctx.schedule_activity("Leaf", "").await;
                return 1;
            }
            let leaves: u64 =
                ctx.parallel((0..4).map(|_| tree(ctx.clone(), depth + 1))).await.into_iter().sum();
            let _ = ctx.schedule_activity("Node", leaves.to_string()).await;
            leaves
        })
    }
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move { Ok(Payload::from(tree(ctx, 0).await.to_string())) },
        (),
    );
    let mut waves = Vec::new();
    while !drive.execution().has_ended() {
        let open: Vec<u64> = drive.execution().ledger().open().map(|(id, _)| id.0).collect();
        waves.push(open.len());
        let jobs: Vec<Job> = open.into_iter().rev().map(|id| Drive::completed(id, "")).collect();
        drive.evict().turn(jobs);
    }
    assert_eq!(waves, [256, 64, 16, 4, 1]);
    let nodes: Vec<String> = drive
        .lines()
        .into_iter()
        .filter(|line| line.contains("Node"))
        .map(|line| line.split_once(r#"Node" "#).expect("a node").1.to_owned())
        .collect();
    assert_eq!(
        (&*nodes[0], &*nodes[63], &*nodes[64], &*nodes[84]),
        (r#""4" in p0.p0.p0"#, r#""4" in p3.p3.p3"#, r#""16" in p0.p0"#, r#""256""#)
    );
    assert!(drive.lines().last().is_some_and(|line| line.ends_with(r#"OrchestrationCompleted "256""#)));
}
