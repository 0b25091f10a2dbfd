//! Updates that meet a continue-as-new are answered, after the events that cross before them (E21, I8).

use crate::shard_cases::{Outcome, handlers_and};
use crate::shard_continuations::small_turns;
use perennial_core::{Job, OrchestrationContext, Payload};
use perennial_testkit::ManualNode;

/// Continues as new with `go`; `note` is an update in each execution.
async fn goes_round(ctx: OrchestrationContext, input: Payload) -> Outcome {
    ctx.on_update(
        "note",
        |_: &Payload| Ok(()),
        move |_: Payload| {
            let input = input.clone();
            async move { Ok(input) }
        },
    );
    let _: Payload = ctx.schedule_wait("go").await;
    ctx.continue_as_new("second").await
}

#[test]
fn e21_an_update_that_meets_a_continuation_is_answered() {
    let mut node = ManualNode::new(handlers_and("goes_round", goes_round));
    node.start("goes_round", "a", "first");
    node.settle();
    node.raise("a", "other", ());
    node.take_turns();
    // Both wait for the commit, and are part of one turn.
    let update = node.update("a", "note", None, ());
    node.raise("a", "go", ());
    node.settle();
    assert_eq!(node.row("a").execution, 2);
    assert_eq!(node.told(update), r#"answered: "first""#);
}

#[test]
fn i8_an_update_is_asked_after_all_events_that_cross_before_it() {
    let mut node = ManualNode::with_options(handlers_and("goes_round", goes_round), small_turns());
    node.start("goes_round", "a", "first");
    node.settle();
    for _ in 0..30 {
        node.raise("a", "other", ());
    }
    node.settle();
    node.raise("a", "go", ());
    node.take_turns();
    // It comes while the turn that continues as new is being committed. The events cross in three portions.
    let update = node.update("a", "note", None, ());
    node.settle();
    assert_eq!(node.told(update), r#"answered: "second""#);
    let taken: Vec<bool> = {
        let history = node.history(&node.row("a"), 2);
        let jobs = history.turns.iter().flat_map(|turn| turn.jobs());
        jobs.map(|(_, job)| matches!(job, Job::UpdateRequested { .. })).collect()
    };
    assert_eq!((taken.len(), taken.iter().position(|is_update| *is_update)), (31, Some(30)));
}
