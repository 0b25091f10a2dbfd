//! Continue-as-new is one commit and loses nothing (G26); keys and versions go with it (G16, G27).

mod shard_cases;

use perennial_core::shard::ShardOptions;
use perennial_core::{Attributes, Handlers, Job, OrchestrationContext, Payload, RetryPolicy, Started};
use perennial_testkit::Desk;
use shard_cases::{Outcome, handlers, number};

/// Takes one event `n` per execution, and ends with all it took. What an `end` says is left to the next execution.
async fn one_each(ctx: OrchestrationContext, input: Payload) -> Outcome {
    let mut taken: Vec<Payload> = input.decode().expect("what was taken before");
    let next: Payload = ctx.schedule_wait("n").await;
    if next == "end".into() {
        return Ok(Payload::encode(&taken).expect("payloads encode"));
    }
    taken.push(next);
    ctx.continue_as_new(Payload::encode(&taken).expect("payloads encode")).await
}

/// Publishes what it is, and continues with the next event, at the version that the event names, if any.
async fn publishes(ctx: OrchestrationContext, input: Payload) -> Outcome {
    if input == "first".into() {
        ctx.upsert_attributes([("colour", "red")]);
        ctx.set_status("half");
        let version: Payload = ctx.schedule_wait("n").await;
        let version: Option<String> = version.decode().expect("a version or none");
        return match version {
            Some(version) => ctx.continue_as_new_versioned(version, "second").await,
            None => ctx.continue_as_new("second").await,
        };
    }
    Ok(ctx.schedule_wait("n").await)
}

/// Has an activity running and one waiting for its retry when it continues.
async fn busy(ctx: OrchestrationContext, input: Payload) -> Outcome {
    let retry = || RetryPolicy::fixed(3, 60_000);
    let running = ctx.schedule_activity("running", ()).retry(retry());
    let waiting = ctx.schedule_activity("waiting", ()).retry(retry());
    ctx.schedule_wait("n").await;
    if input == "first".into() {
        ctx.continue_as_new::<()>("second").await;
    }
    let _ = ctx.join2(running, waiting).await;
    Ok("over".into())
}

fn all() -> Handlers {
    let version = Desk::VERSION;
    handlers()
        .with("one_each", version, one_each)
        .with("publishes", version, publishes)
        .with("busy", version, busy)
}

fn started(name: &str, input: impl Into<Payload>) -> Desk {
    started_with(name, input, ShardOptions::default())
}

fn started_with(name: &str, input: impl Into<Payload>, options: ShardOptions) -> Desk {
    let mut desk = Desk::with_options(all(), options);
    desk.start(name, "a", input);
    desk.settle();
    desk
}

fn nothing_taken() -> Payload {
    Payload::encode(&Vec::<Payload>::new()).expect("payloads encode")
}

fn output(desk: &Desk) -> String {
    let last = desk.last_lines("a", 1).pop().expect("it has events");
    last.split_once("OrchestrationCompleted ")
        .unwrap_or_else(|| panic!("it is complete: {last}"))
        .1
        .to_owned()
}

#[test]
fn g26_continuing_is_one_commit() {
    let mut desk = started("one_each", nothing_taken());
    desk.raise("a", "n", "1");
    desk.take_turns();
    desk.commit();
    assert_eq!(
        desk.writes("a"),
        ["insert running, turn 1", "turn 2, execution 2, sent 1"],
        "the end of the first execution and the start of the second"
    );
    assert_eq!((desk.row("a").execution, desk.inbox("a")), (2, vec!["Start one_each".to_owned()]));
    desk.settle();
    assert_eq!(desk.writes("a").len(), 3);
    assert_eq!(desk.writes("a")[2], "turn 1, consumed 1", "and a column that did not change is not written");
    assert_eq!(
        desk.lines_of("a", 1).last().map(String::as_str),
        Some(r#"4 OrchestrationContinuedAsNew latest ["1"]"#)
    );
    assert_eq!(desk.lines("a"), [r#"1 OrchestrationStarted one_each ["1"]"#, r#"2 ExternalSubscribed "n""#]);
}

#[test]
fn g26_an_instance_may_continue_in_its_first_turn() {
    async fn counts(ctx: OrchestrationContext, input: Payload) -> Outcome {
        let count: u64 = input.decode().expect("a number");
        if count == 0 { Ok("over".into()) } else { ctx.continue_as_new(number(count - 1)).await }
    }
    for is_written in [None, Some(true), Some(false)] {
        let mut desk = Desk::new(all().with("counts", Desk::VERSION, counts));
        let asked = desk.start("counts", "a", number(3));
        if let Some(is_written) = is_written {
            desk.take_turns();
            desk.commit_unknown(is_written);
            desk.settle_unknown();
        }
        desk.settle();
        assert_eq!(desk.told(asked), "started");
        assert_eq!((desk.row("a").execution, desk.status("a")), (4, "completed".into()));
        assert!(desk.inbox("a").is_empty());
    }
}

#[test]
fn g26_events_from_everywhere_cross_in_their_order() {
    let mut desk = started("one_each", nothing_taken());
    desk.raise("a", "n", "1");
    desk.raise("a", "n", "2");
    desk.send_event("a", "n", "3");
    desk.pass_inbox();
    desk.take_turns();
    // While the commit that continues is under way.
    desk.raise("a", "n", "4");
    desk.send_event("a", "n", "5");
    desk.pass_inbox();
    desk.settle();
    desk.raise("a", "n", "end");
    desk.settle();
    assert_eq!(output(&desk), r#"["1","2","3","4","5"]"#);
    assert_eq!((desk.row("a").execution, desk.inbox("a").len()), (6, 0));
    assert_eq!(desk.counters("a").conflicts, 0);
}

#[test]
fn g26_events_that_one_turn_brought_together_cross_every_continuation() {
    for is_crashing in [false, true] {
        let mut desk = started("one_each", nothing_taken());
        desk.crash();
        for event in ["1", "2", "3", "end"] {
            desk.send_event("a", "n", event);
        }
        let mut guard = 0;
        desk.take_over();
        while desk.status("a") == "running" && guard < 100 {
            guard += 1;
            desk.load();
            desk.take_turns();
            if is_crashing && guard % 2 == 0 {
                desk.commit();
                desk.crash().take_over();
            }
            desk.commit();
            desk.follow_hint();
        }
        assert_eq!(output(&desk), r#"["1","2","3"]"#, "crashing: {is_crashing}");
        assert!(desk.inbox("a").is_empty());
    }
}

#[test]
fn g26_an_inbox_that_is_read_before_the_commits_outcome_is_known_starts_the_execution_once() {
    let mut desk = started("one_each", nothing_taken());
    desk.raise("a", "n", "1");
    desk.take_turns();
    desk.commit_unknown(true);
    desk.pass_inbox();
    desk.settle_unknown();
    desk.settle();
    assert_eq!((desk.row("a").execution, desk.lines("a").len(), desk.inbox("a").len()), (2, 2, 0));
}

#[test]
fn g26_a_start_that_is_read_while_its_own_commit_is_answered_costs_no_conflict() {
    let mut desk = started("one_each", nothing_taken());
    desk.raise("a", "n", "1");
    desk.take_turns();
    // Another thread reads the inbox between the store's commit and its answer.
    desk.commit_with(|desk| {
        desk.pass_inbox();
    });
    desk.settle();
    assert_eq!((desk.row("a").execution, desk.lines("a").len(), desk.inbox("a").len()), (2, 2, 0));
    assert_eq!(desk.counters("a").conflicts, 0);
}

#[test]
fn g26_a_crash_right_after_the_commit_begins_the_next_execution() {
    let mut desk = started("one_each", nothing_taken());
    desk.crash();
    desk.send_event("a", "n", "1");
    desk.send_event("a", "n", "2");
    desk.take_over();
    desk.load();
    // It grows back, and takes both events in one turn.
    desk.take_turns();
    desk.take_turns();
    desk.commit();
    assert_eq!(desk.inbox("a"), ["Start one_each"]);
    desk.restart();
    assert_eq!(desk.row("a").execution, 3, "and the second event was carried");
    desk.raise("a", "n", "end");
    desk.settle();
    assert_eq!(output(&desk), r#"["1","2"]"#);
}

#[test]
fn g7_a_continuation_whose_commit_is_unknown_happens_once() {
    for is_written in [true, false] {
        let mut desk = started("one_each", nothing_taken());
        let raised = desk.raise("a", "n", "1");
        desk.raise("a", "n", "end");
        desk.take_turns();
        desk.commit_unknown(is_written);
        assert_eq!(desk.told(raised), "nothing");
        desk.settle_unknown();
        desk.settle();
        assert_eq!((desk.told(raised), desk.row("a").execution), ("accepted".into(), 2));
        assert_eq!((output(&desk), desk.inbox("a").len()), (r#"["1"]"#.into(), 0));
    }
}

#[test]
fn g26_attributes_status_and_deadline_are_carried() {
    let mut desk = Desk::new(all());
    let started =
        Started { deadline_ms: Some(50_000), ..Started::new("publishes", Desk::VERSION, "first", 1) };
    desk.start_with("a", started);
    desk.settle();
    desk.raise("a", "n", Payload::null());
    desk.settle();
    desk.restart();
    let row = desk.row("a");
    assert_eq!((row.execution, row.published, row.wake_at_ms), (2, Some("half".into()), Some(50_000)));
    assert_eq!(row.attributes, Attributes::from([("colour".to_owned(), "red".into())]));
    desk.at(50_000).settle();
    assert_eq!(desk.last_lines("a", 1), [r#"3 OrchestrationTerminated "timeout""#]);
}

#[test]
fn g26_open_activities_and_tasks_of_the_old_execution_are_gone() {
    let mut desk = started("busy", "first");
    desk.heartbeat("a", "running", "half").settle();
    desk.fail("a", "waiting", "boom").settle();
    assert_eq!(desk.tasks("a").len(), 2);
    desk.raise("a", "n", "go");
    desk.take_turns();
    desk.commit();
    assert!(desk.tasks("a").is_empty(), "with the commit that continues: {:?}", desk.tasks("a"));
    assert_eq!(desk.stops(), ["a running"]);
    desk.settle();
    assert_eq!(desk.row("a").execution, 2);
    desk.at(100_000).settle();
    assert_eq!(desk.tasks("a").len(), 0, "the new execution's own first attempts run");
}

#[test]
fn g26_a_termination_or_cancel_that_comes_during_the_continuation_is_obeyed() {
    for is_dormant in [false, true] {
        for (ask, status) in [("terminate", "terminated"), ("cancel", "cancelled")] {
            let mut desk = started("one_each", nothing_taken());
            desk.raise("a", "n", "1");
            desk.take_turns();
            if is_dormant {
                desk.commit();
                desk.crash();
            }
            let asked =
                if ask == "cancel" { desk.cancel("a", "enough") } else { desk.terminate("a", "enough") };
            desk.settle();
            assert_eq!((desk.told(asked), desk.status("a")), ("accepted".into(), status.into()));
            assert_eq!((desk.row("a").execution, desk.inbox("a").len()), (2, 0));
        }
    }
}

#[test]
fn g26_waiters_hear_of_the_last_executions_end() {
    let mut desk = started("one_each", nothing_taken());
    let waiter = desk.await_end("a");
    desk.raise("a", "n", "1");
    desk.settle();
    assert_eq!(desk.told(waiter), "nothing");
    desk.raise("a", "n", "end");
    desk.settle();
    assert_eq!(desk.told(waiter), r#"ended: OrchestrationCompleted ["1"]"#);
}

#[test]
fn g16_an_events_key_is_known_through_continuations() {
    for is_restarted in [false, true] {
        let mut desk = started("one_each", nothing_taken());
        for execution in 2..=4 {
            desk.raise_once("a", "n", "key", "once");
            desk.settle();
            if is_restarted {
                desk.restart();
            }
            desk.raise("a", "n", number(execution));
            desk.settle();
        }
        desk.raise_once("a", "n", "key", "once");
        desk.raise("a", "n", "end");
        desk.settle();
        assert_eq!(output(&desk), r#"["once",2,3,4]"#);
    }
}

#[test]
fn g16_an_event_with_a_key_that_is_carried_unread_is_not_taken_for_a_duplicate() {
    let mut desk = started("one_each", nothing_taken());
    desk.crash();
    let send = |desk: &mut Desk, key: &str, payload: &str| {
        let key = Some(key.to_owned());
        let job = Job::ExternalEvent { name: "n".to_owned(), payload: payload.into(), key };
        desk.send_message("a", &perennial_core::shard::Message::Job(job));
    };
    for (key, payload) in [("k1", "1"), ("k2", "2"), ("k3", "3")] {
        send(&mut desk, key, payload);
    }
    desk.take_over().settle();
    for (key, payload) in [("k1", "1"), ("k2", "2"), ("k3", "3")] {
        send(&mut desk, key, payload);
    }
    desk.pass_inbox().settle();
    desk.raise("a", "n", "end");
    desk.settle();
    assert_eq!((output(&desk), desk.inbox("a").len()), (r#"["1","2","3"]"#.into(), 0));
}

#[test]
fn g16_a_key_is_unique_in_the_inbox() {
    let mut desk = started("one_each", nothing_taken());
    desk.crash();
    let job = Job::ExternalEvent { name: "n".to_owned(), payload: "1".into(), key: Some("key".to_owned()) };
    let message = perennial_core::shard::Message::Job(job);
    desk.send_message("a", &message);
    let again = desk.send_message("a", &message);
    assert!(matches!(again, perennial_core::store::SendOutcome::Duplicate), "{again:?}");
    desk.raise_once("a", "n", "key", "1");
    desk.take_over().settle();
    desk.raise("a", "n", "end");
    desk.settle();
    assert_eq!(output(&desk), r#"["1"]"#);
}

#[test]
fn g26_the_next_execution_has_the_version_that_was_given_or_the_latest() {
    for (asked, expected) in [(Payload::from("1.0.0"), "1.0.0"), (Payload::null(), "1.10.0")] {
        let mut desk =
            Desk::new(all().with("publishes", "1.9.0", publishes).with("publishes", "1.10.0", publishes));
        desk.start("publishes", "a", "first");
        desk.settle();
        assert_eq!(desk.row("a").version, "1.0.0");
        desk.raise("a", "n", asked);
        desk.settle();
        assert_eq!((desk.row("a").execution, desk.row("a").version.as_str()), (2, expected));
        desk.replace_code(all().with("publishes", "1.10.0", publishes).with("publishes", "2.0.0", publishes));
        desk.restart();
        assert_eq!(
            (desk.status("a"), desk.row("a").version.as_str()),
            ("running".into(), expected),
            "and keeps it"
        );
    }
}

#[test]
fn g27_a_version_that_is_missing_blocks_the_next_execution_until_a_node_has_it() {
    let mut desk = started("publishes", "first");
    desk.raise("a", "n", "7.0.0");
    desk.raise("a", "n", "kept");
    desk.settle();
    assert_eq!((desk.status("a"), desk.row("a").execution), ("running, blocked: PER-0301".into(), 2));
    let reason = desk.row("a").blocked.expect("it is blocked").reason;
    assert!(reason.contains("publishes 7.0.0"), "{reason}");
    desk.raise("a", "n", "later");
    desk.settle();
    desk.replace_code(all().with("publishes", "7.0.0", publishes)).restart();
    assert_eq!((desk.status("a"), desk.row("a").version.as_str()), ("completed".into(), "7.0.0"));
    assert_eq!(output(&desk), r#""kept""#);
    assert!(desk.inbox("a").is_empty());
}

#[test]
fn g27_an_instance_keeps_the_version_that_its_first_turn_resolved() {
    let mut desk = Desk::new(all());
    desk.start_with("a", Started::new("collect", "", (), 1));
    desk.settle();
    assert_eq!(desk.row("a").version, "1.0.0");
    let other = |ctx: OrchestrationContext, _: Payload| async move {
        let _ = ctx.schedule_activity("other", ()).await;
        Ok(Payload::null())
    };
    desk.replace_code(all().with("collect", "2.0.0", other)).restart();
    desk.raise("a", "n", "end");
    desk.settle();
    assert_eq!((desk.status("a"), desk.row("a").version.as_str()), ("completed".into(), "1.0.0"));
}

#[test]
fn g27_a_start_without_a_version_waits_for_code_of_any() {
    let mut desk = Desk::new(all());
    desk.start_with("a", Started::new("later", "", "in", 1));
    desk.settle();
    assert_eq!(desk.status("a"), "pending, blocked: PER-0301");
    desk.replace_code(all().with("later", "3.0.0", shard_cases::echo)).restart();
    assert_eq!((desk.status("a"), desk.row("a").version.as_str()), ("completed".into(), "3.0.0"));
}

#[test]
fn g31_shards_that_are_given_up_come_to_rest_and_what_came_is_kept() {
    async fn again(ctx: OrchestrationContext, count: Payload) -> Outcome {
        let count: u64 = count.decode().expect("a number");
        match count {
            3 => Ok(ctx.schedule_wait("n").await),
            _ => ctx.continue_as_new(number(count + 1)).await,
        }
    }
    let mut desk = Desk::new(handlers().with("again", Desk::VERSION, again));
    desk.start("again", "a", number(1));
    desk.start("sleep", "b", number(10));
    desk.take_turns();
    let raised = desk.raise("a", "n", "early");
    desk.close_shards().settle();
    assert_eq!((desk.told(raised), desk.is_quiet(), desk.row("a").execution), ("accepted".into(), true, 2));
    desk.at(2_000).pass_inbox().pass_asks().settle();
    assert_eq!((desk.status("b"), desk.row("a").execution), ("running".into(), 2), "nothing is begun");
    desk.restart();
    assert_eq!((desk.status("a"), desk.status("b")), ("completed".into(), "completed".into()));
    assert!(desk.last_lines("a", 1)[0].ends_with(r#"OrchestrationCompleted "early""#));
}
