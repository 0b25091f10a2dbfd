//! The scheduler and replay contract: one test for each line of the seed's list of required tests.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use perennial_core::{
    ExecutionOptions, Nondeterminism, OrchestrationContext, OrchestrationHandler, Payload, Started,
    TurnFailure,
};
use perennial_testkit::Drive;

type Output = Result<Payload, Payload>;

/// Two branches of two activities each: A then C, and B then D.
async fn two_branches(ctx: OrchestrationContext, _: Payload) -> Output {
    let branch = |first: &'static str, second: &'static str| {
        let ctx = ctx.clone();
        async move {
            let _ = ctx.schedule_activity(first, "").await;
            let _ = ctx.schedule_activity(second, "").await;
        }
    };
    ctx.parallel([branch("A", "C"), branch("B", "D")]).await;
    Ok("done".into())
}

/// Starts without a shadow, so that what the code does outside of its history happens once.
fn start_alone(handler: impl OrchestrationHandler) -> Drive {
    let options = ExecutionOptions { shadow_replay: false, ..ExecutionOptions::default() };
    let started = Started::new("orchestration", "1.0.0", (), 42);
    let mut drive = Drive::prepare(Arc::new(handler), started, options).expect("it can start");
    drive.turn([]);
    drive
}

#[test]
fn parallel_schedules_the_first_activities_in_branch_order() {
    let drive = Drive::start(two_branches, ());
    assert_eq!(
        drive.lines()[1..],
        [r#"2 ActivityScheduled "A" "" in p0"#, r#"3 ActivityScheduled "B" "" in p1"#]
    );
}

#[test]
fn a_branch_whose_activity_resolved_goes_on_without_waiting_for_the_other() {
    let mut first = Drive::start(two_branches, ());
    first.evict().complete(2, "a").evict();
    assert_eq!(
        first.last_lines(),
        [r#"4 ActivityCompleted of 2 "a""#, r#"5 ActivityScheduled "C" "" in p0"#]
    );
    let mut second = Drive::start(two_branches, ());
    second.evict().complete(3, "b").evict();
    assert_eq!(
        second.last_lines(),
        [r#"4 ActivityCompleted of 3 "b""#, r#"5 ActivityScheduled "D" "" in p1"#]
    );
}

#[test]
fn branches_that_resolve_in_one_activation_go_on_in_stable_order() {
    let mut drive = Drive::start(two_branches, ());
    drive.evict().turn([Drive::completed(3, "b"), Drive::completed(2, "a")]).evict();
    assert_eq!(
        drive.last_lines(),
        [
            r#"4 ActivityCompleted of 3 "b""#,
            r#"5 ActivityCompleted of 2 "a""#,
            r#"6 ActivityScheduled "C" "" in p0"#,
            r#"7 ActivityScheduled "D" "" in p1"#,
        ]
    );
}

#[test]
fn newly_runnable_units_are_deferred_to_the_next_round() {
    let drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let (outer, other) = (ctx.clone(), ctx.clone());
            let nests = async move {
                outer.set_status("p0 begins");
                let inner = outer.clone();
                let nested = outer.spawn(async move { inner.set_status("p0.p0 runs") });
                outer.set_status("p0 goes on");
                nested.await;
                outer.set_status("p0 ends");
            };
            let plain = async move { other.set_status("p1 runs") };
            let branches =
                ctx.parallel([Box::pin(nests) as futures::future::BoxFuture<'static, ()>, Box::pin(plain)]);
            ctx.set_status("root goes on");
            branches.await;
            ctx.schedule_wait("end").await;
            Ok(Payload::null())
        },
        (),
    );
    assert_eq!(
        drive.lines()[1..],
        [
            r#"2 StatusSet "root goes on""#,
            r#"3 StatusSet "p0 begins" in p0"#,
            r#"4 StatusSet "p0 goes on" in p0"#,
            r#"5 StatusSet "p1 runs" in p1"#,
            r#"6 StatusSet "p0.p0 runs" in p0.p0"#,
            r#"7 StatusSet "p0 ends" in p0"#,
            r#"8 ExternalSubscribed "end""#,
        ]
    );
}

#[test]
fn calls_that_do_not_pause_do_not_end_the_step() {
    let order = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&order);
    let drive = start_alone(move |ctx: OrchestrationContext, _: Payload| {
        let seen = Arc::clone(&seen);
        async move {
            let branch = |name: &'static str| {
                let (ctx, seen) = (ctx.clone(), Arc::clone(&seen));
                async move {
                    seen.lock().expect("one thread").push(format!("{name} begins"));
                    let _ = (ctx.now(), ctx.random(), ctx.uuid4(), ctx.info(), ctx.is_cancelled());
                    let _ = (ctx.is_replaying(), ctx.should_continue_as_new(), ctx.patched("p"));
                    let (_, _) = (ctx.utc_now().await, ctx.new_guid().await);
                    let _ = ctx.side_effect("effect", || 1).await;
                    let state = ctx.state(0);
                    state.update(|n| *n += 1);
                    ctx.wait_until(&state, |n| *n == 1).await;
                    seen.lock().expect("one thread").push(format!("{name} ends"));
                }
            };
            ctx.parallel([branch("p0"), branch("p1")]).await;
            ctx.schedule_wait("end").await;
            Ok(Payload::null())
        }
    });
    assert_eq!(*order.lock().expect("one thread"), ["p0 begins", "p0 ends", "p1 begins", "p1 ends"]);
    assert_eq!(drive.lines().last().map(String::as_str), Some(r#"9 ExternalSubscribed "end""#));
}

#[test]
fn decisions_that_do_not_pause_are_appended_without_giving_up_the_turn() {
    let drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let branch = |name: &'static str| {
                let ctx = ctx.clone();
                async move {
                    ctx.set_status(name);
                    ctx.upsert_attributes([("branch", name)]);
                    ctx.raise_event("other", "Ping", name);
                    ctx.schedule_orchestration("Detached", format!("{name}-detached"), ());
                }
            };
            ctx.parallel([branch("p0"), branch("p1")]).await;
            ctx.schedule_wait("end").await;
            Ok(Payload::null())
        },
        (),
    );
    assert_eq!(
        drive.lines()[1..],
        [
            r#"2 StatusSet "p0" in p0"#,
            r#"3 AttributesUpserted branch="p0" in p0"#,
            r#"4 ExternalEventSent "Ping" to "other" "p0" in p0"#,
            r#"5 OrchestrationChained "Detached" latest as "p0-detached" null in p0"#,
            r#"6 StatusSet "p1" in p1"#,
            r#"7 AttributesUpserted branch="p1" in p1"#,
            r#"8 ExternalEventSent "Ping" to "other" "p1" in p1"#,
            r#"9 OrchestrationChained "Detached" latest as "p1-detached" null in p1"#,
            r#"10 ExternalSubscribed "end""#,
        ]
    );
}

#[test]
fn replay_fails_on_missing_extra_reordered_and_changed_decisions() {
    fn deciding(names: &'static [&'static str]) -> impl OrchestrationHandler {
        move |ctx: OrchestrationContext, _: Payload| async move {
            let tasks: Vec<_> = names.iter().map(|name| ctx.schedule_activity(*name, "")).collect();
            ctx.join(tasks).await;
            Ok(Payload::null())
        }
    }
    let drive = Drive::start(deciding(&["A", "B", "C"]), ());
    let divergence = |names| match drive.replay_with(deciding(names)) {
        Err(TurnFailure::Nondeterminism(divergence)) => {
            let Nondeterminism { event, recorded, code, .. } = *divergence;
            (event.0, recorded.line, code.line)
        }
        other => panic!("expected nondeterminism, got {:?}", other.map(|_| ())),
    };
    let report = |event, recorded: &str, code: &str| (event, recorded.to_owned(), code.to_owned());

    assert_eq!(divergence(&["A", "B"]), report(4, r#"ActivityScheduled "C" """#, "nothing"));
    assert_eq!(
        divergence(&["A", "C"]),
        report(3, r#"ActivityScheduled "B" """#, r#"ActivityScheduled "C" """#)
    );
    assert_eq!(divergence(&["A", "B", "C", "D"]), report(5, "nothing", r#"ActivityScheduled "D" """#));
    assert_eq!(
        divergence(&["A", "C", "B"]),
        report(3, r#"ActivityScheduled "B" """#, r#"ActivityScheduled "C" """#)
    );
    assert_eq!(
        divergence(&["A", "B", "X"]),
        report(4, r#"ActivityScheduled "C" """#, r#"ActivityScheduled "X" """#)
    );
}

#[test]
fn a_resolution_wakes_only_who_waits_for_that_operation() {
    let steps = Arc::new([const { AtomicU32::new(0) }; 3]);
    let counted = Arc::clone(&steps);
    let mut drive = start_alone(move |ctx: OrchestrationContext, _: Payload| {
        let counted = Arc::clone(&counted);
        async move {
            let branch = |number: usize| {
                let (ctx, counted) = (ctx.clone(), Arc::clone(&counted));
                async move {
                    let mut task = Box::pin(ctx.schedule_activity("Task", number.to_string()));
                    std::future::poll_fn(|cx| {
                        counted[number].fetch_add(1, Ordering::Relaxed);
                        task.as_mut().poll(cx)
                    })
                    .await
                }
            };
            ctx.parallel([branch(0), branch(1), branch(2)]).await;
            Ok(Payload::null())
        }
    });
    let polls = || steps.each_ref().map(|count| count.load(Ordering::Relaxed));
    assert_eq!(polls(), [1, 1, 1]);
    drive.complete(3, "second");
    assert_eq!(polls(), [1, 2, 1]);
    drive.turn([Drive::completed(4, "third"), Drive::completed(2, "first")]);
    assert_eq!(polls(), [2, 2, 2]);
    assert!(drive.execution().has_ended());
}

#[test]
fn queries_advance_no_unit() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let state = ctx.state("waiting");
            let shown = state.clone();
            ctx.on_query("stage", move |_| Ok(shown.read(|stage| Payload::from(*stage))));
            let _ = ctx.schedule_activity("A", "").await;
            state.update(|stage| *stage = "resumed");
            let _ = ctx.schedule_activity("B", "").await;
            Ok(Payload::null())
        },
        (),
    );
    let before = drive.lines();
    for _ in 0..3 {
        let answer = drive.execution().query("stage", Payload::null()).expect("it answers");
        assert_eq!(answer, Payload::from("waiting"));
    }
    assert_eq!(drive.lines(), before);
    assert_eq!(drive.execution().ledger().events(), 2);
    drive.complete(2, ());
    assert_eq!(drive.last_lines(), [r#"3 ActivityCompleted of 2 null"#, r#"4 ActivityScheduled "B" """#]);
    let answer = drive.execution().query("stage", Payload::null()).expect("it answers");
    assert_eq!(answer, Payload::from("resumed"));
}

#[test]
fn eviction_runs_no_code() {
    let steps = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&steps);
    let mut drive = start_alone(move |ctx: OrchestrationContext, _: Payload| {
        let counted = Arc::clone(&counted);
        async move {
            let _held = ctx.schedule_timer(Duration::from_secs(60));
            loop {
                counted.fetch_add(1, Ordering::Relaxed);
                ctx.schedule_wait("tick").await;
            }
        }
    });
    drive.raise("tick", ());
    let (before, lines) = (steps.load(Ordering::Relaxed), drive.lines());
    let history = drive.history().clone();
    let replayed = drive.replayed(&history).expect("it replays");
    assert_eq!(steps.load(Ordering::Relaxed), 2 * before, "a replay runs what was run before");
    drop(replayed);
    assert_eq!(steps.load(Ordering::Relaxed), 2 * before, "dropping it runs nothing more");
    assert_eq!(drive.lines(), lines, "and nothing is cancelled or recorded");
}

#[test]
fn calls_out_of_turn_are_detected() {
    let escaped = Arc::new(Mutex::new(None::<OrchestrationContext>));
    let leak = Arc::clone(&escaped);
    let mut drive = start_alone(move |ctx: OrchestrationContext, _: Payload| {
        *leak.lock().expect("one thread") = Some(ctx.clone());
        async move { ctx.schedule_activity("A", "").await.map_err(|_| Payload::null()) }
    });
    let ctx = escaped.lock().expect("one thread").clone().expect("it escaped");
    let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| ctx.set_status("out of turn")));
    assert!(refused.is_err(), "the call itself does not return");
    match drive.try_turn([Drive::completed(2, "a")]) {
        Err(TurnFailure::Misuse { what }) => {
            assert!(what.starts_with("set_status was called out of turn"), "{what}");
        }
        other => panic!("expected misuse, got {other:?}"),
    }
}
