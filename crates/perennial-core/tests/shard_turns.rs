//! One commit under way per instance; what comes meanwhile forms the next turn (G3).

mod shard_cases;

use perennial_core::shard::ShardOptions;
use perennial_core::{ExecutionOptions, Limits};
use perennial_testkit::Desk;
use shard_cases::{handlers, number};

fn with_limits(limits: Limits) -> ShardOptions {
    ShardOptions { execution: ExecutionOptions { limits, ..Default::default() }, ..Default::default() }
}

/// A collector that has taken its first turn.
fn collecting(options: ShardOptions) -> Desk {
    let mut desk = Desk::with_options(handlers(), options);
    desk.start("collect", "a", ());
    desk.settle();
    desk
}

fn jobs(desk: &Desk) -> Vec<String> {
    desk.jobs_to_take("a").iter().map(|job| job.replace(r#"ExternalEvent "n" "#, "")).collect()
}

#[test]
fn g3_inputs_that_come_during_a_commit_form_the_next_turn() {
    let mut desk = collecting(ShardOptions::default());
    let first = desk.raise("a", "n", "1");
    desk.take_turns();
    let (second, third) = (desk.raise("a", "n", "2"), desk.raise("a", "n", "3"));
    assert!(desk.turns_to_take().is_empty(), "a commit is under way");
    assert_eq!(desk.batch(), ["a"]);
    desk.commit();
    assert_eq!(jobs(&desk), [r#""2""#, r#""3""#]);
    assert_eq!(desk.told_all([first, second, third]), ["accepted", "nothing", "nothing"]);
    desk.take_turns();
    desk.commit();
    assert_eq!(desk.told_all([second, third]), ["accepted", "accepted"]);
    assert_eq!(desk.writes("a"), ["insert running, turn 1", "turn 2", "turn 3"]);
}

#[test]
fn g3_inputs_that_come_during_a_turn_form_the_next_turn() {
    let mut desk = collecting(ShardOptions::default());
    desk.raise("a", "n", "1");
    desk.raise("a", "n", "2");
    desk.raise("a", "n", "3");
    assert_eq!((desk.turns_to_take().len(), jobs(&desk)), (1, vec![r#""1""#.to_owned()]));
    desk.take_turns();
    assert!(desk.turns_to_take().is_empty());
    desk.commit();
    assert_eq!(jobs(&desk), [r#""2""#, r#""3""#]);
}

#[test]
fn g3_inputs_that_come_during_a_load_form_one_turn_in_their_order() {
    let mut desk = collecting(ShardOptions::default());
    desk.crash();
    desk.raise("a", "n", "1");
    desk.look_up();
    desk.raise("a", "n", "2");
    assert_eq!(desk.loads_to_make(), ["a"]);
    desk.load();
    desk.raise("a", "n", "3");
    desk.take_turns();
    assert_eq!(jobs(&desk), [r#""1""#, r#""2""#, r#""3""#]);
}

#[test]
fn g3_results_of_many_activities_share_a_turn() {
    let mut desk = Desk::new(handlers());
    desk.start("fan", "a", number(5));
    desk.settle();
    for name in ["A3", "A1", "A5", "A2"] {
        desk.finish("a", name, name);
    }
    assert_eq!(desk.jobs_to_take("a"), [r#"ActivityCompleted of 4 "A3""#]);
    desk.take_turns();
    desk.commit();
    assert_eq!(
        desk.jobs_to_take("a"),
        [
            r#"ActivityCompleted of 2 "A1""#,
            r#"ActivityCompleted of 6 "A5""#,
            r#"ActivityCompleted of 3 "A2""#
        ]
    );
}

#[test]
fn g3_a_turn_takes_jobs_up_to_half_its_decisions_and_the_rest_follow() {
    let mut desk = collecting(with_limits(Limits { turn_decisions: 8, ..Limits::default() }));
    desk.raise("a", "n", "0");
    for event in 1..=10 {
        desk.raise("a", "n", event.to_string());
    }
    desk.take_turns();
    let mut sizes = Vec::new();
    while desk.commit() > 0 {
        sizes.push(jobs(&desk).len());
        desk.take_turns();
    }
    assert_eq!(sizes, [4, 4, 2, 0]);
    desk.raise("a", "n", "end");
    desk.settle();
    assert_eq!(
        desk.last_lines("a", 1),
        [r#"26 OrchestrationCompleted ["0","1","2","3","4","5","6","7","8","9","10"]"#]
    );
}

#[test]
fn g3_a_turn_takes_jobs_up_to_half_its_bytes_and_the_rest_follow() {
    let mut desk = collecting(with_limits(Limits { turn_bytes: 10_000, ..Limits::default() }));
    desk.raise("a", "n", "0");
    for _ in 1..=5 {
        desk.raise("a", "n", "x".repeat(2_000));
    }
    desk.take_turns();
    let mut sizes = Vec::new();
    while desk.commit() > 0 {
        sizes.push(jobs(&desk).len());
        desk.take_turns();
    }
    assert_eq!(sizes, [2, 2, 1, 0], "two events of 2,000 bytes and their frames fit into 5,000 bytes");
}

#[test]
fn g3_a_job_larger_than_half_a_turn_has_a_turn_of_its_own() {
    let mut desk = collecting(with_limits(Limits { turn_bytes: 10_000, ..Limits::default() }));
    desk.raise("a", "n", "0");
    desk.raise("a", "n", "x".repeat(9_000));
    desk.settle();
    assert_eq!(desk.writes("a"), ["insert running, turn 1", "turn 2", "turn 3"]);
}

#[test]
fn g3_due_timers_count_among_the_jobs_of_a_turn() {
    let options = with_limits(Limits { turn_decisions: 4, ..Limits::default() });
    let sleepers = |ctx: perennial_core::OrchestrationContext, _: perennial_core::Payload| async move {
        let timer = |ms| ctx.schedule_timer(std::time::Duration::from_millis(ms));
        ctx.join([timer(10), timer(20), timer(30)]).await;
        Ok(ctx.schedule_wait("n").await)
    };
    let mut desk = Desk::with_options(shard_cases::handlers_and("sleepers", sleepers), options);
    desk.start("sleepers", "a", ());
    desk.settle();
    desk.set_clock(2_000);
    desk.raise("a", "n", "1");
    assert_eq!(desk.jobs_to_take("a"), ["TimerFired of 2", "TimerFired of 3"]);
    desk.take_turns();
    desk.commit();
    assert_eq!(desk.jobs_to_take("a"), ["TimerFired of 4", r#"ExternalEvent "n" "1""#]);
}
