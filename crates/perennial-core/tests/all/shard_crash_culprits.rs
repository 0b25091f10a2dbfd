//! An instance that was found to take the process down is left alone until somebody asks for it (G29), and a retry is
//! one retry (G28).

use crate::shard_cases::{Outcome, handlers, handlers_and};
use perennial_core::shard::{BlockReason, InstanceCall, Message, ShardOptions, TurnTaskDone, TurnTimes};
use perennial_core::store::RequestOutcome;
use perennial_core::{Job, OrchestrationContext, Payload};
use perennial_testkit::ManualNode;

/// An activity, then as many events as it takes until one is empty.
async fn calls(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let called = ctx.schedule_activity("call", ()).await.map_err(|_| Payload::null())?;
    while !ctx.schedule_wait("n").typed::<String>().await.is_empty() {}
    Ok(called)
}

/// What the node does about a turn that has taken processes down.
fn block_as_culprit(node: &mut ManualNode, id: &str) {
    let task = node.pick_turn(id);
    let outcome = Err(BlockReason::TakesProcessDown);
    let (shard, tenure, key, number) = (task.shard, task.tenure, task.key, task.number);
    node.bring_turn(TurnTaskDone {
        shard,
        tenure,
        key,
        number,
        outcome,
        calls: Vec::new(),
        failed_execution: None,
        times: TurnTimes::default(),
    });
    node.settle();
}

/// An instance that is convicted of the turn after its activity's result, which is kept.
fn culprit() -> ManualNode {
    let mut node = ManualNode::new(handlers_and("calls", calls));
    node.start("calls", "a", ());
    node.settle();
    node.finish("a", "call", "done");
    block_as_culprit(&mut node, "a");
    assert_eq!(node.status("a"), "running, blocked: PER-0302");
    assert_eq!(node.inbox("a"), [r#"ActivityCompleted of 2 "done""#]);
    assert!(node.row("a").owed, "its activity is open, and has no row");
    node
}

#[test]
fn g29_a_convict_is_not_tried_by_a_new_owner_nor_for_what_comes_for_it() {
    let mut node = culprit();
    node.crash().take_over();
    node.look_up();
    node.load();
    assert!(node.turns_to_take().is_empty(), "a new owner tries it");
    node.settle();
    // From here, from afar, and from afar while nobody has it in memory.
    let raised = node.raise("a", "n", "1");
    node.load();
    assert!(node.turns_to_take().is_empty(), "an event has it tried");
    node.settle();
    node.send_event("a", "n", "2");
    for _ in 0..2 {
        node.pass_inbox();
        node.load();
        assert!(node.turns_to_take().is_empty(), "an event from afar has it tried");
        node.settle();
        node.crash();
    }
    node.take_over().settle();
    assert_eq!(node.told(raised), "accepted");
    assert_eq!(
        node.inbox("a"),
        [r#"ActivityCompleted of 2 "done""#, r#"ExternalEvent "n" "1""#, r#"ExternalEvent "n" "2""#]
    );
    for hours in 1..48 {
        node.at(hours * 3_600_000);
        assert!(node.loads_to_make().is_empty(), "it is tried after {hours} hours");
        node.settle();
    }
    assert_eq!(node.row("a").blocked.map(|blocked| blocked.attempts), Some(1));
    assert_eq!(node.runs(), ["a call"]);
}

#[test]
fn g29_who_asks_a_convict_something_is_told_that_it_is_blocked() {
    let mut node = culprit();
    node.crash();
    let instance_call = InstanceCall::Query { name: "n".to_owned(), payload: Payload::null() };
    let RequestOutcome::Written(number) = node.send_request("a", &instance_call, 60_000) else {
        panic!("it exists")
    };
    node.pass_requests();
    node.load();
    assert!(node.turns_to_take().is_empty(), "a question has it tried");
    node.settle();
    let reply = format!("{:?}", node.reply(number));
    assert!(reply.contains("PER-0302"), "{reply}");
    let here = node.query("a", "n", ());
    node.settle();
    assert!(node.told(here).contains("PER-0302"), "{}", node.told(here));
}

#[test]
fn g29_a_convict_that_is_retried_goes_on_with_all_that_came_for_it() {
    for from_afar in [false, true] {
        let mut node = culprit();
        node.restart();
        node.raise("a", "n", "1");
        node.settle();
        if from_afar {
            node.send_message("a", &Message::Retry);
            node.pass_inbox().settle();
        } else {
            let retried = node.retry("a");
            node.settle();
            assert_eq!(node.told(retried), "accepted");
        }
        assert_eq!(node.status("a"), "running");
        node.raise("a", "n", "");
        node.settle();
        assert_eq!((node.status("a"), node.inbox("a").len()), ("completed".into(), 0));
    }
}

#[test]
fn g28_a_convict_needs_no_code_to_be_terminated_or_to_outlive_the_grace_of_a_cancel() {
    let mut node = culprit();
    node.restart();
    node.terminate("a", "enough");
    node.settle();
    assert_eq!((node.status("a"), node.inbox("a").len()), ("terminated".into(), 0));

    for from_afar in [false, true] {
        let mut node = culprit();
        node.restart();
        let grace_until_ms = node.now_ms() + ShardOptions::default().cancel_grace.as_millis() as u64;
        if from_afar {
            let reason = "enough".to_owned();
            let grace_ms = ShardOptions::default().cancel_grace.as_millis() as u64;
            let job = Job::OrchestrationCancelRequested { reason, grace_ms };
            node.send_message("a", &Message::Job(job));
            node.pass_inbox().settle();
        } else {
            node.cancel("a", "enough");
            node.settle();
        }
        assert_eq!(node.row("a").wake_at_ms, Some(grace_until_ms));
        node.restart();
        assert_eq!(node.status("a"), "running, blocked: PER-0302");
        node.at(grace_until_ms).settle();
        assert_eq!((node.status("a"), node.inbox("a").len()), ("terminated".into(), 0));
    }
}

#[test]
fn g28_a_retry_from_another_process_is_one_retry() {
    async fn panics(ctx: OrchestrationContext, _: Payload) -> Outcome {
        let _: Payload = ctx.schedule_wait("n").await;
        panic!("boom")
    }
    let mut node = ManualNode::new(handlers().with("panics", ManualNode::VERSION, panics));
    node.start("panics", "a", ());
    node.settle();
    node.raise("a", "n", "1");
    node.settle();
    node.send_message("a", &Message::Retry);
    for _ in 0..3 {
        node.pass_inbox().tick().settle();
    }
    assert_eq!(node.row("a").blocked.map(|blocked| blocked.attempts), Some(2));
    assert_eq!(node.inbox("a"), [r#"ExternalEvent "n" "1""#]);
}
