//! Registering on the builder of a runtime: the methods of [`Registrations`], for programs that need no value of them.

use std::future::Future;

use perennial_core::Handlers;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::builder::RuntimeBuilder;
use crate::activity::ActivityContext;
use crate::registrations::Registrations;
use crate::typed::{ActivityCode, BlockingCode, OrchestrationCode, OrchestrationContext, Register};

impl RuntimeBuilder {
    /// Adds registrations, such as those that a program shares with its tests. See [`Registrations`].
    pub fn registrations(self, registrations: Registrations) -> RuntimeBuilder {
        self.registering(|own| own.merge(registrations))
    }

    /// Registers a function that is marked with `#[orchestration]` or `#[activity]`.
    /// See [`Registrations::register`].
    pub fn register<K>(self, function: impl Register<K>) -> RuntimeBuilder {
        self.registering(|own| own.register(function))
    }

    /// See [`Registrations::register_with`].
    pub fn register_with<K, S: Send + Sync + 'static>(
        self,
        function: impl Register<K>,
        state: S,
    ) -> RuntimeBuilder {
        self.registering(|own| own.register_with(function, state))
    }

    /// Registers a closure or an unmarked function as an orchestration, under a name and a version.
    /// See [`Registrations::orchestration`].
    pub fn orchestration<K>(
        self,
        name: &str,
        version: &str,
        code: impl OrchestrationCode<K>,
    ) -> RuntimeBuilder {
        self.registering(|own| own.orchestration(name, version, code))
    }

    /// Registers a closure or an unmarked function as an activity, under a name.
    /// See [`Registrations::activity`].
    pub fn activity<K>(self, name: &str, code: impl ActivityCode<K>) -> RuntimeBuilder {
        self.registering(|own| own.activity(name, code))
    }

    /// Registers a closure or a function that blocks its thread as an activity, under a name.
    /// See [`Registrations::blocking_activity`].
    pub fn blocking_activity<K>(self, name: &str, code: impl BlockingCode<K>) -> RuntimeBuilder {
        self.registering(|own| own.blocking_activity(name, code))
    }

    /// Registers code for all activities whose names begin alike and are not registered themselves.
    /// See [`Registrations::fallback_activity`].
    pub fn fallback_activity<F, Fut, I, O, E>(self, pattern: &str, code: F) -> RuntimeBuilder
    where
        F: Fn(ActivityContext, String, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
        I: DeserializeOwned + Send + 'static,
        O: Serialize + 'static,
        E: Serialize + 'static,
    {
        self.registering(|own| own.fallback_activity(pattern, code))
    }

    /// Registers code for all orchestrations whose names begin alike and are not registered themselves.
    /// See [`Registrations::fallback_orchestration`].
    pub fn fallback_orchestration<F, Fut, I, O, E>(
        self,
        pattern: &str,
        version: &str,
        code: F,
    ) -> RuntimeBuilder
    where
        F: Fn(OrchestrationContext, String, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
        I: DeserializeOwned + Send + 'static,
        O: Serialize + 'static,
        E: Serialize + 'static,
    {
        self.registering(|own| own.fallback_orchestration(pattern, version, code))
    }

    /// The orchestrations that were registered, for a [`Replayer`](crate::replay::Replayer).
    /// See [`Registrations::handlers`].
    #[must_use]
    pub fn handlers(&self) -> Handlers {
        self.registrations.handlers()
    }

    fn registering(mut self, add: impl FnOnce(Registrations) -> Registrations) -> RuntimeBuilder {
        self.registrations = add(self.registrations);
        self
    }
}
