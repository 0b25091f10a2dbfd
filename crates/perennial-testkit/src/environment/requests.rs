//! Requests that a test sends to running instances: events, cancels, queries, updates.

use perennial::typed::{EventContent, QueryTarget, UpdateTarget};
use perennial::{ClientError, UpdateError};
use perennial_core::shard::{CallReply, InstanceCall, Request, Response};
use perennial_core::{NotOfType, Payload};

use super::script::Action;
use super::{TestEnvironment, raise};

impl TestEnvironment {
    /// Raises an event at an instance.
    ///
    /// # Panics
    ///
    /// If the instance does not exist, or has ended.
    #[track_caller]
    pub fn raise<T: EventContent<C>, C>(&mut self, id: &str, event: T, content: C) {
        let Action::Raise { event, payload } = raise(&event, T::encode(content)) else { return };
        self.drive(|driver| driver.raise(id, &event, &payload));
    }

    /// Requests the cancellation of an instance.
    ///
    /// # Panics
    ///
    /// If the instance does not exist.
    #[track_caller]
    pub fn cancel(&mut self, id: &str, reason: &str) {
        let answer = self.drive(|driver| {
            driver.request(id, || Request::Cancel { reason: reason.to_owned(), grace_ms: None })
        });
        let is_done = matches!(answer, Response::Accepted | Response::EndedBefore);
        assert!(is_done, "{id:?} cannot be cancelled: {answer:?}");
    }

    /// Queries an instance, with a [`Query`](perennial::Query) and its input, or a name and a payload.
    /// Instances that have ended answer queries, too.
    ///
    /// # Panics
    ///
    /// If the query fails, or its answer is of another type.
    #[track_caller]
    pub fn query<T, I, K>(&mut self, id: &str, query: T, input: I) -> T::Output
    where
        T: QueryTarget<I, K>,
    {
        let name = query.name().into_owned();
        let instance_call = InstanceCall::Query { name: name.clone(), payload: written(T::encode(input)) };
        let answer = self.drive(|driver| driver.request(id, || Request::Call(instance_call.clone())));
        let answer = or_panic(outcome(id, answer).map_err(|error| format!("{name:?} failed: {error}")));
        let other = |error| format!("the answer of {id:?} to {name:?} is of another type: {error}");
        or_panic(T::read_output(answer).map_err(other))
    }

    /// Sends an update to an instance and lets time pass until it has an outcome, as a client would wait for
    /// it: the handler may wait for activities and timers. A refused update is not recorded.
    ///
    /// ```
    /// use perennial::prelude::*;
    /// use perennial_testkit::TestEnvironment;
    ///
    /// const WITHDRAW: Update<i64, i64, String> = Update::named("withdraw");
    ///
    /// #[orchestration]
    /// async fn account(ctx: OrchestrationContext, balance: i64) -> Result<i64, String> {
    ///     let balance = ctx.state(balance);
    ///     ctx.on_update(WITHDRAW, &balance, |balance, cents| async move {
    ///         Ok(balance.update(|balance| { *balance -= cents; *balance }))
    ///     })
    ///     .validate(|balance, cents| match balance.read(|balance| balance >= cents) {
    ///         true => Ok(()),
    ///         false => Err("not enough".to_owned()),
    ///     });
    ///     ctx.wait_until(&balance, |balance| *balance == 0).await;
    ///     Ok(0)
    /// }
    ///
    /// let mut env = TestEnvironment::new().register(account);
    /// let run = env.start(account, "ada", 100);
    /// assert_eq!(env.update("ada", WITHDRAW, 70), Ok(30));
    /// let refused = env.update("ada", WITHDRAW, 70);
    /// assert!(matches!(refused, Err(UpdateError::Refused { error: Some(why), .. }) if why == "not enough"));
    /// assert_eq!(env.update("ada", WITHDRAW, 30), Ok(0));
    /// assert_eq!(env.result(&run), Ok(0));
    /// ```
    ///
    /// # Panics
    ///
    /// If the update never has an outcome, or its result is of another type.
    #[track_caller]
    pub fn update<T, I, K>(
        &mut self,
        id: &str,
        update: T,
        input: I,
    ) -> Result<T::Output, UpdateError<T::Error>>
    where
        T: UpdateTarget<I, K>,
    {
        let name = update.name().into_owned();
        let payload = written(T::encode(input));
        let answer = self.drive(|driver| driver.update(id, &name, &payload));
        let answer = or_panic(answer.map_err(|halt| format!("{name:?} of {id:?} has no outcome: {halt}")));
        let other =
            |error: NotOfType| format!("the answer of {id:?} to {name:?} is of another type: {error}");
        match outcome(id, answer) {
            Ok(payload) => Ok(or_panic(T::read_output(payload).map_err(other))),
            Err(ClientError::UpdateFailed { id, error }) => {
                let error = or_panic(T::read_error(error).map_err(other));
                Err(UpdateError::Failed { id, error })
            }
            Err(ClientError::Refused { id, reason, error }) => {
                // An input that the code cannot decode is refused with a text, whatever the update's own
                // error type is.
                let error = error.and_then(|error| T::read_error(error).ok());
                Err(UpdateError::Refused { id, reason, error })
            }
            Err(error) => Err(UpdateError::Client(error)),
        }
    }

    /// The outcomes of the updates of [`TestEnvironment::update_at`], with their names, in the order of the
    /// script. Updates that were not sent, or have no outcome yet, are left out.
    pub fn scripted_updates(&self) -> Vec<(String, Result<Payload, ClientError>)> {
        let Some(driver) = &self.driver else { return Vec::new() };
        let outcomes = driver.scripted_updates();
        outcomes.into_iter().map(|(name, id, answer)| (name, outcome(&id, answer))).collect()
    }
}

/// Converts a response into the result that a client returns.
fn outcome(id: &str, answer: Response) -> Result<Payload, ClientError> {
    let id = id.to_owned();
    match answer {
        Response::Reply(CallReply::Answered(payload)) => Ok(payload),
        Response::Reply(CallReply::Failed(error)) => Err(ClientError::UpdateFailed { id, error }),
        Response::Reply(CallReply::Refused { reason, error }) => {
            Err(ClientError::Refused { id, reason, error })
        }
        Response::Reply(CallReply::Blocked { code, reason }) => {
            Err(ClientError::Blocked { id, code, reason })
        }
        Response::Reply(CallReply::Ended) | Response::EndedBefore | Response::TooLate => {
            Err(ClientError::Ended { id })
        }
        Response::Reply(CallReply::Unanswered) => Err(ClientError::Unanswered { id }),
        Response::NotFound => Err(ClientError::NotFound { id }),
        other => Err(ClientError::Unknown { id, reason: format!("{other:?}") }),
    }
}

#[track_caller]
pub(super) fn written(input: Result<Payload, serde_json::Error>) -> Payload {
    or_panic(input.map_err(|error| format!("the input cannot be written as JSON: {error}")))
}

/// Unwraps a result, or panics at the caller's line: `track_caller` in a closure would report this file.
#[track_caller]
pub(super) fn or_panic<T>(outcome: Result<T, String>) -> T {
    match outcome {
        Ok(value) => value,
        Err(problem) => panic!("{problem}"),
    }
}
