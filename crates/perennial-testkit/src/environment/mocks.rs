//! Replacements of activities: mocks and planned failures.

use std::borrow::Cow;
use std::future::Future;
use std::time::Duration;

use perennial::ActivityContext;
use perennial::typed::{Activity, ActivityCode, ActivityMeta, ActivityReturn, Call, by};
use perennial_core::Payload;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::TestEnvironment;
use super::requests::written;

/// The outcome of an attempt that does not run.
#[derive(Clone, Debug)]
pub(super) enum Planned {
    Failure(Payload),
    /// The attempt never returns, and its timeout expires.
    Timeout,
}

/// An activity from `A` to `Result<O, E>`: a function marked with `#[activity]`, an [`Activity`], or a name
/// (then the types of the mock are used). Several arguments are a tuple.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an activity that takes `{A}` and returns `Result<{O}, {E}>`",
    label = "not an activity with the types of the mock",
    note = "pass a function marked with `#[activity]` and a closure from its input (several arguments as a tuple) to \
            the `Result` that it returns, or a name"
)]
pub trait MockTarget<A, O, E, K> {
    /// The registered name.
    fn name(&self) -> Cow<'_, str>;
}

/// An activity: a function marked with `#[activity]`, an [`Activity`], or a name (then errors are payloads).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an activity",
    label = "not an activity",
    note = "pass a function marked with `#[activity]`, an `Activity`, or a name"
)]
pub trait ActivityRef<K> {
    /// The error type of the activity.
    type Error: Serialize;

    /// The registered name.
    fn name(&self) -> Cow<'_, str>;
}

macro_rules! functions {
    ($($kind:ident($($type:ident),*) = $input:ty;)*) => {$(
        impl<Fun, M, Fut, O, E $(, $type)*> MockTarget<$input, O, E, by::$kind> for Fun
        where
            Fun: Fn(ActivityContext $(, $type)*) -> Call<M, Fut>,
            M: ActivityMeta,
            Fut: Future<Output = Result<O, E>>,
        {
            fn name(&self) -> Cow<'_, str> {
                Cow::Borrowed(M::NAME)
            }
        }

        impl<Fun, M, Fut, O, E $(, $type)*> ActivityRef<(by::$kind, $input)> for Fun
        where
            Fun: Fn(ActivityContext $(, $type)*) -> Call<M, Fut>,
            M: ActivityMeta,
            Fut: Future<Output = Result<O, E>>,
            E: Serialize,
        {
            type Error = E;

            fn name(&self) -> Cow<'_, str> {
                Cow::Borrowed(M::NAME)
            }
        }
    )*};
}

functions! {
    Function0() = ();
    Function1(A) = A;
    Function2(A, B) = (A, B);
    Function3(A, B, C) = (A, B, C);
    Function4(A, B, C, D) = (A, B, C, D);
}

impl<A, O, E> MockTarget<A, O, E, by::Name> for &str {
    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(self)
    }
}

impl<A, O, E> MockTarget<A, O, E, by::Described> for Activity<A, O, E> {
    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(Activity::name(self))
    }
}

impl ActivityRef<by::Name> for &str {
    type Error = Payload;

    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(self)
    }
}

impl<A, O, E: Serialize> ActivityRef<by::Described> for Activity<A, O, E> {
    type Error = E;

    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(Activity::name(self))
    }
}

/// Replacing activities, and choosing their clock.
impl TestEnvironment {
    /// Runs a closure instead of an activity: a function marked with `#[activity]`, an
    /// [`Activity`](perennial::typed::Activity), or a name. Several arguments are passed as a tuple.
    ///
    /// ```
    /// use perennial::prelude::*;
    /// use perennial_testkit::TestEnvironment;
    ///
    /// #[activity]
    /// async fn add(_: ActivityContext, a: i64, b: i64) -> Result<i64, String> {
    ///     Ok(a + b)
    /// }
    ///
    /// #[orchestration]
    /// async fn sum(ctx: OrchestrationContext) -> Result<i64, String> {
    ///     Ok(ctx.schedule_activity(add, (2, 3)).await?)
    /// }
    ///
    /// let mut env = TestEnvironment::new().register(sum).mock(add, |(a, b)| Ok(100 * a + b));
    /// assert_eq!(env.run(sum, ()), Ok(203));
    /// ```
    #[track_caller]
    pub fn mock<F, A, O, E, K>(
        self,
        activity: F,
        mock: impl Fn(A) -> Result<O, E> + Send + Sync + 'static,
    ) -> TestEnvironment
    where
        F: MockTarget<A, O, E, K>,
        A: DeserializeOwned + Send + 'static,
        O: ActivityReturn + Send + 'static,
        E: Serialize + Send + 'static,
    {
        self.mock_with(activity, move |_, input| std::future::ready(mock(input)))
    }

    /// Runs an async closure instead of an activity. Its context provides the number of the attempt, the
    /// instance, the heartbeat details of earlier attempts, cancellation, and all state of the environment,
    /// whether the activity declares it or not. `tokio::time` inside the closure uses the virtual clock.
    ///
    /// ```
    /// use perennial::prelude::*;
    /// use perennial_testkit::TestEnvironment;
    ///
    /// #[activity]
    /// async fn import(_: ActivityContext, rows: u64) -> Result<u64, String> {
    ///     Err("no database in tests".to_owned())
    /// }
    ///
    /// #[orchestration]
    /// async fn nightly(ctx: OrchestrationContext, rows: u64) -> Result<u64, String> {
    ///     let retry = RetryPolicy::fixed(Duration::from_secs(60)).attempts(3).jitter(0);
    ///     Ok(ctx.schedule_activity(import, rows).retry(retry).await?)
    /// }
    ///
    /// // Each attempt imports the ten rows after those of the previous one.
    /// let mut env = TestEnvironment::new().register(nightly).mock_with(import, |ctx, rows| async move {
    ///     let done = ctx.decode_details::<u64>().unwrap_or(0) + 10;
    ///     ctx.heartbeat(done);
    ///     if done < rows { Err(format!("lost after attempt {}", ctx.attempt())) } else { Ok(done) }
    /// });
    /// assert_eq!(env.run(nightly, 30), Ok(30));
    /// ```
    #[track_caller]
    pub fn mock_with<F, A, O, E, K, Fut>(
        mut self,
        activity: F,
        mock: impl Fn(ActivityContext, A) -> Fut + Send + Sync + 'static,
    ) -> TestEnvironment
    where
        F: MockTarget<A, O, E, K>,
        A: DeserializeOwned + Send + 'static,
        O: ActivityReturn + Send + 'static,
        E: Serialize + Send + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
    {
        self.refuse_when_started();
        let name = activity.name().into_owned();
        self.config.mocked.insert(name, ActivityCode::<(by::Function1, A)>::into_handler(mock));
        self
    }

    /// Fails the first attempts of an activity with an error. Later attempts run the mock, or the real
    /// activity.
    ///
    /// Attempts are counted over the whole test, across instances. An attempt that is repeated after a crash
    /// fails again. Several plans for one activity apply in the order of the calls.
    ///
    /// ```
    /// use perennial::prelude::*;
    /// use perennial_testkit::TestEnvironment;
    ///
    /// #[activity]
    /// async fn charge(_: ActivityContext, cents: u64) -> Result<String, String> {
    ///     Ok(format!("receipt for {cents}"))
    /// }
    ///
    /// #[orchestration]
    /// async fn checkout(ctx: OrchestrationContext, cents: u64) -> Result<String, String> {
    ///     let retry = RetryPolicy::fixed(Duration::from_secs(3_600)).attempts(5).jitter(0);
    ///     Ok(ctx.schedule_activity(charge, cents).timeout(Duration::from_secs(30)).retry(retry).await?)
    /// }
    ///
    /// // 503 twice, then a timeout, then the real activity.
    /// let mut env = TestEnvironment::new()
    ///     .register(checkout)
    ///     .register(charge)
    ///     .fail_times(charge, 2, "503")
    ///     .time_out_times(charge, 1);
    /// assert_eq!(env.run(checkout, 500).unwrap(), "receipt for 500");
    /// assert_eq!(env.history("checkout-1").attempts(), [("charge".to_owned(), 4)]);
    /// ```
    #[track_caller]
    pub fn fail_times<T: ActivityRef<K>, K>(
        self,
        activity: T,
        times: u64,
        error: impl Into<T::Error>,
    ) -> TestEnvironment {
        let error = written(Payload::encode(&error.into()));
        self.plan(&activity.name(), times, Planned::Failure(error))
    }

    /// Lets the first attempts of an activity time out on the virtual clock. Later attempts run the mock, or
    /// the real activity. Attempts are counted as in [`TestEnvironment::fail_times`]. An activity that was
    /// scheduled without a timeout cannot time out: the test fails and names it.
    ///
    /// ```
    /// use perennial::prelude::*;
    /// use perennial_testkit::TestEnvironment;
    ///
    /// #[activity]
    /// async fn ping(_: ActivityContext) -> Result<u32, String> {
    ///     Ok(7)
    /// }
    ///
    /// #[orchestration]
    /// async fn probe(ctx: OrchestrationContext) -> Result<Option<u32>, String> {
    ///     match ctx.schedule_activity(ping, ()).timeout(Duration::from_secs(30)).await {
    ///         Ok(answer) => Ok(Some(answer)),
    ///         Err(ActivityError::Timeout(_)) => Ok(None),
    ///         Err(other) => Err(other.to_string()),
    ///     }
    /// }
    ///
    /// let mut env = TestEnvironment::new().register(probe).register(ping).time_out_times(ping, 1);
    /// assert_eq!(env.run(probe, ()), Ok(None));
    /// assert_eq!(env.run(probe, ()), Ok(Some(7)));
    /// ```
    #[track_caller]
    pub fn time_out_times<T: ActivityRef<K>, K>(self, activity: T, times: u64) -> TestEnvironment {
        self.plan(&activity.name(), times, Planned::Timeout)
    }

    #[track_caller]
    fn plan(mut self, activity: &str, times: u64, planned: Planned) -> TestEnvironment {
        self.refuse_when_started();
        self.config.planned.entry(activity.to_owned()).or_default().push((times, planned));
        self
    }

    /// Makes every attempt of an activity, real or mocked, take this much virtual time. By default, attempts
    /// of real activities take no virtual time, and those of mocks as long as they sleep on tokio's clock.
    ///
    /// ```
    /// use perennial::prelude::*;
    /// use perennial_testkit::TestEnvironment;
    ///
    /// #[activity]
    /// async fn render(_: ActivityContext) -> Result<u32, String> {
    ///     Ok(7)
    /// }
    ///
    /// #[orchestration]
    /// async fn film(ctx: OrchestrationContext) -> Result<u32, String> {
    ///     Ok(ctx.schedule_activity(render, ()).await?)
    /// }
    ///
    /// let mut env = TestEnvironment::new().register(film).register(render).takes(render, Duration::from_secs(3_600));
    /// assert_eq!((env.run(film, ()), env.elapsed()), (Ok(7), Duration::from_secs(3_600)));
    /// ```
    #[track_caller]
    pub fn takes<T: ActivityRef<K>, K>(mut self, activity: T, duration: Duration) -> TestEnvironment {
        self.refuse_when_started();
        self.config.takes.insert(activity.name().into_owned(), duration);
        self
    }

    /// Runs a real activity on the virtual clock: `tokio::time` inside it is virtual, and time is skipped
    /// whenever it waits. Use this for activities that wait for timers or for their cancellation, and for
    /// nothing outside the test.
    ///
    /// ```
    /// use perennial::prelude::*;
    /// use perennial_testkit::TestEnvironment;
    ///
    /// #[activity]
    /// async fn nap(_: ActivityContext) -> Result<(), String> {
    ///     tokio::time::sleep(Duration::from_secs(86_400)).await;
    ///     Ok(())
    /// }
    ///
    /// #[orchestration]
    /// async fn idle(ctx: OrchestrationContext) -> Result<(), String> {
    ///     Ok(ctx.schedule_activity(nap, ()).await?)
    /// }
    ///
    /// let mut env = TestEnvironment::new().register(idle).register(nap).virtual_time(nap);
    /// env.run(idle, ()).unwrap();
    /// assert_eq!(env.elapsed(), Duration::from_secs(86_400));
    /// ```
    #[track_caller]
    pub fn virtual_time<T: ActivityRef<K>, K>(mut self, activity: T) -> TestEnvironment {
        self.refuse_when_started();
        self.config.virtual_time.insert(activity.name().into_owned());
        self
    }
}
