//! Looking at many instances and doing something about them: lists, counts, deletion, batches (G33).

use std::sync::Arc;
use std::time::Duration;

use perennial::Timestamp;
use perennial::client::{Count, Progress};
use perennial::{
    Action, ActivityContext, Client, ClientError, ClosePolicy, Filter, OrchestrationContext, Payload, Prune,
    RetryPolicy, Runtime, RuntimeBuilder, RuntimeOptions, StartOptions, Status,
};
use perennial_core::shard::ShardOptions;
use perennial_core::store::InstanceRow;
use perennial_testkit::invariants::ClientLog;
use serde_json::json;
use tokio::sync::Notify;

use crate::support::stage::{Stage, on_each_stage};
use crate::support::{at, event, failed, not_found, number, relaxed, until, until_blocked};

type Outcome = Result<Payload, Payload>;

async fn echo(_: OrchestrationContext, input: Payload) -> Outcome {
    Ok(input)
}

async fn fails(_: OrchestrationContext, input: Payload) -> Outcome {
    Err(input)
}

async fn waits(ctx: OrchestrationContext, _: Payload) -> Outcome {
    Ok(ctx.schedule_wait(event("go")).await)
}

/// Waits for children of these ids.
async fn parent(ctx: OrchestrationContext, ids: Payload) -> Outcome {
    let ids: Vec<String> = ids.decode().map_err(failed)?;
    let child = |id: &String| {
        ctx.schedule_sub_orchestration_with_id("waits", id, ()).close_policy(ClosePolicy::Abandon)
    };
    let children: Vec<_> = ids.iter().map(child).collect();
    ctx.schedule_wait("go").await;
    drop(children);
    Ok(Payload::null())
}

async fn again(ctx: OrchestrationContext, left: Payload) -> Outcome {
    let left: u64 = left.decode().map_err(failed)?;
    if left == 0 { Ok(Payload::null()) } else { ctx.continue_as_new(number(left - 1)).await }
}

async fn works(ctx: OrchestrationContext, activity: Payload) -> Outcome {
    let activity: String = activity.decode().map_err(failed)?;
    let policy = RetryPolicy::fixed(Duration::from_secs(3_600)).attempts(3);
    ctx.schedule_activity(activity, ()).retry(policy).await.map_err(failed)
}

fn orchestrations(runtime: RuntimeBuilder) -> RuntimeBuilder {
    runtime
        .orchestration("echo", "1.0.0", echo)
        .orchestration("echo", "2.0.0", echo)
        .orchestration("fails", "1.0.0", fails)
        .orchestration("waits", "1.0.0", waits)
        .orchestration("parent", "1.0.0", parent)
        .orchestration("again", "1.0.0", again)
        .orchestration("works", "1.0.0", works)
}

async fn runtime(stage: &Stage) -> Runtime {
    orchestrations(stage.runtime()).start().await.unwrap()
}

async fn until_there(client: &Client, id: &str) {
    while client.status(id).await.is_err() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// All rows that a filter shows, in pages.
async fn all(client: &Client, filter: &Filter, page: usize) -> Vec<InstanceRow> {
    let (mut rows, mut after) = (Vec::new(), None);
    loop {
        let found = client.list_rows(filter.clone(), after, page).await.unwrap();
        assert!(found.rows.len() <= page && (found.next.is_none() || found.rows.len() == page));
        rows.extend(found.rows);
        after = found.next;
        if after.is_none() {
            return rows;
        }
    }
}

fn attribute(name: &str, value: impl Into<Payload>) -> Filter {
    Filter::new().attribute(name, value.into())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g33_every_filter_shows_what_it_says_in_pages_of_any_size_in_both_directions() {
    on_each_stage(async |stage| {
        // Nothing moves while it is looked at: the blocked one is not tried again.
        let shard = ShardOptions { retry_first: Duration::from_millis(3_600_000), ..relaxed().shard };
        let options = RuntimeOptions { shard, ..relaxed() };
        let runtime = orchestrations(stage.runtime()).options(options).start().await.unwrap();
        let client = runtime.client();
        for n in 0..24_u64 {
            let region = if n % 3 == 0 { "eu" } else { "us" };
            let options =
                || StartOptions::default().attribute("region", region).attribute("n", number(n % 4));
            let names = ["echo", "fails", "waits", "again"];
            let name = names[n as usize % 4];
            client.start_with(name, &format!("{name}-{n:02}"), number(2), options()).await.unwrap();
        }
        client.start_with("echo", "echo-older", (), at("1.0.0")).await.unwrap();
        client.start_with("echo", "blocked", (), at("7.0.0")).await.unwrap();
        until_blocked(&client, "blocked", "PER-0301").await;
        client
            .start_with("echo", "later", (), StartOptions::default().delay(Duration::from_secs(3_600)))
            .await
            .unwrap();
        client.start("parent", "parent", json!(["child-1", "child-2"])).await.unwrap();
        until_there(&client, "child-2").await;
        client.cancel("waits-02", "").await.unwrap();
        client.terminate("waits-06", "").await.unwrap();
        let is_settled = |row: &InstanceRow| match row.id.as_str() {
            "blocked" | "later" => row.status == Status::Pending,
            "waits-02" | "waits-06" => row.status.is_final(),
            _ if ["waits", "parent"].contains(&row.name.as_str()) => row.status == Status::Running,
            _ => row.status.is_final(),
        };
        while !all(&client, &Filter::new(), 1_000).await.iter().all(is_settled) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }

        let everything = all(&client, &Filter::new(), 1_000).await;
        assert_eq!(everything.len(), 30);
        let middle_ms = everything[15].created_ms;
        let ended_ms = everything.iter().filter_map(|row| row.ended_ms).max().unwrap();
        let parent = client.status("parent").await.unwrap().key;
        let mut filters = vec![Filter::new()];
        filters.extend(Status::ALL.map(|status| Filter::new().status(status)));
        filters.extend([
            Filter::new().statuses([Status::Completed, Status::Failed, Status::Pending]),
            Filter::new().orchestration("echo"),
            Filter::new().orchestration("nobody"),
            Filter::new().version("2.0.0"),
            Filter::new().orchestration("echo").version("1.0.0"),
            Filter::new().id_prefix("waits-1"),
            Filter::new().id_prefix("a").status(Status::Completed),
            Filter::new().blocked(true),
            Filter::new().blocked(false).orchestration("echo"),
            Filter::new().parent(parent),
            attribute("region", "eu"),
            attribute("n", number(3)),
            attribute("region", "us").orchestration("waits").status(Status::Running),
            attribute("region", "mars"),
            Filter::new().created_from(Timestamp::from_millis(middle_ms)),
            Filter::new().created_before(Timestamp::from_millis(middle_ms)),
            Filter::new()
                .created_from(Timestamp::from_millis(middle_ms))
                .created_before(Timestamp::from_millis(middle_ms + 1)),
            Filter::new().ended_before(Timestamp::from_millis(ended_ms)),
            Filter::new().ended_before(Timestamp::from_millis(ended_ms + 1)).orchestration("echo"),
        ]);
        let guest = stage.guest();
        for filter in filters {
            let mut expected: Vec<InstanceRow> =
                everything.iter().filter(|row| filter.criteria().matches(row)).cloned().collect();
            for newest_first in [false, true] {
                let filter = filter.clone().newest_first(newest_first);
                for page in [1, 4, 1_000] {
                    assert_eq!(all(&client, &filter, page).await, expected, "{filter:?} by {page}");
                }
                if let Some(guest) = &guest {
                    assert_eq!(all(guest, &filter, 5).await, expected, "{filter:?} from another process");
                }
                expected.reverse();
            }
            let count = Count { rows: expected.len() as u64, more: false };
            assert_eq!(client.count(filter.clone()).await, Ok(count), "{filter:?}");
        }
        stage.finish(runtime, &ClientLog::default(), orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g33_stats_tell_how_much_there_is_of_what() {
    on_each_stage(async |stage| {
        let (begun, gate) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (notify, wait) = (Arc::clone(&begun), Arc::clone(&gate));
        let runtime = orchestrations(stage.runtime())
            .activity("slow", move |_: ActivityContext, _: Payload| {
                let (begun, gate) = (Arc::clone(&notify), Arc::clone(&wait));
                async move {
                    begun.notify_one();
                    gate.notified().await;
                    Ok::<_, Payload>(Payload::null())
                }
            })
            .activity("breaks", |_: ActivityContext, _: Payload| async {
                Outcome::Err(Payload::from("broken"))
            })
            .start()
            .await
            .unwrap();
        let client = runtime.client();
        let delayed = StartOptions::default().delay(Duration::from_secs(3_600));
        client.start_with("echo", "later", (), delayed).await.unwrap();
        client.start("echo", "done", ()).await.unwrap();
        client.start("fails", "failed", ()).await.unwrap();
        client.start("works", "nobody can", "not registered").await.unwrap();
        client.start("works", "tries again", "breaks").await.unwrap();
        client.start("works", "under way", "slow").await.unwrap();
        client.start_with("echo", "blocked", (), at("7.0.0")).await.unwrap();
        until_blocked(&client, "blocked", "PER-0301").await;
        begun.notified().await;
        let stats = loop {
            let stats = client.stats().await.unwrap();
            if stats.tasks_waiting.rows == 1 && stats.tasks_queued.rows == 1 {
                break stats;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        let of = |status: Status| {
            stats.instances.iter().find(|(other, _)| *other == status).map_or(0, |(_, count)| count.rows)
        };
        // The blocked one has not taken a turn yet.
        assert_eq!(of(Status::Pending), 2);
        assert_eq!(of(Status::Running), 3);
        assert_eq!((of(Status::Completed), of(Status::Failed), of(Status::Cancelled)), (1, 1, 0));
        assert_eq!(stats.blocked.rows, 1);
        assert_eq!(stats.tasks_leased.rows, 0, "a first local attempt has no row");
        assert_eq!(stats.requests.rows, 0);
        if let Some(guest) = stage.guest() {
            let theirs = guest.stats().await.unwrap();
            assert_eq!((theirs.instances, theirs.tasks_queued), (stats.instances, stats.tasks_queued));
        }
        gate.notify_one();
        client.result("under way").await.unwrap();
        stage.finish(runtime, &ClientLog::default(), orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g33_the_history_of_every_execution_can_be_read() {
    on_each_stage(async |stage| {
        let runtime = runtime(stage).await;
        let client = runtime.client();
        client.start("again", "a", number(3)).await.unwrap();
        client.result("a").await.unwrap();
        for execution in 1..=4 {
            let history = client.history_of("a", execution).await.unwrap();
            let started = history.started().unwrap();
            assert_eq!((started.execution, &started.input), (execution, &number(4 - execution)));
            if let Some(guest) = stage.guest() {
                assert_eq!(guest.history_of("a", execution).await.unwrap(), history);
            }
        }
        assert_eq!(client.history("a").await.unwrap(), client.history_of("a", 4).await.unwrap());
        assert_eq!(client.history_of("nobody", 1).await.unwrap_err(), not_found("nobody"));
        stage.finish(runtime, &ClientLog::default(), orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g33_delete_takes_what_has_ended_with_its_children_and_runs_over_nothing_unless_forced() {
    on_each_stage(async |stage| {
        let runtime = runtime(stage).await;
        let mut log = ClientLog::default();
        let guest = stage.guest().map(|guest| ("guest", guest));
        for (who, client) in [("own", runtime.client())].into_iter().chain(guest) {
            let (id, one, two) = (who.to_owned(), format!("{who}-1"), format!("{who}-2"));
            let refused =
                |id: &str| Err(ClientError::NotEnded { id: id.to_owned(), status: Status::Running });
            assert_eq!(client.delete(&id, false).await, Err(not_found(&id)));
            runtime.client().start("parent", &id, json!([one, two])).await.unwrap();
            for child in [&one, &two] {
                until_there(&client, child).await;
                until(&client, child, |status| status.status == Status::Running).await;
            }
            assert_eq!(client.delete(&id, false).await, refused(&id), "{who}");
            // It has ended; one of its children still runs.
            client.raise_event(&id, "go", ()).await.unwrap();
            client.raise_event(&one, "go", ()).await.unwrap();
            for ended in [&id, &one] {
                until(&client, ended, |status| status.status.is_final()).await;
            }
            assert_eq!(client.delete(&id, false).await, refused(&two), "{who}");
            assert_eq!(client.tree(&id).await.unwrap().size(), 3, "{who}: nothing was touched");
            assert_eq!(client.delete(&id, true).await, Ok(3), "{who}");
            for gone in [&id, &one, &two] {
                assert_eq!(client.status(gone).await, Err(not_found(gone)), "{who}");
                assert_eq!(runtime.client().query(gone, "x", ()).await, Err(not_found(gone)), "{who}");
            }
            // Their ids are free.
            runtime.client().start("echo", &id, "new").await.unwrap();
            assert_eq!(client.result(&id).await.unwrap().as_json(), r#""new""#);
            log.deleted(&one);
            log.deleted(&two);
            log.started(&id);
        }
        stage.finish(runtime, &log, orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g33_actions_over_a_filter_reach_all_it_shows_and_report_their_progress() {
    const EACH: u64 = 30;
    on_each_stage(async |stage| {
        let mut log = ClientLog::default();
        let first = runtime(stage).await;
        for n in 0..EACH {
            for kind in ["cancel", "terminate", "raise", "delete", "bystander"] {
                let id = format!("{kind}-{n}");
                let options = StartOptions::default().attribute("kind", kind);
                first.client().start_with("waits", &id, (), options).await.unwrap();
            }
        }
        let client = first.client();
        // Some have ended before: they are passed over.
        for id in ["cancel-0", "terminate-0", "raise-0", "delete-0"] {
            client.raise_event(id, "go", ()).await.unwrap();
            client.result(id).await.unwrap();
        }
        let reason = "spring cleaning".to_owned();
        for (kind, action, ended) in [
            ("cancel", Action::Cancel { reason: reason.clone(), grace: None }, Status::Cancelled),
            ("terminate", Action::Terminate { reason }, Status::Terminated),
            ("raise", Action::Raise { event: "go".to_owned(), payload: number(1) }, Status::Completed),
        ] {
            let mut seen = Vec::new();
            let filter = attribute("kind", kind);
            let report =
                client.for_each(filter.clone(), action, |progress| seen.push(progress.seen)).await.unwrap();
            let expected = Progress { seen: EACH, done: EACH - 1, skipped: 1, ..Progress::default() };
            assert_eq!(report, expected, "{kind}");
            assert_eq!(seen, (1..=EACH).collect::<Vec<_>>(), "{kind}");
            let ended = filter.status(ended);
            while client.count(ended.clone()).await.unwrap().rows < EACH - 1 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        let delete = |force| Action::Delete { force };
        let filter = attribute("kind", "delete");
        let report = client.for_each(filter.clone(), delete(false), |_| ()).await.unwrap();
        assert_eq!((report.done, report.skipped), (1, EACH - 1), "only what has ended");
        let report = client.for_each(filter.clone(), delete(true), |_| ()).await.unwrap();
        assert_eq!((report.done, report.skipped), (EACH - 1, 0));
        assert_eq!(client.count(filter).await.unwrap().rows, 0);
        (0..EACH).for_each(|n| log.deleted(&format!("delete-{n}")));
        let bystanders = attribute("kind", "bystander").status(Status::Running);
        assert_eq!(client.count(bystanders.clone()).await.unwrap().rows, EACH);
        first.shutdown().await.unwrap();

        // Blocked together, and tried again together.
        let without = stage.runtime().orchestration("echo", "1.0.0", echo).start().await.unwrap();
        let client = without.client();
        let raise = Action::Raise { event: "go".to_owned(), payload: number(1) };
        assert_eq!(client.for_each(bystanders.clone(), raise, |_| ()).await.unwrap().done, EACH);
        let blocked = attribute("kind", "bystander").blocked(true);
        while client.count(blocked.clone()).await.unwrap().rows < EACH {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let report = client.for_each(blocked, Action::Retry, |_| ()).await.unwrap();
        assert_eq!((report.done + report.skipped, report.failed), (EACH, 0), "{report:?}");
        without.shutdown().await.unwrap();
        let with = runtime(stage).await;
        for n in 0..EACH {
            let id = format!("bystander-{n}");
            assert_eq!(with.client().result(&id).await.unwrap(), number(1));
            log.started(id);
        }
        stage.finish(with, &log, orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g33_prune_goes_by_age_by_count_and_by_filter() {
    on_each_stage(async |stage| {
        let runtime = runtime(stage).await;
        let client = runtime.client();
        for n in 0..10 {
            let options = StartOptions::default().attribute("keep", json!(n % 2 == 0));
            client.start_with("echo", &format!("e-{n}"), (), options).await.unwrap();
            client.result(&format!("e-{n}")).await.unwrap();
        }
        client.start("waits", "running", ()).await.unwrap();
        let ids = async || -> Vec<String> {
            all(&client, &Filter::new(), 100).await.into_iter().map(|row| row.id).collect()
        };
        let young = client.prune(Prune::all().older_than(Duration::from_secs(60)), |_| ()).await.unwrap();
        assert_eq!((young.seen, young.done), (0, 0), "none is that old");
        let of_some = Prune::all().only(attribute("keep", json!(false))).keep_newest(1);
        let mut calls = 0;
        let report = client.prune(of_some.pause(Duration::from_millis(1)), |_| calls += 1).await.unwrap();
        assert_eq!((report.seen, report.done, report.skipped), (5, 4, 1));
        assert!(calls > 0);
        assert_eq!(ids().await, ["e-0", "e-2", "e-4", "e-6", "e-8", "e-9", "running"]);
        assert_eq!(client.prune(Prune::all().keep_newest(2), |_| ()).await.unwrap().done, 4);
        assert_eq!(ids().await, ["e-8", "e-9", "running"]);
        assert_eq!(client.prune(Prune::all(), |_| ()).await.unwrap().done, 2);
        assert_eq!(ids().await, ["running"]);
        client.raise_event("running", "go", "untouched").await.unwrap();
        assert_eq!(client.result("running").await.unwrap().as_json(), r#""untouched""#);
        stage.finish(runtime, &ClientLog::default(), orchestrations).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g33_prune_deletes_nothing_that_its_filter_does_not_show() {
    on_each_stage(async |stage| {
        let runtime = runtime(stage).await;
        let client = runtime.client();
        for (name, id) in [("echo", "fine"), ("fails", "failed")] {
            client.start(name, id, ()).await.unwrap();
            client.wait(id).await.unwrap();
        }
        client.start("waits", "running", ()).await.unwrap();
        let pruned =
            async |filter: Filter| client.prune(Prune::all().only(filter), |_| ()).await.unwrap().done;
        let running = Filter::new().status(Status::Running);
        assert_eq!(
            pruned(running).await,
            0,
            "what asks only for what runs is not turned into all that has ended"
        );
        let long_ago = Filter::new().ended_before(Timestamp::from_millis(1));
        assert_eq!(pruned(long_ago).await, 0, "nothing ended that long ago");
        let failed = Filter::new().statuses([Status::Failed, Status::Running]);
        assert_eq!(pruned(failed).await, 1);
        let left = all(&client, &Filter::new(), 100).await;
        assert_eq!(left.into_iter().map(|row| row.id).collect::<Vec<_>>(), ["fine", "running"]);
        client.raise_event("running", "go", ()).await.unwrap();
        client.wait("running").await.unwrap();
        stage.finish(runtime, &ClientLog::default(), orchestrations).await;
    })
    .await;
}
