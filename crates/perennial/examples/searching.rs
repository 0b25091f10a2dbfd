//! Finding instances by their attributes: by value, by prefix, by range.

use perennial::prelude::*;
use perennial::{Action, Condition, Filter, attribute};

const ARRIVED: ExternalEvent<()> = ExternalEvent::named("arrived");

#[orchestration]
async fn delivery(ctx: OrchestrationContext, city: String, cents: u64) -> Result<String, String> {
    // Attributes can also be set at the start, and changed at any time.
    ctx.set_attribute("city", &city);
    ctx.set_attribute("cents", cents);
    ctx.schedule_wait(ARRIVED).await;
    Ok(city)
}

async fn found(client: &Client, conditions: Vec<Condition>) -> Result<Vec<String>, ClientError> {
    let filter = Filter::new().conditions(conditions);
    let page = client.list(filter, None, 100).await?;
    Ok(page.rows.into_iter().map(|row| row.id).collect())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = Runtime::open("memory:").register(delivery).start().await?;
    let client = runtime.client();
    for (id, city, cents) in
        [("d-1", "Oslo", 500), ("d-2", "Osaka", 9_900), ("d-3", "Bergen", 12_000), ("d-4", "Øystese", 7_000)]
    {
        client.start(delivery, id, (city.to_owned(), cents)).await?;
    }
    // A start is durable before the code has run; wait until all instances have set their attributes.
    while found(&client, vec![attribute("cents").greater_than(0)]).await?.len() < 4 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    println!("city begins with Os: {:?}", found(&client, vec![attribute("city").starts_with("Os")]).await?);
    let between = vec![attribute("cents").at_least(7_000), attribute("cents").less_than(12_000)];
    println!("70 to 120: {:?}", found(&client, between).await?);
    // Conditions can be parsed from text, such as arguments of a command or an HTTP request.
    println!("after Oslo: {:?}", found(&client, vec!["city > Oslo".parse()?]).await?);

    // Filters accept conditions, too.
    let small = Filter::new().condition("cents<=7000".parse()?);
    let arrived = Action::Raise { event: "arrived".to_owned(), payload: ().into() };
    println!("arrived: {}", client.for_each(small, arrived, |_| ()).await?.done);
    println!("{} {}", client.result("d-1").await?, client.result("d-4").await?);
    Ok(runtime.shutdown().await?)
}
