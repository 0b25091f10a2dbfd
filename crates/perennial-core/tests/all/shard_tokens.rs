//! Attempts that are completed from outside: tokens (G42), what is said with them (G43), attempts that wait without running
//! (G44), and activities that nobody waits for any more (G45).

use std::sync::Arc;
use std::time::Duration;

use crate::shard_cases::{Outcome, handlers_and, number, secs};
use perennial_core::shard::{
    CallReply, CompletionToken, InstanceCall, LeftOpen, Message, RanElsewhere, Request, RequestId, Said,
    ShardOptions, TokenCall, TokenSecret,
};
use perennial_core::store::{RequestOutcome, Store, TaskRow, TaskState};
use perennial_core::{
    ActivityError, Ending, EventId, Handlers, Job, OrchestrationContext, Payload, RetryPolicy, TimeoutKind,
};
use perennial_testkit::ManualNode;
use serde_json::json;

/// How the activity of an instance is run.
#[derive(Default, serde::Serialize, serde::Deserialize)]
struct Plan {
    attempts: u32,
    attempt_ms: Option<u64>,
    silence_ms: Option<u64>,
    total_ms: Option<u64>,
    is_tagged: bool,
}

/// Asks somebody for a number, and ends with it or with why there is none.
async fn asks(ctx: OrchestrationContext, input: Payload) -> Outcome {
    let plan: Plan = input.decode().expect("a plan");
    let mut ask = ctx.schedule_activity("ask", ()).completes_later();
    if plan.attempts > 1 {
        ask = ask.retry(RetryPolicy::fixed(Duration::from_millis(500)).attempts(plan.attempts));
    }
    if let Some(ms) = plan.attempt_ms {
        ask = ask.timeout(Duration::from_millis(ms));
    }
    if let Some(ms) = plan.silence_ms {
        ask = ask.heartbeat_timeout(Duration::from_millis(ms));
    }
    if let Some(ms) = plan.total_ms {
        ask = ask.total_timeout(Duration::from_millis(ms));
    }
    if plan.is_tagged {
        ask = ask.tag("gpu");
    }
    match ask.typed::<u64>().await {
        Ok(found) => Ok(number(found)),
        Err(failure) => Err(Payload::from(format!("{failure:?}"))),
    }
}

/// Asks, and does without the answer once an event says so.
async fn gives_up(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let ask = ctx.schedule_activity("ask", ()).completes_later();
    ctx.select2(ask, ctx.schedule_wait("enough")).await;
    Ok(ctx.schedule_wait("end").await)
}

fn all() -> Handlers {
    handlers_and("asks", asks).with("gives up", ManualNode::VERSION, gives_up)
}

fn asking(plan: &Plan) -> ManualNode {
    let mut node = ManualNode::new(all());
    node.start("asks", "a", Payload::encode(plan).expect("a plan encodes"));
    node.settle();
    node
}

fn instance_call(token: &CompletionToken, said: Said) -> InstanceCall {
    let (execution, event) = (token.task.execution, token.task.event);
    let call = TokenCall { execution, event, attempt: token.attempt, secret: token.secret, said };
    InstanceCall::Token(Box::new(call))
}

pub(crate) fn say(node: &mut ManualNode, token: &CompletionToken, said: Said) -> RequestId {
    let request = Box::new(Request::Call(instance_call(token, said)));
    let said = node.request(&token.instance, Request::Bound { key: token.task.key, request });
    node.settle();
    said
}

pub(crate) fn message(token: &CompletionToken, said: Said) -> Message {
    let InstanceCall::Token(call) = instance_call(token, said) else { unreachable!("it is one") };
    Message::Token(call)
}

pub(crate) fn completed(value: u64) -> Said {
    Said::Completed(number(value))
}

fn failed(words: &str) -> Said {
    Said::Failed(Payload::from(words))
}

fn under_way(words: &str) -> Said {
    Said::UnderWay(Payload::from(words))
}

const TAKEN: &str = "answered: null";

/// How the instance has ended, or where it stands.
pub(crate) fn end_of(node: &ManualNode) -> String {
    let row = node.row("a");
    match node.history(&row, row.execution).ending() {
        Some(Ending::OrchestrationCompleted { output }) => format!("completed: {}", output.as_json()),
        Some(Ending::OrchestrationFailed { error }) => format!("failed: {}", error.as_json()),
        _ => node.status("a"),
    }
}

/// How many attempts the recorded completion says it took, and how many of them are known.
fn recorded(node: &ManualNode) -> (u32, usize) {
    let jobs = node.jobs("a");
    let found = jobs.iter().find_map(|job| match job {
        Job::ActivityCompleted { attempts, trail, .. } | Job::ActivityFailed { attempts, trail, .. } => {
            Some((*attempts, trail.iter().count()))
        }
        _ => None,
    });
    found.expect("it has completed")
}

#[test]
fn g43_whoever_has_the_token_completes_the_attempt_after_its_code_has_returned() {
    let mut node = asking(&Plan::default());
    let token = node.at(1_400).leave_open("a", "ask", 300);
    node.settle();
    assert_eq!(node.tasks("a"), ["ask 1 waiting"]);
    assert_eq!((node.row("a").owed, node.row("a").wake_at_ms), (false, None), "nobody has to look after it");
    let told = say(&mut node, &token, completed(42));
    assert_eq!((node.told(told), end_of(&node)), (TAKEN.to_owned(), "completed: 42".to_owned()));
    assert_eq!((recorded(&node), node.tasks("a")), ((1, 1), vec![]));
    assert_eq!(node.runs().len(), 1);
}

#[test]
fn g43_an_answer_leaves_only_when_what_was_said_is_durable() {
    let mut node = asking(&Plan { attempts: 2, ..Plan::default() });
    let token = node.leave_open("a", "ask", 0);
    node.settle();
    for said in [under_way("half"), failed("no")] {
        let request = Request::Call(instance_call(&token, said));
        let told = node.request("a", request);
        node.take_turns();
        assert_eq!((node.told(told), node.batch().len()), ("nothing".to_owned(), 1));
        node.settle();
        assert_eq!(node.told(told), TAKEN);
    }
}

#[test]
fn g43_a_result_may_come_before_the_code_has_returned() {
    let mut node = asking(&Plan::default());
    let task = node.attempt("a", "ask").clone();
    let token = CompletionToken::of(&task).expect("it completes later");
    let told = say(&mut node, &token, completed(7));
    assert_eq!((node.told(told), end_of(&node)), (TAKEN.to_owned(), "completed: 7".to_owned()));
    assert_eq!(node.take_cancelled(), [(token.task.key, token.task.event)], "it is told that nobody waits");
    node.bring_left_open(&task, 5);
    node.settle();
    assert_eq!((node.counters("a").stale, node.tasks("a")), (1, vec![]));
}

#[test]
fn g43_a_failure_before_the_code_has_returned_ends_the_attempt_for_good() {
    let mut node = asking(&Plan { attempts: 2, ..Plan::default() });
    let task = node.pick_activity("a", "ask");
    let token = CompletionToken::of(&task).expect("it completes later");
    let told = say(&mut node, &token, failed("no"));
    assert_eq!(node.told(told), TAKEN);
    node.bring_result(&task, Ok(number(1)));
    node.at(1_500).settle();
    assert_eq!((end_of(&node), node.attempt("a", "ask").attempt), ("running".to_owned(), 2));
    assert_eq!(node.counters("a").stale, 1, "what the first attempt returned came too late");
}

#[test]
fn g42_a_token_is_good_for_one_attempt_and_cannot_be_made_up() {
    let mut node = asking(&Plan { attempts: 3, ..Plan::default() });
    let token = node.leave_open("a", "ask", 0);
    node.settle();
    let made_up = CompletionToken { secret: TokenSecret(token.secret.0 ^ 1), ..token.clone() };
    let ahead = CompletionToken { attempt: 2, ..token.clone() };
    for token in [made_up, ahead] {
        let told = say(&mut node, &token, completed(1));
        assert!(node.told(told).starts_with("refused: PER-0635 bad token"), "{}", node.told(told));
    }
    let elsewhere = CompletionToken {
        task: perennial_core::store::TaskId { event: EventId(9), ..token.task },
        ..token.clone()
    };
    let told = say(&mut node, &elsewhere, completed(1));
    assert_eq!((node.told(told), end_of(&node)), ("not open".to_owned(), "running".to_owned()));
    let failed = say(&mut node, &token, failed("no"));
    let late = say(&mut node, &token, completed(1));
    assert_eq!(node.told_all([failed, late]), [TAKEN, "outdated by attempt 2"]);
    node.at(1_500).settle();
    let next = CompletionToken::of(node.attempt("a", "ask")).expect("it completes later");
    assert!(next.attempt == 2 && next.secret != token.secret);
    let late = say(&mut node, &CompletionToken { attempt: 2, ..token }, completed(1));
    assert!(node.told(late).starts_with("refused: PER-0635"));
}

#[test]
fn g43_a_process_elsewhere_is_answered_with_the_commit_that_takes_what_it_said() {
    let mut node = asking(&Plan { attempts: 2, ..Plan::default() });
    let token = node.leave_open("a", "ask", 0);
    node.settle();
    let mut answers = Vec::new();
    for said in [under_way("half"), failed("no"), completed(1)] {
        let RequestOutcome::Written(number) = node.send_request("a", &instance_call(&token, said), 1_000_000)
        else {
            panic!("it exists")
        };
        node.pass_requests().pass_requests().settle();
        answers.push(node.reply(number).expect("it is answered"));
    }
    let taken = CallReply::Answered(Payload::null());
    assert_eq!(answers, [taken.clone(), taken, CallReply::Outdated { attempt: 2 }]);
    assert!(node.tables().requests.is_empty());
    node.at(1_500).settle();
    let details = node.attempt("a", "ask").details.clone();
    assert_eq!(details, Some(Payload::from("half")), "the next attempt knows how far the first one was");
}

#[test]
fn g43_what_is_said_while_nobody_is_there_waits_in_the_inbox() {
    let mut node = asking(&Plan { attempts: 2, ..Plan::default() });
    let first = node.leave_open("a", "ask", 0);
    node.settle().kill();
    node.send_message("a", &message(&first, failed("no")));
    node.send_message("a", &message(&first, completed(1)));
    node.take_over().settle();
    assert_eq!((node.tasks("a"), node.counters("a").stale), (vec!["ask 2 waiting, due 1500".to_owned()], 1));
    node.at(1_500).settle();
    let second = node.leave_open("a", "ask", 0);
    node.settle().kill();
    node.send_message("a", &message(&second, under_way("soon")));
    node.send_message("a", &message(&second, completed(2)));
    node.take_over().settle();
    assert_eq!((end_of(&node), recorded(&node)), ("completed: 2".to_owned(), (2, 2)));
}

#[test]
fn g43_a_result_that_the_code_cannot_read_is_refused_and_leaves_no_trace() {
    let mut node = asking(&Plan::default());
    let token = node.leave_open("a", "ask", 0);
    node.settle();
    let unreadable = Said::Completed(Payload::from("forty-two"));
    let here = say(&mut node, &token, unreadable.clone());
    assert!(node.told(here).starts_with("refused: PER-0103"), "{}", node.told(here));
    let RequestOutcome::Written(there) =
        node.send_request("a", &instance_call(&token, unreadable), 1_000_000)
    else {
        panic!("it exists")
    };
    node.pass_requests().settle();
    assert!(
        matches!(node.reply(there), Some(CallReply::Refused { reason, .. }) if reason.starts_with("PER-0103"))
    );
    assert_eq!((end_of(&node), node.tasks("a")), ("running".to_owned(), vec!["ask 1 waiting".to_owned()]));
    let told = say(&mut node, &token, completed(42));
    assert_eq!((node.told(told), end_of(&node)), (TAKEN.to_owned(), "completed: 42".to_owned()));
}

#[test]
fn g44_an_attempt_that_waits_outlives_every_process_and_never_runs_again() {
    let mut node = asking(&Plan { attempts: 3, ..Plan::default() });
    let token = node.leave_open("a", "ask", 0);
    node.settle();
    for round in 0..8 {
        match round % 2 {
            0 => node.release_activities().close_shards().settle().restart(),
            _ => node.restart_after_kill(),
        };
        node.grant_quarantine_slots().settle();
        assert_eq!(
            (node.runs().len(), node.tasks("a")),
            (1, vec!["ask 1 waiting".to_owned()]),
            "round {round}"
        );
    }
    let told = say(&mut node, &token, completed(42));
    assert_eq!((node.told(told), end_of(&node)), (TAKEN.to_owned(), "completed: 42".to_owned()));
}

#[test]
fn g44_a_process_that_ends_before_the_code_returns_runs_the_attempt_again_with_the_same_token() {
    let mut node = asking(&Plan::default());
    let token = CompletionToken::of(node.attempt("a", "ask")).expect("it completes later");
    assert_eq!(node.tasks("a"), ["ask 1 leased"], "its secret is stored before it runs");
    node.restart_after_kill();
    assert_eq!(CompletionToken::of(node.attempt("a", "ask")).as_ref(), Some(&token));
    let again = node.leave_open("a", "ask", 0);
    node.settle();
    let told = say(&mut node, &token, completed(42));
    assert_eq!((again, node.told(told)), (token, TAKEN.to_owned()));
}

#[test]
fn g44_the_time_of_an_attempt_counts_from_its_beginning_and_the_next_one_has_a_new_token() {
    let mut node = asking(&Plan { attempts: 2, attempt_ms: Some(5_000), ..Plan::default() });
    let first = node.at(3_000).leave_open("a", "ask", 1_500);
    node.settle();
    assert_eq!(
        (node.tasks("a"), node.row("a").wake_at_ms),
        (vec!["ask 1 waiting, due 6500".to_owned()], Some(6_500))
    );
    node.at(6_499).settle();
    assert_eq!(node.tasks("a"), ["ask 1 waiting, due 6500"], "not early");
    node.restart_after_kill();
    node.at(6_500).settle();
    assert_eq!(node.tasks("a"), ["ask 2 waiting, due 7000"]);
    let late = say(&mut node, &first, completed(1));
    node.at(7_000).settle();
    let second = node.at(7_100).leave_open("a", "ask", 100);
    node.settle();
    node.at(12_000).settle();
    let timeout = format!("failed: \"{:?}\"", ActivityError::<Payload>::Timeout(TimeoutKind::Attempt));
    assert_eq!((end_of(&node), recorded(&node)), (timeout, (2, 2)));
    let later = say(&mut node, &second, completed(2));
    assert_eq!(node.told_all([late, later]), ["outdated by attempt 2", "ended before"]);
}

#[test]
fn g44_heartbeats_with_a_token_give_it_more_time() {
    let mut node = asking(&Plan { silence_ms: Some(1_000), attempts: 1, ..Plan::default() });
    let token = node.leave_open("a", "ask", 100);
    node.settle();
    for at_ms in [1_900, 2_800, 3_700] {
        let told = say(node.at(at_ms), &token, under_way("still there"));
        assert_eq!(node.told(told), TAKEN);
        let row = format!("ask 1 waiting, due {}, details \"still there\"", at_ms + 1_000);
        assert_eq!(node.tasks("a"), [row]);
    }
    node.at(4_699).settle();
    assert_eq!(end_of(&node), "running");
    node.at(4_700).settle();
    let timeout = format!("failed: \"{:?}\"", ActivityError::<Payload>::Timeout(TimeoutKind::Heartbeat));
    assert_eq!(end_of(&node), timeout);
}

#[test]
fn g44_all_of_its_time_counts_for_an_attempt_that_waits() {
    let mut node = asking(&Plan { attempts: 9, total_ms: Some(3_000), ..Plan::default() });
    node.leave_open("a", "ask", 0);
    node.settle().restart_after_kill();
    node.at(3_999).settle();
    assert_eq!(end_of(&node), "running");
    node.at(4_000).settle();
    let timeout = format!("failed: \"{:?}\"", ActivityError::<Payload>::Timeout(TimeoutKind::Total));
    assert_eq!((end_of(&node), recorded(&node)), (timeout, (1, 1)));
}

#[test]
fn g44_the_last_attempt_that_somebody_fails_fails_the_activity() {
    let mut node = asking(&Plan { attempts: 2, ..Plan::default() });
    for attempt in 1..=2 {
        let token = node.leave_open("a", "ask", 0);
        node.settle();
        let told = say(&mut node, &token, failed("no"));
        assert_eq!((node.told(told), token.attempt), (TAKEN.to_owned(), attempt));
        node.at(1_500).settle();
    }
    let words = format!("{:?}", ActivityError::Application(Payload::from("no")));
    assert_eq!(end_of(&node), format!("failed: {}", json!(words)));
    assert_eq!(recorded(&node), (2, 2));
}

#[test]
fn g44_an_attempt_of_another_node_waits_at_the_owner_when_its_code_has_returned() {
    let served = Some(Arc::new(ManualNode::served(&["ask"], &[])));
    let mut node = ManualNode::with_options(all(), ShardOptions { served, ..ShardOptions::default() });
    let plan = Plan { is_tagged: true, attempt_ms: Some(60_000), ..Plan::default() };
    node.start("asks", "a", Payload::encode(&plan).expect("a plan encodes"));
    node.settle();
    let task = node.take_tasks(&["ask"], 30_000).pop().expect("it is queued");
    let work = perennial_core::shard::ActivityTask::from_row(&task).expect("a shard writes what can be run");
    let token = CompletionToken::of(&work).expect("it completes later");
    leave_open_elsewhere(&mut node, &task, token.secret);
    // A new owner finds the message and no row.
    node.restart_after_kill();
    assert_eq!((node.tasks("a"), node.runs().len()), (vec!["ask 1 waiting, due 60750".to_owned()], 0));
    assert!(node.take_tasks(&["ask"], 30_000).is_empty(), "nobody else can take it");
    let told = say(&mut node, &token, completed(42));
    assert_eq!((node.told(told), end_of(&node)), (TAKEN.to_owned(), "completed: 42".to_owned()));
    let jobs = node.jobs("a");
    let Some(Job::ActivityCompleted { trail, .. }) = jobs.first() else { panic!("{jobs:?}") };
    assert_eq!(trail.iter().next().and_then(|ran| ran.node.clone()).as_deref(), Some("worker"));
}

/// Another node's attempt returns after 250 ms without a result.
fn leave_open_elsewhere(node: &mut ManualNode, task: &TaskRow, secret: TokenSecret) {
    let ran = RanElsewhere { node: "worker".to_owned(), ..RanElsewhere::default() };
    let (execution, event, attempt) = (task.id.execution, task.id.event, task.attempt);
    let left = LeftOpen { execution, event, attempt, secret, ran_ms: 250, details: None, ran };
    let body = Message::LeftOpen(Box::new(left)).encode();
    let store = node.store();
    store.finish_task(ManualNode::WORKER, task.id, attempt, body, Box::new(|done| assert!(done.unwrap())));
}

/// Another node has taken the attempt, and runs it.
fn asked_elsewhere() -> (ManualNode, TaskRow, CompletionToken) {
    let served = Some(Arc::new(ManualNode::served(&["ask"], &[])));
    let mut node = ManualNode::with_options(all(), ShardOptions { served, ..ShardOptions::default() });
    let plan = Plan { is_tagged: true, ..Plan::default() };
    node.start("asks", "a", Payload::encode(&plan).expect("a plan encodes"));
    node.settle();
    let task = node.take_tasks(&["ask"], 30_000).pop().expect("it is queued");
    let work = perennial_core::shard::ActivityTask::from_row(&task).expect("a shard writes what can be run");
    let token = CompletionToken::of(&work).expect("it completes later");
    (node, task, token)
}

#[test]
fn g43_a_result_that_overtakes_the_return_of_another_nodes_attempt_counts() {
    let (mut node, _, token) = asked_elsewhere();
    let told = say(&mut node, &token, completed(42));
    assert_eq!((node.told(told), end_of(&node)), (TAKEN.to_owned(), "completed: 42".to_owned()));
    let rows: Vec<TaskState> = node.tables().tasks.values().map(|row| row.state).collect();
    assert!(matches!(rows[..], [TaskState::Leased { cancelled: true, .. }]), "its node is told: {rows:?}");
}

/// Found by the simulator, seed 16.
#[test]
fn g45_a_token_that_comes_with_the_result_of_another_node_hears_that_the_activity_is_over() {
    let (mut node, task, token) = asked_elsewhere();
    // A commit is under way when the token is used, and then the result of the other node is read.
    node.raise("a", "other", ());
    node.take_turns();
    let told = node.request("a", Request::Call(instance_call(&token, completed(42))));
    let (execution, event, attempt) = (task.id.execution, task.id.event, task.attempt);
    let result = Ok(number(7));
    let body = Message::Attempt { execution, event, attempt, result, details: None, ran: None }.encode();
    let done = Box::new(|done: Result<bool, _>| assert!(done.unwrap()));
    node.store().finish_task(ManualNode::WORKER, task.id, attempt, body, done);
    node.pass_inbox().settle();
    assert_eq!(end_of(&node), "completed: 7");
    assert!(!node.told(told).contains("PER-0635"), "it was handed out: {}", node.told(told));
}

#[test]
fn g45_the_token_of_an_activity_that_nobody_waits_for_says_so() {
    let mut node = ManualNode::new(all());
    node.start("gives up", "a", ());
    node.settle();
    let token = node.leave_open("a", "ask", 0);
    node.settle();
    assert_eq!(node.tasks("a"), ["ask 1 waiting"]);
    node.raise("a", "enough", ());
    node.settle();
    assert_eq!(node.tasks("a"), Vec::<String>::new());
    for said in [under_way("half"), failed("no"), completed(1)] {
        let told = say(&mut node, &token, said);
        assert_eq!(node.told(told), "not open");
    }
    node.raise("a", "end", ());
    node.settle();
    let told = say(&mut node, &token, completed(1));
    assert_eq!(node.told(told), "ended before");
}

#[test]
fn g44_an_attempt_that_was_not_scheduled_to_complete_later_fails_when_it_is_left_open() {
    async fn plain(ctx: OrchestrationContext, _: Payload) -> Outcome {
        ctx.schedule_activity("plain", ()).await.map_err(|failure| Payload::from(format!("{failure:?}")))
    }
    let mut node = ManualNode::new(handlers_and("plain", plain));
    node.start("plain", "a", ());
    node.settle();
    assert_eq!(node.tasks("a"), Vec::<String>::new(), "it has no row");
    let task = node.pick_activity("a", "plain");
    assert!(CompletionToken::of(&task).is_none());
    node.bring_left_open(&task, 0);
    node.settle();
    assert!(end_of(&node).contains("PER-0410 no token"), "{}", end_of(&node));
}

#[test]
fn g44_a_shard_that_is_given_up_while_the_code_runs_keeps_the_token() {
    let mut node =
        asking(&Plan { attempts: 2, silence_ms: Some(secs(60).as_millis() as u64), ..Plan::default() });
    let token = CompletionToken::of(node.attempt("a", "ask")).expect("it completes later");
    node.release_activities().close_shards().settle().restart();
    node.settle();
    assert_eq!(CompletionToken::of(node.attempt("a", "ask")), Some(token));
}
