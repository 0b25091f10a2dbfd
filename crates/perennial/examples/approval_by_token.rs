//! An order is approved through a link, perhaps days later: the activity sends out its token and returns, and
//! the holder of the token completes it. Nothing runs in the meantime, and restarts do not matter.

use perennial::prelude::*;
use tokio::sync::mpsc::UnboundedSender;

/// Stands in for e-mail.
type Mail = UnboundedSender<(String, String)>;

/// Asks by mail. The answer arrives later, through the link.
#[activity(state(Mail))]
async fn ask(ctx: ActivityContext, approver: String, cents: u64) -> Result<Later<bool>, String> {
    println!("to {approver}: please approve {cents} cents (attempt {})", ctx.attempt());
    ctx.state::<Mail>().send((approver, ctx.completion_token())).map_err(|error| error.to_string())?;
    Ok(Later::Pending)
}

/// Asks once more if there is no answer within a day, and treats silence as a no.
#[orchestration(uses(ask))]
async fn order(ctx: OrchestrationContext, cents: u64) -> Result<String, String> {
    let approval = ctx
        .schedule_activity(ask, ("Grace".to_owned(), cents))
        .timeout(Duration::from_secs(86_400))
        .retry(RetryPolicy::fixed(Duration::from_millis(1_000)).attempts(2));
    match approval.await {
        Ok(true) => Ok("ordered".to_owned()),
        Ok(false) => Ok("declined".to_owned()),
        Err(ActivityError::Timeout(_)) => Ok("nobody answered".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[tokio::main]
async fn main() -> perennial::Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    let url = format!("sqlite:{}", directory.path().join("shop.db").display());
    let (mail, mut mailbox): (Mail, _) = tokio::sync::mpsc::unbounded_channel();
    let open = || Runtime::open(&url).register(order).register(ask).state(mail.clone()).start();

    let runtime = open().await?;
    runtime.client().start(order, "order-7", 2_500).await?;
    let (approver, token) = mailbox.recv().await.expect("the mail was sent");
    runtime.shutdown().await?;
    println!("the shop is closed, and order-7 waits");

    let runtime = open().await?;
    println!("{approver} follows the link");
    // In a web server: the handler of `GET /approve?token=…`. From a shell: `perennial activity complete TOKEN --result true`.
    runtime.client().complete_activity(&token, true).await?;
    println!("order-7: {}", runtime.client().result("order-7").await?.to_text());

    let twice = runtime.client().complete_activity(&token, false).await;
    println!("too late: {}", matches!(twice, Err(ClientError::ActivityOver { .. })));
    runtime.shutdown().await
}
