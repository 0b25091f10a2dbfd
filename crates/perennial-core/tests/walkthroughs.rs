//! The seed walk-throughs as exact histories.

use std::time::Duration;

use perennial_core::{Either, OrchestrationContext, Payload};
use perennial_testkit::Drive;

#[test]
fn greet() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, name: Payload| async move {
            ctx.schedule_activity("Greet", name)
                .await
                .map_err(|_| Payload::null())
        },
        "Alice",
    );
    drive.evict().complete(2, "Hello, Alice!");
    assert_eq!(
        drive.lines(),
        [
            r#"1 OrchestrationStarted orchestration "Alice""#,
            r#"2 ActivityScheduled "Greet" "Alice""#,
            r#"3 ActivityCompleted of 2 "Hello, Alice!""#,
            r#"4 OrchestrationCompleted "Hello, Alice!""#,
        ]
    );
}

#[test]
fn select_then_another_activity() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let fast = ctx.schedule_activity("Fast", "");
            let timer = ctx.schedule_timer(Duration::from_secs(10));
            let won = ctx.select2(fast, timer).await;
            assert!(matches!(won, Either::First(_)));
            ctx.schedule_activity("Next", "")
                .await
                .map_err(|_| Payload::null())
        },
        (),
    );
    drive.evict().complete(2, "quick");
    assert_eq!(
        drive.last_lines(),
        [
            r#"4 ActivityCompleted of 2 "quick""#,
            r#"5 ActivityScheduled "Next" """#,
            r#"6 TimerCancelled of 3"#,
        ]
    );
    drive.evict().complete(5, "done").evict();
    assert_eq!(
        drive.last_lines(),
        [
            r#"7 ActivityCompleted of 5 "done""#,
            r#"8 OrchestrationCompleted "done""#
        ]
    );
}
