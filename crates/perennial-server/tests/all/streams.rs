//! Live changes.

use std::collections::BTreeSet;

use perennial::Client;
use perennial_server::{Access, Options, Role};
use serde_json::{Value, json};

use crate::contract::DOCUMENT;
use crate::wire::{Message, Place, Stream};
use crate::world::{Setup, World};

fn place_of(message: &Message) -> (u64, u64) {
    (message.data["execution"].as_u64().unwrap(), message.data["turn"]["number"].as_u64().unwrap())
}

/// Reads the turns of an instance until its row says that it has ended.
async fn turns_until_end(stream: &mut Stream) -> Vec<(u64, u64)> {
    let mut turns = Vec::new();
    loop {
        let message = stream.next().await.expect("the stream goes on");
        match message.kind.as_str() {
            "turn" => turns.push(place_of(&message)),
            "instance" if !message.data["ended_ms"].is_null() => return turns,
            _ => {}
        }
    }
}

async fn recorded(world: &World, id: &str) -> Vec<(u64, u64)> {
    let mut turns = Vec::new();
    for execution in world.client.executions(id).await.unwrap() {
        let history = world.client.history_of(id, execution).await.unwrap();
        turns.extend(history.turns.iter().map(|turn| (execution, turn.number)));
    }
    turns
}

#[tokio::test(flavor = "multi_thread")]
async fn h28_every_turn_arrives_once_and_in_order_through_continue_as_new() {
    for setup in Setup::ALL {
        let world = World::new(setup).await;
        let mut stream = world.place.get("stream?instance=r").open().await;
        stream.next_of("gone").await;
        world.start("rounds", "r", json!(5)).await;
        let seen = turns_until_end(&mut stream).await;
        assert_eq!(seen, recorded(&world, "r").await, "{setup:?}");
        // A reader that comes later gets the same.
        let mut late = world.place.get("stream?instance=r").open().await;
        assert_eq!(turns_until_end(&mut late).await, seen);
        let mut now = world.place.get("stream?instance=r&from=now").open().await;
        assert_eq!(turns_until_end(&mut now).await, [], "nothing is new");
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h28_a_stream_that_is_cut_again_and_again_saw_every_turn_once() {
    for setup in [Setup::MemoryMounted, Setup::SqliteServed, Setup::PostgresServed] {
        let world = World::new(setup).await;
        let rounds = 40;
        world.start("rounds", "r", json!(rounds)).await;
        let (mut seen, mut cursor, mut cuts) = (Vec::new(), None::<String>, 0);
        let mut rng = 7_u64;
        loop {
            let mut asked = world.place.get("stream?instance=r");
            if let Some(cursor) = &cursor {
                asked = asked.header("last-event-id", cursor);
            }
            let mut stream = asked.open().await;
            rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Cut after a few messages.
            let mut is_over = false;
            for _ in 0..1 + (rng >> 33) % 4 {
                let message = stream.next().await.expect("the stream goes on");
                cursor = Some(message.id.clone());
                match message.kind.as_str() {
                    "turn" => seen.push(place_of(&message)),
                    "instance" if !message.data["ended_ms"].is_null() => is_over = true,
                    _ => {}
                }
                if is_over {
                    break;
                }
            }
            cuts += 1;
            if is_over {
                break;
            }
        }
        assert!(cuts > 20, "only {cuts} cuts");
        assert_eq!(seen, recorded(&world, "r").await, "{setup:?}");
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h28_a_stream_says_which_executions_were_deleted_before_it_came() {
    let world = World::new(Setup::MemoryMounted).await;
    world.start("rounds", "r", json!(8)).await;
    world.ended("r").await;
    let mut stream = world.place.get("stream?instance=r").open().await;
    let first = stream.next_of("turn").await;
    world.client.prune_executions(std::time::Duration::ZERO, |_| ()).await.unwrap();
    let mut late = world.place.get("stream?instance=r").header("last-event-id", &first.id).open().await;
    let pruned = late.next_of("pruned").await;
    assert_eq!(pruned.data["executions"][0], 1);
    let next = place_of(&late.next_of("turn").await);
    assert_eq!(next, (pruned.data["executions"][1].as_u64().unwrap() + 1, 1));
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h28_a_cursor_survives_restarts_of_server_and_owner() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", directory.path().join("store.db").display());
    let operators = || Options::default().access(Access::everybody(Role::Operator));
    let runtime = crate::world::builder(&url).start().await.unwrap();
    runtime.client().start("approval", "a", perennial::Payload::null()).await.unwrap();
    let first = crate::world::serve(Client::open(&url).unwrap(), operators()).await;
    let mut stream = first.get("stream?instance=a").open().await;
    let mut seen = vec![place_of(&stream.next_of("turn").await)];
    let cursor = stream.next_of("instance").await.id;
    runtime.shutdown().await.unwrap();
    drop(stream);
    // The server is another one, and so is the owner.
    let runtime = crate::world::builder(&url).start().await.unwrap();
    let second: Place = crate::world::mount(runtime.client(), operators()).await;
    second.post("instances/a/events/approved", json!(1)).expect(202).await;
    let mut stream = second.get("stream?instance=a").header("last-event-id", &cursor).open().await;
    seen.extend(turns_until_end(&mut stream).await);
    assert_eq!(seen, [(1, 1), (1, 2)]);
    runtime.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn h28_a_stream_says_when_an_id_is_gone_or_another_instances() {
    let world = World::new(Setup::SqliteMounted).await;
    let first = world.start("approval", "a", Value::Null).await;
    let mut stream = world.place.get("stream?instance=a").open().await;
    assert_eq!(stream.next_of("turn").await.data["key"], first["key"]);
    world.place.delete("instances/a?force=true").expect(200).await;
    stream.next_of("gone").await;
    let second = world.start("approval", "a", Value::Null).await;
    assert_eq!(stream.next_of("reset").await.data["key"], second["key"]);
    assert_eq!(stream.next_of("turn").await.data["key"], second["key"]);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h29_a_streamed_list_equals_a_fresh_one_after_a_moment_of_quiet() {
    for setup in [Setup::MemoryMounted, Setup::SqliteServed] {
        let world = World::new(setup).await;
        world.start("approval", "old", Value::Null).await;
        let asked = "stream?list=status%3Drunning%26order%3Doldest&stats=true&operations=true";
        let mut stream = world.place.get(asked).open().await;
        let snapshot = stream.next_of("list").await;
        let ids = |rows: &Value| -> BTreeSet<String> {
            rows.as_array().unwrap().iter().map(|row| row["key"].as_str().unwrap().to_owned()).collect()
        };
        let mut keys = ids(&snapshot.data["rows"]);
        for number in 0..10 {
            world.start("approval", &format!("new-{number}"), Value::Null).await;
        }
        world.place.post("instances/old/events/approved", json!(1)).expect(202).await;
        world.ended("old").await;
        loop {
            let changes = stream.next_of("changes").await.data;
            keys.extend(ids(&changes["changed"]));
            for left in changes["left"].as_array().unwrap() {
                keys.remove(left.as_str().unwrap());
            }
            let fresh = world.place.get("instances?status=running&order=oldest").expect(200).await.json();
            if ids(&fresh["rows"]) == keys && keys.len() == 10 {
                break;
            }
        }
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h28_a_cursor_goes_on_with_the_instances_that_streams_have_in_common() {
    let world = World::new(Setup::SqliteMounted).await;
    world.start("rounds", "r", json!(3)).await;
    world.ended("r").await;
    world.start("rounds", "other", json!(1)).await;
    world.ended("other").await;
    let mut stream = world.place.get("stream?instance=r").open().await;
    let mut seen = vec![place_of(&stream.next_of("turn").await)];
    let cursor = stream.next_of("turn").await;
    seen.push(place_of(&cursor));
    let path = "stream?instance=other&instance=r&others=now";
    let mut both = world.place.get(path).header("last-event-id", &cursor.id).open().await;
    while seen.len() < recorded(&world, "r").await.len() {
        let message = both.next_of("turn").await;
        assert_eq!(message.data["instance"], "r", "the other one begins now");
        seen.push(place_of(&message));
    }
    assert_eq!(seen, recorded(&world, "r").await);
    let mut all =
        world.place.get("stream?instance=other&instance=r").header("last-event-id", &cursor.id).open().await;
    assert_eq!(all.next_of("turn").await.data["instance"], "other", "from its beginning");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h29_a_streamed_list_says_what_each_waits_for_and_how_it_ended() {
    for setup in [Setup::MemoryMounted, Setup::SqliteServed] {
        let world = World::new(setup).await;
        world.start("approval", "a", Value::Null).await;
        world.running("a").await;
        let list = "id_prefix%3Da%26include%3Dwaits%2Coutcome";
        let mut stream = world.place.get(&format!("stream?list={list}")).open().await;
        let row = stream.next_of("list").await.data["rows"][0].clone();
        assert_eq!(row["waits_for"][0]["name"], "approved", "{setup:?} {row}");
        world.place.post("instances/a/events/approved", json!({"ok": true})).expect(202).await;
        world.ended("a").await;
        loop {
            let changed = stream.next_of("changes").await.data["changed"][0].clone();
            if changed["status"] == "completed" {
                assert_eq!(changed["outcome"], json!({"kind": "output", "text": "{\"ok\":true}"}));
                break;
            }
        }
        let listed = world.place.get("instances?include=outcome&id=a&id=nobody").expect(200).await.json();
        assert_eq!(listed["rows"][0]["outcome"]["kind"], "output");
        assert_eq!(listed["rows"].as_array().unwrap().len(), 1);
        world.place.get("instances?id=a&id=b&status=running").refused(400, "PER-0805").await;
        world.place.get("stream?list=include%3Dnothing").refused(400, "PER-0805").await;
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h3_links_are_relative_and_lead_somewhere_under_any_prefix() {
    for setup in Setup::ALL {
        let world = World::new(setup).await;
        let started = world
            .place
            .post("instances", json!({"name": "approval", "id": "a/b", "input": "x".repeat(3_000)}));
        let started = started.expect(201).await;
        world.running("a/b").await;
        let dry = json!({"action": "cancel", "filter": "status=failed"});
        let begun = world.place.post("operations", dry).expect(202).await;
        for answer in [&started, &begun] {
            let location = answer.header("location").unwrap();
            assert!(!location.starts_with('/') && !location.contains("://"), "{location}");
            world.place.get(location).expect(200).await;
        }
        let found = world.place.get("search?q=a%2Fb").expect(200).await.json();
        world.place.get(found["places"][0]["at"].as_str().unwrap()).expect(200).await;
        let history = world.place.get("instances/a%2Fb/history").expect(200).await.json();
        let at = &history["turns"][0]["events"][0]["event"]["OrchestrationStarted"]["input"]["at"];
        world.place.get(&format!("instances/a%2Fb/{}", at.as_str().unwrap())).expect(200).await;
        let document = world.place.get("openapi.json").expect(200).await.json();
        assert_eq!(document["servers"], json!([{"url": "../.."}]));
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h27_a_stream_without_topics_or_with_too_many_is_refused() {
    let world = World::new(Setup::MemoryMounted).await;
    world.place.get("stream").refused(400, "PER-0805").await;
    let many: String = (0..21).map(|number| format!("instance={number}&")).collect();
    world.place.get(&format!("stream?{many}")).refused(400, "PER-0805").await;
    world.place.get("stream?list=statsu%3Dx").refused(400, "PER-0805").await;
    world.place.get("stream?instance=a&from=nonsense").refused(400, "PER-0809").await;
    world.end().await;
}

/// Looks at every route, whatever it is asked for.
async fn no_route_shows_secrets(world: &World) {
    let mut looked = 0;
    for (template, methods) in DOCUMENT["paths"].as_object().unwrap() {
        if methods.get("get").is_none() || template.ends_with("/stream") {
            continue;
        }
        for (id, event) in
            ["a", "f", "retried", "retrying"].into_iter().flat_map(|id| [(id, 1), (id, 2), (id, 3)])
        {
            let filled = template.replace("{id}", id).replace("{n}", "1").replace("{e}", &event.to_string());
            let is_list = template.ends_with("/instances");
            let path = if is_list { format!("{filled}?include=waits,outcome") } else { filled };
            let text = world.place.get(&path).send().await.text();
            let shows = ["s3cret", "Hello", "card service"].into_iter().find(|secret| text.contains(secret));
            assert_eq!(shows, None, "{path}: {text}");
            looked += 1;
        }
    }
    assert!(looked > 300, "{looked}");
}

#[tokio::test(flavor = "multi_thread")]
async fn h13_payloads_are_hidden_from_readers_everywhere() {
    let options = Options::default().access(Access::everybody(Role::Reader)).hide_payloads_from_readers(true);
    let world = World::with(Setup::SqliteMounted, options).await;
    let secret = perennial::Payload::from("s3cret-input");
    let attributes = perennial::StartOptions::default().attribute("city", "s3cret-city");
    world.client.start_with("hello", "a", secret, attributes).await.unwrap().result().await.unwrap();
    world.client.start("fails", "f", perennial::Payload::from("s3cret")).await.unwrap();
    // The errors of attempts are payloads, too, wherever they are kept.
    let gate = world.path("gate");
    let input = perennial::Payload::from(gate.display().to_string());
    for id in ["retried", "retrying"] {
        world.client.start("flaky", id, input.clone()).await.unwrap();
        world.retrying(id, 2).await;
    }
    std::fs::write(&gate, "").unwrap();
    world.client.retry_activity("retried", 1, perennial::history::EventId(2)).await.unwrap();
    world.ended("retried").await;
    for path in [
        "instances",
        "instances?include=waits",
        "instances/a",
        "instances/a/result",
        "instances/a/history",
        "instances/a/executions/1/events/1",
        "instances/a/waits",
        "instances/a/tree",
        "instances/a/timeline",
        "instances/a/export",
        "instances/a/executions",
        "export",
        "groups?by=attr.city",
        "tasks",
        "doctor",
        "search?q=a",
        "instances/retried",
        "instances/retried/history",
        "instances/retried/timeline",
        "instances/retried/export",
        "instances/retried/executions/1/events/3",
        "instances/retrying",
        "instances/retrying/waits",
        "instances/retrying/timeline",
        "instances?include=waits&status=running",
        "tasks/groups",
        "blocked",
    ] {
        let text = world.place.get(path).expect(200).await.text();
        let shows = ["s3cret", "Hello", "card service"].into_iter().find(|secret| text.contains(secret));
        assert_eq!(shows, None, "{path}: {text}");
    }
    no_route_shows_secrets(&world).await;
    let result = world.place.get("instances/a/result").expect(200).await.json();
    assert_eq!(result["output"], json!({"hidden": true, "bytes": 22}));
    world.place.get("instances/a/executions/1/events/1/payload").refused(403, "PER-0802").await;
    world.place.ask("POST", "instances/a/queries/x").refused(403, "PER-0802").await;
    world.place.get("instances/a/history?text=s3cret").refused(403, "PER-0802").await;
    let mut retried = world.place.get("stream?instance=retried").open().await;
    for _ in 0..2 {
        let text = retried.next_of("turn").await.data.to_string();
        assert!(!text.contains("card service"), "{text}");
    }
    let mut stream = world.place.get("stream?instance=a&list=include%3Dwaits%2Coutcome").open().await;
    let mut missing = BTreeSet::from(["turn", "instance", "list"]);
    while !missing.is_empty() {
        let message = stream.next().await.unwrap();
        let text = message.data.to_string();
        assert!(!text.contains("s3cret") && !text.contains("card service"), "{text}");
        missing.remove(message.kind.as_str());
    }
    world.end().await;
}
