//! Starting: ids that exist, events that come with a start, delays, timeouts, attributes (G16, G17, G30).

use std::time::Duration;

use futures::future::join_all;
use perennial::history::Ending;
use perennial::history::{EventKind, Job};
use perennial::{
    Client, ClientError, Either, Filter, OnExisting, OrchestrationContext, Payload, Runtime, RuntimeBuilder,
    StartOptions, Status,
};
use perennial_core::Handlers;
use perennial_testkit::invariants::ClientLog;
use serde_json::json;

use crate::support::stage::{Stage, on_each_stage};
use crate::support::{PATIENCE, event, soon, until};

type Outcome = Result<Payload, Payload>;

async fn echo(_: OrchestrationContext, input: Payload) -> Outcome {
    Ok(input)
}

/// Waits for an event, and returns its input and the event's content.
async fn waits(ctx: OrchestrationContext, input: Payload) -> Outcome {
    let came = ctx.schedule_wait(event("go")).await;
    Ok(Payload::from_json(format!("[{},{}]", input.as_json(), came.as_json())).unwrap())
}

/// Has a child that waits.
async fn parent(ctx: OrchestrationContext, id: Payload) -> Outcome {
    let id: String = id.decode().unwrap();
    ctx.schedule_sub_orchestration_with_id("waits", id, ()).await.map_err(crate::support::failed)
}

/// Waits for an event, or forever.
async fn forever(ctx: OrchestrationContext, _: Payload) -> Outcome {
    match ctx.select2(ctx.schedule_wait(event("go")), ctx.schedule_timer(Duration::MAX)).await {
        Either::First(came) => Ok(came),
        Either::Second(()) => Err("the end of all time".into()),
    }
}

fn orchestrations(runtime: RuntimeBuilder) -> RuntimeBuilder {
    runtime
        .orchestration("echo", "1.0.0", echo)
        .orchestration("waits", "1.0.0", waits)
        .orchestration("parent", "1.0.0", parent)
        .orchestration("forever", "1.0.0", forever)
}

fn handlers() -> Handlers {
    orchestrations(Runtime::open("memory:")).handlers()
}

async fn runtime(stage: &Stage) -> Runtime {
    orchestrations(stage.runtime()).start().await.unwrap()
}

/// The runtime's client and, where there can be one, that of another process. That one cannot know the latest version.
fn clients(stage: &Stage, runtime: &Runtime) -> Vec<(&'static str, Client, StartOptions)> {
    let own = ("own", runtime.client(), StartOptions::default());
    let guest = stage.guest().map(|guest| ("guest", guest, StartOptions::default().version("1.0.0")));
    [own].into_iter().chain(guest).collect()
}

fn exists(id: &str, status: Status) -> Result<bool, ClientError> {
    Err(ClientError::AlreadyExists { id: id.to_owned(), status })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g17_each_policy_does_what_it_says_to_a_running_and_to_a_finished_instance() {
    use OnExisting::{Reject, ReplaceEnded, TerminateAndReplace, Use};
    on_each_stage(async |stage| {
        let runtime = runtime(stage).await;
        let mut log = ClientLog::default();
        for (who, client, options) in clients(stage, &runtime) {
            // Whether the instance is new, or the start is refused.
            for (policy, on_running, on_ended) in [
                (Reject, Err(()), Err(())),
                (Use, Ok(false), Ok(false)),
                (ReplaceEnded, Err(()), Ok(true)),
                (TerminateAndReplace, Ok(true), Ok(true)),
            ] {
                let options = options.clone().on_existing(policy);
                let what = format!("{who} {policy:?}");
                let id = format!("{who}-{policy:?}");
                let fresh =
                    client.start_with("waits", &id, "first", options.clone()).await.map(|run| run.is_new());
                assert_eq!(fresh, Ok(true), "{what}: a new id is simply started");
                log.started(&id);
                until(&client, &id, |status| status.status == Status::Running).await;
                for (now, expected) in [("running", on_running), ("ended", on_ended)] {
                    if now == "ended" {
                        client.raise_event(&id, "go", ()).await.unwrap();
                        until(&client, &id, |status| status.status.is_final()).await;
                    }
                    let before = client.status(&id).await.unwrap();
                    let outcome =
                        client.start_with("waits", &id, now, options.clone()).await.map(|run| run.is_new());
                    let after = until(&client, &id, |status| status.status != Status::Pending).await;
                    match expected {
                        Ok(is_new) => assert_eq!(outcome, Ok(is_new), "{what} {now}"),
                        Err(()) => assert_eq!(outcome, exists(&id, before.status), "{what} {now}"),
                    }
                    if expected == Ok(true) {
                        assert_ne!(after.key, before.key, "{what} {now}: another instance has the id");
                        let input = client.history(&id).await.unwrap().started().unwrap().input.clone();
                        assert_eq!(input, Payload::from(now), "{what}");
                    } else {
                        assert_eq!(after, before, "{what} {now}: what exists is left alone");
                    }
                }
            }
        }
        stage.finish(runtime, &log, orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g17_fifty_concurrent_starts_of_one_id_agree_under_every_policy() {
    const STARTS: usize = 50;
    on_each_stage(async |stage| {
        let runtime = runtime(stage).await;
        let client = runtime.client();
        let mut log = ClientLog::default();
        for policy in
            [OnExisting::Reject, OnExisting::Use, OnExisting::ReplaceEnded, OnExisting::TerminateAndReplace]
        {
            for (name, id) in
                [("waits", format!("running-{policy:?}")), ("echo", format!("ending-{policy:?}"))]
            {
                let start = |n: usize| {
                    let options = StartOptions::default().on_existing(policy);
                    client.start_with(name, &id, json!(n), options)
                };
                let outcomes = join_all((0..STARTS).map(start)).await;
                log.started(&id);
                let count = |is_new| outcomes.iter().flatten().filter(|run| run.is_new() == is_new).count();
                let (started, existed) = (count(true), count(false));
                let refused = outcomes
                    .iter()
                    .filter(|outcome| matches!(outcome, Err(ClientError::AlreadyExists { .. })))
                    .count();
                let counts = (started, existed, refused);
                match (policy, name) {
                    (OnExisting::Reject, _) => assert_eq!(counts, (1, 0, STARTS - 1)),
                    (OnExisting::Use, _) => assert_eq!(counts, (1, STARTS - 1, 0)),
                    (OnExisting::ReplaceEnded, "waits") => assert_eq!(counts, (1, 0, STARTS - 1)),
                    // Each that found it finished has replaced it; each that found it running was refused.
                    (OnExisting::ReplaceEnded, _) => {
                        assert!(started >= 1 && existed == 0 && started + refused == STARTS, "{outcomes:?}")
                    }
                    (OnExisting::TerminateAndReplace, _) => {
                        assert_eq!(counts, (STARTS, 0, 0), "{outcomes:?}")
                    }
                }
                let one = Filter::new().id_prefix(id.clone());
                assert_eq!(client.list(one, None, 10).await.unwrap().rows.len(), 1, "{policy:?}");
            }
        }
        stage.finish(runtime, &log, orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g17_what_is_replaced_takes_its_children_with_it() {
    on_each_stage(async |stage| {
        let runtime = runtime(stage).await;
        let client = runtime.client();
        client.start("parent", "p", "child").await.unwrap();
        while client.status("child").await.is_err() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let child = client.status("child").await.unwrap().key;
        let options = StartOptions::default().on_existing(OnExisting::TerminateAndReplace);
        assert!(client.start_with("parent", "p", "child", options).await.unwrap().is_new());
        // The new child can have the id of the old one, which is gone.
        until(&client, "p", |status| status.status == Status::Running).await;
        while !matches!(client.status("child").await, Ok(status) if status.key != child) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        client.raise_event("child", "go", "new").await.unwrap();
        assert_eq!(client.result("p").await.unwrap().as_json(), r#"[null,"new"]"#);
        let mut log = ClientLog::default();
        log.started("p");
        log.started("child");
        stage.finish(runtime, &log, orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g17_start_or_raise_starts_with_the_event_or_raises_it() {
    on_each_stage(async |stage| {
        let runtime = runtime(stage).await;
        let mut log = ClientLog::default();
        for (who, client, options) in clients(stage, &runtime) {
            let options = |payload: &str| options.clone().or_raise("go", payload);
            // New: the event is the first job of its first turn.
            let id = format!("{who}-new");
            let outcome = client.start_with("waits", &id, "input", options("with it")).await;
            assert!(outcome.unwrap().is_new());
            log.started(&id);
            log.raised(who, &id, "go", "with it");
            until(&client, &id, |status| status.status.is_final()).await;
            assert_eq!(client.result(&id).await.unwrap().as_json(), r#"["input","with it"]"#);
            assert_eq!(client.history(&id).await.unwrap().turns.len(), 1);
            // Running: it is raised.
            let id = format!("{who}-running");
            runtime.client().start("waits", &id, "input").await.unwrap();
            let outcome = client.start_with("waits", &id, "other", options("raised")).await;
            assert!(!outcome.unwrap().is_new());
            log.started(&id);
            log.raised(who, &id, "go", "raised");
            until(&client, &id, |status| status.status.is_final()).await;
            assert_eq!(client.result(&id).await.unwrap().as_json(), r#"["input","raised"]"#);
            // Finished: the policy decides.
            let refused =
                client.start_with("waits", &id, "other", options("late")).await.map(|run| run.is_new());
            assert_eq!(refused, exists(&id, Status::Completed));
            let replacing = options("again").on_existing(OnExisting::ReplaceEnded);
            assert!(client.start_with("waits", &id, "next", replacing).await.unwrap().is_new());
            log.deleted(&id);
            log.started(&id);
            until(&client, &id, |status| status.status.is_final()).await;
            assert_eq!(client.result(&id).await.unwrap().as_json(), r#"["next","again"]"#);
        }
        stage.finish(runtime, &log, orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g17_fifty_concurrent_starts_or_raises_bring_fifty_events_to_one_instance() {
    const STARTS: usize = 50;
    on_each_stage(async |stage| {
        let runtime = runtime(stage).await;
        let client = runtime.client();
        let mut log = ClientLog::default();
        // They wait for another event, so that none is lost to its end.
        let start = |n: usize| {
            let options = StartOptions::default().or_raise("count", json!(n));
            client.start_with("waits", "one", (), options)
        };
        let outcomes = join_all((0..STARTS).map(start)).await;
        log.started("one");
        (0..STARTS).for_each(|n| log.raised(&format!("caller {n}"), "one", "count", json!(n)));
        assert_eq!(outcomes.iter().flatten().filter(|run| run.is_new()).count(), 1);
        assert_eq!(outcomes.iter().flatten().filter(|run| !run.is_new()).count(), STARTS - 1);
        let history = client.history("one").await.unwrap();
        let mut seen: Vec<u64> = history
            .flatten()
            .filter_map(|event| match &event.kind {
                EventKind::Job(Job::ExternalEvent { payload, .. }) => payload.decode().ok(),
                _ => None,
            })
            .collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..STARTS as u64).collect::<Vec<_>>());
        stage.finish(runtime, &log, orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g17_start_or_raise_goes_by_its_policy_if_the_instance_ends_before_the_event_comes() {
    const STARTS: usize = 50;
    on_each_stage(async |stage| {
        let runtime = runtime(stage).await;
        let client = runtime.client();
        client.start("waits", "one", ()).await.unwrap();
        // All find it running; the first event ends it.
        let start = |n: usize| {
            let options =
                StartOptions::default().or_raise("go", json!(n)).on_existing(OnExisting::ReplaceEnded);
            client.start_with("waits", "one", (), options)
        };
        let outcomes = join_all((0..STARTS).map(start)).await;
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
        let mut log = ClientLog::default();
        log.started("one");
        stage.finish(runtime, &log, orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g17_a_delayed_start_is_durable_at_once_and_does_not_begin_before_its_time() {
    const DELAY: Duration = Duration::from_millis(600);
    on_each_stage(async |stage| {
        let mut log = ClientLog::default();
        let first = runtime(stage).await;
        for (who, client, options) in clients(stage, &first) {
            client.start_with("echo", who, who, options.clone().delay(DELAY)).await.unwrap();
            log.started(who);
            let status = client.status(who).await.unwrap();
            assert_eq!(status.status, Status::Pending);
            let again = client.start_with("echo", who, who, options).await.map(|run| run.is_new());
            assert_eq!(again, exists(who, Status::Pending), "it has its id");
        }
        // Killed in the meantime.
        drop(first);
        stage.check(&log, &handlers());
        let second = runtime(stage).await;
        for (who, client, _) in clients(stage, &second) {
            assert_eq!(client.result(who).await.unwrap(), Payload::from(who));
            let history = client.history(who).await.unwrap();
            let created_ms = client.status(who).await.unwrap().created.as_millis();
            let begun_ms = history.turns[0].at_ms;
            assert!(begun_ms >= created_ms + 600, "{who} began after {} ms", begun_ms - created_ms);
        }
        stage.finish(second, &log, orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g17_a_delayed_start_of_whatever_process_begins_at_its_time() {
    const DELAY: Duration = Duration::from_millis(300);
    on_each_stage(async |stage| {
        let mut log = ClientLog::default();
        let runtime = runtime(stage).await;
        for (who, client, options) in clients(stage, &runtime) {
            client.start_with("echo", who, who, options.delay(DELAY)).await.unwrap();
            log.started(who);
            crate::support::soon(client.result(who)).await.unwrap();
            let (status, history) = (client.status(who).await.unwrap(), client.history(who).await.unwrap());
            let waited_ms = history.turns[0].at_ms - status.created.as_millis();
            assert!((300..10_000).contains(&waited_ms), "{who} began after {waited_ms} ms");
        }
        stage.finish(runtime, &log, orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g17_a_delayed_instance_can_be_cancelled_and_terminated_at_once_and_keeps_its_events() {
    const LONG: Duration = Duration::from_secs(3_600);
    const SHORT: Duration = Duration::from_millis(400);
    on_each_stage(async |stage| {
        let mut log = ClientLog::default();
        let runtime = runtime(stage).await;
        for (who, client, options) in clients(stage, &runtime) {
            let id = |what: &str| format!("{who}-{what}");
            for (what, delay) in [("cancel", LONG), ("terminate", LONG), ("event", SHORT)] {
                client.start_with("waits", &id(what), what, options.clone().delay(delay)).await.unwrap();
                log.started(id(what));
            }
            client.raise_event(&id("event"), "go", "early").await.unwrap();
            log.raised(who, &id("event"), "go", "early");
            assert_eq!(client.status(&id("event")).await.unwrap().status, Status::Pending);
            client.cancel(&id("cancel"), "not needed").await.unwrap();
            let cancelled = Ending::OrchestrationCancelled { reason: "not needed".to_owned(), output: None };
            assert_eq!(client.wait(&id("cancel")).await, Ok(cancelled));
            client.terminate(&id("terminate"), "not needed").await.unwrap();
            let terminated = Ending::OrchestrationTerminated { reason: "not needed".to_owned() };
            assert_eq!(client.wait(&id("terminate")).await, Ok(terminated));
            assert_eq!(client.result(&id("event")).await.unwrap().as_json(), r#"["event","early"]"#);
        }
        stage.finish(runtime, &log, orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g17_attributes_of_a_start_can_be_searched_at_once() {
    on_each_stage(async |stage| {
        let runtime = runtime(stage).await;
        for (who, client, options) in clients(stage, &runtime) {
            let options = options.attribute("customer", who).attribute("total", json!(12));
            client.start_with("waits", who, (), options.delay(Duration::from_secs(3_600))).await.unwrap();
            let filter = |name: &str, value: Payload| Filter::new().attribute(name, value);
            let found = client.list(filter("customer", Payload::from(who)), None, 10).await.unwrap().rows;
            assert_eq!(found.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), [who]);
            assert!(
                client.list(filter("total", json!("12").into()), None, 10).await.unwrap().rows.is_empty()
            );
            let refused =
                client.start_with("waits", "x", (), StartOptions::default().attribute("", "x")).await;
            assert!(
                matches!(refused, Err(ClientError::InvalidName { what: "attribute", .. })),
                "{refused:?}"
            );
        }
        stage.finish(runtime, &ClientLog::default(), orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g30_an_instance_that_takes_too_long_ends_as_timed_out_running_or_not_and_begun_or_not() {
    const SPAN: Duration = Duration::from_millis(250);
    on_each_stage(async |stage| {
        let mut log = ClientLog::default();
        let first = runtime(stage).await;
        for (who, client, options) in clients(stage, &first) {
            client.start_with("waits", who, (), options.clone().timeout(SPAN)).await.unwrap();
            let quick = format!("{who}-quick");
            client.start_with("echo", &quick, "in time", options.timeout(PATIENCE)).await.unwrap();
            client.result(&quick).await.unwrap();
            log.started(who);
            log.started(&quick);
        }
        // No runtime is running when the time comes.
        first.shutdown().await.unwrap();
        tokio::time::sleep(SPAN).await;
        let second = runtime(stage).await;
        for (who, client, options) in clients(stage, &second) {
            let timed_out = Ending::OrchestrationTerminated { reason: "timeout".to_owned() };
            assert_eq!(client.wait(who).await, Ok(timed_out.clone()));
            assert_eq!(client.result(&format!("{who}-quick")).await.unwrap().as_json(), r#""in time""#);
            let (here, later) = (format!("{who}-here"), format!("{who}-later"));
            client.start_with("waits", &here, (), options.clone().timeout(SPAN)).await.unwrap();
            let delayed = options.timeout(SPAN).delay(Duration::from_secs(3_600));
            client.start_with("waits", &later, (), delayed).await.unwrap();
            for id in [&here, &later] {
                log.started(id);
                assert_eq!(crate::support::soon(client.wait(id)).await, Ok(timed_out.clone()));
            }
            let history = client.history(&here).await.unwrap();
            let deadline_ms = history.started().unwrap().deadline_ms.unwrap();
            assert!(history.turns.last().unwrap().at_ms >= deadline_ms, "not before its time");
        }
        stage.finish(second, &log, orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g16_an_event_with_a_key_counts_once_whoever_sends_it_again_and_when() {
    on_each_stage(async |stage| {
        let mut runtime = runtime(stage).await;
        runtime.client().start("waits", "w", ()).await.unwrap();
        for round in 0..3 {
            for (_, client, _) in clients(stage, &runtime) {
                client.raise_event("w", "other", json!(round)).once("key").await.unwrap();
            }
            drop(runtime);
            runtime = self::runtime(stage).await;
        }
        let client = runtime.client();
        client.raise_event("w", "go", ()).await.unwrap();
        client.result("w").await.unwrap();
        let others = |event: &&perennial::history::Event| {
            matches!(&event.kind, EventKind::Job(Job::ExternalEvent { name, .. }) if name == "other")
        };
        let history = client.history("w").await.unwrap();
        assert_eq!(history.flatten().filter(others).count(), 1);
        stage.finish(runtime, &ClientLog::default(), orchestrations).await;
    })
    .await;
}

#[tokio::test]
async fn e18_what_waits_until_the_end_of_all_time_is_kept_like_all_else() {
    on_each_stage(async |stage| {
        let mut log = ClientLog::default();
        let first = runtime(stage).await;
        for (who, client, options) in clients(stage, &first) {
            let (running, delayed) = (format!("{who}-running"), format!("{who}-delayed"));
            let endless = options.clone().timeout(Duration::MAX);
            client.start_with("forever", &running, (), endless).await.unwrap();
            client.start_with("echo", &delayed, (), options.delay(Duration::MAX)).await.unwrap();
            until(&client, &running, |row| row.status == Status::Running).await;
            log.started(&running);
            log.started(&delayed);
        }
        first.shutdown().await.unwrap();
        let second = runtime(stage).await;
        for (who, client, _) in clients(stage, &second) {
            let (running, delayed) = (format!("{who}-running"), format!("{who}-delayed"));
            client.raise_event(&running, event("go"), "at last".into()).await.unwrap();
            assert_eq!(client.result(&running).await.unwrap().as_json(), r#""at last""#);
            assert_eq!(client.status(&delayed).await.unwrap().status, Status::Pending);
            client.terminate(&delayed, "enough").await.unwrap();
            assert!(matches!(client.wait(&delayed).await, Ok(Ending::OrchestrationTerminated { .. })));
        }
        stage.finish(second, &log, orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g2_a_run_never_gives_the_result_of_another_instance_with_its_id() {
    let runtime = orchestrations(Runtime::open("memory:")).start().await.unwrap();
    let client = runtime.client();
    let first = client.start("echo", "e", Payload::from("first")).await.unwrap();
    assert_eq!(first.result().await.unwrap(), Payload::from("first"));
    let replace = StartOptions::default().on_existing(OnExisting::ReplaceEnded);
    let second = client.start_with("echo", "e", Payload::from("second"), replace).await.unwrap();
    assert_eq!(second.result().await.unwrap(), Payload::from("second"));
    let gone = first.result().await;
    assert!(
        matches!(gone, Err(perennial::RunError::Client(ClientError::NotFound { .. }))),
        "the first one was deleted: {gone:?}"
    );
    runtime.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn o5_the_callers_trace_context_is_recorded_with_its_start_and_its_events() {
    on_each_stage(async |stage| {
        let runtime = runtime(stage).await;
        for (place, client, options) in clients(stage, &runtime) {
            let id = format!("traced-{place}");
            let options = options.trace_context("00-1-2-01", Some("a=b".to_owned()));
            client.start_with("waits", &id, Payload::null(), options).await.unwrap();
            let traced = client.with_trace_context("00-3-4-01", None).unwrap();
            traced.raise_event(&id, event("go"), Payload::null()).await.unwrap();
            client.result(&id).await.unwrap();
            let history = client.history(&id).await.unwrap();
            let started = history.started().unwrap().trace.clone().unwrap();
            assert_eq!((&*started.parent, started.state.as_deref()), ("00-1-2-01", Some("a=b")));
            let came = history.turns.iter().flat_map(|turn| turn.jobs()).find_map(|(_, job)| match job {
                Job::ExternalEvent { trace, .. } => trace.clone(),
                _ => None,
            });
            assert_eq!(came.unwrap().parent, "00-3-4-01");
            let long = StartOptions::default().version("1.0.0").trace_context("x".repeat(129), None);
            let refused = client.start_with("waits", "long", Payload::null(), long).await.err().unwrap();
            assert!(refused.to_string().contains("129 bytes, 128 are allowed"), "{refused}");
        }
        runtime.shutdown().await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g17_an_abandoned_child_that_still_runs_is_no_reason_not_to_replace_its_ended_parent() {
    on_each_stage(async |stage| {
        let mut log = ClientLog::default();
        let code = |builder: RuntimeBuilder| {
            builder
                .orchestration("parent", "1.0.0", |ctx: OrchestrationContext, child: String| async move {
                    let grandchild = format!("{child}'s");
                    let child = ctx.schedule_sub_orchestration_with_id("child", child, grandchild);
                    ctx.spawn(child.close_policy(perennial::ClosePolicy::Abandon)).detach();
                    ctx.schedule_timer(std::time::Duration::ZERO).await;
                    Ok::<_, String>(())
                })
                .orchestration("child", "1.0.0", |ctx: OrchestrationContext, next: String| async move {
                    if next.len() < 4 {
                        let next = ctx.schedule_sub_orchestration_with_id("child", next, "enough");
                        ctx.spawn(next).detach();
                    }
                    ctx.schedule_wait("end").await;
                    Ok::<_, String>(())
                })
        };
        let runtime = code(stage.runtime()).start().await.unwrap();
        let client = runtime.client();
        client.start("parent", "p", "c").await.unwrap();
        client.wait("p").await.unwrap();
        soon(async {
            while client.status("c's").await.map(|status| status.status) != Ok(Status::Running) {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let replace = StartOptions::default().on_existing(OnExisting::ReplaceEnded);
        client.start_with("parent", "p", "d", replace).await.unwrap();
        client.wait("p").await.unwrap();
        log.started("p");
        for id in ["c", "c's"] {
            assert_eq!(client.status(id).await.unwrap().status, Status::Running, "{id} is left alone");
        }
        client.raise_event("c's", "end", "").await.unwrap();
        client.raise_event("c", "end", "").await.unwrap();
        client.wait("c").await.unwrap();
        stage.finish(runtime, &log, code).await;
    })
    .await;
}
