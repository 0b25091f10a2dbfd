//! Wakes that count, wakes that do not, and what is not durable to wait for.

use std::future::{Future, pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use futures::channel::{mpsc, oneshot};
use futures::stream::{FuturesUnordered, StreamExt};
use perennial_core::{
    ExecutionOptions, OrchestrationContext, OrchestrationHandler, Payload, Started, TurnFailure, UnitId,
};
use perennial_testkit::Drive;

type Output = Result<Payload, Payload>;

/// Starts without a shadow, so that what the code does outside of its history happens once.
fn try_start_alone(handler: impl OrchestrationHandler) -> Result<Drive, TurnFailure> {
    let options = ExecutionOptions { shadow_replay: false, ..ExecutionOptions::default() };
    let started = Started::new("orchestration", "1.0.0", (), 42);
    let mut drive = Drive::prepare(Arc::new(handler), started, options)?;
    drive.try_turn([])?;
    Ok(drive)
}

fn start_alone(handler: impl OrchestrationHandler) -> Drive {
    try_start_alone(handler).unwrap_or_else(|failure| panic!("the first turn failed: {failure}"))
}

#[test]
fn e12_channels_between_units_work() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let (send, receive) = oneshot::channel();
            let (mut words, mut heard) = mpsc::channel::<String>(1);
            let sender = ctx.clone();
            let sends = ctx.spawn(async move {
                let result = sender.schedule_activity("A", "").await.map_err(|_| ());
                send.send(result).expect("it listens");
                for word in ["one", "two", "three"] {
                    futures::SinkExt::send(&mut words, word.to_owned()).await.expect("it listens");
                }
            });
            let receiver = ctx.clone();
            let receives = ctx.spawn(async move {
                let result = receive.await.expect("it sends").expect("it completes");
                receiver.set_status(result);
                while let Some(word) = heard.next().await {
                    receiver.set_status(word);
                }
            });
            ctx.join2(sends, receives).await;
            Ok("done".into())
        },
        (),
    );
    drive.evict().complete(2, "a").evict();
    assert_eq!(
        drive.last_lines(),
        [
            r#"3 ActivityCompleted of 2 "a""#,
            r#"4 StatusSet "a" in p1"#,
            r#"5 StatusSet "one" in p1"#,
            r#"6 StatusSet "two" in p1"#,
            r#"7 StatusSet "three" in p1"#,
            r#"8 OrchestrationCompleted "done""#,
        ]
    );
}

#[test]
fn e12_a_tokio_sleep_fails_at_the_call_and_says_what_to_use() {
    let failure = Drive::try_start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let sleep = tokio::time::sleep(Duration::from_millis(1));
            ctx.set_status("never reached");
            sleep.await;
            Ok(Payload::null())
        },
        (),
    )
    .err()
    .expect("it fails");
    let TurnFailure::Panicked { unit, .. } = &failure else {
        panic!("expected a panic, got {failure}");
    };
    assert_eq!(*unit, UnitId::ROOT);
    let text = failure.to_string();
    assert!(
        text.starts_with("PER-0201 panic in unit root:") && text.contains("use schedule_timer for time"),
        "{text}"
    );
}

fn non_durable(failure: Result<impl Sized, TurnFailure>) -> String {
    match failure {
        Err(TurnFailure::NonDurableAwait { what, .. }) => what,
        Err(other) => panic!("expected a non-durable await, got {other}"),
        Ok(_) => panic!("the turn was taken"),
    }
}

#[test]
fn e12_a_wake_from_another_thread_fails_the_next_turn() {
    let waker = Arc::new(Mutex::new(None::<Waker>));
    let kept = Arc::clone(&waker);
    let mut drive = start_alone(move |ctx: OrchestrationContext, _: Payload| {
        let kept = Arc::clone(&kept);
        async move {
            let task = ctx.schedule_activity("A", "");
            let foreign = poll_fn(move |cx| {
                *kept.lock().expect("not poisoned") = Some(cx.waker().clone());
                Poll::<()>::Pending
            });
            ctx.select2(task, Box::pin(foreign)).await;
            Ok(Payload::null())
        }
    });
    let waker = waker.lock().expect("not poisoned").take().expect("it was polled");
    thread::spawn(move || waker.wake()).join().expect("waking does not panic");
    let what = non_durable(drive.try_turn([Drive::completed(2, "")]));
    assert!(
        what.contains("another thread") && what.contains("activities, timers, events or sub-orchestrations"),
        "{what}"
    );
}

#[test]
fn e12_a_thread_that_sends_into_a_turn_under_way_fails_the_next_one() {
    let mut drive = start_alone(|ctx: OrchestrationContext, _: Payload| async move {
        let (send, receive) = oneshot::channel();
        let task = ctx.schedule_activity("A", "");
        let mut waiting = Box::pin(ctx.join2(task, receive));
        assert!(futures::poll!(&mut waiting).is_pending());
        thread::spawn(move || send.send(()).expect("it listens")).join().expect("sending does not panic");
        waiting.await.1.expect("it sends");
        Ok(Payload::null())
    });
    non_durable(drive.try_turn([Drive::completed(2, "")]));
}

#[test]
fn e12_a_wake_between_turns_is_foreign_though_made_on_the_same_thread() {
    let sender = Arc::new(Mutex::new(None::<oneshot::Sender<()>>));
    let kept = Arc::clone(&sender);
    let mut drive = start_alone(move |ctx: OrchestrationContext, _: Payload| {
        let (send, receive) = oneshot::channel();
        *kept.lock().expect("one thread") = Some(send);
        async move {
            let task = ctx.schedule_activity("A", "");
            let _ = ctx.join2(task, receive).await;
            Ok(Payload::null())
        }
    });
    let sender = sender.lock().expect("one thread").take().expect("it began");
    sender.send(()).expect("it listens");
    non_durable(drive.try_turn([Drive::completed(2, "")]));
}

#[test]
fn e12_a_wake_from_a_query_is_foreign() {
    let mut drive = start_alone(|ctx: OrchestrationContext, _: Payload| async move {
        let (send, receive) = oneshot::channel();
        let send = Mutex::new(Some(send));
        ctx.on_query("wake", move |_| {
            let sender = send.lock().expect("one thread").take().expect("asked once");
            sender.send(()).expect("it listens");
            Ok(Payload::null())
        });
        let task = ctx.schedule_activity("A", "");
        let _ = ctx.join2(task, receive).await;
        Ok(Payload::null())
    });
    drive.execution().query("wake", Payload::null()).expect("the query itself is answered");
    non_durable(drive.try_turn([Drive::completed(2, "")]));
}

#[test]
fn e12_a_wake_from_another_execution_is_foreign() {
    let channel = Arc::new(Mutex::new(None::<oneshot::Sender<()>>));
    let (kept, used) = (Arc::clone(&channel), Arc::clone(&channel));
    let mut listener = start_alone(move |ctx: OrchestrationContext, _: Payload| {
        let (send, receive) = oneshot::channel();
        *kept.lock().expect("one thread") = Some(send);
        async move {
            let task = ctx.schedule_activity("A", "");
            let _ = ctx.join2(task, receive).await;
            Ok(Payload::null())
        }
    });
    let speaker = start_alone(move |ctx: OrchestrationContext, _: Payload| {
        let sender = used.lock().expect("one thread").take().expect("the other began");
        async move {
            sender.send(()).expect("it listens");
            ctx.set_status("spoke");
            Ok(Payload::null())
        }
    });
    assert_eq!(speaker.lines()[1], r#"2 StatusSet "spoke""#, "it is the other that fails");
    non_durable(listener.try_turn([Drive::completed(2, "")]));
}

#[test]
fn e12_wakes_after_the_end_and_after_eviction_are_nobodys() {
    let sender = Arc::new(Mutex::new(Vec::<oneshot::Sender<()>>::new()));
    let kept = Arc::clone(&sender);
    let mut drive = start_alone(move |ctx: OrchestrationContext, _: Payload| {
        let (send, receive) = oneshot::channel::<()>();
        kept.lock().expect("one thread").push(send);
        async move {
            ctx.spawn(async move { receive.await.is_ok() }).detach();
            ctx.schedule_activity("A", "").await.map_err(|_| Payload::null())
        }
    });
    drive.evict();
    drive.complete(2, "a");
    for sender in sender.lock().expect("one thread").drain(..) {
        assert!(sender.send(()).is_err(), "the units are gone");
    }
    assert_eq!(drive.last_lines()[1], r#"4 OrchestrationCompleted "a""#);
}

#[test]
fn e12_waiting_for_nothing_that_can_come_is_reported_at_once() {
    let what = non_durable(try_start_alone(|ctx: OrchestrationContext, _: Payload| async move {
        ctx.set_status("now what?");
        pending::<Output>().await
    }));
    assert!(
        what.contains("something that the engine can never deliver")
            && what.contains("await activities, timers"),
        "{what}"
    );

    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let _ = ctx.schedule_activity("A", "").await;
            let kept = ctx.schedule_timer(Duration::from_secs(1));
            pending::<()>().await;
            kept.await;
            Ok(Payload::null())
        },
        (),
    );
    non_durable(drive.try_turn([Drive::completed(2, "")]));
}

#[test]
fn e12_a_result_that_came_is_nothing_to_wait_for() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let mut task = ctx.schedule_activity("A", "");
            assert!(futures::poll!(&mut task).is_pending());
            pending::<()>().await;
            task.await.map_err(|_| Payload::null())
        },
        (),
    );
    assert_eq!(drive.execution().stalled_units(), [], "it polled something that can still come");
    non_durable(drive.try_turn([Drive::completed(2, "")]));
}

#[test]
fn e12_a_unit_that_waits_for_nothing_durable_shows_among_others() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let inner = ctx.clone();
            let stuck = ctx.spawn(async move {
                let _ = inner.schedule_activity("A", "").await;
                pending::<()>().await;
            });
            let state = ctx.state(0);
            let (waits, sleeps) = (ctx.clone(), ctx.clone());
            let condition = ctx.spawn(async move { waits.wait_until(&state, |n| *n > 0).await });
            let timer = ctx.spawn(async move { sleeps.schedule_timer(Duration::from_secs(1)).await });
            ctx.join3(stuck, condition, timer).await;
            Ok(Payload::null())
        },
        (),
    );
    assert_eq!(drive.execution().stalled_units(), [], "all of them wait for something");
    drive.complete(2, "");
    let stuck: UnitId = "p0".parse().expect("a unit path");
    assert_eq!(drive.execution().stalled_units(), std::slice::from_ref(&stuck));
    drive.evict();
    assert_eq!(drive.execution().stalled_units(), [stuck]);
}

/// A unit makes a join, polls it once, hands it to the root and is done.
fn hands_over<F, J>(make: F) -> impl OrchestrationHandler
where
    F: Fn(&OrchestrationContext) -> J + Send + Sync + Clone + 'static,
    J: Future<Output = ()> + Send + 'static,
{
    move |ctx: OrchestrationContext, _: Payload| {
        let make = make.clone();
        async move {
            let (give, take) = oneshot::channel();
            let inner = ctx.clone();
            let unit = ctx.spawn(async move {
                let mut join = Box::pin(make(&inner));
                assert!(futures::poll!(&mut join).is_pending());
                assert!(give.send(join).is_ok(), "the root listens");
            });
            let (join, ()) = ctx.join2(take, unit).await;
            join.expect("the unit gives").await;
            Ok("joined".into())
        }
    }
}

#[test]
fn e12_futures_that_moved_inside_a_combinator_are_still_waited_for() {
    let ours = hands_over(|ctx| {
        let ctx = ctx.clone();
        let tasks = ["A", "B"].map(|name| ctx.schedule_activity(name, ""));
        async move { drop(ctx.join(tasks).await) }
    });
    let theirs = hands_over(|ctx| {
        let tasks: FuturesUnordered<_> =
            ["A", "B"].map(|name| ctx.schedule_activity(name, "")).into_iter().collect();
        async move { drop(tasks.collect::<Vec<_>>().await) }
    });
    for first_turn in [try_start_alone(ours), try_start_alone(theirs)] {
        let mut drive = first_turn.unwrap_or_else(|failure| panic!("both activities can come: {failure}"));
        drive.complete(3, "").complete(2, "").evict();
        assert_eq!(drive.last_lines()[1], r#"6 OrchestrationCompleted "joined""#);
    }
}

#[test]
fn e12_a_waker_that_panics_fails_the_turn_and_not_its_driver() {
    struct Grumpy;
    impl std::task::Wake for Grumpy {
        fn wake(self: Arc<Self>) {
            panic!("do not wake me");
        }
    }
    let mut drive = start_alone(|ctx: OrchestrationContext, _: Payload| async move {
        let mut task = ctx.schedule_activity("A", "");
        poll_fn(move |_| Pin::new(&mut task).poll(&mut Context::from_waker(&Waker::from(Arc::new(Grumpy)))))
            .await
            .map_err(|_| Payload::null())
    });
    let taken = catch_unwind(AssertUnwindSafe(|| drive.try_turn([Drive::completed(2, "")])));
    match taken {
        Ok(Err(TurnFailure::Panicked { message, .. })) => assert_eq!(message, "do not wake me"),
        Ok(other) => panic!("expected a failed turn, got {other:?}"),
        Err(_) => panic!("the panic came out of take_turn"),
    }
}
