//! Payloads that are not of the type that the code takes: the instance is blocked with the decoder's reason,
//! nothing is lost, and it continues after a deployment of code that can decode them (E3, G28).

use std::time::Duration;

use perennial::client::Skippable;
use perennial::prelude::*;
use perennial::{InstanceView, RuntimeBuilder, StartOptions, Status};
use perennial_testkit::invariants::ClientLog;
use serde::{Deserialize, Serialize};

use crate::support::stage::{Stage, on_each_stage};
use crate::support::{relaxed, soon, until, until_blocked};

const GO: ExternalEvent<Order> = ExternalEvent::named("go");

/// What is sent and recorded.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Order {
    card: String,
}

/// What a later program wants to read of it.
#[derive(Debug, Serialize, Deserialize)]
struct Placed {
    #[expect(dead_code, reason = "the point is whether it can be read")]
    #[serde(skip_serializing)]
    region: String,
}

fn order() -> Order {
    Order { card: "4111-1111".to_owned() }
}

#[orchestration(name = "shop")]
async fn shop(ctx: OrchestrationContext, order: Order) -> Result<String, String> {
    ctx.schedule_wait("on").await;
    ctx.continue_as_new(order).await
}

#[orchestration(name = "shop")]
async fn cured(ctx: OrchestrationContext, order: Order) -> Result<String, String> {
    ctx.schedule_wait("on").await;
    Ok(order.card)
}

#[orchestration(name = "shop")]
async fn strict(ctx: OrchestrationContext, _: Placed) -> Result<String, String> {
    ctx.schedule_wait("on").await;
    Ok("placed".to_owned())
}

/// Waits until the instance is blocked, and checks that the reason names what is missing and quotes nothing.
async fn reason(client: &Client, id: &str) -> String {
    let status: InstanceView = until_blocked(client, id, "PER-0103").await;
    let blocked = status.blocked.unwrap();
    assert!(blocked.reason.contains("missing field `region`"), "{}", blocked.reason);
    for text in [&blocked.reason, &blocked.report, &blocked.cause] {
        assert!(!text.contains("4111"), "{blocked:?}");
    }
    assert!(!status.status.is_final());
    blocked.reason
}

async fn run(stage: &Stage, with: impl Fn(RuntimeBuilder) -> RuntimeBuilder) -> Runtime {
    with(stage.runtime()).start().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e3_an_input_that_the_next_version_cannot_read_blocks_at_continue_as_new_and_is_cured_by_a_deployment()
 {
    on_each_stage(async |stage| {
        let mut log = ClientLog::default();
        let runtime = run(stage, |builder| {
            builder.register(shop).orchestration(
                "shop",
                "2.0.0",
                |_: OrchestrationContext, _: Placed| async { Ok::<_, String>("placed".to_owned()) },
            )
        })
        .await;
        let client = runtime.client();
        let first = StartOptions::default().version("1.0.0");
        client.start_with(shop, "s", order(), first).await.unwrap();
        log.started("s");
        client.raise_event("s", "on", "").await.unwrap();
        let text = reason(&client, "s").await;
        assert!(text.contains("event 1, the input, as") && text.contains("Placed"), "{text}");
        runtime.shutdown().await.unwrap();

        let cure = |builder: RuntimeBuilder| {
            builder.register(shop).orchestration(
                "shop",
                "2.0.0",
                |_: OrchestrationContext, order: Order| async { Ok::<_, String>(order.card) },
            )
        };
        let runtime = run(stage, cure).await;
        let result: String = soon(runtime.client().result("s")).await.unwrap().decode().unwrap();
        assert_eq!(result, order().card);
        stage.finish(runtime, &log, cure).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e3_a_delayed_start_that_the_code_cannot_read_blocks_and_preflight_tells() {
    on_each_stage(async |stage| {
        let mut log = ClientLog::default();
        let runtime = run(stage, |builder| builder.register(cured)).await;
        let delayed = StartOptions::default().delay(Duration::from_millis(300));
        let later = StartOptions::default().delay(Duration::from_secs(3_600));
        runtime.client().start_with(cured, "later", order(), later).await.unwrap();
        log.started("later");
        let report = stage.runtime().register(strict).preflight().await.unwrap();
        let [found] = &report.incompatible[..] else { panic!("{report}") };
        assert_eq!(
            (found.id.as_str(), found.code.as_str(), found.event.unwrap().0),
            ("later", "PER-0103", 1)
        );
        assert!(found.reason.contains("missing field `region`"), "{report}");
        assert!(stage.runtime().register(cured).preflight().await.unwrap().is_ok());
        runtime.client().start_with(cured, "s", order(), delayed).await.unwrap();
        log.started("s");
        runtime.shutdown().await.unwrap();

        let runtime = run(stage, |builder| builder.register(strict)).await;
        reason(&runtime.client(), "s").await;
        runtime.shutdown().await.unwrap();

        let runtime = run(stage, |builder| builder.register(cured)).await;
        runtime.client().raise_event("s", "on", "").await.unwrap();
        let result: String = soon(runtime.client().result("s")).await.unwrap().decode().unwrap();
        assert_eq!(result, order().card);
        stage.finish(runtime, &log, |builder| builder.register(cured)).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e3_an_instance_under_way_whose_input_the_code_cannot_read_any_more_is_blocked_as_that() {
    on_each_stage(async |stage| {
        let mut log = ClientLog::default();
        let runtime = run(stage, |builder| builder.register(cured)).await;
        runtime.client().start(cured, "s", order()).await.unwrap();
        log.started("s");
        let report = stage.runtime().register(strict).preflight().await.unwrap();
        let [found] = &report.incompatible[..] else { panic!("{report}") };
        assert_eq!((found.code.as_str(), found.event.unwrap().0), ("PER-0103", 1), "{report}");
        runtime.shutdown().await.unwrap();

        let runtime = run(stage, |builder| builder.register(strict)).await;
        runtime.client().raise_event("s", "on", "").await.unwrap();
        reason(&runtime.client(), "s").await;
        runtime.shutdown().await.unwrap();

        let runtime = run(stage, |builder| builder.register(cured)).await;
        let result: String = soon(runtime.client().result("s")).await.unwrap().decode().unwrap();
        assert_eq!(result, order().card);
        stage.finish(runtime, &log, |builder| builder.register(cured)).await;
    })
    .await;
}

#[orchestration(name = "reads")]
async fn reads(ctx: OrchestrationContext, what: String) -> Result<String, String> {
    match what.as_str() {
        "activity" => ctx.schedule_activity("take", "").read_by(placed).await,
        "child" => ctx.schedule_sub_orchestration("give", "").read_by(placed_by_child).await,
        "event" => {
            ctx.schedule_wait("begin").await;
            drop(ctx.schedule_wait(ExternalEvent::<Placed>::named("go")).await);
        }
        _ => {
            ctx.schedule_wait("begin").await;
            ctx.on_event(ExternalEvent::<Placed>::named("go"), &(), |(), _| async {});
            ctx.schedule_wait("never").await;
        }
    }
    Ok("read".to_owned())
}

fn placed(outcome: Result<Payload, perennial_core::ActivityError>) -> Result<(), perennial_core::NotOfType> {
    outcome.map_or(Ok(()), |payload| payload.decode_as::<Placed>().map(drop))
}

fn placed_by_child(
    outcome: Result<Payload, perennial_core::ChildError>,
) -> Result<(), perennial_core::NotOfType> {
    outcome.map_or(Ok(()), |payload| payload.decode_as::<Placed>().map(drop))
}

fn readers(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder
        .register(reads)
        .activity("take", |_: ActivityContext, _: String| async { Ok::<_, String>(order()) })
        .orchestration("give", "1.0.0", |_: OrchestrationContext, _: String| async {
            Ok::<_, String>(order())
        })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e3_a_result_or_event_of_another_type_blocks_and_a_cancel_ends_the_instance() {
    on_each_stage(async |stage| {
        let mut log = ClientLog::default();
        let mut options = relaxed();
        options.shard.cancel_grace = Duration::from_millis(50);
        let runtime = run(stage, |builder| readers(builder).options(options.clone())).await;
        let client = runtime.client();
        for what in ["activity", "child", "event", "handler"] {
            client.start(reads, what, what.to_owned()).await.unwrap();
            log.started(what);
            if matches!(what, "event" | "handler") {
                // Nothing waits for it yet, so that it is recorded.
                client.raise_event(what, GO, order()).await.unwrap();
                client.raise_event(what, "begin", "").await.unwrap();
            }
            let text = reason(&client, what).await;
            assert!(text.contains("Placed"), "{text}");
            client.cancel(what, "it cannot be read").await.unwrap();
            until(&client, what, |status| status.status == Status::Terminated).await;
        }
        stage.finish(runtime, &log, readers).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e16_an_event_that_the_code_cannot_read_is_skipped_by_its_number_and_the_next_takes_its_place() {
    on_each_stage(async |stage| {
        let mut log = ClientLog::default();
        let code = |builder: RuntimeBuilder| {
            builder.orchestration("sum", "1.0.0", |ctx: OrchestrationContext, _: ()| async move {
                ctx.schedule_wait("begin").await;
                let mut sum = 0;
                for _ in 0..2 {
                    sum += ctx.schedule_wait(ExternalEvent::<u64>::named("n")).await;
                }
                Ok::<_, String>(sum)
            })
        };
        let runtime = run(stage, code).await;
        let client = runtime.client();
        for (id, by_guest) in [("here", false), ("there", true)] {
            let skipper = stage.guest().filter(|_| by_guest).unwrap_or_else(|| client.clone());
            client.start("sum", id, ()).await.unwrap();
            log.started(id);
            let refused = client.skip_event(id, perennial::history::EventId(1)).await;
            assert!(matches!(refused, Err(perennial::ClientError::NotBlocked { .. })), "{refused:?}");
            client.raise_event(id, "n", Payload::from_json("1").unwrap()).await.unwrap();
            client.raise_event(id, "n", "4111").await.unwrap();
            client.raise_event(id, "n", Payload::from_json("2").unwrap()).await.unwrap();
            client.raise_event(id, "begin", "").await.unwrap();
            let blocked = until_blocked(&client, id, "PER-0103").await.blocked.unwrap();
            let number = blocked.event.unwrap();
            assert!(blocked.reason.contains(&format!("event {number} ")), "{}", blocked.reason);
            // Only the event that blocks the instance can be skipped.
            let refused =
                skipper.skip_event(id, perennial::history::EventId(number.0 + 1)).await.unwrap_err();
            assert_eq!(
                refused,
                ClientError::NotBlockedBy { id: id.to_owned(), blocking: Some(Skippable::Event(number)) }
            );
            skipper.skip_event(id, number).await.unwrap();
            assert_eq!(soon(client.result(id)).await.unwrap().as_json(), "3");
            let history = client.history(id).await.unwrap();
            let skips = history.flatten().filter(|event| event.summary().starts_with("ExternalEventSkipped"));
            assert_eq!(skips.count(), 1);
        }
        stage.finish(runtime, &log, code).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e3_an_input_that_the_code_cannot_read_is_refused_by_the_start_and_nothing_is_started() {
    on_each_stage(async |stage| {
        let runtime = run(stage, |builder| builder.register(strict)).await;
        let client = runtime.client();
        for version in [None, Some("1.0.0")] {
            let options = StartOptions::default();
            let options = version.map_or(options.clone(), |version| options.version(version));
            let input = Payload::encode(&order()).unwrap();
            let refused = client.start_with("shop", "s", input, options).await.unwrap_err().to_string();
            assert!(
                refused.starts_with("PER-0630") && refused.contains("missing field `region`"),
                "{refused}"
            );
            assert!(!refused.contains("4111"), "{refused}");
        }
        assert!(matches!(client.status("s").await, Err(ClientError::NotFound { .. })));
        stage.finish(runtime, &ClientLog::default(), |builder| builder.register(strict)).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g28_an_event_that_the_waiting_code_cannot_read_is_refused_and_not_recorded() {
    on_each_stage(async |stage| {
        let mut log = ClientLog::default();
        let code = |builder: RuntimeBuilder| {
            builder
                .orchestration("waits", "1.0.0", |ctx: OrchestrationContext, _: ()| async move {
                    let first = ctx.schedule_wait(ExternalEvent::<u64>::named("n")).await;
                    Ok::<_, String>(first + ctx.schedule_wait(ExternalEvent::<u64>::named("n")).await)
                })
                .orchestration("handles", "1.0.0", |ctx: OrchestrationContext, _: ()| async move {
                    let (sum, added) = (ctx.state(0), ctx.state(0));
                    let both = (sum.clone(), added.clone());
                    ctx.on_event(ExternalEvent::<u64>::named("n"), &both, |(sum, count), n| {
                        sum.update(|sum| *sum += n);
                        count.update(|count| *count += 1);
                        async {}
                    });
                    ctx.wait_until(&added, |count| *count == 2).await;
                    Ok::<_, String>(sum.read(|sum| *sum))
                })
        };
        let runtime = run(stage, code).await;
        let client = runtime.client();
        for id in ["waits", "handles"] {
            client.start(id, id, ()).await.unwrap();
            log.started(id);
            // They come together, and each is answered for itself.
            let raise =
                |n: &'static str| client.raise_event(id, "n", Payload::from_json(n).unwrap()).into_future();
            let (first, bad, second) = tokio::join!(raise("1"), raise("\"4111\""), raise("2"));
            first.unwrap();
            second.unwrap();
            let Err(refused @ ClientError::BadEvent { .. }) = bad else { panic!("{bad:?}") };
            let text = refused.to_string();
            assert!(text.starts_with("PER-0631") && text.contains("u64") && text.contains(id), "{text}");
            assert!(!text.contains("4111"), "{text}");
            assert_eq!(soon(client.result(id)).await.unwrap().as_json(), "3");
            let history = client.history(id).await.unwrap();
            let events = history.flatten().filter(|event| event.summary().starts_with("ExternalEvent"));
            let events = events.filter(|event| !event.summary().contains("Subscribed")).count();
            assert_eq!(events, 2, "{history:?}");
        }
        stage.finish(runtime, &log, code).await;
    })
    .await;
}
