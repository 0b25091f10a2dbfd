//! Facts for metrics: stated once they are final, and none about what is replayed (O4, O9).

use std::sync::Arc;
use std::time::Duration;

use perennial_core::shard::{Fact, Label, Observed, ObservedNames, ShardOptions, TurnEnd};
use perennial_core::store::{CommitOutcome, Status};
use perennial_core::{ErrorCode, OrchestrationContext, Payload};
use perennial_testkit::ManualNode;

use crate::shard_cases::{Outcome, handlers_and};

async fn panics(_: OrchestrationContext, _: Payload) -> Outcome {
    panic!("boom")
}

fn observed() -> Arc<Observed> {
    let orchestrations = ["collect", "panics"].map(str::to_owned);
    Arc::new(Observed { orchestrations: ObservedNames::new(orchestrations, [], 200), ..Observed::default() })
}

fn node() -> (ManualNode, Label) {
    let observed = observed();
    let collect = observed.orchestrations.label("collect");
    let options = ShardOptions { observed: Some(observed), ..ShardOptions::default() };
    (ManualNode::with_options(handlers_and("panics", panics), options), collect)
}

fn turn(orchestration: Label, end: TurnEnd) -> Fact {
    Fact::Turn { orchestration, end, took: Some(Duration::ZERO) }
}

#[test]
fn o4_a_turn_is_stated_once_it_is_durable() {
    let (mut node, collect) = node();
    node.start("collect", "a", ());
    node.take_turn("a");
    assert_eq!(node.take_facts(), [], "it is not written yet");
    node.settle();
    let started = Fact::InstanceStarted { orchestration: collect };
    assert_eq!(node.take_facts(), [started, turn(collect, TurnEnd::Committed)]);
    node.raise("a", "n", "end");
    node.settle();
    let facts = node.take_facts();
    assert_eq!(facts[0], turn(collect, TurnEnd::Committed));
    assert!(matches!(facts[1], Fact::InstanceEnded { status: Status::Completed, .. }), "{facts:?}");
    assert_eq!((facts.len(), node.counters("a").events_applied), (2, 1));
}

#[test]
fn o4_a_turn_that_the_store_rejects_is_refused_and_blocks() {
    let (mut node, collect) = node();
    node.start("collect", "a", ());
    node.take_turn("a");
    node.commit_as("a", CommitOutcome::Rejected("too large".to_owned()));
    assert_eq!(node.take_facts(), [turn(collect, TurnEnd::Refused)]);
    node.settle();
    assert_eq!(node.take_facts(), [Fact::Blocked(ErrorCode::TurnRefused)]);
}

#[test]
fn o4_a_turn_whose_code_fails_is_stated_and_blocks_until_the_end() {
    let (mut node, _) = node();
    let panics = observed().orchestrations.label("panics");
    node.start("panics", "a", ());
    node.settle();
    let facts = node.take_facts();
    let [failed, Fact::Blocked(code)] = facts.as_slice() else { panic!("{facts:?}") };
    assert_eq!(*failed, turn(panics, TurnEnd::Failed));
    node.terminate("a", "a bug");
    node.settle();
    let facts = node.take_facts();
    assert!(facts.contains(&Fact::Unblocked(*code)), "{facts:?}");
    let ended = facts.iter().filter_map(|fact| match fact {
        Fact::InstanceEnded { orchestration, status, .. } => Some((*orchestration, *status)),
        _ => None,
    });
    assert_eq!(ended.collect::<Vec<_>>(), [(panics, Status::Terminated)], "{facts:?}");
}

#[test]
fn o9_after_a_restart_only_the_new_turn_is_stated() {
    let (mut node, collect) = node();
    node.start("collect", "a", ());
    for number in ["1", "2", "3"] {
        node.settle();
        node.raise("a", "n", number);
    }
    node.settle();
    assert_eq!(node.take_facts().len(), 5, "a start and four turns");
    node.crash().take_over().settle();
    node.raise("a", "n", "4");
    node.settle();
    let hydrated = Fact::Hydrated { took: Duration::ZERO };
    assert_eq!(node.take_facts(), [hydrated, turn(collect, TurnEnd::Committed)]);
}

#[test]
fn o1_without_names_to_tell_apart_no_fact_is_stated() {
    let mut node = ManualNode::new(handlers_and("panics", panics));
    node.start("collect", "a", ());
    node.start("panics", "b", ());
    node.settle();
    assert_eq!(node.take_facts().capacity(), 0);
}
