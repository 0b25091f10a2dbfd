//! What the pages of a dashboard read: past states, timelines, causes, counts over time, versions.

use serde_json::{Value, json};

use crate::world::{Setup, World};

#[tokio::test(flavor = "multi_thread")]
async fn d27_the_waits_after_a_past_turn_are_those_of_then() {
    for setup in Setup::ALL {
        let world = World::new(setup).await;
        world.start("approval", "a", Value::Null).await;
        world.running("a").await;
        let then = world.place.get("instances/a/waits").expect(200).await.json();
        assert_eq!((&then["is_past"], &then["waits"][0]["name"]), (&json!(false), &json!("approved")));
        world.place.post("instances/a/events/approved", json!(1)).expect(202).await;
        world.ended("a").await;
        let past = world.place.get("instances/a/waits?turn=1").expect(200).await.json();
        assert_eq!(
            (&past["is_past"], &past["turn"], &past["status"]),
            (&json!(true), &json!(1), &json!("running"))
        );
        for member in ["kind", "name", "event", "since_ms"] {
            assert_eq!(past["waits"][0][member], then["waits"][0][member], "{setup:?} {member}");
        }
        let last = world.place.get("instances/a/waits?turn=99&execution=1").expect(200).await.json();
        assert_eq!(
            (&last["turn"], &last["waits"], &last["status"]),
            (&json!(2), &json!([]), &json!("completed"))
        );
        let before = world.place.get("instances/a/waits?turn=0").expect(200).await.json();
        assert_eq!((&before["status"], &before["waits"]), (&json!("pending"), &json!([])));
        world.place.get("instances/a/waits?execution=1").refused(400, "PER-0805").await;
        world.place.get("instances/a/waits?execution=2&turn=1").refused(404, "PER-0633").await;
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h35_a_timeline_is_brought_forward_and_long_ones_are_counted_in_buckets() {
    for setup in [Setup::MemoryMounted, Setup::SqliteServed, Setup::PostgresServed] {
        let world = World::new(setup).await;
        world.start("sequence", "s", json!(40)).await;
        // Read while turns are made, as a page does.
        loop {
            let timeline = world.place.get("instances/s/timeline").expect(200).await.json();
            let turns = timeline["turns"].as_array().unwrap();
            let numbers: Vec<u64> = turns.iter().map(|turn| turn["number"].as_u64().unwrap()).collect();
            assert_eq!(numbers, (1..=turns.len() as u64).collect::<Vec<_>>());
            if turns.len() == 41 {
                break;
            }
        }
        let whole = world.place.get("instances/s/timeline").expect(200).await.json();
        assert_eq!((whole["operations"].as_array().unwrap().len(), &whole["buckets"]), (40, &json!([])));
        // One activity after the other: the path goes through all of them, and has no gap.
        let path = whole["critical_path"].as_array().unwrap();
        assert_eq!(path.len(), 40, "{setup:?}");
        assert!(path.windows(2).all(|pair| pair[0]["to_ms"] == pair[1]["from_ms"]), "{path:?}");
        let some = world.place.get("instances/s/timeline?limit=10").expect(200).await.json();
        assert_eq!((some["operations"].as_array().unwrap().len(), &some["others"]), (10, &json!(30)));
        assert_eq!(some["operations"][9], whole["operations"][39], "the last ones are shown");
        assert_eq!((&some["turns"], &some["turn_count"]), (&json!([]), &json!(41)));
        let sum = |member: &str| -> u64 {
            some["buckets"].as_array().unwrap().iter().map(|bucket| bucket[member].as_u64().unwrap()).sum()
        };
        assert_eq!((sum("scheduled"), sum("ended"), sum("turns")), (40, 40, 41));
        // With the places known, an event is found as without.
        let event = world.place.get("instances/s/executions/1/events/20").expect(200).await.json();
        assert_eq!(event["id"], 20);
        world.place.get("instances/s/executions/1/events/9999").refused(404, "PER-0814").await;
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_critical_path_leads_through_the_slowest_branch() {
    let world = World::new(Setup::MemoryMounted).await;
    world.start("parent", "p", json!(3)).await;
    let tree = loop {
        let tree = world.place.get("instances/p/tree").expect(200).await.json();
        if tree["children"].as_array().unwrap().len() == 3 {
            break tree;
        }
    };
    for child in tree["children"].as_array().unwrap() {
        let id = child["id"].as_str().unwrap();
        let path = format!("instances/{}/events/approved", id.replace("::", "%3A%3A"));
        world.place.post(&path, json!(1)).expect(202).await;
        world.ended(&id.replace("::", "%3A%3A")).await;
    }
    world.ended("p").await;
    let timeline = world.place.get("instances/p/timeline").expect(200).await.json();
    let path = timeline["critical_path"].as_array().unwrap();
    // All three begin in the first turn: the one that ended last is what the time consists of.
    let last =
        timeline["operations"].as_array().unwrap().iter().max_by_key(|row| row["ended_by"].as_u64()).unwrap();
    assert_eq!((path.len(), &path[0]["event"]), (1, &last["event"]), "{timeline}");
    assert_eq!(last["instance"], tree["children"][2]["id"]);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d33_a_cause_has_its_report_its_tries_and_a_filter_that_reaches_it() {
    for setup in [Setup::MemoryMounted, Setup::SqliteServed, Setup::PostgresServed] {
        let world = World::new(setup).await;
        for number in 0..3 {
            world.start("panics", &format!("p-{number}"), Value::Null).await;
            world.blocked(&format!("p-{number}")).await;
        }
        let causes = world.place.get("blocked").expect(200).await.json();
        let cause = &causes["causes"][0];
        assert_eq!(
            (&cause["count"], &cause["name"], &causes["count"]),
            (&json!(3), &json!("panics"), &json!(3))
        );
        assert!(cause["last_tried_ms"].as_u64() >= cause["first_ms"].as_u64(), "{setup:?} {cause}");
        assert!(cause["report"].as_str().unwrap().contains("oh no"), "{cause}");
        assert!(!cause["remedy"].as_str().unwrap().is_empty());
        let filter = cause["filter"].as_str().unwrap();
        let listed = world.place.get(&format!("count?{filter}")).expect(200).await.json();
        assert_eq!(listed["rows"], 3);
        let dry = json!({"action": "retry", "filter": filter, "dry_run": true});
        assert_eq!(world.place.post("operations", dry).expect(200).await.json()["count"]["rows"], 3);
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d36_starts_and_ends_are_counted_by_time_from_the_store() {
    for setup in Setup::ALL {
        let world = World::new(setup).await;
        for number in 0..4 {
            world.start("hello", &format!("h-{number}"), json!("x")).await;
            world.ended(&format!("h-{number}")).await;
        }
        world.start("fails", "f", Value::Null).await;
        world.ended("f").await;
        world.start("approval", "a", Value::Null).await;
        let history = world.place.get("stats/history?buckets=20").expect(200).await.json();
        let buckets = history["buckets"].as_array().unwrap();
        let started = |status: &str| -> u64 {
            buckets.iter().map(|bucket| bucket["started"][status]["rows"].as_u64().unwrap_or(0)).sum()
        };
        let ended = |status: &str| -> u64 {
            buckets.iter().map(|bucket| bucket["ended"][status]["rows"].as_u64().unwrap_or(0)).sum()
        };
        assert_eq!(
            (started("completed"), started("failed"), history["partial"] == false),
            (4, 1, true),
            "{setup:?}"
        );
        assert_eq!((ended("completed"), ended("failed"), ended("running")), (4, 1, 0), "{history}");
        let width = history["width_ms"].as_u64().unwrap();
        assert!(buckets.iter().all(|bucket| bucket["from_ms"].as_u64().unwrap() % width == 0), "aligned");
        world.place.get("stats/history?from_ms=5&to_ms=5").refused(400, "PER-0805").await;
        let durations = world.place.get("stats/durations").expect(200).await.json();
        assert_eq!((&durations["of"], &durations["rows"][0]["name"]), (&json!(5), &json!("hello")));
        let ended_from = world.place.get("count?ended_from_ms=1").expect(200).await.json();
        assert_eq!((&ended_from["rows"], &ended_from["scanned"]), (&json!(5), &Value::Null), "by an index");
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d38_a_version_says_who_has_it_and_who_needs_it() {
    for setup in [Setup::MemoryMounted, Setup::SqliteServed, Setup::PostgresServed] {
        let world = World::new(setup).await;
        world.start("approval", "a", Value::Null).await;
        world.running("a").await;
        world.start("panics", "p", Value::Null).await;
        world.blocked("p").await;
        let listed = world.place.get("orchestrations").expect(200).await.json();
        let row = |name: &str| {
            let rows = listed["orchestrations"].as_array().unwrap();
            // An instance that never took a turn is not pinned to a version yet.
            let version = if name == "panics" { "" } else { "1.0.0" };
            let with = |row: &&Value| row["name"] == name && row["version"] == version;
            rows.iter().find(with).unwrap_or_else(|| panic!("{listed}")).clone()
        };
        let approval = row("approval");
        assert_eq!(
            (&approval["open"]["rows"], &approval["started"]["rows"]),
            (&json!(1), &json!(1)),
            "{setup:?}"
        );
        assert_eq!((&approval["is_needed"], approval["nodes"].as_array().unwrap().len()), (&json!(true), 1));
        assert_eq!(row("panics")["blocked"]["rows"], 1);
        let hello = row("hello");
        assert_eq!((&hello["is_needed"], &hello["oldest_ms"]), (&json!(false), &Value::Null));
        let nodes = world.place.get("nodes").expect(200).await.json();
        assert!(nodes["nodes"][0]["slots"].as_u64().unwrap() > 0);
        let found = world.client.status("a").await.unwrap().key.to_string();
        let places = world.place.get(&format!("search?q={found}")).expect(200).await.json();
        assert_eq!(places["places"][0]["name"], "a", "found by its key");
        world.end().await;
    }
}
