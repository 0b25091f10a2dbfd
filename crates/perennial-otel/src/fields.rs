//! The fields of a span, as they are recorded.

use std::fmt;

use opentelemetry::Value;
use tracing::field::{Field, Visit};

/// Fields by name. A field that is recorded again replaces its value.
#[derive(Debug, Default)]
pub(crate) struct Fields(Vec<(&'static str, Value)>);

impl Fields {
    fn set(&mut self, field: &Field, value: Value) {
        let name = field.name();
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name, value)),
        }
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == name).and_then(|(_, value)| match value {
            Value::String(text) => Some(text.as_str()),
            _ => None,
        })
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| *known == name)
    }

    pub(crate) fn id(&self, name: &str) -> Option<u64> {
        u64::from_str_radix(self.text(name)?, 16).ok()
    }

    pub(crate) fn trace_id(&self) -> Option<u128> {
        u128::from_str_radix(self.text("trace_id")?, 16).ok()
    }

    pub(crate) fn into_values(self) -> impl Iterator<Item = (&'static str, Value)> {
        self.0.into_iter()
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set(field, Value::from(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, Value::from(value.to_owned()));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, Value::from(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        match i64::try_from(value) {
            Ok(value) => self.set(field, Value::from(value)),
            Err(_) => self.set(field, Value::from(value.to_string())),
        }
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, Value::from(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, Value::from(value));
    }
}
