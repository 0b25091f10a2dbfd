//! Typed calls: functions, names and descriptions in the same methods, end to end.

use perennial::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    id: String,
    cents: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
enum PaymentError {
    #[error("declined with code {code}")]
    Declined { code: u32 },
}

#[derive(Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
enum CheckoutError {
    #[error("not paid: {0}")]
    NotPaid(PaymentError),
    #[error("{0}")]
    Other(String),
}

impl From<ActivityError<PaymentError>> for CheckoutError {
    fn from(error: ActivityError<PaymentError>) -> CheckoutError {
        match error {
            ActivityError::Application(error) => CheckoutError::NotPaid(error),
            other => CheckoutError::Other(other.to_string()),
        }
    }
}

const APPROVED: Event<bool> = Event::named("approved");

#[activity(retry = 3, timeout = "30s")]
async fn charge(_: ActivityContext, order: Order) -> Result<u64, PaymentError> {
    if order.cents > 1_000 { Err(PaymentError::Declined { code: 51 }) } else { Ok(order.cents) }
}

#[activity(name = "sum of two")]
async fn add(_: ActivityContext, a: i64, b: i64) -> Result<i64, String> {
    Ok(a + b)
}

#[activity]
async fn answer(_: ActivityContext) -> Result<u8, String> {
    Ok(42)
}

/// Blocks its thread.
#[activity]
fn length(_: ActivityContext, text: String) -> Result<usize, String> {
    Ok(text.len())
}

#[activity(error = "message")]
async fn parse(_: ActivityContext, text: String) -> Result<i64, std::num::ParseIntError> {
    text.parse()
}

#[activity]
async fn greet(ctx: ActivityContext, name: String) -> Result<String, String> {
    Ok(format!("{}, {name}!", ctx.state::<String>()))
}

#[orchestration(version = "1.2.0")]
async fn checkout(ctx: OrchestrationContext, order: Order) -> Result<u64, CheckoutError> {
    let paid = ctx.schedule_activity(charge, order).retry(RetryPolicy::fixed(1, 1)).await?;
    let approved = ctx.timeout(Duration::from_secs(60), ctx.schedule_wait(APPROVED)).await.unwrap_or(false);
    if approved { Ok(paid) } else { Err(CheckoutError::Other("declined".to_owned())) }
}

#[orchestration]
async fn all_kinds(ctx: OrchestrationContext) -> Result<Vec<String>, String> {
    let sum = ctx.schedule_activity(add, (2, 3)).await?;
    let answer = ctx.schedule_activity(answer, ()).await?;
    let length = ctx.schedule_activity(length, "four".to_owned()).await?;
    let not_a_number = ctx.schedule_activity(parse, "x".to_owned()).await;
    let by_name = ctx.schedule_activity("greet", "Ada").await?;
    let described = Activity::<String, String>::named("greet");
    let described = ctx.schedule_activity(described, "Grace".to_owned()).await?;
    let child = ctx.schedule_sub_orchestration(doubled, 21).await?;
    Ok(vec![
        sum.to_string(),
        answer.to_string(),
        length.to_string(),
        not_a_number.unwrap_err().to_string(),
        by_name,
        described,
        child.to_string(),
    ])
}

#[orchestration]
async fn doubled(ctx: OrchestrationContext, number: i64) -> Result<i64, String> {
    Ok(ctx.schedule_activity(add, (number, number)).await?)
}

async fn runtime() -> Runtime {
    Runtime::open("memory:")
        .register(checkout)
        .register(all_kinds)
        .register(doubled)
        .register(charge)
        .register(add)
        .register(answer)
        .register(length)
        .register(parse)
        .register_with(greet, "Hello".to_owned())
        .activity(
            "shout",
            |_: ActivityContext, text: String| async move { Ok::<_, String>(text.to_uppercase()) },
        )
        .orchestration("loud", "1.0.0", |ctx: OrchestrationContext, text: String| async move {
            ctx.schedule_activity("shout", text).await
        })
        .start()
        .await
        .unwrap()
}

#[tokio::test]
async fn p1_functions_names_and_descriptions_share_the_same_methods() {
    let runtime = runtime().await;
    let run = runtime.client().start(all_kinds, "a", ()).await.unwrap();
    let expected = ["5", "42", "4", "invalid digit found in string", "Hello, Ada!", "Hello, Grace!", "42"];
    assert_eq!(run.result().await.unwrap(), expected);
    let loud = runtime.client().start("loud", "l", "psst").await.unwrap();
    assert_eq!(loud.result().await.unwrap(), "PSST");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn p3_errors_come_back_as_themselves() {
    let runtime = runtime().await;
    let client = runtime.client();
    let order = |cents| Order { id: "o".to_owned(), cents };
    let run = client.start(checkout, "declined", order(5_000)).await.unwrap();
    match run.result().await {
        Err(RunError::Failed { error, .. }) => {
            assert_eq!(error, CheckoutError::NotPaid(PaymentError::Declined { code: 51 }));
        }
        other => panic!("{other:?}"),
    }
    let run = client.start(checkout, "approved", order(500)).await.unwrap();
    client.raise_event("approved", APPROVED, true).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 500);
    assert_eq!(client.status("approved").await.unwrap().version, "1.2.0");
    let run = client.start("doubled", "strange", "not a number").await.unwrap();
    assert!(
        matches!(run.result().await, Err(RunError::Failed { error: words, .. }) if words.starts_with("PER-0406 bad input"))
    );
    runtime.shutdown().await.unwrap();
}

#[activity]
async fn breaks(_: ActivityContext) -> Result<(), PaymentError> {
    panic!("out of ink")
}

#[orchestration]
async fn suffers(ctx: OrchestrationContext) -> Result<String, String> {
    match ctx.schedule_activity(breaks, ()).await {
        Err(ActivityError::Broken { message }) => Ok(message),
        other => Err(format!("{other:?}")),
    }
}

#[tokio::test]
async fn p3_a_panic_is_told_in_words_whatever_the_error_type_is() {
    let runtime = Runtime::open("memory:").register(suffers).register(breaks).start().await.unwrap();
    let run = runtime.client().start(suffers, "s", ()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), "the activity panicked: out of ink");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn p1_options_of_the_attribute_are_the_default() {
    let runtime = runtime().await;
    runtime.client().start(checkout, "o", Order { id: "o".to_owned(), cents: 1 }).await.unwrap();
    let history = runtime.client().history("o").await.unwrap();
    let options = history.flatten().find_map(|event| match &event.kind {
        perennial::history::EventKind::Decision {
            decision: perennial::history::Decision::ActivityScheduled { options, .. },
            ..
        } => options.clone(),
        _ => None,
    });
    let options = options.unwrap();
    assert_eq!(options.attempt_timeout_ms, Some(30_000));
    assert_eq!(options.retry, Some(RetryPolicy::fixed(1, 1)), "what is said at the call counts");
    drop(runtime);
}
