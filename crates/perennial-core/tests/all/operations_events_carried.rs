//! Events that nobody read become the first jobs of the next execution, all of them, in order (E16).

use std::sync::Arc;

use perennial_core::{
    ExecutionOptions, Job, OrchestrationContext, OrchestrationHandler, Payload, StaleReason, Successor,
};
use perennial_testkit::Drive;
use serde_json::json;

fn keyed(name: &str, payload: &str, key: &str) -> Job {
    Job::ExternalEvent {
        name: name.to_owned(),
        payload: payload.into(),
        key: Some(key.to_owned()),
        trace: None,
    }
}

/// Takes a turn that continues as new.
fn continued(drive: &mut Drive, jobs: impl Into<Vec<Job>>) -> Successor {
    let taken = drive.try_turn(jobs).unwrap();
    let successor = taken.successor.expect("the turn continues as new");
    drive.evict();
    successor
}

/// Runs the next execution through its first turn.
fn next(handler: impl OrchestrationHandler, successor: &Successor) -> Drive {
    let started = successor.started("1.0.0", 43);
    let mut drive = Drive::prepare(Arc::new(handler), started, ExecutionOptions::default()).unwrap();
    drive.turn(successor.jobs.clone()).evict();
    drive
}

/// Continues as new when `go` comes.
async fn continues_on_go(ctx: OrchestrationContext, _: Payload) -> Result<Payload, Payload> {
    ctx.schedule_wait("go").await;
    ctx.continue_as_new("again").await
}

#[test]
fn e16_kept_events_cross_in_arrival_order_whatever_their_names() {
    let mut drive = Drive::start(continues_on_go, ());
    drive.turn([Drive::event("z", "1"), Drive::event("a", "2")]).raise("z", "3");
    let successor = continued(&mut drive, [Drive::event("go", ())]);
    assert_eq!(successor.jobs, [Drive::event("z", "1"), Drive::event("a", "2"), Drive::event("z", "3")]);
    let drive = next(
        |ctx: OrchestrationContext, _: Payload| async move {
            let mut seen = Vec::new();
            for name in ["a", "z", "z"] {
                seen.push(ctx.schedule_wait(name).await);
            }
            Ok(json!(seen).into())
        },
        &successor,
    );
    assert_eq!(
        drive.lines(),
        [
            r#"1 OrchestrationStarted orchestration "again""#,
            r#"2 ExternalEvent "z" "1""#,
            r#"3 ExternalEvent "a" "2""#,
            r#"4 ExternalEvent "z" "3""#,
            r#"5 ExternalSubscribed "a""#,
            r#"6 ExternalSubscribed "z""#,
            r#"7 ExternalSubscribed "z""#,
            r#"8 OrchestrationCompleted ["2","1","3"]"#,
        ]
    );
}

#[test]
fn e16_an_event_held_by_a_wait_that_has_not_returned_crosses() {
    let mut held = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let _held = ctx.schedule_wait("n");
            continues_on_go(ctx, ().into()).await
        },
        (),
    );
    held.raise("n", "held");
    let successor = continued(&mut held, [Drive::event("go", ())]);
    assert_eq!(successor.jobs, [Drive::event("n", "held")]);

    let mut dropped_as_it_ends = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let held = ctx.schedule_wait("n");
            ctx.schedule_wait("go").await;
            drop(held);
            ctx.continue_as_new("again").await
        },
        (),
    );
    dropped_as_it_ends.raise("n", "held");
    let successor = continued(&mut dropped_as_it_ends, [Drive::event("go", ())]);
    assert_eq!(successor.jobs, [Drive::event("n", "held")]);
}

#[test]
fn e16_an_event_that_was_read_does_not_cross() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let seen = ctx.schedule_wait("n").await;
            ctx.continue_as_new(seen).await
        },
        (),
    );
    let successor = continued(&mut drive, [Drive::event("n", "read"), Drive::event("n", "unread")]);
    assert_eq!(successor.jobs, [Drive::event("n", "unread")]);
}

#[test]
fn e16_undelivered_events_of_the_last_turn_cross() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let _activity = ctx.schedule_activity("A", ());
            let ended_by = ctx.clone();
            ctx.on_event("handled", move |_| {
                let ctx = ended_by.clone();
                async move { ctx.set_status("must not run") }
            });
            let _wait = ctx.schedule_wait("n");
            continues_on_go(ctx, ().into()).await
        },
        (),
    );
    let successor = continued(
        &mut drive,
        [
            Drive::event("n", "delivered, held"),
            Drive::event("go", ()),
            Drive::event("handled", "1"),
            Drive::completed(2, "lost with its execution"),
            Drive::event("go", "2"),
            Drive::event("n", "3"),
        ],
    );
    assert_eq!(
        drive.last_lines()[6..],
        [r#"11 OrchestrationContinuedAsNew latest "again""#],
        "nothing ran after the step that ended it"
    );
    assert_eq!(
        successor.jobs,
        [
            Drive::event("n", "delivered, held"),
            Drive::event("handled", "1"),
            Drive::event("go", "2"),
            Drive::event("n", "3"),
        ]
    );
}

#[test]
fn e16_an_event_whose_handler_never_ran_crosses_and_one_that_began_does_not() {
    let handler = |ctx: OrchestrationContext, continue_at: Payload| async move {
        ctx.schedule_wait("go").await;
        let from = ctx.clone();
        ctx.on_event("n", move |payload| {
            let ctx = from.clone();
            async move {
                ctx.set_status(payload);
                ctx.schedule_wait("never").await;
            }
        });
        if continue_at == "end".into() {
            ctx.schedule_wait("end").await;
        }
        ctx.continue_as_new("again").await
    };
    let kept = ["a", "b"].map(|payload| Drive::event("n", payload));
    // Dispatched in the step that ends the execution: the handlers never run.
    let mut drive = Drive::start(handler, "go");
    drive.turn(kept.clone());
    let successor = continued(&mut drive, [Drive::event("go", ())]);
    assert_eq!(successor.jobs, kept);

    // The same, but the execution ends after the handlers have begun.
    let mut drive = Drive::start(handler, "end");
    drive.turn(kept).raise("go", ());
    assert_eq!(
        drive.last_lines(),
        [
            r#"5 ExternalEvent "go" null"#,
            r#"6 ExternalSubscribed "end""#,
            r#"7 StatusSet "a" in h0"#,
            r#"8 ExternalSubscribed "never" in h0"#,
            r#"9 StatusSet "b" in h1"#,
            r#"10 ExternalSubscribed "never" in h1"#,
        ]
    );
    let successor = continued(drive.evict(), [Drive::event("end", ())]);
    assert_eq!(successor.jobs, []);
}

#[test]
fn e16_keys_cross_with_their_events_and_are_still_known_in_the_next_execution() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            ctx.schedule_wait("read").await;
            let _held = ctx.schedule_wait("held");
            continues_on_go(ctx, ().into()).await
        },
        (),
    );
    drive.turn([keyed("read", "r", "k-read"), keyed("kept", "k", "k-kept")]);
    drive.turn([keyed("held", "h", "k-held")]).evict();
    let successor = continued(&mut drive, [keyed("go", "g", "k-go"), keyed("late", "l", "k-late")]);
    let carried = [keyed("kept", "k", "k-kept"), keyed("held", "h", "k-held"), keyed("late", "l", "k-late")];
    assert_eq!(successor.jobs, carried);
    assert_eq!(successor.started("1.0.0", 43).recent_keys, ["k-read", "k-go"]);

    let mut second = next(continues_on_go, &successor);
    assert_eq!(
        second.lines()[1..4],
        [r#"2 ExternalEvent "kept" "k""#, r#"3 ExternalEvent "held" "h""#, r#"4 ExternalEvent "late" "l""#]
    );
    for key in ["k-read", "k-kept", "k-held", "k-go", "k-late"] {
        let taken = second.try_turn([keyed("go", "again", key)]).unwrap();
        assert_eq!(taken.turn, None, "{key}");
        assert_eq!(taken.stale[0].reason, StaleReason::KnownKey, "{key}");
    }

    // And once more, unread for a second time.
    let successor = continued(&mut second, [Drive::event("go", ())]);
    assert_eq!(successor.jobs, carried);
    let mut third = next(continues_on_go, &successor);
    for key in ["k-read", "k-kept", "k-held", "k-go", "k-late"] {
        let taken = third.try_turn([keyed("go", "again", key)]).unwrap();
        assert_eq!(taken.stale[0].reason, StaleReason::KnownKey, "{key}");
    }
}

#[test]
fn e16_all_unread_events_cross_however_many() {
    let mut drive = Drive::start(continues_on_go, ());
    let events: Vec<Job> =
        (0..2_500).map(|number| keyed("n", &number.to_string(), &format!("k-{number}"))).collect();
    drive.turn(events.clone());
    let successor = continued(&mut drive, [Drive::event("go", ())]);
    assert_eq!(successor.jobs, events);
    let mut second = next(continues_on_go, &successor);
    let taken = second.try_turn(events).unwrap();
    assert_eq!((taken.turn, taken.stale.len()), (None, 2_500));
}

/// Continues as new when `go` comes, after it has read whatever `read` came with.
async fn reads_and_continues(ctx: OrchestrationContext, _: Payload) -> Result<Payload, Payload> {
    ctx.on_event("read", |_| async {});
    continues_on_go(ctx, ().into()).await
}

fn many(name: &str, numbers: std::ops::Range<usize>) -> Vec<Job> {
    numbers.map(|number| keyed(name, "x", &format!("{name}-{number}"))).collect()
}

#[test]
fn g16_events_that_cross_unread_again_and_again_push_no_later_key_out() {
    let mut drive = Drive::start(reads_and_continues, ());
    drive.turn(many("kept", 0..1_500)).turn(many("read", 0..1)).turn(many("kept", 1_500..2_000));
    for _ in 0..4 {
        let successor = continued(&mut drive, [Drive::event("go", ())]);
        assert_eq!(successor.jobs.len(), 2_000);
        drive = next(reads_and_continues, &successor);
        let taken = drive.try_turn(many("read", 0..1)).unwrap();
        assert_eq!(taken.stale[0].reason, StaleReason::KnownKey, "500 keys were taken after it");
    }
}

#[test]
fn g16_the_last_thousand_keys_are_known_and_older_ones_are_not() {
    let mut drive = Drive::start(reads_and_continues, ());
    drive.turn(many("kept", 0..300)).turn(many("read", 0..2)).turn(many("kept", 300..600));
    let successor = continued(&mut drive, [Drive::event("go", ())]);
    let mut drive = next(reads_and_continues, &successor);
    // With the 300 that were kept, 999 keys were taken after that of the second event, and 1,000 after the first's.
    drive.turn(many("read", 2..701));
    let successor = continued(&mut drive, [Drive::event("go", ())]);
    let mut drive = next(reads_and_continues, &successor);
    let taken = drive.try_turn(many("read", 0..701)).unwrap();
    assert!(taken.stale.iter().all(|stale| stale.reason == StaleReason::KnownKey));
    assert_eq!(taken.stale.len(), 700, "all but the first");
}

#[test]
fn e16_the_next_execution_begins_no_earlier_than_the_last_one_ended() {
    let mut drive = Drive::start(continues_on_go, ());
    drive.at(5_000);
    let successor = continued(&mut drive, [Drive::event("go", ())]);
    // The clock of the next node is behind.
    let second = next(continues_on_go, &successor);
    assert_eq!(second.last_turn().at_ms, 5_000);
    assert_eq!(second.history().started().unwrap().execution, 2);
}

/// Continues as new when `go` comes; `say` answers with what the execution was given.
async fn says(ctx: OrchestrationContext, input: Payload) -> Result<Payload, Payload> {
    ctx.on_update(
        "say",
        |_| Ok(()),
        move |said: Payload| {
            let input = input.clone();
            async move { Ok(json!([input, said]).into()) }
        },
    );
    continues_on_go(ctx, ().into()).await
}

#[test]
fn e21_updates_that_no_handler_began_cross_in_order_and_the_next_execution_answers_them() {
    let mut drive = Drive::start(says, ());
    let with_key = |payload: &str| Job::UpdateRequested {
        name: "say".to_owned(),
        payload: payload.into(),
        key: Some(format!("key-{payload}")),
        trace: None,
    };
    let jobs =
        [Drive::event("go", ()), with_key("1"), Drive::event("n", "between"), Drive::update("say", "2")];
    let taken = drive.try_turn(jobs).expect("it continues");
    let carried: Vec<u64> = taken.carried_updates.iter().map(|(event, _)| event.0).collect();
    assert_eq!((carried, taken.ended_updates), (vec![4, 6], vec![]));
    let successor = taken.successor.expect("the turn continues as new");
    drive.evict();
    let keys: Vec<Option<&str>> = successor.jobs.iter().map(Job::key).collect();
    assert_eq!(keys, [Some("key-1"), None, Some("~carried.1.6")], "whoever waits finds it by its key");
    let mut next = next(says, &successor);
    assert_eq!(
        next.lines()[1..],
        [
            r#"2 UpdateRequested "say" "1""#,
            r#"3 ExternalEvent "n" "between""#,
            r#"4 UpdateRequested "say" "2""#,
            r#"5 ExternalSubscribed "go""#,
            r#"6 UpdateCompleted of 2 ["again","1"] in h0"#,
            r#"7 UpdateCompleted of 4 ["again","2"] in h1"#,
        ]
    );
    let mut answer = |key| next.execution().ledger().update(key).and_then(|(_, answer)| answer.cloned());
    assert_eq!(answer("key-1"), Some(Ok(json!(["again", "1"]).into())), "sent again, it finds its answer");
    let again = next.try_turn([with_key("1")]).expect("nothing is recorded");
    assert_eq!(again.stale.len(), 1);
}

#[test]
fn e21_an_update_whose_handler_had_begun_does_not_cross() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            ctx.on_update("wait", |_| Ok(()), |_| std::future::pending());
            continues_on_go(ctx, ().into()).await
        },
        (),
    );
    let taken = drive.try_turn([Drive::update("wait", ()), Drive::event("go", ())]).expect("it continues");
    assert_eq!((taken.ended_updates.len(), taken.carried_updates.len()), (1, 0));
    assert_eq!(taken.successor.expect("it continues").jobs, []);
}
