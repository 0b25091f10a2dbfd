//! P8: `skip` skips an event that the code cannot read, with a runtime and without.

use crate::support::Shop;
use serde_json::{Value, json};

/// Blocks the instance `a` by its event 4, which is not a number.
async fn block(shop: &Shop) {
    shop.masked(&["start", "adder", "a"]).await;
    for (event, payload) in [("n", "1"), ("n", "\"two\""), ("n", "3"), ("begin", "\"\"")] {
        shop.masked(&["raise", "a", event, payload]).await;
    }
    while shop.client().status("a").await.unwrap().blocked.is_none() {
        tokio::task::yield_now().await;
    }
}

/// The number of the event that blocks the instance.
async fn blocking(shop: &Shop) -> String {
    let report: Value = serde_json::from_str(&shop.run(&["show", "a", "--json"]).await.stdout).unwrap();
    report["blocked"]["event"].to_string()
}

#[tokio::test]
async fn p8_skip_lets_an_instance_continue_without_the_blocking_event() {
    let shop = Shop::open().await;
    block(&shop).await;
    let number = blocking(&shop).await;
    let remedy = format!("`perennial skip a {number}`");
    for look in [&["show", "a"][..], &["list"], &["doctor"], &["doctor", "--json"], &["show", "a", "--json"]]
    {
        let result = shop.run(look).await;
        assert!(result.stdout.contains(&remedy), "{look:?}: {result:?}");
    }
    let shown = shop.run(&["show", "a"]).await.stdout;
    assert_eq!(shown.matches("PER-0103 payload").count(), 1, "{shown}");
    let skipped = shop.masked(&["skip", "a", &number, "--json"]).await;
    let expected = json!({"id": "a", "event": number.parse::<u64>().unwrap(), "outcome": "skip requested"});
    assert_eq!(serde_json::from_str::<Value>(&skipped).unwrap(), expected);
    assert_eq!(shop.client().result("a").await.unwrap().as_json(), "4");
    let history = shop.masked(&["history", "a"]).await;
    assert!(history.contains(&format!("ExternalEventSkipped {number}")), "{history}");
}

#[tokio::test]
async fn p8_skip_waits_for_the_next_runtime_if_none_runs() {
    let mut shop = Shop::open().await;
    block(&shop).await;
    shop.runtime.take().unwrap().shutdown().await.unwrap();
    let number = blocking(&shop).await;
    assert_eq!(
        shop.masked(&["skip", "a", &number]).await.trim_end(),
        format!("a: skip requested, event {number}")
    );
    shop.reopen().await;
    assert_eq!(shop.client().result("a").await.unwrap().as_json(), "4");
}

#[tokio::test]
async fn p8_skip_refuses_another_event_and_names_the_blocking_one() {
    let mut shop = Shop::open().await;
    shop.masked(&["start", "counter", "c", "1"]).await;
    let fine = shop.run(&["skip", "c", "2"]).await;
    assert_eq!((fine.code, fine.stderr.contains("PER-0611")), (4, true), "{fine:?}");
    let nobody = shop.run(&["skip", "nobody", "2"]).await;
    assert_eq!((nobody.code, nobody.stderr.contains("PER-0605")), (3, true), "{nobody:?}");
    block(&shop).await;
    let number = blocking(&shop).await;
    shop.masked(&["start", "broken", "b"]).await;
    while shop.client().status("b").await.unwrap().blocked.is_none() {
        tokio::task::yield_now().await;
    }
    for is_running in [true, false] {
        if !is_running {
            shop.runtime.take().unwrap().shutdown().await.unwrap();
        }
        let other = shop.run(&["skip", "a", "1", "--json"]).await;
        assert_eq!(other.code, 4, "{other:?}");
        let words = format!("is blocked by event {number}; skip that one");
        assert!(other.stderr.contains("PER-0632") && other.stderr.contains(&words), "{other:?}");
        let panicked = shop.run(&["skip", "b", "1"]).await;
        assert_eq!(
            (panicked.code, panicked.stderr.contains("is not blocked by anything that can be skipped")),
            (4, true),
            "{panicked:?}"
        );
    }
}

#[tokio::test]
async fn p8_cancel_ends_an_instance_that_an_event_blocks() {
    let shop = Shop::open().await;
    block(&shop).await;
    shop.masked(&["cancel", "a"]).await;
    shop.masked(&["terminate", "a"]).await;
    shop.client().wait("a").await.unwrap();
}

#[tokio::test]
async fn p8_skip_lets_an_instance_continue_without_an_unreadable_message() {
    let mut shop = Shop::open().await;
    shop.masked(&["start", "counter", "c", "7"]).await;
    assert_eq!(shop.masked(&["query", "c", "count"]).await.trim_end(), "7");
    shop.runtime.take().unwrap().shutdown().await.unwrap();
    let connection = rusqlite::Connection::open(shop.path()).unwrap();
    connection
        .execute("INSERT INTO inbox (key, shard, body) SELECT key, shard, x'7b7d' FROM instances", [])
        .unwrap();
    drop(connection);
    shop.reopen().await;
    while shop.client().status("c").await.unwrap().blocked.is_none() {
        tokio::task::yield_now().await;
    }
    let report: Value = serde_json::from_str(&shop.run(&["show", "c", "--json"]).await.stdout).unwrap();
    let number = report["blocked"]["message"].to_string();
    let remedy = format!("`perennial skip c --message {number}`");
    for look in [&["show", "c"][..], &["doctor"]] {
        let result = shop.run(look).await;
        assert!(result.stdout.contains(&remedy), "{look:?}: {result:?}");
    }
    let event = shop.run(&["skip", "c", &number]).await;
    assert_eq!((event.code, event.stderr.contains(&format!("message {number}"))), (4, true), "{event:?}");
    let both = shop.run(&["skip", "c", "1", "--message", &number]).await;
    let neither = shop.run(&["skip", "c"]).await;
    assert_eq!((both.code, neither.code), (2, 2));
    let skipped = shop.masked(&["skip", "c", "--message", &number]).await;
    assert_eq!(skipped.trim_end(), format!("c: skip requested, message {number}"));
    while shop.client().status("c").await.unwrap().blocked.is_some() {
        tokio::task::yield_now().await;
    }
    let history = shop.masked(&["history", "c"]).await;
    assert!(history.contains(&format!("MessageSkipped {number}: ")), "{history}");
    assert_eq!(shop.masked(&["query", "c", "count"]).await.trim_end(), "7");
}
