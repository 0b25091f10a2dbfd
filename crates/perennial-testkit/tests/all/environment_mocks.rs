//! Mocks with a context, and planned failures.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use perennial::prelude::*;
use perennial_testkit::{Failure, TestEnvironment, crash_everywhere};
use serde::{Deserialize, Serialize};

const HOUR: Duration = Duration::from_secs(3_600);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Declined {
    Funds { cents: u64 },
}

#[activity]
async fn charge(_: ActivityContext, cents: u64) -> Result<String, Declined> {
    Ok(format!("receipt for {cents}"))
}

#[orchestration]
async fn checkout(ctx: OrchestrationContext, cents: u64) -> Result<String, String> {
    let retry = RetryPolicy::fixed(HOUR).attempts(5).jitter(0);
    let charged = ctx.schedule_activity(charge, cents).timeout(Duration::from_secs(60)).retry(retry).await;
    charged.map_err(|error| format!("{error:?}"))
}

#[orchestration]
async fn checkout_on_go(ctx: OrchestrationContext, cents: u64) -> Result<String, String> {
    ctx.schedule_wait("go").await;
    ctx.schedule_activity(charge, cents).await.map_err(|error| format!("{error:?}"))
}

#[test]
fn p_kit_a_mock_sees_the_attempt_the_instance_and_what_was_reported() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sees = Arc::clone(&seen);
    let mut env = TestEnvironment::new().register(checkout).mock_with(charge, move |ctx, cents| {
        let before = ctx.decode_details::<String>();
        sees.lock().unwrap().push((ctx.attempt(), ctx.instance().to_owned(), before));
        ctx.heartbeat(format!("attempt {} was here", ctx.attempt()));
        let attempt = ctx.attempt();
        async move { if attempt < 3 { Err(Declined::Funds { cents }) } else { Ok("paid".to_owned()) } }
    });
    assert_eq!(env.run(checkout, 5).unwrap(), "paid");
    let was_here = |attempt: u32| Some(format!("attempt {attempt} was here"));
    let expected = [(1, None), (2, was_here(1)), (3, was_here(2))];
    assert_eq!(
        *seen.lock().unwrap(),
        expected.map(|(attempt, details)| (attempt, "checkout-1".to_owned(), details))
    );
}

#[test]
fn p_kit_a_mock_sleeps_by_the_virtual_clock_and_hears_its_cancellation() {
    #[orchestration]
    async fn hasty(ctx: OrchestrationContext) -> Result<bool, String> {
        let is_late = ctx.timeout(HOUR, ctx.schedule_activity(charge, 1)).await.is_err();
        ctx.schedule_timer(HOUR).await;
        Ok(is_late)
    }
    let told = Arc::new(AtomicU32::new(0));
    let tell = Arc::clone(&told);
    let mut env = TestEnvironment::new().register(hasty).mock_with(charge, move |ctx, _| {
        let tell = Arc::clone(&tell);
        async move {
            tokio::time::sleep(HOUR / 2).await;
            ctx.cancelled().await;
            tell.fetch_add(1, Ordering::Relaxed);
            Ok(String::new())
        }
    });
    assert_eq!((env.run(hasty, ()), env.elapsed()), (Ok(true), 2 * HOUR));
    assert_eq!(told.load(Ordering::Relaxed), 1);
}

#[test]
fn p_kit_the_first_attempts_fail_and_later_ones_are_the_real_activity() {
    let env = || TestEnvironment::new().register(checkout).register(charge);
    let mut failing = env().fail_times(charge, 3, Declined::Funds { cents: 1 });
    assert_eq!(failing.run(checkout, 500).unwrap(), "receipt for 500");
    assert_eq!(failing.history("checkout-1").attempts(), [("charge".to_owned(), 4)]);
    assert_eq!(failing.elapsed(), 3 * HOUR);
    assert_eq!(failing.run(checkout, 600).unwrap(), "receipt for 600");
    assert_eq!(failing.elapsed(), 3 * HOUR, "attempts are counted over the whole test");

    let mut for_good = env().fail_times(charge, 5, Declined::Funds { cents: 1 });
    let failure = for_good.run(checkout, 500).unwrap_err();
    assert_eq!(failure, Failure::Failed("Application(Funds { cents: 1 })".to_owned()));
}

#[test]
fn p_kit_after_planned_failures_comes_the_mock() {
    let mut env = TestEnvironment::new()
        .register(checkout)
        .mock(charge, |cents| Ok(format!("mocked receipt for {cents}")))
        .fail_times("charge", 1, "a name takes any payload")
        .fail_times(Activity::<u64, String, Declined>::named("charge"), 1, Declined::Funds { cents: 2 });
    assert_eq!(env.run(checkout, 500).unwrap(), "mocked receipt for 500");
    assert_eq!(env.history("checkout-1").attempts(), [("charge".to_owned(), 3)]);
}

#[test]
fn p_kit_planned_failures_meet_code_that_schedules_again() {
    #[orchestration]
    async fn stubborn(ctx: OrchestrationContext) -> Result<u32, String> {
        let mut refused = 0;
        while ctx.schedule_activity(charge, 1).await.is_err() {
            refused += 1;
        }
        Ok(refused)
    }
    let env = TestEnvironment::new().register(stubborn).register(charge);
    let mut env = env.fail_times(charge, 4, Declined::Funds { cents: 1 });
    assert_eq!(env.run(stubborn, ()), Ok(4));
}

#[test]
fn g21_attempts_time_out_as_planned_on_the_virtual_clock() {
    let mut env = TestEnvironment::new()
        .register(checkout)
        .register(charge)
        .time_out_times(charge, 1)
        .fail_times(charge, 1, Declined::Funds { cents: 1 })
        .time_out_times(charge, 2);
    assert_eq!(env.run(checkout, 500).unwrap(), "receipt for 500");
    assert_eq!(env.history("checkout-1").attempts(), [("charge".to_owned(), 5)]);
    let mut env = TestEnvironment::new().register(checkout).register(charge).time_out_times(charge, 5);
    let failure = env.run(checkout, 500).unwrap_err();
    assert!(format!("{failure:?}").contains("Timeout"), "{failure:?}");
}

#[test]
fn p_kit_a_planned_timeout_without_a_timeout_is_refused() {
    #[orchestration]
    async fn patient(ctx: OrchestrationContext) -> Result<String, String> {
        ctx.schedule_activity(charge, 1).await.map_err(|error| format!("{error:?}"))
    }
    let mut env = TestEnvironment::new().register(patient).register(charge).time_out_times(charge, 1);
    let failure = env.run(patient, ()).unwrap_err().to_string();
    let words = "the activity \"charge\" (in \"patient-1\"), which has a planned timeout but was scheduled without one";
    assert!(failure.ends_with(words), "{failure}");
}

#[test]
fn i17_planned_failures_are_the_same_wherever_it_crashes() {
    let report = crash_everywhere(|env| {
        let env = env.register(checkout).register(charge).fail_times(charge, 2, Declined::Funds { cents: 1 });
        let mut env = env.time_out_times(charge, 1);
        let result = env.run(checkout, 500);
        (result, env.history("checkout-1").attempts())
    });
    assert_eq!(report.unwrap().activities, 4);
}

#[test]
fn p_kit_a_missing_activity_does_not_keep_others_from_running() {
    let builder = TestEnvironment::new()
        .orchestration("hopeless", "1.0.0", |ctx: OrchestrationContext| async move {
            ctx.schedule_wait("go").await;
            ctx.schedule_activity("missing", "x").await
        })
        .register(checkout_on_go)
        .mock(charge, |cents| Ok(format!("receipt for {cents}")));
    let mut env = builder;
    let hopeless = env.start("hopeless", "h", ());
    let runs: Vec<_> = (0..3).map(|n| env.start(checkout_on_go, &format!("c-{n}"), n)).collect();
    env.raise("h", "go", "");
    (0..3).for_each(|n| env.raise(&format!("c-{n}"), "go", ""));
    let failure = env.result(&hopeless).unwrap_err();
    assert!(matches!(failure, Failure::Stuck { waiting_for } if waiting_for.contains("missing")));
    for (n, run) in runs.iter().enumerate() {
        assert_eq!(env.result(run).unwrap(), format!("receipt for {n}"));
    }
}
