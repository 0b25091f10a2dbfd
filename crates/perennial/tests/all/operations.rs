//! Every operation of the context by its name (P2), and every operation of the client from the owner and from a guest (P5).

use std::time::Duration;

use perennial::client::Count;
use perennial::history::Ending;
use perennial::{
    Action, ActivityContext, Client, ClientError, ExternalEvent, Filter, Orchestration, OrchestrationContext,
    Payload, Prune, Query, Runtime, RuntimeBuilder, StartOptions, Status, Update, UpdateError,
};

use super::support::{Place, at, relaxed, soon, until};

const GO: ExternalEvent<u32> = ExternalEvent::named("go");
const SEEN: Query<u32, u32> = Query::named("seen");
const ADD: Update<u32, u32> = Update::named("add");
const TOTAL: Orchestration<u32, u32> = Orchestration::named("total");

async fn echo(_: ActivityContext, input: Payload) -> Result<Payload, Payload> {
    Ok(input)
}

async fn quick(_: OrchestrationContext, input: Payload) -> Result<Payload, Payload> {
    Ok(input)
}

/// Adds up the amounts of events and updates until there is enough.
async fn total(ctx: OrchestrationContext, enough: u32) -> Result<u32, String> {
    let total = ctx.state(0);
    ctx.on_query(SEEN, &total, |total, factor| total.read(|total| factor * *total));
    ctx.on_update(ADD, &total, |total, more| async move {
        if more > 1_000 {
            return Err("too much".to_owned());
        }
        Ok(total.update(|total| {
            *total += more;
            *total
        }))
    })
    .validate(|_, more| if *more == 0 { Err("nothing to add".to_owned()) } else { Ok(()) });
    while total.read(|total| *total < enough) {
        let came = ctx.schedule_wait(GO).await;
        total.update(|total| *total += came);
    }
    Ok(total.read(|total| *total))
}

async fn parent(ctx: OrchestrationContext) -> Result<(), String> {
    ctx.schedule_sub_orchestration_with_id("quick", "child", "x").await.map(drop)
}

fn builder(runtime: RuntimeBuilder) -> RuntimeBuilder {
    runtime
        .orchestration("quick", "1.0.0", quick)
        .orchestration("total", "1.0.0", total)
        .orchestration("parent", "1.0.0", parent)
        .orchestration("everything", "1.0.0", everything)
        .activity("echo", echo)
}

/// Calls whatever the context has. What waits for somebody is called and dropped.
async fn everything(ctx: OrchestrationContext, round: u32) -> Result<String, String> {
    if round > 0 {
        return Ok(format!("{} {}", ctx.info().execution, ctx.info().version));
    }
    // Scheduling.
    let one = || ctx.schedule_activity("echo", "one");
    one().await?;
    ctx.schedule_timer(Duration::from_millis(1)).await;
    drop(ctx.schedule_wait(GO));
    ctx.schedule_sub_orchestration("quick", "a").await?;
    ctx.schedule_sub_orchestration_with_id("quick", "own id", "b").await?;
    ctx.schedule_sub_orchestration_versioned("quick", "1.0.0", "c").await?;
    ctx.schedule_sub_orchestration_with_id_versioned("quick", "1.0.0", "own id at 1", "d").await?;
    ctx.schedule_orchestration("quick", "detached", "e");
    ctx.schedule_orchestration_versioned("quick", "1.0.0", "detached at 1", "f");
    ctx.raise_event("nobody", GO, 1);
    // Combining.
    assert_eq!(ctx.join([one(), one()]).await.len(), 2);
    ctx.join2(one(), one()).await.0?;
    ctx.join3(one(), one(), one()).await.0?;
    assert_eq!(ctx.try_join([one(), one()]).await?, ["one", "one"]);
    ctx.select2(one(), ctx.schedule_wait(GO)).await;
    ctx.select3(one(), ctx.schedule_wait(GO), ctx.schedule_wait(GO)).await;
    ctx.select([one(), one()]).await.1?;
    ctx.race([one(), one()]).await?;
    ctx.timeout(Duration::from_secs(60), one()).await.map_err(|_| "too late")??;
    ctx.parallel((0..2).map(|n| async move { n })).await;
    ctx.spawn(async {}).await;
    ctx.shield(async {}).await;
    // Time and chance.
    ctx.new_guid().await;
    ctx.utc_now().await;
    ctx.side_effect("dice", || 7).await;
    drop((ctx.now(), ctx.random(), ctx.uuid4()));
    // Telling.
    ctx.trace_info("info");
    ctx.trace_warn("warn");
    ctx.trace_error("error");
    ctx.trace_debug("debug");
    ctx.set_status("busy");
    ctx.set_attribute("colour", "red");
    ctx.upsert_attributes([("size", "large")]);
    // Looking.
    assert!(!ctx.is_cancelled() && !ctx.should_continue_as_new() && ctx.patched("a patch"));
    let _ = ctx.is_replaying();
    // Handling.
    ctx.on_event(GO, &(), |(), _| async {});
    ctx.on_query("zero", &(), |(), ()| 0);
    ctx.on_update("none", &(), |(), ()| async { Ok::<(), String>(()) });
    ctx.on_cancel(|| async {});
    drop(ctx.cancelled());
    ctx.handlers_idle().await;
    let state = ctx.state(1);
    ctx.wait_until(&state, |state| *state == 1).await;
    if ctx.info().history_bytes == u64::MAX {
        return ctx.continue_as_new(2).await;
    }
    ctx.continue_as_new_versioned("1.0.0", 1).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p2_the_context_has_every_name_and_all_of_it_replays() {
    let place = Place::new();
    let runtime = builder(Runtime::open(place.url()).options(relaxed())).start().await.unwrap();
    let run = runtime.client().start("everything", "e", serde_json::json!(0)).await.unwrap();
    assert_eq!(soon(run.result()).await.unwrap(), Payload::from("2 1.0.0"));
    for id in ["own id", "own id at 1", "detached", "detached at 1"] {
        soon(runtime.client().wait(id)).await.unwrap();
    }
    runtime.shutdown().await.unwrap();
    place.check(&Default::default(), &builder(Runtime::open("memory:")).handlers());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p5_every_operation_works_from_the_owner_and_from_a_guest() {
    let place = Place::new();
    let runtime = builder(Runtime::open(place.url()).options(relaxed())).start().await.unwrap();
    for client in [runtime.client(), place.guest()] {
        soon(every_operation(&client)).await;
        // The next one finds nothing.
        let all = client.for_each(Filter::new(), Action::Delete { force: true }, |_| {}).await.unwrap();
        assert_eq!(
            (all.failed, client.count(Filter::new()).await.unwrap()),
            (0, Count { rows: 0, more: false })
        );
    }
    runtime.shutdown().await.unwrap();
}

async fn every_operation(client: &Client) {
    // Starting.
    let run = client.start_with(TOTAL, "t", 10, at("1.0.0").attribute("size", 3)).await.unwrap();
    assert!(run.is_new());
    let taken = client.start_with(TOTAL, "t", 10, at("1.0.0")).await.err().unwrap();
    assert!(matches!(taken, ClientError::AlreadyExists { .. }));
    let options = at("1.0.0").or_raise(GO, 1);
    assert!(!client.start_with(TOTAL, "t", 10, options).await.unwrap().is_new());

    // Reaching it.
    client.raise_event("t", GO, 1).await.unwrap();
    for _ in 0..2 {
        client.raise_event("t", GO, 1).once("key").await.unwrap();
    }
    while client.query("t", SEEN, 2).await.unwrap() < 6 {}
    assert_eq!(client.query("t", "seen", serde_json::json!(2)).await.unwrap().as_json(), "6");
    assert_eq!(client.update("t", ADD, 2).await, Ok(5));
    assert_eq!(client.update("t", ADD, 2).once("another key").await, Ok(7));
    assert_eq!(client.update("t", ADD, 2).once("another key").await, Ok(7), "once");
    let id = "t".to_owned();
    assert_eq!(
        client.update("t", ADD, 2_000).await,
        Err(UpdateError::Failed { id, error: "too much".to_owned() })
    );
    let refused = client.update("t", ADD, 0).await;
    assert!(
        matches!(&refused, Err(UpdateError::Refused { error: Some(error), .. }) if error == "nothing to add"),
        "{refused:?}"
    );
    let unread = client.update("t", "add", "no number").await;
    assert!(matches!(unread, Err(UpdateError::Refused { .. })), "{unread:?}");

    // Looking at it.
    let status = client.status("t").await.unwrap();
    assert_eq!((status.status, status.parent, status.ended), (Status::Running, None, None));
    assert_eq!(status.attributes.get("size").map(Payload::as_json), Some("3"));
    assert!(!client.history("t").await.unwrap().turns.is_empty());
    assert_eq!(client.history_of("t", 1).await.unwrap(), client.history("t").await.unwrap());
    assert_eq!(client.export("t").await.unwrap().executions.len(), 1);
    let running = client.stats().await.unwrap().instances;
    assert!(running.contains(&(Status::Running, Count { rows: 1, more: false })), "{running:?}");
    let not_blocked = client.retry("t").await;
    assert!(not_blocked.is_ok() || matches!(not_blocked, Err(ClientError::NotBlocked { .. })));

    // Its end.
    client.raise_event("t", GO, 3).await.unwrap();
    assert_eq!(run.result().await, Ok(10));
    assert_eq!(client.run(TOTAL, "t").result().await, Ok(10));
    assert_eq!(client.result("t").await.unwrap().as_json(), "10");
    assert!(matches!(client.wait("t").await, Ok(Ending::OrchestrationCompleted { .. })));
    let status = client.status("t").await.unwrap();
    assert!(status.ended.is_some_and(|ended| ended >= status.created));

    // Families.
    client.start_with("parent", "p", (), at("1.0.0")).await.unwrap().result().await.unwrap();
    assert_eq!(client.tree("p").await.unwrap().size(), 2);
    let child = client.status("child").await.unwrap();
    assert_eq!(child.parent.map(|parent| parent.instance), Some("p".to_owned()));

    // Ending it from outside.
    for id in ["cancelled", "terminated"] {
        client.start_with(TOTAL, id, 1, StartOptions::default().version("1.0.0")).await.unwrap();
        until(client, id, |status| status.status == Status::Running).await;
    }
    client.cancel("cancelled", "enough").await.unwrap();
    client.terminate("terminated", "enough").await.unwrap();
    assert!(matches!(client.wait("cancelled").await, Ok(Ending::OrchestrationCancelled { .. })));
    assert!(matches!(client.wait("terminated").await, Ok(Ending::OrchestrationTerminated { .. })));

    // Many at a time.
    let named = Filter::new().orchestration("total");
    assert_eq!(client.list(named.clone(), None, 10).await.unwrap().rows.len(), 3);
    assert_eq!(client.count(named.clone()).await.unwrap().rows, 3);
    assert_eq!(client.delete("cancelled", false).await, Ok(1));
    assert_eq!(client.prune(Prune::all().only(named), |_| {}).await.unwrap().done, 2);
}
