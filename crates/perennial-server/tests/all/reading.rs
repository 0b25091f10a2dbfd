//! Histories, families, exports, and the store as a whole.

use serde_json::{Value, json};

use crate::world::{Setup, World};

fn numbers(page: &Value) -> Vec<u64> {
    page["turns"].as_array().unwrap().iter().map(|turn| turn["number"].as_u64().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn h24_a_history_is_read_in_pages_from_both_ends_and_around_an_event() {
    for setup in Setup::ALL {
        let world = World::new(setup).await;
        world.start("sequence", "s", json!(20)).await;
        world.ended("s").await;
        let page = async |query: &str| {
            world.place.get(&format!("instances/s/history?{query}")).expect(200).await.json()
        };
        let whole = page("limit=500").await;
        let all = numbers(&whole);
        assert_eq!(
            (all.clone(), &whole["before"], &whole["after"]),
            ((1..=21).collect(), &Value::Null, &Value::Null)
        );
        let first = page("limit=5").await;
        assert_eq!((numbers(&first), &first["after"]), (vec![1, 2, 3, 4, 5], &json!(5)), "{setup:?}");
        let second = page("limit=5&after_turn=5").await;
        assert_eq!((numbers(&second), &second["before"]), (vec![6, 7, 8, 9, 10], &json!(6)));
        let last = page("limit=3&order=newest").await;
        assert_eq!(
            (numbers(&last), &last["before"], &last["after"]),
            (vec![21, 20, 19], &json!(19), &Value::Null)
        );
        assert_eq!(numbers(&page("limit=3&before_turn=19").await), [16, 17, 18]);
        assert_eq!(numbers(&page("limit=3&after_turn=21").await), [0; 0]);
        let around = page("limit=4&event=20").await;
        let events =
            around["turns"].as_array().unwrap().iter().flat_map(|turn| turn["events"].as_array().unwrap());
        assert!(events.map(|event| &event["id"]).any(|id| *id == 20), "{around}");
        let completed = page("kinds=ActivityCompleted&limit=500").await;
        assert_eq!(completed["turns"].as_array().unwrap().len(), 20);
        assert_eq!(page("text=step%2017&limit=500").await["turns"].as_array().unwrap().len(), 2);
        assert_eq!(numbers(&page("failed=true").await), [0; 0]);
        world.place.get("instances/s/history?event=999").refused(404, "PER-0814").await;
        world.place.get("instances/s/history?execution=2").refused(404, "PER-0633").await;
        world.place.get("instances/s/executions/1/events/999").refused(404, "PER-0814").await;
        world.place.get("instances/s/executions/7/events/1").refused(404, "PER-0633").await;
        world.place.get("instances/s/executions/x/events/1").refused(404, "PER-0814").await;
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn large_payloads_are_left_out_of_histories_and_found_at_their_event() {
    let world = World::new(Setup::SqliteMounted).await;
    let large = "x".repeat(5_000);
    world.start("hello", "a", json!(large)).await;
    world.ended("a").await;
    let history = world.place.get("instances/a/history").expect(200).await.json();
    let input = &history["turns"][0]["events"][0]["event"]["OrchestrationStarted"]["input"];
    assert_eq!(*input, json!({"omitted": true, "bytes": 5_002, "at": "executions/1/events/1"}));
    let whole = world.place.get("instances/a/history?payload_bytes=6000").expect(200).await.json();
    assert_eq!(whole["turns"][0]["events"][0]["event"]["OrchestrationStarted"]["input"], large);
    let at = format!("instances/a/{}", input["at"].as_str().unwrap());
    let event = world.place.get(&at).expect(200).await.json();
    assert_eq!(event["event"]["OrchestrationStarted"]["input"], large);
    assert_eq!(world.place.get(&format!("{at}/payload")).expect(200).await.json(), large);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn executions_are_listed_newest_first_in_pages() {
    for setup in [Setup::MemoryMounted, Setup::SqliteServed, Setup::PostgresMounted] {
        let world = World::new(setup).await;
        world.start("rounds", "r", json!(6)).await;
        world.ended("r").await;
        let page = world.place.get("instances/r/executions?limit=3").expect(200).await.json();
        let executions = |page: &Value| {
            page["rows"]
                .as_array()
                .unwrap()
                .iter()
                .map(|row| row["execution"].as_u64().unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(executions(&page), [7, 6, 5], "{setup:?}");
        assert_eq!(
            (&page["rows"][0]["is_current"], &page["rows"][1]["ending"]),
            (&json!(true), &json!("OrchestrationContinuedAsNew"))
        );
        let next = page["next"].as_str().unwrap();
        let page = world
            .place
            .get(&format!("instances/r/executions?limit=500&cursor={next}"))
            .expect(200)
            .await
            .json();
        assert_eq!((executions(&page), &page["next"]), (vec![4, 3, 2, 1], &Value::Null));
        let old = world.place.get("instances/r/history?execution=2").expect(200).await.json();
        assert_eq!((&old["execution"], &old["current"]), (&json!(2), &json!(7)));
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timeline_shows_operations_with_their_times_attempts_and_outcomes() {
    for setup in [Setup::MemoryMounted, Setup::SqliteServed, Setup::PostgresMounted] {
        let world = World::new(setup).await;
        world.start("sequence", "s", json!(3)).await;
        world.ended("s").await;
        let timeline = world.place.get("instances/s/timeline").expect(200).await.json();
        let operations = timeline["operations"].as_array().unwrap();
        assert_eq!((operations.len(), &timeline["others"]), (3, &json!(0)), "{setup:?}");
        for operation in operations {
            assert_eq!((&operation["kind"], &operation["name"]), (&json!("activity"), &json!("greet")));
            assert_eq!(operation["outcome"], "completed");
            let attempt = &operation["attempts"][0];
            assert!(attempt["began_ms"].as_u64() <= attempt["ended_ms"].as_u64(), "{operation}");
            assert!(operation["scheduled_ms"].as_u64() <= operation["ended_ms"].as_u64(), "{operation}");
        }
        assert_eq!(timeline["turns"].as_array().unwrap().len(), 4);
        let none = world.place.get("instances/s/timeline?to_ms=1").expect(200).await.json();
        assert_eq!((&none["operations"], &none["turns"]), (&json!([]), &json!([])));
        world.start("approval", "a", Value::Null).await;
        world.running("a").await;
        let open = world.place.get("instances/a/timeline").expect(200).await.json();
        assert_eq!(
            (&open["operations"][0]["kind"], &open["operations"][0]["outcome"]),
            (&json!("event"), &json!("open"))
        );
        world.place.post("instances/a/events/approved", json!(1)).expect(202).await;
        world.ended("a").await;
        let done = world.place.get("instances/a/timeline").expect(200).await.json();
        assert_eq!(done["operations"][0]["outcome"], "completed");
        world.place.get("instances/a/timeline?execution=5").refused(404, "PER-0633").await;
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_tree_and_children_show_the_family() {
    let world = World::new(Setup::SqliteMounted).await;
    world.start("parent", "family", json!(3)).await;
    let tree = loop {
        let tree = world.place.get("instances/family/tree").expect(200).await.json();
        if tree["children"].as_array().unwrap().len() == 3 {
            break tree;
        }
        world.client.changed(std::time::Duration::from_millis(50)).await;
    };
    let child = tree["children"][0]["id"].as_str().unwrap().to_owned();
    let from_root =
        world.place.get(&format!("instances/{child}/tree?root=true&depth=0")).expect(200).await.json();
    assert_eq!((&from_root["id"], &from_root["more_children"]), (&json!("family"), &json!(true)));
    let page = world.place.get("instances/family/children?limit=2").expect(200).await.json();
    assert_eq!(page["rows"].as_array().unwrap().len(), 2);
    let next = page["next"].as_str().unwrap();
    let rest = world.place.get(&format!("instances/family/children?cursor={next}")).expect(200).await.json();
    assert_eq!((rest["rows"].as_array().unwrap().len(), &rest["next"]), (1, &Value::Null));
    let waits = world.place.get("instances/family/waits").expect(200).await.json();
    assert_eq!(waits["waits"].as_array().unwrap().iter().filter(|wait| wait["kind"] == "child").count(), 3);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_ends_with_a_line_that_says_it_is_complete() {
    let world = World::new(Setup::SqliteServed).await;
    for number in 0..5 {
        world.start("hello", &format!("a-{number}"), json!("Ada")).await;
        world.ended(&format!("a-{number}")).await;
    }
    let lines = |text: String| -> Vec<Value> {
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let all = lines(world.place.get("export?id_prefix=a-").expect(200).await.text());
    assert_eq!((all.len(), &all[5]), (6, &json!({"complete": true, "instances": 5})));
    let exported: perennial::client::ExportedInstance = serde_json::from_value(all[0].clone())
        .unwrap_or_else(|_| {
            // A seed is text over HTTP, which readers of JSON need, so that an export is read with its numbers restored.
            let text = all[0].to_string();
            let restored = text.split("\"seed\":\"").enumerate().map(|(place, part)| match place {
                0 => part.to_owned(),
                _ => format!("\"seed\":{}", part.replacen('"', "", 1)),
            });
            serde_json::from_str(&restored.collect::<String>()).unwrap()
        });
    assert_eq!(exported.executions[0].turns.len(), 2);
    let one = lines(world.place.get("instances/a-1/export").expect(200).await.text());
    assert_eq!((one.len(), &one[0]["id"]), (2, &json!("a-1")));
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h42_the_store_as_a_whole_is_shown_on_every_store() {
    for setup in Setup::ALL {
        let world = World::new(setup).await;
        world.start("hello", "hello-1", json!("Ada")).await;
        world.ended("hello-1").await;
        world.start("approval", "open-1", Value::Null).await;
        let get = async |path: &str| world.place.get(path).expect(200).await.json();
        let nodes = get("nodes").await;
        assert_eq!(
            (&nodes["nodes"][0]["is_live"], &nodes["nodes"][0]["shards"]),
            (&json!(true), &json!(256)),
            "{setup:?}"
        );
        let shards = get("shards").await;
        assert_eq!(shards["shards"].as_array().unwrap().len(), 256);
        assert_eq!(shards["shards"][7]["node"], nodes["nodes"][0]["id"]);
        let orchestrations = get("orchestrations").await;
        let rows = orchestrations["orchestrations"].as_array().unwrap();
        let approval = rows.iter().find(|row| row["name"] == "approval" && row["open"]["rows"] == 1);
        assert!(approval.is_some(), "{orchestrations}");
        let stats = get("stats").await;
        assert_eq!(stats["instances"]["completed"]["rows"], 1, "{stats}");
        let history = get("stats/history?buckets=4").await;
        let started: u64 = history["buckets"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|bucket| bucket["started"].as_object().unwrap().values())
            .map(|count| count["rows"].as_u64().unwrap())
            .sum();
        assert!(started <= 2, "the last instant may not be counted yet: {history}");
        assert_eq!(get("doctor").await["findings"], json!([]));
        let found = get("search?q=hello").await;
        assert_eq!(found["places"][0]["at"], "instances/hello-1", "{found}");
        assert!(found["places"].as_array().unwrap().iter().any(|place| place["kind"] == "orchestration"));
        assert_eq!(get("tasks").await["rows"], json!([]));
        assert_eq!(get("version").await["api"], "1");
        assert_eq!(get("blocked").await["causes"], json!([]));
        world.place.get("stats/history?from_ms=5&to_ms=5").refused(400, "PER-0805").await;
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn views_and_preflights_are_shared_through_the_store() {
    for setup in [Setup::MemoryMounted, Setup::SqliteServed, Setup::PostgresServed] {
        let world = World::new(setup).await;
        let put = |name: &str, filter: &str| {
            world.place.ask("PUT", &format!("views/{name}")).body(&json!({"filter": filter}).to_string())
        };
        put("Failed%20today", "status=failed").expect(204).await;
        put("Failed%20today", "status=failed&order=newest").expect(204).await;
        put("b", "name=hello").expect(204).await;
        put("c", "statsu=x").refused(400, "PER-0805").await;
        let views = world.place.get("views").expect(200).await.json();
        let failed = json!({"name": "Failed today", "filter": "status=failed&order=newest"});
        assert_eq!(views["views"], json!([failed, {"name": "b", "filter": "name=hello"}]), "{setup:?}");
        world.place.delete("views/b").expect(204).await;
        world.place.delete("views/b").refused(404, "PER-0814").await;
        for number in 0..25 {
            let body = json!({"label": format!("build {number}"), "report": {"incompatible": number}});
            world.place.post("preflights", body).expect(201).await;
        }
        let kept = world.place.get("preflights").expect(200).await.json();
        assert_eq!(kept["preflights"].as_array().unwrap().len(), 20);
        assert_eq!(kept["preflights"][0]["label"], "build 24");
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h24_a_page_of_history_ends_with_the_turn_that_exceeds_its_size() {
    for setup in [Setup::MemoryMounted, Setup::SqliteServed, Setup::PostgresServed] {
        let world = World::new(setup).await;
        world.start("sequence", "s", json!(30)).await;
        world.ended("s").await;
        let whole = world.place.get("instances/s/history?limit=500").expect(200).await.json();
        let whole = whole["turns"].as_array().unwrap().clone();
        assert_eq!(whole.len(), 31, "{setup:?}");
        for (order, step) in [("oldest", "after"), ("newest", "before")] {
            let mut read: Vec<Value> = Vec::new();
            let mut from = String::new();
            loop {
                let path = format!("instances/s/history?order={order}&limit_bytes=1000&limit=500{from}");
                let page = world.place.get(&path).expect(200).await.json();
                let turns = page["turns"].as_array().unwrap();
                let bytes: usize = turns.iter().map(|turn| turn.to_string().len()).sum();
                let largest = turns.iter().map(|turn| turn.to_string().len()).max().unwrap();
                assert!(bytes < 1_000 + largest, "{setup:?}: {bytes}");
                read.extend(turns.iter().cloned());
                let Some(next) = page[step].as_u64() else { break };
                assert_eq!(page["partial"], true, "{setup:?}");
                from = format!("&{step}_turn={next}");
            }
            if order == "newest" {
                read.reverse();
            }
            assert_eq!(read, whole, "{setup:?} {order}");
        }
        // One turn that is larger than a page is a page.
        let page = world.place.get("instances/s/history?limit_bytes=1").expect(200).await.json();
        assert_eq!(page["turns"].as_array().unwrap().len(), 1);
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h16_large_payloads_of_an_instance_can_be_left_out() {
    let world = World::new(Setup::SqliteServed).await;
    let large = "x".repeat(100_000);
    world.start("approval", "a", json!(large)).await;
    world.running("a").await;
    let whole = world.place.get("instances/a").expect(200).await;
    assert_eq!(whole.json()["input"], large.as_str());
    let small = world.place.get("instances/a?payload_bytes=1000").expect(200).await;
    assert_eq!(small.json()["input"], json!({"omitted": true, "bytes": 100_002, "at": "history"}));
    assert!(small.body.len() < 5_000);
    // The two are not taken for each other.
    let tag = small.header("etag").unwrap();
    assert_ne!(Some(tag), whole.header("etag"));
    // What it waits for has a line with its age, which is no change.
    let text = |answer: &crate::wire::Answer| answer.json()["waits_for"][0]["text"].clone();
    let aged = loop {
        let answer = world.place.get("instances/a?payload_bytes=1000").expect(200).await;
        if text(&answer) != text(&small) {
            break answer;
        }
        world.client.changed(std::time::Duration::from_millis(100)).await;
    };
    assert_eq!(aged.header("etag"), Some(tag));
    let again = world.place.get("instances/a?payload_bytes=1000").header("if-none-match", tag).send().await;
    assert_eq!(again.status, 304);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h41_nodes_say_what_they_are_busy_with_and_shards_how_late_they_are() {
    for setup in Setup::ALL {
        let world = World::new(setup).await;
        for number in 0..5 {
            world.start("approval", &format!("a-{number}"), Value::Null).await;
            world.running(&format!("a-{number}")).await;
        }
        // Published with the next renewal of the node's session.
        let node = loop {
            let changed = world.client.changed(std::time::Duration::from_millis(100));
            let nodes = world.place.get("nodes").expect(200).await.json();
            // The owner of a file does not write to it for this: beside it, nothing is known.
            if nodes["nodes"][0]["residents"].is_u64() || setup == Setup::SqliteServed {
                break nodes["nodes"][0].clone();
            }
            changed.await;
        };
        assert!(node["turn_threads"].as_u64().unwrap() > 0, "{setup:?}: {node}");
        let is_known = setup != Setup::SqliteServed;
        assert_eq!(node["busy_turn_threads"].is_u64(), is_known, "{setup:?}: {node}");
        assert_eq!(node["clock_offset_ms"].is_i64(), is_known, "{setup:?}: {node}");
        let shards = world.place.get("shards").expect(200).await.json();
        let shards = shards["shards"].as_array().unwrap();
        assert!(shards.len() == 256 && shards.iter().all(|shard| shard["lag_ms"] == 0), "{setup:?}");
        world.end().await;
    }
}
