//! P8: commands that look change nothing, and say all that they know to whoever is not a terminal.

use crate::support::{Shop, run};
use perennial::prelude::*;

#[tokio::test]
async fn p8_commands_that_look_leave_every_file_as_it_is() {
    let shop = Shop::stocked().await;
    // A copy may come without the files that stand beside a store.
    for name in ["shop.db-lock", "shop.db-wal", "shop.db-shm"] {
        let _ = std::fs::remove_file(shop.path().with_file_name(name));
    }
    let before = shop.files();
    assert_eq!(before.len(), 1, "the database alone");
    for (arguments, code) in [
        (&["list"][..], 0),
        (&["list", "--blocked", "--json"], 0),
        (&["show", "order-1"], 0),
        (&["history", "order-1"], 0),
        (&["tree", "order-1"], 0),
        (&["doctor"], 1),
    ] {
        let said = shop.run(arguments).await;
        assert_eq!(said.code, code, "{arguments:?}: {said:?}");
        assert!(shop.files() == before, "{arguments:?} changed {:?}", shop.files().keys());
    }
}

#[tokio::test]
async fn p8_commands_that_look_see_what_a_runtime_has_just_written() {
    let shop = Shop::open().await;
    shop.client().start("counter", "counter-1", Payload::from_json("7").unwrap()).await.unwrap();
    let said = shop.run(&["list", "--json"]).await;
    assert!(said.stdout.contains("counter-1"), "{said:?}");
    assert_eq!(shop.run(&["raise", "counter-1", "stop", "null"]).await.code, 0);
    shop.client().wait("counter-1").await.unwrap();
    let said = shop.run(&["show", "counter-1", "--json"]).await;
    assert!(said.stdout.contains("\"status\":\"completed\""), "{said:?}");
}

#[tokio::test]
async fn p8_options_of_a_url_are_refused_and_name_no_file() {
    let shop = Shop::stocked().await;
    let before = shop.files();
    let url = format!("{}?mode=ro", shop.url());
    for command in ["list", "doctor", "verify"] {
        let said = run(&[command, "--store", &url], &[]);
        assert_eq!(said.code, 2, "{said:?}");
        assert!(said.stderr.contains("PER-0602") && said.stderr.contains("mode=ro"), "{said:?}");
    }
    let started = Runtime::open(&url).start().await.err().unwrap().to_string();
    assert!(started.contains("mode=ro"), "{started}");
    assert!(shop.files() == before, "{:?}", shop.files().keys());
}

#[tokio::test]
async fn p8_payloads_are_whole_when_nobody_looks_at_a_terminal() {
    let mut shop = Shop::open().await;
    let long = format!("{}end", "x".repeat(5_000));
    shop.client().start("parcel", "parcel-1", Payload::from(long.as_str())).await.unwrap();
    shop.client().wait("parcel-1").await.unwrap();
    shop.runtime.take().unwrap().shutdown().await.unwrap();
    for command in ["show", "history"] {
        let said = shop.run(&[command, "parcel-1"]).await;
        assert!(said.stdout.contains(&format!("{long}\"")), "the input: {}", said.stdout.len());
        assert!(said.stdout.contains(&format!("{long}, wrapped")), "the output: {}", said.stdout.len());
    }
}
