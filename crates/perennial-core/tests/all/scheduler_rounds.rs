//! Rounds: one step for each unit that is runnable at its start, in order.

use std::task::Poll;

use futures::channel::oneshot;
use futures::future::BoxFuture;
use perennial_core::{OrchestrationContext, Payload};
use perennial_testkit::Drive;

type Output = Result<Payload, Payload>;

async fn until_the_end(ctx: &OrchestrationContext) -> Output {
    ctx.schedule_wait("end").await;
    Ok("ended".into())
}

/// Gives the rest of the round to the others.
async fn yield_once() {
    let mut yielded = false;
    std::future::poll_fn(|cx| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// The statuses of the last turn, as `text in unit`.
fn said(drive: &Drive) -> Vec<String> {
    drive
        .last_lines()
        .iter()
        .filter_map(|line| line.split_once("StatusSet ").map(|(_, said)| said.replace('"', "")))
        .collect()
}

#[test]
fn e9_a_unit_that_yields_gets_one_step_per_round() {
    let drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let counts = |name: &'static str, rounds: u32| -> BoxFuture<'static, ()> {
                let ctx = ctx.clone();
                Box::pin(async move {
                    for round in 0..rounds {
                        ctx.set_status(format!("{name} {round}"));
                        yield_once().await;
                    }
                })
            };
            ctx.parallel([counts("long", 3), counts("short", 1), counts("middle", 2)]).await;
            until_the_end(&ctx).await
        },
        (),
    );
    assert_eq!(
        said(&drive),
        ["long 0 in p0", "short 0 in p1", "middle 0 in p2", "long 1 in p0", "middle 1 in p2", "long 2 in p0"]
    );
}

#[test]
fn e9_a_unit_woken_by_a_later_unit_of_the_round_waits_for_the_next() {
    let drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let (to_first, first_hears) = oneshot::channel::<()>();
            let (to_third, third_hears) = oneshot::channel::<()>();
            let hears = |name: &'static str, heard: oneshot::Receiver<()>| -> BoxFuture<'static, ()> {
                let ctx = ctx.clone();
                Box::pin(async move {
                    heard.await.expect("the sender sends");
                    ctx.set_status(format!("{name} heard"));
                })
            };
            let (speaker, other) = (ctx.clone(), ctx.clone());
            let speaks = Box::pin(async move {
                yield_once().await;
                to_third.send(()).expect("it listens");
                to_first.send(()).expect("it listens");
                speaker.set_status("spoke");
            });
            let goes_on = Box::pin(async move {
                yield_once().await;
                other.set_status("same round");
            });
            ctx.parallel([hears("first", first_hears), speaks, hears("third", third_hears), goes_on]).await;
            until_the_end(&ctx).await
        },
        (),
    );
    assert_eq!(
        said(&drive),
        ["spoke in p1", "same round in p3", "first heard in p0", "third heard in p2"],
        "whether it comes before or after the waker in order"
    );
}
