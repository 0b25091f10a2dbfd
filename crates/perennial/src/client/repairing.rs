//! Repairing instances: pausing them, resetting them to an earlier turn, running them again from their end.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use perennial_core::shard::{CallReply, InstanceCall, Request, ResetReport};
use perennial_core::store::{InstanceRow, Pause, PausedOrchestration, PausedOrchestrations, Status};
use perennial_core::{InstanceKey, Why, check_name};

use super::bulk::Action;
use super::sending::bound;
use super::{Client, InstanceView, Progress, check};
use crate::error::ClientError;
use crate::filter::Filter;

impl Client {
    /// Pauses an instance: it takes no turn until it is [resumed](Client::resume). Messages to it are kept,
    /// timers do not fire, and running activities continue, with their results kept. Its timeout and the
    /// grace period of a cancel still end it.
    ///
    /// The pause is shown in [`InstanceView::blocked`](crate::InstanceView::blocked), with
    /// [`Blocked::pause`](crate::client::Blocked::pause). Pausing a paused instance changes the reason.
    ///
    /// ```
    /// use perennial::prelude::*;
    ///
    /// const NAME: ExternalEvent<String> = ExternalEvent::named("name");
    ///
    /// #[orchestration]
    /// async fn hello(ctx: OrchestrationContext) -> Result<String, String> {
    ///     Ok(format!("Hello, {}!", ctx.schedule_wait(NAME).await))
    /// }
    ///
    /// # #[tokio::main]
    /// # async fn main() -> perennial::Result<()> {
    /// # let runtime = Runtime::open("memory:").register(hello).start().await?;
    /// let client = runtime.client();
    /// let run = client.start(hello, "hello-1", ()).await?;
    /// client.pause("hello-1", Why::new("the greeter is being replaced").by("ada")).await?;
    /// client.raise_event("hello-1", NAME, "Grace".to_owned()).await?;
    /// assert_eq!(client.status("hello-1").await?.blocked.unwrap().code, "PER-0309");
    ///
    /// client.resume("hello-1", Why::new("it is replaced").by("ada")).await?;
    /// assert_eq!(run.result().await?, "Hello, Grace!");
    /// # runtime.shutdown().await
    /// # }
    /// ```
    pub async fn pause(&self, id: &str, why: impl Into<Why>) -> Result<(), ClientError> {
        let row = self.unfinished(id).await?;
        let pause = Pause { why: why.into(), orchestration: false };
        self.pause_bound(id, row.key, pause).await
    }

    pub(super) async fn pause_bound(
        &self,
        id: &str,
        key: InstanceKey,
        pause: Pause,
    ) -> Result<(), ClientError> {
        self.check_size(id, pause.why.size())?;
        self.deliver(id, bound(Some(key), Request::Pause(pause))).await
    }

    /// Resumes a paused instance. Has no effect on an instance that is not paused. If the orchestration is
    /// paused, only an instance with a pause of its own can be resumed, and waits for its orchestration; for
    /// others the result is [`ClientError::OrchestrationPaused`]: resume the orchestration.
    ///
    /// The history records who paused and resumed it, when and why
    /// ([`Job::InstanceResumed`](crate::history::Job::InstanceResumed)).
    pub async fn resume(&self, id: &str, why: impl Into<Why>) -> Result<(), ClientError> {
        let row = self.unfinished(id).await?;
        self.resume_listed(&InstanceView::from(row), why.into()).await
    }

    /// Resumes an instance, unless it has to wait for its orchestration.
    pub(super) async fn resume_listed(&self, row: &InstanceView, why: Why) -> Result<(), ClientError> {
        let pause = row.blocked.as_ref().and_then(|blocked| blocked.pause.as_ref());
        let is_paused_alone = pause.is_some_and(|pause| !pause.orchestration);
        // The setting decides and not the row: instances are marked after the setting is written.
        if !is_paused_alone && self.read_paused().await?.0.contains(&row.name) {
            return Err(ClientError::OrchestrationPaused { id: row.id.clone(), name: row.name.clone() });
        }
        self.resume_bound(&row.id, row.key, why).await
    }

    pub(super) async fn resume_bound(&self, id: &str, key: InstanceKey, why: Why) -> Result<(), ClientError> {
        self.check_size(id, why.size())?;
        self.deliver(id, bound(Some(key), Request::Resume(why))).await
    }

    /// Pauses an orchestration: all its instances, of all versions, and those that are started while it is
    /// paused. The pause is a setting of the store that every node reads when it renews its lease, by default
    /// every 3 s. Returns the number of instances that were marked as paused at once.
    pub async fn pause_orchestration(
        &self,
        name: &str,
        why: impl Into<Why>,
    ) -> Result<Progress, ClientError> {
        check("orchestration", name, check_name)?;
        let why = why.into();
        self.check_size("", why.size())?;
        let now_ms = self.now_ms().await?;
        self.change_paused(|paused| paused.pause(name, now_ms, why.clone())).await?;
        let filter = Filter::new().statuses([Status::Pending, Status::Running]).orchestration(name);
        // Waiting instances are marked now, so that lists show them as paused; the others when they take
        // their next turn.
        self.for_each(filter, Action::PauseWithOrchestration { why }, |_| {}).await
    }

    /// Resumes a paused orchestration and all its instances that are not paused individually. Returns whether
    /// it was paused.
    pub async fn resume_orchestration(&self, name: &str, why: impl Into<Why>) -> Result<bool, ClientError> {
        check("orchestration", name, check_name)?;
        let why = why.into();
        self.check_size("", why.size())?;
        let mut was_paused = false;
        self.change_paused(|paused| was_paused |= paused.resume(name)).await?;
        // A runtime that has not read the pause would not notice its end.
        let filter = Filter::new().paused(true).orchestration(name);
        self.for_each(filter, Action::ResumeWithOrchestration { why }, |_| {}).await?;
        Ok(was_paused)
    }

    /// The paused orchestrations, by name.
    pub async fn paused_orchestrations(&self) -> Result<Vec<(String, PausedOrchestration)>, ClientError> {
        let (paused, _) = self.read_paused().await?;
        Ok(paused.iter().map(|(name, paused)| (name.to_owned(), paused.clone())).collect())
    }

    /// The paused orchestrations, and the stored setting.
    pub(super) async fn read_paused(&self) -> Result<(PausedOrchestrations, Option<Arc<[u8]>>), ClientError> {
        let name = PausedOrchestrations::SETTING;
        let setting = self.call("", |store, reply| store.read_setting(name, reply)).await?;
        let paused =
            PausedOrchestrations::decode(setting.as_deref()).map_err(|error| ClientError::Store {
                id: String::new(),
                source: perennial_core::store::StoreError::CorruptRow(format!(
                    "the setting {name:?}: {error}"
                )),
            })?;
        Ok((paused, setting))
    }

    /// Changes the setting; tries again if another process changes it at the same time.
    async fn change_paused(
        &self,
        mut change: impl FnMut(&mut PausedOrchestrations),
    ) -> Result<(), ClientError> {
        loop {
            let (mut paused, read) = self.read_paused().await?;
            let before = paused.clone();
            change(&mut paused);
            if paused == before {
                return Ok(());
            }
            let (name, value) = (PausedOrchestrations::SETTING, paused.encode());
            if self.call("", |store, reply| store.write_setting(name, read, value, reply)).await? {
                return Ok(());
            }
        }
    }

    /// Resets an instance to one of its turns: a new execution begins with the history up to and including
    /// that turn, and continues from there with the code that is registered now. Await it after
    /// [`to_turn`](Resetting::to_turn).
    ///
    /// Events and updates that arrived after that turn are delivered again, in order, as are results of
    /// operations that had been scheduled by then. Activities without a result run again, and so do failed
    /// ones. Children that were started later get a cancel request; those that were started before continue.
    /// If the instance had ended, or those children failed, they are started again and replace the instances
    /// with their ids. Later cancel requests are dropped, and a timeout starts again. Messages that later
    /// turns sent to others (events, detached starts) are not undone, and are sent again if the code sends
    /// them again. [`ResetReport`] contains the counts.
    ///
    /// The discarded turns stay in the history of the previous execution. A reset needs a runtime, but no
    /// code: if the code does not match the turns that are kept, the instance is blocked, and can be reset
    /// again. A paused instance stays paused.
    pub fn reset(&self, id: &str) -> Resetting<'_> {
        Resetting { client: self, id: id.to_owned(), goal: Goal::Unset, version: None, why: Why::default() }
    }

    /// Runs an instance that failed, was cancelled, was terminated or timed out again from its end: it is
    /// [reset](Client::reset) to the turn before its last. Completed activities do not run again; failed ones
    /// do.
    ///
    /// ```
    /// # use perennial::prelude::*;
    /// # async fn repair(client: &Client) -> Result<(), ClientError> {
    /// let report = client.rerun("order-42").reason("the payment provider is back").await?;
    /// println!("{} activities run again", report.activities);
    /// # Ok(())
    /// # }
    /// ```
    pub fn rerun(&self, id: &str) -> Resetting<'_> {
        Resetting { goal: Goal::End, ..self.reset(id) }
    }

    async fn unfinished(&self, id: &str) -> Result<InstanceRow, ClientError> {
        let row = self.row(id).await?;
        if row.status.is_final() { Err(ClientError::Ended { id: id.to_owned() }) } else { Ok(row) }
    }
}

/// A reset, carried out when this is awaited.
#[must_use = "the reset is not carried out until this is awaited"]
#[derive(Clone, Debug)]
pub struct Resetting<'a> {
    client: &'a Client,
    id: String,
    goal: Goal,
    version: Option<String>,
    why: Why,
}

#[derive(Clone, Copy, Debug)]
enum Goal {
    /// No turn was given.
    Unset,
    Turn(u64),
    /// The last turn before the end.
    End,
}

impl Resetting<'_> {
    /// Keeps the turns up to and including this one; zero starts over with the same input.
    pub fn to_turn(mut self, turn: u64) -> Self {
        self.goal = Goal::Turn(turn);
        self
    }

    /// Continues with this version of the code. Default: the version that the instance is pinned to.
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = Some(version.into());
        self
    }

    /// Sets the recorded reason.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.why.reason = reason.into();
        self
    }

    /// Sets the recorded author.
    pub fn by(mut self, who: impl Into<String>) -> Self {
        self.why.by = Some(who.into());
        self
    }

    async fn make(self) -> Result<ResetReport, ClientError> {
        let Resetting { client, id, goal, version, why } = self;
        let to_turn = match goal {
            Goal::Turn(turn) => Some(turn),
            Goal::End => None,
            Goal::Unset => return Err(ClientError::NotHere { what: "call `to_turn`, or use `rerun`" }),
        };
        client.check_size(&id, why.size())?;
        if let Some(version) = &version {
            check_version(&id, version)?;
        }
        let row = client.row(&id).await?;
        let instance_call = InstanceCall::Reset { execution: row.execution, to_turn, version, why };
        match client.put_bound(&id, row.key, instance_call).await? {
            CallReply::Answered(report) => {
                report.decode_as().map_err(|problem| ClientError::unreadable(&id, &problem))
            }
            CallReply::Refused { reason, .. } => Err(ClientError::NotReset { id, reason }),
            other => Err(ClientError::Unknown { id, reason: format!("an unexpected reply: {other:?}") }),
        }
    }
}

impl<'a> IntoFuture for Resetting<'a> {
    type Output = Result<ResetReport, ClientError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.make())
    }
}

fn check_version(id: &str, version: &str) -> Result<(), ClientError> {
    let checked = semver::Version::parse(version).map(drop);
    checked.map_err(|problem| ClientError::BadVersion {
        id: id.to_owned(),
        version: version.to_owned(),
        problem: problem.to_string(),
    })
}
