//! Tests of endless orchestrations end.

use perennial::prelude::*;
use perennial_testkit::{Failure, TestEnvironment};

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

#[orchestration]
async fn spin(ctx: OrchestrationContext, rounds: u64) -> Result<(), String> {
    ctx.continue_as_new(rounds + 1).await
}

#[orchestration]
async fn nightly(ctx: OrchestrationContext, nights: u64) -> Result<u64, String> {
    for _ in 0..nights {
        ctx.schedule_timer(DAY).await;
    }
    Ok(nights)
}

#[activity]
async fn broken(_: ActivityContext) -> Result<(), String> {
    Err("always".to_owned())
}

#[orchestration]
async fn persistent(ctx: OrchestrationContext) -> Result<(), String> {
    let for_ever = RetryPolicy::fixed(HOUR).attempts(u32::MAX).jitter(0);
    Ok(ctx.schedule_activity(broken, ()).retry(for_ever).await?)
}

#[test]
fn p_kit_continuing_as_new_for_ever_ends_the_test() {
    let mut env = TestEnvironment::new().register(spin).turn_limit(1_000);
    let failure = env.run(spin, 0).unwrap_err();
    assert_eq!(
        failure.to_string(),
        "the test did not end after 1001 turns, 0 attempts of activities and 0ns of virtual time; the busiest is the instance \
         \"spin-1\" with 1001 turns in 1002 executions; if it needs more, raise `turn_limit` or `time_limit`"
    );
}

#[test]
fn p_kit_waiting_for_timers_for_ever_ends_the_test() {
    let mut env = TestEnvironment::new().register(nightly).turn_limit(100);
    let failure = env.run(nightly, u64::MAX).unwrap_err();
    let Failure::Endless { turns, elapsed, .. } = &failure else { panic!("{failure}") };
    assert_eq!((*turns, *elapsed), (101, 100 * DAY));
    assert!(failure.to_string().contains("100.0 days of virtual time"), "{failure}");
}

#[test]
fn p_kit_a_raised_limit_lets_a_long_flow_end() {
    let env = |limit| TestEnvironment::new().register(nightly).turn_limit(limit);
    assert!(matches!(env(300).run(nightly, 300), Err(Failure::Endless { .. })));
    assert_eq!(env(301).run(nightly, 300), Ok(300));
}

#[test]
fn p_kit_attempting_for_ever_ends_the_test() {
    let mut env = TestEnvironment::new().register(persistent).register(broken).turn_limit(50);
    let failure = env.run(persistent, ()).unwrap_err();
    let Failure::Endless { turns, attempts, busiest, .. } = failure else { panic!("{failure}") };
    assert_eq!((turns, attempts), (1, 50));
    assert_eq!(busiest, "the activity \"broken\" with 50 attempts");
}

#[test]
fn p_kit_more_virtual_time_than_a_test_may_take_ends_it() {
    let mut env = TestEnvironment::new().register(nightly).time_limit(10 * DAY);
    let failure = env.run(nightly, 11).unwrap_err();
    assert!(matches!(failure, Failure::Endless { elapsed, .. } if elapsed == 10 * DAY), "{failure}");
}

#[orchestration]
async fn watched(ctx: OrchestrationContext) -> Result<String, String> {
    match ctx.timeout(30 * DAY, ctx.schedule_activity(broken, ())).await {
        Ok(Ok(())) => Ok("in time".to_owned()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Ok("late".to_owned()),
    }
}

#[test]
fn p_kit_a_timer_after_the_time_limit_does_not_end_a_test_that_ends_before() {
    let env = || TestEnvironment::new().register(watched).time_limit(10 * DAY);
    let mut slow = env().mock_with(broken, |_, ()| async {
        tokio::time::sleep(10 * DAY).await;
        Ok(())
    });
    assert_eq!((slow.run(watched, ()).unwrap().as_str(), slow.elapsed()), ("in time", 10 * DAY));
    let mut slow = env().register(broken).takes(broken, HOUR).fail_times(broken, 1, "planned");
    let failure = slow.run(watched, ()).unwrap_err();
    assert!(matches!(&failure, Failure::Failed(error) if error.contains("planned")), "{failure}");
}

#[test]
fn p_kit_time_inside_attempts_counts_towards_the_time_limit() {
    #[orchestration]
    async fn works(ctx: OrchestrationContext) -> Result<(), String> {
        Ok(ctx.schedule_activity(broken, ()).await?)
    }
    let env = || TestEnvironment::new().register(works).register(broken).time_limit(10 * DAY);
    let is_endless = |env: &mut TestEnvironment| {
        let failure = env.run(works, ()).unwrap_err();
        assert!(matches!(failure, Failure::Endless { elapsed, .. } if elapsed == 10 * DAY), "{failure}");
    };
    is_endless(&mut env().takes(broken, 11 * DAY));
    is_endless(&mut env().mock_with(broken, |_, ()| async {
        loop {
            tokio::time::sleep(DAY).await;
        }
    }));
    // There is nothing to wait for, however late it gets.
    for env in [env(), env().time_limit(Duration::MAX)] {
        let failure = env.mock_with(broken, |_, ()| std::future::pending()).run(works, ()).unwrap_err();
        let is_stuck = matches!(&failure, Failure::Stuck { waiting_for } if waiting_for.contains("broken"));
        assert!(is_stuck, "{failure}");
    }
}

#[test]
fn p_kit_the_limit_of_virtual_time_is_a_thousand_years_unless_a_test_says_otherwise() {
    #[orchestration]
    async fn ages(ctx: OrchestrationContext) -> Result<(), String> {
        loop {
            ctx.schedule_timer(100 * 365 * DAY).await;
        }
    }
    let failure = TestEnvironment::new().register(ages).run(ages, ()).unwrap_err();
    assert!(matches!(failure, Failure::Endless { turns: 11, .. }), "{failure}");
}

#[test]
#[should_panic(expected = "time cannot advance: the test did not end after 101 turns")]
fn p_kit_time_that_a_test_lets_pass_has_the_same_limits() {
    let mut env = TestEnvironment::new().register(nightly).turn_limit(100);
    env.start(nightly, "n", u64::MAX);
    env.advance(1_000 * DAY);
}

#[test]
#[should_panic(expected = "\"s\" does not answer: the test did not end after 101 turns")]
fn p_kit_what_is_asked_of_an_instance_that_never_rests_is_no_hang() {
    let mut env = TestEnvironment::new().register(spin).turn_limit(100);
    env.start(spin, "s", 0);
    env.cancel("s", "enough");
}
