//! Arguments of a marked function, given by name.
//!
//! Several arguments are recorded as a list, in the order of the function. Where people write the input by
//! hand, in a shell or over HTTP, they can pass an object with the names of the arguments instead; it is
//! recorded as given.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use perennial_core::{NotOfType, OrchestrationHandler, Payload};
use serde::de::Error;

use crate::activity::{ActivityContext, ActivityFutureBox, ActivityHandler};

/// Code that takes several arguments as a list or by name.
struct ByName<H: ?Sized> {
    names: &'static [&'static str],
    handler: Arc<H>,
}

/// Wraps an orchestration so that it also takes its arguments by name.
pub(super) fn orchestration(
    names: &'static [&'static str],
    handler: Arc<dyn OrchestrationHandler>,
) -> Arc<dyn OrchestrationHandler> {
    if names.len() < 2 { handler } else { Arc::new(ByName { names, handler }) }
}

/// Wraps an activity so that it also takes its arguments by name.
pub(super) fn activity(
    names: &'static [&'static str],
    handler: Arc<dyn ActivityHandler>,
) -> Arc<dyn ActivityHandler> {
    if names.len() < 2 { handler } else { Arc::new(ByName { names, handler }) }
}

impl OrchestrationHandler for ByName<dyn OrchestrationHandler> {
    fn run(
        &self,
        ctx: perennial_core::OrchestrationContext,
        input: Payload,
    ) -> Pin<Box<dyn Future<Output = Result<Payload, Payload>> + Send>> {
        self.handler.run(ctx, in_order(self.names, input))
    }

    fn check_input(&self, input: &Payload) -> Result<(), NotOfType> {
        let checked = self.handler.check_input(&in_order(self.names, input.clone()));
        checked.map_err(|problem| match wrong_name(self.names, input) {
            Some(error) => NotOfType { error, ..problem },
            None => problem,
        })
    }

    fn log_target(&self) -> &'static str {
        self.handler.log_target()
    }
}

impl ActivityHandler for ByName<dyn ActivityHandler> {
    fn run(&self, ctx: ActivityContext, input: Payload) -> ActivityFutureBox {
        self.handler.run(ctx, in_order(self.names, input))
    }
}

/// Converts an object with exactly these names into a list in their order; returns anything else unchanged.
fn in_order(names: &[&str], input: Payload) -> Payload {
    if !input.as_json().starts_with('{') {
        return input;
    }
    let Ok(fields) = input.decode::<BTreeMap<String, Payload>>() else { return input };
    let values: Option<Vec<&Payload>> = names.iter().map(|name| fields.get(*name)).collect();
    match values.filter(|values| values.len() == fields.len()).map(|values| Payload::encode(&values)) {
        Some(Ok(list)) => list,
        _ => input,
    }
}

/// Finds a missing or unknown name in an object. The decoder, which expects a list, does not report it.
fn wrong_name(names: &'static [&'static str], input: &Payload) -> Option<serde_json::Error> {
    let fields = input.decode::<BTreeMap<String, Payload>>().ok()?;
    let missing = names.iter().find(|name| !fields.contains_key(**name));
    let unknown = || fields.keys().find(|field| !names.contains(&field.as_str()));
    match missing {
        Some(name) => Some(serde_json::Error::missing_field(name)),
        None => unknown().map(|field| serde_json::Error::unknown_field(field, names)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p3_a_wrong_name_of_an_argument_is_named() {
        let wrong = |json: &str| wrong_name(&["card", "cents"], &Payload::from_json(json).unwrap());
        let words = |json: &str| wrong(json).unwrap().to_string();
        assert_eq!(words(r#"{"cents":5,"cart":"x"}"#), "missing field `card`");
        assert_eq!(
            words(r#"{"cents":5,"card":"x","more":1}"#),
            "unknown field `more`, expected `card` or `cents`"
        );
        assert!(wrong(r#"{"cents":"many","card":"x"}"#).is_none() && wrong(r#"["x",5]"#).is_none());
    }

    #[test]
    fn p1_arguments_by_name_are_put_in_order_if_the_names_are_right() {
        let in_order = |json: &str| {
            let input = Payload::from_json(json).unwrap();
            in_order(&["card", "cents"], input).as_json().to_owned()
        };
        assert_eq!(in_order(r#"{"cents":5,"card":{"b":1,"a":2}}"#), r#"[{"b":1,"a":2},5]"#);
        assert_eq!(in_order(r#"["x",5]"#), r#"["x",5]"#);
        for other in [r#"{"cents":5}"#, r#"{"cents":5,"card":"x","more":1}"#, r#"{"cents":5,"cart":"x"}"#] {
            assert_eq!(in_order(other), other);
        }
    }
}
