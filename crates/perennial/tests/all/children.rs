//! Children: awaited, raced, refused, abandoned; their ends, and their trees (G25).

use std::time::Duration;

use perennial::client::Tree;
use perennial::history::ChildError;
use perennial::history::Ending;
use perennial::history::{EventKind, Job};
use perennial::{
    Client, ClosePolicy, Filter, OrchestrationContext, Payload, Runtime, RuntimeBuilder, StartOptions, Status,
};
use perennial_testkit::invariants::ClientLog;
use serde_json::{Value, json};

use crate::support::stage::{Stage, on_each_stage};
use crate::support::{ended_as, event, failed, not_found, number, until};

type Outcome = Result<Payload, Payload>;

/// Waits for one child: its orchestration, its id if not a derived one, its input.
async fn one(ctx: OrchestrationContext, input: Payload) -> Outcome {
    let (name, id, input): (String, Option<String>, Value) = input.decode().map_err(failed)?;
    let child = match id {
        Some(id) => ctx.schedule_sub_orchestration_with_id(name, id, input),
        None => ctx.schedule_sub_orchestration(name, input),
    };
    child.await.map_err(failed)
}

/// Waits for several children of given ids that wait for an event, and gives their results in this order.
async fn several(ctx: OrchestrationContext, ids: Payload) -> Outcome {
    let ids: Vec<String> = ids.decode().map_err(failed)?;
    let children =
        ids.iter().map(|id| ctx.schedule_sub_orchestration_with_id("waits", id, ()).typed::<Value>());
    let results = ctx.try_join(children.collect::<Vec<_>>()).await.map_err(failed)?;
    Ok(Payload::encode(&results).unwrap())
}

/// Lets children race.
async fn races(ctx: OrchestrationContext, ids: Payload) -> Outcome {
    let ids: Vec<String> = ids.decode().map_err(failed)?;
    let children = ids.iter().map(|id| ctx.schedule_sub_orchestration_with_id("waits", id, ()));
    let first = ctx.race(children.collect::<Vec<_>>()).await.map_err(failed)?;
    ctx.schedule_wait("go").await;
    Ok(first)
}

/// Has a child of each close policy, and then does what it is told.
async fn leaves(ctx: OrchestrationContext, input: Payload) -> Outcome {
    if input == Payload::from("again") {
        ctx.schedule_wait("go").await;
        return Ok(input);
    }
    let (close, leave) = (format!("{}-close", ctx.info().instance), format!("{}-leave", ctx.info().instance));
    let _close = ctx.schedule_sub_orchestration_with_id("waits", close, ());
    let _leave =
        ctx.schedule_sub_orchestration_with_id("waits", leave, ()).close_policy(ClosePolicy::Abandon);
    match ctx.schedule_wait("end").typed::<String>().await.as_str() {
        "fail" => Err(Payload::from("as told")),
        "again" => ctx.continue_as_new("again").await,
        _ => Ok(Payload::null()),
    }
}

/// Starts an instance without a parent.
async fn detaches(ctx: OrchestrationContext, id: Payload) -> Outcome {
    ctx.schedule_orchestration("waits", id.decode::<String>().map_err(failed)?, ());
    Ok(ctx.schedule_wait(event("go")).await)
}

async fn waits(ctx: OrchestrationContext, _: Payload) -> Outcome {
    Ok(ctx.schedule_wait(event("go")).await)
}

async fn echo(_: OrchestrationContext, input: Payload) -> Outcome {
    Ok(input)
}

async fn fails(_: OrchestrationContext, input: Payload) -> Outcome {
    Err(input)
}

/// Continues as new, one event each, until nothing is left.
async fn counts_down(ctx: OrchestrationContext, left: Payload) -> Outcome {
    let left: u64 = left.decode().map_err(failed)?;
    if left == 0 {
        return Ok(Payload::from(format!("after {} executions", ctx.info().execution)));
    }
    ctx.schedule_wait("go").await;
    ctx.continue_as_new(number(left - 1)).await
}

/// A child that has a child that has a child.
async fn nests(ctx: OrchestrationContext, depth: Payload) -> Outcome {
    let depth: u64 = depth.decode().map_err(failed)?;
    if depth == 0 {
        return Ok(number(0));
    }
    match ctx.schedule_sub_orchestration("nests", number(depth - 1)).typed::<u64>().await {
        Ok(below) => Ok(number(below + 1)),
        Err(ChildError::Application(error)) => Err(error),
        Err(other) => Err(failed(other)),
    }
}

fn orchestrations(runtime: RuntimeBuilder) -> RuntimeBuilder {
    runtime
        .orchestration("one", "1.0.0", one)
        .orchestration("several", "1.0.0", several)
        .orchestration("races", "1.0.0", races)
        .orchestration("leaves", "1.0.0", leaves)
        .orchestration("detaches", "1.0.0", detaches)
        .orchestration("waits", "1.0.0", waits)
        .orchestration("echo", "1.0.0", echo)
        .orchestration("fails", "1.0.0", fails)
        .orchestration("counts_down", "1.0.0", counts_down)
        .orchestration("nests", "1.0.0", nests)
}

async fn runtime(stage: &Stage) -> Runtime {
    orchestrations(stage.runtime()).start().await.unwrap()
}

async fn until_ended(client: &Client, id: &str) -> Ending {
    until(client, id, |status| status.status.is_final()).await;
    client.wait(id).await.unwrap()
}

async fn until_there(client: &Client, id: &str) {
    while client.status(id).await.is_err() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn cancelled_by(parent: &str) -> Ending {
    Ending::OrchestrationCancelled {
        reason: format!("its parent {parent} no longer waits for it"),
        output: None,
    }
}

/// The ids of a tree, each with those below it.
fn shape(tree: &Tree) -> Value {
    json!([tree.instance.id, tree.children.iter().map(shape).collect::<Vec<_>>()])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g25_a_child_has_an_id_of_its_parents_choice_or_one_that_follows_from_its_schedule() {
    on_each_stage(async |stage| {
        let runtime = runtime(stage).await;
        let client = runtime.client();
        let mut log = ClientLog::default();
        for (id, child) in [("p", None), ("q", Some("chosen"))] {
            client.start("one", id, json!(["echo", child, {"n": 7}])).await.unwrap();
            log.started(id);
            assert_eq!(client.result(id).await.unwrap().as_json(), r#"{"n":7}"#);
        }
        log.started("p::1.2");
        log.started("chosen");
        assert_eq!(shape(&client.tree("p").await.unwrap()), json!(["p", [["p::1.2", []]]]));
        assert_eq!(shape(&client.tree("q").await.unwrap()), json!(["q", [["chosen", []]]]));
        assert_eq!(client.tree("nobody").await, Err(not_found("nobody")));
        let history = client.history("p::1.2").await.unwrap();
        let parent = history.turns[0].started().unwrap().parent.clone().unwrap();
        assert_eq!((parent.instance.as_str(), parent.execution, parent.event_id.0), ("p", 1, 2));
        stage.finish(runtime, &log, orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g25_the_loser_of_a_race_is_cancelled() {
    on_each_stage(async |stage| {
        let runtime = runtime(stage).await;
        let client = runtime.client();
        client.start("races", "p", json!(["a", "b", "c"])).await.unwrap();
        until_there(&client, "b").await;
        client.raise_event("b", "go", "b won").await.unwrap();
        for loser in ["a", "c"] {
            assert_eq!(until_ended(&client, loser).await, cancelled_by("p"));
        }
        // The parent still runs: losers go at once, not with its end.
        client.raise_event("p", "go", ()).await.unwrap();
        assert_eq!(client.result("p").await.unwrap().as_json(), r#""b won""#);
        stage.finish(runtime, &ClientLog::default(), orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g25_an_id_that_is_taken_or_cannot_be_used_fails_that_call_alone() {
    on_each_stage(async |stage| {
        let runtime = runtime(stage).await;
        let client = runtime.client();
        client.start("waits", "taken", ()).await.unwrap();
        let key = client.status("taken").await.unwrap().key;
        for (id, child, says) in [
            ("p", "taken", r#"PER-0306 child id taken: an instance \"taken\" exists"#),
            ("q", "own::id", "PER-0307 child id refused"),
            ("r", "", "PER-0307 child id refused"),
        ] {
            client.start("one", id, json!(["waits", child, null])).await.unwrap();
            let Ending::OrchestrationFailed { error } = client.wait(id).await.unwrap() else { panic!() };
            let error: String = error.decode().unwrap();
            assert!(error.contains("NotStarted") && error.contains(says), "{id}: {error}");
            assert_eq!(client.tree(id).await.unwrap().size(), 1);
        }
        let taken = client.status("taken").await.unwrap();
        assert_eq!((taken.key, taken.status), (key, Status::Running));
        client.raise_event("taken", "go", "untouched").await.unwrap();
        assert_eq!(client.result("taken").await.unwrap().as_json(), r#""untouched""#);
        stage.finish(runtime, &ClientLog::default(), orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g25_however_a_parent_ends_its_children_end_or_stay_by_their_close_policy() {
    on_each_stage(async |stage| {
        let runtime = runtime(stage).await;
        let client = runtime.client();
        for end in ["complete", "fail", "again", "cancel", "terminate", "timeout"] {
            let mut options = StartOptions::default();
            if end == "timeout" {
                options = options.timeout(Duration::from_millis(300));
            }
            client.start_with("leaves", end, (), options).await.unwrap();
            let (close, leave) = (format!("{end}-close"), format!("{end}-leave"));
            until_there(&client, &close).await;
            until_there(&client, &leave).await;
            match end {
                "cancel" => client.cancel(end, "as told").await.unwrap(),
                "terminate" => client.terminate(end, "as told").await.unwrap(),
                "timeout" => {}
                end => client.raise_event(end, "end", end).await.unwrap(),
            }
            assert_eq!(until_ended(&client, &close).await, cancelled_by(end), "{end}");
            if end == "again" {
                assert_eq!(client.status(end).await.unwrap().execution, 2);
                client.raise_event(end, "go", ()).await.unwrap();
            }
            let status = until(&client, end, |status| status.status.is_final()).await.status;
            let expected = match end {
                "complete" | "again" => Status::Completed,
                "fail" => Status::Failed,
                "cancel" => Status::Cancelled,
                _ => Status::Terminated,
            };
            assert_eq!(status, expected, "{end}");
            // It may not have begun yet.
            assert!(!ended_as(&client, &leave).await.is_final(), "{end}");
            // Its outcome comes to a parent that is gone, and is left at that.
            client.raise_event(&leave, "go", end).await.unwrap();
            assert_eq!(client.result(&leave).await.unwrap(), Payload::from(end));
        }
        stage.finish(runtime, &ClientLog::default(), orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g25_a_child_that_continues_as_new_three_times_still_answers_its_parent() {
    on_each_stage(async |stage| {
        let mut runtime = runtime(stage).await;
        runtime.client().start("one", "p", json!(["counts_down", "c", 3])).await.unwrap();
        for execution in 1..=3 {
            let client = runtime.client();
            until_there(&client, "c").await;
            until(&client, "c", |status| status.execution == execution).await;
            client.raise_event("c", "go", ()).await.unwrap();
            until(&client, "c", |status| status.execution > execution).await;
            if execution < 3 {
                assert_eq!(ended_as(&client, "p").await, Status::Running);
            }
            if execution == 2 {
                drop(runtime);
                runtime = self::runtime(stage).await;
            }
        }
        let client = runtime.client();
        assert_eq!(client.result("p").await.unwrap().as_json(), r#""after 4 executions""#);
        let history = client.history("p").await.unwrap();
        let is_outcome =
            |kind: &EventKind| matches!(kind, EventKind::Job(Job::SubOrchestrationCompleted { .. }));
        assert_eq!(history.flatten().filter(|event| is_outcome(&event.kind)).count(), 1);
        stage.finish(runtime, &ClientLog::default(), orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g25_a_parent_is_told_how_its_child_failed_was_cancelled_or_was_terminated() {
    on_each_stage(async |stage| {
        let runtime = runtime(stage).await;
        let client = runtime.client();
        for (id, child, says) in [
            ("p", "fails", "Application("),
            ("q", "waits", "Cancelled { reason: \"by hand\", output: None }"),
            ("r", "waits", "Terminated { reason: \"by hand\" }"),
        ] {
            client.start("one", id, json!([child, null, "spilt milk"])).await.unwrap();
            let child = format!("{id}::1.2");
            until_there(&client, &child).await;
            match id {
                "q" => client.cancel(&child, "by hand").await.unwrap(),
                "r" => client.terminate(&child, "by hand").await.unwrap(),
                _ => {}
            }
            let Ending::OrchestrationFailed { error } = client.wait(id).await.unwrap() else { panic!() };
            let error: String = error.decode().unwrap();
            assert!(error.contains(says), "{id}: {error}");
            assert_eq!(error.contains("spilt milk"), id == "p", "{error}");
        }
        stage.finish(runtime, &ClientLog::default(), orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g25_a_detached_start_is_independent_of_who_made_it() {
    on_each_stage(async |stage| {
        let runtime = runtime(stage).await;
        let client = runtime.client();
        let mut log = ClientLog::default();
        client.start("detaches", "p", "other").await.unwrap();
        log.started("p");
        until_there(&client, "other").await;
        let key = client.status("other").await.unwrap().key;
        // The id is taken now: a second start of it has no effect, and disturbs no other instance.
        client.start("detaches", "q", "other").await.unwrap();
        log.started("q");
        client.raise_event("q", "go", ()).await.unwrap();
        client.result("q").await.unwrap();
        client.cancel("p", "enough").await.unwrap();
        assert!(matches!(client.wait("p").await.unwrap(), Ending::OrchestrationCancelled { .. }));
        assert_eq!(client.tree("p").await.unwrap().size(), 1, "it is no child");
        let other = until(&client, "other", |status| status.status == Status::Running).await;
        assert_eq!(other.key, key);
        assert_eq!(client.history("other").await.unwrap().turns[0].started().unwrap().parent, None);
        assert_eq!(client.delete("p", false).await, Ok(1));
        client.raise_event("other", "go", "alone").await.unwrap();
        assert_eq!(client.result("other").await.unwrap().as_json(), r#""alone""#);
        log.deleted("p");
        log.started("other");
        stage.finish(runtime, &log, orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g25_a_deep_tree_is_cancelled_from_its_root_down() {
    const DEPTH: usize = 30;
    on_each_stage(async |stage| {
        let runtime = runtime(stage).await;
        let client = runtime.client();
        client.start("nests", "deep", number(DEPTH as u64)).await.unwrap();
        assert_eq!(client.result("deep").await.unwrap(), number(DEPTH as u64));
        let mut below = &client.tree("deep").await.unwrap();
        let mut depth = 0;
        while let [only] = &below.children[..] {
            assert_eq!(only.instance.id, format!("{}::1.2", below.instance.id));
            (below, depth) = (only, depth + 1);
        }
        assert_eq!(depth, DEPTH);

        // Chains that wait at their end, one of which is left to be.
        let chain = |leaf: &str| {
            let nested = |inner: Value, _| json!(["one", null, inner]);
            (0..DEPTH).fold(json!(["waits", leaf, null]), nested)
        };
        for id in ["left", "kept"] {
            client.start("one", id, chain(&format!("{id}-leaf"))).await.unwrap();
            until_there(&client, &format!("{id}-leaf")).await;
        }
        client.cancel("left", "from above").await.unwrap();
        let ending = until_ended(&client, "left-leaf").await;
        assert!(matches!(ending, Ending::OrchestrationCancelled { .. }), "{ending:?}");
        let running = Filter::new().statuses([Status::Pending, Status::Running]);
        assert_eq!(
            client.count(running).await.unwrap().rows as usize,
            DEPTH + 2,
            "only the other chain runs"
        );
        client.raise_event("kept-leaf", "go", "at last").await.unwrap();
        assert_eq!(client.result("kept").await.unwrap().as_json(), r#""at last""#);
        stage.finish(runtime, &ClientLog::default(), orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g34_a_derived_id_that_would_be_too_long_fails_that_call() {
    on_each_stage(async |stage| {
        let runtime = runtime(stage).await;
        let client = runtime.client();
        // Five bytes for each level, a thousand in all.
        client.start("nests", "deep", number(300)).await.unwrap();
        let Ending::OrchestrationFailed { error } = client.wait("deep").await.unwrap() else { panic!() };
        assert!(error.as_json().contains("PER-0307 child id refused"), "{error:?}");
        assert_eq!(client.tree("deep").await.unwrap().size(), (1_000 - "deep".len()) / "::1.2".len() + 1);
        stage.finish(runtime, &ClientLog::default(), orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g25_a_parent_that_is_brought_back_while_its_children_run_gets_all_their_results() {
    on_each_stage(async |stage| {
        let mut runtime = runtime(stage).await;
        let mut log = ClientLog::default();
        runtime.client().start("several", "p", json!(["a", "b", "c", "d"])).await.unwrap();
        log.started("p");
        for id in ["c", "a", "d", "b"] {
            let client = runtime.client();
            until_there(&client, id).await;
            client.raise_event(id, "go", id).await.unwrap();
            log.raised("me", id, "go", id);
            // Killed at any moment between the child's turn and its parent's.
            drop(runtime);
            runtime = self::runtime(stage).await;
        }
        assert_eq!(runtime.client().result("p").await.unwrap().as_json(), r#"["a","b","c","d"]"#);
        stage.finish(runtime, &log, orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g33_a_tree_shows_children_oldest_first_with_theirs() {
    on_each_stage(async |stage| {
        let runtime = runtime(stage).await;
        let client = runtime.client();
        client.start("several", "p", json!(["a", "b", "c"])).await.unwrap();
        client.start("one", "q", json!(["several", "below", ["x", "y"]])).await.unwrap();
        for id in ["a", "b", "c", "x", "y"] {
            until_there(&client, id).await;
            client.raise_event(id, "go", id).await.unwrap();
        }
        client.result("p").await.unwrap();
        client.result("q").await.unwrap();
        let tree = client.tree("p").await.unwrap();
        let ids: Vec<&str> = tree.children.iter().map(|child| child.instance.id.as_str()).collect();
        assert_eq!(ids, ["a", "b", "c"], "in the order in which they were scheduled");
        let tree = client.tree("q").await.unwrap();
        assert_eq!((tree.size(), tree.children.len(), tree.children[0].children.len()), (4, 1, 2));
        assert_eq!(client.tree("below").await.unwrap(), tree.children[0]);
        if let Some(guest) = stage.guest() {
            assert_eq!(guest.tree("q").await.unwrap(), tree);
        }
        stage.finish(runtime, &ClientLog::default(), orchestrations).await;
    })
    .await;
}
