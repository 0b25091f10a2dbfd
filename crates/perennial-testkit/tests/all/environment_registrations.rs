//! The program's registrations in a test, and their replacements.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use perennial::options::VersionPolicy;
use perennial::prelude::*;
use perennial_testkit::{Failure, TestEnvironment, crash_everywhere};

struct Pool(&'static str);

#[activity(state(Pool, Arc<AtomicU32>))]
async fn save(ctx: ActivityContext, text: String) -> Result<String, String> {
    ctx.state::<Arc<AtomicU32>>().fetch_add(1, Ordering::Relaxed);
    Ok(format!("{text} in {}", ctx.state::<Pool>().0))
}

#[orchestration(uses(save))]
async fn note(ctx: OrchestrationContext, text: String) -> Result<String, String> {
    Ok(ctx.schedule_activity(save, text).await?)
}

fn app() -> Registrations {
    Registrations::new()
        .register(note)
        .register(save)
        .state(Pool("the real database"))
        .state(Arc::new(AtomicU32::new(0)))
        .fallback_activity("echo.*", |_: ActivityContext, name: String, text: String| async move {
            Ok::<_, String>(format!("{name} {text}"))
        })
        .orchestration("echoes", "1.0.0", |ctx: OrchestrationContext, text: String| async move {
            ctx.schedule_activity("echo.loud", text).await
        })
}

#[tokio::test]
async fn p4_runtime_and_test_environment_take_the_same_registrations() {
    let runtime = Runtime::open("memory:").registrations(app()).start().await.unwrap();
    let run = runtime.client().start(note, "n", "tea".to_owned()).await.unwrap();
    let live = run.result().await.unwrap();
    runtime.shutdown().await.unwrap();
    let mut env = TestEnvironment::new().registrations(app());
    assert_eq!(env.run(note, "tea".to_owned()), Ok(live));
    assert_eq!(env.run("echoes", "tea").unwrap(), "echo.loud tea");
}

#[test]
fn p4_a_test_replaces_state_in_any_order() {
    let counted = Arc::new(AtomicU32::new(0));
    let env = TestEnvironment::new().state(Pool("a fake")).registrations(app());
    let mut env = env.state(Pool("memory")).state(Arc::clone(&counted));
    assert_eq!(env.run(note, "tea".to_owned()).unwrap(), "tea in memory");
    assert_eq!(counted.load(Ordering::Relaxed), 1);
}

#[test]
fn i17_every_run_of_crash_everywhere_takes_the_registrations() {
    let report = crash_everywhere(|env| env.registrations(app()).run(note, "tea".to_owned()));
    assert_eq!(report.unwrap().activities, 1);
}

#[test]
#[should_panic(expected = "PER-0625 missing state: activity \"save\" needs a ")]
fn p4_a_test_without_declared_state_does_not_start() {
    let env = TestEnvironment::new().register(note).register(save);
    drop(env.state(Pool("memory")).run(note, String::new()));
}

#[test]
#[should_panic(expected = "orchestration \"note\" 1.0.0 uses the activity \"save\"")]
fn p4_a_test_without_a_declared_use_does_not_start() {
    drop(TestEnvironment::new().register(note).run(note, String::new()));
}

#[test]
fn p4_mocked_activities_need_neither_registration_nor_state() {
    let mut env = TestEnvironment::new().register(note).mock(save, |text| Ok(format!("{text}, mocked")));
    assert_eq!(env.run(note, "tea".to_owned()).unwrap(), "tea, mocked");
    let env = TestEnvironment::new().register(note).register(save);
    let mut env = env.mock(save, |_| Err("no space".to_owned()));
    assert!(
        matches!(env.run(note, String::new()), Err(Failure::Failed(error)) if error.contains("no space"))
    );
}

fn policies() -> Registrations {
    Registrations::new().version_policy(note, VersionPolicy::Exact("1.0.0".to_owned()))
}

#[test]
fn p4_a_version_policy_may_come_before_the_registration_of_its_version() {
    let mut env = TestEnvironment::new().registrations(policies()).registrations(app());
    assert!(env.run(note, "tea".to_owned()).is_ok());
}

#[test]
#[should_panic(expected = "the version policy of orchestration \"note\" uses version 1.0.0")]
fn p4_a_test_with_a_policy_for_a_missing_version_does_not_start() {
    let env = TestEnvironment::new().registrations(policies());
    drop({ env }.register(parent).run(parent, ()));
}

#[orchestration(uses(note))]
async fn parent(ctx: OrchestrationContext) -> Result<String, String> {
    Ok(ctx.schedule_sub_orchestration(note, "tea".to_owned()).await?)
}

#[test]
#[should_panic(expected = "orchestration \"parent\" 1.0.0 uses the orchestration \"note\"")]
fn p4_a_mocked_activity_does_not_stand_in_for_an_orchestration_of_its_name() {
    let env = TestEnvironment::new().register(parent).mock("note", |(): ()| Ok::<_, String>(()));
    drop({ env }.run(parent, ()));
}

#[test]
fn p4_a_mock_reads_the_state_of_the_environment() {
    let mut env = TestEnvironment::new().registrations(app()).state(Pool("memory")).mock_with(
        save,
        |ctx: ActivityContext, text: String| async move {
            ctx.state::<Arc<AtomicU32>>().fetch_add(1, Ordering::Relaxed);
            Ok(format!("{text} mocked in {}", ctx.state::<Pool>().0))
        },
    );
    assert_eq!(env.run(note, "tea".to_owned()).unwrap(), "tea mocked in memory");
}

#[test]
#[should_panic(expected = "PER-0603 registered twice: activity \"save\"")]
fn p4_a_test_that_registers_twice_is_refused() {
    drop(TestEnvironment::new().registrations(app()).register(save));
}

#[test]
#[should_panic(expected = "before its first start")]
fn p_kit_registering_after_the_first_start_is_refused() {
    let mut env = TestEnvironment::new().registrations(app());
    env.run(note, String::new()).unwrap();
    drop(env.state(Pool("too late")));
}
