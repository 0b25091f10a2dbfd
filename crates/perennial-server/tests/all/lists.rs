//! Lists that several indexes answer together, in the order of ends, and instances that are named one by one.

use serde_json::{Value, json};

use crate::changes::operation;
use crate::world::{Setup, World};

fn ids(page: &Value) -> Vec<String> {
    page["rows"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
}

/// All ids of a list, read in pages of two.
async fn all(world: &World, filter: &str) -> Vec<String> {
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = world.place.get(&format!("instances?limit=2&{filter}{cursor}")).expect(200).await.json();
        found.extend(ids(&page));
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return found,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h26_a_list_can_be_in_the_order_of_ends() {
    for setup in Setup::ALL {
        let world = World::new(setup).await;
        for id in ["a", "b", "c", "d", "e"] {
            world.start("approval", id, Value::Null).await;
        }
        world.start("hello", "h", json!("x")).await;
        world.ended("h").await;
        // They end in another order than they began.
        for (id, verb) in [("c", "terminate"), ("a", "cancel"), ("e", "terminate")] {
            world.place.post(&format!("instances/{id}/{verb}"), json!({})).expect(202).await;
            world.ended(id).await;
            // The next one does not end in the same millisecond.
            let ended = world.client.now().await.unwrap();
            while world.client.now().await.unwrap() == ended {}
        }
        assert_eq!(all(&world, "order=ended").await, ["e", "a", "c", "h"], "{setup:?}");
        assert_eq!(all(&world, "order=ended&status=terminated").await, ["e", "c"], "{setup:?}");
        assert_eq!(all(&world, "order=ended&status=running").await, [""; 0], "{setup:?}");
        assert_eq!(all(&world, "order=ended&name=hello,approval").await, ["e", "a", "c", "h"], "{setup:?}");
        assert_eq!(all(&world, "order=ended&id_contains=c").await, ["c"], "{setup:?}");
        let count = world.place.get("count?order=ended").expect(200).await.json();
        assert_eq!((&count["rows"], &count["more"]), (&json!(4), &json!(false)), "{setup:?}");
        // A cursor goes on behind a row that is gone, and belongs to its order.
        let page = world.place.get("instances?order=ended&limit=2").expect(200).await.json();
        let next = page["next"].as_str().unwrap();
        world.place.delete("instances/a").expect(200).await;
        let rest = world.place.get(&format!("instances?order=ended&cursor={next}")).expect(200).await.json();
        assert_eq!(ids(&rest), ["c", "h"], "{setup:?}");
        world.place.get(&format!("instances?cursor={next}")).refused(400, "PER-0809").await;
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h26_several_names_are_answered_from_an_index() {
    for setup in Setup::ALL {
        let world = World::new(setup).await;
        let names = ["approval", "dial", "parent", "approval", "dial", "approval"];
        for (number, name) in names.iter().enumerate() {
            let input = if *name == "parent" { json!(0) } else { Value::Null };
            world.start(name, &format!("{name}-{number}"), input).await;
        }
        let both = ["approval-5", "dial-4", "approval-3", "dial-1", "approval-0"];
        assert_eq!(all(&world, "name=approval,dial").await, both, "{setup:?}");
        let oldest = ["approval-0", "dial-1", "approval-3", "dial-4", "approval-5"];
        assert_eq!(all(&world, "name=dial,approval,dial,nobody&order=oldest").await, oldest, "{setup:?}");
        assert_eq!(all(&world, "name=dial,approval&id_prefix=dial-").await, ["dial-4", "dial-1"]);
        let page = world.place.get("instances?name=approval,dial").expect(200).await.json();
        assert!(page.get("scanned").is_none() && page["partial"] == false, "{page}");
        let count = world.place.get("count?name=approval,dial").expect(200).await.json();
        assert_eq!((&count["rows"], count.get("scanned")), (&json!(5), None), "{setup:?}");
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h26_what_is_retried_is_found_among_others_without_a_scan() {
    for setup in Setup::ALL {
        let world = World::new(setup).await;
        let gate = json!(world.path("gate").display().to_string());
        for id in ["r-1", "r-2", "r-3"] {
            world.start("flaky", id, gate.clone()).await;
            world.start("approval", &format!("a-{id}"), Value::Null).await;
            world.retrying(id, 2).await;
        }
        assert_eq!(all(&world, "retrying=true").await, ["r-3", "r-2", "r-1"], "{setup:?}");
        assert_eq!(all(&world, "retrying=true&order=oldest&id_prefix=r-").await, ["r-1", "r-2", "r-3"]);
        assert_eq!(all(&world, "retrying=true&name=approval").await, [""; 0], "{setup:?}");
        assert_eq!(all(&world, "retrying=true&name=approval,flaky&id_contains=2").await, ["r-2"]);
        assert_eq!(all(&world, "retrying=true&order=ended").await, [""; 0], "{setup:?}");
        assert_eq!(all(&world, "retrying=false").await, ["a-r-3", "a-r-2", "a-r-1"], "{setup:?}");
        let page = world.place.get("instances?retrying=true").expect(200).await.json();
        assert!(page.get("scanned").is_none(), "{page}");
        let count = world.place.get("count?retrying=true").expect(200).await.json();
        assert_eq!((&count["rows"], &count["more"]), (&json!(3), &json!(false)));
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h22_an_operation_over_keys_reaches_the_instances_that_were_selected() {
    for setup in Setup::ALL {
        let world = World::new(setup).await;
        let mut keys = Vec::new();
        for id in ["a", "b", "c", "d"] {
            keys.push(world.start("approval", id, Value::Null).await["key"].as_str().unwrap().to_owned());
        }
        let selected = format!("keys={}", keys[..3].join(","));
        assert_eq!(
            ids(&world.place.get(&format!("instances?{selected}")).expect(200).await.json()),
            ["a", "b", "c"]
        );
        // An id that is another instance's by now is not reached.
        world.place.delete("instances/b?force=true").expect(200).await;
        world.start("approval", "b", Value::Null).await;
        let dry = json!({"action": "terminate", "filter": selected, "dry_run": true});
        let dry = world.place.post("operations", dry).expect(200).await.json();
        assert_eq!((&dry["count"]["rows"], &dry["samples"]), (&json!(2), &json!(["a", "c"])), "{setup:?}");
        let ended = operation(&world, json!({"action": "terminate", "filter": selected})).await;
        assert_eq!((&ended["state"], &ended["done"], &ended["seen"]), (&json!("done"), &json!(2), &json!(2)));
        for (id, status) in [("a", "terminated"), ("b", "running"), ("c", "terminated"), ("d", "running")] {
            world.client.changed(std::time::Duration::ZERO).await;
            if status == "running" {
                world.running(id).await;
            } else {
                world.ended(id).await;
            }
            let found = world.place.get(&format!("instances/{id}")).expect(200).await.json();
            assert_eq!(found["status"], status, "{id} {setup:?}");
        }
        for wrong in ["keys=x", "keys=", &format!("keys={}&status=running", keys[0]), "keys=a&id=b"] {
            world.place.get(&format!("instances?{wrong}")).refused(400, "PER-0805").await;
        }
        world.end().await;
    }
}
