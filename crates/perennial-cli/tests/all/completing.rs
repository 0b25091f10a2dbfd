//! P8: the command completes, fails or heartbeats an attempt with its token, with a runtime and without.

use super::support::Shop;
use perennial::Payload;
use serde_json::{Value, json};

/// Starts an instance that waits for an approval, and returns the token.
async fn token_of(shop: &Shop, id: &str) -> String {
    let mailbox = shop.path().with_file_name(id).display().to_string();
    shop.client().start("approved", id, Payload::from(mailbox.clone())).await.unwrap();
    read_token(&mailbox, None).await
}

/// The token in a mailbox, once it differs from the old one.
async fn read_token(mailbox: &str, old: Option<&str>) -> String {
    loop {
        match std::fs::read_to_string(mailbox) {
            Ok(token) if old != Some(&*token) && token.ends_with('\n') => return token.trim_end().to_owned(),
            _ => tokio::task::yield_now().await,
        }
    }
}

#[tokio::test]
async fn p8_activity_complete_completes_an_attempt() {
    let shop = Shop::open().await;
    let token = token_of(&shop, "a").await;
    let beat = shop.masked(&["activity", "heartbeat", &token, "--details", "seen", "--json"]).await;
    assert_eq!(serde_json::from_str::<Value>(&beat).unwrap(), json!({"outcome": "under way"}));
    let unreadable = shop.run(&["activity", "complete", &token, "--result", "perhaps"]).await;
    assert_eq!((unreadable.code, unreadable.stderr.contains("PER-0103")), (4, true), "{unreadable:?}");
    assert_eq!(shop.masked(&["activity", "complete", &token, "--result", "true"]).await, "completed\n");
    assert_eq!(shop.client().result("a").await.unwrap().as_json(), "true");
    // A repeated call is not an error; another result is.
    let again = shop.masked(&["activity", "complete", &token, "--result", "true", "--json"]).await;
    assert_eq!(serde_json::from_str::<Value>(&again).unwrap(), json!({"outcome": "completed"}));
    let other = shop.run(&["activity", "complete", &token, "--result", "false"]).await;
    assert_eq!((other.code, other.stderr.contains("PER-0637")), (4, true), "{other:?}");
}

#[tokio::test]
async fn p8_activity_fail_leads_to_the_next_attempt_and_outdates_the_token() {
    let shop = Shop::open().await;
    let first = token_of(&shop, "a").await;
    assert_eq!(shop.masked(&["activity", "fail", &first, "--error", "not now"]).await, "failed\n");
    let late = shop.run(&["activity", "heartbeat", &first]).await;
    assert_eq!((late.code, late.stderr.contains("PER-0636")), (4, true), "{late:?}");
    let mailbox = shop.path().with_file_name("a").display().to_string();
    let second = read_token(&mailbox, Some(&format!("{first}\n"))).await;
    shop.masked(&["activity", "fail", &second, "--error", "never"]).await;
    let failed = shop.client().result("a").await.unwrap_err().to_string();
    assert!(failed.contains("never"), "{failed}");
}

#[tokio::test]
async fn p8_activity_complete_waits_for_the_next_runtime_if_none_runs() {
    let mut shop = Shop::open().await;
    let token = token_of(&shop, "a").await;
    shop.runtime.take().unwrap().shutdown().await.unwrap();
    assert_eq!(shop.masked(&["activity", "complete", &token, "--result", "true"]).await, "completed\n");
    shop.reopen().await;
    assert_eq!(shop.client().result("a").await.unwrap().as_json(), "true");
}

#[tokio::test]
async fn p8_activity_refuses_invalid_and_outdated_tokens() {
    let shop = Shop::open().await;
    let nonsense = shop.run(&["activity", "complete", "no-token"]).await;
    assert_eq!((nonsense.code, nonsense.stderr.contains("PER-0635")), (2, true), "{nonsense:?}");
    let token = token_of(&shop, "a").await;
    shop.masked(&["terminate", "a"]).await;
    shop.client().wait("a").await.unwrap();
    let over = shop.run(&["activity", "heartbeat", &token, "--json"]).await;
    assert_eq!((over.code, over.stderr.contains("PER-0638")), (4, true), "{over:?}");
}

#[tokio::test]
async fn g44_show_prints_how_long_an_attempt_waits_for_its_token() {
    let shop = Shop::open().await;
    let token = token_of(&shop, "a").await;
    let shown = loop {
        let shown = shop.run(&["show", "a"]).await.stdout;
        if shown.contains("waiting for its token") {
            break shown;
        }
    };
    assert!(
        shown.contains(r#"activity "approval" (event 2): attempt 1 waiting for its token since 2"#),
        "{shown}"
    );
    assert!(shown.contains(", times out 2"), "{shown}");
    let shown: Value = serde_json::from_str(&shop.run(&["show", "a", "--json"]).await.stdout).unwrap();
    let tried = &shown["activities"][0];
    let (since, due) =
        (tried["waits_for_token_since_ms"].as_u64().unwrap(), tried["due_ms"].as_u64().unwrap());
    // The timeout counts from the schedule, which was a moment earlier.
    assert!(due > since && due <= since + 3_600_000, "{tried}");
    shop.masked(&["activity", "complete", &token, "--result", "true"]).await;
    shop.client().result("a").await.unwrap();
    assert!(!shop.run(&["show", "a"]).await.stdout.contains("token"));
}
