//! A turn that panics or passes its deadline fails as a whole, and a query or validator fails alone (E24).

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use futures::FutureExt;
use perennial_core::{
    Event, EventId, EventKind, ExecutionOptions, Interrupter, OrchestrationContext, OrchestrationHandler,
    Payload, QueryFailure, Started, Turn, TurnFailure, UpdateRefusal,
};
use perennial_testkit::Drive;
use serde_json::json;

/// Prepares an execution whose code can reach its own interrupter.
fn interruptible<H: OrchestrationHandler>(handler: impl FnOnce(Arc<OnceLock<Interrupter>>) -> H) -> Drive {
    let slot = Arc::new(OnceLock::new());
    let options = ExecutionOptions { shadow_replay: false, ..ExecutionOptions::default() };
    let started = Started::new("orchestration", "1.0.0", (), 42);
    let mut drive = Drive::prepare(Arc::new(handler(Arc::clone(&slot))), started, options).unwrap();
    slot.set(drive.execution().interrupter()).unwrap();
    drive
}

fn panicked<T: std::fmt::Debug>(outcome: Result<T, TurnFailure>) -> (String, String) {
    match outcome {
        Err(TurnFailure::Panicked { unit, message, .. }) => (unit.to_string(), message),
        other => panic!("no panic: {other:?}"),
    }
}

#[test]
fn e24_a_panic_in_a_unit_fails_the_turn_and_nothing_of_it_is_recorded() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let from = ctx.clone();
            ctx.on_event("handler", move |_| {
                let ctx = from.clone();
                async move {
                    ctx.set_status("decided in vain");
                    panic!("a handler's words")
                }
            });
            let from = ctx.clone();
            let branch = ctx.spawn(async move {
                from.schedule_wait("branch").await;
                from.set_status("decided in vain");
                panic_any(17)
            });
            ctx.schedule_wait("root").await;
            ctx.set_status("decided in vain");
            drop(branch);
            panic!("the root's {}", "words")
        },
        (),
    );
    let before = drive.history().clone();
    for (name, unit, message) in [
        ("root", "root", "the root's words"),
        ("branch", "p0", "a panic without a message"),
        ("handler", "h0", "a handler's words"),
    ] {
        let outcome = drive.try_turn([Drive::event(name, ()), Drive::event("other", ())]);
        assert_eq!(panicked(outcome), (unit.to_owned(), message.to_owned()));
        assert_eq!(*drive.history(), before);
        // The next attempt replays.
        drive.evict();
    }
}

#[test]
fn e24_the_next_attempt_goes_on_from_the_last_recorded_turn() {
    let attempts = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&attempts);
    let mut drive = Drive::start(
        move |ctx: OrchestrationContext, _: Payload| {
            let attempts = Arc::clone(&counter);
            async move {
                let go = ctx.schedule_wait("go").await;
                ctx.set_status(ctx.random().to_string());
                // A bug that the next deployment fixes.
                assert!(attempts.fetch_add(1, Ordering::Relaxed) > 0, "not yet");
                Ok(go)
            }
        },
        (),
    );
    let (unit, message) = panicked(drive.try_turn([Drive::event("go", "x")]));
    assert_eq!((unit.as_str(), message.as_str()), ("root", "not yet"));
    drive.evict().raise("go", "y").evict();
    assert_eq!(
        drive.lines()[2..],
        [
            r#"3 ExternalEvent "go" "y""#,
            r#"4 StatusSet "11882281010927931245""#,
            r#"5 OrchestrationCompleted "y""#,
        ]
    );
}

#[test]
fn e24_a_panic_of_its_own_that_the_code_catches_is_its_own_affair() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let caught = AssertUnwindSafe(async { panic!("of no concern") }).catch_unwind().await;
            let _: Result<(), _> = caught;
            Ok(ctx.schedule_activity("A", ()).await.unwrap())
        },
        (),
    );
    drive.evict().complete(2, "a").evict();
    assert_eq!(drive.last_lines()[1], r#"4 OrchestrationCompleted "a""#);
}

struct PanicsOnDrop;

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        panic!("a destructor's words");
    }
}

#[test]
fn e24_a_panic_whose_words_panic_when_they_are_dropped_fails_the_turn_and_not_its_driver() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            ctx.on_query("ask", |_| panic_any(PanicsOnDrop));
            ctx.schedule_wait("go").await;
            panic_any(PanicsOnDrop)
        },
        (),
    );
    let asked = drive.execution().query("ask", ().into());
    assert!(matches!(asked, Err(QueryFailure::Panicked { .. })), "{asked:?}");
    let taken = catch_unwind(AssertUnwindSafe(|| drive.try_turn([Drive::event("go", ())])));
    assert!(matches!(taken, Ok(Err(TurnFailure::Panicked { .. }))));
}

#[test]
fn e24_a_panic_in_a_destructor_fails_the_turn_but_not_an_eviction() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let guard = PanicsOnDrop;
            let from = ctx.clone();
            let unit = ctx.spawn(async move {
                let _moved = guard;
                from.schedule_wait("never").await
            });
            ctx.schedule_wait("go").await;
            drop(unit);
            Ok(ctx.schedule_wait("end").await)
        },
        (),
    );
    drive.evict().evict();
    let (unit, message) = panicked(drive.try_turn([Drive::event("go", ())]));
    assert_eq!((unit.as_str(), message.as_str()), ("root", "a destructor's words"));
}

#[test]
#[should_panic(expected = "an execution that ended or failed takes no more turns")]
fn e24_a_failed_execution_takes_no_more_turns() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            ctx.schedule_wait("go").await;
            panic!("once")
        },
        (),
    );
    drive.try_turn([Drive::event("go", ())]).unwrap_err();
    let _ = drive.try_turn([Drive::event("go", ())]);
}

#[test]
fn e24_a_panic_in_a_query_or_validator_reaches_only_its_caller() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let value = ctx.state(7);
            let (queried, validated, answered) = (value.clone(), value.clone(), value.clone());
            ctx.on_query("panic", move |_| queried.read(|value| panic!("query of {value}")));
            ctx.on_query("value", move |_| Ok(answered.read(|value| json!(value)).into()));
            ctx.on_update(
                "panic",
                move |_| validated.read(|value| panic!("validator of {value}")),
                |_| async { Ok(Payload::null()) },
            );
            ctx.schedule_wait("go").await;
            value.update(|value| *value += 1);
            Ok(json!(value.read(|value| *value)).into())
        },
        (),
    );
    let before = drive.history().clone();
    match drive.execution().query("panic", ().into()) {
        Err(QueryFailure::Panicked { name, message }) => {
            assert_eq!((name.as_str(), message.as_str()), ("panic", "query of 7"));
        }
        other => panic!("{other:?}"),
    }
    match drive.execution().offer_update("panic", &().into()) {
        Err(UpdateRefusal::Panicked { name, message }) => {
            assert_eq!((name.as_str(), message.as_str()), ("panic", "validator of 7"));
        }
        other => panic!("{other:?}"),
    }
    // State, queries and turns go on.
    assert_eq!(drive.execution().query("value", ().into()).unwrap(), json!(7).into());
    assert_eq!(*drive.history(), before);
    drive.raise("go", ());
    assert_eq!(drive.last_lines()[1], "4 OrchestrationCompleted 8");
    assert!(matches!(drive.execution().query("panic", ().into()), Err(QueryFailure::Panicked { .. })));
    assert_eq!(drive.execution().query("value", ().into()).unwrap(), json!(8).into());
    drive.evict();
}

fn ignore<T>(_: T) {}

#[test]
fn e24_past_the_deadline_every_context_call_unwinds_even_if_caught() {
    let unwound = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&unwound);
    let mut drive = interruptible(move |interrupter| {
        move |ctx: OrchestrationContext, _: Payload| {
            let (interrupter, count) = (Arc::clone(&interrupter), Arc::clone(&count));
            async move {
                let state = ctx.state(0);
                let mut activity = ctx.schedule_activity("A", ());
                interrupter.get().unwrap().raise();
                let calls: [&mut dyn FnMut(); 26] = [
                    &mut || ignore(ctx.now()),
                    &mut || ignore(ctx.random()),
                    &mut || ignore(ctx.uuid4()),
                    &mut || ignore(ctx.utc_now()),
                    &mut || ignore(ctx.new_guid()),
                    &mut || ignore(ctx.side_effect("s", || 1)),
                    &mut || ignore(ctx.patched("p")),
                    &mut || ignore(ctx.is_replaying()),
                    &mut || ignore(ctx.is_cancelled()),
                    &mut || ignore(ctx.should_continue_as_new()),
                    &mut || ignore(ctx.info()),
                    &mut || ctx.set_status("s"),
                    &mut || ctx.upsert_attributes([("a", "b")]),
                    &mut || drop(ctx.raise_event("i", "n", ())),
                    &mut || drop(ctx.schedule_orchestration("o", "i", ())),
                    &mut || ignore(ctx.schedule_timer(Duration::ZERO)),
                    &mut || ignore(ctx.schedule_wait("w")),
                    &mut || ignore(ctx.schedule_sub_orchestration("c", ())),
                    &mut || ignore((&mut activity).now_or_never()),
                    &mut || ignore(ctx.parallel([async {}])),
                    &mut || ctx.on_event("e", |_| async {}),
                    &mut || ctx.on_query("q", Ok),
                    &mut || ctx.on_update("u", |_| Ok(()), |_| async { Ok(Payload::null()) }),
                    &mut || ignore(ctx.cancelled()),
                    &mut || state.update(|value| *value += 1),
                    &mut || ignore(state.read(|value| *value)),
                ];
                for call in calls {
                    let outcome = catch_unwind(AssertUnwindSafe(call));
                    count.fetch_add(usize::from(outcome.is_err()), Ordering::Relaxed);
                }
                Ok(Payload::null())
            }
        }
    });
    let outcome = drive.try_turn([]);
    assert!(matches!(outcome, Err(TurnFailure::DeadlinePassed)), "{outcome:?}");
    assert_eq!(unwound.load(Ordering::Relaxed), 26);
    assert!(drive.history().turns.is_empty());
}

#[test]
fn e24_another_thread_ends_a_turn_that_would_not_end() {
    let (is_busy, busy) = mpsc::channel();
    let mut drive = interruptible(|_| {
        move |ctx: OrchestrationContext, _: Payload| {
            let is_busy = is_busy.clone();
            async move {
                ctx.schedule_wait("go").await;
                is_busy.send(()).unwrap();
                loop {
                    std::hint::black_box(ctx.now());
                }
            }
        }
    });
    drive.turn([]);
    let interrupter = drive.execution().interrupter();
    let watchdog = thread::spawn(move || {
        busy.recv().unwrap();
        interrupter.raise();
    });
    let outcome = drive.try_turn([Drive::event("go", ())]);
    watchdog.join().unwrap();
    assert!(matches!(outcome, Err(TurnFailure::DeadlinePassed)), "{outcome:?}");
    assert_eq!(drive.history().turns.len(), 1);
}

#[test]
fn e24_units_that_keep_waking_each_other_end_at_the_deadline_though_they_call_nothing() {
    for replayed in [false, true] {
        let steps = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&steps);
        let mut drive = interruptible(move |interrupter| {
            move |ctx: OrchestrationContext, _: Payload| {
                let (interrupter, count) = (Arc::clone(&interrupter), Arc::clone(&count));
                async move {
                    interrupter.get().unwrap().raise();
                    while count.fetch_add(1, Ordering::Relaxed) < 1_000 {
                        yield_now().await;
                    }
                    Ok(ctx.schedule_wait("go").await)
                }
            }
        });
        let turn = Turn {
            format: 1,
            number: 1,
            at_ms: 1_000,
            draws: 0,
            events: vec![Event {
                id: EventId(1),
                kind: EventKind::Started(Box::new(drive.execution().started().clone())),
            }],
        };
        let outcome =
            if replayed { drive.execution().replay_turn(&turn) } else { drive.try_turn([]).map(drop) };
        assert!(matches!(outcome, Err(TurnFailure::DeadlinePassed)), "{outcome:?}");
        assert_eq!(steps.load(Ordering::Relaxed), 1);
    }
}

/// Lets the others run first.
async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[test]
fn e24_a_flag_raised_between_turns_ends_no_turn() {
    let mut drive = interruptible(|_| {
        |ctx: OrchestrationContext, _: Payload| async move { Ok(ctx.schedule_wait("go").await) }
    });
    drive.execution().interrupter().raise();
    drive.turn([]).execution().interrupter().raise();
    drive.raise("go", ());
    assert_eq!(drive.last_lines()[1], "4 OrchestrationCompleted null");
}

#[test]
fn e24_a_flag_raised_after_a_turn_does_not_reach_the_queries_that_follow() {
    let mut drive = interruptible(|_| {
        |ctx: OrchestrationContext, _: Payload| async move {
            let asked = ctx.clone();
            ctx.on_query("instance", move |_| Ok(asked.info().instance.into()));
            Ok(ctx.schedule_wait("go").await)
        }
    });
    drive.turn([]).execution().interrupter().raise();
    let answer = drive.execution().query("instance", ().into());
    assert!(matches!(&answer, Ok(instance) if *instance == Drive::INSTANCE.into()), "{answer:?}");
}
