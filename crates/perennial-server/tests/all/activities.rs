//! Activities that are retried, and what the code of an instance takes.

use serde_json::{Value, json};

use crate::world::{Setup, World};

#[tokio::test(flavor = "multi_thread")]
async fn h42_the_attempt_that_waits_for_its_pause_is_made_now() {
    for setup in Setup::ALL {
        let world = World::new(setup).await;
        let gate = world.path("gate");
        let started = world.start("flaky", "f", json!(gate)).await;
        let event = world.retrying("f", 2).await;
        let path = format!("instances/f/activities/{event}/retry");
        // It fails again, and waits for the third attempt.
        world.place.post(&path, json!({})).expect(202).await;
        world.retrying("f", 3).await;
        let key = started["key"].as_str().unwrap();
        let waits = world.place.get("instances/f/waits").expect(200).await.json();
        assert_eq!(
            (&waits["waits"][0]["state"], &waits["waits"][0]["attempt"]),
            (&json!("retry"), &json!(3))
        );
        // Bound to another instance or execution, nothing happens.
        let other = "00000000-0000-7000-8000-000000000000";
        world.place.post(&format!("{path}?key={other}"), json!({})).refused(412, "PER-0812").await;
        world.place.post(&format!("{path}?execution=2"), json!({})).refused(409, "PER-0644").await;
        world.place.post("instances/f/activities/1/retry", json!({})).refused(409, "PER-0644").await;
        world.place.post("instances/f/activities/x/retry", json!({})).refused(404, "PER-0814").await;
        world.place.post("instances/g/activities/2/retry", json!({})).refused(404, "PER-0605").await;
        assert_eq!(world.client.tasks("f").await.unwrap()[0].attempt, 3, "{setup:?}");
        std::fs::write(&gate, "").unwrap();
        world.place.post(&format!("{path}?key={key}&execution=1"), json!({})).expect(202).await;
        assert_eq!(world.ended("f").await["output"], 42);
        world.place.post(&path, json!({})).refused(409, "PER-0607").await;
        // Every attempt is a segment of the bar, with its error.
        let timeline = world.place.get("instances/f/timeline").expect(200).await.json();
        let attempts = timeline["operations"][0]["attempts"].as_array().unwrap().clone();
        assert_eq!(attempts.len(), 3, "{timeline}");
        assert!(attempts[0]["error"].as_str().unwrap().contains("503"), "{timeline}");
        assert_eq!(timeline["totals"][0]["retried"], 1);
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_activity_that_runs_or_waits_for_its_token_is_not_retried() {
    let world = World::new(Setup::SqliteServed).await;
    let mailbox = world.path("mailbox");
    world.start("signed", "s", json!(mailbox)).await;
    while !mailbox.exists() {
        tokio::task::yield_now().await;
    }
    world.place.post("instances/s/activities/2/retry", json!({})).refused(409, "PER-0644").await;
    let token = std::fs::read_to_string(&mailbox).unwrap();
    world.place.post("activities/complete", json!({"token": token, "result": true})).expect(202).await;
    assert_eq!(world.ended("s").await["output"], true);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d35_activities_are_grouped_by_name_and_retried_all_at_once() {
    for setup in [Setup::MemoryMounted, Setup::SqliteServed, Setup::PostgresServed] {
        let world = World::new(setup).await;
        let gate = world.path("gate");
        for number in 0..5 {
            world.start("flaky", &format!("f-{number}"), json!(gate)).await;
            world.retrying(&format!("f-{number}"), 2).await;
        }
        let groups = world.place.get("tasks/groups").expect(200).await.json();
        let group = &groups["groups"][0];
        assert_eq!(
            (&group["name"], &group["count"], &group["nodes"]),
            (&json!("charge"), &json!(5), &json!(1))
        );
        let error = &group["errors"][0];
        assert_eq!((&error["count"], &group["state"]), (&json!(5), &json!("waiting")), "{groups}");
        assert!(error["text"].as_str().unwrap().contains("#: card service #"), "{error}");
        let tasks = world.place.get("tasks?limit=2").expect(200).await.json();
        assert!(tasks["rows"][0]["id"].as_str().unwrap().starts_with("f-"), "{tasks}");
        assert_eq!(tasks["rows"][0]["orchestration"], "flaky");
        std::fs::write(&gate, "").unwrap();
        let body = json!({"action": "retry_activities", "filter": "retrying=true", "activity": "charge"});
        let begun = world.place.post("operations", body).expect(202).await.json();
        assert_eq!(begun["total"]["rows"], 5);
        for number in 0..5 {
            assert_eq!(world.ended(&format!("f-{number}")).await["status"], "completed", "{setup:?}");
        }
        let wrong = json!({"action": "cancel", "filter": "", "activity": "charge"});
        world.place.post("operations", wrong).refused(400, "PER-0805").await;
        world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d26_the_queries_updates_and_events_that_the_code_takes_are_named() {
    for setup in Setup::ALL {
        let mut world = World::new(setup).await;
        world.start("dial", "d", Value::Null).await;
        world.running("d").await;
        let handlers = world.place.get("instances/d/handlers").expect(200).await.json();
        let expected = json!({"known": true, "queries": ["position"], "updates": ["set"], "events": []});
        assert_eq!(handlers, expected, "{setup:?}");
        world.start("approval", "a", Value::Null).await;
        world.running("a").await;
        let handlers = world.place.get("instances/a/handlers").expect(200).await.json();
        assert_eq!((&handlers["known"], &handlers["events"]), (&json!(true), &json!(["approved"])));
        world.place.post("instances/d/updates/set", json!(10)).expect(200).await;
        world.ended("d").await;
        let ended = world.place.get("instances/d/handlers").expect(200).await.json();
        assert_eq!(ended, json!({"known": true, "queries": ["position"], "updates": [], "events": []}));
        world.start("panics", "p", Value::Null).await;
        world.blocked("p").await;
        let blocked = world.place.get("instances/p/handlers").expect(200).await.json();
        assert_eq!(blocked["known"], false, "{blocked}");
        world.place.get("instances/nobody/handlers").refused(404, "PER-0605").await;
        if matches!(setup, Setup::SqliteServed | Setup::PostgresServed) {
            world.runtime.take().unwrap().shutdown().await.unwrap();
            let nobody = world.place.get("instances/a/handlers").expect(200).await.json();
            assert_eq!(nobody["known"], false, "without a runtime, at once");
            world.place.post("instances/a/activities/2/retry", json!({})).refused(504, "PER-0624").await;
        }
        world.end().await;
    }
}
