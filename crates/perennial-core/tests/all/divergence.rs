//! The divergence report: how it reads and what it names.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use perennial_core::{
    ActivityError, Execution, ExecutionOptions, Nondeterminism, OrchestrationContext, OrchestrationHandler,
    Payload, TurnFailure,
};
use perennial_testkit::Drive;

type Output = Result<Payload, Payload>;

fn diverged(replayed: Result<impl Sized, TurnFailure>) -> Nondeterminism {
    match replayed {
        Err(TurnFailure::Nondeterminism(divergence)) => *divergence,
        Err(other) => panic!("expected nondeterminism, got {other}"),
        Ok(_) => panic!("the replay found no difference"),
    }
}

/// The report, with the place in this file set aside: tests of their own look at that.
fn report(drive: &Drive, changed: impl OrchestrationHandler) -> String {
    let divergence = diverged(drive.replay_with(changed));
    let report = divergence.report();
    match &divergence.location {
        Some(location) => report.replace(location, "src/orders.rs:LINE:COLUMN"),
        None => report,
    }
}

fn ignore(_: ActivityError) -> Payload {
    Payload::null()
}

/// What all the reports are about: an order that is checked, charged and shipped.
async fn order(ctx: OrchestrationContext, order: Payload) -> Output {
    let checked = ctx.schedule_activity("CheckStock", order.clone()).await.map_err(ignore)?;
    ctx.set_status("charging");
    let limit = ctx.schedule_timer(Duration::from_secs(60));
    let receipt = ctx.schedule_activity("Charge", checked);
    let _ = ctx.select2(receipt, limit).await;
    ctx.schedule_activity("Ship", order).await.map_err(ignore)
}

/// The order's history after it was charged: turn 3 is its last.
fn charged() -> Drive {
    let mut drive = Drive::start(order, "order-17");
    drive.complete(2, "in stock").complete(6, "receipt-9");
    assert_eq!(
        drive.lines()[1..],
        [
            r#"2 ActivityScheduled "CheckStock" "order-17""#,
            r#"3 ActivityCompleted of 2 "in stock""#,
            r#"4 StatusSet "charging""#,
            r#"5 TimerCreated due 61000"#,
            r#"6 ActivityScheduled "Charge" "in stock""#,
            r#"7 ActivityCompleted of 6 "receipt-9""#,
            r#"8 ActivityScheduled "Ship" "order-17""#,
            r#"9 TimerCancelled of 5"#,
        ]
    );
    drive
}

#[test]
fn e7_the_report_when_the_kind_changed() {
    let changed = |ctx: OrchestrationContext, order: Payload| async move {
        let checked = ctx.schedule_activity("CheckStock", order.clone()).await.map_err(ignore)?;
        ctx.set_status("charging");
        let limit = ctx.schedule_timer(Duration::from_secs(60));
        let receipt = ctx.schedule_sub_orchestration("Charge", checked);
        let _ = ctx.select2(receipt, limit).await;
        ctx.schedule_activity("Ship", order).await.map_err(ignore)
    };
    insta::assert_snapshot!(report(&charged(), changed));
}

#[test]
fn e7_the_report_when_the_input_changed() {
    let changed = |ctx: OrchestrationContext, order: Payload| async move {
        let checked = ctx.schedule_activity("CheckStock", order.clone()).await.map_err(ignore)?;
        ctx.set_status("charging");
        let limit = ctx.schedule_timer(Duration::from_secs(60));
        let receipt = ctx.schedule_activity("Charge", Payload::encode(&(checked, 2)).expect("it encodes"));
        let _ = ctx.select2(receipt, limit).await;
        ctx.schedule_activity("Ship", order).await.map_err(ignore)
    };
    insta::assert_snapshot!(report(&charged(), changed));
}

#[test]
fn e7_the_report_when_a_decision_is_missing() {
    let changed = |ctx: OrchestrationContext, order: Payload| async move {
        let checked = ctx.schedule_activity("CheckStock", order.clone()).await.map_err(ignore)?;
        ctx.set_status("charging");
        let _limit = ctx.schedule_timer(Duration::from_secs(60));
        ctx.schedule_wait("charged").await;
        ctx.schedule_activity("Ship", checked).await.map_err(ignore)
    };
    insta::assert_snapshot!("missing_in_the_middle", report(&charged(), changed));
    // The same, but nothing comes in its place.
    let stops = |ctx: OrchestrationContext, order: Payload| async move {
        let _ = ctx.schedule_activity("CheckStock", order).await;
        ctx.set_status("charging");
        ctx.schedule_timer(Duration::from_secs(60)).await;
        Ok(Payload::null())
    };
    insta::assert_snapshot!("missing_at_the_end", report(&charged(), stops));
}

#[test]
fn e7_the_report_when_a_decision_is_extra() {
    let changed = |ctx: OrchestrationContext, order: Payload| async move {
        let checked = ctx.schedule_activity("CheckStock", order.clone()).await.map_err(ignore)?;
        ctx.set_status("charging");
        let limit = ctx.schedule_timer(Duration::from_secs(60));
        let receipt = ctx.schedule_activity("Charge", checked);
        let notice = ctx.schedule_activity("Notify", order.clone());
        let _ = ctx.select3(receipt, limit, notice).await;
        ctx.schedule_activity("Ship", order).await.map_err(ignore)
    };
    insta::assert_snapshot!(report(&charged(), changed));
}

#[test]
fn e7_the_report_when_decisions_are_reordered() {
    let changed = |ctx: OrchestrationContext, order: Payload| async move {
        let checked = ctx.schedule_activity("CheckStock", order.clone()).await.map_err(ignore)?;
        ctx.set_status("charging");
        let receipt = ctx.schedule_activity("Charge", checked);
        let limit = ctx.schedule_timer(Duration::from_secs(60));
        let _ = ctx.select2(receipt, limit).await;
        ctx.schedule_activity("Ship", order).await.map_err(ignore)
    };
    insta::assert_snapshot!(report(&charged(), changed));
}

#[test]
fn e7_the_report_when_the_code_ends_too_early() {
    let changed = |ctx: OrchestrationContext, order: Payload| async move {
        let _ = ctx.schedule_activity("CheckStock", order).await;
        Err(Payload::from("sold out"))
    };
    insta::assert_snapshot!(report(&charged(), changed));
}

#[test]
fn e7_the_report_when_the_code_ends_otherwise() {
    let mut drive = charged();
    drive.complete(8, "parcel-3");
    let changed = |ctx: OrchestrationContext, input: Payload| async move {
        let parcel = order(ctx, input).await?;
        Ok(Payload::encode(&[parcel]).expect("it encodes"))
    };
    insta::assert_snapshot!(report(&drive, changed));
}

#[test]
fn e7_the_report_when_the_draws_differ() {
    let drawing = |draws: u32| {
        move |ctx: OrchestrationContext, order: Payload| async move {
            (0..draws).for_each(|_| {
                let _ = ctx.random();
            });
            ctx.schedule_activity("CheckStock", order).await.map_err(ignore)
        }
    };
    let drive = Drive::start(drawing(3), "order-17");
    insta::assert_snapshot!(report(&drive, drawing(1)));
}

#[test]
fn e7_the_report_when_a_branch_differs() {
    let branches = |second: &'static str| {
        move |ctx: OrchestrationContext, _: Payload| async move {
            let branch = |name: &'static str| -> BoxFuture<'static, ()> {
                let ctx = ctx.clone();
                Box::pin(async move {
                    let _ = ctx.schedule_activity("Reserve", name).await;
                    let _ = ctx.schedule_activity("Pack", name).await;
                })
            };
            ctx.parallel([branch("shoes"), branch(second)]).await;
            Ok(Payload::null())
        }
    };
    let drive = Drive::start(branches("socks"), "order-17");
    insta::assert_snapshot!(report(&drive, branches("hats")));
}

#[test]
fn e7_the_report_when_a_drop_cancels_what_the_record_keeps() {
    let keeping = |keep: bool| {
        move |ctx: OrchestrationContext, order: Payload| async move {
            let reminder = ctx.schedule_timer(Duration::from_secs(3_600));
            let checked = ctx.schedule_activity("CheckStock", order).await.map_err(ignore)?;
            if !keep {
                drop(reminder);
                return ctx.schedule_activity("Ship", checked).await.map_err(ignore);
            }
            let shipped = ctx.schedule_activity("Ship", checked).await;
            reminder.await;
            shipped.map_err(ignore)
        }
    };
    let mut drive = Drive::start(keeping(true), "order-17");
    drive.complete(3, "in stock");
    insta::assert_snapshot!(report(&drive, keeping(false)));
}

#[test]
fn e7_the_report_shows_where_long_payloads_differ() {
    let long = |last: &'static str| {
        move |ctx: OrchestrationContext, _: Payload| async move {
            let items: Vec<String> = (1..40).map(|n| format!("item-{n}")).collect();
            let input = Payload::encode(&(items, last)).expect("it encodes");
            ctx.schedule_activity("Pack", input).await.map_err(ignore)
        }
    };
    let drive = Drive::start(long("by hand"), "order-17");
    let divergence = diverged(drive.replay_with(long("by machine")));
    assert_ne!(
        divergence.recorded.line, divergence.code.line,
        "two sides that read the same tell nobody what changed"
    );
}

#[test]
fn e7_the_one_line_form_names_everything_but_payloads() {
    let changed = |ctx: OrchestrationContext, order: Payload| async move {
        ctx.schedule_activity("SecretName", order).await.map_err(ignore)
    };
    let divergence = diverged(charged().replay_with(changed));
    let line = divergence.to_string();
    assert_eq!(
        line,
        "PER-0203 nondeterminism: instance \"instance-1\" (orchestration 1.0.0), execution 1, turn 1, event 2: \
         ActivityScheduled differs in its name"
    );
    assert_eq!(divergence.code(), "PER-0203");
    assert_eq!(TurnFailure::from(Box::new(divergence)).to_string(), line);
}

#[test]
fn e7_the_location_is_the_line_of_the_call() {
    let drive = charged();
    let line_of = |changed: Arc<dyn OrchestrationHandler>| {
        let started = drive.history().started().expect("it started").clone();
        let mut execution =
            Execution::new("again", changed, started, ExecutionOptions::default()).expect("it can start");
        let failed = execution.replay_turn(&drive.history().turns[0]);
        let location = diverged(failed).location.expect("something was done somewhere");
        let line = location.strip_prefix(concat!(file!(), ":")).expect("in this file");
        line.split(':').next().and_then(|line| line.parse().ok()).expect("a line number")
    };
    let line = Arc::new(AtomicU32::new(0));
    let expected = || line.load(Ordering::Relaxed) + 1;

    let mark = Arc::clone(&line);
    let at: u32 = line_of(Arc::new(move |ctx: OrchestrationContext, _: Payload| {
        let mark = Arc::clone(&mark);
        async move {
            mark.store(line!(), Ordering::Relaxed);
            let task = ctx.schedule_activity("Other", "");
            task.await.map_err(ignore)
        }
    }));
    assert_eq!(at, expected());

    let mark = Arc::clone(&line);
    let at: u32 = line_of(Arc::new(move |ctx: OrchestrationContext, _: Payload| {
        let (mark, inner) = (Arc::clone(&mark), ctx.clone());
        async move {
            let unit = ctx.spawn(async move {
                mark.store(line!(), Ordering::Relaxed);
                inner.set_status("in a unit");
            });
            unit.await;
            Ok(Payload::null())
        }
    }));
    assert_eq!(at, expected());

    let mark = Arc::clone(&line);
    let at: u32 = line_of(Arc::new(move |ctx: OrchestrationContext, _: Payload| {
        let (mark, never) = (Arc::clone(&mark), std::future::pending::<()>());
        async move {
            mark.store(line!(), Ordering::Relaxed);
            let limited = ctx.timeout(Duration::from_secs(1), never);
            let _ = limited.await;
            Ok(Payload::null())
        }
    }));
    assert_eq!(at, expected());
}

#[test]
fn e7_an_updates_answer_is_located_in_the_users_code() {
    let answering = |answer: &'static str| {
        move |ctx: OrchestrationContext, _: Payload| async move {
            ctx.on_update("update", |_| Ok(()), move |_| async move { Ok(Payload::from(answer)) });
            ctx.schedule_wait("end").await;
            Ok(Payload::null())
        }
    };
    let mut drive = Drive::start(answering("yes"), ());
    drive.turn([Drive::update("update", ())]);
    let location = diverged(drive.replay_with(answering("no"))).location;
    assert!(
        location.as_deref().is_none_or(|location| location.starts_with(file!())),
        "a place inside the engine helps nobody: {location:?}"
    );

    let without = |ctx: OrchestrationContext, _: Payload| async move {
        ctx.schedule_wait("end").await;
        Ok(Payload::null())
    };
    let location = diverged(drive.replay_with(without)).location;
    assert_eq!(location, None, "no code answered");
}
