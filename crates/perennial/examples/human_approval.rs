//! An instance waits for a person, for as long as necessary, without using resources.

use perennial::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Decision {
    by: String,
    approved: bool,
}

/// An event has a name and a type; both sides use the same constant.
const DECIDED: ExternalEvent<Decision> = ExternalEvent::named("decided");

const WEEK: Duration = Duration::from_secs(7 * 86_400);

#[orchestration]
async fn expense(ctx: OrchestrationContext, cents: u64) -> Result<String, String> {
    ctx.set_status(format!("waits for somebody to approve {cents} cents"));
    match ctx.timeout(WEEK, ctx.schedule_wait(DECIDED)).await {
        Ok(Decision { by, approved: true }) => Ok(format!("paid, approved by {by}")),
        Ok(Decision { by, .. }) => Err(format!("refused by {by}")),
        Err(_) => Err("nobody decided within a week".to_owned()),
    }
}

#[tokio::main]
async fn main() -> perennial::Result<()> {
    let runtime = Runtime::open("memory:").register(expense).start().await?;
    let client = runtime.client();
    let lunch = client.start(expense, "lunch", 2_500).await?;
    let yacht = client.start(expense, "yacht", 250_000_000).await?;

    let published = client.status("lunch").await?.published;
    println!("lunch: {}", published.map(|status| status.to_text()).unwrap_or_default());

    // Usually called by a web handler, hours later. The event is durable when the call returns.
    client.raise_event("lunch", DECIDED, Decision { by: "Grace".to_owned(), approved: true }).await?;
    client.raise_event("yacht", DECIDED, Decision { by: "Ada".to_owned(), approved: false }).await?;
    println!("lunch: {}", lunch.result().await?);
    match yacht.result().await {
        Ok(outcome) => println!("yacht: {outcome}"),
        Err(RunError::Failed { error, .. }) => println!("yacht: {error}"),
        Err(error) => return Err(error.into()),
    }
    runtime.shutdown().await
}
