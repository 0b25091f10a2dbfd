//! What is logged while a test runs.
#![allow(dead_code, reason = "each test crate uses the part it needs")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_core::span::Current;

thread_local! {
    /// The spans that this thread is in, innermost last.
    static ENTERED: RefCell<Vec<Id>> = const { RefCell::new(Vec::new()) };
}

/// Collects what Perennial and its tests log, wherever it is the default subscriber.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Logged>>);

#[derive(Default)]
struct Logged {
    lines: Vec<Line>,
    spans: Vec<(&'static Metadata<'static>, BTreeMap<String, String>)>,
}

/// One event.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) level: Level,
    pub(crate) target: String,
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u32>,
    pub(crate) message: String,
    pub(crate) fields: BTreeMap<String, String>,
    /// The fields of the span that it is in.
    pub(crate) span: BTreeMap<String, String>,
}

impl Line {
    /// The value of a field; the text of a string field stands as it is.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }

    /// `target message`, for tests that compare several lines at once.
    pub(crate) fn short(&self) -> String {
        format!("{} {} {}", self.level, self.target, self.message)
    }
}

#[derive(Default)]
struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let target = metadata.target();
        target.starts_with("perennial") || target.starts_with(module_path!().split("::").next().unwrap())
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields::default();
        span.record(&mut fields);
        let mut logged = self.0.lock().unwrap();
        logged.spans.push((span.metadata(), fields.0));
        Id::from_u64(logged.spans.len() as u64)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let (metadata, mut fields) = (event.metadata(), Fields::default());
        event.record(&mut fields);
        let entered = ENTERED.with_borrow(|entered| entered.last().cloned());
        let mut logged = self.0.lock().unwrap();
        let span = entered.map(|id| logged.spans[id.into_u64() as usize - 1].1.clone()).unwrap_or_default();
        logged.lines.push(Line {
            level: *metadata.level(),
            target: metadata.target().to_owned(),
            file: metadata.file().map(str::to_owned),
            line: metadata.line(),
            message: fields.0.remove("message").unwrap_or_default(),
            fields: fields.0,
            span,
        });
    }

    fn enter(&self, id: &Id) {
        ENTERED.with_borrow_mut(|entered| entered.push(id.clone()));
    }

    fn exit(&self, id: &Id) {
        ENTERED.with_borrow_mut(|entered| entered.retain(|other| other != id));
    }

    fn current_span(&self) -> Current {
        let Some(id) = ENTERED.with_borrow(|entered| entered.last().cloned()) else { return Current::none() };
        let metadata = self.0.lock().unwrap().spans[id.into_u64() as usize - 1].0;
        Current::new(id, metadata)
    }
}

impl Log {
    /// What was logged since the last call, as `LEVEL message`.
    pub(crate) fn take(&self) -> Vec<String> {
        self.take_lines().into_iter().map(|line| format!("{} {}", line.level, line.message)).collect()
    }

    /// The same, without what is only information.
    pub(crate) fn take_warnings(&self) -> Vec<String> {
        let lines = self.take_lines().into_iter().filter(|line| line.level <= Level::WARN);
        lines.map(|line| format!("{} {}", line.level, line.message)).collect()
    }

    /// What was logged so far, and is kept.
    pub(crate) fn lines(&self) -> Vec<Line> {
        self.0.lock().unwrap().lines.clone()
    }

    pub(crate) fn take_lines(&self) -> Vec<Line> {
        std::mem::take(&mut self.0.lock().unwrap().lines)
    }
}
