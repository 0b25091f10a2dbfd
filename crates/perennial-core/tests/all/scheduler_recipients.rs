//! Whom a result goes to, when futures, events and units change hands.

use futures::channel::oneshot;
use futures::future::BoxFuture;
use perennial_core::{ActivityFuture, OrchestrationContext, Payload, UnitHandle};
use perennial_testkit::Drive;

use crate::branch_cases::{said, task, until_the_end, yield_once};

#[test]
fn e10_a_result_goes_to_the_unit_that_last_polled_its_future() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let (give, take) = oneshot::channel::<ActivityFuture>();
            let (giver, taker) = (ctx.clone(), ctx.clone());
            // p0 polls the future first, then hands it to p1, which polls it too.
            let gives = Box::pin(async move {
                let mut task = giver.schedule_activity("Moved", "");
                let pending = futures::poll!(&mut task).is_pending();
                assert!(pending);
                give.send(task).expect("it listens");
                let _ = giver.schedule_activity("Own", "").await;
                giver.set_status("own");
            }) as BoxFuture<'static, ()>;
            let takes = Box::pin(async move {
                let task = take.await.expect("it gives");
                let _ = task.await;
                taker.set_status("moved");
            });
            ctx.parallel([gives, takes]).await;
            until_the_end(&ctx).await
        },
        (),
    );
    assert_eq!(
        drive.lines()[1..],
        [r#"2 ActivityScheduled "Moved" "" in p0"#, r#"3 ActivityScheduled "Own" "" in p0"#]
    );
    // One wave, since the units differ: were Moved still p0's, it would come alone and first.
    drive.evict().turn([Drive::completed(2, ""), Drive::completed(3, "")]).evict();
    assert_eq!(said(&drive), ["own in p0", "moved in p1"]);
}

#[test]
fn e10_a_future_that_its_new_unit_has_not_polled_is_still_the_old_units() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let (give, take) = oneshot::channel::<ActivityFuture>();
            let (giver, taker) = (ctx.clone(), ctx.clone());
            let gives = Box::pin(async move {
                let mut task = giver.schedule_activity("Moved", "");
                assert!(futures::poll!(&mut task).is_pending());
                give.send(task).expect("it listens");
                let _ = giver.schedule_activity("Own", "").await;
                giver.set_status("own");
            }) as BoxFuture<'static, ()>;
            let takes = Box::pin(async move {
                let task = take.await.expect("it gives");
                taker.schedule_wait("look").await;
                let result = task.await.expect("it completes");
                taker.set_status(result);
            });
            ctx.parallel([gives, takes]).await;
            until_the_end(&ctx).await
        },
        (),
    );
    // Moved and Own are both p0's, so they come one by one; the result is kept until p1 asks for it.
    drive
        .evict()
        .turn([Drive::completed(2, "moved"), Drive::completed(3, ""), Drive::event("look", ())])
        .evict();
    assert_eq!(said(&drive), ["own in p0", "moved in p1"]);
}

#[test]
fn e10_two_events_of_one_name_go_to_two_branches_as_one_wave() {
    // p1 subscribes first, so that the first event is its own; together they still go on in branch order.
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let hears = |rounds: u32| -> BoxFuture<'static, ()> {
                let ctx = ctx.clone();
                Box::pin(async move {
                    for _ in 0..rounds {
                        yield_once().await;
                    }
                    let heard = ctx.schedule_wait("event").await;
                    ctx.set_status(heard);
                })
            };
            ctx.parallel([hears(1), hears(0)]).await;
            until_the_end(&ctx).await
        },
        (),
    );
    assert_eq!(
        drive.lines()[1..],
        [r#"2 ExternalSubscribed "event" in p1"#, r#"3 ExternalSubscribed "event" in p0"#]
    );
    drive.evict().turn([Drive::event("event", "one"), Drive::event("event", "two")]).evict();
    assert_eq!(said(&drive), ["two in p0", "one in p1"]);
}

#[test]
fn e10_a_branch_that_another_of_its_wave_drops_does_not_go_on() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let victim = ctx.state(None::<UnitHandle<()>>);
            let (ctx1, drops) = (ctx.clone(), victim.clone());
            let killer = ctx.spawn(async move {
                let _ = ctx1.schedule_activity("Killer", "").await;
                drop(drops.update(Option::take));
                ctx1.set_status("dropped the other");
            });
            let unit = ctx.spawn(task(&ctx, "Victim"));
            victim.update(|victim| *victim = Some(unit));
            killer.await;
            until_the_end(&ctx).await
        },
        (),
    );
    drive.evict().turn([Drive::completed(3, ""), Drive::completed(2, "")]).evict();
    assert_eq!(
        drive.last_lines(),
        [
            r#"4 ActivityCompleted of 3 """#,
            r#"5 ActivityCompleted of 2 """#,
            r#"6 StatusSet "dropped the other" in p0"#,
            r#"7 ExternalSubscribed "end""#,
        ],
        "its result is recorded, so nothing is left to cancel"
    );
}
