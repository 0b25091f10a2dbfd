//! P8: changes reach the process that runs the store, and bulk changes ask for confirmation.

use super::support::Shop;
use perennial::history::{EventKind, Job};
use perennial::prelude::*;

/// Runs a command beside the runtime, asserts that it succeeds, and returns its output.
async fn stdout_of(shop: &Shop, arguments: &[&str]) -> String {
    shop.masked(arguments).await.trim_end().to_owned()
}

#[tokio::test]
async fn p8_starts_events_queries_and_updates_reach_the_owner_of_the_file() {
    let shop = Shop::open().await;
    assert_eq!(
        stdout_of(&shop, &["start", "counter", "c", "7", "--attribute", "team=blue"]).await,
        "c: start accepted; `perennial show c` tells what becomes of it"
    );
    assert_eq!(stdout_of(&shop, &["query", "c", "count"]).await, "7");
    assert_eq!(stdout_of(&shop, &["update", "c", "add", "5", "--json"]).await, r#"{"answer":12,"id":"c"}"#);
    let refused = shop.run(&["update", "c", "add", "0"]).await;
    assert_eq!(refused.code, 4, "{refused:?}");
    assert!(refused.stderr.contains("only upwards"), "{refused:?}");
    let again = shop.run(&["start", "counter", "c", "1"]).await;
    assert_eq!((again.code, again.stderr.contains("PER-0606")), (4, true), "{again:?}");
    assert_eq!(stdout_of(&shop, &["start", "counter", "c", "1", "--on-existing", "use"]).await, "c: exists");
    assert_eq!(
        stdout_of(&shop, &["raise", "c", "stop", "--key", "once"]).await,
        "c: event accepted; `perennial show c` tells what becomes of it"
    );
    assert_eq!(shop.client().result("c").await.unwrap().as_json(), "12");
    let status = shop.client().status("c").await.unwrap();
    assert_eq!(status.attributes["team"].as_json(), r#""blue""#);
    let late = shop.run(&["raise", "c", "stop"]).await;
    assert_eq!((late.code, late.stderr.contains("PER-0607")), (4, true), "{late:?}");
}

#[tokio::test]
async fn g39_an_update_from_the_command_starts_its_instance_once() {
    let shop = Shop::open().await;
    let add = ["update", "c", "add", "5", "--or-start", "counter", "--start-input", "7", "--key", "k"];
    assert_eq!(stdout_of(&shop, &add).await, "12");
    assert_eq!(stdout_of(&shop, &add).await, "12", "once");
    assert_eq!(stdout_of(&shop, &["query", "c", "count"]).await, "12");
    let usage = shop.run(&["update", "c", "add", "5", "--start-input", "7"]).await;
    assert!(usage.code != 0 && usage.stderr.contains("--or-start"), "{usage:?}");
}

#[tokio::test]
async fn p8_start_can_wait_for_the_result() {
    let shop = Shop::open().await;
    assert_eq!(stdout_of(&shop, &["start", "parcel", "p", "a fern", "--wait"]).await, "a fern, wrapped");
    shop.client().start("checkout", "o", Payload::from_json("5").unwrap()).await.unwrap();
    shop.client().raise_event("o", "approved", Payload::from_json("false").unwrap()).await.unwrap();
    let failed = shop.run(&["start", "checkout", "o", "5", "--on-existing", "use", "--wait"]).await;
    assert_eq!(failed.code, 1, "{failed:?}");
    assert!(failed.stderr.contains("not approved"), "{failed:?}");
}

#[tokio::test]
async fn p8_cancel_and_terminate_end_instances() {
    let shop = Shop::open().await;
    for id in ["a", "b"] {
        stdout_of(&shop, &["start", "counter", id, "1"]).await;
    }
    assert_eq!(stdout_of(&shop, &["cancel", "a", "--reason", "enough"]).await, "a: cancel requested");
    assert_eq!(stdout_of(&shop, &["terminate", "b"]).await, "b: termination requested");
    for (id, status) in [("a", Status::Cancelled), ("b", Status::Terminated)] {
        shop.client().wait(id).await.unwrap();
        assert_eq!(shop.client().status(id).await.unwrap().status, status);
    }
}

#[tokio::test]
async fn g35_a_cancel_takes_a_grace_from_the_command_line() {
    let shop = Shop::open().await;
    stdout_of(&shop, &["start", "counter", "a", "1"]).await;
    assert_eq!(stdout_of(&shop, &["cancel", "a", "--grace", "5m"]).await, "a: cancel requested");
    shop.client().wait("a").await.unwrap();
    let history = shop.client().history("a").await.unwrap();
    let graces: Vec<u64> = history
        .flatten()
        .filter_map(|event| match event.kind {
            EventKind::Job(Job::OrchestrationCancelRequested { grace_ms, .. }) => Some(grace_ms),
            _ => None,
        })
        .collect();
    assert_eq!(graces, [300_000]);
}

#[tokio::test]
async fn p8_changes_to_many_instances_need_confirmation() {
    let shop = Shop::open().await;
    for id in ["job-1", "job-2", "job-3", "other"] {
        stdout_of(&shop, &["start", "counter", id, "1"]).await;
    }
    let asked = shop.run(&["terminate", "--prefix", "job-"]).await;
    assert_eq!(asked.code, 4);
    assert_eq!(asked.stderr, "error: this would terminate 3 instances; pass --yes to confirm\n");
    assert_eq!(shop.run(&["delete", "job-1", "job-2"]).await.code, 4, "two ids are many as well");
    let everything = shop.run(&["terminate"]).await;
    assert_eq!(everything.code, 2, "no filter is not all: {everything:?}");
    assert_eq!(
        stdout_of(&shop, &["terminate", "--prefix", "job-", "--yes"]).await,
        "termination requested 3 of 3; it did not apply to 0 and failed for 0"
    );
    for id in ["job-1", "job-2", "job-3"] {
        shop.client().wait(id).await.unwrap();
    }
    assert_eq!(shop.client().status("other").await.unwrap().status, Status::Running);
    let running = shop.run(&["delete", "other"]).await;
    assert_eq!((running.code, running.stderr.contains("PER-0620")), (4, true), "{running:?}");
    assert_eq!(stdout_of(&shop, &["delete", "job-1"]).await, "job-1: deleted");
    assert_eq!(stdout_of(&shop, &["delete", "other", "--force"]).await, "other: deleted");
    assert_eq!(shop.run(&["prune"]).await.code, 4);
    let pruned = stdout_of(&shop, &["prune", "--keep", "1", "--yes", "--json"]).await;
    assert!(pruned.contains(r#""done":1"#), "{pruned}");
    assert_eq!(stdout_of(&shop, &["list", "--json"]).await.lines().count(), 1);
}

#[tokio::test]
async fn p8_retry_is_for_blocked_instances() {
    let shop = Shop::open().await;
    stdout_of(&shop, &["start", "counter", "fine", "1"]).await;
    let fine = shop.run(&["retry", "fine"]).await;
    assert_eq!((fine.code, fine.stderr.contains("PER-0611")), (4, true), "{fine:?}");
    shop.client().start("broken", "broken", ()).await.unwrap();
    assert_eq!(stdout_of(&shop, &["retry", "broken"]).await, "broken: retry requested");
    assert_eq!(
        stdout_of(&shop, &["retry", "--name", "broken", "--yes"]).await,
        "retry requested 1 of 1; it did not apply to 0 and failed for 0"
    );
}

#[tokio::test]
async fn p8_prune_deletes_only_matching_instances_and_asks_first() {
    let shop = Shop::open().await;
    stdout_of(&shop, &["start", "parcel", "p-1", "fern", "--wait"]).await;
    stdout_of(&shop, &["start", "parcel", "p-2", "moss", "--wait"]).await;
    stdout_of(&shop, &["start", "counter", "c", "1"]).await;
    stdout_of(&shop, &["terminate", "c"]).await;
    shop.client().wait("c").await.unwrap();
    let asked = shop.run(&["prune", "--status", "completed", "--keep", "1"]).await;
    assert_eq!(asked.stderr, "error: this would prune 1 instance; pass --yes to confirm\n");
    let running = shop.run(&["prune", "--status", "failed,running", "--yes"]).await;
    assert_eq!((running.code, running.stderr.contains("have not ended")), (2, true), "{running:?}");
    let old = stdout_of(&shop, &["prune", "--older-than", "1h"]).await;
    assert_eq!(old, "pruned 0 of 0; it did not apply to 0 and failed for 0", "nothing to confirm");
    let pruned = stdout_of(&shop, &["prune", "--status", "terminated", "--yes", "--json"]).await;
    assert!(pruned.contains(r#""done":1"#), "{pruned}");
    assert_eq!(stdout_of(&shop, &["list", "--json"]).await.lines().count(), 2, "both parcels exist");
}

#[tokio::test]
async fn p8_a_failure_for_one_of_several_ids_does_not_stop_the_rest() {
    let shop = Shop::open().await;
    for id in ["a", "b"] {
        stdout_of(&shop, &["start", "counter", id, "1"]).await;
    }
    let result = shop.run(&["terminate", "a", "nobody", "b", "--yes"]).await;
    assert_eq!(result.code, 3, "{result:?}");
    assert_eq!(result.stdout, "a: termination requested\nb: termination requested\n");
    assert!(result.stderr.contains("PER-0605"), "{result:?}");
    shop.client().wait("b").await.unwrap();
}

#[tokio::test]
async fn p8_a_version_that_no_code_can_have_is_refused() {
    let shop = Shop::open().await;
    let result = shop.run(&["start", "parcel", "p", "fern", "--version", "two"]).await;
    assert_eq!((result.code, result.stderr.contains("PER-0619")), (2, true), "{result:?}");
    assert_eq!(shop.run(&["show", "p"]).await.code, 3, "nothing was started");
}

#[tokio::test]
async fn p8_waiting_for_a_result_reports_what_blocks_it() {
    let shop = Shop::open().await;
    let result = shop.run(&["start", "broken", "b", "--wait", "--timeout", "3s"]).await;
    assert_eq!(result.code, 1, "{result:?}");
    let notes: Vec<&str> =
        result.stderr.lines().filter(|line| line.contains("b has not ended: blocked for")).collect();
    assert_eq!(notes.len(), 1, "once: {result:?}");
    assert!(notes[0].contains("PER-0201"), "{result:?}");
    assert!(result.stderr.contains("\n  remedy: fix the code and deploy it"), "{result:?}");
    let result = shop.run(&["start", "parcel", "p", "fern", "--wait", "--delay", "2s", "--json"]).await;
    assert!(
        result.stderr.starts_with(r#"{"waiting":{"id":"p","message":"p waits for its delayed start"#),
        "{result:?}"
    );
    assert_eq!((result.code, result.stdout.as_str()), (0, "{\"id\":\"p\",\"output\":\"fern, wrapped\"}\n"));
    let result = shop.run(&["start", "counter", "c", "1", "--wait", "--timeout", "6s"]).await;
    assert!(
        result.stderr.contains("c waits for event `stop` for "),
        "what it waits for, after some seconds: {result:?}"
    );
}

#[tokio::test]
async fn p8_conditions_that_would_replace_each_other_are_refused_and_nothing_is_deleted() {
    let shop = Shop::stocked().await;
    let before = stdout_of(&shop, &["list", "--json"]).await;
    for arguments in [
        &["prune", "--executions", "--older-than", "7d", "--filter", "name=checkout", "--yes"][..],
        &["prune", "--filter", "ended_before=2025-01-01", "--older-than", "1ms", "--yes"],
        &["delete", "--force", "--filter", "status=failed", "--status", "completed", "--yes"],
        &["list", "--filter", "name=checkout", "--name", "counter"],
    ] {
        let result = shop.run(arguments).await;
        assert_eq!(result.code, 2, "{arguments:?}: {result:?}");
    }
    assert_eq!(stdout_of(&shop, &["list", "--json"]).await.lines().count(), before.lines().count());
}
