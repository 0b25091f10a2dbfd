//! Actions on many instances, with progress. Failures of one do not stop the others.

use std::collections::BTreeMap;
use std::time::Duration;

use perennial_core::store::{Pause, TaskState};
use perennial_core::{Payload, Why};

use super::{Client, InstanceView};
use crate::error::ClientError;
use crate::filter::Filter;

/// How many instances are read at a time.
const PAGE: usize = 200;

/// An action that [`Client::for_each`] applies to each instance.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Requests cancellation.
    Cancel {
        /// The reason of the request.
        reason: String,
        /// How long it may clean up; `None` uses the runtime's default.
        grace: Option<Duration>,
    },
    /// Ends it without running its code.
    Terminate {
        /// The reason of the termination.
        reason: String,
    },
    /// Raises an event.
    Raise {
        /// The name of the event.
        event: String,
        /// The content of the event.
        payload: Payload,
    },
    /// Retries it, if it is blocked.
    Retry,
    /// Makes the attempts that its activities wait for now.
    RetryActivities {
        /// The name of the activities; `None` for all.
        name: Option<String>,
    },
    /// Pauses it.
    Pause {
        /// The reason, and who gave it.
        why: Why,
    },
    /// Resumes it, if it is paused.
    Resume {
        /// The reason, and who gave it.
        why: Why,
    },
    /// Pauses it until its orchestration is resumed. Used by [`Client::pause_orchestration`].
    #[doc(hidden)]
    PauseWithOrchestration {
        /// The reason, and who gave it.
        why: Why,
    },
    /// Resumes it if it is paused with its orchestration. Used by [`Client::resume_orchestration`].
    #[doc(hidden)]
    ResumeWithOrchestration {
        /// The reason, and who gave it.
        why: Why,
    },
    /// Deletes it, with its children.
    Delete {
        /// Whether a running instance is terminated first.
        force: bool,
    },
}

/// Progress of an operation on many instances.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Number of instances that were read.
    pub seen: u64,
    /// Number of instances that the action was applied to.
    pub done: u64,
    /// Number of instances that the action did not apply to, for example because they had ended.
    pub skipped: u64,
    /// Number of failures.
    pub failed: u64,
    /// The ids and errors of the first failures.
    pub failures: Vec<(String, String)>,
    /// How many failed, by the code of the error.
    pub reasons: BTreeMap<String, u64>,
}

impl Progress {
    /// How many failures are kept with their errors.
    const KEPT_FAILURES: usize = 20;

    fn fail(&mut self, id: &str, error: &ClientError) {
        self.failed += 1;
        *self.reasons.entry(error.code().to_string()).or_default() += 1;
        if self.failures.len() < Progress::KEPT_FAILURES {
            self.failures.push((id.to_owned(), error.to_string()));
        }
    }
}

impl Client {
    /// Applies an action to every instance that matches a filter. Failures do not stop the others; the report
    /// lists them.
    pub async fn for_each(
        &self,
        filter: Filter,
        action: Action,
        mut progress: impl FnMut(&Progress),
    ) -> Result<Progress, ClientError> {
        let (mut report, mut after) = (Progress::default(), None);
        loop {
            let page = self.list(filter.clone(), after, PAGE).await?;
            let tell = |so_far: &Progress| progress(so_far);
            self.act_on(&page.rows, &action, &mut report, tell, |_| true).await?;
            after = page.next;
            if after.is_none() {
                return Ok(report);
            }
        }
    }

    /// Applies an action to instances that were listed, each bound to its key, so that another instance which has the
    /// id by now is not reached. Counts in `report`, and tells after each instance. Before each one, `goes_on` decides
    /// whether it is reached. Returns whether all were.
    ///
    /// An instance that the action does not apply to any more, for example because it ended, is skipped.
    ///
    /// ```
    /// use perennial::client::{Action, Progress};
    /// use perennial::{Client, Filter, Status};
    ///
    /// # async fn stop_ten(client: &Client) -> perennial::Result<()> {
    /// let page = client.list(Filter::default().status(Status::Running), None, 100).await?;
    /// let (action, mut report) = (Action::Terminate { reason: "too many".to_owned() }, Progress::default());
    /// client.act_on(&page.rows, &action, &mut report, |_| (), |so_far| so_far.done < 10).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn act_on(
        &self,
        instances: &[InstanceView],
        action: &Action,
        report: &mut Progress,
        mut tell: impl FnMut(&Progress),
        mut goes_on: impl FnMut(&Progress) -> bool,
    ) -> Result<bool, ClientError> {
        for instance in instances {
            if !goes_on(report) {
                return Ok(false);
            }
            report.seen += 1;
            match self.act(instance, action).await {
                Ok(true) => report.done += 1,
                Ok(false) => report.skipped += 1,
                Err(error @ ClientError::Stopped { .. }) => return Err(error),
                Err(error) => report.fail(&instance.id, &error),
            }
            tell(report);
        }
        Ok(true)
    }

    /// Applies an action to one instance of a list. Returns whether it applied.
    async fn act(&self, instance: &InstanceView, action: &Action) -> Result<bool, ClientError> {
        let InstanceView { id, key, .. } = instance;
        let (pause, is_blocked) = match &instance.blocked {
            Some(blocked) => (blocked.pause.as_ref(), blocked.pause.is_none()),
            None => (None, instance.missing_code.is_some()),
        };
        let done = match action {
            Action::Delete { force } => match self.unbound().row(id).await {
                Ok(current) if current.key == *key => {
                    let client = self.unbound();
                    client.delete_family(id, client.family(current).await?, *force).await.map(drop)
                }
                Ok(_) => return Ok(false),
                Err(error) => Err(error),
            },
            _ if instance.status.is_final() => return Ok(false),
            Action::Cancel { reason, grace } => self.cancel_bound(id, Some(*key), reason, *grace).await,
            Action::Terminate { reason } => self.terminate_bound(id, Some(*key), reason).await,
            Action::Raise { event, payload } => {
                self.raise(id, Some(*key), event, payload.clone(), None).await
            }
            Action::Pause { why } => {
                self.pause_bound(id, *key, Pause { why: why.clone(), orchestration: false }).await
            }
            // An instance that was paused individually stays paused when its orchestration is resumed.
            Action::PauseWithOrchestration { .. } if pause.is_some() => return Ok(false),
            Action::PauseWithOrchestration { why } => {
                self.pause_bound(id, *key, Pause { why: why.clone(), orchestration: true }).await
            }
            Action::Resume { .. } if pause.is_none() => return Ok(false),
            Action::ResumeWithOrchestration { .. } if pause.is_none_or(|pause| !pause.orchestration) => {
                return Ok(false);
            }
            Action::Resume { why } => self.resume_listed(instance, why.clone()).await,
            Action::ResumeWithOrchestration { why } => self.resume_bound(id, *key, why.clone()).await,
            Action::Retry if !is_blocked => return Ok(false),
            Action::Retry => self.retry_bound(id, *key).await,
            Action::RetryActivities { name } => {
                return self.retry_activities(instance, name.as_deref()).await;
            }
        };
        match done {
            Ok(()) => Ok(true),
            Err(error) if is_no_longer_meant(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes the attempts that activities of an instance wait for now. Returns whether there were any.
    async fn retry_activities(
        &self,
        instance: &InstanceView,
        name: Option<&str>,
    ) -> Result<bool, ClientError> {
        let bound = self.bound_to(instance.key);
        let tasks = match bound.tasks(&instance.id).await {
            Ok(tasks) => tasks,
            Err(error) if is_no_longer_meant(&error) => return Ok(false),
            Err(error) => return Err(error),
        };
        let is_waiting = |name: Option<&str>, task: &perennial_core::store::TaskRow| {
            task.state == TaskState::Waiting && name.is_none_or(|name| task.name == name)
        };
        let mut is_done = false;
        for task in tasks.iter().filter(|task| is_waiting(name, task)) {
            match bound.retry_activity(&instance.id, task.id.execution, task.id.event).await {
                Ok(()) => is_done = true,
                Err(ClientError::NotWaiting { .. }) => {}
                Err(error) if is_no_longer_meant(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(is_done)
    }
}

/// Whether the action does not apply to the instance any more: something else happened to it since it was listed.
fn is_no_longer_meant(error: &ClientError) -> bool {
    matches!(
        error,
        ClientError::NotFound { .. }
            | ClientError::AnotherInstance { .. }
            | ClientError::Ended { .. }
            | ClientError::NotBlocked { .. }
            | ClientError::OrchestrationPaused { .. }
            | ClientError::NotEnded { .. }
    )
}
