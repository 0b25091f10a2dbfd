//! Deploying new code while instances run: a patch changes the code of running instances, a version does not.

use perennial::prelude::*;

const PAID: ExternalEvent<()> = ExternalEvent::named("paid");

#[activity]
async fn do_step(_: ActivityContext, step: String) -> Result<String, String> {
    Ok(step)
}

async fn step(ctx: &OrchestrationContext, done: &mut Vec<String>, step: &str) -> Result<(), String> {
    done.push(ctx.schedule_activity(do_step, step.to_owned()).await?);
    Ok(())
}

mod last_year {
    use super::*;

    #[orchestration(version = "1.0.0")]
    pub async fn order(ctx: OrchestrationContext) -> Result<Vec<String>, String> {
        let mut done = Vec::new();
        step(&ctx, &mut done, "pack").await?;
        ctx.schedule_wait(PAID).await;
        step(&ctx, &mut done, "ship").await?;
        Ok(done)
    }
}

mod today {
    use super::*;

    /// The same version, with a change behind a patch: instances that passed this point before take the old
    /// path.
    #[orchestration(version = "1.0.0")]
    pub async fn order(ctx: OrchestrationContext) -> Result<Vec<String>, String> {
        let mut done = Vec::new();
        if ctx.patched("wrap-gifts") {
            step(&ctx, &mut done, "wrap").await?;
        }
        step(&ctx, &mut done, "pack").await?;
        ctx.schedule_wait(PAID).await;
        step(&ctx, &mut done, "ship").await?;
        Ok(done)
    }

    /// A new version: new instances use it, running instances keep theirs.
    #[orchestration(name = "order", version = "2.0.0")]
    pub async fn order_2(ctx: OrchestrationContext) -> Result<Vec<String>, String> {
        let mut done = Vec::new();
        ctx.schedule_wait(PAID).await;
        step(&ctx, &mut done, "send by drone").await?;
        Ok(done)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let url = format!("sqlite:{}", directory.path().join("shop.db").display());

    let runtime = Runtime::open(&url).register(last_year::order).register(do_step).start().await?;
    runtime.client().start(last_year::order, "old", ()).await?;
    runtime.shutdown().await?;

    let runtime =
        Runtime::open(&url).register(today::order).register(today::order_2).register(do_step).start().await?;
    let client = runtime.client();
    client.start_with("order", "patched", (), StartOptions::default().version("1.0.0")).await?;
    client.start(today::order_2, "new", ()).await?;
    for id in ["old", "patched", "new"] {
        client.raise_event(id, PAID, ()).await?;
        let done: Vec<String> = client.result(id).await?.decode()?;
        println!("{id} ({}): {}", client.status(id).await?.version, done.join(", "));
    }
    runtime.shutdown().await?;
    Ok(())
}
