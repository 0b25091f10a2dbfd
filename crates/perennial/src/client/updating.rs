//! Updates, and updates that start their instance.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;

use perennial_core::shard::{CallReply, InstanceCall};
use perennial_core::{Decision, InstanceKey, Job, NotOfType, Payload, Turn, check_key};

use super::call_span::Call;
use super::instance_calls::outcome;
use super::{Client, OnExisting, StartOptions, check};
use crate::error::ClientError;
use crate::typed::{OrchestrationTarget, UpdateError, UpdateTarget};

impl Client {
    /// Sends an update to an instance and waits for its outcome. The code may refuse it; a refused update is
    /// not recorded.
    ///
    /// The update is an [`Update`](crate::Update), or a name: then a string gets a string, and a payload (or
    /// `()`) gets a payload. The error of its handler keeps its type.
    ///
    /// ```
    /// use perennial::prelude::*;
    ///
    /// const SET: Update<u8, u8> = Update::named("set");
    ///
    /// #[orchestration]
    /// async fn dial(ctx: OrchestrationContext) -> Result<(), String> {
    ///     let position = ctx.state(0);
    ///     ctx.on_update(SET, &position, |position, to| async move {
    ///         Ok(position.update(|position| std::mem::replace(position, to)))
    ///     })
    ///     .validate(|_, to| if *to > 10 { Err(format!("{to} is too loud")) } else { Ok(()) });
    ///     ctx.wait_until(&position, |position| *position == 10).await;
    ///     Ok(())
    /// }
    ///
    /// # #[tokio::main]
    /// # async fn main() -> perennial::Result<()> {
    /// # let runtime = Runtime::open("memory:").register(dial).start().await?;
    /// let client = runtime.client();
    /// client.start(dial, "kitchen", ()).await?;
    /// assert_eq!(client.update("kitchen", SET, 3).await?, 0, "where it was before");
    /// let refused = client.update("kitchen", SET, 11).await.err().unwrap();
    /// assert!(matches!(refused, UpdateError::Refused { error: Some(words), .. } if words == "11 is too loud"));
    ///
    /// // Starts the instance first if it does not exist.
    /// assert_eq!(client.update("bathroom", SET, 7).or_start(dial, ()).once("set-1").await?, 0);
    /// assert_eq!(client.update("bathroom", SET, 7).or_start(dial, ()).once("set-1").await?, 0, "the same");
    /// # runtime.shutdown().await
    /// # }
    /// ```
    pub fn update<'a, T, I, K>(
        &'a self,
        id: &'a str,
        update: T,
        input: I,
    ) -> SendUpdate<'a, T::Output, T::Error>
    where
        T: UpdateTarget<I, K>,
    {
        SendUpdate {
            client: self,
            id,
            name: update.name().into_owned(),
            input: T::encode(input).map_err(|error| ClientError::unwritable(id, error)),
            key: None,
            start: None,
            read_output: T::read_output,
            read_error: T::read_error,
        }
    }

    /// Sends an update to the instance with the key, if given, or to the one that has the id.
    async fn put_update(
        &self,
        id: &str,
        instance: Option<InstanceKey>,
        name: &str,
        payload: Payload,
        key: String,
    ) -> Result<Payload, ClientError> {
        let instance_call = InstanceCall::Update {
            name: name.to_owned(),
            payload: payload.clone(),
            key: Some(key.clone()),
            trace: self.caller_trace(),
        };
        let reply = self.put(id, instance, name, payload, instance_call).await?;
        let known = match &reply {
            CallReply::KeyTaken | CallReply::Ended | CallReply::Unanswered => {
                self.recorded_update(id, &key).await?
            }
            _ => None,
        };
        match known.unwrap_or(reply) {
            CallReply::KeyTaken if !self.has_taken(id, None, &key).await? => {
                Err(ClientError::OutcomeDeleted { id: id.to_owned() })
            }
            reply => outcome(id, reply),
        }
    }

    /// Starts the instance if it does not exist, and sends it an update. The start is durable before the
    /// update is sent: a caller that gets no reply can repeat both with the same key.
    async fn start_and_update(
        &self,
        id: &str,
        start: Start,
        name: &str,
        payload: Payload,
        key: String,
    ) -> Result<Payload, ClientError> {
        let Start { orchestration, input, options } = start;
        let (input, replaces) = (input?, options.replaces_ended());
        let mut replace_now = false;
        loop {
            let policy = match std::mem::take(&mut replace_now) {
                true => OnExisting::ReplaceEnded,
                false => OnExisting::Reject,
            };
            let options = options.clone().on_existing(policy);
            let instance = match self.start_named(&orchestration, id, input.clone(), options).await {
                Ok((instance, _)) => instance,
                Err(ClientError::AlreadyExists { status, .. }) if !status.is_final() => {
                    match self.key_of(id).await? {
                        Some(instance) => instance,
                        // Deleted in the meantime.
                        None => continue,
                    }
                }
                // This update may be the one that ended it.
                Err(error @ ClientError::AlreadyExists { .. }) => {
                    if let Some(reply) = self.recorded_update(id, &key).await? {
                        return outcome(id, reply);
                    }
                    if !replaces {
                        return Err(error);
                    }
                    replace_now = true;
                    continue;
                }
                Err(error) => return Err(error),
            };
            match self.put_update(id, Some(instance), name, payload.clone(), key.clone()).await {
                // The instance ended or was deleted in the meantime; look again to decide what follows.
                Err(ClientError::Ended { .. }) if replaces => {}
                Err(ClientError::NotFound { .. }) => {}
                outcome => return outcome,
            }
        }
    }

    /// The recorded outcome of the update with a key, of an instance that has continued as new or ended
    /// since.
    async fn recorded_update(&self, id: &str, key: &str) -> Result<Option<CallReply>, ClientError> {
        let row = self.row(id).await?;
        let found = self.search_executions(&row, |execution, history| {
            let is_it = |job: &Job| matches!(job, Job::UpdateRequested { .. }) && job.key() == Some(key);
            let mut jobs = history.turns.iter().flat_map(Turn::jobs);
            let (update, _) = jobs.find(|(_, job)| is_it(job))?;
            let mut decisions = history.turns.iter().flat_map(Turn::decisions);
            let answer = decisions.find_map(|(_, _, decision)| match decision {
                Decision::UpdateCompleted { source_event_id, result } if *source_event_id == update => {
                    Some(result.clone().map_or_else(CallReply::Failed, CallReply::Answered))
                }
                _ => None,
            });
            let is_over = execution < row.execution || row.status.is_final();
            Some(answer.or(is_over.then_some(CallReply::Unanswered)))
        });
        Ok(found.await?.flatten())
    }
}

/// The start of the instance, if it does not exist.
struct Start {
    orchestration: String,
    input: Result<Payload, ClientError>,
    options: StartOptions,
}

/// An update, sent when this is awaited. See [`Client::update`].
#[must_use = "the update is not sent until this is awaited"]
pub struct SendUpdate<'a, O, E> {
    client: &'a Client,
    id: &'a str,
    name: String,
    input: Result<Payload, ClientError>,
    key: Option<String>,
    start: Option<Start>,
    read_output: fn(Payload) -> Result<O, NotOfType>,
    read_error: fn(Payload) -> Result<E, NotOfType>,
}

impl<O, E> SendUpdate<'_, O, E> {
    /// Sets a deduplication key: an update sent again with the same key gets the outcome of the first, even
    /// after the instance has continued as new or ended.
    ///
    /// The outcome is read from the history of the execution that took the update. Once that has been deleted
    /// ([`RuntimeOptions::keep_executions`](crate::RuntimeOptions::keep_executions)), an update with that key gets
    /// [`ClientError::OutcomeDeleted`], as long as the key is among the last 1,000 of the instance.
    pub fn once(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Starts an instance of an orchestration first if the id does not exist. An instance that has ended is
    /// an error; see [`or_start_with`](Self::or_start_with).
    ///
    /// The start is durable before the update is sent. A caller that gets no reply can repeat both with the
    /// same [key](Self::once); the instance is then started once and updated once.
    pub fn or_start<T, I, K>(self, orchestration: T, input: I) -> Self
    where
        T: OrchestrationTarget<I, K>,
    {
        self.or_start_with(orchestration, input, StartOptions::default())
    }

    /// Like [`or_start`](Self::or_start), with options. [`OnExisting::ReplaceEnded`] replaces an instance
    /// that has ended, unless it took this update before; a running instance is updated whatever the policy
    /// is.
    pub fn or_start_with<T, I, K>(mut self, orchestration: T, input: I, options: StartOptions) -> Self
    where
        T: OrchestrationTarget<I, K>,
    {
        let input = T::encode(input).map_err(|error| ClientError::unwritable(self.id, error));
        self.start = Some(Start { orchestration: orchestration.name().into_owned(), input, options });
        self
    }

    async fn send(self) -> Result<O, UpdateError<E>> {
        let SendUpdate { client, id, name, input, key, start, read_output, read_error } = self;
        if let Some(key) = &key {
            check("key", key, check_key)?;
        }
        // With a key, the next owner finds an update that the last one had accepted.
        let key = key.unwrap_or_else(|| client.sender.draw_key());
        let span = client.call_span(Call::Update(&name), id);
        let client = &*client.within(&span);
        let input = input?;
        let answered = async {
            match start {
                Some(start) => client.start_and_update(id, start, &name, input, key).await,
                None => {
                    let answer = client.put_update(id, client.only, &name, input, key).await;
                    client.tell_apart(id, answer).await
                }
            }
        };
        match span.over(answered, |_| "answered").await {
            Ok(answer) => Ok(read_output(answer).map_err(|problem| ClientError::unreadable(id, &problem))?),
            Err(error) => Err(UpdateError::read(error, read_error)),
        }
    }
}

impl<'a, O: 'a, E: 'a> IntoFuture for SendUpdate<'a, O, E> {
    type Output = Result<O, UpdateError<E>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

impl<O, E> fmt::Debug for SendUpdate<'_, O, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendUpdate").field("id", &self.id).field("name", &self.name).finish_non_exhaustive()
    }
}
