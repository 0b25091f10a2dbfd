//! The clocks of the test environment: virtual time does not move while real activities run.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use perennial::prelude::*;
use perennial_testkit::{Failure, TestEnvironment};

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

/// Calls another thread so often that a clock which skips whenever an activity waits would skip.
async fn ask_a_thread(ctx: &ActivityContext) -> Result<u32, String> {
    let (ask, asked) = channel::<tokio::sync::oneshot::Sender<u32>>();
    std::thread::spawn(move || asked.into_iter().for_each(|answer| answer.send(1).unwrap_or_default()));
    let mut answers = 0;
    for _ in 0..200 {
        let (answer, wait) = tokio::sync::oneshot::channel();
        ask.send(answer).map_err(|error| error.to_string())?;
        let answer = tokio::time::timeout(HOUR, wait).await.map_err(|late| late.to_string())?;
        answers += answer.map_err(|error| error.to_string())?;
        ctx.heartbeat(answers);
    }
    Ok(answers)
}

#[activity]
async fn elsewhere(ctx: ActivityContext) -> Result<u32, String> {
    ask_a_thread(&ctx).await
}

#[activity]
async fn silent(_: ActivityContext) -> Result<u32, String> {
    std::future::pending().await
}

#[orchestration]
async fn impatient(ctx: OrchestrationContext) -> Result<u32, String> {
    let outcome = ctx.timeout(HOUR, ctx.schedule_activity(elsewhere, ())).await;
    Ok(outcome.map_err(|late| late.to_string())??)
}

#[test]
fn g13_the_clock_stops_while_a_real_activity_waits_for_another_thread() {
    let mut env = TestEnvironment::new().register(impatient).register(elsewhere);
    assert_eq!(env.run(impatient, ()), Ok(200));
    assert_eq!(env.elapsed(), Duration::ZERO);
}

#[test]
fn g13_the_clock_waits_for_a_real_activity_that_starts_late() {
    let env = TestEnvironment::new().register(impatient).register(elsewhere);
    let mut env = env.takes(elsewhere, HOUR - Duration::from_millis(1));
    assert_eq!(env.run(impatient, ()), Ok(200));
    assert_eq!(env.elapsed(), HOUR - Duration::from_millis(1));
}

#[test]
fn g22_heartbeats_of_a_real_activity_count_at_any_virtual_time() {
    #[orchestration]
    async fn monthly(ctx: OrchestrationContext) -> Result<u32, String> {
        ctx.schedule_timer(30 * DAY).await;
        let work = ctx.schedule_activity(elsewhere, ()).heartbeat_timeout(Duration::from_secs(1));
        Ok(work.await?)
    }
    let mut env = TestEnvironment::new().register(monthly).register(elsewhere);
    assert_eq!(env.run(monthly, ()), Ok(200));
    assert_eq!(env.elapsed(), 30 * DAY);
}

#[test]
fn p_kit_time_that_a_test_lets_pass_waits_for_real_activities() {
    let mut env = TestEnvironment::new().register(impatient).register(elsewhere);
    env.start(impatient, "i", ());
    env.advance(Duration::ZERO);
    assert_eq!(env.status("i"), Some(Status::Completed));
}

#[test]
fn g13_an_event_from_a_mock_arrives_at_its_virtual_time() {
    #[orchestration]
    async fn listens(ctx: OrchestrationContext) -> Result<u64, String> {
        let began = ctx.utc_now().await;
        let works = ctx.schedule_activity(silent, ());
        let heard: String = ctx.schedule_wait("half").await;
        assert_eq!(heard, "done");
        let waited = ctx.utc_now().await.as_millis() - began.as_millis();
        works.await.map(|_| waited).map_err(|error| error.to_string())
    }
    let mut env = TestEnvironment::new().register(listens).mock_with(silent, |ctx, ()| async move {
        tokio::time::sleep(HOUR).await;
        ctx.client().raise_event(ctx.instance(), "half", "done").await.unwrap();
        tokio::time::sleep(DAY).await;
        Ok(1)
    });
    assert_eq!(env.run(listens, ()), Ok(3_600_000));
    assert_eq!(env.elapsed(), HOUR + DAY);
}

#[test]
fn p_kit_a_real_activity_by_the_virtual_clock_loses_against_time() {
    #[orchestration]
    async fn hasty(ctx: OrchestrationContext) -> Result<bool, String> {
        Ok(ctx.timeout(HOUR, ctx.schedule_activity(silent, ())).await.is_err())
    }
    let mut env = TestEnvironment::new().register(hasty).register(silent).virtual_time(silent);
    assert_eq!((env.run(hasty, ()), env.elapsed()), (Ok(true), HOUR));
}

#[test]
fn p_kit_a_real_activity_that_does_not_end_is_named() {
    #[activity]
    async fn quick(_: ActivityContext) -> Result<u32, String> {
        Ok(1)
    }
    #[orchestration]
    async fn both(ctx: OrchestrationContext) -> Result<u32, String> {
        let retry = RetryPolicy::fixed(HOUR).attempts(2);
        let works = ctx.schedule_activity(quick, ());
        let hangs = ctx.schedule_activity(silent, ()).retry(retry);
        let (first, second) = ctx.join2(works, hangs).await;
        Ok(first? + second?)
    }
    let env = TestEnvironment::new().register(both).register(quick).register(silent);
    let mut env = env.fail_times(silent, 1, "not yet").real_time_limit(Duration::from_millis(300));
    let failure = env.run(both, ()).unwrap_err();
    assert_eq!(
        failure.to_string(),
        "the real activity \"silent\" of \"both-1\", attempt 2, has not ended within 300ms of real time, during which the \
         virtual clock does not move; mock it, run it on the virtual clock with `virtual_time`, or raise `real_time_limit`"
    );
    assert!(env.elapsed() >= HOUR, "the first attempt failed, and the second started when it was due");
    let again = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| env.advance(DAY)));
    let words = *again.unwrap_err().downcast::<String>().unwrap();
    assert!(words.starts_with("time cannot advance: the real activity \"silent\""), "{words}");
}

#[test]
fn p_kit_a_real_activity_that_blocks_its_thread_is_named() {
    let (release, held) = channel::<()>();
    let held = Mutex::new(held);
    let mut env = TestEnvironment::new()
        .activity("stubborn", move |_: ActivityContext, _: String| {
            let _ = held.lock().unwrap().recv();
            std::future::ready(Ok::<_, String>(String::new()))
        })
        .orchestration("waits", "1.0.0", |ctx: OrchestrationContext, _: String| async move {
            ctx.schedule_activity("stubborn", "").await
        })
        .real_time_limit(Duration::from_millis(50));
    let failure = env.run("waits", "").unwrap_err();
    assert!(matches!(&failure, Failure::Hanging { activity, .. } if activity == "stubborn"), "{failure}");
    drop(release);
}

#[test]
fn p_kit_real_activities_run_again_after_one_has_blocked_its_thread() {
    let (release, held) = channel::<()>();
    let held = Mutex::new(held);
    let mut env = TestEnvironment::new()
        .activity("stubborn", move |_: ActivityContext, _: String| {
            let _ = held.lock().unwrap().recv();
            std::future::ready(Ok::<_, String>(String::new()))
        })
        .activity("next", |_: ActivityContext, _: String| async { Ok::<_, String>("done".to_owned()) })
        .orchestration("waits", "1.0.0", |ctx: OrchestrationContext, _: String| async move {
            let beside = ctx.schedule_activity("next", "");
            let (first, beside) = ctx.join2(ctx.schedule_activity("stubborn", ""), beside).await;
            first?;
            assert_eq!(beside?, "done");
            ctx.schedule_activity("next", "").await
        })
        .real_time_limit(Duration::from_millis(500));
    let run = env.start("waits", "w", "");
    for _ in 0..2 {
        let failure = env.result(&run).unwrap_err();
        assert!(matches!(&failure, Failure::Hanging { activity, .. } if activity == "stubborn"), "{failure}");
    }
    drop(release);
    assert_eq!(env.result(&run).unwrap(), "done");
}

#[test]
fn p_kit_what_real_activities_do_without_waiting_gives_the_same_history_each_time() {
    #[activity]
    async fn hop(_: ActivityContext, hops: u32) -> Result<u32, String> {
        for _ in 0..hops {
            tokio::task::yield_now().await;
        }
        Ok(hops)
    }
    #[orchestration]
    async fn race(ctx: OrchestrationContext) -> Result<u32, String> {
        let hops = (0..8).map(|number| ctx.schedule_activity(hop, (7 * number) % 5));
        Ok(ctx.try_join(hops).await?.into_iter().sum())
    }
    let export = || {
        let mut env = TestEnvironment::new().register(race).register(hop);
        env.run(race, ()).unwrap();
        env.export()
    };
    let first = export();
    (0..10).for_each(|_| assert_eq!(export(), first));
}

#[test]
fn p_kit_a_real_activity_starts_an_instance_and_waits_for_its_result() {
    #[orchestration]
    async fn other(ctx: OrchestrationContext, number: u32) -> Result<u32, String> {
        Ok(ctx.schedule_activity(elsewhere, ()).await? + number)
    }
    #[activity]
    async fn delegate(ctx: ActivityContext) -> Result<u32, String> {
        let run = ctx.client().start(other, "other", 7).await.map_err(|error| error.to_string())?;
        run.result().await.map_err(|error| error.to_string())
    }
    #[orchestration]
    async fn delegating(ctx: OrchestrationContext) -> Result<u32, String> {
        Ok(ctx.schedule_activity(delegate, ()).await?)
    }
    let env = TestEnvironment::new().register(delegating).register(other);
    let mut env = env.register(delegate).register(elsewhere);
    assert_eq!(env.run(delegating, ()), Ok(207));
}

#[test]
fn p_kit_a_real_activity_and_a_mock_talk_to_each_other() {
    let (ask, asked) = tokio::sync::mpsc::unbounded_channel::<tokio::sync::oneshot::Sender<u32>>();
    let asked = Arc::new(tokio::sync::Mutex::new(asked));
    let mut env = TestEnvironment::new()
        .activity("real", move |_: ActivityContext, _: String| {
            let ask = ask.clone();
            async move {
                let mut sum = 0;
                for _ in 0..10 {
                    let (answer, wait) = tokio::sync::oneshot::channel();
                    ask.send(answer).map_err(|error| error.to_string())?;
                    sum += wait.await.map_err(|error| error.to_string())?;
                }
                Ok::<_, String>(sum.to_string())
            }
        })
        .mock_with("mock", move |_, _: String| {
            let asked = Arc::clone(&asked);
            async move {
                for number in 0..10 {
                    let answer = asked.lock().await.recv().await.ok_or("nobody asks")?;
                    answer.send(number).map_err(|_| "nobody waits")?;
                }
                Ok::<_, String>("done".to_owned())
            }
        })
        .orchestration("talk", "1.0.0", |ctx: OrchestrationContext, _: String| async move {
            let both = ctx.join2(ctx.schedule_activity("real", ""), ctx.schedule_activity("mock", "")).await;
            Ok::<_, String>(format!("{} {}", both.0?, both.1?))
        });
    assert_eq!(env.run("talk", "").unwrap(), "45 done");
}

#[test]
fn g43_a_task_that_an_activity_spawned_completes_it() {
    #[activity]
    async fn later(ctx: ActivityContext) -> Result<Later<u32>, String> {
        let (client, token) = (ctx.client().clone(), ctx.completion_token());
        tokio::spawn(async move {
            client.complete_activity(&token, 7u32).await.map_err(|error| error.to_string())
        });
        Ok(Later::Pending)
    }
    #[orchestration]
    async fn waits(ctx: OrchestrationContext) -> Result<u32, String> {
        Ok(ctx.schedule_activity(later, ()).timeout(DAY).await?)
    }
    let mut env = TestEnvironment::new().register(waits).register(later);
    assert_eq!((env.run(waits, ()), env.elapsed()), (Ok(7), Duration::ZERO));
}

#[test]
fn g23_a_real_activity_that_is_not_awaited_is_cancelled() {
    type Told = Arc<Mutex<(Sender<()>, Receiver<()>)>>;
    let (sender, receiver) = channel();
    let told: Told = Arc::new(Mutex::new((sender, receiver)));
    let tells = Arc::clone(&told);
    let mut env = TestEnvironment::new()
        .activity("guard", move |ctx: ActivityContext, _: String| {
            let tells = tells.lock().unwrap().0.clone();
            async move {
                ctx.cancelled().await;
                tells.send(()).map_err(|error| error.to_string())?;
                Ok::<_, String>(String::new())
            }
        })
        .activity("quick", |_: ActivityContext, _: String| async move { Ok::<_, String>("first".to_owned()) })
        .orchestration("race", "1.0.0", |ctx: OrchestrationContext, _: String| async move {
            let won = match ctx
                .select2(ctx.schedule_activity("guard", ""), ctx.schedule_activity("quick", ""))
                .await
            {
                Either::First(_) => return Err("the guard went home".to_owned()),
                Either::Second(won) => won?,
            };
            ctx.schedule_timer(DAY).await;
            Ok(won)
        });
    assert_eq!(env.run("race", "").unwrap(), "first");
    assert_eq!(env.elapsed(), DAY);
    told.lock().unwrap().1.try_recv().expect("the guard was notified");
}
