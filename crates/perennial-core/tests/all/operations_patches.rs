//! Patches: old histories keep the old path, new ones take the new, and gates can be deleted (E20).

use perennial_core::{OrchestrationContext, OrchestrationHandler, Payload, TurnFailure};
use perennial_testkit::Drive;
use serde_json::json;

/// Waits for `go` twice, and records what a gate says at some of the three places between.
fn gated(places: &'static [usize]) -> impl OrchestrationHandler {
    move |ctx: OrchestrationContext, _: Payload| async move {
        let mut answers = Vec::new();
        for place in 0..3 {
            if places.contains(&place) {
                answers.push(ctx.patched("gate"));
            }
            if place < 2 {
                ctx.schedule_wait("go").await;
            }
        }
        Ok(json!(answers).into())
    }
}

/// Replays with other code and takes what is left of its turns. Returns all lines from event `from` on.
fn gone_on_with(drive: &Drive, handler: impl OrchestrationHandler, jobs: usize) -> Vec<String> {
    let mut execution = drive.replay_with(handler).unwrap();
    let mut lines = Vec::new();
    for _ in 0..jobs {
        let taken = execution.take_turn(2_000, vec![Drive::event("go", ())]).unwrap();
        let events = taken.turn.unwrap().events;
        lines.extend(events.iter().map(|event| format!("{} {}", event.id, event.summary())));
    }
    lines
}

#[test]
fn e20_live_code_takes_the_patch_and_marks_it_once() {
    let mut drive = Drive::start(gated(&[0, 1, 2]), ());
    drive.raise("go", ()).evict().raise("go", ()).evict();
    assert_eq!(
        drive.lines()[1..],
        [
            r#"2 PatchMarked "gate""#,
            r#"3 ExternalSubscribed "go""#,
            r#"4 ExternalEvent "go" null"#,
            r#"5 ExternalSubscribed "go""#,
            r#"6 ExternalEvent "go" null"#,
            "7 OrchestrationCompleted [true,true,true]",
        ]
    );
}

#[test]
fn e20_asked_twice_in_one_step_a_patch_is_marked_once() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let answers = [ctx.patched("a"), ctx.patched("b"), ctx.patched("a")];
            Ok(json!(answers).into())
        },
        (),
    );
    drive.evict();
    assert_eq!(
        drive.lines()[1..],
        [r#"2 PatchMarked "a""#, r#"3 PatchMarked "b""#, "4 OrchestrationCompleted [true,true,true]"]
    );
}

#[test]
fn e20_the_replay_of_an_old_history_is_told_no_and_it_stays_no_for_the_execution() {
    let drive = Drive::start(gated(&[]), ());
    // The gate is asked in the replayed turn, so the answer holds in the live turns that follow.
    assert_eq!(
        gone_on_with(&drive, gated(&[0, 1, 2]), 2),
        [
            r#"3 ExternalEvent "go" null"#,
            r#"4 ExternalSubscribed "go""#,
            r#"5 ExternalEvent "go" null"#,
            "6 OrchestrationCompleted [false,false,false]",
        ]
    );
}

#[test]
fn e20_a_gate_behind_the_end_of_an_old_history_is_told_yes() {
    let drive = Drive::start(gated(&[]), ());
    assert_eq!(
        gone_on_with(&drive, gated(&[1, 2]), 2),
        [
            r#"3 ExternalEvent "go" null"#,
            r#"4 PatchMarked "gate""#,
            r#"5 ExternalSubscribed "go""#,
            r#"6 ExternalEvent "go" null"#,
            "7 OrchestrationCompleted [true,true]",
        ]
    );
}

#[test]
fn e20_a_deleted_gate_is_no_divergence() {
    let mut first_turn = Drive::start(gated(&[0]), ());
    first_turn.replay_with(gated(&[])).unwrap();
    first_turn.raise("go", ());
    first_turn.replay_with(gated(&[])).unwrap();

    let mut later_turn = Drive::start(gated(&[1]), ());
    later_turn.raise("go", ());
    assert_eq!(later_turn.last_lines()[1], r#"4 PatchMarked "gate""#);
    later_turn.replay_with(gated(&[])).unwrap();

    // A mark that is the last decision of a turn.
    let last = |gate: bool| {
        move |ctx: OrchestrationContext, _: Payload| async move {
            let wait = ctx.schedule_wait("go");
            if gate {
                ctx.patched("gate");
            }
            Ok(wait.await)
        }
    };
    let mut drive = Drive::start(last(true), ());
    assert_eq!(drive.lines()[2], r#"3 PatchMarked "gate""#);
    drive.replay_with(last(false)).unwrap();
    drive.raise("go", ());
    drive.replay_with(last(false)).unwrap();
}

#[test]
fn e20_a_mark_in_an_earlier_turn_counts() {
    let mut drive = Drive::start(gated(&[0]), ());
    drive.raise("go", ());
    // Asked later than it was marked: in a replayed turn, or in a live one, where it is not marked again.
    assert_eq!(
        gone_on_with(&drive, gated(&[1, 2]), 1),
        [r#"6 ExternalEvent "go" null"#, "7 OrchestrationCompleted [true,true]"]
    );
    assert_eq!(
        gone_on_with(&drive, gated(&[2]), 1),
        [r#"6 ExternalEvent "go" null"#, "7 OrchestrationCompleted [true]"]
    );
}

#[test]
fn e20_a_mark_matches_by_id_wherever_it_stands_in_its_turn() {
    let asking_at = |place: usize| {
        move |ctx: OrchestrationContext, _: Payload| async move {
            let mut answer = None;
            for step in 0..3 {
                if step == place {
                    answer = Some(ctx.patched("gate"));
                }
                ctx.set_status(json!(step));
            }
            if place == 3 {
                let from = ctx.clone();
                answer = Some(ctx.spawn(async move { from.patched("gate") }).await);
            }
            ctx.schedule_wait("go").await;
            Ok(json!(answer).into())
        }
    };
    for recorded in 0..4 {
        let mut drive = Drive::start(asking_at(recorded), ());
        drive.raise("go", ());
        let marks = drive.lines().iter().filter(|line| line.contains("PatchMarked")).count();
        assert_eq!(marks, 1);
        for asked in 0..4 {
            drive.replay_with(asking_at(asked)).unwrap();
        }
    }
}

#[test]
fn e20_a_mark_in_a_later_turn_does_not_count_for_an_earlier_one() {
    let mut drive = Drive::start(gated(&[1]), ());
    drive.raise("go", ()).raise("go", ());
    assert_eq!(drive.last_lines()[1], "7 OrchestrationCompleted [true]");
    // Asked before the mark the answer is no, and holds, which is another path than the recorded one.
    let Err(TurnFailure::Nondeterminism(report)) = drive.replay_with(gated(&[0])) else {
        panic!("the replay went through")
    };
    assert_eq!((report.turn, report.event.0), (3, 7));
    assert_eq!(report.recorded.line, "OrchestrationCompleted [true]");
    assert_eq!(report.code.line, "OrchestrationCompleted [false]");
}

#[test]
fn e20_the_path_behind_a_gate_is_compared_as_ever() {
    let old = |ctx: OrchestrationContext, _: Payload| async move {
        Ok(ctx.schedule_activity("Old", ()).await.unwrap())
    };
    let new = |ctx: OrchestrationContext, _: Payload| async move {
        let name = if ctx.patched("gate") { "New" } else { "Old" };
        Ok(ctx.schedule_activity(name, ()).await.unwrap())
    };
    let only_new = |ctx: OrchestrationContext, _: Payload| async move {
        Ok(ctx.schedule_activity("New", ()).await.unwrap())
    };
    let of_old = Drive::start(old, ());
    let of_new = Drive::start(new, ());
    of_old.replay_with(new).unwrap();
    of_new.replay_with(new).unwrap();
    of_new.replay_with(only_new).unwrap();
    let parts_at = |outcome: Result<_, TurnFailure>| match outcome {
        Err(TurnFailure::Nondeterminism(report)) => report.event.0,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("the replay went through"),
    };
    assert_eq!(parts_at(of_old.replay_with(only_new)), 2);
    assert_eq!(parts_at(of_new.replay_with(old)), 3);
}
