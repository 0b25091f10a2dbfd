//! Continue-as-new is one commit and loses nothing (G26); keys and versions go with it (G16, G27).

use std::time::Duration;

use crate::shard_cases::{Outcome, handlers, handlers_and, number};
use perennial_core::shard::{Message, ShardOptions};
use perennial_core::{
    Attributes, Ending, Handlers, Job, OrchestrationContext, Payload, RetryPolicy, Started, TraceContext,
};
use perennial_testkit::ManualNode;

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
    let retry = || RetryPolicy::fixed(Duration::from_secs(60)).attempts(3);
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
    let version = ManualNode::VERSION;
    handlers()
        .with("one_each", version, one_each)
        .with("publishes", version, publishes)
        .with("busy", version, busy)
}

fn started(name: &str, input: impl Into<Payload>) -> ManualNode {
    started_with(name, input, ShardOptions::default())
}

fn started_with(name: &str, input: impl Into<Payload>, options: ShardOptions) -> ManualNode {
    let mut node = ManualNode::with_options(all(), options);
    node.start(name, "a", input);
    node.settle();
    node
}

fn nothing_taken() -> Payload {
    Payload::encode(&Vec::<Payload>::new()).expect("payloads encode")
}

fn output(node: &ManualNode) -> String {
    let last = node.last_lines("a", 1).pop().expect("it has events");
    last.split_once("OrchestrationCompleted ")
        .unwrap_or_else(|| panic!("it is complete: {last}"))
        .1
        .to_owned()
}

#[test]
fn g26_continuing_is_one_commit() {
    let mut node = started("one_each", nothing_taken());
    node.raise("a", "n", "1");
    node.take_turns();
    node.commit();
    assert_eq!(
        node.writes("a"),
        ["insert running, turn 1", "turn 2, execution 2, sent 1"],
        "the end of the first execution and the start of the second"
    );
    assert_eq!((node.row("a").execution, node.inbox("a")), (2, vec!["Start one_each".to_owned()]));
    node.settle();
    assert_eq!(node.writes("a").len(), 3);
    assert_eq!(node.writes("a")[2], "turn 1, consumed 1", "and a column that did not change is not written");
    assert_eq!(
        node.lines_of("a", 1).last().map(String::as_str),
        Some(r#"4 OrchestrationContinuedAsNew latest ["1"]"#)
    );
    assert_eq!(node.lines("a"), [r#"1 OrchestrationStarted one_each ["1"]"#, r#"2 ExternalSubscribed "n""#]);
}

#[test]
fn g26_an_instance_may_continue_in_its_first_turn() {
    async fn counts(ctx: OrchestrationContext, input: Payload) -> Outcome {
        let count: u64 = input.decode().expect("a number");
        if count == 0 { Ok("over".into()) } else { ctx.continue_as_new(number(count - 1)).await }
    }
    for is_written in [None, Some(true), Some(false)] {
        let mut node = ManualNode::new(all().with("counts", ManualNode::VERSION, counts));
        let asked = node.start("counts", "a", number(3));
        if let Some(is_written) = is_written {
            node.take_turns();
            node.commit_unknown(is_written);
            node.settle_unknown();
        }
        node.settle();
        assert_eq!(node.told(asked), "started");
        assert_eq!((node.row("a").execution, node.status("a")), (4, "completed".into()));
        assert!(node.inbox("a").is_empty());
    }
}

#[test]
fn g26_events_from_everywhere_cross_in_their_order() {
    let mut node = started("one_each", nothing_taken());
    node.raise("a", "n", "1");
    node.raise("a", "n", "2");
    node.send_event("a", "n", "3");
    node.pass_inbox();
    node.take_turns();
    // While the commit that continues is under way.
    node.raise("a", "n", "4");
    node.send_event("a", "n", "5");
    node.pass_inbox();
    node.settle();
    node.raise("a", "n", "end");
    node.settle();
    assert_eq!(output(&node), r#"["1","2","3","4","5"]"#);
    assert_eq!((node.row("a").execution, node.inbox("a").len()), (6, 0));
    assert_eq!(node.counters("a").conflicts, 0);
}

#[test]
fn g26_events_that_one_turn_brought_together_cross_every_continuation() {
    for is_crashing in [false, true] {
        let mut node = started("one_each", nothing_taken());
        node.crash();
        for event in ["1", "2", "3", "end"] {
            node.send_event("a", "n", event);
        }
        let mut guard = 0;
        node.take_over();
        while node.status("a") == "running" && guard < 100 {
            guard += 1;
            node.load();
            node.take_turns();
            if is_crashing && guard % 2 == 0 {
                node.commit();
                node.crash().take_over();
            }
            node.commit();
            node.follow_hint();
        }
        assert_eq!(output(&node), r#"["1","2","3"]"#, "crashing: {is_crashing}");
        assert!(node.inbox("a").is_empty());
    }
}

#[test]
fn g26_an_inbox_that_is_read_before_the_commits_outcome_is_known_starts_the_execution_once() {
    let mut node = started("one_each", nothing_taken());
    node.raise("a", "n", "1");
    node.take_turns();
    node.commit_unknown(true);
    node.pass_inbox();
    node.settle_unknown();
    node.settle();
    assert_eq!((node.row("a").execution, node.lines("a").len(), node.inbox("a").len()), (2, 2, 0));
}

#[test]
fn g26_a_start_that_is_read_while_its_own_commit_is_answered_costs_no_conflict() {
    let mut node = started("one_each", nothing_taken());
    node.raise("a", "n", "1");
    node.take_turns();
    // Another thread reads the inbox between the store's commit and its answer.
    node.commit_with(|node| {
        node.pass_inbox();
    });
    node.settle();
    assert_eq!((node.row("a").execution, node.lines("a").len(), node.inbox("a").len()), (2, 2, 0));
    assert_eq!(node.counters("a").conflicts, 0);
}

#[test]
fn g26_a_crash_right_after_the_commit_begins_the_next_execution() {
    let mut node = started("one_each", nothing_taken());
    node.crash();
    node.send_event("a", "n", "1");
    node.send_event("a", "n", "2");
    node.take_over();
    node.load();
    // It grows back, and takes both events in one turn.
    node.take_turns();
    node.take_turns();
    node.commit();
    assert_eq!(node.inbox("a"), ["Start one_each"]);
    node.restart();
    assert_eq!(node.row("a").execution, 3, "and the second event was carried");
    node.raise("a", "n", "end");
    node.settle();
    assert_eq!(output(&node), r#"["1","2"]"#);
}

#[test]
fn g7_a_continuation_whose_commit_is_unknown_happens_once() {
    for is_written in [true, false] {
        let mut node = started("one_each", nothing_taken());
        let raised = node.raise("a", "n", "1");
        node.raise("a", "n", "end");
        node.take_turns();
        node.commit_unknown(is_written);
        assert_eq!(node.told(raised), "nothing");
        node.settle_unknown();
        node.settle();
        assert_eq!((node.told(raised), node.row("a").execution), ("accepted".into(), 2));
        assert_eq!((output(&node), node.inbox("a").len()), (r#"["1"]"#.into(), 0));
    }
}

#[test]
fn g26_attributes_status_and_deadline_are_carried() {
    let mut node = ManualNode::new(all());
    let started =
        Started { deadline_ms: Some(50_000), ..Started::new("publishes", ManualNode::VERSION, "first", 1) };
    node.start_with("a", started);
    node.settle();
    node.raise("a", "n", Payload::null());
    node.settle();
    node.restart();
    let row = node.row("a");
    assert_eq!((row.execution, row.published, row.wake_at_ms), (2, Some("half".into()), Some(50_000)));
    assert_eq!(row.attributes, Attributes::from([("colour".to_owned(), "red".into())]));
    node.at(50_000).settle();
    assert_eq!(node.last_lines("a", 1), [r#"3 OrchestrationTerminated "timeout""#]);
}

#[test]
fn g26_open_activities_and_tasks_of_the_old_execution_are_gone() {
    let mut node = started("busy", "first");
    node.heartbeat("a", "running", "half").settle();
    node.fail("a", "waiting", "boom").settle();
    assert_eq!(node.tasks("a").len(), 2);
    node.raise("a", "n", "go");
    node.take_turns();
    node.commit();
    assert!(node.tasks("a").is_empty(), "with the commit that continues: {:?}", node.tasks("a"));
    assert_eq!(node.stops(), ["a running"]);
    node.settle();
    assert_eq!(node.row("a").execution, 2);
    node.at(100_000).settle();
    assert_eq!(node.tasks("a").len(), 0, "the new execution's own first attempts run");
}

#[test]
fn g26_a_termination_or_cancel_that_comes_during_the_continuation_is_obeyed() {
    for is_dormant in [false, true] {
        for (ask, status) in [("terminate", "terminated"), ("cancel", "cancelled")] {
            let mut node = started("one_each", nothing_taken());
            node.raise("a", "n", "1");
            node.take_turns();
            if is_dormant {
                node.commit();
                node.crash();
            }
            let asked =
                if ask == "cancel" { node.cancel("a", "enough") } else { node.terminate("a", "enough") };
            node.settle();
            assert_eq!((node.told(asked), node.status("a")), ("accepted".into(), status.into()));
            assert_eq!((node.row("a").execution, node.inbox("a").len()), (2, 0));
        }
    }
}

#[test]
fn g26_waiters_hear_of_the_last_executions_end() {
    let mut node = started("one_each", nothing_taken());
    let waiter = node.await_end("a");
    node.raise("a", "n", "1");
    node.settle();
    assert_eq!(node.told(waiter), "nothing");
    node.raise("a", "n", "end");
    node.settle();
    assert_eq!(node.told(waiter), r#"ended: OrchestrationCompleted ["1"]"#);
}

#[test]
fn g16_an_events_key_is_known_through_continuations() {
    for is_restarted in [false, true] {
        let mut node = started("one_each", nothing_taken());
        for execution in 2..=4 {
            node.raise_once("a", "n", "key", "once");
            node.settle();
            if is_restarted {
                node.restart();
            }
            node.raise("a", "n", number(execution));
            node.settle();
        }
        node.raise_once("a", "n", "key", "once");
        node.raise("a", "n", "end");
        node.settle();
        assert_eq!(output(&node), r#"["once",2,3,4]"#);
    }
}

#[test]
fn g16_an_event_with_a_key_that_is_carried_unread_is_not_taken_for_a_duplicate() {
    let mut node = started("one_each", nothing_taken());
    node.crash();
    let send = |node: &mut ManualNode, key: &str, payload: &str| {
        let key = Some(key.to_owned());
        let job = Job::ExternalEvent { name: "n".to_owned(), payload: payload.into(), key, trace: None };
        node.send_message("a", &perennial_core::shard::Message::Job(job));
    };
    for (key, payload) in [("k1", "1"), ("k2", "2"), ("k3", "3")] {
        send(&mut node, key, payload);
    }
    node.take_over().settle();
    for (key, payload) in [("k1", "1"), ("k2", "2"), ("k3", "3")] {
        send(&mut node, key, payload);
    }
    node.pass_inbox().settle();
    node.raise("a", "n", "end");
    node.settle();
    assert_eq!((output(&node), node.inbox("a").len()), (r#"["1","2","3"]"#.into(), 0));
}

#[test]
fn g16_a_key_is_unique_in_the_inbox() {
    let mut node = started("one_each", nothing_taken());
    node.crash();
    let job = Job::ExternalEvent {
        name: "n".to_owned(),
        payload: "1".into(),
        key: Some("key".to_owned()),
        trace: None,
    };
    let message = perennial_core::shard::Message::Job(job);
    node.send_message("a", &message);
    let again = node.send_message("a", &message);
    assert!(matches!(again, perennial_core::store::SendOutcome::Duplicate(_)), "{again:?}");
    node.raise_once("a", "n", "key", "1");
    node.take_over().settle();
    node.raise("a", "n", "end");
    node.settle();
    assert_eq!(output(&node), r#"["1"]"#);
}

#[test]
fn g26_the_next_execution_has_the_version_that_was_given_or_the_latest() {
    for (asked, expected) in [(Payload::from("1.0.0"), "1.0.0"), (Payload::null(), "1.10.0")] {
        let mut node = ManualNode::new(all().with("publishes", "1.9.0", publishes).with(
            "publishes",
            "1.10.0",
            publishes,
        ));
        node.start("publishes", "a", "first");
        node.settle();
        assert_eq!(node.row("a").version, "1.0.0");
        node.raise("a", "n", asked);
        node.settle();
        assert_eq!((node.row("a").execution, node.row("a").version.as_str()), (2, expected));
        node.replace_code(all().with("publishes", "1.10.0", publishes).with("publishes", "2.0.0", publishes));
        node.restart();
        assert_eq!(
            (node.status("a"), node.row("a").version.as_str()),
            ("running".into(), expected),
            "and keeps it"
        );
    }
}

#[test]
fn g27_a_version_that_is_missing_blocks_the_next_execution_until_a_node_has_it() {
    let mut node = started("publishes", "first");
    node.raise("a", "n", "7.0.0");
    node.raise("a", "n", "kept");
    node.settle();
    assert_eq!((node.status("a"), node.row("a").execution), ("running, blocked: PER-0301".into(), 2));
    let reason = node.row("a").blocked.expect("it is blocked").reason;
    assert!(reason.contains("publishes 7.0.0"), "{reason}");
    node.raise("a", "n", "later");
    node.settle();
    node.replace_code(all().with("publishes", "7.0.0", publishes)).restart();
    assert_eq!((node.status("a"), node.row("a").version.as_str()), ("completed".into(), "7.0.0"));
    assert_eq!(output(&node), r#""kept""#);
    assert!(node.inbox("a").is_empty());
}

#[test]
fn g27_an_instance_keeps_the_version_that_its_first_turn_resolved() {
    let mut node = ManualNode::new(all());
    node.start_with("a", Started::new("collect", "", (), 1));
    node.settle();
    assert_eq!(node.row("a").version, "1.0.0");
    let other = |ctx: OrchestrationContext, _: Payload| async move {
        let _ = ctx.schedule_activity("other", ()).await;
        Ok(Payload::null())
    };
    node.replace_code(all().with("collect", "2.0.0", other)).restart();
    node.raise("a", "n", "end");
    node.settle();
    assert_eq!((node.status("a"), node.row("a").version.as_str()), ("completed".into(), "1.0.0"));
}

#[test]
fn g27_a_start_without_a_version_waits_for_code_of_any() {
    let mut node = ManualNode::new(all());
    node.start_with("a", Started::new("later", "", "in", 1));
    node.settle();
    assert_eq!(node.status("a"), "pending, blocked: PER-0301");
    node.replace_code(all().with("later", "3.0.0", crate::shard_cases::echo)).restart();
    assert_eq!((node.status("a"), node.row("a").version.as_str()), ("completed".into(), "3.0.0"));
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
    let mut node = ManualNode::new(handlers().with("again", ManualNode::VERSION, again));
    node.start("again", "a", number(1));
    node.start("sleep", "b", number(10));
    node.take_turns();
    let raised = node.raise("a", "n", "early");
    node.close_shards().settle();
    assert_eq!((node.told(raised), node.is_quiet(), node.row("a").execution), ("accepted".into(), true, 2));
    node.at(2_000).pass_inbox().pass_requests().settle();
    assert_eq!((node.status("b"), node.row("a").execution), ("running".into(), 2), "nothing is begun");
    node.restart();
    assert_eq!((node.status("a"), node.status("b")), ("completed".into(), "completed".into()));
    assert!(node.last_lines("a", 1)[0].ends_with(r#"OrchestrationCompleted "early""#));
}

#[test]
fn o5_a_trace_context_goes_with_starts_children_successors_and_events() {
    async fn family(ctx: OrchestrationContext, input: Payload) -> Outcome {
        if input == "child".into() {
            return Ok(input);
        }
        if input == "first".into() {
            let child = ctx.schedule_sub_orchestration("family", "child");
            let _ = child.await;
            ctx.continue_as_new::<()>("second").await;
        }
        ctx.schedule_wait("n").await;
        Ok(input)
    }
    let trace = Box::new(TraceContext::new("00-1-2-01", Some("a=b")).expect("it is short"));
    let mut node = ManualNode::new(handlers_and("family", family));
    let started =
        Started { trace: Some(trace.clone()), ..Started::new("family", ManualNode::VERSION, "first", 7) };
    node.start_with("a", started);
    node.settle();
    node.pass_inbox().settle();
    let sent = Box::new(TraceContext::new("00-3-4-01", None).expect("it is short"));
    let job = Job::ExternalEvent {
        name: "n".to_owned(),
        payload: "1".into(),
        key: None,
        trace: Some(sent.clone()),
    };
    node.send_message("a", &Message::Job(job));
    node.pass_inbox().settle();
    assert_eq!(node.status("a"), "completed");
    let traces: Vec<_> = {
        let tables = node.tables();
        let turns = tables.turns.values().flat_map(|row| perennial_core::history::decode_turn(1, &row.bytes));
        turns.filter_map(|turn| turn.started().map(|started| started.trace.clone())).collect()
    };
    assert_eq!(traces, vec![Some(trace); 3], "what is not of the standard's form is passed on as it is");
    let carried = node.jobs("a").into_iter().find_map(|job| match job {
        Job::ExternalEvent { trace, .. } => trace,
        _ => None,
    });
    assert_eq!(carried, Some(sent));
}

#[test]
fn o8_children_keep_the_trace_and_successors_begin_their_own() {
    async fn family(ctx: OrchestrationContext, input: Payload) -> Outcome {
        if input == "first".into() {
            let _ = ctx.schedule_sub_orchestration("family", "child").await;
            ctx.continue_as_new::<()>("second").await;
        }
        Ok(input)
    }
    for flags in ["01", "00"] {
        let parent = format!("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-{flags}");
        let trace = Box::new(TraceContext::new(parent, None).expect("it is short"));
        let mut node = ManualNode::new(handlers_and("family", family));
        let started =
            Started { trace: Some(trace.clone()), ..Started::new("family", ManualNode::VERSION, "first", 7) };
        node.start_with("a", started);
        node.settle();
        node.pass_inbox().settle();
        assert_eq!(node.status("a"), "completed");
        let row = node.row("a");
        let recorded = |row: &perennial_core::store::InstanceRow, execution| {
            node.history(row, execution)
                .started()
                .and_then(|started| started.trace.clone())
                .expect("it is traced")
        };
        // Without an exporter no span starts the child, so it has the caller's.
        assert_eq!(recorded(&node.row("a::1.2"), 1), trace);
        let next = recorded(&row, 2);
        assert_ne!(next.trace_id(), trace.trace_id());
        assert!(next.trace_id().is_some() && next.parent.ends_with(flags), "sampled as before: {next:?}");
    }
}

/// Limits under which a turn takes ten jobs, or a kilobyte of them.
pub(crate) fn small_turns() -> ShardOptions {
    let mut options = ShardOptions::default();
    options.execution.limits.turn_decisions = 20;
    options.execution.limits.turn_bytes = 2_048;
    options
}

/// The events that each turn of the continuations took: how many, and how many bytes.
fn portions(node: &ManualNode) -> Vec<(usize, usize)> {
    let row = node.row("a");
    let size = |job: &Job| serde_json::to_string(job).expect("a job encodes").len();
    let turns = (2..=row.execution).flat_map(|execution| node.history(&row, execution).turns);
    let portion = |turn: perennial_core::Turn| {
        let events = turn.jobs().filter(|(_, job)| matches!(job, Job::ExternalEvent { .. }));
        events.fold((0, 0), |(count, bytes), (_, job)| (count + 1, bytes + size(job)))
    };
    turns.map(portion).collect()
}

#[test]
fn g18_what_crosses_a_continue_as_new_is_delivered_in_bounded_turns_and_in_order() {
    for (is_crashing, size) in [(false, 1), (true, 1), (false, 300), (true, 300)] {
        let mut node = started_with("one_each", nothing_taken(), small_turns());
        let events: Vec<String> = (0..35).map(|number| format!("{number:0size$}")).collect();
        node.raise("a", "other", "early");
        for event in &events {
            node.raise("a", "n", event.as_str());
        }
        node.settle();
        let mut restarts = 0;
        while node.row("a").execution < 36 && restarts < 200 {
            restarts += 1;
            if is_crashing {
                node.crash().take_over();
            }
            node.settle();
        }
        assert_eq!(node.row("a").execution, 36, "one event per execution");
        let portions = portions(&node);
        let fits = |(count, bytes): &(usize, usize)| *count <= 10 && (*bytes <= 2_048 || *count == 1);
        assert!(portions.iter().all(fits), "{portions:?}");
        node.raise("a", "n", "end");
        node.settle();
        let row = node.row("a");
        let history = node.history(&row, row.execution);
        let Some(Ending::OrchestrationCompleted { output }) =
            history.turns.last().and_then(|turn| turn.ending())
        else {
            panic!("it is complete");
        };
        let taken: Vec<String> = output.decode().expect("what was taken");
        assert_eq!(taken, events, "crashing: {is_crashing}");
        assert!(node.inbox("a").is_empty());
    }
}
