//! Binding at the step's end, drop-cancels in replay, and what may differ without being another decision.

use std::collections::HashMap;
use std::time::Duration;

use perennial_core::{
    ClosePolicy, Decision, Nondeterminism, OrchestrationContext, OrchestrationHandler, Payload, RetryPolicy,
    TurnFailure,
};
use perennial_testkit::Drive;

fn diverged(replayed: Result<impl Sized, TurnFailure>) -> Nondeterminism {
    match replayed {
        Err(TurnFailure::Nondeterminism(divergence)) => *divergence,
        Err(other) => panic!("expected nondeterminism, got {other}"),
        Ok(_) => panic!("the replay found no difference"),
    }
}

#[test]
fn e5_decisions_are_numbered_in_call_order_and_cancels_at_the_end_of_their_step() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let (a, b) = (ctx.schedule_activity("A", ""), ctx.schedule_timer(Duration::from_secs(1)));
            ctx.schedule_wait("go").await;
            drop(b);
            ctx.set_status("one");
            drop(ctx.schedule_activity("Left no trace", ""));
            drop(a);
            ctx.set_status("two");
            ctx.schedule_wait("end").await;
            Ok(Payload::null())
        },
        (),
    );
    drive.evict().raise("go", ()).evict();
    assert_eq!(
        drive.lines()[1..],
        [
            r#"2 ActivityScheduled "A" """#,
            r#"3 TimerCreated due 2000"#,
            r#"4 ExternalSubscribed "go""#,
            r#"5 ExternalEvent "go" null"#,
            r#"6 StatusSet "one""#,
            r#"7 StatusSet "two""#,
            r#"8 ExternalSubscribed "end""#,
            r#"9 ActivityCancelRequested of 2"#,
            r#"10 TimerCancelled of 3"#,
        ]
    );
}

#[test]
fn e5_results_of_what_was_scheduled_in_one_step_find_their_operations() {
    // What is dropped within its step takes no id, so the ids after it move up.
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let a = ctx.schedule_activity("A", "");
            drop(ctx.schedule_activity("Dropped", ""));
            let b = ctx.schedule_activity("B", "");
            let (a, b) = ctx.join2(a, b).await;
            Ok(Payload::encode(&(a.ok(), b.ok())).expect("a pair encodes"))
        },
        (),
    );
    drive.evict().turn([Drive::completed(3, "b"), Drive::completed(2, "a")]).evict();
    assert_eq!(
        drive.lines()[1..],
        [
            r#"2 ActivityScheduled "A" """#,
            r#"3 ActivityScheduled "B" """#,
            r#"4 ActivityCompleted of 3 "b""#,
            r#"5 ActivityCompleted of 2 "a""#,
            r#"6 OrchestrationCompleted ["a","b"]"#,
        ]
    );
}

/// Schedules one operation of each kind, and drops those at `order` when told to.
fn dropping(order: &'static [usize], in_unit: bool) -> impl OrchestrationHandler {
    move |ctx: OrchestrationContext, _: Payload| async move {
        let mut operations: Vec<Option<Box<dyn Send>>> = vec![
            Some(Box::new(ctx.schedule_activity("A", ""))),
            Some(Box::new(ctx.schedule_timer(Duration::from_secs(1)))),
            Some(Box::new(ctx.schedule_wait("x"))),
            Some(Box::new(ctx.schedule_sub_orchestration("Child", ""))),
        ];
        ctx.schedule_wait("go").await;
        if in_unit {
            let dropped: Vec<_> = order.iter().map(|index| operations[*index].take()).collect();
            ctx.spawn(async move { drop(dropped) }).await;
        } else {
            order.iter().for_each(|index| operations[*index] = None);
        }
        ctx.schedule_wait("end").await;
        Ok(Payload::null())
    }
}

#[test]
fn e6_cancels_are_compared_by_operation_and_not_by_the_order_of_drops() {
    let record = |order| {
        let mut drive = Drive::start(dropping(order, false), ());
        drive.raise("go", ());
        drive
    };
    let all = record(&[0, 1, 2, 3]);
    let cancels = [
        r#"9 ActivityCancelRequested of 2"#,
        r#"10 TimerCancelled of 3"#,
        r#"11 ExternalUnsubscribed of 4"#,
        r#"12 SubOrchestrationCancelRequested of 5"#,
    ];
    assert_eq!(
        all.last_lines(),
        [&[r#"7 ExternalEvent "go" null"#, r#"8 ExternalSubscribed "end""#], &cancels[..]].concat()
    );
    assert!(
        all.replay_with(dropping(&[3, 1, 0, 2], false)).is_ok(),
        "the order of drops within a step is nobody's business"
    );

    for missing in 0..4 {
        let kept: &'static [usize] = [&[1, 2, 3], &[0, 2, 3], &[0, 1, 3], &[0, 1, 2]][missing];
        let divergence = diverged(all.replay_with(dropping(kept, false)));
        let (id, recorded) = cancels[missing].split_once(' ').expect("a line");
        let code = match cancels.get(missing + 1) {
            Some(next) => next.split_once(' ').expect("a line").1,
            None => "nothing",
        };
        assert_eq!(
            (
                divergence.turn,
                divergence.event.0.to_string(),
                &*divergence.recorded.line,
                &*divergence.code.line
            ),
            (2, id.to_owned(), recorded, code)
        );
    }

    let one = record(&[1]);
    let extra = diverged(one.replay_with(dropping(&[1, 3], false)));
    assert_eq!(
        (extra.event.0, &*extra.recorded.line, &*extra.code.line),
        (10, "nothing", "SubOrchestrationCancelRequested of 5")
    );
    let other = diverged(one.replay_with(dropping(&[2], false)));
    assert_eq!(
        (other.event.0, &*other.recorded.line, &*other.code.line),
        (9, "TimerCancelled of 3", "ExternalUnsubscribed of 4")
    );
    let none = record(&[]);
    let earlier = diverged(none.replay_with(dropping(&[0], false)));
    assert_eq!(
        (earlier.event.0, &*earlier.recorded.line, &*earlier.code.line),
        (9, "nothing", "ActivityCancelRequested of 2")
    );
}

#[test]
fn e6_a_cancel_is_also_the_unit_that_drops() {
    let mut drive = Drive::start(dropping(&[1], true), ());
    drive.raise("go", ());
    assert_eq!(drive.last_lines()[1..], [r#"8 TimerCancelled of 3 in p0"#, r#"9 ExternalSubscribed "end""#]);
    let divergence = diverged(drive.replay_with(dropping(&[1], false)));
    assert_eq!((divergence.event.0, &*divergence.code.line), (8, r#"ExternalSubscribed "end""#));
}

#[test]
fn e6_tunables_may_differ_and_the_record_wins() {
    fn tuned(activity: bool, close: ClosePolicy) -> impl OrchestrationHandler {
        move |ctx: OrchestrationContext, _: Payload| async move {
            let mut task = ctx.schedule_activity("A", "");
            if activity {
                task = task
                    .retry(RetryPolicy::fixed(Duration::from_millis(100)).attempts(5))
                    .timeout(Duration::from_secs(1))
                    .queue_timeout(Duration::from_secs(2))
                    .total_timeout(Duration::from_secs(3))
                    .heartbeat_timeout(Duration::from_secs(4))
                    .tag("gpu");
            }
            let child = ctx.schedule_sub_orchestration("Child", "").close_policy(close);
            let _ = ctx.join2(task, child).await;
            Ok(Payload::null())
        }
    }
    let variants = [
        (true, ClosePolicy::Cancel),
        (true, ClosePolicy::Abandon),
        (false, ClosePolicy::Cancel),
        (false, ClosePolicy::Abandon),
    ];
    for (activity, close) in variants {
        let drive = Drive::start(tuned(activity, close), ());
        for (other_activity, other_close) in variants {
            let replayed = drive
                .replay_with(tuned(other_activity, other_close))
                .unwrap_or_else(|failure| panic!("tunables are no identity: {failure}"));
            let recorded: Vec<&Decision> =
                drive.last_turn().decisions().map(|(_, _, decision)| decision).collect();
            let open: Vec<&Decision> = replayed.ledger().open().map(|(_, decision)| decision).collect();
            assert_eq!(open, recorded, "the engine goes by the record");
        }
    }
}

fn giving(json: &'static str) -> impl OrchestrationHandler {
    move |ctx: OrchestrationContext, _: Payload| async move {
        let payload = Payload::from_json(json).expect("it is JSON");
        ctx.set_status(payload.clone());
        ctx.upsert_attributes([("a", payload.clone())]);
        ctx.raise_event("other", "event", payload.clone());
        ctx.schedule_orchestration("Other", "other", payload.clone());
        let child = ctx.schedule_sub_orchestration("Child", payload.clone());
        let task = ctx.schedule_activity("A", payload.clone());
        if ctx.select2(task, child).await == perennial_core::Either::First(Ok(Payload::null())) {
            return Ok(payload);
        }
        Err(payload)
    }
}

#[test]
fn e6_payloads_that_are_the_same_json_are_the_same() {
    let mut drive = Drive::start(giving(r#"{"a":1,"b":[1,{"c":2,"d":null}]}"#), ());
    drive.complete(7, ());
    for same in
        [r#"{"b":[1,{"d":null,"c":2}],"a":1}"#, r#" { "a" : 1.0 , "b" : [ 1e0 , { "c":2,"d":null } ] } "#]
    {
        if let Err(failure) = drive.replay_with(giving(same)) {
            panic!("{same} is the same: {failure}");
        }
    }
    for other in [
        r#"{"a":1,"b":[{"c":2,"d":null},1]}"#,
        r#"{"a":1,"b":[1,{"c":2}]}"#,
        r#"{"a":"1","b":[1,{"c":2,"d":null}]}"#,
    ] {
        assert_eq!(diverged(drive.replay_with(giving(other))).event.0, 2, "{other}");
    }
}

#[test]
fn e6_a_hash_map_payload_replays() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let map: HashMap<String, u32> = (0..100).map(|n| (format!("key-{n}"), n)).collect();
            let payload = Payload::encode(&map).expect("a map encodes");
            ctx.set_status(payload.clone());
            let _ = ctx.schedule_activity("A", payload.clone()).await;
            Ok(payload)
        },
        (),
    );
    drive.evict().complete(3, ()).evict();
    assert!(drive.execution().has_ended());
}
