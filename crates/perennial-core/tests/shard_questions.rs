//! Queries and updates: from callers here and from other processes, between turns, answered once (G19, S6, E21).

mod shard_cases;

use perennial_core::shard::{AskReply, Question, ShardOptions};
use perennial_core::store::{AskOutcome, CommitOutcome, Conflict};
use perennial_core::{Handlers, OrchestrationContext, Payload};
use perennial_testkit::Desk;
use shard_cases::{Outcome, handlers, secs};

/// Keeps a list. `list` shows it; `add` adds at once, `slow` after an activity; `bad` is refused; an event ends it.
async fn lists(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let list = ctx.state(Vec::<String>::new());
    let shown = list.clone();
    ctx.on_query("list", move |_: Payload| Ok(Payload::from(shown.read(|list| list.join(",")))));
    let refuse = |payload: &Payload| match payload {
        bad if *bad == "bad".into() => Err(Payload::from("bad is bad")),
        _ => Ok(()),
    };
    let added = list.clone();
    ctx.on_update("add", refuse, move |payload: Payload| {
        let added = added.clone();
        async move {
            let text: String = payload.decode().expect("a text");
            let length = added.update(|list| {
                list.push(text);
                list.len()
            });
            Ok(shard_cases::number(length as u64))
        }
    });
    let (slow, slow_ctx) = (list.clone(), ctx.clone());
    ctx.on_update("slow", refuse, move |payload: Payload| {
        let (slow, ctx) = (slow.clone(), slow_ctx.clone());
        async move {
            let done = ctx.schedule_activity("work", ()).await.map_err(|_| Payload::from("work failed"))?;
            slow.update(|list| list.push(format!("{payload:?}").replace('"', "")));
            Ok(done)
        }
    });
    let end: Payload = ctx.schedule_wait("n").await;
    assert!(end != "panic".into(), "boom");
    if end == "again".into() {
        return ctx.continue_as_new(()).await;
    }
    Ok(end)
}

fn all() -> Handlers {
    handlers().with("lists", Desk::VERSION, lists)
}

fn listing() -> Desk {
    let mut desk = Desk::new(all());
    desk.start("lists", "a", ());
    desk.settle();
    desk
}

fn query() -> Question {
    Question::Query { name: "list".to_owned(), payload: ().into() }
}

fn update(name: &str, payload: &str, key: Option<&str>) -> Question {
    Question::Update { name: name.to_owned(), payload: payload.into(), key: key.map(str::to_owned) }
}

/// Another process asks; returns the request's number.
fn send(desk: &mut Desk, question: &Question) -> u64 {
    match desk.send_ask("a", question, 1_000_000) {
        AskOutcome::Asked(number) => number,
        AskOutcome::NoInstance => panic!("it exists"),
    }
}

fn answered(payload: impl Into<Payload>) -> Option<AskReply> {
    Some(AskReply::Answered(payload.into()))
}

/// What a new caller is told when asking for the list.
fn list(desk: &mut Desk) -> String {
    let asked = desk.query("a", "list", ());
    desk.settle();
    desk.told(asked)
}

#[test]
fn g19_a_query_is_answered_by_an_instance_that_is_resident_dormant_or_ended() {
    let mut desk = listing();
    desk.update("a", "add", None, "x");
    desk.settle();
    let before = desk.writes("a");
    assert_eq!(list(&mut desk), r#"answered: "x""#);
    desk.crash();
    assert_eq!(list(&mut desk), r#"answered: "x""#, "it grows back from its history");
    assert_eq!(desk.writes("a"), before, "and leaves no trace");
    desk.raise("a", "n", "end");
    desk.settle();
    assert_eq!((desk.status("a"), list(&mut desk)), ("completed".into(), r#"answered: "x""#.into()));
    desk.crash();
    assert_eq!(list(&mut desk), r#"answered: "x""#);
    assert_eq!((desk.in_memory("a"), desk.status("a")), (0, "completed".into()));
}

#[test]
fn s6_a_query_of_another_process_is_answered_and_removed_in_one_commit() {
    let mut desk = listing();
    desk.update("a", "add", None, "x");
    desk.settle();
    for is_crashed in [false, true] {
        if is_crashed {
            desk.crash();
        }
        let number = send(&mut desk, &query());
        desk.pass_asks().pass_asks().settle();
        assert_eq!(desk.reply(number), answered("x"));
        assert!(desk.tables().asks.is_empty());
    }
    desk.terminate("a", "enough");
    desk.settle();
    let number = send(&mut desk, &query());
    let late = send(&mut desk, &update("add", "y", None));
    desk.pass_asks().settle();
    assert_eq!((desk.reply(number), desk.reply(late)), (answered("x"), Some(AskReply::Ended)));
}

#[test]
fn g19_what_is_asked_of_a_missing_id_is_an_error() {
    let mut desk = listing();
    let asked = [desk.query("nobody", "list", ()), desk.update("nobody", "add", None, "x")];
    desk.settle();
    assert_eq!(desk.told_all(asked), ["not found", "not found"]);
    assert!(matches!(desk.send_ask("nobody", &query(), 1), AskOutcome::NoInstance));
}

#[test]
fn g19_a_blocked_instance_says_what_blocks_it() {
    let mut desk = listing();
    desk.raise("a", "n", "panic");
    desk.settle();
    assert_eq!(desk.status("a"), "running, blocked: PER-0201");
    let row = send(&mut desk, &query());
    let asked = [desk.query("a", "list", ()), desk.update("a", "add", None, "x")];
    desk.pass_asks().settle();
    assert_eq!(desk.told_all(asked), ["blocked: PER-0201", "blocked: PER-0201"]);
    assert!(matches!(desk.reply(row), Some(AskReply::Blocked { code, .. }) if code == "PER-0201"));
    desk.crash();
    let asked = desk.query("a", "list", ());
    desk.settle();
    assert_eq!(desk.told(asked), "blocked: PER-0201", "also by an owner that only knows the row");
    assert_eq!(desk.lines("a").len(), 2, "no update was recorded");
}

#[test]
fn g19_questions_that_meet_the_turn_that_fails_are_told_that_it_is_blocked() {
    let mut desk = listing();
    let raised = desk.raise("a", "n", "panic");
    let asked = [desk.query("a", "list", ()), desk.update("a", "add", None, "x")];
    desk.settle();
    assert_eq!(desk.told(raised), "accepted");
    assert_eq!(desk.told_all(asked), ["blocked: PER-0201", "blocked: PER-0201"]);
}

#[test]
fn e21_a_refused_update_leaves_no_trace() {
    let mut desk = listing();
    let before = (desk.lines("a"), desk.writes("a"));
    let refused = desk.update("a", "add", Some("key"), "bad");
    let unknown = desk.update("a", "nothing", None, "x");
    desk.settle();
    assert!(desk.told(refused).starts_with("refused: "), "{}", desk.told(refused));
    assert!(desk.told(unknown).starts_with("refused: "), "{}", desk.told(unknown));
    assert_eq!((desk.lines("a"), desk.writes("a")), before);
    let row = send(&mut desk, &update("add", "bad", None));
    desk.pass_asks().settle();
    let reply = desk.reply(row);
    assert!(
        matches!(&reply, Some(AskReply::Refused { error: Some(error), .. }) if *error == "bad is bad".into())
    );
    assert_eq!(desk.lines("a"), before.0);
    // The key of what was refused is free.
    let again = desk.update("a", "add", Some("key"), "good");
    desk.settle();
    assert_eq!(desk.told(again), "answered: 1");
}

#[test]
fn g5_an_update_that_is_answered_in_its_turn_is_answered_when_the_turn_is_durable() {
    let mut desk = listing();
    let asked = desk.update("a", "add", None, "x");
    desk.take_turns();
    assert_eq!(desk.told(asked), "nothing");
    desk.commit();
    assert_eq!(desk.told(asked), "answered: 1");
    assert_eq!(desk.last_lines("a", 2), [r#"3 UpdateRequested "add" "x""#, "4 UpdateCompleted of 3 1 in h0"]);
}

#[test]
fn g7_an_update_whose_commit_is_unknown_is_done_once() {
    for is_written in [true, false] {
        let mut desk = listing();
        let asked = desk.update("a", "add", None, "x");
        let row = send(&mut desk, &update("add", "y", Some("key")));
        desk.take_turns();
        desk.commit_unknown(is_written);
        assert_eq!(desk.told(asked), "nothing");
        desk.settle_unknown();
        desk.settle();
        assert_eq!(desk.told(asked), "answered: 1");
        desk.pass_asks().take_turns();
        desk.commit_unknown(is_written);
        desk.settle_unknown();
        desk.pass_asks().settle();
        assert_eq!(desk.reply(row), answered(shard_cases::number(2)));
        assert_eq!((list(&mut desk), desk.tables().asks.len()), (r#"answered: "x,y""#.into(), 0));
    }
}

#[test]
fn g19_an_accepted_update_is_answered_once_when_its_handler_returns() {
    let mut desk = listing();
    let asked = desk.update("a", "slow", Some("key"), "x");
    let row = send(&mut desk, &update("slow", "x", Some("key")));
    desk.settle();
    desk.pass_asks().settle();
    assert_eq!((desk.told(asked), desk.reply(row)), ("nothing".into(), None));
    assert_eq!(desk.runs().len(), 1, "the second one is attached to the first");
    desk.finish("a", "work", "done").settle();
    assert_eq!((desk.told(asked), desk.reply(row)), (r#"answered: "done""#.into(), answered("done")));
    let later = desk.update("a", "slow", Some("key"), "x");
    desk.settle();
    assert_eq!(desk.told(later), r#"answered: "done""#, "the recorded answer");
    assert_eq!((desk.runs().len(), list(&mut desk)), (1, r#"answered: "x""#.into()));
}

#[test]
fn g19_the_error_of_an_accepted_update_is_its_answer() {
    let mut desk = listing();
    let asked = desk.update("a", "slow", Some("key"), "x");
    desk.settle();
    desk.fail("a", "work", "boom").settle();
    let later = desk.update("a", "slow", Some("key"), "x");
    desk.settle();
    assert_eq!(desk.told_all([asked, later]), [r#"failed: "work failed""#, r#"failed: "work failed""#]);
}

#[test]
fn g16_a_crash_between_acceptance_and_answer_accepts_no_second_time() {
    // By a caller who asks again, and by the row that is still there.
    for is_row in [false, true] {
        let mut desk = listing();
        let row = send(&mut desk, &update("slow", "x", Some("key")));
        if is_row {
            desk.pass_asks().settle();
        } else {
            desk.update("a", "slow", Some("key"), "x");
            desk.settle();
        }
        desk.restart();
        assert_eq!(desk.running("a"), ["work"], "the handler goes on");
        let again = desk.update("a", "slow", Some("key"), "x");
        desk.settle();
        assert_eq!((desk.told(again), desk.reply(row)), ("nothing".into(), None));
        desk.finish("a", "work", "done").settle();
        assert_eq!((desk.told(again), desk.reply(row)), (r#"answered: "done""#.into(), answered("done")));
        let updates = desk.lines("a").iter().filter(|line| line.contains("UpdateRequested")).count();
        assert_eq!((updates, desk.tables().asks.len()), (1, 0));
    }
}

#[test]
fn g16_a_crash_after_the_answer_gives_the_recorded_one() {
    let mut desk = listing();
    desk.update("a", "add", Some("key"), "x");
    desk.settle();
    desk.restart();
    let again = desk.update("a", "add", Some("key"), "x");
    desk.settle();
    assert_eq!((desk.told(again), list(&mut desk)), ("answered: 1".into(), r#"answered: "x""#.into()));
}

#[test]
fn g16_an_updates_key_is_known_through_a_continuation() {
    let mut desk = listing();
    desk.update("a", "add", Some("key"), "x");
    desk.settle();
    desk.raise("a", "n", "again");
    desk.settle();
    assert_eq!(desk.row("a").execution, 2);
    let again = desk.update("a", "add", Some("key"), "x");
    desk.settle();
    assert_eq!(desk.told(again), "key taken");
    assert_eq!(list(&mut desk), r#"answered: """#);
}

#[test]
fn g19_updates_are_told_when_their_instance_ends_or_continues_first() {
    type End = fn(&mut Desk);
    let ends: [End; 4] = [
        |desk| {
            desk.raise("a", "n", "end");
        },
        |desk| {
            desk.raise("a", "n", "again");
        },
        |desk| {
            desk.terminate("a", "enough");
        },
        |desk| {
            desk.cancel("a", "enough");
        },
    ];
    for end in ends {
        let mut desk = listing();
        let asked = desk.update("a", "slow", None, "x");
        let row = send(&mut desk, &update("slow", "y", Some("key")));
        desk.settle();
        desk.pass_asks().settle();
        end(&mut desk);
        desk.settle();
        assert_eq!((desk.told(asked), desk.reply(row)), ("has ended".into(), Some(AskReply::Ended)));
        assert!(desk.tables().asks.is_empty());
    }
}

#[test]
fn g19_updates_that_come_while_the_end_is_committed_are_told_and_queries_are_answered() {
    let mut desk = listing();
    desk.raise("a", "n", "end");
    desk.take_turns();
    let asked = [desk.update("a", "add", None, "x"), desk.query("a", "list", ())];
    desk.settle();
    assert_eq!(desk.told_all(asked), ["has ended", r#"answered: """#]);
    assert_eq!(desk.in_memory("a"), 0);
}

#[test]
fn g5_questions_that_come_while_a_commit_is_under_way_wait_for_it() {
    let mut desk = listing();
    desk.update("a", "add", None, "x");
    desk.take_turns();
    let asked = desk.query("a", "list", ());
    assert_eq!((desk.told(asked), desk.turns_to_take().len()), ("nothing".into(), 0));
    desk.commit();
    desk.take_turns();
    assert_eq!(desk.told(asked), r#"answered: "x""#);
}

#[test]
fn g5_an_answer_never_shows_a_turn_that_came_to_nothing() {
    let mut desk = listing();
    desk.update("a", "add", None, "x");
    desk.take_turns();
    desk.query("a", "list", ());
    desk.restart();
    assert_eq!(list(&mut desk), r#"answered: """#);
}

#[test]
fn e21_updates_and_queries_that_come_together_see_the_state_before_the_turn() {
    let mut desk = listing();
    desk.crash();
    let first = desk.update("a", "add", None, "x");
    let seen = desk.query("a", "list", ());
    let second = desk.update("a", "add", None, "y");
    desk.settle();
    assert_eq!(desk.told_all([first, seen, second]), ["answered: 1", r#"answered: """#, "answered: 2"]);
}

#[test]
fn g16_two_updates_with_one_key_that_come_together_are_one() {
    let mut desk = listing();
    desk.crash();
    let both = [desk.update("a", "add", Some("key"), "x"), desk.update("a", "add", Some("key"), "x")];
    desk.settle();
    assert_eq!(desk.told_all(both), ["answered: 1", "answered: 1"]);
    assert_eq!(list(&mut desk), r#"answered: "x""#);
}

#[test]
fn g19_a_question_that_comes_with_the_start_is_put_after_the_first_turn() {
    let mut desk = Desk::new(all());
    desk.start("lists", "a", ());
    let asked = [desk.query("a", "list", ()), desk.update("a", "add", None, "x")];
    desk.settle();
    assert_eq!(desk.told_all(asked), [r#"answered: """#, "answered: 1"]);
}

#[test]
fn g19_a_query_of_an_ended_instance_whose_code_is_gone_is_refused_and_blocks_nothing() {
    for is_row in [false, true] {
        let mut desk = listing();
        desk.raise("a", "n", "end");
        desk.settle();
        desk.replace_code(handlers()).crash();
        let before = desk.row("a");
        if is_row {
            let number = send(&mut desk, &query());
            desk.pass_asks().settle();
            assert!(matches!(desk.reply(number), Some(AskReply::Blocked { code, .. }) if code == "PER-0301"));
        } else {
            assert_eq!(list(&mut desk), "blocked: PER-0301");
        }
        assert_eq!((desk.row("a"), desk.in_memory("a")), (before, 0), "it has ended, and cannot be blocked");
    }
}

#[test]
fn g19_an_ended_instances_lost_query_thread_blocks_nothing() {
    let mut desk = listing();
    desk.raise("a", "n", "end");
    desk.settle();
    let before = desk.row("a");
    let asked = desk.query("a", "list", ());
    desk.look_up();
    desk.load();
    desk.lose_turn("a");
    desk.settle();
    assert_eq!(
        (desk.told(asked), desk.row("a"), desk.in_memory("a")),
        ("blocked: PER-0205".into(), before, 0)
    );
}

#[test]
fn g32_questions_whose_refusal_cannot_be_committed_are_answered_all_the_same() {
    type Trouble = fn(&mut Desk);
    let troubles: [Trouble; 2] = [
        |desk| {
            desk.commit_as("a", CommitOutcome::Conflict(Conflict::MessageGone));
            desk.settle();
        },
        |desk| desk.lose_shards(),
    ];
    for trouble in troubles {
        // Refused by a block.
        let mut desk = listing();
        desk.raise("a", "n", "panic");
        let asked = [desk.query("a", "list", ()), desk.update("a", "add", None, "x")];
        desk.take_turns();
        trouble(&mut desk);
        assert!(!desk.told_all(asked).contains(&"nothing".to_owned()), "blocked: {:?}", desk.told_all(asked));
        // Ended by a termination.
        let mut desk = listing();
        let slow = desk.update("a", "slow", None, "x");
        desk.settle();
        desk.update("a", "add", None, "x");
        desk.take_turns();
        let late = desk.update("a", "add", None, "x");
        let terminated = desk.terminate("a", "enough");
        desk.commit();
        trouble(&mut desk);
        let told = desk.told_all([slow, late, terminated]);
        assert!(!told.contains(&"nothing".to_owned()), "terminated: {told:?}");
    }
}

#[test]
fn g19_a_query_hydrates_and_an_evicted_instance_goes_on_afterwards() {
    let options = ShardOptions { max_resident: 0, ..ShardOptions::default() };
    let mut desk = Desk::with_options(all(), options);
    desk.start("lists", "a", ());
    desk.settle();
    desk.update("a", "slow", None, "x");
    desk.settle();
    assert_eq!((desk.in_memory("a"), list(&mut desk)), (0, r#"answered: """#.into()));
    assert_eq!((desk.running("a").len(), desk.runs().len(), desk.tasks("a").len()), (1, 1, 0));
    desk.finish("a", "work", "done").settle();
    assert_eq!(list(&mut desk), r#"answered: "x""#);
}

#[test]
fn e24_a_query_that_panics_reaches_only_its_caller() {
    async fn fragile(ctx: OrchestrationContext, _: Payload) -> Outcome {
        ctx.on_query("panics", |_: Payload| panic!("boom"));
        ctx.schedule_timer(secs(5)).await;
        Ok("over".into())
    }
    let mut desk = Desk::new(all().with("fragile", Desk::VERSION, fragile));
    desk.start("fragile", "a", ());
    desk.settle();
    let asked = desk.query("a", "panics", ());
    desk.settle();
    assert!(desk.told(asked).starts_with("refused"), "{}", desk.told(asked));
    desk.at(6_000).settle();
    assert_eq!(desk.status("a"), "completed");
}

#[test]
fn g32_who_asks_while_not_even_a_block_can_be_written_is_not_left_waiting() {
    async fn panics(_: OrchestrationContext, _: Payload) -> Outcome {
        panic!("boom")
    }
    for is_stored in [false, true] {
        let mut desk = Desk::new(all().with("panics", Desk::VERSION, panics));
        desk.start("panics", "a", ());
        desk.take_turns();
        if is_stored {
            desk.settle();
            desk.retry("a");
            desk.load();
            desk.take_turns();
        }
        let asked = desk.query("a", "list", ());
        desk.commit_as("a", CommitOutcome::Rejected("too much".to_owned()));
        assert_eq!(desk.told(asked), "unknown: too much", "stored: {is_stored}");
    }
}

#[test]
fn g22_an_interrupted_activity_runs_again_also_if_an_update_is_what_its_instance_grows_back_for() {
    async fn works(ctx: OrchestrationContext, _: Payload) -> Outcome {
        ctx.on_update("touch", |_: &Payload| Ok(()), |_: Payload| async { Ok(Payload::null()) });
        ctx.schedule_activity("work", ()).await.map_err(|_| Payload::null())
    }
    for from_afar in [false, true] {
        let mut desk = Desk::new(handlers().with("works", Desk::VERSION, works));
        desk.start("works", "a", ());
        desk.settle();
        desk.crash();
        if from_afar {
            send(&mut desk, &update("touch", "", None));
            desk.pass_asks().settle();
        } else {
            desk.update("a", "touch", None, "");
            desk.settle();
        }
        assert_eq!(desk.tasks("a"), ["work 1 leased, interrupted 1"]);
        desk.finish("a", "work", "done").settle();
        assert_eq!(desk.status("a"), "completed");
    }
}
