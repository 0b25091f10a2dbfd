//! The test environment: starts with options, queries and updates, on the virtual clock and with crashes.

use perennial::prelude::*;
use perennial_testkit::{Failure, TestEnvironment, crash_everywhere};

const DAY: Duration = Duration::from_secs(86_400);
const STOP: ExternalEvent<()> = ExternalEvent::named("stop");
const COUNT: Query<(), i64> = Query::named("count");
const ADD: Update<i64, i64, String> = Update::named("add");

#[activity]
async fn audit(_: ActivityContext, by: i64) -> Result<i64, String> {
    if by > 100 { Err("too much at once".to_owned()) } else { Ok(by) }
}

/// Counts with updates that take a day and an activity each.
#[orchestration(version = "1.0.0")]
async fn counter(ctx: OrchestrationContext, from: i64) -> Result<i64, String> {
    let count = ctx.state(from);
    ctx.on_query(COUNT, &count, |count, ()| count.read(|count| *count));
    ctx.on_update(ADD, &(ctx.clone(), count.clone()), |(ctx, count), by| async move {
        ctx.schedule_timer(DAY).await;
        let by = ctx.schedule_activity(audit, by).await?;
        Ok(count.update(|count| {
            *count += by;
            *count
        }))
    })
    .validate(|_, by| if *by > 0 { Ok(()) } else { Err("only upwards".to_owned()) });
    ctx.schedule_wait(STOP).await;
    Ok(count.read(|count| *count))
}

/// The previous version, which only waits.
#[orchestration(version = "0.9.0", name = "counter")]
async fn old_counter(ctx: OrchestrationContext, from: i64) -> Result<i64, String> {
    ctx.schedule_wait(STOP).await;
    Ok(-from)
}

fn counting() -> TestEnvironment {
    TestEnvironment::new().register(counter).register(old_counter).register(audit)
}

fn options() -> StartOptions {
    StartOptions::default()
}

#[test]
fn e21_an_update_returns_its_outcome_when_its_handler_has_ended() {
    let mut env = counting();
    let run = env.start(counter, "c", 1);
    assert_eq!(env.update("c", ADD, 2), Ok(3));
    assert_eq!(env.elapsed(), DAY, "the handler waits for a day");
    assert_eq!(env.query("c", COUNT, ()), 3);
    env.raise("c", STOP, ());
    assert_eq!(env.result(&run), Ok(3));
    assert_eq!(env.query("c", COUNT, ()), 3, "an ended instance answers, too");
    let late = env.update("c", ADD, 1);
    assert_eq!(late, Err(UpdateError::Client(ClientError::Ended { id: "c".to_owned() })));
}

#[test]
fn e21_a_refused_update_is_not_recorded_and_a_failed_one_returns_its_error() {
    let mut env = counting();
    env.start(counter, "c", 1);
    let before = env.history("c").lines();
    match env.update("c", ADD, -1) {
        Err(UpdateError::Refused { error: Some(said), .. }) => assert_eq!(said, "only upwards"),
        other => panic!("{other:?}"),
    }
    assert_eq!(env.history("c").lines(), before);
    match env.update("c", ADD, 200) {
        Err(UpdateError::Failed { error, .. }) => assert_eq!(error, "too much at once"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(env.update("c", "subtract", "1"), Err(UpdateError::Refused { .. })));
    let nobody = env.update("nobody", ADD, 1);
    assert!(matches!(nobody, Err(UpdateError::Client(ClientError::NotFound { .. }))));
}

#[test]
fn p_kit_updates_are_sent_at_their_moment_and_their_outcomes_kept() {
    let mut env = counting()
        .update_at(2 * DAY, ADD, 2)
        .update_at(2 * DAY, ADD, -5)
        .update_at(10 * DAY, ADD, 10)
        .raise_at(20 * DAY, STOP, ());
    let run = env.start(counter, "c", 1);
    env.advance(2 * DAY);
    assert_eq!(env.query("c", COUNT, ()), 1, "its handler takes a day");
    env.advance(DAY);
    assert_eq!(env.query("c", COUNT, ()), 3);
    assert_eq!(env.result(&run), Ok(13));
    let outcomes = env.scripted_updates();
    let read =
        outcomes.iter().map(|(name, outcome)| (name.as_str(), outcome.as_ref().ok().map(Payload::to_text)));
    let read: Vec<_> = read.collect();
    assert_eq!(read, [("add", Some("3".to_owned())), ("add", None), ("add", Some("13".to_owned()))]);
}

#[test]
fn g16_an_update_counts_once_wherever_the_process_crashes() {
    let report = crash_everywhere(|env| {
        let env = env.register(counter).register(audit).update_at(5 * DAY, ADD, 10);
        let mut env = env.raise_at(9 * DAY, STOP, ());
        let run = env.start(counter, "c", 1);
        let sent = env.update("c", ADD, 2);
        (sent, env.result(&run), env.scripted_updates(), env.elapsed())
    });
    assert!(report.unwrap().commits > 5);
}

#[test]
fn g16_an_update_that_ends_its_instance_has_its_outcome_after_any_crash() {
    #[orchestration]
    async fn once(ctx: OrchestrationContext) -> Result<i64, String> {
        let count = ctx.state(0);
        ctx.on_update(ADD, &count, |count, by| async move {
            Ok(count.update(|count| std::mem::replace(count, by)))
        });
        ctx.wait_until(&count, |count| *count > 0).await;
        Ok(count.read(|count| *count))
    }
    let report = crash_everywhere(|env| {
        let mut env = env.register(once);
        let run = env.start(once, "o", ());
        (env.update("o", ADD, 5), env.result(&run))
    });
    report.unwrap();
}

#[test]
fn g17_a_start_finds_its_version_attributes_and_event() {
    let mut env = counting();
    let started = options()
        .version("0.9.0")
        .attribute("city", "Oslo")
        .or_raise("stop", Payload::from_json("null").unwrap());
    let run = env.start_with(counter, "c", 7, started).unwrap();
    assert_eq!(env.result(&run), Ok(-7));
    let exported: perennial::client::ExportedInstance = serde_json::from_str(env.export().trim()).unwrap();
    assert_eq!(exported.version, "0.9.0");
    let history = env.history("c");
    assert_eq!(history.history().started().unwrap().attributes["city"].to_text(), "Oslo");
    let missing = env.start_with(counter, "d", 7, options().version("7.0.0")).unwrap();
    let blocked = env.result(&missing).unwrap_err().to_string();
    assert!(blocked.contains("PER-0301"), "{blocked}");
}

#[test]
fn g17_a_start_is_delayed_and_times_out_on_the_virtual_clock() {
    let mut env = counting();
    let run = env.start_with(counter, "late", 1, options().delay(3 * DAY)).unwrap();
    env.advance(2 * DAY);
    assert_eq!(env.status("late"), Some(Status::Pending));
    env.advance(DAY);
    assert_eq!(env.status("late"), Some(Status::Running));
    env.raise("late", STOP, ());
    assert_eq!(env.result(&run), Ok(1));
    let run = env.start_with(counter, "slow", 1, options().timeout(DAY)).unwrap();
    assert!(matches!(env.result(&run), Err(Failure::Terminated { .. })));
    assert_eq!(env.elapsed(), 4 * DAY);
}

#[test]
fn g17_starts_that_are_delayed_by_less_than_a_second_begin_on_time() {
    let mut env = counting();
    for (id, ms) in [("a", 300), ("b", 200), ("c", 100)] {
        env.start_with(counter, id, 1, options().delay(Duration::from_millis(ms))).unwrap();
    }
    for begun in [["pending", "pending", "running"], ["pending", "running", "running"]] {
        env.advance(Duration::from_millis(100));
        assert_eq!(["a", "b", "c"].map(|id| env.status(id).unwrap().name()), begun);
    }
}

#[test]
fn g17_a_start_with_an_existing_id_follows_its_policy() {
    let mut env = counting();
    env.start(counter, "c", 1);
    let refused = ClientError::AlreadyExists { id: "c".to_owned(), status: Status::Running };
    let existing = |policy| options().on_existing(policy);
    for policy in [OnExisting::Reject, OnExisting::ReplaceEnded] {
        assert_eq!(env.start_with(counter, "c", 2, existing(policy)).err(), Some(refused.clone()));
    }
    let taken = env.start_with(counter, "c", 3, existing(OnExisting::Use)).unwrap();
    assert_eq!(env.query("c", COUNT, ()), 1);
    env.start_with(counter, "c", 4, options().or_raise("stop", Payload::from_json("null").unwrap())).unwrap();
    assert_eq!(env.result(&taken), Ok(1), "the event was raised at the existing instance");
    env.start_with(counter, "c", 5, existing(OnExisting::ReplaceEnded)).unwrap();
    assert_eq!(env.query("c", COUNT, ()), 5);
    env.start_with(counter, "c", 6, existing(OnExisting::TerminateAndReplace)).unwrap();
    assert_eq!(env.query("c", COUNT, ()), 6);
    assert_eq!(env.export().lines().count(), 1, "the previous instances are deleted");
}

#[test]
fn g17_a_delayed_start_that_replaces_survives_every_crash() {
    let report = crash_everywhere(|env| {
        let mut env = env.register(counter).register(audit);
        env.start(counter, "c", 1);
        let replacing = options().on_existing(OnExisting::TerminateAndReplace).delay(DAY);
        let run = env.start_with(counter, "c", 2, replacing).unwrap();
        env.advance(2 * DAY);
        env.raise("c", STOP, ());
        (env.result(&run), env.elapsed())
    });
    report.unwrap();
}

#[test]
fn p_kit_a_start_that_cannot_be_says_why() {
    let mut env = TestEnvironment::new().register(counter);
    let unknown = env.start_with("nothing", "n", "", options()).unwrap_err();
    assert_eq!(unknown, ClientError::NotRegistered { name: "nothing".to_owned(), similar: None });
    assert!(matches!(env.start_with(counter, "a::b", 1, options()), Err(ClientError::InvalidName { .. })));
}
