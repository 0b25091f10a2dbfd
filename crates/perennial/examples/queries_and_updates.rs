//! Queries look at a running instance, updates change it: checked before they are accepted, with an answer.

use perennial::prelude::*;

const CHECKOUT: Event<()> = Event::named("checkout");
const ITEMS: Query<(), Vec<String>> = Query::named("items");
const ADD: Update<String, usize> = Update::named("add");

#[orchestration]
async fn cart(ctx: OrchestrationContext) -> Result<Vec<String>, String> {
    // State is shared by the code and its handlers. It is memory: after a crash it is computed again.
    let items = ctx.state(Vec::<String>::new());

    let shown = items.clone();
    ctx.on_query(ITEMS, move |()| shown.read(Clone::clone));

    let (checked, changed) = (items.clone(), items.clone());
    ctx.on_update(
        ADD,
        move |item| {
            if checked.read(|items| items.contains(item)) {
                return Err(format!("{item} is in the cart"));
            }
            Ok(())
        },
        move |item| {
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
