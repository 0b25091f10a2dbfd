//! `crash_everywhere` passes correct code, and finds planted mistakes at the point where they occur.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use perennial::prelude::*;
use perennial_testkit::{CrashPoint, TestEnvironment, crash_everywhere};

const DAY: Duration = Duration::from_secs(86_400);
const GO: ExternalEvent<u64> = ExternalEvent::named("go");

/// The charges: every call, and by idempotency key.
#[derive(Default)]
struct Bank {
    calls: AtomicU32,
    charges: Mutex<BTreeSet<String>>,
}

#[activity(state(Arc<Bank>))]
async fn charge(ctx: ActivityContext, cents: u64) -> Result<u64, String> {
    let bank = ctx.state::<Arc<Bank>>();
    bank.calls.fetch_add(1, Ordering::Relaxed);
    bank.charges.lock().unwrap().insert(ctx.idempotency_key());
    if cents > 1_000 { Err("too much".to_owned()) } else { Ok(cents) }
}

#[orchestration]
async fn payments(ctx: OrchestrationContext, cents: u64) -> Result<(u64, String), String> {
    let first = ctx.schedule_activity(charge, cents).await?;
    let extra = ctx.schedule_wait(GO).await;
    ctx.schedule_timer(30 * DAY).await;
    let second = ctx.schedule_sub_orchestration(payment, extra).await?;
    let refused = ctx
        .schedule_activity(charge, 2_000)
        .retry(RetryPolicy::fixed(Duration::from_secs(60)).attempts(2))
        .await
        .unwrap_err();
    Ok((first + second, format!("{refused} {}", ctx.new_guid().await)))
}

#[orchestration]
async fn payment(ctx: OrchestrationContext, cents: u64) -> Result<u64, String> {
    Ok(ctx.schedule_activity(charge, cents).await?)
}

fn with_bank(env: TestEnvironment, bank: &Arc<Bank>) -> TestEnvironment {
    env.register(payments)
        .register(payment)
        .register(charge)
        .state(Arc::clone(bank))
        .raise_when_waiting(GO, 50)
}

#[test]
fn i17_correct_code_has_the_same_outcome_wherever_it_crashes() {
    let runs = AtomicU32::new(0);
    let report = crash_everywhere(|env| {
        runs.fetch_add(1, Ordering::Relaxed);
        let bank = Arc::new(Bank::default());
        let mut env = with_bank(env, &bank);
        let result = env.run(payments, 100);
        let charges = bank.charges.lock().unwrap().len();
        (result, charges, env.elapsed())
    });
    let report = report.unwrap();
    assert_eq!(report.activities, 4, "two in the parent, of which one twice, and one in the child");
    assert!(report.commits >= 8, "{report:?}");
    assert_eq!(report.runs, 1 + 2 * report.commits + 2 * report.activities, "every point was tested");
    assert_eq!(runs.into_inner() as usize, report.runs);
}

#[test]
fn g20_an_effect_that_is_not_idempotent_is_found_at_its_activity() {
    let failure = crash_everywhere(|env| {
        let bank = Arc::new(Bank::default());
        with_bank(env, &bank).run(payments, 100).unwrap();
        bank.calls.load(Ordering::Relaxed)
    });
    let failure = failure.unwrap_err();
    assert_eq!(failure.expected, "4");
    let points: Vec<CrashPoint> = failure.differences.iter().map(|difference| difference.point).collect();
    for number in 1..=4 {
        assert!(points.contains(&CrashPoint::ActivityTwice(number)), "{failure}");
        assert!(points.contains(&CrashPoint::DuringActivity(number)), "{failure}");
    }
    let first = failure.differences.iter().find(|found| found.point == CrashPoint::BeforeCommit(2)).unwrap();
    assert_eq!(first.found, "5", "what the attempt returned was lost with the commit");
    assert_eq!(first.at, "payments-1 (turn 2: ActivityCompleted, ExternalSubscribed)");
    let words = failure.to_string();
    assert!(
        words.contains("\n  activity 1 run twice: 5\n    at \"charge\" of \"payments-1\", attempt 1"),
        "{words}"
    );
}

#[test]
fn g20_an_activity_that_crashes_half_way_is_found_only_there() {
    #[activity(state(Arc<AtomicU32>))]
    async fn transfer(ctx: ActivityContext) -> Result<(), String> {
        let balance = ctx.state::<Arc<AtomicU32>>();
        // Taken from one account; if the process crashes now, it never arrives, and is taken again.
        balance.fetch_sub(10, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(1)).await;
        balance.fetch_add(10, Ordering::Relaxed);
        Ok(())
    }
    #[orchestration]
    async fn moving(ctx: OrchestrationContext) -> Result<(), String> {
        Ok(ctx.schedule_activity(transfer, ()).await?)
    }
    let failure = crash_everywhere(|env| {
        let balance = Arc::new(AtomicU32::new(100));
        let env = env.register(moving).register(transfer).state(Arc::clone(&balance));
        env.virtual_time(transfer).run(moving, ()).unwrap();
        balance.load(Ordering::Relaxed)
    });
    let failure = failure.unwrap_err();
    let points: Vec<CrashPoint> = failure.differences.iter().map(|found| found.point).collect();
    assert_eq!(points, [CrashPoint::DuringActivity(1)], "{failure}");
    assert_eq!(failure.differences[0].found, "90");
}

#[test]
fn i15_state_outside_the_history_is_found() {
    let failure = crash_everywhere(|env| {
        // Lives as long as the process; a crash resets it.
        let seen = Arc::new(Mutex::new(Vec::new()));
        let writer = Arc::clone(&seen);
        let mut env = env.mock("noop", |(): ()| Ok::<(), String>(())).orchestration(
            "forgetful",
            "1.0.0",
            move |ctx: OrchestrationContext, _: String| {
                let seen = Arc::clone(&writer);
                async move {
                    seen.lock().unwrap().push(1);
                    ctx.schedule_activity("noop", ()).await.map_err(|_| "failed".to_owned())?;
                    Ok::<String, String>(seen.lock().unwrap().len().to_string())
                }
            },
        );
        env.run("forgetful", "")
    });
    let failure = failure.unwrap_err();
    let points: Vec<String> = failure.differences.iter().map(|found| found.point.to_string()).collect();
    assert!(points.contains(&"crash after commit 1".to_owned()), "{failure}");
}

#[test]
fn p_kit_an_assertion_that_fails_after_a_crash_is_reported_with_its_point() {
    let calls = AtomicU32::new(0);
    let failure = crash_everywhere(|env| {
        let before = calls.load(Ordering::Relaxed);
        let bank = Arc::new(Bank::default());
        let mut env = env.register(payment).register(charge).state(Arc::clone(&bank));
        env.run(payment, 1).unwrap();
        calls.store(before + 1, Ordering::Relaxed);
        assert_eq!(bank.calls.load(Ordering::Relaxed), 1, "charged once");
    });
    let failure = failure.unwrap_err();
    assert!(failure.differences.iter().all(|found| found.found.contains("charged once")), "{failure}");
    assert!(calls.into_inner() > 3, "one failure does not end the test of other points");
}

#[orchestration]
async fn names(ctx: OrchestrationContext, mut taken: Vec<String>) -> Result<Vec<String>, String> {
    taken.push(ctx.uuid4());
    taken.push(ctx.schedule_sub_orchestration(name, ()).await?);
    if taken.len() < 6 {
        return ctx.continue_as_new(taken).await;
    }
    Ok(taken)
}

#[orchestration]
async fn name(ctx: OrchestrationContext) -> Result<String, String> {
    Ok(ctx.uuid4())
}

#[test]
fn e17_random_values_of_the_next_execution_and_of_children_survive_every_crash() {
    let report = crash_everywhere(|env| env.register(names).register(name).run(names, vec![])).unwrap();
    assert!(report.commits > 6, "{report:?}");
}

#[activity]
async fn approval(_: ActivityContext, _order: u32) -> Result<Later<bool>, String> {
    Ok(Later::Pending)
}

#[orchestration]
async fn approved(ctx: OrchestrationContext, order: u32) -> Result<bool, String> {
    let retry = RetryPolicy::fixed(Duration::from_secs(60)).attempts(2).jitter(0);
    ctx.schedule_activity(approval, order).retry(retry).await.map_err(|error| error.to_string())
}

#[test]
fn g43_token_calls_of_a_test_count_once_wherever_it_crashes() {
    let report = crash_everywhere(|env| {
        let env = env.register(approved).register(approval);
        let mut env =
            env.fail_when_waiting(approval, "not now".to_owned()).complete_when_waiting(approval, true);
        env.run(approved, 7).map_err(|failure| format!("{failure:?}"))
    });
    assert!(report.is_ok(), "{report:?}");
}
