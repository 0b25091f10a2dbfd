//! Registrations of a test environment.

use perennial::Registrations;
use perennial::typed::{ActivityCode, OrchestrationCode, Register};
use perennial_core::Handlers;

use super::TestEnvironment;
use super::requests::or_panic;

/// Replaces the registered state of a type.
pub(super) type ReplaceState = Box<dyn FnOnce(Registrations) -> Registrations + Send>;

impl TestEnvironment {
    /// Registers everything that the program registers, so that tests need not repeat it.
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
    /// // The registrations that the program uses, too.
    /// fn app() -> Registrations {
    ///     Registrations::new().register(greeting).register(greet)
    /// }
    ///
    /// let mut env = TestEnvironment::new().registrations(app());
    /// assert_eq!(env.run(greeting, "Ada".to_owned()).unwrap(), "Hello, Ada!");
    /// // Mocks take precedence over registrations.
    /// let mut env = TestEnvironment::new().registrations(app()).mock(greet, |name| Ok(format!("Hi, {name}!")));
    /// assert_eq!(env.run(greeting, "Ada".to_owned()).unwrap(), "Hi, Ada!");
    /// ```
    #[track_caller]
    pub fn registrations(self, registrations: Registrations) -> TestEnvironment {
        self.add(|own| own.merge(registrations))
    }

    /// Registers a function marked with `#[orchestration]` or `#[activity]`.
    #[track_caller]
    pub fn register<K>(self, function: impl Register<K>) -> TestEnvironment {
        self.add(|own| own.register(function))
    }

    /// Registers a typed closure as an orchestration under a name and a version.
    #[track_caller]
    pub fn orchestration<K>(
        self,
        name: &str,
        version: &str,
        code: impl OrchestrationCode<K>,
    ) -> TestEnvironment {
        self.add(|own| own.orchestration(name, version, code))
    }

    /// Registers a typed closure as an activity under a name.
    #[track_caller]
    pub fn activity<K>(self, name: &str, code: impl ActivityCode<K>) -> TestEnvironment {
        self.add(|own| own.activity(name, code))
    }

    /// Provides activities with a state. It replaces the program's state of the same type.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use perennial::prelude::*;
    /// use perennial_testkit::TestEnvironment;
    ///
    /// trait Rates: Send + Sync {
    ///     fn rate(&self, currency: &str) -> f64;
    /// }
    ///
    /// struct Live;
    ///
    /// impl Rates for Live {
    ///     fn rate(&self, _currency: &str) -> f64 {
    ///         panic!("no network in tests")
    ///     }
    /// }
    ///
    /// struct Fixed(f64);
    ///
    /// impl Rates for Fixed {
    ///     fn rate(&self, _currency: &str) -> f64 {
    ///         self.0
    ///     }
    /// }
    ///
    /// #[activity(state(Arc<dyn Rates>))]
    /// async fn convert(ctx: ActivityContext, cents: f64) -> Result<f64, String> {
    ///     Ok(cents * ctx.state::<Arc<dyn Rates>>().rate("EUR"))
    /// }
    ///
    /// #[orchestration(uses(convert))]
    /// async fn invoice(ctx: OrchestrationContext, cents: f64) -> Result<f64, String> {
    ///     Ok(ctx.schedule_activity(convert, cents).await?)
    /// }
    ///
    /// fn app() -> Registrations {
    ///     let rates: Arc<dyn Rates> = Arc::new(Live);
    ///     Registrations::new().register(invoice).register(convert).state(rates)
    /// }
    ///
    /// let fixed: Arc<dyn Rates> = Arc::new(Fixed(0.5));
    /// let mut env = TestEnvironment::new().registrations(app()).state(fixed);
    /// assert_eq!(env.run(invoice, 100.0).unwrap(), 50.0);
    /// ```
    #[track_caller]
    pub fn state<S: Send + Sync + 'static>(mut self, state: S) -> TestEnvironment {
        self.refuse_when_started();
        self.states.push(Box::new(move |registrations| registrations.replace_state(state)));
        self
    }

    #[track_caller]
    fn add(mut self, add: impl FnOnce(Registrations) -> Registrations) -> TestEnvironment {
        self.refuse_when_started();
        self.registrations = add(std::mem::take(&mut self.registrations));
        // What is missing can still be registered or mocked: the first start checks that.
        or_panic(self.registrations.mistake().map_or(Ok(()), |mistake| Err(mistake.to_string())));
        self
    }

    /// Settings made after the first start would have no effect.
    #[track_caller]
    pub(super) fn refuse_when_started(&self) {
        if self.driver.is_some() {
            or_panic(Err("a test environment must be set up before its first start".to_owned()))
        }
    }

    /// Runs the checks of a starting runtime. Mocked activities need no registration and no state.
    #[track_caller]
    pub(super) fn check_registrations(&mut self) {
        if self.driver.is_none() {
            self.apply_states();
            let is_mocked = |name: &str| self.config.mocked.contains_key(name);
            or_panic(self.registrations.check(&is_mocked).map_err(|mistake| mistake.to_string()));
        }
    }

    /// Replaces the program's state with the test's, regardless of the order of the calls.
    pub(super) fn apply_states(&mut self) {
        for state in std::mem::take(&mut self.states) {
            self.registrations = state(std::mem::take(&mut self.registrations));
        }
    }

    pub(super) fn handlers(&self) -> Handlers {
        match &self.driver {
            Some(driver) => driver.registrations().handlers(),
            None => self.registrations.handlers(),
        }
    }
}
