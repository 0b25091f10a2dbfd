//! A damaged row of a history, an inbox or the tasks is named with its instance and stops nothing else, on every store.

use std::collections::BTreeSet;

use perennial::{OrchestrationContext, Payload, Runtime, RuntimeBuilder};

use super::support::{Place, event, failed, relaxed, soon, until};

type Outcome = Result<Payload, Payload>;

/// An instance, and the table and column of the row that is damaged.
const DAMAGE: [(&str, &str, &str); 3] =
    [("history", "turns", "body"), ("message", "inbox", "body"), ("task", "tasks", "work")];

async fn patient(ctx: OrchestrationContext, _: Payload) -> Outcome {
    Ok(ctx.schedule_wait(event("go")).await)
}

/// Its activity waits for a node with that tag.
async fn tagged(ctx: OrchestrationContext, _: Payload) -> Outcome {
    ctx.schedule_activity("work", Payload::null()).tag("gpu").await.map_err(failed)
}

fn runtime(place: &Place) -> RuntimeBuilder {
    let builder = Runtime::open(place.url()).options(relaxed());
    builder.orchestration("patient", "1.0.0", patient).orchestration("tagged", "1.0.0", tagged)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i16_a_damaged_turn_message_or_task_is_named_and_stops_nobody() {
    let place = Place::new();
    let runtime_1 = runtime(&place).start().await.unwrap();
    let client = runtime_1.client();
    for id in ["history", "message", "well"] {
        client.start("patient", id, Payload::null()).await.unwrap();
    }
    client.start("tagged", "task", Payload::null()).await.unwrap();
    soon(async { while client.stats().await.unwrap().tasks_queued.rows == 0 {} }).await;
    runtime_1.shutdown().await.unwrap();
    let guest = place.guest();
    for id in ["message", "well"] {
        guest.raise_event(id, "go", "went").await.unwrap();
    }
    for (id, table, column) in DAMAGE {
        let of_instance = format!("WHERE key = (SELECT key FROM instances WHERE id = '{id}')");
        let bytes = place.bytes(&format!("SELECT {column} FROM {table} {of_instance}"));
        let half = place.literal(&bytes[..bytes.len() / 2]);
        assert_eq!(place.execute(&format!("UPDATE {table} SET {column} = {half} {of_instance}")), 1);
    }
    let report = guest.verify(|_| ()).await.unwrap();
    let named: BTreeSet<&str> = report.damage.iter().map(|damage| &*damage.id).collect();
    assert_eq!(named, DAMAGE.map(|(id, ..)| id).into(), "{:?}", report.damage);

    let runtime_2 = runtime(&place).start().await.unwrap();
    let client = runtime_2.client();
    for id in ["history", "message"] {
        client.raise_event(id, "go", "went").await.unwrap();
        until(&client, id, |status| status.blocked.is_some()).await;
    }
    assert_eq!(soon(client.result("well")).await.unwrap().as_json(), r#""went""#);
    client.start("patient", "next", Payload::null()).await.unwrap();
    client.raise_event("next", "go", "went").await.unwrap();
    assert_eq!(soon(client.result("next")).await.unwrap().as_json(), r#""went""#);
    assert_eq!(runtime_2.failure(), None);
    for (id, ..) in DAMAGE {
        assert_eq!(soon(client.delete(id, true)).await, Ok(1), "{id}");
    }
    assert_eq!(guest.verify(|_| ()).await.unwrap().damage, []);
    runtime_2.shutdown().await.unwrap();
}
