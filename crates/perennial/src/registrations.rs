//! Registrations: the orchestrations, activities and state of a program.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use perennial_core::Handlers;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::activity::{ActivityContext, ActivityHandler};
use crate::error::StartError;
use crate::runtime::Registry;
use crate::typed::{
    ActivityCode, BlockingCode, OrchestrationCode, OrchestrationContext, Register, Registration, RunTarget,
    fallback,
};

/// Selects the version of an orchestration where the caller does not specify one. See
/// [`Registrations::version_policy`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum VersionPolicy {
    /// The highest registered version; a pre-release only if there are no others.
    #[default]
    Latest,
    /// This version, which has to be registered.
    Exact(String),
}

/// The orchestrations, activities and shared state of a program, as one value.
///
/// Build them in one function that the program and its tests both call: the program passes the value to
/// [`RuntimeBuilder::registrations`](crate::RuntimeBuilder::registrations), a test to its `TestEnvironment`.
/// The methods of the same names on [`RuntimeBuilder`](crate::RuntimeBuilder) add to the runtime's own
/// registrations.
///
/// ```
/// use perennial::prelude::*;
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
/// fn app() -> Registrations {
///     Registrations::new().register(greeting).register(greet)
/// }
///
/// # #[tokio::main]
/// # async fn main() -> perennial::Result<()> {
/// let runtime = Runtime::open("memory:").registrations(app()).start().await?;
/// let run = runtime.client().start(greeting, "greeting-1", "Ada".to_owned()).await?;
/// assert_eq!(run.result().await?, "Hello, Ada!");
/// # runtime.shutdown().await
/// # }
/// ```
///
/// Mistakes, such as a name that is registered twice, are returned by
/// [`RuntimeBuilder::start`](crate::RuntimeBuilder::start).
#[derive(Default)]
#[must_use = "registrations have no effect until they are passed to a runtime or a test environment"]
pub struct Registrations {
    registry: Registry,
    /// The first mistake, which the start returns.
    mistake: Option<StartError>,
}

impl Registrations {
    /// Creates a value without registrations.
    pub fn new() -> Registrations {
        Registrations::default()
    }

    /// Adds all registrations of `other`, for programs whose modules each have their own.
    ///
    /// ```
    /// use perennial::prelude::*;
    ///
    /// mod billing {
    ///     use perennial::prelude::*;
    ///
    ///     #[activity]
    ///     pub async fn charge(_: ActivityContext, _cents: u64) -> Result<(), String> {
    ///         Ok(())
    ///     }
    ///
    ///     pub fn registrations() -> Registrations {
    ///         Registrations::new().register(charge)
    ///     }
    /// }
    ///
    /// fn app() -> Registrations {
    ///     Registrations::new().merge(billing::registrations())
    /// }
    ///
    /// # #[tokio::main]
    /// # async fn main() -> perennial::Result<()> {
    /// # Runtime::open("memory:").registrations(app()).start().await?.shutdown().await?;
    /// let twice = Runtime::open("memory:").registrations(app()).registrations(app()).start().await;
    /// assert!(twice.err().unwrap().to_string().starts_with("PER-0603 registered twice"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn merge(mut self, other: Registrations) -> Registrations {
        self.mistake = self.mistake.or(other.mistake);
        self.add(|registry| registry.merge(other.registry))
    }

    /// Registers a closure or an unmarked function as an orchestration, under a name and a version. It takes
    /// the context and up to four arguments with explicit types. Arguments and results of type
    /// [`Payload`](crate::Payload) are passed without conversion.
    ///
    /// ```
    /// use perennial::prelude::*;
    ///
    /// # #[tokio::main]
    /// # async fn main() -> perennial::Result<()> {
    /// let runtime = Runtime::open("memory:")
    ///     .orchestration("loud", "1.0.0", |ctx: OrchestrationContext, text: String| async move {
    ///         ctx.schedule_activity("shout", text).await
    ///     })
    ///     .activity("shout", |_: ActivityContext, text: String| async move { Ok::<_, String>(text.to_uppercase()) })
    ///     .start()
    ///     .await?;
    /// assert_eq!(runtime.client().start("loud", "l-1", "psst").await?.result().await?, "PSST");
    /// # runtime.shutdown().await
    /// # }
    /// ```
    pub fn orchestration<K>(
        self,
        name: &str,
        version: &str,
        code: impl OrchestrationCode<K>,
    ) -> Registrations {
        self.add(|registry| registry.add_orchestration(name, version, code.into_handler(), Vec::new()))
    }

    /// Registers a function that is marked with `#[orchestration]` or `#[activity]`.
    ///
    /// Pass the function itself: the attribute supplies its name, and the version of an orchestration.
    /// Several versions of one orchestration can be registered. Registering the same name (and version) twice
    /// is an error of [`start`](crate::RuntimeBuilder::start).
    ///
    /// ```
    /// use perennial::prelude::*;
    ///
    /// #[orchestration(name = "tea", version = "1.0.0")]
    /// async fn tea(_ctx: OrchestrationContext) -> Result<String, String> {
    ///     Ok("with milk".to_owned())
    /// }
    ///
    /// #[orchestration(name = "tea", version = "2.0.0")]
    /// async fn tea_2(_ctx: OrchestrationContext) -> Result<String, String> {
    ///     Ok("with lemon".to_owned())
    /// }
    ///
    /// # #[tokio::main]
    /// # async fn main() -> perennial::Result<()> {
    /// let runtime = Runtime::open("memory:").register(tea).register(tea_2).start().await?;
    /// // New instances use the latest version; running instances keep theirs.
    /// assert_eq!(runtime.client().start(tea, "tea-1", ()).await?.result().await?, "with lemon");
    ///
    /// let twice = Runtime::open("memory:").register(tea).register(tea).start().await;
    /// assert!(twice.err().unwrap().to_string().starts_with("PER-0603"));
    /// # runtime.shutdown().await
    /// # }
    /// ```
    pub fn register<K>(self, function: impl Register<K>) -> Registrations {
        match function.registration() {
            Registration::Orchestration { name, version, handler, uses } => {
                self.add(|registry| registry.add_orchestration(name, version, handler, uses))
            }
            Registration::Activity { name, handler, state } => {
                self.add(|registry| registry.add_activity(name, handler, state))
            }
        }
    }

    /// Sets state that activities share, such as a connection pool or a client of a service. There is one
    /// value per type. Activities declare the types they read in their attribute and get the value with
    /// [`ActivityContext::state`](crate::ActivityContext::state).
    ///
    /// A runtime does not start if the declared state of a registered activity is missing. Orchestrations
    /// have no access to state: it is not recorded, so a replay could see another value. A second value of
    /// the same type is an error at the start; wrap each in its own type.
    ///
    /// ```
    /// use perennial::prelude::*;
    ///
    /// struct Prices(Vec<u64>);
    ///
    /// #[activity(state(Prices))]
    /// async fn total(ctx: ActivityContext) -> Result<u64, String> {
    ///     Ok(ctx.state::<Prices>().0.iter().sum())
    /// }
    ///
    /// #[orchestration(uses(total))]
    /// async fn bill(ctx: OrchestrationContext) -> Result<u64, String> {
    ///     Ok(ctx.schedule_activity(total, ()).await?)
    /// }
    ///
    /// fn app() -> Registrations {
    ///     Registrations::new().register(bill).register(total)
    /// }
    ///
    /// # #[tokio::main]
    /// # async fn main() -> perennial::Result<()> {
    /// let runtime = Runtime::open("memory:").registrations(app()).state(Prices(vec![2, 3])).start().await?;
    /// assert_eq!(runtime.client().start(bill, "bill-1", ()).await?.result().await?, 5);
    /// # runtime.shutdown().await?;
    ///
    /// let error = Runtime::open("memory:").registrations(app()).start().await.err().unwrap();
    /// assert!(error.to_string().starts_with("PER-0625 missing state: activity \"total\" needs a "));
    /// # Ok(())
    /// # }
    /// ```
    pub fn state<S: Send + Sync + 'static>(self, state: S) -> Registrations {
        self.add(|registry| registry.add_state(state))
    }

    /// Sets the state of a type, replacing an existing value. For test kits.
    #[doc(hidden)]
    pub fn replace_state<S: Send + Sync + 'static>(mut self, state: S) -> Registrations {
        self.registry.replace_state(state);
        self
    }

    /// Registers a closure or an unmarked function as an activity under a name. It takes the context and up
    /// to four arguments with explicit types. Arguments and results of type [`Payload`](crate::Payload) are
    /// passed without conversion.
    pub fn activity<K>(self, name: &str, code: impl ActivityCode<K>) -> Registrations {
        self.add(|registry| registry.add_activity(name, code.into_handler(), Vec::new()))
    }

    /// Registers a closure or a function that blocks its thread as an activity. It runs on tokio's pool of blocking
    /// threads.
    ///
    /// A blocking activity cannot be dropped like a future when it is cancelled; it should check
    /// [`ActivityContext::is_cancelled`](crate::ActivityContext::is_cancelled) from time to time.
    pub fn blocking_activity<K>(self, name: &str, code: impl BlockingCode<K>) -> Registrations {
        self.add(|registry| registry.add_activity(name, code.into_handler(), Vec::new()))
    }

    /// Registers code for all activities with a common name prefix that are not registered themselves, for
    /// example a gateway or an interpreter. The pattern is the prefix and a star, `http.*`. If several
    /// patterns match, the longest is used. The code also gets the name.
    ///
    /// ```
    /// use perennial::prelude::*;
    ///
    /// # #[tokio::main]
    /// # async fn main() -> perennial::Result<()> {
    /// let runtime = Runtime::open("memory:")
    ///     .fallback_activity("http.*", |_: ActivityContext, name: String, url: String| async move {
    ///         Ok::<_, String>(format!("{} {url}", name["http.".len()..].to_uppercase()))
    ///     })
    ///     .orchestration("fetch", "1.0.0", |ctx: OrchestrationContext, url: String| async move {
    ///         ctx.schedule_activity("http.get", url).await
    ///     })
    ///     .start()
    ///     .await?;
    /// assert_eq!(runtime.client().start("fetch", "f-1", "/tea").await?.result().await?, "GET /tea");
    /// # runtime.shutdown().await
    /// # }
    /// ```
    pub fn fallback_activity<F, Fut, I, O, E>(self, pattern: &str, code: F) -> Registrations
    where
        F: Fn(ActivityContext, String, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
        I: DeserializeOwned + Send + 'static,
        O: Serialize + 'static,
        E: Serialize + 'static,
    {
        self.add(|registry| registry.add_fallback_activity(pattern, fallback::activity(code)))
    }

    /// Registers code for all orchestrations with a common name prefix that are not registered themselves,
    /// under a version. The pattern is the prefix and a star. If several patterns match, the longest is used.
    /// The code also gets the name.
    ///
    /// Versions belong to the pattern: a start uses the highest one, and an instance keeps its version even
    /// if its name is registered later at other versions.
    ///
    /// ```
    /// use perennial::prelude::*;
    ///
    /// # #[tokio::main]
    /// # async fn main() -> perennial::Result<()> {
    /// let runtime = Runtime::open("memory:")
    ///     .fallback_orchestration("flow.*", "1.0.0", |_: OrchestrationContext, name: String, steps: Vec<String>| async move {
    ///         Ok::<_, String>(format!("{name} has {} steps", steps.len()))
    ///     })
    ///     .start()
    ///     .await?;
    /// const TEA: Orchestration<Vec<String>, String> = Orchestration::named("flow.tea");
    /// let run = runtime.client().start(TEA, "t-1", vec!["boil".to_owned(), "steep".to_owned()]).await?;
    /// assert_eq!(run.result().await?, "flow.tea has 2 steps");
    /// # runtime.shutdown().await
    /// # }
    /// ```
    pub fn fallback_orchestration<F, Fut, I, O, E>(
        self,
        pattern: &str,
        version: &str,
        code: F,
    ) -> Registrations
    where
        F: Fn(OrchestrationContext, String, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
        I: DeserializeOwned + Send + 'static,
        O: Serialize + 'static,
        E: Serialize + 'static,
    {
        let handler = fallback::orchestration(code);
        self.add(|registry| registry.add_fallback_orchestration(pattern, version, handler))
    }

    /// Sets the version of an orchestration for callers that do not specify one: starts, including those of
    /// children, and [`continue_as_new`](OrchestrationContext::continue_as_new). Default:
    /// [`VersionPolicy::Latest`].
    ///
    /// The version is chosen when an execution begins and is recorded with it; changing the policy does not
    /// affect executions that have begun. Starts with an explicit version
    /// ([`StartOptions::version`](crate::StartOptions::version)) and
    /// [`continue_as_new_versioned`](OrchestrationContext::continue_as_new_versioned) ignore the policy.
    ///
    /// ```
    /// use perennial::options::VersionPolicy;
    /// use perennial::prelude::*;
    ///
    /// #[orchestration(name = "tea", version = "1.0.0")]
    /// async fn tea(_: OrchestrationContext) -> Result<String, String> {
    ///     Ok("with milk".to_owned())
    /// }
    ///
    /// #[orchestration(name = "tea", version = "2.0.0")]
    /// async fn tea_2(_: OrchestrationContext) -> Result<String, String> {
    ///     Ok("with lemon".to_owned())
    /// }
    ///
    /// # #[tokio::main]
    /// # async fn main() -> perennial::Result<()> {
    /// // The new version is deployed, but only starts that specify it use it.
    /// let app = Registrations::new().register(tea).register(tea_2);
    /// let app = app.version_policy("tea", VersionPolicy::Exact("1.0.0".to_owned()));
    /// let runtime = Runtime::open("memory:").registrations(app).start().await?;
    /// assert_eq!(runtime.client().start(tea, "tea-1", ()).await?.result().await?, "with milk");
    /// # runtime.shutdown().await
    /// # }
    /// ```
    pub fn version_policy<K>(self, orchestration: impl RunTarget<K>, policy: VersionPolicy) -> Registrations {
        self.add(|registry| registry.add_version_policy(&orchestration.name(), policy))
    }

    /// The registered orchestrations, for a [`Replayer`](crate::replay::Replayer). Empty if there is a
    /// mistake, which [`start`](crate::RuntimeBuilder::start) returns.
    #[must_use]
    pub fn handlers(&self) -> Handlers {
        if self.mistake.is_some() { Handlers::default() } else { self.registry.handlers() }
    }

    /// The first mistake that no later registration can correct, such as a name that is registered twice. For
    /// test kits.
    #[doc(hidden)]
    pub fn mistake(&self) -> Option<&StartError> {
        self.mistake.as_ref()
    }

    /// Runs the checks of a start. `stands_in` returns whether an activity is replaced, so that it needs
    /// neither a registration nor its state. For test kits.
    #[doc(hidden)]
    pub fn check(&self, stands_in: &dyn Fn(&str) -> bool) -> Result<(), StartError> {
        match &self.mistake {
            Some(mistake) => Err(mistake.clone()),
            None => self.registry.check(stands_in),
        }
    }

    /// The code of an activity, with its declared state where present. For test kits.
    #[doc(hidden)]
    pub fn activity_handler(&self, name: &str) -> Option<Arc<dyn ActivityHandler>> {
        self.registry.activity(name)
    }

    /// Gives code that replaces an activity access to all state. For test kits.
    #[doc(hidden)]
    pub fn with_state(&self, handler: Arc<dyn ActivityHandler>) -> Arc<dyn ActivityHandler> {
        self.registry.with_state(handler)
    }

    pub(crate) fn into_registry(self) -> Result<Registry, StartError> {
        match self.mistake {
            Some(mistake) => Err(mistake),
            None => self.registry.ready(),
        }
    }

    /// The registrations for replays, which run no activities and need no state.
    pub(crate) fn into_replay_registry(self) -> Result<Registry, StartError> {
        match self.mistake {
            Some(mistake) => Err(mistake),
            None => self.registry.check_code(&|_| false).map(|()| self.registry),
        }
    }

    fn add(mut self, add: impl FnOnce(&mut Registry) -> Result<(), StartError>) -> Registrations {
        if self.mistake.is_none() {
            self.mistake = add(&mut self.registry).err();
        }
        self
    }
}

impl fmt::Debug for Registrations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (orchestrations, activities) = self.registry.names();
        f.debug_struct("Registrations")
            .field("orchestrations", &orchestrations)
            .field("activities", &activities)
            .field("mistake", &self.mistake)
            .finish()
    }
}
