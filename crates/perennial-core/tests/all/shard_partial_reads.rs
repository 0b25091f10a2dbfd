//! Reads that are cut, late, or fail: nothing is overtaken, forgotten or delivered twice.

use std::sync::Arc;
use std::time::Duration;

use crate::shard_cases::{Outcome, fails_later, handlers, handlers_and, number, settle_for_a_while};
use perennial_core::shard::{Request, ShardOptions};
use perennial_core::store::{CommitOutcome, InboxNumber, SendOutcome, StoreError};
use perennial_core::{Handlers, OrchestrationContext, Payload};
use perennial_testkit::ManualNode;

async fn goes_round(ctx: OrchestrationContext, input: Payload) -> Outcome {
    if input == "second".into() {
        return Ok(ctx.schedule_wait("end").await);
    }
    let _: Payload = ctx.schedule_wait("go").await;
    ctx.continue_as_new("second").await
}

#[test]
fn g26_a_successor_begins_however_many_bytes_wait_before_its_start() {
    let mut node = ManualNode::new(handlers_and("goes_round", goes_round));
    node.start("goes_round", "a", "first");
    node.settle();
    for _ in 0..17 {
        node.send_event("a", "n", "x".repeat(4_000_000));
    }
    node.raise("a", "go", ());
    node.take_turns();
    assert_eq!(node.commit(), 1);
    assert_eq!(node.row("a").execution, 2);
    node.crash();
    let raised = node.raise("a", "n", "1");
    settle_for_a_while(&mut node);
    node.at(3_600_000);
    settle_for_a_while(&mut node);
    assert_eq!((node.told(raised), node.status("a")), ("accepted".into(), "running".into()));
}

#[test]
fn g12_a_page_of_due_instances_that_is_late_makes_no_wake_later() {
    let options = ShardOptions {
        cancel_grace: Duration::from_millis(1_000),
        retry_first: Duration::from_millis(50_000),
        ..ShardOptions::default()
    };
    let mut node = ManualNode::with_options(handlers(), options.clone());
    node.start("fan", "a", number(2));
    node.settle();
    node.replace_code(Handlers::default()).restart();
    assert_eq!(node.status("a"), "running, blocked: PER-0301");
    node.slow_down("read_due");
    node.hint(&perennial_core::store::Changes::default());
    let mut now_ms = node.now_ms();
    let mut pages = node.read_slow();
    while pages.is_empty() {
        now_ms += 500;
        node.set_clock(now_ms);
        node.hint(&perennial_core::store::Changes::default());
        pages = node.read_slow();
        assert!(now_ms < 45_000, "the lane reads ahead");
    }
    node.cancel("a", "enough");
    node.settle();
    let ends_ms = node.now_ms() + 1_000;
    assert_eq!(node.next_wake_ms("a"), Some(ends_ms));
    pages.into_iter().for_each(|page| node.bring(page));
    assert_eq!(node.next_wake_ms("a"), Some(ends_ms), "the grace would end late");
}

/// Sends more events than one read brings. Returns the number of the last.
fn send_more_than_a_read(node: &mut ManualNode) -> Option<InboxNumber> {
    let mut last = None;
    for _ in 0..17 {
        if let SendOutcome::Sent(number) = node.send_event("a", "n", "x".repeat(4_000_000)) {
            last = Some(number);
        }
    }
    last
}

#[test]
fn n16_a_request_waits_for_a_message_that_a_cut_read_does_not_bring() {
    let mut node = ManualNode::new(handlers());
    node.start("collect", "a", ());
    node.settle();
    let last = send_more_than_a_read(&mut node);
    let (name, payload) = ("n".to_owned(), Payload::from("after"));
    node.request_after("a", Request::Raise { name, payload, key: None, trace: None }, last);
    settle_for_a_while(&mut node);
    let events: Vec<_> = node.jobs("a").into_iter().filter(|job| job.source_event_id().is_none()).collect();
    let place = events.iter().position(|job| format!("{job:?}").contains("after"));
    assert_eq!((events.len(), place), (18, Some(17)));
}

#[test]
fn n16_a_request_behind_a_cut_read_is_kept_when_its_instance_blocks() {
    let mut node = ManualNode::new(handlers_and("fails_later", fails_later));
    node.start("fails_later", "a", ());
    node.settle();
    let last = send_more_than_a_read(&mut node);
    let (name, payload) = ("n".to_owned(), Payload::from("after"));
    let request = node.request_after("a", Request::Raise { name, payload, key: None, trace: None }, last);
    node.settle();
    assert_eq!(
        (node.status("a"), node.told(request)),
        ("running, blocked: PER-0201".into(), "accepted".into())
    );
    assert_eq!(node.inbox("a").len(), 18);
}

#[test]
fn g22_a_task_is_queued_again_once_though_the_turn_that_takes_the_message_fails() {
    async fn broken(ctx: OrchestrationContext, _: Payload) -> Outcome {
        let _remote = ctx.schedule_activity("remote", "in").tag("gpu");
        let _: Payload = ctx.schedule_wait("n").await;
        panic!("boom")
    }
    let served = Some(Arc::new(ManualNode::served(&["remote"], &[])));
    let options = ShardOptions { served, ..ShardOptions::default() };
    let mut node = ManualNode::with_options(handlers_and("broken", broken), options);
    node.start("broken", "a", ());
    node.settle();
    let task = node.take_tasks(&["remote"], 60_000).pop().expect("it is queued");
    assert!(node.cannot_read_task(&task));
    node.send_event("a", "n", "1");
    // Whoever loads it finds both messages, and delivers them together.
    node.restart();
    assert_eq!((node.status("a"), node.inbox("a").len()), ("running, blocked: PER-0201".into(), 2));
    assert_eq!(node.take_tasks(&["remote"], 60_000).len(), 1, "it is queued again");
    let leased = node.tasks("a");
    node.retry("a");
    node.settle();
    assert_eq!(node.tasks("a"), leased, "another node has it");
}

#[test]
fn g15_a_message_that_came_during_a_second_look_that_failed_is_delivered() {
    let mut node = ManualNode::new(handlers());
    node.start("collect", "a", ());
    node.settle();
    node.hold_back();
    let (name, payload) = ("n".to_owned(), Payload::from("late"));
    node.request_after("a", Request::Raise { name, payload, key: None, trace: None }, Some(99));
    node.send_event("a", "n", "meanwhile");
    node.pass_inbox();
    node.refresh_failing(&StoreError::CorruptRow("no".to_owned()));
    node.settle();
    assert_eq!(node.inbox("a"), Vec::<String>::new(), "nobody else tells of it");
}

#[test]
fn g11_an_instance_that_cannot_be_marked_as_blocked_leaves_memory_and_is_tried_again() {
    let options = ShardOptions {
        idle: Duration::from_millis(1_000),
        lookahead: Duration::from_millis(1_000),
        retry_first: Duration::from_millis(500_000),
        ..ShardOptions::default()
    };
    let mut node = ManualNode::with_options(handlers(), options);
    node.start("collect", "a", ());
    node.settle();
    node.raise("a", "n", "1");
    node.take_turns();
    node.commit_as("a", CommitOutcome::Rejected("too large".to_owned()));
    node.commit_as("a", CommitOutcome::Rejected("too large".to_owned()));
    let retry_ms = node.next_wake_ms("a").expect("it is tried again");
    node.at(60_000).settle();
    assert_eq!(node.in_memory("a"), 0);
    node.at(retry_ms);
    assert_eq!(node.loads_to_make(), ["a"]);
}
