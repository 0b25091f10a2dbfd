//! Misuse of the context in queries, validators, state closures and handlers fails the turn or query, even if the code
//! catches it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::misuse_calls::{DECISIONS, caught, misuse, start_alone};
use perennial_core::{OrchestrationContext, Payload, QueryFailure, UpdateRefusal};
use perennial_testkit::Drive;

#[test]
fn e27_decisions_in_a_query_fail_the_query_and_nothing_else() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            for (call, decide) in DECISIONS {
                let (inner, catching) = (ctx.clone(), ctx.clone());
                ctx.on_query(call, move |_| {
                    decide(&inner);
                    Ok("answered".into())
                });
                ctx.on_query(format!("{call}, caught"), move |_| {
                    caught(|| decide(&catching));
                    Ok("answered".into())
                });
            }
            ctx.schedule_activity("A", "").await.map_err(|_| Payload::null())
        },
        (),
    );
    for (call, _) in DECISIONS {
        for name in [call.to_owned(), format!("{call}, caught")] {
            match drive.execution().query(&name, Payload::null()) {
                Err(QueryFailure::Misuse { what, .. }) => assert_eq!(
                    what,
                    format!(
                        "{call} was called in a query handler; only running orchestration code may decide"
                    )
                ),
                other => panic!("{name}: expected misuse, got {other:?}"),
            }
        }
    }
    drive.complete(2, "a");
    assert_eq!(drive.last_lines(), [r#"3 ActivityCompleted of 2 "a""#, r#"4 OrchestrationCompleted "a""#]);
}

#[test]
fn e27_decisions_in_a_validator_refuse_the_update_and_nothing_else() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            for (call, decide) in DECISIONS {
                let inner = ctx.clone();
                ctx.on_update(
                    call,
                    move |_| {
                        caught(|| decide(&inner));
                        Ok(())
                    },
                    |payload| async move { Ok(payload) },
                );
            }
            ctx.schedule_activity("A", "").await.map_err(|_| Payload::null())
        },
        (),
    );
    for (call, _) in DECISIONS {
        match drive.execution().offer_update(call, &Payload::null()) {
            Err(UpdateRefusal::Misuse { what, .. }) => assert_eq!(
                what,
                format!(
                    "{call} was called in an update validator; only running orchestration code may decide"
                )
            ),
            other => panic!("{call}: expected misuse, got {other:?}"),
        }
    }
    drive.complete(2, "a");
    assert_eq!(drive.last_lines().len(), 2);
}

#[test]
fn e27_decisions_in_a_state_closure_fail_the_turn_even_if_caught() {
    for (call, decide) in DECISIONS {
        for writing in [false, true] {
            let turn = Drive::try_start(
                move |ctx: OrchestrationContext, _: Payload| async move {
                    let state = ctx.state(0);
                    if writing {
                        state.update(|_| caught(|| decide(&ctx)));
                    } else {
                        state.read(|_| caught(|| decide(&ctx)));
                    }
                    Ok(Payload::null())
                },
                (),
            );
            assert_eq!(
                misuse(turn),
                format!("{call} was called in a state closure; only running orchestration code may decide")
            );
        }
    }
}

#[test]
fn e27_a_state_closure_may_look() {
    let drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let state = ctx.state(0);
            let seen = state.update(|n| {
                *n += 1;
                (ctx.now(), ctx.is_replaying(), ctx.is_cancelled(), ctx.info().execution)
            });
            Ok(Payload::from(format!("{} {}", seen.0, state.read(|n| *n))))
        },
        (),
    );
    assert_eq!(drive.last_lines()[1], r#"2 OrchestrationCompleted "1970-01-01T00:00:01Z 1""#);
}

#[test]
fn e27_nested_states_fail_the_turn_even_if_caught() {
    let same = Drive::try_start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let state = ctx.state(0);
            state.update(|_| caught(|| state.read(|_| ())));
            Ok(Payload::null())
        },
        (),
    );
    let what = "was called inside another closure of the context; take the values out first";
    assert_eq!(misuse(same), format!("state.read {what}"));
    let other = Drive::try_start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let (one, two) = (ctx.state(0), ctx.state(0));
            one.read(|_| caught(|| two.update(|n| *n += 1)));
            Ok(Payload::null())
        },
        (),
    );
    assert_eq!(misuse(other), format!("state.update {what}"));
}

#[test]
fn e27_a_state_changed_in_a_query_fails_the_query() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let state = ctx.state(0);
            let (written, shown) = (state.clone(), state);
            ctx.on_query("write", move |_| {
                caught(|| written.update(|n| *n += 1));
                Ok(Payload::null())
            });
            ctx.on_query("show", move |_| Ok(Payload::from(shown.read(i32::to_string))));
            ctx.schedule_activity("A", "").await.map_err(|_| Payload::null())
        },
        (),
    );
    assert!(matches!(drive.execution().query("write", Payload::null()), Err(QueryFailure::Misuse { .. })));
    let shown = drive.execution().query("show", Payload::null()).expect("it answers");
    assert_eq!(shown, Payload::from("0"), "and it has not changed");
}

#[test]
fn e27_a_name_has_waits_or_one_handler() {
    type Code = fn(&OrchestrationContext);
    let cases: [(Code, &str); 5] = [
        (
            |ctx| {
                ctx.on_event("e", |_| async {});
                caught(|| drop(ctx.schedule_wait("e")));
            },
            r#"the event "e" has a handler and cannot be waited for"#,
        ),
        (
            |ctx| {
                let wait = ctx.schedule_wait("e");
                caught(|| ctx.on_event("e", |_| async {}));
                drop(wait);
            },
            r#"the event "e" already has waits or a handler; a name has waits or one handler"#,
        ),
        (
            |ctx| {
                ctx.on_event("e", |_| async {});
                caught(|| ctx.on_event("e", |_| async {}));
            },
            r#"the event "e" already has waits or a handler; a name has waits or one handler"#,
        ),
        (
            |ctx| {
                ctx.on_update("u", |_| Ok(()), |payload| async move { Ok(payload) });
                caught(|| ctx.on_update("u", |_| Ok(()), |payload| async move { Ok(payload) }));
            },
            r#"the update "u" already has a handler"#,
        ),
        (
            |ctx| {
                ctx.on_query("q", Ok);
                caught(|| ctx.on_query("q", Ok));
            },
            r#"the query "q" already has a handler"#,
        ),
    ];
    for (code, what) in cases {
        let turn = Drive::try_start(
            move |ctx: OrchestrationContext, _: Payload| async move {
                code(&ctx);
                Ok(Payload::null())
            },
            (),
        );
        assert_eq!(misuse(turn), what);
    }
}

/// An orchestration whose query drops what `keep` keeps.
fn drops_in_a_query<K: Send + 'static>(
    keep: impl Fn(&OrchestrationContext) -> K + Send + Sync + Clone + 'static,
) -> Drive {
    start_alone(move |ctx: OrchestrationContext, _: Payload| {
        let keep = keep.clone();
        async move {
            let kept = Arc::new(Mutex::new(Some(keep(&ctx))));
            let dropped = Arc::clone(&kept);
            ctx.on_query("drop", move |_| {
                drop(dropped.lock().expect("one thread").take());
                Ok(Payload::null())
            });
            ctx.schedule_wait("go on").await;
            ctx.schedule_wait("end").await;
            Ok(Payload::null())
        }
    })
}

#[test]
fn e27_a_future_dropped_in_a_query_fails_the_query() {
    let mut drive = drops_in_a_query(|ctx| ctx.schedule_timer(Duration::from_secs(1)));
    match drive.execution().query("drop", Payload::null()) {
        Err(QueryFailure::Misuse { what, .. }) => {
            assert!(what.starts_with("a durable future was dropped outside of a step"), "{what}");
        }
        other => panic!("expected misuse, got {other:?}"),
    }
}

#[test]
fn e27_what_a_query_dropped_reaches_no_record_that_no_replay_can_match() {
    let mut drive = drops_in_a_query(|ctx| ctx.schedule_timer(Duration::from_secs(1)));
    let _ = drive.execution().query("drop", Payload::null());
    // Whether the next turn fails or is taken: what is recorded must replay.
    if drive.try_turn([Drive::event("go on", ())]).is_ok() {
        assert_eq!(drive.last_lines(), [r#"4 ExternalEvent "go on" null"#, r#"5 ExternalSubscribed "end""#]);
    }
    drive.evict();
}

#[test]
fn e27_a_handle_dropped_in_a_query_fails_the_query() {
    let mut drive = drops_in_a_query(|ctx| ctx.spawn(std::future::pending::<()>()));
    match drive.execution().query("drop", Payload::null()) {
        Err(QueryFailure::Misuse { .. }) => {}
        other => panic!("a query that drops a unit advances something, yet got {other:?}"),
    }
}
