//! P8: reading commands change nothing, and print full values unless they write to a terminal.

use crate::executions::{in_its_fourth_execution, recorded};
use crate::support::{Shop, run};
use perennial::prelude::*;

#[tokio::test]
async fn p8_reading_commands_change_no_file() {
    let shop = Shop::stocked().await;
    // A copied store may lack the companion files.
    for name in ["shop.db-lock", "shop.db-wal", "shop.db-shm"] {
        let _ = std::fs::remove_file(shop.path().with_file_name(name));
    }
    let before = shop.files();
    assert_eq!(before.len(), 1, "only the database");
    for (arguments, code) in [
        (&["list"][..], 0),
        (&["list", "--blocked", "--json"], 0),
        (&["show", "order-1"], 0),
        (&["history", "order-1"], 0),
        (&["tree", "order-1"], 0),
        (&["export"], 0),
        (&["top", "--once"], 0),
        (&["verify"], 0),
        (&["doctor"], 1),
    ] {
        let result = shop.run(arguments).await;
        assert_eq!(result.code, code, "{arguments:?}: {result:?}");
        assert!(shop.files() == before, "{arguments:?} changed {:?}", shop.files().keys());
    }
}

#[tokio::test]
async fn p8_reading_commands_see_the_latest_writes_of_a_runtime() {
    let shop = Shop::open().await;
    shop.client().start("counter", "counter-1", Payload::from_json("7").unwrap()).await.unwrap();
    let result = shop.run(&["list", "--json"]).await;
    assert!(result.stdout.contains("counter-1"), "{result:?}");
    assert_eq!(shop.run(&["raise", "counter-1", "stop", "null"]).await.code, 0);
    shop.client().wait("counter-1").await.unwrap();
    let result = shop.run(&["show", "counter-1", "--json"]).await;
    assert!(result.stdout.contains("\"status\":\"completed\""), "{result:?}");
}

#[tokio::test]
async fn p8_options_of_a_url_are_refused_and_create_no_file() {
    let shop = Shop::stocked().await;
    let before = shop.files();
    let url = format!("{}?mode=ro", shop.url());
    for command in ["list", "doctor", "verify"] {
        let result = run(&[command, "--store", &url], &[]);
        assert_eq!(result.code, 2, "{result:?}");
        assert!(result.stderr.contains("PER-0602") && result.stderr.contains("mode=ro"), "{result:?}");
    }
    let started = Runtime::open(&url).start().await.err().unwrap().to_string();
    assert!(started.contains("mode=ro"), "{started}");
    assert!(shop.files() == before, "{:?}", shop.files().keys());
}

#[tokio::test]
async fn p8_payloads_are_printed_in_full_without_a_terminal() {
    let mut shop = Shop::open().await;
    let long = format!("{}end", "x".repeat(5_000));
    shop.client().start("parcel", "parcel-1", Payload::from(long.as_str())).await.unwrap();
    shop.client().wait("parcel-1").await.unwrap();
    shop.runtime.take().unwrap().shutdown().await.unwrap();
    for command in ["show", "history"] {
        let result = shop.run(&[command, "parcel-1"]).await;
        assert!(result.stdout.contains(&format!("{long}\"")), "the input: {}", result.stdout.len());
        assert!(result.stdout.contains(&format!("{long}, wrapped")), "the output: {}", result.stdout.len());
    }
}

#[tokio::test]
async fn p8_executions_that_are_not_stored_are_not_looked_for() {
    let shop = in_its_fourth_execution().await;
    let connection = rusqlite::Connection::open(shop.path()).unwrap();
    // So many executions that asking for each would take hours. None but the current one is stored.
    connection.execute_batch("DELETE FROM turns; UPDATE instances SET execution = 1000000000").unwrap();
    drop(connection);
    let client = Client::open(&shop.url()).unwrap();
    assert_eq!(client.executions("rounds-1").await.unwrap(), 1_000_000_000..=1_000_000_000);
    assert!(recorded(&shop).await.is_empty());
    assert_eq!(shop.masked(&["export", "rounds-1"]).await, "");
}
