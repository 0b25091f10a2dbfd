//! Activities that are completed later with a token: the test supplies their outcomes.

use std::borrow::Cow;
use std::future::Future;

use perennial::ActivityContext;
use perennial::typed::{Activity, ActivityMeta, Call, Later, by};
use perennial_core::Payload;
use perennial_core::shard::{CallReply, InstanceCall, Request, Response, Said, TaskWork, TokenCall};
use serde::Serialize;

use super::TestEnvironment;
use super::driver::Driver;
use super::requests::{or_panic, written};
use super::script::{Action, When};

/// An activity that is completed later: a function marked with `#[activity]` that returns `Result<Later<T>,
/// E>`, an [`Activity`], or a name (then results and errors are payloads).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an activity that is completed later",
    label = "not an activity that returns `Result<Later<T>, E>`",
    note = "pass a function marked with `#[activity]` that returns `Result<Later<T>, E>`, or a name"
)]
pub trait TokenTarget<K> {
    /// The result type of the activity.
    type Value: Serialize;
    /// The error type of the activity.
    type Error: Serialize;

    /// The registered name.
    fn name(&self) -> Cow<'_, str>;
}

macro_rules! functions {
    ($($kind:ident($($type:ident),*) = $input:ty;)*) => {$(
        impl<Fun, M, Fut, V, E $(, $type)*> TokenTarget<(by::$kind, $input)> for Fun
        where
            Fun: Fn(ActivityContext $(, $type)*) -> Call<M, Fut>,
            M: ActivityMeta,
            Fut: Future<Output = Result<Later<V>, E>>,
            V: Serialize,
            E: Serialize,
        {
            type Value = V;
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

impl TokenTarget<by::Name> for &str {
    type Value = Payload;
    type Error = Payload;

    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(self)
    }
}

impl<A, O: Serialize, E: Serialize> TokenTarget<by::Described> for Activity<A, O, E> {
    type Value = O;
    type Error = E;

    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(Activity::name(self))
    }
}

impl TestEnvironment {
    /// Completes an activity as soon as an attempt of it waits for its token, in the most recently started
    /// instance. Several results for one activity complete one attempt each, in order.
    ///
    /// ```
    /// use perennial::prelude::*;
    /// use perennial_testkit::TestEnvironment;
    ///
    /// #[activity]
    /// async fn approval(ctx: ActivityContext, order: u32) -> Result<Later<bool>, String> {
    ///     println!("mailing {}", ctx.completion_token());
    ///     Ok(Later::Pending)
    /// }
    ///
    /// #[orchestration]
    /// async fn order(ctx: OrchestrationContext, order: u32) -> Result<String, String> {
    ///     let approved = ctx.schedule_activity(approval, order).timeout(Duration::from_secs(86_400)).await;
    ///     Ok(match approved {
    ///         Ok(true) => "sent".to_owned(),
    ///         Ok(false) => "declined".to_owned(),
    ///         Err(error) => format!("no answer: {error}"),
    ///     })
    /// }
    ///
    /// let env = || TestEnvironment::new().register(order).register(approval);
    /// assert_eq!(env().complete_when_waiting(approval, true).run(order, 7).unwrap(), "sent");
    /// let asked = env().fail_when_waiting(approval, "on holiday".to_owned()).run(order, 7).unwrap();
    /// assert!(asked.starts_with("no answer") && asked.contains("on holiday"));
    ///
    /// // Or at any time while the test runs.
    /// let mut env = env();
    /// let run = env.start(order, "order-7", 7);
    /// env.advance(Duration::from_secs(3_600));
    /// env.complete_activity("order-7", approval, false);
    /// assert_eq!(env.result(&run).unwrap(), "declined");
    /// ```
    #[track_caller]
    pub fn complete_when_waiting<T: TokenTarget<K>, K>(
        self,
        activity: T,
        result: T::Value,
    ) -> TestEnvironment {
        let said = Said::Completed(written(Payload::encode(&result)));
        self.script_token_call(&activity, said)
    }

    /// Fails an attempt of an activity as soon as it waits for its token, in the most recently started
    /// instance. The retry policy of the activity applies.
    #[track_caller]
    pub fn fail_when_waiting<T: TokenTarget<K>, K>(self, activity: T, error: T::Error) -> TestEnvironment {
        let said = Said::Failed(written(Payload::encode(&error)));
        self.script_token_call(&activity, said)
    }

    #[track_caller]
    fn script_token_call<T: TokenTarget<K>, K>(self, activity: &T, said: Said) -> TestEnvironment {
        let activity = activity.name().into_owned();
        self.script(When::Waiting, None, Action::TokenCall { activity, said })
    }

    /// Completes an activity of an instance that waits for its token.
    ///
    /// # Panics
    ///
    /// If no attempt of the activity waits, or the orchestration cannot decode the result.
    #[track_caller]
    pub fn complete_activity<T: TokenTarget<K>, K>(&mut self, id: &str, activity: T, result: T::Value) {
        let said = Said::Completed(written(Payload::encode(&result)));
        or_panic(self.call_with_token(id, &activity.name(), &said));
    }

    /// Fails an attempt of an activity of an instance that waits for its token. The retry policy of the
    /// activity applies.
    ///
    /// # Panics
    ///
    /// If no attempt of the activity waits.
    #[track_caller]
    pub fn fail_activity<T: TokenTarget<K>, K>(&mut self, id: &str, activity: T, error: T::Error) {
        let said = Said::Failed(written(Payload::encode(&error)));
        or_panic(self.call_with_token(id, &activity.name(), &said));
    }

    fn call_with_token(&mut self, id: &str, activity: &str, said: &Said) -> Result<(), String> {
        let reply = self.drive(|driver| {
            let call = driver.waiting_attempt(id, activity, said)?;
            Some(driver.call_with_token(id, &call))
        });
        match reply {
            Some(CallReply::Answered(_)) => Ok(()),
            None => Err(format!("no attempt of the activity {activity:?} waits for its token in {id:?}")),
            Some(other) => Err(format!("{id:?} rejects the outcome of {activity:?}: {other:?}")),
        }
    }
}

impl Driver {
    /// The call for the oldest attempt of an activity that waits for its token, if there is one.
    pub(super) fn waiting_attempt(&self, id: &str, activity: &str, said: &Said) -> Option<TokenCall> {
        let key = self.row(id)?.key;
        let tables = self.tables();
        let mut mine = tables.tasks.values().filter(|row| row.id.key == key && row.name == activity);
        mine.find_map(|row| {
            let open =
                TaskWork::decode(row.work.as_deref()?).ok()?.open.filter(|open| open.left.is_some())?;
            let (execution, event, attempt) = (row.id.execution, row.id.event, row.attempt);
            Some(TokenCall { execution, event, attempt, secret: open.secret, said: said.clone() })
        })
    }

    /// Reports an outcome for an attempt. Sent again after a crash, it may have been accepted before.
    pub(super) fn call_with_token(&mut self, id: &str, call: &TokenCall) -> CallReply {
        let crashes = self.crashes();
        let answer = self.request(id, || Request::Call(InstanceCall::Token(Box::new(call.clone()))));
        match answer {
            Response::Reply(CallReply::NotOpen | CallReply::Outdated { .. } | CallReply::Ended)
            | Response::EndedBefore
                if self.crashes() > crashes =>
            {
                CallReply::Answered(Payload::null())
            }
            Response::Reply(reply) => reply,
            other => or_panic(Err(format!("{id:?} does not answer a token call: {other:?}"))),
        }
    }
}
