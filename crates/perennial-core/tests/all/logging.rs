//! What the engine logs: targets, levels and fields that operators rely on.

use std::time::Duration;

use crate::log::{Line, Log};
use crate::shard_cases::{Outcome, handlers, handlers_and, number};
use perennial_core::{ActivityError, OrchestrationContext, Payload, RetryPolicy, TimeoutKind};
use perennial_testkit::{Drive, ManualNode};
use tracing::Level;

/// Runs a node and returns what it logs.
fn logged(run: impl FnOnce()) -> Vec<Line> {
    let log = Log::default();
    tracing::subscriber::with_default(log.clone(), run);
    log.take_lines()
}

/// What is logged under a target.
fn under<'a>(lines: &'a [Line], target: &str) -> Vec<&'a Line> {
    lines.iter().filter(|line| line.target == target).collect()
}

fn only<'a>(lines: &'a [Line], message: &str) -> &'a Line {
    let found: Vec<&Line> = lines.iter().filter(|line| line.message == message).collect();
    assert_eq!(found.len(), 1, "{message}: {lines:#?}");
    found[0]
}

async fn flaky(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let policy = RetryPolicy::fixed(Duration::from_millis(700)).attempts(2);
    ctx.schedule_activity("work", "secret input")
        .retry(policy)
        .await
        .map_err(|_| Payload::from("secret error"))
}

#[test]
fn logs_a_normal_run_is_silent_at_warn_and_tells_its_steps_at_info() {
    let lines = logged(|| {
        let mut node = ManualNode::new(handlers());
        node.start("steps", "order-1", number(1));
        node.settle().finish("order-1", "A1", "done").settle();
    });
    assert!(lines.iter().all(|line| line.level > Level::WARN), "{lines:#?}");
    let info: Vec<String> = lines.iter().filter(|line| line.level == Level::INFO).map(Line::short).collect();
    assert_eq!(
        info,
        [
            "INFO perennial::node shards taken over",
            "INFO perennial::instance instance started",
            "INFO perennial::instance instance completed"
        ]
    );
    let started = only(&lines, "instance started");
    let fields = ["instance", "execution", "orchestration", "version"].map(|name| started.field(name));
    assert_eq!(fields, [Some("order-1"), Some("1"), Some("steps"), Some(ManualNode::VERSION)]);
    assert_eq!(only(&lines, "attempt completed").field("event"), Some("2"));
}

#[test]
fn logs_a_failed_attempt_and_its_retry_carry_instance_execution_event_and_attempt() {
    let lines = logged(|| {
        let mut node = ManualNode::new(handlers_and("flaky", flaky));
        node.start("flaky", "order-1", ());
        node.settle().fail("order-1", "work", "secret reason").settle();
        let due_ms = node.row("order-1").wake_at_ms.unwrap();
        node.at(due_ms).settle();
        let task = node.pick_activity("order-1", "work");
        node.bring_result(&task, Err(ActivityError::Timeout(TimeoutKind::Attempt)));
        node.settle();
    });
    let of_attempt = |line: &Line| {
        ["instance", "execution", "event", "attempt", "activity"]
            .map(|name| line.field(name).unwrap().to_owned())
    };
    let failed: Vec<&Line> = lines.iter().filter(|line| line.message == "attempt failed").collect();
    assert_eq!(failed.len(), 2);
    assert!(failed.iter().all(|line| line.level == Level::WARN && line.target == "perennial::activity"));
    assert_eq!(of_attempt(failed[0]), ["order-1", "1", "2", "1", "work"]);
    assert_eq!(of_attempt(failed[1]), ["order-1", "1", "2", "2", "work"]);
    assert_eq!(
        [failed[0], failed[1]].map(|line| line.field("failure")),
        [Some("error"), Some("attempt timeout")]
    );
    let retry = only(&lines, "retry scheduled");
    assert_eq!((retry.level, retry.field("retry_in_ms")), (Level::INFO, Some("700")));
    assert_eq!(of_attempt(retry), ["order-1", "1", "2", "2", "work"], "the attempt that is to come");
    let end = only(&lines, "instance failed");
    assert_eq!((end.level, end.target.as_str()), (Level::WARN, "perennial::instance"));
    assert!(!format!("{lines:?}").contains("secret"), "payloads are not logged: {lines:#?}");
}

#[test]
fn logs_a_blocked_instance_tells_its_code_its_line_and_when_it_goes_on() {
    async fn before(ctx: OrchestrationContext, _: Payload) -> Outcome {
        ctx.schedule_wait("go").await;
        Ok(ctx.schedule_wait("end").await)
    }
    async fn after(ctx: OrchestrationContext, _: Payload) -> Outcome {
        ctx.schedule_timer(Duration::from_secs(1)).await;
        Ok(Payload::null())
    }
    let lines = logged(|| {
        let mut node = ManualNode::new(handlers_and("changed", before));
        node.start("changed", "order-1", ());
        node.settle().crash();
        node.replace_code(handlers_and("changed", after)).take_over();
        node.raise("order-1", "go", "1");
        node.settle().crash();
        node.replace_code(handlers_and("changed", before)).take_over().settle();
    });
    let blocked = only(&lines, "instance blocked");
    assert_eq!((blocked.level, blocked.target.as_str()), (Level::WARN, "perennial::instance"));
    assert_eq!(
        ["instance", "execution", "code"].map(|name| blocked.field(name)),
        [Some("order-1"), Some("1"), Some("PER-0203")]
    );
    assert!(blocked.field("place").is_some_and(|place| place.contains("logging.rs:")), "{blocked:#?}");
    assert_eq!(only(&lines, "instance unblocked").level, Level::INFO);
}

#[test]
fn logs_an_owner_that_comes_after_a_crash_tells_that_it_took_over() {
    let lines = logged(|| {
        let mut node = ManualNode::new(handlers());
        node.start("collect", "order-1", ());
        node.settle().kill();
        node.take_over();
    });
    let gained: Vec<&Line> = lines.iter().filter(|line| line.message == "shards taken over").collect();
    assert_eq!(gained.len(), 2, "{lines:#?}");
    assert!(gained.iter().all(|line| line.target == "perennial::node" && line.level == Level::INFO));
    assert_eq!(gained[0].field("crashed"), Some("0"));
    assert_eq!(gained[1].field("crashed"), gained[1].field("shards"), "{:#?}", gained[1]);
}

#[test]
fn logs_a_commit_that_takes_a_second_is_reported_as_slow() {
    for (took_ms, is_slow) in [(999, false), (1_000, true)] {
        let lines = logged(|| {
            let mut node = ManualNode::new(handlers());
            node.start("echo", "order-1", ());
            node.take_turns();
            node.commit_with(|node| {
                let now_ms = node.now_ms();
                node.at(now_ms + took_ms);
            });
        });
        let slow: Vec<&Line> = under(&lines, "perennial::store");
        assert_eq!(slow.len(), usize::from(is_slow), "{lines:#?}");
        for line in slow {
            assert_eq!((line.level, line.message.as_str()), (Level::WARN, "commit slow"));
            assert_eq!([line.field("took_ms"), line.field("commits")], [Some("1000"), Some("1")]);
        }
    }
}

#[test]
fn e19_lines_of_orchestration_code_have_its_module_as_target_and_its_line() {
    let mut wrote = 0;
    let lines = logged(|| {
        wrote = line!() + 2;
        Drive::start(
            |ctx: OrchestrationContext, _: Payload| async move {
                ctx.trace_info("hello");
                Ok(Payload::null())
            },
            (),
        );
    });
    let hello = only(&lines, "hello");
    assert_eq!((hello.level, hello.target.as_str()), (Level::INFO, module_path!()));
    assert_eq!(hello.field("execution"), Some("1"));
    assert!(hello.field("instance").is_some());
    assert!(hello.file.as_deref().is_some_and(|file| file.ends_with("logging.rs")));
    assert!(hello.line.is_some_and(|line| (wrote..=wrote + 4).contains(&line)), "{hello:#?}");
}
