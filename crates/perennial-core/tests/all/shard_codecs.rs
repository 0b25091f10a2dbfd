//! Encoded turns (S10, S11): what is stored, what is replayed, and what an instance does whose key is missing.

use crate::codec_cases::Flipped;
use crate::shard_cases::{Outcome, handlers, handlers_and, number, settle_for_a_while};
use perennial_core::shard::ShardOptions;
use perennial_core::store::read_turns_with;
use perennial_core::{Ending, OrchestrationContext, Payload, Turn};
use perennial_testkit::ManualNode;
use std::time::Duration;

fn options(codec: &Flipped) -> ShardOptions {
    ShardOptions {
        codecs: codec.codecs(),
        retry_first: Duration::from_millis(100),
        ..ShardOptions::default()
    }
}

/// The stored turns of an instance, as text.
fn stored(node: &ManualNode, id: &str) -> String {
    let key = node.row(id).key;
    let tables = node.tables();
    let turns = tables.turns.iter().filter(|((of, ..), _)| *of == key);
    turns.map(|(_, turn)| String::from_utf8(turn.bytes.to_vec()).unwrap()).collect()
}

/// What an instance returned, decoded.
fn output(node: &ManualNode, codec: &Flipped, id: &str) -> String {
    let key = node.row(id).key;
    let tables = node.tables();
    let turns = tables.turns.iter().filter(|((of, ..), _)| *of == key);
    let rows: Vec<_> = turns.map(|(_, turn)| turn.clone()).collect();
    let read = read_turns_with(&codec.codecs(), key, &rows).unwrap();
    match read.turns.last().and_then(Turn::ending) {
        Some(Ending::OrchestrationCompleted { output }) => output.as_json().to_owned(),
        other => format!("{other:?}"),
    }
}

#[test]
fn s10_turns_are_stored_encoded_and_replayed_decoded() {
    let codec = Flipped::default();
    let mut node = ManualNode::with_options(handlers(), options(&codec));
    node.start("steps", "a", number(2));
    node.settle();
    node.finish("a", "A1", "secret").settle();
    assert!(stored(&node, "a").contains(r#"{"@codec":[["flipped","may"]],"size":8,"data":"#));
    assert!(!stored(&node, "a").contains("secret"));
    node.restart();
    node.settle();
    node.finish("a", "A2", "done").settle();
    assert_eq!(output(&node, &codec, "a"), "\"done\"");
}

#[test]
fn s11_a_missing_key_blocks_until_it_is_there_again() {
    let codec = Flipped::default();
    let mut node = ManualNode::with_options(handlers(), options(&codec));
    node.start("collect", "a", ());
    node.raise("a", "n", "1");
    node.settle();
    node.crash();
    codec.lose_key(true);
    node.restart();
    node.raise("a", "n", "end");
    node.settle();
    let blocked = node.row("a").blocked.expect("it cannot be read");
    assert_eq!(blocked.code, "PER-0104");
    assert!(
        blocked.reason.contains(r#"codec flipped with key "may": key "may" is missing"#),
        "{}",
        blocked.reason
    );
    assert!(blocked.cause.contains("flipped"), "{}", blocked.cause);
    codec.lose_key(false);
    node.at(10_000).settle();
    assert_eq!(output(&node, &codec, "a"), r#"["1"]"#, "it went on by itself");
}

async fn has_child(ctx: OrchestrationContext, _: Payload) -> Outcome {
    let child = ctx.schedule_sub_orchestration_with_id("collect", "child", "for the child").await;
    child.map_err(|failure| Payload::from(format!("{failure:?}")))
}

#[test]
fn s11_an_instance_whose_key_is_missing_is_terminated_in_order() {
    let codec = Flipped::default();
    let mut node = ManualNode::with_options(handlers_and("has_child", has_child), options(&codec));
    node.start("has_child", "a", "input");
    node.settle();
    node.pass_inbox().settle();
    node.crash();
    codec.lose_key(true);
    node.restart();
    let terminated = node.terminate("a", "the key is lost");
    settle_for_a_while(&mut node);
    assert_eq!(node.told(terminated), "accepted");
    let lines = node.last_lines("a", 1);
    assert!(lines[0].contains("OrchestrationTerminated"), "{lines:?}");
    codec.lose_key(false);
    node.at(10_000).settle();
    assert!(node.status("child").starts_with("cancelled"), "its parent told it: {}", node.status("child"));
}

#[test]
fn s11_a_turn_that_cannot_be_encoded_leaves_no_trace_and_is_tried_again() {
    let codec = Flipped::default();
    let mut node = ManualNode::with_options(handlers(), options(&codec));
    node.start("collect", "a", ());
    node.settle();
    codec.lose_key(true);
    node.raise("a", "n", "1");
    node.settle();
    assert_eq!(node.row("a").blocked.expect("it cannot be written").code, "PER-0305");
    codec.lose_key(false);
    node.raise("a", "n", "end");
    node.settle();
    node.at(10_000).settle();
    assert_eq!(output(&node, &codec, "a"), r#"["1"]"#);
}

#[test]
fn s10_a_changed_byte_of_an_encoded_payload_is_corruption() {
    let codec = Flipped::default();
    let mut node = ManualNode::with_options(handlers(), options(&codec));
    node.start("collect", "a", ());
    node.settle();
    node.crash();
    let key = node.row("a").key;
    {
        let mut tables = node.tables();
        let turn = tables.turns.iter_mut().find(|((of, ..), _)| *of == key).map(|(_, turn)| turn).unwrap();
        let mut bytes = turn.bytes.to_vec();
        let data = String::from_utf8(bytes.clone()).unwrap().find("data\":\"").unwrap() + 7;
        bytes[data] ^= 1;
        turn.bytes = bytes.into();
    }
    node.restart();
    node.raise("a", "n", "1");
    node.settle();
    assert_eq!(node.row("a").blocked.expect("it was changed").code, "PER-0101");
}

fn calls(input: &'static str) -> impl Fn(OrchestrationContext, Payload) -> Calls {
    move |ctx, _| {
        Box::pin(async move {
            ctx.schedule_activity("A1", input).await.map_err(|failure| Payload::from(format!("{failure:?}")))
        })
    }
}

type Calls = std::pin::Pin<Box<dyn Future<Output = Outcome> + Send>>;

#[test]
fn s10_a_report_of_divergence_quotes_no_payloads() {
    for (is_encoded, quotes) in [(false, true), (true, false)] {
        let codec = Flipped::default();
        let options = if is_encoded { options(&codec) } else { ShardOptions::default() };
        let mut node = ManualNode::with_options(handlers_and("calls", calls("secret of old")), options);
        node.start("calls", "a", ());
        node.settle();
        node.replace_code(handlers_and("calls", calls("secret of new"))).restart();
        node.settle();
        let blocked = node.row("a").blocked.expect("the code diverged");
        assert_eq!(blocked.code, "PER-0203");
        let stored = serde_json::to_string(&blocked).unwrap();
        assert_eq!(stored.contains("secret"), quotes, "{stored}");
    }
}
