//! Versions: pinned, removed and restored, the latest by semver, and patches within one (G27, E20).

use perennial::history::{Decision, EventKind};
use perennial::{
    ClientError, Error, Filter, OrchestrationContext, Payload, Runtime, RuntimeBuilder, StartError, Status,
};
use perennial_core::Handlers;
use perennial_testkit::invariants::ClientLog;

use crate::support::stage::{Stage, on_each_stage};
use crate::support::{at, failed, until_blocked};

type Outcome = Result<Payload, Payload>;

/// Says which code it is, before and after a wait.
async fn code(ctx: OrchestrationContext, which: &str) -> Outcome {
    let before = ctx.schedule_activity("note", which).typed::<String>().await.map_err(failed)?;
    ctx.schedule_wait("go").await;
    let after = ctx.schedule_activity("note", which).typed::<String>().await.map_err(failed)?;
    Ok(Payload::from(format!("{before} {after} {}", ctx.info().version)))
}

async fn old(ctx: OrchestrationContext, _: Payload) -> Outcome {
    code(ctx, "old").await
}

async fn new(ctx: OrchestrationContext, _: Payload) -> Outcome {
    code(ctx, "new").await
}

/// Says which version runs.
async fn which(ctx: OrchestrationContext, _: Payload) -> Outcome {
    Ok(Payload::from(ctx.info().version))
}

/// Before the patch.
async fn unpatched(ctx: OrchestrationContext, _: Payload) -> Outcome {
    ctx.schedule_wait("go").await;
    ctx.schedule_activity("note", Payload::from("paid")).await.map_err(failed)
}

/// The same orchestration at the same version, with another step.
async fn patched(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let checks = ctx.patched("check before payment");
    if checks {
        ctx.schedule_activity("note", "checked").await.map_err(failed)?;
    }
    ctx.schedule_wait("go").await;
    let paid: String = ctx.schedule_activity("note", "paid").typed().await.map_err(failed)?;
    Ok(Payload::from(if checks { format!("checked and {paid}") } else { paid }))
}

/// Without the gate, once no instance from before it is left.
async fn gate_removed(ctx: OrchestrationContext, _: Payload) -> Outcome {
    ctx.schedule_activity("note", "checked").await.map_err(failed)?;
    ctx.schedule_wait("go").await;
    let paid: String = ctx.schedule_activity("note", "paid").typed().await.map_err(failed)?;
    Ok(Payload::from(format!("checked and {paid}")))
}

fn builder(stage: &Stage) -> RuntimeBuilder {
    stage
        .runtime()
        .activity("note", |_: perennial::ActivityContext, input: Payload| async { Ok::<_, Payload>(input) })
}

fn both() -> Handlers {
    Runtime::open("memory:")
        .orchestration("order", "1.0.0", old)
        .orchestration("order", "2.0.0", new)
        .handlers()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g27_version_1_stays_pinned_across_a_restart_while_2_is_registered() {
    on_each_stage(async |stage| {
        let mut log = ClientLog::default();
        let runtime = builder(stage).orchestration("order", "1.0.0", old).start().await.unwrap();
        runtime.client().start("order", "before", ()).await.unwrap();
        log.started("before");
        runtime.shutdown().await.unwrap();

        let runtime = builder(stage)
            .orchestration("order", "2.0.0", new)
            .orchestration("order", "1.0.0", old)
            .start()
            .await
            .unwrap();
        let client = runtime.client();
        client.start("order", "after", ()).await.unwrap();
        client.start_with("order", "exact", (), at("1.0.0")).await.unwrap();
        for (id, result) in [
            ("before", r#""old old 1.0.0""#),
            ("after", r#""new new 2.0.0""#),
            ("exact", r#""old old 1.0.0""#),
        ] {
            log.started(id);
            client.raise_event(id, "go", ()).await.unwrap();
            assert_eq!(client.result(id).await.unwrap().as_json(), result);
        }
        for (version, ids) in [("1.0.0", &["before", "exact"][..]), ("2.0.0", &["after"])] {
            let filter = Filter::new().version(version);
            let rows = client.list(filter, None, 10).await.unwrap().rows;
            assert_eq!(rows.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), ids);
        }
        runtime.shutdown().await.unwrap();
        stage.check(&log, &both());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g27_a_version_that_is_removed_blocks_and_once_restored_it_finishes() {
    on_each_stage(async |stage| {
        let mut log = ClientLog::default();
        let runtime = builder(stage).orchestration("order", "1.0.0", old).start().await.unwrap();
        runtime.client().start("order", "o", ()).await.unwrap();
        log.started("o");
        log.troubled("o");
        runtime.shutdown().await.unwrap();

        let runtime = builder(stage).orchestration("order", "2.0.0", new).start().await.unwrap();
        let client = runtime.client();
        // Something to do is what shows that it cannot be done; the event itself is kept.
        client.raise_event("o", "go", ()).await.unwrap();
        log.raised("me", "o", "go", ());
        let status = until_blocked(&client, "o", "PER-0301").await;
        assert_eq!((status.status, status.version.as_str()), (Status::Running, "1.0.0"));
        let reason = status.blocked.unwrap().reason;
        assert!(reason.contains("order 1.0.0 is not registered"), "{reason}");
        let blocked = Filter::new().blocked(true);
        assert_eq!(client.count(blocked).await.unwrap().rows, 1);
        assert_eq!(client.stats().await.unwrap().blocked.rows, 1);
        // Its neighbours do not mind.
        client.start("order", "other", ()).await.unwrap();
        log.started("other");
        client.raise_event("other", "go", ()).await.unwrap();
        assert_eq!(client.result("other").await.unwrap().as_json(), r#""new new 2.0.0""#);
        runtime.shutdown().await.unwrap();
        stage.check(&log, &both());

        let runtime = builder(stage)
            .orchestration("order", "1.0.0", old)
            .orchestration("order", "2.0.0", new)
            .start()
            .await
            .unwrap();
        assert_eq!(runtime.client().result("o").await.unwrap().as_json(), r#""old old 1.0.0""#);
        assert_eq!(runtime.client().status("o").await.unwrap().blocked, None);
        runtime.shutdown().await.unwrap();
        stage.check(&log, &both());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g27_the_latest_is_the_highest_by_semver_and_a_release_if_there_is_one() {
    for (registered, latest) in [
        (&["1.9.0", "1.10.0", "1.2.30"][..], "1.10.0"),
        (&["1.0.0", "2.0.0-beta.1"], "1.0.0"),
        (&["2.0.0", "2.0.0-beta.1", "10.0.0-alpha"], "2.0.0"),
        (&["0.1.0-alpha.2", "0.1.0-alpha.10"], "0.1.0-alpha.10"),
    ] {
        on_each_stage(async |stage| {
            let with =
                |builder: RuntimeBuilder, version: &&str| builder.orchestration("which", version, which);
            let runtime = registered.iter().fold(stage.runtime(), with).start().await.unwrap();
            let client = runtime.client();
            client.start("which", "w", ()).await.unwrap();
            assert_eq!(client.result("w").await.unwrap(), Payload::from(latest), "of {registered:?}");
            assert_eq!(client.status("w").await.unwrap().version, latest);
            runtime.shutdown().await.unwrap();
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g27_what_is_no_version_is_refused_when_the_runtime_starts() {
    for version in ["1", "1.0", "v1.0.0", "1.0.0.0", "latest", "", " 1.0.0", "01.0.0"] {
        let refused = Runtime::open("memory:").orchestration("which", version, which).start().await.err();
        let Some(Error::Start(error @ StartError::Version { .. })) = refused else {
            panic!("{version:?}: {refused:?}")
        };
        let text = error.to_string();
        assert!(text.starts_with("PER-0619 bad version: orchestration \"which\""), "{text}");
    }
    let twice = Runtime::open("memory:")
        .orchestration("which", "1.0.0", which)
        .orchestration("which", "1.0.0", which);
    let refused = twice.start().await.err();
    assert!(matches!(refused, Some(Error::Start(StartError::RegisteredTwice { .. }))), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g27_a_start_at_a_version_that_nobody_has_is_blocked_not_lost() {
    on_each_stage(async |stage| {
        let mut log = ClientLog::default();
        let runtime = builder(stage).orchestration("which", "1.0.0", which).start().await.unwrap();
        let client = runtime.client();
        let missing = client.start("who", "w", ()).await;
        assert_eq!(missing, Err(ClientError::NotRegistered { name: "who".to_owned(), similar: None }));
        client.start_with("which", "w", (), at("2.0.0")).await.unwrap();
        log.started("w");
        log.troubled("w");
        until_blocked(&client, "w", "PER-0301").await;
        runtime.shutdown().await.unwrap();
        let runtime = builder(stage).orchestration("which", "2.0.0", which).start().await.unwrap();
        assert_eq!(runtime.client().result("w").await.unwrap().as_json(), r#""2.0.0""#);
        runtime.shutdown().await.unwrap();
        stage.check(&log, &Runtime::open("memory:").orchestration("which", "2.0.0", which).handlers());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e20_an_old_instance_goes_on_without_the_patch_and_a_new_one_with_it() {
    on_each_stage(async |stage| {
        let mut log = ClientLog::default();
        let runtime = builder(stage).orchestration("pay", "1.0.0", unpatched).start().await.unwrap();
        runtime.client().start("pay", "before", ()).await.unwrap();
        log.started("before");
        runtime.shutdown().await.unwrap();

        let runtime = builder(stage).orchestration("pay", "1.0.0", patched).start().await.unwrap();
        let client = runtime.client();
        for id in ["after", "later"] {
            client.start("pay", id, ()).await.unwrap();
            log.started(id);
        }
        client.raise_event("before", "go", ()).await.unwrap();
        assert_eq!(client.result("before").await.unwrap().as_json(), r#""paid""#);
        client.raise_event("after", "go", ()).await.unwrap();
        assert_eq!(client.result("after").await.unwrap().as_json(), r#""checked and paid""#);
        let marks = |history: perennial::history::History| {
            let is_mark = |kind: &EventKind| {
                matches!(kind, EventKind::Decision { decision: Decision::PatchMarked { .. }, .. })
            };
            history.flatten().filter(|event| is_mark(&event.kind)).count()
        };
        assert_eq!(marks(client.history("before").await.unwrap()), 0);
        assert_eq!(marks(client.history("after").await.unwrap()), 1);
        runtime.shutdown().await.unwrap();
        stage.check(&log, &Runtime::open("memory:").orchestration("pay", "1.0.0", patched).handlers());

        // The gate can go while instances with its mark are under way.
        let runtime = builder(stage).orchestration("pay", "1.0.0", gate_removed).start().await.unwrap();
        let client = runtime.client();
        client.raise_event("later", "go", ()).await.unwrap();
        assert_eq!(client.result("later").await.unwrap().as_json(), r#""checked and paid""#);
        runtime.shutdown().await.unwrap();
        stage.check(&log, &Runtime::open("memory:").orchestration("pay", "1.0.0", patched).handlers());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g28_a_change_without_a_patch_or_a_version_blocks_until_it_is_taken_back() {
    on_each_stage(async |stage| {
        let mut log = ClientLog::default();
        let runtime = builder(stage).orchestration("pay", "1.0.0", unpatched).start().await.unwrap();
        runtime.client().start("pay", "p", ()).await.unwrap();
        log.started("p");
        log.troubled("p");
        runtime.shutdown().await.unwrap();
        let runtime = builder(stage).orchestration("pay", "1.0.0", gate_removed).start().await.unwrap();
        let client = runtime.client();
        client.raise_event("p", "go", ()).await.unwrap();
        let blocked = until_blocked(&client, "p", "PER-0203").await.blocked.unwrap();
        assert!(blocked.report.contains("the code did ActivityScheduled"), "{}", blocked.report);
        runtime.shutdown().await.unwrap();
        let runtime = builder(stage).orchestration("pay", "1.0.0", unpatched).start().await.unwrap();
        assert_eq!(runtime.client().result("p").await.unwrap().as_json(), r#""paid""#);
        runtime.shutdown().await.unwrap();
        stage.check(&log, &Runtime::open("memory:").orchestration("pay", "1.0.0", unpatched).handlers());
    })
    .await;
}
