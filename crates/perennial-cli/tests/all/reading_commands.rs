//! P8: the output of reading commands on a prepared file.

use super::support::{Shop, settings};
use perennial::prelude::*;
use serde_json::Value;

macro_rules! shown {
    ($shop:expr, $arguments:expr, @$snapshot:literal) => {
        let shown = $shop.masked(&$arguments).await;
        settings().bind(|| insta::assert_snapshot!(shown, @$snapshot));
    };
}

#[tokio::test]
async fn p8_list_shows_instances_as_a_table() {
    let shop = Shop::stocked().await;
    shown!(shop, ["list"], @r"
        ID  ORCHESTRATION  VERSION  STATUS  EXECUTION  STARTED  TOOK  WAITS FOR
        order-1  checkout  1.2.0  completed  1  [moment]  [span]
        order-1::1.7  parcel  1.0.0  completed  1  [moment]  [span]
        order-2  checkout  1.2.0  failed  1  [moment]  [span]
        counter-1  counter  1.0.0  running  1  [moment]  event stop
        broken-1  broken  latest  pending, blocked PER-0201  1  [moment]  blocked PER-0201
        ");
    shown!(shop, ["list", "--status", "failed,running", "--newest", "--limit", "2"], @r"
        ID  ORCHESTRATION  VERSION  STATUS  EXECUTION  STARTED  TOOK  WAITS FOR
        counter-1  counter  1.0.0  running  1  [moment]  event stop
        order-2  checkout  1.2.0  failed  1  [moment]  [span]
        ");
    shown!(shop, ["list", "--attribute", "customer=ada"], @r"
        ID  ORCHESTRATION  VERSION  STATUS  EXECUTION  STARTED  TOOK  WAITS FOR
        order-1  checkout  1.2.0  completed  1  [moment]  [span]
        ");
    shown!(shop, ["list", "--prefix", "nobody"], @r"
        no instances
        ");
}

#[tokio::test]
async fn s16_list_searches_attributes_by_prefix_and_range() {
    let shop = Shop::open().await;
    for (place, (city, total)) in
        [("Oslo", "99.5"), ("Osaka", "-3"), ("Bergen", "1200")].into_iter().enumerate()
    {
        let id = format!("searched-{place}");
        let (city, total) = (format!("city={city}"), format!("total={total}"));
        let start = ["start", "counter", &id, "1", "--attribute", &city, "--attribute", &total];
        assert_eq!(shop.run(&start).await.code, 0);
    }
    let ids = async |arguments: &[&str]| -> Vec<String> {
        let result = shop.masked(&[&["list", "--json"], arguments].concat()).await;
        let rows = result.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        rows.map(|row| row["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&["--where", "city^=Os"]).await, ["searched-0", "searched-1"]);
    assert_eq!(ids(&["--filter", "name=counter attr.city^=Os attr.total>=99.5"]).await, ["searched-0"]);
    assert_eq!(ids(&["--filter", "attr.city^=Os", "--where", "total<99.5"]).await, ["searched-1"]);
    assert_eq!(ids(&["--where", "total >= 99.5"]).await, ["searched-0", "searched-2"]);
    assert_eq!(ids(&["--where", "total<99.5"]).await, ["searched-1"]);
    assert_eq!(ids(&["--where", "total>-3", "--where", "total<=99.50"]).await, ["searched-0"]);
    assert_eq!(ids(&["--where", "city<C"]).await, ["searched-2"]);
    assert_eq!(ids(&["--where", "total=1.2e3"]).await, ["searched-2"]);
    assert_eq!(ids(&["--where", "city^=Os", "--where", "total>1000"]).await, [""; 0]);
    let cancelled = shop.run(&["cancel", "--where", "city^=Os", "--yes"]).await;
    assert_eq!(cancelled.code, 0, "{cancelled:?}");
    for id in ["searched-0", "searched-1"] {
        shop.client().wait(id).await.unwrap();
    }
    let running = ["--status", "pending,running"];
    assert_eq!(ids(&running).await, ["searched-2"]);
}

#[tokio::test]
async fn p8_list_pages_by_key_and_filters_for_programs() {
    let shop = Shop::stocked().await;
    let ids = async |arguments: &[&str]| -> (Vec<String>, String) {
        let result = shop.masked(&[&["list", "--json"], arguments].concat()).await;
        let rows: Vec<Value> = result.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let key = rows.last().map_or(String::new(), |row| row["key"].as_str().unwrap().to_owned());
        (rows.iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect(), key)
    };
    let (first, key) = ids(&["--limit", "2"]).await;
    let (rest, _) = ids(&["--limit", "10", "--after", &key]).await;
    assert_eq!(first.len(), 2);
    let all: Vec<String> = [first, rest].concat();
    assert_eq!(all, ids(&[]).await.0);
    assert_eq!(all.len(), 5);
    assert_eq!(ids(&["--blocked"]).await.0, ["broken-1"]);
    assert_eq!(
        ids(&["--name", "checkout", "--version", "1.2.0", "--status", "completed"]).await.0,
        ["order-1"]
    );
    assert_eq!(ids(&["--version", "9.9.9"]).await.0, [""; 0]);
    assert_eq!(ids(&["--prefix", "order-2"]).await.0, ["order-2"]);
    assert!(ids(&["--parent", "order-1"]).await.0[0].starts_with("order-1::"));
}

#[tokio::test]
async fn p8_show_prints_one_instance() {
    let shop = Shop::stocked().await;
    shown!(shop, ["show", "order-1"], @r#"
        id  order-1
        key  [key]
        orchestration  checkout 1.2.0
        status  completed
        execution  1
        started  [moment]
        ended  [moment], after [span]
        history  3 turns, 9 events
        attribute  customer = "ada"
        published  charging
        input  1200
        output  "a rose, wrapped"
        attempts  activity "charge" (event 4): attempt 2 completed
        attempts  [moment], took [span]: the bank did not answer
        attempts  [moment], took [span]: ok
        "#);
    shown!(shop, ["show", "order-2"], @r#"
        id  order-2
        key  [key]
        orchestration  checkout 1.2.0
        status  failed
        execution  1
        started  [moment]
        ended  [moment], after [span]
        history  2 turns, 7 events
        published  charging
        input  500
        error  "not approved"
        attempts  activity "charge" (event 4): attempt 2 completed
        attempts  [moment], took [span]: the bank did not answer
        attempts  [moment], took [span]: ok
        "#);
    let blocked = shop.masked(&["show", "broken-1"]).await;
    assert!(
        blocked.contains("PER-0201 panic in unit root at crates/perennial-cli/tests/all/support/mod.rs:"),
        "{blocked}"
    );
    let object: Value = serde_json::from_str(&shop.masked(&["show", "order-1", "--json"]).await).unwrap();
    assert_eq!(object["output"], "a rose, wrapped");
    assert_eq!(object["input"], 1_200);
    assert_eq!(object["attributes"]["customer"], "ada");
    let tried = &object["activities"][0];
    assert_eq!((&tried["name"], &tried["attempt"]), (&"charge".into(), &2.into()), "{object}");
    assert_eq!(tried["attempts"].as_array().unwrap().len(), 2, "{object}");
    assert_eq!(tried["attempts"][0]["error"], "the bank did not answer", "{object}");
    assert!(tried["attempts"][1]["error"].is_null() && tried["attempts"][1]["ended_ms"].is_u64(), "{object}");
    let cause = blocked.lines().find(|line| line.starts_with("blocked ")).unwrap();
    assert!(cause.contains("since ") && cause.contains(", tried "), "{blocked}");
    assert!(blocked.lines().any(|line| line.starts_with("remedy ")), "{blocked}");
    assert_eq!(blocked.matches("the code is broken").count(), 1, "{blocked}");
}

#[tokio::test]
async fn h39_show_prints_the_error_of_the_last_attempt_of_a_failed_activity() {
    #[activity(retry = 2)]
    async fn refund(ctx: ActivityContext) -> Result<(), String> {
        Err(format!("the bank is closed, attempt {}", ctx.attempt()))
    }
    #[orchestration]
    async fn returns(ctx: OrchestrationContext) -> Result<(), String> {
        Ok(ctx.schedule_activity(refund, ()).await?)
    }
    let mut shop = Shop::open().await;
    shop.runtime.take().unwrap().shutdown().await.unwrap();
    let runtime = Runtime::open(shop.url()).register(returns).register(refund).start().await.unwrap();
    let run = runtime.client().start(returns, "r", ()).await.unwrap();
    run.result().await.unwrap_err();
    let shown = shop.masked(&["show", "r"]).await;
    let is_last = |line: &str| line.contains(", took ") && line.ends_with(": the bank is closed, attempt 2");
    assert!(shown.lines().any(is_last), "{shown}");
    assert!(!shown.contains(": ok"), "{shown}");
    let object: Value = serde_json::from_str(&shop.masked(&["show", "r", "--json"]).await).unwrap();
    let last = &object["activities"][0]["attempts"][1];
    assert_eq!(last["error"], "the bank is closed, attempt 2", "{object}");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn h39_show_prints_the_trace_context_of_the_start() {
    let mut shop = Shop::open().await;
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let traced = shop.client().with_trace_context(parent, Some("vendor=1")).unwrap();
    traced.start("counter", "traced", Payload::from_json("1").unwrap()).await.unwrap();
    shop.runtime.take().unwrap().shutdown().await.unwrap();
    let shown = shop.masked(&["show", "traced"]).await;
    assert!(shown.contains(parent) && shown.contains("vendor=1"), "{shown}");
    let object: Value = serde_json::from_str(&shop.masked(&["show", "traced", "--json"]).await).unwrap();
    assert_eq!(object["trace"]["parent"], parent, "{object}");
}

#[tokio::test]
async fn p8_history_is_a_table_a_timeline_or_json() {
    let shop = Shop::stocked().await;
    shown!(shop, ["history", "order-1"], @r#"
        began [moment]
        TURN  AFTER  EVENT  WHAT
          1  [span]  1  OrchestrationStarted checkout 1200
          2  ExternalEvent "approved" true
          3  StatusSet "charging"
          4  ActivityScheduled "charge" 1200
          2  [span]  5  ActivityCompleted of 4 1200
          6  ExternalSubscribed "approved"
          7  SubOrchestrationScheduled "parcel" latest as derived id "a rose"
          3  [span]  8  SubOrchestrationCompleted of 7 "a rose, wrapped"
          9  OrchestrationCompleted "a rose, wrapped"
        "#);
    let drawn = shop.masked(&["history", "order-1", "--timeline"]).await;
    let mut bars = settings();
    bars.add_filter(r"[├│┤─]+ +", "[bar]  ");
    bars.bind(|| {
        insta::assert_snapshot!(drawn, @r"
        order-1  checkout 1.2.0  completed, 3 turns in [span]
          0  [span]
          4  activity charge  [bar]  [span]  2 attempts
          6  wait approved  [bar]  [span]  the event had already arrived
          7  child parcel  [bar]  [span]
        ")
    });
    let lines = shop.masked(&["history", "order-1", "--json"]).await;
    let events: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ids: Vec<u64> = events.iter().map(|event| event["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, (1..=ids.len() as u64).collect::<Vec<_>>());
    assert!(events[0]["event"]["OrchestrationStarted"].is_object());
}

#[tokio::test]
async fn p8_tree_shows_children_below_their_parents() {
    let shop = Shop::stocked().await;
    shown!(shop, ["tree", "order-1"], @r"
        order-1  checkout 1.2.0  completed
        └─ order-1::1.7  parcel 1.0.0  completed
        ");
    let tree: Value = serde_json::from_str(&shop.masked(&["tree", "order-1", "--json"]).await).unwrap();
    assert_eq!(tree["children"][0]["name"], "parcel");
}

#[tokio::test]
async fn p8_an_export_contains_histories_that_can_be_replayed() {
    let shop = Shop::stocked().await;
    let lines = shop.masked(&["export"]).await;
    assert_eq!(lines.lines().count(), 4, "the broken instance has no history: {lines}");
    for line in lines.lines() {
        let exported: perennial::client::ExportedInstance = serde_json::from_str(line).unwrap();
        for execution in exported.executions {
            assert_eq!(execution.into_history().started().unwrap().name, exported.name);
        }
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let result = shop.run(&["export", "order-1", "--output", file.path().to_str().unwrap()]).await;
    assert_eq!((result.code, &*result.stdout), (0, ""));
    assert_eq!(std::fs::read_to_string(file.path()).unwrap().lines().count(), 1);
}

#[tokio::test]
async fn p8_top_prints_counts_once_on_request() {
    let shop = Shop::stocked().await;
    shown!(shop, ["top", "--once"], @r"
        pending  1
        running  1
        completed  2
        failed  1
        cancelled  0
        terminated  0
        blocked  1
        inbox  1
        tasks  0 queued, 0 running, 0 waiting
        requests  0
        lag  [span]
        ");
    let counts: Value = serde_json::from_str(&shop.masked(&["top", "--once", "--json"]).await).unwrap();
    assert_eq!(counts["instances"]["failed"]["rows"], 1);
}

#[tokio::test]
async fn p8_nodes_lists_the_processes_that_work_on_the_store() {
    let shop = Shop::open().await;
    let printed = shop.masked(&["nodes"]).await;
    assert!(printed.starts_with("NODE") && printed.lines().count() == 2, "{printed}");
    assert!(printed.contains("live") && printed.contains(" 256 "), "{printed}");
    let node: Value = serde_json::from_str(&shop.masked(&["nodes", "--json"]).await).unwrap();
    assert_eq!((&node["shards"], &node["is_live"]), (&Value::from(256), &Value::from(true)), "{node}");
}

#[tokio::test]
async fn p8_show_prints_what_an_instance_waits_for_and_until_when() {
    let shop = Shop::open().await;
    let client = shop.client();
    client.start("checkout", "order-7", Payload::from_json("700").unwrap()).await.unwrap();
    // A charge that fails once, and then the wait with its timeout.
    while client.history("order-7").await.unwrap().flatten().count() < 6 {
        tokio::task::yield_now().await;
    }
    let shown = shop.masked(&["show", "order-7"]).await;
    let waits: Vec<&str> = shown.lines().filter(|line| line.starts_with("waits for")).collect();
    let mut settings = settings();
    settings.add_filter(r"fires in \d+ min( \d+ s)?", "fires in [span]");
    settings.bind(|| {
        insta::assert_snapshot!(waits.join("\n"), @"waits for  event `approved` for [span]; a timer set with it fires in [span]")
    });
    let history = shop.masked(&["history", "order-7"]).await;
    assert!(history.contains("TimerCreated due 20"), "{history}");
    client.raise_event("order-7", "approved", Payload::from_json("true").unwrap()).await.unwrap();
    client.wait("order-7").await.unwrap();
    assert!(
        !shop.masked(&["show", "order-7"]).await.contains("waits for"),
        "an ended instance waits for nothing"
    );
}

#[tokio::test]
async fn p8_an_export_that_fails_leaves_the_file_as_it_was() {
    let shop = Shop::stocked().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("histories.jsonl");
    std::fs::write(&file, "kept").unwrap();
    let result = shop.run(&["export", "order-1", "nobody", "--output", file.to_str().unwrap()]).await;
    assert_eq!(result.code, 3, "{result:?}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "there are no other files");
    let nowhere = folder.path().join("none/histories.jsonl");
    let result = shop.run(&["export", "--output", nowhere.to_str().unwrap()]).await;
    assert!(result.stderr.contains("histories.jsonl"), "the file is named: {result:?}");
    let both = shop.run(&["export", "order-1", "--blocked"]).await;
    assert_eq!((both.code, both.stderr.contains("not both")), (2, true), "{both:?}");
}
