//! The orchestrations whose histories 0.1.0 recorded.
//!
//! What they decide is never changed: the histories beside this file are held against it by every later version. What is
//! new in a release goes into a file of its own, beside the histories that it recorded.

use perennial::prelude::*;
use perennial_testkit::TestEnvironment;

pub(crate) const GO: ExternalEvent<u32> = ExternalEvent::named("go");
pub(crate) const STOP: ExternalEvent<()> = ExternalEvent::named("stop");
const COUNT: Query<(), u32> = Query::named("count");
const ADD: Update<u32, u32, String> = Update::named("add");
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

/// One program: its name, which is that of its file, and a run of it.
pub(crate) type Program = (&'static str, fn(TestEnvironment) -> TestEnvironment);

pub(crate) const PROGRAMS: &[Program] = &[
    ("sequence", |env| ran(env, |env| drop(env.run(sequence, 3)))),
    ("fan_out", |env| ran(env, |env| drop(env.run(fan_out, 5)))),
    ("race_with_a_loser", |env| ran(env.takes("slow", HOUR), |env| drop(env.run(race_with_a_loser, ())))),
    ("timers", |env| ran(env, |env| drop(env.run(timers, ())))),
    ("events", |env| {
        ran(env.raise_at(HOUR, GO, 7).raise_at(2 * HOUR, GO, 8), |env| drop(env.run(events, ())))
    }),
    ("early_events", |env| {
        ran(env, |env| {
            let run = env.start(early_events, "early_events-1", ());
            env.raise("early_events-1", GO, 1);
            env.raise("early_events-1", GO, 2);
            drop(env.result(&run));
        })
    }),
    ("retries_that_fail", |env| ran(env, |env| drop(env.run(retries_that_fail, ())))),
    ("children", |env| ran(env, |env| drop(env.run(children, ())))),
    ("continuing_with_events", |env| {
        ran(env, |env| {
            let run = env.start(continuing_with_events, "continuing-1", (0, 0));
            for number in 1..=6 {
                env.raise("continuing-1", GO, number);
            }
            drop(env.result(&run));
        })
    }),
    ("handlers", |env| {
        ran(env, |env| {
            let run = env.start(handlers, "handlers-1", 1);
            drop(env.update("handlers-1", ADD, 5));
            drop(env.update("handlers-1", ADD, 0));
            env.raise("handlers-1", GO, 10);
            assert_eq!(env.query("handlers-1", COUNT, ()), 16);
            drop(env.update("handlers-1", ADD, 7));
            env.raise("handlers-1", STOP, ());
            drop(env.result(&run));
        })
    }),
    ("patched", |env| ran(env, |env| drop(env.run(patched, ())))),
    ("versions", |env| {
        ran(env, |env| {
            let old = StartOptions::default().version("1.0.0");
            let old = env.start_with(versions, "versions-old", (), old).unwrap();
            drop(env.result(&old));
            let new = env.start(versions, "versions-new", ());
            drop(env.result(&new));
        })
    }),
    ("timed_out", |env| {
        ran(env, |env| {
            let run = env.start_with(cancelled, "timed-out-1", (), StartOptions::default().timeout(HOUR));
            drop(env.result(&run.unwrap()));
        })
    }),
    ("cancelled", |env| ran(env.cancel_at(HOUR, "enough"), |env| drop(env.run(cancelled, ())))),
    ("cancelled_with_care", |env| {
        ran(env.cancel_at(HOUR, "enough"), |env| drop(env.run(cancelled_with_care, ())))
    }),
    ("ended_as_cancelled", |env| {
        ran(env.cancel_at(HOUR, "enough"), |env| drop(env.run(ended_as_cancelled, ())))
    }),
    ("stopped", |env| ran(env.takes("slow", HOUR), |env| drop(env.run(stopped, ())))),
    ("told", |env| ran(env, |env| drop(env.run(told, ())))),
    ("saga", |env| ran(env, |env| drop(env.run(saga, ())))),
    ("side_values", |env| ran(env, |env| drop(env.run(side_values, ())))),
    ("branches", |env| ran(env, |env| drop(env.run(branches, 4)))),
    ("others", |env| ran(env, |env| drop(env.run(others, ())))),
    ("published", |env| ran(env, |env| drop(env.run(published, ())))),
    ("not_ended", |env| {
        ran(env, |env| {
            env.start(events, "not-ended-1", ());
            env.advance(HOUR);
        })
    }),
];

/// Everything that the programs need.
pub(crate) fn registered(env: TestEnvironment) -> TestEnvironment {
    env.register(sequence)
        .register(fan_out)
        .register(race_with_a_loser)
        .register(timers)
        .register(events)
        .register(early_events)
        .register(retries_that_fail)
        .register(children)
        .register(child)
        .register(continuing_with_events)
        .register(handlers)
        .register(patched)
        .register(old::versions)
        .register(versions)
        .register(cancelled)
        .register(cancelled_with_care)
        .register(ended_as_cancelled)
        .register(stopped)
        .register(told)
        .register(saga)
        .register(side_values)
        .register(branches)
        .register(others)
        .register(listener)
        .register(published)
        .register(add)
        .register(slow)
        .register(fail)
}

fn ran(env: TestEnvironment, run: impl FnOnce(&mut TestEnvironment)) -> TestEnvironment {
    let mut env = env;
    run(&mut env);
    env
}

#[activity]
pub(crate) async fn add(_: ActivityContext, a: u32, b: u32) -> Result<u32, String> {
    Ok(a + b)
}

#[activity]
pub(crate) async fn slow(_: ActivityContext, answer: String) -> Result<String, String> {
    Ok(answer)
}

#[activity]
pub(crate) async fn fail(_: ActivityContext, why: String) -> Result<u32, String> {
    Err(why)
}

#[orchestration]
pub(crate) async fn sequence(ctx: OrchestrationContext, steps: u32) -> Result<u32, String> {
    let mut sum = 0;
    for step in 0..steps {
        sum = ctx.schedule_activity(add, (sum, step)).await?;
    }
    Ok(sum)
}

#[orchestration]
pub(crate) async fn fan_out(ctx: OrchestrationContext, width: u32) -> Result<Vec<u32>, String> {
    let all = ctx.join((0..width).map(|number| ctx.schedule_activity(add, (number, 1)))).await;
    let all: Result<Vec<u32>, _> = all.into_iter().collect();
    let two = ctx.join2(ctx.schedule_activity(add, (1, 1)), ctx.schedule_timer(HOUR)).await;
    two.0?;
    let mixed = vec![ctx.schedule_activity(add, (1, 2)), ctx.schedule_activity(fail, "no".to_owned())];
    Ok(match ctx.try_join(mixed).await {
        Ok(sums) => sums,
        Err(_) => all?,
    })
}

#[orchestration]
pub(crate) async fn race_with_a_loser(ctx: OrchestrationContext) -> Result<String, String> {
    let first = ctx
        .select2(ctx.schedule_activity(slow, "late".to_owned()), ctx.schedule_timer(Duration::from_secs(60)));
    let first = match first.await {
        Either::First(answer) => answer?,
        Either::Second(()) => "the timer".to_owned(),
    };
    let limited = ctx.timeout(HOUR / 2, ctx.schedule_activity(slow, "late again".to_owned())).await;
    let raced = ctx.race(vec![ctx.schedule_timer(HOUR), ctx.schedule_timer(HOUR / 4)]).await;
    Ok(format!("{first} {} {raced:?}", limited.is_err()))
}

#[orchestration]
pub(crate) async fn timers(ctx: OrchestrationContext) -> Result<(), String> {
    ctx.schedule_timer(Duration::from_millis(1_500)).await;
    ctx.join((1..4).map(|hours| ctx.schedule_timer(hours * HOUR))).await;
    ctx.schedule_timer(Duration::ZERO).await;
    Ok(())
}

#[orchestration]
pub(crate) async fn events(ctx: OrchestrationContext) -> Result<u32, String> {
    let first = ctx.schedule_wait(GO).await;
    let second = ctx.timeout(7 * 24 * HOUR, ctx.schedule_wait(GO)).await.unwrap_or(0);
    let third = ctx.timeout(HOUR, ctx.schedule_wait(GO)).await.unwrap_or(100);
    ctx.schedule_timer(HOUR).await;
    Ok(first + second + third)
}

#[orchestration]
pub(crate) async fn early_events(ctx: OrchestrationContext) -> Result<u32, String> {
    ctx.schedule_timer(HOUR).await;
    Ok(10 * ctx.schedule_wait(GO).await + ctx.schedule_wait(GO).await)
}

#[orchestration]
pub(crate) async fn retries_that_fail(ctx: OrchestrationContext) -> Result<u32, String> {
    let retried =
        ctx.schedule_activity(fail, "not today".to_owned()).retry(RetryPolicy::exponential(3)).await;
    let error = retried.map_err(|error| error.to_string());
    let limited = ctx.schedule_activity(slow, "x".to_owned()).timeout(Duration::from_secs(5)).await;
    limited.map_err(|error| error.to_string())?;
    Err(error.err().unwrap_or_default())
}

#[orchestration]
pub(crate) async fn child(ctx: OrchestrationContext, number: u32) -> Result<u32, String> {
    ctx.schedule_timer(HOUR).await;
    if number > 2 { Err(format!("{number} is too much")) } else { Ok(number) }
}

#[orchestration]
pub(crate) async fn children(ctx: OrchestrationContext) -> Result<String, String> {
    let named = ctx.schedule_sub_orchestration_with_id(child, "named-child", 1).await?;
    let all = ctx.join((2..4).map(|number| ctx.schedule_sub_orchestration(child, number))).await;
    let told = ctx.timeout(HOUR / 2, ctx.schedule_sub_orchestration(child, 1)).await;
    ctx.schedule_timer(HOUR).await;
    let all: Vec<String> = all.into_iter().map(|outcome| format!("{outcome:?}")).collect();
    Ok(format!("{named} {} {}", all.join(" "), told.is_err()))
}

#[orchestration]
pub(crate) async fn continuing_with_events(
    ctx: OrchestrationContext,
    round: u32,
    sum: u32,
) -> Result<u32, String> {
    ctx.schedule_timer(HOUR).await;
    let sum = sum + ctx.schedule_wait(GO).await + ctx.schedule_wait(GO).await;
    if round == 2 { Ok(sum) } else { ctx.continue_as_new((round + 1, sum)).await }
}

#[orchestration]
pub(crate) async fn handlers(ctx: OrchestrationContext, from: u32) -> Result<u32, String> {
    let count = ctx.state(from);
    ctx.on_query(COUNT, &count, |count, ()| count.read(|count| *count));
    ctx.on_update(ADD, &(ctx.clone(), count.clone()), |(ctx, count), by| async move {
        let by = ctx.schedule_activity(add, (by, 0)).await?;
        ctx.schedule_timer(HOUR).await;
        Ok(count.update(|count| {
            *count += by;
            *count
        }))
    })
    .validate(|_, by| if *by > 0 { Ok(()) } else { Err("only upwards".to_owned()) });
    ctx.on_event(GO, &count, |count, by| async move { count.update(|count| *count += by) });
    ctx.wait_until(&count, |count| *count > 10).await;
    ctx.schedule_wait(STOP).await;
    Ok(count.read(|count| *count))
}

#[orchestration]
pub(crate) async fn patched(ctx: OrchestrationContext) -> Result<u32, String> {
    let mut sum = ctx.schedule_activity(add, (1, 1)).await?;
    if ctx.patched("add-more") {
        sum = ctx.schedule_activity(add, (sum, 40)).await?;
    }
    ctx.schedule_timer(HOUR).await;
    if ctx.patched("add-more") {
        sum = ctx.schedule_activity(add, (sum, 1)).await?;
    }
    Ok(sum)
}

pub(crate) mod old {
    use super::*;

    #[orchestration(version = "1.0.0")]
    pub(crate) async fn versions(ctx: OrchestrationContext) -> Result<u32, String> {
        Ok(ctx.schedule_activity(add, (1, 0)).await?)
    }
}

#[orchestration(version = "2.0.0")]
pub(crate) async fn versions(ctx: OrchestrationContext) -> Result<u32, String> {
    ctx.schedule_timer(HOUR).await;
    Ok(ctx.schedule_activity(add, (2, 0)).await?)
}

#[orchestration]
pub(crate) async fn cancelled(ctx: OrchestrationContext) -> Result<(), String> {
    ctx.schedule_timer(30 * 24 * HOUR).await;
    Ok(())
}

#[orchestration]
pub(crate) async fn cancelled_with_care(ctx: OrchestrationContext) -> Result<String, String> {
    match ctx.select2(ctx.schedule_timer(30 * 24 * HOUR), ctx.cancelled()).await {
        Either::First(()) => Ok("slept".to_owned()),
        Either::Second(_) => Ok(ctx.schedule_activity(slow, "cleaned up".to_owned()).await?),
    }
}

#[orchestration]
pub(crate) async fn ended_as_cancelled(ctx: OrchestrationContext) -> Result<(), String> {
    let inner = ctx.clone();
    let kept = ctx.uncancellable(async move { inner.schedule_timer(2 * HOUR).await });
    let reason = ctx.cancelled().await;
    kept.await;
    ctx.end_cancelled(format!("cleaned up: {reason}")).await
}

#[orchestration]
pub(crate) async fn stopped(ctx: OrchestrationContext) -> Result<String, String> {
    let mut work = ctx.schedule_activity(slow, "late".to_owned());
    let in_time = ctx.timeout(HOUR / 2, &mut work).await.is_ok();
    work.cancel();
    let mut long = ctx.schedule_sub_orchestration(cancelled, ());
    long.started().await.map_err(|failure| format!("{failure:?}"))?;
    long.cancel("enough");
    Ok(format!("{in_time} {:?} {:?}", work.await, long.await))
}

#[orchestration]
pub(crate) async fn told(ctx: OrchestrationContext) -> Result<String, String> {
    let started = ctx.schedule_orchestration(listener, "told", ()).delivered().await;
    let raised = ctx.raise_event("told", GO, 5).delivered().await;
    ctx.schedule_timer(HOUR).await;
    let cancelled = ctx.cancel_orchestration("told", "no longer needed").grace(HOUR).delivered().await;
    let nobody = ctx.raise_event("nobody", GO, 5).delivered().await;
    Ok(format!("{started:?} {raised:?} {cancelled:?} {nobody:?}"))
}

#[orchestration]
pub(crate) async fn saga(ctx: OrchestrationContext) -> Result<(), String> {
    let saga = Saga::new(&ctx);
    let booked = saga.run(async {
        for booking in ["flight", "hotel"] {
            ctx.schedule_activity(slow, format!("book {booking}")).await?;
            saga.undo(slow, format!("unbook {booking}"));
        }
        ctx.schedule_activity(fail, "no cars".to_owned()).await.map(drop)
    });
    booked.await.map_err(|error| format!("{error}, {} not undone", saga.failures().len()))
}

#[orchestration]
pub(crate) async fn side_values(ctx: OrchestrationContext) -> Result<String, String> {
    let drawn = (ctx.random(), ctx.uuid4(), ctx.now().since_epoch());
    let guid = ctx.new_guid().await;
    let other = ctx.new_guid().await;
    let now_ms = ctx.utc_now().await.as_millis();
    let effect: u32 = ctx.side_effect("dice", || 4).await;
    ctx.schedule_timer(HOUR).await;
    Ok(format!("{drawn:?} {guid} {other} {now_ms} {effect} {} {:?}", ctx.random(), ctx.now().since_epoch()))
}

#[orchestration]
pub(crate) async fn branches(ctx: OrchestrationContext, width: u32) -> Result<u32, String> {
    let background = ctx.clone();
    let handle = ctx.spawn(async move { background.schedule_activity(add, (100, 0)).await });
    let branch = |number: u32| {
        let ctx = ctx.clone();
        async move {
            let sum = ctx.schedule_activity(add, (number, 1)).await?;
            ctx.schedule_timer(number * HOUR).await;
            Ok::<u32, String>(ctx.schedule_activity(add, (sum, 1)).await?)
        }
    };
    let all = ctx.parallel((0..width).map(branch)).await;
    let sum: Result<u32, String> = all.into_iter().sum();
    Ok(sum? + handle.await?)
}

#[orchestration]
pub(crate) async fn listener(ctx: OrchestrationContext) -> Result<u32, String> {
    Ok(ctx.schedule_wait(GO).await)
}

#[orchestration]
pub(crate) async fn others(ctx: OrchestrationContext) -> Result<(), String> {
    ctx.schedule_orchestration(listener, "a-listener", ());
    ctx.schedule_timer(HOUR).await;
    ctx.raise_event("a-listener", GO, 5);
    Ok(())
}

#[orchestration]
pub(crate) async fn published(ctx: OrchestrationContext) -> Result<(), String> {
    ctx.set_status("waiting");
    ctx.set_attribute("stage", 1);
    ctx.schedule_timer(HOUR).await;
    ctx.set_attribute("stage", 2);
    ctx.set_status("done");
    Ok(())
}
