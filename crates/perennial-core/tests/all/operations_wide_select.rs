//! E11: a loop of selects over what is left costs about the same for each result, however many are left.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use perennial_core::{ActivityError, ActivityFuture, EventId, Operand, OrchestrationContext, Payload};
use perennial_testkit::Drive;

thread_local! {
    /// How often a select has looked at an operand or polled one, on this thread.
    static LOOKS: Cell<u64> = const { Cell::new(0) };
}

fn look() {
    LOOKS.set(LOOKS.get() + 1);
}

/// An activity that counts what a select does to it.
struct Counted(ActivityFuture);

impl Future for Counted {
    type Output = Result<Payload, ActivityError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        look();
        Pin::new(&mut self.0).poll(cx)
    }
}

impl Operand for Counted {
    const IS_OPERATION: bool = ActivityFuture::<Self::Output>::IS_OPERATION;

    fn stored_event(&self) -> Option<EventId> {
        look();
        self.0.stored_event()
    }

    fn is_parked(&self, cx: &Context<'_>) -> bool {
        look();
        self.0.is_parked(cx)
    }

    fn token(&self) -> Option<usize> {
        look();
        self.0.token()
    }
}

/// Which result comes at a place, by width and place.
type Order = fn(u64, u64) -> u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taking {
    Remove,
    SwapRemove,
}

/// How many looks it takes to get the results of `width` activities with a select over those that are left. The code
/// checks that each result is that of the future at its index.
fn looks(width: u64, taking: Taking, order: impl Fn(u64) -> u64) -> u64 {
    let code = move |ctx: OrchestrationContext, _: Payload| async move {
        let scheduled = (0..width).map(|n| (n, Counted(ctx.schedule_activity("step", Payload::null()))));
        let (mut numbers, mut left): (Vec<u64>, Vec<Counted>) = scheduled.unzip();
        let deadline = ctx.schedule_timer(Duration::from_secs(3_600));
        let taken = async {
            while !left.is_empty() {
                let (index, result) = ctx.select(&mut left).await;
                let number: u64 = result.unwrap().decode().unwrap();
                assert_eq!(numbers[index], number);
                match taking {
                    Taking::Remove => {
                        left.remove(index);
                        numbers.remove(index);
                    }
                    Taking::SwapRemove => {
                        left.swap_remove(index);
                        numbers.swap_remove(index);
                    }
                }
            }
        };
        ctx.select2(Box::pin(taken), deadline).await;
        Ok(Payload::null())
    };
    let mut drive = Drive::start(code, ());
    LOOKS.set(0);
    let jobs = (0..width).map(&order).map(|n| Drive::completed(n + 2, Payload::encode(&n).unwrap()));
    let mut execution = drive.execution().take_turn(2_000, jobs.collect()).unwrap();
    assert_eq!(execution.turn.take().unwrap().ending().unwrap().name(), "OrchestrationCompleted");
    LOOKS.get()
}

#[test]
fn e11_a_loop_of_selects_over_what_is_left_does_not_look_at_all_of_it_for_each_result() {
    for taking in [Taking::Remove, Taking::SwapRemove] {
        let orders: [(&str, Order); 3] = [
            ("as scheduled", |_, n| n),
            ("the last first", |width, n| width - 1 - n),
            // A permutation, since the factor and the width have no common divisor.
            ("mixed", |width, n| n * 7_919 % width),
        ];
        for (name, order) in orders {
            let [narrow, wide] = [1_000, 4_000].map(|width| looks(width, taking, |n| order(width, n)));
            let limit = match (taking, name) {
                // What swap_remove moves is found by a look at all; their places are known again after it.
                (Taking::SwapRemove, "as scheduled" | "mixed") => 10,
                _ => 6,
            };
            assert!(wide <= limit * narrow, "{taking:?}, {name}: {narrow} looks, four times as wide {wide}");
            assert!(wide < 4_000 * 400, "{taking:?}, {name}: {wide} looks");
        }
    }
}

#[test]
fn e10_a_wide_select_takes_the_earliest_result_and_polls_what_is_new() {
    let code = |ctx: OrchestrationContext, _: Payload| async move {
        let mut seen = Vec::new();
        let mut left: Vec<_> = (0..3).map(|_| ctx.schedule_activity("A", ())).collect();
        // It waits for all of them, then for one more, and for an event among them.
        for _ in 0..2 {
            let (index, result) = ctx.select(&mut left).await;
            seen.push(format!("{index}{}", result.unwrap().to_text()));
            drop(left.swap_remove(index));
            left.push(ctx.schedule_activity("B", ()));
        }
        ctx.schedule_wait("go").await;
        while !left.is_empty() {
            let (index, result) = ctx.select(&mut left).await;
            seen.push(format!("{index}{}", result.unwrap().to_text()));
            drop(left.swap_remove(index));
        }
        Ok(Payload::from(seen.join(",")))
    };
    let mut drive = Drive::start(code, ());
    drive.complete(3, "b").evict().complete(6, "d").evict();
    let rest = [
        Drive::completed(4, "c"),
        Drive::completed(8, "e"),
        Drive::event("go", ()),
        Drive::completed(2, "a"),
    ];
    drive.turn(rest).evict();
    let lines = drive.last_lines();
    assert_eq!(
        lines.last().unwrap().split_once(' ').unwrap().1,
        r#"OrchestrationCompleted "1b,2d,1c,1e,0a""#
    );
}

#[test]
fn e22_a_select_beside_a_stored_result_of_another_future_still_takes_its_own() {
    let code = |ctx: OrchestrationContext, _: Payload| async move {
        let other = ctx.schedule_activity("other", ());
        let mut left: Vec<_> = (0..2).map(|_| ctx.schedule_activity("A", ())).collect();
        let (first, _) = ctx.select(&mut left).await;
        drop(left.remove(first));
        let (_, second) = ctx.select(&mut left).await;
        let other = other.await.unwrap();
        Ok(Payload::from(format!("{first} {} {}", second.unwrap().to_text(), other.to_text())))
    };
    let mut drive = Drive::start(code, ());
    drive.turn([Drive::completed(2, "other"), Drive::completed(4, "b")]).evict();
    drive.complete(3, "a").evict();
    assert!(drive.last_lines().last().unwrap().ends_with(r#"OrchestrationCompleted "1 a other""#));
}

#[test]
fn e11_branches_that_select_beside_each_other_get_their_own_results() {
    let code = |ctx: OrchestrationContext, _: Payload| async move {
        let branch = |ctx: OrchestrationContext, name: &'static str| async move {
            let mut left: Vec<_> = (0..3).map(|_| ctx.schedule_activity(name, ())).collect();
            let mut seen = String::new();
            while !left.is_empty() {
                let (index, result) = ctx.select(&mut left).await;
                seen.push_str(&result.unwrap().to_text());
                drop(left.remove(index));
            }
            seen
        };
        let (a, b) = (branch(ctx.clone(), "A"), branch(ctx.clone(), "B"));
        let branches: Vec<Pin<Box<dyn Future<Output = String> + Send>>> = vec![Box::pin(a), Box::pin(b)];
        Ok(Payload::from(ctx.parallel(branches).await.join(" ")))
    };
    let mut drive = Drive::start(code, ());
    let jobs = [(4, "3"), (7, "6"), (2, "1"), (5, "4"), (6, "5"), (3, "2")];
    for (source, name) in jobs {
        drive.complete(source, name).evict();
    }
    assert!(drive.last_lines().last().unwrap().ends_with(r#"OrchestrationCompleted "312 645""#));
}
