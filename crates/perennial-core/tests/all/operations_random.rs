//! Time and chance: the same in every replay, and another number of draws is reported (E17).

use std::sync::Arc;
use std::time::Duration;

use perennial_core::{
    Ending, ExecutionOptions, Nondeterminism, OrchestrationContext, OrchestrationHandler, Payload, Started,
    TurnFailure,
};
use perennial_testkit::Drive;
use serde_json::json;

fn divergence<T>(outcome: Result<T, TurnFailure>) -> Nondeterminism {
    match outcome {
        Err(TurnFailure::Nondeterminism(report)) => *report,
        Err(other) => panic!("no divergence: {other}"),
        Ok(_) => panic!("the replay went through"),
    }
}

/// Where record and code part, and how.
fn parting(report: &Nondeterminism) -> (u64, u64, &str, &str) {
    (report.turn, report.event.0, &report.recorded.line, &report.code.line)
}

fn output(drive: &Drive) -> Payload {
    match drive.last_turn().ending() {
        Some(Ending::OrchestrationCompleted { output }) => output.clone(),
        other => panic!("{other:?}"),
    }
}

/// Draws in the root, in two branches and in a handler.
async fn draws(ctx: OrchestrationContext, _: Payload) -> Result<Payload, Payload> {
    let from = ctx.clone();
    ctx.on_event("draw", move |_| {
        let ctx = from.clone();
        async move { ctx.set_status(json!(ctx.random())) }
    });
    let branch = |_| {
        let ctx = ctx.clone();
        async move {
            let first = ctx.random();
            ctx.schedule_timer(Duration::from_secs(1)).await;
            [first, ctx.random()]
        }
    };
    let first = ctx.random();
    let branches = ctx.parallel([0, 1].map(branch)).await;
    Ok(json!({ "root": [first, ctx.random()], "branches": branches }).into())
}

#[test]
fn e17_each_unit_has_a_stream_of_its_own_from_the_recorded_seed() {
    let mut drive = Drive::start(draws, ());
    drive.raise("draw", ());
    assert_eq!(drive.last_lines()[1], "5 StatusSet 5134506995707351678 in h0");
    drive.turn([Drive::fired(3), Drive::fired(2)]);
    // What the streams gave on their first day, they give for ever.
    let drawn = json!({
        "root": [11_882_281_010_927_931_245_u64, 1_506_913_448_438_687_000_u64],
        "branches": [
            [13_239_824_108_319_244_450_u64, 9_317_543_554_846_804_587_u64],
            [13_912_118_929_779_223_191_u64, 3_263_375_929_777_343_842_u64],
        ],
    });
    assert_eq!(output(&drive), drawn.into());
    let draws: Vec<u64> = drive.history().turns.iter().map(|turn| turn.draws).collect();
    assert_eq!(draws, [3, 1, 3]);
}

#[test]
fn e17_streams_go_on_after_a_replay_as_if_there_had_been_none() {
    let mut resident = Drive::start(draws, ());
    let mut evicted = Drive::start(draws, ());
    for jobs in [
        vec![Drive::event("draw", ())],
        vec![Drive::fired(2)],
        vec![Drive::event("draw", ()), Drive::fired(3)],
    ] {
        resident.turn(jobs.clone());
        evicted.evict().turn(jobs);
    }
    assert!(resident.execution().has_ended());
    assert_eq!(evicted.history(), resident.history());
    evicted.evict();
}

#[test]
fn e17_another_seed_gives_other_numbers() {
    let handler = |ctx: OrchestrationContext, _: Payload| async move { Ok(json!(ctx.random()).into()) };
    let started = Started::new("orchestration", "1.0.0", (), 43);
    let mut drive = Drive::prepare(Arc::new(handler), started, ExecutionOptions::default()).unwrap();
    drive.turn([]);
    assert_eq!(drive.lines()[1], "2 OrchestrationCompleted 15700626587469797450");
}

#[test]
fn e17_time_and_chance_return_at_once() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let (now, uuid) = (ctx.now(), ctx.uuid4());
            ctx.schedule_wait("go").await;
            assert_eq!(ctx.now(), ctx.now(), "time stands still within a turn");
            let times = [now, ctx.now()].map(|time| time.as_millis());
            Ok(json!([times, uuid, ctx.uuid4()]).into())
        },
        (),
    );
    drive.evict().at(7_000).raise("go", ()).at(9_000).evict();
    assert_eq!(drive.lines()[1], r#"2 ExternalSubscribed "go""#, "nothing but draws is recorded");
    let uuids = ["a4e6579f-d9ba-4f6d-94e9-a1cc21726518", "29700e43-bfeb-4b12-abc4-f50c4cfbc8c4"];
    assert_eq!(output(&drive), json!([[1_000, 7_000], uuids[0], uuids[1]]).into());
    assert_eq!(drive.history().turns[0].draws, 2, "a uuid takes two draws");
}

#[test]
fn e17_another_number_of_draws_is_nondeterminism() {
    fn drawing(first: usize, second: usize) -> impl OrchestrationHandler {
        move |ctx: OrchestrationContext, _: Payload| async move {
            let _drawn: Vec<u64> = (0..first).map(|_| ctx.random()).collect();
            ctx.schedule_wait("go").await;
            let _drawn: Vec<u64> = (0..second).map(|_| ctx.random()).collect();
            Ok(Payload::null())
        }
    }
    let mut drive = Drive::start(drawing(1, 2), ());
    drive.raise("go", ());
    drive.replay_with(drawing(1, 2)).unwrap();
    let report = divergence(drive.replay_with(drawing(2, 2)));
    assert_eq!(parting(&report), (1, 2, "random numbers drawn: 1", "random numbers drawn: 2"));
    let report = divergence(drive.replay_with(drawing(1, 1)));
    assert_eq!(parting(&report), (2, 4, "random numbers drawn: 2", "random numbers drawn: 1"));
    let report = divergence(drive.replay_with(drawing(1, 0)));
    assert_eq!(parting(&report), (2, 4, "random numbers drawn: 2", "random numbers drawn: 0"));
}
