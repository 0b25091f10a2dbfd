//! Dropping a durable future cancels its operation, unless its result is recorded (E15).

use std::collections::HashMap;
use std::time::Duration;

use futures::poll;
use perennial_core::{ActivityFuture, Decision, Job, OrchestrationContext, Payload};
use perennial_testkit::Drive;

/// What is open, by event id.
fn open(drive: &mut Drive) -> Vec<u64> {
    drive.execution().ledger().open().map(|(id, _)| id.0).collect()
}

/// Schedules one operation of each kind (2 to 5), drops them when `go` comes (6), and waits for `end`.
async fn drops_one_of_each(ctx: OrchestrationContext, _: Payload) -> Result<Payload, Payload> {
    let activity = ctx.schedule_activity("A", ());
    let timer = ctx.schedule_timer(Duration::from_secs(60));
    let wait = ctx.schedule_wait("w");
    let child = ctx.schedule_sub_orchestration("Child", ());
    ctx.schedule_wait("go").await;
    drop(child);
    drop(timer);
    ctx.set_status("dropped");
    drop(wait);
    drop(activity);
    Ok(ctx.schedule_wait("end").await)
}

#[test]
fn e15_dropping_cancels_each_kind_of_operation() {
    let mut drive = Drive::start(drops_one_of_each, ());
    assert_eq!(open(&mut drive), [2, 3, 4, 5, 6]);
    drive.evict().raise("go", ());
    assert_eq!(
        drive.last_lines(),
        [
            r#"7 ExternalEvent "go" null"#,
            r#"8 StatusSet "dropped""#,
            r#"9 ExternalSubscribed "end""#,
            "10 ActivityCancelRequested of 2",
            "11 TimerCancelled of 3",
            "12 ExternalUnsubscribed of 4",
            "13 SubOrchestrationCancelRequested of 5",
        ]
    );
    assert_eq!(open(&mut drive), [9]);
    drive.evict();
    assert_eq!(open(&mut drive), [9]);
}

#[test]
fn e15_a_result_recorded_before_leaves_nothing_to_cancel() {
    let mut drive = Drive::start(drops_one_of_each, ());
    let answers = [Drive::completed(2, ()), Drive::fired(3), Drive::child_completed(5, ())];
    drive.turn(answers).evict().raise("go", ()).evict();
    assert_eq!(
        drive.last_lines(),
        [
            r#"10 ExternalEvent "go" null"#,
            r#"11 StatusSet "dropped""#,
            r#"12 ExternalSubscribed "end""#,
            "13 ExternalUnsubscribed of 4",
        ]
    );
}

#[test]
fn e15_a_result_in_a_later_wave_of_the_turn_leaves_nothing_to_cancel() {
    let mut drive = Drive::start(drops_one_of_each, ());
    drive
        .turn([
            Drive::event("go", ()),
            Drive::completed(2, ()),
            Drive::fired(3),
            Drive::child_completed(5, ()),
        ])
        .evict();
    assert_eq!(
        drive.last_lines(),
        [
            r#"7 ExternalEvent "go" null"#,
            "8 ActivityCompleted of 2 null",
            "9 TimerFired of 3",
            "10 SubOrchestrationCompleted of 5 null",
            r#"11 StatusSet "dropped""#,
            r#"12 ExternalSubscribed "end""#,
            "13 ExternalUnsubscribed of 4",
        ]
    );
    assert_eq!(open(&mut drive), [12]);
}

#[test]
fn e15_a_wait_that_has_not_returned_is_unsubscribed_although_its_event_has_come() {
    let arrivals: [&[Job]; 3] = [
        &[Drive::event("w", ())],
        &[Drive::event("w", ()), Drive::event("go", ())],
        &[Drive::event("go", ()), Drive::event("w", ())],
    ];
    for jobs in arrivals {
        let mut drive = Drive::start(drops_one_of_each, ());
        drive.turn(jobs).evict();
        if jobs.len() == 1 {
            drive.raise("go", ()).evict();
        }
        assert_eq!(
            drive.lines()[8..],
            [
                r#"9 StatusSet "dropped""#,
                r#"10 ExternalSubscribed "end""#,
                "11 ActivityCancelRequested of 2",
                "12 TimerCancelled of 3",
                "13 ExternalUnsubscribed of 4",
                "14 SubOrchestrationCancelRequested of 5",
            ]
        );
        assert_eq!(open(&mut drive), [10]);
    }
}

#[test]
fn e15_scheduling_and_dropping_in_one_step_leaves_nothing() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            drop(ctx.schedule_activity("A", ()).tag("unwanted"));
            drop(ctx.schedule_timer(Duration::from_secs(1)));
            let mut polled = ctx.schedule_activity("Polled", ());
            assert!(poll!(&mut polled).is_pending());
            let kept = ctx.schedule_activity("Kept", ());
            drop(ctx.schedule_wait("w"));
            drop(polled);
            drop(ctx.schedule_sub_orchestration("Child", ()));
            let handlers_may_have_it = ctx.clone();
            ctx.on_event("w", move |payload| {
                let ctx = handlers_may_have_it.clone();
                async move { ctx.set_status(payload) }
            });
            Ok(kept.await.unwrap())
        },
        (),
    );
    assert_eq!(drive.lines()[1..], [r#"2 ActivityScheduled "Kept" null"#]);
    assert_eq!(open(&mut drive), [2]);
    drive.evict().raise("w", "free").complete(2, ()).evict();
    assert_eq!(
        drive.lines()[2..],
        [
            r#"3 ExternalEvent "w" "free""#,
            r#"4 StatusSet "free" in h0"#,
            "5 ActivityCompleted of 2 null",
            "6 OrchestrationCompleted null",
        ]
    );
}

#[test]
fn e15_drop_cancels_come_in_the_order_of_the_operations_they_cancel() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let futures: HashMap<usize, ActivityFuture> =
                (0..50).map(|number| (number, ctx.schedule_activity(format!("A{number}"), ()))).collect();
            ctx.schedule_wait("go").await;
            drop(futures);
            Ok(ctx.schedule_wait("end").await)
        },
        (),
    );
    drive.raise("go", ());
    let mut expected =
        vec![r#"53 ExternalEvent "go" null"#.to_owned(), r#"54 ExternalSubscribed "end""#.to_owned()];
    expected
        .extend((0..50).map(|number| format!("{} ActivityCancelRequested of {}", 55 + number, 2 + number)));
    assert_eq!(drive.last_lines(), expected);
    drive.evict().raise("end", ()).evict();
}

#[test]
fn e15_drop_cancels_stand_at_the_end_of_their_step_not_of_the_turn() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let branch = |name: &'static str| {
                let ctx = ctx.clone();
                async move {
                    let slow = ctx.schedule_activity(name, ());
                    let go = ctx.schedule_wait(format!("{name}-go"));
                    let _won = ctx.select2(slow, go).await;
                    ctx.set_status(name);
                    ctx.schedule_activity("After", ()).await.unwrap();
                }
            };
            ctx.parallel([branch("A"), branch("B")]).await;
            Ok(Payload::null())
        },
        (),
    );
    drive.turn([Drive::event("B-go", ()), Drive::event("A-go", ())]).evict();
    assert_eq!(
        drive.last_lines(),
        [
            r#"6 ExternalEvent "B-go" null"#,
            r#"7 ExternalEvent "A-go" null"#,
            r#"8 StatusSet "A" in p0"#,
            r#"9 ActivityScheduled "After" null in p0"#,
            "10 ActivityCancelRequested of 2 in p0",
            r#"11 StatusSet "B" in p1"#,
            r#"12 ActivityScheduled "After" null in p1"#,
            "13 ActivityCancelRequested of 4 in p1",
        ]
    );
}

#[test]
fn e15_a_drop_cancel_is_made_by_the_unit_whose_step_dropped_the_future() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let from = ctx.clone();
            let branches = ctx.parallel([async move {
                let deep = from.schedule_activity("Deep", ());
                let nested = from.clone();
                let inner = from.spawn(async move { nested.schedule_timer(Duration::from_secs(9)).await });
                inner.await;
                deep.await.unwrap()
            }]);
            let scheduled_by_root = ctx.schedule_activity("Mine", ());
            let from = ctx.clone();
            ctx.spawn(async move {
                from.schedule_wait("give up").await;
                drop(scheduled_by_root);
            })
            .detach();
            ctx.schedule_wait("go").await;
            drop(branches);
            Ok(ctx.schedule_wait("end").await)
        },
        (),
    );
    assert_eq!(
        drive.lines()[1..],
        [
            r#"2 ActivityScheduled "Mine" null"#,
            r#"3 ExternalSubscribed "go""#,
            r#"4 ActivityScheduled "Deep" null in p0"#,
            r#"5 ExternalSubscribed "give up" in p1"#,
            "6 TimerCreated due 10000 in p0.p0",
        ]
    );
    drive.raise("go", ()).evict().raise("give up", ()).evict();
    assert_eq!(
        drive.lines()[6..],
        [
            r#"7 ExternalEvent "go" null"#,
            r#"8 ExternalSubscribed "end""#,
            "9 ActivityCancelRequested of 4",
            "10 TimerCancelled of 6",
            r#"11 ExternalEvent "give up" null"#,
            "12 ActivityCancelRequested of 2 in p1",
        ]
    );
}

#[test]
fn e15_the_step_that_ends_the_execution_records_no_cancels() {
    async fn ends(ctx: OrchestrationContext, how: Payload) -> Result<Payload, Payload> {
        let activity = ctx.schedule_activity("A", ());
        let timer = ctx.schedule_timer(Duration::from_secs(60));
        let from = ctx.clone();
        let branch = ctx.spawn(async move { from.schedule_sub_orchestration("Child", ()).await });
        ctx.schedule_orchestration("Detached", "other-1", ());
        ctx.schedule_wait("go").await;
        drop(activity);
        let unwanted = ctx.schedule_activity("Scheduled as it ends", ());
        match how.decode::<String>().unwrap().as_str() {
            "fail" => Err("failed".into()),
            "continue" => ctx.continue_as_new("again").await,
            _ => {
                drop((timer, branch, unwanted));
                Ok("done".into())
            }
        }
    }
    for (how, ending) in
        [("complete", r#"8 OrchestrationCompleted "done""#), ("fail", r#"8 OrchestrationFailed "failed""#)]
    {
        let mut drive = Drive::start(ends, how);
        drive.evict().raise("go", ()).evict();
        assert_eq!(drive.last_lines(), [r#"7 ExternalEvent "go" null"#, ending]);
    }
    // Here the unwanted activity is alive when the step ends, so it was scheduled; the ending closes it.
    let mut drive = Drive::start(ends, "continue");
    drive.evict().raise("go", ()).evict();
    assert_eq!(
        drive.last_lines(),
        [
            r#"7 ExternalEvent "go" null"#,
            r#"8 ActivityScheduled "Scheduled as it ends" null"#,
            r#"9 OrchestrationContinuedAsNew latest "again""#,
        ]
    );
}

/// Tries to act on the execution when it is dropped.
struct ActsOnDrop(OrchestrationContext);

impl Drop for ActsOnDrop {
    fn drop(&mut self) {
        self.0.set_status("dropped");
        drop(self.0.schedule_activity("From a destructor", ()));
        let kept = self.0.schedule_wait("from a destructor");
        std::mem::forget(kept);
    }
}

#[test]
fn e15_eviction_is_not_a_drop() {
    let handler = |ctx: OrchestrationContext, _: Payload| async move {
        let _guard = ActsOnDrop(ctx.clone());
        let held = ctx.schedule_activity("Held", ());
        let from = ctx.clone();
        let branch = ctx.spawn(async move { from.schedule_timer(Duration::from_secs(1)).await });
        ctx.schedule_wait("go").await;
        branch.await;
        Ok(held.await.unwrap())
    };
    let mut drive = Drive::start(handler, ());
    let before = (drive.history().clone(), open(&mut drive));
    drive.evict().evict();
    assert_eq!((drive.history().clone(), open(&mut drive)), before);

    // What follows is what would have followed without it.
    let mut resident = Drive::start(handler, ());
    resident.raise("go", ());
    drive.raise("go", ());
    assert_eq!(drive.history(), resident.history());
    let cancels = drive.history().flatten().filter(|event| event.summary().contains("Cancel"));
    assert_eq!(cancels.count(), 0);
}

#[test]
fn e15_a_destructor_in_a_step_acts_like_any_code() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            {
                let _guard = ActsOnDrop(ctx.clone());
                ctx.schedule_wait("go").await;
            }
            Ok(ctx.schedule_wait("end").await)
        },
        (),
    );
    drive.raise("go", ()).evict();
    assert_eq!(
        drive.last_lines(),
        [
            r#"3 ExternalEvent "go" null"#,
            r#"4 StatusSet "dropped""#,
            r#"5 ExternalSubscribed "from a destructor""#,
            r#"6 ExternalSubscribed "end""#,
        ]
    );
    let subscribed = |(_, decision): (_, &Decision)| matches!(decision, Decision::ExternalSubscribed { .. });
    assert_eq!(drive.execution().ledger().open().filter(|open| subscribed(*open)).count(), 2);
}
