//! Running activities whose instance moves to another node.

use perennial_chaos::kinds::number;
use perennial_chaos::node::NodeOptions;

use crate::support::{stage, until, until_divided};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n8_running_activities_survive_a_join_and_the_stop_of_their_owner_and_run_once() {
    let mut stage = stage(0).await;
    let patient = NodeOptions { grace_ms: 15_000, ..stage.fleet.template().clone() };
    let first = stage.fleet.add_with(patient);
    stage.ready(first).await;
    let client = stage.client();
    let ids: Vec<String> = (0..8).map(|place| format!("long-{place}")).collect();
    for id in &ids {
        client.start("long", id, number(10_000)).await.unwrap();
    }
    let effects = stage.effects.clone();
    until("activities run", async || effects.entries().len() == ids.len()).await;
    stage.add_nodes(1).await;
    until_divided(&stage, 2).await;
    stage.stop(first).await;
    for id in &ids {
        assert_eq!(client.result(id).await.unwrap(), number(10_000), "{id}");
    }
    let runs = effects.entries();
    assert_eq!(runs.len(), ids.len(), "none ran twice: {runs:?}");
}
