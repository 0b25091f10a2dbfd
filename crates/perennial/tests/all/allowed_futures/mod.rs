//! E8, E10: which parts of `tokio` and `futures` an orchestration may use, each claim of the guide's page "What may be
//! awaited" by a program that runs it.
//!
//! Allowed programs have the same result whatever crashes, and their histories replay. Refused programs fail
//! with the code that the page names. Every program makes a decision after each wait, so that another order
//! would be another history.

mod refused;
mod replayed;

use perennial::prelude::*;

type Output = Result<Vec<u64>, String>;

/// How often a history is replayed: a random choice between two would go unnoticed once in a million times.
const REPLAYS: usize = 20;

#[activity]
async fn note(_: ActivityContext, what: u64) -> Result<u64, String> {
    Ok(what)
}

/// Waits so many seconds, and says how many. Those that wait equally long are done in one turn.
async fn after(ctx: OrchestrationContext, seconds: u64) -> u64 {
    ctx.schedule_timer(Duration::from_secs(seconds)).await;
    seconds
}

/// Decides something about what came.
async fn noted(ctx: &OrchestrationContext, what: u64) -> u64 {
    ctx.schedule_activity(note, what).await.unwrap_or(u64::MAX)
}
