//! The test environment: virtual time, mocks, scripts, and error texts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use perennial::prelude::*;
use perennial_testkit::{Failure, TestEnvironment};

const DAY: Duration = Duration::from_secs(86_400);
const APPROVED: ExternalEvent<bool> = ExternalEvent::named("approved");
const ITEM: ExternalEvent<u32> = ExternalEvent::named("item");
const DAYS: Query<(), u32> = Query::named("days");

#[activity]
async fn charge(_: ActivityContext, cents: u64) -> Result<String, String> {
    Ok(format!("real receipt for {cents}"))
}

#[activity]
async fn add(_: ActivityContext, a: i64, b: i64) -> Result<i64, String> {
    Ok(a + b)
}

#[activity]
async fn answer(_: ActivityContext) -> Result<u8, String> {
    Ok(42)
}

#[orchestration]
async fn checkout(ctx: OrchestrationContext, cents: u64) -> Result<String, String> {
    if !ctx.timeout(7 * DAY, ctx.schedule_wait(APPROVED)).await.unwrap_or(false) {
        return Err("not approved".to_owned());
    }
    let receipt = ctx.schedule_activity(charge, cents).await?;
    ctx.schedule_timer(30 * DAY).await;
    Ok(receipt)
}

#[orchestration]
async fn basket(ctx: OrchestrationContext, items: usize) -> Result<Vec<u32>, String> {
    let mut basket = Vec::new();
    while basket.len() < items {
        basket.push(ctx.schedule_wait(ITEM).await);
    }
    Ok(basket)
}

#[test]
fn p_kit_thirty_days_pass_in_no_time_and_leave_an_exact_history() {
    let began = Instant::now();
    let mut env = TestEnvironment::new()
        .register(checkout)
        .mock(charge, |cents| Ok(format!("receipt for {cents}")))
        .raise_at(2 * DAY, APPROVED, true);
    assert_eq!(env.run(checkout, 500), Ok("receipt for 500".to_owned()));
    assert_eq!(env.elapsed(), 32 * DAY);
    assert!(began.elapsed() < Duration::from_secs(5), "days were slept through");
    let history = env.history("checkout-1");
    history.assert_activities(&["charge"]);
    history.assert_lines(&[
        "1 OrchestrationStarted checkout 500",
        "2 ExternalSubscribed \"approved\"",
        "3 TimerCreated for 604800s",
        "4 ExternalEvent \"approved\" true",
        "5 ActivityScheduled \"charge\" 500",
        "6 TimerCancelled of 3",
        "7 ActivityCompleted of 5 \"receipt for 500\"",
        "8 TimerCreated for 2592000s",
        "9 TimerFired of 8",
        "10 OrchestrationCompleted \"receipt for 500\"",
    ]);
    assert_eq!(history.timers(), [7 * DAY, 30 * DAY]);
    assert_eq!((history.waits(), history.duration()), (vec!["approved".to_owned()], 32 * DAY));
}

#[test]
fn p_kit_the_other_branch_of_a_race_with_time_is_a_test_without_an_event() {
    let mut env = TestEnvironment::new().register(checkout).register(charge);
    assert_eq!(env.run(checkout, 500), Err(Failure::Failed("not approved".to_owned())));
    assert_eq!(env.elapsed(), 7 * DAY);
    assert_eq!(env.history("checkout-1").activities().len(), 0);
}

#[test]
fn p_kit_the_same_test_gives_the_same_history() {
    let export = || {
        let env =
            TestEnvironment::new().register(checkout).register(charge).raise_when_waiting(APPROVED, true);
        let mut env = env;
        env.run(checkout, 1).unwrap();
        env.export()
    };
    assert_eq!(export(), export());
}

#[test]
fn p_kit_mocks_by_function_by_description_and_by_name_stand_before_real_activities() {
    #[orchestration]
    async fn all(ctx: OrchestrationContext) -> Result<String, String> {
        let sum = ctx.schedule_activity(add, (2, 3)).await?;
        let answer = ctx.schedule_activity(answer, ()).await?;
        let receipt = ctx.schedule_activity(charge, 7).await?;
        let described = Activity::<String, usize>::named("length");
        let length = ctx.schedule_activity(described, "four".to_owned()).await?;
        let refused = ctx.schedule_activity("refused", "x").await;
        Ok(format!("{sum} {answer} {receipt} {length} {refused:?}"))
    }
    let mut env = TestEnvironment::new()
        .register(all)
        .register(add)
        .register(charge)
        .mock(add, |(a, b)| Ok(a * b))
        .mock(answer, |()| Ok(7))
        .mock(Activity::<String, usize>::named("length"), |text| Ok(text.len()))
        .mock("refused", |text: String| Err::<(), _>(format!("{text} is refused")));
    assert_eq!(env.run(all, ()).unwrap(), "6 7 real receipt for 7 4 Err(\"x is refused\")");
}

#[test]
fn p_kit_events_are_raised_one_wait_after_the_other() {
    let mut env = TestEnvironment::new()
        .register(basket)
        .raise_when_waiting(ITEM, 1)
        .raise_when_waiting(ITEM, 2)
        .raise_at(DAY, ITEM, 3);
    assert_eq!(env.run(basket, 3).unwrap(), [1, 2, 3]);
    assert_eq!(env.elapsed(), DAY);
}

#[test]
fn p_kit_a_wait_that_was_met_is_no_wait() {
    #[orchestration]
    async fn slow_basket(ctx: OrchestrationContext) -> Result<Vec<u32>, String> {
        let first = ctx.schedule_wait(ITEM).await;
        let meanwhile = ctx.timeout(DAY, ctx.schedule_wait(ExternalEvent::<u32>::named("other"))).await;
        assert!(meanwhile.is_err());
        Ok(vec![first, ctx.schedule_wait(ITEM).await])
    }
    let mut env = TestEnvironment::new().register(slow_basket).raise_when_waiting(ITEM, 1);
    let stuck = env.run(slow_basket, ()).unwrap_err().to_string();
    assert!(stuck.ends_with("waiting for the event \"item\" (in \"slow_basket-1\")"), "{stuck}");
    let mut env =
        TestEnvironment::new().register(slow_basket).raise_when_waiting(ITEM, 1).raise_when_waiting(ITEM, 2);
    assert_eq!(env.run(slow_basket, ()).unwrap(), [1, 2]);
    let lines = env.history("slow_basket-1").lines();
    let fired = lines.iter().position(|line| line.contains("TimerFired")).unwrap();
    assert!(lines[fired..].iter().any(|line| line.contains("ExternalEvent \"item\" 2")), "{lines:#?}");
}

#[test]
fn p_kit_a_test_can_go_step_by_step() {
    #[orchestration]
    async fn patient(ctx: OrchestrationContext) -> Result<u32, String> {
        let days = ctx.state(0u32);
        ctx.on_query(DAYS, &days, |days, ()| days.read(|days| *days));
        for _ in 0..3 {
            ctx.schedule_timer(DAY).await;
            days.update(|days| *days += 1);
        }
        Ok(days.read(|days| *days))
    }
    let mut env = TestEnvironment::new().register(patient);
    let run = env.start(patient, "p", ());
    assert_eq!(env.query("p", DAYS, ()), 0);
    env.advance(2 * DAY);
    assert_eq!(env.query("p", DAYS, ()), 2);
    assert_eq!(env.status("p"), Some(Status::Running));
    assert_eq!(env.elapsed(), 2 * DAY);
    assert_eq!(env.result(&run).unwrap(), 3);
    assert_eq!((env.status("p"), env.status("nobody")), (Some(Status::Completed), None));
}

#[test]
fn g21_retries_wait_on_the_virtual_clock() {
    #[activity(state(AtomicU32))]
    async fn flaky(ctx: ActivityContext) -> Result<u32, String> {
        let before: u32 = ctx.decode_details().unwrap_or(0);
        ctx.heartbeat(Payload::encode(&(before + 1)).unwrap());
        ctx.state::<AtomicU32>().fetch_add(1, Ordering::Relaxed);
        if ctx.attempt() < 4 { Err("not yet".to_owned()) } else { Ok(before) }
    }
    #[orchestration]
    async fn persistent(ctx: OrchestrationContext) -> Result<u32, String> {
        Ok(ctx
            .schedule_activity(flaky, ())
            .retry(RetryPolicy::fixed(Duration::from_secs(3_600)).attempts(5))
            .await?)
    }
    let mut env = TestEnvironment::new().register(persistent).register(flaky).state(AtomicU32::new(0));
    assert_eq!(env.run(persistent, ()).unwrap(), 3, "the next attempt gets the details of the last");
    assert_eq!(env.history("persistent-1").attempts(), [("flaky".to_owned(), 4)]);
    assert_eq!(env.elapsed(), Duration::from_secs(3 * 3_600));
}

#[test]
fn g21_an_attempt_that_takes_too_long_on_the_virtual_clock_times_out() {
    #[orchestration]
    async fn hasty(ctx: OrchestrationContext, cents: u64) -> Result<String, String> {
        Ok(ctx.schedule_activity(charge, cents).timeout(Duration::from_secs(30)).await?)
    }
    let slow = |takes: u64| {
        let mut env = TestEnvironment::new()
            .register(hasty)
            .mock(charge, |_| Ok("receipt".to_owned()))
            .takes(charge, Duration::from_secs(takes));
        env.run(hasty, 1)
    };
    assert_eq!(slow(29), Ok("receipt".to_owned()));
    match slow(31) {
        Err(Failure::Failed(words)) => assert!(words.starts_with("PER-0402 timeout"), "{words}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn g23_an_activity_that_loses_a_race_with_a_timer_is_cancelled() {
    #[activity(state(Arc<AtomicU32>))]
    async fn guard(ctx: ActivityContext) -> Result<(), String> {
        ctx.cancelled().await;
        ctx.state::<Arc<AtomicU32>>().fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
    #[orchestration]
    async fn shift(ctx: OrchestrationContext) -> Result<bool, String> {
        let timed_out = ctx.timeout(DAY, ctx.schedule_activity(guard, ())).await.is_err();
        ctx.schedule_timer(DAY).await;
        Ok(timed_out)
    }
    let told = Arc::new(AtomicU32::new(0));
    let mut env =
        TestEnvironment::new().register(shift).register(guard).state(Arc::clone(&told)).virtual_time(guard);
    assert_eq!((env.run(shift, ()), env.elapsed()), (Ok(true), 2 * DAY));
    assert_eq!(told.load(Ordering::Relaxed), 1);
}

#[test]
fn g25_children_and_continue_as_new_run_in_the_environment() {
    #[orchestration]
    async fn countdown(ctx: OrchestrationContext, left: u32) -> Result<String, String> {
        ctx.schedule_timer(DAY).await;
        if left == 0 { Ok("liftoff".to_owned()) } else { ctx.continue_as_new(left - 1).await }
    }
    #[orchestration]
    async fn mission(ctx: OrchestrationContext) -> Result<String, String> {
        Ok(ctx.schedule_sub_orchestration_with_id(countdown, "launch", 2).await?)
    }
    let mut env = TestEnvironment::new().register(mission).register(countdown);
    assert_eq!(env.run(mission, ()).unwrap(), "liftoff");
    assert_eq!(env.elapsed(), 3 * DAY);
    assert_eq!(env.history("mission-1").children(), ["countdown"]);
    assert_eq!(env.history_of("launch", 2).lines()[0], "1 OrchestrationStarted countdown 1");
    assert_eq!(env.export().lines().count(), 2);
}

#[test]
fn p_kit_an_activity_reaches_instances_through_its_client() {
    #[activity]
    async fn approve(ctx: ActivityContext) -> Result<(), String> {
        let id = ctx.instance().to_owned();
        ctx.client().raise_event(&id, APPROVED, true).await.map_err(|error| error.to_string())
    }
    #[orchestration]
    async fn automatic(ctx: OrchestrationContext) -> Result<bool, String> {
        ctx.schedule_activity(approve, ()).await?;
        Ok(ctx.schedule_wait(APPROVED).await)
    }
    let mut env = TestEnvironment::new().register(automatic).register(approve);
    assert_eq!(env.run(automatic, ()), Ok(true));
}

#[test]
fn p_kit_cancelling_is_scripted_or_done() {
    let mut env = TestEnvironment::new().register(basket).cancel_at(DAY, "closing time");
    let reason = "closing time".to_owned();
    assert_eq!(env.run(basket, 1), Err(Failure::Cancelled { reason: reason.clone(), output: None }));
    let mut env = TestEnvironment::new().register(basket);
    let run = env.start(basket, "b", 1);
    env.cancel("b", &reason);
    assert_eq!(env.result(&run), Err(Failure::Cancelled { reason, output: None }));
}

#[test]
fn p_kit_what_can_never_go_on_says_what_it_waits_for() {
    let mut env =
        TestEnvironment::new().register(basket).register(checkout).raise_when_waiting(APPROVED, true);
    let stuck = env.run(basket, 1).unwrap_err();
    assert_eq!(stuck.to_string(), "the test is stuck waiting for the event \"item\" (in \"basket-1\")");
    let missing = env.run(checkout, 1).unwrap_err().to_string();
    assert!(missing.contains("\"charge\", which is neither registered nor mocked"), "{missing}");
}

#[test]
fn p_kit_what_is_blocked_brings_its_report() {
    #[orchestration]
    async fn clumsy(_: OrchestrationContext) -> Result<(), String> {
        panic!("dropped it")
    }
    #[orchestration]
    async fn unsteady(ctx: OrchestrationContext) -> Result<(), String> {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        ctx.schedule_activity("charge", run.to_string()).await?;
        Ok(())
    }
    let mut env = TestEnvironment::new().register(clumsy).register(unsteady).register(charge);
    let report = env.run(clumsy, ()).unwrap_err().to_string();
    assert!(report.contains("PER-0201 panic") && report.contains("dropped it"), "{report}");
    let mut env = TestEnvironment::new().register(unsteady).register(charge);
    let report = env.run(unsteady, ()).unwrap_err().to_string();
    assert!(report.contains("PER-0203") && report.contains("environment.rs"), "{report}");
}

#[tokio::test]
async fn p_kit_works_in_an_async_test_and_orchestrations_see_no_tokio() {
    #[orchestration]
    async fn astray(_: OrchestrationContext) -> Result<(), String> {
        tokio::time::sleep(DAY).await;
        Ok(())
    }
    #[activity]
    async fn nap(_: ActivityContext) -> Result<(), String> {
        tokio::time::sleep(DAY).await;
        Ok(())
    }
    #[orchestration]
    async fn sound(ctx: OrchestrationContext) -> Result<(), String> {
        Ok(ctx.schedule_activity(nap, ()).await?)
    }
    let mut env = TestEnvironment::new().register(astray).register(sound).register(nap).virtual_time(nap);
    assert_eq!(env.run(sound, ()), Ok(()));
    assert_eq!(env.elapsed(), DAY, "the activity sleeps on the virtual clock");
    let report = env.run(astray, ()).unwrap_err().to_string();
    assert!(report.contains("orchestrations run outside of tokio"), "{report}");
}

#[test]
fn p6_a_panic_of_the_environment_names_the_line_of_the_test() {
    thread_local!(static FILE: std::cell::RefCell<String> = const { std::cell::RefCell::new(String::new()) });
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        FILE.set(panic.location().map(|location| location.file().to_owned()).unwrap_or_default());
        usual(panic);
    }));
    let wrong: [fn(); 3] = [
        || drop(TestEnvironment::new().run(checkout, 1)),
        || drop(TestEnvironment::new().history("nobody")),
        || assert_eq!(TestEnvironment::new().register(checkout).query("nobody", DAYS, ()), 0),
    ];
    for wrong in wrong {
        assert!(std::panic::catch_unwind(wrong).is_err());
        assert_eq!(FILE.take(), file!());
    }
}

#[activity]
async fn approval(ctx: ActivityContext, order: u32) -> Result<Later<bool>, String> {
    println!("order {order}: {}", ctx.completion_token());
    Ok(Later::Pending)
}

#[orchestration]
async fn approved(ctx: OrchestrationContext, order: u32) -> Result<bool, String> {
    let retry = RetryPolicy::fixed(Duration::from_secs(60)).attempts(2).jitter(0);
    ctx.schedule_activity(approval, order).timeout(DAY).retry(retry).await.map_err(|error| error.to_string())
}

#[test]
fn g43_a_test_fails_one_attempt_with_its_token_and_completes_the_next() {
    let env = TestEnvironment::new().register(approved).register(approval);
    let mut env = env.fail_when_waiting(approval, "not now".to_owned()).complete_when_waiting(approval, true);
    assert!(env.run(approved, 7).unwrap());
    assert_eq!(env.elapsed(), Duration::from_secs(60));
}

#[test]
fn g44_an_activity_without_a_completion_times_out_on_the_virtual_clock() {
    let mut env = TestEnvironment::new().register(approved).mock(approval, |_| Ok(Later::Pending));
    let failed = env.run(approved, 7).unwrap_err();
    assert!(
        format!("{failed:?}").contains("timeout") || format!("{failed:?}").contains("long"),
        "{failed:?}"
    );
    assert_eq!(env.elapsed(), 2 * DAY + Duration::from_secs(60));
}

#[test]
fn g43_a_test_completes_an_activity_by_name_while_it_runs() {
    let mut env = TestEnvironment::new().register(approved).register(approval);
    let runs = ["a", "b"].map(|id| env.start(approved, id, 7));
    env.advance(Duration::from_secs(3_600));
    env.complete_activity("a", approval, true);
    env.complete_activity("b", "approval", Payload::from_json("false").unwrap());
    assert_eq!(runs.map(|run| env.result(&run).unwrap()), [true, false]);
    assert_eq!(env.elapsed(), Duration::from_secs(3_600));
}

#[test]
#[should_panic(expected = "no attempt of the activity \"approval\" waits for its token in \"a\"")]
fn g43_completing_an_activity_that_does_not_wait_panics() {
    let mut env = TestEnvironment::new().register(checkout).register(approval);
    env.start(checkout, "a", 500);
    env.complete_activity("a", approval, true);
}
