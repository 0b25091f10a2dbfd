//! Limits of a test.

use std::time::Duration;

use super::{TestEnvironment, millis};

impl TestEnvironment {
    /// Sets the maximum number of orchestration turns and activity attempts in the whole test. Default
    /// 10,000.
    ///
    /// Without a limit, the test of an orchestration that never ends would never end either. When the limit
    /// is exceeded, the test fails with [`Failure::Endless`](crate::Failure::Endless), which names the
    /// busiest instance or activity.
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

    /// Sets the maximum virtual time of the test. Default 1,000 years; values above 17,000 years have no
    /// further effect. The clock may reach the limit. If the test needs more time, it fails with
    /// [`Failure::Endless`](crate::Failure::Endless).
    ///
    /// All time on the virtual clock since the start of the test counts, of all instances together: timers,
    /// delays, pauses between attempts, [`takes`](TestEnvironment::takes), and the time that mocks and
    /// activities with [`virtual_time`](TestEnvironment::virtual_time) sleep. The code of other real
    /// activities takes no virtual time. A timer with a later due time is not a failure by itself: its
    /// orchestration may end, or cancel it, before.
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

    /// Sets the maximum duration, in real time, of an attempt of a real activity. Default 60 s. When the
    /// limit is exceeded, the test fails with [`Failure::Hanging`](crate::Failure::Hanging), which names the
    /// activity.
    ///
    /// Real activities run in real time: they may wait for a network, a disk or another thread, and the
    /// virtual clock does not move until they have ended. An activity that waits for the virtual clock would
    /// wait forever; use [`TestEnvironment::virtual_time`] for it.
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
