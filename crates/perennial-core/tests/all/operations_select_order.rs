//! A select goes by the order of the record, not of its arguments (E10, E22).

use std::time::Duration;

use perennial_core::{Either, Either3, OrchestrationContext, OrchestrationHandler, Payload};
use perennial_testkit::Drive;

/// Waits for `go` (5) while an activity (2), a timer (3) and a child (4) are answered unpolled: the child first, then
/// the timer, then the activity. Returns the last turn.
fn after_stored_results(handler: impl OrchestrationHandler) -> Vec<String> {
    let mut drive = Drive::start(handler, ());
    drive.turn([Drive::child_completed(4, "child")]);
    drive.turn([Drive::fired(3), Drive::completed(2, "activity")]);
    drive.evict().raise("go", ()).evict();
    drive.last_lines()
}

fn ended(output: &str) -> [String; 2] {
    let event = r#"9 ExternalEvent "go" null"#.to_owned();
    [event, format!("10 OrchestrationCompleted {output:?}")]
}

#[test]
fn e22_stored_results_are_taken_by_event_id_not_by_argument_order() {
    let select3 = |ctx: OrchestrationContext, _: Payload| async move {
        let activity = ctx.schedule_activity("A", ());
        let timer = ctx.schedule_timer(Duration::from_secs(1));
        let child = ctx.schedule_sub_orchestration("Child", ());
        ctx.schedule_wait("go").await;
        Ok(match ctx.select3(activity, timer, child).await {
            Either3::First(_) => "activity".into(),
            Either3::Second(()) => "timer".into(),
            Either3::Third(child) => child.unwrap(),
        })
    };
    assert_eq!(after_stored_results(select3), ended("child"));

    let select2 = |ctx: OrchestrationContext, _: Payload| async move {
        let activity = ctx.schedule_activity("A", ());
        let timer = ctx.schedule_timer(Duration::from_secs(1));
        let _child = ctx.schedule_sub_orchestration("Child", ());
        ctx.schedule_wait("go").await;
        Ok(match ctx.select2(activity, timer).await {
            Either::First(_) => "activity".into(),
            Either::Second(()) => "timer".into(),
        })
    };
    assert_eq!(after_stored_results(select2), ended("timer"));

    let lent = |ctx: OrchestrationContext, _: Payload| async move {
        let mut activity = ctx.schedule_activity("A", ());
        let mut timer = ctx.schedule_timer(Duration::from_secs(1));
        let _child = ctx.schedule_sub_orchestration("Child", ());
        ctx.schedule_wait("go").await;
        let first = matches!(ctx.select2(&mut activity, &mut timer).await, Either::Second(()));
        assert!(first, "the timer was first");
        Ok(activity.await.unwrap())
    };
    assert_eq!(after_stored_results(lent), ended("activity"));
}

#[test]
fn e22_select_and_race_of_many_go_by_event_id_too() {
    let handler = |ctx: OrchestrationContext, race: Payload| async move {
        let activities = ["A", "B", "C"].map(|name| ctx.schedule_activity(name, ()));
        ctx.schedule_wait("go").await;
        if race == "race".into() {
            return Ok(ctx.race(activities).await.unwrap());
        }
        let (index, won) = ctx.select(activities).await;
        assert_eq!(index, 2);
        Ok(won.unwrap())
    };
    for how in ["select", "race"] {
        let mut drive = Drive::start(handler, how);
        drive.turn([Drive::completed(4, "c"), Drive::completed(2, "a"), Drive::completed(3, "b")]);
        drive.evict().raise("go", ()).evict();
        assert_eq!(drive.last_lines()[1], r#"10 OrchestrationCompleted "c""#, "{how}");
    }
}

#[test]
fn e22_stored_results_come_before_operands_that_are_ready_of_themselves() {
    let handler = |ctx: OrchestrationContext, _: Payload| async move {
        let activity = ctx.schedule_activity("A", ());
        let _timer = ctx.schedule_timer(Duration::from_secs(1));
        let _child = ctx.schedule_sub_orchestration("Child", ());
        ctx.schedule_wait("go").await;
        let ready = Box::pin(async { "ready" });
        Ok(match ctx.select2(ready, activity).await {
            Either::First(ready) => ready.into(),
            Either::Second(result) => result.unwrap(),
        })
    };
    assert_eq!(after_stored_results(handler), ended("activity"));
}

#[test]
fn e22_operands_without_stored_results_go_by_argument_order() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let unit = |name: &'static str| {
                let ctx = ctx.clone();
                async move {
                    ctx.schedule_wait(name).await;
                    name
                }
            };
            let (a, b) = (ctx.spawn(unit("a")), ctx.spawn(unit("b")));
            ctx.schedule_wait("go").await;
            let Either::First(won) = ctx.select2(a, b).await else { panic!("a is the first argument") };
            Ok(won.into())
        },
        (),
    );
    drive.raise("b", ()).raise("a", ()).evict().raise("go", ()).evict();
    assert_eq!(drive.last_lines()[1], r#"8 OrchestrationCompleted "a""#);
}

#[test]
fn e22_a_select_polls_no_further_than_the_first_that_is_ready() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let timer = ctx.schedule_timer(Duration::from_secs(1));
            let wait = ctx.schedule_wait("n");
            ctx.schedule_wait("go").await;
            let Either::Second(()) = ctx.select2(wait, timer).await else { panic!("the timer was first") };
            // The wait held an event and was not polled, so the event is still there.
            Ok(ctx.schedule_wait("n").await)
        },
        (),
    );
    drive.turn([Drive::fired(2), Drive::event("n", "untouched")]).evict().raise("go", ()).evict();
    assert_eq!(
        drive.last_lines(),
        [
            r#"7 ExternalEvent "go" null"#,
            r#"8 ExternalSubscribed "n""#,
            r#"9 OrchestrationCompleted "untouched""#,
        ]
    );
}

#[test]
fn e22_an_event_that_a_wait_holds_counts_as_its_stored_result() {
    let handler = |ctx: OrchestrationContext, _: Payload| async move {
        let timer = ctx.schedule_timer(Duration::from_secs(1));
        let first = ctx.schedule_wait("n");
        let second = ctx.schedule_wait("n");
        ctx.schedule_wait("go").await;
        Ok(match ctx.select3(timer, second, first).await {
            Either3::First(()) => "timer".into(),
            Either3::Second(payload) | Either3::Third(payload) => payload,
        })
    };
    let mut event_first = Drive::start(handler, ());
    event_first.turn([Drive::event("n", "for the oldest"), Drive::fired(2)]).raise("go", ()).evict();
    assert_eq!(event_first.last_lines()[1], r#"9 OrchestrationCompleted "for the oldest""#);

    let mut timer_first = Drive::start(handler, ());
    timer_first.turn([Drive::fired(2), Drive::event("n", ())]).raise("go", ()).evict();
    assert_eq!(timer_first.last_lines()[1], r#"9 OrchestrationCompleted "timer""#);
}

#[test]
fn e22_while_it_waits_a_select_takes_the_first_result_delivered() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let [a, b] = ["A", "B"].map(|name| ctx.schedule_activity(name, ()));
            let won = match ctx.select2(a, b).await {
                Either::First(won) | Either::Second(won) => won.unwrap(),
            };
            ctx.set_status(won);
            Ok(ctx.schedule_wait("end").await)
        },
        (),
    );
    drive.turn([Drive::completed(3, "b"), Drive::completed(2, "a")]).evict();
    assert_eq!(
        drive.last_lines(),
        [
            r#"4 ActivityCompleted of 3 "b""#,
            r#"5 ActivityCompleted of 2 "a""#,
            r#"6 StatusSet "b""#,
            r#"7 ExternalSubscribed "end""#,
        ]
    );
}

#[test]
fn e10_completions_come_in_the_order_of_the_record_and_stored_ones_first() {
    let code = |ctx: OrchestrationContext, _: Payload| async move {
        let name = |result: Result<Payload, _>| result.map_or_else(|_| String::new(), |name| name.to_text());
        let tasks: Vec<_> = (0..4).map(|_| ctx.schedule_activity("A", ())).collect();
        ctx.schedule_wait("go").await;
        let mut completions = ctx.completions(tasks);
        let mut seen = Vec::new();
        while let Some((index, result)) = completions.next().await {
            seen.push(format!("{index}{}", name(result)));
        }
        assert_eq!(completions.pending(), 0);
        Ok(Payload::from(seen.join(",")))
    };
    let mut drive = Drive::start(code, ());
    drive.turn([Drive::completed(4, "c"), Drive::completed(2, "a")]);
    drive.evict().raise("go", ());
    drive.evict().turn([Drive::completed(5, "d"), Drive::completed(3, "b")]).evict();
    assert_eq!(
        drive.last_lines().last().map(String::as_str),
        Some(r#"12 OrchestrationCompleted "2c,0a,3d,1b""#)
    );
}

#[test]
fn e15_dropping_completions_cancels_those_that_have_not_returned() {
    let code = |ctx: OrchestrationContext, _: Payload| async move {
        let mut completions =
            ctx.completions([ctx.schedule_activity("A", ()), ctx.schedule_activity("B", ())]);
        completions.next().await;
        drop(completions);
        Ok(ctx.schedule_wait("end").await)
    };
    let mut drive = Drive::start(code, ());
    drive.complete(3, ()).evict();
    assert_eq!(drive.last_lines()[1..], [r#"5 ExternalSubscribed "end""#, "6 ActivityCancelRequested of 2"]);
}
