//! Warnings about servers that can lose acknowledged commits.

use std::fmt::{Debug, Write};
use std::sync::{Mutex, OnceLock, PoisonError};

use perennial_testkit::postgres::{ServerOptions, TestServer};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::support::subject;

static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Collects the warnings of all tests in this process.
struct Listener;

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        WARNINGS.lock().unwrap_or_else(PoisonError::into_inner).push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{}={value:?} ", field.name()).unwrap();
    }
}

/// The warnings that mention a port.
fn warnings_about(port: u16) -> Vec<String> {
    let all = WARNINGS.lock().unwrap_or_else(PoisonError::into_inner);
    all.iter().filter(|line| line.contains(&format!(":{port}/"))).cloned().collect()
}

fn listen() {
    static LISTENING: OnceLock<()> = OnceLock::new();
    LISTENING.get_or_init(|| tracing::subscriber::set_global_default(Listener).unwrap());
}

#[test]
fn s9_a_server_that_does_not_sync_is_warned_about_and_one_that_does_is_not() {
    listen();
    let careless = TestServer::start(&ServerOptions::default().unsynced().set("synchronous_commit", "off"));
    assert_eq!(subject(&careless.new_schema()).find("a"), None);
    let warnings = warnings_about(careless.port());
    for setting in ["setting=\"fsync\"", "setting=\"synchronous_commit\""] {
        assert!(warnings.iter().any(|line| line.contains(setting)), "{setting}: {warnings:?}");
    }
    assert!(warnings.iter().all(|line| line.contains("commits are not synced")), "{warnings:?}");
    let careful = TestServer::start(&ServerOptions::default());
    assert_eq!(subject(&careful.new_schema()).find("a"), None);
    assert_eq!(warnings_about(careful.port()), Vec::<String>::new());
}
