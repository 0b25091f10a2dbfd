//! Children: one per schedule, one outcome, and what becomes of them when their parent ends (G25).

use crate::shard_cases::{Outcome, handlers, number, secs};
use perennial_core::store::DeleteOutcome;
use perennial_core::{ClosePolicy, Handlers, Job, OrchestrationContext, Payload, Started};
use perennial_testkit::ManualNode;

/// Starts a child and ends with what came of it. The input names the child's orchestration and id.
async fn parent(ctx: OrchestrationContext, input: Payload) -> Outcome {
    let (name, id, child_input): (String, Option<String>, Payload) = input.decode().expect("what to start");
    let child = match id {
        Some(id) => ctx.schedule_sub_orchestration_with_id(name, id, child_input),
        None => ctx.schedule_sub_orchestration(name, child_input),
    };
    child.await.map_err(|failure| Payload::from(format!("{failure:?}")))
}

/// A child `collect`, given up after 5 s; then waits for an event.
async fn gives_up(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let child = ctx.schedule_sub_orchestration_with_id("collect", "child", ());
    ctx.select2(child, ctx.schedule_timer(secs(5))).await;
    Ok(ctx.schedule_wait("n").await)
}

/// Starts three children with both policies, and ends with the next event.
async fn leaves(ctx: OrchestrationContext, input: Payload) -> Outcome {
    let default = ctx.schedule_sub_orchestration_with_id("collect", "default", ());
    let abandoned =
        ctx.schedule_sub_orchestration_with_id("collect", "abandoned", ()).close_policy(ClosePolicy::Abandon);
    let both = ctx.spawn(async move { (default.await.is_ok(), abandoned.await.is_ok()) });
    let end: Payload = ctx.schedule_wait("n").await;
    if end == "again".into() {
        return ctx.continue_as_new(input).await;
    }
    drop(both);
    if end == "fail".into() { Err(end) } else { Ok(end) }
}

/// Continues as new until its input is 3; then ends with it.
async fn thrice(ctx: OrchestrationContext, input: Payload) -> Outcome {
    let count: u64 = input.decode().expect("a number");
    if count < 3 {
        ctx.schedule_activity("work", input).await.map_err(|_| Payload::null())?;
        return ctx.continue_as_new(number(count + 1)).await;
    }
    Ok(input)
}

fn all() -> Handlers {
    let version = ManualNode::VERSION;
    handlers()
        .with("parent", version, parent)
        .with("gives_up", version, gives_up)
        .with("leaves", version, leaves)
        .with("thrice", version, thrice)
}

fn to_start(name: &str, id: Option<&str>, input: impl Into<Payload>) -> Payload {
    Payload::encode(&(name, id, input.into())).expect("it encodes")
}

/// A parent `a` of `name`.
fn with_child(name: &str, id: Option<&str>, input: impl Into<Payload>) -> ManualNode {
    let mut node = ManualNode::new(all());
    node.start("parent", "a", to_start(name, id, input));
    node.settle();
    node
}

fn ending(node: &ManualNode, id: &str) -> String {
    let last = node.last_lines(id, 1).pop().expect("it has events");
    last.split_once(' ').expect("a number and a line").1.to_owned()
}

#[test]
fn g25_a_childs_id_is_the_callers_or_derived_from_its_schedule() {
    let node = with_child("collect", None, ());
    assert_eq!(node.row("a::1.2").status.name(), "running");
    let parent = node.row("a::1.2").parent.expect("it has a parent");
    assert_eq!((parent.instance.as_str(), parent.key), ("a", node.row("a").key.to_string()));
    assert_eq!((parent.execution, parent.event_id.0), (1, 2));
    let node = with_child("collect", Some("mine"), ());
    assert_eq!((node.row("mine").status.name(), node.try_row("a::1.2").is_none()), ("running", true));
}

#[test]
fn g17_a_child_is_a_pending_row_and_a_message_of_its_parents_commit() {
    let mut node = ManualNode::new(all());
    node.start("parent", "a", to_start("echo", Some("child"), "1"));
    node.take_turns();
    assert!(node.try_row("child").is_none());
    node.commit();
    assert_eq!(node.writes("a"), ["insert running, turn 1, sent 1"]);
    assert_eq!(
        (node.status("child"), node.inbox("child")),
        ("pending".into(), vec!["Start echo".to_owned()])
    );
    node.restart();
    assert_eq!(
        (node.status("child"), ending(&node, "a")),
        ("completed".into(), r#"OrchestrationCompleted "1""#.into())
    );
}

#[test]
fn g25_each_ending_of_a_child_reaches_its_parent_once() {
    type End = fn(&mut ManualNode);
    let cases: [(End, &str); 3] = [
        (
            |node| {
                node.raise("child", "n", "end");
            },
            r#"OrchestrationCompleted []"#,
        ),
        (
            |node| {
                node.cancel("child", "enough");
            },
            r#"OrchestrationFailed "Cancelled { reason: \"enough\", output: None }""#,
        ),
        (
            |node| {
                node.terminate("child", "enough");
            },
            r#"OrchestrationFailed "Terminated { reason: \"enough\" }""#,
        ),
    ];
    for (end, outcome) in cases {
        for is_crashed in [false, true] {
            let mut node = with_child("collect", Some("child"), ());
            if is_crashed {
                node.crash();
            }
            end(&mut node);
            node.settle();
            assert_eq!(ending(&node, "a"), outcome);
            assert_eq!(node.jobs("a").len(), 1, "one outcome");
            assert!(node.inbox("a").is_empty() && node.inbox("child").is_empty());
        }
    }
}

#[test]
fn g25_a_childs_own_error_reaches_its_parent() {
    let mut node = with_child("steps", Some("child"), number(1));
    node.fail("child", "A1", "boom").settle();
    assert_eq!(ending(&node, "a"), r#"OrchestrationFailed "Application(\"boom\")""#);
}

#[test]
fn g25_a_crash_at_each_step_gives_one_child_and_one_outcome() {
    for crash_at in 0..12 {
        let mut node = ManualNode::new(all());
        node.start("parent", "a", to_start("steps", None, number(1)));
        node.take_turns();
        node.commit();
        let mut step = 0;
        let mut guard = 0;
        while node.status("a") == "running" && guard < 100 {
            guard += 1;
            if step == crash_at {
                node.crash().take_over();
            }
            step += 1;
            let moved =
                node.look_up() || node.load() || node.take_turns() || node.commit() > 0 || node.follow_hint();
            if !moved && !node.running("a::1.2").is_empty() {
                node.finish("a::1.2", "A1", "1");
            }
        }
        assert_eq!(node.status("a"), "completed", "crash at {crash_at}");
        assert_eq!(node.tables().instances.len(), 2, "crash at {crash_at}");
        assert_eq!((node.lines("a").len(), node.lines("a::1.2").len()), (4, 4), "crash at {crash_at}");
    }
}

#[test]
fn g7_unknown_commits_give_one_child_and_one_outcome() {
    for is_written in [true, false] {
        let mut node = ManualNode::new(all());
        node.start("parent", "a", to_start("echo", Some("child"), "1"));
        let mut guard = 0;
        while guard < 60 {
            guard += 1;
            node.look_up();
            node.load();
            node.take_turns();
            if !node.batch().is_empty() {
                node.commit_unknown(is_written);
                node.settle_unknown();
            }
            node.pass_inbox();
        }
        assert_eq!((node.status("a"), node.status("child")), ("completed".into(), "completed".into()));
        assert_eq!((node.jobs("a").len(), node.tables().instances.len()), (1, 2));
        assert_eq!(node.tables().inbox.len(), 0);
    }
}

#[test]
fn g25_the_outcome_comes_through_three_continuations_of_the_child() {
    let mut node = with_child("thrice", Some("child"), number(0));
    for execution in 1..=3 {
        assert_eq!(node.row("child").execution, execution);
        if execution == 2 {
            node.restart();
        }
        node.finish("child", "work", "1").settle();
    }
    assert_eq!((node.row("child").execution, node.row("child").parent.is_some()), (4, true));
    assert_eq!(ending(&node, "a"), "OrchestrationCompleted 3");
    assert_eq!(node.jobs("a").len(), 1);
}

#[test]
fn g25_a_parent_that_ends_cancels_its_children_unless_they_are_abandoned() {
    for end in ["done", "fail"] {
        let mut node = ManualNode::new(all());
        node.start("leaves", "a", ());
        node.settle();
        node.raise("a", "n", end);
        node.settle();
        assert_eq!(
            (node.status("default"), node.status("abandoned")),
            ("cancelled".into(), "running".into())
        );
        assert_eq!(
            node.last_lines("default", 1),
            [r#"4 OrchestrationCancelled "its parent a no longer waits for it""#]
        );
        node.raise("abandoned", "n", "end");
        node.settle();
        assert_eq!(node.status("abandoned"), "completed");
        assert!(node.tables().inbox.is_empty(), "nobody is told who has ended");
    }
}

#[test]
fn g25_a_parent_that_is_cancelled_terminated_or_continues_as_new_cancels_its_children() {
    type End = fn(&mut ManualNode);
    let ends: [End; 3] = [
        |node| {
            node.cancel("a", "enough");
        },
        |node| {
            node.terminate("a", "enough");
        },
        |node| {
            node.raise("a", "n", "again");
        },
    ];
    for is_dormant in [false, true] {
        for end in ends {
            let mut node = ManualNode::new(all());
            node.start("leaves", "a", ());
            node.settle();
            if is_dormant {
                node.crash();
            }
            end(&mut node);
            node.settle();
            assert_eq!(
                (node.status("default"), node.status("abandoned")),
                ("cancelled".into(), "running".into())
            );
        }
    }
}

#[test]
fn g25_the_outcome_of_a_child_that_an_earlier_execution_left_is_stale() {
    let mut node = ManualNode::new(all());
    node.start("leaves", "a", ());
    node.settle();
    node.raise("a", "n", "again");
    node.settle();
    // The ids are taken by the children of the first execution, which ended or go on.
    let before = node.lines("a");
    let stale = node.counters("a").stale;
    node.raise("abandoned", "n", "end");
    node.settle();
    assert_eq!((node.lines("a"), node.counters("a").stale), (before, stale + 1));
}

#[test]
fn g25_cancelling_goes_down_to_grandchildren() {
    let mut node = with_child("parent", Some("child"), to_start("collect", Some("grandchild"), ()));
    assert_eq!(node.status("grandchild"), "running");
    node.terminate("a", "enough");
    node.settle();
    assert_eq!((node.status("child"), node.status("grandchild")), ("cancelled".into(), "cancelled".into()));
    assert!(node.tables().inbox.is_empty());
}

#[test]
fn g25_a_child_that_is_given_up_is_cancelled_and_its_outcome_is_stale() {
    let mut node = ManualNode::new(all());
    node.start("gives_up", "a", ());
    node.settle();
    node.at(6_000).settle();
    assert_eq!(node.status("child"), "cancelled");
    assert_eq!((node.status("a"), node.counters("a").stale, node.inbox("a").len()), ("running".into(), 1, 0));
}

#[test]
fn g25_a_child_that_is_cancelled_before_its_first_turn_does_nothing() {
    async fn works(ctx: OrchestrationContext, _: Payload) -> Outcome {
        ctx.schedule_sub_orchestration_with_id("echo", "grandchild", ())
            .await
            .map_err(|_| Payload::null())?;
        ctx.schedule_activity("work", ()).await.map_err(|_| Payload::null())
    }
    let mut node = ManualNode::new(all().with("collect", ManualNode::VERSION, works));
    node.start("gives_up", "a", ());
    node.take_turns();
    node.commit();
    node.at(6_000);
    node.take_turns();
    node.commit();
    assert_eq!(node.inbox("child").len(), 2, "start and cancel: {:?}", node.inbox("child"));
    node.settle();
    assert_eq!((node.status("child"), node.runs().len()), ("cancelled".into(), 0));
    assert!(node.try_row("grandchild").is_none());
}

#[test]
fn g25_a_child_that_the_ending_turn_schedules_is_not_started_unless_it_is_abandoned() {
    async fn parting(ctx: OrchestrationContext, _: Payload) -> Outcome {
        let default = ctx.schedule_sub_orchestration_with_id("echo", "default", ());
        let abandoned = ctx
            .schedule_sub_orchestration_with_id("echo", "abandoned", ())
            .close_policy(ClosePolicy::Abandon);
        std::mem::forget((default, abandoned));
        Ok("over".into())
    }
    let mut node = ManualNode::new(all().with("parting", ManualNode::VERSION, parting));
    node.start("parting", "a", ());
    node.settle();
    assert!(node.try_row("default").is_none());
    assert_eq!((node.status("abandoned"), node.inbox("a").len()), ("completed".into(), 0));
}

#[test]
fn g25_an_id_that_is_taken_fails_that_call_alone() {
    for is_ended in [false, true] {
        let mut node = ManualNode::new(all());
        node.start("collect", "taken", ());
        node.settle();
        if is_ended {
            node.raise("taken", "n", "end");
            node.settle();
        }
        let (row, lines) = (node.row("taken"), node.lines("taken"));
        node.start("parent", "a", to_start("collect", Some("taken"), ()));
        node.settle();
        assert_eq!(node.status("a"), "failed");
        assert!(ending(&node, "a").contains("NotStarted"), "{}", ending(&node, "a"));
        let Some(Job::SubOrchestrationFailed { error, .. }) = node.jobs("a").pop() else {
            panic!("it failed")
        };
        assert!(format!("{error:?}").contains("PER-0306"), "{error:?}");
        assert_eq!((node.row("taken"), node.lines("taken")), (row, lines), "the other one is left alone");
        assert!(node.tables().inbox.is_empty());
    }
}

#[test]
fn g25_a_parent_cannot_be_its_own_child() {
    let node = with_child("echo", Some("a"), ());
    assert!(ending(&node, "a").contains("NotStarted"));
    assert_eq!(node.tables().instances.len(), 1);
}

#[test]
fn g34_an_id_that_is_no_id_fails_that_call() {
    for id in ["", "x::y", "tab\t", &"x".repeat(201)] {
        let node = with_child("echo", Some(id), ());
        let Some(Job::SubOrchestrationFailed { error, .. }) = node.jobs("a").pop() else {
            panic!("it failed")
        };
        assert!(format!("{error:?}").contains("PER-0307"), "{error:?}");
        assert_eq!((node.status("a"), node.tables().instances.len()), ("failed".into(), 1));
    }
}

#[test]
fn g34_a_derived_id_that_grows_too_long_fails_that_call() {
    async fn nests(ctx: OrchestrationContext, _: Payload) -> Outcome {
        ctx.schedule_sub_orchestration("nests", ()).await.map_err(|_| "too deep".into())
    }
    let mut node = ManualNode::new(all().with("nests", ManualNode::VERSION, nests));
    node.start("nests", &"x".repeat(200), ());
    node.settle();
    assert_eq!(node.status(&"x".repeat(200)), "failed");
    let longest = node.tables().ids.keys().map(String::len).max();
    assert!(longest <= Some(1_000) && longest > Some(990), "{longest:?}");
}

#[test]
fn g2_an_outcome_never_reaches_a_later_instance_of_the_parents_id() {
    let mut node = ManualNode::new(all());
    node.start("leaves", "a", ());
    node.settle();
    node.raise("a", "n", "done");
    node.settle();
    assert_eq!(node.delete("a"), DeleteOutcome::Deleted);
    node.start("parent", "a", to_start("collect", Some("other"), ()));
    node.settle();
    let before = node.lines("a");
    node.raise("abandoned", "n", "end");
    node.settle();
    assert_eq!(node.status("abandoned"), "completed");
    assert_eq!((node.lines("a"), node.inbox("a").len()), (before, 0));
}

#[test]
fn g2_a_cancel_never_reaches_a_later_instance_of_the_childs_id() {
    let mut node = ManualNode::new(all());
    node.start("gives_up", "a", ());
    node.settle();
    let parent_turn = |node: &mut ManualNode| {
        node.at(6_000);
        node.take_turn("a");
    };
    node.terminate("child", "enough");
    // The outcome waits in the inbox while the parent gives up.
    node.take_turns();
    node.commit();
    parent_turn(&mut node);
    assert_eq!(node.delete("child"), DeleteOutcome::Deleted);
    node.start("collect", "child", ());
    node.settle();
    assert_eq!((node.status("child"), node.inbox("child").len()), ("running".into(), 0));
}

#[test]
fn g25_detached_starts_are_independent() {
    async fn starts(ctx: OrchestrationContext, _: Payload) -> Outcome {
        ctx.schedule_orchestration("collect", "detached", ());
        ctx.schedule_orchestration("collect", "taken", ());
        ctx.schedule_orchestration("collect", "no::id", ());
        Ok("over".into())
    }
    let mut node = ManualNode::new(all().with("starts", ManualNode::VERSION, starts));
    node.start("collect", "taken", ());
    node.settle();
    node.start("starts", "a", ());
    node.settle();
    assert_eq!((node.status("a"), node.status("detached")), ("completed".into(), "running".into()));
    assert_eq!((node.row("detached").parent, node.lines("taken").len()), (None, 2));
    assert!(node.tables().inbox.is_empty());
    node.raise("detached", "n", "end");
    node.settle();
    assert_eq!(node.status("detached"), "completed");
    assert_eq!(node.counters("a").undelivered, 2, "the taken id and the impossible one");
}

#[test]
fn g15_an_event_to_another_instance_arrives_once_or_is_counted() {
    async fn tells(ctx: OrchestrationContext, _: Payload) -> Outcome {
        for id in ["b", "nobody", "ended"] {
            ctx.raise_event(id, "n", "1");
        }
        Ok("over".into())
    }
    for is_written in [None, Some(true), Some(false)] {
        let mut node = ManualNode::new(all().with("tells", ManualNode::VERSION, tells));
        node.start("collect", "b", ());
        node.start("echo", "ended", ());
        node.settle();
        node.start("tells", "a", ());
        node.take_turns();
        if let Some(is_written) = is_written {
            node.commit_unknown(is_written);
            node.settle_unknown();
            node.pass_inbox();
        }
        node.settle();
        assert_eq!(node.jobs("b").len(), 1);
        if is_written.is_none() {
            assert_eq!(node.counters("a").undelivered, 2);
        }
    }
}

#[test]
fn g28_a_blocked_child_is_cancelled_by_its_parent_without_its_code() {
    let mut node = with_child("missing", Some("child"), ());
    assert_eq!(node.status("child"), "pending, blocked: PER-0301");
    node.terminate("a", "enough");
    node.settle();
    node.tick().settle();
    assert_eq!(node.status("child"), "pending, blocked: PER-0301");
    node.at(31_000).settle();
    assert_eq!(node.status("child"), "terminated");
    assert!(node.tables().inbox.is_empty());
}

#[test]
fn g25_a_child_keeps_the_pin_that_it_was_asked_for_and_the_latest_otherwise() {
    async fn asks(ctx: OrchestrationContext, _: Payload) -> Outcome {
        let old = ctx.schedule_sub_orchestration_with_id_versioned("collect", "1.0.0", "old", ());
        let latest = ctx.schedule_sub_orchestration_with_id("collect", "latest", ());
        let _ = ctx.join2(old, latest).await;
        Ok("over".into())
    }
    let mut node = ManualNode::new(all().with("asks", ManualNode::VERSION, asks).with(
        "collect",
        "1.10.0",
        crate::shard_cases::collect,
    ));
    node.start_with("a", Started::new("asks", ManualNode::VERSION, (), 1));
    node.settle();
    assert_eq!((node.row("old").version, node.row("latest").version), ("1.0.0".into(), "1.10.0".into()));
}
