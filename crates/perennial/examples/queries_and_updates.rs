//! Queries read a running instance. Updates change it: they are validated first, and return an answer.

use perennial::prelude::*;

const CHECKOUT: ExternalEvent<()> = ExternalEvent::named("checkout");
const ITEMS: Query<(), Vec<String>> = Query::named("items");
const ADD: Update<String, usize> = Update::named("add");

#[orchestration]
async fn cart(ctx: OrchestrationContext) -> Result<Vec<String>, String> {
    // State is shared by the code and its handlers. It is in memory: after a crash, replay computes it again.
    let items = ctx.state(Vec::<String>::new());

    ctx.on_query(ITEMS, &items, |items, ()| items.read(Clone::clone));

    ctx.on_update(ADD, &items, |items, item| async move {
        Ok(items.update(|items| {
            items.push(item);
            items.len()
        }))
    })
    .validate(|items, item| match items.read(|items| items.contains(item)) {
        true => Err(format!("{item} is in the cart")),
        false => Ok(()),
    });

    ctx.schedule_wait(CHECKOUT).await;
    Ok(items.read(Clone::clone))
}

#[tokio::main]
async fn main() -> perennial::Result<()> {
    let runtime = Runtime::open("memory:").register(cart).start().await?;
    let client = runtime.client();
    let run = client.start(cart, "cart-1", ()).await?;
    for item in ["tea", "milk", "tea"] {
        match client.update("cart-1", ADD, item.to_owned()).await {
            Ok(count) => println!("added {item}: {count} in the cart"),
            Err(UpdateError::Refused { error: Some(error), .. }) => println!("refused: {error}"),
            Err(error) => return Err(error.into()),
        }
    }
    println!("query: {}", client.query("cart-1", ITEMS, ()).await?.join(", "));
    client.raise_event("cart-1", CHECKOUT, ()).await?;
    println!("bought: {}", run.result().await?.join(", "));
    runtime.shutdown().await
}
