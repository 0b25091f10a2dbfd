//! Messages between callers and instances: events that are taken at once, as a stream, and under names that are made at run
//! time; updates that start their instance; waiting for a published status; sagas. Over restarts, from the runtime's process
//! and from beside it.

use futures::StreamExt;
use futures::future::join_all;
use perennial::RuntimeBuilder;
use perennial::prelude::*;
use perennial_testkit::invariants::ClientLog;
use serde_json::json;

use crate::support::soon;
use crate::support::stage::{Stage, on_each_lasting_stage, on_each_stage};

const ITEM: ExternalEvent<u64> = ExternalEvent::named("item");
const ADD: Update<u64, u64> = Update::named("add");
const END: Update<u64, u64> = Update::named("end");

/// The event of one guest of a party, known by name and type.
fn answer_of(guest: &str) -> ExternalEvent<bool> {
    ExternalEvent::new(format!("answer of {guest}"))
}

/// Waits for an answer of each guest.
async fn party(ctx: OrchestrationContext, guests: Vec<String>) -> Result<Vec<String>, String> {
    let answers: Vec<bool> = ctx.join(guests.iter().map(|guest| ctx.schedule_wait(answer_of(guest)))).await;
    let come = guests.into_iter().zip(answers).filter(|(_, comes)| *comes);
    Ok(come.map(|(guest, _)| guest).collect())
}

/// Adds up items in batches: what has come when the gate opens is a batch.
async fn batches(ctx: OrchestrationContext, count: usize) -> Result<Vec<Vec<u64>>, String> {
    let mut gates = ctx.events("gate");
    let mut batches = Vec::new();
    while batches.len() < count {
        gates.receive().await;
        let unread = ctx.unread(ITEM);
        let batch: Vec<u64> = std::iter::from_fn(|| ctx.try_receive(ITEM)).collect();
        assert_eq!(unread, batch.len());
        ctx.set_status(batches.len() + 1);
        batches.push(batch);
    }
    Ok(batches)
}

/// The sum of the first items that are even.
async fn even(ctx: OrchestrationContext, count: usize) -> Result<u64, String> {
    let items = ctx.events(ITEM).filter(|item| std::future::ready(item % 2 == 0)).take(count);
    Ok(items.fold(0, |sum, item| std::future::ready(sum + item)).await)
}

/// A sum that updates change. It ends when it is told to.
async fn sum(ctx: OrchestrationContext, from: u64) -> Result<u64, String> {
    let sum = ctx.state((from, false));
    ctx.on_update(ADD, &sum, |sum, more| async move {
        Ok(sum.update(|(sum, _)| {
            *sum += more;
            *sum
        }))
    })
    .validate(|_, more| if *more == 0 { Err("nothing to add".to_owned()) } else { Ok(()) });
    ctx.on_update(END, &sum, |sum, more| async move {
        Ok(sum.update(|(sum, is_over)| {
            *is_over = true;
            *sum += more;
            *sum
        }))
    });
    ctx.wait_until(&sum, |(_, is_over)| *is_over).await;
    ctx.handlers_idle().await;
    Ok(sum.read(|(sum, _)| *sum))
}

/// Counts its executions in its status, and reads that and its attributes back.
async fn rounds(ctx: OrchestrationContext, upto: u32) -> Result<String, String> {
    let round = ctx.published::<u32>().unwrap_or(0) + 1;
    ctx.set_status(round);
    ctx.set_attribute("round", round);
    if round < upto {
        ctx.schedule_wait("next").await;
        assert_eq!(ctx.published::<u32>(), ctx.attribute::<u32>("round"));
        return ctx.continue_as_new(upto).await;
    }
    assert_eq!(ctx.attributes().len(), 2);
    Ok(format!("{round} for {}", ctx.attribute::<String>("customer").unwrap_or_default()))
}

/// Reads its status as something that it is not.
async fn misread(ctx: OrchestrationContext, _: ()) -> Result<u32, String> {
    ctx.set_status("words");
    Ok(ctx.published::<u32>().unwrap_or(0))
}

fn orchestrations(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder
        .orchestration("party", "1.0.0", party)
        .orchestration("batches", "1.0.0", batches)
        .orchestration("even", "1.0.0", even)
        .orchestration("sum", "1.0.0", sum)
        .orchestration("rounds", "1.0.0", rounds)
        .orchestration("misread", "1.0.0", misread)
}

async fn runtime(stage: &Stage) -> Runtime {
    orchestrations(stage.runtime()).start().await.unwrap()
}

/// The runtime's client, and where there can be one, a guest.
fn clients(stage: &Stage, runtime: &Runtime) -> Vec<(&'static str, Client)> {
    let guest = stage.guest().map(|guest| ("guest", guest));
    [("here", runtime.client())].into_iter().chain(guest).collect()
}

const SUM: Orchestration<u64, u64> = Orchestration::named("sum");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e34_events_under_names_that_are_made_at_run_time_keep_their_type() {
    on_each_stage(async |stage| {
        let first = runtime(stage).await;
        let mut log = ClientLog::default();
        first.client().start("party", "p", json!(["Ada", "Grace", "Joan"])).await.unwrap();
        log.started("p");
        first.client().raise_event("p", answer_of("Joan"), true).await.unwrap();
        let of_ada = answer_of("Ada");
        first.client().raise_event("p", &of_ada, false).once(of_ada.name()).await.unwrap();
        first.client().raise_event("p", &of_ada, true).once(of_ada.name()).await.unwrap();
        drop(first);
        let second = runtime(stage).await;
        second.client().raise_event("p", answer_of("Grace"), true).await.unwrap();
        assert_eq!(soon(second.client().result("p")).await.unwrap().as_json(), r#"["Grace","Joan"]"#);
        stage.finish(second, &log, orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e34_what_has_come_is_taken_at_once_and_the_same_after_a_restart() {
    on_each_stage(async |stage| {
        let first = runtime(stage).await;
        let client = first.client();
        client.start("batches", "b", json!(3)).await.unwrap();
        for item in [1, 2] {
            client.raise_event("b", ITEM, item).await.unwrap();
        }
        client.raise_event("b", "gate", "").await.unwrap();
        client.raise_event("b", ITEM, 3).await.unwrap();
        drop(first);
        let second = runtime(stage).await;
        let client = second.client();
        client.raise_event("b", "gate", "").await.unwrap();
        client.raise_event("b", "gate", "").await.unwrap();
        assert_eq!(soon(client.result("b")).await.unwrap().as_json(), "[[1,2],[3],[]]");
        let mut log = ClientLog::default();
        log.started("b");
        stage.finish(second, &log, orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e37_handlers_share_what_they_are_given_and_without_validation_accept_all() {
    on_each_stage(async |stage| {
        let first = runtime(stage).await;
        first.client().start("sum", "s", json!(1)).await.unwrap();
        assert_eq!(first.client().update("s", ADD, 2).await.unwrap(), 3);
        let refused = first.client().update("s", ADD, 0).await.unwrap_err();
        assert!(refused.to_string().contains("nothing to add"), "{refused}");
        drop(first);
        let second = runtime(stage).await;
        assert_eq!(
            second.client().update("s", ADD, 4).await.unwrap(),
            7,
            "it is what the update before left"
        );
        let unreadable = second.client().update("s", "end", "seven").await.unwrap_err();
        assert!(unreadable.to_string().contains("PER-"), "{unreadable}");
        second.client().update("s", END, 0).await.unwrap();
        assert_eq!(soon(second.client().result("s")).await.unwrap().as_json(), "7");
        let mut log = ClientLog::default();
        log.started("s");
        stage.finish(second, &log, orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e35_a_stream_of_events_goes_on_after_a_restart() {
    on_each_stage(async |stage| {
        let first = runtime(stage).await;
        first.client().start("even", "e", json!(3)).await.unwrap();
        for item in [1, 2, 3] {
            first.client().raise_event("e", ITEM, item).await.unwrap();
        }
        drop(first);
        let second = runtime(stage).await;
        for item in [4, 5, 6] {
            second.client().raise_event("e", ITEM, item).await.unwrap();
        }
        assert_eq!(soon(second.client().result("e")).await.unwrap().as_json(), "12");
        let mut log = ClientLog::default();
        log.started("e");
        stage.finish(second, &log, orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e36_an_instance_reads_itself_across_executions_and_restarts() {
    on_each_stage(async |stage| {
        let first = runtime(stage).await;
        let options = StartOptions::default().attribute("customer", "Ada");
        first.client().start_with("rounds", "r", json!(3), options).await.unwrap();
        first.client().raise_event("r", "next", "").await.unwrap();
        assert_eq!(soon(first.client().wait_for("r", |round: &u32| *round == 2)).await, Ok(2));
        drop(first);
        let second = runtime(stage).await;
        second.client().raise_event("r", "next", "").await.unwrap();
        assert_eq!(soon(second.client().result("r")).await.unwrap().as_json(), r#""3 for Ada""#);
        let mut log = ClientLog::default();
        log.started("r");
        stage.finish(second, &log, orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e36_a_status_of_another_type_blocks_and_says_which() {
    let stage = Stage::in_memory();
    let runtime = runtime(&stage).await;
    let client = runtime.client();
    client.start("misread", "m", ()).await.unwrap();
    let blocked = loop {
        if let Some(blocked) = client.status("m").await.unwrap().blocked {
            break blocked;
        }
        tokio::task::yield_now().await;
    };
    assert!(blocked.reason.contains("the published status is no u32"), "{blocked:?}");
    client.terminate("m", "seen").await.unwrap();
    runtime.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g39_an_update_starts_its_instance_and_finds_the_one_that_runs() {
    on_each_stage(async |stage| {
        let mut log = ClientLog::default();
        let first = runtime(stage).await;
        for (who, client) in clients(stage, &first) {
            let add = |more| client.update(who, ADD, more).or_start(SUM, 100);
            assert_eq!(soon(add(1)).await, Ok(101), "{who}: started");
            assert_eq!(soon(add(2)).await, Ok(103), "{who}: found");
            assert_eq!(soon(add(4).once("key")).await, Ok(107));
            assert_eq!(soon(add(4).once("key")).await, Ok(107), "{who}: once");
            let refused = soon(add(0)).await;
            assert!(matches!(refused, Err(UpdateError::Refused { .. })), "{who}: {refused:?}");
            log.started(who);
        }
        drop(first);
        let second = runtime(stage).await;
        for (who, client) in clients(stage, &second) {
            let add = |more| client.update(who, ADD, more).or_start(SUM, 100);
            assert_eq!(soon(add(4).once("key")).await, Ok(107), "{who}: once, after a restart");
            assert_eq!(soon(client.update(who, END, 0)).await, Ok(107));
            assert_eq!(soon(client.result(who)).await.unwrap().as_json(), "107");
        }
        stage.finish(second, &log, orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g39_many_updates_that_start_one_id_at_a_time_start_it_once() {
    const USERS: u64 = 40;
    on_each_stage(async |stage| {
        let runtime = runtime(stage).await;
        let clients: Vec<Client> = clients(stage, &runtime).into_iter().map(|(_, client)| client).collect();
        let add = |user: u64| {
            let client = clients[user as usize % clients.len()].clone();
            async move { client.update("one", ADD, 1).or_start(SUM, 0).await }
        };
        let mut sums: Vec<u64> = Vec::new();
        for outcome in soon(join_all((0..USERS).map(add))).await {
            sums.push(outcome.unwrap());
        }
        sums.sort_unstable();
        assert_eq!(sums, (1..=USERS).collect::<Vec<_>>());
        assert_eq!(soon(runtime.client().update("one", END, 0)).await, Ok(USERS));
        soon(runtime.client().result("one")).await.unwrap();
        let mut log = ClientLog::default();
        log.started("one");
        stage.finish(runtime, &log, orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g39_an_instance_that_has_ended_is_replaced_only_if_asked_and_never_for_the_update_that_ended_it() {
    on_each_stage(async |stage| {
        let runtime = runtime(stage).await;
        for (who, client) in clients(stage, &runtime) {
            let end = |more, options| client.update(who, END, more).or_start_with(SUM, 10, options);
            let replace = || StartOptions::default().on_existing(OnExisting::ReplaceEnded);
            assert_eq!(soon(end(1, replace()).once("end")).await, Ok(11));
            soon(client.result(who)).await.unwrap();
            let first = client.status(who).await.unwrap().key;

            assert_eq!(soon(end(1, replace()).once("end")).await, Ok(11), "{who}: it took that one");
            assert_eq!(soon(end(1, StartOptions::default()).once("end")).await, Ok(11));
            assert_eq!(client.status(who).await.unwrap().key, first);

            let refused = soon(end(2, StartOptions::default())).await;
            let status = Status::Completed;
            let exists = ClientError::AlreadyExists { id: who.to_owned(), status };
            assert_eq!(refused, Err(exists.into()), "{who}");

            assert_eq!(soon(end(2, replace()).once("other")).await, Ok(12), "{who}: a new one");
            assert_ne!(client.status(who).await.unwrap().key, first);
            soon(client.result(who)).await.unwrap();
        }
        stage.finish(runtime, &ClientLog::default(), orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g40_callers_wait_for_a_published_status_over_a_restart() {
    on_each_stage(async |stage| {
        let first = runtime(stage).await;
        let client = first.client();
        client.start("batches", "b", json!(2)).await.unwrap();
        client.raise_event("b", "gate", "").await.unwrap();
        assert_eq!(soon(client.wait_for("b", |batches: &u32| *batches >= 1)).await, Ok(1), "it is there");
        let guest = stage.guest().map(|guest| {
            tokio::spawn(async move { soon(guest.wait_for("b", |batches: &u32| *batches == 2)).await })
        });
        drop(first);

        let second = runtime(stage).await;
        let client = second.client();
        let waiting = client.clone();
        let here =
            tokio::spawn(async move { soon(waiting.wait_for("b", |batches: &u32| *batches == 2)).await });
        client.raise_event("b", "gate", "").await.unwrap();
        for waited in [Some(here), guest].into_iter().flatten() {
            assert_eq!(waited.await.unwrap(), Ok(2));
        }
        soon(client.result("b")).await.unwrap();
        let mut log = ClientLog::default();
        log.started("b");
        stage.finish(second, &log, orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g40_waiting_for_a_status_ends_with_the_instance_and_says_what_is_wrong() {
    on_each_stage(async |stage| {
        let runtime = runtime(stage).await;
        let missing = runtime.client().wait_for("b", |_: &u32| true).await;
        assert_eq!(missing, Err(ClientError::NotFound { id: "b".to_owned() }));
        runtime.client().start("batches", "b", json!(1)).await.unwrap();
        for (who, client) in clients(stage, &runtime) {
            let waiting = client.clone();
            let never =
                tokio::spawn(async move { soon(waiting.wait_for("b", |batches: &u32| *batches == 7)).await });
            if who == "here" {
                runtime.client().raise_event("b", "gate", "").await.unwrap();
            }
            let ended = ClientError::Ended { id: "b".to_owned() };
            assert_eq!(never.await.unwrap(), Err(ended), "{who}");
            assert_eq!(
                client.wait_for("b", |batches: &u32| *batches == 1).await,
                Ok(1),
                "{who}, after its end"
            );
            let words = client.wait_for("b", |_: &String| true).await;
            assert!(matches!(&words, Err(error) if error.to_string().contains("String")), "{words:?}");
        }
        stage.finish(runtime, &ClientLog::default(), orchestrations).await;
    })
    .await;
}

#[activity]
async fn reserve(_: ActivityContext, what: String) -> Result<String, String> {
    if what == "van" { Err("no vans".to_owned()) } else { Ok(format!("{what}-1")) }
}

#[activity]
async fn release(_: ActivityContext, reservation: String) -> Result<(), String> {
    if reservation == "crew-1" { Err("the crew is gone".to_owned()) } else { Ok(()) }
}

#[orchestration]
async fn move_house(ctx: OrchestrationContext) -> Result<(), String> {
    let saga = Saga::new(&ctx);
    let moved = saga.run(async {
        for what in ["boxes", "crew", "lift", "van"] {
            let reservation = ctx.schedule_activity(reserve, what.to_owned()).await?;
            saga.undo(release, reservation);
        }
        Ok::<_, String>(())
    });
    moved.await.map_err(|error| format!("{error}; not undone: {:?}", saga.failures()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p2_a_saga_undoes_its_steps_in_reverse_and_tells_what_it_could_not_undo() {
    let registered =
        |builder: RuntimeBuilder| builder.register(move_house).register(reserve).register(release);
    on_each_lasting_stage(async |stage| {
        let runtime = registered(stage.runtime()).start().await.unwrap();
        let client = runtime.client();
        let error = soon(client.start(move_house, "m", ()).await.unwrap().result()).await.unwrap_err();
        let expected = r#"no vans; not undone: ["the crew is gone"]"#;
        assert!(matches!(&error, RunError::Failed { error, .. } if error == expected), "{error:?}");
        let history = client.history("m").await.unwrap();
        let undone: Vec<String> = history
            .flatten()
            .map(perennial::history::Event::summary)
            .filter(|line| line.contains("\"release\""))
            .collect();
        let order: Vec<bool> = ["lift-1", "crew-1", "boxes-1"]
            .iter()
            .zip(&undone)
            .map(|(reservation, line)| line.contains(reservation))
            .collect();
        assert_eq!((order.len(), undone.len()), (3, 3), "{undone:?}");
        assert!(order.into_iter().all(|is_next| is_next), "{undone:?}");
        let mut log = ClientLog::default();
        log.started("m");
        stage.finish(runtime, &log, registered).await;
    })
    .await;
}

#[activity]
async fn add(_: ActivityContext, a: i64, b: i64) -> Result<i64, String> {
    Ok(a + b)
}

#[tokio::test]
async fn p1_calls_by_name_take_the_arguments_of_a_function_as_a_tuple() {
    let by_name = |ctx: OrchestrationContext, a: i64, b: i64| async move {
        let sum = ctx.schedule_activity("add", (a, b)).await.map_err(|error| format!("{error:?}"))?;
        Ok::<_, String>(sum.decode::<i64>().map_err(|error| error.to_string())? * 2)
    };
    let runtime = Runtime::open("memory:").register(add).orchestration("twice", "1.0.0", by_name);
    let runtime = runtime.start().await.unwrap();
    let run = runtime.client().start("twice", "t", (2, 3)).await.unwrap();
    assert_eq!(soon(run.result()).await.unwrap().as_json(), "10");
    runtime.shutdown().await.unwrap();
}

#[orchestration]
async fn less(ctx: OrchestrationContext, from: i64, by: i64) -> Result<i64, String> {
    let sum = ctx.schedule_activity("add", json!({ "b": -by, "a": from })).await;
    sum.map_err(|error| format!("{error:?}"))?.decode().map_err(|error| error.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p1_inputs_that_are_written_by_hand_may_name_the_arguments() {
    let registered = |builder: RuntimeBuilder| builder.register(add).register(less);
    on_each_lasting_stage(async |stage| {
        let runtime = registered(stage.runtime()).start().await.unwrap();
        let client = runtime.client();
        let run = client.start("less", "l", json!({ "by": 3, "from": 10 })).await.unwrap();
        assert_eq!(soon(run.result()).await.unwrap().as_json(), "7");
        let wrong = client.start("less", "w", json!({ "by": 3, "form": 10 })).await;
        assert!(matches!(wrong, Err(ClientError::BadInput { .. })), "{wrong:?}");
        let mut log = ClientLog::default();
        log.started("l");
        stage.finish(runtime, &log, registered).await;
    })
    .await;
}

#[tokio::test]
async fn g21_a_policy_without_a_limit_tries_until_it_succeeds() {
    let patient = |ctx: OrchestrationContext, _: ()| async move {
        let policy = RetryPolicy::fixed(Duration::from_millis(1)).forever();
        let flaky = ctx.schedule_activity("flaky", ()).retry(policy);
        flaky.await.map_err(|error| format!("{error:?}"))
    };
    let flaky = |ctx: ActivityContext, (): ()| async move {
        if ctx.attempt() < 25 { Err("not yet".to_owned()) } else { Ok(ctx.attempt()) }
    };
    let runtime =
        Runtime::open("memory:").activity("flaky", flaky).orchestration("patient", "1.0.0", patient);
    let runtime = runtime.start().await.unwrap();
    let run = runtime.client().start("patient", "p", ()).await.unwrap();
    assert_eq!(soon(run.result()).await.unwrap().as_json(), "25");
    runtime.shutdown().await.unwrap();
}
