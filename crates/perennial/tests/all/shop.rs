//! A whole program, as a newcomer writes it: typed calls, `?` throughout, `perennial::Result` from `main` (P1, P3, P4).

use perennial::prelude::*;
use serde::{Deserialize, Serialize};

const DAY: Duration = Duration::from_secs(86_400);
const APPROVED: ExternalEvent<bool> = ExternalEvent::named("approved");

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Order {
    id: u64,
    cents: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Receipt(String);

#[derive(Debug, Serialize, Deserialize, thiserror::Error)]
#[error("the card was declined")]
struct PaymentError;

#[derive(Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
enum CheckoutError {
    #[error("nobody approved it")]
    Declined,
    #[error("{0}")]
    Other(String),
}

impl<E: std::fmt::Display> From<ActivityError<E>> for CheckoutError {
    fn from(error: ActivityError<E>) -> CheckoutError {
        CheckoutError::Other(error.to_string())
    }
}

impl<E: std::fmt::Display> From<ChildError<E>> for CheckoutError {
    fn from(error: ChildError<E>) -> CheckoutError {
        CheckoutError::Other(error.to_string())
    }
}

#[activity]
async fn charge(_: ActivityContext, order: Order) -> Result<Receipt, PaymentError> {
    if order.cents == 0 { Err(PaymentError) } else { Ok(Receipt(format!("{} cents", order.cents))) }
}

#[activity]
async fn refund(_: ActivityContext, receipt: Receipt) -> Result<(), PaymentError> {
    drop(receipt);
    Ok(())
}

#[orchestration]
async fn archive(_: OrchestrationContext, order: u64) -> Result<u64, String> {
    Ok(order)
}

#[orchestration(version = "1.0.0")]
async fn checkout(ctx: OrchestrationContext, order: Order) -> Result<Receipt, CheckoutError> {
    let receipt = ctx
        .schedule_activity(charge, order.clone())
        .retry(RetryPolicy::fixed(Duration::from_millis(1)).attempts(2))
        .timeout(Duration::from_secs(30))
        .await?;
    let approved: bool = ctx.timeout(DAY, ctx.schedule_wait(APPROVED)).await.unwrap_or(false);
    if !approved {
        ctx.schedule_activity(refund, receipt).await?;
        return Err(CheckoutError::Declined);
    }
    ctx.schedule_timer(Duration::from_millis(5)).await;
    ctx.schedule_sub_orchestration(archive, order.id).await?;
    Ok(receipt)
}

fn builder(url: &str) -> perennial::RuntimeBuilder {
    Runtime::open(url).register(checkout).register(archive).register(charge).register(refund)
}

/// What `main` would be.
async fn shop(url: &str, order: Order) -> perennial::Result<()> {
    let runtime = builder(url).start().await?;
    let run = runtime.client().start(checkout, "order-42", order).await?;
    runtime.client().raise_event("order-42", APPROVED, true).await?;
    let receipt = run.result().await?;
    assert_eq!(receipt, Receipt("500 cents".to_owned()));
    runtime.shutdown().await
}

#[tokio::test]
async fn p1_a_whole_program_is_plain_functions_and_question_marks() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", directory.path().join("shop.db").display());
    shop(&url, Order { id: 42, cents: 500 }).await.unwrap();

    // Started elsewhere, looked at with its types.
    let client = Client::open(&url).unwrap();
    let run = client.run(checkout, "order-42");
    assert!(!run.is_new());
    assert_eq!(run.result().await.unwrap(), Receipt("500 cents".to_owned()));
    const CHECKOUT: Orchestration<Order, Receipt, CheckoutError> = Orchestration::named("checkout");
    assert_eq!(client.run(CHECKOUT, "order-42").result().await.unwrap(), Receipt("500 cents".to_owned()));
    let missing = client.run(checkout, "order-43").result().await.err().unwrap();
    assert!(matches!(missing, RunError::Client(ClientError::NotFound { .. })), "{missing}");
}

#[tokio::test]
async fn p3_an_orchestrations_own_error_keeps_its_type_in_a_run_and_its_words_in_a_program() {
    let failed = shop("memory:", Order { id: 42, cents: 0 }).await.err().unwrap();
    assert_eq!(
        failed.to_string(),
        "PER-0615 failed: instance \"order-42\" returned an error: the card was declined"
    );

    let runtime = builder("memory:").start().await.unwrap();
    let client = runtime.client();
    let run = client.start(checkout, "order-1", Order { id: 1, cents: 1 }).await.unwrap();
    client.raise_event("order-1", APPROVED, false).await.unwrap();
    let error = run.result().await.err().unwrap();
    assert_eq!(error, RunError::Failed { id: "order-1".to_owned(), error: CheckoutError::Declined });
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn p4_a_client_makes_no_store_and_says_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("typo.db");
    let error = Client::open(&format!("sqlite:{}", path.display())).err().unwrap().to_string();
    assert!(error.starts_with("PER-0627 no store: there is no file"), "{error}");
    assert!(error.contains("check the path, or start a runtime on it first"), "{error}");
    assert!(!path.exists(), "looking makes nothing");
}
