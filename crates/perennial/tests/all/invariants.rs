//! The checker of invariants accepts what a runtime wrote, and detects every single change to it.

use std::sync::Arc;
use std::time::Duration;

use perennial::history::EventId;
use perennial::history::Turn;
use perennial::typed::OrchestrationCode;
use perennial::{ActivityContext, OrchestrationContext, Payload, Runtime, RuntimeBuilder, Status};
use perennial_core::Handlers;
use perennial_core::history::{decode_turn, encode_turn};
use perennial_core::store::{MemoryStore, TaskRow};
use perennial_testkit::invariants::{ClientLog, Snapshot, assert_invariants, breaches};

use crate::support::{failed, now_ms, soon};

type Outcome = Result<Payload, Payload>;

async fn mixed(ctx: OrchestrationContext, _: Payload) -> Outcome {
    ctx.schedule_timer(Duration::from_millis(1)).await;
    ctx.schedule_activity("echo", "x").await.map_err(failed)?;
    ctx.schedule_wait("go").await;
    ctx.schedule_wait("go").await;
    Ok(Payload::null())
}

async fn changed(ctx: OrchestrationContext, _: Payload) -> Outcome {
    ctx.schedule_activity("other", Payload::from("x")).await.map_err(failed)
}

async fn waiting(ctx: OrchestrationContext, _: Payload) -> Outcome {
    ctx.schedule_activity("never", Payload::from("x")).await.map_err(failed)
}

async fn running(ctx: OrchestrationContext, _: Payload) -> Outcome {
    ctx.schedule_activity("endless", Payload::from("x")).await.map_err(failed)
}

async fn sleeping(ctx: OrchestrationContext, _: Payload) -> Outcome {
    ctx.schedule_timer(Duration::from_secs(100_000)).await;
    Ok(Payload::null())
}

fn orchestrations(runtime: RuntimeBuilder) -> RuntimeBuilder {
    runtime
        .orchestration("mixed", "1.0.0", mixed)
        .orchestration("waiting", "1.0.0", waiting)
        .orchestration("running", "1.0.0", running)
        .orchestration("sleeping", "1.0.0", sleeping)
}

fn handlers() -> Handlers {
    orchestrations(Runtime::open("memory:")).handlers()
}

/// What a runtime wrote, and what its client was told: `m` has ended; `w` waits for an activity that nobody here has,
/// `r` for one that runs, and `s` for a timer.
async fn sound() -> (Snapshot, ClientLog) {
    let store = Arc::new(MemoryStore::new(now_ms));
    let runtime = orchestrations(Runtime::open("memory:").store(Arc::clone(&store) as _))
        .activity("echo", |_: ActivityContext, input: Payload| async { Ok::<_, Payload>(input) })
        .activity("endless", |_: ActivityContext, _: Payload| std::future::pending::<Outcome>())
        .start()
        .await
        .unwrap();
    let client = runtime.client();
    let mut log = ClientLog::default();
    for (name, id) in [("mixed", "m"), ("waiting", "w"), ("running", "r"), ("sleeping", "s")] {
        client.start(name, id, Payload::null()).await.unwrap();
        log.started(id);
    }
    for go in ["one", "two"] {
        client.raise_event("m", "go", go).await.unwrap();
        log.raised("me", "m", "go", go);
    }
    soon(client.result("m")).await.unwrap();
    let snapshot = Snapshot::read_memory(&store).unwrap();
    assert_invariants(&snapshot, &log, &handlers());
    (snapshot, log)
}

/// The findings of the checker after a change.
fn found(
    (snapshot, log): &(Snapshot, ClientLog),
    change: impl FnOnce(&mut Snapshot, &mut ClientLog),
) -> Vec<&'static str> {
    let (mut snapshot, mut log) = (snapshot.clone(), log.clone());
    change(&mut snapshot, &mut log);
    let mut found: Vec<&str> =
        breaches(&snapshot, &log, &handlers()).into_iter().map(|breach| breach.invariant).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Changes the turns of an instance.
fn turns(snapshot: &mut Snapshot, id: &str, change: impl FnOnce(&mut Vec<Turn>)) {
    let instance = snapshot.instances.iter_mut().find(|instance| instance.row.id == id).unwrap();
    let bodies = instance.executions.get_mut(&1).unwrap();
    let mut turns: Vec<Turn> =
        (1..).zip(&*bodies).map(|(number, body)| decode_turn(number, body).unwrap()).collect();
    change(&mut turns);
    *bodies = turns.iter().map(|turn| Arc::from(encode_turn(turn))).collect();
}

/// Breaks a sound snapshot, and expects the checker to report the invariant.
#[track_caller]
fn assert_found(
    sound: &(Snapshot, ClientLog),
    invariant: &str,
    change: impl FnOnce(&mut Snapshot, &mut ClientLog),
) {
    let found = found(sound, change);
    assert!(found.contains(&invariant), "{invariant} was broken, found were {found:?}");
}

/// Changes the row of an instance.
fn row(snapshot: &mut Snapshot, id: &str, change: impl FnOnce(&mut perennial_core::store::InstanceRow)) {
    change(&mut snapshot.instances.iter_mut().find(|instance| instance.row.id == id).unwrap().row);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_sound_is_left_in_peace() {
    assert_eq!(found(&sound().await, |_, _| {}), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i1_a_renumbered_event_is_noticed() {
    let sound = sound().await;
    assert_found(&sound, "I1", |snapshot, _| {
        turns(snapshot, "m", |turns| turns[1].events[0].id = EventId(99));
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i2_a_start_that_is_lost_is_noticed() {
    let sound = sound().await;
    assert_found(&sound, "I2", |snapshot, _| drop(snapshot.instances.remove(0)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i2_an_activity_or_a_timer_that_nobody_would_pick_up_is_noticed() {
    let sound = sound().await;
    assert_found(&sound, "I2", |snapshot, _| row(snapshot, "r", |row| row.owed = false));
    assert_found(&sound, "I2", |snapshot, _| row(snapshot, "w", |row| row.owed = true));
    assert_found(&sound, "I2", |snapshot, _| tasks(snapshot, "w", &|tasks| tasks.clear()));
    assert_found(&sound, "I2", |snapshot, _| {
        tasks(snapshot, "w", &|tasks| tasks[0].name = "other".to_owned());
    });
    assert_found(&sound, "I2", |snapshot, _| row(snapshot, "s", |row| row.wake_at_ms = None));
    assert_found(&sound, "I2", |snapshot, _| {
        row(snapshot, "s", |row| row.wake_at_ms = row.wake_at_ms.map(|wake_at_ms| wake_at_ms + 1));
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i4_a_turn_that_is_missing_or_half_there_is_noticed() {
    let sound = sound().await;
    assert_found(&sound, "I4", |snapshot, _| turns(snapshot, "m", |turns| drop(turns.remove(1))));
    assert_found(&sound, "I4", |snapshot, _| {
        let body = &mut snapshot.instances[0].executions.get_mut(&1).unwrap()[1];
        *body = Arc::from(&body[..body.len() / 2]);
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i5_a_second_completion_is_noticed() {
    let sound = sound().await;
    assert_found(&sound, "I5", |snapshot, _| twice(snapshot, "ActivityCompleted"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i6_an_activity_that_ran_and_was_not_scheduled_is_noticed() {
    let sound = sound().await;
    assert_found(&sound, "I6", |_, log| log.ran("m", 1, EventId(77)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i7_two_instances_of_one_id_are_noticed() {
    let sound = sound().await;
    assert_found(&sound, "I7", |snapshot, _| {
        let again = snapshot.instances[0].clone();
        snapshot.instances.push(again);
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i8_events_that_changed_places_or_are_doubled_or_lost_are_noticed() {
    let sound = sound().await;
    assert_found(&sound, "I8", |_, log| {
        *log = ClientLog::default();
        log.raised("me", "m", "go", "two");
        log.raised("me", "m", "go", "one");
    });
    assert_found(&sound, "I8", |snapshot, _| twice(snapshot, "ExternalEvent"));
    assert_found(&sound, "I8", |snapshot, log| {
        log.raised("me", "w", "go", "away");
        snapshot.instances.iter_mut().for_each(|instance| instance.inbox = Some(Vec::new()));
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i10_a_timer_that_is_early_or_fires_twice_is_noticed() {
    let sound = sound().await;
    assert_found(&sound, "I10", |snapshot, _| twice(snapshot, "TimerFired"));
    assert_found(&sound, "I10", |snapshot, _| {
        turns(snapshot, "m", |turns| {
            let at_ms = turns[0].at_ms;
            turns.iter_mut().for_each(|turn| turn.at_ms = at_ms);
        });
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i11_time_that_goes_back_is_noticed() {
    let sound = sound().await;
    assert_found(&sound, "I11", |snapshot, _| turns(snapshot, "m", |turns| turns[1].at_ms = 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i12_a_second_end_is_noticed() {
    let sound = sound().await;
    assert_found(&sound, "I12", |snapshot, _| {
        turns(snapshot, "m", |turns| {
            let end = turns.last().unwrap().events.last().unwrap().clone();
            turns[0].events.push(end);
        });
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i14_a_row_that_does_not_say_what_the_history_says_is_noticed() {
    let sound = sound().await;
    assert_found(&sound, "I14", |snapshot, _| row(snapshot, "m", |row| row.status = Status::Running));
    assert_found(&sound, "I14", |snapshot, _| row(snapshot, "w", |row| row.status = Status::Completed));
    assert_found(&sound, "I14", |snapshot, _| row(snapshot, "m", |row| row.owed = true));
}

/// Changes the tasks of an instance.
fn tasks(snapshot: &mut Snapshot, id: &str, change: &dyn Fn(&mut Vec<TaskRow>)) {
    let instance = snapshot.instances.iter_mut().find(|instance| instance.row.id == id).unwrap();
    change(instance.tasks.as_mut().unwrap());
}

/// Repeats the first event of a kind.
fn twice(snapshot: &mut Snapshot, kind: &str) {
    turns(snapshot, "m", |turns| {
        for turn in turns {
            if let Some(place) = turn.events.iter().position(|event| event.kind.name() == kind) {
                let again = turn.events[place].clone();
                turn.events.insert(place, again);
                return;
            }
        }
        panic!("there is no {kind}");
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i15_code_that_decides_otherwise_is_noticed() {
    let (snapshot, log) = sound().await;
    let other = handlers().with_shared("mixed", "1.0.0", changed.into_handler());
    let found: Vec<&str> =
        breaches(&snapshot, &log, &other).into_iter().map(|breach| breach.invariant).collect();
    assert_eq!(found, ["I15"]);
}
