//! Starting, listing, reading and waiting for instances.

use serde_json::{Value, json};

use crate::world::{Setup, World};

#[tokio::test(flavor = "multi_thread")]
async fn h1_an_instance_is_started_awaited_and_read_on_every_store() {
    for setup in Setup::ALL {
        let world = World::new(setup).await;
        let body = json!({"name": "hello", "id": "hello-1", "input": "Ada"});
        let answer = world.place.post("instances?wait_ms=30000", body.clone()).expect(201).await;
        let started = answer.json();
        assert_eq!(answer.header("location"), Some("instances/hello-1"));
        assert_eq!(
            (&started["status"], &started["output"]),
            (&json!("completed"), &json!("Hello, Ada!")),
            "{setup:?}"
        );
        assert_eq!(started["is_new"], true);
        let refused = world.place.post("instances", body).refused(409, "PER-0606").await.json();
        assert_eq!((&refused["id"], &refused["existing"]), (&json!("hello-1"), &json!("completed")));

        let result = world.place.get("instances/hello-1/result").expect(200).await.json();
        assert_eq!(result["output"], "Hello, Ada!");
        let shown = world.place.get("instances/hello-1").expect(200).await.json();
        assert_eq!(
            (&shown["turns"], &shown["events"], &shown["input"]),
            (&json!(2), &json!(4), &json!("Ada")),
            "{shown}"
        );
        assert_eq!(shown["key"], started["key"]);
        world.place.get("instances/nobody").refused(404, "PER-0605").await;

        world.start("fails", "fails-1", Value::Null).await;
        let failed = world.ended("fails-1").await;
        assert_eq!((&failed["status"], &failed["error"]), (&json!("failed"), &json!("out of stock")));
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h23_a_wait_ends_when_there_is_something_to_say() {
    for setup in [Setup::MemoryMounted, Setup::SqliteServed] {
        let world = World::new(setup).await;
        world.start("approval", "a", Value::Null).await;
        world.running("a").await;
        let waiting = world.place.get("instances/a/result?wait_ms=1").expect(202).await;
        assert_eq!(
            (waiting.json()["status"].clone(), waiting.header("retry-after")),
            (json!("running"), Some("1"))
        );
        let place = world.place.clone();
        let waiter =
            tokio::spawn(async move { place.get("instances/a/result?wait_ms=60000").expect(200).await });
        world.place.post("instances/a/events/approved", json!({"by": "Ada"})).expect(202).await;
        assert_eq!(waiter.await.unwrap().json()["output"], json!({"by": "Ada"}));
        world.place.get("instances/a/result?wait_ms=60001").refused(400, "PER-0805").await;
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h21_a_repeated_start_with_a_key_gets_what_the_first_one_got() {
    let world = World::new(Setup::SqliteServed).await;
    let start = |place: &crate::wire::Place| {
        place
            .post("instances?wait_ms=30000", json!({"name": "hello", "input": "Ada"}))
            .header("idempotency-key", "k 1")
    };
    let first = start(&world.place).expect(201).await.json();
    let second = start(&world.place).expect(201).await.json();
    assert_eq!(first, second);
    // Another server on the same store gives the same answer.
    let options = perennial_server::Options::default()
        .access(perennial_server::Access::everybody(perennial_server::Role::Operator));
    let other = crate::world::serve(perennial::Client::open(&world.url).unwrap(), options).await;
    assert_eq!(start(&other).expect(201).await.json(), first);
    let another = start(&world.place).header("idempotency-key", "k 2").expect(201).await.json();
    assert_ne!(another["id"], first["id"]);
    let unnamed = world.place.post("instances", json!({"name": "hello", "input": "Ada"}));
    assert_ne!(unnamed.clone().expect(201).await.json()["id"], unnamed.expect(201).await.json()["id"]);
    start(&world.place).header("idempotency-key", &"x".repeat(201)).refused(400, "PER-0805").await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h15_unknown_and_repeated_names_are_refused_by_name() {
    let world = World::new(Setup::MemoryMounted).await;
    let detail = |answer: crate::wire::Answer| answer.json()["detail"].as_str().unwrap().to_owned();
    let typo = world.place.get("instances?statsu=running").refused(400, "PER-0805").await;
    assert!(detail(typo).contains("statsu"));
    let twice = world.place.get("instances?status=running&status=failed").refused(400, "PER-0805").await;
    assert!(detail(twice).contains("twice"));
    let member =
        world.place.post("instances", json!({"name": "hello", "inptu": 1})).refused(400, "PER-0805").await;
    assert!(detail(member).contains("inptu"));
    let doubled = world.place.ask("POST", "instances").body(r#"{"name":"a","name":"b"}"#);
    assert!(detail(doubled.refused(400, "PER-0805").await).contains("duplicate"));
    for wrong in ["", "[]", "nonsense", "{\"name\":", "{\"name\":\"hello\",\"on_existing\":\"perhaps\"}"] {
        world.place.ask("POST", "instances").body(wrong).refused(400, "PER-0805").await;
    }
    world.place.post("instances", json!({"name": "nobody", "id": "x"})).refused(422, "PER-0608").await;
    world
        .place
        .post("instances", json!({"name": "hello", "id": "x", "input": 7}))
        .refused(422, "PER-0630")
        .await;
    world.place.post("instances", json!({"name": "hello", "id": "a::b"})).refused(400, "PER-0601").await;
    let version = json!({"name": "hello", "id": "x", "input": "a", "version": "one"});
    world.place.post("instances", version).refused(400, "PER-0619").await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h17_every_id_round_trips_and_hides_no_route() {
    let world = World::new(Setup::SqliteMounted).await;
    let long = "x".repeat(200);
    let ids = [
        ("a/b", "a%2Fb"),
        ("a%b", "a%25b"),
        ("a?b#c d", "a%3Fb%23c%20d"),
        ("🦀", "%F0%9F%A6%80"),
        (".", "~Lg"),
        ("..", "~Li4"),
        ("~x", "~fng"),
        ("result", "result"),
        ("history", "~aGlzdG9yeQ"),
        (&long, &long),
    ];
    for (id, segment) in ids {
        let body = json!({"name": "hello", "id": id, "input": "Ada"});
        let answer = world.place.post("instances?wait_ms=30000", body).expect(201).await;
        assert_eq!(answer.json()["id"], id);
        let location = answer.header("location").unwrap().to_owned();
        assert_eq!(world.place.get(&location).expect(200).await.json()["id"], id);
        assert_eq!(world.place.get(&format!("instances/{segment}")).expect(200).await.json()["id"], id);
        let history = world.place.get(&format!("instances/{segment}/history")).expect(200).await.json();
        assert_eq!(history["turns"].as_array().unwrap().len(), 2, "{id}");
    }
    // The id of a child has `::` in it.
    world.start("parent", "family", json!(1)).await;
    let children = loop {
        let page = world.place.get("instances/family/children").expect(200).await.json();
        if page["rows"].as_array().is_some_and(|rows| !rows.is_empty()) {
            break page;
        }
        world.client.changed(std::time::Duration::from_millis(50)).await;
    };
    let child = children["rows"][0]["id"].as_str().unwrap();
    assert!(child.contains("::"));
    world.place.get(&format!("instances/{}", child.replace(':', "%3A"))).expect(200).await;
    world.place.get("instances/%zz").refused(400, "PER-0805").await;
    world.place.get("instances//result").refused(404, "PER-0807").await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h16_payloads_arrive_byte_for_byte() {
    let world = World::new(Setup::SqliteMounted).await;
    world.start("approval", "exact", Value::Null).await;
    let payload = r#"{"n": 9007199254740993, "f": 1.0, "a" : [1,  2], "é": "\u00e9"}"#;
    world.place.ask("POST", "instances/exact/events/approved").body(payload).expect(202).await;
    world.ended("exact").await;
    let result = world.place.get("instances/exact/result").expect(200).await.text();
    assert!(result.contains(payload), "{result}");
    let event = world.place.get("instances/exact/executions/1/events/3/payload").expect(200).await;
    assert_eq!(event.text(), payload);
    let history = world.place.get("instances/exact/history").expect(200).await.json();
    let seed = &history["turns"][0]["events"][0]["event"]["OrchestrationStarted"]["seed"];
    assert!(seed.is_string(), "{seed}");
    world.end().await;
}

async fn ids(world: &World, query: &str) -> Vec<String> {
    let page = world.place.get(&format!("instances?{query}")).expect(200).await.json();
    page["rows"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn h26_filters_narrow_a_list_and_all_of_them_must_hold() {
    for setup in [Setup::MemoryMounted, Setup::SqliteServed, Setup::PostgresMounted] {
        let world = World::new(setup).await;
        for (name, id, city) in
            [("hello", "a-1", "Oslo"), ("hello", "a-2", "Rome"), ("approval", "b-1", "Oslo")]
        {
            let body = json!({"name": name, "id": id, "input": "x", "attributes": {"city": city, "n": 7}});
            world.place.post("instances", body).expect(201).await;
        }
        world.start("panics", "c-1", Value::Null).await;
        for id in ["a-1", "a-2"] {
            world.ended(id).await;
        }
        world.blocked("c-1").await;
        let cases = [
            ("order=oldest", vec!["a-1", "a-2", "b-1", "c-1"]),
            ("", vec!["c-1", "b-1", "a-2", "a-1"]),
            ("status=completed&order=oldest", vec!["a-1", "a-2"]),
            ("status=completed,running&name=hello,approval&order=oldest", vec!["a-1", "a-2", "b-1"]),
            ("name=approval", vec!["b-1"]),
            ("id=a-1", vec!["a-1"]),
            ("id=a-", vec![]),
            ("id_prefix=a-&order=oldest", vec!["a-1", "a-2"]),
            ("id_contains=-1&order=oldest", vec!["a-1", "b-1", "c-1"]),
            ("attr.city=%22Oslo%22&order=oldest", vec!["a-1", "b-1"]),
            ("attr.city=%22Oslo%22&attr.n=7&status=running", vec!["b-1"]),
            ("blocked=true", vec!["c-1"]),
            ("blocked_code=PER-0201", vec!["c-1"]),
            ("blocked_code=PER-0203", vec![]),
            ("waits_for=event:approved", vec!["b-1"]),
            ("waits_for=timer", vec![]),
            ("root=true&name=hello&order=oldest", vec!["a-1", "a-2"]),
            ("root=false", vec![]),
            ("created_before_ms=1", vec![]),
            ("ended_from_ms=1&order=oldest", vec!["a-1", "a-2"]),
            ("min_age_ms=86400000", vec![]),
            ("min_duration_ms=86400000", vec![]),
            ("retrying=true", vec![]),
            ("version=9.9.9", vec![]),
        ];
        for (query, expected) in cases {
            assert_eq!(ids(&world, query).await, expected, "{setup:?} {query}");
            let count = world.place.get(&format!("count?{query}")).expect(200).await.json();
            assert_eq!((&count["rows"], &count["more"]), (&json!(expected.len()), &json!(false)), "{query}");
        }
        let groups = world.place.get("groups?by=name").expect(200).await.json();
        assert_eq!(groups["groups"][0], json!({"value": "hello", "count": 2}));
        let groups = world.place.get("groups?by=attr.city").expect(200).await.json();
        assert_eq!(groups["groups"].as_array().unwrap().len(), 3, "Oslo, Rome and none: {groups}");
        for wrong in
            ["status=up", "attr.city=Oslo", "parent=x", "waits_for=cake", "order=sideways", "limit=0"]
        {
            world.place.get(&format!("instances?{wrong}")).refused(400, "PER-0805").await;
        }
        world.place.get("groups?by=cake").refused(400, "PER-0805").await;
        let page = world.place.get("instances?name=approval&include=waits").expect(200).await.json();
        assert_eq!(page["rows"][0]["waits_for"][0]["kind"], "event");
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h25_pages_miss_and_repeat_no_row_while_others_come_and_go() {
    for setup in [Setup::MemoryMounted, Setup::SqliteServed, Setup::PostgresMounted] {
        let world = World::new(setup).await;
        for number in 0..30 {
            world.start("approval", &format!("kept-{number}"), Value::Null).await;
        }
        for query in ["order=oldest", "order=newest", "id_contains=kept&order=oldest"] {
            let (mut seen, mut cursor, mut round) = (Vec::new(), String::new(), 0);
            loop {
                let page =
                    world.place.get(&format!("instances?{query}&limit=7{cursor}")).expect(200).await.json();
                let rows =
                    page["rows"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap().to_owned());
                seen.extend(rows.filter(|id| id.starts_with("kept-")));
                let Some(next) = page["next"].as_str() else { break };
                cursor = format!("&cursor={next}");
                // Rows come and go meanwhile.
                let id = format!("passing-{}-{round}", query.len());
                world.start("approval", &id, Value::Null).await;
                world.place.delete(&format!("instances/{id}?force=true")).expect(200).await;
                round += 1;
            }
            let count = seen.len();
            seen.sort();
            seen.dedup();
            assert_eq!((count, seen.len()), (30, 30), "{setup:?} {query}");
        }
        let page = world.place.get("instances?limit=7").expect(200).await.json();
        let cursor = page["next"].as_str().unwrap();
        world
            .place
            .get(&format!("instances?limit=7&status=running&cursor={cursor}"))
            .refused(400, "PER-0809")
            .await;
        world.place.get("instances?cursor=abc").refused(400, "PER-0809").await;
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h24_what_has_not_changed_is_not_sent_again() {
    let world = World::new(Setup::MemoryMounted).await;
    world.start("hello", "a", json!("Ada")).await;
    world.ended("a").await;
    for (path, cached) in [("instances/a", "no-store"), ("instances/a/history", "private")] {
        let first = world.place.get(path).expect(200).await;
        let tag = first.header("etag").unwrap();
        assert!(first.header("cache-control").unwrap().starts_with(cached), "{first:?}");
        let second = world.place.get(path).header("if-none-match", tag).expect(304).await;
        assert!(second.body.is_empty());
        world.place.get(path).header("if-none-match", "\"other\"").expect(200).await;
    }
    let list = world.place.get("instances").expect(200).await;
    assert_eq!(list.header("cache-control"), Some("no-store"));
    let head = world.place.ask("HEAD", "instances/a").without("content-type").expect(200).await;
    assert!(head.body.is_empty() && head.header("etag").is_some());
    world.end().await;
}
