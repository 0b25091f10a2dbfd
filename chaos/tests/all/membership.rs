//! Nodes that join and leave.

use std::collections::BTreeMap;

use perennial::Payload;
use perennial_chaos::director::Stage;
use perennial_chaos::log::now_ms;
use perennial_chaos::node::NodeOptions;

use crate::support::{LEASE, Load, longest_wait, program, stage, until, until_divided};

const LIVES: [&str; 6] = ["sequence", "fanout", "mail", "account", "family", "cancel"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n7_a_third_node_gets_its_third_and_leaves_again_and_no_caller_sees_an_error() {
    let mut stage = stage(2).await;
    until_divided(&stage, 2).await;
    let load = Load::begin(&stage, &LIVES);
    until("load", async || load.callers.finished() > 12).await;

    let joined_ms = now_ms();
    let third = stage.add_nodes(1).await[0];
    until_divided(&stage, 3).await;
    let divided_ms = now_ms() - joined_ms;
    let finished = load.callers.finished();
    until("load on three nodes", async || load.callers.finished() > finished + 12).await;
    let joining = longest_wait(&stage.callers.entries(), joined_ms);

    let left_ms = now_ms();
    stage.stop(third).await;
    until_divided(&stage, 2).await;
    let finished = load.callers.finished();
    until("load on two nodes", async || load.callers.finished() > finished + 12).await;
    let leaving = longest_wait(&stage.callers.entries(), left_ms);

    load.end(&stage).await;
    println!(
        "divided after {divided_ms} ms; longest wait of a caller: joining {joining:?}, leaving {leaving:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s9_fifty_nodes_open_an_empty_database_at_once() {
    let mut stage = Stage::new(program(), 3 * LEASE).await;
    let template = stage.fleet.template().clone();
    let url = format!("{}?connections=2", template.url);
    let options = NodeOptions { url, ..template };
    let begun_ms = now_ms();
    let numbers: Vec<u64> = (0..50).map(|_| stage.fleet.add_with(options.clone())).collect();
    for number in &numbers {
        stage.ready(*number).await;
    }
    println!("fifty nodes work after {} ms", now_ms() - begun_ms);
    let client = stage.client();
    for number in 0..20 {
        client.start("sequence", &format!("sequence-{number}"), Payload::null()).await.unwrap();
    }
    for number in 0..20 {
        client.result(&format!("sequence-{number}")).await.unwrap();
    }
    let owners = stage.owners().await;
    assert!(owners.shards.values().all(|shards| *shards > 0) && owners.shards.len() == 50, "{owners:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n13_a_process_without_shards_runs_activities_and_another_only_calls() {
    let mut stage = stage(1).await;
    let worker = NodeOptions { worker: true, special: true, ..stage.fleet.template().clone() };
    let worker = stage.fleet.add_with(worker);
    stage.ready(worker).await;
    let owners = stage.owners().await;
    assert_eq!(owners.shards, BTreeMap::from([("node-1".to_owned(), 256)]));
    let client = stage.client();
    client.start("errand", "errand-1", Payload::null()).await.unwrap();
    let result = client.result("errand-1").await.unwrap();
    assert_eq!(result.to_text(), format!("node-{worker}"));
    stage.stop(worker).await;
}
