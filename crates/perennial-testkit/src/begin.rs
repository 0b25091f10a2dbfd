//! Starts the operations that a program waits for.
//!
//! Every operation is started when it is reached, in order, and only then awaited. Started operations keep
//! their own types where a select polls them, so that results which are available already are distinguished
//! by their events.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use perennial_core::{
    ActivityFuture, ChildFuture, ClosePolicy, Either, Either3, EventId, NotOfType, Operand, Payload,
    RetryPolicy, Shield, TimerFuture, UnitHandle, WaitFuture,
};

use crate::Accumulator;
use crate::interpret::Interpreter;
use crate::program::{ActivityInput, Awaitable, PROGRAM, PROGRAM_VERSION, Program, TAG};

/// The outcome of an operation as text.
pub(crate) type Outcome = Result<String, String>;

/// The text of an outcome, for the accumulator.
pub(crate) fn text(outcome: Outcome) -> String {
    outcome.unwrap_or_else(|failure| format!("failed: {failure}"))
}

/// A started operation.
pub(crate) enum Pending {
    Activity(ActivityFuture),
    Timer(TimerFuture),
    Event(WaitFuture),
    Child(ChildFuture),
    Spawned(UnitHandle<Accumulator>),
    Shielded(Shield<Accumulator>),
    Combined(Pin<Box<dyn Future<Output = Outcome> + Send>>),
    /// It was polled and has returned; `None` once the outcome is taken.
    Returned(Option<Outcome>),
}

impl Pending {
    fn combined(future: impl Future<Output = Outcome> + Send + 'static) -> Pending {
        Pending::Combined(Box::pin(future))
    }

    pub(crate) fn detach(self) {
        match self {
            Pending::Spawned(handle) => handle.detach(),
            other => drop(other),
        }
    }

    /// Cancels it, if its end can still be awaited.
    fn stop(&mut self) {
        match self {
            Pending::Activity(future) => future.cancel(),
            Pending::Child(future) => future.cancel_within("enough", Duration::from_secs(5)),
            _ => {}
        }
    }

    /// Polls it once, so that the running unit is the one that waits for it, and keeps its outcome.
    pub(crate) async fn poll_once(&mut self) {
        let polled = poll_fn(|cx| Poll::Ready(Pin::new(&mut *self).poll(cx))).await;
        if let Poll::Ready(outcome) = polled {
            *self = Pending::Returned(Some(outcome));
        }
    }
}

impl Future for Pending {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        match &mut *self {
            Pending::Activity(future) => Pin::new(future).poll(cx).map(recorded),
            Pending::Timer(future) => Pin::new(future).poll(cx).map(|()| Ok("fired".to_owned())),
            Pending::Event(future) => {
                Pin::new(future).poll(cx).map(|payload| Ok(payload.as_json().to_owned()))
            }
            Pending::Child(future) => Pin::new(future).poll(cx).map(recorded),
            Pending::Spawned(future) => Pin::new(future).poll(cx).map(|seen| Ok(seen.to_string())),
            Pending::Shielded(future) => Pin::new(future).poll(cx).map(|seen| Ok(seen.to_string())),
            Pending::Combined(future) => future.as_mut().poll(cx),
            Pending::Returned(outcome) => outcome.take().map_or(Poll::Pending, Poll::Ready),
        }
    }
}

/// Accepts only a payload that is text.
pub(crate) fn text_alone(payload: Payload) -> Result<Payload, NotOfType> {
    payload.decode_as::<String>().map(|_| payload)
}

fn recorded<E: std::fmt::Debug>(result: Result<Payload, E>) -> Outcome {
    match result {
        Ok(payload) => Ok(payload.as_json().to_owned()),
        Err(failure) => Err(format!("{failure:?}")),
    }
}

impl Operand for Pending {
    fn stored_event(&self) -> Option<EventId> {
        match self {
            Pending::Activity(future) => future.stored_event(),
            Pending::Timer(future) => future.stored_event(),
            Pending::Event(future) => future.stored_event(),
            Pending::Child(future) => future.stored_event(),
            Pending::Spawned(_) | Pending::Shielded(_) | Pending::Combined(_) | Pending::Returned(_) => None,
        }
    }
}

impl Interpreter {
    /// Starts an operation. Parts with their own accumulator start from a fork of this one.
    pub(crate) fn begin(&self, what: &Awaitable, accumulator: Accumulator) -> Pending {
        let ctx = &self.ctx;
        match what {
            Awaitable::Activity { name, input, tuned } => {
                let input = match input {
                    ActivityInput::Accumulator => accumulator.to_string(),
                    ActivityInput::Fixed => "fixed".to_owned(),
                };
                let activity = ctx.schedule_activity(name.as_str(), input);
                Pending::Activity(if *tuned { tune(activity, accumulator) } else { activity })
            }
            Awaitable::Timer { delay_ms } => {
                Pending::Timer(ctx.schedule_timer(Duration::from_millis(*delay_ms)))
            }
            Awaitable::Event { name } => {
                let wait = ctx.schedule_wait(name.as_str());
                Pending::Event(if self.wants_text() { wait.read_by(text_alone) } else { wait })
            }
            Awaitable::Child { program, named, versioned, abandoned, on_existing } => {
                let child = self.child(program, accumulator, *named, *versioned).on_existing(*on_existing);
                Pending::Child(if *abandoned { child.close_policy(ClosePolicy::Abandon) } else { child })
            }
            Awaitable::Signals { name, at_least } => {
                let signals = self.clone().signals(name.clone(), *at_least);
                Pending::combined(async move {
                    signals.await;
                    Ok("signalled".to_owned())
                })
            }
            Awaitable::HandlersIdle => {
                let idle = ctx.handlers_idle();
                Pending::combined(async move {
                    idle.await;
                    Ok("idle".to_owned())
                })
            }
            Awaitable::Sequence(block) => {
                let block = self.block(block.clone(), accumulator.fork(0));
                Pending::combined(async move { Ok(block.await.to_string()) })
            }
            Awaitable::Parallel(blocks) => {
                let branch =
                    |(index, block): (usize, &_)| self.block(Clone::clone(block), accumulator.fork(index));
                let branches = ctx.parallel(blocks.iter().enumerate().map(branch));
                Pending::combined(
                    async move { Ok(listed(branches.await.iter().map(Accumulator::to_string))) },
                )
            }
            Awaitable::Spawned(block) => {
                Pending::Spawned(ctx.spawn(self.block(block.clone(), accumulator.fork(0))))
            }
            Awaitable::Shielded(block) => {
                Pending::Shielded(ctx.shield(self.block(block.clone(), accumulator.fork(0))))
            }
            Awaitable::Uncancellable(block) => {
                Pending::Shielded(ctx.uncancellable(self.block(block.clone(), accumulator.fork(0))))
            }
            Awaitable::Stopped { what, after_ms } => {
                let mut what = self.begin(what, accumulator.fork(0));
                let after = ctx.schedule_timer(Duration::from_millis(*after_ms));
                let ctx = ctx.clone();
                Pending::combined(async move {
                    match ctx.select2(&mut what, after).await {
                        Either::First(outcome) => outcome,
                        Either::Second(()) => {
                            what.stop();
                            what.await
                        }
                    }
                })
            }
            Awaitable::Attempted { program } => {
                let child = self.child(program, accumulator, false, false);
                let mut child = child
                    .retry(RetryPolicy::fixed(Duration::from_millis(50)).attempts(2))
                    .timeout(Duration::from_secs(90));
                let started = child.started();
                Pending::combined(async move {
                    let started = started.await;
                    recorded(child.await).map(|outcome| format!("{started:?} {outcome}"))
                })
            }
            Awaitable::Joined(parts) => self.join(self.begin_all(parts, accumulator)),
            Awaitable::TryJoined(parts) => {
                let joined = ctx.try_join(self.begin_all(parts, accumulator));
                Pending::combined(async move { joined.await.map(listed) })
            }
            Awaitable::Raced { operands, named } => self.race(self.begin_all(operands, accumulator), *named),
            Awaitable::Limited { limit_ms, what } => {
                let what = self.begin(what, accumulator.fork(0));
                let limited = ctx.timeout(Duration::from_millis(*limit_ms), what);
                Pending::combined(
                    async move { limited.await.unwrap_or_else(|elapsed| Err(elapsed.to_string())) },
                )
            }
        }
    }

    fn begin_all(&self, parts: &[Awaitable], accumulator: Accumulator) -> Vec<Pending> {
        let begin = |(index, part)| self.begin(part, accumulator.fork(index));
        parts.iter().enumerate().map(begin).collect()
    }

    fn child(
        &self,
        program: &Program,
        accumulator: Accumulator,
        named: bool,
        versioned: bool,
    ) -> ChildFuture {
        let (ctx, input) = (&self.ctx, self.given(program, accumulator));
        let instance = || self.new_instance(accumulator);
        match (named, versioned) {
            (false, false) => ctx.schedule_sub_orchestration(PROGRAM, input),
            (true, false) => ctx.schedule_sub_orchestration_with_id(PROGRAM, instance(), input),
            (false, true) => ctx.schedule_sub_orchestration_versioned(PROGRAM, PROGRAM_VERSION, input),
            (true, true) => {
                let instance = instance();
                ctx.schedule_sub_orchestration_with_id_versioned(PROGRAM, PROGRAM_VERSION, instance, input)
            }
        }
    }

    fn join(&self, parts: Vec<Pending>) -> Pending {
        let ctx = &self.ctx;
        match <[Pending; 2]>::try_from(parts).map_err(<[Pending; 3]>::try_from) {
            Ok([a, b]) => {
                let joined = ctx.join2(a, b);
                Pending::combined(async move {
                    let (a, b) = joined.await;
                    Ok(listed([a, b].map(text)))
                })
            }
            Err(Ok([a, b, c])) => {
                let joined = ctx.join3(a, b, c);
                Pending::combined(async move {
                    let (a, b, c) = joined.await;
                    Ok(listed([a, b, c].map(text)))
                })
            }
            Err(Err(parts)) => {
                let joined = ctx.join(parts);
                Pending::combined(async move { Ok(listed(joined.await.into_iter().map(text))) })
            }
        }
    }

    fn race(&self, operands: Vec<Pending>, named: bool) -> Pending {
        let ctx = &self.ctx;
        if !named {
            return Pending::combined(ctx.race(operands));
        }
        match <[Pending; 2]>::try_from(operands).map_err(<[Pending; 3]>::try_from) {
            Ok([a, b]) => {
                let select = ctx.select2(a, b);
                Pending::combined(async move {
                    match select.await {
                        Either::First(outcome) => winner(0, outcome),
                        Either::Second(outcome) => winner(1, outcome),
                    }
                })
            }
            Err(Ok([a, b, c])) => {
                let select = ctx.select3(a, b, c);
                Pending::combined(async move {
                    match select.await {
                        Either3::First(outcome) => winner(0, outcome),
                        Either3::Second(outcome) => winner(1, outcome),
                        Either3::Third(outcome) => winner(2, outcome),
                    }
                })
            }
            Err(Err(operands)) => {
                let select = ctx.select(operands);
                Pending::combined(async move {
                    let (index, outcome) = select.await;
                    winner(index, outcome)
                })
            }
        }
    }
}

/// Sets options of every kind. They are not part of the decision's identity.
fn tune(activity: ActivityFuture, accumulator: Accumulator) -> ActivityFuture {
    match accumulator.below(5) {
        0 => activity
            .retry(RetryPolicy::exponential(3))
            .timeout(Duration::from_secs(5))
            .total_timeout(Duration::from_secs(60))
            .tag(TAG)
            .completes_later(),
        1 => activity
            .retry(RetryPolicy::fixed(Duration::from_millis(300)).attempts(4))
            .heartbeat_timeout(Duration::from_millis(900))
            .completes_later(),
        2 => activity.queue_timeout(Duration::from_secs(20)).tag(TAG),
        3 => activity.tag(TAG),
        _ => activity
            .retry(RetryPolicy::linear(Duration::from_millis(50), Duration::from_secs(1)).attempts(2))
            .total_timeout(Duration::from_secs(4)),
    }
}

fn winner(index: usize, outcome: Outcome) -> Outcome {
    outcome.map(|text| format!("{index} won: {text}"))
}

fn listed(texts: impl IntoIterator<Item = String>) -> String {
    texts.into_iter().collect::<Vec<_>>().join(", ")
}
