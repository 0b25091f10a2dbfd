//! Updates are offered between turns, queries only look, and both share state with the code (E21).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use perennial_core::{
    EventId, ExecutionOptions, OrchestrationContext, OrchestrationHandler, Payload, QueryFailure, Started,
    UpdateRefusal,
};
use perennial_testkit::Drive;
use serde_json::json;

fn prepare(handler: impl OrchestrationHandler) -> Drive {
    let options = ExecutionOptions { shadow_replay: false, ..ExecutionOptions::default() };
    let started = Started::new("orchestration", "1.0.0", (), 42);
    Drive::prepare(Arc::new(handler), started, options).unwrap()
}

/// A till: `pay` takes whole amounts up to what is left of 10, `paid` tells the sum, `close` ends it.
fn till(validated: &Arc<AtomicUsize>) -> impl OrchestrationHandler + use<> {
    let validated = Arc::clone(validated);
    move |ctx: OrchestrationContext, _: Payload| {
        let validated = Arc::clone(&validated);
        async move {
            let paid = ctx.state(0_u64);
            let (looked_at, added_to, queried) = (paid.clone(), paid.clone(), paid.clone());
            let validate = move |amount: &Payload| {
                validated.fetch_add(1, Ordering::Relaxed);
                let amount: u64 = amount.decode().map_err(|_| Payload::from("not an amount"))?;
                let left = 10 - looked_at.read(|paid| *paid);
                if amount <= left { Ok(()) } else { Err(json!({ "left": left }).into()) }
            };
            let from = ctx.clone();
            ctx.on_update("pay", validate, move |amount| {
                let (ctx, paid) = (from.clone(), added_to.clone());
                async move {
                    let amount: u64 = amount.decode().map_err(|_| Payload::null())?;
                    ctx.schedule_activity("Book", json!(amount))
                        .await
                        .map_err(|_| Payload::from("not booked"))?;
                    let sum = paid.update(|paid| {
                        *paid += amount;
                        *paid
                    });
                    Ok(json!(sum).into())
                }
            });
            ctx.on_query("paid", move |_| Ok(queried.read(|paid| json!(paid)).into()));
            ctx.schedule_wait("close").await;
            Ok(json!(paid.read(|paid| *paid)).into())
        }
    }
}

/// All that must stay as it is while nothing is committed.
fn trace(drive: &mut Drive) -> (Vec<String>, u64, u64, u64, Vec<EventId>) {
    let lines = drive.lines();
    let ledger = drive.execution().ledger();
    let open = ledger.open().map(|(id, _)| id).collect();
    (lines, ledger.turns(), ledger.events(), ledger.bytes(), open)
}

#[test]
fn e21_an_accepted_update_becomes_a_job_with_a_unit_and_an_answer() {
    let validated = Arc::default();
    let mut drive = prepare(till(&validated));
    drive.turn([]).execution().offer_update("pay", &json!(4).into()).unwrap();
    assert_eq!(drive.lines()[1..], [r#"2 ExternalSubscribed "close""#], "the offer alone records nothing");
    drive.turn([Drive::update("pay", json!(4))]).evict();
    assert_eq!(
        drive.last_lines(),
        [r#"3 UpdateRequested "pay" 4"#, r#"4 ActivityScheduled "Book" 4 in h0"#,]
    );
    let open = |drive: &mut Drive| -> Vec<EventId> { drive.execution().ledger().open_updates().collect() };
    assert_eq!(open(&mut drive), [EventId(3)]);
    drive.complete(4, ()).evict();
    assert_eq!(drive.last_lines(), ["5 ActivityCompleted of 4 null", "6 UpdateCompleted of 3 4 in h0"]);
    assert_eq!(open(&mut drive), []);

    drive.turn([Drive::update("pay", json!(1))]).turn([Drive::failed(8, ())]).evict();
    assert_eq!(
        drive.last_lines()[1],
        r#"10 UpdateCompleted of 7 refused "not booked" in h1"#,
        "an error of the handler is an answer"
    );
}

#[test]
fn e21_an_update_that_is_not_accepted_leaves_no_trace() {
    let validated = Arc::default();
    let mut drive = prepare(till(&validated));
    drive.turn([]);
    let before = trace(&mut drive);

    let refused = drive.execution().offer_update("pay", &json!(11).into()).unwrap_err();
    let left = Payload::from(json!({ "left": 10 }));
    assert!(matches!(&refused, UpdateRefusal::Refused { name, error } if name == "pay" && *error == left));

    let undecodable = drive.execution().offer_update("pay", &"much".into()).unwrap_err();
    assert!(matches!(undecodable, UpdateRefusal::Refused { error, .. } if error == "not an amount".into()));

    let no_handler = drive.execution().offer_update("steal", &json!(1).into()).unwrap_err();
    assert!(matches!(no_handler, UpdateRefusal::NoHandler { name } if name == "steal"));

    assert_eq!(trace(&mut drive), before);
    drive.raise("close", ());
    assert_eq!(drive.last_lines(), [r#"3 ExternalEvent "close" null"#, "4 OrchestrationCompleted 0"]);
}

#[test]
fn e21_a_validator_looks_at_the_state_as_the_last_turn_left_it() {
    let validated = Arc::default();
    let mut drive = prepare(till(&validated));
    drive.turn([]).turn([Drive::update("pay", json!(7))]);
    drive.execution().offer_update("pay", &json!(10).into()).expect("nothing is booked yet");
    drive.complete(4, ()).evict();
    let refused = drive.execution().offer_update("pay", &json!(4).into()).unwrap_err();
    let left = Payload::from(json!({ "left": 3 }));
    assert!(matches!(refused, UpdateRefusal::Refused { error, .. } if error == left));
    drive.execution().offer_update("pay", &json!(3).into()).unwrap();
}

#[test]
fn e21_an_update_before_the_first_turn_or_after_the_end_is_refused() {
    let validated = Arc::default();
    let mut drive = prepare(till(&validated));
    let early = drive.execution().offer_update("pay", &json!(1).into()).unwrap_err();
    assert!(matches!(early, UpdateRefusal::NotRunning { name } if name == "pay"));
    drive.turn([]).raise("close", ());
    let late = drive.execution().offer_update("pay", &json!(1).into()).unwrap_err();
    assert!(matches!(late, UpdateRefusal::NotRunning { .. }));
    let replayed = drive.evict().execution().offer_update("pay", &json!(1).into()).unwrap_err();
    assert!(matches!(replayed, UpdateRefusal::NotRunning { .. }));
    assert_eq!(validated.load(Ordering::Relaxed), 0, "nobody asked the validator");
}

#[test]
fn e21_a_replay_does_not_validate_again() {
    let validated = Arc::default();
    let mut drive = prepare(till(&validated));
    drive.turn([]).execution().offer_update("pay", &json!(2).into()).unwrap();
    drive.turn([Drive::update("pay", json!(2))]).complete(4, ());
    assert_eq!(validated.load(Ordering::Relaxed), 1);
    drive.evict();
    assert_eq!(validated.load(Ordering::Relaxed), 1);

    // Nor does it matter that the current validator would refuse.
    let strict = |ctx: OrchestrationContext, _: Payload| async move {
        let refuse = |_: &Payload| Err("no more".into());
        let from = ctx.clone();
        ctx.on_update("pay", refuse, move |amount| {
            let ctx = from.clone();
            async move {
                ctx.schedule_activity("Book", amount).await.map(|_| json!(2).into()).map_err(|_| ().into())
            }
        });
        Ok(ctx.schedule_wait("close").await)
    };
    let mut execution = drive.replay_with(strict).unwrap();
    let refused = execution.offer_update("pay", &json!(2).into()).unwrap_err();
    assert!(matches!(refused, UpdateRefusal::Refused { error, .. } if error == "no more".into()));
}

#[test]
fn e21_updates_that_the_end_leaves_unanswered_are_named() {
    let validated = Arc::default();
    let mut drive = prepare(till(&validated));
    drive.turn([]).turn([Drive::update("pay", json!(2))]);
    let taken = drive.try_turn([Drive::event("close", ()), Drive::update("pay", json!(3))]).unwrap();
    assert_eq!(taken.ended_updates, [EventId(3), EventId(6)]);
    assert_eq!(drive.last_lines()[2], "7 OrchestrationCompleted 0");
    drive.evict();
}

#[test]
fn e21_a_query_decides_nothing_and_advances_nothing() {
    let validated = Arc::default();
    let mut drive = prepare(till(&validated));
    drive.turn([]).turn([Drive::update("pay", json!(2))]);
    let before = trace(&mut drive);
    for _ in 0..3 {
        assert_eq!(drive.execution().query("paid", ().into()).unwrap(), json!(0).into());
        assert_eq!(trace(&mut drive), before);
    }
    drive.complete(4, ());
    assert_eq!(drive.execution().query("paid", ().into()).unwrap(), json!(2).into());
    assert_eq!(drive.evict().execution().query("paid", ().into()).unwrap(), json!(2).into());
    drive.raise("close", ());
    // After the end, too, whether the execution lived through it or was replayed.
    assert_eq!(drive.execution().query("paid", ().into()).unwrap(), json!(2).into());
    assert_eq!(drive.evict().execution().query("paid", ().into()).unwrap(), json!(2).into());
}

#[test]
fn e21_a_query_gets_its_argument_and_may_be_refused_or_unknown() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            ctx.on_query(
                "echo",
                |argument| {
                    if argument.is_null() { Err("of what?".into()) } else { Ok(argument) }
                },
            );
            Ok(ctx.schedule_wait("go").await)
        },
        (),
    );
    assert_eq!(drive.execution().query("echo", "x".into()).unwrap(), "x".into());
    let refused = drive.execution().query("echo", ().into()).unwrap_err();
    assert!(
        matches!(refused, QueryFailure::Refused { name, error } if name == "echo" && error == "of what?".into())
    );
    let unknown = drive.execution().query("ohce", ().into()).unwrap_err();
    assert!(matches!(unknown, QueryFailure::NoHandler { name } if name == "ohce"));
}

#[test]
fn e21_a_query_or_validator_that_acts_fails_alone() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let shared = ctx.state(0);
            let (from, changed) = (ctx.clone(), shared.clone());
            ctx.on_query("decide", move |_| {
                from.set_status("from a query");
                Ok(Payload::null())
            });
            ctx.on_query("change", move |_| {
                changed.update(|value| *value += 1);
                Ok(Payload::null())
            });
            let from = ctx.clone();
            let draws = move |_: &Payload| {
                from.random();
                Ok(())
            };
            ctx.on_update("draw", draws, |_| async { Ok(Payload::null()) });
            ctx.schedule_wait("go").await;
            Ok(json!([shared.read(|value| *value), ctx.random() == 11_882_281_010_927_931_245]).into())
        },
        (),
    );
    let before = trace(&mut drive);
    for name in ["decide", "change"] {
        let failure = drive.execution().query(name, ().into()).unwrap_err();
        assert!(matches!(failure, QueryFailure::Misuse { .. }), "{failure}");
    }
    let failure = drive.execution().offer_update("draw", &().into()).unwrap_err();
    assert!(matches!(failure, UpdateRefusal::Misuse { .. }), "{failure}");
    assert_eq!(trace(&mut drive), before);
    drive.raise("go", ()).evict();
    assert_eq!(drive.last_lines()[1], "4 OrchestrationCompleted [0,true]", "state and stream are untouched");
}

#[test]
fn e21_a_name_has_one_query_handler_and_one_update_handler() {
    let twice = |call: fn(&OrchestrationContext)| {
        let outcome = Drive::try_start(
            move |ctx: OrchestrationContext, _: Payload| async move {
                call(&ctx);
                call(&ctx);
                Ok(ctx.schedule_wait("go").await)
            },
            (),
        );
        outcome.map(drop).unwrap_err().to_string()
    };
    assert_eq!(twice(|ctx| ctx.on_query("q", Ok)), r#"PER-0206 misuse: the query "q" already has a handler"#);
    assert_eq!(
        twice(|ctx| ctx.on_update("u", |_| Ok(()), |payload| async { Ok(payload) })),
        r#"PER-0206 misuse: the update "u" already has a handler"#
    );
}
