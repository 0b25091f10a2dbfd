//! Trouble blocks the instance that has it, with the reason in its row, and nobody else (G28).

use std::sync::atomic::{AtomicBool, Ordering};

use crate::shard_cases::{Outcome, collect, handlers, handlers_and, steps};
use perennial_core::shard::{FailurePolicy, OnFailure, ShardOptions};
use perennial_core::{Handlers, OrchestrationContext, Payload};
use perennial_testkit::ManualNode;

/// Starts `trouble` and a neighbour of the same shard, and lets the trouble come.
fn with_neighbour(trouble: Handlers) -> (ManualNode, String, String) {
    let mut ids = ManualNode::ids_of_one_shard(2).into_iter();
    let (id, neighbour) = (ids.next().expect("two ids"), ids.next().expect("two ids"));
    let mut node = ManualNode::new(trouble);
    node.start("collect", &neighbour, ());
    node.settle();
    let started = node.start("trouble", &id, ());
    node.settle();
    assert_eq!(node.told(started), "started");
    (node, id, neighbour)
}

/// The neighbour takes a turn as if nothing had happened, and the code and reason of the trouble are in the row.
fn assert_blocked_alone(node: &mut ManualNode, id: &str, neighbour: &str, code: &str, reason: &str) {
    let blocked = node.row(id).blocked.expect("it is blocked");
    assert_eq!((blocked.code.as_str(), blocked.reason.as_str(), blocked.attempts), (code, reason, 1));
    assert!(blocked.report.starts_with(reason), "the report begins with the reason: {}", blocked.report);
    assert!(!node.row(id).status.is_final());
    node.raise(neighbour, "n", "end");
    node.settle();
    assert_eq!(node.status(neighbour), "completed");
    assert!(node.is_quiet());
}

#[test]
fn e24_what_ends_an_instance_instead_of_blocking_it_is_a_policy() {
    async fn panics_at_once(_: OrchestrationContext, _: Payload) -> Outcome {
        panic!("boom")
    }
    async fn says_too_much(ctx: OrchestrationContext, _: Payload) -> Outcome {
        ctx.set_status("x".repeat(100));
        Ok(Payload::null())
    }
    let boom = "PER-0201 panic in unit root: boom";
    let over = "PER-0204 limit: bytes of a payload would be 102, the limit is 50; \
                keep large data elsewhere and pass a reference to it";
    for (name, reason) in [("panics", boom), ("waits", boom), ("talks", over)] {
        let code = handlers()
            .with("panics", "1.0.0", panics_at_once)
            .with("waits", "1.0.0", waits_then_panics)
            .with("talks", "1.0.0", says_too_much);
        let on_failure =
            FailurePolicy { panic: OnFailure::End, limit: OnFailure::End, ..FailurePolicy::default() };
        let mut options = ShardOptions { on_failure, ..ShardOptions::default() };
        options.execution.limits.payload_bytes = 50;
        let mut node = ManualNode::with_options(code, options);
        let started = node.start(name, "a", ());
        node.settle();
        if name == "waits" {
            node.raise("a", "n", "1");
            node.settle();
        }
        assert_eq!((node.told(started), node.status("a")), ("started".to_owned(), "terminated".to_owned()));
        let last = node.last_lines("a", 1);
        assert!(last[0].contains("OrchestrationTerminated"), "{last:?}");
        assert!(last[0].contains(&reason[..30]), "{last:?}");
        assert_eq!(node.in_memory("a"), 0);
    }
}

async fn waits_then_panics(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let _: Payload = ctx.schedule_wait("n").await;
    panic!("boom")
}

#[test]
fn g28_a_panic_blocks_its_instance_alone() {
    let (mut node, id, neighbour) = with_neighbour(handlers_and("trouble", waits_then_panics));
    let raised = node.raise(&id, "n", "1");
    node.settle();
    assert_eq!(
        (node.told(raised), node.inbox(&id)),
        ("accepted".into(), vec![r#"ExternalEvent "n" "1""#.to_owned()])
    );
    assert_blocked_alone(&mut node, &id, &neighbour, "PER-0201", "PER-0201 panic in unit root: boom");
    assert_eq!(node.lines(&id).len(), 2, "nothing of the turn is recorded");
}

#[test]
fn g28_a_diverged_deployment_blocks_its_instance_alone() {
    let (mut node, id, neighbour) = with_neighbour(handlers_and("trouble", collect));
    let other = |ctx: OrchestrationContext, _: Payload| async move {
        let _ = ctx.schedule_activity("other", ()).await;
        Ok(Payload::null())
    };
    node.replace_code(handlers_and("trouble", other)).crash();
    node.raise(&id, "n", "1");
    node.settle();
    let reason = node.row(&id).blocked.expect("it is blocked").reason;
    assert!(reason.starts_with("PER-0203 nondeterminism"), "{reason}");
    assert!(!reason.contains('\n'), "a line");
    let report = node.row(&id).blocked.expect("it is blocked").report;
    assert!(report.contains("shard_blocking.rs"), "the report says where: {report}");
    assert_blocked_alone(&mut node, &id, &neighbour, "PER-0203", &reason);
    assert!(node.runs().is_empty(), "what the other code decided does not happen");
}

#[test]
fn g28_missing_code_blocks_its_instance_alone() {
    let (mut node, id, neighbour) = with_neighbour(handlers_and("trouble", collect));
    node.replace_code(handlers()).crash();
    node.raise(&id, "n", "1");
    node.settle();
    let reason =
        "PER-0301 missing code: trouble 1.0.0 is not registered; register it and start the node again";
    assert_blocked_alone(&mut node, &id, &neighbour, "PER-0301", reason);
}

#[test]
fn g28_missing_code_at_the_start_blocks_its_instance_alone() {
    let (mut node, id, neighbour) = with_neighbour(handlers());
    let reason =
        "PER-0301 missing code: trouble 1.0.0 is not registered; register it and start the node again";
    assert_eq!(node.row(&id).status.name(), "pending");
    assert_blocked_alone(&mut node, &id, &neighbour, "PER-0301", reason);
}

#[test]
fn g28_a_corrupt_history_blocks_its_instance_alone() {
    let (mut node, id, neighbour) = with_neighbour(handlers_and("trouble", collect));
    node.damage_turn(&id, 1);
    node.crash();
    node.raise(&id, "n", "1");
    node.settle();
    let reason = node.row(&id).blocked.expect("it is blocked").reason;
    assert!(reason.starts_with("PER-0101 corrupt history: turn 1"), "{reason}");
    assert_blocked_alone(&mut node, &id, &neighbour, "PER-0101", &reason);
}

#[test]
fn g28_a_row_without_turns_and_start_blocks_its_instance_alone() {
    let (mut node, id, neighbour) = with_neighbour(handlers_and("trouble", collect));
    let key = node.row(&id).key;
    node.tables().turns.remove(&(key, 1, 1));
    node.crash();
    node.raise(&id, "n", "1");
    node.settle();
    let reason = "PER-0508 corrupt row: it has neither turns nor a start";
    assert_blocked_alone(&mut node, &id, &neighbour, "PER-0508", reason);
}

#[test]
fn g28_a_row_that_contradicts_its_history_blocks_its_instance_alone() {
    let (mut node, id, neighbour) = with_neighbour(handlers_and("trouble", collect));
    node.raise(&id, "n", "end");
    node.settle();
    let key = node.row(&id).key;
    node.tables().instances.get_mut(&key).expect("it is stored").status =
        perennial_core::store::Status::Running;
    node.crash();
    node.raise(&id, "n", "1");
    node.settle();
    let code = node.row(&id).blocked.map(|blocked| blocked.code);
    assert_eq!(code.as_deref(), Some("PER-0508"), "it says running, and its last turn says completed");
    let terminated = node.terminate(&id, "enough");
    node.raise(&neighbour, "n", "end");
    node.settle();
    assert_ne!(node.told(terminated), "nothing");
    assert_eq!(node.status(&neighbour), "completed");
}

#[test]
fn g28_an_unreadable_row_that_a_request_found_blocks_its_instance_alone() {
    let (mut node, id, neighbour) = with_neighbour(handlers_and("trouble", collect));
    node.set_unreadable(&id, true);
    node.crash();
    node.raise(&id, "n", "1");
    node.settle();
    let reason = "PER-0508 corrupt row: its bytes are no row";
    assert_blocked_alone(&mut node, &id, &neighbour, "PER-0508", reason);
    node.set_unreadable(&id, false);
    node.at(2_000).settle();
    assert_eq!(node.last_lines(&id, 2), [r#"3 ExternalEvent "n" "1""#, r#"4 ExternalSubscribed "n""#]);
}

#[test]
fn g28_an_unreadable_row_that_the_takeover_meets_blocks_its_instance_alone() {
    let (mut node, id, neighbour) = with_neighbour(handlers_and("trouble", waits_then_works));
    node.raise(&id, "n", "1");
    node.settle();
    node.set_unreadable(&id, true);
    node.crash().take_over().settle();
    let reason = "PER-0508 corrupt row: its bytes are no row";
    assert_blocked_alone(&mut node, &id, &neighbour, "PER-0508", reason);
    node.set_unreadable(&id, false);
    node.at(2_000).settle();
    assert_eq!((node.status(&id), node.running(&id)), ("running".into(), vec!["work".to_owned()]));
}

async fn waits_then_works(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let _: Payload = ctx.schedule_wait("n").await;
    ctx.schedule_activity("work", ()).await.map_err(|_| Payload::null())
}

#[test]
fn g28_an_unreadable_row_that_an_event_timer_or_result_meets_blocks_its_instance_alone() {
    async fn all(ctx: OrchestrationContext, _: Payload) -> Outcome {
        let work = ctx.schedule_activity("work", ());
        let timer = ctx.schedule_timer(crate::shard_cases::secs(5));
        let event = ctx.schedule_wait("n");
        ctx.select3(work, timer, event).await;
        Ok("one of them".into())
    }
    type Meet = fn(&mut ManualNode, &str);
    let meets: [Meet; 3] = [
        |node, id| {
            node.send_event(id, "n", "1");
            node.pass_inbox();
        },
        |node, _| {
            node.at(6_000);
        },
        |node, id| {
            node.finish(id, "work", "1");
        },
    ];
    for meet in meets {
        let options = perennial_core::shard::ShardOptions { max_resident: 0, ..Default::default() };
        let mut node = ManualNode::with_options(handlers_and("all", all), options);
        node.start("all", "a", ());
        node.settle();
        node.set_unreadable("a", true);
        meet(&mut node, "a");
        node.settle();
        assert_eq!(node.status("a"), "running, blocked: PER-0508");
        node.set_unreadable("a", false);
        node.at(20_000).settle();
        assert_eq!((node.status("a"), node.inbox("a").len()), ("completed".into(), 0), "nothing was lost");
    }
}

#[test]
fn g28_code_that_waits_for_nothing_durable_blocks_its_instance_alone() {
    async fn stuck(_: OrchestrationContext, _: Payload) -> Outcome {
        std::future::pending().await
    }
    let (mut node, id, neighbour) = with_neighbour(handlers_and("trouble", stuck));
    let reason = node.row(&id).blocked.expect("it is blocked").reason;
    assert!(reason.starts_with("PER-0202 non-durable await"), "{reason}");
    assert_blocked_alone(&mut node, &id, &neighbour, "PER-0202", &reason);
}

#[test]
fn g28_neighbours_in_the_same_batch_are_untouched() {
    static CURED: AtomicBool = AtomicBool::new(false);
    async fn sometimes(ctx: OrchestrationContext, input: Payload) -> Outcome {
        let _: Payload = ctx.schedule_wait("n").await;
        assert!(CURED.load(Ordering::Relaxed) || input != "bad".into(), "boom");
        steps(ctx, crate::shard_cases::number(1)).await
    }
    let ids = ManualNode::ids_of_one_shard(5);
    let mut node = ManualNode::new(handlers_and("sometimes", sometimes));
    for (id, input) in ids.iter().zip(["good", "bad", "good", "bad", "good"]) {
        node.start("sometimes", id, input);
    }
    node.settle();
    for id in &ids {
        node.raise(id, "n", "go");
    }
    node.settle();
    let statuses: Vec<String> = ids.iter().map(|id| node.status(id)).collect();
    let blocked = "running, blocked: PER-0201";
    assert_eq!(statuses, ["running", blocked, "running", blocked, "running"]);
    assert_eq!(node.runs(), [0, 2, 4].map(|position| format!("{} A1", ids[position])));
    CURED.store(true, Ordering::Relaxed);
    node.at(2_000).settle();
    for id in &ids {
        node.finish(id, "A1", "1").settle();
        assert_eq!(node.status(id), "completed");
    }
}

#[test]
fn e3_a_row_whose_lasting_columns_were_changed_blocks_its_instance_alone() {
    type Damage = fn(&mut perennial_core::store::InstanceRow);
    let damages: [Damage; 3] = [
        |row| row.name.push('x'),
        |row| row.created_ms ^= 1,
        |row| row.checksum = row.checksum.wrapping_add(1),
    ];
    for damage in damages {
        let (mut node, id, neighbour) = with_neighbour(handlers_and("trouble", collect));
        node.crash();
        let row = node.row(&id);
        assert!(row.is_sound());
        damage(node.tables().instances.get_mut(&row.key).expect("it is stored"));
        node.raise(&id, "n", "1");
        node.settle();
        let reason = "PER-0508 corrupt row: its checksum does not match its key, id, name, parent and time";
        assert_blocked_alone(&mut node, &id, &neighbour, "PER-0508", reason);
    }
}

#[test]
fn h40_a_new_cause_restarts_the_clock_of_a_blocked_instance_and_the_same_one_keeps_it() {
    async fn first(ctx: OrchestrationContext, _: Payload) -> Outcome {
        let _ = ctx.schedule_activity("charge", "a secret").await;
        Ok(Payload::null())
    }
    async fn changed(ctx: OrchestrationContext, _: Payload) -> Outcome {
        let _ = ctx.schedule_activity("charge", "another secret").await;
        Ok(Payload::null())
    }
    let mut node = ManualNode::new(handlers_and("first", first));
    node.start("first", "a", ());
    node.settle();
    node.replace_code(handlers_and("first", changed));
    node.restart();
    let blocked = node.row("a").blocked.expect("it is blocked");
    assert_eq!(blocked.cause, "nondeterminism: ActivityScheduled differs in its input");
    let divergence = blocked.divergence.as_deref().expect("a divergence is data");
    assert_eq!((divergence.turn, divergence.event, &*divergence.orchestration), (1, 2, "first 1.0.0"));
    assert!(divergence.recorded.line.contains("a secret") && divergence.code.line.contains("another secret"));
    assert!(divergence.location.as_ref().is_some_and(|place| place.contains("shard_blocking.rs:")));
    assert!(divergence.neighbourhood.iter().any(|row| row.parts) && !divergence.hint.is_empty());
    let since_ms = blocked.since_ms;
    node.at(since_ms + 60_000).settle();
    let again = node.row("a").blocked.expect("it is blocked still");
    assert!(again.attempts > blocked.attempts);
    assert_eq!(again.since_ms, since_ms, "the same cause");
    node.replace_code(handlers_and("other", first));
    node.restart();
    let missing = node.row("a").blocked.expect("its code is gone");
    assert_eq!((&*missing.code, &*missing.cause), ("PER-0301", "missing code: first 1.0.0"));
    assert!(missing.since_ms >= since_ms + 60_000, "another cause");
    assert!(missing.attempts > again.attempts && missing.divergence.is_none());
}

#[test]
fn g28_one_that_cannot_be_marked_as_blocked_is_tried_again_though_more_came_for_it() {
    let mut node = ManualNode::new(handlers());
    node.start("collect", "a", ());
    node.settle();
    node.raise("a", "n", "1");
    node.take_turns();
    for _ in ["its turn", "its row"] {
        assert_eq!(node.commit_refusing("a", "no"), [["a"]]);
    }
    let raised = node.raise("a", "n", "2");
    node.settle();
    assert_eq!((node.told(raised), node.jobs("a").len()), ("accepted".into(), 0));
    node.at(600_000).settle();
    assert_eq!(node.jobs("a").len(), 1, "the first one was never acknowledged");
}
