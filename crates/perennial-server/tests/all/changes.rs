//! Requests that change instances.

use serde_json::{Value, json};

use crate::world::{Setup, World};

#[tokio::test(flavor = "multi_thread")]
async fn h21_events_and_updates_with_a_key_are_taken_once() {
    for setup in Setup::ALL {
        let world = World::new(setup).await;
        world.start("dial", "d", Value::Null).await;
        let set = |to: u8| world.place.post("instances/d/updates/set", json!(to));
        assert_eq!(set(3).header("idempotency-key", "one").expect(200).await.json(), 0);
        assert_eq!(
            set(4).header("idempotency-key", "one").expect(200).await.json(),
            0,
            "the result of the first"
        );
        let asked = world.place.ask("POST", "instances/d/queries/position");
        assert_eq!(asked.clone().expect(200).await.json(), 3, "{setup:?}");
        let loud = set(21).refused(422, "PER-0621").await.json();
        assert_eq!((&loud["error"], &loud["id"]), (&json!("21 is too loud"), &json!("d")));
        let unlucky = set(13).refused(422, "PER-0622").await.json();
        assert_eq!(unlucky["error"], "unlucky");
        world.place.ask("POST", "instances/d/queries/nothing").refused(422, "PER-0621").await;
        world.place.post("instances/nobody/updates/set", json!(1)).refused(404, "PER-0605").await;
        assert_eq!(set(10).expect(200).await.json(), 3);
        assert_eq!(world.ended("d").await["output"], 10);
        set(11).refused(409, "PER-0607").await;
        assert_eq!(asked.expect(200).await.json(), 10, "an instance that has ended answers queries");

        world.start("approval", "e", Value::Null).await;
        for _ in 0..2 {
            let event = world.place.post("instances/e/events/other", json!(1)).header("idempotency-key", "k");
            event.expect(202).await;
        }
        let shown = loop {
            let shown = world.place.get("instances/e").expect(200).await.json();
            if shown["untaken_events"] != json!({}) {
                break shown;
            }
            world.client.changed(std::time::Duration::from_millis(50)).await;
        };
        assert_eq!(shown["untaken_events"], json!({"other": 1}), "{setup:?}");
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h22_a_request_with_a_key_reaches_the_instance_that_was_seen_or_none() {
    for setup in Setup::ALL {
        let world = World::new(setup).await;
        let old = world.start("approval", "a", Value::Null).await["key"].as_str().unwrap().to_owned();
        world.place.delete(&format!("instances/a?force=true&key={old}")).expect(200).await;
        let new = world.start("dial", "a", Value::Null).await["key"].as_str().unwrap().to_owned();
        world.running("a").await;
        let before = world.place.get("instances/a").expect(200).await.json();
        for (method, path) in [
            ("GET", "instances/a"),
            ("GET", "instances/a/result"),
            ("GET", "instances/a/history"),
            ("GET", "instances/a/waits"),
            ("GET", "instances/a/tree"),
            ("GET", "instances/a/timeline"),
            ("GET", "instances/a/children"),
            ("GET", "instances/a/export"),
            ("GET", "instances/a/executions"),
            ("GET", "instances/a/executions/1/events/1"),
            ("POST", "instances/a/events/approved"),
            ("POST", "instances/a/queries/position"),
            ("POST", "instances/a/updates/set"),
            ("POST", "instances/a/cancel"),
            ("POST", "instances/a/terminate"),
            ("POST", "instances/a/retry"),
            ("POST", "instances/a/pause"),
            ("POST", "instances/a/resume"),
            ("DELETE", "instances/a"),
        ] {
            world.place.ask(method, &format!("{path}?key={old}")).refused(412, "PER-0812").await;
        }
        let after = world.place.get("instances/a").expect(200).await.json();
        assert_eq!(
            (before["turns"].clone(), &after["status"]),
            (after["turns"].clone(), &json!("running")),
            "{setup:?}"
        );
        let asked = world.place.post(&format!("instances/a/updates/set?key={new}"), json!(10));
        asked.expect(200).await;
        world.place.get("instances/a?key=nonsense").refused(400, "PER-0805").await;
        world.place.get(&format!("instances/nobody?key={new}")).refused(404, "PER-0605").await;
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h14_cancel_and_terminate_record_the_reason() {
    for setup in Setup::ALL {
        let world = World::new(setup).await;
        for (verb, status) in [("cancel", "cancelled"), ("terminate", "terminated")] {
            world.start("approval", verb, Value::Null).await;
            let path = format!("instances/{verb}/{verb}");
            world.place.post(&path, json!({"reason": "out of stock"})).expect(202).await;
            let ended = world.ended(verb).await;
            assert_eq!(
                (&ended["status"], &ended["reason"]),
                (&json!(status), &json!("out of stock")),
                "{setup:?}"
            );
            world.place.post(&path, json!({})).refused(409, "PER-0607").await;
            world.place.post(&path, json!({"raeson": "x"})).refused(400, "PER-0805").await;
        }
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h19_deleting_retrying_and_pausing_say_why_they_do_nothing() {
    for setup in [Setup::MemoryMounted, Setup::SqliteServed] {
        let world = World::new(setup).await;
        world.start("approval", "a", Value::Null).await;
        world.place.delete("instances/a").refused(409, "PER-0620").await;
        world.place.ask("POST", "instances/a/retry").refused(409, "PER-0611").await;
        world.place.post("instances/a/pause", json!({"reason": "audit"})).expect(202).await;
        while world.place.get("instances/a").expect(200).await.json()["blocked"].is_null() {
            world.client.changed(std::time::Duration::from_millis(50)).await;
        }
        world.place.ask("POST", "instances/a/retry").refused(409, "PER-0611").await;
        world.place.post("instances/a/resume", json!({})).expect(202).await;
        world.place.delete("instances/a?force=true").expect(200).await;
        world.place.get("instances/a").refused(404, "PER-0605").await;

        world.start("panics", "p", Value::Null).await;
        world.blocked("p").await;
        world.place.ask("POST", "instances/p/retry").expect(202).await;
        world.place.post("instances/p/skip", json!({"event": 99})).refused(409, "PER-0632").await;
        world.place.post("instances/p/skip", json!({})).refused(400, "PER-0805").await;
        world.blocked("p").await;
        let causes = world.place.get("blocked").expect(200).await.json();
        assert_eq!(
            (&causes["causes"][0]["code"], &causes["causes"][0]["samples"]),
            (&json!("PER-0201"), &json!(["p"]))
        );
        world.place.post("instances/p/events/x", json!(1)).expect(202).await;
        world.place.post("instances/p/updates/x", json!(1)).refused(409, "PER-0623").await;
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g42_an_activity_is_completed_by_its_token_over_http() {
    for setup in Setup::ALL {
        let world = World::new(setup).await;
        let mailbox = world.path("token");
        world.start("signed", "s", json!(mailbox.display().to_string())).await;
        while !mailbox.exists() {
            world.client.changed(std::time::Duration::from_millis(20)).await;
        }
        let token = std::fs::read_to_string(&mailbox).unwrap();
        let report = |path: &str, body: Value| world.place.post(path, body);
        report("activities/heartbeat", json!({"token": token, "details": {"read": 3}})).expect(202).await;
        report("activities/complete", json!({"token": "nonsense", "result": true}))
            .refused(400, "PER-0635")
            .await;
        report("activities/complete", json!({"result": true})).refused(400, "PER-0805").await;
        report("activities/complete", json!({"token": token, "result": true})).expect(202).await;
        assert_eq!(world.ended("s").await["output"], true, "{setup:?}");
        report("activities/complete", json!({"token": token, "result": true})).expect(202).await;
        report("activities/complete", json!({"token": token, "result": false}))
            .refused(409, "PER-0637")
            .await;
        report("activities/fail", json!({"token": token, "error": "no"})).refused(409, "PER-0637").await;
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h22_an_operation_acts_on_what_it_listed_and_can_be_watched() {
    let world = World::new(Setup::SqliteMounted).await;
    for number in 0..25 {
        world.start("approval", &format!("a-{number}"), Value::Null).await;
    }
    world.start("approval", "other", Value::Null).await;
    let body = json!({"action": "terminate", "filter": "id_prefix=a-", "reason": "cleanup", "dry_run": true});
    let dry = world.place.post("operations", body).expect(200).await.json();
    assert_eq!((&dry["count"]["rows"], dry["samples"].as_array().unwrap().len()), (&json!(25), 20));
    let limited = json!({"action": "terminate", "filter": "id_prefix=a-", "reason": "cleanup", "at_most": 5});
    let ended = operation(&world, limited).await;
    assert_eq!((&ended["state"], &ended["done"]), (&json!("stopped"), &json!(5)), "{ended}");
    let body = json!({"action": "terminate", "filter": "id_prefix=a-", "reason": "cleanup"});
    let ended = operation(&world, body).await;
    assert_eq!(
        (&ended["state"], &ended["done"], &ended["skipped"]),
        (&json!("done"), &json!(20), &json!(5)),
        "{ended}"
    );
    let pruned = operation(&world, json!({"action": "prune", "filter": ""})).await;
    assert_eq!((&pruned["done"], &pruned["skipped"]), (&json!(25), &json!(1)), "{pruned}");
    world.place.get("instances/other").expect(200).await;
    let begin = || {
        world
            .place
            .post("operations", json!({"action": "retry", "filter": ""}))
            .header("idempotency-key", "k")
    };
    assert_eq!(begin().expect(202).await.json()["id"], begin().expect(202).await.json()["id"]);
    // Also if both arrive at the same time.
    let together = |number: usize| {
        let body = json!({"action": "retry", "filter": "id_contains=zz"});
        let begun = world.place.post("operations", body).header("idempotency-key", &format!("k-{number}"));
        async move { begun.expect(202).await.json()["id"].as_str().unwrap().to_owned() }
    };
    for number in 0..10 {
        let begun = futures_util::future::join_all((0..8).map(|_| together(number))).await;
        assert!(begun.iter().all(|id| *id == begun[0]), "{begun:?}");
    }
    let all = world.place.get("operations").expect(200).await.json();
    assert_eq!(all["operations"].as_array().unwrap().len(), 14);
    world.place.get("operations/nothing").refused(404, "PER-0814").await;
    world.place.post("operations", json!({"action": "raise", "filter": ""})).refused(400, "PER-0805").await;
    world
        .place
        .post("operations", json!({"action": "retry", "filter": "statsu=x"}))
        .refused(400, "PER-0805")
        .await;
    world.end().await;
}

pub(crate) async fn operation(world: &World, body: Value) -> Value {
    let begun = world.place.post("operations", body).expect(202).await;
    let location = begun.header("location").unwrap().to_owned();
    loop {
        let progress = world.place.get(&location).expect(200).await.json();
        if progress["state"] != "running" {
            return progress;
        }
        world.client.changed(std::time::Duration::from_millis(20)).await;
    }
}
