//! How a turn ends an execution: what wins, what is left behind, and what still answers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use perennial_core::{
    ExecutionOptions, Job, OrchestrationContext, OrchestrationHandler, Payload, QueryFailure, Started,
    TurnFailure, UpdateRefusal,
};
use perennial_testkit::Drive;

type Output = Result<Payload, Payload>;

/// Starts without a shadow, so that what the code does outside of its history happens once.
fn start_alone(handler: impl OrchestrationHandler) -> Drive {
    let options = ExecutionOptions { shadow_replay: false, ..ExecutionOptions::default() };
    let started = Started::new("orchestration", "1.0.0", (), 42);
    let mut drive = Drive::prepare(Arc::new(handler), started, options).expect("it can start");
    drive.turn([]);
    drive
}

async fn activity_then_output(ctx: OrchestrationContext, _: Payload) -> Output {
    ctx.schedule_activity("A", "").await.map_err(|_| Payload::null())
}

async fn activity_then_next(ctx: OrchestrationContext, _: Payload) -> Output {
    let _ = ctx.schedule_activity("A", "").await;
    ctx.continue_as_new("next").await
}

#[test]
fn e25_cancel_wins_over_output_and_continue_as_new() {
    let mut completes = Drive::start(activity_then_output, ());
    let taken =
        completes.try_turn([Drive::completed(2, "a"), Drive::cancel("stop", 5_000)]).expect("it ends");
    assert!(taken.successor.is_none());
    assert_eq!(
        completes.last_lines(),
        [
            r#"3 ActivityCompleted of 2 "a""#,
            r#"4 OrchestrationCancelRequested "stop""#,
            r#"5 OrchestrationCancelled "stop""#,
        ]
    );
    completes.evict();

    let mut continues = Drive::start(activity_then_next, ());
    let taken =
        continues.try_turn([Drive::completed(2, "a"), Drive::cancel("stop", 5_000)]).expect("it ends");
    assert!(taken.successor.is_none(), "nothing goes on");
    assert_eq!(continues.last_lines()[2], r#"5 OrchestrationCancelled "stop""#);
    continues.evict();
}

#[test]
fn e25_cancel_wins_over_an_output_that_would_come_after_it() {
    let mut drive = Drive::start(activity_then_output, ());
    drive.turn([Drive::cancel("stop", 5_000), Drive::completed(2, "a")]).evict();
    assert_eq!(
        drive.last_lines(),
        [
            r#"3 OrchestrationCancelRequested "stop""#,
            r#"4 ActivityCompleted of 2 "a""#,
            r#"5 OrchestrationCancelled "stop""#,
        ],
        "what came after it stays recorded"
    );
}

#[test]
fn e25_code_that_took_cancellation_over_decides_by_itself() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let task = ctx.schedule_activity("A", "");
            match ctx.select2(task, ctx.cancelled()).await {
                perennial_core::Either::First(result) => result.map_err(|_| Payload::null()),
                perennial_core::Either::Second(_) => Err("cancelled".into()),
            }
        },
        (),
    );
    drive.turn([Drive::completed(2, "a"), Drive::cancel("stop", 5_000)]).evict();
    assert_eq!(drive.last_lines()[2], r#"5 OrchestrationCompleted "a""#);
}

#[test]
fn e25_continue_as_new_wins_over_output() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            drop(ctx.continue_as_new::<()>("next"));
            Ok("output".into())
        },
        (),
    );
    assert_eq!(drive.last_lines()[1..], [r#"2 OrchestrationContinuedAsNew latest "next""#]);
    drive.evict();
}

#[test]
fn e25_divergence_wins_over_cancel() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let _ = ctx.schedule_activity("A", "").await;
            ctx.set_status("as recorded");
            ctx.schedule_wait("end").await;
            Ok(Payload::null())
        },
        (),
    );
    drive.turn([Drive::completed(2, "a"), Drive::cancel("stop", 5_000)]);
    let changed = |ctx: OrchestrationContext, _: Payload| async move {
        let _ = ctx.schedule_activity("A", "").await;
        ctx.set_status("changed");
        ctx.schedule_wait("end").await;
        Ok(Payload::null())
    };
    match drive.replay_with(changed) {
        Err(TurnFailure::Nondeterminism(divergence)) => assert_eq!(divergence.event.0, 5),
        other => panic!("expected nondeterminism, got {:?}", other.map(|_| ())),
    }
    let silent = |ctx: OrchestrationContext, _: Payload| async move {
        let _ = ctx.schedule_activity("A", "").await;
        ctx.schedule_wait("end").await;
        Ok(Payload::null())
    };
    match drive.replay_with(silent) {
        Err(TurnFailure::Nondeterminism(divergence)) => assert_eq!(divergence.event.0, 5),
        other => panic!("expected nondeterminism, got {:?}", other.map(|_| ())),
    }
}

#[test]
fn e25_a_terminated_turn_runs_no_code() {
    let ran = Arc::new(Mutex::new(0));
    let count = Arc::clone(&ran);
    let mut drive = start_alone(move |ctx: OrchestrationContext, _: Payload| {
        *count.lock().expect("one thread") += 1;
        async move { ctx.schedule_activity("A", "").await.map_err(|_| Payload::null()) }
    });
    let mut history = drive.history().clone();
    let mut ledger = drive.execution().ledger().clone();
    history.turns.push(ledger.terminate(9_000, "enough"));
    let replayed = drive.replayed(&history).expect("it replays");
    assert!(replayed.has_ended());
    assert_eq!(replayed.ledger().ended(), Some("OrchestrationTerminated"));
    assert_eq!(*ran.lock().expect("one thread"), 2, "the first turn, live and replayed");
}

/// A root that waits for A, and a branch and a handler that could go on with it.
async fn three_units(ctx: OrchestrationContext, _: Payload) -> Output {
    let (branch, handler) = (ctx.clone(), ctx.clone());
    ctx.spawn(async move {
        let _ = branch.schedule_activity("B", "").await;
        branch.set_status("the branch goes on");
    })
    .detach();
    ctx.on_event("event", move |_| {
        let ctx = handler.clone();
        async move { ctx.set_status("the handler runs") }
    });
    ctx.on_update("update", |_| Ok(()), |payload| async move { Ok(payload) });
    ctx.schedule_activity("A", "").await.map_err(|_| Payload::null())
}

#[test]
fn e26_the_turn_ends_with_the_step_in_which_the_root_returns() {
    let mut drive = Drive::start(three_units, ());
    let taken = drive
        .try_turn([
            Drive::completed(2, "a"),
            Drive::completed(3, "b"),
            Drive::event("event", ()),
            Drive::update("update", ()),
        ])
        .expect("it ends");
    assert_eq!(
        drive.last_lines(),
        [
            r#"4 ActivityCompleted of 2 "a""#,
            r#"5 ActivityCompleted of 3 "b""#,
            r#"6 ExternalEvent "event" null"#,
            r#"7 UpdateRequested "update" null"#,
            r#"8 OrchestrationCompleted "a""#,
        ],
        "all jobs are recorded, no other unit runs"
    );
    let ended: Vec<u64> = taken.ended_updates.iter().map(|id| id.0).collect();
    assert_eq!(ended, [7]);
    assert!(taken.successor.is_none());
    drive.evict();
}

#[test]
fn e26_an_update_behind_the_end_is_listed_even_if_nobody_handles_its_name() {
    let mut drive = Drive::start(activity_then_output, ());
    let taken = drive.try_turn([Drive::completed(2, "a"), Drive::update("unknown", ())]).expect("it ends");
    assert_eq!(
        drive.last_lines(),
        [
            r#"3 ActivityCompleted of 2 "a""#,
            r#"4 UpdateRequested "unknown" null"#,
            r#"5 OrchestrationCompleted "a""#,
        ],
        "it is not delivered, so nothing refuses it"
    );
    let ended: Vec<u64> = taken.ended_updates.iter().map(|id| id.0).collect();
    assert_eq!(ended, [4]);
    drive.evict();
}

#[test]
fn e26_units_that_are_runnable_in_the_same_round_do_not_run_either() {
    let drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let inner = ctx.clone();
            ctx.spawn(async move { inner.set_status("never") }).detach();
            let handler = ctx.clone();
            ctx.on_event("event", move |_| {
                let ctx = handler.clone();
                async move { ctx.set_status("never") }
            });
            Ok("at once".into())
        },
        (),
    );
    assert_eq!(drive.last_lines()[1..], [r#"2 OrchestrationCompleted "at once""#]);
}

#[test]
fn e26_the_turn_ends_with_the_step_in_which_any_unit_continues_as_new() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let (first, second) = (ctx.clone(), ctx.clone());
            let continues = async move {
                let _ = first.schedule_activity("A", "").await;
                drop(first.continue_as_new::<()>("next"));
                first.set_status("still in the step");
                first.schedule_wait("never").await;
            };
            let goes_on = async move {
                let _ = second.schedule_activity("B", "").await;
                second.set_status("never reached");
            };
            ctx.on_update("update", |_| Ok(()), |_| std::future::pending());
            ctx.join2(ctx.spawn(continues), ctx.spawn(goes_on)).await;
            Ok(Payload::null())
        },
        (),
    );
    drive.turn([Drive::update("update", "first")]);
    let taken = drive
        .try_turn([
            Drive::completed(3, "b"),
            Drive::completed(2, "a"),
            Drive::event("unread", 1.to_string()),
            Drive::update("update", "second"),
            Drive::event("unread", 2.to_string()),
        ])
        .expect("it ends");
    assert_eq!(
        drive.last_lines(),
        [
            r#"5 ActivityCompleted of 3 "b""#,
            r#"6 ActivityCompleted of 2 "a""#,
            r#"7 ExternalEvent "unread" "1""#,
            r#"8 UpdateRequested "update" "second""#,
            r#"9 ExternalEvent "unread" "2""#,
            r#"10 StatusSet "still in the step" in p0"#,
            r#"11 ExternalSubscribed "never" in p0"#,
            r#"12 OrchestrationContinuedAsNew latest "next""#,
        ]
    );
    let ended: Vec<u64> = taken.ended_updates.iter().map(|id| id.0).collect();
    assert_eq!(ended, [4], "the one whose handler began is unanswered");
    let crossed: Vec<&str> = taken.successor.iter().flat_map(|next| &next.jobs).map(Job::name).collect();
    assert_eq!(crossed, ["ExternalEvent", "UpdateRequested", "ExternalEvent"]);
    assert_eq!(taken.carried_updates.first().map(|(event, _)| event.0), Some(8));
    drive.evict();
}

#[test]
fn e26_what_is_dropped_at_the_end_is_inert() {
    struct Meddles(OrchestrationContext);
    impl Drop for Meddles {
        fn drop(&mut self) {
            self.0.set_status("too late");
            drop(self.0.schedule_activity("Late", ""));
            drop(self.0.spawn(async {}));
        }
    }
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let (inner, meddles) = (ctx.clone(), Meddles(ctx.clone()));
            ctx.spawn(async move {
                let _meddles = meddles;
                let _timer = inner.schedule_timer(Duration::from_secs(1));
                inner.schedule_wait("never").await;
            })
            .detach();
            ctx.schedule_activity("A", "").await.map_err(|_| Payload::null())
        },
        (),
    );
    drive.complete(2, "a").evict();
    assert_eq!(drive.last_lines(), [r#"5 ActivityCompleted of 2 "a""#, r#"6 OrchestrationCompleted "a""#]);
}

#[test]
fn e26_handlers_idle_waits_for_the_handlers_that_are_at_work() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let handler = ctx.clone();
            ctx.on_event("event", move |name| {
                let ctx = handler.clone();
                async move {
                    let _ = ctx.schedule_activity("Handle", name.clone()).await;
                    ctx.set_status(name);
                }
            });
            ctx.handlers_idle().await;
            ctx.schedule_wait("end").await;
            ctx.handlers_idle().await;
            Ok("all handled".into())
        },
        (),
    );
    assert_eq!(drive.lines()[1..], [r#"2 ExternalSubscribed "end""#], "with none at work it does not wait");
    drive.turn([Drive::event("event", "one"), Drive::event("end", ()), Drive::event("event", "two")]).evict();
    assert_eq!(
        drive.last_lines()[3..],
        [r#"6 ActivityScheduled "Handle" "one" in h0"#, r#"7 ActivityScheduled "Handle" "two" in h1"#]
    );
    drive.complete(7, ()).evict();
    assert_eq!(drive.last_lines()[1..], [r#"9 StatusSet "two" in h1"#], "one is still at work");
    drive.complete(6, ()).evict();
    assert_eq!(
        drive.last_lines()[1..],
        [r#"11 StatusSet "one" in h0"#, r#"12 OrchestrationCompleted "all handled""#]
    );
}

#[test]
fn e26_a_handler_that_asks_for_idle_handlers_does_not_wait_for_itself() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let handler = ctx.clone();
            ctx.on_event("event", move |_| {
                let ctx = handler.clone();
                async move {
                    ctx.handlers_idle().await;
                    ctx.set_status("alone");
                }
            });
            ctx.schedule_wait("end").await;
            Ok(Payload::null())
        },
        (),
    );
    drive.raise("event", ()).evict();
    assert_eq!(drive.last_lines()[1..], [r#"4 StatusSet "alone" in h0"#]);
}

#[test]
fn e26_state_and_queries_stay_after_the_end() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let state = ctx.state("running");
            let (shown, decides) = (state.clone(), ctx.clone());
            ctx.on_query("stage", move |_| Ok(shown.read(|stage| Payload::from(*stage))));
            ctx.on_query("decide", move |_| {
                decides.set_status("after the end");
                Ok(Payload::null())
            });
            ctx.on_update("update", |_| Ok(()), |payload| async move { Ok(payload) });
            let result = ctx.schedule_activity("A", "").await;
            state.update(|stage| *stage = "done");
            result.map_err(|_| Payload::null())
        },
        (),
    );
    drive.complete(2, "a");
    for _ in 0..2 {
        let answer = drive.execution().query("stage", Payload::null()).expect("it answers");
        assert_eq!(answer, Payload::from("done"));
        assert!(matches!(
            drive.execution().query("decide", Payload::null()),
            Err(QueryFailure::Misuse { .. })
        ));
        assert!(matches!(
            drive.execution().offer_update("update", &Payload::null()),
            Err(UpdateRefusal::NotRunning { .. })
        ));
        assert_eq!(drive.execution().stalled_units(), []);
        drive.evict();
    }
}

#[test]
fn e21_a_query_does_not_tell_whether_the_execution_was_evicted() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let inner = ctx.clone();
            ctx.on_query("replaying", move |_| Ok(Payload::from(inner.is_replaying().to_string())));
            ctx.schedule_activity("A", "").await.map_err(|_| Payload::null())
        },
        (),
    );
    let resident = drive.execution().query("replaying", Payload::null()).expect("it answers");
    let hydrated = drive.evict().execution().query("replaying", Payload::null()).expect("it answers");
    assert_eq!((resident, hydrated), (Payload::from("false"), Payload::from("false")));
}
