//! A query and an update are given what they do not take.
//~ this is not a query that takes this input
//~ this is not an update that takes this input

use perennial::prelude::*;

const COUNT: Query<u32, u32> = Query::named("count");
const ADD: Update<u32, u32> = Update::named("add");

async fn ask(client: Client) {
    let _ = client.query("c", COUNT, "three").await;
    let _ = client.update("c", ADD, "three").await;
}

fn main() {
    let _ = ask;
}
