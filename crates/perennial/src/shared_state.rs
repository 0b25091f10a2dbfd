//! State that activities share: connection pools, clients of services.

use std::any::{Any, TypeId, type_name};
use std::collections::BTreeMap;
use std::sync::Arc;

use perennial_core::Payload;

use crate::activity::{ActivityContext, ActivityFutureBox, ActivityHandler};

/// The type of a state that an activity declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateType {
    id: TypeId,
    name: &'static str,
}

impl StateType {
    /// Describes the type `T`.
    pub fn of<T: Send + Sync + 'static>() -> StateType {
        StateType { id: TypeId::of::<T>(), name: type_name::<T>() }
    }

    /// The path of the type, for messages.
    pub fn name(&self) -> &'static str {
        self.name
    }
}

/// At most one value of each type.
#[derive(Clone, Default)]
pub(crate) struct SharedState {
    values: BTreeMap<TypeId, (&'static str, Arc<dyn Any + Send + Sync>)>,
}

impl SharedState {
    /// Sets the value of a type. Returns whether there was one.
    pub(crate) fn insert<T: Send + Sync + 'static>(&mut self, value: T) -> bool {
        self.values.insert(TypeId::of::<T>(), (type_name::<T>(), Arc::new(value))).is_some()
    }

    /// Adds all values of `other`. Fails with the name of a type that both have.
    pub(crate) fn merge(&mut self, other: SharedState) -> Result<(), &'static str> {
        for (id, value) in other.values {
            let name = value.0;
            if self.values.insert(id, value).is_some() {
                return Err(name);
            }
        }
        Ok(())
    }

    pub(crate) fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.values.get(&TypeId::of::<T>())?.1.downcast_ref()
    }

    pub(crate) fn has(&self, wanted: &StateType) -> bool {
        self.values.contains_key(&wanted.id)
    }

    /// The values of these types, where present.
    fn only(&self, wanted: &[StateType]) -> SharedState {
        let values =
            wanted.iter().filter_map(|wanted| Some((wanted.id, self.values.get(&wanted.id)?.clone())));
        SharedState { values: values.collect() }
    }

    /// Gives an activity access to the types it declares and no others: the start can check only declared
    /// types.
    pub(crate) fn given_to(
        &self,
        handler: Arc<dyn ActivityHandler>,
        declared: &[StateType],
    ) -> Arc<dyn ActivityHandler> {
        if declared.is_empty() {
            return handler;
        }
        Arc::new(WithState { handler, state: Arc::new(self.only(declared)) })
    }

    /// Gives an activity access to all types.
    pub(crate) fn given_in_full_to(&self, handler: Arc<dyn ActivityHandler>) -> Arc<dyn ActivityHandler> {
        Arc::new(WithState { handler, state: Arc::new(self.clone()) })
    }
}

struct WithState {
    handler: Arc<dyn ActivityHandler>,
    state: Arc<SharedState>,
}

impl ActivityHandler for WithState {
    fn run(&self, mut ctx: ActivityContext, input: Payload) -> ActivityFutureBox {
        ctx.state = Some(Arc::clone(&self.state));
        self.handler.run(ctx, input)
    }
}
