//! Queries look at a running instance, updates change it: checked before they are accepted, with an answer.

use perennial::prelude::*;
use serde_json::json;

const CHECKOUT: Event<()> = Event::named("checkout");

#[orchestration]
async fn cart(ctx: OrchestrationContext) -> Result<Vec<String>, String> {
    // State is shared by the code and its handlers. It is memory: after a crash it is computed again.
    let items = ctx.state(Vec::<String>::new());

    let shown = items.clone();
    ctx.on_query("items", move |(): ()| shown.read(Clone::clone));

    let (checked, changed) = (items.clone(), items.clone());
    ctx.on_update(
        "add",
        move |item: &String| {
            if checked.read(|items| items.contains(item)) {
                return Err(format!("{item} is in the cart"));
            }
            Ok(())
        },
        move |item: String| {
            let changed = changed.clone();
            async move {
                Ok(changed.update(|items| {
                    items.push(item);
                    items.len()
                }))
            }
        },
    );

    ctx.schedule_wait(CHECKOUT).await;
    Ok(items.read(Clone::clone))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = Runtime::open("memory:").register(cart).start().await?;
    let client = runtime.client();
    let run = client.start(cart, "cart-1", ()).await?;
    for item in ["tea", "milk", "tea"] {
        match client.update("cart-1", "add", json!(item)).await {
            Ok(count) => println!("added {item}: {} in the cart", count.decode::<usize>()?),
            Err(ClientError::Refused { error: Some(error), .. }) => println!("refused: {}", error.to_text()),
            Err(error) => return Err(error.into()),
        }
    }
    let items: Vec<String> = client.query("cart-1", "items", ()).await?.decode()?;
    println!("query: {}", items.join(", "));
    client.raise_event("cart-1", CHECKOUT, ()).await?;
    println!("bought: {}", run.result().await?.join(", "));
    runtime.shutdown().await?;
    Ok(())
}
