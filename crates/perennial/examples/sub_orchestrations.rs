//! An orchestration runs others as children, each an instance with its own id and history.

use perennial::client::Tree;
use perennial::prelude::*;

#[activity]
async fn bake(_: ActivityContext, cake: String) -> Result<String, String> {
    Ok(format!("a {cake} cake"))
}

#[orchestration]
async fn cake(ctx: OrchestrationContext, flavour: String) -> Result<String, String> {
    if flavour == "onion" {
        return Err("onion is not a flavour".to_owned());
    }
    Ok(ctx.schedule_activity(bake, flavour).await?)
}

#[orchestration]
async fn party(ctx: OrchestrationContext, flavours: Vec<String>) -> Result<Vec<String>, String> {
    let cakes = flavours.into_iter().map(|flavour| {
        let id = format!("{flavour} for {}", ctx.info().instance);
        ctx.schedule_sub_orchestration_with_id(cake, id, flavour)
    });
    // `join` waits for all of them, including those that fail.
    let outcomes = ctx.join(cakes).await;
    Ok(outcomes.into_iter().map(|cake| cake.unwrap_or_else(|error| format!("none ({error})"))).collect())
}

fn print(tree: &Tree, indent: usize) {
    println!("{:indent$}{} is {}", "", tree.instance.id, tree.instance.status.name());
    // Children are listed oldest first, and these three are equally old.
    let mut children: Vec<&Tree> = tree.children.iter().collect();
    children.sort_by_key(|child| &child.instance.id);
    children.into_iter().for_each(|child| print(child, indent + 2));
}

#[tokio::main]
async fn main() -> perennial::Result<()> {
    let runtime = Runtime::open("memory:").register(party).register(cake).register(bake).start().await?;
    let client = runtime.client();
    let flavours = ["lemon", "onion", "poppy"].map(str::to_owned).to_vec();
    for line in client.start(party, "birthday", flavours).await?.result().await? {
        println!("{line}");
    }
    print(&client.tree("birthday").await?, 0);
    runtime.shutdown().await
}
