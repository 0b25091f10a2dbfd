//! Delivering a result wakes precisely who waits for it, at any width.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, join_all};
use futures::stream::{FuturesUnordered, StreamExt};
use perennial_core::{
    ActivityFuture, EventId, ExecutionOptions, Job, Operand, OrchestrationContext, Payload, Started,
};
use perennial_testkit::Drive;

/// Counts the polls of a future.
struct Counted<F> {
    future: F,
    polls: Arc<AtomicUsize>,
}

impl<F: Future + Unpin> Future for Counted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.polls.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.future).poll(cx)
    }
}

type Tasks = Vec<Counted<ActivityFuture>>;
type FanIn = fn(OrchestrationContext, Tasks) -> BoxFuture<'static, usize>;

const WIDTH: u64 = 10_000;

/// Takes in `WIDTH` results with `fan_in`, in turns of `per_turn` jobs, and counts the polls of the operands.
fn polls_of_a_fan_in(fan_in: FanIn, per_turn: usize) -> usize {
    let polls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&polls);
    let handler = move |ctx: OrchestrationContext, _: Payload| {
        let polls = Arc::clone(&counter);
        async move {
            let task = |number: u64| Counted {
                future: ctx.schedule_activity("Task", number.to_string()),
                polls: Arc::clone(&polls),
            };
            let tasks = (0..WIDTH).map(task).collect();
            let returned = fan_in(ctx.clone(), tasks).await;
            Ok(Payload::from(returned.to_string()))
        }
    };
    // Without a shadow, which would poll them all again.
    let options = ExecutionOptions { shadow_replay: false, ..ExecutionOptions::default() };
    let started = Started::new("orchestration", "1.0.0", (), 42);
    let mut drive = Drive::prepare(Arc::new(handler), started, options).expect("it can start");
    drive.turn([]);
    // Every second from the front, the rest from the back: neither in order nor backwards.
    let (even, odd) = (2..WIDTH + 2).partition::<Vec<u64>, _>(|id| id % 2 == 0);
    let jobs: Vec<Job> =
        even.into_iter().chain(odd.into_iter().rev()).map(|id| Drive::completed(id, "")).collect();
    for turn in jobs.chunks(per_turn) {
        drive.turn(turn);
    }
    let end = format!(r#"{} OrchestrationCompleted "{WIDTH}""#, 2 * WIDTH + 2);
    assert_eq!(drive.last_lines().last(), Some(&end));
    polls.load(Ordering::Relaxed)
}

#[test]
fn e11_a_wide_join_polls_each_operand_at_first_and_when_it_is_ready() {
    let join: FanIn = |ctx, tasks| Box::pin(async move { ctx.join(tasks).await.len() });
    assert_eq!(polls_of_a_fan_in(join, usize::MAX), 2 * WIDTH as usize);
    assert_eq!(polls_of_a_fan_in(join, 100), 2 * WIDTH as usize);
}

#[test]
fn e11_a_wide_try_join_polls_each_operand_at_first_and_when_it_is_ready() {
    let try_join: FanIn =
        |ctx, tasks| Box::pin(async move { ctx.try_join(tasks).await.map_or(0, |results| results.len()) });
    assert_eq!(polls_of_a_fan_in(try_join, usize::MAX), 2 * WIDTH as usize);
}

#[test]
fn e11_join_all_polls_each_operand_at_first_and_when_it_is_ready() {
    let all: FanIn = |_, tasks| Box::pin(async move { join_all(tasks).await.len() });
    assert_eq!(polls_of_a_fan_in(all, usize::MAX), 2 * WIDTH as usize);
}

#[test]
fn e11_futures_unordered_polls_each_operand_at_first_and_when_it_is_ready() {
    let unordered: FanIn = |_, tasks| Box::pin(tasks.into_iter().collect::<FuturesUnordered<_>>().count());
    assert_eq!(polls_of_a_fan_in(unordered, usize::MAX), 2 * WIDTH as usize);
    assert_eq!(polls_of_a_fan_in(unordered, 100), 2 * WIDTH as usize);
}

impl Operand for Counted<ActivityFuture> {
    fn stored_event(&self) -> Option<EventId> {
        self.future.stored_event()
    }

    fn is_parked(&self, cx: &Context<'_>) -> bool {
        self.future.is_parked(cx)
    }
}

#[test]
fn e11_a_select_in_a_loop_polls_each_operand_at_first_and_when_it_is_ready() {
    let select: FanIn = |ctx, mut tasks| {
        Box::pin(async move {
            let mut returned = 0;
            while !tasks.is_empty() {
                let (index, _) = ctx.select(&mut tasks).await;
                tasks.swap_remove(index);
                returned += 1;
            }
            returned
        })
    };
    assert_eq!(polls_of_a_fan_in(select, usize::MAX), 2 * WIDTH as usize);
    assert_eq!(polls_of_a_fan_in(select, 100), 2 * WIDTH as usize);
}

#[test]
fn e11_completions_poll_each_operand_at_first_and_when_it_is_ready() {
    let completions: FanIn = |ctx, tasks| {
        Box::pin(async move {
            let mut completions = ctx.completions(tasks);
            let mut returned = 0;
            while completions.next().await.is_some() {
                returned += 1;
            }
            returned
        })
    };
    assert_eq!(polls_of_a_fan_in(completions, usize::MAX), 2 * WIDTH as usize);
    assert_eq!(polls_of_a_fan_in(completions, 100), 2 * WIDTH as usize);
}

#[test]
fn e11_a_wide_parallel_runs_each_branch_at_first_and_when_its_result_is_there() {
    let parallel: FanIn = |ctx, tasks| Box::pin(async move { ctx.parallel(tasks).await.len() });
    assert_eq!(polls_of_a_fan_in(parallel, usize::MAX), 2 * WIDTH as usize);
}

#[test]
fn e11_select_biased_takes_branches_in_order_and_its_losers_live_on() {
    async fn selecting(ctx: OrchestrationContext, _: Payload) -> Result<Payload, Payload> {
        let mut first = ctx.schedule_activity("First", "").fuse();
        let mut second = ctx.schedule_activity("Second", "").fuse();
        let mut timer = ctx.schedule_timer(Duration::from_secs(1)).fuse();
        loop {
            futures::select_biased! {
                _ = first => ctx.set_status("first"),
                _ = second => ctx.set_status("second"),
                () = timer => ctx.set_status("timer"),
                complete => return Ok("all three".into()),
            }
        }
    }
    let mut drive = Drive::start(selecting, ());
    drive.evict().complete(3, "").evict();
    assert_eq!(drive.last_lines(), [r#"5 ActivityCompleted of 3 """#, r#"6 StatusSet "second""#]);
    drive.turn([Drive::fired(4), Drive::completed(2, "")]).evict();
    assert_eq!(
        drive.last_lines(),
        [
            r#"7 TimerFired of 4"#,
            r#"8 ActivityCompleted of 2 """#,
            r#"9 StatusSet "timer""#,
            r#"10 StatusSet "first""#,
            r#"11 OrchestrationCompleted "all three""#,
        ]
    );
}
