//! Waves: who goes on when, after several jobs of one turn.

use futures::future::BoxFuture;
use perennial_core::{OrchestrationContext, Payload};
use perennial_testkit::Drive;

use crate::branch_cases::{said, task, until_the_end, yield_once};

#[test]
fn e10_adjacent_jobs_to_different_branches_form_one_wave_in_branch_order() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            ctx.parallel([task(&ctx, "A"), task(&ctx, "B"), task(&ctx, "C")]).await;
            until_the_end(&ctx).await
        },
        (),
    );
    let backwards = [4, 3, 2].map(|source| Drive::completed(source, ""));
    drive.evict().turn(backwards).evict();
    assert_eq!(
        said(&drive),
        [
            "A resumes in p0",
            "B resumes in p1",
            "C resumes in p2",
            "A goes on in p0",
            "B goes on in p1",
            "C goes on in p2"
        ]
    );
}

#[test]
fn e10_a_second_job_to_the_same_unit_begins_the_next_wave() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let inner = ctx.clone();
            let both = Box::pin(async move {
                let (x, y) = (inner.schedule_activity("X", ""), inner.schedule_activity("Y", ""));
                let _ = inner.join2(x, y).await;
                inner.set_status("both");
            });
            ctx.parallel([both, task(&ctx, "B"), task(&ctx, "C")]).await;
            until_the_end(&ctx).await
        },
        (),
    );
    assert_eq!(
        drive.lines()[1..],
        [
            r#"2 ActivityScheduled "X" "" in p0"#,
            r#"3 ActivityScheduled "Y" "" in p0"#,
            r#"4 ActivityScheduled "B" "" in p1"#,
            r#"5 ActivityScheduled "C" "" in p2"#,
        ]
    );
    drive.evict().turn([5, 2, 3, 4].map(|source| Drive::completed(source, ""))).evict();
    assert_eq!(
        said(&drive),
        ["C resumes in p2", "C goes on in p2", "both in p0", "B resumes in p1", "B goes on in p1"],
        "C and X are a wave, then Y and B"
    );
}

#[test]
fn e10_an_ancestor_of_a_branch_in_the_wave_begins_the_next() {
    // p0 waits for Outer beside its branches p0.p0 and p0.p1; p1 stands apart.
    fn nested(ctx: &OrchestrationContext) -> BoxFuture<'static, ()> {
        let ctx = ctx.clone();
        Box::pin(async move {
            let inner = ctx.parallel([task(&ctx, "Inner0"), task(&ctx, "Inner1")]);
            let _ = ctx.schedule_activity("Outer", "").await;
            ctx.set_status("Outer resumes");
            inner.await;
        })
    }
    let start = || {
        Drive::start(
            |ctx: OrchestrationContext, _: Payload| async move {
                ctx.parallel([nested(&ctx), task(&ctx, "Apart")]).await;
                until_the_end(&ctx).await
            },
            (),
        )
    };
    let (outer, apart, inner0, inner1) = (2, 3, 4, 5);
    assert_eq!(
        start().lines()[1..],
        [
            r#"2 ActivityScheduled "Outer" "" in p0"#,
            r#"3 ActivityScheduled "Apart" "" in p1"#,
            r#"4 ActivityScheduled "Inner0" "" in p0.p0"#,
            r#"5 ActivityScheduled "Inner1" "" in p0.p1"#,
        ]
    );
    let turn = |sources: &[u64]| {
        let mut drive = start();
        let jobs: Vec<_> = sources.iter().map(|source| Drive::completed(*source, "")).collect();
        drive.turn(jobs).evict();
        said(&drive)
    };

    assert_eq!(
        turn(&[inner1, outer, apart]),
        [
            "Inner1 resumes in p0.p1",
            "Inner1 goes on in p0.p1",
            "Outer resumes in p0",
            "Apart resumes in p1",
            "Apart goes on in p1"
        ],
        "the ancestor after its branch"
    );
    assert_eq!(
        turn(&[apart, outer, inner0]),
        [
            "Outer resumes in p0",
            "Apart resumes in p1",
            "Apart goes on in p1",
            "Inner0 resumes in p0.p0",
            "Inner0 goes on in p0.p0"
        ],
        "the branch after its ancestor"
    );
    assert_eq!(
        turn(&[apart, inner1, inner0]),
        [
            "Inner0 resumes in p0.p0",
            "Inner1 resumes in p0.p1",
            "Apart resumes in p1",
            "Inner0 goes on in p0.p0",
            "Inner1 goes on in p0.p1",
            "Apart goes on in p1"
        ],
        "cousins go together, at any depth"
    );
}

#[test]
fn e10_the_root_is_an_ancestor_of_all() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let branches = ctx.parallel([task(&ctx, "A"), task(&ctx, "B")]);
            let _ = ctx.schedule_activity("Root", "").await;
            ctx.set_status("root resumes");
            branches.await;
            until_the_end(&ctx).await
        },
        (),
    );
    let (root, a, b) = (2, 3, 4);
    drive.evict().turn([b, root, a].map(|source| Drive::completed(source, ""))).evict();
    assert_eq!(
        said(&drive),
        ["B resumes in p1", "B goes on in p1", "root resumes", "A resumes in p0", "A goes on in p0"]
    );
}

#[test]
fn e10_a_job_that_meets_no_polled_future_is_a_wave_of_its_own() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let kept = ctx.schedule_activity("Kept", "");
            ctx.parallel([task(&ctx, "A"), task(&ctx, "B")]).await;
            let kept = kept.await.map_err(|_| Payload::null())?;
            ctx.set_status(kept);
            until_the_end(&ctx).await
        },
        (),
    );
    let (kept, a, b) = (2, 3, 4);
    drive
        .evict()
        .turn([Drive::completed(b, ""), Drive::completed(kept, "kept"), Drive::completed(a, "")])
        .evict();
    assert_eq!(
        said(&drive),
        ["B resumes in p1", "B goes on in p1", "A resumes in p0", "A goes on in p0", "kept"]
    );
}

#[test]
fn e10_a_handler_start_is_a_wave_of_its_own() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let handler = ctx.clone();
            ctx.on_event("event", move |payload| {
                let ctx = handler.clone();
                async move {
                    yield_once().await;
                    ctx.set_status(payload);
                }
            });
            ctx.parallel([task(&ctx, "A"), task(&ctx, "B")]).await;
            until_the_end(&ctx).await
        },
        (),
    );
    let (a, b) = (2, 3);
    drive
        .evict()
        .turn([
            Drive::completed(b, ""),
            Drive::event("event", "one"),
            Drive::event("event", "two"),
            Drive::completed(a, ""),
        ])
        .evict();
    assert_eq!(
        said(&drive),
        [
            "B resumes in p1",
            "B goes on in p1",
            "one in h0",
            "two in h1",
            "A resumes in p0",
            "A goes on in p0"
        ]
    );
}

#[test]
fn e10_a_cancel_request_is_a_wave_of_its_own() {
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let cancel = ctx.clone();
            ctx.on_cancel(move || async move {
                yield_once().await;
                cancel.set_status("cleaned up");
            });
            ctx.parallel([task(&ctx, "A"), task(&ctx, "B")]).await;
            until_the_end(&ctx).await
        },
        (),
    );
    let (a, b) = (2, 3);
    drive
        .evict()
        .turn([Drive::completed(b, ""), Drive::cancel("stop", 9_000), Drive::completed(a, "")])
        .evict();
    assert_eq!(
        said(&drive),
        ["B resumes in p1", "B goes on in p1", "cleaned up in h0", "A resumes in p0", "A goes on in p0"]
    );
}

#[test]
fn e10_waves_form_one_at_a_time_after_the_last_is_quiet() {
    // Only while it is delivered does the first job make p1 wait for Y: decided beforehand, Y would be one alone.
    let mut drive = Drive::start(
        |ctx: OrchestrationContext, _: Payload| async move {
            let y = ctx.schedule_activity("Y", "");
            let inner = ctx.clone();
            let late = Box::pin(async move {
                let _ = inner.schedule_activity("X", "").await;
                let _ = y.await;
                inner.set_status("Y resumes");
            });
            ctx.parallel([task(&ctx, "A"), late]).await;
            until_the_end(&ctx).await
        },
        (),
    );
    let (y, a, x) = (2, 3, 4);
    drive.evict().turn([x, y, a].map(|source| Drive::completed(source, ""))).evict();
    assert_eq!(said(&drive), ["A resumes in p0", "Y resumes in p1", "A goes on in p0"]);
}

#[test]
fn e10_in_the_first_turn_the_root_runs_before_the_first_wave() {
    let handler = std::sync::Arc::new(|ctx: OrchestrationContext, _: Payload| async move {
        let handler = ctx.clone();
        ctx.on_event("event", move |payload| {
            let ctx = handler.clone();
            async move { ctx.set_status(payload) }
        });
        ctx.set_status("root begins");
        yield_once().await;
        ctx.set_status("root goes on");
        until_the_end(&ctx).await
    });
    let started = perennial_core::Started::new("orchestration", "1.0.0", (), 42);
    let mut drive = Drive::prepare(handler, started, Default::default()).expect("it can start");
    drive.turn([Drive::event("event", "handled"), Drive::event("end", ())]).evict();
    assert_eq!(
        drive.lines(),
        [
            r#"1 OrchestrationStarted orchestration null"#,
            r#"2 ExternalEvent "event" "handled""#,
            r#"3 ExternalEvent "end" null"#,
            r#"4 StatusSet "root begins""#,
            r#"5 StatusSet "root goes on""#,
            r#"6 ExternalSubscribed "end""#,
            r#"7 StatusSet "handled" in h0"#,
            r#"8 OrchestrationCompleted "ended""#,
        ]
    );
}
