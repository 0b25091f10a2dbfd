//! The diagnostic log of a node: the engine's log events, as lines on standard error.

use std::fmt::Write;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::log::now_ms;

/// A subscriber that writes the project's log events up to a level.
#[derive(Debug)]
pub struct Journal {
    level: Level,
}

impl Journal {
    /// Installs the journal as the global subscriber.
    pub fn install(level: Level) {
        // This fails only if the process already has a subscriber.
        let _ = tracing::subscriber::set_global_default(Journal { level });
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let written = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
        written.expect("a string takes everything");
    }
}

impl Subscriber for Journal {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("perennial") && *metadata.level() <= self.level
    }

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        let mut line = Line(format!("{} {} {}", now_ms(), metadata.level(), metadata.target()));
        event.record(&mut line);
        eprintln!("{}", line.0);
    }

    // Spans are not written.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
