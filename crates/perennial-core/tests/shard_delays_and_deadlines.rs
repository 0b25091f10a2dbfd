//! Delayed starts and starts with events (G17), execution timeouts (G30), and ending what is blocked (G28).

mod shard_cases;

use perennial_core::shard::{Message, ShardOptions, Start};
use perennial_core::store::{InstanceRow, SendRequest};
use perennial_core::{InstanceKey, Job, OrchestrationContext, Payload, Started};
use perennial_testkit::Desk;
use shard_cases::{Outcome, handlers, handlers_and, number};

fn event(payload: &str) -> Job {
    Job::ExternalEvent { name: "n".to_owned(), payload: payload.into(), key: Some(payload.to_owned()) }
}

/// `a` is to begin at 10,000.
fn delayed() -> Desk {
    let mut desk = Desk::new(handlers());
    desk.send_delayed_start("collect", "a", (), 10_000);
    desk.pass_inbox().settle();
    desk
}

/// Does everything that can be done, in a bounded number of steps.
fn settle_bounded(desk: &mut Desk) {
    for _ in 0..100 {
        if !(desk.look_up() || desk.load() || desk.take_turns() || desk.commit() > 0 || desk.follow_hint()) {
            return;
        }
    }
    panic!("it never comes to rest");
}

#[test]
fn g17_a_delayed_start_begins_at_its_time_and_costs_nothing_before() {
    for is_restarted in [false, true] {
        let mut desk = delayed();
        assert_eq!((desk.status("a"), desk.in_memory("a")), ("pending".into(), 0));
        desk.tick().settle();
        desk.at(9_999).settle();
        assert_eq!((desk.status("a"), desk.in_memory("a")), ("pending".into(), 0));
        if is_restarted {
            desk.restart();
            assert_eq!(desk.status("a"), "pending");
        }
        desk.at(10_000).settle();
        assert_eq!((desk.status("a"), desk.inbox("a").len()), ("running".into(), 0));
    }
}

#[test]
fn g17_what_comes_for_a_delayed_instance_is_kept_and_taken_in_order() {
    for is_restarted in [false, true] {
        let mut desk = delayed();
        desk.send_event("a", "n", "1");
        desk.pass_inbox();
        settle_bounded(&mut desk);
        let raised = desk.raise("a", "n", "2");
        settle_bounded(&mut desk);
        assert_eq!((desk.told(raised), desk.status("a")), ("accepted".into(), "pending".into()));
        if is_restarted {
            desk.crash().take_over();
            settle_bounded(&mut desk);
        }
        desk.at(9_999);
        settle_bounded(&mut desk);
        assert_eq!(desk.status("a"), "pending");
        desk.at(10_000);
        settle_bounded(&mut desk);
        desk.raise("a", "n", "end");
        settle_bounded(&mut desk);
        assert_eq!(
            desk.last_lines("a", 1)[0].split_once(' ').unwrap().1,
            r#"OrchestrationCompleted ["1","2"]"#
        );
        assert!(desk.inbox("a").is_empty());
    }
}

#[test]
fn g17_a_delayed_instance_is_cancelled_and_terminated_at_once() {
    for is_known in [false, true] {
        for (is_cancel, status) in [(true, "cancelled"), (false, "terminated")] {
            let mut desk = delayed();
            if is_known {
                desk.raise("a", "n", "1");
                settle_bounded(&mut desk);
            }
            let asked = if is_cancel { desk.cancel("a", "enough") } else { desk.terminate("a", "enough") };
            settle_bounded(&mut desk);
            assert_eq!((desk.told(asked), desk.status("a")), ("accepted".into(), status.into()));
            assert_eq!((desk.in_memory("a"), desk.inbox("a").len()), (0, 0));
        }
    }
}

#[test]
fn g10_a_retry_that_is_sent_to_a_delayed_instance_changes_nothing() {
    let mut desk = delayed();
    let asked = desk.retry("a");
    settle_bounded(&mut desk);
    assert_eq!(desk.told(asked), "not blocked");
    desk.send_message("a", &Message::Retry);
    desk.pass_inbox();
    settle_bounded(&mut desk);
    assert_eq!(desk.status("a"), "pending");
    desk.at(10_000);
    settle_bounded(&mut desk);
    assert_eq!((desk.status("a"), desk.inbox("a").len()), ("running".into(), 0));
}

#[test]
fn g17_a_delayed_instance_answers_that_it_has_not_begun() {
    let mut desk = delayed();
    let asked = [desk.query("a", "x", ()), desk.update("a", "x", None, ())];
    settle_bounded(&mut desk);
    for told in desk.told_all(asked) {
        assert!(told.starts_with("refused: "), "{told}");
    }
    desk.at(10_000);
    settle_bounded(&mut desk);
    assert_eq!(desk.status("a"), "running");
}

#[test]
fn g17_a_start_brings_its_events_and_a_failed_first_turn_keeps_them() {
    let mut desk = Desk::new(handlers());
    let started = Started::new("collect", Desk::VERSION, (), 1);
    let asked = desk.start_with_jobs("a", started, vec![event("1"), event("2")]);
    desk.settle();
    assert_eq!(desk.told(asked), "started");
    assert_eq!(desk.writes("a"), ["insert running, turn 1"], "all in the first turn");
    desk.raise_once("a", "n", "1", "1");
    desk.raise("a", "n", "end");
    desk.settle();
    assert!(desk.last_lines("a", 1)[0].ends_with(r#"["1","2"]"#), "once each: {:?}", desk.last_lines("a", 1));

    let mut desk = Desk::new(handlers());
    desk.start_with_jobs("a", Started::new("late", Desk::VERSION, (), 1), vec![event("1")]);
    desk.settle();
    assert_eq!(desk.status("a"), "pending, blocked: PER-0301");
    desk.raise("a", "n", "end");
    desk.settle();
    desk.replace_code(handlers_and("late", shard_cases::collect)).restart();
    assert!(desk.last_lines("a", 1)[0].ends_with(r#"["1"]"#), "{:?}", desk.last_lines("a", 1));
}

fn with_deadline(desk: &mut Desk, name: &str, deadline_ms: u64) {
    let started =
        Started { deadline_ms: Some(deadline_ms), ..Started::new(name, Desk::VERSION, number(1), 1) };
    desk.start_with("a", started);
    desk.settle();
}

const TIMEOUT: &str = r#"OrchestrationTerminated "timeout""#;

fn last(desk: &Desk) -> String {
    desk.last_lines("a", 1)[0].split_once(' ').expect("an id and a line").1.to_owned()
}

#[test]
fn g30_an_execution_timeout_ends_the_instance_wherever_it_is() {
    for max_resident in [0, 1_000] {
        for is_restarted in [false, true] {
            let options = ShardOptions { max_resident, ..ShardOptions::default() };
            let mut desk = Desk::with_options(handlers(), options);
            with_deadline(&mut desk, "steps", 100_000);
            assert_eq!(desk.row("a").wake_at_ms, Some(100_000));
            if is_restarted {
                desk.restart();
            }
            desk.at(99_999).settle();
            assert_eq!(desk.status("a"), "running");
            desk.at(100_000).settle();
            assert_eq!((desk.status("a"), last(&desk)), ("terminated".into(), TIMEOUT.into()));
            assert_eq!((desk.stops().len(), desk.tasks("a").len()), (1, 0), "what it ran is told to stop");
        }
    }
}

#[test]
fn g30_a_result_in_time_beats_the_timeout() {
    let mut desk = Desk::new(handlers());
    with_deadline(&mut desk, "steps", 100_000);
    desk.at(99_999);
    desk.finish("a", "A1", "1");
    desk.at(100_000).settle();
    assert_eq!(desk.status("a"), "completed");
}

#[test]
fn g30_a_blocked_instance_times_out_without_its_code() {
    async fn panics(ctx: OrchestrationContext, _: Payload) -> Outcome {
        let _: Payload = ctx.schedule_wait("n").await;
        panic!("boom")
    }
    let mut desk = Desk::new(handlers_and("panics", panics));
    with_deadline(&mut desk, "panics", 100_000);
    desk.raise("a", "n", "1");
    desk.settle();
    assert_eq!(desk.status("a"), "running, blocked: PER-0201");
    for now_ms in (2_000..=100_000).step_by(2_000) {
        desk.at(now_ms).settle();
    }
    assert_eq!((desk.status("a"), last(&desk)), ("terminated".into(), TIMEOUT.into()));
}

#[test]
fn g30_an_instance_whose_first_turn_never_went_through_times_out() {
    for is_restarted in [false, true] {
        let mut desk = Desk::new(handlers());
        with_deadline(&mut desk, "missing", 2_500);
        assert_eq!(desk.status("a"), "pending, blocked: PER-0301");
        if is_restarted {
            desk.restart();
        }
        desk.at(2_000).settle();
        desk.at(2_500).settle();
        assert_eq!((desk.status("a"), last(&desk)), ("terminated".into(), TIMEOUT.into()));
        assert!(desk.inbox("a").is_empty());
    }
}

#[test]
fn g30_an_execution_that_was_continued_into_missing_code_times_out() {
    async fn on(ctx: OrchestrationContext, _: Payload) -> Outcome {
        ctx.continue_as_new_versioned("9.0.0", ()).await
    }
    let mut desk = Desk::new(handlers_and("on", on));
    with_deadline(&mut desk, "on", 2_500);
    assert_eq!((desk.status("a"), desk.row("a").execution), ("running, blocked: PER-0301".into(), 2));
    desk.at(2_000).settle();
    desk.at(2_500).settle();
    assert_eq!((desk.status("a"), last(&desk)), ("terminated".into(), TIMEOUT.into()));
}

#[test]
fn g28_a_cancel_ends_a_blocked_instance_after_its_grace_without_its_code() {
    for is_pending in [false, true] {
        for is_restarted in [false, true] {
            let mut desk = Desk::new(handlers());
            if is_pending {
                desk.start("missing", "a", ());
                desk.settle();
            } else {
                desk.start("steps", "a", number(1));
                desk.settle();
                desk.replace_code(perennial_core::Handlers::default()).restart();
            }
            assert!(desk.status("a").ends_with("blocked: PER-0301"));
            let asked = desk.cancel("a", "enough");
            desk.settle();
            assert_eq!(desk.told(asked), "accepted");
            if is_restarted {
                desk.restart();
            }
            desk.at(30_999).settle();
            assert!(desk.status("a").ends_with("blocked: PER-0301"), "it may be cured until then");
            desk.at(31_000).settle();
            assert_eq!((desk.status("a"), desk.inbox("a").len()), ("terminated".into(), 0));
            assert!(last(&desk).contains("enough"), "{}", last(&desk));
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
    let mut desk = Desk::new(handlers_and("both", both));
    desk.start("both", "a", ());
    desk.settle();
    desk.heartbeat("a", "work", "half").settle();
    desk.replace_code(handlers()).restart();
    assert_eq!((desk.status("a"), desk.tasks("a").len()), ("running, blocked: PER-0301".into(), 1));
    let asked = desk.terminate("a", "enough");
    desk.settle();
    assert_eq!((desk.told(asked), desk.status("a")), ("accepted".into(), "terminated".into()));
    assert_eq!((desk.tasks("a").len(), desk.status("child")), (0, "cancelled".into()));
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
        let mut desk = Desk::new(handlers_and("goes_on", goes_on));
        desk.start("goes_on", "a", "first");
        desk.settle();
        desk.cancel("a", "enough");
        desk.settle();
        assert_eq!(desk.status("a"), "running, blocked: PER-0201");
        if is_restarted {
            desk.restart();
        }
        let grace_until_ms = 1_000 + ShardOptions::default().cancel_grace_ms;
        desk.at(grace_until_ms - 1).settle();
        assert_eq!(desk.status("a"), "running, blocked: PER-0201");
        desk.at(grace_until_ms).settle();
        assert_eq!((desk.status("a"), desk.inbox("a").len()), ("terminated".into(), 0));
        assert_eq!(
            desk.last_lines("a", 1),
            [r#"2 OrchestrationTerminated "cancelled, and not done in time: enough""#]
        );
    }
}

#[test]
fn g30_a_delayed_instance_whose_time_is_up_before_it_begins_ends_then() {
    let mut desk = Desk::new(handlers());
    let started = Started { deadline_ms: Some(5_000), ..Started::new("collect", Desk::VERSION, (), 1) };
    let row = InstanceRow::pending(InstanceKey::new(1_000, 77), "a", &started, 1_000);
    let row = InstanceRow { wake_at_ms: Some(5_000), ..row };
    let start = Start { not_before_ms: Some(10_000), ..Start::new(started) };
    let body = Message::Start(Box::new(start)).encode();
    desk.send(SendRequest::Start { row: Box::new(row), body });
    // What comes for it brings it into memory.
    desk.raise("a", "n", "1");
    settle_bounded(&mut desk);
    assert_eq!((desk.status("a"), desk.next_wake_ms("a")), ("pending".into(), Some(5_000)));
    desk.at(5_000);
    settle_bounded(&mut desk);
    assert_eq!((desk.status("a"), desk.inbox("a").len()), ("terminated".into(), 0));
}

#[test]
fn g30_an_instance_that_never_grew_back_ends_when_its_time_is_up_and_is_not_tried_before() {
    let mut desk = Desk::new(handlers());
    let sleep = Started::new("sleep", Desk::VERSION, number(50_000), 1);
    desk.start_with("a", Started { deadline_ms: Some(500_000), ..sleep });
    desk.settle();
    desk.crash().take_over();
    desk.at(51_000).load();
    desk.lose_turn("a");
    settle_bounded(&mut desk);
    assert_eq!(desk.status("a"), "running, blocked: PER-0205");
    assert_eq!(desk.row("a").wake_at_ms, Some(500_000), "it is not late");
    // Another process has it looked at.
    let reason = "enough".to_owned();
    let cancel = Job::OrchestrationCancelRequested { reason, grace_until_ms: 600_000 };
    desk.send_message("a", &Message::Job(cancel));
    desk.at(400_000).load();
    assert!(desk.turns_to_take().is_empty(), "its turn did not end in this process");
    settle_bounded(&mut desk);
    desk.at(500_000);
    settle_bounded(&mut desk);
    assert_eq!((desk.status("a"), desk.inbox("a").len()), ("terminated".into(), 0));
}
