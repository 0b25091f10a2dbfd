//! P8: `history` and `prune` handle the executions of an instance.

use super::support::{Shop, settings};
use perennial::prelude::*;

/// A closed shop with an instance in its fourth execution.
pub(crate) async fn in_its_fourth_execution() -> Shop {
    let mut shop = Shop::open().await;
    let client = shop.client();
    client.start("rounds", "rounds-1", Payload::from_json("3").unwrap()).await.unwrap();
    // The commit that begins an execution is one before that of its first turn.
    while client.status("rounds-1").await.unwrap().execution < 4
        || client.history("rounds-1").await.unwrap().turns.is_empty()
    {
        tokio::task::yield_now().await;
    }
    shop.runtime.take().unwrap().shutdown().await.unwrap();
    shop
}

/// The executions that the history contains.
pub(crate) async fn recorded(shop: &Shop) -> Vec<u64> {
    let result = shop.masked(&["history", "rounds-1", "--execution", "all", "--json"]).await;
    let of =
        |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["execution"].as_u64().unwrap();
    let mut executions: Vec<u64> = result.lines().map(of).collect();
    executions.dedup();
    executions
}

#[tokio::test]
async fn p8_history_shows_one_execution_or_all() {
    let shop = in_its_fourth_execution().await;
    assert_eq!(recorded(&shop).await, [1, 2, 3, 4]);
    let shown = shop.masked(&["history", "rounds-1", "--execution", "2"]).await;
    settings().bind(|| {
        insta::assert_snapshot!(shown, @r"
        execution 2 of 4
        began [moment]
        TURN  AFTER  EVENT  WHAT
          1  [span]  1  OrchestrationStarted rounds 2
          2  OrchestrationContinuedAsNew latest 1
        ");
    });
    assert!(shop.masked(&["history", "rounds-1"]).await.starts_with("execution 4 of 4\n"));
    for wrong in ["none", "0", "-1"] {
        let result = shop.run(&["history", "rounds-1", &format!("--execution={wrong}")]).await;
        assert_eq!(result.code, 2, "{wrong}: {result:?}");
    }
}

#[tokio::test]
async fn p8_prune_deletes_old_executions_and_keeps_the_current_one() {
    let shop = in_its_fourth_execution().await;
    let result = shop.run(&["prune", "--executions", "--older-than", "1h", "--yes"]).await;
    assert_eq!((result.code, result.stdout.trim()), (0, "pruned executions; rows deleted: 0"), "{result:?}");
    assert_eq!(recorded(&shop).await, [1, 2, 3, 4]);
    let result = shop.run(&["prune", "--executions", "--older-than", "0s"]).await;
    assert_eq!(result.code, 4, "it was not confirmed: {result:?}");
    let result = shop.run(&["prune", "--executions", "--older-than", "0s", "--yes", "--json"]).await;
    let pruned: serde_json::Value = serde_json::from_str(&result.stdout).unwrap();
    assert_eq!((result.code, pruned["rows"].as_u64()), (0, Some(3)), "{result:?}");
    assert_eq!(recorded(&shop).await, [4]);
    let result = shop.run(&["history", "rounds-1", "--execution", "1"]).await;
    assert_eq!(result.code, 3, "{result:?}");
    assert!(result.stderr.contains("PER-0633"), "{result:?}");
    assert_eq!(shop.run(&["list", "--json"]).await.stdout.lines().count(), 1, "instances are not pruned");
}

#[tokio::test]
async fn p8_prune_of_executions_needs_an_age_and_takes_no_filter() {
    let shop = Shop::stocked().await;
    for arguments in [
        &["prune", "--executions", "--yes"][..],
        &["prune", "--executions", "--older-than", "1h", "--prefix", "order"],
        &["prune", "--executions", "--older-than", "1h", "--keep", "3"],
    ] {
        let result = shop.run(arguments).await;
        assert_eq!(result.code, 2, "{result:?}");
    }
}
