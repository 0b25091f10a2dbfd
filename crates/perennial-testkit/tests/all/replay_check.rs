//! The replay check: recorded histories with changed code.

use perennial::Client;
use perennial::client::ExportedInstance;
use perennial::prelude::*;
use perennial_testkit::TestEnvironment;

#[activity]
async fn pick(_: ActivityContext, item: String) -> Result<String, String> {
    Ok(item)
}

#[orchestration]
async fn parcel(ctx: OrchestrationContext, item: String) -> Result<String, String> {
    let picked = ctx.schedule_activity(pick, item).await?;
    ctx.schedule_timer(Duration::from_secs(60)).await;
    Ok(picked)
}

#[orchestration]
async fn rounds(ctx: OrchestrationContext, left: u32) -> Result<(), String> {
    ctx.schedule_timer(Duration::from_secs(1)).await;
    if left == 0 { Ok(()) } else { ctx.continue_as_new(left - 1).await }
}

mod changed {
    use super::*;

    #[orchestration]
    pub(super) async fn parcel(ctx: OrchestrationContext, item: String) -> Result<String, String> {
        let picked = ctx.schedule_activity(pick, item).await?;
        ctx.schedule_timer(Duration::from_secs(61)).await;
        Ok(picked)
    }
}

fn recorded() -> String {
    let mut env = TestEnvironment::new().register(parcel).register(rounds).register(pick);
    env.run(parcel, "book".to_owned()).unwrap();
    env.run(rounds, 2).unwrap();
    env.export()
}

#[test]
fn i15_the_code_replays_every_execution_that_it_recorded() {
    let check = TestEnvironment::new().register(parcel).register(rounds).replay_lines(&recorded());
    assert!(check.is_ok(), "{check}");
    assert_eq!(check.compatible, 4, "one parcel and three rounds");
}

#[test]
fn p_kit_a_divergence_names_line_instance_event_and_source() {
    let check = TestEnvironment::new().register(changed::parcel).register(rounds).replay_lines(&recorded());
    assert!(!check.is_ok());
    assert_eq!((check.compatible, check.differences.len()), (3, 1));
    let found = &check.differences[0];
    assert_eq!((found.line, found.id.as_str(), found.execution), (1, "parcel-1", 1));
    assert_eq!(found.event.unwrap().0, 4);
    assert!(found.location.as_deref().unwrap().contains("replay_check.rs:"), "{found:?}");
    assert!(check.to_string().contains("PER-0203"), "{check}");
}

/// Code that never finishes a turn: one function calls its context, the other does not.
mod restless {
    use super::*;

    #[orchestration]
    pub(super) async fn parcel(ctx: OrchestrationContext, _: String) -> Result<String, String> {
        loop {
            ctx.now();
        }
    }

    #[orchestration]
    pub(super) async fn rounds(_: OrchestrationContext, _: u32) -> Result<(), String> {
        loop {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn p_kit_code_that_never_rests_is_reported_and_hangs_no_gate() {
    let env = TestEnvironment::new().register(restless::parcel).register(restless::rounds);
    let check = env.replay_deadline(Duration::from_millis(100)).replay_lines(&recorded());
    let found: Vec<&str> = check.differences.iter().map(|found| found.id.as_str()).collect();
    assert_eq!(found, ["parcel-1", "rounds-2", "rounds-2", "rounds-2"], "{check}");
    for found in &check.differences {
        assert!(found.report.starts_with("PER-0205 deadline: turn 1 of "), "{found:?}");
        assert!(found.report.contains("what to do: look for a loop"), "{found:?}");
    }
}

#[test]
fn p_kit_the_check_reads_like_this() {
    let check = TestEnvironment::new().register(changed::parcel).replay_lines(&recorded());
    let settings = {
        let mut settings = insta::Settings::clone_current();
        settings.add_filter(r"[a-z/_-]*replay_check\.rs:\d+:\d+", "tests/orders.rs:[line]");
        settings
    };
    settings.bind(|| insta::assert_snapshot!(check.to_string()));
}

#[test]
fn p_kit_missing_code_bad_lines_and_nothing_at_all_are_no_pass() {
    let env = TestEnvironment::new().register(rounds);
    let check = env.replay_lines(&recorded());
    assert!(check.differences[0].report.contains("PER-0301 missing code: parcel 1.0.0"), "{check}");
    let check = env.replay_lines("{\"id\": 7}");
    assert!(check.differences[0].report.starts_with("the line is not an instance"), "{check}");
    assert!(!env.replay_lines("\n").is_ok(), "an empty file proves nothing");
}

#[test]
fn p_kit_the_gate_reads_a_file_or_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("july.jsonl"), recorded()).unwrap();
    std::fs::write(directory.path().join("notes.txt"), "no histories").unwrap();
    let env = TestEnvironment::new().register(parcel).register(rounds);
    env.assert_replays(directory.path());
    env.assert_replays(directory.path().join("july.jsonl"));
    let changed = TestEnvironment::new().register(changed::parcel).register(rounds);
    let gate = || changed.assert_replays(directory.path());
    let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(gate)).unwrap_err();
    let words = refused.downcast_ref::<String>().unwrap();
    assert!(words.contains("do not replay") && words.contains("1 incompatible"), "{words}");
    assert!(words.contains("july.jsonl:1, instance \"parcel-1\", execution 1"), "{words}");
    assert!(env.replay_files(directory.path().join("august.jsonl")).is_err());
}

#[tokio::test]
async fn p_kit_what_a_client_exports_is_what_the_gate_reads() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", directory.path().join("a.db").display());
    let runtime = Runtime::open(&url).register(parcel).register(pick).start().await.unwrap();
    runtime.client().start(parcel, "p", "book".to_owned()).await.unwrap();
    let exported: ExportedInstance = Client::open(&url).unwrap().export("p").await.unwrap();
    assert_eq!((exported.id.as_str(), exported.status), ("p", Some(Status::Running)));
    let line = serde_json::to_string(&exported).unwrap();
    assert!(TestEnvironment::new().register(parcel).replay_lines(&line).is_ok());
}
