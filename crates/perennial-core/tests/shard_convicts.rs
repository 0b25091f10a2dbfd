//! An instance that was found to take the process down is left alone until somebody asks for it (G29), and a retry is
//! one retry (G28).

mod shard_cases;

use perennial_core::shard::{Message, Question, ShardOptions, TaskFailure, TurnTaskDone};
use perennial_core::store::AskOutcome;
use perennial_core::{Job, OrchestrationContext, Payload};
use perennial_testkit::Desk;
use shard_cases::{Outcome, handlers, handlers_and};

/// An activity, then as many events as it takes until one is empty.
async fn calls(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let called = ctx.schedule_activity("call", ()).await.map_err(|_| Payload::null())?;
    while !ctx.schedule_wait("n").typed::<String>().await.is_empty() {}
    Ok(called)
}

/// What the node does about a turn that has taken processes down.
fn convict(desk: &mut Desk, id: &str) {
    let task = desk.pick_turn(id);
    let outcome = Err(TaskFailure::TakesProcessDown);
    let done = TurnTaskDone { key: task.key, number: task.number, outcome, asks: Vec::new(), wreck: None };
    desk.bring_turn(id, done);
    desk.settle();
}

/// An instance that is convicted of the turn after its activity's result, which is kept.
fn convicted() -> Desk {
    let mut desk = Desk::new(handlers_and("calls", calls));
    desk.start("calls", "a", ());
    desk.settle();
    desk.finish("a", "call", "done");
    convict(&mut desk, "a");
    assert_eq!(desk.status("a"), "running, blocked: PER-0302");
    assert_eq!(desk.inbox("a"), [r#"ActivityCompleted of 2 "done""#]);
    assert!(desk.row("a").owed, "its activity is open, and has no row");
    desk
}

#[test]
fn g29_a_convict_is_not_tried_by_a_new_owner_nor_for_what_comes_for_it() {
    let mut desk = convicted();
    desk.crash().take_over();
    desk.look_up();
    desk.load();
    assert!(desk.turns_to_take().is_empty(), "a new owner tries it");
    desk.settle();
    // From here, from afar, and from afar while nobody has it in memory.
    let raised = desk.raise("a", "n", "1");
    desk.load();
    assert!(desk.turns_to_take().is_empty(), "an event has it tried");
    desk.settle();
    desk.send_event("a", "n", "2");
    for _ in 0..2 {
        desk.pass_inbox();
        desk.load();
        assert!(desk.turns_to_take().is_empty(), "an event from afar has it tried");
        desk.settle();
        desk.crash();
    }
    desk.take_over().settle();
    assert_eq!(desk.told(raised), "accepted");
    assert_eq!(
        desk.inbox("a"),
        [r#"ActivityCompleted of 2 "done""#, r#"ExternalEvent "n" "1""#, r#"ExternalEvent "n" "2""#]
    );
    for hours in 1..48 {
        desk.at(hours * 3_600_000);
        assert!(desk.loads_to_make().is_empty(), "it is tried after {hours} hours");
        desk.settle();
    }
    assert_eq!(desk.row("a").blocked.map(|blocked| blocked.attempts), Some(1));
    assert_eq!(desk.runs(), ["a call"]);
}

#[test]
fn g29_who_asks_a_convict_something_is_told_that_it_is_blocked() {
    let mut desk = convicted();
    desk.crash();
    let question = Question::Query { name: "n".to_owned(), payload: Payload::null() };
    let AskOutcome::Asked(number) = desk.send_ask("a", &question, 60_000) else { panic!("it exists") };
    desk.pass_asks();
    desk.load();
    assert!(desk.turns_to_take().is_empty(), "a question has it tried");
    desk.settle();
    let reply = format!("{:?}", desk.reply(number));
    assert!(reply.contains("PER-0302"), "{reply}");
    let here = desk.query("a", "n", ());
    desk.settle();
    assert!(desk.told(here).contains("PER-0302"), "{}", desk.told(here));
}

#[test]
fn g29_a_convict_that_is_retried_goes_on_with_all_that_came_for_it() {
    for from_afar in [false, true] {
        let mut desk = convicted();
        desk.restart();
        desk.raise("a", "n", "1");
        desk.settle();
        if from_afar {
            desk.send_message("a", &Message::Retry);
            desk.tick().settle();
        } else {
            let retried = desk.retry("a");
            desk.settle();
            assert_eq!(desk.told(retried), "accepted");
        }
        assert_eq!(desk.status("a"), "running");
        desk.raise("a", "n", "");
        desk.settle();
        assert_eq!((desk.status("a"), desk.inbox("a").len()), ("completed".into(), 0));
    }
}

#[test]
fn g28_a_convict_needs_no_code_to_be_terminated_or_to_outlive_the_grace_of_a_cancel() {
    let mut desk = convicted();
    desk.restart();
    desk.terminate("a", "enough");
    desk.settle();
    assert_eq!((desk.status("a"), desk.inbox("a").len()), ("terminated".into(), 0));

    for from_afar in [false, true] {
        let mut desk = convicted();
        desk.restart();
        let grace_until_ms = desk.now_ms() + ShardOptions::default().cancel_grace_ms;
        if from_afar {
            let reason = "enough".to_owned();
            let job = Job::OrchestrationCancelRequested { reason, grace_until_ms };
            desk.send_message("a", &Message::Job(job));
            desk.tick().settle();
        } else {
            desk.cancel("a", "enough");
            desk.settle();
        }
        assert_eq!(desk.row("a").wake_at_ms, Some(grace_until_ms));
        desk.restart();
        assert_eq!(desk.status("a"), "running, blocked: PER-0302");
        desk.at(grace_until_ms).settle();
        assert_eq!((desk.status("a"), desk.inbox("a").len()), ("terminated".into(), 0));
    }
}

#[test]
fn g28_a_retry_from_another_process_is_one_retry() {
    async fn panics(ctx: OrchestrationContext, _: Payload) -> Outcome {
        let _: Payload = ctx.schedule_wait("n").await;
        panic!("boom")
    }
    let mut desk = Desk::new(handlers().with("panics", Desk::VERSION, panics));
    desk.start("panics", "a", ());
    desk.settle();
    desk.raise("a", "n", "1");
    desk.settle();
    desk.send_message("a", &Message::Retry);
    for _ in 0..3 {
        desk.pass_inbox().tick().settle();
    }
    assert_eq!(desk.row("a").blocked.map(|blocked| blocked.attempts), Some(2));
    assert_eq!(desk.inbox("a"), [r#"ExternalEvent "n" "1""#]);
}
