//! An orchestration that takes thirty-two days, tested in milliseconds: the clock skips to the next due time.

use perennial::prelude::*;
use perennial_testkit::{TestEnvironment, crash_everywhere};

const APPROVED: ExternalEvent<bool> = ExternalEvent::named("approved");
const DAY: Duration = Duration::from_secs(86_400);

#[activity]
async fn charge(_: ActivityContext, _cents: u64) -> Result<String, String> {
    Err("the payment service is not available in tests".to_owned())
}

#[orchestration]
async fn checkout(ctx: OrchestrationContext, cents: u64) -> Result<String, String> {
    if !ctx.timeout(7 * DAY, ctx.schedule_wait(APPROVED)).await.unwrap_or(false) {
        return Err("not approved".to_owned());
    }
    let charging = ctx.schedule_activity(charge, cents).timeout(Duration::from_secs(30));
    let receipt = charging.retry(RetryPolicy::fixed(Duration::from_secs(60)).attempts(4)).await?;
    ctx.schedule_timer(30 * DAY).await; // the right to return it
    Ok(receipt)
}

/// The registrations of the program.
fn app() -> Registrations {
    Registrations::new().register(checkout).register(charge)
}

/// The common setup of the tests below: the program, with a mocked payment service.
fn shop(env: TestEnvironment) -> TestEnvironment {
    env.registrations(app()).mock(charge, |cents| Ok(format!("receipt for {cents}")))
}

fn main() {
    // In your own project, each of these is a `#[test]`.
    let mut env = shop(TestEnvironment::new()).raise_at(2 * DAY, APPROVED, true);
    println!("approved: {}", env.run(checkout, 500).unwrap());
    println!("days: {}", env.elapsed().as_secs() / DAY.as_secs());
    env.history("checkout-1").assert_activities(&["charge"]);

    let mut env = shop(TestEnvironment::new());
    println!("forgotten: {}", env.run(checkout, 500).unwrap_err());

    // The payment service refuses twice, then times out.
    let mut env = shop(TestEnvironment::new())
        .raise_at(2 * DAY, APPROVED, true)
        .fail_times(charge, 2, "503 service unavailable")
        .time_out_times(charge, 1);
    println!("fourth attempt: {}", env.run(checkout, 500).unwrap());

    // The same with a crash before and after every commit, and with every activity run twice.
    let report = crash_everywhere(|env| shop(env).raise_at(2 * DAY, APPROVED, true).run(checkout, 500));
    println!("survives every crash: {}", report.is_ok());
}
