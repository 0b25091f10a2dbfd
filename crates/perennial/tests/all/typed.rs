//! Typed calls: functions, names and descriptions in the same methods, end to end.

use perennial::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::json;

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

const APPROVED: ExternalEvent<bool> = ExternalEvent::named("approved");

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

#[activity(state(String))]
async fn greet(ctx: ActivityContext, name: String) -> Result<String, String> {
    Ok(format!("{}, {name}!", ctx.state::<String>()))
}

#[orchestration(version = "1.2.0")]
async fn checkout(ctx: OrchestrationContext, order: Order) -> Result<u64, CheckoutError> {
    let paid = ctx
        .schedule_activity(charge, order)
        .retry(RetryPolicy::fixed(Duration::from_millis(1)).attempts(1))
        .await?;
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
        .register(greet)
        .state("Hello".to_owned())
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
    let refused = client.start("doubled", "strange", "not a number").await.err().unwrap();
    assert!(matches!(refused, ClientError::BadInput { .. }), "{refused}");
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
    assert_eq!(
        options.retry,
        Some(RetryPolicy::fixed(Duration::from_millis(1)).attempts(1)),
        "what is said at the call counts"
    );
    drop(runtime);
}

#[tokio::test]
async fn p1_closures_and_plain_functions_take_up_to_four_arguments_and_payloads_as_they_are() {
    async fn joined(ctx: OrchestrationContext, words: Payload) -> Result<Payload, ActivityError<Payload>> {
        ctx.schedule_activity("echo", words).await
    }
    let runtime = Runtime::open("memory:")
        .orchestration("none", "1.0.0", |ctx: OrchestrationContext| async move {
            ctx.schedule_activity("forty-two", ()).await.map_err(String::from)
        })
        .orchestration("four", "1.0.0", |ctx: OrchestrationContext, a: u8, b: u8, c: u8, d: u8| async move {
            let sum = ctx.schedule_activity(Activity::<(u8, u8, u8, u8), u8>::named("sum"), (a, b, c, d));
            sum.await.map_err(String::from)
        })
        .orchestration("words", "1.0.0", joined_words)
        .orchestration("payload", "1.0.0", |ctx: OrchestrationContext, words: Payload| async move {
            joined(ctx, words).await.map_err(|error| error.to_string())
        })
        .activity("forty-two", async |_: ActivityContext| Ok::<_, String>(42))
        .activity("echo", |_: ActivityContext, input: Payload| async move { Err::<Payload, _>(input) })
        .blocking_activity("sum", |_: ActivityContext, a: u8, b: u8, c: u8, d: u8| {
            a.checked_add(b).and_then(|e| e.checked_add(c)?.checked_add(d)).ok_or("too much")
        })
        .start()
        .await
        .unwrap();
    async fn joined_words(_: OrchestrationContext, a: String, b: String) -> Result<String, String> {
        Ok(a + &b)
    }
    let client = runtime.client();
    assert_eq!(client.start("none", "n", ()).await.unwrap().result().await, Ok(json!(42).into()));
    const FOUR: Orchestration<(u8, u8, u8, u8), u8> = Orchestration::named("four");
    assert_eq!(client.start(FOUR, "f", (1, 2, 3, 4)).await.unwrap().result().await, Ok(10));
    let error = "too much".to_owned();
    assert_eq!(
        client.start(FOUR, "g", (1, 2, 3, 250)).await.unwrap().result().await,
        Err(RunError::Failed { id: "g".to_owned(), error })
    );
    let words = client.start("words", "w", json!(["good", "bye"])).await.unwrap();
    assert_eq!(words.result().await, Ok(Payload::from("goodbye")));
    let failed = client.start("payload", "p", json!({ "a": 1 })).await.unwrap();
    assert_eq!(
        failed.result().await,
        Err(RunError::Failed { id: "p".to_owned(), error: Payload::from(r#"{"a":1}"#) }),
        "a payload in words"
    );
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn p1_details_of_heartbeats_are_typed_and_what_json_cannot_hold_fails_the_attempt() {
    let runtime = Runtime::open("memory:")
        .orchestration("counts", "1.0.0", |ctx: OrchestrationContext| async move {
            let pages = ctx
                .schedule_activity("pages", ())
                .retry(RetryPolicy::fixed(Duration::from_millis(1)).attempts(2));
            pages.await.map_err(|error| error.to_string())
        })
        .activity("pages", async |ctx: ActivityContext| {
            if let Some(page) = ctx.decode_details::<u32>() {
                let broken = std::collections::BTreeMap::from([((page, page), page)]);
                ctx.heartbeat(broken);
            }
            ctx.heartbeat(7);
            Err::<(), _>("the printer is out of paper".to_owned())
        })
        .start()
        .await
        .unwrap();
    let run = runtime.client().start("counts", "c", ()).await.unwrap();
    let Err(RunError::Failed { error, .. }) = run.result().await else { panic!("it has no result") };
    let words = error.to_text();
    assert!(
        words.contains("PER-0408 unwritable details: the heartbeat details of activity \"pages\""),
        "{words}"
    );
    runtime.shutdown().await.unwrap();
}

/// What most people write with thiserror: the activity's error, whole, within the orchestration's.
#[derive(Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
enum WholeError {
    #[error("not paid: {0}")]
    NotPaid(#[from] ActivityError<PaymentError>),
    #[error("no child: {0}")]
    NoChild(#[from] ChildError<CheckoutError>),
}

#[orchestration]
async fn whole(ctx: OrchestrationContext, order: Order) -> Result<u64, WholeError> {
    if order.cents == 0 {
        return Ok(ctx.schedule_sub_orchestration(checkout, Order { cents: 2_000, ..order }).await?);
    }
    Ok(ctx
        .schedule_activity(charge, order)
        .retry(RetryPolicy::fixed(Duration::from_millis(1)).attempts(1))
        .await?)
}

#[tokio::test]
async fn p3_the_error_of_an_activity_or_child_can_be_part_of_the_orchestrations_own() {
    let runtime =
        Runtime::open("memory:").register(whole).register(checkout).register(charge).start().await.unwrap();
    let client = runtime.client();
    let order = |cents| Order { id: "o".to_owned(), cents };
    let declined = PaymentError::Declined { code: 51 };
    let activity = client.start(whole, "activity", order(2_000)).await.unwrap().result().await;
    let expected = WholeError::NotPaid(ActivityError::Application(declined.clone()));
    assert_eq!(activity, Err(RunError::Failed { id: "activity".to_owned(), error: expected }));
    let child = client.start(whole, "child", order(0)).await.unwrap().result().await;
    let expected = WholeError::NoChild(ChildError::Application(CheckoutError::NotPaid(declined)));
    assert_eq!(child, Err(RunError::Failed { id: "child".to_owned(), error: expected }));
    runtime.shutdown().await.unwrap();
}

#[activity]
async fn undo(_: ActivityContext) -> Result<(), String> {
    Ok(())
}

#[orchestration]
async fn well(ctx: OrchestrationContext) -> Result<usize, String> {
    let saga = Saga::new(&ctx);
    saga.undo(undo, ());
    ctx.schedule_timer(Duration::from_millis(1)).await;
    Ok(saga.len())
}

#[tokio::test]
async fn p2_a_sagas_compensations_are_not_scheduled_unless_it_is_compensated() {
    let runtime = Runtime::open("memory:").register(well).register(undo).start().await.unwrap();
    let client = runtime.client();
    assert_eq!(client.start(well, "well", ()).await.unwrap().result().await, Ok(1));
    let history = client.history("well").await.unwrap();
    assert!(!history.flatten().any(|event| event.summary().contains("undo")));
    runtime.shutdown().await.unwrap();
}

#[activity]
async fn r#move(_: ActivityContext) -> Result<String, String> {
    Ok("moved".to_owned())
}

#[orchestration]
async fn mover(ctx: OrchestrationContext) -> Result<String, String> {
    ctx.schedule_activity("move", ()).await.map(|moved| moved.to_text()).map_err(|error| format!("{error:?}"))
}

#[tokio::test]
async fn p1_a_function_whose_name_is_a_keyword_is_registered_without_its_mark() {
    let runtime = Runtime::open("memory:").register(mover).register(r#move).start().await.unwrap();
    let run = runtime.client().start(mover, "mover", ()).await.unwrap();
    assert_eq!(run.result().await, Ok("moved".to_owned()));
    runtime.shutdown().await.unwrap();
}

#[orchestration]
async fn taken(ctx: OrchestrationContext) -> Result<(), String> {
    let mut child = ctx.schedule_sub_orchestration_with_id(taken, ctx.info().instance, ());
    child.started().await?;
    Ok(())
}

#[tokio::test]
async fn p3_a_child_that_cannot_be_started_says_so_in_words() {
    let runtime = Runtime::open("memory:").register(taken).start().await.unwrap();
    let run = runtime.client().start(taken, "taken-1", ()).await.unwrap();
    let error = run.result().await.unwrap_err().to_string();
    assert!(error.contains("PER-0306 child id taken: an instance \"taken-1\" exists"), "{error}");
    runtime.shutdown().await.unwrap();
}

#[orchestration]
async fn sum(_: OrchestrationContext, a: u32, b: u32) -> Result<u32, String> {
    Ok(a + b)
}

#[tokio::test]
async fn p3_an_input_with_a_wrong_name_says_which_argument_is_missing() {
    let runtime = Runtime::open("memory:").register(sum).start().await.unwrap();
    let input = Payload::encode(&json!({"a": 2, "c": 3})).unwrap();
    let refused = runtime.client().start("sum", "sum-1", input).await.unwrap_err().to_string();
    assert!(refused.starts_with("PER-0630") && refused.contains("missing field `b`"), "{refused}");
    runtime.shutdown().await.unwrap();
}
