//! The arguments of a marked function, given by their names.
//!
//! Several arguments are recorded as a list, in the order of the function. People who write the input by hand, in a shell or
//! over HTTP, can give an object with the names of the arguments instead; it is recorded as it was given.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use perennial_core::{NotOfType, OrchestrationHandler, Payload};

use crate::activity::{ActivityContext, ActivityFutureBox, ActivityHandler};

/// Code that takes several arguments as a list, or by their names.
struct ByName<H: ?Sized> {
    names: &'static [&'static str],
    handler: Arc<H>,
}

/// The code of an orchestration that takes its arguments by their names, too.
pub(super) fn orchestration(
    names: &'static [&'static str],
    handler: Arc<dyn OrchestrationHandler>,
) -> Arc<dyn OrchestrationHandler> {
    if names.len() < 2 { handler } else { Arc::new(ByName { names, handler }) }
}

/// The code of an activity that takes its arguments by their names, too.
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
        self.handler.check_input(&in_order(self.names, input.clone()))
    }
}

impl ActivityHandler for ByName<dyn ActivityHandler> {
    fn run(&self, ctx: ActivityContext, input: Payload) -> ActivityFutureBox {
        self.handler.run(ctx, in_order(self.names, input))
    }
}

/// An object with exactly these names as a list in their order; anything else as it is.
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

#[cfg(test)]
mod tests {
    use super::*;

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
