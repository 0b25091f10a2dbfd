//! Handlers and conditions: events, updates, queries, cancellation, shared state.

use perennial_core::{OrchestrationContext, Payload};
use perennial_testkit::Drive;
use serde_json::json;

use super::triad;

#[test]
fn e21_triad_of_an_event_handler() {
    triad(
        |ctx: OrchestrationContext, _: Payload| async move {
            let seen = ctx.state(Payload::null());
            let (from, kept) = (ctx.clone(), seen.clone());
            ctx.on_event("order", move |order| {
                let (ctx, seen) = (from.clone(), kept.clone());
                async move {
                    ctx.set_status("ordered");
                    seen.update(|seen| *seen = order);
                }
            });
            ctx.wait_until(&seen, |seen| !seen.is_null()).await;
            Ok(seen.read(Payload::clone))
        },
        &[],
        [Drive::event("order", "tulips")],
        &[
            r#"2 ExternalEvent "order" "tulips""#,
            r#"3 StatusSet "ordered" in h0"#,
            r#"4 OrchestrationCompleted "tulips""#,
        ],
    );
}

#[test]
fn e21_triad_of_an_update_handler() {
    let mut drive = triad(
        |ctx: OrchestrationContext, _: Payload| async move {
            let total = ctx.state(0_u64);
            let sum = total.clone();
            let refuse_text = |amount: &Payload| {
                let amount = amount.decode::<u64>();
                amount.map(|_| ()).map_err(|_| "not a number".into())
            };
            ctx.on_update("add", refuse_text, move |amount| {
                let total = sum.clone();
                async move {
                    let amount: u64 = amount.decode().unwrap();
                    let total = total.update(|total| {
                        *total += amount;
                        *total
                    });
                    Ok(json!(total).into())
                }
            });
            ctx.wait_until(&total, |total| *total >= 5).await;
            ctx.handlers_idle().await;
            Ok(json!(total.read(|total| *total)).into())
        },
        &[],
        [Drive::update("add", json!(2)), Drive::update("add", json!(4))],
        &[
            r#"2 UpdateRequested "add" 2"#,
            r#"3 UpdateRequested "add" 4"#,
            "4 UpdateCompleted of 2 2 in h0",
            "5 UpdateCompleted of 3 6 in h1",
            "6 OrchestrationCompleted 6",
        ],
    );
    assert_eq!(drive.execution().ledger().open_updates().count(), 0);
}

#[test]
fn e21_triad_of_a_query_handler() {
    let handler = |ctx: OrchestrationContext, _: Payload| async move {
        let phase = ctx.state("waiting");
        let shared = phase.clone();
        ctx.on_query("phase", move |_| Ok(shared.read(|phase| Payload::from(*phase))));
        let result = ctx.schedule_activity("Work", ()).await.unwrap();
        phase.update(|phase| *phase = "done");
        Ok(result)
    };
    let phase = |drive: &mut Drive| drive.execution().query("phase", ().into()).unwrap();
    let mut pending = Drive::start(handler, ());
    assert_eq!(phase(&mut pending), "waiting".into());
    assert_eq!(phase(pending.evict()), "waiting".into());

    let mut completed = triad(
        handler,
        &[r#"2 ActivityScheduled "Work" null"#],
        [Drive::completed(2, ())],
        &["3 ActivityCompleted of 2 null", "4 OrchestrationCompleted null"],
    );
    assert_eq!(phase(&mut completed), "done".into());
}

#[test]
fn e23_triad_of_a_cancel_handler() {
    triad(
        |ctx: OrchestrationContext, _: Payload| async move {
            let cleaned = ctx.state(false);
            let (from, flag) = (ctx.clone(), cleaned.clone());
            ctx.on_cancel(move || async move {
                from.set_status("cleaning");
                flag.update(|cleaned| *cleaned = true);
            });
            ctx.wait_until(&cleaned, |cleaned| *cleaned).await;
            Ok("tidy".into())
        },
        &[],
        [Drive::cancel("enough", 60_000)],
        &[
            r#"2 OrchestrationCancelRequested "enough""#,
            r#"3 StatusSet "cleaning" in h0"#,
            r#"4 OrchestrationCompleted "tidy""#,
        ],
    );
}

#[test]
fn e23_triad_of_cancelled() {
    triad(
        |ctx: OrchestrationContext, _: Payload| async move {
            ctx.cancelled().await;
            Err("gave up".into())
        },
        &[],
        [Drive::cancel("enough", 60_000)],
        &[r#"2 OrchestrationCancelRequested "enough""#, r#"3 OrchestrationFailed "gave up""#],
    );
}

#[test]
fn e21_triad_of_wait_until() {
    triad(
        |ctx: OrchestrationContext, _: Payload| async move {
            let ripe = ctx.state(false);
            let (from, flag) = (ctx.clone(), ripe.clone());
            let ripening = ctx.spawn(async move {
                from.schedule_activity("Ripen", ()).await.unwrap();
                flag.update(|ripe| *ripe = true);
            });
            ctx.wait_until(&ripe, |ripe| *ripe).await;
            ripening.await;
            Ok("ripe".into())
        },
        &[r#"2 ActivityScheduled "Ripen" null in p0"#],
        [Drive::completed(2, ())],
        &["3 ActivityCompleted of 2 null", r#"4 OrchestrationCompleted "ripe""#],
    );
}

#[test]
fn e26_triad_of_handlers_idle() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let from = ctx.clone();
            ctx.on_event("order", move |_| {
                let ctx = from.clone();
                async move {
                    ctx.schedule_activity("Pack", ()).await.unwrap();
                }
            });
            ctx.schedule_wait("close").await;
            ctx.handlers_idle().await;
            Ok("closed".into())
        },
        (),
    );
    drive.turn([Drive::event("order", ()), Drive::event("close", ())]);
    assert_eq!(
        drive.last_lines(),
        [
            r#"3 ExternalEvent "order" null"#,
            r#"4 ExternalEvent "close" null"#,
            r#"5 ActivityScheduled "Pack" null in h0"#,
        ]
    );
    drive.evict();
    assert!(!drive.execution().has_ended());
    drive.complete(5, ()).evict();
    assert_eq!(drive.last_lines(), ["6 ActivityCompleted of 5 null", r#"7 OrchestrationCompleted "closed""#]);
}
