//! Trouble blocks the instance that has it, with the reason in its row, and nobody else (G28).

mod shard_cases;

use std::sync::atomic::{AtomicBool, Ordering};

use perennial_core::shard::{FailurePolicy, OnFailure, ShardOptions};
use perennial_core::{Handlers, OrchestrationContext, Payload};
use perennial_testkit::Desk;
use shard_cases::{Outcome, collect, handlers, handlers_and, steps};

/// Starts `trouble` and a neighbour of the same shard, and lets the trouble come.
fn with_neighbour(trouble: Handlers) -> (Desk, String, String) {
    let mut ids = Desk::ids_of_one_shard(2).into_iter();
    let (id, neighbour) = (ids.next().expect("two ids"), ids.next().expect("two ids"));
    let mut desk = Desk::new(trouble);
    desk.start("collect", &neighbour, ());
    desk.settle();
    let started = desk.start("trouble", &id, ());
    desk.settle();
    assert_eq!(desk.told(started), "started");
    (desk, id, neighbour)
}

/// The neighbour takes a turn as if nothing had happened, and the code and reason of the trouble are in the row.
fn assert_blocked_alone(desk: &mut Desk, id: &str, neighbour: &str, code: &str, reason: &str) {
    let blocked = desk.row(id).blocked.expect("it is blocked");
    assert_eq!((blocked.code.as_str(), blocked.reason.as_str(), blocked.attempts), (code, reason, 1));
    assert!(blocked.report.starts_with(reason), "the report begins with the reason: {}", blocked.report);
    assert!(!desk.row(id).status.is_final());
    desk.raise(neighbour, "n", "end");
    desk.settle();
    assert_eq!(desk.status(neighbour), "completed");
    assert!(desk.is_quiet());
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
    let over = "PER-0204 limit: bytes of a payload would be 102, allowed are 50; \
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
        let mut desk = Desk::with_options(code, options);
        let started = desk.start(name, "a", ());
        desk.settle();
        if name == "waits" {
            desk.raise("a", "n", "1");
            desk.settle();
        }
        assert_eq!((desk.told(started), desk.status("a")), ("started".to_owned(), "terminated".to_owned()));
        let last = desk.last_lines("a", 1);
        assert!(last[0].contains("OrchestrationTerminated"), "{last:?}");
        assert!(last[0].contains(&reason[..30]), "{last:?}");
        assert_eq!(desk.in_memory("a"), 0);
    }
}

async fn waits_then_panics(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let _: Payload = ctx.schedule_wait("n").await;
    panic!("boom")
}

#[test]
fn g28_a_panic_blocks_its_instance_alone() {
    let (mut desk, id, neighbour) = with_neighbour(handlers_and("trouble", waits_then_panics));
    let raised = desk.raise(&id, "n", "1");
    desk.settle();
    assert_eq!(
        (desk.told(raised), desk.inbox(&id)),
        ("accepted".into(), vec![r#"ExternalEvent "n" "1""#.to_owned()])
    );
    assert_blocked_alone(&mut desk, &id, &neighbour, "PER-0201", "PER-0201 panic in unit root: boom");
    assert_eq!(desk.lines(&id).len(), 2, "nothing of the turn is recorded");
}

#[test]
fn g28_a_diverged_deployment_blocks_its_instance_alone() {
    let (mut desk, id, neighbour) = with_neighbour(handlers_and("trouble", collect));
    let other = |ctx: OrchestrationContext, _: Payload| async move {
        let _ = ctx.schedule_activity("other", ()).await;
        Ok(Payload::null())
    };
    desk.replace_code(handlers_and("trouble", other)).crash();
    desk.raise(&id, "n", "1");
    desk.settle();
    let reason = desk.row(&id).blocked.expect("it is blocked").reason;
    assert!(reason.starts_with("PER-0203 nondeterminism"), "{reason}");
    assert!(!reason.contains('\n'), "a line");
    let report = desk.row(&id).blocked.expect("it is blocked").report;
    assert!(report.contains("shard_blocking.rs"), "the report says where: {report}");
    assert_blocked_alone(&mut desk, &id, &neighbour, "PER-0203", &reason);
    assert!(desk.runs().is_empty(), "what the other code decided does not happen");
}

#[test]
fn g28_missing_code_blocks_its_instance_alone() {
    let (mut desk, id, neighbour) = with_neighbour(handlers_and("trouble", collect));
    desk.replace_code(handlers()).crash();
    desk.raise(&id, "n", "1");
    desk.settle();
    let reason =
        "PER-0301 missing code: trouble 1.0.0 is not registered; register it and start the node again";
    assert_blocked_alone(&mut desk, &id, &neighbour, "PER-0301", reason);
}

#[test]
fn g28_missing_code_at_the_start_blocks_its_instance_alone() {
    let (mut desk, id, neighbour) = with_neighbour(handlers());
    let reason =
        "PER-0301 missing code: trouble 1.0.0 is not registered; register it and start the node again";
    assert_eq!(desk.row(&id).status.name(), "pending");
    assert_blocked_alone(&mut desk, &id, &neighbour, "PER-0301", reason);
}

#[test]
fn g28_a_corrupt_history_blocks_its_instance_alone() {
    let (mut desk, id, neighbour) = with_neighbour(handlers_and("trouble", collect));
    let key = desk.row(&id).key;
    desk.tables().turns.insert((key, 1, 1), b"{}".as_slice().into());
    desk.crash();
    desk.raise(&id, "n", "1");
    desk.settle();
    let reason = desk.row(&id).blocked.expect("it is blocked").reason;
    assert!(reason.starts_with("PER-0101 corrupt history: turn 1"), "{reason}");
    assert_blocked_alone(&mut desk, &id, &neighbour, "PER-0101", &reason);
}

#[test]
fn g28_a_row_without_turns_and_start_blocks_its_instance_alone() {
    let (mut desk, id, neighbour) = with_neighbour(handlers_and("trouble", collect));
    let key = desk.row(&id).key;
    desk.tables().turns.remove(&(key, 1, 1));
    desk.crash();
    desk.raise(&id, "n", "1");
    desk.settle();
    let reason = "PER-0508 corrupt row: it has neither turns nor a start";
    assert_blocked_alone(&mut desk, &id, &neighbour, "PER-0508", reason);
}

#[test]
fn g28_a_row_that_contradicts_its_history_blocks_its_instance_alone() {
    let (mut desk, id, neighbour) = with_neighbour(handlers_and("trouble", collect));
    desk.raise(&id, "n", "end");
    desk.settle();
    let key = desk.row(&id).key;
    desk.tables().instances.get_mut(&key).expect("it is stored").status =
        perennial_core::store::Status::Running;
    desk.crash();
    desk.raise(&id, "n", "1");
    desk.settle();
    let code = desk.row(&id).blocked.map(|blocked| blocked.code);
    assert_eq!(code.as_deref(), Some("PER-0508"), "it says running, and its last turn says completed");
    let terminated = desk.terminate(&id, "enough");
    desk.raise(&neighbour, "n", "end");
    desk.settle();
    assert_ne!(desk.told(terminated), "nothing");
    assert_eq!(desk.status(&neighbour), "completed");
}

#[test]
fn g28_an_unreadable_row_that_a_request_found_blocks_its_instance_alone() {
    let (mut desk, id, neighbour) = with_neighbour(handlers_and("trouble", collect));
    desk.set_unreadable(&id, true);
    desk.crash();
    desk.raise(&id, "n", "1");
    desk.settle();
    let reason = "PER-0508 corrupt row: its bytes are no row";
    assert_blocked_alone(&mut desk, &id, &neighbour, "PER-0508", reason);
    desk.set_unreadable(&id, false);
    desk.at(2_000).settle();
    assert_eq!(desk.last_lines(&id, 2), [r#"3 ExternalEvent "n" "1""#, r#"4 ExternalSubscribed "n""#]);
}

#[test]
fn g28_an_unreadable_row_that_the_takeover_meets_blocks_its_instance_alone() {
    let (mut desk, id, neighbour) = with_neighbour(handlers_and("trouble", waits_then_works));
    desk.raise(&id, "n", "1");
    desk.settle();
    desk.set_unreadable(&id, true);
    desk.crash().take_over().settle();
    let reason = "PER-0508 corrupt row: its bytes are no row";
    assert_blocked_alone(&mut desk, &id, &neighbour, "PER-0508", reason);
    desk.set_unreadable(&id, false);
    desk.at(2_000).settle();
    assert_eq!((desk.status(&id), desk.running(&id)), ("running".into(), vec!["work".to_owned()]));
}

async fn waits_then_works(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let _: Payload = ctx.schedule_wait("n").await;
    ctx.schedule_activity("work", ()).await.map_err(|_| Payload::null())
}

#[test]
fn g28_an_unreadable_row_that_an_event_timer_or_result_meets_blocks_its_instance_alone() {
    async fn all(ctx: OrchestrationContext, _: Payload) -> Outcome {
        let work = ctx.schedule_activity("work", ());
        let timer = ctx.schedule_timer(shard_cases::secs(5));
        let event = ctx.schedule_wait("n");
        ctx.select3(work, timer, event).await;
        Ok("one of them".into())
    }
    type Meet = fn(&mut Desk, &str);
    let meets: [Meet; 3] = [
        |desk, id| {
            desk.send_event(id, "n", "1");
            desk.pass_inbox();
        },
        |desk, _| {
            desk.at(6_000);
        },
        |desk, id| {
            desk.finish(id, "work", "1");
        },
    ];
    for meet in meets {
        let options = perennial_core::shard::ShardOptions { max_resident: 0, ..Default::default() };
        let mut desk = Desk::with_options(handlers_and("all", all), options);
        desk.start("all", "a", ());
        desk.settle();
        desk.set_unreadable("a", true);
        meet(&mut desk, "a");
        desk.settle();
        assert_eq!(desk.status("a"), "running, blocked: PER-0508");
        desk.set_unreadable("a", false);
        desk.at(20_000).settle();
        assert_eq!((desk.status("a"), desk.inbox("a").len()), ("completed".into(), 0), "nothing was lost");
    }
}

#[test]
fn g28_code_that_waits_for_nothing_durable_blocks_its_instance_alone() {
    async fn stuck(_: OrchestrationContext, _: Payload) -> Outcome {
        std::future::pending().await
    }
    let (mut desk, id, neighbour) = with_neighbour(handlers_and("trouble", stuck));
    let reason = desk.row(&id).blocked.expect("it is blocked").reason;
    assert!(reason.starts_with("PER-0202 non-durable await"), "{reason}");
    assert_blocked_alone(&mut desk, &id, &neighbour, "PER-0202", &reason);
}

#[test]
fn g28_neighbours_in_the_same_batch_are_untouched() {
    static CURED: AtomicBool = AtomicBool::new(false);
    async fn sometimes(ctx: OrchestrationContext, input: Payload) -> Outcome {
        let _: Payload = ctx.schedule_wait("n").await;
        assert!(CURED.load(Ordering::Relaxed) || input != "bad".into(), "boom");
        steps(ctx, shard_cases::number(1)).await
    }
    let ids = Desk::ids_of_one_shard(5);
    let mut desk = Desk::new(handlers_and("sometimes", sometimes));
    for (id, input) in ids.iter().zip(["good", "bad", "good", "bad", "good"]) {
        desk.start("sometimes", id, input);
    }
    desk.settle();
    for id in &ids {
        desk.raise(id, "n", "go");
    }
    desk.settle();
    let statuses: Vec<String> = ids.iter().map(|id| desk.status(id)).collect();
    let blocked = "running, blocked: PER-0201";
    assert_eq!(statuses, ["running", blocked, "running", blocked, "running"]);
    assert_eq!(desk.runs(), [0, 2, 4].map(|position| format!("{} A1", ids[position])));
    CURED.store(true, Ordering::Relaxed);
    desk.at(2_000).settle();
    for id in &ids {
        desk.finish(id, "A1", "1").settle();
        assert_eq!(desk.status(id), "completed");
    }
}
