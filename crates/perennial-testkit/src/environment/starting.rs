//! Starts instances in a test.

use std::marker::PhantomData;

use perennial::typed::OrchestrationTarget;
use perennial::{ClientError, StartOptions};
use perennial_core::check_name;

use super::requests::or_panic;
use super::{TestEnvironment, TestRun};

impl TestEnvironment {
    /// Starts an instance. It runs as far as it can without time passing and without activities before this
    /// returns.
    ///
    /// # Panics
    ///
    /// If the orchestration is not registered, if the id exists, or if something is missing without which a
    /// runtime would not start: state that an activity declares, or an activity or orchestration that an
    /// orchestration declares to use and that is not mocked.
    #[track_caller]
    pub fn start<T, I, K>(&mut self, orchestration: T, id: &str, input: I) -> TestRun<T::Output, T::Error>
    where
        T: OrchestrationTarget<I, K>,
    {
        let started = self.start_with(orchestration, id, input, StartOptions::default());
        or_panic(started.map_err(|error| format!("{id:?} cannot be started: {error}")))
    }

    /// Starts an instance with options, as a client does. Delays and timeouts are on the virtual clock.
    ///
    /// ```
    /// use perennial::prelude::*;
    /// use perennial_testkit::{Failure, TestEnvironment};
    ///
    /// #[orchestration]
    /// async fn patient(ctx: OrchestrationContext) -> Result<(), String> {
    ///     ctx.schedule_wait("never").await;
    ///     Ok(())
    /// }
    ///
    /// const DAY: Duration = Duration::from_secs(86_400);
    /// let mut env = TestEnvironment::new().register(patient);
    /// let options = StartOptions::default().delay(DAY).timeout(3 * DAY);
    /// let run = env.start_with(patient, "p", (), options).unwrap();
    /// assert_eq!(env.status("p"), Some(Status::Pending));
    /// let result = env.result(&run);
    /// assert!(matches!(result, Err(Failure::Terminated { .. })), "{result:?}");
    /// assert_eq!(env.elapsed(), 3 * DAY);
    /// ```
    ///
    /// # Panics
    ///
    /// If something is missing without which a runtime would not start.
    #[track_caller]
    pub fn start_with<T, I, K>(
        &mut self,
        orchestration: T,
        id: &str,
        input: I,
        options: StartOptions,
    ) -> Result<TestRun<T::Output, T::Error>, ClientError>
    where
        T: OrchestrationTarget<I, K>,
    {
        let name = orchestration.name().into_owned();
        let input = T::encode(input)
            .map_err(|error| ClientError::Unwritable { id: id.to_owned(), problem: error.to_string() })?;
        let invalid = |source| ClientError::InvalidName { what: "instance id", name: id.to_owned(), source };
        check_name(id).map_err(invalid)?;
        self.check_registrations();
        if self.handlers().latest_version(&name).is_none() {
            return Err(ClientError::NotRegistered { name, similar: None });
        }
        self.drive(|driver| driver.start(&name, id, &input, &options))?;
        let (read_output, read_error) = (T::read_output, T::read_error);
        Ok(TestRun { id: id.to_owned(), read_output, read_error, types: PhantomData })
    }
}
