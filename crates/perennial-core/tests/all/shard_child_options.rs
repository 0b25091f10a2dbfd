//! Children with a timeout, with ids that exist, with a start that is reported, and with a grace of their own (G35, G36).

use std::time::Duration;

use crate::shard_cases::{Outcome, handlers, number, secs};
use perennial_core::shard::Request;
use perennial_core::{Handlers, OnTakenId, OrchestrationContext, Payload, RetryPolicy};
use perennial_testkit::ManualNode;

fn with(name: &str, code: impl perennial_core::OrchestrationHandler) -> Handlers {
    handlers().with(name, ManualNode::VERSION, code)
}

fn text(outcome: impl std::fmt::Debug) -> Outcome {
    Ok(format!("{outcome:?}").into())
}

fn ending(node: &ManualNode, id: &str) -> String {
    let last = node.last_lines(id, 1).pop().expect("it has events");
    last.split_once(' ').expect("a number and a line").1.to_owned()
}

#[test]
fn g36_a_child_with_a_timeout_is_terminated_when_its_time_is_up() {
    let mut node = ManualNode::new(with("parent", |ctx: OrchestrationContext, _: Payload| async move {
        text(ctx.schedule_sub_orchestration_with_id("collect", "child", ()).timeout(secs(5)).await)
    }));
    node.start("parent", "a", ());
    node.settle();
    node.restart();
    assert_eq!(node.status("child"), "running");
    node.at(6_000).settle();
    assert_eq!(ending(&node, "child"), r#"OrchestrationTerminated "timeout""#);
    assert!(ending(&node, "a").contains(r#"Terminated { reason: \"timeout\" }"#), "{}", ending(&node, "a"));
}

#[test]
fn g36_each_attempt_of_a_named_child_takes_the_id_of_the_one_before() {
    let mut node = ManualNode::new(with("parent", |ctx: OrchestrationContext, _: Payload| async move {
        let child = ctx.schedule_sub_orchestration_with_id("steps", "child", number(1));
        text(child.retry(RetryPolicy::fixed(Duration::from_millis(1_000)).attempts(3).jitter(0)).await)
    }));
    node.start("parent", "a", ());
    node.settle();
    let first = node.row("child").key;
    node.fail("child", "A1", "broke").settle();
    assert_eq!(node.status("child"), "failed");
    node.restart();
    node.at(3_000).settle();
    assert_ne!(node.row("child").key, first, "another instance has the id");
    assert_eq!(node.status("child"), "running");
    node.finish("child", "A1", "done").settle();
    assert!(ending(&node, "a").contains("done"), "{}", ending(&node, "a"));
}

/// A parent whose child wants the id `x`.
fn wants_x(policy: OnTakenId) -> Handlers {
    with("parent", move |ctx: OrchestrationContext, _: Payload| async move {
        text(ctx.schedule_sub_orchestration_with_id("collect", "x", ()).on_existing(policy).await)
    })
}

#[test]
fn g36_an_id_that_exists_is_refused_replaced_once_ended_or_freed_by_force() {
    for (policy, when_running, when_ended) in [
        (OnTakenId::Reject, false, false),
        (OnTakenId::ReplaceEnded, false, true),
        (OnTakenId::TerminateAndReplace, true, true),
    ] {
        for (has_ended, is_replaced) in [(false, when_running), (true, when_ended)] {
            let mut node = ManualNode::new(wants_x(policy));
            node.start("collect", "x", ());
            node.settle();
            if has_ended {
                node.raise("x", "n", "end");
                node.settle();
            }
            let before = node.row("x").key;
            node.start("parent", "a", ());
            node.settle();
            node.at(2_000).settle();
            assert_eq!(node.row("x").key != before, is_replaced, "{policy:?} {has_ended}");
            if is_replaced {
                assert_eq!(node.status("x"), "running", "{policy:?} {has_ended}");
                node.raise("x", "n", "end");
                node.settle();
                assert!(ending(&node, "a").contains("Ok"), "{}", ending(&node, "a"));
            } else {
                assert!(ending(&node, "a").contains("PER-0306"), "{}", ending(&node, "a"));
            }
        }
    }
}

/// Has a child of its own, and fails after it.
async fn fails_after_child(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let done = ctx.schedule_sub_orchestration("echo", number(1)).await;
    Err(format!("{done:?}").into())
}

#[test]
fn g36_what_an_attempt_of_a_child_leaves_behind_is_deleted_with_it() {
    let code = |ctx: OrchestrationContext, _: Payload| async move {
        let child = ctx.schedule_sub_orchestration_with_id("fails", "child", ());
        text(child.retry(RetryPolicy::fixed(Duration::from_millis(1_000)).attempts(3).jitter(0)).await)
    };
    let all = with("parent", code).with("fails", ManualNode::VERSION, fails_after_child);
    let mut node = ManualNode::new(all);
    node.start("parent", "a", ());
    for at_ms in [0, 5_000, 10_000, 15_000] {
        node.at(at_ms).settle();
    }
    assert_eq!(node.status("a"), "completed", "{:?}", node.lines("a"));
    let ids: Vec<String> = node.tables().instances.values().map(|row| row.id.clone()).collect();
    assert_eq!(ids, ["a", "child", "child::1.2"], "those of the last attempt");
}

#[test]
fn g36_a_start_is_reported_once_and_survives_a_crash() {
    let mut node = ManualNode::new(with("parent", |ctx: OrchestrationContext, _: Payload| async move {
        let mut child = ctx.schedule_sub_orchestration_with_id("collect", "child", ());
        child.started().await.expect("its id is free");
        ctx.set_status("started");
        text(child.await)
    }));
    node.start("parent", "a", ());
    node.take_turns();
    node.commit();
    assert_eq!(node.inbox("a"), ["SubOrchestrationStarted of 2"], "written with the start");
    node.restart();
    node.settle();
    assert_eq!(node.row("a").published, Some("started".into()));
    node.restart();
    node.raise("child", "n", "end");
    node.settle();
    let started = node.lines("a").iter().filter(|line| line.contains("SubOrchestrationStarted")).count();
    assert_eq!((started, node.status("a")), (1, "completed".to_owned()));
}

#[test]
fn g35_a_cancel_brings_its_own_grace() {
    let mut node = ManualNode::new(handlers());
    for (id, grace_ms) in [("short", Some(2_000)), ("long", Some(60_000)), ("default", None)] {
        node.start("cleans_up", id, ());
        node.settle();
        node.request(id, Request::Cancel { reason: "enough".to_owned(), grace_ms });
        node.settle();
    }
    node.at(3_500).settle();
    let statuses = |node: &ManualNode| ["short", "default", "long"].map(|id| node.status(id));
    assert_eq!(statuses(&node), ["terminated", "running", "running"]);
    node.at(32_000).settle();
    assert_eq!(statuses(&node), ["terminated", "terminated", "running"]);
}

#[test]
fn g35_a_parent_cancels_its_child_with_a_grace_and_hears_how_it_ended() {
    let code = |ctx: OrchestrationContext, _: Payload| async move {
        let mut child = ctx.schedule_sub_orchestration_with_id("cleans_up", "child", ());
        ctx.select2(&mut child, ctx.schedule_wait("n")).await;
        child.cancel_within("not needed", secs(2));
        text(child.await)
    };
    let mut node = ManualNode::new(with("parent", code));
    node.start("parent", "a", ());
    node.settle();
    node.raise("a", "n", ());
    node.settle();
    node.restart();
    assert_eq!((node.status("a"), node.running("child")), ("running".into(), vec!["clean".to_owned()]));
    node.at(4_000).settle();
    assert_eq!(node.status("child"), "terminated");
    assert!(ending(&node, "a").contains("did not end with"), "{}", ending(&node, "a"));
}

#[test]
fn e29_a_parent_gets_what_its_cancelled_child_left_behind() {
    let code = |ctx: OrchestrationContext, _: Payload| async move {
        let mut child = ctx.schedule_sub_orchestration_with_id("import", "child", ());
        ctx.select2(&mut child, ctx.schedule_wait("n")).await;
        child.cancel("not needed");
        text(child.await)
    };
    let import = |ctx: OrchestrationContext, _: Payload| async move {
        let reason = ctx.cancelled().await;
        ctx.end_cancelled(format!("3 rows are in: {reason}")).await
    };
    let mut node = ManualNode::new(with("parent", code).with("import", ManualNode::VERSION, import));
    node.start("parent", "a", ());
    node.settle();
    node.raise("a", "n", ());
    node.settle();
    assert_eq!(node.status("child"), "cancelled");
    assert!(ending(&node, "a").contains(r#"output: Some(\"3 r"#), "{}", ending(&node, "a"));
}
