//! What a test environment can run.

use perennial::Registrations;
use perennial::typed::{ActivityCode, OrchestrationCode, Register};
use perennial_core::Handlers;

use super::TestEnvironment;
use super::asking::told;

impl TestEnvironment {
    /// Registers everything that a program registers: tests need not repeat it.
    ///
    /// ```
    /// use perennial::prelude::*;
    /// use perennial_testkit::TestEnvironment;
    ///
    /// #[activity]
    /// async fn greet(_: ActivityContext, name: String) -> Result<String, String> {
    ///     Ok(format!("Hello, {name}!"))
    /// }
    ///
    /// #[orchestration]
    /// async fn greeting(ctx: OrchestrationContext, name: String) -> Result<String, String> {
    ///     Ok(ctx.schedule_activity(greet, name).await?)
    /// }
    ///
    /// // What the program gives to its runtime, too.
    /// fn app() -> Registrations {
    ///     Registrations::new().register(greeting).register(greet)
    /// }
    ///
    /// let mut env = TestEnvironment::new().registrations(app());
    /// assert_eq!(env.run(greeting, "Ada".to_owned()).unwrap(), "Hello, Ada!");
    /// // Mocks stand before what is registered.
    /// let mut env = TestEnvironment::new().registrations(app()).mock(greet, |name| Ok(format!("Hi, {name}!")));
    /// assert_eq!(env.run(greeting, "Ada".to_owned()).unwrap(), "Hi, Ada!");
    /// ```
    #[track_caller]
    pub fn registrations(self, registrations: Registrations) -> TestEnvironment {
        self.add(|own| own.merge(registrations))
    }

    /// Registers a function that is marked with `#[orchestration]` or `#[activity]`.
    #[track_caller]
    pub fn register<K>(self, function: impl Register<K>) -> TestEnvironment {
        self.add(|own| own.register(function))
    }

    /// Registers a closure with types as an orchestration under a name and a version.
    #[track_caller]
    pub fn orchestration<K>(
        self,
        name: &str,
        version: &str,
        code: impl OrchestrationCode<K>,
    ) -> TestEnvironment {
        self.add(|own| own.orchestration(name, version, code))
    }

    /// Registers a closure with types as an activity under a name.
    #[track_caller]
    pub fn activity<K>(self, name: &str, code: impl ActivityCode<K>) -> TestEnvironment {
        self.add(|own| own.activity(name, code))
    }

    #[track_caller]
    fn add(mut self, add: impl FnOnce(Registrations) -> Registrations) -> TestEnvironment {
        if self.driver.is_some() {
            told(Err("what a test registers, it registers before the first start".to_owned()))
        }
        self.registrations = add(std::mem::take(&mut self.registrations));
        if let Some(mistake) = self.registrations.mistake() {
            told(Err(mistake.to_string()))
        }
        self
    }

    /// The orchestrations that are registered.
    pub(super) fn handlers(&self) -> Handlers {
        match &self.driver {
            Some(driver) => driver.registrations().handlers(),
            None => self.registrations.handlers(),
        }
    }
}
