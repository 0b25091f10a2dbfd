//! Queries and updates: from callers here and from other processes, between turns, answered once (G19, S6, E21).

use crate::shard_cases::{Outcome, handlers, secs};
use perennial_core::shard::{CallReply, InstanceCall, ShardOptions};
use perennial_core::store::{CommitOutcome, Conflict, RequestOutcome};
use perennial_core::{Handlers, OrchestrationContext, Payload};
use perennial_testkit::ManualNode;

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
            Ok(crate::shard_cases::number(length as u64))
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
    handlers().with("lists", ManualNode::VERSION, lists)
}

fn listing() -> ManualNode {
    let mut node = ManualNode::new(all());
    node.start("lists", "a", ());
    node.settle();
    node
}

fn query() -> InstanceCall {
    InstanceCall::Query { name: "list".to_owned(), payload: ().into() }
}

fn update(name: &str, payload: &str, key: Option<&str>) -> InstanceCall {
    InstanceCall::Update {
        name: name.to_owned(),
        payload: payload.into(),
        key: key.map(str::to_owned),
        trace: None,
    }
}

/// Another process asks; returns the request's number.
fn send(node: &mut ManualNode, instance_call: &InstanceCall) -> u64 {
    match node.send_request("a", instance_call, 1_000_000) {
        RequestOutcome::Written(number) => number,
        RequestOutcome::NoInstance => panic!("it exists"),
    }
}

fn answered(payload: impl Into<Payload>) -> Option<CallReply> {
    Some(CallReply::Answered(payload.into()))
}

/// What a new caller is told when asking for the list.
fn list(node: &mut ManualNode) -> String {
    let asked = node.query("a", "list", ());
    node.settle();
    node.told(asked)
}

#[test]
fn g19_a_query_is_answered_by_an_instance_that_is_resident_dormant_or_ended() {
    let mut node = listing();
    node.update("a", "add", None, "x");
    node.settle();
    let before = node.writes("a");
    assert_eq!(list(&mut node), r#"answered: "x""#);
    node.crash();
    assert_eq!(list(&mut node), r#"answered: "x""#, "it grows back from its history");
    assert_eq!(node.writes("a"), before, "and leaves no trace");
    node.raise("a", "n", "end");
    node.settle();
    assert_eq!((node.status("a"), list(&mut node)), ("completed".into(), r#"answered: "x""#.into()));
    node.crash();
    assert_eq!(list(&mut node), r#"answered: "x""#);
    assert_eq!((node.in_memory("a"), node.status("a")), (0, "completed".into()));
}

#[test]
fn s6_a_query_of_another_process_is_answered_and_removed_in_one_commit() {
    let mut node = listing();
    node.update("a", "add", None, "x");
    node.settle();
    for is_crashed in [false, true] {
        if is_crashed {
            node.crash();
        }
        let number = send(&mut node, &query());
        node.pass_requests().pass_requests().settle();
        assert_eq!(node.reply(number), answered("x"));
        assert!(node.tables().requests.is_empty());
    }
    node.terminate("a", "enough");
    node.settle();
    let number = send(&mut node, &query());
    let late = send(&mut node, &update("add", "y", None));
    node.pass_requests().settle();
    assert_eq!((node.reply(number), node.reply(late)), (answered("x"), Some(CallReply::Ended)));
}

#[test]
fn g19_what_is_asked_of_a_missing_id_is_an_error() {
    let mut node = listing();
    let asked = [node.query("nobody", "list", ()), node.update("nobody", "add", None, "x")];
    node.settle();
    assert_eq!(node.told_all(asked), ["not found", "not found"]);
    assert!(matches!(node.send_request("nobody", &query(), 1), RequestOutcome::NoInstance));
}

#[test]
fn g19_a_blocked_instance_says_what_blocks_it() {
    let mut node = listing();
    node.raise("a", "n", "panic");
    node.settle();
    assert_eq!(node.status("a"), "running, blocked: PER-0201");
    let row = send(&mut node, &query());
    let asked = [node.query("a", "list", ()), node.update("a", "add", None, "x")];
    node.pass_requests().settle();
    assert_eq!(node.told_all(asked), ["blocked: PER-0201", "blocked: PER-0201"]);
    assert!(matches!(node.reply(row), Some(CallReply::Blocked { code, .. }) if code == "PER-0201"));
    node.crash();
    let asked = node.query("a", "list", ());
    node.settle();
    assert_eq!(node.told(asked), "blocked: PER-0201", "also by an owner that only knows the row");
    assert_eq!(node.lines("a").len(), 2, "no update was recorded");
}

#[test]
fn g19_questions_that_meet_the_turn_that_fails_are_told_that_it_is_blocked() {
    let mut node = listing();
    let raised = node.raise("a", "n", "panic");
    let asked = [node.query("a", "list", ()), node.update("a", "add", None, "x")];
    node.settle();
    assert_eq!(node.told(raised), "accepted");
    assert_eq!(node.told_all(asked), ["blocked: PER-0201", "blocked: PER-0201"]);
}

#[test]
fn e21_a_refused_update_leaves_no_trace() {
    let mut node = listing();
    let before = (node.lines("a"), node.writes("a"));
    let refused = node.update("a", "add", Some("key"), "bad");
    let unknown = node.update("a", "nothing", None, "x");
    node.settle();
    assert!(node.told(refused).starts_with("refused: "), "{}", node.told(refused));
    assert!(node.told(unknown).starts_with("refused: "), "{}", node.told(unknown));
    assert_eq!((node.lines("a"), node.writes("a")), before);
    let row = send(&mut node, &update("add", "bad", None));
    node.pass_requests().settle();
    let reply = node.reply(row);
    assert!(
        matches!(&reply, Some(CallReply::Refused { error: Some(error), .. }) if *error == "bad is bad".into())
    );
    assert_eq!(node.lines("a"), before.0);
    // The key of what was refused is free.
    let again = node.update("a", "add", Some("key"), "good");
    node.settle();
    assert_eq!(node.told(again), "answered: 1");
}

#[test]
fn g5_an_update_that_is_answered_in_its_turn_is_answered_when_the_turn_is_durable() {
    let mut node = listing();
    let asked = node.update("a", "add", None, "x");
    node.take_turns();
    assert_eq!(node.told(asked), "nothing");
    node.commit();
    assert_eq!(node.told(asked), "answered: 1");
    assert_eq!(node.last_lines("a", 2), [r#"3 UpdateRequested "add" "x""#, "4 UpdateCompleted of 3 1 in h0"]);
}

#[test]
fn g7_an_update_whose_commit_is_unknown_is_done_once() {
    for is_written in [true, false] {
        let mut node = listing();
        let asked = node.update("a", "add", None, "x");
        node.take_turns();
        node.commit_unknown(is_written);
        assert_eq!(node.told(asked), "nothing");
        node.settle_unknown();
        node.settle();
        assert_eq!(node.told(asked), "answered: 1");
        let row = send(&mut node, &update("add", "y", Some("key")));
        node.pass_requests().take_turns();
        node.commit_unknown(is_written);
        node.settle_unknown();
        node.pass_requests().settle();
        assert_eq!(node.reply(row), answered(crate::shard_cases::number(2)));
        assert_eq!((list(&mut node), node.tables().requests.len()), (r#"answered: "x,y""#.into(), 0));
    }
}

#[test]
fn g19_an_accepted_update_is_answered_once_when_its_handler_returns() {
    let mut node = listing();
    let asked = node.update("a", "slow", Some("key"), "x");
    let row = send(&mut node, &update("slow", "x", Some("key")));
    node.settle();
    node.pass_requests().settle();
    assert_eq!((node.told(asked), node.reply(row)), ("nothing".into(), None));
    assert_eq!(node.runs().len(), 1, "the second one is attached to the first");
    node.finish("a", "work", "done").settle();
    assert_eq!((node.told(asked), node.reply(row)), (r#"answered: "done""#.into(), answered("done")));
    let later = node.update("a", "slow", Some("key"), "x");
    node.settle();
    assert_eq!(node.told(later), r#"answered: "done""#, "the recorded answer");
    assert_eq!((node.runs().len(), list(&mut node)), (1, r#"answered: "x""#.into()));
}

#[test]
fn g19_the_error_of_an_accepted_update_is_its_answer() {
    let mut node = listing();
    let asked = node.update("a", "slow", Some("key"), "x");
    node.settle();
    node.fail("a", "work", "boom").settle();
    let later = node.update("a", "slow", Some("key"), "x");
    node.settle();
    assert_eq!(node.told_all([asked, later]), [r#"failed: "work failed""#, r#"failed: "work failed""#]);
}

#[test]
fn g16_a_crash_between_acceptance_and_answer_accepts_no_second_time() {
    // By a caller who asks again, and by the row that is still there.
    for is_row in [false, true] {
        let mut node = listing();
        let row = send(&mut node, &update("slow", "x", Some("key")));
        if is_row {
            node.pass_requests().settle();
        } else {
            node.update("a", "slow", Some("key"), "x");
            node.settle();
        }
        node.restart();
        assert_eq!(node.running("a"), ["work"], "the handler goes on");
        let again = node.update("a", "slow", Some("key"), "x");
        node.settle();
        assert_eq!((node.told(again), node.reply(row)), ("nothing".into(), None));
        node.finish("a", "work", "done").settle();
        assert_eq!((node.told(again), node.reply(row)), (r#"answered: "done""#.into(), answered("done")));
        let updates = node.lines("a").iter().filter(|line| line.contains("UpdateRequested")).count();
        assert_eq!((updates, node.tables().requests.len()), (1, 0));
    }
}

#[test]
fn g16_a_crash_after_the_answer_gives_the_recorded_one() {
    let mut node = listing();
    node.update("a", "add", Some("key"), "x");
    node.settle();
    node.restart();
    let again = node.update("a", "add", Some("key"), "x");
    node.settle();
    assert_eq!((node.told(again), list(&mut node)), ("answered: 1".into(), r#"answered: "x""#.into()));
}

#[test]
fn g16_an_updates_key_is_known_through_a_continuation() {
    let mut node = listing();
    node.update("a", "add", Some("key"), "x");
    node.settle();
    node.raise("a", "n", "again");
    node.settle();
    assert_eq!(node.row("a").execution, 2);
    let again = node.update("a", "add", Some("key"), "x");
    node.settle();
    assert_eq!(node.told(again), "key taken");
    assert_eq!(list(&mut node), r#"answered: """#);
}

#[test]
fn g19_updates_are_told_when_their_instance_ends_or_continues_first() {
    type End = fn(&mut ManualNode);
    let ends: [End; 4] = [
        |node| {
            node.raise("a", "n", "end");
        },
        |node| {
            node.raise("a", "n", "again");
        },
        |node| {
            node.terminate("a", "enough");
        },
        |node| {
            node.cancel("a", "enough");
        },
    ];
    for end in ends {
        let mut node = listing();
        let asked = node.update("a", "slow", None, "x");
        let row = send(&mut node, &update("slow", "y", Some("key")));
        node.settle();
        node.pass_requests().settle();
        end(&mut node);
        node.settle();
        assert_eq!(
            (node.told(asked), node.reply(row)),
            ("ended before it answered".into(), Some(CallReply::Unanswered))
        );
        assert!(node.tables().requests.is_empty());
    }
}

#[test]
fn g19_updates_that_come_while_the_end_is_committed_are_told_and_queries_are_answered() {
    let mut node = listing();
    node.raise("a", "n", "end");
    node.take_turns();
    let asked = [node.update("a", "add", None, "x"), node.query("a", "list", ())];
    node.settle();
    assert_eq!(node.told_all(asked), ["has ended", r#"answered: """#]);
    assert_eq!(node.in_memory("a"), 0);
}

#[test]
fn g5_questions_that_come_while_a_commit_is_under_way_wait_for_it() {
    let mut node = listing();
    node.update("a", "add", None, "x");
    node.take_turns();
    let asked = node.query("a", "list", ());
    assert_eq!((node.told(asked), node.turns_to_take().len()), ("nothing".into(), 0));
    node.commit();
    node.take_turns();
    assert_eq!(node.told(asked), r#"answered: "x""#);
}

#[test]
fn g5_an_answer_never_shows_a_turn_that_came_to_nothing() {
    let mut node = listing();
    node.update("a", "add", None, "x");
    node.take_turns();
    node.query("a", "list", ());
    node.restart();
    assert_eq!(list(&mut node), r#"answered: """#);
}

#[test]
fn e21_what_follows_an_accepted_update_sees_the_state_that_it_leaves() {
    let mut node = listing();
    node.crash();
    let first = node.update("a", "add", None, "x");
    let seen = node.query("a", "list", ());
    let second = node.update("a", "add", None, "y");
    node.settle();
    assert_eq!(node.told_all([first, seen, second]), ["answered: 1", r#"answered: "x""#, "answered: 2"]);
}

#[test]
fn g16_two_updates_with_one_key_that_come_together_are_one() {
    let mut node = listing();
    node.crash();
    let both = [node.update("a", "add", Some("key"), "x"), node.update("a", "add", Some("key"), "x")];
    node.settle();
    assert_eq!(node.told_all(both), ["answered: 1", "answered: 1"]);
    assert_eq!(list(&mut node), r#"answered: "x""#);
}

#[test]
fn g19_a_question_that_comes_with_the_start_is_put_after_the_first_turn() {
    let mut node = ManualNode::new(all());
    node.start("lists", "a", ());
    let asked = [node.query("a", "list", ()), node.update("a", "add", None, "x")];
    node.settle();
    assert_eq!(node.told_all(asked), [r#"answered: """#, "answered: 1"]);
}

#[test]
fn g19_a_query_of_an_ended_instance_whose_code_is_gone_is_refused_and_blocks_nothing() {
    for is_row in [false, true] {
        let mut node = listing();
        node.raise("a", "n", "end");
        node.settle();
        node.replace_code(handlers()).crash();
        let before = node.row("a");
        if is_row {
            let number = send(&mut node, &query());
            node.pass_requests().settle();
            assert!(
                matches!(node.reply(number), Some(CallReply::Blocked { code, .. }) if code == "PER-0301")
            );
        } else {
            assert_eq!(list(&mut node), "blocked: PER-0301");
        }
        assert_eq!((node.row("a"), node.in_memory("a")), (before, 0), "it has ended, and cannot be blocked");
    }
}

#[test]
fn g19_an_ended_instances_lost_query_thread_blocks_nothing() {
    let mut node = listing();
    node.raise("a", "n", "end");
    node.settle();
    let before = node.row("a");
    let asked = node.query("a", "list", ());
    node.look_up();
    node.load();
    node.lose_turn("a");
    node.settle();
    assert_eq!(
        (node.told(asked), node.row("a"), node.in_memory("a")),
        ("blocked: PER-0205".into(), before, 0)
    );
}

#[test]
fn g32_questions_whose_refusal_cannot_be_committed_are_answered_all_the_same() {
    type Trouble = fn(&mut ManualNode);
    let troubles: [Trouble; 2] = [
        |node| {
            node.commit_as("a", CommitOutcome::Conflict(Conflict::MessageGone));
            node.settle();
        },
        |node| node.lose_shards(),
    ];
    for trouble in troubles {
        // Refused by a block.
        let mut node = listing();
        node.raise("a", "n", "panic");
        let asked = [node.query("a", "list", ()), node.update("a", "add", None, "x")];
        node.take_turns();
        trouble(&mut node);
        assert!(!node.told_all(asked).contains(&"nothing".to_owned()), "blocked: {:?}", node.told_all(asked));
        // Ended by a termination.
        let mut node = listing();
        let slow = node.update("a", "slow", None, "x");
        node.settle();
        node.update("a", "add", None, "x");
        node.take_turns();
        let late = node.update("a", "add", None, "x");
        let terminated = node.terminate("a", "enough");
        node.commit();
        trouble(&mut node);
        let told = node.told_all([slow, late, terminated]);
        assert!(!told.contains(&"nothing".to_owned()), "terminated: {told:?}");
    }
}

#[test]
fn g19_a_query_hydrates_and_an_evicted_instance_goes_on_afterwards() {
    let options = ShardOptions { max_resident: 0, ..ShardOptions::default() };
    let mut node = ManualNode::with_options(all(), options);
    node.start("lists", "a", ());
    node.settle();
    node.update("a", "slow", None, "x");
    node.settle();
    assert_eq!((node.in_memory("a"), list(&mut node)), (0, r#"answered: """#.into()));
    assert_eq!((node.running("a").len(), node.runs().len(), node.tasks("a").len()), (1, 1, 0));
    node.finish("a", "work", "done").settle();
    assert_eq!(list(&mut node), r#"answered: "x""#);
}

#[test]
fn e24_a_query_that_panics_reaches_only_its_caller() {
    async fn fragile(ctx: OrchestrationContext, _: Payload) -> Outcome {
        ctx.on_query("panics", |_: Payload| panic!("boom"));
        ctx.schedule_timer(secs(5)).await;
        Ok("over".into())
    }
    let mut node = ManualNode::new(all().with("fragile", ManualNode::VERSION, fragile));
    node.start("fragile", "a", ());
    node.settle();
    let asked = node.query("a", "panics", ());
    node.settle();
    assert!(node.told(asked).starts_with("refused"), "{}", node.told(asked));
    node.at(6_000).settle();
    assert_eq!(node.status("a"), "completed");
}

#[test]
fn g32_who_asks_while_not_even_a_block_can_be_written_is_not_left_waiting() {
    async fn panics(_: OrchestrationContext, _: Payload) -> Outcome {
        panic!("boom")
    }
    for is_stored in [false, true] {
        let mut node = ManualNode::new(all().with("panics", ManualNode::VERSION, panics));
        node.start("panics", "a", ());
        node.take_turns();
        if is_stored {
            node.settle();
            node.retry("a");
            node.load();
            node.take_turns();
        }
        let asked = node.query("a", "list", ());
        node.commit_as("a", CommitOutcome::Rejected("too much".to_owned()));
        assert_eq!(node.told(asked), "unknown: too much", "stored: {is_stored}");
    }
}

#[test]
fn g22_an_interrupted_activity_runs_again_also_if_an_update_is_what_its_instance_grows_back_for() {
    async fn works(ctx: OrchestrationContext, _: Payload) -> Outcome {
        ctx.on_update("touch", |_: &Payload| Ok(()), |_: Payload| async { Ok(Payload::null()) });
        ctx.schedule_activity("work", ()).await.map_err(|_| Payload::null())
    }
    for from_afar in [false, true] {
        let mut node = ManualNode::new(handlers().with("works", ManualNode::VERSION, works));
        node.start("works", "a", ());
        node.settle();
        node.kill();
        if from_afar {
            send(&mut node, &update("touch", "", None));
            node.pass_requests().settle();
        } else {
            node.update("a", "touch", None, "");
            node.settle();
        }
        assert_eq!(node.tasks("a"), ["work 1 leased, begun"]);
        node.finish("a", "work", "done").settle();
        assert_eq!(node.status("a"), "completed");
    }
}

/// An account of 100. `withdraw` is refused by its validator if there is not enough left.
async fn account(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let balance = ctx.state(100_u64);
    let (left, taken) = (balance.clone(), balance);
    ctx.on_update(
        "withdraw",
        move |amount: &Payload| {
            let amount: u64 = amount.decode().expect("a number");
            if left.read(|left| *left < amount) { Err(Payload::from("not enough")) } else { Ok(()) }
        },
        move |amount: Payload| {
            let taken = taken.clone();
            async move {
                let amount: u64 = amount.decode().expect("a number");
                let left = taken.update(|balance| {
                    *balance -= amount;
                    *balance
                });
                Ok(crate::shard_cases::number(left))
            }
        },
    );
    Ok(ctx.schedule_wait("n").await)
}

#[test]
fn e21_each_update_is_validated_against_what_the_ones_before_it_left() {
    for is_far in [false, true] {
        let mut node = ManualNode::new(handlers().with("account", ManualNode::VERSION, account));
        node.start("account", "a", ());
        node.settle();
        let amounts = [1, 70, 70].map(crate::shard_cases::number);
        let replies = if is_far {
            let rows = amounts.map(|amount| {
                let update = InstanceCall::Update {
                    name: "withdraw".to_owned(),
                    payload: amount,
                    key: None,
                    trace: None,
                };
                send(&mut node, &update)
            });
            node.pass_requests().settle();
            rows.map(|row| format!("{:?}", node.reply(row).expect("it is answered")))
        } else {
            let asked = amounts.map(|amount| node.update("a", "withdraw", None, amount));
            node.settle();
            node.told_all(asked)
        };
        assert!(replies[0].contains("99") && replies[1].contains("29"), "{replies:?}");
        assert!(replies[2].to_lowercase().starts_with("refused"), "{replies:?}");
        let taken = node.jobs("a").len();
        assert_eq!(taken, 2, "what is refused leaves no trace");
    }
}
