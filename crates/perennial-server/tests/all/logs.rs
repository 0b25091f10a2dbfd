//! What changes leave in the log.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Mutex, Once};

use perennial_server::{Access, Options, Role, TokenFile};
use serde_json::{Value, json};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::access::add_token;
use crate::world::{Setup, World};

type Line = BTreeMap<&'static str, String>;

static LINES: Mutex<Vec<Line>> = Mutex::new(Vec::new());

/// Keeps the lines of the server.
struct Kept;

struct Fields(Line);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

impl Subscriber for Kept {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "perennial::http" && !metadata.is_span()
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(Line::new());
        event.record(&mut fields);
        LINES.lock().unwrap().push(fields.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn lines_about(instance: &str) -> Vec<Line> {
    let lines = LINES.lock().unwrap();
    lines.iter().filter(|line| line.get("instance").is_some_and(|id| id == instance)).cloned().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn h14_each_change_leaves_one_line_without_payloads() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing::subscriber::set_global_default(Kept).unwrap());
    let directory = tempfile::tempdir().unwrap();
    let tokens = directory.path().join("tokens");
    let (operator, reader) =
        (add_token(&tokens, "ada", Role::Operator), add_token(&tokens, "bob", Role::Reader));
    for setup in [Setup::MemoryMounted, Setup::SqliteServed, Setup::PostgresServed] {
        let id = format!("logged-{setup:?}");
        let options = Options::default().access(Access::tokens(TokenFile::open(&tokens).unwrap()));
        let world = World::with(setup, options).await;
        let body = json!({"name": "approval", "id": id, "input": "s3cret", "attributes": {"city": "s3cret"}});
        let started = world.place.post("instances", body).token(&operator).expect(201).await.json();
        let key = started["key"].as_str().unwrap();
        let path = |rest: &str| format!("instances/{id}/{rest}");
        world.place.post(&path("events/other"), json!("s3cret")).token(&operator).expect(202).await;
        world.place.post(&path("retry"), json!({})).token(&operator).refused(409, "PER-0611").await;
        let reason = json!({"reason": "too late"});
        world.place.post(&path("terminate"), reason).token(&operator).expect(202).await;
        let path_of_result = format!("instances/{id}/result?wait_ms=30000");
        let ended = world.place.get(&path_of_result).token(&operator).expect(200).await.json();
        let recorded = ended["reason"].as_str().unwrap();
        assert!(recorded.contains("too late") && recorded.contains("ada"), "{recorded}");
        world.place.delete(&format!("instances/{id}")).token(&operator).expect(200).await;
        // What was refused, or only looked, was no change.
        world.place.delete(&format!("instances/{id}")).token(&reader).refused(403, "PER-0802").await;
        world.place.get(&format!("instances/{id}")).token(&reader).refused(404, "PER-0605").await;
        let lines = lines_about(&id);
        let shown: Vec<[&str; 4]> = lines
            .iter()
            .map(|line| ["caller", "route", "key", "outcome"].map(|name| line.get(name).map_or("", |v| v)))
            .collect();
        let expected = [
            ["ada", "startInstance", key, "201"],
            ["ada", "raiseEvent", key, "202"],
            ["ada", "retryInstance", key, "PER-0611"],
            ["ada", "terminateInstance", key, "202"],
            ["ada", "deleteInstance", key, "200"],
        ];
        assert_eq!(shown, expected, "{setup:?}");
        assert!(!format!("{lines:?}").contains("s3cret"), "{lines:?}");
        world.end().await;
    }
}

/// A start with a key and an event, sent twice, is one start and one event.
#[tokio::test(flavor = "multi_thread")]
async fn h21_a_repeated_start_raises_its_event_once() {
    for setup in Setup::ALL {
        let world = World::new(setup).await;
        let start = || {
            let event = json!({"name": "unread", "payload": 1});
            let body = json!({"name": "dial", "event": event});
            world.place.post("instances", body).header("idempotency-key", "k-1")
        };
        let first = start().expect(201).await.json();
        let second = start().expect(201).await.json();
        assert_eq!((&first["id"], &first["key"]), (&second["id"], &second["key"]), "{setup:?}");
        let id = first["id"].as_str().unwrap();
        world.running(id).await;
        // Another event after both of them, so that both would have been taken.
        world.place.post(&format!("instances/{id}/events/last"), Value::Null).expect(202).await;
        let unread = loop {
            let changed = world.client.changed(std::time::Duration::from_millis(50));
            let details = world.place.get(&format!("instances/{id}")).expect(200).await.json();
            if details["untaken_events"].get("last").is_some() {
                break details["untaken_events"].clone();
            }
            changed.await;
        };
        assert_eq!(unread, json!({"unread": 1, "last": 1}), "{setup:?}");
        world.end().await;
    }
}
