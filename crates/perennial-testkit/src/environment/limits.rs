//! How much a test may take.

use std::time::Duration;

use super::{TestEnvironment, millis};

impl TestEnvironment {
    /// Sets how many turns of orchestrations and attempts of activities, in all, the test may take. Default 10,000.
    ///
    /// A test of an orchestration that never ends by itself would never end either. Past the limit it fails with
    /// [`Failure::Endless`](crate::Failure::Endless), which says what was spent and on what.
    ///
    /// ```
    /// use perennial::prelude::*;
    /// use perennial_testkit::{Failure, TestEnvironment};
    ///
    /// #[orchestration]
    /// async fn heartbeat(ctx: OrchestrationContext, beats: u64) -> Result<(), String> {
    ///     ctx.schedule_timer(Duration::from_secs(60)).await;
    ///     ctx.continue_as_new(beats + 1).await
    /// }
    ///
    /// let mut env = TestEnvironment::new().register(heartbeat).turn_limit(500);
    /// let Err(Failure::Endless { turns, elapsed, .. }) = env.run(heartbeat, 0) else { panic!("it has ended") };
    /// assert_eq!((turns, elapsed), (501, Duration::from_secs(250 * 60)));
    /// ```
    #[track_caller]
    pub fn turn_limit(mut self, turns: u64) -> TestEnvironment {
        self.refuse_when_started();
        self.config.turn_limit = turns;
        self
    }

    /// Sets how much virtual time the test may take. Default 1,000 years. Past the limit it fails with
    /// [`Failure::Endless`](crate::Failure::Endless).
    ///
    /// ```
    /// use perennial::prelude::*;
    /// use perennial_testkit::{Failure, TestEnvironment};
    ///
    /// #[orchestration]
    /// async fn sleeper(ctx: OrchestrationContext) -> Result<(), String> {
    ///     ctx.schedule_timer(Duration::from_secs(3_600)).await;
    ///     Ok(())
    /// }
    ///
    /// let mut env = TestEnvironment::new().register(sleeper).time_limit(Duration::from_secs(60));
    /// assert!(matches!(env.run(sleeper, ()), Err(Failure::Endless { .. })));
    /// ```
    #[track_caller]
    pub fn time_limit(mut self, limit: Duration) -> TestEnvironment {
        self.refuse_when_started();
        self.config.time_limit_ms = millis(limit);
        self
    }

    /// Sets how long, in real time, an attempt of a real activity may run. Default 60 s. Past the limit the test fails with
    /// [`Failure::Hanging`](crate::Failure::Hanging), which names the activity.
    ///
    /// Real activities run in real time: they may wait for a network, a disk or another thread, and the virtual clock
    /// stands still until they have ended. One that waits for the virtual clock meanwhile would wait for ever, see
    /// [`TestEnvironment::virtual_time`].
    ///
    /// ```
    /// use perennial::prelude::*;
    /// use perennial_testkit::{Failure, TestEnvironment};
    ///
    /// #[activity]
    /// async fn call(_: ActivityContext) -> Result<(), String> {
    ///     std::future::pending().await // a service that does not answer
    /// }
    ///
    /// #[orchestration]
    /// async fn caller(ctx: OrchestrationContext) -> Result<(), String> {
    ///     Ok(ctx.schedule_activity(call, ()).await?)
    /// }
    ///
    /// let env = TestEnvironment::new().register(caller).register(call);
    /// let failure = env.real_time_limit(Duration::from_millis(20)).run(caller, ()).unwrap_err();
    /// assert!(matches!(failure, Failure::Hanging { activity, .. } if activity == "call"));
    /// ```
    #[track_caller]
    pub fn real_time_limit(mut self, limit: Duration) -> TestEnvironment {
        self.refuse_when_started();
        self.config.real_time_limit = limit;
        self
    }
}
