//! Activities that run on other nodes than their instances.

use perennial::history::Ending;
use perennial::prelude::*;
use perennial_chaos::kinds::number;
use perennial_chaos::log::Entry;
use perennial_chaos::node::NodeOptions;

use crate::support::{stage, until, until_divided};

/// The nodes on which an instance's activity has run, once for each run.
fn runs(effects: &[Entry], id: &str) -> Vec<String> {
    let is_run = |entry: &&Entry| entry.phase == "run" && entry.fields[0] == id;
    effects.iter().filter(is_run).map(|entry| entry.writer.clone()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g22_an_activity_runs_on_the_node_that_has_it_or_its_tag() {
    let mut stage = stage(1).await;
    let other = NodeOptions { special: true, tag: vec!["gpu".to_owned()], ..stage.fleet.template().clone() };
    let other = stage.fleet.add_with(other);
    stage.ready(other).await;
    until_divided(&stage, 2).await;
    let client = stage.client();
    // Some of them belong to the node that can run their activity, and some do not.
    for place in 0..8 {
        client.start("errand", &format!("errand-{place}"), Payload::null()).await.unwrap();
        client.start("tagged", &format!("tagged-{place}"), "gpu").await.unwrap();
    }
    for place in 0..8 {
        for kind in ["errand", "tagged"] {
            let id = format!("{kind}-{place}");
            assert_eq!(client.result(&id).await.unwrap().to_text(), format!("node-{other}"), "{id}");
            assert_eq!(runs(&stage.effects.entries(), &id).len(), 1, "{id}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g23_a_cancel_reaches_an_activity_that_runs_on_another_node() {
    let mut stage = stage(1).await;
    let client = stage.client();
    for place in 0..6 {
        client.start("long", &format!("long-{place}"), number(600_000)).await.unwrap();
    }
    let stage_effects = stage.effects.clone();
    until("activities run", async || stage_effects.entries().len() == 6).await;
    // Half of the instances move to the second node, while their activities keep running on the first.
    stage.add_nodes(1).await;
    until_divided(&stage, 2).await;
    for place in 0..6 {
        client.cancel(&format!("long-{place}"), "enough").await.unwrap();
        let ending = client.wait(&format!("long-{place}")).await.unwrap();
        assert!(matches!(ending, Ending::OrchestrationCancelled { .. }), "{ending:?}");
    }
    let is_cancelled = |entry: &Entry| entry.phase == "cancelled";
    until("all activities hear of it", async || {
        stage_effects.entries().iter().filter(|entry| is_cancelled(entry)).count() == 6
    })
    .await;
    let effects = stage.effects.entries();
    assert!((0..6).all(|place| runs(&effects, &format!("long-{place}")) == ["node-1"]), "{effects:?}");
}
