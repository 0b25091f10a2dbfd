//! Delayed starts and starts with events (G17), execution timeouts (G30), and ending what is blocked (G28).

use crate::shard_cases::{Outcome, handlers, handlers_and, number};
use perennial_core::shard::{Message, ShardOptions, Start};
use perennial_core::store::{InstanceRow, SendRequest};
use perennial_core::{InstanceKey, Job, OrchestrationContext, Payload, Started};
use perennial_testkit::ManualNode;

fn event(payload: &str) -> Job {
    Job::ExternalEvent {
        name: "n".to_owned(),
        payload: payload.into(),
        key: Some(payload.to_owned()),
        trace: None,
    }
}

/// `a` is to begin at 10,000.
fn delayed() -> ManualNode {
    let mut node = ManualNode::new(handlers());
    node.send_delayed_start("collect", "a", (), 10_000);
    node.pass_inbox().settle();
    node
}

/// Does everything that can be done, in a bounded number of steps.
fn settle_bounded(node: &mut ManualNode) {
    for _ in 0..100 {
        if !(node.look_up() || node.load() || node.take_turns() || node.commit() > 0 || node.follow_hint()) {
            return;
        }
    }
    panic!("it never comes to rest");
}

#[test]
fn g17_a_delayed_start_begins_at_its_time_and_costs_nothing_before() {
    for is_restarted in [false, true] {
        let mut node = delayed();
        assert_eq!((node.status("a"), node.in_memory("a")), ("pending".into(), 0));
        node.tick().settle();
        node.at(9_999).settle();
        assert_eq!((node.status("a"), node.in_memory("a")), ("pending".into(), 0));
        if is_restarted {
            node.restart();
            assert_eq!(node.status("a"), "pending");
        }
        node.at(10_000).settle();
        assert_eq!((node.status("a"), node.inbox("a").len()), ("running".into(), 0));
    }
}

#[test]
fn g17_what_comes_for_a_delayed_instance_is_kept_and_taken_in_order() {
    for is_restarted in [false, true] {
        let mut node = delayed();
        node.send_event("a", "n", "1");
        node.pass_inbox();
        settle_bounded(&mut node);
        let raised = node.raise("a", "n", "2");
        settle_bounded(&mut node);
        assert_eq!((node.told(raised), node.status("a")), ("accepted".into(), "pending".into()));
        if is_restarted {
            node.crash().take_over();
            settle_bounded(&mut node);
        }
        node.at(9_999);
        settle_bounded(&mut node);
        assert_eq!(node.status("a"), "pending");
        node.at(10_000);
        settle_bounded(&mut node);
        node.raise("a", "n", "end");
        settle_bounded(&mut node);
        assert_eq!(
            node.last_lines("a", 1)[0].split_once(' ').unwrap().1,
            r#"OrchestrationCompleted ["1","2"]"#
        );
        assert!(node.inbox("a").is_empty());
    }
}

#[test]
fn g17_a_delayed_instance_is_cancelled_and_terminated_at_once() {
    for is_known in [false, true] {
        for (is_cancel, status) in [(true, "cancelled"), (false, "terminated")] {
            let mut node = delayed();
            if is_known {
                node.raise("a", "n", "1");
                settle_bounded(&mut node);
            }
            let asked = if is_cancel { node.cancel("a", "enough") } else { node.terminate("a", "enough") };
            settle_bounded(&mut node);
            assert_eq!((node.told(asked), node.status("a")), ("accepted".into(), status.into()));
            assert_eq!((node.in_memory("a"), node.inbox("a").len()), (0, 0));
        }
    }
}

#[test]
fn g10_a_retry_that_is_sent_to_a_delayed_instance_changes_nothing() {
    let mut node = delayed();
    let asked = node.retry("a");
    settle_bounded(&mut node);
    assert_eq!(node.told(asked), "not blocked");
    node.send_message("a", &Message::Retry);
    node.pass_inbox();
    settle_bounded(&mut node);
    assert_eq!(node.status("a"), "pending");
    node.at(10_000);
    settle_bounded(&mut node);
    assert_eq!((node.status("a"), node.inbox("a").len()), ("running".into(), 0));
}

#[test]
fn g17_a_delayed_instance_answers_that_it_has_not_begun() {
    let mut node = delayed();
    let asked = [node.query("a", "x", ()), node.update("a", "x", None, ())];
    settle_bounded(&mut node);
    for told in node.told_all(asked) {
        assert!(told.starts_with("refused: "), "{told}");
    }
    node.at(10_000);
    settle_bounded(&mut node);
    assert_eq!(node.status("a"), "running");
}

#[test]
fn g17_a_start_brings_its_events_and_a_failed_first_turn_keeps_them() {
    let mut node = ManualNode::new(handlers());
    let started = Started::new("collect", ManualNode::VERSION, (), 1);
    let asked = node.start_with_jobs("a", started, vec![event("1"), event("2")]);
    node.settle();
    assert_eq!(node.told(asked), "started");
    assert_eq!(node.writes("a"), ["insert running, turn 1"], "all in the first turn");
    node.raise_once("a", "n", "1", "1");
    node.raise("a", "n", "end");
    node.settle();
    assert!(node.last_lines("a", 1)[0].ends_with(r#"["1","2"]"#), "once each: {:?}", node.last_lines("a", 1));

    let mut node = ManualNode::new(handlers());
    node.start_with_jobs("a", Started::new("late", ManualNode::VERSION, (), 1), vec![event("1")]);
    node.settle();
    assert_eq!(node.status("a"), "pending, blocked: PER-0301");
    node.raise("a", "n", "end");
    node.settle();
    node.replace_code(handlers_and("late", crate::shard_cases::collect)).restart();
    assert!(node.last_lines("a", 1)[0].ends_with(r#"["1"]"#), "{:?}", node.last_lines("a", 1));
}

fn with_deadline(node: &mut ManualNode, name: &str, deadline_ms: u64) {
    let started =
        Started { deadline_ms: Some(deadline_ms), ..Started::new(name, ManualNode::VERSION, number(1), 1) };
    node.start_with("a", started);
    node.settle();
}

const TIMEOUT: &str = r#"OrchestrationTerminated "timeout""#;

fn last(node: &ManualNode) -> String {
    node.last_lines("a", 1)[0].split_once(' ').expect("an id and a line").1.to_owned()
}

#[test]
fn g30_an_execution_timeout_ends_the_instance_wherever_it_is() {
    for max_resident in [0, 1_000] {
        for is_restarted in [false, true] {
            let options = ShardOptions { max_resident, ..ShardOptions::default() };
            let mut node = ManualNode::with_options(handlers(), options);
            with_deadline(&mut node, "steps", 100_000);
            assert_eq!(node.row("a").wake_at_ms, Some(100_000));
            if is_restarted {
                node.restart();
            }
            node.at(99_999).settle();
            assert_eq!(node.status("a"), "running");
            node.at(100_000).settle();
            assert_eq!((node.status("a"), last(&node)), ("terminated".into(), TIMEOUT.into()));
            assert_eq!((node.stops().len(), node.tasks("a").len()), (1, 0), "what it ran is told to stop");
        }
    }
}

#[test]
fn g30_a_result_in_time_beats_the_timeout() {
    let mut node = ManualNode::new(handlers());
    with_deadline(&mut node, "steps", 100_000);
    node.at(99_999);
    node.finish("a", "A1", "1");
    node.at(100_000).settle();
    assert_eq!(node.status("a"), "completed");
}

#[test]
fn g30_a_blocked_instance_times_out_without_its_code() {
    async fn panics(ctx: OrchestrationContext, _: Payload) -> Outcome {
        let _: Payload = ctx.schedule_wait("n").await;
        panic!("boom")
    }
    let mut node = ManualNode::new(handlers_and("panics", panics));
    with_deadline(&mut node, "panics", 100_000);
    node.raise("a", "n", "1");
    node.settle();
    assert_eq!(node.status("a"), "running, blocked: PER-0201");
    for now_ms in (2_000..=100_000).step_by(2_000) {
        node.at(now_ms).settle();
    }
    assert_eq!((node.status("a"), last(&node)), ("terminated".into(), TIMEOUT.into()));
}

#[test]
fn g30_an_instance_whose_first_turn_never_went_through_times_out() {
    for is_restarted in [false, true] {
        let mut node = ManualNode::new(handlers());
        with_deadline(&mut node, "missing", 2_500);
        assert_eq!(node.status("a"), "pending, blocked: PER-0301");
        if is_restarted {
            node.restart();
        }
        node.at(2_000).settle();
        node.at(2_500).settle();
        assert_eq!((node.status("a"), last(&node)), ("terminated".into(), TIMEOUT.into()));
        assert!(node.inbox("a").is_empty());
    }
}

#[test]
fn g30_an_execution_that_was_continued_into_missing_code_times_out() {
    async fn on(ctx: OrchestrationContext, _: Payload) -> Outcome {
        ctx.continue_as_new_versioned("9.0.0", ()).await
    }
    let mut node = ManualNode::new(handlers_and("on", on));
    with_deadline(&mut node, "on", 2_500);
    assert_eq!((node.status("a"), node.row("a").execution), ("running, blocked: PER-0301".into(), 2));
    node.at(2_000).settle();
    node.at(2_500).settle();
    assert_eq!((node.status("a"), last(&node)), ("terminated".into(), TIMEOUT.into()));
}

#[test]
fn g28_a_cancel_ends_a_blocked_instance_after_its_grace_without_its_code() {
    for is_pending in [false, true] {
        for is_restarted in [false, true] {
            let mut node = ManualNode::new(handlers());
            if is_pending {
                node.start("missing", "a", ());
                node.settle();
            } else {
                node.start("steps", "a", number(1));
                node.settle();
                node.replace_code(perennial_core::Handlers::default()).restart();
            }
            assert!(node.status("a").ends_with("blocked: PER-0301"));
            let asked = node.cancel("a", "enough");
            node.settle();
            assert_eq!(node.told(asked), "accepted");
            if is_restarted {
                node.restart();
            }
            node.at(30_999).settle();
            assert!(node.status("a").ends_with("blocked: PER-0301"), "it may be cured until then");
            node.at(31_000).settle();
            assert_eq!((node.status("a"), node.inbox("a").len()), ("terminated".into(), 0));
            assert!(last(&node).contains("enough"), "{}", last(&node));
        }
    }
}

#[test]
fn g28_a_blocked_instance_is_terminated_at_once_with_its_tasks_and_children() {
    async fn both(ctx: OrchestrationContext, _: Payload) -> Outcome {
        let child = ctx.schedule_sub_orchestration_with_id("collect", "child", ());
        let work = ctx.schedule_activity("work", ());
        let _ = ctx.join2(child, work).await;
        Ok("over".into())
    }
    let mut node = ManualNode::new(handlers_and("both", both));
    node.start("both", "a", ());
    node.settle();
    node.heartbeat("a", "work", "half").settle();
    node.replace_code(handlers()).restart();
    assert_eq!((node.status("a"), node.tasks("a").len()), ("running, blocked: PER-0301".into(), 1));
    let asked = node.terminate("a", "enough");
    node.settle();
    assert_eq!((node.told(asked), node.status("a")), ("accepted".into(), "terminated".into()));
    assert_eq!((node.tasks("a").len(), node.status("child")), (0, "cancelled".into()));
}

#[test]
fn e23_a_cancel_that_was_carried_into_a_blocked_execution_ends_it_when_its_grace_is_over() {
    async fn goes_on(ctx: OrchestrationContext, input: Payload) -> Outcome {
        assert_eq!(input, "first".into(), "boom");
        ctx.cancelled().await;
        ctx.continue_as_new::<()>("second").await;
        Ok(input)
    }
    for is_restarted in [false, true] {
        let mut node = ManualNode::new(handlers_and("goes_on", goes_on));
        node.start("goes_on", "a", "first");
        node.settle();
        node.cancel("a", "enough");
        node.settle();
        assert_eq!(node.status("a"), "running, blocked: PER-0201");
        if is_restarted {
            node.restart();
        }
        let grace_until_ms = 1_000 + ShardOptions::default().cancel_grace.as_millis() as u64;
        node.at(grace_until_ms - 1).settle();
        assert_eq!(node.status("a"), "running, blocked: PER-0201");
        node.at(grace_until_ms).settle();
        assert_eq!((node.status("a"), node.inbox("a").len()), ("terminated".into(), 0));
        assert_eq!(
            node.last_lines("a", 1),
            [r#"2 OrchestrationTerminated "cancelled, but did not end within its grace period: enough""#]
        );
    }
}

#[test]
fn g30_a_delayed_instance_whose_time_is_up_before_it_begins_ends_then() {
    let mut node = ManualNode::new(handlers());
    let started = Started { deadline_ms: Some(5_000), ..Started::new("collect", ManualNode::VERSION, (), 1) };
    let row = InstanceRow::pending(InstanceKey::new(1_000, 77), "a", &started, 1_000);
    let row = InstanceRow { wake_at_ms: Some(5_000), ..row };
    let start = Start { not_before_ms: Some(10_000), ..Start::new(started) };
    let body = Message::Start(Box::new(start)).encode();
    node.send(SendRequest::Start { row: Box::new(row), body });
    // What comes for it brings it into memory.
    node.raise("a", "n", "1");
    settle_bounded(&mut node);
    assert_eq!((node.status("a"), node.next_wake_ms("a")), ("pending".into(), Some(5_000)));
    node.at(5_000);
    settle_bounded(&mut node);
    assert_eq!((node.status("a"), node.inbox("a").len()), ("terminated".into(), 0));
}

#[test]
fn g30_an_instance_that_never_grew_back_ends_when_its_time_is_up_and_is_not_tried_before() {
    let mut node = ManualNode::new(handlers());
    let sleep = Started::new("sleep", ManualNode::VERSION, number(50_000), 1);
    node.start_with("a", Started { deadline_ms: Some(500_000), ..sleep });
    node.settle();
    node.crash().take_over();
    node.at(51_000).load();
    node.lose_turn("a");
    settle_bounded(&mut node);
    assert_eq!(node.status("a"), "running, blocked: PER-0205");
    assert_eq!(node.row("a").wake_at_ms, Some(500_000), "it is not late");
    // Another process has it looked at.
    let reason = "enough".to_owned();
    let cancel = Job::OrchestrationCancelRequested { reason, grace_ms: 600_000 };
    node.send_message("a", &Message::Job(cancel));
    node.at(400_000).load();
    assert!(node.turns_to_take().is_empty(), "its turn did not end in this process");
    settle_bounded(&mut node);
    node.at(500_000);
    settle_bounded(&mut node);
    assert_eq!((node.status("a"), node.inbox("a").len()), ("terminated".into(), 0));
}

#[test]
fn g19_who_asks_before_the_start_is_told_so_in_words_that_fit_the_question() {
    let mut node = delayed();
    let asked = [node.query("a", "list", ()), node.update("a", "add", None, "x")];
    node.settle();
    let told = node.told_all(asked);
    assert!(told[0].contains("PER-0207 query: the instance has not started"), "{told:?}");
    assert!(told[1].contains("PER-0208 update: the instance has not started"), "{told:?}");
}
