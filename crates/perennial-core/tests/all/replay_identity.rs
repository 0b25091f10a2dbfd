//! What makes a decision what it is: for each kind, missing, extra, reordered and changed ones are reported at the
//! event where record and code part.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use perennial_core::{Nondeterminism, OrchestrationContext, OrchestrationHandler, Payload, TurnFailure};
use perennial_testkit::Drive;

/// What an act leaves to be kept.
type Held = Vec<Box<dyn Send>>;
/// Makes one decision.
type Act = fn(&OrchestrationContext, &mut Held);

const BEFORE: Act = |ctx, _| ctx.set_status("before");
const AFTER: Act = |ctx, _| ctx.set_status("after");

/// Makes these decisions in one step.
fn code(acts: &[Act]) -> impl OrchestrationHandler {
    let acts = acts.to_vec();
    move |ctx: OrchestrationContext, _: Payload| {
        let acts = acts.clone();
        async move {
            let mut held = Held::new();
            acts.iter().for_each(|act| act(&ctx, &mut held));
            ctx.schedule_wait("end").await;
            Ok(Payload::null())
        }
    }
}

fn diverged(replayed: Result<impl Sized, TurnFailure>) -> Nondeterminism {
    match replayed {
        Err(TurnFailure::Nondeterminism(divergence)) => *divergence,
        Err(other) => panic!("expected nondeterminism, got {other}"),
        Ok(_) => panic!("the replay found no difference"),
    }
}

/// Checks every way in which a replay can miss one decision. `changed` are acts of another identity.
fn check(base: Act, recorded_line: &str, changed: &[(Act, &str)]) {
    let drive = Drive::start(code(&[BEFORE, base, AFTER]), ());
    assert_eq!(drive.lines()[2], format!("3 {recorded_line}"));
    let (before, after) = (r#"StatusSet "before""#, r#"StatusSet "after""#);
    assert_eq!(
        drive.lines()[1..4],
        [format!("2 {before}"), format!("3 {recorded_line}"), format!("4 {after}")]
    );
    assert!(drive.replay_with(code(&[BEFORE, base, AFTER])).is_ok(), "the same");

    let parts_at = |event: u64, acts: &[Act], recorded: &str, did: &str| {
        let divergence = diverged(drive.replay_with(code(acts)));
        assert_eq!(
            (divergence.turn, divergence.event.0, &*divergence.recorded.line, &*divergence.code.line),
            (1, event, recorded, did)
        );
    };
    parts_at(3, &[BEFORE, AFTER], recorded_line, after);
    parts_at(4, &[BEFORE, base, base, AFTER], after, recorded_line);
    parts_at(3, &[BEFORE, AFTER, base], recorded_line, after);
    parts_at(2, &[base, BEFORE, AFTER], before, recorded_line);
    for (act, line) in changed {
        parts_at(3, &[BEFORE, *act, AFTER], recorded_line, line);
    }
}

#[test]
fn e6_an_activity_is_its_name_and_input() {
    check(
        |ctx, held| held.push(Box::new(ctx.schedule_activity("A", "input"))),
        r#"ActivityScheduled "A" "input""#,
        &[
            (
                |ctx, held| held.push(Box::new(ctx.schedule_activity("B", "input"))),
                r#"ActivityScheduled "B" "input""#,
            ),
            (
                |ctx, held| held.push(Box::new(ctx.schedule_activity("A", "other"))),
                r#"ActivityScheduled "A" "other""#,
            ),
            (
                |ctx, held| held.push(Box::new(ctx.schedule_sub_orchestration("A", "input"))),
                r#"SubOrchestrationScheduled "A" latest as derived id "input""#,
            ),
        ],
    );
}

#[test]
fn e6_a_timer_is_its_due_time() {
    check(
        |ctx, held| held.push(Box::new(ctx.schedule_timer(Duration::from_millis(500)))),
        "TimerCreated due 1500",
        &[(
            |ctx, held| held.push(Box::new(ctx.schedule_timer(Duration::from_millis(501)))),
            "TimerCreated due 1501",
        )],
    );
}

#[test]
fn e6_a_wait_is_its_name() {
    check(
        |ctx, held| held.push(Box::new(ctx.schedule_wait("approved"))),
        r#"ExternalSubscribed "approved""#,
        &[(|ctx, held| held.push(Box::new(ctx.schedule_wait("refused"))), r#"ExternalSubscribed "refused""#)],
    );
}

#[test]
fn e6_a_child_is_its_name_input_version_as_asked_and_explicit_id() {
    check(
        |ctx, held| {
            held.push(Box::new(
                ctx.schedule_sub_orchestration_with_id_versioned("Child", "2.0.0", "child-1", "in"),
            ));
        },
        r#"SubOrchestrationScheduled "Child" 2.0.0 as "child-1" "in""#,
        &[
            (
                |ctx, held| {
                    held.push(Box::new(
                        ctx.schedule_sub_orchestration_with_id_versioned("Kid", "2.0.0", "child-1", "in"),
                    ));
                },
                r#"SubOrchestrationScheduled "Kid" 2.0.0 as "child-1" "in""#,
            ),
            (
                |ctx, held| {
                    held.push(Box::new(
                        ctx.schedule_sub_orchestration_with_id_versioned("Child", "2.0.1", "child-1", "in"),
                    ));
                },
                r#"SubOrchestrationScheduled "Child" 2.0.1 as "child-1" "in""#,
            ),
            (
                |ctx, held| {
                    held.push(Box::new(ctx.schedule_sub_orchestration_with_id("Child", "child-1", "in")));
                },
                r#"SubOrchestrationScheduled "Child" latest as "child-1" "in""#,
            ),
            (
                |ctx, held| {
                    held.push(Box::new(
                        ctx.schedule_sub_orchestration_with_id_versioned("Child", "2.0.0", "child-2", "in"),
                    ));
                },
                r#"SubOrchestrationScheduled "Child" 2.0.0 as "child-2" "in""#,
            ),
            (
                |ctx, held| {
                    held.push(Box::new(ctx.schedule_sub_orchestration_versioned("Child", "2.0.0", "in")));
                },
                r#"SubOrchestrationScheduled "Child" 2.0.0 as derived id "in""#,
            ),
            (
                |ctx, held| {
                    held.push(Box::new(
                        ctx.schedule_sub_orchestration_with_id_versioned("Child", "2.0.0", "child-1", "out"),
                    ));
                },
                r#"SubOrchestrationScheduled "Child" 2.0.0 as "child-1" "out""#,
            ),
        ],
    );
}

#[test]
fn e6_a_detached_start_is_its_name_id_version_as_asked_and_input() {
    check(
        |ctx, _| drop(ctx.schedule_orchestration("Audit", "audit-1", "in")),
        r#"OrchestrationChained "Audit" latest as "audit-1" "in""#,
        &[
            (
                |ctx, _| drop(ctx.schedule_orchestration("Check", "audit-1", "in")),
                r#"OrchestrationChained "Check" latest as "audit-1" "in""#,
            ),
            (
                |ctx, _| drop(ctx.schedule_orchestration("Audit", "audit-2", "in")),
                r#"OrchestrationChained "Audit" latest as "audit-2" "in""#,
            ),
            (
                |ctx, _| drop(ctx.schedule_orchestration_versioned("Audit", "1.0.0", "audit-1", "in")),
                r#"OrchestrationChained "Audit" 1.0.0 as "audit-1" "in""#,
            ),
            (
                |ctx, _| drop(ctx.schedule_orchestration("Audit", "audit-1", "out")),
                r#"OrchestrationChained "Audit" latest as "audit-1" "out""#,
            ),
        ],
    );
}

#[test]
fn e6_a_sent_event_is_its_receiver_name_and_payload() {
    check(
        |ctx, _| drop(ctx.raise_event("other-1", "Ping", "hello")),
        r#"ExternalEventSent "Ping" to "other-1" "hello""#,
        &[
            (
                |ctx, _| drop(ctx.raise_event("other-2", "Ping", "hello")),
                r#"ExternalEventSent "Ping" to "other-2" "hello""#,
            ),
            (
                |ctx, _| drop(ctx.raise_event("other-1", "Pong", "hello")),
                r#"ExternalEventSent "Pong" to "other-1" "hello""#,
            ),
            (
                |ctx, _| drop(ctx.raise_event("other-1", "Ping", "bye")),
                r#"ExternalEventSent "Ping" to "other-1" "bye""#,
            ),
        ],
    );
}

#[test]
fn e6_a_system_call_is_its_operation() {
    check(
        |ctx, _| drop(ctx.side_effect("roll", || 4)),
        r#"SystemCall "side_effect:roll""#,
        &[
            (|ctx, _| drop(ctx.side_effect("toss", || 4)), r#"SystemCall "side_effect:toss""#),
            (|ctx, _| drop(ctx.utc_now()), r#"SystemCall "utc_now""#),
            (|ctx, _| drop(ctx.new_guid()), r#"SystemCall "new_guid""#),
        ],
    );
}

#[test]
fn e6_a_status_is_its_words_and_attributes_are_their_names_and_values() {
    check(
        |ctx, _| ctx.set_status("packing"),
        r#"StatusSet "packing""#,
        &[(|ctx, _| ctx.set_status("sending"), r#"StatusSet "sending""#)],
    );
    check(
        |ctx, _| ctx.upsert_attributes([("customer", "ada")]),
        r#"AttributesUpserted customer="ada""#,
        &[
            (|ctx, _| ctx.upsert_attributes([("client", "ada")]), r#"AttributesUpserted client="ada""#),
            (|ctx, _| ctx.upsert_attributes([("customer", "bob")]), r#"AttributesUpserted customer="bob""#),
            (
                |ctx, _| ctx.upsert_attributes([("customer", "ada"), ("vip", "yes")]),
                r#"AttributesUpserted customer="ada", vip="yes""#,
            ),
        ],
    );
}

/// A decision made by a unit of its own.
fn in_branch(number: u32, act: Act) -> impl OrchestrationHandler {
    move |ctx: OrchestrationContext, _: Payload| async move {
        let branch = |mine: bool| -> BoxFuture<'static, Held> {
            let ctx = ctx.clone();
            Box::pin(async move {
                let mut held = Held::new();
                if mine {
                    act(&ctx, &mut held);
                }
                held
            })
        };
        let _held = ctx.parallel([branch(number == 0), branch(number == 1)]).await;
        ctx.schedule_wait("end").await;
        Ok(Payload::null())
    }
}

#[test]
fn e6_a_decision_is_also_the_unit_that_makes_it() {
    const ACT: Act = |ctx, held| held.push(Box::new(ctx.schedule_activity("A", "")));
    let drive = Drive::start(in_branch(1, ACT), ());
    assert_eq!(drive.lines()[1..], [r#"2 ActivityScheduled "A" "" in p1"#, r#"3 ExternalSubscribed "end""#]);
    assert!(drive.replay_with(in_branch(1, ACT)).is_ok());
    let other_branch = diverged(drive.replay_with(in_branch(0, ACT)));
    assert_eq!((other_branch.event.0, &*other_branch.code.line), (2, r#"ActivityScheduled "A" "" in p0"#));
    let no_branch = diverged(drive.replay_with(code(&[ACT])));
    assert_eq!((no_branch.event.0, &*no_branch.code.line), (2, r#"ActivityScheduled "A" """#));
}

#[test]
fn e6_the_end_is_compared_with_its_output() {
    #[derive(Clone, Copy)]
    enum End {
        Complete(&'static str),
        Fail(&'static str),
        Continue(&'static str, Option<&'static str>),
        Wait,
    }
    fn ending(end: End) -> impl OrchestrationHandler {
        move |ctx: OrchestrationContext, _: Payload| async move {
            match end {
                End::Complete(output) => Ok(Payload::from(output)),
                End::Fail(error) => Err(Payload::from(error)),
                End::Continue(input, None) => ctx.continue_as_new(input).await,
                End::Continue(input, Some(version)) => ctx.continue_as_new_versioned(version, input).await,
                End::Wait => Ok(ctx.schedule_wait("more").await),
            }
        }
    }
    let kinds = [
        (End::Complete("a"), r#"OrchestrationCompleted "a""#),
        (End::Complete("b"), r#"OrchestrationCompleted "b""#),
        (End::Fail("a"), r#"OrchestrationFailed "a""#),
        (End::Fail("b"), r#"OrchestrationFailed "b""#),
        (End::Continue("a", None), r#"OrchestrationContinuedAsNew latest "a""#),
        (End::Continue("b", None), r#"OrchestrationContinuedAsNew latest "b""#),
        (End::Continue("a", Some("2.0.0")), r#"OrchestrationContinuedAsNew 2.0.0 "a""#),
        (End::Wait, r#"ExternalSubscribed "more""#),
    ];
    for (recorded, (record, recorded_line)) in kinds.into_iter().enumerate() {
        let drive = Drive::start(ending(record), ());
        for (replayed, (now, now_line)) in kinds.into_iter().enumerate() {
            let outcome = drive.replay_with(ending(now));
            if recorded == replayed {
                assert!(outcome.is_ok(), "{recorded_line} is what it was");
                continue;
            }
            let divergence = diverged(outcome);
            assert_eq!(
                (divergence.event.0, &*divergence.recorded.line, &*divergence.code.line),
                (2, recorded_line, now_line)
            );
        }
    }
}

#[test]
fn e6_an_updates_answer_is_compared() {
    fn answering(answer: Result<&'static str, &'static str>) -> impl OrchestrationHandler {
        move |ctx: OrchestrationContext, _: Payload| async move {
            ctx.on_update(
                "update",
                |_| Ok(()),
                move |_| async move { answer.map(Payload::from).map_err(Payload::from) },
            );
            ctx.schedule_wait("end").await;
            Ok(Payload::null())
        }
    }
    let mut drive = Drive::start(answering(Ok("yes")), ());
    drive.turn([Drive::update("update", ())]);
    assert_eq!(
        drive.last_lines(),
        [r#"3 UpdateRequested "update" null"#, r#"4 UpdateCompleted of 3 "yes" in h0"#]
    );
    assert!(drive.replay_with(answering(Ok("yes"))).is_ok());
    for (answer, line) in [
        (Ok("no"), r#"UpdateCompleted of 3 "no" in h0"#),
        (Err("yes"), r#"UpdateCompleted of 3 refused "yes" in h0"#),
    ] {
        let divergence = diverged(drive.replay_with(answering(answer)));
        assert_eq!((divergence.turn, divergence.event.0, &*divergence.code.line), (2, 4, line));
    }
    let silent = |ctx: OrchestrationContext, _: Payload| async move {
        ctx.on_update("update", |_| Ok(()), |_| std::future::pending());
        ctx.schedule_wait("end").await;
        Ok(Payload::null())
    };
    let divergence = diverged(drive.replay_with(silent));
    assert_eq!((divergence.event.0, &*divergence.code.line), (4, "nothing"));
}

#[test]
fn e6_a_replay_compares_as_each_step_ends_and_goes_no_further() {
    fn branches(first: &'static str, second_ran: Arc<AtomicBool>) -> impl OrchestrationHandler {
        move |ctx: OrchestrationContext, _: Payload| {
            let second_ran = Arc::clone(&second_ran);
            async move {
                let (ctx0, ctx1) = (ctx.clone(), ctx.clone());
                let one = Box::pin(async move { ctx0.set_status(first) }) as BoxFuture<'static, ()>;
                let two = Box::pin(async move {
                    second_ran.store(true, Ordering::Relaxed);
                    ctx1.set_status("second");
                });
                ctx.parallel([one, two]).await;
                ctx.schedule_wait("end").await;
                Ok(Payload::null())
            }
        }
    }
    let drive = Drive::start(branches("first", Arc::default()), ());
    let second_ran = Arc::new(AtomicBool::new(false));
    let divergence = diverged(drive.replay_with(branches("changed", Arc::clone(&second_ran))));
    assert_eq!(divergence.event.0, 2);
    assert!(!second_ran.load(Ordering::Relaxed), "no step after the one that differs");
}
