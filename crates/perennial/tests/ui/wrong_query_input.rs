//! A query and an update are given what they do not take.
//~ expected `u32`, found `&str`
//~ client.query("c", COUNT, "three")
//~ client.update("c", ADD, "three")

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
