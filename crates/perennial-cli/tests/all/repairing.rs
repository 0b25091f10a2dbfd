//! P8: pause, resume, reset and rerun (G46 to G49).

use super::support::Shop;
use perennial::prelude::*;
use serde_json::Value;

async fn stdout_of(shop: &Shop, arguments: &[&str]) -> String {
    shop.masked(arguments).await.trim_end().to_owned()
}

async fn json(shop: &Shop, arguments: &[&str]) -> Value {
    let ran = shop.run(arguments).await;
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
}

#[tokio::test]
async fn g46_show_history_and_doctor_print_pause_and_resume() {
    let shop = Shop::open().await;
    stdout_of(&shop, &["start", "counter", "c", "7"]).await;
    assert_eq!(stdout_of(&shop, &["query", "c", "count"]).await, "7");
    let paused = stdout_of(&shop, &["pause", "c", "--reason", "an audit", "--by", "ada"]).await;
    assert_eq!(paused, "c: pause requested");
    while shop.client().status("c").await.unwrap().blocked.is_none() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let listed = stdout_of(&shop, &["list", "--paused"]).await;
    assert!(listed.contains("running, paused"), "{listed}");
    let shown = stdout_of(&shop, &["show", "c"]).await;
    assert!(shown.contains("by ada: an audit") && shown.contains("`perennial resume c`"), "{shown}");
    let shown = json(&shop, &["show", "c", "--json"]).await;
    assert_eq!(shown["blocked"]["pause"]["why"]["by"], "ada");
    let doctor = shop.run(&["doctor"]).await;
    assert!(
        doctor.stdout.contains("note  paused instances: 1, the first: \"c\" by ada: an audit\n"),
        "{doctor:?}"
    );
    let asked = shop.run(&["query", "c", "count"]).await;
    assert_eq!((asked.code, asked.stderr.contains("PER-0309")), (4, true), "{asked:?}");
    let retried = shop.run(&["retry", "c"]).await;
    assert_eq!((retried.code, retried.stderr.contains("PER-0611")), (4, true), "{retried:?}");
    assert_eq!(
        stdout_of(&shop, &["resume", "c", "--reason", "it is over", "--by", "grace", "--json"]).await,
        r#"{"id":"c","outcome":"resume requested"}"#
    );
    while shop.client().status("c").await.unwrap().blocked.is_some() {
        tokio::task::yield_now().await;
    }
    assert_eq!(stdout_of(&shop, &["query", "c", "count"]).await, "7");
    assert_eq!(stdout_of(&shop, &["resume", "c"]).await, "c: resume requested", "a repeated resume succeeds");
    let history = stdout_of(&shop, &["history", "c"]).await;
    assert_eq!(
        history.matches("InstanceResumed by grace: it is over; paused by ada: an audit").count(),
        1,
        "{history}"
    );
    let shown = stdout_of(&shop, &["show", "c"]).await;
    assert!(shown.contains("by grace: it is over; paused ") && shown.contains("by ada: an audit"), "{shown}");
    let timeline = stdout_of(&shop, &["history", "c", "--timeline"]).await;
    assert!(timeline.contains("resumed by grace"), "{timeline}");
}

#[tokio::test]
async fn g47_an_orchestration_is_paused_and_resumed() {
    let shop = Shop::open().await;
    stdout_of(&shop, &["start", "counter", "c", "7"]).await;
    let paused =
        json(&shop, &["pause", "--orchestration", "counter", "--reason", "an audit", "--json"]).await;
    assert_eq!((&paused["outcome"], &paused["instances"]), (&Value::from("paused"), &Value::from(1)));
    let both = shop.run(&["pause", "c", "--orchestration", "counter"]).await;
    assert_eq!(both.code, 2, "{both:?}");
    let alone = shop.run(&["resume", "c"]).await;
    assert_eq!((alone.code, alone.stderr.contains("PER-0618")), (4, true), "{alone:?}");
    while !stdout_of(&shop, &["show", "c"]).await.contains("`perennial resume --orchestration counter`") {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(stdout_of(&shop, &["resume", "--orchestration", "counter"]).await, "counter: resumed");
    assert_eq!(stdout_of(&shop, &["resume", "--orchestration", "counter"]).await, "counter: was not paused");
    while shop.client().status("c").await.unwrap().blocked.is_some() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn g48_reset_and_rerun_print_their_results() {
    let shop = Shop::open().await;
    stdout_of(&shop, &["start", "counter", "c", "7"]).await;
    stdout_of(&shop, &["update", "c", "add", "5"]).await;
    stdout_of(&shop, &["terminate", "c"]).await;
    shop.client().wait("c").await.unwrap();
    let again = stdout_of(&shop, &["rerun", "c", "--reason", "too soon", "--by", "ada"]).await;
    assert!(again.starts_with("c: reset to turn 2; it continues as execution 2"), "{again}");
    assert_eq!(stdout_of(&shop, &["query", "c", "count"]).await, "12");
    let shown = stdout_of(&shop, &["show", "c"]).await;
    assert!(shown.contains("to turn 2 of execution 1") && shown.contains("by ada: too soon"), "{shown}");
    let reset = json(&shop, &["reset", "c", "--to-turn", "1", "--json"]).await;
    assert_eq!(
        (&reset["report"]["execution"], &reset["report"]["messages"]),
        (&Value::from(3), &Value::from(1))
    );
    assert_eq!(stdout_of(&shop, &["query", "c", "count"]).await, "12", "the update was delivered again");
    let verified = shop.run(&["verify"]).await;
    assert_eq!(verified.code, 0, "{verified:?}");
    let far = shop.run(&["reset", "c", "--to-turn", "99"]).await;
    assert_eq!((far.code, far.stderr.contains("PER-0639")), (4, true), "{far:?}");
    let running = shop.run(&["rerun", "c"]).await;
    assert_eq!((running.code, running.stderr.contains("has not ended")), (4, true), "{running:?}");
}
